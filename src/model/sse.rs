//! Server-sent events: bytes in, events out, no IO.
//!
//! Lines end in LF, CR or CRLF and chunks may end anywhere, also inside a CRLF or a UTF-8
//! character: text is decoded by whole lines, never by chunk. Any chunking of the same bytes gives
//! the same events. It must not know what the events mean.
//!
//! Rules: <https://html.spec.whatwg.org/multipage/server-sent-events.html#parsing-an-event-stream>,
//! with one difference: [`Parser::finish`] delivers an event whose last blank line is missing, as
//! servers that close early are common and a cut event is the decoder's to notice.

use memchr::{memchr, memchr2};

/// The most bytes that one line, or the data of one event, may have.
pub const MAX_EVENT: usize = 16 * 1024 * 1024;

/// One event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Event {
    /// The `event` field; empty when the event has none.
    pub name: String,
    /// The `data` fields, joined by line feeds.
    pub data: String,
    /// The event's own `id` field. It is not carried over to later events, since a request for a
    /// model's answer cannot be resumed.
    pub id: Option<String>,
}

/// Why a stream cannot be read further.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SseError {
    /// A line or an event is longer than the parser's bound.
    #[error("an event of the stream is longer than {limit} bytes")]
    TooLong {
        /// The bound in bytes.
        limit: usize,
    },
}

/// Reads a stream of events from chunks of bytes.
#[derive(Debug)]
pub struct Parser {
    limit: usize,
    /// The start of a line whose end has not come yet.
    partial: Vec<u8>,
    /// The last byte was a CR that ended a line, so a LF that follows belongs to it.
    after_cr: bool,
    first_line: bool,
    event: Event,
    has_data: bool,
    failed: Option<SseError>,
}

impl Default for Parser {
    fn default() -> Self {
        Self::with_limit(MAX_EVENT)
    }
}

impl Parser {
    /// Returns a parser at the start of a stream, bounded by [`MAX_EVENT`].
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns a parser whose lines and events have at most `limit` bytes.
    pub fn with_limit(limit: usize) -> Self {
        Self {
            limit,
            partial: Vec::new(),
            after_cr: false,
            first_line: true,
            event: Event::default(),
            has_data: false,
            failed: None,
        }
    }

    /// Takes the next bytes and appends the events that they complete.
    ///
    /// # Errors
    /// A line or an event over the bound; the events before it have been appended, and every
    /// later call fails in the same way.
    pub fn feed(&mut self, bytes: &[u8], events: &mut Vec<Event>) -> Result<(), SseError> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        let result = self.feed_lines(bytes, events);
        self.failed = result.err();
        result
    }

    fn feed_lines(&mut self, mut bytes: &[u8], events: &mut Vec<Event>) -> Result<(), SseError> {
        if self.after_cr && !bytes.is_empty() {
            self.after_cr = false;
            bytes = bytes.strip_prefix(b"\n").unwrap_or(bytes);
        }
        while let Some(end) = memchr2(b'\n', b'\r', bytes) {
            let (line, rest) = bytes.split_at(end);
            if self.partial.is_empty() {
                self.line(line, events)?;
            } else {
                let mut whole = std::mem::take(&mut self.partial);
                self.check(whole.len().saturating_add(line.len()))?;
                whole.extend_from_slice(line);
                self.line(&whole, events)?;
                whole.clear();
                self.partial = whole;
            }
            bytes = match rest {
                [b'\r', b'\n', after @ ..] | [_, after @ ..] => after,
                [] => rest,
            };
            self.after_cr = rest == b"\r";
        }
        self.check(self.partial.len().saturating_add(bytes.len()))?;
        self.partial.extend_from_slice(bytes);
        Ok(())
    }

    /// Ends the stream: delivers a last line and a last event whose ends are missing.
    ///
    /// # Errors
    /// As [`Parser::feed`].
    pub fn finish(&mut self, events: &mut Vec<Event>) -> Result<(), SseError> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        let rest = std::mem::take(&mut self.partial);
        let mut result = Ok(());
        if !rest.is_empty() {
            result = self.line(&rest, events);
        }
        if result.is_ok() {
            self.dispatch(events);
        }
        self.failed = result.err();
        result
    }

    fn check(&self, length: usize) -> Result<(), SseError> {
        if length > self.limit { Err(SseError::TooLong { limit: self.limit }) } else { Ok(()) }
    }

    fn line(&mut self, mut line: &[u8], events: &mut Vec<Event>) -> Result<(), SseError> {
        self.check(line.len())?;
        if std::mem::take(&mut self.first_line) {
            line = line.strip_prefix("\u{feff}".as_bytes()).unwrap_or(line);
        }
        if line.is_empty() {
            self.dispatch(events);
            return Ok(());
        }
        let (field, value) = match memchr(b':', line) {
            Some(colon) => {
                let (field, value) = line.split_at(colon);
                let value = value.strip_prefix(b":").unwrap_or(value);
                (field, value.strip_prefix(b" ").unwrap_or(value))
            }
            None => (line, &[][..]),
        };
        match field {
            b"data" => {
                self.check(self.event.data.len().saturating_add(value.len()))?;
                if self.has_data {
                    self.event.data.push('\n');
                }
                push_text(&mut self.event.data, value);
                self.has_data = true;
            }
            b"event" => {
                self.event.name.clear();
                push_text(&mut self.event.name, value);
            }
            b"id" if memchr(0, value).is_none() => {
                let mut id = String::new();
                push_text(&mut id, value);
                self.event.id = Some(id);
            }
            // Comments (an empty field name), `retry` and what a later standard adds.
            _ => {}
        }
        Ok(())
    }

    fn dispatch(&mut self, events: &mut Vec<Event>) {
        let event = std::mem::take(&mut self.event);
        if std::mem::take(&mut self.has_data) {
            events.push(event);
        }
    }
}

fn push_text(text: &mut String, bytes: &[u8]) {
    match std::str::from_utf8(bytes) {
        Ok(valid) => text.push_str(valid),
        Err(_) => text.push_str(&String::from_utf8_lossy(bytes)),
    }
}

#[cfg(test)]
mod tests;
