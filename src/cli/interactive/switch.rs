//! Going on with the same conversation under another model, effort or profile.
//!
//! The layers that were read at the start are settled anew, models are opened on a thread of their
//! own (a key may come from a command), and then a new agent takes the place of the one that is idle:
//! with the conversation so far, the same session, and the memory of its tools. Its subject is
//! computed as every other's, and the session says so with its first entry.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::{
    agent::{Journal, Record},
    config::Choice,
    host::secrets::Handed,
    message::{Message, Redactor},
    session,
    tui::Conversation,
};

use super::{
    super::{
        assembly::{Assembly, Models},
        checkpoints::Checkpointing,
        credentials::Keys,
        error::CliError,
        journal::{SharedLog, Started},
        setup::Setup,
        signals::Signals,
    },
    House,
};

/// Models that were opened, with what takes their keys out of what is said.
pub(super) type Slot = Arc<Mutex<Option<(Models, Redactor)>>>;

/// What is to take the place of the setup.
#[derive(Clone)]
pub(super) struct Wanted {
    pub(super) setup: Arc<Setup>,
    pub(super) models: Slot,
    pub(super) choice: Choice,
}

impl Wanted {
    /// Says whether its models are being opened.
    pub(super) fn is_awaited(&self) -> bool {
        Arc::strong_count(&self.models) > 1
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Opens the models of a setup.
///
/// # Errors
/// As at the start of a run.
pub(super) fn open(setup: &Setup, slot: &Slot, handed: &Handed) -> Result<u8, CliError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| CliError::internal(format!("cannot open the model: {error}")))?;
    let mut signals = {
        let _inside = runtime.enter();
        Signals::listen()
    };
    let mut keys = Keys::new(setup, handed, &runtime, &mut signals);
    let models = Models::open(setup, &mut keys)?;
    let redactor = keys.redactor();
    *lock(slot) = Some((models, redactor));
    Ok(0)
}

/// A session that several agents write one after the other, and the conversation so far.
#[derive(Clone, Default)]
pub(super) struct Kept(Arc<Mutex<Inner>>);

#[derive(Default)]
struct Inner {
    id: Option<String>,
    journal: Option<Box<dyn Journal>>,
    history: Vec<Message>,
    log: Option<SharedLog>,
    checkpoints: Option<Arc<Checkpointing>>,
}

impl Kept {
    pub(super) fn of(started: Started) -> Self {
        let Started { id, history, journal, log, checkpoints, .. } = started;
        Self(Arc::new(Mutex::new(Inner { id, journal, history, log, checkpoints })))
    }

    /// Returns the session as an agent gets it, every call with its result.
    pub(super) fn started(&self) -> Started {
        let inner = lock(&self.0);
        Started {
            id: inner.id.clone(),
            history: session::pair(inner.history.clone()),
            journal: Some(Box::new(self.clone())),
            notices: Vec::new(),
            log: inner.log.clone(),
            checkpoints: inner.checkpoints.clone(),
        }
    }
}

impl Journal for Kept {
    fn append(&mut self, record: Record<'_>) -> Result<(), String> {
        let mut inner = lock(&self.0);
        match record {
            Record::Message(message) => inner.history.push(message.clone()),
            Record::Withdrawn(count) => session::take_back(&mut inner.history, count),
            Record::Compaction { messages, .. } => inner.history = messages.to_vec(),
            _ => {}
        }
        inner.journal.as_mut().map_or(Ok(()), |journal| journal.append(record))
    }

    fn sync(&mut self) -> Result<(), String> {
        lock(&self.0).journal.as_mut().map_or(Ok(()), |journal| journal.sync())
    }
}

impl House<'_> {
    /// Goes on with what was made ready.
    pub(super) fn go_on(&mut self) -> Result<Conversation, String> {
        let ready = self.wanted.take().and_then(|wanted| {
            let (models, redactor) = lock(&wanted.models).take()?;
            Some((wanted, models, redactor))
        });
        let Some((Wanted { setup, choice, .. }, models, redactor)) = ready else {
            return Err("nothing was made ready to go on with; say it anew".to_owned());
        };
        let sentence = |error: &CliError| error.lines().join("\n");
        // What an earlier model's key was stays a secret.
        let redactor = self.assembly.redactor().and(&redactor);
        let assembly = Assembly::new(&setup, models, redactor).map_err(|e| sentence(&e))?;
        let old = (
            std::mem::replace(&mut self.assembly, assembly),
            std::mem::replace(&mut self.setup, setup),
        );
        let before = self.context.clone();
        let talk = self.talk(self.run, before.as_deref());
        let mut talk = match talk {
            Ok(talk) => talk,
            Err(error) => {
                (self.assembly, self.setup) = old;
                return Err(sentence(&error));
            }
        };
        talk.said = self.said(&choice, &talk.facts);
        talk.notices.splice(0..0, self.assembly.model_notices().cloned());
        Ok(talk)
    }
}

#[cfg(test)]
mod tests {
    use crate::{
        agent::{Compacted, compact::Reason},
        message::{Block, Role},
    };

    use super::*;

    fn said(role: Role, text: &str) -> Message {
        Message { role, blocks: vec![Block::Text { text: text.to_owned() }] }
    }

    #[test]
    fn whoever_goes_on_has_the_conversation_as_it_was_recorded() {
        let started = Started {
            id: Some("abc".to_owned()),
            history: vec![said(Role::User, "before")],
            journal: None,
            notices: vec!["told once".to_owned()],
            checkpoints: None,
            log: None,
        };
        let mut kept = Kept::of(started);
        kept.append(Record::Message(&said(Role::Assistant, "answer"))).unwrap();
        kept.sync().unwrap();
        let texts =
            |started: &Started| started.history.iter().map(Message::text).collect::<Vec<_>>();
        let next = kept.started();
        assert_eq!((next.id.as_deref(), next.notices.len()), (Some("abc"), 0));
        assert_eq!(texts(&next), ["before", "answer"]);
        // The next agent writes to the same, and a summary takes the place of what it stands for.
        let mut journal = next.journal.unwrap();
        let done = Compacted {
            reason: Reason::Asked,
            before: 9,
            after: 1,
            trimmed: 0,
            summarised: 2,
            summary: None,
        };
        let messages = [said(Role::User, "the summary")];
        journal.append(Record::Compaction { done: &done, messages: &messages }).unwrap();
        journal.append(Record::Message(&said(Role::User, "more"))).unwrap();
        assert_eq!(texts(&kept.started()), ["the summary", "more"]);
    }
}
