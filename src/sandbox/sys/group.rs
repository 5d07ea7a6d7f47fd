//! Entering a control group between fork and exec.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use super::start::Start;

/// Lets what is started enter control groups before it executes its program; each door is the group's
/// `cgroup.procs`, open for writing.
pub(in crate::sandbox) fn enter_at_start(start: &mut Start, doors: Vec<OwnedFd>) {
    // SAFETY: async-signal-safe calls only, no allocation.
    let steps = move || unsafe {
        for door in &doors {
            // Zero stands for the writer, whatever its number is here (cgroups(7)).
            if libc::write(door.as_raw_fd(), c"0".as_ptr().cast(), 1) != 1 {
                return Err(io::Error::last_os_error());
            }
        }
        Ok(())
    };
    // SAFETY: `steps` does nothing but async-signal-safe calls.
    unsafe { start.before(steps) };
}
