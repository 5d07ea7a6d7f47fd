//! One session, open to be appended to. Nothing is created, repaired or copied before the first
//! entry, so that opening and leaving changes nothing.

use std::{
    ffi::{OsStr, OsString},
    fs::File,
    io,
    path::{Path, PathBuf},
    time::SystemTime,
};

use crate::{
    authority::Grant,
    host::{
        HostError, environment,
        state::{Directory, Lines},
    },
};

use super::{
    Found, SessionError,
    entry::{Entry, Header, Read},
    scan::{self, LONGEST, Part, Summary},
};

/// How many damaged bytes of a session are set aside at most, in bytes, line breaks included.
const ASIDE: u64 = 64 << 20;

/// A session that entries are appended to.
#[derive(Debug)]
pub struct Log {
    place: Place,
    stage: Stage,
    /// The file as it was before a repair moved another into its place. Its lock is kept, so that
    /// whoever opened it before does not append to a file without a name.
    replaced: Option<Lines>,
    /// Whether the file's name is on the disk.
    is_named: bool,
    /// What the session is called.
    name: Option<String>,
}

/// Which session it is and where it belongs.
#[derive(Debug)]
struct Place {
    id: String,
    name: OsString,
    path: PathBuf,
    directory: Directory,
    workspace: PathBuf,
    grant: Grant,
}

/// How far a log is from being written to.
#[derive(Debug)]
pub(super) enum Stage {
    /// There is no file yet. A sub-agent's names the session of its parent.
    New { started: SystemTime, task_of: Option<String> },
    /// The file is another process's, another workspace's or cannot be written: a copy of its first
    /// bytes is made.
    Copy { source: File, from: PathBuf, parent: String, until: u64, started: SystemTime },
    /// The file is there and locked, and damaged as the summary says.
    Damaged { lines: Lines, summary: Summary },
    /// The file is there, locked and in order, with so many messages.
    Ready { lines: Lines, messages: u64 },
}

impl Stage {
    /// A copy of the first `until` bytes of a session.
    pub(super) fn copy(source: File, found: &Found, until: u64, started: SystemTime) -> Self {
        let (from, parent) = (found.path.clone(), found.id.clone());
        Self::Copy { source, from, parent, until, started }
    }
}

impl Log {
    pub(super) fn new(
        id: String,
        name: OsString,
        directory: Directory,
        workspace: &Path,
        grant: Grant,
        stage: Stage,
    ) -> Self {
        let path = directory.path().join(&name);
        let is_named = matches!(stage, Stage::Ready { .. });
        let place = Place { id, name, path, directory, workspace: workspace.to_owned(), grant };
        Self { place, stage, replaced: None, is_named, name: None }
    }

    /// As it is, with the name that the session has by now.
    #[must_use]
    pub(super) fn named(self, name: Option<String>) -> Self {
        Self { name, ..self }
    }

    /// Returns what the session is called; it is what its file says.
    pub fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// Returns the session's identifier.
    pub fn id(&self) -> &str {
        &self.place.id
    }

    /// Returns the session's file, which is not there before the first entry of a new session.
    pub fn path(&self) -> &Path {
        &self.place.path
    }

    /// Returns how many messages the session has, as far as that is known: of a copy that is still to be
    /// made, it is not.
    pub fn messages(&self) -> Option<u64> {
        match &self.stage {
            Stage::New { .. } => Some(0),
            Stage::Copy { .. } => None,
            Stage::Damaged { summary, .. } => Some(summary.messages),
            Stage::Ready { messages, .. } => Some(*messages),
        }
    }

    /// Appends one entry with one write. It is in the file, though not yet on the disk, when this
    /// returns: what the entry tells of may be done then. The first call also makes what opening
    /// left undone: the file and its header, a repair, or a copy.
    ///
    /// # Errors
    /// [`SessionError::Write`] when it cannot be kept, [`SessionError::TooLong`] for an entry that
    /// would not be read back. The file is as it was before, and the call can be tried again.
    pub fn append(&mut self, entry: &Entry<'_>) -> Result<(), SessionError> {
        let at = stamp(environment::now());
        let path = self.place.path.clone();
        let name = match entry {
            Entry::Name(name) => Some((*name).to_owned()),
            _ => self.name.clone(),
        };
        let (lines, messages) = self.ready()?;
        let line = entry.line(&at, *messages, name.as_deref())?;
        if line.len() >= LONGEST {
            return Err(SessionError::TooLong { path, length: line.len(), most: LONGEST });
        }
        lines.append(&line).map_err(SessionError::write)?;
        *messages += u64::from(matches!(entry, Entry::Message(_)));
        self.name = name;
        Ok(())
    }

    /// Waits until everything appended so far is on the disk; to be called at the end of a turn.
    ///
    /// # Errors
    /// [`SessionError::Write`] when it may be lost with the power.
    pub fn sync(&mut self) -> Result<(), SessionError> {
        let Stage::Ready { lines, .. } = &self.stage else { return Ok(()) };
        lines.sync().map_err(SessionError::write)?;
        if !self.is_named {
            self.place.directory.sync().map_err(SessionError::write)?;
            self.is_named = true;
        }
        Ok(())
    }

    /// Makes what opening left undone, and waits until it is on the disk.
    pub(super) fn make(&mut self) -> Result<(), SessionError> {
        self.ready()?;
        self.sync()
    }

    fn ready(&mut self) -> Result<(&mut Lines, &mut u64), SessionError> {
        let place = &self.place;
        let made = match &mut self.stage {
            Stage::Ready { .. } => None,
            Stage::New { started, task_of } => {
                Some((place.create(*started, task_of.as_deref())?, 0))
            }
            Stage::Copy { source, from, parent, until, started } => {
                let header = place.header(*started, Some(parent))?;
                Some(place.rebuild(source, from, *until, Some(&header))?)
            }
            Stage::Damaged { lines, summary } => {
                let source = lines.reader().map_err(SessionError::read)?;
                if summary.damaged_lines > 0 {
                    place.set_aside(&source)?;
                }
                if summary.inside {
                    Some(place.rebuild(&source, &place.path, u64::MAX, None)?)
                } else {
                    lines.cut(summary.end).map_err(SessionError::write)?;
                    None
                }
            }
        };
        self.advance(made);
        match &mut self.stage {
            Stage::Ready { lines, messages } => Ok((lines, messages)),
            // `advance` leaves no other stage.
            Stage::New { .. } | Stage::Copy { .. } | Stage::Damaged { .. } => {
                Err(SessionError::write(in_use(&self.place.path)))
            }
        }
    }

    /// Goes on to the last stage, with a file that was made or with the one that was open already.
    fn advance(&mut self, made: Option<(Lines, u64)>) {
        let placeholder = Stage::New { started: SystemTime::UNIX_EPOCH, task_of: None };
        self.stage = match (std::mem::replace(&mut self.stage, placeholder), made) {
            (old, Some((lines, messages))) => {
                if let Stage::Damaged { lines, .. } = old {
                    self.replaced = Some(lines);
                }
                Stage::Ready { lines, messages }
            }
            (Stage::Damaged { lines, summary }, None) => {
                Stage::Ready { lines, messages: summary.messages }
            }
            (stage, None) => stage,
        };
    }
}

impl Place {
    fn header(&self, started: SystemTime, parent: Option<&str>) -> Result<Vec<u8>, SessionError> {
        Header::new(&self.id, &self.workspace, &stamp(started), parent).line()
    }

    fn create(&self, started: SystemTime, task_of: Option<&str>) -> Result<Lines, SessionError> {
        let header = Header {
            task: task_of.is_some(),
            ..Header::new(&self.id, &self.workspace, &stamp(started), task_of)
        };
        let header = header.line()?;
        let mut lines = self.open_locked(&self.name)?;
        // A first attempt may have got no further.
        if lines.length().map_err(SessionError::write)? == 0 {
            lines.append(&header).map_err(SessionError::write)?;
        }
        Ok(lines)
    }

    /// Writes the events that are kept into a new file, under a header of its own when there is one,
    /// which takes the place of the old one; returns it with the number of messages.
    fn rebuild(
        &self,
        source: &File,
        from: &Path,
        until: u64,
        header: Option<&[u8]>,
    ) -> Result<(Lines, u64), SessionError> {
        let beside = suffixed(&self.name, ".part");
        let mut lines = self.open_locked(&beside)?;
        // A killed process may have left one there.
        lines.cut(0).map_err(SessionError::write)?;
        if let Some(header) = header {
            lines.append(header).map_err(SessionError::write)?;
        }
        let summary = scan::scan(again(source, from)?, from, until, |part| match part {
            Part::Kept(_, Read::Header { .. }) if header.is_some() => Ok(()),
            Part::Kept(line, _) => lines.append(line).map_err(SessionError::write),
            Part::Damaged(_) => Ok(()),
        })?;
        lines.sync().map_err(SessionError::write)?;
        self.directory.rename(&self.grant, &beside, &self.name).map_err(SessionError::write)?;
        self.directory.sync().map_err(SessionError::write)?;
        Ok((lines, summary.messages))
    }

    /// Copies the damaged bytes to another file, a line each, as far as there is room for them, and
    /// waits until they are on the disk.
    fn set_aside(&self, source: &File) -> Result<(), SessionError> {
        let mut aside = self
            .directory
            .append(&self.grant, &suffixed(&self.name, DAMAGED))
            .map_err(SessionError::write)?;
        let mut room = ASIDE.saturating_sub(aside.length().map_err(SessionError::write)?);
        scan::scan(again(source, &self.path)?, &self.path, u64::MAX, |part| {
            let Part::Damaged(bytes) = part else { return Ok(()) };
            let most = usize::try_from(room).unwrap_or(usize::MAX).min(bytes.len());
            room = room.saturating_sub(most as u64);
            match bytes.get(..most).filter(|bytes| !bytes.is_empty()) {
                Some(bytes) => aside.append(bytes).map_err(SessionError::write),
                None => Ok(()),
            }
        })?;
        aside.sync().map_err(SessionError::write)
    }

    /// Opens a file that nobody else may append to.
    fn open_locked(&self, name: &OsStr) -> Result<Lines, SessionError> {
        let lines = self.directory.append(&self.grant, name).map_err(SessionError::write)?;
        // A file system without locks is no reason to keep no session; the lock is refused only when
        // somebody else has it.
        if matches!(lines.try_lock(), Ok(false)) {
            return Err(SessionError::write(in_use(lines.path())));
        }
        Ok(lines)
    }
}

fn again(source: &File, path: &Path) -> Result<File, SessionError> {
    source.try_clone().map_err(|error| SessionError::read(HostError::io("read", path, error)))
}

fn in_use(path: &Path) -> HostError {
    HostError::io("lock", path, io::Error::from(io::ErrorKind::ResourceBusy))
}

const DAMAGED: &str = ".damaged";

/// Returns where a session's damaged bytes are set aside.
pub(super) fn damaged(path: &Path) -> PathBuf {
    suffixed(path.as_os_str(), DAMAGED).into()
}

/// Returns how many damaged bytes of a session can still be set aside.
pub(super) fn room(directory: &Directory, name: &OsStr) -> u64 {
    let there = directory.look(&suffixed(name, DAMAGED)).map_or(0, |looked| looked.size);
    ASIDE.saturating_sub(there)
}

fn suffixed(name: &OsStr, suffix: &str) -> OsString {
    let mut name = name.to_owned();
    name.push(suffix);
    name
}

/// Returns a time as entries carry it: RFC 3339 in UTC, with milliseconds.
pub(super) fn stamp(time: SystemTime) -> String {
    format!("{:.3}", timestamp(time))
}

/// Returns a time as file names carry it: sortable, in UTC, with seconds.
pub(super) fn file_stamp(time: SystemTime) -> String {
    timestamp(time).strftime("%Y%m%dT%H%M%SZ").to_string()
}

fn timestamp(time: SystemTime) -> jiff::Timestamp {
    // Only a clock beyond the year 9999 fails.
    jiff::Timestamp::try_from(time).unwrap_or(jiff::Timestamp::MAX)
}
