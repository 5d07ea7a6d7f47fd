//! What happens when the launcher itself is at fault: everything inside is ended, the terminal is put
//! back, one line says where, and the exit code is the launcher's own (laws 8 and 11). The same in every
//! build, whether it unwinds or not.

use std::io::{self, Write};
use std::panic::PanicHookInfo;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

use rustix::process::{Pid, WaitOptions, waitpid};

use super::{FAILED, plan, processes, sys, terminal};

/// Whose end is the end of everything inside, as kill(2) names it; zero while there is nothing inside.
static INSIDE: AtomicI32 = AtomicI32::new(0);

/// Whether what the monitor leaves behind becomes a child of this process (`nestedUserns`).
static ADOPTS: AtomicBool = AtomicBool::new(false);

/// Whether this is a child that has not executed its program yet. It shares the memory with its parent, or
/// has its numbers from another namespace, so it ends itself alone.
static CHILD: AtomicBool = AtomicBool::new(false);

/// Everything but this process, which is process 1 of the jail.
const ALL: i32 = -1;

/// Puts this in the place of the standard library's answer to a panic. Call it before anything else.
pub(super) fn prepare() {
    std::panic::set_hook(Box::new(end));
}

/// Notes the process that has to be ended first; zero when it has been reaped. `adopts` says that its
/// children become this process's then.
pub(super) fn is_monitor(pid: i32, adopts: bool) {
    INSIDE.store(pid, Ordering::Relaxed);
    ADOPTS.store(adopts, Ordering::Relaxed);
}

/// Notes that this is process 1 of the jail. It ends everything else before it says anything: whoever reads
/// its words may be slow.
pub(super) fn is_last_stage() {
    INSIDE.store(ALL, Ordering::Relaxed);
}

/// Notes that what runs from here on is a child of this process, or no longer is. Async-signal-safe.
pub(super) fn is_child(child: bool) {
    CHILD.store(child, Ordering::Relaxed);
}

#[expect(
    clippy::exit,
    clippy::disallowed_methods,
    reason = "nothing can go on after a fault of its own"
)]
fn end(fault: &PanicHookInfo<'_>) {
    if CHILD.load(Ordering::Relaxed) {
        tell(fault, "nothing was started");
        sys::end_at_once(FAILED);
    }
    let inside = INSIDE.swap(0, Ordering::Relaxed);
    if inside != 0 {
        sys::kill(inside, libc::SIGKILL);
    }
    if let Some(monitor) = Some(inside).filter(|pid| *pid > 0).and_then(Pid::from_raw) {
        // What is inside must not touch the terminal any more.
        let _ended = waitpid(Some(monitor), WaitOptions::empty());
        if ADOPTS.load(Ordering::Relaxed) {
            processes::end_children();
        }
    }
    terminal::put_back_after_fault();
    tell(fault, "everything inside was ended");
    std::process::exit(FAILED.into());
}

fn tell(fault: &PanicHookInfo<'_>, done: &str) {
    let words = fault.payload_as_str().unwrap_or("unknown");
    let place = fault.location().map(ToString::to_string).unwrap_or_default();
    // Nobody is left to tell when this fails; the code says it too.
    drop(writeln!(
        io::stderr(),
        "kli-sandbox: a fault of its own at {place} ({}), {done}: please report it",
        plan::printable(words)
    ));
}

#[cfg(test)]
mod tests;
