//! The reader: line by line, one line in memory, every byte accounted for as kept or damaged.

use std::{
    fs::File,
    io::{self, BufRead, BufReader, Read as _, Seek as _},
    path::Path,
};

use serde::de::IgnoredAny;

use crate::host::HostError;

use super::{
    SessionError,
    entry::{self, Read},
};

/// The longest line that is written, and read as one, in bytes: a file that a hostile program blew
/// up must not take all memory.
pub(super) const LONGEST: usize = 64 << 20;

/// How many places in a damaged line are tried as the start of an event.
const TRIES: usize = 64;

/// How many bytes of a damaged line are parsed in vain, as a multiple of its length; short lines may
/// always cost [`CHEAP`].
const EFFORT: usize = 4;

/// See [`EFFORT`], in bytes.
const CHEAP: usize = 4 << 20;

/// How an event starts that kli wrote.
const START: &[u8] = br#"{"type":""#;

/// A part of a file.
pub(super) enum Part<'a> {
    /// An event that is kept, without a line break.
    Kept(&'a [u8], Read),
    /// Bytes that are no event; of a line that is longer than [`LONGEST`], a piece.
    Damaged(&'a [u8]),
}

/// What a scan found out about a file as a whole.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Summary {
    /// Where the last kept line ends, its line break included.
    pub(super) end: u64,
    /// Where the file ended.
    pub(super) length: u64,
    /// Lines with damaged bytes.
    pub(super) damaged_lines: u64,
    /// Damaged bytes.
    pub(super) damaged_bytes: u64,
    /// Whether cutting the tail is not enough: damaged bytes come before a kept line, or on its line.
    pub(super) inside: bool,
    /// Messages.
    pub(super) messages: u64,
}

/// Reads a file from its beginning up to `limit` bytes and hands every part to `each`, in order.
pub(super) fn scan(
    file: File,
    path: &Path,
    limit: u64,
    each: impl FnMut(Part<'_>) -> Result<(), SessionError>,
) -> Result<Summary, SessionError> {
    scan_with(file, path, limit, LONGEST, each)
}

/// As [`scan`], with another bound for a line.
pub(super) fn scan_with(
    file: File,
    path: &Path,
    limit: u64,
    longest: usize,
    mut each: impl FnMut(Part<'_>) -> Result<(), SessionError>,
) -> Result<Summary, SessionError> {
    scan_at(file, path, limit, longest, |_, part| each(part))
}

/// As [`scan_with`]; every part comes with the place in the file where its line begins.
pub(super) fn scan_at(
    mut file: File,
    path: &Path,
    limit: u64,
    longest: usize,
    mut each: impl FnMut(u64, Part<'_>) -> Result<(), SessionError>,
) -> Result<Summary, SessionError> {
    let fail = |source| SessionError::read(HostError::io("read", path, source));
    file.rewind().map_err(fail)?;
    let mut reader = BufReader::with_capacity(256 << 10, file.take(limit));
    let mut line: Vec<u8> = Vec::new();
    let mut summary = Summary::default();
    // Whether a part of this line went as damaged already.
    let mut broken = false;
    loop {
        let room = longest.saturating_sub(line.len());
        let read = reader.by_ref().take(room as u64).read_until(b'\n', &mut line).map_err(fail)?;
        summary.length += read as u64;
        if line.is_empty() {
            return Ok(summary);
        }
        if line.len() >= longest && !line.ends_with(b"\n") {
            let until = before_an_event(&line);
            let damaged = line.get(..until).unwrap_or_default();
            summary.damaged(damaged, &mut broken);
            each(summary.length - line.len() as u64, Part::Damaged(damaged))?;
            line.drain(..until);
            continue;
        }
        let content = line.strip_suffix(b"\n").unwrap_or(&line);
        let before = summary.length - line.len() as u64;
        if content.iter().all(u8::is_ascii_whitespace) {
            // An empty line is nothing; behind damaged bytes, or without its end, it goes with the tail.
            if summary.end == before && !broken && line.ends_with(b"\n") {
                summary.end = summary.length;
            }
        } else {
            let damaged_before = summary.damaged_lines > 0;
            let mut kept = false;
            split(content, &mut |part| {
                match &part {
                    Part::Damaged(bytes) => summary.damaged(bytes, &mut broken),
                    Part::Kept(_, read) => {
                        kept = true;
                        summary.messages += u64::from(matches!(read, Read::Message(_)));
                    }
                }
                each(before, part)
            })?;
            if kept {
                summary.inside |= damaged_before || broken;
                summary.end = summary.length;
            }
        }
        line.clear();
        broken = false;
        if read == 0 {
            return Ok(summary);
        }
    }
}

impl Summary {
    fn damaged(&mut self, bytes: &[u8], broken: &mut bool) {
        self.damaged_lines += u64::from(!std::mem::replace(broken, true));
        self.damaged_bytes += bytes.len() as u64;
    }
}

/// Returns how many bytes of the start of an endless line are given up: at least half of them, up to
/// where an event may begin.
fn before_an_event(line: &[u8]) -> usize {
    let half = line.len() / 2;
    let second = line.get(half..).unwrap_or_default();
    // A start may be cut in two.
    let safe = line.len().saturating_sub(START.len()).max(1);
    memchr::memmem::find(second, START).map_or(safe, |at| (half + at).max(1))
}

/// Hands out the parts of one line: the event that it is, or the events among the remains of other
/// writes. A torn write, a block of NULs after a loss of power, or a lost line break glues lines
/// together.
fn split<'a>(
    line: &'a [u8],
    each: &mut impl FnMut(Part<'a>) -> Result<(), SessionError>,
) -> Result<(), SessionError> {
    if let Some(read) = event(line) {
        return each(Part::Kept(line, read));
    }
    let effort = line.len().saturating_mul(EFFORT).max(CHEAP);
    let (mut done, mut spent) = (0, 0);
    let starts = memchr::memmem::find_iter(line, START).filter(|at| begins(line, *at));
    for at in starts.take(TRIES) {
        let Some(rest) = line.get(at..).filter(|_| at >= done && spent < effort) else { continue };
        spent += rest.len();
        let Some((bytes, read)) = first_event(rest) else { continue };
        if at > done {
            each(Part::Damaged(line.get(done..at).unwrap_or_default()))?;
        }
        done = at + bytes.len();
        each(Part::Kept(bytes, read))?;
    }
    match line.get(done..).filter(|rest| !rest.iter().all(u8::is_ascii_whitespace)) {
        Some(rest) => each(Part::Damaged(rest)),
        None => Ok(()),
    }
}

/// Says whether an event of kli's own may begin here, and not merely a part of one.
fn begins(line: &[u8], at: usize) -> bool {
    let rest = line.get(at + START.len()..).unwrap_or_default();
    let kind = rest.iter().take_while(|byte| byte.is_ascii_lowercase()).count();
    let rest = rest.get(kind..).unwrap_or_default();
    kind > 0 && (rest.starts_with(br#"","at":""#) || rest.starts_with(br#"","version":"#))
}

/// Returns the event that these bytes begin with. What goes on like the inside of a larger object is
/// a part of that and no event.
fn first_event(bytes: &[u8]) -> Option<(&[u8], Read)> {
    let mut values = serde_json::Deserializer::from_slice(bytes).into_iter::<IgnoredAny>();
    values.next()?.ok()?;
    let (value, rest) = bytes.split_at_checked(values.byte_offset())?;
    if rest.trim_ascii_start().first().is_some_and(|next| b",}]:".contains(next)) {
        return None;
    }
    event(value).map(|read| (value, read))
}

fn event(line: &[u8]) -> Option<Read> {
    entry::read(line).or_else(|| entry::read(&entry::escaped(line)?))
}

/// Says whether a file holds a message, reading no more than `limit` bytes.
pub(super) fn has_message(file: File, limit: u64) -> io::Result<bool> {
    let mut head = Vec::new();
    file.take(limit).read_to_end(&mut head)?;
    let mut found = false;
    for line in head.split(|byte| *byte == b'\n') {
        // Nothing that is handed out fails.
        let _infallible = split(line, &mut |part| {
            found |= matches!(part, Part::Kept(_, Read::Message(_)));
            Ok(())
        });
    }
    Ok(found)
}
