//! The agent: operations in, events out. Front ends know these two types, the vocabulary of
//! [`message`](crate::message) and nothing else of what is below.
//!
//! - [`turn`]: the conversation as a pure state machine, without clock, network or files.
//! - [`compact`]: how a conversation that is too long is made shorter; pure.
//! - [`schedule`]: which calls of one turn wait for which; pure.
//! - [`Backlog`]: how a front end that cannot keep up holds the run back.
//! - [`driver`]: the edge that asks the model, runs the tools and keeps the time.
//!
//! It must not know settings files, the command line or any front end.

pub mod approval;
mod around;
mod asked;
mod asking;
mod backlog;
pub mod compact;
pub mod context;
pub mod driver;
mod ids;
mod ledger;
mod mentions;
mod nested;
mod ongoing;
mod parts;
mod person;
mod prompt;
mod quote;
pub mod schedule;
mod screen;
mod step;
mod stuck;
pub mod task;
mod timing;
pub mod turn;
mod work;

use std::{path::PathBuf, time::Duration};

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use crate::message::{Arguments, Money, Usage};

pub use approval::Approver;
pub use backlog::Backlog;
pub use compact::Compacted;
pub use context::Surroundings;
pub use driver::Agent;
pub use ledger::Ledger;
pub use mentions::{begins_mention, mention_of};
pub use parts::{Journal, Parts, Record, Shelf};
pub use prompt::{Facts, system_prompt};
pub use stuck::REPEATS;
pub use task::Task;
pub use timing::{Timings, TurnTimes};
pub use work::tool_names;

/// What a front end asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    /// Start working on a prompt.
    Submit(String),
    /// Say something while the agent works; it is delivered at the next boundary.
    Steer(String),
    /// Make the conversation shorter: now, or while the agent works at the next boundary, which may be
    /// the end of its prompt. One that is idle ends it with an [`Event::Done`], whose text is the summary.
    Compact {
        /// What the summary should pay attention to.
        focus: Option<String>,
    },
    /// Answer the question of that number ([`Event::Approval`]); one that is over already is let be.
    Approve {
        /// The question's number.
        id: u64,
        /// What the person says.
        answer: approval::Answer,
    },
    /// Run a command of the person's own, while the agent is idle; ends with an [`Event::Done`].
    Shell {
        /// The command line.
        command: String,
        /// Whether the conversation tells of it, so that the model sees what it printed.
        tells: bool,
    },
    /// Stop the stream and the tools now; the session stays usable.
    Interrupt,
    /// As [`Op::Interrupt`]; a prompt of which nothing has come yet is no part of the conversation any
    /// more ([`Summary::withdrawn`]).
    TakeBack,
    /// The process is asked to end: as [`Op::Interrupt`], with another exit code.
    Terminate,
}

/// What happened.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// The model is being asked for the `turn`th time.
    Asking {
        /// Counted from 1.
        turn: u64,
    },
    /// A piece of the answer.
    Text(String),
    /// A piece of visible thinking.
    Thinking(String),
    /// A call waits for a person's answer ([`Op::Approve`]). One question is open at a time.
    Approval(Box<approval::Question>),
    /// A question is over without an answer.
    Withdrawn {
        /// Its number.
        id: u64,
    },
    /// A tool starts.
    ToolStarted {
        /// The call's identifier.
        id: String,
        /// The tool's name.
        name: String,
        /// The arguments.
        arguments: Arguments,
    },
    /// A piece of a running tool's output.
    ToolOutput {
        /// The call's identifier.
        id: String,
        /// The piece.
        text: String,
    },
    /// A tool has finished.
    ToolFinished {
        /// The call's identifier.
        id: String,
        /// The tool's name.
        name: String,
        /// What the model gets to see.
        text: String,
        /// Whether it failed.
        is_error: bool,
        /// Facts for front ends.
        record: Value,
    },
    /// A call was refused.
    Denied {
        /// The call's identifier.
        id: String,
        /// What was refused.
        denied: Denied,
    },
    /// The tokens of the answer that is complete now, as the provider counts them.
    Usage {
        /// Which turn's, from 1.
        turn: u64,
        /// How many.
        usage: Usage,
        /// What they cost, when the model's price is known.
        cost: Option<Money>,
    },
    /// A model was given up, and the next one is asked the same.
    FellBack {
        /// `PROVIDER/MODEL` that was given up.
        from: String,
        /// `PROVIDER/MODEL` that is asked now.
        to: String,
        /// Why.
        reason: String,
    },
    /// A request failed and will be tried again.
    Retrying {
        /// The number of the retry, from 1.
        attempt: u32,
        /// The most retries there will be.
        of: u32,
        /// How long until then.
        after: Duration,
        /// Why.
        reason: String,
    },
    /// The conversation was made shorter.
    Compacted(Compacted),
    /// Something people should know that is no failure.
    Notice(String),
    /// Where the time went, right before the end; only when it was asked for.
    Timings(Timings),
    /// The prompt has been worked on as far as it will be.
    Done(Box<Summary>),
}

/// A refused call, as results list it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Denied {
    /// The tool's name as the model said it.
    pub tool: String,
    /// The atom that is not held, or not that far.
    pub atom: String,
    /// The whole sentence: what was asked for, and which layer decided so.
    pub detail: String,
}

/// How a prompt ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// Done.
    Ok,
    /// It failed.
    Error,
    /// A call was denied, and no later call under the same atom succeeded.
    Denied,
    /// The answer is partial.
    Incomplete,
    /// A budget ran out.
    Budget,
    /// It was interrupted or terminated.
    Interrupted,
}

/// What kind of failure ended a prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum FaultKind {
    /// The provider answered with an error, or the model with nothing, or with a part.
    Provider,
    /// The key is missing or refused.
    Auth,
    /// The provider could not be reached.
    Network,
    /// Settings or arguments.
    Config,
    /// Anything of kli's own: the session could not be written.
    Internal,
}

/// A failure, for people and programs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Fault {
    /// Its kind.
    pub kind: FaultKind,
    /// A sentence that names the value and the repair.
    pub message: String,
}

/// What came of one prompt.
#[derive(Clone, Debug, PartialEq)]
pub struct Summary {
    /// How it ended.
    pub outcome: Outcome,
    /// The exit code of a headless run.
    pub exit: u8,
    /// The text of the last answer.
    pub text: String,
    /// `PROVIDER/MODEL` that was asked last; `None` when the run did not start.
    pub model: Option<String>,
    /// How often the model was asked.
    pub turns: u64,
    /// Tokens over all turns.
    pub usage: Usage,
    /// What they cost; `None` when a price or a count is not known.
    pub cost: Option<Money>,
    /// What was to be told to the model ([`Op::Steer`]) and was not: the end came first.
    pub undelivered: Vec<String>,
    /// Whether the prompt itself was taken back ([`Op::TakeBack`]): the model does not see it again.
    pub withdrawn: bool,
    /// Every refused call, in order.
    pub denied: Vec<Denied>,
    /// Physical paths that the tools created or changed, each once, in order.
    pub changed: Vec<PathBuf>,
    /// Wall time from the submission.
    pub duration: Duration,
    /// What went wrong, if anything did.
    pub fault: Option<Fault>,
}

impl Summary {
    /// Returns the end of what asked no model: no answer, no use, nothing denied or changed.
    #[must_use]
    pub fn unasked(outcome: Outcome, exit: u8, duration: Duration) -> Self {
        Self {
            outcome,
            exit,
            text: String::new(),
            model: None,
            turns: 0,
            usage: Usage::default(),
            cost: None,
            undelivered: Vec::new(),
            withdrawn: false,
            denied: Vec::new(),
            changed: Vec::new(),
            duration,
            fault: None,
        }
    }
}

/// Bounds of one prompt; `None` = unbounded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Budgets {
    /// How often the model may be asked.
    pub turns: Option<u64>,
    /// Tokens over all turns, as the provider counts them.
    pub tokens: Option<u64>,
    /// Wall time.
    pub time: Option<Duration>,
    /// Money over all turns. A model whose price is not known is not asked then.
    pub cost: Option<Money>,
    /// How often in a row the same calls may have the same results, at least 2; `None` = 5.
    pub repeats: Option<u64>,
}
