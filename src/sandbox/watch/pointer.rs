//! The `commondir` of a linked worktree that is made while the jail runs (law 9): it may say nothing but
//! what git itself writes, and nobody may hold it in a way by which it says something else later,
//! unseen.

use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::inotify::{self, WatchFlags};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;
use rustix::process::fchdir;

use super::super::sys;
use super::walk::{Step, Trouble, lost, planted, unwatched};
use super::{Running, Watch};

/// What git writes: the repository two directories up. An empty file is about to be written.
const OWN: [&[u8]; 3] = [b"", b"../..", b"../..\n"];

/// What concerns the file itself, by whatever name it is reached: its content, its names, and that it
/// is opened, since a mapping changes it without any event.
const FILE: WatchFlags = WatchFlags::MODIFY
    .union(WatchFlags::ATTRIB)
    .union(WatchFlags::OPEN)
    .union(WatchFlags::CLOSE_WRITE)
    .union(WatchFlags::DONT_FOLLOW)
    // What stands there by now may be something that is watched for its own sake.
    .union(WatchFlags::MASK_CREATE);

/// The name that a new file has until it is in place.
const NEW: &str = "commondir.new";

/// A pointer that says what it may.
struct Pointer {
    file: OwnedFd,
    stat: Stat,
    text: Vec<u8>,
}

impl Pointer {
    /// Opens one; `None` when there is none. What is no regular file, or cannot be read, is none of
    /// git's.
    fn open(directory: &OwnedFd, name: &OsStr) -> Result<Option<OwnedFd>, Foreign> {
        let flags =
            OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        match rustix::fs::openat(directory, name.as_bytes(), flags, Mode::empty()) {
            Ok(file) => Ok(Some(file)),
            Err(Errno::NOENT) => Ok(None),
            Err(_) => Err(Foreign),
        }
    }

    fn read(file: OwnedFd) -> Result<Self, Foreign> {
        let stat = rustix::fs::fstat(&file).map_err(|_| Foreign)?;
        // A pipe says something else to each who asks.
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(Foreign);
        }
        let mut text = [0; 16];
        let read = rustix::io::pread(&file, &mut text, 0).map_err(|_| Foreign)?;
        match text.get(..read) {
            Some(text) if OWN.contains(&text) => Ok(Self { file, stat, text: text.to_vec() }),
            _ => Err(Foreign),
        }
    }

    /// Whether it can be made to say something else without being opened by its name.
    fn is_held(&self) -> bool {
        self.stat.st_nlink > 1 || sys::watch::is_written(&self.file)
    }

    /// Puts a new file that says the same in its place: whoever holds the old one holds nothing.
    fn renew(&self, directory: &OwnedFd, name: &OsStr) -> Result<(), Errno> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let mode = Mode::from_raw_mode(self.stat.st_mode & 0o777);
        let new = match rustix::fs::openat(directory, NEW, flags, mode) {
            Err(Errno::EXIST) => {
                rustix::fs::unlinkat(directory, NEW, AtFlags::empty())?;
                rustix::fs::openat(directory, NEW, flags, mode)?
            }
            other => other?,
        };
        let done = match rustix::io::write(&new, &self.text) {
            Ok(written) if written == self.text.len() => {
                drop(new);
                rustix::fs::renameat(directory, NEW, directory, name.as_bytes())
            }
            Ok(_) => Err(Errno::NOSPC),
            Err(error) => Err(error),
        };
        if done.is_err() {
            // Best effort: it is in nobody's way.
            let _left = rustix::fs::unlinkat(directory, NEW, AtFlags::empty());
        }
        done
    }

    /// Does so while the directory is watched, which has an event for it.
    fn renewed(&self, step: &Step, name: &OsStr, place: &Path) -> Result<(), Trouble> {
        self.renew(&step.handle, name).map_err(|error| match error {
            Errno::NOENT | Errno::EXIST | Errno::ISDIR => Trouble::Again,
            error => lost(place, error),
        })
    }
}

/// It leads elsewhere, or is nothing that git writes.
struct Foreign;

/// Whether a worktree's `commondir` leads elsewhere than git itself says, when nothing inside lives any
/// more. One that has another name, by which a later run could write it, is made anew.
pub(super) fn is_foreign(directory: &OwnedFd, name: &OsStr) -> bool {
    match Pointer::open(directory, name) {
        Ok(None) => false,
        Ok(Some(file)) => match Pointer::read(file) {
            Ok(pointer) => pointer.is_held() && pointer.renew(directory, name).is_err(),
            Err(Foreign) => true,
        },
        Err(Foreign) => true,
    }
}

impl Watch {
    /// Looks at a pointer that is there.
    pub(super) fn look_at_pointer(
        &mut self,
        index: usize,
        step: &Step,
        name: &OsString,
        place: &Path,
    ) -> Result<(), Trouble> {
        // What is opened below would be an event itself.
        if let Some(number) = self.entries.get_mut(index).and_then(|entry| entry.file.take()) {
            self.unwatch(number);
        }
        let file = match Pointer::open(&step.handle, name) {
            Ok(Some(file)) => file,
            Ok(None) => return Err(Trouble::Again),
            Err(Foreign) => return Err(planted(place).into()),
        };
        let pointer = Pointer::read(file).map_err(|Foreign| planted(place))?;
        if pointer.stat.st_nlink > 1 {
            return pointer.renewed(step, name, place);
        }
        let number = self.watch_file(step, name, place)?;
        if let Some(entry) = self.entries.get_mut(index) {
            entry.file = number;
        }
        self.hang(index, number, OsStr::new(""));
        // Whatever was done to it before it was watched.
        let pointer = Pointer::read(pointer.file).map_err(|Foreign| planted(place))?;
        match rustix::fs::statat(&step.handle, name.as_bytes(), AtFlags::SYMLINK_NOFOLLOW) {
            Ok(now) if (now.st_dev, now.st_ino) == (pointer.stat.st_dev, pointer.stat.st_ino) => {}
            Ok(_) | Err(Errno::NOENT) => return Err(Trouble::Again),
            Err(error) => return Err(lost(place, error)),
        }
        // Of an empty one git reads nothing, and its first byte is an event.
        if !pointer.text.is_empty() && pointer.is_held() {
            return pointer.renewed(step, name, place);
        }
        Ok(())
    }

    fn watch_file(
        &self,
        step: &Step,
        name: &OsString,
        place: &Path,
    ) -> Result<Option<i32>, Trouble> {
        let Some(Running { inotify, .. }) = &self.running else { return Ok(None) };
        // As for directories: there is no /proc in here to name a handle by.
        match fchdir(&step.handle).and_then(|()| inotify::add_watch(inotify, name.as_bytes(), FILE))
        {
            Ok(number) => Ok(Some(number)),
            Err(Errno::NOENT | Errno::EXIST) => Err(Trouble::Again),
            Err(error) => Err(Trouble::End(unwatched(place, error))),
        }
    }

    fn unwatch(&mut self, number: i32) {
        self.watched.remove(&number);
        if let Some(running) = &self.running {
            // The file may be gone, and its watch with it.
            let _gone = inotify::remove_watch(&running.inotify, number);
        }
    }
}
