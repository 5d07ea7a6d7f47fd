//! The search path of `execvpe`.

use std::ffi::CStr;
use std::io;

/// Sets where `execvpe` looks for programs: it asks this process's environment, not the
/// program's. The block that `/proc` shows stays as it is.
pub(in super::super) fn search_in(path: &CStr) -> io::Result<()> {
    // SAFETY: two C strings; one thread.
    let done = unsafe { libc::setenv(c"PATH".as_ptr(), path.as_ptr(), 1) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
