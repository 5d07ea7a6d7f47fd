//! Checked values: names, addresses and paths as settings and flags write them.

use std::fmt;

use crate::{
    authority::{Approve, BUILT_IN, distance, misleads},
    display::{KeyError, LookError, Role},
    message::{Effort, MOST_PRICE, Money, Price},
};

pub(super) use crate::authority::shown;

/// The longest name of an alias, a profile, a provider or a tool, in bytes.
pub(super) const LONGEST: usize = 128;

/// The longest name that a provider may have for a model, in bytes: some are paths.
const LONGEST_MODEL: usize = 1024;

/// A value of the right type that is not usable.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ValueError {
    /// A model without its provider, or the other way round.
    #[error(
        "`{text}` names no model; write it as `PROVIDER/MODEL`, like `anthropic/claude-sonnet-4-5`"
    )]
    Model {
        /// What was written.
        text: String,
    },
    /// A name that no alias, profile or tool can have.
    #[error("`{text}` cannot be a name; use at most {LONGEST} letters, digits, `-`, `_` and `.`")]
    Name {
        /// What was written.
        text: String,
    },
    /// A built-in profile's name.
    #[error("`{text}` is a built-in profile; give this one another name")]
    BuiltIn {
        /// What was written.
        text: String,
    },
    /// An approval policy that does not exist.
    #[error("unknown approval `{text}`{}; it is `never`, `writes` or `all`", did_you_mean(*.nearest))]
    Approve {
        /// What was written.
        text: String,
        /// The nearest one.
        nearest: Option<&'static str>,
    },
    /// A flag's `KEY=VALUE` without one of both.
    #[error("`{text}` sets no option; write `KEY=VALUE`, like `temperature=0`")]
    Option {
        /// What was written.
        text: String,
    },
    /// A provider kind that does not exist.
    #[error("unknown kind `{text}`{}; the kinds are `anthropic`, `openai`, `openai-chat` and `replay`", did_you_mean(*.nearest))]
    Kind {
        /// What was written.
        text: String,
        /// The nearest one.
        nearest: Option<&'static str>,
    },
    /// A level of effort that does not exist.
    #[error("unknown effort `{text}`{}; the levels are {}", did_you_mean(*.nearest), levels())]
    Effort {
        /// What was written.
        text: String,
        /// The nearest one.
        nearest: Option<&'static str>,
    },
    /// A number that is no price.
    #[error(
        "`{text}` is no price; write money per million tokens, from 0 to {MOST_PRICE}, like `2.5`"
    )]
    Price {
        /// What was written.
        text: String,
    },
    /// A provider's name that could not be written as `PROVIDER/MODEL`.
    #[error(
        "`{text}` cannot name a provider; use at most {LONGEST} letters, digits, `-`, `_` and `.`"
    )]
    ProviderName {
        /// What was written.
        text: String,
    },
    /// An address that is none. The value is not repeated, as it may carry a password.
    #[error(
        "the address {why}; write it like `https://api.example.com`, or `unix:/run/model.sock` for a socket"
    )]
    Address {
        /// What is wrong with it.
        why: &'static str,
    },
    /// No name of an environment variable. The value is not repeated, as it may be the key itself.
    #[error(
        "this is not the name of an environment variable; write the name (like `ANTHROPIC_API_KEY`), never the key itself"
    )]
    Variable,
    /// A key file's path that depends on where kli was started. It is not repeated: it may be the
    /// key itself.
    #[error(
        "this is not the path of a file; write an absolute path, or one that starts with `~/`, never the key itself"
    )]
    KeyFile,
    /// A key command that is no list of words, or whose program depends on where kli was started.
    /// It is not repeated: it may be the key itself.
    #[error(
        "the command must be an array of words, the program first, like `[\"pass\", \"show\", \"work/key\"]`; \
         no shell reads it, and the program is a name on PATH, an absolute path, or one that starts with `~/`"
    )]
    KeyCommand,
    /// A path that depends on where kli was started.
    #[error(
        "`{text}` depends on where kli is started; write an absolute path, or one that starts with `~/`"
    )]
    Path {
        /// What was written.
        text: String,
    },
    /// What cannot be the name of a file in a directory.
    #[error("`{text}` is no file's name; write a name alone, without `/`, like `AGENTS.md`")]
    FileName {
        /// What was written.
        text: String,
    },
    /// A header's name or value that HTTP does not allow. The value is not repeated.
    #[error(
        "{what} of the header is not allowed in HTTP; use visible characters, and no line break"
    )]
    Header {
        /// `the name` or `the value`.
        what: &'static str,
    },
    /// A built-in theme's name.
    #[error("`{text}` is a built-in theme; give this one another name")]
    BuiltInTheme {
        /// What was written.
        text: String,
    },
    /// A theme that none can build on.
    #[error("`{text}` is no theme to build on{}; it is `auto`, `dark` or `light`", did_you_mean(*.nearest))]
    Base {
        /// What was written.
        text: String,
        /// The nearest one.
        nearest: Option<&'static str>,
    },
    /// A role that no text has.
    #[error("unknown role `{text}`{}; the roles are {}", did_you_mean(*.nearest), roles())]
    Role {
        /// What was written.
        text: String,
        /// The nearest one.
        nearest: Option<&'static str>,
    },
    /// How a role cannot look.
    #[error(transparent)]
    Look(#[from] LookError),
    /// An action that no key has.
    #[error("unknown action `{text}`{}; `/keys` and docs/terminal.md list them", did_you_mean(*.nearest))]
    Action {
        /// What was written.
        text: String,
        /// The nearest one.
        nearest: Option<&'static str>,
    },
    /// A key that cannot be bound.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// One key for two actions.
    #[error("`{key}` is bound to `{first}` and to `{second}`; take it out of one of them")]
    Taken {
        /// The key.
        key: String,
        /// The action that has it.
        first: &'static str,
        /// The other one.
        second: &'static str,
    },
    /// A number that is no amount of money.
    #[error(
        "`{text}` is no amount of money; write a number above 0 and up to a billion, like `2.5`"
    )]
    Money {
        /// What was written.
        text: String,
    },
    /// A number that is no count.
    #[error("`{text}` is no whole number from 1 to {most}; write one, or leave it out")]
    Count {
        /// What was written.
        text: String,
        /// The largest that is accepted.
        most: u64,
    },
}

fn roles() -> String {
    Role::names().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

fn levels() -> String {
    Effort::NAMES.map(|name| format!("`{name}`")).join(", ")
}

/// Reads the name of a file: it says what, never where.
pub(super) fn file_name(text: &str) -> Result<String, ValueError> {
    let odd = |c: char| c == '/' || c.is_control();
    if text.trim().is_empty()
        || text.len() > 255
        || [".", ".."].contains(&text)
        || text.contains(odd)
    {
        return Err(ValueError::FileName { text: shown(text) });
    }
    Ok(text.to_owned())
}

fn did_you_mean(nearest: Option<&'static str>) -> String {
    nearest.map_or_else(String::new, |name| format!(", did you mean `{name}`?"))
}

/// A model as settings and flags name it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelName {
    /// The provider, a key of `providers` or a built-in one.
    pub provider: String,
    /// The provider's name for the model; it may hold further slashes.
    pub model: String,
}

impl fmt::Display for ModelName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.provider, self.model)
    }
}

impl std::str::FromStr for ModelName {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let wrong = || ValueError::Model { text: shown(text) };
        let (provider, model) = text.split_once('/').ok_or_else(wrong)?;
        // It is shown where people read who is asked, and a display state could hold any.
        let odd = |c: char| c.is_whitespace() || misleads(c);
        let long = model.len() > LONGEST_MODEL;
        if provider_name(provider).is_err() || model.is_empty() || long || model.contains(odd) {
            return Err(wrong());
        }
        Ok(Self { provider: provider.to_owned(), model: model.to_owned() })
    }
}

/// Returns the known name nearest to what was written, when it is near enough to be meant.
pub(super) fn nearest(
    text: &str,
    known: impl IntoIterator<Item = &'static str>,
) -> Option<&'static str> {
    let lower = text.to_lowercase();
    known
        .into_iter()
        .filter_map(|name| Some((distance(&lower, &name.to_lowercase(), near(name))?, name)))
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, name)| name)
}

/// Returns how far from a name a text may be that means it.
fn near(name: &str) -> usize {
    name.len().div_ceil(3).min(3)
}

/// Returns the name nearest to what was written, of names that are not fixed.
pub(super) fn nearest_of(text: &str, known: &[String]) -> Option<String> {
    known
        .iter()
        .filter_map(|name| Some((distance(text, name, near(name))?, name)))
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, name)| name.clone())
}

/// Returns a length of time as settings write it.
pub(super) fn time(time: std::time::Duration) -> String {
    let millis = time.as_millis();
    [("h", 3_600_000, u128::MAX), ("m", 60_000, 60), ("s", 1_000, 60), ("ms", 1, 1_000)]
        .map(|(unit, size, below)| ((millis / size) % below, unit))
        .into_iter()
        .filter(|(count, _)| *count > 0)
        .flat_map(|(count, unit)| [count.to_string(), unit.to_owned()])
        .collect()
}

/// A name as aliases, profiles and tools have it; whether it exists is asked later.
pub(super) fn name(text: &str) -> Result<String, ValueError> {
    match provider_name(text) {
        Ok(()) => Ok(text.to_owned()),
        Err(_) => Err(ValueError::Name { text: shown(text) }),
    }
}

/// The name of a profile of the user's own.
pub(super) fn own_profile(text: &str) -> Result<String, ValueError> {
    if BUILT_IN.iter().any(|profile| profile.name == text) {
        return Err(ValueError::BuiltIn { text: shown(text) });
    }
    name(text)
}

pub(super) fn approve(text: &str) -> Result<Approve, ValueError> {
    Approve::NAMES
        .into_iter()
        .find(|(name, _)| *name == text)
        .map(|(_, approve)| approve)
        .ok_or_else(|| ValueError::Approve {
            text: shown(text),
            nearest: nearest(text, Approve::NAMES.map(|(name, _)| name)),
        })
}

/// A model as a setting names it: in full, or by an alias.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Choice {
    Model(ModelName),
    Alias(String),
}

pub(super) fn model(text: &str) -> Result<Choice, ValueError> {
    if !text.contains('/') && name(text).is_ok() {
        return Ok(Choice::Alias(text.to_owned()));
    }
    text.parse().map(Choice::Model)
}

/// A variable for commands: no loader or shell reads a NUL or an `=` in its name.
pub(super) fn environment_value(text: &str) -> Result<String, ValueError> {
    if text.contains('\0') {
        return Err(ValueError::Variable);
    }
    Ok(text.to_owned())
}

pub(super) fn provider_name(text: &str) -> Result<(), ValueError> {
    let fine = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if text.is_empty() || text.len() > LONGEST || !text.chars().all(fine) {
        return Err(ValueError::ProviderName { text: shown(text) });
    }
    Ok(())
}

pub(super) fn address(text: &str) -> Result<String, ValueError> {
    let wrong = |why| Err(ValueError::Address { why });
    if text.chars().any(|c| c.is_control() || c.is_whitespace()) {
        return wrong("holds a space or a control character");
    }
    if let Some(socket) = text.strip_prefix("unix:") {
        // `unix:///run/x.sock` is how other programs write it.
        let socket = socket.strip_prefix("//").filter(|p| p.starts_with('/')).unwrap_or(socket);
        let (path, prefix) = socket.split_once(":/").unwrap_or((socket, ""));
        if !(path.starts_with('/') || path.starts_with("~/")) || path.ends_with('/') {
            return wrong("names no socket: its path is absolute, or starts with `~/`");
        }
        if prefix.contains(['?', '#']) {
            return wrong("has a query or a fragment");
        }
        return Ok(format!("unix:{}", socket.trim_end_matches('/')));
    }
    let Some(rest) = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://")) else {
        return wrong("does not start with `https://`, `http://` or `unix:`");
    };
    let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
    if host.is_empty() || host.starts_with(':') {
        return wrong("names no host");
    }
    if host.contains('@') {
        return wrong("carries a user name or a password, which belongs in `keyEnv` or `keyFile`");
    }
    if rest.contains(['?', '#']) {
        return wrong("has a query or a fragment");
    }
    Ok(text.trim_end_matches('/').to_owned())
}

/// Says whether the path below the host ends in `/v1`. A socket's own path does not count.
pub(super) fn ends_in_version(address: &str) -> bool {
    match address.strip_prefix("unix:") {
        Some(socket) => {
            socket.split_once(":/").is_some_and(|(_, prefix)| format!("/{prefix}").ends_with("/v1"))
        }
        None => address.ends_with("/v1"),
    }
}

pub(super) fn variable(text: &str) -> Result<String, ValueError> {
    let fine = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let starts = text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    if !starts || !text.chars().all(fine) {
        return Err(ValueError::Variable);
    }
    Ok(text.to_owned())
}

pub(super) fn key_file(text: &str) -> Result<String, ValueError> {
    path(text).map_err(|_| ValueError::KeyFile)
}

pub(super) fn key_command(words: &[String]) -> Result<(), ValueError> {
    let program = words.first().map(String::as_str).unwrap_or_default();
    let found = !program.is_empty() && (!program.contains('/') || path(program).is_ok());
    if !found || words.iter().any(|word| word.contains('\0')) {
        return Err(ValueError::KeyCommand);
    }
    Ok(())
}

pub(super) fn path(text: &str) -> Result<String, ValueError> {
    if (text.starts_with('/') || text.starts_with("~/")) && !text.contains('\0') {
        return Ok(text.to_owned());
    }
    Err(ValueError::Path { text: shown(text) })
}

pub(super) fn header(name: &str, value: &str) -> Result<(), ValueError> {
    // The characters of a token, RFC 9110 section 5.6.2.
    let token = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
    if name.is_empty() || !name.chars().all(token) {
        return Err(ValueError::Header { what: "the name" });
    }
    if value.chars().any(|c| c.is_control() && c != '\t') {
        return Err(ValueError::Header { what: "the value" });
    }
    Ok(())
}

/// The largest count that is accepted: what a JSON number can carry exactly everywhere.
pub(super) const MOST: u64 = (1 << 53) - 1;

pub(super) fn money(text: &str) -> Result<Money, ValueError> {
    Money::parse(text)
        .filter(|money| *money > Money::ZERO)
        .ok_or_else(|| ValueError::Money { text: shown(text) })
}

pub(super) fn effort(text: &str) -> Result<Effort, ValueError> {
    text.parse().map_err(|_| ValueError::Effort {
        text: shown(text),
        nearest: nearest(text, Effort::NAMES),
    })
}

pub(super) fn price(text: &str) -> Result<u64, ValueError> {
    Price::parse(text).ok_or_else(|| ValueError::Price { text: shown(text) })
}

pub(super) fn count(text: &str) -> Result<u64, ValueError> {
    text.parse::<u64>()
        .ok()
        .filter(|n| (1..=MOST).contains(n))
        .ok_or_else(|| ValueError::Count { text: shown(text), most: MOST })
}
