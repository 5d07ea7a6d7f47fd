//! Identifiers of calls: each stands once in a conversation, whatever servers count. Pure.

use std::collections::HashMap;

use crate::message::Message;

/// The identifiers of calls that a conversation has, each with the last number that was put behind it.
#[derive(Debug, Default)]
pub(super) struct Used(HashMap<String, u64>);

impl Used {
    /// Takes those of a conversation.
    pub(super) fn of(history: &[Message]) -> Self {
        Self(history.iter().flat_map(Message::calls).map(|call| (call.id.clone(), 1)).collect())
    }

    /// Returns a call's identifier, with a number behind it when the conversation has it already:
    /// some servers count anew in every answer, and a history in which one stands twice is refused.
    pub(super) fn take(&mut self, id: String) -> String {
        let id = if id.is_empty() { "call".to_owned() } else { id };
        let Some(mut number) = self.0.get(&id).copied() else {
            self.0.insert(id.clone(), 1);
            return id;
        };
        let unused = loop {
            number = number.saturating_add(1);
            let unused = format!("{id}_{number}");
            if !self.0.contains_key(&unused) {
                break unused;
            }
        };
        self.0.insert(id, number);
        self.0.insert(unused.clone(), 1);
        unused
    }
}
