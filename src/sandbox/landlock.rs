//! Landlock scopes: abstract sockets and signals stay inside (law 6), where the kernel has them.
//!
//! Pure but for [`confine`]. A domain without rights on files, so bubblewrap's mounts are not
//! touched by it. The launcher stays outside and can signal the inside.

use std::io;

use super::sys::landlock as calls;
use super::sys::start::Start;

/// The version of the interface that has scopes, Linux 6.12 (landlock(7)).
const SCOPES: i32 = 6;

/// Whether a kernel with this version of the interface can keep signals and abstract sockets in.
pub(super) fn has_scopes(version: Option<i32>) -> bool {
    version.is_some_and(|version| version >= SCOPES)
}

/// Lets what is started begin in a domain of its own.
///
/// # Errors
/// The kernel's refusal to make it.
pub(super) fn confine(start: &mut Start) -> io::Result<()> {
    let rules = calls::scopes()?;
    calls::enter_at_start(start, rules);
    Ok(())
}

#[cfg(test)]
mod tests {
    #![expect(clippy::disallowed_methods, reason = "tests start processes themselves")]

    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::{SocketAddr, UnixListener};
    use std::process::Command;

    use super::*;

    /// What perl prints, confined or not.
    fn perl(script: &str, argument: &str, confined: bool) -> String {
        let mut command = Command::new("perl");
        command.args(["-e", script, argument]);
        if confined {
            let mut start = Start::default();
            confine(&mut start).unwrap();
            start.give_to(&mut command);
        }
        String::from_utf8(command.output().unwrap().stdout).unwrap()
    }

    #[test]
    fn a_domain_keeps_signals_and_abstract_sockets_in() {
        let version = super::super::sys::landlock_version();
        if !has_scopes(version) {
            assert!(confine(&mut Start::default()).is_err(), "refused, and not left out");
            return;
        }
        let signal = "print kill(0, $ARGV[0]) ? q(sent) : 0 + $!";
        let own = std::process::id().to_string();
        assert_eq!(perl(signal, &own, false), "sent", "control");
        assert_eq!(perl(signal, &own, true), libc::EPERM.to_string());
        let inside = "my $p = fork() || do { sleep 9; exit }; print kill(9, $p); wait";
        assert_eq!(perl(inside, "", true), "1", "its own processes");
        let name = format!("kli-scope-{own}");
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let _listener = UnixListener::bind_addr(&address).unwrap();
        let connect = "socket(S, 1, 1, 0) or die; \
             print connect(S, pack(q(Sxa*), 1, $ARGV[0])) ? q(connected) : 0 + $!";
        assert_eq!(perl(connect, &name, false), "connected", "control");
        assert_eq!(perl(connect, &name, true), libc::EPERM.to_string());
    }

    #[test]
    fn scopes_come_with_version_six() {
        for (version, has) in
            [(None, false), (Some(0), false), (Some(5), false), (Some(6), true), (Some(9), true)]
        {
            assert_eq!(has_scopes(version), has, "{version:?}");
        }
    }
}
