//! `/undo`, `/redo` and `/rewind`: which files go back, and where the conversation goes on.

use std::fmt::Write as _;

use crate::{
    cli::{
        args::RunArguments,
        checkpoints::{
            restore::{Report, Which, Words},
            take_along,
        },
        sessions::cut,
    },
    session::{Found, Prompt, Store},
    tui::{Answer, Conversation},
};

use super::{House, no_session};

/// What a conversation without a session is told.
pub(super) const NONE_KEPT: &str = "no session is kept, so no checkpoints are: `/undo`, `/rewind` and `/diff` know of \
     nothing";
/// The most prompts that are listed.
const LISTED: usize = 30;
/// Characters of a prompt in the list.
const SHOWN: usize = 60;

/// What goes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    Both,
    Files,
    Conversation,
}

impl House<'_> {
    /// Answers what changes files and not the conversation, or only lists.
    pub(super) fn put_back(&self, name: &str, rest: &str, session: Option<&str>) -> Answer {
        let done = match name {
            "undo" => self.undo(rest, session),
            "redo" => self.redo(rest),
            _ => self.rewind_files(rest, session),
        };
        match done {
            Ok(text) => Answer { text, ..Answer::default() },
            Err(errors) => Answer { errors, failed: true, ..Answer::default() },
        }
    }

    fn undo(&self, rest: &str, session: Option<&str>) -> Result<String, String> {
        let words = Words::read(rest.split_whitespace())?;
        let prompts = self.prompts(session).map(|(_, _, prompts)| prompts).unwrap_or_default();
        let kept = self.checkpoints()?;
        let subject = self.assembly.subject();
        Ok(told(kept.undo(subject, Which::Latest, words, &prompts, "/undo")?))
    }

    fn redo(&self, rest: &str) -> Result<String, String> {
        let words = Words::read(rest.split_whitespace())?;
        Ok(self.checkpoints()?.redo(self.assembly.subject(), words)?.text)
    }

    fn checkpoints(&self) -> Result<&crate::cli::checkpoints::Checkpointing, String> {
        self.checkpoints.as_deref().ok_or_else(|| {
            "no checkpoints are kept without a session; leave `--no-session` out, and see the setting \
             `session`"
                .to_owned()
        })
    }

    /// Returns the prompts of the session that goes on.
    fn prompts(&self, session: Option<&str>) -> Result<(Store, Found, Vec<Prompt>), String> {
        let none = || no_session("go back in").lines().join("\n");
        let paths = self.setup.paths.as_ref().ok_or_else(none)?;
        let store = Store::new(paths.state());
        let id = session.ok_or_else(none)?;
        let found = store
            .find(&self.setup.workspace, id)
            .map_err(|_| "nothing was said in this session yet".to_owned())?;
        let prompts = store.prompts(&found).map_err(|error| error.to_string())?;
        Ok((store, found, prompts))
    }

    fn rewind_files(&self, rest: &str, session: Option<&str>) -> Result<String, String> {
        let (_, _, prompts) = self.prompts(session)?;
        if rest.is_empty() {
            return Ok(self.list(&prompts));
        }
        let (number, what, words) = read(rest)?;
        if what != What::Files {
            return Err("the conversation goes back only when the agent does nothing".to_owned());
        }
        let prompt = nth_last(&prompts, number)?;
        let report = self.restore(prompt, words, &prompts, number, " files")?;
        Ok(told(report))
    }

    fn restore(
        &self,
        prompt: &Prompt,
        words: Words,
        prompts: &[Prompt],
        number: usize,
        what: &str,
    ) -> Result<Report, String> {
        let again = format!("/rewind {number}{what}");
        let which = Which::Since(prompt.message);
        match self.checkpoints()?.undo(self.assembly.subject(), which, words, prompts, &again) {
            // No change at all is no reason to stay.
            Err(sentence) if sentence.starts_with("nothing was changed by kli") => {
                let text = "kli changed no file since then".to_owned();
                Ok(Report { text, ..Report::default() })
            }
            other => other,
        }
    }

    fn list(&self, prompts: &[Prompt]) -> String {
        if prompts.is_empty() {
            return "nothing was said in this session yet".to_owned();
        }
        let mut text = String::new();
        for (number, prompt) in prompts.iter().rev().enumerate().take(LISTED) {
            let changed = self
                .checkpoints
                .as_ref()
                .map_or(0, |checkpoints| checkpoints.changed_since(prompt.message));
            let files = match changed {
                0 => String::new(),
                1 => " (1 file changed since)".to_owned(),
                many => format!(" ({many} files changed since)"),
            };
            // Writing to a string cannot fail.
            let _infallible =
                writeln!(text, "{:>3}  {}{files}", number + 1, cut(&prompt.text, SHOWN));
        }
        if prompts.len() > LISTED {
            let _infallible = writeln!(text, "     … {} earlier ones", prompts.len() - LISTED);
        }
        text.push_str(
            "\n`/rewind N` goes back to before that prompt, with the files; `/rewind N conversation` \
             and `/rewind N files` with one of both",
        );
        text
    }

    /// Begins the conversation anew before one of its prompts, on a copy of the session.
    pub(super) fn rewind(
        &mut self,
        rest: &str,
        session: Option<&str>,
        fresh: RunArguments,
    ) -> Result<Conversation, String> {
        let (number, what, words) = read(rest)?;
        let (store, found, prompts) = self.prompts(session)?;
        let prompt = nth_last(&prompts, number)?.clone();
        let mut notices = Vec::new();
        if what == What::Both && self.checkpoints.is_some() {
            let report = self.restore(&prompt, words, &prompts, number, "")?;
            if report.asks {
                return Err(report.text);
            }
            notices.push(report.text.trim_end().to_owned());
        }
        let workspace = &self.setup.workspace;
        // What was put back by then is told all the same.
        let done = notices.clone();
        let after =
            |error: String| done.iter().cloned().chain([error]).collect::<Vec<_>>().join("\n");
        let forked = store
            .fork_before(workspace, &found, &prompt)
            .map_err(|error| after(error.to_string()))?;
        if let (Some(paths), Some(_)) = (&self.setup.paths, &self.checkpoints) {
            let (from, to) = (&found.id, &forked.id);
            notices.extend(take_along(paths.state(), workspace, from, to, prompt.message));
        }
        let resume = Some(forked.id);
        let mut talk = self
            .converse(&RunArguments { resume, ..fresh })
            .map_err(|error| after(error.lines().join("\n")))?;
        notices.push(format!(
            "went back to before `{}`; the whole conversation is kept as session `{}`",
            cut(&prompt.text, SHOWN),
            found.id
        ));
        talk.notices.extend(notices);
        talk.draft = Some(prompt.text);
        Ok(talk)
    }
}

/// Returns what was done, and that the model will know of it.
fn told(report: Report) -> String {
    let mut text = report.text;
    if report.is_done {
        text.push_str("the model is told with the next prompt; `/redo` takes it back\n");
    }
    text
}

/// Reads `N [files|conversation] [force] [yes]`.
fn read(rest: &str) -> Result<(usize, What, Words), String> {
    let mut words = rest.split_whitespace().peekable();
    let number = words.next().unwrap_or_default();
    let number: usize = number.parse().ok().filter(|number| *number > 0).ok_or_else(|| {
        format!("`{number}` is no number of a prompt; `/rewind` lists them, the last one is 1")
    })?;
    let what = match words.peek() {
        Some(&"files") => What::Files,
        Some(&"conversation") => What::Conversation,
        _ => What::Both,
    };
    if what != What::Both {
        words.next();
    }
    Ok((number, what, Words::read(words)?))
}

fn nth_last(prompts: &[Prompt], number: usize) -> Result<&Prompt, String> {
    let at = prompts.len().checked_sub(number);
    at.and_then(|at| prompts.get(at)).ok_or_else(|| match prompts.len() {
        0 => "nothing was said in this session yet".to_owned(),
        1 => "there is only one prompt, number 1".to_owned(),
        many => format!("there is no prompt {number}; there are {many}"),
    })
}
