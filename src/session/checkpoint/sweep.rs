//! Keeping all checkpoints together within their bounds.

use std::{
    ffi::{OsStr, OsString},
    path::Path,
    time::{Duration, SystemTime},
};

use crate::{
    authority::Grant,
    host::{HostError, environment, state::Directory},
};

use super::{CHECKPOINTS, LOG};
use crate::session::Store;

/// The most bytes that all sessions keep.
const MOST_BYTES: u64 = 512 << 20;
/// The most sessions that keep any.
const MOST_SESSIONS: usize = 500;
/// How long the checkpoints of a session are kept after its last change.
const AGE: Duration = Duration::from_hours(30 * 24);
/// How long one without a session's file is kept: it may be about to be made.
const ORPHAN: Duration = Duration::from_hours(24);

struct Found {
    key: OsString,
    id: OsString,
    bytes: u64,
    modified: SystemTime,
}

/// Removes the checkpoints of sessions that are gone, of those that were not changed for 30 days, and
/// of the oldest ones while all together are more than 512 MiB or 500 sessions. Those that a process
/// has open stay.
///
/// # Errors
/// The host's refusal.
pub fn sweep(root: &Path) -> Result<(), HostError> {
    sweep_within(root, MOST_BYTES, MOST_SESSIONS)
}

pub(super) fn sweep_within(root: &Path, most: u64, sessions: usize) -> Result<(), HostError> {
    let grant = Grant::own_state(root);
    let Some(all) = Directory::open(root, &[OsStr::new(CHECKPOINTS)])? else { return Ok(()) };
    let now = environment::now();
    let mut found = Vec::new();
    for key in all.names()? {
        // A link or a file is none of kli's.
        let Ok(Some(of_workspace)) = all.below(&key) else { continue };
        let kept = Store::new(root).ids(&key);
        for id in of_workspace.names()? {
            let Ok(Some(directory)) = of_workspace.below(&id) else { continue };
            let sizes = directory.sizes()?;
            let bytes = sizes.iter().map(|(_, size)| size).sum();
            let modified = directory.look(OsStr::new(LOG)).map_or(now, |looked| looked.modified);
            let age = now.duration_since(modified).unwrap_or_default();
            let is_kept = kept.iter().any(|kept| OsStr::new(kept) == id);
            if age > AGE || (!is_kept && age > ORPHAN) {
                remove(&grant, &of_workspace, &id);
            } else {
                found.push(Found { key: key.clone(), id, bytes, modified });
            }
        }
    }
    // The latest first.
    found.sort_by_key(|it| std::cmp::Reverse(it.modified));
    let mut sum = 0_u64;
    for (count, Found { key, id, bytes, .. }) in found.into_iter().enumerate() {
        sum = sum.saturating_add(bytes);
        if (sum > most || count >= sessions)
            && let Ok(Some(of_workspace)) = all.below(&key)
        {
            remove(&grant, &of_workspace, &id);
        }
    }
    Ok(())
}

/// Removes one, unless it is open. What cannot be removed is there the next time.
fn remove(grant: &Grant, of_workspace: &Directory, id: &OsStr) {
    let free = of_workspace.below(id).is_ok_and(|it| it.is_some_and(|it| it.try_lock()));
    if free {
        drop(of_workspace.remove_directory(grant, id));
    }
}
