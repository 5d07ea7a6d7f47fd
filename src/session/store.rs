//! Where the sessions are: one directory for each workspace, one file for each session.

use std::{
    ffi::{OsStr, OsString},
    fs::File,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    time::SystemTime,
};

use sha2::{Digest, Sha256};

use crate::{
    authority::Grant,
    host::{
        HostError, environment,
        state::{Directory, Lines},
    },
    message::{Message, Usage},
};

use super::{
    Found, Notice, SessionError,
    entry::{Read, VERSION},
    log::{self, Log, Stage, file_stamp},
    pair::{begin, pair, unanswered},
    scan::{self, Part, Summary},
};

/// The directory of all sessions, below the state directory.
pub(super) const SESSIONS: &str = "sessions";

/// How many characters an identifier has.
const ID_LENGTH: usize = 8;

/// The sessions of one user.
#[derive(Clone, Debug)]
pub struct Store {
    root: PathBuf,
}

/// A session that was opened to go on.
#[derive(Debug)]
pub struct Opened {
    /// What to append to. Its identifier is another than the session's when a copy is made.
    pub log: Log,
    /// Whether it can be appended to; when not, the notices say why.
    pub is_kept: bool,
    /// The messages, every call with its result.
    pub messages: Vec<Message>,
    /// The tokens so far.
    pub usage: Usage,
    /// What the person should know.
    pub notices: Vec<Notice>,
}

/// A copy that was made of a session.
#[derive(Debug)]
pub struct Forked {
    /// Its identifier.
    pub id: String,
    /// What the person should know.
    pub notices: Vec<Notice>,
}

impl Store {
    /// Returns the store below a state directory (`$XDG_STATE_HOME/kli`). Nothing is created.
    pub fn new(state_dir: &Path) -> Self {
        Self { root: state_dir.to_owned() }
    }

    /// Returns the directory of a workspace's sessions. Its name is a hash of the physical path's
    /// bytes, so that no two paths ever share one.
    pub fn directory(&self, workspace: &Path) -> PathBuf {
        self.root.join(SESSIONS).join(key(workspace))
    }

    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    /// Opens a directory of sessions; `None` when it is not there. A link in its place is refused: a
    /// confined run can make one, and it would decide where the next one writes.
    pub(super) fn open_directory(&self, key: &OsStr) -> Result<Option<Directory>, HostError> {
        Directory::open(&self.root, &[OsStr::new(SESSIONS), key])
    }

    fn there(&self, key: &OsStr) -> Result<Directory, HostError> {
        self.open_directory(key)?.ok_or_else(|| {
            let path = self.root.join(SESSIONS).join(key);
            HostError::io("open", &path, std::io::Error::from(std::io::ErrorKind::NotFound))
        })
    }

    /// Opens a session's file for reading.
    pub(super) fn file(&self, found: &Found) -> Result<File, SessionError> {
        let open = || self.there(&found.key)?.read(&found.name);
        open().map_err(SessionError::read)
    }

    /// Begins a session. The directories are made at once, the file with the first entry, so that a
    /// run that says nothing leaves nothing.
    ///
    /// # Errors
    /// [`SessionError::Write`] when the directories cannot be made or written in.
    pub fn create(&self, workspace: &Path) -> Result<Log, SessionError> {
        self.begin(workspace, None)
    }

    /// Begins the session of a sub-agent of another session's, which `--continue` passes over.
    ///
    /// # Errors
    /// As for `create`.
    pub fn create_child(&self, workspace: &Path, parent: &str) -> Result<Log, SessionError> {
        self.begin(workspace, Some(parent.to_owned()))
    }

    fn begin(&self, workspace: &Path, task_of: Option<String>) -> Result<Log, SessionError> {
        let directory = self.writable(workspace).map_err(SessionError::write)?;
        let (id, name, started) = fresh();
        let stage = Stage::New { started, task_of };
        Ok(Log::new(id, name, directory, workspace, self.grant(), stage))
    }

    pub(super) fn writable(&self, workspace: &Path) -> Result<Directory, HostError> {
        let names = [OsStr::new(SESSIONS), &key(workspace)];
        let directory = Directory::create(&self.grant(), &self.root, &names)?;
        directory.writable()?;
        Ok(directory)
    }

    /// Opens a session to go on with it in the workspace. Nothing is written: a repair is made, and a
    /// copy of a session of another workspace, or that another process has, or that cannot be written,
    /// with the first entry.
    ///
    /// # Errors
    /// [`SessionError::Read`] or [`SessionError::Version`]. Damage is no error; the notices tell of
    /// it.
    pub fn open(&self, workspace: &Path, found: &Found) -> Result<Opened, SessionError> {
        let mut notices = Vec::new();
        let directory = self.there(&found.key).map_err(SessionError::read)?;
        let source = directory.read(&found.name).map_err(SessionError::read)?;
        let is_here = found.key == key(workspace);
        let claim = if is_here {
            self.claim(&directory, &found.name, &mut notices)?
        } else {
            Err(Barrier::Elsewhere)
        };
        // What was locked is read, not what has the name by now.
        let source = match &claim {
            Ok(lines) => lines.reader().map_err(SessionError::read)?,
            Err(_) => source,
        };
        let again = source.try_clone();
        let Contents { messages, usage, unreadable, summary, name: called } =
            read(source, &found.path)?;
        // The tail that another process is just writing is not damaged.
        let busy = matches!(claim, Err(Barrier::InUse | Barrier::Elsewhere));
        if summary.damaged_lines > 0 && (summary.inside || !busy) {
            notices.push(Notice::Damaged {
                lines: summary.damaged_lines,
                bytes: summary.damaged_bytes,
                aside: claim.is_ok().then(|| log::damaged(&found.path)),
                room: log::room(&directory, &found.name),
            });
        }
        if unreadable > 0 {
            notices.push(Notice::Unreadable { entries: unreadable });
        }
        let calls = unanswered(&messages);
        if calls > 0 {
            notices.push(Notice::Interrupted { calls });
        }
        let (messages, mut is_kept) = (begin(pair(messages)), true);
        let log = match claim {
            Ok(lines) => {
                let stage = if summary.end < summary.length || summary.inside {
                    Stage::Damaged { lines, summary }
                } else {
                    Stage::Ready { lines, messages: summary.messages }
                };
                let (id, name) = (found.id.clone(), found.name.clone());
                Log::new(id, name, directory, workspace, self.grant(), stage)
            }
            Err(barrier) => {
                let (id, name, started) = fresh();
                let (old, copy) = (found.id.clone(), id.clone());
                // Only a session of another process is sure to lie where a copy can be made.
                let (directory, place) = if is_here {
                    let place = directory.writable();
                    (directory, place)
                } else {
                    match self.writable(workspace) {
                        Ok(here) => (here, Ok(())),
                        Err(error) => (directory, Err(error)),
                    }
                };
                is_kept = place.is_ok();
                notices.push(match (barrier, place) {
                    (_, Err(error)) => Notice::NotKept { id: old, why: error.sentence() },
                    (Barrier::Elsewhere, Ok(())) => {
                        let from = self.overview(found).ok().and_then(|it| it.workspace);
                        Notice::Elsewhere { id: old, copy, workspace: from.unwrap_or_default() }
                    }
                    (Barrier::InUse, _) => Notice::InUse { id: old, copy },
                    (Barrier::ReadOnly(error), _) => {
                        Notice::ReadOnly { id: old, copy, why: error.sentence() }
                    }
                });
                let source =
                    again.map_err(|e| SessionError::read(HostError::io("read", &found.path, e)))?;
                let stage = Stage::copy(source, found, summary.end, started);
                Log::new(id, name, directory, workspace, self.grant(), stage)
            }
        };
        let log = log.named(called);
        Ok(Opened { log, is_kept, messages, usage, notices })
    }

    /// Makes a copy of a session, of any workspace, for this workspace, on the disk when this
    /// returns. The session itself is only read.
    ///
    /// # Errors
    /// [`SessionError::Read`], [`SessionError::Version`], or [`SessionError::Write`] when the copy
    /// cannot be made.
    pub fn fork(&self, workspace: &Path, found: &Found) -> Result<Forked, SessionError> {
        let source = self.file(found)?;
        let fail = |error| SessionError::read(HostError::io("read", &found.path, error));
        let summary = read(source.try_clone().map_err(fail)?, &found.path)?.summary;
        let mut notices = Vec::new();
        if summary.inside {
            let (lines, bytes) = (summary.damaged_lines, summary.damaged_bytes);
            notices.push(Notice::Damaged { lines, bytes, aside: None, room: 0 });
        }
        let directory = self.writable(workspace).map_err(SessionError::write)?;
        let (id, name, started) = fresh();
        let stage = Stage::copy(source, found, summary.end, started);
        Log::new(id.clone(), name, directory, workspace, self.grant(), stage).make()?;
        Ok(Forked { id, notices })
    }

    /// Opens the file to be appended to and locks it, or says what stands against it.
    fn claim(
        &self,
        directory: &Directory,
        name: &OsStr,
        notices: &mut Vec<Notice>,
    ) -> Result<Result<Lines, Barrier>, SessionError> {
        let lines = match directory.append(&self.grant(), name) {
            Ok(lines) => lines,
            Err(error) => return Ok(Err(Barrier::ReadOnly(error))),
        };
        match lines.try_lock() {
            Ok(true) => {}
            Ok(false) => return Ok(Err(Barrier::InUse)),
            Err(error) => notices.push(Notice::NoLock { why: error.sentence() }),
        }
        // Another process may have moved a repaired file into the place of the one that was just
        // opened; what is appended to that one would be lost.
        if directory.names_file(name, &lines).map_err(SessionError::read)? {
            Ok(Ok(lines))
        } else {
            Ok(Err(Barrier::InUse))
        }
    }

    pub(super) fn grant(&self) -> Grant {
        Grant::own_state(&self.root)
    }
}

/// Returns the name of a workspace's directory.
pub(super) fn key(workspace: &Path) -> OsString {
    use std::fmt::Write as _;
    let digest = Sha256::digest(workspace.as_os_str().as_bytes());
    let key = digest.iter().take(16).fold(String::with_capacity(32), |mut name, byte| {
        // Writing to a string cannot fail.
        let _infallible = write!(name, "{byte:02x}");
        name
    });
    key.into()
}

/// Returns a new identifier, its file's name, and now.
pub(super) fn fresh() -> (String, OsString, SystemTime) {
    let started = environment::now();
    let id: String = std::iter::repeat_with(|| fastrand::char('a'..='z')).take(ID_LENGTH).collect();
    let name = format!("{}-{id}.jsonl", file_stamp(started));
    (id, name.into(), started)
}

/// Why a session cannot be appended to.
enum Barrier {
    InUse,
    ReadOnly(HostError),
    /// It belongs to another workspace.
    Elsewhere,
}

struct Contents {
    messages: Vec<Message>,
    usage: Usage,
    unreadable: u64,
    summary: Summary,
    /// What the session is called.
    name: Option<String>,
}

fn read(file: File, path: &Path) -> Result<Contents, SessionError> {
    let (mut messages, mut usage, mut unreadable) = (Vec::new(), Usage::default(), 0);
    let (mut is_first, mut name) = (true, None);
    let summary = scan::scan(file, path, u64::MAX, |part| {
        let begins = std::mem::take(&mut is_first);
        match part {
            Part::Kept(_, Read::Header { version }) if begins => supported(version, path)?,
            // Only the first line tells the file's format; one further on is another file's, or broken.
            Part::Kept(_, Read::Header { version }) => unreadable += u64::from(version > VERSION),
            Part::Kept(_, Read::Message(message)) => messages.push(message),
            Part::Kept(_, Read::Compaction(shorter)) => messages = shorter,
            Part::Kept(_, Read::Withdrawn(count)) => take_back(&mut messages, count),
            Part::Kept(_, Read::Usage(tokens)) => usage.add(tokens),
            Part::Kept(_, Read::Name(called)) => name = Some(called),
            Part::Kept(_, Read::Unreadable) => unreadable += 1,
            Part::Kept(_, Read::Other) | Part::Damaged(_) => {}
        }
        Ok(())
    })?;
    Ok(Contents { messages, usage, unreadable, summary, name })
}

/// Takes messages that a person withdrew from the end of a conversation. Only what a person said can be:
/// an answer, or the result of a call, stays whatever a file says.
pub fn take_back(messages: &mut Vec<Message>, count: u64) {
    for _ in 0..count {
        let is_said = |message: &Message| {
            message.role == crate::message::Role::User && super::prompts::is_text(message)
        };
        if !messages.last().is_some_and(is_said) {
            return;
        }
        messages.pop();
    }
}

/// Refuses what a newer kli wrote.
fn supported(version: u64, path: &Path) -> Result<(), SessionError> {
    if version > VERSION {
        return Err(SessionError::Version { path: path.to_owned(), version });
    }
    Ok(())
}
