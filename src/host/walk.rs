//! Walking a directory in parallel, with the ignore rules that git and ripgrep know, and an account
//! of what was left out.
//!
//! The walker of the `ignore` crate goes by names, and only proposes: whatever is opened, listed or
//! told is looked up once more through the [`Beneath`] of the root, so a walk stays below it
//! whatever is swapped under way. The walker does not tell what its rules left out either, so each
//! directory is listed once more and compared. Links are not followed.

use std::{
    collections::BTreeSet,
    ffi::OsStr,
    io::Read as _,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use ignore::{DirEntry, WalkBuilder, WalkState};
use rustix::fs::FileType;

use super::beneath::Beneath;

mod rules;

/// Directories of version control, which no search wants.
const VERSION_CONTROL: [&str; 4] = [".git", ".hg", ".jj", ".svn"];

/// How to walk.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// Whether ignore files count, those above the root included.
    pub ignore: bool,
    /// How many threads may work; 0 is as many as there are processors.
    pub threads: usize,
}

/// What a walk left out. Paths are relative to the root and sorted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeftOut {
    /// Directories that ignore rules name.
    pub ignored_directories: Vec<PathBuf>,
    /// How many files ignore rules name, outside ignored directories.
    pub ignored_files: usize,
    /// Further working trees of a repository, which hold copies of the same files.
    pub worktrees: Vec<PathBuf>,
    /// How many symbolic links were not followed.
    pub links: usize,
    /// How many files and directories the system refused to open, and directories whose ignore files
    /// cannot be read without harm.
    pub unreadable: usize,
    /// How many entries other than directories the rules left in.
    pub left_in: usize,
    /// How many entries a visitor took.
    pub visited: usize,
}

#[derive(Default)]
struct Account {
    listed: Mutex<Vec<PathBuf>>,
    yielded: Mutex<Vec<PathBuf>>,
    worktrees: Mutex<BTreeSet<PathBuf>>,
    listed_files: AtomicUsize,
    yielded_files: AtomicUsize,
    left_in: AtomicUsize,
    links: AtomicUsize,
    unreadable: AtomicUsize,
    visited: AtomicUsize,
}

fn push(list: &Mutex<Vec<PathBuf>>, path: PathBuf) {
    list.lock().unwrap_or_else(PoisonError::into_inner).push(path);
}

fn count(counter: &AtomicUsize) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// What a visitor did with an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Visit {
    /// It was looked at.
    Taken,
    /// It is not wanted.
    Passed,
    /// The system refused it.
    Unreadable,
}

/// A visitor of one thread. It gets each entry's path relative to the root, and what the walker
/// took it for; it opens what it wants through the root's [`Beneath`].
pub type Visitor<'a> = Box<dyn FnMut(&Path, FileType) -> Visit + Send + 'a>;

/// Walks below a directory; `visitor` makes the visitor of each thread. Stops early once `stop` is
/// set.
pub fn walk<'a>(
    root: &Arc<Beneath>,
    rules: Rules,
    stop: &'a AtomicBool,
    visitor: &'a (dyn Fn() -> Visitor<'a> + Sync),
) -> LeftOut {
    let account = Arc::new(Account::default());
    // The walker looks into those above as well, whatever it is told about parents.
    let is_ruled = rules.ignore && root.path().ancestors().all(rules::are_sound);
    if rules.ignore && !is_ruled {
        count(&account.unreadable);
    }
    let mut builder = WalkBuilder::new(root.path());
    builder
        .standard_filters(false)
        .parents(is_ruled)
        .ignore(is_ruled)
        .git_ignore(is_ruled)
        .git_global(is_ruled)
        .git_exclude(is_ruled)
        .require_git(false)
        .threads(rules.threads)
        .current_dir(root.path());
    let (told, below) = (Arc::clone(&account), Arc::clone(root));
    builder.filter_entry(move |entry| {
        entry.depth() == 0
            || is_entered(entry, &below, &told) && (!is_ruled || has_sound_rules(entry, &told))
    });
    builder.build_parallel().run(|| {
        let mut visit = visitor();
        let account = Arc::clone(&account);
        let root = Arc::clone(root);
        Box::new(move |entry| {
            if stop.load(Ordering::Relaxed) {
                return WalkState::Quit;
            }
            let Ok(entry) = entry else {
                count(&account.unreadable);
                return WalkState::Continue;
            };
            let Ok(relative) = entry.path().strip_prefix(root.path()) else {
                return WalkState::Continue;
            };
            let kind = entry.file_type().map_or(FileType::Unknown, kind);
            match kind {
                FileType::Directory => {
                    push(&account.yielded, relative.to_owned());
                    list(relative, &root, &account);
                }
                FileType::Symlink => count(&account.links),
                FileType::RegularFile => count(&account.yielded_files),
                _ => {}
            }
            if kind != FileType::Directory {
                count(&account.left_in);
            }
            if entry.depth() > 0 {
                match visit(relative, kind) {
                    Visit::Taken => count(&account.visited),
                    Visit::Unreadable => count(&account.unreadable),
                    Visit::Passed => {}
                }
            }
            WalkState::Continue
        })
    });
    sum_up(&account)
}

fn kind(kind: std::fs::FileType) -> FileType {
    use std::os::unix::fs::FileTypeExt as _;
    match kind {
        kind if kind.is_dir() => FileType::Directory,
        kind if kind.is_file() => FileType::RegularFile,
        kind if kind.is_symlink() => FileType::Symlink,
        kind if kind.is_fifo() => FileType::Fifo,
        kind if kind.is_socket() => FileType::Socket,
        kind if kind.is_char_device() => FileType::CharacterDevice,
        kind if kind.is_block_device() => FileType::BlockDevice,
        _ => FileType::Unknown,
    }
}

fn sum_up(account: &Account) -> LeftOut {
    let take = |list: &Mutex<Vec<PathBuf>>| -> BTreeSet<PathBuf> {
        std::mem::take(&mut *list.lock().unwrap_or_else(PoisonError::into_inner))
            .into_iter()
            .collect()
    };
    let (listed, yielded) = (take(&account.listed), take(&account.yielded));
    let worktrees = account.worktrees.lock().unwrap_or_else(PoisonError::into_inner);
    let number = |counter: &AtomicUsize| counter.load(Ordering::Relaxed);
    LeftOut {
        ignored_directories: listed
            .difference(&yielded)
            .filter(|path| !worktrees.contains(*path))
            .cloned()
            .collect(),
        ignored_files: number(&account.listed_files).saturating_sub(number(&account.yielded_files)),
        worktrees: worktrees.iter().cloned().collect(),
        links: number(&account.links),
        unreadable: number(&account.unreadable),
        left_in: number(&account.left_in),
        visited: number(&account.visited),
    }
}

/// Says whether the walk goes into an entry that no ignore rule names.
fn is_entered(entry: &DirEntry, root: &Beneath, account: &Account) -> bool {
    if is_version_control(entry.file_name()) {
        return false;
    }
    let Ok(relative) = entry.path().strip_prefix(root.path()) else { return false };
    let is_copy = entry.file_type().is_some_and(|kind| kind.is_dir())
        && is_worktree(root, relative, entry.path());
    if is_copy {
        let mut worktrees = account.worktrees.lock().unwrap_or_else(PoisonError::into_inner);
        worktrees.insert(relative.to_owned());
    }
    !is_copy
}

/// Says whether the walk can go into an entry with the rules that it has of its own.
fn has_sound_rules(entry: &DirEntry, account: &Account) -> bool {
    let is_sound =
        entry.file_type().is_none_or(|kind| !kind.is_dir()) || rules::are_sound(entry.path());
    if !is_sound {
        count(&account.unreadable);
    }
    is_sound
}

fn is_version_control(name: &OsStr) -> bool {
    VERSION_CONTROL.iter().any(|known| name == *known)
}

/// The longest file that can be the pointer of a working tree, in bytes.
const MAX_POINTER: u64 = 8192;

/// Says whether a directory is a further working tree: its `.git` is a file that points below a
/// repository's `worktrees` (gitrepository-layout(5)). A submodule's points below `modules`.
fn is_worktree(root: &Beneath, relative: &Path, path: &Path) -> bool {
    // kli's own place for them, whatever was put there.
    if path.ends_with(".kli/worktrees") {
        return true;
    }
    let pointer = relative.join(".git");
    if root.size(&pointer).is_none_or(|size| size > MAX_POINTER) {
        return false;
    }
    let mut text = String::new();
    root.open_file(&pointer)
        .and_then(|file| file.take(MAX_POINTER).read_to_string(&mut text))
        .is_ok()
        && text
            .strip_prefix("gitdir:")
            .map(|place| Path::new(place.trim()))
            .and_then(Path::parent)
            .is_some_and(|parent| parent.ends_with("worktrees"))
}

fn list(directory: &Path, root: &Beneath, account: &Account) {
    let listed = root.list(directory, |name, kind| {
        if is_version_control(name) {
            return;
        }
        match kind {
            FileType::Directory => push(&account.listed, directory.join(name)),
            FileType::RegularFile => count(&account.listed_files),
            _ => {}
        }
    });
    // What cannot be listed is reported by the walk itself.
    drop(listed);
}

/// Says whether ignore rules in or above `top` name a directory below it.
pub fn is_ignored(top: &Path, directory: &Path) -> bool {
    let Ok(relative) = directory.strip_prefix(top) else { return false };
    if !directory.ancestors().skip(1).all(rules::are_sound) {
        return false;
    }
    let mut builder = WalkBuilder::new(top);
    builder.hidden(false).require_git(false).current_dir(top);
    builder
        .build_matchers()
        .first_mut()
        .is_some_and(|matcher| matcher.matched(relative, true).is_ignore())
}

#[cfg(test)]
mod tests;
