//! A whole conversation at three widths: what was emitted of it, and the region below.

use serde_json::json;

use super::*;
use crate::{
    agent::{
        Denied, Fault, FaultKind, Outcome, Summary,
        approval::{Change, Hunk, Question, Shown},
    },
    tui::{
        found::Found,
        picker::{Choices, Item, Then},
    },
};

const SAID: &str = "## What I found\n\nThe **header** is `wrong` in one of the cases that were tried:\n\n\
    | case | length | result |\n|---|--:|---|\n| whole | 128 | ok |\n| cut off | 3 | `panic` |\n\n\
    1. one\n2. two\n   - 漢字 nested\n\n> quoted *text* that goes on for a while\n\n\
    ```rust\nlet a = head.get(..4)?; // none\n```\n\nSee [docs](https://e.example/a).\n\n";

fn done(outcome: Outcome, fault: Option<Fault>) -> Event {
    Event::Done(Box::new(Summary {
        outcome,
        exit: 0,
        text: String::new(),
        model: None,
        turns: 1,
        usage: crate::message::Usage::default(),
        cost: None,
        undelivered: Vec::new(),
        withdrawn: false,
        denied: Vec::new(),
        changed: Vec::new(),
        duration: Duration::ZERO,
        fault,
    }))
}

fn started(id: &str, name: &str, arguments: &str) -> Event {
    let arguments = Arguments::parse(arguments);
    Event::ToolStarted { id: id.into(), name: name.into(), arguments }
}

fn finished(id: &str, name: &str, text: &str, is_error: bool, record: serde_json::Value) -> Event {
    Event::ToolFinished { id: id.into(), name: name.into(), text: text.into(), is_error, record }
}

/// A prompt, an answer with every kind of block, calls that go well and do not, and an end.
fn conversation(width: usize) -> State {
    let mut it = state(width, 60);
    press(&mut it, "mend the header\n");
    it.event(Event::Text(SAID.to_owned()));
    let output: Vec<String> = (1..=12).map(|n| format!("test case_{n} ... ok\n")).collect();
    it.event(started("1", "bash", r#"{"command": "cargo test --all"}"#));
    it.event(finished("1", "bash", &output.concat(), true, json!({ "exit": 3 })));
    it.event(started("2", "edit", r#"{"path": "src/header.rs"}"#));
    let hunks = json!({ "hunks": [
        { "old_line": 3, "new_line": 3, "old": "two\n", "new": "2\n" },
        { "old_line": 9, "new_line": 9, "old": "", "new": "end\n" },
    ]});
    it.event(finished("2", "edit", "edited", false, hunks));
    let denied = Denied {
        tool: "write".into(),
        atom: "file/write".into(),
        detail: "`file/write` was removed by profile read-only".into(),
    };
    it.event(Event::Denied { id: "3".into(), denied });
    it.event(Event::Notice("the log cannot be written".to_owned()));
    it.event(done(
        Outcome::Error,
        Some(Fault { kind: FaultKind::Network, message: "no way to `example`".into() }),
    ));
    press(&mut it, "next");
    it
}

fn emitted(state: &mut State) -> Vec<String> {
    state.take_rows().iter().map(|row| row.text().trim_end().to_owned()).collect()
}

#[test]
fn a_conversation_at_three_widths() {
    let shown = |width| {
        let mut it = conversation(width);
        let mut rows = emitted(&mut it);
        rows.push("──".to_owned());
        rows.extend(texts(&it));
        rows
    };
    assert_eq!(shown(20), NARROW);
    assert_eq!(shown(80), WIDE);
    // There is room for the rest of the footer, and for nothing else.
    let (footer, rows) = WIDE.split_last().unwrap();
    let mut wider = rows.to_vec();
    let footer = format!("{footer} · profile interactive · effort high");
    wider.push(&footer);
    assert_eq!(shown(200), wider);
}

/// Everything that the interface draws of itself, but not what programs print.
fn everything() -> Vec<Line> {
    let mut rows = Vec::new();
    let mut it = conversation(80);
    rows.extend(region(&it));
    it.diff("--- a/f\n+++ b/f\n@@ -1 +1 @@\n-old\n+new\n same\n# note\n");
    it.answered("text", "kli: error\nhint: what to do", true);
    rows.extend(it.take_rows());
    rows.extend(region(&busy(80)));
    let mut it = state(80, 24);
    press(&mut it, "/re");
    it.typed(&Typed::Key(Key::plain(Code::Down)));
    rows.extend(region(&it));
    let mut it = state(80, 24);
    let item = Item { value: "a".into(), text: "one".into(), ..Item::default() };
    let (title, then) = ("Sessions".to_owned(), Then::Command("resume"));
    it.found(Found::Choices(Choices { title, items: vec![item], first: 0, then }));
    rows.extend(region(&it));
    let mut it = state(80, 24);
    press(&mut it, "go\n");
    let hunk =
        Hunk { old_line: 3, new_line: 3, old: b"two\n".to_vec(), new: b"2\xe2\x80\xae\n".to_vec() };
    it.event(Event::Approval(Box::new(Question {
        id: 7,
        tool: "edit".to_owned(),
        by: Vec::new(),
        needs: vec!["file/edit".to_owned()],
        why: "why".to_owned(),
        shows: vec![
            Shown::Text("command".to_owned(), "ls".to_owned()),
            Shown::Change(Change {
                path: "/ws/a".into(),
                is_new: false,
                hunks: vec![hunk],
                notes: vec!["a note".to_owned()],
            }),
        ],
        always: Some("this".to_owned()),
        edits: Some(("command", "ls".to_owned())),
        note: Some("note".to_owned()),
    })));
    for key in ['x', 'n', 'e'] {
        it.framed();
        it.written();
        it.at(Duration::from_mins(1));
        it.quiet();
        rows.extend(region(&it));
        press(&mut it, &key.to_string());
        rows.extend(region(&it));
        it.typed(&Typed::Key(Key::plain(Code::Esc)));
    }
    rows
}

#[test]
fn every_colour_of_kli_s_own_is_a_role_s() {
    let rows = everything();
    let all: Vec<String> = rows.iter().map(Line::text).collect();
    let all = all.join("\n");
    for part in
        ["3 - two", "+new", "search:", "▸ /", "y yes · n no", "say why", "in its place", "?"]
    {
        assert!(all.contains(part), "control: {part}\n{all}");
    }
    for row in &rows {
        for span in &row.spans {
            let coloured = span.style.foreground.is_some() || span.style.background.is_some();
            assert!(!coloured || span.style.role.is_some(), "`{}` in {:?}", span.text, row.text());
        }
    }
}

const NARROW: [&str; 61] = [
    "",
    "› mend the header",
    "",
    "What I found",
    "",
    "The header is wrong",
    "in one of the cases",
    "that were tried:",
    "",
    "case  │ lengt │ resu",
    "      │     h │ lt",
    "──────┼───────┼─────",
    "whole │   128 │ ok",
    "cut   │     3 │ pani",
    "off   │       │ c",
    "",
    "1. one",
    "2. two",
    "   • 漢字 nested",
    "",
    "│ quoted text that",
    "│ goes on for a",
    "│ while",
    "",
    "  let a = head.get(.",
    "  .4)?; // none",
    "",
    "See docs",
    "(https://e.example/a",
    ").",
    "",
    "✗ bash cargo test -…",
    "  … 6 more lines (C…",
    "  test case_7 ... ok",
    "  test case_8 ... ok",
    "  test case_9 ... ok",
    "  test case_10 ... o",
    "  k",
    "  test case_11 ... o",
    "  k",
    "  test case_12 ... o",
    "  k",
    "",
    "✓ edit src/header.rs",
    "      3 - two",
    "      3 + 2",
    "  ⋯",
    "      9 + end",
    "",
    "! denied write:",
    "  `file/write` was",
    "  removed by profile",
    "  read-only",
    "· the log cannot be",
    "  written",
    "error: no way to",
    "       `example`",
    "──",
    "",
    "› next",
    "jail: net on · 3 hi…",
];

const WIDE: [&str; 44] = [
    "",
    "› mend the header",
    "",
    "What I found",
    "",
    "The header is wrong in one of the cases that were tried:",
    "",
    "case    │ length │ result",
    "────────┼────────┼───────",
    "whole   │    128 │ ok",
    "cut off │      3 │ panic",
    "",
    "1. one",
    "2. two",
    "   • 漢字 nested",
    "",
    "│ quoted text that goes on for a while",
    "",
    "  let a = head.get(..4)?; // none",
    "",
    "See docs (https://e.example/a).",
    "",
    "✗ bash cargo test --all (exit 3)",
    "  … 6 more lines (Ctrl-O shows it)",
    "  test case_7 ... ok",
    "  test case_8 ... ok",
    "  test case_9 ... ok",
    "  test case_10 ... ok",
    "  test case_11 ... ok",
    "  test case_12 ... ok",
    "",
    "✓ edit src/header.rs",
    "      3 - two",
    "      3 + 2",
    "  ⋯",
    "      9 + end",
    "",
    "! denied write: `file/write` was removed by profile read-only",
    "· the log cannot be written",
    "error: no way to `example`",
    "──",
    "",
    "› next",
    "jail: net on · 3 hidden · ~/src/x · anthropic/claude-sonnet-4-5 · 0 % of context",
];
