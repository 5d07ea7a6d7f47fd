//! The tool `find`: files and directories by name, on ripgrep's own walker.
//!
//! The order is by path, whatever the threads do, and what was left out is said. Every name that is
//! shown was looked up through the handle of the directory that was asked for.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use rustix::fs::FileType;
use serde_json::{Map, Value, json};

use super::{
    Context, Invocation, Outcome, Tool,
    arguments::Arguments,
    cut,
    glob::Glob,
    scope::{Scope, Walked},
    search::UNFINISHED,
    target::{Look, Target, mark},
};
use crate::{
    authority::Atom,
    host::{
        HostError,
        beneath::Beneath,
        files::Opened,
        walk::{Visit, Visitor},
    },
};

/// The most entries that are shown.
const MAX_ENTRIES: usize = 1000;

/// The tool `find`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Find;

impl Tool for Find {
    fn name(&self) -> &'static str {
        "find"
    }

    fn description(&self) -> &'static str {
        "Find files and directories by name, also hidden ones; ignored ones only below a `path` that \
         names them."
    }

    fn schema(&self) -> Value {
        json!({
            "type": "object",
            "properties": {
                "pattern": {"type": "string", "description": "glob like `src/**/*.c`, or part of a name; final `/`: directories"},
                "path": {"type": "string"}
            },
            "required": ["pattern"],
            "additionalProperties": false
        })
    }

    fn atom(&self) -> Atom {
        Atom::FileRead
    }

    fn prepare(
        &self,
        arguments: &Map<String, Value>,
        context: &Arc<Context>,
    ) -> Result<Box<dyn Invocation>, String> {
        let arguments = Arguments::new(arguments);
        arguments.known(&["pattern", "path"])?;
        let pattern = Pattern::new(&arguments.text("pattern")?)?;
        Ok(Box::new(Call { pattern, scope: Scope::of(arguments, context)? }))
    }
}

/// What a name must be like.
#[derive(Debug)]
struct Pattern {
    how: How,
    directories_only: bool,
}

#[derive(Debug)]
enum How {
    Glob(Glob),
    /// A part of the name, or with a `/` of the path, in lower case.
    Part(String),
}

impl Pattern {
    fn new(text: &str) -> Result<Self, String> {
        let (text, directories_only) =
            text.strip_suffix('/').map_or((text, false), |directory| (directory, true));
        if text.trim().is_empty() {
            return Err("`pattern` is empty; give a glob like `*.rs`, or `*` for everything".into());
        }
        let how = if text.contains(['*', '?', '[', '{']) {
            How::Glob(Glob::of_entries(text, "pattern")?)
        } else {
            let part = text.strip_prefix("./").unwrap_or(text);
            How::Part(part.to_lowercase())
        };
        Ok(Self { how, directories_only })
    }

    fn takes(&self, relative: &Path, kind: FileType) -> bool {
        if self.directories_only && kind != FileType::Directory {
            return false;
        }
        match &self.how {
            How::Glob(glob) => glob.takes(relative),
            How::Part(part) => {
                let text = if part.contains('/') {
                    relative.as_os_str()
                } else {
                    relative.file_name().unwrap_or_default()
                };
                text.to_string_lossy().to_lowercase().contains(part)
            }
        }
    }
}

#[derive(Debug)]
struct Call {
    pattern: Pattern,
    scope: Scope,
}

impl Look for Call {
    fn target(&self) -> &Target {
        &self.scope.target
    }

    fn look(&self, stop: &AtomicBool) -> Result<Outcome, HostError> {
        self.find(stop)
    }
}

/// What was found so far: the first entries by path, and how many there are in all.
#[derive(Debug, Default)]
struct Found {
    entries: BTreeMap<PathBuf, FileType>,
    count: usize,
}

impl Found {
    fn add(&mut self, path: &Path, kind: FileType) {
        self.count = self.count.saturating_add(1);
        let is_full = self.entries.len() >= MAX_ENTRIES;
        if is_full && self.entries.last_key_value().is_some_and(|(last, _)| path > last.as_path()) {
            return;
        }
        self.entries.insert(path.to_owned(), kind);
        if is_full {
            self.entries.pop_last();
        }
    }
}

impl Call {
    fn find(&self, stop: &AtomicBool) -> Result<Outcome, HostError> {
        let Opened::Directory(handle) = self.scope.open()? else {
            return Err(HostError::Kind {
                path: self.scope.target.path.clone(),
                kind: "a file",
                wanted: "a directory to look through",
            });
        };
        let root = Arc::new(Beneath::new(handle, &self.scope.target.path));
        let found = Mutex::new(Found::default());
        let lock = || found.lock().unwrap_or_else(PoisonError::into_inner);
        let visitor = || -> Visitor<'_> {
            Box::new(|relative, kind| {
                if !self.pattern.takes(relative, kind) {
                    return Visit::Passed;
                }
                let Some(kind) = root.kind(relative) else { return Visit::Passed };
                lock().add(relative, kind);
                Visit::Taken
            })
        };
        let walked = self.scope.walk(&root, stop, &visitor, || *lock() = Found::default());
        let found = std::mem::take(&mut *lock());
        let mut outcome = self.outcome(&found, &walked);
        if stop.load(Ordering::Relaxed) {
            outcome.is_error = true;
            outcome.text.push_str(UNFINISHED);
        }
        Ok(outcome)
    }

    fn outcome(&self, found: &Found, walked: &Walked) -> Outcome {
        let mut text = String::new();
        let mut shown = 0_usize;
        for (relative, kind) in &found.entries {
            let name = self.scope.name(&self.scope.target.path.join(relative));
            if text.len().saturating_add(name.len()) > cut::BUDGET {
                break;
            }
            text.push_str(&name);
            text.push_str(mark(*kind));
            text.push('\n');
            shown = shown.saturating_add(1);
        }
        let mut notes = Vec::new();
        if found.count == 0 {
            notes.push("nothing found".to_owned());
        } else if found.count > shown {
            notes.push(format!(
                "{} more are not shown ({} in all): narrow `pattern` or `path`",
                found.count - shown,
                found.count
            ));
        }
        notes.extend(walked.notes("looked through", "look through"));
        if walked.left_out.unreadable > 0 {
            notes.push(format!("could not be read: {}", walked.left_out.unreadable));
        }
        for note in notes {
            text.push('[');
            text.push_str(&note);
            text.push_str("]\n");
        }
        text.pop();
        if found.count == 0 {
            text.push_str(self.scope.target.note_when_masked());
        }
        let record = json!({
            "found": found.count,
            "shown": shown,
            "ignoredDirectories": walked.left_out.ignored_directories.len(),
            "ignoredFiles": walked.left_out.ignored_files,
        });
        Outcome { record, ..Outcome::ok(text) }
    }
}

#[cfg(test)]
mod tests;
