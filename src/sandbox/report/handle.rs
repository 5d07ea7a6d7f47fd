//! Opens what lies below a writable place on a handle of the host's own view: no link is followed, and
//! nothing outside the place is reached, whatever the inside has left there.

use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;

use super::super::git::read;

/// The longest path that is handed to the kernel at once.
const MAX_PATH: usize = 4000;

/// Opens `path`, relative and possibly empty, below `root` without following any link.
pub(super) fn open(root: &OwnedFd, path: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
    let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let bytes = path.as_os_str().as_bytes();
    if bytes.is_empty() {
        return rustix::fs::openat(root, ".", flags, Mode::empty());
    }
    if bytes.len() <= MAX_PATH {
        let how = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
        match rustix::fs::openat2(root, bytes, flags, Mode::empty(), how) {
            Err(Errno::NOSYS | Errno::PERM) => {}
            other => return other,
        }
    }
    // One component at a time: where the call is refused, and where the path is longer than one may be.
    let mut parts = path.components().filter_map(|component| match component {
        Component::Normal(part) => Some(part),
        _ => None,
    });
    let mut part = parts.next().ok_or(Errno::NOENT)?;
    let mut at: Option<OwnedFd> = None;
    for next in parts {
        let step = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let from = at.as_ref().unwrap_or(root);
        at = Some(rustix::fs::openat(from, part.as_bytes(), step, Mode::empty())?);
        part = next;
    }
    rustix::fs::openat(at.as_ref().unwrap_or(root), part.as_bytes(), flags, Mode::empty())
}

/// The text of the regular file `path` below `root`, at most `limit` bytes of it. Not by `/proc`, which
/// is another one once bubblewrap's monitor has run.
pub(super) fn text(root: &OwnedFd, path: &Path, limit: u64) -> std::io::Result<Vec<u8>> {
    let regular = |stat: Stat| {
        let kind = FileType::from_raw_mode(stat.st_mode);
        if kind == FileType::RegularFile { Ok(()) } else { Err(std::io::ErrorKind::InvalidData) }
    };
    // A device would be opened by looking at it.
    regular(stat_below(root, path)?)?;
    let file = open(root, path, read::READ)?;
    regular(rustix::fs::fstat(&file)?)?;
    read::read_to_end(file, limit)
}

/// Opens `path` below `root` and follows links that stay below it.
pub(super) fn open_through(root: &OwnedFd, path: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
    rustix::fs::openat2(
        root,
        path.as_os_str().as_bytes(),
        flags | OFlags::CLOEXEC,
        Mode::empty(),
        ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS,
    )
}

/// The status of `name` in the directory `at`, not followed.
pub(super) fn stat(at: &OwnedFd, name: &OsStr) -> Result<Stat, Errno> {
    rustix::fs::statat(at, name.as_bytes(), AtFlags::SYMLINK_NOFOLLOW)
}

/// The status of `path` below `root`, not followed.
pub(super) fn stat_below(root: &OwnedFd, path: &Path) -> Result<Stat, Errno> {
    if path.as_os_str().is_empty() {
        return rustix::fs::fstat(root);
    }
    rustix::fs::fstat(open(root, path, OFlags::PATH)?)
}

/// A moment of the clock by which file systems stamp changes: seconds and nanoseconds since 1970.
pub(super) type Moment = (i64, i64);

/// When the status of a file changed last.
pub(super) fn changed(stat: &Stat) -> Moment {
    #[expect(clippy::useless_conversion, reason = "the fields' types differ between machines")]
    (
        i64::try_from(stat.st_ctime).unwrap_or(i64::MAX),
        i64::try_from(stat.st_ctime_nsec).unwrap_or_default(),
    )
}
