//! Replacing a file's content: written beside it, synced, and moved into its place by the handle of
//! the directory that was walked to.
//!
//! Between the last look at the old file and the move, the old file is locked (flock(2)), so that of
//! two runs that replace one file the second one sees what the first one did.

use std::{
    cell::Cell,
    ffi::{OsStr, OsString},
    fs::File,
    io::{self, Seek, SeekFrom, Write},
    os::fd::{AsFd as _, OwnedFd},
    path::{Component, Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use rustix::{
    fs::{
        Access, AtFlags, FallocateFlags, FileType, FlockOperation, Gid, Mode, OFlags, RenameFlags,
        Stat, Uid,
    },
    io::Errno,
};

use super::{
    Stamp, attributes, granted_name,
    keep::{Before, Change, Keep},
    kind, no_progress, root, step, walk,
};
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
    /// How many other names (hard links) the old file had. They keep the old content, unless it was
    /// written in place.
    pub other_names: u64,
}

/// How long another program's lock on the file is waited for.
const LOCK_PATIENCE: Duration = Duration::from_secs(2);

/// How much is written between two looks whether anyone still waits, in bytes.
const PIECE: usize = 1 << 20;

/// Puts `content` in the place of the file at a physical path, all of it or nothing.
///
/// Missing parents are made. An existing file keeps its permissions (setuid and setgid bits are
/// cleared, as the kernel does on a write), its access control list, its extended attributes and,
/// where the system allows it, its owner and group. Other names of the file keep the old content.
///
/// # Errors
/// [`HostError::NotGranted`]; [`HostError::Changed`] when the file is not as `expected` or a
/// component has become a link; [`HostError::Kind`] for anything but a regular file;
/// [`HostError::Locked`] when another program holds a lock on it; [`HostError::Interrupted`] once
/// `stop` is set; the system's refusal. In each case the old file stands and nothing is left beside
/// it.
pub fn replace(
    grant: &Grant,
    path: &Path,
    content: &[u8],
    expected: Expected,
    stop: &AtomicBool,
) -> Result<Replaced, HostError> {
    replace_with(grant, path, content, Manner { expected, stop, keep: None, mode: None })
}

/// How a file is replaced.
#[derive(Clone, Copy, Debug)]
pub struct Manner<'a> {
    /// What must be in its place.
    pub expected: Expected,
    /// Set once nobody waits any more.
    pub stop: &'a AtomicBool,
    /// Who is told right before.
    pub keep: Option<&'a dyn Keep>,
    /// The permission bits (0o777) of a file that is new; what the umask leaves of 0o666 by default.
    pub mode: Option<u32>,
}

/// As [`replace`], in a manner of its own. What is to be kept is kept before anything is written.
///
/// # Errors
/// As for [`replace`].
pub fn replace_with(
    grant: &Grant,
    path: &Path,
    content: &[u8],
    manner: Manner<'_>,
) -> Result<Replaced, HostError> {
    let (parent, name) = granted_name(grant, path)?;
    let mut made = Vec::new();
    let outcome = walk_and_make(parent, &mut made).and_then(|directory| {
        let new: Vec<PathBuf> = made.iter().map(|(_, _, path)| path.clone()).collect();
        let (stop, touched) = (manner.stop, Cell::new(false));
        Place { directory, name, path, stop, touched }.replace(content, manner, &new)
    });
    if outcome.is_err() {
        for (directory, name, _) in made.iter().rev() {
            // One that is in use by now stays; the first error is the one that matters.
            let _kept = rustix::fs::unlinkat(directory, name, AtFlags::REMOVEDIR);
        }
    }
    outcome
}

/// Opens a directory component by component, making what is missing; `made` collects what was.
fn walk_and_make(
    path: &Path,
    made: &mut Vec<(OwnedFd, OsString, PathBuf)>,
) -> Result<OwnedFd, HostError> {
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
                    made.push((handle, name.to_owned(), here.clone()));
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
    stop: &'a AtomicBool,
    /// Whether something of the old file may be gone.
    touched: Cell<bool>,
}

/// A file that stands, held open.
struct Old {
    handle: OwnedFd,
    stat: Stat,
}

impl Place<'_> {
    fn replace(
        &self,
        content: &[u8],
        manner: Manner<'_>,
        made: &[PathBuf],
    ) -> Result<Replaced, HostError> {
        let expected = manner.expected;
        let stat = self.look()?;
        self.check(stat.as_ref(), expected)?;
        let old = stat.map(|stat| self.hold(stat)).transpose()?;
        let number = manner.keep.map(|keep| {
            let before = old.as_ref().map(|old| Before::new(Some(old.handle.as_fd()), &old.stat));
            (keep, keep.before(&Change { path: self.path, before, after: Some(content), made }))
        });
        let outcome = self.put(content, manner, old);
        if let (Err(_), false, Some((keep, number))) = (&outcome, self.touched.get(), number) {
            keep.failed(number);
        }
        outcome
    }

    fn put(
        &self,
        content: &[u8],
        manner: Manner<'_>,
        old: Option<Old>,
    ) -> Result<Replaced, HostError> {
        let expected = manner.expected;
        let beside = temporary_name();
        let mut file = match self.create_beside(&beside, old.is_some() || manner.mode.is_some()) {
            Err(error) if old.is_some() && takes_no_other_file(&error) => {
                return self.write_in_place(content, expected);
            }
            other => other?,
        };
        let moved = self.fill(&mut file, content, old.as_ref(), manner.mode).and_then(|()| {
            #[cfg(test)]
            run_meanwhile(self.path);
            self.move_here(&beside, &file, old.as_ref(), expected)
        });
        if let Err(error) = moved {
            if self.is_ours(&beside, &file) {
                // The first error is the one that matters.
                let _gone = rustix::fs::unlinkat(&self.directory, &*beside, AtFlags::empty());
            }
            if error.errno() == Some(libc::EBUSY) {
                // Its lock would stand in the way of the next one.
                drop(old);
                return self.write_in_place(content, expected);
            }
            return Err(error);
        }
        self.touched.set(true);
        self.sync_directory()?;
        let stat = rustix::fs::fstat(&file).map_err(|errno| self.fail("look at", errno))?;
        let other_names = old.map_or(0, |old| other_names(&old.stat));
        Ok(Replaced { stamp: Stamp::of(&stat), in_place: false, other_names })
    }

    /// Opens the old file, which must be the one that was looked at.
    fn hold(&self, stat: Stat) -> Result<Old, HostError> {
        // A rename asks only the directory; whoever made the file read-only meant the file.
        rustix::fs::accessat(&self.directory, self.name, Access::WRITE_OK, AtFlags::EACCESS)
            .map_err(|errno| self.fail("write", errno))?;
        let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let open =
            |access| rustix::fs::openat(&self.directory, self.name, access | flags, Mode::empty());
        let handle = match open(OFlags::RDONLY) {
            Err(Errno::ACCESS) => open(OFlags::WRONLY),
            other => other,
        }
        .map_err(|errno| self.fail("open", errno))?;
        let found = rustix::fs::fstat(&handle).map_err(|errno| self.fail("look at", errno))?;
        if (found.st_dev, found.st_ino) != (stat.st_dev, stat.st_ino) {
            return Err(self.changed());
        }
        Ok(Old { handle, stat })
    }

    /// Locks a file against other runs that replace it; the lock ends with the handle.
    fn lock(&self, handle: &OwnedFd) -> Result<(), HostError> {
        let started = Instant::now();
        loop {
            match rustix::fs::flock(handle, FlockOperation::NonBlockingLockExclusive) {
                Err(Errno::WOULDBLOCK) if started.elapsed() < LOCK_PATIENCE => {
                    self.go_on()?;
                    std::thread::sleep(Duration::from_millis(1));
                }
                Err(Errno::WOULDBLOCK) => {
                    return Err(HostError::Locked { path: self.path.to_owned() });
                }
                Err(Errno::INTR) => {}
                // Some file systems have no locks; the look just before the move must do.
                Ok(()) | Err(_) => return Ok(()),
            }
        }
    }

    fn go_on(&self) -> Result<(), HostError> {
        if self.stop.load(Ordering::Relaxed) {
            return Err(HostError::Interrupted { path: self.path.to_owned() });
        }
        Ok(())
    }

    fn changed(&self) -> HostError {
        HostError::Changed { path: self.path.to_owned() }
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
        let changed = || Err(self.changed());
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

    fn create_beside(&self, name: &str, is_given_mode: bool) -> Result<File, HostError> {
        // A new file gets what the umask leaves; one that gets permissions of its own is nobody else's
        // to read until it has them.
        let mode = if is_given_mode { 0o600 } else { 0o666 };
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
        rustix::fs::openat(
            &self.directory,
            name,
            flags | OFlags::CLOEXEC,
            Mode::from_raw_mode(mode),
        )
        .map(File::from)
        .map_err(|errno| self.fail("create a file beside", errno))
    }

    /// Gives the new file its content, and what belongs to the old one.
    fn fill(
        &self,
        file: &mut File,
        content: &[u8],
        old: Option<&Old>,
        mode: Option<u32>,
    ) -> Result<(), HostError> {
        if let Some(Old { stat, .. }) = old {
            let (user, group) = (Uid::from_raw(stat.st_uid), Gid::from_raw(stat.st_gid));
            // Only root may give a file away; then the group alone may still be possible.
            if rustix::fs::fchown(&*file, Some(user), Some(group)).is_err() {
                let _not_ours = rustix::fs::fchown(&*file, None, Some(group));
            }
        }
        for piece in content.chunks(PIECE) {
            self.go_on()?;
            file.write_all(piece).map_err(|error| self.fail("write", error))?;
        }
        if let Some(Old { handle, stat }) = old {
            attributes::copy(handle, file)
                .map_err(|errno| self.fail("keep the extended attributes of", errno))?;
            rustix::fs::fchmod(&*file, Mode::from_raw_mode(stat.st_mode & 0o1777))
                .map_err(|errno| self.fail("set the permissions of", errno))?;
        } else if let Some(mode) = mode {
            rustix::fs::fchmod(&*file, Mode::from_raw_mode(mode & 0o777))
                .map_err(|errno| self.fail("set the permissions of", errno))?;
        }
        self.go_on()?;
        file.sync_all().map_err(|error| self.fail("write", error))
    }

    /// Moves the new file into its place, after a last look at all that may have changed since the
    /// first one: writing took its time.
    fn move_here(
        &self,
        beside: &str,
        file: &File,
        old: Option<&Old>,
        expected: Expected,
    ) -> Result<(), HostError> {
        let (directory, name) = (&self.directory, self.name);
        let fail = |errno| self.fail("move the new content to", errno);
        if let Some(old) = old {
            self.lock(&old.handle)?;
        }
        self.go_on()?;
        self.check(self.look()?.as_ref(), expected)?;
        if !self.is_reached() || !self.is_ours(beside, file) {
            return Err(self.changed());
        }
        if expected == Expected::Absent {
            let flags = RenameFlags::NOREPLACE;
            match rustix::fs::renameat_with(directory, beside, directory, name, flags) {
                Ok(()) => return Ok(()),
                Err(Errno::EXIST) => return Err(self.changed()),
                // Some file systems cannot promise it; the check just before must do.
                Err(Errno::INVAL | Errno::NOSYS) => {}
                Err(errno) => return Err(fail(errno)),
            }
        }
        rustix::fs::renameat(directory, beside, directory, name).map_err(fail)
    }

    /// Says whether the path still leads to the directory that was walked to.
    fn is_reached(&self) -> bool {
        let parent = self.path.parent().unwrap_or(Path::new("/"));
        let identity = |handle: &OwnedFd| {
            rustix::fs::fstat(handle).map(|stat| (stat.st_dev, stat.st_ino)).ok()
        };
        walk(parent).is_ok_and(|there| {
            identity(&there).is_some() && identity(&there) == identity(&self.directory)
        })
    }

    /// Says whether the name beside still stands for the file that was made.
    fn is_ours(&self, beside: &str, file: &File) -> bool {
        let found = rustix::fs::statat(&self.directory, beside, AtFlags::SYMLINK_NOFOLLOW);
        matches!(
            (found, rustix::fs::fstat(file)),
            (Ok(one), Ok(two)) if (one.st_dev, one.st_ino) == (two.st_dev, two.st_ino)
        )
    }

    /// Writes over the file itself. Its space is reserved first, so that a full disk is noticed
    /// while the old content stands.
    fn write_in_place(&self, content: &[u8], expected: Expected) -> Result<Replaced, HostError> {
        let flags = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let handle = rustix::fs::openat(&self.directory, self.name, flags, Mode::empty())
            .map_err(|errno| self.fail("write", errno))?;
        self.lock(&handle)?;
        let stat = rustix::fs::fstat(&handle).map_err(|errno| self.fail("look at", errno))?;
        self.check(Some(&stat), expected)?;
        let names = other_names(&stat);
        let length = content.len() as u64;
        if length > 0 {
            match rustix::fs::fallocate(&handle, FallocateFlags::KEEP_SIZE, 0, length) {
                Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS) => {}
                Err(errno) => return Err(self.fail("write", errno)),
            }
        }
        let mut file = File::from(handle);
        self.touched.set(true);
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
        Ok(Replaced { stamp: Stamp::of(&stat), in_place: true, other_names: names })
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

fn other_names(stat: &Stat) -> u64 {
    #[expect(clippy::useless_conversion, reason = "the field's type differs between architectures")]
    u64::try_from(stat.st_nlink).unwrap_or(1).saturating_sub(1)
}

/// What a test does between the writing of a new file and its move, and to which path.
#[cfg(test)]
type Action = (PathBuf, Box<dyn FnOnce() + Send>);

#[cfg(test)]
static MEANWHILE: std::sync::Mutex<Vec<Action>> = std::sync::Mutex::new(Vec::new());

/// Lets something happen once between the writing of what replaces `path` and its move.
#[cfg(test)]
pub(crate) fn meanwhile(path: &Path, action: impl FnOnce() + Send + 'static) {
    MEANWHILE.lock().unwrap().push((path.to_owned(), Box::new(action)));
}

#[cfg(test)]
fn run_meanwhile(path: &Path) {
    let mut actions = MEANWHILE.lock().unwrap();
    let at = actions.iter().position(|(wanted, _)| wanted == path);
    let action = at.map(|at| actions.remove(at).1);
    drop(actions);
    if let Some(action) = action {
        action();
    }
}
