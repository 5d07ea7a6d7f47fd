//! The calls of Landlock (landlock(7)).

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use super::start::Start;

/// `LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET | LANDLOCK_SCOPE_SIGNAL` (`linux/landlock.h`).
const SCOPES: u64 = 3;

/// A set of rules that keeps abstract sockets and signals inside.
pub(in crate::sandbox) fn scopes() -> io::Result<OwnedFd> {
    // `struct landlock_ruleset_attr`: rights on files, rights on the network, scopes.
    let attributes: [u64; 3] = [0, 0, SCOPES];
    // SAFETY: the structure has the size that is said and outlives the call; the result is checked
    // and owned once.
    unsafe {
        let fd = libc::syscall(
            libc::SYS_landlock_create_ruleset,
            attributes.as_ptr(),
            size_of_val(&attributes),
            0,
        );
        match RawFd::try_from(fd) {
            Ok(fd) if fd >= 0 => Ok(OwnedFd::from_raw_fd(fd)),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

/// Lets what is started take the rules on before it executes its program.
pub(in crate::sandbox) fn enter_at_start(start: &mut Start, rules: OwnedFd) {
    // SAFETY: async-signal-safe calls only, no allocation.
    let steps = move || unsafe {
        if libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0
            || libc::syscall(libc::SYS_landlock_restrict_self, rules.as_raw_fd(), 0) != 0
        {
            return Err(io::Error::last_os_error());
        }
        Ok(())
    };
    // SAFETY: `steps` does nothing but async-signal-safe calls.
    unsafe { start.before(steps) };
}
