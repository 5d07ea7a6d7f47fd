//! Highlighting of code by its words: comments, strings, numbers and keywords, a row at a time.
//!
//! It is a lexer of what most languages share, not a grammar: it costs nothing at start-up and can
//! colour a stream as it comes. What it does not know stays plain.

use crate::display::Role;

use super::style::{Line, Style};

const COMMENT: Style = Style::role(Role::Comment);
const STRING: Style = Style::role(Role::String);
const NUMBER: Style = Style::role(Role::Number);
const KEYWORD: Style = Style::role(Role::Keyword);

struct Language {
    names: &'static [&'static str],
    line_comment: &'static [&'static str],
    block_comment: Option<(&'static str, &'static str)>,
    quotes: &'static [char],
    keywords: &'static [&'static str],
}

const C_LIKE: Language = Language {
    names: &[
        "c",
        "h",
        "cpp",
        "c++",
        "cc",
        "java",
        "kotlin",
        "kt",
        "go",
        "js",
        "javascript",
        "jsx",
        "ts",
        "typescript",
        "tsx",
        "swift",
        "csharp",
        "cs",
        "php",
        "scala",
        "dart",
        "zig",
    ],
    line_comment: &["//"],
    block_comment: Some(("/*", "*/")),
    quotes: &['"', '\'', '`'],
    keywords: &[
        "abstract",
        "async",
        "await",
        "bool",
        "boolean",
        "break",
        "case",
        "catch",
        "char",
        "class",
        "const",
        "continue",
        "default",
        "defer",
        "delete",
        "do",
        "double",
        "else",
        "enum",
        "export",
        "extends",
        "false",
        "final",
        "finally",
        "float",
        "for",
        "from",
        "func",
        "fun",
        "function",
        "go",
        "if",
        "implements",
        "import",
        "in",
        "int",
        "interface",
        "let",
        "long",
        "map",
        "new",
        "nil",
        "null",
        "of",
        "package",
        "private",
        "protected",
        "public",
        "range",
        "return",
        "select",
        "static",
        "string",
        "struct",
        "super",
        "switch",
        "this",
        "throw",
        "true",
        "try",
        "type",
        "typeof",
        "undefined",
        "unsigned",
        "using",
        "val",
        "var",
        "void",
        "while",
        "yield",
    ],
};

const RUST: Language = Language {
    names: &["rust", "rs"],
    line_comment: &["//"],
    block_comment: Some(("/*", "*/")),
    quotes: &['"'],
    keywords: &[
        "as", "async", "await", "box", "break", "const", "continue", "crate", "dyn", "else",
        "enum", "extern", "false", "fn", "for", "if", "impl", "in", "let", "loop", "match", "mod",
        "move", "mut", "pub", "ref", "return", "self", "Self", "static", "struct", "super",
        "trait", "true", "type", "unsafe", "use", "where", "while",
    ],
};

const HASH: Language = Language {
    names: &[
        "python",
        "py",
        "ruby",
        "rb",
        "sh",
        "bash",
        "shell",
        "zsh",
        "fish",
        "console",
        "perl",
        "pl",
        "nix",
        "toml",
        "yaml",
        "yml",
        "make",
        "makefile",
        "dockerfile",
        "r",
        "elixir",
        "ini",
        "conf",
    ],
    line_comment: &["#"],
    block_comment: None,
    quotes: &['"', '\''],
    keywords: &[
        "and", "as", "assert", "async", "await", "begin", "break", "case", "class", "continue",
        "def", "del", "do", "done", "elif", "else", "elsif", "end", "esac", "except", "export",
        "false", "False", "fi", "finally", "for", "from", "function", "global", "if", "import",
        "in", "inherit", "is", "lambda", "let", "local", "module", "my", "nil", "None", "not",
        "null", "or", "pass", "raise", "rec", "return", "self", "set", "sub", "then", "true",
        "True", "try", "unless", "until", "use", "when", "while", "with", "yield",
    ],
};

const JSON: Language = Language {
    names: &["json", "jsonc", "json5"],
    line_comment: &["//"],
    block_comment: Some(("/*", "*/")),
    quotes: &['"'],
    keywords: &["true", "false", "null"],
};

const SQL: Language = Language {
    names: &["sql", "lua", "haskell", "hs"],
    line_comment: &["--"],
    block_comment: None,
    quotes: &['"', '\''],
    keywords: &[
        "and", "as", "by", "case", "create", "data", "delete", "do", "drop", "else", "end", "from",
        "function", "group", "if", "import", "in", "index", "insert", "into", "join", "let",
        "limit", "local", "module", "nil", "not", "null", "on", "or", "order", "return", "select",
        "set", "table", "then", "type", "update", "values", "where", "with", "SELECT", "FROM",
        "WHERE", "INSERT", "INTO", "UPDATE", "DELETE", "CREATE", "TABLE", "AND", "OR", "NOT",
        "NULL", "JOIN", "ON", "ORDER", "GROUP", "BY", "LIMIT", "SET", "VALUES", "AS",
    ],
};

/// What colours the rows of one block of code.
#[derive(Clone, Copy, Debug, Default)]
pub struct Highlighter {
    language: Option<usize>,
    in_comment: bool,
}

const LANGUAGES: [&Language; 5] = [&C_LIKE, &RUST, &HASH, &JSON, &SQL];

impl Highlighter {
    /// Returns one for the language that a block names (`rust`, `py`, …); unknown ones stay plain.
    pub fn new(name: &str) -> Self {
        let name = name.split([' ', ',', '{']).next().unwrap_or_default().to_lowercase();
        let language = LANGUAGES.iter().position(|l| l.names.contains(&name.as_str()));
        Self { language, in_comment: false }
    }

    /// Colours the next row; it holds no line break.
    pub fn row(&mut self, text: &str) -> Line {
        let mut line = Line::default();
        let Some(language) = self.language.and_then(|index| LANGUAGES.get(index)) else {
            line.push(text, Style::PLAIN);
            return line;
        };
        let mut rest = text;
        while let Some(c) = rest.chars().next() {
            if self.in_comment {
                let end = language.block_comment.map_or("", |(_, end)| end);
                let (length, ends) =
                    rest.find(end).map_or((rest.len(), false), |at| (at + end.len(), true));
                self.in_comment = !ends;
                rest = take(&mut line, rest, length, COMMENT);
            } else if language.line_comment.iter().any(|mark| rest.starts_with(mark)) {
                rest = take(&mut line, rest, rest.len(), COMMENT);
            } else if language.block_comment.is_some_and(|(begin, _)| rest.starts_with(begin)) {
                let begin = language.block_comment.map_or(0, |(begin, _)| begin.len());
                self.in_comment = true;
                rest = take(&mut line, rest, begin, COMMENT);
            } else if language.quotes.contains(&c) {
                rest = take(&mut line, rest, string(rest, c), STRING);
            } else if c.is_ascii_digit() {
                let length = rest
                    .find(|c: char| !(c.is_ascii_alphanumeric() || c == '.' || c == '_'))
                    .unwrap_or(rest.len());
                rest = take(&mut line, rest, length, NUMBER);
            } else if c.is_alphabetic() || c == '_' {
                let length =
                    rest.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(rest.len());
                let word = rest.get(..length).unwrap_or_default();
                let style = if language.keywords.contains(&word) { KEYWORD } else { Style::PLAIN };
                rest = take(&mut line, rest, length, style);
            } else {
                rest = take(&mut line, rest, c.len_utf8(), Style::PLAIN);
            }
        }
        line
    }
}

fn take<'a>(line: &mut Line, text: &'a str, length: usize, style: Style) -> &'a str {
    let (taken, rest) = text.split_at_checked(length).unwrap_or((text, ""));
    line.push(taken, style);
    rest
}

/// Returns the length of the string at the start of a text, which ends with the row at the latest.
fn string(text: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            c if c == quote => return at + c.len_utf8(),
            _ => {}
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(language: &str, rows: &[&str]) -> Vec<Vec<(String, Style)>> {
        let mut highlighter = Highlighter::new(language);
        rows.iter()
            .map(|row| highlighter.row(row).spans.into_iter().map(|s| (s.text, s.style)).collect())
            .collect()
    }

    #[test]
    fn words_have_their_colours_and_nothing_is_lost() {
        let rows = parts("rust", &["fn a() { \"s\\\"x\" /* in", "side */ 0x1f // end"]);
        assert_eq!(rows[0][0], ("fn".to_owned(), KEYWORD));
        assert!(rows[0].contains(&("\"s\\\"x\"".to_owned(), STRING)));
        assert_eq!(rows[0].last().unwrap(), &("/* in".to_owned(), COMMENT));
        assert_eq!(rows[1][0], ("side */".to_owned(), COMMENT));
        assert!(rows[1].contains(&("0x1f".to_owned(), NUMBER)));
        assert_eq!(rows[1].last().unwrap(), &("// end".to_owned(), COMMENT));
        assert_eq!(parts("klingon", &["fn x"]), [[("fn x".to_owned(), Style::PLAIN)]]);
    }

    proptest::proptest! {
        #[test]
        fn the_text_stays_what_it_is(
            text in "[a-z\"'/*#\\\\ 0-9漢é_.-]{0,60}",
            language in proptest::sample::select(vec!["rust", "py", "js", "json", "sql", ""]),
        ) {
            proptest::prop_assert_eq!(Highlighter::new(language).row(&text).text(), text);
        }
    }
}
