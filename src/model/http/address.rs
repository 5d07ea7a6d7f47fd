//! Where a base URL leads: a host on the network, this machine, or a Unix socket.
//!
//! It must not send anything, and no message shows user information or a query.

use std::{net::IpAddr, path::PathBuf};

use reqwest::Url;

use super::Dialect;
use crate::model::{
    catalogue::{OpenError, Options},
    failure::plain,
};

/// The most bytes of a socket's path: `sun_path` of `struct sockaddr_un` less its final zero, see
/// unix(7).
const SOCKET_PATH: usize = 107;

/// A base URL, checked.
#[derive(Debug)]
pub(super) struct Address {
    /// The base URL as requests need it; on a socket the host is `localhost`.
    pub(super) url: Url,
    /// The socket to connect to.
    pub(super) socket: Option<PathBuf>,
    /// `HOST`, `HOST:PORT` or `unix:/PATH`, for messages.
    pub(super) host: String,
    /// Whether it is on this machine: no key is needed, and no proxy is asked.
    pub(super) local: bool,
}

impl Address {
    /// Reads the base URL of the options.
    ///
    /// # Errors
    /// [`OpenError::BaseUrl`] says what is wrong and what to write instead.
    pub(super) fn new(options: &Options, dialect: &Dialect) -> Result<Self, OpenError> {
        let text = options.base_url.as_deref().unwrap_or(dialect.base_url);
        let fail = |reason: String| OpenError::BaseUrl {
            provider: options.provider.clone(),
            url: without_secrets(text),
            reason,
        };
        if let Some(rest) = text.strip_prefix("unix:") {
            return Self::socket(rest, dialect).map_err(fail);
        }
        let url = Url::parse(text)
            .map_err(|error| fail(format!("is not one ({error}): write `https://HOST`")))?;
        if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none() {
            return Err(fail("is neither `http://HOST` nor `https://HOST`".into()));
        }
        let right = |path: &str| {
            let mut right = url.clone();
            right.set_path(path);
            without_secrets(right.as_str().trim_end_matches('/'))
        };
        check_end(url.path(), dialect, right).map_err(fail)?;
        Ok(Self { socket: None, host: host_name(&url), local: is_loopback(&url), url })
    }

    /// Reads `/PATH` or `/PATH:/PREFIX`.
    fn socket(text: &str, dialect: &Dialect) -> Result<Self, String> {
        let (path, prefix) = match text.split_once(":/") {
            Some((path, prefix)) => (path, format!("/{prefix}")),
            None => (text, dialect.socket_prefix.to_owned()),
        };
        if !path.starts_with('/') || path.ends_with('/') || path.contains('\0') {
            return Err("names no socket: write `unix:/PATH`, or `unix:/PATH:/PREFIX`".into());
        }
        if path.len() > SOCKET_PATH {
            return Err(format!(
                "is too long: the path of a socket has at most {SOCKET_PATH} bytes, this one has \
                 {}; put the socket, or a link to its directory, at a shorter path",
                path.len()
            ));
        }
        if prefix.contains(['?', '#']) {
            return Err("has a query or a fragment: leave it out".into());
        }
        check_end(&prefix, dialect, |prefix| format!("unix:{path}:{prefix}/"))?;
        let mut url = Url::parse("http://localhost").map_err(|error| error.to_string())?;
        url.set_path(&prefix);
        Ok(Self { url, socket: Some(path.into()), host: format!("unix:{path}"), local: true })
    }
}

/// Refuses a path that ends in what belongs to the request; `right` writes the base URL anew.
fn check_end(
    path: &str,
    dialect: &Dialect,
    right: impl FnOnce(&str) -> String,
) -> Result<(), String> {
    match path.trim_end_matches('/').strip_suffix(dialect.not_at_end) {
        Some(shorter) => {
            let end = dialect.not_at_end;
            Err(format!("must end before `{end}`: write `{}`", right(shorter)))
        }
        None => Ok(()),
    }
}

/// Returns `HOST` or `HOST:PORT`.
pub(super) fn host_name(url: &Url) -> String {
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
pub(super) fn without_secrets(text: &str) -> String {
    let text = text.split(['?', '#']).next().unwrap_or_default();
    let (scheme, rest) = text.split_once("://").map_or(("", text), |(scheme, rest)| (scheme, rest));
    let (authority, path) = rest.find('/').map_or((rest, ""), |at| rest.split_at(at));
    let authority = authority.rsplit('@').next().unwrap_or_default();
    let separator = if scheme.is_empty() { "" } else { "://" };
    plain(&format!("{scheme}{separator}{authority}{path}"), 200)
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
}
