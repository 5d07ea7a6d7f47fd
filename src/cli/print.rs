//! The headless front end: events in, one text or one JSON object out.
//!
//! Standard output carries the result and nothing else; all talk goes to standard error. It knows
//! the agent's events, and nothing below them.

use serde::Serialize;
use tokio::sync::mpsc::UnboundedReceiver;

use crate::{
    agent::{Denied, Event, Fault, Outcome, Summary},
    message::Usage,
};

use super::terminal;

/// What the result names besides the run's summary.
#[derive(Clone, Debug, Default)]
pub(crate) struct Names {
    /// The session's identifier, when there is one.
    pub(crate) session: Option<String>,
    /// `PROVIDER/MODEL`.
    pub(crate) model: Option<String>,
}

/// The object that `--output-format json` prints, in the order of the fields.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Result_<'a> {
    r#type: &'static str,
    schema: u32,
    outcome: Outcome,
    text: &'a str,
    session: Option<&'a str>,
    model: Option<&'a str>,
    turns: u64,
    usage: Usage,
    denied: &'a [Denied],
    changed_files: Vec<String>,
    duration_ms: u64,
    error: Option<&'a Fault>,
}

/// Shows what happens until the prompt is done with, and returns the summary.
pub(crate) async fn run(mut events: UnboundedReceiver<Event>) -> Option<Summary> {
    while let Some(event) = events.recv().await {
        match event {
            Event::Done(summary) => return Some(*summary),
            Event::Denied(denied) => {
                let line = format!("kli: denied {}: {}", denied.tool, denied.detail);
                terminal::note(&terminal::one_line(&line));
            }
            Event::Retrying { attempt, of, after, reason } => terminal::note(&format!(
                "kli: {reason}; retry {attempt} of {of} in {:.1} s",
                after.as_secs_f64()
            )),
            Event::Notice(text) => terminal::note(&format!("kli: {text}")),
            Event::Asking { .. }
            | Event::Text(_)
            | Event::Thinking(_)
            | Event::ToolStarted { .. }
            | Event::ToolOutput { .. }
            | Event::ToolFinished { .. } => {}
        }
    }
    None
}

/// Prints the answer's text; what went wrong goes to standard error.
pub(crate) fn text(summary: &Summary) {
    if !summary.text.trim().is_empty() {
        let end = if summary.text.ends_with('\n') { "" } else { "\n" };
        terminal::out(&format!("{}{end}", summary.text));
    }
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

/// Prints the one JSON object.
pub(crate) fn json(summary: &Summary, names: &Names) {
    let result = Result_ {
        r#type: "result",
        schema: 1,
        outcome: summary.outcome,
        text: &summary.text,
        session: names.session.as_deref(),
        model: names.model.as_deref(),
        turns: summary.turns,
        usage: summary.usage,
        denied: &summary.denied,
        changed_files: summary
            .changed
            .iter()
            .map(|path| path.to_string_lossy().into_owned())
            .collect(),
        duration_ms: u64::try_from(summary.duration.as_millis()).unwrap_or(u64::MAX),
        error: summary.fault.as_ref(),
    };
    // Strings, numbers and lists cannot fail to serialise.
    let mut line = serde_json::to_string(&result).unwrap_or_default();
    line.push('\n');
    terminal::out(&line);
    if let Some(fault) = &summary.fault {
        terminal::note(&format!("kli: {}", fault.message));
    }
}

/// Returns the summary of a run that a signal ended before it could tell its own.
pub(crate) fn interrupted(exit: u8) -> Summary {
    Summary { outcome: Outcome::Interrupted, exit, fault: None, ..empty() }
}

/// Returns the summary of a run that did not start.
pub(crate) fn not_started(exit: u8, fault: Fault) -> Summary {
    Summary { exit, fault: Some(fault), ..empty() }
}

fn empty() -> Summary {
    Summary {
        outcome: Outcome::Error,
        exit: super::error::INTERNAL,
        text: String::new(),
        turns: 0,
        usage: Usage::default(),
        denied: Vec::new(),
        changed: Vec::new(),
        duration: std::time::Duration::ZERO,
        fault: None,
    }
}
