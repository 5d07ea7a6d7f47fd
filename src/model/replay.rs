//! The provider `replay`: a recording of a model's answers, played in order, one a request.
//!
//! It makes demos, tests and bug reports work with no key and no network. A recording is text, a
//! JSON object a line; blank lines are passed over. `docs/replay.md` is the reference:
//!
//! ```text
//! {"text": "Let me look.", "calls": [{"name": "read", "arguments": {"path": "a.txt"}}]}
//! {"text": "Done.", "expect": {"lastResultContains": "hello"}}
//! ```
//!
//! `expect` is checked against the request before the answer is given, so that a run that went
//! another way than the recorded one stops instead of passing by accident.

use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::stream::{self, BoxStream, StreamExt};
use serde::Deserialize;
use serde_json::{Value, error::Category};

use super::{Class, Delta, Model, ModelError, Request, failure::plain};
use crate::message::{Block, Message, Stop, ToolResult, Usage};

/// A recording that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordingError {
    /// A line is not an answer.
    #[error("recording `{name}`, line {line}, column {column}: {reason}")]
    Line {
        /// `PROVIDER/MODEL` of the recording.
        name: String,
        /// The line, from 1.
        line: usize,
        /// The column in bytes, from 1; 0 = the line as a whole.
        column: usize,
        /// What is wrong.
        reason: String,
    },
    /// There is no answer in it.
    #[error("recording `{name}` is empty: it needs a JSON object a line, one for each answer")]
    Empty {
        /// `PROVIDER/MODEL` of the recording.
        name: String,
    },
}

/// One recorded answer.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Answer {
    #[serde(default)]
    thinking: String,
    #[serde(default)]
    text: String,
    #[serde(default)]
    calls: Vec<Call>,
    stop: Option<Stop>,
    usage: Option<Usage>,
    #[serde(default)]
    expect: Expect,
    /// Where it stands, for messages.
    #[serde(skip)]
    line: usize,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Call {
    name: String,
    /// An object, or a string that is handed on as it is.
    #[serde(default)]
    arguments: Value,
}

/// What the request must hold for the answer to be given.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Expect {
    last_result_contains: Option<String>,
    last_result_is_error: Option<bool>,
}

/// A model that plays a recording.
#[derive(Debug)]
pub struct Replay {
    name: String,
    answers: Vec<Answer>,
    next: AtomicUsize,
}

impl Replay {
    /// Reads a recording. `name` is `PROVIDER/MODEL`.
    ///
    /// # Errors
    /// The line and column of the first thing that is wrong, or that nothing is recorded.
    pub fn new(name: &str, text: &str) -> Result<Self, RecordingError> {
        let mut answers = Vec::new();
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        for (number, line) in text.lines().enumerate() {
            if line.trim().is_empty() {
                continue;
            }
            let number = number.saturating_add(1);
            let mut answer: Answer =
                serde_json::from_str(line).map_err(|error| RecordingError::Line {
                    name: name.to_owned(),
                    line: number,
                    column: error.column(),
                    reason: in_words(&error, line),
                })?;
            answer.line = number;
            answers.push(answer);
        }
        if answers.is_empty() {
            return Err(RecordingError::Empty { name: name.to_owned() });
        }
        Ok(Self { name: name.to_owned(), answers, next: AtomicUsize::new(0) })
    }

    fn answer(&self, request: &Request) -> Result<Vec<Delta>, ModelError> {
        let index = self.next.fetch_add(1, Ordering::Relaxed);
        let answer = self.answers.get(index).ok_or_else(|| {
            self.error(&format!(
                "has no answer left: it holds {} and this is request {}",
                self.answers.len(),
                index.saturating_add(1)
            ))
        })?;
        answer.expect.check(&request.messages).map_err(|reason| {
            self.error(&format!("expected another course at line {}: {reason}", answer.line))
        })?;
        let known = request.messages.iter().flat_map(Message::calls).count();
        Ok(answer.deltas(known))
    }

    fn error(&self, what: &str) -> ModelError {
        ModelError {
            class: Class::Fatal,
            message: format!("recording `{}` {what}", self.name),
            network: false,
        }
    }
}

impl Model for Replay {
    fn name(&self) -> &str {
        &self.name
    }

    fn needs_network(&self) -> bool {
        false
    }

    fn stream(&self, request: Request) -> BoxStream<'static, Result<Delta, ModelError>> {
        let items: Vec<_> = match self.answer(&request) {
            Ok(deltas) => deltas.into_iter().map(Ok).collect(),
            Err(error) => vec![Err(error)],
        };
        stream::iter(items).boxed()
    }
}

impl Answer {
    /// `known` is how many calls the conversation holds already; it keeps identifiers apart.
    fn deltas(&self, known: usize) -> Vec<Delta> {
        let mut deltas = Vec::new();
        if !self.thinking.is_empty() {
            deltas.push(Delta::Thinking(self.thinking.clone()));
        }
        if !self.text.is_empty() {
            deltas.push(Delta::Text(self.text.clone()));
        }
        for (number, call) in (known.saturating_add(1)..).zip(&self.calls) {
            deltas.push(Delta::Call {
                id: format!("replay_{number}"),
                name: call.name.clone(),
                arguments: match &call.arguments {
                    Value::Null => String::new(),
                    Value::String(raw) => raw.clone(),
                    other => other.to_string(),
                },
            });
        }
        let usual = if self.calls.is_empty() { Stop::EndTurn } else { Stop::ToolUse };
        let stop = self.stop.clone().unwrap_or(usual);
        deltas.push(Delta::Done { stop, usage: self.usage });
        deltas
    }
}

impl Expect {
    fn check(&self, messages: &[Message]) -> Result<(), String> {
        if self.last_result_contains.is_none() && self.last_result_is_error.is_none() {
            return Ok(());
        }
        let Some(result) = last_result(messages) else {
            return Err("there is no tool result yet".to_owned());
        };
        if let Some(wanted) = &self.last_result_contains
            && !result.text.contains(wanted)
        {
            return Err(format!(
                "the last result should contain `{}` and is `{}`",
                plain(wanted, 200),
                plain(&result.text, 200)
            ));
        }
        match self.last_result_is_error {
            Some(wanted) if wanted != result.is_error => {
                let (should, is) = if wanted { ("an error", "none") } else { ("no error", "one") };
                Err(format!(
                    "the last result should be {should} and is {is}: `{}`",
                    plain(&result.text, 200)
                ))
            }
            _ => Ok(()),
        }
    }
}

fn last_result(messages: &[Message]) -> Option<&ToolResult> {
    messages.iter().rev().flat_map(|message| message.blocks.iter().rev()).find_map(|block| {
        match block {
            Block::Result(result) => Some(result),
            Block::Text { .. } | Block::Opaque { .. } | Block::Call(_) => None,
        }
    })
}

/// Says what is wrong with a line and what repairs it, without the position: that counts within the
/// line and is said before.
fn in_words(error: &serde_json::Error, line: &str) -> String {
    let raw = error.to_string();
    let raw = raw.split(" at line ").next().unwrap_or(&raw);
    match error.classify() {
        Category::Eof => {
            format!("{raw}: write each answer on one line, or is the file cut off")
        }
        Category::Syntax
            if ["//", "/*", "#"].iter().any(|mark| line.trim_start().starts_with(mark)) =>
        {
            "a recording has no comments: take the line out".to_owned()
        }
        Category::Syntax if raw == "trailing characters" => {
            "one answer a line, and something follows it: put it on a line of its own".to_owned()
        }
        Category::Syntax => format!("{raw}: write one JSON object a line"),
        Category::Data | Category::Io => format!("{raw}: see `docs/replay.md` for the fields"),
    }
}

#[cfg(test)]
mod tests;
