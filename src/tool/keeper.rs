//! Who keeps what the tools change, as the composition root knows it: the tools tell it of every change
//! through [`Keep`], the loop when a prompt begins, and it says what people and the model should know.

use std::sync::Arc;

use crate::host::files::Keep;

/// Keeps the former contents of files over the prompts of a conversation.
pub trait Keeper: Keep {
    /// A prompt begins: changes from here on belong to it.
    fn begin(&self);

    /// Takes what people should know: that something cannot be kept. Each thing once.
    fn notices(&self) -> Vec<String>;

    /// Takes what the model should know with the next prompt: which files were put back.
    fn news(&self) -> Option<String>;
}

/// A keeper as one agent sees it.
#[derive(Clone, Debug)]
pub struct Kept {
    keeper: Arc<dyn Keeper>,
    /// Whether it is this agent's own; a sub-agent has its parent's.
    is_own: bool,
}

impl Kept {
    /// Returns an agent's own.
    pub fn own(keeper: Arc<dyn Keeper>) -> Self {
        Self { keeper, is_own: true }
    }

    /// Returns the same for a sub-agent, whose changes belong to its parent's prompt.
    pub(super) fn shared(&self) -> Self {
        Self { keeper: Arc::clone(&self.keeper), is_own: false }
    }

    pub(super) fn keep(&self) -> &dyn Keep {
        &*self.keeper
    }

    pub(super) fn keeper(&self) -> Option<&dyn Keeper> {
        self.is_own.then_some(&*self.keeper)
    }
}
