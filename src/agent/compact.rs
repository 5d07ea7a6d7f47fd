//! Compaction: how a conversation that no longer fits the model's context window is made shorter, as
//! pure functions. Results of tools are trimmed first; what is still too long is told by the model in
//! a summary. `docs/sessions.md` has the rules.
//!
//! It must not know the turn's machine, the network or the session's file. Invariants: a call and its
//! results stay or go together; the last thing that the person said is kept word for word; what is
//! kept keeps its order.

mod transcript;

use std::{collections::HashMap, fmt};

use schemars::JsonSchema;
use serde::Serialize;

use crate::{
    message::{Arguments, Block, Message, Role, Usage},
    model::{Request, ToolSpec},
};

pub use transcript::{SYSTEM, request};

/// How a summary begins in the conversation that goes on.
pub const SUMMARY: &str = "[summary of the conversation so far; what it tells of is done]\n\n";

/// Results up to this many bytes are never trimmed: the mark in their place is about as long.
const SHORT: usize = 400;

/// The longest summary that is taken, in bytes.
const SUMMARY_MOST: usize = 24 << 10;

/// When and how far conversations are made shorter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Whether it is done unasked at the threshold. A model that says that its window is full makes
    /// it be done all the same.
    pub enabled: bool,
    /// From which part of the window on, in per cent.
    pub threshold: u64,
    /// How much of the latest is kept as it is, in tokens.
    pub keep: u64,
    /// The most of a model's window that is used, in tokens. `None`: all of it, and where nobody knows
    /// how much that is, only the model can tell.
    pub window: Option<u64>,
}

impl Policy {
    /// The part of the window at which it is done when nobody says.
    pub const THRESHOLD: u64 = 80;
    /// What is kept when nobody says, in tokens.
    pub const KEEP: u64 = 20_000;

    /// Returns the bound in tokens; `None` when there is none.
    pub fn limit(&self) -> Option<u64> {
        self.window.map(|window| window.saturating_mul(self.threshold.min(100)) / 100)
    }
}

impl Default for Policy {
    fn default() -> Self {
        Self { enabled: true, threshold: Self::THRESHOLD, keep: Self::KEEP, window: None }
    }
}

/// Why a conversation was made shorter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Reason {
    /// It reached the threshold.
    Threshold,
    /// The model said that its context window is full.
    ContextFull,
    /// A person asked for it.
    Asked,
}

/// What was done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Compacted {
    /// Why.
    pub reason: Reason,
    /// About how many tokens a request had before.
    pub before: u64,
    /// About how many it has now.
    pub after: u64,
    /// Results that stand as a mark now, or cut.
    pub trimmed: usize,
    /// Messages that the summary stands for.
    pub summarised: usize,
    /// The summary; `None` when trimming was enough, or all that could be had.
    pub summary: Option<String>,
}

impl fmt::Display for Compacted {
    /// Writes the sentence for people.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { before, after, .. } = self;
        write!(f, "the conversation was compacted from about {before} to {after} tokens ")?;
        match (self.trimmed, self.summarised) {
            (trimmed, 0) => write!(f, "({trimmed} results trimmed)"),
            (_, summarised) => write!(f, "({summarised} messages summarised)"),
        }
    }
}

/// Returns about how many tokens a text has: a token for every four bytes, which is high for English
/// and code and low for some other scripts; the gauge corrects it by what the provider counts.
pub fn tokens_of(bytes: usize) -> u64 {
    (bytes as u64).div_ceil(4)
}

/// Returns about how many tokens every request has besides the conversation.
pub fn base(system: &str, tools: &[ToolSpec]) -> u64 {
    let tools = tools
        .iter()
        .map(|tool| tool.name.len() + tool.description.len() + tool.schema.to_string().len());
    tokens_of(system.len()).saturating_add(tools.map(tokens_of).sum())
}

/// Returns the request for a summary. No tools are offered: it can do nothing.
pub fn summariser(message: Message) -> Request {
    Request { system: SYSTEM.to_owned(), messages: vec![message], ..Request::default() }
}

/// Returns about how many tokens a message has.
pub fn tokens(message: &Message) -> u64 {
    let blocks = message.blocks.iter().map(|block| match block {
        Block::Text { text } => text.len(),
        Block::Opaque { value, .. } => value.to_string().len(),
        Block::Call(call) => {
            let arguments = match &call.arguments {
                Arguments::Object(map) => {
                    serde_json::to_string(map).map_or(0, |arguments| arguments.len())
                }
                Arguments::Malformed(text) => text.len(),
            };
            call.id.len() + call.name.len() + arguments
        }
        Block::Result(result) => result.call.len() + result.text.len(),
    });
    // What a wire format puts around a message and its blocks.
    let around = 4 * (message.blocks.len() as u64 + 1);
    around + blocks.map(tokens_of).sum::<u64>()
}

/// How much of the window a conversation fills: an estimate, corrected by every count of the provider.
#[derive(Clone, Copy, Debug)]
pub struct Gauge {
    /// The estimate of the system prompt and the tools.
    base: u64,
    /// The estimate of the messages.
    raw: u64,
    /// Counted tokens for a thousand estimated ones.
    scale: u64,
}

impl Gauge {
    /// Starts with an estimate of what every request carries besides the conversation, in tokens.
    pub fn new(base: u64, history: &[Message]) -> Self {
        Self { base, raw: history.iter().map(tokens).sum(), scale: 1000 }
    }

    /// Counts a message that was added.
    pub fn add(&mut self, message: &Message) {
        self.raw = self.raw.saturating_add(tokens(message));
    }

    /// Takes over what the provider counted for the request with the conversation as it stands. A
    /// count of nothing, or one that is off by more than a factor of eight, is not believed that far.
    pub fn measured(&mut self, usage: Usage) {
        let sent = Usage { output_tokens: 0, ..usage }.total();
        let estimate = self.base.saturating_add(self.raw);
        if sent > 0 && estimate > 0 {
            self.scale = (sent.saturating_mul(1000) / estimate).clamp(250, 8000);
        }
    }

    /// Takes another conversation in the place of the one that was counted.
    pub fn replace(&mut self, messages: &[Message]) {
        self.raw = messages.iter().map(tokens).sum();
    }

    /// Returns about how many tokens the next request has.
    pub fn now(&self) -> u64 {
        self.scaled(self.base.saturating_add(self.raw))
    }

    /// Returns about how many tokens of a request are instructions and tools.
    pub fn base(&self) -> u64 {
        self.scaled(self.base)
    }

    /// Returns about how many tokens a request with these messages would have.
    pub fn of(&self, messages: &[Message]) -> u64 {
        self.scaled(self.base.saturating_add(messages.iter().map(tokens).sum()))
    }

    /// Turns counted tokens into estimated ones.
    pub fn unscaled(&self, tokens: u64) -> u64 {
        tokens.saturating_mul(1000) / self.scale.max(1)
    }

    fn scaled(&self, estimate: u64) -> u64 {
        estimate.saturating_mul(self.scale) / 1000
    }
}

/// Says whether a conversation may be cut before a message: it carries no result of a call before it.
fn may_begin(message: &Message) -> bool {
    !message.blocks.iter().any(|block| matches!(block, Block::Result(_)))
}

/// Returns where the part of the conversation begins that is kept as it is: as much of the latest as
/// `keep` tokens (estimated) hold, and at least the last message with what belongs to it.
pub fn boundary(history: &[Message], keep: u64) -> usize {
    let (mut sum, mut best) = (0_u64, None);
    for (index, message) in history.iter().enumerate().rev() {
        sum = sum.saturating_add(tokens(message));
        if may_begin(message) {
            if sum > keep {
                return best.unwrap_or(index);
            }
            best = Some(index);
        }
    }
    // A history that begins with results is not cut there.
    best.unwrap_or(0)
}

/// Puts marks in the place of long results before `boundary`, and cuts those after it that alone are
/// longer than `most` bytes. Returns the conversation with how many results that were.
pub fn trim(history: &[Message], boundary: usize, most: usize) -> (Vec<Message>, usize) {
    let mut names: HashMap<&str, String> = HashMap::new();
    for call in history.iter().flat_map(Message::calls) {
        names.insert(&call.id, transcript::called(call));
    }
    let mut trimmed = 0;
    let messages = history.iter().enumerate().map(|(index, message)| {
        let mut message = message.clone();
        for block in &mut message.blocks {
            let Block::Result(result) = block else { continue };
            let shorter = if index < boundary {
                let name = names.get(result.call.as_str()).map_or("a call", String::as_str);
                (result.text.len() > SHORT).then(|| mark(name, &result.text))
            } else {
                (result.text.len() > most.max(SHORT)).then(|| cut(&result.text, most.max(SHORT)))
            };
            if let Some(text) = shorter.filter(|text| text.len() < result.text.len()) {
                result.text = text;
                trimmed += 1;
            }
        }
        message
    });
    (messages.collect(), trimmed)
}

/// What stands in the place of a result: one line that says how much it was and how to get it back.
fn mark(name: &str, text: &str) -> String {
    let again = handle(text).map_or_else(
        || "make the call again to see it".to_owned(),
        |handle| format!("read_result with handle `{handle}` shows it, or make the call again"),
    );
    let (bytes, lines) = (text.len(), text.lines().count());
    format!(
        "[left out to save room: the result of {name}, {bytes} bytes on {lines} lines; {again}]"
    )
}

/// Returns the handle under which a result says that the whole of it is kept.
fn handle(text: &str) -> Option<&str> {
    const BEFORE: &str = "read_result with handle `";
    let rest = text.get(text.rfind(BEFORE)? + BEFORE.len()..)?;
    rest.split_once('`').map(|(handle, _)| handle).filter(|handle| handle.len() <= 64)
}

/// Returns at most so many bytes of a text, two thirds from its beginning and one from its end, with
/// what is missing said between them.
pub(super) fn cut(text: &str, most: usize) -> String {
    if text.len() <= most {
        return text.to_owned();
    }
    let room = most.saturating_sub(80);
    let head = text.floor_char_boundary(room / 3 * 2);
    let tail = text.ceil_char_boundary(text.len().saturating_sub(room / 3));
    let missing = tail.saturating_sub(head);
    let (start, end) = (text.get(..head).unwrap_or_default(), text.get(tail..).unwrap_or_default());
    format!("{start}\n[… {missing} bytes left out to save room …]\n{end}")
}

/// Returns the conversation that goes on after a summary: the summary, what the person said before
/// `boundary` as far as `words` bytes hold it, the latest first, and what comes from `boundary` on.
/// The last thing that the person said is there in any case.
pub fn summarised(
    history: &[Message],
    boundary: usize,
    summary: &str,
    words: usize,
) -> Vec<Message> {
    let (old, recent) = history.split_at(boundary.min(history.len()));
    let mut blocks = vec![Block::Text { text: format!("{SUMMARY}{}", shortened(summary)) }];
    let is_answered = recent.iter().any(|message| said(message, false).next().is_some());
    let mut room = words;
    let mut must = !is_answered;
    let mut kept: Vec<Block> = Vec::new();
    for text in old.iter().enumerate().rev().flat_map(|(index, message)| {
        said(message, index == 0).collect::<Vec<_>>().into_iter().rev()
    }) {
        if !std::mem::take(&mut must) && text.len() > room {
            break;
        }
        room = room.saturating_sub(text.len());
        kept.push(Block::Text { text: text.to_owned() });
    }
    blocks.extend(kept.into_iter().rev());
    let mut messages = vec![Message { role: Role::User, blocks }];
    messages.extend_from_slice(recent);
    messages
}

/// Returns a summary no longer than is taken.
pub fn shortened(summary: &str) -> String {
    cut(summary.trim(), SUMMARY_MOST)
}

/// Iterates over the texts of the person in a message. A summary of an earlier compaction, which only
/// the first message of a conversation can hold, is none.
fn said(message: &Message, is_first: bool) -> impl Iterator<Item = &str> {
    let is_summary =
        move |(index, text): &(usize, &str)| is_first && *index == 0 && text.starts_with(SUMMARY);
    let texts =
        message.blocks.iter().filter(|_| message.role == Role::User).filter_map(
            |block| match block {
                Block::Text { text } if !text.is_empty() => Some(text.as_str()),
                _ => None,
            },
        );
    texts.enumerate().filter(move |pair| !is_summary(pair)).map(|(_, text)| text)
}

/// Returns the last thing that the person said.
pub fn last_said(history: &[Message]) -> Option<&str> {
    history.iter().enumerate().rev().find_map(|(index, message)| said(message, index == 0).last())
}

#[cfg(test)]
pub(super) mod tests;
