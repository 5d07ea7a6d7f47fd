//! The headless front end: events in, one text, one JSON object or JSON lines out.
//!
//! Standard output carries the result and nothing else; all talk goes to standard error. It knows
//! the agent's events, and nothing below them.

pub(crate) mod line;

use std::{collections::HashMap, sync::Arc, time::Duration};

use tokio::sync::mpsc::UnboundedReceiver;

use crate::{
    agent::{Backlog, Compacted, Event, Fault, FaultKind, Outcome, Summary, Timings},
    message::{self, Money},
};

use super::{
    args::OutputFormat,
    error::INTERNAL,
    terminal::{self, Lane},
};
use line::{Line, RunResult, SCHEMA, Times, TurnTimes};

/// What the result names besides the run's summary.
#[derive(Clone, Debug, Default)]
pub(crate) struct Names {
    /// The session's identifier, when there is one.
    pub(crate) session: Option<String>,
    /// `PROVIDER/MODEL`.
    pub(crate) model: Option<String>,
    /// The time from the program's start to the prompt.
    pub(crate) startup: Duration,
}

/// Where a run is shown: standard output in its format, and the log.
#[derive(Debug)]
pub(crate) struct Front {
    format: OutputFormat,
    /// Standard output; none where only a log is written, and then nothing is said beside it either.
    out: Option<Lane>,
    log: Option<Lane>,
    backlog: Arc<Backlog>,
    /// Bytes of live output that were left out, by call.
    missing: HashMap<String, u64>,
    timings: Option<Timings>,
    names: Names,
    is_finished: bool,
}

impl Front {
    /// Opens standard output; `log` gets the lines of the events as well.
    ///
    /// # Errors
    /// When the system gives no thread.
    pub(crate) fn new(
        format: OutputFormat,
        log: Option<Lane>,
        backlog: Arc<Backlog>,
    ) -> std::io::Result<Self> {
        Ok(Self {
            format,
            out: Some(Lane::stdout(Arc::clone(&backlog))?),
            log,
            backlog,
            missing: HashMap::new(),
            timings: None,
            names: Names::default(),
            is_finished: false,
        })
    }

    /// Returns a front that shows nothing and writes the lines of every prompt to a log.
    pub(crate) fn logging(log: Lane, names: Names, backlog: Arc<Backlog>) -> Self {
        Self {
            format: OutputFormat::Text,
            out: None,
            log: Some(log),
            backlog,
            missing: HashMap::new(),
            timings: None,
            names,
            is_finished: true,
        }
    }

    /// Writes what happened to the log.
    pub(crate) fn log(&mut self, event: &Event) {
        match event {
            Event::Done(summary) => self.log_result(summary),
            Event::Timings(_) => {}
            event => self.show(event.clone()),
        }
    }

    /// Says something to people, unless somebody else shows the run.
    fn say(&self, text: &str) {
        if self.out.is_some() {
            terminal::note(text);
        }
    }

    fn push(&mut self, text: String) {
        if let Some(out) = &mut self.out {
            out.push(text);
        }
    }

    /// Says whether standard output gets the events as they come.
    pub(crate) fn streams(&self) -> bool {
        self.format == OutputFormat::StreamJson
    }

    /// Waits until standard output cannot be written any more; pends when that never comes.
    pub(crate) fn broken(&self) -> impl Future<Output = ()> + use<> {
        let broken = self.out.as_ref().map(Lane::broken);
        async move {
            match broken {
                Some(broken) => broken.await,
                None => std::future::pending().await,
            }
        }
    }

    /// Waits until all is written, or given up.
    pub(crate) async fn drained(&self) {
        for lane in [&self.out, &self.log].into_iter().flatten() {
            lane.drained().await;
        }
    }

    /// Sets what the result will name.
    pub(crate) fn name(&mut self, names: Names) {
        self.names = names;
    }

    /// Writes a line to whoever wants lines.
    pub(crate) fn line(&mut self, line: &Line) {
        let streams = self.streams();
        if !streams && self.log.is_none() {
            return;
        }
        let text = json(line);
        match &mut self.log {
            Some(log) if streams => {
                log.push(text.clone());
                self.push(text);
            }
            Some(log) => log.push(text),
            None => self.push(text),
        }
    }

    /// Says something that is no failure, to people and in the lines.
    pub(crate) fn notice(&mut self, text: &str) {
        self.say(&format!("kli: {text}"));
        self.line(&Line::Notice { text: text.to_owned() });
    }

    /// Shows what happens until the prompt is done with, and returns the summary.
    pub(crate) async fn run(&mut self, mut events: UnboundedReceiver<Event>) -> Option<Summary> {
        while let Some(event) = events.recv().await {
            match event {
                Event::Done(summary) => return Some(*summary),
                Event::Timings(timings) => self.timings = Some(timings),
                event => self.show(event),
            }
        }
        None
    }

    fn show(&mut self, event: Event) {
        let line = match event {
            Event::Done(_) | Event::Timings(_) | Event::Approval(_) | Event::Withdrawn { .. } => {
                return;
            }
            Event::Notice(text) => return self.notice(&text),
            Event::Asking { turn } => Line::TurnStart { turn },
            Event::Text(text) => Line::Text { text },
            Event::Thinking(text) => Line::Thinking { text },
            Event::ToolStarted { id, name, arguments } => Line::ToolStart {
                id,
                name,
                arguments: match arguments {
                    message::Arguments::Object(map) => line::Arguments::Object(map),
                    message::Arguments::Malformed(text) => line::Arguments::Malformed(text),
                },
            },
            Event::ToolOutput { id, text } => {
                // Live output is made as fast as a command writes, and nothing can hold that back.
                if self.backlog.is_full() {
                    *self.missing.entry(id).or_default() += text.len() as u64;
                    return;
                }
                let missing_bytes = self.missing.remove(&id).unwrap_or_default();
                Line::ToolOutput { id, text, missing_bytes }
            }
            Event::ToolFinished { id, name, text, is_error, .. } => {
                if let Some(missing_bytes) = self.missing.remove(&id) {
                    let (id, text) = (id.clone(), String::new());
                    self.line(&Line::ToolOutput { id, text, missing_bytes });
                }
                Line::ToolResult { id, name, text, is_error }
            }
            Event::Denied { id, denied } => {
                let said = format!("kli: denied {}: {}", denied.tool, denied.detail);
                self.say(&terminal::one_line(&said));
                Line::Denied { id, denied }
            }
            Event::Usage { turn, usage, cost } => {
                Line::Usage { turn, usage, cost: cost.map(Money::as_f64) }
            }
            Event::FellBack { from, to, reason } => {
                self.say(&format!("kli: {reason}; `{to}` is asked in the place of `{from}`"));
                Line::Fallback { from, to, reason }
            }
            Event::Compacted(done) => {
                self.say(&format!("kli: {done}"));
                let Compacted { reason, before, after, trimmed, summarised, .. } = done;
                Line::Compacted { reason, before, after, trimmed, summarised }
            }
            Event::Retrying { attempt, of, after, reason } => {
                self.say(&format!(
                    "kli: {reason}; retry {attempt} of {of} in {:.1} s",
                    after.as_secs_f64()
                ));
                let after_ms = u64::try_from(after.as_millis()).unwrap_or(u64::MAX);
                Line::Retry { attempt, of, after_ms, reason }
            }
        };
        self.line(&line);
    }

    /// Writes the result, in the format that was asked for, and where the time went.
    pub(crate) fn result(&mut self, summary: &Summary) {
        self.log_result(summary);
        match self.format {
            OutputFormat::Text => {
                if let Some(answer) = answer(summary) {
                    self.push(answer);
                }
                say_end(summary);
            }
            OutputFormat::Json | OutputFormat::StreamJson => {
                self.push(json(&result(summary, &self.names, self.timings.as_ref())));
                if let Some(fault) = &summary.fault {
                    terminal::note(&format!("kli: {}", fault.message));
                }
            }
        }
        if let Some(timings) = &self.timings {
            for line in times(summary, timings, self.names.startup).lines() {
                terminal::note(&line);
            }
        }
    }

    /// Writes the result to the log alone: standard output gets it from elsewhere.
    pub(crate) fn log_result(&mut self, summary: &Summary) {
        self.is_finished = true;
        if let Some(log) = &mut self.log {
            log.push(json(&result(summary, &self.names, self.timings.as_ref())));
        }
    }
}

impl Drop for Front {
    /// A fault of kli's own ends the log as well with a result.
    fn drop(&mut self) {
        if !self.is_finished {
            let message = "kli broke off by a fault of its own".to_owned();
            self.log_result(&not_started(INTERNAL, Fault { kind: FaultKind::Internal, message }));
        }
    }
}

/// Prints the one JSON object of a run that has no front.
pub(crate) fn print_json(summary: &Summary) {
    terminal::out(&json(&result(summary, &Names::default(), None)));
    if let Some(fault) = &summary.fault {
        terminal::note(&format!("kli: {}", fault.message));
    }
}

fn json(line: &Line) -> String {
    // Strings, numbers and lists cannot fail to serialise.
    let mut text = serde_json::to_string(line).unwrap_or_default();
    text.push('\n');
    text
}

fn answer(summary: &Summary) -> Option<String> {
    if summary.text.trim().is_empty() {
        return None;
    }
    let end = if summary.text.ends_with('\n') { "" } else { "\n" };
    Some(format!("{}{end}", summary.text))
}

fn say_end(summary: &Summary) {
    if let Some(fault) = &summary.fault {
        terminal::note(&format!("kli: {}", fault.message));
    }
    match summary.outcome {
        Outcome::Denied => terminal::note("kli: the run was denied what it needed (exit 3)"),
        Outcome::Incomplete => terminal::note("kli: the answer is incomplete"),
        Outcome::Interrupted => terminal::note("kli: interrupted"),
        Outcome::Ok | Outcome::Error | Outcome::Budget => {}
    }
}

fn result(summary: &Summary, names: &Names, timings: Option<&Timings>) -> Line {
    Line::Result(Box::new(RunResult {
        schema: SCHEMA,
        outcome: summary.outcome,
        text: summary.text.clone(),
        session: names.session.clone(),
        model: summary.model.clone().or_else(|| names.model.clone()),
        turns: summary.turns,
        usage: summary.usage,
        cost: summary.cost.map(Money::as_f64),
        denied: summary.denied.clone(),
        changed_files: summary
            .changed
            .iter()
            .map(|path| path.to_string_lossy().into_owned())
            .collect(),
        duration_ms: u64::try_from(summary.duration.as_millis()).unwrap_or(u64::MAX),
        error: summary.fault.clone(),
        timings: timings.map(|timings| times(summary, timings, names.startup)),
    }))
}

/// Milliseconds to the microsecond: a start takes few of them.
fn ms(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e6).round() / 1e3
}

fn times(summary: &Summary, timings: &Timings, startup: Duration) -> Times {
    let turns = timings.turns.iter().map(|turn| TurnTimes {
        first_token_ms: turn.first.map(ms),
        model_ms: ms(turn.model),
        tool_ms: ms(turn.tools),
    });
    Times {
        startup_ms: ms(startup),
        first_request_ms: timings.first_request.map(ms),
        first_request_bytes: timings.first_request_bytes,
        turns: turns.collect(),
        total_ms: ms(summary.duration),
    }
}

impl Times {
    /// Returns the lines for people.
    fn lines(&self) -> Vec<String> {
        let mut lines = vec![format!("timings: start-up {:.1} ms", self.startup_ms)];
        if let Some(time) = self.first_request_ms {
            let bytes =
                self.first_request_bytes.map_or_else(String::new, |b| format!(", {b} bytes"));
            lines.push(format!("timings: first request after {time:.1} ms{bytes}"));
        }
        for (number, turn) in (1_u64..).zip(&self.turns) {
            let first = turn
                .first_token_ms
                .map_or_else(|| "no answer".to_owned(), |time| format!("first token {time:.1} ms"));
            lines.push(format!(
                "timings: turn {number}: {first}, model {:.1} ms, tools {:.1} ms",
                turn.model_ms, turn.tool_ms
            ));
        }
        lines.push(format!("timings: total {:.1} ms", self.total_ms));
        lines
    }
}

/// Returns the summary of a run that a signal ended before it could tell its own.
pub(crate) fn interrupted(exit: u8) -> Summary {
    Summary::unasked(Outcome::Interrupted, exit, Duration::ZERO)
}

/// Returns the summary of a run that did not start.
pub(crate) fn not_started(exit: u8, fault: Fault) -> Summary {
    Summary { fault: Some(fault), ..Summary::unasked(Outcome::Error, exit, Duration::ZERO) }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use serde_json::{Value, json};

    use super::*;

    type Lines = Arc<Mutex<String>>;

    fn front() -> (Front, Arc<Backlog>, Lines) {
        let (backlog, lines) = (Arc::new(Backlog::default()), Lines::default());
        let kept = Arc::clone(&lines);
        let log = Lane::new(Arc::clone(&backlog), move |text| {
            kept.lock().unwrap().push_str(text);
            Ok(())
        });
        let front =
            Front::new(OutputFormat::Text, Some(log.unwrap()), Arc::clone(&backlog)).unwrap();
        (front, backlog, lines)
    }

    fn read(lines: &Lines) -> Vec<Value> {
        lines.lock().unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    #[test]
    fn live_output_that_finds_no_room_is_counted() {
        let (mut front, backlog, lines) = front();
        let piece =
            |id: &str, text: &str| Event::ToolOutput { id: id.to_owned(), text: text.to_owned() };
        front.show(piece("a", "one"));
        backlog.add(2 << 20);
        front.show(piece("a", "lost"));
        front.show(piece("b", "gone"));
        front.show(piece("a", "!"));
        // What is no live output is never left out.
        front.show(Event::Text("said".to_owned()));
        backlog.take(2 << 20);
        front.show(piece("a", "two"));
        front.show(piece("a", "three"));
        front.show(Event::ToolFinished {
            id: "b".to_owned(),
            name: "bash".to_owned(),
            text: "all".to_owned(),
            is_error: false,
            record: Value::Null,
        });
        drop(front);
        let lines = read(&lines);
        let wanted = [
            json!({"type": "toolOutput", "id": "a", "text": "one"}),
            json!({"type": "text", "text": "said"}),
            json!({"type": "toolOutput", "id": "a", "text": "two", "missingBytes": 5}),
            json!({"type": "toolOutput", "id": "a", "text": "three"}),
            json!({"type": "toolOutput", "id": "b", "text": "", "missingBytes": 4}),
            json!({"type": "toolResult", "id": "b", "name": "bash", "text": "all", "isError": false}),
        ];
        assert_eq!(lines[..6], wanted);
    }

    #[test]
    fn a_log_ends_with_a_result_also_after_a_fault() {
        let (front, _, lines) = front();
        let broken = std::panic::catch_unwind(std::panic::AssertUnwindSafe(move || {
            let _dropped_on_the_way = front;
            panic!("a fault");
        }));
        assert!(broken.is_err());
        let last = read(&lines).pop().unwrap();
        assert_eq!((&last["type"], &last["outcome"]), (&json!("result"), &json!("error")));
        assert_eq!(last["error"]["kind"], "internal");
        let (mut front, _, lines) = self::front();
        front.result(&interrupted(130));
        drop(front);
        assert_eq!(read(&lines).len(), 1, "control: one result, not two");
    }
}
