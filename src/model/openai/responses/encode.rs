//! The conversation as Responses want it: a list of items, and the system prompt beside it.
//!
//! The API refuses what a history may well hold: calls without results, thinking of another model
//! or without what came of it, names outside its alphabet. All of that is put right here; the
//! vocabulary's own text is never changed for it.

use std::{
    borrow::Cow,
    collections::{BTreeMap, hash_map::DefaultHasher},
    hash::{Hash as _, Hasher as _},
};

use serde::Serialize;
use serde_json::{Map, Value};

use super::super::encode::{NAME, content, fitted, is_blank};
use crate::{
    message::{Block, Effort, Message, Role},
    model::Request,
};

/// The most bytes of a call's identifier that the API takes.
const ID: usize = 64;

/// What of the model's thinking is to come along, so that it can be sent back.
const INCLUDE: [&str; 1] = ["reasoning.encrypted_content"];

/// What a request wants beside the conversation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Frame<'a> {
    /// The model, as the server knows it.
    pub(super) model: &'a str,
    /// `PROVIDER/MODEL`: opaque blocks of others are left out.
    pub(super) name: &'a str,
    /// The most tokens of the answer; an option `max_output_tokens` comes before it.
    pub(super) max_tokens: Option<u64>,
    /// How much the model thinks; `None` = it is not told.
    pub(super) effort: Option<Effort>,
    /// Further fields.
    pub(super) options: &'a BTreeMap<String, Value>,
}

#[derive(Serialize)]
struct Body<'a> {
    model: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    instructions: Option<&'a str>,
    input: Vec<Item<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<Tool<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_output_tokens: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning: Option<Reasoning>,
    #[serde(skip_serializing_if = "Option::is_none")]
    prompt_cache_key: Option<String>,
    store: bool,
    include: [&'static str; 1],
    stream: bool,
    #[serde(flatten)]
    options: &'a BTreeMap<String, Value>,
}

#[derive(Serialize)]
struct Reasoning {
    effort: &'static str,
    /// So that there is something to show; refused by none that takes an effort.
    #[serde(skip_serializing_if = "Option::is_none")]
    summary: Option<&'static str>,
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "lowercase")]
enum Tool<'a> {
    Function {
        name: &'a str,
        description: &'a str,
        parameters: &'a Value,
        /// On by default, which wants schemas of another form: every field required.
        strict: bool,
    },
}

#[derive(Serialize)]
#[serde(untagged)]
enum Item<'a> {
    Known(Known<'a>),
    Opaque(Map<String, Value>),
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Known<'a> {
    Message { role: Role, content: Vec<Part<'a>> },
    FunctionCall { call_id: Cow<'a, str>, name: Cow<'a, str>, arguments: String },
    FunctionCallOutput { call_id: Cow<'a, str>, output: Cow<'a, str> },
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Part<'a> {
    InputText { text: &'a str },
    OutputText { text: &'a str },
}

/// Returns the request's JSON.
pub(super) fn body(request: &Request, frame: Frame<'_>) -> Vec<u8> {
    let Frame { model, name, options, .. } = frame;
    let mut input = Vec::new();
    for message in &request.messages {
        match message.role {
            Role::User => user(&mut input, message),
            Role::Assistant => assistant(&mut input, message, name),
        }
    }
    let tools = request.tools.iter().map(|tool| Tool::Function {
        name: &tool.name,
        description: &tool.description,
        parameters: &tool.schema,
        strict: false,
    });
    let free = |option: &str| !options.contains_key(option);
    let reasoning = frame.effort.map(|level| Reasoning {
        effort: level.name(),
        summary: (level != Effort::None).then_some("auto"),
    });
    let body = Body {
        model,
        instructions: Some(&*request.system).filter(|text| !is_blank(text)),
        input,
        tools: tools.collect(),
        max_output_tokens: frame.max_tokens.filter(|_| free("max_output_tokens")),
        reasoning,
        prompt_cache_key: free("prompt_cache_key").then(|| cache_key(request)),
        store: false,
        include: INCLUDE,
        stream: true,
        options,
    };
    // Cannot fail: every map's keys are strings and no type here refuses to be written.
    serde_json::to_vec(&body).unwrap_or_default()
}

/// Requests with one key reach the machine that has their beginning in its cache. It is the same for
/// all requests of a conversation and says nothing of it.
fn cache_key(request: &Request) -> String {
    let mut hasher = DefaultHasher::new();
    request.system.hash(&mut hasher);
    if let Some(first) = request.messages.first() {
        first.text().hash(&mut hasher);
    }
    format!("kli-{:016x}", hasher.finish())
}

/// Results first: they answer the calls of the message before.
fn user<'a>(input: &mut Vec<Item<'a>>, message: &'a Message) {
    for block in &message.blocks {
        if let Block::Result(result) = block {
            let call_id = fitted(&result.call, ID);
            let output = content(result);
            input.push(Item::Known(Known::FunctionCallOutput { call_id, output }));
        }
    }
    for block in &message.blocks {
        if let Block::Text { text } = block
            && !is_blank(text)
        {
            say(input, Role::User, Part::InputText { text });
        }
    }
}

fn assistant<'a>(input: &mut Vec<Item<'a>>, message: &'a Message, name: &str) {
    let before = input.len();
    for block in &message.blocks {
        match block {
            Block::Text { text } if is_blank(text) => {}
            Block::Text { text } => say(input, Role::Assistant, Part::OutputText { text }),
            Block::Opaque { model, value } if model == name => {
                input.extend(thought(value).map(Item::Opaque));
            }
            Block::Call(call) => input.push(Item::Known(Known::FunctionCall {
                call_id: fitted(&call.id, ID),
                name: fitted(&call.name, NAME),
                arguments: call.arguments.as_wire().to_string(),
            })),
            Block::Opaque { .. } | Block::Result(_) => {}
        }
    }
    // The API refuses thinking that nothing came of, as an answer that broke off has it.
    while input.len() > before && matches!(input.last(), Some(Item::Opaque(_))) {
        input.pop();
    }
}

fn say<'a>(input: &mut Vec<Item<'a>>, role: Role, part: Part<'a>) {
    match input.last_mut() {
        Some(Item::Known(Known::Message { role: last, content })) if *last == role => {
            content.push(part);
        }
        _ => input.push(Item::Known(Known::Message { role, content: vec![part] })),
    }
}

/// What goes back of thinking. Not its identifier, which names what a server has kept: nothing is
/// kept, and with it an item that is not whole would be looked for.
fn thought(value: &Value) -> Option<Map<String, Value>> {
    let item = value.as_object()?;
    let kept = ["type", "summary", "content", "encrypted_content"];
    let is_there = |value: &Value| !value.is_null() && *value != Value::Array(Vec::new());
    let mut map: Map<String, Value> = kept
        .iter()
        .filter_map(|key| {
            Some(((*key).to_owned(), item.get(*key).filter(|v| is_there(v))?.clone()))
        })
        .collect();
    if !map.contains_key("encrypted_content") && !map.contains_key("content") {
        return None;
    }
    // Required, also when there is none.
    map.entry("summary").or_insert_with(|| Value::Array(Vec::new()));
    Some(map)
}
