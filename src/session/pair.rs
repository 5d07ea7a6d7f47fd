//! Calls and their results: every call has one, every result has its call.
//!
//! Providers refuse a history in which that does not hold, and a run that was killed leaves one.

use std::collections::{HashMap, HashSet};

use crate::message::{Block, Message, Role, ToolResult};

/// What the model is told about a call whose result was never recorded.
pub const NO_RESULT: &str = "interrupted: no result was recorded";

/// What the model is told of a conversation that begins with its own words.
const NO_BEGINNING: &str = "(the beginning of this conversation was lost)";

/// Gives every call exactly one result, in the user message right after it and before anything else
/// there. A call without a result gets an error result ([`NO_RESULT`]); a result without its call,
/// a second result, a second call of the same identifier in one message, a call by the user, and
/// messages that hold nothing are dropped. A call with an identifier that an earlier message used
/// gets another one, with its result. What is in order already is not changed.
pub fn pair(messages: Vec<Message>) -> Vec<Message> {
    let (stripped, mut results) = strip(messages);
    let mut paired: Vec<Message> = Vec::with_capacity(stripped.len());
    let mut owed: Vec<Block> = Vec::new();
    for (index, mut message) in stripped {
        if !owed.is_empty() {
            let mut blocks = std::mem::take(&mut owed);
            if message.role == Role::User {
                blocks.append(&mut message.blocks);
                message.blocks = blocks;
            } else {
                paired.push(Message { role: Role::User, blocks });
            }
        }
        if message.blocks.is_empty() {
            continue;
        }
        owed = owed_by(&message, results.remove(&index).unwrap_or_default());
        paired.push(message);
    }
    if !owed.is_empty() {
        paired.push(Message { role: Role::User, blocks: owed });
    }
    tell_apart(&mut paired);
    paired
}

/// Lets a history begin with the user, as providers demand: where its beginning was lost, the model is
/// told.
pub(super) fn begin(mut messages: Vec<Message>) -> Vec<Message> {
    if messages.first().is_some_and(|first| first.role == Role::Assistant) {
        messages.insert(0, Message::user(NO_BEGINNING));
    }
    messages
}

/// Gives every call of a paired history an identifier of its own.
fn tell_apart(paired: &mut [Message]) {
    let mut used: HashSet<String> = HashSet::new();
    // How often an identifier was met, and what it is called in the latest message.
    let mut met: HashMap<String, u64> = HashMap::new();
    let mut renamed: HashMap<String, String> = HashMap::new();
    for message in paired {
        if message.role == Role::Assistant {
            renamed.clear();
        }
        for block in &mut message.blocks {
            match block {
                Block::Call(call) if !used.insert(call.id.clone()) => {
                    let number = met.entry(call.id.clone()).or_insert(1);
                    let other = loop {
                        *number += 1;
                        let other = format!("{}_{number}", call.id);
                        if used.insert(other.clone()) {
                            break other;
                        }
                    };
                    renamed.insert(std::mem::replace(&mut call.id, other.clone()), other);
                }
                Block::Result(result) => {
                    if let Some(other) = renamed.get(&result.call) {
                        result.call.clone_from(other);
                    }
                }
                Block::Call(_) | Block::Text { .. } | Block::Opaque { .. } => {}
            }
        }
    }
}

/// Counts the calls that [`pair`] has to answer itself.
pub(super) fn unanswered(messages: &[Message]) -> usize {
    let mut open: HashSet<&str> = HashSet::new();
    let mut lost = 0;
    for message in messages {
        for block in &message.blocks {
            match block {
                Block::Call(call) if message.role == Role::Assistant => {
                    lost += usize::from(!open.insert(&call.id));
                }
                Block::Result(result) => {
                    open.remove(result.call.as_str());
                }
                Block::Call(_) | Block::Text { .. } | Block::Opaque { .. } => {}
            }
        }
    }
    lost + open.len()
}

/// The messages without any result, with their old places; and the results of each place's calls,
/// in the order in which they were recorded.
type Stripped = (Vec<(usize, Message)>, HashMap<usize, Vec<ToolResult>>);

fn strip(messages: Vec<Message>) -> Stripped {
    // Who waits for a result: identifier -> the place of the message with the call. An identifier
    // that is used again belongs to the later call.
    let mut waiting: HashMap<String, usize> = HashMap::new();
    let mut results: HashMap<usize, Vec<ToolResult>> = HashMap::new();
    let mut stripped = Vec::with_capacity(messages.len());
    for (index, mut message) in messages.into_iter().enumerate() {
        let mut own: HashSet<String> = HashSet::new();
        let role = message.role;
        let mut left = Vec::with_capacity(message.blocks.len());
        for block in message.blocks {
            match block {
                Block::Result(result) => {
                    if let Some(place) = waiting.remove(&result.call) {
                        results.entry(place).or_default().push(result);
                    }
                }
                Block::Call(call) => {
                    if role == Role::Assistant && own.insert(call.id.clone()) {
                        waiting.insert(call.id.clone(), index);
                        left.push(Block::Call(call));
                    }
                }
                other => left.push(other),
            }
        }
        message.blocks = left;
        stripped.push((index, message));
    }
    // A message of the model with nothing left may have stood between a call and its answer. One of
    // the user stays until then, as it may be where the answer belongs.
    stripped.retain(|(_, message)| message.role == Role::User || !message.blocks.is_empty());
    (stripped, results)
}

fn owed_by(message: &Message, recorded: Vec<ToolResult>) -> Vec<Block> {
    let answered: HashSet<String> = recorded.iter().map(|result| result.call.clone()).collect();
    let missing = message.calls().filter(|call| !answered.contains(&call.id)).map(|call| {
        ToolResult { call: call.id.clone(), text: NO_RESULT.to_owned(), is_error: true }
    });
    let missing: Vec<ToolResult> = missing.collect();
    recorded.into_iter().chain(missing).map(Block::Result).collect()
}

#[cfg(test)]
pub(super) mod tests;
