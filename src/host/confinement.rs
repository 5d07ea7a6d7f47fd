//! What confines this process, as far as it can tell from inside: never "none" inside a container,
//! never "jail" on a guess.

#![expect(clippy::disallowed_methods, reason = "this is where the signs are read")]

use std::{fs, path::Path};

use crate::{authority::Confinement, sandbox::MARKER};

/// The inode of the initial PID namespace: a fixed number of the kernel's
/// (`PROC_PID_INIT_INO` in `include/linux/proc_ns.h`).
const INITIAL_PID_NAMESPACE: &str = "pid:[4026531836]";

/// The signs, as they were read. `None` = could not be read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a sign of its own")]
pub struct Signs {
    /// The marker's text, when it is a regular file on a read-only mount.
    pub marker: Option<String>,
    /// `/.dockerenv` is there.
    pub docker: bool,
    /// `/run/.containerenv` is there.
    pub podman: bool,
    /// The name of process 1.
    pub first_process: Option<String>,
    /// The PID namespace, as `/proc/self/ns/pid` names it.
    pub pid_namespace: Option<String>,
    /// `/proc/self/uid_map`, in single blanks.
    pub uid_map: Option<String>,
    /// The root directory is mounted read-only.
    pub root_read_only: bool,
    /// `$INVOCATION_ID` is set: systemd started this or one of its parents.
    pub systemd_unit: bool,
}

impl Signs {
    /// Reads the signs.
    pub fn read(environment: &super::environment::Environment) -> Self {
        let text = |path: &str| fs::read_to_string(path).ok();
        Self {
            marker: marker(),
            docker: Path::new("/.dockerenv").exists(),
            podman: Path::new("/run/.containerenv").exists(),
            first_process: text("/proc/1/comm").map(|name| name.trim().to_owned()),
            pid_namespace: fs::read_link("/proc/self/ns/pid")
                .ok()
                .map(|link| link.to_string_lossy().into_owned()),
            uid_map: text("/proc/self/uid_map")
                .map(|map| map.split_whitespace().collect::<Vec<_>>().join(" ")),
            root_read_only: read_only(Path::new("/")),
            systemd_unit: environment.var("INVOCATION_ID").is_some(),
        }
    }
}

/// Returns the marker's text. On a mount that can be written it proves nothing.
fn marker() -> Option<String> {
    let path = Path::new(MARKER);
    let regular = fs::symlink_metadata(path).is_ok_and(|meta| meta.is_file());
    if regular && read_only(path) { fs::read_to_string(path).ok() } else { None }
}

fn read_only(path: &Path) -> bool {
    rustix::fs::statvfs(path)
        .is_ok_and(|stat| stat.f_flag.contains(rustix::fs::StatVfsMountFlags::RDONLY))
}

impl Signs {
    /// Says whether the launcher's marker tells that the network is off.
    pub fn network_is_off(&self) -> bool {
        self.marker
            .as_deref()
            .and_then(|text| serde_json::from_str::<serde_json::Value>(text).ok())
            .is_some_and(|marker| marker.get("network") == Some(&serde_json::Value::Bool(false)))
    }
}

/// Judges the signs.
pub fn judge(signs: &Signs) -> Confinement {
    let marked = signs.marker.as_deref().is_some_and(|text| {
        serde_json::from_str::<serde_json::Value>(text)
            .is_ok_and(|value| value.get("version").is_some_and(serde_json::Value::is_u64))
    });
    if marked {
        return Confinement::KliSandbox;
    }
    if signs.docker {
        return Confinement::Outer("docker");
    }
    if signs.podman {
        return Confinement::Outer("podman");
    }
    if signs.first_process.as_deref() == Some("bwrap") {
        return Confinement::Outer("bwrap");
    }
    // Terminals of a desktop run below systemd units too; a read-only root makes it a confinement.
    if signs.systemd_unit && signs.root_read_only {
        return Confinement::Outer("systemd");
    }
    let initial = signs.pid_namespace.as_deref() == Some(INITIAL_PID_NAMESPACE)
        && signs.uid_map.as_deref() == Some("0 0 4294967295")
        && !signs.root_read_only;
    if initial { Confinement::None } else { Confinement::Unknown }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain() -> Signs {
        Signs {
            first_process: Some("systemd".into()),
            pid_namespace: Some(INITIAL_PID_NAMESPACE.into()),
            uid_map: Some("0 0 4294967295".into()),
            ..Signs::default()
        }
    }

    #[test]
    fn each_kind_is_told_by_its_sign() {
        let label = |signs: Signs| judge(&signs).label();
        assert_eq!(label(plain()), "none");
        assert_eq!(label(Signs { docker: true, ..plain() }), "outer: docker, unverified");
        assert_eq!(label(Signs { podman: true, ..plain() }), "outer: podman, unverified");
        let bwrap = Signs { first_process: Some("bwrap".into()), ..Signs::default() };
        assert_eq!(label(bwrap), "outer: bwrap, unverified");
        let unit = Signs { systemd_unit: true, root_read_only: true, ..plain() };
        assert_eq!(label(unit), "outer: systemd, unverified");
        assert_eq!(label(Signs { systemd_unit: true, ..plain() }), "none");
        let marked = Signs { marker: Some("{\"version\":1}".into()), ..Signs::default() };
        assert_eq!(label(marked), "kli-sandbox");
    }

    #[test]
    fn without_proof_it_is_unknown() {
        let label = |signs: Signs| judge(&signs).label();
        assert_eq!(label(Signs::default()), "unknown");
        assert_eq!(label(Signs { pid_namespace: Some("pid:[1]".into()), ..plain() }), "unknown");
        assert_eq!(label(Signs { uid_map: Some("0 1000 1".into()), ..plain() }), "unknown");
        for text in ["", "{}", "[]", "{\"version\":\"1\"}"] {
            assert_eq!(label(Signs { marker: Some(text.into()), ..plain() }), "none", "{text}");
        }
    }
}
