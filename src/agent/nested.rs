//! Calls that a call makes: decided about as the model's are, by the same value, and listed with the
//! result of the call that made them.
//!
//! Only a call that runs alone makes any (eval is a barrier), so what was heard is its own.

use std::{
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, PoisonError, Weak,
        atomic::{AtomicUsize, Ordering},
    },
};

use futures_util::future::{BoxFuture, FutureExt as _};
use serde_json::{Map, Value};

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
    /// How many calls wait for a person.
    asking: Arc<AtomicUsize>,
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

/// As long as it lasts, somebody may be asked.
struct Asking(Arc<AtomicUsize>);

impl Asking {
    fn new(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(count))
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
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

    fn is_asking(&self) -> bool {
        self.asking.load(Ordering::Relaxed) > 0
    }

    fn clean(&self, text: &mut String) {
        self.redactor.text(text);
    }

    fn changed(&self, path: &Path) {
        self.hear(|heard| heard.changed.push(path.to_owned()));
    }
}
