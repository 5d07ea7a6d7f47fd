//! What is writable: the workspace, the listed paths, the state directory. Nothing that the inside
//! can have planted below one of them decides what becomes writable at the next start (law 16).

use std::path::{Path, PathBuf};

use super::super::facts::{Facts, Writable};
use super::super::sorted;
use super::super::spec::{Base, Spec, caches};
use super::{Create, Kind, Mount, PlanError, covering, shown};

/// The workspace and everything else that is writable, outermost first.
pub(super) fn mounts(
    spec: &Spec,
    facts: &Facts,
    masks: &[Mount],
    create: &mut Vec<Create>,
    notes: &mut Vec<String>,
) -> Result<Vec<Mount>, PlanError> {
    let mut mounts = vec![Mount {
        destination: facts.workspace.clone(),
        kind: Kind::Writable,
        reason: "the workspace".into(),
    }];
    // Where the inside of this or an earlier start can have planted a link (law 16).
    let mut roots = vec![facts.workspace.clone()];
    roots.extend(facts.writable.iter().map(|path| path.physical.clone()));
    // What most specifications make writable may have been so at a start with another one.
    roots.extend(facts.state.as_ref().map(|state| state.physical.clone()));
    for home in &facts.physical_homes {
        roots.extend(caches().map(|(base, below)| match base {
            Base::Xdg(xdg) => home.join(xdg.below_home().unwrap_or_default()).join(below),
            _ => home.join(below),
        }));
    }
    let state = facts.state.as_ref().filter(|_| spec.state_dir);

    for path in &facts.writable {
        let refuse = |because| PlanError::Writable { wish: path.wish.clone(), because };
        usable(path, facts, &roots).map_err(refuse)?;
        if let Some(mask) = covering(masks, &path.physical) {
            notes.push(format!(
                "`{}` is writable by the list and stays hidden: `{}` is denied",
                shown(&path.spelled),
                shown(&mask.destination)
            ));
            continue;
        }
        if path.missing > 0 {
            if path.physical.starts_with(&facts.workspace) {
                continue;
            }
            create.push(Create { path: path.physical.clone(), missing: path.missing });
        }
        mounts.push(Mount {
            destination: path.physical.clone(),
            kind: Kind::Writable,
            reason: format!("writable: {}", path.wish),
        });
    }
    if let Some(state) = state {
        let refuse = |because| PlanError::State { path: state.spelled.clone(), because };
        usable(state, facts, &roots).map_err(refuse)?;
        if !state.directory {
            return Err(refuse("it is no directory: remove it, or set `stateDir` to false".into()));
        }
        if let Some(mask) = covering(masks, &state.physical) {
            return Err(refuse(format!(
                "it lies inside the denied path `{}`: set `stateDir` to false, or deny less",
                shown(&mask.destination)
            )));
        }
        if state.missing > 0 {
            create.push(Create { path: state.physical.clone(), missing: state.missing });
        }
        mounts.push(Mount {
            destination: state.physical.clone(),
            kind: Kind::Writable,
            reason: "kli's state, so that sessions survive".into(),
        });
    }
    sorted::by(create, |a, b| a.path.cmp(&b.path));
    super::hidden::sort(&mut mounts);
    // What lies inside another writable path is writable through it, unless something between is
    // read-only.
    let mut outermost: Vec<Mount> = Vec::new();
    for mount in mounts {
        let through = |above: &Mount| {
            mount.destination.starts_with(&above.destination)
                && !facts.read_only.iter().any(|path| {
                    path.physical.starts_with(&above.destination)
                        && mount.destination != path.physical
                        && mount.destination.starts_with(&path.physical)
                })
        };
        if !outermost.iter().any(through) {
            outermost.push(mount);
        }
    }
    Ok(outermost)
}

/// Whether a path can be made writable, `Err` with the sentence when it cannot.
fn usable(path: &Writable, facts: &Facts, roots: &[PathBuf]) -> Result<(), String> {
    if let Some(trouble) = &path.trouble {
        return Err(trouble.clone());
    }
    for link in &path.links {
        let directory = link.parent().unwrap_or(link);
        if let Some(root) = roots.iter().find(|root| directory.starts_with(root)) {
            return Err(format!(
                "`{}` is a symbolic link inside `{}`, which an earlier start could write: \
                 replace it with a directory, or name its target",
                shown(link),
                shown(root)
            ));
        }
    }
    let physical = &path.physical;
    if let Some(config) = facts.config.as_ref().filter(|config| config.trouble.is_none())
        && physical.starts_with(&config.physical)
    {
        return Err(format!(
            "it belongs to kli's configuration `{}`, which is never writable: take it out",
            shown(&config.physical)
        ));
    }
    if ["/proc", "/sys", "/dev"].iter().any(|tree| physical.starts_with(tree)) {
        return Err(format!("it leads to `{}`, which is never writable", shown(physical)));
    }
    if ["/", "/run", "/home"].iter().any(|tree| physical == Path::new(tree)) {
        return Err(format!("it leads to `{}`: name what is needed below it", shown(physical)));
    }
    if let Some(home) =
        facts.physical_homes.iter().find(|home| home.starts_with(physical) && *home != physical)
    {
        return Err(format!(
            "it contains the home `{}`: name what is needed below it",
            shown(home)
        ));
    }
    let existing = physical.ancestors().nth(path.missing).unwrap_or(physical);
    if let Some(home) = facts
        .physical_homes
        .iter()
        .find(|home| physical.starts_with(home) && !existing.starts_with(home))
    {
        return Err(format!(
            "the home `{}` does not exist: create it, or set HOME to the one that does",
            shown(home)
        ));
    }
    let below_home = |home: &PathBuf| path.spelled.starts_with(home) || physical.starts_with(home);
    if path.missing > 0
        && !facts.homes.iter().any(below_home)
        && !facts.physical_homes.iter().any(below_home)
        && !physical.starts_with(&facts.workspace)
    {
        return Err(
            "it does not exist, and only below the home are directories created: create it, or \
             take it out"
                .into(),
        );
    }
    Ok(())
}

/// What keeps kli's configuration directory read-only when something writable contains it: the next
/// start trusts it. A directory above it that could be renamed would take it away and leave room for
/// another, so each of them is a mount of its own, which cannot be.
pub(super) fn protected_config(
    facts: &Facts,
    masks: &[Mount],
    mounts: &[Mount],
    create: &mut Vec<Create>,
) -> Result<Vec<Mount>, PlanError> {
    let Some(config) = &facts.config else { return Ok(Vec::new()) };
    let around = |path: &Path| {
        mounts
            .iter()
            .rev()
            .find(|mount| mount.kind == Kind::Writable && path.starts_with(&mount.destination))
    };
    let refuse = |because| PlanError::Config { path: config.spelled.clone(), because };
    for link in &config.links {
        if let Some(mount) = around(link.parent().unwrap_or(link)) {
            return Err(refuse(format!(
                "`{}` is a symbolic link inside `{}`, which is writable: replace it with a \
                 directory, or make less writable",
                shown(link),
                shown(&mount.destination)
            )));
        }
    }
    let Some(mount) = around(&config.physical) else { return Ok(Vec::new()) };
    if covering(masks, &config.physical).is_some() {
        return Ok(Vec::new());
    }
    if let Some(trouble) = &config.trouble {
        return Err(refuse(trouble.clone()));
    }
    if config.missing > 0 {
        create.push(Create { path: config.physical.clone(), missing: config.missing });
    }
    let mut protected: Vec<Mount> = config
        .physical
        .ancestors()
        .skip(1)
        .take_while(|above| *above != mount.destination)
        .map(|above| Mount {
            destination: above.to_path_buf(),
            kind: Kind::Pin,
            reason: "cannot be renamed: kli's configuration is in it".into(),
        })
        .collect();
    protected.reverse();
    protected.push(Mount {
        destination: config.physical.clone(),
        kind: Kind::Protect,
        reason: "kli's configuration stays read-only inside a writable path".into(),
    });
    Ok(protected)
}
