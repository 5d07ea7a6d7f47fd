//! A session read from its beginning to its end, for people and programs that only want to know.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::{Value, json};

use crate::message::{Message, Usage};

use super::{
    Found, SessionError, Store,
    entry::{self, Compaction, Read},
    scan::{self, Part},
};

/// The deepest nesting of JSON that is handed on as it is: what common parsers read.
const DEEPEST: usize = 100;

/// What one event says.
#[derive(Clone, Debug, PartialEq)]
pub enum Told {
    /// The first line, also of a session that another one was glued to.
    Session {
        /// The workspace.
        workspace: String,
        /// When it began.
        started: String,
        /// The session that this one is a copy of, or whose agent started this one's.
        parent: Option<String>,
        /// Whether it is a sub-agent's.
        task: bool,
    },
    /// A message.
    Message(Message),
    /// The tokens of one request.
    Usage {
        /// `PROVIDER/MODEL` that was asked.
        model: String,
        /// How many.
        usage: Usage,
    },
    /// A call that was refused.
    Denied {
        /// The tool's name.
        tool: String,
        /// The whole sentence.
        detail: String,
    },
    /// A file that a tool changed.
    Changed {
        /// Its path.
        path: String,
    },
    /// The conversation was made shorter.
    Compacted(Compaction),
    /// The end of a run.
    End {
        /// How.
        outcome: String,
        /// What went wrong.
        error: Option<String>,
    },
    /// An event of another kind, or one whose shape cannot be read.
    Other,
}

/// What is left out of a telling because it is no event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Damage {
    /// How many lines it is on.
    pub lines: u64,
    /// How many bytes.
    pub bytes: u64,
}

impl Store {
    /// Hands every event of a session to `each`, in order: its time (RFC 3339, when it has one), its
    /// JSON on one line, and what it says. JSON that is nested too deep for common parsers comes as
    /// `{"type":"raw","line":"…"}`. The file is only read, one line at a time.
    ///
    /// # Errors
    /// [`SessionError::Read`].
    pub fn tell(
        &self,
        found: &Found,
        mut each: impl FnMut(Option<&str>, &str, Told),
    ) -> Result<Damage, SessionError> {
        let file = self.file(found)?;
        let summary = scan::scan(file, &found.path, u64::MAX, |part| {
            let Part::Kept(line, read) = part else { return Ok(()) };
            // An event is text, or was read with its control characters escaped.
            let text = |line: &[u8]| String::from_utf8_lossy(line).into_owned();
            let line = entry::escaped(line).map_or_else(|| text(line), |line| text(&line));
            let at = serde_json::from_str::<At<'_>>(&line).ok().and_then(|at| at.at);
            let told = match read {
                Read::Message(message) => Told::Message(message),
                _ => told(&line).unwrap_or(Told::Other),
            };
            let json = if depth(&line) > DEEPEST {
                Cow::Owned(json!({"type": "raw", "line": line}).to_string())
            } else {
                Cow::Borrowed(line.as_str())
            };
            each(at.as_deref(), &json, told);
            Ok(())
        })?;
        Ok(Damage { lines: summary.damaged_lines, bytes: summary.damaged_bytes })
    }
}

#[derive(Deserialize)]
struct At<'a> {
    #[serde(borrow, default)]
    at: Option<Cow<'a, str>>,
}

fn told(line: &str) -> Option<Told> {
    let value: Value = serde_json::from_str(line).ok()?;
    let text = |key: &str| value.get(key)?.as_str().map(str::to_owned);
    Some(match value.get("type")?.as_str()? {
        "session" => Told::Session {
            workspace: text("workspace")?,
            started: text("started")?,
            parent: text("parent"),
            task: value.get("task").and_then(Value::as_bool).unwrap_or_default(),
        },
        "usage" => Told::Usage {
            model: text("model")?,
            usage: serde_json::from_value(value.clone()).ok()?,
        },
        "denied" => Told::Denied { tool: text("tool")?, detail: text("detail")? },
        "changed" => Told::Changed { path: text("path")? },
        "compaction" => Told::Compacted(serde_json::from_value(value).ok()?),
        "end" => Told::End { outcome: text("outcome")?, error: text("error") },
        _ => Told::Other,
    })
}

/// Returns how deep a valid JSON text is nested.
fn depth(json: &str) -> usize {
    let (mut depth, mut deepest, mut inside, mut escaped) = (0_usize, 0, false, false);
    for byte in json.bytes() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if inside => escaped = true,
            b'"' => inside = !inside,
            b'{' | b'[' if !inside => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b'}' | b']' if !inside => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}
