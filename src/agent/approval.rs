//! Asking a person about a call before it has an effect: what is shown, what can be answered, and whose
//! turn it is. One question is open at a time, in the order of the calls; a call that waits and is
//! dropped takes its question back and has done nothing.
//!
//! An approval widens nothing: authority is checked before anybody is asked, and again on what runs.

use std::{
    collections::BTreeSet,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::{mpsc::UnboundedSender, oneshot};

use crate::tool::preview::Change;

use super::{Event, driver::emit};

/// What a person is asked.
#[derive(Clone, Debug, PartialEq)]
pub struct Question {
    /// Its number, for the answer.
    pub id: u64,
    /// The tool.
    pub tool: String,
    /// Whose call it is: empty for the agent's own, else the sub-agent or the form of eval.
    pub by: Vec<String>,
    /// The atoms that the call needs.
    pub needs: Vec<String>,
    /// Why somebody is asked: the policy, and the layer that set it.
    pub why: String,
    /// What it would do, whole.
    pub shows: Vec<Shown>,
    /// What saying yes for the session would cover, when that can be said.
    pub always: Option<String>,
    /// What can be changed before it runs: the name of the argument, and its text.
    pub edits: Option<(&'static str, String)>,
    /// What happened since it was asked before.
    pub note: Option<String>,
}

/// A part of what a call would do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Shown {
    /// An argument or a fact: its name and its text.
    Text(String, String),
    /// How a file would change.
    Change(Change),
}

/// What a person says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Yes, this once.
    Once,
    /// Yes, and to all that [`Question::always`] names, in this session.
    Always,
    /// No, perhaps with a sentence for the model.
    Deny(Option<String>),
    /// This in the place of the text of [`Question::edits`].
    Edit(String),
}

/// What an answer for the session covers.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Covered {
    /// Every call of a tool.
    Tool(String),
    /// Every call of a tool about one physical path.
    Path(String, PathBuf),
    /// This very call: its arguments, and what else a person was shown of it.
    Exact(String, String, Vec<(&'static str, String)>),
}

impl Covered {
    /// Returns it in words.
    pub(super) fn words(&self) -> String {
        let what = match self {
            Self::Tool(tool) => format!("every later `{tool}`"),
            Self::Path(tool, path) => format!("every later `{tool}` of `{}`", path.display()),
            Self::Exact(tool, _, facts) => {
                let facts: Vec<String> =
                    facts.iter().map(|(name, text)| format!(" {name} `{text}`")).collect();
                format!("this very `{tool}` call, to the letter,{}", facts.concat())
            }
        };
        format!("{what}, in this session, of sub-agents too")
    }
}

/// Asks the person of one conversation. Its sub-agents ask through the same.
#[derive(Clone, Debug, Default)]
pub struct Approver {
    shared: Arc<Shared>,
    by: Vec<String>,
}

#[derive(Debug, Default)]
struct Shared {
    /// Held by whoever's question is open.
    turn: tokio::sync::Mutex<()>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    events: Option<UnboundedSender<Event>>,
    /// Nobody will answer any more.
    closed: bool,
    last: u64,
    waiting: Option<(u64, oneshot::Sender<Answer>)>,
    always: BTreeSet<Covered>,
}

impl Approver {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the same for calls of somebody else: a sub-agent, or a form.
    #[must_use]
    pub fn of(&self, whom: impl Into<String>) -> Self {
        let mut by = self.by.clone();
        by.push(whom.into());
        Self { shared: Arc::clone(&self.shared), by }
    }

    /// The conversation begins: questions go there. Those of a sub-agent go where its parent's do.
    pub(super) fn begin(&self, events: &UnboundedSender<Event>) {
        if self.by.is_empty() {
            let mut state = self.lock();
            state.events = Some(events.clone());
            state.closed = false;
        }
    }

    /// Nobody answers any more: what waits is not approved.
    pub(super) fn close(&self) {
        if self.by.is_empty() {
            let mut state = self.lock();
            state.closed = true;
            state.events = None;
            state.waiting = None;
        }
    }

    /// Takes an answer; one to a question that is not open is let be.
    pub(super) fn answer(&self, id: u64, answer: Answer) {
        let mut state = self.lock();
        if state.waiting.as_ref().is_some_and(|(asked, _)| *asked == id)
            && let Some((_, sender)) = state.waiting.take()
        {
            // Whoever asked may be gone.
            drop(sender.send(answer));
        }
    }

    /// Waits until no other question is open.
    pub(super) async fn turn(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.shared.turn.lock().await
    }

    /// Says whether a person said yes to it for the session.
    pub(super) fn knows(&self, covered: &Covered) -> bool {
        self.lock().always.contains(covered)
    }

    /// Remembers what a person said yes to, as long as the conversation lasts.
    pub(super) fn remember(&self, covered: Covered) {
        self.lock().always.insert(covered);
    }

    /// Asks, in one's turn; `None` when nobody answers. Dropping the future takes the question back.
    pub(super) async fn ask(&self, mut question: Question) -> Option<Answer> {
        let (sender, receiver) = oneshot::channel();
        let open = {
            let mut state = self.lock();
            let events = state.events.clone().filter(|_| !state.closed)?;
            state.last += 1;
            question.id = state.last;
            question.by.clone_from(&self.by);
            state.waiting = Some((question.id, sender));
            Open { approver: self, events, id: question.id }
        };
        // A front end that is gone answers nothing.
        open.events.send(Event::Approval(Box::new(question))).ok()?;
        receiver.await.ok()
    }
}

/// A question that is open.
struct Open<'a> {
    approver: &'a Approver,
    events: UnboundedSender<Event>,
    id: u64,
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        let mut state = self.approver.lock();
        if state.waiting.as_ref().is_some_and(|(id, _)| *id == self.id) {
            state.waiting = None;
            drop(state);
            emit(&self.events, Event::Withdrawn { id: self.id });
        }
    }
}

#[cfg(test)]
mod tests;
