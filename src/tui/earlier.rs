//! What a conversation that goes on was before, as far as the interface needs it: the whole of it
//! belongs to the agent, and is not kept here a second time.

use crate::message::{Message, Role};

use super::composer::HISTORY;

/// Messages that are shown.
pub(super) const RECENT: usize = 20;

/// What was said before.
#[derive(Clone, Debug, Default)]
pub struct Earlier {
    /// How many messages came before those that are shown.
    pub skipped: usize,
    /// What the person said, for the history of the composer.
    pub prompts: Vec<String>,
    /// The latest messages, to be shown.
    pub recent: Vec<Message>,
}

impl Earlier {
    /// Whether nothing was said.
    pub(super) const fn is_nothing(&self) -> bool {
        self.skipped == 0 && self.recent.is_empty()
    }

    /// Returns what the interface needs of a conversation, each text as `clean` leaves it.
    pub fn of(history: &[Message], clean: impl Fn(&mut Message)) -> Self {
        let clean = |message: &Message| {
            let mut message = message.clone();
            clean(&mut message);
            message
        };
        let skipped = history.len().saturating_sub(RECENT);
        let said = history.iter().filter(|message| message.role == Role::User);
        let mut prompts: Vec<String> =
            said.rev().take(HISTORY).map(|message| clean(message).text()).collect();
        prompts.reverse();
        Self { skipped, prompts, recent: history.iter().skip(skipped).map(clean).collect() }
    }
}
