//! The subject: what one run may do, which layer took what away, and the only maker of grants.

use std::{
    collections::BTreeMap,
    fmt,
    path::{Component, Path, PathBuf},
};

use super::{
    atom::Atom,
    command,
    constraint::{Constraint, Detail},
    lattice::Authority,
};

/// Where a narrowing came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// The configuration baked into the package.
    Baked,
    /// The machine's policy.
    Policy,
    /// The user's settings file.
    UserSettings,
    /// The project's settings file.
    ProjectSettings,
    /// A profile, by name.
    Profile(String),
    /// A flag, as it was typed.
    Flag(String),
    /// The parent of a sub-agent.
    Parent,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Baked => f.write_str("baked settings"),
            Self::Policy => f.write_str("policy"),
            Self::UserSettings => f.write_str("user settings"),
            Self::ProjectSettings => f.write_str("project settings"),
            Self::Profile(name) => write!(f, "profile {name}"),
            Self::Flag(flag) => write!(f, "flag {flag}"),
            Self::Parent => f.write_str("parent agent"),
        }
    }
}

/// How one layer narrows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Narrowing {
    /// Only this.
    Only {
        /// What is left.
        authority: Authority,
        /// The atoms that a person wrote down by name, without what they imply.
        named: Vec<Atom>,
    },
    /// Not these, nor what implies them.
    Drop(Vec<Atom>),
    /// No effect on files or processes, nor any server whose tools may have one: drops
    /// `file/write`, `file/edit`, `process/exec`, and `extension/spawn-process` and every MCP atom
    /// that no list of the user's grants by name.
    ReadOnly,
    /// Not these tools, by name, whatever their atoms.
    Tools(Vec<String>),
    /// Only what a person said yes to.
    Approve(Approve),
}

/// Which calls need a person's approval; the strictest of all layers counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Approve {
    /// None: what the authority allows is done.
    #[default]
    Never,
    /// Every call that may have an effect on files, processes, servers or sessions.
    Writes,
    /// Every call.
    All,
}

impl Approve {
    /// Every policy with the name that settings give it, the loosest first.
    pub const NAMES: [(&'static str, Self); 3] =
        [("never", Self::Never), ("writes", Self::Writes), ("all", Self::All)];

    /// Returns the name that settings give it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Never => "never",
            Self::Writes => "writes",
            Self::All => "all",
        }
    }

    /// Says whether a call under an atom needs approval.
    pub fn asks(self, atom: &Atom) -> bool {
        let reads = matches!(atom, Atom::FileRead | Atom::ResultRead | Atom::ImageInspect);
        match self {
            Self::Never => false,
            Self::Writes => !reads,
            Self::All => true,
        }
    }
}

/// What a person said about a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Approval {
    /// Nobody can be asked: a call that needs approval is refused.
    CannotAsk,
    /// A person was shown this very request and said yes.
    Given,
}

/// What one run may do. The preview prints this value, and every call is checked against it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subject {
    authority: Authority,
    /// The layers that took something away, with what was left after each.
    steps: Vec<(Source, Authority)>,
    /// Names of MCP atoms that a read-only layer left out although a list held them by wildcard.
    withheld: Vec<Atom>,
    /// The tools that a layer denies, with the first layer that did.
    denied: BTreeMap<String, Source>,
    /// Which calls need approval, and the layer that asks for it.
    approve: Option<(Approve, Source)>,
}

/// A request: one atom, and what it is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// What is asked for.
    pub atom: Atom,
    /// What it is about.
    pub detail: Detail,
}

impl Request {
    /// Returns a request that is about nothing but its atom.
    pub fn bare(atom: Atom) -> Self {
        Self { atom, detail: Detail::Nothing }
    }

    /// Returns a request about a physical path.
    pub fn path(atom: Atom, path: impl Into<PathBuf>) -> Self {
        Self { atom, detail: Detail::Path(path.into()) }
    }
}

/// Proof that a call was allowed. For what a model asks it can be made only by
/// [`Subject::check`]; the host's mutating calls demand one.
#[derive(Debug, PartialEq, Eq)]
pub struct Grant {
    what: Granted,
}

#[derive(Debug, PartialEq, Eq)]
enum Granted {
    Request {
        request: Request,
        /// Whether the subject holds the atom for listed commands only.
        listed: bool,
    },
    OwnState(PathBuf),
}

impl Grant {
    /// Returns the grant for kli's own bookkeeping (sessions) beneath one directory. No model asks
    /// for these writes, so no subject is asked; only the host's state calls accept it.
    pub fn own_state(directory: impl Into<PathBuf>) -> Self {
        Self { what: Granted::OwnState(directory.into()) }
    }

    /// Says whether this grant is for writing exactly that physical path.
    pub fn permits_write(&self, path: &Path) -> bool {
        match &self.what {
            Granted::Request {
                request: Request { atom: Atom::FileWrite | Atom::FileEdit, detail },
                ..
            } => {
                matches!(detail, Detail::Path(granted) if granted == path)
            }
            Granted::Request { .. } | Granted::OwnState(_) => false,
        }
    }

    /// Says whether this grant is for reading exactly that physical path.
    pub fn permits_read(&self, path: &Path) -> bool {
        match &self.what {
            Granted::Request { request: Request { atom: Atom::FileRead, detail }, .. } => {
                matches!(detail, Detail::Path(granted) if granted == path)
            }
            Granted::Request { .. } | Granted::OwnState(_) => false,
        }
    }

    /// Says whether this grant is for running a command line.
    pub fn permits_exec(&self) -> bool {
        matches!(
            &self.what,
            Granted::Request {
                request: Request { atom: Atom::ProcessExec, detail: Detail::Commands { .. } },
                ..
            }
        )
    }

    /// Says whether this grant is for looking at commands that run, and for ending them.
    pub fn permits_jobs(&self) -> bool {
        matches!(&self.what, Granted::Request { request, .. } if request.atom == Atom::ProcessExec)
    }

    /// Says whether the command line was allowed because a list of commands covers it.
    pub fn is_listed(&self) -> bool {
        matches!(&self.what, Granted::Request { listed: true, .. })
    }

    /// Says whether this grant is for kli's own file at that path.
    pub fn permits_state(&self, path: &Path) -> bool {
        match &self.what {
            Granted::OwnState(directory) => {
                path.starts_with(directory)
                    && !path.components().any(|part| part == Component::ParentDir)
            }
            Granted::Request { .. } => false,
        }
    }
}

/// A refusal: what was asked for, how far the subject reaches, and which layer decided so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Denial {
    /// What was asked for.
    pub request: Request,
    /// How far the subject's atom reaches.
    pub reach: Constraint,
    /// The layer that removed it.
    pub removed_by: Option<Source>,
    /// What refused it.
    pub rule: Rule,
}

/// What refused a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rule {
    /// The atom is not held, or not that far.
    Authority,
    /// The tool of that name is denied, whatever its atom.
    Tool(String),
    /// Nobody approved it.
    Approval(Approve),
    /// A person was asked and said no.
    Declined,
    /// A person was asked, and the run was stopped before they answered.
    Unanswered,
}

impl std::error::Error for Denial {}

impl fmt::Display for Denial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "denied: {}", self.sentence())
    }
}

impl Denial {
    /// Returns the sentence without its head.
    pub fn sentence(&self) -> String {
        let atom = &self.request.atom;
        let held = match (&self.rule, &self.reach) {
            (Rule::Tool(name), _) => format!("the tool `{name}` is denied by `denyTools`"),
            (Rule::Approval(policy), _) => format!(
                "`{atom}` needs approval (`approve` is `{}`), and a headless run cannot ask",
                policy.name()
            ),
            (Rule::Declined, _) => format!("the person did not approve `{atom}`"),
            (Rule::Unanswered, _) => {
                format!("`{atom}` was not approved before the run was stopped")
            }
            (Rule::Authority, Constraint::None) => format!("this run does not hold `{atom}`"),
            (Rule::Authority, reach) => format!("this run holds `{atom}` only for {reach}"),
        };
        let asked = match self.request.detail.to_string() {
            detail if detail.is_empty() => String::new(),
            detail => format!(", asked for `{detail}`"),
        };
        let verb = if self.rule == Rule::Authority { "removed" } else { "asked for" };
        let removed =
            self.removed_by.as_ref().map_or_else(String::new, |by| format!(" ({verb} by {by})"));
        let unread = match (&self.reach, &self.request.detail) {
            (Constraint::Commands(_), Detail::Commands { parsed: None, .. }) => {
                "; what that line runs cannot be told for sure: give plain commands, without \
                 redirection, expansion or variables"
            }
            (Constraint::Commands(lists), Detail::Commands { parsed: Some(commands), .. })
                if command::all_begin(commands, lists) =>
            {
                "; it begins as listed, but an option in it is known to run programs or to write \
                 files, or leads git to another directory"
            }
            _ => "",
        };
        format!("{held}{asked}{removed}{unread}")
    }
}

impl Subject {
    /// Computes the subject from all layers: the only place where one is computed. The outcome does
    /// not depend on the order; the order decides which layer is named for what it took away.
    ///
    /// A layer can only narrow. That holds for the names in lists as well: a read-only layer keeps
    /// an MCP tool that the *user's* lists name, and what a project or the machine's policy names
    /// keeps nothing.
    pub fn new(layers: impl IntoIterator<Item = (Source, Narrowing)>) -> Self {
        let layers: Vec<(Source, Narrowing)> = layers.into_iter().collect();
        let named: Vec<Atom> = layers
            .iter()
            .filter_map(|(source, narrowing)| match (source, narrowing) {
                (Source::ProjectSettings | Source::Policy | Source::Parent, _) => None,
                (_, Narrowing::Only { named, .. }) => Some(named.clone()),
                _ => None,
            })
            .flatten()
            .collect();
        let mut subject = Self {
            authority: Authority::universal(),
            steps: Vec::new(),
            withheld: Vec::new(),
            denied: BTreeMap::new(),
            approve: None,
        };
        // What is read-only looks at what all the lists together leave, so it comes last.
        let (last, first): (Vec<_>, Vec<_>) =
            layers.into_iter().partition(|(_, narrowing)| *narrowing == Narrowing::ReadOnly);
        for (source, narrowing) in first.into_iter().chain(last) {
            subject.narrow(source, narrowing, &named);
        }
        subject
    }

    fn narrow(&mut self, source: Source, narrowing: Narrowing, named: &[Atom]) {
        let before = self.authority.clone();
        let mut narrowed = false;
        let after = match narrowing {
            Narrowing::Only { authority, .. } => before.meet(&authority),
            Narrowing::Drop(atoms) => atoms.iter().fold(before.clone(), |a, x| a.without(x)),
            Narrowing::ReadOnly => {
                let (after, withheld) = read_only(&before, named);
                self.withheld.extend(withheld);
                after
            }
            Narrowing::Tools(tools) => {
                for name in tools {
                    self.denied.entry(name).or_insert_with(|| {
                        narrowed = true;
                        source.clone()
                    });
                }
                before.clone()
            }
            Narrowing::Approve(policy) => {
                if policy > self.approval_policy() {
                    narrowed = true;
                    self.approve = Some((policy, source.clone()));
                }
                before.clone()
            }
        };
        if after != before || narrowed {
            self.steps.push((source, after.clone()));
        }
        self.authority = after;
    }

    /// Returns what a sub-agent may do: the meet of what this subject may and what was asked for
    /// (`None`: nothing less), without starting further ones. Denied tools and approval stay as they
    /// are.
    #[must_use]
    pub fn of_child(&self, asked: Option<Narrowing>) -> Self {
        let mut child = self.clone();
        for narrowing in asked.into_iter().chain([Narrowing::Drop(vec![Atom::AgentSpawn])]) {
            child.narrow(Source::Parent, narrowing, &[]);
        }
        child
    }

    /// Returns what the run may do.
    pub fn authority(&self) -> &Authority {
        &self.authority
    }

    /// Returns the layers that took something away, in order, each once.
    pub fn sources(&self) -> impl Iterator<Item = &Source> {
        let mut named: Vec<&Source> = Vec::new();
        for (source, _) in &self.steps {
            if !named.contains(&source) {
                named.push(source);
            }
        }
        named.into_iter()
    }

    /// Returns the MCP atoms that a read-only layer left out.
    pub fn withheld(&self) -> &[Atom] {
        &self.withheld
    }

    /// Returns the tools that are denied by name, each with the layer that denies it.
    pub fn denied_tools(&self) -> impl Iterator<Item = (&str, &Source)> {
        self.denied.iter().map(|(name, source)| (name.as_str(), source))
    }

    /// Returns which calls need approval.
    pub fn approval_policy(&self) -> Approve {
        self.approve.as_ref().map_or(Approve::Never, |(policy, _)| *policy)
    }

    /// Returns the layer that asks for approval.
    pub fn approval_source(&self) -> Option<&Source> {
        self.approve.as_ref().map(|(_, source)| source)
    }

    /// Says whether a tool is offered to the model: its atom is held, and nobody denies it by name.
    pub fn offers(&self, tool: &str, atom: &Atom) -> bool {
        self.holds(atom) && !self.denied.contains_key(tool)
    }

    /// Checks a tool's name, before what a call of it would need.
    ///
    /// # Errors
    /// [`Denial`] when a layer denies the tool by name.
    pub fn check_tool(&self, tool: &str, atom: &Atom) -> Result<(), Box<Denial>> {
        match self.denied.get(tool) {
            None => Ok(()),
            Some(source) => Err(Box::new(Denial {
                reach: self.authority.reach(atom),
                request: Request::bare(atom.clone()),
                removed_by: Some(source.clone()),
                rule: Rule::Tool(tool.to_owned()),
            })),
        }
    }

    /// Says whether an atom is held at all, however narrow.
    pub fn holds(&self, atom: &Atom) -> bool {
        self.authority.reach(atom) != Constraint::None
    }

    /// Checks one request where nobody can be asked: a grant, or a refusal that says who decided so.
    ///
    /// # Errors
    /// [`Denial`] when the request is not within the subject's authority, or needs approval.
    pub fn check(&self, request: Request) -> Result<Grant, Box<Denial>> {
        self.check_with(request, Approval::CannotAsk)
    }

    /// Checks one request, with what a person said about it. Approval never replaces authority.
    ///
    /// # Errors
    /// As [`Subject::check`].
    pub fn check_with(&self, request: Request, approval: Approval) -> Result<Grant, Box<Denial>> {
        let (removed_by, rule) = if !self.authority.allows(&request.atom, &request.detail) {
            let step =
                self.steps.iter().find(|(_, left)| !left.allows(&request.atom, &request.detail));
            (step.map(|(source, _)| source.clone()), Rule::Authority)
        } else if let (Some((policy, source)), Approval::CannotAsk) = (&self.approve, approval)
            && policy.asks(&request.atom)
        {
            (Some(source.clone()), Rule::Approval(*policy))
        } else {
            let listed = matches!(self.authority.reach(&request.atom), Constraint::Commands(_));
            return Ok(Grant { what: Granted::Request { request, listed } });
        };
        let reach = self.authority.reach(&request.atom);
        Err(Box::new(Denial { request, reach, removed_by, rule }))
    }
}

/// Narrows to what has no effect; `named` are the atoms that some list of the user's holds.
fn read_only(before: &Authority, named: &[Atom]) -> (Authority, Vec<Atom>) {
    let mut after = [Atom::FileWrite, Atom::FileEdit, Atom::ProcessExec]
        .iter()
        .fold(before.clone(), |a, atom| a.without(atom));
    if !named.contains(&Atom::ExtensionSpawnProcess) {
        after = after.without(&Atom::ExtensionSpawnProcess);
    }
    let listed: Option<Vec<(Atom, Constraint)>> = after.listed().map(|entries| {
        entries.map(|(atom, constraint)| (atom.clone(), constraint.clone())).collect()
    });
    let Some(listed) = listed else {
        // Everything but …: nothing is granted by name, so every server goes.
        return (after.without(&Atom::McpAll), Vec::new());
    };
    // A single tool in a list of the user's is granted by name, also beside its whole server; the
    // server is not, as nobody can tell which of its tools write.
    let granted = |atom: &Atom| matches!(atom, Atom::McpTool(..)) && named.contains(atom);
    let (servers, kept): (Vec<_>, Vec<_>) =
        listed.into_iter().partition(|(atom, _)| Atom::McpAll.includes(atom) && !granted(atom));
    let tools =
        named.iter().filter(|atom| granted(atom)).map(|atom| (atom.clone(), Constraint::Any));
    let after = after.meet(&Authority::of(kept.into_iter().chain(tools)));
    (after, servers.into_iter().map(|(atom, _)| atom).collect())
}

#[cfg(test)]
mod tests;
