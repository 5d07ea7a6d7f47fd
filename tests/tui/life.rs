//! Sizes, suspensions and ends: the terminal is as it was, and no row is repeated or lost.

use std::{fs, time::Duration};

use rustix::process::Signal;
use serde_json::json;

use super::{Tty, replay};
use crate::{harness::Env, harness::wait_for};

/// A run that writes something and then waits for a file.
fn waiting(env: &Env) {
    let command =
        format!("echo out; until [ -e go ]; do sleep 0.05; done; : {}", env.work().display());
    let calls = json!({ "text": "begun", "calls": [
        { "name": "bash", "arguments": { "command": command } },
    ]});
    replay(env, &format!("{calls}\n{}", json!({ "text": "ended" })));
}

#[test]
fn every_row_stands_once_after_any_number_of_sizes() {
    let env = Env::new();
    let text: Vec<String> = (1..=80).map(|n| format!("- item number {n}\n")).collect();
    replay(&env, &json!({ "text": text.concat() }).to_string());
    let mut tty = Tty::kli(&env, &[]);
    tty.sees("say what to do");
    tty.press("list\r");
    tty.sees("item number 80");
    tty.settles();
    for (rows, columns) in [(24, 100), (12, 60), (30, 60), (24, 120), (10, 40), (24, 80)] {
        tty.resize(rows, columns);
        tty.press("x");
        tty.settles();
    }
    let all = tty.all();
    for number in 1..=80 {
        let wanted = format!("• item number {number}");
        assert_eq!(all.iter().filter(|row| **row == wanted).count(), 1, "{wanted}: {all:#?}");
    }
    assert_eq!(all.iter().filter(|row| row.starts_with("› x")).count(), 1, "{all:#?}");
    assert!(tty.is_taken());
    tty.press("\x03\x03");
    assert_eq!(tty.ends(), Some(0));
    assert_eq!(tty.left(), [""; 0]);
}

#[test]
fn term_and_hup_end_the_run_and_restore_the_terminal() {
    for signal in [Signal::TERM, Signal::HUP] {
        let env = Env::new();
        waiting(&env);
        let mut tty = Tty::kli(&env, &[]);
        tty.sees("say what to do");
        assert!(tty.is_taken(), "control: the modes are the interface's");
        tty.press("go\r");
        tty.sees("running bash");
        tty.signal(signal);
        assert_eq!(tty.ends(), Some(143), "{signal:?}");
        assert_eq!(tty.left(), [""; 0], "{signal:?}");
        // Neither mouse nor focus nor the alternate screen was ever asked for.
        assert_eq!(super::modes::Modes::of(&tty.bytes).foreign(), [0; 0]);
        // What was said is kept, and can be gone on with.
        let session = env.session();
        assert!(session.iter().any(|line| line.to_string().contains("begun")));
        assert!(tty.screen().contains("kli --resume"), "{}", tty.screen());
    }
}

#[test]
fn leaving_while_it_works_ends_the_work() {
    let env = Env::new();
    waiting(&env);
    let mut tty = Tty::kli(&env, &[]);
    tty.sees("say what to do");
    tty.press("go\r");
    tty.sees("running bash");
    let mark = format!(": {}", env.work().display());
    assert!(!crate::harness::processes_with(&mark).is_empty(), "control: it runs");
    tty.press("\x03\x03");
    assert_eq!(tty.ends(), Some(0));
    assert_eq!(tty.left(), [""; 0]);
    wait_for("the command's end", || {
        crate::harness::processes_with(&mark).is_empty().then_some(())
    });
}

#[test]
fn a_suspension_gives_the_shell_its_terminal_and_fg_goes_on() {
    let env = Env::new();
    waiting(&env);
    let mut tty = Tty::shell(&env);
    tty.press("kli\r");
    tty.sees("say what to do");
    tty.press("go\r");
    tty.sees("running bash");
    for round in 0..2 {
        tty.press("\x1a");
        tty.until("the shell", |screen| screen.matches("<ready>").count() == 2 + 2 * round);
        assert!(tty.screen().contains("Stopped"), "{}", tty.screen());
        assert_eq!(tty.left(), [""; 0], "round {round}");
        tty.press("echo shell says $((6*7))\r");
        tty.sees("shell says 42");
        tty.settles();
        tty.press("fg\r");
        tty.sees("running bash");
        tty.settles();
        assert!(tty.is_taken(), "control: back in its own modes");
    }
    fs::write(env.work().join("go"), "").unwrap();
    tty.sees("ended");
    tty.press("still here");
    tty.sees("› still here");
    tty.press("\x03\x03");
    tty.settles();
    tty.press("echo code $?\r");
    tty.sees("code 0");
    assert_eq!(tty.left(), [""; 0]);
}

#[test]
fn a_stop_from_elsewhere_restores_the_terminal_as_well() {
    let env = Env::new();
    waiting(&env);
    let mut tty = Tty::shell(&env);
    tty.press("kli & jobs -p; fg\r");
    tty.sees("say what to do");
    let screen = tty.screen();
    let pid = screen.lines().find_map(|line| line.trim().parse::<i32>().ok()).unwrap();
    let pid = rustix::process::Pid::from_raw(pid).unwrap();
    rustix::process::kill_process(pid, Signal::TSTP).unwrap();
    tty.sees("Stopped");
    tty.settles();
    assert_eq!(tty.left(), [""; 0]);
    tty.press("fg\r");
    tty.settles();
    tty.press("typed after");
    tty.sees("› typed after");
    tty.press("\x03\x03");
    tty.settles();
    assert_eq!(tty.left(), [""; 0]);
}

#[test]
fn nothing_is_written_and_nothing_runs_while_nothing_happens() {
    let env = Env::new();
    replay(&env, &json!({ "text": "x" }).to_string());
    let mut tty = Tty::kli(&env, &[]);
    tty.sees("say what to do");
    tty.settles();
    let ticks = || {
        let stat =
            fs::read_to_string(format!("/proc/{}/stat", tty.pid().as_raw_nonzero())).unwrap();
        let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
        let switches = fs::read_to_string(format!("/proc/{}/status", tty.pid().as_raw_nonzero()))
            .unwrap()
            .lines()
            .filter_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))
            .map(|count| count.trim().parse::<u64>().unwrap())
            .sum::<u64>();
        (fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap(), switches)
    };
    let (bytes, before) = (tty.bytes.len(), ticks());
    std::thread::sleep(Duration::from_secs(2));
    let after = ticks();
    tty.settles();
    assert_eq!(tty.bytes.len(), bytes);
    assert_eq!(after, before, "it slept all the time");
}

#[test]
fn a_terminal_that_goes_away_ends_it() {
    let env = Env::new();
    replay(&env, &json!({ "text": "x" }).to_string());
    let mut tty = Tty::kli(&env, &[]);
    tty.sees("say what to do");
    let pid = tty.pid();
    drop(std::mem::replace(&mut tty.master, fs::File::open("/dev/null").unwrap()));
    let status = wait_for("its end", || tty.child.try_wait().unwrap());
    assert_eq!(status.code(), Some(143), "{pid:?}");
}

#[test]
fn what_cannot_be_a_terminal_interface_says_so() {
    let env = Env::new();
    replay(&env, &json!({ "text": "x" }).to_string());
    let mut tty = Tty::kli(&env, &["--timings"]);
    assert_eq!(tty.ends(), Some(2));
    assert!(tty.screen().contains("belong to a headless run"), "{}", tty.screen());
    let mut tty = Tty::kli(&env, &["sesions"]);
    assert_eq!(tty.ends(), Some(2));
    assert!(tty.screen().contains("sessions"), "{}", tty.screen());
}
