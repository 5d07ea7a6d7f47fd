//! What becomes of a request that failed: it is made again, another model is asked, or the prompt
//! ends, and what had arrived is kept. Pure.

use crate::{
    message::{Block, Message, Role, ToolCall},
    model::{Class, ModelError},
};

use super::{Action, Asking, Event, Fault, FaultKind, Outcome, State, Then, Turn};

impl Turn {
    pub(super) fn failed(&mut self, error: ModelError, out: &mut Vec<Action>) {
        let Some(error) = self.overflowed(error, out) else { return };
        let State::Asking(asking) = &mut self.state else { return };
        let Asking { attempt, blocks, begun } = std::mem::take(asking);
        // Thinking that came to nothing is nothing to keep, and no reason not to ask again.
        let delivered = blocks.iter().any(|block| !matches!(block, Block::Opaque { .. }));
        out.push(Action::Abort);
        if begun {
            self.asked.broke_off();
        }
        let network = error.network;
        let (class, mut message) = (error.class, error.message);
        if let (Class::Retry { after }, false) = (&class, delivered) {
            let after = *after;
            if attempt < self.retry.attempts
                && (self.retry.unreached || !network)
                && after.is_none_or(|after| after <= self.retry.longest)
            {
                if self.spent_out(out) {
                    return;
                }
                let backoff = self.retry.base.saturating_mul(1 << attempt.min(16));
                let wait = after.unwrap_or(backoff);
                let next = attempt + 1;
                self.state = State::Waiting { attempt: next };
                out.push(Action::Emit(Event::Retrying {
                    attempt: next,
                    of: self.retry.attempts,
                    after: wait,
                    reason: message,
                }));
                out.push(Action::Sleep { after: wait, jitter: backoff / 2 });
                return;
            }
            if let Some(after) = after.filter(|after| *after > self.retry.longest) {
                message = format!(
                    "{message}; it asks to wait {} s, which is longer than the {} s that a run \
                     waits: try again then",
                    after.as_secs(),
                    self.retry.longest.as_secs()
                );
            }
            if let Some((from, to)) = self.asked.give_up(&message) {
                self.fall_back(from, to, message, out);
                return;
            }
        }
        let kind = kind_of(&class, network);
        let fault = Some(Fault { kind, message: self.asked.sentence(message) });
        if delivered {
            self.keep_partial(blocks, "not run: the answer broke off", out);
            self.finish(Outcome::Incomplete, fault, out);
        } else {
            self.finish(Outcome::Error, fault, out);
        }
    }

    /// Asks the next model the same: nothing of the answer had come. Its window may be another one.
    pub(super) fn fall_back(
        &mut self,
        from: String,
        to: String,
        reason: String,
        out: &mut Vec<Action>,
    ) {
        self.state = State::Asking(Asking::default());
        self.compaction.asks(self.asked.window());
        out.push(Action::Emit(Event::FellBack { from, to, reason }));
        if self.spent_out(out) || self.compacts(Then::Same, out) {
            return;
        }
        self.ask_again(out);
    }

    /// Records what had arrived, with a result for every call in it.
    pub(super) fn keep_partial(
        &mut self,
        mut blocks: Vec<Block>,
        reason: &str,
        out: &mut Vec<Action>,
    ) {
        // A message may not end with a block that only explains what never came.
        while matches!(blocks.last(), Some(Block::Opaque { .. })) {
            blocks.pop();
        }
        if blocks.is_empty() {
            return;
        }
        let message = Message { role: Role::Assistant, blocks };
        let calls: Vec<ToolCall> = message.calls().cloned().collect();
        let text = message.text();
        if !text.trim().is_empty() {
            self.text = text;
        }
        self.record(message, out);
        self.state = State::Working { results: vec![None; calls.len()], calls, committed: 0 };
        self.close_calls(reason, out);
    }
}

/// Returns the kind of a failure for people and programs.
pub(super) fn kind_of(class: &Class, network: bool) -> FaultKind {
    match (class, network) {
        (Class::Auth, _) => FaultKind::Auth,
        (_, true) => FaultKind::Network,
        _ => FaultKind::Provider,
    }
}
