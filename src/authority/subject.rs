//! The subject: what one run may do, which layer took what away, and the only maker of grants.

use std::{
    fmt,
    path::{Component, Path, PathBuf},
};

use super::{
    atom::Atom,
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
    /// that no layer's list grants by name.
    ReadOnly,
}

/// What one run may do. The preview prints this value, and every call is checked against it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subject {
    authority: Authority,
    /// The layers that took something away, with what was left after each.
    steps: Vec<(Source, Authority)>,
    /// Names of MCP atoms that a read-only layer left out although a list held them by wildcard.
    withheld: Vec<Atom>,
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
    Request(Request),
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
            Granted::Request(Request { atom: Atom::FileWrite | Atom::FileEdit, detail }) => {
                matches!(detail, Detail::Path(granted) if granted == path)
            }
            Granted::Request(_) | Granted::OwnState(_) => false,
        }
    }

    /// Says whether this grant is for reading exactly that physical path.
    pub fn permits_read(&self, path: &Path) -> bool {
        match &self.what {
            Granted::Request(Request { atom: Atom::FileRead, detail }) => {
                matches!(detail, Detail::Path(granted) if granted == path)
            }
            Granted::Request(_) | Granted::OwnState(_) => false,
        }
    }

    /// Says whether this grant is for running a command.
    pub fn permits_exec(&self) -> bool {
        matches!(&self.what, Granted::Request(request) if request.atom == Atom::ProcessExec)
    }

    /// Says whether this grant is for kli's own file at that path.
    pub fn permits_state(&self, path: &Path) -> bool {
        match &self.what {
            Granted::OwnState(directory) => {
                path.starts_with(directory)
                    && !path.components().any(|part| part == Component::ParentDir)
            }
            Granted::Request(_) => false,
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
        let held = match &self.reach {
            Constraint::None => format!("this run does not hold `{atom}`"),
            reach => format!("this run holds `{atom}` only for {reach}"),
        };
        let asked = match self.request.detail.to_string() {
            detail if detail.is_empty() => String::new(),
            detail => format!(", asked for `{detail}`"),
        };
        let removed =
            self.removed_by.as_ref().map_or_else(String::new, |by| format!(" (removed by {by})"));
        let unread = match (&self.reach, &self.request.detail) {
            (Constraint::Commands(_), Detail::Commands { parsed: None, .. }) => {
                "; what that line runs cannot be told for sure: give plain commands, without \
                 redirection, expansion or variables"
            }
            _ => "",
        };
        format!("{held}{asked}{removed}{unread}")
    }
}

impl Subject {
    /// Computes the subject from all layers, in order: the only place where one is computed.
    pub fn new(layers: impl IntoIterator<Item = (Source, Narrowing)>) -> Self {
        let layers: Vec<(Source, Narrowing)> = layers.into_iter().collect();
        let named: Vec<Atom> = layers
            .iter()
            .filter_map(|(_, narrowing)| match narrowing {
                Narrowing::Only { named, .. } => Some(named.clone()),
                Narrowing::Drop(_) | Narrowing::ReadOnly => None,
            })
            .flatten()
            .collect();
        let mut subject =
            Self { authority: Authority::universal(), steps: Vec::new(), withheld: Vec::new() };
        for (source, narrowing) in layers {
            let before = subject.authority.clone();
            let after = match narrowing {
                Narrowing::Only { authority, .. } => before.meet(&authority),
                Narrowing::Drop(atoms) => atoms.iter().fold(before.clone(), |a, x| a.without(x)),
                Narrowing::ReadOnly => {
                    let (after, withheld) = read_only(&before, &named);
                    subject.withheld.extend(withheld);
                    after
                }
            };
            if after != before {
                subject.steps.push((source, after.clone()));
            }
            subject.authority = after;
        }
        subject
    }

    /// Returns what the run may do.
    pub fn authority(&self) -> &Authority {
        &self.authority
    }

    /// Returns the layers that took something away, in order.
    pub fn sources(&self) -> impl Iterator<Item = &Source> {
        self.steps.iter().map(|(source, _)| source)
    }

    /// Returns the MCP atoms that a read-only layer left out.
    pub fn withheld(&self) -> &[Atom] {
        &self.withheld
    }

    /// Says whether an atom is held at all, however narrow.
    pub fn holds(&self, atom: &Atom) -> bool {
        self.authority.reach(atom) != Constraint::None
    }

    /// Checks one request: a grant, or a refusal that says who decided so.
    ///
    /// # Errors
    /// [`Denial`] when the request is not within the subject's authority.
    pub fn check(&self, request: Request) -> Result<Grant, Box<Denial>> {
        if self.authority.allows(&request.atom, &request.detail) {
            return Ok(Grant { what: Granted::Request(request) });
        }
        let removed_by = self
            .steps
            .iter()
            .find(|(_, left)| !left.allows(&request.atom, &request.detail))
            .map(|(source, _)| source.clone());
        Err(Box::new(Denial { reach: self.authority.reach(&request.atom), request, removed_by }))
    }
}

/// Narrows to what has no effect; `named` are the atoms that some layer's list holds.
fn read_only(before: &Authority, named: &[Atom]) -> (Authority, Vec<Atom>) {
    let mut after = [Atom::FileWrite, Atom::FileEdit, Atom::ProcessExec]
        .iter()
        .fold(before.clone(), |a, atom| a.without(atom));
    if !named.contains(&Atom::ExtensionSpawnProcess) {
        after = after.without(&Atom::ExtensionSpawnProcess);
    }
    let listed: Option<Vec<Atom>> =
        after.listed().map(|entries| entries.map(|(atom, _)| atom.clone()).collect());
    let Some(listed) = listed else {
        // Everything but …: nothing is granted by name, so every server goes.
        return (after.without(&Atom::McpAll), Vec::new());
    };
    // A single tool in a list is granted by name; a whole server is not, as nobody can tell which
    // of its tools write.
    let withheld: Vec<Atom> =
        listed.into_iter().filter(|atom| matches!(atom, Atom::McpServer(_))).collect();
    (withheld.iter().fold(after, |a, atom| a.without(atom)), withheld)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn only(entries: &[(Atom, Constraint)]) -> Narrowing {
        Narrowing::Only {
            authority: Authority::of(entries.iter().cloned()),
            named: entries.iter().map(|(atom, _)| atom.clone()).collect(),
        }
    }

    fn flag(name: &str) -> Source {
        Source::Flag(name.to_owned())
    }

    #[test]
    fn a_denial_names_the_atom_what_was_asked_and_who_removed_it() {
        let subject = Subject::new([(flag("--read-only"), Narrowing::ReadOnly)]);
        let denial = subject.check(Request::path(Atom::FileWrite, "/ws/a")).unwrap_err();
        assert_eq!(
            denial.to_string(),
            "denied: this run does not hold `file/write`, asked for `/ws/a` (removed by flag --read-only)"
        );
        assert!(subject.check(Request::bare(Atom::FileRead)).is_ok(), "control: reading is left");
    }

    #[test]
    fn the_first_layer_that_removed_it_is_named() {
        let subject = Subject::new([
            (
                Source::UserSettings,
                only(&[(Atom::FileWrite, Constraint::under(["/ws/src".into()]))]),
            ),
            (flag("--no-bash"), Narrowing::Drop(vec![Atom::ProcessExec])),
        ]);
        let denial = subject.check(Request::path(Atom::FileWrite, "/ws/doc/a")).unwrap_err();
        assert_eq!(denial.removed_by, Some(Source::UserSettings));
        assert!(denial.to_string().contains("only for path under /ws/src, asked for `/ws/doc/a`"));
        let denial = subject.check(Request::bare(Atom::ProcessExec)).unwrap_err();
        assert_eq!(denial.removed_by, Some(Source::UserSettings));
        // The flag took nothing away any more, so it is no source.
        assert_eq!(subject.sources().count(), 1);
    }

    #[test]
    fn a_line_that_cannot_be_read_is_told_from_one_that_is_not_listed() {
        let list = Constraint::commands([vec!["echo".to_owned()]]);
        let subject = Subject::new([(Source::UserSettings, only(&[(Atom::ProcessExec, list)]))]);
        let denied = |line: &str, parsed: Option<Vec<Vec<String>>>| {
            let detail = Detail::Commands { line: line.to_owned(), parsed };
            subject.check(Request { atom: Atom::ProcessExec, detail }).unwrap_err().to_string()
        };
        assert!(denied("echo x >y", None).ends_with("without redirection, expansion or variables"));
        let other = denied("ls", Some(vec![vec!["ls".to_owned()]]));
        assert!(other.ends_with("(removed by user settings)"), "control: {other}");
    }

    #[test]
    fn a_grant_is_for_one_path_and_one_kind() {
        let subject = Subject::new([]);
        let grant = subject.check(Request::path(Atom::FileEdit, "/ws/a")).unwrap();
        assert!(
            grant.permits_write(Path::new("/ws/a")) && !grant.permits_write(Path::new("/ws/b"))
        );
        assert!(!grant.permits_exec() && !grant.permits_state(Path::new("/ws/a")));
        let read = subject.check(Request::path(Atom::FileRead, "/ws/a")).unwrap();
        assert!(!read.permits_write(Path::new("/ws/a")), "reading is not writing");
        assert!(read.permits_read(Path::new("/ws/a")) && !read.permits_read(Path::new("/ws/b")));
        assert!(!grant.permits_read(Path::new("/ws/a")), "writing is not reading");
        let state = Grant::own_state("/state");
        assert!(state.permits_state(Path::new("/state/x")));
        assert!(!state.permits_state(Path::new("/state/../x")));
        assert!(!state.permits_write(Path::new("/state/x")) && !state.permits_exec());
    }

    #[test]
    fn read_only_keeps_single_tools_that_a_list_names_and_says_which_servers_it_leaves_out() {
        let tool = Atom::McpTool("git".into(), "log".into());
        let server = Atom::McpServer("db".into());
        let list = only(&[
            (Atom::ImageEval, Constraint::Any),
            (tool.clone(), Constraint::Any),
            (server.clone(), Constraint::Any),
        ]);
        let subject = Subject::new([
            (Source::UserSettings, list),
            (flag("--read-only"), Narrowing::ReadOnly),
        ]);
        assert!(subject.holds(&tool) && !subject.holds(&server));
        assert_eq!(subject.withheld(), [server]);
        assert!(!subject.holds(&Atom::ImageEval) && !subject.holds(&Atom::ExtensionSpawnProcess));
        assert!(subject.holds(&Atom::FileRead) && subject.holds(&Atom::ImageInspect));

        let all = Subject::new([(flag("--read-only"), Narrowing::ReadOnly)]);
        assert!(!all.holds(&tool));
    }
}
