//! What a person is told about a session that was opened.

use std::{fmt, path::PathBuf};

/// Something about an opened session that a person should know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// Bytes that are no events were left out.
    Damaged {
        /// How many lines they are on.
        lines: u64,
        /// How many bytes.
        bytes: u64,
        /// Where they go before the next entry is appended; `None` when they stay, as a copy is made.
        aside: Option<PathBuf>,
        /// How many of them that file takes.
        room: u64,
    },
    /// Events of a known kind whose shape this version cannot read. They stay in the file.
    Unreadable {
        /// How many.
        entries: u64,
    },
    /// Calls without a result.
    Interrupted {
        /// How many.
        calls: usize,
    },
    /// Another process appends to the session, so this run goes on in a copy.
    InUse {
        /// The session that was opened.
        id: String,
        /// The copy.
        copy: String,
    },
    /// The session cannot be written, so this run goes on in a copy.
    ReadOnly {
        /// The session that was opened.
        id: String,
        /// The copy.
        copy: String,
        /// What the system said.
        why: String,
    },
    /// The session belongs to another directory, so this run goes on in a copy here.
    Elsewhere {
        /// The session that was opened.
        id: String,
        /// The copy.
        copy: String,
        /// The directory, as the file has it; empty when it says none.
        workspace: String,
    },
    /// The session cannot be written and no copy can be made: nothing of this run is kept.
    NotKept {
        /// The session that was opened.
        id: String,
        /// What the system said.
        why: String,
    },
    /// The file system knows no locks: nothing keeps another process from appending as well.
    NoLock {
        /// What the system said.
        why: String,
    },
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Damaged { lines, bytes: damaged, aside, room } => {
                let (bytes, lines) = (counted(*damaged, "damaged byte"), counted(*lines, "line"));
                write!(f, "{bytes} on {lines} of the session left out; ")?;
                match aside {
                    Some(aside) => {
                        if damaged > room {
                            write!(f, "the first {room} of them are ")?;
                        }
                        write!(f, "set aside in `{}` before the next entry", aside.display())
                    }
                    None => f.write_str("the copy is made without"),
                }
            }
            Self::Unreadable { entries: 1 } => {
                f.write_str("1 entry of the session has a shape that this kli cannot read; skipped")
            }
            Self::Unreadable { entries } => write!(
                f,
                "{entries} entries of the session have a shape that this kli cannot read; skipped"
            ),
            Self::Interrupted { calls } => write!(
                f,
                "{} without a recorded result; the model is told that it was interrupted",
                counted(*calls as u64, "call")
            ),
            Self::InUse { id, copy } => write!(
                f,
                "session `{id}` is in use by another process; this run goes on in a copy, `{copy}`"
            ),
            Self::ReadOnly { id, copy, why } => write!(
                f,
                "session `{id}` cannot be written ({why}); this run goes on in a copy, `{copy}`"
            ),
            Self::Elsewhere { id, copy, workspace } => write!(
                f,
                "session `{id}` is one of `{}`; this run goes on in a copy here, `{copy}`",
                workspace.escape_debug()
            ),
            Self::NotKept { id, why } => {
                write!(
                    f,
                    "session `{id}` cannot be written ({why}); what this run adds is not kept"
                )
            }
            Self::NoLock { why } => write!(
                f,
                "the session cannot be locked ({why}); do not open it in another kli at the same time"
            ),
        }
    }
}

fn counted(count: u64, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}
