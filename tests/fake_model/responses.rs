//! Responses: what the API refuses, and how it streams.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{Part, messages::event, pieces};

/// A whole answer with the end that its parts suggest and a fixed usage (12 in, 34 out, 5 read from
/// the cache).
pub(super) fn message(parts: impl IntoIterator<Item = Part>) -> String {
    message_stopped(parts, "completed")
}

/// A whole answer with a status, or with the reason for which it is incomplete.
pub(super) fn message_stopped(parts: impl IntoIterator<Item = Part>, reason: &str) -> String {
    let mut stream = format!(
        ": ping\n\n{}{}",
        event(&json!({"type": "response.created", "sequence_number": 0, "response":
            {"id": "resp_1", "object": "response", "status": "in_progress", "output": []}})),
        event(&json!({"type": "response.in_progress", "sequence_number": 1,
            "response": {"id": "resp_1", "status": "in_progress", "output": []}})),
    );
    let mut output = Vec::new();
    // Texts that follow each other are one item, as the API has it.
    for (index, part) in parts.into_iter().enumerate() {
        let (first, deltas, last) = item(part, index);
        let mut add = |mut value: Value| {
            value["output_index"] = index.into();
            stream.push_str(&event(&value));
        };
        add(json!({"type": "response.output_item.added", "item": first}));
        deltas.into_iter().for_each(&mut add);
        add(json!({"type": "response.output_item.done", "item": last}));
        output.push(last);
    }
    let is_status = reason == "completed";
    let status = if is_status { "completed" } else { "incomplete" };
    let details = if is_status { Value::Null } else { json!({ "reason": reason }) };
    stream.push_str(&event(&json!({"type": format!("response.{status}"), "response": {
        "id": "resp_1", "object": "response", "status": status, "error": null,
        "incomplete_details": details, "output": output,
        "usage": {"input_tokens": 17, "input_tokens_details": {"cached_tokens": 5},
            "output_tokens": 34, "output_tokens_details": {"reasoning_tokens": 3},
            "total_tokens": 51}}})));
    stream
}

/// How an item begins, its deltas, and how it ends.
fn item(part: Part, index: usize) -> (Value, Vec<Value>, Value) {
    match part {
        Part::Text(text) => {
            let begun = json!({"id": format!("msg_{index}"), "type": "message", "role": "assistant",
                "status": "in_progress", "content": []});
            let part = json!({"type": "response.content_part.added", "content_index": 0,
                "part": {"type": "output_text", "text": "", "annotations": []}});
            let deltas = pieces(&text).map(|text| {
                json!({"type": "response.output_text.delta", "content_index": 0, "delta": text,
                    "logprobs": []})
            });
            let over =
                json!({"type": "response.output_text.done", "content_index": 0, "text": text});
            let deltas = [part].into_iter().chain(deltas).chain([over]).collect();
            let done = json!({"id": format!("msg_{index}"), "type": "message", "role": "assistant",
                "status": "completed",
                "content": [{"type": "output_text", "text": text, "annotations": []}]});
            (begun, deltas, done)
        }
        Part::Thinking { text, signature } => {
            let id = format!("rs_{index}");
            let part = json!({"type": "response.reasoning_summary_part.added",
                "summary_index": 0, "part": {"type": "summary_text", "text": ""}});
            let deltas = pieces(&text).map(|text| {
                json!({"type": "response.reasoning_summary_text.delta", "summary_index": 0,
                    "delta": text})
            });
            (
                json!({"id": id, "type": "reasoning", "summary": [], "encrypted_content": ""}),
                [part].into_iter().chain(deltas).collect(),
                json!({"id": id, "type": "reasoning",
                    "summary": [{"type": "summary_text", "text": text}],
                    "encrypted_content": signature}),
            )
        }
        Part::Redacted(data) => {
            let done = json!({"id": format!("rs_{index}"), "type": "reasoning", "summary": [],
                "encrypted_content": data});
            (
                json!({"id": format!("rs_{index}"), "type": "reasoning", "summary": []}),
                Vec::new(),
                done,
            )
        }
        Part::Call { id, name, arguments } => {
            let call = |arguments: &str, status: &str| {
                json!({"id": format!("fc_{index}"), "type": "function_call", "status": status,
                    "call_id": id, "name": name, "arguments": arguments})
            };
            let deltas = pieces(&arguments).map(
                |text| json!({"type": "response.function_call_arguments.delta", "delta": text}),
            );
            let over =
                json!({"type": "response.function_call_arguments.done", "arguments": arguments});
            let deltas = deltas.chain([over]).collect();
            (call("", "in_progress"), deltas, call(&arguments, "completed"))
        }
    }
}

/// Says what the real API would refuse in a request.
pub(super) fn complaint(body: &Value) -> Option<String> {
    if body["stream"] != true || body["store"] != false {
        return Some("the tests want a stream of which nothing is kept".into());
    }
    if body["include"] != json!(["reasoning.encrypted_content"]) {
        return Some("include: the thinking is to come along".into());
    }
    if body["prompt_cache_key"].as_str().is_none_or(|key| key.len() > 64) {
        return Some("prompt_cache_key: the tests want one".into());
    }
    for key in ["messages", "max_tokens", "stream_options", "previous_response_id"] {
        if body.get(key).is_some() {
            return Some(format!("Unknown parameter: '{key}'."));
        }
    }
    for tool in body["tools"].as_array().into_iter().flatten() {
        let fits = tool["type"] == "function" && name_fits(tool["name"].as_str());
        if !fits || !tool["parameters"].is_object() || tool["strict"] != false {
            return Some(format!("Invalid tool: {tool}"));
        }
    }
    let model = body["model"].as_str().unwrap_or_default();
    let items = body["input"].as_array().cloned().unwrap_or_default();
    if items.is_empty() {
        return Some("One of \"input\" or \"prompt\" must be provided.".into());
    }
    let mut calls = BTreeSet::new();
    let mut open = BTreeSet::new();
    let mut lonely = false;
    for (at, item) in items.iter().enumerate() {
        let kind = item["type"].as_str().unwrap_or_default();
        if item.get("id").is_some() {
            return Some(format!("Item with id '{}' not found.", item["id"]));
        }
        let id = item["call_id"].as_str().unwrap_or_default().to_owned();
        let complaint = match kind {
            "message" => said(item),
            "reasoning" => thought(item, model),
            "function_call" => {
                let arguments = item["arguments"].as_str().unwrap_or_default();
                let readable =
                    serde_json::from_str::<Value>(arguments).is_ok_and(|value| value.is_object());
                open.insert(id.clone());
                if !readable || !name_fits(item["name"].as_str()) || !name_fits(Some(&id)) {
                    Some(format!("bad call: {item}"))
                } else {
                    (!calls.insert(id)).then(|| "Duplicate item".into())
                }
            }
            "function_call_output" if !open.remove(&id) => {
                Some(format!("No tool call found for function call output with call_id {id}."))
            }
            "function_call_output" => {
                item["output"].as_str().is_none().then(|| "output: must be a string".into())
            }
            other => Some(format!("Invalid value: '{other}'")),
        };
        if let Some(complaint) = complaint {
            return Some(format!("input[{at}]: {complaint}"));
        }
        let follows = ["reasoning", "function_call"].contains(&kind)
            || (kind == "message" && item["role"] == "assistant");
        if lonely && !follows {
            return Some(format!(
                "input[{at}]: 'reasoning' was provided without its required following item."
            ));
        }
        lonely = kind == "reasoning";
    }
    if lonely {
        return Some("'reasoning' was provided without its required following item.".into());
    }
    open.first().map(|id| format!("No tool output found for function call {id}."))
}

fn said(item: &Value) -> Option<String> {
    let wanted = match item["role"].as_str() {
        Some("user") => "input_text",
        Some("assistant") => "output_text",
        _ => return Some(format!("bad role: {item}")),
    };
    let content = item["content"].as_array().cloned().unwrap_or_default();
    let fits = |part: &Value| {
        part["type"] == wanted && part["text"].as_str().is_some_and(|text| !text.trim().is_empty())
    };
    (content.is_empty() || !content.iter().all(fits)).then(|| format!("bad content: {item}"))
}

/// What this fake encrypts is `MODEL:…`, so that another model's can be told.
fn thought(item: &Value, model: &str) -> Option<String> {
    if !item["summary"].is_array() || item.get("status").is_some() {
        return Some(format!("bad reasoning: {item}"));
    }
    let own =
        item["encrypted_content"].as_str().is_some_and(|x| x.starts_with(&format!("{model}:")));
    (!own).then(|| "The encrypted content for item 0 could not be verified.".into())
}

fn name_fits(name: Option<&str>) -> bool {
    name.is_some_and(|name| {
        (1..=64).contains(&name.len())
            && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-')
    })
}
