use std::os::unix::net::UnixListener;

use super::*;

fn text(paths: Vec<PathBuf>) -> Vec<String> {
    paths.into_iter().map(|path| path.to_string_lossy().into_owned()).collect()
}

#[test]
fn the_kernel_s_table_gives_absolute_names_byte_for_byte() {
    let table = b"Num       RefCount Protocol Flags    Type St Inode Path\n\
        ffff8880: 00000002 00000000 00010000 0001 01 17315 /run/a b\xff\n\
        0000000000000000: 00000003 00000000 00000000 0001 03   9 @abstract\n\
        0000000000000000: 00000003 00000000 00000000 0001 03 19203\n\
        0000000000000000: 00000003 00000000 00000000 0001 03 19204 relative/name\n\
        0000000000000000: 00000003 00000000 00000000 0001 01 19205 /x\n\
        nonsense\n\n";
    let found: Vec<&[u8]> = names(table).collect();
    assert_eq!(found, [b"/run/a b\xff".as_slice(), b"/x"]);
}

#[test]
fn a_value_is_read_as_every_form_of_an_address() {
    for (value, expected) in [
        ("/a", vec!["/a"]),
        ("unix:/a", vec!["/a"]),
        ("unix:///a", vec!["/a"]),
        ("unix:path=/a,guid=12", vec!["/a,guid=12", "/a"]),
        ("unix:path=/a;unix:path=/b", vec!["/a", "/b"]),
        ("/tmp/tmux-1/default,7,0", vec!["/tmp/tmux-1/default,7,0", "/tmp/tmux-1/default"]),
        ("unix:/a:/v1", vec!["/a:/v1", "/a"]),
        ("unix:abstract=/a", vec![]),
        ("tcp://127.0.0.1:1", vec![]),
        ("a", vec![]),
        ("", vec![]),
    ] {
        assert_eq!(text(addresses(value.as_bytes())), expected, "{value}");
    }
}

#[test]
fn a_search_finds_sockets_and_pipes_by_their_names_alone() {
    let place = tempfile::tempdir().unwrap();
    let root = place.path().canonicalize().unwrap();
    for directory in ["a/b/c", "locked"] {
        std::fs::create_dir_all(root.join(directory)).unwrap();
    }
    let sockets = ["s", "a/s", "a/b/c/s"].map(|name| root.join(name));
    let _listeners = sockets.clone().map(|path| UnixListener::bind(path).unwrap());
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    let pipe = root.join("a/p");
    rustix::fs::mknodat(CWD, &pipe, FileType::Fifo, mode, 0).unwrap();
    std::fs::write(root.join("a/file"), "").unwrap();
    std::os::unix::fs::symlink("a", root.join("link")).unwrap();
    let run = |bounds: Bounds| {
        let mut seen = Seen::default();
        Search::new(bounds).run(&root, bounds.depth, &mut seen);
        (seen.paths, seen.unfinished)
    };
    let (found, unfinished) = run(WRITABLE);
    let mut expected: BTreeSet<PathBuf> = sockets.iter().cloned().collect();
    expected.insert(pipe);
    assert_eq!((found, unfinished), (expected.clone(), Vec::new()));
    // Each bound stops it and is told; what is nearest was found.
    let (found, unfinished) = run(Bounds { names: 5, ..WRITABLE });
    assert!(found.is_subset(&expected) && found.contains(&sockets[0]));
    assert_eq!(unfinished[0].1, "there are too many names");
    let (found, unfinished) = run(Bounds { time: Duration::ZERO, ..WRITABLE });
    assert_eq!((found.len(), unfinished[0].1), (0, "it took too long"));
    let (found, unfinished) = run(Bounds { depth: 2, ..WRITABLE });
    assert!(!found.contains(&sockets[2]) && found.contains(&sockets[1]));
    assert!(unfinished.is_empty(), "only the search of what is writable is meant to be whole");
}

#[test]
fn too_many_sockets_are_told() {
    let mut seen = Seen::default();
    for number in 0..=MOST {
        seen.add(format!("/{number}").into());
        seen.add(format!("/{number}").into());
    }
    assert_eq!(seen.paths.len(), MOST);
    assert_eq!(seen.unfinished, [(format!("/{MOST}").into(), "there are too many")]);
}

#[test]
fn roots_inside_others_are_searched_once() {
    let roots = ["/b", "/a/c", "/a", "/ab", "/a"].map(Path::new);
    assert_eq!(outermost(&roots), ["/a", "/ab", "/b"].map(Path::new));
}
