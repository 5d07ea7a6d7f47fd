//! Compaction where runs are killed, resumed and denied something: what it made of the conversation is
//! what goes on, and what it left out is still in the file.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use kli::session::{Notice, Store};

use super::*;
use crate::fake_model::{Seen, tool_use};

/// How many steps there are to do.
const STEPS: u64 = 14;

/// An answer that counts a token for every four bytes of its request.
fn counted(seen: &Seen, parts: Vec<crate::fake_model::Part>) -> Answer {
    let tokens = format!("\"input_tokens\":{}", seen.body.len() / 4);
    Answer::new(message(parts).replace("\"input_tokens\":12", &tokens))
}

fn is_for_a_summary(body: &Value) -> bool {
    body["tools"].as_array().is_none_or(Vec::is_empty)
}

/// The last step that a text tells of.
fn last_step(text: &str) -> u64 {
    let numbers = text.split("Step ").skip(1).filter_map(|rest| {
        let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
        digits.parse::<u64>().ok()
    });
    numbers.max().unwrap_or(0)
}

/// A model that does one step after the other and says a lot with each; it knows from what it is told
/// where it is. With `delay` it thinks for a while.
struct Worker {
    env: Env,
    bodies: Arc<Mutex<Vec<Value>>>,
    slow: Arc<AtomicBool>,
    _fake: FakeModel,
}

impl Worker {
    fn new(settings: &str, words: usize, lines: usize) -> Self {
        let bodies: Arc<Mutex<Vec<Value>>> = Arc::default();
        let slow = Arc::new(AtomicBool::new(false));
        let (seen_bodies, is_slow) = (Arc::clone(&bodies), Arc::clone(&slow));
        let fake = FakeModel::answering(move |seen| {
            let body = seen.json();
            let told = body["messages"].to_string();
            if is_for_a_summary(&body) {
                let done = format!("## Done\nStep {}\n## Next\nthe next step", last_step(&told));
                return counted(seen, vec![text(&done)]);
            }
            seen_bodies.lock().unwrap().push(body.clone());
            let last = body["messages"].as_array().unwrap().last().unwrap().to_string();
            let again = u64::from(last.contains("interrupted"));
            let step = last_step(&told) + 1 - again;
            let parts = if step > STEPS {
                vec![text("All is done.")]
            } else {
                let said = format!("Step {step}. {}", "I go on with it. ".repeat(words));
                let command = format!("touch step-{step}; seq {lines}");
                let call = json!({ "command": command }).to_string();
                vec![text(&said), tool_use(&format!("c{step}"), "bash", &call)]
            };
            let delay = if is_slow.load(Ordering::SeqCst) { 120 } else { 0 };
            counted(seen, parts).delay(Duration::from_millis(delay))
        });
        let env = Env::new().at(&fake.base_url());
        env.settings(settings);
        Self { env, bodies, slow, _fake: fake }
    }

    fn steps(&self) -> Vec<u64> {
        let is_there = |step: &u64| self.env.work().join(format!("step-{step}")).exists();
        (1..=STEPS).filter(is_there).collect()
    }

    fn session(&self) -> Option<PathBuf> {
        self.env.sessions().first().cloned()
    }

    /// Reads the session through kli's own store; there may be calls without a result, and no damage.
    fn opens(&self) -> Vec<kli::message::Message> {
        let store = Store::new(&self.env.home().join(".local/state/kli"));
        let found = store.latest(&self.env.work()).unwrap().unwrap();
        let opened = store.open(&self.env.work(), &found).unwrap();
        let expected =
            |notice: &Notice| matches!(notice, Notice::Interrupted { .. } | Notice::InUse { .. });
        assert!(opened.notices.iter().all(expected), "{:?}", opened.notices);
        opened.messages
    }

    /// Goes on until all is done, and says that it was.
    fn finishes(&self) {
        self.slow.store(false, Ordering::SeqCst);
        let ran = self.env.kli(&["-c", "-p", "go on", "--model", "anthropic/m"]);
        assert_eq!(ran.exits(0).out, "All is done.\n");
        assert_eq!(self.steps(), (1..=STEPS).collect::<Vec<_>>());
        assert_eq!(self.env.sessions().len(), 1, "and in the same file");
    }
}

/// The texts and results of messages as the session has them, in order.
fn words(messages: &Value) -> Vec<String> {
    let blocks = messages.as_array().unwrap().iter().flat_map(|message| {
        message["blocks"].as_array().or(message["content"].as_array()).unwrap()
    });
    let texts = blocks.filter_map(|block| match block["type"].as_str()? {
        "text" => Some(block["text"].as_str()?.to_owned()),
        "result" => Some(block["text"].as_str()?.to_owned()),
        "tool_result" => {
            Some(block["content"].as_str().or(block["content"][0]["text"].as_str())?.to_owned())
        }
        _ => None,
    });
    texts.collect()
}

#[test]
fn a_run_that_is_killed_right_behind_a_compaction_goes_on_with_what_it_made() {
    // Long results, which are trimmed; and long words, of which a summary is made.
    for (long, said, with_summary) in [(1200, 1, false), (2, 150, true)] {
        let settings = r#"{"compaction": {"window": 9000, "keep": 1000}}"#;
        let worker = Worker::new(settings, said, long);
        worker.slow.store(true, Ordering::SeqCst);
        let mut child =
            worker.env.command(&["-p", "the prompt", "--model", "anthropic/m"]).spawn().unwrap();
        let start = Instant::now();
        let is_last = |file: &PathBuf| {
            let bytes = fs::read(file).unwrap_or_default();
            let text = String::from_utf8_lossy(&bytes).into_owned();
            text.ends_with('\n')
                && text
                    .lines()
                    .last()
                    .is_some_and(|line| line.starts_with("{\"type\":\"compaction\""))
        };
        while !worker.session().is_some_and(|file| is_last(&file)) {
            assert!(start.elapsed() < Duration::from_secs(60), "no compaction");
            assert!(child.try_wait().unwrap().is_none(), "it ended by itself");
            thread::sleep(Duration::from_millis(2));
        }
        child.kill().unwrap();
        child.wait().unwrap();
        let file = worker.session().unwrap();
        assert!(is_last(&file), "nothing came between");
        let entries = lines(&file);
        let compaction = entries.last().unwrap().clone();
        assert_eq!(compaction["summary"].is_string(), with_summary, "{long} {said}");
        let made = words(&compaction["messages"]);
        assert!(made.iter().any(|text| text == "the prompt"));
        worker.opens();

        worker.bodies.lock().unwrap().clear();
        worker.finishes();
        let first = words(&worker.bodies.lock().unwrap()[0]["messages"]);
        let mut wanted = made.clone();
        wanted.push("go on".to_owned());
        assert_eq!(first, wanted, "what is sent is what was made");
        // Nothing that was in the file has gone, and the entry is there once.
        let after = lines(&file);
        assert_eq!(after[..entries.len()], entries[..]);
        assert_eq!(after.iter().filter(|entry| **entry == compaction).count(), 1);
        let mut steps: Vec<u64> = after
            .iter()
            .filter(|entry| entry["message"]["role"] == "assistant")
            .map(|entry| last_step(&entry["message"].to_string()))
            .filter(|step| *step > 0)
            .collect();
        steps.dedup();
        assert_eq!(steps, (1..=STEPS).collect::<Vec<_>>(), "each was said once, and in order");
    }
}

#[test]
fn a_run_with_compactions_that_is_killed_at_any_moment_comes_to_the_same_end() {
    let settings = r#"{"compaction": {"window": 9000, "keep": 1000}}"#;
    let whole = Worker::new(settings, 100, 400);
    whole.env.kli(&["-p", "the prompt", "--model", "anthropic/m"]).exits(0);
    let length = |worker: &Worker| {
        let bytes = worker.session().and_then(|file| fs::read(file).ok()).unwrap_or_default();
        bytes.iter().filter(|byte| **byte == b'\n').count()
    };
    let most = length(&whole);
    let compactions = |worker: &Worker| {
        let entries = worker.session().map(|file| {
            let bytes = fs::read(file).unwrap();
            String::from_utf8_lossy(&bytes).matches("{\"type\":\"compaction\"").count()
        });
        entries.unwrap_or(0)
    };
    assert!(compactions(&whole) >= 2, "control: {}", compactions(&whole));
    assert_eq!(whole.steps().len(), 14);
    let (mut killed, mut behind_one) = (0, 0);
    // From the first message on to the end, however fast the machine is.
    for round in 0..20_usize {
        let moment = 4 + round * (most - 4) / 20;
        let worker = Worker::new(settings, 100, 400);
        let mut child =
            worker.env.command(&["-p", "the prompt", "--model", "anthropic/m"]).spawn().unwrap();
        let start = Instant::now();
        while length(&worker) < moment && child.try_wait().unwrap().is_none() {
            assert!(start.elapsed() < Duration::from_secs(60), "it stands still");
            thread::sleep(Duration::from_micros(300));
        }
        thread::sleep(Duration::from_micros(u64::try_from(round % 5).unwrap() * 700));
        let ended = child.try_wait().unwrap().is_some();
        child.kill().unwrap();
        child.wait().unwrap();
        thread::sleep(Duration::from_millis(20));
        if ended
            || worker.session().is_none_or(|file| {
                !String::from_utf8_lossy(&fs::read(file).unwrap()).contains("{\"type\":\"message\"")
            })
        {
            continue;
        }
        killed += 1;
        behind_one += usize::from(compactions(&worker) > 0);
        worker.opens();
        worker.finishes();
        worker.opens();
    }
    assert!(killed >= 12 && behind_one >= 4, "{killed} killed, {behind_one} behind a compaction");
}

#[test]
fn what_was_denied_is_listed_once_across_compactions_and_is_in_the_file_for_good() {
    let server = FakeModel::answering(|seen| {
        let body = seen.json();
        let told = body["messages"].to_string();
        if is_for_a_summary(&body) {
            return counted(seen, vec![text(&format!("## Done\nStep {}", last_step(&told)))]);
        }
        if told.contains("and now") || told.contains("\"once more\"") {
            return counted(seen, vec![text("nothing to do")]);
        }
        let step = last_step(&told) + 1;
        let said = format!("Step {step}. {}", "I go on with it. ".repeat(150));
        let call = match step {
            1 => ("write", json!({ "path": "made", "content": "x" })),
            12.. => return counted(seen, vec![text("All is done.")]),
            _ => ("read", json!({ "path": "there", "end": step })),
        };
        let call = tool_use(&format!("c{step}"), call.0, &call.1.to_string());
        counted(seen, vec![text(&said), call])
    });
    let env = Env::new().at(&server.base_url());
    env.settings(r#"{"compaction": {"window": 9000, "keep": 1000}, "model": "anthropic/m"}"#);
    fs::write(env.work().join("there"), "a line\n".repeat(20)).unwrap();
    let count = |kind: &str| env.session().iter().filter(|line| line["type"] == kind).count();
    let ran = env.kli(&["-p", "go", "--read-only", "--output-format", "json"]);
    let result = ran.exits(3).json();
    assert!(!env.work().join("made").exists());
    assert_eq!((&result["outcome"], &result["text"]), (&json!("denied"), &json!("All is done.")));
    let denied = result["denied"].as_array().unwrap();
    assert_eq!(denied.len(), 1, "{denied:?}");
    assert_eq!((&denied[0]["tool"], &denied[0]["atom"]), (&json!("write"), &json!("file/write")));
    assert!(count("compaction") >= 1 && count("denied") == 1);
    let file = env.session();
    let place = |kind: &str| file.iter().position(|line| line["type"] == kind).unwrap();
    assert!(place("denied") < place("compaction"), "it was denied before");

    // The next prompt has a list of its own; the file keeps the old one, also past a compaction that
    // a person asks for.
    for (prompt, compacts) in [("and now", false), ("once more", true)] {
        if compacts {
            let id = file[0]["id"].as_str().unwrap();
            env.kli(&["sessions", "compact", id]).exits(0);
        }
        let before = count("compaction");
        let ran = env.kli(&["-c", "-p", prompt, "--output-format", "json"]);
        assert_eq!(ran.exits(0).json()["denied"], json!([]));
        assert_eq!((count("denied"), count("compaction") >= before), (1, true));
    }
    let shown = env.kli(&["sessions", "show", file[0]["id"].as_str().unwrap()]);
    assert!(shown.exits(0).out.contains("file/write"), "{}", shown.out);
}
