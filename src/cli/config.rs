//! `kli config`: what the settings are, where they come from, and what is wrong with them.

use crate::{config::Layer, host::environment};

use super::{
    args::{ConfigCommand, RunArguments},
    error::CliError,
    setup::{self, Setup},
    terminal,
};

/// Runs `kli config`.
///
/// # Errors
/// For settings that cannot be read.
pub(crate) fn run(command: &ConfigCommand) -> Result<u8, CliError> {
    let defaults = RunArguments::default();
    match command {
        ConfigCommand::Path => {
            let setup = Setup::read(&defaults)?;
            let paths = setup.paths.ok_or_else(|| {
                CliError::config("no home directory is known; set HOME to an absolute path")
            })?;
            terminal::out(&format!("{}\n", paths.settings().display()));
        }
        ConfigCommand::Check { file: None } => {
            let setup = Setup::read(&defaults)?;
            setup.subject(&defaults)?;
            report_check(&setup.warnings);
        }
        ConfigCommand::Show { .. } | ConfigCommand::Schema => {
            return Err(CliError::internal("not built yet"));
        }
        ConfigCommand::Check { file: Some(file) } => {
            let mut warnings = Vec::new();
            let here = environment::current_directory()
                .map_err(|error| CliError::config(error.to_string()))?;
            let file = here.join(file);
            let settings =
                setup::read_file(&file, Layer::User, &mut warnings)?.ok_or_else(|| {
                    CliError::config(format!("there is no file `{}`", file.display()))
                })?;
            settings.check().map_err(|error| CliError::config(error.to_string()))?;
            report_check(&warnings);
        }
    }
    Ok(0)
}

fn report_check(warnings: &[String]) {
    for warning in warnings {
        terminal::note(&format!("kli: {warning}"));
    }
    terminal::out(match warnings.len() {
        0 => "settings: ok\n",
        _ => "settings: ok, with warnings\n",
    });
}
