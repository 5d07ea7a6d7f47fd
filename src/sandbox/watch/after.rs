//! What is left to do when nothing inside lives any more, in the launcher's own namespace: a last
//! look for what was planted, which is set aside, and the empty directories, which are removed.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path};

use rustix::fs::{AtFlags, FileType, FlockOperation, Mode, OFlags, flock};
use rustix::io::Errno;
use rustix::mount::{UnmountFlags, unmount};

use super::super::plan::shown;
use super::pointer::is_foreign;
use super::walk::{is_link, names};
use super::{Rule, Watch};

/// The name that a planted file has afterwards; nothing looks for it.
pub(super) fn aside(place: &Path) -> OsString {
    let mut name = place.file_name().unwrap_or_default().to_owned();
    name.push(".refused");
    name
}

impl Watch {
    /// Clears up.
    pub(super) fn clear_up(&mut self) -> Result<(), String> {
        if self.running.is_none() {
            return Ok(());
        }
        for (path, lock) in std::mem::take(&mut self.made) {
            drop(lock);
            if let (Some(parent), Some(name)) = (path.parent(), path.file_name())
                && let Ok(parent) = directory(parent)
            {
                // It stays when the host has put something into it, and when another run needs it.
                if remove_empty(&parent, name.as_bytes()) == Err(Errno::BUSY) {
                    // It was there at the start, and so it is protected in this namespace as well.
                    let _done = unmount(&path, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW)
                        .and_then(|()| remove_empty(&parent, name.as_bytes()));
                }
            }
        }
        let mut done = Ok(());
        for entry in &self.entries {
            let place = self.place(entry);
            let found = match &entry.rule {
                Rule::Nothing | Rule::Pointer => set_aside(&place, entry.rule == Rule::Pointer),
                Rule::Worktrees(seen) => worktrees(&place, seen),
                Rule::Held(_) | Rule::Empty(_) => Ok(()),
            };
            if done.is_ok() {
                done = found;
            }
        }
        done
    }
}

fn remove_empty(directory: &OwnedFd, name: &[u8]) -> Result<(), Errno> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = rustix::fs::openat(directory, name, flags, Mode::empty())?;
    if flock(&file, FlockOperation::NonBlockingLockExclusive) == Err(Errno::WOULDBLOCK) {
        return Ok(());
    }
    let stat = rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)?;
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::Directory => rustix::fs::unlinkat(directory, name, AtFlags::REMOVEDIR),
        FileType::RegularFile if stat.st_size == 0 => {
            rustix::fs::unlinkat(directory, name, AtFlags::empty())
        }
        _ => Ok(()),
    }
}

/// Looks through linked worktrees: for links, of which git makes none, and for those that were made
/// in the last moment.
fn worktrees(place: &Path, seen: &BTreeSet<OsString>) -> Result<(), String> {
    let Ok(list) = directory(place) else {
        let parent = place.parent().and_then(|parent| directory(parent).ok());
        let name = place.file_name().unwrap_or_default().to_owned();
        return match parent {
            Some(parent) if is_link(&parent, &name) => set_aside(place, false),
            _ => Ok(()),
        };
    };
    for name in names(&list).unwrap_or_default() {
        if is_link(&list, &name) {
            // Under another name in here it would be one all the same.
            return match rustix::fs::unlinkat(&list, name.as_bytes(), AtFlags::empty()) {
                Ok(()) => Err(format!(
                    "the link `{}` was planted while the jail ran and is removed, so the run counts \
                     as failed",
                    shown(&place.join(name))
                )),
                Err(error) => Err(unmoved(&place.join(name), error)),
            };
        }
        if !seen.contains(&name) {
            set_aside(&place.join(name).join("commondir"), true)?;
        }
    }
    Ok(())
}

fn unmoved(place: &Path, error: Errno) -> String {
    format!(
        "`{}` was planted while the jail ran and cannot be set aside ({error}): remove it before \
         version control runs there",
        shown(place)
    )
}

/// Renames what was planted at `place`, so that git on the host does not find it.
fn set_aside(place: &Path, pointer: bool) -> Result<(), String> {
    let (Some(parent), Some(name)) = (place.parent(), place.file_name()) else { return Ok(()) };
    // Through a link, it is no worktree of git's.
    let Ok(parent) = directory(parent) else { return Ok(()) };
    if pointer && !is_foreign(&parent, name) {
        return Ok(());
    }
    match rustix::fs::renameat(&parent, name.as_bytes(), &parent, aside(place)) {
        Ok(()) => Err(super::walk::planted(place)),
        Err(Errno::NOENT) => Ok(()),
        Err(error) => Err(unmoved(place, error)),
    }
}

/// Opens a directory without following any link.
fn directory(path: &Path) -> Result<OwnedFd, Errno> {
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut at = rustix::fs::open("/", flags, Mode::empty())?;
    for part in path.components() {
        if let Component::Normal(name) = part {
            at = rustix::fs::openat(&at, name.as_bytes(), flags | OFlags::PATH, Mode::empty())?;
        }
    }
    Ok(at)
}
