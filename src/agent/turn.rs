//! The turn: one prompt from submission to summary, as a pure state machine.
//!
//! Inputs come from the driver (deltas, failures, tool results, signals), actions go back to it. It
//! has no clock, no network and no files, and it never performs an action itself, so every order
//! of events can be tested. Invariants: an action that records comes before the action that takes
//! effect; every recorded call gets exactly one recorded result, in the order of the calls.

use std::{collections::BTreeSet, path::PathBuf};

use crate::{
    message::{Arguments, Block, Message, Role, Stop, ToolCall, ToolResult, Usage},
    model::{Class, Delta, ModelError},
};

use super::{Budgets, Denied, Event, Fault, FaultKind, Outcome, Summary, ids::Used};

use compaction::{Compacting, Compaction};

pub use super::step::{Action, CallResult, Input, Retry, Why};

/// How often in a row the model may answer with nothing but calls whose arguments cannot be read.
const MALFORMED_TURNS: u32 = 3;

#[derive(Debug)]
enum State {
    Idle,
    Asking { attempt: u32, blocks: Vec<Block> },
    Waiting { attempt: u32 },
    Working { calls: Vec<ToolCall>, results: Vec<Option<CallResult>>, committed: usize },
    Compacting(Box<Compacting>),
}

/// One conversation's machine.
#[derive(Debug)]
pub struct Turn {
    model: String,
    budgets: Budgets,
    retry: Retry,
    history: Vec<Message>,
    used: Used,
    state: State,
    steering: Vec<String>,
    turns: u64,
    usage: Usage,
    text: String,
    denied: Vec<Denied>,
    /// Atoms of refusals that no later success under the same atom has made good.
    open_denials: BTreeSet<String>,
    changed: Vec<PathBuf>,
    malformed_turns: u32,
    compaction: Compaction,
}

impl Turn {
    /// Starts a machine on a history whose calls and results are paired.
    pub fn new(model: String, history: Vec<Message>, budgets: Budgets, retry: Retry) -> Self {
        Self {
            model,
            budgets,
            retry,
            used: Used::of(&history),
            compaction: Compaction::new(&history),
            history,
            state: State::Idle,
            steering: Vec::new(),
            turns: 0,
            usage: Usage::default(),
            text: String::new(),
            denied: Vec::new(),
            open_denials: BTreeSet::new(),
            changed: Vec::new(),
            malformed_turns: 0,
        }
    }

    /// Returns the conversation as it is to be sent.
    pub fn history(&self) -> &[Message] {
        &self.history
    }

    /// Takes one input and returns what is to be done about it.
    pub fn step(&mut self, input: Input) -> Vec<Action> {
        let mut out = Vec::new();
        match input {
            Input::Submit(text) => self.submit(text, &mut out),
            Input::Steer(text) => match self.state {
                State::Idle => self.submit(text, &mut out),
                _ => self.steering.push(text),
            },
            Input::Delta(delta) => self.delta(delta, &mut out),
            Input::Failed(error) => self.failed(error, &mut out),
            Input::RetryDue => {
                if let State::Waiting { attempt } = self.state {
                    self.state = State::Asking { attempt, blocks: Vec::new() };
                    out.push(Action::Ask);
                }
                self.summarise(&mut out);
            }
            Input::Compact(focus) => self.compact_asked(focus, &mut out),
            Input::Result(result) => self.result(*result, &mut out),
            Input::Stop(why) => self.stop(why, &mut out),
        }
        out
    }

    fn submit(&mut self, text: String, out: &mut Vec<Action>) {
        if !matches!(self.state, State::Idle) {
            self.steering.push(text);
            return;
        }
        self.clear();
        self.record(Message::user(text), out);
        self.ask(out);
    }

    /// Forgets what an earlier prompt came to.
    fn clear(&mut self) {
        self.turns = 0;
        self.usage = Usage::default();
        self.text.clear();
        self.denied.clear();
        self.open_denials.clear();
        self.changed.clear();
        self.malformed_turns = 0;
    }

    fn record(&mut self, message: Message, out: &mut Vec<Action>) {
        self.compaction.add(&message);
        self.history.push(message.clone());
        out.push(Action::Record(message));
    }

    /// Asks, unless a budget says no.
    fn ask(&mut self, out: &mut Vec<Action>) {
        for text in std::mem::take(&mut self.steering) {
            self.record(Message::user(text), out);
        }
        if let Some(fault) = self.over_budget() {
            self.finish(Outcome::Budget, Some(fault), out);
            return;
        }
        if self.compacts(out) {
            return;
        }
        self.turns += 1;
        self.state = State::Asking { attempt: 0, blocks: Vec::new() };
        out.push(Action::Sync);
        out.push(Action::Emit(Event::Asking { turn: self.turns }));
        out.push(Action::Ask);
    }

    fn over_budget(&self) -> Option<Fault> {
        let message = match (self.budgets.turns, self.budgets.tokens) {
            (Some(limit), _) if self.turns >= limit => {
                format!("the budget of {limit} turns is used up; raise it with `--max-turns`")
            }
            (_, Some(limit)) if self.usage.total() >= limit => format!(
                "the budget of {limit} tokens is used up ({} used); raise it with `--max-tokens`",
                self.usage.total()
            ),
            _ => return None,
        };
        Some(Fault { kind: FaultKind::Config, message })
    }

    fn delta(&mut self, delta: Delta, out: &mut Vec<Action>) {
        if matches!(self.state, State::Compacting(_)) {
            return self.summary_delta(delta, out);
        }
        let State::Asking { blocks, .. } = &mut self.state else { return };
        match delta {
            Delta::Text(text) => {
                out.push(Action::Emit(Event::Text(text.clone())));
                match blocks.last_mut() {
                    Some(Block::Text { text: before }) => before.push_str(&text),
                    _ => blocks.push(Block::Text { text }),
                }
            }
            Delta::Thinking(text) => out.push(Action::Emit(Event::Thinking(text))),
            Delta::Opaque(value) => {
                blocks.push(Block::Opaque { model: self.model.clone(), value });
            }
            Delta::Call { id, name, arguments } => {
                let arguments = Arguments::parse(&arguments);
                let id = self.used.take(id);
                blocks.push(Block::Call(ToolCall { id, name, arguments }));
            }
            Delta::Done { stop, usage } => {
                let blocks = std::mem::take(blocks);
                self.answered(blocks, &stop, usage, out);
            }
        }
    }

    fn answered(
        &mut self,
        blocks: Vec<Block>,
        stop: &Stop,
        usage: Option<Usage>,
        out: &mut Vec<Action>,
    ) {
        if let Some(usage) = usage {
            self.usage.add(usage);
            self.compaction.measured(usage);
            out.push(Action::RecordUsage(usage));
            out.push(Action::Emit(Event::Usage { turn: self.turns, usage }));
        }
        let message = Message { role: Role::Assistant, blocks };
        let calls: Vec<ToolCall> = message.calls().cloned().collect();
        let text = message.text();
        if !text.trim().is_empty() {
            self.text.clone_from(&text);
        }
        if message.blocks.is_empty() {
            if *stop == Stop::ContextFull && self.refit(out) {
                return;
            }
            let fault = match stop {
                Stop::Refusal => "the model declined to answer".to_owned(),
                Stop::ContextFull => self.does_not_fit(),
                Stop::MaxTokens => "the answer was cut before its first word".to_owned(),
                _ => "the model's answer was empty".to_owned(),
            };
            self.fall_short(Outcome::Error, fault, out);
            return;
        }
        self.record(message, out);
        if calls.is_empty() {
            match stop {
                Stop::MaxTokens => self.fall_short(
                    Outcome::Incomplete,
                    "the answer was cut at the model's output limit",
                    out,
                ),
                Stop::ContextFull => self.fall_short(
                    Outcome::Incomplete,
                    "the answer was cut because the context window is full",
                    out,
                ),
                Stop::Refusal => {
                    self.fall_short(Outcome::Error, "the model declined to go on", out);
                }
                _ if !self.steering.is_empty() => self.ask(out),
                _ if text.trim().is_empty() => {
                    self.fall_short(Outcome::Error, "the model's answer was empty", out);
                }
                _ => self.finish(Outcome::Ok, None, out),
            }
            return;
        }
        let malformed = calls.iter().all(|call| matches!(call.arguments, Arguments::Malformed(_)));
        self.malformed_turns = if malformed { self.malformed_turns + 1 } else { 0 };
        self.state =
            State::Working { results: vec![None; calls.len()], calls: calls.clone(), committed: 0 };
        // Calls that can have no answering turn are not run: their effect would go unseen.
        if let Some(fault) = self.over_budget() {
            self.close_calls("not run: the run's budget is used up", out);
            self.finish(Outcome::Budget, Some(fault), out);
        } else if self.malformed_turns >= MALFORMED_TURNS {
            self.close_calls("not run: the arguments are not a JSON object", out);
            let fault = format!(
                "the model sent calls with unreadable arguments {MALFORMED_TURNS} times in a row"
            );
            self.fall_short(Outcome::Error, fault, out);
        } else {
            out.push(Action::Work(calls));
        }
    }

    fn result(&mut self, result: CallResult, out: &mut Vec<Action>) {
        let State::Working { results, .. } = &mut self.state else { return };
        let Some(slot) = results.get_mut(result.index) else { return };
        if slot.is_none() {
            *slot = Some(result);
        }
        self.commit(out);
        if let State::Working { results, committed, .. } = &self.state
            && *committed == results.len()
        {
            self.ask(out);
        }
    }

    /// Records the results that are there, in the order of the calls.
    fn commit(&mut self, out: &mut Vec<Action>) {
        loop {
            let State::Working { results, committed, .. } = &mut self.state else { return };
            let Some(Some(result)) = results.get(*committed).cloned() else { return };
            *committed += 1;
            if let Some(denied) = result.denied {
                self.open_denials.insert(denied.atom.clone());
                self.denied.push(denied.clone());
                out.push(Action::RecordDenied(denied));
            } else if !result.result.is_error {
                for atom in &result.allowed {
                    self.open_denials.remove(atom);
                }
            }
            for path in result.changed {
                if !self.changed.contains(&path) {
                    self.changed.push(path.clone());
                    out.push(Action::RecordChanged(path));
                }
            }
            let blocks = vec![Block::Result(result.result)];
            self.record(Message { role: Role::User, blocks }, out);
        }
    }

    /// Gives every call that has none a result.
    fn close_calls(&mut self, text: &str, out: &mut Vec<Action>) {
        if let State::Working { calls, results, .. } = &mut self.state {
            for (index, (call, slot)) in calls.iter().zip(results.iter_mut()).enumerate() {
                slot.get_or_insert_with(|| CallResult {
                    index,
                    result: ToolResult { call: call.id.clone(), text: text.into(), is_error: true },
                    denied: None,
                    allowed: Vec::new(),
                    changed: Vec::new(),
                });
            }
        }
        self.commit(out);
    }

    fn failed(&mut self, error: ModelError, out: &mut Vec<Action>) {
        let Some(error) = self.overflowed(error, out) else { return };
        let State::Asking { attempt, blocks } = &mut self.state else { return };
        let attempt = *attempt;
        let blocks = std::mem::take(blocks);
        let delivered = !blocks.is_empty();
        out.push(Action::Abort);
        if let (Class::Retry { after }, false) = (&error.class, delivered)
            && attempt < self.retry.attempts
            && (self.retry.unreached || !error.network)
            && after.is_none_or(|after| after <= self.retry.longest)
        {
            let backoff = self.retry.base.saturating_mul(1 << attempt.min(16));
            let wait = after.unwrap_or(backoff);
            let next = attempt + 1;
            self.state = State::Waiting { attempt: next };
            out.push(Action::Emit(Event::Retrying {
                attempt: next,
                of: self.retry.attempts,
                after: wait,
                reason: error.message,
            }));
            out.push(Action::Sleep { after: wait, jitter: backoff / 2 });
            return;
        }
        let mut message = error.message;
        if let Class::Retry { after: Some(after) } = error.class
            && after > self.retry.longest
        {
            message = format!(
                "{message}; it asks to wait {} s, which is longer than the {} s that a run waits: try \
                 again then",
                after.as_secs(),
                self.retry.longest.as_secs()
            );
        }
        let kind = match (&error.class, error.network) {
            (Class::Auth, _) => FaultKind::Auth,
            (_, true) => FaultKind::Network,
            _ => FaultKind::Provider,
        };
        let fault = Some(Fault { kind, message });
        if delivered {
            self.keep_partial(blocks, "not run: the answer broke off", out);
            self.finish(Outcome::Incomplete, fault, out);
        } else {
            self.finish(Outcome::Error, fault, out);
        }
    }

    /// Records what had arrived, with a result for every call in it.
    fn keep_partial(&mut self, mut blocks: Vec<Block>, reason: &str, out: &mut Vec<Action>) {
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

    fn stop(&mut self, why: Why, out: &mut Vec<Action>) {
        if matches!(self.state, State::Idle) {
            return;
        }
        out.push(Action::Abort);
        if let Why::Journal(message) = why {
            // Nothing can be recorded any more; the next start repairs what is open.
            self.finish(Outcome::Error, Some(internal(message)), out);
            return;
        }
        if let State::Asking { blocks, .. } = &mut self.state {
            let blocks = std::mem::take(blocks);
            self.keep_partial(blocks, "not run: interrupted", out);
        } else {
            self.close_calls("interrupted: the call was stopped and may have had effects", out);
        }
        match why {
            Why::Time(limit) => {
                let message = format!(
                    "the budget of {} s is used up; raise it with `--timeout`",
                    limit.as_secs_f64()
                );
                let fault = Fault { kind: FaultKind::Config, message };
                self.finish(Outcome::Budget, Some(fault), out);
            }
            Why::Terminate => self.finish_with(Outcome::Interrupted, 143, None, out),
            Why::Interrupt | Why::Journal(_) => {
                self.finish_with(Outcome::Interrupted, 130, None, out);
            }
        }
    }
}

fn internal(message: impl Into<String>) -> Fault {
    Fault { kind: FaultKind::Internal, message: message.into() }
}

mod compaction;
mod ending;
#[cfg(test)]
mod tests;
