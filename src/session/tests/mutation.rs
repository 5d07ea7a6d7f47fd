//! A valid session, broken at random: no line that is whole is lost, and it goes on.

use std::time::Instant;

use proptest::prelude::*;

use super::*;
use crate::session::{pair::tests::strict, scan};

/// A session of every kind of entry, a line each; the texts of messages are all different.
fn valid() -> Vec<Vec<u8>> {
    let call = |id: &str, text: &str| Message {
        role: Role::Assistant,
        blocks: vec![
            Block::Text { text: text.to_owned() },
            Block::Call(ToolCall {
                id: id.to_owned(),
                name: "write".to_owned(),
                arguments: Arguments::parse(
                    r#"{"type":"text","at":[{"type":"message","v":"}\n{"}]}"#,
                ),
            }),
        ],
    };
    let result = |id: &str, text: &str| Message {
        role: Role::User,
        blocks: vec![
            Block::Result(ToolResult {
                call: id.to_owned(),
                text: "ok".to_owned(),
                is_error: false,
            }),
            Block::Text { text: text.to_owned() },
        ],
    };
    let usage = Usage { input_tokens: 3, ..Usage::default() };
    let messages = [
        Message::user("first ü€\u{2028}\r\n\0 \"quoted\\\" {\"type\":\"message\",\"at\":\""),
        call("a", "second"),
        result("a", "third"),
        call("b", "fourth"),
        result("b", "fifth"),
        Message::user("sixth"),
    ];
    let at = "2026-11-29T17:44:23.000Z";
    let mut lines = vec![Header::new("x", Path::new(WS), at, None).line().unwrap()];
    for message in &messages {
        lines.push(Entry::Message(message).line(at, 0, None).unwrap());
        for entry in [
            Entry::Usage { model: "a/b", usage },
            Entry::Changed { path: Path::new("/ws/a") },
            Entry::Denied { tool: "bash", atom: "process/exec", detail: "rm" },
            Entry::End { outcome: "ok", error: None },
        ] {
            lines.push(entry.line(at, 1, None).unwrap());
        }
    }
    lines
}

/// What other programs, torn writes and broken disks leave.
fn corpus() -> Vec<Vec<u8>> {
    let lines = valid();
    let whole = lines.join(&b'\n');
    let mut reversed = lines.clone();
    reversed.reverse();
    let two_heads = [lines.clone(), lines.clone()].concat();
    vec![
        [whole.clone(), b"\n".to_vec()].concat(),
        whole.clone(),
        lines.join(&b"\r\n"[..]),
        lines.concat(),
        lines.join(&[0; 100][..]),
        lines.join(&b"\n\n{\"type\":\"later\"}\njunk\n"[..]),
        reversed.join(&b'\n'),
        two_heads.join(&b'\n'),
        whole[..whole.len() / 2].to_vec(),
        [vec![0; 5000], whole.clone()].concat(),
        [whole, vec![b'['; 5000]].concat(),
    ]
}

fn mutate(random: &mut fastrand::Rng, bytes: &mut Vec<u8>) {
    let at = random.usize(0..=bytes.len());
    let until = (at + random.usize(0..80)).min(bytes.len());
    let mut lines: Vec<Vec<u8>> = bytes.split(|b| *b == b'\n').map(<[u8]>::to_vec).collect();
    let (one, other) = (random.usize(0..lines.len()), random.usize(0..lines.len()));
    match random.u8(0..9) {
        0 if at < bytes.len() => bytes[at] ^= 1 << random.u8(0..8),
        1 => drop(bytes.drain(at..until)),
        2 => drop(bytes.splice(at..at, vec![0; random.usize(1..600)])),
        3 => drop(bytes.splice(
            at..until,
            (0..random.usize(1..60)).map(|_| random.u8(..)).collect::<Vec<_>>(),
        )),
        4 => bytes.truncate(at),
        5 => {
            lines.insert(one, lines[other].clone());
            *bytes = lines.join(&b'\n');
        }
        6 => {
            lines.swap(one, other);
            *bytes = lines.join(&b'\n');
        }
        7 => {
            // Two lines in one.
            let glue = lines.iter().position(|line| !line.is_empty()).unwrap_or(0).max(one);
            let line = lines.remove(glue);
            match lines.get_mut(glue) {
                Some(next) => *next = [line, next.clone()].concat(),
                None => lines.push(line),
            }
            *bytes = lines.join(&b'\n');
        }
        _ => {
            let piece = br#"{"type":"message","at":"x","mess"#;
            drop(bytes.splice(at..at, piece[..random.usize(1..piece.len())].to_vec()));
        }
    }
}

/// The texts of the valid messages that stand somewhere in these bytes, whole, and not as a part of
/// something larger.
fn whole_texts(bytes: &[u8]) -> Vec<String> {
    let mut found = Vec::new();
    for line in valid() {
        let Ok(event) = serde_json::from_slice::<Value>(&line) else { continue };
        let Ok(message) = serde_json::from_value::<Message>(event["message"].clone()) else {
            continue;
        };
        let is_whole = memchr::memmem::find_iter(bytes, &line).any(|at| {
            let rest = bytes[at + line.len()..].split(|b| *b == b'\n').next().unwrap();
            let next = rest.iter().find(|byte| !byte.is_ascii_whitespace());
            next.is_none_or(|next| !b",}]:".contains(next))
        });
        if is_whole {
            found.push(message.text());
        }
    }
    found
}

/// Says whether the first object that can be read is a session's beginning with that version.
fn begins_with(bytes: &[u8], version: u64) -> bool {
    let mark = format!("\"version\":{version}");
    memchr::memmem::find(bytes, mark.as_bytes()).is_some_and(|at| {
        // No message stands before it.
        memchr::memmem::find(&bytes[..at], b"{\"type\":\"message\",\"at\":\"2026").is_none()
    })
}

fn goes_on(bytes: &[u8]) {
    let room = room();
    let path = room.session(&["one"]);
    fs::write(&path, bytes).unwrap();
    let shown = || String::from_utf8_lossy(bytes).into_owned();
    let found = room.store.list(Path::new(WS)).unwrap().remove(0);
    room.store.overview(&found).unwrap();
    let mut told = Vec::new();
    room.store
        .tell(&found, |_, json, event| {
            serde_json::from_str::<Value>(json).unwrap();
            if let Told::Message(message) = event {
                told.push(message);
            }
        })
        .unwrap();
    let mut opened = match room.store.open(Path::new(WS), &found) {
        // A beginning whose number broke is one of a later kli's: refused whole, and not touched.
        Err(SessionError::Version { version, .. }) if begins_with(bytes, version) => {
            assert_eq!(fs::read(&path).unwrap(), bytes, "refusing changes nothing");
            return;
        }
        opened => opened.unwrap(),
    };
    let before = opened.messages.clone();
    strict(&before).unwrap_or_else(|error| panic!("{error}: {}", shown()));
    assert!(before.first().is_none_or(|first| first.role == Role::User), "{}", shown());
    for text in whole_texts(bytes) {
        assert!(texts(&before).contains(&text), "`{text}` is lost from {}", shown());
        assert!(texts(&told).contains(&text), "`{text}` is not told of {}", shown());
    }
    assert_eq!(fs::read(&path).unwrap(), bytes, "looking changes nothing");
    say(&mut opened.log, "next");
    drop(opened);
    let again = room.open();
    let damaged = again.notices.iter().any(|notice| matches!(notice, Notice::Damaged { .. }));
    assert!(!damaged, "{:?}: {}", again.notices, shown());
    let mut expected = before;
    expected.push(Message::user("next"));
    // An answer to a call at the end goes into the next message then.
    let said = |messages: &[Message]| texts(messages).concat();
    assert_eq!(said(&again.messages), said(&expected), "{}", shown());

    // The same with lines that are too long: every byte is accounted for, whatever the bound.
    let file = tempfile::tempfile().unwrap();
    (&file).write_all(bytes).unwrap();
    for longest in [64, 1000, 1 << 20] {
        let mut parts = 0;
        let summary =
            scan::scan_with(file.try_clone().unwrap(), Path::new("x"), u64::MAX, longest, |part| {
                let (scan::Part::Kept(bytes, _) | scan::Part::Damaged(bytes)) = part;
                assert!(bytes.len() <= longest);
                parts += bytes.iter().filter(|byte| !byte.is_ascii_whitespace()).count();
                Ok(())
            })
            .unwrap();
        assert_eq!(summary.length, bytes.len() as u64);
        assert_eq!(parts, bytes.iter().filter(|byte| !byte.is_ascii_whitespace()).count());
    }
}

fn mutated(seed: u64) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut bytes = random.choice(corpus()).unwrap();
    for _ in 0..random.usize(1..6) {
        mutate(&mut random, &mut bytes);
    }
    bytes
}

#[test]
fn what_other_programs_leave_goes_on() {
    for bytes in corpus() {
        goes_on(&bytes);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(192))]

    #[test]
    fn a_session_that_is_broken_at_random_loses_no_whole_line(seed in any::<u64>()) {
        goes_on(&mutated(seed));
    }
}

/// As long as `KLI_FUZZ_SECONDS` says, one second by default. The seed that fails is printed.
#[test]
fn fuzz_sessions() {
    let seconds = std::env::var("KLI_FUZZ_SECONDS").map_or(1, |seconds| seconds.parse().unwrap());
    let end = Instant::now() + Duration::from_secs(seconds);
    let mut runs = 0;
    while Instant::now() < end {
        let seed = fastrand::u64(..);
        let outcome = std::panic::catch_unwind(|| goes_on(&mutated(seed)));
        assert!(outcome.is_ok(), "seed {seed}");
        runs += 1;
    }
    assert!(runs > 0);
    println!("{runs} sessions");
}

#[test]
fn a_line_without_end_is_set_aside_in_bounded_pieces() {
    let room = room();
    let path = room.session(&["one"]);
    // 70 MiB that take no space, and a write that came after.
    let file = fs::OpenOptions::new().append(true).open(&path).unwrap();
    let length = file.metadata().unwrap().len();
    file.set_len(length + (70 << 20)).unwrap();
    append_raw(&path, &[message_line("two"), b"\n".to_vec()].concat());
    let mut opened = room.open();
    assert_eq!(texts(&opened.messages), ["one", "two"]);
    assert_eq!(
        notices(&opened),
        [format!(
            "73400320 damaged bytes on 1 line of the session left out; the first 67108864 of them \
             are set aside in `{}` before the next entry",
            damaged_path(&path).display()
        )]
    );
    say(&mut opened.log, "three");
    drop(opened);
    assert_eq!(room.texts(), ["one", "two", "three"]);
    assert!(fs::metadata(&path).unwrap().len() < 2000);
    let aside = fs::metadata(damaged_path(&path)).unwrap().len();
    assert!((64 << 20..=(64 << 20) + 8).contains(&aside), "{aside}");
    // An entry of that length is not written in the first place.
    let mut log = room.open().log;
    let error = log.append(&Entry::Message(&Message::user("x".repeat(64 << 20)))).unwrap_err();
    assert!(error.to_string().ends_with("takes up to 67108864 on a line"), "{error}");
    assert_eq!(room.texts().len(), 3);
}

#[test]
fn arguments_as_deep_as_they_come_are_read_back() {
    let room = room();
    let mut log = room.store.create(Path::new(WS)).unwrap();
    for depth in [10, 100, 120, 126] {
        let text = format!("{{\"a\":{}{}}}", "[".repeat(depth), "]".repeat(depth));
        let call = ToolCall {
            id: depth.to_string(),
            name: "x".into(),
            arguments: Arguments::parse(&text),
        };
        let asked = Message { role: Role::Assistant, blocks: vec![Block::Call(call)] };
        log.append(&Entry::Message(&asked)).unwrap();
    }
    drop(log);
    let opened = room.open();
    assert_eq!(opened.messages.iter().flat_map(Message::calls).count(), 4);
}

#[test]
fn only_the_first_line_tells_the_format() {
    let room = room();
    let path = room.session(&["one"]);
    let whole = fs::read(&path).unwrap();
    let later = json!({ "type": "session", "version": 9, "id": "x", "workspace": WS,
                        "kli": "9.0.0", "started": "2026-11-29T17:44:23.000Z" });
    let later = format!("{later}\n").into_bytes();
    fs::write(&path, [whole.clone(), later.clone()].concat()).unwrap();
    let opened = room.open();
    assert_eq!(texts(&opened.messages), ["one"], "one further on costs nothing");
    let told = opened.notices.iter().any(|n| matches!(n, Notice::Unreadable { entries: 1 }));
    assert!(told, "{:?}", opened.notices);
    drop(opened);
    fs::write(&path, [later, whole].concat()).unwrap();
    let found = room.store.list(Path::new(WS)).unwrap().remove(0);
    let refused = room.store.open(Path::new(WS), &found);
    assert!(matches!(refused, Err(SessionError::Version { version: 9, .. })), "{refused:?}");
}
