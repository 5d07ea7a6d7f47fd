//! The reference of the command line, as Markdown.

use std::fmt::Write as _;

use clap::{Arg, Command};

use super::{super::error::EXIT_CODES, typed};

/// Returns the page.
pub(super) fn page(kli: &Command, admin: &Command) -> String {
    let mut page = String::from(
        "# Command line\n\nMade by `kli generate` from the program itself; a test keeps this copy the \
         same. `docs/headless.md` says\nwhat a run does with it.\n",
    );
    section(kli, &mut page);
    below(kli, &mut page);
    section(admin, &mut page);
    let commands: Vec<String> =
        admin.get_subcommands().map(|command| format!("`{}`", command.get_name())).collect();
    line(&mut page, &format!("\nThe commands are those of `kli`: {}.", commands.join(", ")));
    page.push_str("\n## Exit codes\n\n| code | meaning |\n| --- | --- |\n");
    for (code, meaning) in EXIT_CODES {
        line(&mut page, &format!("| {code} | {meaning} |"));
    }
    page.push_str("\nWhere several apply: 143 or 130, then 5, 4, 3, 1.\n");
    page
}

fn section(command: &Command, page: &mut String) {
    let usage = command.clone().render_usage().to_string();
    let usage: Vec<&str> = usage
        .lines()
        .map(|line| line.trim_start_matches("Usage:").trim())
        .filter(|line| !line.is_empty())
        .collect();
    let depth = typed(command).split(' ').count();
    line(page, &format!("\n{} `{}`\n", if depth == 1 { "##" } else { "###" }, typed(command)));
    if let Some(about) = command.get_about() {
        line(page, &format!("{about}.\n"));
    }
    line(page, &format!("Usage: `{}`", usage.join("` or `")));
    let args: Vec<&Arg> = command.get_arguments().filter(|arg| arg.get_id() != "help").collect();
    if !args.is_empty() {
        page.push_str("\n| argument | meaning |\n| --- | --- |\n");
        for arg in args {
            let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
            line(page, &format!("| `{}` | {}{} |", spelled(arg), escaped(&help), values(arg)));
        }
    }
}

fn below(command: &Command, page: &mut String) {
    for command in command.get_subcommands() {
        section(command, page);
        below(command, page);
    }
}

/// Returns an argument as it is typed.
fn spelled(arg: &Arg) -> String {
    let value = arg.get_action().takes_values().then(|| {
        let names = arg.get_value_names().unwrap_or_default();
        names.first().map_or_else(|| arg.get_id().to_string().to_uppercase(), ToString::to_string)
    });
    let flags: Vec<String> = arg
        .get_short()
        .map(|short| format!("-{short}"))
        .into_iter()
        .chain(arg.get_long().map(|long| format!("--{long}")))
        .collect();
    match (flags.is_empty(), value) {
        (true, value) => value.unwrap_or_default(),
        (false, Some(value)) => format!("{} {value}", flags.join(", ")),
        (false, None) => flags.join(", "),
    }
}

/// Returns the values that an argument can have, when they are a list.
fn values(arg: &Arg) -> String {
    if !arg.get_action().takes_values() {
        return String::new();
    }
    let values: Vec<String> = arg
        .get_possible_values()
        .iter()
        .filter(|value| !value.is_hide_set())
        .map(|value| match value.get_help() {
            Some(help) => format!("`{}` ({})", value.get_name(), escaped(&help.to_string())),
            None => format!("`{}`", value.get_name()),
        })
        .collect();
    if values.is_empty() { String::new() } else { format!(": {}", values.join(", ")) }
}

fn escaped(text: &str) -> String {
    text.replace('|', "\\|")
}

fn line(page: &mut String, text: &str) {
    // Writing into memory cannot fail.
    let _written = writeln!(page, "{text}");
}
