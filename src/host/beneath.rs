//! What stands beneath a directory that was opened: looked at and opened by its handle, never by a
//! name from the root again, and through no link. So a directory that is swapped for a link under
//! way leads nowhere else.

use std::{
    ffi::OsStr,
    fs::File,
    io,
    os::{fd::OwnedFd, unix::ffi::OsStrExt as _},
    path::{Component, Path, PathBuf},
};

use rustix::{
    fs::{Dir, FileType, Mode, OFlags, ResolveFlags},
    io::Errno,
};

/// A directory by its handle, and the physical path by which it was opened.
#[derive(Debug)]
pub struct Beneath {
    handle: OwnedFd,
    path: PathBuf,
}

impl Beneath {
    /// Takes the handle of a directory; `path` is the physical path by which it was opened.
    pub fn new(handle: OwnedFd, path: impl Into<PathBuf>) -> Self {
        Self { handle, path: path.into() }
    }

    /// Returns the physical path by which the directory was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Opens a regular file, and nothing else: no FIFO and no device, and never waits.
    ///
    /// # Errors
    /// The system's refusal (ELOOP or ENOTDIR when a component has become a link), or that it is
    /// something else.
    pub fn open_file(&self, relative: &Path) -> io::Result<File> {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
        let handle = self.open(relative, flags)?;
        let kind = FileType::from_raw_mode(rustix::fs::fstat(&handle)?.st_mode);
        if kind == FileType::RegularFile {
            Ok(File::from(handle))
        } else {
            Err(io::Error::new(io::ErrorKind::InvalidInput, "no regular file"))
        }
    }

    /// Returns what stands there, a link itself; `None` when nothing does, or when the way leads
    /// through a link.
    pub fn kind(&self, relative: &Path) -> Option<FileType> {
        let handle = self.open(relative, OFlags::PATH).ok()?;
        let stat = rustix::fs::fstat(&handle).ok()?;
        Some(FileType::from_raw_mode(stat.st_mode))
    }

    /// Calls `each` with the name and the kind of everything in a directory.
    ///
    /// # Errors
    /// The system's refusal.
    pub fn list(&self, relative: &Path, mut each: impl FnMut(&OsStr, FileType)) -> io::Result<()> {
        let handle = self.open(relative, OFlags::RDONLY | OFlags::DIRECTORY)?;
        for entry in Dir::new(handle)? {
            let entry = entry?;
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            if name == "." || name == ".." {
                continue;
            }
            let kind = match entry.file_type() {
                // Some file systems do not say.
                FileType::Unknown => self.kind(&relative.join(name)).unwrap_or(FileType::Unknown),
                known => known,
            };
            each(name, kind);
        }
        Ok(())
    }

    fn open(&self, relative: &Path, flags: OFlags) -> rustix::io::Result<OwnedFd> {
        // The two ways agree on what is left: names, without a slash at the end and without `..`.
        let mut name = PathBuf::new();
        for part in relative.components() {
            match part {
                Component::Normal(part) => name.push(part),
                Component::CurDir => {}
                _ => return Err(Errno::XDEV),
            }
        }
        if name.as_os_str().is_empty() {
            name.push(".");
        }
        // With PATH the last component may be a link, which is opened itself (openat2(2)).
        let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
        match rustix::fs::openat2(&self.handle, &name, flags, Mode::empty(), resolve) {
            // A kernel before 5.6, or a filter of system calls: inside the jail there is none.
            Err(Errno::NOSYS | Errno::PERM) => self.step_by_step(&name, flags),
            other => other,
        }
    }

    fn step_by_step(&self, relative: &Path, flags: OFlags) -> rustix::io::Result<OwnedFd> {
        let between = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut parts = relative.components().peekable();
        let mut handle: Option<OwnedFd> = None;
        while let Some(part) = parts.next() {
            let name = match part {
                Component::Normal(name) => name,
                Component::CurDir => OsStr::new("."),
                _ => return Err(Errno::XDEV),
            };
            let flags = if parts.peek().is_some() { between } else { flags };
            let from = handle.as_ref().unwrap_or(&self.handle);
            let next = rustix::fs::openat(from, name, flags, Mode::empty())?;
            handle = Some(next);
        }
        handle.ok_or(Errno::NOENT)
    }

    /// Returns the size of a regular file in bytes; `None` for anything else.
    pub fn size(&self, relative: &Path) -> Option<u64> {
        let stat =
            self.open(relative, OFlags::PATH).and_then(|handle| rustix::fs::fstat(&handle)).ok()?;
        (FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile)
            .then(|| u64::try_from(stat.st_size).unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::disallowed_methods, reason = "tests set up the disk themselves")]

    use std::{fs, os::unix::fs::symlink};

    use proptest::prelude::*;
    use rustix::fs::CWD;

    use super::*;

    /// A tree with links of every kind: to files and directories, inside and outside, absolute, to
    /// nothing, to themselves.
    fn tree() -> (tempfile::TempDir, Beneath) {
        let place = tempfile::tempdir().unwrap();
        let base = fs::canonicalize(place.path()).unwrap();
        fs::create_dir_all(base.join("w/a/b")).unwrap();
        fs::create_dir_all(base.join("o/a")).unwrap();
        for file in ["w/f", "w/a/f", "w/a/b/f", "o/f", "o/a/f"] {
            fs::write(base.join(file), file).unwrap();
        }
        for (target, link) in
            [("a", "l"), ("f", "m"), ("../o", "x"), ("nothing", "n"), ("s", "s"), ("/", "r")]
        {
            symlink(target, base.join("w").join(link)).unwrap();
            symlink(target, base.join("w/a").join(link)).unwrap();
        }
        let root = beneath(&base.join("w"));
        (place, root)
    }

    static TREE: std::sync::LazyLock<(tempfile::TempDir, Beneath)> = std::sync::LazyLock::new(tree);

    proptest! {
        #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

        #[test]
        fn both_ways_open_the_same_or_nothing(
            names in prop::collection::vec(
                prop::sample::select(vec!["a", "b", "f", "l", "m", "x", "n", "s", "r", ".", "..", "", "gone"]),
                0..5,
            ),
            flags in prop::sample::select(vec![
                OFlags::RDONLY,
                OFlags::PATH,
                OFlags::RDONLY.union(OFlags::DIRECTORY),
                OFlags::RDONLY.union(OFlags::NONBLOCK).union(OFlags::NOCTTY),
            ]),
        ) {
            let (_, root) = &*TREE;
            let name = names.join("/");
            let identity = |handle: OwnedFd| {
                let stat = rustix::fs::fstat(&handle).unwrap();
                (stat.st_dev, stat.st_ino)
            };
            let fast = root.open(Path::new(&name), flags).map(identity);
            let whole = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let name = if name.is_empty() { "." } else { &name };
            let slow = root.step_by_step(Path::new(name), whole).map(identity);
            match (fast, slow) {
                (Ok(fast), Ok(slow)) => prop_assert_eq!(fast, slow, "{}", name),
                // A link on the way is ELOOP for one and ENOTDIR for the other.
                (Err(_), Err(_)) => {}
                other => prop_assert!(false, "`{}`: {:?}", name, other),
            }
        }
    }

    #[test]
    fn the_two_ways_reach_what_is_there() {
        let (_place, root) = tree();
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        for name in ["f", "a", "a/b/f", "./a/./f", "."] {
            assert!(root.open(Path::new(name), flags).is_ok(), "{name}");
            assert!(root.step_by_step(Path::new(name), flags).is_ok(), "{name}");
        }
    }

    fn beneath(path: &Path) -> Beneath {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Beneath::new(rustix::fs::openat(CWD, path, flags, Mode::empty()).unwrap(), path)
    }

    #[test]
    fn nothing_is_reached_through_a_link_or_above() {
        let place = tempfile::tempdir().unwrap();
        let base = fs::canonicalize(place.path()).unwrap();
        fs::create_dir_all(base.join("ws/dir")).unwrap();
        fs::create_dir(base.join("outside")).unwrap();
        fs::write(base.join("outside/f"), "secret").unwrap();
        fs::write(base.join("ws/dir/f"), "own").unwrap();
        symlink("../outside", base.join("ws/link")).unwrap();
        symlink("../outside/f", base.join("ws/file")).unwrap();
        symlink("dir", base.join("ws/inner")).unwrap();
        let root = beneath(&base.join("ws"));
        let above = base.join("outside/f");
        for name in [
            "link/f",
            "file",
            "inner/f",
            "../outside/f",
            "dir/../../outside/f",
            above.to_str().unwrap(),
        ] {
            assert!(root.open_file(Path::new(name)).is_err(), "{name}");
            let (read, path) = (OFlags::RDONLY | OFlags::NOFOLLOW, OFlags::PATH | OFlags::NOFOLLOW);
            assert!(root.step_by_step(Path::new(name), read).is_err(), "{name}");
            if name != "file" {
                assert_eq!(root.kind(Path::new(name)), None, "{name}");
                assert!(root.step_by_step(Path::new(name), path).is_err(), "{name}");
            }
        }
        assert_eq!(root.kind(Path::new("file")), Some(FileType::Symlink));
        assert!(root.list(Path::new("link"), |_, _| panic!("listed")).is_err());
        assert!(root.open_file(Path::new("dir/f")).is_ok(), "control");
        assert!(root.step_by_step(Path::new("dir/f"), OFlags::RDONLY).is_ok(), "control");
        assert_eq!(root.size(Path::new("dir/f")), Some(3), "control");
        let mut names = Vec::new();
        root.list(Path::new("dir"), |name, kind| names.push((name.to_owned(), kind))).unwrap();
        assert_eq!(names, [("f".into(), FileType::RegularFile)], "control");
    }
}
