//! Watches a running jail and hands on signals (law 8). Sleeps in `poll` in between.
//!
//! bubblewrap's monitor is process 1 of a namespace that holds the whole jail, so its end is the
//! end of everything inside: the kernel reports it only when nothing else lives there. Where it has no
//! such namespace (`nestedUserns`), what it leaves behind becomes a child of this process.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, WaitOptions, pidfd_open, pidfd_send_signal,
    waitid, waitpid,
};

use super::inner::{Order, Report};
use super::sys;
use super::terminal::Terminal;

/// How long the inside may take after the first TERM or HUP.
const GRACE: Duration = Duration::from_secs(10);

/// How many signals are taken before the rest has its turn.
const BATCH: usize = 64;

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
    /// The signal that ended the program, where callers act on it; see [`PASSED_ON`].
    pub(super) signal: Option<i32>,
    /// Whether a key of the terminal may have sent it, which the caller's scripts had got as well.
    pub(super) key: bool,
}

/// The signals by which a shell or a `make` knows that it shall stop, too.
const PASSED_ON: [i32; 5] =
    [libc::SIGINT, libc::SIGQUIT, libc::SIGTERM, libc::SIGHUP, libc::SIGPIPE];

/// What the launcher listens to.
#[derive(Debug)]
pub(super) struct Pipes {
    /// The socket to the last stage; its first word tells its number.
    pub(super) status: OwnedFd,
    /// Where the blocked signals arrive.
    pub(super) signals: OwnedFd,
}

/// Waits for the jail's end. When it cannot be watched any more, it is ended.
pub(super) fn supervise(
    monitor: Pid,
    pipes: &Pipes,
    companions: &mut [Box<dyn Companion>],
    terminal: &mut Terminal,
) -> Outcome {
    let mut jail = Jail {
        monitor,
        started: false,
        first: None,
        listening: true,
        waiting: Vec::new(),
        deadline: None,
        ended: None,
        asked_to_stop: false,
        halted: false,
        died: None,
    };
    watch(&mut jail, pipes, companions, terminal).unwrap_or_else(|error| jail.give_up(&error))
}

fn watch(
    jail: &mut Jail,
    pipes: &Pipes,
    companions: &mut [Box<dyn Companion>],
    terminal: &mut Terminal,
) -> io::Result<Outcome> {
    loop {
        let left = jail.deadline.map(|end| end.saturating_duration_since(Instant::now()));
        let (signals, status) = jail.wait(pipes, companions, left)?;
        if status {
            jail.listen(pipes, companions, terminal)?;
        }
        for companion in companions.iter_mut() {
            if let Err(sentence) = companion.attend() {
                jail.end(sentence);
            }
        }
        for _ in 0..BATCH {
            let Some(received) =
                (if signals { sys::next_signal(pipes.signals.as_fd())? } else { None })
            else {
                break;
            };
            jail.receive(received.signal, pipes, terminal);
        }
        jail.flush();
        if jail.deadline.is_some_and(|end| Instant::now() >= end) {
            jail.kill();
        }
        if let Some((_, status)) = waitpid(Some(jail.monitor), WaitOptions::NOHANG)? {
            // The last stage may have spoken between the look and the end.
            while jail.wait(pipes, &[], Some(Duration::ZERO))?.1 {
                jail.listen(pipes, &mut [], terminal)?;
            }
            let signal = status.terminating_signal().map(|signal| 128 + signal);
            let code = status.exit_status().or(signal).unwrap_or(255);
            // The last stage ends with this code after it said so; killed later it has another.
            let died = jail.died.filter(|(died, _)| PASSED_ON.contains(died) && code == 128 + died);
            return Ok(Outcome {
                started: jail.started,
                ended: jail.ended.take(),
                code: u8::try_from(code).unwrap_or(255),
                signal: died.map(|(signal, _)| signal),
                key: died.is_some_and(|(signal, front)| {
                    front && matches!(signal, libc::SIGINT | libc::SIGQUIT)
                }),
            });
        }
    }
}

#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own about the jail")]
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
    /// Whether a stop was handed on that has not been answered yet.
    asked_to_stop: bool,
    /// Whether the program is stopped, and was not let go on since.
    halted: bool,
    /// The signal that ended the program, and whether that had the terminal.
    died: Option<(i32, bool)>,
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

    /// Hears one word of the last stage.
    fn listen(
        &mut self,
        pipes: &Pipes,
        companions: &mut [Box<dyn Companion>],
        terminal: &mut Terminal,
    ) -> io::Result<()> {
        let Some(word) = sys::read_word(pipes.status.as_fd())? else {
            self.listening = false;
            return Ok(());
        };
        match Report::from_bytes(word.bytes) {
            Some(Report::Ready { shared }) if !self.started => {
                terminal.share(shared);
                self.started = true;
                let first = Pid::from_raw(word.writer);
                self.first = first.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
                let Some(first) = &self.first else { return Ok(()) };
                let first = first.as_fd();
                match companions.iter_mut().try_for_each(|companion| companion.begin(first)) {
                    Ok(()) => self.go(pipes, terminal),
                    Err(sentence) => self.end(sentence),
                }
            }
            Some(Report::Stopped { signal, holds }) => self.stop(signal, holds, pipes, terminal),
            Some(Report::Died { signal, front }) => self.died = Some((signal, front)),
            _ => {}
        }
        Ok(())
    }

    /// The program was stopped: then this process stops as well, for the caller's shell to see.
    fn stop(&mut self, signal: i32, holds: bool, pipes: &Pipes, terminal: &mut Terminal) {
        self.halted = true;
        let asked = std::mem::take(&mut self.asked_to_stop);
        if !terminal.is_shared() {
            // Somebody inside may let it go on, and could not tell that to a stopped launcher. So
            // only a stop that came from outside counts, and ends from outside.
            if asked && !sys::terminal::stop(signal, false) {
                self.go(pipes, terminal);
            }
            return;
        }
        let from_background = matches!(signal, libc::SIGTTIN | libc::SIGTTOU);
        // A shell that brings a running job to the front says so to nobody.
        if from_background && terminal.foreground() {
            self.go(pipes, terminal);
            return;
        }
        if holds {
            Terminal::take();
        }
        let stopped = sys::terminal::stop(signal, signal != libc::SIGSTOP);
        // Else SIGCONT waits, and says the same.
        if !stopped {
            if from_background {
                // No shell will ever bring it to the front: the kernel ends such a job so, too.
                self.waiting.push(libc::SIGHUP);
                self.flush();
            }
            self.go(pipes, terminal);
        }
    }

    /// Lets the program start or go on, with the terminal if it can have it now.
    fn go(&mut self, pipes: &Pipes, terminal: &mut Terminal) {
        self.halted = false;
        let foreground = terminal.is_shared() && terminal.foreground();
        // One that is gone already is told by its end.
        let _heard = rustix::io::write(&pipes.status, &Order::Go { foreground }.bytes());
    }

    /// Ends the run for a reason of the launcher's own.
    fn end(&mut self, sentence: String) {
        if self.ended.is_none() {
            self.ended = Some(sentence);
            self.kill();
        }
    }

    fn receive(&mut self, signal: i32, pipes: &Pipes, terminal: &mut Terminal) {
        match signal {
            libc::SIGCONT if self.started => self.go(pipes, terminal),
            // A key that came right after `fg`, and took the SIGCONT of that away (signal(7)).
            libc::SIGTSTP if self.halted => {
                self.asked_to_stop = true;
                self.stop(signal, false, pipes, terminal);
            }
            libc::SIGCHLD | libc::SIGCONT => {}
            libc::SIGTERM if self.deadline.is_some() => self.kill(),
            libc::SIGTERM | libc::SIGHUP => {
                self.deadline = self.deadline.or_else(|| Some(Instant::now() + GRACE));
                self.waiting.push(signal);
            }
            _ => {
                self.asked_to_stop |= signal == libc::SIGTSTP;
                self.waiting.push(signal);
            }
        }
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

    /// Ends everything inside and waits for that, since what is put back and cleared up afterwards must be
    /// out of the inside's reach. Opens nothing: it may be descriptors that are wanting.
    fn give_up(&mut self, error: &io::Error) -> Outcome {
        self.kill();
        let _ended = waitpid(Some(self.monitor), WaitOptions::empty());
        // Where the monitor has no namespace of its own, it leaves process 1 to this process.
        if let Some(first) = &self.first {
            let _killed = pidfd_send_signal(first, Signal::KILL);
            let _ended = waitid(WaitId::PidFd(first.as_fd()), WaitIdOptions::EXITED);
        }
        Outcome {
            started: self.started,
            ended: Some(self.ended.take().unwrap_or_else(|| {
                format!(
                    "the jail cannot be watched any more ({error}), so everything inside was ended: start \
                     it again, and see what has changed the launcher's limits (`prlimit --pid`)"
                )
            })),
            code: 255,
            signal: None,
            key: false,
        }
    }

    /// Ends everything inside: the monitor is this process's child and not reaped yet, so the
    /// number is still its own.
    fn kill(&mut self) {
        self.deadline = None;
        sys::kill(self.monitor.as_raw_nonzero().get(), libc::SIGKILL);
    }
}
