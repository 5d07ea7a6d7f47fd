//! The Messages API: what it refuses, and how it streams.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{Part, Seen, pieces};

/// Says what the real API would refuse in a request.
pub(super) fn complaint(seen: &Seen, body: &Value) -> Option<String> {
    if seen.header("anthropic-version").is_none() {
        return Some("anthropic-version: header is required".into());
    }
    if body["stream"] != true || body["max_tokens"].as_u64().unwrap_or(0) == 0 {
        return Some("stream and max_tokens are required".into());
    }
    if body["tools"].as_array().is_none_or(Vec::is_empty)
        && body["messages"].to_string().contains(r#""type":"tool_"#)
    {
        return Some("tools: required when messages hold `tool_use` or `tool_result`".into());
    }
    if let Some(budget) = body["thinking"]["budget_tokens"].as_u64()
        && !(1024..body["max_tokens"].as_u64().unwrap_or(0)).contains(&budget)
    {
        return Some("thinking.budget_tokens: from 1024, and less than `max_tokens`".into());
    }
    if body.to_string().matches("\"cache_control\"").count() > 4 {
        return Some("A maximum of 4 blocks with cache_control may be provided".into());
    }
    let model = body["model"].as_str().unwrap_or_default().to_owned();
    let messages = body["messages"].as_array().cloned().unwrap_or_default();
    if messages.is_empty() {
        return Some("messages: at least one message is required".into());
    }
    let mut open: Vec<String> = Vec::new();
    let mut ids = BTreeSet::new();
    for (at, message) in messages.iter().enumerate() {
        let expected = if at % 2 == 0 { "user" } else { "assistant" };
        if message["role"] != expected {
            return Some(format!("messages.{at}: roles must alternate, {expected} is expected"));
        }
        let content = match &message["content"] {
            Value::String(text) => vec![json!({"type": "text", "text": text})],
            Value::Array(blocks) => blocks.clone(),
            _ => Vec::new(),
        };
        if content.is_empty() {
            return Some(format!("messages.{at}: content must not be empty"));
        }
        let is_thinking =
            |block: &Value| block["type"].as_str().is_some_and(|kind| kind.ends_with("thinking"));
        if content.last().is_some_and(is_thinking) {
            return Some(format!(
                "messages.{at}: the final block in an assistant message cannot be `thinking`"
            ));
        }
        let calls = content.iter().any(|block| block["type"] == "tool_use");
        let budgeted = body["thinking"]["type"] == "enabled";
        // The answer whose calls are being worked on: no other follows.
        if budgeted
            && calls
            && at + 2 >= messages.len()
            && !content.first().is_some_and(is_thinking)
        {
            return Some(format!(
                "messages.{at}.content.0: expected `thinking` or `redacted_thinking`"
            ));
        }
        let wanted = std::mem::take(&mut open);
        let mut answered = Vec::new();
        let mut other = false;
        for block in &content {
            if let Some(complaint) = block_complaint(block, expected, &model) {
                return Some(format!("messages.{at}: {complaint}"));
            }
            match block["type"].as_str() {
                Some("tool_use") => {
                    let id = block["id"].as_str().unwrap_or_default().to_owned();
                    if !ids.insert(id.clone()) {
                        return Some(format!("messages.{at}: `tool_use` ids must be unique: {id}"));
                    }
                    open.push(id);
                }
                Some("tool_result") => {
                    let id = block["tool_use_id"].as_str().unwrap_or_default().to_owned();
                    if !wanted.contains(&id) || answered.contains(&id) {
                        return Some(format!(
                            "messages.{at}: unexpected `tool_use_id` in `tool_result`: {id}"
                        ));
                    }
                    if other {
                        return Some(format!("messages.{at}: `tool_result` blocks come first"));
                    }
                    answered.push(id);
                }
                _ => other = true,
            }
        }
        if let Some(id) = wanted.iter().find(|id| !answered.contains(id)) {
            return Some(format!(
                "messages.{at}: `tool_use` ids were found without `tool_result` blocks: {id}"
            ));
        }
    }
    open.first().map(|id| format!("the last message's `tool_use` {id} has no `tool_result`"))
}

fn block_complaint(block: &Value, role: &str, model: &str) -> Option<String> {
    let text = |key: &str| block[key].as_str().unwrap_or_default();
    let fits = |text: &str| {
        !text.is_empty()
            && text.len() <= 128
            && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-')
    };
    match (text("type"), role) {
        ("text", _) if text("text").trim().is_empty() => {
            Some("text content blocks must contain non-whitespace text".into())
        }
        ("text", _) => None,
        ("tool_use", "assistant") => {
            if !fits(text("id")) || !fits(text("name")) {
                return Some(format!("tool_use: bad id or name: {block}"));
            }
            (!block["input"].is_object()).then(|| "tool_use.input: an object is required".into())
        }
        ("tool_result", "user") => {
            let empty = text("content").trim().is_empty();
            (block["is_error"] == true && empty)
                .then(|| "content cannot be empty if `is_error` is true".into())
        }
        // Signatures of this fake are `MODEL:…`, so that another model's can be told.
        ("thinking", "assistant") => (!text("signature").starts_with(&format!("{model}:")))
            .then(|| "Invalid `signature` in `thinking` block".into()),
        ("redacted_thinking", "assistant") => (!text("data").starts_with(&format!("{model}:")))
            .then(|| "Invalid `data` in `redacted_thinking` block".into()),
        (other, _) => Some(format!("block type `{other}` is not allowed for {role}")),
    }
}

/// One event, with its name.
pub(crate) fn event(value: &Value) -> String {
    format!("event: {}\ndata: {value}\n\n", value["type"].as_str().unwrap_or_default())
}

/// A whole answer with the stop reason that its parts suggest and a fixed usage (12 in, 34 out,
/// 5 read from the cache, 6 written to it).
pub(crate) fn message(parts: impl IntoIterator<Item = Part>) -> String {
    let parts: Vec<Part> = parts.into_iter().collect();
    let calls = parts.iter().any(|part| matches!(part, Part::Call { .. }));
    message_stopped(parts, if calls { "tool_use" } else { "end_turn" })
}

/// A whole answer with a stop reason.
pub(crate) fn message_stopped(parts: impl IntoIterator<Item = Part>, reason: &str) -> String {
    let mut stream = event(&json!({"type": "message_start", "message": {
        "id": "msg_1", "type": "message", "role": "assistant", "content": [], "model": "fake",
        "stop_reason": null, "stop_sequence": null,
        "usage": {"input_tokens": 12, "cache_read_input_tokens": 5,
                  "cache_creation_input_tokens": 6, "output_tokens": 1}}}));
    stream.push_str(&event(&json!({"type": "ping"})));
    for (index, part) in parts.into_iter().enumerate() {
        let (start, deltas) = block(part);
        stream.push_str(&event(
            &json!({"type": "content_block_start", "index": index, "content_block": start}),
        ));
        for delta in deltas {
            stream.push_str(&event(
                &json!({"type": "content_block_delta", "index": index, "delta": delta}),
            ));
        }
        stream.push_str(&event(&json!({"type": "content_block_stop", "index": index})));
    }
    stream.push_str(&event(&json!({"type": "message_delta",
        "delta": {"stop_reason": reason, "stop_sequence": null},
        "usage": {"output_tokens": 34}})));
    stream.push_str(&event(&json!({"type": "message_stop"})));
    stream
}

/// How a block starts, and its deltas.
fn block(part: Part) -> (Value, Vec<Value>) {
    match part {
        Part::Text(text) => (
            json!({"type": "text", "text": ""}),
            pieces(&text).map(|text| json!({"type": "text_delta", "text": text})).collect(),
        ),
        Part::Call { id, name, arguments } => (
            json!({"type": "tool_use", "id": id, "name": name, "input": {}}),
            pieces(&arguments)
                .map(|json| json!({"type": "input_json_delta", "partial_json": json}))
                .collect(),
        ),
        Part::Thinking { text, signature } => (
            json!({"type": "thinking", "thinking": "", "signature": ""}),
            pieces(&text)
                .map(|text| json!({"type": "thinking_delta", "thinking": text}))
                .chain([json!({"type": "signature_delta", "signature": signature})])
                .collect(),
        ),
        Part::Redacted(data) => (json!({"type": "redacted_thinking", "data": data}), Vec::new()),
    }
}
