//! From a request's bytes to the deltas of its answer, whatever the provider.
//!
//! It knows when an answer is complete and when it was cut off, and must not know what an event
//! means: that is the provider's [`Decoder`].

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use futures_util::stream::{self, BoxStream, StreamExt};
use serde_json::Value;

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

    /// Nothing more comes, in peace or not: delivers the rest, with [`Delta::Done`], if the answer
    /// was whole already but for its end mark.
    fn end(&mut self, _out: &mut Vec<Delta>) {}
}

/// A request's body and what is known about it.
#[derive(Debug)]
pub(super) struct Ask {
    /// The body.
    pub(super) body: Vec<u8>,
    /// The fields that the user chose: a refusal that names one says where it came from.
    pub(super) options: Arc<BTreeMap<String, Value>>,
    /// What to send when a server refuses a field that can be done without.
    pub(super) without: Option<Without>,
}

/// The body without a field that not every server knows.
#[derive(Debug)]
pub(super) struct Without {
    /// The field's name, which the refusal names.
    pub(super) field: &'static str,
    /// The body without it.
    pub(super) body: Vec<u8>,
    /// Set when it was refused, so that the next request leaves it out.
    pub(super) refused: Arc<AtomicBool>,
}

impl Ask {
    /// Returns what to send after a refusal, if that is worth a second try.
    fn after(self, error: &ModelError) -> Option<Self> {
        let declined = matches!(error.class, Class::Refused | Class::Fatal) && !error.network;
        let without = self.without?;
        if !declined || !error.message.contains(without.field) {
            return None;
        }
        without.refused.store(true, Ordering::Relaxed);
        Some(Self { body: without.body, options: self.options, without: None })
    }
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

/// Adds to a refusal which option of the user's it names.
fn blame(mut error: ModelError, options: &BTreeMap<String, Value>) -> ModelError {
    let part = |c: char| c.is_alphanumeric() || c == '_';
    let named = |option: &&String| error.message.split(|c| !part(c)).any(|word| word == *option);
    if let (Class::Refused, Some(option)) = (&error.class, options.keys().find(named)) {
        let words = ["; `", option, "` is one of your model options: if that is meant, mend it"];
        error.message.extend(words);
    }
    error
}

/// Posts the request and returns the answer as it comes.
pub(super) fn stream(
    target: Target,
    ask: Ask,
    decoder: impl Decoder,
) -> BoxStream<'static, Result<Delta, ModelError>> {
    let answer = Answer {
        target,
        decoder,
        parser: Parser::new(),
        phase: Phase::Ask(ask),
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
    Ask(Ask),
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
                Phase::Ask(mut ask) => {
                    let options = Arc::clone(&ask.options);
                    match self.target.post(std::mem::take(&mut ask.body)).await {
                        Ok(body) => self.phase = Phase::Read(Box::new(body)),
                        Err(error) => match ask.after(&error) {
                            Some(again) => self.phase = Phase::Ask(again),
                            None => return Some(Err(blame(error, &options))),
                        },
                    }
                }
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
            Err(error) if self.is_whole() => drop(error),
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
        if self.decoder.complete() || (fault.is_none() && self.is_whole()) {
            return;
        }
        let error = fault.map_or_else(|| self.target.cut(), |fault| self.error(fault));
        self.ready.push_back(Err(error));
    }

    /// Whether only the end mark is missing: the answer is complete then.
    fn is_whole(&mut self) -> bool {
        let mut deltas = Vec::new();
        self.decoder.end(&mut deltas);
        self.ready.extend(deltas.into_iter().map(Ok));
        self.decoder.complete()
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
