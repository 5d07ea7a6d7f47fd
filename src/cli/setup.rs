//! From files, variables and flags to the settings of this run, and to the one subject.

use std::path::{Path, PathBuf};

use crate::{
    authority::{Atom, BUILT_IN, Narrowing, Source, Subject, built_in},
    config::{self, Flags, Layer, Paths, Settings, names},
    host::{self, environment::Environment, files},
};

use super::{args::RunArguments, error::CliError};

/// What the composition root knows before it decides anything.
#[derive(Debug)]
pub(crate) struct Setup {
    pub(crate) environment: Environment,
    pub(crate) paths: Option<Paths>,
    pub(crate) settings: Settings,
    /// What people should know and that stops nothing: unknown keys.
    pub(crate) warnings: Vec<String>,
    /// The physical current directory.
    pub(crate) workspace: PathBuf,
}

impl Setup {
    /// Reads every layer.
    ///
    /// # Errors
    /// For a file or a flag that cannot be read, and for values that do not go together.
    pub(crate) fn read(run: &RunArguments) -> Result<Self, CliError> {
        let environment = Environment::read();
        let workspace = host::environment::current_directory().map_err(|error| {
            CliError::config(format!("cannot tell the current directory: {error}"))
        })?;
        let paths = Paths::new(
            environment.home().as_deref(),
            environment.var_os(names::XDG_CONFIG_HOME),
            environment.var_os(names::XDG_STATE_HOME),
        )
        .ok();
        let mut settings = Settings::default();
        let mut warnings = Vec::new();
        if let Some(baked) = environment.var_os(names::KLI_BAKED).filter(|dir| !dir.is_empty()) {
            let baked = Path::new(baked);
            if !baked.is_absolute() {
                return Err(CliError::config(format!(
                    "`{}` is `{}`, which is no absolute path; unset it or name the directory in full",
                    names::KLI_BAKED,
                    baked.display()
                )));
            }
            let file = Paths::baked_settings(baked);
            let layer = read_file(&file, Layer::Baked, &mut warnings)?.ok_or_else(|| {
                CliError::config(format!(
                    "the baked configuration `{}` is not there; unset {} or build the package anew",
                    file.display(),
                    names::KLI_BAKED
                ))
            })?;
            settings = layer.over(settings);
        }
        if let Some(paths) = &paths
            && let Some(layer) = read_file(&paths.settings(), Layer::User, &mut warnings)?
        {
            settings = layer.over(settings);
        }
        for (variable, provider) in config::ADDRESSES {
            let address = Settings::from_environment(provider, environment.var(variable))
                .map_err(|error| CliError::config(format!("{variable}: {error}")))?;
            settings = address.over(settings);
        }
        let flags = Flags {
            model: run.model.clone(),
            profile: run.profile.clone(),
            capabilities: run.capabilities.clone(),
            max_turns: run.max_turns.clone(),
            max_tokens: run.max_tokens.clone(),
            timeout: run.timeout.clone(),
        };
        let flags = flags.settings().map_err(|error| CliError::config(error.to_string()))?;
        settings = flags.over(settings);
        settings.check().map_err(|error| CliError::config(error.to_string()))?;
        Ok(Self { environment, paths, settings, warnings, workspace })
    }

    /// Returns the profile of this run.
    pub(crate) fn profile(&self) -> &str {
        self.settings.profile.get().map_or("print", String::as_str)
    }

    /// Computes what this run may do. The preview prints this value, and every call of the run is
    /// checked against it: there is no other way to a subject.
    ///
    /// # Errors
    /// For a profile that does not exist.
    pub(crate) fn subject(&self, run: &RunArguments) -> Result<Subject, CliError> {
        let resolve = |path: &str| self.physical(path);
        let (flags, files): (Vec<_>, Vec<_>) = self
            .settings
            .capabilities
            .iter()
            .partition(|(source, _)| matches!(source, Source::Flag(_)));
        let lists = |lists: Vec<&(Source, crate::authority::List)>| {
            lists
                .into_iter()
                .map(|(source, list)| (source.clone(), list.narrowing(resolve)))
                .collect::<Vec<_>>()
        };
        let mut layers = lists(files);
        let profile = self.profile();
        let narrowings = built_in(profile).ok_or_else(|| {
            let names: Vec<&str> = BUILT_IN.iter().map(|profile| profile.name).collect();
            CliError::config(format!(
                "unknown profile `{profile}`; the profiles are {}",
                names.join(", ")
            ))
        })?;
        layers.extend(
            narrowings
                .into_iter()
                .map(|narrowing| (Source::Profile(profile.to_owned()), narrowing)),
        );
        let flag = |name: &str| Source::Flag(name.to_owned());
        if run.read_only {
            layers.push((flag("--read-only"), Narrowing::ReadOnly));
        }
        if run.no_bash {
            layers.push((flag("--no-bash"), Narrowing::Drop(vec![Atom::ProcessExec])));
        }
        if run.no_eval {
            layers.push((flag("--no-eval"), Narrowing::Drop(vec![Atom::ImageEval])));
        }
        layers.extend(lists(flags));
        Ok(Subject::new(layers))
    }

    /// Returns the physical path that a written one stands for, as far as it is there.
    fn physical(&self, path: &str) -> PathBuf {
        physical(&self.spelled(path).unwrap_or_else(|_| self.workspace.join(path)))
    }

    /// Returns the path that a setting spells: absolute, from `~/`, or from the workspace.
    ///
    /// # Errors
    /// For `~/` without a home.
    pub(crate) fn spelled(&self, path: &str) -> Result<PathBuf, CliError> {
        match path.strip_prefix("~/").or((path == "~").then_some("")) {
            Some(rest) => self.environment.home().map(|home| home.join(rest)).ok_or_else(|| {
                CliError::config(format!("`{path}` needs a home; set HOME to an absolute path"))
            }),
            None => Ok(self.workspace.join(path)),
        }
    }
}

/// Reads one settings file; `None` when there is none.
pub(crate) fn read_file(
    file: &Path,
    layer: Layer,
    warnings: &mut Vec<String>,
) -> Result<Option<Settings>, CliError> {
    let Some(bytes) = read_small(file, config::MAX_BYTES)? else {
        return Ok(None);
    };
    let (settings, found) = Settings::parse(&file.display().to_string(), &bytes, layer)
        .map_err(|error| CliError::config(error.to_string()))?;
    warnings.extend(found.iter().map(ToString::to_string));
    Ok(Some(settings))
}

/// Returns the physical path that an absolute one stands for; one that cannot be looked at stands
/// for itself.
pub(crate) fn physical(path: &Path) -> PathBuf {
    files::resolve(path, Path::new("/"), None).unwrap_or_else(|_| path.to_owned())
}

/// Reads a small regular file, through links; `None` when there is none.
///
/// # Errors
/// A sentence for what is no regular file, longer than `limit` bytes, behind a link that leads
/// nowhere, or cannot be read.
pub(crate) fn read_small(file: &Path, limit: usize) -> Result<Option<Vec<u8>>, CliError> {
    let limit = limit as u64;
    let read = files::resolve(file, Path::new("/"), None)
        .and_then(|physical| files::read_whole(&physical, limit));
    match read {
        Ok(Some((bytes, _))) => Ok(Some(bytes)),
        Ok(None) => Err(CliError::config(format!(
            "`{}` is longer than {limit} bytes; name the right file",
            file.display()
        ))),
        Err(error) if error.errno() == Some(libc::ENOENT) => match files::dead_link(file) {
            // Someone meant a file to be there: what it says (narrower authority, for one) must not
            // be left out in silence.
            Some(link) => Err(CliError::config(format!(
                "`{}` is a link that leads nowhere, so `{}` cannot be read; mend or remove the link",
                link.display(),
                file.display()
            ))),
            None => Ok(None),
        },
        Err(error) => Err(CliError::config(error.sentence())),
    }
}
