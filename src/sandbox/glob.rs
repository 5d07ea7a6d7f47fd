//! Patterns of `denyReadGlobs`: which names of a directory, at which depth, are meant.
//!
//! Pure: a pattern is a list of parts, one for each directory on the way; whoever walks a tree keeps
//! the set of parts that may come next. `*`, `?` and `[…]` stay within one name and match a leading
//! dot as well; `**` alone between slashes stands for any number of directories. A character is one
//! of UTF-8, a byte that belongs to none counts as one too.

use std::os::unix::ffi::OsStrExt;

/// A pattern, read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pattern {
    parts: Vec<Part>,
}

/// What one part of a pattern stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Part {
    /// Any number of directories, none too.
    Directories,
    /// This very name.
    Literal(String),
    /// Every name of this form.
    Form(Vec<Token>),
}

/// A piece of a name's form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Token {
    /// This character.
    One(u32),
    /// Any one character.
    Any,
    /// Any number of characters.
    Many,
    /// One character of these ranges, or one of none of them.
    Class {
        /// Whether the ranges exclude.
        negated: bool,
        /// First and last character of each.
        ranges: Vec<(u32, u32)>,
    },
}

/// Why a pattern cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PatternError {
    /// `[` without an end.
    #[error("a `[` has no `]`: write `\\[` for the character itself")]
    Open,
    /// A range whose end comes before its start.
    #[error("a range in `[…]` ends before it starts: write the lower character first")]
    Range,
    /// `[[:alpha:]]` and its like.
    #[error("`[:…:]` is not known: write the characters, as in `[a-z]`")]
    Named,
    /// `{a,b}`.
    #[error(
        "`{{…}}` is no pattern here: write one entry for each, or `\\{{` for the character itself"
    )]
    Braces,
    /// A backslash at the end of a name.
    #[error("a `\\` has nothing behind it: write `\\\\` for the character itself")]
    Escape,
    /// `a**`.
    #[error("`**` stands for whole directories: let it be alone between slashes, or write one `*`")]
    Stars,
}

impl Pattern {
    /// Reads a pattern, the part of a path that follows its base.
    ///
    /// # Errors
    /// [`PatternError`] for what could mean something else than it does: a pattern that matches
    /// nothing hides nothing.
    pub fn new(text: &str) -> Result<Self, PatternError> {
        let mut parts: Vec<Part> = Vec::new();
        for name in text.split('/').filter(|name| !name.is_empty()) {
            let part = if name == "**" { Part::Directories } else { part(name)? };
            // Two of them mean no more than one.
            if part != Part::Directories || parts.last() != Some(&Part::Directories) {
                parts.push(part);
            }
        }
        // Everything below: whatever lies in the directory, each with all that is in it.
        if parts.last() == Some(&Part::Directories) {
            parts.push(Part::Form(vec![Token::Many]));
        }
        Ok(Self { parts })
    }

    /// How many parts at the start are plain names.
    pub fn literals(&self) -> usize {
        self.parts.iter().take_while(|part| matches!(part, Part::Literal(_))).count()
    }

    /// The number of parts; a state of this number is a match.
    pub fn len(&self) -> usize {
        self.parts.len()
    }

    /// Whether it has no part and so names its base.
    pub fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// The part that a state waits for.
    pub fn part(&self, state: usize) -> Option<&Part> {
        self.parts.get(state)
    }

    /// A state and those that it is at the same time, since `**` may stand for nothing.
    pub fn open(&self, state: usize, states: &mut Vec<usize>) {
        let mut state = state;
        loop {
            if !states.contains(&state) {
                states.push(state);
            }
            if self.parts.get(state) != Some(&Part::Directories) {
                return;
            }
            state += 1;
        }
    }

    /// Whether a part, other than `**`, means a name.
    pub fn matches(&self, state: usize, name: &std::ffi::OsStr) -> bool {
        match self.parts.get(state) {
            Some(Part::Literal(text)) => name.as_bytes() == text.as_bytes(),
            Some(Part::Form(tokens)) => fits(tokens, &characters(name.as_bytes())),
            Some(Part::Directories) | None => false,
        }
    }
}

fn part(name: &str) -> Result<Part, PatternError> {
    let mut tokens = Vec::new();
    let mut literal = String::new();
    let mut plain = true;
    let mut rest = name.chars();
    while let Some(character) = rest.next() {
        let token = match character {
            '*' if tokens.last() == Some(&Token::Many) => return Err(PatternError::Stars),
            '*' => Token::Many,
            '?' => Token::Any,
            '[' => class(&mut rest)?,
            '{' => return Err(PatternError::Braces),
            '\\' => Token::One(u32::from(rest.next().ok_or(PatternError::Escape)?)),
            other => Token::One(u32::from(other)),
        };
        match token {
            Token::One(code) => literal.extend(char::from_u32(code)),
            _ => plain = false,
        }
        tokens.push(token);
    }
    Ok(if plain { Part::Literal(literal) } else { Part::Form(tokens) })
}

fn class(rest: &mut std::str::Chars<'_>) -> Result<Token, PatternError> {
    let mut ranges: Vec<(u32, u32)> = Vec::new();
    let mut negated = false;
    let mut first = true;
    loop {
        let mut start = rest.next().ok_or(PatternError::Open)?;
        if first && !negated && (start == '!' || start == '^') {
            negated = true;
            continue;
        }
        // As in a shell, a bracket that comes first is one of the characters.
        if start == ']' && !first {
            return Ok(Token::Class { negated, ranges });
        }
        first = false;
        if start == '[' && matches!(rest.clone().next(), Some(':' | '.' | '=')) {
            return Err(PatternError::Named);
        }
        if start == '\\' {
            start = rest.next().ok_or(PatternError::Open)?;
        }
        let mut ahead = rest.clone();
        let mut end = start;
        if ahead.next() == Some('-')
            && let Some(last) = ahead.next()
            && last != ']'
        {
            end = if last == '\\' { ahead.next().ok_or(PatternError::Open)? } else { last };
            *rest = ahead;
        }
        if end < start {
            return Err(PatternError::Range);
        }
        ranges.push((u32::from(start), u32::from(end)));
    }
}

/// The characters of a name; a byte of none is a number that no character has.
fn characters(name: &[u8]) -> Vec<u32> {
    let mut characters = Vec::with_capacity(name.len());
    for chunk in name.utf8_chunks() {
        characters.extend(chunk.valid().chars().map(u32::from));
        characters.extend(chunk.invalid().iter().map(|byte| 0x11_0000 + u32::from(*byte)));
    }
    characters
}

/// Whether a form fits a name as a whole. Only the last `*` is ever tried again, so the effort is at
/// most the product of both lengths.
fn fits(tokens: &[Token], name: &[u32]) -> bool {
    let (mut token, mut at) = (0, 0);
    let mut again: Option<(usize, usize)> = None;
    while at < name.len() || token < tokens.len() {
        if tokens.get(token) == Some(&Token::Many) {
            again = Some((token, at));
            token += 1;
            continue;
        }
        let fitting =
            tokens.get(token).zip(name.get(at)).is_some_and(|(token, character)| match token {
                Token::One(one) => one == character,
                Token::Any => true,
                Token::Many => false,
                Token::Class { negated, ranges } => {
                    let within =
                        ranges.iter().any(|(first, last)| (first..=last).contains(&character));
                    within != *negated
                }
            });
        if fitting {
            token += 1;
            at += 1;
            continue;
        }
        match again {
            Some((star, start)) if start < name.len() => {
                again = Some((star, start + 1));
                token = star + 1;
                at = start + 1;
            }
            _ => return false,
        }
    }
    true
}

#[cfg(test)]
mod tests;
