//! What goes wrong: faults of kli's own, models that break off, terminals that are slow, stuck or
//! gone. The terminal is put back, the message can be read, and nothing that was said is lost.

use std::{
    fs,
    io::Write as _,
    time::{Duration, Instant},
};

use rustix::process::Signal;
use serde_json::json;

use super::{Tty, replay};
use crate::{
    fake_model::{Answer, FakeModel, message, text},
    harness::Env,
};

/// What a person says so that the model talks for long.
const LONG: usize = 30_000;

/// An answer of many rows, each of which can be told from the others.
fn long_answer(rows: usize) -> String {
    (1..=rows)
        .map(|number| format!("- row number {number} of a long answer\n"))
        .collect::<Vec<_>>()
        .concat()
}

/// kli with a model of its own.
fn against(fake: &FakeModel) -> Env {
    Env::new().at(&fake.base_url()).var("ANTHROPIC_API_KEY", "sk-test-0123456789")
}

/// A terminal on which kli has begun to answer at length, and which nobody reads.
fn stuck() -> (Env, Tty) {
    let env = Env::new();
    replay(&env, &json!({ "text": long_answer(LONG) }).to_string());
    let mut tty = Tty::kli(&env, &[]);
    tty.sees("say what to do");
    tty.settles();
    tty.master.write_all(b"list\r").unwrap();
    // The terminal's buffers fill up.
    std::thread::sleep(Duration::from_secs(3));
    (env, tty)
}

#[cfg(debug_assertions)]
mod on_demand {
    use super::*;

    #[test]
    fn a_fault_of_its_own_puts_the_terminal_back_and_says_what_it_was() {
        let env = Env::new().var("KLI_TEST_FAULT", "loop");
        replay(&env, &json!({ "text": "said before" }).to_string());
        let mut tty = Tty::kli(&env, &[]);
        tty.sees("say what to do");
        tty.press("hello\r");
        tty.sees("said before");
        tty.settles();
        assert!(tty.is_taken(), "control");
        tty.press("/doctor\r");
        assert_eq!(tty.ends(), Some(70));
        assert_eq!(tty.left(), [""; 0]);
        let screen = tty.screen();
        assert!(screen.contains("said before"), "what was there stays: {screen}");
        assert!(screen.contains("a fault that a test asked for"), "{screen}");
        // The rows of the message begin at the left: line ends are those of a terminal again.
        assert!(
            screen.lines().any(|row| row.starts_with("a fault that a test asked for")),
            "{screen}"
        );
        assert!(!screen.contains("say what to do"), "the region is gone: {screen}");
    }

    #[test]
    fn a_fault_in_the_middle_of_a_frame_is_no_different() {
        let env = Env::new().var("KLI_TEST_FAULT", "loop");
        replay(&env, &json!({ "text": long_answer(LONG) }).to_string());
        let mut tty = Tty::kli(&env, &[]);
        tty.sees("say what to do");
        tty.press("hello\r");
        while !tty.bytes.windows(17).any(|part| part == b"row number 300 of") {
            assert!(tty.look(super::super::PATIENCE), "{}", tty.screen());
        }
        tty.master.write_all(b"/doctor\r").unwrap();
        assert_eq!(tty.ends(), Some(70));
        assert_eq!(tty.left(), [""; 0]);
        let screen = tty.screen();
        let message =
            screen.lines().position(|row| row.starts_with("a fault that a test asked for"));
        let below = message.map(|at| screen.lines().skip(at + 1).collect::<Vec<_>>().join("\n"));
        assert!(below.is_some_and(|below| !below.contains("row number")), "{screen}");
    }

    #[test]
    fn a_fault_of_a_thread_is_told_and_outlived() {
        let env = Env::new().var("KLI_TEST_FAULT", "command");
        replay(&env, &json!({ "text": "said after" }).to_string());
        let mut tty = Tty::kli(&env, &[]);
        tty.sees("say what to do");
        tty.press("/doctor\r");
        tty.sees("broke off by a fault");
        tty.settles();
        assert!(tty.is_taken(), "{:?}", tty.changed());
        assert!(tty.screen().contains("a fault that a test asked for"), "{}", tty.screen());
        tty.press("go on\r");
        tty.sees("said after");
        tty.press("\x04");
        assert_eq!(tty.ends(), Some(0));
        assert_eq!(tty.left(), [""; 0]);
    }
}

#[test]
fn an_error_before_the_interface_leaves_the_terminal_alone() {
    let env = Env::new();
    replay(&env, &json!({ "text": "x" }).to_string());
    let mut tty = Tty::kli(&env, &["--resume", "nosuch"]);
    let code = tty.ends();
    assert!(code.is_some_and(|code| code != 0), "{code:?}");
    assert!(tty.screen().contains("nosuch"), "{}", tty.screen());
    assert_eq!(tty.left(), [""; 0]);
}

#[test]
fn a_model_that_breaks_off_leaves_what_it_said_and_a_keyboard() {
    let stream = message([text("Half of an answer"), text("that nobody ends, alas.")]);
    // Cut in the middle of the text.
    let at = stream.find("that no").unwrap();
    let fake = FakeModel::start(vec![
        Answer::new(stream.clone()).reset_after(at),
        Answer::new(message([text("Whole again.")])),
    ]);
    let env = against(&fake);
    let mut tty = Tty::kli(&env, &[]);
    tty.sees("say what to do");
    tty.press("one\r");
    tty.sees("Half of an");
    tty.sees("incomplete");
    tty.settles();
    assert!(tty.is_taken(), "the interface goes on");
    tty.press("two\r");
    tty.sees("Whole again.");
    tty.press("\x04");
    assert_eq!(tty.ends(), Some(0));
    assert_eq!(tty.left(), [""; 0]);
}

#[test]
fn a_terminal_that_goes_away_without_a_signal_ends_it() {
    let env = Env::new();
    let command = format!("until [ -e go ]; do sleep 0.05; done; : {}", env.work().display());
    let call = json!({ "calls": [{ "name": "bash", "arguments": { "command": command } }] });
    replay(&env, &call.to_string());
    let mut tty = Tty::uncontrolled(&env, &[]);
    tty.sees("say what to do");
    tty.press("go\r");
    tty.sees("running bash");
    let mark = format!(": {}", env.work().display());
    assert!(!crate::harness::processes_with(&mark).is_empty(), "control: it runs");
    // Every read and write of the other end is answered with EIO from now on.
    drop(std::mem::replace(&mut tty.master, fs::File::open("/dev/null").unwrap()));
    assert_eq!(tty.ends_unread(), Some(143));
    crate::harness::wait_for("the command's end", || {
        crate::harness::processes_with(&mark).is_empty().then_some(())
    });
}

#[test]
fn signals_end_it_on_a_terminal_that_nobody_reads() {
    for signal in [Signal::TERM, Signal::HUP] {
        let (_env, mut tty) = stuck();
        assert!(tty.changed().is_some(), "control");
        tty.signal(signal);
        assert_eq!(tty.ends_unread(), Some(143), "{signal:?}");
        assert_eq!(tty.changed(), None, "{signal:?}");
    }
}

#[test]
fn keys_work_on_a_terminal_that_nobody_reads() {
    let (_env, mut tty) = stuck();
    tty.master.write_all(b"\x03\x03").unwrap();
    assert_eq!(tty.ends_unread(), Some(0));
    assert_eq!(tty.changed(), None);
}

#[test]
fn a_key_is_shown_before_all_that_waits_is_written() {
    let (_env, mut tty) = stuck();
    tty.master.write_all(b"typed meanwhile").unwrap();
    std::thread::sleep(Duration::from_millis(500));
    let end = Instant::now() + super::PATIENCE;
    while !tty.bytes.windows(15).any(|part| part == b"typed meanwhile") {
        assert!(Instant::now() < end, "{}", tty.screen());
        tty.look(Duration::from_millis(20));
    }
    let before = tty.bytes.len();
    tty.sees(&format!("row number {LONG} of"));
    tty.settles();
    let all = tty.bytes.len();
    // What the kernel's buffers held, and a frame or two.
    assert!(before < 300_000 && before < all / 3, "after {before} of {all} bytes");
    // And nothing was lost or repeated.
    let rows = tty.all();
    let mut found = rows.iter().filter(|row| row.starts_with("• row number"));
    for number in 1..=LONG {
        let wanted = format!("• row number {number} of a long answer");
        assert_eq!(found.next(), Some(&wanted));
    }
    assert_eq!(found.next(), None);
    tty.press("\x03\x03");
    assert_eq!(tty.ends(), Some(0));
}

#[test]
fn a_suspension_waits_for_the_frame_and_loses_no_row() {
    let env = Env::new();
    replay(&env, &json!({ "text": long_answer(2000) }).to_string());
    let mut tty = Tty::shell(&env);
    tty.press("kli\r");
    tty.sees("say what to do");
    tty.settles();
    tty.master.write_all(b"list\r").unwrap();
    std::thread::sleep(Duration::from_secs(2));
    tty.master.write_all(b"\x1a").unwrap();
    std::thread::sleep(Duration::from_secs(1));
    tty.sees("Stopped");
    tty.settles();
    assert_eq!(tty.left(), [""; 0]);
    tty.press("echo shell says $((6*7))\r");
    tty.sees("shell says 42");
    tty.press("fg\r");
    tty.sees("row number 2000 of");
    tty.settles();
    assert!(tty.is_taken(), "control");
    let rows = tty.all();
    for number in 1..=2000 {
        let wanted = format!("• row number {number} of a long answer");
        assert_eq!(rows.iter().filter(|row| **row == wanted).count(), 1, "{wanted}");
    }
    tty.press("\x03\x03");
    tty.settles();
    assert_eq!(tty.left(), [""; 0]);
}

#[test]
fn an_answer_is_not_read_on_while_nobody_reads_the_terminal() {
    // Sixteen megabytes in pieces of rows.
    let whole = message([text("PIECE")]);
    let event = whole.split_inclusive("\n\n").find(|event| event.contains("PIECE")).unwrap();
    let piece = event.replace("PIECE", &long_answer(50).replace('\n', "\\n"));
    let body = piece.repeat(8000);
    let fake = FakeModel::start(vec![Answer::new(whole.replace(event, &body))]);
    let env = against(&fake);
    let mut tty = Tty::kli(&env, &[]);
    tty.sees("say what to do");
    tty.settles();
    let before = tty.peak();
    tty.master.write_all(b"list\r").unwrap();
    std::thread::sleep(Duration::from_secs(5));
    let more = tty.peak() - before;
    assert!(more < 24 * 1024 * 1024, "{more} bytes for an answer of {}", body.len());
    tty.master.write_all(b"\x03\x03").unwrap();
    assert_eq!(tty.ends_unread(), Some(0));
}
