use std::{sync::Mutex, time::Duration};

use super::*;
use crate::{
    agent::{Budgets, Journal, Outcome, Summary, turn::Retry},
    authority::{Confinement, Subject},
    host::Host,
    message::Redactor,
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

/// A model that never answers.
#[derive(Debug)]
struct Silent;

impl Model for Silent {
    fn name(&self) -> &str {
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
