//! `kli demo`: it says ok only for what is so, it fails when the launcher does not do its work, and
//! it leaves nothing behind, however it ends.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    time::{Duration, Instant},
};

use rustix::process::Signal;
use tempfile::TempDir;

use crate::{
    harness::{Ran, processes_with, wait_for},
    jail::kill,
};

/// A directory with kli in it and something that calls itself the launcher.
struct Install {
    place: TempDir,
}

impl Install {
    fn new(launcher: &str) -> Self {
        let place = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        fs::hard_link(env!("CARGO_BIN_EXE_kli"), place.path().join("kli")).unwrap();
        let path = place.path().join("kli-sandbox");
        // It writes down its arguments first: they tell where the demo's directory is.
        let head = format!("#!/bin/sh\necho \"$3\" >'{}'\n", place.path().join("spec").display());
        fs::write(&path, head + launcher).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        Self { place }
    }

    fn command(&self) -> Command {
        let mut command = Command::new(self.place.path().join("kli"));
        command
            .arg("demo")
            .env_clear()
            .env("PATH", "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    /// Returns the demo's directory, as the launcher was told.
    fn scratch(&self) -> Option<PathBuf> {
        let text = fs::read_to_string(self.place.path().join("spec")).ok()?;
        Path::new(text.strip_suffix('\n')?).parent().map(Path::to_path_buf)
    }

    fn run(&self) -> Ran {
        let ran = Ran::from(output(self.command()));
        assert!(!self.scratch().unwrap().exists(), "it is left behind: {ran:#?}");
        ran
    }
}

fn output(mut command: Command) -> Output {
    command.output().unwrap()
}

/// Returns the first words of the lines: `ok` or `FAILED`.
fn verdicts(ran: &Ran) -> Vec<&str> {
    ran.out.lines().filter_map(|line| line.split_whitespace().next()).collect()
}

const REAL: &str = env!("CARGO_BIN_EXE_kli-sandbox");

#[test]
fn with_the_real_launcher_all_is_well() {
    let install = Install::new(&format!("exec {REAL} \"$@\"\n"));
    let ran = install.run();
    ran.exits(0);
    assert_eq!(verdicts(&ran), ["ok"; 6], "{ran:#?}");
}

#[test]
fn a_launcher_that_does_not_confine_is_found_out() {
    let install = Install::new("while [ \"$1\" != -- ]; do shift; done\nshift\nexec \"$@\"\n");
    let ran = install.run();
    ran.exits(1);
    assert_eq!(verdicts(&ran), ["ok", "ok", "ok", "FAILED", "FAILED", "FAILED"], "{ran:#?}");
}

#[test]
fn a_launcher_that_forgets_one_rule_is_found_out() {
    for (rule, failed) in [("denyRead", 3), ("denyEnv", 4)] {
        // The rule is renamed to one that denies what is not there.
        let other = if rule == "denyRead" { "~/.nothing" } else { "KLI_DEMO_NOTHING" };
        let install = Install::new(&format!(
            "sed -i 's,\"{rule}\":\\[[^]]*\\],\"{rule}\":[\"{other}\"],' \"$3\"\nexec {REAL} \"$@\"\n"
        ));
        let ran = install.run();
        ran.exits(1);
        let verdicts = verdicts(&ran);
        assert_eq!(verdicts.len(), 6, "{ran:#?}");
        assert_eq!(verdicts[failed], "FAILED", "{rule}: {ran:#?}");
        assert_eq!(verdicts[..3], ["ok"; 3], "{rule}: {ran:#?}");
    }
}

#[test]
fn a_launcher_that_cannot_confine_is_said_and_nothing_is_judged() {
    let install = Install::new("echo 'kli-sandbox: no namespaces here' >&2\nexit 125\n");
    let ran = install.run();
    ran.exits(125).says("no namespaces here");
    assert_eq!(ran.out, "");
}

#[test]
fn an_interrupted_demo_leaves_neither_files_nor_processes() {
    for (signal, code, nth) in
        [(Signal::INT, 130, 1), (Signal::TERM, 143, 2), (Signal::HUP, 143, 3)]
    {
        let mark = format!("6{nth}.{}", std::process::id());
        let install = Install::new(&format!("sleep {mark}\n"));
        let child = install.command().spawn().unwrap();
        let word = format!("sleep\0{mark}");
        wait_for("the launcher", || processes_with(&word).first().copied());
        let scratch = install.scratch().unwrap();
        assert!(scratch.exists(), "control");
        let start = Instant::now();
        kill(i32::try_from(child.id()).unwrap(), signal);
        let ran = Ran::from(child.wait_with_output().unwrap());
        ran.exits(code).says("interrupted");
        assert_eq!(ran.out, "");
        assert!(start.elapsed() < Duration::from_secs(3));
        assert!(!scratch.exists(), "{ran:#?}");
        assert_eq!(processes_with(&word), Vec::<i32>::new());
    }
}

#[test]
fn what_is_missing_is_named_with_the_repair() {
    let install = Install::new("exit 1\n");
    let mut command = install.command();
    command.env("PATH", install.place.path());
    Ran::from(output(command)).exits(2).says("`git` cannot be started").says("install `git`");
    fs::remove_file(install.place.path().join("kli-sandbox")).unwrap();
    Ran::from(output(install.command())).exits(2).says("no launcher at").says("install both");
}
