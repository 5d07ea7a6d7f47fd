//! Words that others wrote, in kli's own sentences: shown so that they cannot pass for anything else,
//! and compared with the names that are known.

use std::fmt::Write as _;

/// The most characters of a written word that a sentence repeats.
const MOST: usize = 60;

/// Says whether a character drives what shows it, or hides or turns round what stands beside it (zero
/// width, direction).
pub fn misleads(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
}

/// Returns a text with what [`misleads`] escaped: one line that looks as it is.
pub fn visible(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if misleads(c) {
            // Writing to a string cannot fail.
            let _ = write!(out, "{}", c.escape_unicode());
        } else {
            out.push(c);
        }
    }
    out
}

/// Returns a text as an error repeats it: [`visible`], and cut after 60 characters.
pub fn shown(text: &str) -> String {
    let end = text.char_indices().nth(MOST).map_or(text.len(), |(at, _)| at);
    let mut out = visible(text.get(..end).unwrap_or_default());
    if end < text.len() {
        out.push('…');
    }
    out
}

/// Returns how many letters a text is away from a known name, when that is at most `most`. What is
/// too long to be near is not compared: the cost grows with both lengths.
pub fn distance(text: &str, name: &str, most: usize) -> Option<usize> {
    // A character has at most four bytes.
    if text.len() > 4 * (name.len() + most)
        || text.chars().count().abs_diff(name.chars().count()) > most
    {
        return None;
    }
    Some(strsim::damerau_levenshtein(text, name)).filter(|distance| *distance <= most)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shown_is_one_line_that_hides_nothing() {
        assert_eq!(visible("a\nb\u{1b}[2J\u{202e}é"), "a\\u{a}b\\u{1b}[2J\\u{202e}é");
        let long = "é".repeat(61);
        assert_eq!(shown(&long), format!("{}…", "é".repeat(60)));
        assert_eq!(shown(&"é".repeat(60)), "é".repeat(60), "control");
    }

    #[test]
    fn what_is_far_too_long_is_not_compared() {
        assert_eq!(distance("file/raed", "file/read", 4), Some(1));
        assert_eq!(distance("nothing like it", "file/read", 4), None);
        assert_eq!(distance(&"k".repeat(1 << 20), "file/read", 4), None);
    }
}
