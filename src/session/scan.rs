//! The reader: line by line, one line in memory, every byte accounted for as kept or damaged.

use std::{
    fs::File,
    io::{self, BufRead, BufReader, Read as _},
    path::Path,
};

use crate::host::HostError;

use super::{
    SessionError,
    entry::{self, Read},
};

/// The longest line that is read, in bytes. A message is far below it; a file that a hostile program
/// blew up must not take all memory.
const LONGEST: u64 = 256 << 20;

/// How many places in a damaged line are tried as the start of a whole event.
const TRIES: usize = 64;

/// How an event starts that kli wrote.
const START: &[u8] = br#"{"type":""#;

/// A part of a file.
pub(super) enum Part<'a> {
    /// A line that is kept, without its end.
    Kept(&'a [u8], Read),
    /// Bytes that are no event.
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
    /// Whether damaged bytes come before a kept line, so that cutting the tail is not enough.
    pub(super) inside: bool,
}

/// Reads a file up to `limit` bytes and hands every part to `each`, in order.
pub(super) fn scan(
    file: File,
    path: &Path,
    limit: u64,
    mut each: impl FnMut(Part<'_>) -> Result<(), SessionError>,
) -> Result<Summary, SessionError> {
    let mut reader = BufReader::with_capacity(256 << 10, file.take(limit));
    let mut line = Vec::new();
    let mut summary = Summary::default();
    let damaged = |summary: &mut Summary, bytes: &[u8]| {
        summary.damaged_lines += 1;
        summary.damaged_bytes += bytes.len() as u64;
    };
    loop {
        line.clear();
        let read = reader.by_ref().take(LONGEST).read_until(b'\n', &mut line);
        let read =
            read.map_err(|source| SessionError::read(HostError::io("read", path, source)))?;
        if read == 0 {
            return Ok(summary);
        }
        if read as u64 == LONGEST {
            return Err(SessionError::TooLong { path: path.to_owned(), most: LONGEST });
        }
        summary.length += read as u64;
        let content = line.strip_suffix(b"\n").unwrap_or(&line);
        if content.iter().all(u8::is_ascii_whitespace) {
            // An empty line is nothing; behind damaged bytes, or without its end, it goes with the tail.
            let whole = summary.end + read as u64 == summary.length;
            if whole && line.ends_with(b"\n") {
                summary.end = summary.length;
            }
            continue;
        }
        let Some((before, kept, read)) = salvage(content) else {
            damaged(&mut summary, content);
            each(Part::Damaged(content))?;
            continue;
        };
        if !before.is_empty() {
            damaged(&mut summary, before);
            each(Part::Damaged(before))?;
        }
        each(Part::Kept(kept, read))?;
        summary.inside = summary.damaged_lines > 0;
        summary.end = summary.length;
    }
}

/// Finds the event on a line: the whole of it, or what follows the remains of another write.
fn salvage(line: &[u8]) -> Option<(&[u8], &[u8], Read)> {
    if let Some(read) = event(line) {
        return Some((&[], line, read));
    }
    // A write that was torn, or a block of NULs after a loss of power, with a later write glued to
    // it. The first place from which the rest is a whole event is that write.
    let places = (1..line.len()).filter(|at| line.get(*at..).is_some_and(|r| r.starts_with(START)));
    places.take(TRIES).find_map(|at| {
        let (before, rest) = line.split_at_checked(at)?;
        event(rest).map(|read| (before, rest, read))
    })
}

fn event(line: &[u8]) -> Option<Read> {
    entry::read(line).or_else(|| entry::read(&entry::escaped(line)?))
}

/// Says whether a file holds a message, reading no more than `limit` bytes.
pub(super) fn has_message(file: File, limit: u64) -> io::Result<bool> {
    let mut head = Vec::new();
    file.take(limit).read_to_end(&mut head)?;
    Ok(head
        .split(|byte| *byte == b'\n')
        .any(|line| matches!(salvage(line), Some((_, _, Read::Message(_))))))
}
