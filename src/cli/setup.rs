//! From files, variables and flags to the settings of this run, and to the one subject.

use std::path::{Path, PathBuf};

use crate::{
    agent,
    authority::{Confinement, Source, Subject, distance},
    config::{
        self, Choice, Effective, Flags, Forbidden, Layer, Layers, ModelName, Paths, Provider,
        Scope, Settings, Switches, names,
    },
    host::{
        self,
        confinement::{self, Signs},
        environment::Environment,
        files,
    },
};

use super::{
    args::RunArguments,
    display,
    error::CliError,
    policy,
    project::{self, Project},
};

/// The largest file of baked instructions that is read, in bytes.
const CONTEXT_LIMIT: usize = 64 * 1024;

/// What the composition root knows before it decides anything.
#[derive(Clone, Debug)]
pub(crate) struct Setup {
    pub(crate) environment: Environment,
    pub(crate) paths: Option<Paths>,
    pub(crate) settings: Settings,
    /// What people should know and that stops nothing: unknown keys.
    pub(crate) warnings: Vec<String>,
    /// The physical current directory.
    pub(crate) workspace: PathBuf,
    /// The project around it.
    pub(crate) project: Project,
    /// Whether the project's settings count as the user's own.
    pub(crate) trusted: bool,
    /// The policy files that were read.
    pub(crate) policies: Vec<PathBuf>,
    /// The configuration baked into the package.
    pub(crate) baked: Option<PathBuf>,
    /// The instructions that it holds for every run.
    pub(crate) context: Option<String>,
    effective: Effective,
    /// The layers as they were read, for what is chosen later.
    layers: Layers,
    /// Which of them is the display state.
    display: Option<usize>,
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
        let paths = paths(&environment).ok();
        let baked = baked(&environment)?;
        let mut warnings = Vec::new();
        let policies = policy::read(baked.as_deref(), &mut warnings)?;
        let mut layers = Layers {
            files: own_files(&environment, paths.as_ref(), baked.as_deref(), &mut warnings)?,
            flags: flags(run)?,
            switches: Switches {
                read_only: run.read_only,
                no_bash: run.no_bash,
                no_eval: run.no_eval,
            },
            policies: policies.iter().map(|source| source.policy.clone()).collect(),
            default_profile: if run.interactive { "interactive" } else { "print" },
        };
        // The variables come last of the user's own, and right before them what was chosen.
        let display = paths.as_ref().and_then(|_| layers.files.len().checked_sub(2));
        let project = Project::read(&workspace)?;
        let may_trust = layers.policies.iter().all(|policy| policy.trust_projects);
        let trusted =
            trusts(run, &project, paths.as_ref(), &environment, may_trust, &mut warnings)?;
        let known = layers.files.iter().cloned().fold(Settings::default(), |a, b| b.over(a));
        layers.files.push(read_project(&project, trusted, &known, &mut warnings)?);
        let effective =
            layers.clone().settle().map_err(|error| CliError::config(error.to_string()))?;
        let setup = Self {
            settings: effective.settings.clone(),
            policies: policies.into_iter().map(|source| source.file).collect(),
            environment,
            paths,
            warnings,
            workspace,
            project,
            trusted,
            context: baked.as_deref().map(baked_context).transpose()?.flatten(),
            baked,
            effective,
            layers,
            display,
        };
        Ok(setup.with_place_warning().with_tool_warnings())
    }

    /// Returns the same setup after a choice: the layers as they were read are settled anew, so that
    /// nothing that was written since counts, and policies and narrowing layers meet as before.
    ///
    /// # Errors
    /// For a value that is none, and for what the layers do not go together with.
    pub(crate) fn choosing(&self, run: &RunArguments, choice: &Choice) -> Result<Self, CliError> {
        let wrong = |error: &dyn std::fmt::Display| CliError::config(error.to_string());
        let mut layers = self.layers.clone();
        let kept = !matches!(choice, Choice::Profile(_));
        if let Some(state) = self.display.filter(|_| kept).and_then(|at| layers.files.get_mut(at)) {
            let none = Settings::default();
            state.choose_in(choice, Layer::Display, &none).map_err(|error| wrong(&error))?;
        }
        layers
            .flags
            .choose_in(choice, Layer::Chosen, &flags(run)?)
            .map_err(|error| wrong(&error))?;
        let effective = layers.clone().settle().map_err(|error| wrong(&error))?;
        let settings = effective.settings.clone();
        Ok(Self { settings, effective, layers, ..self.clone() })
    }

    /// Returns what was chosen, in this run and in the display state.
    pub(crate) fn chosen_keys(&self) -> Settings {
        let state = self.display.and_then(|at| self.layers.files.get(at)).cloned();
        let state = state.unwrap_or_default();
        let mut flags = self.layers.flags.clone();
        flags.keybindings.retain(|_, keys| keys.layer() == Some(Layer::Chosen));
        flags.over(state)
    }

    /// Returns the files that are stronger than the display state.
    pub(crate) fn above_display(&self) -> Settings {
        let above = self.layers.files.iter().skip(self.display.map_or(0, |at| at + 1));
        above.cloned().fold(Settings::default(), |a, b| b.over(a))
    }

    /// Returns the settings that a display state may name providers and themes of.
    pub(crate) fn known(&self) -> Settings {
        let own = self.layers.files.iter().take(self.display.unwrap_or_default());
        let variables = self.display.and_then(|at| self.layers.files.get(at + 1));
        own.chain(variables).cloned().fold(Settings::default(), |a, b| b.over(a))
    }

    /// Settings that lie where the agent writes are whatever the agent makes of them: a variable that
    /// a project's shell hook sets can bring that about, and the person should know.
    fn with_place_warning(mut self) -> Self {
        let home = self.environment.home().map(|home| physical(&home));
        let own = self.paths.as_ref().map(|paths| physical(paths.config()));
        let baked = self.baked.as_deref().map(physical);
        for (variable, place) in [(names::XDG_CONFIG_HOME, own), (names::KLI_BAKED, baked)] {
            let Some(place) = place else { continue };
            // Where the home itself is the project, so is everything in it.
            let inside = |root: &Path| {
                place.starts_with(root) && home.as_ref().is_none_or(|home| home != root)
            };
            let roots = [self.workspace.clone(), physical(&self.project.root)];
            if roots.iter().any(|root| inside(root)) {
                let led = |home: &PathBuf| {
                    place.starts_with(home) && roots.iter().any(|root| home.starts_with(root))
                };
                let variable = if home.as_ref().is_some_and(led) { names::HOME } else { variable };
                self.warnings.push(format!(
                    "the settings of `{}` lie in the project, where the agent may write them; set \
                     {variable} to a place outside, or unset it",
                    place.display()
                ));
            }
        }
        self
    }

    /// Returns the profile of this run.
    pub(crate) fn profile(&self) -> &str {
        &self.effective.profile
    }

    /// Returns the models that are asked when the chosen one is not to be had, in order.
    pub(crate) fn fallbacks(&self) -> &[ModelName] {
        &self.effective.fallbacks
    }

    /// Says whether a run without a budget is refused.
    pub(crate) fn needs_budget(&self) -> bool {
        self.effective.needs_budget()
    }

    /// Returns what the policies set, each key with its value.
    pub(crate) fn policy_values(&self) -> Vec<(&'static str, serde_json::Value)> {
        self.effective.policies.iter().flat_map(config::Policy::shown).collect()
    }

    /// Says whether the policies let projects be trusted.
    pub(crate) fn may_trust(&self) -> bool {
        self.effective.may_trust()
    }

    /// Computes what this run may do. The preview prints this value, and every call of the run is
    /// checked against it: there is no other way to a subject.
    pub(crate) fn subject(&self) -> Subject {
        self.effective.subject(|source, path| self.physical(source, path))
    }

    /// Computes what commands of the person's own may do: the profile is left out.
    pub(crate) fn own_subject(&self) -> Subject {
        self.effective.own_subject(|source, path| self.physical(source, path))
    }

    /// Checks a model, and where its requests would go, against the policies.
    ///
    /// # Errors
    /// For what a policy forbids.
    pub(crate) fn permits(&self, name: &ModelName, provider: &Provider) -> Result<(), CliError> {
        self.effective
            .policies
            .iter()
            .try_for_each(|policy| policy.permits(name, provider))
            .map_err(|error| CliError::config(error.to_string()))
    }

    /// Checks that a run may start here at all.
    ///
    /// # Errors
    /// When a policy wants the sandbox and there is none, and when the profile wants a budget.
    pub(crate) fn check_start(&self) -> Result<(), CliError> {
        let required = self.effective.policies.iter().any(|policy| policy.require_sandbox);
        if required
            && confinement::judge(&Signs::read(&self.environment)) != Confinement::KliSandbox
        {
            return Err(CliError::config(Forbidden::Unconfined.to_string()));
        }
        if self.needs_budget() && !self.settings.budgets.any() {
            let profile = self.profile();
            return Err(CliError::config(format!("the profile `{profile}` needs a budget"))
                .hint("give `--max-turns`, `--max-tokens` or `--timeout`, or set `budgets`"));
        }
        Ok(())
    }

    /// Returns what the preview says besides the subject: the budgets, and the one that is missing.
    pub(crate) fn notes(&self) -> Vec<String> {
        let mut notes = self.effective.budget_notes();
        if self.needs_budget() && notes.is_empty() {
            notes.push(format!(
                "the profile `{}` needs a budget and has none: a run is refused",
                self.profile()
            ));
        }
        notes
    }

    /// Returns the physical path that a written one stands for, as far as it is there. A project
    /// writes its paths from its own root.
    fn physical(&self, source: &Source, path: &str) -> PathBuf {
        if *source == Source::ProjectSettings && !path.starts_with('~') {
            return physical(&self.project.root.join(path));
        }
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

    /// A denied tool that does not exist denies nothing; whoever wrote it should know.
    fn with_tool_warnings(mut self) -> Self {
        let known = agent::tool_names();
        let policies =
            self.effective.policies.iter().map(|policy| ("policy".to_owned(), &policy.deny_tools));
        let lists =
            self.settings.deny_tools.iter().map(|(source, names)| (source.to_string(), names));
        let mut found = Vec::new();
        for (source, names) in lists.chain(policies) {
            let mut strange = Vec::new();
            // Tools of MCP servers are named `server__tool`.
            for name in names.iter().filter(|name| !name.contains("__")) {
                if !known.contains(&name.as_str()) {
                    let near = known
                        .iter()
                        .filter_map(|tool| Some((distance(name, tool, 2)?, tool)))
                        .min()
                        .map_or_else(String::new, |(_, tool)| format!(" (did you mean `{tool}`?)"));
                    strange.push(format!("`{name}`{near}"));
                }
            }
            let what = match strange.len() {
                0 => continue,
                1 => "which is no tool of this version",
                _ => "which are no tools of this version",
            };
            let names = project::first_few(strange);
            found.push(format!("`denyTools` of {source} names {names}, {what}"));
        }
        self.warnings.extend(found);
        self
    }
}

/// Returns kli's directories, when a home is known.
pub(crate) fn paths(environment: &Environment) -> Result<Paths, config::NoHome> {
    Paths::new(
        environment.home().as_deref(),
        environment.var_os(names::XDG_CONFIG_HOME),
        environment.var_os(names::XDG_STATE_HOME),
        environment.var_os(names::KLI_STATE_DIR),
    )
}

fn baked(environment: &Environment) -> Result<Option<PathBuf>, CliError> {
    let Some(baked) = environment.var_os(names::KLI_BAKED).filter(|dir| !dir.is_empty()) else {
        return Ok(None);
    };
    let baked = Path::new(baked);
    if !baked.is_absolute() {
        return Err(CliError::config(format!(
            "`{}` is `{}`, which is no absolute path; unset it or name the directory in full",
            names::KLI_BAKED,
            baked.display()
        )));
    }
    Ok(Some(baked.to_owned()))
}

/// Reads the instructions of a baked configuration; an empty file has none.
fn baked_context(baked: &Path) -> Result<Option<String>, CliError> {
    let file = Paths::baked_context(baked);
    let Some(bytes) = read_small(&file, CONTEXT_LIMIT)? else { return Ok(None) };
    let text = String::from_utf8(bytes).map_err(|_| {
        CliError::config(format!("`{}` is not UTF-8; write it anew as UTF-8", file.display()))
    })?;
    let text = text.trim();
    Ok((!text.is_empty()).then(|| text.to_owned()))
}

/// Reads the layers that are the user's own, the weakest first.
fn own_files(
    environment: &Environment,
    paths: Option<&Paths>,
    baked: Option<&Path>,
    warnings: &mut Vec<String>,
) -> Result<Vec<Settings>, CliError> {
    let mut found = Vec::new();
    if let Some(baked) = baked {
        let file = Paths::baked_settings(baked);
        let layer = read_file(&file, Layer::Baked, warnings)?.ok_or_else(|| {
            CliError::config(format!(
                "the baked configuration `{}` is not there; unset {} or build the package anew",
                file.display(),
                names::KLI_BAKED
            ))
        })?;
        found.push(layer);
    }
    if let Some(paths) = paths {
        found.extend(read_file(&paths.settings(), Layer::User, warnings)?);
    }
    let mut variables = Settings::default();
    for (variable, provider) in config::ADDRESSES {
        let address = Settings::from_environment(provider, environment.var(variable))
            .map_err(|error| CliError::config(format!("{variable}: {error}")))?;
        variables = address.over(variables);
    }
    if let Some(paths) = paths {
        let known = found.iter().cloned().fold(Settings::default(), |a, b| b.over(a));
        let known = variables.clone().over(known);
        found.push(display::read(&paths.display(), &known, warnings));
    }
    found.push(variables);
    Ok(found)
}

fn flags(run: &RunArguments) -> Result<Settings, CliError> {
    let flags = Flags {
        model: run.model.clone(),
        effort: run.effort.clone(),
        profile: run.profile.clone(),
        model_options: run.model_option.clone(),
        capabilities: run.capabilities.clone(),
        max_turns: run.max_turns.clone(),
        max_tokens: run.max_tokens.clone(),
        timeout: run.timeout.clone(),
    };
    flags.settings().map_err(|error| CliError::config(error.to_string()))
}

/// Says whether the project's settings count as the user's own.
fn trusts(
    run: &RunArguments,
    project: &Project,
    paths: Option<&Paths>,
    environment: &Environment,
    may_trust: bool,
    warnings: &mut Vec<String>,
) -> Result<bool, CliError> {
    if run.trust_project {
        return if may_trust {
            Ok(true)
        } else {
            Err(CliError::config(Forbidden::Trust.to_string()))
        };
    }
    let Some(paths) = paths.filter(|_| may_trust && project.is_there()) else { return Ok(false) };
    Ok(match project.is_trusted(paths, environment.home().as_deref()) {
        Ok(trusted) => trusted,
        Err(error) => {
            warnings.push(error.fault.message);
            false
        }
    })
}

/// Reads the project's layer; what it may not say is one notice.
fn read_project(
    project: &Project,
    trusted: bool,
    known: &Settings,
    warnings: &mut Vec<String>,
) -> Result<Settings, CliError> {
    let parsed = project.parse(if trusted { Scope::Whole } else { Scope::Project })?;
    let (mut settings, mut ignored) = (parsed.settings, parsed.ignored);
    warnings.extend(parsed.warnings.iter().map(ToString::to_string));
    if !trusted && settings.drop_foreign_model(known, super::provider::default_provider()) {
        ignored.push("model".to_owned());
    }
    if !trusted && settings.drop_strange_theme(known).is_some() {
        ignored.push("theme".to_owned());
    }
    if !trusted {
        warnings.extend(project.prompts_notice());
    }
    warnings.extend(project::notice(project, &ignored));
    Ok(settings)
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

#[cfg(test)]
mod tests {
    use super::super::{assembly, provider};
    use crate::config::{keys, parse_duration};

    #[test]
    fn the_defaults_that_are_documented_are_those_that_hold() {
        let default = |name: &str| {
            let row = keys::find(keys::SETTINGS, name).unwrap();
            serde_json::from_str::<String>(row.default).unwrap()
        };
        assert_eq!(default("model"), provider::DEFAULT_MODEL);
        assert_eq!(parse_duration(&default("bash.timeout")), Ok(assembly::BASH_TIMEOUT));
        assert_eq!(parse_duration(&default("bash.maxTimeout")), Ok(assembly::BASH_MAX_TIMEOUT));
    }
}
