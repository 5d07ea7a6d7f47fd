//! What of the workspace's own repository makes the host run code, remembered at the start and compared
//! at the end: configuration, hooks, attributes, and where the rest of it is (laws 9 and 13). Small files
//! by their content, so that a change and its way back is no change; large ones by their status.

use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, OFlags};

use super::super::git::{Group, Name, Repository, read};
use super::super::sorted;
use super::handle::{self, Moment};
use super::{Finding, Root, repository};

/// The largest file that is remembered by content, and of all of them together, in bytes.
const MAX_FILE: u64 = 64 * 1024;
const MAX_ALL: usize = 1 << 20;
/// How many hooks of one directory are remembered.
const MAX_HOOKS: usize = 1024;

/// What is at a name.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Content {
    Absent,
    /// The permission bits and the text.
    Text(u32, Vec<u8>),
    /// Device, inode, size and the last change of a file that is too large to be kept.
    Status(u64, u64, i64, Moment),
    Link(OsString),
    Directory(Vec<(OsString, Content)>),
    /// A pipe, a device, a directory where a file should be, what cannot be read.
    Odd,
}

/// The names of a repository as they were at the start.
#[derive(Debug, Default)]
pub(super) struct Kept {
    names: Vec<(usize, Name, Content)>,
}

impl Kept {
    /// Remembers the names that lie in something writable.
    pub(super) fn begin(repository: &Repository, roots: &[Root]) -> Self {
        let mut budget = MAX_ALL;
        let names = repository
            .names
            .iter()
            .filter_map(|name| {
                let (number, root) = holder(roots, &name.path)?;
                let below = name.path.strip_prefix(&root.path).ok()?;
                Some((number, name.clone(), content(&root.handle, below, name.group, &mut budget)))
            })
            .collect();
        Self { names }
    }

    /// The names, absolute: all below them is compared here and nowhere else.
    pub(super) fn paths(&self) -> impl Iterator<Item = &Path> {
        self.names
            .iter()
            .filter(|(_, name, _)| name.group != Group::Tree)
            .map(|(_, name, _)| name.path.as_path())
    }

    /// What is another now. In a `.git` directory that was exchanged as a whole all of it is.
    pub(super) fn compare(&self, roots: &[Root]) -> Vec<Finding> {
        let mut findings = Vec::new();
        let mut budget = MAX_ALL * 2;
        for (number, name, before) in &self.names {
            let Some(root) = roots.get(*number) else { continue };
            let Ok(below) = name.path.strip_prefix(&root.path) else { continue };
            let after = content(&root.handle, below, name.group, &mut budget);
            if after != *before {
                differences(name, before, &after, &mut findings);
            }
        }
        findings
    }

    /// Where configuration and hooks of the start lead to: programs in the workspace that git runs, a
    /// directory of hooks there, the targets of hooks that are links. Absolute, plain paths.
    pub(super) fn leads_to(&self, repository: &Repository, home: Option<&Path>) -> Vec<PathBuf> {
        let tree = repository.dot_git.parent().unwrap_or(&repository.dot_git);
        let mut found = Vec::new();
        for (_, name, content) in &self.names {
            let directory = name.path.parent().unwrap_or(&name.path);
            match content {
                Content::Text(_, text) if name.group == Group::Settings => {
                    let variables = super::super::git::config::variables(text);
                    found.extend(repository::leads_to(&variables, tree, home));
                    found.extend(repository::leads_to(&variables, directory, home));
                }
                Content::Directory(entries) => {
                    for (_, content) in entries {
                        if let Content::Link(target) = content {
                            found.push(name.path.join(target));
                        }
                    }
                }
                _ => {}
            }
        }
        let mut found: Vec<PathBuf> =
            found.iter().map(|path| repository::plain(path)).filter(|path| path != tree).collect();
        sorted::unique(&mut found);
        found
    }
}

/// The root that holds `path`, the innermost when there are several.
pub(super) fn holder<'a>(roots: &'a [Root], path: &Path) -> Option<(usize, &'a Root)> {
    roots
        .iter()
        .enumerate()
        .filter(|(_, root)| root.directory && path.starts_with(&root.path) && path != root.path)
        .max_by_key(|(_, root)| root.path.components().count())
}

fn content(root: &OwnedFd, below: &Path, group: Group, budget: &mut usize) -> Content {
    match group {
        Group::Tree => Content::Absent,
        Group::Hooks => hooks(root, below, budget),
        Group::Settings | Group::Pointer => file(root, below, budget),
    }
}

fn hooks(root: &OwnedFd, below: &Path, budget: &mut usize) -> Content {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY;
    let directory = match handle::open(root, below, flags) {
        Ok(directory) => directory,
        Err(rustix::io::Errno::NOENT) => return Content::Absent,
        Err(_) => return file(root, below, budget),
    };
    let Ok(entries) = rustix::fs::Dir::read_from(&directory) else { return Content::Odd };
    let mut found = Vec::new();
    for entry in entries {
        let Ok(entry) = entry else { return Content::Odd };
        let name = entry.file_name().to_bytes();
        // Git runs none of these, and every `git init` makes a dozen.
        if name == b"." || name == b".." || name.ends_with(b".sample") {
            continue;
        }
        if found.len() == MAX_HOOKS {
            return Content::Odd;
        }
        let name = read::path(name).as_os_str().to_owned();
        let content = file(&directory, Path::new(&name), budget);
        found.push((name, content));
    }
    sorted::by(&mut found, |(a, _), (b, _)| a.cmp(b));
    Content::Directory(found)
}

fn file(at: &OwnedFd, below: &Path, budget: &mut usize) -> Content {
    let handle = match handle::open(at, below, OFlags::PATH) {
        Ok(handle) => handle,
        Err(rustix::io::Errno::NOENT) => return Content::Absent,
        Err(_) => return Content::Odd,
    };
    let Ok(stat) = rustix::fs::fstat(&handle) else { return Content::Odd };
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => {}
        FileType::Symlink => {
            return rustix::fs::readlinkat(&handle, "", Vec::new())
                .map_or(Content::Odd, |target| {
                    Content::Link(read::path(target.as_bytes()).as_os_str().to_owned())
                });
        }
        _ => return Content::Odd,
    }
    let limit = MAX_FILE.min(u64::try_from(*budget).unwrap_or(u64::MAX));
    match handle::text(at, below, limit) {
        Ok(text) => {
            *budget = budget.saturating_sub(text.len());
            Content::Text(stat.st_mode & 0o7777, text)
        }
        Err(error) if error.kind() == std::io::ErrorKind::FileTooLarge => {
            Content::Status(stat.st_dev, stat.st_ino, stat.st_size, handle::changed(&stat))
        }
        Err(_) => Content::Odd,
    }
}

fn differences(name: &Name, before: &Content, after: &Content, findings: &mut Vec<Finding>) {
    let mut find = |path: PathBuf, words: String| findings.push(Finding { path, words });
    let is_config = name.path.file_name().is_some_and(|file| {
        file.as_encoded_bytes().starts_with(b"config") && name.group == Group::Settings
    });
    match (before, after) {
        (_, Content::Directory(new)) => {
            let old = if let Content::Directory(old) = before { old.as_slice() } else { &[] };
            for entry in new.iter().filter(|entry| !old.contains(entry)) {
                find(name.path.join(&entry.0), "git runs it".into());
            }
            for (hook, _) in old.iter().filter(|(hook, _)| new.iter().all(|(it, _)| it != hook)) {
                find(name.path.join(hook), "a hook that was there at the start is gone".into());
            }
        }
        (Content::Directory(old), _) if !old.is_empty() => {
            find(name.path.clone(), "the hooks that were there at the start are gone".into());
        }
        (Content::Text(..) | Content::Absent, Content::Text(_, text))
            if is_config && name.path.extension().is_none_or(|end| end == "worktree") =>
        {
            let old = if let Content::Text(_, old) = before { old.as_slice() } else { b"" };
            if let Some(words) = repository::new_in(old, text) {
                find(name.path.clone(), words);
            }
        }
        // A pointer of git's own making leads nowhere else.
        (Content::Absent, Content::Text(_, text))
            if name.path.ends_with("commondir") && text.trim_ascii_end() == b"../.." => {}
        // What is gone or empty runs nothing.
        (_, Content::Absent) => {}
        (Content::Absent, Content::Text(_, text)) if text.is_empty() => {}
        _ => {
            let words = match name.group {
                Group::Pointer => "git takes the repository it names",
                Group::Hooks => "git takes hooks from there",
                _ => "git or its kin run what it names",
            };
            find(name.path.clone(), words.into());
        }
    }
}
