//! What becomes part of the transcript: prompts, answers of commands, a conversation that is gone on
//! with; and the blank rows between them, of which there is one.

use crate::message::{Block, Message, Role};

use super::{
    super::{
        block::{self, Kind},
        cells::{clean, clean_row, cut, wrap},
        change::SWITCH,
        command, markdown,
        style::{Line, Span, Style},
    },
    Effect, State,
};

impl State {
    /// Takes the rows that are to be emitted: each once.
    pub fn take_rows(&mut self) -> Vec<Line> {
        // Once a frame, and not for each of the pieces that it takes in.
        if let Some(answer) = &mut self.answer {
            self.rows.extend(answer.ready(self.width));
        }
        if let Some(last) = self.rows.last() {
            self.ended_blank = Some(last.is_blank());
        }
        std::mem::take(&mut self.rows)
    }

    /// Says whether what comes next follows a blank row.
    pub(in crate::tui) fn follows_blank(&self) -> bool {
        self.rows.last().map_or(self.ended_blank == Some(true), Line::is_blank)
    }

    /// Says whether the transcript ends with a row that is not blank.
    pub(in crate::tui) fn follows_text(&self) -> bool {
        self.rows.last().map_or(self.ended_blank == Some(false), |row| !row.is_blank())
    }

    /// Returns the rows of a prompt, after one blank row.
    pub(in crate::tui) fn prompt_rows(&self, text: &str) -> Vec<Line> {
        let follows_blank = self.follows_blank();
        let rows = block::prompt(text, self.width).into_iter();
        rows.skip(usize::from(follows_blank)).collect()
    }

    /// A prompt becomes part of the transcript.
    pub(super) fn tell(&mut self, text: &str) {
        let rows = self.prompt_rows(text);
        self.rows.extend(rows);
    }

    /// Takes a whole line as if it had been typed, for interfaces without a composer.
    pub fn line(&mut self, text: &str) -> Vec<Effect> {
        self.composer.set(text);
        let was_idle = self.work.is_none();
        let effects = self.enter(false);
        self.composer.take();
        if was_idle && let Some(work) = &mut self.work {
            work.shown = true;
        }
        effects
    }

    /// A command is asked, and its answer comes later.
    pub(super) fn asks(&mut self, said: String) {
        self.asked += 1;
        self.said_commands.push_back(said);
    }

    /// Makes this command the one that is answered next: the quick ones are answered before the slow
    /// ones. What was asked in an earlier conversation, or by nobody, is answered beside the others.
    pub(in crate::tui) fn answers(&mut self, to: &str) {
        let name = |said: &str| said.split(' ').next().map(str::to_owned);
        let place = self.said_commands.iter().position(|said| said == to);
        let place = place.or_else(|| {
            self.said_commands.iter().position(|said| !said.is_empty() && name(said) == name(to))
        });
        let said = place.and_then(|place| self.said_commands.remove(place));
        self.asked += usize::from(said.is_none());
        self.said_commands.push_front(said.unwrap_or_default());
    }

    /// Another conversation could not be begun.
    pub(in crate::tui) fn not_begun(&mut self, how: &str, what: &str, sentence: &str) {
        if how != SWITCH {
            self.answers(&command::said(how, what));
        }
        self.answered("", sentence, true);
    }

    /// Shows the command whose answer follows.
    pub(in crate::tui) fn echo(&mut self) {
        let said = self.said_commands.pop_front().filter(|said| !self.plain && !said.is_empty());
        let Some(said) = said else { return };
        self.finish_answer();
        if self.follows_text() {
            self.rows.push(Line::default());
        }
        let mut line = Line::styled("› ", Style::role(crate::display::Role::Prompt));
        line.push(&clean_row(said.trim_end()), Style::BOLD);
        self.rows.push(cut(&line, self.width));
    }

    /// A command is answered by the interface itself.
    pub(super) fn answered_at_once(&mut self, said: &str, text: &str) {
        self.said_commands.push_front(said.to_owned());
        self.asked += 1;
        self.answered(text, "", false);
    }

    /// A command has been answered.
    pub fn answered(&mut self, text: &str, errors: &str, failed: bool) {
        self.echo();
        self.answer_rows(text, errors, failed);
    }

    /// The same, after the command was shown.
    pub(in crate::tui) fn answer_rows(&mut self, text: &str, errors: &str, failed: bool) {
        self.asked = self.asked.saturating_sub(1);
        self.finish_answer();
        let width = self.width;
        for line in clean(text.trim_end()).lines() {
            let blanks = line.len() - line.trim_start().len();
            let first = Line::styled("  ", Style::PLAIN);
            // The rest of a row is set in below it, where there is room.
            let rest = Line::styled(" ".repeat(blanks.min(width / 4) + 4), Style::PLAIN);
            self.rows.extend(wrap(&[Span::new(line, Style::PLAIN)], &first, &rest, width));
        }
        for line in errors.lines() {
            let is_hint = line.starts_with("hint: ");
            let kind = if failed && !is_hint { Kind::Error } else { Kind::Note };
            self.rows.extend(block::notice(kind, line.trim_start_matches("kli: "), width));
        }
        if self.follows_text() {
            self.rows.push(Line::default());
        }
    }

    /// Shows a message of a conversation that is gone on with.
    pub(super) fn show(&mut self, message: &Message) {
        let width = self.width;
        for part in &message.blocks {
            match part {
                Block::Text { text } if message.role == Role::User => self.tell(text),
                Block::Text { text } => {
                    self.rows.extend(markdown::render(&clean(text), width));
                    if self.follows_text() {
                        self.rows.push(Line::default());
                    }
                }
                Block::Call(call) => {
                    let title = format!("· called {}", block::title(&call.name, &call.arguments));
                    self.rows.push(cut(&Line::styled(title, Style::DIM), width));
                    self.rows.push(Line::default());
                }
                Block::Opaque { .. } | Block::Result(_) => {}
            }
        }
    }
}

#[cfg(test)]
mod tests;
