//! A small file of choices that several processes change: read under a lock, put in its place whole.

#![expect(clippy::disallowed_methods, reason = "this is an edge: kli's own files")]

use std::{
    fs::{self, File},
    io::Read as _,
    path::Path,
    time::{Duration, Instant},
};

use rustix::fs::FileType;

use super::{create_dir, granted, metadata, open_read, write_atomic};
use crate::{authority::Grant, host::HostError};

/// How long another process's change is waited for.
const PATIENCE: Duration = Duration::from_secs(2);

/// Changes a file: takes the directory's lock, reads what is there (`None` for nothing, and for more
/// than `limit` bytes), and puts what `change` makes of it in its place (`None` leaves all as it is), mode 0600: whoever reads it
/// sees the old content or the new. The directory is made when it is missing.
///
/// A link in the place of the file is neither followed nor replaced: somebody meant something by it.
///
/// # Errors
/// [`HostError::NotGranted`]; [`HostError::Kind`] for anything but a regular file;
/// [`HostError::Locked`] after two seconds; the system's refusal. The old file stands then.
pub fn change(
    grant: &Grant,
    path: &Path,
    limit: u64,
    change: impl FnOnce(Option<&[u8]>) -> Option<Vec<u8>>,
) -> Result<(), HostError> {
    granted(grant, path)?;
    let directory = path.parent().unwrap_or(Path::new("/"));
    create_dir(grant, directory)?;
    let _lock = lock(directory, PATIENCE)?;
    let old = match metadata(path) {
        Err(error) if error.errno() == Some(libc::ENOENT) => None,
        Err(error) => return Err(error),
        Ok(found) if !found.is_file() => {
            use std::os::unix::fs::MetadataExt as _;
            let kind = super::super::files::kind(FileType::from_raw_mode(found.mode()));
            let path = path.to_owned();
            return Err(HostError::Kind { path, kind, wanted: "a regular file" });
        }
        Ok(_) => {
            let mut bytes = Vec::new();
            let read = open_read(path)?.take(limit + 1).read_to_end(&mut bytes);
            read.map_err(|source| HostError::io("read", path, source))?;
            Some(bytes).filter(|bytes| bytes.len() as u64 <= limit)
        }
    };
    match change(old.as_deref()) {
        Some(new) => write_atomic(grant, path, &new),
        None => Ok(()),
    }
}

/// Locks a directory against other runs that change a file in it; the lock ends with the handle. One on
/// the file would be lost with the file that is replaced.
///
/// # Errors
/// [`HostError::Locked`] when another has it for longer than `patience`; the system's refusal.
pub(in crate::host) fn lock(directory: &Path, patience: Duration) -> Result<File, HostError> {
    let handle =
        File::open(directory).map_err(|source| HostError::io("open", directory, source))?;
    let end = Instant::now() + patience;
    loop {
        match handle.try_lock() {
            Ok(()) => return Ok(handle),
            Err(fs::TryLockError::WouldBlock) if Instant::now() < end => {
                std::thread::sleep(Duration::from_millis(5));
            }
            Err(fs::TryLockError::WouldBlock) => {
                return Err(HostError::Locked { path: directory.to_owned() });
            }
            Err(fs::TryLockError::Error(source)) => {
                return Err(HostError::io("lock", directory, source));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt as _, symlink};

    use super::*;

    fn grant(place: &tempfile::TempDir) -> Grant {
        Grant::own_state(place.path())
    }

    #[test]
    fn a_file_is_changed_whole_and_only_the_user_reads_it() {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("below/ui.json");
        change(&grant(&place), &file, 8, |old| {
            assert_eq!(old, None);
            Some(b"one".to_vec())
        })
        .unwrap();
        change(&grant(&place), &file, 8, |old| Some([old.unwrap(), b" two"].concat())).unwrap();
        assert_eq!(fs::read(&file).unwrap(), b"one two");
        assert_eq!(fs::metadata(&file).unwrap().mode() & 0o777, 0o600);
        fs::write(&file, "longer than that").unwrap();
        change(&grant(&place), &file, 8, |old| {
            assert_eq!(old, None, "too long to be read");
            Some(b"new".to_vec())
        })
        .unwrap();
        let names: Vec<_> = fs::read_dir(file.parent().unwrap()).unwrap().collect();
        assert_eq!(names.len(), 1, "nothing is left beside it: {names:?}");
    }

    #[test]
    fn a_link_is_neither_followed_nor_replaced() {
        let place = tempfile::tempdir().unwrap();
        let (file, target) = (place.path().join("ui.json"), place.path().join("target"));
        fs::write(&target, "as it was").unwrap();
        symlink(&target, &file).unwrap();
        let error = change(&grant(&place), &file, 64, |_| Some(b"new".to_vec())).unwrap_err();
        assert!(matches!(error, HostError::Kind { kind: "a symbolic link", .. }), "{error:?}");
        assert_eq!(fs::read(&target).unwrap(), b"as it was");
        assert!(fs::symlink_metadata(&file).unwrap().is_symlink());
        let elsewhere = Grant::own_state("/elsewhere");
        assert!(matches!(
            change(&elsewhere, &target, 64, |_| Some(b"new".to_vec())),
            Err(HostError::NotGranted { .. })
        ));
        change(&grant(&place), &target, 64, |_| Some(b"new".to_vec())).unwrap();
        assert_eq!(fs::read(&target).unwrap(), b"new", "control");
    }

    #[test]
    fn of_many_changes_at_once_none_is_lost() {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("ui.json");
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..4 {
                        change(&grant(&place), &file, 64, |old| {
                            Some([old.unwrap_or_default(), b"x"].concat())
                        })
                        .unwrap();
                    }
                });
            }
        });
        assert_eq!(fs::read(&file).unwrap(), [b'x'; 32]);
    }
}
