//! What stands around the composer: completion, the list to choose from, the history, the editor
//! outside, and what waits to be sent.

use super::{
    super::{
        block::Kind,
        command,
        found::Found,
        key::{Code, Key},
        picker::{Choices, Item, Picked, Picker, Then},
    },
    Effect, State,
};

/// The least rows that the region leaves to everything but the list to choose from.
const BESIDE: usize = 3;
/// The longest name of a session, in characters.
const NAME: usize = 80;

impl State {
    /// Takes what was found. Choices are the answer to a command.
    pub fn found(&mut self, found: Found) {
        match found {
            Found::Choices(choices) => {
                self.asked = self.asked.saturating_sub(1);
                self.said_commands.pop_front();
                self.picker = Some(Picker::new(choices, ""));
            }
            Found::Files(files) => self.completion.know(files, self.now),
            Found::History(earlier) => self.composer.recollect(earlier),
            Found::Name(name) => self.name = name,
        }
    }

    /// Takes what was said since the last time, to be kept for later sessions.
    pub fn take_said(&mut self) -> Vec<String> {
        std::mem::take(&mut self.said)
    }

    /// Remembers what is sent. What begins with a blank is nobody's business later.
    pub(super) fn remember(&mut self, text: &str) {
        if !text.starts_with(' ') {
            self.said.push(text.to_owned());
        }
    }

    /// The editor outside has ended: with a text, without one, or with a sentence.
    pub fn edited(&mut self, text: Result<Option<String>, String>) {
        match text {
            Ok(Some(text)) => self.composer.put(&text),
            Ok(None) => self.hint("the editor was left without a text; nothing has changed"),
            Err(sentence) => self.say(Kind::Error, &sentence),
        }
    }

    /// Takes a key before anything else does; `None` when it means nothing here.
    pub(super) fn key_around(&mut self, key: Key) -> Option<Vec<Effect>> {
        if let Some(picker) = &mut self.picker {
            let page = Picker::page(picker_rows(self.height));
            let then = picker.then();
            return Some(match picker.key(key, page) {
                Picked::Open => Vec::new(),
                Picked::Closed => {
                    self.picker = None;
                    Vec::new()
                }
                Picked::Chosen(value) => {
                    self.picker = None;
                    self.chosen(then, value)
                }
            });
        }
        match (key.code, key.ctrl, key.alt) {
            (Code::Char('g'), true, _) => return Some(vec![Effect::Edit(self.composer.whole())]),
            (Code::Char('r'), true, _) => {
                self.search_history();
                return Some(Vec::new());
            }
            (Code::Enter, false, false) if !key.shift => {
                return self.completion.accept(&mut self.composer).then(Vec::new);
            }
            (Code::Esc, ..) => {
                // It counts as the first of two all the same.
                self.completion.close();
            }
            (Code::Up, ..) if self.composer.is_empty() && !self.next.is_empty() => {
                if let Some(text) = self.next.pop() {
                    self.composer.put(&text);
                }
                return Some(Vec::new());
            }
            _ => {}
        }
        self.completion.key(key).then(Vec::new)
    }

    /// Takes a paste, when something else than the composer is open for it; says whether it did.
    pub(super) fn paste_around(&mut self, text: &str) -> bool {
        match &mut self.picker {
            Some(picker) => {
                picker.write(text);
                true
            }
            None => false,
        }
    }

    /// Looks at what is written by now, and asks for the files when one is mentioned.
    pub(super) fn look_around(&mut self, mut effects: Vec<Effect>) -> Vec<Effect> {
        if self.completion.look(&self.composer, self.now) {
            effects.push(Effect::Files);
        }
        effects
    }

    fn chosen(&mut self, then: Then, value: String) -> Vec<Effect> {
        match then {
            Then::Write => {
                self.composer.put(&value);
                Vec::new()
            }
            Then::Command(name) => match command::COMMANDS.iter().find(|it| it.name == name) {
                Some(found) => self.command(found, value),
                None => Vec::new(),
            },
        }
    }

    fn search_history(&mut self) {
        let mut seen = std::collections::HashSet::new();
        let items: Vec<Item> = self
            .composer
            .history()
            .iter()
            .rev()
            .filter(|text| seen.insert(text.as_str()))
            .map(|text| Item {
                value: text.clone(),
                text: text.chars().take(400).collect(),
                also: text.chars().skip(400).take(2000).collect(),
                ..Item::default()
            })
            .collect();
        if items.is_empty() {
            self.hint("nothing was said yet");
            return;
        }
        let title = "Earlier prompts".to_owned();
        let choices = Choices { title, items, first: 0, then: Then::Write };
        let written = self.composer.text();
        let query = if written.contains('\n') { "" } else { written };
        self.picker = Some(Picker::new(choices, query));
    }

    /// Returns a name as a session may have it: one line, nothing hidden, of bounded length.
    ///
    /// # Errors
    /// A sentence.
    pub fn name_of(text: &str) -> Result<String, String> {
        let name = super::super::cells::clean_row(text.trim());
        if name.is_empty() {
            return Err("a name is missing; `/name TEXT` gives one".to_owned());
        }
        if name.chars().count() > NAME {
            return Err(format!("a name has at most {NAME} characters"));
        }
        Ok(name)
    }
}

/// Returns how many rows the list to choose from has on a terminal of this height.
pub(in crate::tui) fn picker_rows(height: usize) -> usize {
    let room = height.saturating_sub(1).max(1);
    room.saturating_sub(BESIDE).max(1)
}

#[cfg(test)]
mod tests;
