//! Jobs and the terminal: starting the program in a group of its own, stopping like a job of the
//! caller's shell, dying by a signal.

use std::ffi::{CStr, CString, OsString};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;

use super::super::handover::KEYS;
use super::start::Start;
use super::{search_in, set_of};

/// Whether no process of this session can push input into `terminal`, its controlling terminal. The
/// kernel is asked with an address that cannot be read: only where it would go on does it look at
/// that (`ioctl_tty(2)`, `ioctl_console(2)`).
pub(in super::super) fn injection_refused(terminal: BorrowedFd<'_>) -> bool {
    [libc::TIOCSTI, libc::TIOCLINUX].into_iter().all(|command| {
        let nowhere = std::ptr::null::<libc::c_char>();
        // SAFETY: the kernel reads one byte at the address, and answers EFAULT as none is there.
        let done = unsafe { libc::ioctl(terminal.as_raw_fd(), command, nowhere) };
        done != 0 && io::Error::last_os_error().raw_os_error() != Some(libc::EFAULT)
    })
}

/// Makes this process the leader of a session without a controlling terminal.
pub(in super::super) fn leave_session() -> io::Result<()> {
    // SAFETY: no memory is involved.
    if unsafe { libc::setsid() } < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Starts a program with this environment, found on its `PATH` when its name has no slash, in a
/// process group of its own and with no signal blocked, and returns its number, which is the
/// group's too. It finds `keys` at [`KEYS`] and no other descriptor above 2 (all others close on
/// `exec`); `foreground` is a terminal that is handed to it before it begins.
pub(in super::super) fn spawn(
    words: &[OsString],
    environment: &[CString],
    keys: Option<&OwnedFd>,
    foreground: Option<BorrowedFd<'_>>,
) -> io::Result<i32> {
    if let Some(path) =
        environment.iter().find_map(|it| it.as_bytes_with_nul().strip_prefix(b"PATH="))
    {
        search_in(CStr::from_bytes_with_nul(path).map_err(io::Error::other)?)?;
    }
    let words: Vec<CString> = words
        .iter()
        .map(|word| CString::new(word.as_bytes()).map_err(io::Error::from))
        .collect::<io::Result<_>>()?;
    let given = keys.map_or(-1, AsRawFd::as_raw_fd);
    let terminal = foreground.map_or(-1, |terminal| terminal.as_raw_fd());
    // SAFETY: async-signal-safe calls only, no allocation.
    let steps = move || unsafe {
        // A terminal that is gone gives the program no foreground.
        if libc::setpgid(0, 0) != 0 {
            return Err(io::Error::last_os_error());
        }
        if terminal >= 0 {
            libc::tcsetpgrp(terminal, libc::getpid());
        }
        let placed = match given {
            KEYS => libc::fcntl(given, libc::F_SETFD, 0),
            ..KEYS => 0,
            _ => libc::dup2(given, KEYS),
        };
        if placed < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    };
    let mut start = Start::default();
    // SAFETY: `steps` does nothing but async-signal-safe calls.
    unsafe { start.before(steps) };
    start.found(&words, environment)
}

/// Lets a background read or write stop this process when it is sent for that, and never otherwise:
/// they stay blocked, so it may set a terminal's modes and group from the background (termios(3)).
pub(in super::super) fn stop_only_when_told() {
    let set = set_of(&[libc::SIGTTIN, libc::SIGTTOU]);
    // SAFETY: default dispositions and a valid set; one thread.
    unsafe {
        libc::signal(libc::SIGTTIN, libc::SIG_DFL);
        libc::signal(libc::SIGTTOU, libc::SIG_DFL);
        libc::sigprocmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut());
    }
}

/// Stops this process by `signal`, with its whole process group if `group`, and returns when it is
/// continued. False when the signal had no effect: it is ignored, or no shell could continue the
/// group. SIGCONT and SIGTSTP must be blocked: one of them waits afterwards, since a key that is pressed
/// right after the shell's `fg` takes the SIGCONT away (signal(7)).
pub(in super::super) fn stop(signal: i32, group: bool) -> bool {
    let set = set_of(&[signal]);
    // SAFETY: valid sets; one thread, so the signal is taken before `sigprocmask` returns.
    unsafe {
        libc::kill(if group { 0 } else { libc::getpid() }, signal);
        if signal != libc::SIGSTOP {
            libc::sigprocmask(libc::SIG_UNBLOCK, &raw const set, std::ptr::null_mut());
            libc::sigprocmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut());
        }
        let mut pending = set_of(&[]);
        let waits = |pending: &libc::sigset_t, it| libc::sigismember(&raw const *pending, it) == 1;
        libc::sigpending(&raw mut pending) == 0
            && (waits(&pending, libc::SIGCONT) || waits(&pending, libc::SIGTSTP))
    }
}

/// Ends this process by `signal`, without a core file: the program's is enough. Returns only where
/// the kernel does not deliver it, as to process 1 of a container.
pub(in super::super) fn die_by(signal: i32) {
    let set = set_of(&[signal]);
    let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: valid structures and dispositions; one thread.
    unsafe {
        libc::setrlimit(libc::RLIMIT_CORE, &raw const none);
        // A limit of zero does not stop a core that goes to a pipe (core(5)).
        libc::prctl(libc::PR_SET_DUMPABLE, 0);
        libc::signal(signal, libc::SIG_DFL);
        libc::kill(libc::getpid(), signal);
        libc::sigprocmask(libc::SIG_UNBLOCK, &raw const set, std::ptr::null_mut());
    }
}

/// Whether a process group has no member any more.
pub(in super::super) fn is_gone(group: i32) -> bool {
    // SAFETY: no memory is involved, and signal 0 does nothing.
    let missing = unsafe { libc::kill(-group, 0) } != 0;
    missing && io::Error::last_os_error().raw_os_error() == Some(libc::ESRCH)
}

/// Lets orphans of this process's descendants become its own children.
pub(in super::super) fn adopt_orphans() -> io::Result<()> {
    // SAFETY: no memory is involved.
    let done = unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
