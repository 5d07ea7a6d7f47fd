//! Where `search` and `find` look: the directory that a call names, the walk through it, and the
//! words for what the walk left out.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, atomic::AtomicBool},
};

use super::{
    Context,
    arguments::Arguments,
    target::{Target, shown},
};
use crate::host::{beneath::Beneath, files, walk};

/// Where a call looks.
#[derive(Clone, Debug)]
pub(super) struct Scope {
    pub(super) target: Target,
    /// Whether the call named a path, which is looked through even when it is ignored.
    is_named: bool,
}

impl Scope {
    /// Reads the argument `path`; the workspace when it is left out.
    pub(super) fn of(arguments: Arguments<'_>, context: &Arc<Context>) -> Result<Self, String> {
        let path = arguments.optional_text("path")?.filter(|path| !path.is_empty());
        let target = match path {
            None => Target::workspace(context),
            Some(path) => Target::spelled(&path, context)?,
        };
        let is_named = target.path != context.workspace;
        Ok(Self { target, is_named })
    }

    /// Opens what is there, by its physical path.
    pub(super) fn open(&self) -> Result<files::Opened, crate::host::HostError> {
        files::open(&self.target.path)
    }

    /// Walks below the opened directory: with the ignore rules unless they name the directory
    /// itself. A named directory of which they leave no file is walked once more without them.
    /// `visitor` makes the visitors; `again` is called before a second walk, to forget the first.
    pub(super) fn walk<'a>(
        &self,
        root: &Arc<Beneath>,
        stop: &'a AtomicBool,
        visitor: &'a (dyn Fn() -> walk::Visitor<'a> + Sync),
        again: impl FnOnce(),
    ) -> Walked {
        let workspace = &self.target.context.workspace;
        let rules = |ignore| walk::Rules { ignore, threads: 0 };
        if self.is_named && walk::is_ignored(workspace, &self.target.path) {
            let left_out = walk::walk(root, rules(false), stop, visitor);
            return Walked { left_out, is_unruled: true };
        }
        let left_out = walk::walk(root, rules(true), stop, visitor);
        let is_nothing_left = left_out.left_in == 0
            && (left_out.ignored_files > 0 || !left_out.ignored_directories.is_empty());
        if !(self.is_named && is_nothing_left) {
            return Walked { left_out, is_unruled: false };
        }
        again();
        Walked { left_out: walk::walk(root, rules(false), stop, visitor), is_unruled: true }
    }

    /// Returns a physical path as results show it: relative to the workspace when it is below.
    pub(super) fn name(&self, path: &Path) -> String {
        shown(path.strip_prefix(&self.target.context.workspace).unwrap_or(path))
    }
}

/// What a walk left out, and whether it went without the ignore rules.
#[derive(Debug, Default)]
pub(super) struct Walked {
    pub(super) left_out: walk::LeftOut,
    pub(super) is_unruled: bool,
}

impl Walked {
    /// Returns the notes for what the ignore rules and the working trees took out. `verb` is what
    /// the tool does with a path: "search it".
    pub(super) fn notes(&self, done: &str, verb: &str) -> Vec<String> {
        let mut notes = Vec::new();
        if self.is_unruled {
            notes.push(format!("ignore rules name this path; it was {done} without them"));
        }
        let mut skipped = Vec::new();
        let directories = self.left_out.ignored_directories.len();
        if directories > 0 {
            let noun = if directories == 1 { "directory" } else { "directories" };
            let names = names(self.left_out.ignored_directories.iter().map(PathBuf::as_path));
            skipped.push(format!("{directories} ignored {noun} skipped ({names})"));
        }
        match self.left_out.ignored_files {
            0 => {}
            1 => skipped.push("1 ignored file skipped".to_owned()),
            n => skipped.push(format!("{n} ignored files skipped")),
        }
        if !skipped.is_empty() {
            notes.push(format!("{}; give one as `path` to {verb} it", skipped.join(", ")));
        }
        if !self.left_out.worktrees.is_empty() {
            let names = names(self.left_out.worktrees.iter().map(PathBuf::as_path));
            notes.push(format!("other working trees skipped ({names})"));
        }
        notes
    }
}

/// Returns the first names of a list, and says when there are more.
pub(super) fn names<'a>(paths: impl ExactSizeIterator<Item = &'a Path>) -> String {
    let more = paths.len() > 5;
    let first: Vec<String> = paths.take(5).map(shown).collect();
    format!("{}{}", first.join(", "), if more { ", …" } else { "" })
}
