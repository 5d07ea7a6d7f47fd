//! Replacing a file's content: written beside it, synced, and moved into its place by the handle of
//! the directory that was walked to.

use std::{
    ffi::{OsStr, OsString},
    fs::File,
    io::{self, Seek, SeekFrom, Write},
    os::fd::OwnedFd,
    path::{Component, Path, PathBuf},
};

use rustix::{
    fs::{Access, AtFlags, FallocateFlags, FileType, Gid, Mode, OFlags, RenameFlags, Stat, Uid},
    io::Errno,
};

use super::{Stamp, kind, no_progress, root, step};
use crate::{
    authority::Grant,
    host::{HostError, state::temporary_name},
};

/// What must be in a file's place when it is replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    /// Nothing: a file that is there by then is left alone.
    Absent,
    /// The very file that was looked at, unchanged since.
    Unchanged(Stamp),
}

/// What replacing did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Replaced {
    /// The new file.
    pub stamp: Stamp,
    /// Whether it was written in place, since its directory takes no other file (it is a mount of
    /// its own, or the directory is read-only): then a power cut can leave half of it.
    pub in_place: bool,
}

/// Puts `content` in the place of the file at a physical path, all of it or nothing.
///
/// Missing parents are made. An existing file keeps its permissions (setuid and setgid bits are
/// cleared, as the kernel does on a write) and, where the system allows it, its owner and group.
///
/// # Errors
/// [`HostError::NotGranted`]; [`HostError::Changed`] when the file is not as `expected` or a
/// component has become a link; [`HostError::Kind`] for anything but a regular file; the system's
/// refusal. In each case the old file stands and nothing is left beside it.
pub fn replace(
    grant: &Grant,
    path: &Path,
    content: &[u8],
    expected: Expected,
) -> Result<Replaced, HostError> {
    if !grant.permits_write(path) {
        return Err(HostError::NotGranted { path: path.to_owned() });
    }
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(HostError::Kind {
            path: path.to_owned(),
            kind: "a directory",
            wanted: "a regular file",
        });
    };
    let mut made = Vec::new();
    let outcome = walk_and_make(parent, &mut made)
        .and_then(|directory| Place { directory, name, path }.replace(content, expected));
    if outcome.is_err() {
        for (directory, name) in made.iter().rev() {
            // One that is in use by now stays; the first error is the one that matters.
            let _kept = rustix::fs::unlinkat(directory, name, AtFlags::REMOVEDIR);
        }
    }
    outcome
}

/// Opens a directory component by component, making what is missing; `made` collects what was.
fn walk_and_make(path: &Path, made: &mut Vec<(OwnedFd, OsString)>) -> Result<OwnedFd, HostError> {
    let mut handle = root(path)?;
    let mut here = PathBuf::from("/");
    for component in path.components() {
        let Component::Normal(name) = component else { continue };
        here.push(name);
        let next = match step(&handle, name, &here) {
            Err(HostError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                let is_new = match rustix::fs::mkdirat(&handle, name, Mode::from_raw_mode(0o777)) {
                    Ok(()) => true,
                    // Someone else was faster: it is looked at like one that was there.
                    Err(Errno::EXIST) => false,
                    Err(errno) => {
                        return Err(HostError::io("create the directory", &here, errno));
                    }
                };
                let next = step(&handle, name, &here)?;
                if is_new {
                    made.push((handle, name.to_owned()));
                }
                next
            }
            other => other?,
        };
        handle = next;
    }
    Ok(handle)
}

/// Where the file goes: a directory's handle and a name in it.
struct Place<'a> {
    directory: OwnedFd,
    name: &'a OsStr,
    path: &'a Path,
}

impl Place<'_> {
    fn replace(&self, content: &[u8], expected: Expected) -> Result<Replaced, HostError> {
        let old = self.look()?;
        self.check(old.as_ref(), expected)?;
        if old.is_some() {
            // A rename asks only the directory; whoever made the file read-only meant the file.
            rustix::fs::accessat(&self.directory, self.name, Access::WRITE_OK, AtFlags::EACCESS)
                .map_err(|errno| self.fail("write", errno))?;
        }
        let beside = temporary_name();
        let written = self.write_beside(&beside, content, old.as_ref());
        let outcome = match written {
            Err(error) if old.is_some() && takes_no_other_file(&error) => {
                return self.write_in_place(content, expected);
            }
            other => other,
        };
        let moved = outcome.and_then(|file| {
            // Once more, as late as possible: writing took its time.
            self.check(self.look()?.as_ref(), expected)?;
            self.move_here(&beside, expected)?;
            Ok(file)
        });
        let file = match moved {
            Ok(file) => file,
            Err(error) => {
                // It may never have been made; the first error is the one that matters.
                let _gone = rustix::fs::unlinkat(&self.directory, &*beside, AtFlags::empty());
                if error.errno() == Some(libc::EBUSY) {
                    return self.write_in_place(content, expected);
                }
                return Err(error);
            }
        };
        self.sync_directory()?;
        let stat = rustix::fs::fstat(&file).map_err(|errno| self.fail("look at", errno))?;
        Ok(Replaced { stamp: Stamp::of(&stat), in_place: false })
    }

    fn fail(&self, action: &'static str, error: impl Into<io::Error>) -> HostError {
        HostError::io(action, self.path, error)
    }

    fn look(&self) -> Result<Option<Stat>, HostError> {
        match rustix::fs::statat(&self.directory, self.name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(stat)),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(self.fail("look at", errno)),
        }
    }

    fn check(&self, found: Option<&Stat>, expected: Expected) -> Result<(), HostError> {
        let changed = || Err(HostError::Changed { path: self.path.to_owned() });
        match (found, expected) {
            (None, Expected::Absent) => Ok(()),
            (None, Expected::Unchanged(_)) => changed(),
            (Some(stat), expected) => match FileType::from_raw_mode(stat.st_mode) {
                FileType::RegularFile if expected == Expected::Unchanged(Stamp::of(stat)) => Ok(()),
                FileType::RegularFile | FileType::Symlink => changed(),
                other => Err(HostError::Kind {
                    path: self.path.to_owned(),
                    kind: kind(other),
                    wanted: "a regular file",
                }),
            },
        }
    }

    fn write_beside(
        &self,
        name: &str,
        content: &[u8],
        old: Option<&Stat>,
    ) -> Result<File, HostError> {
        // A new file gets what the umask leaves; one that replaces another is nobody else's to read
        // until it has the other's permissions.
        let mode = if old.is_some() { 0o600 } else { 0o666 };
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
        let handle = rustix::fs::openat(
            &self.directory,
            name,
            flags | OFlags::CLOEXEC,
            Mode::from_raw_mode(mode),
        )
        .map_err(|errno| self.fail("create a file beside", errno))?;
        let mut file = File::from(handle);
        if let Some(old) = old {
            let (user, group) = (Uid::from_raw(old.st_uid), Gid::from_raw(old.st_gid));
            // Only root may give a file away; then the group alone may still be possible.
            if rustix::fs::fchown(&file, Some(user), Some(group)).is_err() {
                let _not_ours = rustix::fs::fchown(&file, None, Some(group));
            }
        }
        file.write_all(content).map_err(|error| self.fail("write", error))?;
        if let Some(old) = old {
            rustix::fs::fchmod(&file, Mode::from_raw_mode(old.st_mode & 0o1777))
                .map_err(|errno| self.fail("set the permissions of", errno))?;
        }
        file.sync_all().map_err(|error| self.fail("write", error))?;
        Ok(file)
    }

    fn move_here(&self, beside: &str, expected: Expected) -> Result<(), HostError> {
        let (directory, name) = (&self.directory, self.name);
        let fail = |errno| self.fail("move the new content to", errno);
        if expected == Expected::Absent {
            let flags = RenameFlags::NOREPLACE;
            match rustix::fs::renameat_with(directory, beside, directory, name, flags) {
                Ok(()) => return Ok(()),
                Err(Errno::EXIST) => {
                    return Err(HostError::Changed { path: self.path.to_owned() });
                }
                // Some file systems cannot promise it; the check just before must do.
                Err(Errno::INVAL | Errno::NOSYS) => {}
                Err(errno) => return Err(fail(errno)),
            }
        }
        rustix::fs::renameat(directory, beside, directory, name).map_err(fail)
    }

    /// Writes over the file itself. Its space is reserved first, so that a full disk is noticed
    /// while the old content stands.
    fn write_in_place(&self, content: &[u8], expected: Expected) -> Result<Replaced, HostError> {
        let flags = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let handle = rustix::fs::openat(&self.directory, self.name, flags, Mode::empty())
            .map_err(|errno| self.fail("write", errno))?;
        let stat = rustix::fs::fstat(&handle).map_err(|errno| self.fail("look at", errno))?;
        self.check(Some(&stat), expected)?;
        let length = content.len() as u64;
        if length > 0 {
            match rustix::fs::fallocate(&handle, FallocateFlags::KEEP_SIZE, 0, length) {
                Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS) => {}
                Err(errno) => return Err(self.fail("write", errno)),
            }
        }
        let mut file = File::from(handle);
        let stat = file
            .seek(SeekFrom::Start(0))
            .and_then(|_| file.write_all(content))
            .and_then(|()| file.set_len(length))
            .and_then(|()| file.sync_all())
            .and_then(|()| Ok(rustix::fs::fstat(&file)?))
            .map_err(|error| self.fail("write", error))?;
        if stat.st_size != i64::try_from(length).unwrap_or(i64::MAX) {
            return Err(self.fail("write", no_progress()));
        }
        Ok(Replaced { stamp: Stamp::of(&stat), in_place: true })
    }

    fn sync_directory(&self) -> Result<(), HostError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        // A directory may be writable and not readable, and some file systems sync none.
        match rustix::fs::openat(&self.directory, ".", flags, Mode::empty())
            .and_then(rustix::fs::fsync)
        {
            Ok(()) | Err(Errno::ACCESS | Errno::INVAL | Errno::BADF) => Ok(()),
            Err(errno) => Err(self.fail("sync the directory of", errno)),
        }
    }
}

/// Says whether the directory refuses other files while the file itself may be writable.
fn takes_no_other_file(error: &HostError) -> bool {
    matches!(error, HostError::Io { action: "create a file beside", .. })
        && matches!(error.errno(), Some(libc::EROFS | libc::EACCES | libc::EPERM))
}
