//! Checkpoints: what stood in the place of a file before kli changed it, kept so that it can be put
//! back. One directory for each session, below the state directory and outside of any repository:
//! `checkpoints/<workspace>/<session>/`, a log of lines and the contents by their SHA-256.
//!
//! A content is there whole before the line that names it, and the line before the file is changed,
//! so a kill at any moment leaves a store that is valid. Nothing is synced: a loss of power can take the
//! latest checkpoints, never a file's content, which `host` syncs itself; and what comes back is
//! compared with its digest. A confined run can write anything here: it is data, names no path outside of
//! the workspace, and whoever puts files back asks the run's authority.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    ffi::{OsStr, OsString},
    io::{BufRead as _, BufReader, Read as _},
    path::Path,
    sync::{Mutex, PoisonError},
};

use crate::{
    authority::Grant,
    host::{
        HostError,
        state::{Directory, Lines},
    },
};

use super::store::key;

mod book;
mod line;
mod sweep;

pub use book::{Book, Elsewhere, Step};
pub use line::{Change, Digest, Inside, State};
pub use sweep::sweep;

use line::Line;

/// The directory of all checkpoints, below the state directory.
const CHECKPOINTS: &str = "checkpoints";
/// The file of lines.
const LOG: &str = "log.jsonl";

/// The longest content that is kept, in bytes.
pub const LONGEST_FILE: u64 = 8 << 20;
/// The most bytes of contents that one session keeps.
pub const MOST_BYTES: u64 = 64 << 20;
/// The most changes that one session keeps.
pub const MOST_CHANGES: usize = 5_000;
/// The longest log that is read, in bytes.
const LONGEST_LOG: u64 = 64 << 20;
/// The longest line that is read, in bytes.
const LONGEST_LINE: u64 = 1 << 20;

/// The bounds of one store.
#[derive(Clone, Copy, Debug)]
struct Bounds {
    bytes: u64,
    changes: usize,
}

const BOUNDS: Bounds = Bounds { bytes: MOST_BYTES, changes: MOST_CHANGES };

/// What is to be kept of a file, and what it is about to become.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// The changes of one prompt, or of one undoing, have one number.
    pub group: u64,
    /// Whether it puts something back.
    pub undoes: bool,
    /// How many messages the session had when the prompt began.
    pub prompt: u64,
    /// How many it has now.
    pub at: u64,
    /// The file.
    pub path: Inside,
    /// What stands there.
    pub before: Former,
    /// What will stand there.
    pub after: State,
    /// Directories that were made for it.
    pub made: Vec<Inside>,
}

/// What stands in a file's place before it is changed.
#[derive(Clone, Debug)]
pub enum Former {
    /// Nothing.
    Absent,
    /// A regular file with this content and these permission bits.
    File(Vec<u8>, u32),
    /// Something that is not kept, and why.
    Uncovered(String),
}

/// The checkpoints of one session, open to be added to. The lock goes with it.
#[derive(Debug)]
pub struct Checkpoints {
    directory: Directory,
    grant: Grant,
    lines: Lines,
    book: Book,
    /// The contents that this process wrote, and their sizes: what others wrote is not trusted to be
    /// there.
    written: HashMap<Digest, u64>,
    /// Bytes of all contents.
    bytes: u64,
    /// The workspace's name.
    key: OsString,
    bounds: Bounds,
}

/// The checkpoints of one session, to be read.
#[derive(Debug)]
pub struct View {
    directory: Directory,
    book: Book,
}

/// What this process wrote down itself, by workspace: it need not believe the store.
static OWN: Mutex<BTreeMap<OsString, HashSet<Digest>>> = Mutex::new(BTreeMap::new());

/// Returns what tells a change's effect from any other.
fn seal(change: &Change) -> Digest {
    let Change { path, before, after, made, .. } = change;
    // Names, numbers and digests cannot fail to serialise.
    Digest::of(&serde_json::to_vec(&(path, before, after, made)).unwrap_or_default())
}

/// Lets a workspace's checkpoints count as those of an earlier run.
#[cfg(test)]
pub(crate) fn forget_own(workspace: &Path) {
    OWN.lock().unwrap().remove(&key(workspace));
}

fn names<'a>(key: &'a OsStr, id: &'a str) -> [&'a OsStr; 3] {
    [OsStr::new(CHECKPOINTS), key, OsStr::new(id)]
}

/// Reads the lines; what cannot be read or does not fit is left out.
fn read(directory: &Directory) -> Result<Book, HostError> {
    let mut book = Book::default();
    let file = match directory.read(OsStr::new(LOG)) {
        Ok(file) => file,
        Err(error) if error.errno() == Some(libc::ENOENT) => return Ok(book),
        Err(error) => return Err(error),
    };
    let path = directory.path().join(LOG);
    let mut reader = BufReader::new(file.take(LONGEST_LOG));
    let mut text = Vec::new();
    let mut lines = 0_usize;
    loop {
        text.clear();
        let count = reader
            .by_ref()
            .take(LONGEST_LINE)
            .read_until(b'\n', &mut text)
            .map_err(|source| HostError::io("read", &path, source))?;
        lines += 1;
        // A session of kli's own has no more.
        if count == 0 || lines > MOST_CHANGES * 8 {
            return Ok(book);
        }
        match serde_json::from_slice::<Line>(&text) {
            Ok(Line::Checkpoints { version, .. }) if version > line::VERSION => {
                return Err(HostError::Kind {
                    path,
                    kind: "of a newer format",
                    wanted: "one that this kli reads",
                });
            }
            Ok(line) => drop(book.apply(line)),
            Err(_) => {}
        }
    }
}

/// Returns a content, when it is the one that was kept.
fn content(directory: &Directory, digest: Digest) -> Result<Option<Vec<u8>>, HostError> {
    let found = directory.get(&digest.name(), LONGEST_FILE)?;
    Ok(found.filter(|content| Digest::of(content) == digest))
}

impl View {
    /// Reads the checkpoints of a session; `None` when it has none. Nothing is written.
    ///
    /// # Errors
    /// The host's refusal, also for a link in the place of a directory.
    pub fn read(root: &Path, workspace: &Path, id: &str) -> Result<Option<Self>, HostError> {
        let key = key(workspace);
        let Some(directory) = Directory::open(root, &names(&key, id))? else { return Ok(None) };
        let book = read(&directory)?;
        Ok(Some(Self { directory, book }))
    }

    /// Returns what they say.
    pub fn book(&self) -> &Book {
        &self.book
    }

    /// Returns a content; `None` when it is not the one that was kept.
    ///
    /// # Errors
    /// The host's refusal.
    pub fn content(&self, digest: Digest) -> Result<Option<Vec<u8>>, HostError> {
        content(&self.directory, digest)
    }
}

impl Checkpoints {
    /// Opens the checkpoints of a session below a state directory, and makes what is missing, for the
    /// user alone (0700, 0600).
    ///
    /// # Errors
    /// [`HostError::Locked`] while another process has them; the host's refusal.
    pub fn open(root: &Path, workspace: &Path, id: &str) -> Result<Self, HostError> {
        Self::open_within(root, workspace, id, BOUNDS)
    }

    fn open_within(
        root: &Path,
        workspace: &Path,
        id: &str,
        bounds: Bounds,
    ) -> Result<Self, HostError> {
        let grant = Grant::own_state(root);
        let key = key(workspace);
        let directory = Directory::create(&grant, root, &names(&key, id))?;
        if !directory.try_lock() {
            return Err(HostError::Locked { path: directory.path().to_owned() });
        }
        let book = read(&directory)?;
        let mut lines = directory.append(&grant, OsStr::new(LOG))?;
        if lines.length()? == 0 {
            append(&mut lines, &Line::Checkpoints { version: line::VERSION, dropped: 0 })?;
        }
        let written = HashMap::new();
        let mut this = Self { directory, grant, lines, book, written, bytes: 0, key, bounds };
        this.tidy()?;
        Ok(this)
    }

    /// Removes what no line names: a killed process leaves it.
    fn tidy(&mut self) -> Result<(), HostError> {
        let named: HashSet<OsString> = self.digests().map(Digest::name).collect();
        self.bytes = 0;
        for (name, size) in self.directory.sizes()? {
            if named.contains(&name) {
                self.bytes = self.bytes.saturating_add(size);
            } else if name != LOG {
                self.directory.remove(&self.grant, &name)?;
            }
        }
        Ok(())
    }

    fn digests(&self) -> impl Iterator<Item = Digest> {
        self.book.changes().iter().filter_map(|change| match change.before {
            State::File { digest, .. } => Some(digest),
            State::Absent | State::Uncovered { .. } => None,
        })
    }

    /// Returns what is kept.
    pub fn book(&self) -> &Book {
        &self.book
    }

    /// Says whether this process wrote a change down itself, so that nobody can have forged it.
    pub fn is_own(&self, number: u64) -> bool {
        let seal = self.book.change(number).map(seal);
        let own = OWN.lock().unwrap_or_else(PoisonError::into_inner);
        seal.is_some_and(|seal| own.get(&self.key).is_some_and(|own| own.contains(&seal)))
    }

    /// Returns a content; `None` when it is not the one that was kept.
    ///
    /// # Errors
    /// The host's refusal.
    pub fn content(&self, digest: Digest) -> Result<Option<Vec<u8>>, HostError> {
        content(&self.directory, digest)
    }

    /// Keeps what stands in a file's place. When this returns, a kill of the process takes nothing of
    /// it. The oldest checkpoints go when the session's bounds are reached.
    ///
    /// # Errors
    /// The host's refusal (no space, a read-only file system); then nothing more is kept than before.
    pub fn keep(&mut self, wanted: Wanted) -> Result<u64, HostError> {
        let Wanted { group, undoes, prompt, at, path, before, after, made } = wanted;
        let kept = match &before {
            Former::File(content, _) => content.len() as u64,
            Former::Absent | Former::Uncovered(_) => 0,
        };
        self.make_room(kept)?;
        let before = match before {
            Former::Absent => State::Absent,
            Former::Uncovered(why) => State::Uncovered { why },
            Former::File(content, mode) => {
                let (digest, size) = (Digest::of(&content), content.len() as u64);
                if !self.written.contains_key(&digest) {
                    self.directory.put(&self.grant, &digest.name(), &content)?;
                    self.written.insert(digest, size);
                    self.bytes = self.bytes.saturating_add(size);
                }
                State::File { digest, size, mode: mode & 0o777 }
            }
        };
        let number = self.book.next();
        let change = Change { number, group, undoes, prompt, at, path, before, after, made };
        let own = seal(&change);
        OWN.lock()
            .unwrap_or_else(PoisonError::into_inner)
            .entry(self.key.clone())
            .or_default()
            .insert(own);
        self.say(Line::Change(change))?;
        Ok(number)
    }

    /// Writes down that something was changed that is not covered.
    ///
    /// # Errors
    /// The host's refusal.
    pub fn name_elsewhere(
        &mut self,
        group: u64,
        at: u64,
        name: String,
        why: String,
    ) -> Result<(), HostError> {
        let known = self.book.elsewhere().iter().any(|it| it.group == group && it.name == name);
        if known { Ok(()) } else { self.say(Line::Elsewhere { group, at, name, why }) }
    }

    /// Writes down that a change was not made after all.
    ///
    /// # Errors
    /// The host's refusal.
    pub fn void(&mut self, number: u64) -> Result<(), HostError> {
        self.say(Line::Void { number })
    }

    /// Writes down which changes were undone, by which group, and which were left alone.
    ///
    /// # Errors
    /// The host's refusal.
    pub fn undone(&mut self, numbers: Vec<u64>, left: Vec<u64>, by: u64) -> Result<(), HostError> {
        self.say(Line::Undone { numbers, left, by })
    }

    /// Writes down that an undoing was undone, and which changes stay undone.
    ///
    /// # Errors
    /// The host's refusal.
    pub fn redone(&mut self, by: u64, left: Vec<u64>) -> Result<(), HostError> {
        self.say(Line::Redone { by, left })
    }

    /// Writes down that the conversation went back and these changes stand.
    ///
    /// # Errors
    /// The host's refusal.
    pub fn stands(&mut self, numbers: Vec<u64>) -> Result<(), HostError> {
        self.say(Line::Stands { numbers })
    }

    /// Writes down that the model was told.
    ///
    /// # Errors
    /// The host's refusal.
    pub fn told(&mut self) -> Result<(), HostError> {
        self.say(Line::Told)
    }

    fn say(&mut self, line: Line) -> Result<(), HostError> {
        append(&mut self.lines, &line)?;
        self.book.apply(line);
        Ok(())
    }

    /// Drops the oldest checkpoints until so many bytes more, and one change more, have room.
    fn make_room(&mut self, size: u64) -> Result<(), HostError> {
        let Bounds { bytes, changes } = self.bounds;
        let is_full = |this: &Self| this.bytes.saturating_add(size) > bytes;
        if !is_full(self) && self.book.changes().len() < changes {
            return Ok(());
        }
        // More than is needed, so that it is not done again at once.
        let mut most = self.book.changes().len().min(changes) / 4 * 3;
        loop {
            self.book.drop_oldest(most);
            let mut sizes: HashMap<Digest, u64> = HashMap::new();
            for change in self.book.changes() {
                if let State::File { digest, size, .. } = change.before {
                    sizes.insert(digest, size);
                }
            }
            self.bytes = sizes.values().fold(0, |sum: u64, size| sum.saturating_add(*size));
            if !is_full(self) || most == 0 {
                break;
            }
            most /= 2;
        }
        let mut text = Vec::new();
        for line in self.book.lines() {
            text.extend(encode(&line, self.lines.path())?);
            text.push(b'\n');
        }
        self.directory.put(&self.grant, OsStr::new(LOG), &text)?;
        self.lines = self.directory.append(&self.grant, OsStr::new(LOG))?;
        self.tidy()?;
        let kept: HashSet<Digest> = self.digests().collect();
        self.written.retain(|digest, _| kept.contains(digest));
        Ok(())
    }

    /// Lets another session begin with the checkpoints of this workspace's session `from`, as one that
    /// goes on from its first `messages` messages: what was changed later and stands is news to it.
    /// Nothing happens when `from` has none.
    ///
    /// # Errors
    /// As for [`Checkpoints::open`].
    pub fn inherit(
        root: &Path,
        workspace: &Path,
        from: &str,
        id: &str,
        messages: u64,
    ) -> Result<(), HostError> {
        let Some(view) = View::read(root, workspace, from)? else { return Ok(()) };
        let mut this = Self::open(root, workspace, id)?;
        for change in view.book.changes() {
            if let State::File { digest, .. } = change.before {
                // What is gone there is missed when it is wanted, and named then.
                let _missing = this.directory.share(&this.grant, &digest.name(), &view.directory);
            }
        }
        this.book = view.book;
        this.book.goes_back(messages);
        let mut text = Vec::new();
        for line in this.book.lines() {
            text.extend(encode(&line, this.lines.path())?);
            text.push(b'\n');
        }
        this.directory.put(&this.grant, OsStr::new(LOG), &text)
    }
}

fn encode(line: &Line, path: &Path) -> Result<Vec<u8>, HostError> {
    serde_json::to_vec(line)
        .map_err(|error| HostError::io("write", path, std::io::Error::other(error)))
}

fn append(lines: &mut Lines, line: &Line) -> Result<(), HostError> {
    let text = encode(line, lines.path())?;
    lines.append(&text)
}

#[cfg(test)]
mod tests;
