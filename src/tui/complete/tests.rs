use super::*;

fn known(paths: &[&str]) -> Completion {
    let mut it = Completion::default();
    let paths = paths.iter().map(|path| (*path).to_owned()).collect();
    it.know(Files { paths, is_cut: false }, Duration::ZERO);
    it
}

/// A composer with `|` where the cursor is.
fn written(marked: &str) -> Composer {
    let mut composer = Composer::default();
    composer.set(marked.split('|').next().unwrap());
    let at = composer.text().len();
    composer.replace(at..at, marked.split('|').nth(1).unwrap(), 0);
    for _ in 0..marked.split('|').nth(1).unwrap().chars().count() {
        composer.key(Key::plain(Code::Left), 200);
    }
    assert_eq!(composer.cursor(), at);
    composer
}

fn shown(composer: &Composer) -> String {
    let mut text = composer.text().to_owned();
    text.insert(composer.cursor(), '|');
    text
}

fn offered(it: &mut Completion, marked: &str) -> Vec<String> {
    let composer = written(marked);
    it.look(&composer, Duration::ZERO);
    let rows = it.rows(composer.text(), 20, 200);
    rows.iter().map(|row| row.text().trim().to_owned()).collect()
}

const PATHS: &[&str] = &[
    "src/",
    "src/main.rs",
    "src/tui/",
    "src/tui/main_view.rs",
    "README.md",
    ".github/",
    ".github/ci.yml",
    "my notes.txt",
    "my dir/",
    "my dir/a b.txt",
    "src/.hidden",
    "docs/maintain.md",
];

#[test]
fn a_tab_completes_a_file() {
    for (before, after) in [
        ("see @READ|", "see @README.md |"),
        ("see @READ| there", "see @README.md| there"),
        ("@src/tui/main|", "@src/tui/main_view.rs |"),
        ("(@main.r|", "(@src/main.rs |"),
        ("@rdm|", "@README.md |"),
        ("@sr|", "@src/|"),
        ("@my n|", "@my n|"),
        ("@note|", "@\"my notes.txt\" |"),
        ("@\"my n|", "@\"my notes.txt\" |"),
        ("@\"my d|", "@\"my dir/|\""),
        ("@\"my dir/|\" ok", "@\"my dir/a b.txt\"| ok"),
        ("@REA|DME", "@README.md |"),
        ("a@README|", "a@README|"),
        ("@zzz|", "@zzz|"),
    ] {
        let mut it = known(PATHS);
        let mut composer = written(before);
        it.look(&composer, Duration::ZERO);
        let could = it.complete(&mut composer);
        assert_eq!(shown(&composer), after, "{before}");
        assert_eq!(could, before != after, "{before}");
    }
}

#[test]
fn what_begins_so_comes_first_and_hidden_files_need_a_dot() {
    let mut it = known(PATHS);
    assert_eq!(
        offered(&mut it, "@main|"),
        ["src/main.rs", "docs/maintain.md", "src/tui/main_view.rs"]
    );
    let all = offered(&mut it, "@|");
    assert!(!all.iter().any(|path| path.contains("/.") || path.starts_with('.')), "{all:?}");
    assert_eq!(offered(&mut it, "@.|")[0], ".github/");
    assert_eq!(offered(&mut it, "@.gi|"), [".github/", ".github/ci.yml"]);
    assert_eq!(offered(&mut it, "@src/.|")[0], "src/.hidden");
    // One that is written whole needs no offer, and Tab keeps its other meaning.
    assert_eq!(offered(&mut it, "@README.md|"), [""; 0]);
}

#[test]
fn files_are_asked_for_when_a_mention_begins_and_again_when_they_are_old() {
    let mut it = Completion::default();
    let at = Duration::from_secs;
    assert!(!it.look(&written("say|"), at(0)));
    assert!(it.look(&written("say @|"), at(1)));
    assert!(!it.look(&written("say @a|"), at(1)), "once");
    it.know(Files { paths: vec!["a.rs".to_owned()], is_cut: true }, at(2));
    let rows = it.rows("say @a", 20, 200);
    assert_eq!(rows.len(), 2);
    assert_eq!(rows[1].text(), "  of the first 1 files");
    assert!(!it.look(&written("say @a x|"), at(3)));
    assert!(!it.look(&written("say @a x @|"), at(3)), "they are fresh");
    assert!(!it.look(&written("say|"), at(3)));
    assert!(it.look(&written("say @|"), at(9)));
}

#[test]
fn the_keys_move_through_the_offers() {
    let mut it = known(PATHS);
    let mut composer = written("@main|");
    it.look(&composer, Duration::ZERO);
    assert!(!it.key(Key::plain(Code::Up)), "the history is there still");
    assert!(it.key(Key::plain(Code::Down)) && it.key(Key::plain(Code::Down)));
    let rows = it.rows("@main", 20, 200);
    assert!(rows[1].text().starts_with("▸ docs/maintain.md"), "{:?}", rows[1]);
    assert!(it.key(Key::plain(Code::Up)) && it.key(Key::plain(Code::Up)));
    assert!(!it.accept(&mut composer), "none is marked");
    it.key(Key::plain(Code::Down));
    assert!(it.accept(&mut composer));
    assert_eq!(shown(&composer), "@src/main.rs |");
    // Esc takes them away until the text changes.
    let composer = written("@m|");
    it.look(&composer, Duration::ZERO);
    assert!(it.close() && !it.is_open() && !it.close());
    it.look(&written("@ma|"), Duration::ZERO);
    assert!(it.is_open());
}

#[test]
fn names_that_a_mention_cannot_say_are_left_out() {
    let mut it = known(&["a \"b", "c\nd", "e\u{1b}[2J", "f\u{202e}", "g\th", "", "fine"]);
    assert_eq!(offered(&mut it, "@|"), ["fine"]);
}
