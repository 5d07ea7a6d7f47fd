//! What came from the terminal, as the interface knows it, whatever bytes it was.

pub use crate::display::{Code, Key};

/// What came from the terminal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Typed {
    /// A key.
    Key(Key),
    /// A text that was pasted, its line ends normalised to LF.
    Paste(String),
    /// The terminal window got the focus (true) or lost it.
    Focus(bool),
    /// Bytes that are no character in UTF-8.
    Strange,
}
