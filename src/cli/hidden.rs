//! One line from standard input that nobody should see: from a terminal without echo, with the
//! terminal put right again however it ends.

use std::io::{self, Read as _};

use rustix::termios::{
    LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcsetattr,
};
use zeroize::Zeroizing;

use super::{error::CliError, signals::Signals, terminal};

/// The most bytes that are read.
const LIMIT: u64 = 64 * 1024;

/// What came of asking.
pub(super) enum Line {
    /// All that standard input held, or the line that was typed.
    Text(Zeroizing<Vec<u8>>),
    /// A signal came first; the exit code that it asks for.
    Interrupted(u8),
}

/// Reads what stands on standard input, to its end; from a terminal one line, after `question`.
///
/// # Errors
/// When it cannot be read, or is longer than 64 KiB.
pub(super) fn ask(question: &str) -> Result<Line, CliError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| CliError::internal(format!("cannot read the key: {error}")))?;
    let line = runtime.block_on(async {
        // Before the echo goes off: from here on a signal ends nothing by itself.
        let mut signals = Signals::listen();
        let silent = if terminal::input_is_terminal() { Some(Silent::begin()?) } else { None };
        if silent.is_some() {
            terminal::ask(question);
        }
        let whole = silent.is_none();
        tokio::select! {
            biased;
            code = signals.next() => {
                if silent.is_some() {
                    terminal::ask("\n");
                }
                Ok(Line::Interrupted(code))
            }
            read = tokio::task::spawn_blocking(move || read(whole)) => match read {
                Ok(Ok(bytes)) => Ok(Line::Text(bytes)),
                Ok(Err(error)) => {
                    Err(CliError::config(format!("cannot read the key from standard input: {error}")))
                }
                Err(error) => Err(CliError::internal(format!("cannot read the key: {error}"))),
            },
        }
    });
    // A read that still waits must not hold up the end.
    runtime.shutdown_background();
    line
}

fn read(whole: bool) -> io::Result<Zeroizing<Vec<u8>>> {
    let mut bytes = Zeroizing::new(Vec::with_capacity(4096));
    let mut input = io::stdin().lock().take(LIMIT + 1);
    if whole {
        input.read_to_end(&mut bytes)?;
    } else {
        io::BufRead::read_until(&mut input, b'\n', &mut bytes)?;
    }
    if bytes.len() as u64 > LIMIT {
        return Err(io::Error::other("it is longer than 64 KiB, which is no key"));
    }
    Ok(bytes)
}

/// A terminal without echo; its drop puts back what was.
struct Silent(Termios);

impl Silent {
    fn begin() -> Result<Self, CliError> {
        let fail = |error: rustix::io::Errno| {
            CliError::config(format!("cannot switch off the terminal's echo: {error}"))
                .hint("pipe the key in")
        };
        let before = tcgetattr(io::stdin()).map_err(fail)?;
        let mut silent = before.clone();
        silent.local_modes.remove(LocalModes::ECHO);
        silent.local_modes.insert(LocalModes::ECHONL | LocalModes::ICANON);
        // A stop would leave the terminal to the shell as it is now.
        silent.special_codes[SpecialCodeIndex::VSUSP] = 0;
        tcsetattr(io::stdin(), OptionalActions::Flush, &silent).map_err(fail)?;
        Ok(Self(before))
    }
}

impl Drop for Silent {
    fn drop(&mut self) {
        // A terminal that is gone needs nothing put right.
        let _restored = tcsetattr(io::stdin(), OptionalActions::Now, &self.0);
    }
}
