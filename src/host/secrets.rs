//! Keys on their way in: what a launcher hands over once, what a command prints, and the file that
//! keeps them.
//!
//! None of it is asked for by a model, so none takes a [`Grant`] for a tool's atom; writing the file
//! takes that for kli's own files. It knows no provider and no settings.

#![expect(clippy::disallowed_methods, reason = "this is an edge: keys come in here")]

use std::{
    collections::BTreeMap,
    fmt,
    fs::File,
    io::{self, Read as _},
    os::{
        fd::{BorrowedFd, FromRawFd as _, OwnedFd, RawFd},
        unix::{fs::MetadataExt as _, process::ExitStatusExt as _},
    },
    path::Path,
    pin::pin,
    process::Stdio,
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fs::FileType,
    process::{Pid, Signal, kill_process_group},
};
use tokio::io::AsyncReadExt as _;
use zeroize::Zeroizing;

use super::{HostError, environment, state};
use crate::authority::Grant;

/// The variable that names the descriptor with the secrets of a launcher.
pub const HANDED: &str = crate::config::names::KLI_SECRETS_FD;
/// The most bytes that a launcher hands over: what a pipe holds, so that it never has to wait
/// (64 KiB by default, pipe(7)).
pub const HANDED_LIMIT: usize = 64 * 1024;
/// How long the other end of that pipe may stay open.
const HANDED_WAIT: Duration = Duration::from_secs(5);
/// The most bytes that a key command may print.
pub const COMMAND_LIMIT: usize = 64 * 1024;
/// How long a key command may take.
pub const COMMAND_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a key command has between TERM and KILL.
const GRACE: Duration = Duration::from_millis(300);
/// How long the pipe is still read after a key command has ended.
const DRAIN: Duration = Duration::from_millis(200);
/// The most bytes of a file of keys.
const STORE_LIMIT: u64 = 1024 * 1024;
/// How long another process may hold the lock on the file of keys.
const LOCK_WAIT: Duration = Duration::from_secs(10);

/// Secrets that a launcher handed over, by name. `Debug` shows the names.
#[derive(Clone, Default)]
pub struct Handed {
    values: BTreeMap<String, Zeroizing<String>>,
}

impl fmt::Debug for Handed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.values.keys()).finish()
    }
}

impl Handed {
    /// Returns the value of this name.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.values.get(name).map(|value| value.as_str())
    }

    /// Returns all values.
    pub fn values(&self) -> impl Iterator<Item = &str> {
        self.values.values().map(|value| value.as_str())
    }
}

/// Secrets of a launcher that cannot be read. No message shows a part of them.
#[derive(Debug, thiserror::Error)]
pub enum HandedError {
    /// The variable does not name a descriptor that can be taken.
    #[error("`{HANDED}` does not name an open descriptor above 2")]
    Number,
    /// The descriptor is something that can be read twice.
    #[error("the descriptor of `{HANDED}` is {kind}, not a pipe")]
    Kind {
        /// What it is.
        kind: &'static str,
    },
    /// The other end stays open.
    #[error("the pipe of `{HANDED}` was not closed within {} s", HANDED_WAIT.as_secs())]
    Open,
    /// More than fits.
    #[error("the pipe of `{HANDED}` carries more than {HANDED_LIMIT} bytes")]
    TooLong,
    /// It cannot be read.
    #[error("the pipe of `{HANDED}` cannot be read: {0}")]
    Read(#[source] io::Error),
    /// It is no object of strings.
    #[error(
        "the pipe of `{HANDED}` carries no JSON object of strings (line {line}, column {column})"
    )]
    Form {
        /// From 1.
        line: usize,
        /// From 1.
        column: usize,
    },
    /// A name or a value that cannot be.
    #[error("the pipe of `{HANDED}` carries {0}")]
    Entry(String),
}

/// Takes what a launcher handed over: one JSON object of names and values in the pipe that
/// [`HANDED`] names. Reading empties the pipe, so it is there once; the descriptor is closed and the
/// variable is wiped whatever comes of it.
///
/// To be called first of all: the process must have one thread, and neither a file that could get
/// the number of the descriptor nor a child that could inherit it.
///
/// # Errors
/// For anything but such a pipe: a run without the keys that were meant for it must not start.
pub fn take_handed() -> Result<Handed, HandedError> {
    let Some(number) = std::env::var_os(HANDED) else { return Ok(Handed::default()) };
    environment::wipe(&[HANDED.to_owned()]);
    let number: RawFd = number
        .to_str()
        .and_then(|text| text.parse().ok())
        .filter(|number| *number > 2)
        .ok_or(HandedError::Number)?;
    #[expect(unsafe_code, reason = "an inherited descriptor is a mere number")]
    // SAFETY: the number is borrowed for one call that fails for one that is not open; once it is
    // known to be open, it is owned here alone: nothing of this process has opened anything yet.
    let pipe = unsafe {
        rustix::io::fcntl_getfd(BorrowedFd::borrow_raw(number)).map_err(|_| HandedError::Number)?;
        OwnedFd::from_raw_fd(number)
    };
    let kind = rustix::fs::fstat(&pipe).map_err(|error| HandedError::Read(error.into()))?.st_mode;
    match FileType::from_raw_mode(kind) {
        FileType::Fifo => {}
        // A file could be read again by whoever else has it.
        kind => return Err(HandedError::Kind { kind: super::files::kind(kind) }),
    }
    parse_handed(&drain(pipe)?)
}

fn drain(pipe: OwnedFd) -> Result<Zeroizing<Vec<u8>>, HandedError> {
    let end = Instant::now() + HANDED_WAIT;
    // Room for all of it from the start: growing would leave copies behind.
    let mut bytes = Zeroizing::new(vec![0; HANDED_LIMIT + 1]);
    let mut length = 0;
    let mut pipe = File::from(pipe);
    loop {
        let left = end.saturating_duration_since(Instant::now());
        let left = Timespec::try_from(left).map_err(|_| HandedError::Open)?;
        let ready = poll(&mut [PollFd::new(&pipe, PollFlags::IN)], Some(&left));
        match ready.map_err(io::Error::from) {
            Ok(0) => return Err(HandedError::Open),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(HandedError::Read(error)),
        }
        let Some(rest) = bytes.get_mut(length..).filter(|rest| !rest.is_empty()) else {
            return Err(HandedError::TooLong);
        };
        match pipe.read(rest) {
            Ok(0) => break,
            Ok(count) => length += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(HandedError::Read(error)),
        }
    }
    if length > HANDED_LIMIT {
        return Err(HandedError::TooLong);
    }
    bytes.truncate(length);
    Ok(bytes)
}

fn parse_handed(bytes: &[u8]) -> Result<Handed, HandedError> {
    // The parser's own words may repeat what it has read.
    let values: BTreeMap<String, Zeroizing<String>> =
        serde_json::from_slice::<BTreeMap<String, String>>(bytes)
            .map_err(|error| HandedError::Form { line: error.line(), column: error.column() })?
            .into_iter()
            .map(|(name, value)| (name, Zeroizing::new(value)))
            .collect();
    for (name, value) in &values {
        let fine = |c: char| c.is_ascii_alphanumeric() || c == '_';
        if name.is_empty()
            || !name.chars().all(fine)
            || name.starts_with(|c: char| c.is_ascii_digit())
        {
            // Not repeated: it may be the value in the wrong place.
            return Err(HandedError::Entry("a name that is none of a variable".to_owned()));
        }
        if value.trim().is_empty() {
            return Err(HandedError::Entry(format!("an empty value for `{name}`")));
        }
    }
    Ok(Handed { values })
}

/// A key command that gave no key.
#[derive(Debug, thiserror::Error)]
pub enum KeyCommandError {
    /// It cannot be started.
    #[error("cannot be started: {0}")]
    Start(#[source] io::Error),
    /// It did not end with 0.
    #[error("ended with {0}")]
    Ended(String),
    /// It took too long and was ended.
    #[error("took longer than {} s and was ended", .0.as_secs_f64())]
    TimedOut(Duration),
    /// It printed too much to be a key.
    #[error("printed more than {COMMAND_LIMIT} bytes, which is no key")]
    TooLong,
    /// Its output cannot be read.
    #[error("cannot be read: {0}")]
    Read(#[source] io::Error),
}

/// Runs the command of a setting and returns what it printed on standard output, at most
/// [`COMMAND_LIMIT`] bytes. It runs in no shell, in a session of its own (so it has no terminal to
/// ask on, and cannot be stopped by one), with nothing on standard input; its standard error is
/// kli's own. Dropping the future ends it.
///
/// There is no grant: the words are the user's own setting, never a project's and never a model's,
/// and it runs before any model has said anything. A grant for `process/exec` would be the wrong
/// one, as a run without that atom needs its key, too; and only a subject's check may make it. It
/// goes past the tree that ends a run's commands on purpose: what such a command leaves running (an
/// agent that remembers the passphrase) is not the run's.
///
/// # Errors
/// See [`KeyCommandError`]; none shows what was printed.
pub async fn key_command(
    words: &[String],
    program: &Path,
    directory: &Path,
    timeout: Duration,
) -> Result<Zeroizing<Vec<u8>>, KeyCommandError> {
    let mut command = tokio::process::Command::new(program);
    command
        .args(words.get(1..).unwrap_or_default())
        .current_dir(directory)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .kill_on_drop(true);
    #[expect(unsafe_code, reason = "a new session can only be made between fork and exec")]
    // SAFETY: the closure makes one system call, allocates nothing and takes no lock.
    unsafe {
        command.pre_exec(|| Ok(rustix::process::setsid().map(|_| ())?));
    }
    let mut child = command.spawn().map_err(KeyCommandError::Start)?;
    let mut group = Group(child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw));
    let mut output = child.stdout.take();
    let mut bytes = Zeroizing::new(Vec::with_capacity(COMMAND_LIMIT + 1));
    let outcome = tokio::time::timeout(timeout, async {
        let mut reading = pin!(async {
            if let Some(output) = output.as_mut() {
                output.take(COMMAND_LIMIT as u64 + 1).read_to_end(&mut bytes).await?;
            }
            Ok::<_, io::Error>(bytes.len() > COMMAND_LIMIT)
        });
        let mut whole = None;
        let status = loop {
            tokio::select! {
                status = child.wait() => break status.map_err(KeyCommandError::Read)?,
                read = &mut reading, if whole.is_none() => {
                    let long = read.map_err(KeyCommandError::Read)?;
                    if long {
                        return Err(KeyCommandError::TooLong);
                    }
                    whole = Some(());
                }
            }
        };
        // Whatever it left in the background may hold the pipe.
        if whole.is_none()
            && let Ok(read) = tokio::time::timeout(DRAIN, reading).await
            && read.map_err(KeyCommandError::Read)?
        {
            return Err(KeyCommandError::TooLong);
        }
        Ok(status)
    })
    .await;
    let status = match outcome {
        Ok(Ok(status)) => status,
        Ok(Err(error)) => {
            group.end().await;
            return Err(error);
        }
        Err(_) => {
            group.end().await;
            return Err(KeyCommandError::TimedOut(timeout));
        }
    };
    group.0 = None;
    if status.success() {
        return Ok(bytes);
    }
    Err(KeyCommandError::Ended(match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(signal)) => format!("the signal {}", super::process::signal_name(signal)),
        (None, None) => "no exit code".to_owned(),
    }))
}

/// The processes of a key command; ended when it is dropped before its time.
struct Group(Option<Pid>);

impl Group {
    async fn end(&mut self) {
        if let Some(group) = self.0 {
            // One that is gone already cannot be ended; that is what was wanted.
            let _sent = kill_process_group(group, Signal::TERM);
            tokio::time::sleep(GRACE).await;
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if let Some(group) = self.0 {
            let _sent = kill_process_group(group, Signal::KILL);
        }
    }
}

/// Why a file of keys is not used.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The host's own error.
    #[error("{}", .0.sentence())]
    Host(#[from] HostError),
    /// Others may read or write it.
    #[error("`{path}` can be read or written by others (mode {mode:o}); run `chmod 600 {path}`")]
    Mode {
        /// The file.
        path: String,
        /// Its permission bits.
        mode: u32,
    },
    /// It belongs to someone else.
    #[error("`{path}` belongs to user {uid}; remove it, or make it your own")]
    Owner {
        /// The file.
        path: String,
        /// Whom it belongs to.
        uid: u32,
    },
    /// It is too long.
    #[error("`{path}` is longer than {STORE_LIMIT} bytes; it holds no keys of kli's")]
    TooLong {
        /// The file.
        path: String,
    },
    /// Another process has the lock.
    #[error("another process has been changing `{path}` for {} s; try again", LOCK_WAIT.as_secs())]
    Busy {
        /// The directory.
        path: String,
    },
}

/// Reads a file of keys; `None` when there is none. A final link is not followed.
///
/// # Errors
/// For what is no regular file of this user's alone.
pub fn read_store(path: &Path) -> Result<Option<Zeroizing<Vec<u8>>>, StoreError> {
    let file = match state::open_read(path) {
        Ok(file) => file,
        Err(error) if error.errno() == Some(libc::ENOENT) => return Ok(None),
        Err(error) if error.errno() == Some(libc::ELOOP) => {
            let (kind, wanted) = ("a symbolic link", "a regular file");
            return Err(HostError::Kind { path: path.to_owned(), kind, wanted }.into());
        }
        Err(error) => return Err(error.into()),
    };
    let fail = |source| HostError::io("read", path, source);
    let metadata = file.metadata().map_err(fail)?;
    let shown = path.display().to_string();
    let own = rustix::process::geteuid().as_raw();
    if metadata.uid() != own {
        return Err(StoreError::Owner { path: shown, uid: metadata.uid() });
    }
    let mode = metadata.mode() & 0o7777;
    if mode & 0o077 != 0 {
        return Err(StoreError::Mode { path: shown, mode });
    }
    if metadata.len() > STORE_LIMIT {
        return Err(StoreError::TooLong { path: shown });
    }
    let room = usize::try_from(metadata.len()).unwrap_or_default() + 1;
    let mut bytes = Zeroizing::new(Vec::with_capacity(room));
    file.take(STORE_LIMIT).read_to_end(&mut bytes).map_err(fail)?;
    Ok(Some(bytes))
}

/// Changes a file of keys: takes the lock, reads it, lets `change` make the new content of the old
/// (`None` = there is none; an error leaves all as it is), and puts it in its place, mode 0600. What
/// `change` returns besides is handed on. The directory is made when it is missing.
///
/// # Errors
/// As [`read_store`], what `change` says, and the system's refusals; then the old file stands.
pub fn change_store<T, E: From<StoreError>>(
    directory: &Path,
    path: &Path,
    change: impl FnOnce(Option<&[u8]>) -> Result<(Zeroizing<Vec<u8>>, T), E>,
) -> Result<T, E> {
    let host = |error: HostError| E::from(StoreError::from(error));
    let grant = Grant::own_state(directory);
    state::create_dir(&grant, directory).map_err(host)?;
    let _lock = state::lock(directory, LOCK_WAIT).map_err(|error| match error {
        HostError::Locked { .. } => E::from(StoreError::Busy { path: path.display().to_string() }),
        other => host(other),
    })?;
    let old = read_store(path)?;
    let (new, told) = change(old.as_ref().map(|bytes| bytes.as_slice()))?;
    state::write_atomic(&grant, path, &new).map_err(host)?;
    Ok(told)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn run(line: &str, timeout: Duration) -> Result<Zeroizing<Vec<u8>>, KeyCommandError> {
        let words = ["bash", "-c", line].map(str::to_owned);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(key_command(&words, Path::new("bash"), Path::new("/"), timeout))
    }

    #[test]
    fn a_command_that_takes_too_long_is_ended_with_all_that_it_started() {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("pids");
        // One that a TERM does not impress, and one that it started.
        let line = format!(
            "trap '' TERM; sleep 53.5 & echo $! $$ >'{0}.new'; mv '{0}.new' '{0}'; echo sk-1; wait",
            file.display()
        );
        let start = Instant::now();
        let error = run(&line, Duration::from_secs(2)).unwrap_err().to_string();
        assert_eq!(error, "took longer than 2 s and was ended");
        assert!(start.elapsed() < Duration::from_secs(20));
        let pids = fs::read_to_string(&file).unwrap();
        assert_eq!(pids.split_whitespace().count(), 2, "control: both were there");
        for pid in pids.split_whitespace() {
            let end = Instant::now() + Duration::from_secs(10);
            // A zombie whose parent has not looked yet runs no more.
            while fs::read_to_string(format!("/proc/{pid}/stat"))
                .is_ok_and(|stat| !stat.contains(") Z "))
            {
                assert!(Instant::now() < end, "{pid} still runs");
                std::thread::sleep(Duration::from_millis(10));
            }
        }
        assert_eq!(run("echo sk-1", Duration::from_mins(1)).unwrap().as_slice(), b"sk-1\n");
    }

    #[test]
    fn what_is_no_object_of_names_and_values_is_refused_without_being_shown() {
        let handed = parse_handed(br#"{"A_KEY": "secret-value", "B": "b"}"#).unwrap();
        assert_eq!((handed.get("A_KEY"), handed.get("C")), (Some("secret-value"), None));
        assert_eq!(format!("{handed:?}"), "{\"A_KEY\", \"B\"}");
        for (text, part) in [
            ("", "line 1, column 0"),
            ("\"secret-value\"", "no JSON object of strings"),
            ("[\"secret-value\"]", "no JSON object of strings"),
            ("{\"A\": {\"secret-value\": 1}}", "no JSON object of strings"),
            ("{\"A\": \"secret-value\"} x", "no JSON object of strings"),
            ("{\"A\": \"secret-value\"", "no JSON object of strings"),
            ("{\"secret-value\": \"A\"}", "a name that is none of a variable"),
            ("{\"\": \"secret-value\"}", "a name that is none of a variable"),
            ("{\"1A\": \"secret-value\"}", "a name that is none of a variable"),
            ("{\"A\": \" \\n\"}", "an empty value for `A`"),
        ] {
            let error = parse_handed(text.as_bytes()).unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
            assert!(!error.contains("secret-value"), "{error}");
        }
    }
}
