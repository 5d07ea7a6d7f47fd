//! The prompt of a headless run: an argument, or standard input, and what is no prompt.

use std::time::{Duration, Instant};

use tokio::runtime::Runtime;

use super::super::{args::RunArguments, error::CliError, signals::Signals, terminal};

/// What is said while standard input gives nothing.
const WAITING: &str = "waiting for the prompt on standard input, which is still open";

/// What became of the prompt.
pub(super) enum Prompt {
    /// The prompt, and how long standard input was waited for.
    Text(String, Duration),
    /// A signal came while standard input was read; its exit code.
    Interrupted(u8),
}

/// Checks what the command line says of the prompt, before anything is read.
///
/// # Errors
/// For a prompt that is none, and for none.
pub(super) fn check_argument(run: &RunArguments) -> Result<(), CliError> {
    match run.prompt.as_deref() {
        Some("-") => Ok(()),
        Some(text) => check(text, run),
        None if terminal::input_is_terminal() => Err(nothing(run)
            .unwrap_or_else(|| CliError::config("there is no prompt"))
            .hint("write it after `-p`, or pipe it in")),
        None => Ok(()),
    }
}

/// Returns the prompt: the argument, or standard input for `-` and when there is none.
///
/// # Errors
/// For what is no prompt.
pub(super) fn read(
    runtime: &Runtime,
    signals: &mut Signals,
    run: &RunArguments,
) -> Result<Prompt, CliError> {
    if let Some(text) = run.prompt.as_deref().filter(|text| *text != "-") {
        return Ok(Prompt::Text(text.to_owned(), Duration::ZERO));
    }
    let start = Instant::now();
    let text = match runtime.block_on(signals.attend(WAITING, terminal::read_prompt))? {
        Ok(text) => text.map_err(CliError::config)?,
        Err(code) => return Ok(Prompt::Interrupted(code)),
    };
    // A mark that some editors put before a text and that is no part of it.
    let text = text.strip_prefix('\u{feff}').map_or(text.clone(), str::to_owned);
    check(&text, run)?;
    Ok(Prompt::Text(text, start.elapsed()))
}

fn check(text: &str, run: &RunArguments) -> Result<(), CliError> {
    if text.trim().is_empty() {
        return Err(nothing(run)
            .unwrap_or_else(|| CliError::config("the prompt is empty"))
            .hint("write it after `-p`"));
    }
    if text.contains('\0') {
        return Err(CliError::config("the prompt holds a NUL character, so it is no text")
            .hint("name a file for what is no text"));
    }
    let slash = text.trim().strip_prefix('/').is_some_and(|rest| {
        let word = rest.split_whitespace().next().unwrap_or_default();
        !word.is_empty() && word.chars().all(|c| c.is_ascii_alphabetic() || c == '-')
    });
    if slash {
        let word = text.split_whitespace().next().unwrap_or_default();
        return Err(CliError::config(format!("`{word}` is a command of the terminal interface"))
            .hint("a headless run takes a prompt; begin it with another word"));
    }
    Ok(())
}

/// Says what is missing to go on with a session, when that is what is wished.
fn nothing(run: &RunArguments) -> Option<CliError> {
    let flag = match &run.resume {
        Some(_) => "--resume",
        None if run.continue_latest => "--continue",
        None => return None,
    };
    Some(CliError::config(format!(
        "`{flag}` needs a prompt: what to go on with, for example `kli {}-p \"go on\"`",
        run.resume
            .as_ref()
            .map_or_else(|| "--continue ".to_owned(), |id| format!("--resume {id} "))
    )))
}
