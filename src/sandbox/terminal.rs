//! The terminal's modes, as the caller had them (law 8): saved before the start and put back at the
//! end, also when the inside was killed in the middle of a full-screen program. It knows nothing of
//! the jail.

use std::io;
use std::os::fd::AsFd;

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcsetattr};

use super::sys;

/// What one of the three streams was like.
#[derive(Debug)]
struct Stream {
    /// The modes, when it is a terminal.
    modes: Option<Termios>,
    /// The flags of the open file, which the caller shares; a program that switches to non-blocking
    /// reading and dies leaves its caller's reads failing.
    flags: Option<OFlags>,
}

/// The three streams before the start.
#[derive(Debug)]
pub(super) struct Saved([Stream; 3]);

impl Saved {
    /// Looks at the three streams. One that is closed or no terminal has nothing to be put back.
    pub(super) fn now() -> Self {
        fn look(fd: impl AsFd) -> Stream {
            Stream { modes: tcgetattr(&fd).ok(), flags: fcntl_getfl(&fd).ok() }
        }
        Self([look(io::stdin()), look(io::stdout()), look(io::stderr())])
    }

    /// Puts back what was changed. Nobody is left to tell when it fails.
    pub(super) fn put_back(&self) {
        // In the background a change of modes would stop this process (termios(3)).
        sys::ignore_background_writes();
        let [input, output, errors] = &self.0;
        input.put_back(io::stdin());
        output.put_back(io::stdout());
        errors.put_back(io::stderr());
    }
}

impl Stream {
    fn put_back(&self, fd: impl AsFd) {
        if let Some(modes) = &self.modes {
            let _kept = tcsetattr(&fd, OptionalActions::Now, modes);
        }
        if let (Some(before), Ok(now)) = (self.flags, fcntl_getfl(&fd))
            && before.contains(OFlags::NONBLOCK) != now.contains(OFlags::NONBLOCK)
        {
            let _kept = fcntl_setfl(&fd, before);
        }
    }
}
