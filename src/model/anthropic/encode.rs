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
    message::{Block, Effort, Message, Role, ToolResult},
    model::{Request, known::Style},
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
    #[serde(skip_serializing_if = "Option::is_none")]
    thinking: Option<WireThinking>,
    #[serde(skip_serializing_if = "Option::is_none")]
    output_config: Option<OutputConfig>,
    messages: Vec<Turn<'a>>,
    #[serde(flatten)]
    options: &'a BTreeMap<String, Value>,
}

#[derive(Serialize)]
struct Tool<'a> {
    name: Cow<'a, str>,
    description: &'a str,
    input_schema: Cow<'a, Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cache_control: Option<Typed>,
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "lowercase")]
enum WireThinking {
    Enabled { budget_tokens: u64 },
    Adaptive,
}

#[derive(Serialize)]
struct OutputConfig {
    effort: &'static str,
}

/// What a request wants beside the conversation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Frame<'a> {
    /// The model, as the API knows it.
    pub(super) model: &'a str,
    /// `PROVIDER/MODEL`: opaque blocks of others are left out.
    pub(super) name: &'a str,
    /// The most tokens of the answer; an option `max_tokens` comes before it.
    pub(super) max_tokens: u64,
    /// How the model is told to think; `None` = it is not told.
    pub(super) thinking: Option<Thinking>,
    /// Further fields.
    pub(super) options: &'a BTreeMap<String, Value>,
}

/// How a model is told to think:
/// <https://docs.claude.com/en/docs/build-with-claude/extended-thinking> and its neighbours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Thinking {
    /// With this many tokens, as far as the answer's bound leaves room for them.
    Budget(u64),
    /// As much as it wants, at this level.
    Adaptive(Effort),
    /// At this level.
    Level(Effort),
}

/// The least budget that the API takes.
const LEAST_BUDGET: u64 = 1024;

impl Thinking {
    /// Returns what a level is for a model; `None` = thinking is not asked for.
    pub(super) fn new(style: Style, level: Effort) -> Option<Self> {
        match style {
            Style::Adaptive => Some(Self::Adaptive(level)),
            Style::Level => Some(Self::Level(level)),
            Style::Budget => match level {
                Effort::None => None,
                Effort::Minimal => Some(Self::Budget(LEAST_BUDGET)),
                Effort::Low => Some(Self::Budget(4096)),
                Effort::Medium => Some(Self::Budget(10_000)),
                Effort::High | Effort::ExtraHigh | Effort::Max => Some(Self::Budget(24_000)),
            },
        }
    }
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

/// Returns the request's JSON.
pub(super) fn body(request: &Request, frame: Frame<'_>) -> Vec<u8> {
    let Frame { model, name, options, .. } = frame;
    let mut system = Vec::new();
    if !is_blank(&request.system) {
        let text = &request.system;
        system.push(Wire::Known(Known::Text { text, cache_control: Some(KEEP) }));
    }
    let mut messages = turns(&request.messages, name);
    mark_last(&mut messages);
    let bound = options.get("max_tokens").and_then(Value::as_u64).unwrap_or(frame.max_tokens);
    let (thinking, output_config) = thinking(frame.thinking, bound, &messages);
    let mut tools: Vec<Tool<'_>> = request
        .tools
        .iter()
        .map(|tool| Tool {
            name: Cow::Borrowed(&tool.name),
            description: &tool.description,
            input_schema: Cow::Borrowed(&tool.schema),
            cache_control: None,
        })
        .collect();
    if let Some(last) = tools.last_mut() {
        last.cache_control = Some(KEEP);
    }
    let mut tool_choice = None;
    if tools.is_empty() {
        tools = past_tools(&request.messages);
        tool_choice = (!tools.is_empty()).then_some(Typed { r#type: "none" });
    }
    let max_tokens = (!options.contains_key("max_tokens")).then_some(frame.max_tokens);
    let body = Body {
        model,
        max_tokens,
        stream: true,
        system,
        tools,
        tool_choice,
        thinking,
        output_config,
        messages,
        options,
    };
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
            cache_control: None,
        })
        .collect()
}

fn turns<'a>(messages: &'a [Message], name: &str) -> Vec<Turn<'a>> {
    let mut turns: Vec<Turn<'a>> = Vec::new();
    for message in messages {
        let mut content: Vec<Wire<'a>> =
            message.blocks.iter().filter_map(|block| wire(block, name)).collect();
        // The API refuses an answer that ends in thinking, as one that broke off there does.
        while content.pop_if(|last| matches!(last, Wire::Opaque(_))).is_some() {}
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

/// The whole conversation so far is read again by the next request. The API looks back twenty blocks
/// for what it kept, which one answer with many calls is longer than: so the turn before is marked
/// as well, where the request before this one was. With the tools and the system prompt that makes
/// the four marks that a request may have.
fn mark_last(turns: &mut [Turn<'_>]) {
    let said = turns.iter_mut().rev().filter(|turn| turn.role == Role::User);
    for turn in said.take(2) {
        if let Some(Wire::Known(
            Known::Text { cache_control, .. } | Known::ToolResult { cache_control, .. },
        )) = turn.content.last_mut()
        {
            *cache_control = Some(KEEP);
        }
    }
}

/// Returns how the model is told to think in this request. The API wants a budget below the answer's
/// bound, and refuses one where calls were made without thinking that wait for their results, as
/// they were when another model made them.
fn thinking(
    wanted: Option<Thinking>,
    bound: u64,
    turns: &[Turn<'_>],
) -> (Option<WireThinking>, Option<OutputConfig>) {
    match wanted {
        None => (None, None),
        Some(Thinking::Level(level)) => (None, Some(OutputConfig { effort: level.name() })),
        Some(Thinking::Adaptive(level)) => {
            (Some(WireThinking::Adaptive), Some(OutputConfig { effort: level.name() }))
        }
        Some(Thinking::Budget(tokens)) => {
            // Half of the bound at the most, or nothing would be left to say.
            let tokens = tokens.min(bound / 2);
            let fits = tokens >= LEAST_BUDGET && !waits_without_thinking(turns);
            (fits.then_some(WireThinking::Enabled { budget_tokens: tokens }), None)
        }
    }
}

/// Whether the last answer made calls and did not begin with thinking.
fn waits_without_thinking(turns: &[Turn<'_>]) -> bool {
    let last = turns.iter().rev().find(|turn| turn.role == Role::Assistant);
    let thought = |turn: &Turn<'_>| matches!(turn.content.first(), Some(Wire::Opaque(_)));
    let called = |turn: &Turn<'_>| {
        turn.content.iter().any(|block| matches!(block, Wire::Known(Known::ToolUse { .. })))
    };
    last.is_some_and(|turn| called(turn) && !thought(turn))
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
