//! OpenAI's Responses: `POST {base}/responses`, streamed, and without state on the server's side.
//!
//! Nothing is kept there (`store: false`): the whole conversation goes along each time, and what a
//! model thought comes and goes encrypted, so that no session depends on what a server remembers.
//! The wire's types stay in this folder: [`encode`] writes the conversation as the API wants it,
//! [`decode`] reads its events. Reference:
//! <https://platform.openai.com/docs/api-reference/responses> and
//! <https://platform.openai.com/docs/guides/reasoning>.

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
use reqwest::{Url, header};
use serde_json::{Value, json};

use crate::{
    message::Effort,
    model::{
        Delta, ModelError, Request,
        answer::{self, Ask, Without},
        catalogue::{Facts, OF_KLI, OPENAI_BASE_URL, OpenError, Options},
        http::{Dialect, Target, Whole},
        wire::Wire,
    },
};

const DIALECT: Dialect = Dialect {
    base_url: OPENAI_BASE_URL,
    socket_prefix: "/v1",
    not_at_end: "/responses",
    path: &["responses"],
    repair,
    key_header: header::AUTHORIZATION,
    key_prefix: "Bearer ",
    whole: Some(&Whole { key: "output", end: decode::END }),
    headers: &[],
};

/// Fields of the body that are no options.
const OWNED: [(&str, &str); 13] = [
    ("background", "kli reads streams only"),
    ("conversation", "kli keeps the conversation itself; leave it out"),
    ("include", OF_KLI),
    ("input", OF_KLI),
    ("instructions", "write `--system-prompt-file` or `--append-system-prompt-file`"),
    ("model", "it is what `--model` names"),
    ("previous_response_id", "kli keeps the conversation itself; leave it out"),
    ("prompt", "write `--system-prompt-file` or `--append-system-prompt-file`"),
    ("store", "kli keeps the conversation itself, and asks that nothing is kept elsewhere"),
    ("stream", "kli reads streams only"),
    ("stream_options", OF_KLI),
    ("tool_choice", OF_KLI),
    ("tools", "narrow them with `capabilities`"),
];

/// Names the repair for a server that does not have the path, as most that are compatible do not.
fn repair(base: &Url) -> String {
    let more = if base.path().trim_end_matches('/').is_empty() {
        "end the base URL with `/v1`, or "
    } else {
        ""
    };
    format!(
        "there is no `/responses` below the base URL: {more}write the kind `openai-chat` if Chat \
         Completions are what the server speaks"
    )
}

/// Gives options that have another name in Chat Completions the one that they have here, so that
/// settings hold for both APIs of one model.
fn in_own_words(mut options: BTreeMap<String, Value>) -> BTreeMap<String, Value> {
    for name in ["max_completion_tokens", "max_tokens"] {
        if let Some(most) = options.remove(name) {
            options.entry("max_output_tokens".to_owned()).or_insert(most);
        }
    }
    if let Some(effort) = options.remove("reasoning_effort") {
        options.entry("reasoning".to_owned()).or_insert_with(|| json!({ "effort": effort }));
    }
    options
}

/// A model behind Responses.
#[derive(Debug)]
pub(in crate::model) struct Responses {
    facts: Facts,
    model: String,
    effort: Option<Effort>,
    max_output: Option<u64>,
    options: Arc<BTreeMap<String, Value>>,
    /// Whether the server refused to have its own thinking back.
    no_thinking: Arc<AtomicBool>,
    target: Target,
}

/// What a refusal of thinking says: it was encrypted for another account.
const REFUSED_THINKING: &str = "encrypted content";

impl Responses {
    /// Checks the options and prepares the connection.
    ///
    /// # Errors
    /// A base URL, key, header or model option that cannot be used; no TLS roots.
    pub(in crate::model) fn new(options: &Options) -> Result<Self, OpenError> {
        options.check(&OWNED)?;
        let (effort, notices) = options.plan(&["reasoning", "reasoning_effort"]);
        Ok(Self {
            facts: Facts::new(options, notices),
            model: options.model.clone(),
            effort,
            max_output: options.max_output,
            options: Arc::new(in_own_words(options.options.clone())),
            no_thinking: Arc::default(),
            target: Target::new(options, &DIALECT)?,
        })
    }

    /// Returns the request's JSON with the thinking of the model of this name, which `""` is none.
    fn body_of(&self, request: &Request, name: &str) -> Vec<u8> {
        let frame = encode::Frame {
            model: &self.model,
            name,
            max_tokens: request.max_tokens.or(self.max_output),
            effort: self.effort,
            options: &self.options,
        };
        encode::body(request, frame)
    }
}

impl Wire for Responses {
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
        let without = Without::thinking(
            &self.facts.name,
            request,
            REFUSED_THINKING,
            &self.no_thinking,
            || self.body_of(request, ""),
        );
        let ask = Ask { body, options: Arc::clone(&self.options), without };
        answer::stream(self.target.clone(), ask, decode::Decoder::default())
    }
}
