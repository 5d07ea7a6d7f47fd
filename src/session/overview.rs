//! What a list says of a session, from the two ends of its file: no list may cost a read of all that
//! was ever said, and no index is kept that could be wrong.

use std::{fs::File, os::unix::fs::FileExt, time::SystemTime};

use serde::Deserialize;
use serde_json::Value;

use crate::{
    host::HostError,
    message::{Block, Message, Role},
};

use super::{
    Found, SessionError, Store,
    entry::{self, Header, Read},
    find::started_of,
};

/// How many bytes of each end are read.
const END: u64 = 32 << 10;

/// The longest line of a prompt that is shown, in characters.
const PROMPT: usize = 200;

/// How messages begin that kli wrote.
const MESSAGE: &[u8] = br#"{"type":"message","#;

/// What a list says of a session. All of it is what the file says: a confined run can have written
/// anything there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Overview {
    /// When it began, by the file's name.
    pub started: Option<SystemTime>,
    /// The workspace.
    pub workspace: Option<String>,
    /// The session that this one is a copy of, or whose agent started this one's.
    pub parent: Option<String>,
    /// Whether it is a sub-agent's.
    pub task: bool,
    /// The first line of the first prompt, at most 200 characters.
    pub prompt: Option<String>,
    /// What the session is called, its first line, at most 200 characters; `None` also when it was
    /// named in the middle of a long session whose last run has not ended, or was killed.
    pub name: Option<String>,
    /// How many messages; `None` when only a reading of the whole file would tell.
    pub messages: Option<u64>,
    /// `PROVIDER/MODEL` that was asked last.
    pub model: Option<String>,
    /// How the last run ended; `None` when it goes on or broke off.
    pub outcome: Option<String>,
}

impl Store {
    /// Returns what a list says of a session, from at most 64 KiB of its file.
    ///
    /// # Errors
    /// [`SessionError::Read`].
    pub fn overview(&self, found: &Found) -> Result<Overview, SessionError> {
        let file = self.file(found)?;
        let read = |from, length| {
            part(&file, from, length)
                .map_err(|error| SessionError::read(HostError::io("read", &found.path, error)))
        };
        let time = found.name.to_str().and_then(|name| name.split('-').next());
        let mut overview = Overview { started: time.and_then(started_of), ..Overview::default() };
        let is_whole = found.size <= 2 * END;
        let head = read(0, if is_whole { 2 * END } else { END })?;
        overview.head(&head);
        if is_whole {
            overview.tail(&head, true);
        } else {
            let tail = read(found.size.saturating_sub(END), END)?;
            // It begins somewhere in a line.
            let start = tail.iter().position(|byte| *byte == b'\n').unwrap_or(tail.len());
            overview.tail(tail.get(start..).unwrap_or_default(), false);
        }
        Ok(overview)
    }
}

impl Store {
    /// Returns what a person said in a session, to be searched: from at most `most` bytes of the
    /// beginning of its file, and no more than some kilobytes of text.
    ///
    /// # Errors
    /// [`SessionError::Read`].
    pub fn said(&self, found: &Found, most: u64) -> Result<String, SessionError> {
        const TEXT: usize = 8 << 10;
        let head = part(&self.file(found)?, 0, most.min(found.size))
            .map_err(|error| SessionError::read(HostError::io("read", &found.path, error)))?;
        let mut text = String::new();
        for line in head.split(|byte| *byte == b'\n').filter(|line| line.starts_with(MESSAGE)) {
            let Some(Read::Message(message)) = entry::read(line) else { continue };
            if message.role == Role::User {
                text.extend(message.text().chars().take(TEXT.saturating_sub(text.len())));
                text.push(' ');
            }
            if text.len() >= TEXT {
                break;
            }
        }
        Ok(text)
    }
}

impl Overview {
    fn head(&mut self, head: &[u8]) {
        let mut lines = head.split(|byte| *byte == b'\n').peekable();
        while let Some(line) = lines.next() {
            if self.workspace.is_none()
                && let Ok(header) = serde_json::from_slice::<Header>(line)
            {
                self.workspace = Some(header.workspace);
                self.parent = header.parent;
                self.task = header.task;
                continue;
            }
            self.prompt = match entry::read(line) {
                Some(Read::Message(message)) => prompt(&message),
                None if lines.peek().is_none() => cut_prompt(line),
                _ => None,
            };
            if self.prompt.is_some() {
                return;
            }
        }
    }

    fn tail(&mut self, tail: &[u8], is_whole: bool) {
        #[derive(Deserialize)]
        struct Line {
            #[serde(default)]
            model: Value,
            #[serde(default)]
            outcome: Value,
            #[serde(default)]
            messages: Value,
            #[serde(default)]
            name: Value,
        }
        let (mut messages, mut ended, mut counted) = (0, false, false);
        for line in tail.rsplit(|byte| *byte == b'\n') {
            let read = || serde_json::from_slice::<Line>(line).ok();
            let text = |value: &Value| value.as_str().map(str::to_owned);
            if line.starts_with(MESSAGE) {
                ended = true;
                messages += u64::from(!counted);
            } else if line.starts_with(br#"{"type":"end","#)
                && let Some(line) = read()
            {
                self.name = self.name.take().or_else(|| first_line(line.name.as_str()?));
                if !ended {
                    self.outcome = text(&line.outcome);
                    ended = true;
                }
                // What the end says of all before it is needed only where that is not in sight.
                if let Some(before) = line.messages.as_u64().filter(|_| !is_whole && !counted) {
                    messages += before;
                    counted = true;
                }
            } else if self.name.is_none()
                && line.starts_with(br#"{"type":"name","#)
                && let Some(line) = read()
            {
                self.name = line.name.as_str().and_then(first_line);
            } else if self.model.is_none()
                && line.starts_with(br#"{"type":"usage","#)
                && let Some(line) = read()
            {
                self.model = text(&line.model);
            }
        }
        self.messages = (is_whole || counted).then_some(messages);
    }
}

/// Reads a part of a file; less when the file has become shorter.
fn part(file: &File, from: u64, length: u64) -> std::io::Result<Vec<u8>> {
    let mut bytes = vec![0; usize::try_from(length).unwrap_or_default()];
    let mut done = 0;
    while let Some(rest) = bytes.get_mut(done..).filter(|rest| !rest.is_empty()) {
        match file.read_at(rest, from + done as u64) {
            Ok(0) => break,
            Ok(read) => done += read,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    bytes.truncate(done);
    Ok(bytes)
}

fn prompt(message: &Message) -> Option<String> {
    if message.role != Role::User {
        return None;
    }
    message.blocks.iter().find_map(|block| match block {
        Block::Text { text } => first_line(text),
        _ => None,
    })
}

fn first_line(text: &str) -> Option<String> {
    let line = text.lines().map(str::trim).find(|line| !line.is_empty())?;
    Some(line.chars().take(PROMPT).collect())
}

/// Returns the first line of a prompt whose message is longer than what was read of it.
fn cut_prompt(line: &[u8]) -> Option<String> {
    const BEFORE: &[u8] = br#""message":{"role":"user","blocks":[{"type":"text","text":""#;
    line.starts_with(MESSAGE).then_some(())?;
    let start = memchr::memmem::find(line, BEFORE)? + BEFORE.len();
    // A character has at most twelve bytes (two escapes); the blank ones before the first do not
    // matter that much.
    let text = line.get(start..)?;
    let text = text.get(..PROMPT * 12).unwrap_or(text);
    // The cut may have split an escape or a character: the longest beginning that is a string.
    (0..16).find_map(|less| {
        let text = text.get(..text.len().checked_sub(less)?)?;
        let quoted = [b"\"", text, b"\""].concat();
        first_line(&serde_json::from_slice::<String>(&quoted).ok()?)
    })
}
