//! HTTP in one place: a client for one base URL, one POST at a time, the body as it comes.
//!
//! It must not know what a body means. Three rules hold for every provider: redirects are not
//! followed (a key must not travel), nothing on this machine is reached through a proxy, and no
//! message shows a key, a header's value or a query.

use std::{error::Error as _, fmt, net::IpAddr, sync::Arc, time::Duration};

use reqwest::{
    Client, Response, Url,
    header::{self, HeaderMap, HeaderName, HeaderValue},
    redirect::Policy,
};
use tokio::time::timeout;

use super::{
    Class, ModelError,
    catalogue::{OpenError, Options, Secret},
    failure::{Reply, plain, retry_after},
    sse::{Event, Parser},
};

/// How long a connection may take to come up: name, TCP and TLS together.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// How long the body of a refusal is waited for.
const REFUSAL_TIMEOUT: Duration = Duration::from_secs(10);

/// The most bytes of a refusal that are read.
const REFUSAL: usize = 64 * 1024;

/// How long the end of the body is waited for after the answer is complete: long enough for bytes
/// that are on their way, so that the connection can be used again, and too short to be noticed.
const DRAIN: Duration = Duration::from_millis(5);

/// One address to post to, with its client and its headers.
#[derive(Clone)]
pub(super) struct Target {
    client: Client,
    url: Url,
    host: String,
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
    /// The part of the path that belongs to the base URL of other kinds only.
    pub(super) not_at_end: &'static str,
    /// The path below the base URL.
    pub(super) path: &'static [&'static str],
    /// The header that carries the key.
    pub(super) key_header: HeaderName,
    /// Headers of the protocol.
    pub(super) headers: &'static [(&'static str, &'static str)],
}

impl Target {
    /// Checks the options and builds the client; nothing is sent.
    pub(super) fn new(options: &Options, dialect: &Dialect) -> Result<Self, OpenError> {
        let text = options.base_url.as_deref().unwrap_or(dialect.base_url);
        let mut url = base_url(options, text, dialect)?;
        let loopback = is_loopback(&url);
        let host = host_name(&url);
        if options.key.is_none() && options.headers.is_empty() && !loopback {
            return Err(OpenError::MissingKey { provider: options.provider.clone(), host });
        }
        if let Ok(mut path) = url.path_segments_mut() {
            path.pop_if_empty().extend(dialect.path);
        }
        let client = client(&url, loopback)
            .map_err(|reason| OpenError::Client { host: host.clone(), reason })?;
        let secrets = options.key.iter().chain(options.headers.iter().map(|(_, value)| value));
        Ok(Self {
            client,
            headers: headers(options, dialect)?,
            host,
            secrets: secrets.cloned().collect(),
            idle: options.idle_timeout,
            url,
        })
    }

    /// Returns `HOST` or `HOST:PORT`, for messages.
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
        let cause = self.scrub(plain(&root_cause(error), 300));
        let message = if error.is_connect() && error.is_timeout() {
            format!("`{}` could not be reached within {} s", self.host, CONNECT_TIMEOUT.as_secs())
        } else if error.is_connect() {
            format!("`{}` cannot be reached: {cause}", self.host)
        } else {
            format!("the connection to `{}` broke: {cause}", self.host)
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
        let fed = if let Head::Unseen(head) = &mut self.head {
            head.extend_from_slice(&bytes);
            let head = std::mem::take(head);
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
                Some(false) | None => return Err(self.refusal(head).await),
            }
        } else {
            parser.feed(&bytes, events)
        };
        fed.map(|()| more).map_err(|error| ModelError {
            class: Class::Fatal,
            message: format!("`{}` cannot be understood: {error}", self.target.host),
            network: false,
        })
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
            .map(|url| host_name(&url));
        Reply {
            host: &self.target.host,
            status: status.as_u16(),
            reason: status.canonical_reason().unwrap_or_default(),
            content_type: content_type.as_deref(),
            location: location.as_deref(),
            body: &body,
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
    const MARK: &[u8] = "\u{feff}".as_bytes();
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

fn client(url: &Url, loopback: bool) -> Result<Client, String> {
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
    if loopback {
        builder = builder.no_proxy();
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

fn base_url(options: &Options, text: &str, dialect: &Dialect) -> Result<Url, OpenError> {
    let fail = |reason: String| OpenError::BaseUrl {
        provider: options.provider.clone(),
        url: without_secrets(text),
        reason,
    };
    if text.starts_with("unix:") {
        return Err(fail("names a socket, which this version cannot reach: use `http://`".into()));
    }
    let url = Url::parse(text)
        .map_err(|error| fail(format!("is not one ({error}): write `https://HOST`")))?;
    if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none() {
        return Err(fail("is neither `http://HOST` nor `https://HOST`".into()));
    }
    let path = url.path().trim_end_matches('/');
    if let Some(shorter) = path.strip_suffix(dialect.not_at_end) {
        let mut right = url.clone();
        right.set_path(shorter);
        let right = without_secrets(right.as_str().trim_end_matches('/'));
        return Err(fail(format!("must end before `{}`: write `{right}`", dialect.not_at_end)));
    }
    Ok(url)
}

fn headers(options: &Options, dialect: &Dialect) -> Result<HeaderMap, OpenError> {
    let mut headers = HeaderMap::new();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(header::ACCEPT, HeaderValue::from_static("text/event-stream"));
    for (name, value) in dialect.headers {
        headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
    }
    if let Some(key) = &options.key {
        let value =
            sensitive(key).ok_or_else(|| OpenError::Key { provider: options.provider.clone() })?;
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
            sensitive(value).ok_or_else(|| fail("its value holds a line break or the like"))?;
        headers.insert(header, value);
    }
    Ok(headers)
}

fn sensitive(secret: &Secret) -> Option<HeaderValue> {
    let mut value = HeaderValue::from_str(secret.reveal()).ok()?;
    value.set_sensitive(true);
    Some(value)
}

fn host_name(url: &Url) -> String {
    let host = url.host_str().unwrap_or_default();
    url.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"))
}

fn is_loopback(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default();
    let name = host.trim_end_matches('.');
    name == "localhost"
        || name.ends_with(".localhost")
        || host.trim_matches(['[', ']']).parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

/// Returns a URL for a message: without user information, query and fragment. Works on text that
/// is no URL, too.
fn without_secrets(text: &str) -> String {
    let text = text.split(['?', '#']).next().unwrap_or_default();
    let (scheme, rest) = text.split_once("://").map_or(("", text), |(scheme, rest)| (scheme, rest));
    let (authority, path) = rest.find('/').map_or((rest, ""), |at| rest.split_at(at));
    let authority = authority.rsplit('@').next().unwrap_or_default();
    let separator = if scheme.is_empty() { "" } else { "://" };
    plain(&format!("{scheme}{separator}{authority}{path}"), 200)
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
    fn loopback_is_recognised_in_all_its_spellings() {
        for url in [
            "http://localhost",
            "http://localhost.:1",
            "http://LOCALHOST/",
            "http://a.localhost",
            "http://127.0.0.1:11434",
            "http://127.9.9.9",
            "http://[::1]:8080/x",
        ] {
            assert!(is_loopback(&Url::parse(url).unwrap()), "{url}");
        }
        for url in ["http://10.0.0.1", "http://localhost.example", "http://0.0.0.0", "http://[::2]"]
        {
            assert!(!is_loopback(&Url::parse(url).unwrap()), "{url}");
        }
    }

    #[test]
    fn urls_in_messages_lose_what_may_be_secret() {
        assert_eq!(without_secrets("https://u:p@h:1/x?key=1#f"), "https://h:1/x");
        assert_eq!(without_secrets("u:p@h/x?key=1"), "h/x");
        assert_eq!(without_secrets("https//h"), "https//h");
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
