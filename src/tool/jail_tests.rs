//! What the file tools say inside a jail, and what they do on a full disk: run under bubblewrap,
//! which these tests need and without which they fail.

#![expect(clippy::disallowed_methods, reason = "tests set up the disk and the jail themselves")]

use std::{fs, path::Path, process::Command};

use serde_json::json;

use super::{edit::Edit, read::Read, stage::Stage, write::Write};
use crate::host::Host;

/// The test below: inside the jail it does the inner half.
const THIS: &str =
    "tool::jail_tests::the_jails_refusals_name_the_rule_and_a_full_disk_loses_nothing";

#[test]
fn the_jails_refusals_name_the_rule_and_a_full_disk_loses_nothing() {
    if let Some(place) = std::env::var_os("KLI_TEST_PLACE") {
        return inner(Path::new(&place));
    }
    let outside = tempfile::tempdir().unwrap();
    let place = fs::canonicalize(outside.path()).unwrap();
    for directory in ["read-only", "masked-dir", "small", "tmp"] {
        fs::create_dir(place.join(directory)).unwrap();
    }
    for file in ["read-only/f", "masked", "masked-dir/secret", "marker", "ordinary"] {
        fs::write(place.join(file), "old").unwrap();
    }
    fs::write(place.join("empty"), "").unwrap();
    let at = |name: &str| place.join(name).display().to_string();
    let mut jail = Command::new("bwrap");
    jail.args(["--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"]);
    jail.args(["--bind", &at(""), &at("")]);
    jail.args(["--ro-bind", &at("read-only"), &at("read-only")]);
    jail.args(["--ro-bind", &at("empty"), &at("masked")]);
    jail.args(["--perms", "0555", "--tmpfs", &at("masked-dir"), "--remount-ro", &at("masked-dir")]);
    jail.args(["--size", "262144", "--tmpfs", &at("small")]);
    jail.arg(std::env::current_exe().unwrap());
    jail.args(["--exact", THIS, "--nocapture"]).env("KLI_TEST_PLACE", &place);
    jail.env("TMPDIR", at("tmp"));
    let output = jail.output().expect("bubblewrap (bwrap) is needed to run this test");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.contains("1 passed"), "{text}");
    for file in ["read-only/f", "masked", "masked-dir/secret"] {
        assert_eq!(fs::read(place.join(file)).unwrap(), b"old", "{file}");
    }
    assert_eq!(fs::read(place.join("ordinary")).unwrap(), b"new", "control");
}

fn inner(place: &Path) {
    let at = |name: &str| place.join(name).display().to_string();
    let jailed = Stage::with_host(Host::with_marker(place.join("marker")));
    let free = Stage::new();
    let (read_only, masked) = ("`writablePaths` would change that", "hidden inside: `denyRead`");
    let edits = json!([{"old": "old", "new": "new"}]);
    for (tool, arguments) in [
        (&Write as &dyn super::Tool, json!({"path": at("read-only/new"), "content": "x"})),
        (&Write, json!({"path": at("read-only/a/b"), "content": "x"})),
        (&Edit, json!({"path": at("read-only/f"), "edits": edits})),
    ] {
        let text = jailed.refused(tool, &arguments);
        assert!(text.contains("read-only file system\nsandbox: "), "{text}");
        assert!(text.ends_with(read_only), "{text}");
        let text = free.refused(tool, &arguments);
        assert!(text.ends_with("read-only file system"), "no jail, no rule: {text}");
    }
    let text = jailed.refused(&Write, &json!({"path": at("masked"), "content": "x"}));
    assert!(text.contains("read-only file system") && text.contains(masked), "{text}");
    for name in ["masked", "masked-dir"] {
        let text = jailed.ok(&Read, &json!({"path": at(name)}));
        assert!(text.contains("(empty ") && text.contains(masked), "{text}");
        assert!(!free.ok(&Read, &json!({"path": at(name)})).contains("sandbox"));
    }
    assert_eq!(jailed.ok(&Read, &json!({"path": at("empty")})), "(empty file)", "control");
    jailed.ok(&Edit, &json!({"path": at("ordinary"), "edits": edits}));

    let small = at("small/f");
    jailed.ok(&Write, &json!({"path": small, "content": "old"}));
    let big = "x".repeat(1 << 20);
    let text = jailed.refused(&Write, &json!({"path": small, "content": big}));
    assert!(text.ends_with("no space left on device"), "{text}");
    assert_eq!(fs::read(&small).unwrap(), b"old");
    let text = jailed.refused(&Write, &json!({"path": at("small/d/e/f"), "content": big}));
    assert!(text.ends_with("no space left on device"), "{text}");
    assert_eq!(fs::read_dir(place.join("small")).unwrap().count(), 1, "nothing is left beside it");
    jailed.ok(&Write, &json!({"path": small, "content": "fits"}));
    assert_eq!(fs::read(&small).unwrap(), b"fits", "control");
}
