//! `kli auth`: where keys come from, and the file that keeps them.

use super::{args::AuthCommand, error::CliError};

/// Runs `kli auth`.
///
/// # Errors
/// A sentence that names the repair.
pub(crate) fn run(_command: &AuthCommand) -> Result<u8, CliError> {
    Err(CliError::internal("not built yet"))
}
