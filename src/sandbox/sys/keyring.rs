//! The session keyring (keyctl(2)).

use std::io;

/// Leaves the caller's session keyring for a new, empty one.
///
/// # Errors
/// The kernel's refusal, but not that it has no keyrings, or that a filter keeps them from this
/// process: the inside is then kept from them as well.
pub(in crate::sandbox) fn leave_session() -> io::Result<()> {
    const JOIN_SESSION_KEYRING: libc::c_int = 1;
    // SAFETY: without a name no memory is involved.
    let joined = unsafe {
        libc::syscall(libc::SYS_keyctl, JOIN_SESSION_KEYRING, std::ptr::null::<libc::c_char>())
    };
    if joined >= 0 {
        return Ok(());
    }
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        Some(libc::ENOSYS | libc::EPERM) => Ok(()),
        _ => Err(error),
    }
}
