//! Tool calls, put together from their pieces.
//!
//! The API numbers the calls of an answer and repeats the number with each piece. Servers leave the
//! number out, give all calls the same one, send a call whole, repeat the name, or make up a new
//! identifier for each piece; the rules here are for those, and keep to the API where a server does.

use serde_json::{Map, Value};

use crate::model::{Delta, answer::MAX_CALLS};

/// The calls of an answer so far.
#[derive(Debug, Default)]
pub(super) struct Calls {
    slots: Vec<Slot>,
}

#[derive(Debug, Default)]
struct Slot {
    index: Option<u64>,
    id: String,
    name: String,
    arguments: String,
    shape: Shape,
}

/// How far the arguments have come, kept from piece to piece: a look at all of them for each piece
/// would take hours for an answer of many small ones.
#[derive(Clone, Copy, Debug, Default)]
struct Shape {
    begun: bool,
    depth: usize,
    quoted: bool,
    escaped: bool,
}

impl Shape {
    fn add(&mut self, text: &str) {
        for byte in text.bytes() {
            self.begun |= !byte.is_ascii_whitespace();
            match byte {
                _ if self.escaped => self.escaped = false,
                b'\\' if self.quoted => self.escaped = true,
                b'"' => self.quoted = !self.quoted,
                b'{' | b'[' if !self.quoted => self.depth = self.depth.saturating_add(1),
                b'}' | b']' if !self.quoted => self.depth = self.depth.saturating_sub(1),
                _ => {}
            }
        }
    }

    /// Whether the arguments have begun and are not whole: then more of them is to come.
    fn is_unfinished(self) -> bool {
        self.begun && (self.depth > 0 || self.quoted)
    }
}

impl Slot {
    fn push(&mut self, text: &str) {
        self.arguments.push_str(text);
        self.shape.add(text);
    }
}

/// A piece of a call, as a chunk has it.
struct Piece<'a> {
    index: Option<u64>,
    id: &'a str,
    name: &'a str,
    arguments: &'a Value,
}

impl Calls {
    /// Whether there are none.
    pub(super) fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Whether there are more than an answer may have; no further one is taken then.
    pub(super) fn are_too_many(&self) -> bool {
        self.slots.len() > MAX_CALLS
    }

    /// Takes the `tool_calls` of a chunk.
    pub(super) fn add(&mut self, pieces: &Value) {
        let pieces = pieces.as_array().map(Vec::as_slice).unwrap_or_default();
        for (position, piece) in pieces.iter().enumerate() {
            if self.are_too_many() {
                return;
            }
            let text = |value: Option<&'_ Value>| -> String {
                value.and_then(Value::as_str).unwrap_or_default().to_owned()
            };
            // Some leave the function's object out and write its fields right here.
            let function = piece.get("function").filter(|f| f.is_object()).unwrap_or(piece);
            let (id, name) = (text(piece.get("id")), text(function.get("name")));
            let index = piece.get("index").and_then(Value::as_u64);
            let arguments = function.get("arguments").unwrap_or(&Value::Null);
            let found = Piece { index, id: &id, name: &name, arguments };
            if !found.is_empty() {
                self.put(&found, (pieces.len() > 1).then_some(position));
            }
        }
    }

    /// Takes the `function_call` that the API had before `tool_calls`: there is one at most.
    pub(super) fn add_legacy(&mut self, call: &Value) {
        let name = call.get("name").and_then(Value::as_str).unwrap_or_default();
        let arguments = call.get("arguments").unwrap_or(&Value::Null);
        let piece = Piece { index: Some(u64::MAX), id: "", name, arguments };
        if !piece.is_empty() {
            self.put(&piece, None);
        }
    }

    fn put(&mut self, piece: &Piece<'_>, position: Option<usize>) {
        let at = self.find(piece, position).unwrap_or_else(|| {
            self.slots.push(Slot { index: piece.index, ..Slot::default() });
            self.slots.len().saturating_sub(1)
        });
        let Some(slot) = self.slots.get_mut(at) else { return };
        if slot.id.is_empty() {
            piece.id.clone_into(&mut slot.id);
        }
        // In pieces as the API allows it, or the same again as some servers have it.
        if slot.name != piece.name && slot.arguments.is_empty() {
            slot.name.push_str(piece.name);
        }
        match piece.arguments {
            Value::Null => {}
            Value::String(text) => slot.push(text),
            Value::Object(map) if *map == Map::new() && !slot.arguments.is_empty() => {}
            whole => {
                (slot.arguments, slot.shape) = (String::new(), Shape::default());
                slot.push(&whole.to_string());
            }
        }
    }

    /// Returns the call that a piece goes on with; `None` = it begins one.
    fn find(&self, piece: &Piece<'_>, position: Option<usize>) -> Option<usize> {
        let last = self.slots.len().checked_sub(1)?;
        let at = if let Some(index) = piece.index {
            // From the end: where several calls have one number, the latest is going on.
            self.slots.iter().rposition(|slot| slot.index == Some(index))?
        } else {
            let known = |slot: &Slot| !piece.id.is_empty() && slot.id == piece.id;
            if let Some(at) = self.slots.iter().rposition(known) {
                return Some(at);
            }
            if piece.id.is_empty() && piece.name.is_empty() {
                // Neither: in a chunk with several, its place tells which.
                return Some(position.filter(|at| *at <= last).unwrap_or(last));
            }
            last
        };
        let slot = self.slots.get(at)?;
        let other_id = !piece.id.is_empty() && !slot.id.is_empty() && slot.id != piece.id;
        let begins = match (piece.index, piece.name.is_empty()) {
            // Numbered: another call only if both its identifier and its name are there.
            (Some(_), nameless) => other_id && !nameless,
            // Not numbered: a name begins a call, unless the one before lacks its name, or has the
            // same and is going on.
            (None, false) if slot.name.is_empty() => other_id,
            (None, false) => slot.name != piece.name || !slot.shape.is_unfinished(),
            // An identifier alone begins a call, unless it comes with more of the one before.
            (None, true) => {
                let goes_on = slot.arguments.is_empty() && piece.has_arguments();
                !(slot.shape.is_unfinished() || goes_on)
            }
        };
        (!begins).then_some(at)
    }

    /// Hands all calls on. `answer` is the answer's identifier; it becomes part of the identifiers
    /// of calls that came without one, as calls of one conversation must not share theirs.
    pub(super) fn finish(&mut self, answer: &str, out: &mut Vec<Delta>) {
        for (number, slot) in std::mem::take(&mut self.slots).into_iter().enumerate() {
            let Slot { mut id, name, arguments, .. } = slot;
            if id.is_empty() {
                id = format!("call_{number}");
                if !answer.is_empty() {
                    id = format!("{id}_{answer}");
                }
            }
            out.push(Delta::Call { id, name, arguments });
        }
    }
}

impl Piece<'_> {
    fn is_empty(&self) -> bool {
        self.id.is_empty() && self.name.is_empty() && self.arguments.is_null()
    }

    fn has_arguments(&self) -> bool {
        !matches!(self.arguments, Value::Null) && self.arguments != ""
    }
}

#[cfg(test)]
mod tests;
