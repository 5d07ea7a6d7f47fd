//! The tool bash: one command line, handed to the shell as it is, and what came of it.
//!
//! The script travels as one argument and is never quoted into another one. Where the shell stands
//! at its end comes back on a descriptor of its own, written by a trap that a start-up file
//! (`BASH_ENV`) sets before the script begins: so `exit`, `set -e` and a syntax error do not lose
//! it, and the script's own output cannot be mistaken for it.

use std::{
    ffi::OsString,
    fmt::Write as _,
    os::unix::ffi::OsStringExt,
    path::{Path, PathBuf},
    sync::{Arc, PoisonError},
    time::{Duration, Instant},
};

use futures_util::future::BoxFuture;
use serde_json::{Map, Value, json};

use super::{Context, Effect, Invocation, Outcome, Sink, Tool, arguments::Arguments, cut};
use crate::{
    authority::{Atom, Detail, Grant, Request},
    host::{
        environment::Environment,
        files,
        process::{self, Command, Ended, ExecError, Output, Slip},
    },
};

mod words;

/// What git and others get as their editor: it ends at once and says what to do instead.
const NO_EDITOR: &str = "sh -c 'echo \"there is no editor in this run; give the text on the \
     command line, as with git commit -m\" >&2; exit 1'";

/// Variables that make programs colour their output even when it goes nowhere near a terminal.
const FORCED_COLOURS: [&str; 2] = ["CLICOLOR_FORCE", "FORCE_COLOR"];

/// Where a start-up file of the user's own is handed on.
const USERS_FILE: &str = "KLI_BASH_ENV";

/// The longest path that is taken back, in bytes: Linux's `PATH_MAX` and a line end.
const LONGEST_PATH: usize = 4097;

/// The most bytes of live output within [`LIVE_WINDOW`]; more is not shown live.
const LIVE_BYTES: usize = 32_768;
const LIVE_WINDOW: Duration = Duration::from_millis(100);

/// The tool bash.
#[derive(Clone, Copy, Debug, Default)]
pub struct Bash;

impl Tool for Bash {
    fn name(&self) -> &'static str {
        "bash"
    }

    fn description(&self) -> &'static str {
        "Runs a command line with bash, without a terminal. `cd` lasts for later calls; exported \
         variables do not. What stays in the background ends with the run."
    }

    fn schema(&self) -> Value {
        json!({
            "type": "object",
            "properties": {
                "command": { "type": "string", "description": "the command line, run as it is" },
                "input": {
                    "type": "string",
                    "description": "what it reads on standard input; nothing by default",
                },
                "timeout": { "type": "integer", "description": "seconds it may take" },
                "background": { "type": "boolean", "description": "not available yet" },
                "cwd": { "type": "string", "description": "directory to start in, for this call" },
            },
            "required": ["command"],
            "additionalProperties": false,
        })
    }

    fn atom(&self) -> Atom {
        Atom::ProcessExec
    }

    fn prepare(
        &self,
        arguments: &Map<String, Value>,
        context: &Arc<Context>,
    ) -> Result<Box<dyn Invocation>, String> {
        let arguments = Arguments::new(arguments);
        arguments.known(&["command", "input", "timeout", "background", "cwd"])?;
        let command = arguments.text("command")?;
        if command.trim().is_empty() {
            return Err("`command` is empty; give a command line".to_owned());
        }
        if command.contains('\0') {
            return Err("`command` holds a NUL byte, which no command line can; \
                 give such data as a file"
                .to_owned());
        }
        if arguments.flag("background")? {
            return Err(
                "`background` jobs are not available yet, and nothing was started; run it \
                 without `background`, or with `&` at its end (it ends with the run)"
                    .to_owned(),
            );
        }
        let wanted = arguments.optional_number("timeout", 1)?;
        let cwd = match arguments.optional_text("cwd")?.filter(|cwd| !cwd.is_empty()) {
            None => None,
            Some(cwd) => {
                let home = context.home.as_deref();
                let path = files::resolve(Path::new(&cwd), &context.workspace, home)
                    .map_err(|error| error.sentence())?;
                process::enterable(&path).map_err(|error| {
                    format!("`cwd`: `{}` cannot be entered: {error}", path.display())
                })?;
                Some(path)
            }
        };
        Ok(Box::new(Call {
            parsed: words::read(&command, &context.bash.shell),
            command,
            input: arguments.optional_text("input")?,
            timeout: wanted.unwrap_or(context.bash.timeout).min(context.bash.max_timeout),
            shortened: wanted.is_some_and(|wanted| wanted > context.bash.max_timeout),
            cwd,
            context: Arc::clone(context),
        }))
    }
}

#[derive(Debug)]
struct Call {
    command: String,
    parsed: Option<Vec<Vec<String>>>,
    input: Option<String>,
    /// Seconds.
    timeout: u64,
    shortened: bool,
    cwd: Option<PathBuf>,
    context: Arc<Context>,
}

impl Invocation for Call {
    fn requests(&self) -> Vec<Request> {
        let detail = Detail::Commands { line: self.command.clone(), parsed: self.parsed.clone() };
        vec![Request { atom: Atom::ProcessExec, detail }]
    }

    fn effect(&self) -> Effect {
        Effect::Barrier
    }

    fn run(self: Box<Self>, grants: Vec<Grant>, sink: Sink) -> BoxFuture<'static, Outcome> {
        Box::pin(async move {
            match grants.first() {
                Some(grant) => self.go(grant, &sink).await,
                None => Outcome::error("the call came without a grant; nothing was started"),
            }
        })
    }
}

impl Call {
    async fn go(&self, grant: &Grant, sink: &Sink) -> Outcome {
        let mut notes = Vec::new();
        let start = match self.start_directory(&mut notes) {
            Ok(start) => start,
            Err(sentence) => return Outcome::error(sentence),
        };
        let back = self.is_bash().then(Stand::new).transpose().ok().flatten();
        let command = self.build(start.clone(), back.as_ref());
        let slips: Vec<&Slip> =
            back.iter().flat_map(|stand| [&stand.script, &stand.back]).collect();
        let mut live = Live::new(sink);
        let output = match process::run(grant, command, &slips, |bytes| live.show(bytes)).await {
            Ok(output) => output,
            Err(error) => return Outcome::error(explain(&error)),
        };
        let end = back.and_then(|stand| stand.read());
        self.outcome(&output, &start, end, notes)
    }

    fn is_bash(&self) -> bool {
        self.context.bash.shell.file_name().is_some_and(|name| name == "bash")
    }

    /// Returns where to start; a directory that is gone is replaced by the workspace, and said.
    fn start_directory(&self, notes: &mut Vec<String>) -> Result<PathBuf, String> {
        if let Some(cwd) = &self.cwd {
            return Ok(cwd.clone());
        }
        let workspace = &self.context.workspace;
        let mut stands = self.context.state.cwd.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(cwd) = stands.clone() {
            let Err(error) = process::enterable(&cwd) else { return Ok(cwd) };
            *stands = None;
            notes.push(format!(
                "[the working directory `{}` cannot be entered any more ({error}); this ran in \
                 the workspace `{}`]",
                cwd.display(),
                workspace.display()
            ));
        }
        match process::enterable(workspace) {
            Ok(()) => Ok(workspace.clone()),
            Err(error) => Err(format!(
                "the workspace `{}` cannot be entered ({error}) and nothing was started; make it \
                 again with a call that sets `cwd` to a directory that is there",
                workspace.display()
            )),
        }
    }

    fn build(&self, cwd: PathBuf, stand: Option<&Stand>) -> Command {
        let mut set: Vec<(OsString, OsString)> = [
            ("GIT_TERMINAL_PROMPT", "0"),
            ("GIT_PAGER", "cat"),
            ("PAGER", "cat"),
            ("GIT_EDITOR", NO_EDITOR),
            ("GIT_SEQUENCE_EDITOR", NO_EDITOR),
            ("EDITOR", NO_EDITOR),
            ("VISUAL", NO_EDITOR),
            ("TERM", "dumb"),
        ]
        .into_iter()
        .map(|(name, value)| (name.into(), value.into()))
        .collect();
        let options = &self.context.bash;
        set.extend(options.added());
        let environment = Environment::read();
        if let Some(stand) = stand {
            let own =
                environment.var_os("BASH_ENV").filter(|_| options.passes("BASH_ENV".as_ref()));
            set.extend(own.map(|own| (USERS_FILE.into(), own.into())));
            set.push(("BASH_ENV".into(), stand.script.path().into()));
        }
        Command {
            program: self.context.bash.shell.clone(),
            // `--`: a command line that begins with a dash is no option.
            args: vec!["-c".into(), "--".into(), self.command.clone().into()],
            cwd,
            set,
            remove: FORCED_COLOURS
                .iter()
                .map(OsString::from)
                .chain(options.held_back(&environment))
                .collect(),
            input: self.input.clone().map(String::into_bytes),
            timeout: Duration::from_secs(self.timeout),
            keep: cut::shares(cut::BUDGET),
        }
    }

    fn outcome(
        &self,
        output: &Output,
        start: &Path,
        end: Option<PathBuf>,
        notes: Vec<String>,
    ) -> Outcome {
        let kept = &output.kept;
        let head = String::from_utf8_lossy(&kept.head);
        let tail = String::from_utf8_lossy(&kept.tail);
        let lossy =
            std::str::from_utf8(&kept.head).is_err() || std::str::from_utf8(&kept.tail).is_err();
        let shown = cut::join(
            &head,
            kept.missing,
            &tail,
            "narrow the command, or write to a file and read that with start and end",
        );
        let mut lines = notes;
        if shown.is_empty() {
            lines.push("(no output)".to_owned());
        } else {
            lines.push(shown.strip_suffix('\n').unwrap_or(&shown).to_owned());
        }
        if lossy {
            lines.push("[bytes that are no UTF-8 are shown as \u{fffd}]".to_owned());
        }
        if output.left_running {
            lines.push(
                "[something it started still runs; it ends with the run, and what it writes to \
                 this output from now on is not shown]"
                    .to_owned(),
            );
        }
        if self.mentions(&["export", "declare"]) {
            lines.push("[exported variables do not outlast the call]".to_owned());
        }
        let moved = self.move_to(start, end);
        lines.push(self.last_line(output, start, moved.as_deref()));
        lines.extend(sandbox_line(self.context.host.jail().as_ref(), &[&head, &tail]));

        let (code, signal) = match &output.ended {
            Ended::Exit(code) => (Some(*code), None),
            Ended::Signal(name) => (None, Some(name.clone())),
            Ended::TimedOut => (None, None),
        };
        Outcome {
            text: lines.join("\n"),
            is_error: code != Some(0),
            record: json!({
                "exit": code,
                "signal": signal,
                "timedOut": output.ended == Ended::TimedOut,
                "cwd": moved.as_deref().unwrap_or(start).to_string_lossy(),
                "missingBytes": kept.missing,
                "leftRunning": output.left_running,
            }),
            changed: Vec::new(),
        }
    }

    /// Makes later calls start where this one ended, and returns that when it is another place.
    fn move_to(&self, start: &Path, end: Option<PathBuf>) -> Option<PathBuf> {
        let end = end.filter(|end| end != start)?;
        let mut stands = self.context.state.cwd.lock().unwrap_or_else(PoisonError::into_inner);
        *stands = Some(end.clone());
        Some(end)
    }

    fn last_line(&self, output: &Output, start: &Path, moved: Option<&Path>) -> String {
        let mut line = match &output.ended {
            Ended::Exit(code) => match code - 128 {
                // The shell's way to say that a signal ended what it waited for.
                number @ 1..=31 => {
                    let name = process::signal_name(number);
                    format!("exit status {code}, as after signal {name}")
                }
                _ => format!("exit status {code}"),
            },
            Ended::Signal(name) => format!("ended by signal {name}"),
            Ended::TimedOut => {
                format!("timed out after {} s; all that it started was ended", self.timeout)
            }
        };
        if self.shortened {
            let _written = write!(line, "; {} s is the longest `timeout`", self.timeout);
        }
        match moved {
            Some(moved) => {
                let _written = write!(line, "; the working directory is now `{}`", moved.display());
            }
            None if self.cwd.is_none() && self.mentions(&["cd", "pushd", "popd"]) => {
                let _written =
                    write!(line, "; the working directory is still `{}`", start.display());
            }
            None => {}
        }
        format!("[{line}]")
    }

    /// Says whether one of these words may stand as a command in the line.
    fn mentions(&self, words: &[&str]) -> bool {
        self.command
            .split(|c: char| !(c.is_alphanumeric() || "_-./=".contains(c)))
            .any(|word| words.contains(&word))
    }
}

/// How the shell tells where it stands at its end.
struct Stand {
    script: Slip,
    back: Slip,
}

impl Stand {
    fn new() -> std::io::Result<Self> {
        let back = Slip::new("")?;
        // The user's own start-up file comes first, as if this one were not there. Bash expands
        // the variable's value before it opens the file (bash(1), BASH_ENV).
        let script = Slip::new(&format!(
            "if [ \"${{{USERS_FILE}+x}}\" ]; then BASH_ENV=${USERS_FILE}; unset {USERS_FILE}
             eval \"[ ! -r \\\"$BASH_ENV\\\" ] || . \\\"$BASH_ENV\\\"\"
             else unset BASH_ENV; fi
             trap '{{ set +x; builtin pwd -P >&{}; }} 2>/dev/null' EXIT\n",
            back.number(),
        ))?;
        Ok(Self { script, back })
    }

    fn read(&self) -> Option<PathBuf> {
        let mut bytes = self.back.read(LONGEST_PATH).ok()?;
        bytes.pop_if(|last| *last == b'\n')?;
        let path = PathBuf::from(OsString::from_vec(bytes));
        (path.is_absolute() && process::enterable(&path).is_ok()).then_some(path)
    }
}

fn explain(error: &ExecError) -> String {
    match error {
        ExecError::Start { .. } => format!(
            "{error}; nothing was started: is the shell on PATH, or the setting of the shell right?"
        ),
        other => format!("{other}; nothing was started"),
    }
}

/// Returns the line about the jail that explains a failure, when there is a jail and one shows.
fn sandbox_line(jail: Option<&Value>, texts: &[&str]) -> Option<String> {
    let jail = jail?;
    let shows = |signs: &[&str]| texts.iter().any(|text| signs.iter().any(|s| text.contains(s)));
    if shows(&["Read-only file system", "EROFS"]) {
        return Some(
            "[sandbox: outside the workspace and `writablePaths` everything is read-only for the \
             whole run; the option `sandbox.writablePaths` opens a directory]"
                .to_owned(),
        );
    }
    let network = jail.get("network").and_then(Value::as_bool);
    let signs = [
        "Network is unreachable",
        "ENETUNREACH",
        "Temporary failure in name resolution",
        "Could not resolve host",
        "Name or service not known",
        "EAI_AGAIN",
    ];
    (network == Some(false) && shows(&signs)).then(|| {
        "[sandbox: there is no network in this run; the option `sandbox.network` gives it]"
            .to_owned()
    })
}

/// Hands output to the sink as text while it comes, not faster than people can use it.
struct Live<'a> {
    sink: &'a Sink,
    /// The start of a character that is not complete yet.
    pending: Vec<u8>,
    window: Instant,
    sent: usize,
}

impl<'a> Live<'a> {
    fn new(sink: &'a Sink) -> Self {
        Self { sink, pending: Vec::new(), window: Instant::now(), sent: 0 }
    }

    fn show(&mut self, bytes: &[u8]) {
        if self.window.elapsed() > LIVE_WINDOW {
            self.window = Instant::now();
            self.sent = 0;
        }
        if self.sent > LIVE_BYTES {
            self.pending.clear();
            return;
        }
        self.sent = self.sent.saturating_add(bytes.len());
        self.pending.extend_from_slice(bytes);
        let complete = self.pending.len().saturating_sub(process::unfinished(&self.pending));
        let rest = self.pending.split_off(complete);
        let text = std::mem::replace(&mut self.pending, rest);
        if !text.is_empty() {
            (self.sink)(&String::from_utf8_lossy(&text));
        }
    }
}

#[cfg(test)]
mod tests;
