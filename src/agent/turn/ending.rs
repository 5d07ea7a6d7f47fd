//! How a prompt ends: which outcome and exit code count where several apply. Pure.

use std::time::Duration;

use super::{Action, Event, Fault, FaultKind, Outcome, State, Summary, Turn};

/// How a prompt ends.
#[derive(Debug)]
pub(super) struct Closing {
    outcome: Outcome,
    exit: u8,
    fault: Option<Fault>,
}

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
        if matches!(outcome, Outcome::Ok | Outcome::Denied) {
            self.close(Closing { outcome, exit, fault }, out);
        } else {
            self.finish_with(outcome, exit, fault, out);
        }
    }

    /// Ends a prompt whose answer is there: a compaction that was asked for meanwhile comes first, as
    /// far as the budgets allow one.
    fn close(&mut self, closing: Closing, out: &mut Vec<Action>) {
        self.state = State::Idle;
        self.closing = Some(closing);
        let may_spend = self.over_tokens().or_else(|| self.over_cost()).is_none();
        if !may_spend || !self.compacts_at_the_end(out) {
            self.conclude(out);
        }
    }

    /// Ends the prompt as it would have ended without the compaction that is done now.
    fn conclude(&mut self, out: &mut Vec<Action>) {
        let Some(Closing { outcome, exit, fault }) = self.closing.take() else { return };
        self.finish_with(outcome, exit, fault, out);
    }

    /// The compaction at the end of a prompt is done with: what was said during it is worked on.
    pub(super) fn compacted_at_the_end(&mut self, out: &mut Vec<Action>) {
        if self.has_steering() {
            self.closing = None;
            self.ask(out);
        } else {
            self.conclude(out);
        }
    }

    /// The time is up while a compaction is made at the end of a prompt, whose answer is there.
    pub(super) fn conclude_in_time(&mut self, out: &mut Vec<Action>) {
        let sentence = "the time is up, so the conversation was not made shorter".to_owned();
        out.push(Action::Emit(Event::Notice(sentence)));
        self.conclude(out);
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
        let withdrawn = self.fresh.take().is_some_and(|fresh| fresh.is_withdrawn());
        self.state = State::Idle;
        self.closing = None;
        self.references.clear();
        out.push(Action::Sync);
        out.push(Action::Finish(Box::new(Summary {
            outcome,
            exit,
            text: self.text.clone(),
            model: Some(self.asked.name().to_owned()),
            turns: self.turns,
            usage: self.usage,
            cost: self.asked.cost().filter(|_| self.turns > 0 || self.usage.total() > 0),
            undelivered: std::mem::take(&mut self.steering),
            withdrawn,
            denied: self.denied.clone(),
            changed: self.changed.clone(),
            duration: Duration::ZERO,
            fault,
        })));
    }
}
