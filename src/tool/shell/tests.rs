#![expect(clippy::disallowed_methods, reason = "tests prepare files and look at what is left")]

use super::*;
use std::{fs, sync::Mutex};

use crate::{
    authority::Subject,
    host::{
        Host,
        process::tests::{TURN, lives},
    },
    tool::{BashOptions, State},
};

struct Place {
    root: tempfile::TempDir,
    context: Arc<Context>,
}

impl Place {
    fn new() -> Self {
        Self::with(|_| {})
    }

    fn with(change: impl FnOnce(&mut Context)) -> Self {
        let root = tempfile::tempdir().unwrap();
        let workspace = root.path().canonicalize().unwrap().join("ws");
        fs::create_dir_all(workspace.join("sub/deep")).unwrap();
        let mut context = Context {
            host: Host::with_marker(root.path().join("no-marker")),
            home: Some(workspace.clone()),
            workspace,
            state: State::default(),
            bash: BashOptions {
                shell: "bash".into(),
                timeout: 20,
                max_timeout: 60,
                // Cargo sets it for every test.
                withheld: vec!["CARGO_PKG_VERSION".into()],
                ..BashOptions::default()
            },
        };
        change(&mut context);
        Self { root, context: Arc::new(context) }
    }

    fn ws(&self) -> &Path {
        &self.context.workspace
    }

    fn prepare(&self, arguments: Value) -> Result<Box<dyn Invocation>, String> {
        let Value::Object(map) = arguments else { panic!("no object") };
        Bash.prepare(&map, &self.context)
    }

    fn call(&self, arguments: Value) -> Outcome {
        self.call_live(arguments, Arc::new(|_| {}))
    }

    fn call_live(&self, arguments: Value, sink: Sink) -> Outcome {
        let _turn = TURN.read();
        let call = self.prepare(arguments).unwrap();
        let subject = Subject::new([]);
        let grants = call.requests().into_iter().map(|r| subject.check(r).unwrap()).collect();
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap()
            .block_on(call.run(grants, sink))
    }

    fn run(&self, command: &str) -> String {
        self.call(json!({ "command": command })).text
    }
}

#[test]
fn output_and_status_are_shown() {
    let place = Place::new();
    let outcome = place.call(json!({"command": "echo a; echo b >&2; exit 3"}));
    assert_eq!(outcome.text, "a\nb\n[exit status 3]");
    assert!(outcome.is_error);
    assert_eq!(outcome.record["exit"], 3);
    let outcome = place.call(json!({"command": "true"}));
    assert_eq!(outcome.text, "(no output)\n[exit status 0]");
    assert!(!outcome.is_error);
}

#[test]
fn a_signal_is_no_timeout_and_a_timeout_is_no_signal() {
    let place = Place::new();
    assert_eq!(place.run("kill -TERM $$"), "(no output)\n[ended by signal TERM]");
    let inner = place.run("bash -c 'kill -TERM $$'");
    assert!(inner.ends_with("[exit status 143, as after signal TERM]"), "{inner}");
    let outcome = place.call(json!({"command": "echo x; sleep 30", "timeout": "1"}));
    assert_eq!(outcome.text, "x\n[timed out after 1 s; all that it started was ended]");
    assert_eq!(outcome.record["timedOut"], true);
    let long = place.call(json!({"command": "echo x", "timeout": 100_000}));
    assert_eq!(long.text, "x\n[exit status 0; 60 s is the longest `timeout`]");
}

#[test]
fn a_changed_directory_lasts_and_is_told_once() {
    let place = Place::new();
    let sub = place.ws().join("sub");
    let told = format!("the working directory is now `{}`", sub.display());
    assert!(place.run("cd sub").ends_with(&format!("[exit status 0; {told}]")));
    assert_eq!(place.run("pwd"), format!("{}\n[exit status 0]", sub.display()));
    let back = place.run("cd ..; pwd");
    assert!(back.contains("is now"), "{back}");
    for script in [
        "cd sub; exit 7",
        "set -eu; cd sub; false; cd /",
        "cd sub; cat <<'EOF'\nx\nEOF\nexec 3>&1",
        "cd sub; kill -TERM $$",
        "set -x; cd sub",
        "cd sub && ! true",
        "cd sub; echo $((1/0))",
        "pushd sub >/dev/null",
    ] {
        let text = place.run(script);
        assert!(text.contains(&told), "{script}: {text}");
        assert!(!text.contains("builtin"), "{script}: {text}");
        place.run(&format!("cd '{}'", place.ws().display()));
    }
    let exec = place.run("cd sub; exec true");
    assert!(exec.contains("the working directory is still"), "{exec}");
    // Neither a subshell, nor a job, nor another shell moves it; and that is said.
    for script in ["(cd sub)", "cd sub & wait", "bash -c 'cd sub'"] {
        let text = place.run(script);
        let still = format!("the working directory is still `{}`", place.ws().display());
        assert!(text.contains(&still), "{script}: {text}");
    }
    assert!(!place.run("echo abcd").contains("working directory"));
}

#[test]
fn a_directory_for_one_call_does_not_last_unless_the_call_moves() {
    let place = Place::new();
    let once = place.call(json!({"command": "pwd", "cwd": "sub"}));
    assert_eq!(once.text, format!("{}/sub\n[exit status 0]", place.ws().display()));
    assert_eq!(place.run("pwd"), format!("{}\n[exit status 0]", place.ws().display()));
    let moved = place.call(json!({"command": "cd deep", "cwd": "sub"}));
    assert!(moved.text.contains("is now"), "{}", moved.text);
    assert!(place.run("pwd").contains("/ws/sub/deep\n"));
    let refused = place.prepare(json!({"command": "pwd", "cwd": "nope"})).err().unwrap();
    assert!(refused.contains("/ws/nope` cannot be entered: No such file"), "{refused}");
}

#[test]
fn a_directory_that_is_gone_is_replaced_by_the_workspace_and_said() {
    let place = Place::new();
    place.run("cd sub/deep");
    place.run("rm -rf \"$PWD\"");
    let text = place.run("pwd");
    let first = format!("[the working directory `{}/sub/deep` cannot be", place.ws().display());
    assert!(text.starts_with(&first), "{text}");
    assert!(text.ends_with(&format!("{}\n[exit status 0]", place.ws().display())), "{text}");
    assert!(!place.run("pwd").contains("cannot be entered"), "said once");

    place.run("rm -rf \"$PWD\"");
    assert!(!place.ws().exists());
    let outcome = place.call(json!({"command": "echo ran"}));
    assert!(outcome.is_error && !outcome.text.contains("ran\n"), "{}", outcome.text);
    assert!(outcome.text.contains("make it again with a call that sets `cwd`"));
    let root = place.root.path().to_str().unwrap();
    place.call(json!({"command": "mkdir ws", "cwd": root}));
    assert!(place.run("echo back").starts_with("back\n"), "the repair works");
}

#[test]
fn the_script_reaches_the_shell_unchanged() {
    let place = Place::new();
    for (script, output) in [
        ("echo 'select(.x != .y)' \"a  b\" $'\\t|'", "select(.x != .y) a  b \t|\n"),
        ("cat <<'JS'\nconst a = `${b} \\n !x`; // '\"\nJS", "const a = `${b} \\n !x`; // '\"\n"),
        ("echo \"!!\" \"$#\" \"$0\"", "!! 0 bash\n"),
        ("-x 2>/dev/null; echo ok", "ok\n"),
        ("mkdir 'a b'; cd 'a b'; echo \"${PWD##*/}\"; cd ..", "a b\n"),
        ("printf '%s' \"$BASH_EXECUTION_STRING\" | wc -c", "44\n"),
    ] {
        let text = place.run(script);
        assert!(text.starts_with(&format!("{output}[exit status 0")), "{script}: {text}");
    }
    let text = place.run("echo \"unbalanced");
    assert!(text.contains("unexpected EOF while looking for matching `\"'"), "{text}");
    assert!(text.ends_with("[exit status 2]"), "{text}");
}

#[test]
fn the_environment_asks_nobody_and_withholds_keys() {
    let place = Place::new();
    let text = place.run("echo $TERM $PAGER $GIT_PAGER $GIT_TERMINAL_PROMPT ${BASH_ENV-none}");
    assert!(text.starts_with("dumb cat cat 0 none\n"), "{text}");
    assert!(std::env::var_os("CARGO_PKG_VERSION").is_some(), "control: it is there to withhold");
    let text = place.run("env | grep ^CARGO_PKG_VERSION=; echo \"$CARGO_PKG_NAME\"");
    assert!(text.starts_with("kli\n"), "{text}");
    let path = std::env::var("PATH").unwrap();
    assert_eq!(place.run("echo \"$PATH\""), format!("{path}\n[exit status 0]"));
    assert_eq!(place.run("export A=1").lines().next_back().unwrap(), "[exit status 0]");
    assert!(place.run("export A=1").contains("[exported variables do not outlast the call]"));
    assert!(place.run("echo \"${A-unset}\"").starts_with("unset\n"));
}

#[test]
fn the_users_own_start_up_file_still_runs_and_is_the_one_that_is_named() {
    let place = Place::new();
    let _turn = TURN.read();
    let file = place.ws().join("own file");
    fs::write(&file, "mine=1\nf() { echo f$mine; }\n").unwrap();
    let stand = Stand::new().unwrap();
    let run = |own: Option<&Path>| {
        let subject = Subject::new([]);
        let detail = Detail::Commands { line: String::new(), parsed: None };
        let grant = subject.check(Request { atom: Atom::ProcessExec, detail }).unwrap();
        let own = own.map(|own| (USERS_FILE.into(), own.into()));
        let command = Command {
            program: "bash".into(),
            args: vec![
                "-c".into(),
                "f; echo \"${BASH_ENV-none} ${KLI_BASH_ENV-none}\"; cd sub".into(),
            ],
            cwd: place.ws().to_owned(),
            set: own.into_iter().chain([("BASH_ENV".into(), stand.script.path().into())]).collect(),
            remove: vec![],
            input: None,
            timeout: Duration::from_secs(5),
            keep: (1000, 1000),
        };
        let slips = [&stand.script, &stand.back];
        let output = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap()
            .block_on(process::run(&grant, command, &slips, |_| {}))
            .unwrap();
        String::from_utf8(output.kept.head).unwrap()
    };
    assert_eq!(run(Some(&file)), format!("f1\n{} none\n", file.display()));
    assert!(stand.read().unwrap().ends_with("ws/sub"));
    let without = run(None);
    assert!(without.contains("f: command not found\n") && without.ends_with("none none\n"));
}

#[test]
fn what_would_ask_a_person_ends_by_itself() {
    let place = Place::new();
    let started = Instant::now();
    let text = place.run(
        "git init -q . && echo a >a && git add a && \
        git -c user.name=a -c user.email=a@b commit",
    );
    assert!(text.contains("there is no editor in this run"), "{text}");
    assert!(text.contains("[exit status 1]"), "{text}");
    let control =
        place.run("git -c user.name=a -c user.email=a@b commit -qm x && git log --oneline | wc -l");
    assert!(control.starts_with("1\n"), "{control}");
    assert!(place.run("$EDITOR file").contains("[exit status"), "a program that splits words");
    assert_eq!(place.run("cat"), "(no output)\n[exit status 0]");
    assert!(place.run("head -c 1 /dev/tty").contains("/dev/tty"), "no terminal to read");
    assert!(started.elapsed() < Duration::from_secs(5));
    let given = place.call(json!({"command": "cat; echo .", "input": "a\nb"}));
    assert_eq!(given.text, "a\nb.\n[exit status 0]");
}

#[test]
fn output_that_is_too_long_or_no_text_is_said() {
    let place = Place::new();
    let text = place.run("printf '\\xff\\xfe'; exit 3");
    assert_eq!(
        text,
        "\u{fffd}\u{fffd}\n[bytes that are no UTF-8 are shown as \u{fffd}]\n[exit status 3]"
    );
    let text = place.run("echo start; yes | head -c 1M; echo end");
    assert!(text.starts_with("start\ny\n") && text.ends_with("y\nend\n[exit status 0]"));
    assert!(text.contains("[… 1018586 bytes are missing here: narrow the command"), "{text}");
    assert!(text.len() < cut::BUDGET + 400);
    let noise = place.run("head -c 1M /dev/urandom");
    assert!(noise.len() < cut::BUDGET + 400 && noise.contains("missing here"));
    assert_eq!(place.run("printf '\\033✓'"), "\u{1b}✓\n[exit status 0]");
}

#[test]
fn what_stays_in_the_background_is_said() {
    let place = Place::new();
    let started = Instant::now();
    let text = place.run("sleep 60 & echo $!");
    assert!(started.elapsed() < Duration::from_secs(2));
    assert!(text.contains("[something it started still runs; it ends with the run"), "{text}");
    let pid = text.lines().next().unwrap().to_owned();
    assert!(lives(&pid));
    assert!(!place.run(&format!("kill {pid}")).contains("still runs"), "control");
}

#[test]
fn two_runs_at_once_have_each_their_own_output_and_directory() {
    let places = [Place::new(), Place::new()];
    std::thread::scope(|scope| {
        for (place, word) in places.iter().zip(["one", "two"]) {
            scope.spawn(move || {
                let text = place
                    .run(&format!("cd sub; for i in 1 2 3 4 5; do echo {word}; sleep 0.05; done"));
                assert!(text.starts_with(&format!("{word}\n").repeat(5)), "{text}");
                let here = format!("is now `{}/sub`", place.ws().display());
                assert!(text.contains(&here), "{text}");
            });
        }
    });
}

#[test]
fn output_is_live_in_whole_characters_and_a_flood_is_not() {
    let place = Place::new();
    let seen: Arc<Mutex<Vec<String>>> = Arc::default();
    let sink = |seen: &Arc<Mutex<Vec<String>>>| -> Sink {
        let seen = Arc::clone(seen);
        Arc::new(move |text: &str| seen.lock().unwrap().push(text.to_owned()))
    };
    let slow = "printf '\\xe2\\x9c'; sleep 0.3; printf '\\x93a'; sleep 0.3; echo b";
    place.call_live(json!({"command": slow}), sink(&seen));
    assert_eq!(seen.lock().unwrap().concat(), "✓ab\n");
    assert!(seen.lock().unwrap().len() > 1, "it came while the command ran");
    seen.lock().unwrap().clear();
    place.call_live(json!({"command": "yes | head -c 50M"}), sink(&seen));
    let shown: usize = seen.lock().unwrap().iter().map(String::len).sum();
    assert!((1..25 << 20).contains(&shown), "{shown}");
}

#[test]
fn what_cannot_be_meant_is_refused_before_anything_runs() {
    let place = Place::new();
    for (arguments, sentence) in [
        (json!({}), "`command` is missing"),
        (json!({"command": " \n"}), "`command` is empty"),
        (json!({"command": "a\0b"}), "NUL"),
        (json!({"command": "touch x", "background": "true"}), "`background` jobs are not"),
        (json!({"command": "touch x", "timeout": "soon"}), "`timeout` must be a whole number"),
        (json!({"command": "touch x", "time": 3}), "unknown argument `time`"),
        (json!({"command": ["touch", "x"]}), "`command` must be a text"),
    ] {
        let refused = place.prepare(arguments.clone()).err().unwrap();
        assert!(refused.contains(sentence), "{arguments}: {refused}");
    }
    assert!(!place.ws().join("x").exists());
    place.call(json!({"command": "touch x", "timeout": "5", "background": "false"}));
    assert!(place.ws().join("x").exists(), "control");
    let long = place.run(&format!("echo {}", "x".repeat(200_000)));
    assert!(long.starts_with("the command is 200005 bytes long"), "{long}");
}

#[test]
fn the_request_carries_the_line_and_its_words_only_when_they_are_certain() {
    let place = Place::new();
    let detail = |command: &str| {
        let call = place.prepare(json!({ "command": command })).unwrap();
        assert_eq!(call.effect(), Effect::Barrier);
        let requests = call.requests();
        assert_eq!(requests.len(), 1);
        assert_eq!(requests[0].atom, Atom::ProcessExec);
        requests[0].detail.clone()
    };
    let words = vec![vec!["git".to_owned(), "status".to_owned()]];
    assert_eq!(
        detail("git status"),
        Detail::Commands { line: "git status".into(), parsed: Some(words) }
    );
    assert_eq!(detail("$X status"), Detail::Commands { line: "$X status".into(), parsed: None });
}

#[test]
fn a_refusal_by_the_jail_is_explained() {
    let marker = tempfile::NamedTempFile::new().unwrap();
    fs::write(marker.path(), r#"{"version":1,"network":false}"#).unwrap();
    let jailed = Place::with(|context| context.host = Host::with_marker(marker.path()));
    let free = Place::new();
    for (script, line) in [
        ("echo 'touch: x: Read-only file system' >&2; false", "`sandbox.writablePaths` opens"),
        ("echo 'curl: (6) Could not resolve host: a'", "`sandbox.network` gives it"),
    ] {
        let last = |place: &Place| place.run(script).lines().next_back().unwrap().to_owned();
        assert!(last(&jailed).starts_with("[sandbox: ") && last(&jailed).contains(line));
        assert!(!last(&free).contains("sandbox"), "without a jail nothing is blamed on one");
    }
    assert!(!jailed.run("echo fine").contains("sandbox"));
    fs::write(marker.path(), r#"{"version":1,"network":true}"#).unwrap();
    assert!(!jailed.run("echo Network is unreachable; false").contains("sandbox"));
}

#[test]
fn another_shell_runs_too_without_keeping_the_directory() {
    let place = Place::with(|context| context.bash.shell = "sh".into());
    assert!(place.run("cd sub; pwd").contains("/ws/sub\n"));
    assert!(place.run("pwd").contains("/ws\n"));
    let missing = Place::with(|context| context.bash.shell = "no-such-shell".into());
    let outcome = missing.call(json!({"command": "true"}));
    assert!(outcome.is_error);
    assert!(outcome.text.starts_with("`no-such-shell` cannot be started"), "{}", outcome.text);
}
