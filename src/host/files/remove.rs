//! Removing one file, or a directory with nothing in it.

use std::path::Path;

use rustix::{
    fs::{AtFlags, FileType, Mode, OFlags},
    io::Errno,
};

use super::{
    Stamp, granted_name,
    keep::{Before, Change, Keep, borrowed},
    walk,
};
use crate::{authority::Grant, host::HostError};

/// Removes a file or a link, never a directory. No component on the way is followed when it has
/// become a link. `keep` is told first.
///
/// # Errors
/// [`HostError::NotGranted`]; [`HostError::Kind`] for a path without a name;
/// [`HostError::Changed`], also for a file that is not as `expected`; the system's refusal.
pub fn remove(
    grant: &Grant,
    path: &Path,
    expected: Option<Stamp>,
    keep: Option<&dyn Keep>,
) -> Result<(), HostError> {
    let (parent, name) = granted_name(grant, path)?;
    let directory = walk(parent)?;
    let fail = |errno| HostError::io("remove", path, errno);
    let changed = || HostError::Changed { path: path.to_owned() };
    let mut number = None;
    if expected.is_some() || keep.is_some() {
        let look = || rustix::fs::statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW);
        let stat = look().map_err(fail)?;
        if expected.is_some_and(|expected| expected != Stamp::of(&stat)) {
            return Err(changed());
        }
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        // Opening anything else may do something.
        let handle = (FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile)
            .then(|| rustix::fs::openat(&directory, name, flags, Mode::empty()).ok())
            .flatten()
            .filter(|handle| {
                rustix::fs::fstat(handle)
                    .is_ok_and(|it| (it.st_dev, it.st_ino) == (stat.st_dev, stat.st_ino))
            });
        let before = Some(Before::new(borrowed(handle.as_ref()), &stat));
        let change = Change { path, before, after: None, made: &[] };
        number = keep.map(|keep| (keep, keep.before(&change)));
        // A directory is no file, and what was changed meanwhile was not looked at.
        if look().is_ok_and(|now| Stamp::of(&now) != Stamp::of(&stat)) {
            undone(number);
            return Err(changed());
        }
    }
    rustix::fs::unlinkat(&directory, name, AtFlags::empty()).map_err(|errno| {
        undone(number);
        fail(errno)
    })
}

fn undone(number: Option<(&dyn Keep, u64)>) {
    if let Some((keep, number)) = number {
        keep.failed(number);
    }
}

/// Removes a directory when nothing is in it; says whether it did. No component on the way is
/// followed when it has become a link.
///
/// # Errors
/// [`HostError::NotGranted`]; the system's refusal but for a directory that is in use or gone.
pub fn remove_empty_directory(grant: &Grant, path: &Path) -> Result<bool, HostError> {
    if !grant.permits_write(path) {
        return Err(HostError::NotGranted { path: path.to_owned() });
    }
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { return Ok(false) };
    match rustix::fs::unlinkat(&walk(parent)?, name, AtFlags::REMOVEDIR) {
        Ok(()) => Ok(true),
        Err(Errno::NOTEMPTY | Errno::EXIST | Errno::NOENT | Errno::NOTDIR | Errno::BUSY) => {
            Ok(false)
        }
        Err(errno) => Err(HostError::io("remove", path, errno)),
    }
}
