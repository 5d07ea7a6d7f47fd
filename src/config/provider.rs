//! `providers.NAME`: how to reach one provider, as written and as a run uses it.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    authority::distance,
    message::{Effort, Price},
};

use super::{
    error::{ConfigError, Warning},
    jsonc::Node,
    keys,
    layers::{Layer, Setting},
    names,
    settings::Settings,
    values::{self, ValueError},
};

/// The variables that set the address of a built-in provider, each with the provider's name.
pub const ADDRESSES: [(&str, &str); 2] =
    [(names::ANTHROPIC_BASE_URL, "anthropic"), (names::OPENAI_BASE_URL, "openai")];

/// What a provider speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Anthropic Messages.
    Anthropic,
    /// OpenAI Responses.
    OpenAi,
    /// OpenAI Chat Completions, of any server that has them.
    OpenAiChat,
    /// Recorded turns: no key, no network.
    Replay,
}

impl Kind {
    /// Every kind.
    pub const ALL: [Self; 4] = [Self::Anthropic, Self::OpenAi, Self::OpenAiChat, Self::Replay];

    /// Returns the kind's name in settings.
    pub fn name(self) -> &'static str {
        match self {
            Self::Anthropic => "anthropic",
            Self::OpenAi => "openai",
            Self::OpenAiChat => "openai-chat",
            Self::Replay => "replay",
        }
    }
}

/// A provider that needs no settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct BuiltIn {
    name: &'static str,
    kind: Kind,
    base_url: &'static str,
    key_env: Option<&'static str>,
}

/// The built-in provider that has two APIs at one address.
const OPENAI: &str = "https://api.openai.com/v1";

const BUILT_IN: [BuiltIn; 4] = [
    BuiltIn {
        name: "anthropic",
        kind: Kind::Anthropic,
        base_url: "https://api.anthropic.com",
        key_env: Some(names::ANTHROPIC_API_KEY),
    },
    // Where Ollama listens when nothing else is said: <https://docs.ollama.com/api/openai-compatibility>.
    BuiltIn {
        name: "ollama",
        kind: Kind::OpenAiChat,
        base_url: "http://127.0.0.1:11434/v1",
        key_env: None,
    },
    BuiltIn {
        name: "openai",
        kind: Kind::OpenAi,
        base_url: OPENAI,
        key_env: Some(names::OPENAI_API_KEY),
    },
    BuiltIn { name: "replay", kind: Kind::Replay, base_url: "", key_env: None },
];

impl BuiltIn {
    /// Whether its address and its key are meant for a kind: OpenAI itself speaks both of its own.
    fn speaks(self, kind: Kind) -> bool {
        self.kind == kind || (self.kind == Kind::OpenAi && kind == Kind::OpenAiChat)
    }

    /// Returns what it speaks when nobody says: behind another's address stands a server that is
    /// compatible with OpenAI, and what those have for certain is Chat Completions.
    fn usual_kind(self, settings: &ProviderSettings) -> Kind {
        let address = settings.base_url.get().map_or(self.base_url, String::as_str);
        match self.kind {
            Kind::OpenAi if !is_openai(address) => Kind::OpenAiChat,
            kind => kind,
        }
    }
}

/// Whether an address is OpenAI's own, regional ones (`eu.api.openai.com`) included.
fn is_openai(address: &str) -> bool {
    let host = address.split_once("://").map_or("", |(_, rest)| rest);
    let host = host.split(['/', ':']).next().unwrap_or_default().to_ascii_lowercase();
    host == "api.openai.com" || host.ends_with(".api.openai.com")
}

/// What is said about one model of a provider.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ModelSettings {
    /// How many tokens a conversation may have, the answer included.
    pub context_window: Setting<u64>,
    /// How much it thinks.
    pub effort: Setting<Effort>,
    /// The levels of effort that it has.
    pub efforts: Setting<Vec<Effort>>,
    /// What its tokens cost.
    pub price: PriceSettings,
    /// The most tokens of an answer.
    pub max_output: Setting<u64>,
    /// Further fields of the request's body. A later layer's replace an earlier one's as a whole.
    pub options: Setting<BTreeMap<String, serde_json::Value>>,
}

impl ModelSettings {
    fn over(self, earlier: Self) -> Self {
        Self {
            context_window: self.context_window.over(earlier.context_window),
            effort: self.effort.over(earlier.effort),
            efforts: self.efforts.over(earlier.efforts),
            price: self.price.over(earlier.price),
            max_output: self.max_output.over(earlier.max_output),
            options: self.options.over(earlier.options),
        }
    }

    fn read(
        entry: &Node<'_>,
        layer: Layer,
        warnings: &mut Vec<Warning>,
    ) -> Result<Self, ConfigError> {
        let mut settings = Self::default();
        for node in entry.known(keys::SETTINGS, "providers.NAME.models.NAME", warnings)? {
            match node.name() {
                "contextWindow" => settings.context_window = Setting::new(node.count()?, layer),
                "effort" => settings.effort = Setting::new(node.string(values::effort)?, layer),
                "efforts" => {
                    settings.efforts = Setting::new(node.strings(values::effort)?, layer);
                }
                "price" => settings.price = PriceSettings::read(&node, layer, warnings)?,
                "maxOutput" => settings.max_output = Setting::new(node.count()?, layer),
                "options" => {
                    let option = |node: Node<'_>| Ok((node.name().to_owned(), node.json()?));
                    let options = node.members()?.into_iter().map(option);
                    settings.options = Setting::new(options.collect::<Result<_, _>>()?, layer);
                }
                _ => {}
            }
        }
        Ok(settings)
    }
}

/// What a model's tokens cost, as a layer writes it: each in millionths per million tokens.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PriceSettings {
    /// Tokens of a request.
    pub input: Setting<u64>,
    /// Tokens of an answer.
    pub output: Setting<u64>,
    /// Tokens of a request that came from a cache.
    pub cache_read: Setting<u64>,
    /// Tokens of a request that were written to a cache.
    pub cache_write: Setting<u64>,
}

impl PriceSettings {
    /// Returns the price, if it says what a request and an answer cost.
    pub fn price(&self) -> Option<Price> {
        Some(Price {
            input: *self.input.get()?,
            output: *self.output.get()?,
            cache_read: self.cache_read.get().copied(),
            cache_write: self.cache_write.get().copied(),
        })
    }

    /// Returns the parts with their keys.
    pub(super) fn parts(&self) -> [(&'static str, &Setting<u64>); 4] {
        [
            ("input", &self.input),
            ("output", &self.output),
            ("cacheRead", &self.cache_read),
            ("cacheWrite", &self.cache_write),
        ]
    }

    fn over(self, earlier: Self) -> Self {
        Self {
            input: self.input.over(earlier.input),
            output: self.output.over(earlier.output),
            cache_read: self.cache_read.over(earlier.cache_read),
            cache_write: self.cache_write.over(earlier.cache_write),
        }
    }

    fn read(
        entry: &Node<'_>,
        layer: Layer,
        warnings: &mut Vec<Warning>,
    ) -> Result<Self, ConfigError> {
        let mut price = Self::default();
        for node in entry.known(keys::SETTINGS, "providers.NAME.models.NAME.price", warnings)? {
            let part = match node.name() {
                "input" => &mut price.input,
                "output" => &mut price.output,
                "cacheRead" => &mut price.cache_read,
                "cacheWrite" => &mut price.cache_write,
                _ => continue,
            };
            *part = Setting::new(node.price()?, layer);
        }
        Ok(price)
    }
}

/// One provider as a layer writes it.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct ProviderSettings {
    /// What it speaks.
    pub kind: Setting<Kind>,
    /// Its address, without a slash at the end: a URL, or a socket as `unix:/PATH` or
    /// `unix:/PATH:/PREFIX`.
    pub base_url: Setting<String>,
    /// The environment variable that holds its key.
    pub key_env: Setting<String>,
    /// The variables that weaker layers named in the place of `key_env`.
    pub former_key_env: BTreeSet<String>,
    /// The file that holds its key, absolute or from `~/`.
    pub key_file: Setting<String>,
    /// The command that prints its key: the program and its arguments, run in no shell.
    pub key_command: Setting<Vec<String>>,
    /// Further headers of every request. A later layer's replace an earlier one's as a whole.
    pub headers: Setting<BTreeMap<String, String>>,
    /// The recording of a `replay` provider, absolute or from `~/`; the built-in one when absent.
    pub file: Setting<String>,
    /// What is said about single models, by the provider's name for them.
    pub models: BTreeMap<String, ModelSettings>,
}

/// Values of headers may be secret, so only their names are shown.
impl std::fmt::Debug for ProviderSettings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ProviderSettings")
            .field("kind", &self.kind)
            .field("base_url", &self.base_url)
            .field("key_env", &self.key_env)
            .field("former_key_env", &self.former_key_env)
            .field("key_file", &self.key_file)
            .field("key_command", &self.key_command.get().and_then(|words| words.first()))
            .field("headers", &self.headers.get().map(|headers| headers.keys().collect::<Vec<_>>()))
            .field("file", &self.file)
            .field("models", &self.models)
            .finish()
    }
}

/// One provider as a run uses it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Provider {
    /// A server over HTTP.
    Server(Server),
    /// Recorded turns.
    Replay {
        /// The recording, absolute or from `~/`; the built-in one when absent.
        file: Option<String>,
    },
}

/// A server over HTTP, on TCP or on a Unix socket.
#[derive(Clone, PartialEq, Eq)]
pub struct Server {
    /// What it speaks: not `replay`.
    pub kind: Kind,
    /// The address without a slash at the end: for Anthropic Messages it ends before `/v1`, for
    /// OpenAI's kinds mostly with it.
    pub base_url: String,
    /// The environment variable that holds the key; it comes first.
    pub key_env: Option<String>,
    /// The file that holds the key, absolute or from `~/`; it is read when the variable is not set.
    pub key_file: Option<String>,
    /// The command that prints the key; it is run when there is neither variable nor file.
    pub key_command: Option<Vec<String>>,
    /// Further headers of every request.
    pub headers: BTreeMap<String, String>,
    /// What is said about single models, by the provider's name for them.
    pub models: BTreeMap<String, ModelSettings>,
}

impl Provider {
    /// Returns the address that requests go to; `None` when none go anywhere.
    pub fn address(&self) -> Option<&str> {
        match self {
            Self::Server(server) => Some(&server.base_url),
            Self::Replay { .. } => None,
        }
    }
}

/// Values of headers may be secret, so only their names are shown.
impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server")
            .field("kind", &self.kind)
            .field("base_url", &self.base_url)
            .field("key_env", &self.key_env)
            .field("key_file", &self.key_file)
            .field("key_command", &self.key_command.as_ref().and_then(|words| words.first()))
            .field("headers", &self.headers.keys().collect::<Vec<_>>())
            .field("models", &self.models)
            .finish()
    }
}

/// Where a provider's key may come from, by its settings.
#[derive(Clone, Copy, Debug, Default)]
pub struct KeySources<'a> {
    /// The environment variable, which is also its name among the secrets that a launcher hands in.
    pub env: Option<&'a str>,
    /// The file, absolute or from `~/`.
    pub file: Option<&'a str>,
    /// The command: the program and its arguments.
    pub command: Option<&'a [String]>,
}

impl Provider {
    /// Returns where the key may come from; `None` for one that needs no key.
    pub fn key_sources(&self) -> Option<KeySources<'_>> {
        match self {
            Self::Server(Server { key_env, key_file, key_command, .. }) => Some(KeySources {
                env: key_env.as_deref(),
                file: key_file.as_deref(),
                command: key_command.as_deref(),
            }),
            Self::Replay { .. } => None,
        }
    }
}

/// A provider that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProviderError {
    /// No settings and no built-in provider of that name.
    #[error("unknown provider `{name}`{}; known are {}", hint(.nearest.as_ref()), list(.known))]
    Unknown {
        /// The name.
        name: String,
        /// The nearest one.
        nearest: Option<String>,
        /// All that are known.
        known: Vec<String>,
    },
    /// A name of the user's own without a kind.
    #[error(
        "provider `{name}` has no kind; add `\"kind\": \"anthropic\"` (or `\"openai\"`, `\"openai-chat\"`, `\"replay\"`) to `providers.{name}`"
    )]
    NoKind {
        /// The provider.
        name: String,
    },
    /// A name of the user's own without an address.
    #[error(
        "provider `{name}` has no address; add `\"baseUrl\": \"https://…\"` to `providers.{name}`"
    )]
    NoAddress {
        /// The provider.
        name: String,
    },
    /// An address that already ends in what is appended to it.
    #[error("the address of provider `{name}` ends in `/v1` (from {layer}); leave `/v1` out")]
    Version {
        /// The provider.
        name: String,
        /// Who set it.
        layer: Layer,
    },
}

fn hint(nearest: Option<&String>) -> String {
    nearest.map_or_else(String::new, |name| format!(", did you mean `{name}`?"))
}

fn list(known: &[String]) -> String {
    known.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

impl ProviderSettings {
    pub(super) fn over(self, earlier: Self) -> Self {
        let mut models = earlier.models;
        for (name, later) in self.models {
            let before = models.remove(&name).unwrap_or_default();
            models.insert(name, later.over(before));
        }
        let mut former_key_env = self.former_key_env;
        former_key_env.extend(earlier.former_key_env);
        if self.key_env.get().is_some() {
            former_key_env.extend(earlier.key_env.get().cloned());
        }
        Self {
            former_key_env,
            kind: self.kind.over(earlier.kind),
            base_url: self.base_url.over(earlier.base_url),
            key_env: self.key_env.over(earlier.key_env),
            key_file: self.key_file.over(earlier.key_file),
            key_command: self.key_command.over(earlier.key_command),
            headers: self.headers.over(earlier.headers),
            file: self.file.over(earlier.file),
            models,
        }
    }

    pub(super) fn read(
        entry: &Node<'_>,
        layer: Layer,
        warnings: &mut Vec<Warning>,
    ) -> Result<(String, Self), ConfigError> {
        let name = entry.name();
        values::provider_name(name).map_err(|error| entry.key_error(error))?;
        let mut settings = Self::default();
        for node in entry.known(keys::SETTINGS, "providers.NAME", warnings)? {
            match node.name() {
                "kind" => settings.kind = Setting::new(node.string(kind)?, layer),
                "baseUrl" => settings.base_url = Setting::new(node.string(values::address)?, layer),
                "keyEnv" => settings.key_env = Setting::new(node.string(values::variable)?, layer),
                "keyFile" => {
                    settings.key_file = Setting::new(node.string(values::key_file)?, layer);
                }
                "keyCommand" => {
                    settings.key_command = Setting::new(key_command(&node)?, layer);
                }
                "file" => settings.file = Setting::new(node.string(values::path)?, layer),
                "headers" => settings.headers = Setting::new(headers(&node)?, layer),
                "models" => {
                    for entry in node.members()? {
                        let model = ModelSettings::read(&entry, layer, warnings)?;
                        settings.models.insert(entry.name().to_owned(), model);
                    }
                }
                _ => {}
            }
        }
        Ok((name.to_owned(), settings))
    }
}

fn kind(text: &str) -> Result<Kind, ValueError> {
    let kinds = Kind::ALL.into_iter();
    kinds.clone().find(|kind| kind.name() == text).ok_or_else(|| ValueError::Kind {
        text: values::shown(text),
        nearest: values::nearest(text, kinds.map(Kind::name)),
    })
}

/// Words, never one line: a line would need the rules of some shell to be taken apart.
fn key_command(node: &Node<'_>) -> Result<Vec<String>, ConfigError> {
    let words = node.elements();
    if words.is_empty() {
        return Err(node.error(ValueError::KeyCommand));
    }
    let words = words
        .iter()
        .map(|word| word.string(|text| Ok(text.to_owned())))
        .collect::<Result<Vec<_>, _>>()?;
    values::key_command(&words).map_err(|error| node.error(error))?;
    Ok(words)
}

fn headers(node: &Node<'_>) -> Result<BTreeMap<String, String>, ConfigError> {
    let mut headers = BTreeMap::new();
    for member in node.members()? {
        let name = member.name();
        let value = member.string(|value| {
            values::header(name, value)?;
            Ok(value.to_owned())
        })?;
        headers.insert(name.to_owned(), value);
    }
    Ok(headers)
}

impl Settings {
    /// Returns a provider as a run uses it: what the layers say over what is built in. `anthropic`,
    /// `openai`, `ollama` and `replay` are always there.
    ///
    /// # Errors
    /// [`ProviderError`] names what is missing and where to add it.
    pub fn provider(&self, name: &str) -> Result<Provider, ProviderError> {
        let written = self.providers.get(name);
        let built_in = BUILT_IN.into_iter().find(|built_in| built_in.name == name);
        if written.is_none() && built_in.is_none() {
            return Err(self.unknown(name));
        }
        let settings = written.cloned().unwrap_or_default();
        let written_kind = settings.kind.get().copied();
        let kind = written_kind.or(built_in.map(|built_in| built_in.usual_kind(&settings)));
        let kind = kind.ok_or_else(|| ProviderError::NoKind { name: name.to_owned() })?;
        // Under another kind a built-in name is a name like any other: neither its address nor its
        // key is meant for that.
        let built_in = built_in.filter(|built_in| built_in.speaks(kind));
        if kind == Kind::Replay {
            return Ok(Provider::Replay { file: settings.file.get().cloned() });
        }
        let base_url = settings
            .base_url
            .get()
            .cloned()
            .or(built_in.map(|built_in| built_in.base_url.to_owned()))
            .ok_or_else(|| ProviderError::NoAddress { name: name.to_owned() })?;
        if let (Kind::Anthropic, true, Some(layer)) =
            (kind, values::ends_in_version(&base_url), settings.base_url.layer())
        {
            return Err(ProviderError::Version { name: name.to_owned(), layer });
        }
        // A provider of the user's own at another address must not be sent a key that was meant for
        // a built-in one, so only those have a variable by default.
        let key_env = settings.key_env.get().cloned();
        let key_env = key_env.or(built_in.and_then(|known| known.key_env.map(str::to_owned)));
        Ok(Provider::Server(Server {
            kind,
            base_url,
            key_env,
            key_file: settings.key_file.get().cloned(),
            key_command: settings.key_command.get().cloned(),
            headers: settings.headers.get().cloned().unwrap_or_default(),
            models: settings.models,
        }))
    }

    /// Returns the names of all providers, built in or written, sorted.
    pub fn provider_names(&self) -> Vec<String> {
        let mut known: Vec<String> =
            BUILT_IN.iter().map(|built_in| built_in.name.to_owned()).collect();
        known.extend(self.providers.keys().cloned());
        known.sort();
        known.dedup();
        known
    }

    /// Returns every environment variable whose value is secret: the built-in ones and those that a
    /// provider names, in whatever layer or profile, as a name that another layer replaces still
    /// holds a key. They are taken out of kli's own environment at start.
    pub fn secret_variables(&self) -> Vec<String> {
        let mut all: BTreeSet<String> =
            names::SECRET.iter().map(|name| (*name).to_owned()).collect();
        self.collect_secret_variables(&mut all);
        all.into_iter().collect()
    }

    fn collect_secret_variables(&self, all: &mut BTreeSet<String>) {
        for provider in self.providers.values() {
            all.extend(provider.key_env.get().cloned());
            all.extend(provider.former_key_env.iter().cloned());
        }
        for profile in self.profiles.values().filter_map(Setting::get) {
            profile.settings.collect_secret_variables(all);
        }
    }

    fn unknown(&self, name: &str) -> ProviderError {
        let known = self.provider_names();
        let nearest = known
            .iter()
            .filter_map(|known| Some((distance(name, known, 3)?, known)))
            .min_by_key(|(distance, _)| *distance)
            .map(|(_, known)| known.clone());
        ProviderError::Unknown { name: values::shown(name), nearest, known }
    }
}
