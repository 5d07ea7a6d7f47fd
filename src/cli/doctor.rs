//! `kli doctor`: what could stop a run, with the repair, and what stays risky here.
//!
//! It starts nothing but the launcher, on the launcher's own program; it runs nothing of the
//! project, asks no model, sends nothing beyond this machine, prints no value of a secret and reads
//! none. Settings that cannot be read are a finding, not its end. `docs/doctor.md` lists the checks
//! and the risks by their names.

mod configuration;
mod launcher;
mod model;
mod report;
mod risks;
mod secrets;
mod surroundings;

use std::path::{Path, PathBuf};

use crate::{
    authority::Confinement,
    config::Paths,
    host::{
        confinement::{self, Signs},
        environment::{self, Environment},
        examine,
        secrets::Handed,
    },
    sandbox::facts,
};

use super::{
    args::RunArguments,
    error::CliError,
    setup::{self, Setup},
};

pub(super) use model::is_here;
use report::Report;

/// Runs `kli doctor`: 0 when nothing would stop a run, 1 when something would.
///
/// # Errors
/// When the report cannot be put into JSON.
pub(crate) fn run(json: bool, handed: &Handed) -> Result<u8, CliError> {
    let here = Here::look(handed);
    let mut checks = surroundings::about(&here);
    checks.extend(configuration::checks(&here));
    checks.extend(surroundings::checks(&here));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| CliError::internal(format!("cannot start the checks: {error}")))?;
    checks.extend(model::checks(&here, &runtime));
    let launcher = launcher::checks(&here, &runtime);
    checks.extend(launcher.findings);
    if let Some(code) = launcher.interrupted {
        return Ok(code);
    }
    let report = Report::new(checks, risks::find(&here));
    report.print(json)?;
    Ok(u8::from(!report.ok))
}

/// What every check looks at; gathered once.
struct Here<'a> {
    /// What a launcher handed over.
    handed: &'a Handed,
    environment: Environment,
    /// The physical current directory, or why there is none.
    workspace: Result<PathBuf, String>,
    /// The nearest directory upwards that has a `.git`.
    repository: Option<PathBuf>,
    paths: Option<Paths>,
    /// `$HOME` and the account's home, without duplicates.
    homes: Vec<PathBuf>,
    confinement: Confinement,
    /// What the launcher told about the jail around this process.
    jail: Option<Jail>,
    setup: Result<Setup, CliError>,
    user: u32,
}

/// What the marker tells.
struct Jail {
    network: bool,
    /// Whether abstract sockets of the host can be reached.
    sockets: bool,
    workspace: String,
    writable: Vec<String>,
    hidden: u64,
    removed: u64,
}

impl Jail {
    fn read(marker: &str) -> Option<Self> {
        let marker: serde_json::Value = serde_json::from_str(marker).ok()?;
        let number = |key: &str| marker.get(key).and_then(serde_json::Value::as_u64).unwrap_or(0);
        let text = |value: &serde_json::Value| value.as_str().map(str::to_owned);
        Some(Self {
            // One that does not say so is taken for open: the report must not be too good.
            network: marker.get("network") != Some(&serde_json::Value::Bool(false)),
            sockets: !marker
                .get("abstractSockets")
                .and_then(serde_json::Value::as_str)
                .is_some_and(|word| ["own network", "scoped", "no sockets"].contains(&word)),
            workspace: marker.get("workspace").and_then(text).unwrap_or_default(),
            writable: marker
                .get("writablePaths")
                .and_then(serde_json::Value::as_array)
                .map(|paths| paths.iter().filter_map(text).collect())
                .unwrap_or_default(),
            hidden: number("hiddenPaths"),
            removed: number("deniedVariables"),
        })
    }
}

impl<'a> Here<'a> {
    fn look(handed: &'a Handed) -> Self {
        let environment = Environment::read();
        let workspace = environment::current_directory().map_err(|error| error.to_string());
        let repository =
            workspace.as_deref().ok().and_then(examine::repository).map(Path::to_path_buf);
        let paths = setup::paths(&environment).ok();
        let user = examine::user();
        let mut homes: Vec<PathBuf> = environment.home().into_iter().collect();
        if let Some(home) = facts::account_home(user)
            && home.is_absolute()
            && home != Path::new("/")
            && !homes.iter().any(|known| examine::is_same(known, &home))
        {
            homes.push(home);
        }
        let signs = Signs::read(&environment);
        let confinement = confinement::judge(&signs);
        let jail = (confinement == Confinement::KliSandbox)
            .then(|| signs.marker.as_deref().and_then(Jail::read))
            .flatten();
        let setup = Setup::read(&RunArguments::default());
        Self {
            handed,
            environment,
            workspace,
            repository,
            paths,
            homes,
            confinement,
            jail,
            setup,
            user,
        }
    }

    /// The directories that the project could have filled: the repository, or the workspace.
    fn project(&self) -> Vec<PathBuf> {
        // Started from the root or the home, everything is in the workspace: that is no project.
        let whole = |path: &PathBuf| path.parent().is_none() || self.homes.contains(path);
        self.repository
            .iter()
            .chain(self.workspace.as_ref().ok())
            .filter(|path| !whole(path))
            .cloned()
            .collect()
    }
}
