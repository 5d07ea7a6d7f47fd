//! `readOnlyPaths`: read-only even inside something writable, and bound again where they lie in a
//! tree that the jail replaces. What is more special wins: a writable path inside one stays writable,
//! and where both lists name the same path it is read-only.

use std::path::Path;

use super::super::facts::Facts;
use super::{Kind, Mount, PlanError, covering, in_replaced_tree, shown};

/// The mounts for trees that the jail replaces; they come before what is writable in them.
pub(super) fn bound_again(
    facts: &Facts,
    masks: &[Mount],
    notes: &mut Vec<String>,
) -> Result<Vec<Mount>, PlanError> {
    let mut mounts = Vec::new();
    for path in &facts.read_only {
        let refuse = |because| Err(PlanError::ReadOnly { wish: path.wish.clone(), because });
        if let Some(trouble) = &path.trouble {
            return refuse(trouble.clone());
        }
        let physical = path.physical.as_path();
        if ["/proc", "/sys", "/dev"].iter().any(|tree| physical.starts_with(tree)) {
            return refuse(format!(
                "it leads to `{}`, which is read-only already: take it out",
                shown(physical)
            ));
        }
        if let Some(mask) = covering(masks, physical) {
            notes.push(format!(
                "`{}` is read-only by the list and stays hidden: `{}` is denied",
                shown(&path.spelled),
                shown(&mask.destination)
            ));
            continue;
        }
        if !in_replaced_tree(physical) {
            continue;
        }
        let whole = ["/run", "/tmp"].iter().any(|tree| physical == Path::new(tree))
            || facts.runtime.as_ref().is_some_and(|runtime| runtime.starts_with(physical));
        if whole || physical.starts_with("/run/kli") {
            return refuse(
                "the jail has one of its own instead of the host's, which holds sockets: name what \
                 is needed below it"
                    .into(),
            );
        }
        if path.missing > 0 {
            return refuse("it does not exist: create it, or take it out".into());
        }
        mounts.push(Mount {
            destination: physical.to_path_buf(),
            kind: Kind::ReadOnly,
            reason: format!("read-only: {}", path.wish),
        });
    }
    super::hidden::sort(&mut mounts);
    mounts.dedup_by(|later, first| later.destination == first.destination);
    Ok(mounts)
}

/// Says of each protected file that it can be written by another name: one mount covers one name.
pub(super) fn linked(facts: &Facts, mounts: &[&[Mount]], notes: &mut Vec<String>) {
    for (path, names) in &facts.linked {
        let inside = |kind: Kind| {
            mounts
                .iter()
                .copied()
                .flatten()
                .any(|mount| mount.kind == kind && path.starts_with(&mount.destination))
        };
        if inside(Kind::Protect) && !inside(Kind::MaskFile) && !inside(Kind::MaskDirectory) {
            notes.push(format!(
                "`{}` is read-only and has {names} hard links: by a name in something writable the \
                 inside can write it (`find . -samefile FILE` finds them; a copy in its place has one)",
                shown(path)
            ));
        }
    }
}

/// The protections inside what is writable, and what becomes one when it appears.
pub(super) fn protected(
    facts: &Facts,
    masks: &[Mount],
    mounts: &[Mount],
    notes: &mut Vec<String>,
) -> (Vec<Mount>, Vec<Mount>) {
    let (mut protections, mut awaited) = (Vec::new(), Vec::new());
    for path in &facts.read_only {
        let physical = path.physical.as_path();
        let Some(around) = mounts
            .iter()
            .find(|mount| mount.kind == Kind::Writable && physical.starts_with(&mount.destination))
        else {
            continue;
        };
        if covering(masks, physical).is_some() {
            continue;
        }
        if let Some(link) = path.links.iter().find(|link| link.starts_with(&around.destination)) {
            notes.push(format!(
                "`{}` is a symbolic link inside the writable `{}`: only what it leads to now is \
                 read-only; name its target",
                shown(link),
                shown(&around.destination)
            ));
        }
        let mount = Mount {
            destination: physical.to_path_buf(),
            kind: Kind::Protect,
            reason: format!(
                "read-only: {}; by a mount, as it lies inside the writable `{}`",
                path.wish,
                shown(&around.destination)
            ),
        };
        if path.missing > 0 {
            notes.push(format!(
                "`{}` is absent: it is made read-only as soon as it appears",
                shown(physical)
            ));
            awaited.push(mount);
        } else {
            protections.push(mount);
        }
    }
    for list in [&mut protections, &mut awaited] {
        super::hidden::sort(list);
        list.dedup_by(|later, first| later.destination == first.destination);
    }
    (protections, awaited)
}
