//! Running the calls of one turn: find the tool, read the arguments, check the authority, run.
//!
//! Each call becomes a [`CallResult`], whatever goes wrong with it; the others run all the same.

use std::{
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
};

use futures_util::future::{BoxFuture, FutureExt as _, join_all};
use tokio::sync::{mpsc::UnboundedSender, watch};

use crate::{
    authority::{Approval, Atom, Denial, Grant, Request, Rule, Subject},
    message::{Arguments, Redactor, ToolCall, ToolResult},
    tool::{Context, Effect, Invocation, Outcome, Sink, Tool},
};

use super::{
    Denied, Event,
    around::{Places, paths},
    asking::{Consent, Unanswered},
    driver::emit,
    nested::Heard,
    schedule,
    task::Task,
    turn::CallResult,
};

/// Tools that have a name and an atom and that an agent may be without: `eval` is not part of this
/// version, and a sub-agent has no `task`. A call is denied when the atom is not held, and answered
/// honestly when it is.
const NOT_YET: &[(&str, Atom)] = &[("eval", Atom::ImageEval), (Task::NAME, Atom::AgentSpawn)];

/// What a result says that lost a key. [`MARK`](crate::message::MARK) is what stands there.
const TAKEN: &str = "\n[a provider's key was taken out and stands as `…`; writing that back would \
     lose the key]";

/// Returns the names of all tools that kli knows, those of later versions included.
pub fn tool_names() -> Vec<&'static str> {
    let mut names: Vec<&'static str> =
        crate::tool::standard().iter().map(|tool| tool.name()).collect();
    names.extend(NOT_YET.iter().map(|(name, _)| *name));
    names.sort_unstable();
    names.dedup();
    names
}

/// What the calls of a turn run with.
#[derive(Clone, Debug)]
pub(super) struct Bench {
    pub(super) tools: Arc<Vec<Box<dyn Tool>>>,
    pub(super) subject: Arc<Subject>,
    pub(super) context: Arc<Context>,
    pub(super) redactor: Redactor,
    /// Where calls worked, for the context files there.
    pub(super) places: Arc<Places>,
    /// What the calls within the call that runs came to.
    pub(super) heard: Arc<Mutex<Heard>>,
    /// Who says yes to calls that need it.
    pub(super) consent: Consent,
    /// The calls that wait for that.
    pub(super) unanswered: Arc<Unanswered>,
}

impl Bench {
    /// Starts all calls of a turn; each sends its result when it ends. Dropping the future stops
    /// what still runs.
    pub(super) fn work(
        &self,
        calls: Vec<ToolCall>,
        events: &UnboundedSender<Event>,
        results: &UnboundedSender<CallResult>,
    ) -> BoxFuture<'static, ()> {
        // All are understood before any runs: what an edit's anchors stand for is what the model
        // saw, not what an earlier call of the same turn has made of it.
        let mut prepared: Vec<Option<Box<dyn Invocation>>> =
            calls.iter().map(|call| self.prepare(call).and_then(Result::ok)).collect();
        let effects: Vec<Effect> = calls
            .iter()
            .zip(&prepared)
            .map(|(call, invocation)| match invocation {
                Some(invocation) => invocation.effect(),
                // One that cannot be understood yet may be once the calls before it have run.
                None if self.find(&call.name).is_some() => Effect::Barrier,
                None => Effect::Read,
            })
            .collect();
        let waits = schedule::waits(&effects);
        for (invocation, waits) in prepared.iter_mut().zip(&waits) {
            // After a call that may touch anything, paths must be looked at anew.
            if waits.iter().any(|earlier| effects.get(*earlier) == Some(&Effect::Barrier)) {
                *invocation = None;
            }
        }
        let gates: Vec<(watch::Sender<bool>, watch::Receiver<bool>)> =
            calls.iter().map(|_| watch::channel(false)).collect();
        let ends: Vec<watch::Receiver<bool>> = gates.iter().map(|(_, end)| end.clone()).collect();
        let jobs: Vec<BoxFuture<'static, ()>> = calls
            .into_iter()
            .zip(prepared)
            .zip(waits)
            .zip(gates)
            .enumerate()
            .map(|(index, (((call, invocation), waits), (done, _)))| {
                let before: Vec<watch::Receiver<bool>> =
                    waits.iter().filter_map(|earlier| ends.get(*earlier).cloned()).collect();
                let bench = self.clone();
                let events = events.clone();
                let results = results.clone();
                async move {
                    for mut end in before {
                        // An error means that the earlier call is gone, so it has ended.
                        drop(end.wait_for(|ended| *ended).await);
                    }
                    let result = bench.call(index, call, invocation, &events).await;
                    // A closed channel means that the run was stopped; nobody waits for it.
                    drop(results.send(result));
                    done.send_replace(true);
                }
                .boxed()
            })
            .collect();
        join_all(jobs).map(|_| ()).boxed()
    }

    fn find(&self, name: &str) -> Option<&dyn Tool> {
        self.tools.iter().find(|tool| tool.name() == name).map(|tool| &**tool)
    }

    /// Reads a call's arguments; `None` when there is no such tool.
    fn prepare(&self, call: &ToolCall) -> Option<Result<Box<dyn Invocation>, String>> {
        let tool = self.find(&call.name)?;
        Some(match &call.arguments {
            Arguments::Object(map) => tool.prepare(map, &self.context),
            Arguments::Malformed(text) => Err(malformed(text)),
        })
    }

    pub(super) async fn call(
        &self,
        index: usize,
        mut call: ToolCall,
        prepared: Option<Box<dyn Invocation>>,
        events: &UnboundedSender<Event>,
    ) -> CallResult {
        // Nothing has begun while a person is asked.
        let admission = self.admit(&mut call, prepared).await;
        emit(
            events,
            Event::ToolStarted {
                id: call.id.clone(),
                name: call.name.clone(),
                arguments: call.arguments.clone(),
            },
        );
        let (mut denied, mut declined, mut allowed) = (Vec::new(), Vec::new(), Vec::new());
        let mut told = Vec::new();
        let mut outcome = match admission {
            Admission::Run(invocation, grants, atoms, changed) => {
                allowed = atoms;
                told.extend(changed);
                let pieces = Arc::new(Mutex::new(self.redactor.pieces()));
                let (id, sender, live) = (call.id.clone(), events.clone(), Arc::clone(&pieces));
                let show = move |text: String| {
                    if !text.is_empty() {
                        emit(&sender, Event::ToolOutput { id: id.clone(), text });
                    }
                };
                let show_rest = show.clone();
                let sink: Sink = Arc::new(move |text: &str| {
                    show(live.lock().unwrap_or_else(PoisonError::into_inner).push(text));
                });
                let requested = paths(&*invocation);
                let outcome = invocation.run(grants, sink).await;
                self.places.note(requested, &outcome);
                show_rest(pieces.lock().unwrap_or_else(PoisonError::into_inner).finish());
                outcome
            }
            Admission::Refuse(text) => Outcome::error(text),
            Admission::Over(outcome) => outcome,
            Admission::Deny(denial) | Admission::Ask(_, denial) => {
                denied.push(self.denied(&call.name, &denial));
                Outcome::error(format!("{denial}; nothing was done"))
            }
            Admission::Decline(denial, sentence) => {
                declined.push(self.denied(&call.name, &denial));
                Outcome::error(refused(&denial, sentence.as_deref()))
            }
        };
        let heard = Heard::take(&self.heard);
        denied.extend(heard.denied);
        declined.extend(heard.declined);
        allowed.extend(heard.allowed);
        outcome.changed.extend(heard.changed);
        told.extend(heard.told);
        for note in told {
            outcome.text.push('\n');
            outcome.text.push_str(&note);
        }
        for denied in denied.iter().chain(&declined) {
            emit(events, Event::Denied { id: call.id.clone(), denied: denied.clone() });
        }
        // Refusals as well: that of an edit shows the lines that are there.
        let outcome = self.clean(self.bounded(outcome));
        emit(
            events,
            Event::ToolFinished {
                id: call.id.clone(),
                name: call.name.clone(),
                text: outcome.text.clone(),
                is_error: outcome.is_error,
                record: outcome.record,
            },
        );
        let result = ToolResult { call: call.id, text: outcome.text, is_error: outcome.is_error };
        CallResult { index, result, denied, declined, allowed, changed: outcome.changed }
    }

    /// Keeps what went wrong within the budget of one result: it may quote what was given, or what
    /// another program said, however long that is. Tools cut what they found themselves.
    fn bounded(&self, mut outcome: Outcome) -> Outcome {
        if outcome.is_error {
            outcome.text = self.context.state.results.cut(&outcome.text, "give less");
        }
        outcome
    }

    /// Returns a refusal as results list it.
    pub(super) fn denied(&self, tool: &str, denial: &Denial) -> Denied {
        Denied {
            tool: tool.to_owned(),
            atom: denial.request.atom.to_string(),
            // The path is the physical one, which nobody has said yet.
            detail: short(&self.redactor.redact(&denial.sentence())),
        }
    }

    /// Takes the keys of providers out of what a tool found, before anyone gets it.
    pub(super) fn clean(&self, mut outcome: Outcome) -> Outcome {
        if self.redactor.finds(outcome.text.as_bytes()) {
            self.redactor.text(&mut outcome.text);
            outcome.text.push_str(TAKEN);
        }
        self.redactor.value(&mut outcome.record);
        for path in &mut outcome.changed {
            let name = path.to_string_lossy();
            if self.redactor.finds(name.as_bytes()) {
                *path = PathBuf::from(self.redactor.redact(&name).into_owned());
            }
        }
        outcome
    }

    /// Decides about a call, given what a person said: the only way from a model's words to an effect.
    pub(super) fn decide(
        &self,
        call: &ToolCall,
        prepared: Option<Box<dyn Invocation>>,
        approval: Approval,
    ) -> Admission {
        let Some(tool) = self.find(&call.name) else {
            return self.admit_unknown(&call.name);
        };
        if let Err(denial) = self.subject.check_tool(tool.name(), &tool.atom()) {
            return Admission::Deny(denial);
        }
        let prepared = prepared.map(Ok).or_else(|| self.prepare(call));
        let invocation = match prepared.unwrap_or_else(|| Err("there is no such tool".into())) {
            Ok(invocation) => invocation,
            // What is not held at all is denied whatever the arguments say.
            Err(_) if !self.subject.holds(&tool.atom()) => return self.deny_bare(tool.atom()),
            Err(sentence) => return Admission::Refuse(sentence),
        };
        let mut grants = Vec::new();
        let mut allowed = Vec::new();
        let mut unapproved = None;
        for request in invocation.requests() {
            let atom = request.atom.to_string();
            match self.subject.check_with(request, approval) {
                Ok(grant) => {
                    grants.push(grant);
                    allowed.push(atom);
                }
                // A person is asked only about what the authority allows as a whole.
                Err(denial) if matches!(denial.rule, Rule::Approval(_)) => {
                    unapproved.get_or_insert(denial);
                }
                Err(denial) => return Admission::Deny(denial),
            }
        }
        if let Some(denial) = unapproved {
            return Admission::Ask(invocation, denial);
        }
        let wishes = invocation.wishes().into_iter();
        grants.extend(wishes.filter_map(|wish| self.subject.check_with(wish, approval).ok()));
        Admission::Run(invocation, grants, allowed, None)
    }

    fn deny_bare(&self, atom: Atom) -> Admission {
        match self.subject.check(Request::bare(atom)) {
            Err(denial) => Admission::Deny(denial),
            Ok(_) => Admission::Refuse("the call could not be understood".to_owned()),
        }
    }

    fn admit_unknown(&self, name: &str) -> Admission {
        if let Some((_, atom)) = NOT_YET.iter().find(|(known, _)| *known == name) {
            if let Err(denial) = self.subject.check_tool(name, atom) {
                return Admission::Deny(denial);
            }
            if !self.subject.holds(atom) {
                return self.deny_bare(atom.clone());
            }
            return Admission::Refuse(format!("the tool `{name}` is not part of this version"));
        }
        let names: Vec<&str> = self
            .tools
            .iter()
            .filter(|tool| self.subject.offers(tool.name(), &tool.atom()))
            .map(|tool| tool.name())
            .collect();
        Admission::Refuse(format!("there is no tool `{name}`; the tools are: {}", names.join(", ")))
    }
}

pub(super) enum Admission {
    /// It runs, with these grants, under these atoms; perhaps there is something to tell of it.
    Run(Box<dyn Invocation>, Vec<Grant>, Vec<String>, Option<String>),
    /// It cannot be understood.
    Refuse(String),
    /// The authority does not reach that far, or nobody can be asked.
    Deny(Box<Denial>),
    /// It is within the authority, and a person must approve it.
    Ask(Box<dyn Invocation>, Box<Denial>),
    /// A person did not approve it, perhaps with a sentence for the model.
    Decline(Box<Denial>, Option<String>),
    /// It can have no effect, and this is what comes of it.
    Over(Outcome),
}

/// Returns what the model is told of a call that a person did not approve.
pub(super) fn refused(denial: &Denial, sentence: Option<&str>) -> String {
    match sentence {
        Some(sentence) => format!("{denial}; nothing was done. The person says: {sentence}"),
        None => format!("{denial}; nothing was done"),
    }
}

/// The most characters of a refusal's sentence in results and sessions.
const SENTENCE: usize = 2000;

fn short(text: &str) -> String {
    match text.char_indices().nth(SENTENCE) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    }
}

fn malformed(text: &str) -> String {
    let shown: String = text.chars().take(400).collect();
    let cut = if shown.len() < text.len() { " (cut)" } else { "" };
    format!("the arguments are not a JSON object, nothing was done; they were{cut}: {shown}")
}
