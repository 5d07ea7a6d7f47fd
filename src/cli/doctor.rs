//! `kli doctor`: what could stop a run, with the repair, and what stays risky.

use super::error::CliError;

/// Runs `kli doctor`.
///
/// # Errors
/// A sentence that names the repair.
pub(crate) fn run(_json: bool) -> Result<u8, CliError> {
    Err(CliError::internal("not built yet"))
}
