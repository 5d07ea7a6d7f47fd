//! `kli trust`: which projects may do more than narrow. A record holds the project's physical path
//! and the digest of every file that trusting it activates, so that any change asks again.

use std::{
    collections::BTreeMap,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};

use crate::{
    authority::Grant,
    config::{Paths, Scope, Settings, keys},
    host::{Host, environment, state},
};

use super::{
    args::RunArguments,
    error::CliError,
    project::{Project, first_few},
    setup::{Setup, physical, read_small},
    terminal,
};

/// The largest record that is read, in bytes.
const MAX_BYTES: usize = 4 << 20;
/// How long another `kli trust` is waited for.
const PATIENCE: Duration = Duration::from_secs(5);

/// What is trusted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Records {
    version: u32,
    /// Physical path of the project -> path in it -> digest.
    projects: BTreeMap<String, BTreeMap<String, String>>,
}

impl Records {
    /// Reads the record.
    ///
    /// # Errors
    /// For one that cannot be read, or that others can write.
    pub(crate) fn read(file: &Path) -> Result<Self, CliError> {
        let Some(bytes) = read_small(file, MAX_BYTES)? else { return Ok(Self::default()) };
        let wrong = |what: &str| {
            CliError::config(format!(
                "the record of trusted projects `{}` {what}, so nothing is trusted; remove it and \
                 trust again",
                file.display()
            ))
        };
        let others = state::metadata(&physical(file)).is_ok_and(|meta| meta.mode() & 0o022 != 0);
        if others {
            return Err(wrong("can be written by others"));
        }
        let records: Self =
            serde_json::from_slice(&bytes).map_err(|_| wrong("cannot be understood"))?;
        if records.version != 1 {
            return Err(wrong("is of another version"));
        }
        Ok(records)
    }

    /// Returns what was recorded of a project.
    pub(crate) fn of(&self, root: &Path) -> Option<&BTreeMap<String, String>> {
        self.projects.get(root.to_str()?)
    }
}

/// Runs `kli trust`.
///
/// # Errors
/// A sentence that names the repair.
pub(crate) fn run(list: bool, revoke: bool, directory: Option<&Path>) -> Result<u8, CliError> {
    let environment = environment::Environment::read();
    let paths = super::setup::paths(&environment).map_err(|_| {
        CliError::config("no home directory is known; set HOME to an absolute path")
    })?;
    if list {
        return print_list(&paths, environment.home().as_deref());
    }
    if Host::default().is_jailed() {
        return Err(CliError::config(
            "inside the sandbox nothing can be trusted: what runs here could say so itself",
        )
        .hint("run `kli-admin trust` outside the sandbox"));
    }
    let here = environment::current_directory()
        .map_err(|error| CliError::config(format!("cannot tell the current directory: {error}")))?;
    let directory = physical(&directory.map_or_else(|| here.clone(), |path| here.join(path)));
    if revoke {
        return remove(&paths, &directory);
    }
    if !state::metadata(&directory).is_ok_and(|meta| meta.is_dir()) {
        return Err(CliError::config(format!(
            "there is no directory `{}`; name the project's",
            directory.display()
        )));
    }
    add(&paths, &directory, environment.home().as_deref())
}

fn add(paths: &Paths, directory: &Path, home: Option<&Path>) -> Result<u8, CliError> {
    // The policy may forbid it, and what the user's own settings get wrong is said first.
    let setup = Setup::read(&RunArguments::default())?;
    if !setup.may_trust() {
        return Err(CliError::config(crate::config::Forbidden::Trust.to_string()));
    }
    let project = Project::read(directory)?;
    if !project.is_there() {
        return Err(CliError::config(format!(
            "there is nothing to trust: the project has no `{}`",
            project.file.display()
        )));
    }
    let root = project.root.to_str().map(str::to_owned).ok_or_else(|| {
        CliError::config(format!(
            "the path `{}` is no text, so it cannot be written down; rename the directory",
            project.root.display()
        ))
    })?;
    let parsed = project.parse(Scope::Whole)?;
    let digests = project.digests(home)?;
    for warning in &parsed.warnings {
        terminal::note(&format!("kli: {warning}"));
    }
    let mut lines =
        vec![format!("`{root}` may set from now on, until one of these files changes:")];
    lines.extend(in_words(&project, &parsed.settings)?.iter().map(|line| format!("  {line}")));
    lines.extend(digests.iter().map(|(name, digest)| format!("  file {name}  {digest}")));
    print_lines(&lines);
    change(paths, |records| {
        records.projects.insert(root.clone(), digests);
        Ok(())
    })?;
    terminal::out(&format!("trusted: {root}\n"));
    Ok(0)
}

/// Returns what a project's settings would set, a line each, whole: whoever trusts it must see the
/// command that it brings, to its end. Only the values of headers are left out.
fn in_words(project: &Project, settings: &Settings) -> Result<Vec<String>, CliError> {
    let mut lines = Vec::new();
    for shown in settings.shown_whole() {
        let value = &shown.value;
        // What it sets; what may be written there is not asked here.
        let about = shown.row.about.split([';', ',', '(', ':']).next().unwrap_or_default();
        lines.push(if about.starts_with('`') {
            format!("{} = {value}", shown.key)
        } else {
            format!("{} = {value}  ({})", shown.key, about.trim_end())
        });
    }
    let without_meaning: Vec<String> = project
        .parse(Scope::Project)?
        .ignored
        .into_iter()
        .filter(|name| {
            keys::find(keys::SETTINGS, name).is_none_or(|row| row.shape == keys::Shape::Later)
        })
        .collect();
    if !without_meaning.is_empty() {
        lines.push(format!("{}  (not part of this version)", first_few(without_meaning)));
    }
    Ok(lines)
}

fn remove(paths: &Paths, directory: &Path) -> Result<u8, CliError> {
    // The project may be gone, or its file may be broken: it is the path that was recorded.
    let root = super::project::root(directory);
    let mut gone = None;
    change(paths, |records| {
        for candidate in [directory, root.as_path()] {
            if let Some(name) = candidate.to_str()
                && records.projects.remove(name).is_some()
            {
                gone = Some(name.to_owned());
                return Ok(());
            }
        }
        Err(CliError::config(format!("`{}` is not trusted", directory.display()))
            .hint("`kli trust --list` prints what is"))
    })?;
    terminal::out(&format!("no longer trusted: {}\n", gone.unwrap_or_default()));
    Ok(0)
}

fn print_list(paths: &Paths, home: Option<&Path>) -> Result<u8, CliError> {
    let records = Records::read(&paths.trust())?;
    let mut lines = Vec::new();
    for (root, recorded) in &records.projects {
        let now = Project::read(Path::new(root));
        let state = match &now {
            Ok(project) if project.root != Path::new(root) || !project.is_there() => {
                "gone: not trusted"
            }
            Ok(project) if project.digests(home).is_ok_and(|now| now == *recorded) => "trusted",
            Ok(_) => "changed since: not trusted",
            Err(_) => "cannot be read: not trusted",
        };
        lines.push(format!("{root}  ({state})"));
    }
    if lines.is_empty() {
        lines.push("no project is trusted".to_owned());
    }
    print_lines(&lines);
    // What the project around here would say more is said here as everywhere.
    if let Ok(setup) = Setup::read(&RunArguments::default()) {
        for warning in &setup.warnings {
            terminal::note(&format!("kli: {warning}"));
        }
    }
    Ok(0)
}

/// Prints lines, each as one: names of files may hold anything.
fn print_lines(lines: &[String]) {
    let text: String =
        lines.iter().flat_map(|line| [terminal::one_line(line), "\n".to_owned()]).collect();
    terminal::out(&text);
}

/// Changes the record, one process at a time; whoever reads it sees the old one or the new one.
fn change(
    paths: &Paths,
    act: impl FnOnce(&mut Records) -> Result<(), CliError>,
) -> Result<(), CliError> {
    let file: PathBuf = paths.trust();
    let fail = |error: crate::host::HostError| CliError::config(error.sentence());
    let grant = Grant::own_state(paths.config());
    state::create_dir(&grant, paths.config()).map_err(fail)?;
    let lock = state::open_append(&grant, &paths.config().join("trust.lock")).map_err(fail)?;
    let start = Instant::now();
    while !lock.try_lock().map_err(fail)? {
        if start.elapsed() > PATIENCE {
            return Err(CliError::config(format!(
                "another `kli trust` holds `{}`; wait until it has ended",
                lock.path().display()
            )));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    if state::metadata(&file).is_ok_and(|meta| meta.is_symlink()) {
        return Err(CliError::config(format!(
            "`{}` is a link, which kli does not replace; trust is declared where it leads, or \
             remove the link",
            file.display()
        )));
    }
    let mut records = Records::read(&file)?;
    records.version = 1;
    act(&mut records)?;
    let mut bytes = serde_json::to_vec_pretty(&records)
        .map_err(|error| CliError::internal(format!("cannot write the record: {error}")))?;
    bytes.push(b'\n');
    state::write_atomic(&grant, &file, &bytes).map_err(fail)
}
