//! Live output: handed on as text while it comes, not faster than people can use it.

use std::time::{Duration, Instant};

use super::Sink;
use crate::host::process;

/// The most bytes of live output within [`LIVE_WINDOW`]; more is not shown live.
const LIVE_BYTES: usize = 32_768;
const LIVE_WINDOW: Duration = Duration::from_millis(100);

/// Hands output to the sink as text while it comes, not faster than people can use it.
pub(super) struct Live<'a> {
    sink: &'a Sink,
    /// The start of a character that is not complete yet.
    pending: Vec<u8>,
    window: Instant,
    sent: usize,
}

impl<'a> Live<'a> {
    pub(super) fn new(sink: &'a Sink) -> Self {
        Self { sink, pending: Vec::new(), window: Instant::now(), sent: 0 }
    }

    pub(super) fn show(&mut self, bytes: &[u8]) {
        if self.window.elapsed() > LIVE_WINDOW {
            self.window = Instant::now();
            self.sent = 0;
        }
        if self.sent > LIVE_BYTES {
            self.pending.clear();
            return;
        }
        self.sent = self.sent.saturating_add(bytes.len());
        self.pending.extend_from_slice(bytes);
        let complete = self.pending.len().saturating_sub(process::unfinished(&self.pending));
        let rest = self.pending.split_off(complete);
        let text = std::mem::replace(&mut self.pending, rest);
        if !text.is_empty() {
            (self.sink)(&String::from_utf8_lossy(&text));
        }
    }
}
