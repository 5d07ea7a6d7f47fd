use super::*;

fn whole(bytes: &[u8]) -> Vec<Typed> {
    Parser::default().feed(bytes)
}

fn bytewise(bytes: &[u8]) -> Vec<Typed> {
    let mut parser = Parser::default();
    bytes.iter().flat_map(|byte| parser.feed(&[*byte])).collect()
}

/// The text that the keys would type.
fn text(typed: &[Typed]) -> String {
    typed
        .iter()
        .filter_map(|typed| match typed {
            Typed::Key(Key { code: Code::Char(c), ctrl: false, alt: false, .. }) => Some(*c),
            _ => None,
        })
        .collect()
}

#[test]
fn keys_mean_the_same_in_one_read_and_byte_by_byte() {
    let key = |code| Typed::Key(Key::plain(code));
    let held = |code, shift, alt, ctrl| Typed::Key(Key { code, ctrl, alt, shift });
    let cases: Vec<(&[u8], Vec<Typed>)> = vec![
        (b"a", vec![key(Code::Char('a'))]),
        (b"\r", vec![key(Code::Enter)]),
        (b"\n", vec![Typed::Key(Key::ctrl('j'))]),
        (b"\x03", vec![Typed::Key(Key::ctrl('c'))]),
        (b"\x7f\x08", vec![key(Code::Backspace), key(Code::Backspace)]),
        (b"\x1b[A\x1bOB", vec![key(Code::Up), key(Code::Down)]),
        (b"\x1b[1;5D", vec![held(Code::Left, false, false, true)]),
        (b"\x1b[3~\x1b[5~", vec![key(Code::Delete), key(Code::PageUp)]),
        (b"\x1bb", vec![held(Code::Char('b'), false, true, false)]),
        (b"\x1b\r", vec![held(Code::Enter, false, true, false)]),
        (b"\x1b[13;2u", vec![held(Code::Enter, true, false, false)]),
        (b"\x1b[106;5u", vec![Typed::Key(Key::ctrl('j'))]),
        (b"\x1b[27u", vec![key(Code::Esc)]),
        (b"\x1b[27;2;13~", vec![held(Code::Enter, true, false, false)]),
        (b"\x1b[97:65;2u", vec![held(Code::Char('a'), true, false, false)]),
        (b"\x1b[Z", vec![held(Code::Tab, true, false, false)]),
        (b"\x1b[I\x1b[O", vec![Typed::Focus(true), Typed::Focus(false)]),
        (
            "é漢👍".as_bytes(),
            vec![key(Code::Char('é')), key(Code::Char('漢')), key(Code::Char('👍'))],
        ),
    ];
    for (bytes, wanted) in cases {
        assert_eq!(whole(bytes), wanted, "{bytes:?}");
        assert_eq!(bytewise(bytes), wanted, "{bytes:?} byte by byte");
    }
}

#[test]
fn reports_of_the_terminal_type_nothing_however_they_are_split() {
    let reports: [&[u8]; 8] = [
        b"\x1b[<0;33;12M",
        b"\x1b[<0;33;12m",
        b"\x1b[M !!",
        b"\x1b[32;10;12M",
        b"\x1b[?62;4c",
        b"\x1b]11;rgb:0000/0000/0000\x1b\\",
        b"\x1b]11;rgb:0000/0000/0000\x07",
        b"\x1bP>|tmux 3.3a\x1b\\",
    ];
    for report in reports {
        for split in 0..=report.len() {
            let mut parser = Parser::default();
            let (first, second) = report.split_at(split);
            let mut typed = parser.feed(first);
            typed.extend(parser.feed(second));
            typed.extend(parser.feed(b"x"));
            assert_eq!(text(&typed), "x", "{report:?} split at {split}");
        }
        assert_eq!(text(&bytewise(report)), "", "{report:?}");
    }
    // One that never ends types nothing either, and the keyboard works afterwards.
    let mut parser = Parser::default();
    assert!(parser.feed(b"\x1b[<0;33").is_empty());
    assert!(parser.pending().is_some());
    assert!(parser.timeout().is_empty());
    assert_eq!(text(&parser.feed(b"ok")), "ok");
}

#[test]
fn a_lone_escape_is_a_key_after_a_moment() {
    let mut parser = Parser::default();
    assert!(parser.feed(b"\x1b").is_empty());
    assert_eq!(parser.pending(), Some(ESCAPE_WAIT));
    assert_eq!(parser.timeout(), [Typed::Key(Key::plain(Code::Esc))]);
    assert_eq!(parser.pending(), Some(LATE_WAIT));
    assert!(parser.timeout().is_empty() && parser.pending().is_none());
    // Twice in one read: the first is certain, the second waits.
    assert_eq!(parser.feed(b"\x1b\x1b"), [Typed::Key(Key::plain(Code::Esc))]);
    assert_eq!(parser.timeout(), [Typed::Key(Key::plain(Code::Esc))]);
}

/// Feeds bytes with a pause after each, in which every wait of at most so long ends.
fn slowly(bytes: &[u8], pause: Duration) -> Vec<Typed> {
    let mut parser = Parser::default();
    let mut typed = Vec::new();
    for byte in bytes {
        typed.extend(parser.feed(&[*byte]));
        while parser.pending().is_some_and(|wait| wait <= pause) {
            typed.extend(parser.timeout());
        }
    }
    while parser.pending().is_some() {
        typed.extend(parser.timeout());
    }
    typed
}

#[test]
fn a_line_slower_than_a_hand_types_no_reports() {
    let pause = Duration::from_millis(200);
    for report in
        [&b"\x1b[<0;33;12M"[..], b"\x1b[<64;1;1m", b"\x1b[A", b"\x1b[1;5D", b"\x1b[?1u", b"\x1b[I"]
    {
        assert_eq!(text(&slowly(report, pause)), "", "{report:?}");
    }
    let up = Typed::Key(Key::plain(Code::Up));
    assert_eq!(slowly(b"\x1b[A", pause).last(), Some(&up));
    let paste = slowly(b"\x1b[200~a\rb\x1b[201~", pause);
    assert_eq!(paste.last(), Some(&Typed::Paste("a\nb".to_owned())));
    assert_eq!(text(&slowly("漢é".as_bytes(), pause)), "漢é");
}

#[test]
fn what_a_hand_types_after_an_escape_is_typed() {
    for typed in ["[link](url)", "[1] note", "[x] done", "[", "[[a]]", "[<a>", "[ ]", "[漢"] {
        let bytes = [b"\x1b", typed.as_bytes()].concat();
        let mut parser = Parser::default();
        let mut keys = parser.feed(&bytes[..1]);
        keys.extend(parser.timeout());
        keys.extend(parser.feed(&bytes[1..]));
        while parser.pending().is_some() {
            keys.extend(parser.timeout());
        }
        assert_eq!(text(&keys), typed);
    }
}

#[test]
fn a_sequence_that_breaks_off_takes_no_key_with_it() {
    let keys = whole(b"\x1b[12\rx");
    assert_eq!(keys, [Key::plain(Code::Enter), Key::plain(Code::Char('x'))].map(Typed::Key));
    assert_eq!(whole(b"\x1b[1\x03"), [Typed::Key(Key::ctrl('c'))]);
    assert_eq!(text(&whole("\x1b[1漢".as_bytes())), "漢");
    // With Alt, what begins an answer of the terminal's is a key as well.
    let mut parser = Parser::default();
    assert!(parser.feed(b"\x1b]").is_empty());
    assert_eq!(parser.timeout(), [Typed::Key(Key::plain(Code::Char(']')).with_alt())]);
}

#[test]
fn a_paste_is_one_text_with_plain_line_ends() {
    let bytes = "\x1b[200~one\r\ntwo\rthree\nf\u{fc}nf\x1b[A 漢\x1b[201~x".as_bytes();
    let wanted = [
        Typed::Paste("one\ntwo\nthree\nfünf\x1b[A 漢".to_owned()),
        Typed::Key(Key::plain(Code::Char('x'))),
    ];
    assert_eq!(whole(bytes), wanted);
    assert_eq!(bytewise(bytes), wanted);
    for split in 0..bytes.len() {
        let mut parser = Parser::default();
        let mut typed = parser.feed(&bytes[..split]);
        typed.extend(parser.feed(&bytes[split..]));
        assert_eq!(typed, wanted, "split at {split}");
    }
}

#[test]
fn a_paste_without_an_end_gives_the_keyboard_back() {
    let mut parser = Parser::default();
    assert!(parser.feed(b"\x1b[200~lost end\x1b[20").is_empty());
    assert_eq!(parser.pending(), Some(PASTE_WAIT));
    assert_eq!(parser.timeout(), [Typed::Paste("lost end".to_owned())]);
    assert_eq!(text(&parser.feed(b"typed")), "typed");
}

#[test]
fn a_paste_of_a_megabyte_is_exact_and_one_of_any_size_bounded() {
    let body = "0123456789abcde\n".repeat(65_536);
    let mut bytes = b"\x1b[200~".to_vec();
    bytes.extend_from_slice(body.as_bytes());
    bytes.extend_from_slice(b"\x1b[201~");
    let mut parser = Parser::default();
    let typed: Vec<Typed> = bytes.chunks(4096).flat_map(|piece| parser.feed(piece)).collect();
    assert_eq!(typed, [Typed::Paste(body)]);

    let mut parser = Parser::default();
    parser.feed(b"\x1b[200~");
    for _ in 0..20 {
        parser.feed(&vec![b'x'; 1 << 20]);
    }
    let typed = parser.feed(b"\x1b[201~");
    assert_eq!(typed, [Typed::Paste("x".repeat(PASTE_LIMIT))]);
}

#[test]
fn bytes_that_are_no_character_are_left_out_and_told() {
    let typed = whole(b"a\xff\xc3b\xe6\xbcc\x80d\xed\xa0\x80");
    assert_eq!(text(&typed), "abcd");
    assert_eq!(typed.iter().filter(|typed| **typed == Typed::Strange).count(), 5, "{typed:?}");
    assert!(!whole("aé漢🙂".as_bytes()).contains(&Typed::Strange), "control");
    // One that is cut off is told when nothing more comes.
    let mut parser = Parser::default();
    assert_eq!(parser.feed(b"\xe4"), []);
    assert_eq!(parser.timeout(), [Typed::Strange]);
}

proptest::proptest! {
    /// Whatever comes, in whatever pieces: the same keys, and the keyboard works afterwards.
    #[test]
    fn any_chunking_gives_the_same_keys(
        bytes in proptest::collection::vec(proptest::prop_oneof![
            proptest::prelude::Just(0x1b_u8), proptest::prelude::Just(b'['),
            proptest::prelude::Just(b'2'), proptest::prelude::Just(b'0'),
            proptest::prelude::Just(b'~'), proptest::prelude::Just(b'M'),
            proptest::prelude::any::<u8>(),
        ], 0..64),
        size in 1_usize..9,
    ) {
        let mut parser = Parser::default();
        let mut typed: Vec<Typed> = bytes.chunks(size).flat_map(|piece| parser.feed(piece)).collect();
        let mut one = Parser::default();
        let mut wanted = one.feed(&bytes);
        typed.extend(parser.timeout());
        wanted.extend(one.timeout());
        proptest::prop_assert_eq!(typed, wanted);
        proptest::prop_assert_eq!(text(&parser.feed(b"ok")), "ok");
    }
}
