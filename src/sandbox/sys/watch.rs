//! What the held mounts and the watch over them need of the kernel beyond the safe wrappers.

#![expect(unsafe_code, reason = "mount_setattr has no safe wrapper")]

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
    sendmsg, socketpair,
};

/// Makes the mount behind `tree` and all below it read-only, whatever else they are. Linux 5.12.
pub(in super::super) fn seal_all(tree: BorrowedFd<'_>) -> io::Result<()> {
    restrict(tree, libc::MOUNT_ATTR_RDONLY, true)
}

/// Sets attributes (`MOUNT_ATTR_…`, `mount_setattr(2)`) of the mount behind `tree`, and of all below it
/// with `all`; what it has already stays. Linux 5.12.
pub(in super::super) fn restrict(tree: BorrowedFd<'_>, set: u64, all: bool) -> io::Result<()> {
    // `struct mount_attr`: set, clear, propagation, user namespace.
    let attributes: [u64; 4] = [set, 0, 0, 0];
    let below = if all { libc::AT_RECURSIVE } else { 0 };
    // SAFETY: the structure has the size that is said and outlives the call.
    let done = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            tree.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH | below,
            attributes.as_ptr(),
            size_of_val(&attributes),
        )
    };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Asks to be run soon after a wake-up, in turn for short turns: a turn of a tenth of a millisecond
/// instead of some milliseconds (sched(7), Linux 6.12; before it nothing changes). What this process
/// has to do takes less. Best effort: under any scheduler the watch works, only later.
pub(in super::super) fn wake_soon() {
    /// `struct sched_attr` in its first published size.
    #[repr(C)]
    #[derive(Default)]
    struct Attributes {
        size: u32,
        policy: u32,
        flags: u64,
        nice: i32,
        priority: u32,
        runtime: u64,
        deadline: u64,
        period: u64,
    }
    const NORMAL: u32 = 0;
    let mut attributes = Attributes::default();
    let size = size_of::<Attributes>();
    // SAFETY: the structure has the size that is said; this process alone is concerned.
    unsafe {
        let read = libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attributes, size, 0);
        if read == 0 && attributes.policy == NORMAL {
            attributes.runtime = 100_000;
            libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0);
        }
    }
}

/// Whether somebody has a regular file open for writing, or mapped so: then the kernel gives no lease
/// for reading on it (fcntl(2)). Where it knows no leases (some network file systems) the answer is no.
pub(in super::super) fn is_written(file: &OwnedFd) -> bool {
    /// `F_SETSIG` of `asm-generic/fcntl.h`, which both machines have.
    const SET_SIGNAL: libc::c_int = 10;
    // SAFETY: the three calls take numbers alone; the lease is given back at once.
    unsafe {
        // Who opens it meanwhile has the kernel send a signal: one that does nothing.
        libc::fcntl(file.as_raw_fd(), SET_SIGNAL, libc::SIGURG);
        if libc::fcntl(file.as_raw_fd(), libc::F_SETLEASE, libc::F_RDLCK) == 0 {
            libc::fcntl(file.as_raw_fd(), libc::F_SETLEASE, libc::F_UNLCK);
            return false;
        }
    }
    io::Error::last_os_error().raw_os_error() == Some(libc::EAGAIN)
}

/// Closes descriptors without waiting for it. The last close of an inotify descriptor waits until no
/// reader in the kernel can still meet one of its marks: 5 to 25 ms, which a short run would spend at
/// its end; that of a mount namespace takes all its mounts away. A descriptor in flight in a socket that nobody holds is closed by the kernel's collector of such
/// sockets instead (`net/unix/garbage.c`; before Linux 6.8 that works within this call, and nothing
/// is gained). Best effort: where a step fails they are closed as any others. At most three.
///
/// They must be closed before what is returned, as whoever closes last waits.
pub(in super::super) fn close_later(descriptors: &[BorrowedFd<'_>]) -> Option<OwnedFd> {
    let pair = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None);
    let Ok((ours, theirs)) = pair else { return None };
    // The second end waits in its own queue: nobody can read it there, and nobody else has it.
    let mut given = descriptors.to_vec();
    given.push(theirs.as_fd());
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if control.push(SendAncillaryMessage::ScmRights(&given)) {
        let word = [io::IoSlice::new(b"x")];
        let _closed_here = sendmsg(&ours, &word, &mut control, SendFlags::empty());
    }
    Some(ours)
}
