//! How a prompt ends: which outcome and exit code count where several apply. Pure.

use std::time::Duration;

use super::{Action, Fault, FaultKind, Outcome, State, Summary, Turn};

impl Turn {
    pub(super) fn finish(&mut self, outcome: Outcome, fault: Option<Fault>, out: &mut Vec<Action>) {
        let provider = fault.as_ref().is_some_and(|fault| {
            matches!(fault.kind, FaultKind::Provider | FaultKind::Auth | FaultKind::Network)
        });
        let denied = !self.open_denials.is_empty();
        // Where several apply: budget, provider, denied, failed.
        let (outcome, exit) = match outcome {
            Outcome::Interrupted => (outcome, 130),
            Outcome::Budget => (outcome, 5),
            Outcome::Error | Outcome::Incomplete if provider => (outcome, 4),
            Outcome::Denied | Outcome::Ok | Outcome::Error | Outcome::Incomplete if denied => {
                (if outcome == Outcome::Ok { Outcome::Denied } else { outcome }, 3)
            }
            Outcome::Ok => (outcome, 0),
            Outcome::Denied => (outcome, 3),
            Outcome::Error | Outcome::Incomplete => (outcome, 1),
        };
        self.finish_with(outcome, exit, fault, out);
    }

    /// Ends a prompt whose answer came and is no good: the failure is the provider's, and the exit
    /// code that of a task that is not done.
    pub(super) fn fall_short(
        &mut self,
        outcome: Outcome,
        message: impl Into<String>,
        out: &mut Vec<Action>,
    ) {
        let fault = Fault { kind: FaultKind::Provider, message: message.into() };
        let exit = if self.open_denials.is_empty() { 1 } else { 3 };
        self.finish_with(outcome, exit, Some(fault), out);
    }

    pub(super) fn finish_with(
        &mut self,
        outcome: Outcome,
        exit: u8,
        fault: Option<Fault>,
        out: &mut Vec<Action>,
    ) {
        self.state = State::Idle;
        self.references.clear();
        out.push(Action::Sync);
        out.push(Action::Finish(Box::new(Summary {
            outcome,
            exit,
            text: self.text.clone(),
            model: Some(self.asked.name().to_owned()),
            turns: self.turns,
            usage: self.usage,
            cost: self.asked.cost().filter(|_| self.turns > 0),
            undelivered: std::mem::take(&mut self.steering),
            denied: self.denied.clone(),
            changed: self.changed.clone(),
            duration: Duration::ZERO,
            fault,
        })));
    }
}
