//! Background jobs: what bash starts with `background`, and the tool `bash_jobs` that asks about
//! them and ends them. A job lasts as long as the run, at most.
//!
//! It knows no shell language: the shell tool says what to run and how to show it.

use std::{
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use futures_util::future::BoxFuture;
use serde_json::{Map, Value, json};

use super::{
    Context, Effect, Invocation, Outcome, Sink, Tool,
    arguments::Arguments,
    cut,
    result::{Recorder, Results},
};
use crate::{
    authority::{Atom, Grant, Request},
    host::process::{self, Command, Ended, Job, Keeper, Kept},
};

/// The most jobs that run at a time.
pub const MOST_RUNNING: usize = 16;
/// The most jobs that are remembered; the oldest that have ended go first.
pub const MOST: usize = 64;
/// How long the start of a job waits for its first output.
const FIRST_OUTPUT: Duration = Duration::from_millis(300);
/// How many characters of a command line a list shows.
const SHOWN: usize = 100;

/// The jobs of a run.
#[derive(Debug, Default)]
pub struct Jobs {
    list: Mutex<List>,
}

#[derive(Debug, Default)]
struct List {
    last: u64,
    entries: Vec<Arc<Entry>>,
}

#[derive(Debug)]
struct Entry {
    id: String,
    line: String,
    job: Job,
    started: Instant,
    output: Arc<Mutex<Heard>>,
}

/// What a job wrote.
#[derive(Debug)]
struct Heard {
    /// What came since it was last asked for: its start and its end.
    fresh: Keeper,
    /// All of it, in a file.
    whole: Recorder,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn keeper() -> Keeper {
    Keeper::new(cut::shares(cut::BUDGET))
}

impl Jobs {
    /// Returns these jobs for another to hold; none is left here.
    pub(super) fn hand_over(&self) -> Self {
        Self { list: Mutex::new(std::mem::take(&mut *lock(&self.list))) }
    }

    /// Starts a job and returns what to tell: its id, and its first output.
    pub(super) async fn start(
        &self,
        grant: &Grant,
        results: &Arc<Results>,
        line: &str,
        command: Command,
    ) -> Outcome {
        let output =
            Arc::new(Mutex::new(Heard { fresh: keeper(), whole: Recorder::new(results, 0) }));
        let heard = Arc::clone(&output);
        let entry = {
            let mut list = lock(&self.list);
            let running = list.entries.iter().filter(|entry| entry.job.ended().is_none()).count();
            if running >= MOST_RUNNING {
                return Outcome::error(format!(
                    "{running} jobs run already and nothing was started; end one with bash_jobs \
                     {{\"action\": \"kill\", \"job\": …}}"
                ));
            }
            let job = match process::spawn(grant, command, move |bytes| {
                let mut heard = lock(&heard);
                heard.fresh.push(bytes);
                heard.whole.push(bytes);
            }) {
                Ok(job) => job,
                Err(error) => return Outcome::error(super::shell::explain(&error)),
            };
            if list.entries.len() >= MOST
                && let Some(old) = list.entries.iter().position(|old| old.job.ended().is_some())
            {
                list.entries.remove(old);
            }
            list.last += 1;
            let id = format!("j{}", list.last);
            let entry =
                Arc::new(Entry { id, line: line.to_owned(), job, started: Instant::now(), output });
            list.entries.push(Arc::clone(&entry));
            entry
        };
        entry.job.wait(FIRST_OUTPUT).await;
        let mut outcome = entry.show();
        outcome.text = format!("[job `{}` was started]\n{}", entry.id, outcome.text);
        outcome
    }

    fn find(&self, id: &str) -> Result<Arc<Entry>, String> {
        let list = lock(&self.list);
        let found = list.entries.iter().find(|entry| entry.id == id).map(Arc::clone);
        found.ok_or_else(|| {
            let known: Vec<String> =
                list.entries.iter().map(|entry| format!("`{}`", entry.id)).collect();
            if known.is_empty() {
                format!("there is no job `{id}`; this run has started none")
            } else {
                format!("there is no job `{id}`; the jobs are {}", known.join(", "))
            }
        })
    }

    fn list(&self) -> Outcome {
        let list = lock(&self.list);
        let lines: Vec<String> = list.entries.iter().map(|entry| entry.row()).collect();
        Outcome::ok(if lines.is_empty() { "(no jobs)".to_owned() } else { lines.join("\n") })
    }
}

impl Entry {
    fn row(&self) -> String {
        let mut line: String = self.line.chars().take(SHOWN).collect();
        if line.len() < self.line.len() {
            line.push('…');
        }
        let line = line.replace('\n', " ");
        format!("{}  {}  {line}", self.id, self.status())
    }

    fn status(&self) -> String {
        match self.job.ended() {
            None => format!("running for {} s", self.started.elapsed().as_secs()),
            Some(Ended::Exit(code)) => format!("exit status {code}"),
            Some(Ended::Signal(name)) => format!("ended by signal {name}"),
            Some(Ended::TimedOut) => "timed out; all that it started was ended".to_owned(),
            Some(Ended::Stopped) => "ended on request, with all that it started".to_owned(),
        }
    }

    /// Returns what it wrote since it was last asked for, and how it is.
    fn show(&self) -> Outcome {
        // The status first: what is written between the two looks is then shown, not lost.
        let ended = self.job.ended();
        let status = self.status();
        let (kept, repair, handle) = {
            let mut heard = lock(&self.output);
            let mut kept = std::mem::replace(&mut heard.fresh, keeper()).finish();
            if ended.is_none() {
                hold_back(&mut kept, &mut heard.fresh);
            }
            let repair = heard.whole.repair("give the command a file to write to");
            (kept, repair, heard.whole.handle().map(str::to_owned))
        };
        let shown = cut::join(
            &String::from_utf8_lossy(&kept.head),
            kept.missing,
            &String::from_utf8_lossy(&kept.tail),
            &repair,
        );
        let mut lines = Vec::new();
        if shown.is_empty() {
            lines.push("(no new output)".to_owned());
        } else {
            lines.push(shown.strip_suffix('\n').unwrap_or(&shown).to_owned());
        }
        let all = handle
            .as_ref()
            .map_or_else(String::new, |handle| format!("; all its output: read_result `{handle}`"));
        lines.push(format!("[job `{}`: {status}{all}]", self.id));
        let (code, signal) = match &ended {
            Some(Ended::Exit(code)) => (Some(*code), None),
            Some(Ended::Signal(name)) => (None, Some(name.clone())),
            Some(Ended::TimedOut | Ended::Stopped) | None => (None, None),
        };
        Outcome {
            text: lines.join("\n"),
            is_error: code.is_some_and(|code| code != 0)
                || matches!(ended, Some(Ended::Signal(_) | Ended::TimedOut)),
            record: json!({
                "job": self.id,
                "running": ended.is_none(),
                "exit": code,
                "signal": signal,
                "missingBytes": kept.missing,
                "handle": handle,
            }),
            changed: Vec::new(),
        }
    }
}

/// Puts the start of a character whose end has not come yet back, to be shown with it.
fn hold_back(kept: &mut Kept, fresh: &mut Keeper) {
    let last = if kept.missing == 0 { &mut kept.head } else { &mut kept.tail };
    let part = last.split_off(last.len().saturating_sub(process::unfinished(last)));
    fresh.push(&part);
}

/// Says that a background command does not move later calls.
pub(super) fn stays(cwd: &Path) -> String {
    format!(
        "[the working directory is still `{}`: a command in the background does not move it]",
        cwd.display()
    )
}

/// The tool `bash_jobs`.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct BashJobs;

impl Tool for BashJobs {
    fn name(&self) -> &'static str {
        "bash_jobs"
    }

    fn description(&self) -> &'static str {
        "Background jobs of bash: list them, new output of one, kill one."
    }

    fn schema(&self) -> Value {
        json!({
            "type": "object",
            "properties": {
                "action": { "type": "string", "enum": ["list", "output", "kill"] },
                "job": { "type": "string" },
            },
            "required": ["action"],
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
        arguments.known(&["action", "job"])?;
        let job =
            arguments.optional_text("job")?.map(|job| job.trim().trim_matches('`').to_owned());
        let action = match (arguments.text("action")?.trim(), job) {
            ("list", _) => Action::List,
            ("output", Some(job)) => Action::Output(job),
            ("kill", Some(job)) => Action::Kill(job),
            ("output" | "kill", None) => {
                return Err("`job` is missing; `list` shows the jobs".to_owned());
            }
            (other, _) => {
                return Err(format!("`action` is `{other}`; it can be `list`, `output` or `kill`"));
            }
        };
        Ok(Box::new(Ask { action, context: Arc::clone(context) }))
    }
}

#[derive(Debug)]
enum Action {
    List,
    Output(String),
    Kill(String),
}

#[derive(Debug)]
struct Ask {
    action: Action,
    context: Arc<Context>,
}

impl Invocation for Ask {
    fn requests(&self) -> Vec<Request> {
        // No command line is run: it is about those that were allowed when they were started.
        vec![Request::bare(Atom::ProcessExec)]
    }

    fn effect(&self) -> Effect {
        match self.action {
            Action::List | Action::Output(_) => Effect::Read,
            Action::Kill(_) => Effect::Barrier,
        }
    }

    fn run(self: Box<Self>, grants: Vec<Grant>, _sink: Sink) -> BoxFuture<'static, Outcome> {
        Box::pin(async move {
            let jobs = &self.context.state.jobs;
            let Some(grant) = grants.first() else {
                return Outcome::error("the call came without a grant; nothing was done");
            };
            let (id, kill) = match &self.action {
                Action::List => return jobs.list(),
                Action::Output(id) => (id, false),
                Action::Kill(id) => (id, true),
            };
            let entry = match jobs.find(id) {
                Ok(entry) => entry,
                Err(sentence) => return Outcome::error(sentence),
            };
            if kill {
                match entry.job.stop(grant).await {
                    Ok(Some(_)) => {}
                    Ok(None) => {
                        return Outcome::error(format!(
                            "job `{id}` would not end; it ends with the run"
                        ));
                    }
                    Err(error) => return Outcome::error(error.to_string()),
                }
                // That it was ended is what was asked for.
                return Outcome { is_error: false, ..entry.show() };
            }
            entry.show()
        })
    }
}

#[cfg(test)]
mod tests;
