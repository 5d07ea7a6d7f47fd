//! The modes of the terminal: one guard sets them and puts all of them back, on every way out.
//!
//! Ways out: the end of the interface and an error (`Drop`), a fault of kli's own (the panic hook,
//! so that its message is readable), TERM and HUP (the loop ends), and a suspension
//! ([`Guard::leave`], [`Guard::enter_again`]). What is kept to put back is kept in one place, and
//! putting back twice does nothing. It knows nothing of what is drawn.

use std::{
    io,
    os::fd::{AsFd, OwnedFd},
    sync::{Mutex, Once, PoisonError},
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

static SAVED: Mutex<Option<Saved>> = Mutex::new(None);

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
            }));
        });
        let guard = Self { terminal };
        guard.enter_again()?;
        Ok(guard)
    }

    /// Sets the modes again after [`Guard::leave`], or after somebody else changed them.
    ///
    /// # Errors
    /// As for [`Guard::enter`].
    pub(super) fn enter_again(&self) -> io::Result<()> {
        let mut saved = SAVED.lock().unwrap_or_else(PoisonError::into_inner);
        let modes = tcgetattr(&self.terminal)?;
        let mut raw = modes.clone();
        raw.make_raw();
        if saved.is_none() {
            *saved = Some(Saved { terminal: self.terminal.try_clone()?, modes });
        } else {
            write_all(&self.terminal, AGAIN, PATIENCE)?;
        }
        tcsetattr(&self.terminal, OptionalActions::Now, &raw)?;
        write_all(&self.terminal, ENTER, PATIENCE)
    }

    /// Puts everything back for as long as somebody else has the terminal.
    pub(super) fn leave() {
        put_back();
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        put_back();
    }
}

/// Puts back what was changed, once.
fn put_back() {
    // A fault while it was held must not keep the terminal broken.
    let saved = SAVED.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let Some(Saved { terminal, modes }) = saved {
        // A terminal that is gone needs nothing.
        drop(write_all(&terminal, LEAVE, PATIENCE));
        let _gone = tcsetattr(&terminal, OptionalActions::Now, &modes);
    }
}

/// How long a terminal may take nothing before the guard gives up on it.
const PATIENCE: Option<Timespec> = Some(Timespec { tv_sec: 1, tv_nsec: 0 });

/// Writes all of it, also to a terminal that somebody made one that does not block; `patience` is
/// how long it may take nothing then, `None` = for ever.
///
/// # Errors
/// As the system says.
pub(super) fn write_all(
    terminal: impl AsFd,
    mut bytes: &[u8],
    patience: Option<Timespec>,
) -> io::Result<()> {
    while !bytes.is_empty() {
        match rustix::io::write(&terminal, bytes) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => bytes = bytes.get(written..).unwrap_or_default(),
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => {
                let mut polled = [PollFd::new(&terminal, PollFlags::OUT)];
                if matches!(poll(&mut polled, patience.as_ref()), Ok(0)) {
                    return Err(io::ErrorKind::TimedOut.into());
                }
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use rustix::{
        fs::{Mode, OFlags},
        pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt},
        termios::{LocalModes, Winsize, tcsetwinsize},
    };

    use super::*;

    fn terminal() -> (OwnedFd, OwnedFd) {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap();
        let slave = rustix::fs::open(name, OFlags::RDWR | OFlags::NOCTTY, Mode::empty()).unwrap();
        let size = Winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&master, size).unwrap();
        (master, slave)
    }

    fn modes(
        terminal: &OwnedFd,
    ) -> (LocalModes, rustix::termios::InputModes, rustix::termios::OutputModes) {
        let modes = tcgetattr(terminal).unwrap();
        (modes.local_modes, modes.input_modes, modes.output_modes)
    }

    /// Reads what was written and says which private modes are on.
    fn screen(master: &OwnedFd) -> vt100::Parser {
        let mut parser = vt100::Parser::new(24.try_into().unwrap(), 80.try_into().unwrap(), 0);
        let mut bytes = [0; 4096];
        let soon = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
        while poll(&mut [PollFd::new(master, PollFlags::IN)], Some(&soon)).unwrap() > 0 {
            let length = rustix::io::read(master, &mut bytes).unwrap();
            parser.process(&bytes[..length]);
        }
        parser
    }

    fn is_sane(parser: &vt100::Parser) {
        let screen = parser.screen();
        assert!(!screen.hide_cursor() && !screen.bracketed_paste());
    }

    #[test]
    fn every_way_out_puts_the_terminal_back() {
        type Way = fn(Guard);
        let ways: [(&str, Way); 4] = [
            ("the end", |guard| drop(guard)),
            ("a fault", |guard| {
                let fault = std::panic::catch_unwind(std::panic::AssertUnwindSafe(move || {
                    let _held = guard;
                    panic!("a fault");
                }));
                assert!(fault.is_err());
            }),
            ("an error", |guard| {
                let fails = move || -> io::Result<()> {
                    let _held = guard;
                    Err(io::ErrorKind::Other.into())
                };
                assert!(fails().is_err());
            }),
            ("twice", |guard| {
                Guard::leave();
                guard.enter_again().unwrap();
                Guard::leave();
                Guard::leave();
                drop(guard);
            }),
        ];
        for (name, way) in ways {
            let (master, slave) = terminal();
            let before = modes(&slave);
            let guard = Guard::enter(slave.try_clone().unwrap()).unwrap();
            let within = screen(&master);
            assert!(within.screen().hide_cursor() && within.screen().bracketed_paste(), "control");
            assert!(!modes(&slave).0.contains(LocalModes::ECHO), "control: {name}");
            // In the middle of a frame.
            write_all(&slave, b"\x1b[?2026h\x1b[?7lhalf \x1b[3", None).unwrap();
            way(guard);
            assert_eq!(modes(&slave), before, "{name}");
            is_sane(&screen(&master));
        }
    }

    #[test]
    fn the_hook_puts_it_back_before_the_message() {
        let (master, slave) = terminal();
        let before = modes(&slave);
        let guard = Guard::enter(slave.try_clone().unwrap()).unwrap();
        // A thread of its own: nothing unwinds through the guard.
        let fault = std::thread::spawn(|| panic!("a fault elsewhere")).join();
        assert!(fault.is_err());
        assert_eq!(modes(&slave), before);
        drop(guard);
        is_sane(&screen(&master));
    }

    #[test]
    fn what_is_no_terminal_is_refused() {
        let file = tempfile::tempfile().unwrap();
        assert!(Guard::enter(file.into()).is_err());
    }
}
