//! The environment of the inside (law 4): the caller's, without what is denied, without keys, and
//! without what points at something that is not there inside; then what the specification sets.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};

use super::super::facts::{Facts, Writable};
use super::super::sorted;
use super::super::spec::Spec;
use super::{
    Kind, Mount, PlanError, Request, in_replaced_tree, is_denied, printable, shown, sockets,
};

/// The reason of a variable that the specification or the command line denies.
pub(super) const DENIED: &str = "denied";
const UNLISTED: &str = "`passEnv` does not name it";
const KEY: &str = "it may hold a key, which is handed to the program alone";
const GONE: &str = "it points at something that is not there inside";
const SESSION: &str = "it belongs to a session or a descriptor outside";

/// Variables that speak of descriptors, sockets or sessions of the outside, whatever their form.
pub const SESSION_VARIABLES: [&str; 21] = [
    "DBUS_SESSION_BUS_ADDRESS",
    "DBUS_SYSTEM_BUS_ADDRESS",
    "DESKTOP_STARTUP_ID",
    "GNOME_KEYRING_CONTROL",
    "GPG_AGENT_INFO",
    "HYPRLAND_INSTANCE_SIGNATURE",
    "KLI_SECRETS_FD",
    "LISTEN_FDNAMES",
    "LISTEN_FDS",
    "LISTEN_PID",
    "NOTIFY_SOCKET",
    "OLDPWD",
    "SESSION_MANAGER",
    "SSH_AGENT_PID",
    "SSH_AUTH_SOCK",
    "STY",
    "TMUX",
    "TMUX_PANE",
    "WATCHDOG_PID",
    "WAYLAND_DISPLAY",
    "WAYLAND_SOCKET",
];

/// Variables that may name directories that are gone without any harm.
const KEPT: [&str; 6] = ["_", "HOME", "PATH", "PWD", "TMPDIR", "XDG_RUNTIME_DIR"];

/// What `passEnv` keeps besides what it names; a trailing `*` as there. Who the user is, where things
/// are, how the terminal and the language are, and what TLS needs where there is no `/etc/ssl`.
pub const ALWAYS: [&str; 28] = [
    "COLORTERM",
    "HOME",
    "KLI_*",
    "LANG",
    "LANGUAGE",
    "LC_*",
    "LOCALE_ARCHIVE",
    "LOGNAME",
    "NIX_SSL_CERT_FILE",
    "NO_COLOR",
    "PATH",
    "PWD",
    "SHELL",
    "SSL_CERT_DIR",
    "SSL_CERT_FILE",
    "TEMP",
    "TERM",
    "TERMINFO",
    "TMP",
    "TMPDIR",
    "TZ",
    "TZDIR",
    "USER",
    "XDG_CACHE_HOME",
    "XDG_CONFIG_HOME",
    "XDG_DATA_HOME",
    "XDG_RUNTIME_DIR",
    "XDG_STATE_HOME",
];

/// What goes to the inside and is not in the plan itself, which is printed: where the values are.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Handed {
    /// Variables and the physical paths of the files that hold their values.
    pub env_files: Vec<(String, PathBuf)>,
    /// Keys and the physical paths of the files that hold them.
    pub secrets: Vec<(String, PathBuf)>,
    /// Variables of the caller that hold keys.
    pub secret_env: Vec<String>,
}

impl Handed {
    /// What it says, a line each; no value.
    pub fn words(&self) -> Vec<String> {
        let file = |(name, path): &(String, PathBuf), what: &str| {
            format!("{what}: {} -- from the file `{}`", printable(name), shown(path))
        };
        self.env_files
            .iter()
            .map(|it| file(it, "variable set"))
            .chain(self.secrets.iter().map(|it| file(it, "key handed to the program")))
            .chain(
                self.secret_env
                    .iter()
                    .map(|name| format!("key handed to the program: {name} -- from the variable")),
            )
            .collect()
    }
}

/// The environment of a plan.
pub(super) struct Built {
    /// All of it, but for what `handed` says.
    pub(super) environment: Vec<(OsString, OsString)>,
    /// The names that were removed, each with its reason.
    pub(super) removed: Vec<(OsString, &'static str)>,
    /// The names that were given another value, or one at all.
    pub(super) corrected: Vec<OsString>,
    /// What comes to it at the start.
    pub(super) handed: Handed,
}

/// Builds the environment.
pub(super) fn build(
    spec: &Spec,
    facts: &Facts,
    request: &Request,
    mounts: &[Mount],
    runtime: &Path,
    reachable: &BTreeSet<PathBuf>,
) -> Result<Built, PlanError> {
    let mut kept: Vec<(OsString, OsString)> = Vec::new();
    let mut removed = Vec::new();
    let mut corrected = Vec::new();
    let mut handed = Handed::default();
    for (name, value) in &facts.environment {
        if is_denied(spec, request, name) {
            removed.push((name.clone(), DENIED));
            continue;
        }
        if let Some(key) = spec.secret_env.iter().find(|key| name == key.0.as_str()) {
            removed.push((name.clone(), KEY));
            // An empty one counts as unset.
            if !value.as_bytes().trim_ascii().is_empty() && !handed.secret_env.contains(&key.0) {
                handed.secret_env.push(key.0.clone());
            }
            continue;
        }
        if is_set(spec, name) {
            continue;
        }
        if !passes(spec, name) {
            removed.push((name.clone(), UNLISTED));
            continue;
        }
        match sockets::stays(facts, reachable, name) {
            Some(true) => {
                kept.push((name.clone(), value.clone()));
                continue;
            }
            Some(false) if !is_address(name) => {
                removed.push((name.clone(), SESSION));
                continue;
            }
            _ => {}
        }
        let fixed: Option<OsString> = match name.to_str() {
            Some("TMPDIR" | "TMP" | "TEMP") => Some("/tmp".into()),
            Some("XDG_RUNTIME_DIR") => Some(runtime.into()),
            Some("PWD") => Some(facts.workspace.clone().into()),
            Some(known) if SESSION_VARIABLES.contains(&known) => {
                removed.push((name.clone(), SESSION));
                continue;
            }
            _ => None,
        };
        if let Some(fixed) = fixed {
            if fixed != *value {
                corrected.push(name.clone());
            }
            kept.push((name.clone(), fixed));
        } else if name == "DISPLAY" && value.as_bytes().starts_with(b":")
            || !KEPT.iter().any(|known| name == known)
                && !is_address(name)
                && is_gone(value, mounts)
        {
            removed.push((name.clone(), GONE));
        } else {
            kept.push((name.clone(), value.clone()));
        }
    }
    for (name, value) in
        [("TMPDIR", OsString::from("/tmp")), ("PWD", facts.workspace.clone().into())]
    {
        let name = OsString::from(name);
        if !is_denied(spec, request, &name)
            && !is_set(spec, &name)
            && !kept.iter().any(|(known, _)| *known == name)
        {
            corrected.push(name.clone());
            kept.push((name, value));
        }
    }
    // What is denied for this start alone is not set either; in one specification it is refused.
    for (name, value) in &spec.env {
        let name = OsString::from(&name.0);
        if is_denied(spec, request, &name) {
            removed.push((name, DENIED));
        } else {
            corrected.push(name.clone());
            kept.push((name, value.into()));
        }
    }
    for (name, found) in &facts.given.env_files {
        if is_denied(spec, request, OsStr::new(name)) {
            removed.push((name.into(), DENIED));
        } else {
            corrected.push(name.into());
            handed.env_files.push((name.clone(), readable("envFiles", name, found, mounts)?));
        }
    }
    for (name, found) in &facts.given.secrets {
        handed.secrets.push((name.clone(), readable("secrets", name, found, mounts)?));
    }
    let environment = sorted::map(kept);
    sorted::unique(&mut removed);
    sorted::unique(&mut corrected);
    Ok(Built { environment: environment.into_iter().collect(), removed, corrected, handed })
}

/// Whether the specification sets this variable.
fn is_set(spec: &Spec, name: &OsStr) -> bool {
    spec.env.keys().chain(spec.env_files.keys()).any(|set| name == set.0.as_str())
}

/// Whether `passEnv` keeps this variable.
fn passes(spec: &Spec, name: &OsStr) -> bool {
    let name = name.as_bytes();
    let always = |known: &&str| match known.strip_suffix('*') {
        Some(start) => name.starts_with(start.as_bytes()),
        None => name == known.as_bytes(),
    };
    spec.pass_env.as_ref().is_none_or(|patterns| {
        ALWAYS.iter().any(always) || patterns.iter().any(|it| it.matches(name))
    })
}

/// The physical path of a file that the launcher shall read for the inside. A link that the inside
/// could have planted would hand it the content of another (law 16).
fn readable(
    key: &'static str,
    name: &str,
    found: &Writable,
    mounts: &[Mount],
) -> Result<PathBuf, PlanError> {
    let refuse = |because| PlanError::Given {
        key,
        name: name.to_owned(),
        path: found.wish.clone(),
        because,
    };
    if let Some(trouble) = &found.trouble {
        return Err(refuse(trouble.clone()));
    }
    if found.missing > 0 {
        return Err(refuse("it does not exist: create it, or take the entry out".into()));
    }
    if found.directory {
        return Err(refuse("it is a directory: name a file".into()));
    }
    for link in &found.links {
        let directory = link.parent().unwrap_or(link);
        let writable = mounts
            .iter()
            .rfind(|mount| mount.kind != Kind::Seal && directory.starts_with(&mount.destination));
        if let Some(mount) = writable.filter(|mount| mount.kind == Kind::Writable) {
            return Err(refuse(format!(
                "`{}` is a symbolic link inside `{}`, which the inside can write: name its target",
                shown(link),
                shown(&mount.destination)
            )));
        }
    }
    Ok(found.physical.clone())
}

/// Whether a variable says which server a client asks. Without it the client would ask another one,
/// which nobody meant.
fn is_address(name: &OsStr) -> bool {
    name.as_bytes().ends_with(b"_BASE_URL")
}

/// Whether a value is a path, or the address of a socket, in a tree that the jail replaces and
/// where nothing of the host is shown again.
fn is_gone(value: &OsStr, mounts: &[Mount]) -> bool {
    let bytes = value.as_bytes();
    let bytes = [b"unix:path=".as_slice(), b"unix://", b"unix:"]
        .iter()
        .find_map(|prefix| bytes.strip_prefix(*prefix))
        .unwrap_or(bytes);
    // `unix:path=/run/bus,guid=…` and `socket:pid:1` forms.
    let end = bytes.iter().position(|byte| matches!(byte, b',' | b':')).unwrap_or(bytes.len());
    let path = PathBuf::from(OsString::from_vec(bytes.get(..end).unwrap_or_default().to_vec()));
    let own = ["/tmp", "/run"].iter().any(|tree| path == Path::new(tree));
    path.is_absolute()
        && in_replaced_tree(&path)
        && !own
        && !mounts.iter().any(|mount| {
            matches!(mount.kind, Kind::ReadOnly | Kind::Writable | Kind::Link(_))
                && mount.destination != Path::new("/")
                && (path.starts_with(&mount.destination) || mount.destination.starts_with(&path))
        })
}

/// Where the private runtime directory is: at the place of the caller's when that lies properly
/// below `/run`, otherwise at the usual one.
pub(super) fn runtime_directory(facts: &Facts) -> PathBuf {
    let usual = Path::new("/run/user").join(facts.uid.to_string());
    facts
        .environment
        .iter()
        .find(|(name, _)| name == "XDG_RUNTIME_DIR")
        .map(|(_, value)| PathBuf::from(value))
        .filter(|path| {
            path.starts_with("/run/user")
                && path.components().count() > 3
                && !path.components().any(|part| part == Component::ParentDir)
        })
        .unwrap_or(usual)
}
