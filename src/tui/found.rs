//! What whoever started the interface finds for it besides the text of an answer.

use super::{complete::Files, picker::Choices};

/// What was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// Something to choose from: the answer to a command.
    Choices(Choices),
    /// The files that can be mentioned.
    Files(Files),
    /// What was said in earlier sessions of this workspace, the oldest first.
    History(Vec<String>),
    /// How the session is called.
    Name(Option<String>),
}
