//! Going on with the same conversation under another model, effort or profile.
//!
//! The layers that were read at the start are settled anew, models are opened on a thread of their
//! own (a key may come from a command), and then a new agent takes the place of the one that is idle:
//! with the conversation so far, the same session, and the memory of its tools. Its subject is
//! computed as every other's, and the session says so with its first entry.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::{
    agent::{Journal, Record, Shelf},
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

/// A session that several agents write one after the other, and where the conversation lies between
/// them.
#[derive(Clone, Default)]
pub(super) struct Kept {
    inner: Arc<Mutex<Inner>>,
    shelf: Shelf,
}

#[derive(Default)]
struct Inner {
    id: Option<String>,
    journal: Option<Box<dyn Journal>>,
    log: Option<SharedLog>,
    checkpoints: Option<Arc<Checkpointing>>,
}

impl Kept {
    pub(super) fn of(started: Started) -> Self {
        let Started { id, history, journal, log, checkpoints, .. } = started;
        let kept = Self {
            inner: Arc::new(Mutex::new(Inner { id, journal, log, checkpoints })),
            shelf: Shelf::default(),
        };
        kept.shelf.put(history);
        kept
    }

    /// Returns where the agent is to lay the conversation while it is idle.
    pub(super) fn shelf(&self) -> Shelf {
        self.shelf.clone()
    }

    /// Returns the session as its first agent gets it.
    pub(super) fn begun(&self) -> Started {
        self.with(self.shelf.take())
    }

    /// Returns the session as the next agent gets it, every call with its result. The agent there is
    /// keeps its own, as it goes on when the next one cannot be made.
    pub(super) fn gone_on_with(&self) -> Started {
        self.with(session::pair(self.shelf.copy()))
    }

    fn with(&self, history: Vec<Message>) -> Started {
        let inner = lock(&self.inner);
        Started {
            id: inner.id.clone(),
            history,
            journal: Some(Box::new(self.clone())),
            notices: Vec::new(),
            log: inner.log.clone(),
            checkpoints: inner.checkpoints.clone(),
        }
    }
}

impl Journal for Kept {
    fn append(&mut self, record: Record<'_>) -> Result<(), String> {
        lock(&self.inner).journal.as_mut().map_or(Ok(()), |journal| journal.append(record))
    }

    fn sync(&mut self) -> Result<(), String> {
        lock(&self.inner).journal.as_mut().map_or(Ok(()), |journal| journal.sync())
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
    use crate::message::{Block, Role};

    use super::*;

    #[test]
    fn the_first_agent_has_the_conversation_and_the_next_one_what_it_laid_down() {
        let said = |text: &str| Message {
            role: Role::User,
            blocks: vec![Block::Text { text: text.to_owned() }],
        };
        let started = Started {
            id: Some("abc".to_owned()),
            history: vec![said("before")],
            journal: None,
            notices: vec!["told once".to_owned()],
            checkpoints: None,
            log: None,
        };
        let texts =
            |started: &Started| started.history.iter().map(Message::text).collect::<Vec<_>>();
        let kept = Kept::of(started);
        let first = kept.begun();
        assert_eq!(texts(&first), ["before"]);
        assert_eq!((first.id.as_deref(), first.notices.len()), (Some("abc"), 0));
        // It is not there twice.
        assert_eq!(texts(&kept.gone_on_with()), [""; 0]);
        kept.shelf().put(vec![said("before"), said("more")]);
        for _ in 0..2 {
            assert_eq!(texts(&kept.gone_on_with()), ["before", "more"]);
        }
    }
}
