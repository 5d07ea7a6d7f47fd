//! Sessions through the built program: lists and copies of them, files that other programs wrote or
//! damaged, several processes on one session, a disk that fills, and kills at any moment.

use std::{
    collections::BTreeSet,
    ffi::CString,
    fs::{self, File},
    io::Write as _,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink},
    path::{Path, PathBuf},
};

use serde_json::{Value, json};

use crate::{
    fake_model::{Answer, FakeModel, message, text},
    harness::{Env, Ran, lines},
};

mod checkpoints;
mod compacted;
mod long;
mod trouble;

/// An environment whose model is a recording.
fn recorded(answers: &[Value]) -> Env {
    let env = Env::new();
    let lines: Vec<String> = answers.iter().map(Value::to_string).collect();
    fs::write(env.home().join("recording.jsonl"), lines.join("\n")).unwrap();
    env.settings(
        r#"{"providers": {"replay": {"file": "~/recording.jsonl"}}, "model": "replay/r"}"#,
    );
    env
}

fn says(words: &str) -> Value {
    json!({"text": words, "usage": {"inputTokens": 3, "outputTokens": 4}})
}

fn bash(command: &str) -> Value {
    json!({"calls": [{"name": "bash", "arguments": {"command": command}}]})
}

/// Runs in another directory than the workspace.
fn kli_in(env: &Env, directory: &Path, words: &[&str]) -> Ran {
    Ran::from(env.command(words).current_dir(directory).output().unwrap())
}

fn id(env: &Env) -> String {
    let ran = env.kli(&["sessions", "list", "--json"]);
    let first: Value = serde_json::from_str(ran.out.lines().next().unwrap()).unwrap();
    first["id"].as_str().unwrap().to_owned()
}

fn append(file: &Path, bytes: &[u8]) {
    File::options().append(true).open(file).unwrap().write_all(bytes).unwrap();
}

/// Everything below a directory: names, kinds, bytes and times.
fn picture(directory: &Path) -> Vec<String> {
    let mut seen = Vec::new();
    let mut open = vec![directory.to_owned()];
    while let Some(next) = open.pop() {
        let meta = fs::symlink_metadata(&next).unwrap();
        let content = if meta.is_file() { fs::read(&next).unwrap() } else { Vec::new() };
        let content = String::from_utf8_lossy(&content).into_owned();
        let (mtime, ctime) = (meta.mtime_nsec(), meta.ctime_nsec());
        seen.push(format!("{} {:o} {mtime} {ctime} {content}", next.display(), meta.mode()));
        if meta.is_dir() {
            open.extend(fs::read_dir(&next).unwrap().map(|entry| entry.unwrap().path()));
        }
    }
    seen.sort();
    seen
}

#[test]
fn sessions_are_listed_shown_and_exported() {
    let nasty = "printf 'a\\033[2Jb\\n````\\n# no heading\\n'; seq 30";
    let env = recorded(&[bash(nasty), says("Done ```\u{1b}]0;x\u{7}: it works.")]);
    let none = env.kli(&["sessions", "list"]);
    none.exits(0).says("there are no sessions of `");
    assert_eq!(none.out, "");
    env.kli(&["-p", "\n  Fix \u{1b}[31mit\u{202e}\nand more"]).exits(0);
    let file = env.sessions().remove(0);
    let before = picture(&env.home().join(".local"));

    let table = env.kli(&["sessions", "list"]);
    let rows: Vec<&str> = table.exits(0).out.lines().collect();
    assert_eq!(rows.len(), 2);
    let words = |row: &str| row.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let name = file.file_stem().unwrap().to_str().unwrap();
    let (_, id) = name.split_once('-').unwrap();
    assert_eq!(words(rows[0])[..3], ["ID", "LAST", "(UTC)"]);
    let row = words(rows[1]);
    assert_eq!(row[0], id);
    assert_eq!(row[3..8], ["4", "1", "KiB", "replay/r", "ok"], "{row:?}");
    assert!(rows[1].ends_with("Fix \\u{1b}[31mit"), "{rows:?}");

    let one = env.kli(&["sessions", "list", "--json", "--all"]).json();
    let size = fs::metadata(&file).unwrap().len();
    for (key, wanted) in [
        ("id", json!(id)),
        ("workspace", json!(env.work())),
        ("parent", json!(null)),
        ("name", json!(null)),
        ("prompt", json!("Fix \u{1b}[31mit\u{202e}")),
        ("messages", json!(4)),
        ("size", json!(size)),
        ("model", json!("replay/r")),
        ("outcome", json!("ok")),
        ("path", json!(file)),
    ] {
        assert_eq!(one[key], wanted, "{key}");
    }
    for key in ["started", "modified"] {
        assert!(one[key].as_str().unwrap().ends_with('Z'), "{one}");
    }
    assert_eq!(one.as_object().unwrap().len(), 12);

    let shown = env.kli(&["sessions", "show", &id[..4]]).exits(0).out.clone();
    for part in ["## user", "  and more\n", "  > bash {\"command\":", "  | ````", "more lines"] {
        assert!(shown.contains(part), "`{part}` in {shown}");
    }
    let markdown = env.kli(&["sessions", "export", id]).exits(0).out.clone();
    for part in ["## User", "> and more\n", "Call `bash`", "`````text\n", "\n30\n", "Ended `ok`"] {
        assert!(markdown.contains(part), "`{part}` in {markdown}");
    }
    for text in [&shown, &markdown, &table.out] {
        assert!(!text.contains(['\u{1b}', '\u{7}']), "{text}");
    }
    let whole = env.kli(&["sessions", "export", id, "--format", "json"]).json();
    assert_eq!(whole["type"], "session-export");
    assert_eq!(whole["entries"], Value::Array(lines(&file)), "every event as it stands");
    assert_eq!(whole["damaged"], json!({"lines": 0, "bytes": 0}));

    let place = env.kli(&["sessions", "path"]).exits(0).out.clone();
    assert_eq!(Path::new(place.trim_end()), file.parent().unwrap());
    assert_eq!(picture(&env.home().join(".local")), before, "reading changed nothing");
}

#[test]
fn an_unknown_session_is_answered_with_the_near_ones() {
    let env = recorded(&[says("hi")]);
    for command in ["show", "export", "fork"] {
        let ran = env.kli(&["sessions", command, "abcdefgh"]);
        ran.exits(2).says("no session `abcdefgh` in this workspace; it has none yet");
        assert_eq!(ran.out, "");
    }
    env.kli(&["-p", "one"]).exits(0);
    let id = id(&env);
    let mut slip = id.clone().into_bytes();
    slip.swap(2, 3);
    slip[7] = b'0';
    let slip = String::from_utf8(slip).unwrap();
    for command in ["show", "export", "fork"] {
        let ran = env.kli(&["sessions", command, &slip]);
        ran.exits(2).says(&format!("did you mean `{id}`?")).says("hint: ");
        let ran = env.kli(&["sessions", command, "0"]);
        ran.exits(2).says(&format!("the latest are `{id}`"));
        env.kli(&["sessions", command, ""]).exits(2);
    }
    assert_eq!(env.sessions().len(), 1, "nothing was made");
    let ran = env.kli(&["sessions", "lsit"]);
    ran.exits(2).says("list");
    // Two with a common start.
    let file = env.sessions().remove(0);
    for name in ["aaab", "aaac"] {
        fs::copy(&file, file.with_file_name(format!("20260101T000000Z-{name}.jsonl"))).unwrap();
    }
    env.kli(&["sessions", "show", "aaa"]).exits(2).says("more than one session starts with `aaa`");
    env.kli(&["sessions", "show", "aaab"]).exits(0);
}

#[test]
fn a_copy_goes_on_apart_from_its_session_also_in_another_workspace() {
    let env = recorded(&[says("hi")]);
    env.kli(&["-p", "one"]).exits(0);
    let first = id(&env);
    let file = env.sessions().remove(0);
    append(&file, b"torn");
    let before = picture(&file);
    let copy = env.kli(&["sessions", "fork", &first[..5]]).exits(0).out.trim_end().to_owned();
    assert_ne!(copy, first);
    assert_eq!(picture(&file), before, "the session stays as it is");
    let ran = env.kli(&["-p", "two", "--resume", &copy, "--output-format", "json"]);
    assert_eq!(ran.exits(0).json()["session"], json!(copy));
    let told = |id: &str| env.kli(&["sessions", "export", id, "--format", "json"]).json();
    let count = |whole: &Value| {
        let entries = whole["entries"].as_array().unwrap();
        entries.iter().filter(|entry| entry["type"] == "message").count()
    };
    assert_eq!((count(&told(&first)), count(&told(&copy))), (2, 4));
    assert_eq!(told(&copy)["parent"], json!(first));

    // A project that was moved: its sessions are found by their identifier, and go on in a copy.
    let moved = env.home().join("moved");
    fs::create_dir(&moved).unwrap();
    let here = kli_in(&env, &moved, &["sessions", "list"]);
    assert_eq!(here.exits(0).out, "", "another workspace, other sessions");
    let resumed = kli_in(&env, &moved, &["-p", "x", "--resume", &first]);
    resumed.exits(0).says(&format!("session `{first}` is one of `{}`", env.work().display()));
    kli_in(&env, &moved, &["-p", "x", "--resume", "nosuch"]).exits(2).says("no session");
    kli_in(&env, &moved, &["sessions", "show", &first]).exits(0);
    let there = kli_in(&env, &moved, &["sessions", "fork", &first]).exits(0).out.clone();
    let ran = kli_in(&env, &moved, &["-p", "x", "-c", "--output-format", "json"]);
    assert_eq!(ran.exits(0).json()["session"], json!(there.trim_end()));
    let all = env.kli(&["sessions", "list", "--all"]).exits(0).out.clone();
    assert_eq!(all.lines().count(), 5, "{all}");
    assert!(all.contains(&format!("{}: one", moved.display())), "{all}");
    assert_eq!(picture(&file), before);
}

#[test]
fn workspaces_with_similar_or_long_names_have_their_own_sessions() {
    let env = recorded(&[says("hi")]);
    let long = "x".repeat(250);
    let names =
        ["a-b", "a_b", "a.b", "A-b", &format!("{long}1"), &format!("{long}2")].map(str::to_owned);
    for name in &names {
        let directory = env.home().join(name);
        fs::create_dir(&directory).unwrap();
        kli_in(&env, &directory, &["-p", &format!("of {name}")]).exits(0);
    }
    for name in &names {
        let ran = kli_in(&env, &env.home().join(name), &["sessions", "list", "--json"]);
        assert_eq!(
            ran.json()["prompt"],
            json!(format!("of {name}").chars().take(200).collect::<String>())
        );
    }
    // A link to a workspace is that workspace.
    let link = env.home().join("link");
    symlink(env.home().join("a-b"), &link).unwrap();
    assert_eq!(kli_in(&env, &link, &["sessions", "list", "--json"]).json()["prompt"], "of a-b");
}

#[test]
fn what_a_confined_run_can_put_there_is_passed_over() {
    let env = recorded(&[says("hi")]);
    env.kli(&["-p", "one"]).exits(0);
    let good = id(&env);
    let file = env.sessions().remove(0);
    let (directory, all) = (file.parent().unwrap(), file.parent().unwrap().parent().unwrap());
    let secret = env.home().join("secret");
    fs::write(&secret, "{\"type\":\"message\",\"message\":{\"role\":\"user\",\"blocks\":[{\"type\":\"text\",\"text\":\"SECRET\"}]}}\n").unwrap();
    let elsewhere = env.home().join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    fs::copy(&secret, elsewhere.join("20260101T000000Z-outside.jsonl")).unwrap();
    symlink(&secret, directory.join("20260101T000000Z-link.jsonl")).unwrap();
    symlink("/dev/zero", directory.join("20260101T000000Z-zero.jsonl")).unwrap();
    fs::create_dir(directory.join("20260101T000000Z-dir.jsonl")).unwrap();
    let fifo = directory.join("20260101T000000Z-fifo.jsonl");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &fifo,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RWXU,
        0,
    )
    .unwrap();
    symlink(&elsewhere, all.join("0".repeat(32))).unwrap();
    fs::create_dir(all.join("foreign")).unwrap();
    fs::write(all.join("1".repeat(32)), "a file").unwrap();
    fs::write(directory.join("notes.txt"), "foreign").unwrap();
    // Deep JSON, a huge line, escapes in every field.
    let deep = format!(
        "{{\"type\":\"deep\",\"at\":\"x\",\"v\":{}1{}}}\n",
        "[".repeat(50_000),
        "]".repeat(50_000)
    );
    let escapes = "\\u001b]0;x\\u0007\\u009b2J";
    let nasty = format!(
        "{{\"type\":\"session\",\"version\":1,\"id\":\"{escapes}\",\"workspace\":\"{escapes}\",\"kli\":\"\",\"started\":\"{escapes}\"}}\n\
         {{\"type\":\"message\",\"at\":\"{escapes}\",\"message\":{{\"role\":\"user\",\"blocks\":[{{\"type\":\"text\",\"text\":\"{escapes}\"}},{{\"type\":\"call\",\"id\":\"1\",\"name\":\"{escapes}\",\"arguments\":{{\"malformed\":\"{escapes}\"}}}},{{\"type\":\"result\",\"call\":\"1\",\"text\":\"{escapes}\",\"isError\":true}}]}}}}\n\
         {deep}{{\"type\":\"message\",\"at\":\"x\",\"message\":{{\"role\":\"user\",\"blocks\":[{{\"type\":\"opaque\",\"model\":\"{escapes}\",\"value\":{}1{}}}]}}}}\n\
         {{\"type\":\"usage\",\"model\":\"{escapes}\"}}\n{{\"type\":\"denied\",\"tool\":\"{escapes}\",\"detail\":\"{escapes}\"}}\n\
         {{\"type\":\"changed\",\"path\":5}}\n{{\"type\":\"end\",\"outcome\":\"{escapes}\",\"error\":\"{escapes}\",\"messages\":-1}}\n",
        "[".repeat(5000),
        "]".repeat(5000)
    );
    let bad = directory.join("20260102T000000Z-bad.jsonl");
    fs::write(&bad, &nasty).unwrap();
    append(&bad, &vec![b'x'; 3 << 20]);
    // Times that no calendar has.
    let touched = rustix::fs::Timespec { tv_sec: i64::MAX, tv_nsec: 0 };
    let times = rustix::fs::Timestamps { last_access: touched, last_modification: touched };
    let name = CString::new(bad.to_str().unwrap()).unwrap();
    rustix::fs::utimensat(rustix::fs::CWD, &name, &times, rustix::fs::AtFlags::empty()).unwrap();

    let before = picture(&env.home().join(".local"));
    let list = env.kli(&["sessions", "list", "--all", "--json"]);
    let ids: BTreeSet<String> = list
        .exits(0)
        .says("is a link or a file, not a directory")
        .out
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["id"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(ids, BTreeSet::from([good.clone(), "bad".to_owned()]));
    for id in ["link", "zero", "dir", "fifo", "outside"] {
        env.kli(&["sessions", "show", id]).exits(2);
    }
    for words in [&["list"][..], &["list", "--all"], &["show", "bad"], &["export", "bad"]] {
        let ran = env.kli(&[&["sessions"], words].concat());
        ran.exits(0);
        for text in [&ran.out, &ran.err] {
            assert!(!text.contains(['\u{1b}', '\u{7}', '\u{9b}']), "{words:?}: {text}");
            assert!(!text.contains("SECRET"), "{words:?}");
        }
    }
    let whole = env.kli(&["sessions", "export", "bad", "--format", "json"]).json();
    assert_eq!(whole["entries"].as_array().unwrap().len(), 8);
    assert_eq!(whole["entries"][2]["type"], "raw", "too deep for common parsers");
    assert_eq!(whole["damaged"]["bytes"], json!(3 << 20));
    assert_eq!(picture(&env.home().join(".local")), before);
    env.kli(&["sessions", "show", &good]).exits(0);
    assert_eq!(env.kli(&["-c", "-p", "x"]).exits(0).out, "hi\n", "and a run goes on");
    assert_eq!(fs::read_to_string(&secret).unwrap().matches('\n').count(), 1);
}

/// Lines as other programs, other versions and broken disks leave them, each read by a strict model.
#[test]
fn a_session_in_any_disorder_goes_on() {
    let say = |role: &str, blocks: Value| {
        json!({"type": "message", "at": "2026-01-01T00:00:00Z", "message": {"role": role, "blocks": blocks}})
            .to_string()
    };
    let user = |words: &str| say("user", json!([{"type": "text", "text": words}]));
    let call = |id: &str| json!({"type": "call", "id": id, "name": "read", "arguments": {"object": {"path": "a"}}});
    let result = |id: &str| json!({"type": "result", "call": id, "text": "r", "isError": false});
    let head = |id: &str| {
        json!({"type": "session", "version": 1, "id": id, "workspace": "/w", "kli": "0", "started": "x"})
            .to_string()
    };
    let asks =
        |ids: &[&str]| say("assistant", Value::Array(ids.iter().map(|id| call(id)).collect()));
    let answers =
        |ids: &[&str]| say("user", Value::Array(ids.iter().map(|id| result(id)).collect()));
    let disorder: Vec<(&str, Vec<String>)> = vec![
        ("calls without results", vec![user("go"), asks(&["a", "b"])]),
        ("one of two results", vec![user("go"), asks(&["a", "b"]), answers(&["b"])]),
        ("results without calls", vec![user("go"), answers(&["x"]), say("assistant", json!([]))]),
        ("a result twice", vec![user("go"), asks(&["a"]), answers(&["a", "a"]), answers(&["a"])]),
        ("a line twice", vec![user("go"), asks(&["a"]), asks(&["a"]), answers(&["a"])]),
        ("an identifier twice", vec![user("go"), asks(&["a", "a"]), answers(&["a"]), asks(&["a"])]),
        ("two heads", vec![head("one"), user("go"), head("two"), user("on")]),
        ("no head", vec![user("go")]),
        ("the wrong order", vec![answers(&["a"]), asks(&["a"]), user("go"), head("late")]),
        (
            "wrong types",
            vec![
                user("go"),
                r#"{"type":"changed","at":7,"path":5}"#.to_owned(),
                r#"{"type":"usage","inputTokens":"many"}"#.to_owned(),
                r#"{"type":"message","message":{"role":"user","blocks":{}}}"#.to_owned(),
                r#"{"type":5}"#.to_owned(),
                r#"{"type":"later","of":{"x":[1]}}"#.to_owned(),
            ],
        ),
        ("nothing but damage around", vec!["\0\0\0".to_owned(), user("go"), "}{".to_owned()]),
        (
            "line separators",
            vec![user("a\u{2028}b\u{2029}c\u{85}d"), user("go\r\n").replace("\\r", "\r")],
        ),
    ];
    for (what, events) in disorder {
        let model = FakeModel::strict(vec![
            Answer::new(message([text("went on")])),
            Answer::new(message([text("again")])),
        ]);
        let env = Env::new().at(&model.base_url());
        env.kli(&["sessions", "path"]);
        let directory = PathBuf::from(env.kli(&["sessions", "path"]).out.trim_end());
        fs::create_dir_all(&directory).unwrap();
        let file = directory.join("20260101T000000Z-old.jsonl");
        fs::write(&file, events.join("\n")).unwrap();
        let before = picture(&file);
        for command in ["show", "export"] {
            env.kli(&["sessions", command, "old"]).exits(0);
        }
        assert_eq!(picture(&file), before, "{what}");
        assert_eq!(env.kli(&["-c", "-p", "on"]).exits(0).out, "went on\n", "{what}");
        assert_eq!(env.kli(&["-c", "-p", "on"]).exits(0).out, "again\n", "{what}");
        let sent = model.bodies().pop().unwrap()["messages"].to_string();
        assert!(sent.contains("went on"), "{what}: {sent}");
        assert_eq!(env.sessions(), [file], "{what}");
    }
}

#[test]
fn nothing_removes_or_shortens_a_session() {
    let env = recorded(&[says("hi")]);
    env.kli(&["-p", "one"]).exits(0);
    let first = env.sessions().remove(0);
    // Old ones, an empty one, one of nothing but damage, one that nobody may read.
    for (name, bytes, mode) in [
        ("20160101T000000Z-old", fs::read(&first).unwrap(), 0o600),
        ("20160102T000000Z-empty", Vec::new(), 0o600),
        ("20160103T000000Z-junk", b"junk".to_vec(), 0o600),
        ("20160104T000000Z-hidden", fs::read(&first).unwrap(), 0o000),
    ] {
        let file = first.with_file_name(format!("{name}.jsonl"));
        fs::write(&file, bytes).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
        let times = fs::FileTimes::new().set_modified(std::time::UNIX_EPOCH);
        File::options().write(true).open(&first).unwrap().set_times(times).unwrap();
    }
    let before: Vec<(PathBuf, Vec<u8>)> = env
        .sessions()
        .into_iter()
        .map(|file| (file.clone(), fs::read(&file).unwrap_or_default()))
        .collect();
    assert_eq!(before.len(), 5);
    for words in [
        &["sessions", "list", "--all"][..],
        &["sessions", "fork", "old"],
        &["sessions", "show", "junk"],
        &["-p", "two"],
        &["-c", "-p", "three"],
        &["-p", "four", "--resume", "old"],
        &["-p", "five", "--resume", "empty"],
        &["-p", "six", "--no-session"],
    ] {
        env.kli(words).exits(0);
    }
    for (file, bytes) in before {
        assert!(file.exists(), "{}", file.display());
        let now = fs::read(&file).unwrap_or_default();
        assert!(now.starts_with(&bytes), "{}", file.display());
    }
}
