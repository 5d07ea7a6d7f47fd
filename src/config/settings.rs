//! The settings of one layer, and the reader of a settings file.

use std::{collections::BTreeMap, time::Duration};

use crate::{
    authority::{Approve, List, MOST, Source},
    message::{Effort, Money},
};

use super::{
    display::{self, Bindings, ThemeSettings},
    error::{About, ConfigError, Problem, Warning},
    jsonc::{self, Node},
    keys,
    layers::{Layer, Setting},
    provider::ProviderSettings,
    values::{self, Choice, ModelName},
};

/// The largest settings file that is read, in bytes.
pub const MAX_BYTES: usize = 1 << 20;

/// Settings: one layer, or several laid over each other.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Settings {
    /// The model to talk to. One that was named by an alias is here once the layers are settled.
    pub model: Setting<ModelName>,
    /// The alias that names the model; it and `model` never stand in one layer.
    pub alias: Setting<String>,
    /// What the aliases stand for: the model, then its fallbacks; never empty.
    pub models: BTreeMap<String, Setting<Vec<ModelName>>>,
    /// Options of the model's requests as they were written: `null` takes one out again.
    pub options: BTreeMap<String, Setting<serde_json::Value>>,
    /// How much the model thinks.
    pub effort: Setting<Effort>,
    /// The profile's name.
    pub profile: Setting<String>,
    /// The profiles of the user's own.
    pub profiles: BTreeMap<String, Setting<ProfileSettings>>,
    /// Every layer's list of capabilities, the weakest layer first. They meet.
    pub capabilities: Vec<(Source, List)>,
    /// Every layer's list of denied tools, the weakest layer first. All of them count.
    pub deny_tools: Vec<(Source, Vec<String>)>,
    /// The providers by name.
    pub providers: BTreeMap<String, ProviderSettings>,
    /// How shell commands are run.
    pub bash: Bash,
    /// Where a run ends at the latest.
    pub budgets: Budgets,
    /// How long conversations are made shorter.
    pub compaction: Compaction,
    /// Whether a session is kept.
    pub session: Setting<bool>,
    /// The file for the events of every run, absolute or from `~/`.
    pub log: Setting<String>,
    /// Names of context files.
    pub context: Setting<Vec<String>>,
    /// The theme's name.
    pub theme: Setting<String>,
    /// The themes of the user's own.
    pub themes: BTreeMap<String, Setting<ThemeSettings>>,
    /// Which keys do what, by the name of the action.
    pub keybindings: Bindings,
}

/// A profile of the user's own.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ProfileSettings {
    /// The profile that it builds on.
    pub extends: Option<String>,
    /// What it sets.
    pub settings: Box<Settings>,
    /// Which calls need approval.
    pub approve: Approve,
}

/// How shell commands are run. Values of variables may be secret, so `Debug` shows their names only.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Bash {
    /// The shell, an absolute path or one that starts with `~/`.
    pub shell: Setting<String>,
    /// The time limit of a command that asks for none.
    pub timeout: Setting<Duration>,
    /// The longest time limit that a command may ask for.
    pub max_timeout: Setting<Duration>,
    /// Variables to set.
    pub env: BTreeMap<String, Setting<String>>,
    /// The only variables to inherit; the inner `None` is all.
    pub pass_env: Setting<Option<Vec<String>>>,
}

impl std::fmt::Debug for Bash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Bash")
            .field("shell", &self.shell)
            .field("timeout", &self.timeout)
            .field("max_timeout", &self.max_timeout)
            .field("env", &self.env.keys().collect::<Vec<_>>())
            .field("pass_env", &self.pass_env)
            .finish()
    }
}

/// Where a run ends at the latest.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Budgets {
    /// Requests to the model.
    pub turns: Setting<u64>,
    /// Tokens, all kinds together.
    pub tokens: Setting<u64>,
    /// Wall time.
    pub time: Setting<Duration>,
    /// Money.
    pub cost: Setting<Money>,
    /// How often in a row the same calls may have the same results.
    pub repeats: Setting<u64>,
}

impl Budgets {
    /// Says whether any bound is set.
    pub fn any(&self) -> bool {
        self.turns.get().is_some()
            || self.tokens.get().is_some()
            || self.time.get().is_some()
            || self.cost.get().is_some()
    }
}

/// How long conversations are made shorter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Compaction {
    /// Whether it is done unasked.
    pub enabled: Setting<bool>,
    /// From which part of the window on, in per cent.
    pub threshold: Setting<u64>,
    /// Tokens of the latest that are kept.
    pub keep: Setting<u64>,
    /// The window in tokens.
    pub window: Setting<u64>,
}

/// What a settings file may set, by who wrote it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Everything: the user wrote it, or trusts who did.
    Whole,
    /// What narrows, and what is shown: a project that nobody trusts.
    Project,
    /// What a person chose while kli ran: a file that a jailed run can write.
    Display,
    /// Everything but profiles: the settings of one.
    Profile,
}

/// What a settings file says.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Parsed {
    /// The values.
    pub settings: Settings,
    /// Keys that are not used, for people.
    pub warnings: Vec<Warning>,
    /// Keys that the scope does not allow: they were not even looked at.
    pub ignored: Vec<String>,
}

/// What reads a file: who wrote it, and where what is odd goes.
struct Reader<'a> {
    layer: Layer,
    source: Source,
    scope: Scope,
    warnings: &'a mut Vec<Warning>,
    ignored: &'a mut Vec<String>,
}

impl Settings {
    /// Reads a settings file: JSON with comments and trailing commas, at most [`MAX_BYTES`]. `file`
    /// is how errors name it. An empty file sets nothing.
    ///
    /// # Errors
    /// The first [`ConfigError`], with file, line, column and key. Unknown keys are no error unless
    /// they are nearly one that narrows: they come back as warnings.
    pub fn parse(
        file: &str,
        bytes: &[u8],
        layer: Layer,
    ) -> Result<(Self, Vec<Warning>), ConfigError> {
        let parsed = Self::parse_scoped(file, bytes, layer, Scope::Whole)?;
        Ok((parsed.settings, parsed.warnings))
    }

    /// Reads a settings file as far as its scope allows. What is not allowed is not looked at, so
    /// that nothing in it can be an error.
    ///
    /// # Errors
    /// As [`Settings::parse`].
    pub fn parse_scoped(
        file: &str,
        bytes: &[u8],
        layer: Layer,
        scope: Scope,
    ) -> Result<Parsed, ConfigError> {
        jsonc::with_root(file, bytes, |root| {
            let mut parsed = Parsed::default();
            if let Some(root) = root {
                let source = layer.source("");
                let (warnings, ignored) = (&mut parsed.warnings, &mut parsed.ignored);
                let mut reader = Reader { layer, source, scope, warnings, ignored };
                parsed.settings = reader.settings(&root)?;
            }
            Ok(parsed)
        })
    }

    /// Returns what a variable of [`ADDRESSES`](super::ADDRESSES) sets: the address of a built-in
    /// provider. An empty value sets nothing.
    ///
    /// # Errors
    /// [`ValueError`](super::ValueError) for a value that is no address.
    pub fn from_environment(
        provider: &str,
        base_url: Option<&str>,
    ) -> Result<Self, super::values::ValueError> {
        let mut settings = Self::default();
        if let Some(url) = base_url.filter(|url| !url.trim().is_empty()) {
            let base_url = Setting::new(values::address(url.trim())?, Layer::Environment);
            let address = ProviderSettings { base_url, ..ProviderSettings::default() };
            settings.providers.insert(provider.to_owned(), address);
        }
        Ok(settings)
    }

    pub(super) fn choose(&mut self, choice: Choice, layer: Layer) {
        match choice {
            Choice::Model(model) => self.model = Setting::new(model, layer),
            Choice::Alias(alias) => self.alias = Setting::new(alias, layer),
        }
    }
}

impl Reader<'_> {
    fn settings(&mut self, root: &Node<'_>) -> Result<Settings, ConfigError> {
        let mut settings = Settings::default();
        let layer = self.layer;
        for node in root.members()? {
            if !self.takes(&node)? {
                continue;
            }
            match node.name() {
                "$schema" => node.string(|_| Ok(()))?,
                "model" => settings.choose(node.string(values::model)?, layer),
                "models" => {
                    for entry in node.members()? {
                        let (name, models) = alias(&entry)?;
                        settings.models.insert(name, Setting::new(models, layer));
                    }
                }
                "modelOptions" => {
                    for entry in node.members()? {
                        let value = Setting::new(entry.json()?, layer);
                        settings.options.insert(entry.name().to_owned(), value);
                    }
                }
                "effort" => settings.effort = Setting::new(node.string(values::effort)?, layer),
                "profile" => settings.profile = Setting::new(node.string(values::name)?, layer),
                "profiles" => {
                    for entry in node.members()? {
                        let (name, profile) = self.profile(&entry)?;
                        settings.profiles.insert(name, Setting::new(profile, layer));
                    }
                }
                "capabilities" => {
                    settings.capabilities.push((self.source.clone(), capabilities(&node)?));
                }
                "denyTools" => {
                    settings.deny_tools.push((self.source.clone(), deny_tools(&node)?));
                }
                "providers" => {
                    for entry in node.members()? {
                        let (name, provider) =
                            ProviderSettings::read(&entry, layer, self.warnings)?;
                        settings.providers.insert(name, provider);
                    }
                }
                "bash" => settings.bash = Bash::read(&node, layer, self.warnings)?,
                "budgets" => {
                    settings.budgets = Budgets::read(&node, layer, keys::SETTINGS, self.warnings)?;
                }
                "compaction" => {
                    settings.compaction = Compaction::read(&node, layer, self.warnings)?;
                }
                "session" => {
                    for node in node.known(keys::SETTINGS, "session", self.warnings)? {
                        if node.name() == "enabled" {
                            settings.session = Setting::new(node.flag()?, layer);
                        }
                    }
                }
                "context" => settings.context = Setting::new(context(&node)?, layer),
                "log" => settings.log = Setting::new(node.string(values::path)?, layer),
                "theme" => settings.theme = Setting::new(node.string(display::theme_name)?, layer),
                "themes" => settings.themes = display::themes(&node, layer, self.warnings)?,
                "keybindings" => settings.keybindings = display::keybindings(&node, layer)?,
                _ => {}
            }
        }
        Ok(settings)
    }

    /// Says whether a key is read here; what is to be said about it is noted.
    fn takes(&mut self, node: &Node<'_>) -> Result<bool, ConfigError> {
        let row = keys::find(keys::SETTINGS, node.name());
        let allowed = match self.scope {
            Scope::Whole => true,
            Scope::Project => row.is_some_and(|row| row.project),
            Scope::Display => row.is_some_and(|row| row.display),
            Scope::Profile => {
                if ["profile", "profiles"].contains(&node.name()) {
                    return Err(node.key_error(Problem::Misplaced {
                        place: "in the settings of a profile",
                        repair: "use `extends`, or set it outside",
                    }));
                }
                true
            }
        };
        // A key that is nearly one that narrows is an error whoever wrote it.
        let said =
            if self.scope == Scope::Display { None } else { node.judge(keys::SETTINGS, "")? };
        if !allowed {
            self.ignored.push(values::shown(node.name()));
            return Ok(false);
        }
        match said {
            None => Ok(true),
            // Display keys of a later version are no news to whoever shares a project.
            Some((_, About::Later)) if self.scope == Scope::Project => Ok(false),
            Some(said) => {
                node.warn(said, self.warnings);
                Ok(false)
            }
        }
    }

    fn profile(&mut self, entry: &Node<'_>) -> Result<(String, ProfileSettings), ConfigError> {
        let name = values::own_profile(entry.name()).map_err(|error| entry.key_error(error))?;
        let mut profile = ProfileSettings::default();
        for node in entry.known(keys::SETTINGS, "profiles.NAME", self.warnings)? {
            match node.name() {
                "extends" => profile.extends = Some(node.string(values::name)?),
                "approve" => profile.approve = node.string(values::approve)?,
                "settings" => {
                    let mut inner = Reader {
                        layer: Layer::Profile,
                        source: Source::Profile(name.clone()),
                        scope: Scope::Profile,
                        warnings: self.warnings,
                        ignored: self.ignored,
                    };
                    *profile.settings = inner.settings(&node)?;
                }
                _ => {}
            }
        }
        Ok((name, profile))
    }
}

fn alias(entry: &Node<'_>) -> Result<(String, Vec<ModelName>), ConfigError> {
    let name = values::name(entry.name()).map_err(|error| entry.key_error(error))?;
    let models =
        if entry.is_array() { entry.strings(str::parse)? } else { vec![entry.string(str::parse)?] };
    if models.is_empty() {
        return Err(entry.error(Problem::Empty));
    }
    Ok((name, models))
}

impl Bash {
    fn read(
        node: &Node<'_>,
        layer: Layer,
        warnings: &mut Vec<Warning>,
    ) -> Result<Self, ConfigError> {
        let mut bash = Self::default();
        for node in node.known(keys::SETTINGS, "bash", warnings)? {
            match node.name() {
                "shell" => bash.shell = Setting::new(node.string(values::path)?, layer),
                "timeout" => bash.timeout = Setting::new(node.duration()?, layer),
                "maxTimeout" => bash.max_timeout = Setting::new(node.duration()?, layer),
                "env" => {
                    for entry in node.members()? {
                        let name = values::variable(entry.name())
                            .map_err(|error| entry.key_error(error))?;
                        let value = entry.string(values::environment_value)?;
                        bash.env.insert(name, Setting::new(value, layer));
                    }
                }
                "passEnv" => {
                    let names =
                        if node.is_null() { None } else { Some(node.strings(values::variable)?) };
                    bash.pass_env = Setting::new(names, layer);
                }
                _ => {}
            }
        }
        Ok(bash)
    }
}

impl Budgets {
    pub(super) fn read(
        node: &Node<'_>,
        layer: Layer,
        table: &'static [keys::Key],
        warnings: &mut Vec<Warning>,
    ) -> Result<Self, ConfigError> {
        let mut budgets = Self::default();
        for node in node.known(table, "budgets", warnings)? {
            match node.name() {
                "turns" => budgets.turns = Setting::new(node.count()?, layer),
                "tokens" => budgets.tokens = Setting::new(node.count()?, layer),
                "time" => budgets.time = Setting::new(node.duration()?, layer),
                "cost" => budgets.cost = Setting::new(node.money()?, layer),
                "repeats" => budgets.repeats = Setting::new(node.count()?, layer),
                _ => {}
            }
        }
        Ok(budgets)
    }
}

/// The most names of context files.
const CONTEXT: usize = 16;

fn context(node: &Node<'_>) -> Result<Vec<String>, ConfigError> {
    let names = node.strings(values::file_name)?;
    if names.len() > CONTEXT {
        return Err(node.error(Problem::TooMany { count: names.len(), most: CONTEXT }));
    }
    Ok(names)
}

impl Compaction {
    fn read(
        node: &Node<'_>,
        layer: Layer,
        warnings: &mut Vec<Warning>,
    ) -> Result<Self, ConfigError> {
        let mut compaction = Self::default();
        for node in node.known(keys::SETTINGS, "compaction", warnings)? {
            match node.name() {
                "enabled" => compaction.enabled = Setting::new(node.flag()?, layer),
                "threshold" => {
                    let threshold = node.count()?;
                    if threshold > 100 {
                        return Err(node.error(Problem::TooMuch { value: threshold, most: 100 }));
                    }
                    compaction.threshold = Setting::new(threshold, layer);
                }
                "keep" => compaction.keep = Setting::new(node.count()?, layer),
                "window" => compaction.window = Setting::new(node.count()?, layer),
                _ => {}
            }
        }
        Ok(compaction)
    }
}

/// Reads names of tools, no more than a list of capabilities holds.
pub(super) fn deny_tools(node: &Node<'_>) -> Result<Vec<String>, ConfigError> {
    let names = node.strings(values::name)?;
    if names.len() > MOST {
        return Err(node.error(Problem::TooMany { count: names.len(), most: MOST }));
    }
    Ok(names)
}

pub(super) fn capabilities(node: &Node<'_>) -> Result<List, ConfigError> {
    // Element by element first, so that an error points at the entry and not at the list.
    for element in node.elements() {
        let one = serde_json::Value::Array(vec![element.json()?]);
        List::from_value(&one).map_err(|error| element.error(error))?;
    }
    List::from_value(&node.json()?).map_err(|error| node.error(error))
}

#[cfg(test)]
mod tests;
