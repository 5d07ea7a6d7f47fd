//! What the model knows of files: the rows it was shown, and the content it last read or wrote.
//!
//! Rows are kept per physical path under the anchor by which they were shown and the time when. `now`
//! follows a row through kli's own edits, so an anchor stays good when an edit above moved its line;
//! and a call means the row that its model had seen when it made the call, even if the result of an
//! earlier call of the same turn gave that anchor to another line meanwhile.

use std::{
    collections::{BTreeMap, HashMap},
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError},
};

use super::anchor::{Anchor, Row};
use crate::host::files::Stamp;

/// The most rows that are remembered of all files together; the files that were used least recently
/// are forgotten first.
const MAX_ROWS: usize = 200_000;

/// What the model knows of the files of this run.
#[derive(Debug, Default)]
pub struct Memory {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    files: HashMap<PathBuf, File>,
    clock: u64,
    rows: usize,
}

#[derive(Debug, Default)]
struct File {
    view: View,
    used: u64,
}

/// A file's content at a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Content {
    /// What the system said of the file.
    pub stamp: Stamp,
    /// The SHA-256 of its bytes; absent for a file that was too big to be read whole.
    pub digest: Option<[u8; 32]>,
}

impl Content {
    /// Says whether two looks saw the same bytes. Where both have a digest it decides alone: a
    /// formatter that rewrote the same bytes changed nothing, and a change within one tick of the
    /// file system's clock is one.
    pub fn is_same(&self, other: &Self) -> bool {
        match (&self.digest, &other.digest) {
            (Some(one), Some(two)) => one == two,
            _ => self.stamp == other.stamp,
        }
    }
}

/// What the model knows of one file.
#[derive(Clone, Debug, Default)]
pub struct View {
    /// The content that the model last read or wrote as a whole; absent when it never did.
    pub content: Option<Content>,
    /// The rows it was shown, by anchor and by the time when the anchor began to mean that line.
    pub rows: BTreeMap<(Anchor, u64), Shown>,
    /// Whether some rows may be of an older content than `content`: something else changed the file
    /// between two looks at parts of it.
    pub is_patchy: bool,
}

impl View {
    /// Returns the row that an anchor stood for at a time.
    pub fn at(&self, anchor: Anchor, time: u64) -> Option<&Shown> {
        self.rows.range((anchor, 0)..=(anchor, time)).next_back().map(|(_, shown)| shown)
    }
}

/// A row that was shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shown {
    /// The line's full hash.
    pub full: u64,
    /// The full hash of the row that was shown right before it.
    pub before: Option<u64>,
    /// The full hash of the row that was shown right after it.
    pub after: Option<u64>,
    /// The line's number now, as far as kli's own edits moved it; absent once one replaced it.
    pub now: Option<u64>,
}

impl Memory {
    /// Returns this memory for another to hold; nothing is left here.
    pub(super) fn hand_over(&self) -> Self {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        Self { inner: Mutex::new(std::mem::take(&mut *inner)) }
    }

    /// Notes that the model was shown these rows of a file (physical path), in the order shown.
    pub fn saw(&self, path: &Path, rows: &[Row]) {
        self.change(path, |view, time| {
            let neighbour = |at: Option<usize>, line: Option<u64>| {
                let row = rows.get(at?)?;
                (row.anchor.line == line?).then_some(row.full)
            };
            for (at, row) in rows.iter().enumerate() {
                let line = row.anchor.line;
                let shown = Shown {
                    full: row.full,
                    before: neighbour(at.checked_sub(1), line.checked_sub(1)),
                    after: neighbour(at.checked_add(1), line.checked_add(1)),
                    now: Some(line),
                };
                let latest = view
                    .rows
                    .range((row.anchor, 0)..=(row.anchor, u64::MAX))
                    .next_back()
                    .filter(|(_, old)| old.full == shown.full && old.now == shown.now)
                    .map(|(key, _)| *key);
                view.rows.insert(latest.unwrap_or((row.anchor, time)), shown);
            }
        });
    }

    /// Notes the content of which the model has read a part, or all lines.
    pub fn read(&self, path: &Path, content: Content, is_all: bool) {
        self.change(path, |view, _| {
            let is_other = view.content.as_ref().is_none_or(|known| !known.is_same(&content));
            view.is_patchy = !is_all && (view.is_patchy || (is_other && !view.rows.is_empty()));
            view.content = Some(content);
        });
    }

    /// Notes that kli wrote the whole file as the model said: no earlier row stands for a line.
    pub fn wrote(&self, path: &Path, content: Content) {
        self.change(path, |view, _| *view = View { content: Some(content), ..View::default() });
    }

    /// Returns the time: what was shown so far.
    pub fn time(&self) -> u64 {
        self.lock().clock
    }

    /// Returns what the model knows of a file.
    pub fn view(&self, path: &Path) -> View {
        self.lock().files.get(path).map(|file| file.view.clone()).unwrap_or_default()
    }

    /// Puts what the model knows of a file, after an edit.
    pub fn put(&self, path: &Path, new: View) {
        self.change(path, |view, _| *view = new);
    }

    fn change(&self, path: &Path, change: impl FnOnce(&mut View, u64)) {
        let mut inner = self.lock();
        inner.clock = inner.clock.wrapping_add(1);
        let clock = inner.clock;
        let file = inner.files.entry(path.to_owned()).or_default();
        file.used = clock;
        let before = file.view.rows.len();
        change(&mut file.view, clock);
        let after = file.view.rows.len();
        inner.rows = inner.rows.saturating_sub(before).saturating_add(after);
        inner.forget();
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // A panic in another reader cannot have left half a row: each change is one insertion.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    /// Forgets rows, oldest files first, until the bound holds. The contents stay: they are small,
    /// and a forgotten row only costs a fresh one.
    fn forget(&mut self) {
        while self.rows > MAX_ROWS {
            let oldest = self
                .files
                .values_mut()
                .filter(|file| !file.view.rows.is_empty())
                .min_by_key(|file| file.used);
            let Some(file) = oldest else { return };
            self.rows = self.rows.saturating_sub(file.view.rows.len());
            file.view.rows.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(lines: &[(u64, &str)]) -> Vec<Row> {
        lines.iter().map(|(line, text)| Row::of(*line, text.as_bytes())).collect()
    }

    #[test]
    fn rows_know_their_neighbours_only_where_these_were_shown() {
        let memory = Memory::default();
        let shown = rows(&[(3, "a"), (4, "b"), (9, "c")]);
        memory.saw(Path::new("/f"), &shown);
        let view = memory.view(Path::new("/f"));
        let b = view.at(shown[1].anchor, memory.time()).unwrap();
        assert_eq!((b.before, b.after, b.now), (Some(shown[0].full), None, Some(4)));
        assert!(memory.view(Path::new("/g")).rows.is_empty());
    }

    #[test]
    fn the_memory_is_bounded_and_forgets_the_oldest_file_first() {
        let memory = Memory::default();
        let half: Vec<Row> = (1..=MAX_ROWS as u64 / 2).map(|line| Row::of(line, b"x")).collect();
        for path in ["/a", "/b", "/c"] {
            memory.saw(Path::new(path), &half);
        }
        assert!(memory.view(Path::new("/a")).rows.is_empty());
        assert_eq!(memory.view(Path::new("/b")).rows.len(), half.len(), "control");
        assert_eq!(memory.view(Path::new("/c")).rows.len(), half.len(), "control");
    }

    #[test]
    fn an_anchor_means_what_it_stood_for_when_a_call_was_made() {
        let (memory, path) = (Memory::default(), Path::new("/f"));
        let brace = rows(&[(4, "}")]);
        memory.saw(path, &brace);
        let before = memory.time();
        // An edit moved that line, and its result showed another brace on line 4.
        let mut view = memory.view(path);
        view.rows.values_mut().for_each(|shown| shown.now = Some(6));
        memory.put(path, view);
        memory.saw(path, &brace);
        let view = memory.view(path);
        assert_eq!(view.at(brace[0].anchor, before).unwrap().now, Some(6));
        assert_eq!(view.at(brace[0].anchor, memory.time()).unwrap().now, Some(4));
        memory.saw(path, &brace);
        assert_eq!(memory.view(path).rows.len(), 2, "showing a line again is no news");
    }
}
