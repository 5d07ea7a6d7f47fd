//! The driver: performs what the turn's machine asks for and feeds back what happened.
//!
//! One task, one loop: operations, the model's stream, running tools and timers are waited for
//! together, so an interrupt is seen at once whatever else is going on.

use std::sync::Arc;

use futures_util::{
    StreamExt as _,
    future::{BoxFuture, FutureExt as _},
    stream::BoxStream,
};
use tokio::{
    sync::mpsc::{self, UnboundedReceiver, UnboundedSender},
    time::{Instant, sleep_until},
};

use crate::{
    authority::{Confinement, Report, Subject},
    message::{Message, Redactor},
    model::{Class, Delta, Model, ModelError, Request, ToolSpec},
    tool::{Context, Tool, inspect::Told},
};

use super::{
    Backlog, Budgets, Denied, Event, Fault, FaultKind, Op, Outcome,
    screen::Screen,
    timing::Stopwatch,
    turn::{Action, CallResult, Input, Retry, Turn, Why},
    work::Bench,
};

/// Where what happens is written down, before it takes effect.
pub trait Journal: Send {
    /// Appends one record.
    ///
    /// # Errors
    /// A sentence that names the file. The run stops: what cannot be recorded is not done.
    fn append(&mut self, record: Record<'_>) -> Result<(), String>;

    /// Makes what was appended survive a power loss.
    ///
    /// # Errors
    /// As for `append`.
    fn sync(&mut self) -> Result<(), String>;
}

/// Something to write down.
#[derive(Clone, Copy, Debug)]
pub enum Record<'a> {
    /// A message of the conversation.
    Message(&'a Message),
    /// What the run may do: the report of the subject that its calls are checked against.
    Authority(&'a Report),
    /// The tokens of one request.
    Usage {
        /// `PROVIDER/MODEL` that was asked.
        model: &'a str,
        /// How many.
        usage: crate::message::Usage,
    },
    /// A refused call.
    Denied(&'a Denied),
    /// A path that a tool created or changed.
    Changed(&'a std::path::Path),
    /// How a prompt ended.
    End(&'a super::Summary),
}

/// What an agent is made of.
pub struct Parts {
    /// The model to ask.
    pub model: Arc<dyn Model>,
    /// Every tool there is; those whose atom is not held are not offered.
    pub tools: Vec<Box<dyn Tool>>,
    /// What the run may do.
    pub subject: Arc<Subject>,
    /// What confines the process, for the record.
    pub confinement: Confinement,
    /// What the tools need to know.
    pub context: Arc<Context>,
    /// The system prompt.
    pub system: String,
    /// The conversation so far, paired.
    pub history: Vec<Message>,
    /// Bounds of each prompt.
    pub budgets: Budgets,
    /// How failed requests are tried again.
    pub retry: Retry,
    /// Takes the keys of providers out of all that is said, before it is sent, shown or written.
    pub redactor: Redactor,
    /// Where the conversation is written down; `None` = nowhere.
    pub journal: Option<Box<dyn Journal>>,
    /// What the front end has not written yet; while it is full, answers are not read on.
    pub backlog: Arc<Backlog>,
    /// Whether to tell where the time went.
    pub timed: bool,
}

impl std::fmt::Debug for Parts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Parts")
            .field("model", &self.model)
            .field("subject", &self.subject)
            .field("budgets", &self.budgets)
            .finish_non_exhaustive()
    }
}

/// A conversation that can be talked to.
#[derive(Debug)]
pub struct Agent {
    parts: Parts,
    offered: Vec<ToolSpec>,
    turn: Turn,
    bench: Bench,
    /// Whether the session says what the run may do.
    declared: bool,
    screen: Screen,
}

/// What is going on at the moment.
struct Ongoing {
    stream: Option<BoxStream<'static, Result<Delta, ModelError>>>,
    work: Option<BoxFuture<'static, ()>>,
    results: Option<UnboundedReceiver<CallResult>>,
    retry_at: Option<Instant>,
    deadline: Option<Instant>,
    backlog: Arc<Backlog>,
    watch: Stopwatch,
}

enum Happened {
    Op(Option<Op>),
    Stream(Option<Result<Delta, ModelError>>),
    Result(CallResult),
    WorkDone,
    RetryDue,
    Deadline,
    Room,
}

impl Agent {
    /// Puts an agent together.
    pub fn new(mut parts: Parts) -> Self {
        let tools = Arc::new(std::mem::take(&mut parts.tools));
        let offered: Vec<ToolSpec> = tools
            .iter()
            .filter(|tool| parts.subject.offers(tool.name(), &tool.atom()))
            .map(|tool| ToolSpec {
                name: tool.name().to_owned(),
                description: tool.description().to_owned(),
                schema: tool.schema(),
            })
            .collect();
        let bench = Bench {
            tools,
            subject: Arc::clone(&parts.subject),
            context: Arc::clone(&parts.context),
            redactor: parts.redactor.clone(),
            heard: Arc::default(),
        };
        bench.attend();
        let screen = Screen::new(parts.redactor.clone());
        let mut history = std::mem::take(&mut parts.history);
        // An older session, a context file: whatever the model reads passes here or through `Screen`.
        for message in &mut history {
            parts.redactor.message(message);
        }
        parts.redactor.text(&mut parts.system);
        // A context that was told before keeps what it was told: it is the same run.
        let _told_before = parts.context.state.told.set(told(&parts, &offered, history.len()));
        let turn = Turn::new(parts.model.name().to_owned(), history, parts.budgets, parts.retry);
        Self { parts, offered, turn, bench, declared: false, screen }
    }

    /// Works until the operations end. Every submitted prompt ends with one [`Event::Done`].
    pub async fn run(mut self, mut ops: UnboundedReceiver<Op>, events: UnboundedSender<Event>) {
        let mut ongoing = Ongoing {
            stream: None,
            work: None,
            results: None,
            retry_at: None,
            deadline: None,
            backlog: Arc::clone(&self.parts.backlog),
            watch: Stopwatch::start(),
        };
        let mut open = true;
        let mut busy = false;
        while open || busy {
            let input = match ongoing.next(&mut ops, open).await {
                Happened::Op(None) => {
                    open = false;
                    continue;
                }
                Happened::Op(Some(Op::Submit(text))) => {
                    if !busy {
                        busy = true;
                        ongoing.watch = Stopwatch::start();
                        ongoing.deadline =
                            self.parts.budgets.time.and_then(|t| Instant::now().checked_add(t));
                    }
                    Input::Submit(text)
                }
                Happened::Op(Some(Op::Steer(text))) => Input::Steer(text),
                Happened::Op(Some(Op::Interrupt)) => Input::Stop(Why::Interrupt),
                Happened::Op(Some(Op::Terminate)) => Input::Stop(Why::Terminate),
                Happened::Stream(Some(Ok(delta))) => {
                    ongoing.watch.piece();
                    if matches!(delta, Delta::Done { .. }) {
                        ongoing.stream = None;
                    }
                    Input::Delta(delta)
                }
                Happened::Stream(Some(Err(error))) => Input::Failed(error),
                Happened::Stream(None) => Input::Failed(ModelError {
                    class: Class::Retry { after: None },
                    message: format!("the answer of `{}` broke off", self.parts.model.name()),
                    network: true,
                }),
                Happened::Result(result) => Input::Result(Box::new(result)),
                Happened::WorkDone => {
                    ongoing.work = None;
                    continue;
                }
                Happened::Room => continue,
                Happened::RetryDue => {
                    ongoing.retry_at = None;
                    Input::RetryDue
                }
                Happened::Deadline => {
                    ongoing.deadline = None;
                    Input::Stop(Why::Time(self.parts.budgets.time.unwrap_or_default()))
                }
            };
            for input in self.screen.pass(input) {
                busy &= !self.take(input, &mut ongoing, &events);
            }
        }
    }

    /// Feeds one input to the machine and performs what comes of it; says whether the prompt is
    /// done with.
    fn take(
        &mut self,
        input: Input,
        ongoing: &mut Ongoing,
        events: &UnboundedSender<Event>,
    ) -> bool {
        let mut next = Some(input);
        let mut done = false;
        let mut lost: Option<String> = None;
        if !std::mem::replace(&mut self.declared, true) {
            // The very value that the bench checks calls against, written down first.
            let report = Report::new(&self.bench.subject, self.parts.confinement);
            if let Performed::Failed(message) = self.append(Record::Authority(&report)) {
                lost = Some(message);
            }
        }
        while let Some(input) = next.take() {
            for mut action in self.turn.step(input) {
                // Once something could not be recorded, nothing takes effect any more.
                let harmless =
                    matches!(action, Action::Abort | Action::Emit(_) | Action::Finish(_));
                if lost.is_some() && !harmless {
                    continue;
                }
                // An answer that was not kept is not the end of a run that went well.
                if let (Action::Finish(summary), Some(message)) = (&mut action, &lost)
                    && summary.outcome == Outcome::Ok
                {
                    summary.outcome = Outcome::Error;
                    summary.exit = 1;
                    let (kind, message) = (FaultKind::Internal, message.clone());
                    summary.fault = Some(Fault { kind, message });
                    lost = None;
                }
                match self.perform(action, ongoing, events) {
                    Performed::Done => done = true,
                    Performed::Ok => {}
                    Performed::Failed(message) => lost = Some(message),
                }
            }
            match lost.take() {
                Some(message) if done => emit(events, Event::Notice(message)),
                Some(message) => next = Some(Input::Stop(Why::Journal(message))),
                None => {}
            }
        }
        done
    }

    fn perform(
        &mut self,
        action: Action,
        ongoing: &mut Ongoing,
        events: &UnboundedSender<Event>,
    ) -> Performed {
        match action {
            Action::Record(message) => return self.append(Record::Message(&message)),
            Action::RecordUsage(usage) => {
                let model = self.parts.model.name().to_owned();
                return self.append(Record::Usage { model: &model, usage });
            }
            Action::RecordDenied(denied) => return self.append(Record::Denied(&denied)),
            Action::RecordChanged(path) => return self.append(Record::Changed(&path)),
            Action::Sync => {
                if let Some(Err(error)) = self.parts.journal.as_mut().map(|j| j.sync()) {
                    return Performed::Failed(error);
                }
            }
            Action::Ask => {
                let request = Request {
                    system: self.parts.system.clone(),
                    tools: self.offered.clone(),
                    messages: self.turn.history().to_vec(),
                    max_tokens: None,
                };
                if self.parts.timed {
                    ongoing.watch.request(|| self.parts.model.request_bytes(&request));
                }
                ongoing.stream = Some(self.parts.model.stream(request));
            }
            Action::Sleep { after, jitter } => {
                let extra = jitter.mul_f64(fastrand::f64());
                ongoing.retry_at = Some(Instant::now() + after + extra);
            }
            Action::Work(calls) => {
                let (sender, receiver) = mpsc::unbounded_channel();
                ongoing.watch.work();
                ongoing.work = Some(self.bench.work(calls, events, &sender));
                ongoing.results = Some(receiver);
            }
            Action::Abort => {
                ongoing.stream = None;
                ongoing.work = None;
                ongoing.results = None;
                ongoing.retry_at = None;
            }
            Action::Emit(event) => {
                if matches!(event, Event::Asking { .. }) {
                    ongoing.watch.turn();
                }
                emit(events, event);
            }
            Action::Finish(mut summary) => {
                ongoing.watch.stop();
                summary.duration = ongoing.watch.elapsed();
                ongoing.deadline = None;
                // The end mark is for people; a session without it opens just the same.
                if let Performed::Failed(error) = self.append(Record::End(&summary))
                    && summary.fault.as_ref().is_none_or(|fault| fault.message != error)
                {
                    emit(events, Event::Notice(error));
                }
                if self.parts.timed {
                    emit(events, Event::Timings(ongoing.watch.timings()));
                }
                emit(events, Event::Done(summary));
                return Performed::Done;
            }
        }
        Performed::Ok
    }

    fn append(&mut self, record: Record<'_>) -> Performed {
        match self.parts.journal.as_mut().map(|journal| journal.append(record)) {
            Some(Err(error)) => Performed::Failed(error),
            Some(Ok(())) | None => Performed::Ok,
        }
    }
}

/// Returns what the model may ask about its own run: the very value that calls are checked against.
fn told(parts: &Parts, offered: &[ToolSpec], messages: usize) -> Told {
    let bound = |limit: Option<String>| limit.unwrap_or_else(|| "none".to_owned());
    let Budgets { turns, tokens, time } = parts.budgets;
    Told {
        report: Report::new(&parts.subject, parts.confinement),
        tools: offered.iter().map(|tool| (tool.name.clone(), tool.description.clone())).collect(),
        context: vec![
            format!("model: {}", parts.model.name()),
            format!("system prompt: {} bytes", parts.system.len()),
            format!("messages before this prompt: {messages}"),
            format!("budget of turns for each prompt: {}", bound(turns.map(|n| n.to_string()))),
            format!("budget of tokens for each prompt: {}", bound(tokens.map(|n| n.to_string()))),
            format!(
                "budget of time for each prompt: {}",
                bound(time.map(|t| format!("{} s", t.as_secs())))
            ),
        ],
    }
}

/// Tells the front end; one that has gone away does not stop the run.
pub(super) fn emit(events: &UnboundedSender<Event>, event: Event) {
    drop(events.send(event));
}

enum Performed {
    Ok,
    Done,
    Failed(String),
}

impl Ongoing {
    /// Waits for whatever comes first. Signals and results are looked at before the stream, so that
    /// a fast stream cannot starve an interrupt.
    async fn next(&mut self, ops: &mut UnboundedReceiver<Op>, open: bool) -> Happened {
        let Self { stream, work, results, retry_at, deadline, backlog, .. } = self;
        let full = stream.is_some() && backlog.is_full();
        tokio::select! {
            biased;
            op = ops.recv(), if open => Happened::Op(op),
            () = at(*deadline) => Happened::Deadline,
            result = next_result(results) => Happened::Result(result),
            () = ended(work) => Happened::WorkDone,
            () = backlog.room(), if full => Happened::Room,
            delta = next_delta(stream), if !full => Happened::Stream(delta),
            () = at(*retry_at) => Happened::RetryDue,
        }
    }
}

async fn at(instant: Option<Instant>) {
    match instant {
        Some(instant) => sleep_until(instant).await,
        None => std::future::pending().await,
    }
}

async fn next_result(results: &mut Option<UnboundedReceiver<CallResult>>) -> CallResult {
    if let Some(receiver) = results {
        if let Some(result) = receiver.recv().await {
            return result;
        }
        *results = None;
    }
    std::future::pending().await
}

async fn next_delta(
    stream: &mut Option<BoxStream<'static, Result<Delta, ModelError>>>,
) -> Option<Result<Delta, ModelError>> {
    match stream {
        Some(stream) => stream.next().await,
        None => std::future::pending().await,
    }
}

async fn ended(work: &mut Option<BoxFuture<'static, ()>>) {
    match work {
        Some(work) => work.as_mut().map(|()| ()).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests;
