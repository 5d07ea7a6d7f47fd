//! The composition root: what was typed becomes settings, a subject, an agent and a front end.
//! Only this folder sees all the others.

mod admin;
mod args;
mod assembly;
mod auth;
mod completion;
mod config;
mod credentials;
mod demo;
mod display;
mod doctor;
mod error;
mod fallback;
mod generate;
mod headless;
mod hidden;
mod instructions;
mod interactive;
mod journal;
mod models;
mod policy;
mod print;
mod project;
mod provider;
mod sandbox;
mod sessions;
mod setup;
mod signals;
mod terminal;
mod trust;
mod usage;

use std::{
    ffi::{OsStr, OsString},
    panic::{self, AssertUnwindSafe},
    process::ExitCode,
    time::Instant,
};

use clap::error::ErrorKind;

use crate::{
    authority::Report,
    config::names,
    host::{
        self,
        confinement::{self, Signs},
        process,
        secrets::{self, Handed},
    },
};

use args::{Arguments, Command, OutputFormat, RunArguments, SessionsCommand};
use error::{CliError, FAILED, INTERNAL, USAGE};
use setup::Setup;

/// Runs kli on a command line, whose first word is the program's own name.
///
/// Under the name `kli-admin` it knows only what looks at and changes kli's own settings.
pub fn main(words: &[OsString]) -> ExitCode {
    let started = Instant::now();
    // First of all, while nothing is open and nothing runs: from here on no other process of the
    // user reads this one's memory, and no child inherits what a launcher handed over.
    host::harden();
    let handed = secrets::take_handed();
    #[cfg(feature = "lisp")]
    crate::tool::eval::keep_from_home();
    let wants_json = wants_json(words);
    let admin = admin::is_meant(words);
    let program = if admin { admin::NAME } else { "kli" };
    let code = match admin::parse(words, admin) {
        Ok(arguments) => match handed {
            Ok(handed) => guarded(|| run(arguments, program, &handed, started), wants_json),
            Err(error) => {
                let error = CliError::auth(error.to_string()).hint(format!(
                    "whoever starts kli hands its keys over there; unset `{}` to start without them",
                    secrets::HANDED
                ));
                fail(&error, wants_json)
            }
        },
        Err(error) => match error.kind() {
            ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
                terminal::out(&error.render().to_string());
                0
            }
            ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
                terminal::note(error.render().to_string().trim_end());
                USAGE
            }
            _ => fail(&usage::refused(&error, words, program), wants_json),
        },
    };
    if code == INTERNAL {
        // What a run left in the background ends with it. What cannot be ended is stuck in the
        // kernel; the fault is what matters now.
        drop(process::reap_all());
    }
    // Whoever reads the result must not take a lost one for a good one.
    let lost = code == 0 && terminal::is_lost();
    ExitCode::from(if lost { FAILED } else { code })
}

/// Runs a command to its exit code. A fault of kli's own is said as any other, with the JSON that was
/// asked for.
fn guarded(command: impl FnOnce() -> u8, wants_json: bool) -> u8 {
    panic::catch_unwind(AssertUnwindSafe(command)).unwrap_or_else(|_| {
        let error = CliError::internal("kli broke off by a fault of its own, see above");
        if wants_json {
            print::print_json(&print::not_started(INTERNAL, error.fault));
        } else {
            terminal::note(&format!("kli: {}", error.fault.message));
        }
        INTERNAL
    })
}

/// Says whether the command line asks for JSON, also when the rest of it cannot be read: a program
/// that waits for a result gets one whatever happens.
fn wants_json(words: &[OsString]) -> bool {
    let options: Vec<&OsString> = words.iter().take_while(|word| *word != "--").collect();
    let is_json = |format: &OsStr| format == "json" || format == "stream-json";
    options.iter().any(|word| {
        word.to_str()
            .and_then(|w| w.strip_prefix("--output-format="))
            .is_some_and(|f| is_json(f.as_ref()))
    }) || options
        .windows(2)
        .any(|pair| matches!(pair, [flag, value] if *flag == "--output-format" && is_json(value)))
}

fn run(arguments: Arguments, program: &str, handed: &Handed, started: Instant) -> u8 {
    let json = arguments.run.output_format != OutputFormat::Text;
    let outcome = match arguments.command {
        Some(Command::Version) => {
            terminal::out(&format!("{program} {}\n", env!("CARGO_PKG_VERSION")));
            Ok(0)
        }
        Some(Command::Auth { command }) => auth::run(&command, handed),
        Some(Command::Completion { shell }) => Ok(completion::run(shell, program)),
        Some(Command::Config { command }) => config::run(&command),
        Some(Command::Demo) => {
            // It is played from a recording, so nothing that it starts needs a key.
            host::environment::wipe(
                &names::SECRET.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>(),
            );
            demo::run()
        }
        Some(Command::Doctor { json }) => doctor::run(json, handed),
        Some(Command::Generate { directory }) => generate::run(&directory),
        Some(Command::Models { json }) => models::run(&RunArguments::default(), json, handed),
        Some(Command::Sandbox { command }) => sandbox::run(&command),
        Some(Command::Sessions {
            command: SessionsCommand::Compact { id, focus, model, output_format },
        }) => {
            let (resume, compact) = (Some(id), Some(focus.unwrap_or_default()));
            let run =
                RunArguments { output_format, model, resume, compact, ..RunArguments::default() };
            return headless::run(&run, handed, started)
                .unwrap_or_else(|error| fail(&error, output_format != OutputFormat::Text));
        }
        Some(Command::Sessions { command }) => sessions::run(&command),
        Some(Command::Trust { list, revoke, directory }) => {
            trust::run(list, revoke, directory.as_deref())
        }
        None if arguments.run.print_authority => print_authority(&arguments.run),
        None => headless::run(&arguments.run, handed, started),
    };
    outcome.unwrap_or_else(|error| fail(&error, json))
}

/// Says what ended a command early, and returns its exit code.
fn fail(error: &CliError, json: bool) -> u8 {
    for line in error.lines() {
        // The JSON printer says the sentence itself.
        if !(json && line.starts_with("kli: ")) {
            terminal::note(&line);
        }
    }
    if json {
        print::print_json(&print::not_started(error.exit, error.fault.clone()));
    }
    error.exit
}

/// Prints what this run may do: the very value that its calls would be checked against.
fn print_authority(run: &RunArguments) -> Result<u8, CliError> {
    show_authority(run, &Setup::read(run)?)
}

/// Prints what may be done under a setup.
fn show_authority(run: &RunArguments, setup: &Setup) -> Result<u8, CliError> {
    let subject = setup.subject();
    let confinement = confinement::judge(&Signs::read(&setup.environment));
    let report = Report::new(&subject, confinement).with_notes(setup.notes());
    for warning in &setup.warnings {
        terminal::note(&format!("kli: {warning}"));
    }
    if run.json || run.output_format != OutputFormat::Text {
        let line = serde_json::to_string(&report)
            .map_err(|error| CliError::internal(format!("cannot print the report: {error}")))?;
        terminal::out(&format!("{line}\n"));
    } else {
        terminal::out(&report.text());
        for line in report.remarks() {
            terminal::note(&line);
        }
    }
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_of_its_own_is_an_exit_code_and_not_a_crash() {
        assert_eq!(guarded(|| panic!("a fault"), true), INTERNAL);
        assert_eq!(guarded(|| 3, true), 3, "control");
    }

    #[test]
    fn the_wish_for_json_is_seen_in_a_line_that_cannot_be_read() {
        let wants = |line: &[&str]| {
            wants_json(&line.iter().map(|word| OsString::from(*word)).collect::<Vec<_>>())
        };
        assert!(wants(&["kli", "--output-format", "json", "--bogus"]));
        assert!(wants(&["kli", "--bogus", "--output-format=json"]));
        assert!(wants(&["kli", "--output-format", "stream-json", "--bogus"]));
        assert!(!wants(&["kli", "--output-format", "text", "json"]));
        assert!(!wants(&["kli", "--", "--output-format=json"]));
    }
}
