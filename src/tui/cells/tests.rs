use super::*;

fn texts(lines: &[Line]) -> Vec<String> {
    lines.iter().map(Line::text).collect()
}

fn wrapped(text: &str, most: usize) -> Vec<String> {
    texts(&wrap(&[Span::plain(text)], &Line::default(), &Line::default(), most))
}

#[test]
fn graphemes_have_the_width_that_terminals_give_them() {
    assert_eq!(width("abc"), 3);
    assert_eq!(width("漢字"), 4);
    assert_eq!(width("e\u{301}"), 1);
    assert_eq!(width("👩‍👩‍👧"), 2);
    assert_eq!(width("⚠\u{fe0f}"), 2);
    assert!(is_doubtful("👩‍👩‍👧") && is_doubtful("⚠\u{fe0f}") && is_doubtful("🇩🇪"));
    assert!(!is_doubtful("漢") && !is_doubtful("e\u{301}") && !is_doubtful("a"));
}

#[test]
fn what_drives_a_terminal_is_gone_and_what_hides_is_visible() {
    assert_eq!(clean("a\x1b[31mb\x1b[0m\x1b[2Jc"), "abc");
    assert_eq!(clean("t\x1b]0;title\x07x\x1b]8;;http://e\x1b\\y\x1bPq\x1b\\z"), "txyz");
    assert_eq!(clean("a\r\nb\x07\x08\x00\u{9b}31mc"), "a\nbc");
    assert_eq!(clean("a\u{202e}b\u{200b}c\u{feff}"), "a\\u{202e}b\\u{200b}c\\u{feff}");
    assert_eq!(clean("\u{e0041}"), "\\u{e0041}");
    assert_eq!(clean("👩‍👩‍👧 a\u{200d}b"), "👩‍👩‍👧 a\\u{200d}b");
    assert_eq!(clean("a\tb\n\tc"), "a   b\n    c");
    assert_eq!(clean_row("a\nb"), "a⏎b");
    // An unfinished sequence swallows no row but its own.
    assert_eq!(clean("\x1b]0;open\nnext"), "\nnext");
}

#[test]
fn tools_keep_their_colours_and_nothing_else() {
    let lines = clean_tool(
        "\x1b[1;31mred\x1b[0m plain\x1b[2K\x1b[10;10H\n\x1b[38;5;200mx\x1b[48;2;1;2;3my",
    );
    assert_eq!(texts(&lines), ["red plain", "xy"]);
    assert_eq!(lines[0].spans[0].style, Style { bold: true, ..Style::color(Color::RED) });
    assert_eq!(lines[0].spans[1].style, Style::PLAIN);
    assert_eq!(lines[1].spans[0].style.foreground, Some(Color::Indexed(200)));
    assert_eq!(lines[1].spans[1].style.background, Some(Color::Rgb(1, 2, 3)));
    // A progress bar is what it was last.
    assert_eq!(texts(&clean_tool("10 %\r50 %\r100 %\ndone\r\n")), ["100 %", "done"]);
    // Colours of a model or a file name are not kept.
    assert_eq!(clean("\x1b[31mx"), "x");
}

#[test]
fn words_wrap_and_what_is_too_long_is_cut() {
    assert_eq!(wrapped("the quick brown fox", 10), ["the quick", "brown fox"]);
    assert_eq!(wrapped("abcdefghij", 4), ["abcd", "efgh", "ij"]);
    assert_eq!(wrapped("a  b", 10), ["a  b"]);
    assert_eq!(wrapped("", 10), [""]);
    assert_eq!(wrapped("a\n\nb", 10), ["a", "", "b"]);
    assert_eq!(wrapped("漢字漢字", 5), ["漢字", "漢字"]);
    assert_eq!(wrapped("漢", 1), ["·"]);
    let quote = Line::styled("│ ", Style::DIM);
    let rows = wrap(&[Span::plain("aa bb cc")], &quote, &quote, 7);
    assert_eq!(texts(&rows), ["│ aa bb", "│ cc"]);
    assert_eq!(cut(&Line::styled("abcdef", Style::PLAIN), 4).text(), "abc…");
    assert_eq!(cut(&Line::styled("漢字x", Style::PLAIN), 4).text(), "漢…");
    assert_eq!(cut(&Line::styled("ab", Style::PLAIN), 0).text(), "");
}

#[test]
fn letters_are_never_in_the_colour_of_their_ground() {
    for hidden in
        ["\u{1b}[31;41mx", "\u{1b}[41m\u{1b}[31mx", "\u{1b}[38;5;9;48;5;9mx", "\u{1b}[30;100;40mx"]
    {
        let style = clean_tool(hidden)[0].spans[0].style;
        assert!(style.foreground.is_some() && style.background.is_none(), "{hidden:?}: {style:?}");
    }
    let style = clean_tool("\u{1b}[31;42mx")[0].spans[0].style;
    assert!(style.foreground.is_some() && style.background.is_some(), "control");
}

proptest::proptest! {
    #[test]
    fn no_row_is_wider_than_it_may_be_and_no_word_is_lost(
        text in "[a-z 漢⚠️👩‍👩‍👧\u{301}\n]{0,80}", most in 1_usize..40,
    ) {
        let rows = wrap(&[Span::plain(text.as_str())], &Line::default(), &Line::styled("> ", Style::DIM), most);
        for row in &rows {
            proptest::prop_assert!(row.width() <= most, "{:?} is wider than {}", row.text(), most);
        }
        if most >= 6 {
            let letters = |text: &str| text.chars().filter(char::is_ascii_lowercase).collect::<String>();
            let shown: String = rows.iter().map(Line::text).collect();
            proptest::prop_assert_eq!(letters(&shown), letters(&text));
        }
        for row in chop(&Line::styled(clean_row(&text), Style::PLAIN), &Line::default(), &Line::default(), most) {
            proptest::prop_assert!(row.width() <= most);
        }
    }

    #[test]
    fn nothing_that_drives_a_terminal_survives(text in "\\PC*[\u{1b}\u{7}\u{9b}\\[\\]0-9;mJ\u{202e}a]{0,40}") {
        let cleaned = clean(&text);
        proptest::prop_assert!(cleaned.chars().all(|c| c == '\n' || !c.is_control()), "{cleaned:?}");
        for line in clean_tool(&text) {
            proptest::prop_assert!(!line.text().chars().any(char::is_control));
        }
    }
}
