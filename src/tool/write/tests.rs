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
