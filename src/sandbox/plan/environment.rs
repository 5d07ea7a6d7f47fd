//! The environment of the inside (law 4): the caller's, without what is denied, and without what
//! points at something that is not there inside.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};

use super::super::facts::Facts;
use super::super::spec::Spec;
use super::{Kind, Mount, Request, in_replaced_tree, is_denied};

/// The reason of a variable that the specification or the command line denies.
pub(super) const DENIED: &str = "denied";
const GONE: &str = "it points at something that is not there inside";
const SESSION: &str = "it belongs to a session or a descriptor outside";

/// Variables that speak of descriptors, sockets or sessions of the outside, whatever their form.
pub const SESSION_VARIABLES: [&str; 20] = [
    "DBUS_SESSION_BUS_ADDRESS",
    "DBUS_SYSTEM_BUS_ADDRESS",
    "DESKTOP_STARTUP_ID",
    "GNOME_KEYRING_CONTROL",
    "GPG_AGENT_INFO",
    "HYPRLAND_INSTANCE_SIGNATURE",
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

type Built = (Vec<(OsString, OsString)>, Vec<(OsString, &'static str)>, Vec<OsString>);

/// The environment, the names that were removed, the names that were corrected.
pub(super) fn build(
    spec: &Spec,
    facts: &Facts,
    request: &Request,
    mounts: &[Mount],
    runtime: &Path,
) -> Built {
    let mut kept: Vec<(OsString, OsString)> = Vec::new();
    let mut removed = Vec::new();
    let mut corrected = Vec::new();
    for (name, value) in &facts.environment {
        if is_denied(spec, request, name) {
            removed.push((name.clone(), DENIED));
            continue;
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
            || !KEPT.iter().any(|known| name == known) && is_gone(value, mounts)
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
        if !is_denied(spec, request, &name) && !kept.iter().any(|(known, _)| *known == name) {
            corrected.push(name.clone());
            kept.push((name, value));
        }
    }
    (kept, removed, corrected)
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
