//! Foreign text that means harm: escape sequences, titles, clipboards, and characters that lie, from
//! models, tools, names of files, sessions and errors. A terminal gets nothing of it but letters.

use std::{
    fs,
    time::{Duration, Instant},
};

use serde_json::json;

use super::{Tty, modes::Modes, replay};
use crate::{
    fake_model::{Answer, FakeModel},
    harness::Env,
};

/// Clears the screen, takes the other screen, sets the title, writes the clipboard, turns on the
/// mouse, asks for answers that would be typed, moves the cursor, in 7 and in 8 bits, cut off or not.
const HARM: &str = "\u{1b}[2J\u{1b}[?1049h\u{1b}]0;evil-title\u{7}\u{1b}]52;c;ZXZpbA==\u{1b}\\\u{1b}[?1003h\
    \u{1b}[6n\u{1b}[c\u{1b}P$qm\u{1b}\\\u{9b}2J\u{9d}0;evil-title\u{9c}\u{1b}[10;1H\u{1b}c\u{1b}[1;1r\u{1b}_Gi=1;\u{1b}\\\
    \u{1b}]8;;http://evil.example\u{7}\u{e}\u{f}\u{7}\u{8}\u{1b}[3";

/// Says what of it came through.
fn harmed(bytes: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(bytes);
    let mut found: Vec<String> = [
        "\u{1b}]",
        "\u{1b}P",
        "\u{1b}_",
        "\u{1b}c",
        "\u{9b}",
        "\u{9d}",
        "\u{e}",
        "\u{f}",
        "\u{7}",
        "\u{8}",
        "\u{1b}[6n",
        "\u{1b}[c",
        "\u{1b}[2J",
        "\u{1b}[10;1H",
        "\u{1b}[1;1r",
    ]
    .iter()
    .filter(|bad| text.contains(**bad))
    .map(|bad| format!("{bad:?}"))
    .collect();
    found.extend(Modes::of(bytes).foreign().iter().map(|mode| format!("mode {mode}")));
    found
}

#[test]
fn the_check_finds_what_it_looks_for() {
    assert!(harmed(HARM.as_bytes()).len() > 12, "{:?}", harmed(HARM.as_bytes()));
}

#[test]
fn nothing_foreign_drives_the_terminal() {
    let env = Env::new();
    let name = format!("file{}name\u{202e}txt.exe", "\u{1b}[2J\u{1b}]0;evil-title\u{7}");
    fs::write(env.work().join(&name), format!("content {HARM} end\n")).unwrap();
    fs::write(env.work().join("edit.txt"), format!("old {HARM} line\n")).unwrap();
    let first = json!({
        "thinking": format!("thought {HARM} end"),
        "text": format!("# Title {HARM}\n\nsaid {HARM} end\n\n```sh{HARM}\ncode {HARM} end\n```\n\n\
            | a {HARM} | b |\n|---|---|\n| cell {HARM} end | [link](http://x/{HARM}) |\n\n&#27;[2J &#x9b;2J &#7; entity\n"),
        "calls": [
            { "name": "bash", "arguments": { "command": format!("printf '%b' 'tool \\033[2J\\033]0;evil-title\\a\\033[?1003h\\033[31mred\\033[0m\\n'; echo '{HARM}'; ls") } },
            { "name": "read", "arguments": { "path": name } },
            { "name": "edit", "arguments": { "path": "edit.txt", "edits": [{ "old": "line", "new": format!("new {HARM} row") }] } },
            { "name": format!("no{HARM}such"), "arguments": { "x": HARM } },
            { "name": "bash", "arguments": format!("{{\"command\": \"{}", "\u{1b}]0;evil-title") },
        ],
    });
    let second = json!({ "text": "finished" });
    replay(&env, &format!("{first}\n{second}"));
    let mut tty = Tty::sized(&env, &[], 50, 100);
    tty.sees("say what to do");
    tty.press("go\r");
    tty.sees("finished");
    // The results whole, the history, and commands about all of it.
    tty.press("\x0f");
    tty.settles();
    tty.send(format!("\x1b[200~pasted {HARM} too\x1b[201~").as_bytes());
    tty.settles();
    tty.press("\r");
    tty.settles();
    tty.press("/context\r");
    tty.press("/export\r");
    tty.press("/sessions\r");
    tty.settles();
    tty.press("/no\u{202e}such\r");
    tty.settles();
    tty.press("\x03\x03\x03");
    assert_eq!(tty.ends(), Some(0), "{}", tty.screen());
    assert_eq!(harmed(&tty.bytes), [""; 0]);
    let all = tty.all().join("\n");
    for said in ["said", "code", "cell", "tool", "content", "entity", "finished"] {
        assert!(all.contains(said), "control: `{said}` is shown:\n{all}");
    }
    assert!(!all.contains('\u{202e}') && all.contains("\\u{202e}"), "{all}");
    // And once more from the session's file.
    let mut tty = Tty::sized(&env, &["--continue"], 50, 100);
    tty.sees("say what to do");
    tty.press("\x10\x10\x10");
    tty.settles();
    tty.press("\x03\x03\x03");
    tty.ends();
    assert_eq!(harmed(&tty.bytes), [""; 0]);
    assert_eq!(tty.left(), [""; 0]);
}

#[test]
fn an_error_of_a_server_drives_nothing_either() {
    let fake = FakeModel::start(vec![
        Answer::refusal(400, "invalid_request_error", &format!("refused {HARM} by the server")),
        Answer::body(502, "text/html", format!("<html>{HARM} gateway</html>")),
    ]);
    let env = Env::new().at(&fake.base_url()).var("ANTHROPIC_API_KEY", "sk-test-0123456789");
    let mut tty = Tty::kli(&env, &[]);
    tty.sees("say what to do");
    tty.press("go\r");
    tty.sees("refused");
    tty.settles();
    tty.press("\x03\x03\x03");
    assert_eq!(tty.ends(), Some(0));
    assert_eq!(harmed(&tty.bytes), [""; 0]);
}

#[test]
fn hostile_shapes_cost_no_time_that_a_person_sees() {
    let deep = format!("{}deep\n\n{}deep\n\n", ">".repeat(12_000), "- ".repeat(6000));
    let table: String = std::iter::once("| a | b |\n|---|---|\n".to_owned())
        .chain((0..10_000).map(|n| format!("| cell {n} | x |\n")))
        .collect();
    let line = "word ".repeat(200_000);
    let glued = "漢".repeat(100_000);
    let marks = format!("e{}", "\u{301}".repeat(100_000));
    let brackets = "[".repeat(20_000) + &"*_`<".repeat(5000);
    let env = Env::new();
    let answers = [deep, table, line, glued, marks, brackets];
    let answers: Vec<String> = answers
        .iter()
        .enumerate()
        .map(|(number, text)| json!({ "text": format!("{text}\n\nend of {number}") }).to_string())
        .collect();
    replay(&env, &answers.join("\n"));
    let mut tty = Tty::kli(&env, &[]);
    tty.sees("say what to do");
    for number in 0..answers.len() {
        tty.press(&format!("prompt{number}\r"));
        // Typed while it is shown, and seen.
        let start = Instant::now();
        tty.press(&format!("k{number}k"));
        tty.sees(&format!("› k{number}k"));
        let seen = start.elapsed();
        tty.sees(&format!("end of {number}"));
        println!("{number}: key after {seen:?}, all after {:?}", start.elapsed());
        tty.press("\x15");
    }
    tty.press("\x04");
    assert_eq!(tty.ends(), Some(0));
}

#[test]
fn a_report_on_a_line_slower_than_a_hand_types_nothing() {
    let env = Env::new();
    replay(&env, &json!({ "text": "x" }).to_string());
    let mut tty = Tty::kli(&env, &[]);
    tty.sees("say what to do");
    for byte in "a\u{1b}[<0;33;12Mb\u{1b}[Dc漢".as_bytes() {
        tty.send(&[*byte]);
        tty.look(Duration::from_millis(120));
    }
    tty.sees("› ac漢b");
    tty.press("\x03\x03");
    assert_eq!(tty.ends(), Some(0));
}

#[test]
fn bytes_that_are_not_utf_8_are_left_out_and_that_is_said() {
    let env = Env::new();
    replay(&env, &json!({ "text": "heard" }).to_string());
    let mut tty = Tty::kli(&env, &[]);
    tty.sees("say what to do");
    // A terminal in Latin-1 sends these for `ä` and `ö`.
    tty.send(b"b\xe4r\xf6");
    tty.sees("is not UTF-8 and is left out");
    tty.sees("› br");
    tty.press("\x03\x03");
    assert_eq!(tty.ends(), Some(0));
}
