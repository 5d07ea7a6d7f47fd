//! kli's own files: sessions and what else it remembers between runs.
//!
//! No model asks for these writes, so the grant is [`Grant::own_state`] and every call refuses a
//! path outside its directory. What lies there may have been written by a jailed run: it is data,
//! and neither a link nor a FIFO in the place of a file is followed or waited for.

#![expect(clippy::disallowed_methods, reason = "this is an edge: kli's own files")]

use std::{
    ffi::OsString,
    fs::{self, DirBuilder, File, Metadata, OpenOptions},
    io::{self, Read, Seek, SeekFrom, Write},
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use rustix::{
    fs::FileType,
    stdio::{stderr, stdout},
};

use super::HostError;
use crate::authority::Grant;

mod choice;
mod directory;
pub use choice::change;
pub(in crate::host) use choice::lock;
pub use directory::{Directory, Looked};

const NOT_TO_BE_WAITED_FOR: i32 = libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY;

fn granted(grant: &Grant, path: &Path) -> Result<(), HostError> {
    if grant.permits_state(path) {
        Ok(())
    } else {
        Err(HostError::NotGranted { path: path.to_owned() })
    }
}

/// Creates a directory with its parents, all of them for the user alone (0700). One that is there
/// is left as it is.
///
/// # Errors
/// [`HostError::NotGranted`], or the system's refusal.
pub fn create_dir(grant: &Grant, path: &Path) -> Result<(), HostError> {
    granted(grant, path)?;
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
        .map_err(|source| HostError::io("create the directory", path, source))
}

/// Creates one directory for the user alone (0700); one that is there already is an error.
///
/// # Errors
/// [`HostError::NotGranted`], or the system's refusal.
pub fn create_new_dir(grant: &Grant, path: &Path) -> Result<(), HostError> {
    granted(grant, path)?;
    DirBuilder::new()
        .mode(0o700)
        .create(path)
        .map_err(|source| HostError::io("create the directory", path, source))
}

/// Copies an executable, with its mode.
///
/// # Errors
/// [`HostError::NotGranted`], or the system's refusal.
pub fn copy_executable(grant: &Grant, from: &Path, to: &Path) -> Result<(), HostError> {
    granted(grant, to)?;
    fs::copy(from, to).map(|_| ()).map_err(|source| HostError::io("copy to", to, source))
}

/// Removes a directory and everything in it, without following a link.
///
/// # Errors
/// [`HostError::NotGranted`], or the system's refusal.
pub fn remove_tree(grant: &Grant, path: &Path) -> Result<(), HostError> {
    granted(grant, path)?;
    fs::remove_dir_all(path).map_err(|source| HostError::io("remove", path, source))
}

/// Opens a file of lines to append to and to read; a new one is for the user alone (0600).
///
/// # Errors
/// [`HostError::NotGranted`], [`HostError::Kind`] for anything but a regular file, or the
/// system's refusal.
pub fn open_append(grant: &Grant, path: &Path) -> Result<Lines, HostError> {
    granted(grant, path)?;
    let file = OpenOptions::new()
        .read(true)
        .append(true)
        .create(true)
        .mode(0o600)
        .custom_flags(NOT_TO_BE_WAITED_FOR)
        .open(path)
        .map_err(|source| HostError::io("open", path, source))?;
    regular(&file, path)?;
    Ok(Lines { file, path: path.to_owned() })
}

/// Opens a log of one run to write: a new file for the user alone (0600), a regular one that is there
/// emptied, or a FIFO or device as it is. What is written to a file goes to its end, so that lines of
/// two runs stay whole.
///
/// # Errors
/// [`HostError::NotGranted`]; [`HostError::Kind`] for a directory and whatever else cannot be
/// written to; [`io::ErrorKind::ResourceBusy`] for the file that standard output or standard error
/// goes to already, since both would write over each other; the system's refusal, also for a link
/// (its target may be anybody's) and for a FIFO without a reader.
pub fn create_log(grant: &Grant, path: &Path) -> Result<File, HostError> {
    granted(grant, path)?;
    let fail = |source| HostError::io("open", path, source);
    let file = OpenOptions::new()
        .append(true)
        .create(true)
        .mode(0o600)
        .custom_flags(NOT_TO_BE_WAITED_FOR)
        .open(path)
        .map_err(fail)?;
    let metadata = file.metadata().map_err(fail)?;
    let kind = FileType::from_raw_mode(metadata.mode());
    match kind {
        FileType::RegularFile => {
            let is_it = |stream| {
                rustix::fs::fstat(stream).is_ok_and(|stream| {
                    (stream.st_dev, stream.st_ino) == (metadata.dev(), metadata.ino())
                })
            };
            let streams = [stdout(), stderr()];
            if streams.into_iter().any(is_it) {
                let reason = "standard output or standard error goes there already";
                return Err(fail(io::Error::new(io::ErrorKind::ResourceBusy, reason)));
            }
            file.set_len(0).map_err(fail)?;
        }
        FileType::Fifo | FileType::CharacterDevice => {
            // Opened without waiting; written to with it.
            rustix::fs::fcntl_setfl(&file, rustix::fs::OFlags::empty())
                .map_err(|error| fail(error.into()))?;
        }
        kind => {
            let kind = super::files::kind(kind);
            return Err(HostError::Kind { path: path.to_owned(), kind, wanted: "a regular file" });
        }
    }
    Ok(file)
}

/// A file of lines, open to be appended to. The lock goes with it.
#[derive(Debug)]
pub struct Lines {
    file: File,
    path: PathBuf,
}

impl Lines {
    /// Takes the exclusive lock without waiting; false when another process has it. It is let go
    /// when the value is dropped or the process ends, however that happens.
    ///
    /// # Errors
    /// When the file system knows no locks.
    pub fn try_lock(&self) -> Result<bool, HostError> {
        match self.file.try_lock() {
            Ok(()) => Ok(true),
            Err(fs::TryLockError::WouldBlock) => Ok(false),
            Err(fs::TryLockError::Error(source)) => Err(HostError::io("lock", &self.path, source)),
        }
    }

    /// Appends one line with one write. When only a part fits (no space left), that part is taken
    /// back, so that the file ends as it did before. A file that ends without a line break gets one
    /// first: a torn line never swallows the next.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidInput`] for a line break in the line, or the system's refusal.
    pub fn append(&mut self, line: &[u8]) -> Result<(), HostError> {
        let fail = |source| HostError::io("append to", &self.path, source);
        if line.contains(&b'\n') {
            return Err(fail(io::Error::new(
                io::ErrorKind::InvalidInput,
                "a line cannot contain a line break",
            )));
        }
        let before = self.file.seek(SeekFrom::End(0)).map_err(fail)?;
        let mut whole = Vec::with_capacity(line.len().saturating_add(2));
        if before > 0 {
            let mut last = [0_u8];
            self.file.seek(SeekFrom::Start(before.saturating_sub(1))).map_err(fail)?;
            self.file.read_exact(&mut last).map_err(fail)?;
            if last != *b"\n" {
                whole.push(b'\n');
            }
        }
        whole.extend_from_slice(line);
        whole.push(b'\n');
        // One write, unless only a part fits; the attempt at the rest then gives the system's reason.
        let outcome = self.file.write_all(&whole);
        if outcome.is_err() {
            // The first error is the one that matters.
            let _unshortened = self.file.set_len(before);
        }
        outcome.map_err(fail)
    }

    /// Cuts the file to a length in bytes, to drop a torn tail.
    ///
    /// # Errors
    /// The system's refusal.
    pub fn cut(&mut self, length: u64) -> Result<(), HostError> {
        self.file.set_len(length).map_err(|source| HostError::io("cut", &self.path, source))
    }

    /// Waits until all appended lines are on the disk.
    ///
    /// # Errors
    /// The system's refusal: what was appended may be lost with the power.
    pub fn sync(&self) -> Result<(), HostError> {
        self.file.sync_data().map_err(|source| HostError::io("sync", &self.path, source))
    }

    /// Returns the length in bytes.
    ///
    /// # Errors
    /// The system's refusal.
    pub fn length(&self) -> Result<u64, HostError> {
        let metadata =
            self.file.metadata().map_err(|source| HostError::io("look at", &self.path, source))?;
        Ok(metadata.len())
    }

    /// Returns the path it was opened by.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns another handle on the file, to read it from its beginning.
    ///
    /// # Errors
    /// The system's refusal.
    pub fn reader(&self) -> Result<File, HostError> {
        let fail = |source| HostError::io("read", &self.path, source);
        let mut file = self.file.try_clone().map_err(fail)?;
        file.rewind().map_err(fail)?;
        Ok(file)
    }
}

/// Writes a whole file beside its place, syncs it, and moves it there: whoever reads it sees the old
/// content or the new. The file is for the user alone (0600).
///
/// # Errors
/// [`HostError::NotGranted`] or the system's refusal; then the old file stands and nothing is left
/// beside it.
pub fn write_atomic(grant: &Grant, path: &Path, content: &[u8]) -> Result<(), HostError> {
    write_beside(grant, path, content, 0o600)
}

/// Writes a whole file for everybody to read (0644, as far as the umask lets it), with the
/// directories above it. The old content or the new stands there, never a part.
///
/// # Errors
/// As for [`write_atomic`]; the system's refusal to make a directory.
pub fn publish(grant: &Grant, path: &Path, content: &[u8]) -> Result<(), HostError> {
    if let Some(directory) = path.parent() {
        granted(grant, path)?;
        DirBuilder::new()
            .recursive(true)
            .create(directory)
            .map_err(|source| HostError::io("create the directory", directory, source))?;
    }
    write_beside(grant, path, content, 0o644)
}

/// Writes a new executable for everybody to run (0755, as far as the umask lets it).
///
/// # Errors
/// As for [`write_atomic`].
pub fn write_executable(grant: &Grant, path: &Path, content: &[u8]) -> Result<(), HostError> {
    write_beside(grant, path, content, 0o755)
}

/// Moves a file or a directory to a place on the same file system where nothing is yet.
///
/// # Errors
/// [`HostError::NotGranted`], or the system's refusal: `EEXIST` when something is there.
pub fn move_new(grant: &Grant, from: &Path, to: &Path) -> Result<(), HostError> {
    granted(grant, from)?;
    granted(grant, to)?;
    rustix::fs::renameat_with(
        rustix::fs::CWD,
        from,
        rustix::fs::CWD,
        to,
        rustix::fs::RenameFlags::NOREPLACE,
    )
    .map_err(|error| HostError::io("make", to, error))
}

fn write_beside(grant: &Grant, path: &Path, content: &[u8], mode: u32) -> Result<(), HostError> {
    granted(grant, path)?;
    let fail = |source| HostError::io("write", path, source);
    let directory = path.parent().unwrap_or(Path::new("/"));
    let beside = directory.join(temporary_name());
    let outcome = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(mode)
        .open(&beside)
        .and_then(|mut file| {
            file.write_all(content)?;
            file.sync_all()
        })
        .and_then(|()| fs::rename(&beside, path));
    if let Err(source) = outcome {
        // It may never have been made; the first error is the one that matters.
        let _gone = fs::remove_file(&beside);
        return Err(fail(source));
    }
    File::open(directory).and_then(|directory| directory.sync_all()).map_err(fail)
}

/// Opens the device that takes everything and keeps nothing, null(4).
///
/// # Errors
/// The system's refusal.
pub fn open_write_nowhere() -> std::io::Result<File> {
    OpenOptions::new().write(true).open("/dev/null")
}

/// Opens a regular file for reading, without following a final link and without ever waiting.
///
/// # Errors
/// [`HostError::Kind`] for anything but a regular file, or the system's refusal.
pub fn open_read(path: &Path) -> Result<File, HostError> {
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(NOT_TO_BE_WAITED_FOR)
        .open(path)
        .map_err(|source| HostError::io("open", path, source))?;
    regular(&file, path)?;
    Ok(file)
}

fn regular(file: &File, path: &Path) -> Result<(), HostError> {
    let stat = rustix::fs::fstat(file).map_err(|error| HostError::io("look at", path, error))?;
    directory::regular(&stat, path)
}

/// Returns what is known of a file, a final link not followed.
///
/// # Errors
/// The system's refusal.
pub fn metadata(path: &Path) -> Result<Metadata, HostError> {
    fs::symlink_metadata(path).map_err(|source| HostError::io("look at", path, source))
}

/// Returns the names in a directory, sorted.
///
/// # Errors
/// The system's refusal.
pub fn read_dir(path: &Path) -> Result<Vec<OsString>, HostError> {
    let mut names = fs::read_dir(path)
        .and_then(|entries| {
            entries.map(|entry| Ok(entry?.file_name())).collect::<io::Result<Vec<_>>>()
        })
        .map_err(|source| HostError::io("list", path, source))?;
    names.sort();
    Ok(names)
}

/// Returns a name for a file that is written beside its place.
pub fn temporary_name() -> String {
    format!(".kli-{:016x}.tmp", fastrand::u64(..))
}

#[cfg(test)]
mod tests;
