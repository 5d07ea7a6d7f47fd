use std::fs;
use std::os::unix::fs::PermissionsExt;

use super::*;

/// A tree with a unified hierarchy as systemd makes it, where `user` may make groups.
fn machine(own: &str, mountinfo: &str) -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    fs::create_dir_all(root.path().join("proc/self")).unwrap();
    fs::write(root.path().join("proc/self/cgroup"), own).unwrap();
    fs::write(root.path().join("proc/self/mountinfo"), mountinfo).unwrap();
    root
}

fn directory(root: &Path, path: &str, controllers: &str) -> PathBuf {
    let directory = root.join(path);
    fs::create_dir_all(&directory).unwrap();
    fs::write(directory.join("cgroup.subtree_control"), controllers).unwrap();
    fs::write(directory.join("cgroup.procs"), "").unwrap();
    directory
}

const UNIFIED: &str = "20 1 0:18 / /proc rw - proc proc rw\n\
    30 1 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n";

#[test]
fn the_nearest_group_that_bounds_its_children_is_taken() {
    let root = machine("0::/user/app/shell.scope\n", UNIFIED);
    let at = root.path();
    directory(at, "sys/fs/cgroup", "cpu memory pids\n");
    directory(at, "sys/fs/cgroup/user", "cpu memory pids\n");
    let app = directory(at, "sys/fs/cgroup/user/app", "memory pids\n");
    directory(at, "sys/fs/cgroup/user/app/shell.scope", "\n");
    let expected = Place { directory: app.clone(), tasks: true, memory: true };
    assert_eq!(find(at), [expected]);
    // Without a controller for what is needed the next one up is looked at.
    fs::write(app.join("cgroup.subtree_control"), "cpu\n").unwrap();
    let expected = Place { directory: at.join("sys/fs/cgroup/user"), tasks: true, memory: true };
    assert_eq!(find(at), [expected]);
}

#[test]
fn nothing_outside_of_the_own_namespace_is_taken() {
    for own in ["0::/../other\n", "1:name=systemd:/\n", "", "0::\n"] {
        let root = machine(own, UNIFIED);
        directory(root.path(), "sys/fs/cgroup", "\n");
        directory(root.path(), "sys/fs/other", "pids\n");
        assert_eq!(find(root.path()), [], "{own}");
    }
    // Mounted from a group that is not around the own one.
    let mounts = "30 1 0:26 /pod /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
    let root = machine("0::/else\n", mounts);
    directory(root.path(), "sys/fs/cgroup", "pids\n");
    assert_eq!(find(root.path()), []);
    let root = machine("0::/pod/x\n", mounts);
    let top = directory(root.path(), "sys/fs/cgroup", "pids\n");
    directory(root.path(), "sys/fs/cgroup/x", "\n");
    assert_eq!(find(root.path()), [Place { directory: top, tasks: true, memory: false }]);
}

#[test]
fn the_first_version_bounds_tasks() {
    let mounts = "31 1 0:27 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids\n\
        32 1 0:28 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
        33 1 0:29 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
    let root = machine("8:pids:/a\n4:memory:/b\n0::/\n", mounts);
    let own = directory(root.path(), "sys/fs/cgroup/pids/a", "");
    directory(root.path(), "sys/fs/cgroup/memory/b", "");
    directory(root.path(), "sys/fs/cgroup/unified", "\n");
    assert_eq!(find(root.path()), [Place { directory: own, tasks: true, memory: false }]);
}

#[test]
fn a_group_is_made_with_its_bounds_and_removed_with_the_jail() {
    let root = tempfile::tempdir().unwrap();
    let place = Place { directory: root.path().into(), tasks: true, memory: true };
    let none = Place { directory: root.path().join("missing"), tasks: true, memory: true };
    let own = root.path().join(format!("{NAME}{}", std::process::id()));
    // What fails leaves nothing: outside of a hierarchy there is no `cgroup.procs`.
    assert!(Groups::new(std::slice::from_ref(&none), Some(5), None).is_err());
    assert!(Groups::new(std::slice::from_ref(&place), Some(5), Some(7)).is_err());
    assert_eq!(fs::read_to_string(own.join("pids.max")).unwrap(), "5");
    assert_eq!(fs::read_to_string(own.join("memory.max")).unwrap(), "7");
    assert_eq!(fs::read_to_string(own.join("memory.swap.max")).unwrap(), "0");
    fs::remove_dir_all(&own).unwrap();
    // What a killed launcher left goes; what a living one has stays, and so does anything else.
    let dead = root.path().join(format!("{NAME}{}", i32::MAX));
    let other = root.path().join("other");
    for directory in [&dead, &own, &other] {
        fs::create_dir(directory).unwrap();
    }
    remove_left(root.path());
    assert!(!dead.exists() && own.exists() && other.exists());
    drop(Groups { directories: vec![own.clone()] });
    assert!(!own.exists());
    // A place of somebody else.
    fs::set_permissions(root.path(), fs::Permissions::from_mode(0o555)).unwrap();
    assert_eq!(writable(root.path()), rustix::process::geteuid().is_root());
}
