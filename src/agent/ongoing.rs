//! What goes on at the moment, and waiting for whatever of it comes first.

use std::{collections::VecDeque, sync::Arc};

use futures_util::{
    StreamExt as _,
    future::{BoxFuture, FutureExt as _},
    stream::BoxStream,
};
use tokio::{
    sync::mpsc::UnboundedReceiver,
    time::{Instant, sleep_until},
};

use crate::model::{Delta, ModelError};

use super::{
    Backlog, Op,
    timing::Stopwatch,
    turn::{CallResult, Input},
};

/// What is going on at the moment.
pub(super) struct Ongoing {
    pub(super) stream: Option<BoxStream<'static, Result<Delta, ModelError>>>,
    pub(super) work: Option<BoxFuture<'static, ()>>,
    pub(super) results: Option<UnboundedReceiver<CallResult>>,
    pub(super) retry_at: Option<Instant>,
    pub(super) deadline: Option<Instant>,
    pub(super) backlog: Arc<Backlog>,
    pub(super) watch: Stopwatch,
}

pub(super) enum Happened {
    Op(Option<Op>),
    Stream(Option<Result<Delta, ModelError>>),
    Result(CallResult),
    WorkDone,
    RetryDue,
    Deadline,
    Room,
}

impl Ongoing {
    /// Ends the stream, the tools and the wait for a retry.
    pub(super) fn cut_off(&mut self) {
        self.stream = None;
        self.work = None;
        self.results = None;
        self.retry_at = None;
    }

    /// Waits for whatever comes first. Calls and their results come before signals: what a call has
    /// done by then is told as it was, though nobody had looked at it yet, and there are no more of
    /// them than calls. Signals come before the stream, so that a fast stream cannot starve an
    /// interrupt.
    pub(super) async fn next(
        &mut self,
        held: &mut VecDeque<Op>,
        ops: &mut UnboundedReceiver<Op>,
        open: bool,
    ) -> Happened {
        let Self { stream, work, results, retry_at, deadline, backlog, .. } = self;
        let full = stream.is_some() && backlog.is_full();
        tokio::select! {
            biased;
            // First: a call that has ended puts its result there when it is looked at.
            () = ended(work) => Happened::WorkDone,
            result = next_result(results) => Happened::Result(result),
            op = next_op(held, ops), if open || !held.is_empty() => Happened::Op(op),
            () = at(*deadline) => Happened::Deadline,
            () = backlog.room(), if full => Happened::Room,
            delta = next_delta(stream), if !full => Happened::Stream(delta),
            () = at(*retry_at) => Happened::RetryDue,
        }
    }
}

async fn at(instant: Option<Instant>) {
    match instant {
        Some(instant) => sleep_until(instant).await,
        None => std::future::pending().await,
    }
}

async fn next_result(results: &mut Option<UnboundedReceiver<CallResult>>) -> CallResult {
    if let Some(receiver) = results {
        if let Some(result) = receiver.recv().await {
            return result;
        }
        *results = None;
    }
    std::future::pending().await
}

async fn next_delta(
    stream: &mut Option<BoxStream<'static, Result<Delta, ModelError>>>,
) -> Option<Result<Delta, ModelError>> {
    match stream {
        Some(stream) => stream.next().await,
        None => std::future::pending().await,
    }
}

/// Returns the operation that came first: one that was held back, else the next.
async fn next_op(held: &mut VecDeque<Op>, ops: &mut UnboundedReceiver<Op>) -> Option<Op> {
    match held.pop_front() {
        Some(op) => Some(op),
        None => ops.recv().await,
    }
}

/// Takes what was said to the turn by now, up to the first operation of another kind: that one waits for
/// its time, as results come before signals.
pub(super) fn said_by_now(held: &mut VecDeque<Op>, ops: &mut UnboundedReceiver<Op>) -> Vec<Input> {
    let mut said = Vec::new();
    while let Some(op) = held.pop_front().or_else(|| ops.try_recv().ok()) {
        match op {
            Op::Steer(text) => said.push(Input::Steer(text)),
            Op::Compact { focus } => said.push(Input::Compact(focus)),
            other => {
                held.push_front(other);
                break;
            }
        }
    }
    said
}

async fn ended(work: &mut Option<BoxFuture<'static, ()>>) {
    match work {
        Some(work) => work.as_mut().map(|()| ()).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests;
