//! What is left to do when nothing inside lives any more, in the launcher's own namespace: a last
//! look for what was planted, which is set aside, and the empty directories, which are removed.

use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path};

use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;

use super::super::plan::shown;
use super::walk::{is_foreign, names};
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
        for path in &self.made {
            if let (Some(parent), Some(name)) = (path.parent(), path.file_name())
                && let Ok(parent) = directory(parent)
            {
                // It stays when the host has put something into it.
                let _stays = remove_empty(&parent, name.as_bytes());
            }
        }
        let mut done = Ok(());
        for entry in &self.entries {
            let place = self.place(entry);
            let found = match &entry.rule {
                Rule::Nothing | Rule::Pointer => set_aside(&place, entry.rule == Rule::Pointer),
                Rule::Worktrees(seen) => match directory(&place).and_then(|it| names(&it)) {
                    // One that was made in the last moment.
                    Ok(names) => names
                        .into_iter()
                        .filter(|name| !seen.contains(name))
                        .try_for_each(|name| set_aside(&place.join(name).join("commondir"), true)),
                    Err(_) => Ok(()),
                },
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
    let stat = rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)?;
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::Directory => rustix::fs::unlinkat(directory, name, AtFlags::REMOVEDIR),
        FileType::RegularFile if stat.st_size == 0 => {
            rustix::fs::unlinkat(directory, name, AtFlags::empty())
        }
        _ => Ok(()),
    }
}

/// Renames what was planted at `place`, so that git on the host does not find it.
fn set_aside(place: &Path, pointer: bool) -> Result<(), String> {
    let (Some(parent), Some(name)) = (place.parent(), place.file_name()) else { return Ok(()) };
    // Through a link, it is no worktree of git's.
    let Ok(parent) = directory(parent) else { return Ok(()) };
    if pointer && !is_foreign(&parent, &name.to_owned()) {
        return Ok(());
    }
    match rustix::fs::renameat(&parent, name.as_bytes(), &parent, aside(place)) {
        Ok(()) => Err(super::walk::planted(place)),
        Err(Errno::NOENT) => Ok(()),
        Err(error) => Err(format!(
            "`{}` was planted while the jail ran and cannot be set aside ({error}): remove it before \
             git runs there",
            shown(place)
        )),
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
