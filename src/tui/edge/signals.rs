//! The signals that the interface listens for.

use std::io;

use rustix::process::Signal as Kill;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// What a signal means.
pub(super) enum SignalIs {
    Resized,
    Interrupt,
    End,
    Stop,
    GoOn,
}

/// All of them.
pub(super) struct Signals {
    resize: Signal,
    interrupt: Signal,
    terminate: Signal,
    hangup: Signal,
    stop: Signal,
    go_on: Signal,
}

impl Signals {
    pub(super) fn listen() -> io::Result<Self> {
        let raw = |signal: Kill| SignalKind::from_raw(signal.as_raw());
        Ok(Self {
            resize: signal(SignalKind::window_change())?,
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hangup: signal(SignalKind::hangup())?,
            stop: signal(raw(Kill::TSTP))?,
            go_on: signal(raw(Kill::CONT))?,
        })
    }

    pub(super) async fn next(&mut self) -> SignalIs {
        tokio::select! {
            biased;
            _ = self.terminate.recv() => SignalIs::End,
            _ = self.hangup.recv() => SignalIs::End,
            _ = self.interrupt.recv() => SignalIs::Interrupt,
            _ = self.go_on.recv() => SignalIs::GoOn,
            _ = self.stop.recv() => SignalIs::Stop,
            _ = self.resize.recv() => SignalIs::Resized,
        }
    }
}
