//! Taking known secret values out of what is said, before a model, a session or a front end gets it.
//!
//! Hygiene, not a wall: a value is found where it stands verbatim, not where it is encoded, cut or
//! turned round. It must not know where the values come from.

use std::{borrow::Cow, fmt, sync::Arc};

use serde_json::Value;
use zeroize::Zeroizing;

use super::{Arguments, Block, Message};

/// What stands in the place of a value.
pub const MARK: &str = "…";

/// A value of so many bytes is taken for a secret whatever it looks like.
const LONG: usize = 16;
/// One of at least so many when it holds a digit: `lm-studio` and its like are words that files are
/// full of, and taking them out would damage what a model reads and writes back.
const SHORT: usize = 8;

/// Knows values and takes them out of texts. Clones share the values; `Debug` shows none.
#[derive(Clone, Default)]
pub struct Redactor {
    values: Arc<[Zeroizing<String>]>,
}

impl fmt::Debug for Redactor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Redactor")
    }
}

impl Redactor {
    /// Returns one for these values, white space around them left out. Values of under 16 bytes
    /// count only when they have 8 and a digit among them.
    pub fn new<T: AsRef<str>>(values: impl IntoIterator<Item = T>) -> Self {
        let mut values: Vec<Zeroizing<String>> = values
            .into_iter()
            .map(|value| Zeroizing::new(value.as_ref().trim().to_owned()))
            .filter(|value| {
                let digit = value.bytes().any(|byte| byte.is_ascii_digit());
                value.len() >= LONG || (value.len() >= SHORT && digit)
            })
            .collect();
        // The longest first, so that of a value within another nothing is left over.
        values.sort_by(|a, b| b.len().cmp(&a.len()).then_with(|| a.cmp(b)));
        values.dedup();
        Self { values: values.into() }
    }

    /// Returns one that knows the values of both.
    #[must_use]
    pub fn and(&self, other: &Self) -> Self {
        Self::new(self.values.iter().chain(other.values.iter()).map(|value| value.as_str()))
    }

    /// Says whether it knows no value.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// Says whether a value stands in these bytes.
    pub fn finds(&self, bytes: &[u8]) -> bool {
        self.values.iter().any(|value| memchr::memmem::find(bytes, value.as_bytes()).is_some())
    }

    /// Returns a text with every value replaced by [`MARK`].
    pub fn redact<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let mut text = Cow::Borrowed(text);
        // Again, as what a replacement joins may be a value; each round is shorter.
        while self.finds(text.as_bytes()) {
            for value in self.values.iter() {
                if text.contains(value.as_str()) {
                    text = Cow::Owned(text.replace(value.as_str(), MARK));
                }
            }
        }
        text
    }

    /// Replaces the values in a text.
    pub fn text(&self, text: &mut String) {
        if let Cow::Owned(clean) = self.redact(text) {
            *text = clean;
        }
    }

    /// Replaces the values in every string of a JSON value, names included.
    pub fn value(&self, value: &mut Value) {
        match value {
            Value::String(text) => self.text(text),
            Value::Array(items) => items.iter_mut().for_each(|item| self.value(item)),
            Value::Object(map) => {
                if map.keys().any(|name| self.finds(name.as_bytes())) {
                    *map = std::mem::take(map)
                        .into_iter()
                        .map(|(name, value)| (self.redact(&name).into_owned(), value))
                        .collect();
                }
                map.values_mut().for_each(|item| self.value(item));
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    /// Says whether a value stands in a string of a JSON value, names included.
    pub fn finds_in(&self, value: &Value) -> bool {
        match value {
            Value::String(text) => self.finds(text.as_bytes()),
            Value::Array(items) => items.iter().any(|item| self.finds_in(item)),
            Value::Object(map) => {
                map.iter().any(|(name, item)| self.finds(name.as_bytes()) || self.finds_in(item))
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => false,
        }
    }

    /// Replaces the values in a message.
    pub fn message(&self, message: &mut Message) {
        for block in &mut message.blocks {
            match block {
                Block::Text { text } => self.text(text),
                Block::Opaque { value, .. } => self.value(value),
                Block::Call(call) => {
                    self.text(&mut call.id);
                    self.text(&mut call.name);
                    self.arguments(&mut call.arguments);
                }
                Block::Result(result) => {
                    self.text(&mut result.call);
                    self.text(&mut result.text);
                }
            }
        }
    }

    /// Replaces the values in the arguments of a call.
    pub fn arguments(&self, arguments: &mut Arguments) {
        match arguments {
            Arguments::Object(map) => {
                let mut value = Value::Object(std::mem::take(map));
                self.value(&mut value);
                if let Value::Object(clean) = value {
                    *map = clean;
                }
            }
            Arguments::Malformed(text) => self.text(text),
        }
    }

    /// Returns a reader of a text that comes in pieces.
    pub fn pieces(&self) -> Pieces {
        Pieces { redactor: self.clone(), passed: String::new(), held: String::new() }
    }

    /// Returns how many bytes at the end of a text may be the start of a value.
    fn start_of_a_value(&self, text: &str) -> usize {
        let longest = |value: &Zeroizing<String>| {
            let most = value.len().saturating_sub(1).min(text.len());
            (1..=most).rev().find(|length| {
                value
                    .as_bytes()
                    .get(..*length)
                    .is_some_and(|start| text.as_bytes().ends_with(start))
            })
        };
        self.values.iter().filter_map(longest).max().unwrap_or(0)
    }
}

/// Takes values out of a text that comes in pieces, also where a piece ends within one: what may be
/// the start of a value is held back until more has come.
#[derive(Clone, Debug)]
pub struct Pieces {
    redactor: Redactor,
    /// What was let go at the end of a part and may be the start of a value all the same.
    passed: String,
    held: String,
}

impl Pieces {
    /// Takes a piece and returns what can be shown now.
    pub fn push(&mut self, piece: &str) -> String {
        self.held.push_str(piece);
        if !self.passed.is_empty() {
            self.go_on_from_what_passed();
        }
        self.redactor.text(&mut self.held);
        let kept = if self.passed.is_empty() {
            self.redactor.start_of_a_value(&self.held)
        } else {
            // All of it goes on with what had passed, and no value is whole yet.
            self.held.len()
        };
        let rest = self.held.split_off(self.held.len().saturating_sub(kept));
        std::mem::replace(&mut self.held, rest)
    }

    /// Takes out the rest of a value whose start has passed. Nothing is left of what had passed when
    /// it turns out to be no start of one.
    fn go_on_from_what_passed(&mut self) {
        let all = Zeroizing::new(format!("{}{}", self.passed, self.held));
        let ends = |value: &Zeroizing<String>| {
            let at = memchr::memmem::find(all.as_bytes(), value.as_bytes())?;
            let end = (at + value.len()).checked_sub(self.passed.len()).filter(|end| *end > 0)?;
            (at < self.passed.len()).then_some((at, end))
        };
        // The one that begins first, and of those the longest.
        let found = self.redactor.values.iter().filter_map(ends);
        if let Some((_, end)) = found.min_by_key(|(at, end)| (*at, std::cmp::Reverse(*end))) {
            self.held.replace_range(..end, MARK);
            self.passed.clear();
            return;
        }
        let open = self.redactor.start_of_a_value(&all);
        let passed = open.saturating_sub(self.held.len());
        self.passed.drain(..self.passed.len().saturating_sub(passed));
    }

    /// Returns what was held back, at the end of a part of the text: what comes next is shown apart.
    /// A value that goes on there does not pass whole.
    pub fn part(&mut self) -> String {
        let rest = std::mem::take(&mut self.held);
        self.passed.push_str(&rest);
        rest
    }

    /// Returns what was held back, at the end of the text.
    pub fn finish(&mut self) -> String {
        self.passed.clear();
        std::mem::take(&mut self.held)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    const KEY: &str = "sk-very-secret-0";

    #[test]
    fn every_string_of_a_message_is_cleaned_and_nothing_else_changes() {
        let redactor = Redactor::new([" sk-very-secret-0\n"]);
        let mut message = Message {
            role: super::super::Role::Assistant,
            blocks: vec![
                Block::Text { text: format!("a {KEY} b") },
                Block::Opaque { model: "p/m".into(), value: json!({"a": [KEY, 1], KEY: null}) },
                Block::Call(super::super::ToolCall {
                    id: "c".into(),
                    name: "bash".into(),
                    arguments: Arguments::parse(
                        &json!({"command": format!("echo {KEY}")}).to_string(),
                    ),
                }),
                Block::Call(super::super::ToolCall {
                    id: "d".into(),
                    name: "bash".into(),
                    arguments: Arguments::Malformed(format!("{{{KEY}")),
                }),
                Block::Result(super::super::ToolResult {
                    call: "c".into(),
                    text: format!("{KEY}{KEY}"),
                    is_error: false,
                }),
            ],
        };
        let before = serde_json::to_string(&message).unwrap();
        assert_eq!(before.matches(KEY).count(), 7, "control");
        redactor.message(&mut message);
        let after = serde_json::to_string(&message).unwrap();
        assert_eq!(after, before.replace(KEY, MARK));
        assert_eq!(format!("{redactor:?}"), "Redactor");
        assert!(!format!("{:?}", redactor.pieces()).contains("secret"));
    }

    #[test]
    fn a_plain_word_is_no_secret() {
        let redactor = Redactor::new(["lm-studio", "short-1", "", "password1"]);
        assert_eq!(redactor.redact("lm-studio short-1 password1"), "lm-studio short-1 …");
        assert!(Redactor::new(["ollama"]).is_empty());
    }

    #[test]
    fn of_a_value_within_another_nothing_is_left() {
        let redactor = Redactor::new(["abcdefg1", "abcdefg1-longer"]);
        assert_eq!(redactor.redact("x abcdefg1-longer abcdefg1 y"), "x … … y");
    }

    proptest! {
        /// However a text is cut: no value comes out, and text around values stays as it is.
        #[test]
        fn no_cut_lets_a_value_through(
            parts in prop::collection::vec(
                prop_oneof!["[ab1]{0,12}", Just("ab1ab1ab1".to_owned()), "[a-zäö✓]{0,5}"], 0..8),
            cuts in prop::collection::vec(0_usize..80, 0..12),
            more in prop::collection::vec("[ab1]{8,10}", 0..3),
        ) {
            let values: Vec<String> = more.into_iter().chain(["ab1ab1ab1".to_owned()]).collect();
            let redactor = Redactor::new(&values);
            let text = parts.concat();
            let whole = redactor.redact(&text).into_owned();
            prop_assert!(!redactor.finds(whole.as_bytes()));
            let mut pieces = redactor.pieces();
            let mut out = String::new();
            let mut piece = String::new();
            for (at, c) in text.char_indices() {
                if cuts.contains(&at) {
                    out.push_str(&pieces.push(&std::mem::take(&mut piece)));
                }
                piece.push(c);
            }
            out.push_str(&pieces.push(&piece));
            out.push_str(&pieces.finish());
            prop_assert!(!redactor.finds(out.as_bytes()), "{out}");
            if !redactor.finds(text.as_bytes()) {
                prop_assert_eq!(&out, &text);
                prop_assert_eq!(&whole, &text);
            }
            let one = Redactor::new(["ab1ab1ab1"]);
            let mut pieces = one.pieces();
            let mut out: String = text.chars().map(|c| pieces.push(&c.to_string())).collect();
            out.push_str(&pieces.finish());
            prop_assert_eq!(out, one.redact(&text));
        }
    }
}
