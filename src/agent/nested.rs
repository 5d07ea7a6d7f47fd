//! Calls that a call makes: decided about as the model's are, by the same value, and listed with the
//! result of the call that made them.
//!
//! Only a call that runs alone makes any (eval is a barrier), so what was heard is its own.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError, Weak},
    time::Duration,
};

use futures_util::future::{BoxFuture, FutureExt as _};
use serde_json::{Map, Value};
use tokio::time::Instant;

use crate::{
    authority::{Denial, Grant, Request, Rule, Subject},
    message::{Arguments, Redactor, ToolCall},
    tool::{Context, Outcome, Tool, desk::Desk},
};

use super::{
    Denied,
    around::{Places, paths},
    asking::Consent,
    work::{Admission, Bench, refused},
};

/// What calls within a call came to.
#[derive(Debug, Default)]
pub(super) struct Heard {
    pub(super) denied: Vec<Denied>,
    /// What a person did not approve.
    pub(super) declined: Vec<Denied>,
    /// What the model is told of calls that a person changed.
    pub(super) told: Vec<String>,
    pub(super) allowed: Vec<String>,
    pub(super) changed: Vec<PathBuf>,
}

impl Heard {
    /// Takes what was heard, and leaves nothing.
    pub(super) fn take(heard: &Mutex<Self>) -> Self {
        std::mem::take(&mut *heard.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The bench as a tool's desk. The context, which holds the desk, is not held by it.
#[derive(Clone, Debug)]
struct Within {
    tools: Arc<Vec<Box<dyn Tool>>>,
    subject: Arc<Subject>,
    context: Weak<Context>,
    redactor: Redactor,
    heard: Arc<Mutex<Heard>>,
    places: Arc<Places>,
    consent: Consent,
    /// How long calls have waited for a person.
    asking: Arc<Mutex<Waited>>,
}

impl Bench {
    /// Lets the tools of this bench make calls.
    pub(super) fn attend(&self) {
        let desk = Arc::new(Within {
            tools: Arc::clone(&self.tools),
            subject: Arc::clone(&self.subject),
            context: Arc::downgrade(&self.context),
            redactor: self.redactor.clone(),
            heard: Arc::clone(&self.heard),
            places: Arc::clone(&self.places),
            consent: self.consent.within("a form of eval"),
            asking: Arc::default(),
        });
        // A context that has one keeps it: it is the same run.
        let _had_one = self.context.state.desk.set(desk);
    }
}

impl Within {
    fn bench(&self) -> Option<Bench> {
        Some(Bench {
            tools: Arc::clone(&self.tools),
            subject: Arc::clone(&self.subject),
            context: self.context.upgrade()?,
            redactor: self.redactor.clone(),
            heard: Arc::clone(&self.heard),
            places: Arc::clone(&self.places),
            consent: self.consent.clone(),
            unanswered: Arc::default(),
        })
    }

    fn hear(&self, note: impl FnOnce(&mut Heard)) {
        note(&mut self.heard.lock().unwrap_or_else(PoisonError::into_inner));
    }

    fn refuse(&self, bench: &Bench, tool: &str, denial: &Denial) {
        let denied = bench.denied(tool, denial);
        self.hear(|heard| match denial.rule {
            Rule::Declined | Rule::Unanswered => heard.declined.push(denied),
            _ => heard.denied.push(denied),
        });
    }

    async fn run(self, bench: Bench, mut call: ToolCall) -> Outcome {
        let admission = {
            let _asking = Asking::new(&self.asking);
            bench.admit(&mut call, None).await
        };
        match admission {
            Admission::Refuse(text) => Outcome::error(text),
            Admission::Over(outcome) => bench.clean(outcome),
            Admission::Deny(denial) | Admission::Ask(_, denial) => {
                self.refuse(&bench, &call.name, &denial);
                Outcome::error(refused(&denial, None))
            }
            Admission::Decline(denial, sentence) => {
                self.refuse(&bench, &call.name, &denial);
                Outcome::error(refused(&denial, sentence.as_deref()))
            }
            Admission::Run(invocation, grants, allowed, told) => {
                let requested = paths(&*invocation);
                let outcome = invocation.run(grants, Arc::new(|_: &str| {})).await;
                bench.places.note(requested, &outcome);
                let outcome = bench.clean(outcome);
                self.hear(|heard| {
                    heard.told.extend(told);
                    if !outcome.is_error {
                        heard.allowed.extend(allowed);
                    }
                    heard.changed.extend(outcome.changed.iter().cloned());
                });
                outcome
            }
        }
    }
}

/// How long somebody may have been asked.
#[derive(Debug, Default)]
struct Waited {
    total: Duration,
    /// How many calls wait now, and since when any does.
    open: usize,
    since: Option<Instant>,
}

impl Waited {
    fn so_far(&self) -> Duration {
        self.total + self.since.map_or(Duration::ZERO, |since| since.elapsed())
    }
}

/// As long as it lasts, somebody may be asked.
struct Asking(Arc<Mutex<Waited>>);

impl Asking {
    fn new(waited: &Arc<Mutex<Waited>>) -> Self {
        let mut now = waited.lock().unwrap_or_else(PoisonError::into_inner);
        now.open += 1;
        now.since.get_or_insert_with(Instant::now);
        drop(now);
        Self(Arc::clone(waited))
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        let mut now = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        now.open -= 1;
        if now.open == 0 {
            now.total = now.so_far();
            now.since = None;
        }
    }
}

impl Desk for Within {
    fn call(&self, tool: &str, arguments: Map<String, Value>) -> BoxFuture<'static, Outcome> {
        let Some(bench) = self.bench() else {
            return std::future::ready(Outcome::error("the run is over")).boxed();
        };
        let call = ToolCall {
            id: String::new(),
            name: tool.to_owned(),
            arguments: Arguments::Object(arguments),
        };
        self.clone().run(bench, call).boxed()
    }

    fn check(
        &self,
        tool: &str,
        does: &'static str,
        request: Request,
    ) -> BoxFuture<'static, Result<Grant, String>> {
        let (this, tool) = (self.clone(), tool.to_owned());
        async move {
            let bench = this.bench().ok_or_else(|| "the run is over".to_owned())?;
            let atom = request.atom.clone();
            let checked = match this.subject.check_tool(&tool, &atom) {
                Ok(()) => {
                    let _asking = Asking::new(&this.asking);
                    bench.ask_part(&tool, does, request).await
                }
                Err(denial) => Err(denial),
            };
            let grant = checked.map_err(|denial| {
                this.refuse(&bench, &tool, &denial);
                refused(&denial, None)
            })?;
            this.hear(|heard| heard.allowed.push(atom.to_string()));
            Ok(grant)
        }
        .boxed()
    }

    fn asked_for(&self) -> Duration {
        self.asking.lock().unwrap_or_else(PoisonError::into_inner).so_far()
    }

    fn clean(&self, text: &mut String) {
        self.redactor.text(text);
    }

    fn changed(&self, path: &Path) {
        self.hear(|heard| heard.changed.push(path.to_owned()));
    }
}
