//! Where the git directory of the workspace is, found by reading alone: no git program is run (law 9).
//!
//! What a repository says of itself decides about its own git directory and about nothing else: a
//! directory becomes writable only where the links go both ways and the caller owns every part.
//! What of it makes the host run code later is named here; which mounts follow from that is not
//! decided here.

use std::path::{Path, PathBuf};

/// The repository around the workspace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Repository {
    /// What stands behind `.git`.
    pub kind: Kind,
    /// The physical git directory: of a linked worktree `<common>/worktrees/<id>`.
    pub git_dir: PathBuf,
    /// The physical directory with objects, refs, hooks and config; `git_dir` itself but for a
    /// linked worktree.
    pub common_dir: PathBuf,
    /// The name that leads there, below a physical directory: the `.git` directory, file or link,
    /// or the git directory itself when there is no such name (a bare repository).
    pub dot_git: PathBuf,
    /// Whether `git_dir` and `common_dir` may be written: the links go both ways and the caller owns
    /// all of it.
    pub writable: bool,
    /// Why it is read-only, a sentence without its full stop.
    pub sentence: Option<String>,
    /// What makes the host run code later, also what is absent, inside `common_dir` (and below the
    /// workspace for other systems). The outermost first.
    pub names: Vec<Name>,
    /// The directories on the way to `names`, outermost first, which must not be renamed: the git
    /// directory, the common one, and what lies between them and a name. All of them are there.
    pub pins: Vec<PathBuf>,
}

/// What stands behind `.git`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A `.git` directory.
    Clone,
    /// A `.git` file of a linked worktree.
    Worktree,
    /// A `.git` file of a submodule.
    Submodule,
    /// A bare repository: the directory itself, or one named by the `.git` file beside it.
    Bare,
    /// Something else: a symbolic link, a separate git directory, nothing that git would take.
    /// Always read-only.
    Other,
    /// No git, but Mercurial or Jujutsu; `git_dir` is then their directory.
    Foreign,
}

/// A name of a repository that makes the host run code later.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Name {
    /// Its place below a physical directory.
    pub path: PathBuf,
    /// What is there.
    pub present: Present,
    /// What it is for.
    pub group: Group,
}

/// What is at a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Present {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link or something stranger, which is not followed.
    Odd,
    /// Nothing.
    Absent,
}

/// What a name is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Group {
    /// A directory of programs that git runs; always a directory where it is wanted.
    Hooks,
    /// A file of settings, some of which are commands.
    Settings,
    /// A file that says where the rest of the repository is: `commondir`, `gitdir`.
    Pointer,
}

/// Finds the repository around `workspace`, a physical directory, for user `uid`.
pub(super) fn discover(_workspace: &Path, _uid: u32) -> Option<Repository> {
    None
}
