//! The lines of a session file: how they are written, and how one is read.

use std::{borrow::Cow, path::Path};

use serde::{Deserialize, Serialize};

use crate::{
    authority::Report,
    message::{Message, Usage},
};

use super::SessionError;

/// The format that this version writes, and the highest that it reads.
pub const VERSION: u64 = 1;

/// What can be appended to a session.
#[derive(Clone, Copy, Debug)]
pub enum Entry<'a> {
    /// What the run may do: the report of the subject that its calls are checked against.
    Authority(&'a Report),
    /// A message, as the model will see it.
    Message(&'a Message),
    /// The tokens of one request.
    Usage {
        /// `PROVIDER/MODEL` that was asked.
        model: &'a str,
        /// How many.
        usage: Usage,
    },
    /// A call that was refused.
    Denied {
        /// The tool's name.
        tool: &'a str,
        /// The atom that was missing.
        atom: &'a str,
        /// What it was about; may be empty.
        detail: &'a str,
    },
    /// A file that a tool changed. Bytes that are not UTF-8 are replaced.
    Changed {
        /// The physical path.
        path: &'a Path,
    },
    /// The conversation was made shorter: the one that goes on takes the place of all before it.
    Compaction {
        /// What was done, for people and programs.
        done: &'a Compaction,
        /// The conversation that goes on.
        messages: &'a [Message],
    },
    /// A prompt was taken back before anything came of it: so many messages at the end of the
    /// conversation are no part of it any more.
    Withdrawn {
        /// How many.
        messages: u64,
    },
    /// What the session is called from now on.
    Name(&'a str),
    /// The run is over.
    End {
        /// How, as the result object says it.
        outcome: &'a str,
        /// What went wrong, when something did.
        error: Option<&'a str>,
    },
}

/// What a compaction did. The figures are estimates.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Compaction {
    /// Why: `threshold`, `contextFull` or `asked`.
    pub reason: String,
    /// Tokens of a request before.
    pub before: u64,
    /// Tokens of a request after.
    pub after: u64,
    /// Results that were trimmed.
    pub trimmed: u64,
    /// Messages that the summary stands for.
    pub summarised: u64,
    /// The summary, when one was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<String>,
}

#[derive(Serialize)]
struct Stamped<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    at: &'a str,
    #[serde(flatten)]
    body: Body<'a>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Body<'a> {
    Authority {
        report: &'a Report,
    },
    Message {
        message: &'a Message,
    },
    Usage {
        model: &'a str,
        #[serde(flatten)]
        usage: Usage,
    },
    Denied {
        tool: &'a str,
        atom: &'a str,
        detail: &'a str,
    },
    Changed {
        path: Cow<'a, str>,
    },
    Compaction {
        #[serde(flatten)]
        done: &'a Compaction,
        messages: &'a [Message],
    },
    Withdrawn {
        messages: u64,
    },
    Name {
        name: &'a str,
    },
    End {
        outcome: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        error: Option<&'a str>,
        messages: u64,
        #[serde(skip_serializing_if = "Option::is_none")]
        name: Option<&'a str>,
    },
}

impl Entry<'_> {
    /// Returns the line, without its end. JSON escapes every line break, so it is one line. The
    /// messages so far and the name go with the end, so that a list needs no more than a file's two
    /// ends.
    pub(super) fn line(
        &self,
        at: &str,
        messages: u64,
        name: Option<&str>,
    ) -> Result<Vec<u8>, SessionError> {
        let (kind, body) = match *self {
            Self::Authority(report) => ("authority", Body::Authority { report }),
            Self::Message(message) => ("message", Body::Message { message }),
            Self::Usage { model, usage } => ("usage", Body::Usage { model, usage }),
            Self::Denied { tool, atom, detail } => ("denied", Body::Denied { tool, atom, detail }),
            Self::Changed { path } => ("changed", Body::Changed { path: path.to_string_lossy() }),
            Self::Compaction { done, messages } => {
                ("compaction", Body::Compaction { done, messages })
            }
            Self::Withdrawn { messages } => ("withdrawn", Body::Withdrawn { messages }),
            Self::Name(name) => ("name", Body::Name { name }),
            Self::End { outcome, error } => ("end", Body::End { outcome, error, messages, name }),
        };
        encode(&Stamped { kind, at, body })
    }
}

/// The first line of a file.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Header {
    #[serde(rename = "type")]
    pub(super) kind: String,
    pub(super) version: u64,
    pub(super) id: String,
    /// Only to be read by people: what tells workspaces apart is the directory's name.
    pub(super) workspace: String,
    pub(super) kli: String,
    pub(super) started: String,
    /// The session that this one is a copy of, or whose agent started this one's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) parent: Option<String>,
    /// Whether it is a sub-agent's.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) task: bool,
}

impl Header {
    pub(super) fn new(id: &str, workspace: &Path, started: &str, parent: Option<&str>) -> Self {
        Self {
            kind: "session".to_owned(),
            version: VERSION,
            id: id.to_owned(),
            workspace: workspace.to_string_lossy().into_owned(),
            kli: env!("CARGO_PKG_VERSION").to_owned(),
            started: started.to_owned(),
            parent: parent.map(str::to_owned),
            task: false,
        }
    }

    pub(super) fn line(&self) -> Result<Vec<u8>, SessionError> {
        encode(self)
    }
}

fn encode(value: &impl Serialize) -> Result<Vec<u8>, SessionError> {
    serde_json::to_vec(value).map_err(|source| SessionError::Encode { source })
}

/// What a line says.
#[derive(Debug)]
pub(super) enum Read {
    /// The header, with its format.
    Header { version: u64 },
    /// A message.
    Message(Message),
    /// The conversation that goes on in the place of all before.
    Compaction(Vec<Message>),
    /// So many messages at the end are taken back.
    Withdrawn(u64),
    /// Tokens.
    Usage(Usage),
    /// What the session is called.
    Name(String),
    /// An event that no context is made of, or of a kind that this version does not know.
    Other,
    /// An event of a known kind whose shape cannot be read; it is kept in the file.
    Unreadable,
}

#[derive(Deserialize)]
struct MessageLine {
    message: Message,
}

#[derive(Deserialize)]
struct CompactionLine {
    messages: Vec<Message>,
}

#[derive(Deserialize)]
struct WithdrawnLine {
    messages: u64,
}

#[derive(Deserialize)]
struct NameLine {
    name: String,
}

#[derive(Deserialize)]
struct HeaderLine {
    version: u64,
}

#[derive(Deserialize)]
struct Kind<'a> {
    #[serde(rename = "type", borrow)]
    kind: Cow<'a, str>,
}

/// Reads one line; `None` for what is no event at all.
pub(super) fn read(line: &[u8]) -> Option<Read> {
    // Checked here, as the parser does not look into what it skips.
    let line = str::from_utf8(line).ok()?;
    // Most of a long session is messages that kli wrote itself; those are parsed once.
    if line.starts_with(r#"{"type":"message","#)
        && let Ok(MessageLine { message }) = serde_json::from_str(line)
    {
        return Some(Read::Message(message));
    }
    let kind = serde_json::from_str::<Kind<'_>>(line).ok()?.kind;
    Some(match kind.as_ref() {
        "session" => shaped(line, |HeaderLine { version }| Read::Header { version }),
        "message" => shaped(line, |MessageLine { message }| Read::Message(message)),
        "usage" => shaped(line, Read::Usage),
        "name" => shaped(line, |NameLine { name }| Read::Name(name)),
        "withdrawn" => shaped(line, |WithdrawnLine { messages }| Read::Withdrawn(messages)),
        "compaction" => shaped(line, |CompactionLine { messages }| Read::Compaction(messages)),
        _ => Read::Other,
    })
}

fn shaped<'a, T: Deserialize<'a>>(line: &'a str, read: impl FnOnce(T) -> Read) -> Read {
    serde_json::from_str(line).map_or(Read::Unreadable, read)
}

/// Returns the line with the control characters inside its strings escaped, when there are any:
/// other programs write them raw, which JSON forbids.
pub(super) fn escaped(line: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(line.len().saturating_add(16));
    let (mut inside, mut after_backslash, mut changed) = (false, false, false);
    for &byte in line {
        if inside && byte < 0x20 && byte != 0 {
            changed = true;
            out.extend_from_slice(format!("\\u{byte:04x}").as_bytes());
            after_backslash = false;
            continue;
        }
        if byte == b'"' && !after_backslash {
            inside = !inside;
        }
        after_backslash = inside && byte == b'\\' && !after_backslash;
        out.push(byte);
    }
    changed.then_some(out)
}
