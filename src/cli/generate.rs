//! `kli generate`: man pages, completions, schemas and the reference.

use std::path::Path;

use super::error::CliError;

/// Runs `kli generate`.
///
/// # Errors
/// A sentence that names the repair.
pub(crate) fn run(_directory: &Path) -> Result<u8, CliError> {
    Err(CliError::internal("not built yet"))
}
