//! Law 8: nothing lives on, and what the program ends with passes through.

use std::fs;
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rustix::process::Signal;

use crate::jail::{World, children, kill, processes, wait_for};

use super::{Row, code, row};

/// Starts a script that says when it is up, with the launcher as the child.
fn begin(world: &World, script: &str) -> (Child, String) {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let token = format!("7200.{}00{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    let mut command = world.command(world.launcher());
    command.arg("run").arg("--spec").arg(world.spec_file());
    let script = script.replace("TOKEN", &token);
    let child = command.args(["--", "sh", "-c", &script]).stdout(Stdio::null()).spawn().unwrap();
    let up = world.workspace.join("up");
    assert!(wait_for(Duration::from_secs(10), || up.exists()), "not started");
    assert!(!processes(&token).is_empty(), "the control: it is seen while it lives");
    (child, token)
}

/// Whether all that carries `token` is gone in time.
fn gone(token: &str) -> String {
    let gone = wait_for(Duration::from_secs(2), || processes(token).is_empty());
    assert!(gone, "still there: {:?}", processes(token));
    "all gone".to_owned()
}

fn pid(child: &Child) -> i32 {
    i32::try_from(child.id()).unwrap()
}

const STAYS: &str = "setsid sleep TOKEN & (sleep TOKEN &) ; touch up; sleep TOKEN";

pub(super) fn rows() -> Vec<Row> {
    vec![
        code(8, "live on when the launcher is killed", |world| {
            let (mut child, token) = begin(world, STAYS);
            child.kill().unwrap();
            child.wait().unwrap();
            gone(&token)
        })
        .refused("all gone"),
        code(8, "live on when bubblewrap is killed", |world| {
            let (mut child, token) = begin(world, STAYS);
            let monitor = children(pid(&child))[0];
            kill(monitor, Signal::KILL);
            let code = child.wait().unwrap();
            assert!(!code.success());
            gone(&token)
        })
        .refused("all gone"),
        code(8, "live on when process 1 is killed", |world| {
            let (mut child, token) = begin(world, STAYS);
            let monitor = children(pid(&child))[0];
            kill(children(monitor)[0], Signal::KILL);
            child.wait().unwrap();
            gone(&token)
        })
        .refused("all gone"),
        code(8, "live on as a daemon when the program ends", |world| {
            let (mut child, token) = begin(world, "setsid sleep TOKEN & touch up; sleep 0.5; exit 3");
            assert_eq!(child.wait().unwrap().code(), Some(3));
            gone(&token)
        })
        .refused("all gone"),
        code(8, "ignore TERM for ever", |world| {
            let (mut child, token) = begin(world, "trap '' TERM; touch up; while :; do sleep TOKEN & wait; done");
            kill(pid(&child), Signal::TERM);
            std::thread::sleep(Duration::from_millis(200));
            assert!(child.try_wait().unwrap().is_none(), "it has time to save");
            kill(pid(&child), Signal::TERM);
            child.wait().unwrap();
            gone(&token)
        })
        .refused("all gone"),
        code(8, "keep the agent from saving", |world| {
            let script = "trap 'echo saved > saved; exit 5' TERM; touch up; while :; do sleep TOKEN & wait; done";
            let (mut child, token) = begin(world, script);
            kill(pid(&child), Signal::TERM);
            child.wait().unwrap();
            assert_eq!(fs::read_to_string(world.workspace.join("saved")).unwrap(), "saved\n");
            gone(&token)
        })
        .refused("all gone"),
        row(8, "leave zombies behind", "for i in 1 2 3 4 5 6 7 8; do (sleep 0.05 &) ; done; sleep 0.4; grep -qs '^State:.Z' /proc/[0-9]*/status && echo SEC''RET; echo end")
            .refused("end")
            .control(
                "perl -e 'my $pid = fork; exit unless $pid; sleep 1; exec \"grep\", \"^State\", \"/proc/$pid/status\"'",
                "Z (zombie)",
            ),
    ]
}
