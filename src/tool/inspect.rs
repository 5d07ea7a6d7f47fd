//! The tool inspect: the model asks what it may do, what confines it, and what it has.
//!
//! It computes nothing: the agent tells it what the calls are checked against.

use std::{path::Path, sync::Arc};

use futures_util::future::BoxFuture;
use serde_json::{Map, Value, json};

use super::{Context, Effect, Invocation, Outcome, Sink, Tool, arguments::Arguments};
use crate::authority::{Atom, Confinement, Grant, Report, Request};

/// What the run is told about itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    /// The report of the subject that every call is checked against.
    pub report: Report,
    /// What confines the process.
    pub confinement: Confinement,
    /// The tools on offer: name, and what it does.
    pub tools: Vec<(String, String)>,
    /// What the conversation is made of, a line each.
    pub context: Vec<String>,
}

impl Told {
    /// Returns the tools on offer, a line each.
    pub fn tools(&self) -> String {
        let lines = self.tools.iter().map(|(name, about)| format!("{name}: {about}"));
        lines.collect::<Vec<_>>().join("\n")
    }

    /// Returns what the conversation is made of, a line each.
    pub fn context(&self, workspace: &Path) -> String {
        let workspace = format!("workspace: {}", workspace.display());
        [workspace].iter().chain(&self.context).cloned().collect::<Vec<_>>().join("\n")
    }
}

/// Returns what confines the process, and what the launcher tells of its plan. What is told outside of
/// its jail is not the launcher's.
pub fn confinement(confinement: Confinement, plan: Option<&Value>) -> String {
    let label = confinement.label();
    match plan.filter(|_| confinement == Confinement::KliSandbox) {
        Some(plan) => format!(
            "confinement: {label}\nthe launcher tells of its plan (hidden paths are counted, not \
             named):\n{plan:#}"
        ),
        None => format!(
            "confinement: {label}\nno plan is told: this was judged by the signs that can be seen \
             from inside"
        ),
    }
}

/// The tool inspect.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Inspect;

impl Tool for Inspect {
    fn name(&self) -> &'static str {
        "inspect"
    }

    fn description(&self) -> &'static str {
        "Tells what this run may do."
    }

    fn schema(&self) -> Value {
        json!({
            "type": "object",
            "properties": {
                "what": { "type": "string", "enum": ["tools", "authority", "sandbox", "context"] },
            },
            "required": ["what"],
            "additionalProperties": false,
        })
    }

    fn atom(&self) -> Atom {
        Atom::ImageInspect
    }

    fn prepare(
        &self,
        arguments: &Map<String, Value>,
        context: &Arc<Context>,
    ) -> Result<Box<dyn Invocation>, String> {
        let arguments = Arguments::new(arguments);
        arguments.known(&["what"])?;
        let what = match arguments.text("what")?.trim() {
            "tools" => What::Tools,
            "authority" => What::Authority,
            "sandbox" => What::Sandbox,
            "context" => What::Context,
            other => {
                return Err(format!(
                    "`what` is `{other}`; it can be `tools`, `authority`, `sandbox` or `context`"
                ));
            }
        };
        Ok(Box::new(Look { what, context: Arc::clone(context) }))
    }
}

#[derive(Clone, Copy, Debug)]
enum What {
    Tools,
    Authority,
    Sandbox,
    Context,
}

#[derive(Debug)]
struct Look {
    what: What,
    context: Arc<Context>,
}

impl Invocation for Look {
    fn requests(&self) -> Vec<Request> {
        vec![Request::bare(Atom::ImageInspect)]
    }

    fn effect(&self) -> Effect {
        Effect::Read
    }

    fn run(self: Box<Self>, _grants: Vec<Grant>, _sink: Sink) -> BoxFuture<'static, Outcome> {
        Box::pin(async move {
            match self.context.state.told.get() {
                Some(told) => Outcome::ok(self.look(told)),
                None => Outcome::error("this run was not told about itself"),
            }
        })
    }
}

impl Look {
    fn look(&self, told: &Told) -> String {
        match self.what {
            What::Tools => told.tools(),
            What::Authority => told.report.text() + &told.report.remarks().join("\n"),
            What::Sandbox => confinement(told.confinement, self.context.host.jail().as_ref()),
            What::Context => told.context(&self.context.workspace),
        }
    }
}

#[cfg(test)]
mod tests;
