use proptest::prelude::*;

use super::*;

const TABLE: &str = "\
22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
23 22 0:21 / /proc rw - proc proc rw
24 22 8:2 /@home /home rw master:3 propagate_from:2 - btrfs /dev/sdb rw
25 22 8:2 / /mnt/top rw - btrfs /dev/sdb rw
26 24 8:1 /persist/me/.ssh /home/me/.ssh rw - ext4 /dev/sda1 rw
27 22 0:40 / /mnt/with\\040space\\134 rw - tmpfs none rw
28 25 0:41 / /mnt/top/@home/covered rw - tmpfs none rw
29 26 0:42 / /home/me/.ssh rw - tmpfs over rw
";

fn table() -> Table {
    Table::parse(TABLE.as_bytes()).unwrap()
}

fn paths(texts: &[&str]) -> Vec<PathBuf> {
    texts.iter().map(PathBuf::from).collect()
}

#[test]
fn every_field_is_read() {
    let table = table();
    assert_eq!(table.entries().len(), 8);
    assert_eq!(
        table.entries()[2],
        Entry {
            id: 24,
            parent: 22,
            device: (8, 2),
            root: "/@home".into(),
            point: "/home".into(),
            kind: "btrfs".into(),
            layers: Vec::new(),
        }
    );
    assert_eq!(table.entries()[5].point, Path::new("/mnt/with space\\"));
}

#[test]
fn the_mount_that_is_seen_is_the_last_one_on_the_way() {
    let table = table();
    let at = |path: &str| table.at(Path::new(path)).unwrap().id;
    assert_eq!((at("/"), at("/etc/passwd"), at("/home"), at("/homes")), (22, 22, 24, 22));
    assert_eq!((at("/home/me"), at("/home/me/.ssh/id"), at("/home/me/.sshd")), (24, 29, 24));
    assert_eq!((at("/mnt/top/@home/me"), at("/mnt/top/@home/covered/x")), (25, 28));
}

#[test]
fn what_is_mounted_below_is_told() {
    let table = table();
    assert_eq!(table.below(Path::new("/home/me")), [Path::new("/home/me/.ssh")]);
    assert_eq!(table.below(Path::new("/home/you")), Vec::<&Path>::new());
    assert_eq!(table.below(Path::new("/mnt")).len(), 2);
}

#[test]
fn the_same_files_are_found_under_their_other_names() {
    let table = table();
    let aliases = |path: &str| table.aliases(Path::new(path));
    assert_eq!(aliases("/home/me/.aws"), paths(&["/mnt/top/@home/me/.aws"]));
    assert_eq!(aliases("/mnt/top/@home/me/.aws"), paths(&["/home/me/.aws"]));
    assert_eq!(aliases("/mnt/top"), paths(&["/home"]), "a part of it is shown elsewhere");
    // What covers an alias takes it away, in both directions.
    assert_eq!(aliases("/mnt/top/@home/covered"), paths(&[]));
    assert_eq!(aliases("/home/covered"), paths(&[]));
    assert_eq!(aliases("/persist/me/.ssh/id"), paths(&[]));
    let uncovered = TABLE.replace("29 26 0:42 / /home/me/.ssh rw - tmpfs over rw\n", "");
    let table = Table::parse(uncovered.as_bytes()).unwrap();
    assert_eq!(table.aliases(Path::new("/persist/me/.ssh/id")), paths(&["/home/me/.ssh/id"]));
    assert_eq!(table.aliases(Path::new("/persist/me")), paths(&["/home/me/.ssh"]));
    assert_eq!(table.aliases(Path::new("/home/me/.ssh/id")), paths(&["/persist/me/.ssh/id"]));
    assert_eq!(table.aliases(Path::new("/home/me/.ssh")), paths(&["/persist/me/.ssh"]));
}

#[test]
fn the_layers_of_an_overlay_are_names_too() {
    let table = |line: &str| {
        let text = format!("1 0 8:1 / / rw - ext4 x rw\n2 1 0:9 {line}\n");
        Table::parse(text.as_bytes()).unwrap()
    };
    let layered = |line: &str, path: &str| table(line).layered(Path::new(path));
    let line =
        r"/ /m rw - overlay o ro,lowerdir=/low:/a\134:b:relative,upperdir=/up\040x,workdir=/w";
    assert_eq!(layered(line, "/m/k"), paths(&["/a:b/k", "/low/k", "/up x/k"]));
    assert_eq!(layered(line, "/m"), paths(&["/a:b", "/low", "/up x"]));
    for layer in ["/low", "/a:b", "/up x"] {
        assert_eq!(layered(line, &format!("{layer}/d/k")), paths(&["/m/d/k"]));
    }
    for (path, others) in [("/up x", &["/m"][..]), ("/lower/k", &[]), ("/w/k", &[]), ("/k", &[])] {
        assert_eq!(layered(line, path), paths(others), "{path}");
    }
    let line = "/ /m rw - overlay o ro,lowerdir+=/data/low,datadir+=/data/more";
    assert_eq!(layered(line, "/m/k"), paths(&["/data/low/k", "/data/more/k"]));
    assert_eq!(layered(line, "/data"), paths(&["/m"]), "a part of it is shown there");
    // A part of the overlay alone is shown.
    let line = "/d /m rw - overlay o ro,lowerdir=/low";
    assert_eq!(layered(line, "/m/k"), paths(&["/low/d/k"]));
    assert_eq!(layered(line, "/low/d/k"), paths(&["/m/k"]));
    assert_eq!(layered(line, "/low"), paths(&["/m"]));
    assert_eq!(layered(line, "/low/k"), paths(&[]));
    assert_eq!(layered("/ /m rw - ext4 o rw,lowerdir=/low", "/low/k"), paths(&[]));
    let line = "/ /m rw - overlay o ro,lowerdir=/low:/gone";
    let mut kept = table(line);
    kept.keep_layers(|path| path == Path::new("/low"));
    assert_eq!(kept.layered(Path::new("/m/k")), paths(&["/low/k"]));
}

#[test]
fn an_overlay_that_lies_in_its_own_layers_has_no_names_without_end() {
    let layered = |lines: &[&str], path: &str| {
        let mut text = String::from("1 0 8:1 / / rw - ext4 x rw\n");
        for line in lines {
            text.push_str(line);
            text.push('\n');
        }
        let table = Table::parse(text.as_bytes()).unwrap();
        let mut names = BTreeSet::from([PathBuf::from(path)]);
        let mut new = vec![PathBuf::from(path)];
        while let Some(name) = new.pop() {
            assert!(names.len() < 5000, "no end: {name:?}");
            let others = table.aliases(&name).into_iter().chain(table.layered(&name));
            new.extend(others.filter(|other| names.insert(other.clone())));
        }
        names.into_iter().collect::<Vec<_>>()
    };
    let within = "2 1 0:9 / /low/m rw - overlay o rw,lowerdir=/low,upperdir=/up";
    let all = paths(&["/low/k", "/low/m/k", "/up/k"]);
    for path in ["/low/k", "/low/m/k", "/up/k"] {
        assert_eq!(layered(&[within], path), all);
    }
    let second = "3 1 0:10 / /low/n rw - overlay o rw,lowerdir=/low,upperdir=/up2";
    let all = paths(&["/low/k", "/low/m/k", "/low/n/k", "/up/k", "/up2/k"]);
    for path in ["/low/k", "/low/n/k", "/up2/k"] {
        assert_eq!(layered(&[within, second], path), all);
    }
    // A part of a layer that is mounted on itself is in the overlay all the same.
    let bound = "3 1 8:1 /low/d /low/d rw - ext4 x rw";
    assert!(layered(&[within, bound], "/low/d/k").contains(&PathBuf::from("/low/m/d/k")));
    // It covers its layers, and is shown once more.
    let over = "2 1 0:9 / /p rw - overlay o ro,lowerdir=/p/x/y:/p";
    assert_eq!(layered(&[over], "/p/k"), paths(&["/p/k"]));
    let again = "3 1 0:9 / /b rw - overlay o ro,lowerdir=/p/x/y:/p";
    assert_eq!(layered(&[over, again], "/b/k"), paths(&["/b/k", "/p/k"]));
    // Two that cover each other's layers.
    let crossed = [
        "2 1 0:9 / /p rw - overlay o ro,lowerdir=/q/x",
        "3 1 0:10 / /q rw - overlay o ro,lowerdir=/p/x",
    ];
    assert!(layered(&crossed, "/p/k").len() < 5000);
}

#[test]
fn a_line_that_is_not_understood_is_named() {
    for (text, line) in [
        ("22 1 8:1 / / rw ext4 /dev/sda1 rw\n", 1),
        ("22 1 8:1 / / rw - ext4 x rw\n23 x 8:1 / / rw - ext4 x rw\n", 2),
        ("22 1 8 / / rw - ext4 x rw\n", 1),
        ("22 1 8:1 / relative rw - ext4 x rw\n", 1),
        ("22 1 8:1 / / rw -", 1),
        ("22 1 8:1 / / rw - x x rw\n22 22 8:2 / /a rw - x x rw\n", 2),
    ] {
        assert_eq!(Table::parse(text.as_bytes()), Err(TableError { line }), "{text}");
    }
    assert_eq!(Table::parse(b"").unwrap().at(Path::new("/")), None);
    // Two mounts that lie on each other, which no kernel writes, end all the same.
    let circle = "1 0 1:1 / / rw - x x rw\n2 3 1:1 / /a rw - x x rw\n3 2 1:1 / /a rw - x x rw\n";
    assert_eq!(Table::parse(circle.as_bytes()).unwrap().at(Path::new("/a")).unwrap().id, 1);
}

#[test]
fn this_machine_s_table_is_understood() {
    #[expect(clippy::disallowed_methods, reason = "the parser is shown the real thing")]
    let text = std::fs::read("/proc/self/mountinfo").unwrap();
    let table = Table::parse(&text).unwrap();
    assert_eq!(table.at(Path::new("/")).unwrap().point, Path::new("/"));
    assert_eq!(table.at(Path::new("/proc/self")).unwrap().kind, "proc");
}

fn escaped(name: &[u8]) -> Vec<u8> {
    let mut text = Vec::new();
    for byte in name {
        if b" \t\n\\#".contains(byte) {
            text.extend_from_slice(format!("\\{byte:03o}").as_bytes());
        } else {
            text.push(*byte);
        }
    }
    text
}

fn name() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(
        any::<u8>().prop_filter("no part ends here", |b| !b"/\0".contains(b)),
        1..6,
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn any_bytes_are_read_or_refused(text in prop::collection::vec(
        prop_oneof![any::<u8>(), prop::sample::select(b" \n:-/\\0123456789".to_vec())], 0..200,
    )) {
        if let Ok(table) = Table::parse(&text) {
            for path in ["/", "/a", "/a/b"] {
                table.at(Path::new(path));
                table.below(Path::new(path));
                table.aliases(Path::new(path));
                table.layered(Path::new(path));
            }
        }
    }

    #[test]
    fn a_changed_table_never_goes_wrong(place in 0..TABLE.len(), byte: u8, length in 0..TABLE.len()) {
        let mut text = TABLE.as_bytes().to_vec();
        text[place] = byte;
        text.truncate(length.max(place + 1));
        if let Ok(table) = Table::parse(&text) {
            for entry in table.entries() {
                let aliases = table.aliases(&entry.point);
                prop_assert!(!aliases.contains(&entry.point));
            }
        }
    }

    #[test]
    fn a_name_survives_with_any_bytes(root in name(), point in name()) {
        let mut text = b"1 0 8:1 / / rw - x x rw\n2 1 8:2 /".to_vec();
        text.extend(escaped(&root));
        text.extend_from_slice(b" /");
        text.extend(escaped(&point));
        text.extend_from_slice(b" rw a:1 b - x x rw\n");
        let table = Table::parse(&text).unwrap();
        let with = |bytes: &[u8]| Path::new("/").join(OsString::from_vec(bytes.to_vec()));
        prop_assert_eq!(&table.entries()[1].root, &with(&root));
        prop_assert_eq!(&table.entries()[1].point, &with(&point));
    }

    /// An alias of an alias is the path that one started with, or another alias of it.
    #[test]
    fn aliases_agree_with_each_other(
        roots in prop::collection::vec(prop::sample::select(vec!["/", "/a", "/a/b", "/c"]), 1..5),
        path in prop::sample::select(vec!["/m0", "/m1", "/m0/b", "/m1/a", "/m2/a/b/x"]),
    ) {
        let lines = roots.iter().zip(2..).map(|(root, id)| {
            format!("{id} 1 8:2 {root} /m{} rw - x x rw\n", id - 2)
        });
        let text: String =
            std::iter::once("1 0 8:1 / / rw - x x rw\n".to_owned()).chain(lines).collect();
        let table = Table::parse(text.as_bytes()).unwrap();
        let path = Path::new(path);
        for alias in table.aliases(path) {
            let back = table.aliases(&alias);
            let own = table.at(path).unwrap();
            let other = table.at(&alias).unwrap();
            prop_assert_eq!(own.device, other.device);
            // Only the alias of a whole, not that of a part, leads back to the path itself.
            let inner = |entry: &Entry, path: &Path| {
                join(&entry.root, path.strip_prefix(&entry.point).unwrap())
            };
            if inner(own, path) == inner(other, &alias) {
                prop_assert!(back.contains(&path.to_path_buf()), "{:?} {:?}", alias, back);
            }
        }
    }
}
