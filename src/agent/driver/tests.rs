use std::{sync::Mutex, time::Duration};

use super::*;
use crate::{
    agent::{Budgets, Journal, Outcome, Summary, turn::Retry},
    authority::{Confinement, Subject},
    host::Host,
    message::{Message, Redactor},
    model::catalogue::{self, Kind, Options},
    tool::{BashOptions, Context, State},
};

/// Refuses the appends of these numbers, and remembers the kinds of the others.
struct Faulty {
    refused: &'static [usize],
    asked: usize,
    kept: Arc<Mutex<Vec<&'static str>>>,
}

impl Journal for Faulty {
    fn append(&mut self, record: Record<'_>) -> Result<(), String> {
        let number = self.asked;
        self.asked += 1;
        if self.refused.contains(&number) {
            return Err("no space".to_owned());
        }
        self.kept.lock().unwrap().push(match record {
            Record::Authority(_) => "authority",
            Record::Message(_) => "message",
            Record::End(_) => "end",
            _ => "other",
        });
        Ok(())
    }

    fn sync(&mut self) -> Result<(), String> {
        Ok(())
    }
}

fn parts(refused: &'static [usize], kept: &Arc<Mutex<Vec<&'static str>>>) -> Parts {
    let kind = Kind::Replay { recording: "{\"text\": \"said\"}".to_owned() };
    Parts {
        model: catalogue::open(&Options::new(kind, "replay", "test")).unwrap(),
        fallbacks: Vec::new(),
        tools: Vec::new(),
        subject: Arc::new(Subject::new([])),
        confinement: Confinement::Unknown,
        context: Arc::new(Context {
            host: Host::default(),
            workspace: "/".into(),
            home: None,
            state: State::default(),
            bash: BashOptions {
                shell: "bash".into(),
                timeout: 1,
                max_timeout: 1,
                withheld: Vec::new(),
                pass: None,
                set: Vec::new(),
            },
        }),
        system: String::new(),
        history: Vec::new(),
        shelf: None,
        budgets: Budgets::default(),
        retry: Retry::default(),
        redactor: Redactor::default(),
        compaction: compact::Policy::default(),
        journal: Some(Box::new(Faulty { refused, asked: 0, kept: Arc::clone(kept) })),
        backlog: Arc::default(),
        surroundings: crate::agent::Surroundings::default(),
        mentions: true,
        ledger: Arc::default(),
        approver: None,
        own: None,
        timed: false,
    }
}

fn run(refused: &'static [usize]) -> (Summary, Vec<&'static str>) {
    let kept = Arc::new(Mutex::new(Vec::new()));
    let parts = parts(refused, &kept);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (ops, inbox) = mpsc::unbounded_channel();
    let (outbox, mut events) = mpsc::unbounded_channel();
    ops.send(Op::Submit("hi".to_owned())).unwrap();
    drop(ops);
    runtime.block_on(Agent::new(parts).run(inbox, outbox));
    let told: Vec<Event> = std::iter::from_fn(|| events.try_recv().ok()).collect();
    let notices = told.iter().filter(|event| matches!(event, Event::Notice(_))).count();
    assert_eq!(notices, 0, "what ended the run is said once, in its summary");
    let summary = told
        .into_iter()
        .find_map(|event| if let Event::Done(summary) = event { Some(*summary) } else { None });
    let kept = kept.lock().unwrap().clone();
    (summary.unwrap(), kept)
}

#[test]
fn a_key_in_pieces_is_taken_out_and_the_order_stays() {
    let text = |piece: &str| Input::Delta(Delta::Text(piece.to_owned()));
    let thinking = |piece: &str| Input::Delta(Delta::Thinking(piece.to_owned()));
    let told = |inputs: Vec<Input>, redactor: Redactor| {
        let mut screen = Screen::new(redactor);
        let mut told = Vec::new();
        for input in inputs.into_iter().flat_map(|input| screen.pass(input)) {
            match input {
                Input::Delta(Delta::Text(piece)) => told.push(format!("text {piece}")),
                Input::Delta(Delta::Thinking(piece)) => told.push(format!("thinking {piece}")),
                Input::Stop(_) => told.push("stop".to_owned()),
                other => told.push(format!("{other:?}")),
            }
        }
        told
    };
    let inputs = || {
        vec![
            text("a sk-very-"),
            text("secret-0 b sk-ve"),
            thinking("c sk-very-secret"),
            thinking("-0"),
            text("sk-"),
            Input::Stop(Why::Interrupt),
        ]
    };
    let clean = told(inputs(), Redactor::new(["sk-very-secret-0"]));
    assert_eq!(
        clean,
        ["text a ", "text … b ", "text sk-ve", "thinking c ", "thinking …", "text sk-", "stop"]
    );
    // What a person says in the middle of it does not let the halves pass.
    let halves = vec![text("sk-very-"), Input::Steer("quick".to_owned()), text("secret-0 b")];
    let clean = told(halves, Redactor::new(["sk-very-secret-0"]));
    assert_eq!(clean, ["Steer(\"quick\")", "text … b"]);
    let as_it_is = told(inputs(), Redactor::default());
    assert_eq!(as_it_is.len(), inputs().len(), "control");
}

#[test]
fn what_cannot_be_recorded_is_not_done() {
    let (summary, kept) = run(&[]);
    assert_eq!((summary.outcome, summary.text.as_str()), (Outcome::Ok, "said"), "control");
    assert_eq!(kept, ["authority", "message", "message", "end"]);
    // What the run may do, and the prompt: neither is gone past.
    for (refused, left) in [(&[0][..], &["end"][..]), (&[1], &["authority", "end"]), (&[0, 1], &[])]
    {
        let (summary, kept) = run(refused);
        assert_eq!((summary.outcome, summary.exit), (Outcome::Error, 1));
        assert_eq!(summary.text, "");
        assert_eq!(summary.fault.unwrap().message, "no space");
        assert_eq!(kept, left);
    }
}

/// Runs operations one after the other and returns what was told.
fn all(parts: Parts, said: Vec<Op>) -> Vec<Event> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (ops, inbox) = mpsc::unbounded_channel();
    let (outbox, mut events) = mpsc::unbounded_channel();
    for op in said {
        ops.send(op).unwrap();
    }
    drop(ops);
    runtime.block_on(Agent::new(parts).run(inbox, outbox));
    std::iter::from_fn(|| events.try_recv().ok()).collect()
}

#[test]
fn what_the_run_may_do_is_recorded_before_the_next_prompt_when_it_could_not_be_at_first() {
    let kept = Arc::default();
    let prompts = vec![Op::Submit("hi".into()), Op::Submit("again".into())];
    let told = all(parts(&[0], &kept), prompts);
    let ends: Vec<u8> = told
        .iter()
        .filter_map(|event| if let Event::Done(it) = event { Some(it.exit) } else { None })
        .collect();
    assert_eq!(ends, [1, 0]);
    assert_eq!(*kept.lock().unwrap(), ["end", "authority", "message", "message", "end"]);
}

#[test]
fn a_persons_command_that_cannot_be_recorded_is_said() {
    for (refused, wanted) in [(&[1][..], &["no space"][..]), (&[], &[])] {
        let kept = Arc::default();
        let parts = Parts {
            tools: crate::tool::standard(),
            own: Some(Arc::new(Subject::new([]))),
            ..parts(refused, &kept)
        };
        let told = all(parts, vec![Op::Shell { command: "echo out".into(), tells: true }]);
        let notices: Vec<&str> = told
            .iter()
            .filter_map(|event| if let Event::Notice(it) = event { Some(&**it) } else { None })
            .collect();
        assert_eq!(notices, wanted, "{told:?}");
        assert_eq!(kept.lock().unwrap().contains(&"message"), wanted.is_empty());
    }
}

/// A model that never answers.
#[derive(Debug)]
struct Silent;

impl Model for Silent {
    fn name(&self) -> &'static str {
        "test/silent"
    }

    fn needs_network(&self) -> bool {
        false
    }

    fn stream(
        &self,
        _: Request,
    ) -> futures_util::stream::BoxStream<'static, Result<Delta, ModelError>> {
        Box::pin(futures_util::stream::pending())
    }
}

#[test]
fn what_is_said_to_an_agent_that_has_just_ended_is_a_prompt_with_its_bounds() {
    for first in [Op::Submit("one".to_owned()), Op::Steer("one".to_owned())] {
        let time = Duration::from_millis(50);
        let budgets = Budgets { time: Some(time), ..Budgets::default() };
        let parts = Parts { model: Arc::new(Silent), budgets, ..parts(&[], &Arc::default()) };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let (ops, inbox) = mpsc::unbounded_channel();
        let (outbox, mut events) = mpsc::unbounded_channel();
        ops.send(first).unwrap();
        // Nobody says anything more: the run is brought to its end all the same.
        drop(ops);
        runtime.block_on(Agent::new(parts).run(inbox, outbox));
        let told: Vec<Event> = std::iter::from_fn(|| events.try_recv().ok()).collect();
        let Some(Event::Done(summary)) = told.last() else { panic!("{told:?}") };
        assert_eq!((summary.outcome, summary.exit), (Outcome::Budget, 5));
        assert!(summary.duration >= time);
    }
}

#[test]
fn an_idle_agent_lays_its_conversation_on_the_shelf_and_has_it_again() {
    let shelf = crate::agent::Shelf::default();
    let kind = Kind::Replay { recording: "{\"text\": \"said\"}\n{\"text\": \"said\"}".to_owned() };
    let parts = Parts {
        model: catalogue::open(&Options::new(kind, "replay", "test")).unwrap(),
        history: vec![Message::user("before")],
        shelf: Some(shelf.clone()),
        ..parts(&[], &Arc::default())
    };
    let texts = || shelf.copy().iter().map(Message::text).collect::<Vec<_>>();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (ops, inbox) = mpsc::unbounded_channel();
    let (outbox, mut events) = mpsc::unbounded_channel();
    let mut agent = Box::pin(Agent::new(parts).run(inbox, outbox));
    runtime.block_on(async {
        let idle = Duration::from_millis(20);
        assert!(tokio::time::timeout(idle, &mut agent).await.is_err());
        assert_eq!(texts(), ["before"]);
        for (said, wanted) in [("one", 3), ("two", 5)] {
            ops.send(Op::Submit(said.to_owned())).unwrap();
            loop {
                tokio::select! {
                    biased;
                    event = events.recv() => if matches!(event, Some(Event::Done(_))) { break },
                    () = &mut agent => panic!("it ended"),
                }
            }
            assert!(tokio::time::timeout(idle, &mut agent).await.is_err());
            assert_eq!(texts().len(), wanted, "{:?}", texts());
        }
    });
    // Whoever looks takes nothing away.
    for _ in 0..2 {
        assert_eq!(texts(), ["before", "one", "said", "two", "said"]);
    }
}
