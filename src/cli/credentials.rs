//! Where the key of a provider comes from, in one stated order: what a launcher handed over, the
//! variable, the file, the command, the store. `docs/credentials.md` says the same.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use tokio::runtime::Runtime;
use zeroize::Zeroizing;

use crate::{
    config::{KeySources, Paths},
    host::{
        Host,
        secrets::{self, Handed, StoreError},
    },
    message::Redactor,
    model::catalogue::Secret,
};

use super::{
    error::CliError,
    setup::{Setup, read_small},
    signals::Signals,
};

/// The largest key file, in bytes.
const KEY_FILE_LIMIT: usize = 64 * 1024;

/// The keys of one run. Each is looked for once, so a command is run once.
pub(crate) struct Keys<'a> {
    setup: &'a Setup,
    handed: &'a Handed,
    runtime: &'a Runtime,
    signals: &'a mut Signals,
    found: BTreeMap<String, Option<Secret>>,
    values: Vec<Zeroizing<String>>,
    interrupted: Option<u8>,
}

impl<'a> Keys<'a> {
    /// Returns a finder that has looked for nothing yet.
    pub(crate) fn new(
        setup: &'a Setup,
        handed: &'a Handed,
        runtime: &'a Runtime,
        signals: &'a mut Signals,
    ) -> Self {
        Self {
            setup,
            handed,
            runtime,
            signals,
            found: BTreeMap::new(),
            values: Vec::new(),
            interrupted: None,
        }
    }

    /// Returns a provider's key from the first source that has one. A later source never stands in
    /// for an earlier one that is set and cannot be read.
    ///
    /// # Errors
    /// For a source that is set and gives no key.
    pub(crate) fn key(
        &mut self,
        provider: &str,
        sources: KeySources<'_>,
    ) -> Result<Option<Secret>, CliError> {
        if let Some(found) = self.found.get(provider) {
            return Ok(found.clone());
        }
        let value = self.look(provider, sources)?;
        let secret = value.as_ref().map(|value| Secret::new(value));
        self.values.extend(value);
        self.found.insert(provider.to_owned(), secret.clone());
        Ok(secret)
    }

    fn look(
        &mut self,
        provider: &str,
        sources: KeySources<'_>,
    ) -> Result<Option<Zeroizing<String>>, CliError> {
        if let Some(value) = sources.env.and_then(|name| self.handed.get(name)) {
            return Ok(Some(Zeroizing::new(value.to_owned())));
        }
        if let Some(value) =
            sources.env.map(|name| variable(self.setup, name)).transpose()?.flatten()
        {
            return Ok(Some(Zeroizing::new(value.to_owned())));
        }
        if let Some(file) = sources.file {
            return key_file(&self.setup.spelled(file)?).map(Some);
        }
        if let Some(words) = sources.command {
            return self.command(provider, words).map(Some);
        }
        // The same as for `kli auth`: without a home there is no store.
        let Some(paths) = &self.setup.paths else { return Ok(None) };
        Ok(Store::read(&file(paths))
            .map_err(|error| CliError::auth(error.to_string()))?
            .keys
            .remove(provider))
    }

    fn command(&mut self, provider: &str, words: &[String]) -> Result<Zeroizing<String>, CliError> {
        let name = words.first().map(String::as_str).unwrap_or_default();
        let fail = |what: &str| {
            CliError::auth(format!("the key command `{name}` of provider `{provider}` {what}"))
                .hint(format!(
                    "run it by hand, and mend `providers.{provider}.keyCommand` or what it needs"
                ))
        };
        let program = match name.strip_prefix("~/") {
            Some(_) => self.setup.spelled(name)?,
            None => PathBuf::from(name),
        };
        // Not the workspace: what lies there must not steer it.
        let directory = self.setup.environment.home().unwrap_or_else(|| PathBuf::from("/"));
        let (signals, runtime) = (&mut *self.signals, self.runtime);
        let outcome = runtime.block_on(async {
            tokio::select! {
                biased;
                code = signals.next() => Err(code),
                output = secrets::key_command(
                    words, &program, &directory, secrets::COMMAND_TIMEOUT,
                ) => Ok(output),
            }
        });
        let output = match outcome {
            Ok(output) => output.map_err(|error| fail(&error.to_string()))?,
            Err(code) => {
                self.interrupted = Some(code);
                return Err(fail("was interrupted"));
            }
        };
        let text = std::str::from_utf8(&output).map_err(|_| fail("printed what is not text"))?;
        if text.trim().is_empty() {
            return Err(fail("printed nothing"));
        }
        if text.trim().contains(['\n', '\r']) {
            return Err(fail("printed more than one line, and a key is one"));
        }
        Ok(Zeroizing::new(text.trim().to_owned()))
    }

    /// Returns the exit code of a signal that came while a command was waited for.
    pub(crate) fn interrupted(&self) -> Option<u8> {
        self.interrupted
    }

    /// Returns what takes secrets out of what is said: every key that was found, what a launcher
    /// handed over, the values of all variables that are secret by name, and those of headers whose
    /// names say so.
    pub(crate) fn redactor(&self) -> Redactor {
        let settings = &self.setup.settings;
        let variables = settings.secret_variables();
        let variables = variables.iter().filter_map(|name| self.setup.environment.var(name));
        let headers = settings
            .providers
            .values()
            .filter_map(|provider| provider.headers.get())
            .flatten()
            .filter(|(name, _)| is_secret_header(name))
            .flat_map(|(_, value)| {
                // `Bearer TOKEN`: the token alone is as secret.
                [Some(value.as_str()), value.rsplit_once(' ').map(|(_, token)| token)]
            })
            .flatten();
        let found = self.values.iter().map(|value| value.as_str());
        Redactor::new(found.chain(self.handed.values()).chain(variables).chain(headers))
    }
}

/// Returns the command that stores a provider's key, where this process runs.
pub(super) fn set_command(provider: &str) -> String {
    let program = if Host::default().is_jailed() { "kli-admin" } else { "kli" };
    format!("{program} auth set {provider}")
}

fn is_secret_header(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    ["auth", "cookie", "key", "passw", "secret", "token"].iter().any(|part| name.contains(part))
}

/// Returns the key in a variable; an empty one is as good as none.
///
/// # Errors
/// For a value that is no text.
pub(super) fn variable<'a>(setup: &'a Setup, name: &str) -> Result<Option<&'a str>, CliError> {
    let Some(value) = setup.environment.var_os(name).filter(|value| !value.is_empty()) else {
        return Ok(None);
    };
    let text = value.to_str().ok_or_else(|| {
        CliError::auth(format!("the value of the variable `{name}` is not text"))
            .hint("set it anew, or unset it")
    })?;
    Ok(Some(text).filter(|text| !text.trim().is_empty()))
}

/// Returns the key in a file.
///
/// # Errors
/// For one that is not there, is no text, or is empty.
pub(super) fn key_file(file: &Path) -> Result<Zeroizing<String>, CliError> {
    let fail = |what: &str| {
        CliError::auth(format!("the key file `{}` {what}", file.display()))
            .hint("write the key into it, readable by you alone (chmod 600)")
    };
    let bytes = read_small(file, KEY_FILE_LIMIT)?.ok_or_else(|| fail("is not there"))?;
    let bytes = Zeroizing::new(bytes);
    let text = std::str::from_utf8(&bytes).map_err(|_| fail("is not text"))?;
    if text.trim().is_empty() {
        return Err(fail("is empty"));
    }
    Ok(Zeroizing::new(text.trim().to_owned()))
}

/// Returns where keys are kept.
pub(super) fn file(paths: &Paths) -> PathBuf {
    paths.config().join("credentials.json")
}

/// The keys that `kli auth set` keeps. `Debug` is left out on purpose.
#[derive(Default)]
pub(super) struct Store {
    pub(super) keys: BTreeMap<String, Zeroizing<String>>,
}

/// How the file looks.
#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Form<'a> {
    version: u32,
    #[serde(borrow)]
    keys: BTreeMap<std::borrow::Cow<'a, str>, std::borrow::Cow<'a, str>>,
}

/// A store that cannot be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum BadStore {
    #[error(transparent)]
    File(#[from] StoreError),
    #[error(
        "`{file}` holds no keys of this version's (line {line}, column {column}); mend it, or move it away and store the keys again"
    )]
    Form { file: String, line: usize, column: usize },
    #[error("no key of provider `{0}` is stored")]
    NotThere(String),
}

impl Store {
    /// Reads the store; one that is not there is empty.
    ///
    /// # Errors
    /// For a file that others may read, or that holds something else. Nothing of it is shown.
    pub(super) fn read(file: &Path) -> Result<Self, BadStore> {
        match secrets::read_store(file)? {
            Some(bytes) => Self::parse(file, &bytes),
            None => Ok(Self::default()),
        }
    }

    fn parse(file: &Path, bytes: &[u8]) -> Result<Self, BadStore> {
        let bad = |line, column| BadStore::Form { file: file.display().to_string(), line, column };
        let form: Form<'_> =
            serde_json::from_slice(bytes).map_err(|error| bad(error.line(), error.column()))?;
        if form.version != 1 {
            return Err(bad(1, 1));
        }
        let keys = form
            .keys
            .into_iter()
            .map(|(name, key)| (name.into_owned(), Zeroizing::new(key.into_owned())))
            .collect();
        Ok(Self { keys })
    }

    fn text(&self) -> Zeroizing<Vec<u8>> {
        let keys = self
            .keys
            .iter()
            .map(|(name, key)| (name.as_str().into(), key.as_str().into()))
            .collect();
        // Strings cannot fail to serialise.
        let text = serde_json::to_vec_pretty(&Form { version: 1, keys }).unwrap_or_default();
        let mut text = Zeroizing::new(text);
        text.push(b'\n');
        text
    }

    /// Changes the store under its lock, so that what another process changes meanwhile is kept.
    ///
    /// # Errors
    /// As [`Store::read`], and what `change` says; then the file stays as it is.
    pub(super) fn change<T>(
        paths: &Paths,
        change: impl FnOnce(&mut Self) -> Result<T, BadStore>,
    ) -> Result<T, BadStore> {
        let file = file(paths);
        secrets::change_store(paths.config(), &file, |old| {
            let mut store =
                old.map_or_else(|| Ok(Self::default()), |old| Self::parse(&file, old))?;
            let told = change(&mut store)?;
            Ok((store.text(), told))
        })
    }
}
