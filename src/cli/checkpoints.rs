//! The checkpoints of a run: what is about to be changed is kept in the session's store, and what cannot
//! be kept is said once. No call is held up by it: the tool works all the same.

mod differ;
pub(crate) mod restore;
pub(crate) mod review;

use std::{
    fmt::Write as _,
    path::{Path, PathBuf},
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    thread::{self, JoinHandle},
};

use rustix::fs::FileType;

use crate::{
    host::{
        HostError,
        files::{self, Change, Keep},
    },
    session::checkpoint::{self, Checkpoints, Digest, Former, Inside, LONGEST_FILE, State, Wanted},
    tool::Keeper,
};

use super::terminal::one_line;

/// No change has this number.
const NONE: u64 = u64::MAX;
/// A count of messages that is not known yet.
const UNKNOWN: u64 = u64::MAX;
/// The most names of files in what the model is told.
const NAMED: usize = 50;

/// Keeps what a session's run changes.
#[derive(Debug)]
pub(crate) struct Checkpointing {
    state: PathBuf,
    workspace: PathBuf,
    id: String,
    /// How many messages the session has.
    messages: AtomicU64,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    store: Option<Checkpoints>,
    /// It was said that nothing is kept.
    is_said: bool,
    notices: Vec<String>,
    /// How many messages there were when the prompt began.
    prompt: u64,
    /// The group of the changes from here on, once there was one, and whether they put something back.
    group: Option<(u64, bool)>,
    /// The session that this one is a copy of, whose checkpoints are not taken along yet, and how many
    /// messages the copy began with.
    from: Option<(String, u64)>,
    sweeper: Option<JoinHandle<()>>,
}

impl Checkpointing {
    /// Nothing is looked at or made before the first change.
    pub(crate) fn new(state: &Path, workspace: &Path, id: &str) -> Self {
        Self {
            state: state.to_owned(),
            workspace: workspace.to_owned(),
            id: id.to_owned(),
            messages: AtomicU64::new(0),
            inner: Mutex::default(),
        }
    }

    /// The session is a copy of this one, and begins with so many messages. Its checkpoints are taken
    /// along when they are first wanted: a copy that says nothing leaves nothing.
    pub(crate) fn is_copy_of(&self, from: &str, messages: Option<u64>) {
        self.lock().from = Some((from.to_owned(), messages.unwrap_or(UNKNOWN)));
    }

    fn take_along(&self, inner: &mut Inner) {
        let Some((from, messages)) = inner.from.take() else { return };
        let notice = take_along(&self.state, &self.workspace, &from, &self.id, messages);
        inner.notices.extend(notice);
    }

    /// The session has so many messages now.
    pub(crate) fn has(&self, messages: Option<u64>) {
        self.messages.store(messages.unwrap_or(UNKNOWN), Ordering::Relaxed);
    }

    /// Returns the physical directory that everything is in.
    pub(crate) fn workspace(&self) -> &Path {
        &self.workspace
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does something with the store, which is opened when it is not yet.
    fn with<T>(
        &self,
        inner: &mut Inner,
        act: impl FnOnce(&mut Checkpoints) -> Result<T, HostError>,
    ) -> Result<T, HostError> {
        self.take_along(inner);
        if inner.store.is_none() {
            inner.store = Some(Checkpoints::open(&self.state, &self.workspace, &self.id)?);
        }
        let missing = || HostError::io("open", &self.state, rustix::io::Errno::NOENT);
        act(inner.store.as_mut().ok_or_else(missing)?)
    }

    /// Does something with the store of a session that has one.
    ///
    /// # Errors
    /// A sentence: there is none, or it cannot be used.
    fn there<T>(
        &self,
        act: impl FnOnce(&mut Checkpoints) -> Result<T, HostError>,
    ) -> Result<T, String> {
        let mut inner = self.lock();
        self.take_along(&mut inner);
        if inner.store.is_none() {
            let found = checkpoint::View::read(&self.state, &self.workspace, &self.id);
            match found {
                Ok(Some(_)) => {}
                Ok(None) => return Err("nothing was changed by kli in this session".to_owned()),
                Err(error) => {
                    return Err(format!("cannot read the checkpoints: {}", error.sentence()));
                }
            }
        }
        self.with(&mut inner, act)
            .map_err(|error| format!("cannot use the checkpoints: {}", error.sentence()))
    }

    /// Begins a group of changes that put something back; returns its number.
    fn begin_undo(&self, group: u64) {
        let mut inner = self.lock();
        inner.group = Some((group, true));
        inner.prompt = self.messages.load(Ordering::Relaxed);
    }

    fn end_undo(&self) {
        self.lock().group = None;
    }

    fn keep(&self, inner: &mut Inner, change: &Change<'_>) -> Result<u64, HostError> {
        let at = self.messages.load(Ordering::Relaxed);
        let prompt = inner.prompt.min(at);
        let given = inner.group;
        let wanted = self.covered(change);
        let (number, group) = self.with(inner, |store| {
            let (group, undoes) = given.unwrap_or_else(|| (store.book().next_group(), false));
            let (path, before) = match wanted {
                Ok(covered) => covered,
                Err(why) => {
                    let name = one_line(&change.path.to_string_lossy());
                    store.name_elsewhere(group, at, name, why.to_owned())?;
                    return Ok((NONE, (group, undoes)));
                }
            };
            let after = change.after.map_or(State::Absent, |content| State::File {
                digest: Digest::of(content),
                size: content.len() as u64,
                mode: change.before.as_ref().map_or(0o644, |before| before.mode & 0o777),
            });
            let made = change.made.iter().filter_map(|path| self.inside(path)).collect();
            let wanted = Wanted { group, undoes, prompt, at, path, before, after, made };
            Ok((store.keep(wanted)?, (group, undoes)))
        })?;
        inner.group = Some(group);
        if inner.sweeper.is_none() {
            let state = self.state.clone();
            // What it cannot do is done the next time; nobody waits for it but the end of the run.
            inner.sweeper = Some(thread::spawn(move || drop(checkpoint::sweep(&state))));
        }
        Ok(number)
    }

    fn inside(&self, path: &Path) -> Option<Inside> {
        Inside::new(path.strip_prefix(&self.workspace).ok()?.to_owned())
    }

    /// Returns the file and what stands there, or why it is not covered at all.
    fn covered(&self, change: &Change<'_>) -> Result<(Inside, Former), &'static str> {
        let relative =
            change.path.strip_prefix(&self.workspace).map_err(|_| "is outside the workspace")?;
        if Inside::is_of_git(relative) {
            return Err("is inside a `.git`");
        }
        let path = Inside::new(relative.to_owned()).ok_or("has too long a name")?;
        let Some(before) = &change.before else { return Ok((path, Former::Absent)) };
        let former = if before.kind != FileType::RegularFile {
            Former::Uncovered(format!("was {}", files::kind(before.kind)))
        } else if before.size > LONGEST_FILE {
            Former::Uncovered(format!("had {} bytes, more than {LONGEST_FILE}", before.size))
        } else {
            match before.content(LONGEST_FILE) {
                Some(content) => Former::File(content, before.mode),
                None => Former::Uncovered("could not be read".to_owned()),
            }
        };
        Ok((path, former))
    }
}

/// Lets a copy of a session, which begins with so many messages of it, have its checkpoints; says what
/// kept it from that. The copy is good without them.
pub(crate) fn take_along(
    state: &Path,
    workspace: &Path,
    from: &str,
    to: &str,
    messages: u64,
) -> Option<String> {
    let error = Checkpoints::inherit(state, workspace, from, to, messages).err()?;
    Some(format!("the checkpoints do not go along, so `/undo` begins anew: {}", error.sentence()))
}

impl Keep for Checkpointing {
    fn before(&self, change: &Change<'_>) -> u64 {
        let mut inner = self.lock();
        match self.keep(&mut inner, change) {
            Ok(number) => number,
            Err(error) => {
                if !std::mem::replace(&mut inner.is_said, true) {
                    inner.notices.push(format!(
                        "no checkpoint is kept of what is changed, so `/undo` will not know of it: {}",
                        error.sentence()
                    ));
                }
                NONE
            }
        }
    }

    fn failed(&self, number: u64) {
        if number != NONE {
            let mut inner = self.lock();
            // Then an undoing finds the content from before, and has nothing to do.
            drop(self.with(&mut inner, |store| store.void(number)));
        }
    }
}

impl Keeper for Checkpointing {
    fn begin(&self) {
        let mut inner = self.lock();
        inner.prompt = self.messages.load(Ordering::Relaxed);
        inner.group = None;
    }

    fn notices(&self) -> Vec<String> {
        std::mem::take(&mut self.lock().notices)
    }

    fn news(&self) -> Option<String> {
        let mut inner = self.lock();
        self.take_along(&mut inner);
        // A session that never had any is not given a directory by a prompt.
        if inner.store.is_none() {
            let view = checkpoint::View::read(&self.state, &self.workspace, &self.id).ok()??;
            let (undone, stands) = view.book().untold();
            if undone.is_empty() && stands.is_empty() {
                return None;
            }
        }
        let told = self.with(&mut inner, |store| {
            let untold = store.book().untold();
            if !untold.0.is_empty() || !untold.1.is_empty() {
                store.told()?;
            }
            Ok(untold)
        });
        let (undone, stands) = told.ok()?;
        let list = |paths: &[Inside]| {
            let names: Vec<String> = paths
                .iter()
                .take(NAMED)
                .map(|path| format!("`{}`", one_line(&path.path().to_string_lossy())))
                .collect();
            let more = paths.len().saturating_sub(NAMED);
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            format!("{}{more}", names.join(", "))
        };
        let mut text = String::new();
        // Writing to a string cannot fail.
        if !undone.is_empty() {
            let _infallible = write!(
                text,
                "\nPut back to what stood there before your changes: {}.",
                list(&undone)
            );
        }
        if !stands.is_empty() {
            let _infallible = write!(
                text,
                "\nWith changes that this conversation does not tell of: {}.",
                list(&stands)
            );
        }
        (!text.is_empty()).then(|| {
            format!(
                "[checkpoints] The person changed which of your changes stand.{text}\nRead these \
                 files again before you rely on what you know of them."
            )
        })
    }
}

impl Drop for Checkpointing {
    fn drop(&mut self) {
        let sweeper = self.lock().sweeper.take();
        if let Some(sweeper) = sweeper {
            // Whatever became of it, the next run sweeps again.
            drop(sweeper.join());
        }
    }
}
