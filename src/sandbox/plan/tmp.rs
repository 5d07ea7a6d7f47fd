//! Where a `/tmp` on disk lies (`tmp`).

use std::path::PathBuf;

use super::super::facts::Facts;
use super::{Kind, Mount, PlanError, covering, shown};

/// The name of the directory that is `/tmp` inside, in the directory of the run. That one stays
/// closed to others, while this one has the mode that programs expect.
pub(in super::super) const INNER: &str = "tmp";

/// Puts it in the place of the one in memory, and returns the directory to make.
pub(super) fn place(
    facts: &Facts,
    masks: &[Mount],
    writable: &[Mount],
    mounts: &mut [Mount],
) -> Result<Option<PathBuf>, PlanError> {
    let Some(wished) = &facts.given.tmp else { return Ok(None) };
    let parent = &wished.parent;
    let refuse = |because| PlanError::Tmp { path: parent.wish.clone(), because };
    let elsewhere = "set TMPDIR to another directory";
    if let Some(trouble) = &parent.trouble {
        return Err(refuse(format!("{trouble}: {elsewhere}")));
    }
    if parent.missing > 0 || !parent.directory {
        return Err(refuse(format!("it is no directory: {elsewhere}, or unset it")));
    }
    if let Some(mask) = covering(masks, &parent.physical) {
        return Err(refuse(format!(
            "it lies inside the denied path `{}`: {elsewhere}",
            shown(&mask.destination)
        )));
    }
    // Whoever can rename its name decides what the host removes at the end (law 16).
    let around = |mount: &&Mount| {
        mount.kind == Kind::Writable && parent.physical.starts_with(&mount.destination)
    };
    if let Some(mount) = writable.iter().find(around) {
        return Err(refuse(format!(
            "it lies inside `{}`, which the inside can write: {elsewhere}",
            shown(&mount.destination)
        )));
    }
    for link in &parent.links {
        let directory = link.parent().unwrap_or(link);
        if let Some(mount) = writable.iter().find(|mount| directory.starts_with(&mount.destination))
        {
            return Err(refuse(format!(
                "`{}` is a symbolic link inside `{}`, which the inside can write: {elsewhere}",
                shown(link),
                shown(&mount.destination)
            )));
        }
    }
    let own = parent.physical.join(&wished.name);
    for mount in mounts.iter_mut().filter(|mount| mount.destination == std::path::Path::new("/tmp"))
    {
        mount.kind = Kind::WritableFrom(own.join(INNER));
        mount.reason = "`tmp`: a /tmp of this run on disk, removed at the end".into();
    }
    Ok(Some(own))
}
