//! How text that is none of kli's own stands in a conversation: labelled, within a fence that it
//! cannot end itself, and with nothing in it that only a machine sees. Pure.

use std::fmt::Write as _;

/// Says whether a character is there without being seen, or changes how others are seen: control
/// characters, marks that turn the direction of writing, tags (U+E0000 and on), the whole of
/// Unicode's format characters but the two joiners, which scripts and emoji need.
fn is_hidden(c: char) -> bool {
    match c {
        '\n' | '\t' => false,
        '\u{ad}'
        | '\u{61c}'
        | '\u{180e}'
        | '\u{200b}'
        | '\u{200e}'
        | '\u{200f}'
        | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}'
        | '\u{feff}'
        | '\u{fff9}'..='\u{fffb}'
        | '\u{1d173}'..='\u{1d17a}'
        | '\u{e0000}'..='\u{e0fff}' => true,
        c => c.is_control(),
    }
}

/// Returns bytes as text in which every character is seen: what is hidden stands as `\u{…}`, what
/// is no UTF-8 as U+FFFD. A byte order mark and the carriage returns of line ends go.
pub(super) fn visible(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
    let mut shown = String::with_capacity(text.len());
    let mut letters = text.chars().peekable();
    while let Some(c) = letters.next() {
        if c == '\r' && letters.peek() == Some(&'\n') {
            continue;
        }
        if is_hidden(c) {
            // Writing to a string cannot fail.
            let _ = write!(shown, "{}", c.escape_unicode());
        } else {
            shown.push(c);
        }
    }
    shown
}

/// Returns text as one line in which every character is seen.
pub(super) fn on_one_line(text: &str) -> String {
    visible(text.as_bytes()).replace('\n', "\\u{a}").replace('\t', "\\u{9}")
}

/// Returns a text within a fence of backticks that is longer than any run of them in it, so that
/// nothing in the text can end it.
pub(super) fn fenced(text: &str) -> String {
    let longest = text.split(|c| c != '`').map(str::len).max().unwrap_or_default();
    let fence = "`".repeat(longest.max(3) + 1);
    let end = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
    format!("{fence}\n{text}{end}{fence}")
}

/// Returns the beginning of a text, at most so many bytes, up to the end of a line where that loses
/// little; `None` when all of it fits.
pub(super) fn beginning(text: &str, limit: usize) -> Option<&str> {
    if text.len() <= limit {
        return None;
    }
    let head = text.get(..text.floor_char_boundary(limit)).unwrap_or_default();
    let line = head.rfind('\n').filter(|at| *at > limit / 2);
    Some(line.and_then(|at| head.get(..=at)).unwrap_or(head))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_is_hidden_is_seen_and_what_is_written_stays() {
        let text = "a\u{202e}b\u{e0041}\u{1b}[31m\u{200b}\u{0}c\r\nd\te\r\u{feff}";
        assert_eq!(
            visible(text.as_bytes()),
            "a\\u{202e}b\\u{e0041}\\u{1b}[31m\\u{200b}\\u{0}c\nd\te\\u{d}\\u{feff}"
        );
        let plain = "漢字 👩‍👩‍👧 ⚠️ é \u{200d}\u{200c} שלום";
        assert_eq!(visible(plain.as_bytes()), plain, "control");
        assert_eq!(visible(b"\xef\xbb\xbfa\xffb"), "a\u{fffd}b");
        assert_eq!(on_one_line("a\nb\tc"), "a\\u{a}b\\u{9}c");
    }

    #[test]
    fn a_beginning_ends_with_a_line_where_one_is_near() {
        assert_eq!(beginning("abc", 3), None);
        assert_eq!(beginning("aaaa\nbbbb", 7), Some("aaaa\n"));
        assert_eq!(beginning("a\nbbbbbbbbbb", 8), Some("a\nbbbbbb"));
        assert_eq!(beginning("漢字", 4), Some("漢"));
    }

    proptest! {
        #[test]
        fn no_text_ends_its_fence(text in "[`a\\n]{0,40}") {
            let fenced = fenced(&text);
            let fence = fenced.lines().next().unwrap();
            prop_assert!(!text.contains(fence));
            prop_assert_eq!(fenced.matches(fence).count(), 2);
            let last = format!("\n{fence}");
            prop_assert!(fenced.ends_with(&last));
        }

        #[test]
        fn any_bytes_become_text_without_hidden_characters(
            bytes in proptest::collection::vec(any::<u8>(), 0..60)
        ) {
            prop_assert!(!visible(&bytes).chars().any(is_hidden));
            prop_assert!(!on_one_line(&String::from_utf8_lossy(&bytes)).contains('\n'));
        }
    }
}
