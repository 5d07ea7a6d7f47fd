//! Walks what was writable, after everything inside has ended: names first, a status only where a name says
//! so. Shallow before deep, on handles below the held roots, following nothing, and not for longer than
//! it is given.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::time::Instant;

use rustix::fs::{Dir, FileType, OFlags, Stat};
use rustix::io::Errno;

use super::super::git::{MAX_CONFIG, read};
use super::handle::{self, Moment, changed};
use super::repository;
use super::rules::{Match, Rules, State};
use super::{Finding, Root};

/// Directories of installed packages, in which what editors and agents read is nobody's project.
pub(super) const PACKAGES: [&str; 4] =
    ["node_modules", "site-packages", "dist-packages", "bower_components"];

/// Directories of a git directory that are not looked into: git runs nothing of them, and they are large.
const SKIPPED: [&str; 2] = ["objects", "lfs"];

/// What git takes hooks and configuration from, in a git directory.
const TAKEN: [&str; 6] = ["commondir", "config", "config.worktree", "gitdir", "hooks", "info"];

/// How far a directory behind a link is looked into.
const MAX_BEHIND: usize = 3;

/// What the walk needs to know.
pub(super) struct Walk<'a> {
    pub(super) rules: &'a Rules,
    pub(super) roots: &'a [Root],
    /// When the inside began.
    pub(super) start: Moment,
    pub(super) uid: u32,
    /// What is compared otherwise, absolute; with all that is below.
    pub(super) kept: &'a [PathBuf],
    /// What was read-only or hidden in what was writable, absolute; with all that is below.
    pub(super) closed: &'a [PathBuf],
    pub(super) deadline: Instant,
    /// What was found.
    pub(super) findings: Vec<Finding>,
    /// How many files of the kind lie in directories of installed packages.
    pub(super) packages: Vec<(PathBuf, usize)>,
}

/// A directory to look into.
struct Item {
    root: usize,
    /// Below the root.
    path: PathBuf,
    states: Vec<State>,
    /// Whether it was moved or made since the start, with what is in it.
    moved: bool,
    kind: Kind,
    /// The directory of installed packages around it.
    packages: Option<PathBuf>,
    /// How many levels it lies behind a link that was there before.
    behind: Option<usize>,
}

impl Item {
    fn of(root: usize, path: PathBuf) -> Self {
        Self {
            root,
            path,
            states: Vec::new(),
            moved: false,
            kind: Kind::Plain,
            packages: None,
            behind: None,
        }
    }
}

/// How a directory is opened for its names.
const LIST: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NONBLOCK);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Plain,
    /// Something of a git directory.
    Git,
    /// The hooks of a git directory.
    Hooks,
}

struct Entry {
    name: OsString,
    kind: FileType,
}

impl Walk<'_> {
    /// Looks through all roots; the path of the first directory that was not looked into when there
    /// was no time for it.
    pub(super) fn run(&mut self) -> Option<PathBuf> {
        for root in self.roots.iter().filter(|root| !root.directory) {
            self.single(root);
        }
        let mut queue = self.roots();
        while let Some(item) = queue.pop_front() {
            if Instant::now() >= self.deadline {
                return Some(self.absolute(&item, OsStr::new("")));
            }
            self.directory(&item, &mut queue);
        }
        None
    }

    /// Looks for files that give whoever runs them their owner's rights, which takes a status of every
    /// file; the same as [`Self::run`] otherwise.
    pub(super) fn rights(&mut self) -> Option<PathBuf> {
        let mut queue = self.roots();
        while let Some(item) = queue.pop_front() {
            if Instant::now() >= self.deadline {
                return Some(self.absolute(&item, OsStr::new("")));
            }
            let Some(root) = self.roots.get(item.root) else { continue };
            let Ok(at) = handle::open(&root.handle, &item.path, LIST) else { continue };
            let Ok(entries) = entries(&at) else { continue };
            for entry in entries {
                match entry.kind {
                    FileType::Directory => {
                        queue.push_back(Item::of(item.root, item.path.join(entry.name)));
                    }
                    FileType::RegularFile
                        if self.newer(&at, &entry.name, false).is_some_and(|stat| {
                            stat.st_mode & 0o6000 != 0 && stat.st_mode & 0o111 != 0
                        }) =>
                    {
                        let words = "whoever runs it gets its owner's rights (setuid, setgid)";
                        self.find(&item, &entry.name, words);
                    }
                    _ => {}
                }
            }
        }
        None
    }

    fn roots(&self) -> VecDeque<Item> {
        self.roots
            .iter()
            .enumerate()
            .filter(|(_, root)| root.directory)
            .map(|(number, root)| {
                let states = self.rules.at(&root.path);
                Item { states, ..Item::of(number, PathBuf::new()) }
            })
            .collect()
    }

    /// A root that is a single file.
    fn single(&mut self, root: &Root) {
        let (Some(above), Some(name)) = (root.path.parent(), root.path.file_name()) else { return };
        let meaning = self.rules.file(&self.rules.at(above), name);
        let new = rustix::fs::fstat(&root.handle).is_ok_and(|stat| changed(&stat) >= self.start);
        if let Some(Match::Whole(words)) = meaning
            && new
        {
            self.findings.push(Finding { path: root.path.clone(), words: words.into() });
        }
    }

    fn absolute(&self, item: &Item, name: &OsStr) -> PathBuf {
        let mut path = self.roots.get(item.root).map(|root| root.path.clone()).unwrap_or_default();
        for part in [item.path.as_os_str(), name] {
            if !part.is_empty() {
                path.push(part);
            }
        }
        path
    }

    fn find(&mut self, item: &Item, name: &OsStr, words: impl Into<String>) {
        let Some(packages) = &item.packages else {
            let path = self.absolute(item, name);
            self.findings.push(Finding { path, words: words.into() });
            return;
        };
        match self.packages.iter_mut().find(|(path, _)| path == packages) {
            Some((_, count)) => *count += 1,
            None => self.packages.push((packages.clone(), 1)),
        }
    }

    fn is_kept(&self, path: &Path) -> bool {
        self.kept.iter().any(|kept| path.starts_with(kept))
    }

    fn directory(&mut self, item: &Item, queue: &mut VecDeque<Item>) {
        let Some(root) = self.roots.get(item.root) else { return };
        let opened = if item.behind.is_some() {
            handle::open_through(&root.handle, &item.path, LIST)
        } else {
            handle::open(&root.handle, &item.path, LIST)
        };
        let read = opened.and_then(|at| Ok((entries(&at)?, at)));
        let (entries, at) = match read {
            Ok(read) => read,
            // Gone since its name was read, or never a directory.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::XDEV) => return,
            Err(error) => {
                let new = handle::stat_below(&root.handle, &item.path)
                    .map_or(true, |stat| changed(&stat) >= self.start);
                if new && item.behind.is_none() {
                    let error = std::io::Error::from(error);
                    self.find(item, OsStr::new(""), format!("it cannot be looked into: {error}"));
                }
                return;
            }
        };
        let has = |name: &str| entries.iter().any(|entry| entry.name == name);
        // Git asks for less than it makes: any of them may be a link or lie elsewhere, where `commondir`
        // says, and that place needs no `HEAD`.
        let whole = has("objects") && has("refs");
        let git = whole || has("HEAD") && (has("commondir") || has("gitdir"));
        if git && item.behind.is_none() {
            self.git_directory(item, &at);
        }
        let inside = Rules::is_inside(&item.states);
        // A directory of a rule that was moved here brings old files along.
        let moved = item.moved
            || (inside || item.kind == Kind::Hooks)
                && rustix::fs::fstat(&at)
                    .is_ok_and(|stat| changed(&stat) >= self.start && !root.had(&item.path, &stat));
        for entry in entries {
            let name = entry.name.as_os_str();
            match entry.kind {
                FileType::Directory => {
                    if item.behind.is_some_and(|levels| levels >= MAX_BEHIND)
                        || whole && SKIPPED.iter().any(|it| name == *it)
                    {
                        continue;
                    }
                    let path = self.absolute(item, name);
                    let kind = match item.kind {
                        _ if git && name == "hooks" => Kind::Hooks,
                        _ if git => Kind::Git,
                        kind => kind,
                    };
                    let own = PACKAGES.iter().any(|it| name == *it).then(|| path.clone());
                    queue.push_back(Item {
                        root: item.root,
                        path: item.path.join(name),
                        states: self.rules.enter(&item.states, name, &path),
                        moved,
                        kind,
                        packages: item.packages.clone().or(own),
                        behind: item.behind.map(|levels| levels + 1),
                    });
                }
                // Nor is a second link followed.
                FileType::Symlink if item.behind.is_some() => {}
                FileType::Symlink => self.link(item, &at, name, (git, moved), queue),
                kind => self.file(item, &at, name, kind, moved),
            }
        }
    }

    /// Whether an entry is newer than the start; the status, when it is.
    fn newer(&self, at: &OwnedFd, name: &OsStr, moved: bool) -> Option<Stat> {
        let stat = handle::stat(at, name).ok()?;
        (moved || changed(&stat) >= self.start).then_some(stat)
    }

    fn file(&mut self, item: &Item, at: &OwnedFd, name: &OsStr, kind: FileType, moved: bool) {
        let words = if item.kind == Kind::Hooks && !name.as_bytes().ends_with(b".sample") {
            Some("git runs it")
        } else {
            let meaning = if item.behind.is_some() {
                self.rules.file_inside(&item.states, name)
            } else {
                self.rules.file(&item.states, name)
            };
            match meaning {
                Some(Match::Whole(words)) => Some(words),
                _ => None,
            }
        };
        if let Some(words) = words {
            let path = self.absolute(item, name);
            if self.newer(at, name, moved).is_some() && !self.is_kept(&path) {
                self.find(item, name, words);
            }
        } else if name == ".git" && kind == FileType::RegularFile && item.behind.is_none() {
            self.dot_git(item, at, name, moved);
        }
    }

    /// A `.git` file: which repository does git take here?
    fn dot_git(&mut self, item: &Item, at: &OwnedFd, name: &OsStr, moved: bool) {
        let path = self.absolute(item, name);
        if self.is_kept(&path) || self.newer(at, name, moved).is_none() {
            return;
        }
        let text = handle::text(at, Path::new(name), MAX_CONFIG).unwrap_or_default();
        let target = text.strip_prefix(b"gitdir: ").map(<[u8]>::trim_ascii_end).unwrap_or_default();
        let target = path.parent().unwrap_or(&path).join(read::path(target));
        let plain = repository::plain(&target);
        // What lies there is looked at where it lies.
        let skipped = plain.iter().any(|part| SKIPPED.iter().any(|it| part == *it));
        if skipped || !self.is_inside(&plain) {
            self.find(item, name, format!("git takes the repository `{}`", super::named(&plain)));
        }
    }

    /// Whether a path lies in something that was writable, and so is looked through itself.
    fn is_inside(&self, path: &Path) -> bool {
        self.roots.iter().any(|root| path.starts_with(&root.path))
    }

    fn link(
        &mut self,
        item: &Item,
        at: &OwnedFd,
        name: &OsStr,
        (git, moved): (bool, bool),
        queue: &mut VecDeque<Item>,
    ) {
        let path = self.absolute(item, name);
        let Some(root) = self.roots.get(item.root) else { return };
        let hook = item.kind == Kind::Hooks && !name.as_bytes().ends_with(b".sample");
        let meaning = match self.rules.file(&item.states, name) {
            _ if hook => Some(Match::Whole("git runs it")),
            None if name == ".git" => Some(Match::Whole("git takes the repository it leads to")),
            None if git && TAKEN.iter().any(|it| name == *it) => {
                Some(Match::Whole("git takes hooks or configuration from where it leads to"))
            }
            meaning => meaning,
        };
        if self.newer(at, name, moved).is_some() {
            if self.is_kept(&path) {
                return;
            }
            if let Some(Match::Whole(words) | Match::Part(words)) = meaning {
                self.find(item, name, words);
                return;
            }
            let Ok(target) = rustix::fs::readlinkat(at, name.as_bytes(), Vec::new()) else {
                return;
            };
            let target = path.parent().unwrap_or(&path).join(read::path(target.as_bytes()));
            self.leads(item, name, &target);
            return;
        }
        // It was there before; what it leads to may be new.
        let Some(meaning) = meaning.filter(|_| item.behind.is_none()) else { return };
        let below = item.path.join(name);
        let Ok(target) = handle::open_through(&root.handle, &below, OFlags::PATH) else { return };
        let Ok(stat) = rustix::fs::fstat(&target) else { return };
        match (FileType::from_raw_mode(stat.st_mode), meaning) {
            (FileType::Directory, _) => queue.push_back(Item {
                root: item.root,
                path: below,
                states: self.rules.enter(&item.states, name, &path),
                moved: false,
                kind: if git && name == "hooks" { Kind::Hooks } else { item.kind },
                packages: item.packages.clone(),
                behind: Some(0),
            }),
            (_, Match::Whole(words)) if changed(&stat) >= self.start && !self.is_kept(&path) => {
                self.find(item, name, words);
            }
            _ => {}
        }
    }

    /// Tells of a link to what the inside could not write itself: the host's programs write through it,
    /// git for one into `.git/COMMIT_EDITMSG`. `target` is its text from the directory that it lies in.
    fn leads(&mut self, item: &Item, name: &OsStr, target: &Path) {
        let by_words = repository::plain(target);
        // By links that were there before it may lead elsewhere than its words say. What is absent has at
        // least a directory.
        let in_truth = || read::physical(target).or_else(|| read::physical_name(target));
        let trouble = |place: &Path| {
            if !self.is_inside(place) {
                return (!self.is_of_the_system(place)).then_some("a link out of it, to");
            }
            let closed = self.is_kept(place) || self.closed.iter().any(|it| place.starts_with(it));
            closed.then_some("a link to what was read-only,")
        };
        let found = match trouble(&by_words) {
            None => in_truth().and_then(|place| Some((trouble(&place)?, place))),
            Some(words) => Some((words, by_words)),
        };
        if let Some((words, place)) = found {
            self.find(item, name, format!("{words} `{}`", super::named(&place)));
        }
    }

    /// Whether a link to `target` is one as package managers and compilers make them: to a part of
    /// the system that the caller cannot write, or for root to a program of it.
    fn is_of_the_system(&self, target: &Path) -> bool {
        if target.starts_with("/nix/store") {
            return true;
        }
        let system = ["/usr", "/bin", "/sbin", "/lib", "/lib64", "/opt"];
        if !system.iter().any(|tree| target.starts_with(tree)) {
            return false;
        }
        self.uid != 0
            || rustix::fs::stat(target.as_os_str().as_bytes())
                .is_ok_and(|stat| stat.st_mode & 0o111 != 0)
    }

    /// A git directory other than the workspace's own, whose files are judged by their content.
    fn git_directory(&mut self, item: &Item, at: &OwnedFd) {
        let moved =
            item.moved || rustix::fs::fstat(at).is_ok_and(|stat| changed(&stat) >= self.start);
        let newer = |walk: &Self, name: &str, moved: bool| {
            let status = handle::stat_below(at, Path::new(name)).ok()?;
            let path = walk.absolute(item, OsStr::new(name));
            ((moved || changed(&status) >= walk.start) && !walk.is_kept(&path)).then_some(())?;
            // What cannot be read is judged as what says too much.
            let text = handle::text(at, Path::new(name), MAX_CONFIG);
            Some(text.unwrap_or_else(|_| b"?".to_vec()))
        };
        for name in ["config", "config.worktree"] {
            if let Some(text) = newer(self, name, moved)
                && let Some(words) = repository::new_in(b"", &text)
            {
                self.find(item, OsStr::new(name), words);
            }
        }
        if newer(self, "info/attributes", false).is_some() {
            self.find(item, OsStr::new("info/attributes"), "git takes filters from it");
        }
        if newer(self, "commondir", moved).is_some_and(|text| text.trim_ascii_end() != b"../..") {
            self.find(
                item,
                OsStr::new("commondir"),
                "git takes hooks and configuration from there",
            );
        }
        if let Some(text) = newer(self, "gitdir", false) {
            let here = self.absolute(item, OsStr::new(""));
            let target = repository::plain(&here.join(read::path(text.trim_ascii_end())));
            if !self.is_inside(&target) {
                let words = format!("it names `{}` as a working tree", super::named(&target));
                self.find(item, OsStr::new("gitdir"), words);
            }
        }
        for name in ["rebase-merge/git-rebase-todo", "rebase-merge/git-rebase-todo.backup"] {
            if newer(self, name, false).is_some_and(|text| repository::has_commands(&text)) {
                let words = "git runs its `exec` lines when the rebase goes on";
                self.find(item, OsStr::new(name), words);
            }
        }
    }
}

/// The entries of a directory.
fn entries(at: &OwnedFd) -> Result<Vec<Entry>, Errno> {
    let mut entries = Vec::new();
    for entry in Dir::read_from(at)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name == b"." || name == b".." {
            continue;
        }
        let name = OsString::from_vec(name.to_vec());
        let kind = match entry.file_type() {
            FileType::Unknown => handle::stat(at, &name)
                .map_or(FileType::Unknown, |stat| FileType::from_raw_mode(stat.st_mode)),
            kind => kind,
        };
        entries.push(Entry { name, kind });
    }
    Ok(entries)
}
