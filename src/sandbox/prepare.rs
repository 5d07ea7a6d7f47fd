//! Makes the missing directories of a plan on the host, on held handles: no symbolic link is
//! followed on the way, so nothing planted decides where they come to be (law 16).

use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use super::plan::{Create, shown};

/// A directory could not be made.
#[derive(Debug, thiserror::Error)]
#[error(
    "the directory `{}` cannot be created ({source}): create it, or open the one around it to this user",
    shown(path)
)]
pub struct PrepareError {
    path: PathBuf,
    #[source]
    source: Errno,
}

/// Makes every directory, 0700 each. One that appeared since the plan is taken as it is when it is
/// a directory.
///
/// # Errors
/// [`PrepareError`] names the directory. What was made before it stays; it is empty.
pub(super) fn create(directories: &[Create]) -> Result<(), PrepareError> {
    for directory in directories {
        make(&directory.path, directory.missing)
            .map(drop)
            .map_err(|source| PrepareError { path: directory.path.clone(), source })?;
    }
    Ok(())
}

/// Opens a directory by its physical path; a link on it is an error, not a way.
///
/// # Errors
/// [`Errno::LOOP`] or [`Errno::NOTDIR`] where a symbolic link is.
pub(super) fn held(path: &Path) -> Result<OwnedFd, Errno> {
    make(path, 0)
}

/// Makes a directory with mode 0700 past the caller's mask, which could take its owner's rights away.
pub(super) fn made(at: &OwnedFd, name: &[u8]) -> Result<(), Errno> {
    let umask = rustix::process::umask(Mode::RWXG | Mode::RWXO);
    let made = rustix::fs::mkdirat(at, name, Mode::RWXU);
    rustix::process::umask(umask);
    made
}

fn make(path: &Path, missing: usize) -> Result<OwnedFd, Errno> {
    let parts: Vec<Component<'_>> = path.components().collect();
    let there = parts.len().saturating_sub(missing);
    let handle = |at: &OwnedFd, part: &Component<'_>| {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        rustix::fs::openat(at, part.as_os_str().as_bytes(), flags, Mode::empty())
    };
    let mut at =
        rustix::fs::open("/", OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    for (index, part) in parts.iter().enumerate().skip(1) {
        if index >= there {
            match made(&at, part.as_os_str().as_bytes()) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(error) => return Err(error),
            }
        }
        at = handle(&at, part)?;
    }
    Ok(at)
}
