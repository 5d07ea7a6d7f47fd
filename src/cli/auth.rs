//! `kli auth`: where keys come from, and the file that keeps them.

use std::{collections::BTreeMap, fmt::Write as _};

use serde::Serialize;
use zeroize::Zeroizing;

use crate::{
    config::{KeySources, Paths, Provider},
    host::{Host, secrets::Handed},
};

use super::{
    args::{AuthCommand, RunArguments},
    credentials::{self, BadStore, Store},
    doctor::is_here,
    error::CliError,
    hidden::{self, Line},
    setup::Setup,
    terminal,
};

/// The longest key that is kept, in bytes; servers take headers of 8 KiB at most.
const LONGEST_KEY: usize = 4096;

/// Runs `kli auth`. No key is ever printed, and no command is run.
///
/// # Errors
/// A sentence that names the repair.
pub(crate) fn run(command: &AuthCommand, handed: &Handed) -> Result<u8, CliError> {
    let setup = Setup::read(&RunArguments::default())?;
    for warning in &setup.warnings {
        terminal::note(&format!("kli: {warning}"));
    }
    match command {
        AuthCommand::Status { json } => status(&setup, handed, *json),
        AuthCommand::Set { provider } => set(&setup, handed, provider),
        AuthCommand::Forget { provider } => forget(&setup, provider),
    }
}

/// A place that a key may come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Source {
    Launcher,
    Environment,
    File,
    Command,
    Store,
}

/// What is known of one place, without the key.
#[derive(Debug, Serialize)]
struct Found {
    source: Source,
    /// The variable, the file, or the command's program.
    name: String,
    /// Why a run would end there.
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
}

impl Found {
    fn words(&self) -> String {
        let name = &self.name;
        let place = match self.source {
            Source::Launcher => format!("the launcher, as `{name}`"),
            Source::Environment => format!("the variable `{name}`"),
            Source::File => format!("the file `{name}`"),
            Source::Command => format!("the command `{name}`, not run"),
            Source::Store => format!("the store `{name}`"),
        };
        match &self.problem {
            Some(problem) => format!("{place}, which does not work: {problem}"),
            None => place,
        }
    }
}

/// One provider's line.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Row {
    provider: String,
    /// Whether a run needs no key: for a recording, and for a server on this machine.
    keyless: bool,
    #[serde(rename = "from")]
    used: Option<Found>,
    shadowed: Vec<Found>,
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
}

#[derive(Debug, Serialize)]
struct Report {
    r#type: &'static str,
    providers: Vec<Row>,
}

fn status(setup: &Setup, handed: &Handed, json: bool) -> Result<u8, CliError> {
    let store = setup.paths.as_ref().map(|paths| Store::read(&credentials::file(paths)));
    let mut names = setup.settings.provider_names();
    if let Some(Ok(store)) = &store {
        names.extend(store.keys.keys().cloned());
    }
    names.sort();
    names.dedup();
    let rows: Vec<Row> =
        names.into_iter().map(|provider| row(setup, handed, provider, store.as_ref())).collect();
    if json {
        let line = serde_json::to_string(&Report { r#type: "auth", providers: rows })
            .map_err(|error| CliError::internal(format!("cannot print the report: {error}")))?;
        terminal::out(&format!("{line}\n"));
        return Ok(0);
    }
    let mut text = String::new();
    for row in &rows {
        let line = match (&row.used, row.keyless) {
            (Some(found), _) => found.words(),
            (None, true) => "needs no key".to_owned(),
            (None, false) => "no key".to_owned(),
        };
        // Writing to a string cannot fail.
        let _written = writeln!(text, "{}: {}", row.provider, terminal::one_line(&line));
        for found in &row.shadowed {
            let words = terminal::one_line(&found.words());
            let _written = writeln!(text, "  not used, as the above comes first: {words}");
        }
        if let Some(problem) = &row.problem {
            let _written = writeln!(text, "  cannot be used: {problem}");
        }
    }
    terminal::out(&text);
    Ok(0)
}

fn row(
    setup: &Setup,
    handed: &Handed,
    provider: String,
    store: Option<&Result<Store, BadStore>>,
) -> Row {
    let known = setup.settings.provider(&provider);
    let (sources, problem) = match &known {
        Ok(known) => (known.key_sources(), None),
        Err(error) => (Some(KeySources::default()), Some(error.to_string())),
    };
    let mut found =
        sources.map_or_else(Vec::new, |sources| look(setup, handed, &provider, sources, store));
    // Whoever names a variable means the provider to get a key.
    let asks = setup.settings.providers.get(&provider).is_some_and(|p| p.key_env.get().is_some());
    let here = matches!(&known, Ok(Provider::Server(server)) if is_here(&server.base_url));
    let keyless = sources.is_none() || (here && !asks);
    let used = if found.is_empty() { None } else { Some(found.remove(0)) };
    Row { provider, keyless, used, shadowed: found, problem }
}

/// What is known of the key of a provider, without the key.
#[derive(Clone, Debug, Serialize)]
pub(super) struct KeyPlace {
    /// Whether a run needs one.
    pub(super) needed: bool,
    /// Whether some place has one that works, as far as that can be told without running commands.
    pub(super) found: bool,
    /// The place in words; `None` = there is none.
    pub(super) from: Option<String>,
}

/// Returns where the keys of these providers would come from; nothing is run and nothing shown.
pub(super) fn places(
    setup: &Setup,
    handed: &Handed,
    providers: impl IntoIterator<Item = String>,
) -> BTreeMap<String, KeyPlace> {
    let store = setup.paths.as_ref().map(|paths| Store::read(&credentials::file(paths)));
    providers
        .into_iter()
        .map(|provider| {
            let row = row(setup, handed, provider, store.as_ref());
            let place = KeyPlace {
                needed: !row.keyless,
                found: row.used.as_ref().is_some_and(|used| used.problem.is_none()),
                from: row.used.as_ref().map(Found::words),
            };
            (row.provider, place)
        })
        .collect()
}

/// Returns every place that has, or should have, a provider's key, in the order of a run.
fn look(
    setup: &Setup,
    handed: &Handed,
    provider: &str,
    sources: KeySources<'_>,
    store: Option<&Result<Store, BadStore>>,
) -> Vec<Found> {
    let mut found = Vec::new();
    let mut add = |source, name: &str, problem| {
        found.push(Found { source, name: name.to_owned(), problem });
    };
    if let Some(name) = sources.env {
        if handed.get(name).is_some() {
            add(Source::Launcher, name, None);
        }
        match credentials::variable(setup, name) {
            Ok(None) => {}
            Ok(Some(_)) => add(Source::Environment, name, None),
            Err(error) => add(Source::Environment, name, Some(error.fault.message)),
        }
    }
    if let Some(file) = sources.file {
        let read = setup.spelled(file).and_then(|file| credentials::key_file(&file));
        add(Source::File, file, read.err().map(|error| error.fault.message));
    }
    if let Some(program) = sources.command.and_then(|words| words.first()) {
        add(Source::Command, program, None);
    }
    if let (Some(store), Some(paths)) = (store, &setup.paths) {
        let file = credentials::file(paths).display().to_string();
        match store {
            Ok(store) if store.keys.contains_key(provider) => add(Source::Store, &file, None),
            Ok(_) => {}
            Err(error) => add(Source::Store, &file, Some(error.to_string())),
        }
    }
    found
}

fn set(setup: &Setup, handed: &Handed, provider: &str) -> Result<u8, CliError> {
    refuse_in_jail(&format!("set {provider}"))?;
    let sources = match setup.settings.provider(provider) {
        Ok(known) => {
            let Some(sources) = known.key_sources() else {
                return Err(CliError::config(format!("the provider `{provider}` needs no key")));
            };
            // Only whether something comes before the store is asked for.
            look(setup, handed, provider, sources, None)
        }
        Err(error) if setup.settings.providers.contains_key(provider) => {
            return Err(CliError::config(error.to_string()));
        }
        Err(error) => {
            return Err(CliError::config(error.to_string())
                .hint(format!("add `providers.{provider}` to the settings first")));
        }
    };
    let paths = paths(setup)?;
    let file = credentials::file(paths);
    // A store that cannot be used is said before a key is typed.
    Store::read(&file).map_err(|error| bad(&error))?;
    let text = match hidden::ask(&format!("key of provider `{provider}` (not shown): "))? {
        Line::Text(text) => text,
        Line::Interrupted(code) => {
            terminal::note("kli: interrupted; nothing was stored");
            return Ok(code);
        }
    };
    let key = check(&text)?;
    let before = Store::change(paths, |store| Ok(store.keys.insert(provider.to_owned(), key)))
        .map_err(|error| bad(&error))?;
    let done = if before.is_some() { "replaced" } else { "stored" };
    terminal::note(&format!("kli: the key of `{provider}` is {done} in `{}`", file.display()));
    if let Some(first) = sources.first() {
        terminal::note(&format!("kli: it is not used while there is {}", first.words()));
    }
    Ok(0)
}

/// Returns the key in what was read.
fn check(text: &[u8]) -> Result<Zeroizing<String>, CliError> {
    let no = |what: &str| CliError::config(format!("what was given {what}; nothing was stored"));
    let text = text.trim_ascii();
    if text.is_empty() {
        return Err(no("is empty").hint("type the key, or pipe it in"));
    }
    if text.contains(&b'\n') || text.contains(&b'\r') {
        return Err(no("has more than one line, and a key is one"));
    }
    if text.len() > LONGEST_KEY {
        return Err(no(&format!("is longer than {LONGEST_KEY} bytes, which is no key")));
    }
    match std::str::from_utf8(text) {
        // What a header can carry, RFC 9110 section 5.5.
        Ok(text) if text.bytes().all(|byte| (0x20..0x7f).contains(&byte)) => {
            Ok(Zeroizing::new(text.to_owned()))
        }
        _ => Err(no("holds a character that no key has")),
    }
}

fn forget(setup: &Setup, provider: &str) -> Result<u8, CliError> {
    refuse_in_jail(&format!("forget {provider}"))?;
    let paths = paths(setup)?;
    let file = credentials::file(paths);
    // Nothing is to be made for a key that is not there.
    let stored = Store::read(&file).map_err(|error| bad(&error))?;
    let gone = if stored.keys.contains_key(provider) {
        Store::change(paths, |store| match store.keys.remove(provider) {
            Some(_) => Ok(()),
            None => Err(BadStore::NotThere(provider.to_owned())),
        })
    } else {
        Err(BadStore::NotThere(provider.to_owned()))
    };
    gone.map_err(|error| match error {
        BadStore::NotThere(_) => CliError::config(format!("{error} in `{}`", file.display()))
            .hint("`kli auth status` prints where keys come from"),
        other => bad(&other),
    })?;
    terminal::note(&format!("kli: the key of `{provider}` is gone from `{}`", file.display()));
    Ok(0)
}

fn bad(error: &BadStore) -> CliError {
    CliError::config(error.to_string())
}

fn paths(setup: &Setup) -> Result<&Paths, CliError> {
    setup
        .paths
        .as_ref()
        .ok_or_else(|| CliError::config("no home directory is known; set HOME to an absolute path"))
}

fn refuse_in_jail(what: &str) -> Result<(), CliError> {
    if Host::default().is_jailed() {
        return Err(CliError::config("kli's configuration cannot be written inside the jail")
            .hint(format!("outside it, run `kli-admin auth {what}`")));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_one_line_that_a_header_carries_is_a_key() {
        for fine in ["sk-1", " sk-1\r\n", "sk-1\n", &"x".repeat(LONGEST_KEY)] {
            assert_eq!(check(fine.as_bytes()).ok().unwrap().as_str(), fine.trim());
        }
        let long = "x".repeat(LONGEST_KEY + 1);
        for (wrong, part) in [
            (&b""[..], "is empty"),
            (b" \r\n\n", "is empty"),
            (b"a\nb", "more than one line"),
            (b"a\rb", "more than one line"),
            (long.as_bytes(), "longer than 4096 bytes"),
            (b"a\x07b", "a character that no key has"),
            (b"a\xffb", "a character that no key has"),
            ("ключ".as_bytes(), "a character that no key has"),
        ] {
            let error = check(wrong).err().unwrap();
            assert_eq!(error.exit, 2);
            assert!(error.fault.message.contains(part), "{error:?}");
        }
    }
}
