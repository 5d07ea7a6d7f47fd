//! A directory of kli's own files, held open. A confined run can put a link, a FIFO, a device or a
//! second name of another file in the place of anything below the state directory, at any moment;
//! so every step is one name, from a handle, and follows no link.

use std::{
    ffi::{OsStr, OsString},
    fs::File,
    io,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use rustix::{
    fs::{Access, AtFlags, CWD, FileType, Mode, OFlags, Stat},
    io::Errno,
};

use super::{HostError, Lines, create_dir, granted};
use crate::authority::Grant;

mod objects;

/// A directory below the state directory, reached without following a link.
#[derive(Debug)]
pub struct Directory {
    handle: OwnedFd,
    path: PathBuf,
}

/// What the system says of a name in a [`Directory`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Looked {
    /// Whether it is a regular file.
    pub is_file: bool,
    /// Its length in bytes.
    pub size: u64,
    /// When its content was last changed.
    pub modified: SystemTime,
}

impl AsFd for Directory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.handle.as_fd()
    }
}

impl Directory {
    /// Opens the directory of these names below `root`, which is opened as it is spelled, through
    /// links; `None` when it or one of the names is not there.
    ///
    /// # Errors
    /// [`HostError::Kind`] for a link or a file in the place of one of the names, or the system's
    /// refusal.
    pub fn open(root: &Path, names: &[&OsStr]) -> Result<Option<Self>, HostError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let handle = match rustix::fs::openat(CWD, root, flags, Mode::empty()) {
            Ok(handle) => handle,
            Err(Errno::NOENT) => return Ok(None),
            Err(errno) => return Err(HostError::io("look at", root, errno)),
        };
        let mut here = Self { handle, path: root.to_owned() };
        for name in names {
            let Some(next) = here.step(name)? else { return Ok(None) };
            here = next;
        }
        Ok(Some(here))
    }

    /// Opens the directory of these names below `root` and makes what is missing of them, each for
    /// the user alone (0700).
    ///
    /// # Errors
    /// As [`Directory::open`]; [`HostError::NotGranted`].
    pub fn create(grant: &Grant, root: &Path, names: &[&OsStr]) -> Result<Self, HostError> {
        create_dir(grant, root)?;
        let missing = |path: &Path| HostError::io("open", path, Errno::NOENT);
        let mut here = Self::open(root, &[])?.ok_or_else(|| missing(root))?;
        for name in names {
            let path = here.path.join(name);
            granted(grant, &path)?;
            match rustix::fs::mkdirat(&here.handle, *name, Mode::RWXU) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(errno) => return Err(HostError::io("create the directory", &path, errno)),
            }
            here = here.step(name)?.ok_or_else(|| missing(&path))?;
        }
        Ok(here)
    }

    fn step(&self, name: &OsStr) -> Result<Option<Self>, HostError> {
        let path = self.path.join(name);
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match rustix::fs::openat(&self.handle, name, flags, Mode::empty()) {
            Ok(handle) => Ok(Some(Self { handle, path })),
            Err(Errno::NOENT) => Ok(None),
            Err(Errno::NOTDIR | Errno::LOOP) => Err(HostError::Kind {
                path,
                kind: "a link or a file",
                wanted: "a directory; move it away",
            }),
            Err(errno) => Err(HostError::io("look at", &path, errno)),
        }
    }

    /// Returns the path by which it was reached; for people, and for nothing else.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Says whether files can be made here.
    ///
    /// # Errors
    /// Why not: no permission, a read-only file system.
    pub fn writable(&self) -> Result<(), HostError> {
        rustix::fs::accessat(
            &self.handle,
            ".",
            Access::WRITE_OK | Access::EXEC_OK,
            AtFlags::EACCESS,
        )
        .map_err(|errno| HostError::io("write in", &self.path, errno))
    }

    /// Returns the names in it, sorted.
    ///
    /// # Errors
    /// The system's refusal.
    pub fn names(&self) -> Result<Vec<OsString>, HostError> {
        let fail = |errno| HostError::io("list", &self.path, errno);
        let mut names = Vec::new();
        for entry in rustix::fs::Dir::read_from(&self.handle).map_err(fail)? {
            let entry = entry.map_err(fail)?;
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            if name != "." && name != ".." {
                names.push(name.to_owned());
            }
        }
        names.sort();
        Ok(names)
    }

    /// Returns what is known of a name, a link not followed.
    ///
    /// # Errors
    /// The system's refusal.
    pub fn look(&self, name: &OsStr) -> Result<Looked, HostError> {
        let stat = self.stat(name)?;
        Ok(Looked {
            is_file: FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile,
            size: u64::try_from(stat.st_size).unwrap_or_default(),
            modified: modified(&stat),
        })
    }

    fn stat(&self, name: &OsStr) -> Result<Stat, HostError> {
        rustix::fs::statat(&self.handle, name, AtFlags::SYMLINK_NOFOLLOW)
            .map_err(|errno| HostError::io("look at", &self.path.join(name), errno))
    }

    /// Opens a regular file for reading, without ever waiting.
    ///
    /// # Errors
    /// [`HostError::Kind`] for anything but a regular file, or the system's refusal.
    pub fn read(&self, name: &OsStr) -> Result<File, HostError> {
        // Looked at first: opening a device may do something.
        regular(&self.stat(name)?, &self.path.join(name))?;
        let (file, _) = self.open_at(name, OFlags::RDONLY, Mode::empty())?;
        Ok(file)
    }

    /// Opens a file of lines to append to and to read; a new one is for the user alone (0600).
    ///
    /// # Errors
    /// [`HostError::NotGranted`], [`HostError::Kind`] for anything but a regular file of one name,
    /// or the system's refusal.
    pub fn append(&self, grant: &Grant, name: &OsStr) -> Result<Lines, HostError> {
        let path = self.path.join(name);
        granted(grant, &path)?;
        match self.stat(name) {
            Ok(stat) => regular(&stat, &path)?,
            Err(error) if error.errno() == Some(libc::ENOENT) => {}
            Err(error) => return Err(error),
        }
        let flags = OFlags::RDWR | OFlags::APPEND | OFlags::CREATE;
        let (file, stat) = self.open_at(name, flags, Mode::RUSR | Mode::WUSR)?;
        if stat.st_nlink > 1 {
            // What is appended here would be appended there.
            return Err(HostError::Kind {
                path,
                kind: "one file with several names (hard links)",
                wanted: "a file of its own",
            });
        }
        Ok(Lines { file, path })
    }

    fn open_at(&self, name: &OsStr, flags: OFlags, mode: Mode) -> Result<(File, Stat), HostError> {
        let path = self.path.join(name);
        let fail = |errno| HostError::io("open", &path, errno);
        let safe = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let handle = rustix::fs::openat(&self.handle, name, flags | safe, mode).map_err(fail)?;
        let stat = rustix::fs::fstat(&handle).map_err(fail)?;
        regular(&stat, &path)?;
        Ok((File::from(handle), stat))
    }

    /// Says whether a name still stands for the file that is open.
    ///
    /// # Errors
    /// The system's refusal.
    pub fn names_file(&self, name: &OsStr, lines: &Lines) -> Result<bool, HostError> {
        let there = self.stat(name)?;
        let open = rustix::fs::fstat(&lines.file)
            .map_err(|errno| HostError::io("look at", &lines.path, errno))?;
        Ok((there.st_dev, there.st_ino) == (open.st_dev, open.st_ino))
    }

    /// Moves a file to another name, over one that is there.
    ///
    /// # Errors
    /// [`HostError::NotGranted`], or the system's refusal.
    pub fn rename(&self, grant: &Grant, from: &OsStr, to: &OsStr) -> Result<(), HostError> {
        granted(grant, &self.path.join(from))?;
        granted(grant, &self.path.join(to))?;
        rustix::fs::renameat(&self.handle, from, &self.handle, to)
            .map_err(|errno| HostError::io("move", &self.path.join(from), errno))
    }

    /// Waits until the names are on the disk.
    ///
    /// # Errors
    /// The system's refusal.
    pub fn sync(&self) -> Result<(), HostError> {
        match rustix::fs::fsync(&self.handle) {
            // Some file systems know no such thing for directories (fsync(2)).
            Ok(()) | Err(Errno::INVAL) => Ok(()),
            Err(errno) => Err(HostError::io("sync", &self.path, errno)),
        }
    }
}

pub(super) fn regular(stat: &Stat, path: &Path) -> Result<(), HostError> {
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => Ok(()),
        // As opening it would say (O_NOFOLLOW).
        FileType::Symlink => Err(HostError::io("open", path, io::Error::from(Errno::LOOP))),
        other => Err(HostError::Kind {
            path: path.to_owned(),
            kind: crate::host::files::kind(other),
            wanted: "a regular file",
        }),
    }
}

/// Returns the time of the last change. A confined run can set any; one that no clock has is the
/// epoch.
#[expect(clippy::useless_conversion, reason = "the fields' types differ between architectures")]
fn modified(stat: &Stat) -> SystemTime {
    let part = Duration::from_nanos(u64::try_from(stat.st_mtime_nsec).unwrap_or_default());
    let seconds = i64::try_from(stat.st_mtime).unwrap_or_default();
    let whole = Duration::from_secs(seconds.unsigned_abs());
    let base = if seconds < 0 {
        SystemTime::UNIX_EPOCH.checked_sub(whole)
    } else {
        SystemTime::UNIX_EPOCH.checked_add(whole)
    };
    base.and_then(|base| base.checked_add(part)).unwrap_or(SystemTime::UNIX_EPOCH)
}
