mod any;
mod snapshots;

use crate::{
    agent::Event,
    message::Arguments,
    tui::{
        key::{Code, Key, Typed},
        state::{Facts, Level},
    },
};

use super::*;

fn state(width: usize, height: usize) -> State {
    let facts = Facts {
        model: "anthropic/claude-sonnet-4-5".to_owned(),
        effort: Some("high".to_owned()),
        windows: vec![("anthropic/claude-sonnet-4-5".to_owned(), Some(200_000))],
        profile: "interactive".to_owned(),
        confinement: "jail: net on · 3 hidden · ~/src/x".to_owned(),
        level: Level::Jailed,
        session: None,
    };
    State::new(facts, width, height)
}

fn press(state: &mut State, text: &str) {
    for c in text.chars() {
        let code = if c == '\n' { Code::Enter } else { Code::Char(c) };
        state.typed(&Typed::Key(Key::plain(code)));
    }
}

fn texts(state: &State) -> Vec<String> {
    region(state).iter().map(|row| row.text().trim_end().to_owned()).collect()
}

fn busy(width: usize) -> State {
    let mut it = state(width, 24);
    press(&mut it, "go\n");
    it.event(Event::Text("First.\n\nSecond **part**".to_owned()));
    let arguments = Arguments::parse(r#"{"command": "cargo test --all"}"#);
    it.event(Event::ToolStarted { id: "1".into(), name: "bash".into(), arguments });
    it.event(Event::ToolOutput { id: "1".into(), text: "one\ntwo\n".to_owned() });
    press(&mut it, "also this\nmore");
    it.at(Duration::from_secs(65));
    it.take_rows();
    it
}

#[test]
fn an_empty_interface_at_three_widths() {
    assert_eq!(texts(&state(20, 24)), ["›", "jail: net on · 3 hi…"]);
    assert_eq!(
        texts(&state(80, 24)),
        [
            "›  say what to do; /help lists commands and keys",
            "jail: net on · 3 hidden · ~/src/x · anthropic/claude-sonnet-4-5 · 0 % of context",
        ]
    );
    assert_eq!(
        texts(&state(200, 24)),
        [
            "›  say what to do; /help lists commands and keys",
            "jail: net on · 3 hidden · ~/src/x · anthropic/claude-sonnet-4-5 · 0 % of context · profile \
         interactive · effort high",
        ]
    );
}

#[test]
fn a_working_interface_at_three_widths() {
    assert_eq!(
        texts(&busy(20)),
        [
            "▸ bash cargo test -…",
            "  one",
            "  two",
            "⠦ running bash · 1 …",
            "  to be told next: …",
            "› more",
            "jail: net on · 3 hi…",
        ]
    );
    assert_eq!(
        texts(&busy(80)),
        [
            "▸ bash cargo test --all",
            "  one",
            "  two",
            "⠦ running bash · 1 min 5 s · Esc Esc interrupts",
            "  to be told next: also this",
            "› more",
            "jail: net on · 3 hidden · ~/src/x · anthropic/claude-sonnet-4-5 · 0 % of context",
        ]
    );
    assert_eq!(
        texts(&busy(200)),
        [
            "▸ bash cargo test --all",
            "  one",
            "  two",
            "⠦ running bash · 1 min 5 s · Esc Esc interrupts",
            "  to be told next: also this",
            "› more",
            "jail: net on · 3 hidden · ~/src/x · anthropic/claude-sonnet-4-5 · 0 % of context · profile \
             interactive · effort high",
        ]
    );
}

#[test]
fn the_cursor_is_a_cell_of_its_own() {
    let mut it = state(80, 24);
    press(&mut it, "a漢");
    it.typed(&Typed::Key(Key::plain(Code::Left)));
    let row = &region(&it)[0];
    let under: Vec<&Span> = row.spans.iter().filter(|span| span.style.reverse).collect();
    assert_eq!(under.len(), 1);
    assert_eq!(under[0].text, "漢");
}

#[test]
fn what_cannot_be_seen_in_what_is_written_is_shown_otherwise() {
    let mut state = state(60, 10);
    state.typed(&Typed::Paste("\ta\u{202e}b 👩\u{200d}👧".to_owned()));
    state.typed(&Typed::Key(Key::plain(Code::Home)));
    let rows = texts(&state);
    assert_eq!(rows[0], "›     a\\u{202e}b 👩\u{200d}👧", "{rows:?}");
}

#[test]
fn confinement_is_said_in_words_and_in_colour() {
    for (words, level, color) in [
        ("jail: net off · ~/x", Level::Jailed, Color::GREEN),
        ("outer: docker, unverified", Level::Unverified, Color::YELLOW),
        ("no jail", Level::Open, Color::RED),
    ] {
        let mut it = state(80, 24);
        it.facts.confinement = words.to_owned();
        it.facts.level = level;
        let rows = region(&it);
        let footer = rows.last().unwrap();
        assert!(footer.text().starts_with(words));
        assert_eq!(footer.spans[0].style.foreground, Some(color));
    }
}

#[test]
fn commands_are_offered_while_one_is_typed() {
    let mut it = state(80, 24);
    press(&mut it, "/res");
    assert!(texts(&it)[1].starts_with("  /resume"), "{:?}", texts(&it));
}

proptest::proptest! {
    /// At every size: lower than the terminal, no row too wide, the cursor in sight (a wide character and it need six cells).
    #[test]
    fn the_region_fits(
        width in 1_usize..60, height in 1_usize..30, written in "[a-z 漢\u{301}]{0,200}",
    ) {
        let mut it = busy(width);
        it.resize(width, height);
        it.typed(&Typed::Paste(written));
        let rows = region(&it);
        proptest::prop_assert!(!rows.is_empty() && rows.len() <= (height - 1).max(1));
        for row in &rows {
            proptest::prop_assert!(row.width() <= width, "{:?} at {}", row.text(), width);
        }
        let seen = rows.iter().flat_map(|row| &row.spans).any(|span| span.style.reverse);
        proptest::prop_assert!(seen || width < 6, "{:?}", texts(&it));
    }
}
