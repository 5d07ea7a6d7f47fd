//! Faults on demand, for tests of what a fault of kli's own leaves of a terminal. They need a real
//! program on a real terminal, and a program has no fault that can be relied on.
//!
//! Only builds with debug assertions have them. A release build has no name to look for and no code
//! behind it.

use crate::cli::setup::Setup;

/// Where a fault can happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// In the loop that has the terminal.
    Loop,
    /// On the thread that answers commands, which outlives it.
    Command,
}

/// Panics when `KLI_TEST_FAULT` names this place: `loop` or `command`.
#[cfg(debug_assertions)]
pub(super) fn on_demand(setup: &Setup, place: Place) {
    let wanted = match place {
        Place::Loop => "loop",
        Place::Command => "command",
    };
    let asked = setup.environment.var("KLI_TEST_FAULT");
    assert!(asked.is_none_or(|asked| asked != wanted), "a fault that a test asked for");
}

/// Does nothing: see above.
#[cfg(not(debug_assertions))]
pub(super) fn on_demand(_: &Setup, _: Place) {}
