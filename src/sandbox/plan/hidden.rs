//! What holds each hidden name (law 2). By preference a read-only overlay on a directory around it,
//! whose top layer has the name: it holds whatever the host does. Where the inside may write, where
//! files must be fresh, and where the kernel refuses an overlay, a mount on what is there, which the
//! watch puts back.

use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::super::facts::{Denied, Facts, Found, Role};
use super::super::sorted;
use super::around::Around;
use super::{Create, Kind, Mount, PlanError, covering, in_replaced_tree, lies_in, order, shown};

/// A read-only overlay that the launcher makes in its own namespace before bubblewrap.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Overlay {
    /// The directory that it lies on, and whose content is its lower layer.
    pub anchor: PathBuf,
    /// Why, in words.
    pub reason: String,
    /// What its top layer has; none of them inside another.
    pub names: Vec<Name>,
    /// What it has besides: names that a mount lies over and that are held there. When the host moves a
    /// directory, a look-up of its new name takes the kernel's entry for the old one away, with the
    /// mounts on it; then the old name shows this overlay.
    pub under: Vec<Name>,
}

/// A name in the top layer of an overlay.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Name {
    /// The physical path, below the anchor.
    pub path: PathBuf,
    /// What is seen there.
    pub kind: NameKind,
    /// Whether a symbolic link of the host stands there; what it leads to is hidden as well.
    pub is_link: bool,
    /// Why, in words.
    pub reason: String,
}

/// What is seen at a name that an overlay holds.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum NameKind {
    /// An empty read-only directory.
    Directory,
    /// An empty read-only regular file.
    File,
    /// Nothing, whatever appears there.
    Absent,
    /// The symbolic link as it was at the start.
    Link(PathBuf),
}

/// What the launcher shows over an overlay as it is on the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rebind {
    /// The physical path.
    pub path: PathBuf,
    /// Why, in words.
    pub reason: String,
}

/// A place that has to be held, whoever holds it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Wanted {
    path: PathBuf,
    kind: NameKind,
    missing: usize,
    is_link: bool,
    anchor: Option<PathBuf>,
    reason: String,
}

/// How everything is held.
#[derive(Debug, Default)]
pub(super) struct Held {
    pub(super) overlays: Vec<Overlay>,
    pub(super) rebinds: Vec<Rebind>,
    pub(super) masks: Vec<Mount>,
    pub(super) awaited: Vec<Mount>,
}

/// Every place that has to be held, outermost first, none inside another hidden one.
pub(super) fn wanted(facts: &Facts, notes: &mut Vec<String>) -> Result<Vec<Wanted>, PlanError> {
    // A wish can stand for several places (`~`); a name that is there in one of them is a name.
    let is_name = |wish: &str| {
        let there = |denied: &&Denied| !matches!(denied.found, Found::Absent);
        facts.denied.iter().filter(there).any(|denied| denied.wish == wish)
    };
    let mut all = Vec::new();
    for denied in &facts.denied {
        // A pattern hides nothing there, and whoever wrote one believes that it does.
        if denied.key != "denyReadGlobs"
            && denied.wish.contains(['*', '?'])
            && !is_name(&denied.wish)
        {
            return Err(PlanError::Pattern { key: denied.key, wish: denied.wish.clone() });
        }
        places(denied, &mut all, notes)?;
    }
    // The reason takes part so that the order of the lists never shows.
    sorted::by(&mut all, |(depth, a), (other, b)| {
        depth
            .cmp(other)
            .then_with(|| a.path.as_os_str().cmp(b.path.as_os_str()))
            .then_with(|| a.kind.cmp(&b.kind))
            .then_with(|| a.reason.cmp(&b.reason))
    });
    let mut hidden = Around::default();
    let mut last: Option<PathBuf> = None;
    let mut kept = Vec::with_capacity(all.len());
    for (_, it) in all {
        // What is equal comes one after the other.
        if last.as_ref().is_some_and(|last| last.as_os_str() == it.path.as_os_str())
            || hidden.covers(&it.path)
        {
            continue;
        }
        if matches!(it.kind, NameKind::Directory | NameKind::File) {
            hidden.insert(&it.path);
        }
        last = Some(it.path.clone());
        kept.push(it);
    }
    Ok(kept)
}

/// Adds the places of a denied path, each with its number of components.
fn places(
    denied: &Denied,
    all: &mut Vec<(usize, Wanted)>,
    notes: &mut Vec<String>,
) -> Result<(), PlanError> {
    let spelled = || shown(&denied.spelled);
    let kind = match &denied.found {
        Found::Directory(_) => NameKind::Directory,
        Found::File { links, .. } => {
            if *links > 1 {
                notes.push(format!(
                    "`{}` has {links} hard links: its other names are not hidden",
                    spelled()
                ));
            }
            NameKind::File
        }
        Found::Absent => NameKind::Absent,
        Found::Unreachable => {
            notes.push(format!(
                "`{}` is out of this user's reach, and so of the inside's",
                spelled()
            ));
            return Ok(());
        }
        Found::Unknown(because) => {
            return Err(PlanError::Denied {
                key: denied.key,
                wish: denied.wish.clone(),
                because: because.clone(),
            });
        }
    };
    for place in &denied.places {
        let own = ["/proc", "/dev"].iter().any(|own| lies_in(&place.path, Path::new(own)));
        // The jail's own file systems are there instead, and a mask would only be in their way.
        if place.path.as_os_str() == "/" || own && place.role == Role::End {
            return Err(PlanError::Denied {
                key: denied.key,
                wish: denied.wish.clone(),
                because: format!("it leads to `{}`, take it out", shown(&place.path)),
            });
        }
        if own {
            continue;
        }
        let (kind, reason) = match &place.role {
            Role::End if place.path.as_os_str() == denied.spelled.as_os_str() => {
                (kind.clone(), format!("denied: {}", denied.wish))
            }
            Role::End => (kind.clone(), format!("denied: {}, which leads here", denied.wish)),
            Role::Alias => (
                kind.clone(),
                format!("denied: {}, whose files are mounted here as well", denied.wish),
            ),
            Role::Last => (kind.clone(), format!("denied: {}, a symbolic link", denied.wish)),
            Role::Way(target) => (
                NameKind::Link(target.clone()),
                format!("a symbolic link on the way to the denied {}", denied.wish),
            ),
        };
        let wanted = Wanted {
            path: place.path.clone(),
            kind,
            missing: place.missing,
            is_link: matches!(place.role, Role::Last | Role::Way(_)),
            anchor: place.anchor.clone(),
            reason,
        };
        all.push((depth(&wanted.path), wanted));
    }
    Ok(())
}

/// The number of components of an absolute path. Counted as text: part by part is slow for thousands.
fn depth(path: &Path) -> usize {
    let parts = path.as_os_str().as_bytes().split(|byte| *byte == b'/');
    1 + parts.filter(|part| !part.is_empty() && *part != b".").count()
}

/// What is hidden and there now, as masks without a reason: under one of them there is nothing to show.
pub(super) fn present(wanted: &[Wanted]) -> Vec<Mount> {
    wanted
        .iter()
        .filter_map(|it| {
            let kind = match it.kind {
                NameKind::Directory => Kind::MaskDirectory,
                NameKind::File => Kind::MaskFile,
                NameKind::Absent | NameKind::Link(_) => return None,
            };
            Some(Mount { destination: it.path.clone(), kind, reason: String::new() })
        })
        .collect()
}

/// Chooses what holds each place, and where overlays lie besides: on the homes always, since an
/// overlay also cuts the host's sockets and pipes in it (law 6), and on `extra`, each with its reason.
/// `hidden` are the masks of [`present`].
pub(super) fn hold(
    facts: &Facts,
    wanted: Vec<Wanted>,
    hidden: &[Mount],
    mounts: &[Mount],
    create: &[Create],
    extra: &[(PathBuf, String)],
    notes: &mut Vec<String>,
) -> Held {
    let mut held = Held::default();
    let ground = Ground { facts, mounts, hidden };
    let mut refused: BTreeMap<PathBuf, String> = BTreeMap::new();
    let mut anchors: Vec<(PathBuf, String)> = facts
        .home_anchors
        .iter()
        .map(|home| {
            (
                home.clone(),
                "the home: what it has is shown by name, its sockets and pipes are cut".into(),
            )
        })
        .chain(extra.iter().cloned())
        .collect();
    let of_names =
        sorted::set(wanted.iter().filter_map(|it| Some(it.anchor.as_ref()?.as_os_str())));
    anchors.extend(
        of_names
            .into_iter()
            .map(|anchor| (anchor.into(), "it holds the denied names below by name".into())),
    );
    sorted::by(&mut anchors, |a, b| (depth(&a.0), &a.0).cmp(&(depth(&b.0), &b.0)));
    anchors.dedup_by(|later, first| later.0 == first.0);
    for (anchor, reason) in anchors {
        if held.overlays.iter().any(|it| anchor.starts_with(&it.anchor)) {
            continue;
        }
        match ground.trouble(&anchor) {
            None => {
                held.overlays.push(Overlay {
                    anchor,
                    reason,
                    names: Vec::new(),
                    under: Vec::new(),
                });
            }
            Some(because) => {
                let asked = facts.home_anchors.contains(&anchor)
                    || extra.iter().any(|(path, _)| *path == anchor);
                if asked && ground.writable(&anchor).is_none() {
                    notes.push(format!("no overlay lies on `{}`: {because}", shown(&anchor)));
                }
                refused.insert(anchor, because);
            }
        }
    }
    held.rebinds = rebinds(facts, &wanted, mounts, &held.overlays, hidden);

    let mut same: Option<(PathBuf, Holder)> = None;
    for it in wanted {
        // Names of one directory come one after the other, and have one answer.
        let directory = it.path.parent().unwrap_or(&it.path);
        let known = same.take().filter(|(last, _)| last.as_os_str() == directory.as_os_str());
        let holder = match &known {
            Some((_, holder)) => *holder,
            None => ground.holder(&it.path, &held),
        };
        same = match known {
            None if ground.is_one(directory, &held) => Some((directory.to_path_buf(), holder)),
            known => known,
        };
        let by_mount = match holder {
            Holder::Writable(mount) => {
                let around = mounts.get(mount).map_or(directory, |it| it.destination.as_path());
                Err(format!("it lies inside the writable `{}`", shown(around)))
            }
            Holder::Fresh(rebind) => {
                let around = held.rebinds.get(rebind).map_or(directory, |it| it.path.as_path());
                Err(format!("it lies inside `{}`, which stays fresh", shown(around)))
            }
            Holder::Overlay(number) => held.overlays.get_mut(number).ok_or_else(String::new),
            Holder::None => Err(match it.anchor.as_ref().and_then(|it| refused.get(it)) {
                Some(because) => because.clone(),
                None => "no overlay can lie around it".to_owned(),
            }),
        };
        match by_mount {
            Ok(overlay) => {
                let name = name_of(it, create);
                // Many names may lie in one directory that is not there.
                let same = |last: &Name| {
                    last.kind == NameKind::Absent && last.path.as_os_str() == name.path.as_os_str()
                };
                if name.kind != NameKind::Absent || !overlay.names.last().is_some_and(same) {
                    overlay.names.push(name);
                }
            }
            Err(because) => {
                let around = |overlay: &&mut Overlay| {
                    it.path != overlay.anchor && it.path.starts_with(&overlay.anchor)
                };
                if let Some(overlay) = held.overlays.iter_mut().find(around) {
                    overlay.under.push(name_of(it.clone(), create));
                }
                by_mounts(it, &because, &ground, &mut held, notes);
            }
        }
    }
    for overlay in &mut held.overlays {
        // Several absent paths may have the same first missing part.
        let mut names: Vec<(usize, Name)> =
            overlay.names.drain(..).map(|name| (depth(&name.path), name)).collect();
        sorted::by(&mut names, |(depth, a), (other, b)| {
            depth.cmp(other).then_with(|| a.path.as_os_str().cmp(b.path.as_os_str()))
        });
        overlay.names.extend(names.into_iter().map(|(_, name)| name));
        let mut seen = Around::default();
        overlay.names.retain(|name| {
            let fresh = !seen.covers(&name.path);
            if fresh && !matches!(name.kind, NameKind::Link(_)) {
                seen.insert(&name.path);
            }
            fresh
        });
        for name in overlay.names.iter().filter(|name| name.kind == NameKind::Absent) {
            notes.push(format!(
                "`{}` is absent and stays so inside, whatever appears on the host",
                shown(&name.path)
            ));
        }
    }
    held
}

/// Holds a place by a mount on what is there, now or as soon as it appears.
fn by_mounts(
    it: Wanted,
    because: &str,
    ground: &Ground<'_>,
    held: &mut Held,
    notes: &mut Vec<String>,
) {
    let kind = match &it.kind {
        // What it leads to is held; where the inside may write, and where files are fresh, the watch
        // follows the link.
        _ if it.is_link => {
            let followed = ground.writable(&it.path).or_else(|| ground.fresh(&it.path)).is_some();
            if ground.is_seen(&it.path) && !followed {
                notes.push(format!(
                    "`{}` is a symbolic link that cannot be held, as {because}: when it is pointed \
                     elsewhere, only what it leads to now is hidden; name its target",
                    shown(&it.path)
                ));
            }
            return;
        }
        NameKind::Directory => Kind::MaskDirectory,
        NameKind::File | NameKind::Absent | NameKind::Link(_) => Kind::MaskFile,
    };
    let absent = it.kind == NameKind::Absent;
    let mount = Mount {
        reason: format!("{}; by a mount, as {because}", it.reason),
        destination: it.path,
        kind,
    };
    if !absent {
        held.masks.push(mount);
    } else if ground.is_seen(&mount.destination) {
        notes.push(format!(
            "`{}` is absent: it is hidden as soon as it appears, as {because}",
            shown(&mount.destination)
        ));
        held.awaited.push(mount);
    }
}

/// A place as a name of an overlay.
fn name_of(it: Wanted, create: &[Create]) -> Name {
    let path = match it.kind {
        NameKind::Absent => first_missing(&it, create),
        _ => it.path,
    };
    Name { path, kind: it.kind, is_link: it.is_link, reason: it.reason }
}

/// What of an absent path will be missing when the launcher has made its directories.
fn first_missing(it: &Wanted, create: &[Create]) -> PathBuf {
    let mut missing = it.missing.max(1);
    let made = |path: &Path| create.iter().any(|made| lies_in(&made.path, path));
    while missing > 1 && it.path.ancestors().nth(missing - 1).is_some_and(made) {
        missing -= 1;
    }
    it.path.ancestors().nth(missing - 1).unwrap_or(&it.path).to_path_buf()
}

/// What over an overlay stays the host's own: everything that is bound for itself, and kli's
/// configuration. Where an overlay shows a file as it was first looked up, these are fresh.
fn rebinds(
    facts: &Facts,
    wanted: &[Wanted],
    mounts: &[Mount],
    overlays: &[Overlay],
    hidden: &[Mount],
) -> Vec<Rebind> {
    let mut found: Vec<Rebind> = Vec::new();
    let binds = mounts
        .iter()
        .filter(|mount| mount.kind.is_bind())
        .map(|mount| (mount.destination.clone(), mount.reason.clone()));
    let config = facts
        .config
        .iter()
        .filter(|config| config.trouble.is_none() && config.missing == 0)
        // What is denied in it is held by name, which counts more than that the rest is fresh.
        .filter(|config| !wanted.iter().any(|it| lies_in(&it.path, &config.physical)))
        .map(|config| (config.physical.clone(), "kli's configuration".to_owned()));
    // What is shown elsewhere and written there.
    let sources = mounts.iter().filter_map(|mount| match &mount.kind {
        Kind::WritableFrom(source) => Some((source.clone(), mount.reason.clone())),
        _ => None,
    });
    let mut all: Vec<(PathBuf, String)> = binds.chain(config).chain(sources).collect();
    sorted::by(&mut all, |a, b| {
        let depth = |it: &(PathBuf, String)| it.0.components().count();
        (depth(a), a).cmp(&(depth(b), b))
    });
    for (path, reason) in all {
        let over_overlay =
            overlays.iter().any(|it| path != it.anchor && path.starts_with(&it.anchor));
        // Inside something that stays as it is, it stays too, unless that is made read-only.
        let anew = mounts.iter().any(|mount| {
            mount.kind == Kind::Protect
                && path != mount.destination
                && path.starts_with(&mount.destination)
        }) && mounts
            .iter()
            .any(|mount| mount.kind == Kind::Writable && mount.destination == path);
        let there = found.iter().any(|it| path.starts_with(&it.path));
        let is_hidden = covering(hidden, &path).is_some();
        if !is_hidden && (over_overlay && !there || anew) && !found.iter().any(|it| it.path == path)
        {
            found.push(Rebind { path, reason });
        }
    }
    found
}

/// What a place lies in, by its number in the list.
#[derive(Debug, Clone, Copy)]
enum Holder {
    /// A writable mount.
    Writable(usize),
    /// What stays as it is on the host.
    Fresh(usize),
    /// An overlay.
    Overlay(usize),
    /// None of these.
    None,
}

struct Ground<'a> {
    facts: &'a Facts,
    mounts: &'a [Mount],
    hidden: &'a [Mount],
}

impl Ground<'_> {
    /// What decides how a place is held.
    fn holder(&self, path: &Path, held: &Held) -> Holder {
        let writable =
            |mount: &Mount| mount.kind == Kind::Writable && path.starts_with(&mount.destination);
        if let Some(number) = self.mounts.iter().position(writable) {
            return Holder::Writable(number);
        }
        let fresh = |rebind: &Rebind| path.starts_with(&rebind.path);
        if let Some(number) = held.rebinds.iter().position(fresh) {
            return Holder::Fresh(number);
        }
        let below = |overlay: &Overlay| path != overlay.anchor && path.starts_with(&overlay.anchor);
        held.overlays.iter().position(below).map_or(Holder::None, Holder::Overlay)
    }

    /// Whether all names in a directory have the same holder: nothing that can be one begins in it, nor
    /// with it.
    fn is_one(&self, directory: &Path, held: &Held) -> bool {
        let writable = self.mounts.iter().filter(|mount| mount.kind == Kind::Writable);
        let mut starts = writable
            .map(|mount| &mount.destination)
            .chain(held.rebinds.iter().map(|rebind| &rebind.path))
            .chain(held.overlays.iter().map(|overlay| &overlay.anchor));
        !starts.any(|start| start != directory && start.starts_with(directory))
    }

    /// The writable mount around a path.
    fn writable(&self, path: &Path) -> Option<&Mount> {
        self.mounts
            .iter()
            .find(|mount| mount.kind == Kind::Writable && path.starts_with(&mount.destination))
    }

    fn fresh(&self, path: &Path) -> Option<&Mount> {
        self.mounts.iter().find(|mount| mount.is_fresh() && path.starts_with(&mount.destination))
    }

    /// Whether the host's files are seen at a path: what the last mount around it shows.
    fn is_seen(&self, path: &Path) -> bool {
        self.mounts
            .iter()
            .rev()
            .find(|mount| {
                !matches!(mount.kind, Kind::Seal | Kind::Protect | Kind::Pin)
                    && path.starts_with(&mount.destination)
            })
            .is_some_and(|mount| mount.kind.is_bind())
    }

    /// What stands against an overlay.
    fn trouble(&self, anchor: &Path) -> Option<String> {
        if anchor == Path::new("/") {
            return Some("it is the root, which holds everything else".into());
        }
        if let Some(mount) = self.writable(anchor) {
            return Some(format!("it lies inside the writable `{}`", shown(&mount.destination)));
        }
        if let Some((_, words)) = self.facts.refused.iter().find(|(path, _)| path == anchor) {
            return Some(format!("the kernel refuses an overlay on `{}` ({words})", shown(anchor)));
        }
        if let Some(mount) = self.fresh(anchor) {
            return Some(format!(
                "it lies inside `{}`, which stays fresh",
                shown(&mount.destination)
            ));
        }
        let home = self.facts.home_anchors.iter().any(|home| home == anchor);
        let fresh = ["/dev", "/etc", "/proc", "/sys"].iter().any(|tree| anchor.starts_with(tree));
        if fresh || in_replaced_tree(anchor) && !home {
            return Some("it lies where no overlay is made".into());
        }
        if let Some(point) = self.facts.mounts.below(anchor).first() {
            return Some(format!(
                "`{}` is mounted in `{}`, of which the kernel then makes no overlay",
                shown(point),
                shown(anchor)
            ));
        }
        if covering(self.hidden, anchor).is_some() {
            return Some("it is hidden itself".into());
        }
        (!self.is_seen(anchor)).then(|| "the jail has a tree of its own there".into())
    }
}

/// Sorts masks as [`super::order`] does.
pub(super) fn sort(mounts: &mut Vec<Mount>) {
    sorted::by(mounts, |a, b| order(a).cmp(&order(b)).then_with(|| a.reason.cmp(&b.reason)));
}
