//! The state of the interface and how it changes: inputs in, effects out. Pure: time is a number
//! that the edge hands in, and nothing is drawn or sent here.
//!
//! What was said becomes rows once and is handed out to be emitted ([`State::take_rows`]); what may
//! still change (an open paragraph, running tools, what is being written) stays here and is drawn by
//! [`view`](super::view).

mod asked;
mod diff;
mod events;
mod transcript;
pub(super) mod writing;

use std::{collections::VecDeque, time::Duration};

use crate::{
    agent::Op,
    display::Keymap,
    message::{Money, Usage},
};

use super::{
    approval::Asking,
    block::{self, Finished, Kind},
    command::{self, By},
    complete::Completion,
    composer::{Composer, Done},
    earlier::Earlier,
    key::{Code, Key, Typed},
    markdown,
    picker::Picker,
    style::Line,
};

/// Within this time a second Esc or Ctrl-C counts as the same wish.
const TWICE: Duration = Duration::from_secs(2);
/// What the agent does when it does nothing else.
pub(super) const ASKING: &str = "asking the model";

/// How far the process is confined, for the footer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// By kli's own launcher.
    Jailed,
    /// By something else, or it cannot be told.
    Unverified,
    /// Not at all.
    Open,
}

/// What the footer and `/usage` say that does not come from events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// `PROVIDER/MODEL`.
    pub model: String,
    /// How much the model thinks, when that was chosen.
    pub effort: Option<String>,
    /// The models that may be asked, the chosen one first, each with the tokens that fit into its
    /// context, when that is known.
    pub windows: Vec<(String, Option<u64>)>,
    /// The profile.
    pub profile: String,
    /// The confinement in words.
    pub confinement: String,
    /// The same as a kind, for the colour.
    pub level: Level,
    /// The session's identifier, when one is kept.
    pub session: Option<String>,
}

/// What the edge is to do.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Tell the agent.
    Tell(Op),
    /// Have a command answered: its name and what followed it.
    Ask(&'static str, String),
    /// Begin another conversation.
    Begin(&'static str, String),
    /// Stop the process as a job of its shell.
    Suspend,
    /// Draw everything of the region anew.
    Redraw,
    /// Have the text edited in the person's editor.
    Edit(String),
    /// Look for the files that can be mentioned.
    Files,
    /// Leave.
    Quit,
}

/// A call that runs.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Running {
    pub(super) id: String,
    pub(super) title: String,
    /// The end of what it has printed.
    pub(super) output: String,
    pub(super) since: Duration,
}

/// What goes on while the agent works on a prompt.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Work {
    pub(super) since: Duration,
    pub(super) doing: String,
    /// The prompt, as long as nothing came of it.
    pub(super) prompt: Option<String>,
    pub(super) thinking: String,
    pub(super) tools: Vec<Running>,
    /// An interrupt was asked for.
    pub(super) stopping: bool,
    /// A request was made again, and what was said meanwhile went along with it.
    pub(super) repeated: bool,
    /// The prompt stands in the transcript already: the terminal showed it when it was typed.
    pub(super) shown: bool,
}

impl Work {
    pub(super) fn new(since: Duration, doing: &str, prompt: Option<String>) -> Self {
        let (doing, thinking, tools) = (doing.to_owned(), String::new(), Vec::new());
        let (stopping, repeated, shown) = (false, false, false);
        Self { since, doing, prompt, thinking, tools, stopping, repeated, shown }
    }
}

/// What a session took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Spent {
    pub(super) usage: Usage,
    /// What is known of the cost; `None` when nothing is.
    pub(super) cost: Option<Money>,
    /// Something was used whose price nobody knows.
    pub(super) more: bool,
}

impl Spent {
    /// Adds tokens and what they cost.
    pub(super) fn add(&mut self, usage: Usage, cost: Option<Money>) {
        self.usage.add(usage);
        match cost {
            Some(cost) => self.cost = Some(self.cost.unwrap_or(Money::ZERO).plus(cost)),
            None => self.more |= usage.total() > 0,
        }
    }

    /// Returns the cost in words.
    pub(super) fn cost(&self) -> Option<String> {
        let cost = self.cost.filter(|cost| *cost > Money::ZERO)?;
        let more = if self.more { " or more" } else { "" };
        Some(format!("{cost}{more}"))
    }
}

/// The state.
#[derive(Clone, Debug)]
pub struct State {
    pub(super) composer: Composer,
    /// What keys do.
    pub(super) keys: Keymap,
    pub(super) facts: Facts,
    pub(super) width: usize,
    pub(super) height: usize,
    pub(super) now: Duration,
    pub(super) work: Option<Work>,
    pub(super) answer: Option<markdown::Stream>,
    /// Said while the agent works, and not yet delivered.
    pub(super) steering: Vec<String>,
    /// To be sent when the agent is done.
    pub(super) next: Vec<String>,
    pub(super) hint: Option<(String, Duration)>,
    pub(super) spent: Spent,
    /// The same up to the prompt that is being worked on.
    pub(super) before: Spent,
    /// Tokens of the last request and its answer: what the context holds now. `None` when a conversation
    /// is gone on with and nothing was asked yet that would tell.
    pub(super) context: Option<u64>,
    rows: Vec<Line>,
    /// Whether the last row that was taken is blank; `None` when none was.
    ended_blank: Option<bool>,
    /// Commands that wait for their answer, as they were said.
    said_commands: VecDeque<String>,
    /// Whether what is said is on the screen already, since the terminal shows what is typed.
    pub(super) plain: bool,
    folded: Option<Finished>,
    escape: Option<Duration>,
    interrupt: Option<Duration>,
    /// Commands that were asked and not answered.
    pub(super) asked: usize,
    /// One of them changes the conversation that goes on.
    pub(super) switching: bool,
    /// What is being chosen from; it has the keys.
    pub(super) picker: Option<Picker>,
    pub(super) completion: Completion,
    /// How the session is called.
    pub(super) name: Option<String>,
    /// What was said and is not kept yet.
    said: Vec<String>,
    /// The question about a call that waits.
    pub(super) asking: Option<Asking>,
    /// Whether the key that is taken was read alone.
    alone: bool,
}

impl State {
    /// Returns the state of an interface that has just begun, on a terminal of this size.
    pub fn new(facts: Facts, width: usize, height: usize) -> Self {
        Self {
            composer: Composer::default(),
            keys: Keymap::default(),
            facts,
            width: width.max(1),
            height: height.max(1),
            now: Duration::ZERO,
            work: None,
            answer: None,
            steering: Vec::new(),
            next: Vec::new(),
            hint: None,
            spent: Spent::default(),
            before: Spent::default(),
            context: Some(0),
            rows: Vec::new(),
            ended_blank: None,
            said_commands: VecDeque::new(),
            plain: false,
            folded: None,
            escape: None,
            interrupt: None,
            asked: 0,
            switching: false,
            picker: None,
            completion: Completion::default(),
            name: None,
            said: Vec::new(),
            asking: None,
            alone: true,
        }
    }

    /// Sets the time since the start.
    pub fn at(&mut self, now: Duration) {
        self.now = now;
        if self.hint.as_ref().is_some_and(|(_, until)| *until <= now) {
            self.hint = None;
        }
    }

    /// Says whether the region changes by itself as time goes by.
    pub fn is_moving(&self) -> bool {
        self.work.is_some() || self.hint.is_some() || self.asked > 0
    }

    /// Says whether the agent works.
    pub fn is_working(&self) -> bool {
        self.work.is_some()
    }

    /// Returns the session's identifier.
    pub fn session(&self) -> Option<&str> {
        self.facts.session.as_deref()
    }

    /// The terminal has another size now.
    pub fn resize(&mut self, width: usize, height: usize) {
        self.width = width.max(1);
        self.height = height.max(1);
    }

    /// Says something about the run.
    pub fn say(&mut self, kind: Kind, text: &str) {
        self.finish_answer();
        let rows = block::notice(kind, text, self.width);
        self.rows.extend(rows);
    }

    /// The person leaves: what waits to be sent is said, and not sent any more.
    pub fn leaving(&mut self) {
        for text in std::mem::take(&mut self.next) {
            self.say(Kind::Note, &format!("not sent: {text}"));
        }
    }

    /// Sends a prompt as if it had been typed.
    pub fn submit(&mut self, text: String) -> Vec<Effect> {
        self.remember(&text);
        self.composer.remember(&text);
        self.send(text)
    }

    /// Another conversation has begun.
    pub fn begin(&mut self, facts: Facts, earlier: Earlier, notices: &[String]) {
        self.facts = facts;
        self.spent = Spent::default();
        self.before = Spent::default();
        self.context = earlier.is_nothing().then_some(0);
        self.asked = 0;
        self.said_commands.clear();
        self.asking = None;
        self.folded = None;
        self.picker = None;
        self.name = None;
        let Earlier { skipped, prompts, recent } = earlier;
        if skipped > 0 {
            let session = self.facts.session.clone().unwrap_or_default();
            self.say(
                Kind::Note,
                &format!(
                    "{skipped} earlier messages are not shown; `kli sessions show {session}` does"
                ),
            );
        }
        for prompt in prompts {
            self.composer.remember(&prompt);
        }
        for message in &recent {
            self.show(message);
        }
        for notice in notices {
            self.say(Kind::Warning, notice);
        }
    }

    /// Takes what came from the terminal.
    pub fn typed(&mut self, typed: &Typed) -> Vec<Effect> {
        match typed {
            Typed::Focus(_) => Vec::new(),
            Typed::Strange => {
                self.hint("what was typed is not UTF-8 and is left out; set the terminal to UTF-8");
                Vec::new()
            }
            Typed::Paste(text) => {
                if let Some(effects) = self.paste_to_question(text) {
                    return effects;
                }
                if !self.paste_around(text) {
                    self.composer.paste(text);
                }
                self.look_around(Vec::new())
            }
            Typed::Key(key) => {
                // A question is answered by the keys that it shows, whatever is bound.
                if let Some(effects) = self.key_to_question(*key) {
                    return effects;
                }
                let Some(key) = self.keys.meaning(*key) else { return Vec::new() };
                let around = self.key_around(key);
                let effects = around.unwrap_or_else(|| self.key(key));
                self.look_around(effects)
            }
        }
    }

    fn key(&mut self, key: Key) -> Vec<Effect> {
        let escape = self.escape.take();
        let interrupt = self.interrupt.take();
        if escape.or(interrupt).is_some() {
            // What was said about pressing it again does not hold any more.
            self.hint = None;
        }
        let recent =
            |at: Option<Duration>| at.is_some_and(|at| self.now.saturating_sub(at) < TWICE);
        match (key.code, key.ctrl, key.alt) {
            (Code::Esc, ..) => {
                if recent(escape) {
                    self.hint = None;
                    return self.interrupt();
                }
                self.escape = Some(self.now);
                if self.work.is_some() {
                    self.hint("Esc again interrupts");
                }
            }
            (Code::Char('c'), true, _) => {
                if recent(interrupt) {
                    return vec![Effect::Quit];
                }
                self.interrupt = Some(self.now);
                if self.work.is_some() {
                    self.hint("Ctrl-C again leaves");
                    return self.interrupt();
                }
                if !self.composer.is_empty() {
                    // It can be had again from the history.
                    self.composer.take();
                }
                self.hint("Ctrl-C again leaves");
            }
            (Code::Char('d'), true, _) if self.composer.is_empty() => return vec![Effect::Quit],
            (Code::Char('z'), true, _) => return vec![Effect::Suspend],
            (Code::Char('l'), true, _) => return vec![Effect::Redraw],
            (Code::Char('o'), true, _) => self.unfold(),
            (Code::Enter, false, false) if !key.shift => return self.enter(false),
            (Code::Tab, ..) => return self.tab(),
            _ => {
                let columns = super::view::composer_columns(self.width);
                if self.composer.key(key, columns) == Done::Ignored {
                    return Vec::new();
                }
            }
        }
        Vec::new()
    }

    fn hint(&mut self, text: &str) {
        self.hint = Some((text.to_owned(), self.now + TWICE));
    }

    fn interrupt(&mut self) -> Vec<Effect> {
        let Some(work) = &mut self.work else { return Vec::new() };
        if std::mem::replace(&mut work.stopping, true) {
            return Vec::new();
        }
        // What nothing came of returns to the editor, so the model must not have it as well.
        let op = if work.prompt.is_some() { Op::TakeBack } else { Op::Interrupt };
        vec![Effect::Tell(op)]
    }

    fn tab(&mut self) -> Vec<Effect> {
        if !self.completion.complete(&mut self.composer) && self.work.is_some() {
            return self.enter(true);
        }
        Vec::new()
    }

    /// Sends what is written: now, at the next boundary, or (`later`) when the agent is done.
    fn enter(&mut self, later: bool) -> Vec<Effect> {
        if self.composer.text().trim().is_empty() {
            return Vec::new();
        }
        if let Some(effects) = self.own_command() {
            return effects;
        }
        match command::parse(self.composer.text()) {
            Some(Ok((found, rest))) => {
                let said = self.composer.take();
                self.remember(&said);
                return self.command(found, rest);
            }
            Some(Err(sentence)) => {
                // It stays to be mended.
                self.say(Kind::Error, &sentence);
                return Vec::new();
            }
            None => {}
        }
        if self.is_switching() {
            // It must not run under what the person has just left.
            self.say(Kind::Error, super::change::NOT_YET);
            return Vec::new();
        }
        let text = self.composer.take();
        self.remember(&text);
        if self.work.is_none() {
            return self.send(text);
        }
        if later {
            self.next.push(text);
            return Vec::new();
        }
        self.steering.push(text.clone());
        vec![Effect::Tell(Op::Steer(text))]
    }

    fn command(&mut self, found: &'static command::Command, rest: String) -> Vec<Effect> {
        let said = command::said(found.name, &rest);
        match found.by {
            By::Interface => match found.name {
                "quit" => return vec![Effect::Quit],
                "compact" => return self.compact(rest),
                "usage" => {
                    let text = self.usage_text();
                    self.answered_at_once(&said, &text);
                }
                _ => {
                    let keys = if self.plain { command::LINES } else { &*self.keys.help() };
                    self.answered_at_once(&said, &command::help(keys));
                }
            },
            By::Conversation | By::Files if self.work.is_some() => {
                let does = match found.by {
                    By::Files => "puts files back or begins anew",
                    _ => "begins another conversation",
                };
                let sentence =
                    format!("`/{}` {does}; interrupt this one first (Esc Esc)", found.name);
                self.say(Kind::Error, &sentence);
            }
            By::Conversation if found.name == "resume" && rest.is_empty() => {
                self.asks(said);
                return vec![Effect::Ask(found.name, rest)];
            }
            By::Conversation => {
                self.asks(said);
                return vec![Effect::Begin(found.name, rest)];
            }
            By::Files => {
                self.asks(said);
                return vec![diff::goes_back(found.name, rest)];
            }
            By::Switch if self.work.is_some() && !rest.is_empty() => {
                self.say(Kind::Error, &super::change::busy(found.name));
            }
            By::Root | By::Switch => {
                self.switching =
                    self.is_switching() || (found.by == By::Switch && !rest.is_empty());
                self.asks(said);
                return vec![Effect::Ask(found.name, rest)];
            }
        }
        Vec::new()
    }

    fn usage_text(&self) -> String {
        let Usage { input_tokens, output_tokens, cache_read_tokens, cache_write_tokens } =
            self.spent.usage;
        let context = match (self.context, self.window()) {
            (None, _) => "known with the next answer".to_owned(),
            (Some(tokens), Some(window)) => format!("{tokens} tokens of {window}"),
            (Some(tokens), None) => format!("{tokens} tokens"),
        };
        let mut text = format!(
            "input: {input_tokens} tokens\noutput: {output_tokens} tokens\nread from the cache: \
             {cache_read_tokens} tokens\nwritten to the cache: {cache_write_tokens} tokens\n\
             context: {context}"
        );
        if let Some(cost) = self.spent.cost() {
            text = format!("{text}\ncost: {cost}");
        }
        text
    }

    /// Tokens that fit into the context of the model that is asked.
    pub(super) fn window(&self) -> Option<u64> {
        let asked = self.facts.windows.iter().find(|(name, _)| *name == self.facts.model);
        asked.and_then(|(_, window)| *window).filter(|window| *window > 0)
    }

    /// Has the conversation made shorter: now, or at the next boundary.
    fn compact(&mut self, focus: String) -> Vec<Effect> {
        if self.work.is_none() {
            self.work = Some(Work::new(self.now, "compacting the conversation", None));
        } else {
            self.hint("the conversation is compacted at the next boundary");
        }
        vec![Effect::Tell(Op::Compact { focus: Some(focus).filter(|focus| !focus.is_empty()) })]
    }

    fn send(&mut self, text: String) -> Vec<Effect> {
        self.work = Some(Work::new(self.now, ASKING, Some(text.clone())));
        vec![Effect::Tell(Op::Submit(text))]
    }

    fn unfold(&mut self) {
        match self.folded.take() {
            Some(finished) => {
                self.finish_answer();
                let (rows, _) = finished.rows(self.width, true);
                self.rows.extend(rows);
            }
            None => self.hint("nothing is folded"),
        }
    }
}

#[cfg(test)]
mod tests;
