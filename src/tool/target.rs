//! The file that a call is about: its spelling, the physical path that is asked for and acted on,
//! and how a refusal of the system is told.

use std::{
    ffi::OsStr,
    fmt::Write as _,
    fs::File,
    io::{self, Read},
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures_util::future::BoxFuture;
use rustix::fs::FileType;
use tokio::time::timeout;

use super::{Context, Effect, Invocation, Outcome, Sink, arguments::Arguments};
use crate::{
    authority::{Atom, Grant, Request},
    host::{
        HostError,
        files::{self, Opened, Replaced},
    },
};

/// The file that a call is about.
#[derive(Clone, Debug)]
pub(super) struct Target {
    /// As the model spelled it, control characters escaped.
    pub(super) name: String,
    /// Where it is.
    pub(super) path: PathBuf,
    pub(super) context: Arc<Context>,
}

impl Target {
    /// Reads the argument `path`.
    pub(super) fn of(arguments: Arguments<'_>, context: &Arc<Context>) -> Result<Self, String> {
        Self::spelled(&arguments.text("path")?, context)
    }

    /// Resolves a path as the model spelled it. A name that results show with escaped bytes
    /// (`caf\xe9`) is taken too, where nothing has the very name.
    pub(super) fn spelled(spelled: &str, context: &Arc<Context>) -> Result<Self, String> {
        let resolve =
            |path: &Path| files::resolve(path, &context.workspace, context.home.as_deref());
        let mut path = resolve(spelled.as_ref()).map_err(|error| error.sentence())?;
        if let Some(bytes) = unescaped(spelled)
            && !files::is_there(&path)
            && let Ok(meant) = resolve(OsStr::from_bytes(&bytes).as_ref())
            && files::is_there(&meant)
        {
            path = meant;
        }
        Ok(Self { name: printable(spelled), path, context: Arc::clone(context) })
    }

    /// Returns the workspace itself.
    pub(super) fn workspace(context: &Arc<Context>) -> Self {
        let path = context.workspace.clone();
        Self { name: shown(&path), path, context: Arc::clone(context) }
    }

    /// Refuses a spelling that can only mean a directory.
    pub(super) fn not_a_directory(self, arguments: Arguments<'_>) -> Result<Self, String> {
        if arguments.text("path")?.ends_with('/') {
            return Err(format!(
                "`{}` ends with `/`, which names a directory; name a file",
                self.name
            ));
        }
        Ok(self)
    }

    /// Changes the file under the call's first grant, which is the one to change it.
    pub(super) fn change(
        &self,
        grants: &[Grant],
        act: impl FnOnce(&Grant) -> Result<Outcome, HostError>,
    ) -> Outcome {
        match grants.first() {
            Some(grant) => act(grant).unwrap_or_else(|error| self.refused(&error)),
            None => Outcome::error("the call was not granted; nothing was written"),
        }
    }

    /// Says whether one of the grants is for reading the file.
    pub(super) fn is_readable(&self, grants: &[Grant]) -> bool {
        grants.iter().any(|grant| grant.permits_read(&self.path))
    }

    /// Notes the directories that a write would make.
    pub(super) fn note_new_directories(&self, notes: &mut Vec<String>) {
        let parents = self.path.ancestors().skip(1);
        if let Some(first) = parents.take_while(|parent| !files::is_there(parent)).last() {
            notes.push(format!("makes the directory `{}`", shown(first)));
        }
    }

    /// Returns the outcome for a refusal of the system.
    pub(super) fn refused(&self, error: &HostError) -> Outcome {
        let mut text = error.sentence();
        if self.context.host.is_jailed() {
            match error.errno() {
                // A mask is nobody's to write: which of the two comes first is the kernel's choice.
                Some(libc::EROFS | libc::EACCES) if self.is_masked() => text.push_str(MASKED),
                Some(libc::EROFS | libc::EBUSY) => text.push_str(READ_ONLY),
                _ => {}
            }
        }
        Outcome::error(text)
    }

    /// Says whether the jail hides what stands there: it is empty and a mount of its own.
    fn is_masked(&self) -> bool {
        match files::open(&self.path) {
            Ok(Opened::File(file, stamp)) => stamp.size == 0 && files::is_mount_root(&file),
            Ok(Opened::Directory(handle)) => {
                files::is_mount_root(&handle)
                    && files::list(&handle, &self.path, 1).is_ok_and(|(found, _)| found.is_empty())
            }
            Err(_) => false,
        }
    }

    /// Returns the line to add to what was read as empty, when the jail hides it.
    pub(super) fn note_when_masked(&self) -> &'static str {
        if self.context.host.is_jailed() && self.is_masked() { MASKED } else { "" }
    }
}

/// Which of the rules it is cannot be seen from inside either.
const READ_ONLY: &str = "\nsandbox: this place is read-only inside; `git` opens git's hooks and config, \
     `protect` lists what else is kept in the workspace, and elsewhere naming it in `writablePaths` \
     would change that";
/// What a mask lies on cannot be seen from inside, so both reasons are named.
const MASKED: &str = "\nsandbox: this path is hidden inside: `denyRead` hides it (taking it out of \
     that list would change that), or it is a socket or named pipe of the host, or a directory of \
     such (`allowSockets` keeps the sockets that it names)";

/// Returns a text without control characters, so that a name cannot fake a line: their bytes are
/// shown as `\xHH`.
pub(super) fn printable(text: &str) -> String {
    text.chars().fold(String::with_capacity(text.len()), |mut shown, c| {
        if c.is_control() {
            escape(&mut shown, c.encode_utf8(&mut [0; 4]).as_bytes());
        } else {
            shown.push(c);
        }
        shown
    })
}

/// Returns a path as text that stays on its line: control characters and bytes that are no UTF-8 as
/// `\xHH`, a spelling that the tools take back.
pub(super) fn shown(path: &Path) -> String {
    let mut text = String::new();
    for chunk in path.as_os_str().as_bytes().utf8_chunks() {
        text.push_str(&printable(chunk.valid()));
        escape(&mut text, chunk.invalid());
    }
    text
}

fn escape(text: &mut String, bytes: &[u8]) {
    for byte in bytes {
        // Writing to a string cannot fail.
        let _ = write!(text, "\\x{byte:02x}");
    }
}

/// Returns the bytes that a spelling with `\xHH` stands for; nothing when it has none.
fn unescaped(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    let mut is_any = false;
    while let Some(at) = rest.find("\\x") {
        let (before, after) = rest.split_at(at);
        bytes.extend_from_slice(before.as_bytes());
        let byte = after
            .get(2..4)
            .filter(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()))
            .and_then(|digits| u8::from_str_radix(digits, 16).ok());
        if let Some(byte) = byte {
            bytes.push(byte);
            is_any = true;
            rest = after.get(4..).unwrap_or_default();
        } else {
            bytes.extend_from_slice(b"\\x");
            rest = after.get(2..).unwrap_or_default();
        }
    }
    bytes.extend_from_slice(rest.as_bytes());
    is_any.then_some(bytes)
}

/// Returns the mark that lists put behind a name: `/` a directory, `@` a link, `|` a FIFO, `=` a
/// socket, `%` a device.
pub(super) fn mark(kind: FileType) -> &'static str {
    match kind {
        FileType::Directory => "/",
        FileType::Symlink => "@",
        FileType::Fifo => "|",
        FileType::Socket => "=",
        FileType::CharacterDevice | FileType::BlockDevice => "%",
        FileType::RegularFile | FileType::Unknown => "",
    }
}

/// Returns what a person should know of a file that was replaced, each after a semicolon.
pub(super) fn notes_on(replaced: &Replaced) -> String {
    let mut notes = String::new();
    if replaced.in_place {
        notes.push_str("; written in place, since its directory takes no other file");
    } else if replaced.other_names > 0 {
        let s = if replaced.other_names == 1 { "" } else { "s" };
        // Writing to a string cannot fail.
        let _ = write!(
            notes,
            "; {} other name{s} (hard link{s}) of the file keep{} the old content",
            replaced.other_names,
            if s.is_empty() { "s" } else { "" }
        );
    }
    notes
}

/// Runs what touches the disk where it may wait. The flag is set once nobody waits for the outcome
/// any more: then the work must end soon.
pub(super) fn blocking(
    work: impl FnOnce(&AtomicBool) -> Outcome + Send + 'static,
) -> BoxFuture<'static, Outcome> {
    let stop = Arc::new(AtomicBool::new(false));
    let on_drop = StopOnDrop(Arc::clone(&stop));
    Box::pin(async move {
        let _stop = on_drop;
        tokio::task::spawn_blocking(move || work(&stop))
            .await
            .unwrap_or_else(|error| Outcome::error(format!("the tool broke off: {error}")))
    })
}

/// How long a call may look through files.
pub(super) const LIMIT: Duration = Duration::from_mins(1);

/// How long work that was told to stop is still waited for.
const GRACE: Duration = Duration::from_secs(2);

/// Runs work as [`blocking`] does, at most `limit` long. Then it is told to stop, and its outcome is
/// what it came to by then; work that does not stop is left to itself.
pub(super) fn blocking_within(
    limit: Duration,
    work: impl FnOnce(&AtomicBool) -> Outcome + Send + 'static,
) -> BoxFuture<'static, Outcome> {
    let stop = Arc::new(AtomicBool::new(false));
    let on_drop = StopOnDrop(Arc::clone(&stop));
    Box::pin(async move {
        let mut work = tokio::task::spawn_blocking(move || work(&stop));
        let done = match timeout(limit, &mut work).await {
            Ok(done) => done,
            Err(_late) => {
                drop(on_drop);
                match timeout(GRACE, work).await {
                    Ok(done) => done,
                    Err(_late) => {
                        return Outcome::error(
                            "the call took too long and did not stop when it was told to; narrow what \
                             it looks through, or give a simpler pattern",
                        );
                    }
                }
            }
        };
        done.unwrap_or_else(|error| Outcome::error(format!("the tool broke off: {error}")))
    })
}

/// A call that only looks at what stands at its target, or below it.
pub(super) trait Look: Send + 'static {
    /// Returns what it is about.
    fn target(&self) -> &Target;

    /// Looks, until `stop` is set.
    fn look(&self, stop: &AtomicBool) -> Result<Outcome, HostError>;
}

impl<T: Look> Invocation for T {
    fn requests(&self) -> Vec<Request> {
        vec![Request::path(Atom::FileRead, &self.target().path)]
    }

    fn effect(&self) -> Effect {
        Effect::Read
    }

    fn run(self: Box<Self>, _grants: Vec<Grant>, _sink: Sink) -> BoxFuture<'static, Outcome> {
        blocking_within(LIMIT, move |stop| {
            self.look(stop).unwrap_or_else(|error| self.target().refused(&error))
        })
    }
}

struct StopOnDrop(Arc<AtomicBool>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A file whose reading can be stopped between two pieces.
pub(super) struct Stoppable<'a> {
    pub(super) file: File,
    pub(super) stop: &'a AtomicBool,
}

impl Read for Stoppable<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.stop.load(Ordering::Relaxed) {
            // Not `Interrupted`, which readers try again.
            return Err(io::Error::from(io::ErrorKind::TimedOut));
        }
        self.file.read(buffer)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_shown_name_is_one_line_and_can_be_taken_back() {
        let path = Path::new(OsStr::from_bytes(b"caf\xe9/a\nb\x1b\xc2\x85 \xe6\xbc\xa2"));
        assert_eq!(shown(path), r"caf\xe9/a\x0ab\x1b\xc2\x85 漢");
        assert_eq!(unescaped(&shown(path)).as_deref(), Some(path.as_os_str().as_bytes()));
        for plain in ["a", "a\\b", "\\x", "\\xg0", "\\x4", "c:\\xé"] {
            assert_eq!(unescaped(plain), None, "{plain}");
        }
    }

    fn within(
        limit: Duration,
        work: impl FnOnce(&AtomicBool) -> Outcome + Send + 'static,
    ) -> Outcome {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let outcome = runtime.block_on(blocking_within(limit, work));
        runtime.shutdown_background();
        outcome
    }

    #[test]
    fn work_that_takes_too_long_is_told_to_stop_and_else_left() {
        let outcome = within(LIMIT, |stop| {
            assert!(!stop.load(Ordering::Relaxed), "control");
            Outcome::ok("done")
        });
        assert_eq!((&*outcome.text, outcome.is_error), ("done", false));
        let outcome = within(Duration::from_millis(5), |stop| {
            while !stop.load(Ordering::Relaxed) {
                std::thread::yield_now();
            }
            Outcome::ok("what it came to")
        });
        assert_eq!(outcome.text, "what it came to");
        let (release, held) = std::sync::mpsc::channel::<()>();
        let outcome = within(Duration::from_millis(5), move |_stop| {
            let _released = held.recv();
            Outcome::ok("too late")
        });
        assert!(outcome.is_error && outcome.text.contains("did not stop"), "{}", outcome.text);
        drop(release);
    }

    proptest! {
        #[test]
        fn any_name_without_a_backslash_comes_back(
            bytes in proptest::collection::vec(any::<u8>().prop_filter("a name", |b| *b != b'\\'), 1..12)
        ) {
            let text = shown(Path::new(OsStr::from_bytes(&bytes)));
            prop_assert!(!text.contains(char::is_control), "{text:?}");
            prop_assert_eq!(unescaped(&text).unwrap_or_else(|| text.into_bytes()), bytes);
        }
    }
}
