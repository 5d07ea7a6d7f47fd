//! The question about a call, and the person's own commands, as changes of the state.

use crate::agent::{
    Op,
    approval::{Answer, Question},
};

use super::{
    super::{
        approval::{Asking, Took},
        block::Kind,
        key::Key,
    },
    Effect, State, Work,
};

impl State {
    /// A call waits for an answer.
    pub(super) fn asked_about(&mut self, question: Question) {
        self.came();
        self.finish_answer();
        if let Some(work) = &mut self.work {
            work.doing =
                format!("{} waits for your answer", super::super::cells::clean_row(&question.tool));
        }
        self.asking = Some(Asking::new(question, !self.composer.is_empty()));
    }

    /// A question is over without an answer.
    pub(super) fn withdrawn(&mut self, id: u64) {
        if self.asking.as_ref().is_some_and(|asking| asking.question().id == id) {
            self.asking = None;
            self.say(Kind::Note, "the question is over; the call did nothing");
        }
    }

    /// Returns the question that is open.
    pub fn open_question(&self) -> Option<&Asking> {
        self.asking.as_ref()
    }

    /// A frame of the state as it is was made.
    pub fn framed(&mut self) {
        if let Some(asking) = &mut self.asking {
            asking.framed();
        }
    }

    /// The terminal has taken all frames.
    pub fn written(&mut self) {
        let now = self.now;
        if let Some(asking) = &mut self.asking {
            asking.written(now);
        }
    }

    /// Says whether it matters that nothing waits to be read.
    pub fn wants_quiet(&self) -> bool {
        self.asking.as_ref().is_some_and(|asking| !asking.is_armed())
    }

    /// Nothing waits to be read.
    pub fn quiet(&mut self) {
        let now = self.now;
        if let Some(asking) = &mut self.asking {
            asking.quiet(now);
        }
    }

    /// What was read holds one key and nothing else, or not.
    pub fn alone(&mut self, alone: bool) {
        self.alone = alone;
    }

    /// Gives a key to the question; `None` when it is not for it.
    pub(super) fn key_to_question(&mut self, key: Key) -> Option<Vec<Effect>> {
        let size = super::super::view::question_size(self);
        let (now, alone) = (self.now, self.alone);
        let took = self.asking.as_mut()?.key(key, alone, now, size);
        self.took(took)
    }

    /// Gives a paste to the question.
    pub(super) fn paste_to_question(&mut self, text: &str) -> Option<Vec<Effect>> {
        let now = self.now;
        let took = self.asking.as_mut()?.paste(text, now);
        self.took(took)
    }

    /// Gives a line to the question, where there are no keys.
    pub fn line_to_question(&mut self, line: &str) -> Option<Vec<Effect>> {
        let asking = self.asking.as_ref().filter(|asking| asking.is_armed())?;
        match asking.line(line) {
            Ok(answer) => self.took(Took::Answer(answer)),
            Err(sentence) => {
                self.say(Kind::Warning, sentence);
                Some(Vec::new())
            }
        }
    }

    fn took(&mut self, took: Took) -> Option<Vec<Effect>> {
        match took {
            Took::Nothing => None,
            Took::Key => Some(Vec::new()),
            Took::Hint(text) => {
                self.hint(text);
                Some(Vec::new())
            }
            Took::Answer(answer) => {
                let asking = self.asking.take()?;
                let question = asking.question();
                if let (Answer::Always, Some(always)) = (&answer, &question.always) {
                    let text = format!("not asked about any more: {always}");
                    self.say(Kind::Note, &text);
                }
                self.hint = None;
                Some(vec![Effect::Tell(Op::Approve { id: question.id, answer })])
            }
        }
    }

    /// Runs a command of the person's own: `!command` tells the conversation of it, `!!command` does
    /// not. `None` when the text is none.
    pub(super) fn own_command(&mut self) -> Option<Vec<Effect>> {
        let rest = self.composer.text().strip_prefix('!')?;
        if rest.trim_start_matches('!').trim().is_empty() {
            self.say(Kind::Error, "a command follows `!`, or `!!` when the model is not to see it");
            return Some(Vec::new());
        }
        if self.work.is_some() {
            // It stays to be sent later.
            self.say(
                Kind::Error,
                "a command of your own runs only while the agent is idle; interrupt it (Esc Esc), or \
                 wait",
            );
            return Some(Vec::new());
        }
        let text = self.composer.take();
        self.remember(&text);
        let (tells, command) = match text.strip_prefix("!!") {
            Some(command) => (false, command),
            None => (true, text.strip_prefix('!').unwrap_or(&text)),
        };
        let command = command.trim().to_owned();
        let doing = if tells { "running your command" } else { "running your command, untold" };
        self.work = Some(Work::new(self.now, doing, Some(text)));
        Some(vec![Effect::Tell(Op::Shell { command, tells })])
    }
}
