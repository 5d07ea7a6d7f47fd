//! A streaming fake of the model APIs on loopback or on a socket, for every test that needs a model.
//! It tells by the path of a request which API is spoken: [`messages`], [`chat`] or
//! [`responses`].
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
    clippy::panic,
    reason = "a broken fake should end its test at once; indexing a JSON value gives null"
)]

mod chat;
mod messages;
mod responses;
mod wire;

use std::{
    collections::VecDeque,
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    os::{
        fd::AsFd,
        unix::net::{UnixListener, UnixStream},
    },
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use serde_json::{Value, json};

pub(crate) use self::{
    chat::chunk,
    messages::{event, message, message_stopped},
    wire::Wire,
};

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

    /// A refusal in the shape of the Messages API.
    pub(crate) fn status(status: u16) -> Self {
        Self::refusal(status, Self::kind_of(status), "scripted by the test")
    }

    /// The type of error that goes with a status.
    fn kind_of(status: u16) -> &'static str {
        match status {
            400 => "invalid_request_error",
            401 => "authentication_error",
            403 => "permission_error",
            404 => "not_found_error",
            413 => "request_too_large",
            429 => "rate_limit_error",
            529 => "overloaded_error",
            _ => "api_error",
        }
    }

    /// A refusal in the shape of the Messages API with a type and a sentence.
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

/// Answers by what is asked.
type Responder = Box<dyn Fn(&Seen) -> Answer + Send + Sync>;

struct Shared {
    /// Takes the place of the script; what it answered is not kept.
    responder: Option<Responder>,
    script: Mutex<VecDeque<Answer>>,
    seen: Mutex<Vec<Seen>>,
    strict: bool,
    stopped: AtomicBool,
    connections: AtomicUsize,
}

/// The fake: listens until it is dropped.
pub(crate) struct FakeModel {
    place: Place,
    shared: Arc<Shared>,
}

#[derive(Clone, Debug)]
enum Place {
    Tcp(SocketAddr),
    Socket(PathBuf),
}

/// What a connection of either kind can do.
trait Connection: Read + Write + AsFd + Send + Sized + 'static {
    fn again(&self) -> std::io::Result<Self>;
    fn read_timeout(&self, timeout: Duration) -> std::io::Result<()>;
}

impl Connection for TcpStream {
    fn again(&self) -> std::io::Result<Self> {
        self.set_nodelay(true)?;
        self.try_clone()
    }

    fn read_timeout(&self, timeout: Duration) -> std::io::Result<()> {
        self.set_read_timeout(Some(timeout))
    }
}

impl Connection for UnixStream {
    fn again(&self) -> std::io::Result<Self> {
        self.try_clone()
    }

    fn read_timeout(&self, timeout: Duration) -> std::io::Result<()> {
        self.set_read_timeout(Some(timeout))
    }
}

impl FakeModel {
    /// Starts on a free port of 127.0.0.1 and answers the requests in the order of the script.
    /// A request too many is refused with 400 and a sentence.
    pub(crate) fn start(script: Vec<Answer>) -> Self {
        Self::launch(script, false)
    }

    /// As [`FakeModel::strict`], with answers that depend on the request. Requests are not kept.
    pub(crate) fn answering(answer: impl Fn(&Seen) -> Answer + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let place = Place::Tcp(listener.local_addr().unwrap());
        let accept = move || listener.accept().map(|(connection, _)| connection);
        Self::listen_with(place, accept, Vec::new(), true, Some(Box::new(answer)))
    }

    /// As [`FakeModel::start`], and refuses with 400 what the real API refuses. A refused request
    /// uses up no answer.
    pub(crate) fn strict(script: Vec<Answer>) -> Self {
        Self::launch(script, true)
    }

    fn launch(script: Vec<Answer>, strict: bool) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let place = Place::Tcp(listener.local_addr().unwrap());
        let accept = move || listener.accept().map(|(connection, _)| connection);
        Self::listen(place, accept, script, strict)
    }

    /// As [`FakeModel::strict`], on a Unix socket.
    pub(crate) fn at_socket(path: &Path, script: Vec<Answer>) -> Self {
        let listener = UnixListener::bind(path).unwrap();
        let accept = move || listener.accept().map(|(connection, _)| connection);
        Self::listen(Place::Socket(path.to_owned()), accept, script, true)
    }

    fn listen<C: Connection>(
        place: Place,
        accept: impl Fn() -> std::io::Result<C> + Send + 'static,
        script: Vec<Answer>,
        strict: bool,
    ) -> Self {
        Self::listen_with(place, accept, script, strict, None)
    }

    fn listen_with<C: Connection>(
        place: Place,
        accept: impl Fn() -> std::io::Result<C> + Send + 'static,
        script: Vec<Answer>,
        strict: bool,
        responder: Option<Responder>,
    ) -> Self {
        let shared = Arc::new(Shared {
            responder,
            script: Mutex::new(script.into()),
            seen: Mutex::default(),
            strict,
            stopped: AtomicBool::new(false),
            connections: AtomicUsize::new(0),
        });
        let of_thread = Arc::clone(&shared);
        thread::spawn(move || {
            loop {
                let connection = accept();
                if of_thread.stopped.load(Ordering::SeqCst) {
                    break;
                }
                let Ok(connection) = connection else { continue };
                let number = of_thread.connections.fetch_add(1, Ordering::SeqCst) + 1;
                let shared = Arc::clone(&of_thread);
                // An error is a client that went away, which tests do on purpose.
                thread::spawn(move || drop(serve(connection, number, &shared)));
            }
        });
        Self { place, shared }
    }

    /// `http://127.0.0.1:PORT` or `unix:/PATH`, as an Anthropic base URL.
    pub(crate) fn base_url(&self) -> String {
        match &self.place {
            Place::Tcp(address) => format!("http://{address}"),
            Place::Socket(path) => format!("unix:{}", path.display()),
        }
    }

    /// The base URL for an API. On a socket it is left to what is usual.
    pub(crate) fn url(&self, wire: Wire) -> String {
        match &self.place {
            Place::Tcp(_) => format!("{}{}", self.base_url(), wire.base()),
            Place::Socket(_) => self.base_url(),
        }
    }

    /// The address; the fake must not be on a socket.
    pub(crate) fn address(&self) -> SocketAddr {
        match &self.place {
            Place::Tcp(address) => *address,
            Place::Socket(path) => panic!("{} is no address", path.display()),
        }
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
        match &self.place {
            Place::Tcp(address) => drop(TcpStream::connect(address)),
            Place::Socket(path) => drop(UnixStream::connect(path)),
        }
    }
}

fn serve(mut connection: impl Connection, number: usize, shared: &Shared) -> std::io::Result<()> {
    let mut reader = BufReader::new(connection.again()?);
    while let Some(seen) = request(&mut reader, number)? {
        let complaint = shared.strict.then(|| complaint(&seen)).flatten();
        let respond = |seen: &Seen| shared.responder.as_ref().map(|responder| responder(seen));
        let answer = match complaint {
            Some(complaint) => Some(Answer::refusal(400, "invalid_request_error", &complaint)),
            None => respond(&seen),
        };
        if shared.responder.is_none() {
            shared.seen.lock().unwrap().push(seen);
        }
        let answer = match answer {
            Some(answer) => answer,
            None => shared.script.lock().unwrap().pop_front().unwrap_or_else(|| {
                Answer::refusal(400, "invalid_request_error", "the fake's script has run out")
            }),
        };
        if !send(&mut connection, &answer, shared)? {
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
fn send(
    connection: &mut impl Connection,
    answer: &Answer,
    shared: &Shared,
) -> std::io::Result<bool> {
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
            rustix::net::sockopt::set_socket_linger(&*connection, Some(Duration::ZERO))?;
            Ok(false)
        }
        End::Hang => {
            // Until the client has had enough.
            connection.read_timeout(Duration::from_millis(50))?;
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
    if seen.header("content-type") != Some("application/json") {
        return Some("content-type: application/json is required".into());
    }
    let Ok(body) = serde_json::from_slice::<Value>(&seen.body) else {
        return Some("the body is not JSON".into());
    };
    match seen.line.as_str() {
        "POST /v1/messages" => messages::complaint(seen, &body),
        "POST /v1/chat/completions" => chat::complaint(&body),
        "POST /v1/responses" => responses::complaint(&body),
        other => Some(format!("no such endpoint: {other}")),
    }
}

/// A part of an answer.
#[derive(Clone, Debug)]
pub(crate) enum Part {
    Text(String),
    Thinking { text: String, signature: String },
    Redacted(String),
    Call { id: String, name: String, arguments: String },
}

/// A text, streamed in pieces of a few characters.
pub(crate) fn text(text: &str) -> Part {
    Part::Text(text.to_owned())
}

/// A tool call; `arguments` is raw text and is streamed in pieces. Empty = no piece at all.
pub(crate) fn tool_use(id: &str, name: &str, arguments: &str) -> Part {
    Part::Call { id: id.to_owned(), name: name.to_owned(), arguments: arguments.to_owned() }
}

/// Thinking. The strict fake takes it back only with a signature `MODEL:…`, where the API has one.
pub(crate) fn thinking(text: &str, signature: &str) -> Part {
    Part::Thinking { text: text.to_owned(), signature: signature.to_owned() }
}

/// A redacted thinking block; not for Chat. The strict fake takes it back only with data
/// `MODEL:…`.
pub(crate) fn redacted_thinking(data: &str) -> Part {
    Part::Redacted(data.to_owned())
}

fn pieces(text: &str) -> impl Iterator<Item = String> {
    let characters: Vec<char> = text.chars().collect();
    characters.chunks(7).map(String::from_iter).collect::<Vec<_>>().into_iter()
}
