//! Walking a directory in parallel, with the ignore rules that git and ripgrep know, and an account
//! of what was left out.
//!
//! Links are not followed and only regular files are opened, so a walk stays below its root and
//! cannot be held by a FIFO. The walker of the `ignore` crate does not tell what its rules left
//! out, so each directory is listed once more and compared.

use std::{
    collections::BTreeSet,
    ffi::OsStr,
    fs::File,
    io,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use ignore::{DirEntry, WalkBuilder, WalkState};
use rustix::fs::{FileType, Mode, OFlags};

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
    /// How many files and directories the system refused to open.
    pub unreadable: usize,
    /// How many files were offered to the visitors.
    pub visited: usize,
}

#[derive(Default)]
struct Account {
    listed: Mutex<Vec<PathBuf>>,
    yielded: Mutex<Vec<PathBuf>>,
    worktrees: Mutex<BTreeSet<PathBuf>>,
    listed_files: AtomicUsize,
    yielded_files: AtomicUsize,
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

/// A visitor of one thread: it gets a file's physical path and the open file.
pub type Visitor<'a> = Box<dyn FnMut(&Path, File) + Send + 'a>;

/// Walks below a physical directory. `wanted` is asked with the path relative to the root before a
/// file is opened; `visitor` makes the visitor of each thread. Stops early once `stop` is set.
pub fn walk<'a>(
    root: &Path,
    rules: Rules,
    stop: &'a AtomicBool,
    wanted: &'a (dyn Fn(&Path) -> bool + Sync),
    visitor: &'a (dyn Fn() -> Visitor<'a> + Sync),
) -> LeftOut {
    let account = Arc::new(Account::default());
    let mut builder = WalkBuilder::new(root);
    builder
        .standard_filters(false)
        .parents(rules.ignore)
        .ignore(rules.ignore)
        .git_ignore(rules.ignore)
        .git_global(rules.ignore)
        .git_exclude(rules.ignore)
        .require_git(false)
        .threads(rules.threads)
        .current_dir(root);
    let told = Arc::clone(&account);
    builder.filter_entry(move |entry| entry.depth() == 0 || is_entered(entry, &told));
    builder.build_parallel().run(|| {
        let mut visit = visitor();
        let account = Arc::clone(&account);
        let root = root.to_owned();
        Box::new(move |entry| {
            if stop.load(Ordering::Relaxed) {
                return WalkState::Quit;
            }
            let Ok(entry) = entry else {
                count(&account.unreadable);
                return WalkState::Continue;
            };
            let path = entry.path();
            match entry.file_type() {
                Some(kind) if kind.is_dir() => {
                    push(&account.yielded, path.to_owned());
                    list(path, &account);
                }
                Some(kind) if kind.is_symlink() => count(&account.links),
                Some(kind) if kind.is_file() => {
                    count(&account.yielded_files);
                    if wanted(path.strip_prefix(&root).unwrap_or(path)) {
                        match open_regular(path) {
                            Ok(file) => {
                                count(&account.visited);
                                visit(path, file);
                            }
                            Err(_) => count(&account.unreadable),
                        }
                    }
                }
                _ => {}
            }
            WalkState::Continue
        })
    });
    sum_up(root, &account)
}

fn sum_up(root: &Path, account: &Account) -> LeftOut {
    let take = |list: &Mutex<Vec<PathBuf>>| -> BTreeSet<PathBuf> {
        std::mem::take(&mut *list.lock().unwrap_or_else(PoisonError::into_inner))
            .into_iter()
            .collect()
    };
    let relative = |path: &PathBuf| path.strip_prefix(root).unwrap_or(path).to_owned();
    let (listed, yielded) = (take(&account.listed), take(&account.yielded));
    let worktrees = account.worktrees.lock().unwrap_or_else(PoisonError::into_inner);
    let number = |counter: &AtomicUsize| counter.load(Ordering::Relaxed);
    LeftOut {
        ignored_directories: listed
            .difference(&yielded)
            .filter(|path| !worktrees.contains(*path))
            .map(relative)
            .collect(),
        ignored_files: number(&account.listed_files).saturating_sub(number(&account.yielded_files)),
        worktrees: worktrees.iter().map(relative).collect(),
        links: number(&account.links),
        unreadable: number(&account.unreadable),
        visited: number(&account.visited),
    }
}

/// Says whether the walk goes into an entry that no ignore rule names.
fn is_entered(entry: &DirEntry, account: &Account) -> bool {
    if is_version_control(entry.file_name()) {
        return false;
    }
    let is_copy = entry.file_type().is_some_and(|kind| kind.is_dir()) && is_worktree(entry.path());
    if is_copy {
        let mut worktrees = account.worktrees.lock().unwrap_or_else(PoisonError::into_inner);
        worktrees.insert(entry.path().to_owned());
    }
    !is_copy
}

fn is_version_control(name: &OsStr) -> bool {
    VERSION_CONTROL.iter().any(|known| name == *known)
}

/// Says whether a directory is a further working tree: its `.git` is a file that points below a
/// repository's `worktrees` (gitrepository-layout(5)). A submodule's points below `modules`.
#[expect(clippy::disallowed_methods, reason = "host is where files are looked at")]
fn is_worktree(directory: &Path) -> bool {
    // kli's own place for them, whatever was put there.
    if directory.ends_with(".kli/worktrees") {
        return true;
    }
    let pointer = directory.join(".git");
    std::fs::symlink_metadata(&pointer).is_ok_and(|found| found.is_file() && found.len() < 8192)
        && std::fs::read_to_string(&pointer).is_ok_and(|text| {
            text.strip_prefix("gitdir:")
                .map(|place| Path::new(place.trim()))
                .and_then(Path::parent)
                .is_some_and(|parent| parent.ends_with("worktrees"))
        })
}

#[expect(clippy::disallowed_methods, reason = "host is where directories are listed")]
fn list(directory: &Path, account: &Account) {
    // What cannot be listed is reported by the walk itself.
    for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
        if is_version_control(&entry.file_name()) {
            continue;
        }
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => push(&account.listed, entry.path()),
            Ok(kind) if kind.is_file() => count(&account.listed_files),
            _ => {}
        }
    }
}

/// Says whether ignore rules in or above `top` name a directory below it.
pub fn is_ignored(top: &Path, directory: &Path) -> bool {
    let Ok(relative) = directory.strip_prefix(top) else { return false };
    let mut builder = WalkBuilder::new(top);
    builder.hidden(false).require_git(false).current_dir(top);
    builder
        .build_matchers()
        .first_mut()
        .is_some_and(|matcher| matcher.matched(relative, true).is_ignore())
}

/// Opens a regular file, and nothing else: no link, no FIFO, no device.
///
/// # Errors
/// The system's refusal, or that it is something else.
pub fn open_regular(path: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
    let handle = rustix::fs::open(path, flags | OFlags::CLOEXEC, Mode::empty())?;
    let kind = FileType::from_raw_mode(rustix::fs::fstat(&handle)?.st_mode);
    if kind == FileType::RegularFile {
        Ok(File::from(handle))
    } else {
        Err(io::Error::new(io::ErrorKind::InvalidInput, "no regular file"))
    }
}
