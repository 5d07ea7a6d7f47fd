//! Colours: the terminal's own, so that it is light or dark as the terminal is, and none that would
//! vanish on either ground.

use std::fs;

use serde_json::json;

use super::{Tty, replay};
use crate::harness::Env;

/// Every parameter of every SGR sequence.
fn looks(bytes: &[u8]) -> Vec<u16> {
    let text = String::from_utf8_lossy(bytes);
    let mut found = Vec::new();
    for (at, _) in text.match_indices("\x1b[") {
        let rest = &text[at + 2..];
        let end = rest.find(|c: char| !(c.is_ascii_digit() || c == ';')).unwrap_or(rest.len());
        if rest[end..].starts_with('m') {
            found.extend(rest[..end].split(';').filter_map(|number| number.parse::<u16>().ok()));
        }
    }
    found
}

/// A run that shows everything: Markdown, code, an edit, a failure, a notice, the footer.
fn everything(env: &Env) -> Tty {
    fs::write(env.work().join("a.txt"), "one\ntwo\n").unwrap();
    let said = "# Title\n\n> quote with `code` and **weight** and [a link](http://e/x)\n\n```rust\n// why\nfn a() -> u32 { 1 }\nlet s = \"x\";\n```\n\n| a | b |\n|---|---|\n| 1 | 2 |\n";
    let calls = json!({ "thinking": "hm", "text": said, "calls": [
        { "name": "bash", "arguments": { "command": "echo out; exit 3" } },
        { "name": "edit", "arguments": { "path": "a.txt", "edits": [{ "old": "two", "new": "2" }] } },
    ]});
    replay(env, &format!("{calls}\n{}", json!({ "text": "done" })));
    let mut tty = Tty::sized(env, &[], 50, 90);
    tty.sees("say what to do");
    tty.press("go\r");
    tty.sees("done");
    tty.press("/nosuch\r");
    tty.sees("there is no command");
    tty.press("\x03");
    tty.settles();
    tty.press("\x03\x03");
    tty.ends();
    tty
}

#[test]
fn colours_are_the_palettes_and_seen_on_any_ground() {
    let tty = everything(&Env::new());
    let found = looks(&tty.bytes);
    for color in [31, 32, 33, 34, 36] {
        assert!(found.contains(&color), "control: {color} is used: {found:?}");
    }
    // Attributes, and the six hues: no black, no white, nothing mixed, no ground of its own.
    let known = [0, 1, 2, 3, 4, 7, 9, 31, 32, 33, 34, 35, 36];
    let other: Vec<u16> = found.into_iter().filter(|look| !known.contains(look)).collect();
    assert!(other.is_empty(), "{other:?}");
}

#[test]
fn without_colours_nothing_is_missing() {
    let mut plain = everything(&Env::new().var("NO_COLOR", "1"));
    let found = looks(&plain.bytes);
    assert!(found.iter().all(|look| [0, 1, 2, 3, 4, 7, 9].contains(look)), "{found:?}");
    let said = |tty: &mut Tty| {
        let rows = tty.all();
        let start = rows.iter().position(|row| row == "› go").unwrap();
        rows[start..].iter().filter(|row| !row.contains("kli: go on")).cloned().collect::<Vec<_>>()
    };
    assert_eq!(said(&mut plain), said(&mut everything(&Env::new())));
}
