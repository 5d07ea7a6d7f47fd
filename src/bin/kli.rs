//! The agent's binary: everything is in `kli::cli`.

#![expect(clippy::disallowed_methods, reason = "the command line is read here, once")]

use std::process::ExitCode;

fn main() -> ExitCode {
    kli::cli::main(&std::env::args_os().collect::<Vec<_>>())
}
