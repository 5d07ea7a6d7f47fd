//! What can be wrong with a settings file, and where.

use std::fmt;

use crate::authority::ListError;

use super::{duration::DurationError, values::ValueError};

/// A place in a settings file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The file, as it is shown to people.
    pub file: String,
    /// The line, from 1.
    pub line: usize,
    /// The column in characters, from 1.
    pub column: usize,
    /// The key, dotted from the top (`bash.timeout`); empty for the file as a whole.
    pub key: String,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.file, self.line, self.column)?;
        if self.key.is_empty() { Ok(()) } else { write!(f, ": `{}`", self.key) }
    }
}

/// A settings file that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {problem}")]
pub struct ConfigError {
    /// Where.
    pub place: Box<Place>,
    /// What.
    pub problem: Box<Problem>,
}

impl ConfigError {
    pub(super) fn new(place: Place, problem: impl Into<Problem>) -> Self {
        Self { place: Box::new(place), problem: Box::new(problem.into()) }
    }
}

/// What is wrong.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// The text is no JSON with comments.
    #[error("{what}; comments and trailing commas are allowed, everything else is as in JSON")]
    Syntax {
        /// What the parser says.
        what: String,
    },
    /// The text is not UTF-8.
    #[error("the file is not UTF-8 here; save it as UTF-8")]
    Encoding,
    /// The file is too large to be settings.
    #[error("the file has {bytes} bytes, at most {most} are read; move the rest out of it")]
    TooLarge {
        /// Its size in bytes.
        bytes: usize,
        /// The bound in bytes.
        most: usize,
    },
    /// The same key twice in one object.
    #[error("the key is there twice, first in line {first}; remove one of them")]
    Duplicate {
        /// The line of the first one, from 1.
        first: usize,
    },
    /// A value of another type.
    #[error("expected {expected}, found {found}{}", leave_out(.found))]
    Type {
        /// What belongs there.
        expected: &'static str,
        /// What was there.
        found: String,
    },
    /// A value of the right type that is not usable.
    #[error(transparent)]
    Value(#[from] ValueError),
    /// A length of time that cannot be read.
    #[error(transparent)]
    Duration(#[from] DurationError),
    /// A list of capabilities that cannot be read.
    #[error(transparent)]
    Capabilities(#[from] ListError),
    /// An unknown key where one that is left out would leave more than was meant.
    #[error("unknown key{}; mend or remove it, as a key that narrows is never left out in silence", hint(*.nearest))]
    Unknown {
        /// The nearest known key of the same object.
        nearest: Option<&'static str>,
    },
    /// A policy file without a value: a policy that was masked or cut off must not pass for none.
    #[error("the policy is empty; write `{{}}` for one that forbids nothing, or remove the file")]
    NoPolicy,
    /// A policy in a settings file.
    #[error("a policy is no part of the settings; it goes into `/etc/kli/policy.json`")]
    Policy,
    /// A key that is known, but not here.
    #[error("this key cannot be set {place}; {repair}")]
    Misplaced {
        /// Where.
        place: &'static str,
        /// What to do instead.
        repair: &'static str,
    },
    /// A key that narrows, in a place where it would be left out.
    #[error(
        "this key cannot be set here, and one that narrows is never left out in silence; it is `{key}` of {home}"
    )]
    Elsewhere {
        /// Which file it belongs to.
        home: &'static str,
        /// The key's whole name there.
        key: &'static str,
    },
    /// A longer array than a run can be held to.
    #[error("the array has {count} entries, at most {most} are read")]
    TooMany {
        /// Its length.
        count: usize,
        /// The bound.
        most: usize,
    },
    /// A number above its bound.
    #[error("`{value}` is more than {most}")]
    TooMuch {
        /// The number.
        value: u64,
        /// The bound.
        most: u64,
    },
    /// An empty array where at least one value is needed.
    #[error("the array is empty; name at least one, or leave the key out")]
    Empty,
}

fn hint(nearest: Option<&str>) -> String {
    nearest.map_or_else(String::new, |name| format!(", did you mean `{name}`?"))
}

fn leave_out(found: &str) -> &'static str {
    if found == "null" { "; leave the key out instead" } else { "" }
}

/// A key that this version does not use. It is ignored, and the person is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warning {
    /// Where; the key is the unknown one.
    pub place: Place,
    /// The nearest known key of the same object, when one is near.
    pub nearest: Option<&'static str>,
    /// Why it is not used.
    pub about: About,
}

/// Why a key is not used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum About {
    /// Nobody knows it.
    Unknown,
    /// Its meaning comes with a later version.
    Later,
    /// It is the first of those that are not named any more.
    More,
    /// The original kli knew it; what takes its place.
    Former(&'static str),
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.about, self.nearest) {
            (About::More, _) => {
                write!(f, "{}: this key and others after it are ignored as well", self.place)
            }
            (About::Later, _) => write!(f, "{}: not part of this version, ignored", self.place),
            (About::Former(instead), _) => {
                write!(f, "{}: a key of the original kli, ignored; now it is {instead}", self.place)
            }
            (About::Unknown, None) => write!(f, "{}: unknown key, ignored", self.place),
            (About::Unknown, Some(nearest)) => {
                write!(f, "{}: unknown key, ignored; did you mean `{nearest}`?", self.place)
            }
        }
    }
}
