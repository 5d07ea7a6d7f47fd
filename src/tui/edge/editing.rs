//! How the terminal is handed to an editor and taken back. While the editor has it nothing is read
//! from it or drawn; the agent goes on, and what it says waits as rows do for a slow terminal.
//!
//! Who starts the editor, and with which file, is for the root to know; see [`Root::edit`].

use std::os::fd::OwnedFd;

use rustix::{
    process::{Signal, kill_current_process_group},
    termios::{OptionalActions, Termios, tcgetattr, tcsetattr},
};
use tokio::{sync::mpsc::UnboundedReceiver, time::timeout};

use super::{
    super::guard::{Guard, write},
    Edge, LAST_FRAME, Root, has_shell,
};

/// What became of an editor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EditorIs {
    /// It was stopped (Ctrl-Z).
    Stopped,
    /// It has ended, and its file is gone.
    Ended {
        /// The text, none when there is none to take, or a sentence.
        text: Result<Option<String>, String>,
        /// A signal ended it, so it cannot have put the terminal back.
        killed: bool,
    },
}

/// An editor that runs. Dropping it ends the editor and removes its file.
pub struct Editing {
    /// What becomes of it; the last is [`EditorIs::Ended`].
    pub changes: UnboundedReceiver<EditorIs>,
    /// Lets it go on after it was stopped.
    pub go_on: Box<dyn Fn() + Send>,
    /// What ends it when it is dropped.
    pub end: Box<dyn Send>,
}

impl std::fmt::Debug for Editing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Editing")
    }
}

/// The editor that has the terminal, and the modes that it was given.
pub(super) struct Lent {
    editing: Editing,
    modes: Option<Termios>,
}

impl Lent {
    /// Remembers the modes that the terminal has while nobody of kli's has changed them.
    pub(super) fn modes(terminal: &OwnedFd) -> Option<Termios> {
        tcgetattr(terminal).ok()
    }

    pub(super) fn new(editing: Editing, modes: Option<Termios>) -> Self {
        Self { editing, modes }
    }

    /// Waits until something becomes of it.
    pub(super) async fn changed(lent: &mut Option<Self>) -> EditorIs {
        let Some(lent) = lent else { return std::future::pending().await };
        lent.editing.changes.recv().await.unwrap_or(EditorIs::Ended {
            text: Err("what became of the editor is not known; nothing has changed".to_owned()),
            killed: true,
        })
    }

    /// Stops kli as well, as the job that both are; where nobody could let it go on, the editor does.
    pub(super) fn stop(&self, has_shell: bool) {
        let stopped = has_shell && kill_current_process_group(Signal::STOP).is_ok();
        // Here somebody has let both go on.
        if !stopped {
            (self.editing.go_on)();
        }
    }

    /// Puts the modes back that an editor may have left.
    pub(super) fn take_back(self, terminal: &OwnedFd, killed: bool) {
        let Self { editing, modes } = self;
        drop(editing);
        if killed {
            // It cannot have left the alternate screen (xterm's private mode 1049).
            drop(write(terminal, b"\x1b[?1049l\x1b[0m", Some(LAST_FRAME)));
        }
        if let Some(modes) = &modes {
            let _gone = tcsetattr(terminal, OptionalActions::Now, modes);
        }
    }
}

impl Edge {
    /// Hands the terminal to the editor.
    pub(super) async fn lend(&mut self, text: &str, root: &mut dyn Root) {
        if self.lent.is_some() {
            return;
        }
        let cleared = async {
            self.writer.idle().await;
            self.writer.write(self.screen.leave());
            self.writer.idle().await;
        };
        drop(timeout(LAST_FRAME, cleared).await);
        Guard::leave();
        let modes = Lent::modes(&self.terminal);
        let started = match self.terminal.try_clone() {
            Ok(terminal) => root.edit(text, terminal),
            Err(error) => Err(format!("cannot hand the terminal over: {error}")),
        };
        match started {
            Ok(editing) => self.lent = Some(Lent::new(editing, modes)),
            Err(sentence) => {
                self.state.edited(Err(sentence));
                // A terminal that is gone is noticed when it is read.
                drop(self.guard.enter_again());
                self.resized();
            }
        }
    }

    /// Follows what became of the editor; says whether the terminal is there still.
    pub(super) fn editor_is(&mut self, editor: EditorIs) -> bool {
        let EditorIs::Ended { text, killed } = editor else {
            if let Some(lent) = &self.lent {
                lent.stop(has_shell());
            }
            return true;
        };
        if let Some(lent) = self.lent.take() {
            lent.take_back(&self.terminal, killed);
        }
        let is_there = self.guard.enter_again().is_ok();
        self.state.edited(text);
        self.resized();
        is_there
    }
}
