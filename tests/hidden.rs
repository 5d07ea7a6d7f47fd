//! A hidden file is hidden from every tool at once: whole runs inside the launcher's jail, with the
//! same run outside as the control.

use std::{fs, path::PathBuf};

use serde_json::{Value, json};

use crate::jail::{self, World, for_both};

const SECRET: &str = "TOKEN=of-the-hidden-file";

/// A recording in which each tool that can show content looks at the hidden file, and a last look at
/// one that is not hidden. `seen` is what the looks at the hidden one must show.
fn recording(seen: Option<&str>) -> String {
    let looks = [
        ("read", json!({ "path": ".env" }), "(empty file)"),
        ("search", json!({ "pattern": "TOKEN=", "path": ".env" }), "no hits"),
        ("search", json!({ "pattern": "of-the-hidden" }), "no hits"),
        ("bash", json!({ "command": "cat .env; grep -r of-the-hidden . ; echo end" }), "end\n"),
        ("bash", json!({ "command": "cat \"$PWD/.env\" /proc/self/cwd/.env; echo end" }), "end\n"),
        ("bash", json!({ "command": "cat link; echo end" }), "end\n"),
        ("read", json!({ "path": "link" }), "(empty file)"),
    ];
    let mut lines: Vec<Value> = Vec::new();
    let mut expected: Option<&str> = None;
    for (name, arguments, empty) in &looks {
        let mut line = json!({ "calls": [{ "name": name, "arguments": arguments }] });
        if let Some(expected) = expected {
            line["expect"] = json!({ "lastResultContains": expected });
        }
        lines.push(line);
        expected = Some(seen.unwrap_or(empty));
    }
    lines.push(json!({
        "calls": [{ "name": "read", "arguments": { "path": "open" } }],
        "expect": { "lastResultContains": expected },
    }));
    lines.push(json!({ "text": "done", "expect": { "lastResultContains": "not hidden" } }));
    lines.iter().map(Value::to_string).collect::<Vec<_>>().join("\n")
}

fn program(world: &World, recording: &str) -> PathBuf {
    world.file("home/project/.env", SECRET);
    world.file("home/project/open", "not hidden");
    let link = world.workspace.join("link");
    if fs::symlink_metadata(&link).is_err() {
        std::os::unix::fs::symlink(".env", link).unwrap();
    }
    let file = world.file("recording.jsonl", recording);
    let settings = json!({ "providers": { "replay": { "file": file } } });
    world.file("home/.config/kli/settings.json", &settings.to_string());
    let kli = world.root.join("kli");
    fs::copy(env!("CARGO_BIN_EXE_kli"), &kli).unwrap();
    kli
}

/// Returns all that a run kept: its sessions and what lies beside them.
fn kept(world: &World) -> String {
    let mut text = String::new();
    let mut places = vec![world.home.join(".local/state")];
    while let Some(place) = places.pop() {
        for entry in fs::read_dir(&place).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                places.push(path);
            } else {
                text.push_str(&String::from_utf8_lossy(&fs::read(path).unwrap()));
            }
        }
    }
    text
}

#[test]
fn no_tool_shows_a_hidden_file_and_no_session_keeps_it() {
    for_both(|world| {
        world.spec(r#"{ "denyRead": ["./.env"] }"#);
        let kli = program(world, &recording(None));
        let words = [kli.to_str().unwrap(), "-p", "go", "--model", "replay/x"];
        let ran = world.run_with(&[], &words).output().unwrap();
        assert_eq!(jail::ok(&ran), "done\n");
        let session = kept(world);
        assert!(session.contains("not hidden"), "control: the session holds what tools showed");
        assert!(!session.contains(SECRET), "{session}");
        assert_eq!(fs::read_to_string(world.workspace.join(".env")).unwrap(), SECRET);

        // The control: with nothing hidden the same looks show it, by every tool.
        world.spec("{}");
        let kli = program(world, &recording(Some("of-the-hidden-file")));
        let words = [kli.to_str().unwrap(), "-p", "go", "--model", "replay/x"];
        let ran = world.run_with(&[], &words).output().unwrap();
        assert_eq!(jail::ok(&ran), "done\n");
        assert!(kept(world).contains(SECRET), "control");
    });
}
