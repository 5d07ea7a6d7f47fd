use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{PermissionsExt, symlink};

use super::*;

struct Ground {
    root: PathBuf,
    uid: u32,
    _directory: tempfile::TempDir,
}

fn ground() -> Ground {
    let directory = tempfile::tempdir_in("/var/tmp").unwrap();
    let root = directory.path().canonicalize().unwrap();
    Ground { root, uid: rustix::process::geteuid().as_raw(), _directory: directory }
}

fn table(more: &str) -> Table {
    Table::parse(format!("1 0 8:1 / / rw - ext4 x rw\n{more}").as_bytes()).unwrap()
}

fn look(ground: &Ground, path: &str) -> Denied {
    let table = table("");
    let homes = [ground.root.join("home")];
    Looker::new(ground.uid, &table, &homes).look("denyRead", path, ground.root.join(path))
}

fn role<'a>(denied: &'a Denied, path: &Path) -> Option<&'a Role> {
    denied.places.iter().find(|place| place.path == path).map(|place| &place.role)
}

#[test]
fn what_is_found_is_told_apart() {
    let ground = ground();
    let root = &ground.root;
    fs::write(root.join("file"), "").unwrap();
    fs::hard_link(root.join("file"), root.join("other")).unwrap();
    symlink("file", root.join("link")).unwrap();
    symlink("nowhere", root.join("dangling")).unwrap();
    symlink("round", root.join("round")).unwrap();
    let file = Found::File { physical: root.join("file"), links: 2 };
    assert_eq!(look(&ground, "file").found, file);
    assert_eq!(look(&ground, "link").found, file);
    assert_eq!(look(&ground, "").found, Found::Directory(root.clone()));
    for absent in ["nothing", "dangling", "round", "file/below", &"x".repeat(300)] {
        assert_eq!(look(&ground, absent).found, Found::Absent, "{absent}");
    }
}

#[test]
fn every_link_on_the_way_is_a_place() {
    let ground = ground();
    let root = &ground.root;
    fs::create_dir_all(root.join("home/dots/config")).unwrap();
    fs::create_dir_all(root.join("data")).unwrap();
    fs::write(root.join("home/dots/config/secret"), "").unwrap();
    fs::write(root.join("data/token"), "").unwrap();
    symlink("dots/config", root.join("home/.config")).unwrap();
    symlink("../data/token", root.join("home/token")).unwrap();
    symlink("token", root.join("home/second")).unwrap();
    symlink("gone/../x", root.join("home/strange")).unwrap();

    let denied = look(&ground, "home/.config/secret");
    let way = Role::Way("dots/config".into());
    assert_eq!(role(&denied, &root.join("home/.config")), Some(&way));
    assert_eq!(role(&denied, &root.join("home/dots/config/secret")), Some(&Role::End));
    assert_eq!(denied.places.len(), 2);

    let denied = look(&ground, "home/second");
    assert_eq!(role(&denied, &root.join("home/second")), Some(&Role::Last));
    assert_eq!(role(&denied, &root.join("home/token")), Some(&Role::Last));
    assert_eq!(role(&denied, &root.join("data/token")), Some(&Role::End));

    let denied = look(&ground, "home/strange");
    assert_eq!(denied.found, Found::Absent);
    let end = denied.places.iter().find(|place| place.role == Role::End).unwrap();
    assert_eq!((&end.path, end.missing), (&root.join("home/gone"), 1));
    let denied = look(&ground, "home/a/b/c");
    assert_eq!((&denied.places[0].path, denied.places[0].missing), (&root.join("home/a/b/c"), 3));
}

#[test]
fn the_same_files_under_another_mount_are_places_too() {
    let ground = ground();
    let root = &ground.root;
    fs::create_dir_all(root.join("home/.aws")).unwrap();
    let table = table(&format!("2 1 8:1 {}/home /persist rw - ext4 x rw\n", root.display()));
    let homes = [root.join("home")];
    let mut looker = Looker::new(ground.uid, &table, &homes);
    let denied = looker.look("denyRead", "~/.aws", root.join("home/.aws"));
    assert_eq!(role(&denied, Path::new("/persist/.aws")), Some(&Role::Alias));
    let absent = looker.look("denyRead", "~/.no", root.join("home/.no"));
    assert_eq!(role(&absent, Path::new("/persist/.no")), Some(&Role::Alias));
}

#[test]
fn an_anchor_is_the_home_or_where_nothing_above_can_be_exchanged() {
    let ground = ground();
    let root = &ground.root;
    fs::create_dir_all(root.join("home/deep/er")).unwrap();
    fs::create_dir_all(root.join("data/keys")).unwrap();
    fs::create_dir_all(root.join("data/mnt/x")).unwrap();
    let anchor = |more: &str, path: &str| {
        let table = table(more);
        let homes = [root.join("home")];
        let path = if path.starts_with('/') { path.into() } else { root.join(path) };
        Looker::new(ground.uid, &table, &homes).anchor(&path, 0)
    };
    assert_eq!(anchor("", "home/deep/er/x"), Some(root.join("home")));
    assert_eq!(anchor("", "/etc/shadow"), None);
    assert_eq!(anchor("", "/run/secrets/x"), None);
    assert_eq!(anchor("", "/tmp/x"), None);
    assert_eq!(anchor("", "/no"), None, "only root makes names there");
    // Root's directories keep their names; the caller's do not.
    for directory in ["", "data", "data/keys"] {
        std::os::unix::fs::chown(root.join(directory), Some(ground.uid), None).unwrap();
    }
    let expected = if ground.uid == 0 { root.join("data/keys") } else { root.clone() };
    assert_eq!(anchor("", "data/keys/x"), Some(expected));
    if ground.uid == 0 {
        std::os::unix::fs::chown(root.join("data"), Some(4242), None).unwrap();
        assert_eq!(anchor("", "data/keys/x"), Some(root.join("data")));
        fs::set_permissions(root, fs::Permissions::from_mode(0o1777)).unwrap();
        assert_eq!(anchor("", "data/keys/x"), Some(root.join("data")), "not a place for all");
    }
    // What has a mount in it can be no layer, and a name is held on its own mount only.
    let mounted = format!("2 1 0:9 / {}/data/mnt rw - tmpfs x rw\n", root.display());
    assert_eq!(anchor(&mounted, "data/keys/x"), Some(root.join("data/keys")));
    assert_eq!(anchor(&mounted, "data/x"), None);
    assert_eq!(
        anchor(&mounted, "data/mnt/x/y"),
        Some(root.join(if ground.uid == 0 { "data/mnt/x" } else { "data/mnt" }))
    );
    let in_home = format!("2 1 0:9 / {}/home/deep rw - tmpfs x rw\n", root.display());
    assert_eq!(anchor(&in_home, "home/.netrc"), None);
}

fn expand(ground: &Ground, pattern: &str, bounds: Bounds) -> Result<Vec<String>, String> {
    let table = table("");
    let mut looker = Looker::new(ground.uid, &table, &[]);
    looker.bounds = bounds;
    let found = looker.expand(&ground.root, &Pattern::new(pattern).unwrap())?;
    Ok(found
        .iter()
        .map(|path| path.strip_prefix(&ground.root).unwrap().to_string_lossy().into_owned())
        .collect())
}

#[test]
fn a_pattern_finds_every_name_it_means() {
    let ground = ground();
    let root = &ground.root;
    for directory in ["a/b/c", "a/.hidden", "keys", "elsewhere/in"] {
        fs::create_dir_all(root.join(directory)).unwrap();
    }
    for file in ["x.pem", "a/y.pem", "a/b/z.pem", "a/b/c/.pem", "a/.hidden/h.pem", "a/plain"] {
        fs::write(root.join(file), "").unwrap();
    }
    fs::write(root.join("elsewhere/in/l.pem"), "").unwrap();
    symlink("../elsewhere", root.join("a/link")).unwrap();
    symlink("x.pem", root.join("keys/s.pem")).unwrap();
    let odd = OsString::from_vec(b"odd\xff.pem".to_vec());
    fs::write(root.join(odd), "").unwrap();
    let found = |pattern: &str| expand(&ground, pattern, BOUNDS).unwrap();
    assert_eq!(found("*.pem"), ["odd\u{fffd}.pem", "x.pem"]);
    assert_eq!(
        found("a/**/*.pem"),
        ["a/.hidden/h.pem", "a/b/c/.pem", "a/b/z.pem", "a/y.pem"],
        "`**` goes through no link"
    );
    assert_eq!(found("**/s.pem"), ["keys/s.pem"], "a link is a name as well");
    assert_eq!(found("a/*/in/*.pem"), ["a/link/in/l.pem"], "a name of the pattern may be a link");
    assert_eq!(found("**/b"), ["a/b"], "with all that is in it");
    assert_eq!(found("a/b/**"), ["a/b/c", "a/b/z.pem"]);
    assert_eq!(found("a/[!b]*"), ["a/.hidden", "a/link", "a/plain", "a/y.pem"]);
    assert_eq!(found("nothing/*/x"), Vec::<String>::new());
    assert_eq!(found("x.pem"), ["x.pem"]);
    assert_eq!(found("x.pem/*"), Vec::<String>::new());
}

#[test]
fn every_bound_is_an_error_with_its_repair() {
    let ground = ground();
    let mut deep = ground.root.clone();
    for _ in 0..70 {
        deep.push("d");
    }
    fs::create_dir_all(&deep).unwrap();
    for number in 0..3000 {
        fs::write(ground.root.join(format!("f{number}")), "").unwrap();
    }
    let error = |pattern: &str, bounds| expand(&ground, pattern, bounds).unwrap_err();
    assert!(error("**/x", BOUNDS).contains("more than 64 directories down: name the directory"));
    let few = Bounds { entries: 100, ..BOUNDS };
    assert!(error("*", few).contains("more than 100 names have to be looked at"));
    let few = Bounds { matches: 100, ..BOUNDS };
    assert!(error("f*", few).contains("mean more than 100 names: deny the directory"));
    let short = Bounds { time: Duration::ZERO, ..BOUNDS };
    assert!(error("f*", short).contains("longer than 0 seconds"));
    assert_eq!(expand(&ground, "f*", BOUNDS).unwrap().len(), 3000);
}

#[test]
fn a_directory_that_its_owner_locked_is_hidden_as_a_whole() {
    if rustix::process::geteuid().is_root() {
        // Root reads it, so nothing is locked for this process; the launcher's tests drop to a user.
        return;
    }
    let ground = ground();
    let locked = ground.root.join("locked");
    fs::create_dir(&locked).unwrap();
    fs::write(locked.join("x.pem"), "").unwrap();
    fs::set_permissions(&locked, fs::Permissions::from_mode(0o0)).unwrap();
    assert_eq!(expand(&ground, "**/*.pem", BOUNDS).unwrap(), ["locked"]);
    fs::set_permissions(&locked, fs::Permissions::from_mode(0o700)).unwrap();
}
