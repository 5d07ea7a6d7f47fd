//! The conversation's vocabulary: what a person, a model and a tool said.
//!
//! Pure data, written to session files as it stands here. It must not know any provider: wire
//! formats translate to and from these types in `model`.

mod effort;
mod price;
mod redact;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

pub use effort::{Effort, NoEffort};
pub use price::{MOST as MOST_PRICE, Money, Price};
pub use redact::{MARK, Pieces, Redactor};

/// Who speaks. Tool results are spoken by the user, as all wire formats have it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// The person, or kli on their behalf (tool results).
    User,
    /// The model.
    Assistant,
}

/// One message: a role and what it consists of, in order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Message {
    /// Who speaks.
    pub role: Role,
    /// The parts, in the order in which they were said.
    pub blocks: Vec<Block>,
}

impl Message {
    /// Returns a message of the user with one text.
    pub fn user(text: impl Into<String>) -> Self {
        Self { role: Role::User, blocks: vec![Block::Text { text: text.into() }] }
    }

    /// Returns the message's text blocks, joined.
    pub fn text(&self) -> String {
        self.blocks
            .iter()
            .filter_map(|block| match block {
                Block::Text { text } => Some(text.as_str()),
                Block::Opaque { .. } | Block::Call(_) | Block::Result(_) => None,
            })
            .collect()
    }

    /// Iterates over the tool calls of the message, in order.
    pub fn calls(&self) -> impl Iterator<Item = &ToolCall> {
        self.blocks.iter().filter_map(|block| match block {
            Block::Call(call) => Some(call),
            Block::Text { .. } | Block::Opaque { .. } | Block::Result(_) => None,
        })
    }
}

/// A part of a message.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "camelCase")]
pub enum Block {
    /// Plain text.
    Text {
        /// The text.
        text: String,
    },
    /// A block that only the model that made it can read (thinking and its signature). It is
    /// replayed to that model unchanged and to no other.
    Opaque {
        /// `PROVIDER/MODEL` that made it.
        model: String,
        /// The block as it came over the wire.
        value: Value,
    },
    /// The model asks for a tool.
    Call(ToolCall),
    /// What a tool answered.
    Result(ToolResult),
}

/// A model's request to run a tool.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolCall {
    /// The identifier that the result must carry.
    pub id: String,
    /// The tool's name, as the model said it.
    pub name: String,
    /// The arguments.
    pub arguments: Arguments,
}

/// The deepest nesting of a call's arguments: with what a session's line puts around it, within what
/// `serde_json` reads (128).
const DEEPEST: usize = 100;

/// The arguments of a call: an object, or text that is none.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Arguments {
    /// A JSON object. Empty text counts as the empty object.
    Object(Map<String, Value>),
    /// What could not be read as a JSON object (a cut-off answer, another type, nested more than a
    /// hundred levels deep), as it came.
    Malformed(String),
}

impl Arguments {
    /// Reads the arguments from the text that a model produced.
    pub fn parse(text: &str) -> Self {
        if text.trim().is_empty() {
            return Self::Object(Map::new());
        }
        match serde_json::from_str::<Map<String, Value>>(text) {
            Ok(map) if map.values().all(|value| is_shallow(value, DEEPEST)) => Self::Object(map),
            Ok(_) | Err(_) => Self::Malformed(text.to_owned()),
        }
    }

    /// Returns the object to put on the wire; malformed arguments become the empty object, as
    /// providers refuse anything else.
    pub fn as_wire(&self) -> Value {
        match self {
            Self::Object(map) => Value::Object(map.clone()),
            Self::Malformed(_) => Value::Object(Map::new()),
        }
    }
}

fn is_shallow(value: &Value, levels: usize) -> bool {
    let Some(below) = levels.checked_sub(1) else { return false };
    match value {
        Value::Array(items) => items.iter().all(|item| is_shallow(item, below)),
        Value::Object(map) => map.values().all(|item| is_shallow(item, below)),
        _ => true,
    }
}

/// A tool's answer, as the model sees it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ToolResult {
    /// The identifier of the call that it answers.
    pub call: String,
    /// The text for the model.
    pub text: String,
    /// Whether the call failed or was refused.
    pub is_error: bool,
}

/// Tokens, as far as the provider said them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Usage {
    /// Tokens of the request that were not served from a cache.
    pub input_tokens: u64,
    /// Tokens of the answer.
    pub output_tokens: u64,
    /// Tokens of the request that came from a cache.
    pub cache_read_tokens: u64,
    /// Tokens of the request that were written to a cache.
    pub cache_write_tokens: u64,
}

impl Usage {
    /// Adds another turn's tokens; saturates instead of overflowing.
    pub fn add(&mut self, other: Self) {
        self.input_tokens = self.input_tokens.saturating_add(other.input_tokens);
        self.output_tokens = self.output_tokens.saturating_add(other.output_tokens);
        self.cache_read_tokens = self.cache_read_tokens.saturating_add(other.cache_read_tokens);
        self.cache_write_tokens = self.cache_write_tokens.saturating_add(other.cache_write_tokens);
    }

    /// Returns the sum of all four counts.
    pub fn total(self) -> u64 {
        self.input_tokens
            .saturating_add(self.output_tokens)
            .saturating_add(self.cache_read_tokens)
            .saturating_add(self.cache_write_tokens)
    }
}

/// Why the model stopped.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Stop {
    /// It has said what it had to say.
    EndTurn,
    /// It waits for tool results.
    ToolUse,
    /// The answer was cut at the token limit.
    MaxTokens,
    /// The provider or the model declined.
    Refusal,
    /// The context window is full.
    ContextFull,
    /// A reason this version does not know.
    Other(String),
}
