//! The agent's binary: everything is in `kli::cli`.

#![expect(clippy::disallowed_methods, reason = "the command line is read here, once")]

use std::process::ExitCode;

/// What keeps the memory of eval's sessions in bounds.
#[cfg(feature = "lisp")]
#[global_allocator]
static ALLOCATOR: kli::host::bounds::Counted = kli::host::bounds::Counted;

fn main() -> ExitCode {
    kli::cli::main(&std::env::args_os().collect::<Vec<_>>())
}
