//! What happens when the launcher itself is at fault: everything inside is ended, the terminal is put
//! back, one line says where, and the exit code is the launcher's own (laws 8 and 11). The same in every
//! build, whether it unwinds or not.

use std::io::{self, Write};
use std::panic::PanicHookInfo;
use std::sync::atomic::{AtomicI32, Ordering};

use rustix::process::{Pid, WaitOptions, waitpid};

use super::{FAILED, plan, sys, terminal};

/// The process whose end is the end of everything inside; zero while there is none.
static MONITOR: AtomicI32 = AtomicI32::new(0);

/// Puts this in the place of the standard library's answer to a panic. Call it before anything else.
pub(super) fn prepare() {
    std::panic::set_hook(Box::new(end));
}

/// Notes the process that has to be ended first; zero when it has been reaped.
pub(super) fn is_monitor(pid: i32) {
    MONITOR.store(pid, Ordering::Relaxed);
}

#[expect(
    clippy::exit,
    clippy::disallowed_methods,
    reason = "nothing can go on after a fault of its own"
)]
fn end(fault: &PanicHookInfo<'_>) {
    let monitor = MONITOR.swap(0, Ordering::Relaxed);
    if let Some(pid) = Pid::from_raw(monitor) {
        sys::kill(monitor, libc::SIGKILL);
        // What is inside must not touch the terminal any more.
        let _ended = waitpid(Some(pid), WaitOptions::empty());
    }
    terminal::put_back_after_fault();
    let words = fault.payload_as_str().unwrap_or("unknown");
    let place = fault.location().map(ToString::to_string).unwrap_or_default();
    // Nobody is left to tell when this fails; the code says it too.
    drop(writeln!(
        io::stderr(),
        "kli-sandbox: a fault of its own at {place} ({}), everything inside was ended: please \
         report it",
        plan::printable(words)
    ));
    std::process::exit(FAILED.into());
}

#[cfg(test)]
mod tests;
