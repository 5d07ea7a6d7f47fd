//! Text as it is, to the letter: what a person says yes to. Nothing is dropped or cut, what hides or
//! turns text round is shown by its number, and a row that was wrapped is told from one that ended.
//! Pure.

use crate::display::Role;

use super::{
    cells::{chop, is_hidden},
    style::{Line, Style},
};

/// What stands before the rest of a line that is longer than a row.
const WRAPPED: &str = "↪ ";

/// How what cannot be seen by itself looks.
const NUMBER: Style = Style { reverse: true, ..Style::PLAIN };

/// Rows of a text, and how many characters had to be shown by their number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Exact {
    /// The rows.
    pub rows: Vec<Line>,
    /// How many characters, or bytes that are none, cannot be seen by themselves.
    pub hidden: usize,
}

/// Returns a text in rows of at most `width` cells. `first` stands before the first row of each line,
/// and blanks and a mark before the others.
pub fn exact(bytes: &[u8], first: &Line, style: Style, width: usize) -> Exact {
    let mut exact = Exact::default();
    let mut rest = Line::styled(" ".repeat(first.width().saturating_sub(2)), Style::PLAIN);
    rest.push(WRAPPED, Style::DIM);
    let whole = bytes.strip_suffix(b"\n").unwrap_or(bytes);
    for line in whole.split(|byte| *byte == b'\n') {
        let line = row(line, style, &mut exact.hidden);
        exact.rows.extend(chop(&line, first, &rest, width));
    }
    exact
}

/// Returns one line, and counts what is hidden in it.
fn row(bytes: &[u8], style: Style, hidden: &mut usize) -> Line {
    let mut line = Line::default();
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            if c == '\t' {
                line.push("⇥   ", Style { dim: true, ..style });
            } else if is_seen(c) {
                line.push(c.encode_utf8(&mut [0; 4]), style);
            } else {
                *hidden += 1;
                line.push(&c.escape_unicode().to_string(), NUMBER);
            }
        }
        for byte in chunk.invalid() {
            *hidden += 1;
            line.push(&format!("\\x{byte:02x}"), NUMBER);
        }
    }
    line
}

/// Says whether a person sees the character and takes it for what it is: no control character, nothing
/// that has no width of its own to be seen by, and no blank but the common one.
fn is_seen(c: char) -> bool {
    c == ' '
        || !(c.is_control()
            || c.is_whitespace()
            || is_hidden(c)
            || matches!(c, '\u{200d}' | '\u{2800}' | '\u{fe00}'..='\u{fe0f}'))
}

/// Returns a sentence about what is hidden, when something is.
pub fn warning(hidden: usize) -> Option<Line> {
    let what = match hidden {
        0 => return None,
        1 => "1 character that cannot be seen is shown by its number".to_owned(),
        many => format!("{many} characters that cannot be seen are shown by their numbers"),
    };
    Some(Line::styled(what, Style { bold: true, ..Style::role(Role::Warning) }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &[u8], width: usize) -> (Vec<String>, usize) {
        let found = exact(text, &Line::styled("│ ", Style::DIM), Style::PLAIN, width);
        (found.rows.iter().map(Line::text).collect(), found.hidden)
    }

    #[test]
    fn what_cannot_be_seen_is_shown_by_its_number() {
        let text = "a\u{202e}b\u{1b}[2Jc\rd\u{200b}e\u{a0}f\u{0}\n漢字 é\u{301} 'x'\n".as_bytes();
        let (rows, hidden) = shown(text, 80);
        assert_eq!(
            rows,
            [r"│ a\u{202e}b\u{1b}[2Jc\u{d}d\u{200b}e\u{a0}f\u{0}", "│ 漢字 é\u{301} 'x'"]
        );
        assert_eq!(hidden, 6);
        assert_eq!(shown(b"a\xffb\tc", 80), (vec![r"│ a\xffb⇥   c".to_owned()], 1));
        // What only looks like a number is text, and is not counted.
        assert_eq!(shown(br"echo \u{202e}", 80), (vec![r"│ echo \u{202e}".to_owned()], 0));
        assert!(warning(0).is_none() && warning(2).unwrap().text().starts_with("2 characters"));
    }

    #[test]
    fn a_long_line_is_wrapped_whole_and_told_from_two() {
        let (rows, _) = shown(b"abcdefghij\nkl", 6);
        assert_eq!(rows, ["│ abcd", "↪ efgh", "↪ ij", "│ kl"]);
        assert_eq!(shown(b"", 10).0, ["│ "]);
        // An empty line at the end is a line.
        assert_eq!(shown(b"a\n\n", 10).0, ["│ a", "│ "]);
    }

    proptest::proptest! {
        #[test]
        fn nothing_is_left_out_and_every_row_fits(text in "[ -~漢\u{202e}\n]{0,300}", width in 3_usize..60) {
            let first = Line::styled("│ ", Style::DIM);
            let found = exact(text.as_bytes(), &first, Style::PLAIN, width);
            for row in &found.rows {
                proptest::prop_assert!(row.width() <= width, "{:?}", row.text());
            }
            if width > 4 {
                let joined: String = found.rows.iter()
                    .map(|row| row.text().chars().skip(2).collect::<String>()).collect();
                let whole: String = text.strip_suffix('\n').unwrap_or(&text).replace('\n', "")
                    .replace('\u{202e}', "\\u{202e}");
                proptest::prop_assert_eq!(joined, whole);
            }
        }
    }
}
