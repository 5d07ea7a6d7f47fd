//! The thread that writes frames, one at a time.

use std::{io, os::fd::OwnedFd, sync::mpsc as blocking, thread};

use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use super::super::guard::{write, write_frame};

/// What writes frames, one at a time.
pub(in crate::tui) struct Writer {
    frames: blocking::Sender<String>,
    done: UnboundedReceiver<bool>,
    /// Bytes that are being written.
    pub(in crate::tui) bytes: usize,
}

impl Writer {
    pub(in crate::tui) fn start(terminal: OwnedFd) -> io::Result<Self> {
        Self::through(terminal, |terminal, frame| write_frame(terminal, frame))
    }

    /// As [`Self::start`], for who does not share the terminal with anybody.
    pub(in crate::tui) fn alone(terminal: OwnedFd) -> io::Result<Self> {
        Self::through(terminal, |terminal, text| write(terminal, text.as_bytes(), None))
    }

    fn through(terminal: OwnedFd, write: fn(&OwnedFd, &str) -> io::Result<()>) -> io::Result<Self> {
        let (frames, inbox) = blocking::channel::<String>();
        let (outbox, done) = unbounded_channel();
        thread::Builder::new().name("kli-terminal".to_owned()).spawn(move || {
            for frame in inbox {
                let ok = write(&terminal, &frame).is_ok();
                if outbox.send(ok).is_err() || !ok {
                    return;
                }
            }
        })?;
        Ok(Self { frames, done, bytes: 0 })
    }

    pub(in crate::tui) fn is_busy(&self) -> bool {
        self.bytes > 0
    }

    pub(in crate::tui) fn write(&mut self, frame: String) {
        self.bytes += frame.len();
        // A thread that has ended has said so.
        drop(self.frames.send(frame));
    }

    /// Waits until the frame is written: false when it cannot be. Pends while nothing is written.
    pub(in crate::tui) async fn written(&mut self) -> bool {
        if self.bytes == 0 {
            return std::future::pending().await;
        }
        let ok = self.done.recv().await.unwrap_or(false);
        self.bytes = 0;
        ok
    }

    pub(in crate::tui) async fn idle(&mut self) {
        if self.bytes > 0 {
            self.written().await;
        }
    }
}
