//! The launcher's binary: `run | check | explain`. Everything is in `kli::sandbox`.

use std::process::ExitCode;

fn main() -> ExitCode {
    kli::sandbox::command::main()
}
