#![expect(clippy::disallowed_methods, reason = "tests look at the disk and damage it themselves")]

use std::{
    fs,
    os::unix::fs::{PermissionsExt as _, symlink},
    path::PathBuf,
    time::Duration,
};

use super::*;

const WORKSPACE: &str = "/w";

fn place() -> (tempfile::TempDir, PathBuf) {
    let place = tempfile::tempdir().unwrap();
    let root = fs::canonicalize(place.path()).unwrap().join("state");
    (place, root)
}

fn open(root: &Path) -> Checkpoints {
    Checkpoints::open(root, Path::new(WORKSPACE), "abcdefgh").unwrap()
}

fn wanted(group: u64, path: &str, before: &[u8]) -> Wanted {
    Wanted {
        group,
        undoes: false,
        prompt: 0,
        at: 2,
        path: Inside::new(path.into()).unwrap(),
        before: Former::File(before.to_vec(), 0o640),
        after: State::Absent,
        made: Vec::new(),
    }
}

fn directory(root: &Path) -> PathBuf {
    root.join(CHECKPOINTS).join(key(Path::new(WORKSPACE))).join("abcdefgh")
}

fn names(root: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory(root)).unwrap();
    let mut names: Vec<String> =
        entries.map(|it| it.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn what_is_kept_is_private_and_comes_back() {
    let (_place, root) = place();
    let mut store = open(&root);
    store.keep(wanted(1, "a", b"old")).unwrap();
    drop(store);
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
    let here = directory(&root);
    for path in here.ancestors().take_while(|path| path.starts_with(&root)) {
        assert_eq!(mode(path), 0o700, "{}", path.display());
    }
    for name in names(&root) {
        assert_eq!(mode(&here.join(name)), 0o600);
    }
    let store = open(&root);
    let State::File { digest, size: 3, mode: 0o640 } = store.book().changes()[0].before else {
        panic!("{:?}", store.book())
    };
    assert_eq!(store.content(digest).unwrap().unwrap(), b"old");
}

#[test]
fn one_process_at_a_time_has_a_session_and_others_are_not_disturbed() {
    let (_place, root) = place();
    let first = open(&root);
    let error = Checkpoints::open(&root, Path::new(WORKSPACE), "abcdefgh").unwrap_err();
    assert!(matches!(error, HostError::Locked { .. }), "{error}");
    let mut other = Checkpoints::open(&root, Path::new(WORKSPACE), "other").unwrap();
    other.keep(wanted(1, "a", b"x")).unwrap();
    assert!(first.book().changes().is_empty());
    drop(first);
    assert!(Checkpoints::open(&root, Path::new(WORKSPACE), "abcdefgh").is_ok(), "control");
}

#[test]
fn a_content_that_was_changed_does_not_come_back() {
    let (_place, root) = place();
    let mut store = open(&root);
    store.keep(wanted(1, "a", b"old")).unwrap();
    let digest = Digest::of(b"old");
    assert!(store.content(digest).unwrap().is_some(), "control");
    let blob = directory(&root).join(digest.name());
    fs::write(&blob, "bad").unwrap();
    assert_eq!(store.content(digest).unwrap(), None, "other bytes");
    fs::write(&blob, vec![0; usize::try_from(LONGEST_FILE).unwrap() + 1]).unwrap();
    assert_eq!(store.content(digest).unwrap(), None, "too long");
    fs::remove_file(&blob).unwrap();
    let secret = root.join("secret");
    fs::write(&secret, "old").unwrap();
    symlink(&secret, &blob).unwrap();
    assert!(store.content(digest).is_err(), "a link, even to the right bytes");
    fs::remove_file(&blob).unwrap();
    rustix::fs::mkfifoat(rustix::fs::CWD, &blob, rustix::fs::Mode::RUSR).unwrap();
    assert!(store.content(digest).is_err(), "a FIFO, without waiting");
}

#[test]
fn a_link_in_the_place_of_a_directory_is_refused() {
    for depth in 0..3 {
        let (_place, root) = place();
        drop(open(&root));
        let here = directory(&root);
        let at = here.ancestors().nth(depth).unwrap();
        let elsewhere = root.with_file_name("elsewhere");
        fs::rename(at, &elsewhere).unwrap();
        symlink(&elsewhere, at).unwrap();
        let error = Checkpoints::open(&root, Path::new(WORKSPACE), "abcdefgh").unwrap_err();
        assert!(matches!(error, HostError::Kind { .. }), "{depth}: {error}");
        assert!(View::read(&root, Path::new(WORKSPACE), "abcdefgh").is_err(), "{depth}");
    }
}

#[test]
fn forged_and_broken_lines_are_left_out() {
    let (_place, root) = place();
    let mut store = open(&root);
    store.keep(wanted(1, "a", b"old")).unwrap();
    drop(store);
    let log = directory(&root).join(LOG);
    let good = fs::read_to_string(&log).unwrap();
    let line = good.lines().nth(1).unwrap().replace("\"number\":0", "\"number\":7");
    let control = line.replace(r#""path":"a""#, r#""path":"c""#);
    let forged = [
        line.replace(r#""path":"a""#, r#""path":"../../etc/passwd""#),
        line.replace(r#""path":"a""#, r#""path":"/etc/passwd""#),
        line.replace(r#""path":"a""#, r#""path":".git/hooks/post-commit""#),
        line.replace(r#""path":"a""#, r#""path":"x\u0000y""#),
        line.replace("\"number\":7", "\"number\":18446744073709551615"),
        r#"{"type":"change"}"#.to_owned(),
        r#"{"type":"unknown"}"#.to_owned(),
        "[".repeat(100_000),
        "{\"type\":\"told\"".to_owned(),
    ];
    assert_ne!(forged[0], line);
    fs::write(&log, format!("{good}{}\n{control}\n", forged.join("\n"))).unwrap();
    let store = open(&root);
    let paths: Vec<&Path> = store.book().changes().iter().map(|it| it.path.path()).collect();
    assert_eq!(paths, [Path::new("a"), Path::new("c")], "the first and the control");
    assert!(!store.is_own(7), "whoever wrote it");
    drop(store);
    fs::write(&log, r#"{"type":"checkpoints","version":2}"#).unwrap();
    let error = Checkpoints::open(&root, Path::new(WORKSPACE), "abcdefgh").unwrap_err();
    assert!(error.to_string().contains("newer format"), "{error}");
}

#[test]
fn own_changes_are_known_again_and_those_of_an_earlier_run_are_not() {
    let (_place, root) = place();
    let workspace = Path::new("/own");
    let open = || Checkpoints::open(&root, workspace, "abcdefgh").unwrap();
    let mut store = open();
    store.keep(wanted(1, "a", b"old")).unwrap();
    assert!(store.is_own(0));
    drop(store);
    Checkpoints::inherit(&root, workspace, "abcdefgh", "copy", 0).unwrap();
    assert!(Checkpoints::open(&root, workspace, "copy").unwrap().is_own(0), "by its content");
    forget_own(workspace);
    assert!(!open().is_own(0));
}

#[test]
fn a_session_keeps_within_its_bounds_and_says_what_went() {
    let (_place, root) = place();
    let bounds = Bounds { bytes: 1000, changes: 20 };
    let open = |bounds| Checkpoints::open_within(&root, Path::new(WORKSPACE), "abcdefgh", bounds);
    let mut store = open(bounds).unwrap();
    for n in 0..100_u64 {
        let content = format!("{n:0>90}");
        store.keep(wanted(n / 3 + 1, &format!("f{n}"), content.as_bytes())).unwrap();
        assert!(store.book().changes().len() <= 20);
        let on_disk: u64 = names(&root)
            .iter()
            .filter(|name| name.as_str() != LOG)
            .map(|name| fs::metadata(directory(&root).join(name)).unwrap().len())
            .sum();
        assert!(on_disk <= 1000, "{on_disk}");
    }
    let kept = store.book().changes().len();
    assert_eq!(store.book().dropped(), 100 - kept as u64);
    let last = store.book().changes().last().unwrap().clone();
    drop(store);
    let store = open(bounds).unwrap();
    assert_eq!((store.book().changes().len(), store.book().dropped()), (kept, 100 - kept as u64));
    assert_eq!(store.book().changes().last(), Some(&last));
    for change in store.book().changes() {
        let State::File { digest, .. } = change.before else { panic!("{change:?}") };
        assert!(store.content(digest).unwrap().is_some(), "{change:?}");
    }
}

#[test]
fn new_files_count_for_the_bounds_too() {
    let (_place, root) = place();
    let bounds = Bounds { bytes: 1000, changes: 20 };
    let mut store =
        Checkpoints::open_within(&root, Path::new(WORKSPACE), "abcdefgh", bounds).unwrap();
    for n in 0..100_u64 {
        let new = Wanted { before: Former::Absent, ..wanted(n + 1, &format!("f{n}"), b"") };
        store.keep(new).unwrap();
        assert!(store.book().changes().len() <= 20, "{n}");
    }
    let kept = store.book().changes().len() as u64;
    assert_eq!((store.book().dropped(), kept > 0), (100 - kept, true));
}

#[test]
fn one_content_too_long_for_the_bounds_still_leaves_a_valid_store() {
    let (_place, root) = place();
    let bounds = Bounds { bytes: 10, changes: 20 };
    let mut store =
        Checkpoints::open_within(&root, Path::new(WORKSPACE), "abcdefgh", bounds).unwrap();
    store.keep(wanted(1, "a", b"12345")).unwrap();
    store.keep(wanted(1, "b", b"123456")).unwrap();
    assert_eq!(store.book().changes().len(), 1);
    assert_eq!(store.book().changes()[0].path.path(), Path::new("b"));
}

#[test]
fn what_a_killed_process_left_is_cleared_away() {
    let (_place, root) = place();
    let mut store = open(&root);
    store.keep(wanted(1, "a", b"old")).unwrap();
    drop(store);
    let here = directory(&root);
    fs::write(here.join(".kli-0123456789abcdef.tmp"), "half").unwrap();
    fs::write(here.join(Digest::of(b"nobody").name()), "nobody").unwrap();
    // A torn last line.
    let log = here.join(LOG);
    let mut text = fs::read(&log).unwrap();
    text.extend(br#"{"type":"change","number":1,"#);
    fs::write(&log, text).unwrap();
    let mut store = open(&root);
    assert_eq!(names(&root).len(), 2, "{:?}", names(&root));
    store.keep(wanted(2, "b", b"new")).unwrap();
    drop(store);
    assert_eq!(open(&root).book().changes().len(), 2, "a torn line swallows no other");
}

#[test]
fn no_space_keeps_nothing_more_and_says_so() {
    let (_place, root) = place();
    let mut store = open(&root);
    store.keep(wanted(1, "a", b"old")).unwrap();
    // The place of the content is taken by a directory: it cannot be moved there.
    fs::create_dir(directory(&root).join(Digest::of(b"other").name())).unwrap();
    assert!(store.keep(wanted(1, "b", b"other")).is_err());
    assert_eq!(store.book().changes().len(), 1);
    assert!(!names(&root).iter().any(|name| name.starts_with(".kli-")), "{:?}", names(&root));
    store.keep(wanted(1, "c", b"third")).unwrap();
}

#[test]
fn a_copy_of_a_session_has_its_checkpoints() {
    let (_place, root) = place();
    let mut store = open(&root);
    store.keep(wanted(1, "a", b"old")).unwrap();
    store.keep(Wanted { prompt: 9, at: 11, ..wanted(2, "b", b"other") }).unwrap();
    let workspace = Path::new(WORKSPACE);
    Checkpoints::inherit(&root, workspace, "abcdefgh", "copy", 9).unwrap();
    Checkpoints::inherit(&root, workspace, "none", "copyofnone", 9).unwrap();
    assert!(View::read(&root, workspace, "copyofnone").unwrap().is_none());
    let copy = Checkpoints::open(&root, workspace, "copy").unwrap();
    assert_eq!(copy.book().changes().len(), 2);
    assert_eq!(copy.content(Digest::of(b"other")).unwrap().unwrap(), b"other");
    assert_eq!(copy.book().since(9), Vec::<u64>::new());
    assert_eq!(copy.book().untold().1[0].path(), Path::new("b"), "it stands");
    // Dropping the one leaves the other.
    fs::remove_dir_all(directory(&root)).unwrap();
    assert!(copy.content(Digest::of(b"old")).unwrap().is_some());
}

#[test]
fn all_sessions_together_keep_within_their_bounds() {
    let (_place, root) = place();
    let workspace = Path::new(WORKSPACE);
    let below = root.join(CHECKPOINTS).join(key(workspace));
    let age = |id: &str, days: u64| {
        let file = fs::File::options().write(true).open(below.join(id).join(LOG)).unwrap();
        file.set_modified(crate::host::environment::now() - Duration::from_hours(24 * days))
            .unwrap();
    };
    for (id, days) in [("one", 3), ("two", 2), ("three", 1)] {
        let mut store = Checkpoints::open(&root, workspace, id).unwrap();
        store.keep(wanted(1, "a", &[b'x'; 4000])).unwrap();
        drop(store);
        age(id, days);
        // Their sessions are there.
        let sessions = root.join("sessions").join(key(workspace));
        fs::create_dir_all(&sessions).unwrap();
        fs::write(sessions.join(format!("20261129T174423Z-{id}.jsonl")), "").unwrap();
    }
    let left = || {
        let mut names: Vec<_> =
            fs::read_dir(&below).unwrap().map(|it| it.unwrap().file_name()).collect();
        names.sort();
        names
    };
    sweep::sweep_within(&root, 1 << 20, 10).unwrap();
    assert_eq!(left(), ["one", "three", "two"], "control");
    sweep::sweep_within(&root, 10_000, 10).unwrap();
    assert_eq!(left(), ["three", "two"], "the oldest goes");
    // One that is open stays.
    let open = Checkpoints::open(&root, workspace, "two").unwrap();
    sweep::sweep_within(&root, 0, 10).unwrap();
    assert_eq!(left(), ["two"]);
    drop(open);
    age("two", 2);
    fs::remove_dir_all(root.join("sessions")).unwrap();
    sweep::sweep(&root).unwrap();
    assert_eq!(left(), Vec::<OsString>::new(), "its session is gone");
    // A link among them leads nowhere.
    let elsewhere = root.with_file_name("precious");
    fs::create_dir(&elsewhere).unwrap();
    fs::write(elsewhere.join(LOG), "x").unwrap();
    symlink(&elsewhere, below.join("link")).unwrap();
    symlink(&elsewhere, root.join(CHECKPOINTS).join("link")).unwrap();
    sweep::sweep_within(&root, 0, 0).unwrap();
    assert!(elsewhere.join(LOG).exists());
}
