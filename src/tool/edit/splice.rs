//! Splices: byte ranges of the old file and what stands in their place.

use serde_json::{Value, json};

use super::Miss;
use crate::tool::{
    anchor,
    lines::{BOM, Text},
};

/// The longest text of a hunk that the record carries, in bytes.
const MAX_HUNK: usize = 20_000;

/// The most hunks that the record carries.
const MAX_HUNKS: usize = 200;

/// One range of the old file and what stands in its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Splice {
    pub(super) start: usize,
    /// The offset after the range; `start` for an insertion.
    pub(super) end: usize,
    pub(super) with: Vec<u8>,
    /// The lines that it replaces as a whole, first and last: a blank one has no byte to show it.
    pub(super) lines: Option<(u64, u64)>,
    /// The place of its change in the call, for errors.
    pub(super) change: usize,
    /// Whether it takes whole lines away, or puts whole lines in: what keeps the end of the file as
    /// it was.
    pub(super) kind: Kind,
}

/// What a splice does to whole lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Replaces bytes within lines.
    Bytes,
    /// Takes whole lines away, with their endings.
    Delete,
    /// Puts whole lines in; each but possibly the last has its ending.
    Insert,
}

/// Refuses splices that touch the same bytes, and two insertions at one place, whose order nobody
/// could tell. Wants them sorted.
pub(super) fn overlap(old: &Text, splices: &[Splice]) -> Option<Miss> {
    let mut claims: Vec<(u64, u64, usize)> = splices
        .iter()
        .filter_map(|splice| splice.lines.map(|(first, last)| (first, last, splice.change)))
        .collect();
    claims.sort_unstable();
    let twice = claims.windows(2).find_map(|pair| match pair {
        [(_, last, one), (first, _, two)] if first <= last => Some((*first, *one, *two)),
        _ => None,
    });
    if let Some((line, one, two)) = twice {
        return Some(clash("overlap", line, one, two));
    }
    splices.windows(2).find_map(|pair| {
        let [one, two] = pair else { return None };
        let is_insertion = |splice: &Splice| splice.start == splice.end;
        let same_place = is_insertion(one) && is_insertion(two) && one.start == two.start;
        if two.start >= one.end && !same_place {
            return None;
        }
        let what = if same_place { "insert at the same place" } else { "overlap" };
        Some(clash(what, old.line_at(two.start), one.change, two.change))
    })
}

fn clash(what: &str, line: u64, one: usize, two: usize) -> Miss {
    let (a, b) = (one.min(two), one.max(two));
    Miss::new(format!("edits[{a}] and edits[{b}] {what}, at line {line}; join them into one"), [])
}

/// Sorts splices by where they are, whatever the order in which they were asked for. Lines that are
/// put in after a last line without an ending bring the missing ending; when that line goes, they
/// do not.
pub(super) fn settle(old: &Text, splices: &mut [Splice]) {
    splices.sort_by_key(|splice| (splice.start, splice.end, splice.change));
    let end = old.bytes.len();
    if !old.ending(old.count()).is_empty() || !splices.iter().any(|s| s.takes_the_end(end)) {
        return;
    }
    for splice in splices.iter_mut().filter(|s| s.kind == Kind::Insert && s.start == end) {
        let ending = ENDINGS.iter().find(|ending| splice.with.starts_with(ending));
        splice.with.drain(..ending.map_or(0, |ending| ending.len()));
    }
}

/// Line endings, the longest first.
const ENDINGS: [&[u8]; 3] = [b"\r\n", b"\n", b"\r"];

impl Splice {
    fn takes_the_end(&self, end: usize) -> bool {
        self.kind == Kind::Delete && self.end == end
    }
}

/// Returns the new content. Wants splices that are settled and do not overlap.
pub(super) fn apply(old: &Text, splices: &[Splice]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(old.bytes.len());
    let mut done = 0;
    for splice in splices {
        bytes.extend_from_slice(old.bytes.get(done..splice.start).unwrap_or_default());
        bytes.extend_from_slice(&splice.with);
        done = splice.end;
    }
    bytes.extend_from_slice(old.bytes.get(done..).unwrap_or_default());
    // When a last line without an ending goes, the one before it becomes such a line.
    let end = old.bytes.len();
    let is_last_gone = splices.iter().any(|s| s.takes_the_end(end))
        && !splices.iter().any(|s| s.kind == Kind::Insert && s.start == end);
    if is_last_gone && old.ending(old.count()).is_empty() {
        let without = ENDINGS
            .iter()
            .find_map(|ending| bytes.strip_suffix(*ending))
            // A blank line that lost its ending would be lost itself.
            .filter(|rest| !rest.is_empty() && *rest != BOM && !rest.ends_with(b"\n"))
            .map(<[u8]>::len);
        bytes.truncate(without.unwrap_or(bytes.len()));
    }
    bytes
}

/// Returns where each splice's new text stands in the new content.
pub(super) fn new_ranges(splices: &[Splice]) -> Vec<(usize, usize)> {
    let mut ranges = Vec::with_capacity(splices.len());
    let (mut taken, mut put) = (0_usize, 0_usize);
    for splice in splices {
        let start = splice.start.saturating_add(put).saturating_sub(taken);
        ranges.push((start, start.saturating_add(splice.with.len())));
        put = put.saturating_add(splice.with.len());
        taken = taken.saturating_add(splice.end.saturating_sub(splice.start));
    }
    ranges
}

/// Returns the changes by lines, for front ends.
pub(super) fn hunks(old: &Text, new: &Text, splices: &[Splice]) -> Vec<Value> {
    let cut =
        |bytes: &[u8]| String::from_utf8_lossy(bytes.get(..MAX_HUNK).unwrap_or(bytes)).into_owned();
    splices
        .iter()
        .zip(new_ranges(splices))
        .take(MAX_HUNKS)
        .map(|(splice, (start, _))| {
            json!({
                "old_line": old.line_at(splice.start),
                "new_line": new.line_at(start),
                "old": cut(old.bytes.get(splice.start..splice.end).unwrap_or_default()),
                "new": cut(&splice.with),
            })
        })
        .collect()
}

/// Returns lines as rows, with a mark where some are left out.
pub(super) fn show(text: &Text, lines: impl IntoIterator<Item = u64>) -> String {
    let mut shown: Vec<String> = Vec::new();
    let mut before: Option<u64> = None;
    for line in lines {
        if before.is_some_and(|before| before.saturating_add(1) != line) {
            shown.push("…".into());
        }
        shown.push(anchor::show(line, text.content(line)));
        before = Some(line);
    }
    shown.join("\n")
}
