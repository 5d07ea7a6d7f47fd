//! What of this machine decides whether a jail can be made: the kernel's switches, what is mounted
//! over `/proc`, and the bubblewrap on `PATH`. Reads only; starts nothing, bubblewrap least of all.
//!
//! It judges nothing: `doctor` does, without touching the machine.

#![expect(
    clippy::disallowed_methods,
    reason = "this file is where the sandbox looks at the machine for the doctor"
)]

use std::ffi::{OsStr, OsString};
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::{diagnose, facts, sys};

/// The most of a file that is searched for bubblewrap's version, in bytes. The program has about
/// 70 kB; ten times that is no bubblewrap.
const PROGRAM: u64 = 4 << 20;

/// What was found. `None` = there is no such switch here, or it cannot be read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Machine {
    /// The caller's user id.
    pub uid: u32,
    /// The kernel's release, as `uname -r` prints it.
    pub kernel: Option<String>,
    /// bubblewrap, when it is on `PATH`.
    pub bubblewrap: Option<Bubblewrap>,
    /// `user.max_user_namespaces` (namespaces(7)).
    pub max_user_namespaces: Option<u64>,
    /// `kernel.unprivileged_userns_clone`, a switch of Debian's and its relatives' kernels.
    pub unprivileged_clone: Option<bool>,
    /// `kernel.apparmor_restrict_unprivileged_userns`, a switch of Ubuntu's kernels.
    pub apparmor_restricts: Option<bool>,
    /// Whether the kernel has overlay file systems (`/proc/filesystems`).
    pub overlay: Option<bool>,
    /// The version of Landlock's interface (landlock(7)); zero = switched off.
    pub landlock: Option<i32>,
    /// `dev.tty.legacy_tiocsti` (Linux 6.2): whether a program may type into its terminal.
    pub legacy_tiocsti: Option<bool>,
    /// What is mounted over parts of `/proc`, as containers do it.
    pub covered_proc: Vec<PathBuf>,
    /// `NoNewPrivs` of this process (proc(5)).
    pub no_new_privileges: Option<bool>,
}

/// A bubblewrap.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Bubblewrap {
    /// Where `PATH` leads.
    pub path: PathBuf,
    /// The same with every symbolic link followed.
    pub physical: PathBuf,
    /// It acts with another user's or group's rights.
    pub privileged: bool,
    /// The version that the program carries, when it can be told.
    pub version: Option<Version>,
}

/// A version number, as far as it matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    /// The first number.
    pub major: u32,
    /// The second one.
    pub minor: u32,
}

impl Version {
    /// Reads `MAJOR.MINOR` at the start of a text; what follows does not matter.
    pub fn read(text: &str) -> Option<Self> {
        let mut numbers = text.split(|c: char| !c.is_ascii_digit());
        let major = numbers.next()?.parse().ok()?;
        let minor = numbers.next()?.parse().ok()?;
        Some(Self { major, minor })
    }
}

/// Looks at the machine. Nothing is started and nothing is changed. `bwrap` names a bubblewrap
/// instead of the one on `PATH`.
pub fn probe(environment: &[(OsString, OsString)], bwrap: Option<&Path>) -> Machine {
    let number = |name: &str| diagnose::switch(name).and_then(|text| text.parse::<u64>().ok());
    let flag = |name: &str| number(name).map(|number| number != 0);
    Machine {
        uid: rustix::process::geteuid().as_raw(),
        kernel: diagnose::switch("kernel/osrelease"),
        bubblewrap: bwrap
            .map(Path::to_path_buf)
            .or_else(|| facts::on_path(OsStr::new("bwrap"), environment))
            .filter(|path| path.is_file())
            .map(bubblewrap),
        max_user_namespaces: number("user/max_user_namespaces"),
        unprivileged_clone: flag("kernel/unprivileged_userns_clone"),
        apparmor_restricts: flag("kernel/apparmor_restrict_unprivileged_userns"),
        overlay: std::fs::read_to_string("/proc/filesystems")
            .ok()
            .map(|text| text.lines().any(|line| line.split_whitespace().last() == Some("overlay"))),
        landlock: sys::landlock_version(),
        legacy_tiocsti: flag("dev/tty/legacy_tiocsti"),
        covered_proc: std::fs::read("/proc/self/mountinfo")
            .map(|text| covered_proc(&String::from_utf8_lossy(&text)))
            .unwrap_or_default(),
        no_new_privileges: std::fs::read_to_string("/proc/self/status").ok().and_then(|text| {
            let line = text.lines().find_map(|line| line.strip_prefix("NoNewPrivs:"))?;
            Some(line.trim() != "0")
        }),
    }
}

fn bubblewrap(path: PathBuf) -> Bubblewrap {
    let physical = std::fs::canonicalize(&path).unwrap_or_else(|_| path.clone());
    let privileged = std::fs::metadata(&path).is_ok_and(|meta| meta.mode() & 0o6000 != 0);
    let mut program = Vec::new();
    // A program that cannot be read can still be started; its version is not known then.
    let read = std::fs::File::open(&path)
        .and_then(|file| file.take(PROGRAM).read_to_end(&mut program))
        .is_ok();
    let version = if read { version_in(&program) } else { None };
    Bubblewrap { path, physical, privileged, version }
}

/// Finds the text that `bwrap --version` would print in the program itself: what lies on `PATH`
/// under that name need not be bubblewrap, so it is not started to be asked.
fn version_in(program: &[u8]) -> Option<Version> {
    let name = b"bubblewrap ";
    program
        .windows(name.len())
        .enumerate()
        .filter(|(_, window)| window == name)
        .filter_map(|(at, _)| program.get(at.checked_add(name.len())?..))
        .find_map(|rest| {
            let end = rest.iter().position(|byte| !byte.is_ascii_digit() && *byte != b'.');
            let text = rest.get(..end.unwrap_or(rest.len()))?;
            Version::read(std::str::from_utf8(text).ok()?)
        })
}

/// The mounts on parts of `/proc` that cover something, in the order of the table (proc(5)). File
/// systems of the kernel's own that belong there cover nothing, and neither does what covered an
/// earlier `/proc` below the one that is seen.
fn covered_proc(mounts: &str) -> Vec<PathBuf> {
    let table = || mounts.lines().map(|line| line.split(' ').collect::<Vec<&str>>());
    let seen = table().rfind(|fields| fields.get(4) == Some(&"/proc"));
    let seen = seen.as_ref().and_then(|fields| fields.first());
    let mut found = Vec::new();
    for fields in table() {
        let Some(point) = fields.get(4).filter(|point| point.starts_with("/proc/")) else {
            continue;
        };
        if seen.is_some() && fields.get(1) != seen {
            continue;
        }
        let kind = fields.iter().skip_while(|field| **field != "-").nth(1);
        let own = ["autofs", "binfmt_misc", "nfsd", "rpc_pipefs"];
        if !kind.is_some_and(|kind| own.contains(kind)) {
            found.push(PathBuf::from(point));
        }
    }
    found
}

/// Says whether a path lies in a directory, by their names.
pub(super) fn is_within(path: &Path, directories: &[PathBuf]) -> bool {
    directories.iter().any(|directory| path.starts_with(directory))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_found_in_the_program() {
        let version = |major, minor| Some(Version { major, minor });
        assert_eq!(version_in(b"\x7fELF\0bubblewrap 0.8.0\0x"), version(0, 8));
        assert_eq!(version_in(b"bubblewrap needs\0bubblewrap 1.12\0"), version(1, 12));
        assert_eq!(version_in(b"bubblewrap 0.9"), version(0, 9));
        for none in [&b""[..], b"bubblewrap ", b"bubblewrap x.y", b"bubblewrap 7", b"wrap 0.8"] {
            assert_eq!(version_in(none), None, "{none:?}");
        }
        assert!(version(0, 11) > version(0, 8) && version(1, 0) > version(0, 99));
        assert_eq!(Version::read("6.1.0-13-amd64"), version(6, 1));
        assert_eq!(Version::read("6"), None);
    }

    #[test]
    fn only_what_covers_a_part_of_proc_counts() {
        let mounts = "22 1 0:21 / /proc rw - proc proc rw\n\
            23 22 0:22 / /proc/sys/fs/binfmt_misc rw shared:1 - autofs systemd-1 rw\n\
            24 22 0:23 / /proc/keys ro - tmpfs tmpfs rw\n\
            25 22 0:21 /sys /proc/sys ro master:3 - proc proc rw\n\
            26 1 0:24 / /process rw - tmpfs tmpfs rw\n";
        assert_eq!(covered_proc(mounts), [Path::new("/proc/keys"), Path::new("/proc/sys")]);
        // One that was mounted over it later is whole, and it is the one that counts.
        let fresh = format!("{mounts}30 22 0:30 / /proc rw - proc proc rw\n");
        assert!(covered_proc(&fresh).is_empty());
        let again = format!("{fresh}31 30 0:23 / /proc/irq ro - tmpfs tmpfs rw\n");
        assert_eq!(covered_proc(&again), [Path::new("/proc/irq")]);
        assert!(covered_proc("nonsense\n\n").is_empty());
    }

    #[test]
    fn this_machine_can_be_looked_at() {
        let path = vec![("PATH".into(), "/nonexistent".into())];
        let machine = probe(&path, None);
        assert_eq!(machine.bubblewrap, None);
        assert!(Version::read(machine.kernel.as_deref().unwrap()).is_some());
    }
}
