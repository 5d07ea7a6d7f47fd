//! The system calls that have no safe wrapper in the launcher's dependencies, one small function
//! each. All unsafe code of the crate is here.

#![expect(unsafe_code, reason = "signals, unshare and the steps between fork and exec need libc")]

pub(super) mod group;
pub(super) mod keyring;
pub(super) mod landlock;

use std::ffi::{CStr, CString, OsString};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

mod handover;
pub(super) mod network;
pub(super) mod watch;

pub(super) use handover::{place, search_in};

/// The signals that are forwarded to the inside.
pub(super) const FORWARDED: [i32; 5] =
    [libc::SIGTERM, libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGWINCH];

/// Closes every descriptor from `first` on.
pub(super) fn close_from(first: RawFd) -> io::Result<()> {
    let first = libc::c_uint::try_from(first).map_err(io::Error::other)?;
    // SAFETY: the callers own no descriptor from `first` on: the launcher calls this before it
    // opens anything, the inner stage with its last own descriptor below.
    let done = unsafe { libc::syscall(libc::SYS_close_range, first, libc::c_uint::MAX, 0) };
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
/// not touch the launcher shall not touch the inside either.
pub(super) fn wanted_signals() -> Vec<i32> {
    let ignored = |signal: i32| {
        // SAFETY: the structure is plain old data and filled by the call; nothing is set.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            libc::sigaction(signal, std::ptr::null(), &raw mut action) == 0
                && action.sa_sigaction == libc::SIG_IGN
        }
    };
    FORWARDED.into_iter().filter(|signal| !ignored(*signal)).collect()
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

/// The next waiting signal, `None` when none waits.
pub(super) fn next_signal(descriptor: BorrowedFd<'_>) -> io::Result<Option<i32>> {
    let size = size_of::<libc::signalfd_siginfo>();
    // SAFETY: the buffer is as large as said and plain old data.
    let (read, info) = unsafe {
        let mut info: libc::signalfd_siginfo = std::mem::zeroed();
        (libc::read(descriptor.as_raw_fd(), (&raw mut info).cast(), size), info)
    };
    if usize::try_from(read) == Ok(size) {
        return Ok(i32::try_from(info.ssi_signo).ok());
    }
    let error = io::Error::last_os_error();
    if error.kind() == io::ErrorKind::WouldBlock { Ok(None) } else { Err(error) }
}

/// Waits for one of the blocked signals without a descriptor; process 1 of the jail keeps none.
pub(super) fn wait_signal() -> io::Result<i32> {
    let mut signals = FORWARDED.to_vec();
    signals.push(libc::SIGCHLD);
    let set = set_of(&signals);
    loop {
        // SAFETY: a valid set, no information asked for.
        let signal = unsafe { libc::sigwaitinfo(&raw const set, std::ptr::null_mut()) };
        if signal > 0 {
            return Ok(signal);
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
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

/// Lets this process write to a terminal and set its modes from the background.
pub(super) fn ignore_background_writes() {
    // SAFETY: SIG_IGN installs no handler.
    unsafe { libc::signal(libc::SIGTTOU, libc::SIG_IGN) };
}

/// Sends `signal` to a process (positive) or a process group (negative).
pub(super) fn kill(pid: i32, signal: i32) {
    // SAFETY: no memory is involved. A target that is gone already is what was wanted.
    unsafe { libc::kill(pid, signal) };
}

/// The error number that tells a refused /proc from what else can fail before `exec`; no call of the
/// preparation gives it.
pub(super) const NO_PROC: i32 = libc::EUCLEAN;

/// Prepares `command` to run as the jail's monitor: it sees its own PID namespace in /proc where it
/// has one (bubblewrap looks its child up there by number), dies with this process, does not get the
/// terminal's signals, and is not ended by the signals that are forwarded past it.
pub(super) fn monitor(command: &mut Command, own_processes: bool) -> io::Result<()> {
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
        if libc::setpgid(0, 0) != 0 {
            return Err(io::Error::last_os_error());
        }
        for signal in [libc::SIGTERM, libc::SIGHUP, libc::SIGINT, libc::SIGQUIT] {
            libc::signal(signal, libc::SIG_IGN);
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
    unsafe { command.pre_exec(steps) };
    Ok(())
}

/// Two ends of a socket; the first one tells who wrote into the second.
pub(super) fn credential_pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let mut ends: [RawFd; 2] = [-1; 2];
    let on: libc::c_int = 1;
    let size = libc::socklen_t::try_from(size_of::<libc::c_int>()).map_err(io::Error::other)?;
    let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC;
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

/// Reads one byte and returns the number of the process that wrote it, as it is called here;
/// `None` when the other end was closed without a word.
pub(super) fn writer(socket: BorrowedFd<'_>) -> io::Result<Option<i32>> {
    let mut byte = 0_u8;
    let mut control = [0_u64; 16];
    // SAFETY: the message names buffers that outlive it, with their sizes; the control message is
    // read only where the kernel says that one of the right kind is.
    unsafe {
        let mut piece = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
        let mut message: libc::msghdr = std::mem::zeroed();
        message.msg_iov = &raw mut piece;
        message.msg_iovlen = 1;
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = size_of_val(&control);
        let read = libc::recvmsg(socket.as_raw_fd(), &raw mut message, libc::MSG_CMSG_CLOEXEC);
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
        Ok(Some(who.pid))
    }
}

/// Starts a program with this environment, found on its `PATH` when its name has no slash, in a process group of its own and
/// with no signal blocked, and returns its number. Unlike `Command` it can say so without a copy of
/// this process between fork and exec.
pub(super) fn spawn(words: &[OsString], environment: &[CString]) -> io::Result<i32> {
    if let Some(path) =
        environment.iter().find_map(|it| it.as_bytes_with_nul().strip_prefix(b"PATH="))
    {
        search_in(CStr::from_bytes_with_nul(path).map_err(io::Error::other)?)?;
    }
    let words: Vec<CString> = words
        .iter()
        .map(|word| CString::new(word.as_bytes()).map_err(io::Error::from))
        .collect::<io::Result<_>>()?;
    let mut pointers: Vec<*mut libc::c_char> =
        words.iter().map(|word| word.as_ptr().cast_mut()).collect();
    pointers.push(std::ptr::null_mut());
    let mut variables: Vec<*mut libc::c_char> =
        environment.iter().map(|variable| variable.as_ptr().cast_mut()).collect();
    variables.push(std::ptr::null_mut());
    let program = words.first().ok_or(io::ErrorKind::InvalidInput)?;
    let none = set_of(&[]);
    let flags = libc::POSIX_SPAWN_SETSIGMASK | libc::POSIX_SPAWN_SETPGROUP;
    let flags = libc::c_short::try_from(flags).map_err(io::Error::other)?;
    let mut pid = 0;
    // SAFETY: the attributes are initialised before use and destroyed once; the pointers outlive
    // the call.
    let failed = unsafe {
        let mut attributes = std::mem::zeroed();
        libc::posix_spawnattr_init(&raw mut attributes);
        libc::posix_spawnattr_setflags(&raw mut attributes, flags);
        libc::posix_spawnattr_setsigmask(&raw mut attributes, &raw const none);
        libc::posix_spawnattr_setpgroup(&raw mut attributes, 0);
        let failed = libc::posix_spawnp(
            &raw mut pid,
            program.as_ptr(),
            std::ptr::null(),
            &raw const attributes,
            pointers.as_ptr(),
            variables.as_ptr(),
        );
        libc::posix_spawnattr_destroy(&raw mut attributes);
        failed
    };
    if failed == 0 { Ok(pid) } else { Err(io::Error::from_raw_os_error(failed)) }
}

/// Makes the mount behind `tree` read-only, whatever else it is. Linux 5.12.
pub(super) fn seal(tree: BorrowedFd<'_>) -> io::Result<()> {
    // `struct mount_attr`: set, clear, propagation, user namespace.
    let attributes: [u64; 4] = [libc::MOUNT_ATTR_RDONLY, 0, 0, 0];
    // SAFETY: the structure has the size that is said and outlives the call.
    let done = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            tree.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH,
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
