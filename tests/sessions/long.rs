//! Long work: kills at random moments that change nothing in the end, thousands of turns in flat
//! memory, and compaction through the built program.

#![expect(
    clippy::print_stdout,
    reason = "the seed, the figures and the curve are what is looked for here"
)]

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use super::*;
use crate::fake_model::{Seen, tool_use};

/// An answer that counts a token for every four bytes of its request.
fn counted(seen: &Seen, parts: Vec<crate::fake_model::Part>) -> Answer {
    let tokens = format!("\"input_tokens\":{}", seen.body.len() / 4);
    Answer::new(message(parts).replace("\"input_tokens\":12", &tokens))
}

/// Says whether a request is one for a summary: nothing is offered in it.
fn is_for_a_summary(body: &Value) -> bool {
    body["tools"].as_array().is_none_or(Vec::is_empty)
}

/// What is done, in order; the calls of one row in one answer. Each can be done again.
const STEPS: [&[(&str, &str)]; 5] = [
    &[("bash", r#"{"command":"mkdir -p d && printf 'one\n' > d/a"}"#)],
    &[
        ("write", r#"{"path":"b.txt","content":"two\n"}"#),
        ("bash", r#"{"command":"printf 'three\n' > c.txt; cat c.txt"}"#),
    ],
    &[("bash", r#"{"command":"cat d/a b.txt c.txt > all.txt; wc -l < all.txt"}"#)],
    &[("read", r#"{"path":"all.txt"}"#)],
    &[("bash", r#"{"command":"rm -f gone.txt; sort all.txt > sorted.txt && cat sorted.txt"}"#)],
];

/// The blocks of a request's messages, with who says them.
fn blocks(body: &Value) -> Vec<(String, Value)> {
    let mut all = Vec::new();
    for message in body["messages"].as_array().unwrap() {
        let role = message["role"].as_str().unwrap().to_owned();
        match &message["content"] {
            Value::String(text) => all.push((role, json!({"type": "text", "text": text}))),
            content => {
                for block in content.as_array().unwrap() {
                    all.push((role.clone(), block.clone()));
                }
            }
        }
    }
    all
}

fn result_text(block: &Value) -> String {
    match &block["content"] {
        Value::String(text) => text.clone(),
        parts => parts[0]["text"].as_str().unwrap_or_default().to_owned(),
    }
}

/// Says whether a call failed. A file that the killed run wrote already is not written over by one that
/// did not read it; it holds what it should.
fn is_failure(result: &Value) -> bool {
    result["is_error"] == true && !result_text(result).contains("was not read in this run")
}

/// The answer of a model that looks at what is done and does the next thing.
fn next_step(body: &Value) -> Vec<crate::fake_model::Part> {
    let blocks = blocks(body);
    let id_of = |block: &Value, key: &str| block[key].as_str().unwrap_or_default().to_owned();
    let done: BTreeSet<String> = blocks
        .iter()
        .filter(|(_, b)| b["type"] == "tool_result" && !is_failure(b))
        .map(|(_, b)| id_of(b, "tool_use_id").rsplit_once('_').unwrap().0.to_owned())
        .collect();
    let tried = |name: &str| {
        let of = |id: String| id.rsplit_once('_').is_some_and(|(step, _)| step == name);
        blocks.iter().filter(|(_, b)| b["type"] == "tool_use" && of(id_of(b, "id"))).count()
    };
    for (step, calls) in STEPS.iter().enumerate() {
        let left: Vec<_> = calls
            .iter()
            .enumerate()
            .map(|(index, call)| (format!("s{step}x{index}"), call))
            .filter(|(name, _)| !done.contains(name))
            .map(|(name, (tool, arguments))| {
                tool_use(&format!("{name}_{}", tried(&name)), tool, arguments)
            })
            .collect();
        if (0..calls.len()).any(|index| tried(&format!("s{step}x{index}")) > 3) {
            return vec![text("stuck")];
        }
        if !left.is_empty() {
            return left;
        }
    }
    vec![text("all done")]
}

/// What a conversation comes to: calls with their results, without attempts that were interrupted and
/// without what the person said to go on. Of results that tell what was there before, only whether
/// they are errors counts.
fn essence(body: &Value) -> Vec<String> {
    let blocks = blocks(body);
    let results: std::collections::HashMap<&str, &Value> = blocks
        .iter()
        .filter(|(_, block)| block["type"] == "tool_result")
        .map(|(_, block)| (block["tool_use_id"].as_str().unwrap(), block))
        .collect();
    let mut essence: Vec<String> = Vec::new();
    for (role, block) in &blocks {
        match block["type"].as_str().unwrap() {
            "text" if block["text"] == "go on" => {}
            "text" => essence.push(format!("{role} {}", block["text"])),
            "tool_use" => {
                let result = results[block["id"].as_str().unwrap()];
                let text = result_text(result);
                if result["is_error"] == true && text.starts_with("interrupted") {
                    continue;
                }
                let shown = if block["name"] == "write" { String::new() } else { text };
                let (name, input) = (&block["name"], &block["input"]);
                essence.push(format!("{name} {input} {} {shown}", is_failure(result)));
            }
            _ => {}
        }
    }
    // Calls of one answer may come apart when one of them was done before the kill.
    essence.sort();
    essence
}

/// A home, a workspace, and a model that remembers the last request.
struct Place {
    env: Env,
    last: Arc<Mutex<Value>>,
    _fake: FakeModel,
}

impl Place {
    fn new() -> Self {
        let last = Arc::new(Mutex::new(Value::Null));
        let kept = Arc::clone(&last);
        let fake = FakeModel::answering(move |seen| {
            let body = seen.json();
            let answer = counted(seen, next_step(&body));
            *kept.lock().unwrap() = body;
            answer
        });
        let env = Env::new().at(&fake.base_url());
        Self { env, last, _fake: fake }
    }

    /// Every file of the workspace with its bytes. What a killed write had not renamed yet stands beside
    /// its target and is no file of the project.
    fn files(&self) -> Vec<(PathBuf, Vec<u8>)> {
        let mut left = vec![self.env.work()];
        let mut files = Vec::new();
        while let Some(directory) = left.pop() {
            for entry in fs::read_dir(directory).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    left.push(path);
                } else if !path.file_name().unwrap().to_string_lossy().starts_with(".kli-") {
                    let name = path.strip_prefix(self.env.work()).unwrap().to_owned();
                    files.push((name, fs::read(&path).unwrap()));
                }
            }
        }
        files.sort();
        files
    }

    /// Starts a run and kills it after a while; says whether it had ended by itself.
    fn kill(&self, words: &[&str], after: Duration) -> bool {
        let mut child = self.env.command(words).spawn().unwrap();
        thread::sleep(after);
        let ended = child.try_wait().unwrap().is_some();
        child.kill().unwrap();
        child.wait().unwrap();
        // What a killed run left running ends by itself, as its commands are short.
        if !ended {
            thread::sleep(Duration::from_millis(15));
        }
        ended
    }
}

struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound.max(1)
    }
}

/// Twenty-five kills, of two hundred, at random moments of a run, some of them followed by another in the
/// resumed run; then it goes on. A run that ends before its kill must come to the same, and counts as none.
fn kills(part: u64) {
    let seed = std::env::var("KLI_TEST_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or_else(|| {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
        now.as_nanos().try_into().unwrap_or(1_u64) | 1
    });
    println!("seed {seed}: give it in KLI_TEST_SEED to play the same moments again");
    let whole = Place::new();
    let start = Instant::now();
    whole.env.kli(&["-p", "go", "--model", "anthropic/m"]).exits(0);
    let length = u64::try_from(start.elapsed().as_micros()).unwrap();
    // The first start of a program reads it from the disk.
    let start = Instant::now();
    Place::new().env.kli(&["-p", "go", "--model", "anthropic/m"]).exits(0);
    let length = length.min(u64::try_from(start.elapsed().as_micros()).unwrap());
    let (files, wanted) = (whole.files(), essence(&whole.last.lock().unwrap()));
    assert_eq!((files.len(), wanted.len()), (5, 7), "{files:?} {wanted:?}");

    let (mut killed, mut interrupted, mut round) = (0, 0, 0);
    let mut random = Random(seed.wrapping_mul(part * 2 + 1) | 1);
    while killed < 25 {
        round += 1;
        assert!(round <= 100, "{killed} of {round}: the kills come too late");
        let place = Place::new();
        let mut ended = place.kill(
            &["-p", "go", "--model", "anthropic/m"],
            Duration::from_micros(random.below(length)),
        );
        killed += usize::from(!ended);
        let go_on = ["-p", "go on", "--continue", "--model", "anthropic/m"];
        if !ended && random.below(4) == 0 {
            // A second time: in the resumed run.
            place.kill(&go_on, Duration::from_micros(random.below(length)));
        }
        while !ended {
            let ran = place.env.kli(&go_on);
            // Killed before there was anything: then there is nothing to go on with.
            let ran = if ran.code == Some(2) {
                assert_eq!(place.files(), [], "nothing was done that was not recorded");
                place.env.kli(&["-p", "go", "--model", "anthropic/m"])
            } else {
                interrupted += usize::from(ran.err.contains("without a recorded result"));
                ran
            };
            ran.exits(0);
            ended = true;
        }
        let said = format!("seed {seed}, part {part}, round {round}");
        assert_eq!(place.files(), files, "{said}");
        let mut came = essence(&place.last.lock().unwrap());
        // A resumed run that had all done but its end hears that once more.
        came.retain(|line| line != "assistant \"all done\"");
        assert_eq!(came, wanted, "{said}");
    }
    println!(
        "{round} runs, {killed} killed before their end, {interrupted} in the middle of a call"
    );
}

#[test]
fn after_a_kill_at_any_moment_a_resumed_run_comes_to_the_same_end_1() {
    kills(1);
}

#[test]
fn after_a_kill_at_any_moment_a_resumed_run_comes_to_the_same_end_2() {
    kills(2);
}

#[test]
fn after_a_kill_at_any_moment_a_resumed_run_comes_to_the_same_end_3() {
    kills(3);
}

#[test]
fn after_a_kill_at_any_moment_a_resumed_run_comes_to_the_same_end_4() {
    kills(4);
}

/// Returns the resident memory of a process in KiB.
fn resident(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

#[test]
fn two_thousand_turns_with_compaction_run_in_flat_memory() {
    const TURNS: usize = 2000;
    let (pid, turns) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicUsize::new(0)));
    let curve = Arc::new(Mutex::new(Vec::new()));
    let summaries = Arc::new(AtomicUsize::new(0));
    let fake = {
        let (pid, turns) = (Arc::clone(&pid), Arc::clone(&turns));
        let (curve, summaries) = (Arc::clone(&curve), Arc::clone(&summaries));
        FakeModel::answering(move |seen| {
            let body = seen.json();
            if is_for_a_summary(&body) {
                summaries.fetch_add(1, Ordering::SeqCst);
                return counted(seen, vec![text("## Goal\nread on\n## Next\nthe next part")]);
            }
            let turn = turns.fetch_add(1, Ordering::SeqCst);
            if turn % 100 == 0 {
                curve.lock().unwrap().push(resident(pid.load(Ordering::SeqCst)));
            }
            if turn >= TURNS {
                return counted(seen, vec![text("done")]);
            }
            let said =
                format!("Part {turn}. {}", "I look at the next part of the file. ".repeat(20));
            // Never the same twice, which would be no progress.
            let read = format!("{{\"path\":\"part.txt\",\"end\":{}}}", 140 + turn % 10);
            counted(seen, vec![text(&said), tool_use("c", "read", &read)])
        })
    };
    let env = Env::new().at(&fake.base_url());
    fs::write(env.work().join("part.txt"), "a line of some length\n".repeat(150)).unwrap();
    env.settings(r#"{"compaction": {"window": 30000, "keep": 3000}}"#);
    let start = Instant::now();
    let words = ["-p", "read it all", "--model", "anthropic/m", "--output-format", "stream-json"];
    let child = env.command(&words).spawn().unwrap();
    pid.store(child.id(), Ordering::SeqCst);
    let ran = Ran::from(child.wait_with_output().unwrap());
    let took = start.elapsed();
    ran.exits(0);
    let curve = curve.lock().unwrap().clone();
    let compactions: Vec<Value> = ran
        .out
        .lines()
        .filter(|line| line.starts_with(r#"{"type":"compacted""#))
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    println!(
        "{TURNS} turns in {took:.1?}, {} compactions, {summaries:?} of them with a summary",
        compactions.len()
    );
    println!("resident KiB at every 100 turns: {curve:?}");
    assert!(compactions.len() > 20 && summaries.load(Ordering::SeqCst) > 5, "{compactions:?}");
    assert!(compactions.iter().all(|line| line["after"].as_u64() < line["before"].as_u64()));
    let most = |part: &[u64]| part.iter().copied().max().unwrap();
    let (second, last) = (most(&curve[5..10]), most(&curve[15..]));
    assert!(last < second + second / 8 + 2048, "flat after the start: {curve:?}");

    // The session holds all of it and opens at once, with what goes on alone.
    let file = env.sessions().remove(0);
    let size = fs::metadata(&file).unwrap().len();
    let kinds = lines(&file);
    let of = |kind: &str| kinds.iter().filter(|line| line["type"] == kind).count();
    assert_eq!((of("message"), of("compaction")), (2 * TURNS + 2, compactions.len()));
    let start = Instant::now();
    let ran = env.kli(&["-p", "and now?", "--continue", "--model", "anthropic/m"]);
    println!("a session of {size} bytes is resumed and answered in {:.1?}", start.elapsed());
    assert_eq!(ran.exits(0).out, "done\n");
}

#[test]
fn after_a_kill_at_any_moment_a_resumed_run_comes_to_the_same_end_5() {
    kills(5);
}

#[test]
fn after_a_kill_at_any_moment_a_resumed_run_comes_to_the_same_end_6() {
    kills(6);
}

#[test]
fn after_a_kill_at_any_moment_a_resumed_run_comes_to_the_same_end_7() {
    kills(7);
}

#[test]
fn after_a_kill_at_any_moment_a_resumed_run_comes_to_the_same_end_8() {
    kills(8);
}
