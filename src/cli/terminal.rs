//! The one owner of the standard streams: what is written passes through here, free of control
//! characters that a file, a model or a server could have put into it.

use std::{
    borrow::Cow,
    io::{self, IsTerminal as _, Read as _, Write as _},
    sync::atomic::{AtomicBool, Ordering},
};

/// The most bytes of a prompt that are read from standard input.
const PROMPT_LIMIT: u64 = 10 * 1024 * 1024;

/// Whether something that standard output should carry could not be written.
static LOST: AtomicBool = AtomicBool::new(false);

/// Writes to standard output and flushes: as it is to a file or a program, free of control
/// characters to a terminal. A closed pipe is no error, since nobody wants the rest; any other
/// failure (a full disk) is said and remembered, see [`is_lost`].
pub(crate) fn out(text: &str) {
    let mut stdout = io::stdout().lock();
    let text = if stdout.is_terminal() { Cow::Owned(scrub(text)) } else { Cow::Borrowed(text) };
    let written = stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush());
    if let Err(error) = written
        && error.kind() != io::ErrorKind::BrokenPipe
    {
        LOST.store(true, Ordering::Relaxed);
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
    let mut stderr = io::stderr().lock();
    drop(stderr.write_all(scrub(line).as_bytes()).and_then(|()| stderr.write_all(b"\n")));
}

/// Writes a question to standard error, without a line break.
pub(crate) fn ask(question: &str) {
    let mut stderr = io::stderr().lock();
    drop(stderr.write_all(scrub(question).as_bytes()).and_then(|()| stderr.flush()));
}

/// Says whether standard input is a terminal.
pub(crate) fn input_is_terminal() -> bool {
    io::stdin().is_terminal()
}

/// Reads a prompt from standard input to its end.
///
/// # Errors
/// A sentence, for input that cannot be read, is no text, or is longer than the limit.
pub(crate) fn read_prompt() -> Result<String, String> {
    let mut bytes = Vec::new();
    io::stdin()
        .lock()
        .take(PROMPT_LIMIT + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| format!("cannot read the prompt from standard input: {error}"))?;
    if u64::try_from(bytes.len()).unwrap_or(u64::MAX) > PROMPT_LIMIT {
        return Err(format!(
            "the prompt on standard input is longer than {} MiB; put it into a file and name the file",
            PROMPT_LIMIT / 1024 / 1024
        ));
    }
    String::from_utf8(bytes)
        .map_err(|error| format!("the prompt on standard input is not UTF-8: {error}"))
}

/// Returns a text as one line: line breaks and other control characters are escaped, so that what a
/// model wrote cannot pass for a line of kli's.
pub(crate) fn one_line(text: &str) -> String {
    text.chars().fold(String::with_capacity(text.len()), |mut shown, c| {
        if c.is_control() {
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
    use super::*;

    #[test]
    fn escape_sequences_do_not_survive() {
        assert_eq!(scrub("a\u{1b}[31mb\r\n\tc\u{9b}x"), "a\u{fffd}[31mb\u{fffd}\n\tc\u{fffd}x");
    }
}
