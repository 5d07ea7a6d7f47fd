//! Chat Completions: what the API refuses, and how it streams.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{Part, pieces};

/// One event.
pub(crate) fn chunk(value: &Value) -> String {
    format!("data: {value}\n\n")
}

/// A chunk with one choice.
fn choice(delta: &Value, reason: Option<&str>) -> String {
    chunk(&json!({"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1,
        "model": "fake", "usage": null,
        "choices": [{"index": 0, "delta": delta, "logprobs": null, "finish_reason": reason}]}))
}

/// A whole answer with the stop reason that its parts suggest and a fixed usage (12 in, 34 out, 5
/// read from the cache).
pub(super) fn message(parts: impl IntoIterator<Item = Part>) -> String {
    let parts: Vec<Part> = parts.into_iter().collect();
    let calls = parts.iter().any(|part| matches!(part, Part::Call { .. }));
    message_stopped(parts, if calls { "tool_calls" } else { "stop" })
}

/// A whole answer with a stop reason.
pub(super) fn message_stopped(parts: impl IntoIterator<Item = Part>, reason: &str) -> String {
    let mut stream =
        format!(": ping\n\n{}", choice(&json!({"role": "assistant", "content": null}), None));
    let mut calls = 0;
    for part in parts {
        match part {
            Part::Text(text) => {
                for text in pieces(&text) {
                    stream.push_str(&choice(&json!({"content": text}), None));
                }
            }
            Part::Thinking { text, .. } => {
                for text in pieces(&text) {
                    stream.push_str(&choice(&json!({"reasoning_content": text}), None));
                }
            }
            Part::Redacted(_) => {}
            Part::Call { id, name, arguments } => {
                let call = |call: Value| choice(&json!({"tool_calls": [call]}), None);
                stream.push_str(&call(json!({"index": calls, "id": id, "type": "function",
                    "function": {"name": name, "arguments": ""}})));
                for text in pieces(&arguments) {
                    stream
                        .push_str(&call(json!({"index": calls, "function": {"arguments": text}})));
                }
                calls += 1;
            }
        }
    }
    stream.push_str(&choice(&json!({}), Some(reason)));
    stream.push_str(&chunk(&json!({"id": "chatcmpl-1", "object": "chat.completion.chunk",
        "choices": [], "usage": {"prompt_tokens": 17, "completion_tokens": 34, "total_tokens": 51,
            "prompt_tokens_details": {"cached_tokens": 5}}})));
    stream.push_str("data: [DONE]\n\n");
    stream
}

/// Says what the real API would refuse in a request.
pub(super) fn complaint(body: &Value) -> Option<String> {
    if body["stream"] != true || body["stream_options"] != json!({"include_usage": true}) {
        return Some("the tests want a stream with a count of tokens".into());
    }
    if body.get("tools").is_some_and(|tools| tools.as_array().is_none_or(Vec::is_empty)) {
        return Some("[] is too short - 'tools'".into());
    }
    for tool in body["tools"].as_array().into_iter().flatten() {
        let function = &tool["function"];
        if tool["type"] != "function" || !name_fits(function["name"].as_str(), 64) {
            return Some(format!("tools: bad function: {tool}"));
        }
        if !function["parameters"].is_object() {
            return Some("tools: parameters must be an object".into());
        }
    }
    let messages = body["messages"].as_array().cloned().unwrap_or_default();
    if messages.is_empty() {
        return Some("[] is too short - 'messages'".into());
    }
    let mut open: BTreeSet<String> = BTreeSet::new();
    let mut before = String::new();
    for (at, message) in messages.iter().enumerate() {
        let role = message["role"].as_str().unwrap_or_default().to_owned();
        let content = message["content"].as_str();
        if role != "tool" && !open.is_empty() {
            return Some(format!(
                "messages.{at}: an assistant message with 'tool_calls' must be followed by tool \
                 messages responding to each 'tool_call_id': {open:?}"
            ));
        }
        let complaint = match role.as_str() {
            "system" if at > 0 => Some("the system message comes first".into()),
            "system" | "user" if content.is_none_or(|text| text.trim().is_empty()) => {
                Some("content must be a text".into())
            }
            // The API takes neighbours; many templates do not.
            "user" if before == "user" => Some("roles must alternate".into()),
            "system" | "user" => None,
            "assistant" => assistant(message, &before, &mut open),
            "tool" => {
                let id = message["tool_call_id"].as_str().unwrap_or_default();
                if content.is_none_or(|text| text.trim().is_empty()) {
                    Some("content must be a text".into())
                } else if open.remove(id) {
                    None
                } else {
                    Some(format!("'tool_call_id' {id} answers no call"))
                }
            }
            other => Some(format!("bad role `{other}`")),
        };
        if let Some(complaint) = complaint {
            return Some(format!("messages.{at}: {complaint}"));
        }
        before = role;
    }
    (!open.is_empty()).then(|| format!("no response to 'tool_call_id': {open:?}"))
}

fn assistant(message: &Value, before: &str, open: &mut BTreeSet<String>) -> Option<String> {
    if before == "assistant" {
        return Some("roles must alternate".into());
    }
    let calls = message["tool_calls"].as_array().cloned().unwrap_or_default();
    if calls.is_empty() && message["content"].as_str().is_none_or(str::is_empty) {
        return Some("neither content nor tool_calls".into());
    }
    for call in &calls {
        let (id, function) = (call["id"].as_str(), &call["function"]);
        let arguments = function["arguments"].as_str().unwrap_or_default();
        let readable =
            serde_json::from_str::<Value>(arguments).is_ok_and(|value| value.is_object());
        if call["type"] != "function" || !readable || !name_fits(function["name"].as_str(), 64) {
            return Some(format!("bad call: {call}"));
        }
        if !name_fits(id, 40) || !open.insert(id.unwrap_or_default().to_owned()) {
            return Some(format!("bad or repeated id: {call}"));
        }
    }
    None
}

fn name_fits(name: Option<&str>, most: usize) -> bool {
    name.is_some_and(|name| {
        (1..=most).contains(&name.len())
            && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-')
    })
}
