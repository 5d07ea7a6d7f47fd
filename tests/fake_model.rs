//! A streaming fake of the Messages API on loopback, for every test that needs a model.
//!
//! The test scripts one [`Answer`] a request: which bytes, where they are split, when they pause,
//! how they end. Splits are exact: every piece is an HTTP chunk of its own, which a client's
//! decoder hands on as it is. Requests are kept. In strict mode what the real API refuses is
//! refused with 400.
//!
//! ```ignore
//! let fake = FakeModel::start(vec![
//!     Answer::new(message([text("Let me look."), tool_use("t1", "read", r#"{"path":"a"}"#)])),
//!     Answer::status(529).header("retry-after", "1"),
//!     Answer::new(message([text("Done.")])).newline(Newline::CrLf).every_byte(),
//! ]);
//! // … point a client at fake.base_url() …
//! assert_eq!(fake.requests()[0].json()["messages"][0]["role"], "user");
//! ```
#![expect(
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "a broken fake should end its test at once; indexing a JSON value gives null"
)]

use std::{
    collections::{BTreeSet, VecDeque},
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use serde_json::{Value, json};

/// How lines of the event stream end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Newline {
    Lf,
    Cr,
    CrLf,
}

impl Newline {
    pub(crate) const ALL: [Self; 3] = [Self::Lf, Self::Cr, Self::CrLf];

    /// Rewrites a stream that is written with LF.
    pub(crate) fn apply(self, stream: &str) -> String {
        match self {
            Self::Lf => stream.to_owned(),
            Self::Cr => stream.replace('\n', "\r"),
            Self::CrLf => stream.replace('\n', "\r\n"),
        }
    }
}

/// How the bytes of an answer end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// As HTTP has it; the connection can be used again.
    Whole,
    /// The connection is closed without the last chunk.
    Close,
    /// The connection is reset (RST).
    Reset,
    /// Nothing more comes, and the connection stays.
    Hang,
}

/// What the fake answers to one request.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    status: u16,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
    cuts: Vec<usize>,
    delay: Duration,
    pause: Duration,
    end: End,
}

impl Answer {
    /// An event stream, written with LF.
    pub(crate) fn new(stream: impl Into<String>) -> Self {
        Self::body(200, "text/event-stream", stream.into())
    }

    /// A refusal in the API's own shape.
    pub(crate) fn status(status: u16) -> Self {
        let kind = match status {
            400 => "invalid_request_error",
            401 => "authentication_error",
            403 => "permission_error",
            404 => "not_found_error",
            413 => "request_too_large",
            429 => "rate_limit_error",
            529 => "overloaded_error",
            _ => "api_error",
        };
        Self::refusal(status, kind, "scripted by the test")
    }

    /// A refusal in the API's own shape with a type and a sentence.
    pub(crate) fn refusal(status: u16, kind: &str, sentence: &str) -> Self {
        let body = json!({"type": "error", "error": {"type": kind, "message": sentence}});
        Self::body(status, "application/json", body.to_string())
    }

    /// Any status, content type and body.
    pub(crate) fn body(status: u16, content_type: &str, body: impl Into<Vec<u8>>) -> Self {
        Self {
            status,
            headers: vec![("content-type".into(), content_type.into())],
            body: body.into(),
            cuts: Vec::new(),
            delay: Duration::ZERO,
            pause: Duration::ZERO,
            end: End::Whole,
        }
    }

    /// Adds a header; an earlier one of that name goes.
    pub(crate) fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.retain(|(known, _)| !known.eq_ignore_ascii_case(name));
        self.headers.push((name.into(), value.into()));
        self
    }

    /// Rewrites the line ends of a stream. Comes before splits and cuts, which count bytes.
    pub(crate) fn newline(mut self, newline: Newline) -> Self {
        let text = String::from_utf8(self.body).unwrap();
        self.body = newline.apply(&text).into_bytes();
        self
    }

    /// Splits the body at these byte offsets.
    pub(crate) fn split_at(mut self, cuts: impl IntoIterator<Item = usize>) -> Self {
        self.cuts = cuts.into_iter().collect();
        self
    }

    /// Sends every byte by itself.
    pub(crate) fn every_byte(self) -> Self {
        let length = self.body.len();
        self.split_at(1..length)
    }

    /// Splits after every blank line: one piece an event.
    pub(crate) fn every_event(self) -> Self {
        let cuts: Vec<usize> = self
            .body
            .windows(2)
            .enumerate()
            .filter(|(_, pair)| *pair == b"\n\n")
            .map(|(at, _)| at + 2)
            .collect();
        self.split_at(cuts)
    }

    /// Waits before the head is sent.
    pub(crate) fn delay(mut self, delay: Duration) -> Self {
        self.delay = delay;
        self
    }

    /// Waits before every piece but the first.
    pub(crate) fn pause(mut self, pause: Duration) -> Self {
        self.pause = pause;
        self
    }

    /// Keeps the first `bytes` only and closes the connection there.
    pub(crate) fn close_after(self, bytes: usize) -> Self {
        self.ends(bytes, End::Close)
    }

    /// Keeps the first `bytes` only and resets the connection there.
    pub(crate) fn reset_after(self, bytes: usize) -> Self {
        self.ends(bytes, End::Reset)
    }

    /// Keeps the first `bytes` only and then says nothing more.
    pub(crate) fn hang_after(self, bytes: usize) -> Self {
        self.ends(bytes, End::Hang)
    }

    /// Keeps the first `bytes` only, and ends the body there as HTTP has it.
    pub(crate) fn end_after(self, bytes: usize) -> Self {
        self.ends(bytes, End::Whole)
    }

    fn ends(mut self, bytes: usize, end: End) -> Self {
        self.body.truncate(bytes);
        self.end = end;
        self
    }

    /// The body's length in bytes.
    pub(crate) fn len(&self) -> usize {
        self.body.len()
    }

    fn pieces(&self) -> Vec<&[u8]> {
        let mut pieces = Vec::new();
        let mut rest = &self.body[..];
        let mut at = 0;
        let mut cuts = self.cuts.clone();
        cuts.sort_unstable();
        for cut in cuts {
            if cut > at && cut < self.body.len() {
                let (piece, after) = rest.split_at(cut - at);
                pieces.push(piece);
                rest = after;
                at = cut;
            }
        }
        pieces.push(rest);
        pieces.retain(|piece| !piece.is_empty());
        pieces
    }
}

/// A request as the fake saw it.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    /// `POST /v1/messages`, without the version.
    pub(crate) line: String,
    /// Names in lower case, in order.
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    /// Counts connections from 1: equal numbers mean that one was used again.
    pub(crate) connection: usize,
}

impl Seen {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }
}

#[derive(Debug)]
struct Shared {
    script: Mutex<VecDeque<Answer>>,
    seen: Mutex<Vec<Seen>>,
    strict: bool,
    stopped: AtomicBool,
    connections: AtomicUsize,
}

/// The fake: listens until it is dropped.
#[derive(Debug)]
pub(crate) struct FakeModel {
    address: SocketAddr,
    shared: Arc<Shared>,
}

impl FakeModel {
    /// Starts on a free port of 127.0.0.1 and answers the requests in the order of the script.
    /// A request too many is refused with 400 and a sentence.
    pub(crate) fn start(script: Vec<Answer>) -> Self {
        Self::launch(script, false)
    }

    /// As [`FakeModel::start`], and refuses with 400 what the real API refuses. A refused request
    /// uses up no answer.
    pub(crate) fn strict(script: Vec<Answer>) -> Self {
        Self::launch(script, true)
    }

    fn launch(script: Vec<Answer>, strict: bool) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            script: Mutex::new(script.into()),
            seen: Mutex::default(),
            strict,
            stopped: AtomicBool::new(false),
            connections: AtomicUsize::new(0),
        });
        let of_thread = Arc::clone(&shared);
        thread::spawn(move || {
            for connection in listener.incoming() {
                if of_thread.stopped.load(Ordering::SeqCst) {
                    break;
                }
                let Ok(connection) = connection else { continue };
                let number = of_thread.connections.fetch_add(1, Ordering::SeqCst) + 1;
                let shared = Arc::clone(&of_thread);
                // An error is a client that went away, which tests do on purpose.
                thread::spawn(move || drop(serve(&connection, number, &shared)));
            }
        });
        Self { address, shared }
    }

    /// `http://127.0.0.1:PORT`, as an Anthropic base URL.
    pub(crate) fn base_url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// The requests so far.
    pub(crate) fn requests(&self) -> Vec<Seen> {
        self.shared.seen.lock().unwrap().clone()
    }

    /// The bodies of the requests so far.
    pub(crate) fn bodies(&self) -> Vec<Value> {
        self.requests().iter().map(Seen::json).collect()
    }

    /// How many answers were not asked for.
    pub(crate) fn left(&self) -> usize {
        self.shared.script.lock().unwrap().len()
    }
}

impl Drop for FakeModel {
    fn drop(&mut self) {
        self.shared.stopped.store(true, Ordering::SeqCst);
        // Wakes the listener; a connection is all it needs.
        drop(TcpStream::connect(self.address));
    }
}

fn serve(connection: &TcpStream, number: usize, shared: &Shared) -> std::io::Result<()> {
    connection.set_nodelay(true)?;
    let mut reader = BufReader::new(connection.try_clone()?);
    while let Some(seen) = request(&mut reader, number)? {
        let complaint = if shared.strict { complaint(&seen) } else { None };
        shared.seen.lock().unwrap().push(seen);
        let answer = match complaint {
            Some(complaint) => Answer::refusal(400, "invalid_request_error", &complaint),
            None => shared.script.lock().unwrap().pop_front().unwrap_or_else(|| {
                Answer::refusal(400, "invalid_request_error", "the fake's script has run out")
            }),
        };
        if !send(connection, &answer, shared)? {
            break;
        }
    }
    Ok(())
}

fn request(reader: &mut impl BufRead, connection: usize) -> std::io::Result<Option<Seen>> {
    let mut line = String::new();
    if reader.read_line(&mut line)? == 0 {
        return Ok(None);
    }
    let line = line.trim_end().trim_end_matches(" HTTP/1.1").to_owned();
    let mut headers = Vec::new();
    loop {
        let mut header = String::new();
        reader.read_line(&mut header)?;
        let Some((name, value)) = header.trim_end().split_once(':') else { break };
        headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
    }
    let mut seen = Seen { line, headers, body: Vec::new(), connection };
    let length = seen.header("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
    seen.body.resize(length, 0);
    reader.read_exact(&mut seen.body)?;
    Ok(Some(seen))
}

/// Returns whether the connection can be used again.
fn send(mut connection: &TcpStream, answer: &Answer, shared: &Shared) -> std::io::Result<bool> {
    thread::sleep(answer.delay);
    let mut head = Vec::new();
    write!(head, "HTTP/1.1 {} Scripted\r\ntransfer-encoding: chunked\r\n", answer.status)?;
    for (name, value) in &answer.headers {
        write!(head, "{name}: {value}\r\n")?;
    }
    head.extend_from_slice(b"\r\n");
    connection.write_all(&head)?;
    let mut out = Vec::new();
    for (number, piece) in answer.pieces().into_iter().enumerate() {
        if number > 0 && answer.pause > Duration::ZERO {
            connection.write_all(&out)?;
            out.clear();
            thread::sleep(answer.pause);
        }
        out.extend_from_slice(format!("{:x}\r\n", piece.len()).as_bytes());
        out.extend_from_slice(piece);
        out.extend_from_slice(b"\r\n");
    }
    if answer.end == End::Whole {
        out.extend_from_slice(b"0\r\n\r\n");
    }
    connection.write_all(&out)?;
    match answer.end {
        End::Whole => Ok(true),
        End::Close => Ok(false),
        End::Reset => {
            // Bytes on their way would be thrown away with the connection.
            thread::sleep(Duration::from_millis(50));
            rustix::net::sockopt::set_socket_linger(connection, Some(Duration::ZERO))?;
            Ok(false)
        }
        End::Hang => {
            // Until the client has had enough.
            connection.set_read_timeout(Some(Duration::from_millis(50)))?;
            let mut byte = [0];
            while !shared.stopped.load(Ordering::SeqCst) {
                match connection.read(&mut byte) {
                    Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                    Ok(0) | Err(_) => break,
                    Ok(_) => {}
                }
            }
            Ok(false)
        }
    }
}

/// Says what the real API would refuse in a request.
fn complaint(seen: &Seen) -> Option<String> {
    if seen.line != "POST /v1/messages" {
        return Some(format!("no such endpoint: {}", seen.line));
    }
    if seen.header("anthropic-version").is_none() {
        return Some("anthropic-version: header is required".into());
    }
    if seen.header("content-type") != Some("application/json") {
        return Some("content-type: application/json is required".into());
    }
    let Ok(body) = serde_json::from_slice::<Value>(&seen.body) else {
        return Some("the body is not JSON".into());
    };
    if body["stream"] != true || body["max_tokens"].as_u64().unwrap_or(0) == 0 {
        return Some("stream and max_tokens are required".into());
    }
    if body["tools"].as_array().is_none_or(Vec::is_empty)
        && body["messages"].to_string().contains(r#""type":"tool_"#)
    {
        return Some("tools: required when messages hold `tool_use` or `tool_result`".into());
    }
    let model = body["model"].as_str().unwrap_or_default().to_owned();
    let messages = body["messages"].as_array().cloned().unwrap_or_default();
    if messages.is_empty() {
        return Some("messages: at least one message is required".into());
    }
    let mut open: Vec<String> = Vec::new();
    let mut ids = BTreeSet::new();
    for (at, message) in messages.iter().enumerate() {
        let expected = if at % 2 == 0 { "user" } else { "assistant" };
        if message["role"] != expected {
            return Some(format!("messages.{at}: roles must alternate, {expected} is expected"));
        }
        let content = match &message["content"] {
            Value::String(text) => vec![json!({"type": "text", "text": text})],
            Value::Array(blocks) => blocks.clone(),
            _ => Vec::new(),
        };
        if content.is_empty() {
            return Some(format!("messages.{at}: content must not be empty"));
        }
        let wanted = std::mem::take(&mut open);
        let mut answered = Vec::new();
        let mut other = false;
        for block in &content {
            if let Some(complaint) = block_complaint(block, expected, &model) {
                return Some(format!("messages.{at}: {complaint}"));
            }
            match block["type"].as_str() {
                Some("tool_use") => {
                    let id = block["id"].as_str().unwrap_or_default().to_owned();
                    if !ids.insert(id.clone()) {
                        return Some(format!("messages.{at}: `tool_use` ids must be unique: {id}"));
                    }
                    open.push(id);
                }
                Some("tool_result") => {
                    let id = block["tool_use_id"].as_str().unwrap_or_default().to_owned();
                    if !wanted.contains(&id) || answered.contains(&id) {
                        return Some(format!(
                            "messages.{at}: unexpected `tool_use_id` in `tool_result`: {id}"
                        ));
                    }
                    if other {
                        return Some(format!("messages.{at}: `tool_result` blocks come first"));
                    }
                    answered.push(id);
                }
                _ => other = true,
            }
        }
        if let Some(id) = wanted.iter().find(|id| !answered.contains(id)) {
            return Some(format!(
                "messages.{at}: `tool_use` ids were found without `tool_result` blocks: {id}"
            ));
        }
    }
    open.first().map(|id| format!("the last message's `tool_use` {id} has no `tool_result`"))
}

fn block_complaint(block: &Value, role: &str, model: &str) -> Option<String> {
    let text = |key: &str| block[key].as_str().unwrap_or_default();
    let fits = |text: &str| {
        !text.is_empty()
            && text.len() <= 128
            && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-')
    };
    match (text("type"), role) {
        ("text", _) if text("text").trim().is_empty() => {
            Some("text content blocks must contain non-whitespace text".into())
        }
        ("text", _) => None,
        ("tool_use", "assistant") => {
            if !fits(text("id")) || !fits(text("name")) {
                return Some(format!("tool_use: bad id or name: {block}"));
            }
            (!block["input"].is_object()).then(|| "tool_use.input: an object is required".into())
        }
        ("tool_result", "user") => {
            let empty = text("content").trim().is_empty();
            (block["is_error"] == true && empty)
                .then(|| "content cannot be empty if `is_error` is true".into())
        }
        // Signatures of this fake are `MODEL:…`, so that another model's can be told.
        ("thinking", "assistant") => (!text("signature").starts_with(&format!("{model}:")))
            .then(|| "Invalid `signature` in `thinking` block".into()),
        ("redacted_thinking", "assistant") => (!text("data").starts_with(&format!("{model}:")))
            .then(|| "Invalid `data` in `redacted_thinking` block".into()),
        (other, _) => Some(format!("block type `{other}` is not allowed for {role}")),
    }
}

/// A content block of an answer.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    start: Value,
    deltas: Vec<Value>,
}

/// A text, streamed in pieces of a few characters.
pub(crate) fn text(text: &str) -> Part {
    let deltas = pieces(text).map(|text| json!({"type": "text_delta", "text": text})).collect();
    Part { start: json!({"type": "text", "text": ""}), deltas }
}

/// A tool call; `arguments` is raw text and is streamed in pieces. Empty = no piece at all.
pub(crate) fn tool_use(id: &str, name: &str, arguments: &str) -> Part {
    let start = json!({"type": "tool_use", "id": id, "name": name, "input": {}});
    let deltas = pieces(arguments)
        .map(|json| json!({"type": "input_json_delta", "partial_json": json}))
        .collect();
    Part { start, deltas }
}

/// A thinking block. The strict fake takes it back only with a signature `MODEL:…`.
pub(crate) fn thinking(text: &str, signature: &str) -> Part {
    let mut deltas: Vec<Value> =
        pieces(text).map(|text| json!({"type": "thinking_delta", "thinking": text})).collect();
    deltas.push(json!({"type": "signature_delta", "signature": signature}));
    Part { start: json!({"type": "thinking", "thinking": "", "signature": ""}), deltas }
}

/// A redacted thinking block. The strict fake takes it back only with data `MODEL:…`.
pub(crate) fn redacted_thinking(data: &str) -> Part {
    Part { start: json!({"type": "redacted_thinking", "data": data}), deltas: Vec::new() }
}

fn pieces(text: &str) -> impl Iterator<Item = String> {
    let characters: Vec<char> = text.chars().collect();
    characters.chunks(7).map(String::from_iter).collect::<Vec<_>>().into_iter()
}

/// One event, with its name.
pub(crate) fn event(value: &Value) -> String {
    format!("event: {}\ndata: {value}\n\n", value["type"].as_str().unwrap_or_default())
}

/// A whole answer with the stop reason that its parts suggest and a fixed usage (12 in, 34 out,
/// 5 read from the cache, 6 written to it).
pub(crate) fn message(parts: impl IntoIterator<Item = Part>) -> String {
    let parts: Vec<Part> = parts.into_iter().collect();
    let calls = parts.iter().any(|part| part.start["type"] == "tool_use");
    message_stopped(parts, if calls { "tool_use" } else { "end_turn" })
}

/// A whole answer with a stop reason.
pub(crate) fn message_stopped(parts: impl IntoIterator<Item = Part>, reason: &str) -> String {
    let mut stream = event(&json!({"type": "message_start", "message": {
        "id": "msg_1", "type": "message", "role": "assistant", "content": [], "model": "fake",
        "stop_reason": null, "stop_sequence": null,
        "usage": {"input_tokens": 12, "cache_read_input_tokens": 5,
                  "cache_creation_input_tokens": 6, "output_tokens": 1}}}));
    stream.push_str(&event(&json!({"type": "ping"})));
    for (index, part) in parts.into_iter().enumerate() {
        stream.push_str(&event(
            &json!({"type": "content_block_start", "index": index, "content_block": part.start}),
        ));
        for delta in part.deltas {
            stream.push_str(&event(
                &json!({"type": "content_block_delta", "index": index, "delta": delta}),
            ));
        }
        stream.push_str(&event(&json!({"type": "content_block_stop", "index": index})));
    }
    stream.push_str(&event(&json!({"type": "message_delta",
        "delta": {"stop_reason": reason, "stop_sequence": null},
        "usage": {"output_tokens": 34}})));
    stream.push_str(&event(&json!({"type": "message_stop"})));
    stream
}
