//! What is left to do when nothing inside lives any more, in the launcher's own namespace: a last
//! look for what was planted, which is set aside, and the empty directories, which are removed.

use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path};

use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;

use super::super::plan::shown;
use super::walk::{is_foreign, names};
use super::{Rule, Watch};

/// The name that a planted `commondir` has afterwards; git looks for no such file.
pub(super) const ASIDE: &str = "commondir.refused";

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
                let _stays = rustix::fs::unlinkat(&parent, name.as_bytes(), AtFlags::REMOVEDIR);
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
                Rule::Held(_) | Rule::Placeholder => Ok(()),
            };
            if done.is_ok() {
                done = found;
            }
        }
        done
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
    match rustix::fs::renameat(&parent, name.as_bytes(), &parent, ASIDE) {
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
