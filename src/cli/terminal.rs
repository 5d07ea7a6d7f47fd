//! The one owner of the standard streams: what is written passes through here, free of control
//! characters that a file, a model or a server could have put into it.

use std::{
    borrow::Cow,
    cell::RefCell,
    io::{self, IsTerminal as _, Read as _, Write as _},
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
};
use tokio::{io::Interest, net::unix::pipe, sync::watch};

use crate::{agent::Backlog, authority::misleads, host::state};

/// The most bytes of a prompt that are read from standard input.
const PROMPT_LIMIT: u64 = 10 * 1024 * 1024;

/// Whether something that standard output should carry could not be written.
static LOST: AtomicBool = AtomicBool::new(false);

/// The real standard output, once [`keep_output`] has put it out of the reach of everything else.
static KEPT: OnceLock<OwnedFd> = OnceLock::new();

/// Keeps standard output on a private descriptor, which no child inherits, and lets descriptor 1 lead
/// nowhere: what foreign code inside the process prints (the engine of eval does when its stack
/// overflows) cannot get between the lines of a result. Nothing may have been written half.
///
/// # Errors
/// The system's refusal; then nothing has changed.
pub(crate) fn keep_output() -> io::Result<()> {
    let nowhere = state::open_write_nowhere()?;
    let own = io::stdout().as_fd().try_clone_to_owned()?;
    if KEPT.set(own).is_ok() {
        rustix::stdio::dup2_stdout(&nowhere)?;
    }
    Ok(())
}

/// Returns the stream that results go to.
fn output() -> BorrowedFd<'static> {
    match KEPT.get() {
        Some(kept) => kept.as_fd(),
        None => rustix::stdio::stdout(),
    }
}

/// Writes to standard output and flushes: as it is to a file or a program, free of control
/// characters to a terminal. A closed pipe is no error, since nobody wants the rest; any other
/// failure (a full disk) is said and remembered, see [`is_lost`].
pub(crate) fn out(text: &str) {
    if let Err(error) = write_out(text) {
        lost(&error);
    }
}

thread_local! {
    /// What this thread would have written, while [`captured`] keeps it.
    static CAPTURED: RefCell<Option<(String, String)>> = const { RefCell::new(None) };
}

/// Runs a command on this thread and returns, besides what it returns, what it would have written to
/// standard output and to standard error.
pub(crate) fn captured<T>(command: impl FnOnce() -> T) -> (T, String, String) {
    CAPTURED.set(Some(Default::default()));
    let result = command();
    let (out, err) = CAPTURED.take().unwrap_or_default();
    (result, out, err)
}

/// Keeps a text if this thread's are kept: of standard output, or of standard error.
fn capture(text: &str, is_out: bool) -> bool {
    CAPTURED.with_borrow_mut(|kept| {
        let Some((out, err)) = kept else { return false };
        if is_out {
            out.push_str(text);
        } else {
            err.push_str(text);
        }
        true
    })
}

fn write_out(text: &str) -> io::Result<()> {
    if capture(text, true) {
        return Ok(());
    }
    // One lock: lines of two threads do not mix.
    let mut stdout = io::stdout().lock();
    let text = if output().is_terminal() { Cow::Owned(scrub(text)) } else { Cow::Borrowed(text) };
    stdout.flush()?;
    write_whole(output(), text.as_bytes())
}

/// Writes all of it. Whoever shares the stream may have made it one that does not block (some runtimes
/// do so with every pipe); then it is waited for all the same.
fn write_whole(stream: impl AsFd, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match rustix::io::write(&stream, bytes) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => bytes = bytes.get(written..).unwrap_or_default(),
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => {
                wait_for(&stream, PollFlags::OUT, None)?;
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Writes to standard error, which may be a pipe that nobody reads: talk is left out then, since it
/// must not hold up a run, its signals and its time limits.
fn talk(text: &str) -> io::Result<()> {
    /// What a pipe that is ready takes at once: `PIPE_BUF`, see pipe(7).
    const AT_ONCE: usize = 4096;
    const PATIENCE: Duration = Duration::from_secs(1);
    static STUCK: AtomicBool = AtomicBool::new(false);
    if capture(text, false) {
        return Ok(());
    }
    // One lock: lines of two threads do not mix.
    let stderr = io::stderr().lock();
    for piece in text.as_bytes().chunks(AT_ONCE) {
        let patience = if STUCK.load(Ordering::Relaxed) { Duration::ZERO } else { PATIENCE };
        let is_ready = wait_for(&stderr, PollFlags::OUT, Some(patience))?;
        STUCK.store(!is_ready, Ordering::Relaxed);
        if !is_ready {
            return Err(io::ErrorKind::TimedOut.into());
        }
        write_whole(&stderr, piece)?;
    }
    Ok(())
}

/// Waits until a stream can be read or written; false when it takes longer than it may.
fn wait_for(stream: impl AsFd, what: PollFlags, most: Option<Duration>) -> io::Result<bool> {
    let most = most.and_then(|most| Timespec::try_from(most).ok());
    match poll(&mut [PollFd::new(&stream, what)], most.as_ref()) {
        Ok(ready) => Ok(ready > 0),
        // A signal: whoever may wait goes on, anybody else has something better to do.
        Err(Errno::INTR) => Ok(most.is_none()),
        Err(error) => Err(error.into()),
    }
}

fn lost(error: &io::Error) {
    if error.kind() != io::ErrorKind::BrokenPipe && !LOST.swap(true, Ordering::Relaxed) {
        note(&format!("kli: the result cannot be written to standard output: {error}"));
    }
}

/// Says whether a part of the result was lost on its way to standard output, so that a caller must
/// not take the run for done.
pub(crate) fn is_lost() -> bool {
    LOST.load(Ordering::Relaxed)
}

/// Writes a line to standard error.
pub(crate) fn note(line: &str) {
    let mut line = scrub(line);
    line.push('\n');
    drop(talk(&line));
}

/// Text on its way to where someone may read slowly or not at all. A thread of its own writes it,
/// piece by piece in order, so that a reader who sleeps holds up neither signals nor time limits.
/// What waits is counted in a [`Backlog`].
#[derive(Debug)]
pub(crate) struct Lane {
    queue: Option<mpsc::Sender<String>>,
    pushed: u64,
    progress: watch::Receiver<Progress>,
    backlog: Arc<Backlog>,
    thread: Option<thread::JoinHandle<()>>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Progress {
    written: u64,
    broken: bool,
}

impl Lane {
    /// Opens a lane to standard output. What cannot be written is said and remembered as [`out`]
    /// does.
    ///
    /// # Errors
    /// When the system gives no thread.
    pub(crate) fn stdout(backlog: Arc<Backlog>) -> io::Result<Self> {
        Self::new(backlog, |text| write_out(text).inspect_err(lost))
    }

    /// Opens a lane with a writer. After its first failure it is called no more, and what comes is
    /// dropped: the writer is who says so.
    ///
    /// # Errors
    /// When the system gives no thread.
    pub(crate) fn new(
        backlog: Arc<Backlog>,
        mut write: impl FnMut(&str) -> io::Result<()> + Send + 'static,
    ) -> io::Result<Self> {
        let (queue, texts) = mpsc::channel::<String>();
        let (progress, seen) = watch::channel(Progress::default());
        let counted = Arc::clone(&backlog);
        let thread = thread::Builder::new().name("kli-output".to_owned()).spawn(move || {
            for text in texts {
                let broken = progress.borrow().broken || write(&text).is_err();
                counted.take(text.len());
                progress.send_modify(|progress| {
                    progress.written += 1;
                    progress.broken = broken;
                });
            }
        })?;
        let (queue, thread) = (Some(queue), Some(thread));
        Ok(Self { queue, pushed: 0, progress: seen, backlog, thread })
    }

    /// Puts a piece at the end of the queue; never waits.
    pub(crate) fn push(&mut self, text: String) {
        self.backlog.add(text.len());
        self.pushed += 1;
        if let Some(queue) = &self.queue {
            // The thread outlives the queue.
            drop(queue.send(text));
        }
    }

    /// Waits until everything is written, or given up.
    pub(crate) async fn drained(&self) {
        let mut progress = self.progress.clone();
        drop(progress.wait_for(|progress| progress.written >= self.pushed).await);
    }

    /// Waits until something could not be written; pends when that never comes.
    pub(crate) fn broken(&self) -> impl Future<Output = ()> + use<> {
        let mut progress = self.progress.clone();
        async move {
            if progress.wait_for(|progress| progress.broken).await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }
}

impl Drop for Lane {
    /// Gives what still waits a moment, also when a fault of kli's own ends the run.
    fn drop(&mut self) {
        const LAST: Duration = Duration::from_millis(500);
        self.queue = None;
        let start = Instant::now();
        let Some(thread) = self.thread.take() else { return };
        while !thread.is_finished() && start.elapsed() < LAST {
            thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Waits until nobody reads standard output any more; pends when it is no pipe, or when that never
/// comes. A write says so too, but a run may have nothing to write for long.
pub(crate) async fn reader_is_gone() {
    let own = output().try_clone_to_owned();
    let watched = own.and_then(pipe::Sender::from_owned_fd_unchecked);
    // Unchecked, as a checked one would no longer block, also for those who share it. Files cannot be
    // watched (epoll_ctl(2): EPERM), and have no reader.
    if let Ok(watched) = watched
        && watched.ready(Interest::ERROR).await.is_ok()
    {
        return;
    }
    std::future::pending::<()>().await;
}

/// Writes a question to standard error, without a line break.
pub(crate) fn ask(question: &str) {
    drop(talk(&scrub(question)));
}

/// Says whether standard input is a terminal.
pub(crate) fn input_is_terminal() -> bool {
    io::stdin().is_terminal()
}

/// Says whether standard output is a terminal.
pub(crate) fn output_is_terminal() -> bool {
    output().is_terminal()
}

/// Returns the terminal that standard input and output are, as a descriptor of its own: that of
/// standard output, when it can be read as well, since both are the same terminal as a rule.
///
/// # Errors
/// When the system gives no descriptor.
pub(crate) fn both() -> io::Result<OwnedFd> {
    let same = rustix::termios::ttyname(io::stdin(), Vec::new()).ok()
        == rustix::termios::ttyname(output(), Vec::new()).ok();
    let reads = rustix::fs::fcntl_getfl(output())
        .is_ok_and(|flags| flags & rustix::fs::OFlags::RWMODE == rustix::fs::OFlags::RDWR);
    if same && reads {
        output().try_clone_to_owned()
    } else {
        io::stdin().as_fd().try_clone_to_owned()
    }
}

/// Reads a prompt from standard input to its end, at most its limit and one byte more.
///
/// # Errors
/// A sentence, for input that cannot be read, is no text, or is longer than the limit.
pub(crate) fn read_prompt() -> Result<String, String> {
    let mut bytes = Vec::new();
    let mut stdin = io::stdin().lock().take(PROMPT_LIMIT + 1);
    loop {
        let read = match stdin.read_to_end(&mut bytes) {
            // As for what is written: it may have been made not to block.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                wait_for(io::stdin(), PollFlags::IN, None).map(drop)
            }
            Err(error) => Err(error),
            Ok(_) => break,
        };
        read.map_err(|error| format!("cannot read the prompt from standard input: {error}"))?;
    }
    if u64::try_from(bytes.len()).unwrap_or(u64::MAX) > PROMPT_LIMIT {
        return Err(format!(
            "the prompt on standard input is longer than {} MiB; put it into a file and name the file",
            PROMPT_LIMIT / 1024 / 1024
        ));
    }
    String::from_utf8(bytes).map_err(|error| {
        format!(
            "the prompt on standard input is not UTF-8: {error}; convert it, for example with iconv"
        )
    })
}

/// Returns a text as one line: line breaks and other control characters are escaped, and those that
/// hide others or turn them round, so that what a model or a project wrote cannot pass for anything
/// else.
pub(crate) fn one_line(text: &str) -> String {
    text.chars().fold(String::with_capacity(text.len()), |mut shown, c| {
        if misleads(c) {
            shown.extend(c.escape_default());
        } else {
            shown.push(c);
        }
        shown
    })
}

/// Replaces control characters but the line break and the tab, so that foreign text cannot drive
/// the terminal.
pub(crate) fn scrub(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_control() && c != '\n' && c != '\t' { '\u{fffd}' } else { c })
        .collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[test]
    fn escape_sequences_do_not_survive() {
        assert_eq!(scrub("a\u{1b}[31mb\r\n\tc\u{9b}x"), "a\u{fffd}[31mb\u{fffd}\n\tc\u{fffd}x");
    }

    #[test]
    fn a_lane_keeps_the_order_and_gives_up_after_a_failure() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        for (fails_at, wanted) in [(9, vec!["0", "1", "2", "3"]), (2, vec!["0", "1"])] {
            let backlog = Arc::new(Backlog::default());
            let written = Arc::new(Mutex::new(Vec::new()));
            let kept = Arc::clone(&written);
            let mut lane = Lane::new(Arc::clone(&backlog), move |text| {
                let mut kept = kept.lock().unwrap();
                if kept.len() == fails_at {
                    return Err(io::ErrorKind::BrokenPipe.into());
                }
                kept.push(text.to_owned());
                Ok(())
            })
            .unwrap();
            for number in 0..4 {
                lane.push(number.to_string());
            }
            runtime.block_on(lane.drained());
            assert_eq!(*written.lock().unwrap(), wanted);
            let broken = runtime.block_on(async {
                tokio::time::timeout(Duration::from_millis(20), lane.broken()).await.is_ok()
            });
            assert_eq!(broken, fails_at == 2);
        }
    }
}
