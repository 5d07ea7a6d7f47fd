#![expect(clippy::disallowed_methods, reason = "tests and their support")]

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

use super::*;

fn place() -> tempfile::TempDir {
    let place = tempfile::tempdir_in("/var/tmp").unwrap();
    fs::set_permissions(place.path(), fs::Permissions::from_mode(0o755)).unwrap();
    place
}

fn name(number: u32) -> String {
    format!("{}{number}", tmp_prefix(rustix::process::geteuid().as_raw()))
}

#[test]
fn it_is_closed_to_others_and_gone_at_the_end_with_all_that_was_in_it() {
    let place = place();
    let outside = place.path().join("outside");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("kept"), "kept").unwrap();
    let path = place.path().join(name(1));
    let scratch = Scratch::new(&path).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o700);
    let inner = path.join(TMP_INNER);
    assert_eq!(fs::metadata(&inner).unwrap().mode() & 0o7777, 0o1777);
    // A chain deeper than any stack or table of descriptors, made relative to each other.
    let mut at = openat(&scratch.own, TMP_INNER.as_bytes()).unwrap();
    for _ in 0..3000 {
        rustix::fs::mkdirat(&at, "deep", Mode::RWXU).unwrap();
        at = openat(&at, b"deep").unwrap();
    }
    rustix::fs::symlinkat(&outside, &at, "link").unwrap();
    drop(at);
    symlink(&outside, inner.join("link")).unwrap();
    symlink("/", inner.join("root")).unwrap();
    for number in 1..30 {
        fs::write(inner.join(number.to_string()), "x").unwrap();
    }
    let locked = inner.join("locked/within");
    fs::create_dir_all(&locked).unwrap();
    fs::write(locked.join("file"), "x").unwrap();
    for mode in [0o000, 0o500] {
        fs::set_permissions(&locked, fs::Permissions::from_mode(mode)).unwrap();
        let above = locked.parent().unwrap();
        fs::set_permissions(above, fs::Permissions::from_mode(0o700)).unwrap();
    }
    fs::set_permissions(locked.parent().unwrap(), fs::Permissions::from_mode(0o000)).unwrap();
    drop(scratch);
    assert!(fs::symlink_metadata(&path).is_err(), "{:?}", fs::read_dir(&path));
    assert_eq!(fs::read_to_string(outside.join("kept")).unwrap(), "kept");
}

#[test]
fn what_a_killed_run_left_is_removed_and_what_goes_on_is_not() {
    let place = place();
    let running = Scratch::new(&place.path().join(name(1))).unwrap();
    fs::write(place.path().join(name(1)).join("tmp/work"), "x").unwrap();
    let left = place.path().join(name(2));
    fs::create_dir_all(left.join("tmp/deep")).unwrap();
    fs::write(left.join("tmp/deep/file"), "x").unwrap();
    // What is no directory, and what is not called so, is nobody's to remove.
    let linked = place.path().join(name(3));
    let target = place.path().join("target");
    fs::create_dir(&target).unwrap();
    fs::write(target.join("kept"), "x").unwrap();
    symlink(&target, &linked).unwrap();
    let second = Scratch::new(&place.path().join(name(4))).unwrap();
    assert!(!left.exists());
    assert!(place.path().join(name(1)).join("tmp/work").exists());
    assert!(linked.is_symlink() && target.join("kept").exists());
    drop((running, second));
    assert!(!place.path().join(name(1)).exists() && !place.path().join(name(4)).exists());
}

#[test]
fn a_name_that_was_given_to_something_else_meanwhile_is_left_alone() {
    let place = place();
    let path = place.path().join(name(1));
    let scratch = Scratch::new(&path).unwrap();
    let moved = place.path().join("moved");
    fs::rename(&path, &moved).unwrap();
    fs::create_dir(&path).unwrap();
    fs::write(path.join("theirs"), "x").unwrap();
    drop(scratch);
    assert!(path.join("theirs").exists());
    assert_eq!(fs::read_dir(&moved).unwrap().count(), 0, "its own is emptied");
}

#[test]
fn a_place_where_others_may_rename_is_refused() {
    let place = place();
    for (mode, fine) in [(0o777, false), (0o1777, true), (0o755, true), (0o775, true)] {
        fs::set_permissions(place.path(), fs::Permissions::from_mode(mode)).unwrap();
        let made = Scratch::new(&place.path().join(name(1)));
        assert_eq!(made.is_ok(), fine, "{mode:o}");
        if let Err(error) = made {
            let text = error.to_string();
            assert!(text.contains("another user") && text.contains("set TMPDIR"), "{text}");
            assert_eq!(fs::read_dir(place.path()).unwrap().count(), 0);
        }
    }
    symlink(place.path(), place.path().join("link")).unwrap();
    assert!(Scratch::new(&place.path().join("link").join(name(1))).is_err());
}
