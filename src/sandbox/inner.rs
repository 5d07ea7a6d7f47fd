//! The last stage: process 1 of the jail. It starts the program, hands on signals, reaps orphans
//! and ends with the program's code; the kernel then kills whatever else lives inside (law 8).
//!
//! bubblewrap starts it with the forwarded signals ignored and with its own standard error in
//! place of the caller's; both are put right here. Besides 0, 1 and 2 it keeps the socket to the
//! launcher and the descriptor of its signals; the program gets neither.
//!
//! On a terminal it stays in the caller's session and tells the launcher when the program stops, so
//! that the caller's shell sees one job (law 7). It must never join another process's group or session:
//! the kernel waits for every number of the namespace to be free before it lets process 1 end.

use std::ffi::OsString;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd, RawFd};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::OFlags;
use rustix::io::FdFlags;
use rustix::process::{Pid, Signal, WaitOptions, getpid, wait};
use rustix::termios::{tcgetpgrp, tcsetpgrp};
use serde::{Deserialize, Serialize};

use super::limits::Resources;
use super::processes::Frozen;
use super::{fault, handover, sys};

/// What the launcher tells the last stage, as JSON in its first word. The inside can read it.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Orders {
    /// The socket to the launcher: the last stage says that it is there, and waits for the word to
    /// go on. Later [`Report`]s go one way and [`Order`]s the other.
    pub(super) status: RawFd,
    /// The caller's standard error.
    pub(super) errors: RawFd,
    /// What bounds the program.
    pub(super) resources: Resources,
    /// The program's environment; this process has none of it.
    pub(super) environment: RawFd,
    /// The pipe with the keys for the program (law 15).
    pub(super) secrets: Option<RawFd>,
    /// Whether standard input and output are the caller's controlling terminal, so that it can be
    /// handed to the program.
    pub(super) terminal: bool,
}

/// What the last stage tells the launcher.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Report {
    /// It is there; `shared` says that it stayed in the caller's session.
    Ready { shared: bool },
    /// The program was stopped by `signal`; `holds` says that the terminal's foreground is inside.
    Stopped { signal: i32, holds: bool },
    /// The program was ended by `signal`; `front` says that its group had the terminal's foreground.
    Died { signal: i32, front: bool },
}

/// What the launcher tells the last stage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    /// Start the program, or let it go on. Where the session is shared, `foreground` hands the
    /// terminal over.
    Go { foreground: bool },
}

impl Report {
    fn bytes(self) -> [u8; 3] {
        let number = |signal: i32| u8::try_from(signal).unwrap_or_default();
        match self {
            Self::Ready { shared } => [b'R', 0, shared.into()],
            Self::Stopped { signal, holds } => [b'S', number(signal), holds.into()],
            Self::Died { signal, front } => [b'D', number(signal), front.into()],
        }
    }

    /// Reads it back; `None` for what is none.
    pub(super) fn from_bytes([kind, signal, flag]: [u8; 3]) -> Option<Self> {
        let signal = i32::from(signal);
        match kind {
            b'R' => Some(Self::Ready { shared: flag == 1 }),
            b'S' => Some(Self::Stopped { signal, holds: flag == 1 }),
            b'D' => Some(Self::Died { signal, front: flag == 1 }),
            _ => None,
        }
    }
}

impl Order {
    /// The word for the socket.
    pub(super) fn bytes(self) -> [u8; 2] {
        let Self::Go { foreground } = self;
        [b'G', foreground.into()]
    }

    fn read(from: &OwnedFd) -> io::Result<Option<Self>> {
        let mut word = [0; 2];
        match rustix::io::read(from, &mut word) {
            Ok(2) => Ok(Some(Self::Go { foreground: word[1] == 1 })),
            Ok(_) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

/// Runs `words`: the orders, the program and its arguments. Returns the code to exit with.
pub(super) fn run(words: Vec<OsString>) -> u8 {
    match start(words) {
        Ok(code) => code,
        Err(error) => {
            report(&format!("the last stage cannot work: {error}"));
            super::FAILED
        }
    }
}

fn start(words: Vec<OsString>) -> io::Result<u8> {
    // Started by hand it would run the program without any jail (law 11).
    if getpid() != Pid::INIT {
        return Err(io::Error::other(
            "it is not process 1 of a jail: use `kli-sandbox run --spec FILE -- PROGRAM`",
        ));
    }
    // It lives as long as the jail, with all that the program is given: nobody inside reads its
    // environment or its memory, as the program may have wiped its own (prctl(2), law 15).
    rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable)?;
    // bubblewrap sets it only where it dies with its own parent. A parent that died before this line
    // is noticed by the launcher, whose own end closes the socket below.
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    let mut words = words.into_iter();
    let orders: Orders = words
        .next()
        .and_then(|word| serde_json::from_str(word.to_str()?).ok())
        .ok_or(io::ErrorKind::InvalidInput)?;
    let mut signals = sys::FORWARDED.to_vec();
    signals.extend([libc::SIGCONT, libc::SIGTTIN, libc::SIGTTOU]);
    sys::block_signals(&signals)?;
    sys::default_dispositions();
    let status = sys::inherited(orders.status)?;
    rustix::stdio::dup2_stderr(sys::inherited(orders.errors)?)?;
    let mut environment = handover::receive(sys::inherited(orders.environment)?)?;
    let keys = orders.secrets.map(sys::inherited).transpose()?;
    if let Some(keys) = &keys {
        rustix::io::fcntl_setfd(keys, FdFlags::CLOEXEC)?;
        handover::name_keys(&mut environment)?;
    }
    // Where the inside could push input into the terminal, it must not be its own (law 7).
    let shared = orders.terminal && sys::terminal::injection_refused(io::stdin().as_fd());
    if !shared {
        sys::terminal::leave_session()?;
    }
    rustix::io::fcntl_setfd(&status, FdFlags::CLOEXEC)?;
    sys::close_all_but(&status, keys.as_ref())?;
    // A launcher that died during the set-up closed the other end: then nothing is started. Nor is
    // anything before it has put in place what watches the jail.
    rustix::io::write(&status, &Report::Ready { shared }.bytes())?;
    let Some(Order::Go { foreground }) = Order::read(&status)? else {
        return Ok(super::FAILED);
    };
    // A launcher that is stopped reads nothing, and must not stop what happens here.
    rustix::fs::fcntl_setfl(&status, OFlags::NONBLOCK)?;
    // The view was made meanwhile: what bubblewrap made the current directory lies below it.
    rustix::process::chdir(rustix::process::getcwd(Vec::new())?)?;
    orders.resources.take_on()?;

    let signals = sys::signal_descriptor(&sys::FORWARDED)?;
    let words: Vec<OsString> = words.collect();
    let input = io::stdin();
    let handed = (shared && foreground).then(|| input.as_fd());
    fault::is_last_stage();
    let started = sys::terminal::spawn(&words, &environment, keys.as_ref(), handed);
    // The program has its own: nobody finds them here.
    drop((environment, keys));
    let program = match started {
        Ok(program) => program,
        Err(error) => {
            let name = words.first().map(|word| word.to_string_lossy()).unwrap_or_default();
            let name = super::plan::printable(&name);
            if error.raw_os_error() == Some(libc::ENOENT) {
                report(&format!("`{name}` is not found inside: is it installed, and on PATH?"));
                return Ok(127);
            }
            report(&format!("`{name}` cannot be executed: {error}"));
            return Ok(126);
        }
    };
    Stage { program, shared, status, front: None, frozen: None }.watch(&signals)
}

/// The program and what is known about it.
struct Stage {
    /// Its number, and that of its process group.
    program: i32,
    /// Whether the inside is in the caller's session.
    shared: bool,
    status: OwnedFd,
    /// The group inside that had the terminal when the program stopped.
    front: Option<Pid>,
    /// Everything inside, while it is stopped with the program.
    frozen: Option<Frozen>,
}

impl Stage {
    /// Waits for the program's end.
    fn watch(&mut self, signals: &OwnedFd) -> io::Result<u8> {
        loop {
            let mut polled =
                [PollFd::new(signals, PollFlags::IN), PollFd::new(&self.status, PollFlags::IN)];
            match poll(&mut polled, None) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            let [signal, order] = polled.map(|fd| !fd.revents().is_empty());
            if order {
                match Order::read(&self.status) {
                    Ok(Some(Order::Go { foreground })) => self.go_on(foreground),
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    // The launcher is gone, and everything ends with it.
                    Ok(None) | Err(_) => return Ok(super::FAILED),
                }
            }
            if signal && let Some(received) = sys::next_signal(signals.as_fd())? {
                if received.signal != libc::SIGCHLD {
                    self.hand_on(received);
                } else if let Some(code) = self.reap() {
                    return Ok(code);
                }
            }
        }
    }

    /// Takes what ended or stopped; the code of the program if it is among them.
    fn reap(&mut self) -> Option<u8> {
        while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG | WaitOptions::UNTRACED) {
            if pid.as_raw_nonzero().get() != self.program {
                continue;
            }
            if let Some(signal) = status.stopping_signal() {
                self.stopped(signal);
                continue;
            }
            let signal = status.terminating_signal();
            if let Some(signal) = signal {
                let front = self.shared && tcgetpgrp(io::stdin()) == Ok(pid);
                self.tell(Report::Died { signal, front });
            }
            let code = status.exit_status().or(signal.map(|signal| 128 + signal)).unwrap_or(255);
            return Some(u8::try_from(code).unwrap_or(255));
        }
        None
    }

    /// Only what comes from outside is handed on: inside everybody can signal the program without
    /// this process.
    fn hand_on(&self, received: sys::Received) {
        if received.sender == 0 {
            let group = !matches!(received.signal, libc::SIGTERM | libc::SIGHUP);
            sys::kill(if group { -self.program } else { self.program }, received.signal);
        }
    }

    fn stopped(&mut self, signal: i32) {
        if self.shared {
            // A process of another group would else read the terminal together with the caller's
            // shell, or take it away again.
            self.frozen = Some(Frozen::now(self.program));
            self.front = tcgetpgrp(io::stdin()).ok();
        }
        self.tell(Report::Stopped { signal, holds: self.front.is_some() });
    }

    fn go_on(&mut self, foreground: bool) {
        if self.shared && foreground {
            let program = Pid::from_raw(self.program);
            let handed = |group: Option<Pid>| {
                group.is_some_and(|group| tcsetpgrp(io::stdin(), group).is_ok())
            };
            // A terminal that is gone gives the program no foreground.
            let _ = handed(self.front.take()) || handed(program);
        }
        if let Some(frozen) = self.frozen.take() {
            frozen.thaw();
        }
        sys::kill(-self.program, libc::SIGCONT);
    }

    fn tell(&self, report: Report) {
        // A launcher that does not listen learns the end by the code.
        let _heard = rustix::io::write(&self.status, &report.bytes());
    }
}

fn report(text: &str) {
    // Nobody is left to tell when this fails.
    drop(writeln!(io::stderr(), "kli-sandbox: {text}"));
}
