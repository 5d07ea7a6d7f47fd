//! Checkpoints through the built program: what is changed can be put back, whoever changed it and
//! whenever the run is killed.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use kli::session::checkpoint::{Digest, State, View};
use serde_json::json;

use super::{recorded, says};
use crate::harness::{Env, Ran};

fn id(file: &Path) -> String {
    let stem = file.file_stem().unwrap().to_str().unwrap();
    stem.split_once('-').unwrap().1.to_owned()
}

fn view(env: &Env, id: &str) -> Option<View> {
    let state = env.home().join(".local/state/kli");
    View::read(&state, &fs::canonicalize(env.work()).unwrap(), id).unwrap()
}

fn edits(count: usize) -> Vec<serde_json::Value> {
    let mut answers: Vec<_> = (0..count)
        .map(|n| {
            json!({"calls": [
                {"name": "edit", "arguments":
                    {"path": format!("f{n}"), "edits": [{"old": "old", "new": "new"}]}},
                {"name": "write", "arguments": {"path": format!("d{n}/n"), "content": "made"}},
            ]})
        })
        .collect();
    answers.push(says("done"));
    answers
}

fn files(env: &Env, count: usize) {
    for n in 0..count {
        fs::write(env.work().join(format!("f{n}")), format!("old {n}\n")).unwrap();
    }
}

/// Every file is whole, and what is not as before has a checkpoint that puts it back.
fn check(env: &Env, count: usize) -> usize {
    let sessions = env.sessions();
    let view = sessions.first().and_then(|file| view(env, &id(file)));
    let changes = view.as_ref().map_or(&[][..], |view| view.book().changes());
    let mut new_ones = 0;
    for n in 0..count {
        let (old, new) = (format!("old {n}\n"), format!("new {n}\n"));
        let now = fs::read_to_string(env.work().join(format!("f{n}"))).unwrap();
        assert!(now == old || now == new, "half a file: {now:?}");
        let made = fs::read_to_string(env.work().join(format!("d{n}/n"))).ok();
        assert!(made.is_none() || made.as_deref() == Some("made"), "{made:?}");
        let kept =
            |name: String| changes.iter().find(|change| change.path.path() == Path::new(&name));
        if now == new {
            new_ones += 1;
            let Some(kept) = kept(format!("f{n}")) else { panic!("a change without a checkpoint") };
            let State::File { digest, .. } = kept.before else { panic!("{kept:?}") };
            assert_eq!(digest, Digest::of(old.as_bytes()));
            assert_eq!(view.as_ref().unwrap().content(digest).unwrap().unwrap(), old.as_bytes());
        }
        if made.is_some() {
            let Some(kept) = kept(format!("d{n}/n")) else { panic!("a new file without one") };
            assert_eq!(kept.before, State::Absent);
        }
    }
    new_ones
}

#[test]
fn a_kill_at_any_moment_leaves_old_or_new_files_and_a_valid_store() {
    const COUNT: usize = 20;
    let mut partly = 0;
    for round in 0..16_u16 {
        let env = recorded(&edits(COUNT));
        files(&env, COUNT);
        let mut child = env
            .command(&["-p", "go"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        // Later and later: at first before anything happened.
        let until = if round < 4 { 0 } else { usize::from(round) };
        let watched = env.work().join(format!("d{until}/n"));
        let end = std::time::Instant::now() + Duration::from_secs(20);
        while !watched.exists() && std::time::Instant::now() < end {
            std::thread::sleep(Duration::from_micros(200));
        }
        std::thread::sleep(Duration::from_micros(700 * u64::from(round)));
        child.kill().unwrap();
        child.wait().unwrap();
        let changed = check(&env, COUNT);
        partly += usize::from(changed > 0 && changed < COUNT);
        if let Some(file) = env.sessions().first() {
            env.kli(&["sessions", "diff", &id(file)]).exits(0);
        }
    }
    assert!(partly >= 4, "control: {partly} runs were killed in the middle");
    let env = recorded(&edits(COUNT));
    files(&env, COUNT);
    env.kli(&["-p", "go"]).exits(0);
    assert_eq!(check(&env, COUNT), COUNT, "control: to the end");
}

#[test]
fn what_forms_and_sub_agents_change_is_kept_as_well() {
    let env = recorded(&[
        json!({"calls": [{"name": "eval", "arguments":
            {"form": "(begin (delete-file \"gone\") (write-file \"made\" \"m\"))"}}]}),
        json!({"calls": [{"name": "task", "arguments": {"prompt": "write it"}}]}),
        json!({"calls": [{"name": "write", "arguments": {"path": "by-task", "content": "t"}}]}),
        says("the part is done"),
        says("done"),
    ]);
    fs::write(env.work().join("gone"), "precious\n").unwrap();
    env.kli(&["-p", "go"]).exits(0);
    assert!(!env.work().join("gone").exists() && env.work().join("by-task").exists(), "control");
    let sessions = env.sessions();
    let main = sessions.iter().find(|file| view(&env, &id(file)).is_some()).unwrap();
    let out = env.kli(&["sessions", "diff", &id(main)]);
    out.exits(0);
    for row in ["--- a/gone", "-precious", "+++ b/made", "+++ b/by-task"] {
        assert!(out.out.lines().any(|line| line == row), "{row}: {}", out.out);
    }
    let view = view(&env, &id(main)).unwrap();
    let groups: Vec<u64> = view.book().changes().iter().map(|change| change.group).collect();
    assert_eq!(groups.len(), 3, "{groups:?}");
    assert!(groups.iter().all(|group| *group == groups[0]), "one prompt's: {groups:?}");
}

#[test]
fn a_state_directory_that_takes_none_is_said_once_and_the_tools_work() {
    let env = recorded(&edits(2));
    files(&env, 2);
    let state = env.home().join(".local/state/kli");
    fs::create_dir_all(&state).unwrap();
    fs::write(state.join("checkpoints"), "a file in its place").unwrap();
    let out = env.kli(&["-p", "go"]);
    out.exits(0);
    assert_eq!(out.err.matches("no checkpoint is kept").count(), 1, "{}", out.err);
    assert_eq!(fs::read_to_string(env.work().join("f1")).unwrap(), "new 1\n");
    let session = env.sessions();
    env.kli(&["sessions", "diff", &id(&session[0])]).exits(1);
    // Without a session nothing is kept, and nothing is said.
    let env = recorded(&edits(2));
    files(&env, 2);
    let out = env.kli(&["-p", "go", "--no-session"]);
    out.exits(0);
    assert!(!out.err.contains("checkpoint"), "{}", out.err);
    assert!(!env.home().join(".local/state/kli/checkpoints").exists());
}

/// Runs kli with its checkpoints on a file system of their own that is soon full, and returns what it
/// said, and what is left of them, to be looked at outside.
fn on_a_small_disk(env: &Env, before: &str) -> (Ran, PathBuf) {
    let copied = env.home().join("copied");
    let script = format!(
        "set -e; state=~/.local/state/kli; mkdir -p $state/checkpoints ~/copied\n\
         mount -t tmpfs -o mode=700,size=64k small $state/checkpoints\n\
         code=0; ( {before} exec \"$0\" -p go ) || code=$?\n\
         cp -a $state/checkpoints ~/copied/; exit $code"
    );
    let kli = env.command(&[]);
    let mut command = Command::new("timeout");
    command.args(["-k", "1", "30", "unshare", "-Urm", "sh", "-c"]).arg(script);
    command.arg(kli.get_program()).current_dir(env.work()).env_clear();
    command.envs(kli.get_envs().filter_map(|(name, value)| Some((name, value?))));
    (Ran::from(command.stdin(Stdio::null()).output().unwrap()), copied)
}

fn name_of(digest: Digest) -> String {
    json!(digest).as_str().unwrap().to_owned()
}

/// What a copied store holds: each content that is named is whole, and there is nothing else.
fn whole(env: &Env, root: &Path) -> Vec<PathBuf> {
    let id = id(&env.sessions()[0]);
    let workspace = fs::canonicalize(env.work()).unwrap();
    let view = View::read(root, &workspace, &id).unwrap().unwrap();
    let mut named = vec!["log.jsonl".to_owned()];
    let mut files = Vec::new();
    for change in view.book().changes() {
        let State::File { digest, .. } = change.before else { panic!("{change:?}") };
        assert!(view.content(digest).unwrap().is_some(), "half a content: {change:?}");
        named.push(name_of(digest));
        files.push(change.path.path().to_owned());
    }
    let place = fs::read_dir(root.join("checkpoints")).unwrap().next().unwrap().unwrap().path();
    for entry in fs::read_dir(place.join(&id)).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        // A content whose line had no room is named by nothing, and goes with the next opening.
        let is_whole = || name_of(Digest::of(&fs::read(place.join(&id).join(&name)).unwrap()));
        assert!(named.contains(&name) || is_whole() == name, "{name} is left");
    }
    let log = fs::read_to_string(place.join(&id).join("log.jsonl")).unwrap();
    assert!(log.ends_with('\n') && log.lines().all(|line| line.ends_with('}')), "{log}");
    files
}

#[test]
fn a_full_disk_takes_no_edit_and_leaves_no_half_checkpoint() {
    const COUNT: usize = 30;
    let of = |count: usize, call: &dyn Fn(usize) -> serde_json::Value| {
        let calls = (0..count).map(|n| json!({ "calls": [call(n)] }));
        recorded(&calls.chain([says("done")]).collect::<Vec<_>>())
    };
    let change = |n: usize| {
        let edits = json!([{ "old": "old", "new": "new" }]);
        json!({ "name": "edit", "arguments": { "path": format!("f{n}"), "edits": edits } })
    };
    let remove = |n: usize| json!({ "name": "eval", "arguments": { "form": format!("(delete-file \"f{n}\")") } });
    // Until it is full, and one that has no room at all.
    for (length, before, said) in [
        (3_000, "", "no space left on device"),
        (100_000, "", "no space left on device"),
        // 48 KiB, in the shell's blocks of 512 bytes.
        (60_000, "ulimit -f 96;", "file too large"),
    ] {
        let long = "x".repeat(length);
        let removes = length == 60_000;
        let env = if removes { of(2, &remove) } else { of(COUNT, &change) };
        let count = if removes { 2 } else { COUNT };
        for n in 0..count {
            fs::write(env.work().join(format!("f{n}")), format!("old {n} {long}")).unwrap();
        }
        let (ran, root) = on_a_small_disk(&env, before);
        ran.exits(0).says(said);
        assert_eq!(ran.err.matches("no checkpoint is kept").count(), 1, "{}", ran.err);
        for n in 0..count {
            let now = fs::read_to_string(env.work().join(format!("f{n}"))).ok();
            let wanted = (!removes).then(|| format!("new {n} {long}"));
            assert!(now == wanted, "half an edit of f{n}");
        }
        let kept = whole(&env, &root).len();
        // The control: what has room is kept.
        let wanted = if length == 3_000 { 5..COUNT } else { 0..1 };
        assert!(wanted.contains(&kept), "{length}: {kept} are kept");
    }
}

#[test]
fn they_are_outside_the_workspace_and_for_the_user_alone() {
    let env = recorded(&edits(1));
    files(&env, 1);
    env.kli(&["-p", "go"]).exits(0);
    let mut directories: Vec<PathBuf> = vec![env.home().join(".local/state/kli/checkpoints")];
    let mut count = 0;
    while let Some(directory) = directories.pop() {
        assert_eq!(fs::metadata(&directory).unwrap().permissions().mode() & 0o777, 0o700);
        for entry in fs::read_dir(&directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                directories.push(path);
            } else {
                count += 1;
                assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
            }
        }
    }
    assert_eq!(count, 2, "the log and one content");
    let mut names: Vec<_> =
        fs::read_dir(env.work()).unwrap().map(|it| it.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["d0", "f0"]);
}

#[test]
fn the_changes_of_another_directorys_session_are_shown_there_only() {
    let env = recorded(&edits(1));
    files(&env, 1);
    env.kli(&["-p", "go"]).exits(0);
    let id = id(&env.sessions()[0]);
    let other = env.home().join("other");
    fs::create_dir(&other).unwrap();
    let mut command = env.command(&["sessions", "diff", &id]);
    let out = command.current_dir(&other).output().unwrap();
    assert_eq!(out.status.code(), Some(2));
    let said = String::from_utf8(out.stderr).unwrap();
    assert!(said.contains("is of another directory"), "{said}");
    let out = env.kli(&["sessions", "diff", &id]);
    assert!(out.exits(0).out.contains("+new 0"), "{}", out.out);
    env.kli(&["sessions", "diff", "nosuch"]).exits(2);
}
