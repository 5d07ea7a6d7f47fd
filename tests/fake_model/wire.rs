//! The APIs side by side: what a test needs to run the same for each.

use kli::model::catalogue::Kind;
use serde_json::json;

use super::{Answer, Part, chat, chunk, event, message, message_stopped, responses};

/// The APIs that the fake speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wire {
    Messages,
    Chat,
    Responses,
}

impl Wire {
    pub(crate) const ALL: [Self; 3] = [Self::Messages, Self::Chat, Self::Responses];

    /// Those that a variable with an address is enough for.
    pub(crate) const BARE: [Self; 2] = [Self::Messages, Self::Chat];

    pub(crate) fn kind(self) -> Kind {
        match self {
            Self::Messages => Kind::Anthropic,
            Self::Chat => Kind::OpenAiChat,
            Self::Responses => Kind::OpenAi,
        }
    }

    /// The kind's name in settings.
    pub(crate) fn kind_name(self) -> &'static str {
        match self {
            Self::Messages => "anthropic",
            Self::Chat => "openai-chat",
            Self::Responses => "openai",
        }
    }

    /// The settings with which the provider at another address speaks it.
    pub(crate) fn settings(self) -> String {
        match self {
            Self::Messages | Self::Chat => "{}".to_owned(),
            Self::Responses => json!({"providers": {"openai": {"kind": "openai"}}}).to_string(),
        }
    }

    /// The provider that speaks it without settings.
    pub(crate) fn provider(self) -> &'static str {
        match self {
            Self::Messages => "anthropic",
            Self::Chat | Self::Responses => "openai",
        }
    }

    /// The variable that sets that provider's address.
    pub(crate) fn address_variable(self) -> &'static str {
        match self {
            Self::Messages => "ANTHROPIC_BASE_URL",
            Self::Chat | Self::Responses => "OPENAI_BASE_URL",
        }
    }

    /// The path of a base URL below the host.
    pub(crate) fn base(self) -> &'static str {
        match self {
            Self::Messages => "",
            Self::Chat | Self::Responses => "/v1",
        }
    }

    /// The path of requests below the base URL.
    pub(crate) fn path(self) -> &'static str {
        match self {
            Self::Messages => "/v1/messages",
            Self::Chat => "/chat/completions",
            Self::Responses => "/responses",
        }
    }

    /// The header that carries a key, and how it does.
    pub(crate) fn key_header(self, key: &str) -> (&'static str, String) {
        match self {
            Self::Messages => ("x-api-key", key.to_owned()),
            Self::Chat | Self::Responses => ("authorization", format!("Bearer {key}")),
        }
    }

    /// A whole answer, see [`message`].
    pub(crate) fn answer(self, parts: impl IntoIterator<Item = Part>) -> String {
        match self {
            Self::Messages => message(parts),
            Self::Chat => chat::message(parts),
            Self::Responses => responses::message(parts),
        }
    }

    /// A whole answer with a stop reason in the API's own words.
    pub(crate) fn stopped(self, parts: impl IntoIterator<Item = Part>, reason: &str) -> String {
        match self {
            Self::Messages => message_stopped(parts, reason),
            Self::Chat => chat::message_stopped(parts, reason),
            Self::Responses => responses::message_stopped(parts, reason),
        }
    }

    /// The reason for an answer that was cut at its limit.
    pub(crate) fn cut(self) -> &'static str {
        match self {
            Self::Messages => "max_tokens",
            Self::Chat => "length",
            Self::Responses => "max_output_tokens",
        }
    }

    /// An error in the middle of a stream.
    pub(crate) fn error(self, kind: &str, sentence: &str) -> String {
        let error = json!({"type": kind, "message": sentence});
        match self {
            Self::Messages => event(&json!({"type": "error", "error": error})),
            Self::Chat => chunk(&json!({"error": error})),
            Self::Responses => event(&json!({"type": "error", "code": kind, "message": sentence,
                "param": null, "sequence_number": 9})),
        }
    }

    /// A refusal in the API's own shape.
    pub(crate) fn refusal(self, status: u16, kind: &str, sentence: &str) -> Answer {
        match self {
            Self::Messages => Answer::refusal(status, kind, sentence),
            Self::Chat | Self::Responses => {
                let error = json!({"message": sentence, "type": kind, "param": null, "code": null});
                Answer::body(status, "application/json", json!({ "error": error }).to_string())
            }
        }
    }

    /// A refusal in the API's own shape with the type that goes with a status.
    pub(crate) fn status(self, status: u16) -> Answer {
        match self {
            Self::Messages => Answer::status(status),
            Self::Chat | Self::Responses => {
                self.refusal(status, Answer::kind_of(status), "scripted by the test")
            }
        }
    }

    /// One event with a piece of text.
    pub(crate) fn text_event(self, text: &str) -> String {
        match self {
            Self::Messages => event(&json!({"type": "content_block_delta", "index": 0,
                "delta": {"type": "text_delta", "text": text}})),
            Self::Responses => event(&json!({"type": "response.output_text.delta",
                "output_index": 0, "content_index": 0, "delta": text})),
            Self::Chat => chunk(&json!({"choices": [{"index": 0, "delta": {"content": text}}]})),
        }
    }

    /// Where the text event with this number, counted from 0, ends in a stream.
    pub(crate) fn after_text(self, stream: &str, number: usize) -> usize {
        let mark = match self {
            Self::Messages => "\"text_delta\"",
            Self::Chat => "\"content\":\"",
            Self::Responses => "event: response.output_text.delta",
        };
        let mut at = 0;
        let ends = stream.split_inclusive("\n\n").filter_map(|event| {
            at += event.len();
            event.contains(mark).then_some(at)
        });
        ends.collect::<Vec<_>>()[number]
    }
}
