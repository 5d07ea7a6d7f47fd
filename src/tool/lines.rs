//! Lines: how a file's bytes are cut into them, for reading (a stream of any length) and for editing
//! (a whole file with offsets). Both cut alike, so that an anchor means the same to both.
//!
//! A line ends with LF or CRLF; a file that has CR and no LF in its beginning is cut at CR. A byte
//! order mark belongs to no line.

use std::io::{self, BufRead, BufReader, Chain, Cursor, Read};

use sha2::{Digest, Sha256};

use super::anchor::{Hasher, ROW_CHARS, Row, full};

/// How much of a file's beginning decides what kind of file it is, in bytes.
const BEGINNING: usize = 64 * 1024;

/// How far a NUL byte is looked for, in bytes: as git does it.
const BINARY_WITHIN: usize = 8000;

/// How much of a line is kept for showing, in bytes: enough for [`ROW_CHARS`] characters.
const HEAD: usize = ROW_CHARS * 4 + 4;

pub(super) const BOM: &[u8] = b"\xef\xbb\xbf";

/// Returns the SHA-256 of a whole content.
pub(super) fn digest(bytes: &[u8]) -> [u8; 32] {
    Sha256::digest(bytes).into()
}

/// Names what a file holds when it is no text, from its beginning.
pub(super) fn binary(bytes: &[u8]) -> Option<&'static str> {
    let known: [(&[u8], &str); 18] = [
        (b"\xff\xfe", "UTF-16 text"),
        (b"\xfe\xff", "UTF-16 text"),
        (b"\x7fELF", "an ELF object"),
        (b"\x89PNG\r\n", "a PNG image"),
        (b"\xff\xd8\xff", "a JPEG image"),
        (b"GIF8", "a GIF image"),
        (b"%PDF-", "a PDF document"),
        (b"PK\x03\x04", "a ZIP archive"),
        (b"\x1f\x8b", "gzip data"),
        (b"SQLite format 3\0", "a SQLite database"),
        (b"RIFF", "a RIFF file (WebP, WAV or AVI)"),
        (b"II*\0", "a TIFF image"),
        (b"MM\0*", "a TIFF image"),
        (b"\0\0\x01\0", "an icon"),
        (b"\x28\xb5\x2f\xfd", "Zstandard data"),
        (b"\xfd7zXZ\0", "xz data"),
        (b"7z\xbc\xaf", "a 7z archive"),
        (b"\0asm", "a WebAssembly module"),
    ];
    let within = bytes.get(..BINARY_WITHIN).unwrap_or(bytes);
    within.contains(&0).then(|| {
        known
            .iter()
            .find(|(magic, _)| bytes.starts_with(magic))
            .map_or("binary data", |(_, name)| name)
    })
}

/// Says whether lines end with CR alone (files of the classic Mac).
fn is_classic(bytes: &[u8]) -> bool {
    let beginning = bytes.get(..BEGINNING).unwrap_or(bytes);
    // The last byte of a full beginning may be the CR of a CRLF.
    let sure = beginning.get(..BEGINNING.saturating_sub(1)).unwrap_or(beginning);
    sure.contains(&b'\r') && !beginning.contains(&b'\n')
}

/// A line of a stream.
#[derive(Debug)]
pub(super) struct Line {
    pub(super) row: Row,
    /// Its beginning, enough to show.
    pub(super) head: Vec<u8>,
    /// Its length in bytes, without the ending.
    pub(super) length: u64,
}

/// Cuts a stream into lines with bounded memory.
pub(super) struct Scanner<R: Read> {
    reader: BufReader<Digesting<Chain<Cursor<Vec<u8>>, R>>>,
    beginning: Vec<u8>,
    ending: u8,
    line: u64,
}

impl<R: Read> Scanner<R> {
    /// Starts at the beginning; `is_digested` says whether the digest will be asked for.
    pub(super) fn new(mut reader: R, is_digested: bool) -> io::Result<Self> {
        let mut beginning = Vec::new();
        reader.by_ref().take(BEGINNING as u64).read_to_end(&mut beginning)?;
        let ending = if is_classic(&beginning) { b'\r' } else { b'\n' };
        let whole = Cursor::new(beginning.clone()).chain(reader);
        let mut reader = BufReader::with_capacity(
            BEGINNING,
            Digesting { inner: whole, digest: is_digested.then(Sha256::new), taken: 0 },
        );
        if reader.fill_buf()?.starts_with(BOM) {
            reader.consume(BOM.len());
        }
        Ok(Self { reader, beginning, ending, line: 0 })
    }

    /// Returns the first bytes of the stream, the byte order mark too.
    pub(super) fn beginning(&self) -> &[u8] {
        &self.beginning
    }

    /// Returns the number of lines so far.
    pub(super) fn count(&self) -> u64 {
        self.line
    }

    /// Returns the number of bytes that were taken from the stream.
    pub(super) fn taken(&self) -> u64 {
        self.reader.get_ref().taken
    }

    /// Says whether no line is left.
    pub(super) fn is_at_end(&mut self) -> io::Result<bool> {
        Ok(self.reader.fill_buf()?.is_empty())
    }

    /// Returns the next line.
    pub(super) fn next_line(&mut self) -> io::Result<Option<Line>> {
        let mut hasher = Hasher::default();
        let mut head = Vec::new();
        let mut length = 0_u64;
        let mut feed = |bytes: &[u8]| {
            hasher.feed(bytes);
            length = length.saturating_add(bytes.len() as u64);
            let room = HEAD.saturating_sub(head.len());
            head.extend_from_slice(bytes.get(..room).unwrap_or(bytes));
        };
        let mut is_any = false;
        // A CR is not known to belong to the ending before the byte after it is there.
        let mut is_held = false;
        let ending = self.ending;
        loop {
            let buffer = self.reader.fill_buf()?;
            if buffer.is_empty() {
                if !is_any {
                    return Ok(None);
                }
                if is_held {
                    feed(b"\r");
                }
                break;
            }
            is_any = true;
            let at = memchr::memchr(ending, buffer);
            let mut chunk = buffer.get(..at.unwrap_or(buffer.len())).unwrap_or_default();
            let taken = chunk.len().saturating_add(usize::from(at.is_some()));
            if !chunk.is_empty() {
                if is_held {
                    feed(b"\r");
                }
                is_held = false;
                if let (b'\n', Some(without)) = (ending, chunk.strip_suffix(b"\r")) {
                    is_held = true;
                    chunk = without;
                }
                feed(chunk);
            }
            self.reader.consume(taken);
            if at.is_some() {
                break;
            }
        }
        self.line = self.line.saturating_add(1);
        Ok(Some(Line { row: hasher.row(self.line), head, length }))
    }

    /// Passes over the next line; false at the end.
    pub(super) fn skip_line(&mut self) -> io::Result<bool> {
        let mut is_any = false;
        loop {
            let buffer = self.reader.fill_buf()?;
            if buffer.is_empty() {
                break;
            }
            is_any = true;
            let at = memchr::memchr(self.ending, buffer);
            let taken = at.map_or(buffer.len(), |at| at.saturating_add(1));
            self.reader.consume(taken);
            if at.is_some() {
                break;
            }
        }
        self.line = self.line.saturating_add(u64::from(is_any));
        Ok(is_any)
    }

    /// Returns the SHA-256 of all that was read: of the whole stream once its end was seen.
    pub(super) fn digest(&self) -> Option<[u8; 32]> {
        self.reader.get_ref().digest.clone().map(|digest| digest.finalize().into())
    }
}

struct Digesting<R> {
    inner: R,
    digest: Option<Sha256>,
    taken: u64,
}

impl<R: Read> Read for Digesting<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        self.taken = self.taken.saturating_add(count as u64);
        if let Some(digest) = &mut self.digest {
            digest.update(buffer.get(..count).unwrap_or_default());
        }
        Ok(count)
    }
}

/// Where a line stands in a whole file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span {
    /// The offset of its first byte.
    pub(super) start: usize,
    /// The offset after its last byte, where its ending begins.
    pub(super) end: usize,
    /// The offset after its ending; `end` when the file stops without one.
    pub(super) next: usize,
}

/// A whole file, cut into lines.
#[derive(Clone, Debug)]
pub(super) struct Text {
    pub(super) bytes: Vec<u8>,
    pub(super) lines: Vec<Span>,
    /// The ending that most lines have; LF when there is none.
    pub(super) usual: &'static [u8],
    /// Whether the bytes are UTF-8.
    pub(super) is_utf8: bool,
}

impl Text {
    pub(super) fn new(bytes: Vec<u8>) -> Self {
        let no_lines = Self { bytes: Vec::new(), lines: Vec::new(), usual: b"\n", is_utf8: true };
        Self::within(bytes, usize::MAX).unwrap_or(no_lines)
    }

    /// Cuts a file that has at most `most` lines; of a longer one nothing is kept.
    pub(super) fn within(bytes: Vec<u8>, most: usize) -> Option<Self> {
        let classic = is_classic(&bytes);
        let ending = if classic { b'\r' } else { b'\n' };
        let mut lines = Vec::new();
        let mut start = if bytes.starts_with(BOM) { BOM.len() } else { 0 };
        let (mut crlf, mut ended) = (0_usize, 0_usize);
        while start < bytes.len() {
            let rest = bytes.get(start..).unwrap_or_default();
            let at = memchr::memchr(ending, rest);
            if lines.len() >= most {
                return None;
            }
            let mut content = rest.get(..at.unwrap_or(rest.len())).unwrap_or_default();
            ended = ended.saturating_add(usize::from(at.is_some()));
            let next =
                start.saturating_add(content.len()).saturating_add(usize::from(at.is_some()));
            if let (b'\n', Some(_), Some(without)) = (ending, at, content.strip_suffix(b"\r")) {
                content = without;
                crlf = crlf.saturating_add(1);
            }
            let end = start.saturating_add(content.len());
            lines.push(Span { start, end, next });
            start = next;
        }
        let usual: &[u8] = if classic {
            b"\r"
        } else if crlf.saturating_mul(2) > ended {
            b"\r\n"
        } else {
            b"\n"
        };
        let is_utf8 = std::str::from_utf8(&bytes).is_ok();
        Some(Self { bytes, lines, usual, is_utf8 })
    }

    /// Returns a line's span; `line` counts from 1.
    pub(super) fn span(&self, line: u64) -> Option<Span> {
        let at = usize::try_from(line.checked_sub(1)?).ok()?;
        self.lines.get(at).copied()
    }

    /// Returns a line's content without its ending; empty when there is no such line.
    pub(super) fn content(&self, line: u64) -> &[u8] {
        self.span(line).and_then(|span| self.bytes.get(span.start..span.end)).unwrap_or_default()
    }

    /// Returns a line's full hash; nothing when there is no such line.
    pub(super) fn full(&self, line: u64) -> Option<u64> {
        self.span(line).map(|_| full(self.content(line)))
    }

    /// Returns a line's ending; empty when the file stops without one or there is no such line.
    pub(super) fn ending(&self, line: u64) -> &[u8] {
        self.span(line).and_then(|span| self.bytes.get(span.end..span.next)).unwrap_or_default()
    }

    /// Returns the number of lines.
    pub(super) fn count(&self) -> u64 {
        self.lines.len() as u64
    }

    /// Returns the number of the line that an offset lies in; the last one for the end.
    pub(super) fn line_at(&self, offset: usize) -> u64 {
        (self.lines.partition_point(|span| span.start <= offset) as u64).max(1)
    }

    /// Returns a line as a row.
    pub(super) fn row(&self, line: u64) -> Row {
        Row::of(line, self.content(line))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn scanned(bytes: &[u8]) -> Vec<(Row, Vec<u8>)> {
        let mut scanner = Scanner::new(bytes, true).unwrap();
        let mut lines = Vec::new();
        while let Some(line) = scanner.next_line().unwrap() {
            assert_eq!(line.length, line.head.len() as u64);
            lines.push((line.row, line.head));
        }
        assert_eq!(scanner.digest(), Some(digest(bytes)));
        lines
    }

    #[test]
    fn endings_are_no_part_of_a_line() {
        for (bytes, lines) in [
            (&b""[..], vec![]),
            (b"a", vec!["a"]),
            (b"a\n", vec!["a"]),
            (b"a\r\nb", vec!["a", "b"]),
            (b"a\r\n\r\n", vec!["a", ""]),
            (b"a\rb\n", vec!["a\rb"]),
            (b"a\rb\r", vec!["a", "b"]),
            (b"\xef\xbb\xbfa\n", vec!["a"]),
            (b"\xef\xbb\xbf", vec![]),
            (b"a\nb\r", vec!["a", "b\r"]),
        ] {
            let found: Vec<_> = scanned(bytes).into_iter().map(|(_, head)| head).collect();
            assert_eq!(found, lines.iter().map(|l| l.as_bytes().to_vec()).collect::<Vec<_>>());
        }
    }

    #[test]
    fn what_is_no_text_is_named() {
        assert_eq!(binary(b"\x7fELF\x02\x01\x01\0"), Some("an ELF object"));
        assert_eq!(binary(b"\xff\xfea\0"), Some("UTF-16 text"));
        assert_eq!(binary(b"a\0b"), Some("binary data"));
        assert_eq!(binary(b"%PDF-x"), None, "text that begins so is text");
        assert_eq!(binary("tschüß\n".as_bytes()), None);
    }

    proptest! {
        #[test]
        fn reading_and_editing_cut_alike(
            parts in proptest::collection::vec(
                prop_oneof!["[a-c]{0,3}", Just("\n".into()), Just("\r\n".into()), Just("\r".into()), Just("\u{feff}".into())],
                0..14,
            ),
        ) {
            let bytes = parts.concat().into_bytes();
            let text = Text::new(bytes.clone());
            let cut: Vec<_> =
                (1..=text.count()).map(|line| (text.row(line), text.content(line).to_vec())).collect();
            prop_assert_eq!(scanned(&bytes), cut);
            let mut whole = if bytes.starts_with(BOM) { BOM.to_vec() } else { vec![] };
            for line in 1..=text.count() {
                whole.extend_from_slice(text.content(line));
                whole.extend_from_slice(text.ending(line));
            }
            prop_assert_eq!(whole, bytes.clone());
            let mut scanner = Scanner::new(bytes.as_slice(), false).unwrap();
            while scanner.skip_line().unwrap() {}
            prop_assert_eq!(scanner.count(), text.count());
        }
    }

    #[test]
    fn a_line_across_chunks_is_one_line() {
        let mut bytes = vec![b'x'; BEGINNING - 1];
        bytes.extend_from_slice(b"\r\nend\r");
        let mut scanner = Scanner::new(bytes.as_slice(), false).unwrap();
        let line = scanner.next_line().unwrap().unwrap();
        assert_eq!((line.length, line.head.len()), (BEGINNING as u64 - 1, HEAD));
        assert_eq!(line.row, Row::of(1, &bytes[..BEGINNING - 1]));
        assert_eq!(scanner.next_line().unwrap().unwrap().head, b"end\r");
    }
}
