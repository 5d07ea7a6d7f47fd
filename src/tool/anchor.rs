//! Anchors: a line's number and two digits of its content, as rows show them and edits name them.
//!
//! The digits let a model name a line without copying it. They are eight bits, so they never
//! decide alone: [`Row::full`] is what [`Memory`](super::memory::Memory) keeps and compares.

use std::{fmt, str::FromStr};

/// The most characters of a line that a row shows.
pub const ROW_CHARS: usize = 2000;

const FNV32_BASIS: u32 = 0x811c_9dc5;
const FNV32_PRIME: u32 = 0x0100_0193;
const FNV64_BASIS: u64 = 0xcbf2_9ce4_8422_2325;
const FNV64_PRIME: u64 = 0x0000_0100_0000_01b3;

/// The name of a line: its number (from 1) and its two digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Anchor {
    /// The line's number, from 1.
    pub line: u64,
    /// FNV-1a (32 bits) over the line's code points, its four bytes folded into one by XOR.
    pub digits: u8,
}

impl fmt::Display for Anchor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{:02x}", self.line, self.digits)
    }
}

impl FromStr for Anchor {
    type Err = String;

    /// Reads `12:a3`; a whole row (`12:a3|text`) is read as its anchor.
    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "`{text}` is no anchor: take `LINE:HH` from a row of read or search, as `12:a3`"
            )
        };
        let anchor = text.split('|').next().unwrap_or_default().trim();
        let (line, digits) = anchor.split_once(':').ok_or_else(wrong)?;
        let line = line.trim().parse::<u64>().ok().filter(|line| *line > 0).ok_or_else(wrong)?;
        if digits.len() != 2 || !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return Err(wrong());
        }
        let digits = u8::from_str_radix(digits, 16).map_err(|_| wrong())?;
        Ok(Self { line, digits })
    }
}

/// A line as it is known without its text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// The line's name.
    pub anchor: Anchor,
    /// FNV-1a (64 bits) over the line's bytes, without its ending.
    pub full: u64,
}

impl Row {
    /// Returns the row of a whole line without its ending; `line` counts from 1.
    pub fn of(line: u64, text: &[u8]) -> Self {
        let mut hasher = Hasher::default();
        hasher.feed(text);
        hasher.row(line)
    }

    /// Returns the row as the model sees it: `LINE:HH|text`, bytes that are no UTF-8 as U+FFFD, cut
    /// after [`ROW_CHARS`] characters. `head` is the line's beginning, `length` its length in bytes.
    pub fn show(&self, head: &[u8], length: u64) -> String {
        let text = String::from_utf8_lossy(head);
        match text.char_indices().nth(ROW_CHARS) {
            None if head.len() as u64 >= length => format!("{}|{text}", self.anchor),
            cut => {
                let kept = text.get(..cut.map_or(text.len(), |(at, _)| at)).unwrap_or_default();
                let rest = length.saturating_sub(kept.len() as u64);
                format!(
                    "{}|{kept}… [{rest} more bytes; the anchor stands for the whole line]",
                    self.anchor
                )
            }
        }
    }
}

/// Returns the full hash of a whole line without its ending: that of its [`Row`].
pub fn full(text: &[u8]) -> u64 {
    let mut hash = FNV64_BASIS;
    for byte in text {
        hash = (hash ^ u64::from(*byte)).wrapping_mul(FNV64_PRIME);
    }
    hash
}

/// Returns the row of a whole line as the model sees it; `line` counts from 1.
pub fn show(line: u64, text: &[u8]) -> String {
    Row::of(line, text).show(text, text.len() as u64)
}

/// Computes a line's digits and full hash from its parts, so that a line of any length needs no
/// memory.
#[derive(Clone, Debug)]
pub struct Hasher {
    points: u32,
    bytes: u64,
    /// The beginning of a character whose end has not come yet.
    pending: Vec<u8>,
}

impl Default for Hasher {
    fn default() -> Self {
        Self { points: FNV32_BASIS, bytes: FNV64_BASIS, pending: Vec::new() }
    }
}

impl Hasher {
    /// Takes the next bytes of the line.
    pub fn feed(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.bytes = (self.bytes ^ u64::from(*byte)).wrapping_mul(FNV64_PRIME);
        }
        if self.pending.is_empty() {
            self.points_of(bytes);
        } else {
            let mut whole = std::mem::take(&mut self.pending);
            whole.extend_from_slice(bytes);
            self.points_of(&whole);
        }
    }

    fn points_of(&mut self, bytes: &[u8]) {
        let mut rest = bytes;
        loop {
            match std::str::from_utf8(rest) {
                Ok(text) => return self.points_in(text),
                Err(error) => {
                    let (valid, after) = rest.split_at(error.valid_up_to());
                    self.points_in(std::str::from_utf8(valid).unwrap_or_default());
                    let Some(wrong) = error.error_len() else {
                        self.pending = after.to_vec();
                        return;
                    };
                    self.point('\u{fffd}');
                    rest = after.get(wrong..).unwrap_or_default();
                }
            }
        }
    }

    fn points_in(&mut self, text: &str) {
        for point in text.chars() {
            self.point(point);
        }
    }

    fn point(&mut self, point: char) {
        self.points = (self.points ^ u32::from(point)).wrapping_mul(FNV32_PRIME);
    }

    /// Returns what was fed as the row of that line.
    pub fn row(mut self, line: u64) -> Row {
        if !self.pending.is_empty() {
            self.point('\u{fffd}');
        }
        let digits = self.points.to_le_bytes().iter().fold(0, |folded, byte| folded ^ byte);
        Row { anchor: Anchor { line, digits }, full: self.bytes }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_digits_meet_the_vectors() {
        for (text, row) in [
            ("", "1:c5|"),
            ("a", "1:ed|a"),
            ("hello", "1:57|hello"),
            ("    return x", "1:ee|    return x"),
        ] {
            assert_eq!(show(1, text.as_bytes()), row);
        }
    }

    #[test]
    fn an_anchor_is_read_from_a_row_and_anything_else_is_named() {
        let anchor = Anchor { line: 12, digits: 0xa3 };
        for text in ["12:a3", " 12:A3 ", "12:a3|text: more|x"] {
            assert_eq!(text.parse(), Ok(anchor), "{text}");
        }
        for text in ["", "12", "a3", "12:", "12:a", "12:a3f", "0:a3", "-1:a3", "12:+3", "x:a3"] {
            let error = text.parse::<Anchor>().unwrap_err();
            assert!(error.starts_with(&format!("`{text}` is no anchor")), "{error}");
        }
        assert_eq!(anchor.to_string(), "12:a3");
    }

    #[test]
    fn a_long_line_is_cut_on_a_character_and_says_so() {
        let line = "ä".repeat(ROW_CHARS + 7);
        let row = show(3, line.as_bytes());
        let kept = "ä".repeat(ROW_CHARS);
        assert!(row.contains(&format!("|{kept}… [14 more bytes; ")), "{row}");
        let exact = show(3, kept.as_bytes());
        assert!(exact.ends_with("|".to_owned().as_str()) || exact.ends_with('ä'), "{exact}");
    }

    #[test]
    fn bytes_that_are_no_text_have_an_anchor_of_their_own() {
        let (one, two) = (Row::of(1, b"caf\xe9"), Row::of(1, b"caf\xe8"));
        assert_eq!(one.anchor, two.anchor, "both are shown alike");
        assert_ne!(one.full, two.full, "the full hash tells them apart");
    }

    proptest! {
        #[test]
        fn any_chunking_gives_the_same_row(
            line in proptest::collection::vec(any::<u8>(), 0..40),
            text in "[a-zäß€😀]{0,12}",
            cuts in proptest::collection::vec(0_usize..60, 0..6),
        ) {
            let bytes = [line.as_slice(), text.as_bytes()].concat();
            let mut hasher = Hasher::default();
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(bytes.len())).collect();
            cuts.sort_unstable();
            let mut from = 0;
            for cut in cuts.into_iter().chain([bytes.len()]) {
                hasher.feed(&bytes[from..cut]);
                from = cut;
            }
            prop_assert_eq!(hasher.row(7), Row::of(7, &bytes));
        }

        #[test]
        fn the_full_hash_is_that_of_the_row(line in proptest::collection::vec(any::<u8>(), 0..40)) {
            prop_assert_eq!(full(&line), Row::of(1, &line).full);
        }

        #[test]
        fn the_digits_are_those_of_what_is_shown(line in proptest::collection::vec(any::<u8>(), 0..40)) {
            let shown = String::from_utf8_lossy(&line).into_owned();
            prop_assert_eq!(Row::of(1, &line).anchor, Row::of(1, shown.as_bytes()).anchor);
        }
    }
}
