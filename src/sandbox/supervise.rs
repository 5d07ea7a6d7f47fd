//! Watches a running jail and hands on signals (law 8). Sleeps in `poll` in between.
//!
//! bubblewrap's monitor is process 1 of a namespace that holds the whole jail, so its end is the
//! end of everything inside: the kernel reports it only when nothing else lives there.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process::Child;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitOptions, pidfd_open, pidfd_send_signal, waitpid,
};

use super::sys;

/// How long the inside may take after the first TERM or HUP.
const GRACE: Duration = Duration::from_secs(10);

/// Something that goes on in the launcher beside the jail.
pub(super) trait Companion {
    /// Begins; `jail` is a handle of the jail's process 1, and the program is not started yet.
    ///
    /// # Errors
    /// The sentence with the repair; the program is not started then (law 11).
    fn begin(&mut self, jail: BorrowedFd<'_>) -> Result<(), String>;

    /// What becomes readable when there is something to do.
    fn descriptor(&self) -> Option<BorrowedFd<'_>>;

    /// Does it. Never blocks.
    ///
    /// # Errors
    /// The sentence for which the run ends, everything inside is killed then.
    fn attend(&mut self) -> Result<(), String>;

    /// Clears up when nothing inside lives any more.
    ///
    /// # Errors
    /// The sentence for which the run counts as failed.
    fn end(&mut self) -> Result<(), String> {
        Ok(())
    }
}

/// How a jail ended.
#[derive(Debug)]
pub(super) struct Outcome {
    /// Whether the last stage was reached; before that the program was not started.
    pub(super) started: bool,
    /// The sentence of the companion that ended the run.
    pub(super) ended: Option<String>,
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
pub(super) fn supervise(
    child: &Child,
    pipes: &Pipes,
    companions: &mut [Box<dyn Companion>],
) -> io::Result<Outcome> {
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
        ended: None,
    };
    loop {
        let left = jail.deadline.map(|end| end.saturating_duration_since(Instant::now()));
        let (signals, status) = jail.wait(pipes, companions, left)?;
        if status {
            jail.listen(pipes, companions)?;
        }
        for companion in companions.iter_mut() {
            if let Err(sentence) = companion.attend() {
                jail.end(sentence);
            }
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
            if jail.wait(pipes, &[], Some(Duration::ZERO))?.1 {
                jail.listen(pipes, &mut [])?;
            }
            let signal = status.terminating_signal().map(|signal| 128 + signal);
            let code = status.exit_status().or(signal).unwrap_or(255);
            return Ok(Outcome {
                started: jail.started,
                ended: jail.ended,
                code: u8::try_from(code).unwrap_or(255),
            });
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
    /// The sentence for which the run was ended.
    ended: Option<String>,
}

impl Jail {
    /// Waits for signals, for the last stage's word and for what the companions wait for.
    fn wait(
        &self,
        pipes: &Pipes,
        companions: &[Box<dyn Companion>],
        timeout: Option<Duration>,
    ) -> io::Result<(bool, bool)> {
        let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
        let mut polled = vec![PollFd::new(&pipes.signals, PollFlags::IN)];
        // Once closed it would report its end for ever.
        if self.listening {
            polled.push(PollFd::new(&pipes.status, PollFlags::IN));
        }
        let descriptors: Vec<BorrowedFd<'_>> =
            companions.iter().filter_map(|companion| companion.descriptor()).collect();
        polled.extend(descriptors.iter().map(|fd| PollFd::new(fd, PollFlags::IN)));
        match poll(&mut polled, timeout.as_ref()) {
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => return Ok((false, false)),
            Err(error) => return Err(error.into()),
        }
        let mut results = polled.iter().map(|fd| !fd.revents().is_empty());
        let signals = results.next().unwrap_or(false);
        Ok((signals, self.listening && results.next().unwrap_or(false)))
    }

    /// Hears that the last stage is there, begins what goes on beside it, and lets it go on.
    fn listen(&mut self, pipes: &Pipes, companions: &mut [Box<dyn Companion>]) -> io::Result<()> {
        self.listening = false;
        let Some(pid) = sys::writer(pipes.status.as_fd())? else { return Ok(()) };
        self.started = true;
        self.first = Pid::from_raw(pid).and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
        let Some(first) = &self.first else { return Ok(()) };
        let begun = companions.iter_mut().try_for_each(|companion| companion.begin(first.as_fd()));
        match begun {
            // One that is gone already is told by its end.
            Ok(()) => drop(rustix::io::write(&pipes.status, b"G")),
            Err(sentence) => self.end(sentence),
        }
        Ok(())
    }

    /// Ends the run for a reason of the launcher's own.
    fn end(&mut self, sentence: String) {
        if self.ended.is_none() {
            self.ended = Some(sentence);
            self.kill();
        }
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
