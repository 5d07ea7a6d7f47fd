//! Why a start failed, in one sentence, and what repairs it. Looks at the machine only then.

#![expect(clippy::disallowed_methods, reason = "the kernel's switches are read after a failure")]

use std::path::Path;

use super::namespace::NamespaceError;
use super::plan::shown;

/// The oldest bubblewrap that knows every option in use.
const OLDEST: &str = "0.8";

/// Reads a switch of the kernel by its path below `/proc/sys`.
pub(super) fn switch(name: &str) -> Option<String> {
    std::fs::read_to_string(Path::new("/proc/sys").join(name))
        .ok()
        .map(|text| text.trim().to_owned())
}

/// A sentence with the repair of what can fail at any step, where it has none yet.
pub(super) fn repaired(sentence: String) -> String {
    // In bubblewrap's words (errno(3)), and by the number, as this program may have another C library.
    let repair = [
        ("Too many open files in system", "(os error 23)", "close some, or raise `fs.file-max`"),
        ("Too many open files", "(os error 24)", "raise the number of open files (`ulimit -n`)"),
        ("File too large", "(os error 27)", "raise the bound of file sizes (`ulimit -f`)"),
        (
            "Resource temporarily unavailable",
            "(os error 11)",
            "raise the number of processes (`ulimit -u`, the unit's `TasksMax=`)",
        ),
        (
            "Cannot allocate memory",
            "(os error 12)",
            "free some memory, or raise what bounds it (`ulimit -v`, the unit's `MemoryMax=`)",
        ),
    ]
    .into_iter()
    .find(|(words, number, _)| sentence.contains(words) || sentence.contains(number))
    .map(|(.., repair)| repair)
    .unwrap_or_default();
    if repair.is_empty() || sentence.contains("ulimit") || sentence.contains("fs.file-max") {
        return sentence;
    }
    format!("{sentence}; {repair}")
}

fn restricted_by_apparmor() -> bool {
    switch("kernel/apparmor_restrict_unprivileged_userns").is_some_and(|value| value != "0")
}

/// What lifts the restriction of user namespaces, wherever the launcher lies.
pub(super) const APPARMOR: &str = "load an AppArmor profile for the launcher with `flags=(unconfined) { userns, }`, or as root \
     `sysctl -w kernel.apparmor_restrict_unprivileged_userns=0`";

fn apparmor(launcher: &Path) -> String {
    format!(
        "AppArmor restricts user namespaces here; load a profile for the launcher: \
         `abi <abi/4.0>, profile kli-sandbox {} flags=(unconfined) {{ userns, }}`, or as root \
         `sysctl -w kernel.apparmor_restrict_unprivileged_userns=0`",
        shown(launcher)
    )
}

/// A switch of Debian's and its relatives' kernels. It binds root as well: the launcher's first
/// namespace may be made by root, bubblewrap's inside of it may not.
fn clone_is_off() -> bool {
    switch("kernel/unprivileged_userns_clone").as_deref() == Some("0")
}

const CLONE: &str = "user namespaces are switched off for ordinary users; as root: \
     `sysctl -w kernel.unprivileged_userns_clone=1`";

fn is_of_one_path(error: &NamespaceError) -> bool {
    matches!(
        error,
        NamespaceError::Hold { .. } | NamespaceError::Fresh { .. } | NamespaceError::Place { .. }
    )
}

/// The repair for a failure of the own namespace.
pub(super) fn namespace(error: &NamespaceError, launcher: &Path) -> String {
    if Path::new(super::MARKER).exists() {
        return "this process is confined already, and a jail makes no further one: start outside"
            .into();
    }
    if restricted_by_apparmor() && !is_of_one_path(error) {
        return apparmor(launcher);
    }
    match error {
        NamespaceError::Unshare(error) if error.raw_os_error() == Some(libc::ENOSPC) => format!(
            "user namespaces are used up or switched off (`user.max_user_namespaces` is {}); as \
             root: `sysctl -w user.max_user_namespaces=15000`",
            switch("user/max_user_namespaces").unwrap_or_else(|| "unreadable".into())
        ),
        NamespaceError::Unshare(_) if clone_is_off() => CLONE.into(),
        NamespaceError::Unshare(_) => {
            "inside a container its seccomp profile may forbid user namespaces, and inside a chroot \
             the kernel does: allow `unshare` there, or start outside"
                .into()
        }
        NamespaceError::Map(_) => {
            "a service unit with `ProcSubset=pid` or a read-only `/proc` forbids this: take the \
             setting out"
                .into()
        }
        NamespaceError::Mount(_) | NamespaceError::Source(_) => {
            "a container's security profile forbids mounts: allow `mount`, `fsopen`, `move_mount` \
             and `open_tree` there (Linux 5.2 or later)"
                .into()
        }
        NamespaceError::Fresh { source, .. } if *source == rustix::io::Errno::ACCESS => {
            "it is out of reach without privileges, which the inside never has: start as its owner \
             (`runuser -u NAME -- …`)"
                .into()
        }
        NamespaceError::Hold { source, .. }
        | NamespaceError::Fresh { source, .. }
        | NamespaceError::Place { source, .. }
            if *source == rustix::io::Errno::MFILE =>
        {
            "raise the number of open files (`ulimit -n`)".into()
        }
        NamespaceError::Hold { source, .. }
        | NamespaceError::Fresh { source, .. }
        | NamespaceError::Place { source, .. }
            if *source == rustix::io::Errno::NOSPC =>
        {
            "a mount namespace has as many mounts as it may: deny directories in place of what is in \
             them, or as root `sysctl -w fs.mount-max=200000`"
                .into()
        }
        NamespaceError::Hold { .. } | NamespaceError::Fresh { .. } | NamespaceError::Place { .. } => {
            "was it replaced while the launcher started? Start again, or deny its directory".into()
        }
    }
}

/// What bubblewrap's own words mean, and the repair.
pub(super) fn bubblewrap(words: &str, bwrap: &Path, launcher: &Path) -> String {
    let has = |part: &str| words.contains(part);
    if has("nknown option") {
        return format!(
            "`{}` is too old, the oldest version that works is {OLDEST}: install a later one, or \
             name one with `--bwrap`",
            shown(bwrap)
        );
    }
    if has("mount proc") || has("/newroot/proc") {
        return "a container with a masked `/proc` forbids a fresh one: set `nestedUserns` to true"
            .into();
    }
    if has("max_user_namespaces") {
        return "`/proc/sys` is read-only, as in a container: set `nestedUserns` to true".into();
    }
    if has("overflowuid") || has("overflowgid") {
        return "a service unit with `ProcSubset=pid` hides what bubblewrap needs in `/proc`: take \
                the setting out"
            .into();
    }
    if restricted_by_apparmor() {
        return apparmor(launcher);
    }
    if has("new namespace") && clone_is_off() {
        return CLONE.into();
    }
    if has("loopback") {
        return "the kernel or a security module forbids setting up loopback in a network namespace \
                of the own: allow it, or set `network` to true"
            .into();
    }
    if has("No space left on device") || has("ENOSPC") {
        // Read in the own namespace, the switch would say something else.
        return "three user namespaces inside each other are needed, and \
                `user.max_user_namespaces` allows fewer, or one mount namespace has as many mounts as \
                `fs.mount-max` allows; as root: `sysctl -w user.max_user_namespaces=15000` or \
                `sysctl -w fs.mount-max=200000`"
            .into();
    }
    format!("`{}` was told by the plan that `kli-sandbox explain` prints", shown(bwrap))
}

#[cfg(test)]
mod tests {
    use super::repaired;

    #[test]
    fn what_can_fail_at_any_step_has_its_repair_once() {
        let full = |number| std::io::Error::from_raw_os_error(number).to_string();
        for (number, repair) in [
            (libc::EMFILE, "; raise the number of open files (`ulimit -n`)"),
            (libc::ENFILE, "; close some, or raise `fs.file-max`"),
            (libc::EAGAIN, "; raise the number of processes (`ulimit -u`"),
            (libc::ENOMEM, "; free some memory, or raise what bounds it"),
        ] {
            let sentence = format!("the jail cannot be left again: {}", full(number));
            let once = repaired(sentence.clone());
            assert!(once.starts_with(&sentence) && once.contains(repair), "{once}");
            assert_eq!(repaired(once.clone()), once);
        }
        let other = format!("no pipe can be made: {}", full(libc::EPERM));
        assert_eq!(repaired(other.clone()), other);
    }
}
