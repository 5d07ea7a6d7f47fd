//! What stays as it is inside something writable (law 9): what makes the host run code later in the
//! repository around the workspace, the `protect` list, and the links that lead to what is denied.
//!
//! A read-only mount on a name is worth nothing where a directory above it can be renamed away, so
//! each of them up to the writable mount is bound onto itself.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use super::super::facts::{Facts, Found, Role};
use super::super::git::{Group, Kind as Repo, Present, Repository};
use super::super::sorted;
use super::super::spec::{Git, Spec};
use super::{Create, Kind, Mount, covering, order, shown};

/// The held mounts and the awaited names, outermost first.
pub(super) struct Held<'a> {
    trees: &'a [Mount],
    masks: &'a [Mount],
    mounts: BTreeMap<PathBuf, (Kind, String)>,
    awaited: BTreeMap<PathBuf, (Kind, String)>,
}

/// Lets the git directory be written where it lies outside what is writable: it alone, not the
/// checkout that it belongs to.
pub(super) fn writable(
    spec: &Spec,
    facts: &Facts,
    masks: &[Mount],
    writable: &mut Vec<Mount>,
    create: &mut Vec<Create>,
    notes: &mut Vec<String>,
) {
    let Some(repository) = &facts.git else { return };
    if let Some(sentence) = &repository.sentence {
        notes.push(format!("git: {sentence}"));
    }
    if spec.git == Git::ReadOnly || !repository.writable || repository.kind == Repo::Foreign {
        return;
    }
    let (common, own) = (&repository.common_dir, &repository.git_dir);
    let around = |path: &Path| {
        facts.workspace.starts_with(path)
            || facts.physical_homes.iter().any(|home| home.starts_with(path))
    };
    let wanted: Vec<PathBuf> = if around(common) {
        notes.push(format!(
            "git: `{}` contains the workspace, so of it only objects, references and their logs can be \
             written: `git gc` and `git branch -d` do not work inside",
            shown(common)
        ));
        let logs = common.join("logs");
        create.push(Create { path: logs.clone(), missing: 1 });
        vec![own.clone(), common.join("objects"), common.join("refs"), logs]
    } else {
        vec![common.clone(), own.clone()]
    };
    let mut wanted = sorted::set(wanted);
    while let Some(path) = wanted.pop_first() {
        let inside = writable.iter().any(|mount| path.starts_with(&mount.destination));
        if inside || around(&path) || covering(masks, &path).is_some() {
            continue;
        }
        writable.push(Mount {
            destination: path,
            kind: Kind::Writable,
            reason: "the git directory of the workspace".into(),
        });
    }
    sorted::by(writable, |a, b| order(a).cmp(&order(b)));
}

/// Shows the repository around the workspace as it is on the host: git takes another file system, such
/// as an overlay, for the end of its search.
pub(super) fn around(facts: &Facts, masks: &[Mount]) -> Option<Mount> {
    let root = facts.git.as_ref()?.dot_git.parent()?;
    let workspace = &facts.workspace;
    let shows = workspace != root
        && workspace.starts_with(root)
        && root != Path::new("/")
        && !facts.physical_homes.iter().any(|home| home.starts_with(root))
        && covering(masks, root).is_none();
    shows.then(|| Mount {
        destination: root.to_path_buf(),
        kind: Kind::ReadOnly,
        reason: AROUND.into(),
    })
}

/// Plans what is held. `trees` are all mounts but the masks.
pub(super) fn plan(
    spec: &Spec,
    facts: &Facts,
    trees: &[Mount],
    masks: &[Mount],
) -> (Vec<Mount>, Vec<Mount>) {
    let mut held = Held { trees, masks, mounts: BTreeMap::new(), awaited: BTreeMap::new() };
    if let Some(repository) = facts.git.as_ref().filter(|_| spec.git != Git::Unprotected) {
        if spec.git == Git::ReadOnly || !repository.writable {
            let reason = "the repository is read-only";
            for path in [&repository.dot_git, &repository.common_dir, &repository.git_dir] {
                // A bare repository can be the workspace, which stays writable.
                if facts.workspace.starts_with(path) {
                    held.repository(repository);
                } else {
                    held.hold(path, Kind::Protect, reason);
                }
            }
        } else {
            held.repository(repository);
        }
    }
    held.protect(facts);
    held.read_only(facts);
    held.links(facts);
    held.hidden(facts);
    (listed(held.mounts), listed(held.awaited))
}

/// Whether an absent file of settings can stand there empty. Attributes run nothing that the settings do
/// not name, and of other worktrees and submodules there can be hundreds: those are waited for.
fn stands_empty(repository: &Repository, path: &Path) -> bool {
    let directory = path.parent();
    if path.ends_with("attributes") {
        return false;
    }
    !path.ends_with("config.worktree")
        || directory == Some(&repository.common_dir)
        || directory == Some(&repository.git_dir)
}

/// Whether a file says that settings and hooks are to be found elsewhere.
fn leads_away(path: &Path) -> bool {
    path.ends_with("commondir") || path.ends_with("sharedpath")
}

fn listed(mounts: BTreeMap<PathBuf, (Kind, String)>) -> Vec<Mount> {
    let mut mounts: Vec<Mount> = mounts
        .into_iter()
        .map(|(destination, (kind, reason))| Mount { destination, kind, reason })
        .collect();
    sorted::by(&mut mounts, |a, b| order(a).cmp(&order(b)));
    mounts
}

/// What is in a directory that is pinned.
const PROTECTED: &str = "something protected";
const HIDDEN: &str = "something hidden";

/// Why the repository around the workspace is shown.
const AROUND: &str = "the repository around the workspace";

impl Mount {
    /// Whether it is read-only and shows everything as it is on the host, so no overlay lies in it.
    pub(super) fn is_fresh(&self) -> bool {
        self.kind == Kind::ReadOnly && self.reason == AROUND
    }
}

impl Kind {
    /// Whether it is a mount that others lie in.
    pub(in super::super) fn is_tree(&self) -> bool {
        matches!(
            self,
            Self::ReadOnly
                | Self::ReadOnlyFrom(_)
                | Self::Writable
                | Self::WritableFrom(_)
                | Self::Tmpfs { .. }
                | Self::Dev
                | Self::Proc
        )
    }
}

impl Held<'_> {
    /// The writable mount around `path`, when it is inside one.
    fn around(&self, path: &Path) -> Option<&Path> {
        if covering(self.masks, path).is_some() {
            return None;
        }
        self.tree(path).filter(|tree| tree.kind == Kind::Writable).map(|tree| &*tree.destination)
    }

    fn is_writable(&self, path: &Path) -> bool {
        self.tree(path).is_some_and(|tree| tree.kind == Kind::Writable)
    }

    fn is_fresh(&self, path: &Path) -> bool {
        self.tree(path).is_some_and(Mount::is_fresh)
    }

    /// The tree that shows `path`.
    fn tree(&self, path: &Path) -> Option<&Mount> {
        let around = |mount: &&Mount| mount.kind.is_tree() && path.starts_with(&mount.destination);
        self.trees.iter().rev().find(around)
    }

    /// Holds `path`, and pins what is above it.
    fn hold(&mut self, path: &Path, kind: Kind, reason: &str) {
        let Some(root) = self.around(path).map(Path::to_path_buf) else { return };
        if path == root && kind == Kind::Pin {
            return;
        }
        self.pin_above(path, &root, PROTECTED);
        let entry = self.mounts.entry(path.to_path_buf());
        if kind == Kind::Pin {
            entry.or_insert_with(|| (kind, reason.into()));
        } else {
            entry.insert_entry((kind, reason.into()));
        }
    }

    /// Pins the directories above `path` below the mount `root`, whose own name is no name in it.
    fn pin_above(&mut self, path: &Path, root: &Path, what: &str) {
        let above = path.ancestors().skip(1).take_while(|it| it.starts_with(root) && *it != root);
        for above in above {
            self.mounts
                .entry(above.to_path_buf())
                .or_insert_with(|| (Kind::Pin, format!("cannot be renamed: {what} is in it")));
        }
    }

    /// Waits for `path`.
    fn wait_for(&mut self, path: &Path, kind: Kind, reason: &str) {
        // A denied link is among the masks itself; what is inside another mask is hidden with it.
        let hidden = path.parent().is_some_and(|above| covering(self.masks, above).is_some());
        if !hidden && (self.is_writable(path) || kind.is_mask() && self.is_fresh(path)) {
            self.awaited.entry(path.to_path_buf()).or_insert_with(|| (kind, reason.into()));
        }
    }

    fn repository(&mut self, repository: &Repository) {
        for pin in &repository.pins {
            self.hold(pin, Kind::Pin, "cannot be renamed: git reads its settings in it");
        }
        let (common, own) = (&repository.common_dir, &repository.git_dir);
        if repository.dot_git != *own && repository.dot_git != *common {
            let reason = "says where the git directory is";
            self.hold(&repository.dot_git, Kind::Protect, reason);
        }
        for name in &repository.names {
            let reason = "makes the host run code later";
            let path = name.path.as_path();
            if name.present != Present::Absent {
                self.hold(path, Kind::Protect, reason);
            }
            // Also of what is there: another run may have made it, and removes it at its end.
            let empty = "absent, it stands there empty for the time of the run";
            match (name.present, name.group) {
                (Present::Absent | Present::Directory, Group::Hooks) => {
                    self.wait_for(path, Kind::EmptyDirectory, empty);
                }
                (Present::Absent | Present::File, Group::Settings)
                    if stands_empty(repository, path) =>
                {
                    self.wait_for(path, Kind::EmptyFile, empty);
                }
                (Present::Absent, Group::Pointer) if leads_away(path) => {
                    self.wait_for(path, Kind::Forbidden, "would lead to settings elsewhere");
                }
                (Present::Absent, _) => {
                    self.wait_for(path, Kind::Protect, "made, the host would run what it says");
                }
                (Present::File | Present::Directory | Present::Odd, _) => {}
            }
        }
        if repository.kind != Repo::Foreign {
            let reason = "a new linked worktree points to its own repository alone";
            self.wait_for(&common.join("worktrees"), Kind::Worktrees, reason);
        }
    }

    /// The `protect` list: what is there.
    fn protect(&mut self, facts: &Facts) {
        for path in &facts.protected {
            let reason = format!("protected: {}", path.wish);
            for link in &path.links {
                self.hold(link, Kind::Pin, &reason);
            }
            if path.missing == 0 && path.trouble.is_none() {
                self.hold(&path.physical, Kind::Protect, &reason);
            }
        }
    }

    /// `readOnlyPaths`, which are protections already: what is above them.
    fn read_only(&mut self, facts: &Facts) {
        for path in facts.read_only.iter().filter(|it| it.missing == 0 && it.trouble.is_none()) {
            if let Some(root) = self.around(&path.physical).map(Path::to_path_buf) {
                self.pin_above(&path.physical, &root, PROTECTED);
            }
        }
    }

    /// A denied path that goes through a link inside something writable, or where files are fresh: the
    /// name is looked at again when the link is replaced, and what it leads to then is hidden.
    fn links(&mut self, facts: &Facts) {
        let mut links: Vec<(&Path, &str, bool)> = Vec::new();
        for denied in &facts.denied {
            let (physical, is_directory) = match &denied.found {
                Found::Directory(physical) => (physical, true),
                Found::File { physical, .. } => (physical, false),
                Found::Absent => match denied.places.last() {
                    Some(end) => (&end.path, false),
                    None => continue,
                },
                Found::Unreachable | Found::Unknown(_) => continue,
            };
            if *physical != denied.spelled {
                links.push((&denied.spelled, &denied.wish, is_directory));
            }
        }
        // So that the order of the lists never shows.
        sorted::by(&mut links, Ord::cmp);
        for (spelled, wish, is_directory) in links {
            let kind = if is_directory { Kind::MaskDirectory } else { Kind::MaskFile };
            self.wait_for(spelled, kind, &format!("denied: {wish}, wherever it leads"));
        }
    }

    /// What the inside could take a hidden name away with, so that the next start finds the secret by
    /// another: the directories around it, and the links that lead to it with those around them. What is
    /// absent has nothing to be taken: the watch pins what is around it when it appears.
    fn hidden(&mut self, facts: &Facts) {
        let masks = self.masks;
        let mut seen: BTreeSet<&OsStr> = BTreeSet::new();
        for path in masks.iter().map(|mask| mask.destination.as_path()) {
            // Thousands of names may lie in one directory.
            if path.parent().is_some_and(|above| seen.insert(above.as_os_str()))
                && let Some(root) = self.root_of(path)
            {
                self.pin_above(path, &root, HIDDEN);
            }
        }
        let links = facts.denied.iter().flat_map(|denied| {
            let links = denied.places.iter();
            links
                .filter(|place| matches!(place.role, Role::Last | Role::Way(_)))
                .map(|place| place.path.as_path())
        });
        for link in links {
            if let Some(root) = self.root_of(link)
                && link.parent().is_some_and(|above| covering(masks, above).is_none())
            {
                self.pin_above(link, &root, HIDDEN);
                let reason = "cannot be renamed: a symbolic link to something denied";
                self.wait_for(link, Kind::Pin, reason);
            }
        }
    }

    /// The writable mount in which the name `path` could be changed.
    fn root_of(&self, path: &Path) -> Option<PathBuf> {
        let above = path.parent()?;
        let shows = |mount: &&Mount| {
            (mount.kind.is_tree() || mount.kind == Kind::Protect)
                && above.starts_with(&mount.destination)
        };
        let tree = self.trees.iter().rev().find(shows)?;
        (tree.kind == Kind::Writable).then(|| tree.destination.clone())
    }
}
