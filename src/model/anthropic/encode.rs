//! The conversation as the Messages API wants it.
//!
//! The API refuses what a history may well hold: neighbours of one role, results after text,
//! blank texts, another model's thinking, names outside its alphabet. All of that is put right
//! here, so that no session is ever dead; the vocabulary's own text is never changed for it.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
};

use serde::Serialize;
use serde_json::{Value, json};

use crate::{
    message::{Block, Message, Role, ToolResult},
    model::Request,
};

/// The most bytes of a tool's name (pattern `^[a-zA-Z0-9_-]{1,128}$`).
const NAME: usize = 128;

#[derive(Serialize)]
struct Body<'a> {
    model: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_tokens: Option<u64>,
    stream: bool,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    system: Vec<Wire<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<Tool<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_choice: Option<Typed>,
    messages: Vec<Turn<'a>>,
    #[serde(flatten)]
    options: &'a BTreeMap<String, Value>,
}

#[derive(Serialize)]
struct Tool<'a> {
    name: Cow<'a, str>,
    description: &'a str,
    input_schema: Cow<'a, Value>,
}

#[derive(Serialize)]
struct Turn<'a> {
    role: Role,
    content: Vec<Wire<'a>>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Wire<'a> {
    Known(Known<'a>),
    Opaque(&'a Value),
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Known<'a> {
    Text {
        text: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        cache_control: Option<Typed>,
    },
    ToolUse {
        id: Cow<'a, str>,
        name: Cow<'a, str>,
        input: Value,
    },
    ToolResult {
        tool_use_id: Cow<'a, str>,
        #[serde(skip_serializing_if = "str::is_empty")]
        content: &'a str,
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        is_error: bool,
        #[serde(skip_serializing_if = "Option::is_none")]
        cache_control: Option<Typed>,
    },
}

/// An object that holds its type and nothing else.
#[derive(Clone, Copy, Serialize)]
struct Typed {
    r#type: &'static str,
}

/// Asks the API to keep all up to this block:
/// <https://docs.claude.com/en/docs/build-with-claude/prompt-caching>.
const KEEP: Typed = Typed { r#type: "ephemeral" };

/// Returns the request's JSON. `name` is `PROVIDER/MODEL`: opaque blocks of others are left out. An
/// option `max_tokens` comes before the argument.
pub(super) fn body(
    request: &Request,
    model: &str,
    name: &str,
    max_tokens: u64,
    options: &BTreeMap<String, Value>,
) -> Vec<u8> {
    let mut system = Vec::new();
    if !is_blank(&request.system) {
        let text = &request.system;
        system.push(Wire::Known(Known::Text { text, cache_control: Some(KEEP) }));
    }
    let mut messages = turns(&request.messages, name);
    mark_last(&mut messages);
    let mut tools: Vec<Tool<'_>> = request
        .tools
        .iter()
        .map(|tool| Tool {
            name: Cow::Borrowed(&tool.name),
            description: &tool.description,
            input_schema: Cow::Borrowed(&tool.schema),
        })
        .collect();
    let mut tool_choice = None;
    if tools.is_empty() {
        tools = past_tools(&request.messages);
        tool_choice = (!tools.is_empty()).then_some(Typed { r#type: "none" });
    }
    let max_tokens = (!options.contains_key("max_tokens")).then_some(max_tokens);
    let body =
        Body { model, max_tokens, stream: true, system, tools, tool_choice, messages, options };
    // Cannot fail: every map's keys are strings and no type here refuses to be written.
    serde_json::to_vec(&body).unwrap_or_default()
}

/// The API refuses calls in the history of a request without tools, which a session that goes on
/// with fewer rights has: their names are given, and calling them is ruled out.
fn past_tools(messages: &[Message]) -> Vec<Tool<'_>> {
    let names: BTreeSet<_> =
        messages.iter().flat_map(Message::calls).map(|call| in_alphabet(&call.name)).collect();
    names
        .into_iter()
        .map(|name| Tool {
            name,
            description: "Not available any more.",
            input_schema: Cow::Owned(json!({"type": "object"})),
        })
        .collect()
}

fn turns<'a>(messages: &'a [Message], name: &str) -> Vec<Turn<'a>> {
    let mut turns: Vec<Turn<'a>> = Vec::new();
    for message in messages {
        let content: Vec<Wire<'a>> =
            message.blocks.iter().filter_map(|block| wire(block, name)).collect();
        if content.is_empty() {
            continue;
        }
        match turns.last_mut() {
            Some(last) if last.role == message.role => last.content.extend(content),
            _ => turns.push(Turn { role: message.role, content }),
        }
    }
    for turn in &mut turns {
        // Stable: results keep their order, and so do texts.
        turn.content.sort_by_key(|block| !matches!(block, Wire::Known(Known::ToolResult { .. })));
    }
    turns
}

fn wire<'a>(block: &'a Block, name: &str) -> Option<Wire<'a>> {
    Some(match block {
        Block::Text { text } if is_blank(text) => return None,
        Block::Text { text } => Wire::Known(Known::Text { text, cache_control: None }),
        Block::Opaque { model, value } if model == name => Wire::Opaque(value),
        Block::Opaque { .. } => return None,
        Block::Call(call) => Wire::Known(Known::ToolUse {
            id: in_alphabet(&call.id),
            name: in_alphabet(&call.name),
            input: call.arguments.as_wire(),
        }),
        Block::Result(result) => Wire::Known(Known::ToolResult {
            tool_use_id: in_alphabet(&result.call),
            content: content(result),
            is_error: result.is_error,
            cache_control: None,
        }),
    })
}

/// The API wants a failure to have content, and no content to be blank.
fn content(result: &ToolResult) -> &str {
    match (is_blank(&result.text), result.is_error) {
        (false, _) => &result.text,
        (true, true) => "failed without a message",
        (true, false) => "",
    }
}

/// The whole conversation so far is read again by the next request of the same turn.
fn mark_last(turns: &mut [Turn<'_>]) {
    if let Some(Wire::Known(
        Known::Text { cache_control, .. } | Known::ToolResult { cache_control, .. },
    )) = turns.last_mut().and_then(|turn| turn.content.last_mut())
    {
        *cache_control = Some(KEEP);
    }
}

fn is_blank(text: &str) -> bool {
    text.trim().is_empty()
}

/// Returns the text with what the API refuses in identifiers and names replaced by `_`: models
/// invent names, and identifiers may come from another provider.
fn in_alphabet(text: &str) -> Cow<'_, str> {
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if (1..=NAME).contains(&text.len()) && text.chars().all(fits) {
        return Cow::Borrowed(text);
    }
    if text.is_empty() {
        return Cow::Borrowed("_");
    }
    Cow::Owned(text.chars().take(NAME).map(|c| if fits(c) { c } else { '_' }).collect())
}

#[cfg(test)]
mod tests;
