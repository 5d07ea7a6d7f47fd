//! JSON with comments as a tree whose every node knows its place: the typed questions that
//! `settings` asks, and the errors that answer them.

use std::time::Duration;

use jsonc_parser::{
    CollectOptions, ParseOptions, Scanner, ScannerOptions,
    ast::{Object, ObjectProp, Value},
    common::Ranged,
    parse_to_ast,
    tokens::Token,
};

use crate::message::Money;

use super::{
    duration::parse_duration,
    error::{About, ConfigError, Place, Problem, Warning},
    keys::{self, Key},
    settings::MAX_BYTES,
    values::{self, ValueError},
};

/// The most warnings about one file.
const MOST_WARNINGS: usize = 50;

/// What is to be said about a key that is not read: the nearest known one, and why.
pub(super) type Said = (Option<&'static str>, About);

/// A settings file's text and name.
#[derive(Clone, Copy, Debug)]
pub(super) struct Text<'a> {
    file: &'a str,
    text: &'a str,
}

/// A value with its key.
#[derive(Clone, Debug)]
pub(super) struct Node<'a> {
    text: Text<'a>,
    name: &'a str,
    /// The dotted key, as errors show it.
    key: String,
    /// Where the key stands, or the value where there is none.
    key_at: usize,
    value: &'a Value<'a>,
}

/// Parses a file and hands its root to `read`; `None` for a file without any value.
pub(super) fn with_root<T>(
    file: &str,
    bytes: &[u8],
    read: impl FnOnce(Option<Node<'_>>) -> Result<T, ConfigError>,
) -> Result<T, ConfigError> {
    if bytes.len() > MAX_BYTES {
        let problem = Problem::TooLarge { bytes: bytes.len(), most: MAX_BYTES };
        return Err(head_error(file, problem));
    }
    let text = std::str::from_utf8(bytes).map_err(|error| {
        let good = bytes.get(..error.valid_up_to()).unwrap_or_default();
        let good = str::from_utf8(good).unwrap_or_default();
        let place = Text { file, text: good }.place(good.len(), "");
        ConfigError::new(place, Problem::Encoding)
    })?;
    let text = Text { file, text: text.strip_prefix('\u{feff}').unwrap_or(text) };
    let options = ParseOptions {
        allow_comments: true,
        allow_trailing_commas: true,
        allow_loose_object_property_names: false,
        allow_missing_commas: false,
        allow_single_quoted_strings: false,
        allow_hexadecimal_numbers: false,
        allow_unary_plus_numbers: false,
        allow_bare_decimal_point_numbers: false,
        allow_non_finite_numbers: false,
        allow_extended_string_escapes: false,
    };
    let parsed =
        parse_to_ast(text.text, &CollectOptions::default(), &options).map_err(|error| {
            let at = error.range().start;
            let mut what = error.kind().to_string();
            if let Some(first) = what.get_mut(..1) {
                first.make_ascii_lowercase();
            }
            let place = text.place(at, &text.key_before(at));
            ConfigError::new(place, Problem::Syntax { what })
        })?;
    let root = parsed.value.as_ref();
    read(root.map(|value| Node {
        text,
        name: "",
        key: String::new(),
        key_at: value.start(),
        value,
    }))
}

/// Reads JSON with comments as plain JSON; a file without any value is `null`.
///
/// # Errors
/// [`ConfigError`] for what is no JSON with comments, with its place.
pub fn plain(file: &str, bytes: &[u8]) -> Result<serde_json::Value, ConfigError> {
    with_root(file, bytes, |root| root.map_or(Ok(serde_json::Value::Null), |root| root.json()))
}

/// Returns an error about a file as a whole.
pub(super) fn head_error(file: &str, problem: Problem) -> ConfigError {
    let place = Place { file: file.to_owned(), line: 1, column: 1, key: String::new() };
    ConfigError::new(place, problem)
}

impl Text<'_> {
    fn place(&self, at: usize, key: &str) -> Place {
        let before = self.text.get(..at).unwrap_or(self.text);
        let start = before.rfind('\n').map_or(0, |newline| newline + 1);
        Place {
            file: self.file.to_owned(),
            line: before.bytes().filter(|b| *b == b'\n').count() + 1,
            column: before.get(start..).unwrap_or_default().chars().count() + 1,
            key: key.to_owned(),
        }
    }

    /// Returns the dotted key in whose value a position stands, for a text that does not parse.
    fn key_before(&self, at: usize) -> String {
        let options = ScannerOptions {
            allow_single_quoted_strings: false,
            allow_hexadecimal_numbers: false,
            allow_unary_plus_numbers: false,
            allow_bare_decimal_point_numbers: false,
            allow_non_finite_numbers: false,
            allow_extended_string_escapes: false,
        };
        let mut scanner = Scanner::new(self.text, &options);
        let mut keys: Vec<Option<String>> = Vec::new();
        let mut last = None;
        while let Ok(Some(token)) = scanner.scan() {
            if scanner.token_start() >= at {
                break;
            }
            let string = match token {
                Token::OpenBrace | Token::OpenBracket => {
                    keys.push(None);
                    None
                }
                Token::CloseBrace | Token::CloseBracket => {
                    keys.pop();
                    None
                }
                Token::Colon => {
                    if let Some(key) = keys.last_mut() {
                        *key = last.take();
                    }
                    None
                }
                Token::Comma => {
                    if let Some(key) = keys.last_mut() {
                        *key = None;
                    }
                    None
                }
                Token::String(text) => Some(values::shown(&text)),
                _ => None,
            };
            last = string;
        }
        keys.into_iter().flatten().collect::<Vec<_>>().join(".")
    }
}

impl<'a> Node<'a> {
    /// Returns the key's last part, as it was written.
    pub(super) fn name(&self) -> &'a str {
        self.name
    }

    /// Returns an error about this value.
    pub(super) fn error(&self, problem: impl Into<Problem>) -> ConfigError {
        let place = self.text.place(self.value.start(), &self.key);
        ConfigError::new(place, problem)
    }

    /// Returns an error about this value's key.
    pub(super) fn key_error(&self, problem: impl Into<Problem>) -> ConfigError {
        let place = self.text.place(self.key_at, &self.key);
        ConfigError::new(place, problem)
    }

    /// Returns the members that the table knows below `parent`; the others become warnings.
    ///
    /// # Errors
    /// For what is no object, and for an unknown key that is nearly one that narrows, or is one in a
    /// place that is not its own: left out, it would leave the run with more than was meant.
    pub(super) fn known(
        &self,
        table: &'static [Key],
        parent: &str,
        warnings: &mut Vec<Warning>,
    ) -> Result<Vec<Self>, ConfigError> {
        let mut found = Vec::new();
        for member in self.members()? {
            match member.judge(table, parent)? {
                None => found.push(member),
                Some(said) => member.warn(said, warnings),
            }
        }
        Ok(found)
    }

    /// Adds what is to be said about this key, while that is not too much to read. The place is
    /// looked for only then: it costs as much as the file is long.
    pub(super) fn warn(&self, (nearest, about): Said, warnings: &mut Vec<Warning>) {
        let (nearest, about) = match warnings.len() {
            0..MOST_WARNINGS => (nearest, about),
            MOST_WARNINGS => (None, About::More),
            _ => return,
        };
        let place = self.text.place(self.key_at, &self.key);
        warnings.push(Warning { place, nearest, about });
    }

    /// Returns what is to be said about this key; `None` for one that is read.
    pub(super) fn judge(
        &self,
        table: &'static [Key],
        parent: &str,
    ) -> Result<Option<Said>, ConfigError> {
        let warning = |nearest, about| Ok(Some((nearest, about)));
        let rows = keys::below(table, parent);
        if let Some(row) = rows.iter().find(|row| row.leaf() == self.name) {
            let later = row.shape == keys::Shape::Later;
            return if later { warning(None, About::Later) } else { Ok(None) };
        }
        if parent.is_empty() && values::nearest(self.name, ["policy"]).is_some() {
            return Err(self.key_error(Problem::Policy));
        }
        let full = if parent.is_empty() {
            self.name.to_owned()
        } else {
            format!("{parent}.{}", self.name)
        };
        if let Some((_, instead)) = keys::FORMER.iter().find(|(former, _)| *former == full) {
            return warning(None, About::Former(instead));
        }
        if let Some((home, row)) = keys::at_home(table, parent, self.name) {
            return Err(self.key_error(Problem::Elsewhere { home, key: row.name }));
        }
        let nearest = values::nearest(self.name, rows.iter().map(|row| row.leaf()));
        match nearest.and_then(|near| rows.iter().find(|row| row.leaf() == near)) {
            Some(row) if row.narrows => {
                Err(self.key_error(Problem::Unknown { nearest: Some(row.leaf()) }))
            }
            _ => warning(nearest, About::Unknown),
        }
    }

    /// Returns a truth value.
    pub(super) fn flag(&self) -> Result<bool, ConfigError> {
        match self.value {
            Value::BooleanLit(boolean) => Ok(boolean.value),
            _ => Err(self.type_error("`true` or `false`")),
        }
    }

    /// Returns the strings of an array, each checked.
    pub(super) fn strings<T>(
        &self,
        check: impl Fn(&str) -> Result<T, ValueError>,
    ) -> Result<Vec<T>, ConfigError> {
        if !matches!(self.value, Value::Array(_)) {
            return Err(self.type_error("an array of strings"));
        }
        self.elements().iter().map(|element| element.string(&check)).collect()
    }

    /// Says whether the value is `null`.
    pub(super) fn is_null(&self) -> bool {
        matches!(self.value, Value::NullKeyword(_))
    }

    /// Says whether the value is an array.
    pub(super) fn is_array(&self) -> bool {
        matches!(self.value, Value::Array(_))
    }

    fn type_error(&self, expected: &'static str) -> ConfigError {
        // What stands below `providers` may be a secret in the wrong place.
        let secret = ["providers", "bash.env"].iter().any(|parent| {
            self.key.split(".settings.").any(|key| {
                key.strip_prefix(parent)
                    .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
            })
        });
        let found = match self.value {
            Value::StringLit(_) if secret => "a string".to_owned(),
            Value::StringLit(text) => format!("the string `{}`", values::shown(&text.value)),
            Value::NumberLit(_) if secret => "a number".to_owned(),
            Value::NumberLit(number) => format!("the number `{}`", values::shown(number.value)),
            Value::BooleanLit(boolean) => format!("`{}`", boolean.value),
            Value::Object(_) => "an object".to_owned(),
            Value::Array(_) => "an array".to_owned(),
            Value::NullKeyword(_) => "null".to_owned(),
        };
        self.error(Problem::Type { expected, found })
    }

    /// Returns the members of an object.
    pub(super) fn members(&self) -> Result<Vec<Self>, ConfigError> {
        let Value::Object(object) = self.value else {
            return Err(self.type_error("an object"));
        };
        self.members_of(object)
    }

    fn members_of(&self, object: &'a Object<'a>) -> Result<Vec<Self>, ConfigError> {
        let mut seen = std::collections::HashMap::new();
        let mut members = Vec::with_capacity(object.properties.len());
        for property in &object.properties {
            let member = self.member(property);
            if let Some(first) = seen.insert(property.name.as_str(), member.key_at) {
                let first = self.text.place(first, "").line;
                return Err(member.key_error(Problem::Duplicate { first }));
            }
            members.push(member);
        }
        Ok(members)
    }

    fn member(&self, property: &'a ObjectProp<'a>) -> Self {
        let name = values::shown(property.name.as_str());
        let key = if self.key.is_empty() { name } else { format!("{}.{name}", self.key) };
        Self {
            text: self.text,
            name: property.name.as_str(),
            key,
            key_at: property.start(),
            value: &property.value,
        }
    }

    /// Returns the text of a string, checked.
    pub(super) fn string<T>(
        &self,
        check: impl FnOnce(&str) -> Result<T, ValueError>,
    ) -> Result<T, ConfigError> {
        let Value::StringLit(text) = self.value else {
            return Err(self.type_error("a string"));
        };
        check(&text.value).map_err(|error| self.error(error))
    }

    /// Returns a count from 1.
    pub(super) fn count(&self) -> Result<u64, ConfigError> {
        let Value::NumberLit(number) = self.value else {
            return Err(self.type_error("a whole number"));
        };
        values::count(number.value).map_err(|error| self.error(error))
    }

    /// Returns an amount of money above nothing.
    pub(super) fn money(&self) -> Result<Money, ConfigError> {
        let Value::NumberLit(number) = self.value else {
            return Err(self.type_error("a number"));
        };
        values::money(number.value).map_err(|error| self.error(error))
    }

    /// Returns a price, as millionths per million tokens.
    pub(super) fn price(&self) -> Result<u64, ConfigError> {
        let Value::NumberLit(number) = self.value else {
            return Err(self.type_error("a number"));
        };
        values::price(number.value).map_err(|error| self.error(error))
    }

    /// Returns a length of time; a bare number is refused with the units.
    pub(super) fn duration(&self) -> Result<Duration, ConfigError> {
        let text: &str = match self.value {
            Value::StringLit(text) => &text.value,
            Value::NumberLit(number) => number.value,
            _ => return Err(self.type_error("a length of time like `\"90s\"`")),
        };
        parse_duration(text).map_err(|error| self.error(error))
    }

    /// Returns the elements of an array; none for any other value.
    pub(super) fn elements(&self) -> Vec<Self> {
        let Value::Array(array) = self.value else { return Vec::new() };
        let element = |value: &'a Value<'a>| Self {
            text: self.text,
            name: self.name,
            key: self.key.clone(),
            key_at: value.start(),
            value,
        };
        array.elements.iter().map(element).collect()
    }

    /// Returns the value as plain JSON.
    pub(super) fn json(&self) -> Result<serde_json::Value, ConfigError> {
        Ok(match self.value {
            Value::StringLit(text) => text.value.clone().into_owned().into(),
            Value::NumberLit(number) => serde_json::from_str(number.value).map_err(|_| {
                let what = "this number cannot be read".to_owned();
                self.error(Problem::Syntax { what })
            })?,
            Value::BooleanLit(boolean) => boolean.value.into(),
            Value::NullKeyword(_) => serde_json::Value::Null,
            Value::Array(_) => {
                self.elements().iter().map(Self::json).collect::<Result<Vec<_>, _>>()?.into()
            }
            Value::Object(object) => {
                let members = self.members_of(object)?;
                let mut map = serde_json::Map::new();
                for member in members {
                    map.insert(member.name().to_owned(), member.json()?);
                }
                map.into()
            }
        })
    }
}
