//! `kli trust`: which projects may do more than narrow.

use std::path::Path;

use super::error::CliError;

/// Runs `kli trust`.
///
/// # Errors
/// A sentence that names the repair.
pub(crate) fn run(_list: bool, _revoke: bool, _directory: Option<&Path>) -> Result<u8, CliError> {
    Err(CliError::internal("not built yet"))
}
