//! The file tools in whole runs of the built program: what the model gets to see, what is on disk
//! afterwards, and that no call ends or holds up a run.

use std::{
    fs,
    os::unix::fs::symlink,
    time::{Duration, Instant},
};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::{
    fake_model::{Answer, FakeModel, message, text, tool_use},
    harness::{Env, Ran, wait_for},
    jail::kill,
};

/// A result as the model gets it: its text, and whether it is an error.
type Told = (String, bool);

fn turn(number: usize, calls: &[(&str, Value)]) -> Answer {
    let parts = calls.iter().enumerate().map(|(at, (name, arguments))| {
        tool_use(&format!("c{number}_{at}"), name, &arguments.to_string())
    });
    Answer::new(message(parts))
}

fn model(turns: &[Vec<(&str, Value)>]) -> FakeModel {
    let turns = turns.iter().enumerate().map(|(number, calls)| turn(number, calls));
    FakeModel::strict(turns.chain([Answer::new(message([text("done")]))]).collect())
}

/// The results that the request after a turn carries.
fn told(model: &FakeModel, turn: usize) -> Vec<Told> {
    let body = &model.bodies()[turn + 1];
    let last = body["messages"].as_array().unwrap().last().unwrap();
    let blocks = last["content"].as_array().unwrap();
    blocks
        .iter()
        .filter(|block| block["type"] == "tool_result")
        .map(|block| {
            let text = block["content"].as_str().or_else(|| block["content"][0]["text"].as_str());
            (text.unwrap_or_default().to_owned(), block["is_error"].as_bool().unwrap_or(false))
        })
        .collect()
}

/// Runs the calls of one turn in a workspace that `prepare` fills.
fn once(
    prepare: impl FnOnce(&Env),
    words: &[&str],
    calls: Vec<(&str, Value)>,
) -> (Env, Ran, Vec<Told>) {
    let model = model(&[calls]);
    let env = Env::new().at(&model.base_url());
    prepare(&env);
    let ran = env.kli(&[&["-p", "Go"], words].concat());
    let told = told(&model, 0);
    (env, ran, told)
}

fn put(env: &Env, files: &[(&str, &str)]) {
    for (name, content) in files {
        let path = env.work().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }
}

#[test]
fn arguments_of_a_slightly_wrong_type_work_and_wrong_ones_end_no_run() {
    let twelve = (1..=12).map(|n| format!("line {n}\n")).collect::<Vec<_>>().concat();
    let (_env, ran, told) = once(
        |env| put(env, &[("a", &twelve), ("123", "line 1\n")]),
        &[],
        vec![
            ("read", json!({"path": "a", "start": " 10", "end": "+11"})),
            ("search", json!({"pattern": "line 1$", "glob": 123})),
            ("find", json!({"pattern": 123})),
            ("read", json!({"path": 123})),
            ("edit", json!({"path": "a", "edits": {"old": "line 12", "new": 12, "all": "false"}})),
            ("read", json!({"path": ["a"]})),
            ("read", json!({"path": "a", "start": "ten"})),
            ("read", json!({"path": "a", "offset": 3})),
            ("edit", json!({"path": "a", "edits": "nonsense"})),
            ("find", json!({"pattern": {"glob": "*"}})),
            ("read", json!({"path": "a\u{0}b"})),
        ],
    );
    ran.exits(0);
    let part = |at: usize, part: &str, is_error: bool| {
        assert!(told[at].0.contains(part) && told[at].1 == is_error, "{at}: {:?}", told[at]);
    };
    part(0, "|line 10\n", false);
    assert!(!told[0].0.contains("line 9") && !told[0].0.contains("line 12"), "{:?}", told[0]);
    part(1, "123:1:", false);
    part(2, "123", false);
    part(3, "|line 1", false);
    part(4, "edited `a`", false);
    part(5, "`path` must be a text", true);
    part(6, "`start` must be a whole number", true);
    part(7, "unknown argument `offset`", true);
    part(8, "`edits` must be a list of objects", true);
    part(9, "`pattern` must be a text", true);
    part(10, "contains a NUL byte", true);
    assert_eq!(ran.out, "done\n");
}

#[test]
fn what_never_ends_is_refused_and_what_is_huge_is_read_in_bounded_memory() {
    let model = model(&[vec![
        ("read", json!({"path": "fifo"})),
        ("read", json!({"path": "/dev/zero"})),
        ("search", json!({"pattern": "x", "path": "fifo"})),
        ("edit", json!({"path": "fifo", "edits": [{"old": "a", "new": "b"}]})),
        ("write", json!({"path": "fifo", "content": "x"})),
        ("read", json!({"path": "huge", "start": 3, "end": 5})),
        ("read", json!({"path": "big", "start": 2_000_000_000})),
        ("edit", json!({"path": "huge", "edits": [{"old": "needle", "new": "b"}]})),
    ]]);
    let env = Env::new().at(&model.base_url());
    let fifo = env.work().join("fifo");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &fifo,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o600),
        0,
    )
    .unwrap();
    // Lines at both ends and two gigabytes of nothing between them.
    put(&env, &[("huge", &"a needle\n".repeat(10_000))]);
    put(&env, &[("big", &"a needle\n".repeat(10_000))]);
    for (name, size) in [("huge", 2 << 30), ("big", 256 << 20)] {
        let file = fs::File::options().append(true).open(env.work().join(name)).unwrap();
        file.set_len(size).unwrap();
    }
    let mut child = env.command(&["-p", "Go"]).spawn().unwrap();
    let status = format!("/proc/{}/status", child.id());
    let mut peak = 0_u64;
    let started = Instant::now();
    while child.try_wait().unwrap().is_none() {
        let status = fs::read_to_string(&status).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or_default();
        let kilobytes = line.trim().trim_end_matches(" kB").parse().unwrap_or(0);
        peak = peak.max(kilobytes);
        assert!(started.elapsed() < Duration::from_mins(1), "it hangs");
        std::thread::sleep(Duration::from_millis(2));
    }
    assert!(child.wait().unwrap().success());
    let told = told(&model, 0);
    for (at, told) in told.iter().enumerate().take(5) {
        assert!(told.1 && told.0.contains("device") == (at == 1), "{at}: {told:?}");
        assert!(told.0.contains("a FIFO") || at == 1, "{at}: {told:?}");
    }
    assert!(told[5].0.starts_with("3:") && told[5].0.contains("more follow"), "{:?}", told[5]);
    assert!(told[6].0.contains("is past the end: `big` has 10001 lines"), "{:?}", told[6]);
    assert!(told[7].1 && told[7].0.contains("is longer than"), "{:?}", told[7]);
    assert!(peak > 1000, "control: it was measured");
    assert!(peak < 150_000, "{peak} kB at the peak");
}

#[test]
fn an_empty_file_and_a_start_past_the_end_are_said() {
    let (_env, ran, told) = once(
        |env| put(env, &[("empty", ""), ("two", "a\nb\n")]),
        &[],
        vec![("read", json!({"path": "empty"})), ("read", json!({"path": "two", "start": 5}))],
    );
    ran.exits(0);
    assert_eq!(told[0], ("(empty file)".into(), false));
    assert_eq!(told[1], ("(start 5 is past the end: `two` has 2 lines)".into(), false));
}

#[test]
fn what_is_ignored_or_a_copy_is_said_and_found_when_it_is_named() {
    let (_env, ran, told) = once(
        |env| {
            put(
                env,
                &[
                    (".gitignore", "target/\n"),
                    ("target/hit.txt", "needle\n"),
                    ("src/a.txt", "other\n"),
                    (".kli/worktrees/one/src/a.txt", "other\n"),
                    (".kli/worktrees/two/src/a.txt", "other\n"),
                ],
            );
        },
        &[],
        vec![
            ("search", json!({"pattern": "needle"})),
            ("search", json!({"pattern": "needle", "path": "target"})),
            ("find", json!({"pattern": "hit"})),
            ("find", json!({"pattern": "hit", "path": "target"})),
            ("search", json!({"pattern": "other"})),
            ("find", json!({"pattern": "a.txt"})),
            ("search", json!({"pattern": "other", "path": ".kli/worktrees/two"})),
        ],
    );
    ran.exits(0);
    let said = "1 ignored directory skipped (target)";
    assert!(told[0].0.contains("no hits") && told[0].0.contains(said), "{:?}", told[0]);
    assert!(told[1].0.starts_with("target/hit.txt:1:"), "{:?}", told[1]);
    assert!(told[2].0.contains("nothing found") && told[2].0.contains(said), "{:?}", told[2]);
    assert!(told[3].0.starts_with("target/hit.txt\n"), "{:?}", told[3]);
    for at in [4, 5] {
        let copies = "other working trees skipped (.kli/worktrees)";
        assert_eq!(told[at].0.matches("src/a.txt").count(), 1, "{:?}", told[at]);
        assert!(told[at].0.contains(copies), "{:?}", told[at]);
    }
    assert!(told[6].0.starts_with(".kli/worktrees/two/src/a.txt:1:"), "{:?}", told[6]);
}

#[test]
fn an_interrupt_ends_a_search_and_a_read_at_once() {
    for (name, arguments) in [
        ("search", json!({"pattern": "needle", "path": "endless"})),
        ("read", json!({"path": "endless", "start": 1_000_000_000})),
    ] {
        let model = FakeModel::strict(vec![turn(0, &[(name, arguments)])]);
        let env = Env::new().at(&model.base_url());
        put(&env, &[("endless", &"a line\n".repeat(2000))]);
        let file = fs::File::options().append(true).open(env.work().join("endless")).unwrap();
        // A hole of a terabyte: minutes of reading.
        file.set_len(1 << 40).unwrap();
        let child = env.command(&["-p", "Go", "--output-format", "json"]).spawn().unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        wait_for("the request", || (!model.requests().is_empty()).then_some(()));
        std::thread::sleep(Duration::from_millis(500));
        let started = Instant::now();
        kill(pid, Signal::INT);
        let output = child.wait_with_output().unwrap();
        let ended = started.elapsed();
        assert_eq!(output.status.code(), Some(130), "{name}: {output:?}");
        assert!(ended < Duration::from_secs(2), "{name}: {ended:?}");
    }
}

#[test]
fn a_run_that_may_edit_but_not_read_is_told_nothing_of_the_content() {
    let content = "the hidden word is xyzzy\n\tand plugh\n";
    let calls = vec![
        ("edit", json!({"path": "f", "edits": [{"old": "the hidden word was", "new": "x"}]})),
        ("edit", json!({"path": "f", "edits": [{"old": "and", "new": "und"}]})),
        ("edit", json!({"path": "f", "edits": [{"from": "1:00", "text": "x"}]})),
        ("read", json!({"path": "f"})),
        ("search", json!({"pattern": "."})),
        ("find", json!({"pattern": "*"})),
    ];
    let model = model(&[calls]);
    let env = Env::new().at(&model.base_url());
    put(&env, &[("f", content)]);
    env.kli(&["-p", "Go", "--capabilities", "file/edit"]).exits(3);
    let told = told(&model, 0);
    let errors: Vec<bool> = told.iter().map(|told| told.1).collect();
    assert_eq!(errors, [true, false, true, true, true, true], "{told:?}");
    assert!(told[1].0.contains("lines now: 2"), "{:?}", told[1]);
    for told in &told[3..] {
        assert!(told.0.contains("does not hold `file/read`"), "{told:?}");
    }
    for seen in model.requests() {
        let body = String::from_utf8_lossy(&seen.body).into_owned();
        assert!(!body.contains("xyzzy") && !body.contains("plugh"), "{body}");
    }
    assert_eq!(fs::read_to_string(env.work().join("f")).unwrap(), content.replace("and", "und"));
}

#[test]
fn path_constraints_hold_for_what_writes_also_through_links() {
    let calls = |path: &str| {
        vec![
            ("edit", json!({"path": path, "edits": [{"old": "old", "new": "new"}]})),
            ("write", json!({"path": format!("{path}.made"), "content": "x"})),
        ]
    };
    let turns: Vec<_> = ["secret/f", "src/out/f", "src/../secret/f", "src/in/f"].map(calls).into();
    let model = model(&turns);
    let env = Env::new().at(&model.base_url());
    put(&env, &[("secret/f", "old xyzzy\n"), ("src/in/f", "old own\n")]);
    symlink("../secret", env.work().join("src/out")).unwrap();
    env.settings(
        r#"{"capabilities": [
            {"atom": "file/edit", "under": ["src"]},
            {"atom": "file/write", "under": ["src"]}
        ]}"#,
    );
    env.kli(&["-p", "Go"]).exits(0);
    for turn in 0..3 {
        for told in told(&model, turn) {
            assert!(told.1 && told.0.contains("only for path under"), "{turn}: {told:?}");
        }
    }
    for told in told(&model, 3) {
        assert!(!told.1, "control: {told:?}");
    }
    for seen in model.requests() {
        assert!(!String::from_utf8_lossy(&seen.body).contains("xyzzy"));
    }
    let secret = env.work().join("secret");
    assert_eq!(fs::read_to_string(secret.join("f")).unwrap(), "old xyzzy\n");
    assert_eq!(fs::read_dir(secret).unwrap().count(), 1);
    assert_eq!(fs::read_to_string(env.work().join("src/in/f")).unwrap(), "new own\n");
}

#[test]
fn a_file_that_find_shows_can_be_read_and_edited_whatever_its_name() {
    use std::os::unix::ffi::OsStrExt as _;
    let odd = std::ffi::OsStr::from_bytes(b"caf\xe9.txt");
    let (env, ran, told) = once(
        |env| fs::write(env.work().join(odd), "old\n").unwrap(),
        &[],
        vec![
            ("find", json!({"pattern": "*.txt"})),
            ("read", json!({"path": r"caf\xe9.txt"})),
            ("edit", json!({"path": r"caf\xe9.txt", "edits": [{"old": "old", "new": "new"}]})),
        ],
    );
    ran.exits(0);
    assert_eq!(told[0].0, r"caf\xe9.txt");
    assert!(told[1].0.ends_with("|old"), "{:?}", told[1]);
    assert_eq!(fs::read(env.work().join(odd)).unwrap(), b"new\n");
}
