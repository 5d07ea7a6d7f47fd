//! Whole headless runs in which a scripted model uses the shell: what hangs elsewhere ends, what is
//! long stays bounded, what was started is gone at the end, and a list of commands holds.

use std::{
    fs,
    os::unix::{fs::PermissionsExt as _, process::ExitStatusExt as _},
    path::Path,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::{
    fake_model::{Answer, FakeModel, message, text, tool_use},
    harness::{Env, Ran, processes_with, wait_for},
    jail::{self, Who, World, for_both, kill},
};

mod repository;

/// A run in which the model makes these calls, one a turn.
struct Run {
    env: Env,
    model: FakeModel,
}

impl Run {
    fn new(calls: &[(&str, Value)]) -> Self {
        Self::in_env(Env::new(), calls)
    }

    fn in_env(env: Env, calls: &[(&str, Value)]) -> Self {
        let mut script: Vec<Answer> = calls
            .iter()
            .enumerate()
            .map(|(n, (name, arguments))| {
                let call = tool_use(&format!("c{n}"), name, &arguments.to_string());
                Answer::new(message([call]))
            })
            .collect();
        script.push(Answer::new(message([text("done")])));
        let model = FakeModel::strict(script);
        let env = env.at(&model.base_url());
        Self { env, model }
    }

    fn bash(lines: &[&str]) -> Self {
        let calls: Vec<(&str, Value)> =
            lines.iter().map(|line| ("bash", json!({ "command": line }))).collect();
        Self::new(&calls)
    }

    fn kli(&self, flags: &[&str]) -> (Ran, Duration) {
        let started = Instant::now();
        let words: Vec<&str> = ["-p", "go"].into_iter().chain(flags.iter().copied()).collect();
        let ran = self.env.kli(&words);
        (ran, started.elapsed())
    }

    /// Returns the texts of the results, in order.
    fn results(&self) -> Vec<String> {
        let bodies = self.model.bodies();
        let mut found = Vec::new();
        for body in bodies.iter().skip(1) {
            let last = body["messages"].as_array().unwrap().last().unwrap();
            for block in last["content"].as_array().unwrap() {
                if block["type"] == "tool_result" {
                    let content = &block["content"];
                    let text = content.as_str().or_else(|| content[0]["text"].as_str());
                    found.push(text.unwrap().to_owned());
                }
            }
        }
        found
    }
}

#[test]
fn what_a_command_leaves_behind_holds_nobody_and_is_gone_at_the_end() {
    let word = format!("61.{}", std::process::id());
    let lines = [
        format!("sleep {word} & echo one"),
        format!("setsid sleep {word} & echo two"),
        format!("(sh -c 'trap \"\" TERM HUP; sleep {word}; sleep {word}' &) ; echo three"),
        format!("nohup setsid sh -c 'yes {word} >&2' >/dev/null & echo four"),
    ];
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    let run = Run::bash(&lines);
    let (ran, took) = run.kli(&[]);
    ran.exits(0);
    assert!(took < Duration::from_secs(8), "{took:?}");
    for (result, said) in run.results().iter().zip(["one", "two", "three", "four"]) {
        assert!(result.contains(said), "{result}");
        assert!(result.contains("still runs; it ends with the run"), "{result}");
    }
    assert_eq!(processes_with(&word), Vec::<i32>::new());
}

#[test]
fn a_time_limit_ends_what_ignores_term_and_is_no_exit_status() {
    let word = format!("62.{}", std::process::id());
    let script = format!("bash -c 'trap \"\" TERM; sleep {word}; sleep {word}'");
    let run = Run::new(&[
        ("bash", json!({"command": script, "timeout": 1})),
        ("bash", json!({"command": "bash -c 'kill -TERM $$'; exit 143"})),
    ]);
    let (ran, took) = run.kli(&[]);
    ran.exits(0);
    assert!(took < Duration::from_secs(6), "{took:?}");
    let results = run.results();
    assert!(results[0].contains("timed out after 1 s; all that it started was ended"));
    assert!(!results[1].contains("timed out") && results[1].contains("143, as after signal TERM"));
    assert_eq!(processes_with(&word), Vec::<i32>::new());
}

#[test]
fn two_gigabytes_of_output_take_bounded_memory_and_can_be_paged() {
    let run = Run::bash(&["yes | head -c 2G"]);
    let mut child = run.env.command(&["-p", "go"]).spawn().unwrap();
    let status = format!("/proc/{}/status", child.id());
    let mut peak = 0_u64;
    let started = Instant::now();
    while child.try_wait().unwrap().is_none() {
        let text = fs::read_to_string(&status).unwrap_or_default();
        let line = text.lines().find(|line| line.starts_with("VmHWM:"));
        let size = line.and_then(|line| line.split_whitespace().nth(1)?.parse().ok());
        peak = peak.max(size.unwrap_or(0));
        assert!(started.elapsed() < Duration::from_secs(100), "it takes too long");
        std::thread::sleep(Duration::from_millis(5));
    }
    let result = run.results().remove(0);
    println!("peak resident memory: {peak} KiB in {:?}", started.elapsed());
    assert!(result.len() < 31_000);
    assert!(result.contains("[… 2147453648 bytes are missing here: read_result with handle `r1-"));
    assert!(result.contains("only the first 67108864 of 2147483648 bytes were kept"));
    assert!((1..64 * 1024).contains(&peak), "{peak} KiB");
}

#[test]
fn a_result_that_was_cut_is_paged_and_filtered_even_when_only_reading_is_left() {
    // The handle is not known before the run: a pattern in the answer cannot be scripted, so a wrong
    // handle first shows the right one.
    let run = Run::new(&[
        ("bash", json!({"command": "for i in {1..9000}; do echo \"row $i\"; done"})),
        ("read_result", json!({"handle": "r1-zzzz"})),
    ]);
    run.kli(&[]).0.exits(0);
    let results = run.results();
    let handle = results[0].split("handle `").nth(1).unwrap().split('`').next().unwrap();
    assert!(results[1].contains(&format!("kept now: `{handle}`")), "{}", results[1]);
    // What an earlier run kept is gone, and said to be.
    let other = Run::new(&[("read_result", json!({ "handle": handle }))]);
    other.kli(&["--read-only"]).0.exits(0);
    assert!(other.results()[0].contains("there is no result"), "{}", other.results()[0]);
    let offered = &other.model.bodies()[0]["tools"];
    let names: Vec<&str> =
        offered.as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap()).collect();
    assert!(names.contains(&"read_result") && !names.contains(&"bash"), "{names:?}");
}

#[test]
fn odd_bytes_and_a_flood_on_the_other_stream_do_not_break_a_run() {
    let run = Run::bash(&[
        "printf '\\xff\\xfe'; exit 3",
        "printf '\\033✓\\033[31mred\\033]0;title\\007'",
        "head -c 1000000 /dev/zero | tr '\\0' e >&2; echo out",
        "head -c 1M /dev/urandom",
        "printf 'a\\0b\\r\\n'",
    ]);
    run.kli(&[]).0.exits(0);
    let results = run.results();
    assert!(results[0].contains("\u{fffd}\u{fffd}") && results[0].contains("[exit status 3]"));
    assert!(results[0].contains("bytes that are no UTF-8"));
    assert!(results[1].contains("\u{1b}✓"));
    assert!(results[2].ends_with("e\nout\n[exit status 0]") || results[2].contains("eout\n"));
    assert!(results[3].len() < 100_000 && results[3].contains("missing here"));
    assert!(results[4].starts_with("a\0b\r"), "{:?}", results[4]);
}

#[test]
fn what_waits_for_a_person_ends_by_itself() {
    let run = Run::bash(&[
        "cat; echo cat",
        "git init -q . && echo a >a && git add a && \
         git -c user.name=a -c user.email=a@b commit; echo git",
        "read -r line; echo \"read ${line-nothing}\"",
        "cat </dev/tty; echo tty",
        "less a; echo less",
    ]);
    let (ran, took) = run.kli(&[]);
    ran.exits(0);
    assert!(took < Duration::from_secs(8), "{took:?}");
    let results = run.results();
    for (result, word) in results.iter().zip(["cat", "git", "read", "tty"]) {
        assert!(result.contains(word) && result.contains("[exit status 0"), "{result}");
    }
    assert!(results[1].contains("there is no editor in this run"), "{}", results[1]);
}

#[test]
fn a_run_survives_the_loss_of_its_directory() {
    let env = Env::new();
    let parent = env.work().parent().unwrap().display().to_string();
    let run = Run::in_env(
        env,
        &[
            ("bash", json!({"command": "mkdir -p deep/er && cd deep/er"})),
            ("bash", json!({"command": "rm -rf \"$PWD\""})),
            ("bash", json!({"command": "pwd"})),
            ("bash", json!({"command": "rm -rf \"$PWD\"; echo gone"})),
            ("bash", json!({"command": "pwd"})),
            ("bash", json!({"command": "mkdir work && echo again", "cwd": parent})),
            ("bash", json!({"command": "pwd"})),
        ],
    );
    run.kli(&[]).0.exits(0);
    let results = run.results();
    let work = run.env.work().display().to_string();
    assert!(results[2].contains("cannot be entered any more"), "{}", results[2]);
    assert!(results[2].contains(&format!("{work}\n")));
    assert!(results[4].contains("nothing was started"), "{}", results[4]);
    assert!(results[6].starts_with(&format!("{work}\n")), "{}", results[6]);
}

#[test]
fn a_script_arrives_unchanged_and_the_path_is_inherited() {
    let env = Env::new();
    let tools = env.home().join("own tools");
    fs::create_dir(&tools).unwrap();
    fs::write(tools.join("mytool"), "#!/bin/sh\necho mine \"$@\"\n").unwrap();
    fs::set_permissions(tools.join("mytool"), fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:/usr/bin:/bin", tools.display());
    let run = Run::in_env(
        env.var("PATH", &path),
        &[
            ("bash", json!({"command": "mytool 'select(.x != .y)' \"a  b\""})),
            ("bash", json!({"command": "cat <<'JS'\nconst a = `${b} \\n !x`; // '\"\nJS"})),
            ("bash", json!({"command": "echo \"$PATH\""})),
        ],
    );
    run.kli(&[]).0.exits(0);
    let results = run.results();
    assert!(results[0].starts_with("mine select(.x != .y) a  b\n"), "{}", results[0]);
    assert!(results[1].starts_with("const a = `${b} \\n !x`; // '\"\n"), "{}", results[1]);
    assert!(results[2].starts_with(&format!("{path}\n")), "{}", results[2]);
}

#[test]
fn a_job_goes_on_between_calls_and_ends_with_the_run() {
    let word = format!("63.{}", std::process::id());
    let script =
        format!("cd /; echo up; (sleep 0.8; echo later) & setsid sleep {word} & sleep {word}");
    let run = Run::new(&[
        ("bash", json!({"command": script, "background": true})),
        ("bash", json!({"command": "pwd; sleep 1"})),
        ("bash_jobs", json!({"action": "output", "job": "j1"})),
        ("bash_jobs", json!({"action": "list"})),
    ]);
    let (ran, took) = run.kli(&[]);
    ran.exits(0);
    assert!(took < Duration::from_secs(10), "{took:?}");
    let results = run.results();
    assert!(results[0].starts_with("[job `j1` was started]\nup\n"), "{}", results[0]);
    assert!(results[0].contains("a command in the background does not move it"));
    assert!(results[1].starts_with(&format!("{}\n", run.env.work().display())));
    assert!(results[2].starts_with("later\n[job `j1`: running"), "{}", results[2]);
    assert!(results[3].starts_with("j1  running for "), "{}", results[3]);
    assert_eq!(processes_with(&word), Vec::<i32>::new());
}

#[test]
fn jobs_end_when_a_run_is_stopped_or_runs_out_of_time() {
    for (number, signal) in [(1, Some(Signal::TERM)), (2, Some(Signal::INT)), (3, None)] {
        let word = format!("64{number}.{}", std::process::id());
        let script = format!("trap '' TERM INT; setsid sleep {word} & sleep {word}; sleep {word}");
        let run = Run::new(&[
            ("bash", json!({"command": script, "background": true})),
            ("bash", json!({"command": format!("sleep {word}")})),
        ]);
        let timeout: &[&str] = if signal.is_none() { &["--timeout", "2s"] } else { &[] };
        let words: Vec<&str> = ["-p", "go"].into_iter().chain(timeout.iter().copied()).collect();
        let mut child = run.env.command(&words).spawn().unwrap();
        wait_for("the commands", || (processes_with(&word).len() >= 4).then_some(()));
        if let Some(signal) = signal {
            kill(i32::try_from(child.id()).unwrap(), signal);
        }
        let status = child.wait().unwrap();
        let wanted = match signal {
            Some(Signal::TERM) => 143,
            Some(_) => 130,
            None => 5,
        };
        assert_eq!((status.code(), status.signal()), (Some(wanted), None), "{signal:?}");
        assert_eq!(processes_with(&word), Vec::<i32>::new(), "{signal:?}");
    }
}

#[test]
fn two_runs_at_once_have_each_their_own_output() {
    std::thread::scope(|scope| {
        for word in ["one", "two"] {
            scope.spawn(move || {
                let line = format!("for i in {{1..6000}}; do echo {word} $i; done");
                let run = Run::bash(&[&line]);
                run.kli(&[]).0.exits(0);
                let result = run.results().remove(0);
                let other = if word == "one" { "two" } else { "one" };
                assert!(result.starts_with(&format!("{word} 1\n")) && !result.contains(other));
                assert!(result.contains("read_result with handle"));
            });
        }
    });
}

#[test]
fn the_model_can_ask_what_it_may_do_and_gets_the_very_report() {
    let ask = |what: &str| ("inspect", json!({ "what": what }));
    let run = Run::new(&[ask("authority"), ask("tools"), ask("sandbox"), ask("context")]);
    run.kli(&["--no-bash"]).0.exits(0);
    let results = run.results();
    let preview = run.env.kli(&["--print-authority", "--no-bash"]);
    assert!(!preview.out.is_empty() && results[0].starts_with(&preview.out), "{}", results[0]);
    assert!(results[0].contains("narrowed by: flag --no-bash"));
    assert!(results[1].contains("read: ") && !results[1].contains("bash: "), "{}", results[1]);
    assert!(results[2].starts_with("confinement: "), "{}", results[2]);
    assert!(results[3].contains("system prompt: "), "{}", results[3]);
}

#[test]
fn what_a_script_started_before_it_became_kli_is_left_alone() {
    let run = Run::bash(&["setsid -f sleep 300 >/dev/null 2>&1; echo started"]);
    let pid = run.env.home().join("pid");
    let kli = env!("CARGO_BIN_EXE_kli");
    let script = format!(
        "setsid sleep 300 >/dev/null 2>&1 & echo $! >'{}'; exec '{kli}' -p go",
        pid.display()
    );
    let command = run.env.command(&[]);
    let ran = Command::new("bash")
        .args(["-c", &script])
        .env_clear()
        .envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))))
        .current_dir(run.env.work())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    let pid: i32 = fs::read_to_string(pid).unwrap().trim().parse().unwrap();
    let pid = rustix::process::Pid::from_raw(pid).unwrap();
    let killed = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
    assert!(killed.is_ok(), "it was ended: {killed:?}");
}

fn names(directory: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn the_review_list_neither_writes_nor_runs_by_an_option() {
    let lines = [
        "git diff --output=made",
        "git log --output made",
        "git show --ext-diff",
        "git diff --textconv",
        "git -c core.fsmonitor=./x status",
        "git -C . status",
        "git status; touch made",
        "git status >made",
        "cat <<<x >made",
        "rg --pre ./x y",
        "ls $(touch made)",
        "ls `touch made`",
        "GIT_EXTERNAL_DIFF=./x git diff",
        "eval 'touch made'",
        "ls | xargs touch made",
        "(touch made)",
        "if ls; then touch made; fi",
        "git() { touch made; }; git status",
        "ls\ntouch made",
        "ls & touch made",
        "cat a <(touch made)",
        "l\\\ns; touch made",
    ];
    let run = Run::bash(&lines);
    fs::write(run.env.work().join("x"), "#!/bin/sh\n: >made\n").unwrap();
    fs::set_permissions(run.env.work().join("x"), fs::Permissions::from_mode(0o755)).unwrap();
    let (ran, _) = run.kli(&["--profile", "review", "--output-format", "json"]);
    ran.exits(3);
    assert_eq!(ran.json()["denied"].as_array().unwrap().len(), lines.len());
    for (line, result) in lines.iter().zip(run.results()) {
        assert!(result.starts_with("denied: this run holds `process/exec` only for"), "{line}");
    }
    assert_eq!(names(&run.env.work()), ["x"]);

    let fine = Run::bash(&[
        "ls -la 2>&1 | head -n 3 && wc -l x",
        "(cat x) | wc -c; if ls x >/dev/null; then cat x; else ls; fi",
        "cat <<'E' | wc -l\na $b\nE",
    ]);
    fs::write(fine.env.work().join("x"), "text\n").unwrap();
    fine.kli(&["--profile", "review"]).0.exits(0);
    for result in fine.results() {
        assert!(result.contains("[exit status 0"), "control: {result}");
    }
}

/// Lines of a recording that makes these calls, each of whose results must hold the text.
fn recording(calls: &[(&str, &str)]) -> String {
    let mut lines: Vec<Value> = calls
        .iter()
        .map(|(line, _)| json!({"calls": [{"name": "bash", "arguments": {"command": line}}]}))
        .collect();
    lines.push(json!({"text": "done"}));
    for (line, (_, wanted)) in lines.iter_mut().skip(1).zip(calls) {
        line["expect"] = json!({ "lastResultContains": wanted });
    }
    lines.iter().map(Value::to_string).collect::<Vec<_>>().join("\n")
}

/// Makes a recording and the settings that name it, in a world of the sandbox's tests.
fn recorded(world: &World, calls: &[(&str, &str)]) -> std::path::PathBuf {
    let file = world.file("recording.jsonl", &recording(calls));
    let settings = json!({"providers": {"replay": {"file": file}}});
    world.file("home/.config/kli/settings.json", &settings.to_string());
    let kli = world.root.join("kli");
    fs::copy(env!("CARGO_BIN_EXE_kli"), &kli).unwrap();
    kli
}

#[test]
fn a_refusal_by_the_sandbox_names_the_rule_and_the_option() {
    for_both(|world| {
        world.file("home/project/.env", "secret");
        world.spec("{\"denyRead\": [\"./.env\"], \"network\": false}");
        let read_only = "`sandbox.writablePaths` opens";
        let kli = recorded(
            world,
            &[
                ("touch \"$HOME/outside\"", read_only),
                ("touch /etc/kli-was-here", read_only),
                ("cat .env; rm -f .env", "[sandbox: a hidden path reads as empty"),
                (
                    ": </dev/tcp/192.0.2.1/80",
                    "there is no network in this run; the option `sandbox.network`",
                ),
                ("touch inside && echo made", "made\n[exit status 0]"),
            ],
        );
        let words = [kli.to_str().unwrap(), "-p", "go", "--model", "replay/x"];
        let ran = world.run_with(&[], &words).output().unwrap();
        assert_eq!(jail::ok(&ran), "done\n");
        assert!(!world.root.join("home/outside").exists());
        assert_eq!(fs::read_to_string(world.workspace.join(".env")).unwrap(), "secret");
        assert!(world.workspace.join("inside").exists(), "control");
    });
}

#[test]
fn a_refusal_by_a_protection_names_what_lifts_it() {
    for_both(|world| {
        jail::ok(&world.plainly("git init -q . && mkdir -p .git/hooks && echo own > .envrc"));
        let config = fs::read_to_string(world.workspace.join(".git/config")).unwrap();
        let kli = recorded(world, &[]);
        let bash = |line: &str| ("bash", json!({ "command": line }));
        let edits = json!([{ "old": "bare = false", "new": "bare = true" }]);
        let hook = json!({ "path": ".git/hooks/pre-commit", "content": "x" });
        let calls = [
            (bash("git config core.fsmonitor x"), "the option `sandbox.git`"),
            (bash("git remote add evil ext::sh"), "the option `sandbox.git`"),
            (bash("mv .git other"), "`sandbox.protect` and `sandbox.git`"),
            (bash("rm .envrc"), "`sandbox.protect` and `sandbox.git`"),
            (bash("echo x > .envrc"), "`sandbox.protect`"),
            (("read", json!({ "path": ".git/config" })), "[core]"),
            (("edit", json!({ "path": ".git/config", "edits": edits })), "`git` opens"),
            (("write", hook), "`git` opens"),
            (bash("touch inside && echo made"), "made\n[exit status 0]"),
        ];
        let mut lines: Vec<Value> = calls
            .iter()
            .map(|((name, arguments), _)| json!({"calls": [{ "name": name, "arguments": arguments }]}))
            .collect();
        lines.push(json!({ "text": "done" }));
        for (line, (_, wanted)) in lines.iter_mut().skip(1).zip(&calls) {
            line["expect"] = json!({ "lastResultContains": wanted });
        }
        let lines: Vec<String> = lines.iter().map(Value::to_string).collect();
        world.file("recording.jsonl", &lines.join("\n"));
        let words = [kli.to_str().unwrap(), "-p", "go", "--model", "replay/x"];
        assert_eq!(jail::ok(&world.run_with(&[], &words).output().unwrap()), "done\n");
        let now = fs::read_to_string(world.workspace.join(".git/config")).unwrap();
        assert_eq!(now, config);
        assert_eq!(fs::read_to_string(world.workspace.join(".envrc")).unwrap(), "own\n");
        assert!(!world.workspace.join(".git/hooks/pre-commit").exists());
        assert!(world.workspace.join("inside").exists(), "control");
    });
}

#[test]
fn a_full_disk_costs_the_file_and_not_the_result() {
    let world = World::new(Who::User);
    let line = "for i in {1..200000}; do echo \"row $i\"; done";
    let kli = recorded(
        &world,
        &[
            (line, "keeping more failed: no space left on device"),
            ("echo small", "small\n[exit status 0]"),
        ],
    );
    let script = format!(
        "mkdir -p \"$HOME/tiny\" && mount -t tmpfs -o size=256k none \"$HOME/tiny\" && cd \"$HOME/project\" \
         && exec env XDG_STATE_HOME=\"$HOME/tiny\" TMPDIR=\"$HOME/tiny\" {} -p go --model replay/x --no-session",
        kli.display()
    );
    // The state directory is not there without a session, so the directory for temporary files is
    // the one that is full.
    assert_eq!(jail::ok(&world.in_namespace(&script)), "done\n");
}
