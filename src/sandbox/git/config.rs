//! Reads a git configuration file: sections, subsections, quoted and continued values
//! (git-config(1), "Syntax"). It follows no include and knows no key.

/// One variable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in super::super) struct Variable {
    /// `section.key` or `section.subsection.key`; section and key in lower case.
    pub(in super::super) name: Vec<u8>,
    /// The value; empty for a key without one.
    pub(in super::super) value: Vec<u8>,
}

/// The variables of `text`, in order. What git would refuse to read ends the list.
pub(in super::super) fn variables(text: &[u8]) -> Vec<Variable> {
    parse(text).0
}

/// The same, and whether git would read all of it.
pub(in super::super) fn parse(text: &[u8]) -> (Vec<Variable>, bool) {
    let mut reader = Reader { rest: text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text) };
    let mut section: Option<Vec<u8>> = None;
    let mut found = Vec::new();
    while let Some(byte) = reader.next() {
        match byte {
            b'#' | b';' => reader.line_end(),
            b'[' => match reader.section() {
                Some(name) => section = Some(name),
                None => return (found, false),
            },
            byte if byte.is_ascii_whitespace() => {}
            byte if byte.is_ascii_alphabetic() => {
                let Some((mut name, (key, value))) = section.clone().zip(reader.variable(byte))
                else {
                    return (found, false);
                };
                name.push(b'.');
                name.extend(key);
                found.push(Variable { name, value });
            }
            _ => return (found, false),
        }
    }
    (found, true)
}

/// The last value of `name`, as git takes it.
pub(in super::super) fn last<'a>(variables: &'a [Variable], name: &str) -> Option<&'a [u8]> {
    variables
        .iter()
        .rev()
        .find(|variable| variable.name == name.as_bytes())
        .map(|variable| variable.value.as_slice())
}

struct Reader<'a> {
    rest: &'a [u8],
}

impl Reader<'_> {
    /// The next byte; the end of a line is one byte however it is written.
    fn next(&mut self) -> Option<u8> {
        if let Some(rest) = self.rest.strip_prefix(b"\r\n") {
            self.rest = rest;
            return Some(b'\n');
        }
        let (first, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(*first)
    }

    fn line_end(&mut self) {
        while self.next().is_some_and(|byte| byte != b'\n') {}
    }

    /// What follows `[`.
    fn section(&mut self) -> Option<Vec<u8>> {
        let mut name = Vec::new();
        loop {
            match self.next()? {
                b']' => return Some(name),
                byte if byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'.' => {
                    name.push(byte.to_ascii_lowercase());
                }
                b' ' | b'\t' => break,
                _ => return None,
            }
        }
        loop {
            match self.next()? {
                b' ' | b'\t' => {}
                b'"' => break,
                _ => return None,
            }
        }
        name.push(b'.');
        loop {
            match self.next()? {
                b'"' => break,
                b'\n' => return None,
                b'\\' => name.push(self.next().filter(|byte| *byte != b'\n')?),
                byte => name.push(byte),
            }
        }
        (self.next()? == b']').then_some(name)
    }

    /// What follows the first letter of a key.
    fn variable(&mut self, first: u8) -> Option<(Vec<u8>, Vec<u8>)> {
        let mut key = vec![first.to_ascii_lowercase()];
        loop {
            match self.next() {
                Some(byte) if byte.is_ascii_alphanumeric() || byte == b'-' => {
                    key.push(byte.to_ascii_lowercase());
                }
                Some(b' ' | b'\t') => {}
                Some(b'=') => return Some((key, self.value()?)),
                Some(b'\n') | None => return Some((key, Vec::new())),
                Some(_) => return None,
            }
        }
    }

    /// What follows `=`.
    fn value(&mut self) -> Option<Vec<u8>> {
        let mut value = Vec::new();
        // How much of it stays when blanks at the end are dropped.
        let mut kept = 0;
        let mut quoted = false;
        loop {
            let byte = match self.next() {
                Some(b'\n') | None if quoted => return None,
                Some(b'\n') | None => break,
                Some(b'"') => {
                    quoted = !quoted;
                    kept = value.len();
                    continue;
                }
                Some(b'#' | b';') if !quoted => {
                    self.line_end();
                    break;
                }
                Some(b'\\') => match self.next()? {
                    b'\n' => continue,
                    b't' => b'\t',
                    b'n' => b'\n',
                    b'b' => 8,
                    byte @ (b'\\' | b'"') => byte,
                    _ => return None,
                },
                Some(byte @ (b' ' | b'\t')) if !quoted => {
                    if !value.is_empty() {
                        value.push(byte);
                    }
                    continue;
                }
                Some(byte) => byte,
            };
            value.push(byte);
            kept = value.len();
        }
        value.truncate(kept);
        Some(value)
    }
}
