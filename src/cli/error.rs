//! What ends a command early: a kind that decides the exit code, a sentence, and hints.

use crate::agent::{Fault, FaultKind};

/// Every exit code with its meaning. Where several apply: 143 or 130, then 5, 4, 3, 1.
pub(crate) const EXIT_CODES: &[(u8, &str)] = &[
    (0, "done"),
    (FAILED, "the run failed: not done, an empty answer, a partial answer"),
    (USAGE, "usage or configuration"),
    (3, "a call was denied and no later call under the same atom succeeded"),
    (PROVIDER, "provider or credentials"),
    (5, "a budget ran out: turns, tokens, time, money"),
    (INTERNAL, "internal error"),
    (130, "interrupted (INT), or the reader of `stream-json` went away"),
    (143, "terminated (TERM, HUP)"),
];

/// Returns the exit codes as the end of `kli --help`.
pub(crate) fn exit_codes() -> String {
    let lines: Vec<String> =
        EXIT_CODES.iter().map(|(code, meaning)| format!("  {code:<4} {meaning}")).collect();
    format!("Exit codes:\n{}", lines.join("\n"))
}

/// The exit code of a run that failed.
pub(crate) const FAILED: u8 = 1;
/// The exit code of usage and configuration errors.
pub(crate) const USAGE: u8 = 2;
/// The exit code of provider and credential errors.
pub(crate) const PROVIDER: u8 = 4;
/// The exit code of what should not happen.
pub(crate) const INTERNAL: u8 = 70;

/// An error of the command line's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CliError {
    pub(crate) exit: u8,
    pub(crate) fault: Fault,
    pub(crate) hints: Vec<String>,
}

impl CliError {
    /// The command line or the settings say something that cannot be.
    pub(crate) fn config(message: impl Into<String>) -> Self {
        Self::new(USAGE, FaultKind::Config, message)
    }

    /// A key is missing.
    pub(crate) fn auth(message: impl Into<String>) -> Self {
        Self::new(PROVIDER, FaultKind::Auth, message)
    }

    /// Something failed that should not.
    pub(crate) fn internal(message: impl Into<String>) -> Self {
        Self::new(INTERNAL, FaultKind::Internal, message)
    }

    /// Adds what would mend it.
    #[must_use]
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hints.push(hint.into());
        self
    }

    fn new(exit: u8, kind: FaultKind, message: impl Into<String>) -> Self {
        Self { exit, fault: Fault { kind, message: message.into() }, hints: Vec::new() }
    }

    /// Returns the lines for standard error.
    pub(crate) fn lines(&self) -> Vec<String> {
        let mut lines = vec![format!("kli: {}", self.fault.message)];
        lines.extend(self.hints.iter().map(|hint| format!("hint: {hint}")));
        lines
    }
}
