//! Cuts a command line into words, signs and redirections, as long as every character is plain.
//!
//! It knows no grammar. What the shell could expand, escape, define or read otherwise, and what it
//! does not know, makes the whole line unread.

use std::{iter::Peekable, str::Chars};

/// Words that stand in the line for the grammar's sake, when they are not quoted.
const GRAMMAR: &[&str] =
    &["!", "{", "}", "do", "done", "elif", "else", "fi", "if", "then", "until", "while"];

/// A word.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Word {
    /// Without its quotes.
    pub(super) text: String,
    /// Whether a part of it was quoted.
    pub(super) quoted: bool,
}

impl Word {
    /// Says whether the word may belong to the grammar.
    pub(super) fn is_grammar(&self) -> bool {
        !self.quoted && GRAMMAR.contains(&self.text.as_str())
    }
}

/// A redirection that opens no file but `/dev/null`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Redirection {
    /// One descriptor becomes another, or goes nowhere.
    Other {
        /// The descriptor in front; -1 when there is none.
        fd: i32,
        /// The sign.
        op: String,
        /// What stands behind it.
        target: String,
    },
    /// A here-document without anything to expand.
    Document {
        /// The line that ends it.
        end: String,
        /// What is read.
        text: String,
    },
}

/// A line in pieces.
#[derive(Debug, Default)]
pub(super) struct Tokens {
    /// Its words in order, without those of the grammar.
    pub(super) words: Vec<Word>,
    /// Its redirections in order.
    pub(super) redirections: Vec<Redirection>,
    /// How deep its groups may nest, at most.
    pub(super) depth: usize,
    /// How many signs separate its commands.
    pub(super) signs: usize,
}

/// Cuts a line; `None` when there is anything in it that is not plain.
pub(super) fn tokens(line: &str) -> Option<Tokens> {
    let mut reader = Reader { rest: line.chars().peekable() };
    let mut tokens = Tokens::default();
    // Here-documents whose text begins behind the next line end.
    let mut awaited: Vec<(usize, bool)> = Vec::new();
    while let Some(next) = reader.rest.peek().copied() {
        match next {
            ' ' | '\t' => drop(reader.rest.next()),
            '\n' => {
                reader.rest.next();
                tokens.signs += 1;
                for (at, quoted) in awaited.drain(..) {
                    reader.document(tokens.redirections.get_mut(at)?, quoted)?;
                }
            }
            ';' => {
                reader.rest.next();
                tokens.signs += 1;
                // `;;` and its kin belong to `case`.
                if matches!(reader.rest.peek(), Some(';' | '&')) {
                    return None;
                }
            }
            '|' => {
                reader.rest.next();
                tokens.signs += 1;
                if reader.rest.peek() == Some(&'|') {
                    reader.rest.next();
                }
                // `|&` and `|||`.
                if matches!(reader.rest.peek(), Some('&' | '|')) {
                    return None;
                }
            }
            '&' => {
                reader.rest.next();
                tokens.signs += 1;
                // `&` alone, `&>` and `&&&`.
                if reader.rest.next() != Some('&')
                    || matches!(reader.rest.peek(), Some('&' | '|' | '>'))
                {
                    return None;
                }
            }
            '(' | ')' => {
                reader.rest.next();
                if next == '(' {
                    tokens.depth += 1;
                    // `((` may begin arithmetic, `()` a function.
                    if matches!(reader.rest.peek(), Some('(' | ')')) {
                        return None;
                    }
                } else if !matches!(reader.rest.peek(), None | Some(' ' | '\t' | '\n' | ';' | ')'))
                {
                    return None;
                }
            }
            '<' | '>' => {
                let (redirection, quoted) = reader.redirection(-1)?;
                if matches!(redirection, Redirection::Document { .. }) {
                    awaited.push((tokens.redirections.len(), quoted));
                }
                tokens.redirections.push(redirection);
            }
            _ => {
                let word = reader.word()?;
                match reader.rest.peek() {
                    Some('<' | '>') => {
                        // A number, and nothing else, names the descriptor.
                        let plain = !word.quoted && ["0", "1", "2"].contains(&word.text.as_str());
                        let fd = plain.then(|| word.text.parse().ok()).flatten()?;
                        let (redirection, _) = reader.redirection(fd)?;
                        if matches!(redirection, Redirection::Document { .. }) {
                            return None;
                        }
                        tokens.redirections.push(redirection);
                    }
                    // A function's name.
                    Some('(') => return None,
                    _ if word.is_grammar() => tokens.depth += 1,
                    _ => tokens.words.push(word),
                }
            }
        }
    }
    awaited.is_empty().then_some(tokens)
}

/// Reads a text that must be one plain word.
pub(super) fn whole_word(text: &str) -> Option<Word> {
    let mut reader = Reader { rest: text.chars().peekable() };
    let word = reader.word()?;
    reader.rest.peek().is_none().then_some(word)
}

struct Reader<'a> {
    rest: Peekable<Chars<'a>>,
}

impl Reader<'_> {
    fn word(&mut self) -> Option<Word> {
        let mut word = Word { text: String::new(), quoted: false };
        while let Some(next) = self.rest.peek().copied() {
            match next {
                ' ' | '\t' | '\n' | ';' | '&' | '|' | '<' | '>' | '(' | ')' => break,
                '\'' => {
                    self.rest.next();
                    word.quoted = true;
                    self.quoted('\'', &mut word.text, |c| c != '\0')?;
                }
                '"' => {
                    self.rest.next();
                    word.quoted = true;
                    // `!` is history only where history is on, which a line could ask for.
                    self.quoted('"', &mut word.text, |c| !"$`\\!\0".contains(c))?;
                }
                // A word of the grammar only where it stands alone.
                '{' | '}' | '!' if word.text.is_empty() && !word.quoted => {
                    self.rest.next();
                    let ends = matches!(
                        self.rest.peek(),
                        None | Some(' ' | '\t' | '\n' | ';' | '&' | '|' | ')')
                    );
                    // Behind `{` and `!` a command must come.
                    let blank = matches!(self.rest.peek(), Some(' ' | '\t' | '\n'));
                    if !(blank || next == '}' && ends) {
                        return None;
                    }
                    word.text.push(next);
                    return Some(word);
                }
                _ if next.is_ascii_alphanumeric() || "_-./,:+@%=".contains(next) => {
                    word.text.push(next);
                    self.rest.next();
                }
                // Revisions (`HEAD~1`, `v1^`). A tilde is expanded at a word's start and behind `=`
                // and `:` only; a caret means something in history and behind `[`.
                '~' | '^'
                    if !word.quoted
                        && word.text.ends_with(|c: char| {
                            c.is_ascii_alphanumeric() || c == '~' || c == '^'
                        }) =>
                {
                    word.text.push(next);
                    self.rest.next();
                }
                // Also letters outside ASCII: some locales count some of them as blanks.
                _ => return None,
            }
        }
        (word.quoted || !word.text.is_empty()).then_some(word)
    }

    fn quoted(&mut self, end: char, word: &mut String, plain: fn(char) -> bool) -> Option<()> {
        loop {
            match self.rest.next()? {
                c if c == end => return Some(()),
                c if plain(c) => word.push(c),
                _ => return None,
            }
        }
    }

    /// Reads a redirection from its sign on, and says whether a here-document's end was quoted.
    fn redirection(&mut self, fd: i32) -> Option<(Redirection, bool)> {
        let first = self.rest.next()?;
        let mut op = String::from(first);
        while let Some(next) = self.rest.peek().copied().filter(|c| "<>&|".contains(*c)) {
            op.push(next);
            self.rest.next();
        }
        if op != ">&" {
            while self.rest.peek().is_some_and(|c| " \t".contains(*c)) {
                self.rest.next();
            }
        }
        let target = self.word()?;
        let ends =
            matches!(self.rest.peek(), None | Some(' ' | '\t' | '\n' | ';' | '&' | '|' | ')'));
        let plain = ends && !target.quoted;
        match op.as_str() {
            ">&" if plain && ["1", "2"].contains(&target.text.as_str()) => {}
            ">" | ">>" | "<" if plain && target.text == "/dev/null" => {}
            "<<" if ends && !target.text.is_empty() && !target.text.contains('\n') => {
                let document = Redirection::Document { end: target.text, text: String::new() };
                return Some((document, target.quoted));
            }
            _ => return None,
        }
        Some((Redirection::Other { fd, op, target: target.text }, false))
    }

    /// Reads a here-document's text up to and with the line that ends it.
    fn document(&mut self, into: &mut Redirection, quoted: bool) -> Option<()> {
        let Redirection::Document { end, text } = into else { return None };
        loop {
            let mut line = String::new();
            let whole = loop {
                match self.rest.next() {
                    Some('\n') => break true,
                    Some('\0') => return None,
                    Some(c) if quoted || !"$`\\".contains(c) => line.push(c),
                    Some(_) => return None,
                    None => break false,
                }
            };
            if line == *end {
                return Some(());
            }
            // The shell takes the end of the line for the end of the text, with a warning.
            whole.then_some(())?;
            text.push_str(&line);
            text.push('\n');
        }
    }
}
