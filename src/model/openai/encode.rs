//! The conversation as Chat Completions want it.
//!
//! Servers put the messages into a model's own template, and many templates break on what the API
//! allows: neighbours of one role, content in parts, blank texts. So content is one string, and
//! neighbours are joined. The vocabulary's own text is never changed for it.

use std::{borrow::Cow, collections::BTreeMap};

use serde::{Serialize, ser::SerializeMap as _};
use serde_json::Value;

use crate::{
    message::{Block, Effort, Message, Role, ToolResult},
    model::Request,
};

use super::decode::REASONING;

/// The most bytes of a function's name (pattern `^[a-zA-Z0-9_-]{1,64}$`).
pub(super) const NAME: usize = 64;

/// The most bytes of a call's identifier that OpenAI takes.
const ID: usize = 40;

/// How a body ends that asks for the tokens' count.
const USAGE: &[u8] = br#","stream_options":{"include_usage":true}}"#;

/// The bound of an answer, and under which of its two names to send it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limit {
    /// The most tokens; `None` = the server's own bound.
    pub(super) tokens: Option<u64>,
    /// Whether the server is OpenAI's own.
    pub(super) is_openai: bool,
}

#[derive(Serialize)]
struct Body<'a> {
    model: &'a str,
    messages: Vec<Wire<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<Tool<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_tokens: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_completion_tokens: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning_effort: Option<&'static str>,
    stream: bool,
    #[serde(flatten)]
    options: &'a BTreeMap<String, Value>,
    /// Last, so that it can be cut off: see [`without_usage`].
    stream_options: StreamOptions,
}

#[derive(Serialize)]
struct StreamOptions {
    include_usage: bool,
}

#[derive(Serialize)]
#[serde(tag = "role", rename_all = "lowercase")]
enum Wire<'a> {
    System {
        content: &'a str,
    },
    User {
        content: Cow<'a, str>,
    },
    Assistant {
        /// `null` beside calls alone, as the API itself has it.
        content: Option<Cow<'a, str>>,
        #[serde(flatten)]
        reasoning: Option<Reasoning<'a>>,
        #[serde(skip_serializing_if = "Vec::is_empty")]
        tool_calls: Vec<Call<'a>>,
    },
    Tool {
        tool_call_id: Cow<'a, str>,
        content: Cow<'a, str>,
    },
}

/// What the model thought before its calls, under the name under which it came.
struct Reasoning<'a> {
    field: &'static str,
    text: &'a str,
}

impl Serialize for Reasoning<'_> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(1))?;
        map.serialize_entry(self.field, self.text)?;
        map.end()
    }
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "lowercase")]
enum Call<'a> {
    Function { id: Cow<'a, str>, function: CalledFunction<'a> },
}

#[derive(Serialize)]
struct CalledFunction<'a> {
    name: Cow<'a, str>,
    /// JSON as text.
    arguments: String,
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "lowercase")]
enum Tool<'a> {
    Function { function: Function<'a> },
}

#[derive(Serialize)]
struct Function<'a> {
    name: &'a str,
    description: &'a str,
    parameters: &'a Value,
}

/// What a request wants beside the conversation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Frame<'a> {
    /// The model, as the server knows it.
    pub(super) model: &'a str,
    /// `PROVIDER/MODEL`: opaque blocks of others are left out.
    pub(super) name: &'a str,
    /// The bound of the answer; options that bound it come before.
    pub(super) limit: Limit,
    /// How much the model thinks; `None` = it is not told.
    pub(super) effort: Option<Effort>,
    /// Further fields.
    pub(super) options: &'a BTreeMap<String, Value>,
}

/// Returns the request's JSON.
pub(super) fn body(request: &Request, frame: Frame<'_>) -> Vec<u8> {
    let Frame { model, name, limit, effort, options } = frame;
    let mut messages = Vec::new();
    if !is_blank(&request.system) {
        messages.push(Wire::System { content: &request.system });
    }
    for message in &request.messages {
        match message.role {
            Role::User => user(&mut messages, message),
            Role::Assistant => assistant(&mut messages, message, name),
        }
    }
    let tools = request.tools.iter().map(|tool| Tool::Function {
        function: Function {
            name: &tool.name,
            description: &tool.description,
            parameters: &tool.schema,
        },
    });
    let bounded = ["max_tokens", "max_completion_tokens"].iter().any(|k| options.contains_key(*k));
    let tokens = limit.tokens.filter(|_| !bounded);
    let body = Body {
        model,
        messages,
        tools: tools.collect(),
        max_tokens: tokens.filter(|_| !limit.is_openai),
        max_completion_tokens: tokens.filter(|_| limit.is_openai),
        reasoning_effort: effort.map(Effort::name),
        stream: true,
        options,
        stream_options: StreamOptions { include_usage: true },
    };
    // Cannot fail: every map's keys are strings and no type here refuses to be written.
    serde_json::to_vec(&body).unwrap_or_default()
}

/// Returns the body without the wish for the tokens' count.
pub(super) fn without_usage(body: &[u8]) -> Option<Vec<u8>> {
    let mut bare = body.strip_suffix(USAGE)?.to_vec();
    bare.push(b'}');
    Some(bare)
}

/// Results first, also before what neighbours say: they answer the calls of the message before.
fn user<'a>(messages: &mut Vec<Wire<'a>>, message: &'a Message) {
    let answers = message.blocks.iter().any(|block| matches!(block, Block::Result(_)));
    let said = messages.pop_if(|last| answers && matches!(last, Wire::User { .. }));
    for block in &message.blocks {
        if let Block::Result(result) = block {
            let tool_call_id = fitted(&result.call, ID);
            messages.push(Wire::Tool { tool_call_id, content: content(result) });
        }
    }
    messages.extend(said);
    for text in texts(message) {
        match messages.last_mut() {
            Some(Wire::User { content }) => join(content, text),
            _ => messages.push(Wire::User { content: Cow::Borrowed(text) }),
        }
    }
}

fn assistant<'a>(messages: &mut Vec<Wire<'a>>, message: &'a Message, name: &str) {
    let mut said: Option<Cow<'a, str>> = None;
    for text in texts(message) {
        match &mut said {
            Some(all) => join(all, text),
            None => said = Some(Cow::Borrowed(text)),
        }
    }
    let calls: Vec<Call<'a>> = message
        .calls()
        .map(|call| Call::Function {
            id: fitted(&call.id, ID),
            function: CalledFunction {
                name: fitted(&call.name, NAME),
                arguments: call.arguments.as_wire().to_string(),
            },
        })
        .collect();
    let thought = message.blocks.iter().find_map(|block| match block {
        Block::Opaque { model, value } if model == name => reasoning(value),
        _ => None,
    });
    if said.is_none() && calls.is_empty() {
        return;
    }
    match messages.last_mut() {
        Some(Wire::Assistant { content, reasoning, tool_calls }) if tool_calls.is_empty() => {
            match (&mut *content, said) {
                (Some(all), Some(more)) => join(all, &more),
                (all, more) => *all = all.take().or(more),
            }
            *reasoning = reasoning.take().or(thought);
            *tool_calls = calls;
        }
        _ => {
            messages.push(Wire::Assistant { content: said, reasoning: thought, tool_calls: calls });
        }
    }
}

fn reasoning(value: &Value) -> Option<Reasoning<'_>> {
    REASONING.into_iter().find_map(|field| {
        let text = value.get(field)?.as_str()?;
        Some(Reasoning { field, text })
    })
}

fn texts(message: &Message) -> impl Iterator<Item = &str> {
    message.blocks.iter().filter_map(|block| match block {
        Block::Text { text } if !is_blank(text) => Some(text.as_str()),
        _ => None,
    })
}

fn join(all: &mut Cow<'_, str>, more: &str) {
    let all = all.to_mut();
    all.push_str("\n\n");
    all.push_str(more);
}

/// The API has no mark for a failure, so the text says it; blank content breaks templates.
pub(super) fn content(result: &ToolResult) -> Cow<'_, str> {
    match (is_blank(&result.text), result.is_error) {
        (false, false) => Cow::Borrowed(&result.text),
        (true, false) => Cow::Borrowed("(no output)"),
        (false, true) => Cow::Owned(format!("error: {}", result.text)),
        (true, true) => Cow::Borrowed("error: failed without a message"),
    }
}

pub(super) fn is_blank(text: &str) -> bool {
    text.trim().is_empty()
}

/// Returns a text as the API takes it in identifiers and names: models invent names, and
/// identifiers may come from another provider. What is changed ends in a hash of the whole, so that
/// two that differed still do.
pub(super) fn fitted(text: &str, most: usize) -> Cow<'_, str> {
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if (1..=most).contains(&text.len()) && text.chars().all(fits) {
        return Cow::Borrowed(text);
    }
    if text.is_empty() {
        return Cow::Borrowed("_");
    }
    let hash = fnv(text);
    let start = text.chars().take(most.saturating_sub(9)).map(|c| if fits(c) { c } else { '_' });
    Cow::Owned(format!("{}_{hash:08x}", start.collect::<String>()))
}

/// FNV-1a, 32 bits: <http://www.isthe.com/chongo/tech/comp/fnv/>.
fn fnv(text: &str) -> u32 {
    text.bytes().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

#[cfg(test)]
mod tests;
