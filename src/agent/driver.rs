//! The driver: performs what the turn's machine asks for and feeds back what happened.
//!
//! One task, one loop: operations, the model's stream, running tools and timers are waited for
//! together, so an interrupt is seen at once whatever else is going on.

use std::{collections::VecDeque, sync::Arc};

use tokio::{
    sync::mpsc::{self, UnboundedReceiver, UnboundedSender},
    time::Instant,
};

use crate::{
    authority::Report,
    model::{Class, Delta, Model, ModelError, Request, ToolSpec},
};

use super::{
    Event, Fault, FaultKind, Op, Outcome,
    around::Attachment,
    asking::Consent,
    compact,
    ongoing::{Happened, Ongoing, said_by_now},
    parts::{Parts, Record, told},
    screen::Screen,
    timing::Stopwatch,
    turn::{Action, Candidate, Input, Turn, Why},
    work::{Bench, tool_names},
};

/// A conversation that can be talked to.
#[derive(Debug)]
pub struct Agent {
    pub(super) parts: Parts,
    offered: Vec<ToolSpec>,
    pub(super) turn: Turn,
    pub(super) bench: Bench,
    /// Whether the session says what the run may do.
    declared: bool,
    screen: Screen,
    /// What the prompt that is about to be submitted mentions.
    pub(super) attached: Vec<Attachment>,
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
            places: Arc::default(),
            heard: Arc::default(),
            consent: parts.approver.clone().map_or(Consent::Nobody, Consent::Person),
            unanswered: Arc::default(),
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
        let candidate = |model: &Arc<dyn Model>| Candidate {
            name: model.name().to_owned(),
            price: model.price(),
            window: model.context_window(),
        };
        let known = bench.tools.iter().map(|tool| tool.name()).chain(tool_names());
        let turn = Turn::new(parts.model.name().to_owned(), history, parts.budgets, parts.retry)
            .asking(
                candidate(&parts.model),
                parts.fallbacks.iter().map(candidate).collect(),
                known.map(str::to_owned).collect::<Vec<_>>(),
            )
            .compacting(parts.compaction, compact::base(&parts.system, &offered));
        Self { parts, offered, turn, bench, declared: false, screen, attached: Vec::new() }
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
        if let Some(approver) = &self.parts.approver {
            approver.begin(&events);
        }
        let mut open = true;
        let mut busy = false;
        let mut held = VecDeque::new();
        while open || busy {
            let place = self.parts.shelf.clone().filter(|_| !busy && self.turn.is_idle());
            if let Some(place) = &place {
                place.put(std::mem::take(self.turn.conversation()));
            }
            let happened = ongoing.next(&mut held, &mut ops, open).await;
            if let Some(place) = place {
                *self.turn.conversation() = place.take();
            }
            let input = match happened {
                Happened::Op(None) => {
                    open = false;
                    if let Some(approver) = &self.parts.approver {
                        approver.close();
                    }
                    continue;
                }
                Happened::Op(Some(Op::Approve { id, answer })) => {
                    if let Some(approver) = &self.parts.approver {
                        approver.answer(id, answer);
                    }
                    continue;
                }
                Happened::Op(Some(Op::Shell { command, tells })) => {
                    let busy = busy || !self.turn.is_idle();
                    let ran = self.shell(command, busy, &mut ops, &mut held, &events).await;
                    let Some(text) = ran.filter(|_| tells) else { continue };
                    Input::Did(text)
                }
                Happened::Op(Some(op)) => {
                    let op = match op {
                        // The prompt that it was meant for has ended: it is one of its own.
                        Op::Steer(text) if !busy => Op::Submit(text),
                        other => other,
                    };
                    if !busy && matches!(op, Op::Submit(_) | Op::Compact { .. }) {
                        busy = true;
                        self.begin();
                        ongoing.watch = Stopwatch::start();
                        ongoing.deadline =
                            self.parts.budgets.time.and_then(|t| Instant::now().checked_add(t));
                    }
                    match op {
                        Op::Submit(text) => {
                            self.attach(&text, &mut ops, &mut held).await;
                            Input::Submit(text)
                        }
                        Op::Steer(text) => Input::Steer(text),
                        Op::Compact { focus } => Input::Compact(focus),
                        Op::Interrupt => Input::Stop(Why::Interrupt),
                        Op::TakeBack => Input::Stop(Why::TakeBack),
                        Op::Terminate => Input::Stop(Why::Terminate),
                        Op::Approve { .. } | Op::Shell { .. } => continue,
                    }
                }
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
                    message: format!("the answer of `{}` broke off", self.model().name()),
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
            if matches!(input, Input::Stop(_)) {
                // What waits for a person is listed while it still waits; what is cut off tells what it
                // used up and was denied.
                self.turn.unanswered(self.bench.unanswered.now());
                ongoing.cut_off();
            }
            // The last result begins the next request: what was said by then goes along with it.
            let said = match &input {
                Input::Result(_) => said_by_now(&mut held, &mut ops),
                _ => Vec::new(),
            };
            for input in said.into_iter().chain(self.accompanied(input, &events)) {
                for input in self.screen.pass(input) {
                    busy &= !self.take(input, &mut ongoing, &events);
                }
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
        if !self.declared {
            // The very value that the bench checks calls against, written down first.
            let report = Report::new(&self.bench.subject, self.parts.confinement);
            match self.append(Record::Authority(&report)) {
                Performed::Failed(message) => lost = Some(message),
                Performed::Ok | Performed::Done => self.declared = true,
            }
        }
        while let Some(input) = next.take() {
            let actions = self.turn.step(input);
            self.parts.ledger.set_owing(self.turn.owes());
            for mut action in actions {
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
                // Without a prompt there is no summary to say it.
                Some(message) if done || self.turn.is_idle() => {
                    emit(events, Event::Notice(message));
                }
                Some(message) => next = Some(Input::Stop(Why::Journal(message))),
                None => {}
            }
        }
        done
    }

    /// Returns the model that is asked at the moment.
    fn model(&self) -> &Arc<dyn Model> {
        let fallback = self.turn.asks().checked_sub(1).and_then(|at| self.parts.fallbacks.get(at));
        fallback.unwrap_or(&self.parts.model)
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
                let model = Arc::clone(self.model());
                return self.append(Record::Usage { model: model.name(), usage });
            }
            Action::RecordDenied(denied) => return self.append(Record::Denied(&denied)),
            Action::RecordChanged(path) => return self.append(Record::Changed(&path)),
            Action::RecordCompaction(compaction) => {
                let (done, messages) = &*compaction;
                return self.append(Record::Compaction { done, messages });
            }
            Action::RecordWithdrawn(count) => return self.append(Record::Withdrawn(count)),
            Action::Summarise(message) => {
                let request = compact::summariser(message);
                ongoing.stream = Some(self.model().stream(request));
            }
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
                    ongoing.watch.request(|| self.model().request_bytes(&request));
                }
                ongoing.stream = Some(self.model().stream(request));
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
            Action::Abort => ongoing.cut_off(),
            Action::Emit(event) => {
                match &event {
                    Event::Asking { .. } => ongoing.watch.turn(),
                    Event::Usage { usage, cost, .. } => self.parts.ledger.spend(*usage, *cost),
                    _ => {}
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

/// Tells the front end; one that has gone away does not stop the run.
pub(super) fn emit(events: &UnboundedSender<Event>, event: Event) {
    drop(events.send(event));
}

enum Performed {
    Ok,
    Done,
    Failed(String),
}

#[cfg(test)]
mod tests;
