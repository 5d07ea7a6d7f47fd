//! Reads a command line as simple commands, when there is no doubt what the shell will run.
//!
//! Two readers must agree. The grammar is read by the parser of the crate `rable`; every node that
//! is not listed here as harmless makes the whole line unread. Beside it [`lex`] cuts the line into
//! tokens by rules of its own that know only plain words, and both must have found the same words
//! and redirections in the same order. It says nothing rather than something wrong: an unread line
//! needs the unconstrained atom.

use std::path::Path;

use rable::{
    Node, NodeKind,
    ast::{ListOperator, PipeSep},
};

mod lex;

use lex::{Redirection, Word};

const OTHER_READERS: &[&str] = &[
    // Grammar, bash(1) "Reserved words".
    "!",
    "[[",
    "]]",
    "{",
    "}",
    "case",
    "coproc",
    "do",
    "done",
    "elif",
    "else",
    "esac",
    "fi",
    "for",
    "function",
    "if",
    "in",
    "select",
    "then",
    "time",
    "until",
    "while",
    // Builtins that run other words, write files, or change what words and names mean. `[` and
    // `test` expand the subscript of a name, be it quoted: `test -v 'a[$(x)]'`.
    ".",
    "[",
    "alias",
    "bind",
    "builtin",
    "command",
    "compgen",
    "complete",
    "declare",
    "enable",
    "eval",
    "exec",
    "export",
    "fc",
    "getopts",
    "hash",
    "history",
    "let",
    "local",
    "mapfile",
    "printf",
    "read",
    "readarray",
    "readonly",
    "set",
    "shopt",
    "source",
    "test",
    "trap",
    "typeset",
    "unalias",
    "unset",
    "wait",
    // Builtins that act on jobs.
    "bg",
    "disown",
    "fg",
    "jobs",
    "suspend",
    // Programs whose purpose is to run another.
    "ash",
    "bash",
    "busybox",
    "bwrap",
    "catchsegv",
    "choom",
    "chroot",
    "chrt",
    "csh",
    "dash",
    "dbus-run-session",
    "doas",
    "entr",
    "env",
    "expect",
    "fakeroot",
    "faketime",
    "firejail",
    "fish",
    "flock",
    "gosu",
    "ionice",
    "ksh",
    "ltrace",
    "mksh",
    "nice",
    "nohup",
    "nsenter",
    "numactl",
    "parallel",
    "pkexec",
    "posh",
    "prlimit",
    "proot",
    "rbash",
    "run-parts",
    "runuser",
    "screen",
    "script",
    "setarch",
    "setpriv",
    "setsid",
    "sg",
    "sh",
    "ssh",
    "start-stop-daemon",
    "stdbuf",
    "strace",
    "su",
    "su-exec",
    "sudo",
    "systemd-run",
    "taskset",
    "tcsh",
    "timeout",
    "tmux",
    "toybox",
    "unbuffer",
    "unshare",
    "valgrind",
    "watch",
    "xargs",
    "xvfb-run",
    "yash",
    "zsh",
];

/// The longest line that is read, in bytes.
const LONGEST: usize = 32_768;

/// How deep groups and compound commands may nest in a line that is read.
const DEEPEST: usize = 32;

/// How many signs may separate the commands of a line that is read; the parser goes deeper with some.
const MOST_SIGNS: usize = 256;

/// Returns the simple commands of a line, each as its words, or `None` when the shell might run
/// anything else. `shell` is the program that will read the line.
pub(super) fn read(line: &str, shell: &Path) -> Option<Vec<Vec<String>>> {
    // Other shells expand more (zsh: `=ls`).
    let known = ["bash", "dash", "sh"];
    shell.file_name().and_then(|name| name.to_str()).filter(|name| known.contains(name))?;
    if line.len() > LONGEST {
        return None;
    }
    // First the own reader: what it does not know, the parser need not see.
    let tokens = lex::tokens(line)?;
    if tokens.depth > DEEPEST || tokens.signs > MOST_SIGNS {
        return None;
    }
    let mut found = Found::default();
    for node in rable::parse(line, false).ok()? {
        found.node(&node, 0)?;
    }
    let same = found.words == tokens.words
        && found.redirections == tokens.redirections
        && !found.commands.is_empty();
    same.then_some(found.commands)
}

/// What the parser found, as far as it is understood.
#[derive(Default)]
struct Found {
    commands: Vec<Vec<String>>,
    /// All words in order, without those of the grammar.
    words: Vec<Word>,
    redirections: Vec<Redirection>,
}

impl Found {
    fn node(&mut self, node: &Node, depth: usize) -> Option<()> {
        if depth > MOST_SIGNS + DEEPEST * 4 {
            return None;
        }
        let depth = depth + 1;
        match &node.kind {
            NodeKind::Command { assignments, words, redirects } if assignments.is_empty() => {
                self.command(words)?;
                self.redirects(redirects)
            }
            NodeKind::Pipeline { commands, separators } => {
                let plain = separators.iter().all(|sign| *sign == PipeSep::Pipe);
                plain.then_some(())?;
                commands.iter().try_for_each(|command| self.node(command, depth))
            }
            NodeKind::List { items } => items.iter().try_for_each(|item| match item.operator {
                Some(ListOperator::Background) => None,
                Some(ListOperator::And | ListOperator::Or | ListOperator::Semi) | None => {
                    self.node(&item.command, depth)
                }
            }),
            NodeKind::If { condition, then_body, else_body, redirects } => {
                self.node(condition, depth)?;
                self.node(then_body, depth)?;
                if let Some(body) = else_body {
                    self.node(body, depth)?;
                }
                self.redirects(redirects)
            }
            NodeKind::While { condition, body, redirects }
            | NodeKind::Until { condition, body, redirects } => {
                self.node(condition, depth)?;
                self.node(body, depth)?;
                self.redirects(redirects)
            }
            NodeKind::Subshell { body, redirects } | NodeKind::BraceGroup { body, redirects } => {
                self.node(body, depth)?;
                self.redirects(redirects)
            }
            NodeKind::Negation { pipeline } => self.node(pipeline, depth),
            _ => None,
        }
    }

    fn command(&mut self, nodes: &[Node]) -> Option<()> {
        let mut words = Vec::new();
        for node in nodes {
            let NodeKind::Word { value, .. } = &node.kind else { return None };
            let word = lex::whole_word(value)?;
            if !word.is_grammar() {
                self.words.push(word.clone());
            }
            words.push(word.text);
        }
        // A redirection alone, or nothing.
        let first = words.first()?;
        let name = first.rsplit('/').next().unwrap_or(first);
        // A `%` in front names a job to continue.
        if name.is_empty()
            || first.contains('=')
            || first.starts_with('%')
            || OTHER_READERS.contains(&name)
        {
            return None;
        }
        self.commands.push(words);
        Some(())
    }

    fn redirects(&mut self, nodes: &[Node]) -> Option<()> {
        for node in nodes {
            let redirection = match &node.kind {
                NodeKind::Redirect { op, target, fd, varfd: None } => {
                    let NodeKind::Word { value, .. } = &target.kind else { return None };
                    Redirection::Other { fd: *fd, op: op.clone(), target: value.clone() }
                }
                NodeKind::HereDoc {
                    delimiter, content, strip_tabs: false, fd, complete, ..
                } if *complete && *fd <= 0 => {
                    Redirection::Document { end: delimiter.clone(), text: content.clone() }
                }
                _ => return None,
            };
            self.redirections.push(redirection);
        }
        Some(())
    }
}

#[cfg(test)]
mod tests;
