//! The system calls that have no safe wrapper in the launcher's dependencies, one small function
//! each. All unsafe code of the crate is here.

#![expect(unsafe_code, reason = "signals, unshare and the steps between fork and exec need libc")]

pub(super) mod group;
pub(super) mod keyring;
pub(super) mod landlock;

use std::ffi::{CStr, OsString};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

mod handover;
pub(super) mod network;
pub(super) mod start;
pub(super) mod terminal;
pub(super) mod watch;

pub(super) use handover::search_in;

/// The signals that are forwarded to the inside.
pub(super) const FORWARDED: [i32; 6] =
    [libc::SIGTERM, libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGWINCH, libc::SIGTSTP];

/// Closes every descriptor from `first` on.
pub(super) fn close_from(first: RawFd) -> io::Result<()> {
    close_range(first, RawFd::MAX)
}

/// Closes every descriptor from 3 on but these, which must be the only ones that are owned.
pub(super) fn close_all_but(one: &OwnedFd, other: Option<&OwnedFd>) -> io::Result<()> {
    let mut kept = vec![one.as_raw_fd()];
    kept.extend(other.map(AsRawFd::as_raw_fd));
    super::sorted::by(&mut kept, RawFd::cmp);
    let mut first = 3;
    for kept in kept {
        if kept > first {
            close_range(first, kept - 1)?;
        }
        first = kept + 1;
    }
    close_from(first)
}

fn close_range(first: RawFd, last: RawFd) -> io::Result<()> {
    let first = libc::c_uint::try_from(first).map_err(io::Error::other)?;
    let last = libc::c_uint::try_from(last).map_err(io::Error::other)?;
    // SAFETY: the callers own no descriptor between the two: the launcher calls this before it opens
    // anything, the last stage leaves out the only one that it owns.
    let done = unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Takes ownership of a descriptor that the process was started with.
pub(super) fn inherited(fd: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: `fcntl` looks at the number only.
    if fd < 3 || unsafe { libc::fcntl(fd, libc::F_GETFD) } < 0 {
        return Err(io::Error::from_raw_os_error(libc::EBADF));
    }
    // SAFETY: it is open, and only the inner stage calls this, once a number, before opening any.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn set_of(signals: &[i32]) -> libc::sigset_t {
    // SAFETY: `sigemptyset` initialises the set, `sigaddset` gets valid signal numbers.
    unsafe {
        let mut set = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        for signal in signals {
            libc::sigaddset(&raw mut set, *signal);
        }
        set
    }
}

/// Those of [`FORWARDED`] that the caller did not have ignored, as `nohup` does with HUP: what shall
/// not touch the launcher shall not touch the inside either. And SIGCONT, which nobody can ignore.
pub(super) fn wanted_signals() -> Vec<i32> {
    let ignored = |signal: i32| {
        // SAFETY: the structure is plain old data and filled by the call; nothing is set.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            libc::sigaction(signal, std::ptr::null(), &raw mut action) == 0
                && action.sa_sigaction == libc::SIG_IGN
        }
    };
    let wanted = FORWARDED.into_iter().filter(|signal| !ignored(*signal));
    wanted.chain([libc::SIGCONT]).collect()
}

/// A file size limit must end a write with an error that can be told, not this process.
pub(super) fn survive_size_limit() {
    // SAFETY: a valid disposition; one thread.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
}

/// Blocks `signals` and SIGCHLD, and makes SIGCHLD deliverable even where the caller ignored it.
pub(super) fn block_signals(signals: &[i32]) -> io::Result<()> {
    let mut signals = signals.to_vec();
    signals.push(libc::SIGCHLD);
    let set = set_of(&signals);
    // SAFETY: valid sets and dispositions; one thread.
    unsafe {
        if libc::signal(libc::SIGCHLD, libc::SIG_DFL) == libc::SIG_ERR {
            return Err(io::Error::last_os_error());
        }
        if libc::sigprocmask(libc::SIG_SETMASK, &raw const set, std::ptr::null_mut()) != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// A descriptor that is readable while one of the blocked signals waits.
pub(super) fn signal_descriptor(signals: &[i32]) -> io::Result<OwnedFd> {
    let mut signals = signals.to_vec();
    signals.push(libc::SIGCHLD);
    let set = set_of(&signals);
    // SAFETY: a valid set; the result is checked and owned once.
    unsafe {
        let fd = libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK);
        if fd < 0 { Err(io::Error::last_os_error()) } else { Ok(OwnedFd::from_raw_fd(fd)) }
    }
}

/// A signal that arrived.
#[derive(Debug, Clone, Copy)]
pub(super) struct Received {
    /// Its number.
    pub(super) signal: i32,
    /// The process that sent it, zero for one that has no number here.
    pub(super) sender: u32,
}

/// The next waiting signal, `None` when none waits.
pub(super) fn next_signal(descriptor: BorrowedFd<'_>) -> io::Result<Option<Received>> {
    let size = size_of::<libc::signalfd_siginfo>();
    // SAFETY: the buffer is as large as said and plain old data.
    let (read, info) = unsafe {
        let mut info: libc::signalfd_siginfo = std::mem::zeroed();
        (libc::read(descriptor.as_raw_fd(), (&raw mut info).cast(), size), info)
    };
    if usize::try_from(read) == Ok(size) {
        return Ok(i32::try_from(info.ssi_signo)
            .ok()
            .map(|signal| Received { signal, sender: info.ssi_pid }));
    }
    let error = io::Error::last_os_error();
    if error.kind() == io::ErrorKind::WouldBlock { Ok(None) } else { Err(error) }
}

/// Gives every signal its default disposition, whatever was inherited.
pub(super) fn default_dispositions() {
    for signal in (1..=libc::SIGSYS).chain(libc::SIGRTMIN()..=libc::SIGRTMAX()) {
        if signal != libc::SIGKILL && signal != libc::SIGSTOP {
            // SAFETY: default dispositions only; one thread.
            unsafe { libc::signal(signal, libc::SIG_DFL) };
        }
    }
}

/// Sends `signal` to a process (positive), a process group (negative), the own group (0), or to all
/// but this process (-1).
pub(super) fn kill(pid: i32, signal: i32) {
    // SAFETY: no memory is involved. A target that is gone already is what was wanted.
    unsafe { libc::kill(pid, signal) };
}

/// Ends this process without anything that its parent's memory would see.
pub(super) fn end_at_once(code: u8) -> ! {
    // SAFETY: no memory is involved.
    unsafe { libc::_exit(code.into()) }
}

/// The error number that tells a refused /proc from what else can fail before `exec`; no call of the
/// preparation gives it.
pub(super) const NO_PROC: i32 = libc::EUCLEAN;

/// Prepares bubblewrap to run as the jail's monitor: it gets none of the terminal's signals and is not
/// ended by the signals that are forwarded past it, and `errors` is its standard error. With `own_processes` it sees its own PID namespace
/// in /proc (bubblewrap looks its child up there by number) and dies with this process. Without that
/// namespace its death could leave a child that waits for it for ever, so the last stage, which
/// notices the launcher's end, must be the one to end it.
pub(super) fn monitor(
    start: &mut start::Start,
    own_processes: bool,
    errors: RawFd,
) -> io::Result<()> {
    // SAFETY: no memory is involved; the result is checked and owned once.
    let launcher = unsafe {
        let fd = libc::syscall(libc::SYS_pidfd_open, libc::getpid(), 0);
        match RawFd::try_from(fd) {
            Ok(fd) if fd >= 0 => OwnedFd::from_raw_fd(fd),
            _ => return Err(io::Error::last_os_error()),
        }
    };
    // SAFETY: async-signal-safe calls only, no allocation.
    let steps = move || unsafe {
        let flags = libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC;
        let proc = c"proc".as_ptr();
        if own_processes && libc::mount(proc, c"/proc".as_ptr(), proc, flags, std::ptr::null()) != 0
        {
            return Err(io::Error::from_raw_os_error(NO_PROC));
        }
        if libc::setpgid(0, 0) != 0 || libc::dup2(errors, 2) < 0 {
            return Err(io::Error::last_os_error());
        }
        libc::signal(libc::SIGPIPE, libc::SIG_DFL);
        // A stop as well: the launcher waits until this has executed its program, and could not tell
        // the caller's shell.
        for signal in [libc::SIGTERM, libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGTSTP] {
            libc::signal(signal, libc::SIG_IGN);
        }
        if !own_processes {
            return Ok(());
        }
        // Only `exec` of a privileged file clears it again, and such a bubblewrap is refused.
        if libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) != 0 {
            return Err(io::Error::last_os_error());
        }
        // The launcher may have died before the line above. Its number says nothing in the
        // namespace of this process, so the handle is asked: readable means ended.
        let mut end = libc::pollfd { fd: launcher.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        if libc::poll(&raw mut end, 1, 0) != 0 {
            return Err(io::Error::from_raw_os_error(libc::ESRCH));
        }
        Ok(())
    };
    // SAFETY: `steps` does nothing but async-signal-safe calls.
    unsafe { start.before(steps) };
    Ok(())
}

/// Two ends of a socket; the first one tells who wrote into the second.
pub(super) fn credential_pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let mut ends: [RawFd; 2] = [-1; 2];
    let on: libc::c_int = 1;
    let size = libc::socklen_t::try_from(size_of::<libc::c_int>()).map_err(io::Error::other)?;
    // Whole words, also when several wait.
    let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC;
    // SAFETY: the buffers are as large as said; the descriptors are owned once.
    unsafe {
        if libc::socketpair(libc::AF_UNIX, kind, 0, ends.as_mut_ptr()) != 0 {
            return Err(io::Error::last_os_error());
        }
        let [ours, theirs] = ends;
        let pair = (OwnedFd::from_raw_fd(ours), OwnedFd::from_raw_fd(theirs));
        let option = (&raw const on).cast();
        if libc::setsockopt(ours, libc::SOL_SOCKET, libc::SO_PASSCRED, option, size) != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(pair)
    }
}

/// A word of three bytes from the other end of a socket.
#[derive(Debug, Clone, Copy)]
pub(super) struct Word {
    /// What was written.
    pub(super) bytes: [u8; 3],
    /// The number of the process that wrote it, as it is called here.
    pub(super) writer: i32,
}

/// Reads one word; `None` when the other end was closed.
pub(super) fn read_word(socket: BorrowedFd<'_>) -> io::Result<Option<Word>> {
    // Bytes; glibc and musl give the length different widths, and this fits both.
    const ROOM: u8 = 128;
    let mut bytes = [0_u8; 3];
    let mut control = [0_u64; 16];
    // SAFETY: the message names buffers that outlive it, with their sizes; the control message is
    // read only where the kernel says that one of the right kind is.
    unsafe {
        let mut piece =
            libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: size_of_val(&bytes) };
        let mut message: libc::msghdr = std::mem::zeroed();
        message.msg_iov = &raw mut piece;
        message.msg_iovlen = 1;
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = ROOM.into();
        let mut read = libc::recvmsg(socket.as_raw_fd(), &raw mut message, 0);
        // Told once when the other end was closed with a word unread; its own words follow.
        if read < 0 && io::Error::last_os_error().kind() == io::ErrorKind::ConnectionReset {
            read = libc::recvmsg(socket.as_raw_fd(), &raw mut message, 0);
        }
        if read < 0 {
            return Err(io::Error::last_os_error());
        }
        let header = libc::CMSG_FIRSTHDR(&raw const message);
        if read == 0 || header.is_null() {
            return Ok(None);
        }
        if (*header).cmsg_level != libc::SOL_SOCKET || (*header).cmsg_type != libc::SCM_CREDENTIALS
        {
            return Ok(None);
        }
        let who: libc::ucred = std::ptr::read_unaligned(libc::CMSG_DATA(header).cast());
        Ok(Some(Word { bytes, writer: who.pid }))
    }
}

/// Makes the mounts of `tree` read-only, whatever else they are. Linux 5.12.
pub(super) fn seal(tree: BorrowedFd<'_>) -> io::Result<()> {
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

/// Moves this process into new namespaces.
pub(super) fn unshare(flags: i32) -> io::Result<()> {
    // SAFETY: namespaces only, no shared memory or descriptor table; one thread.
    if unsafe { libc::unshare(flags) } == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// The version of the kernel's Landlock interface, zero when it is switched off (landlock(7));
/// `None` when the kernel has none. Nothing is restricted by asking.
pub(super) fn landlock_version() -> Option<i32> {
    const ASK_VERSION: libc::c_uint = 1;
    // SAFETY: with this flag the kernel wants a null pointer and a size of zero, and makes nothing.
    let version = unsafe {
        libc::syscall(
            libc::SYS_landlock_create_ruleset,
            std::ptr::null::<libc::c_void>(),
            0_usize,
            ASK_VERSION,
        )
    };
    if version >= 0 {
        return i32::try_from(version).ok();
    }
    (io::Error::last_os_error().raw_os_error() == Some(libc::EOPNOTSUPP)).then_some(0)
}

/// The machine's memory in bytes.
pub(super) fn memory() -> u64 {
    // SAFETY: the structure is plain old data and filled by the call.
    let info = unsafe {
        let mut info: libc::sysinfo = std::mem::zeroed();
        libc::sysinfo(&raw mut info);
        info
    };
    info.totalram.saturating_mul(u64::from(info.mem_unit))
}

/// The home of `uid` by the system's name services, for accounts that `/etc/passwd` lacks.
pub(super) fn account_home(uid: u32) -> Option<PathBuf> {
    let mut buffer = vec![0; 16 * 1024];
    // SAFETY: the buffer outlives the entry, whose strings point into it; one thread.
    unsafe {
        let mut entry: libc::passwd = std::mem::zeroed();
        let mut found = std::ptr::null_mut();
        let failed = libc::getpwuid_r(
            uid,
            &raw mut entry,
            buffer.as_mut_ptr(),
            buffer.len(),
            &raw mut found,
        );
        if failed != 0 || found.is_null() || entry.pw_dir.is_null() {
            return None;
        }
        let home = CStr::from_ptr(entry.pw_dir).to_bytes().to_vec();
        Some(PathBuf::from(OsString::from_vec(home)))
    }
}
