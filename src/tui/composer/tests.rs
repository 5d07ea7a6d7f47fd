use super::*;

/// A text with `|` where the cursor is.
fn composer(marked: &str) -> Composer {
    let cursor = marked.find('|').unwrap();
    Composer { text: marked.replace('|', ""), cursor, ..Composer::default() }
}

fn shown(composer: &Composer) -> String {
    let mut text = composer.text.clone();
    text.insert(composer.cursor, '|');
    text
}

fn key(name: &str) -> Key {
    let (mut ctrl, mut alt, mut shift) = (false, false, false);
    let mut rest = name;
    loop {
        match rest.get(..2) {
            Some("C-") => ctrl = true,
            Some("M-") => alt = true,
            Some("S-") => shift = true,
            _ => break,
        }
        rest = &rest[2..];
    }
    let code = match rest {
        "left" => Code::Left,
        "right" => Code::Right,
        "up" => Code::Up,
        "down" => Code::Down,
        "home" => Code::Home,
        "end" => Code::End,
        "bs" => Code::Backspace,
        "del" => Code::Delete,
        "enter" => Code::Enter,
        "space" => Code::Char(' '),
        c => Code::Char(c.chars().next().unwrap()),
    };
    Key { code, ctrl, alt, shift }
}

fn press(composer: &mut Composer, keys: &str, columns: usize) {
    for name in keys.split_whitespace() {
        assert_eq!(composer.key(key(name), columns), Done::Edited, "{name}");
    }
}

#[test]
fn keys_edit_the_text() {
    for (before, keys, after) in [
        ("|", "h i space y o u", "hi you|"),
        ("ab|c", "bs", "a|c"),
        ("ab|c", "del", "ab|"),
        ("abc|", "home x end y", "xabcy|"),
        ("one two|", "C-w", "one |"),
        ("one two|", "M-b x", "one x|two"),
        ("|one two", "M-f x", "onex| two"),
        ("one two three|", "C-left C-left C-k", "one |"),
        ("one two|", "C-u C-y C-y", "one twoone two|"),
        ("a|b", "S-enter", "a\n|b"),
        ("a|b", "C-j M-enter", "a\n\n|b"),
        ("line\nse|cond", "C-a C-k bs", "line|"),
        ("漢字|", "left x", "漢x|字"),
        ("e\u{301}|", "bs", "|"),
        ("👩‍👩‍👧x|", "left bs", "|x"),
        ("ab|", "bs bs bs left del", "|"),
    ] {
        let mut composer = composer(before);
        press(&mut composer, keys, 80);
        assert_eq!(shown(&composer), after, "{before:?} and {keys}");
    }
}

#[test]
fn moving_up_and_down_follows_the_rows_that_are_shown() {
    for (before, columns, keys, after) in [
        ("abc\nd|ef", 80, "up", "a|bc\ndef"),
        ("abcd\nx\nefg|h", 80, "up up", "abc|d\nx\nefgh"),
        ("abcdef|", 3, "up", "ab|cdef"),
        ("|abcdef", 3, "down", "abc|def"),
        ("漢字\na|b", 80, "up", "|漢字\nab"),
    ] {
        let mut composer = composer(before);
        press(&mut composer, keys, columns);
        assert_eq!(shown(&composer), after, "{before:?} and {keys}");
    }
}

#[test]
fn undo_goes_back_by_words_and_redo_forth() {
    let mut composer = composer("|");
    press(&mut composer, "o n e space t w o", 80);
    press(&mut composer, "C-z", 80);
    assert_eq!(composer.text(), "one ");
    press(&mut composer, "C-z C-z", 80);
    assert_eq!(composer.text(), "");
    press(&mut composer, "M-r M-r M-r", 80);
    assert_eq!(shown(&composer), "one two|");
}

#[test]
fn the_history_comes_back_and_the_draft_is_not_lost() {
    let mut composer = Composer::default();
    for prompt in ["first", "second"] {
        composer.set(prompt);
        assert_eq!(composer.take(), prompt);
    }
    composer.set("draft");
    press(&mut composer, "up", 80);
    assert_eq!(shown(&composer), "second|");
    press(&mut composer, "up up up", 80);
    assert_eq!(shown(&composer), "first|");
    press(&mut composer, "down down down down", 80);
    assert_eq!(shown(&composer), "draft|");
}

#[test]
fn a_long_paste_is_folded_and_sent_whole() {
    let long = "0123456789abcde\n".repeat(65_536);
    let mut composer = composer("see | there");
    composer.paste(&long);
    assert_eq!(shown(&composer), "see [pasted 1: 65536 lines]| there");
    composer.paste("short\u{1b}[31m");
    assert_eq!(shown(&composer), "see [pasted 1: 65536 lines]short| there");
    composer.paste(&format!("[pasted 1: 65536 lines]{}", "y".repeat(900)));
    let whole = composer.take();
    assert_eq!(whole, format!("see {long}short[pasted 1: 65536 lines]{} there", "y".repeat(900)));
    // One key takes the whole token away.
    composer.paste(&long);
    press(&mut composer, "bs", 80);
    assert_eq!(composer.text(), "");
}

proptest::proptest! {
    /// Whatever is pressed, the cursor stands between graphemes, and nothing breaks at any width.
    #[test]
    fn the_cursor_stands_between_graphemes(
        keys in proptest::collection::vec(proptest::sample::select(vec![
            "a", "漢", "\u{301}", "👩", "\u{200d}", "space", "C-j", "bs", "del", "left", "right", "up",
            "down", "home", "end", "C-w", "C-k", "C-u", "C-y", "C-z", "M-r", "M-b", "M-f",
        ]), 0..60),
        columns in 1_usize..12,
    ) {
        let mut composer = Composer::default();
        for name in keys {
            composer.key(key(name), columns);
            proptest::prop_assert!(composer.is_boundary(composer.cursor), "{:?}", shown(&composer));
            let (row, _) = composer.place(columns);
            proptest::prop_assert!(row < composer.rows(columns).len());
        }
    }
}
