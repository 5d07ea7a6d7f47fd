//! What the agent says, as changes of the state.

use std::time::Duration;

use crate::agent::{Event, Outcome, Summary};

use super::{
    super::{
        block::{self, Finished, Kind},
        cells::clean_row,
    },
    ASKING, Effect, Running, State, Work,
};

/// Bytes of a running tool's output that are kept to be shown.
const OUTPUT: usize = 4096;
/// Bytes of thinking that are kept to be shown.
const THINKING: usize = 2048;

impl State {
    /// Takes an event.
    pub fn event(&mut self, event: Event) -> Vec<Effect> {
        match event {
            Event::Asking { turn } => self.asking(turn),
            Event::Text(text) => {
                self.came();
                self.thought();
                self.doing("answering");
                self.answer.get_or_insert_default().push(&text);
            }
            Event::Thinking(text) => {
                self.came();
                self.doing("thinking");
                if let Some(work) = &mut self.work {
                    work.thinking.push_str(&text);
                    keep_end(&mut work.thinking, THINKING);
                }
            }
            Event::ToolStarted { id, name, arguments } => {
                self.came();
                self.thought();
                self.finish_answer();
                let title = block::title(&name, &arguments);
                self.doing(&format!("running {}", clean_row(&name)));
                let since = self.now;
                if let Some(work) = &mut self.work {
                    work.tools.push(Running { id, title, output: String::new(), since });
                }
            }
            Event::ToolOutput { id, text } => {
                let tools = self.work.iter_mut().flat_map(|work| &mut work.tools);
                for tool in tools.filter(|tool| tool.id == id) {
                    let from = text.len().saturating_sub(OUTPUT);
                    tool.output.push_str(text.get(floor(&text, from)..).unwrap_or_default());
                    keep_end(&mut tool.output, OUTPUT);
                }
            }
            Event::ToolFinished { id, name, text, is_error, record } => {
                self.finished(&id, name, text, is_error, record);
            }
            Event::Denied { denied, .. } => {
                self.say(Kind::Warning, &format!("denied {}: {}", denied.tool, denied.detail));
            }
            Event::Usage { usage, cost, .. } => {
                self.spent.add(usage, cost);
                self.context = Some(usage.total());
            }
            Event::FellBack { from, to, reason } => {
                let said = format!("{reason}; `{to}` is asked in the place of `{from}`");
                self.say(Kind::Warning, &said);
                self.facts.model = to;
                self.again(ASKING);
            }
            Event::Compacted(done) => {
                self.say(Kind::Note, &done.to_string());
                self.context = Some(done.after);
                self.doing(ASKING);
            }
            Event::Retrying { attempt, of, after, reason } => {
                self.say(Kind::Warning, &reason);
                let seconds = after.as_secs_f64();
                self.again(&format!("retry {attempt} of {of} in {seconds:.1} s"));
            }
            Event::Notice(text) => self.say(Kind::Note, &text),
            Event::Done(summary) => return self.done(&summary),
            Event::Approval(question) => self.asked_about(*question),
            Event::Withdrawn { id } => self.withdrawn(id),
            Event::Timings(_) => {}
        }
        Vec::new()
    }

    /// The agent has gone: what it does not say any more is not waited for.
    pub fn agent_is_gone(&mut self) {
        self.asking = None;
        if self.work.take().is_some() {
            self.say(Kind::Error, "the agent ended without a result");
        }
        let left = std::mem::take(&mut self.steering);
        self.give_back(&left);
    }

    /// A request is made again, and what was said meanwhile goes along.
    fn again(&mut self, doing: &str) {
        self.doing(doing);
        if let Some(work) = &mut self.work {
            work.repeated = true;
        }
    }

    fn doing(&mut self, what: &str) {
        if let Some(work) = &mut self.work {
            what.clone_into(&mut work.doing);
        }
    }

    fn asking(&mut self, turn: u64) {
        self.finish_answer();
        if let (1, Some((chosen, _))) = (turn, self.facts.windows.first()) {
            self.facts.model.clone_from(chosen);
        }
        // What was said the moment the agent was done has become a prompt.
        let now = self.now;
        self.work.get_or_insert_with(|| Work::new(now, ASKING, None)).repeated = false;
        self.told();
        self.doing(ASKING);
    }

    /// What was said while the agent worked is part of the transcript now.
    fn told(&mut self) {
        for text in std::mem::take(&mut self.steering) {
            self.came();
            self.tell(&text);
        }
    }

    /// Something came of the prompt: it is part of the transcript now.
    pub(super) fn came(&mut self) {
        let Some(work) = &mut self.work else { return };
        if let Some(text) = work.prompt.take().filter(|_| !work.shown) {
            self.tell(&text);
        }
    }

    /// Thinking is over: it leaves one line.
    fn thought(&mut self) {
        if let Some(work) = &mut self.work {
            work.thinking.clear();
        }
    }

    /// What is open of the answer is complete.
    pub(super) fn finish_answer(&mut self) {
        if let Some(mut answer) = self.answer.take() {
            let rows = answer.finish(self.width);
            self.rows.extend(rows);
            self.rows.push(super::Line::default());
        }
    }

    fn finished(
        &mut self,
        id: &str,
        name: String,
        text: String,
        is_error: bool,
        record: serde_json::Value,
    ) {
        self.finish_answer();
        let mut title = clean_row(&name);
        if let Some(work) = &mut self.work
            && let Some(at) = work.tools.iter().position(|tool| tool.id == id)
        {
            let ended = work.tools.remove(at);
            title = ended.title;
            let took = self.now.saturating_sub(ended.since);
            if took >= Duration::from_secs(2) {
                title = format!("{title} · {} s", took.as_secs());
            }
        }
        let finished = Finished { title, name, text, is_error, record };
        let key = self.keys.label("unfold");
        let (rows, folded) = finished.rows_with(self.width, false, &key);
        self.rows.extend(rows);
        if folded {
            self.folded = Some(finished);
        }
        if self.work.as_ref().is_some_and(|work| work.tools.is_empty()) {
            self.doing(ASKING);
        }
    }

    /// A call that never finished stays in the transcript, with the end of what it printed.
    fn broken_off(&mut self, call: Running) {
        let record = serde_json::json!({ "interrupted": true });
        // Of what a program prints the end is what matters, whoever started it.
        let name = "bash".to_owned();
        let (title, text) = (call.title, call.output);
        let broken = Finished { title, name, text, is_error: true, record };
        self.rows.extend(broken.rows(self.width, false).0);
    }

    fn done(&mut self, summary: &Summary) -> Vec<Effect> {
        self.asking = None;
        self.finish_answer();
        let mut work = self.work.take();
        for call in work.iter_mut().flat_map(|work| std::mem::take(&mut work.tools)) {
            self.broken_off(call);
        }
        let repeated = work.as_ref().is_some_and(|work| work.repeated);
        let shown = work.as_ref().is_some_and(|work| work.shown);
        let prompt = work.and_then(|work| work.prompt);
        // Nothing came of it: it goes back to where it can be changed, before all that was said since.
        let (back, stays) = if summary.withdrawn { (prompt, None) } else { (None, prompt) };
        if let Some(prompt) = stays.filter(|_| !shown) {
            self.tell(&prompt);
        }
        self.before.add(summary.usage, summary.cost);
        self.spent = self.before;
        if let Some(asked) = &summary.model {
            self.facts.model.clone_from(asked);
        }
        if let Some(fault) = &summary.fault {
            self.say(Kind::Error, &fault.message);
        }
        match summary.outcome {
            Outcome::Denied => self.say(Kind::Warning, "the run was denied what it needed"),
            Outcome::Incomplete => self.say(Kind::Warning, "the answer is incomplete"),
            Outcome::Interrupted if summary.withdrawn => {
                self.say(Kind::Note, "interrupted; the prompt was taken back");
            }
            Outcome::Interrupted => self.say(Kind::Note, "interrupted"),
            Outcome::Ok | Outcome::Error | Outcome::Budget => {}
        }
        let mut left = summary.undelivered.clone();
        for text in &left {
            if let Some(at) = self.steering.iter().position(|said| said == text) {
                self.steering.remove(at);
            }
        }
        // The rest the agent has: it went along with a request, or came after the end and is a prompt.
        let begins = !self.steering.is_empty() && !repeated;
        self.told();
        if begins {
            self.work = Some(Work::new(self.now, ASKING, None));
        }
        if summary.outcome == Outcome::Ok {
            left.append(&mut self.next);
            self.next = left;
            if !begins && !self.next.is_empty() {
                let text = self.next.remove(0);
                return self.send(text);
            }
            return Vec::new();
        }
        left.splice(0..0, back);
        left.append(&mut self.next);
        self.give_back(&left);
        Vec::new()
    }

    /// What was not delivered is nobody's loss: it comes back to be sent or changed.
    fn give_back(&mut self, left: &[String]) {
        if !left.is_empty() {
            self.composer.put_before(&left.join("\n"));
        }
    }
}

fn floor(text: &str, mut at: usize) -> usize {
    while !text.is_char_boundary(at) {
        at += 1;
    }
    at
}

/// Keeps the end of a text.
fn keep_end(text: &mut String, most: usize) {
    if text.len() > most {
        let from = floor(text, text.len() - most);
        text.drain(..from);
    }
}
