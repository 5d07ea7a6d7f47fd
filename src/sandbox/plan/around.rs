//! Sets of paths that are asked whether one of them lies around a path. It decides nothing.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// A set of paths. Names of one directory are asked about one after the other as a rule, and there may be
/// thousands of them: the answer for their directory is kept. Paths are compared as text, so they must be
/// without empty parts and without `.`.
#[derive(Debug, Default)]
pub(super) struct Around {
    paths: BTreeSet<OsString>,
    last: Option<(PathBuf, bool)>,
}

impl Around {
    /// Adds a path, and says whether it is new.
    pub(super) fn insert(&mut self, path: &Path) -> bool {
        let text = path.as_os_str();
        // It may lie around the directory that was asked about last.
        if let Some((last, _)) = &self.last
            && last.as_os_str().as_bytes().starts_with(text.as_bytes())
        {
            self.last = None;
        }
        self.paths.insert(text.to_owned())
    }

    /// Whether `path` or what is around it is in the set.
    pub(super) fn covers(&mut self, path: &Path) -> bool {
        if self.paths.contains(path.as_os_str()) {
            return true;
        }
        let Some(directory) = path.parent() else { return false };
        if let Some((last, answer)) = &self.last
            && last.as_os_str() == directory.as_os_str()
        {
            return *answer;
        }
        let answer = directory.ancestors().any(|above| self.paths.contains(above.as_os_str()));
        self.last = Some((directory.to_path_buf(), answer));
        answer
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn path() -> impl Strategy<Value = PathBuf> {
        prop::collection::vec("[ab]{1,2}", 0..5).prop_map(|parts| {
            std::iter::once("/").chain(parts.iter().map(String::as_str)).collect()
        })
    }

    proptest! {
        #[test]
        fn it_answers_as_a_look_at_every_path_does(steps in prop::collection::vec((any::<bool>(), path()), 0..40)) {
            let mut around = Around::default();
            let mut plain: Vec<PathBuf> = Vec::new();
            for (insert, path) in steps {
                if insert {
                    prop_assert_eq!(around.insert(&path), !plain.contains(&path));
                    plain.push(path);
                } else {
                    let expected = plain.iter().any(|it| path.starts_with(it));
                    prop_assert_eq!(around.covers(&path), expected);
                }
            }
        }
    }
}
