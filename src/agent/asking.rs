//! Deciding about a call where a person can be asked: authority first, then the question, then
//! authority again on what runs.

use std::sync::{Arc, Mutex, PoisonError, atomic::AtomicBool, atomic::Ordering};

use serde_json::{Map, Value};

use crate::{
    authority::{Approval, Atom, Denial, Detail, Grant, Request, Rule},
    message::{Arguments, ToolCall},
    tool::{
        Invocation, Outcome,
        preview::{Change, Preview},
    },
};

use super::{
    Denied,
    approval::{Answer, Approver, Covered, Question, Shown},
    work::{Admission, Bench},
};

/// The most characters of a person's sentence that the model is told.
const SENTENCE: usize = 4000;

/// Who says yes to calls that need it.
#[derive(Clone, Debug)]
pub(super) enum Consent {
    /// Nobody can be asked.
    Nobody,
    /// A person is asked.
    Person(Approver),
    /// The person makes the call.
    Own,
}

impl Consent {
    /// The same for the calls that a call of this tool makes.
    pub(super) fn within(&self, tool: &str) -> Self {
        match self {
            Self::Person(approver) => Self::Person(approver.of(tool)),
            other => other.clone(),
        }
    }
}

/// The calls that wait for an answer: what is listed when the run is stopped before there is one.
#[derive(Debug, Default)]
pub(super) struct Unanswered(Mutex<Vec<(String, Denied)>>);

impl Unanswered {
    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<(String, Denied)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the calls that wait now, each with its refusal.
    pub(super) fn now(&self) -> Vec<(String, Denied)> {
        self.lock().clone()
    }
}

/// A call that waits.
struct Waits<'a> {
    list: &'a Unanswered,
    id: String,
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.list.lock().retain(|(id, _)| *id != self.id);
    }
}

impl Bench {
    /// Decides about a call, and asks a person where that is needed. The call is the one that runs: a
    /// person may change it.
    pub(super) async fn admit(
        &self,
        call: &mut ToolCall,
        prepared: Option<Box<dyn Invocation>>,
    ) -> Admission {
        let approval = match self.consent {
            Consent::Own => Approval::Given,
            Consent::Nobody | Consent::Person(_) => Approval::CannotAsk,
        };
        match (self.decide(call, prepared, approval), &self.consent) {
            (Admission::Ask(invocation, denial), Consent::Person(approver)) => {
                self.ask(approver, call, invocation, &denial).await
            }
            (Admission::Ask(_, denial), _) => Admission::Deny(denial),
            (admission, _) => admission,
        }
    }

    async fn ask(
        &self,
        approver: &Approver,
        call: &mut ToolCall,
        invocation: Box<dyn Invocation>,
        denial: &Denial,
    ) -> Admission {
        let refusal = |rule: Rule| {
            Box::new(Denial { rule, removed_by: denial.removed_by.clone(), ..denial.clone() })
        };
        let _waits = (!call.id.is_empty()).then(|| {
            let denied = self.denied(&call.name, &refusal(Rule::Unanswered));
            self.unanswered.lock().push((call.id.clone(), denied));
            Waits { list: &self.unanswered, id: call.id.clone() }
        });
        let _turn = approver.turn().await;
        let Arguments::Object(arguments) = &call.arguments else {
            return Admission::Deny(refusal(Rule::Declined));
        };
        let arguments = arguments.clone();
        let facts = invocation.facts();
        let covered = covered(call, &arguments, &*invocation, &facts);
        if covered.as_ref().is_some_and(|covered| approver.knows(covered)) {
            return self.decide(call, Some(invocation), Approval::Given);
        }
        let edits = match call.name.as_str() {
            "bash" => editable("command", &arguments),
            "eval" => editable("form", &arguments),
            _ => None,
        };
        let mut note = None;
        loop {
            let change = match self.preview(&*invocation).await {
                Some(Preview::Refused(outcome)) => return Admission::Over(outcome),
                Some(Preview::Change(change)) => Some(change),
                None => None,
            };
            let question = Question {
                id: 0,
                tool: call.name.clone(),
                by: Vec::new(),
                needs: needs(&*invocation),
                why: why(denial),
                shows: self.shows(&arguments, &facts, change.clone()),
                always: covered.as_ref().map(Covered::words),
                edits: edits.clone(),
                note: note.take(),
            };
            match approver.ask(question).await {
                None => return Admission::Decline(refusal(Rule::Unanswered), None),
                Some(Answer::Deny(sentence)) => {
                    let sentence = sentence
                        .map(|text| text.trim().chars().take(SENTENCE).collect())
                        .filter(|text: &String| !text.is_empty());
                    return Admission::Decline(refusal(Rule::Declined), sentence);
                }
                Some(Answer::Edit(text)) => {
                    let Some((name, before)) = &edits else {
                        note = Some("this call cannot be changed".to_owned());
                        continue;
                    };
                    let mut changed = arguments.clone();
                    changed.insert((*name).to_owned(), Value::String(text.clone()));
                    let mut other =
                        ToolCall { arguments: Arguments::Object(changed), ..call.clone() };
                    self.redactor.arguments(&mut other.arguments);
                    let admission = self.decide(&other, None, Approval::Given);
                    if let Admission::Refuse(sentence) = admission {
                        note = Some(format!("what you wrote cannot be run: {sentence}"));
                        continue;
                    }
                    let is_changed = text != *before;
                    if let Admission::Run(invocation, ..) = &admission
                        && invocation.facts() != facts
                    {
                        note = Some("what you wrote would not run where it was shown".to_owned());
                        continue;
                    }
                    *call = other;
                    return match admission {
                        Admission::Run(invocation, grants, allowed, _) => {
                            let told = is_changed.then(|| {
                                format!(
                                    "[the person changed `{name}` before it ran; what ran is: {text}]"
                                )
                            });
                            Admission::Run(invocation, grants, allowed, told)
                        }
                        refused => refused,
                    };
                }
                Some(answer @ (Answer::Once | Answer::Always)) => {
                    // What is there may have changed while the person looked.
                    let now = match self.preview(&*invocation).await {
                        Some(Preview::Refused(outcome)) => return Admission::Over(outcome),
                        Some(Preview::Change(change)) => Some(change),
                        None => None,
                    };
                    if now != change {
                        note = Some(
                            "the file was changed while you looked; this is what would be done now"
                                .to_owned(),
                        );
                        continue;
                    }
                    if let (Answer::Always, Some(covered)) = (answer, covered) {
                        approver.remember(covered);
                    }
                    return self.decide(call, Some(invocation), Approval::Given);
                }
            }
        }
    }

    /// Asks about one request of a procedure that does a part of what a tool does.
    pub(super) async fn ask_part(
        &self,
        tool: &str,
        does: &str,
        request: Request,
    ) -> Result<Grant, Box<Denial>> {
        let given = self.subject.check_with(request.clone(), Approval::Given)?;
        let Err(denial) = self.subject.check(request) else { return Ok(given) };
        let approver = match &self.consent {
            Consent::Own => return Ok(given),
            Consent::Nobody => return Err(denial),
            Consent::Person(approver) => approver,
        };
        let path = match &denial.request.detail {
            Detail::Path(path) => path.clone(),
            _ => return Err(denial),
        };
        let _turn = approver.turn().await;
        // What is deleted cannot be read again: that is asked about each time.
        let reads = denial.request.atom == Atom::FileRead;
        let covered = reads.then(|| Covered::Path(tool.to_owned(), path.clone()));
        if covered.as_ref().is_some_and(|covered| approver.knows(covered)) {
            return Ok(given);
        }
        let question = Question {
            id: 0,
            tool: does.to_owned(),
            by: Vec::new(),
            needs: vec![denial.request.atom.to_string()],
            why: why(&denial),
            shows: vec![Shown::Text("path".to_owned(), path.display().to_string())],
            always: covered.as_ref().map(Covered::words),
            edits: None,
            note: None,
        };
        let answer = approver.ask(question).await;
        let rule = match answer {
            Some(Answer::Once) => return Ok(given),
            Some(Answer::Always) => {
                covered.into_iter().for_each(|covered| approver.remember(covered));
                return Ok(given);
            }
            Some(Answer::Deny(_) | Answer::Edit(_)) => Rule::Declined,
            None => Rule::Unanswered,
        };
        Err(Box::new(Denial { rule, ..*denial }))
    }

    /// Returns what the call would do to a file as it is now.
    fn preview(
        &self,
        invocation: &dyn Invocation,
    ) -> impl Future<Output = Option<Preview>> + Send + use<> {
        let wishes = invocation.wishes().into_iter();
        let is_readable = wishes
            .filter(|wish| wish.atom == Atom::FileRead)
            .any(|wish| self.subject.check_with(wish, Approval::Given).is_ok());
        let look = invocation.previewer(is_readable);
        async move {
            let look = look?;
            let stop = StopOnDrop(Arc::default());
            let flag = Arc::clone(&stop.0);
            let looked = tokio::task::spawn_blocking(move || look(&flag)).await;
            Some(looked.unwrap_or_else(|error| {
                Preview::Refused(Outcome::error(format!("the tool broke off: {error}")))
            }))
        }
    }

    fn shows(
        &self,
        arguments: &Map<String, Value>,
        facts: &[(&'static str, String)],
        change: Option<Change>,
    ) -> Vec<Shown> {
        let facts = facts.iter().map(|(name, text)| ((*name).to_owned(), text.clone()));
        let Some(mut change) = change else {
            let arguments = arguments.iter().map(|(name, value)| {
                let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                (name.clone(), text)
            });
            return arguments.chain(facts).map(|(name, text)| Shown::Text(name, text)).collect();
        };
        // Keys are shown to nobody.
        for text in change.hunks.iter_mut().flat_map(|hunk| [&mut hunk.old, &mut hunk.new]) {
            if self.redactor.finds(text) {
                *text = self.redactor.redact(&String::from_utf8_lossy(text)).as_bytes().to_vec();
            }
        }
        facts.map(|(name, text)| Shown::Text(name, text)).chain([Shown::Change(change)]).collect()
    }
}

/// Ends work that nobody waits for.
struct StopOnDrop(Arc<AtomicBool>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Returns what an answer for the session would cover. A command is covered to the letter and in its
/// directory: how it begins says too little about what it does. A sub-agent is asked about each time.
fn covered(
    call: &ToolCall,
    arguments: &Map<String, Value>,
    invocation: &dyn Invocation,
    facts: &[(&'static str, String)],
) -> Option<Covered> {
    let tool = call.name.clone();
    let requests = invocation.requests();
    match requests.as_slice() {
        [Request { detail: Detail::Path(path), .. }] => Some(Covered::Path(tool, path.clone())),
        [Request { atom: Atom::ResultRead | Atom::ImageInspect, .. }] => Some(Covered::Tool(tool)),
        [Request { atom: Atom::AgentSpawn, .. }] => None,
        _ => {
            let text = Value::Object(arguments.clone()).to_string();
            Some(Covered::Exact(tool, text, facts.to_vec()))
        }
    }
}

fn editable(name: &'static str, arguments: &Map<String, Value>) -> Option<(&'static str, String)> {
    let text = arguments.get(name).and_then(Value::as_str)?;
    Some((name, text.to_owned()))
}

fn needs(invocation: &dyn Invocation) -> Vec<String> {
    let all = invocation.requests().into_iter().chain(invocation.wishes());
    let mut names: Vec<String> = Vec::new();
    for name in all.map(|request| request.atom.to_string()) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

fn why(denial: &Denial) -> String {
    let policy = match &denial.rule {
        Rule::Approval(policy) => policy.name(),
        _ => "",
    };
    let by = denial.removed_by.as_ref().map(ToString::to_string).unwrap_or_default();
    format!("`approve` is `{policy}` ({by})")
}
