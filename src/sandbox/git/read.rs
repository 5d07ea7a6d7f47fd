//! Looks at what a repository consists of: no link is followed at the end of a path, no pipe or device
//! is opened, and no more is read than the caller says.

#![expect(clippy::disallowed_methods, reason = "physical places are looked up here")]

use std::ffi::{OsStr, OsString};
use std::io::{self, Read};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use super::super::sorted;

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

/// What is at a path, its last component not followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum Entry {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Link,
    /// A pipe, a socket, a device.
    Odd,
    /// Nothing.
    Absent,
    /// It cannot be told: no permission, a broken file system.
    Unknown,
}

/// What is at `path`.
pub(in super::super) fn look(path: &Path) -> Entry {
    match stat(path) {
        Ok(stat) => match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => Entry::File,
            FileType::Directory => Entry::Directory,
            FileType::Symlink => Entry::Link,
            _ => Entry::Odd,
        },
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::NAMETOOLONG) => Entry::Absent,
        Err(_) => Entry::Unknown,
    }
}

/// The status of `path`, its last component not followed.
pub(in super::super) fn stat(path: &Path) -> Result<Stat, Errno> {
    rustix::fs::statat(CWD, path.as_os_str().as_bytes(), AtFlags::SYMLINK_NOFOLLOW)
}

/// The text of the regular file `path`, at most `limit` bytes of it.
///
/// # Errors
/// What the system says; `InvalidData` for anything but a regular file, `FileTooLarge` above the
/// limit.
pub(in super::super) fn text(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let handle = rustix::fs::open(path.as_os_str().as_bytes(), flags, Mode::empty())?;
    let stat = rustix::fs::fstat(&handle)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(io::ErrorKind::InvalidData.into());
    }
    // Opened through the handle: what was looked at is what is read.
    let name = format!("/proc/self/fd/{}", handle.as_raw_fd());
    read_to_end(rustix::fs::open(name, READ.difference(OFlags::NOFOLLOW), Mode::empty())?, limit)
}

/// How a regular file is opened for reading, and nothing else waited for.
pub(in super::super) const READ: OFlags = OFlags::RDONLY
    .union(OFlags::NONBLOCK)
    .union(OFlags::NOCTTY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

/// What is left to read of an open file, at most `limit` bytes of it.
///
/// # Errors
/// What the system says; `FileTooLarge` above the limit.
pub(in super::super) fn read_to_end(file: OwnedFd, limit: u64) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    std::fs::File::from(file).take(limit.saturating_add(1)).read_to_end(&mut text)?;
    if u64::try_from(text.len()).is_ok_and(|length| length > limit) {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    Ok(text)
}

/// The names in the directory `path`, sorted, at most `limit`; `None` when there are more or it
/// cannot be read.
pub(in super::super) fn names(path: &Path, limit: usize) -> Option<Vec<OsString>> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let handle = rustix::fs::open(path.as_os_str().as_bytes(), flags, Mode::empty()).ok()?;
    let mut names = Vec::new();
    for entry in Dir::read_from(handle).ok()? {
        let entry = entry.ok()?;
        let name = entry.file_name().to_bytes();
        if name == b"." || name == b".." {
            continue;
        }
        if names.len() == limit {
            return None;
        }
        names.push(OsString::from_vec(name.to_vec()));
    }
    sorted::by(&mut names, OsString::cmp);
    Some(names)
}

/// The physical place of `path`, which must be there.
pub(in super::super) fn physical(path: &Path) -> Option<PathBuf> {
    std::fs::canonicalize(path).ok()
}

/// The place of `path` with only its last component left unresolved.
pub(in super::super) fn physical_name(path: &Path) -> Option<PathBuf> {
    Some(physical(path.parent()?)?.join(path.file_name()?))
}

/// Bytes as a path.
pub(in super::super) fn path(bytes: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(bytes))
}
