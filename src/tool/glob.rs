//! Patterns over paths, as `search` and `find` take them.

use std::path::Path;

use globset::{GlobBuilder, GlobMatcher};

/// A glob: `*` and `?` stay within one component, `**` does not.
#[derive(Clone, Debug)]
pub(super) struct Glob {
    matcher: GlobMatcher,
    /// Whether the glob names what is left out.
    others: bool,
    /// Whether it is compared with the name alone.
    name_only: bool,
}

impl Glob {
    /// Reads a glob over files: `!` in front takes all others, and a directory (`src/`) stands for
    /// what is in it. `name` is the argument, for errors.
    pub(super) fn of_files(text: &str, name: &str) -> Result<Self, String> {
        let (others, glob) = text.strip_prefix('!').map_or((false, text), |glob| (true, glob));
        match glob.strip_suffix('/') {
            Some(directory) => Self::new(&format!("{directory}/**"), others, name),
            None => Self::new(glob, others, name),
        }
    }

    /// Reads a glob over whatever has a name.
    pub(super) fn of_entries(text: &str, name: &str) -> Result<Self, String> {
        Self::new(text, false, name)
    }

    fn new(glob: &str, others: bool, name: &str) -> Result<Self, String> {
        let anchored = glob.strip_prefix("./").or_else(|| glob.strip_prefix('/')).unwrap_or(glob);
        let name_only = !anchored.contains('/') && anchored.len() == glob.len();
        let matcher = GlobBuilder::new(anchored)
            .literal_separator(true)
            .build()
            .map_err(|error| format!("`{name}` cannot be used: {error}"))?
            .compile_matcher();
        Ok(Self { matcher, others, name_only })
    }

    /// Says whether it takes a path, given relative to the directory that is looked through.
    pub(super) fn takes(&self, relative: &Path) -> bool {
        let path = match relative.file_name() {
            Some(name) if self.name_only => Path::new(name),
            _ => relative,
        };
        self.matcher.is_match(path) != self.others
    }
}
