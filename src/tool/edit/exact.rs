//! Changes at exact texts: every place where the text stands, line endings aside.

use super::{
    Miss, nearest,
    splice::{Kind, Splice},
};
use crate::tool::lines::{BOM, Text};

/// A place where the text stands.
struct Match<'a> {
    start: usize,
    end: usize,
    /// The line endings that it spans.
    endings: Vec<&'a [u8]>,
}

/// The most lines that a refusal names.
const MAX_NAMED: usize = 10;

/// The most matches of one change: each is held in memory until the file is written.
const MAX_MATCHES: usize = 100_000;

/// Returns the splices of one change and a note when it matched only apart from spaces at the ends
/// of lines.
pub(super) fn plan(
    text: &Text,
    old: &str,
    new: &str,
    all: bool,
    at: usize,
) -> Result<(Vec<Splice>, Option<String>), Miss> {
    let (old, new) = (old.replace("\r\n", "\n"), new.replace("\r\n", "\n"));
    let mut matches = find(text, &old, false, all);
    let mut note = None;
    if matches.is_empty() && old.contains('\n') {
        matches = find(text, &old, true, all);
        if !matches.is_empty() {
            note = Some(format!(
                "edits[{at}]: `old` matched apart from spaces at the ends of lines in the file"
            ));
        }
    }
    if matches.is_empty() {
        return Err(nearest::miss(text, &old, at));
    }
    if matches.len() > MAX_MATCHES {
        return Err(Miss::new(
            format!(
                "edits[{at}]: more than {MAX_MATCHES} matches of `old`; give more of the text around \
                 it, or change the file with a command"
            ),
            [],
        ));
    }
    if matches.len() > 1 && !all {
        let mut lines: Vec<u64> = matches.iter().map(|found| text.line_at(found.start)).collect();
        lines.dedup();
        let named: Vec<String> = lines.iter().take(MAX_NAMED).map(u64::to_string).collect();
        let more = if lines.len() > MAX_NAMED { ", …" } else { "" };
        let s = if lines.len() == 1 { "" } else { "s" };
        return Err(Miss::new(
            format!(
                "edits[{at}]: {} matches of `old`: line{s} {}{more}; give more of the text around it, \
                 use an anchor, or set `all`",
                matches.len(),
                named.join(", ")
            ),
            lines.into_iter().take(MAX_NAMED),
        ));
    }
    let splices = matches
        .iter()
        .map(|found| Splice {
            start: found.start,
            end: found.end,
            with: with_endings(text, found, &new),
            lines: None,
            change: at,
            kind: Kind::Bytes,
        })
        .collect();
    Ok((splices, note))
}

/// Returns the new text with the endings of the lines that it replaces, one by one, then those of
/// the line it starts in.
fn with_endings(text: &Text, found: &Match<'_>, new: &str) -> Vec<u8> {
    let line = text.line_at(found.start);
    let own = [line, line.saturating_sub(1)]
        .into_iter()
        .map(|line| text.ending(line))
        .find(|ending| !ending.is_empty())
        .unwrap_or(text.usual);
    let mut with = Vec::with_capacity(new.len());
    for (n, part) in new.split('\n').enumerate() {
        if let Some(before) = n.checked_sub(1) {
            let last = found.endings.last().copied().unwrap_or(own);
            with.extend_from_slice(found.endings.get(before).copied().unwrap_or(last));
        }
        with.extend_from_slice(part.as_bytes());
    }
    with
}

/// Finds every place where a text stands. With `is_loose`, spaces and tabs before a line ending in
/// the file are passed over. Where `all` are replaced, a match begins after the one before it ended.
/// Stops at one more than [`MAX_MATCHES`].
fn find<'a>(text: &'a Text, old: &str, is_loose: bool, all: bool) -> Vec<Match<'a>> {
    let parts: Vec<&[u8]> = old.split('\n').map(str::as_bytes).collect();
    let first = parts.first().copied().unwrap_or_default();
    let finder = memchr::memmem::Finder::new(first);
    let mut matches = Vec::new();
    let mut start = if text.bytes.starts_with(BOM) { BOM.len() } else { 0 };
    // An empty first part is found at every offset, the end included.
    while matches.len() <= MAX_MATCHES
        && let Some(at) = text.bytes.get(start..).and_then(|rest| finder.find(rest))
    {
        start = start.saturating_add(at);
        if let Some(found) = match_at(text, start, &parts, is_loose) {
            start = if all { found.end } else { start.saturating_add(1) };
            matches.push(found);
        } else {
            start = start.saturating_add(1);
        }
    }
    matches
}

fn match_at<'a>(
    text: &'a Text,
    start: usize,
    parts: &[&[u8]],
    is_loose: bool,
) -> Option<Match<'a>> {
    let mut at = start;
    let mut endings = Vec::new();
    for (n, part) in parts.iter().enumerate() {
        if n > 0 {
            let rest = text.bytes.get(at..)?;
            let spaces = if is_loose {
                rest.iter().take_while(|byte| matches!(byte, b' ' | b'\t')).count()
            } else {
                0
            };
            let ending = ending_at(text, at.saturating_add(spaces))?;
            at = at.saturating_add(spaces).saturating_add(ending.len());
            endings.push(ending);
        }
        if !text.bytes.get(at..)?.starts_with(part) {
            return None;
        }
        at = at.saturating_add(part.len());
    }
    Some(Match { start, end: at, endings })
}

/// Returns the line ending that begins at an offset.
fn ending_at(text: &Text, at: usize) -> Option<&[u8]> {
    let rest = text.bytes.get(at..)?;
    // In a file that is cut at CR, a CR alone ends a line; elsewhere it is a character.
    let kinds: &[&[u8]] = if text.usual == b"\r" { &[b"\r"] } else { &[b"\r\n", b"\n"] };
    kinds.iter().find(|kind| rest.starts_with(kind)).and_then(|kind| rest.get(..kind.len()))
}
