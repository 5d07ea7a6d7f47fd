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
