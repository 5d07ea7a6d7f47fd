//! Sockets of another network namespace, for `localPorts`.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use super::super::fault;

/// Puts a TCP socket of the network namespace of the process behind `jail` in the place of each
/// descriptor of `places`, of the address family that is named with it.
///
/// A process that has entered another user's network namespace cannot come back without privileges
/// over its own (setns(2)), and one whose children get a PID namespace can start no thread
/// (`pid_namespaces(7)`). So a child that shares the descriptors goes there and ends.
pub(in super::super) fn sockets_in(
    jail: BorrowedFd<'_>,
    places: &[(BorrowedFd<'_>, libc::c_int)],
) -> io::Result<()> {
    let flags = libc::c_long::from(libc::CLONE_FILES | libc::SIGCHLD);
    let none: libc::c_long = 0;
    // SAFETY: like `fork`, but with the table of descriptors in common; one thread. What `enter` does
    // is async-signal-safe, and the child ends without unwinding.
    let child = unsafe {
        let child = libc::syscall(libc::SYS_clone, flags, none, none, none, none);
        if child == 0 {
            fault::is_child(true);
            libc::_exit(enter(jail, places));
        }
        child
    };
    let child = libc::pid_t::try_from(child).map_err(io::Error::other)?;
    if child < 0 {
        return Err(io::Error::last_os_error());
    }
    let mut status = 0;
    loop {
        // SAFETY: the status outlives the call.
        if unsafe { libc::waitpid(child, &raw mut status, 0) } == child {
            break;
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
    match libc::WIFEXITED(status).then(|| libc::WEXITSTATUS(status)) {
        Some(0) => Ok(()),
        Some(error) => Err(io::Error::from_raw_os_error(error)),
        None => Err(io::Error::other("the process that makes its sockets was ended")),
    }
}

/// The child's work: zero, or an error number. No allocation.
fn enter(jail: BorrowedFd<'_>, places: &[(BorrowedFd<'_>, libc::c_int)]) -> libc::c_int {
    let error = || io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO);
    let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: no memory is involved; `places` are descriptors that the caller owns.
    unsafe {
        if libc::setns(jail.as_raw_fd(), libc::CLONE_NEWNET) != 0 {
            return error();
        }
        for (place, family) in places {
            let socket = libc::socket(*family, kind, libc::IPPROTO_TCP);
            if socket < 0 {
                return error();
            }
            if libc::dup3(socket, place.as_raw_fd(), libc::O_CLOEXEC) < 0 {
                return error();
            }
            libc::close(socket);
        }
    }
    0
}
