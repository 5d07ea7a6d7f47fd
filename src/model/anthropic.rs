//! Anthropic's Messages API: `POST {base}/v1/messages`, streamed.
//!
//! The wire's types stay in this folder: [`encode`] writes the conversation as the API wants it,
//! [`decode`] reads its events. Reference: <https://docs.claude.com/en/api/messages> and
//! <https://docs.claude.com/en/docs/build-with-claude/streaming>.

mod decode;
mod encode;

use std::{collections::BTreeMap, sync::Arc};

use futures_util::stream::BoxStream;
use reqwest::header::HeaderName;
use serde_json::Value;

use super::{
    Delta, Model, ModelError, Request, answer,
    catalogue::{ANTHROPIC_BASE_URL, OF_KLI, OpenError, Options},
    http::{Dialect, Target},
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

/// The most tokens of an answer when the request does not say: what every model of the API that
/// is not in [`MAX_TOKENS`] can do.
const DEFAULT_MAX_TOKENS: u64 = 8192;

/// Models whose bound differs, by how their names start; the first match counts. From the tables
/// of <https://docs.claude.com/en/docs/about-claude/models/overview>.
const MAX_TOKENS: [(&str, u64); 6] = [
    ("claude-3-opus", 4096),
    ("claude-3-sonnet", 4096),
    ("claude-3-haiku", 4096),
    ("claude-opus-4", 32_000),
    ("claude-sonnet-4", 32_000),
    ("claude-haiku-4", 32_000),
];

/// A model behind the Messages API.
#[derive(Debug)]
pub(super) struct Anthropic {
    name: String,
    model: String,
    max_output: Option<u64>,
    options: Arc<BTreeMap<String, Value>>,
    target: Target,
}

impl Anthropic {
    /// Checks the options and prepares the connection.
    ///
    /// # Errors
    /// A base URL, key, header or model option that cannot be used; no TLS roots.
    pub(super) fn new(options: &Options) -> Result<Self, OpenError> {
        options.check(&OWNED)?;
        Ok(Self {
            name: options.name(),
            model: options.model.clone(),
            max_output: options.max_output,
            options: Arc::new(options.options.clone()),
            target: Target::new(options, &DIALECT)?,
        })
    }

    fn body(&self, request: &Request) -> Vec<u8> {
        let max_tokens = request.max_tokens.or(self.max_output);
        let max_tokens = max_tokens.unwrap_or_else(|| max_tokens_of(&self.model));
        encode::body(request, &self.model, &self.name, max_tokens, &self.options)
    }
}

impl Model for Anthropic {
    fn name(&self) -> &str {
        &self.name
    }

    fn request_bytes(&self, request: &Request) -> Option<u64> {
        u64::try_from(self.body(request).len()).ok()
    }

    fn needs_network(&self) -> bool {
        self.target.needs_network()
    }

    fn stream(&self, request: Request) -> BoxStream<'static, Result<Delta, ModelError>> {
        let body = self.body(&request);
        let ask = answer::Ask { body, options: Arc::clone(&self.options), without: None };
        answer::stream(self.target.clone(), ask, decode::Decoder::default())
    }
}

fn max_tokens_of(model: &str) -> u64 {
    MAX_TOKENS
        .iter()
        .find(|(prefix, _)| model.starts_with(prefix))
        .map_or(DEFAULT_MAX_TOKENS, |(_, tokens)| *tokens)
}

#[cfg(test)]
mod tests {
    #[test]
    fn an_answer_is_bounded_by_what_its_model_can_do() {
        assert_eq!(super::max_tokens_of("claude-3-haiku-20240307"), 4096);
        assert_eq!(super::max_tokens_of("claude-sonnet-4-5"), 32_000);
        assert_eq!(super::max_tokens_of("some-gateway/model"), super::DEFAULT_MAX_TOKENS);
    }
}
