//! `kli completion`: completions for shells. It reads no settings, so that a broken file never
//! costs a shell its completions.

use clap::{Command, CommandFactory as _};
use clap_complete::Shell as Generator;

use super::{
    admin,
    args::{Arguments, Shell},
    terminal,
};

/// Runs `completion` for the program that was started.
pub(crate) fn run(shell: Shell, program: &str) -> u8 {
    let command = if program == admin::NAME { admin::visible() } else { visible() };
    terminal::out(&script(shell, command));
    0
}

/// Returns the script that completes a command in a shell.
pub(crate) fn script(shell: Shell, mut command: Command) -> String {
    let generator = match shell {
        Shell::Bash => Generator::Bash,
        Shell::Fish => Generator::Fish,
        Shell::Zsh => Generator::Zsh,
    };
    let name = command.get_name().to_owned();
    let mut script = Vec::new();
    clap_complete::generate(generator, &mut command, name, &mut script);
    String::from_utf8_lossy(&script).into_owned()
}

/// Returns kli's command line without the subcommands that are hidden: completions would offer them.
pub(crate) fn visible() -> Command {
    let command = Arguments::command();
    let about = command.get_about().cloned().unwrap_or_default();
    Command::new("kli")
        .version(env!("CARGO_PKG_VERSION"))
        .about(about)
        .max_term_width(100)
        .args_conflicts_with_subcommands(true)
        .args(command.get_arguments().cloned())
        .subcommands(command.get_subcommands().filter(|sub| !sub.is_hide_set()).cloned())
}
