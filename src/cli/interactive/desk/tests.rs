#![expect(clippy::disallowed_methods, reason = "the tests look at files")]

use std::{fs, path::Path};

use super::*;
use crate::{
    authority::{Authority, Constraint, Narrowing, Source},
    message::Message,
};

fn world() -> (tempfile::TempDir, PathBuf) {
    let place = tempfile::tempdir().unwrap();
    let root = fs::canonicalize(place.path()).unwrap();
    (place, root)
}

fn paths(files: &Files) -> Vec<&str> {
    files.paths.iter().map(String::as_str).collect()
}

#[test]
fn files_that_can_be_mentioned_are_those_of_the_workspace_that_nothing_ignores() {
    let (_place, root) = world();
    let work = root.join("work");
    for directory in ["work/src", "work/target", "work/.git", "out"] {
        fs::create_dir_all(root.join(directory)).unwrap();
    }
    for file in [
        "work/src/a.rs",
        "work/target/x",
        "work/.hidden",
        "work/my notes",
        "work/a \"b\"",
        "work/.git/c",
        "work/a\nb",
        "out/secret",
    ] {
        fs::write(root.join(file), "").unwrap();
    }
    fs::write(work.join(".gitignore"), "target\n").unwrap();
    std::os::unix::fs::symlink(root.join("out"), work.join("link")).unwrap();
    let all = Subject::new([]);
    let found = mentionable(&work, &all, Duration::from_mins(1), 100);
    assert_eq!(paths(&found), [".gitignore", ".hidden", "my notes", "src/", "src/a.rs"]);
    assert!(!found.is_cut);
    // Bounded in count and in time.
    let few = mentionable(&work, &all, Duration::from_mins(1), 2);
    assert!(few.is_cut && few.paths.len() == 2);
    let none = mentionable(&work, &all, Duration::ZERO, 100);
    assert!(none.is_cut && none.paths.len() < 5, "{none:?}");
}

#[test]
fn what_the_run_may_not_read_is_not_offered() {
    let (_place, root) = world();
    fs::create_dir(root.join("src")).unwrap();
    fs::write(root.join("src/a.rs"), "").unwrap();
    fs::write(root.join("b.rs"), "").unwrap();
    let only_src = Narrowing::Only {
        authority: Authority::of([(Atom::FileRead, Constraint::under([root.join("src")]))]),
        named: vec![Atom::FileRead],
    };
    let narrow = Subject::new([(Source::UserSettings, only_src)]);
    let control = mentionable(&root, &Subject::new([]), Duration::from_mins(1), 100);
    assert_eq!(paths(&control), ["b.rs", "src/", "src/a.rs"]);
    let found = mentionable(&root, &narrow, Duration::from_mins(1), 100);
    assert_eq!(paths(&found), ["src/", "src/a.rs"]);
}

fn listed(store: &Store, work: &Path) -> Vec<Listed> {
    let found = store.list(work).unwrap();
    let listed = found.into_iter().map(|session| {
        let overview = store.overview(&session).unwrap();
        Listed { session, overview }
    });
    listed.collect()
}

#[test]
fn the_tree_shows_copies_below_what_they_are_copies_of() {
    let (_place, root) = world();
    let (store, work) = (Store::new(&root.join("state")), root.join("work"));
    let begin = |text: &str| {
        let mut log = store.create(&work).unwrap();
        log.append(&Entry::Message(&Message::user(text))).unwrap();
        log.id().to_owned()
    };
    let (first, other) = (begin("first"), begin("another tree"));
    let fork = |of: &str| {
        let found = store.find(&work, of).unwrap();
        store.fork(&work, &found).unwrap().id
    };
    let below = fork(&first);
    let second = fork(&first);
    let deepest = fork(&below);
    let all = listed(&store, &work);
    for now in [&first, &below, &second, &deepest] {
        let rows = branches(&all, now);
        let shown: Vec<(usize, &str)> = rows
            .iter()
            .map(|(lead, listed)| (lead.chars().count() / 3, listed.session.id.as_str()))
            .collect();
        assert_eq!(shown.len(), 4, "{shown:?}");
        assert_eq!(shown[0], (0, first.as_str()));
        let at = |id: &str| shown.iter().position(|(_, other)| *other == id).unwrap();
        assert_eq!(shown[at(&below) + 1], (2, deepest.as_str()));
        assert_eq!(shown[at(&second)].0, 1);
    }
    assert_eq!(branches(&all, &other).len(), 1);
}

#[test]
fn a_tree_that_a_file_has_made_a_circle_ends() {
    let (_place, root) = world();
    let (store, work) = (Store::new(&root.join("state")), root.join("work"));
    let mut ids = Vec::new();
    for _ in 0..2 {
        let mut log = store.create(&work).unwrap();
        log.append(&Entry::Message(&Message::user("x"))).unwrap();
        ids.push((log.id().to_owned(), log.path().to_owned()));
    }
    for (number, (_, path)) in ids.iter().enumerate() {
        let text = fs::read_to_string(path).unwrap();
        let parent = &ids[1 - number].0;
        let forged = text.replacen(r#""kli":"#, &format!(r#""parent":"{parent}","kli":"#), 1);
        assert_ne!(forged, text, "control");
        fs::write(path, forged).unwrap();
    }
    let all = listed(&store, &work);
    assert_eq!(branches(&all, &ids[0].0).len(), 2);
}
