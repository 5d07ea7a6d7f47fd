//! Answers that are unified diffs, and commands that go back.

use crate::display::Role;

use super::{
    super::{
        cells::{chop, clean_row},
        style::{Line, Style},
    },
    Effect, State,
};

/// Returns what a command that goes back asks for: another conversation, or only an answer.
pub(super) fn goes_back(name: &'static str, rest: String) -> Effect {
    let is_about_files = rest.split_whitespace().nth(1) == Some("files");
    if name == "rewind" && !rest.is_empty() && !is_about_files {
        Effect::Begin(name, rest)
    } else {
        Effect::Ask(name, rest)
    }
}

impl State {
    /// Shows a unified diff.
    pub fn diff(&mut self, text: &str) {
        self.finish_answer();
        let indent = Line::styled("  ", Style::PLAIN);
        for row in text.lines() {
            let line = Line::styled(clean_row(row), style(row));
            self.rows.extend(chop(&line, &indent, &indent, self.width));
        }
    }

    /// Puts a text into an empty composer, to be sent or changed.
    pub fn draft(&mut self, text: Option<&str>) {
        if let Some(text) = text.filter(|_| self.composer.is_empty()) {
            self.composer.put(text);
        }
    }
}

fn style(row: &str) -> Style {
    match row.chars().next() {
        _ if row.starts_with("--- ") || row.starts_with("+++ ") => Style::BOLD,
        Some('+') => Style::role(Role::Added),
        Some('-') => Style::role(Role::Removed),
        Some('@') => Style::role(Role::Command),
        Some('#' | '…' | '\\') => Style::DIM,
        _ => Style::PLAIN,
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::super::state::{Facts, Level},
        *,
    };

    fn state() -> State {
        let facts = Facts {
            model: "m/x".to_owned(),
            effort: None,
            windows: Vec::new(),
            profile: "interactive".to_owned(),
            confinement: "no jail".to_owned(),
            level: Level::Open,
            session: None,
        };
        State::new(facts, 80, 24)
    }

    #[test]
    fn a_diff_has_colours_by_its_signs() {
        let mut state = state();
        state.diff("--- a/f\n+++ b/f\n@@ -1 +1 @@\n-old\n+new\n same\n# note\n");
        let rows = state.take_rows();
        let found = |text: &str| {
            let row = rows.iter().find(|row| row.text().trim() == text).unwrap();
            row.spans.last().unwrap().style
        };
        assert_eq!(found("-old"), Style::role(Role::Removed));
        assert_eq!(found("+new"), Style::role(Role::Added));
        assert_eq!(found("--- a/f"), Style::BOLD);
        assert_eq!(found("same"), Style::PLAIN);
    }

    #[test]
    fn going_back_begins_a_conversation_only_when_it_is_meant() {
        let ask = |name, rest: &str| Effect::Ask(name, rest.to_owned());
        assert_eq!(goes_back("rewind", String::new()), ask("rewind", ""));
        assert_eq!(goes_back("rewind", "2 files".to_owned()), ask("rewind", "2 files"));
        assert_eq!(goes_back("undo", "force".to_owned()), ask("undo", "force"));
        for rest in ["1", "2 conversation", "3 force"] {
            let begin = Effect::Begin("rewind", rest.to_owned());
            assert_eq!(goes_back("rewind", rest.to_owned()), begin);
        }
    }

    #[test]
    fn a_draft_never_takes_the_place_of_what_is_written() {
        let mut state = state();
        state.draft(Some("again"));
        assert_eq!(state.composer.text(), "again");
        state.draft(Some("other"));
        assert_eq!(state.composer.text(), "again");
    }

    #[test]
    fn nothing_goes_back_while_the_agent_works() {
        let mut state = state();
        let idle = state.line("/undo");
        assert_eq!(idle, [Effect::Ask("undo", String::new())], "control");
        state.submit("go".to_owned());
        for command in ["/undo", "/redo", "/rewind 1"] {
            assert_eq!(state.line(command), [], "{command}");
        }
        let said: String = state.take_rows().iter().map(super::Line::text).collect();
        assert!(said.contains("puts files back"), "{said}");
    }
}
