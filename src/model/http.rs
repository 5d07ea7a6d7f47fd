//! HTTP in one place: a client for one base URL, one POST at a time, the body as it comes.
//!
//! It must not know what a body means. Three rules hold for every provider: redirects are not
//! followed (a key must not travel), nothing on this machine is reached through a proxy, and no
//! message shows a key, a header's value or a query. Where the address leads is [`address`]'s.

mod address;

use std::{
    error::Error as _,
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    path::Path,
    sync::Arc,
    time::Duration,
};

use reqwest::{
    Client, Response, Url,
    header::{self, HeaderMap, HeaderName, HeaderValue},
    redirect::Policy,
};
use tokio::time::timeout;

use self::address::Address;
use super::{
    Class, ModelError,
    catalogue::{OpenError, Options, Secret},
    failure::{Reply, plain, retry_after},
    sse::{Event, Parser},
};
use crate::host::state;

/// How long a connection may take to come up: name, TCP and TLS together.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// How long the body of a refusal is waited for.
const REFUSAL_TIMEOUT: Duration = Duration::from_secs(10);

/// The most bytes of a refusal that are read.
const REFUSAL: usize = 64 * 1024;

/// The most bytes of an answer in one piece.
const WHOLE: usize = 16 * 1024 * 1024;

/// How long the end of the body is waited for after the answer is complete: long enough for bytes
/// that are on their way, so that the connection can be used again, and too short to be noticed.
const DRAIN: Duration = Duration::from_millis(5);

/// A byte order mark.
const MARK: &[u8] = "\u{feff}".as_bytes();

/// One address to post to, with its client and its headers.
#[derive(Clone)]
pub(super) struct Target {
    client: Client,
    url: Url,
    socket: Option<Arc<Path>>,
    host: String,
    /// What to say where the path is not there.
    repair: Arc<str>,
    whole: Option<&'static Whole>,
    headers: HeaderMap,
    secrets: Arc<[Secret]>,
    idle: Duration,
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Target")
            .field("host", &self.host)
            .field("idle", &self.idle)
            .finish_non_exhaustive()
    }
}

/// What a provider adds to the options.
#[derive(Debug)]
pub(super) struct Dialect {
    /// The base URL when the options name none.
    pub(super) base_url: &'static str,
    /// The path below the socket when a `unix:` base URL names none.
    pub(super) socket_prefix: &'static str,
    /// The part of the path that must not be in the base URL.
    pub(super) not_at_end: &'static str,
    /// The path below the base URL.
    pub(super) path: &'static [&'static str],
    /// What to say, after the base URL, where that path is not there.
    pub(super) repair: fn(&Url) -> String,
    /// The header that carries the key.
    pub(super) key_header: HeaderName,
    /// What stands before the key in that header.
    pub(super) key_prefix: &'static str,
    /// How an answer in one piece is told, where there may be one although a stream was asked for.
    pub(super) whole: Option<&'static Whole>,
    /// Headers of the protocol.
    pub(super) headers: &'static [(&'static str, &'static str)],
}

/// An answer in one piece: a JSON object instead of an event stream.
#[derive(Debug)]
pub(super) struct Whole {
    /// The key that such an object has, and an error has not.
    pub(super) key: &'static str,
    /// The data of the event that ends a stream of this kind.
    pub(super) end: &'static str,
}

impl Target {
    /// Checks the options and builds the client; nothing is sent.
    pub(super) fn new(options: &Options, dialect: &Dialect) -> Result<Self, OpenError> {
        let Address { mut url, socket, host, local } = Address::new(options, dialect)?;
        if options.key.is_none() && options.headers.is_empty() && !local {
            return Err(OpenError::MissingKey { provider: options.provider.clone(), host });
        }
        let repair = (dialect.repair)(&url).into();
        if let Ok(mut path) = url.path_segments_mut() {
            path.pop_if_empty().extend(dialect.path);
        }
        let client = client(&url, local, socket.as_deref())
            .map_err(|reason| OpenError::Client { host: host.clone(), reason })?;
        let secrets = options.key.iter().chain(options.headers.iter().map(|(_, value)| value));
        Ok(Self {
            client,
            headers: headers(options, dialect)?,
            socket: socket.map(Into::into),
            host,
            repair,
            whole: dialect.whole,
            secrets: secrets.cloned().collect(),
            idle: options.idle_timeout,
            url,
        })
    }

    /// Returns whether the way there leads over a network, the loopback included.
    pub(super) fn needs_network(&self) -> bool {
        self.socket.is_none()
    }

    /// Returns `HOST`, `HOST:PORT` or `unix:/PATH`, for messages.
    pub(super) fn host(&self) -> &str {
        &self.host
    }

    /// Takes every secret out of a text that came from outside.
    pub(super) fn scrub(&self, text: String) -> String {
        self.secrets.iter().fold(text, |text, secret| secret.scrub(text))
    }

    /// Posts a JSON body and returns the answer's stream once its head has come.
    pub(super) async fn post(&self, body: Vec<u8>) -> Result<Body, ModelError> {
        let request =
            self.client.post(self.url.clone()).headers(self.headers.clone()).body(body).send();
        let response = match timeout(self.idle, request).await {
            Ok(Ok(response)) => response,
            Ok(Err(error)) => return Err(self.broken(&error)),
            Err(_) => return Err(self.idle()),
        };
        let mut body = Body { target: self.clone(), response, head: Head::Unseen(Vec::new()) };
        if let Some(encoding) = body.encoding() {
            let what =
                format!("sent its answer as `{encoding}`, though none but plain was asked for");
            return Err(ModelError {
                class: Class::Fatal,
                message: format!("`{}` {what}", self.host),
                network: false,
            });
        }
        if body.response.status() == reqwest::StatusCode::OK {
            return Ok(body);
        }
        Err(body.refusal(Vec::new()).await)
    }

    /// Returns the error for a connection that ended before the answer did.
    pub(super) fn cut(&self) -> ModelError {
        self.network("closed the connection before the answer was complete")
    }

    fn network(&self, what: &str) -> ModelError {
        ModelError {
            class: Class::Retry { after: None },
            message: format!("`{}` {what}", self.host),
            network: true,
        }
    }

    fn idle(&self) -> ModelError {
        self.network(&format!("sent nothing for {} s", self.idle.as_secs_f64()))
    }

    fn broken(&self, error: &reqwest::Error) -> ModelError {
        let plain_cause = self.scrub(plain(&root_cause(error), 300));
        let message = if error.is_connect() && error.is_timeout() {
            format!("`{}` could not be reached within {} s", self.host, CONNECT_TIMEOUT.as_secs())
        } else if error.is_connect() {
            let cause = self.socket.as_deref().and_then(|path| no_socket(path, error));
            let cause = cause.map_or(plain_cause, str::to_owned);
            let repair = if errno(error) == Some(libc::ECONNREFUSED) && self.socket.is_none() {
                "; start its server, or mend its address"
            } else {
                ""
            };
            format!("`{}` cannot be reached: {cause}{repair}", self.host)
        } else {
            format!("the connection to `{}` broke: {plain_cause}", self.host)
        };
        let class =
            if bad_certificate(error) { Class::Fatal } else { Class::Retry { after: None } };
        ModelError { class, message, network: true }
    }
}

/// The body of an answer, as it comes.
pub(super) struct Body {
    target: Target,
    response: Response,
    head: Head,
}

/// Whether the body has shown what it is. Gateways send event streams under any content type, and
/// pages under the right one.
enum Head {
    Unseen(Vec<u8>),
    Events,
    /// A JSON object so far: an answer in one piece, or an error.
    Object(Vec<u8>),
}

impl Body {
    /// Waits for the next bytes and appends the events that they complete. Returns whether more
    /// can come.
    pub(super) async fn read(
        &mut self,
        parser: &mut Parser,
        events: &mut Vec<Event>,
    ) -> Result<bool, ModelError> {
        let chunk = match timeout(self.target.idle, self.response.chunk()).await {
            Ok(Ok(chunk)) => chunk,
            Ok(Err(error)) => return Err(self.target.broken(&error)),
            Err(_) => return Err(self.target.idle()),
        };
        let more = chunk.is_some();
        let bytes = chunk.unwrap_or_default();
        let fed = match &mut self.head {
            Head::Unseen(head) => {
                head.extend_from_slice(&bytes);
                let head = without_blanks(std::mem::take(head));
                match looks_like_events(&head, self.is_declared()) {
                    Some(true) => {
                        self.head = Head::Events;
                        parser.feed(&head, events)
                    }
                    None if more => {
                        self.head = Head::Unseen(head);
                        Ok(())
                    }
                    None if head.iter().all(u8::is_ascii_whitespace) => Ok(()),
                    Some(false) if self.target.whole.is_some() && is_object(&head) => {
                        return self.object(head, more, events).await;
                    }
                    Some(false) | None => return Err(self.refusal(head).await),
                }
            }
            Head::Events => parser.feed(&bytes, events),
            Head::Object(object) => {
                object.extend_from_slice(&bytes);
                let object = std::mem::take(object);
                return self.object(object, more, events).await;
            }
        };
        fed.map(|()| more).map_err(|error| ModelError {
            class: Class::Fatal,
            message: format!("`{}` cannot be understood: {error}", self.target.host),
            network: false,
        })
    }

    /// Hands an answer in one piece on as the events of a stream, once it is all there.
    async fn object(
        &mut self,
        object: Vec<u8>,
        more: bool,
        events: &mut Vec<Event>,
    ) -> Result<bool, ModelError> {
        if more && object.len() <= WHOLE {
            self.head = Head::Object(object);
            return Ok(true);
        }
        let whole = self.target.whole.filter(|whole| {
            serde_json::from_slice::<serde_json::Value>(&object)
                .is_ok_and(|value| value.get(whole.key).is_some_and(|v| !v.is_null()))
        });
        match (whole, String::from_utf8(object)) {
            (Some(whole), Ok(data)) => {
                let end = whole.end.to_owned();
                events.extend([data, end].map(|data| Event { data, ..Event::default() }));
                Ok(false)
            }
            (_, Ok(text)) => Err(self.refusal(text.into_bytes()).await),
            (_, Err(error)) => Err(self.refusal(error.into_bytes()).await),
        }
    }

    /// Gives the end of the body a moment to come, so that the connection can be used again.
    pub(super) async fn drain(mut self) {
        let rest = async { while let Ok(Some(_)) = self.response.chunk().await {} };
        let _ended_or_late = timeout(DRAIN, rest).await;
    }

    fn is_declared(&self) -> bool {
        self.content_type().is_some_and(|kind| {
            kind.split(';')
                .next()
                .is_some_and(|kind| kind.trim().eq_ignore_ascii_case("text/event-stream"))
        })
    }

    fn content_type(&self) -> Option<&str> {
        self.header(header::CONTENT_TYPE.as_str())
    }

    /// Returns how the body is packed, for a message; `None` = it is not.
    fn encoding(&self) -> Option<String> {
        let encoding = self.header(header::CONTENT_ENCODING.as_str())?.trim();
        let is_plain = encoding.is_empty() || encoding.eq_ignore_ascii_case("identity");
        (!is_plain).then(|| self.target.scrub(plain(encoding, 60)))
    }

    fn header(&self, name: &str) -> Option<&str> {
        self.response.headers().get(name)?.to_str().ok()
    }

    /// Reads what came instead of an answer and says what it means.
    async fn refusal(&mut self, mut bytes: Vec<u8>) -> ModelError {
        let rest = async {
            while bytes.len() < REFUSAL {
                match self.response.chunk().await {
                    Ok(Some(chunk)) => bytes.extend_from_slice(&chunk),
                    Ok(None) | Err(_) => break,
                }
            }
        };
        let _ended_or_late = timeout(REFUSAL_TIMEOUT.min(self.target.idle), rest).await;
        // All that the server wrote, as it may send back what it got.
        let body = self.target.scrub(String::from_utf8_lossy(&bytes).into_owned());
        let content_type = self.content_type().map(|kind| self.target.scrub(kind.to_owned()));
        let status = self.response.status();
        let location = status
            .is_redirection()
            .then(|| self.header(header::LOCATION.as_str()))
            .flatten()
            // Before a host's letters become small, which would hide a key from the scrubbing.
            .map(|place| self.target.scrub(place.to_owned()).replace('…', "hidden"))
            .and_then(|place| self.target.url.join(&place).ok())
            .map(|url| address::host_name(&url));
        Reply {
            host: &self.target.host,
            status: status.as_u16(),
            reason: status.canonical_reason().unwrap_or_default(),
            content_type: content_type.as_deref(),
            location: location.as_deref(),
            body: &body,
            repair: &self.target.repair,
            after: retry_after(
                self.header("retry-after-ms"),
                self.header(header::RETRY_AFTER.as_str()),
                self.header(header::DATE.as_str()),
            ),
        }
        .error()
    }
}

/// Whether a body starts like an event stream; `None` = too short to say.
fn looks_like_events(head: &[u8], declared: bool) -> Option<bool> {
    if head.len() < MARK.len() && MARK.starts_with(head) {
        return None;
    }
    let head = head.strip_prefix(MARK).unwrap_or(head).trim_ascii_start();
    let first = head.first()?;
    if declared {
        return Some(!matches!(first, b'<' | b'{'));
    }
    let fields: [&[u8]; 5] = [b":", b"data", b"event", b"id", b"retry"];
    if fields.iter().any(|field| head.starts_with(field)) {
        return Some(true);
    }
    if fields.iter().any(|field| field.starts_with(head)) { None } else { Some(false) }
}

/// Drops blank bytes and byte order marks from the start of a body: some gateways send blanks for as
/// long as they wait.
fn without_blanks(mut head: Vec<u8>) -> Vec<u8> {
    let mut rest = head.trim_ascii_start();
    while let Some(after) = rest.strip_prefix(MARK) {
        rest = after.trim_ascii_start();
    }
    let blanks = head.len().saturating_sub(rest.len());
    head.drain(..blanks);
    head
}

fn is_object(head: &[u8]) -> bool {
    head.trim_ascii_start().starts_with(b"{")
}

/// Says in words why nobody answers at a socket; `None` = no usual reason.
fn no_socket(path: &Path, error: &reqwest::Error) -> Option<&'static str> {
    use std::os::unix::fs::FileTypeExt as _;

    match errno(error)? {
        libc::ENOENT => Some("there is no such socket; start its server, or mend the path"),
        libc::ENOTDIR => Some("a part of its path is no directory; mend the path"),
        libc::EACCES => Some(
            "permission denied; a socket wants write permission for itself, and search permission \
             for its directories",
        ),
        libc::ECONNREFUSED => {
            let found = state::metadata(path).ok()?.file_type();
            if found.is_socket() || found.is_symlink() {
                Some("nobody listens on that socket; start its server")
            } else {
                Some("it is no socket; mend the path")
            }
        }
        _ => None,
    }
}

fn errno(error: &reqwest::Error) -> Option<i32> {
    let mut cause = error.source();
    while let Some(error) = cause {
        if let Some(number) =
            error.downcast_ref::<std::io::Error>().and_then(std::io::Error::raw_os_error)
        {
            return Some(number);
        }
        cause = error.source();
    }
    None
}

fn client(url: &Url, local: bool, socket: Option<&Path>) -> Result<Client, String> {
    if rustls::crypto::CryptoProvider::get_default().is_none() {
        // A second thread may have been faster; either way there is one now.
        let _first_one_wins = rustls::crypto::ring::default_provider().install_default();
    }
    let mut builder = Client::builder()
        .user_agent(concat!("kli/", env!("CARGO_PKG_VERSION")))
        .redirect(Policy::none())
        .referer(false)
        .connect_timeout(CONNECT_TIMEOUT);
    if url.scheme() == "http" {
        // Reading the system's roots takes longer than a whole turn with a local server. The one
        // loss is a proxy that itself speaks TLS in front of a plain server.
        builder = builder.tls_certs_only([]);
    }
    if local {
        builder = builder.no_proxy();
        // Nobody is asked where a name of this machine leads: RFC 6761, section 6.3.
        if let Some(name) = url.domain() {
            let here = [IpAddr::from(Ipv4Addr::LOCALHOST), Ipv6Addr::LOCALHOST.into()];
            builder = builder.resolve_to_addrs(name, &here.map(|ip| SocketAddr::new(ip, 0)));
        }
    }
    if let Some(socket) = socket {
        builder = builder.unix_socket(socket);
    }
    builder.build().map_err(|error| {
        let cause = root_cause(&error);
        if cause.contains("No CA certificates") {
            "the system has no TLS root certificates: install `ca-certificates` or point \
             SSL_CERT_FILE to a bundle"
                .to_owned()
        } else {
            cause
        }
    })
}

fn headers(options: &Options, dialect: &Dialect) -> Result<HeaderMap, OpenError> {
    let mut headers = HeaderMap::new();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(header::ACCEPT, HeaderValue::from_static("text/event-stream"));
    for (name, value) in dialect.headers {
        headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
    }
    if let Some(key) = &options.key {
        let value = sensitive(key, dialect.key_prefix)
            .ok_or_else(|| OpenError::Key { provider: options.provider.clone() })?;
        headers.insert(dialect.key_header.clone(), value);
    }
    for (name, value) in &options.headers {
        let fail = |reason| OpenError::Header {
            provider: options.provider.clone(),
            header: name.clone(),
            reason,
        };
        let header = HeaderName::from_bytes(name.as_bytes())
            .map_err(|_| fail("its name is none: letters, digits and `-` only"))?;
        if [header::HOST, header::CONTENT_LENGTH, header::TRANSFER_ENCODING].contains(&header) {
            return Err(fail("kli sets it itself: leave it out"));
        }
        let value =
            sensitive(value, "").ok_or_else(|| fail("its value holds a line break or the like"))?;
        headers.insert(header, value);
    }
    Ok(headers)
}

fn sensitive(secret: &Secret, prefix: &str) -> Option<HeaderValue> {
    let mut value = HeaderValue::from_str(&format!("{prefix}{}", secret.reveal())).ok()?;
    value.set_sensitive(true);
    Some(value)
}

/// Returns the innermost cause. The outer ones repeat the URL, whose query may be a secret.
fn root_cause(error: &reqwest::Error) -> String {
    let mut cause = error.source();
    let mut last = None;
    while let Some(error) = cause {
        last = Some(error);
        cause = error.source();
    }
    last.map_or_else(|| "no cause given".to_owned(), ToString::to_string)
}

fn bad_certificate(error: &reqwest::Error) -> bool {
    let mut cause = error.source();
    while let Some(error) = cause {
        if let Some(error) = error.downcast_ref::<rustls::Error>() {
            return matches!(error, rustls::Error::InvalidCertificate(_));
        }
        // An `io::Error` skips the error that it wraps when it is asked for its source.
        let wrapped = error.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
        cause = wrapped.map_or_else(|| error.source(), |inner| Some(inner));
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blanks_before_a_body_are_not_kept() {
        for (head, wanted) in [
            ("\n \r\n\t", ""),
            ("\n\u{feff}\n\u{feff}  data", "data"),
            ("data: \n\n", "data: \n\n"),
        ] {
            assert_eq!(without_blanks(head.into()), wanted.as_bytes());
        }
    }

    #[test]
    fn an_event_stream_is_told_from_a_page_by_its_first_bytes() {
        for declared in [false, true] {
            assert_eq!(looks_like_events(b"", declared), None);
            assert_eq!(looks_like_events(b"\xef\xbb", declared), None);
            assert_eq!(looks_like_events("\u{feff}".as_bytes(), declared), None);
            assert_eq!(looks_like_events("\u{feff}\ndata: x".as_bytes(), declared), Some(true));
            assert_eq!(looks_like_events(b": ping\n", declared), Some(true));
            assert_eq!(looks_like_events(b"\n<html>", declared), Some(false));
            assert_eq!(looks_like_events(b"{\"error\":1}", declared), Some(false));
        }
        assert_eq!(looks_like_events(b"eve", false), None);
        assert_eq!(looks_like_events(b"eve!", false), Some(false));
        assert_eq!(looks_like_events(b"x-new: 1\n", true), Some(true));
    }
}
