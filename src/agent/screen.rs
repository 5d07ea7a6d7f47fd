//! What stands between the model and the turn's machine: keys of providers are taken out of every
//! piece of an answer before anything is sent, shown or written. It must not know what the pieces
//! are for.

use crate::{
    message::{Arguments, Pieces, Redactor, Stop},
    model::Delta,
};

use super::turn::Input;

/// What takes keys out of the pieces of an answer.
#[derive(Debug)]
pub(super) struct Screen {
    redactor: Redactor,
    text: Pieces,
    thinking: Pieces,
}

impl Screen {
    pub(super) fn new(redactor: Redactor) -> Self {
        let (text, thinking) = (redactor.pieces(), redactor.pieces());
        Self { redactor, text, thinking }
    }

    /// Returns what the machine gets to know of an input. Results of tools come clean already.
    pub(super) fn pass(&mut self, input: Input) -> Vec<Input> {
        if self.redactor.is_empty() {
            return vec![input];
        }
        let mut inputs = Vec::with_capacity(2);
        let input = match input {
            Input::Delta(Delta::Text(piece)) => {
                self.end_of_thinking(&mut inputs);
                inputs.extend(shown(self.text.push(&piece)).map(Delta::Text).map(Input::Delta));
                return inputs;
            }
            Input::Delta(Delta::Thinking(piece)) => {
                self.end_of_text(&mut inputs);
                let piece = shown(self.thinking.push(&piece));
                inputs.extend(piece.map(Delta::Thinking).map(Input::Delta));
                return inputs;
            }
            mut other => {
                // What others say meanwhile is no end of the answer: a key may go on behind it.
                if matches!(other, Input::Delta(_) | Input::Failed(_) | Input::Stop(_)) {
                    self.end_of_thinking(&mut inputs);
                    self.end_of_text(&mut inputs);
                }
                match &mut other {
                    Input::Submit(text)
                    | Input::Steer(text)
                    | Input::Reference(text)
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

    /// What was held back turned out to be the start of no key.
    fn end_of_text(&mut self, inputs: &mut Vec<Input>) {
        inputs.extend(shown(self.text.finish()).map(Delta::Text).map(Input::Delta));
    }

    fn end_of_thinking(&mut self, inputs: &mut Vec<Input>) {
        inputs.extend(shown(self.thinking.finish()).map(Delta::Thinking).map(Input::Delta));
    }
}

fn shown(piece: String) -> Option<String> {
    (!piece.is_empty()).then_some(piece)
}
