//! `kli generate`: what is made from the program itself and goes into packages: man pages,
//! completions, schemas and the reference.
//!
//! The same program always writes the same bytes: no date, no path, no machine.

mod man;
mod reference;
mod schema;

use std::path::{Path, PathBuf};

use clap::Command;

use crate::{
    authority::Grant,
    host::{environment, files, state},
};

use super::{admin, args::Shell, completion, error::CliError, terminal};

/// Runs `kli generate`: writes every file below the directory, in the layout of `share/`. What else
/// is there stays as it is.
///
/// # Errors
/// When a file cannot be written; those before it are there, and whole.
pub(crate) fn run(directory: &Path) -> Result<u8, CliError> {
    let here = environment::current_directory()
        .map_err(|error| CliError::config(format!("cannot tell the current directory: {error}")))?;
    // The way there may lead up, or over links.
    let root = files::resolve(&here.join(directory), &here, None)
        .map_err(|error| CliError::config(error.sentence()))?;
    let grant = Grant::own_state(&root);
    for (path, text) in all() {
        state::publish(&grant, &root.join(&path), text.as_bytes())
            .map_err(|error| CliError::config(error.sentence()))?;
        terminal::out(&format!("{}\n", path.display()));
    }
    Ok(0)
}

/// Returns every file: its place below the directory, and its text.
fn all() -> Vec<(PathBuf, String)> {
    let (kli, admin) = (completion::visible(), admin::visible());
    let mut files = Vec::new();
    man::pages(&built(kli.clone()), &mut files);
    files.push(man::admin(&built(admin.clone())));
    files.push(man::sandbox());
    for command in [&kli, &admin] {
        let name = command.get_name();
        for (shell, place) in [
            (Shell::Bash, format!("bash-completion/completions/{name}")),
            (Shell::Fish, format!("fish/vendor_completions.d/{name}.fish")),
            (Shell::Zsh, format!("zsh/site-functions/_{name}")),
        ] {
            files.push((place.into(), completion::script(shell, command.clone())));
        }
    }
    for (name, text) in schema::all() {
        files.push((format!("kli/schema/{name}.schema.json").into(), text));
    }
    let page = reference::page(&built(kli), &built(admin));
    files.push(("doc/kli/reference/cli.md".into(), page));
    files
}

/// Returns a command as clap completes it: with its flags for help and the version, and full names.
fn built(command: Command) -> Command {
    let mut command = command.disable_help_subcommand(true);
    command.build();
    command
}

/// Returns a command's whole name, as it is typed.
fn typed(command: &Command) -> &str {
    command.get_bin_name().unwrap_or_else(|| command.get_name())
}
