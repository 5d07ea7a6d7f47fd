//! From a request's bytes to the deltas of its answer, whatever the provider.
//!
//! It knows when an answer is complete and when it was cut off, and must not know what an event
//! means: that is the provider's [`Decoder`].

use std::collections::VecDeque;

use futures_util::stream::{self, BoxStream, StreamExt};

use super::{
    Class, Delta, ModelError,
    http::{Body, Target},
    sse::{Event, Parser},
};

/// The most bytes of events that one answer may have: several times what the longest answers of
/// models take, and little enough to be held in memory.
const MAX_ANSWER: usize = 64 * 1024 * 1024;

/// Reads a provider's events.
pub(super) trait Decoder: Send + 'static {
    /// Takes an event and appends what it delivers.
    ///
    /// # Errors
    /// What went wrong, as the rest of a sentence that starts with the host's name.
    fn event(&mut self, event: &Event, out: &mut Vec<Delta>) -> Result<(), Fault>;

    /// Returns whether [`Delta::Done`] has been delivered.
    fn complete(&self) -> bool;
}

/// Why an event ends the answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fault {
    /// What the caller may do.
    pub(super) class: Class,
    /// The rest of a sentence that starts with the host's name.
    pub(super) what: String,
    /// Whether the event could not be read at all, as half an event cannot.
    pub(super) garbled: bool,
}

/// Posts `body` and returns the answer as it comes.
pub(super) fn stream(
    target: Target,
    body: Vec<u8>,
    decoder: impl Decoder,
) -> BoxStream<'static, Result<Delta, ModelError>> {
    let answer = Answer {
        target,
        decoder,
        parser: Parser::new(),
        phase: Phase::Ask(body),
        taken: 0,
        ready: VecDeque::new(),
    };
    stream::unfold(answer, |mut answer| async { Some((answer.next().await?, answer)) }).boxed()
}

struct Answer<D> {
    target: Target,
    decoder: D,
    parser: Parser,
    phase: Phase,
    /// Bytes of the events so far.
    taken: usize,
    ready: VecDeque<Result<Delta, ModelError>>,
}

enum Phase {
    Ask(Vec<u8>),
    Read(Box<Body>),
    Over,
}

impl<D: Decoder> Answer<D> {
    async fn next(&mut self) -> Option<Result<Delta, ModelError>> {
        loop {
            if let Some(item) = self.ready.pop_front() {
                return Some(item);
            }
            match std::mem::replace(&mut self.phase, Phase::Over) {
                Phase::Over => return None,
                Phase::Ask(body) => match self.target.post(body).await {
                    Ok(body) => self.phase = Phase::Read(Box::new(body)),
                    Err(error) => return Some(Err(error)),
                },
                Phase::Read(body) => self.read(body).await,
            }
        }
    }

    async fn read(&mut self, mut body: Box<Body>) {
        let mut events = Vec::new();
        let more = body.read(&mut self.parser, &mut events).await;
        if let Some(fault) = self.deliver(&events) {
            let error = self.error(fault);
            self.ready.push_back(Err(error));
            return;
        }
        if self.decoder.complete() {
            body.drain().await;
            return;
        }
        match more {
            Ok(true) => self.phase = Phase::Read(body),
            Ok(false) => self.end(),
            Err(error) => self.ready.push_back(Err(error)),
        }
    }

    /// The connection has ended in peace. What is left in the parser may be a whole event that
    /// lacks its blank line, or half of one: that is the cut, and no fault of its own.
    fn end(&mut self) {
        let mut events = Vec::new();
        if self.parser.finish(&mut events).is_err() {
            events.clear();
        }
        let fault = self.deliver(&events).filter(|fault| !fault.garbled);
        if self.decoder.complete() {
            return;
        }
        let error = fault.map_or_else(|| self.target.cut(), |fault| self.error(fault));
        self.ready.push_back(Err(error));
    }

    /// Makes what the events deliver ready, up to the first fault.
    fn deliver(&mut self, events: &[Event]) -> Option<Fault> {
        let mut deltas = Vec::new();
        let mut fault = None;
        for event in events {
            if self.decoder.complete() || fault.is_some() {
                break;
            }
            self.taken = self.taken.saturating_add(event.data.len());
            fault = if self.taken > MAX_ANSWER {
                let what = format!("sends an answer without end: more than {MAX_ANSWER} bytes");
                Some(Fault { class: Class::Fatal, what, garbled: false })
            } else {
                self.decoder.event(event, &mut deltas).err()
            };
        }
        self.ready.extend(deltas.into_iter().map(Ok));
        fault
    }

    fn error(&self, Fault { class, what, .. }: Fault) -> ModelError {
        let message = format!("`{}` {}", self.target.host(), self.target.scrub(what));
        ModelError { class, message, network: false }
    }
}
