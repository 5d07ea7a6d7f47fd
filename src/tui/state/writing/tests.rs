use std::time::Duration;

use crate::{
    agent::{Event, Op},
    tui::{
        complete::Files,
        earlier::Earlier,
        key::Typed,
        state::{Facts, Level},
        view::region,
    },
};

use super::*;

fn state(width: usize) -> State {
    let facts = Facts {
        model: "p/m".to_owned(),
        effort: None,
        windows: Vec::new(),
        profile: "interactive".to_owned(),
        confinement: "no jail · ~/x".to_owned(),
        level: Level::Open,
        session: Some("abc".to_owned()),
    };
    State::new(facts, width, 24)
}

fn press(state: &mut State, code: Code) -> Vec<Effect> {
    state.typed(&Typed::Key(Key::plain(code)))
}

fn ctrl(state: &mut State, c: char) -> Vec<Effect> {
    state.typed(&Typed::Key(Key::ctrl(c)))
}

fn types(state: &mut State, text: &str) -> Vec<Effect> {
    text.chars().flat_map(|c| press(state, Code::Char(c))).collect()
}

fn enters(state: &mut State, text: &str) -> Vec<Effect> {
    types(state, text);
    press(state, Code::Enter)
}

fn shown(state: &State) -> Vec<String> {
    region(state).iter().map(|row| row.text().trim_end().to_owned()).collect()
}

fn sessions() -> Found {
    let item = |value: &str, lead: &str, text: &str, also: &str| {
        let [value, lead, text, also] = [value, lead, text, also].map(str::to_owned);
        Item { value, lead, text, more: "12 KiB".to_owned(), also }
    };
    Found::Choices(Choices {
        title: "Sessions of this directory".to_owned(),
        items: vec![
            item("aaa", "2026-11-30 09:12", "“parser” Fix the parser", "and the lexer"),
            item("bbb", "2026-11-29 17:44", "Write the tests", "of the printer"),
        ],
        first: 0,
        then: Then::Command("resume"),
    })
}

#[test]
fn a_session_is_chosen_by_what_was_said_in_it() {
    let mut it = state(80);
    assert_eq!(enters(&mut it, "/resume"), [Effect::Ask("resume", String::new())]);
    assert!(it.is_moving(), "it is looked for");
    it.found(sessions());
    assert!(!it.is_moving());
    assert_eq!(
        shown(&it),
        [
            "Sessions of this directory · 2",
            "search:",
            "▸ 2026-11-30 09:12 “parser” Fix the parser  12 KiB",
            "  2026-11-29 17:44 Write the tests  12 KiB",
            "  Enter chooses · Esc leaves · typing searches",
            "no jail · ~/x · p/m · 0 tokens · profile interactive",
        ]
    );
    // The keys are the list's, also those that mean something else otherwise.
    assert_eq!(types(&mut it, "/printer"), []);
    assert!(shown(&it).contains(&"  nothing fits the search".to_owned()));
    ctrl(&mut it, 'u');
    it.typed(&Typed::Paste("printer\nmore".to_owned()));
    assert_eq!(press(&mut it, Code::Enter), [Effect::Begin("resume", "bbb".to_owned())]);
    assert!(it.picker.is_none() && it.composer.is_empty());
    // One that is named needs no list; nothing is chosen with Esc, nor while the agent works.
    assert_eq!(enters(&mut it, "/resume xyz"), [Effect::Begin("resume", "xyz".to_owned())]);
    it.found(sessions());
    assert_eq!(press(&mut it, Code::Esc), []);
    assert!(it.picker.is_none());
    enters(&mut it, "go");
    it.found(sessions());
    assert_eq!(press(&mut it, Code::Enter), []);
    let said: Vec<String> = it.take_rows().iter().map(crate::tui::style::Line::text).collect();
    assert!(said.concat().contains("interrupt this one first"), "{said:?}");
}

#[test]
fn the_list_at_three_widths() {
    let narrow = [
        "Sessions of this di…",
        "search:",
        "▸ 2026-11-30 09:12 …",
        "  2026-11-29 17:44 …",
        "  Enter chooses · E…",
        "no jail · ~/x · p/m",
    ];
    let wide = [
        "Sessions of this directory · 2",
        "search:",
        "▸ 2026-11-30 09:12 “parser” Fix the parser  12 KiB",
        "  2026-11-29 17:44 Write the tests  12 KiB",
        "  Enter chooses · Esc leaves · typing searches",
        "no jail · ~/x · p/m · 0 tokens · profile interactive",
    ];
    for (width, wanted) in [(20, narrow), (80, wide), (200, wide)] {
        let mut it = state(width);
        it.found(sessions());
        assert_eq!(shown(&it), wanted, "{width}");
    }
}

#[test]
fn files_are_asked_for_and_offered_at_three_widths() {
    for (width, wanted) in [
        (20, ["  src/", "  src/main.rs"]),
        (80, ["  src/", "  src/main.rs"]),
        (200, ["  src/", "  src/main.rs"]),
    ] {
        let mut it = state(width);
        assert_eq!(types(&mut it, "see @s"), [Effect::Files]);
        let paths = ["src/", "src/main.rs", "README.md"].map(str::to_owned).to_vec();
        it.found(Found::Files(Files { paths, is_cut: false }));
        assert_eq!(shown(&it)[1..3], wanted);
        press(&mut it, Code::Down);
        press(&mut it, Code::Down);
        assert_eq!(press(&mut it, Code::Enter), [], "the marked one is written, and not sent");
        assert_eq!(it.composer.text(), "see @src/main.rs ");
        assert_eq!(
            press(&mut it, Code::Enter),
            [Effect::Tell(Op::Submit("see @src/main.rs ".to_owned()))]
        );
    }
}

#[test]
fn tab_keeps_its_meaning_where_nothing_is_to_be_completed() {
    let mut it = state(80);
    enters(&mut it, "go");
    types(&mut it, "see @READ");
    it.found(Found::Files(Files { paths: vec!["README.md".to_owned()], is_cut: false }));
    assert_eq!(press(&mut it, Code::Tab), []);
    assert_eq!(it.composer.text(), "see @README.md ");
    assert_eq!(it.next, Vec::<String>::new());
    press(&mut it, Code::Tab);
    assert_eq!(it.next, ["see @README.md "]);
    // Up on an empty line takes it back, to be changed or dropped; what waits is seen.
    let rows = shown(&it);
    assert!(rows.iter().any(|row| row.contains("next prompt: see @README.md")), "{rows:?}");
    assert!(rows.iter().any(|row| row.contains("Up takes the last of them back")), "{rows:?}");
    press(&mut it, Code::Up);
    assert_eq!((it.composer.text(), it.next.len()), ("see @README.md ", 0));
    // With a text of its own it is the history as ever.
    it.composer.set("");
    press(&mut it, Code::Up);
    assert_eq!(it.composer.text(), "see @README.md ");
}

#[test]
fn commands_are_completed_and_chosen() {
    let mut it = state(80);
    types(&mut it, "/res");
    let rows = shown(&it);
    assert!(rows[1].starts_with("  /resume"), "{rows:?}");
    press(&mut it, Code::Down);
    assert!(shown(&it)[1].starts_with("▸ /resume"));
    press(&mut it, Code::Enter);
    assert_eq!(it.composer.text(), "/resume ");
    it.composer.set("");
    types(&mut it, "/re");
    press(&mut it, Code::Esc);
    assert_eq!(shown(&it).len(), 2, "the offers are gone");
}

#[test]
fn the_history_is_searched_and_kept_but_for_what_begins_with_a_blank() {
    let mut it = state(80);
    it.found(Found::History(vec!["fix the parser".to_owned(), "run the tests".to_owned()]));
    enters(&mut it, "!ls -l");
    enters(&mut it, " my password is x");
    press(&mut it, Code::Esc);
    it.line("/usage");
    assert_eq!(it.take_said(), ["!ls -l", "/usage"]);
    assert_eq!(it.take_said(), Vec::<String>::new());
    ctrl(&mut it, 'r');
    types(&mut it, "pars");
    let rows = shown(&it);
    let at = rows.iter().position(|row| row == "search: pars").unwrap();
    assert_eq!(rows[at + 1], "▸ fix the parser", "{rows:#?}");
    assert!(rows[at + 2].starts_with("  Enter chooses"), "{rows:#?}");
    assert_eq!(press(&mut it, Code::Enter), []);
    assert_eq!(it.composer.text(), "fix the parser");
    // Where nothing was said there is nothing to search.
    let mut it = state(80);
    ctrl(&mut it, 'r');
    assert!(it.picker.is_none());
    assert!(shown(&it)[0].contains("nothing was said yet"));
}

#[test]
fn the_editor_gets_the_whole_text_and_what_it_says_counts() {
    let mut it = state(80);
    types(&mut it, "see ");
    let pasted = "line\n".repeat(20);
    it.typed(&Typed::Paste(pasted.clone()));
    assert_eq!(ctrl(&mut it, 'g'), [Effect::Edit(format!("see {pasted}"))]);
    it.edited(Ok(Some("edited".to_owned())));
    assert_eq!(it.composer.text(), "edited");
    it.edited(Err("`vi` ended with exit code 1; nothing has changed".to_owned()));
    assert_eq!(it.composer.text(), "edited");
    let said: Vec<String> = it.take_rows().iter().map(crate::tui::style::Line::text).collect();
    assert!(said.concat().contains("exit code 1"), "{said:?}");
}

#[test]
fn a_name_is_one_line_and_stands_in_the_footer() {
    let mut it = state(80);
    it.found(Found::Name(Some("parser".to_owned())));
    assert_eq!(
        shown(&it).last().unwrap(),
        "no jail · ~/x · p/m · 0 tokens · “parser” · profile interactive"
    );
    assert_eq!(State::name_of("  a\u{1b}[2J\nb "), Ok("a⏎b".to_owned()));
    State::name_of(" \u{7} ").unwrap_err();
    State::name_of(&"x".repeat(81)).unwrap_err();
    // Another conversation has another name, or none.
    let facts = it.facts.clone();
    it.begin(facts, Earlier::default(), &[]);
    assert!(!shown(&it).last().unwrap().contains("parser"));
}

#[test]
fn a_list_leaves_room_and_no_terminal_is_too_small() {
    for width in 1..30 {
        for height in 1..12 {
            let mut it = state(width);
            enters(&mut it, "go");
            it.event(Event::Text("answer".to_owned()));
            it.at(Duration::from_secs(3));
            it.resize(width, height);
            it.found(sessions());
            let rows = region(&it);
            assert!(!rows.is_empty() && rows.len() <= height.saturating_sub(1).max(1));
            assert!(rows.iter().all(|row| row.width() <= width), "{width}x{height}");
        }
    }
}
