//! The tool `task`: a sub-agent works on one part and answers once.
//!
//! Its subject is the meet of its parent's and of what was asked, it shares its parent's account of
//! tokens, and it ends with its parent's call: whoever drops that ends its requests and its tools. It
//! starts no further ones. What goes wrong with it is the call's result, never the parent's end.

use std::{path::PathBuf, sync::Arc};

use futures_util::future::{BoxFuture, FutureExt as _};
use serde_json::{Map, Value, json};
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};

use crate::{
    authority::{self, Atom, Confinement, Grant, List, Narrowing, Request, Subject},
    host::files,
    message::{Arguments, Money, Redactor, Usage},
    model::Model,
    tool::{self, Context, Effect, Invocation, Outcome, Sink, Tool, arguments},
};

use super::{
    Agent, Approver, Backlog, Budgets, Denied, Event, Journal, Ledger, Op, Outcome as End, Parts,
    Summary, compact::Policy, context::Surroundings, ledger::Report, quote::on_one_line,
    turn::Retry,
};

/// How often a sub-agent may ask the model when the call does not say.
pub const TURNS: u64 = 30;
/// The most that a call may ask for.
pub const MOST_TURNS: u64 = 100;
/// The most characters of a call's argument that are shown while it runs.
const SHOWN: usize = 80;

const ROLE: &str = "\n\nYou are a sub-agent: another agent gave you this one task. Your last answer \
     is all that it gets, and nobody can answer questions.";

/// Where a sub-agent's conversation is written down.
#[derive(Default)]
pub struct Kept {
    /// The session's identifier; `None` when none is kept.
    pub id: Option<String>,
    /// Where to write.
    pub journal: Option<Box<dyn Journal>>,
    /// Why none is kept, when one should be.
    pub notices: Vec<String>,
}

impl std::fmt::Debug for Kept {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Kept")
            .field("id", &self.id)
            .field("notices", &self.notices)
            .finish_non_exhaustive()
    }
}

/// Makes a system prompt for the tools of these names.
pub type Prompt = Box<dyn Fn(&[&str]) -> String + Send + Sync>;

/// What sub-agents have from their parent.
pub struct Family {
    /// The model to ask.
    pub model: Arc<dyn Model>,
    /// Those that are asked in its place.
    pub fallbacks: Vec<Arc<dyn Model>>,
    /// When and how far their conversations are made shorter.
    pub compaction: Policy,
    /// What the parent may do.
    pub subject: Arc<Subject>,
    /// What confines the process.
    pub confinement: Confinement,
    /// Makes the tools, `task` not among them.
    pub tools: fn() -> Vec<Box<dyn Tool>>,
    /// Makes the system prompt for the tools of these names.
    pub system: Prompt,
    /// What the repository keeps for agents.
    pub surroundings: Surroundings,
    /// The parent's bounds.
    pub budgets: Budgets,
    /// How failed requests are tried again.
    pub retry: Retry,
    /// Takes the keys of providers out.
    pub redactor: Redactor,
    /// What the front end has not written yet.
    pub backlog: Arc<Backlog>,
    /// The common account.
    pub ledger: Arc<Ledger>,
    /// Who asks the person about its calls.
    pub approver: Option<Approver>,
    /// Where cut results are kept.
    pub results: Option<PathBuf>,
    /// Begins a session for a sub-agent.
    pub sessions: Box<dyn Fn() -> Kept + Send + Sync>,
}

impl std::fmt::Debug for Family {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Family").field("subject", &self.subject).finish_non_exhaustive()
    }
}

/// The tool `task`.
#[derive(Clone, Debug)]
pub struct Task(Arc<Family>);

impl Task {
    /// The name that a call carries.
    pub const NAME: &'static str = "task";

    /// Returns the tool for an agent.
    pub fn new(family: Family) -> Self {
        Self(Arc::new(family))
    }
}

impl Tool for Task {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn description(&self) -> &'static str {
        "Let a sub-agent with a fresh context do one part; its last answer is the result."
    }

    fn schema(&self) -> Value {
        json!({
            "type": "object",
            "properties": {
                "prompt": {"type": "string", "description": "All it needs to know"},
                "capabilities": {"type": "string", "description": "As file/read,file/edit; default yours"},
                "max_turns": {"type": "integer"}
            },
            "required": ["prompt"],
            "additionalProperties": false
        })
    }

    fn atom(&self) -> Atom {
        Atom::AgentSpawn
    }

    fn prepare(
        &self,
        given: &Map<String, Value>,
        context: &Arc<Context>,
    ) -> Result<Box<dyn Invocation>, String> {
        let arguments = arguments::Arguments::new(given);
        arguments.known(&["prompt", "capabilities", "max_turns"])?;
        let prompt = arguments.text("prompt")?;
        if prompt.trim().is_empty() {
            return Err("`prompt` is blank; say what is to be done".to_owned());
        }
        let turns = arguments.optional_number("max_turns", 1)?.unwrap_or(TURNS);
        let asked = given
            .get("capabilities")
            .filter(|value| !value.is_null())
            .map(|value| asked(value, context))
            .transpose()?;
        let subject = Arc::new(self.0.subject.of_child(asked));
        let context = Arc::clone(context);
        Ok(Box::new(Call {
            family: Arc::clone(&self.0),
            context,
            prompt,
            turns: turns.min(MOST_TURNS),
            subject,
        }))
    }
}

/// Reads what a call asks for, in the words of `--capabilities` or of the settings.
fn asked(value: &Value, context: &Context) -> Result<Narrowing, String> {
    let list = match value {
        Value::String(names) if !names.trim_start().starts_with('[') => List::from_names(names),
        Value::String(text) => {
            let value = serde_json::from_str(text)
                .map_err(|_| "`capabilities` begins as a list and is none".to_owned())?;
            List::from_value(&value)
        }
        other => List::from_value(other),
    };
    let resolve = |path: &str| {
        files::resolve(path.as_ref(), &context.workspace, context.home.as_deref())
            .unwrap_or_else(|_| context.workspace.join(path))
    };
    list.map(|list| list.narrowing(resolve)).map_err(|error| error.to_string())
}

#[derive(Debug)]
struct Call {
    family: Arc<Family>,
    context: Arc<Context>,
    prompt: String,
    turns: u64,
    subject: Arc<Subject>,
}

impl Invocation for Call {
    fn requests(&self) -> Vec<Request> {
        vec![Request::bare(Atom::AgentSpawn)]
    }

    fn facts(&self) -> Vec<(&'static str, String)> {
        let report = authority::Report::new(&self.subject, self.family.confinement);
        vec![("it may", report.text()), ("turns at most", self.turns.to_string())]
    }

    fn effect(&self) -> Effect {
        if only_reads(&self.subject) { Effect::Read } else { Effect::Barrier }
    }

    fn run(self: Box<Self>, _grants: Vec<Grant>, sink: Sink) -> BoxFuture<'static, Outcome> {
        async move { self.work(sink).await }.boxed()
    }
}

/// Says whether nothing that the subject holds may have an effect.
fn only_reads(subject: &Subject) -> bool {
    let authority = subject.authority();
    match authority.listed() {
        Some(mut listed) => listed.all(|(atom, _)| {
            matches!(atom, Atom::FileRead | Atom::ResultRead | Atom::ImageInspect)
        }),
        None => ![
            Atom::FileWrite,
            Atom::FileEdit,
            Atom::ProcessExec,
            Atom::ImageEval,
            Atom::ExtensionSpawnProcess,
            Atom::McpAll,
        ]
        .iter()
        .any(|atom| subject.holds(atom)),
    }
}

impl Call {
    async fn work(self, sink: Sink) -> Outcome {
        let family = &self.family;
        let tools = (family.tools)();
        let names: Vec<&str> = tools
            .iter()
            .filter(|tool| self.subject.offers(tool.name(), &tool.atom()))
            .map(|tool| tool.name())
            .collect();
        let system = (family.system)(&names) + ROLE;
        let kept = (family.sessions)();
        for notice in &kept.notices {
            sink(&format!("[{notice}]\n"));
        }
        let turns = family.budgets.turns.map_or(self.turns, |most| most.min(self.turns));
        let own = Arc::new(Ledger::default());
        let child = Agent::new(Parts {
            model: Arc::clone(&family.model),
            fallbacks: family.fallbacks.clone(),
            compaction: family.compaction,
            tools,
            subject: Arc::clone(&self.subject),
            confinement: family.confinement,
            context: Arc::new(Context {
                host: self.context.host.clone(),
                workspace: self.context.workspace.clone(),
                home: self.context.home.clone(),
                state: family
                    .results
                    .clone()
                    .map_or_else(tool::State::default, tool::State::keeping_results_in)
                    .beside(&self.context.state),
                bash: self.context.bash.clone(),
            }),
            system,
            history: Vec::new(),
            shelf: None,
            // Its parent's time ends both.
            budgets: Budgets {
                turns: Some(turns),
                time: None,
                ..family.ledger.left_of(family.budgets)
            },
            retry: family.retry,
            redactor: family.redactor.clone(),
            journal: kept.journal,
            backlog: Arc::clone(&family.backlog),
            surroundings: family.surroundings.clone(),
            mentions: false,
            ledger: Arc::clone(&own),
            approver: family.approver.as_ref().map(|approver| approver.of(self.label())),
            own: None,
            timed: false,
        });
        let (ops, inbox) = mpsc::unbounded_channel();
        let (outbox, events) = mpsc::unbounded_channel();
        drop(ops.send(Op::Submit(self.prompt.clone())));
        let mut account =
            Account { ledger: &family.ledger, own, events, denied: Vec::new(), is_open: true };
        let listening = listen(&mut account, ops, &sink, family.budgets);
        let (summary, ()) = tokio::join!(listening, child.run(inbox, outbox));
        let Some(summary) = summary else {
            return Outcome::error("the sub-agent ended without a result");
        };
        if summary.cost.is_none() && summary.turns > 0 {
            account.spent(Usage::default(), None);
        }
        account.is_open = summary.exit == 3;
        drop(account);
        self.outcome(&summary, turns, kept.id.as_deref())
    }

    /// Returns what its questions are known by: the beginning of its prompt.
    fn label(&self) -> String {
        let text: String = self.prompt.chars().take(SHOWN).collect();
        format!("sub-agent: {}", on_one_line(text.trim()))
    }

    fn outcome(&self, summary: &Summary, turns: u64, session: Option<&str>) -> Outcome {
        let results = &self.context.state.results;
        let said = results.cut(&summary.text, "ask a sub-agent for less");
        let place = session.map_or_else(String::new, |id| format!("session `{id}`, "));
        let plural = if summary.turns == 1 { "" } else { "s" };
        let tokens = summary.usage.total();
        let end = format!("[sub-agent: {place}{} turn{plural}, {tokens} tokens]", summary.turns);
        let why = match (summary.outcome, &summary.fault) {
            (End::Ok, _) => None,
            (End::Budget, _) if summary.turns >= turns => Some(format!(
                "its budget of {turns} turns is used up; give it less to do, or more in `max_turns` \
                 (at most {MOST_TURNS})"
            )),
            // Its own sentence would name what was left, which nobody has set.
            (End::Budget, _) | (End::Interrupted, None) => {
                Some("the run's budget is used up".to_owned())
            }
            (_, Some(fault)) => Some(fault.message.clone()),
            (_, None) => Some(summary.denied.last().map_or_else(
                || "it was stopped".to_owned(),
                |denied| format!("a call of `{}` was denied: {}", denied.tool, denied.detail),
            )),
        };
        let mut outcome = match why {
            None => Outcome::ok(format!("{said}\n\n{end}")),
            Some(why) if said.trim().is_empty() => {
                Outcome::error(format!("the sub-agent did not finish: {why}\n{end}"))
            }
            Some(why) => Outcome::error(format!(
                "the sub-agent did not finish: {why}\nIts last words:\n{said}\n\n{end}"
            )),
        };
        outcome.record = json!({
            "session": session,
            "turns": summary.turns,
            "tokens": tokens,
            "denied": summary.denied.len(),
        });
        outcome.changed.clone_from(&summary.changed);
        outcome
    }
}

/// What a sub-agent uses up and was denied; told to its parent whatever ends it.
struct Account<'a> {
    /// The common account.
    ledger: &'a Ledger,
    /// The sub-agent's own, which knows whether an answer is on its way.
    own: Arc<Ledger>,
    events: UnboundedReceiver<Event>,
    denied: Vec<Denied>,
    is_open: bool,
}

impl Account<'_> {
    /// Counts what the sub-agent spent; `None` when nobody knows how much: then nobody knows what the
    /// whole run did.
    fn spent(&self, usage: Usage, cost: Option<Money>) {
        self.ledger.spend(usage, cost);
        self.ledger.report(Report { spent: Some((usage, cost)), ..Report::default() });
    }

    fn denied(&mut self, denied: Denied) {
        let detail = format!("in a sub-agent: {}", denied.detail);
        self.denied.push(Denied { detail, ..denied });
    }
}

impl Drop for Account<'_> {
    fn drop(&mut self) {
        // Cut off, it may have told what nobody has heard yet.
        while let Ok(event) = self.events.try_recv() {
            match event {
                Event::Usage { usage, cost, .. } => self.spent(usage, cost),
                Event::Denied { denied, .. } => self.denied(denied),
                _ => {}
            }
        }
        if self.own.owes() {
            self.spent(Usage::default(), None);
        }
        let (denied, is_open) = (std::mem::take(&mut self.denied), self.is_open);
        if !denied.is_empty() {
            self.ledger.report(Report { denied, is_open, ..Report::default() });
        }
    }
}

/// Shows what a sub-agent does, keeps the common account, and returns how it ended.
async fn listen(
    account: &mut Account<'_>,
    ops: UnboundedSender<Op>,
    sink: &Sink,
    budgets: Budgets,
) -> Option<Summary> {
    while let Some(event) = account.events.recv().await {
        match event {
            Event::Done(summary) => return Some(*summary),
            Event::Usage { usage, cost, .. } => {
                account.spent(usage, cost);
                // Others may have used up what it was given.
                let left = account.ledger.left_of(budgets);
                if left.tokens == Some(0) || left.cost == Some(Money::ZERO) {
                    drop(ops.send(Op::Interrupt));
                }
            }
            Event::Denied { denied, .. } => {
                sink(&format!("[denied: {}]\n", denied.detail));
                account.denied(denied);
            }
            Event::Text(text) => sink(&text),
            Event::ToolStarted { name, arguments, .. } => {
                sink(&format!("\n[{name}{}]\n", first(&arguments)));
            }
            Event::ToolFinished { name, is_error: true, .. } => sink(&format!("[{name} failed]\n")),
            Event::Notice(text) => sink(&format!("[{text}]\n")),
            Event::Retrying { reason, attempt, of, .. } => {
                sink(&format!("[retry {attempt} of {of}: {reason}]\n"));
            }
            _ => {}
        }
    }
    None
}

/// Returns the beginning of the first text among a call's arguments, behind a blank.
fn first(arguments: &Arguments) -> String {
    let Arguments::Object(map) = arguments else { return String::new() };
    let text = map.values().find_map(Value::as_str).and_then(|text| text.lines().next());
    text.map_or_else(String::new, |text| {
        std::iter::once(' ').chain(text.chars().take(SHOWN)).collect()
    })
}

#[cfg(test)]
mod tests;
