use std::os::unix::{fs::PermissionsExt, net::UnixListener};

use super::*;

#[test]
fn what_a_path_holds_is_told_without_reading_it() {
    let place = tempfile::tempdir().unwrap();
    let at = |name: &str| place.path().join(name);
    fs::write(at("full"), "x").unwrap();
    fs::write(at("empty"), "").unwrap();
    fs::create_dir(at("bare")).unwrap();
    fs::create_dir(at("dir")).unwrap();
    fs::write(at("dir/x"), "x").unwrap();
    fs::hard_link(at("full"), at("again")).unwrap();
    std::os::unix::fs::symlink("full", at("link")).unwrap();
    std::os::unix::fs::symlink("nothing", at("dead")).unwrap();
    let _listener = UnixListener::bind(at("socket")).unwrap();
    rustix::fs::mkfifoat(CWD, at("fifo"), rustix::fs::Mode::RWXU).unwrap();
    assert_eq!(content(&at("full")), Content::File { links: 2 });
    assert_eq!(content(&at("link")), Content::File { links: 2 });
    assert_eq!(content(&at("empty")), Content::Empty);
    assert_eq!(content(&at("bare")), Content::Empty);
    assert_eq!(content(&at("dir")), Content::Directory);
    assert_eq!(content(&at("socket")), Content::Socket);
    assert_eq!(content(&at("fifo")), Content::Other);
    assert_eq!(content(&at("dead")), Content::Absent);
    assert_eq!(content(&at("none")), Content::Absent);
}

#[test]
fn programs_are_found_as_a_shell_finds_them() {
    let place = tempfile::tempdir().unwrap();
    let first = place.path().join("first");
    let second = place.path().join("second");
    for directory in [&first, &second] {
        fs::create_dir(directory).unwrap();
        fs::write(directory.join("tool"), "").unwrap();
    }
    let path = env::join_paths([&first, &second]).unwrap();
    let tool = Path::new("tool");
    assert_eq!(program(tool, Some(&path)), None, "not executable");
    let executable = fs::Permissions::from_mode(0o755);
    fs::set_permissions(second.join("tool"), executable.clone()).unwrap();
    assert_eq!(program(tool, Some(&path)), Some(second.join("tool")));
    fs::set_permissions(first.join("tool"), executable).unwrap();
    assert_eq!(program(tool, Some(&path)), Some(first.join("tool")));
    assert_eq!(program(&second.join("tool"), None), Some(second.join("tool")));
    assert_eq!(program(tool, None), None);
    assert_eq!(program(&first, None), None, "a directory");
}

#[test]
fn second_paths_come_from_the_table_of_mounts() {
    let table = b"1 0 8:1 / / rw - ext4 /dev/a rw\n\
        2 1 8:1 /persist/home/ada /home/ada rw - ext4 /dev/a rw\n\
        3 1 8:2 / /mnt rw - ext4 /dev/b rw\n\
        4 1 8:1 /persist/home /with\\040blank rw - ext4 /dev/a rw\n";
    let mounts = parse_mounts(table);
    assert_eq!(mounts.len(), 4);
    let others = other_paths(Path::new("/home/ada/.aws/credentials"), &mounts);
    assert!(others.contains(&PathBuf::from("/persist/home/ada/.aws/credentials")), "{others:?}");
    assert!(others.contains(&PathBuf::from("/with blank/ada/.aws/credentials")), "{others:?}");
    assert!(others.iter().all(|path| !path.starts_with("/mnt")), "{others:?}");
    assert!(other_paths(Path::new("/etc/x"), &mounts).is_empty());
    assert_eq!(other_paths(Path::new("/persist/home/ada"), &mounts)[0], Path::new("/home/ada"));
    assert!(parse_mounts(b"nonsense\n\n").is_empty());
}

#[test]
fn the_kernel_s_escapes_are_taken_back() {
    let name = |field: &[u8]| unescaped(field).into_os_string().into_vec();
    assert_eq!(name(b"/a\\040b\\134\\012"), b"/a b\\\n");
    assert_eq!(name(b"/a\\04"), b"/a\\04");
    assert_eq!(name(b"/a\\999"), b"/a\\999");
}

#[test]
fn the_repository_and_what_is_there_are_found_upwards() {
    let place = tempfile::tempdir().unwrap();
    let deep = place.path().join("repo/a/b");
    fs::create_dir_all(&deep).unwrap();
    fs::write(place.path().join("repo/.git"), "gitdir: x").unwrap();
    assert_eq!(repository(&deep), Some(place.path().join("repo").as_path()));
    let open = fs::Permissions::from_mode(0o1777);
    fs::set_permissions(place.path().join("repo"), open).unwrap();
    assert_eq!(repository(&deep), None, "anybody could have put it there");
    assert_eq!(existing(&deep.join("c/d")), Some(deep.as_path()));
    assert!(takes_files(&deep) && is_writable(&deep) && !takes_files(&deep.join("c")));
    assert!(free_bytes(&deep).unwrap() > 0);
    assert!(is_same(&deep, &place.path().join("repo/a/../a/b")) && !is_same(&deep, place.path()));
    assert!(owned(&deep).unwrap().directory && owned(&deep.join("c")).is_err());
    assert_eq!(names(&place.path().join("repo"), 9), [".git", "a"]);
    assert_eq!(names(&place.path().join("repo"), 1).len(), 1);
}
