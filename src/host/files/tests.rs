#![expect(clippy::disallowed_methods, reason = "tests set up and look at the disk themselves")]

use std::{
    fs,
    os::unix::{
        ffi::OsStrExt as _,
        fs::{MetadataExt, PermissionsExt, symlink},
        process::CommandExt,
    },
    process::Command,
    sync::atomic::{AtomicBool, Ordering},
};

use super::*;
use crate::authority::{Atom, Grant, Request, Subject};

fn place() -> (tempfile::TempDir, PathBuf) {
    let place = tempfile::tempdir().unwrap();
    let path = fs::canonicalize(place.path()).unwrap();
    (place, path)
}

fn grant(path: &Path) -> Grant {
    Subject::new([]).check(Request::path(Atom::FileWrite, path)).unwrap()
}

fn replace(
    grant: &Grant,
    path: &Path,
    content: &[u8],
    expected: Expected,
) -> Result<Replaced, HostError> {
    super::replace(grant, path, content, expected, &AtomicBool::new(false))
}

fn names(path: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(path)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

fn unchanged(path: &Path) -> Expected {
    Expected::Unchanged(read_whole(path, 1 << 20).unwrap().unwrap().1)
}

#[test]
fn a_spelled_path_becomes_the_physical_one() {
    let (_place, base) = place();
    fs::create_dir_all(base.join("real/sub")).unwrap();
    symlink("real", base.join("link")).unwrap();
    symlink(base.join("real/sub"), base.join("absolute")).unwrap();
    symlink("nowhere/x", base.join("dangling")).unwrap();
    let home = base.join("real");
    for (spelled, physical) in [
        ("a", "a"),
        ("./link/../a//b/", "a/b"),
        ("link/sub/new/file", "real/sub/new/file"),
        ("absolute/..", "real"),
        ("~", "real"),
        ("~/x", "real/x"),
        ("~x", "~x"),
        ("dangling", "nowhere/x"),
        (".", ""),
    ] {
        let found = resolve(Path::new(spelled), &base, Some(&home)).unwrap();
        assert_eq!(found, base.join(physical).components().collect::<PathBuf>(), "{spelled}");
    }
    let bytes = OsStr::from_bytes(b"caf\xe9");
    assert_eq!(resolve(Path::new(bytes), &base, None).unwrap(), base.join(bytes));
    assert_eq!(resolve(Path::new("/../.."), &base, None).unwrap(), PathBuf::from("/"));
    assert!(matches!(resolve(Path::new("~"), &base, None), Err(HostError::Path { .. })));
}

#[test]
fn a_grant_for_another_path_writes_nothing() {
    let (_place, base) = place();
    let target = base.join("a/b");
    let read = Subject::new([]).check(Request::path(Atom::FileRead, &target)).unwrap();
    for wrong in [grant(&base.join("a")), grant(&base.join("a/bb")), read, Grant::own_state(&base)]
    {
        let error = replace(&wrong, &target, b"x", Expected::Absent).unwrap_err();
        assert!(matches!(error, HostError::NotGranted { .. }));
        assert_eq!(names(&base), Vec::<String>::new());
    }
    replace(&grant(&target), &target, b"x", Expected::Absent).unwrap();
    assert_eq!(fs::read(&target).unwrap(), b"x", "control");
}

#[test]
fn a_component_that_became_a_link_is_no_way_elsewhere() {
    let (_place, base) = place();
    fs::create_dir_all(base.join("ws/dir")).unwrap();
    fs::create_dir(base.join("outside")).unwrap();
    fs::write(base.join("outside/f"), "secret").unwrap();
    let target = resolve(Path::new("dir/f"), &base.join("ws"), None).unwrap();
    fs::rename(base.join("ws/dir"), base.join("ws/moved")).unwrap();
    symlink("../outside", base.join("ws/dir")).unwrap();
    for expected in [Expected::Absent, unchanged(&base.join("outside/f"))] {
        let error = replace(&grant(&target), &target, b"x", expected).unwrap_err();
        assert!(matches!(error, HostError::Changed { .. }), "{error}");
    }
    assert!(matches!(open(&target), Err(HostError::Changed { .. })));
    // The last component, too.
    let last = base.join("ws/last");
    symlink("../outside/f", &last).unwrap();
    let error = replace(&grant(&last), &last, b"x", Expected::Absent).unwrap_err();
    assert!(matches!(error, HostError::Changed { .. }), "{error}");
    assert!(matches!(open(&last), Err(HostError::Changed { .. })));
    assert_eq!(fs::read(base.join("outside/f")).unwrap(), b"secret");
    assert_eq!(names(&base.join("outside")), ["f"]);
    fs::remove_file(base.join("ws/dir")).unwrap();
    fs::rename(base.join("ws/moved"), base.join("ws/dir")).unwrap();
    replace(&grant(&target), &target, b"x", Expected::Absent).unwrap();
    assert_eq!(fs::read(base.join("ws/dir/f")).unwrap(), b"x", "control");
}

#[test]
fn a_directory_that_flips_to_a_link_under_way_never_lets_a_write_out() {
    let (_place, base) = place();
    fs::create_dir_all(base.join("ws/dir")).unwrap();
    fs::create_dir(base.join("outside")).unwrap();
    symlink(base.join("outside"), base.join("ws/evil")).unwrap();
    let stop = AtomicBool::new(false);
    let written = std::thread::scope(|scope| {
        scope.spawn(|| {
            use rustix::fs::{RenameFlags, renameat_with};
            for flip in 0_u32.. {
                if stop.load(Ordering::Relaxed) {
                    break;
                }
                if flip % 64 == 0 {
                    // A pause now and then, or on a busy machine no write would ever pass.
                    std::thread::sleep(std::time::Duration::from_micros(300));
                }
                let (a, b) = (base.join("ws/dir"), base.join("ws/evil"));
                renameat_with(CWD, &a, CWD, &b, RenameFlags::EXCHANGE).unwrap();
            }
        });
        let target = base.join("ws/dir/f");
        let mut written = 0;
        for n in 0..100_000 {
            if n >= 400 && written >= 5 {
                break;
            }
            let expected = match open(&target) {
                Ok(Opened::File(_, stamp)) => Expected::Unchanged(stamp),
                _ => Expected::Absent,
            };
            let outcome = replace(&grant(&target), &target, n.to_string().as_bytes(), expected);
            written += usize::from(outcome.is_ok());
        }
        stop.store(true, Ordering::Relaxed);
        written
    });
    assert_eq!(names(&base.join("outside")), Vec::<String>::new());
    assert!(written > 0, "control: some writes met the directory");
    let real =
        if fs::symlink_metadata(base.join("ws/dir")).unwrap().is_dir() { "dir" } else { "evil" };
    assert_eq!(names(&base.join("ws").join(real)), ["f"], "no temporary file is left");
}

#[test]
fn a_file_that_changed_or_came_meanwhile_is_left_alone() {
    let (_place, base) = place();
    let target = base.join("f");
    fs::write(&target, "old").unwrap();
    let before = unchanged(&target);
    fs::write(&target, "theirs").unwrap();
    for expected in [before, Expected::Absent] {
        let error = replace(&grant(&target), &target, b"x", expected).unwrap_err();
        assert!(matches!(error, HostError::Changed { .. }), "{error}");
    }
    assert_eq!(fs::read(&target).unwrap(), b"theirs");
    fs::remove_file(&target).unwrap();
    assert!(matches!(
        replace(&grant(&target), &target, b"x", before),
        Err(HostError::Changed { .. })
    ));
    assert_eq!(names(&base), Vec::<String>::new());
    replace(&grant(&target), &target, b"x", Expected::Absent).unwrap();
    assert_eq!(names(&base), ["f"], "control");
}

#[test]
fn owner_and_mode_are_kept_and_a_new_file_follows_the_umask() {
    let (_place, base) = place();
    let target = base.join("f");
    fs::write(&target, "old").unwrap();
    fs::set_permissions(&target, fs::Permissions::from_mode(0o640)).unwrap();
    let is_root = rustix::process::geteuid().is_root();
    if is_root {
        std::os::unix::fs::chown(&target, Some(54321), Some(54322)).unwrap();
    }
    replace(&grant(&target), &target, b"new", unchanged(&target)).unwrap();
    let metadata = fs::metadata(&target).unwrap();
    assert_eq!(metadata.permissions().mode() & 0o7777, 0o640);
    if is_root {
        assert_eq!((metadata.uid(), metadata.gid()), (54321, 54322));
    }
    let new = base.join("new");
    replace(&grant(&new), &new, b"x", Expected::Absent).unwrap();
    fs::write(base.join("control"), "x").unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
    assert_eq!(mode(&new), mode(&base.join("control")));
}

/// Runs a test alone in a child, as an ordinary user when this process is root. The child finds
/// [`inner`] and does its half.
fn as_ordinary_user(name: &str, place: &Path) {
    // A copy: the build directory may lie where another user cannot look.
    let copy =
        tempfile::Builder::new().permissions(fs::Permissions::from_mode(0o755)).tempdir().unwrap();
    let program = copy.path().join("tests");
    fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    let mut command = Command::new(program);
    command.args(["--exact", name, "--nocapture"]).env("KLI_TEST_PLACE", place);
    if rustix::process::geteuid().is_root() {
        command.uid(54321).gid(54321);
        for path in [place.to_owned()]
            .into_iter()
            .chain(fs::read_dir(place).unwrap().map(|entry| entry.unwrap().path()))
        {
            std::os::unix::fs::chown(path, Some(54321), Some(54321)).unwrap();
        }
    }
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.contains("1 passed"), "{text}");
}

/// The place that a child works in; nothing in the process that runs all tests.
fn inner() -> Option<PathBuf> {
    std::env::var_os("KLI_TEST_PLACE").map(PathBuf::from)
}

#[test]
fn a_read_only_file_is_refused_and_stands() {
    if let Some(place) = inner() {
        return inner_read_only_file(&place);
    }
    let (_place, base) = place();
    fs::write(base.join("f"), "old").unwrap();
    fs::set_permissions(base.join("f"), fs::Permissions::from_mode(0o444)).unwrap();
    as_ordinary_user("host::files::tests::a_read_only_file_is_refused_and_stands", &base);
    assert_eq!(fs::read(base.join("f")).unwrap(), b"new", "control: after chmod it was written");
    assert_eq!(names(&base), ["f"]);
}

fn inner_read_only_file(place: &Path) {
    let target = place.join("f");
    let before = unchanged(&target);
    let error = replace(&grant(&target), &target, b"new", before).unwrap_err();
    assert_eq!(error.errno(), Some(libc::EACCES));
    assert_eq!(fs::read(&target).unwrap(), b"old");
    fs::set_permissions(&target, fs::Permissions::from_mode(0o644)).unwrap();
    replace(&grant(&target), &target, b"new", unchanged(&target)).unwrap();
}

#[test]
fn where_the_directory_takes_no_file_a_writable_file_is_written_in_place() {
    if let Some(place) = inner() {
        return inner_in_place(&place);
    }
    let (_place, base) = place();
    fs::create_dir(base.join("d")).unwrap();
    fs::write(base.join("d/f"), "old and long").unwrap();
    if rustix::process::geteuid().is_root() {
        std::os::unix::fs::chown(base.join("d/f"), Some(54321), Some(54321)).unwrap();
    }
    as_ordinary_user(
        "host::files::tests::where_the_directory_takes_no_file_a_writable_file_is_written_in_place",
        &base,
    );
    assert_eq!(fs::read(base.join("d/f")).unwrap(), b"new");
}

fn inner_in_place(place: &Path) {
    let directory = place.join("d");
    let (target, new) = (directory.join("f"), directory.join("g"));
    fs::set_permissions(&directory, fs::Permissions::from_mode(0o555)).unwrap();
    let error = replace(&grant(&new), &new, b"x", Expected::Absent).unwrap_err();
    assert_eq!(error.errno(), Some(libc::EACCES), "a new file is refused");
    let before = fs::metadata(&target).unwrap().ino();
    let replaced = replace(&grant(&target), &target, b"new", unchanged(&target)).unwrap();
    assert!(replaced.in_place);
    assert_eq!(fs::metadata(&target).unwrap().ino(), before);
    assert_eq!(names(&directory), ["f"]);
    fs::set_permissions(&directory, fs::Permissions::from_mode(0o755)).unwrap();
    let replaced = replace(&grant(&target), &target, b"new", unchanged(&target)).unwrap();
    assert!(!replaced.in_place, "control");
}

#[test]
fn when_the_content_does_not_fit_the_old_file_stands_and_nothing_is_left() {
    if let Some(place) = inner() {
        return inner_does_not_fit(&place);
    }
    let (_place, base) = place();
    fs::write(base.join("f"), "old").unwrap();
    as_ordinary_user(
        "host::files::tests::when_the_content_does_not_fit_the_old_file_stands_and_nothing_is_left",
        &base,
    );
    assert_eq!(fs::read(base.join("f")).unwrap(), b"fits");
    assert_eq!(names(&base), ["f"]);
}

fn inner_does_not_fit(place: &Path) {
    use rustix::process::{Resource, Rlimit, setrlimit};
    let base = place;
    // A file-size limit stops a write in its middle as a full disk does (EFBIG for ENOSPC); the
    // signal that comes with it is ignored, so that the write returns.
    setrlimit(Resource::Fsize, Rlimit { current: Some(100_000), maximum: Some(100_000) }).unwrap();
    ignore_file_size_signal();
    let target = base.join("f");
    let big = vec![b'x'; 10_000_000];
    let error = replace(&grant(&target), &target, &big, unchanged(&target)).unwrap_err();
    assert_eq!(error.errno(), Some(libc::EFBIG));
    assert_eq!(fs::read(&target).unwrap(), b"old");
    let new = base.join("a/b/new");
    let error = replace(&grant(&new), &new, &big, Expected::Absent).unwrap_err();
    assert_eq!(error.errno(), Some(libc::EFBIG));
    assert_eq!(names(base), ["f"], "neither a temporary file nor made parents are left");
    replace(&grant(&target), &target, b"fits", unchanged(&target)).unwrap();
}

#[expect(unsafe_code, reason = "no safe call ignores a signal, and the child runs this test alone")]
fn ignore_file_size_signal() {
    // SAFETY: SIG_IGN installs no handler, so nothing runs at a signal.
    let before = unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
    assert_ne!(before, libc::SIG_ERR);
}

#[test]
fn what_happens_between_the_writing_and_the_move_is_seen() {
    let (_place, base) = place();
    fs::create_dir_all(base.join("ws/dir")).unwrap();
    fs::create_dir(base.join("outside")).unwrap();
    fs::write(base.join("outside/f"), "secret").unwrap();
    let (directory, target) = (base.join("ws/dir"), base.join("ws/dir/f"));
    let attempt = |action: Box<dyn FnOnce() + Send>| {
        fs::write(&target, "old").unwrap();
        let expected = unchanged(&target);
        meanwhile(&target, action);
        replace(&grant(&target), &target, b"ours", expected)
    };
    let refused = |action: Box<dyn FnOnce() + Send>| {
        let error = attempt(action).unwrap_err();
        assert!(matches!(error, HostError::Changed { .. }), "{error}");
    };

    let file = target.clone();
    refused(Box::new(move || fs::write(file, "theirs").unwrap()));
    assert_eq!(fs::read(&target).unwrap(), b"theirs", "a change in place");

    let (file, other) = (target.clone(), base.join("ws/other"));
    refused(Box::new(move || {
        fs::write(&other, "theirs, moved").unwrap();
        fs::rename(other, file).unwrap();
    }));
    assert_eq!(fs::read(&target).unwrap(), b"theirs, moved", "another file in its place");

    let file = target.clone();
    refused(Box::new(move || {
        fs::remove_file(&file).unwrap();
        symlink("../../outside/f", file).unwrap();
    }));
    assert!(fs::symlink_metadata(&target).unwrap().is_symlink(), "a link in its place");
    fs::remove_file(&target).unwrap();
    assert_eq!(names(&directory), Vec::<String>::new(), "nothing is left beside it");

    let (from, to) = (directory.clone(), base.join("ws/moved"));
    refused(Box::new(move || {
        fs::rename(&from, to).unwrap();
        symlink("../outside", from).unwrap();
    }));
    assert_eq!(fs::read(base.join("ws/moved/f")).unwrap(), b"old", "the directory became a link");
    assert_eq!(names(&base.join("ws/moved")), ["f"]);
    fs::remove_file(&directory).unwrap();
    fs::rename(base.join("ws/moved"), &directory).unwrap();

    // The new file itself is swapped for a link before it is moved.
    let from = directory.clone();
    refused(Box::new(move || {
        let beside = names(&from).into_iter().find(|name| name != "f").unwrap();
        fs::rename(from.join(&beside), from.join("taken")).unwrap();
        symlink("../../outside/f", from.join(beside)).unwrap();
    }));
    assert_eq!(fs::read(&target).unwrap(), b"old");
    assert_eq!(fs::read(base.join("outside/f")).unwrap(), b"secret");
    assert_eq!(names(&base.join("outside")), ["f"]);

    attempt(Box::new(|| {})).unwrap();
    assert_eq!(fs::read(&target).unwrap(), b"ours", "control");
}

#[test]
fn a_new_file_never_takes_the_place_of_one_that_came_meanwhile() {
    let (_place, base) = place();
    let target = base.join("f");
    let file = target.clone();
    meanwhile(&target, move || fs::write(file, "theirs").unwrap());
    let error = replace(&grant(&target), &target, b"ours", Expected::Absent).unwrap_err();
    assert!(matches!(error, HostError::Changed { .. }), "{error}");
    assert_eq!(fs::read(&target).unwrap(), b"theirs");
    assert_eq!(names(&base), ["f"]);
}

#[test]
fn a_file_that_another_program_has_locked_is_waited_for_and_then_left_alone() {
    use rustix::fs::{FlockOperation, flock};
    let (_place, base) = place();
    let target = base.join("f");
    fs::write(&target, "old").unwrap();
    let held = File::open(&target).unwrap();
    flock(&held, FlockOperation::LockExclusive).unwrap();
    let error = replace(&grant(&target), &target, b"new", unchanged(&target)).unwrap_err();
    assert!(matches!(error, HostError::Locked { .. }), "{error}");
    assert_eq!(fs::read(&target).unwrap(), b"old");
    assert_eq!(names(&base), ["f"]);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(std::time::Duration::from_millis(100));
            drop(held);
        });
        replace(&grant(&target), &target, b"new", unchanged(&target)).unwrap();
    });
    assert_eq!(fs::read(&target).unwrap(), b"new", "control: a short lock is waited for");
}

#[test]
fn an_interrupted_write_leaves_the_old_file_and_nothing_beside_it() {
    let (_place, base) = place();
    let target = base.join("f");
    fs::write(&target, "old").unwrap();
    let stop = AtomicBool::new(true);
    for expected in [unchanged(&target), Expected::Absent] {
        let path = if expected == Expected::Absent { base.join("a/b") } else { target.clone() };
        let error =
            super::replace(&grant(&path), &path, &[b'x'; 100], expected, &stop).unwrap_err();
        assert!(matches!(error, HostError::Interrupted { .. }), "{error}");
    }
    assert_eq!(fs::read(&target).unwrap(), b"old");
    assert_eq!(names(&base), ["f"]);
    let error = read_whole_unless(&target, 100, &stop).unwrap_err();
    assert!(matches!(error, HostError::Interrupted { .. }), "{error}");
    replace(&grant(&target), &target, b"new", unchanged(&target)).unwrap();
    assert_eq!(fs::read(&target).unwrap(), b"new", "control");
}

/// An access control list of acl(5): the owner may do all, user 54321 may read, nobody else.
fn access_list() -> Vec<u8> {
    let mut list = 2_u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in [
        (0x01_u16, 6_u16, u32::MAX),
        (0x02, 4, 54321),
        (0x04, 0, u32::MAX),
        (0x10, 4, u32::MAX),
        (0x20, 0, u32::MAX),
    ] {
        list.extend_from_slice(&tag.to_le_bytes());
        list.extend_from_slice(&permissions.to_le_bytes());
        list.extend_from_slice(&id.to_le_bytes());
    }
    list
}

#[test]
fn extended_attributes_and_access_lists_go_with_the_name() {
    use rustix::fs::{XattrFlags, getxattr, setxattr};
    let (_place, base) = place();
    let target = base.join("f");
    let value = |path: &Path, name: &str| {
        let mut value = vec![0; 1000];
        getxattr(path, name, value.as_mut_slice()).map(|length| value[..length].to_vec())
    };
    let set = |path: &Path, name: &str, value: &[u8]| {
        setxattr(path, name, value, XattrFlags::empty())
            .unwrap_or_else(|errno| panic!("the temporary directory needs {name}: {errno}"));
    };
    let acl = "system.posix_acl_access";
    fs::write(&target, "old").unwrap();
    set(&target, "user.origin", b"https://example.org\0x");
    set(&target, acl, &access_list());
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
    let before = mode(&target);
    replace(&grant(&target), &target, b"new", unchanged(&target)).unwrap();
    assert_eq!(fs::read(&target).unwrap(), b"new");
    assert_eq!(value(&target, "user.origin").unwrap(), b"https://example.org\0x");
    assert_eq!(value(&target, acl).unwrap(), access_list());
    assert_eq!(mode(&target), before);

    // A list that the directory gives to new files is not given to one that replaces another.
    fs::write(base.join("plain"), "old").unwrap();
    set(&base, "system.posix_acl_default", &access_list());
    let plain = base.join("plain");
    replace(&grant(&plain), &plain, b"new", unchanged(&plain)).unwrap();
    assert_eq!(value(&plain, acl), Err(Errno::NODATA));
    let fresh = base.join("fresh");
    replace(&grant(&fresh), &fresh, b"new", Expected::Absent).unwrap();
    assert!(value(&fresh, acl).is_ok(), "control: a new file has it");
}

#[test]
fn other_names_of_a_file_keep_the_old_content_and_are_counted() {
    let (_place, base) = place();
    let (target, other) = (base.join("f"), base.join("other"));
    fs::write(&target, "old").unwrap();
    fs::hard_link(&target, &other).unwrap();
    let replaced = replace(&grant(&target), &target, b"new", unchanged(&target)).unwrap();
    assert_eq!(replaced.other_names, 1);
    assert_eq!(fs::read(&other).unwrap(), b"old");
    let replaced = replace(&grant(&target), &target, b"newer", unchanged(&target)).unwrap();
    assert_eq!(replaced.other_names, 0, "control");
}

#[test]
fn what_gets_permissions_of_its_own_is_nobody_elses_to_read_before() {
    let (_place, base) = place();
    let target = base.join("secret");
    let done = AtomicBool::new(false);
    let content = vec![b'x'; 64 << 20];
    let open = std::thread::scope(|scope| {
        let looks = scope.spawn(|| {
            let mut seen = 0_u32;
            while !done.load(Ordering::Relaxed) {
                for entry in fs::read_dir(&base).unwrap().flatten() {
                    let mode = entry.metadata().map_or(0, |it| it.permissions().mode() & 0o077);
                    seen |= mode;
                }
            }
            seen
        });
        let never = AtomicBool::new(false);
        let (expected, stop) = (Expected::Absent, &never);
        let manner = Manner { expected, stop, keep: None, mode: Some(0o600) };
        replace_with(&grant(&target), &target, &content, manner).unwrap();
        done.store(true, Ordering::Relaxed);
        looks.join().unwrap()
    });
    assert_eq!(format!("{open:o}"), "0", "others could read it while it was written");
    assert_eq!(fs::metadata(&target).unwrap().mode() & 0o777, 0o600);
}
