//! The `capabilities` setting: a string, or an array of strings and objects. Any other shape is an
//! error, never a silent "unrestricted".

use std::path::PathBuf;

use serde_json::Value;

use super::{
    atom::{Atom, UnknownAtom},
    constraint::Constraint,
    lattice::Authority,
    subject::Narrowing,
    words::shown,
};

/// The most names, paths and commands of one list together: whoever wrote it, meeting it with the
/// others must take no time that is felt.
pub const MOST: usize = 1000;

/// A list of capabilities as it was written: paths are not resolved yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct List {
    /// The entries, in the order in which they were written.
    pub entries: Vec<Entry>,
}

/// One entry of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// What is allowed.
    pub atom: Atom,
    /// How far.
    pub reach: Reach,
}

/// How far an entry reaches, as it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reach {
    /// Everywhere.
    Any,
    /// Beneath these directories; relative ones start from the workspace.
    Under(Vec<String>),
    /// Commands that start with these words.
    Commands(Vec<Vec<String>>),
}

/// A list that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ListError {
    /// A name that is no atom.
    #[error(transparent)]
    Unknown(#[from] UnknownAtom),
    /// A value of another type.
    #[error(
        "capabilities must be a string or an array of strings and objects, found {found}; `[]` allows nothing"
    )]
    Shape {
        /// What was found instead.
        found: String,
    },
    /// An object without `atom`, or with a key that does not exist.
    #[error("a capability object has `atom` and one of `under` or `commands`; {what}")]
    Object {
        /// What is wrong with it.
        what: String,
    },
    /// More than a run can be held to, each call being compared with all of it.
    #[error(
        "a list of capabilities holds at most {MOST} names, paths and commands; name directories, or a whole server (`mcp/SERVER/*`)"
    )]
    TooMany,
    /// A constraint of a kind that the atom does not take.
    #[error("`{atom}` takes no `{key}`{}", takes(.atom))]
    Kind {
        /// The atom.
        atom: Atom,
        /// The key of the constraint.
        key: &'static str,
    },
}

fn takes(atom: &Atom) -> &'static str {
    match atom.constrained_by() {
        Some("path") => "; it can be narrowed by `under`",
        Some(_) => "; it can be narrowed by `commands`",
        None => "; it cannot be narrowed",
    }
}

impl List {
    /// Reads the setting's value.
    ///
    /// # Errors
    /// [`ListError`] for any shape but a string or an array of strings and objects, for unknown
    /// names, keys and constraint kinds.
    pub fn from_value(value: &Value) -> Result<Self, ListError> {
        let mut entries = Vec::new();
        match value {
            Value::String(name) => add(&mut entries, name, &Reach::Any)?,
            Value::Array(items) => {
                for item in items {
                    match item {
                        Value::String(name) => add(&mut entries, name, &Reach::Any)?,
                        Value::Object(object) => add_object(&mut entries, object)?,
                        other => return Err(ListError::Shape { found: describe(other) }),
                    }
                }
            }
            other => return Err(ListError::Shape { found: describe(other) }),
        }
        Self::bounded(entries)
    }

    /// Reads a comma-separated list of names, as a flag gives it. The empty text allows nothing.
    ///
    /// # Errors
    /// [`ListError::Unknown`] for a name that is no atom.
    pub fn from_names(names: &str) -> Result<Self, ListError> {
        let mut entries = Vec::new();
        for name in names.split(',').map(str::trim).filter(|name| !name.is_empty()) {
            add(&mut entries, name, &Reach::Any)?;
        }
        Self::bounded(entries)
    }

    fn bounded(entries: Vec<Entry>) -> Result<Self, ListError> {
        let size = |entry: &Entry| match &entry.reach {
            Reach::Any => 1,
            Reach::Under(paths) => 1 + paths.len(),
            Reach::Commands(lists) => 1 + lists.len(),
        };
        if entries.iter().map(size).sum::<usize>() > MOST {
            return Err(ListError::TooMany);
        }
        Ok(Self { entries })
    }

    /// Returns the narrowing that the list describes; `resolve` turns a written path into the
    /// physical one.
    pub fn narrowing(&self, resolve: impl Fn(&str) -> PathBuf) -> Narrowing {
        let named = self.entries.iter().map(|entry| entry.atom.clone()).collect();
        Narrowing::Only { authority: self.authority(resolve), named }
    }

    fn authority(&self, resolve: impl Fn(&str) -> PathBuf) -> Authority {
        Authority::of(self.entries.iter().map(|entry| {
            let constraint = match &entry.reach {
                Reach::Any => Constraint::Any,
                Reach::Under(paths) => Constraint::under(paths.iter().map(|path| resolve(path))),
                Reach::Commands(lists) => Constraint::commands(lists.iter().cloned()),
            };
            (entry.atom.clone(), constraint)
        }))
    }
}

fn add(entries: &mut Vec<Entry>, name: &str, reach: &Reach) -> Result<(), ListError> {
    if name == "tools/standard" && *reach == Reach::Any {
        for atom in [Atom::FileRead, Atom::FileWrite, Atom::FileEdit, Atom::ProcessExec] {
            entries.push(Entry { atom, reach: Reach::Any });
        }
        return Ok(());
    }
    let atom: Atom = name.parse()?;
    let key = match reach {
        Reach::Any => None,
        Reach::Under(_) => (atom.constrained_by() != Some("path")).then_some("under"),
        Reach::Commands(_) => {
            (atom.constrained_by() != Some("command words")).then_some("commands")
        }
    };
    if let Some(key) = key {
        return Err(ListError::Kind { atom, key });
    }
    entries.push(Entry { atom, reach: reach.clone() });
    Ok(())
}

fn add_object(
    entries: &mut Vec<Entry>,
    object: &serde_json::Map<String, Value>,
) -> Result<(), ListError> {
    let wrong = |what: String| ListError::Object { what };
    if let Some(key) = object.keys().find(|k| !["atom", "under", "commands"].contains(&k.as_str()))
    {
        return Err(wrong(format!("`{}` is no key of it", shown(key))));
    }
    let Some(Value::String(name)) = object.get("atom") else {
        return Err(wrong("`atom` must be a string".to_owned()));
    };
    let strings = |key: &str, value: &Value| -> Result<Vec<String>, ListError> {
        let fault = || wrong(format!("`{key}` must be an array of strings that are not empty"));
        let items = value.as_array().ok_or_else(fault)?;
        items
            .iter()
            .map(|item| {
                item.as_str().filter(|s| !s.trim().is_empty()).map(str::to_owned).ok_or_else(fault)
            })
            .collect()
    };
    let reach = match (object.get("under"), object.get("commands")) {
        (None, None) => Reach::Any,
        (Some(under), None) => Reach::Under(strings("under", under)?),
        (None, Some(commands)) => Reach::Commands(
            strings("commands", commands)?
                .iter()
                .map(|list| list.split_whitespace().map(str::to_owned).collect())
                .collect(),
        ),
        (Some(_), Some(_)) => return Err(wrong("it has both `under` and `commands`".to_owned())),
    };
    // An empty `under` or `commands` reaches nowhere; it is kept, so that the report can say so.
    add(entries, name, &reach)
}

fn describe(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(b) => format!("`{b}`"),
        Value::Number(n) => format!("the number {n}"),
        Value::String(s) => format!("the string `{}`", shown(s)),
        Value::Array(_) => "an array inside the array".to_owned(),
        Value::Object(_) => "an object".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{super::constraint::Detail, *};

    fn read(value: &Value) -> Result<Authority, String> {
        List::from_value(value)
            .map(|list| list.authority(|path| PathBuf::from("/ws").join(path)))
            .map_err(|error| error.to_string())
    }

    #[test]
    fn every_shape_that_is_written_down_is_read() {
        assert!(read(&json!([])).unwrap().is_none());
        let one = read(&json!("file/read")).unwrap();
        assert_eq!(one.listed().unwrap().count(), 2, "file/read and result/read");
        let list = read(&json!([
            "image/inspect",
            { "atom": "file/write", "under": ["src", "/srv/docs"] },
            { "atom": "process/exec", "commands": ["cargo", "git diff"] }
        ]))
        .unwrap();
        assert!(list.allows(&Atom::FileWrite, &Detail::Path("/ws/src/a".into())));
        assert!(list.allows(&Atom::FileWrite, &Detail::Path("/srv/docs/a".into())));
        assert!(!list.allows(&Atom::FileWrite, &Detail::Path("/ws/a".into())));
        assert_eq!(list.reach(&Atom::ProcessExec).to_string(), "command cargo or git diff");
        let standard = read(&json!(["tools/standard"])).unwrap();
        assert_eq!(standard.listed().unwrap().count(), 5);
    }

    #[test]
    fn any_other_shape_is_an_error() {
        for (value, part) in [
            (json!(null), "found null"),
            (json!(true), "found `true`"),
            (json!(false), "found `false`"),
            (json!(3), "the number 3"),
            (json!({"file/read": true}), "found an object"),
            (json!([["file/read"]]), "an array inside the array"),
            (json!(["file/read", 1]), "the number 1"),
            (json!(["file/raed"]), "did you mean `file/read`?"),
            (json!([""]), "unknown capability ``"),
            (json!([{"atom": "file/read", "under": ["x"]}]), "it cannot be narrowed"),
            (json!([{"atom": "file/write", "commands": ["x"]}]), "narrowed by `under`"),
            (json!([{"atom": "file/write", "undre": ["x"]}]), "`undre` is no key"),
            (json!([{"atom": "file/write", "under": "x"}]), "array of strings"),
            (json!([{"atom": "file/write", "under": [""]}]), "not empty"),
            (json!([{"under": ["x"]}]), "`atom` must be a string"),
        ] {
            let error = read(&value).unwrap_err();
            assert!(error.contains(part), "{value}: {error}");
        }
    }

    #[test]
    fn an_empty_constraint_reaches_nowhere() {
        let none = read(&json!([{ "atom": "file/write", "under": [] }])).unwrap();
        assert!(none.is_none());
    }
}
