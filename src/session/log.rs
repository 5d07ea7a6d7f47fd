//! One session, open to be appended to. Nothing is created, repaired or copied before the first
//! entry, so that opening and leaving changes nothing.

use std::{
    ffi::OsString,
    io,
    path::{Path, PathBuf},
    time::SystemTime,
};

use crate::{
    authority::Grant,
    host::{
        HostError, environment,
        state::{self, Lines},
    },
};

use super::{
    SessionError,
    entry::{Entry, Header, Read},
    scan::{self, Part, Summary},
};

/// A session that entries are appended to.
#[derive(Debug)]
pub struct Log {
    place: Place,
    stage: Stage,
    /// The file as it was before a repair moved another into its place. Its lock is kept, so that
    /// whoever opened it before does not append to a file without a name.
    replaced: Option<Lines>,
}

/// Which session it is and where it belongs.
#[derive(Debug)]
struct Place {
    id: String,
    path: PathBuf,
    workspace: PathBuf,
    grant: Grant,
}

/// How far a log is from being written to.
#[derive(Debug)]
pub(super) enum Stage {
    /// There is no file yet.
    New { started: SystemTime },
    /// The file is another process's or cannot be written: a copy of its first bytes is made.
    Copy { source: PathBuf, parent: String, until: u64, started: SystemTime },
    /// The file is there and locked, and damaged as the summary says.
    Damaged { lines: Lines, summary: Summary },
    /// The file is there, locked and in order.
    Ready(Lines),
}

impl Log {
    pub(super) fn new(
        id: String,
        path: PathBuf,
        workspace: &Path,
        grant: Grant,
        stage: Stage,
    ) -> Self {
        let place = Place { id, path, workspace: workspace.to_owned(), grant };
        Self { place, stage, replaced: None }
    }

    /// Returns the session's identifier.
    pub fn id(&self) -> &str {
        &self.place.id
    }

    /// Returns the session's file, which is not there before the first entry of a new session.
    pub fn path(&self) -> &Path {
        &self.place.path
    }

    /// Appends one entry with one write. It is in the file, though not yet on the disk, when this
    /// returns: what the entry tells of may be done then. The first call also makes what opening
    /// left undone: the file and its header, a repair, or a copy.
    ///
    /// # Errors
    /// [`SessionError::Write`] when it cannot be kept. The file is as it was before, and the call
    /// can be tried again.
    pub fn append(&mut self, entry: &Entry<'_>) -> Result<(), SessionError> {
        let line = entry.line(&stamp(environment::now()))?;
        self.ready()?.append(&line).map_err(SessionError::write)
    }

    /// Waits until everything appended so far is on the disk; to be called at the end of a turn.
    ///
    /// # Errors
    /// [`SessionError::Write`] when it may be lost with the power.
    pub fn sync(&self) -> Result<(), SessionError> {
        match &self.stage {
            Stage::Ready(lines) => lines.sync().map_err(SessionError::write),
            Stage::New { .. } | Stage::Copy { .. } | Stage::Damaged { .. } => Ok(()),
        }
    }

    fn ready(&mut self) -> Result<&mut Lines, SessionError> {
        let place = &self.place;
        let made = match &mut self.stage {
            Stage::Ready(_) => None,
            Stage::New { started } => Some(place.create(*started)?),
            Stage::Copy { source, parent, until, started } => {
                Some(place.copy(source, parent, *until, *started)?)
            }
            Stage::Damaged { summary, .. } if summary.inside => Some(place.rewrite()?),
            Stage::Damaged { lines, summary } => {
                if summary.damaged_lines > 0 {
                    place.set_aside()?;
                }
                lines.cut(summary.end).map_err(SessionError::write)?;
                None
            }
        };
        self.advance(made);
        match &mut self.stage {
            Stage::Ready(lines) => Ok(lines),
            // `advance` leaves no other stage.
            Stage::New { .. } | Stage::Copy { .. } | Stage::Damaged { .. } => {
                Err(SessionError::write(in_use(&self.place.path)))
            }
        }
    }

    /// Goes on to the last stage, with a file that was made or with the one that was open already.
    fn advance(&mut self, made: Option<Lines>) {
        let placeholder = Stage::New { started: SystemTime::UNIX_EPOCH };
        self.stage = match (std::mem::replace(&mut self.stage, placeholder), made) {
            (Stage::Damaged { lines, .. }, Some(made)) => {
                self.replaced = Some(lines);
                Stage::Ready(made)
            }
            (_, Some(made)) => Stage::Ready(made),
            (Stage::Damaged { lines, .. } | Stage::Ready(lines), None) => Stage::Ready(lines),
            (stage, None) => stage,
        };
    }
}

impl Place {
    fn header(&self, started: SystemTime, parent: Option<&str>) -> Result<Vec<u8>, SessionError> {
        Header::new(&self.id, &self.workspace, &stamp(started), parent).line()
    }

    fn create(&self, started: SystemTime) -> Result<Lines, SessionError> {
        let header = self.header(started, None)?;
        let mut lines = open_locked(&self.grant, &self.path)?;
        if lines.length().map_err(SessionError::write)? == 0 {
            lines.append(&header).map_err(SessionError::write)?;
        }
        Ok(lines)
    }

    /// Copies the first bytes of another session into a new file, under a header of its own.
    fn copy(
        &self,
        source: &Path,
        parent: &str,
        until: u64,
        started: SystemTime,
    ) -> Result<Lines, SessionError> {
        let header = self.header(started, Some(parent))?;
        self.rebuild(source, until, Some(&header))
    }

    /// Writes the lines that are kept into a new file, which takes the place of the old one.
    fn rewrite(&self) -> Result<Lines, SessionError> {
        self.set_aside()?;
        self.rebuild(&self.path, u64::MAX, None)
    }

    fn rebuild(
        &self,
        source: &Path,
        until: u64,
        header: Option<&[u8]>,
    ) -> Result<Lines, SessionError> {
        let beside = suffixed(&self.path, ".part");
        let mut lines = open_locked(&self.grant, &beside)?;
        // A killed process may have left one there.
        lines.cut(0).map_err(SessionError::write)?;
        if let Some(header) = header {
            lines.append(header).map_err(SessionError::write)?;
        }
        let file = state::open_read(source).map_err(SessionError::read)?;
        scan::scan(file, source, until, |part| match part {
            Part::Kept(_, Read::Header { .. }) if header.is_some() => Ok(()),
            Part::Kept(line, _) => lines.append(line).map_err(SessionError::write),
            Part::Damaged(_) => Ok(()),
        })?;
        lines.sync().map_err(SessionError::write)?;
        state::rename(&self.grant, &beside, &self.path).map_err(SessionError::write)?;
        Ok(lines)
    }

    /// Copies the damaged bytes to another file, a line each, and waits until they are on the disk.
    fn set_aside(&self) -> Result<(), SessionError> {
        let mut damaged = state::open_append(&self.grant, &damaged_path(&self.path))
            .map_err(SessionError::write)?;
        let file = state::open_read(&self.path).map_err(SessionError::read)?;
        scan::scan(file, &self.path, u64::MAX, |part| match part {
            Part::Damaged(bytes) => damaged.append(bytes).map_err(SessionError::write),
            Part::Kept(..) => Ok(()),
        })?;
        damaged.sync().map_err(SessionError::write)
    }
}

/// Opens a file that nobody else may append to.
fn open_locked(grant: &Grant, path: &Path) -> Result<Lines, SessionError> {
    let lines = state::open_append(grant, path).map_err(SessionError::write)?;
    // A file system without locks is no reason to keep no session; the lock is refused only when
    // somebody else has it.
    if matches!(lines.try_lock(), Ok(false)) {
        return Err(SessionError::write(in_use(path)));
    }
    Ok(lines)
}

fn in_use(path: &Path) -> HostError {
    HostError::io("lock", path, io::Error::from(io::ErrorKind::ResourceBusy))
}

/// Returns where a session's damaged bytes are set aside.
pub(super) fn damaged_path(path: &Path) -> PathBuf {
    suffixed(path, ".damaged")
}

fn suffixed(path: &Path, suffix: &str) -> PathBuf {
    let mut name: OsString = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// Returns a time as entries carry it: RFC 3339 in UTC, with milliseconds.
fn stamp(time: SystemTime) -> String {
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
