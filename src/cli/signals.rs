//! The signals that ask a command to end, as its exit codes.

use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};

use super::{error::CliError, terminal};
use crate::host;

/// How long something may take before it is said what is waited for.
const SILENCE: Duration = Duration::from_secs(3);

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

impl Signals {
    /// Does what may block for long on a thread of its own; the inner error is the exit code of a
    /// signal that came first, and the thread is left to itself then. When it takes long, `waiting`
    /// is said.
    ///
    /// # Errors
    /// For a fault of kli's own.
    pub(crate) async fn attend<T: Send + 'static>(
        &mut self,
        waiting: &str,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<Result<T, u8>, CliError> {
        let mut working = tokio::task::spawn_blocking(work);
        let mut said = false;
        loop {
            tokio::select! {
                biased;
                code = self.next() => return Ok(Err(code)),
                done = &mut working => return done.map(Ok).map_err(|error| {
                    CliError::internal(format!("the run cannot begin: {error}"))
                }),
                () = tokio::time::sleep(SILENCE), if !said => {
                    said = true;
                    terminal::note(&format!("kli: {waiting}"));
                }
            }
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
