//! The schedules within this process: kli's own loop, its real HTTP, its real sessions, and one tool
//! that says what was done to it.

use std::{
    net::TcpListener,
    path::Path,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use futures_util::future::{BoxFuture, FutureExt as _};
use kli::{
    agent::{
        Agent, Budgets, Event, Journal, Op, Parts, Record, Summary, compact::Policy, turn::Retry,
    },
    authority::{Atom, Confinement, Grant, Request, Subject},
    host::Host,
    message::{Message, Redactor},
    model::{Model, catalogue},
    session::{Compaction, Entry, Log, Store},
    tool::{Context, Effect, Invocation, Outcome, Sink, State, Tool},
};
use serde_json::{Map, Value, json};
use tokio::sync::{Notify, mpsc};

use crate::fake_model::{Answer, FakeModel, text};

use super::{
    FORMATS, Ran, check, each_seed, reopened,
    schedule::{MODELS, Manner, Moment, PROMPT, STEER, Schedule, draw, note},
};

pub(super) const MANNER: Manner =
    Manner { tool: "note", arguments: note, retries: 2, failures: 4, steers: true };

pub(super) type Effects = Arc<Mutex<Vec<String>>>;

/// A tool that writes down each call.
#[derive(Debug)]
struct Note {
    effects: Effects,
    hold: Hold,
}

/// Lets the call of this number wait until the person has said something: so it is always in time.
#[derive(Clone, Debug, Default)]
pub(super) struct Hold {
    pub(super) call: Option<usize>,
    pub(super) said: Arc<Notify>,
}

struct Noting {
    effects: Effects,
    hold: Hold,
    id: String,
    waits: bool,
}

impl Tool for Note {
    fn name(&self) -> &'static str {
        "note"
    }

    fn description(&self) -> &'static str {
        "Leaves a mark."
    }

    fn schema(&self) -> Value {
        json!({ "type": "object", "properties": {}, "additionalProperties": true })
    }

    fn atom(&self) -> Atom {
        Atom::ImageInspect
    }

    fn prepare(
        &self,
        call: &Map<String, Value>,
        _: &Arc<Context>,
    ) -> Result<Box<dyn Invocation>, String> {
        let id = call["id"].as_str().unwrap().to_owned();
        let waits = call["wait"] == true;
        Ok(Box::new(Noting {
            effects: Arc::clone(&self.effects),
            hold: self.hold.clone(),
            id,
            waits,
        }))
    }
}

impl Invocation for Noting {
    fn requests(&self) -> Vec<Request> {
        vec![Request::bare(Atom::ImageInspect)]
    }

    fn effect(&self) -> Effect {
        Effect::Barrier
    }

    fn run(self: Box<Self>, _: Vec<Grant>, _: Sink) -> BoxFuture<'static, Outcome> {
        async move {
            let number = {
                let mut effects = self.effects.lock().unwrap();
                effects.push(self.id.clone());
                effects.len()
            };
            if self.hold.call == Some(number) {
                self.hold.said.notified().await;
            }
            if self.waits {
                std::future::pending::<()>().await;
            }
            // Some results are so long that a compaction trims them.
            let long =
                if self.id.ends_with('0') { "a long way ".repeat(60) } else { String::new() };
            Outcome::ok(format!("{} is noted {long}", self.id))
        }
        .boxed()
    }
}

/// Writes to a session as a run does.
struct Kept(Log);

impl Journal for Kept {
    fn append(&mut self, record: Record<'_>) -> Result<(), String> {
        let entry = match record {
            Record::Message(message) => Entry::Message(message),
            Record::Authority(report) => Entry::Authority(report),
            Record::Usage { model, usage } => Entry::Usage { model, usage },
            Record::Denied(denied) => {
                Entry::Denied { tool: &denied.tool, atom: &denied.atom, detail: &denied.detail }
            }
            Record::Changed(path) => Entry::Changed { path },
            Record::Compaction { done, messages } => {
                let done = Compaction {
                    reason: "threshold".to_owned(),
                    before: done.before,
                    after: done.after,
                    trimmed: done.trimmed as u64,
                    summarised: done.summarised as u64,
                    summary: done.summary.clone(),
                };
                let entry = Entry::Compaction { done: &done, messages };
                return self.0.append(&entry).map_err(|error| error.to_string());
            }
            Record::Withdrawn(messages) => Entry::Withdrawn { messages },
            Record::End(summary) => Entry::End {
                outcome: "ended",
                error: summary.fault.as_ref().map(|fault| fault.message.as_str()),
            },
        };
        self.0.append(&entry).map_err(|error| error.to_string())
    }

    fn sync(&mut self) -> Result<(), String> {
        // What a power loss does is no part of this, and a thousand runs would wait for the disk.
        Ok(())
    }
}

pub(super) struct Bench {
    pub(super) models: Vec<Arc<dyn Model>>,
    pub(super) history: Vec<Message>,
    pub(super) log: Log,
    pub(super) effects: Effects,
    pub(super) hold: Hold,
    pub(super) compaction: Policy,
}

pub(super) fn agent(bench: Bench, workspace: &Path) -> Agent {
    let mut models = bench.models.into_iter();
    Agent::new(Parts {
        model: models.next().unwrap(),
        fallbacks: models.collect(),
        tools: vec![Box::new(Note { effects: bench.effects, hold: bench.hold })],
        subject: Arc::new(Subject::new([])),
        confinement: Confinement::Unknown,
        context: Arc::new(Context {
            host: Host::default(),
            workspace: workspace.to_owned(),
            home: None,
            state: State::default(),
            bash: kli::tool::BashOptions::default(),
        }),
        system: "You are tested.".into(),
        history: bench.history,
        shelf: None,
        budgets: Budgets::default(),
        retry: Retry {
            attempts: u32::try_from(MANNER.retries).unwrap(),
            base: Duration::from_millis(1),
            ..Retry::default()
        },
        redactor: Redactor::default(),
        journal: Some(Box::new(Kept(bench.log))),
        backlog: Arc::default(),
        surroundings: kli::agent::Surroundings::default(),
        mentions: true,
        compaction: bench.compaction,
        ledger: std::sync::Arc::default(),
        approver: None,
        own: None,
        timed: false,
    })
}

pub(super) fn model(number: usize, wire: crate::fake_model::Wire, url: String) -> Arc<dyn Model> {
    let (provider, name) = MODELS[number].split_once('/').unwrap();
    let mut options = catalogue::Options::new(wire.kind(), provider, name);
    options.base_url = Some(url);
    options.idle_timeout = Duration::from_secs(20);
    catalogue::open(&options).unwrap()
}

/// What came of a prompt.
pub(super) struct Driven {
    pub(super) summary: Summary,
    pub(super) shown: String,
    /// How long the end took after it was asked for.
    pub(super) stopped: Option<Duration>,
    /// How often the conversation was made shorter.
    pub(super) compacted: usize,
}

/// Runs a prompt to its end.
pub(super) fn drive(
    agent: Agent,
    prompt: &str,
    schedule: Option<&Schedule>,
    asked: impl Fn() -> usize,
    hold: &Hold,
) -> Driven {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let stop = schedule.and_then(|schedule| schedule.stop);
    runtime.block_on(async {
        let (ops, inbox) = mpsc::unbounded_channel();
        let (outbox, mut events) = mpsc::unbounded_channel();
        ops.send(Op::Submit(prompt.to_owned())).unwrap();
        let running = tokio::spawn(agent.run(inbox, outbox));
        let (mut shown, mut started, mut stopped) = (String::new(), 0, None);
        let mut compacted = 0;
        let watched = async {
            loop {
                let event = tokio::time::timeout(Duration::from_millis(1), events.recv()).await;
                match event {
                    Ok(Some(Event::Text(text))) => shown.push_str(&text),
                    Ok(Some(Event::Compacted(_))) => compacted += 1,
                    Ok(Some(Event::ToolStarted { .. })) => {
                        started += 1;
                        if hold.call == Some(started) {
                            ops.send(Op::Steer(STEER.to_owned())).unwrap();
                            hold.said.notify_one();
                        }
                    }
                    Ok(Some(Event::Done(summary))) => break *summary,
                    Ok(None) => panic!("the agent ended without a summary"),
                    _ => {}
                }
                let due = stop.is_some_and(|(moment, _)| match moment {
                    Moment::Shown(count) => shown.chars().count() >= count,
                    Moment::Asked(count) => asked() >= count,
                    Moment::Started(count) => started >= count,
                });
                if due && stopped.is_none() {
                    stopped = Some(Instant::now());
                    let term = stop.is_some_and(|(_, term)| term);
                    ops.send(if term { Op::Terminate } else { Op::Interrupt }).unwrap();
                }
            }
        };
        let summary = tokio::time::timeout(Duration::from_secs(30), watched).await;
        let summary = summary.unwrap_or_else(|_| panic!("the run did not end"));
        drop(ops);
        running.await.unwrap();
        Driven { summary, shown, stopped: stopped.map(|at| at.elapsed()), compacted }
    })
}

fn one(seed: u64, stops: &Mutex<Vec<Duration>>) -> Result<(), String> {
    let schedule = draw(seed, MANNER);
    let fakes = schedule.scripts.each_ref().map(|script| FakeModel::strict(script.clone()));
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let url = |number: usize| match (number, schedule.is_gone) {
        (0, true) => format!("http://{closed}{}", schedule.wires[0].base()),
        _ => fakes[number].url(schedule.wires[number]),
    };
    let count = if schedule.has_next { 2 } else { 1 };
    let models = (0..count).map(|n| model(n, schedule.wires[n], url(n))).collect();
    let room = tempfile::tempdir().unwrap();
    let store = Store::new(room.path());
    let effects = Effects::default();
    let hold = Hold { call: schedule.steer, said: Arc::default() };
    let bench = Bench {
        models,
        history: Vec::new(),
        log: store.create(room.path()).unwrap(),
        effects: Arc::clone(&effects),
        hold: hold.clone(),
        compaction: Policy::default(),
    };
    let asked = || fakes.iter().map(|fake| fake.requests().len()).sum();
    let Driven { summary, shown, stopped, .. } =
        drive(agent(bench, room.path()), PROMPT, Some(&schedule), asked, &hold);
    stops.lock().unwrap().extend(stopped);
    let done = effects.lock().unwrap().clone();
    let ran = Ran {
        outcome: format!("{:?}", summary.outcome).to_lowercase(),
        exit: summary.exit,
        kind: summary.fault.map_or_else(String::new, |f| format!("{:?}", f.kind).to_lowercase()),
        text: summary.text,
        model: summary.model.unwrap_or_default(),
        shown,
        steered: schedule.steer.is_some_and(|call| call <= done.len()),
        effects: done,
        undelivered: summary.undelivered.len(),
        requests: fakes.each_ref().map(|fake| fake.requests().len()),
    };
    // What kli's own store makes of the file, and that there was nothing to repair.
    let opened = reopened(&store, room.path())?;
    check(&schedule.expected, &ran, &opened.messages)
        .map_err(|why| format!("{why}\n{schedule:?}\n{ran:?}"))?;
    if fakes.iter().any(|fake| fake.left() > 0) {
        return Err("an answer was not asked for".into());
    }
    // And it goes on from there, with a server that refuses what real ones refuse.
    let fake = FakeModel::strict(vec![Answer::new(schedule.wires[0].answer([text("Here.")]))]);
    let bench = Bench {
        models: vec![model(0, schedule.wires[0], fake.url(schedule.wires[0]))],
        history: opened.messages,
        log: opened.log,
        effects,
        hold: Hold::default(),
        compaction: Policy::default(),
    };
    let hold = Hold::default();
    let summary = drive(agent(bench, room.path()), "Go on.", None, || 0, &hold).summary;
    match (summary.exit, summary.text.as_str()) {
        (0, "Here.") => Ok(()),
        _ => Err(format!("the session does not go on: {summary:?}\n{schedule:?}")),
    }
}

#[test]
fn a_thousand_schedules_of_faults_come_to_what_they_must() {
    let stops = Mutex::new(Vec::new());
    each_seed(0..1000, 16, |seed| one(seed, &stops));
    let mut stops = stops.into_inner().unwrap();
    stops.sort();
    if let Some(median) = stops.get(stops.len() / 2) {
        let longest = stops[stops.len() - 1];
        println!("{} stops, median {median:?}, longest {longest:?}", stops.len());
        // Sixteen runs share the machine, so one of them may wait for it, but none for its server.
        assert!(*median < Duration::from_millis(100), "a stop takes {median:?}");
        assert!(longest < Duration::from_secs(5), "a stop takes {longest:?}");
    }
    let is_whole = std::env::var_os("KLI_FAULT_SEED").is_none();
    assert!(!is_whole || stops.len() > 50, "{} were stopped", stops.len());
}

#[test]
fn the_schedules_hold_every_kind_of_end_and_every_format() {
    let drawn: Vec<Schedule> = (0..1000).map(|seed| draw(seed, MANNER)).collect();
    let count = |holds: &dyn Fn(&Schedule) -> bool| drawn.iter().filter(|it| holds(it)).count();
    for (wire, _) in FORMATS {
        assert!(count(&|it| it.wires[0] == wire) * FORMATS.len() >= 999, "{wire:?}");
    }
    for (outcome, exit) in
        [("ok", 0), ("error", 4), ("incomplete", 4), ("interrupted", 130), ("interrupted", 143)]
    {
        let found = count(&|it| (it.expected.outcome, it.expected.exit) == (outcome, exit));
        assert!(found >= 20, "{outcome} with {exit}: {found}");
    }
    assert!(count(&|it| it.expected.model == MODELS[1] && it.expected.exit == 0) >= 20, "the next");
    assert!(count(&|it| it.steer.is_some()) >= 100);
    assert!(count(&|it| it.is_gone) >= 20);
    for moment in [Moment::Shown(0), Moment::Asked(0), Moment::Started(0)] {
        let kind = std::mem::discriminant(&moment);
        let found = count(&|it| it.stop.is_some_and(|(at, _)| std::mem::discriminant(&at) == kind));
        assert!(found >= 10, "{moment:?}: {found}");
    }
}
