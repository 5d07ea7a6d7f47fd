//! Where the git directory of the workspace is, found by reading alone: no git program is run (law 9).
//!
//! What a repository says of itself decides about its own git directory and about nothing else: a
//! directory becomes writable only where the links go both ways and the caller owns every part.
//! What of it makes the host run code later is named here; which mounts follow from that is not
//! decided here.

use std::path::{Path, PathBuf};

use config::Variable;
use names::Names;
use read::Entry;

use super::plan::shown;

pub(super) mod config;
mod names;
pub(super) mod read;

/// The longest `.git` file, `gitdir` and `HEAD` in bytes: a path and a word before it.
const MAX_POINTER: u64 = 8 * 1024;
/// The longest configuration file in bytes.
pub(super) const MAX_CONFIG: u64 = 1 << 20;

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
    /// A file that says where the rest of the repository is: a `.git` file, `commondir`, `gitdir`.
    Pointer,
    /// A directory of further git directories, too many to name one by one: read-only as a whole.
    Tree,
}

/// Finds the repository around `workspace`, a physical directory, for user `uid`. As git does, it
/// goes up until there is one and never to another file system.
pub(super) fn discover(workspace: &Path, uid: u32) -> Option<Repository> {
    let device = read::stat(workspace).ok()?.st_dev;
    let mut found = None;
    for directory in workspace.ancestors() {
        if !read::stat(directory).is_ok_and(|stat| stat.st_dev == device) {
            break;
        }
        found = at(directory, workspace, uid);
        if found.is_some() {
            break;
        }
    }
    let mut names = Names::default();
    names.foreign(workspace);
    match &mut found {
        None => {
            let first = names.pins.first()?.clone();
            let mut repository = Repository {
                kind: Kind::Foreign,
                git_dir: first.clone(),
                common_dir: first.clone(),
                dot_git: first,
                writable: true,
                sentence: None,
                names: Vec::new(),
                pins: Vec::new(),
            };
            repository.take(names);
            found = Some(repository);
        }
        Some(repository) => repository.take(names),
    }
    found
}

/// The repository whose `.git` is in `directory`, or which `directory` is.
fn at(directory: &Path, workspace: &Path, uid: u32) -> Option<Repository> {
    let dot_git = directory.join(".git");
    let other = |git_dir: PathBuf, sentence: String| Repository {
        kind: Kind::Other,
        common_dir: git_dir.clone(),
        git_dir,
        dot_git: dot_git.clone(),
        writable: false,
        sentence: Some(sentence),
        names: Vec::new(),
        pins: Vec::new(),
    };
    let found = match read::look(&dot_git) {
        Entry::Directory if is_git_directory(&dot_git) => {
            Repository::new(Kind::Clone, dot_git.clone(), dot_git.clone(), dot_git.clone())
        }
        Entry::Directory if is_empty_for_git(&dot_git) => return bare(directory, workspace, uid),
        Entry::Directory => other(
            dot_git.clone(),
            "its `.git` is no git directory, or cannot be read: repair it".into(),
        ),
        Entry::File => match follow(&dot_git, workspace) {
            Ok(found) => found,
            Err((place, sentence)) => other(place, sentence),
        },
        Entry::Link => other(
            read::physical(&dot_git).unwrap_or_else(|| dot_git.clone()),
            "its `.git` is a symbolic link, which nothing can hold in place: replace it with a \
             file that says `gitdir: PATH` and has a link back, or with the directory"
                .into(),
        ),
        Entry::Odd | Entry::Unknown => {
            other(dot_git.clone(), "its `.git` is neither a directory nor a file".into())
        }
        Entry::Absent => return bare(directory, workspace, uid),
    };
    Some(found.finish(uid))
}

/// `directory` as a bare repository.
fn bare(directory: &Path, workspace: &Path, uid: u32) -> Option<Repository> {
    if !is_git_directory(directory) {
        return None;
    }
    let own = || directory.to_path_buf();
    let mut found = Repository::new(Kind::Bare, own(), own(), own());
    if directory != workspace {
        found.refuse(format!(
            "the workspace lies inside the git directory `{}`: start in a working tree",
            shown(directory)
        ));
    }
    Some(found.finish(uid))
}

/// Follows a `.git` file: to a linked worktree, a submodule or a bare repository beside it. Otherwise
/// the place, as far as there is one, and the sentence.
fn follow(dot_git: &Path, workspace: &Path) -> Result<Repository, (PathBuf, String)> {
    let nowhere = |sentence: &str| (dot_git.to_path_buf(), sentence.to_owned());
    let text = read::text(dot_git, MAX_POINTER)
        .map_err(|error| nowhere(&format!("its `.git` file cannot be read: {error}")))?;
    let named = text
        .strip_prefix(b"gitdir: ")
        .map(trimmed)
        .filter(|named| is_one_line(named))
        .ok_or_else(|| nowhere("its `.git` file does not say `gitdir: PATH`: repair it"))?;
    let directory = dot_git.parent().unwrap_or(dot_git);
    let place = read::physical(&directory.join(read::path(named)))
        .ok_or_else(|| nowhere("its `.git` file names a place that is not there: repair it"))?;
    let found = |kind, common: &Path| {
        Repository::new(kind, place.clone(), common.to_path_buf(), dot_git.to_path_buf())
    };
    if let Some(common) = common_of(&place)
        && is_git_directory(common)
    {
        // The way back decides: only who may write the repository can have made it.
        let back = read::text(&place.join("gitdir"), MAX_POINTER).ok().and_then(|text| {
            let line = trimmed(&text);
            is_one_line(line).then(|| read::physical_name(&place.join(read::path(line))))?
        });
        if back.as_deref() == Some(dot_git) {
            return Ok(found(Kind::Worktree, common));
        }
        return Err((
            place.clone(),
            format!(
                "its `.git` file names the worktree `{}`, whose `gitdir` does not name this one: \
                 run `git worktree repair` outside",
                shown(&place)
            ),
        ));
    }
    let name = shown(&place);
    if !is_git_directory(&place) {
        return Err((
            place,
            format!("its `.git` file names `{name}`, which is no git directory: repair it"),
        ));
    }
    if above_modules(&place) {
        let back =
            core_worktree(&place).and_then(|value| read::physical(&place.join(read::path(&value))));
        if back.as_deref() == Some(directory) {
            return Ok(found(Kind::Submodule, &place));
        }
        return Err((
            place,
            format!(
                "its `.git` file names the submodule `{name}`, whose `core.worktree` does not name \
                 this directory: run `git submodule update` outside"
            ),
        ));
    }
    // Beside the file, or in what is writable anyway, it gains nothing by being named.
    if place.parent() == Some(directory) || (place.starts_with(workspace) && place != workspace) {
        return Ok(found(Kind::Bare, &place));
    }
    Err((
        place,
        format!(
            "its `.git` file names `{name}`, which has no link back to it: move it to `.git`, or \
             use `git worktree add`"
        ),
    ))
}

/// The value of `core.worktree`.
fn core_worktree(git_dir: &Path) -> Option<Vec<u8>> {
    let read = |name: &str| -> Vec<Variable> {
        read::text(&git_dir.join(name), MAX_CONFIG)
            .map(|text| config::variables(&text))
            .unwrap_or_default()
    };
    let mut variables = read("config");
    if config::last(&variables, "extensions.worktreeconfig").is_some() {
        variables.extend(read("config.worktree"));
    }
    config::last(&variables, "core.worktree").map(<[u8]>::to_vec)
}

/// `<common>` of `<common>/worktrees/<id>`.
fn common_of(place: &Path) -> Option<&Path> {
    let worktrees = place.parent()?;
    (worktrees.file_name()? == "worktrees").then(|| worktrees.parent())?
}

/// Whether `place` lies in `modules` of a git directory, or of a linked worktree's.
fn above_modules(place: &Path) -> bool {
    place.ancestors().skip(1).any(|above| {
        above.file_name().is_some_and(|name| name == "modules")
            && above.parent().is_some_and(|parent| {
                is_git_directory(parent) || common_of(parent).is_some_and(is_git_directory)
            })
    })
}

/// Whether git would take `directory` for a git directory (gitrepository-layout(5)), all of it in
/// place: an `objects` or `refs` behind a link is not.
fn is_git_directory(directory: &Path) -> bool {
    let head = match read::look(&directory.join("HEAD")) {
        Entry::File => read::text(&directory.join("HEAD"), MAX_POINTER).is_ok_and(|text| {
            let line = trimmed(&text);
            let id = [40, 64].contains(&line.len()) && line.iter().all(u8::is_ascii_hexdigit);
            id || line.starts_with(b"ref:")
        }),
        Entry::Link => true,
        _ => false,
    };
    head && ["objects", "refs"]
        .iter()
        .all(|name| read::look(&directory.join(name)) == Entry::Directory)
}

/// Whether git passes a `.git` directory by: there is nothing in it that makes one.
fn is_empty_for_git(directory: &Path) -> bool {
    ["HEAD", "config", "objects", "refs", "commondir"]
        .iter()
        .all(|name| read::look(&directory.join(name)) == Entry::Absent)
}

/// Without the ends of lines after it.
fn trimmed(text: &[u8]) -> &[u8] {
    let end = text.iter().rposition(|byte| !b"\r\n".contains(byte)).map_or(0, |last| last + 1);
    text.get(..end).unwrap_or_default()
}

fn is_one_line(text: &[u8]) -> bool {
    !text.is_empty() && !text.iter().any(|byte| b"\0\r\n".contains(byte))
}

impl Repository {
    fn new(kind: Kind, git_dir: PathBuf, common_dir: PathBuf, dot_git: PathBuf) -> Self {
        Self {
            kind,
            git_dir,
            common_dir,
            dot_git,
            writable: true,
            sentence: None,
            names: Vec::new(),
            pins: Vec::new(),
        }
    }

    fn refuse(&mut self, sentence: String) {
        self.writable = false;
        self.sentence.get_or_insert(sentence);
    }

    /// Checks the owners and collects the names.
    fn finish(mut self, uid: u32) -> Self {
        for place in [&self.dot_git, &self.git_dir, &self.common_dir] {
            let owner = read::stat(place).map(|stat| stat.st_uid);
            if owner != Ok(uid) && self.writable {
                let sentence = match owner {
                    Ok(owner) => format!(
                        "`{}` belongs to user {owner}, not to user {uid}: start as its owner",
                        shown(place)
                    ),
                    Err(error) => format!("`{}` cannot be looked at: {error}", shown(place)),
                };
                self.writable = false;
                self.sentence = Some(sentence);
            }
        }
        let mut names = Names::default();
        if read::look(&self.dot_git) == Entry::File {
            names.add(&self.dot_git, Group::Pointer);
        }
        if self.kind != Kind::Other {
            names.pin(&self.common_dir);
            names.git_directory(&self.common_dir);
            let own = self.git_dir.parent();
            let whole = |name: &Name| name.group == Group::Tree && Some(name.path.as_path()) == own;
            if self.kind == Kind::Worktree && names.found.iter().any(whole) {
                self.refuse(format!(
                    "`{}` has too many worktrees to protect each: run `git worktree prune` outside",
                    shown(&self.common_dir)
                ));
            }
        }
        self.take(names);
        self
    }

    /// Takes names over; one that cannot be held makes all of it read-only.
    fn take(&mut self, names: Names) {
        if let Some(odd) = &names.odd {
            self.refuse(format!(
                "`{}` is a symbolic link or no file of its kind, which nothing can hold in place: \
                 replace it (for shared hooks set `core.hooksPath`)",
                shown(odd)
            ));
        }
        self.names.extend(names.found);
        self.pins.extend(names.pins);
    }
}

#[cfg(test)]
mod tests;
