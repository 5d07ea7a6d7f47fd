//! The caller's terminal: who has its foreground, and what it was like, so that both are put back
//! at the end, also when the inside was killed in the middle of a full-screen program (laws 7 and 8).
//! It knows nothing of the jail.

#![expect(clippy::disallowed_methods, reason = "the terminal's kind is read here")]

use std::io;
use std::os::fd::AsFd;
use std::sync::{Mutex, TryLockError};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::process::getpgrp;
use rustix::termios::{
    OptionalActions, Termios, isatty, tcgetattr, tcgetpgrp, tcsetattr, tcsetpgrp,
};

use super::sys;

/// What a full-screen program may have switched on, switched off again, each without effect where it
/// is off already (xterm's Control Sequences, and the protocols of the kitty terminal): synchronised
/// output, the alternate screen, mouse reports, focus reports, bracketed paste, the scroll region,
/// character sets, keypad and cursor keys, wrapping, keyboard protocols, the cursor, colours. The
/// cursor's place is saved around what would move it.
const RESET: &[u8] = b"\x1b[?2026l\x1b[<u\x1b7\x1b[?1049l\x1b[<u\x1b[>4m\
    \x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1006l\x1b[?1015l\x1b[?1004l\x1b[?2004l\
    \x1b7\x1b[r\x1b8\x1b(B\x0f\x1b[?1l\x1b>\x1b[?7h\x1b[4l\x1b[?25h\x1b[m";

/// The flags that can be changed while a file is open (`F_SETFL` in fcntl(2)).
const SETTABLE: OFlags = OFlags::APPEND
    .union(OFlags::NONBLOCK)
    .union(OFlags::NOATIME)
    .union(OFlags::DIRECT)
    .union(OFlags::from_bits_retain(libc::O_ASYNC.cast_unsigned()));

/// The terminal as it is put back after a fault of the launcher's own, which has nothing else in hand.
static LAST: Mutex<Option<Terminal>> = Mutex::new(None);

/// What one of the three streams was like.
#[derive(Debug, Clone)]
struct Stream {
    /// The modes, when it is a terminal.
    modes: Option<Termios>,
    /// The flags of the open file, which the caller shares; a program that switches to non-blocking
    /// reading and dies leaves its caller's reads failing, and one that stops appending has the
    /// caller's next line written over others.
    flags: Option<OFlags>,
}

/// The terminal of the caller and the three streams.
#[derive(Debug, Clone)]
pub(super) struct Terminal {
    /// Whether standard input and output are the controlling terminal of this process.
    own: bool,
    /// Whether the inside stayed in this session.
    shared: bool,
    /// The streams before the program got the terminal.
    streams: [Stream; 3],
    /// Whether they were seen in the background, where the modes are another job's.
    background: bool,
}

impl Terminal {
    /// Looks at the three streams. One that is closed or no terminal has nothing to be put back.
    pub(super) fn now() -> Self {
        sys::terminal::stop_only_when_told();
        let front = tcgetpgrp(io::stdin());
        let own = front.is_ok() && tcgetpgrp(io::stdout()).is_ok();
        let background = front.is_ok_and(|group| group != getpgrp());
        let terminal = Self { own, shared: false, streams: streams(), background };
        terminal.remember();
        terminal
    }

    fn remember(&self) {
        if let Ok(mut last) = LAST.lock() {
            *last = Some(self.clone());
        }
    }

    /// Whether the program can have it: standard input and output are the controlling terminal.
    pub(super) fn is_own(&self) -> bool {
        self.own
    }

    /// Notes that the inside is in this session, or not.
    pub(super) fn share(&mut self, shared: bool) {
        self.shared = shared;
        self.remember();
    }

    /// Whether the inside is in this session.
    pub(super) fn is_shared(&self) -> bool {
        self.shared
    }

    /// Whether this process's group has the foreground.
    pub(super) fn foreground(&mut self) -> bool {
        let foreground = tcgetpgrp(io::stdin()).is_ok_and(|group| group == getpgrp());
        if foreground && self.background {
            self.streams = streams();
            self.background = false;
            self.remember();
        }
        foreground
    }

    /// Takes the foreground back from the inside.
    pub(super) fn take() {
        // A terminal that is gone has no foreground.
        let _taken = tcsetpgrp(io::stdin(), getpgrp());
    }

    /// Puts back what was changed, after everything inside has ended. `well` says that the program
    /// ended with 0: then it is trusted to have left the screen. Nobody is left to tell when it fails.
    pub(super) fn put_back(&self, well: bool) {
        let front = tcgetpgrp(io::stdin());
        if let Ok(group) = front
            && self.shared
            && group != getpgrp()
            && sys::terminal::is_gone(group.as_raw_nonzero().get())
        {
            Self::take();
        }
        // The modes of another job are none of this one's.
        let elsewhere =
            self.background || tcgetpgrp(io::stdin()).is_ok_and(|group| group != getpgrp());
        let mut changed = false;
        let [input, output, errors] = &self.streams;
        changed |= input.put_back(io::stdin(), elsewhere);
        changed |= output.put_back(io::stdout(), elsewhere);
        changed |= errors.put_back(io::stderr(), elsewhere);
        if changed && !well && isatty(io::stdout()) {
            leave_screen();
        }
    }
}

/// Puts back what was seen last, after everything inside has ended.
pub(super) fn put_back_after_fault() {
    let last = match LAST.try_lock() {
        Ok(mut last) => last.take(),
        Err(TryLockError::Poisoned(last)) => last.into_inner().take(),
        Err(TryLockError::WouldBlock) => None,
    };
    if let Some(terminal) = last {
        terminal.put_back(false);
    }
}

fn streams() -> [Stream; 3] {
    fn look(fd: impl AsFd) -> Stream {
        Stream { modes: tcgetattr(&fd).ok(), flags: fcntl_getfl(&fd).ok() }
    }
    [look(io::stdin()), look(io::stdout()), look(io::stderr())]
}

/// Leaves what a full-screen program was in. A terminal that is held (`^S`) is left alone.
fn leave_screen() {
    if std::env::var_os("TERM").is_none_or(|kind| kind == "dumb") {
        return;
    }
    let output = io::stdout();
    let mut polled = [PollFd::new(&output, PollFlags::OUT)];
    let wait = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
    if poll(&mut polled, Some(&wait)) == Ok(1) {
        let _shown = rustix::io::write(&output, RESET);
    }
}

impl Stream {
    /// Returns whether the modes were changed.
    fn put_back(&self, fd: impl AsFd, elsewhere: bool) -> bool {
        if let (Some(before), Ok(now)) = (self.flags, fcntl_getfl(&fd))
            && before.intersection(SETTABLE) != now.intersection(SETTABLE)
        {
            let _kept = fcntl_setfl(&fd, before);
        }
        let (Some(before), Ok(now), false) = (&self.modes, tcgetattr(&fd), elsewhere) else {
            return false;
        };
        let same = before.input_modes == now.input_modes
            && before.output_modes == now.output_modes
            && before.control_modes == now.control_modes
            && before.local_modes == now.local_modes;
        let _kept = tcsetattr(&fd, OptionalActions::Now, before);
        !same
    }
}
