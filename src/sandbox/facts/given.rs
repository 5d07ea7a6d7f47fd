//! The files and the directory that a start takes from the host besides what it shows: `envFiles`,
//! `secrets`, and the place of a `/tmp` on disk. Where they are, never what is in them.

use std::hash::{BuildHasher, Hasher};
use std::path::{Path, PathBuf};

use super::super::spec::{Spec, Tmp};
use super::{Places, Writable, variable, walk};

/// What a start takes from the host.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Given {
    /// One entry for each variable of `envFiles`.
    pub env_files: Vec<(String, Writable)>,
    /// One entry for each key of `secrets`.
    pub secrets: Vec<(String, Writable)>,
    /// Where a `/tmp` on disk would lie, when it is wished.
    pub tmp: Option<TmpPlace>,
}

/// A place for a directory of this run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TmpPlace {
    /// The directory around it.
    pub parent: Writable,
    /// Its own name, which no other run has.
    pub name: String,
}

/// What the names of all such directories of this user start with.
pub(in super::super) fn tmp_prefix(uid: u32) -> String {
    format!("kli-tmp-{uid}-")
}

/// Looks for them.
pub(super) fn probe(
    spec: &Spec,
    places: &Places,
    environment: &[(std::ffi::OsString, std::ffi::OsString)],
) -> Given {
    let find = |(name, path): (&super::super::spec::VariableName, _)| {
        (name.0.clone(), places.writable(path))
    };
    let tmp = (spec.tmp == Tmp::HostSubdir).then(|| {
        let parent = variable(environment, "TMPDIR")
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
            .unwrap_or_else(|| Path::new("/var/tmp").to_path_buf());
        // The seed of the standard library's tables, which the kernel gives.
        let number = std::collections::hash_map::RandomState::new().build_hasher().finish();
        TmpPlace {
            parent: walk(&parent.to_string_lossy(), &parent),
            name: format!("{}{number:016x}", tmp_prefix(places.uid)),
        }
    });
    Given {
        env_files: spec.env_files.iter().map(find).collect(),
        secrets: spec.secrets.iter().map(find).collect(),
        tmp,
    }
}
