//! kli inside lines of bubblewrap as people write them: everything is read-only but the workspace,
//! so there is no place for a session.

use std::process::{Command, Output};

use super::{RUN, done, with_kli};
use crate::jail::{World, err, for_both, has};

fn plain(world: &World, further: &[&str], run: impl FnOnce(&mut Command) -> Output) -> Output {
    let place = world.workspace.to_str().unwrap();
    let kli = with_kli(world);
    let mut command = world.command("timeout");
    command
        .args(["-k", "1", "30", "bwrap", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"])
        .args(["--tmpfs", "/tmp", "--unshare-pid", "--unshare-ipc", "--bind", place, place])
        .args(["--chdir", place])
        .args(further)
        .arg("--")
        .arg(kli)
        .args(RUN);
    run(&mut command)
}

#[track_caller]
fn works(world: &World, output: &Output) {
    let said = done(world, output);
    has(&said, &["no session is kept"]);
    assert!(!world.home.join(".local").exists(), "nothing is written outside the workspace");
}

#[test]
fn kli_works_in_the_plain_line_and_says_that_no_session_is_kept() {
    for_both(|world| {
        let output = plain(world, &[], |command| command.output().unwrap());
        works(world, &output);
    });
}

#[test]
fn kli_says_what_confines_it_and_believes_no_marker_that_can_be_written() {
    for_both(|world| {
        let kli = with_kli(world).display().to_string();
        let place = world.workspace.display().to_string();
        let told = |output: Output| {
            assert!(output.status.success(), "{output:?}");
            let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
            report["confinement"].as_str().unwrap().to_owned()
        };
        let preview = [kli.as_str(), "--print-authority", "--json"];
        let plain = |further: &[&str], words: &[&str]| {
            let mut command = world.command("timeout");
            command.args(["-k", "1", "30", "bwrap", "--ro-bind", "/", "/", "--dev", "/dev"]);
            command.args(["--proc", "/proc", "--unshare-pid", "--tmpfs", "/run"]);
            command.args(["--bind", &place, &place, "--chdir", &place]).args(further).arg("--");
            told(command.args(words).output().unwrap())
        };
        assert_eq!(told(world.run_with(&[], &preview).output().unwrap()), "kli-sandbox");
        // In a container it may be that which is recognised first.
        let outer = plain(&[], &preview);
        assert!(outer.starts_with("outer: ") && outer.ends_with(", unverified"), "{outer}");
        let forge = format!(
            "mkdir -p /run/kli && echo '{{\"version\":1}}' > /run/kli/sandbox.json && {kli} \
             --print-authority --json"
        );
        assert_eq!(plain(&[], &["sh", "-c", &forge]), outer);
        // Outside of both it is whatever the tests' own surroundings are.
        let outside = told(world.command(&kli).args(&preview[1..]).output().unwrap());
        assert!(!outside.contains("kli-sandbox") && !outside.contains("bwrap"), "{outside}");
    });
}

#[test]
fn kli_works_beside_a_device_that_hides_a_file_and_a_memory_file_system_that_hides_a_directory() {
    for_both(|world| {
        let hidden = world.file("home/project/.envrc.local", "SECRET");
        let aws = world.dir("home/.aws");
        world.file("home/.aws/credentials", "SECRET");
        let further =
            ["--bind", "/dev/null", hidden.to_str().unwrap(), "--tmpfs", aws.to_str().unwrap()];
        let output = plain(world, &further, |command| command.output().unwrap());
        works(world, &output);
    });
}

#[test]
fn kli_works_where_the_line_takes_variables_away() {
    for_both(|world| {
        let further = ["--unsetenv", "TOKEN", "--unsetenv", "AWS_SECRET_ACCESS_KEY"];
        let output = plain(world, &further, |command| {
            command
                .env("TOKEN", "VALUE-1")
                .env("AWS_SECRET_ACCESS_KEY", "VALUE-2")
                .output()
                .unwrap()
        });
        works(world, &output);
    });
}

#[test]
fn a_session_that_shall_be_gone_on_with_is_refused_by_name_in_the_plain_line() {
    for_both(|world| {
        let place = world.workspace.to_str().unwrap().to_owned();
        let kli = with_kli(world);
        let mut command = world.command("bwrap");
        command
            .args(["--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp"])
            .args(["--unshare-pid", "--unshare-ipc", "--bind", &place, &place, "--chdir", &place])
            .arg("--")
            .arg(kli)
            .args(RUN)
            .arg("--continue");
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        has(&err(&output), &["session"]);
        assert!(!world.workspace.join("note.txt").exists(), "nothing was done");
    });
}
