//! Each source of a key by itself, their order, and what is wrong with one.

use std::{
    fs,
    io::Write as _,
    os::unix::fs::PermissionsExt as _,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::{
    fake_model::{Answer, FakeModel},
    harness::{Env, Ran, processes_with, wait_for},
    jail::kill,
};

use super::{call, handed_json, results, says, scan::HAND_OVER, unique};

/// Runs kli with this in the pipe of a launcher.
fn handed(env: &Env, pipe: &str, words: &[&str]) -> Ran {
    finish(with_shell(env, HAND_OVER, words), pipe)
}

/// kli's command line behind a shell script, with kli's variables and standard input a pipe.
fn with_shell(env: &Env, script: &str, words: &[&str]) -> Command {
    let plain = env.command(words);
    let mut command = Command::new("sh");
    command.args(["-c", script]).arg(plain.get_program()).args(words).env_clear();
    for (name, value) in plain.get_envs() {
        command.env(name, value.unwrap());
    }
    command.current_dir(env.work()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn finish(mut command: Command, input: &str) -> Ran {
    let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
    let mut pipe = child.stdin.take().unwrap();
    let input = input.to_owned();
    // The program may refuse to read it all.
    let writer = std::thread::spawn(move || drop(pipe.write_all(input.as_bytes())));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    Ran::from(output)
}

fn provider(model: &FakeModel, more: &Value) -> String {
    let mut settings = json!({ "baseUrl": model.base_url() });
    for (name, value) in more.as_object().unwrap() {
        settings[name.as_str()] = value.clone();
    }
    json!({ "providers": { "anthropic": settings } }).to_string()
}

fn sent(model: &FakeModel) -> Vec<Option<String>> {
    model.requests().iter().map(|seen| seen.header("x-api-key").map(str::to_owned)).collect()
}

#[test]
fn each_source_gives_the_key_and_the_earlier_one_wins() {
    let sources = ["launcher", "environment", "file", "command", "store"];
    // With all from one source on; the last has nothing but the store, then there is none.
    for first in 0..=sources.len() {
        let model = FakeModel::start(vec![says("ok")]);
        let has = |name: &str| sources.iter().position(|known| *known == name).unwrap() >= first;
        let mut env = Env::new();
        let key = |name: &str| format!("sk-from-the-{name}");
        let mut more = json!({});
        if has("file") {
            fs::write(env.home().join("key"), key("file") + "\n").unwrap();
            more["keyFile"] = json!("~/key");
        }
        if has("command") {
            more["keyCommand"] = json!(["echo", key("command")]);
        }
        if has("store") {
            let stored = env.kli_with_input(&["auth", "set", "anthropic"], key("store").as_bytes());
            stored.exits(0);
        }
        env.settings(&provider(&model, &more));
        if has("environment") {
            env = env.var("ANTHROPIC_API_KEY", &key("environment"));
        }
        let ran = if has("launcher") {
            handed(&env, &handed_json(&[("ANTHROPIC_API_KEY", &key("launcher"))]), &["-p", "hi"])
        } else {
            env.kli(&["-p", "hi"])
        };
        ran.exits(0);
        assert_eq!(sent(&model), [sources.get(first).map(|name| key(name))]);

        // The status names the same one, all that are left out, and never a key.
        let words = ["auth", "status", "--json"];
        let status = if has("launcher") {
            handed(&env, &handed_json(&[("ANTHROPIC_API_KEY", &key("launcher"))]), &words)
        } else {
            env.kli(&words)
        };
        status.exits(0);
        let row = status.json()["providers"][0].clone();
        assert_eq!(row["provider"], "anthropic");
        assert_eq!(row["from"]["source"].as_str(), sources.get(first).copied());
        let shadowed: Vec<&str> = row["shadowed"]
            .as_array()
            .unwrap()
            .iter()
            .map(|found| found["source"].as_str().unwrap())
            .collect();
        assert_eq!(shadowed, sources.get(first + 1..).unwrap_or_default());
        assert!(!format!("{status:?}").contains("sk-from"), "{status:?}");
    }
}

#[test]
fn a_source_that_is_set_and_broken_is_not_passed_over() {
    let model = FakeModel::start(vec![]);
    let env = Env::new();
    env.kli_with_input(&["auth", "set", "anthropic"], b"sk-from-the-store").exits(0);
    for (more, part) in [
        (json!({ "keyFile": "~/none" }), "is not there"),
        (
            json!({ "keyCommand": ["false"] }),
            "`false` of provider `anthropic` ended with exit code 1",
        ),
        (json!({ "keyCommand": ["true"] }), "printed nothing"),
        (json!({ "keyCommand": ["kli-no-such-program"] }), "cannot be started"),
        (json!({ "keyCommand": ["printf", "a\\nb\\n"] }), "printed more than one line"),
        (json!({ "keyCommand": ["printf", "\\377"] }), "printed what is not text"),
        (json!({ "keyCommand": ["head", "-c", "70000", "/dev/zero"] }), "more than 65536 bytes"),
        (json!({ "keyCommand": ["bash", "-c", "kill -KILL $$"] }), "ended with the signal KILL"),
    ] {
        env.settings(&provider(&model, &more));
        let ran = env.kli(&["-p", "hi", "--output-format", "json"]);
        ran.exits(4).says(part);
        assert_eq!(ran.json()["error"]["kind"], "auth");
        ran.says("hint: ");
    }
    assert_eq!(model.requests().len(), 0, "nothing was sent");
    // A header cannot carry it, and the sentence does not show it.
    fs::write(env.home().join("key"), "sk-first-half\nsk-other-half").unwrap();
    env.settings(&provider(&model, &json!({ "keyFile": "~/key" })));
    let ran = env.kli(&["-p", "hi", "--output-format", "json"]);
    ran.exits(4).says("holds a line break");
    assert!(!format!("{ran:?}").contains("-half"), "{ran:?}");
}

#[test]
fn what_a_launcher_hands_over_is_whole_or_the_run_does_not_start() {
    let model = FakeModel::start(vec![]);
    let env = Env::new().at(&model.base_url()).var("ANTHROPIC_API_KEY", "sk-environment-1");
    let long = handed_json(&[("A", &"x".repeat(70_000))]);
    for (pipe, part) in [
        ("", "carries no JSON object of strings"),
        ("sk-hidden-0", "carries no JSON object of strings"),
        ("\"sk-hidden-0\"", "carries no JSON object of strings"),
        ("{\"ANTHROPIC_API_KEY\": \"sk-hidden-0\"", "carries no JSON object of strings"),
        ("{\"ANTHROPIC_API_KEY\": \"\"}", "an empty value for `ANTHROPIC_API_KEY`"),
        (&long, "more than 65536 bytes"),
    ] {
        let ran = handed(&env, pipe, &["-p", "hi", "--output-format", "json"]);
        ran.exits(4).says(part).says("unset `KLI_SECRETS_FD`");
        assert_eq!(ran.json()["error"]["kind"], "auth");
        assert!(!format!("{ran:?}").contains("hidden"), "{ran:?}");
    }
    for (script, part) in [
        ("KLI_SECRETS_FD=9 exec \"$0\" \"$@\"", "does not name an open descriptor"),
        ("KLI_SECRETS_FD=x exec \"$0\" \"$@\"", "does not name an open descriptor"),
        ("KLI_SECRETS_FD= exec \"$0\" \"$@\"", "does not name an open descriptor"),
        ("KLI_SECRETS_FD=0 exec \"$0\" \"$@\"", "does not name an open descriptor above 2"),
        (
            "exec 9</dev/null; KLI_SECRETS_FD=9 exec \"$0\" \"$@\"",
            "is a character device, not a pipe",
        ),
        ("exec 9<.; KLI_SECRETS_FD=9 exec \"$0\" \"$@\"", "a directory, not a pipe"),
    ] {
        let ran = finish(with_shell(&env, script, &["-p", "hi"]), "{}");
        ran.exits(4).says(part);
    }
    assert_eq!(model.requests().len(), 0, "no request, also not with the variable's key");
    handed(&env, "{}", &["version"]).exits(0);

    // One that stays open is not waited for without end.
    let mut child =
        with_shell(&env, HAND_OVER, &["version"]).stdin(Stdio::piped()).spawn().unwrap();
    let held = child.stdin.take().unwrap();
    let ran = Ran::from(child.wait_with_output().unwrap());
    ran.exits(4).says("was not closed within 5 s");
    drop(held);
}

#[test]
fn what_a_launcher_hands_over_reaches_no_child() {
    let line = "ls /proc/self/fd; env | grep -c KLI_SECRETS; echo end";
    let model = FakeModel::strict(vec![call("c", "bash", &json!({ "command": line })), says("ok")]);
    let env = Env::new().at(&model.base_url());
    let key = unique("sk-handed");
    let ran = handed(&env, &handed_json(&[("ANTHROPIC_API_KEY", &key)]), &["-p", "look"]);
    ran.exits(0);
    assert_eq!(sent(&model), [Some(key.clone()), Some(key)], "control");
    let text = &results(&model.bodies()[1])[0].1;
    assert!(text.contains("\n0\nend\n"), "no such variable: {text}");
    let numbers: Vec<&str> = text.lines().take_while(|line| *line != "0end").collect();
    assert!(!numbers.contains(&"9"), "{text}");
    // Control: without kli the child has both.
    let script =
        "exec 9<&0; KLI_SECRETS_FD=9 bash -c 'ls /proc/self/fd; env | grep -c KLI_SECRETS'";
    let plain = Command::new("sh").args(["-c", script]).stdin(Stdio::piped()).output().unwrap();
    let text = String::from_utf8(plain.stdout).unwrap();
    assert!(text.lines().any(|line| line == "9") && text.ends_with("\n1\n"), "{text}");
}

#[test]
fn a_key_command_runs_once_in_no_shell_at_home_without_input() {
    let model =
        FakeModel::strict(vec![call("c", "bash", &json!({ "command": "echo one" })), says("ok")]);
    let env = Env::new().var("ANTHROPIC_API_KEY", "").var("SEEN", "inherited");
    let script = env.home().join("key command");
    let text = "#!/bin/bash\n\
                { pwd; echo \"$#:$1\"; cat; echo \"$SEEN\"; } >>\"$HOME/log\"\n\
                : </dev/tty || echo 'no terminal' >>\"$HOME/log\"\n\
                echo 'touch the token' >&2\n\
                printf ' sk-from-$HOME \\n'\n";
    fs::write(&script, text).unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    env.settings(&provider(&model, &json!({ "keyCommand": ["~/key command", "a b; $HOME `id`"] })));
    env.kli(&["-p", "hi"]).exits(0).says("touch the token");
    let wanted = Some("sk-from-$HOME".to_owned());
    assert_eq!(sent(&model), [wanted.clone(), wanted], "two requests");
    let log = fs::read_to_string(env.home().join("log")).unwrap();
    let home = env.home().display().to_string();
    assert_eq!(log, format!("{home}\n1:a b; $HOME `id`\ninherited\nno terminal\n"), "one run");
}

#[test]
fn no_preview_runs_a_key_command() {
    let model = FakeModel::start(vec![says("ok")]);
    let env = Env::new();
    let made = env.home().join("made");
    let words = json!(["bash", "-c", "touch \"$HOME/made\"; echo sk-1"]);
    env.settings(&provider(&model, &json!({ "keyCommand": words })));
    for words in [
        &["--print-authority"][..],
        &["config", "check"],
        &["config", "path"],
        &["auth", "status"],
        &["version"],
        &["-p", " "],
    ] {
        env.kli(words);
        assert!(!made.exists(), "{words:?}");
    }
    let status = env.kli(&["auth", "status"]);
    assert!(status.out.starts_with("anthropic: the command `bash`, not run\n"), "{status:?}");
    env.kli(&["-p", "hi"]).exits(0);
    assert!(made.exists(), "control");
}

#[test]
fn a_key_command_that_waits_is_ended_by_a_signal() {
    let model = FakeModel::start(vec![]);
    let env = Env::new();
    let mark = unique("mark");
    let script = format!("sleep 61 & touch \"$HOME/begun\"; sleep 62; : {mark}");
    env.settings(&provider(&model, &json!({ "keyCommand": ["bash", "-c", script] })));
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143)] {
        let child = env.command(&["-p", "hi", "--output-format", "json"]).spawn().unwrap();
        let begun = env.home().join("begun");
        wait_for("the command to begin", || begun.exists().then_some(()));
        assert!(!processes_with(&mark).is_empty(), "control");
        let start = Instant::now();
        kill(i32::try_from(child.id()).unwrap(), signal);
        let ran = Ran::from(child.wait_with_output().unwrap());
        ran.exits(code);
        assert_eq!(ran.json()["outcome"], "interrupted");
        assert!(start.elapsed() < Duration::from_secs(5));
        wait_for("its processes to go", || processes_with(&mark).is_empty().then_some(()));
        fs::remove_file(begun).unwrap();
    }
    assert_eq!(model.requests().len(), 0);
}

#[test]
fn what_a_key_command_leaves_running_holds_nothing_up_and_lives_on() {
    let model = FakeModel::start(vec![says("ok")]);
    let env = Env::new();
    // It keeps the pipe of standard output, as agents that remember a passphrase do by mistake.
    let words =
        json!(["bash", "-c", "sleep 47.25 2>/dev/null & echo $! >\"$HOME/agent\"; echo sk-1"]);
    env.settings(&provider(&model, &json!({ "keyCommand": words })));
    let start = Instant::now();
    env.kli(&["-p", "hi"]).exits(0);
    assert!(start.elapsed() < Duration::from_secs(20));
    let pid = fs::read_to_string(env.home().join("agent")).unwrap().trim().parse().unwrap();
    let state = fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap();
    assert!(state.contains("47.25"), "the agent lives on");
    kill(pid, Signal::KILL);
}

#[test]
fn a_refusal_does_not_change_the_source() {
    let refusal = Answer::refusal(401, "authentication_error", "invalid x-api-key");
    let model = FakeModel::start(vec![refusal, says("ok")]);
    let env = Env::new().at(&model.base_url()).var("ANTHROPIC_API_KEY", "sk-environment-1");
    env.kli_with_input(&["auth", "set", "anthropic"], b"sk-stored-1")
        .exits(0)
        .says("not used while there is the variable `ANTHROPIC_API_KEY`");
    let file = env.home().join(".config/kli/credentials.json");
    let before = fs::read(&file).unwrap();
    env.kli(&["-p", "hi"]).exits(4);
    env.kli(&["-p", "hi"]).exits(0);
    let wanted = Some("sk-environment-1".to_owned());
    assert_eq!(sent(&model), [wanted.clone(), wanted], "still the variable's, and asked once each");
    assert_eq!(fs::read(&file).unwrap(), before);
}
