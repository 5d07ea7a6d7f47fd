//! Changes at anchors: where the named lines are, and the bytes that replace them.

use std::collections::HashMap;

use super::{
    Change, Miss,
    splice::{Kind, Splice},
};
use crate::tool::{anchor::Anchor, lines::Text, memory::View};

/// The rows that a refusal shows around a stale anchor, before and after.
const AROUND: u64 = 3;

/// What the model knew of the file when it made the call.
#[derive(Clone, Copy)]
pub(super) struct Known<'a> {
    pub(super) view: &'a View,
    /// When it made the call.
    pub(super) time: u64,
    /// Whether nothing else has changed the file since it was read.
    pub(super) is_sure: bool,
}

/// Returns the splices of one change and a note when an anchor's line had moved.
pub(super) fn plan(
    old: &Text,
    known: &Known<'_>,
    change: &Change,
    at: usize,
) -> Result<(Vec<Splice>, Option<String>), Miss> {
    match change {
        Change::Lines { from, to, text } => {
            let first = find(old, known, *from, at)?;
            let last = find(old, known, *to, at)?;
            if last < first {
                return Err(Miss::new(
                    format!("edits[{at}]: `to` ({to}) is before `from` ({from}); swap them"),
                    [],
                ));
            }
            untouched(old, known, first, last, at)?;
            let note = moved(&[(*from, first), (*to, last)], at);
            Ok((vec![replace(old, first, last, text, at)], note))
        }
        Change::Insert { at: anchor, is_after, text } => {
            let line = find(old, known, *anchor, at)?;
            let note = moved(&[(*anchor, line)], at);
            Ok((vec![insert(old, line, *is_after, text, at)], note))
        }
        Change::Exact { .. } => Ok((vec![], None)),
    }
}

/// Returns the line that an anchor names now.
fn find(old: &Text, known: &Known<'_>, anchor: Anchor, at: usize) -> Result<u64, Miss> {
    let miss = |reason: &str, around: u64| {
        let show = around.saturating_sub(AROUND)..=around.saturating_add(AROUND);
        Miss::new(format!("edits[{at}]: {anchor} {reason}"), show)
    };
    let Some(shown) = known.view.at(anchor, known.time) else {
        if anchor.line > old.count() {
            return Err(miss(&format!("is past the end ({} lines)", old.count()), old.count()));
        }
        let content = "; take the anchor from the rows below".to_owned();
        return Err(Miss { content, ..miss("was not shown in this run", anchor.line) });
    };
    let now = shown.now.filter(|now| old.full(*now) == Some(shown.full)).ok_or_else(|| {
        miss("is stale: that line was changed since it was shown", anchor.line.min(old.count()))
    })?;
    Ok(now)
}

/// Refuses a range in whose inside something else has changed a line. A line that was never shown
/// is taken as known when the file is as it was last read.
fn untouched(old: &Text, known: &Known<'_>, first: u64, last: u64, at: usize) -> Result<(), Miss> {
    // More than one row can stand for a line, shown at different times; one that is right will do.
    let mut seen: HashMap<u64, bool> = HashMap::new();
    for shown in known.view.rows.values() {
        if let Some(now) = shown.now.filter(|now| (first..=last).contains(now)) {
            let is_right = old.full(now) == Some(shown.full);
            *seen.entry(now).or_default() |= is_right;
        }
    }
    for line in first..=last {
        if !seen.get(&line).copied().unwrap_or(known.is_sure) {
            return Err(Miss::new(
                format!(
                    "edits[{at}]: line {line} within the range was not shown as it is now: the file was \
                     changed since; read lines {first}-{last} again"
                ),
                first.saturating_sub(1)..=last.saturating_add(1),
            ));
        }
    }
    Ok(())
}

fn moved(found: &[(Anchor, u64)], at: usize) -> Option<String> {
    let mut moves: Vec<String> = found
        .iter()
        .filter(|(anchor, line)| anchor.line != *line)
        .map(|(anchor, line)| format!("{anchor} is now line {line}"))
        .collect();
    moves.dedup();
    (!moves.is_empty()).then(|| format!("edits[{at}]: {}; it was followed", moves.join(", ")))
}

/// Returns the new lines without endings; one line break at the end of the text is none of them.
fn new_lines(text: &str) -> Vec<&str> {
    let text = text.strip_suffix('\n').unwrap_or(text);
    text.split('\n').map(|line| line.strip_suffix('\r').unwrap_or(line)).collect()
}

/// Returns the ending for new lines at a line: its own, or its neighbour's, or the usual one.
fn ending(old: &Text, line: u64) -> &[u8] {
    [line, line.saturating_sub(1)]
        .into_iter()
        .map(|line| old.ending(line))
        .find(|ending| !ending.is_empty())
        .unwrap_or(old.usual)
}

fn replace(old: &Text, first: u64, last: u64, text: &str, change: usize) -> Splice {
    let start = old.span(first).map_or(0, |span| span.start);
    let Some(end) = old.span(last) else {
        return Splice { start, end: start, with: vec![], lines: None, change, kind: Kind::Bytes };
    };
    let lines = Some((first, last));
    if text.is_empty() {
        return Splice { start, end: end.next, with: vec![], lines, change, kind: Kind::Delete };
    }
    // The last line keeps its own ending, so the splice stops before it.
    let mut with = Vec::new();
    let mut line = first;
    for (n, new) in new_lines(text).into_iter().enumerate() {
        if n > 0 {
            with.extend_from_slice(ending(old, line));
            line = line.saturating_add(1).min(last);
        }
        with.extend_from_slice(new.as_bytes());
    }
    Splice { start, end: end.end, with, lines, change, kind: Kind::Bytes }
}

fn insert(old: &Text, line: u64, is_after: bool, text: &str, change: usize) -> Splice {
    let break_ = ending(old, line);
    let span = old.span(line);
    let at = span.map_or(0, |span| if is_after { span.next } else { span.start });
    let is_unended = is_after && old.ending(line).is_empty();
    let mut with = Vec::new();
    for new in new_lines(text) {
        if is_unended {
            with.extend_from_slice(break_);
        }
        with.extend_from_slice(new.as_bytes());
        if !is_unended {
            with.extend_from_slice(break_);
        }
    }
    Splice { start: at, end: at, with, lines: None, change, kind: Kind::Insert }
}
