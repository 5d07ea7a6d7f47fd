//! What a refusal means: from a status, an error type and a sentence to a class to act on.
//!
//! Pure. Text from the server is cut and freed of control characters here, so that it can be shown.

use std::time::Duration;

use jiff::fmt::rfc2822::DateTimeParser;
use serde_json::Value;

use super::{Class, ModelError, answer::Fault};

/// The most characters of a server's sentence that are shown.
const SENTENCE: usize = 600;

/// The most characters of a body that is no known error that are shown.
const EXCERPT: usize = 200;

/// What came back instead of an answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reply<'a> {
    /// Where it came from.
    pub(super) host: &'a str,
    /// The status code.
    pub(super) status: u16,
    /// The status code's usual words.
    pub(super) reason: &'a str,
    /// The content type as the server said it.
    pub(super) content_type: Option<&'a str>,
    /// Where a redirect points to: a host, no more.
    pub(super) location: Option<&'a str>,
    /// The start of the body, freed of secrets.
    pub(super) body: &'a str,
    /// What to say when the path is not there.
    pub(super) repair: &'a str,
    /// The server's wish.
    pub(super) after: Option<Duration>,
}

impl Reply<'_> {
    /// Returns the error that the reply stands for.
    pub(super) fn error(&self) -> ModelError {
        let Self { host, status, reason, .. } = *self;
        let mut message = format!("`{host}` answered {status}");
        let mut say = |words: &[&str]| message.extend(words.iter().copied());
        if !reason.is_empty() {
            say(&[" ", reason]);
        }
        if let Some(location) = self.location {
            say(&[" and points to `", &plain(location, EXCERPT), "`"]);
        }
        let api = ApiError::read(self.body);
        if let Some(api) = &api {
            say(&[": ", &plain(&api.message, SENTENCE)]);
            let label = api.label();
            if !label.is_empty() && !api.message.contains(label) {
                say(&[" (", &plain(label, 60), ")"]);
            }
        } else {
            if let Some(kind) = self.content_type {
                say(&[" with `", &plain(kind, 60), "`"]);
            }
            if (200..300).contains(&status) {
                say(&[" instead of an event stream"]);
            }
            match plain(self.body, EXCERPT) {
                empty if empty.is_empty() => say(&[" and no text"]),
                excerpt => say(&[": ", &excerpt]),
            }
        }
        if self.location.is_some() {
            message.push_str(
                "; redirects are not followed, since a key must not travel: write that server as \
                 the base URL if it is right",
            );
        }
        match self.lost(api.as_ref()) {
            Some(Lost::Model) => message.push_str("; check the model's name"),
            Some(Lost::Path) => {
                message.push_str("; ");
                message.push_str(self.repair);
            }
            None => {}
        }
        ModelError { class: self.class(api.as_ref()), message, network: false }
    }

    /// Tells a model that is not there from a path that is not: both come as 404.
    fn lost(&self, api: Option<&ApiError>) -> Option<Lost> {
        let says = |words: &str| api.is_some_and(|api| api.message.contains(words));
        let is_404 = matches!(self.status, 404 | 405);
        if api.is_some_and(|api| api.code == "model_not_found") || (is_404 && says("model")) {
            return Some(Lost::Model);
        }
        // LM Studio answers 200 for paths that it does not have.
        (is_404 || says("Unexpected endpoint")).then_some(Lost::Path)
    }

    fn class(&self, api: Option<&ApiError>) -> Class {
        let retry = Class::Retry { after: self.after };
        match (self.status, api) {
            (200..=299, Some(api)) => api.class(self.after),
            (401 | 403 | 407, _) => Class::Auth,
            // llama.cpp says so with 500 as well, and an empty account is no busy server.
            (400..=599, Some(api)) if api.is_context_full() => Class::ContextFull,
            (400..=499, Some(api)) if api.is_final() => Class::Refused,
            (408 | 429 | 500..=599, _) => retry,
            (413, _) => Class::ContextFull,
            (400 | 422, _) if speaks_of_context(self.body) => Class::ContextFull,
            (400..=499, Some(_)) => Class::Refused,
            _ => Class::Fatal,
        }
    }
}

/// What a 404 is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lost {
    Model,
    Path,
}

/// An error as APIs write it: `{"error": {"type", "code", "message"}}` and its relatives.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct ApiError {
    /// The type; may be empty.
    pub(super) kind: String,
    /// The code when it is a word; may be empty.
    pub(super) code: String,
    /// The code when it is a number, as a status.
    pub(super) status: Option<u16>,
    /// The sentence.
    pub(super) message: String,
}

impl ApiError {
    fn read(body: &str) -> Option<Self> {
        Self::from_value(&serde_json::from_str(body).ok()?)
    }

    /// Finds the error in a JSON value.
    pub(super) fn from_value(value: &Value) -> Option<Self> {
        let error = value.get("error").filter(|error| !error.is_null()).unwrap_or(value);
        let text = |key: &str| error.get(key).and_then(Value::as_str);
        let kind = text("type").filter(|kind| *kind != "error").unwrap_or_default();
        let code = error.get("code");
        let status = code.and_then(|code| match code {
            Value::Number(number) => number.as_u64(),
            other => other.as_str()?.parse().ok(),
        });
        let code = code.and_then(Value::as_str).filter(|_| status.is_none()).unwrap_or_default();
        let message = error
            .as_str()
            .map(str::to_owned)
            .or_else(|| sentence(error.get("message")?))
            .or_else(|| sentence(error.get("detail")?));
        if message.is_none()
            && ((kind.is_empty() && code.is_empty()) || value.get("error").is_none())
        {
            return None;
        }
        let named = if kind.is_empty() { code } else { kind };
        Some(Self {
            message: message.unwrap_or_else(|| named.to_owned()),
            kind: kind.to_owned(),
            code: code.to_owned(),
            status: status.and_then(|status| u16::try_from(status).ok()),
        })
    }

    /// Returns the more telling of code and type; may be empty.
    pub(super) fn label(&self) -> &str {
        if self.code.is_empty() { &self.kind } else { &self.code }
    }

    /// Whether the error says by its type or code that the conversation is too long.
    fn is_context_full(&self) -> bool {
        // The first is OpenAI's, the second llama.cpp's.
        ["context_length_exceeded", "exceed_context_size_error"]
            .iter()
            .any(|known| self.code == *known || self.kind == *known)
    }

    /// Whether the error says by its code that another try gives the same.
    fn is_final(&self) -> bool {
        ["insufficient_quota", "model_not_found"]
            .iter()
            .any(|known| self.code == *known || self.kind == *known)
    }

    /// Returns what the error means, for errors that come without a status of their own.
    ///
    /// The types are those of <https://docs.claude.com/en/api/errors>, of
    /// <https://platform.openai.com/docs/guides/error-codes>, and of vLLM and llama.cpp, which name
    /// theirs after the status.
    pub(super) fn class(&self, after: Option<Duration>) -> Class {
        if self.is_context_full() {
            return Class::ContextFull;
        }
        if self.is_final() {
            return Class::Refused;
        }
        // A response that failed has a code and no type.
        let word = if self.kind.is_empty() { &self.code } else { &self.kind };
        match word.as_str() {
            "overloaded_error"
            | "rate_limit_error"
            | "api_error"
            | "timeout_error"
            | "server_error"
            | "unavailable_error"
            | "server_is_overloaded"
            | "slow_down"
            | "InternalServerError"
            | "RateLimitError"
            | "ServiceUnavailableError" => return Class::Retry { after },
            "authentication_error" | "permission_error" => return Class::Auth,
            "request_too_large" => return Class::ContextFull,
            _ if speaks_of_context(&self.message) => return Class::ContextFull,
            "invalid_request_error"
            | "invalid_prompt"
            | "not_found_error"
            | "billing_error"
            | "BadRequestError"
            | "NotFoundError" => return Class::Refused,
            _ => {}
        }
        match (self.status, self.code.as_str()) {
            (Some(401 | 403), _) | (_, "invalid_api_key") => Class::Auth,
            (Some(408 | 429 | 500..=599), _) | (_, "rate_limit_exceeded") => Class::Retry { after },
            (Some(400..=499), _) => Class::Refused,
            _ => Class::Fatal,
        }
    }

    /// Returns the error as the end of a sentence that starts with the host's name.
    pub(super) fn fault(value: &Value) -> Fault {
        let error = Self::from_value(value);
        let class = error.as_ref().map_or(Class::Fatal, |error| error.class(None));
        let what = match error {
            Some(error) if error.label().is_empty() || error.label() == error.message => {
                format!("reported an error: {}", plain(&error.message, SENTENCE))
            }
            Some(error) => format!(
                "reported an error: {} ({})",
                plain(&error.message, SENTENCE),
                plain(error.label(), 60)
            ),
            None => format!("reported an error: {}", plain(&value.to_string(), EXCERPT)),
        };
        Fault { class, what, garbled: false }
    }
}

/// Reads a sentence, or the list of complaints that FastAPI's servers (vLLM, Mistral's) write:
/// `[{"loc": ["body", "field"], "msg": "…"}]`, alone or below `detail`.
fn sentence(value: &Value) -> Option<String> {
    if let Some(text) = value.as_str() {
        return Some(text.to_owned());
    }
    let list = value.as_array().or_else(|| value.get("detail")?.as_array())?;
    let complaints: Vec<String> = list
        .iter()
        .filter_map(|complaint| {
            let place = complaint.get("loc").and_then(Value::as_array)?.iter();
            let place =
                place.map(|part| part.as_str().map_or_else(|| part.to_string(), Into::into));
            let place: Vec<String> = place.collect();
            let text = complaint.get("msg").and_then(Value::as_str)?;
            Some(format!("{}: {text}", place.join(".")))
        })
        .collect();
    (!complaints.is_empty()).then(|| complaints.join("; "))
}

/// Whether a refusal is about the size of the conversation, in the words of the servers we know.
fn speaks_of_context(text: &str) -> bool {
    const WORDS: [&str; 15] = [
        "prompt is too long",
        "input is too long",
        "context window",
        "context length",
        "context_length_exceeded",
        "context limit",
        "context size",
        "maximum context",
        "exceed_context_size_error",
        // LM Studio.
        "context the overflows",
        // vLLM, when the prompt leaves no room for the answer.
        "max_tokens must be at least 1, got -",
        // Text Generation Inference.
        "`inputs` tokens + `max_new_tokens` must be",
        // Gemini.
        "exceeds the maximum number of tokens",
        // xAI and Groq.
        "maximum prompt length",
        "reduce the length of the messages",
    ];
    let text = text.to_ascii_lowercase();
    WORDS.iter().any(|words| text.contains(words))
}

/// Reads the server's wish from the values of `retry-after-ms`, `retry-after` (seconds or an HTTP
/// date) and `date`. A date is measured against the server's own clock; without `date` it says
/// nothing.
pub(super) fn retry_after(
    milliseconds: Option<&str>,
    after: Option<&str>,
    date: Option<&str>,
) -> Option<Duration> {
    let number = |text: &str, unit: f64| {
        text.trim()
            .parse::<f64>()
            .ok()
            .filter(|number| !number.is_nan())
            // What no clock can measure is for ever, and not nothing.
            .map(|number| {
                Duration::try_from_secs_f64(number.max(0.0) * unit).unwrap_or(Duration::MAX)
            })
    };
    if let Some(wish) = milliseconds.and_then(|text| number(text, 0.001)) {
        return Some(wish);
    }
    let after = after?;
    if let Some(wish) = number(after, 1.0) {
        return Some(wish);
    }
    let parser = DateTimeParser::new();
    let then = parser.parse_timestamp(after.trim()).ok()?;
    let now = parser.parse_timestamp(date?.trim()).ok()?;
    let wait = then.as_second().saturating_sub(now.as_second());
    Some(Duration::from_secs(u64::try_from(wait).unwrap_or(0)))
}

/// Returns the start of a text on one line, without control characters.
pub(super) fn plain(text: &str, most: usize) -> String {
    let mut out = String::new();
    let mut count = 0;
    for word in text.split(|c: char| c.is_whitespace() || c.is_control()).filter(|w| !w.is_empty())
    {
        if count > 0 {
            out.push(' ');
            count += 1;
        }
        for c in word.chars() {
            if count >= most {
                out.push('…');
                return out;
            }
            out.push(c);
            count += 1;
        }
    }
    out
}

#[cfg(test)]
mod tests;
