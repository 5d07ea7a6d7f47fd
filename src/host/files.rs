//! Files that a model asks for: named, looked at, read, and replaced.
//!
//! A path is resolved once, by [`resolve`], to the physical path that authority is asked about.
//! Every later call walks that path from the root with handles that follow no link, so what was
//! checked is what is touched: a component that has become a link meanwhile is an error, never a
//! way elsewhere.

use std::{
    collections::BTreeMap,
    ffi::{OsStr, OsString},
    fs::File,
    io::{self, Read},
    os::{
        fd::{AsFd, OwnedFd},
        unix::ffi::{OsStrExt, OsStringExt},
    },
    path::{Component, Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering},
};

use rustix::{
    fs::{AtFlags, CWD, FileType, Mode, OFlags, Stat},
    io::Errno,
};

use super::HostError;
use crate::authority::Grant;

mod attributes;
mod keep;
mod remove;
mod replace;
pub use keep::{Before, Change, Keep};
pub use remove::{remove, remove_empty_directory};
#[cfg(test)]
pub(crate) use replace::meanwhile;
pub use replace::{Expected, Manner, Replaced, replace, replace_with};

/// The most links that one path may pass, as in the kernel (`path_resolution(7)`).
const MAX_LINKS: usize = 40;

/// What the system says of a regular file: enough to see that it was changed or replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// The device.
    pub device: u64,
    /// The inode.
    pub inode: u64,
    /// The length in bytes.
    pub size: u64,
    /// Seconds and nanoseconds of the last change of the content.
    pub modified: (i64, i64),
    /// Seconds and nanoseconds of the last change of the inode.
    pub changed: (i64, i64),
}

impl Stamp {
    #[expect(
        clippy::useless_conversion,
        clippy::cast_possible_wrap,
        reason = "the fields' types differ between architectures"
    )]
    fn of(stat: &Stat) -> Self {
        Self {
            device: stat.st_dev.into(),
            inode: stat.st_ino.into(),
            size: u64::try_from(stat.st_size).unwrap_or_default(),
            modified: (stat.st_mtime.into(), stat.st_mtime_nsec as i64),
            changed: (stat.st_ctime.into(), stat.st_ctime_nsec as i64),
        }
    }
}

/// Resolves a path as a person or a model spells it to the physical path it stands for.
///
/// `~` and `~/…` stand for `home`; a relative path starts from `base` (physical). Links are
/// followed, the last one too. What does not exist yet keeps its name below the deepest directory
/// that does.
///
/// # Errors
/// [`HostError::Path`] for an empty path, a NUL byte, or `~` without a home; ELOOP after 40 links;
/// the system's refusal to look at a component.
pub fn resolve(spelled: &Path, base: &Path, home: Option<&Path>) -> Result<PathBuf, HostError> {
    let bytes = spelled.as_os_str().as_bytes();
    let wrong = |reason| HostError::Path { spelled: spelled.display().to_string(), reason };
    if bytes.is_empty() {
        return Err(wrong("is an empty path; name a file"));
    }
    if bytes.contains(&0) {
        return Err(wrong("contains a NUL byte, which no path can; leave it out"));
    }
    let path = if let Ok(rest) = spelled.strip_prefix("~") {
        home.ok_or_else(|| wrong("needs a home directory, and HOME is not set; name it in full"))?
            .join(rest)
    } else {
        base.join(spelled)
    };
    follow(&path)
}

fn follow(path: &Path) -> Result<PathBuf, HostError> {
    let mut done = PathBuf::from("/");
    // The components that are left, the next one last.
    let mut left: Vec<OsString> = parts_reversed(path);
    let mut links = 0_usize;
    while let Some(part) = left.pop() {
        if part == ".." {
            done.pop();
            continue;
        }
        let here = done.join(&part);
        let kind = match rustix::fs::lstat(&here) {
            Ok(stat) => FileType::from_raw_mode(stat.st_mode),
            Err(Errno::NOENT) => {
                done = here;
                continue;
            }
            Err(errno) => return Err(HostError::io("look at", &here, errno)),
        };
        if kind == FileType::Symlink {
            links = links.saturating_add(1);
            if links > MAX_LINKS {
                return Err(HostError::io("follow", path, Errno::LOOP));
            }
            let target = rustix::fs::readlinkat(CWD, &here, Vec::new())
                .map_err(|errno| HostError::io("follow", &here, errno))?;
            let target = PathBuf::from(OsString::from_vec(target.into_bytes()));
            if target.is_absolute() {
                done = PathBuf::from("/");
            }
            left.extend(parts_reversed(&target));
        } else if kind != FileType::Directory && !left.is_empty() {
            return Err(HostError::io("look into", &here, Errno::NOTDIR));
        } else {
            done = here;
        }
    }
    Ok(done)
}

fn parts_reversed(path: &Path) -> Vec<OsString> {
    let mut parts: Vec<OsString> = path
        .components()
        .filter_map(|component| match component {
            Component::Normal(name) => Some(name.to_owned()),
            Component::ParentDir => Some(OsString::from("..")),
            Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
        })
        .collect();
    parts.reverse();
    parts
}

/// Returns the first link on the way to a path that leads nowhere, when there is one.
pub fn dead_link(path: &Path) -> Option<PathBuf> {
    let mut ways: Vec<&Path> = path.ancestors().collect();
    ways.reverse();
    let is_dead = |way: &&Path| {
        rustix::fs::lstat(*way)
            .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Symlink)
            && rustix::fs::stat(*way).is_err()
    };
    ways.into_iter().find(is_dead).map(Path::to_owned)
}

/// Something that was opened for reading.
#[derive(Debug)]
pub enum Opened {
    /// A regular file, at its beginning, and what the system says of it.
    File(File, Stamp),
    /// A directory.
    Directory(OwnedFd),
}

/// Opens a regular file or a directory by its physical path, without following a link and without
/// ever waiting: a FIFO, a socket or a device is refused by its kind, and not even opened.
///
/// # Errors
/// [`HostError::Kind`], [`HostError::Changed`] when a component has become a link, or the system's
/// refusal.
pub fn open(path: &Path) -> Result<Opened, HostError> {
    let fail = |errno| HostError::io("open", path, errno);
    let Some(name) = path.file_name() else {
        return Ok(Opened::Directory(open_directory(path)?));
    };
    let parent = walk(path.parent().unwrap_or(Path::new("/")))?;
    let stat = rustix::fs::statat(&parent, name, AtFlags::SYMLINK_NOFOLLOW).map_err(fail)?;
    expect_readable(path, &stat)?;
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
    let handle =
        rustix::fs::openat(&parent, name, flags | OFlags::CLOEXEC, Mode::empty()).map_err(fail)?;
    // It may have been replaced since the look.
    let stat = rustix::fs::fstat(&handle).map_err(fail)?;
    expect_readable(path, &stat)?;
    if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
        return Ok(Opened::Directory(handle));
    }
    Ok(Opened::File(File::from(handle), Stamp::of(&stat)))
}

fn expect_readable(path: &Path, stat: &Stat) -> Result<(), HostError> {
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile | FileType::Directory => Ok(()),
        FileType::Symlink => Err(HostError::Changed { path: path.to_owned() }),
        other => Err(HostError::Kind {
            path: path.to_owned(),
            kind: kind(other),
            wanted: "a regular file or a directory",
        }),
    }
}

/// Says whether a path names anything, a link itself.
pub fn is_there(path: &Path) -> bool {
    rustix::fs::lstat(path).is_ok()
}

/// Reads a whole regular file; `None` when it is longer than `limit` bytes.
///
/// # Errors
/// As [`open`]; [`HostError::Kind`] for a directory.
pub fn read_whole(path: &Path, limit: u64) -> Result<Option<(Vec<u8>, Stamp)>, HostError> {
    read_whole_unless(path, limit, &AtomicBool::new(false))
}

/// Reads a whole regular file as [`read_whole`] does, until `stop` is set.
///
/// # Errors
/// As [`read_whole`]; [`HostError::Interrupted`].
pub fn read_whole_unless(
    path: &Path,
    limit: u64,
    stop: &AtomicBool,
) -> Result<Option<(Vec<u8>, Stamp)>, HostError> {
    let Opened::File(file, stamp) = open(path)? else {
        return Err(HostError::Kind {
            path: path.to_owned(),
            kind: "a directory",
            wanted: "a regular file",
        });
    };
    if stamp.size > limit {
        return Ok(None);
    }
    let mut bytes = Vec::new();
    let mut rest = file.take(limit.saturating_add(1));
    loop {
        if stop.load(Ordering::Relaxed) {
            return Err(HostError::Interrupted { path: path.to_owned() });
        }
        let count = rest
            .by_ref()
            .take(PIECE)
            .read_to_end(&mut bytes)
            .map_err(|source| HostError::io("read", path, source))?;
        if count == 0 {
            return Ok((bytes.len() as u64 <= limit).then_some((bytes, stamp)));
        }
    }
}

/// How much is read between two looks whether anyone still waits, in bytes.
const PIECE: u64 = 4 << 20;

/// What stands in a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its name, as the system has it.
    pub name: OsString,
    /// What it is.
    pub kind: FileType,
}

/// Returns what stands in a directory, sorted by name, at most `limit` of it, and how many more
/// there are.
///
/// # Errors
/// The system's refusal.
pub fn list(
    directory: &OwnedFd,
    path: &Path,
    limit: usize,
) -> Result<(Vec<Entry>, usize), HostError> {
    let fail = |errno| HostError::io("list", path, errno);
    // Only what is asked for is kept, however much there is.
    let (mut first, mut more) = (BTreeMap::new(), 0_usize);
    for entry in rustix::fs::Dir::read_from(directory).map_err(fail)? {
        let entry = entry.map_err(fail)?;
        let name = OsStr::from_bytes(entry.file_name().to_bytes()).to_owned();
        if name == "." || name == ".." {
            continue;
        }
        let mut kind = entry.file_type();
        if kind == FileType::Unknown
            && let Ok(stat) = rustix::fs::statat(directory, &name, AtFlags::SYMLINK_NOFOLLOW)
        {
            kind = FileType::from_raw_mode(stat.st_mode);
        }
        first.insert(name, kind);
        if first.len() > limit {
            first.pop_last();
            more = more.saturating_add(1);
        }
    }
    let entries = first.into_iter().map(|(name, kind)| Entry { name, kind }).collect();
    Ok((entries, more))
}

/// Says whether something is the root of a mount: how a jail hides a file or a directory.
pub fn is_mount_root(handle: &impl AsFd) -> bool {
    use rustix::fs::{StatxAttributes, StatxFlags, statx};
    statx(handle, "", AtFlags::EMPTY_PATH, StatxFlags::TYPE)
        .is_ok_and(|stat| stat.stx_attributes.contains(StatxAttributes::MOUNT_ROOT))
}

/// Opens the directory of a physical path component by component, following no link.
fn walk(path: &Path) -> Result<OwnedFd, HostError> {
    let mut handle = root(path)?;
    let mut here = PathBuf::from("/");
    for component in path.components() {
        if let Component::Normal(name) = component {
            here.push(name);
            handle = step(&handle, name, &here)?;
        }
    }
    Ok(handle)
}

fn root(path: &Path) -> Result<OwnedFd, HostError> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::openat(CWD, "/", flags, Mode::empty())
        .map_err(|errno| HostError::io("open", path, errno))
}

/// Opens one component of a directory's path; `here` is its path, for errors.
fn step(handle: &OwnedFd, name: &OsStr, here: &Path) -> Result<OwnedFd, HostError> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(handle, name, flags, Mode::empty()).map_err(|errno| {
        let is_link = errno == Errno::NOTDIR
            && rustix::fs::statat(handle, name, AtFlags::SYMLINK_NOFOLLOW)
                .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Symlink);
        if is_link {
            HostError::Changed { path: here.to_owned() }
        } else {
            HostError::io("open", here, errno)
        }
    })
}

fn open_directory(path: &Path) -> Result<OwnedFd, HostError> {
    let handle = walk(path)?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::openat(&handle, ".", flags, Mode::empty())
        .map_err(|errno| HostError::io("open", path, errno))
}

/// Returns the directory and the name of a path that may be written.
fn granted_name<'a>(grant: &Grant, path: &'a Path) -> Result<(&'a Path, &'a OsStr), HostError> {
    if !grant.permits_write(path) {
        return Err(HostError::NotGranted { path: path.to_owned() });
    }
    path.parent().zip(path.file_name()).ok_or_else(|| HostError::Kind {
        path: path.to_owned(),
        kind: "a directory",
        wanted: "a regular file",
    })
}

/// Returns what a file is, with its article.
pub fn kind(kind: FileType) -> &'static str {
    match kind {
        FileType::RegularFile => "a regular file",
        FileType::Directory => "a directory",
        FileType::Symlink => "a symbolic link",
        FileType::Fifo => "a FIFO",
        FileType::Socket => "a socket",
        FileType::CharacterDevice => "a character device",
        FileType::BlockDevice => "a block device",
        FileType::Unknown => "of an unknown kind",
    }
}

/// Returns the system's error for a short write without a reason.
fn no_progress() -> io::Error {
    io::Error::from(io::ErrorKind::WriteZero)
}

#[cfg(test)]
mod tests;
