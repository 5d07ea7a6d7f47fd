//! The signals that ask a command to end, as its exit codes.

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::host;

/// The exit code after INT.
pub(crate) const INTERRUPTED: u8 = 130;
/// The exit code after TERM or HUP.
pub(crate) const TERMINATED: u8 = 143;

/// What listens to the signals. From its making on none of them ends the process by itself, so it
/// must be asked.
pub(crate) struct Signals {
    interrupt: Option<Signal>,
    terminate: Option<Signal>,
    hangup: Option<Signal>,
    /// Held, so that a write beyond the limit on file sizes is an error that can be said, and not
    /// the end of the process. A handler, as what is ignored would stay so in every tool.
    _file_size: Option<Signal>,
}

impl Signals {
    /// Starts to listen; to be called within a runtime. A hang-up that was ignored at the start
    /// stays so: that is what `nohup` asks for.
    pub(crate) fn listen() -> Self {
        let listen = |kind| signal(kind).ok();
        let hangup = SignalKind::hangup();
        Self {
            interrupt: listen(SignalKind::interrupt()),
            terminate: listen(SignalKind::terminate()),
            hangup: if host::process::ignores(hangup.as_raw_value()) {
                None
            } else {
                listen(hangup)
            },
            _file_size: listen(SignalKind::from_raw(libc::SIGXFSZ)),
        }
    }

    /// Waits for the next signal and returns the exit code that it asks for.
    pub(crate) async fn next(&mut self) -> u8 {
        tokio::select! {
            () = received(&mut self.interrupt) => INTERRUPTED,
            () = received(&mut self.terminate) => TERMINATED,
            () = received(&mut self.hangup) => TERMINATED,
        }
    }
}

async fn received(signal: &mut Option<Signal>) {
    match signal {
        Some(signal) => {
            signal.recv().await;
        }
        None => std::future::pending().await,
    }
}
