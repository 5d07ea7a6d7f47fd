//! The interface line by line: nothing drawn twice, no colour, the terminal's own line editing.

use std::time::Duration;

use rustix::process::Signal;
use serde_json::json;

use super::{Tty, replay};
use crate::harness::Env;

#[test]
fn a_conversation_line_by_line() {
    let env = Env::new();
    let calls = json!({ "text": "**Looking**.", "calls": [
        { "name": "bash", "arguments": { "command": "echo out" } },
    ]});
    replay(&env, &format!("{calls}\n{}", json!({ "text": "done" })));
    let mut tty = Tty::kli(&env, &["--plain"]);
    tty.sees("/help lists commands.");
    tty.sees("> ");
    tty.press("go\r");
    tty.sees("running bash echo out");
    tty.sees("done");
    tty.press("/usage\r");
    tty.sees("context:");
    tty.press("/nope\r");
    tty.sees("there is no command `/nope`");
    tty.press("/quit\r");
    assert_eq!(tty.ends(), Some(0));
    assert_eq!(tty.left(), [""; 0]);
    assert!(!tty.bytes.contains(&0x1b), "{}", String::from_utf8_lossy(&tty.bytes));
    assert!(tty.screen().contains("Looking."));
}

#[test]
fn a_dumb_terminal_gets_it_by_itself_and_an_interrupt_works() {
    let env = Env::new().var("TERM", "dumb");
    let calls = json!({ "calls": [{ "name": "bash", "arguments": { "command": "sleep 60" } }] });
    replay(&env, &calls.to_string());
    let mut tty = Tty::kli(&env, &[]);
    tty.sees("> ");
    tty.press("go\r");
    tty.sees("running bash sleep 60");
    tty.press("\x03");
    tty.sees("interrupted");
    tty.press("\x04");
    assert_eq!(tty.ends(), Some(0));
    // Ctrl-D ends no line, and what is said last begins one.
    let all = tty.all();
    assert!(all.iter().any(|row| row.starts_with("kli: go on with")), "{all:#?}");
}

#[test]
fn a_terminal_that_nobody_reads_keeps_no_signal_away() {
    for signal in [Signal::TERM, Signal::HUP] {
        let env = Env::new();
        replay(&env, &json!({ "text": "done" }).to_string());
        let mut tty = Tty::kli(&env, &["--plain"]);
        tty.sees("> ");
        // More than a terminal holds.
        for _ in 0..60 {
            tty.press("/help\r");
            std::thread::sleep(Duration::from_millis(10));
        }
        std::thread::sleep(Duration::from_millis(300));
        tty.signal(signal);
        assert_eq!(tty.ends_unread(), Some(143), "{signal:?}");
    }
}
