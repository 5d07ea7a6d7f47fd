#![expect(clippy::disallowed_methods, reason = "the tests look at the disk themselves")]

use std::os::unix::fs::{PermissionsExt, symlink};

use super::*;

fn place() -> (tempfile::TempDir, Grant) {
    let place = tempfile::tempdir().unwrap();
    let grant = Grant::own_state(place.path());
    (place, grant)
}

fn directory(path: &Path) -> Directory {
    Directory::open(path, &[]).unwrap().unwrap()
}

fn append(grant: &Grant, path: &Path) -> Result<Lines, HostError> {
    directory(path.parent().unwrap()).append(grant, path.file_name().unwrap())
}

fn read(path: &Path) -> Result<File, HostError> {
    directory(path.parent().unwrap()).read(path.file_name().unwrap())
}

#[test]
fn lines_are_appended_whole_and_a_torn_one_is_ended_first() {
    let (place, grant) = place();
    let path = place.path().join("log");
    let mut lines = append(&grant, &path).unwrap();
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
    let first = append(&grant, &path).unwrap();
    let second = append(&grant, &path).unwrap();
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
        refused(append(&grant, &path).map(drop));
        refused(write_atomic(&grant, &path, b"x"));
        fs::write(place.path().join("from"), "x").unwrap();
        let (name, from) = (path.file_name().unwrap(), OsString::from("from"));
        let elsewhere = directory(path.parent().unwrap());
        refused(elsewhere.rename(&grant, &from, name));
        refused(elsewhere.rename(&grant, name, &from));
        refused(Directory::create(&grant, outside.path(), &[name]).map(drop));
        assert!(!path.exists(), "{}", path.display());
    }
    // Control: the same calls inside do what they say.
    let inside = place.path().join("a/b");
    create_dir(&grant, &inside).unwrap();
    assert_eq!(fs::metadata(&inside).unwrap().permissions().mode() & 0o777, 0o700);
    write_atomic(&grant, &inside.join("f"), b"x").unwrap();
    directory(&inside).rename(&grant, "f".as_ref(), "g".as_ref()).unwrap();
    assert_eq!(read_dir(&inside).unwrap(), ["g"]);
}

#[test]
fn neither_a_link_nor_a_fifo_stands_for_a_file() {
    let (place, grant) = place();
    let secret = place.path().join("secret");
    fs::write(&secret, "s").unwrap();
    let link = place.path().join("link");
    symlink(&secret, &link).unwrap();
    assert_eq!(append(&grant, &link).unwrap_err().errno(), Some(libc::ELOOP));
    assert_eq!(read(&link).unwrap_err().errno(), Some(libc::ELOOP));
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
    let error = read(&fifo).unwrap_err().sentence();
    assert!(error.ends_with("is a FIFO, not a regular file"), "{error}");
    assert!(matches!(append(&grant, &fifo), Err(HostError::Kind { .. })));
    assert_eq!(read(&secret).unwrap().metadata().unwrap().len(), 1, "control");
    // A second name of another file: reading is harmless, appending would change both.
    let second = place.path().join("second");
    fs::hard_link(&secret, &second).unwrap();
    let error = append(&grant, &second).unwrap_err().sentence();
    assert!(error.contains("several names (hard links), not a file of its own"), "{error}");
    assert_eq!(read(&second).unwrap().metadata().unwrap().len(), 1);
    fs::remove_file(&second).unwrap();
    append(&grant, &secret).unwrap().append(b"control").unwrap();
}

#[test]
fn a_link_on_the_way_below_the_root_is_not_followed() {
    let (place, grant) = place();
    let outside = tempfile::tempdir().unwrap();
    symlink(outside.path(), place.path().join("a")).unwrap();
    let names: [&std::ffi::OsStr; 2] = ["a".as_ref(), "b".as_ref()];
    let refused = |error: HostError| {
        let error = error.sentence();
        assert!(
            error.ends_with("/a` is a link or a file, not a directory; move it away"),
            "{error}"
        );
    };
    refused(Directory::open(place.path(), &names).unwrap_err());
    refused(Directory::create(&grant, place.path(), &names).unwrap_err());
    assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 0);
    fs::remove_file(place.path().join("a")).unwrap();
    assert!(Directory::open(place.path(), &names).unwrap().is_none(), "nothing is made by looking");
    // Control; and the root itself may be reached through a link of the user's.
    Directory::create(&grant, place.path(), &names).unwrap();
    let root = outside.path().join("root");
    symlink(place.path(), &root).unwrap();
    assert!(Directory::open(&root, &names).unwrap().is_some());
    // What was opened stays what it is when a link takes its place.
    let held = Directory::open(place.path(), &names).unwrap().unwrap();
    fs::rename(place.path().join("a"), place.path().join("moved")).unwrap();
    symlink(outside.path(), place.path().join("a")).unwrap();
    held.append(&grant, "x".as_ref()).unwrap().append(b"x").unwrap();
    assert!(place.path().join("moved/b/x").exists() && !outside.path().join("b").exists());
}

#[test]
fn a_sync_that_fails_is_an_error() {
    // A pipe cannot be synced (fsync(2): EINVAL), as a disk that fails cannot (EIO).
    let (reader, writer) = io::pipe().unwrap();
    let file = File::from(std::os::fd::OwnedFd::from(writer));
    let error = Lines { file, path: "/x".into() }.sync().unwrap_err().sentence();
    assert!(error.starts_with("cannot sync `/x`: "), "{error}");
    drop(reader);
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
