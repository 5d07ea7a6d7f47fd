//! `kli sessions`: what was said and done before.

use super::{args::SessionsCommand, error::CliError};

/// Runs `kli sessions`.
///
/// # Errors
/// A sentence that names the repair.
pub(crate) fn run(_command: &SessionsCommand) -> Result<u8, CliError> {
    Err(CliError::internal("not built yet"))
}
