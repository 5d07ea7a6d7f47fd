//! The report: a subject in words and as JSON, and the atom table for the documentation.

use std::fmt::Write as _;

use serde::Serialize;

use super::{
    atom::{Atom, TABLE},
    constraint::Constraint,
    subject::{Approve, Subject},
};

/// What bounds the process from outside, as far as it can be told from inside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Confinement {
    /// kli's own launcher, by its marker.
    KliSandbox,
    /// Something else that was recognised by its usual signs; nobody checked what it denies.
    Outer(&'static str),
    /// No sign of any.
    None,
    /// It could not be told.
    Unknown,
}

impl Confinement {
    /// Returns the fixed wording, the same in reports and in the interface.
    pub fn label(self) -> String {
        match self {
            Self::KliSandbox => "kli-sandbox".to_owned(),
            Self::Outer(what) => format!("outer: {what}, unverified"),
            Self::None => "none".to_owned(),
            Self::Unknown => "unknown".to_owned(),
        }
    }
}

/// A subject, ready to be printed. The JSON keys come in the order of the fields.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Report {
    #[serde(rename = "type")]
    kind: &'static str,
    scope: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    capabilities: Option<Vec<Held>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    excluded: Option<Vec<String>>,
    sources: Vec<String>,
    notes: Vec<String>,
    confinement: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct Held {
    atom: String,
    constraint: String,
}

impl Report {
    /// Describes a subject.
    pub fn new(subject: &Subject, confinement: Confinement) -> Self {
        let authority = subject.authority();
        let holes: Vec<&Atom> = authority.excluded().collect();
        let held: Option<Vec<Held>> = authority.listed().map(|entries| {
            entries
                .map(|(atom, constraint)| Held {
                    atom: atom.to_string(),
                    constraint: describe(atom, constraint, &holes),
                })
                .collect()
        });
        let (scope, capabilities, excluded) = match held {
            None if holes.is_empty() => ("universal", Some(Vec::new()), None),
            None => {
                let names = holes.iter().map(ToString::to_string).collect();
                ("universal-except", None, Some(names))
            }
            Some(held) if held.is_empty() => ("none", Some(held), None),
            Some(held) => ("bounded", Some(held), None),
        };
        Self {
            kind: "authority",
            scope,
            capabilities,
            excluded,
            sources: subject.sources().map(ToString::to_string).collect(),
            notes: notes(subject),
            confinement: confinement.label(),
        }
    }

    /// Returns what confines the process, in words.
    pub fn confinement(&self) -> &str {
        &self.confinement
    }

    /// Adds notes of the composition root's, such as the budgets of the run.
    #[must_use]
    pub fn with_notes(mut self, notes: impl IntoIterator<Item = String>) -> Self {
        self.notes.extend(notes);
        self
    }

    /// Returns the report in words, without sources and notes.
    pub fn text(&self) -> String {
        let mut text = String::new();
        match self.scope {
            "universal" => {
                text.push_str("authority: universal (every capability, unconstrained)\n");
            }
            "universal-except" => {
                text.push_str("authority: universal except (every capability but those listed)\n");
                for name in self.excluded.iter().flatten() {
                    text.extend(["  ", name, "\n"]);
                }
            }
            "none" => text.push_str("authority: none (no capability is granted)\n"),
            _ => {
                text.push_str("authority:\n");
                for held in self.capabilities.iter().flatten() {
                    text.extend(["  ", held.atom.as_str()]);
                    if held.constraint != "any" {
                        text.extend(["  [", held.constraint.as_str(), "]"]);
                    }
                    text.push('\n');
                }
            }
        }
        text
    }

    /// Returns what surrounds the report, a line each: sources, notes, confinement.
    pub fn remarks(&self) -> Vec<String> {
        let mut lines: Vec<String> =
            self.sources.iter().map(|source| format!("narrowed by: {source}")).collect();
        lines.extend(self.notes.iter().map(|note| format!("note: {note}")));
        lines.push(format!("confinement: {}", self.confinement));
        lines
    }
}

fn describe(atom: &Atom, constraint: &Constraint, holes: &[&Atom]) -> String {
    let inside: Vec<String> = holes
        .iter()
        .filter(|hole| atom.includes(hole) && **hole != atom)
        .map(ToString::to_string)
        .collect();
    match (constraint, inside.is_empty()) {
        (constraint, true) => constraint.to_string(),
        (Constraint::Any, false) => format!("any except {}", inside.join(", ")),
        (constraint, false) => format!("{constraint} except {}", inside.join(", ")),
    }
}

fn notes(subject: &Subject) -> Vec<String> {
    let mut notes = Vec::new();
    match subject.authority().reach(&Atom::ProcessExec) {
        Constraint::None => {}
        Constraint::Commands(_) => notes.push(
            "process/exec is limited by command words: a guide rail, since a listed program may \
             run others or write files; the sandbox is what bounds it"
                .to_owned(),
        ),
        _ => notes.push(
            "process/exec is held: a shell reads and writes whatever the process can, whatever the \
             file atoms say; the sandbox is what bounds it"
                .to_owned(),
        ),
    }
    if subject.holds(&Atom::ImageEval) {
        notes.push("image/eval is held: code inside the process has every other actuator".into());
    }
    for atom in subject.withheld() {
        notes.push(format!(
            "`{atom}` is left out: nobody can tell which of its tools write; name single tools"
        ));
    }
    for (tool, source) in subject.denied_tools() {
        notes
            .push(format!("the tool `{tool}` is denied and not offered (`denyTools` of {source})"));
    }
    if let Some(source) = subject.approval_source() {
        let which = match subject.approval_policy() {
            Approve::All => "every call",
            _ => "every call that may have an effect",
        };
        notes.push(format!(
            "{which} needs approval (asked for by {source}); a headless run cannot ask and denies it"
        ));
    }
    notes
}

/// Returns the atom table in Markdown, as `docs/authority.md` carries it.
pub fn atom_table() -> String {
    let mut text =
        String::from("| atom | gates | narrowed by | implies |\n| --- | --- | --- | --- |\n");
    for row in TABLE {
        let implies: Vec<String> = row.implies.iter().map(|name| format!("`{name}`")).collect();
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "| `{}` | {} | {} | {} |",
            row.name,
            row.gates,
            row.constrained_by,
            implies.join(", ")
        );
    }
    text
}
