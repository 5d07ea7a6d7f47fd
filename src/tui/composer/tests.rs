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

#[test]
fn what_is_written_is_sent_to_the_letter() {
    // Letter by letter, as a terminal sends what an input method or a list of emoji gives.
    let said = "fam 👩\u{200d}👩\u{200d}👧 می\u{200c}خواهم a\u{ad}b \u{202e}x";
    let mut it = Composer::default();
    for c in said.chars() {
        it.key(Key::plain(Code::Char(c)), 40);
    }
    assert_eq!(it.take(), said);
    let makefile = "all:\n\tcc\ta.c\n";
    let mut it = Composer::default();
    it.paste(makefile);
    assert_eq!(it.whole(), makefile);
    it.take();
    // So it comes back from the history, and from an editor.
    it.key(key("up"), 40);
    assert_eq!(it.take(), makefile);
    it.put("a\tb");
    assert_eq!(it.take(), "a\tb");
    // What drives a terminal is left out all the same.
    it.paste("a\u{1b}[2J\u{1b}]0;x\u{7}b\u{9b}31mc\u{7}\r\n");
    assert_eq!(it.take(), "abc\n");
    // A tab takes the cells that it is shown in.
    it.put("\t\tx");
    assert_eq!((it.rows(5), it.place(5)), (vec![(0, 1), (1, 3)], (1, 5)));
}

#[test]
fn what_is_killed_in_a_row_is_put_back_whole_and_what_was_before_it_too() {
    let mut composer = composer("one two three|");
    press(&mut composer, "C-w C-w", 80);
    assert_eq!(shown(&composer), "one |");
    press(&mut composer, "C-y", 80);
    assert_eq!(shown(&composer), "one two three|");
    press(&mut composer, "C-a C-k", 80);
    press(&mut composer, "C-y space C-y", 80);
    assert_eq!(shown(&composer), "one two three one two three|");
    press(&mut composer, "M-y", 80);
    assert_eq!(shown(&composer), "one two three two three|");
    // Round again; and not after something else was pressed.
    press(&mut composer, "M-y", 80);
    assert_eq!(shown(&composer), "one two three one two three|");
    composer.set("new");
    press(&mut composer, "M-y", 80);
    assert_eq!(shown(&composer), "newone two three|");
}

#[test]
fn up_takes_what_begins_as_the_draft_does() {
    let mut composer = Composer::default();
    composer.recollect(vec!["fix a".to_owned(), "test".to_owned()]);
    for prompt in ["fix b", "say"] {
        composer.remember(prompt);
    }
    composer.set("fix");
    press(&mut composer, "up", 80);
    assert_eq!(shown(&composer), "fix b|");
    press(&mut composer, "up up", 80);
    assert_eq!(shown(&composer), "fix a|");
    press(&mut composer, "down down", 80);
    assert_eq!(shown(&composer), "fix|");
    // What fits nothing is no reason to show nothing.
    composer.set("zzz");
    press(&mut composer, "up up up", 80);
    assert_eq!(shown(&composer), "test|");
    press(&mut composer, "down down down", 80);
    assert_eq!(shown(&composer), "zzz|");
}

#[test]
fn earlier_sessions_come_before_and_a_place_in_the_history_is_kept() {
    let mut composer = Composer::default();
    composer.remember("now");
    press(&mut composer, "up", 80);
    composer.recollect((0..HISTORY + 5).map(|n| format!("old {n}")).collect());
    assert_eq!(composer.history().len(), HISTORY);
    press(&mut composer, "up", 80);
    assert_eq!(shown(&composer), format!("old {}|", HISTORY + 4));
    // Control characters of a file do not get into what is written.
    composer.recollect(Vec::new());
    composer.remember("\u{1b}[2Jbad\u{7}");
    composer.set("");
    press(&mut composer, "up", 80);
    assert_eq!(shown(&composer), "bad|");
}

#[test]
fn a_text_from_the_editor_takes_the_place_of_all_and_a_long_one_is_folded() {
    let mut composer = composer("see |");
    composer.paste(&"line\n".repeat(20));
    let whole = composer.whole();
    assert!(whole.starts_with("see line\nline"));
    composer.put(&whole);
    assert_eq!(composer.text(), "see [pasted 1: 20 lines]", "nothing was changed");
    composer.put("short\ntext");
    assert_eq!(shown(&composer), "short\ntext|");
    let long = "漢".repeat(40_000);
    composer.put(&long);
    assert!(composer.text().len() < 40, "{}", composer.text());
    assert_eq!(composer.take(), long);
}

#[test]
fn a_part_is_replaced_and_a_wrong_one_is_not() {
    let mut composer = composer("see @sr| now");
    composer.replace(4..7, "@src/a.rs", 0);
    assert_eq!(shown(&composer), "see @src/a.rs| now");
    composer.replace(4..400, "x", 0);
    assert_eq!(shown(&composer), "see @src/a.rs| now");
    press(&mut composer, "C-z", 80);
    assert_eq!(shown(&composer), "see @sr| now");
}

#[test]
fn typing_a_megabyte_without_any_marks_ends_in_time() {
    // What a terminal without bracketed paste does.
    let mut composer = Composer::default();
    for _ in 0..200_000 {
        composer.key(key("a"), 80);
    }
    for _ in 0..2000 {
        composer.key(key("漢"), 80);
        composer.key(key("space"), 80);
    }
    assert_eq!(composer.text().len(), 208_000);
    let kept: usize = composer.undo.iter().map(|(text, _)| text.len()).sum();
    assert!(kept <= UNDO_BYTES + composer.text().len(), "{kept}");
}

proptest::proptest! {
    /// What is undone and done again is as it was.
    #[test]
    fn redo_is_the_way_back(
        keys in proptest::collection::vec(proptest::sample::select(vec![
            "a", "漢", "space", "C-j", "bs", "del", "left", "up", "C-w", "C-k", "C-u", "C-y", "M-y",
        ]), 1..40),
        steps in 1_usize..20,
    ) {
        let mut composer = Composer::default();
        for name in keys {
            composer.key(key(name), 20);
        }
        let before = composer.text().to_owned();
        let depth = composer.undo.len().min(steps);
        for _ in 0..depth {
            composer.key(key("C-z"), 20);
        }
        for _ in 0..depth {
            composer.key(key("M-r"), 20);
        }
        proptest::prop_assert_eq!(composer.text(), before);
    }

    /// At every width a row is at most as wide, and the rows are the whole text.
    #[test]
    fn the_rows_are_the_text(text in "[a-z \n漢👩\u{301}\u{5d0}]{0,80}", columns in 1_usize..20) {
        let mut composer = Composer::default();
        composer.set(&text);
        let rows = composer.rows(columns);
        let mut at = 0;
        for (start, end) in rows {
            let between = &composer.text()[at..start];
            proptest::prop_assert!(between.is_empty() || between == "\n");
            let row = &composer.text()[start..end];
            proptest::prop_assert!(width(row) <= columns.max(2), "{row:?} at {columns}");
            at = end;
        }
        proptest::prop_assert_eq!(at, composer.text().len());
    }
}

#[test]
fn a_very_long_text_that_comes_back_is_folded_and_whole() {
    let long = "0123456789 word\n".repeat(10_000);
    let mut composer = Composer::default();
    composer.paste(&long);
    composer.take();
    composer.key(key("up"), 80);
    assert!(composer.text().len() < 100, "from the history");
    assert_eq!(composer.whole(), long);
    // Again and again it is the same.
    composer.key(key("C-p"), 80);
    composer.key(key("C-n"), 80);
    assert_eq!(composer.pastes.len(), 1);
    let mut composer = composer_of("draft");
    composer.put_before(&long);
    assert!(composer.text().len() < 100, "before what is written");
    assert_eq!(composer.whole(), format!("{long}\ndraft"));
    // Control: what is not long is shown, and a paste in the draft stays one.
    let mut composer = Composer::default();
    composer.paste(&"x\n".repeat(20));
    composer.put_before("short");
    assert_eq!(composer.text(), "short\n[pasted 1: 20 lines]");
    assert_eq!(composer.whole(), format!("short\n{}", "x\n".repeat(20)));
}

fn composer_of(text: &str) -> Composer {
    let mut composer = Composer::default();
    composer.set(text);
    composer
}

proptest::proptest! {
    /// Whatever is pressed, the cursor stands between graphemes, and nothing breaks at any width.
    #[test]
    fn the_cursor_stands_between_graphemes(
        keys in proptest::collection::vec(proptest::sample::select(vec![
            "a", "漢", "\u{301}", "👩", "\u{200d}", "space", "C-j", "bs", "del", "left", "right", "up",
            "down", "home", "end", "C-w", "C-k", "C-u", "C-y", "M-y", "C-z", "M-r", "M-b", "M-f",
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
