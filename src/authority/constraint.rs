//! Constraints: how far an atom reaches. A meet-semilattice with `any` on top and `none` at the
//! bottom; different kinds in between do not meet.

use std::{collections::BTreeSet, fmt, path::PathBuf};

use super::{command, words::visible};

/// How far an atom reaches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Constraint {
    /// Everywhere.
    Any,
    /// Nowhere.
    None,
    /// Beneath one of these directories (or exactly that file), by whole path components, on the
    /// resolved physical path.
    Under(BTreeSet<PathBuf>),
    /// Commands that start with one of these word lists.
    Commands(BTreeSet<Vec<String>>),
    /// One of these values.
    OneOf(BTreeSet<String>),
    /// A number between two bounds, both included; an absent one is open.
    Between(Option<i64>, Option<i64>),
}

/// What a single request is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Detail {
    /// Nothing to compare.
    Nothing,
    /// A physical path.
    Path(PathBuf),
    /// The simple commands of a command line, each as its words; `None` when the line cannot be
    /// read with certainty (substitutions, `eval`, a variable where a command stands, …).
    Commands {
        /// The line, for people.
        line: String,
        /// Its simple commands.
        parsed: Option<Vec<Vec<String>>>,
    },
    /// A value.
    Value(String),
    /// A number.
    Number(i64),
}

impl Constraint {
    /// Returns the constraint "beneath one of these", without entries that another one covers.
    pub fn under(paths: impl IntoIterator<Item = PathBuf>) -> Self {
        let paths: BTreeSet<PathBuf> = paths.into_iter().collect();
        let kept: BTreeSet<PathBuf> = paths
            .iter()
            .filter(|path| !paths.iter().any(|other| other != *path && path.starts_with(other)))
            .cloned()
            .collect();
        if kept.is_empty() { Self::None } else { Self::Under(kept) }
    }

    /// Returns the constraint "starts with one of these words", without entries that another one
    /// covers. An empty word list is left out: it would cover everything.
    pub fn commands(lists: impl IntoIterator<Item = Vec<String>>) -> Self {
        let lists: BTreeSet<Vec<String>> = lists.into_iter().filter(|l| !l.is_empty()).collect();
        let kept: BTreeSet<Vec<String>> = lists
            .iter()
            .filter(|list| !lists.iter().any(|other| other != *list && list.starts_with(other)))
            .cloned()
            .collect();
        if kept.is_empty() { Self::None } else { Self::Commands(kept) }
    }

    /// Returns the greatest constraint that both cover.
    #[must_use]
    pub fn meet(&self, other: &Self) -> Self {
        match (self, other) {
            (Self::Any, c) | (c, Self::Any) => c.clone(),
            (Self::Under(a), Self::Under(b)) => {
                Self::under(narrower(a, b, |x, y| y.starts_with(x)))
            }
            (Self::Commands(a), Self::Commands(b)) => {
                Self::commands(narrower(a, b, |x, y| y.starts_with(x)))
            }
            (Self::OneOf(a), Self::OneOf(b)) => {
                let both: BTreeSet<String> = a.intersection(b).cloned().collect();
                if both.is_empty() { Self::None } else { Self::OneOf(both) }
            }
            (Self::Between(al, ah), Self::Between(bl, bh)) => {
                let low = (*al).max(*bl);
                let high = match (ah, bh) {
                    (Some(a), Some(b)) => Some(*a.min(b)),
                    (bound, None) | (None, bound) => *bound,
                };
                match (low, high) {
                    (Some(low), Some(high)) if low > high => Self::None,
                    _ => Self::Between(low, high),
                }
            }
            _ => Self::None,
        }
    }

    /// Says whether everything that `other` allows is allowed here too.
    pub fn covers(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Any, _) | (_, Self::None) => true,
            (Self::Under(a), Self::Under(b)) => {
                b.iter().all(|y| a.iter().any(|x| y.starts_with(x)))
            }
            (Self::Commands(a), Self::Commands(b)) => {
                b.iter().all(|y| a.iter().any(|x| y.starts_with(x)))
            }
            (Self::OneOf(a), Self::OneOf(b)) => b.is_subset(a),
            (Self::Between(al, ah), Self::Between(bl, bh)) => {
                let low = match (al, bl) {
                    (None, _) => true,
                    (Some(a), Some(b)) => a <= b,
                    (Some(_), None) => false,
                };
                let high = match (ah, bh) {
                    (None, _) => true,
                    (Some(a), Some(b)) => a >= b,
                    (Some(_), None) => false,
                };
                low && high
            }
            _ => false,
        }
    }

    /// Says whether a request with this detail is within the constraint.
    pub fn allows(&self, detail: &Detail) -> bool {
        match (self, detail) {
            // Looking at what was started under a list, and ending it, starts nothing.
            (Self::Any, _) | (Self::Commands(_), Detail::Nothing) => true,
            (Self::Under(prefixes), Detail::Path(path)) => {
                prefixes.iter().any(|prefix| path.starts_with(prefix))
            }
            (Self::Commands(lists), Detail::Commands { parsed: Some(commands), .. }) => {
                command::all_within(commands, lists)
            }
            (Self::OneOf(values), Detail::Value(value)) => values.contains(value),
            (Self::Between(low, high), Detail::Number(number)) => {
                low.is_none_or(|low| low <= *number) && high.is_none_or(|high| *number <= high)
            }
            _ => false,
        }
    }
}

/// Returns, of every two entries of which one covers the other, the narrower one.
fn narrower<T: Clone>(a: &BTreeSet<T>, b: &BTreeSet<T>, covers: impl Fn(&T, &T) -> bool) -> Vec<T> {
    let mut found = Vec::new();
    for x in a {
        for y in b {
            if covers(x, y) {
                found.push(y.clone());
            } else if covers(y, x) {
                found.push(x.clone());
            }
        }
    }
    found
}

impl fmt::Display for Constraint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => f.write_str("any"),
            Self::None => f.write_str("none"),
            Self::Under(paths) => {
                let paths: Vec<String> =
                    paths.iter().map(|p| visible(&p.to_string_lossy())).collect();
                write!(f, "path under {}", paths.join(" or "))
            }
            Self::Commands(lists) => {
                let lists: Vec<String> =
                    lists.iter().map(|words| visible(&words.join(" "))).collect();
                write!(f, "command {}", lists.join(" or "))
            }
            Self::OneOf(values) => {
                let values: Vec<&str> = values.iter().map(String::as_str).collect();
                write!(f, "one of {}", values.join(", "))
            }
            Self::Between(low, high) => {
                let bound = |b: &Option<i64>| b.map_or_else(String::new, |n| n.to_string());
                write!(f, "in [{}..{}]", bound(low), bound(high))
            }
        }
    }
}

impl fmt::Display for Detail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nothing => Ok(()),
            Self::Path(path) => write!(f, "{}", path.display()),
            Self::Commands { line, .. } | Self::Value(line) => f.write_str(line),
            Self::Number(number) => write!(f, "{number}"),
        }
    }
}
