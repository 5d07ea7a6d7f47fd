//! OpenAI's two APIs; the folder `responses` has the newer one, and the rest here is the older.
//!
//! Chat Completions: `POST {base}/chat/completions`, streamed, of any server that has
//! them.
//!
//! The wire's types stay in this folder: [`encode`] writes the conversation as servers want it,
//! [`decode`] reads their chunks, and [`calls`] puts tool calls together. Reference:
//! <https://platform.openai.com/docs/api-reference/chat>. What servers do otherwise is said where it
//! is dealt with, and in `docs/models.md`.

mod calls;
mod decode;
mod encode;
mod responses;

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use futures_util::stream::BoxStream;
use reqwest::{Url, header};
use serde_json::Value;

use super::{
    Delta, ModelError, Request,
    answer::{self, Ask, Without},
    catalogue::{Facts, OF_KLI, OPENAI_BASE_URL, OpenError, Options},
    http::{Dialect, Target, Whole},
    wire::Wire,
};
use crate::message::Effort;

pub(super) use self::responses::Responses;

const DIALECT: Dialect = Dialect {
    base_url: OPENAI_BASE_URL,
    socket_prefix: "/v1",
    not_at_end: "/chat/completions",
    path: &["chat", "completions"],
    repair,
    key_header: header::AUTHORIZATION,
    key_prefix: "Bearer ",
    whole: Some(&Whole { key: "choices", end: decode::END }),
    headers: &[],
};

/// Fields of the body that are no options.
const OWNED: [(&str, &str); 9] = [
    ("function_call", OF_KLI),
    ("functions", OF_KLI),
    ("messages", OF_KLI),
    ("model", "it is what `--model` names"),
    ("n", "kli reads one answer; leave it out"),
    ("stream", "kli reads streams only"),
    ("stream_options", "kli sets it, and leaves it out where a server refuses it"),
    ("tool_choice", OF_KLI),
    ("tools", "narrow them with `capabilities`"),
];

/// Names the repair for a server that does not have the path. Most have it below `/v1`; some
/// (`https://api.deepseek.com`) without, so that its absence alone is no error.
fn repair(base: &Url) -> String {
    if base.path().trim_end_matches('/').is_empty() {
        "there is no `/chat/completions` right below the host: most servers want a base URL that \
         ends with `/v1`"
            .to_owned()
    } else {
        "there is no `/chat/completions` below the base URL: mend it".to_owned()
    }
}

/// A model behind Chat Completions.
#[derive(Debug)]
pub(super) struct Chat {
    facts: Facts,
    model: String,
    effort: Option<Effort>,
    max_output: Option<u64>,
    /// OpenAI's own reasoning models refuse `max_tokens`; other servers may know nothing else.
    is_openai: bool,
    options: Arc<BTreeMap<String, Value>>,
    /// Whether the server refused to be asked for the tokens' count.
    no_usage: Arc<AtomicBool>,
    target: Target,
}

impl Chat {
    /// Checks the options and prepares the connection.
    ///
    /// # Errors
    /// A base URL, key, header or model option that cannot be used; no TLS roots.
    pub(super) fn new(options: &Options) -> Result<Self, OpenError> {
        options.check(&OWNED)?;
        let (effort, notices) = options.plan(&["reasoning_effort"]);
        let target = Target::new(options, &DIALECT)?;
        Ok(Self {
            facts: Facts::new(options, notices),
            effort,
            model: options.model.clone(),
            max_output: options.max_output,
            is_openai: target.host() == "api.openai.com",
            options: Arc::new(options.options.clone()),
            no_usage: Arc::default(),
            target,
        })
    }
}

impl Wire for Chat {
    fn facts(&self) -> &Facts {
        &self.facts
    }

    fn target(&self) -> &Target {
        &self.target
    }

    fn body(&self, request: &Request) -> Vec<u8> {
        let limit = encode::Limit {
            tokens: request.max_tokens.or(self.max_output),
            is_openai: self.is_openai,
        };
        let frame = encode::Frame {
            model: &self.model,
            name: &self.facts.name,
            limit,
            effort: self.effort,
            options: &self.options,
        };
        encode::body(request, frame)
    }

    fn ask(&self, request: &Request) -> BoxStream<'static, Result<Delta, ModelError>> {
        let body = self.body(request);
        let (body, without) = match encode::without_usage(&body) {
            Some(bare) if self.no_usage.load(Ordering::Relaxed) => (bare, None),
            Some(bare) => {
                let refused = Arc::clone(&self.no_usage);
                (body, Some(Without { field: "stream_options", body: bare, refused }))
            }
            None => (body, None),
        };
        let ask = Ask { body, options: Arc::clone(&self.options), without };
        answer::stream(self.target.clone(), ask, decode::Decoder::default())
    }
}
