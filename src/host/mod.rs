//! The only ambient authority of the agent: files, processes, clock and environment.
//!
//! Every call that changes something takes a [`Grant`](crate::authority::Grant), which only
//! `authority` can make, and refuses a path that the grant does not cover. It knows no tools, no
//! models and no settings file.

use std::{
    io,
    path::{Path, PathBuf},
};

pub mod beneath;
#[cfg(feature = "lisp")]
pub mod bounds;
pub mod confinement;
pub mod environment;
pub mod examine;
pub mod files;
pub mod process;
pub mod secrets;
pub mod spill;
pub mod state;
pub mod walk;

/// A handle on the host.
#[derive(Clone, Debug)]
pub struct Host {
    marker: PathBuf,
}

impl Default for Host {
    fn default() -> Self {
        Self { marker: PathBuf::from(crate::sandbox::MARKER) }
    }
}

impl Host {
    /// Returns a handle that looks for the jail's marker elsewhere, for tests.
    #[must_use]
    pub fn with_marker(marker: impl Into<PathBuf>) -> Self {
        Self { marker: marker.into() }
    }

    /// Says whether this process is inside a jail that `kli-sandbox` made.
    pub fn is_jailed(&self) -> bool {
        rustix::fs::stat(&self.marker).is_ok()
    }
}

/// Why the host did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// The grant does not cover the path. A programming error: nothing was touched.
    #[error("the grant does not cover `{}`", path.display())]
    NotGranted {
        /// What was asked for.
        path: PathBuf,
    },
    /// The system refused.
    #[error("cannot {action} `{}`", path.display())]
    Io {
        /// What was tried, as a verb.
        action: &'static str,
        /// What it was tried on.
        path: PathBuf,
        /// The system's answer.
        #[source]
        source: io::Error,
    },
    /// It is there, but it is something else.
    #[error("`{}` is {kind}, not {wanted}", path.display())]
    Kind {
        /// The path.
        path: PathBuf,
        /// What it is, with its article.
        kind: &'static str,
        /// What it should be, with its article.
        wanted: &'static str,
    },
    /// Something else replaced it between the look and the act; nothing was written.
    #[error("`{}` was changed by something else meanwhile; nothing was written", path.display())]
    Changed {
        /// The path.
        path: PathBuf,
    },
    /// Another program holds a lock (flock(2)) on it, and held it for as long as was waited.
    #[error(
        "`{}` is locked by another program; nothing was written; try again when that one has ended",
        path.display()
    )]
    Locked {
        /// The path.
        path: PathBuf,
    },
    /// Nobody waits for it any more.
    #[error("the work on `{}` was interrupted; nothing was written", path.display())]
    Interrupted {
        /// The path.
        path: PathBuf,
    },
    /// A spelled path that cannot name a file.
    #[error("`{spelled}` {reason}")]
    Path {
        /// As it was spelled.
        spelled: String,
        /// What is wrong with it, and the repair.
        reason: &'static str,
    },
}

impl HostError {
    pub(crate) fn io(action: &'static str, path: &Path, source: impl Into<io::Error>) -> Self {
        Self::Io { action, path: path.to_owned(), source: source.into() }
    }

    /// Returns the system's error number, when the system refused.
    pub fn errno(&self) -> Option<i32> {
        match self {
            Self::Io { source, .. } => source.raw_os_error(),
            _ => None,
        }
    }

    /// Returns the error and its cause in one line.
    pub fn sentence(&self) -> String {
        match self {
            Self::Io { source, .. } => format!("{self}: {}", cause(source)),
            other => other.to_string(),
        }
    }
}

/// Returns the system's words without their number, in lower case.
pub(crate) fn cause(error: &io::Error) -> String {
    let text = error.to_string();
    let text = text.split(" (os error").next().unwrap_or_default();
    let mut letters = text.chars();
    letters
        .next()
        .map_or_else(String::new, |first| format!("{}{}", first.to_lowercase(), letters.as_str()))
}

/// Makes the memory and the `/proc` entry of this process unreadable to other processes of the
/// user, so that a tool's child finds no key there. Hygiene, not a wall: uid 0 and a debugger that
/// was attached before see through it.
pub fn harden() {
    // Refused only for an unknown value; the run is no less right without it.
    let _set =
        rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable);
}
