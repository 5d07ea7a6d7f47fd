#![expect(clippy::disallowed_methods, reason = "tests set up and look at the disk themselves")]

use std::{
    fs,
    os::unix::fs::{PermissionsExt, symlink},
};

use super::*;
use crate::{
    authority::{Authority, Constraint, Narrowing},
    tool::{anchor, read::Read, stage::Stage, write::Write},
};

/// Returns the anchor of a line with that text.
fn at(line: u64, text: &str) -> String {
    anchor::Row::of(line, text.as_bytes()).anchor.to_string()
}

/// Puts a file, reads it, makes the edits, and returns the new content and the result's text.
fn edited(content: impl AsRef<[u8]>, edits: &Value) -> (Vec<u8>, String) {
    let stage = Stage::new();
    stage.put("f", content);
    stage.ok(&Read, &json!({"path": "f"}));
    let text = stage.ok(&Edit, &json!({"path": "f", "edits": edits}));
    assert_eq!(stage.names(), ["f"]);
    (stage.get("f"), text)
}

/// As [`edited`], for edits that must be refused: returns the text, and the file is as it was.
fn refused(content: impl AsRef<[u8]>, edits: &Value) -> String {
    let stage = Stage::new();
    stage.put("f", content.as_ref());
    stage.ok(&Read, &json!({"path": "f"}));
    let text = stage.refused(&Edit, &json!({"path": "f", "edits": edits}));
    assert_eq!(stage.get("f"), content.as_ref());
    assert_eq!(stage.names(), ["f"]);
    text
}

#[test]
fn every_kind_of_edit_in_one_call() {
    let (content, text) = edited(
        "one\ntwo\nthree\nfour\nfive\n",
        &json!([
            {"old": "five", "new": "5"},
            {"from": at(1, "one"), "text": "1"},
            {"from": at(2, "two"), "to": at(3, "three"), "text": ""},
            {"after": at(4, "four"), "text": "4a\n4b\n"},
            {"before": at(1, "one"), "text": "0"},
        ]),
    );
    assert_eq!(content, b"0\n1\nfour\n4a\n4b\n5\n");
    assert_eq!(
        text,
        format!(
            "edited `f`: 5 edits applied\n{}\n{}\n{}\n{}\n{}\n{}\n(6 lines now, 5 before)",
            anchor::show(1, b"0"),
            anchor::show(2, b"1"),
            anchor::show(3, b"four"),
            anchor::show(4, b"4a"),
            anchor::show(5, b"4b"),
            anchor::show(6, b"5")
        )
    );
}

#[test]
fn exact_text_matches_lf_against_crlf_and_keeps_the_files_endings() {
    let (content, _) = edited("x\r\ny\r\n", &json!([{"old": "x\ny", "new": "x\nz"}]));
    assert_eq!(content, b"x\r\nz\r\n");
    let (content, _) = edited("x\r\ny\nz\r\n", &json!([{"old": "x\r\ny\nz", "new": "1\n2\n3\n4"}]));
    assert_eq!(content, b"1\r\n2\n3\n4\r\n", "a mixed file keeps the ending of each line");
    let (content, _) = edited("x\ny\n", &json!([{"old": "x\r\ny", "new": "a\r\nb"}]));
    assert_eq!(content, b"a\nb\n");
    let (content, _) = edited("x\ry\r", &json!([{"old": "x\ny", "new": "a\nb\nc"}]));
    assert_eq!(content, b"a\rb\rc\r");
}

#[test]
fn new_lines_take_the_ending_of_their_neighbour() {
    let mixed = "a\r\nb\nc\r\n";
    let edit = |edit: Value| edited(mixed, &json!([edit])).0;
    assert_eq!(edit(json!({"after": at(1, "a"), "text": "x"})), b"a\r\nx\r\nb\nc\r\n");
    assert_eq!(edit(json!({"before": at(2, "b"), "text": "x"})), b"a\r\nx\nb\nc\r\n");
    assert_eq!(
        edit(json!({"from": at(1, "a"), "to": at(2, "b"), "text": "1\n2\n3"})),
        b"1\r\n2\n3\nc\r\n"
    );
}

#[test]
fn a_byte_order_mark_stays_first_and_hidden() {
    let (content, _) = edited(b"\xef\xbb\xbfhello", &json!([{"old": "hello", "new": "bye"}]));
    assert_eq!(content, b"\xef\xbb\xbfbye");
    let (content, _) =
        edited(b"\xef\xbb\xbfhello\n", &json!([{"before": "1:57", "text": "first"}]));
    assert_eq!(content, b"\xef\xbb\xbffirst\nhello\n");
}

#[test]
fn the_end_of_the_file_stays_as_it_was() {
    let b = at(2, "b");
    for (edit, expected) in [
        (json!([{"old": "a", "new": "x"}]), "x\nb"),
        (json!([{"from": b, "text": "y\n"}]), "a\ny"),
        (json!([{"after": b, "text": "c\nd\n"}]), "a\nb\nc\nd"),
        (json!([{"from": b, "text": ""}]), "a"),
        (json!([{"from": b, "text": ""}, {"after": b, "text": "c"}]), "a\nc"),
        (json!([{"from": at(1, "a"), "text": ""}, {"from": b, "text": ""}]), ""),
    ] {
        assert_eq!(edited("a\nb", &edit).0, expected.as_bytes(), "{edit}");
    }
    assert_eq!(edited("a\nb\n", &json!([{"from": b, "text": ""}])).0, b"a\n", "control");
    assert_eq!(edited("a\nb\n", &json!([{"after": b, "text": "c"}])).0, b"a\nb\nc\n", "control");
}

#[test]
fn spaces_at_the_ends_of_lines_are_passed_over_and_said() {
    let (content, text) = edited(
        "before  \nfoo  \nbar\t\nafter  \n",
        &json!([{"old": "foo\nbar", "new": "foo\nbaz"}]),
    );
    assert_eq!(content, b"before  \nfoo\nbaz\t\nafter  \n");
    assert!(text.contains("matched apart from spaces at the ends of lines"), "{text}");
}

#[test]
fn a_miss_names_the_nearest_line_and_the_whitespace_that_differs() {
    let file = "def f():\n\treturn x\n";
    let text = refused(file, &json!([{"old": "    return x", "new": "    return y"}]));
    assert!(text.contains("edits[0]: `old` is not in the file"), "{text}");
    assert!(
        text.contains(
            "line 2 differs from `old` only in whitespace: it begins with 1 tab, `old` with 4 spaces"
        ),
        "{text}"
    );
    let anchor = at(2, "\treturn x");
    assert!(text.contains("  old|····return x"), "{text}");
    assert!(text.contains(&format!("  {anchor}|→return x")), "{text}");
    let text = refused(file, &json!([{"old": "zzzzzz", "new": "y"}]));
    assert!(text.contains("nor is anything like it"), "{text}");
    let text = refused(
        "let count = items.len();\n",
        &json!([{"old": "let count = item.len();", "new": "y"}]),
    );
    assert!(text.contains("|let count = items.len();"), "{text}");
}

#[test]
fn the_anchor_of_a_miss_can_be_used_without_a_read() {
    let stage = Stage::new();
    stage.put("f", "def f():\n\treturn x\n");
    stage.refused(&Edit, &json!({"path": "f", "edits": [{"old": "  return x", "new": "y"}]}));
    let edits = json!([{"from": at(2, "\treturn x"), "text": "\treturn y"}]);
    stage.ok(&Edit, &json!({"path": "f", "edits": edits}));
    assert_eq!(stage.get("f"), b"def f():\n\treturn y\n");
}

#[test]
fn a_text_that_is_there_more_than_once_is_refused_by_count_and_lines() {
    let file = "a\nb\nc\nd\na\n";
    let text = refused(file, &json!([{"old": "a", "new": "x"}]));
    assert!(text.contains("edits[0]: 2 matches of `old`: lines 1, 5; give more"), "{text}");
    let (content, _) = edited(file, &json!([{"old": "a", "new": "x", "all": "true"}]));
    assert_eq!(content, b"x\nb\nc\nd\nx\n");
    let (content, _) = edited("aaa", &json!([{"old": "aa", "new": "aab", "all": true}]));
    assert_eq!(content, b"aaba", "what was put in is not looked at again");
}

#[test]
fn texts_that_could_never_end_are_refused_at_once() {
    for old in ["", " ", "\n", "\t \r\n"] {
        for all in [true, false] {
            let edits = json!([{"old": old, "new": "x", "all": all}]);
            let text = refused("a b\n", &edits);
            assert!(text.contains("`edits[0].old` is empty or only whitespace"), "{text}");
        }
    }
}

#[test]
fn a_link_stays_and_its_target_changes_and_keeps_its_mode() {
    let stage = Stage::new();
    stage.put("real.md", "old\n");
    fs::set_permissions(stage.path("real.md"), fs::Permissions::from_mode(0o741)).unwrap();
    symlink("real.md", stage.path("link.md")).unwrap();
    let outcome =
        stage.call(&Edit, &json!({"path": "link.md", "edits": [{"old": "old", "new": "new"}]}));
    assert_eq!(outcome.changed, [stage.path("real.md")]);
    assert!(fs::symlink_metadata(stage.path("link.md")).unwrap().is_symlink());
    assert_eq!(stage.get("real.md"), b"new\n");
    assert_eq!(fs::metadata(stage.path("real.md")).unwrap().permissions().mode() & 0o7777, 0o741);
}

#[test]
fn two_edits_of_one_file_in_one_turn_both_land() {
    let stage = Stage::new();
    let lines: Vec<String> = (1..=100).map(|n| n.to_string()).collect();
    stage.put("f", lines.join("\n"));
    stage.ok(&Read, &json!({"path": "f"}));
    let calls = [
        json!({"path": "f", "edits": [{"from": at(50, "50"), "text": "FIFTY\nand a half"}]}),
        json!({"path": "./f", "edits": [{"from": at(75, "75"), "text": "X"}]}),
    ];
    // Both are understood before either runs, as in one turn, and named as writers of one file.
    let mut prepared = Vec::new();
    for call in &calls {
        prepared.push(Edit.prepare(call.as_object().unwrap(), &stage.context).unwrap());
    }
    assert_eq!(prepared[0].effect(), Effect::Write(stage.path("f")));
    assert_eq!(prepared[0].effect(), prepared[1].effect());
    let mut texts = Vec::new();
    for invocation in prepared {
        let outcome = stage.run(invocation);
        assert!(!outcome.is_error, "{}", outcome.text);
        texts.push(outcome.text);
    }
    let mut expected = lines;
    expected[49] = "FIFTY\nand a half".into();
    expected[74] = "X".into();
    assert_eq!(stage.get("f"), expected.join("\n").as_bytes());
    assert!(texts[1].contains("is now line 76; it was followed"), "{}", texts[1]);
}

#[test]
fn a_call_means_the_lines_its_model_had_seen() {
    let stage = Stage::new();
    stage.put("f", "a {\n}\nb {\n}\nc {\n}\n");
    stage.ok(&Read, &json!({"path": "f"}));
    let call = |edits: Value| {
        let arguments = json!({"path": "f", "edits": edits});
        Edit.prepare(arguments.as_object().unwrap(), &stage.context).unwrap()
    };
    // The first call's result shows another brace as line 4, which the second call cannot know.
    let calls = [
        call(json!([{"before": at(1, "a {"), "text": "x {\n}"}])),
        call(json!([{"from": at(4, "}"), "text": "end of b"}])),
    ];
    for invocation in calls {
        let outcome = stage.run(invocation);
        assert!(!outcome.is_error, "{}", outcome.text);
    }
    assert_eq!(stage.get("f"), b"x {\n}\na {\n}\nb {\nend of b\nc {\n}\n");
    // Now it was seen.
    stage.ok(&Edit, &json!({"path": "f", "edits": [{"from": at(4, "}"), "text": "end of a"}]}));
    assert_eq!(stage.get("f"), b"x {\n}\na {\nend of a\nb {\nend of b\nc {\n}\n");
}

#[test]
fn a_change_elsewhere_is_no_obstacle_and_one_in_the_lines_is() {
    let stage = Stage::new();
    stage.put("f", "a\nb\nc\nd\ne\n");
    stage.ok(&Read, &json!({"path": "f"}));
    stage.put("f", "new\na\nb\nc\nd\nE\n");
    let text = stage.ok(
        &Edit,
        &json!({"path": "f", "edits": [{"from": at(2, "b"), "to": at(3, "c"), "text": "B"}]}),
    );
    assert!(
        text.contains(&format!("{} is now line 3, {} is now line 4", at(2, "b"), at(3, "c"))),
        "{text}"
    );
    assert_eq!(stage.get("f"), b"new\na\nB\nd\nE\n");
    let text =
        stage.refused(&Edit, &json!({"path": "f", "edits": [{"from": at(5, "e"), "text": "x"}]}));
    assert!(text.contains(&format!("edits[0]: {} is stale", at(5, "e"))), "{text}");
    assert!(text.contains(&anchor::show(5, b"E")), "fresh rows: {text}");
    // The foreign change was never read, so the whole file may not be overwritten.
    let text = stage.refused(&Write, &json!({"path": "f", "content": "x"}));
    assert!(text.contains("was changed by something else since it was last read"), "{text}");
    assert_eq!(stage.get("f"), b"new\na\nB\nd\nE\n");
    // The fresh rows are good at once.
    stage.ok(&Edit, &json!({"path": "f", "edits": [{"from": at(5, "E"), "text": "x"}]}));
    assert_eq!(stage.get("f"), b"new\na\nB\nd\nx\n");
}

#[test]
fn a_foreign_change_inside_a_range_is_refused() {
    for read_again in [None, Some(json!({"path": "f", "start": 5, "end": 5}))] {
        let stage = Stage::new();
        stage.put("f", "a\nb\nc\nd\ne\n");
        stage.ok(&Read, &json!({"path": "f"}));
        stage.put("f", "a\nb\nCC\nd\ne\n");
        // A look at another part of the file does not show this one.
        if let Some(arguments) = &read_again {
            stage.ok(&Read, arguments);
        }
        let edits = json!([{"from": at(2, "b"), "to": at(4, "d"), "text": "x"}]);
        let text = stage.refused(&Edit, &json!({"path": "f", "edits": edits}));
        assert!(text.contains("line 3 within the range was not shown as it is now"), "{text}");
        assert_eq!(stage.get("f"), b"a\nb\nCC\nd\ne\n");
        stage.ok(&Edit, &json!({"path": "f", "edits": edits}));
        assert_eq!(stage.get("f"), b"a\nx\ne\n", "control: the fresh rows showed it");
    }
}

#[test]
fn the_digits_alone_never_decide() {
    let full = |text: &str| anchor::Row::of(1, text.as_bytes());
    let old = "line 0".to_owned();
    let twin = (1..10_000)
        .map(|n| format!("line {n}"))
        .find(|text| full(text).anchor == full(&old).anchor)
        .unwrap();
    let stage = Stage::new();
    stage.put("f", &old);
    stage.ok(&Read, &json!({"path": "f"}));
    stage.put("f", &twin);
    let edits = json!([{"from": at(1, &old), "text": "x"}]);
    let text = stage.refused(&Edit, &json!({"path": "f", "edits": edits}));
    assert!(text.contains("is stale"), "{text}");
    assert_eq!(stage.get("f"), twin.as_bytes());
    stage.put("f", &old);
    stage.ok(&Read, &json!({"path": "f"}));
    stage.ok(&Edit, &json!({"path": "f", "edits": edits}));
    assert_eq!(stage.get("f"), b"x", "control");
}

#[test]
fn one_of_many_equal_lines_is_not_guessed() {
    let stage = Stage::new();
    stage.put("f", "a {\n}\nb {\n}\nc {\n}\n");
    stage.ok(&Read, &json!({"path": "f"}));
    // Two lines more above: line 4 is again a brace, but another one.
    stage.put("f", "x {\n}\na {\n}\nb {\n}\nc {\n}\n");
    let edits = json!([{"after": at(4, "}"), "text": "new"}]);
    let text = stage.refused(&Edit, &json!({"path": "f", "edits": edits}));
    assert!(text.contains("is stale"), "{text}");
    // kli's own edits are followed exactly, also where lines are equal.
    stage.ok(&Read, &json!({"path": "f"}));
    stage.ok(&Edit, &json!({"path": "f", "edits": [{"before": at(1, "x {"), "text": "y {\n}"}]}));
    let edits = json!([{"from": at(8, "}"), "text": "end"}]);
    stage.ok(&Edit, &json!({"path": "f", "edits": edits}));
    assert_eq!(stage.get("f"), b"y {\n}\nx {\n}\na {\n}\nb {\n}\nc {\nend\n");
}

#[test]
fn an_anchor_that_was_never_shown_is_refused_with_fresh_rows() {
    let stage = Stage::new();
    stage.put("f", "hello\n");
    let edits = json!([{"from": "1:57", "text": "x"}]);
    let text = stage.refused(&Edit, &json!({"path": "f", "edits": edits}));
    assert!(text.contains("edits[0]: 1:57 was not shown in this run"), "{text}");
    assert!(text.ends_with("fresh rows:\n1:57|hello"), "{text}");
    stage.ok(&Edit, &json!({"path": "f", "edits": edits}));
    assert_eq!(stage.get("f"), b"x\n");
    let text =
        stage.refused(&Edit, &json!({"path": "f", "edits": [{"from": "9:57", "text": "x"}]}));
    assert!(text.contains("9:57 is past the end (1 lines)"), "{text}");
}

#[test]
fn edits_that_overlap_are_refused_and_neighbours_are_not() {
    let file = "a\nb\nc\n";
    let (a, b, c) = (at(1, "a"), at(2, "b"), at(3, "c"));
    for edits in [
        json!([{"from": a, "to": b, "text": "x"}, {"from": b, "text": "y"}]),
        json!([{"from": b, "text": "x"}, {"old": "b\nc", "new": "y"}]),
        json!([{"from": a, "to": c, "text": ""}, {"after": b, "text": "y"}]),
        json!([{"old": "b", "new": "x"}, {"old": "b", "new": "y"}]),
        json!([{"from": b, "text": "x"}, {"from": b, "text": ""}]),
    ] {
        let text = refused(file, &edits);
        assert!(text.contains("edits[0] and edits[1] overlap, at line"), "{text}");
    }
    let blank = at(2, "");
    let edits = json!([{"from": a, "to": blank, "text": "x"}, {"from": blank, "text": ""}]);
    assert!(refused("a\n\nc\n", &edits).contains("overlap, at line 2"), "a blank line, too");
    let text = refused(file, &json!([{"after": a, "text": "x"}, {"before": b, "text": "y"}]));
    assert!(text.contains("edits[0] and edits[1] insert at the same place"), "{text}");
    let neighbours =
        json!([{"from": a, "text": "1"}, {"after": a, "text": "2"}, {"from": b, "text": "3"}]);
    assert_eq!(edited(file, &neighbours).0, b"1\n2\n3\nc\n");
}

#[test]
fn one_bad_edit_stops_all_and_each_bad_one_is_named() {
    let text = refused(
        "a\nb\n",
        &json!([{"old": "a", "new": "x"}, {"old": "zz", "new": "y"}, {"from": "2:00", "text": ""}]),
    );
    assert!(!text.contains("edits[0]"), "{text}");
    assert!(text.contains("edits[1]: ") && text.contains("edits[2]: 2:00"), "{text}");
}

#[test]
fn bytes_that_are_no_utf8_stay_as_they_are() {
    let (content, text) = edited(b"caf\xe9\nx\n\xff\xfe", &json!([{"old": "x", "new": "ü"}]));
    assert_eq!(content, b"caf\xe9\n\xc3\xbc\n\xff\xfe");
    assert!(
        text.contains("the file is not UTF-8, and the new text was written as UTF-8"),
        "{text}"
    );
    let edits = json!([{"from": at(1, "caf\u{fffd}"), "text": "caf\u{fffd}s"}]);
    let text = refused(b"caf\xe9\nx\n", &edits);
    assert!(text.contains("U+FFFD, which stands here for bytes that are no UTF-8"), "{text}");
    let edits = json!([{"from": at(1, "caf\u{fffd}"), "text": "coffee"}]);
    assert_eq!(edited(b"caf\xe9\nx\n", &edits).0, b"coffee\nx\n", "control");
}

#[test]
fn a_very_long_line_is_cut_in_rows_and_still_editable() {
    let long = "x".repeat(100_000);
    let file = format!("a\n{long}\nb\n");
    let (content, text) = edited(&file, &json!([{"from": at(2, &long), "text": "short"}]));
    assert_eq!(content, b"a\nshort\nb\n");
    assert!(text.len() < 1000);
    let (_, text) = edited(&file, &json!([{"old": "a\n", "new": "A\n"}]));
    assert!(text.len() < 3000 && text.contains("[98000 more bytes; "), "{}", text.len());
}

#[test]
fn bad_edits_are_sentences() {
    for (edits, sentence) in [
        (json!([]), "`edits` is an empty list; name at least one"),
        (json!([{}]), "`edits[0]` must have exactly one of `from`, `after`, `before` and `old`"),
        (json!([{"from": "1:ed", "old": "a", "text": "", "new": ""}]), "must have exactly one of"),
        (json!([{"from": "1", "text": "x"}]), "`edits[0].from`: `1` is no anchor"),
        (json!([{"from": "1:ed"}]), "`edits[0].text` is missing"),
        (json!([{"old": "a"}]), "`edits[0].new` is missing"),
        (json!([{"after": "1:ed", "text": ""}]), "nothing would be inserted"),
        (json!([{"old": "a", "new": "a"}]), "`edits[0].old` and `new` are the same"),
        (json!([{"from": "1:ed", "text": "a"}]), "the edits change nothing: `f` already reads so"),
        (json!([{"old": "a", "new": "b", "al": true}]), "unknown argument `edits[0].al`"),
        (
            json!([{"from": "1:ed", "text": "1:ed|x"}]),
            "each line of the new text begins with an anchor",
        ),
        (json!([{"from": at(2, "b"), "to": "1:ed", "text": "x"}]), "is before `from`"),
    ] {
        let text = refused("a\nb\n", &edits);
        assert!(text.contains(sentence), "{edits}: {text}");
    }
    // A model that fills in every field of the schema means the one that is not empty.
    let full = json!([{"from": "1:ed", "to": "", "after": "", "before": "", "text": "x", "old": "", "new": "", "all": false}]);
    assert_eq!(edited("a\nb\n", &full).0, b"x\nb\n");
    let full = json!([{"from": "", "to": "", "after": "", "before": "", "text": "", "old": "a", "new": "", "all": false}]);
    assert_eq!(edited("a\nb\n", &full).0, b"\nb\n");
}

#[test]
fn what_is_no_text_file_is_refused() {
    let stage = Stage::new();
    stage.put("empty", "");
    stage.put("binary", "a\0b");
    fs::create_dir(stage.path("dir")).unwrap();
    for (path, sentence) in [
        ("empty", "`empty` is an empty file; use write"),
        ("binary", "`binary` is binary data; edit changes text only"),
        ("dir", "is a directory, not a regular file"),
        ("none", "none`: no such file or directory"),
        ("/dev/zero", "is a character device"),
    ] {
        let edits = json!([{"old": "a", "new": "x"}]);
        let text = stage.refused(&Edit, &json!({"path": path, "edits": edits}));
        assert!(text.contains(sentence), "{text}");
    }
    assert_eq!(stage.get("binary"), b"a\0b");
}

#[test]
fn a_run_that_may_not_edit_changes_nothing() {
    let mut stage = Stage::new();
    stage.put("f", "a\n");
    stage.narrow(Narrowing::ReadOnly);
    let call = json!({"path": "f", "edits": [{"old": "a", "new": "x"}]});
    let text = stage.refused(&Edit, &call);
    assert!(text.starts_with("denied: this run does not hold `file/edit`"), "{text}");
    assert_eq!(stage.get("f"), b"a\n");
    stage.narrow(Narrowing::Drop(vec![]));
    stage.ok(&Edit, &call);
    assert_eq!(stage.get("f"), b"x\n", "control");
}

#[test]
fn without_file_read_no_result_shows_what_the_model_did_not_give() {
    let lines = "alpha secret one\n\tbeta secret two  \nsame\ngamma\nsame\n";
    let mut stage = Stage::new();
    stage.put("f", lines);
    let no_read = Narrowing::Only {
        authority: Authority::of([(Atom::FileEdit, Constraint::Any)]),
        named: vec![Atom::FileEdit],
    };
    let wrong = [
        json!([{"old": "alpha secret", "new": "x"}, {"old": "beta secret tw0", "new": "x"}]),
        json!([{"old": "  beta secret two", "new": "x"}]),
        json!([{"old": "nothing like it", "new": "x"}]),
        json!([{"old": "same", "new": "x"}]),
        json!([{"from": "2:00", "text": "x"}]),
        json!([{"after": "99:00", "text": "x"}]),
        json!([{"from": "1:00", "to": "3:00", "text": "x"}]),
        json!([{"old": "gamma", "new": "x"}, {"old": "amma\nsame", "new": "y"}]),
    ];
    let given = |edits: &Value, word: &str| edits.to_string().contains(word);
    for edits in &wrong {
        stage.narrow(no_read.clone());
        let text = stage.refused(&Edit, &json!({"path": "f", "edits": edits}));
        assert!(text.contains("nothing was changed in `f`"), "{text}");
        assert!(text.contains("`file/read` does not cover it"), "{text}");
        assert!(!text.contains('|') && !text.contains("fresh rows"), "{text}");
        for word in ["alpha", "secret", "beta", "two", "gamma", "tab", "→"] {
            assert!(given(edits, word) || !text.contains(word), "`{word}` of {edits} in {text}");
        }
        assert_eq!(stage.get("f"), lines.as_bytes());
    }
    let many = stage.refused(&Edit, &json!({"path": "f", "edits": wrong[3]}));
    assert!(many.contains("2 matches of `old`: lines 3, 5;"), "numbers are told: {many}");
    let text = stage.ok(&Edit, &json!({"path": "f", "edits": [{"old": "gamma", "new": "a\nb"}]}));
    assert!(text.contains("(lines now: 4-5; this run may not read the file"), "{text}");
    assert!(!text.contains("same") && !text.contains('|'), "{text}");
    assert!(stage.context.state.files.view(&stage.path("f")).rows.is_empty());

    // Control: a run that may read it is shown the lines.
    stage.narrow(Narrowing::Drop(vec![]));
    let text = stage.refused(&Edit, &json!({"path": "f", "edits": wrong[1]}));
    assert!(text.contains("beta secret two") && text.contains("1 tab"), "{text}");
    // One that may read other places only is not.
    stage.narrow(Narrowing::Only {
        authority: Authority::of([
            (Atom::FileEdit, Constraint::Any),
            (Atom::FileRead, Constraint::under([stage.path("src")])),
        ]),
        named: vec![Atom::FileEdit, Atom::FileRead],
    });
    let text = stage.refused(&Edit, &json!({"path": "f", "edits": wrong[1]}));
    assert!(!text.contains("two\n") && !text.contains("tab"), "{text}");
}

#[test]
fn a_change_that_comes_in_between_is_seen_and_both_land() {
    use crate::host::files::meanwhile;
    let stage = Stage::new();
    stage.put("f", "one\ntwo\nthree\n");
    stage.ok(&Read, &json!({"path": "f"}));
    let path = stage.path("f");
    let call = stage
        .prepare(&Edit, &json!({"path": "f", "edits": [{"from": at(3, "three"), "text": "3"}]}));
    meanwhile(&path.clone(), move || fs::write(path, "zero\none\ntwo\nthree\n").unwrap());
    let outcome = stage.run(call.unwrap());
    assert!(!outcome.is_error, "{}", outcome.text);
    assert!(outcome.text.contains("is now line 4; it was followed"), "{}", outcome.text);
    assert_eq!(stage.get("f"), b"zero\none\ntwo\n3\n");
    // In the same line it is refused, and theirs stands.
    let path = stage.path("f");
    let call =
        stage.prepare(&Edit, &json!({"path": "f", "edits": [{"old": "two", "new": "2"}]})).unwrap();
    meanwhile(&path.clone(), move || fs::write(path, "zero\none\ntheirs\n3\n").unwrap());
    let outcome = stage.run(call);
    assert!(outcome.is_error && outcome.text.contains("`old` is not in the file"));
    assert_eq!(stage.get("f"), b"zero\none\ntheirs\n3\n");
}

#[test]
fn other_names_of_an_edited_file_are_said() {
    let stage = Stage::new();
    stage.put("f", "a\n");
    fs::hard_link(stage.path("f"), stage.path("g")).unwrap();
    let call = json!({"path": "f", "edits": [{"old": "a", "new": "b"}]});
    let text = stage.ok(&Edit, &call);
    assert!(
        text.contains("; 1 other name (hard link) of the file keeps the old content"),
        "{text}"
    );
    assert_eq!((stage.get("f"), stage.get("g")), (b"b\n".to_vec(), b"a\n".to_vec()));
}

mod laws;

#[test]
fn a_text_that_stands_everywhere_is_refused_before_memory_is_gone() {
    let text = refused("a\n".repeat(100_001), &json!([{"old": "a", "new": "b", "all": true}]));
    assert!(text.contains("more than 100000 matches of `old`"), "{text}");
    let text = refused("a\n".repeat(100_001), &json!([{"old": "a", "new": "b"}]));
    assert!(text.contains("more than 100000 matches of `old`"), "{text}");
    let all = json!([{"old": "a", "new": "b", "all": true}]);
    let (content, _) = edited("a\n".repeat(100_000), &all);
    assert!(content == "b\n".repeat(100_000).as_bytes(), "control");
}
