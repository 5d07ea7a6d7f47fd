//! What could stop a jail on this machine, with the repair. Pure: [`Machine`] in, findings out.

use std::path::PathBuf;

use serde::Serialize;

use super::diagnose;
use super::machine::{Machine, Version, is_within};
use super::plan::shown;

/// How bad a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// As it should be.
    Ok,
    /// Neither good nor bad.
    Info,
    /// It could not be told.
    Unknown,
    /// Something will not work, or not as well as it could.
    Warning,
    /// It stops a run.
    Problem,
}

/// One thing that was looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// What was looked at; the same in every version.
    pub id: &'static str,
    /// How it is.
    pub status: Status,
    /// How it is, in words.
    pub message: String,
    /// What mends it.
    pub repair: Option<String>,
}

impl Finding {
    /// Returns a finding that needs no repair.
    pub fn new(id: &'static str, status: Status, message: impl Into<String>) -> Self {
        Self { id, status, message: message.into(), repair: None }
    }

    /// Adds what mends it.
    #[must_use]
    pub fn repair(mut self, repair: impl Into<String>) -> Self {
        self.repair = Some(repair.into());
        self
    }
}

/// The oldest kernel whose system calls the launcher needs (`docs/confinement.md`).
const KERNEL: Version = Version { major: 5, minor: 12 };
/// The oldest bubblewrap that knows every option in use.
const BUBBLEWRAP: Version = Version { major: 0, minor: 8 };

/// Judges a machine. A bubblewrap in one of the `untrusted` directories (physical paths) is not
/// taken: whoever wrote the directory could have put it there.
pub fn examine(machine: &Machine, untrusted: &[PathBuf]) -> Vec<Finding> {
    vec![
        kernel(machine),
        bubblewrap(machine, untrusted),
        namespaces(machine),
        apparmor(machine),
        proc(machine),
        overlay(machine),
        landlock(machine),
        terminal(machine),
        privileges(machine),
    ]
}

fn kernel(machine: &Machine) -> Finding {
    let id = "launcher.kernel";
    let Some(release) = &machine.kernel else {
        return Finding::new(id, Status::Unknown, "the kernel's release cannot be read");
    };
    match Version::read(release) {
        Some(version) if version < KERNEL => Finding::new(
            id,
            Status::Problem,
            format!("Linux {release} lacks system calls that a jail needs"),
        )
        .repair("start a kernel of version 5.12 or later"),
        Some(_) => Finding::new(id, Status::Ok, format!("Linux {release}")),
        None => Finding::new(id, Status::Unknown, format!("Linux {release} has no known number")),
    }
}

fn bubblewrap(machine: &Machine, untrusted: &[PathBuf]) -> Finding {
    let id = "launcher.bubblewrap";
    let install = "install bubblewrap 0.8 or later (`apt install bubblewrap`)";
    let Some(found) = &machine.bubblewrap else {
        return Finding::new(id, Status::Problem, "bubblewrap is not found on PATH")
            .repair(install);
    };
    let path = shown(&found.path);
    if is_within(&found.path, untrusted) || is_within(&found.physical, untrusted) {
        return Finding::new(
            id,
            Status::Problem,
            format!("`{path}` lies in the project, which could have put anything there; not used"),
        )
        .repair("take that directory out of PATH");
    }
    if found.privileged {
        return Finding::new(
            id,
            Status::Problem,
            format!("`{path}` is setuid, which the jail neither needs nor trusts"),
        )
        .repair(format!("install it without (`chmod u-s,g-s {path}`)"));
    }
    match found.version {
        Some(version) if version < BUBBLEWRAP => Finding::new(
            id,
            Status::Problem,
            format!("`{path}` is version {}.{}, which is too old", version.major, version.minor),
        )
        .repair(install),
        Some(version) => Finding::new(
            id,
            Status::Ok,
            format!("`{path}`, version {}.{}", version.major, version.minor),
        ),
        None => Finding::new(
            id,
            Status::Unknown,
            format!("`{path}` does not tell its version; 0.8 is the oldest that works"),
        ),
    }
}

fn namespaces(machine: &Machine) -> Finding {
    let id = "launcher.namespaces";
    if let Some(most @ 0..3) = machine.max_user_namespaces {
        return Finding::new(
            id,
            Status::Problem,
            format!("three user namespaces are needed and `user.max_user_namespaces` is {most}"),
        )
        .repair("as root: `sysctl -w user.max_user_namespaces=15000`");
    }
    if machine.unprivileged_clone == Some(false) {
        return Finding::new(
            id,
            Status::Problem,
            "user namespaces are switched off for ordinary users",
        )
        .repair("as root: `sysctl -w kernel.unprivileged_userns_clone=1`");
    }
    match machine.max_user_namespaces {
        Some(most) => {
            Finding::new(id, Status::Ok, format!("at most {most} user namespaces for each user"))
        }
        None => Finding::new(
            id,
            Status::Unknown,
            "`/proc/sys/user/max_user_namespaces` cannot be read; is the kernel built without user \
             namespaces",
        ),
    }
}

fn apparmor(machine: &Machine) -> Finding {
    let id = "launcher.apparmor";
    match machine.apparmor_restricts {
        Some(true) => Finding::new(
            id,
            Status::Warning,
            "AppArmor allows user namespaces only to programs that have a profile for it",
        )
        .repair(diagnose::APPARMOR),
        Some(false) => Finding::new(id, Status::Ok, "AppArmor does not restrict user namespaces"),
        None => Finding::new(id, Status::Ok, "no restriction of user namespaces by AppArmor"),
    }
}

fn proc(machine: &Machine) -> Finding {
    let id = "launcher.proc";
    let Some(first) = machine.covered_proc.first() else {
        return Finding::new(id, Status::Ok, "nothing covers a part of `/proc`");
    };
    Finding::new(
        id,
        Status::Warning,
        format!(
            "parts of `/proc` are covered (`{}`{}), as in a container, and the kernel refuses a \
             fresh one then",
            shown(first),
            match machine.covered_proc.len() {
                1 => String::new(),
                more => format!(" and {} more", more.saturating_sub(1)),
            }
        ),
    )
    .repair("set `nestedUserns` to true in the specification")
}

fn overlay(machine: &Machine) -> Finding {
    let id = "launcher.overlay";
    // User namespaces may mount it since Linux 5.11.
    match machine.overlay {
        Some(true) => Finding::new(id, Status::Info, "the kernel has overlay file systems"),
        Some(false) => Finding::new(
            id,
            Status::Info,
            "the kernel has no overlay file system loaded; masks are mounts, which need none",
        ),
        None => Finding::new(id, Status::Unknown, "`/proc/filesystems` cannot be read"),
    }
}

fn landlock(machine: &Machine) -> Finding {
    let id = "launcher.landlock";
    let (status, message) = match machine.landlock {
        // Scopes for abstract sockets and signals came with version 6 (landlock(7)).
        Some(version @ 6..) => {
            (Status::Info, format!("Landlock {version}, with scopes for sockets and signals"))
        }
        Some(version @ 1..) => {
            (Status::Info, format!("Landlock {version}, without scopes for sockets and signals"))
        }
        Some(_) => (Status::Info, "Landlock is switched off".to_owned()),
        None => (Status::Info, "the kernel has no Landlock".to_owned()),
    };
    Finding::new(id, status, message)
}

fn terminal(machine: &Machine) -> Finding {
    let id = "launcher.tiocsti";
    if machine.legacy_tiocsti == Some(false) {
        return Finding::new(id, Status::Ok, "no program may type into its terminal");
    }
    Finding::new(
        id,
        Status::Info,
        "a program that has a terminal may type into it; inside the jail that is refused",
    )
    .repair("Linux 6.2 or later: as root `sysctl -w dev.tty.legacy_tiocsti=0`")
}

fn privileges(machine: &Machine) -> Finding {
    let id = "launcher.privileges";
    match machine.no_new_privileges {
        Some(true) => Finding::new(
            id,
            Status::Info,
            "`no_new_privs` is set here already; a bubblewrap without setuid works with it",
        ),
        Some(false) => Finding::new(id, Status::Info, "`no_new_privs` is set inside the jail"),
        None => Finding::new(id, Status::Unknown, "`/proc/self/status` cannot be read"),
    }
}

#[cfg(test)]
mod tests;
