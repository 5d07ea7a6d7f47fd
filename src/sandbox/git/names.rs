//! The names of a repository that make the host run code later, and the directories on the way to
//! them (law 9). They are collected by looking; what is absent is named as well.

use std::path::{Path, PathBuf};

use super::read::{self, Entry};
use super::{Group, Name, Present};

/// How many git directories of submodules and linked worktrees are named one by one.
const MAX_DIRECTORIES: usize = 256;
/// How many names of one directory are looked at.
const MAX_NAMES: usize = 4096;
/// How deep git directories of submodules lie below `modules` (their names may contain slashes).
const MAX_DEPTH: usize = 12;

/// What was collected.
#[derive(Debug, Default)]
pub(super) struct Names {
    pub(super) found: Vec<Name>,
    pub(super) pins: Vec<PathBuf>,
    /// A name that is a symbolic link or stranger, or cannot be looked at: it cannot be held.
    pub(super) odd: Option<PathBuf>,
    /// Git directories so far.
    directories: usize,
}

impl Names {
    /// The names of a whole git directory and of everything in it.
    pub(super) fn git_directory(&mut self, directory: &Path) {
        self.own(directory);
        self.worktrees(directory);
        self.modules(directory);
    }

    /// The names of Mercurial and Jujutsu in the workspace.
    pub(super) fn foreign(&mut self, workspace: &Path) {
        let hg = workspace.join(".hg");
        if self.pin(&hg) {
            self.add(&hg.join("hgrc"), Group::Settings);
            self.add(&hg.join("hgrc-not-shared"), Group::Settings);
            self.add(&hg.join("sharedpath"), Group::Pointer);
        }
        let jj = workspace.join(".jj");
        if self.pin(&jj) {
            self.add(&jj.join("workspace-config.toml"), Group::Settings);
            let repo = jj.join("repo");
            if read::look(&repo) == Entry::File {
                self.add(&repo, Group::Pointer);
            } else if self.pin(&repo) {
                self.add(&repo.join("config.toml"), Group::Settings);
                let store = repo.join("store");
                if self.pin(&store) {
                    self.add(&store.join("git_target"), Group::Pointer);
                    let git = store.join("git");
                    if self.pin(&git) {
                        self.own(&git);
                    }
                }
            }
        }
    }

    /// Adds a name with what is there.
    pub(super) fn add(&mut self, path: &Path, group: Group) {
        let present = match (read::look(path), group) {
            (Entry::Absent, _) => Present::Absent,
            (Entry::Directory, Group::Hooks | Group::Tree) => Present::Directory,
            (Entry::File, Group::Settings | Group::Pointer) => Present::File,
            _ => {
                self.odd.get_or_insert_with(|| path.to_path_buf());
                Present::Odd
            }
        };
        self.found.push(Name { path: path.to_path_buf(), present, group });
    }

    /// Pins a directory; `false` when there is none to pin.
    pub(super) fn pin(&mut self, path: &Path) -> bool {
        match read::look(path) {
            Entry::Directory => {
                if !self.pins.iter().any(|pin| pin == path) {
                    self.pins.push(path.to_path_buf());
                }
                true
            }
            Entry::Absent => false,
            _ => {
                self.odd.get_or_insert_with(|| path.to_path_buf());
                false
            }
        }
    }

    /// The names of one git directory without those of others in it.
    fn own(&mut self, directory: &Path) {
        self.add(&directory.join("hooks"), Group::Hooks);
        for name in ["config", "config.worktree"] {
            self.add(&directory.join(name), Group::Settings);
        }
        for name in ["commondir", "gitdir"] {
            self.add(&directory.join(name), Group::Pointer);
        }
        let info = directory.join("info");
        self.pin(&info);
        self.add(&info.join("attributes"), Group::Settings);
    }

    fn worktrees(&mut self, directory: &Path) {
        let worktrees = directory.join("worktrees");
        if !self.pin(&worktrees) {
            return;
        }
        let Some(ids) = read::names(&worktrees, MAX_NAMES).filter(|ids| self.room_for(ids.len()))
        else {
            self.whole(&worktrees);
            return;
        };
        for id in ids {
            let worktree = worktrees.join(id);
            if read::look(&worktree) != Entry::File && self.pin(&worktree) {
                self.directories += 1;
                self.add(&worktree.join("config.worktree"), Group::Settings);
                for name in ["commondir", "gitdir"] {
                    self.add(&worktree.join(name), Group::Pointer);
                }
                self.modules(&worktree);
            }
        }
    }

    fn modules(&mut self, directory: &Path) {
        let modules = directory.join("modules");
        if !self.pin(&modules) {
            return;
        }
        let before = (self.found.len(), self.pins.len());
        if !self.below_modules(&modules, 0) {
            self.found.truncate(before.0);
            self.pins.truncate(before.1);
            self.whole(&modules);
        }
    }

    /// The git directories below `modules`; `false` when there are too many.
    fn below_modules(&mut self, directory: &Path, depth: usize) -> bool {
        let Some(names) = read::names(directory, MAX_NAMES) else { return false };
        if depth > MAX_DEPTH {
            return false;
        }
        for name in names {
            let path = directory.join(name);
            match read::look(&path) {
                Entry::File => continue,
                Entry::Directory => {}
                _ => {
                    self.odd.get_or_insert(path);
                    continue;
                }
            }
            let before = self.pins.len();
            self.pins.push(path.clone());
            let kept = self.found.len();
            if ["HEAD", "config"].iter().any(|it| read::look(&path.join(it)) != Entry::Absent) {
                if !self.room_for(1) {
                    return false;
                }
                self.directories += 1;
                self.git_directory(&path);
            } else if !self.below_modules(&path, depth + 1) {
                return false;
            }
            // Nothing of git in it, nothing to hold.
            if self.found.len() == kept {
                self.pins.truncate(before);
            }
        }
        true
    }

    /// Names a directory of git directories as a whole.
    fn whole(&mut self, directory: &Path) {
        self.found.push(Name {
            path: directory.to_path_buf(),
            present: Present::Directory,
            group: Group::Tree,
        });
    }

    fn room_for(&self, count: usize) -> bool {
        self.directories.saturating_add(count) <= MAX_DIRECTORIES
    }
}
