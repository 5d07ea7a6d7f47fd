//! What is told of a file right before it is changed, so that its content can be kept.
//!
//! The handle is the very one that the change acts on: what is kept is what is replaced.

use std::{
    os::fd::{AsFd, BorrowedFd},
    path::{Path, PathBuf},
};

use rustix::{
    fs::{FileType, Stat},
    io::Errno,
};

use super::Stamp;

/// What stands in a file's place right before it is changed.
#[derive(Clone, Copy, Debug)]
pub struct Before<'a> {
    handle: Option<BorrowedFd<'a>>,
    /// What it is.
    pub kind: FileType,
    /// Its length in bytes.
    pub size: u64,
    /// Its permission bits (0o7777).
    pub mode: u32,
}

impl<'a> Before<'a> {
    /// Returns what a handle stands for; without one it can only be named.
    pub(super) fn new(handle: Option<BorrowedFd<'a>>, stat: &Stat) -> Self {
        Self {
            handle,
            kind: FileType::from_raw_mode(stat.st_mode),
            size: Stamp::of(stat).size,
            mode: stat.st_mode & 0o7777,
        }
    }

    /// Reads the content of at most `limit` bytes; `None` when it is longer, cannot be read, or is of
    /// another kind. The position of the handle stays as it is.
    pub fn content(&self, limit: u64) -> Option<Vec<u8>> {
        let handle = self.handle.filter(|_| self.kind == FileType::RegularFile)?;
        let limit = usize::try_from(limit).ok()?;
        let mut content = vec![0; usize::try_from(self.size).ok()?.min(limit).checked_add(1)?];
        let mut length = 0;
        loop {
            let rest = content.get_mut(length..).filter(|rest| !rest.is_empty())?;
            match rustix::io::pread(handle, rest, length as u64) {
                Ok(0) => break,
                Ok(count) => length += count,
                Err(Errno::INTR) => {}
                Err(_) => return None,
            }
        }
        content.truncate(length);
        (length <= limit).then_some(content)
    }
}

/// A change that is about to be made.
#[derive(Clone, Copy, Debug)]
pub struct Change<'a> {
    /// The physical path.
    pub path: &'a Path,
    /// What stands there; `None` when nothing does.
    pub before: Option<Before<'a>>,
    /// What will stand there; `None` when nothing will.
    pub after: Option<&'a [u8]>,
    /// The directories that were made for it just now, the highest first.
    pub made: &'a [PathBuf],
}

/// Who keeps what is about to be changed. It cannot hold a change up: what it cannot keep it says in
/// its own way.
pub trait Keep: Send + Sync + std::fmt::Debug {
    /// Keeps what stands there. Returns a number for [`Keep::failed`].
    fn before(&self, change: &Change<'_>) -> u64;

    /// The change with this number was not made after all: everything stands as it did.
    fn failed(&self, number: u64);
}

/// Borrows a handle, when there is one.
pub(super) fn borrowed<T: AsFd>(handle: Option<&T>) -> Option<BorrowedFd<'_>> {
    handle.map(AsFd::as_fd)
}
