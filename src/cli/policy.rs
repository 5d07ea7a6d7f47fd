//! Reading the policies: the machine's, and the one baked into the package.

use std::{
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

use crate::{
    config::{self, POLICY, Paths, Policy},
    host::state,
};

use super::{
    error::CliError,
    setup::{physical, read_small},
};

/// What `stat` shows for an owner that the user namespace does not map
/// (`/proc/sys/kernel/overflowuid`, whose default nobody changes).
const UNMAPPED: u32 = 65_534;

/// A policy that was read, and from where.
#[derive(Clone, Debug)]
pub(crate) struct Source {
    pub(crate) file: PathBuf,
    pub(crate) policy: Policy,
}

/// Reads the policies that are there.
///
/// # Errors
/// For one that cannot be read or understood as a whole, and for one that others can write: what it
/// meant to forbid must not be left out.
pub(crate) fn read(
    baked: Option<&Path>,
    warnings: &mut Vec<String>,
) -> Result<Vec<Source>, CliError> {
    let mut found = Vec::new();
    if let Some(baked) = baked {
        found.extend(one(&Paths::baked_policy(baked))?);
    }
    let machine = Path::new(POLICY);
    if let Some(source) = one(machine)? {
        check_owner(machine, warnings)?;
        found.push(source);
    }
    Ok(found)
}

fn one(file: &Path) -> Result<Option<Source>, CliError> {
    let Some(bytes) = read_small(file, config::MAX_BYTES)? else { return Ok(None) };
    let policy = Policy::parse(&file.display().to_string(), &bytes)
        .map_err(|error| CliError::config(error.to_string()))?;
    Ok(Some(Source { file: file.to_owned(), policy }))
}

/// A policy that anybody can write forbids nothing.
fn check_owner(file: &Path, warnings: &mut Vec<String>) -> Result<(), CliError> {
    let real = physical(file);
    let meta =
        |path: &Path| state::metadata(path).map_err(|error| CliError::config(error.sentence()));
    let own = meta(&real)?;
    if own.mode() & 0o022 != 0 {
        return Err(CliError::config(format!(
            "the policy `{}` can be written by others than its owner; take that away with \
             `chmod go-w {0}`",
            real.display()
        )));
    }
    let mut owner = own.uid();
    if let Some(directory) = real.parent() {
        let around = meta(directory)?;
        let sticky = around.mode() & 0o1000 != 0;
        if around.mode() & 0o022 != 0 && !sticky {
            return Err(CliError::config(format!(
                "others than its owner can replace the policy `{}`; take that away with \
                 `chmod go-w {}`",
                real.display(),
                directory.display()
            )));
        }
        if [0, UNMAPPED].contains(&owner) {
            owner = around.uid();
        }
    }
    if ![0, UNMAPPED].contains(&owner) {
        warnings.push(format!(
            "the policy `{}`, or the directory that it is in, belongs to user {owner} and not to \
             root: whoever runs as that user can change it",
            real.display(),
        ));
    }
    Ok(())
}
