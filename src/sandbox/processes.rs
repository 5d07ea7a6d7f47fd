//! Processes as `/proc` shows them: stops everything inside while the caller's shell has the
//! terminal, and lets it go on (law 7); ends what a killed bubblewrap leaves behind (law 8).

#![expect(clippy::disallowed_methods, reason = "the jail's own processes are looked up in /proc")]

use std::fs;
use std::path::Path;

use rustix::process::{Pid, WaitOptions, waitpid};

use super::sys;

/// Every process inside but process 1, which alone may use this, stopped.
#[derive(Debug)]
pub(super) struct Frozen {
    /// Those that something inside had stopped before, and that stay so.
    before: Vec<i32>,
}

impl Frozen {
    /// Stops them all. The kernel leaves nobody out who is just being born (kill(2), fork(2)).
    /// `program` is the group whose stop is the reason.
    pub(super) fn now(program: i32) -> Self {
        let before = inside()
            .filter(|it| it.state == b'T' && it.group != program)
            .map(|it| it.number)
            .collect();
        sys::kill(-1, libc::SIGSTOP);
        Self { before }
    }

    /// Lets those go on that were running.
    pub(super) fn thaw(self) {
        if self.before.is_empty() {
            sys::kill(-1, libc::SIGCONT);
            return;
        }
        for it in inside().filter(|it| it.number != 1 && !self.before.contains(&it.number)) {
            sys::kill(it.number, libc::SIGCONT);
        }
    }
}

/// Ends all children of this process that are in a PID namespace further in, and waits for them. Others
/// are the caller's, started before it executed the launcher.
pub(super) fn end_children() {
    let own = rustix::process::getpid().as_raw_nonzero().get();
    let here = namespaces(own);
    let inside = |it: &Process| it.parent == own && namespaces(it.number) > here;
    while let Some(child) = all().find(inside) {
        sys::kill(child.number, libc::SIGKILL);
        // No child any more is what was wanted.
        if waitpid(Pid::from_raw(child.number), WaitOptions::empty()).is_err() {
            return;
        }
    }
}

/// In how many PID namespaces a process has a number, counted from that of `/proc`; none when it is gone.
fn namespaces(number: i32) -> Option<usize> {
    let text = fs::read_to_string(format!("/proc/{number}/status")).ok()?;
    let numbers = text.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
    Some(numbers.split_ascii_whitespace().count())
}

struct Process {
    number: i32,
    state: u8,
    parent: i32,
    group: i32,
}

/// Every process inside; none where `/proc` shows the numbers of another namespace (`nestedUserns`).
fn inside() -> impl Iterator<Item = Process> {
    let own = fs::read_link("/proc/self").is_ok_and(|name| name == Path::new("1"));
    own.then(all).into_iter().flatten()
}

fn all() -> impl Iterator<Item = Process> {
    fs::read_dir("/proc").into_iter().flatten().flatten().filter_map(|entry| {
        let number = entry.file_name().to_str()?.parse().ok()?;
        let stat = fs::read_to_string(entry.path().join("stat")).ok()?;
        // Its name, in parentheses, can hold anything.
        let mut fields = stat.rsplit(')').next()?.split_ascii_whitespace();
        let state = *fields.next()?.as_bytes().first()?;
        let parent = fields.next()?.parse().ok()?;
        Some(Process { number, state, parent, group: fields.next()?.parse().ok()? })
    })
}
