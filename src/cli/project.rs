//! The project: where it begins, what its settings file says, and whether a person trusts it.
//!
//! Nothing of a project is run to learn this, git neither: files are looked at and read.

use std::{
    collections::BTreeMap,
    path::{Component, Path, PathBuf},
};

use sha2::{Digest as _, Sha256};

use crate::{
    config::{self, Layer, Parsed, Paths, Scope, Settings, keys},
    host::{examine, files, state},
};

use super::{error::CliError, setup::physical, trust};

/// The most files that a project's settings may name.
const MOST_FILES: usize = 256;
/// The largest file that they may name, in bytes.
const LARGEST: u64 = 16 << 20;

/// A project's settings file, as it was read.
#[derive(Clone, Debug)]
pub(crate) struct Project {
    /// The directory that it speaks for: the repository's root, else the workspace. Physical.
    pub(crate) root: PathBuf,
    /// The file.
    pub(crate) file: PathBuf,
    /// Its bytes; `None` when there is no file.
    bytes: Option<Vec<u8>>,
    /// The files beside it that change the system prompt once the project is trusted, as they were
    /// read, or why they cannot be.
    prompts: Vec<(PathBuf, Result<Vec<u8>, String>)>,
}

/// Returns the nearest directory with a `.git` in it, else the workspace.
pub(crate) fn root(workspace: &Path) -> PathBuf {
    examine::repository(workspace).unwrap_or(workspace).to_owned()
}

impl Project {
    /// Reads the settings file of the project around a directory.
    ///
    /// # Errors
    /// For a file that is there and cannot be read: it may have meant to narrow the run.
    pub(crate) fn read(workspace: &Path) -> Result<Self, CliError> {
        let root = root(workspace);
        let file = Paths::project_settings(&root);
        let bytes = read(&root, &file)?;
        let place = file.parent().unwrap_or(&root);
        let prompts = [Paths::system(place), Paths::append_system(place)]
            .into_iter()
            .filter_map(|file| {
                // One that is not trusted must not stop a run.
                let read = read(&root, &file).map_err(|error| error.fault.message).transpose()?;
                Some((file, read))
            })
            .collect();
        Ok(Self { root, file, bytes, prompts })
    }

    /// Returns what a file beside the settings says about the system prompt; `None` when there is no
    /// such file. Only a trusted project is to be asked.
    ///
    /// # Errors
    /// For a file that cannot be read, or is no UTF-8.
    pub(crate) fn prompt(&self, of: fn(&Path) -> PathBuf) -> Result<Option<String>, CliError> {
        let wanted = of(self.file.parent().unwrap_or(&self.root));
        let Some((file, read)) = self.prompts.iter().find(|(file, _)| *file == wanted) else {
            return Ok(None);
        };
        let bytes = read.clone().map_err(CliError::config)?;
        String::from_utf8(bytes).map(Some).map_err(|_| {
            CliError::config(format!("`{}` is not UTF-8; write it anew as UTF-8", file.display()))
        })
    }

    /// Returns the notice about files that count only once the project is trusted.
    pub(crate) fn prompts_notice(&self) -> Option<String> {
        let names: Vec<String> =
            self.prompts.iter().map(|(file, _)| format!("`{}`", file.display())).collect();
        (!names.is_empty()).then(|| {
            let verb = if names.len() == 1 { "is" } else { "are" };
            format!("{} {verb} ignored until you trust the project (`kli trust`)", names.join(", "))
        })
    }

    /// Says whether there is a settings file, or one that changes the system prompt.
    pub(crate) fn is_there(&self) -> bool {
        self.bytes.is_some() || !self.prompts.is_empty()
    }

    /// Reads what the file says, as far as the scope allows.
    ///
    /// # Errors
    /// For a file that cannot be understood.
    pub(crate) fn parse(&self, scope: Scope) -> Result<Parsed, CliError> {
        let Some(bytes) = &self.bytes else { return Ok(Parsed::default()) };
        Settings::parse_scoped(&self.file.display().to_string(), bytes, Layer::Project, scope)
            .map_err(|error| CliError::config(error.to_string()))
    }

    /// Returns the digest of the settings file and of every file in the project that it names: what
    /// trusting the project activates.
    ///
    /// # Errors
    /// For what cannot be read, leads out of the project, or is too much.
    pub(crate) fn digests(
        &self,
        home: Option<&Path>,
    ) -> Result<BTreeMap<String, String>, CliError> {
        let mut found = BTreeMap::new();
        for (file, read) in &self.prompts {
            let bytes = read.clone().map_err(CliError::config)?;
            found.insert(self.name(file)?, digest(&bytes));
        }
        let Some(bytes) = &self.bytes else { return Ok(found) };
        found.insert(self.name(&self.file)?, digest(bytes));
        let value = config::plain(&self.file.display().to_string(), bytes)
            .map_err(|error| CliError::config(error.to_string()))?;
        let mut texts = Vec::new();
        for (name, value) in value.as_object().into_iter().flatten() {
            let harmless = keys::find(keys::SETTINGS, name).is_some_and(|row| row.project);
            if !harmless {
                strings(value, &mut texts);
            }
        }
        for text in texts {
            for name in names_in(text) {
                self.add(name, home, &mut found)?;
            }
        }
        Ok(found)
    }

    /// Adds the file or directory that a text names, when it names one in the project.
    fn add(
        &self,
        text: &str,
        home: Option<&Path>,
        found: &mut BTreeMap<String, String>,
    ) -> Result<(), CliError> {
        let spelled = match (text.strip_prefix("~/"), home) {
            (Some(rest), Some(home)) => home.join(rest),
            _ => self.root.join(text),
        };
        // A text that cannot be a path, or names nothing, names no file.
        let Ok(real) = files::resolve(&spelled, Path::new("/"), None) else { return Ok(()) };
        let within = plain(&spelled).is_some_and(|path| path.starts_with(&self.root));
        if real.starts_with(&self.root) {
            self.add_tree(&real, found)
        } else if within && state::metadata(&real).is_ok() {
            Err(CliError::config(format!(
                "`{}` leads out of the project, to `{}`, so a digest would not hold it; name that \
                 file itself in your own settings",
                spelled.display(),
                real.display()
            )))
        } else {
            Ok(())
        }
    }

    fn add_tree(&self, start: &Path, found: &mut BTreeMap<String, String>) -> Result<(), CliError> {
        let fail = |error: crate::host::HostError| CliError::config(error.sentence());
        let mut open = vec![start.to_owned()];
        while let Some(path) = open.pop() {
            let Ok(meta) = state::metadata(&path) else { continue };
            if found.len() + open.len() >= MOST_FILES {
                return Err(CliError::config(format!(
                    "the settings of the project name more than {MOST_FILES} files (`{}`), too many \
                     to hold a person to; name single files",
                    start.display()
                )));
            }
            if meta.is_dir() {
                let names = state::read_dir(&path).map_err(fail)?;
                open.extend(names.iter().map(|name| path.join(name)));
            } else if meta.is_file() {
                let Some((bytes, _)) = files::read_whole(&path, LARGEST).map_err(fail)? else {
                    return Err(CliError::config(format!(
                        "`{}` is longer than {LARGEST} bytes; the settings of a project cannot name it",
                        path.display()
                    )));
                };
                found.insert(self.name(&path)?, digest(&bytes));
            } else {
                // A link is held by where it leads, which is looked at only when it is named itself.
                return Err(CliError::config(format!(
                    "`{}` is neither a file nor a directory, so the project cannot be trusted with it",
                    path.display()
                )));
            }
        }
        Ok(())
    }

    fn name(&self, path: &Path) -> Result<String, CliError> {
        let relative = path.strip_prefix(&self.root).unwrap_or(path);
        relative.to_str().map(str::to_owned).ok_or_else(|| {
            CliError::config(format!(
                "the name of `{}` is no text, so it cannot be written down; rename it",
                path.display()
            ))
        })
    }

    /// Says whether the project is trusted as it is now, by what was recorded.
    ///
    /// # Errors
    /// A sentence for a record that cannot be believed: then nothing is trusted.
    pub(crate) fn is_trusted(&self, paths: &Paths, home: Option<&Path>) -> Result<bool, CliError> {
        let records = trust::Records::read(&paths.trust())?;
        let Some(recorded) = records.of(&self.root) else { return Ok(false) };
        // What cannot be digested is not what was trusted.
        Ok(self.digests(home).is_ok_and(|now| now == *recorded))
    }
}

/// Reads the settings file of a project, without leaving the project and without waiting.
fn read(root: &Path, file: &Path) -> Result<Option<Vec<u8>>, CliError> {
    let repair = "; mend or remove it, as it may be meant to narrow what a run may do";
    let wrong = |what: String| Err(CliError::config(format!("{what}{repair}")));
    let real = match files::resolve(file, Path::new("/"), None) {
        Ok(real) => real,
        Err(error) => return wrong(error.sentence()),
    };
    if !real.starts_with(root) {
        return wrong(format!(
            "the project's settings `{}` lead out of the project",
            file.display()
        ));
    }
    match files::read_whole(&real, config::MAX_BYTES as u64) {
        Ok(Some((bytes, _))) => Ok(Some(bytes)),
        Ok(None) => wrong(format!(
            "the project's settings `{}` are longer than {} bytes",
            file.display(),
            config::MAX_BYTES
        )),
        Err(error) if error.errno() == Some(libc::ENOENT) => match files::dead_link(file) {
            Some(link) => wrong(format!("`{}` is a link that leads nowhere", link.display())),
            None => Ok(None),
        },
        Err(error) => wrong(error.sentence()),
    }
}

/// Returns a path without `.` and `..`, by its words alone.
fn plain(path: &Path) -> Option<PathBuf> {
    let mut out = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => {
                if !out.pop() {
                    return None;
                }
            }
            Component::CurDir => {}
            other => out.push(other),
        }
    }
    Some(out)
}

fn strings<'a>(value: &'a serde_json::Value, found: &mut Vec<&'a str>) {
    match value {
        serde_json::Value::String(text) if !text.is_empty() => found.push(text),
        serde_json::Value::Array(items) => items.iter().for_each(|item| strings(item, found)),
        serde_json::Value::Object(map) => map.values().for_each(|item| strings(item, found)),
        _ => {}
    }
}

/// Returns what in a text may name a file: all of it, and each of its words with a slash in it
/// (`PATH=/app/tools:/usr/bin`, `sh -c '. ./env; exec ./key'`). What a program makes of a word cannot
/// be told, so a change of more than what it runs may ask again.
fn names_in(text: &str) -> impl Iterator<Item = &str> {
    let apart = |c: char| c.is_whitespace() || ":;,=|&<>()'\"`".contains(c);
    let words = text.split(apart).filter(move |word| word.contains('/') && *word != text);
    std::iter::once(text).chain(words)
}

fn digest(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    Sha256::digest(bytes).iter().fold(String::from("sha256:"), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Returns the one notice about a project that says more than it may.
pub(crate) fn notice(project: &Project, ignored: &[String]) -> Option<String> {
    if ignored.is_empty() {
        return None;
    }
    let names = first_few(ignored.iter().map(|name| format!("`{name}`")).collect());
    Some(format!(
        "the project's settings `{}` also name {}: ignored until you trust the project (`kli trust`)",
        physical(&project.file).display(),
        names
    ))
}

/// Returns the first few of some names, and how many more there are.
pub(super) fn first_few(mut names: Vec<String>) -> String {
    const SHOWN: usize = 12;
    if let Some(more) = names.len().checked_sub(SHOWN).filter(|more| *more > 0) {
        names.truncate(SHOWN);
        names.push(format!("{more} more"));
    }
    names.join(", ")
}
