//! Putting files back. What the store says is only a wish: each file goes through the run's authority and
//! the same bound path as a `write`, in this session's workspace, and what somebody else changed since is
//! left alone.

use std::{
    collections::HashMap,
    fmt::Write as _,
    sync::{Arc, atomic::AtomicBool},
};

use crate::{
    authority::{Approval, Atom, Request, Subject},
    cli::sessions::cut,
    host::files::{self, Expected, Keep, Manner},
    session::{
        Prompt,
        checkpoint::{Digest, Inside, MOST_BYTES, State, Step},
    },
};

use super::{
    Checkpointing,
    review::{Now, name, uncovered},
};

/// Tools that change no file, or none that is not covered.
const COVERED: [&str; 8] =
    ["read", "write", "edit", "find", "search", "bash_jobs", "read_result", "inspect"];
/// The most commands that are named, and how much of each, in characters.
const COMMANDS: (usize, usize) = (5, 60);

/// Which changes are meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Which {
    /// Those of the latest prompt that is not undone.
    Latest,
    /// All that were made since the session had so many messages.
    Since(u64),
}

/// How the person wants it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Words {
    /// Files that somebody else changed since, too.
    pub(crate) force: bool,
    /// Checkpoints of an earlier run, too.
    pub(crate) yes: bool,
}

impl Words {
    /// Reads `force` and `yes`.
    ///
    /// # Errors
    /// A sentence for any other word.
    pub(crate) fn read<'a>(words: impl Iterator<Item = &'a str>) -> Result<Self, String> {
        let mut this = Self::default();
        for word in words {
            match word {
                "force" => this.force = true,
                "yes" => this.yes = true,
                other => {
                    return Err(format!(
                        "`{other}` is none of `force` (files that something else changed since, too) \
                         and `yes` (checkpoints of an earlier run, too)"
                    ));
                }
            }
        }
        Ok(this)
    }
}

/// What came of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Report {
    /// What was done, or would be.
    pub(crate) text: String,
    /// Whether it was only said what would be done.
    pub(crate) asks: bool,
    /// Whether something was done.
    pub(crate) is_done: bool,
}

/// The contents that are to be put back. All are read before anything is put back: what that keeps in
/// its turn may drop the oldest ones from a store that is full.
#[derive(Default)]
struct Contents {
    read: HashMap<Digest, Arc<Vec<u8>>>,
    bytes: u64,
}

impl Contents {
    /// Returns a content, or why it is not to be had, as the end of a sentence.
    fn get(&mut self, kept: &Checkpointing, digest: Digest) -> Result<Arc<Vec<u8>>, String> {
        if let Some(content) = self.read.get(&digest) {
            return Ok(Arc::clone(content));
        }
        let content = kept
            .there(|store| store.content(digest))
            .map_err(|error| format!("cannot be put back: {error}"))?
            .ok_or("cannot be put back: its checkpoint is not what was kept")?;
        self.bytes = self.bytes.saturating_add(content.len() as u64);
        // A session of kli's own keeps no more.
        if self.bytes > MOST_BYTES {
            return Err(format!(
                "cannot be put back with so much else: more than {MOST_BYTES} bytes"
            ));
        }
        let content = Arc::new(content);
        self.read.insert(digest, Arc::clone(&content));
        Ok(content)
    }
}

/// What would become of one file.
enum Verdict {
    /// It reads so already.
    Already,
    /// It gets this content and these permission bits.
    Put(Arc<Vec<u8>>, u32, Expected),
    /// It is removed.
    Remove(files::Stamp),
    /// It is left alone, for a reason that goes on from its name.
    Leave(String),
}

/// What came of one file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    /// It reads as it is to.
    Done,
    /// It was left alone, and `force` may say otherwise.
    Left,
    /// The run may not write it; nothing is decided about it.
    Refused,
}

/// What is said where the run may not write a file, with the command that asks again.
fn refused(again: &str) -> String {
    format!(
        "what may not be written here waits: `{again}` again once the run may write it (`/authority` says \
         who refuses, `/profile` chooses another profile)\n"
    )
}

impl Checkpointing {
    /// Undoes changes, and says what it did.
    ///
    /// # Errors
    /// A sentence when nothing can be undone.
    pub(crate) fn undo(
        &self,
        subject: &Subject,
        which: Which,
        words: Words,
        prompts: &[Prompt],
        again: &str,
    ) -> Result<Report, String> {
        let (steps, elsewhere, by, own, prompt, dropped) = self.there(|store| {
            let book = store.book();
            let numbers = match which {
                Which::Latest => book.latest(words.force),
                Which::Since(messages) => book.since(messages),
            };
            let prompt = book.prompt_of(&numbers);
            let elsewhere: Vec<String> = book
                .elsewhere()
                .iter()
                .filter(|it| match which {
                    Which::Latest => prompt.is_some_and(|prompt| it.at > prompt),
                    Which::Since(messages) => it.at > messages,
                })
                .map(uncovered)
                .collect();
            let own = numbers.iter().all(|number| store.is_own(*number));
            let steps = book.steps(&numbers, words.force);
            Ok((steps, elsewhere, book.next_group(), own, prompt, book.dropped()))
        })?;
        if steps.is_empty() {
            let mut text = match which {
                Which::Latest => {
                    "there is nothing left to undo: kli changed no file that is covered, \
                     or all of it is undone"
                }
                Which::Since(_) => "kli changed no file since then",
            }
            .to_owned();
            if dropped > 0 {
                text.push_str("; older checkpoints were dropped to keep within the bounds");
            }
            for line in elsewhere {
                // Writing to a string cannot fail.
                let _infallible = write!(text, "\n{line}");
            }
            return match which {
                Which::Latest => Err(text),
                Which::Since(_) => Ok(Report { text, ..Report::default() }),
            };
        }
        let since = match which {
            Which::Latest => prompt.unwrap_or_default(),
            Which::Since(messages) => messages,
        };
        let asks = !own && !words.yes;
        if !asks {
            self.begin_undo(by);
        }
        let (mut text, mut numbers, mut left) = (String::new(), Vec::new(), Vec::new());
        let mut is_refused = false;
        for (step, verdict) in self.judge_all(&steps, words.force) {
            let (line, outcome) = if asks {
                (would(step, &verdict), Outcome::Done)
            } else {
                self.act(subject, step, verdict)
            };
            match outcome {
                Outcome::Done => numbers.extend(&step.numbers),
                Outcome::Left => left.extend(&step.numbers),
                Outcome::Refused => is_refused = true,
            }
            let _infallible = writeln!(text, "  {line}");
        }
        let head = prompts
            .iter()
            .rev()
            .find(|prompt| prompt.message == since)
            .map(|prompt| format!(" since the prompt `{}`", cut(&prompt.text, 50)))
            .unwrap_or_default();
        let mut report = if asks {
            format!(
                "these checkpoints were kept by an earlier run, and whatever ran in its jail could \
                 have written them; `{again} yes` would do this to what was changed{head}:\n{text}"
            )
        } else {
            format!("put back what was changed{head}:\n{text}")
        };
        for line in elsewhere {
            let _infallible = writeln!(report, "{line}");
        }
        report.push_str(&commands(prompts, since));
        if asks {
            return Ok(Report { text: report, asks, is_done: false });
        }
        if left.iter().any(|number| steps.iter().any(|step| step.numbers.contains(number))) {
            let _infallible = writeln!(
                report,
                "what was left alone can be put back all the same: `{again} force`"
            );
        }
        if is_refused {
            report.push_str(&refused(again));
        }
        self.end_undo();
        let is_done = !(numbers.is_empty() && left.is_empty());
        if is_done {
            self.there(|store| store.undone(numbers, left, by))
                .map_err(|error| format!("{report}{error}"))?;
        }
        Ok(Report { text: report, asks, is_done })
    }

    /// Takes the last undoing back.
    ///
    /// # Errors
    /// A sentence when there is none, or something was changed after it.
    pub(crate) fn redo(&self, subject: &Subject, words: Words) -> Result<Report, String> {
        let found = self.there(|store| {
            let Some((by, numbers)) = store.book().last_undo() else { return Ok(None) };
            let own = numbers.iter().all(|number| store.is_own(*number));
            Ok(Some((by, store.book().steps(&numbers, words.force), own)))
        })?;
        let Some((by, steps, own)) = found else {
            return Err(
                "there is nothing to do again: nothing was undone, or kli changed something \
                 after it"
                    .to_owned(),
            );
        };
        let asks = !own && !words.yes;
        let keep = words.force.then_some(self as &dyn Keep);
        if !asks {
            // What a forced one replaces is kept as one change of its own.
            self.end_undo();
        }
        let (mut lines, mut left, mut is_done) = (String::new(), Vec::new(), false);
        let (mut is_left, mut is_refused) = (false, false);
        for (step, verdict) in self.judge_all(&steps, words.force) {
            let line = if asks {
                would(step, &verdict)
            } else {
                let (line, outcome) = self.act_on(subject, step, verdict, keep);
                is_done |= outcome == Outcome::Done;
                is_left |= outcome == Outcome::Left;
                is_refused |= outcome == Outcome::Refused;
                if outcome != Outcome::Done {
                    left.push(&step.path);
                }
                line
            };
            let _infallible = writeln!(lines, "  {line}");
        }
        if asks {
            let text = format!(
                "these checkpoints were kept by an earlier run, and whatever ran in its jail could \
                 have written them; `/redo yes` would do this:\n{lines}"
            );
            return Ok(Report { text, asks, is_done: false });
        }
        self.end_undo();
        let head = if is_done { "took the last undoing back" } else { "nothing was taken back" };
        let mut text = format!("{head}:\n{lines}");
        if is_left {
            text.push_str("what was left alone can be taken back all the same: `/redo force`\n");
        }
        if is_refused {
            text.push_str(&refused("/redo"));
        }
        if is_done {
            self.there(|store| {
                let left = store.book().undone_by(by, &left);
                store.redone(by, left)
            })
            .map_err(|error| format!("{text}{error}"))?;
            text.push_str("the model is told with the next prompt\n");
        }
        Ok(Report { text, asks, is_done })
    }

    /// Returns how many files were changed when the session had more than so many messages.
    pub(crate) fn changed_since(&self, messages: u64) -> usize {
        self.there(|store| {
            let numbers = store.book().since(messages);
            Ok(store.book().steps(&numbers, false).len())
        })
        .unwrap_or_default()
    }

    /// Says what would become of each file.
    fn judge_all<'a>(&self, steps: &'a [Step], force: bool) -> Vec<(&'a Step, Verdict)> {
        let mut contents = Contents::default();
        steps.iter().map(|step| (step, self.judge(step, force, &mut contents))).collect()
    }

    /// Looks at what stands in a file's place, and says what would become of it.
    fn judge(&self, step: &Step, force: bool, contents: &mut Contents) -> Verdict {
        let now = Now::look(self.workspace(), &step.path);
        if now.is(&step.target) {
            return Verdict::Already;
        }
        if let State::Uncovered { why } = &step.target {
            return Verdict::Leave(format!("is not covered: it {why}"));
        }
        if let Now::Other(what) = now {
            return Verdict::Leave(what);
        }
        if !force && !step.known.iter().any(|known| now.is(known)) {
            return Verdict::Leave("was changed by something else since".to_owned());
        }
        let expected = match &now {
            Now::File { stamp, .. } => Expected::Unchanged(*stamp),
            _ => Expected::Absent,
        };
        match (&step.target, now) {
            (State::File { digest, mode, .. }, _) => match contents.get(self, *digest) {
                Ok(content) => Verdict::Put(content, *mode, expected),
                Err(why) => Verdict::Leave(why),
            },
            (_, Now::File { stamp, .. }) => Verdict::Remove(stamp),
            _ => Verdict::Already,
        }
    }

    fn act(&self, subject: &Subject, step: &Step, verdict: Verdict) -> (String, Outcome) {
        self.act_on(subject, step, verdict, Some(self))
    }

    /// Does it, under the run's authority; says what it did, and whether it is done.
    fn act_on(
        &self,
        subject: &Subject,
        step: &Step,
        verdict: Verdict,
        keep: Option<&dyn Keep>,
    ) -> (String, Outcome) {
        let file = name(&step.path);
        let path = self.workspace().join(step.path.path());
        let part = if step.is_part {
            " as something else left it, which changed it in between"
        } else {
            ""
        };
        let never = AtomicBool::new(false);
        let changed = match verdict {
            Verdict::Already => return (format!("as before: `{file}`"), Outcome::Done),
            Verdict::Leave(why) => return (format!("left alone: `{file}` {why}"), Outcome::Left),
            Verdict::Put(..) | Verdict::Remove(_) => {
                // The person asked for it, and sees what it is.
                let request = Request::path(Atom::FileWrite, &path);
                match subject.check_with(request, Approval::Given) {
                    Ok(grant) => match verdict {
                        Verdict::Put(content, mode, expected) => {
                            let manner = Manner { expected, stop: &never, keep, mode: Some(mode) };
                            files::replace_with(&grant, &path, &content, manner)
                                .map(|_| format!("restored: `{file}`{part}"))
                        }
                        Verdict::Remove(stamp) => files::remove(&grant, &path, Some(stamp), keep)
                            .map(|()| {
                                let gone = self.clean(subject, &step.made);
                                format!("removed: `{file}`{gone}")
                            }),
                        Verdict::Already | Verdict::Leave(_) => Ok(String::new()),
                    },
                    Err(denial) => {
                        return (format!("left alone: `{file}`: {denial}"), Outcome::Refused);
                    }
                }
            }
        };
        match changed {
            Ok(line) => (line, Outcome::Done),
            Err(error) => (format!("left alone: `{file}`: {}", error.sentence()), Outcome::Left),
        }
    }

    /// Removes the directories that were made for a file and hold nothing any more.
    fn clean(&self, subject: &Subject, made: &[Inside]) -> String {
        let mut gone = Vec::new();
        for directory in made.iter().rev() {
            let path = self.workspace().join(directory.path());
            let request = Request::path(Atom::FileWrite, &path);
            let Ok(grant) = subject.check_with(request, Approval::Given) else { break };
            if !matches!(files::remove_empty_directory(&grant, &path), Ok(true)) {
                break;
            }
            gone.push(format!("`{}`", name(directory)));
        }
        if gone.is_empty() { String::new() } else { format!(", and {}", gone.join(", ")) }
    }
}

fn would(step: &Step, verdict: &Verdict) -> String {
    let file = name(&step.path);
    match verdict {
        Verdict::Already => format!("as before: `{file}`"),
        Verdict::Put(content, ..) => format!("restore: `{file}`, to {} bytes", content.len()),
        Verdict::Remove(_) => format!("remove: `{file}`"),
        Verdict::Leave(why) => format!("leave alone: `{file}` {why}"),
    }
}

/// Says which calls after this prompt may have changed what is not covered.
fn commands(prompts: &[Prompt], since: u64) -> String {
    let calls: Vec<String> = prompts
        .iter()
        .filter(|prompt| prompt.message >= since)
        .flat_map(|prompt| &prompt.calls)
        .filter(|(name, _)| !COVERED.contains(&name.as_str()))
        .map(|(name, command)| {
            let shown = if command.is_empty() { name } else { command };
            format!("`{}`", cut(shown, COMMANDS.1))
        })
        .collect();
    if calls.is_empty() {
        return String::new();
    }
    let more = calls.len().saturating_sub(COMMANDS.0);
    let named: Vec<String> = calls.into_iter().take(COMMANDS.0).collect();
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("commands ran since ({}{more}): what they changed is not covered\n", named.join(", "))
}

#[cfg(test)]
mod tests;
