//! What goes into the turn's machine and what comes out of it. Pure.

use std::{path::PathBuf, time::Duration};

use crate::{
    message::{Message, Money, ToolCall, ToolResult, Usage},
    model::{Delta, ModelError},
};

use super::{Denied, Event, Summary, compact::Compacted};

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
    /// Reference to show the model at the next boundary; alone it is no reason to ask.
    Reference(String),
    /// The same, when it is true whatever becomes of the prompt that it goes along with.
    News(String),
    /// Something that a person did themselves; the model reads of it with the next prompt.
    Did(String),
    /// A refusal outside the calls of this conversation: of what a prompt mentions, or of a
    /// sub-agent's call.
    Refused {
        /// The refusal.
        denied: Denied,
        /// Whether nothing has made it good.
        is_open: bool,
    },
    /// Tokens that a sub-agent used, and what they cost; its own session lists them.
    Spent(Usage, Option<Money>),
    /// A piece of the answer.
    Delta(Delta),
    /// The stream failed, or ended before it was done.
    Failed(ModelError),
    /// The delay before a retry is over.
    RetryDue,
    /// Make the conversation shorter, perhaps with a focus for the summary.
    Compact(Option<String>),
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
    /// The same; and a prompt of which nothing has come is taken back.
    TakeBack,
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
    /// What a person did not approve; that is no failure of the run.
    pub declined: Vec<Denied>,
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
    /// Append a compaction to the session: what was done, and the conversation that goes on.
    RecordCompaction(Box<(Compacted, Vec<Message>)>),
    /// Append to the session that so many messages at its end are taken back.
    RecordWithdrawn(u64),
    /// Make what was recorded durable.
    Sync,
    /// Ask the model with the history as it stands.
    Ask,
    /// Ask the model for a summary: with this message alone, and without tools.
    Summarise(Message),
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
