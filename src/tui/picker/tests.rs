use super::*;

fn item(value: &str, text: &str, more: &str) -> Item {
    let [value, text, more] = [value, text, more].map(str::to_owned);
    Item { value, text, more, ..Item::default() }
}

fn picker(texts: &[&str]) -> Picker {
    let items = texts.iter().enumerate().map(|(n, text)| item(&n.to_string(), text, "")).collect();
    let title = "Sessions".to_owned();
    Picker::new(Choices { title, items, first: 0, then: Then::Command("resume") }, "")
}

fn shown(picker: &Picker, width: usize, height: usize) -> Vec<String> {
    picker.rows(width, height).iter().map(|row| row.text().trim_end().to_owned()).collect()
}

fn press(picker: &mut Picker, code: Code) -> Picked {
    picker.key(Key::plain(code), 5)
}

fn types(picker: &mut Picker, text: &str) {
    for c in text.chars() {
        assert_eq!(press(picker, Code::Char(c)), Picked::Open);
    }
}

#[test]
fn typing_searches_and_enter_chooses() {
    let mut it = picker(&["Fix the parser", "Write a test", "the PARSER again"]);
    assert_eq!(
        shown(&it, 80, 10),
        [
            "Sessions · 3",
            "search:",
            "▸ Fix the parser",
            "  Write a test",
            "  the PARSER again",
            "  Enter chooses · Esc leaves · typing searches",
        ]
    );
    types(&mut it, "parser");
    assert_eq!(shown(&it, 80, 10)[..2], ["Sessions · 2 of 3", "search: parser"]);
    press(&mut it, Code::Down);
    assert_eq!(press(&mut it, Code::Enter), Picked::Chosen("2".to_owned()));
    // Words in any order; a wrong one is taken back by graphemes.
    types(&mut it, " again");
    assert_eq!(press(&mut it, Code::Enter), Picked::Chosen("2".to_owned()));
    types(&mut it, "e\u{301}");
    assert_eq!(press(&mut it, Code::Enter), Picked::Open, "nothing fits, nothing is chosen");
    assert!(shown(&it, 80, 10).contains(&"  nothing fits the search".to_owned()));
    press(&mut it, Code::Backspace);
    assert_eq!(press(&mut it, Code::Enter), Picked::Chosen("2".to_owned()));
    it.key(Key::ctrl('u'), 5);
    assert_eq!(shown(&it, 80, 10)[0], "Sessions · 3");
    assert_eq!(press(&mut it, Code::Esc), Picked::Closed);
}

#[test]
fn a_long_list_scrolls_and_stays_in_its_rows() {
    let texts: Vec<String> = (0..500).map(|n| format!("entry {n}")).collect();
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    let mut it = picker(&texts);
    for (code, marked) in [
        (Code::Down, 1),
        (Code::PageDown, 6),
        (Code::End, 499),
        (Code::Down, 499),
        (Code::PageUp, 494),
        (Code::Home, 0),
        (Code::Up, 0),
    ] {
        press(&mut it, code);
        let rows = shown(&it, 80, 8);
        assert_eq!(rows.len(), 8);
        let wanted = format!("▸ entry {marked}");
        assert!(rows.contains(&wanted), "{wanted}: {rows:#?}");
    }
    let many = picker(&vec!["x"; MOST + 10]);
    assert_eq!(many.items.len(), MOST);
}

#[test]
fn what_stands_behind_gives_way_and_foreign_text_drives_nothing() {
    let items = vec![item("1", "a long text of a prompt that is cut", "12 KiB")];
    let choices = Choices { title: String::new(), items, first: 0, then: Then::Write };
    let it = Picker::new(choices, "");
    assert_eq!(shown(&it, 80, 2)[1], "▸ a long text of a prompt that is cut  12 KiB");
    assert_eq!(shown(&it, 30, 2)[1], "▸ a long text of a pr…  12 KiB");
    assert_eq!(shown(&it, 20, 2)[1], "▸ a long text of a …");
    let it = picker(&["\u{1b}]0;title\u{7}a\u{1b}[2J\nb\u{202e}"]);
    assert_eq!(shown(&it, 80, 1), ["▸ a⏎b\\u{202e}"]);
    assert_eq!(it.items.len(), 1);
}

#[test]
fn as_text_it_says_how_to_choose() {
    let items = vec![item("abc", "Fix it", "2 KiB"), item("def", "\u{1b}[2JTest", "")];
    let title = "Sessions".to_owned();
    let choices = Choices { title, items, first: 0, then: Then::Command("resume") };
    assert_eq!(choices.as_text(), "Sessions\n/resume abc: Fix it  2 KiB\n/resume def: Test");
}

proptest::proptest! {
    /// At every size: at least one row, at most as many as there are, and none too wide.
    #[test]
    fn the_rows_fit(
        width in 1_usize..60,
        height in 1_usize..12,
        texts in proptest::collection::vec("[a-z 漢👩\u{301}\u{7}]{0,40}", 0..20),
        keys in proptest::collection::vec(0_usize..8, 0..10),
    ) {
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        let mut it = picker(&texts);
        for key in keys {
            let code = [
                Code::Up, Code::Down, Code::PageUp, Code::PageDown, Code::Home, Code::End,
                Code::Char('漢'), Code::Backspace,
            ][key];
            press(&mut it, code);
            let rows = it.rows(width, height);
            proptest::prop_assert!(!rows.is_empty() && rows.len() <= height, "{}", rows.len());
            for row in &rows {
                proptest::prop_assert!(row.width() <= width, "{:?} at {width}", row.text());
            }
        }
    }
}
