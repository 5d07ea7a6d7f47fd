//! Sockets and named pipes (law 6): those that are allowed stay reachable, those that the jail would
//! show otherwise are hidden, and so are the ports that a closed network lets through.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use super::super::facts::Facts;
use super::super::sockets::{NIX_DAEMON, State};
use super::super::sorted;
use super::super::spec::Spec;
use super::{Kind, Mount, PlanError, covering, in_replaced_tree, printable, shown};

/// The most ports of `localPorts`: each takes two of the launcher's descriptors.
const PORTS: usize = 64;

/// The ports that are handed through, in order, each once.
pub(super) fn ports(
    spec: &Spec,
    network: bool,
    notes: &mut Vec<String>,
) -> Result<Vec<u16>, PlanError> {
    let ports = sorted::set(spec.local_ports.iter().copied());
    if ports.len() > PORTS {
        return Err(PlanError::Ports(ports.len()));
    }
    if network && !ports.is_empty() {
        notes.push(
            "`localPorts` has no effect while `network` is true: every port of the host is \
             reachable"
                .into(),
        );
        return Ok(Vec::new());
    }
    for port in &ports {
        notes.push(format!(
            "TCP port {port} of the host's loopback is reachable inside, at 127.0.0.1 and ::1"
        ));
    }
    Ok(ports.into_iter().collect())
}

/// Shows the allowed sockets where the mounts so far do not, and returns the physical paths of all
/// that are reachable.
pub(super) fn allow(
    facts: &Facts,
    masks: &[Mount],
    mounts: &mut Vec<Mount>,
    notes: &mut Vec<String>,
) -> Result<BTreeSet<PathBuf>, PlanError> {
    let mut reachable = BTreeSet::new();
    let mut links = Vec::new();
    let writable: Vec<PathBuf> = mounts
        .iter()
        .filter(|mount| mount.kind == Kind::Writable)
        .map(|mount| mount.destination.clone())
        .collect();
    for allowed in &facts.sockets.allowed {
        let path = &allowed.path;
        let refuse = |because| PlanError::Socket { wish: path.wish.clone(), because };
        for link in &path.links {
            let directory = link.parent().unwrap_or(link);
            if let Some(root) = writable.iter().find(|root| directory.starts_with(root)) {
                return Err(refuse(format!(
                    "`{}` is a symbolic link inside `{}`, which an earlier start could write: \
                     name its target",
                    shown(link),
                    shown(root)
                )));
            }
        }
        let spelled = shown(&path.spelled);
        match &allowed.state {
            State::There => {}
            State::Other(because) => return Err(refuse(because.clone())),
            State::Absent => {
                let shows = top(mounts, &path.physical).is_some_and(|it| it.kind.is_bind());
                notes.push(if shows && writable.iter().any(|it| path.physical.starts_with(it)) {
                    format!("the socket `{spelled}` is not there yet: it is reachable when it is")
                } else {
                    format!(
                        "the socket `{spelled}` is not there: start its server before the jail, \
                         a later one is not reachable"
                    )
                });
                continue;
            }
        }
        if let Some(mask) = covering(masks, &path.physical) {
            notes.push(format!(
                "the socket `{spelled}` is allowed and stays hidden: `{}` is denied",
                shown(&mask.destination)
            ));
            continue;
        }
        if path.physical == Path::new(NIX_DAEMON) {
            notes.push(
                "the Nix daemon's socket is reachable: the daemon acts outside the jail and has \
                 the network"
                    .into(),
            );
        }
        reachable.insert(path.physical.clone());
        // Where the inside may write the name stays the host's, and a server can make it anew.
        if !writable.iter().any(|root| path.physical.starts_with(root)) {
            mounts.push(Mount {
                destination: path.physical.clone(),
                kind: Kind::ReadOnly,
                reason: format!("an allowed socket: {}", path.wish),
            });
        }
        links.extend(path.links.iter().zip(&allowed.targets));
    }
    if let Some(authority) = &facts.sockets.authority
        && covering(masks, authority).is_none()
        && !top(mounts, authority).is_some_and(|mount| mount.kind.is_bind())
    {
        mounts.push(Mount {
            destination: authority.clone(),
            kind: Kind::ReadOnly,
            reason: "the keys of the X server whose socket is allowed".into(),
        });
    }
    // A link that lies where the jail has a tree of its own is made there again.
    for (link, target) in links {
        let there = mounts.iter().any(|mount| {
            link.starts_with(&mount.destination) && {
                mount.kind.is_bind() && mount.destination != Path::new("/")
            }
        });
        if in_replaced_tree(link) && !there && !mounts.iter().any(|it| it.destination == *link) {
            mounts.push(Mount {
                destination: link.clone(),
                kind: Kind::Link(target.clone()),
                reason: "the way to an allowed socket".into(),
            });
        }
    }
    Ok(reachable)
}

/// Where an overlay cuts the sockets of services, those to come too. The price is that files there are
/// as they were when they were first looked at, so it is not all of `/var`. Where something is mounted
/// in it, nothing is asked for: there is no overlay then, and what was found is masked.
pub(super) fn anchors(facts: &Facts) -> Vec<(PathBuf, String)> {
    let trees = facts.sockets.trees.iter().filter(|path| facts.mounts.below(path).is_empty());
    trees.map(|path| (path.clone(), "services keep sockets in it, which are cut".into())).collect()
}

/// The masks over what the mounts would show of the host's sockets and named pipes. Below `anchors`
/// there are overlays, through which nothing is reached but by what is mounted on them.
pub(super) fn hide(
    facts: &Facts,
    masks: &[Mount],
    mounts: &[Mount],
    reachable: &BTreeSet<PathBuf>,
    anchors: &[PathBuf],
    notes: &mut Vec<String>,
) -> Vec<Mount> {
    let mut hidden: Vec<Mount> = Vec::new();
    let config = facts.config.as_ref().map(|config| config.physical.as_path());
    let visible = |path: &Path| {
        let shows = |mount: &Mount| {
            let cut = |anchor: &PathBuf| {
                path.starts_with(anchor) && !mount.destination.starts_with(anchor)
            };
            mount.kind.is_bind()
                && (!anchors.iter().any(cut) || config.is_some_and(|own| path.starts_with(own)))
        };
        top(mounts, path).is_some_and(shows)
            && covering(masks, path).is_none()
            // Services that look names up: they are on the list of `/run` for that.
            && !facts.run.iter().any(|entry| path.starts_with(&entry.path))
    };
    for directory in &facts.sockets.directories {
        // What the jail shows below it would go with it.
        let inside = |path: &Path| path.starts_with(directory);
        let needed = reachable.iter().any(|socket| inside(socket))
            || mounts
                .iter()
                .any(|mount| mount.destination != *directory && inside(&mount.destination))
            || facts.program.as_deref().is_some_and(inside)
            || inside(&facts.launcher)
            || facts.run.iter().any(|entry| inside(&entry.path));
        if visible(directory) && !needed {
            hidden.push(Mount {
                destination: directory.clone(),
                kind: Kind::MaskDirectory,
                reason: "a directory of the host's sockets; `allowSockets` keeps one".into(),
            });
        }
    }
    for path in &facts.sockets.found {
        if visible(path) && !reachable.contains(path) && covering(&hidden, path).is_none() {
            hidden.push(Mount {
                destination: path.clone(),
                kind: Kind::MaskFile,
                reason: "a socket or named pipe of the host; `allowSockets` keeps it".into(),
            });
        }
    }
    for (place, because) in &facts.sockets.unfinished {
        notes.push(format!(
            "the search for sockets and named pipes ended at `{}` ({because}): those beyond are \
             reachable, name a smaller workspace or fewer writable paths",
            shown(place)
        ));
    }
    hidden
}

/// Whether a variable that names sockets stays: `None` when it names none.
pub(super) fn stays(facts: &Facts, reachable: &BTreeSet<PathBuf>, name: &OsStr) -> Option<bool> {
    let mut named = facts.sockets.variables.iter().filter(|(known, _)| known == name).peekable();
    named.peek()?;
    Some(named.any(|(_, socket)| reachable.contains(socket)))
}

/// The last mount over a path.
fn top<'a>(mounts: &'a [Mount], path: &Path) -> Option<&'a Mount> {
    mounts.iter().rev().find(|mount| {
        !matches!(mount.kind, Kind::Seal | Kind::Protect | Kind::Pin)
            && path.starts_with(&mount.destination)
    })
}

/// The sentence of [`PlanError::Socket`].
pub(super) fn refusal(wish: &str, because: &str) -> String {
    format!("`allowSockets`: `{}`: {because}", printable(wish))
}
