//! The modes of the terminal: one guard sets them and puts all of them back, on every way out.
//!
//! Ways out: the end of the interface and an error (`Drop`), a fault of kli's own (the panic hook,
//! so that its message is readable), TERM and HUP (the loop ends), and a suspension
//! ([`Guard::leave`], [`Guard::enter_again`]). What is kept to put back is kept in one place, and
//! putting back twice does nothing. It is the gate of all output as well: once the terminal is put
//! back no rest of a frame is written any more. It knows nothing of what is drawn.
//!
//! No wait here is without end. A terminal takes what is written when somebody reads it, so each
//! piece is written only when poll(2) says that there is room: Linux's pseudo-terminals then take it
//! whole, as their buffers are given out in pieces of more than a kilobyte.

use std::{
    io,
    os::fd::{AsFd, OwnedFd},
    sync::{
        Condvar, Mutex, MutexGuard, Once, PoisonError, TryLockError,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
    termios::{OptionalActions, Termios, tcgetattr, tcsetattr},
};

/// Switches on: bracketed paste, the kitty protocol's "disambiguate escape codes", and the cursor
/// off, since it is drawn. The cursor's place is saved before what some terminals take for "restore it".
const ENTER: &[u8] = b"\x1b[?2004h\x1b7\x1b[>1u\x1b[?25l";
/// Takes back the keyboard flags before they are set again.
const AGAIN: &[u8] = b"\x1b7\x1b[<u";
/// Ends whatever frame or sequence is open, takes the region away (the cursor stands at its start),
/// and switches all off that is ever switched on.
const LEAVE: &[u8] =
    b"\x18\x1b[?2026l\x1b[?7h\r\x1b7\x1b[K\x1b[B\x1b[J\x1b8\x1b[?2004l\x1b7\x1b[<u\x1b[?25h\x1b[0m";

/// What is to be put back.
struct Saved {
    terminal: OwnedFd,
    modes: Termios,
}

/// `Some` while the interface has the terminal.
static SAVED: Mutex<Option<Saved>> = Mutex::new(None);
/// Says that it has it again.
static BACK: Condvar = Condvar::new();
/// Says that a fault has taken it away.
static OUT: AtomicBool = AtomicBool::new(false);

/// How long a terminal may take nothing before the guard gives up on it.
const PATIENCE: Duration = Duration::from_secs(1);
/// What a terminal that has room takes at once.
const PIECE: usize = 1024;

/// The terminal in the interface's modes, as long as it lives.
#[derive(Debug)]
pub(super) struct Guard {
    terminal: OwnedFd,
}

impl Guard {
    /// Sets the modes of a terminal that can be read and written.
    ///
    /// # Errors
    /// When it is none, or is gone.
    pub(super) fn enter(terminal: OwnedFd) -> io::Result<Self> {
        static HOOK: Once = Once::new();
        HOOK.call_once(|| {
            let before = std::panic::take_hook();
            std::panic::set_hook(Box::new(move |info| {
                put_back();
                before(info);
                // Whoever outlives it comes back behind the message.
                OUT.store(true, Ordering::Release);
            }));
        });
        let guard = Self { terminal };
        guard.enter_again()?;
        Ok(guard)
    }

    /// Sets the modes again after [`Guard::leave`], or after somebody else changed them. One that
    /// takes nothing for a second is left as it is.
    ///
    /// # Errors
    /// As for [`Guard::enter`].
    pub(super) fn enter_again(&self) -> io::Result<()> {
        let mut saved = saved().ok_or(io::ErrorKind::TimedOut)?;
        let modes = tcgetattr(&self.terminal)?;
        let mut raw = modes.clone();
        raw.make_raw();
        let mut bytes = ENTER.to_vec();
        if saved.is_none() {
            *saved = Some(Saved { terminal: self.terminal.try_clone()?, modes });
        } else {
            bytes.splice(0..0, AGAIN.iter().copied());
        }
        tcsetattr(&self.terminal, OptionalActions::Now, &raw)?;
        let done = write(&self.terminal, &bytes, Some(PATIENCE));
        drop(saved);
        OUT.store(false, Ordering::Release);
        BACK.notify_all();
        done.or_else(
            |error| if error.kind() == io::ErrorKind::TimedOut { Ok(()) } else { Err(error) },
        )
    }

    /// Puts everything back for as long as somebody else has the terminal.
    pub(super) fn leave() {
        put_back();
    }

    /// Says whether the terminal was put back by a fault that the interface outlived: that of a thread
    /// whose work is its own.
    pub(super) fn is_out() -> bool {
        OUT.load(Ordering::Acquire)
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        put_back();
    }
}

/// Returns what is kept; none when it is held for so long that nobody can wait, as by a fault in the
/// middle of this file.
fn saved() -> Option<MutexGuard<'static, Option<Saved>>> {
    let start = Instant::now();
    loop {
        match SAVED.try_lock() {
            Ok(saved) => return Some(saved),
            // A fault while it was held must not keep the terminal broken.
            Err(TryLockError::Poisoned(held)) => return Some(held.into_inner()),
            Err(TryLockError::WouldBlock) if start.elapsed() > 2 * PATIENCE => return None,
            Err(TryLockError::WouldBlock) => thread::sleep(Duration::from_millis(1)),
        }
    }
}

/// Puts back what was changed, once.
fn put_back() {
    let saved = saved().and_then(|mut saved| saved.take());
    if let Some(Saved { terminal, modes }) = saved {
        // A terminal that is gone needs nothing.
        drop(write(&terminal, LEAVE, Some(PATIENCE)));
        let _gone = tcsetattr(&terminal, OptionalActions::Now, &modes);
    }
}

/// Writes a frame for as long as it takes, since a terminal may be slow, or stopped for a while. When
/// somebody else has the terminal meanwhile it goes on, with the row it was at, once the interface has
/// it again.
///
/// # Errors
/// As the system says.
pub(super) fn write_frame(terminal: impl AsFd, frame: &str) -> io::Result<()> {
    let bytes = frame.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        ready(&terminal, None)?;
        let mut saved = SAVED.lock().unwrap_or_else(PoisonError::into_inner);
        if saved.is_none() {
            while saved.is_none() {
                saved = BACK.wait(saved).unwrap_or_else(PoisonError::into_inner);
            }
            // The row that was begun is gone.
            let done = bytes.get(..at).unwrap_or_default();
            at = done.windows(2).rposition(|end| end == b"\r\n").map_or(0, |end| end + 2);
            continue;
        }
        let end = bytes.len().min(at + PIECE);
        // Nobody could take it back between the look and the write.
        at += once(&terminal, bytes.get(at..end).unwrap_or_default())?;
    }
    Ok(())
}

/// Writes all of it; `patience` is how long the terminal may take nothing, `None` = for ever.
///
/// # Errors
/// As the system says; `TimedOut` when patience has ended.
pub(super) fn write(
    terminal: impl AsFd,
    mut bytes: &[u8],
    patience: Option<Duration>,
) -> io::Result<()> {
    while !bytes.is_empty() {
        if !ready(&terminal, patience)? {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let piece = bytes.get(..bytes.len().min(PIECE)).unwrap_or_default();
        let written = once(&terminal, piece)?;
        bytes = bytes.get(written..).unwrap_or_default();
    }
    Ok(())
}

/// Waits until there is room; false when it takes too long.
fn ready(terminal: impl AsFd, patience: Option<Duration>) -> io::Result<bool> {
    let patience = patience.and_then(|patience| Timespec::try_from(patience).ok());
    loop {
        match poll(&mut [PollFd::new(&terminal, PollFlags::OUT)], patience.as_ref()) {
            Ok(ready) => return Ok(ready > 0),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Writes once; 0 when there was no room after all.
fn once(terminal: impl AsFd, bytes: &[u8]) -> io::Result<usize> {
    match rustix::io::write(&terminal, bytes) {
        Ok(0) => Err(io::ErrorKind::WriteZero.into()),
        Ok(written) => Ok(written),
        Err(Errno::INTR | Errno::AGAIN) => Ok(0),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests;
