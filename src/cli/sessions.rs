//! `kli sessions`: what was said and done before. It only reads, but for `fork`.
//!
//! It runs outside the jail on files that a jailed run could have written: all that comes from them
//! is shown and nothing else, free of what drives a terminal.

mod export;
mod show;

use std::{
    path::{Path, PathBuf},
    time::SystemTime,
};

use serde::Serialize;

use crate::{
    agent::{Fault, FaultKind},
    host::environment::{self, Environment},
    session::{Found, Overview, SessionError, Store, checkpoint::View},
};

use super::{
    args::{ExportFormat, RunArguments, SessionsCommand},
    checkpoints::{review, take_along},
    error::{CliError, FAILED},
    setup::{self, Setup},
    terminal,
};

/// The longest prompt in a list, in characters.
const PROMPT: usize = 60;
/// The longest name of a session in a list, in characters.
const NAME: usize = 40;
/// The longest name of a model in a list, in characters.
const MODEL: usize = 32;
/// The longest outcome in a list, in characters.
const OUTCOME: usize = 11;

/// Runs `kli sessions`.
///
/// # Errors
/// A sentence that names the repair.
pub(crate) fn run(command: &SessionsCommand) -> Result<u8, CliError> {
    let environment = Environment::read();
    let paths = setup::paths(&environment).map_err(|error| CliError::config(error.to_string()))?;
    let workspace = environment::current_directory()
        .map_err(|error| CliError::config(format!("cannot tell the current directory: {error}")))?;
    let place = Place { store: Store::new(paths.state()), workspace };
    match command {
        SessionsCommand::List { json, all } => {
            place.list(*json, *all)?;
            // What the project around here would say more is said here as everywhere; settings that
            // cannot be read are not needed for a list.
            if let Ok(setup) = Setup::read(&RunArguments::default()) {
                for warning in &setup.warnings {
                    terminal::note(&format!("kli: {warning}"));
                }
            }
        }
        SessionsCommand::Show { id } => show::run(&place, id)?,
        SessionsCommand::Export { id, format: ExportFormat::Markdown } => {
            export::markdown(&place, id)?;
        }
        SessionsCommand::Export { id, format: ExportFormat::Json } => export::json(&place, id)?,
        SessionsCommand::Fork { id } => place.fork(id, paths.state())?,
        // A run of its own, which is begun where runs are.
        SessionsCommand::Compact { .. } => {}
        SessionsCommand::Diff { id } => place.diff(id, paths.state())?,
        SessionsCommand::Path => {
            let directory = place.store.directory(&place.workspace);
            terminal::out(&format!("{}\n", directory.display()));
        }
    }
    Ok(0)
}

/// Whose sessions, and where they are.
struct Place {
    store: Store,
    workspace: PathBuf,
}

impl Place {
    fn find(&self, id: &str) -> Result<Found, CliError> {
        self.store.find_anywhere(&self.workspace, id).map_err(|error| said(&error))
    }

    fn fork(&self, id: &str, state: &Path) -> Result<(), CliError> {
        let found = self.find(id)?;
        let forked = self.store.fork(&self.workspace, &found).map_err(|error| said(&error))?;
        let notices = forked.notices.iter().map(ToString::to_string);
        let (from, to) = (&found.id, &forked.id);
        let left = take_along(state, &self.workspace, from, to, u64::MAX);
        for notice in notices.chain(left) {
            terminal::note(&format!("kli: {notice}"));
        }
        terminal::out(&format!("{}\n", forked.id));
        Ok(())
    }

    fn diff(&self, id: &str, state: &Path) -> Result<(), CliError> {
        // The files are those of this directory, whatever the session says of itself.
        let found = self.store.find(&self.workspace, id).map_err(|error| match self.find(id) {
            Ok(_) => CliError::config(format!("session `{id}` is of another directory"))
                .hint("run it in that directory: `kli sessions list --all` names it"),
            Err(_) => said(&error),
        })?;
        let view = View::read(state, &self.workspace, &found.id).map_err(|error| {
            let message = format!("cannot read the checkpoints: {}", error.sentence());
            let fault = Fault { kind: FaultKind::Internal, message };
            CliError { exit: FAILED, fault, hints: Vec::new() }
        })?;
        terminal::out(&review::diff(view.as_ref(), &self.workspace));
        Ok(())
    }

    fn list(&self, json: bool, all: bool) -> Result<(), CliError> {
        let found = if all {
            let listing = self.store.list_all().map_err(|error| said(&error))?;
            for error in &listing.unreadable {
                terminal::note(&format!("kli: sessions are left out: {}", error.sentence()));
            }
            listing.found
        } else {
            self.store.list(&self.workspace).map_err(|error| said(&error))?
        };
        if found.is_empty() && !json {
            terminal::note(&if all {
                "kli: there are no sessions yet".to_owned()
            } else {
                format!("kli: there are no sessions of `{}` yet", self.workspace.display())
            });
            return Ok(());
        }
        let mut rows = Vec::new();
        let mut text = String::new();
        for session in &found {
            // One that went away meanwhile is none; one that cannot be read is said.
            match self.store.overview(session) {
                Ok(overview) if json => text.push_str(&line(session, &overview)),
                Ok(overview) => rows.push(row(session, &overview, all)),
                Err(error) => {
                    terminal::note(&format!("kli: `{}` is left out: {error}", session.id));
                }
            }
        }
        if !json {
            text = table(&rows);
        }
        terminal::out(&text);
        Ok(())
    }
}

/// What was typed wrong is exit 2; what the system refuses is a failure.
fn said(error: &SessionError) -> CliError {
    let message = error.to_string();
    match error {
        SessionError::Unknown { .. } => CliError::config(message)
            .hint("`kli sessions list --all` names the sessions of every directory"),
        SessionError::Ambiguous { .. }
        | SessionError::AmbiguousWords { .. }
        | SessionError::Version { .. } => CliError::config(message),
        SessionError::Write { .. }
        | SessionError::Read { .. }
        | SessionError::TooLong { .. }
        | SessionError::Encode { .. } => {
            let fault = Fault { kind: FaultKind::Internal, message };
            CliError { exit: FAILED, fault, hints: Vec::new() }
        }
    }
}

/// One line of `list --json`, in the order of the fields.
#[derive(Serialize)]
struct Line<'a> {
    id: &'a str,
    workspace: Option<&'a str>,
    parent: Option<&'a str>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    task: bool,
    started: Option<String>,
    modified: String,
    prompt: Option<&'a str>,
    name: Option<&'a str>,
    messages: Option<u64>,
    size: u64,
    model: Option<&'a str>,
    outcome: Option<&'a str>,
    path: String,
}

fn line(session: &Found, overview: &Overview) -> String {
    let line = Line {
        id: &session.id,
        workspace: overview.workspace.as_deref(),
        parent: overview.parent.as_deref(),
        task: overview.task,
        started: overview.started.map(rfc3339),
        modified: rfc3339(session.modified),
        prompt: overview.prompt.as_deref(),
        name: overview.name.as_deref(),
        messages: overview.messages,
        size: session.size,
        model: overview.model.as_deref(),
        outcome: overview.outcome.as_deref(),
        path: session.path.to_string_lossy().into_owned(),
    };
    // Strings and numbers cannot fail to serialise.
    serde_json::to_string(&line).unwrap_or_default() + "\n"
}

type Row = [String; 7];

const HEAD: [&str; 7] = ["ID", "LAST (UTC)", "MESSAGES", "SIZE", "MODEL", "OUTCOME", "PROMPT"];

/// The columns that are numbers, and stand to the right.
const NUMBERS: [usize; 2] = [2, 3];

fn row(session: &Found, overview: &Overview, all: bool) -> Row {
    let or_none = |text: Option<&str>, most| text.map_or_else(|| "-".to_owned(), |t| cut(t, most));
    let mut prompt = or_none(overview.prompt.as_deref(), PROMPT);
    if let Some(name) = &overview.name {
        prompt = format!("“{}” {prompt}", cut(name, NAME));
    }
    if overview.task {
        let parent = overview.parent.as_deref().map_or("-".to_owned(), plain);
        prompt = format!("(sub-agent of {parent}) {prompt}");
    }
    if all {
        let workspace = overview.workspace.as_deref().map_or("-".to_owned(), plain);
        prompt = format!("{workspace}: {prompt}");
    }
    [
        session.id.clone(),
        minutes(session.modified),
        overview.messages.map_or_else(|| "-".to_owned(), |count| count.to_string()),
        size(session.size),
        or_none(overview.model.as_deref(), MODEL),
        or_none(overview.outcome.as_deref(), OUTCOME),
        prompt,
    ]
}

fn table(rows: &[Row]) -> String {
    let width = |text: &str| text.chars().count();
    let mut widths = HEAD.map(width);
    for row in rows {
        for (widest, cell) in widths.iter_mut().zip(row) {
            *widest = (*widest).max(width(cell));
        }
    }
    let mut text = String::new();
    for row in std::iter::once(&HEAD.map(str::to_owned)).chain(rows) {
        let cells = row.iter().zip(widths).enumerate().map(|(column, (cell, widest))| {
            let space = " ".repeat(widest.saturating_sub(width(cell)));
            if NUMBERS.contains(&column) { space + cell } else { format!("{cell}{space}") }
        });
        let line = cells.collect::<Vec<_>>().join("  ");
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// Returns a size for people, with the units that are powers of 1024.
pub(super) fn size(bytes: u64) -> String {
    match bytes {
        0..1024 => format!("{bytes} B"),
        1024..1_048_576 => format!("{} KiB", bytes / 1024),
        1_048_576..1_073_741_824 => format!("{} MiB", bytes / 1_048_576),
        _ => format!("{} GiB", bytes / 1_073_741_824),
    }
}

fn timestamp(time: SystemTime) -> jiff::Timestamp {
    // A file can bear a time that no calendar has.
    jiff::Timestamp::try_from(time).unwrap_or_default()
}

fn rfc3339(time: SystemTime) -> String {
    format!("{:.3}", timestamp(time))
}

pub(super) fn minutes(time: SystemTime) -> String {
    timestamp(time).strftime("%Y-%m-%d %H:%M").to_string()
}

/// Returns foreign text as one line that cannot drive a terminal, nor turn the direction of what
/// stands beside it.
fn plain(text: &str) -> String {
    let turns = |c: &char| matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{61c}');
    let text: String = text.chars().filter(|c| !turns(c)).collect();
    terminal::one_line(&text)
}

/// As [`plain`], of at most so many characters.
pub(crate) fn cut(text: &str, most: usize) -> String {
    // Escapes make it longer, so what comes out is what is counted.
    let text = plain(&text.chars().take(most + 1).collect::<String>());
    if text.chars().count() <= most {
        return text;
    }
    let mut short: String = text.chars().take(most.saturating_sub(1)).collect();
    short.push('…');
    short
}

/// Standard output, written in large pieces.
#[derive(Default)]
struct Out {
    waiting: String,
}

impl Out {
    fn push(&mut self, text: &str) {
        self.waiting.push_str(text);
        if self.waiting.len() > 1 << 16 {
            self.flush();
        }
    }

    fn flush(&mut self) {
        terminal::out(&self.waiting);
        self.waiting.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_text_is_one_plain_line_of_bounded_length() {
        assert_eq!(plain("a\u{1b}[2J\u{202e}b\nc"), "a\\u{1b}[2Jb\\nc");
        assert_eq!(cut("abc", 3), "abc");
        assert_eq!(cut("abcd", 3), "ab…");
        assert_eq!(cut(&"\u{7}".repeat(9), 5), "\\u{7…");
    }

    #[test]
    fn sizes_and_times_are_for_people() {
        assert_eq!(
            [0, 1023, 1024, 52_428_800, u64::MAX].map(size)[..4],
            ["0 B", "1023 B", "1 KiB", "50 MiB"]
        );
        let time = SystemTime::UNIX_EPOCH + std::time::Duration::from_millis(1_796_000_000_123);
        assert_eq!(
            (rfc3339(time), minutes(time)),
            ("2026-11-30T00:53:20.123Z".to_owned(), "2026-11-30 00:53".to_owned())
        );
    }
}
