//! The model of a run: which, where, with whose key, and whether a server on this machine answers.
//!
//! Nothing is sent. A connection is tried only to this machine, no name is looked up, no key is
//! read, and no command that would print one is run.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    path::{Path, PathBuf},
    time::Duration,
};

use reqwest::Url;
use tokio::{
    net::{TcpStream, UnixStream},
    runtime::Runtime,
    time::timeout,
};

use crate::{
    cli::{
        credentials::{self, Store, set_command},
        error::CliError,
        provider,
        setup::Setup,
    },
    config::{ModelName, Provider},
    host::examine::{self, Content},
    model::catalogue::{self, Kind, Options},
    sandbox::doctor::{Finding, Status},
};

use super::Here;

/// How long a server on this machine has to take a connection.
const PATIENCE: Duration = Duration::from_millis(300);

/// Where the certificates of authorities usually are; the first that is there is used.
const ROOTS: [&str; 7] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
    "/etc/ssl/certs/ca-bundle.crt",
    "/etc/ssl/certs",
];

pub(super) fn checks(here: &Here, runtime: &Runtime) -> Vec<Finding> {
    let Ok(setup) = &here.setup else {
        return vec![Finding::new(
            "model",
            Status::Unknown,
            "which model is asked cannot be told before the settings are mended",
        )];
    };
    let name = match provider::model_name(setup) {
        Ok(name) => name,
        Err(error) => {
            return vec![
                Finding::new("model", Status::Problem, error.fault.message)
                    .repair("let `model` be `PROVIDER/MODEL`"),
            ];
        }
    };
    match setup.settings.provider(&name.provider) {
        Err(error) => vec![
            Finding::new("model", Status::Problem, error.to_string())
                .repair("let `model` name a provider that is known"),
        ],
        Ok(Provider::Replay { file }) => vec![recording(setup, &name, file.as_deref())],
        Ok(provider) => {
            if let Err(error) = setup.permits(&name, &provider) {
                return vec![
                    Finding::new("model", Status::Problem, error.fault.message)
                        .repair("name a model that the policy allows"),
                ];
            }
            let base_url = Server::of(&provider).base_url;
            let place = Place::of(base_url, here.environment.home().as_deref());
            let mut found = vec![Finding::new(
                "model",
                Status::Ok,
                format!("`{}/{}` at `{}`", name.provider, name.model, host_of(base_url)),
            )];
            found.push(key(here, &source(here, setup, &name), &place, &name.provider));
            found.extend(server(here, runtime, &host_of(base_url), &place));
            found
        }
    }
}

/// What is asked of a provider that is a server.
#[derive(Default)]
struct Server<'a> {
    base_url: &'a str,
    key_env: Option<&'a str>,
    key_file: Option<&'a str>,
    key_command: Option<&'a str>,
    headers: bool,
}

impl<'a> Server<'a> {
    fn of(provider: &'a Provider) -> Self {
        match provider {
            Provider::Server(server) => Self {
                base_url: &server.base_url,
                key_env: server.key_env.as_deref(),
                key_file: server.key_file.as_deref(),
                key_command: server
                    .key_command
                    .as_ref()
                    .and_then(|words| words.first())
                    .map(String::as_str),
                headers: !server.headers.is_empty(),
            },
            Provider::Replay { .. } => Self::default(),
        }
    }
}

/// A recording is read to its end: there is nothing secret in it, and no server to ask.
fn recording(setup: &Setup, name: &ModelName, file: Option<&str>) -> Finding {
    let opened = provider::recording(setup, &name.model, file).and_then(|recording| {
        let kind = Kind::Replay { recording };
        catalogue::open(&Options::new(kind, name.provider.clone(), name.model.clone()))
            .map_err(|error| CliError::config(error.to_string()))
    });
    match opened {
        Ok(model) => Finding::new("model", Status::Ok, format!("the recording `{}`", model.name())),
        Err(error) => {
            let repair = error.hints.into_iter().next().unwrap_or_else(|| {
                format!("mend the recording, or the setting `providers.{}.file`", name.provider)
            });
            Finding::new("model", Status::Problem, error.fault.message).repair(repair)
        }
    }
}

/// Where the key of a provider would come from. It is told without reading the key.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// What a launcher handed over, by this name.
    Launcher(String),
    /// A variable that is set.
    Variable(String),
    /// A file that is named.
    File(PathBuf),
    /// A command that would print it; this program.
    Command(String),
    /// The file that `kli auth set` keeps.
    Store(PathBuf),
    /// A store that cannot be used, and why.
    BadStore(String),
    /// A header of the settings.
    Header,
    /// A variable that is named in the settings and not set.
    Missing(String),
    /// Nowhere; what would be looked at first.
    Nowhere(Option<String>),
}

/// Tells where the key of a model's provider would come from, in the order in which a run looks.
pub(super) fn source(here: &Here, setup: &Setup, name: &ModelName) -> Source {
    let Ok(provider) = setup.settings.provider(&name.provider) else {
        return Source::Nowhere(None);
    };
    let server = Server::of(&provider);
    if let Some(variable) = server.key_env
        && here.handed.get(variable).is_some()
    {
        return Source::Launcher(variable.to_owned());
    }
    if let Some(variable) = server.key_env
        && setup.environment.var(variable).is_some()
    {
        return Source::Variable(variable.to_owned());
    }
    if let Some(file) = server.key_file {
        return Source::File(setup.spelled(file).unwrap_or_else(|_| PathBuf::from(file)));
    }
    if let Some(program) = server.key_command {
        return Source::Command(program.to_owned());
    }
    if let Some(paths) = &here.paths {
        let file = credentials::file(paths);
        // Its keys are read to tell whether this provider's is among them, and dropped at once.
        match Store::read(&file) {
            Ok(store) if store.keys.contains_key(&name.provider) => return Source::Store(file),
            Ok(_) => {}
            Err(error) => return Source::BadStore(error.to_string()),
        }
    }
    let written = setup.settings.providers.get(&name.provider);
    if let Some(variable) = written.and_then(|provider| provider.key_env.get()) {
        return Source::Missing(variable.clone());
    }
    if server.headers { Source::Header } else { Source::Nowhere(server.key_env.map(str::to_owned)) }
}

fn key(here: &Here, source: &Source, place: &Place, provider: &str) -> Finding {
    let id = "model.key";
    let problem = |text: String| Finding::new(id, Status::Problem, text);
    match source {
        Source::Launcher(name) => {
            Finding::new(id, Status::Ok, format!("from the launcher, as `{name}`"))
        }
        Source::Command(program) => {
            Finding::new(id, Status::Ok, format!("from the command `{program}`, not run here"))
        }
        Source::Store(file) => {
            Finding::new(id, Status::Ok, format!("from the store `{}`", file.display()))
        }
        Source::BadStore(sentence) => problem(sentence.clone())
            .repair("mend or remove the store, and keep the key again (`kli auth set`)"),
        Source::Variable(name) => {
            Finding::new(id, Status::Ok, format!("from the variable `{name}`"))
        }
        Source::File(path) => key_file(here, path),
        Source::Header => {
            Finding::new(id, Status::Ok, "from a header of the settings, as far as one holds it")
        }
        Source::Missing(name) => problem(format!(
            "the variable `{name}`, which holds the key of provider `{provider}`, is not set"
        ))
        .repair("set it, or take `keyEnv` out if the server needs no key"),
        Source::Nowhere(_) if place.is_here() => {
            Finding::new(id, Status::Ok, "none; a server on this machine needs none")
        }
        Source::Nowhere(name) => {
            problem(format!("provider `{provider}` has no key")).repair(match name {
                Some(name) => format!(
                    "set the variable `{name}`, or store a key with `{}`",
                    set_command(provider)
                ),
                None => format!(
                    "store a key with `{}`, or set `providers.{provider}.keyEnv`",
                    set_command(provider)
                ),
            })
        }
    }
}

fn key_file(here: &Here, path: &Path) -> Finding {
    let id = "model.key";
    let shown = path.display();
    let what = match examine::content(path) {
        Content::File { .. } => {
            return match examine::owned(path) {
                Ok(owned) if owned.mode & 0o077 != 0 => Finding::new(
                    id,
                    Status::Warning,
                    format!(
                        "from the file `{shown}`, which others may read (mode {:04o})",
                        owned.mode
                    ),
                )
                .repair(format!("chmod 600 {shown}")),
                _ => Finding::new(id, Status::Ok, format!("from the file `{shown}`")),
            };
        }
        Content::Absent => "is not there",
        Content::Closed => "cannot be read",
        Content::Empty if here.jail.is_some() => "is empty, as if it were hidden here",
        Content::Empty => "is empty",
        Content::Directory | Content::Socket | Content::Other => "is no regular file",
    };
    Finding::new(id, Status::Problem, format!("the key file `{shown}` {what}"))
        .repair("write the key into it, readable by you alone (chmod 600)")
}

/// What a base URL leads to.
#[derive(Debug, PartialEq, Eq)]
enum Place {
    /// A server on this machine, at these addresses.
    Local(Vec<SocketAddr>),
    /// A socket on this machine.
    Socket(PathBuf),
    /// Another machine.
    Remote {
        /// Whether certificates are needed.
        tls: bool,
    },
    /// What cannot be read.
    Unreadable,
}

impl Place {
    fn of(base_url: &str, home: Option<&Path>) -> Self {
        if let Some(socket) = base_url.strip_prefix("unix:") {
            // What follows the socket is the start of every request's path.
            let path = socket.split_once(":/").map_or(socket, |(path, _)| path);
            return Self::Socket(match (path.strip_prefix("~/"), home) {
                (Some(rest), Some(home)) => home.join(rest),
                _ => PathBuf::from(path),
            });
        }
        let Ok(url) = Url::parse(base_url) else { return Self::Unreadable };
        let (Some(host), Some(port)) = (url.host_str(), url.port_or_known_default()) else {
            return Self::Unreadable;
        };
        let name = host.trim_end_matches('.');
        // The name is the machine's own whatever a resolver says (RFC 6761, section 6.3).
        if name == "localhost" || name.ends_with(".localhost") {
            let addresses = [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];
            return Self::Local(addresses.map(|ip| SocketAddr::new(ip, port)).to_vec());
        }
        match host.trim_matches(['[', ']']).parse::<IpAddr>() {
            Ok(ip) if ip.is_loopback() => Self::Local(vec![SocketAddr::new(ip, port)]),
            _ => Self::Remote { tls: url.scheme() == "https" },
        }
    }

    fn is_here(&self) -> bool {
        matches!(self, Self::Local(_) | Self::Socket(_))
    }
}

/// Says whether an address is one of this machine, where a server needs no key.
pub(crate) fn is_here(base_url: &str) -> bool {
    Place::of(base_url, None).is_here()
}

/// Returns the host and the port of a base URL, never a name or a password in it.
fn host_of(base_url: &str) -> String {
    if base_url.starts_with("unix:") {
        return base_url.to_owned();
    }
    Url::parse(base_url).map_or_else(
        |_| "an address that cannot be read".to_owned(),
        |url| {
            let host = url.host_str().unwrap_or_default().to_owned();
            url.port().map_or(host.clone(), |port| format!("{host}:{port}"))
        },
    )
}

fn server(here: &Here, runtime: &Runtime, host: &str, place: &Place) -> Vec<Finding> {
    let id = "model.server";
    let closed = here.jail.as_ref().is_some_and(|jail| !jail.network);
    let refused = |because: &str| {
        Finding::new(id, Status::Problem, format!("nothing answers at `{host}`: {because}"))
    };
    match place {
        Place::Local(_) | Place::Socket(_) => vec![match runtime.block_on(connect(place)) {
            Ok(()) => Finding::new(id, Status::Ok, format!("`{host}` takes connections")),
            Err(because) if closed && matches!(place, Place::Local(_)) => refused(&because)
                .repair("the sandbox has no network: set `network` to true in its specification"),
            Err(because) => {
                refused(&because).repair("start the server, or mend the address in `baseUrl`")
            }
        }],
        Place::Remote { .. } if closed => vec![
            Finding::new(
                id,
                Status::Problem,
                format!("`{host}` is out of reach: the sandbox has no network"),
            )
            .repair("set `network` to true in its specification"),
        ],
        Place::Remote { tls } => {
            let proxy = ["HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"]
                .into_iter()
                .find(|name| *tls && here.environment.var(name).is_some());
            let through = proxy.map_or_else(String::new, |name| format!(" through `{name}`"));
            let mut found = vec![Finding::new(
                id,
                Status::Info,
                format!("`{host}`{through} was not contacted, nor its name looked up"),
            )];
            if *tls {
                found.push(roots(here));
            }
            found
        }
        Place::Unreadable => vec![refused("the address cannot be read").repair("mend `baseUrl`")],
    }
}

/// Tries a connection to this machine and lets it go.
async fn connect(place: &Place) -> Result<(), String> {
    let late = || format!("no answer in {} ms", PATIENCE.as_millis());
    match place {
        Place::Local(addresses) => {
            let mut last = String::new();
            for address in addresses {
                match timeout(PATIENCE, TcpStream::connect(address)).await {
                    Ok(Ok(_)) => return Ok(()),
                    Ok(Err(error)) => last = error.to_string(),
                    Err(_) => last = late(),
                }
            }
            Err(last)
        }
        Place::Socket(path) => match timeout(PATIENCE, UnixStream::connect(path)).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err(late()),
        },
        Place::Remote { .. } | Place::Unreadable => Err("it is not on this machine".to_owned()),
    }
}

fn roots(here: &Here) -> Finding {
    let id = "model.certificates";
    let full =
        |path: &Path| matches!(examine::content(path), Content::File { .. } | Content::Directory);
    for name in ["SSL_CERT_FILE", "SSL_CERT_DIR"] {
        if let Some(path) = here.environment.var_os(name).filter(|path| !path.is_empty()) {
            let path = Path::new(path);
            if full(path) {
                return Finding::new(id, Status::Ok, format!("`{}` by {name}", path.display()));
            }
            return Finding::new(
                id,
                Status::Problem,
                format!("{name} is `{}`, which holds nothing that can be read", path.display()),
            )
            .repair(format!("unset {name}, or let it name the certificates of this system"));
        }
    }
    match ROOTS.iter().find(|path| full(Path::new(path))) {
        Some(path) => Finding::new(id, Status::Ok, format!("`{path}`")),
        None => Finding::new(
            id,
            Status::Problem,
            "the certificates of authorities are not found, so no server can be trusted",
        )
        .repair("install `ca-certificates`, or point SSL_CERT_FILE to a bundle"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_this_machine_is_local() {
        for url in [
            "http://127.0.0.1:11434",
            "http://127.9.9.9",
            "http://[::1]:8080/x",
            "http://localhost.",
            "https://a.localhost:1",
            "unix:/run/model.sock",
        ] {
            assert!(Place::of(url, None).is_here(), "{url}");
        }
        for url in [
            "https://api.anthropic.com",
            "http://10.0.0.1",
            "http://localhost.example",
            "http://0.0.0.0",
        ] {
            assert!(matches!(Place::of(url, None), Place::Remote { .. }), "{url}");
        }
        assert_eq!(Place::of("https://x", None), Place::Remote { tls: true });
        assert_eq!(Place::of("nonsense", None), Place::Unreadable);
        let socket = |url| Place::of(url, Some(Path::new("/home/ada")));
        assert_eq!(socket("unix:/run/m.sock:/v1"), Place::Socket("/run/m.sock".into()));
        assert_eq!(socket("unix:~/m.sock"), Place::Socket("/home/ada/m.sock".into()));
    }

    #[test]
    fn a_socket_is_tried_and_nothing_else_is() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let place = Place::of(&format!("unix:{}:/v1", path.display()), None);
        assert!(runtime.block_on(connect(&place)).unwrap_err().contains("No such file"));
        let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
        assert_eq!(runtime.block_on(connect(&place)), Ok(()));
        drop(listener);
        assert!(runtime.block_on(connect(&place)).unwrap_err().contains("refused"));
        let remote = Place::of("http://192.0.2.1", None);
        assert!(runtime.block_on(connect(&remote)).unwrap_err().contains("not on this machine"));
    }

    #[test]
    fn a_host_is_shown_without_what_may_be_secret() {
        assert_eq!(
            host_of("https://user:secret@host.example:8443/v1?key=secret"),
            "host.example:8443"
        );
        assert_eq!(host_of("https://host.example/secret"), "host.example");
        assert_eq!(host_of("secret"), "an address that cannot be read");
    }
}
