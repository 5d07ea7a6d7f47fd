//! Running commands: own session, bounded output, and a tree that is ended as a whole.
//!
//! - A command gets a session of its own, so it has no controlling terminal (`/dev/tty` cannot be
//!   opened) and one signal reaches its whole group.
//! - Standard output and standard error share one pipe, so their order is kept and neither can fill
//!   while the other is waited for. What is kept is bounded; the rest is counted.
//! - The call returns when the command itself has ended, plus a short drain: what it left in the
//!   background cannot hold it. [`reap_all`] ends such leftovers when the run ends.
//! - On a time limit, and when the future is dropped, the tree is ended (see `tree`).
//!
//! It knows no shell language and no result text.

use std::{
    ffi::OsString,
    fs::File,
    io,
    os::{
        fd::{AsRawFd, OwnedFd, RawFd},
        unix::{fs::FileExt, process::ExitStatusExt},
    },
    path::{Path, PathBuf},
    pin::pin,
    process::{ExitStatus, Stdio},
    time::Duration,
};

use rustix::{
    fs::{Access, MemfdFlags},
    io::FdFlags,
    pipe::PipeFlags,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::unix::pipe,
};

use super::Host;
use crate::authority::Grant;

pub mod editor;
mod job;
mod output;
mod tree;

pub use job::{Job, spawn};
pub use output::{Keeper, Kept, unfinished};
pub use tree::{Survivors, reap_all};

/// How long the pipe is still read after the command has ended.
const DRAIN: Duration = Duration::from_millis(200);
/// How long a tree has, after TERM, before KILL, when the time limit ran out.
const GRACE: Duration = Duration::from_secs(1);
/// The same when the call was interrupted: the caller waits for it.
const GRACE_INTERRUPTED: Duration = Duration::from_millis(30);
/// How long ending a tree may take after KILL, when the time limit ran out.
const LAST: Duration = Duration::from_millis(1500);
/// The same when the call was interrupted.
const LAST_INTERRUPTED: Duration = Duration::from_millis(50);
/// The longest single argument that Linux takes, in bytes without the final NUL
/// (`MAX_ARG_STRLEN`, 32 pages, in execve(2)).
pub const LONGEST_ARGUMENT: usize = 131_071;

/// A command to run.
#[derive(Debug)]
pub struct Command {
    /// The program, looked up on PATH when it has no slash.
    pub program: PathBuf,
    /// Its arguments, as they are.
    pub args: Vec<OsString>,
    /// The directory to start in.
    pub cwd: PathBuf,
    /// Variables to set, after `remove`.
    pub set: Vec<(OsString, OsString)>,
    /// Variables that it does not get.
    pub remove: Vec<OsString>,
    /// What it reads on standard input; without it, `/dev/null`.
    pub input: Option<Vec<u8>>,
    /// How long it may take.
    pub timeout: Duration,
    /// How many bytes of output are kept from the start and from the end.
    pub keep: (usize, usize),
}

/// How a command ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// It exited with this status.
    Exit(i32),
    /// A signal ended it; the name without `SIG`.
    Signal(String),
    /// The time limit ran out and it was ended, with all that it started.
    TimedOut,
    /// It was ended on request, with all that it started.
    Stopped,
}

/// What a command left.
#[derive(Debug)]
pub struct Output {
    /// How it ended.
    pub ended: Ended,
    /// What it wrote, on both streams in order, as far as it was kept.
    pub kept: Kept,
    /// Whether something it started still runs; it ends with the run.
    pub left_running: bool,
}

/// A command that could not be started.
#[derive(Debug, thiserror::Error)]
pub enum ExecError {
    /// The grant is for something else.
    #[error("the grant is not for running a command")]
    NotGranted,
    /// The directory to start in cannot be entered.
    #[error("the directory `{}` cannot be entered: {source}", path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// An argument is longer than the system takes.
    #[error(
        "the command is {bytes} bytes long and the system takes at most {LONGEST_ARGUMENT}; \
         write it to a file and run that, or give data as `input`"
    )]
    TooLong {
        /// Its length in bytes.
        bytes: usize,
    },
    /// The pipe for its output could not be made.
    #[error("no pipe for the output of a command: {0}")]
    Pipe(#[source] io::Error),
    /// The program cannot be started.
    #[error("`{}` cannot be started: {source}", program.display())]
    Start {
        /// The program.
        program: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// A small file in memory that a command inherits under the same descriptor number. The command
/// can read the text that it starts with by its [`path`](Slip::path), or append to it.
#[derive(Debug)]
pub struct Slip {
    file: File,
}

impl Slip {
    /// Makes one that holds a text.
    ///
    /// # Errors
    /// When the system gives no memory file.
    pub fn new(text: &str) -> io::Result<Self> {
        let memory = rustix::fs::memfd_create(c"kli", MemfdFlags::CLOEXEC)?;
        // Scripts use low numbers for their own redirections, so this one is out of their way.
        let file = File::from(rustix::io::fcntl_dupfd_cloexec(&memory, 190)?);
        file.write_all_at(text.as_bytes(), 0)?;
        Ok(Self { file })
    }

    /// Returns the descriptor number that the command sees.
    pub fn number(&self) -> RawFd {
        self.file.as_raw_fd()
    }

    /// Returns the path under which the command can open it afresh.
    pub fn path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.number()))
    }

    /// Returns what it holds, at most `limit` bytes of it.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn read(&self, limit: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; limit];
        let mut length = 0;
        while let Some(rest) = bytes.get_mut(length..).filter(|rest| !rest.is_empty()) {
            match self.file.read_at(rest, length as u64)? {
                0 => break,
                n => length += n,
            }
        }
        bytes.truncate(length);
        Ok(bytes)
    }
}

impl Host {
    /// Returns what the launcher told about the jail around this process, when there is one.
    #[expect(clippy::disallowed_methods, reason = "host is where files are read")]
    pub fn jail(&self) -> Option<serde_json::Value> {
        let text = std::fs::read_to_string(&self.marker).ok()?;
        // A marker that cannot be read still tells that there is a jail.
        Some(serde_json::from_str(&text).unwrap_or_default())
    }
}

/// Says why a directory cannot be entered.
///
/// # Errors
/// The reason.
#[expect(clippy::disallowed_methods, reason = "host is where directories are looked at")]
pub fn enterable(path: &Path) -> io::Result<()> {
    if !std::fs::metadata(path)?.is_dir() {
        return Err(io::Error::from(io::ErrorKind::NotADirectory));
    }
    Ok(rustix::fs::access(path, Access::EXEC_OK)?)
}

/// Runs a command to its end. `slips` are handed down; `live` gets the output as it comes.
///
/// Dropping the future ends the command and all that it started, within 100 ms.
///
/// # Errors
/// When the grant is not for it, or it cannot be started.
pub async fn run(
    grant: &Grant,
    command: Command,
    slips: &[&Slip],
    mut live: impl FnMut(&[u8]) + Send,
) -> Result<Output, ExecError> {
    checked(grant, &command)?;
    let Command { timeout, keep, input, .. } = &command;
    let (timeout, keep, input) = (*timeout, *keep, input.clone());
    let (mut running, mut pipe) = start(command, slips)?;
    feed(&mut running, input);

    let mut keeper = Keeper::new(keep);
    let (ended, complete) = {
        let mut reading = pin!(read_all(&mut pipe, |bytes| {
            keeper.push(bytes);
            live(bytes);
        }));
        let mut ending = pin!(running.finish(timeout, None));
        let mut complete = false;
        let ended = loop {
            tokio::select! {
                ended = &mut ending => break ended,
                () = &mut reading, if !complete => complete = true,
            }
        };
        if !complete {
            complete = tokio::time::timeout(DRAIN, reading).await.is_ok();
        }
        (ended, complete)
    };
    let left_running = running.leave();
    if !complete {
        // Whatever still holds the pipe goes on and must not be stopped by a full or a broken one;
        // the pause keeps a chatty one from costing much.
        tokio::spawn(async move {
            let mut buffer = vec![0; 65_536];
            while let Ok(1..) = pipe.read(&mut buffer).await {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        });
    }
    Ok(Output { ended, kept: keeper.finish(), left_running: left_running || !complete })
}

fn checked(grant: &Grant, command: &Command) -> Result<(), ExecError> {
    if !grant.permits_exec() {
        return Err(ExecError::NotGranted);
    }
    if let Err(source) = enterable(&command.cwd) {
        return Err(ExecError::Directory { path: command.cwd.clone(), source });
    }
    if let Some(long) = command.args.iter().find(|argument| argument.len() > LONGEST_ARGUMENT) {
        return Err(ExecError::TooLong { bytes: long.len() });
    }
    Ok(())
}

fn feed(running: &mut Running, input: Option<Vec<u8>>) {
    if let (Some(bytes), Some(mut stdin)) = (input, running.child.stdin.take()) {
        // A command that does not read its input breaks the pipe; that is its right.
        tokio::spawn(async move { stdin.write_all(&bytes).await });
    }
}

async fn read_all(pipe: &mut pipe::Receiver, mut each: impl FnMut(&[u8])) {
    let mut buffer = vec![0; 65_536];
    while let Ok(n @ 1..) = pipe.read(&mut buffer).await {
        each(buffer.get(..n).unwrap_or_default());
    }
}

#[expect(clippy::disallowed_methods, reason = "host is where processes are started")]
fn start(command: Command, slips: &[&Slip]) -> Result<(Running, pipe::Receiver), ExecError> {
    let (reader, writer) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)
        .map_err(|error| ExecError::Pipe(error.into()))?;
    let second: OwnedFd = writer.try_clone().map_err(ExecError::Pipe)?;
    let handed: Vec<RawFd> = slips.iter().map(|slip| slip.number()).collect();
    let tag = tree::Tag::new();

    let mut process = tokio::process::Command::new(&command.program);
    process.args(&command.args).current_dir(&command.cwd);
    for name in &command.remove {
        process.env_remove(name);
    }
    process.envs(command.set.iter().map(|(name, value)| (name, value)));
    process.env(tree::TAG, tag.value());
    process.stdin(if command.input.is_some() { Stdio::piped() } else { Stdio::null() });
    process.stdout(writer).stderr(second);
    #[expect(unsafe_code, reason = "a new session can only be made between fork and exec")]
    // SAFETY: the closure only makes system calls, which is what may be done between fork and exec
    // in a process with threads; it allocates nothing and takes no lock.
    unsafe {
        process.pre_exec(move || {
            rustix::process::setsid()?;
            for number in &handed {
                // SAFETY: the caller of `run` holds the slip, so the number is open here too.
                let slip = std::os::fd::BorrowedFd::borrow_raw(*number);
                rustix::io::fcntl_setfd(slip, FdFlags::empty())?;
            }
            Ok(())
        });
    }
    let receiver = pipe::Receiver::from_owned_fd(reader).map_err(ExecError::Pipe)?;
    let child = tree::spawn(&mut process)
        .map_err(|source| ExecError::Start { program: command.program, source })?;
    let session = child.id().and_then(|id| i32::try_from(id).ok()).unwrap_or_default();
    // `process` still holds the writing ends: dropped here, so that the pipe can end.
    drop(process);
    Ok((
        Running {
            child,
            tree: tree::Tree::new(session, tag),
            finished: false,
            patience: LAST_INTERRUPTED,
        },
        receiver,
    ))
}

/// A started command. Dropped before its end, it is ended with all that it started.
#[derive(Debug)]
struct Running {
    child: tokio::process::Child,
    tree: tree::Tree,
    finished: bool,
    /// How long ending the tree may take after KILL, when this is dropped.
    patience: Duration,
}

impl Running {
    /// Lets go of a command that has ended, and says whether something it started still runs.
    fn leave(&self) -> bool {
        // Zombies count as members, hence the second look; most calls need none.
        self.tree.group_is_alive() && {
            tree::bury();
            self.tree.group_is_alive()
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !self.finished {
            let mut ending = tree::Ending::new(GRACE_INTERRUPTED, self.patience);
            // Blocking is meant: the caller must not go on while the tree still acts.
            while let Some(pause) = ending.step(&self.tree) {
                std::thread::sleep(pause);
                if !matches!(self.child.try_wait(), Ok(None)) {
                    self.tree.leader_is_not_waited_for();
                }
            }
        }
        self.tree.leader_is_not_waited_for();
    }
}

fn ended(status: ExitStatus) -> Ended {
    match (status.code(), status.signal()) {
        (Some(code), _) => Ended::Exit(code),
        (None, Some(number)) => Ended::Signal(signal_name(number)),
        (None, None) => Ended::Exit(-1),
    }
}

/// Says whether this process ignores a signal, as `nohup` lets it from the start (the mask `SigIgn`
/// of proc(5)). One that cannot be told is not ignored.
#[expect(clippy::disallowed_methods, reason = "host is where /proc is read")]
pub fn ignores(number: i32) -> bool {
    let bit = u32::try_from(number).ok().and_then(|number| number.checked_sub(1));
    let mask = std::fs::read_to_string("/proc/self/status").ok().and_then(|status| {
        let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"))?;
        u64::from_str_radix(mask.trim(), 16).ok()
    });
    mask.zip(bit).is_some_and(|(mask, bit)| mask.checked_shr(bit).unwrap_or(0) & 1 == 1)
}

/// Returns a signal's name without `SIG`, by signal(7).
pub fn signal_name(number: i32) -> String {
    let name = match number {
        libc::SIGABRT => "ABRT",
        libc::SIGALRM => "ALRM",
        libc::SIGBUS => "BUS",
        libc::SIGFPE => "FPE",
        libc::SIGHUP => "HUP",
        libc::SIGILL => "ILL",
        libc::SIGINT => "INT",
        libc::SIGIO => "IO",
        libc::SIGKILL => "KILL",
        libc::SIGPIPE => "PIPE",
        libc::SIGPROF => "PROF",
        libc::SIGPWR => "PWR",
        libc::SIGQUIT => "QUIT",
        libc::SIGSEGV => "SEGV",
        libc::SIGSYS => "SYS",
        libc::SIGTERM => "TERM",
        libc::SIGTRAP => "TRAP",
        libc::SIGUSR1 => "USR1",
        libc::SIGUSR2 => "USR2",
        libc::SIGVTALRM => "VTALRM",
        libc::SIGXCPU => "XCPU",
        libc::SIGXFSZ => "XFSZ",
        _ => return number.to_string(),
    };
    name.to_owned()
}

#[cfg(test)]
pub(crate) mod tests;
