#![expect(clippy::disallowed_methods, reason = "tests prepare files and look at what is left")]

use std::{
    ffi::OsStr,
    fs,
    os::unix::{ffi::OsStrExt as _, fs::symlink},
};

use super::*;
use crate::{
    authority::{Authority, Constraint, Narrowing},
    tool::{edit::Edit, read::Read, stage::Stage},
};

/// A workspace with these files; a name that ends with `/` is a directory.
fn stage(names: &[&str]) -> Stage {
    let stage = Stage::new();
    for name in names {
        let path = stage.path(name);
        if name.ends_with('/') {
            fs::create_dir_all(path).unwrap();
        } else {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "x\n").unwrap();
        }
    }
    stage
}

fn found(stage: &Stage, pattern: &str) -> String {
    stage.ok(&Find, &json!({"pattern": pattern}))
}

#[test]
fn globs_and_parts_of_names_are_found_in_order() {
    let stage =
        stage(&["src/main.rs", "src/deep/Lib.rs", "doc/lib.md", "empty/", "b.rs", "src.txt"]);
    symlink("src", stage.path("zlink")).unwrap();
    for (pattern, wanted) in [
        ("*.rs", "b.rs\nsrc/deep/Lib.rs\nsrc/main.rs"),
        ("/*.rs", "b.rs"),
        ("./*.rs", "b.rs"),
        ("src/*.rs", "src/main.rs"),
        ("src/**/*.rs", "src/deep/Lib.rs\nsrc/main.rs"),
        ("**/lib.*", "doc/lib.md"),
        ("*.{md,txt}", "doc/lib.md\nsrc.txt"),
        ("lib", "doc/lib.md\nsrc/deep/Lib.rs"),
        ("c/dee", "src/deep/\nsrc/deep/Lib.rs"),
        ("src", "src/\nsrc.txt"),
        ("src/", "src/"),
        ("e*/", "empty/"),
        ("zl", "zlink@"),
        ("[bm]*.rs", "b.rs\nsrc/main.rs"),
    ] {
        assert_eq!(found(&stage, pattern), wanted, "{pattern}");
    }
    assert_eq!(found(&stage, "nothing"), "[nothing found]");
    let below = stage.ok(&Find, &json!({"pattern": "*.rs", "path": "src/deep"}));
    assert_eq!(below, "src/deep/Lib.rs", "names go on from the workspace");
    let through = stage.ok(&Find, &json!({"pattern": "main.rs", "path": "zlink"}));
    assert_eq!(through, "src/main.rs", "a link that is named is followed");
}

#[test]
fn ignored_places_and_working_trees_are_said_and_a_named_one_is_looked_through() {
    let stage = stage(&[
        "target/out.rs",
        "target/sub/x.rs",
        "gen/made.rs",
        "run.log",
        "src/a.rs",
        ".github/ci.rs",
        ".git/x.rs",
        ".kli/worktrees/one/a.rs",
        "trees/two/a.rs",
    ]);
    stage.put(".gitignore", "/target\n*.log\n/gen/*\n");
    stage.put("trees/two/.git", "gitdir: /x/.git/worktrees/two\n");
    assert_eq!(
        found(&stage, "*.rs"),
        ".github/ci.rs\nsrc/a.rs\n[1 ignored directory skipped (target), 2 ignored files skipped; \
         give one as `path` to look through it]\n[other working trees skipped (.kli/worktrees, \
         trees/two)]"
    );
    for (path, wanted) in [
        ("target", "target/out.rs\ntarget/sub/x.rs"),
        ("target/sub", "target/sub/x.rs"),
        ("gen", "gen/made.rs"),
    ] {
        let text = stage.ok(&Find, &json!({"pattern": "*.rs", "path": path}));
        let note = "\n[ignore rules name this path; it was looked through without them]";
        assert_eq!(text, format!("{wanted}{note}"), "{path}");
    }
    let text = stage.ok(&Find, &json!({"pattern": "*.rs", "path": "trees/two"}));
    assert_eq!(text, "trees/two/a.rs");
}

#[test]
fn a_name_that_is_no_text_is_shown_on_its_line_and_can_be_used() {
    let stage = stage(&["plain.txt"]);
    let odd = OsStr::from_bytes(b"caf\xe9\n.txt");
    fs::write(stage.path(odd), "inside\n").unwrap();
    let text = found(&stage, "*.txt");
    assert_eq!(text, "caf\\xe9\\x0a.txt\nplain.txt");
    let name = text.lines().next().unwrap();
    assert!(stage.ok(&Read, &json!({"path": name})).ends_with("|inside"));
    stage.ok(&Edit, &json!({"path": name, "edits": [{"old": "inside", "new": "changed"}]}));
    assert_eq!(fs::read(stage.path(odd)).unwrap(), b"changed\n");
    // A file of that very name comes first.
    fs::write(stage.path("caf\\xe9\\x0a.txt"), "literal\n").unwrap();
    assert!(stage.ok(&Read, &json!({"path": name})).ends_with("|literal"));
}

#[test]
fn many_are_bounded_and_counted_the_same_way_each_time() {
    let stage = Stage::new();
    for n in 0..1500 {
        stage.put(&format!("f{n:04}"), "");
    }
    let text = found(&stage, "f*");
    assert_eq!(text.lines().count(), MAX_ENTRIES + 1);
    assert!(text.starts_with("f0000\nf0001\n") && text.contains("\nf0999\n"), "{text}");
    assert!(text.ends_with("[500 more are not shown (1500 in all): narrow `pattern` or `path`]"));
    assert_eq!(found(&stage, "f*"), text);
    let long = "n".repeat(200);
    for n in 0..400 {
        stage.put(&format!("{long}{n}"), "");
    }
    let text = found(&stage, &format!("{long}*"));
    assert!(text.len() < cut::BUDGET + 200 && text.contains("more are not shown (400 in all)"));
}

#[test]
fn what_cannot_be_meant_is_a_sentence() {
    let stage = stage(&["a.txt"]);
    for (arguments, part) in [
        (json!({}), "`pattern` is missing"),
        (json!({"pattern": ""}), "`pattern` is empty"),
        (json!({"pattern": "/"}), "`pattern` is empty"),
        (json!({"pattern": "{a"}), "`pattern` cannot be used:"),
        (json!({"pattern": ["a"]}), "`pattern` must be a text"),
        (json!({"pattern": "a", "glob": "x"}), "unknown argument `glob`"),
        (json!({"pattern": "a", "path": "a.txt"}), "is a file, not a directory to look through"),
        (json!({"pattern": "a", "path": "nope"}), "nope`: no such file or directory"),
    ] {
        let text = stage.refused(&Find, &arguments);
        assert!(text.contains(part), "{arguments}: {text}");
    }
    stage.put("123", "");
    assert_eq!(stage.ok(&Find, &json!({"pattern": 123})), "123", "a number is taken as its text");
}

#[test]
fn a_run_that_may_read_only_below_a_directory_finds_nothing_elsewhere() {
    let mut stage = stage(&["src/a.rs", "secret/b.rs"]);
    symlink("../secret", stage.path("src/out")).unwrap();
    let under = Constraint::under([stage.path("src")]);
    stage.narrow(Narrowing::Only {
        authority: Authority::of([(Atom::FileRead, under)]),
        named: vec![Atom::FileRead],
    });
    for path in ["", "secret", "src/out", "src/../secret"] {
        let text = stage.refused(&Find, &json!({"pattern": "*", "path": path}));
        assert!(
            text.starts_with("denied: this run holds `file/read` only for path under "),
            "{text}"
        );
        assert!(!text.contains("b.rs"), "{text}");
    }
    let text = stage.ok(&Find, &json!({"pattern": "*", "path": "src"}));
    assert_eq!(text, "src/a.rs\nsrc/out@", "control");
}
