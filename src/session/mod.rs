//! Sessions: what was said and done, one event a line, kept before it takes effect.
//!
//! - [`Store`]: where the sessions of a workspace are; finds, creates and opens them.
//! - [`Log`]: one session, open to be appended to. [`Entry`]: what can be appended.
//! - [`pair()`]: gives every call its result, so that what was interrupted can go on.
//!
//! Files are untrusted data: nothing in them names a command, an address or a path to write to, and
//! whatever is broken in them is left out, set aside and said, never a crash. `docs/sessions.md`
//! has the format. This module must not know settings, models or tools.

use std::path::PathBuf;

use crate::host::HostError;

mod entry;
mod log;
mod notice;
mod pair;
mod scan;
mod store;

pub use entry::{Entry, VERSION};
pub use log::Log;
pub use notice::Notice;
pub use pair::{NO_RESULT, pair};
pub use store::{Found, Opened, Store};

/// Why a session cannot be found, read or kept.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// What is said cannot be kept: no permission, no space, a read-only file system. The file has
    /// whole lines only when it is opened the next time.
    #[error("cannot keep the session: {}", .source.sentence())]
    Write {
        /// What the host said.
        source: HostError,
    },
    /// A session or the directory of sessions cannot be read.
    #[error("cannot read the session: {}", .source.sentence())]
    Read {
        /// What the host said.
        source: HostError,
    },
    /// No session of this workspace has such an identifier.
    #[error("no session `{prefix}` in this workspace{}", among(.known))]
    Unknown {
        /// What was asked for.
        prefix: String,
        /// The latest ones that are there, at most five.
        known: Vec<String>,
    },
    /// More than one session has an identifier that starts like this.
    #[error("more than one session starts with `{prefix}`: {}; give more of the identifier", list(.ids))]
    Ambiguous {
        /// What was asked for.
        prefix: String,
        /// Those that match.
        ids: Vec<String>,
    },
    /// The session was written by a version of kli that is newer than this one.
    #[error("session `{}` has format {version}, this kli reads up to {VERSION}; use a newer kli", .path.display())]
    Version {
        /// The file.
        path: PathBuf,
        /// Its format.
        version: u64,
    },
    /// A line is longer than any that kli writes.
    #[error("session `{}` has a line of more than {most} bytes; move the file away", .path.display())]
    TooLong {
        /// The file.
        path: PathBuf,
        /// The bound in bytes.
        most: u64,
    },
    /// An entry that JSON cannot carry.
    #[error("cannot write the entry as JSON")]
    Encode {
        /// What the encoder said.
        #[source]
        source: serde_json::Error,
    },
}

fn list(ids: &[String]) -> String {
    ids.iter().map(|id| format!("`{id}`")).collect::<Vec<_>>().join(", ")
}

fn among(ids: &[String]) -> String {
    if ids.is_empty() {
        "; it has none yet".to_owned()
    } else {
        format!("; the latest are {}", list(ids))
    }
}

impl SessionError {
    fn write(source: HostError) -> Self {
        Self::Write { source }
    }

    fn read(source: HostError) -> Self {
        Self::Read { source }
    }
}

#[cfg(test)]
mod tests;
