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
}

fn leave_out(found: &str) -> &'static str {
    if found == "null" { "; leave the key out instead" } else { "" }
}

/// A key that this version does not know. It is ignored, and the person is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warning {
    /// Where; the key is the unknown one.
    pub place: Place,
    /// The nearest known key of the same object, when one is near.
    pub nearest: Option<&'static str>,
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: unknown key, ignored", self.place)?;
        match self.nearest {
            Some(nearest) => write!(f, "; did you mean `{nearest}`?"),
            None => Ok(()),
        }
    }
}
