//! The built-in profiles: named narrowings. A profile never adds authority.

use super::{atom::Atom, constraint::Constraint, lattice::Authority, subject::Narrowing};

/// A profile that is always there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BuiltIn {
    /// The name, as `--profile` takes it.
    pub name: &'static str,
    /// What it is for.
    pub about: &'static str,
    /// Whether a run without a budget is refused under it.
    pub needs_budget: bool,
}

/// The built-in profiles.
pub const BUILT_IN: &[BuiltIn] = &[
    BuiltIn { name: "interactive", about: "the terminal interface's default", needs_budget: false },
    BuiltIn { name: "print", about: "the default of `-p`", needs_budget: false },
    BuiltIn {
        name: "read-only",
        about: "reads and searches files, changes nothing",
        needs_budget: false,
    },
    BuiltIn {
        name: "autonomous",
        about: "as `print`, and a budget is required",
        needs_budget: true,
    },
    BuiltIn {
        name: "review",
        about: "read-only, and a fixed list of commands that build nothing",
        needs_budget: false,
    },
];

/// The commands of the profile `review`.
const REVIEW: &[&str] =
    &["git diff", "git log", "git show", "git status", "rg", "ls", "wc", "head", "tail", "cat"];

/// Returns the narrowing of a built-in profile; `None` for a name that is none.
pub fn built_in(name: &str) -> Option<Vec<Narrowing>> {
    let reading = [Atom::FileRead, Atom::ResultRead, Atom::ImageInspect];
    let reading = reading.into_iter().map(|atom| (atom, Constraint::Any));
    match name {
        "interactive" | "print" | "autonomous" => Some(Vec::new()),
        "read-only" => Some(vec![only(reading)]),
        "review" => {
            let words = |line: &&str| line.split(' ').map(str::to_owned).collect();
            let commands = Constraint::commands(REVIEW.iter().map(words));
            let entries = reading.chain([(Atom::ProcessExec, commands)]);
            Some(vec![only(entries)])
        }
        _ => None,
    }
}

fn only(entries: impl Iterator<Item = (Atom, Constraint)>) -> Narrowing {
    Narrowing::Only { authority: Authority::of(entries), named: Vec::new() }
}
