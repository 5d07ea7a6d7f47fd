//! Looks at the machine for `kli doctor`: what is there, what can be read or written, what is
//! mounted where. Nothing is changed, nothing is started, and of a file that may hold a secret no
//! byte is read: opening it and asking for its size is enough.

#![expect(clippy::disallowed_methods, reason = "this is where the machine is looked at")]

use std::{
    env,
    ffi::{OsStr, OsString},
    fs::{self, OpenOptions},
    io::{self, Read as _},
    os::unix::{
        ffi::{OsStrExt, OsStringExt},
        fs::{FileTypeExt, MetadataExt, OpenOptionsExt},
    },
    path::{Path, PathBuf},
};

use rustix::fs::{Access, AtFlags, CWD};

/// What a path holds for whoever asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// Nothing is there, or a link to nothing.
    Absent,
    /// It cannot be opened for reading.
    Closed,
    /// An empty file or directory; a mask of the jail's looks so.
    Empty,
    /// A file that holds something and can be read; how many names it has.
    File {
        /// The link count.
        links: u64,
    },
    /// A directory that holds something and can be listed.
    Directory,
    /// A socket that can be connected to, as far as its mode tells.
    Socket,
    /// A device or a pipe; not opened.
    Other,
}

/// Looks at what a path leads to. A pipe or a device is not opened, since that can wait or act.
pub fn content(path: &Path) -> Content {
    let Ok(found) = fs::metadata(path) else { return Content::Absent };
    let kind = found.file_type();
    if kind.is_socket() {
        let open = accessible(path, Access::WRITE_OK);
        return if open { Content::Socket } else { Content::Closed };
    }
    if kind.is_dir() {
        return match fs::read_dir(path).map(|mut entries| entries.next().is_some()) {
            Err(_) => Content::Closed,
            Ok(false) => Content::Empty,
            Ok(true) => Content::Directory,
        };
    }
    if !kind.is_file() {
        return Content::Other;
    }
    // It may have become something else since the look.
    let opened = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY)
        .open(path)
        .and_then(|file| file.metadata());
    match opened {
        Err(_) => Content::Closed,
        Ok(meta) if !meta.is_file() => Content::Other,
        Ok(meta) if meta.len() == 0 => Content::Empty,
        Ok(meta) => Content::File { links: meta.nlink() },
    }
}

/// Says whether this is process 1 of its namespace.
pub fn is_first() -> bool {
    std::process::id() == 1
}

/// Returns those of the names that a process was started with as variables, by a file as
/// `/proc/PID/environ` (proc(5)); none when it cannot be read. No value is kept.
pub fn started_with(environment: &Path, names: &[String]) -> Vec<String> {
    /// The longest block of variables that is looked through, in bytes.
    const MOST: u64 = 4 << 20;
    let mut block = zeroize::Zeroizing::new(Vec::new());
    let read = fs::File::open(environment).and_then(|file| file.take(MOST).read_to_end(&mut block));
    if read.is_err() {
        return Vec::new();
    }
    let is_there = |name: &&String| {
        block.split(|byte| *byte == 0).any(|variable| {
            let rest =
                variable.strip_prefix(name.as_bytes()).and_then(|rest| rest.strip_prefix(b"="));
            rest.is_some_and(|value| !value.is_empty())
        })
    };
    names.iter().filter(is_there).cloned().collect()
}

/// Returns the names in a directory, sorted, at most `limit` of them; none when it cannot be listed.
pub fn names(path: &Path, limit: usize) -> Vec<OsString> {
    let mut names: Vec<OsString> = fs::read_dir(path)
        .map(|entries| entries.flatten().take(limit).map(|entry| entry.file_name()).collect())
        .unwrap_or_default();
    names.sort();
    names
}

/// Says whether this process may write a path: its mode and its mount are asked, nothing is written.
pub fn is_writable(path: &Path) -> bool {
    accessible(path, Access::WRITE_OK)
}

/// Says whether files can be made in a directory.
pub fn takes_files(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|meta| meta.is_dir())
        && accessible(path, Access::WRITE_OK | Access::EXEC_OK)
}

fn accessible(path: &Path, access: Access) -> bool {
    rustix::fs::accessat(CWD, path, access, AtFlags::EACCESS).is_ok()
}

/// What a path is and whose, links followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owned {
    /// The owner's number.
    pub owner: u32,
    /// The permission bits.
    pub mode: u32,
    /// Whether it is a directory.
    pub directory: bool,
}

/// Returns what a path is and whose.
///
/// # Errors
/// The system's refusal to look at it.
pub fn owned(path: &Path) -> io::Result<Owned> {
    let meta = fs::metadata(path)?;
    Ok(Owned { owner: meta.uid(), mode: meta.mode() & 0o7777, directory: meta.is_dir() })
}

/// Says whether two paths are the same file now.
pub fn is_same(left: &Path, right: &Path) -> bool {
    match (fs::metadata(left), fs::metadata(right)) {
        (Ok(left), Ok(right)) => (left.dev(), left.ino()) == (right.dev(), right.ino()),
        _ => false,
    }
}

/// Returns the effective user's number.
pub fn user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Returns the bytes that an ordinary user may still write where a path is.
///
/// # Errors
/// The system's refusal.
pub fn free_bytes(path: &Path) -> io::Result<u64> {
    let system = rustix::fs::statvfs(path)?;
    Ok(system.f_bavail.saturating_mul(system.f_frsize))
}

/// Returns the deepest directory above a path, or the path itself, that is there.
pub fn existing(path: &Path) -> Option<&Path> {
    path.ancestors().find(|path| fs::metadata(path).is_ok())
}

/// Returns the program that a name leads to, in the order of `PATH`, or that a path with a slash is.
pub fn program(name: &Path, path: Option<&OsStr>) -> Option<PathBuf> {
    let is_program = |file: &PathBuf| {
        fs::metadata(file).is_ok_and(|meta| meta.is_file()) && accessible(file, Access::EXEC_OK)
    };
    if name.as_os_str().as_bytes().contains(&b'/') {
        return Some(name.to_owned()).filter(is_program);
    }
    env::split_paths(path?).map(|directory| directory.join(name)).find(is_program)
}

/// Returns the entries of a `PATH`, in order.
pub fn entries(path: &OsStr) -> Vec<PathBuf> {
    env::split_paths(path).collect()
}

/// Says whether a path is a symbolic link that leads to nothing.
pub fn is_dead_link(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|meta| meta.is_symlink()) && fs::metadata(path).is_err()
}

/// Returns the nearest directory from `start` upwards that has a `.git`, a directory or a file. A
/// sticky directory where anybody can make files (`/tmp`) is no repository of what lies below it.
/// (Where anybody can also put other directories in the place of those below, as on a file system
/// without modes, there is nothing to hold apart.)
pub fn repository(start: &Path) -> Option<&Path> {
    let anybodys =
        |path: &Path| fs::metadata(path).is_ok_and(|meta| meta.mode() & 0o1002 == 0o1002);
    start
        .ancestors()
        .take_while(|directory| *directory == start || !anybodys(directory))
        .find(|directory| fs::symlink_metadata(directory.join(".git")).is_ok())
}

/// A mount, as `/proc/self/mountinfo` tells it (proc(5)).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// The device's numbers, as they are written.
    pub device: String,
    /// What of the file system is shown.
    pub root: PathBuf,
    /// Where.
    pub point: PathBuf,
}

/// Returns the mounts that this process sees; none when they cannot be read.
pub fn mounts() -> Vec<Mount> {
    fs::read("/proc/self/mountinfo").map(|text| parse_mounts(&text)).unwrap_or_default()
}

fn parse_mounts(text: &[u8]) -> Vec<Mount> {
    text.split(|byte| *byte == b'\n')
        .filter_map(|line| {
            let mut fields = line.split(|byte| *byte == b' ').skip(2);
            let device = String::from_utf8_lossy(fields.next()?).into_owned();
            Some(Mount {
                device,
                root: unescaped(fields.next()?),
                point: unescaped(fields.next()?),
            })
        })
        .collect()
}

/// The kernel writes blanks, line breaks and backslashes as `\` and three octal digits.
fn unescaped(field: &[u8]) -> PathBuf {
    let mut name = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((first, after)) = rest.split_first() {
        let code = (*first == b'\\')
            .then(|| after.get(..3))
            .flatten()
            .and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok());
        if let Some(byte) = code {
            name.push(byte);
            rest = after.get(3..).unwrap_or_default();
        } else {
            name.push(*first);
            rest = after;
        }
    }
    PathBuf::from(OsString::from_vec(name))
}

/// Returns the other paths by which the mounts show what `path` (physical) names: the same part of
/// the same file system, mounted elsewhere too. Computed by names; nothing is looked at.
pub fn other_paths(path: &Path, mounts: &[Mount]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for around in mounts.iter().filter(|mount| path.starts_with(&mount.point)) {
        let Ok(below) = path.strip_prefix(&around.point) else { continue };
        let inner = around.root.join(below);
        for other in mounts.iter().filter(|other| other.device == around.device) {
            if let Ok(rest) = inner.strip_prefix(&other.root) {
                // Joining nothing would put a slash at the end.
                let name: PathBuf = other.point.join(rest).components().collect();
                if name != path && !found.contains(&name) {
                    found.push(name);
                }
            }
        }
    }
    found
}

/// Counts the abstract sockets that this network namespace shows, which no file mode guards
/// (unix(7)).
pub fn abstract_sockets() -> usize {
    fs::read_to_string("/proc/net/unix").map_or(0, |text| {
        text.lines()
            .filter_map(|line| line.split_whitespace().nth(7))
            .filter(|name| name.starts_with('@'))
            .count()
    })
}

#[cfg(test)]
mod tests;
