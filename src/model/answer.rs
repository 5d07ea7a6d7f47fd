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

use crate::message::Block;

use super::{
    Class, Delta, ModelError, Request,
    failure::plain,
    http::{Body, Target},
    sse::{Event, Parser},
};

/// The most bytes of events that one answer may have: several times what the longest answers of
/// models take, and little enough to be held in memory.
const MAX_ANSWER: usize = 64 * 1024 * 1024;

/// The most calls that one answer may have: many times what models ask for at once. Work on calls
/// takes time with the square of their number.
pub(super) const MAX_CALLS: usize = 1000;

/// Reads a provider's events.
pub(super) trait Decoder: Send + 'static {
    /// Takes an event and appends what it delivers.
    ///
    /// # Errors
    /// What went wrong, as the rest of a sentence that starts with the host's name.
    fn event(&mut self, event: &Event, out: &mut Vec<Delta>) -> Result<(), Fault>;

    /// Returns whether [`Delta::Done`] has been delivered.
    fn complete(&self) -> bool;

    /// Returns whether a part of the answer has come that was not delivered.
    fn holds(&self) -> bool;

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

/// The body without something that a server may refuse.
#[derive(Debug)]
pub(super) struct Without {
    /// What the refusal says then: a field's name, or other words.
    pub(super) field: &'static str,
    /// The body without it.
    pub(super) body: Vec<u8>,
    /// Set when it was refused, so that the next request leaves it out.
    pub(super) refused: Arc<AtomicBool>,
}

impl Without {
    /// Returns what to send when a server refuses the thinking of its own model, as it does when the
    /// account has changed; `None` where there is none in the request.
    pub(super) fn thinking(
        name: &str,
        request: &Request,
        field: &'static str,
        refused: &Arc<AtomicBool>,
        body: impl FnOnce() -> Vec<u8>,
    ) -> Option<Self> {
        let own = |block: &Block| matches!(block, Block::Opaque { model, .. } if model == name);
        let there = request.messages.iter().flat_map(|message| &message.blocks).any(own);
        let is_new = there && !refused.load(Ordering::Relaxed);
        is_new.then(|| Self { field, body: body(), refused: Arc::clone(refused) })
    }
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

impl Fault {
    /// The answer has more than [`MAX_CALLS`] calls.
    pub(super) fn too_many_calls() -> Self {
        let what = format!("asks for more than {MAX_CALLS} calls in one answer");
        Self { class: Class::Fatal, what, garbled: false }
    }
}

/// Reads the data of an event. Half a character that is escaped (`\ud83d` alone) is no JSON for the
/// parser, but some servers cut their pieces between the two; it is read as U+FFFD.
///
/// # Errors
/// The start of what is not JSON.
pub(super) fn json(data: &str) -> Result<Value, Fault> {
    serde_json::from_str(data)
        .or_else(|error| serde_json::from_str(&whole_characters(data).ok_or(error)?))
        .map_err(|_| Fault {
            class: Class::Retry { after: None },
            what: format!("sent an event that is not JSON: {}", plain(data, 200)),
            garbled: true,
        })
}

/// Replaces escapes of halves of a character; `None` when there are none.
fn whole_characters(json: &str) -> Option<String> {
    // The code unit of an escape right here.
    let unit = |at: usize| {
        let digits = json.get(at..)?.strip_prefix("\\u")?.get(..4)?;
        u32::from_str_radix(digits, 16).ok()
    };
    let (mut out, mut done, mut at) = (String::new(), 0, 0);
    while let Some(next) = json.get(at..).and_then(|rest| memchr::memchr(b'\\', rest.as_bytes())) {
        at += next;
        let length = match (unit(at), unit(at + 6)) {
            (Some(0xd800..=0xdbff), Some(0xdc00..=0xdfff)) => 12,
            (Some(0xd800..=0xdfff), _) => {
                out.push_str(json.get(done..at)?);
                out.push_str("\\ufffd");
                done = at + 6;
                6
            }
            (Some(_), _) => 6,
            // Another escape; what is behind the backslash may be one itself.
            (None, _) => 1 + json.get(at + 1..)?.chars().next().map_or(0, char::len_utf8),
        };
        at += length;
    }
    out.push_str(json.get(done..)?);
    (done > 0).then_some(out)
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
        begun: false,
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
    /// Whether anything of the answer was delivered.
    begun: bool,
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
            if deltas.is_empty() && !self.begun && self.decoder.holds() {
                deltas.push(Delta::Begun);
            }
            self.begun |= !deltas.is_empty();
        }
        self.ready.extend(deltas.into_iter().map(Ok));
        fault
    }

    fn error(&self, Fault { class, what, .. }: Fault) -> ModelError {
        let message = format!("`{}` {}", self.target.host(), self.target.scrub(what));
        ModelError { class, message, network: false }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::json;

    #[test]
    fn half_a_character_costs_that_character_and_no_more() {
        for (data, wanted) in [
            (r#"["a\ud83d"]"#, json!(["a\u{fffd}"])),
            (r#"["\ude00b"]"#, json!(["\u{fffd}b"])),
            (r#"["\ud83d\ud83d\ude00\ud83dx"]"#, json!(["\u{fffd}😀\u{fffd}x"])),
            (r#"["\\ud83d", "é\ud83d"]"#, json!(["\\ud83d", "é\u{fffd}"])),
            (r#"["\ud83d\n\u00e9"]"#, json!(["\u{fffd}\né"])),
            (r#"["\ud83d\ude00"]"#, json!(["😀"])),
        ] {
            assert_eq!(json(data).unwrap(), wanted, "{data}");
        }
        for data in [r#"["\ud83d"#, r#"["\ud8"]"#, r#"["\"#, "\\ud83d", "é"] {
            assert!(json(data).unwrap_err().garbled, "{data}");
        }
    }
}
