//! Watches a running jail and hands on signals (law 8). Sleeps in `poll` in between.
//!
//! bubblewrap's monitor is process 1 of a namespace that holds the whole jail, so its end is the
//! end of everything inside: the kernel reports it only when nothing else lives there.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::process::Child;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitOptions, pidfd_open, pidfd_send_signal, waitpid,
};

use super::sys;

/// How long the inside may take after the first TERM or HUP.
const GRACE: Duration = Duration::from_secs(10);

/// How a jail ended.
#[derive(Debug)]
pub(super) struct Outcome {
    /// Whether the last stage was reached; before that the program was not started.
    pub(super) started: bool,
    /// The program's code, 128+n for a signal.
    pub(super) code: u8,
}

/// What the launcher listens to.
#[derive(Debug)]
pub(super) struct Pipes {
    /// Where the last stage writes one byte, which tells its number.
    pub(super) status: OwnedFd,
    /// Where the blocked signals arrive.
    pub(super) signals: OwnedFd,
}

/// Waits for the jail's end.
pub(super) fn supervise(child: &Child, pipes: &Pipes) -> io::Result<Outcome> {
    let monitor = i32::try_from(child.id())
        .ok()
        .and_then(Pid::from_raw)
        .ok_or(io::ErrorKind::InvalidInput)?;
    let mut jail = Jail {
        monitor,
        started: false,
        first: None,
        listening: true,
        waiting: Vec::new(),
        deadline: None,
    };
    loop {
        let left = jail.deadline.map(|end| end.saturating_duration_since(Instant::now()));
        let (signals, status) = jail.wait(pipes, left)?;
        if status {
            jail.listen(pipes)?;
        }
        while signals && let Some(signal) = sys::next_signal(pipes.signals.as_fd())? {
            if signal != libc::SIGCHLD {
                jail.receive(signal);
            }
        }
        jail.flush();
        if jail.deadline.is_some_and(|end| Instant::now() >= end) {
            jail.kill();
        }
        if let Some((_, status)) = waitpid(Some(monitor), WaitOptions::NOHANG)? {
            // The last stage may have spoken between the look and the end.
            if jail.wait(pipes, Some(Duration::ZERO))?.1 {
                jail.listen(pipes)?;
            }
            let signal = status.terminating_signal().map(|signal| 128 + signal);
            let code = status.exit_status().or(signal).unwrap_or(255);
            return Ok(Outcome { started: jail.started, code: u8::try_from(code).unwrap_or(255) });
        }
    }
}

struct Jail {
    monitor: Pid,
    /// Whether the last stage has spoken.
    started: bool,
    /// Process 1 of the inside. A handle, so that the number cannot come to mean another process.
    first: Option<OwnedFd>,
    /// Whether the last stage may still speak.
    listening: bool,
    /// Signals that came before the last stage could take them.
    waiting: Vec<i32>,
    deadline: Option<Instant>,
}

impl Jail {
    /// Waits for signals and for the last stage's word.
    fn wait(&self, pipes: &Pipes, timeout: Option<Duration>) -> io::Result<(bool, bool)> {
        let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
        let mut polled = vec![PollFd::new(&pipes.signals, PollFlags::IN)];
        // Once closed it would report its end for ever.
        if self.listening {
            polled.push(PollFd::new(&pipes.status, PollFlags::IN));
        }
        match poll(&mut polled, timeout.as_ref()) {
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => return Ok((false, false)),
            Err(error) => return Err(error.into()),
        }
        let mut results = polled.iter().map(|fd| !fd.revents().is_empty());
        Ok((results.next().unwrap_or(false), results.next().unwrap_or(false)))
    }

    fn listen(&mut self, pipes: &Pipes) -> io::Result<()> {
        self.listening = false;
        if let Some(pid) = sys::writer(pipes.status.as_fd())? {
            self.started = true;
            self.first =
                Pid::from_raw(pid).and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
        }
        Ok(())
    }

    fn receive(&mut self, signal: i32) {
        if signal == libc::SIGTERM && self.deadline.is_some() {
            self.kill();
            return;
        }
        let ends = signal == libc::SIGTERM || signal == libc::SIGHUP;
        if ends && self.deadline.is_none() {
            self.deadline = Some(Instant::now() + GRACE);
        }
        self.waiting.push(signal);
    }

    fn flush(&mut self) {
        if let Some(first) = &self.first {
            for signal in self.waiting.drain(..) {
                if let Some(signal) = Signal::from_named_raw(signal) {
                    // Gone already is what a signal would have wanted.
                    let _ = pidfd_send_signal(first, signal);
                }
            }
        }
    }

    /// Ends everything inside: the monitor is this process's child and not reaped yet, so the
    /// number is still its own.
    fn kill(&mut self) {
        self.deadline = None;
        sys::kill(self.monitor.as_raw_nonzero().get(), libc::SIGKILL);
    }
}
