//! Whole files in a [`Directory`]: each is written under another name and moved into its place, so that
//! it is there whole or not at all, whenever the process is killed.

use std::{
    ffi::{OsStr, OsString},
    fs::File,
    io::{Read as _, Write as _},
};

use rustix::{
    fs::{AtFlags, FlockOperation, Mode, OFlags},
    io::Errno,
};

use super::{Directory, HostError, granted};
use crate::{authority::Grant, host::state::temporary_name};

impl Directory {
    /// Writes a whole file for the user alone (0600), over one that is there. It survives the end of
    /// the process, however that comes; a loss of power can take it, as nothing is synced.
    ///
    /// # Errors
    /// [`HostError::NotGranted`] or the system's refusal; then nothing is left of it.
    pub fn put(&self, grant: &Grant, name: &OsStr, content: &[u8]) -> Result<(), HostError> {
        let path = self.path.join(name);
        granted(grant, &path)?;
        let beside = temporary_name();
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
        let mode = Mode::RUSR | Mode::WUSR;
        let written = rustix::fs::openat(&self.handle, &*beside, flags | OFlags::CLOEXEC, mode)
            .map_err(std::io::Error::from)
            .and_then(|handle| File::from(handle).write_all(content))
            .and_then(|()| Ok(rustix::fs::renameat(&self.handle, &*beside, &self.handle, name)?));
        written.map_err(|source| {
            // It may never have been made; the first error is the one that matters.
            let _gone = rustix::fs::unlinkat(&self.handle, &*beside, AtFlags::empty());
            HostError::io("write", &path, source)
        })
    }

    /// Reads a regular file; `None` when it is longer than `limit` bytes.
    ///
    /// # Errors
    /// As for [`Directory::read`].
    pub fn get(&self, name: &OsStr, limit: u64) -> Result<Option<Vec<u8>>, HostError> {
        let fail = |source| HostError::io("read", &self.path.join(name), source);
        let file = self.read(name)?;
        let mut content = Vec::new();
        file.take(limit.saturating_add(1)).read_to_end(&mut content).map_err(fail)?;
        Ok((content.len() as u64 <= limit).then_some(content))
    }

    /// Removes a file, or a link itself; one that is gone is none of anybody's business.
    ///
    /// # Errors
    /// [`HostError::NotGranted`] or the system's refusal.
    pub fn remove(&self, grant: &Grant, name: &OsStr) -> Result<(), HostError> {
        let path = self.path.join(name);
        granted(grant, &path)?;
        match rustix::fs::unlinkat(&self.handle, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(errno) => Err(HostError::io("remove", &path, errno)),
        }
    }

    /// Removes a directory below this one with the files in it; deeper ones stand in the way, as kli
    /// makes none.
    ///
    /// # Errors
    /// [`HostError::NotGranted`] or the system's refusal.
    pub fn remove_directory(&self, grant: &Grant, name: &OsStr) -> Result<(), HostError> {
        granted(grant, &self.path.join(name))?;
        if let Some(below) = self.step(name)? {
            for file in below.names()? {
                below.remove(grant, &file)?;
            }
        }
        match rustix::fs::unlinkat(&self.handle, name, AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(errno) => Err(HostError::io("remove", &self.path.join(name), errno)),
        }
    }

    /// Opens a directory below this one, not through a link; `None` when it is not there.
    ///
    /// # Errors
    /// As for [`Directory::open`].
    pub fn below(&self, name: &OsStr) -> Result<Option<Self>, HostError> {
        self.step(name)
    }

    /// Gives a file of another directory a name here as well.
    ///
    /// # Errors
    /// [`HostError::NotGranted`] or the system's refusal.
    pub fn share(&self, grant: &Grant, name: &OsStr, from: &Self) -> Result<(), HostError> {
        let path = self.path.join(name);
        granted(grant, &path)?;
        match rustix::fs::linkat(&from.handle, name, &self.handle, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::EXIST) => Ok(()),
            Err(errno) => Err(HostError::io("link to", &path, errno)),
        }
    }

    /// Takes the exclusive lock of the directory without waiting; false when another process has it.
    /// It ends with the value, or with the process. A file system without locks gives it to everyone.
    pub fn try_lock(&self) -> bool {
        let lock = FlockOperation::NonBlockingLockExclusive;
        !matches!(rustix::fs::flock(&self.handle, lock), Err(Errno::WOULDBLOCK))
    }

    /// Returns the names in it with their sizes in bytes, without what is no regular file.
    ///
    /// # Errors
    /// The system's refusal.
    pub fn sizes(&self) -> Result<Vec<(OsString, u64)>, HostError> {
        let names = self.names()?.into_iter();
        let size = |name: OsString| {
            let looked = self.look(&name).ok().filter(|looked| looked.is_file)?;
            Some((name, looked.size))
        };
        Ok(names.filter_map(size).collect())
    }
}
