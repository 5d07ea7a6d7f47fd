//! What goes wrong around a session: a full disk at every write, a sync that fails, no locks, a state
//! directory that cannot be written, several processes at once, and kills at any moment.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use serde_json::{Value, json};

use super::{bash, id, picture, recorded, says};
use crate::{
    fake_model::{Answer, FakeModel, message, text},
    harness::{Env, Ran, lines},
};

/// Runs kli as the last words of another program, with the same environment.
fn through(env: &Env, program: &str, before: &[&str], words: &[&str]) -> Ran {
    let inner = env.command(words);
    let mut outer = Command::new(program);
    outer.args(before).arg(inner.get_program()).args(inner.get_args());
    outer.current_dir(env.work()).env_clear().stdin(Stdio::null());
    for (name, value) in inner.get_envs() {
        outer.env(name, value.unwrap_or_default());
    }
    Ran::from(outer.output().unwrap())
}

/// Runs kli where a system call is answered with an error.
fn where_fails(env: &Env, call: libc::c_long, errno: i32, words: &[&str]) -> Ran {
    // seccomp(2), SECCOMP_SET_MODE_FILTER: load the number; if it is the call, fail; else allow.
    let number = u32::try_from(call).unwrap();
    let fail = libc::SECCOMP_RET_ERRNO | u32::try_from(errno).unwrap();
    let code = |code: u16, jt: u8, jf: u8, k: u32| {
        [&code.to_ne_bytes()[..], &[jt, jf], &k.to_ne_bytes()].concat()
    };
    let filter = [
        code(0x20, 0, 0, 0),
        code(0x15, 0, 1, number),
        code(0x06, 0, 0, fail),
        code(0x06, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let file = env.home().join("filter");
    fs::write(&file, filter.concat()).unwrap();
    let script = format!(
        "exec 9<'{}'; exec bwrap --dev-bind / / --seccomp 9 -- \"$0\" \"$@\"",
        file.display()
    );
    through(env, "bash", &["-c", &script], words)
}

fn state(env: &Env) -> PathBuf {
    env.home().join(".local/state/kli")
}

/// A run of three turns that leaves two effects behind.
fn with_effects() -> Vec<Value> {
    vec![
        bash("echo 1 >> effects"),
        json!({"calls": [{"name": "write", "arguments": {"path": "second", "content": "2"}}]}),
        bash("echo 3 >> effects"),
        says("done"),
    ]
}

/// Nothing was done that is not in the session, and nothing that is there is half a line.
fn recorded_before_done(env: &Env, events: &[Value]) {
    let text = Value::Array(events.to_vec()).to_string();
    let effects = fs::read_to_string(env.work().join("effects")).unwrap_or_default();
    for (done, call) in [
        (effects.contains('1'), "echo 1 >> effects"),
        (env.work().join("second").exists(), "second"),
        (effects.contains('3'), "echo 3 >> effects"),
    ] {
        assert!(!done || text.contains(call), "`{call}` was done and is not in {text}");
    }
}

/// Goes on with the latest session under a strict model.
fn goes_on(env: Env) -> Ran {
    let model = FakeModel::strict(vec![Answer::new(message([text("went on")]))]);
    env.settings("{}");
    let env = env.at(&model.base_url());
    let ran = env.kli(&["-c", "-p", "and on"]);
    if ran.code == Some(0) {
        assert_eq!(ran.out, "went on\n", "{ran:?}");
        lines(env.sessions().last().unwrap());
    }
    ran
}

#[test]
fn a_disk_that_fills_at_any_write_stops_the_run_and_leaves_whole_lines() {
    let reference = recorded(&with_effects());
    reference.kli(&["-p", "go"]).exits(0);
    let whole = fs::read(reference.sessions().remove(0)).unwrap();
    let kinds: Vec<String> = reference
        .session()
        .iter()
        .map(|event| event["type"].as_str().unwrap().to_owned())
        .collect();
    assert!(kinds.len() > 12 && kinds.contains(&"changed".to_owned()), "{kinds:?}");
    let first_message = kinds.iter().position(|kind| kind == "message").unwrap();
    let mut start = 0;
    for (number, line) in whole.split_inclusive(|byte| *byte == b'\n').enumerate() {
        // The write is refused whole, or a part of it fits.
        for limit in [start, start + 1 + number % (line.len() - 2)] {
            let env = recorded(&with_effects());
            let limit = format!("--fsize={limit}");
            let ran = through(&env, "prlimit", &[&limit, "--"], &["-p", "go"]);
            let is_end = number + 1 == kinds.len();

            ran.exits(i32::from(!is_end)).says("cannot keep the session: cannot append to `");
            ran.says("file too large").says("what cannot be recorded is not done");
            assert_eq!(ran.err.matches("cannot keep").count(), 1, "said once: {ran:?}");
            let files = env.sessions();
            let events = files.first().map_or_else(Vec::new, |file| {
                if fs::metadata(file).unwrap().len() == 0 { Vec::new() } else { lines(file) }
            });
            let left: Vec<&str> = events.iter().map(|e| e["type"].as_str().unwrap()).collect();
            assert_eq!(left, kinds[..number], "write {number}, {limit}");
            recorded_before_done(&env, &events);
            let ran = goes_on(env);
            if number > first_message {
                ran.exits(0);
            } else {
                ran.exits(2).says("there is no session of");
            }
        }
        start += line.len();
    }
}

#[test]
fn a_disk_without_space_is_said_with_its_own_words() {
    let large = json!({"text": "x".repeat(9000), "calls": [{"name": "bash", "arguments": {"command": "echo 1 >> effects"}}]});
    let env = recorded(&[large, says("done")]);
    fs::create_dir_all(state(&env)).unwrap();
    let state = state(&env);
    let state = state.to_str().unwrap();
    let before = ["--dev-bind", "/", "/", "--size", "8192", "--tmpfs", state, "--"];
    let ran = through(&env, "bwrap", &before, &["-p", "go"]);
    ran.exits(1).says("no space left on device").says("the run stops");
    assert!(!env.work().join("effects").exists(), "what was not recorded was not done");
    let ran =
        through(&env, "bwrap", &["--dev-bind", "/", "/", "--tmpfs", state, "--"], &["-p", "go"]);
    assert_eq!(ran.exits(0).out, "done\n", "control");
}

#[test]
fn a_sync_that_fails_stops_the_run() {
    let env = recorded(&[says("done")]);
    let ran = where_fails(&env, libc::SYS_fdatasync, libc::EIO, &["-p", "go"]);
    ran.exits(1).says("cannot keep the session: cannot sync `").says("input/output error");
    lines(&env.sessions()[0]);
    assert_eq!(
        where_fails(&env, libc::SYS_fdatasync, 0, &["-p", "go"]).exits(0).out,
        "done\n",
        "control"
    );
}

#[test]
fn a_file_system_without_locks_is_said() {
    let env = recorded(&[says("done")]);
    env.kli(&["-p", "one"]).exits(0);
    let ran = where_fails(&env, libc::SYS_flock, libc::ENOLCK, &["-c", "-p", "two"]);
    ran.exits(0).says("the session cannot be locked (").says("do not open it in another kli");
    assert_eq!(env.session().iter().filter(|event| event["type"] == "message").count(), 4);
    let ran = env.kli(&["-c", "-p", "three"]);
    assert!(!ran.exits(0).err.contains("locked"), "control: {ran:?}");
}

#[test]
fn a_state_directory_that_cannot_be_written_is_said_and_the_run_goes_on() {
    let env = recorded(&[says("done")]);
    env.kli(&["-p", "one"]).exits(0);
    let id = id(&env);
    let before = picture(&state(&env));
    let state_dir = state(&env);
    let state_dir = state_dir.to_str().unwrap();
    let read_only = ["--dev-bind", "/", "/", "--ro-bind", state_dir, state_dir, "--"];
    let run = |words: &[&str]| through(&env, "bwrap", &read_only, words);
    let fresh = run(&["-p", "two", "--output-format", "json"]);
    fresh.exits(0).says("no session is kept: cannot write in `");
    fresh.says("read-only file system");
    assert_eq!(fresh.json()["session"], json!(null));
    let on = run(&["-c", "-p", "three", "--output-format", "json"]);
    on.exits(0).says(&format!("session `{id}` cannot be written (cannot write in `"));
    on.says("what this run adds is not kept");
    assert_eq!(on.json()["session"], json!(null));
    for words in [&["list"][..], &["show", &id], &["export", &id], &["path"]] {
        assert!(!run(&[&["sessions"], words].concat()).exits(0).out.is_empty(), "{words:?}");
    }
    run(&["sessions", "fork", &id]).exits(1).says("cannot keep the session: cannot write in `");
    assert_eq!(picture(&state(&env)), before);
    env.kli(&["-c", "-p", "control"]).exits(0);
    assert_ne!(picture(&state(&env)), before);
}

#[test]
fn without_a_state_directory_there_is_a_sentence_and_no_session() {
    let env = recorded(&[says("done")]);
    // A file in the place of the directory.
    fs::create_dir_all(env.home().join(".local/state")).unwrap();
    fs::write(state(&env), "a file").unwrap();
    env.kli(&["-p", "one"]).exits(0).says("no session is kept: ");
    env.kli(&["sessions", "list"]).exits(1).says("cannot read the session: ");
    assert_eq!(fs::read(state(&env)).unwrap(), b"a file");
    fs::remove_file(state(&env)).unwrap();
    // No home: neither is a relative one.
    for home in [None, Some("relative")] {
        for words in [
            &["sessions", "list"][..],
            &["sessions", "path"],
            &["-c", "-p", "x", "--model", "replay/demo"],
        ] {
            let mut command = env.command(words);
            command.env_remove("HOME").envs(home.map(|home| ("HOME", home)));
            Ran::from(command.output().unwrap()).exits(2).says("no home directory is known");
        }
    }
    // A relative XDG_STATE_HOME counts as unset, and is not made in the workspace.
    let mut command = env.command(&["-p", "one"]);
    Ran::from(command.env("XDG_STATE_HOME", "state").output().unwrap()).exits(0);
    assert!(!env.work().join("state").exists());
    assert_eq!(env.sessions().len(), 1);
    let elsewhere = env.home().join("elsewhere");
    let mut command = env.command(&["-p", "one"]);
    Ran::from(command.env("XDG_STATE_HOME", &elsewhere).output().unwrap()).exits(0);
    assert!(elsewhere.join("kli/sessions").is_dir(), "control");
    assert_eq!(fs::metadata(&elsewhere).unwrap().permissions().mode() & 0o777, 0o700);
}

#[test]
fn eight_processes_on_one_session_make_seven_copies() {
    let answer = || Answer::new(message([text("said")])).delay(Duration::from_secs(4));
    let model = FakeModel::strict(
        std::iter::once(Answer::new(message([text("first")])))
            .chain(std::iter::repeat_with(answer).take(8))
            .collect(),
    );
    let env = Env::new().at(&model.base_url());
    env.kli(&["-p", "begin"]).exits(0);
    let original = id(&env);
    let children: Vec<_> = (0..8)
        .map(|number| {
            env.command(&["--resume", &original, "-p", &format!("number {number}")])
                .spawn()
                .unwrap()
        })
        .collect();
    let ran: Vec<Ran> =
        children.into_iter().map(|child| Ran::from(child.wait_with_output().unwrap())).collect();
    let copies = ran.iter().filter(|ran| {
        assert_eq!(ran.exits(0).out, "said\n");
        ran.err.contains(&format!("session `{original}` is in use by another process"))
    });
    assert_eq!(copies.count(), 7, "{ran:?}");
    let files = env.sessions();
    assert_eq!(files.len(), 8);
    let mut prompts = Vec::new();
    for file in &files {
        let events = lines(file);
        let is_copy = events[0]["parent"] == json!(original);
        assert!(is_copy || events[0]["id"] == json!(original), "{}", file.display());
        let said: Vec<String> = events
            .iter()
            .filter(|event| event["message"]["role"] == "user")
            .map(|event| event["message"]["blocks"][0]["text"].as_str().unwrap().to_owned())
            .collect();
        // A copy begins with what the session held when it was opened, which may be the first
        // process's prompt as well; its own is the last, and nothing comes between.
        assert!(said.len() == 2 || is_copy && said.len() == 3, "{said:?}");
        assert_eq!(said[0], "begin");
        prompts.push(said.last().unwrap().clone());
    }
    prompts.sort();
    assert_eq!(prompts, (0..8).map(|number| format!("number {number}")).collect::<Vec<_>>());
}

/// Returns how many commands have had their effect.
fn effects(env: &Env) -> usize {
    fs::read_to_string(env.work().join("effects")).map_or(0, |text| text.lines().count())
}

#[test]
fn a_run_that_is_killed_at_any_moment_did_nothing_that_is_not_recorded() {
    let mut killed = 0;
    for round in 0..16 {
        let mut answers: Vec<Value> =
            (0..30).map(|number| bash(&format!("echo {number} >> effects"))).collect();
        answers.push(says("done"));
        let env = recorded(&answers);
        let mut child = env.command(&["-p", "go"]).stderr(Stdio::null()).spawn().unwrap();
        // Spread over the start and over what is done, however fast the machine is.
        std::thread::sleep(Duration::from_millis(2 + 3 * (round % 4)));
        let step = usize::try_from(round * 2).unwrap();
        while effects(&env) < step && child.try_wait().unwrap().is_none() {
            std::thread::sleep(Duration::from_micros(200));
        }
        child.kill().unwrap();
        if child.wait().unwrap().success() {
            continue;
        }
        killed += 1;
        // What the kill left running ends by itself.
        std::thread::sleep(Duration::from_millis(100));
        let Some(file) = env.sessions().pop() else {
            assert!(!env.work().join("effects").exists());
            continue;
        };
        let bytes = fs::read(&file).unwrap();
        let session = String::from_utf8_lossy(&bytes).into_owned();
        let effects = fs::read_to_string(env.work().join("effects")).unwrap_or_default();
        for number in effects.lines() {
            assert!(
                session.contains(&format!("echo {number} >> effects")),
                "{number} in {session}"
            );
        }
        let has_message = session.contains("{\"type\":\"message\"");
        let ran = goes_on(env);
        ran.exits(if has_message { 0 } else { 2 });
    }
    assert!(killed > 5, "the kills came in time: {killed}");
}

#[test]
fn a_session_that_another_process_writes_can_be_read_meanwhile() {
    let calls = (0..40).map(|number| bash(&format!("echo {number}")));
    let env = recorded(&calls.chain([says("done")]).collect::<Vec<_>>());
    let mut child = env.command(&["-p", "go"]).spawn().unwrap();
    let mut seen = 0;
    loop {
        let ended = child.try_wait().unwrap();
        let list = env.kli(&["sessions", "list", "--json"]);
        if !list.exits(0).out.is_empty() {
            let id = list.json()["id"].as_str().unwrap().to_owned();
            env.kli(&["sessions", "show", &id]).exits(0);
            let whole = env.kli(&["sessions", "export", &id, "--format", "json"]).json();
            let count = whole["entries"].as_array().unwrap().len();
            assert!(count >= seen, "nothing that was there goes");
            seen = count;
        }
        if let Some(status) = ended {
            assert!(status.success());
            break;
        }
    }
    assert!(seen > 80 && Path::new(&env.sessions()[0]).exists());
    assert_eq!(env.session().len(), seen, "the last look has it all");
}
