//! Damage of every kind: by other programs, a kill, a full disk, and at random.

use std::process::{Command, Stdio};

use proptest::prelude::*;

use super::*;

/// What can happen to a file, what is left of it, and whether something was lost.
#[test]
fn every_damage_leaves_all_good_lines_and_is_told() {
    let glued = [b"{\"type\":\"message\",\"me".as_slice(), &message_line("three"), b"\n"].concat();
    let nuls = [vec![0; 4096], message_line("three"), b"\n".to_vec()].concat();
    let good = [message_line("three"), b"\n".to_vec()].concat();
    let no_end = message_line("three");
    let crlf = [message_line("three"), b"\r\n".to_vec()].concat();
    let blank = b"\n  \n\t\n".to_vec();
    for (what, bytes, left, damaged) in [
        ("nothing", b"".to_vec(), vec!["one", "two"], None),
        ("a whole line", good.clone(), vec!["one", "two", "three"], None),
        ("no final line break", no_end, vec!["one", "two", "three"], None),
        ("CRLF", crlf, vec!["one", "two", "three"], None),
        ("blank lines", blank, vec!["one", "two"], None),
        ("a torn tail", b"{\"a\":".to_vec(), vec!["one", "two"], Some("5 damaged bytes on 1 line")),
        ("NULs at the end", vec![0; 100], vec!["one", "two"], Some("100 damaged bytes on 1 line")),
        (
            "NULs, then a line",
            nuls,
            vec!["one", "two", "three"],
            Some("4096 damaged bytes on 1 line"),
        ),
        (
            "a NUL line, then a line",
            [b"\0\0\n".to_vec(), good.clone()].concat(),
            vec!["one", "two", "three"],
            Some("2 damaged bytes on 1 line"),
        ),
        ("glued", glued, vec!["one", "two", "three"], Some("21 damaged bytes on 1 line")),
        (
            "invalid UTF-8",
            [b"{\"type\":\"message\",\"x\":\"\xff\"}\n".to_vec(), good.clone()].concat(),
            vec!["one", "two", "three"],
            Some("26 damaged bytes on 1 line"),
        ),
        (
            "foreign lines",
            [b"hello\n[1,2]\n{\"no\":\"type\"}\n7\nnull\n".to_vec(), good.clone()].concat(),
            vec!["one", "two", "three"],
            Some("28 damaged bytes on 5 lines"),
        ),
    ] {
        let room = room();
        let path = room.session(&["one", "two"]);
        append_raw(&path, &bytes);
        let mut opened = room.open();
        assert_eq!(texts(&opened.messages), left, "{what}");
        let told = notices(&opened);
        match damaged {
            None => assert_eq!(told, Vec::<String>::new(), "{what}"),
            Some(part) => {
                assert_eq!(told.len(), 1, "{what}: {told:?}");
                assert!(told[0].starts_with(part), "{what}: {told:?}");
                assert!(told[0].contains(".jsonl.damaged`"), "{told:?}");
            }
        }
        say(&mut opened.log, "next");
        opened.log.sync().unwrap();
        drop(opened);

        // The append round-trips, every line is an event, and the damage is told once.
        let mut expected = left.clone();
        expected.push("next");
        let again = room.open();
        assert_eq!(texts(&again.messages), expected, "{what}");
        assert_eq!(notices(&again), Vec::<String>::new(), "{what}");
        let kept = fs::read(&path).unwrap();
        assert!(kept.ends_with(b"\n") && !kept.contains(&0), "{what}");
        for line in kept.split(|b| *b == b'\n').filter(|l| !l.iter().all(u8::is_ascii_whitespace)) {
            serde_json::from_slice::<Value>(line).unwrap();
        }
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        // Nothing is lost: what was left out is aside, byte for byte.
        let aside = fs::read(damaged_path(&path));
        assert_eq!(aside.is_ok(), damaged.is_some(), "{what}");
        if let Ok(aside) = aside {
            let bad: usize = aside.split(|b| *b == b'\n').map(<[u8]>::len).sum();
            assert!(told[0].starts_with(&format!("{bad} damaged")), "{what}: {told:?}");
        }
        let files = fs::read_dir(path.parent().unwrap()).unwrap().count();
        assert_eq!(files, if damaged.is_some() { 2 } else { 1 }, "{what}");
    }
}

#[test]
fn a_file_that_a_repair_was_killed_over_is_repaired_again() {
    let room = room();
    let path = room.session(&["one"]);
    append_raw(&path, &[b"junk\n".to_vec(), message_line("two"), b"\n".to_vec()].concat());
    fs::write(format!("{}.part", path.display()), "{\"type\":\"message\",\"left over\n").unwrap();
    let mut opened = room.open();
    say(&mut opened.log, "three");
    say(&mut opened.log, "four");
    drop(opened);
    assert_eq!(room.texts(), ["one", "two", "three", "four"]);
    assert_eq!(fs::read(damaged_path(&path)).unwrap(), b"junk\n");
}

/// Runs one test of this binary in another process, through a shell line; there it finds
/// [`state_of_parent`] and does its half.
pub(super) fn other_process(shell: &str, test: &str, state: &Path) -> Command {
    let mut command = Command::new("sh");
    command
        .args(["-c", &format!("{shell} exec \"$0\" \"$@\"")])
        .arg(std::env::current_exe().unwrap())
        .args([test, "--exact", "--nocapture", "--test-threads=1"])
        .env("KLI_TEST_STATE", state)
        .stdin(Stdio::null());
    command
}

fn state_of_parent() -> Option<PathBuf> {
    std::env::var_os("KLI_TEST_STATE").map(PathBuf::from)
}

fn appends_until_it_is_killed(state: &Path) {
    let mut log = Store::new(state).create(Path::new(WS)).unwrap();
    for count in 0.. {
        say(&mut log, &format!("{count} {}", "x".repeat(3000)));
        // The effect comes after the entry.
        fs::write(state.join("effect"), count.to_string()).unwrap();
    }
}

#[test]
fn a_killed_process_leaves_a_session_that_opens() {
    if let Some(state) = state_of_parent() {
        return appends_until_it_is_killed(&state);
    }
    let room = room();
    fs::create_dir_all(&room.state).unwrap();
    let test = "session::tests::damage::a_killed_process_leaves_a_session_that_opens";
    let mut child = other_process("", test, &room.state).stdout(Stdio::null()).spawn().unwrap();
    let effect = room.state.join("effect");
    let enough = || fs::read_to_string(&effect).is_ok_and(|n| n.parse().unwrap_or(0) > 20);
    for _ in 0..1000 {
        if enough() {
            break;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let done: usize = fs::read_to_string(&effect).unwrap().parse().unwrap_or(20);
    let mut opened = room.open();
    assert!(opened.messages.len() > done, "every effect has its entry: {done}");
    say(&mut opened.log, "and on");
    let count = opened.messages.len();
    drop(opened);
    assert_eq!(room.open().messages.len(), count + 1);
}

fn appends_until_nothing_fits(state: &Path) {
    let store = Store::new(state);
    let mut log = store.create(Path::new(WS)).unwrap();
    let message = Message::user("x".repeat(700));
    let mut count = 0;
    let error = loop {
        match log.append(&Entry::Message(&message)) {
            Ok(()) => count += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(error, SessionError::Write { .. }), "{error}");
    assert!(
        error.to_string().starts_with("cannot keep the session: cannot append to `"),
        "{error}"
    );
    // It can be tried again, and it still does not fit.
    log.append(&Entry::Message(&message)).unwrap_err();
    println!("kept {count}");
}

#[test]
fn a_full_disk_is_an_error_and_leaves_whole_lines() {
    if let Some(state) = state_of_parent() {
        return appends_until_nothing_fits(&state);
    }
    let room = room();
    fs::create_dir_all(&room.state).unwrap();
    // A limit on the size of files writes a part and then refuses, as a full disk does.
    let test = "session::tests::damage::a_full_disk_is_an_error_and_leaves_whole_lines";
    let output = other_process("trap '' XFSZ; ulimit -f 9;", test, &room.state).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    let kept: usize = said
        .split("kept ")
        .nth(1)
        .and_then(|rest| rest.split_whitespace().next())
        .and_then(|count| count.parse().ok())
        .unwrap();
    assert!((4..20).contains(&kept), "the limit was reached: {kept}");
    let mut opened = room.open();
    assert_eq!(opened.messages.len(), kept);
    assert_eq!(notices(&opened), Vec::<String>::new(), "whole lines only");
    say(&mut opened.log, "space again");
    drop(opened);
    assert_eq!(room.open().messages.len(), kept + 1);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever stands in a file: it opens, what follows is kept, and the second opening tells of no
    /// damage.
    #[test]
    fn any_bytes_open_and_go_on(
        pieces in prop::collection::vec(
            prop_oneof![
                prop::collection::vec(any::<u8>(), 0..40),
                Just(b"\n".to_vec()),
                Just(message_line("good")),
                Just([message_line("good"), b"\n".to_vec()].concat()),
                Just(message_line("good")[..30].to_vec()),
                Just(vec![0; 50]),
            ],
            0..8,
        ),
    ) {
        let room = room();
        let path = room.session(&["one"]);
        append_raw(&path, &pieces.concat());
        let mut opened = room.open();
        let before = texts(&opened.messages);
        prop_assert_eq!(before[0].as_str(), "one");
        say(&mut opened.log, "next");
        drop(opened);
        let again = room.open();
        prop_assert_eq!(notices(&again), Vec::<String>::new());
        let after = texts(&again.messages);
        prop_assert_eq!(&after[..after.len() - 1], &before[..]);
        prop_assert_eq!(after.last().unwrap(), "next");
    }

    /// A file cut anywhere has all lines before the cut.
    #[test]
    fn a_file_cut_anywhere_has_every_line_before_the_cut(part in 0..1000_usize) {
        let room = room();
        let path = room.session(&["one", "two", "three"]);
        let whole = fs::read(&path).unwrap();
        let first = whole.iter().position(|b| *b == b'\n').unwrap();
        let second = first + 1 + whole[first + 1..].iter().position(|b| *b == b'\n').unwrap();
        let cut = second + (whole.len() - second) * part / 1000;
        fs::write(&path, &whole[..cut]).unwrap();
        // A line without its line break is whole as well.
        let lines = whole[..cut].split(|b| *b == b'\n');
        let good = lines.filter(|l| serde_json::from_slice::<Value>(l).is_ok()).count() - 1;
        let mut opened = room.open();
        prop_assert_eq!(opened.messages.len(), good);
        say(&mut opened.log, "next");
        drop(opened);
        prop_assert_eq!(room.texts().len(), good + 1);
    }
}
