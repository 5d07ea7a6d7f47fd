//! The directory of one run on disk that is `/tmp` inside (`tmp`: `host-subdir`).
//!
//! Made, and removed with all that is in it, on held handles: no link that the inside has planted is
//! ever followed. A lock tells whether its run still goes on; what a killed launcher has left is
//! removed by the next start of the same user at the same place.

use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Dir, FileType, FlockOperation, Mode, OFlags};
use rustix::io::Errno;

use super::facts::tmp_prefix;
use super::plan::{TMP_INNER, shown};
use super::prepare;

/// How many directories of earlier runs one start removes at most.
const SWEPT: usize = 16;

/// The directory cannot be made.
#[derive(Debug, thiserror::Error)]
#[error(
    "`tmp`: the directory `{}` cannot be made ({because}): set TMPDIR to another place",
    shown(path)
)]
pub struct ScratchError {
    path: PathBuf,
    because: String,
}

/// A directory that is there as long as this value.
#[derive(Debug)]
pub(super) struct Scratch {
    /// The directory around it.
    parent: OwnedFd,
    /// Its name there.
    name: Vec<u8>,
    /// Itself, locked.
    own: OwnedFd,
    /// The names of this process's handles. The launcher's namespace has another `/proc` at the end.
    handles: OwnedFd,
}

impl Scratch {
    /// Removes what killed launchers have left beside `path`, and makes it.
    ///
    /// # Errors
    /// [`ScratchError`] names the directory. Nothing is left of it then.
    pub(super) fn new(path: &Path) -> Result<Self, ScratchError> {
        let fail = |because: String| ScratchError { path: path.to_path_buf(), because };
        let told = |error: Errno| fail(error.to_string());
        let name = path.file_name().unwrap_or_default().as_bytes().to_vec();
        let parent = prepare::held(path.parent().unwrap_or(path)).map_err(told)?;
        let parent = openat(&parent, b".").map_err(told)?;
        let stat = rustix::fs::fstat(&parent).map_err(told)?;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let handles = rustix::fs::open("/proc/self/fd", flags, Mode::empty()).map_err(told)?;
        let uid = rustix::process::geteuid().as_raw();
        if !is_safe(&stat, uid) {
            return Err(fail("another user could put something else at its name there".into()));
        }
        sweep(&parent, &handles, uid);
        prepare::made(&parent, &name).map_err(told)?;
        let made = || {
            let own = openat(&parent, &name)?;
            rustix::fs::flock(&own, FlockOperation::NonBlockingLockExclusive)?;
            // A sweep may have come between the two.
            if rustix::fs::fstat(&own)?.st_nlink == 0 {
                return Err(Errno::NOENT);
            }
            prepare::made(&own, TMP_INNER.as_bytes())?;
            // Past the mask of the caller.
            rustix::fs::chmodat(&own, TMP_INNER, Mode::from_raw_mode(0o1777), AtFlags::empty())?;
            Ok(own)
        };
        match made() {
            Ok(own) => Ok(Self { parent, name, own, handles }),
            Err(error) => {
                let _gone = rustix::fs::unlinkat(&parent, &*name, AtFlags::REMOVEDIR);
                Err(told(error))
            }
        }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What cannot be removed now is by a later start.
        let _left = clear(&self.own, &self.handles);
        remove(&self.parent, &self.name, &self.own);
    }
}

/// Whether nobody else can rename what lies in such a directory.
fn is_safe(directory: &rustix::fs::Stat, uid: u32) -> bool {
    let mode = directory.st_mode;
    let group = mode & 0o020 != 0 && directory.st_gid != rustix::process::getegid().as_raw();
    // In a sticky one only the owners may.
    mode & 0o1000 != 0
        || (directory.st_uid == uid || directory.st_uid == 0) && mode & 0o002 == 0 && !group
}

fn openat(at: &OwnedFd, name: &[u8]) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(at, name, flags, Mode::empty())
}

/// Removes what earlier runs of this user have left.
fn sweep(parent: &OwnedFd, handles: &OwnedFd, uid: u32) {
    let prefix = tmp_prefix(uid);
    let Ok(entries) = Dir::read_from(parent) else { return };
    let stale = entries.filter_map(Result::ok).filter(|entry| {
        entry.file_name().to_bytes().starts_with(prefix.as_bytes())
            && matches!(entry.file_type(), FileType::Directory | FileType::Unknown)
    });
    for entry in stale.take(SWEPT) {
        let name = entry.file_name().to_bytes();
        let Ok(own) = openat(parent, name) else { continue };
        let is_own = rustix::fs::fstat(&own).is_ok_and(|stat| stat.st_uid == uid);
        // Locked means that its run goes on.
        if is_own && rustix::fs::flock(&own, FlockOperation::NonBlockingLockExclusive).is_ok() {
            let _left = clear(&own, handles);
            remove(parent, name, &own);
        }
    }
}

/// Removes the empty directory `own` when it still has that name.
fn remove(parent: &OwnedFd, name: &[u8], own: &OwnedFd) {
    let same = || {
        let there = rustix::fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW)?;
        let own = rustix::fs::fstat(own)?;
        Ok::<_, Errno>((there.st_dev, there.st_ino) == (own.st_dev, own.st_ino))
    };
    if same() == Ok(true) {
        let _left = rustix::fs::unlinkat(parent, name, AtFlags::REMOVEDIR);
    }
}

/// Empties `top`. A directory in a directory is moved up before it is emptied itself, so that no
/// depth that the inside has made exhausts the stack or the descriptors.
fn clear(top: &OwnedFd, handles: &OwnedFd) -> Result<(), Errno> {
    let mut number = 0_u64;
    loop {
        let mut found = false;
        for name in names(top)? {
            found = true;
            match rustix::fs::unlinkat(top, &*name, AtFlags::empty()) {
                Ok(()) | Err(Errno::NOENT) => continue,
                Err(Errno::ISDIR | Errno::PERM) => {}
                Err(error) => return Err(error),
            }
            let directory = unlocked(top, &name, handles)?;
            for inner in names(&directory)? {
                match rustix::fs::unlinkat(&directory, &*inner, AtFlags::empty()) {
                    Ok(()) | Err(Errno::NOENT) => continue,
                    Err(Errno::ISDIR | Errno::PERM) => {}
                    Err(error) => return Err(error),
                }
                // Its own `..` changes, so it must be writable itself.
                drop(unlocked(&directory, &inner, handles)?);
                loop {
                    number += 1;
                    let up = format!("{number}");
                    match rustix::fs::renameat_with(
                        &directory,
                        &*inner,
                        top,
                        up.as_bytes(),
                        rustix::fs::RenameFlags::NOREPLACE,
                    ) {
                        Ok(()) => break,
                        Err(Errno::EXIST) => {}
                        Err(error) => return Err(error),
                    }
                }
            }
            rustix::fs::unlinkat(top, &*name, AtFlags::REMOVEDIR)?;
        }
        if !found {
            return Ok(());
        }
    }
}

/// Opens a directory that the inside may have locked, with its locks off.
fn unlocked(at: &OwnedFd, name: &[u8], handles: &OwnedFd) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let handle = rustix::fs::openat(at, name, flags, Mode::empty())?;
    // By its name among the handles: a bare one takes no mode itself.
    let own = handle.as_raw_fd().to_string();
    rustix::fs::chmodat(handles, own, Mode::RWXU, AtFlags::empty())?;
    openat(at, name)
}

/// The names in a directory, but for `.` and `..`.
fn names(directory: &OwnedFd) -> Result<Vec<Vec<u8>>, Errno> {
    let mut names = Vec::new();
    for entry in Dir::read_from(directory)? {
        let name = entry?.file_name().to_bytes().to_vec();
        if name != b"." && name != b".." {
            names.push(name);
        }
    }
    Ok(names)
}

#[cfg(test)]
mod tests;
