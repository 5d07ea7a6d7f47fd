//! The events of Responses, read into deltas.
//!
//! Events are read as plain JSON values, since servers leave out fields and add events of their own:
//! what is not there is worked out or left unknown, what is not known is passed over. Items are
//! numbered; an item that is done has it all, so what its deltas said already is not said again. An
//! answer in one piece is read like the event that ends a stream.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::{
    message::{Stop, Usage},
    model::{
        Delta,
        answer::{self, Fault, MAX_CALLS},
        failure::ApiError,
        sse::Event,
    },
};

/// The data of the event with which other APIs end a stream; some gateways add it.
pub(super) const END: &str = "[DONE]";

/// An item that has begun and is not done.
#[derive(Debug, Default)]
struct Open {
    kind: String,
    call: Call,
    /// Whether deltas said its text, or a part of its thinking.
    said: bool,
}

#[derive(Debug, Default)]
struct Call {
    id: String,
    name: String,
    arguments: String,
}

/// Reads one answer.
#[derive(Debug, Default)]
pub(super) struct Decoder {
    id: String,
    open: BTreeMap<u64, Open>,
    /// How many items are done.
    done: usize,
    last: u64,
    calls: usize,
    refused: bool,
    usage: Option<Usage>,
    complete: bool,
}

impl answer::Decoder for Decoder {
    fn event(&mut self, event: &Event, out: &mut Vec<Delta>) -> Result<(), Fault> {
        let data = event.data.trim();
        if data.is_empty() {
            return Ok(());
        }
        if data == END {
            // Whoever writes this mark and no other means the answer to be whole.
            if self.done > 0 || !self.open.is_empty() {
                self.finish(None, out);
            }
            return Ok(());
        }
        let mut value = answer::json(data)?;
        let kind = match text(&value, "type") {
            "" if !event.name.is_empty() => event.name.clone(),
            kind => kind.to_owned(),
        };
        let index = value.get("output_index").and_then(Value::as_u64);
        match kind.as_str() {
            "response.output_item.added" => self.added(index, &item(&mut value)),
            "response.output_item.done" => self.item(index, item(&mut value), out),
            "response.output_text.delta" => {
                self.say(index, Delta::Text, text(&value, "delta"), out);
            }
            "response.refusal.delta" => {
                self.refused = true;
                self.say(index, Delta::Text, text(&value, "delta"), out);
            }
            "response.reasoning_summary_text.delta" | "response.reasoning_text.delta" => {
                self.say(index, Delta::Thinking, text(&value, "delta"), out);
            }
            // A part of a summary that is not the first one.
            "response.reasoning_summary_part.added" if self.has_said(index) => {
                self.say(index, Delta::Thinking, "\n\n", out);
            }
            "response.function_call_arguments.delta" => {
                let more = text(&value, "delta").to_owned();
                self.item_of(index).call.arguments.push_str(&more);
            }
            "response.function_call_arguments.done" => {
                let whole = text(&value, "arguments");
                if !whole.is_empty() {
                    whole.clone_into(&mut self.item_of(index).call.arguments);
                }
            }
            "response.completed" | "response.done" => self.ends(&value, "response", None, out)?,
            "response.incomplete" => self.ends(&value, "response", Some(Stop::MaxTokens), out)?,
            "response.failed" => return Err(failure(value.get("response").unwrap_or(&value))),
            "error" => return Err(ApiError::fault(&value)),
            "response.created" | "response.in_progress" | "response.queued" => {
                let id = value.get("response").map(|response| text(response, "id"));
                id.unwrap_or_default().clone_into(&mut self.id);
            }
            // An answer in one piece has no type, and neither has an error of a gateway.
            "" if value.get("output").is_some_and(Value::is_array) => {
                self.ends(&value, "", None, out)?;
            }
            "" if value.get("error").is_some_and(|error| !error.is_null()) => {
                return Err(ApiError::fault(&value));
            }
            // What later versions of the API add, and what other events say again.
            _ => {}
        }
        if self.calls.saturating_add(self.open.len()) > MAX_CALLS {
            return Err(Fault::too_many_calls());
        }
        Ok(())
    }

    fn complete(&self) -> bool {
        self.complete
    }

    fn holds(&self) -> bool {
        self.open.values().any(|open| open.kind != "message")
    }
}

impl Decoder {
    fn item_of(&mut self, index: Option<u64>) -> &mut Open {
        self.last = index.unwrap_or(self.last);
        self.open.entry(self.last).or_default()
    }

    fn has_said(&self, index: Option<u64>) -> bool {
        self.open.get(&index.unwrap_or(self.last)).is_some_and(|open| open.said)
    }

    fn say(
        &mut self,
        index: Option<u64>,
        kind: fn(String) -> Delta,
        text: &str,
        out: &mut Vec<Delta>,
    ) {
        self.item_of(index).said = true;
        if !text.is_empty() {
            out.push(kind(text.to_owned()));
        }
    }

    fn added(&mut self, index: Option<u64>, item: &Value) {
        let index = index.unwrap_or_else(|| self.last.saturating_add(1));
        let open = self.item_of(Some(index));
        text(item, "type").clone_into(&mut open.kind);
        open.call.read(item);
    }

    /// An item that has it all.
    fn item(&mut self, index: Option<u64>, item: Value, out: &mut Vec<Delta>) {
        self.last = index.unwrap_or(self.last);
        let mut open = self.open.remove(&self.last).unwrap_or_default();
        self.done = self.done.saturating_add(1);
        match text(&item, "type") {
            "function_call" => {
                open.call.read(&item);
                self.call(open.call, out);
            }
            "reasoning" => {
                if !open.said {
                    said(&item, Delta::Thinking, out);
                }
                // What cannot be sent back is not worth keeping.
                let is_there = |key: &str| {
                    item.get(key)
                        .is_some_and(|v| !v.is_null() && *v != "" && *v != Value::Array(Vec::new()))
                };
                if is_there("encrypted_content") || is_there("content") {
                    out.push(Delta::Opaque(item));
                }
            }
            "message" => {
                self.refused |= parts(&item, "content").any(|part| text(part, "type") == "refusal");
                if !open.said {
                    said(&item, Delta::Text, out);
                }
            }
            _ => {}
        }
    }

    fn call(&mut self, call: Call, out: &mut Vec<Delta>) {
        let Call { mut id, name, arguments } = call;
        if id.is_empty() {
            let number = self.calls;
            id = format!("call_{number}");
            if !self.id.is_empty() {
                id = format!("{id}_{}", self.id);
            }
        }
        self.calls = self.calls.saturating_add(1);
        out.push(Delta::Call { id, name, arguments });
    }

    /// The response as it is at its end; `key` is where it stands in the event.
    fn ends(
        &mut self,
        value: &Value,
        key: &str,
        stop: Option<Stop>,
        out: &mut Vec<Delta>,
    ) -> Result<(), Fault> {
        let response = value.get(key).filter(|found| found.is_object()).unwrap_or(value);
        if text(response, "status") == "failed" {
            return Err(failure(response));
        }
        text(response, "id").clone_into(&mut self.id);
        self.count(response.get("usage"));
        // Servers that send no event for an item have it here; its place is its number.
        let items = response.get("output").and_then(Value::as_array).filter(|_| self.done == 0);
        for (index, item) in (0_u64..).zip(items.into_iter().flatten()) {
            if self.calls <= MAX_CALLS {
                self.item(Some(index), item.clone(), out);
            }
        }
        let reason = response.pointer("/incomplete_details/reason").and_then(Value::as_str);
        let stop = match reason {
            Some("max_output_tokens") => Some(Stop::MaxTokens),
            Some("content_filter") => Some(Stop::Refusal),
            Some(other) => Some(Stop::Other(other.to_owned())),
            None if text(response, "status") == "incomplete" => Some(Stop::MaxTokens),
            None => stop,
        };
        self.finish(stop, out);
        Ok(())
    }

    fn finish(&mut self, stop: Option<Stop>, out: &mut Vec<Delta>) {
        // Calls that were cut off are handed on as the model left them.
        for (_, open) in std::mem::take(&mut self.open) {
            if open.kind == "function_call" || !open.call.name.is_empty() {
                self.call(open.call, out);
            }
        }
        let stop = match stop {
            Some(stop) => stop,
            None if self.refused => Stop::Refusal,
            None if self.calls > 0 => Stop::ToolUse,
            None => Stop::EndTurn,
        };
        out.push(Delta::Done { stop, usage: self.usage });
        self.complete = true;
    }

    /// `input_tokens` has what came from a cache in it, and what was written to one.
    fn count(&mut self, usage: Option<&Value>) {
        let Some(counts) = usage.filter(|usage| usage.is_object()) else { return };
        let number = |path: &str| counts.pointer(path).and_then(Value::as_u64);
        let Some(input) = number("/input_tokens") else { return };
        let part = |path: &str| number(path).unwrap_or(0);
        let read = part("/input_tokens_details/cached_tokens").min(input);
        let fresh = input.saturating_sub(read);
        let written = part("/input_tokens_details/cache_write_tokens").min(fresh);
        self.usage = Some(Usage {
            input_tokens: fresh.saturating_sub(written),
            output_tokens: part("/output_tokens"),
            cache_read_tokens: read,
            cache_write_tokens: written,
        });
    }
}

impl Call {
    /// Takes what an item says; what it leaves out stays.
    fn read(&mut self, item: &Value) {
        for (field, key) in [
            (&mut self.id, "call_id"),
            (&mut self.name, "name"),
            (&mut self.arguments, "arguments"),
        ] {
            match item.get(key) {
                Some(Value::String(text)) if !text.is_empty() => text.clone_into(field),
                Some(Value::Object(map)) if *map != Map::new() => {
                    *field = Value::Object(map.clone()).to_string();
                }
                _ => {}
            }
        }
    }
}

/// Says the texts of an item whose deltas did not.
fn said(item: &Value, kind: fn(String) -> Delta, out: &mut Vec<Delta>) {
    if let Some(text) = item.get("content").and_then(Value::as_str).filter(|text| !text.is_empty())
    {
        out.push(kind(text.to_owned()));
    }
    for part in parts(item, "summary").chain(parts(item, "content")) {
        let found = ["text", "refusal"].map(|key| text(part, key));
        if let Some(text) = found.into_iter().find(|text| !text.is_empty()) {
            out.push(kind(text.to_owned()));
        }
    }
}

/// Returns what a response that failed says. Its error has a code and a sentence.
fn failure(response: &Value) -> Fault {
    match response.get("error").filter(|error| !error.is_null()) {
        Some(error) => ApiError::fault(error),
        None => ApiError::fault(response),
    }
}

fn item(value: &mut Value) -> Value {
    value.get_mut("item").map(Value::take).unwrap_or_default()
}

fn parts<'a>(item: &'a Value, key: &str) -> impl Iterator<Item = &'a Value> {
    item.get(key).and_then(Value::as_array).into_iter().flatten()
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value.get(key).and_then(Value::as_str).unwrap_or_default()
}
