//! The turn: one prompt from submission to summary, as a pure state machine.
//!
//! Inputs come from the driver (deltas, failures, tool results, signals), actions go back to it. It
//! has no clock, no network and no files, and it never performs an action itself, so every order
//! of events can be tested. Invariants: an action that records comes before the action that takes
//! effect; every recorded call gets exactly one recorded result, in the order of the calls.

use std::{
    collections::{BTreeSet, HashMap},
    path::PathBuf,
    time::Duration,
};

use crate::{
    message::{Arguments, Block, Message, Role, Stop, ToolCall, ToolResult, Usage},
    model::{Class, Delta, ModelError},
};

use super::{Budgets, Denied, Event, Fault, FaultKind, Outcome, Summary};

/// How often in a row the model may answer with nothing but calls whose arguments cannot be read.
const MALFORMED_TURNS: u32 = 3;

/// How failed requests are tried again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retry {
    /// The most retries of one request.
    pub attempts: u32,
    /// The first delay; it doubles each time.
    pub base: Duration,
    /// The longest wish of a server that is honoured; a longer one ends the run.
    pub longest: Duration,
    /// Whether a server that is not reached is tried again. One that answers is in any case.
    pub unreached: bool,
}

impl Default for Retry {
    /// Four retries after about 0.5, 1, 2 and 4 seconds: an endpoint that drops every connection
    /// is given up within half a minute.
    fn default() -> Self {
        Self {
            attempts: 4,
            base: Duration::from_millis(500),
            longest: Duration::from_mins(1),
            unreached: true,
        }
    }
}

/// What the driver tells the machine.
#[derive(Clone, Debug)]
pub enum Input {
    /// A person's prompt.
    Submit(String),
    /// Something to tell the model at the next boundary.
    Steer(String),
    /// A piece of the answer.
    Delta(Delta),
    /// The stream failed, or ended before it was done.
    Failed(ModelError),
    /// The delay before a retry is over.
    RetryDue,
    /// A call has ended.
    Result(Box<CallResult>),
    /// The run must stop now.
    Stop(Why),
}

/// Why a run must stop before it is done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Why {
    /// Ctrl-C or its like.
    Interrupt,
    /// TERM or HUP.
    Terminate,
    /// The wall-time budget is used up.
    Time(Duration),
    /// The session could not be written.
    Journal(String),
}

/// How a call ended.
#[derive(Clone, Debug)]
pub struct CallResult {
    /// Its place among the calls of the turn.
    pub index: usize,
    /// What the model gets.
    pub result: ToolResult,
    /// The refusals: of itself, or of calls that it made.
    pub denied: Vec<Denied>,
    /// The atoms under which it was allowed.
    pub allowed: Vec<String>,
    /// Physical paths that it created or changed.
    pub changed: Vec<PathBuf>,
}

/// What the machine wants done, in this order.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Append to the session, before anything that follows takes effect.
    Record(Message),
    /// Append the tokens of one request to the session.
    RecordUsage(Usage),
    /// Append a refusal to the session.
    RecordDenied(Denied),
    /// Append a changed path to the session.
    RecordChanged(PathBuf),
    /// Make what was recorded durable.
    Sync,
    /// Ask the model with the history as it stands.
    Ask,
    /// Wait, then say [`Input::RetryDue`]. `jitter` is the most to add to it.
    Sleep {
        /// The least to wait.
        after: Duration,
        /// The most to add.
        jitter: Duration,
    },
    /// Run these calls.
    Work(Vec<ToolCall>),
    /// End the stream and the tools.
    Abort,
    /// Tell the front end.
    Emit(Event),
    /// The prompt is done with. The duration is the driver's to fill in.
    Finish(Box<Summary>),
}

#[derive(Debug)]
enum State {
    Idle,
    Asking { attempt: u32, blocks: Vec<Block> },
    Waiting { attempt: u32 },
    Working { calls: Vec<ToolCall>, results: Vec<Option<CallResult>>, committed: usize },
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
}

impl Turn {
    /// Starts a machine on a history whose calls and results are paired.
    pub fn new(model: String, history: Vec<Message>, budgets: Budgets, retry: Retry) -> Self {
        Self {
            model,
            budgets,
            retry,
            used: Used::of(&history),
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
            }
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
        self.turns = 0;
        self.usage = Usage::default();
        self.text.clear();
        self.denied.clear();
        self.open_denials.clear();
        self.changed.clear();
        self.malformed_turns = 0;
        self.record(Message::user(text), out);
        self.ask(out);
    }

    fn record(&mut self, message: Message, out: &mut Vec<Action>) {
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
            let fault = match stop {
                Stop::Refusal => "the model declined to answer".to_owned(),
                Stop::ContextFull => {
                    "the conversation does not fit the model's context window; start a new session"
                        .to_owned()
                }
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
            if !result.result.is_error {
                for atom in &result.allowed {
                    self.open_denials.remove(atom);
                }
            }
            for denied in result.denied {
                self.open_denials.insert(denied.atom.clone());
                self.denied.push(denied.clone());
                out.push(Action::RecordDenied(denied));
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
                    denied: Vec::new(),
                    allowed: Vec::new(),
                    changed: Vec::new(),
                });
            }
        }
        self.commit(out);
    }

    fn failed(&mut self, error: ModelError, out: &mut Vec<Action>) {
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

    fn finish(&mut self, outcome: Outcome, fault: Option<Fault>, out: &mut Vec<Action>) {
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
    fn fall_short(&mut self, outcome: Outcome, message: impl Into<String>, out: &mut Vec<Action>) {
        let fault = Fault { kind: FaultKind::Provider, message: message.into() };
        let exit = if self.open_denials.is_empty() { 1 } else { 3 };
        self.finish_with(outcome, exit, Some(fault), out);
    }

    fn finish_with(
        &mut self,
        outcome: Outcome,
        exit: u8,
        fault: Option<Fault>,
        out: &mut Vec<Action>,
    ) {
        self.state = State::Idle;
        self.steering.clear();
        out.push(Action::Sync);
        out.push(Action::Finish(Box::new(Summary {
            outcome,
            exit,
            text: self.text.clone(),
            turns: self.turns,
            usage: self.usage,
            denied: self.denied.clone(),
            changed: self.changed.clone(),
            duration: Duration::ZERO,
            fault,
        })));
    }
}

/// The identifiers of calls that a conversation has, each with the last number that was put behind it.
#[derive(Debug, Default)]
struct Used(HashMap<String, u64>);

impl Used {
    fn of(history: &[Message]) -> Self {
        Self(history.iter().flat_map(Message::calls).map(|call| (call.id.clone(), 1)).collect())
    }

    /// Returns a call's identifier, with a number behind it when the conversation has it already:
    /// some servers count anew in every answer, and a history in which one stands twice is refused.
    fn take(&mut self, id: String) -> String {
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

fn internal(message: impl Into<String>) -> Fault {
    Fault { kind: FaultKind::Internal, message: message.into() }
}

#[cfg(test)]
mod tests;
