//! The tool `write`: a whole file, new or in the place of one that the model has read.

use std::{
    io,
    sync::{Arc, atomic::AtomicBool},
};

use serde_json::{Map, Value, json};

use super::{
    Context, Effect, Invocation, Outcome, Sink, Tool,
    arguments::Arguments,
    lines::{self, BOM, Text},
    memory::Content,
    preview::{self, Change, Preview, Previewer, Shown},
    target::{Target, blocking, notes_on},
};
use crate::{
    authority::{Atom, Grant, Request},
    host::{
        HostError,
        files::{self, Expected, Opened},
    },
};

/// Up to this size in bytes an old file is looked into before it is replaced.
const WHOLE: u64 = 16 * 1024 * 1024;

/// The tool `write`.
#[derive(Debug)]
pub(super) struct Write;

impl Tool for Write {
    fn name(&self) -> &'static str {
        "write"
    }

    fn description(&self) -> &'static str {
        "Write a whole file; parents are created. An existing file must have been read first and be \
         unchanged since."
    }

    fn schema(&self) -> Value {
        json!({
            "type": "object",
            "properties": {
                "path": {"type": "string"},
                "content": {"type": "string"}
            },
            "required": ["path", "content"],
            "additionalProperties": false
        })
    }

    fn atom(&self) -> Atom {
        Atom::FileWrite
    }

    fn prepare(
        &self,
        arguments: &Map<String, Value>,
        context: &Arc<Context>,
    ) -> Result<Box<dyn Invocation>, String> {
        let arguments = Arguments::new(arguments);
        arguments.known(&["path", "content"])?;
        let target = Target::of(arguments, context)?.not_a_directory(arguments)?;
        Ok(Box::new(Call { target, content: arguments.text("content")?, shown: Arc::default() }))
    }
}

#[derive(Clone, Debug)]
struct Call {
    target: Target,
    content: String,
    /// What a person was shown: the file as it was then, and what comes in its place.
    shown: Arc<Shown>,
}

impl Invocation for Call {
    fn requests(&self) -> Vec<Request> {
        vec![Request::path(Atom::FileWrite, &self.target.path)]
    }

    fn wishes(&self) -> Vec<Request> {
        vec![Request::path(Atom::FileRead, &self.target.path)]
    }

    fn previewer(&self, is_readable: bool) -> Option<Previewer> {
        let this = self.clone();
        Some(Box::new(move |_stop| this.preview(is_readable)))
    }

    fn effect(&self) -> Effect {
        Effect::Write(self.target.path.clone())
    }

    fn run(
        self: Box<Self>,
        grants: Vec<Grant>,
        _sink: Sink,
    ) -> futures_util::future::BoxFuture<'static, Outcome> {
        blocking(move |stop| {
            let is_readable = self.target.is_readable(&grants);
            self.target.change(&grants, |grant| self.write(grant, is_readable, stop))
        })
    }
}

/// What stands in the file's place.
struct Old {
    content: Content,
    /// Its bytes, when it is not too long to be looked into.
    bytes: Option<Vec<u8>>,
}

/// What is to be written, and over what.
struct Plan {
    old: Option<Old>,
    content: Vec<u8>,
    notes: String,
}

impl Call {
    /// Looks at the file and decides what to write; the inner error is a refusal.
    fn plan(&self, is_readable: bool) -> Result<Result<Plan, Outcome>, HostError> {
        let Target { name, path, context } = &self.target;
        let memory = &context.state.files;
        let old = self.look()?;
        let mut notes = String::new();
        let mut content = self.content.clone().into_bytes();
        if let Some(old) = old.as_ref().filter(|old| old.content.stamp.size > 0) {
            match memory.view(path).content {
                None if is_readable => {
                    return Ok(Err(Outcome::error(format!(
                        "`{name}` exists and was not read in this run; read it first, or change parts \
                         of it with edit"
                    ))));
                }
                Some(known) if !known.is_same(&old.content) && is_readable => {
                    return Ok(Err(Outcome::error(format!(
                        "`{name}` was changed by something else since it was last read; read it again"
                    ))));
                }
                Some(known) if known.is_same(&old.content) => {}
                // Reading it first is no repair where it may not be read.
                _ => {
                    return Ok(Err(Outcome::error(format!(
                        "`{name}` exists with a content that this run neither wrote nor may read \
                         (`file/read` does not cover it); write a new file beside it"
                    ))));
                }
            }
            if let Some(bytes) = &old.bytes {
                keep_style(bytes, &mut content, &mut notes);
            }
        }
        Ok(Ok(Plan { old, content, notes }))
    }

    /// Returns what the call would do to the file as it is now, and holds it to that.
    fn preview(&self, is_readable: bool) -> Preview {
        let plan = match self.plan(is_readable) {
            Ok(Ok(plan)) => plan,
            Ok(Err(outcome)) => return Preview::Refused(outcome),
            Err(error) => return Preview::Refused(self.target.refused(&error)),
        };
        let mut notes = Vec::new();
        let old = match &plan.old {
            Some(Old { bytes: Some(bytes), .. }) => bytes.as_slice(),
            Some(Old { content, .. }) => {
                notes.push(format!(
                    "takes the place of {} bytes, which are too many to be shown",
                    content.stamp.size
                ));
                &[]
            }
            None => &[],
        };
        self.target.note_new_directories(&mut notes);
        let hunks = preview::hunks(old, &plan.content);
        if hunks.is_empty() {
            notes.push(
                if plan.content.is_empty() { "an empty file" } else { "the same content" }
                    .to_owned(),
            );
        }
        self.shown.set(plan.old.as_ref().map(|old| old.content.stamp));
        let path = self.target.path.clone();
        Preview::Change(Change { path, is_new: plan.old.is_none(), hunks, notes })
    }

    fn write(
        &self,
        grant: &Grant,
        is_readable: bool,
        stop: &AtomicBool,
    ) -> Result<Outcome, HostError> {
        let Target { name, path, context } = &self.target;
        let memory = &context.state.files;
        let Plan { old, content, mut notes } = match self.plan(is_readable)? {
            Ok(plan) => plan,
            Err(outcome) => return Ok(outcome),
        };
        if let Some(outcome) = self.shown.differs(old.as_ref().map(|old| old.content.stamp), name) {
            return Ok(outcome);
        }
        let expected =
            old.as_ref().map_or(Expected::Absent, |old| Expected::Unchanged(old.content.stamp));
        let replaced = files::replace(grant, path, &content, expected, stop)?;
        notes.push_str(&notes_on(&replaced));
        let digest = Some(lines::digest(&content));
        memory.wrote(path, Content { stamp: replaced.stamp, digest });
        let count = Text::new(content.clone()).count();
        let verb = if old.is_some() { "replaced" } else { "created" };
        let plural = if count == 1 { "" } else { "s" };
        let text = format!("{verb} `{name}`: {count} line{plural}, {} bytes{notes}", content.len());
        let record = json!({
            "path": path.to_string_lossy(),
            "created": old.is_none(),
            "lines": count,
            "bytes": content.len(),
        });
        Ok(Outcome { text, is_error: false, record, changed: vec![path.clone()] })
    }

    fn look(&self) -> Result<Option<Old>, HostError> {
        let path = &self.target.path;
        match files::open(path) {
            Ok(Opened::File(_, stamp)) if stamp.size > WHOLE => {
                Ok(Some(Old { content: Content { stamp, digest: None }, bytes: None }))
            }
            Ok(Opened::File(..)) => Ok(files::read_whole(path, WHOLE)?.map(|(bytes, stamp)| {
                let digest = Some(lines::digest(&bytes));
                Old { content: Content { stamp, digest }, bytes: Some(bytes) }
            })),
            Ok(Opened::Directory(_)) => Err(HostError::Kind {
                path: path.clone(),
                kind: "a directory",
                wanted: "a regular file",
            }),
            Err(HostError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }
}

/// Keeps what read does not show of the old file, and which its users may need: a byte order mark,
/// and CRLF where every line has it.
fn keep_style(old: &[u8], content: &mut Vec<u8>, notes: &mut String) {
    let text = Text::new(old.to_vec());
    let is_crlf = text.count() > 0
        && (1..=text.count()).all(|line| matches!(text.ending(line), b"\r\n" | b""))
        && text.ending(1) == b"\r\n";
    if is_crlf && !content.contains(&b'\r') && content.contains(&b'\n') {
        let mut kept = Vec::with_capacity(content.len().saturating_add(text.lines.len()));
        for byte in content.iter() {
            if *byte == b'\n' {
                kept.push(b'\r');
            }
            kept.push(*byte);
        }
        *content = kept;
        notes.push_str("; its CRLF line endings were kept");
    }
    if old.starts_with(BOM) && !content.starts_with(BOM) {
        content.splice(0..0, BOM.iter().copied());
        notes.push_str("; its byte order mark was kept");
    }
}

#[cfg(test)]
mod tests;
