//! Removing one file.

use std::path::Path;

use rustix::fs::AtFlags;

use super::walk;
use crate::{authority::Grant, host::HostError};

/// Removes a file or a link, never a directory. No component on the way is followed when it has
/// become a link.
///
/// # Errors
/// [`HostError::NotGranted`]; [`HostError::Kind`] for a path without a name;
/// [`HostError::Changed`]; the system's refusal.
pub fn remove(grant: &Grant, path: &Path) -> Result<(), HostError> {
    if !grant.permits_write(path) {
        return Err(HostError::NotGranted { path: path.to_owned() });
    }
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(HostError::Kind {
            path: path.to_owned(),
            kind: "a directory",
            wanted: "a regular file",
        });
    };
    let directory = walk(parent)?;
    rustix::fs::unlinkat(&directory, name, AtFlags::empty())
        .map_err(|errno| HostError::io("remove", path, errno))
}
