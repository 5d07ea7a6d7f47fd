//! Tools: one trait, the invocation that is checked before it runs, and what comes out.
//!
//! A tool reaches files and processes only through `host`, and every mutating call there wants a
//! [`Grant`] that only `authority` can make: a tool that forgets its check does not compile. This
//! folder knows no models, no sessions and no settings file.

use std::{path::PathBuf, sync::Arc};

use futures_util::future::BoxFuture;
use serde_json::{Map, Value};

use crate::authority::{Atom, Grant, Request};
use crate::host::Host;

/// A tool that a model can call.
pub trait Tool: Send + Sync + std::fmt::Debug {
    /// Returns the name that a call carries.
    fn name(&self) -> &'static str;

    /// Returns what it does, for the model: short, it is sent with every request.
    fn description(&self) -> &'static str;

    /// Returns the JSON schema of the arguments: flat, `additionalProperties: false`.
    fn schema(&self) -> Value;

    /// Returns the atom without which the tool is not offered at all.
    fn atom(&self) -> Atom;

    /// Reads the arguments and says what running them would need. No effect yet.
    ///
    /// # Errors
    /// A sentence for the model when the arguments cannot be understood.
    fn prepare(
        &self,
        arguments: &Map<String, Value>,
        context: &Arc<Context>,
    ) -> Result<Box<dyn Invocation>, String>;
}

/// A call whose arguments were understood, waiting for its grants.
pub trait Invocation: Send {
    /// Returns what must be allowed, in the order in which the grants are handed to `run`.
    fn requests(&self) -> Vec<Request>;

    /// Returns what would change the call if it were allowed, and whose refusal is no denial: the
    /// grants come after those for `requests`, without those that were refused.
    fn wishes(&self) -> Vec<Request> {
        Vec::new()
    }

    /// Returns what a person should know beside the arguments before saying yes, each with its name:
    /// where a command starts, what a sub-agent may do. What was told here is held to.
    fn facts(&self) -> Vec<(&'static str, String)> {
        Vec::new()
    }

    /// Returns what tells how the call would change a file, when it would; the change is held to: the
    /// call does nothing once the file is another one. `is_readable`: whether the run may read it.
    fn previewer(&self, _is_readable: bool) -> Option<preview::Previewer> {
        None
    }

    /// Returns how it may be ordered among the calls of one turn.
    fn effect(&self) -> Effect;

    /// Does it. `grants` answers `requests` one to one; those for `wishes` follow.
    fn run(self: Box<Self>, grants: Vec<Grant>, sink: Sink) -> BoxFuture<'static, Outcome>;
}

/// How a call is ordered among the others of its turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Only reads: runs beside other readers.
    Read,
    /// Writes one file: calls for the same physical path run in the order of the turn.
    Write(PathBuf),
    /// May touch anything: runs alone, after all before it and before all after it.
    Barrier,
}

/// What a tool needs to know about the run.
#[derive(Debug)]
pub struct Context {
    /// Files, processes, clock and environment.
    pub host: Host,
    /// The physical directory that relative paths start from.
    pub workspace: PathBuf,
    /// The home that `~` stands for, when there is one.
    pub home: Option<PathBuf>,
    /// What the run remembers between calls.
    pub state: State,
    /// The shell tool's settings.
    pub bash: BashOptions,
}

/// Settings of the shell tool.
#[derive(Clone, Default)]
pub struct BashOptions {
    /// The shell; `bash` on PATH by default.
    pub shell: PathBuf,
    /// Seconds a command may take when the call does not say.
    pub timeout: u64,
    /// The most seconds a call may ask for.
    pub max_timeout: u64,
    /// Variable names that commands do not get (provider keys).
    pub withheld: Vec<std::ffi::OsString>,
    /// The only variables that commands inherit, beside [`shell::ALWAYS_PASSED`]; absent = all.
    pub pass: Option<Vec<String>>,
    /// Variables that commands get in any case, name and value. Not shown in `Debug`.
    pub set: Vec<(String, String)>,
}

impl std::fmt::Debug for BashOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names: Vec<&String> = self.set.iter().map(|(name, _)| name).collect();
        f.debug_struct("BashOptions")
            .field("shell", &self.shell)
            .field("timeout", &self.timeout)
            .field("max_timeout", &self.max_timeout)
            .field("withheld", &self.withheld)
            .field("pass", &self.pass)
            .field("set", &names)
            .finish()
    }
}

/// What a call produced.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// The text for the model, already within the budget.
    pub text: String,
    /// Whether the call failed.
    pub is_error: bool,
    /// Facts for front ends (exit code, hunks…); `Null` when there are none.
    pub record: Value,
    /// Physical paths of files that the call created or changed.
    pub changed: Vec<PathBuf>,
}

impl Outcome {
    /// Returns a success with a text.
    pub fn ok(text: impl Into<String>) -> Self {
        Self { text: text.into(), is_error: false, record: Value::Null, changed: Vec::new() }
    }

    /// Returns a failure with a text.
    pub fn error(text: impl Into<String>) -> Self {
        Self { text: text.into(), is_error: true, record: Value::Null, changed: Vec::new() }
    }
}

/// Where live output goes while a call runs. Sending never blocks the tool; a full or closed sink
/// loses display, never the result.
pub type Sink = Arc<dyn Fn(&str) + Send + Sync>;

pub mod anchor;
pub mod arguments;
pub mod cut;
pub mod desk;
mod edit;
#[cfg(feature = "lisp")]
pub mod eval;
pub mod find;
mod glob;
pub mod inspect;
#[cfg(test)]
mod jail_tests;
pub mod jobs;
mod lines;
pub mod memory;
mod pattern;
pub mod preview;
mod read;
pub mod result;
mod scope;
pub mod search;
pub mod shell;
#[cfg(test)]
mod stage;
mod state;
mod target;
mod write;

pub use state::State;

/// Returns the tools of this version, in the order in which they are offered.
pub fn standard() -> Vec<Box<dyn Tool>> {
    #[cfg_attr(not(feature = "lisp"), expect(unused_mut, reason = "eval is added to them"))]
    let mut tools: Vec<Box<dyn Tool>> = vec![
        Box::new(read::Read),
        Box::new(write::Write),
        Box::new(edit::Edit),
        Box::new(find::Find),
        Box::new(search::Search),
        Box::new(shell::Bash),
        Box::new(jobs::BashJobs),
        Box::new(result::ReadResult),
        Box::new(inspect::Inspect),
    ];
    #[cfg(feature = "lisp")]
    tools.push(Box::new(eval::Eval));
    tools
}
