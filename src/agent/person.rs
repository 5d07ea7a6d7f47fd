//! Commands of the person's own: run by the same tool as the model's, in the workspace, while the agent
//! is idle. What a profile asks of the agent does not bind the person; what the policy says does.

use std::{collections::VecDeque, sync::Arc, time::Instant};

use serde_json::{Map, Value};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};

use crate::{
    message::{Arguments, ToolCall},
    tool::{Context, State},
};

use super::{
    Event, Op, Outcome, Summary,
    asking::Consent,
    driver::{Agent, emit},
    quote::fenced,
    work::Bench,
};

const BUSY: &str = "a command of your own runs only while the agent is idle; it was not run";

impl Agent {
    /// Runs a command and returns what the conversation tells of it; nothing when it was not run to its
    /// end. Operations that come meanwhile are kept for later; an interrupt ends it.
    pub(super) async fn shell(
        &mut self,
        command: String,
        busy: bool,
        ops: &mut UnboundedReceiver<Op>,
        held: &mut VecDeque<Op>,
        events: &UnboundedSender<Event>,
    ) -> Option<String> {
        if busy {
            emit(events, Event::Notice(BUSY.to_owned()));
            return None;
        }
        let start = Instant::now();
        let Some(bench) = self.own_bench() else {
            emit(events, Event::Notice("nobody can run commands of their own here".into()));
            emit(events, over(start, Outcome::Error, 1));
            return None;
        };
        let mut arguments = Map::new();
        arguments.insert("command".to_owned(), Value::String(command.clone()));
        let call = ToolCall {
            id: "own".to_owned(),
            name: "bash".to_owned(),
            arguments: Arguments::Object(arguments),
        };
        let running = bench.call(0, call, None, events);
        tokio::pin!(running);
        let mut open = true;
        let ended = loop {
            tokio::select! {
                biased;
                op = ops.recv(), if open => match op {
                    Some(Op::Interrupt | Op::TakeBack) => break Err((Outcome::Interrupted, 130)),
                    Some(Op::Terminate) => break Err((Outcome::Interrupted, 143)),
                    Some(op) => held.push_back(op),
                    None => open = false,
                },
                ended = &mut running => break Ok(ended),
            }
        };
        match ended {
            Ok(ended) => {
                emit(events, over(start, Outcome::Ok, 0));
                // What was refused did nothing that the model should know of.
                let ran = ended.denied.is_empty();
                ran.then(|| told(&command, &ended.result.text))
            }
            Err((outcome, exit)) => {
                emit(events, over(start, outcome, exit));
                Some(told(&command, "[interrupted by the person; it may have had effects]"))
            }
        }
    }

    /// Returns what runs the person's commands: the agent's tools under the person's subject, always in
    /// the workspace, and with nothing that the agent's calls would notice.
    fn own_bench(&self) -> Option<Bench> {
        let subject = Arc::clone(self.parts.own.as_ref()?);
        let context = &self.parts.context;
        let results = Arc::clone(&context.state.results);
        Some(Bench {
            tools: Arc::clone(&self.bench.tools),
            subject,
            context: Arc::new(Context {
                host: context.host.clone(),
                workspace: context.workspace.clone(),
                home: context.home.clone(),
                state: State { results, ..State::default() },
                bash: context.bash.clone(),
            }),
            redactor: self.parts.redactor.clone(),
            places: Arc::default(),
            heard: Arc::default(),
            consent: Consent::Own,
            unanswered: Arc::default(),
        })
    }
}

fn told(command: &str, output: &str) -> String {
    format!(
        "[the person ran a command in the workspace]\n{}\nIts output, for reference:\n{}",
        fenced(command),
        fenced(output)
    )
}

/// Returns the end of what asked no model.
fn over(start: Instant, outcome: Outcome, exit: u8) -> Event {
    Event::Done(Box::new(Summary::unasked(outcome, exit, start.elapsed())))
}
