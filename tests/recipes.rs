//! `kli sandbox recipe`, and kli in lines of bubblewrap that people write by hand. The recipe for
//! bubblewrap is carried out here, for an ordinary user and for root, with the assertions that
//! `scripts/vm-test` makes of the others in a virtual machine.

mod bwrap;
mod container;
mod plain;
mod written;

use std::{fs, path::PathBuf, process::Output};

use crate::jail::{World, out};

/// The assertions from inside, the same for every recipe.
const INSIDE: &str = include_str!("vm/inside.sh");
/// How many there are.
const ASSERTIONS: usize = 14;

/// A recording in which kli writes a file, reads it back in a command, and says so.
const RECORDING: &str = include_str!("vm/recording.jsonl");
const SETTINGS: &str = include_str!("vm/settings.json");

/// Puts kli into the world, with settings and a recording.
fn with_kli(world: &World) -> PathBuf {
    let kli = world.root.join("kli");
    fs::copy(env!("CARGO_BIN_EXE_kli"), &kli).unwrap();
    world.file("home/.config/kli/settings.json", SETTINGS);
    world.file("home/.config/kli/recording.jsonl", RECORDING);
    kli
}

/// The words of a run of kli on that recording.
const RUN: [&str; 7] =
    ["-p", "go", "--model", "replay/x", "--profile", "autonomous", "--max-turns=9"];

/// Asserts that kli did what the recording says, and returns its standard error.
#[track_caller]
fn done(world: &World, output: &Output) -> String {
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(out(output), "The note is there.\n", "{output:?}");
    assert_eq!(fs::read_to_string(world.workspace.join("note.txt")).unwrap(), "from inside\n");
    crate::jail::err(output)
}

/// Prints a recipe.
fn recipe(kind: &str, spec: &str) -> Output {
    let mut child = std::process::Command::new(env!("CARGO_BIN_EXE_kli"))
        .args(["sandbox", "recipe", kind, "--spec", "-"])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), spec.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}
