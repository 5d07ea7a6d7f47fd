//! Keys as the interface knows them, whatever bytes a terminal sends for them.

/// What a person pressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
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

/// A key with its modifiers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
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

impl Key {
    /// Returns a key without modifiers.
    pub const fn plain(code: Code) -> Self {
        Self { code, ctrl: false, alt: false, shift: false }
    }

    /// Returns a character with control held.
    pub const fn ctrl(c: char) -> Self {
        Self { ctrl: true, ..Self::plain(Code::Char(c)) }
    }

    /// Returns this key with alt held.
    #[must_use]
    pub const fn with_alt(self) -> Self {
        Self { alt: true, ..self }
    }
}

/// What came from the terminal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Typed {
    /// A key.
    Key(Key),
    /// A text that was pasted, its line ends normalised to LF.
    Paste(String),
    /// The terminal window got the focus (true) or lost it.
    Focus(bool),
}
