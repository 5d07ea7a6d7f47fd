//! `kli completion`: completions for shells.

use super::error::CliError;

/// Runs `kli completion`.
///
/// # Errors
/// A sentence that names the repair.
pub(crate) fn run(_shell: clap_complete::Shell) -> Result<u8, CliError> {
    Err(CliError::internal("not built yet"))
}
