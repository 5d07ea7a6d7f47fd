//! Bounds on processes, memory and file sizes (law 14): resource limits that the last stage takes on
//! in the jail's own user namespace, and a control group where one can be had.

use std::io;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde::{Deserialize, Serialize};

pub(super) mod group;

/// What can bound a jail on this machine. Looked at only when the specification has limits.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Means {
    /// Whether `RLIMIT_NPROC` binds this user: it does not bind the machine's user 0.
    pub tasks_by_limit: bool,
    /// Where control groups can be made.
    pub groups: Vec<group::Place>,
}

/// The resource limits of the inside, in processes and bytes. `None` = as the caller has it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Resources {
    /// Processes and threads of the jail's user namespace (`RLIMIT_NPROC`, Linux 5.14).
    pub tasks: Option<u64>,
    /// Writable memory of each process (`RLIMIT_DATA`, not `RLIMIT_AS`: runtimes reserve address
    /// space that they never use).
    pub memory: Option<u64>,
    /// The size of a file (`RLIMIT_FSIZE`).
    pub file_size: Option<u64>,
}

impl Resources {
    /// Binds this process and all that it starts; what the caller has bound more tightly stays so.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub(super) fn take_on(&self) -> io::Result<()> {
        for (resource, bound) in [
            (Resource::Nproc, self.tasks),
            (Resource::Data, self.memory),
            (Resource::Fsize, self.file_size),
        ] {
            let Some(bound) = bound else { continue };
            let bound = getrlimit(resource).maximum.map_or(bound, |hard| hard.min(bound));
            setrlimit(resource, Rlimit { current: Some(bound), maximum: Some(bound) })?;
        }
        Ok(())
    }
}
