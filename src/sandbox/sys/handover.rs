//! A descriptor at a number, and the search path of `posix_spawnp`.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, IntoRawFd, OwnedFd, RawFd};

/// Moves `fd` to `number` and lets it pass `exec`. What was there is closed.
pub(in super::super) fn place(fd: OwnedFd, number: RawFd) -> io::Result<()> {
    // SAFETY: numbers only. The last stage owns nothing at `number` any more, and from here on the
    // descriptor is the program's.
    let done = unsafe {
        if fd.as_raw_fd() == number {
            libc::fcntl(fd.into_raw_fd(), libc::F_SETFD, 0)
        } else {
            libc::dup2(fd.as_raw_fd(), number)
        }
    };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Sets where `posix_spawnp` looks for programs: it asks this process's environment, not the
/// program's. The block that `/proc` shows stays as it is.
pub(in super::super) fn search_in(path: &CStr) -> io::Result<()> {
    // SAFETY: two C strings; one thread.
    let done = unsafe { libc::setenv(c"PATH".as_ptr(), path.as_ptr(), 1) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
