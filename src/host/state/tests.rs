#![expect(clippy::disallowed_methods, reason = "the tests look at the disk themselves")]

use std::os::unix::fs::{PermissionsExt, symlink};

use super::*;

fn place() -> (tempfile::TempDir, Grant) {
    let place = tempfile::tempdir().unwrap();
    let grant = Grant::own_state(place.path());
    (place, grant)
}

#[test]
fn lines_are_appended_whole_and_a_torn_one_is_ended_first() {
    let (place, grant) = place();
    let path = place.path().join("log");
    let mut lines = open_append(&grant, &path).unwrap();
    lines.append(b"one").unwrap();
    lines.append(b"").unwrap();
    lines.sync().unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"one\n\n");
    lines.cut(2).unwrap();
    assert_eq!(lines.length().unwrap(), 2);
    lines.append(b"two").unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"on\ntwo\n");
    let error = lines.append(b"a\nb").unwrap_err().sentence();
    assert!(error.contains("a line cannot contain a line break"), "{error}");
    assert_eq!(fs::read(&path).unwrap(), b"on\ntwo\n");
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn the_lock_is_exclusive_and_goes_with_the_value() {
    let (place, grant) = place();
    let path = place.path().join("log");
    let first = open_append(&grant, &path).unwrap();
    let second = open_append(&grant, &path).unwrap();
    assert!(first.try_lock().unwrap());
    assert!(!second.try_lock().unwrap());
    drop(first);
    assert!(second.try_lock().unwrap());
}

#[test]
fn nothing_outside_the_granted_directory_is_touched() {
    let (place, grant) = place();
    let outside = tempfile::tempdir().unwrap();
    for path in
        [outside.path().join("x"), place.path().join("../x"), place.path().with_extension("beside")]
    {
        let refused = |outcome: Result<(), HostError>| {
            assert!(matches!(outcome, Err(HostError::NotGranted { .. })), "{outcome:?}");
        };
        refused(create_dir(&grant, &path));
        refused(open_append(&grant, &path).map(drop));
        refused(write_atomic(&grant, &path, b"x"));
        fs::write(place.path().join("from"), "x").unwrap();
        refused(rename(&grant, &place.path().join("from"), &path));
        refused(rename(&grant, &path, &place.path().join("to")));
        assert!(!path.exists(), "{}", path.display());
    }
    // Control: the same calls inside do what they say.
    let inside = place.path().join("a/b");
    create_dir(&grant, &inside).unwrap();
    assert_eq!(fs::metadata(&inside).unwrap().permissions().mode() & 0o777, 0o700);
    write_atomic(&grant, &inside.join("f"), b"x").unwrap();
    rename(&grant, &inside.join("f"), &inside.join("g")).unwrap();
    assert_eq!(read_dir(&inside).unwrap(), ["g"]);
}

#[test]
fn neither_a_link_nor_a_fifo_stands_for_a_file() {
    let (place, grant) = place();
    let secret = place.path().join("secret");
    fs::write(&secret, "s").unwrap();
    let link = place.path().join("link");
    symlink(&secret, &link).unwrap();
    assert_eq!(open_append(&grant, &link).unwrap_err().errno(), Some(libc::ELOOP));
    assert_eq!(open_read(&link).unwrap_err().errno(), Some(libc::ELOOP));
    assert_eq!(fs::read(&secret).unwrap(), b"s");
    let fifo = place.path().join("fifo");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &fifo,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
        0,
    )
    .unwrap();
    let error = open_read(&fifo).unwrap_err().sentence();
    assert!(error.ends_with("is a FIFO, not a regular file"), "{error}");
    assert!(matches!(open_append(&grant, &fifo), Err(HostError::Kind { .. })));
    assert_eq!(open_read(&secret).unwrap().metadata().unwrap().len(), 1, "control");
}

#[test]
fn a_failed_atomic_write_leaves_the_old_file_and_nothing_beside_it() {
    let (place, grant) = place();
    let target = place.path().join("d");
    create_dir(&grant, &target.join("full")).unwrap();
    // A directory cannot be replaced by a file.
    let error = write_atomic(&grant, &target, b"x").unwrap_err();
    assert_eq!(error.errno(), Some(libc::EISDIR));
    assert_eq!(read_dir(place.path()).unwrap(), ["d"]);
    write_atomic(&grant, &target.join("f"), b"one").unwrap();
    write_atomic(&grant, &target.join("f"), b"two").unwrap();
    assert_eq!(fs::read(target.join("f")).unwrap(), b"two");
    assert_eq!(read_dir(&target).unwrap(), ["f", "full"]);
}
