//! What stands between the model and the turn's machine: keys of providers are taken out of every
//! piece of an answer before anything is sent, shown or written. It must not know what the pieces
//! are for.

use crate::{
    message::{Arguments, Pieces, Redactor, Stop},
    model::Delta,
};

use super::turn::Input;

/// What takes keys out of the pieces of an answer. A key can be in parts that are shown one after the
/// other, or that are kept together: so text and thinking are read each for itself and as they come.
#[derive(Debug)]
pub(super) struct Screen {
    redactor: Redactor,
    /// Text and thinking in the order in which they come.
    all: Pieces,
    text: Pieces,
    thinking: Pieces,
    /// What the last piece was a part of.
    last: Said,
}

/// What an answer says in pieces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Said {
    Text,
    Thinking,
}

impl Said {
    fn delta(self, piece: String) -> Delta {
        match self {
            Self::Text => Delta::Text(piece),
            Self::Thinking => Delta::Thinking(piece),
        }
    }
}

impl Screen {
    pub(super) fn new(redactor: Redactor) -> Self {
        let (all, text, thinking) = (redactor.pieces(), redactor.pieces(), redactor.pieces());
        Self { redactor, all, text, thinking, last: Said::Text }
    }

    /// Returns what the machine gets to know of an input. Results of tools come clean already.
    pub(super) fn pass(&mut self, input: Input) -> Vec<Input> {
        if self.redactor.is_empty() {
            return vec![input];
        }
        let mut inputs = Vec::with_capacity(2);
        let input = match input {
            Input::Delta(Delta::Text(piece)) => {
                self.said(Said::Text, &piece, &mut inputs);
                return inputs;
            }
            Input::Delta(Delta::Thinking(piece)) => {
                self.said(Said::Thinking, &piece, &mut inputs);
                return inputs;
            }
            mut other => {
                // What others say meanwhile is no end of the answer: a key may go on behind it.
                if matches!(other, Input::Delta(_) | Input::Failed(_) | Input::Stop(_)) {
                    self.end_of_part(&mut inputs);
                }
                match &mut other {
                    Input::Submit(text)
                    | Input::Steer(text)
                    | Input::Reference(text)
                    | Input::News(text)
                    | Input::Did(text)
                    | Input::Compact(Some(text)) => {
                        self.redactor.text(text);
                    }
                    Input::Failed(error) => self.redactor.text(&mut error.message),
                    Input::Delta(Delta::Opaque(value)) => self.redactor.value(value),
                    Input::Delta(Delta::Call { id, name, arguments }) => {
                        self.redactor.text(id);
                        self.redactor.text(name);
                        self.arguments(arguments);
                    }
                    Input::Delta(Delta::Done { stop: Stop::Other(word), .. }) => {
                        self.redactor.text(word);
                    }
                    Input::Delta(_)
                    | Input::Refused { .. }
                    | Input::Spent(..)
                    | Input::RetryDue
                    | Input::Result(_)
                    | Input::Compact(None)
                    | Input::Stop(_) => {}
                }
                other
            }
        };
        inputs.push(input);
        inputs
    }

    /// A key is found as well where escapes (`\u0073k-…`) hide it in the text of the arguments: what
    /// counts is what they say.
    fn arguments(&self, text: &mut String) {
        self.redactor.text(text);
        if let Arguments::Object(map) = Arguments::parse(text) {
            let mut value = serde_json::Value::Object(map);
            if self.redactor.finds_in(&value) {
                self.redactor.value(&mut value);
                *text = value.to_string();
            }
        }
    }

    fn said(&mut self, kind: Said, piece: &str, inputs: &mut Vec<Input>) {
        if kind != self.last {
            self.end_of_part(inputs);
            self.last = kind;
        }
        let piece = self.all.push(piece);
        let piece = self.own().push(&piece);
        inputs.extend(shown(kind, piece));
    }

    /// Lets go what was held back of the part that ends here.
    fn end_of_part(&mut self, inputs: &mut Vec<Input>) {
        let rest = self.all.part();
        let mut piece = self.own().push(&rest);
        piece.push_str(&self.own().part());
        inputs.extend(shown(self.last, piece));
    }

    fn own(&mut self) -> &mut Pieces {
        match self.last {
            Said::Text => &mut self.text,
            Said::Thinking => &mut self.thinking,
        }
    }
}

fn shown(kind: Said, piece: String) -> Option<Input> {
    (!piece.is_empty()).then(|| Input::Delta(kind.delta(piece)))
}

#[cfg(test)]
mod tests;
