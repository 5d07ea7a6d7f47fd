//! The turn: one prompt from submission to summary, as a pure state machine.
//!
//! Inputs come from the driver (deltas, failures, tool results, signals), actions go back to it. It
//! has no clock, no network and no files, and it never performs an action itself, so every order
//! of events can be tested. Invariants: an action that records comes before the action that takes
//! effect; every recorded call gets exactly one recorded result, in the order of the calls.

use std::{collections::BTreeSet, path::PathBuf};

use crate::{
    message::{Arguments, Block, Message, Role, Stop, ToolCall, ToolResult, Usage},
    model::Delta,
};

use super::{
    Budgets, Denied, Event, Fault, FaultKind, Outcome, Summary,
    asked::Asked,
    ids::Used,
    stuck::{REPEATS, Verdict, Watch},
};

pub use super::asked::Candidate;
pub use super::step::{Action, CallResult, Input, Retry, Why};
use compaction::{Compacting, Compaction, Then};
use ending::Closing;
use withdrawal::Fresh;

/// How often in a row the model may answer with nothing but calls that cannot be run: of tools that
/// there are not, or with arguments that cannot be read.
const UNUSABLE_TURNS: u32 = 3;

#[derive(Debug)]
enum State {
    Idle,
    Asking(Asking),
    Waiting { attempt: u32 },
    Working { calls: Vec<ToolCall>, results: Vec<Option<CallResult>>, committed: usize },
    Compacting(Box<Compacting>),
}

/// An answer that is on its way.
#[derive(Debug, Default)]
struct Asking {
    /// How often the request failed.
    attempt: u32,
    blocks: Vec<Block>,
    /// Whether anything of it has come, also what is not kept.
    begun: bool,
}

/// One conversation's machine.
#[derive(Debug)]
pub struct Turn {
    asked: Asked,
    /// The names of the tools that there are; empty = whatever is asked for.
    tools: BTreeSet<String>,
    budgets: Budgets,
    retry: Retry,
    history: Vec<Message>,
    used: Used,
    state: State,
    steering: Vec<String>,
    references: Vec<String>,
    /// What is told as references are, and is not forgotten with a prompt.
    news: Vec<String>,
    turns: u64,
    usage: Usage,
    text: String,
    denied: Vec<Denied>,
    /// Atoms of refusals that no later success under the same atom has made good.
    open_denials: BTreeSet<String>,
    changed: Vec<PathBuf>,
    unusable_turns: u32,
    watch: Watch,
    /// Whether a turn went by without a count of tokens in this prompt.
    uncounted: bool,
    compaction: Compaction,
    /// How the prompt ends once the conversation was made shorter.
    closing: Option<Closing>,
    /// Calls that wait for a person, each with its refusal; told before a stop.
    unanswered: Vec<(String, Denied)>,
    /// The prompt, as long as nothing came of it.
    fresh: Option<Fresh>,
}

impl Turn {
    /// Starts a machine on a history whose calls and results are paired.
    pub fn new(model: String, history: Vec<Message>, budgets: Budgets, retry: Retry) -> Self {
        Self {
            asked: Asked::new(Candidate { name: model, price: None, window: None }),
            tools: BTreeSet::new(),
            watch: Watch::new(budgets.repeats.unwrap_or(REPEATS)),
            budgets,
            retry,
            used: Used::of(&history),
            compaction: Compaction::new(&history),
            history,
            state: State::Idle,
            steering: Vec::new(),
            references: Vec::new(),
            news: Vec::new(),
            turns: 0,
            usage: Usage::default(),
            text: String::new(),
            denied: Vec::new(),
            open_denials: BTreeSet::new(),
            changed: Vec::new(),
            unusable_turns: 0,
            uncounted: false,
            closing: None,
            unanswered: Vec::new(),
            fresh: None,
        }
    }

    /// Says whether no prompt is being worked on.
    pub fn is_idle(&self) -> bool {
        matches!(self.state, State::Idle)
    }

    /// Takes the calls that wait for a person's answer at this moment: a stop ends them without an
    /// effect.
    pub fn unanswered(&mut self, calls: Vec<(String, Denied)>) {
        self.unanswered = calls;
    }

    /// Sets who is asked, those that take the place of the chosen one in order, and the names of the
    /// tools that there are: a call of another one cannot be run.
    #[must_use]
    pub fn asking(
        mut self,
        chosen: Candidate,
        fallbacks: Vec<Candidate>,
        tools: impl IntoIterator<Item = String>,
    ) -> Self {
        self.asked.set(chosen, fallbacks);
        self.compaction.asks(self.asked.window());
        self.tools = tools.into_iter().collect();
        self
    }

    /// Returns the number of the model to ask: 0 is the chosen one, 1 the first after it.
    pub fn asks(&self) -> usize {
        self.asked.number()
    }

    /// Says whether an answer has begun that nobody has counted yet.
    pub fn owes(&self) -> bool {
        match &self.state {
            State::Asking(asking) => asking.begun,
            State::Compacting(work) => work.owes(),
            State::Idle | State::Waiting { .. } | State::Working { .. } => false,
        }
    }

    /// Returns the conversation to be laid aside or taken up again while nothing is worked on.
    pub fn conversation(&mut self) -> &mut Vec<Message> {
        &mut self.history
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
            Input::Reference(text) => self.references.push(text),
            Input::News(text) => self.news.push(text),
            Input::Did(text) => {
                self.record(Message::user(text), &mut out);
                out.push(Action::Sync);
            }
            Input::Refused { denied, is_open } => self.refused(denied, is_open, &mut out),
            Input::Spent(usage, cost) => {
                self.usage.add(usage);
                self.asked.paid(cost);
            }
            Input::Delta(delta) => self.delta(delta, &mut out),
            Input::Failed(error) => self.failed(error, &mut out),
            Input::RetryDue => {
                if let State::Waiting { attempt } = self.state {
                    // Nothing was said yet, so what came meanwhile can go along.
                    if self.tell(&mut out) {
                        out.push(Action::Sync);
                    }
                    self.state = State::Asking(Asking { attempt, ..Asking::default() });
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
        self.fresh = Some(Fresh::at(self.history.len()));
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
        self.unusable_turns = 0;
        self.uncounted = false;
        self.watch.clear();
        self.asked.begin();
        self.compaction.begin(self.asked.window());
    }

    fn record(&mut self, message: Message, out: &mut Vec<Action>) {
        self.compaction.add(&message);
        self.history.push(message.clone());
        out.push(Action::Record(message));
    }

    /// Asks, unless a budget says no.
    fn ask(&mut self, out: &mut Vec<Action>) {
        self.tell(out);
        if let Some(fault) = self.over_budget() {
            self.finish(Outcome::Budget, Some(fault), out);
            return;
        }
        if self.compacts(Then::Ask, out) {
            return;
        }
        self.turns += 1;
        self.state = State::Asking(Asking::default());
        out.push(Action::Sync);
        out.push(Action::Emit(Event::Asking { turn: self.turns }));
        out.push(Action::Ask);
    }

    /// Records what was said meanwhile; says whether there was something. What is new is no loop.
    fn tell(&mut self, out: &mut Vec<Action>) -> bool {
        let news = std::mem::take(&mut self.news);
        let references = std::mem::take(&mut self.references);
        let steering = std::mem::take(&mut self.steering);
        if !steering.is_empty() {
            self.watch.clear();
            self.fresh = None;
        }
        if let Some(fresh) = &mut self.fresh {
            fresh.tells(&news);
        }
        let told = !steering.is_empty() || !references.is_empty() || !news.is_empty();
        for text in news.into_iter().chain(references).chain(steering) {
            self.record(Message::user(text), out);
        }
        told
    }

    fn has_steering(&self) -> bool {
        !self.steering.is_empty()
    }

    fn over_budget(&self) -> Option<Fault> {
        let turns = self.budgets.turns.filter(|limit| self.turns >= *limit);
        let turns = turns.map(|limit| {
            format!("the budget of {limit} turns is used up; raise it with `--max-turns`")
        });
        let message = turns.or_else(|| self.over_tokens()).or_else(|| self.over_cost())?;
        Some(Fault { kind: FaultKind::Config, message })
    }

    fn delta(&mut self, delta: Delta, out: &mut Vec<Action>) {
        if matches!(self.state, State::Compacting(_)) {
            return self.summary_delta(delta, out);
        }
        let State::Asking(Asking { blocks, begun, .. }) = &mut self.state else { return };
        *begun = !matches!(delta, Delta::Done { .. });
        if !matches!(delta, Delta::Begun) {
            self.fresh = None;
        }
        match delta {
            Delta::Begun => {}
            Delta::Text(text) => {
                out.push(Action::Emit(Event::Text(text.clone())));
                match blocks.last_mut() {
                    Some(Block::Text { text: before }) => before.push_str(&text),
                    _ => blocks.push(Block::Text { text }),
                }
            }
            Delta::Thinking(text) => out.push(Action::Emit(Event::Thinking(text))),
            Delta::Opaque(value) => {
                blocks.push(Block::Opaque { model: self.asked.name().to_owned(), value });
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
            self.compaction.measured(usage);
        }
        self.count(usage, out);
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
                _ if self.has_steering() => self.ask(out),
                _ if text.trim().is_empty() => {
                    self.fall_short(Outcome::Error, "the model's answer was empty", out);
                }
                _ => self.finish(Outcome::Ok, None, out),
            }
            return;
        }
        let unusable = calls.iter().all(|call| {
            matches!(call.arguments, Arguments::Malformed(_))
                || !self.tools.is_empty() && !self.tools.contains(&call.name)
        });
        self.unusable_turns = if unusable { self.unusable_turns + 1 } else { 0 };
        self.state =
            State::Working { results: vec![None; calls.len()], calls: calls.clone(), committed: 0 };
        // Calls that can have no answering turn are not run: their effect would go unseen.
        if let Some(fault) = self.over_budget() {
            self.close_calls("not run: the run's budget is used up", out);
            self.finish(Outcome::Budget, Some(fault), out);
        } else if self.unusable_turns >= UNUSABLE_TURNS {
            self.close_calls(
                "not run: there is no such tool, or the arguments are not a JSON object",
                out,
            );
            let fault = format!(
                "the model sent nothing but calls that cannot be run {UNUSABLE_TURNS} times in a \
                 row: of tools that there are not, or with unreadable arguments"
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
        let stuck = self.look_for_a_loop(out);
        self.commit(out);
        if let State::Working { results, committed, .. } = &self.state
            && *committed == results.len()
        {
            match stuck {
                Some(fault) => self.fall_short(Outcome::Error, fault, out),
                None => self.ask(out),
            }
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
                self.refused(denied, true, out);
            }
            for denied in result.declined {
                self.refused(denied, false, out);
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

    /// Lists a refusal; one that is open counts until something under its atom succeeds.
    fn refused(&mut self, denied: Denied, is_open: bool, out: &mut Vec<Action>) {
        if is_open {
            self.open_denials.insert(denied.atom.clone());
        }
        self.denied.push(denied.clone());
        out.push(Action::RecordDenied(denied));
    }

    /// Gives every call that has none a result.
    fn close_calls(&mut self, text: &str, out: &mut Vec<Action>) {
        if let State::Working { calls, results, .. } = &mut self.state {
            for (index, (call, slot)) in calls.iter().zip(results.iter_mut()).enumerate() {
                let waited = self.unanswered.iter().find(|(id, _)| *id == call.id);
                let text = waited.map_or_else(
                    || text.to_owned(),
                    |(_, denied)| format!("denied: {}; nothing was done", denied.detail),
                );
                let declined = waited.iter().map(|(_, denied)| denied.clone()).collect();
                slot.get_or_insert_with(|| CallResult {
                    index,
                    result: ToolResult { call: call.id.clone(), text, is_error: true },
                    denied: Vec::new(),
                    declined,
                    allowed: Vec::new(),
                    changed: Vec::new(),
                });
            }
        }
        self.commit(out);
    }

    fn stop(&mut self, why: Why, out: &mut Vec<Action>) {
        if matches!(self.state, State::Idle) {
            return;
        }
        out.push(Action::Abort);
        if self.owes() {
            self.asked.broke_off();
        }
        if why == Why::TakeBack && self.take_back(out) {
            return;
        }
        if let Why::Journal(message) = why {
            // Nothing can be recorded any more; the next start repairs what is open. Who goes on
            // without one has every call answered all the same.
            self.close_calls("interrupted: the session could not be written", &mut Vec::new());
            self.finish(Outcome::Error, Some(internal(message)), out);
            return;
        }
        if let State::Asking(Asking { blocks, .. }) = &mut self.state {
            let blocks = std::mem::take(blocks);
            self.keep_partial(blocks, "not run: interrupted", out);
        } else {
            self.close_calls("interrupted: the call was stopped and may have had effects", out);
        }
        match why {
            // All that was asked for is there.
            Why::Time(_) if self.closing.is_some() => {
                self.conclude_in_time(out);
            }
            Why::Time(limit) => {
                let message = format!(
                    "the budget of {} s is used up; raise it with `--timeout`",
                    limit.as_secs_f64()
                );
                let fault = Fault { kind: FaultKind::Config, message };
                self.finish(Outcome::Budget, Some(fault), out);
            }
            Why::Terminate => self.finish_with(Outcome::Interrupted, 143, None, out),
            Why::Interrupt | Why::TakeBack | Why::Journal(_) => {
                self.finish_with(Outcome::Interrupted, 130, None, out);
            }
        }
    }
}

fn internal(message: impl Into<String>) -> Fault {
    Fault { kind: FaultKind::Internal, message: message.into() }
}

mod budget;
mod compaction;
mod ending;
mod failing;
#[cfg(test)]
mod tests;
mod withdrawal;
