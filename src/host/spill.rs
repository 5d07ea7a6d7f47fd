//! Files without a name, for results that are too long to be shown whole.
//!
//! Such a file is in no directory: nothing else can open it, and it is gone when this process ends,
//! however that happens. It knows nothing of results and their handles.

#![expect(clippy::disallowed_methods, reason = "this is an edge: kli's own scratch files")]

use std::{
    fs::{self, File, OpenOptions},
    io,
    os::unix::fs::{FileExt, OpenOptionsExt},
    path::Path,
};

use rustix::process::Resource;

use super::{HostError, state::temporary_name};
use crate::authority::Grant;

/// A file without a name, written at its end and read anywhere.
#[derive(Debug)]
pub struct Spill {
    file: File,
    length: u64,
    /// The most bytes that this process may write into a file.
    limit: u64,
}

impl Spill {
    /// Makes one on the file system of a directory.
    ///
    /// # Errors
    /// [`HostError::NotGranted`] when the directory is not the grant's, or the system's refusal.
    pub fn new(grant: &Grant, directory: &Path) -> Result<Self, HostError> {
        if !grant.permits_state(directory) {
            return Err(HostError::NotGranted { path: directory.to_owned() });
        }
        let mut options = OpenOptions::new();
        options.read(true).write(true).mode(0o600);
        let nameless = options.clone().custom_flags(libc::O_TMPFILE).open(directory);
        let file = nameless.or_else(|_| {
            // Not every file system knows nameless files (open(2), O_TMPFILE).
            let path = directory.join(temporary_name());
            let file = options.create_new(true).custom_flags(libc::O_NOFOLLOW).open(&path);
            file.and_then(|file| fs::remove_file(&path).map(|()| file))
        });
        let file =
            file.map_err(|source| HostError::io("make a scratch file in", directory, source))?;
        // A write beyond the limit would end the process (SIGXFSZ, setrlimit(2)).
        let limit = rustix::process::getrlimit(Resource::Fsize).current.unwrap_or(u64::MAX);
        Ok(Self { file, length: 0, limit })
    }

    /// Appends bytes. When only a part fits, that part stays and counts.
    ///
    /// # Errors
    /// The system's refusal, as when the disk is full.
    pub fn append(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let room = self.limit.saturating_sub(self.length);
            let room = usize::try_from(room).unwrap_or(usize::MAX).min(bytes.len());
            let part = bytes.get(..room).unwrap_or_default();
            if part.is_empty() {
                return Err(io::Error::from_raw_os_error(libc::EFBIG));
            }
            match self.file.write_at(part, self.length) {
                Ok(0) => return Err(io::Error::from(io::ErrorKind::StorageFull)),
                Ok(written) => {
                    self.length = self.length.saturating_add(written as u64);
                    bytes = bytes.get(written..).unwrap_or_default();
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Reads from an offset on into a buffer, and returns how many bytes came; 0 at the end.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        loop {
            match self.file.read_at(buffer, offset) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                other => return other,
            }
        }
    }

    /// Returns its length in bytes.
    pub fn length(&self) -> u64 {
        self.length
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spill_is_in_no_directory_and_reads_back() {
        let place = tempfile::tempdir().unwrap();
        let grant = Grant::own_state(place.path());
        let mut spill = Spill::new(&grant, place.path()).unwrap();
        spill.append(b"abc").unwrap();
        spill.append(b"def").unwrap();
        assert_eq!(spill.length(), 6);
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 0);
        let mut buffer = [0; 10];
        assert_eq!(spill.read_at(&mut buffer, 2).unwrap(), 4);
        assert_eq!(&buffer[..4], b"cdef");
        assert_eq!(spill.read_at(&mut buffer, 6).unwrap(), 0);
        spill.limit = 8;
        let full = spill.append(b"ghi").unwrap_err();
        assert_eq!((full.raw_os_error(), spill.length()), (Some(libc::EFBIG), 8));
        let other = tempfile::tempdir().unwrap();
        assert!(matches!(Spill::new(&grant, other.path()), Err(HostError::NotGranted { .. })));
        let missing = place.path().join("missing");
        assert!(matches!(Spill::new(&grant, &missing), Err(HostError::Io { .. })));
    }
}
