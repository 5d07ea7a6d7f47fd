//! From options to a model: the one place that knows which providers there are.
//!
//! It is handed values, never a settings file, an environment or a path; retrying is the loop's.

use std::{collections::BTreeMap, fmt, sync::Arc, time::Duration};

use serde_json::Value;
use zeroize::Zeroizing;

use super::{
    Model,
    anthropic::Anthropic,
    known::{Known, known},
    openai::{Chat, Responses},
    replay::Replay,
};
use crate::message::{Effort, Price};

/// Where the Anthropic provider is when nothing else is said; like every base URL of that kind it
/// ends before `/v1`.
pub const ANTHROPIC_BASE_URL: &str = "https://api.anthropic.com";

/// Where OpenAI's APIs are when nothing else is said; like every base URL of those kinds it ends
/// before `/responses` or `/chat/completions`.
pub const OPENAI_BASE_URL: &str = "https://api.openai.com/v1";

/// How long a connection may say nothing, by default. Any byte counts, keep-alives too; models
/// that think for minutes send those.
pub const IDLE_TIMEOUT: Duration = Duration::from_mins(5);

/// Why a field of the request's body is no option.
pub(super) const OF_KLI: &str = "it is what kli makes of the conversation; leave it out";

/// A value that is shown nowhere: `Debug` prints `…`. The memory of the last clone is cleared.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Arc<Zeroizing<String>>);

impl Secret {
    /// Wraps a value; white space around it (the line end of a key file) is dropped.
    pub fn new(value: &str) -> Self {
        Self(Arc::new(Zeroizing::new(value.trim().to_owned())))
    }

    /// Returns the value, for the wire only.
    pub(super) fn reveal(&self) -> &str {
        &self.0
    }

    /// Returns `text` without the value. Values under four bytes are left alone: they would turn
    /// every message into noise and protect nothing.
    pub(super) fn scrub(&self, text: String) -> String {
        if self.0.len() >= 4 && text.contains(self.reveal()) {
            text.replace(self.reveal(), "…")
        } else {
            text
        }
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("…")
    }
}

/// What speaks at the other end.
#[derive(Clone, Debug)]
pub enum Kind {
    /// The Anthropic Messages API.
    Anthropic,
    /// OpenAI's Responses.
    OpenAi,
    /// OpenAI's Chat Completions, of any server that has them.
    OpenAiChat,
    /// A recording; `docs/replay.md` has the format.
    Replay {
        /// The text of the recording.
        recording: String,
    },
}

/// What is needed to open a model.
#[derive(Clone, Debug)]
pub struct Options {
    /// What speaks at the other end.
    pub kind: Kind,
    /// The provider's name in the settings: the part of the model's name before the slash.
    pub provider: String,
    /// The model's name as the provider knows it.
    pub model: String,
    /// Where the provider is; `None` = the kind's own place.
    pub base_url: Option<String>,
    /// The key; a server on this machine needs none.
    pub key: Option<Secret>,
    /// More headers to send: name and value. They replace kli's own.
    pub headers: Vec<(String, Secret)>,
    /// How many tokens a conversation may have; `None` = what is known of the model.
    pub context_window: Option<u64>,
    /// What its tokens cost.
    pub price: Option<Price>,
    /// How much the model thinks; `None` = its own choice.
    pub effort: Option<Effort>,
    /// The levels of effort that it has; `None` = what is known of it.
    pub efforts: Option<Vec<Effort>>,
    /// The most tokens of an answer when a request does not say; `None` = the kind's default.
    pub max_output: Option<u64>,
    /// Further fields of the request's body, as the provider knows them. What kli sets itself
    /// cannot be among them.
    pub options: BTreeMap<String, Value>,
    /// How long the connection may say nothing, see [`IDLE_TIMEOUT`].
    pub idle_timeout: Duration,
}

impl Options {
    /// Returns options for `PROVIDER/MODEL` with everything else at its default.
    pub fn new(kind: Kind, provider: impl Into<String>, model: impl Into<String>) -> Self {
        Self {
            kind,
            provider: provider.into(),
            model: model.into(),
            base_url: None,
            key: None,
            headers: Vec::new(),
            context_window: None,
            price: None,
            effort: None,
            efforts: None,
            max_output: None,
            options: BTreeMap::new(),
            idle_timeout: IDLE_TIMEOUT,
        }
    }

    /// Returns `PROVIDER/MODEL`.
    pub fn name(&self) -> String {
        format!("{}/{}", self.provider, self.model)
    }

    /// Returns how many tokens a conversation may have, the answer included: as it is set, or as it
    /// is known.
    pub fn context_window(&self) -> Option<u64> {
        self.context_window.or_else(|| self.known()?.context_window)
    }

    /// Returns the most tokens of one answer: as it is set, or as it is known.
    pub fn max_output(&self) -> Option<u64> {
        self.max_output.or_else(|| self.known()?.max_output)
    }

    /// Returns the levels of effort that the model has: as they are set, or as they are known.
    pub fn efforts(&self) -> &[Effort] {
        match &self.efforts {
            Some(efforts) => efforts,
            None => self.known().map_or(&[], |known| known.efforts),
        }
    }

    /// Returns what is known of the model by its name.
    pub(super) fn known(&self) -> Option<&'static Known> {
        known(&self.model)
    }

    /// Returns the level of effort to ask for, and what people should know about it. `fields` are
    /// those of the body that would carry it: an option of the user's comes before them.
    pub(super) fn plan(&self, fields: &[&str]) -> (Option<Effort>, Vec<String>) {
        let Some(wanted) = self.effort else { return (None, Vec::new()) };
        let name = self.name();
        if let Some(field) = fields.iter().find(|field| self.options.contains_key(**field)) {
            let said = format!(
                "the effort `{wanted}` is left out: the model option `{field}` of `{name}` decides"
            );
            return (None, vec![said]);
        }
        match wanted.nearest(self.efforts()) {
            Some(level) if level == wanted => (Some(level), Vec::new()),
            Some(level) => {
                let said = format!(
                    "`{name}` has no effort `{wanted}`: it is asked with `{level}` instead"
                );
                (Some(level), vec![said])
            }
            None => {
                let (provider, model) = (&self.provider, &self.model);
                let said = format!(
                    "`{name}` has no levels of effort that are known: `{wanted}` is left out; \
                     `providers.{provider}.models.{model}.efforts` names them if it has some"
                );
                (None, vec![said])
            }
        }
    }

    /// Refuses options that would change what kli itself decides.
    pub(super) fn check(&self, owned: &[(&str, &'static str)]) -> Result<(), OpenError> {
        match owned.iter().find(|(option, _)| self.options.contains_key(*option)) {
            Some((option, reason)) => {
                Err(OpenError::Option { model: self.name(), option: (*option).to_owned(), reason })
            }
            None => Ok(()),
        }
    }
}

/// What every model on a server says about itself.
#[derive(Debug)]
pub(super) struct Facts {
    /// `PROVIDER/MODEL`.
    pub(super) name: String,
    /// How many tokens a conversation may have.
    pub(super) context_window: Option<u64>,
    /// The most tokens of one answer that are asked for.
    pub(super) max_output: Option<u64>,
    /// What tokens cost.
    pub(super) price: Option<Price>,
    /// What people should know.
    pub(super) notices: Vec<String>,
}

impl Facts {
    /// Takes from the options what a model says about itself.
    pub(super) fn new(options: &Options, notices: Vec<String>) -> Self {
        Self {
            name: options.name(),
            context_window: options.context_window(),
            max_output: options.max_output(),
            price: options.price,
            notices,
        }
    }
}

/// Why a model cannot be opened. Nothing was sent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// The base URL cannot be used.
    #[error("the base URL `{url}` of provider `{provider}` {reason}")]
    BaseUrl {
        /// The provider's name.
        provider: String,
        /// The URL without user information and query.
        url: String,
        /// What is wrong and what to write instead.
        reason: String,
    },
    /// No key was given and the server is not on this machine.
    #[error("provider `{provider}` at `{host}` needs a key and none was given")]
    MissingKey {
        /// The provider's name.
        provider: String,
        /// Where it is.
        host: String,
    },
    /// The key holds a character that a header cannot carry.
    #[error(
        "the key of provider `{provider}` holds a line break or another character that cannot be sent: store it again"
    )]
    Key {
        /// The provider's name.
        provider: String,
    },
    /// A header of the settings cannot be sent. Its value is not shown, it may be a secret.
    #[error("the header `{header}` of provider `{provider}` cannot be sent: {reason}")]
    Header {
        /// The provider's name.
        provider: String,
        /// The header's name.
        header: String,
        /// What is wrong.
        reason: &'static str,
    },
    /// A model option that would change what kli itself decides.
    #[error("the model option `{option}` of `{model}` cannot be set: {reason}")]
    Option {
        /// `PROVIDER/MODEL`.
        model: String,
        /// The option's name.
        option: String,
        /// Why not, and what to do instead.
        reason: &'static str,
    },
    /// No TLS roots, or another fault of the HTTP client.
    #[error("the connection to `{host}` cannot be prepared: {reason}")]
    Client {
        /// Where it would have gone.
        host: String,
        /// What is wrong and how to repair it.
        reason: String,
    },
    /// A recording that cannot be read.
    #[error(transparent)]
    Recording(#[from] super::replay::RecordingError),
}

/// Opens a model: checks the options and prepares the connection, but sends nothing. For `http://`
/// this takes microseconds, for `https://` some milliseconds, since the system's roots are read.
///
/// The model's streams want to be polled in a tokio runtime with IO and timers enabled, always the
/// same one, since connections are kept for the next request.
///
/// # Errors
/// See [`OpenError`].
pub fn open(options: &Options) -> Result<Arc<dyn Model>, OpenError> {
    let name = options.name();
    Ok(match &options.kind {
        Kind::Anthropic => Arc::new(Anthropic::new(options)?),
        Kind::OpenAi => Arc::new(Responses::new(options)?),
        Kind::OpenAiChat => Arc::new(Chat::new(options)?),
        Kind::Replay { recording } => Arc::new(Replay::new(&name, recording)?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_shows_itself_nowhere() {
        let secret = Secret::new(" sk-very-secret\n");
        assert_eq!(secret.reveal(), "sk-very-secret");
        assert_eq!(format!("{secret:?} {:?}", Some(&secret)), "… Some(…)");
        assert_eq!(secret.scrub("key sk-very-secret is bad".into()), "key … is bad");

        let mut options = Options::new(Kind::Anthropic, "anthropic", "m");
        options.base_url = Some("http://127.0.0.1:1".into());
        options.key = Some(secret.clone());
        options.headers = vec![("authorization".into(), secret)];
        assert!(!format!("{options:?}").contains("very-secret"));
        let model = open(&options).unwrap();
        assert_eq!(model.name(), "anthropic/m");
        assert!(!format!("{model:?}").contains("very-secret"), "{model:?}");
    }
}
