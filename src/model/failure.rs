//! What a refusal means: from a status, an error type and a sentence to a class to act on.
//!
//! Pure. Text from the server is cut and freed of control characters here, so that it can be shown.

use std::time::Duration;

use jiff::fmt::rfc2822::DateTimeParser;
use serde_json::Value;

use super::{Class, ModelError};

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
            say(&[
                " and points to `",
                &plain(location, EXCERPT),
                "`: redirects are not followed, since a key must not travel; write that server as \
                 the base URL if it is right",
            ]);
        }
        let api = ApiError::read(self.body);
        if let Some(api) = &api {
            say(&[": ", &plain(&api.message, SENTENCE)]);
            if !api.kind.is_empty() && !api.message.contains(&api.kind) {
                say(&[" (", &plain(&api.kind, 60), ")"]);
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
        ModelError { class: self.class(api.as_ref()), message, network: false }
    }

    fn class(&self, api: Option<&ApiError>) -> Class {
        let retry = Class::Retry { after: self.after };
        match (self.status, api) {
            (200..=299, Some(api)) => api.class(self.after),
            (401 | 403 | 407, _) => Class::Auth,
            (408 | 429 | 500..=599, _) => retry,
            (413, _) => Class::ContextFull,
            (400 | 422, _) if speaks_of_context(self.body) => Class::ContextFull,
            (400..=499, Some(_)) => Class::Refused,
            _ => Class::Fatal,
        }
    }
}

/// An error as APIs write it: `{"error": {"type", "message"}}` and its relatives.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ApiError {
    /// The type or code; may be empty.
    pub(super) kind: String,
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
        let kind = text("type").filter(|kind| *kind != "error").or_else(|| text("code"));
        let message = error.as_str().or_else(|| text("message")).or_else(|| text("detail"));
        if message.is_none() && (kind.is_none() || value.get("error").is_none()) {
            return None;
        }
        let kind = kind.unwrap_or_default();
        Some(Self { kind: kind.to_owned(), message: message.unwrap_or(kind).to_owned() })
    }

    /// Returns what the type means, for errors that come without a status of their own.
    ///
    /// The types are those of <https://docs.claude.com/en/api/errors>.
    pub(super) fn class(&self, after: Option<Duration>) -> Class {
        match self.kind.as_str() {
            "overloaded_error" | "rate_limit_error" | "api_error" | "timeout_error" => {
                Class::Retry { after }
            }
            "authentication_error" | "permission_error" => Class::Auth,
            "request_too_large" => Class::ContextFull,
            "invalid_request_error" if speaks_of_context(&self.message) => Class::ContextFull,
            "invalid_request_error" | "not_found_error" | "billing_error" => Class::Refused,
            _ => Class::Fatal,
        }
    }
}

/// Whether a refusal is about the size of the conversation, in the words of the servers we know.
fn speaks_of_context(text: &str) -> bool {
    const WORDS: [&str; 8] = [
        "prompt is too long",
        "input is too long",
        "context window",
        "context length",
        "context_length_exceeded",
        "context limit",
        "context size",
        "maximum context",
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
            .and_then(|number| Duration::try_from_secs_f64(number.max(0.0) * unit).ok())
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
