//! Whole headless runs of the built binary against the fake model: what is sent, what is done on
//! disk, what the session says, and the exit code.

use std::{
    fs,
    os::unix::process::ExitStatusExt as _,
    process::Stdio,
    time::{Duration, Instant},
};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::{
    fake_model::{Answer, FakeModel, Newline, message, message_stopped, text, tool_use},
    harness::{Env, Ran, lines, processes_with, wait_for},
    jail::kill,
};

fn says(words: &str) -> Answer {
    Answer::new(message([text(words)]))
}

fn call(id: &str, name: &str, arguments: &Value) -> Answer {
    Answer::new(message([tool_use(id, name, &arguments.to_string())]))
}

/// The results that a request carries in its last message: call, text, whether it is an error.
fn results(body: &Value) -> Vec<(String, String, bool)> {
    let last = body["messages"].as_array().unwrap().last().unwrap();
    last["content"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|block| block["type"] == "tool_result")
        .map(|block| {
            let content = &block["content"];
            let text = content.as_str().map_or_else(
                || content[0]["text"].as_str().unwrap_or_default().to_owned(),
                str::to_owned,
            );
            let error = block["is_error"].as_bool().unwrap_or(false);
            (block["tool_use_id"].as_str().unwrap().to_owned(), text, error)
        })
        .collect()
}

/// Two reads at once, an edit, a command, and the last word.
fn whole_task() -> Vec<String> {
    vec![
        message([
            text("Let me look. "),
            tool_use("c1", "read", "{\"path\": \"a.txt\"}"),
            tool_use("c2", "read", "{\"path\":\"b.txt\"}"),
        ]),
        message([tool_use(
            "c3",
            "edit",
            "{\"path\":\"a.txt\",\"edits\":[{\"old\":\"grün\",\"new\":\"blau 👍\"}]}",
        )]),
        message([tool_use("c4", "bash", "{\"command\":\"cat a.txt; exit 3\"}")]),
        message([text("Fertig: "), text("漢字 ✓")]),
    ]
}

fn workspace(env: &Env) {
    fs::write(env.work().join("a.txt"), "eins\ngrün\n").unwrap();
    fs::write(env.work().join("b.txt"), "zwei\r\n").unwrap();
}

#[test]
fn a_whole_task_runs_and_every_request_carries_what_it_should() {
    let model = FakeModel::strict(whole_task().into_iter().map(Answer::new).collect());
    let env = Env::new().at(&model.base_url());
    workspace(&env);
    let ran = env.kli(&["-p", "Make it blue", "--output-format", "json"]);
    ran.exits(0);
    let result = ran.json();
    assert_eq!(result["outcome"], "ok");
    assert_eq!(result["text"], "Fertig: 漢字 ✓");
    assert_eq!(result["turns"], 4);
    assert_eq!(result["denied"], json!([]));
    assert_eq!(result["changedFiles"], json!([env.work().join("a.txt")]));
    assert_eq!(fs::read(env.work().join("a.txt")).unwrap(), "eins\nblau 👍\n".as_bytes());

    let bodies = model.bodies();
    assert_eq!(bodies.len(), 4);
    assert_eq!(bodies[0]["messages"][0]["role"], "user");
    assert_eq!(bodies[0]["messages"].as_array().unwrap().len(), 1);
    let tools: Vec<&str> = bodies[0]["tools"]
        .as_array()
        .unwrap()
        .iter()
        .map(|tool| tool["name"].as_str().unwrap())
        .collect();
    let all = [
        "read",
        "write",
        "edit",
        "find",
        "search",
        "bash",
        "bash_jobs",
        "read_result",
        "inspect",
        "eval",
        "task",
    ];
    assert_eq!(tools, all);
    let read = results(&bodies[1]);
    assert_eq!(read.len(), 2, "both results are in one message");
    assert!(read[0].0 == "c1" && read[0].1.contains("|grün") && !read[0].2);
    assert!(read[1].0 == "c2" && read[1].1.contains("|zwei") && !read[1].1.contains('\r'));
    assert!(results(&bodies[2])[0].1.contains("|blau 👍"));
    let bash = &results(&bodies[3])[0];
    assert!(bash.1.contains("blau 👍") && bash.1.contains('3'), "the status is told: {}", bash.1);
    for pair in bodies.windows(2) {
        assert_eq!(pair[0]["system"], pair[1]["system"], "the prompt is byte-stable");
        assert_eq!(pair[0]["tools"], pair[1]["tools"]);
    }
    let first = model.requests()[0].body.len();
    assert!(first < 6 * 1024, "the first request has {first} bytes");
}

/// Replaces what differs between any two runs: times, identifiers, places.
fn normalised(env: &Env) -> Vec<Value> {
    let work = env.work().display().to_string();
    let mut lines = env.session();
    for line in &mut lines {
        for key in ["at", "started", "id"] {
            if line.get(key).is_some() {
                line[key] = json!("-");
            }
        }
        let text = line.to_string().replace(&work, "WORK");
        *line = serde_json::from_str(&text).unwrap();
    }
    lines
}

fn session_of(answers: Vec<Answer>) -> Vec<Value> {
    let model = FakeModel::strict(answers);
    let env = Env::new().at(&model.base_url());
    workspace(&env);
    let ran = env.kli(&["-p", "Make it blue"]);
    ran.exits(0);
    assert_eq!(ran.out, "Fertig: 漢字 ✓\n");
    normalised(&env)
}

#[test]
fn however_a_stream_with_lf_is_cut_the_session_is_the_same() {
    cut_everywhere(Newline::Lf);
}

#[test]
fn however_a_stream_with_cr_is_cut_the_session_is_the_same() {
    cut_everywhere(Newline::Cr);
}

#[test]
fn however_a_stream_with_crlf_is_cut_the_session_is_the_same() {
    cut_everywhere(Newline::CrLf);
}

/// Every offset of every answer is a boundary in exactly one run, eight of them a run. One boundary
/// at a time, over more kinds of answers, is tests/model.rs's.
fn cut_everywhere(newline: Newline) {
    let wanted = session_of(whole_task().into_iter().map(Answer::new).collect());
    assert!(wanted.len() > 8, "{wanted:#?}");
    let answers = |cut: &dyn Fn(Answer) -> Answer| -> Vec<Answer> {
        let streams = whole_task().into_iter();
        streams.map(|stream| cut(Answer::new(stream).newline(newline))).collect()
    };
    let whole = answers(&|answer| answer);
    let longest = whole.iter().map(Answer::len).max().unwrap();
    let every_byte = answers(&Answer::every_byte);
    assert_eq!(session_of(every_byte), wanted, "{newline:?}, byte by byte");
    let step = longest.div_ceil(8);
    for first in 1..=step {
        let cuts: Vec<usize> = (0..8).map(|n| first + n * step).filter(|c| *c < longest).collect();
        let script = answers(&|answer| answer.split_at(cuts.iter().copied()));
        assert_eq!(session_of(script), wanted, "{newline:?}, cut at {cuts:?}");
    }
}

#[test]
fn read_only_refuses_every_writer_with_its_atom_and_the_source_and_changes_nothing() {
    let script = || {
        vec![
            Answer::new(message([
                tool_use("w", "write", "{\"path\":\"new.txt\",\"content\":\"x\"}"),
                tool_use(
                    "e",
                    "edit",
                    "{\"path\":\"a.txt\",\"edits\":[{\"old\":\"eins\",\"new\":\"x\"}]}",
                ),
                tool_use("b", "bash", "{\"command\":\"touch by-bash\"}"),
                tool_use("v", "eval", "{\"form\":\"(display 1)\"}"),
            ])),
            says("I could not."),
        ]
    };
    let model = FakeModel::strict(script());
    let env = Env::new().at(&model.base_url());
    workspace(&env);
    let ran = env.kli(&["-p", "Change it", "--read-only", "--output-format", "json"]);
    ran.exits(3);
    let result = ran.json();
    assert_eq!(result["outcome"], "denied");
    let denied: Vec<(&str, &str)> = result["denied"]
        .as_array()
        .unwrap()
        .iter()
        .map(|d| (d["tool"].as_str().unwrap(), d["atom"].as_str().unwrap()))
        .collect();
    assert_eq!(
        denied,
        [
            ("write", "file/write"),
            ("edit", "file/edit"),
            ("bash", "process/exec"),
            ("eval", "image/eval")
        ]
    );
    let bodies = model.bodies();
    for (_, text, is_error) in results(&bodies[1]) {
        assert!(is_error && text.contains("removed by flag --read-only"), "{text}");
    }
    let offered = bodies[0]["tools"].to_string();
    assert!(offered.contains("\"search\"") && !offered.contains("\"write\""), "{offered}");
    let mut names: Vec<_> = fs::read_dir(env.work())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(names, ["a.txt", "b.txt"]);
    assert_eq!(fs::read(env.work().join("a.txt")).unwrap(), "eins\ngrün\n".as_bytes());

    // Control: without the flag the same calls have their effect.
    let model = FakeModel::strict(script());
    let control = Env::new().at(&model.base_url());
    workspace(&control);
    control.kli(&["-p", "Change it"]).exits(0);
    assert!(control.work().join("by-bash").exists() && control.work().join("new.txt").exists());
    assert_eq!(fs::read(control.work().join("a.txt")).unwrap(), "x\ngrün\n".as_bytes());
}

#[test]
fn the_preview_is_the_value_that_the_calls_are_checked_against() {
    for flags in [
        &["--read-only"][..],
        &[],
        &["--no-bash"],
        &["--no-eval"],
        &["--profile", "review"],
        &["--profile", "read-only", "--capabilities", "file/read,file/edit"],
        &["--capabilities", ""],
    ] {
        let model = FakeModel::strict(vec![says("ok")]);
        let env = Env::new().at(&model.base_url());
        env.settings(
            "{ \"capabilities\": [\"tools/standard\", { \"atom\": \"file/write\", \"under\": [\".\"] }, \"image/inspect\"] }",
        );
        let preview = env.kli(&[&["--print-authority", "--json"], flags].concat());
        preview.exits(0);
        assert!(model.requests().is_empty(), "the preview contacts no model");
        env.kli(&[&["-p", "hi"], flags].concat()).exits(0);
        let checked = env
            .session()
            .into_iter()
            .find(|line| line["type"] == "authority")
            .expect("the session says what the run could do");
        assert_eq!(checked["report"], preview.json(), "{flags:?}");
    }
}

#[test]
fn a_killed_run_goes_on_where_it_was() {
    let mark = format!("4242.{}", std::process::id());
    let model = FakeModel::strict(vec![
        call("c1", "bash", &json!({ "command": format!("sleep {mark}") })),
        says("I see that it was interrupted."),
    ]);
    let env = Env::new().at(&model.base_url());
    let mut child = env.command(&["-p", "Sleep"]).spawn().unwrap();
    let sleeper = wait_for("the tool to run", || {
        let pids = processes_with(&format!("sleep\0{mark}"));
        pids.first().copied()
    });
    child.kill().unwrap();
    child.wait().unwrap();
    let before = env.session();
    assert!(
        before.last().unwrap()["message"]["blocks"].to_string().contains("sleep"),
        "the call was recorded before it took effect"
    );
    let ran = env.kli(&["--continue", "-p", "And now?", "--output-format", "json"]);
    ran.exits(0).says("interrupted");
    assert_eq!(ran.json()["text"], "I see that it was interrupted.");
    let request = model.bodies().pop().unwrap();
    let roles: Vec<&str> = request["messages"]
        .as_array()
        .unwrap()
        .iter()
        .map(|message| message["role"].as_str().unwrap())
        .collect();
    assert_eq!(roles, ["user", "assistant", "user"]);
    let content = &request["messages"][2]["content"];
    assert_eq!(content[0]["type"], "tool_result");
    assert_eq!(content[0]["tool_use_id"], "c1");
    assert_eq!(content[0]["is_error"], true);
    assert_eq!(content[1]["text"], "And now?");
    assert_eq!(env.sessions().len(), 1, "it went on in the same session");
    // The kill was not kli's to handle; outside a jail its child is left, and ended here.
    kill(sleeper, Signal::TERM);
}

fn start_sleeping(env: &Env, mark: &str) -> std::process::Child {
    let child = env
        .command(&["-p", "Sleep", "--output-format", "json"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    wait_for("the tool to run", || processes_with(&format!("sleep\0{mark}")).first().copied());
    child
}

#[test]
fn signals_end_the_tools_at_once_and_leave_a_session_that_goes_on() {
    for (signal, code, nth) in
        [(Signal::INT, 130, 1), (Signal::TERM, 143, 2), (Signal::HUP, 143, 3)]
    {
        let mark = format!("4{nth}43.{}", std::process::id());
        let model = FakeModel::strict(vec![
            Answer::new(message([
                text("Working. "),
                tool_use("c1", "bash", &json!({ "command": format!("sleep {mark}") }).to_string()),
            ])),
            says("Back."),
        ]);
        let env = Env::new().at(&model.base_url());
        let child = start_sleeping(&env, &mark);
        let start = Instant::now();
        kill(i32::try_from(child.id()).unwrap(), signal);
        let output = child.wait_with_output().unwrap();
        let took = start.elapsed();
        assert_eq!(output.status.signal(), None);
        let ran = Ran::from(output);
        ran.exits(code);
        let result = ran.json();
        assert_eq!(result["outcome"], "interrupted");
        assert_eq!(result["text"], "Working. ");
        assert!(took < Duration::from_secs(2), "{signal:?}: {took:?}");
        assert_eq!(processes_with(&format!("sleep\0{mark}")), Vec::<i32>::new());
        env.kli(&["-c", "-p", "Go on"]).exits(0);
    }
}

#[test]
fn an_answer_that_breaks_off_is_kept_and_marked() {
    let stream = message([text("one "), text("two "), text("three")]);
    let cut = stream.find("three").unwrap();
    let model = FakeModel::strict(vec![Answer::new(stream).reset_after(cut)]);
    let env = Env::new().at(&model.base_url());
    let ran = env.kli(&["-p", "Count", "--output-format", "json"]);
    ran.exits(4);
    let result = ran.json();
    assert_eq!(result["outcome"], "incomplete");
    assert_eq!(result["text"], "one two ");
    assert_eq!(result["error"]["kind"], "network");

    let model = FakeModel::strict(vec![Answer::new(message_stopped([text("half")], "max_tokens"))]);
    let env = Env::new().at(&model.base_url());
    let ran = env.kli(&["-p", "Count"]);
    ran.exits(1).says("incomplete");
    assert_eq!(ran.out, "half\n");
}

#[test]
fn overload_is_waited_out_visibly_and_given_up_in_the_end() {
    let busy = || Answer::refusal(529, "overloaded_error", "Overloaded").header("retry-after", "0");
    let model = FakeModel::strict(vec![busy(), busy(), busy(), says("at last")]);
    let env = Env::new().at(&model.base_url());
    let ran = env.kli(&["-p", "hi"]);
    ran.exits(0).says("retry 3 of 4");
    assert_eq!(ran.out, "at last\n");

    let model = FakeModel::strict((0..5).map(|_| busy()).collect());
    let env = Env::new().at(&model.base_url());
    let ran = env.kli(&["-p", "hi", "--output-format", "json"]);
    ran.exits(4);
    assert_eq!(ran.json()["error"]["kind"], "provider");
    assert_eq!(model.requests().len(), 5);
}

#[test]
fn a_refused_key_is_said_once_and_never_shown() {
    let refusal = Answer::refusal(401, "authentication_error", "invalid x-api-key");
    let model = FakeModel::start(vec![refusal]);
    let env = Env::new().at(&model.base_url()).var("ANTHROPIC_API_KEY", "sk-ant-hidden-value");
    let ran = env.kli(&["-p", "hi", "--output-format", "json"]);
    ran.exits(4);
    assert_eq!(ran.json()["error"]["kind"], "auth");
    assert!(!format!("{ran:?}").contains("hidden-value"));
    assert_eq!(model.requests()[0].header("x-api-key"), Some("sk-ant-hidden-value"), "control");
    let session = fs::read_to_string(&env.sessions()[0]).unwrap();
    assert!(!session.contains("hidden-value"));
}

#[test]
fn tools_do_not_get_the_key() {
    let model = FakeModel::strict(vec![
        call(
            "c",
            "bash",
            &json!({ "command": "env | grep -c ANTHROPIC; cat /proc/$PPID/environ 2>&1 | tr '\\0' '\\n' | grep API_KEY; echo \"$CONTROL\"" }),
        ),
        says("ok"),
    ]);
    let env = Env::new()
        .at(&model.base_url())
        .var("ANTHROPIC_API_KEY", "sk-ant-hidden-value")
        .var("CONTROL", "control-value");
    env.kli(&["-p", "look"]).exits(0);
    let text = &results(&model.bodies()[1])[0].1;
    assert!(text.contains("control-value"), "{text}");
    assert!(!text.contains("hidden-value"), "{text}");
}

#[test]
fn budgets_end_a_run_with_code_5() {
    let again = |id: &str| call(id, "bash", &json!({ "command": "echo x >> log" }));
    let model = FakeModel::strict(vec![again("a"), again("b"), again("c")]);
    let env = Env::new().at(&model.base_url());
    let ran = env.kli(&["-p", "loop", "--max-turns", "2", "--output-format", "json"]);
    ran.exits(5);
    assert_eq!(ran.json()["outcome"], "budget");
    assert_eq!(model.requests().len(), 2);
    assert_eq!(fs::read_to_string(env.work().join("log")).unwrap(), "x\n", "the second is not run");

    let model = FakeModel::strict(vec![call("a", "bash", &json!({ "command": "sleep 60" }))]);
    let env = Env::new().at(&model.base_url());
    let start = Instant::now();
    let ran = env.kli(&["-p", "wait", "--timeout", "1s", "--output-format", "json"]);
    ran.exits(5);
    assert!(start.elapsed() < Duration::from_secs(5));
    assert!(ran.json()["error"]["message"].as_str().unwrap().contains("--timeout"));
}

#[test]
fn identifiers_that_a_server_uses_twice_do_not_end_the_session() {
    let bash =
        |id: &str, command: &str| tool_use(id, "bash", &json!({ "command": command }).to_string());
    let model = FakeModel::strict(vec![
        Answer::new(message([bash("call_0", "echo one"), bash("call_0", "echo two")])),
        Answer::new(message([bash("call_0", "echo three")])),
        Answer::new(message([bash("", "echo four")])),
        says("done"),
        says("still here"),
    ]);
    let env = Env::new().at(&model.base_url());
    env.kli(&["-p", "go"]).exits(0);
    for (body, wanted) in [(1, &["one", "two"][..]), (2, &["three"]), (3, &["four"])] {
        let results = results(&model.bodies()[body]);
        assert_eq!(results.len(), wanted.len(), "one result a call: {results:?}");
        for (result, wanted) in results.iter().zip(wanted) {
            assert!(result.1.starts_with(wanted), "{result:?}");
        }
    }
    env.kli(&["-c", "-p", "again"]).exits(0);
    let sent = model.bodies().pop().unwrap()["messages"].to_string();
    for word in ["one", "two", "three", "four"] {
        assert!(sent.contains(&format!("{word}\\n[exit")), "{word}: {sent}");
    }
}

#[test]
fn a_batch_with_an_unknown_tool_and_unreadable_arguments_runs_the_rest() {
    let model = FakeModel::strict(vec![
        Answer::new(message([
            tool_use("a", "re ad", "{}"),
            tool_use("b", "read", "{\"path\": \"a"),
            tool_use("c", "read", "{\"path\":\"a.txt\"}"),
        ])),
        says("ok"),
    ]);
    let env = Env::new().at(&model.base_url());
    workspace(&env);
    env.kli(&["-p", "go"]).exits(0);
    let results = results(&model.bodies()[1]);
    assert!(results[0].2 && results[0].1.contains("there is no tool `re ad`; the tools are: read"));
    assert!(results[1].2 && results[1].1.contains("not a JSON object"));
    assert!(!results[2].2 && results[2].1.contains("|eins"));
}

#[test]
fn two_edits_of_one_file_in_one_turn_both_land() {
    let model = FakeModel::strict(vec![
        call("r", "read", &json!({ "path": "n.txt" })),
        Answer::new(message([
            tool_use(
                "a",
                "edit",
                "{\"path\":\"n.txt\",\"edits\":[{\"old\":\"line 50\",\"new\":\"FIFTY\"}]}",
            ),
            tool_use(
                "b",
                "edit",
                "{\"path\":\"n.txt\",\"edits\":[{\"old\":\"line 75\",\"new\":\"X\"}]}",
            ),
        ])),
        says("ok"),
    ]);
    let env = Env::new().at(&model.base_url());
    let text = (1..=99).map(|n| format!("line {n}")).collect::<Vec<_>>().join("\n") + "\n";
    fs::write(env.work().join("n.txt"), &text).unwrap();
    env.kli(&["-p", "go"]).exits(0);
    let wanted = text.replace("line 50\n", "FIFTY\n").replace("line 75\n", "X\n");
    assert_eq!(fs::read_to_string(env.work().join("n.txt")).unwrap(), wanted);
}

#[test]
fn opening_a_session_and_leaving_changes_nothing() {
    let model = FakeModel::strict(vec![says("one")]);
    let env = Env::new().at(&model.base_url());
    env.kli(&["-p", "hi"]).exits(0);
    let file = env.sessions().remove(0);
    let before = (fs::read(&file).unwrap(), fs::metadata(&file).unwrap().modified().unwrap());
    let ran = env.kli(&["-c", "-p", "hi", "--model", "replay/nothing"]);
    ran.exits(2).says("there is no built-in recording `nothing`");
    assert_eq!(
        (fs::read(&file).unwrap(), fs::metadata(&file).unwrap().modified().unwrap()),
        before
    );
    assert!(lines(&file).len() > 3);
}

/// In a container the leader of kli's session may be outside the PID namespace, and under
/// `nestedUserns` the numbers in `/proc` are not its own.
#[test]
fn commands_run_and_end_where_the_session_leader_or_proc_is_outside() {
    for proc in ["--mount-proc", "--mount"] {
        let mark = format!("4747.{}", std::process::id());
        let command = format!("sleep {mark} & echo in the container");
        let model =
            FakeModel::strict(vec![call("c", "bash", &json!({ "command": command })), says("ok")]);
        let env = Env::new().at(&model.base_url());
        let inner = env.command(&["-p", "go"]);
        let mut outer = std::process::Command::new("unshare");
        outer.args(["--user", "--map-root-user", "--pid", "--fork", proc]);
        outer.arg(inner.get_program()).args(inner.get_args()).current_dir(env.work()).env_clear();
        for (name, value) in inner.get_envs() {
            outer.env(name, value.unwrap_or_default());
        }
        Ran::from(outer.output().unwrap()).exits(0);
        assert!(results(&model.bodies()[1])[0].1.contains("in the container"), "{proc}");
        wait_for("the sleeper to end", || {
            processes_with(&format!("sleep\0{mark}")).is_empty().then_some(())
        });
    }
}

#[test]
fn a_closed_network_is_said_at_once_with_the_option() {
    let model = FakeModel::strict(vec![says("reached"), says("reached")]);
    let env = Env::new().at(&model.base_url());
    let run = |network: bool| {
        let spec = env.home().join("sandbox.json");
        fs::write(&spec, json!({ "version": 1, "network": network }).to_string()).unwrap();
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_kli-sandbox"));
        command
            .args(["run", "--spec"])
            .arg(&spec)
            .args(["--", env!("CARGO_BIN_EXE_kli"), "-p", "hi", "--output-format", "json"])
            .current_dir(env.work())
            .env_clear()
            .env("HOME", env.home())
            .env("PATH", "/usr/bin:/bin")
            .env("ANTHROPIC_BASE_URL", model.base_url());
        Ran::from(command.output().unwrap())
    };
    let start = Instant::now();
    let closed = run(false);
    closed.exits(4).says("set `network` to true");
    assert_eq!(closed.json()["error"]["kind"], "network");
    assert!(!closed.err.contains("retry"), "{closed:?}");
    assert!(start.elapsed() < Duration::from_secs(5));
    assert!(model.requests().is_empty());
    let open = run(true);
    assert_eq!(open.exits(0).json()["text"], "reached", "control");
    let files = env.sessions();
    assert_eq!(files.len(), 2, "one session each");
    let report = lines(&files[0]);
    let report = report.iter().find(|line| line["type"] == "authority").unwrap();
    assert_eq!(report["report"]["confinement"], "kli-sandbox");
}
