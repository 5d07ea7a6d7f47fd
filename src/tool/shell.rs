//! The tool bash: one command line, handed to the shell as it is, and what came of it.
//!
//! The script travels as one argument and is never quoted into another one. Where the shell stands
//! at its end comes back on a descriptor of its own, written by a trap that a start-up file
//! (`BASH_ENV`) sets before the script begins: so `exit`, `set -e` and a syntax error do not lose
//! it, and the script's own output cannot be mistaken for it.

use std::{
    ffi::OsString,
    fmt::Write as _,
    path::{Path, PathBuf},
    sync::{Arc, OnceLock, PoisonError},
    time::Duration,
};

use futures_util::future::BoxFuture;
use serde_json::{Map, Value, json};

use super::{
    Context, Effect, Invocation, Outcome, Sink, Tool, arguments::Arguments, cut, jobs,
    result::Recorder,
};
use crate::{
    authority::{Atom, Detail, Grant, Request},
    host::{
        environment::Environment,
        files,
        process::{self, Command, Ended, ExecError, Output, Slip},
    },
};

mod environment;
mod git;
mod jail;
mod live;
mod stand;
mod words;

pub use environment::ALWAYS_PASSED;
use environment::Variables;
use jail::sandbox_line;
use live::Live;
use stand::Stand;

/// The tool bash.
#[derive(Clone, Copy, Debug, Default)]
pub struct Bash;

impl Tool for Bash {
    fn name(&self) -> &'static str {
        "bash"
    }

    fn description(&self) -> &'static str {
        "Runs a command line with bash, without a terminal. `cd` lasts, exported variables do not. \
         Background work ends with the run."
    }

    fn schema(&self) -> Value {
        json!({
            "type": "object",
            "properties": {
                "command": { "type": "string" },
                "input": { "type": "string", "description": "standard input" },
                "timeout": { "type": "integer", "description": "seconds" },
                "background": { "type": "boolean", "description": "start a job, see bash_jobs" },
                "cwd": { "type": "string", "description": "for this call only" },
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
        let background = arguments.flag("background")?;
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
            timeout: match (background, wanted) {
                (true, None) => Duration::MAX,
                (true, Some(wanted)) => Duration::from_secs(wanted),
                (false, wanted) => {
                    let wanted = wanted.unwrap_or(context.bash.timeout);
                    Duration::from_secs(wanted.min(context.bash.max_timeout))
                }
            },
            shortened: !background
                && wanted.is_some_and(|wanted| wanted > context.bash.max_timeout),
            background,
            cwd,
            shown: OnceLock::new(),
            context: Arc::clone(context),
        }))
    }
}

#[derive(Debug)]
struct Call {
    command: String,
    parsed: Option<Vec<Vec<String>>>,
    input: Option<String>,
    timeout: Duration,
    background: bool,
    shortened: bool,
    cwd: Option<PathBuf>,
    /// Where a person was told that it starts.
    shown: OnceLock<PathBuf>,
    context: Arc<Context>,
}

impl Invocation for Call {
    fn requests(&self) -> Vec<Request> {
        let detail = Detail::Commands { line: self.command.clone(), parsed: self.parsed.clone() };
        vec![Request { atom: Atom::ProcessExec, detail }]
    }

    fn facts(&self) -> Vec<(&'static str, String)> {
        let stands = self.context.state.cwd.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let start = self.cwd.clone().or(stands).unwrap_or_else(|| self.context.workspace.clone());
        let start = self.shown.get_or_init(|| start);
        vec![("in", super::target::shown(start))]
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
        if let Some(shown) = self.shown.get().filter(|shown| **shown != start) {
            return Outcome::error(format!(
                "the working directory `{}` that the person was shown cannot be entered any more; \
                 nothing was started",
                shown.display()
            ));
        }
        if self.background {
            return self.launch(grant, start, notes).await;
        }
        let back = self.is_bash().then(Stand::new).transpose().ok().flatten();
        let command = match self.build(grant, start.clone(), back.as_ref()).await {
            Ok(command) => command,
            Err(sentence) => return Outcome::error(sentence),
        };
        let slips: Vec<&Slip> =
            back.iter().flat_map(|stand| [&stand.script, &stand.back]).collect();
        let mut live = Live::new(sink);
        let mut whole = Recorder::new(&self.context.state.results, cut::BUDGET);
        let run = process::run(grant, command, &slips, |bytes| {
            whole.push(bytes);
            live.show(bytes);
        });
        let output = match run.await {
            Ok(output) => output,
            Err(error) => return Outcome::error(explain(&error)),
        };
        let end = back.and_then(|stand| stand.read());
        self.outcome(&output, &whole, &start, end, notes)
    }

    async fn launch(&self, grant: &Grant, start: PathBuf, notes: Vec<String>) -> Outcome {
        let command = match self.build(grant, start.clone(), None).await {
            Ok(command) => command,
            Err(sentence) => return Outcome::error(sentence),
        };
        let state = &self.context.state;
        let mut outcome = state.jobs.start(grant, &state.results, &self.command, command).await;
        let mut lines = notes;
        lines.push(std::mem::take(&mut outcome.text));
        if self.mentions(&["cd", "pushd", "popd"]) {
            lines.push(jobs::stays(&start));
        }
        outcome.text = lines.join("\n");
        outcome
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

    /// Returns the command with its variables; under a list of commands also what keeps git from
    /// running programs of the repository's choice.
    async fn build(
        &self,
        grant: &Grant,
        cwd: PathBuf,
        stand: Option<&Stand>,
    ) -> Result<Command, String> {
        let inherited = Environment::read();
        let Variables { mut set, mut remove } =
            environment::variables(&self.context.bash, stand, &inherited);
        if grant.is_listed() {
            remove.extend(git::REMOVED.iter().map(OsString::from));
            let runs_git = |words: &Vec<String>| words.first().is_some_and(|first| is_git(first));
            if self.parsed.iter().flatten().any(runs_git) {
                let neutral = git::neutral(grant, &cwd, &inherited, &set, &remove).await?;
                set.extend(neutral);
            }
        }
        Ok(Command {
            program: self.context.bash.shell.clone(),
            // `--`: a command line that begins with a dash is no option.
            args: vec!["-c".into(), "--".into(), self.command.clone().into()],
            cwd,
            set,
            remove,
            input: self.input.clone().map(String::into_bytes),
            timeout: self.timeout,
            keep: cut::shares(cut::BUDGET),
        })
    }

    fn outcome(
        &self,
        output: &Output,
        whole: &Recorder,
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
            &whole
                .repair("narrow the command, or write to a file and read that with start and end"),
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
            Ended::TimedOut | Ended::Stopped => (None, None),
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
                "handle": whole.handle(),
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
            Ended::TimedOut | Ended::Stopped => {
                let all =
                    if output.left_running { "what could be found of what" } else { "all that" };
                format!("timed out after {} s; {all} it started was ended", self.timeout.as_secs())
            }
        };
        if self.shortened {
            let _written = write!(line, "; {} s is the longest `timeout`", self.timeout.as_secs());
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

/// Says whether a command's first word is git, by whatever path.
fn is_git(word: &str) -> bool {
    word.rsplit('/').next() == Some("git")
}

/// Says why a command was not started.
pub(super) fn explain(error: &ExecError) -> String {
    match error {
        ExecError::Start { .. } => format!(
            "{error}; nothing was started: is the shell on PATH, or the setting of the shell right?"
        ),
        other => format!("{other}; nothing was started"),
    }
}

#[cfg(test)]
mod tests;
