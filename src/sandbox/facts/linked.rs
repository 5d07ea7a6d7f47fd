//! Hard links of what shall stay as it is: a mount protects one name, and the file can be written by
//! its others. The inside can make one together with a file that is protected from the next start on.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::super::git::{Present, Repository};
use super::{Writable, sorted};

/// How many files of one directory are looked at.
const MOST: usize = 1000;

/// The regular files among these paths, and in these directories, that have other names, each with
/// the number of all its names. Links are not followed.
pub(super) fn find(paths: &[&[Writable]], git: Option<&Repository>) -> Vec<(PathBuf, u64)> {
    let mut linked = Vec::new();
    for path in paths.iter().copied().flatten() {
        if path.missing == 0 && path.trouble.is_none() {
            look(&path.physical, path.directory, &mut linked);
        }
    }
    for name in git.iter().flat_map(|repository| &repository.names) {
        match name.present {
            Present::File => look(&name.path, false, &mut linked),
            Present::Directory => look(&name.path, true, &mut linked),
            Present::Odd | Present::Absent => {}
        }
    }
    sorted::by(&mut linked, Ord::cmp);
    linked.dedup();
    linked
}

fn look(path: &Path, directory: bool, linked: &mut Vec<(PathBuf, u64)>) {
    if directory {
        for entry in std::fs::read_dir(path).into_iter().flatten().flatten().take(MOST) {
            look(&entry.path(), false, linked);
        }
    } else if let Ok(meta) = std::fs::symlink_metadata(path)
        && meta.is_file()
        && meta.nlink() > 1
    {
        linked.push((path.to_path_buf(), meta.nlink()));
    }
}
