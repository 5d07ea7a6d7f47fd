use std::fs;
use std::os::unix::fs::symlink;

use super::*;

fn places(xdg: &[(Xdg, &str)]) -> Places {
    Places {
        workspace: "/w".into(),
        homes: vec!["/home/alias".into(), "/data/me".into()],
        xdg: xdg.iter().map(|(xdg, value)| (*xdg, OsString::from(value))).collect(),
        uid: rustix::process::geteuid().as_raw(),
    }
}

fn path(text: &str) -> SpecPath {
    SpecPath::try_from(text.to_owned()).unwrap()
}

fn names(places: &Places, text: &str) -> Vec<String> {
    places.denied(&path(text)).iter().map(|path| path.display().to_string()).collect()
}

#[test]
fn a_denied_path_has_every_name_of_its_base() {
    let places =
        places(&[(Xdg::Config, "/cfg"), (Xdg::Cache, "relative"), (Xdg::Runtime, "/run/user/9")]);
    assert_eq!(names(&places, "/a/b"), ["/a/b"]);
    assert_eq!(names(&places, "./b"), ["/w/b"]);
    assert_eq!(names(&places, "~/b"), ["/home/alias/b", "/data/me/b"]);
    assert_eq!(
        names(&places, "$XDG_CONFIG_HOME/b"),
        ["/cfg/b", "/home/alias/.config/b", "/data/me/.config/b"]
    );
    // A relative value means nothing; the default still counts.
    assert_eq!(names(&places, "$XDG_CACHE_HOME/b"), ["/home/alias/.cache/b", "/data/me/.cache/b"]);
    let runtime = names(&places, "$XDG_RUNTIME_DIR/b");
    assert_eq!(runtime[0], "/run/user/9/b");
    assert_eq!(runtime.len(), 2);
}

#[test]
fn a_writable_path_below_a_doubtful_variable_is_an_error() {
    let trouble =
        |value: &str| places(&[(Xdg::Cache, value)]).writable(&path("$XDG_CACHE_HOME/x")).trouble;
    assert!(trouble("relative").is_some_and(|text| text.contains("`relative`, which is relative")));
    // `/proc/sys` is another user's, or, for root, the next one is.
    let directory = tempfile::tempdir().unwrap();
    let foreign = if rustix::process::geteuid().is_root() {
        std::os::unix::fs::chown(directory.path(), Some(4242), None).unwrap();
        directory.path()
    } else {
        Path::new("/proc/sys")
    };
    assert!(
        trouble(foreign.to_str().unwrap()).is_some_and(|text| text.contains("belongs to user"))
    );
    assert_eq!(trouble("/nonexistent/but/absolute"), None);
}

#[test]
fn a_walk_tells_links_missing_parts_and_circles() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().canonicalize().unwrap();
    fs::create_dir_all(root.join("real/deep")).unwrap();
    symlink("real", root.join("link")).unwrap();
    symlink(root.join("link"), root.join("second")).unwrap();
    symlink("nowhere", root.join("dangling")).unwrap();
    symlink("round", root.join("round")).unwrap();
    fs::write(root.join("file"), "").unwrap();

    let found = walk("w", &root.join("second/deep/new/er"));
    assert_eq!(found.physical, root.join("real/deep/new/er"));
    assert_eq!((found.missing, found.trouble), (2, None));
    assert_eq!(found.links, [root.join("second"), root.join("link")]);

    let found = walk("w", &root.join("dangling/x"));
    assert!(found.trouble.is_some_and(|text| text.contains("which does not exist")));
    let found = walk("w", &root.join("round"));
    assert!(found.trouble.is_some_and(|text| text.contains("circles")));
    let found = walk("w", &root.join("file/x"));
    assert!(found.trouble.is_some());
    let found = walk("w", &root.join("file"));
    assert!(!found.directory && found.trouble.is_none());
}

#[test]
fn of_a_variable_given_twice_the_first_counts() {
    let given = [("HOME", "/a"), ("PATH", "/bin"), ("HOME", "/b"), ("KLI_LOADER_LD_DEBUG", "all")];
    let found = environment(given.map(|(name, value)| (name.into(), value.into())).into_iter());
    let expected = [("HOME", "/a"), ("PATH", "/bin"), ("LD_DEBUG", "all")];
    assert_eq!(found, expected.map(|(name, value)| (name.into(), value.into())));
}
