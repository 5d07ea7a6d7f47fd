//! What the launcher reads for the inside before it makes any namespace: the values of `envFiles`,
//! and the keys of `secrets`, `secretEnv` and of its own caller, which it hands on in one pipe
//! (law 15). No message shows a part of a value, and no value is in a `Debug` output.

#![expect(clippy::disallowed_methods, reason = "the caller's descriptor is named by a variable")]

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, fcntl_setpipe_size, pipe_with};

use super::plan::{Handed, shown};
use super::{prepare, sys};

/// The variable that names the descriptor with the keys, for the launcher as for kli.
pub(super) const VARIABLE: &str = "KLI_SECRETS_FD";
/// The most bytes of a file that is read, and of all keys together: what a pipe holds (pipe(7)).
pub(super) const LIMIT: usize = 64 * 1024;
/// How long the caller may keep the other end of its pipe open.
const WAIT: Duration = Duration::from_secs(5);

/// Keys by name.
#[derive(Clone, Default)]
pub(super) struct Keys(BTreeMap<String, String>);

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

/// Why what the inside shall be given cannot be had. Nothing was started then (law 11).
#[derive(Debug, thiserror::Error)]
pub enum SecretsError {
    /// A file of `envFiles` or `secrets`.
    #[error("`{key}`: `{name}`: `{}` {because}", shown(path))]
    File {
        /// The key of the specification.
        key: &'static str,
        /// The name of the variable or key.
        name: String,
        /// The physical path.
        path: PathBuf,
        /// Why, with the repair.
        because: String,
    },
    /// The caller's pipe.
    #[error("the descriptor that `{VARIABLE}` names {0}")]
    Caller(String),
    /// A variable that is no text.
    #[error("`secretEnv`: the value of `{0}` is not UTF-8, and no key: unset it")]
    Value(String),
    /// Too much for a pipe.
    #[error("the keys are larger than {LIMIT} bytes together: hand over fewer or shorter ones")]
    TooLarge,
    /// The pipe.
    #[error("the pipe for the keys cannot be made: {0}")]
    Pipe(#[source] Errno),
}

/// Takes the keys that the caller hands over as kli takes them: one JSON object in the pipe that
/// [`VARIABLE`] names, read to its end and closed. To be called before any descriptor is closed.
///
/// # Errors
/// [`SecretsError::Caller`] for anything but such a pipe.
pub(super) fn from_caller() -> Result<Keys, SecretsError> {
    let Some(number) = std::env::var_os(VARIABLE) else { return Ok(Keys::default()) };
    let wrong = |words: &str| SecretsError::Caller(words.to_owned());
    let pipe = number
        .to_str()
        .and_then(|text| text.parse().ok())
        .and_then(|number| sys::inherited(number).ok())
        .ok_or_else(|| wrong("is not open or not above 2: unset the variable"))?;
    let kind = rustix::fs::fstat(&pipe).map(|stat| FileType::from_raw_mode(stat.st_mode));
    if kind != Ok(FileType::Fifo) {
        return Err(wrong("is no pipe: a file could be read again by others"));
    }
    let bytes = drain(pipe)?;
    let keys: BTreeMap<String, String> = serde_json::from_slice(&bytes).map_err(|error| {
        wrong(&format!(
            "carries no JSON object of strings (line {}, column {})",
            error.line(),
            error.column()
        ))
    })?;
    for (name, value) in &keys {
        // Not repeated: it may be the value in the wrong place.
        if !super::spec::is_key_name(name) {
            return Err(wrong("carries a name that is none of a variable"));
        }
        if value.trim().is_empty() {
            return Err(wrong(&format!("carries an empty value for `{name}`")));
        }
    }
    Ok(Keys(keys))
}

fn drain(pipe: OwnedFd) -> Result<Vec<u8>, SecretsError> {
    let wrong = |words: String| SecretsError::Caller(words);
    let end = Instant::now() + WAIT;
    let mut bytes = vec![0; LIMIT + 1];
    let mut length = 0;
    let mut pipe = File::from(pipe);
    loop {
        let left = Timespec::try_from(end.saturating_duration_since(Instant::now())).ok();
        match poll(&mut [PollFd::new(&pipe, PollFlags::IN)], left.as_ref()) {
            Ok(0) => {
                return Err(wrong(format!(
                    "was not closed by its writer within {} s",
                    WAIT.as_secs()
                )));
            }
            Ok(_) => {}
            Err(Errno::INTR) => continue,
            Err(error) => return Err(wrong(format!("cannot be read: {error}"))),
        }
        let Some(rest) = bytes.get_mut(length..).filter(|rest| !rest.is_empty()) else {
            return Err(wrong(format!("carries more than {LIMIT} bytes")));
        };
        match pipe.read(rest) {
            Ok(0) => break,
            Ok(count) => length += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(wrong(format!("cannot be read: {error}"))),
        }
    }
    bytes.truncate(length);
    Ok(bytes)
}

/// Reads the values of `envFiles`, by name.
///
/// # Errors
/// [`SecretsError::File`] names the variable and the file.
pub(super) fn variables(handed: &Handed) -> Result<Vec<(OsString, OsString)>, SecretsError> {
    handed
        .env_files
        .iter()
        .map(|(name, path)| {
            let value = read(path).map_err(|because| SecretsError::File {
                key: "envFiles",
                name: name.clone(),
                path: path.clone(),
                because,
            })?;
            Ok((name.into(), OsString::from_vec(value)))
        })
        .collect()
}

/// Gathers all keys of a start: what the specification names wins over what the caller's pipe has,
/// and that over the caller's environment.
///
/// # Errors
/// [`SecretsError`] names the key, and the file it should be in.
pub(super) fn keys(
    handed: &Handed,
    environment: &[(OsString, OsString)],
    caller: Keys,
) -> Result<Keys, SecretsError> {
    let mut keys = BTreeMap::new();
    for (name, value) in environment {
        if let Some(name) = handed.secret_env.iter().find(|known| name == known.as_str())
            && !is_blank(value)
        {
            let value = value.to_str().ok_or_else(|| SecretsError::Value(name.clone()))?;
            keys.insert(name.clone(), value.to_owned());
        }
    }
    keys.extend(caller.0);
    for (name, path) in &handed.secrets {
        let refuse = |because: String| SecretsError::File {
            key: "secrets",
            name: name.clone(),
            path: path.clone(),
            because,
        };
        let value = read(path).map_err(refuse)?;
        let value = String::from_utf8(value)
            .map_err(|_| refuse("is not UTF-8, and holds no key: name another file".into()))?;
        if value.trim().is_empty() {
            return Err(refuse("is empty: write the key into it, or take the entry out".into()));
        }
        keys.insert(name.clone(), value);
    }
    Ok(Keys(keys))
}

fn is_blank(value: &OsStr) -> bool {
    value.as_bytes().trim_ascii().is_empty()
}

impl Keys {
    /// Puts them into a pipe whose other end is closed already, so that nobody ever waits;
    /// `None` when there is none.
    ///
    /// # Errors
    /// [`SecretsError::TooLarge`] when they do not fit into a pipe.
    pub(super) fn pipe(&self) -> Result<Option<OwnedFd>, SecretsError> {
        if self.0.is_empty() {
            return Ok(None);
        }
        let text = serde_json::to_vec(&self.0).map_err(|_| SecretsError::TooLarge)?;
        if text.len() > LIMIT {
            return Err(SecretsError::TooLarge);
        }
        let (theirs, ours) =
            pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK).map_err(SecretsError::Pipe)?;
        // A user with many pipes gets small ones (pipe(7)).
        let mut rest = text.as_slice();
        while !rest.is_empty() {
            match rustix::io::write(&ours, rest) {
                Ok(written) => rest = rest.get(written..).unwrap_or_default(),
                Err(Errno::AGAIN) => {
                    fcntl_setpipe_size(&ours, LIMIT).map_err(|_| SecretsError::TooLarge)?;
                    if rustix::io::write(&ours, rest) == Err(Errno::AGAIN) {
                        return Err(SecretsError::TooLarge);
                    }
                }
                Err(Errno::INTR) => {}
                Err(error) => return Err(SecretsError::Pipe(error)),
            }
        }
        // The program reads it as it would read any pipe.
        rustix::fs::fcntl_setfl(theirs.as_fd(), OFlags::empty()).map_err(SecretsError::Pipe)?;
        Ok(Some(theirs))
    }
}

/// Reads a small file on held handles: the plan has resolved the path, and a link that came to be on
/// it since is not followed. Never waits for a pipe. Returns the text without one final line end.
fn read(path: &Path) -> Result<Vec<u8>, String> {
    let told = |error: Errno| match error {
        Errno::LOOP | Errno::NOTDIR => "has changed since it was looked at: start again".to_owned(),
        Errno::ACCESS => "cannot be read by this user: change its mode or its owner".to_owned(),
        Errno::NXIO => "is a socket: name a regular file".to_owned(),
        error => format!("cannot be read: {error}"),
    };
    let name = path.file_name().ok_or("is no file: name one")?;
    let directory = prepare::held(path.parent().unwrap_or(path)).map_err(told)?;
    let flags =
        OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::NOFOLLOW;
    let file = rustix::fs::openat(&directory, name, flags, Mode::empty()).map_err(told)?;
    let file = File::from(file);
    let kind =
        match file.metadata().map_err(|error| format!("cannot be read: {error}"))?.file_type() {
            it if it.is_file() => None,
            it if it.is_dir() => Some("a directory"),
            it if it.is_fifo() => Some("a pipe"),
            it if it.is_socket() => Some("a socket"),
            _ => Some("a device"),
        };
    if let Some(kind) = kind {
        return Err(format!("is {kind}: name a regular file"));
    }
    let mut text = Vec::new();
    let limit = u64::try_from(LIMIT).unwrap_or(u64::MAX).saturating_add(1);
    file.take(limit).read_to_end(&mut text).map_err(|error| format!("cannot be read: {error}"))?;
    if text.len() > LIMIT {
        return Err(format!("is larger than {LIMIT} bytes: name another file"));
    }
    if text.contains(&0) {
        return Err("contains a NUL, which no variable can: name another file".to_owned());
    }
    if text.last() == Some(&b'\n') {
        text.pop();
        if text.last() == Some(&b'\r') {
            text.pop();
        }
    }
    Ok(text)
}

#[cfg(test)]
mod tests;
