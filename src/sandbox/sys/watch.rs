//! What the held mounts need of the kernel and no safe wrapper gives.

#![expect(unsafe_code, reason = "mount_setattr has no safe wrapper")]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Makes the mount behind `tree` and all below it read-only, whatever else they are. Linux 5.12.
pub(in super::super) fn seal_all(tree: BorrowedFd<'_>) -> io::Result<()> {
    // `struct mount_attr`: set, clear, propagation, user namespace.
    let attributes: [u64; 4] = [libc::MOUNT_ATTR_RDONLY, 0, 0, 0];
    // SAFETY: the structure has the size that is said and outlives the call.
    let done = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            tree.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH | libc::AT_RECURSIVE,
            attributes.as_ptr(),
            size_of_val(&attributes),
        )
    };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
