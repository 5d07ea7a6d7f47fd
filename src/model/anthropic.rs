//! Anthropic's Messages API: `POST {base}/v1/messages`, streamed.
//!
//! The wire's types stay in this folder: [`encode`] writes the conversation as the API wants it,
//! [`decode`] reads its events. Reference: <https://docs.claude.com/en/api/messages> and
//! <https://docs.claude.com/en/docs/build-with-claude/streaming>.

mod decode;
mod encode;

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use futures_util::stream::BoxStream;
use reqwest::header::HeaderName;
use serde_json::Value;

use self::encode::{Frame, Thinking};
use super::{
    Delta, ModelError, Request, answer,
    catalogue::{ANTHROPIC_BASE_URL, Facts, OF_KLI, OpenError, Options},
    http::{Dialect, Target},
    known::Style,
    wire::Wire,
};

const DIALECT: Dialect = Dialect {
    base_url: ANTHROPIC_BASE_URL,
    socket_prefix: "",
    not_at_end: "/v1",
    path: &["v1", "messages"],
    repair: |_| {
        "there is no `/v1/messages` below the base URL: mend it, or write the kind `openai-chat` if \
         that is what the server speaks"
            .to_owned()
    },
    key_header: HeaderName::from_static("x-api-key"),
    key_prefix: "",
    whole: None,
    headers: &[("anthropic-version", "2023-06-01")],
};

/// Fields of the body that are no options.
const OWNED: [(&str, &str); 6] = [
    ("messages", OF_KLI),
    ("model", "it is what `--model` names"),
    ("stream", "kli reads streams only"),
    ("system", "write `--system-prompt-file` or `--append-system-prompt-file`"),
    ("tool_choice", OF_KLI),
    ("tools", "narrow them with `capabilities`"),
];

/// The most tokens of an answer when neither the request nor a setting says, and the model is not
/// known: what every model of the API can do but the oldest.
const DEFAULT_MAX_TOKENS: u64 = 8192;

/// The most tokens to ask for unasked, though newer models can say more: the API wants room for them
/// in the window, which the conversation needs.
const MOST_MAX_TOKENS: u64 = 32_000;

/// A model behind the Messages API.
#[derive(Debug)]
pub(super) struct Anthropic {
    facts: Facts,
    model: String,
    max_tokens: u64,
    thinking: Option<Thinking>,
    options: Arc<BTreeMap<String, Value>>,
    /// Whether the server refused to have its own thinking back.
    no_thinking: Arc<AtomicBool>,
    target: Target,
}

/// What a refusal of thinking says: a signature of another account, or a block that was changed.
const REFUSED_THINKING: &str = "thinking` block";

impl Anthropic {
    /// Checks the options and prepares the connection.
    ///
    /// # Errors
    /// A base URL, key, header or model option that cannot be used; no TLS roots.
    pub(super) fn new(options: &Options) -> Result<Self, OpenError> {
        options.check(&OWNED)?;
        let (effort, notices) = options.plan(&["thinking", "output_config"]);
        // A model that nobody knows and that is said to have levels is taken for a new one.
        let style = options.known().map_or(Style::Adaptive, |known| known.style);
        let max_tokens = max_tokens_of(options);
        let facts = Facts { max_output: Some(max_tokens), ..Facts::new(options, notices) };
        Ok(Self {
            facts,
            model: options.model.clone(),
            max_tokens,
            thinking: effort.and_then(|level| Thinking::new(style, level)),
            options: Arc::new(options.options.clone()),
            no_thinking: Arc::default(),
            target: Target::new(options, &DIALECT)?,
        })
    }

    /// Returns the request's JSON with the thinking of the model of this name, which `""` is none.
    fn body_of(&self, request: &Request, name: &str) -> Vec<u8> {
        let frame = Frame {
            model: &self.model,
            name,
            max_tokens: request.max_tokens.unwrap_or(self.max_tokens),
            thinking: self.thinking,
            options: &self.options,
        };
        encode::body(request, frame)
    }
}

impl Wire for Anthropic {
    fn facts(&self) -> &Facts {
        &self.facts
    }

    fn target(&self) -> &Target {
        &self.target
    }

    fn body(&self, request: &Request) -> Vec<u8> {
        let forget = self.no_thinking.load(Ordering::Relaxed);
        self.body_of(request, if forget { "" } else { &self.facts.name })
    }

    fn ask(&self, request: &Request) -> BoxStream<'static, Result<Delta, ModelError>> {
        let body = self.body(request);
        let without = answer::Without::thinking(
            &self.facts.name,
            request,
            REFUSED_THINKING,
            &self.no_thinking,
            || self.body_of(request, ""),
        );
        let ask = answer::Ask { body, options: Arc::clone(&self.options), without };
        answer::stream(self.target.clone(), ask, decode::Decoder::default())
    }
}

fn max_tokens_of(options: &Options) -> u64 {
    let known = || options.known()?.max_output;
    options.max_output.or_else(|| Some(known()?.min(MOST_MAX_TOKENS))).unwrap_or(DEFAULT_MAX_TOKENS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::catalogue::Kind;

    #[test]
    fn an_answer_is_bounded_by_what_its_model_can_do() {
        let most = |model: &str, set: Option<u64>| {
            let mut options = Options::new(Kind::Anthropic, "anthropic", model);
            options.max_output = set;
            max_tokens_of(&options)
        };
        assert_eq!(most("claude-3-haiku-20240307", None), 4096);
        assert_eq!(most("claude-3-5-haiku-latest", None), 8192);
        assert_eq!(most("claude-sonnet-4-5", None), 32_000);
        assert_eq!(most("claude-sonnet-4-5", Some(64_000)), 64_000);
        assert_eq!(most("some-gateway/model", None), DEFAULT_MAX_TOKENS);
    }
}
