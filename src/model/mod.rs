//! Models: one trait, and the vocabulary in which an answer streams in.
//!
//! Wire types are private to the file of their provider. This folder knows no tools, no sessions
//! and no settings file: it is handed small option structs.

mod answer;
mod anthropic;
pub mod catalogue;
mod failure;
mod http;
pub mod known;
mod openai;
pub mod replay;
pub mod sse;

use std::{fmt, time::Duration};

use futures_util::stream::BoxStream;
use serde_json::Value;

use crate::message::{Message, Price, Stop, Usage};

/// A model that can be asked.
pub trait Model: Send + Sync + fmt::Debug {
    /// Returns `PROVIDER/MODEL`.
    fn name(&self) -> &str;

    /// Returns how many bytes the body of a request would have; `None` when nothing is sent.
    fn request_bytes(&self, _request: &Request) -> Option<u64> {
        None
    }

    /// Returns how many tokens a conversation may have, the answer included; `None` = not known.
    fn context_window(&self) -> Option<u64> {
        None
    }

    /// Returns the most tokens of one answer; `None` = not known.
    fn max_output(&self) -> Option<u64> {
        None
    }

    /// Returns what its tokens cost; `None` = nobody said.
    fn price(&self) -> Option<Price> {
        None
    }

    /// Returns what people should know about how it is asked, one sentence each: options that it
    /// does not have and that are left out.
    fn notices(&self) -> &[String] {
        &[]
    }

    /// Returns whether asking it needs the network, the loopback included.
    fn needs_network(&self) -> bool;

    /// Asks, and returns the answer as it streams in. The stream ends after [`Delta::Done`] or the
    /// first error. Dropping it ends the request. No failure is retried in here, the error's class
    /// says what the caller may do; a field that a server does not know may be left out at once.
    fn stream(&self, request: Request) -> BoxStream<'static, Result<Delta, ModelError>>;
}

/// One request: the whole conversation, as providers want it each time.
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// The system prompt; byte-stable between turns so that caches hit.
    pub system: String,
    /// The tools on offer, in a stable order.
    pub tools: Vec<ToolSpec>,
    /// The conversation so far. Calls and results are paired.
    pub messages: Vec<Message>,
    /// The most tokens to answer with; `None` = the provider file's default.
    pub max_tokens: Option<u64>,
}

/// A tool as a model sees it.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolSpec {
    /// The name that a call carries.
    pub name: String,
    /// What it does, for the model.
    pub description: String,
    /// The JSON schema of its arguments.
    pub schema: Value,
}

/// A piece of an answer.
#[derive(Clone, Debug, PartialEq)]
pub enum Delta {
    /// The answer has begun with what is told as a whole later: a call, or thinking that its model
    /// alone reads. It comes once at most, before everything else.
    Begun,
    /// More text.
    Text(String),
    /// More visible thinking, for display only.
    Thinking(String),
    /// A whole opaque block, to be kept and replayed to the same model.
    Opaque(Value),
    /// A whole tool call; `arguments` is the raw text, not yet read as JSON.
    Call {
        /// The identifier that the result must carry.
        id: String,
        /// The tool's name as the model said it.
        name: String,
        /// The arguments' text, exactly as the model produced it.
        arguments: String,
    },
    /// The answer is complete. A stream that ends without this was cut off.
    Done {
        /// Why the model stopped.
        stop: Stop,
        /// Tokens, `None` when the provider did not say.
        usage: Option<Usage>,
    },
}

/// What the caller may do about an error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Class {
    /// Try again, not before `after` when the server said so.
    Retry {
        /// The server's own wish (`retry-after`).
        after: Option<Duration>,
    },
    /// The key is missing, wrong or not allowed to.
    Auth,
    /// The conversation does not fit the context window.
    ContextFull,
    /// The request was understood and declined.
    Refused,
    /// Nothing helps.
    Fatal,
}

/// A request that failed: a class to act on and a sentence to read. The sentence names the host,
/// never a key, a header's value or a query.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ModelError {
    /// What the caller may do.
    pub class: Class,
    /// What happened, for people.
    pub message: String,
    /// Whether it was the connection (name, connect, TLS, reset, idle) rather than an answer.
    pub network: bool,
}
