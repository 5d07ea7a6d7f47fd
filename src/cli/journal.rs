//! The session of a run: found or begun, and written through the agent's journal.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use crate::{
    agent::{Compacted, Journal, Outcome, Record, compact::Reason, task::Kept},
    message::Message,
    session::{Compaction, Entry, Log, Opened, Store},
};

use super::{args::RunArguments, checkpoints::Checkpointing, error::CliError, setup::Setup};

/// A session that is being written, or none.
pub(crate) struct Started {
    /// Its identifier.
    pub(crate) id: Option<String>,
    /// The conversation so far, every call with its result.
    pub(crate) history: Vec<Message>,
    /// Where to write.
    pub(crate) journal: Option<Box<dyn Journal>>,
    /// Who keeps what is changed, when a session is kept.
    pub(crate) checkpoints: Option<Arc<Checkpointing>>,
    /// What was repaired, or could not be had.
    pub(crate) notices: Vec<String>,
    /// The same place to write, for what a person has to say besides the conversation.
    pub(crate) log: Option<SharedLog>,
}

/// A session that the agent and the person write to, an entry at a time.
pub(crate) type SharedLog = Arc<Mutex<Log>>;

/// The session that the flags and the settings ask for.
#[derive(Clone, Debug)]
pub(crate) struct Wish {
    is_kept: bool,
    continues: bool,
    resume: Option<String>,
    state: Option<PathBuf>,
    workspace: PathBuf,
}

impl Wish {
    pub(crate) fn new(run: &RunArguments, setup: &Setup) -> Self {
        let continues = run.continue_latest || run.resume.is_some();
        Self {
            is_kept: !run.no_session && (continues || setup.settings.session.or(true)),
            continues,
            resume: run.resume.clone(),
            state: setup.paths.as_ref().map(|paths| paths.state().to_owned()),
            workspace: setup.workspace.clone(),
        }
    }

    /// Says whether one that is there is asked for. To open it can take long: it is read whole.
    pub(crate) fn continues(&self) -> bool {
        self.continues
    }
}

/// Begins or opens a session.
///
/// # Errors
/// For a session that is asked for and cannot be opened. One that cannot be *begun* (a read-only
/// state directory) does not stop the run; it is said.
pub(crate) fn open(wish: &Wish) -> Result<Started, CliError> {
    let nothing = |notices| Started {
        id: None,
        history: Vec::new(),
        journal: None,
        checkpoints: None,
        notices,
        log: None,
    };
    if !wish.is_kept {
        return Ok(nothing(Vec::new()));
    }
    let Some(state) = &wish.state else {
        if wish.continues {
            return Err(CliError::config(
                "no home directory is known, so there are no sessions; set HOME to an absolute path",
            ));
        }
        return Ok(nothing(vec![
            "no home directory is known, so no session is kept; set HOME, or use `--no-session`"
                .to_owned(),
        ]));
    };
    let store = Store::new(state);
    let config = |error: crate::session::SessionError| CliError::config(error.to_string());
    let found = match &wish.resume {
        Some(id) => Some(store.find_anywhere(&wish.workspace, id).map_err(config)?),
        None if wish.continues => {
            let latest = store.latest(&wish.workspace).map_err(config)?;
            Some(latest.ok_or_else(|| {
                CliError::config(format!(
                    "there is no session of `{}` to go on with",
                    wish.workspace.display()
                ))
                .hint("leave `--continue` out to begin one")
            })?)
        }
        None => None,
    };
    if let Some(found) = found {
        let Opened { log, is_kept, messages, notices, .. } =
            store.open(&wish.workspace, &found).map_err(config)?;
        let notices = notices.iter().map(ToString::to_string).collect();
        if !is_kept {
            return Ok(Started { history: messages, ..nothing(notices) });
        }
        let (is_copy, held) = (log.id() != found.id, log.messages());
        let started = started(state, wish, log, messages, notices);
        if let Some(checkpoints) = started.checkpoints.as_ref().filter(|_| is_copy) {
            checkpoints.is_copy_of(&found.id, held);
        }
        return Ok(started);
    }
    Ok(match store.create(&wish.workspace) {
        Ok(log) => started(state, wish, log, Vec::new(), Vec::new()),
        Err(error) => {
            let error = error.to_string();
            let why = error.strip_prefix("cannot keep the session: ").unwrap_or(&error);
            nothing(vec![format!(
                "no session is kept: {why}; `--no-session` leaves it out without this line"
            )])
        }
    })
}

fn started(
    state: &Path,
    wish: &Wish,
    log: Log,
    history: Vec<Message>,
    notices: Vec<String>,
) -> Started {
    let id = log.id().to_owned();
    let checkpoints = Arc::new(Checkpointing::new(state, &wish.workspace, &id));
    checkpoints.has(log.messages());
    let log = Arc::new(Mutex::new(log));
    let journal =
        SessionJournal { log: Arc::clone(&log), checkpoints: Some(Arc::clone(&checkpoints)) };
    Started {
        id: Some(id),
        history,
        journal: Some(Box::new(journal)),
        checkpoints: Some(checkpoints),
        notices,
        log: Some(log),
    }
}

/// Begins the session of a sub-agent, linked to its parent's. Without one of the parent's there is
/// none; one that cannot be begun is said.
pub(crate) fn begin_child(wish: &Wish, parent: Option<&str>) -> Kept {
    let (Some(parent), Some(state)) = (parent, &wish.state) else { return Kept::default() };
    match Store::new(state).create_child(&wish.workspace, parent) {
        Ok(log) => Kept {
            id: Some(log.id().to_owned()),
            // What it changes belongs to its parent's prompt.
            journal: Some(Box::new(SessionJournal {
                log: Arc::new(Mutex::new(log)),
                checkpoints: None,
            })),
            notices: Vec::new(),
        },
        Err(error) => Kept { notices: vec![error.to_string()], ..Kept::default() },
    }
}

struct SessionJournal {
    log: SharedLog,
    checkpoints: Option<Arc<Checkpointing>>,
}

impl Journal for SessionJournal {
    fn append(&mut self, record: Record<'_>) -> Result<(), String> {
        let mut log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = match record {
            Record::Message(message) => Entry::Message(message),
            Record::Authority(report) => Entry::Authority(report),
            Record::Usage { model, usage } => Entry::Usage { model, usage },
            Record::Denied(denied) => {
                Entry::Denied { tool: &denied.tool, atom: &denied.atom, detail: &denied.detail }
            }
            Record::Changed(path) => Entry::Changed { path },
            Record::Compaction { done, messages } => {
                let done = compaction(done);
                return log
                    .append(&Entry::Compaction { done: &done, messages })
                    .map_err(|error| say(&error));
            }
            Record::Withdrawn(messages) => Entry::Withdrawn { messages },
            Record::End(summary) => Entry::End {
                outcome: outcome(summary.outcome),
                error: summary.fault.as_ref().map(|fault| fault.message.as_str()),
            },
        };
        log.append(&entry).map_err(|error| say(&error))?;
        if let (Record::Message(_), Some(checkpoints)) = (record, &self.checkpoints) {
            checkpoints.has(log.messages());
        }
        Ok(())
    }

    fn sync(&mut self) -> Result<(), String> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner).sync().map_err(|error| say(&error))
    }
}

/// The error names the file; what is added is what it means for the run, and the repair.
fn say(error: &crate::session::SessionError) -> String {
    format!(
        "{error}; the run stops, as what cannot be recorded is not done: mend that, or use \
         `--no-session`"
    )
}

fn compaction(done: &Compacted) -> Compaction {
    Compaction {
        reason: reason(done.reason).to_owned(),
        before: done.before,
        after: done.after,
        trimmed: done.trimmed as u64,
        summarised: done.summarised as u64,
        summary: done.summary.clone(),
    }
}

fn reason(reason: Reason) -> &'static str {
    match reason {
        Reason::Threshold => "threshold",
        Reason::ContextFull => "contextFull",
        Reason::Asked => "asked",
    }
}

fn outcome(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Ok => "ok",
        Outcome::Error => "error",
        Outcome::Denied => "denied",
        Outcome::Incomplete => "incomplete",
        Outcome::Budget => "budget",
        Outcome::Interrupted => "interrupted",
    }
}
