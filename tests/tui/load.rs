//! Much at once: output without end, and keys while it streams. Memory stays flat, keys are seen, and
//! the model gets what is bounded.

use std::time::{Duration, Instant};

use serde_json::json;

use super::{Tty, replay};
use crate::{
    fake_model::{Answer, FakeModel, message, text},
    harness::Env,
};

const LINE: &str = "a line of output that is neither short nor long, and there are many";

#[test]
fn output_without_end_keeps_memory_flat_and_can_be_interrupted() {
    let env = Env::new();
    let much = json!({ "calls": [{ "name": "bash", "arguments": {
        "command": format!("yes '{LINE}' | head -c 200000000; echo; echo all of it") } }] });
    let endless = json!({ "calls": [{ "name": "bash", "arguments": {
        "command": format!("yes '{LINE}'; : {}", env.work().display()) } }] });
    let replies = [much, json!({ "text": "seen" }), endless, json!({ "text": "never" })];
    replay(&env, &replies.map(|reply| reply.to_string()).join("\n"));
    let mut tty = Tty::kli(&env, &[]);
    tty.sees("say what to do");
    tty.settles();
    let before = tty.peak();
    tty.press("print\r");
    tty.sees(LINE);
    // Keys arrive meanwhile, and each frame is bounded however much is printed.
    for word in ["first", " second", " third"] {
        tty.press(word);
        tty.sees(word);
    }
    tty.until("the end", |screen| screen.contains("seen"));
    let more = tty.peak().saturating_sub(before);
    assert!(more < 32 * 1024 * 1024, "{more} bytes more for 200 MB of output");
    assert!(tty.bytes.len() < 2_000_000, "{} bytes on the terminal", tty.bytes.len());
    assert!(tty.screen().contains("› first second third"), "{}", tty.screen());
    // The model got the bounded result, with its end.
    let session = env.session();
    let result = session.iter().map(ToString::to_string).find(|line| line.contains("all of it\\n"));
    assert!(result.as_ref().is_some_and(|line| line.len() < 200_000), "{result:?}");
    tty.press("\x15print for ever\r");
    tty.sees("running bash");
    tty.sees(LINE);
    let mark = format!(": {}", env.work().display());
    assert!(!crate::harness::processes_with(&mark).is_empty(), "control: it runs");
    tty.press("\x1b\x1b");
    tty.sees("interrupted");
    crate::harness::wait_for("the command's end", || {
        crate::harness::processes_with(&mark).is_empty().then_some(())
    });
    tty.press("\x03\x03");
    assert_eq!(tty.ends(), Some(0));
    assert_eq!(tty.left(), [""; 0]);
}

#[test]
fn keys_are_seen_while_a_megabyte_a_second_streams() {
    let body: String = (0..40_000)
        .map(|n| format!("paragraph {n} with some words in it\n\n"))
        .collect::<Vec<_>>()
        .concat();
    let answer = Answer::new(message([text(&body)])).every_event().pause(Duration::from_micros(7));
    let fake = FakeModel::start(vec![answer]);
    let env = Env::new().at(&fake.base_url()).var("ANTHROPIC_API_KEY", "sk-test-0123456789");
    let mut tty = Tty::kli(&env, &[]);
    tty.sees("say what to do");
    tty.press("go\r");
    // Whichever is on the screen when it is looked at.
    tty.sees("paragraph ");
    let mut typed = String::from("› ");
    for key in "every key".chars() {
        typed.push(key);
        tty.press(&key.to_string());
        let start = Instant::now();
        tty.sees(&typed);
        assert!(start.elapsed() < Duration::from_secs(5), "{typed}");
    }
    assert!(!tty.screen().contains("paragraph 39999 "), "control: it streamed all the time");
    tty.press("\x1b\x1b");
    tty.sees("interrupted");
    tty.settles();
    assert!(tty.is_taken());
    tty.press("\x03\x03");
    assert_eq!(tty.ends(), Some(0));
    assert_eq!(tty.left(), [""; 0]);
}
