//! Sessions: what was said and done, one event a line, kept before it takes effect.
//!
//! - [`Store`]: where the sessions of a workspace are; finds, creates and opens them.
//! - [`Log`]: one session, open to be appended to. [`Entry`]: what can be appended.
//! - [`checkpoint`]: what stood in the place of files before kli changed them.
//! - [`History`]: what was said in a workspace, for the next time.
//! - [`pair()`]: gives every call its result, so that what was interrupted can go on.
//!
//! Files are untrusted data: nothing in them names a command, an address or a path to write to, and
//! whatever is broken in them is left out, set aside and said, never a crash. `docs/sessions.md`
//! has the format. This module must not know settings, models or tools.

use std::path::PathBuf;

use crate::host::HostError;

pub mod checkpoint;
mod entry;
mod find;
mod history;
mod log;
mod notice;
mod overview;
mod pair;
mod prompts;
mod scan;
mod store;
mod tell;

pub use entry::{Compaction, Entry, VERSION};
pub use find::{Found, Listing};
pub use history::History;
pub use log::Log;
pub use notice::Notice;
pub use overview::Overview;
pub use pair::{NO_RESULT, pair};
pub use prompts::Prompt;
pub use store::{Forked, Opened, Store, take_back};
pub use tell::{Damage, Told};

/// How the file of every session begins.
pub const BEGINNING: &[u8] = br#"{"type":"session","#;

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
    #[error("no session `{prefix}` in this workspace{}", among(.known, *.near))]
    Unknown {
        /// What was asked for.
        prefix: String,
        /// Those that are nearly called so, or else the latest; at most five.
        known: Vec<String>,
        /// Whether they are nearly called so.
        near: bool,
    },
    /// More than one session has an identifier that starts like this.
    #[error("more than one session starts with `{prefix}`: {}; give more of the identifier", list(.ids))]
    Ambiguous {
        /// What was asked for.
        prefix: String,
        /// Those that match.
        ids: Vec<String>,
    },
    /// The first prompts of several sessions hold this text.
    #[error("more than one session begins with a prompt that holds `{words}`: {}; give an identifier", prompts(.candidates))]
    AmbiguousWords {
        /// What was asked for.
        words: String,
        /// Those that match, at most five: identifier and prompt.
        candidates: Vec<(String, String)>,
    },
    /// The session was written by a version of kli that is newer than this one.
    #[error("session `{}` has format {version}, this kli reads up to {VERSION}; use a newer kli", .path.display())]
    Version {
        /// The file.
        path: PathBuf,
        /// Its format.
        version: u64,
    },
    /// An entry that would not be read back.
    #[error("cannot keep the session: the entry has {length} bytes, and `{}` takes up to {most} on a line", .path.display())]
    TooLong {
        /// The file.
        path: PathBuf,
        /// The length in bytes.
        length: usize,
        /// The bound in bytes.
        most: usize,
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

fn prompts(candidates: &[(String, String)]) -> String {
    let one = |(id, prompt): &(String, String)| format!("`{id}` ({prompt})");
    candidates.iter().map(one).collect::<Vec<_>>().join(", ")
}

fn among(ids: &[String], near: bool) -> String {
    match ids {
        [] => "; it has none yet".to_owned(),
        _ if near => format!("; did you mean {}?", list(ids)),
        _ => format!("; the latest are {}", list(ids)),
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
