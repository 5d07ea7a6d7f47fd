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
