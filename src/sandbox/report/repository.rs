//! What git would run because of what stands in a git directory: judged by content where names alone
//! would tell of every commit, `git init` and `git worktree add`. Pure.

use std::fmt::Write as _;
use std::path::{Component, Path, PathBuf};

use super::super::git::config::{self, Variable};
use super::super::plan::printable;

/// The variables that run nothing and lead nowhere, whatever their values; `*` stands for a
/// subsection.
const HARMLESS: [&str; 27] = [
    "branch.*.description",
    "branch.*.merge",
    "branch.*.rebase",
    "core.autocrlf",
    "core.bare",
    "core.eol",
    "core.filemode",
    "core.ignorecase",
    "core.logallrefupdates",
    "core.precomposeunicode",
    "core.repositoryformatversion",
    "core.safecrlf",
    "core.sharedrepository",
    "core.sparsecheckout",
    "core.sparsecheckoutcone",
    "core.symlinks",
    "extensions.compatobjectformat",
    "extensions.objectformat",
    "extensions.partialclone",
    "extensions.refstorage",
    "extensions.relativeworktrees",
    "extensions.worktreeconfig",
    "pull.rebase",
    "remote.*.fetch",
    "submodule.*.active",
    "user.email",
    "user.name",
];

/// The variables that hold an address: harmless unless it names a program (`ext::…`, gitremote-helpers(7)).
const ADDRESSES: [&str; 5] = [
    "branch.*.pushremote",
    "branch.*.remote",
    "remote.*.pushurl",
    "remote.*.url",
    "submodule.*.url",
];

/// Whether a variable can make git run something, or read something else that can.
pub(super) fn runs(variable: &Variable) -> bool {
    let is_one_of = |names: &[&str]| names.iter().any(|name| is_called(&variable.name, name));
    if is_one_of(&ADDRESSES) {
        return variable.value.windows(2).any(|two| two == b"::")
            || variable.value.starts_with(b"-");
    }
    !is_one_of(&HARMLESS)
}

fn is_called(name: &[u8], pattern: &str) -> bool {
    match pattern.split_once('*') {
        None => name == pattern.as_bytes(),
        Some((before, after)) => {
            name.len() >= before.len() + after.len()
                && name.starts_with(before.as_bytes())
                && name.ends_with(after.as_bytes())
        }
    }
}

/// What a configuration makes git run that it did not by `before`: words that name the variables;
/// `None` when there is nothing.
pub(super) fn new_in(before: &[u8], after: &[u8]) -> Option<String> {
    let old = config::variables(before);
    let (new, whole) = config::parse(after);
    let mut names: Vec<String> = Vec::new();
    for variable in new.iter().filter(|variable| runs(variable) && !old.contains(variable)) {
        let name = printable(&String::from_utf8_lossy(&variable.name));
        if !names.contains(&name) {
            names.push(name);
        }
    }
    if names.is_empty() {
        return (!whole).then(|| "git may run what it names, and it is broken".to_owned());
    }
    let mut words = "git runs or reads what it names:".to_owned();
    let more = names.len().saturating_sub(MAX_NAMED);
    for (index, name) in names.iter().take(MAX_NAMED).enumerate() {
        let short: String = name.chars().take(80).collect();
        // Writing to a string cannot fail.
        let _ = write!(words, "{} `{short}`", if index == 0 { "" } else { "," });
    }
    if more > 0 {
        let _ = write!(words, " and {more} more");
    }
    Some(words)
}

/// How many variables are named.
const MAX_NAMED: usize = 4;

/// The paths that a configuration leads to: where its values name a hook, a program, a further
/// configuration. Relative ones are meant from `from`, `~/` from `home`.
pub(super) fn leads_to(variables: &[Variable], from: &Path, home: Option<&Path>) -> Vec<PathBuf> {
    variables
        .iter()
        .filter(|variable| runs(variable))
        .filter_map(|variable| {
            let value = variable.value.strip_prefix(b"!").unwrap_or(&variable.value);
            let whole = super::super::git::read::path(value);
            let word = value.split(u8::is_ascii_whitespace).next().unwrap_or(value);
            let path = if variable.name.ends_with(b"path") {
                whole
            } else {
                super::super::git::read::path(word)
            };
            if path.as_os_str().is_empty() {
                return None;
            }
            Some(match (path.strip_prefix("~"), home) {
                (Ok(rest), Some(home)) => home.join(rest),
                _ => from.join(path),
            })
        })
        .collect()
}

/// Whether a list of what a rebase shall do next runs commands of its own (git-rebase(1), `exec`).
pub(super) fn has_commands(todo: &[u8]) -> bool {
    todo.split(|byte| *byte == b'\n').any(|line| {
        let word =
            line.trim_ascii_start().split(u8::is_ascii_whitespace).next().unwrap_or_default();
        word == b"exec" || word == b"x"
    })
}

/// `path` without `.` and `..`, by its words alone.
pub(super) fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for component in path.components() {
        match component {
            Component::ParentDir => drop(plain.pop()),
            Component::CurDir => {}
            other => plain.push(other),
        }
    }
    plain
}

#[cfg(test)]
mod tests;
