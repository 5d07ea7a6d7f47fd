//! What a person changes while a conversation goes on: the theme, the keys, and the model, the effort
//! or the profile, with which the same conversation goes on.

use crate::display::{Keymap, Theme};

use super::{
    block::Kind,
    edge::{Answer, Conversation},
    found::Found,
    state::{Effect, Facts, State},
};

/// How a conversation is begun that is the one that was there.
pub const SWITCH: &str = "switch";

/// What changes with an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// How things look. What was emitted stays as it is.
    Theme(Theme),
    /// What keys do.
    Keys(Keymap),
    /// The conversation goes on with what has been made ready.
    GoOn,
}

/// Why a prompt is not sent while the conversation is about to go on with something else.
pub(super) const NOT_YET: &str = "the change that you asked for is still being made ready; the prompt was not sent, so send it when \
     that is done";

/// Says why a conversation that is worked on is not changed.
pub(super) fn busy(name: &str) -> String {
    format!("`/{name}` changes the conversation that goes on; interrupt what runs first (Esc Esc)")
}

impl State {
    /// Takes the keys that hold from now on.
    pub fn use_keys(&mut self, keys: Keymap) {
        self.keys = keys;
    }

    /// Says whether a change of the conversation that goes on was asked for and is not answered.
    pub(super) fn is_switching(&self) -> bool {
        self.switching && self.asked > 0
    }

    /// Takes the answer of a command, with what it changes here.
    pub(super) fn answer(&mut self, answer: Answer) -> Vec<Effect> {
        if matches!(answer.found, None | Some(Found::Choices(_))) {
            self.answers(&answer.to);
        }
        match answer.change {
            Some(Change::GoOn) if self.work.is_some() => {
                // The prompt came first.
                self.answered(
                    "",
                    "the agent works again, so nothing was changed; say it anew",
                    true,
                );
                return Vec::new();
            }
            Some(Change::GoOn) => return vec![Effect::Begin(SWITCH, String::new())],
            Some(Change::Keys(keys)) => self.use_keys(keys),
            Some(Change::Theme(_)) | None => {}
        }
        if let Some(found) = answer.found {
            self.found(found);
            return Vec::new();
        }
        let mut text = answer.text.as_str();
        self.echo();
        if answer.is_diff {
            self.diff(std::mem::take(&mut text));
        }
        self.answer_rows(text, &answer.errors, answer.failed);
        Vec::new()
    }

    /// Goes on in a conversation: another one, or the same with something changed.
    pub(super) fn enter_talk(&mut self, how: &str, talk: &mut Conversation) {
        if how == SWITCH {
            self.switch(talk.facts.clone(), &talk.said, &talk.notices);
        } else {
            let earlier = std::mem::take(&mut talk.earlier);
            self.begin(talk.facts.clone(), earlier, &talk.notices);
            match (how, self.session().is_some()) {
                ("clear", true) => self
                    .say(Kind::Note, "a new session begins; `/resume` goes back to an earlier one"),
                ("clear", false) => {
                    self.say(Kind::Note, "a new conversation begins, and is not kept");
                }
                ("fork", _) => {
                    self.say(Kind::Note, "a copy of the session goes on; `/tree` shows both");
                }
                _ => {}
            }
            self.draft(talk.draft.as_deref());
        }
    }

    /// The conversation goes on: what was said and spent stays, the footer changes.
    fn switch(&mut self, facts: Facts, said: &str, notices: &[String]) {
        self.facts = facts;
        self.answered(said, "", false);
        for notice in notices {
            self.say(Kind::Warning, notice);
        }
    }
}

#[cfg(test)]
mod tests;
