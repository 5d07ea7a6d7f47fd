//! Hard links of what shall stay as it is: a mount protects one name, and the file can be written by
//! its others. The inside can make one together with a file that is protected from the next start on.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::super::git::{Present, Repository};
use super::{Writable, sorted};

/// How much of one directory is looked at, with all that lies in it.
const MOST: usize = 1000;

/// The regular files among these paths, and in these directories, that have other names, each with
/// the number of all its names. Links are not followed.
pub(super) fn find(paths: &[&[Writable]], git: Option<&Repository>) -> Vec<(PathBuf, u64)> {
    let mut linked = Vec::new();
    for path in paths.iter().copied().flatten() {
        if path.missing == 0 && path.trouble.is_none() {
            look(&path.physical, &mut { MOST }, &mut linked);
        }
    }
    for name in git.iter().flat_map(|repository| &repository.names) {
        match name.present {
            Present::File | Present::Directory => look(&name.path, &mut { MOST }, &mut linked),
            Present::Odd | Present::Absent => {}
        }
    }
    sorted::by(&mut linked, Ord::cmp);
    linked.dedup();
    linked
}

/// Looks at a file, or at a directory as long as something is left of `rest`.
fn look(path: &Path, rest: &mut usize, linked: &mut Vec<(PathBuf, u64)>) {
    let Ok(meta) = std::fs::symlink_metadata(path) else { return };
    if meta.is_dir() {
        for entry in std::fs::read_dir(path).into_iter().flatten().flatten() {
            let Some(left) = rest.checked_sub(1) else { return };
            *rest = left;
            look(&entry.path(), rest, linked);
        }
    } else if meta.is_file() && meta.nlink() > 1 {
        linked.push((path.to_path_buf(), meta.nlink()));
    }
}
