//! Watches a running jail: hands on signals, and sees to it that nothing lives when it is over
//! (law 8). Sleeps in `poll` in between.

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

/// How long a killed jail may take to vanish.
const VANISH: Duration = Duration::from_secs(2);

/// How a jail ended.
#[derive(Debug)]
pub(super) struct Outcome {
    /// Whether the last stage was reached; before that the program was not started.
    pub(super) started: bool,
    /// The program's code, 128+n for a signal.
    pub(super) code: u8,
}

/// The launcher's ends of the pipes to bubblewrap and the last stage.
#[derive(Debug)]
pub(super) struct Pipes {
    /// Where bubblewrap writes the number of process 1.
    pub(super) info: OwnedFd,
    /// Where the last stage writes one byte.
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
    let mut jail = Jail { first: None, started: false, waiting: Vec::new(), deadline: None };
    let mut open = Open { info: Some(String::new()), status: true };
    loop {
        let left = jail.deadline.map(|end| end.saturating_duration_since(Instant::now()));
        let ready = Ready::wait(pipes, &open, left)?;
        jail.listen(pipes, &ready, &mut open);
        while ready.signals
            && let Some(signal) = sys::next_signal(pipes.signals.as_fd())?
        {
            if signal != libc::SIGCHLD {
                jail.receive(signal, monitor);
            }
        }
        jail.flush();
        if jail.deadline.is_some_and(|end| Instant::now() >= end) {
            jail.kill(monitor);
        }
        if let Some((_, status)) = waitpid(Some(monitor), WaitOptions::NOHANG)? {
            // Both may have spoken between the look and the end.
            let ready = Ready::wait(pipes, &open, Some(Duration::ZERO))?;
            jail.listen(pipes, &ready, &mut open);
            jail.vanish();
            let signal = status.terminating_signal().map(|signal| 128 + signal);
            let code = status.exit_status().or(signal).unwrap_or(255);
            return Ok(Outcome { started: jail.started, code: u8::try_from(code).unwrap_or(255) });
        }
    }
}

/// What is still to come through the pipes.
struct Open {
    /// bubblewrap's text so far, `None` once it has told the number of process 1 or ended.
    info: Option<String>,
    status: bool,
}

struct Jail {
    /// Process 1, once bubblewrap has told its number. A handle, so that the number cannot come
    /// to mean another process.
    first: Option<OwnedFd>,
    started: bool,
    /// Signals that came before the last stage could take them.
    waiting: Vec<i32>,
    deadline: Option<Instant>,
}

impl Jail {
    fn listen(&mut self, pipes: &Pipes, ready: &Ready, open: &mut Open) {
        if ready.info
            && let Some(text) = &mut open.info
        {
            let mut buffer = [0; 512];
            let read = rustix::io::read(&pipes.info, &mut buffer).unwrap_or(0);
            let piece = buffer.get(..read).unwrap_or_default();
            text.push_str(&String::from_utf8_lossy(piece));
            if let Some(pid) = child_pid(text) {
                self.first = pidfd_open(pid, PidfdFlags::empty()).ok();
                open.info = None;
            } else if read == 0 {
                open.info = None;
            }
        }
        if ready.status {
            let mut byte = [0];
            self.started |= rustix::io::read(&pipes.status, &mut byte).is_ok_and(|read| read == 1);
            open.status = false;
        }
    }

    fn receive(&mut self, signal: i32, monitor: Pid) {
        let ends = signal == libc::SIGTERM || signal == libc::SIGHUP;
        if signal == libc::SIGTERM && self.deadline.is_some() {
            self.kill(monitor);
            return;
        }
        if ends && self.deadline.is_none() {
            self.deadline = Some(Instant::now() + GRACE);
        }
        self.waiting.push(signal);
    }

    fn flush(&mut self) {
        if !self.started {
            return;
        }
        if let Some(first) = &self.first {
            for signal in self.waiting.drain(..) {
                if let Some(signal) = Signal::from_named_raw(signal) {
                    // Gone already is what a signal would have wanted.
                    let _ = pidfd_send_signal(first, signal);
                }
            }
        }
    }

    fn kill(&mut self, monitor: Pid) {
        // Once is enough; the loop goes on until the monitor has reported the end.
        self.deadline = None;
        match &self.first {
            Some(first) => {
                let _ = pidfd_send_signal(first, Signal::KILL);
            }
            None => sys::kill(monitor.as_raw_nonzero().get(), libc::SIGKILL),
        }
    }

    /// Sees process 1 gone, and with it everything inside.
    fn vanish(&self) {
        if let Some(first) = &self.first {
            let _ = pidfd_send_signal(first, Signal::KILL);
            let mut end = [PollFd::new(first, PollFlags::IN)];
            let _ = poll(&mut end, Timespec::try_from(VANISH).ok().as_ref());
        }
    }
}

#[derive(Default)]
struct Ready {
    info: bool,
    status: bool,
    signals: bool,
}

impl Ready {
    fn wait(pipes: &Pipes, open: &Open, timeout: Option<Duration>) -> io::Result<Self> {
        let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
        // What is no longer wanted is left out: a closed pipe would report its end for ever.
        let mut polled = vec![PollFd::new(&pipes.signals, PollFlags::IN)];
        if open.info.is_some() {
            polled.push(PollFd::new(&pipes.info, PollFlags::IN));
        }
        if open.status {
            polled.push(PollFd::new(&pipes.status, PollFlags::IN));
        }
        match poll(&mut polled, timeout.as_ref()) {
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => return Ok(Self::default()),
            Err(error) => return Err(error.into()),
        }
        let mut results = polled.iter().map(|fd| !fd.revents().is_empty());
        let signals = results.next().unwrap_or(false);
        let info = open.info.is_some() && results.next().unwrap_or(false);
        let status = open.status && results.next().unwrap_or(false);
        Ok(Self { info, status, signals })
    }
}

/// The number after `"child-pid":`, once the whole of it is there.
fn child_pid(text: &str) -> Option<Pid> {
    let (_, rest) = text.split_once("\"child-pid\":")?;
    let rest = rest.trim_start();
    let end = rest.find(|character: char| !character.is_ascii_digit())?;
    Pid::from_raw(rest.get(..end)?.parse().ok()?)
}
