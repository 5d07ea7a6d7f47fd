//! The turn's side of compaction: when it happens, the request for a summary, and what becomes of the
//! prompt that is being worked on. What is done to the conversation is decided in
//! [`compact`]. Pure.

use std::time::Duration;

use crate::{
    message::{Message, Role, Stop, Usage},
    model::{Class, Delta, ModelError},
};

use super::{
    super::compact::{self, Compacted, Gauge, Policy, Reason},
    Action, Asking, Event, Fault, Outcome, State, Turn, Used,
    failing::kind_of,
};

/// The longest answer of a summariser that is listened to, in bytes.
const LISTEN: usize = 256 << 10;
/// The longest record for a summariser, in bytes, and the shortest that is worth a request.
const RECORD: std::ops::RangeInclusive<u64> = (8 << 10)..=(400 << 10);

/// What a turn knows about the size of its conversation.
#[derive(Debug)]
pub(super) struct Compaction {
    /// The window in it is the smaller one of what the person set and of the model that is asked.
    policy: Policy,
    /// What the person set.
    bound: Option<u64>,
    gauge: Gauge,
    /// Whether it was done since the last answer: at the threshold it is not done again.
    tried: bool,
    /// Whether as much as can be was left out since the last answer: doing it again would bring
    /// nothing, also when the model says that its window is full. At the threshold less is left out.
    exhausted: bool,
    /// What was left the last time when that was still too much.
    floor: u64,
    /// A person asked for it while the agent worked, perhaps with a focus.
    wanted: Option<Wanted>,
}

/// What is said when there is nothing to make shorter.
const NOTHING: &str = "there is nothing to compact: the conversation is its last prompt";

/// A wish for a compaction, perhaps with a focus.
#[derive(Debug)]
struct Wanted(Option<String>);

/// A summary that is being made.
#[derive(Debug)]
pub(super) struct Compacting {
    reason: Reason,
    then: Then,
    focus: Option<String>,
    before: u64,
    /// The conversation with its old results trimmed.
    messages: Vec<Message>,
    trimmed: usize,
    boundary: usize,
    /// How many bytes of the person's words are kept beside the summary.
    words: usize,
    attempt: u32,
    answer: String,
    /// Whether an answer has begun whose tokens nobody has counted.
    begun: bool,
}

/// What comes after a compaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Then {
    /// The next request.
    Ask,
    /// The request that did not fit, once more.
    Again,
    /// The request of this turn, to another model: it may fit all the same.
    Same,
    /// Nothing: it was all that was asked for.
    Finish,
    /// The end of the prompt, whose answer is there.
    Close,
}

impl Compacting {
    /// Says whether an answer has begun that nobody has counted yet.
    pub(super) fn owes(&self) -> bool {
        self.begun
    }
}

impl Compaction {
    pub(super) fn new(history: &[Message]) -> Self {
        let (policy, gauge) = (Policy::default(), Gauge::new(0, history));
        Self { policy, bound: None, gauge, tried: false, exhausted: false, floor: 0, wanted: None }
    }

    /// Counts a message that was added to the conversation.
    pub(super) fn add(&mut self, message: &Message) {
        self.gauge.add(message);
        if message.role == Role::Assistant {
            self.tried = false;
            self.exhausted = false;
        }
    }

    /// Messages were taken out of the conversation.
    pub(super) fn recount(&mut self, messages: &[Message]) {
        self.gauge.replace(messages);
    }

    /// Takes over what the provider counted for the request that was just answered.
    pub(super) fn measured(&mut self, usage: Usage) {
        self.gauge.measured(usage);
    }

    /// A prompt begins, and the model with this window is asked. The one before may have been stopped
    /// while it tried.
    pub(super) fn begin(&mut self, window: Option<u64>) {
        self.tried = false;
        self.exhausted = false;
        self.policy.window = self.bound.into_iter().chain(window).min();
    }

    /// Another model is asked from now on, with this window: what did not help before may help now.
    pub(super) fn asks(&mut self, window: Option<u64>) {
        self.begin(window);
        self.floor = 0;
    }

    /// It is being done for this reason.
    fn tries(&mut self, reason: Reason) {
        self.tried = true;
        self.exhausted |= reason != Reason::Threshold;
    }

    fn is_due(&self) -> bool {
        let due = |limit: u64| self.gauge.now() > limit.max(self.floor + self.floor / 4);
        self.policy.enabled && !self.tried && self.policy.limit().is_some_and(due)
    }
}

impl Turn {
    /// Sets when and how far the conversation is made shorter. `base` is the estimate of what every
    /// request carries besides it, in tokens.
    #[must_use]
    pub fn compacting(mut self, policy: Policy, base: u64) -> Self {
        self.compaction.policy = policy;
        self.compaction.bound = policy.window;
        self.compaction.asks(self.asked.window());
        self.compaction.gauge = Gauge::new(base, &self.history);
        self
    }

    /// Makes the conversation shorter now, or at the next boundary when the agent works.
    pub(super) fn compact_asked(&mut self, focus: Option<String>, out: &mut Vec<Action>) {
        if !matches!(self.state, State::Idle) {
            self.compaction.wanted = Some(Wanted(focus));
            return;
        }
        self.clear();
        if !self.compact_as_asked(Wanted(focus), Then::Finish, out) {
            self.finish(Outcome::Ok, None, out);
        }
    }

    /// Begins what is due before the next request; says whether it did.
    pub(super) fn compacts(&mut self, then: Then, out: &mut Vec<Action>) -> bool {
        match self.compaction.wanted.take() {
            Some(wanted) => self.compact_as_asked(wanted, then, out),
            None if self.compaction.is_due() => self.compact(Reason::Threshold, None, then, out),
            None => false,
        }
    }

    /// Begins what was asked for during the prompt that ends; says whether it did.
    pub(super) fn compacts_at_the_end(&mut self, out: &mut Vec<Action>) -> bool {
        let wanted = self.compaction.wanted.take();
        wanted.is_some_and(|wanted| self.compact_as_asked(wanted, Then::Close, out))
    }

    fn compact_as_asked(
        &mut self,
        Wanted(focus): Wanted,
        then: Then,
        out: &mut Vec<Action>,
    ) -> bool {
        let begun = self.compact(Reason::Asked, focus, then, out);
        if !begun {
            out.push(Action::Emit(Event::Notice(NOTHING.to_owned())));
        }
        begun
    }

    /// Looks whether a failure is one of the conversation's length, or of a summary: `None` when what
    /// is to be done about it is being done, and the failure as it is to be said when not.
    pub(super) fn overflowed(
        &mut self,
        mut error: ModelError,
        out: &mut Vec<Action>,
    ) -> Option<ModelError> {
        if matches!(self.state, State::Compacting(_)) {
            out.push(Action::Abort);
            self.leave_summary();
            self.summary_failed(&error, out);
            return None;
        }
        let is_first = matches!(&self.state, State::Asking(asking) if asking.blocks.is_empty());
        if !is_first || error.class != Class::ContextFull {
            return Some(error);
        }
        if self.refit(out) {
            return None;
        }
        error.message = format!("{}; {}", self.does_not_fit(), error.message);
        Some(error)
    }

    /// Makes the conversation shorter because the model said that its window is full, and asks again;
    /// `false` when that was done already or brings nothing.
    pub(super) fn refit(&mut self, out: &mut Vec<Action>) -> bool {
        if self.compaction.exhausted {
            return false;
        }
        if self.spent_out(out) {
            return true;
        }
        let at = out.len();
        if !self.compact(Reason::ContextFull, None, Then::Again, out) {
            return false;
        }
        out.insert(at, Action::Abort);
        true
    }

    /// Says with numbers that nothing more can be left out.
    pub(super) fn does_not_fit(&self) -> String {
        let gauge = &self.compaction.gauge;
        let last =
            compact::last_said(&self.history).map_or(0, |text| compact::tokens_of(text.len()));
        let window = self
            .compaction
            .policy
            .window
            .map_or_else(String::new, |window| format!(" of {window} tokens"));
        let tried = if self.compaction.tried { ", also after compaction" } else { "" };
        format!(
            "the conversation does not fit the context window{window} of `{}`{tried}: about {} tokens, \
             {} of them instructions and tools, {last} the last prompt; start a new session, or give \
             the model less at once",
            self.asked.name(),
            gauge.now(),
            gauge.base(),
        )
    }

    /// Trims, and has a summary made when that is not enough. Returns whether anything was begun.
    fn compact(
        &mut self,
        reason: Reason,
        focus: Option<String>,
        then: Then,
        out: &mut Vec<Action>,
    ) -> bool {
        let Compaction { policy, gauge, .. } = &self.compaction;
        let before = gauge.now();
        let limit = policy.limit().unwrap_or(before).min(before);
        let most = match reason {
            Reason::Threshold => limit / 2,
            // What was said to be too much, or is to be much less.
            Reason::ContextFull | Reason::Asked => limit.saturating_sub(gauge.base()) / 4,
        };
        let keep = policy.keep.min(gauge.unscaled(most));
        let bytes = usize::try_from(keep.saturating_mul(4)).unwrap_or(usize::MAX);
        let boundary = compact::boundary(&self.history, keep);
        let (messages, trimmed) = compact::trim(&self.history, boundary, bytes);
        let after = gauge.of(&messages);
        let is_enough = reason != Reason::Asked && after <= limit / 2;
        // The summary of a summary alone is none.
        let is_old = boundary > 1 || (boundary == 1 && self.history.first().is_some_and(is_own));
        if trimmed > 0 && (is_enough || !is_old) && after < before {
            self.compaction.tries(reason);
            let done = Compacted { reason, before, after, trimmed, summarised: 0, summary: None };
            self.apply(done, messages, then, out);
            return true;
        }
        if !is_old {
            return false;
        }
        self.compaction.tries(reason);
        self.state = State::Compacting(Box::new(Compacting {
            reason,
            then,
            focus,
            before,
            messages,
            trimmed,
            boundary,
            words: bytes / 4,
            attempt: 0,
            answer: String::new(),
            begun: false,
        }));
        out.push(Action::Sync);
        self.summarise(out);
        true
    }

    /// Asks for the summary; the second time with half as much to read.
    pub(super) fn summarise(&mut self, out: &mut Vec<Action>) {
        let State::Compacting(work) = &self.state else { return };
        let Compaction { policy, gauge, .. } = &self.compaction;
        let room = policy.window.map_or(work.before / 2, |window| window / 10 * 6);
        let most = (gauge.unscaled(room).saturating_mul(4) >> work.attempt)
            .clamp(*RECORD.start(), *RECORD.end());
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        let old = work.messages.get(..work.boundary).unwrap_or_default();
        out.push(Action::Summarise(compact::request(old, work.focus.as_deref(), most)));
    }

    /// Takes a piece of the summary. What the summariser thinks or calls is nothing to anybody.
    pub(super) fn summary_delta(&mut self, delta: Delta, out: &mut Vec<Action>) {
        let State::Compacting(work) = &mut self.state else { return };
        work.begun = !matches!(delta, Delta::Done { .. });
        match delta {
            Delta::Text(text) if work.answer.len() + text.len() <= LISTEN => {
                work.answer.push_str(&text);
            }
            Delta::Begun
            | Delta::Text(_)
            | Delta::Thinking(_)
            | Delta::Opaque(_)
            | Delta::Call { .. } => {}
            Delta::Done { stop, usage } => {
                self.count(usage, out);
                match stop {
                    Stop::Refusal => {
                        self.summary_failed(&failure(Class::Refused, "the model declined"), out);
                    }
                    Stop::ContextFull => {
                        let error = failure(Class::ContextFull, "its window is full");
                        self.summary_failed(&error, out);
                    }
                    _ => self.summary_made(out),
                }
            }
        }
    }

    /// Counts a summary that broke off: what had come of it was paid for, and nobody says how much.
    pub(super) fn leave_summary(&mut self) {
        if let State::Compacting(work) = &mut self.state
            && std::mem::take(&mut work.begun)
        {
            self.asked.broke_off();
        }
    }

    fn summary_made(&mut self, out: &mut Vec<Action>) {
        let State::Compacting(work) = &mut self.state else { return };
        let summary = compact::shortened(&std::mem::take(&mut work.answer));
        if summary.is_empty() {
            let class = Class::Retry { after: Some(Duration::ZERO) };
            self.summary_failed(&failure(class, "the answer was empty"), out);
            return;
        }
        let messages = compact::summarised(&work.messages, work.boundary, &summary, work.words);
        let after = self.compaction.gauge.of(&messages);
        let (reason, before, trimmed, then) = (work.reason, work.before, work.trimmed, work.then);
        let summarised = work.boundary;
        if after >= before {
            let why = "the summary is not shorter than the conversation";
            self.trim_only(&failure(Class::Fatal, why), out);
            return;
        }
        let summary = Some(summary);
        let done = Compacted { reason, before, after, trimmed, summarised, summary };
        self.apply(done, messages, then, out);
    }

    /// Tries once more where that can help; else goes on with what trimming brought.
    fn summary_failed(&mut self, error: &ModelError, out: &mut Vec<Action>) {
        if self.closing.is_none() && self.spent_out(out) {
            return;
        }
        let (base, longest, unreached) =
            (self.retry.base, self.retry.longest, self.retry.unreached);
        let may_go_on = self.closing.is_none() || self.over_cost().is_none();
        let State::Compacting(work) = &mut self.state else { return };
        work.answer.clear();
        let wait = match error.class {
            Class::Retry { .. } if error.network && !unreached => None,
            Class::Retry { after } => Some(after.unwrap_or(base)).filter(|wait| *wait <= longest),
            Class::ContextFull => Some(Duration::ZERO),
            Class::Auth | Class::Refused | Class::Fatal => None,
        };
        if let Some(after) = wait.filter(|_| work.attempt == 0 && may_go_on) {
            work.attempt = 1;
            let reason = format!("no summary yet: {}", error.message);
            out.push(Action::Emit(Event::Retrying { attempt: 1, of: 1, after, reason }));
            out.push(Action::Sleep { after, jitter: after / 2 });
            return;
        }
        self.trim_only(error, out);
    }

    fn trim_only(&mut self, error: &ModelError, out: &mut Vec<Action>) {
        let State::Compacting(work) = std::mem::replace(&mut self.state, State::Idle) else {
            return;
        };
        let why = &error.message;
        let after = self.compaction.gauge.of(&work.messages);
        let Compacting { reason, then, before, trimmed, .. } = *work;
        if trimmed > 0 && after < before {
            out.push(Action::Emit(Event::Notice(format!(
                "no summary could be had ({why}); old results alone were trimmed"
            ))));
            let done = Compacted { reason, before, after, trimmed, summarised: 0, summary: None };
            self.apply(done, work.messages, then, out);
            return;
        }
        self.compaction.floor = before;
        let sentence = format!("the conversation could not be made shorter: {why}");
        match then {
            Then::Ask => {
                out.push(Action::Emit(Event::Notice(sentence)));
                self.ask(out);
            }
            Then::Same => {
                out.push(Action::Emit(Event::Notice(sentence)));
                self.ask_again(out);
            }
            Then::Close => {
                out.push(Action::Emit(Event::Notice(sentence)));
                self.compacted_at_the_end(out);
            }
            // Without it the run is at its end, unless another model is to be had.
            Then::Again | Then::Finish => {
                if matches!(error.class, Class::Retry { .. })
                    && let Some((from, to)) = self.asked.give_up(why)
                {
                    self.hand_over(work, from, to, why, out);
                    return;
                }
                let message = match then {
                    Then::Again => format!("{}; {sentence}", self.does_not_fit()),
                    _ => sentence,
                };
                let message = self.asked.sentence(message);
                let fault = Fault { kind: kind_of(&error.class, error.network), message };
                self.finish(Outcome::Error, Some(fault), out);
            }
        }
    }

    /// Lets the next model do what the one before could not: make the summary that was all that was
    /// asked for, or answer, perhaps with a larger window.
    fn hand_over(
        &mut self,
        mut work: Box<Compacting>,
        from: String,
        to: String,
        why: &str,
        out: &mut Vec<Action>,
    ) {
        if work.then == Then::Again {
            self.fall_back(from, to, why.to_owned(), out);
            return;
        }
        self.compaction.asks(self.asked.window());
        out.push(Action::Emit(Event::FellBack { from, to, reason: why.to_owned() }));
        if self.spent_out(out) {
            return;
        }
        work.attempt = 0;
        self.compaction.tries(work.reason);
        self.state = State::Compacting(work);
        self.summarise(out);
    }

    /// Lets the conversation go on in its shorter form.
    fn apply(
        &mut self,
        done: Compacted,
        messages: Vec<Message>,
        then: Then,
        out: &mut Vec<Action>,
    ) {
        let limit = self.compaction.policy.limit().unwrap_or(u64::MAX);
        self.compaction.floor = if done.after > limit { done.after } else { 0 };
        self.compaction.gauge.replace(&messages);
        self.used = Used::of(&messages);
        self.history.clone_from(&messages);
        // The prompt may be part of a summary now.
        self.fresh = None;
        out.push(Action::RecordCompaction(Box::new((done.clone(), messages))));
        out.push(Action::Sync);
        let summary = done.summary.clone();
        out.push(Action::Emit(Event::Compacted(done)));
        match then {
            Then::Ask => self.ask(out),
            Then::Again | Then::Same => self.ask_again(out),
            Then::Close => self.compacted_at_the_end(out),
            Then::Finish => {
                self.text = summary.unwrap_or_default();
                self.finish(Outcome::Ok, None, out);
            }
        }
    }

    /// Makes the request of this turn once more; it is no turn of its own. What came meanwhile goes
    /// along.
    pub(super) fn ask_again(&mut self, out: &mut Vec<Action>) {
        if self.spent_out(out) {
            return;
        }
        if self.tell(out) {
            out.push(Action::Sync);
        }
        self.state = State::Asking(Asking::default());
        out.push(Action::Ask);
    }
}

fn failure(class: Class, message: &str) -> ModelError {
    ModelError { class, message: message.to_owned(), network: false }
}

/// Says whether a message is one of the conversation, and not the beginning that compaction made.
fn is_own(message: &Message) -> bool {
    !message.text().starts_with(compact::SUMMARY)
}

#[cfg(test)]
mod tests;
