//! Calls that a call makes: decided about as the model's are, by the same value, and listed with the
//! result of the call that made them.
//!
//! Only a call that runs alone makes any (eval is a barrier), so what was heard is its own.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError, Weak},
};

use futures_util::future::{BoxFuture, FutureExt as _};
use serde_json::{Map, Value};

use crate::{
    authority::{Denial, Grant, Request, Subject},
    message::{Arguments, Redactor, ToolCall},
    tool::{Context, Outcome, Tool, desk::Desk},
};

use super::{
    Denied,
    around::{Places, paths},
    work::{Admission, Bench},
};

/// What calls within a call came to.
#[derive(Debug, Default)]
pub(super) struct Heard {
    pub(super) denied: Vec<Denied>,
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
#[derive(Debug)]
struct Within {
    tools: Arc<Vec<Box<dyn Tool>>>,
    subject: Arc<Subject>,
    context: Weak<Context>,
    redactor: Redactor,
    heard: Arc<Mutex<Heard>>,
    places: Arc<Places>,
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
        })
    }

    fn hear(&self, note: impl FnOnce(&mut Heard)) {
        note(&mut self.heard.lock().unwrap_or_else(PoisonError::into_inner));
    }

    fn refuse(&self, tool: &str, denial: &Denial) -> String {
        if let Some(bench) = self.bench() {
            let denied = bench.denied(tool, denial);
            self.hear(|heard| heard.denied.push(denied));
        }
        format!("{denial}; nothing was done")
    }
}

impl Desk for Within {
    fn call(&self, tool: &str, arguments: Map<String, Value>) -> BoxFuture<'static, Outcome> {
        let over = || std::future::ready(Outcome::error("the run is over")).boxed();
        let Some(bench) = self.bench() else { return over() };
        let call = ToolCall {
            id: String::new(),
            name: tool.to_owned(),
            arguments: Arguments::Object(arguments),
        };
        match bench.admit(&call, None) {
            Admission::Refuse(text) => std::future::ready(Outcome::error(text)).boxed(),
            Admission::Deny(denial) => {
                std::future::ready(Outcome::error(self.refuse(tool, &denial))).boxed()
            }
            Admission::Run(invocation, grants, allowed) => async move {
                let requested = paths(&*invocation);
                let outcome = invocation.run(grants, Arc::new(|_: &str| {})).await;
                bench.places.note(requested, &outcome);
                let outcome = bench.clean(outcome);
                let mut heard = bench.heard.lock().unwrap_or_else(PoisonError::into_inner);
                if !outcome.is_error {
                    heard.allowed.extend(allowed);
                }
                heard.changed.extend(outcome.changed.iter().cloned());
                drop(heard);
                outcome
            }
            .boxed(),
        }
    }

    fn check(&self, tool: &str, request: Request) -> Result<Grant, String> {
        let atom = request.atom.clone();
        let checked =
            self.subject.check_tool(tool, &atom).and_then(|()| self.subject.check(request));
        let grant = checked.map_err(|denial| self.refuse(tool, &denial))?;
        self.hear(|heard| heard.allowed.push(atom.to_string()));
        Ok(grant)
    }

    fn clean(&self, text: &mut String) {
        self.redactor.text(text);
    }

    fn changed(&self, path: &Path) {
        self.hear(|heard| heard.changed.push(path.to_owned()));
    }
}
