//! Where the sessions are: one directory for each workspace, one file for each session.

use std::{
    ffi::OsStr,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    time::SystemTime,
};

use sha2::{Digest, Sha256};

use crate::{
    authority::Grant,
    host::{HostError, environment, state},
    message::{Message, Usage},
};

use super::{
    Notice, SessionError,
    entry::{Read, VERSION},
    log::{Log, Stage, damaged_path, file_stamp},
    pair::{pair, unanswered},
    scan::{self, Part, Summary},
};

/// How many characters an identifier has.
const ID_LENGTH: usize = 8;

/// How many identifiers are named when none fits.
const NAMED: usize = 5;

/// Files up to this size are looked into before `--continue` takes them, in bytes: a run that died
/// before its first message must not hide the conversation before it.
const SMALL: u64 = 16 << 10;

/// The sessions of one user.
#[derive(Clone, Debug)]
pub struct Store {
    sessions: PathBuf,
}

/// A session that is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The identifier.
    pub id: String,
    /// The file.
    pub path: PathBuf,
    /// When it was last appended to.
    pub modified: SystemTime,
    /// Its size in bytes.
    pub size: u64,
    workspace: PathBuf,
}

/// A session that was opened to go on.
#[derive(Debug)]
pub struct Opened {
    /// What to append to. Its identifier is another than the session's when a copy is made.
    pub log: Log,
    /// The messages, every call with its result.
    pub messages: Vec<Message>,
    /// The tokens so far.
    pub usage: Usage,
    /// What the person should know.
    pub notices: Vec<Notice>,
}

impl Store {
    /// Returns the store below a state directory (`$XDG_STATE_HOME/kli`). Nothing is created.
    pub fn new(state_dir: &Path) -> Self {
        Self { sessions: state_dir.join("sessions") }
    }

    /// Returns the directory of a workspace's sessions. Its name is a hash of the physical path's
    /// bytes, so that no two paths ever share one.
    pub fn directory(&self, workspace: &Path) -> PathBuf {
        use std::fmt::Write as _;
        let digest = Sha256::digest(workspace.as_os_str().as_bytes());
        let name = digest.iter().take(16).fold(String::with_capacity(32), |mut name, byte| {
            // Writing to a string cannot fail.
            let _infallible = write!(name, "{byte:02x}");
            name
        });
        self.sessions.join(name)
    }

    /// Begins a session. The directories are made at once, the file with the first entry, so that a
    /// run that says nothing leaves nothing.
    ///
    /// # Errors
    /// [`SessionError::Write`] when the directories cannot be made. Where they are there but cannot
    /// be written, the first [`Log::append`] says so.
    pub fn create(&self, workspace: &Path) -> Result<Log, SessionError> {
        let (id, path, started) = self.fresh(workspace);
        let directory = self.directory(workspace);
        self.is_there(&directory).map_err(SessionError::write)?;
        state::create_dir(&self.grant(), &directory).map_err(SessionError::write)?;
        Ok(Log::new(id, path, workspace, self.grant(), Stage::New { started }))
    }

    /// Returns the workspace's sessions, the one that was last appended to first.
    ///
    /// # Errors
    /// [`SessionError::Read`] when the directory is there but cannot be read.
    pub fn list(&self, workspace: &Path) -> Result<Vec<Found>, SessionError> {
        let directory = self.directory(workspace);
        if !self.is_there(&directory).map_err(SessionError::read)? {
            return Ok(Vec::new());
        }
        let names = state::read_dir(&directory).map_err(SessionError::read)?;
        let mut found: Vec<Found> = names
            .iter()
            .filter_map(|name| {
                let id = id_of(name)?;
                let path = directory.join(name);
                // One that went away meanwhile, or is no regular file, is no session.
                let metadata = state::metadata(&path).ok().filter(std::fs::Metadata::is_file)?;
                let modified = metadata.modified().ok()?;
                let (size, workspace) = (metadata.len(), workspace.to_owned());
                Some(Found { id: id.to_owned(), path, modified, size, workspace })
            })
            .collect();
        found.sort_by(|a, b| (b.modified, &b.path).cmp(&(a.modified, &a.path)));
        Ok(found)
    }

    /// Returns the session that was last appended to; those without any message are passed over.
    ///
    /// # Errors
    /// [`SessionError::Read`] when the directory is there but cannot be read.
    pub fn latest(&self, workspace: &Path) -> Result<Option<Found>, SessionError> {
        Ok(self.list(workspace)?.into_iter().find(|found| {
            found.size > SMALL
                || state::open_read(&found.path)
                    .is_ok_and(|file| scan::has_message(file, SMALL).unwrap_or(true))
        }))
    }

    /// Returns the session whose identifier starts so.
    ///
    /// # Errors
    /// [`SessionError::Unknown`] and [`SessionError::Ambiguous`] name the identifiers there are.
    pub fn find(&self, workspace: &Path, prefix: &str) -> Result<Found, SessionError> {
        let all = self.list(workspace)?;
        let ids = |found: &[Found]| found.iter().map(|f| f.id.clone()).take(NAMED).collect();
        let fits = |found: &&Found| !prefix.is_empty() && found.id.starts_with(prefix);
        let mut fitting: Vec<Found> = all.iter().filter(fits).cloned().collect();
        match (fitting.pop(), fitting.is_empty()) {
            (Some(found), true) => Ok(found),
            (Some(found), false) => {
                fitting.push(found);
                Err(SessionError::Ambiguous { prefix: prefix.to_owned(), ids: ids(&fitting) })
            }
            (None, _) => {
                let prefix = prefix.escape_debug().to_string();
                Err(SessionError::Unknown { prefix, known: ids(&all) })
            }
        }
    }

    /// Opens a session to go on with it. Nothing is written: a repair is made, and a copy of a
    /// session that another process has or that cannot be written, with the first entry.
    ///
    /// # Errors
    /// [`SessionError::Read`], [`SessionError::Version`] or [`SessionError::TooLong`]. Damage is no
    /// error; the notices tell of it.
    pub fn open(&self, found: &Found) -> Result<Opened, SessionError> {
        let mut notices = Vec::new();
        let (lines, barrier) = self.claim(&found.path, &mut notices)?;
        let file = state::open_read(&found.path).map_err(SessionError::read)?;
        let Contents { messages, usage, unreadable, summary } = read(file, &found.path)?;
        // The tail that another process is just writing is not damaged.
        let busy = matches!(barrier, Some(Barrier::InUse));
        if summary.damaged_lines > 0 && (summary.inside || !busy) {
            notices.push(Notice::Damaged {
                lines: summary.damaged_lines,
                bytes: summary.damaged_bytes,
                aside: barrier.is_none().then(|| damaged_path(&found.path)),
            });
        }
        if unreadable > 0 {
            notices.push(Notice::Unreadable { entries: unreadable });
        }
        let calls = unanswered(&messages);
        if calls > 0 {
            notices.push(Notice::Interrupted { calls });
        }
        let log = self.log(found, summary, lines, barrier, &mut notices);
        Ok(Opened { log, messages: pair(messages), usage, notices })
    }

    /// Opens the file to be appended to and locks it, or says what stands against it.
    fn claim(
        &self,
        path: &Path,
        notices: &mut Vec<Notice>,
    ) -> Result<(Option<state::Lines>, Option<Barrier>), SessionError> {
        // Opened for reading first: the other call would make a file that is not there.
        state::open_read(path).map_err(SessionError::read)?;
        let lines = match state::open_append(&self.grant(), path) {
            Ok(lines) => lines,
            Err(error) => return Ok((None, Some(Barrier::ReadOnly(error)))),
        };
        match lines.try_lock() {
            Ok(true) => {}
            Ok(false) => return Ok((None, Some(Barrier::InUse))),
            Err(error) => notices.push(Notice::NoLock { why: error.sentence() }),
        }
        // Another process may have moved a repaired file into the place of the one that was just
        // opened; what is appended to that one would be lost.
        let named = state::metadata(path).map_err(SessionError::read)?.len();
        if lines.length().map_err(SessionError::read)? != named {
            return Ok((None, Some(Barrier::InUse)));
        }
        Ok((Some(lines), None))
    }

    fn log(
        &self,
        found: &Found,
        summary: Summary,
        lines: Option<state::Lines>,
        barrier: Option<Barrier>,
        notices: &mut Vec<Notice>,
    ) -> Log {
        let workspace = &found.workspace;
        let Some(lines) = lines else {
            let (id, path, started) = self.fresh(workspace);
            let (old, copy) = (found.id.clone(), id.clone());
            notices.push(match barrier {
                Some(Barrier::ReadOnly(error)) => {
                    Notice::ReadOnly { id: old, copy, why: error.sentence() }
                }
                Some(Barrier::InUse) | None => Notice::InUse { id: old, copy },
            });
            let stage = Stage::Copy {
                source: found.path.clone(),
                parent: found.id.clone(),
                until: summary.end,
                started,
            };
            return Log::new(id, path, workspace, self.grant(), stage);
        };
        let stage = if summary.end < summary.length || summary.inside {
            Stage::Damaged { lines, summary }
        } else {
            Stage::Ready(lines)
        };
        Log::new(found.id.clone(), found.path.clone(), workspace, self.grant(), stage)
    }

    /// Says whether a directory of sessions is there. A link in its place is refused: a confined run
    /// can make one, and it would decide where the next one writes.
    fn is_there(&self, directory: &Path) -> Result<bool, HostError> {
        for path in [self.sessions.as_path(), directory] {
            match state::metadata(path) {
                Ok(metadata) if metadata.is_dir() => {}
                Ok(_) => {
                    return Err(HostError::Kind {
                        path: path.to_owned(),
                        kind: "a link or a file",
                        wanted: "a directory; move it away",
                    });
                }
                Err(error) if error.errno() == Some(libc::ENOENT) => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    fn grant(&self) -> Grant {
        Grant::own_state(&self.sessions)
    }

    fn fresh(&self, workspace: &Path) -> (String, PathBuf, SystemTime) {
        let started = environment::now();
        let id: String =
            std::iter::repeat_with(|| fastrand::char('a'..='z')).take(ID_LENGTH).collect();
        let name = format!("{}-{id}.jsonl", file_stamp(started));
        (id, self.directory(workspace).join(name), started)
    }
}

/// Why a session cannot be appended to.
enum Barrier {
    InUse,
    ReadOnly(HostError),
}

struct Contents {
    messages: Vec<Message>,
    usage: Usage,
    unreadable: u64,
    summary: Summary,
}

fn read(file: std::fs::File, path: &Path) -> Result<Contents, SessionError> {
    let (mut messages, mut usage, mut unreadable) = (Vec::new(), Usage::default(), 0);
    let summary = scan::scan(file, path, u64::MAX, |part| {
        match part {
            Part::Kept(_, Read::Header { version }) if version > VERSION => {
                return Err(SessionError::Version { path: path.to_owned(), version });
            }
            Part::Kept(_, Read::Message(message)) => messages.push(message),
            Part::Kept(_, Read::Usage(tokens)) => usage.add(tokens),
            Part::Kept(_, Read::Unreadable) => unreadable += 1,
            Part::Kept(_, Read::Header { .. } | Read::Other) | Part::Damaged(_) => {}
        }
        Ok(())
    })?;
    Ok(Contents { messages, usage, unreadable, summary })
}

/// Returns the identifier in a session's file name; `None` for any other file.
fn id_of(name: &OsStr) -> Option<&str> {
    let (time, id) = name.to_str()?.strip_suffix(".jsonl")?.split_once('-')?;
    let fine = !id.is_empty() && id.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    (fine && time.len() == "20261129T174423Z".len()).then_some(id)
}
