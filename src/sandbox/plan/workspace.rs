//! Which directories can be the workspace (law 10). The workspace is writable, so it may be
//! neither the system, nor the home with its start files, nor what belongs to kli itself.

use std::path::Path;

use super::super::facts::Facts;
use super::super::spec::Spec;
use super::{PlanError, shown};

/// Refused themselves; below them a workspace is fine.
pub const TOPS: [&str; 16] = [
    "/",
    "/etc",
    "/home",
    "/media",
    "/mnt",
    "/nix",
    "/opt",
    "/root",
    "/run",
    "/run/user",
    "/srv",
    "/tmp",
    "/usr",
    "/usr/local",
    "/var",
    "/var/tmp",
];

/// Refused with everything below.
pub const SYSTEM: [&str; 14] = [
    "/bin",
    "/boot",
    "/dev",
    "/etc",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/nix",
    "/proc",
    "/sbin",
    "/sys",
    "/var/lib/nixos",
    "/run/kli",
];

/// The parts of `/usr` where sources are built, as container images do.
pub const SOURCES: [&str; 2] = ["/usr/src", "/usr/local/src"];

/// Directories of the home where a file makes the host run code or is a key, with everything below.
pub const SENSITIVE: [&str; 15] = [
    ".aws",
    ".azure",
    ".config/autostart",
    ".config/environment.d",
    ".config/fish",
    ".config/systemd",
    ".docker",
    ".gnupg",
    ".kube",
    ".local/bin",
    ".local/share/applications",
    ".local/share/keyrings",
    ".local/share/systemd",
    ".password-store",
    ".ssh",
];

/// Hidden directories of the home that are too wide, themselves.
pub const WIDE: [&str; 2] = [".local/share", ".local/state"];

/// Refuses what cannot be the workspace.
pub(super) fn check(spec: &Spec, facts: &Facts) -> Result<(), PlanError> {
    let path = facts.workspace.as_path();
    let refuse = |because: &str| {
        Err(PlanError::Workspace { path: path.to_path_buf(), because: because.to_owned() })
    };
    let is_home = facts.homes.iter().chain(&facts.physical_homes).any(|home| home == path);
    if is_home && path != Path::new("/") {
        if !spec.allow_home_workspace {
            return refuse(
                "it is the home, and everything in it would be writable: change to a project's \
                 directory, or set `allowHomeWorkspace`",
            );
        }
        return Ok(());
    }
    if TOPS.iter().any(|top| path == Path::new(top)) {
        return refuse("everything below it would be writable: change to a project's directory");
    }
    if SYSTEM.iter().any(|top| path.starts_with(top))
        || path.starts_with("/usr") && !SOURCES.iter().any(|sources| path.starts_with(sources))
    {
        return refuse("it is part of the system: change to a project's directory");
    }
    for home in facts.homes.iter().chain(&facts.physical_homes) {
        if home.starts_with(path) {
            return refuse(&format!(
                "it contains the home `{}`: change to a project's directory",
                shown(home)
            ));
        }
    }
    for own in facts.config.iter().chain(&facts.state).chain(&facts.other_state) {
        if path.starts_with(&own.physical) || path.starts_with(&own.spelled) {
            return refuse("it belongs to kli itself: change to a project's directory");
        }
    }
    if facts.runtime.as_deref() == Some(path) {
        return refuse("it is the session's runtime directory: change to a project's directory");
    }
    if spec.allow_home_workspace {
        return Ok(());
    }
    for home in facts.homes.iter().chain(&facts.physical_homes) {
        let Ok(below) = path.strip_prefix(home) else { continue };
        let hidden = below.to_string_lossy().starts_with('.');
        if hidden && below.components().count() == 1
            || SENSITIVE.iter().any(|part| below.starts_with(part))
            || WIDE.iter().any(|part| below == Path::new(part))
        {
            return refuse(
                "it is a hidden directory of the home, where programs keep settings and keys: \
                 change to a project's directory, or set `allowHomeWorkspace`",
            );
        }
    }
    Ok(())
}
