//! The chunks of Chat Completions, read into deltas.
//!
//! Chunks are read as plain JSON values, since servers leave out fields, send `null` for them and
//! add their own: what is not there is worked out or left unknown, what is not known is passed over.
//! An answer in one piece is read like a chunk that has it all.

use serde_json::{Value, json};

use crate::{
    message::{Stop, Usage},
    model::{
        Delta,
        answer::{self, Fault},
        failure::ApiError,
        sse::Event,
    },
};

use super::calls::Calls;

/// The data of the event that ends a stream.
pub(super) const END: &str = "[DONE]";

/// The fields in which servers send visible thinking: the first is DeepSeek's and llama.cpp's, the
/// second Ollama's, LM Studio's and later vLLM's. Where both come they say the same.
pub(super) const REASONING: [&str; 2] = ["reasoning_content", "reasoning"];

/// Reads one answer.
#[derive(Debug, Default)]
pub(super) struct Decoder {
    id: String,
    calls: Calls,
    /// The thinking so far, and the field in which it came.
    thought: Option<(&'static str, String)>,
    refused: bool,
    /// The reason to stop, once there was one.
    reason: Option<String>,
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
            self.finish(out);
            return Ok(());
        }
        let value = answer::json(data)?;
        // LM Studio names the event, vLLM the object; others just have the key.
        let is_error = value.get("error").is_some_and(|error| !error.is_null())
            || event.name == "error"
            || text(&value, "object") == "error";
        if is_error {
            return Err(ApiError::fault(&value));
        }
        if self.id.is_empty() {
            text(&value, "id").clone_into(&mut self.id);
        }
        self.count(value.get("usage"));
        let choices = value.get("choices").and_then(Value::as_array);
        let first = |choice: &&Value| choice.get("index").and_then(Value::as_u64).unwrap_or(0) == 0;
        for choice in choices.into_iter().flatten().filter(first) {
            self.choice(choice, out);
        }
        if self.calls.are_too_many() { Err(Fault::too_many_calls()) } else { Ok(()) }
    }

    fn complete(&self) -> bool {
        self.complete
    }

    fn holds(&self) -> bool {
        !self.calls.is_empty()
    }

    fn end(&mut self, out: &mut Vec<Delta>) {
        // The reason to stop comes last; only the count of tokens and the end mark come after it.
        if self.reason.is_some() && !self.complete {
            self.finish(out);
        }
    }
}

impl Decoder {
    fn choice(&mut self, choice: &Value, out: &mut Vec<Delta>) {
        let object = |key: &str| choice.get(key).filter(|value| value.is_object());
        if let Some(delta) = object("delta").or_else(|| object("message")) {
            self.delta(delta, out);
        }
        if let Some(reason) = choice.get("finish_reason").and_then(Value::as_str)
            && !reason.is_empty()
        {
            self.reason = Some(reason.to_owned());
        }
    }

    fn delta(&mut self, delta: &Value, out: &mut Vec<Delta>) {
        let found =
            REASONING.into_iter().find_map(|field| Some((field, delta.get(field)?.as_str()?)));
        if let Some((field, more)) = found {
            self.thought.get_or_insert_with(|| (field, String::new())).1.push_str(more);
            say(out, Delta::Thinking, more.to_owned());
        }
        match delta.get("content") {
            Some(Value::String(text)) => say(out, Delta::Text, text.clone()),
            Some(Value::Array(parts)) => parts.iter().for_each(|part| say_part(part, out)),
            _ => {}
        }
        let refusal = text(delta, "refusal");
        self.refused |= !refusal.is_empty();
        say(out, Delta::Text, refusal.to_owned());
        if let Some(pieces) = delta.get("tool_calls") {
            self.calls.add(pieces);
        }
        if let Some(call) = delta.get("function_call") {
            self.calls.add_legacy(call);
        }
    }

    fn finish(&mut self, out: &mut Vec<Delta>) {
        let called = !self.calls.is_empty();
        // DeepSeek refuses the results of calls without the thinking that led to them:
        // <https://api-docs.deepseek.com/guides/thinking_mode>. Others take it or pass it over.
        if let (true, Some((field, thought))) = (called, self.thought.take()) {
            out.push(Delta::Opaque(json!({ field: thought })));
        }
        self.calls.finish(&self.id, out);
        let stop = match self.reason.take().as_deref() {
            _ if self.refused => Stop::Refusal,
            Some("length" | "max_tokens") => Stop::MaxTokens,
            Some("content_filter" | "refusal") => Stop::Refusal,
            // Mistral: the context window was full before the answer was.
            Some("model_length") => Stop::ContextFull,
            None | Some("stop" | "tool_calls" | "function_call" | "eos" | "end_turn") => {
                if called {
                    Stop::ToolUse
                } else {
                    Stop::EndTurn
                }
            }
            Some(other) => Stop::Other(other.to_owned()),
        };
        out.push(Delta::Done { stop, usage: self.usage });
        self.complete = true;
    }

    /// Counts are totals of the whole answer: the last one counts. `prompt_tokens` has what came
    /// from a cache in it.
    fn count(&mut self, usage: Option<&Value>) {
        let Some(counts) = usage.filter(|usage| usage.is_object()) else { return };
        let number = |path: &str| counts.pointer(path).and_then(Value::as_u64);
        let Some(prompt) = number("/prompt_tokens") else { return };
        let cached = number("/prompt_tokens_details/cached_tokens")
            // DeepSeek.
            .or_else(|| number("/prompt_cache_hit_tokens"))
            .unwrap_or(0)
            .min(prompt);
        self.usage = Some(Usage {
            input_tokens: prompt.saturating_sub(cached),
            output_tokens: number("/completion_tokens").unwrap_or(0),
            cache_read_tokens: cached,
            cache_write_tokens: 0,
        });
    }
}

/// A part of content in parts: `{"type": "text", "text": "…"}`, or Mistral's thinking, whose text is
/// in parts of its own.
fn say_part(part: &Value, out: &mut Vec<Delta>) {
    match part {
        Value::String(text) => say(out, Delta::Text, text.clone()),
        _ if text(part, "type") == "thinking" => match part.get("thinking") {
            Some(Value::Array(parts)) => {
                for part in parts {
                    say(out, Delta::Thinking, text(part, "text").to_owned());
                }
            }
            Some(Value::String(text)) => say(out, Delta::Thinking, text.clone()),
            _ => {}
        },
        _ => say(out, Delta::Text, text(part, "text").to_owned()),
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

#[cfg(test)]
mod tests;
