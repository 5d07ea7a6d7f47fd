//! Where the time of a prompt went, as the driver saw it. All times are wall time.

use std::time::Duration;

use tokio::time::Instant;

/// Where the time of one prompt went.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Timings {
    /// From the submission to the first request; `None` when none was made.
    pub first_request: Option<Duration>,
    /// Bytes of the first request's body; `None` when the provider sends none.
    pub first_request_bytes: Option<u64>,
    /// Each turn, in order.
    pub turns: Vec<TurnTimes>,
}

/// Where the time of one turn went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TurnTimes {
    /// From the request to the first piece of the answer; `None` when none came.
    pub first: Option<Duration>,
    /// From the request to the end of the answer, failed tries and the waits between them included.
    pub model: Duration,
    /// From the answer to the last result of its calls.
    pub tools: Duration,
}

/// Takes the times of one prompt.
#[derive(Debug)]
pub(super) struct Stopwatch {
    submitted: Instant,
    phase: Phase,
    timings: Timings,
}

#[derive(Clone, Copy, Debug)]
enum Phase {
    Idle,
    Model(Instant),
    Tools(Instant),
}

impl Stopwatch {
    /// Starts at a submission.
    pub(super) fn start() -> Self {
        Self { submitted: Instant::now(), phase: Phase::Idle, timings: Timings::default() }
    }

    /// Returns the time since the submission.
    pub(super) fn elapsed(&self) -> Duration {
        self.submitted.elapsed()
    }

    /// A turn begins: its request is about to be made.
    pub(super) fn turn(&mut self) {
        self.stop();
        self.timings.first_request.get_or_insert_with(|| self.submitted.elapsed());
        self.timings.turns.push(TurnTimes::default());
        self.phase = Phase::Model(Instant::now());
    }

    /// The first request has so many bytes.
    pub(super) fn request(&mut self, bytes: impl FnOnce() -> Option<u64>) {
        if self.timings.first_request_bytes.is_none() && self.timings.turns.len() == 1 {
            self.timings.first_request_bytes = bytes();
        }
    }

    /// A piece of the answer came.
    pub(super) fn piece(&mut self) {
        if let (Phase::Model(since), Some(turn)) = (self.phase, self.timings.turns.last_mut()) {
            turn.first.get_or_insert_with(|| since.elapsed());
        }
    }

    /// The calls of the answer start.
    pub(super) fn work(&mut self) {
        self.stop();
        self.phase = Phase::Tools(Instant::now());
    }

    /// Ends the phase that is going on.
    pub(super) fn stop(&mut self) {
        if let Some(turn) = self.timings.turns.last_mut() {
            match self.phase {
                Phase::Model(since) => turn.model += since.elapsed(),
                Phase::Tools(since) => turn.tools += since.elapsed(),
                Phase::Idle => {}
            }
        }
        self.phase = Phase::Idle;
    }

    /// Returns what was taken.
    pub(super) fn timings(&self) -> Timings {
        self.timings.clone()
    }
}
