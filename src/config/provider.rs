//! `providers.NAME`: how to reach one provider, as written and as a run uses it.

use std::collections::BTreeMap;

use super::{
    error::{ConfigError, Warning},
    jsonc::Node,
    keys,
    layers::{Layer, Setting},
    names,
    settings::Settings,
    values::{self, ValueError},
};

/// The name of the built-in provider that speaks Anthropic Messages.
pub(super) const ANTHROPIC: &str = "anthropic";
const REPLAY: &str = "replay";
const ANTHROPIC_URL: &str = "https://api.anthropic.com";

/// What a provider speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Anthropic Messages.
    Anthropic,
    /// Recorded turns: no key, no network.
    Replay,
}

/// One provider as a layer writes it.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct ProviderSettings {
    /// What it speaks.
    pub kind: Setting<Kind>,
    /// Its address, without a slash at the end.
    pub base_url: Setting<String>,
    /// The environment variable that holds its key.
    pub key_env: Setting<String>,
    /// The file that holds its key, absolute or from `~/`.
    pub key_file: Setting<String>,
    /// Further headers of every request. A later layer's replace an earlier one's as a whole.
    pub headers: Setting<BTreeMap<String, String>>,
    /// The recording of a `replay` provider, absolute or from `~/`; the built-in one when absent.
    pub file: Setting<String>,
}

/// Values of headers may be secret, so only their names are shown.
impl std::fmt::Debug for ProviderSettings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ProviderSettings")
            .field("kind", &self.kind)
            .field("base_url", &self.base_url)
            .field("key_env", &self.key_env)
            .field("key_file", &self.key_file)
            .field("headers", &self.headers.get().map(|headers| headers.keys().collect::<Vec<_>>()))
            .field("file", &self.file)
            .finish()
    }
}

/// One provider as a run uses it.
#[derive(Clone, PartialEq, Eq)]
pub enum Provider {
    /// Anthropic Messages over HTTP.
    Anthropic {
        /// The address, without `/v1` and without a slash at the end.
        base_url: String,
        /// The environment variable that holds the key; it comes first.
        key_env: Option<String>,
        /// The file that holds the key, absolute or from `~/`; it is read when the variable is not
        /// set.
        key_file: Option<String>,
        /// Further headers of every request.
        headers: BTreeMap<String, String>,
    },
    /// Recorded turns.
    Replay {
        /// The recording, absolute or from `~/`; the built-in one when absent.
        file: Option<String>,
    },
}

impl Provider {
    /// Returns the address that requests go to; `None` when none go anywhere.
    pub fn address(&self) -> Option<&str> {
        match self {
            Self::Anthropic { base_url, .. } => Some(base_url),
            Self::Replay { .. } => None,
        }
    }
}

/// Values of headers may be secret, so only their names are shown.
impl std::fmt::Debug for Provider {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Anthropic { base_url, key_env, key_file, headers } => f
                .debug_struct("Anthropic")
                .field("base_url", base_url)
                .field("key_env", key_env)
                .field("key_file", key_file)
                .field("headers", &headers.keys().collect::<Vec<_>>())
                .finish(),
            Self::Replay { file } => f.debug_struct("Replay").field("file", file).finish(),
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
        "provider `{name}` has no kind; add `\"kind\": \"anthropic\"` (or `\"replay\"`) to `providers.{name}`"
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
        Self {
            kind: self.kind.over(earlier.kind),
            base_url: self.base_url.over(earlier.base_url),
            key_env: self.key_env.over(earlier.key_env),
            key_file: self.key_file.over(earlier.key_file),
            headers: self.headers.over(earlier.headers),
            file: self.file.over(earlier.file),
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
                "file" => settings.file = Setting::new(node.string(values::path)?, layer),
                "headers" => settings.headers = Setting::new(headers(&node)?, layer),
                _ => {}
            }
        }
        Ok((name.to_owned(), settings))
    }
}

fn kind(text: &str) -> Result<Kind, ValueError> {
    match text {
        ANTHROPIC => Ok(Kind::Anthropic),
        REPLAY => Ok(Kind::Replay),
        _ => Err(ValueError::Kind {
            text: values::shown(text),
            nearest: values::nearest(text, [ANTHROPIC, REPLAY]),
        }),
    }
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
    /// Returns a provider as a run uses it: what the layers say over what is built in. `anthropic`
    /// and `replay` are always there.
    ///
    /// # Errors
    /// [`ProviderError`] names what is missing and where to add it.
    pub fn provider(&self, name: &str) -> Result<Provider, ProviderError> {
        let written = self.providers.get(name);
        if written.is_none() && ![ANTHROPIC, REPLAY].contains(&name) {
            return Err(self.unknown(name));
        }
        let settings = written.cloned().unwrap_or_default();
        let kind = match (settings.kind.get(), name) {
            (Some(kind), _) => *kind,
            (None, ANTHROPIC) => Kind::Anthropic,
            (None, REPLAY) => Kind::Replay,
            (None, _) => return Err(ProviderError::NoKind { name: name.to_owned() }),
        };
        if kind == Kind::Replay {
            return Ok(Provider::Replay { file: settings.file.get().cloned() });
        }
        let built_in = (name == ANTHROPIC).then(|| ANTHROPIC_URL.to_owned());
        let base_url = settings
            .base_url
            .get()
            .cloned()
            .or(built_in)
            .ok_or_else(|| ProviderError::NoAddress { name: name.to_owned() })?;
        if let (true, Some(layer)) = (base_url.ends_with("/v1"), settings.base_url.layer()) {
            return Err(ProviderError::Version { name: name.to_owned(), layer });
        }
        // A provider of the user's own at another address must not be sent a key that was meant for
        // the built-in one, so only that one has a variable by default.
        let key_env = settings
            .key_env
            .get()
            .cloned()
            .or_else(|| (name == ANTHROPIC).then(|| names::ANTHROPIC_API_KEY.to_owned()));
        Ok(Provider::Anthropic {
            base_url,
            key_env,
            key_file: settings.key_file.get().cloned(),
            headers: settings.headers.get().cloned().unwrap_or_default(),
        })
    }

    /// Returns every environment variable whose value is secret: the built-in ones and those that a
    /// provider names. They are taken out of kli's own environment at start.
    pub fn secret_variables(&self) -> Vec<String> {
        let named = self.providers.values().filter_map(|provider| provider.key_env.get().cloned());
        let mut all: Vec<String> =
            names::SECRET.iter().map(|name| (*name).to_owned()).chain(named).collect();
        all.sort();
        all.dedup();
        all
    }

    fn unknown(&self, name: &str) -> ProviderError {
        let mut known: Vec<String> =
            [ANTHROPIC, REPLAY].iter().map(|name| (*name).to_owned()).collect();
        known.extend(self.providers.keys().cloned());
        known.sort();
        known.dedup();
        let nearest = known
            .iter()
            .map(|known| (strsim::damerau_levenshtein(name, known), known))
            .filter(|(distance, _)| *distance <= 3)
            .min_by_key(|(distance, _)| *distance)
            .map(|(_, known)| known.clone());
        ProviderError::Unknown { name: values::shown(name), nearest, known }
    }
}
