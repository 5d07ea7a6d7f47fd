//! Headless runs as programs see them: the lines of `stream-json` and of the log against their
//! schema, readers that are slow or gone, standard input, exit codes in every format.

mod codes;
mod input;
mod loops;
mod streams;

use std::{
    collections::BTreeSet, fs, os::unix::fs::PermissionsExt as _, path::Path, process::Stdio,
    time::Duration,
};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::{
    fake_model::{Answer, FakeModel, message, message_stopped, text, thinking, tool_use},
    harness::{Env, Ran, processes_with, wait_for},
    jail::kill,
};

fn says(words: &str) -> Answer {
    Answer::new(message([text(words)]))
}

fn bash(command: &str) -> Answer {
    Answer::new(message([tool_use("c", "bash", &json!({ "command": command }).to_string())]))
}

/// A schema of `schema/`.
pub(crate) struct Schema {
    value: Value,
    validator: jsonschema::Validator,
}

impl Schema {
    pub(crate) fn read(name: &str) -> Self {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let text = fs::read_to_string(root.join(format!("schema/{name}.schema.json"))).unwrap();
        let value: Value = serde_json::from_str(&text).unwrap();
        let validator = jsonschema::validator_for(&value).unwrap();
        Self { value, validator }
    }

    /// Fails for what does not fit, and for a key that the schema does not know: programs may meet
    /// more keys one day, this version must not.
    #[track_caller]
    pub(crate) fn check(&self, value: &Value) {
        if let Err(error) = self.validator.validate(value) {
            panic!("{error}: {value}");
        }
        let kind = value["type"].as_str().unwrap_or_default();
        let known = self.keys(kind);
        for key in value.as_object().unwrap().keys() {
            assert!(known.contains(key.as_str()), "`{key}` of `{kind}` is not in the schema");
        }
    }

    fn branches(&self) -> Vec<&Value> {
        self.value["oneOf"].as_array().map_or_else(|| vec![&self.value], |all| all.iter().collect())
    }

    fn keys(&self, kind: &str) -> BTreeSet<&str> {
        let branches = self.branches();
        let branch =
            branches.iter().find(|branch| branch["properties"]["type"]["const"] == kind).unwrap();
        let mut keys: BTreeSet<&str> =
            branch["properties"].as_object().unwrap().keys().map(String::as_str).collect();
        if let Some(name) = branch["$ref"].as_str() {
            let name = name.strip_prefix("#/$defs/").unwrap();
            let inner = self.value["$defs"][name]["properties"].as_object().unwrap();
            keys.extend(inner.keys().map(String::as_str));
        }
        keys
    }

    fn kinds(&self) -> BTreeSet<String> {
        self.branches()
            .iter()
            .map(|branch| branch["properties"]["type"]["const"].as_str().unwrap().to_owned())
            .collect()
    }
}

/// Reads JSON lines, each against the schema; the last and no other is the result.
#[track_caller]
fn checked(text: &str) -> Vec<Value> {
    let schema = Schema::read("events");
    assert!(text.ends_with('\n'), "the last line is whole: {text}");
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    for (number, line) in (1..).zip(&lines) {
        schema.check(line);
        assert_eq!(line["type"] == "result", number == lines.len(), "{text}");
        assert!(line["type"] != "init" || number == 1, "{text}");
    }
    lines
}

#[track_caller]
fn of<'a>(lines: &'a [Value], kind: &str) -> Vec<&'a Value> {
    lines.iter().filter(|line| line["type"] == kind).collect()
}

fn stream(env: &Env, words: &[&str]) -> (Ran, Vec<Value>) {
    let ran = env.kli(&[words, &["--output-format", "stream-json"]].concat());
    let lines = checked(&ran.out);
    (ran, lines)
}

#[test]
fn every_line_of_every_run_fits_the_schema_and_every_type_is_met() {
    let mut met = BTreeSet::new();
    let refused =
        || Answer::refusal(529, "overloaded_error", "Overloaded").header("retry-after", "0");
    let whole = vec![
        Answer::new(message([
            thinking("let me see", "sig"),
            text("I look. "),
            tool_use("a", "bash", "{\"command\":\"echo out; sleep 0.2; echo more\"}"),
            tool_use("b", "read", "{\"path\": \"no"),
            tool_use("c", "nothing", "{}"),
        ])),
        says("done"),
    ];
    let one = |answer: Answer| vec![answer];
    for (name, script, words, code, outcome) in [
        ("tools", whole, &[][..], 0, "ok"),
        ("denied", vec![bash("true"), says("no")], &["--no-bash"][..], 3, "denied"),
        ("retried", vec![refused(), says("yes")], &[], 0, "ok"),
        ("given up", (0..5).map(|_| refused()).collect(), &[], 4, "error"),
        ("empty", one(Answer::new(message([]))), &[], 1, "error"),
        ("cut", one(Answer::new(message_stopped([text("a")], "max_tokens"))), &[], 1, "incomplete"),
        ("broken off", one(says("some words").end_after(700)), &[], 4, "incomplete"),
        ("refused", one(Answer::refusal(401, "authentication_error", "bad key")), &[], 4, "error"),
        ("budget", one(bash("true")), &["--max-turns", "1"], 5, "budget"),
        ("unkept", one(says("x")), &["--no-session", "--timings"], 0, "ok"),
        ("usage", vec![], &["--bogus"], 2, "error"),
        ("settings", vec![], &["--model", "gpt"], 2, "error"),
        ("session", vec![], &["--resume", "nope"], 2, "error"),
        ("key", vec![], &["--model", "nobody/x"], 2, "error"),
    ] {
        let server = FakeModel::start(script);
        let env = Env::new().at(&server.base_url());
        let (ran, lines) = stream(&env, &[&["-p", "hi"], words].concat());
        ran.exits(code);
        let result = lines.last().unwrap();
        assert_eq!(result["outcome"], outcome, "{name}: {ran:#?}");
        assert_eq!(lines[0]["type"] == "init", result["model"] != Value::Null, "{name}");
        assert_eq!(result["timings"] != Value::Null, words.contains(&"--timings"), "{name}");
        met.extend(lines.iter().map(|line| line["type"].as_str().unwrap().to_owned()));
        Schema::read("result").check(result);
    }
    // A notice: an unknown key of the settings.
    let server = FakeModel::strict(vec![says("x")]);
    let env = Env::new().at(&server.base_url());
    env.settings("{\"modle\": \"x\"}");
    let (_, lines) = stream(&env, &["-p", "hi"]);
    assert!(of(&lines, "notice")[0]["text"].as_str().unwrap().contains("modle"));
    met.insert("notice".to_owned());
    // Another model in the place of one that is not to be had.
    let (first, second) = (FakeModel::start(vec![]), FakeModel::strict(vec![says("yes")]));
    let env = Env::new();
    env.settings(&loops::two(&first, &second, &json!({})).to_string());
    drop(first);
    let (_, lines) = stream(&env, &["-p", "hi"]);
    met.extend(lines.iter().map(|line| line["type"].as_str().unwrap().to_owned()));
    // A conversation that its model finds too long.
    let full = "prompt is too long: 200001 tokens > 200000 maximum";
    let server = FakeModel::strict(vec![
        says(&"many words ".repeat(5000)),
        Answer::refusal(400, "invalid_request_error", full),
        says("what was said"),
        says("done"),
    ]);
    let env = Env::new().at(&server.base_url());
    stream(&env, &["-p", "hi"]).0.exits(0);
    let (ran, lines) = stream(&env, &["-p", "go on", "--continue"]);
    ran.exits(0);
    assert_eq!(lines.last().unwrap()["text"], "done");
    met.extend(lines.iter().map(|line| line["type"].as_str().unwrap().to_owned()));
    assert_eq!(met, Schema::read("events").kinds(), "each type is met in a run");
}

#[test]
fn the_lines_tell_the_run_in_order() {
    let server = FakeModel::strict(vec![
        Answer::new(message([
            text("I "),
            text("look."),
            tool_use("a", "bash", "{\"command\":\"echo one; sleep 0.3; echo two; exit 3\"}"),
        ])),
        Answer::new(message([tool_use("b", "write", "{\"path\":\"x\",\"content\":\"y\"}")])),
        says("done"),
    ]);
    let env = Env::new().at(&server.base_url());
    let capabilities = "process/exec,file/read";
    let (ran, lines) = stream(&env, &["-p", "hi", "--capabilities", capabilities]);
    ran.exits(3).says("kli: denied write: ");
    let kinds: Vec<&str> = lines.iter().map(|line| line["type"].as_str().unwrap()).collect();
    let mut merged = kinds.clone();
    merged.dedup();
    let wanted = [
        "init",
        "turnStart",
        "text",
        "usage",
        "toolStart",
        "toolOutput",
        "toolResult",
        "turnStart",
        "usage",
        "toolStart",
        "denied",
        "toolResult",
        "turnStart",
        "text",
        "usage",
        "result",
    ];
    assert_eq!(merged, wanted);
    let init = &lines[0];
    assert_eq!(init["schema"], 1);
    assert_eq!(
        init["tools"],
        json!(["read", "find", "search", "bash", "bash_jobs", "read_result"])
    );
    assert_eq!(init["profile"], "print");
    assert_eq!(init["workspace"], json!(env.work()));
    assert_eq!(init["authority"]["scope"], "bounded");
    let preview = env.kli(&["--print-authority", "--json", "--capabilities", capabilities]).json();
    assert_eq!(init["authority"], preview, "what the preview prints");
    assert_eq!(init["confinement"], preview["confinement"]);
    Schema::read("authority").check(&preview);
    let said: String =
        of(&lines, "text").iter().map(|line| line["text"].as_str().unwrap()).collect();
    assert_eq!(said, "I look.done");
    let start = of(&lines, "toolStart")[0];
    assert_eq!((&start["id"], &start["name"]), (&json!("a"), &json!("bash")));
    assert_eq!(start["arguments"]["command"], "echo one; sleep 0.3; echo two; exit 3");
    let output: String =
        of(&lines, "toolOutput").iter().map(|line| line["text"].as_str().unwrap()).collect();
    assert_eq!(output, "one\ntwo\n");
    assert!(of(&lines, "toolOutput").len() > 1, "as it comes");
    let denied = of(&lines, "denied")[0];
    assert_eq!((&denied["id"], &denied["atom"]), (&json!("b"), &json!("file/write")));
    assert!(!env.work().join("x").exists());
    let result = lines.last().unwrap();
    assert_eq!(result["denied"][0]["detail"], denied["detail"]);
    assert_eq!(result["session"], init["session"]);
    let tokens: u64 =
        of(&lines, "usage").iter().map(|line| line["outputTokens"].as_u64().unwrap()).sum();
    assert_eq!(result["usage"]["outputTokens"], tokens);
}

#[test]
fn the_log_holds_the_lines_of_the_run_whatever_standard_output_carries() {
    let key = "sk-ant-a-key-that-nobody-may-see";
    for format in ["text", "json", "stream-json"] {
        let server = FakeModel::strict(vec![bash("env; echo done"), says("well")]);
        let env = Env::new().at(&server.base_url()).var("ANTHROPIC_API_KEY", key);
        fs::write(env.work().join("log"), "older and longer\n".repeat(500)).unwrap();
        let ran = env.kli(&["-p", "hi", "--log", "log", "--output-format", format]);
        ran.exits(0);
        let log = fs::read_to_string(env.work().join("log")).unwrap();
        let lines = checked(&log);
        assert_eq!((&lines[0]["type"], lines.len() > 7), (&json!("init"), true));
        assert!(!log.contains(key) && !ran.out.contains(key), "no key in {log}");
        assert_eq!(server.requests()[0].header("x-api-key"), Some(key), "control: it was used");
        match format {
            "text" => assert_eq!(ran.out, "well\n"),
            "json" => assert_eq!(ran.json(), *lines.last().unwrap()),
            _ => assert_eq!(ran.out, log),
        }
    }
    // A run that does not start is told as well, and what is new is for the user alone.
    let env = Env::new();
    env.kli(&["-p", "hi", "--log", "new"]).exits(4);
    let lines = checked(&fs::read_to_string(env.work().join("new")).unwrap());
    assert_eq!((lines.len(), &lines[0]["error"]["kind"]), (1, &json!("auth")));
    let mode = fs::metadata(env.work().join("new")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn a_log_that_cannot_be_is_refused_and_one_that_breaks_stops_nothing() {
    let server = FakeModel::start(vec![says("done"), says("done")]);
    let env = Env::new().at(&server.base_url());
    let work = env.work();
    fs::create_dir(work.join("dir")).unwrap();
    fs::write(work.join("target"), "kept").unwrap();
    std::os::unix::fs::symlink("target", work.join("link")).unwrap();
    let fifo = work.join("fifo");
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    let kind = rustix::fs::FileType::Fifo;
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, kind, mode, 0).unwrap();
    for (name, part) in [
        ("dir", "is a directory"),
        ("link", "link"),
        ("fifo", "no such device"),
        ("gone/log", "no such file"),
    ] {
        let ran = env.kli(&["-p", "hi", "--log", name, "--output-format", "json"]);
        ran.exits(2).says("the log cannot be written").says(part).says("`--log` takes");
        assert_eq!(ran.json()["error"]["kind"], "config");
    }
    assert_eq!(fs::read_to_string(work.join("target")).unwrap(), "kept");
    assert!(server.requests().is_empty(), "nothing was sent");
    let ran = env.kli(&["-p", "hi", "--log", "/dev/full"]);
    ran.exits(0).says("the log `/dev/full` ends here");
    assert_eq!(ran.err.matches("/dev/full").count(), 1, "said once");
    // Control: a FIFO that is read.
    let reader = std::thread::spawn(move || fs::read_to_string(fifo).unwrap());
    // The reader waits for a writer in open(2); the run may come first by a hair.
    let ran = wait_for("the reader", || {
        let ran = env.kli(&["-p", "hi", "--log", "fifo"]);
        (ran.code == Some(0)).then_some(ran)
    });
    assert_eq!(ran.out, "done\n");
    checked(&reader.join().unwrap());
}

#[test]
fn a_log_takes_the_place_of_no_session_and_of_no_stream() {
    let server = FakeModel::start((0..9).map(|_| says("done")).collect());
    let env = Env::new().at(&server.base_url());
    env.kli(&["-p", "the first"]).exits(0);
    let session = env.sessions().pop().unwrap();
    let (path, before) = (session.to_str().unwrap(), fs::read(&session).unwrap());
    fs::hard_link(&session, env.work().join("second-name")).unwrap();
    for name in [path, "second-name"] {
        let ran = env.kli(&["-p", "hi", "--continue", "--log", name]);
        ran.exits(2).says("the log cannot be written").says("is a session");
    }
    assert_eq!(fs::read(&session).unwrap(), before, "nothing is lost");
    for name in ["out", "err"] {
        let file = fs::File::create(env.work().join(name)).unwrap();
        let mut command = env.command(&["-p", "hi", "--log", name]);
        if name == "out" {
            command.stdout(file)
        } else {
            command.stderr(file)
        };
        assert_eq!(command.output().unwrap().status.code(), Some(2), "{name}");
    }
    assert!(fs::read_to_string(env.work().join("err")).unwrap().contains("goes there already"));
    // Control: beside them, and by a way that leads up.
    fs::create_dir(env.work().join("sub")).unwrap();
    let out = fs::File::create(env.work().join("out")).unwrap();
    let mut command = env.command(&["-p", "hi", "--log", "sub/../log"]);
    assert_eq!(command.stdout(out).output().unwrap().status.code(), Some(0));
    assert_eq!(fs::read_to_string(env.work().join("out")).unwrap(), "done\n");
    checked(&fs::read_to_string(env.work().join("log")).unwrap());
    // A second run with the same log empties it; what the first still writes stays whole lines.
    let mut running = env.command(&["-p", "hi", "--log", "log"]).spawn().unwrap();
    env.kli(&["-p", "hi", "--log", "log"]).exits(0);
    running.wait().unwrap();
    let log = fs::read_to_string(env.work().join("log")).unwrap();
    assert!(log.lines().all(|line| serde_json::from_str::<Value>(line).is_ok()), "{log}");
}

#[test]
fn timings_are_told_when_they_are_asked_for() {
    let server =
        FakeModel::strict(vec![bash("sleep 0.3"), says("done").delay(Duration::from_millis(200))]);
    let env = Env::new().at(&server.base_url());
    let ran = env.kli(&["-p", "hi", "--timings", "--output-format", "json"]);
    ran.exits(0)
        .says("timings: start-up ")
        .says("timings: turn 2: first token ")
        .says("timings: total");
    let result = ran.json();
    Schema::read("result").check(&result);
    let times = &result["timings"];
    let ms = |value: &Value| value.as_f64().unwrap();
    let length = server.requests()[0].body.len();
    assert_eq!(times["firstRequestBytes"], length);
    ran.says(&format!(", {length} bytes"));
    assert!(ms(&times["startupMs"]) > 0.0 && ms(&times["firstRequestMs"]) > 0.0);
    let turns = times["turns"].as_array().unwrap();
    assert_eq!(turns.len(), 2);
    assert!(ms(&turns[0]["toolMs"]) >= 300.0 && ms(&turns[1]["toolMs"]) < 1.0, "{times}");
    assert!(ms(&turns[1]["firstTokenMs"]) >= 200.0, "{times}");
    assert!(ms(&turns[1]["modelMs"]) >= ms(&turns[1]["firstTokenMs"]), "{times}");
    assert!(ms(&times["totalMs"]) >= 500.0, "{times}");
    let server = FakeModel::strict(vec![says("done")]);
    let ran = Env::new().at(&server.base_url()).kli(&["-p", "hi"]);
    assert!(!ran.err.contains("timings"), "control: {ran:?}");
}

#[test]
fn only_one_file_writes_to_standard_output() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut open = vec![source.clone()];
    let mut found = BTreeSet::new();
    while let Some(directory) = open.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                open.push(path);
            } else if fs::read_to_string(&path).unwrap().contains("io::stdout") {
                found.insert(path.strip_prefix(&source).unwrap().display().to_string());
            }
        }
    }
    found.retain(|path| !path.starts_with("sandbox/"));
    assert_eq!(found, BTreeSet::from(["cli/terminal.rs".to_owned()]));
}
