//! Keys, whatever bytes a terminal sends for them, and how settings and people write them.

use std::{fmt, str::FromStr};

use crate::authority::{distance, shown};

/// What a person pressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Code {
    /// A character, without what the modifiers made of it.
    Char(char),
    /// Return.
    Enter,
    /// Escape.
    Esc,
    /// Tabulator.
    Tab,
    /// Backspace.
    Backspace,
    /// Delete forward.
    Delete,
    /// Cursor up.
    Up,
    /// Cursor down.
    Down,
    /// Cursor left.
    Left,
    /// Cursor right.
    Right,
    /// To the start.
    Home,
    /// To the end.
    End,
    /// A page up.
    PageUp,
    /// A page down.
    PageDown,
}

/// The names of keys that type nothing, and of the space bar.
const NAMES: [(&str, Code); 14] = [
    ("backspace", Code::Backspace),
    ("delete", Code::Delete),
    ("down", Code::Down),
    ("end", Code::End),
    ("enter", Code::Enter),
    ("esc", Code::Esc),
    ("home", Code::Home),
    ("left", Code::Left),
    ("page-down", Code::PageDown),
    ("page-up", Code::PageUp),
    ("right", Code::Right),
    ("space", Code::Char(' ')),
    ("tab", Code::Tab),
    ("up", Code::Up),
];

/// A key with its modifiers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    /// Which.
    pub code: Code,
    /// Control was held.
    pub ctrl: bool,
    /// Alt was held, or Escape came right before.
    pub alt: bool,
    /// Shift was held; for characters the character says so itself.
    pub shift: bool,
}

/// A key that nothing can be bound to.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// A name that no key has.
    #[error("unknown key `{text}`{}; write it like `ctrl-x`, `alt-enter` or `page-up`", hint(*.nearest))]
    Unknown {
        /// What was written.
        text: String,
        /// The nearest name of a key.
        nearest: Option<&'static str>,
    },
    /// A key that types a character.
    #[error(
        "`{text}` types a character, so nothing else can be bound to it; hold ctrl or alt with it"
    )]
    Types {
        /// What was written.
        text: String,
    },
    /// A key that always does the same, so that the interface can be left whatever is bound.
    #[error("`{text}` always {does}, so nothing else can be bound to it; take another key")]
    Fixed {
        /// What was written.
        text: String,
        /// What it does.
        does: &'static str,
    },
    /// A key for which terminals send what they send for another.
    #[error("terminals send the same for `{text}` as for `{same}`; take another key")]
    Same {
        /// What was written.
        text: String,
        /// The other key.
        same: &'static str,
    },
    /// A key that terminals do not send.
    #[error("terminals do not tell `{text}` from another key; take a letter with ctrl or alt")]
    Unsent {
        /// What was written.
        text: String,
    },
}

fn hint(nearest: Option<&str>) -> String {
    nearest.map_or_else(String::new, |name| format!(", did you mean `{name}`?"))
}

impl Key {
    /// Returns a key without modifiers.
    pub const fn plain(code: Code) -> Self {
        Self { code, ctrl: false, alt: false, shift: false }
    }

    /// Returns a character with control held.
    pub const fn ctrl(c: char) -> Self {
        Self { ctrl: true, ..Self::plain(Code::Char(c)) }
    }

    /// Returns a character with alt held.
    pub const fn alt(c: char) -> Self {
        Self::plain(Code::Char(c)).with_alt()
    }

    /// Returns this key with alt held.
    #[must_use]
    pub const fn with_alt(self) -> Self {
        Self { alt: true, ..self }
    }

    /// Returns this key with shift held.
    #[must_use]
    pub const fn with_shift(self) -> Self {
        Self { shift: true, ..self }
    }

    /// Returns this key with control held.
    #[must_use]
    pub const fn with_ctrl(self) -> Self {
        Self { ctrl: true, ..self }
    }

    /// Returns the one key that stands for all for which a terminal sends the same: `Ctrl-/` and
    /// `Ctrl-7` are `Ctrl-_` (the byte 0x1f), and with ctrl there is neither case nor shift.
    #[must_use]
    pub fn normal(self) -> Self {
        let Code::Char(c) = self.code else { return self };
        if !self.ctrl {
            return if self.alt { Self { shift: false, ..self } } else { self };
        }
        let c = match c.to_ascii_lowercase() {
            '@' | '2' => ' ',
            '4' => '\\',
            '5' => ']',
            '6' => '^',
            '/' | '7' => '_',
            other => other,
        };
        Self { code: Code::Char(c), shift: false, ..self }
    }

    /// Says what this key always does, if it is one of those that nothing can be bound to: the
    /// interface can be used and left whatever is bound.
    pub fn fixed(self) -> Option<&'static str> {
        let bare = !self.ctrl && !self.alt && !self.shift;
        match self.code {
            Code::Enter if bare => Some("sends"),
            Code::Esc => Some("interrupts"),
            Code::Backspace if bare => Some("deletes"),
            Code::Char('c') if self.ctrl && !self.alt => Some("interrupts and leaves"),
            _ => None,
        }
    }

    fn check(self, text: &str) -> Result<Self, KeyError> {
        let text = shown(text);
        if let Some(does) = self.fixed() {
            return Err(KeyError::Fixed { text, does });
        }
        let Code::Char(c) = self.code else { return Ok(self.normal()) };
        if !self.ctrl && !self.alt {
            return Err(KeyError::Types { text });
        }
        // ECMA-48: control takes away the upper bits, and these are keys of their own.
        let same = match c {
            'm' => Some("enter"),
            'i' => Some("tab"),
            'h' => Some("backspace"),
            '[' => Some("esc"),
            _ => None,
        };
        if let (true, Some(same)) = (self.ctrl, same) {
            return Err(KeyError::Same { text, same });
        }
        let is_sent = if self.ctrl {
            c.is_ascii_lowercase() || [' ', '\\', ']', '^', '_', '/', '@'].contains(&c)
        } else {
            // Escape and `[`, `]` or the like begin sequences.
            c.is_ascii_lowercase() || c.is_ascii_digit() || ".,/-=;".contains(c)
        };
        if self.shift || !is_sent {
            return Err(KeyError::Unsent { text });
        }
        Ok(self.normal())
    }
}

/// Reads a key as settings write it: `ctrl-x`, `alt-enter`, `page-up`. Case does not matter, and `+`
/// joins as `-` does.
impl FromStr for Key {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<Self, KeyError> {
        let lower = text.trim().to_lowercase();
        let mut key = Self::plain(Code::Esc);
        let mut rest = lower.as_str();
        loop {
            let mut found = false;
            for (name, held) in
                [("ctrl", &mut key.ctrl), ("alt", &mut key.alt), ("shift", &mut key.shift)]
            {
                let after = rest.strip_prefix(name).and_then(|rest| rest.strip_prefix(['-', '+']));
                if let Some(after) = after.filter(|after| !after.is_empty() && !*held) {
                    (*held, rest, found) = (true, after, true);
                }
            }
            if !found {
                break;
            }
        }
        let mut chars = rest.chars();
        key.code = match (NAMES.iter().find(|(name, _)| *name == rest), chars.next(), chars.next())
        {
            (Some((_, code)), ..) => *code,
            (None, Some(c), None) if !c.is_control() && !c.is_whitespace() => Code::Char(c),
            _ => {
                let nearest = NAMES
                    .iter()
                    .filter_map(|(name, _)| Some((distance(rest, name, 2)?, *name)))
                    .min()
                    .map(|(_, name)| name);
                return Err(KeyError::Unknown { text: shown(text), nearest });
            }
        };
        key.check(text)
    }
}

/// As settings write it.
impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (held, name) in [(self.ctrl, "ctrl-"), (self.alt, "alt-"), (self.shift, "shift-")] {
            if held {
                f.write_str(name)?;
            }
        }
        match (NAMES.iter().find(|(_, code)| *code == self.code), self.code) {
            (Some((name, _)), _) => f.write_str(name),
            (None, Code::Char(c)) => write!(f, "{c}"),
            (None, code) => write!(f, "{code:?}"),
        }
    }
}

impl Key {
    /// Returns the key as people read it: `Ctrl-X`, `Alt-Enter`, `Page-Up`.
    pub fn label(self) -> String {
        let mut label = String::new();
        let mut start = true;
        for c in self.to_string().chars() {
            if start {
                label.extend(c.to_uppercase());
            } else {
                label.push(c);
            }
            start = c == '-';
        }
        label
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_read_as_they_are_written() {
        for (text, key, label) in [
            ("ctrl-x", Key::ctrl('x'), "Ctrl-X"),
            ("Ctrl+X", Key::ctrl('x'), "Ctrl-X"),
            ("alt-enter", Key::plain(Code::Enter).with_alt(), "Alt-Enter"),
            ("alt--", Key::alt('-'), "Alt--"),
            ("page-up", Key::plain(Code::PageUp), "Page-Up"),
            ("ctrl-space", Key::ctrl(' '), "Ctrl-Space"),
            ("ctrl-/", Key::ctrl('_'), "Ctrl-_"),
            ("shift-alt-up", Key::plain(Code::Up).with_alt().with_shift(), "Alt-Shift-Up"),
            ("tab", Key::plain(Code::Tab), "Tab"),
            ("ctrl-alt-x", Key::ctrl('x').with_alt(), "Ctrl-Alt-X"),
        ] {
            assert_eq!(text.parse::<Key>().as_ref(), Ok(&key), "{text}");
            assert_eq!(key.label(), label);
            assert_eq!(key.to_string().parse::<Key>(), Ok(key), "{key}");
        }
    }

    #[test]
    fn what_cannot_be_bound_is_refused_with_a_sentence() {
        for (text, part) in [
            ("enter", "`enter` always sends"),
            ("esc", "always interrupts"),
            ("alt-esc", "always interrupts"),
            ("ctrl-c", "always interrupts and leaves"),
            ("Ctrl-C", "always interrupts and leaves"),
            ("backspace", "always deletes"),
            ("y", "`y` types a character"),
            ("space", "types a character"),
            ("shift-a", "types a character"),
            ("ctrl-m", "the same for `ctrl-m` as for `enter`"),
            ("ctrl-i", "as for `tab`"),
            ("ctrl-h", "as for `backspace`"),
            ("ctrl-[", "as for `esc`"),
            ("ctrl-1", "do not tell `ctrl-1`"),
            ("alt-[", "do not tell `alt-[`"),
            ("alt-shift-x", "do not tell `alt-shift-x`"),
            ("ctrl-é", "do not tell `ctrl-é`"),
            ("pageup", "did you mean `page-up`?"),
            ("entr", "did you mean `enter`?"),
            ("f13", "unknown key `f13`; write it like"),
            ("", "unknown key ``"),
            ("ctrl-", "unknown key `ctrl-`"),
            ("ctrl-ctrl-x", "unknown key `ctrl-ctrl-x`"),
        ] {
            let error = text.parse::<Key>().unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
