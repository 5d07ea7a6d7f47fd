//! What an agent is made of, and where it writes down what happens.

use std::sync::{Arc, Mutex, PoisonError};

use crate::{
    authority::{Confinement, Report, Subject},
    message::{Message, Redactor},
    model::{Model, ToolSpec},
    tool::{Context, Tool, inspect::Told},
};

use super::{
    Approver, Backlog, Budgets, Denied, Ledger, Surroundings,
    compact::{Compacted, Policy},
    turn::Retry,
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
    /// The conversation was made shorter.
    Compaction {
        /// What was done.
        done: &'a Compacted,
        /// The conversation that goes on.
        messages: &'a [Message],
    },
    /// So many messages at the end of the conversation are no part of it any more.
    Withdrawn(u64),
    /// How a prompt ended.
    End(&'a super::Summary),
}

/// Where a conversation lies while its agent is idle, so that whoever goes on with it needs no copy of
/// its own all along.
#[derive(Clone, Debug, Default)]
pub struct Shelf(Arc<Mutex<Vec<Message>>>);

impl Shelf {
    /// Lays a conversation down, in the place of what lies there.
    pub fn put(&self, history: Vec<Message>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = history;
    }

    /// Takes it up: nothing lies there then.
    pub fn take(&self) -> Vec<Message> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns a copy of what lies there.
    pub fn copy(&self) -> Vec<Message> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// What an agent is made of.
pub struct Parts {
    /// The model to ask.
    pub model: Arc<dyn Model>,
    /// Those that are asked in its place when it is overloaded or not reached, in order.
    pub fallbacks: Vec<Arc<dyn Model>>,
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
    /// Where to lay it while nothing is worked on; `None` = nobody goes on with it in another way.
    pub shelf: Option<Shelf>,
    /// Bounds of each prompt.
    pub budgets: Budgets,
    /// When and how far the conversation is made shorter.
    pub compaction: Policy,
    /// How failed requests are tried again.
    pub retry: Retry,
    /// Takes the keys of providers out of all that is said, before it is sent, shown or written.
    pub redactor: Redactor,
    /// Where the conversation is written down; `None` = nowhere.
    pub journal: Option<Box<dyn Journal>>,
    /// What the front end has not written yet; while it is full, answers are not read on.
    pub backlog: Arc<Backlog>,
    /// What the repository keeps for agents.
    pub surroundings: Surroundings,
    /// Whether `@path` in a prompt brings the file along.
    pub mentions: bool,
    /// What the run and its sub-agents use up together.
    pub ledger: Arc<Ledger>,
    /// Who asks the person about calls that need it; `None` = nobody can be asked.
    pub approver: Option<Approver>,
    /// What commands of the person's own may do; `None` = there is nobody to run any.
    pub own: Option<Arc<Subject>>,
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

/// Returns what the model may ask about its own run: the very value that calls are checked against.
pub(super) fn told(parts: &Parts, offered: &[ToolSpec], messages: usize) -> Told {
    let bound = |limit: Option<String>| limit.unwrap_or_else(|| "none".to_owned());
    let Budgets { turns, tokens, time, cost, .. } = parts.budgets;
    Told {
        report: Report::new(&parts.subject, parts.confinement),
        confinement: parts.confinement,
        tools: offered.iter().map(|tool| (tool.name.clone(), tool.description.clone())).collect(),
        context: vec![
            format!("model: {}", parts.model.name()),
            format!("system prompt: {} bytes", parts.system.len()),
            format!("messages from before this run: {messages}"),
            format!("budget of turns for each prompt: {}", bound(turns.map(|n| n.to_string()))),
            format!("budget of tokens for each prompt: {}", bound(tokens.map(|n| n.to_string()))),
            format!("budget of money for each prompt: {}", bound(cost.map(|c| c.to_string()))),
            format!(
                "budget of time for each prompt: {}",
                bound(time.map(|t| format!("{} s", t.as_secs())))
            ),
        ],
    }
}
