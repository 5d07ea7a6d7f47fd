use proptest::prelude::*;

use super::{Event, Parser, SseError};

fn event(name: &str, data: &str) -> Event {
    Event { name: name.into(), data: data.into(), id: None }
}

/// Parses chunks with a bound and returns the events and how it ended.
fn parse_bounded(
    chunks: impl IntoIterator<Item = impl AsRef<[u8]>>,
    limit: usize,
) -> (Vec<Event>, Result<(), SseError>) {
    let mut parser = Parser::with_limit(limit);
    let mut events = Vec::new();
    for chunk in chunks {
        if let Err(error) = parser.feed(chunk.as_ref(), &mut events) {
            return (events, Err(error));
        }
    }
    let end = parser.finish(&mut events);
    (events, end)
}

fn parse(bytes: &[u8]) -> Vec<Event> {
    let (events, end) = parse_bounded([bytes], super::MAX_EVENT);
    end.unwrap();
    events
}

#[test]
fn the_three_line_endings_mean_the_same() {
    let text = "event: a\ndata: 1\ndata: 2\n\n: ping\n\ndata:3\n\n";
    let expected = vec![event("a", "1\n2"), event("", "3")];
    assert_eq!(parse(text.as_bytes()), expected);
    assert_eq!(parse(text.replace('\n', "\r").as_bytes()), expected);
    assert_eq!(parse(text.replace('\n', "\r\n").as_bytes()), expected);
}

#[test]
fn every_split_of_the_standards_corners_gives_the_same_events() {
    let text = "\u{feff}: note\r\nevent: add\rdata: früh 日本 🦀\ndata\ndata:  two spaces\r\n\
                id: 7\nid: a\0b\nretry: 10\nunknown: x\n\r\ndata: last";
    let expected = vec![
        Event {
            name: "add".into(),
            data: "früh 日本 🦀\n\n two spaces".into(),
            id: Some("7".into()),
        },
        event("", "last"),
    ];
    let bytes = text.as_bytes();
    assert_eq!(parse(bytes), expected);
    for at in 0..=bytes.len() {
        let (events, end) = parse_bounded([&bytes[..at], &bytes[at..]], super::MAX_EVENT);
        assert_eq!((events, end), (expected.clone(), Ok(())), "split at {at}");
    }
    let (events, _) = parse_bounded(bytes.chunks(1), super::MAX_EVENT);
    assert_eq!(events, expected);
}

#[test]
fn an_event_without_data_is_none_and_its_name_is_forgotten() {
    assert_eq!(parse(b"event: a\nid: 1\n\ndata: x\n\n"), [event("", "x")]);
    assert_eq!(parse(b"event: a\ndata\n\n"), [event("a", "")]);
}

#[test]
fn only_the_first_byte_order_mark_is_dropped() {
    assert_eq!(parse("\u{feff}data: x\n\n".as_bytes()), [event("", "x")]);
    assert_eq!(parse("\u{feff}\u{feff}data: x\n\n".as_bytes()), []);
    assert_eq!(parse("data: \u{feff}x\n\n".as_bytes()), [event("", "\u{feff}x")]);
}

#[test]
fn broken_utf8_is_replaced_and_the_rest_survives() {
    assert_eq!(
        parse(b"data: a\xff\xe6b\n\ndata: c\n\n"),
        [event("", "a\u{fffd}\u{fffd}b"), event("", "c")]
    );
}

#[test]
fn an_event_is_delivered_as_soon_as_its_blank_line_has_come() {
    let mut parser = Parser::new();
    let mut events = Vec::new();
    parser.feed(b"data: x\r\n\r", &mut events).unwrap();
    assert_eq!(events, [event("", "x")]);
    parser.feed(b"\ndata: y\r\n\r\n", &mut events).unwrap();
    assert_eq!(events, [event("", "x"), event("", "y")]);
}

#[test]
fn what_is_longer_than_the_bound_is_a_named_error_and_stays_one() {
    let mut parser = Parser::with_limit(10);
    let mut events = Vec::new();
    parser.feed(b"data: 1234\n\n", &mut events).unwrap();
    let error = parser.feed(b"data: 12345", &mut events).unwrap_err();
    assert_eq!(error.to_string(), "an event of the stream is longer than 10 bytes");
    assert_eq!(events, [event("", "1234")]);
    assert_eq!(parser.feed(b"\n\ndata: 1\n\n", &mut events), Err(error));
    assert_eq!(parser.finish(&mut events), Err(error));
    assert_eq!(events.len(), 1);

    let (events, end) = parse_bounded([b"data: 123\ndata: 456\ndata: 789\ndata: 0\n\n"], 10);
    assert_eq!((events, end), (vec![], Err(SseError::TooLong { limit: 10 })));
}

/// Streams that look like ones: fields, ends of all kinds, and raw bytes.
fn stream() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        Just(b"\n".to_vec()),
        Just(b"\r".to_vec()),
        Just(b"\r\n".to_vec()),
        Just(b"data: ".to_vec()),
        Just(b"data".to_vec()),
        Just(b"event: x".to_vec()),
        Just(b"id:".to_vec()),
        Just(b":".to_vec()),
        Just("\u{feff}".as_bytes().to_vec()),
        "[a-z日🦀é ]{0,6}".prop_map(String::into_bytes),
        proptest::collection::vec(any::<u8>(), 0..4),
    ];
    proptest::collection::vec(piece, 0..40).prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn any_chunking_gives_the_same_events(
        bytes in stream(),
        cuts in proptest::collection::vec(any::<proptest::sample::Index>(), 0..12),
        limit in prop_oneof![Just(usize::MAX), 0_usize..40],
    ) {
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
        cuts.sort_unstable();
        let mut chunks = Vec::new();
        let mut start = 0;
        for cut in cuts {
            chunks.push(&bytes[start..cut]);
            start = cut;
        }
        chunks.push(&bytes[start..]);
        let whole = parse_bounded([&bytes], limit);
        prop_assert_eq!(parse_bounded(&chunks, limit), whole.clone());
        prop_assert_eq!(parse_bounded(bytes.chunks(1), limit), whole);
    }
}
