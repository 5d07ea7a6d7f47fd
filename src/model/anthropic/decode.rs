//! The Messages API's events, read into deltas.
//!
//! Events are read as plain JSON values, since gateways leave out fields, send `null` for them and
//! add their own: what is not there is worked out or left unknown, what is not known is passed
//! over. The type inside the data counts; the event's own name only stands in for it.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::{
    message::{Stop, Usage},
    model::{
        Delta,
        answer::{self, Fault, MAX_CALLS},
        failure::ApiError,
        sse::Event,
    },
};

/// A content block that has started and not stopped.
#[derive(Debug)]
enum Open {
    Text,
    Thinking { text: String, signature: String },
    Redacted(Value),
    Call { id: String, name: String, input: Value, partial: String },
    Unknown,
}

/// Reads one answer.
#[derive(Debug, Default)]
pub(super) struct Decoder {
    message: String,
    open: BTreeMap<u64, Open>,
    last: u64,
    blocks: u64,
    calls: usize,
    stop: Option<Stop>,
    usage: Option<Usage>,
    complete: bool,
}

impl answer::Decoder for Decoder {
    fn event(&mut self, event: &Event, out: &mut Vec<Delta>) -> Result<(), Fault> {
        let data = event.data.trim();
        // The second is how another API says that it is done; some gateways add it.
        if data.is_empty() || data == "[DONE]" {
            return Ok(());
        }
        let mut value = answer::json(data)?;
        let kind = value.get("type").and_then(Value::as_str).unwrap_or(&event.name).to_owned();
        let index = value.get("index").and_then(Value::as_u64);
        match kind.as_str() {
            "message_start" => {
                if let Some(message) = value.get("message") {
                    text(message, "id").clone_into(&mut self.message);
                    self.count(message.get("usage"));
                }
            }
            "content_block_start" => {
                let block = value.get_mut("content_block").map(Value::take).unwrap_or_default();
                self.start(index, block, out);
            }
            "content_block_delta" => {
                let delta = value.get_mut("delta").map(Value::take).unwrap_or_default();
                self.delta(index, delta, out);
            }
            "content_block_stop" => self.stop(index.unwrap_or(self.last), out),
            "message_delta" => {
                if let Some(reason) = value.pointer("/delta/stop_reason").and_then(Value::as_str) {
                    self.stop = Some(stop_reason(reason));
                }
                self.count(value.get("usage"));
            }
            "message_stop" => self.finish(out),
            "error" => return Err(ApiError::fault(&value)),
            // `ping`, and what later versions of the API add.
            _ => {}
        }
        if self.calls > MAX_CALLS { Err(Fault::too_many_calls()) } else { Ok(()) }
    }

    fn complete(&self) -> bool {
        self.complete
    }

    fn holds(&self) -> bool {
        self.open.values().any(|open| !matches!(open, Open::Text | Open::Unknown))
    }
}

impl Decoder {
    fn start(&mut self, index: Option<u64>, mut block: Value, out: &mut Vec<Delta>) {
        let index = index.unwrap_or(self.blocks);
        self.blocks = self.blocks.max(index.saturating_add(1));
        self.last = index;
        let open = match text(&block, "type") {
            "text" => {
                say(out, Delta::Text, take(&mut block, "text"));
                Open::Text
            }
            "thinking" => {
                let text = take(&mut block, "thinking");
                say(out, Delta::Thinking, text.clone());
                Open::Thinking { text, signature: take(&mut block, "signature") }
            }
            "redacted_thinking" => Open::Redacted(block),
            "tool_use" => Open::Call {
                id: take(&mut block, "id"),
                name: take(&mut block, "name"),
                input: block.get_mut("input").map(Value::take).unwrap_or_default(),
                partial: String::new(),
            },
            _ => Open::Unknown,
        };
        self.calls = self.calls.saturating_add(usize::from(matches!(open, Open::Call { .. })));
        if let Some(forgotten) = self.open.insert(index, open) {
            self.close(index, forgotten, out);
        }
    }

    fn delta(&mut self, index: Option<u64>, mut delta: Value, out: &mut Vec<Delta>) {
        let open = self.open.get_mut(&index.unwrap_or(self.last));
        match text(&delta, "type") {
            "text_delta" => say(out, Delta::Text, take(&mut delta, "text")),
            "thinking_delta" => {
                let more = take(&mut delta, "thinking");
                if let Some(Open::Thinking { text, .. }) = open {
                    text.push_str(&more);
                }
                say(out, Delta::Thinking, more);
            }
            "signature_delta" => {
                if let Some(Open::Thinking { signature, .. }) = open {
                    signature.push_str(text(&delta, "signature"));
                }
            }
            "input_json_delta" => {
                if let Some(Open::Call { partial, .. }) = open {
                    partial.push_str(text(&delta, "partial_json"));
                }
            }
            _ => {}
        }
    }

    fn stop(&mut self, index: u64, out: &mut Vec<Delta>) {
        if let Some(open) = self.open.remove(&index) {
            self.close(index, open, out);
        }
    }

    fn close(&mut self, index: u64, open: Open, out: &mut Vec<Delta>) {
        match open {
            Open::Text | Open::Unknown => {}
            // The API takes thinking back only with its signature.
            Open::Thinking { signature, .. } if signature.is_empty() => {}
            Open::Thinking { text, signature } => out.push(Delta::Opaque(
                json!({"type": "thinking", "thinking": text, "signature": signature}),
            )),
            Open::Redacted(block) => out.push(Delta::Opaque(block)),
            Open::Call { id, name, input, partial } => {
                let id = if id.is_empty() { self.invent(index) } else { id };
                let arguments = if partial.is_empty() { whole_input(&input) } else { partial };
                out.push(Delta::Call { id, name, arguments });
            }
        }
    }

    /// Returns an identifier for a call that came without one; calls of one conversation must
    /// not share theirs.
    fn invent(&self, index: u64) -> String {
        let message = if self.message.is_empty() { "call" } else { &self.message };
        format!("{message}_{index}")
    }

    fn finish(&mut self, out: &mut Vec<Delta>) {
        for (index, open) in std::mem::take(&mut self.open) {
            self.close(index, open, out);
        }
        let stop = self.stop.take();
        let stop = stop.unwrap_or(if self.calls > 0 { Stop::ToolUse } else { Stop::EndTurn });
        out.push(Delta::Done { stop, usage: self.usage });
        self.complete = true;
    }

    /// Counts are totals of the whole answer so far: a later one replaces an earlier one.
    fn count(&mut self, usage: Option<&Value>) {
        let Some(counts) = usage.and_then(Value::as_object).filter(|counts| !counts.is_empty())
        else {
            return;
        };
        let usage = self.usage.get_or_insert_default();
        for (field, key) in [
            (&mut usage.input_tokens, "input_tokens"),
            (&mut usage.output_tokens, "output_tokens"),
            (&mut usage.cache_read_tokens, "cache_read_input_tokens"),
            (&mut usage.cache_write_tokens, "cache_creation_input_tokens"),
        ] {
            if let Some(count) = counts.get(key).and_then(Value::as_u64) {
                *field = count;
            }
        }
    }
}

fn say(out: &mut Vec<Delta>, kind: fn(String) -> Delta, text: String) {
    if !text.is_empty() {
        out.push(kind(text));
    }
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value.get(key).and_then(Value::as_str).unwrap_or_default()
}

fn take(value: &mut Value, key: &str) -> String {
    match value.get_mut(key).map(Value::take) {
        Some(Value::String(text)) => text,
        _ => String::new(),
    }
}

/// Servers that do not stream arguments send them whole at the start; the API itself sends `{}`
/// there, which means nothing.
fn whole_input(input: &Value) -> String {
    match input {
        Value::Null => String::new(),
        Value::Object(map) if *map == Map::new() => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn stop_reason(reason: &str) -> Stop {
    match reason {
        "end_turn" | "stop_sequence" => Stop::EndTurn,
        "tool_use" => Stop::ToolUse,
        "max_tokens" => Stop::MaxTokens,
        "refusal" => Stop::Refusal,
        "model_context_window_exceeded" => Stop::ContextFull,
        other => Stop::Other(other.to_owned()),
    }
}

#[cfg(test)]
mod tests;
