//! The settings of one layer, and the reader of a settings file.

use std::{collections::BTreeMap, time::Duration};

use crate::authority::{List, Source};

use super::{
    error::{ConfigError, Warning},
    jsonc::{self, Node},
    layers::{Layer, Setting},
    provider::ProviderSettings,
    values::{self, ModelName},
};

/// The largest settings file that is read, in bytes.
pub const MAX_BYTES: usize = 1 << 20;

const KEYS: &[&str] =
    &["$schema", "bash", "budgets", "capabilities", "model", "profile", "providers"];
const BASH_KEYS: &[&str] = &["maxTimeout", "shell", "timeout"];
const BUDGET_KEYS: &[&str] = &["time", "tokens", "turns"];

/// Settings: one layer, or several laid over each other.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// The model to talk to.
    pub model: Setting<ModelName>,
    /// The profile's name; it exists.
    pub profile: Setting<String>,
    /// Every layer's list of capabilities, the weakest layer first. They meet.
    pub capabilities: Vec<(Source, List)>,
    /// The providers by name.
    pub providers: BTreeMap<String, ProviderSettings>,
    /// How shell commands are run.
    pub bash: Bash,
    /// Where a run ends at the latest.
    pub budgets: Budgets,
}

/// How shell commands are run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bash {
    /// The shell, an absolute path or one that starts with `~/`.
    pub shell: Setting<String>,
    /// The time limit of a command that asks for none.
    pub timeout: Setting<Duration>,
    /// The longest time limit that a command may ask for.
    pub max_timeout: Setting<Duration>,
}

impl Bash {
    pub(super) fn over(self, earlier: Self) -> Self {
        Self {
            shell: self.shell.over(earlier.shell),
            timeout: self.timeout.over(earlier.timeout),
            max_timeout: self.max_timeout.over(earlier.max_timeout),
        }
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
}

impl Budgets {
    pub(super) fn over(self, earlier: Self) -> Self {
        Self {
            turns: self.turns.over(earlier.turns),
            tokens: self.tokens.over(earlier.tokens),
            time: self.time.over(earlier.time),
        }
    }

    /// Says whether any bound is set.
    pub fn any(&self) -> bool {
        self.turns.get().is_some() || self.tokens.get().is_some() || self.time.get().is_some()
    }
}

impl Settings {
    /// Reads a settings file: JSON with comments and trailing commas, at most [`MAX_BYTES`]. `file`
    /// is how errors name it. An empty file sets nothing.
    ///
    /// # Errors
    /// The first [`ConfigError`], with file, line, column and key. Unknown keys are no error: they
    /// come back as warnings.
    pub fn parse(
        file: &str,
        bytes: &[u8],
        layer: Layer,
    ) -> Result<(Self, Vec<Warning>), ConfigError> {
        jsonc::with_root(file, bytes, |root| {
            let mut settings = Self::default();
            let mut warnings = Vec::new();
            if let Some(root) = root {
                settings.read(&root, layer, &mut warnings)?;
            }
            Ok((settings, warnings))
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

    fn read(
        &mut self,
        root: &Node<'_>,
        layer: Layer,
        warnings: &mut Vec<Warning>,
    ) -> Result<(), ConfigError> {
        for node in root.members()? {
            match node.name() {
                "$schema" => node.string(|_| Ok(()))?,
                "model" => self.model = Setting::new(node.string(str::parse)?, layer),
                "profile" => self.profile = Setting::new(node.string(values::profile)?, layer),
                "capabilities" => {
                    self.capabilities.push((layer.source("capabilities"), capabilities(&node)?));
                }
                "providers" => {
                    for entry in node.members()? {
                        let (name, settings) = ProviderSettings::read(&entry, layer, warnings)?;
                        self.providers.insert(name, settings);
                    }
                }
                "bash" => self.bash.read(&node, layer, warnings)?,
                "budgets" => self.budgets.read(&node, layer, warnings)?,
                _ => warnings.push(node.unknown(KEYS)),
            }
        }
        Ok(())
    }
}

impl Bash {
    fn read(
        &mut self,
        node: &Node<'_>,
        layer: Layer,
        warnings: &mut Vec<Warning>,
    ) -> Result<(), ConfigError> {
        for node in node.members()? {
            match node.name() {
                "shell" => self.shell = Setting::new(node.string(values::path)?, layer),
                "timeout" => self.timeout = Setting::new(node.duration()?, layer),
                "maxTimeout" => self.max_timeout = Setting::new(node.duration()?, layer),
                _ => warnings.push(node.unknown(BASH_KEYS)),
            }
        }
        Ok(())
    }
}

impl Budgets {
    fn read(
        &mut self,
        node: &Node<'_>,
        layer: Layer,
        warnings: &mut Vec<Warning>,
    ) -> Result<(), ConfigError> {
        for node in node.members()? {
            match node.name() {
                "turns" => self.turns = Setting::new(node.count()?, layer),
                "tokens" => self.tokens = Setting::new(node.count()?, layer),
                "time" => self.time = Setting::new(node.duration()?, layer),
                _ => warnings.push(node.unknown(BUDGET_KEYS)),
            }
        }
        Ok(())
    }
}

fn capabilities(node: &Node<'_>) -> Result<List, ConfigError> {
    // Element by element first, so that an error points at the entry and not at the list.
    for element in node.elements() {
        let one = serde_json::Value::Array(vec![element.json()?]);
        List::from_value(&one).map_err(|error| element.error(error))?;
    }
    List::from_value(&node.json()?).map_err(|error| node.error(error))
}

#[cfg(test)]
mod tests;
