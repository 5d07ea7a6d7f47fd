//! Whether the ignore files of a directory can be read without harm. The walker opens them by name,
//! follows links, reads them whole, and makes an expression of each line: a repository may hold a
//! link to `/dev/zero` under such a name, or a FIFO may stand there.

use std::{
    fs::File,
    io::Read as _,
    path::{Path, PathBuf},
};

use rustix::fs::{CWD, FileType, Mode, OFlags, Stat};

use super::MAX_POINTER;

/// The longest ignore file whose rules count, in bytes.
pub(super) const LONGEST: u64 = 512 * 1024;

/// Says whether the walker may read the ignore files of a directory. What is not there is fine.
pub(super) fn are_sound(directory: &Path) -> bool {
    let git = directory.join(".git");
    is_sound(&directory.join(".gitignore"), LONGEST)
        && is_sound(&directory.join(".ignore"), LONGEST)
        && match rustix::fs::stat(&git) {
            Err(_) => true,
            Ok(stat) if kind(&stat) == FileType::RegularFile => {
                is_sound(&git, MAX_POINTER) && is_sound_below(&git)
            }
            Ok(_) => is_sound(&git.join("info/exclude"), LONGEST),
        }
}

/// Says whether a file has an end within `longest` bytes, and reading it does not wait.
fn is_sound(path: &Path, longest: u64) -> bool {
    let Ok(stat) = rustix::fs::lstat(path) else { return true };
    match kind(&stat) {
        FileType::RegularFile => size(&stat) <= longest,
        FileType::Directory => true,
        FileType::Symlink => match rustix::fs::stat(path) {
            Err(_) => true,
            // The kernel's own files say that they are empty, and may wait or never end.
            Ok(stat) => {
                kind(&stat) == FileType::RegularFile && (1..=longest).contains(&size(&stat))
            }
        },
        _ => false,
    }
}

/// Says the same of what the walker reads where `.git` is a file (gitrepository-layout(5)).
fn is_sound_below(pointer: &Path) -> bool {
    let Some(directory) =
        first_line(pointer).and_then(|line| line.strip_prefix("gitdir: ").map(PathBuf::from))
    else {
        return true;
    };
    let common = directory.join("commondir");
    is_sound(&common, MAX_POINTER)
        && first_line(&common).is_none_or(|line| {
            let place = if line.starts_with('.') { directory.join(line) } else { line.into() };
            is_sound(&place.join("info/exclude"), LONGEST)
        })
}

fn first_line(path: &Path) -> Option<String> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::openat(CWD, path, flags, Mode::empty()).ok()?);
    let mut bytes = Vec::new();
    file.take(MAX_POINTER).read_to_end(&mut bytes).ok()?;
    let text = String::from_utf8(bytes).ok()?;
    text.lines().next().map(str::to_owned)
}

fn kind(stat: &Stat) -> FileType {
    FileType::from_raw_mode(stat.st_mode)
}

fn size(stat: &Stat) -> u64 {
    u64::try_from(stat.st_size).unwrap_or(u64::MAX)
}
