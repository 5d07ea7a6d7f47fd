//! What happened, as final rows of the transcript: prompts, tool calls with their results, diffs,
//! notices. Pure; all text from outside is cleaned here.

use serde_json::Value;

use crate::{display::Role, message::Arguments};

use super::{
    cells::{chop, clean, clean_row, clean_tool, cut, wrap},
    style::{Line, Span, Style},
};

/// Rows of a result that are shown before it is folded.
const SHOWN: usize = 6;
/// Rows of a diff that are shown before it is folded.
const DIFF: usize = 40;

/// The key that gets the rest of a fold, when nobody binds another.
const UNFOLD: &str = "Ctrl-O";

/// Lines of a prompt that are shown, and bytes of them.
const PROMPT: (usize, usize) = (12, 4000);

/// Returns a prompt as it stands in the transcript: of a long one the beginning. The session has it
/// whole.
pub fn prompt(text: &str, width: usize) -> Vec<Line> {
    let bold = Style::role(Role::Prompt);
    let mut rows = vec![Line::default()];
    let start: Vec<&str> = text.lines().take(PROMPT.0).collect();
    let start = start.join("\n");
    let end = (0..=start.len().min(PROMPT.1)).rev().find(|at| start.is_char_boundary(*at));
    let shown = start.get(..end.unwrap_or(0)).unwrap_or_default();
    let mut spans = vec![Span::new(clean(shown), Style::BOLD)];
    let more = text.lines().count().saturating_sub(PROMPT.0);
    if more > 0 {
        spans.push(Span::new(format!("\n… {more} more lines"), Style::DIM));
    } else if shown.len() < start.len() {
        spans.push(Span::new(format!(" … {} more bytes", start.len() - shown.len()), Style::DIM));
    }
    rows.extend(wrap(&spans, &Line::styled("› ", bold), &Line::styled("  ", Style::PLAIN), width));
    rows.push(Line::default());
    rows
}

/// Returns a line about the run, with words that say its kind.
pub fn notice(kind: Kind, text: &str, width: usize) -> Vec<Line> {
    let (mark, style) = match kind {
        Kind::Note => ("· ", Style::DIM),
        Kind::Warning => ("! ", Style::role(Role::Warning)),
        Kind::Error => ("error: ", Style::role(Role::Error)),
    };
    let rest = Line::styled(" ".repeat(mark.chars().count()), Style::PLAIN);
    wrap(&[Span::new(clean(text), style)], &Line::styled(mark, style), &rest, width)
}

/// How a notice is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Something to know.
    Note,
    /// Something to look at.
    Warning,
    /// Something that failed.
    Error,
}

/// Returns what a call is about, in a few words: the command, the path, the pattern.
pub fn title(name: &str, arguments: &Arguments) -> String {
    let Arguments::Object(map) = arguments else { return clean_row(name) };
    let main = ["command", "path", "pattern", "what", "handle", "task"]
        .iter()
        .filter_map(|key| map.get(*key))
        .find_map(Value::as_str);
    let about = match main {
        Some(text) => clean_row(&short(text.trim())),
        None if map.is_empty() => String::new(),
        None => clean_row(&short(&Value::Object(map.clone()).to_string())),
    };
    let name = clean_row(&short(name));
    if about.is_empty() { name } else { format!("{name} {about}") }
}

/// Bytes of a title: it is drawn with each frame while its call runs.
const TITLE: usize = 4000;

fn short(text: &str) -> std::borrow::Cow<'_, str> {
    let end = (0..=text.len().min(TITLE)).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    match text.get(..end) {
        Some(start) if end < text.len() => format!("{start}…").into(),
        _ => text.into(),
    }
}

/// A finished call.
#[derive(Clone, Debug, PartialEq)]
pub struct Finished {
    /// What [`title`] said.
    pub title: String,
    /// The tool's name.
    pub name: String,
    /// What the model got.
    pub text: String,
    /// Whether it failed.
    pub is_error: bool,
    /// Facts of the tool's.
    pub record: Value,
}

impl Finished {
    /// Returns the rows: a head, and the result, folded unless `whole`. The flag says whether
    /// something was left out.
    pub fn rows(&self, width: usize, whole: bool) -> (Vec<Line>, bool) {
        self.rows_with(width, whole, UNFOLD)
    }

    /// Returns the same where another key gets the rest.
    pub fn rows_with(&self, width: usize, whole: bool, key: &str) -> (Vec<Line>, bool) {
        let mut head = Line::default();
        if self.is_error {
            head.push("✗ ", Style { bold: true, ..Style::role(Role::Error) });
        } else {
            head.push("✓ ", Style::role(Role::Success));
        }
        head.push(&self.title, Style::BOLD);
        if self.is_error {
            head.push(&self.failure(), Style::role(Role::Error));
        }
        let mut rows = if whole {
            wrap(&head.spans, &Line::default(), &Line::styled("  ", Style::PLAIN), width)
        } else {
            vec![cut(&head, width)]
        };
        let (body, limit) = match self.diff() {
            Some(diff) => (diff, DIFF),
            None => (self.body(), SHOWN),
        };
        let indent = Line::styled("  ", Style::PLAIN);
        let mut all: Vec<Line> = Vec::new();
        // More than can be shown need not be cut into rows to be counted about right.
        let most = if whole { usize::MAX } else { limit };
        let from_end = self.name == "bash" && !whole;
        let left_out = body.len().saturating_sub(most);
        let shown: Vec<&Line> = if from_end {
            body.iter().skip(left_out).collect()
        } else {
            body.iter().take(most).collect()
        };
        for line in shown {
            let mut pieces = chop(line, &indent, &indent, width);
            if !whole && pieces.len() > 3 {
                pieces.truncate(3);
                if let Some(last) = pieces.pop() {
                    let mut last = last;
                    last.push("……", Style::DIM);
                    pieces.push(cut(&last, width));
                }
            }
            all.extend(pieces);
        }
        let folded = left_out > 0;
        let fold = Line::styled(format!("  … {left_out} more lines ({key} shows it)"), Style::DIM);
        if folded && from_end {
            rows.push(cut(&fold, width));
            rows.extend(all);
        } else {
            rows.extend(all);
            if folded {
                rows.push(cut(&fold, width));
            }
        }
        rows.push(Line::default());
        (rows, folded)
    }

    fn failure(&self) -> String {
        if self.record.get("interrupted").is_some() {
            return " (interrupted)".to_owned();
        }
        match (self.record.get("exit").and_then(Value::as_i64), self.record.get("timedOut")) {
            (_, Some(Value::Bool(true))) => " (timed out)".to_owned(),
            (Some(code), _) => format!(" (exit {code})"),
            _ => " (failed)".to_owned(),
        }
    }

    /// The result without looks of its own.
    fn body(&self) -> Vec<Line> {
        let quiet = ["read", "write"].contains(&self.name.as_str()) && !self.is_error;
        let mut lines = clean_tool(self.text.trim_end_matches('\n'));
        for span in lines.iter_mut().flat_map(|line| &mut line.spans) {
            if span.style == Style::PLAIN && quiet {
                span.style = Style::DIM;
            }
        }
        lines
    }

    /// The changes of an edit, each row with its sign.
    fn diff(&self) -> Option<Vec<Line>> {
        let hunks = self.record.get("hunks")?.as_array()?;
        let mut rows = Vec::new();
        for hunk in hunks {
            if !rows.is_empty() {
                rows.push(Line::styled("⋯", Style::DIM));
            }
            let mut side = |text: &str, line: &str, sign: &str, style: Style| {
                let first = hunk.get(line).and_then(Value::as_u64).unwrap_or(1);
                let text = hunk.get(text).and_then(Value::as_str).unwrap_or_default();
                for (number, row) in (first..).zip(text.lines()) {
                    let mut line = Line::styled(format!("{number:>5} "), Style::DIM);
                    line.push(&format!("{sign} {}", clean_row(row)), style);
                    rows.push(line);
                }
            };
            side("old", "old_line", "-", Style::role(Role::Removed));
            side("new", "new_line", "+", Style::role(Role::Added));
        }
        Some(rows)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn texts(rows: &[Line]) -> Vec<String> {
        rows.iter().map(Line::text).collect()
    }

    fn finished(name: &str, text: &str, record: Value) -> Finished {
        Finished {
            title: format!("{name} x"),
            name: name.to_owned(),
            text: text.to_owned(),
            is_error: false,
            record,
        }
    }

    #[test]
    fn a_long_result_is_folded_and_can_be_had_whole() {
        let text: String = (1..=20).map(|n| format!("row {n}")).collect::<Vec<_>>().join("\n");
        let search = finished("search", &text, Value::Null);
        let (rows, folded) = search.rows(80, false);
        assert!(folded);
        let shown = texts(&rows);
        assert_eq!(shown[0], "✓ search x");
        assert_eq!(shown[1], "  row 1");
        assert_eq!(shown[7], "  … 14 more lines (Ctrl-O shows it)");
        let (rows, folded) = search.rows(80, true);
        assert!(!folded && texts(&rows).contains(&"  row 20".to_owned()));
        // Of a command the end is what matters.
        let (rows, _) = finished("bash", &text, json!({"exit": 0})).rows(80, false);
        assert_eq!(texts(&rows)[1], "  … 14 more lines (Ctrl-O shows it)");
        assert_eq!(texts(&rows)[7], "  row 20");
    }

    #[test]
    fn an_edit_shows_what_changed_with_signs() {
        let record = json!({"hunks": [
            {"old_line": 3, "new_line": 3, "old": "a\nb\n", "new": "c\n"},
            {"old_line": 9, "new_line": 8, "old": "", "new": "x\u{1b}[2J\n"},
        ]});
        let (rows, _) = finished("edit", "ignored", record).rows(80, false);
        let shown = texts(&rows);
        assert_eq!(
            shown[1..6],
            ["      3 - a", "      4 - b", "      3 + c", "  ⋯", "      8 + x"]
        );
        assert_eq!(
            rows[3].spans.last().unwrap().style.foreground,
            Some(crate::display::Color::GREEN)
        );
    }

    #[test]
    fn of_a_long_prompt_the_beginning_is_shown() {
        let rows = texts(&prompt(&"line\n".repeat(50_000), 80));
        assert_eq!((rows.len(), rows[13].as_str()), (15, "  … 49988 more lines"), "{rows:?}");
        let rows = prompt(&"漢".repeat(100_000), 80).len();
        assert!(rows < 60, "{rows}");
        assert_eq!(texts(&prompt("a\nb", 80)), ["", "› a", "  b", ""]);
    }

    #[test]
    fn a_failure_is_said_in_words() {
        let mut it = finished("bash", "no", json!({"exit": 2}));
        it.is_error = true;
        assert_eq!(texts(&it.rows(80, false).0)[0], "✗ bash x (exit 2)");
        it.record = json!({"exit": null, "timedOut": true});
        assert_eq!(texts(&it.rows(80, false).0)[0], "✗ bash x (timed out)");
    }

    #[test]
    fn titles_say_what_a_call_is_about() {
        let of = |name: &str, value: Value| {
            let Value::Object(map) = value else { unreachable!() };
            title(name, &Arguments::Object(map))
        };
        assert_eq!(of("bash", json!({"command": "ls\u{1b}[2J\nrm"})), "bash ls⏎rm");
        assert_eq!(of("read", json!({"path": "a\u{202e}b"})), "read a\\u{202e}b");
        assert_eq!(of("x__y", json!({"n": 1})), "x__y {\"n\":1}");
        let long = of("bash", json!({"command": "漢".repeat(100_000)}));
        assert!(long.len() < 4100 && long.ends_with("漢…"), "{}", long.len());
        assert_eq!(title("t", &Arguments::Malformed("{".to_owned())), "t");
    }

    proptest::proptest! {
        #[test]
        fn rows_fit_at_any_width(width in 1_usize..60, text in "[a-z 漢\n]{0,200}") {
            let mut all = finished("bash", &text, Value::Null).rows(width, false).0;
            all.extend(prompt(&text, width));
            all.extend(notice(Kind::Error, &text, width));
            for row in all {
                proptest::prop_assert!(row.width() <= width, "{:?}", row.text());
            }
        }
    }
}
