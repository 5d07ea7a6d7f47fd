#![expect(clippy::disallowed_methods, reason = "tests set up and look at the disk themselves")]

use std::{
    fs,
    os::unix::fs::{PermissionsExt, symlink},
    path::PathBuf,
};

use super::*;
use crate::{
    authority::{Authority, Constraint, Narrowing},
    tool::{read::Read, stage::Stage},
};

#[test]
fn a_new_file_is_made_with_its_parents() {
    let stage = Stage::new();
    let outcome = stage.call(&Write, &json!({"path": "a/b/c", "content": "x\ny"}));
    assert_eq!(outcome.text, "created `a/b/c`: 2 lines, 3 bytes");
    assert_eq!(outcome.changed, [stage.path("a/b/c")]);
    assert_eq!(stage.get("a/b/c"), b"x\ny");
    assert_eq!(fs::read_dir(stage.path("a/b")).unwrap().count(), 1, "nothing beside it");
}

#[test]
fn an_existing_file_must_have_been_read_and_be_unchanged() {
    let stage = Stage::new();
    stage.put("a", "old");
    let new = json!({"path": "a", "content": "new"});
    let error = stage.refused(&Write, &new);
    assert!(error.contains("was not read in this run; read it first"), "{error}");
    assert_eq!(stage.get("a"), b"old");

    stage.ok(&Read, &json!({"path": "a"}));
    stage.put("a", "0ld");
    let error = stage.refused(&Write, &new);
    assert!(error.contains("was changed by something else since it was last read"), "{error}");
    assert_eq!(stage.get("a"), b"0ld");

    stage.ok(&Read, &json!({"path": "a"}));
    // The same bytes written again are no change.
    stage.put("a", "0ld");
    assert_eq!(stage.ok(&Write, &new), "replaced `a`: 1 line, 3 bytes");
    assert_eq!(stage.get("a"), b"new");
    // What kli wrote itself it knows.
    stage.ok(&Write, &json!({"path": "a", "content": "newer"}));
    assert_eq!(stage.get("a"), b"newer");
    assert_eq!(stage.names(), ["a"]);
}

#[test]
fn an_empty_file_may_be_filled_without_a_read() {
    let stage = Stage::new();
    stage.put("a", "");
    stage.ok(&Write, &json!({"path": "a", "content": "x"}));
    assert_eq!(stage.get("a"), b"x");
}

#[test]
fn a_link_stays_and_its_target_changes() {
    let stage = Stage::new();
    stage.put("real.md", "old");
    symlink("real.md", stage.path("middle.md")).unwrap();
    symlink(stage.path("middle.md"), stage.path("link.md")).unwrap();
    stage.ok(&Read, &json!({"path": "link.md"}));
    stage.ok(&Write, &json!({"path": "link.md", "content": "new"}));
    assert_eq!(fs::read_link(stage.path("link.md")).unwrap(), stage.path("middle.md"));
    assert_eq!(fs::read_link(stage.path("middle.md")).unwrap(), PathBuf::from("real.md"));
    assert_eq!(stage.get("real.md"), b"new");

    symlink("not-yet", stage.path("dangling")).unwrap();
    stage.ok(&Write, &json!({"path": "dangling", "content": "x"}));
    assert!(fs::symlink_metadata(stage.path("dangling")).unwrap().is_symlink());
    assert_eq!(stage.get("not-yet"), b"x");
}

#[test]
fn the_mode_is_kept() {
    let stage = Stage::new();
    stage.put("a", "#!/bin/sh\n");
    fs::set_permissions(stage.path("a"), fs::Permissions::from_mode(0o4750)).unwrap();
    stage.ok(&Read, &json!({"path": "a"}));
    stage.ok(&Write, &json!({"path": "a", "content": "#!/bin/sh\ntrue\n"}));
    let mode = fs::metadata(stage.path("a")).unwrap().permissions().mode() & 0o7777;
    assert_eq!(mode, 0o750, "kept, without setuid");
}

#[test]
fn a_byte_order_mark_and_crlf_are_kept() {
    let stage = Stage::new();
    stage.put("a", b"\xef\xbb\xbfx\r\ny\r\n");
    stage.ok(&Read, &json!({"path": "a"}));
    let text = stage.ok(&Write, &json!({"path": "a", "content": "1\n2\n3"}));
    assert!(text.ends_with("; its CRLF line endings were kept; its byte order mark was kept"));
    assert_eq!(stage.get("a"), b"\xef\xbb\xbf1\r\n2\r\n3");
    stage.put("mixed", b"x\r\ny\n");
    stage.ok(&Read, &json!({"path": "mixed"}));
    stage.ok(&Write, &json!({"path": "mixed", "content": "1\n2\n"}));
    assert_eq!(stage.get("mixed"), b"1\n2\n", "control");
}

#[test]
fn what_is_no_file_is_refused() {
    let stage = Stage::new();
    fs::create_dir(stage.path("dir")).unwrap();
    stage.put("file", "x");
    for (path, sentence) in [
        ("dir", "is a directory, not a regular file"),
        ("new/", "ends with `/`, which names a directory; name a file"),
        ("/dev/null", "is a character device, not a regular file"),
        ("file/below", "file`: not a directory"),
        ("/", "ends with `/`, which names a directory; name a file"),
        ("..", "is a directory, not a regular file"),
    ] {
        let error = stage.refused(&Write, &json!({"path": path, "content": "x"}));
        assert!(error.contains(sentence), "{path}: {error}");
    }
    assert_eq!(stage.names(), ["dir", "file"]);
}

#[test]
fn a_denied_path_is_not_touched_also_through_a_link() {
    let mut stage = Stage::new();
    fs::create_dir(stage.path("src")).unwrap();
    stage.put("beside", "old");
    symlink("../beside", stage.path("src/link")).unwrap();
    stage.ok(&Read, &json!({"path": "beside"}));
    let under = Constraint::under([stage.path("src")]);
    stage.narrow(Narrowing::Only {
        authority: Authority::of([(Atom::FileWrite, under)]),
        named: vec![Atom::FileWrite],
    });
    for path in ["beside", "src/link", "src/../beside", "srcs/x"] {
        let error = stage.refused(&Write, &json!({"path": path, "content": "new"}));
        assert!(error.starts_with("denied: this run holds `file/write` only for path under"));
    }
    assert_eq!(stage.get("beside"), b"old");
    assert_eq!(stage.names(), ["beside", "src"]);
    stage.ok(&Write, &json!({"path": "src/ok", "content": "new"}));
    assert_eq!(stage.get("src/ok"), b"new", "control");
}

#[test]
fn without_file_read_a_run_replaces_only_what_it_wrote() {
    let mut stage = Stage::new();
    stage.put("theirs", "old");
    stage.narrow(Narrowing::Only {
        authority: Authority::of([(Atom::FileWrite, Constraint::Any)]),
        named: vec![Atom::FileWrite],
    });
    let text = stage.refused(&Write, &json!({"path": "theirs", "content": "new"}));
    assert!(text.contains("neither wrote nor may read (`file/read` does not cover it)"), "{text}");
    assert_eq!(stage.get("theirs"), b"old");
    stage.ok(&Write, &json!({"path": "own", "content": "one"}));
    stage.ok(&Write, &json!({"path": "own", "content": "two"}));
    assert_eq!(stage.get("own"), b"two", "control");
    stage.put("own", "three");
    let text = stage.refused(&Write, &json!({"path": "own", "content": "four"}));
    assert!(text.contains("neither wrote nor may read"), "{text}");
    assert_eq!(stage.get("own"), b"three");
}

#[test]
fn a_directory_that_became_a_link_after_the_check_is_no_way_elsewhere() {
    let mut stage = Stage::new();
    for directory in ["src", "src/deep", "secret"] {
        fs::create_dir(stage.path(directory)).unwrap();
    }
    stage.put("src/deep/f", "own\n");
    stage.put("secret/f", "secret\n");
    stage.ok(&Read, &json!({"path": "src/deep/f"}));
    let everything = [Atom::FileRead, Atom::FileWrite, Atom::FileEdit];
    let under = Constraint::under([stage.path("src")]);
    stage.narrow(Narrowing::Only {
        authority: Authority::of(everything.clone().map(|atom| (atom, under.clone()))),
        named: everything.to_vec(),
    });
    let edits = json!([{"old": "own", "new": "changed"}]);
    let calls: [(&dyn Tool, Value); 6] = [
        (&Read, json!({"path": "src/deep/f"})),
        (&Read, json!({"path": "src/deep"})),
        (&crate::tool::find::Find, json!({"pattern": "*", "path": "src/deep"})),
        (&crate::tool::search::Search, json!({"pattern": "s", "path": "src/deep"})),
        (&Write, json!({"path": "src/deep/new", "content": "x"})),
        (&crate::tool::edit::Edit, json!({"path": "src/deep/f", "edits": edits})),
    ];
    for (tool, arguments) in &calls {
        let call = stage.prepare(*tool, arguments).unwrap();
        // The path was resolved and will be allowed; what it leads to changes now.
        fs::rename(stage.path("src/deep"), stage.path("kept")).unwrap();
        symlink("../secret", stage.path("src/deep")).unwrap();
        let outcome = stage.run(call);
        assert!(outcome.is_error, "{}: {}", tool.name(), outcome.text);
        assert!(outcome.text.contains("was changed by something else"), "{}", outcome.text);
        assert!(!outcome.text.contains("secret"), "{}", outcome.text);
        assert_eq!(fs::read_dir(stage.path("secret")).unwrap().count(), 1);
        assert_eq!(stage.get("secret/f"), b"secret\n");
        fs::remove_file(stage.path("src/deep")).unwrap();
        fs::rename(stage.path("kept"), stage.path("src/deep")).unwrap();
    }
    for (tool, arguments) in &calls {
        let outcome = stage.call(*tool, arguments);
        assert!(!outcome.is_error, "control: {}: {}", tool.name(), outcome.text);
    }
}
