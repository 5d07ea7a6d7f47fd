#![expect(clippy::disallowed_methods, reason = "tests set up the disk themselves")]

use std::{
    ffi::OsStr,
    fs,
    os::unix::{fs::symlink, net::UnixListener},
    time::{Duration, Instant},
};

use super::*;
use crate::tool::stage::Stage;

fn fifo(path: &std::path::Path) {
    use rustix::fs::{CWD, FileType, Mode, mknodat};
    mknodat(CWD, path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
}

#[test]
fn rows_carry_anchors_and_endings_are_hidden() {
    let stage = Stage::new();
    stage.put("a", "a\r\nhello\n\n    return x");
    assert_eq!(
        stage.ok(&Read, &json!({"path": "a"})),
        "1:ed|a\n2:57|hello\n3:c5|\n4:ee|    return x"
    );
    assert_eq!(
        stage.ok(&Read, &json!({"path": "a", "start": " 2", "end": "2"})),
        "2:57|hello\n(lines 2-2 of 4; go on with start=3)"
    );
}

#[test]
fn a_byte_order_mark_is_hidden() {
    let stage = Stage::new();
    stage.put("a", b"\xef\xbb\xbfhello");
    assert_eq!(stage.ok(&Read, &json!({"path": "a"})), "1:57|hello");
}

#[test]
fn empty_and_past_the_end_are_said() {
    let stage = Stage::new();
    stage.put("empty", "");
    stage.put("bom", b"\xef\xbb\xbf");
    stage.put("two", "a\nb\n");
    assert_eq!(stage.ok(&Read, &json!({"path": "empty"})), "(empty file)");
    assert_eq!(stage.ok(&Read, &json!({"path": "bom"})), "(empty file)");
    assert_eq!(
        stage.ok(&Read, &json!({"path": "two", "start": 9})),
        "(start 9 is past the end: `two` has 2 lines)"
    );
    let error = stage.refused(&Read, &json!({"path": "two", "start": 2, "end": 1}));
    assert_eq!(error, "`end` (1) is before `start` (2); swap them");
}

#[test]
fn a_long_file_is_paged_and_says_how_to_go_on() {
    let stage = Stage::new();
    let text: String = (1..=4100).map(|n| n.to_string() + "\n").collect();
    stage.put("a", &text);
    let mut start = 1;
    let mut seen = Vec::new();
    loop {
        let page = stage.ok(&Read, &json!({"path": "a", "start": start}));
        for row in page.lines().filter(|row| !row.starts_with('(')) {
            seen.push(row.split_once('|').unwrap().1.to_owned());
        }
        let Some((_, next)) = page.rsplit_once("start=") else { break };
        start = next.trim_end_matches(')').parse().unwrap();
    }
    assert_eq!(seen.join("\n") + "\n", text);
    let wide = "x".repeat(1500) + "\n";
    stage.put("wide", wide.repeat(200));
    let page = stage.ok(&Read, &json!({"path": "wide"}));
    assert!(page.len() < MAX_BYTES + 100, "{}", page.len());
    assert!(page.ends_with("of 200; go on with start=67)"), "{}", &page[page.len() - 60..]);
}

#[test]
fn what_is_no_file_is_refused_at_once_by_its_kind() {
    let stage = Stage::new();
    fifo(&stage.path("fifo"));
    let _listener = UnixListener::bind(stage.path("socket")).unwrap();
    let before = Instant::now();
    for (path, kind) in
        [("fifo", "a FIFO"), ("socket", "a socket"), ("/dev/zero", "a character device")]
    {
        let error = stage.refused(&Read, &json!({"path": path}));
        assert!(
            error.ends_with(&format!("is {kind}, not a regular file or a directory")),
            "{error}"
        );
    }
    assert!(before.elapsed() < Duration::from_secs(1));
    stage.put("file", "hello");
    assert_eq!(stage.ok(&Read, &json!({"path": "file"})), "1:57|hello", "control");
}

#[test]
fn binary_is_named_and_not_dumped() {
    let stage = Stage::new();
    stage.put("a", b"\x7fELF\x02\0\0\0rest");
    stage.put("utf16", b"\xff\xfeh\0i\0");
    assert_eq!(
        stage.ok(&Read, &json!({"path": "a"})),
        "`a` is an ELF object, 12 bytes; it is not shown"
    );
    assert!(stage.ok(&Read, &json!({"path": "utf16"})).contains("is UTF-16 text"));
}

#[test]
fn bytes_that_are_no_utf8_are_shown_and_said() {
    let stage = Stage::new();
    stage.put("latin1", b"caf\xe9\nx\n");
    let text = stage.ok(&Read, &json!({"path": "latin1"}));
    assert!(text.contains("|caf\u{fffd}\n2:"), "{text}");
    assert!(
        text.ends_with("(bytes that are no UTF-8 are shown as U+FFFD; edits elsewhere keep them)")
    );
    stage.put("utf8", "caf\u{fffd}\n");
    assert!(!stage.ok(&Read, &json!({"path": "utf8"})).contains("no UTF-8"), "control");
}

/// Returns the most memory that this process ever had, in bytes.
fn peak() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
}

#[test]
fn memory_is_bounded_whatever_the_size() {
    let stage = Stage::new();
    // Text at the beginning, so that it is not taken for binary; the rest is one line.
    let sparse = |name: &str, length: u64| {
        stage.put(name, "x".repeat(10_000) + "\n");
        fs::File::options().write(true).open(stage.path(name)).unwrap().set_len(length).unwrap();
    };
    sparse("long", 17 << 20);
    sparse("big", 200 << 20);
    let before = peak();
    let text = stage.ok(&Read, &json!({"path": "long"}));
    assert!(text.starts_with("1:"), "{text}");
    assert_eq!(text.matches("more bytes; the anchor stands for the whole line").count(), 2);
    let text = stage.ok(&Read, &json!({"path": "big", "end": 1}));
    assert!(text.ends_with("(lines 1-1, more follow; go on with start=2)"), "{text}");
    assert!(stage.ok(&Read, &json!({"path": "big", "start": 9})).contains("has 2 lines"));
    assert!(peak() - before < 16 << 20, "{} more", peak() - before);
    let huge = fs::File::create(stage.path("huge")).unwrap();
    huge.set_len(2 << 30).unwrap();
    assert!(stage.ok(&Read, &json!({"path": "huge"})).contains("is binary data, 2147483648 bytes"));
    assert!(peak() - before < 16 << 20, "{} more", peak() - before);
}

#[test]
fn a_directory_is_listed_also_with_names_that_are_no_text() {
    use std::os::unix::ffi::OsStrExt as _;
    let stage = Stage::new();
    assert_eq!(stage.ok(&Read, &json!({"path": "."})), "`.` is a directory:\n(empty directory)");
    fs::create_dir(stage.path("sub")).unwrap();
    fs::write(stage.path(OsStr::from_bytes(b"caf\xe9\nx")), "").unwrap();
    symlink("sub", stage.path("link")).unwrap();
    assert_eq!(
        stage.ok(&Read, &json!({"path": "."})),
        "`.` is a directory:\ncaf\\xe9\\x0ax\nlink@\nsub/"
    );
}

#[test]
fn a_loop_of_links_is_refused_and_a_chain_is_followed() {
    let stage = Stage::new();
    symlink("b", stage.path("a")).unwrap();
    symlink("a", stage.path("b")).unwrap();
    let error = stage.refused(&Read, &json!({"path": "a"}));
    assert!(error.contains("cannot follow") && error.contains("symbolic links"), "{error}");
    stage.put("end", "hello");
    symlink("end", stage.path("l0")).unwrap();
    for n in 1..39 {
        symlink(format!("l{}", n - 1), stage.path(format!("l{n}"))).unwrap();
    }
    assert_eq!(stage.ok(&Read, &json!({"path": "l38"})), "1:57|hello");
}

#[test]
fn bad_arguments_are_sentences() {
    let stage = Stage::new();
    for (arguments, sentence) in [
        (json!({}), "`path` is missing"),
        (json!({"path": ""}), "`` is an empty path; name a file"),
        (json!({"path": "a\0b"}), "contains a NUL byte"),
        (json!({"path": ["a"]}), "`path` must be a text, not `[\"a\"]`"),
        (
            json!({"path": "a", "lines": 3}),
            "unknown argument `lines`; known are `path`, `start`, `end`",
        ),
        (json!({"path": "a", "start": "x"}), "`start` must be a whole number from 1 on"),
        (json!({"path": "none"}), "none`: no such file or directory"),
        (json!({"path": 123}), "123`: no such file or directory"),
    ] {
        let error = stage.refused(&Read, &arguments);
        assert!(error.contains(sentence), "{arguments}: {error}");
    }
}

#[test]
fn the_home_is_expanded() {
    let stage = Stage::new();
    fs::create_dir(stage.path("home")).unwrap();
    stage.put("home/a", "hello");
    assert_eq!(stage.ok(&Read, &json!({"path": "~/a"})), "1:57|hello");
}
