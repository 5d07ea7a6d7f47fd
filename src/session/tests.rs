#![expect(clippy::disallowed_methods, reason = "tests lay out and look at files themselves")]

use std::{
    collections::BTreeSet,
    fs,
    io::Write as _,
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use serde_json::{Map, Value, json};

use super::{entry::Header, log::damaged as damaged_path, *};
use crate::message::{Arguments, Block, Message, Role, ToolCall, ToolResult, Usage};

mod damage;
mod large;
mod mutation;
mod names;

const WS: &str = "/ws";

struct Room {
    _dir: tempfile::TempDir,
    store: Store,
    state: PathBuf,
}

fn room() -> Room {
    let dir = tempfile::tempdir().unwrap();
    let state = dir.path().join("state/kli");
    Room { _dir: dir, store: Store::new(&state), state }
}

fn say(log: &mut Log, text: &str) {
    log.append(&Entry::Message(&Message::user(text))).unwrap();
}

impl Room {
    /// Makes a session with these texts and returns its file.
    fn session(&self, texts: &[&str]) -> PathBuf {
        let mut log = self.store.create(Path::new(WS)).unwrap();
        for text in texts {
            say(&mut log, text);
        }
        log.sync().unwrap();
        log.path().to_owned()
    }

    fn latest(&self) -> Found {
        self.store.latest(Path::new(WS)).unwrap().unwrap()
    }

    fn open(&self) -> Opened {
        self.store.open(Path::new(WS), &self.latest()).unwrap()
    }

    fn texts(&self) -> Vec<String> {
        texts(&self.open().messages)
    }
}

fn texts(messages: &[Message]) -> Vec<String> {
    messages.iter().map(Message::text).collect()
}

fn append_raw(path: &Path, bytes: &[u8]) {
    fs::OpenOptions::new().append(true).open(path).unwrap().write_all(bytes).unwrap();
}

fn events(path: &Path) -> Vec<Value> {
    let text = fs::read_to_string(path).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn notices(opened: &Opened) -> Vec<String> {
    opened.notices.iter().map(ToString::to_string).collect()
}

fn message_line(text: &str) -> Vec<u8> {
    Entry::Message(&Message::user(text)).line("2026-11-29T17:44:23.000Z", 0, None).unwrap()
}

#[test]
fn a_session_is_one_event_a_line_for_the_user_alone() {
    let room = room();
    let mut log = room.store.create(Path::new(WS)).unwrap();
    assert!(!log.path().exists(), "nothing is made before the first entry");
    say(&mut log, "hello");
    let usage = Usage { input_tokens: 3, output_tokens: 4, ..Usage::default() };
    log.append(&Entry::Usage { model: "a/b", usage }).unwrap();
    log.append(&Entry::Denied { tool: "bash", atom: "process/exec", detail: "rm" }).unwrap();
    log.append(&Entry::Changed { path: Path::new("/ws/a") }).unwrap();
    log.append(&Entry::End { outcome: "ok", error: None }).unwrap();
    log.sync().unwrap();

    let mut events = events(log.path());
    let started = events[0]["started"].as_str().unwrap().to_owned();
    for event in &mut events {
        if let Some(at) = event.get_mut("at") {
            let text = at.as_str().unwrap();
            assert!(text.parse::<jiff::Timestamp>().is_ok() && text.ends_with('Z'), "{text}");
            *at = json!("T");
        }
    }
    assert_eq!(
        events,
        [
            json!({"type": "session", "version": 1, "id": log.id(), "workspace": WS,
                   "kli": env!("CARGO_PKG_VERSION"), "started": started}),
            json!({"type": "message", "at": "T", "message":
                   {"role": "user", "blocks": [{"type": "text", "text": "hello"}]}}),
            json!({"type": "usage", "at": "T", "model": "a/b", "inputTokens": 3, "outputTokens": 4,
                   "cacheReadTokens": 0, "cacheWriteTokens": 0}),
            json!({"type": "denied", "at": "T", "tool": "bash", "atom": "process/exec", "detail": "rm"}),
            json!({"type": "changed", "at": "T", "path": "/ws/a"}),
            json!({"type": "end", "at": "T", "outcome": "ok", "messages": 1}),
        ]
    );
    let name = log.path().file_name().unwrap().to_str().unwrap();
    assert_eq!(name, format!("{}-{}.jsonl", &started_of(&started), log.id()));
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(log.path()), 0o600);
    let directory = log.path().parent().unwrap();
    for directory in [directory, directory.parent().unwrap(), &room.state] {
        assert_eq!(mode(directory), 0o700, "{}", directory.display());
    }
    drop(log);
    assert_eq!(room.open().usage, usage);
}

fn started_of(rfc3339: &str) -> String {
    let time: jiff::Timestamp = rfc3339.parse().unwrap();
    time.strftime("%Y%m%dT%H%M%SZ").to_string()
}

#[test]
fn no_two_workspaces_share_a_directory() {
    use std::os::unix::ffi::OsStrExt;
    let store = Store::new(Path::new("/s"));
    let long = "x".repeat(250);
    let names: std::collections::BTreeSet<PathBuf> = [
        "/a-b",
        "/a_b",
        "/a.b",
        "/a/b",
        "/A-b",
        "/a-b/",
        &format!("/{long}a"),
        &format!("/{long}b"),
    ]
    .iter()
    .map(|path| store.directory(Path::new(path)))
    .chain([
        store.directory(Path::new(std::ffi::OsStr::from_bytes(b"/\xff"))),
        store.directory(Path::new(std::ffi::OsStr::from_bytes(b"/\xfe"))),
    ])
    .collect();
    assert_eq!(names.len(), 10);
    // sha256 of `/a`, by another program.
    assert_eq!(
        store.directory(Path::new("/a")),
        Path::new("/s/sessions/6a50dc8584134c7de537c0052ff6d236")
    );
}

#[test]
fn opening_and_leaving_changes_nothing_even_when_there_is_damage() {
    let room = room();
    let path = room.session(&["one", "two"]);
    append_raw(&path, b"\0\0\0\n{\"type\":\"message\",\"mess");
    let old = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
    fs::File::options().append(true).open(&path).unwrap().set_modified(old).unwrap();
    let look = || {
        let (metadata, directory) =
            (fs::metadata(&path).unwrap(), fs::metadata(path.parent().unwrap()).unwrap());
        let names: Vec<_> =
            fs::read_dir(path.parent().unwrap()).unwrap().map(|e| e.unwrap().file_name()).collect();
        (fs::read(&path).unwrap(), metadata.mtime(), directory.mtime_nsec(), names)
    };
    let before = look();
    let mut opened = room.open();
    assert_eq!(texts(&opened.messages), ["one", "two"]);
    opened.log.sync().unwrap();
    drop(opened);
    room.store.list(Path::new(WS)).unwrap();
    assert_eq!(look(), before);
    // Control: an entry does change it.
    say(&mut room.open().log, "three");
    assert_ne!(look(), before);
}

#[test]
fn unknown_kinds_survive_and_broken_shapes_are_skipped_and_told() {
    let room = room();
    let path = room.session(&["one"]);
    let foreign = concat!(
        "{\"type\":\"compaction\",\"of\":[1,2]}\n",
        "{\"type\":\"changed\",\"path\":5}\n",
        "{ \"x\": 1, \"type\": \"later\" }\n",
        "{\"type\":\"message\",\"message\":{\"role\":\"robot\",\"blocks\":[]}}\n",
        "{\"type\":\"message\",\"message\":5}\n",
        "junk\n",
    );
    append_raw(&path, &[foreign.as_bytes(), &message_line("two"), b"\n"].concat());
    let mut opened = room.open();
    assert_eq!(texts(&opened.messages), ["one", "two"]);
    let told = notices(&opened);
    assert!(
        told.iter().any(|n| n.starts_with("3 entries of the session have a shape")),
        "{told:?}"
    );
    say(&mut opened.log, "three");
    let text = fs::read_to_string(&path).unwrap();
    for line in foreign.lines().filter(|line| *line != "junk") {
        assert!(text.contains(line), "kept byte for byte: {line}");
    }
    assert!(!text.contains("junk\n"));
}

#[test]
fn odd_texts_and_huge_lines_round_trip() {
    let room = room();
    let huge = "ü€\u{2028}".repeat(1_000_000);
    let odd = "a\u{2028}b\u{2029}c\rd\r\ne\nf\0g\u{1b}[31m\u{feff}\\\"";
    room.session(&[odd, &huge, "end"]);
    assert_eq!(room.texts(), [odd, &huge, "end"]);
    // A raw carriage return and a raw tab in a string, as other programs write them.
    let path = room.latest().path;
    let raw = "{\"type\":\"message\",\"message\":{\"role\":\"user\",\"blocks\":[{\"type\":\"text\",\"text\":\"a\rb\t\\\"c\\\\\"}]}}\n";
    append_raw(&path, raw.as_bytes());
    let mut opened = room.open();
    assert_eq!(texts(&opened.messages)[3], "a\rb\t\"c\\");
    assert_eq!(notices(&opened), Vec::<String>::new());
    say(&mut opened.log, "x");
    assert!(fs::read_to_string(&path).unwrap().contains(raw), "kept as it was");
}

#[test]
fn calls_without_results_are_answered_and_told() {
    let room = room();
    let mut log = room.store.create(Path::new(WS)).unwrap();
    say(&mut log, "go");
    let call =
        ToolCall { id: "t1".into(), name: "bash".into(), arguments: Arguments::Object(Map::new()) };
    let asked = Message { role: Role::Assistant, blocks: vec![Block::Call(call)] };
    log.append(&Entry::Message(&asked)).unwrap();
    drop(log);
    let opened = room.open();
    assert_eq!(
        notices(&opened),
        ["1 call without a recorded result; the model is told that it was interrupted"]
    );
    let answer = ToolResult { call: "t1".into(), text: NO_RESULT.into(), is_error: true };
    assert_eq!(
        opened.messages,
        [
            Message::user("go"),
            asked,
            Message { role: Role::User, blocks: vec![Block::Result(answer)] }
        ]
    );
}

#[test]
fn a_session_in_use_goes_on_in_a_copy() {
    let room = room();
    let path = room.session(&["one"]);
    let mut first = room.open();
    // The first process is in the middle of a write: no damage.
    append_raw(&path, b"{\"type\":\"mess");
    let mut second = room.open();
    assert_eq!(texts(&second.messages), ["one"]);
    let copy = second.log.id().to_owned();
    let id = first.log.id().to_owned();
    assert_ne!(copy, id);
    assert_eq!(
        notices(&second),
        [format!(
            "session `{id}` is in use by another process; this run goes on in a copy, `{copy}`"
        )]
    );
    assert!(!second.log.path().exists(), "no copy before there is something to say");
    say(&mut second.log, "theirs");
    assert_eq!(events(second.log.path())[0]["parent"], json!(id));
    assert_eq!(events(second.log.path()).iter().filter(|e| e["type"] == "session").count(), 1);
    fs::OpenOptions::new()
        .write(true)
        .open(&path)
        .unwrap()
        .set_len(fs::metadata(&path).unwrap().len() - 13)
        .unwrap();
    say(&mut first.log, "mine");
    drop((first, second));

    let find = |id: &str| room.store.find(Path::new(WS), id).unwrap();
    assert_eq!(
        texts(&room.store.open(Path::new(WS), &find(&id)).unwrap().messages),
        ["one", "mine"]
    );
    let again = room.store.open(Path::new(WS), &find(&copy)).unwrap();
    assert_eq!(texts(&again.messages), ["one", "theirs"]);
    assert_eq!(again.log.id(), copy, "control: nobody has it any more");
}

#[test]
fn a_session_that_cannot_be_written_goes_on_in_a_copy() {
    use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
    let room = room();
    let path = room.session(&["one"]);
    append_raw(&path, b"torn");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o400)).unwrap();
    let before = fs::read(&path).unwrap();
    // The superuser may write what nobody may; this thread gives that up.
    let mut sets = capabilities(None).unwrap();
    sets.effective.remove(CapabilitySet::DAC_OVERRIDE);
    set_capabilities(None, sets).unwrap();

    let mut opened = room.open();
    let (id, copy) = (room.latest().id, opened.log.id().to_owned());
    let told = notices(&opened);
    assert_eq!(
        told,
        [
            "4 damaged bytes on 1 line of the session left out; the copy is made without"
                .to_owned(),
            format!(
                "session `{id}` cannot be written (cannot open `{}`: permission denied); this run goes on in a copy, `{copy}`",
                path.display()
            ),
        ]
    );
    say(&mut opened.log, "two");
    drop(opened);
    assert_eq!(fs::read(&path).unwrap(), before);
    let found = room.store.find(Path::new(WS), &copy).unwrap();
    assert_eq!(texts(&room.store.open(Path::new(WS), &found).unwrap().messages), ["one", "two"]);
    assert!(!damaged_path(&path).exists());

    // Where nothing can be made either, a new session is refused with a typed error, and an old one
    // is read and not gone on with.
    let directory = path.parent().unwrap();
    fs::set_permissions(directory, fs::Permissions::from_mode(0o500)).unwrap();
    let names = || fs::read_dir(directory).unwrap().count();
    let before = names();
    let error = room.store.create(Path::new(WS)).unwrap_err();
    assert!(matches!(error, SessionError::Write { .. }));
    let error = error.to_string();
    assert!(error.starts_with("cannot keep the session: cannot write in `"), "{error}");
    assert!(error.ends_with("`: permission denied"), "{error}");
    let found = room.store.find(Path::new(WS), &id).unwrap();
    let opened = room.store.open(Path::new(WS), &found).unwrap();
    assert!(!opened.is_kept);
    assert_eq!(texts(&opened.messages), ["one"]);
    let told = notices(&opened);
    let start = format!("session `{id}` cannot be written (cannot write in `");
    assert!(
        told[1].starts_with(&start) && told[1].ends_with("this run adds is not kept"),
        "{told:?}"
    );
    assert_eq!(names(), before);
    fs::set_permissions(directory, fs::Permissions::from_mode(0o700)).unwrap();
    say(&mut room.store.create(Path::new(WS)).unwrap(), "control: it can be tried again");
    assert_eq!(names(), before + 1);
}

#[test]
fn a_repaired_file_stays_locked() {
    let room = room();
    let path = room.session(&["one"]);
    append_raw(&path, &[b"junk\n".to_vec(), message_line("two"), b"\n".to_vec()].concat());
    let old = fs::File::open(&path).unwrap();
    let mut first = room.open();
    say(&mut first.log, "three");
    // Neither who opens it now nor who had opened the replaced file gets the lock.
    assert!(matches!(old.try_lock(), Err(fs::TryLockError::WouldBlock)));
    assert!(room.open().notices.iter().any(|n| matches!(n, Notice::InUse { .. })));
    drop(first);
    assert!(old.try_lock().is_ok(), "control");
}

#[test]
fn sessions_are_found_by_the_start_of_their_identifier() {
    let room = room();
    assert_eq!(room.store.latest(Path::new(WS)).unwrap(), None);
    let error = room.store.find(Path::new(WS), "x").unwrap_err().to_string();
    assert_eq!(error, "no session `x` in this workspace; it has none yet");
    let directory = room.store.directory(Path::new(WS));
    fs::create_dir_all(&directory).unwrap();
    let header = |id: &str| Header::line_of(id);
    for (name, text) in [
        ("20260101T000000Z-abcd.jsonl", "old"),
        ("20260102T000000Z-abef.jsonl", "new"),
        ("20260103T000000Z-zzzz.jsonl", ""),
        ("20260104T000000Z-yyyy.jsonl", "header"),
        ("20260102T000000Z-abef.jsonl.damaged", "x"),
        ("20260102T000000Z-abef.jsonl.part", "x"),
        ("notes.jsonl", "x"),
        ("20260105T000000Z-../x.jsonl", "never"),
    ] {
        let content = match text {
            "" => Vec::new(),
            "header" => header("yyyy"),
            "never" => continue,
            text => [header("id"), message_line(text), b"\n".to_vec()].concat(),
        };
        fs::write(directory.join(name), content).unwrap();
    }
    std::os::unix::fs::symlink("/etc/passwd", directory.join("20260106T000000Z-link.jsonl"))
        .unwrap();
    fs::create_dir(directory.join("20260107T000000Z-dir.jsonl")).unwrap();
    let touch = |name: &str, seconds| {
        let file = fs::File::options().append(true).open(directory.join(name)).unwrap();
        file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)).unwrap();
    };
    touch("20260101T000000Z-abcd.jsonl", 1_900_000_002);
    touch("20260102T000000Z-abef.jsonl", 1_900_000_001);
    let ids: Vec<String> =
        room.store.list(Path::new(WS)).unwrap().into_iter().map(|f| f.id).collect();
    assert_eq!(ids, ["abcd", "abef", "yyyy", "zzzz"], "last appended to first, then by name");
    assert_eq!(room.latest().id, "abcd");
    touch("20260104T000000Z-yyyy.jsonl", 1_900_000_003);
    assert_eq!(room.latest().id, "abcd", "one without a message is passed over");
    let find = |prefix: &str| room.store.find(Path::new(WS), prefix);
    assert_eq!(find("abe").unwrap().id, "abef");
    assert_eq!(find("abcd").unwrap().id, "abcd");
    let error = find("ab").unwrap_err().to_string();
    assert!(error.starts_with("more than one session starts with `ab`: "), "{error}");
    assert!(error.contains("`abcd`") && error.contains("`abef`"), "{error}");
    for prefix in ["q", "", "../x", "dir", "link"] {
        let error = find(prefix).unwrap_err().to_string();
        assert!(
            error.contains(&format!("no session `{prefix}` in this workspace; the latest are `")),
            "{error}"
        );
    }
    assert_eq!(room.store.list(Path::new("/other")).unwrap(), []);
}

impl Header {
    fn line_of(id: &str) -> Vec<u8> {
        let mut line = Self::new(id, Path::new(WS), "2026-01-01T00:00:00Z", None).line().unwrap();
        line.push(b'\n');
        line
    }
}

#[test]
fn what_a_newer_kli_wrote_is_refused_by_name() {
    let room = room();
    let path = room.session(&["one"]);
    let text = fs::read_to_string(&path).unwrap().replace("\"version\":1", "\"version\":2");
    fs::write(&path, &text).unwrap();
    let error = room.store.open(Path::new(WS), &room.latest()).unwrap_err().to_string();
    assert!(error.ends_with("has format 2, this kli reads up to 1; use a newer kli"), "{error}");
    assert_eq!(fs::read_to_string(&path).unwrap(), text);
}

#[test]
fn a_state_directory_that_cannot_be_used_is_a_typed_error() {
    let dir = tempfile::tempdir().unwrap();
    let blocked = dir.path().join("file");
    fs::write(&blocked, "x").unwrap();
    let store = Store::new(&blocked.join("kli"));
    let error = store.create(Path::new(WS)).unwrap_err();
    assert!(matches!(error, SessionError::Write { .. }));
    let error = error.to_string();
    assert!(error.starts_with("cannot keep the session: cannot create the directory `"), "{error}");
    assert_eq!(fs::read(&blocked).unwrap(), b"x");
}

#[test]
fn a_link_in_the_place_of_a_directory_or_a_file_is_not_followed() {
    let elsewhere = tempfile::tempdir().unwrap();
    let room = room();
    let directory = room.store.directory(Path::new(WS));
    fs::create_dir_all(directory.parent().unwrap()).unwrap();
    std::os::unix::fs::symlink(elsewhere.path(), &directory).unwrap();
    let refused = format!("`{}` is a link or a file, not a directory", directory.display());
    for error in
        [room.store.create(Path::new(WS)).unwrap_err(), room.store.list(Path::new(WS)).unwrap_err()]
    {
        assert!(error.to_string().contains(&refused), "{error}");
    }
    fs::remove_file(&directory).unwrap();

    // Damage would be set aside through a link.
    let path = room.session(&["one"]);
    append_raw(&path, b"torn");
    std::os::unix::fs::symlink(elsewhere.path().join("x"), damaged_path(&path)).unwrap();
    let mut log = room.open().log;
    let error = log.append(&Entry::End { outcome: "ok", error: None }).unwrap_err().to_string();
    assert!(error.contains(".damaged`: too many levels of symbolic links"), "{error}");
    assert_eq!(fs::read_dir(elsewhere.path()).unwrap().count(), 0);
    assert!(fs::read(&path).unwrap().ends_with(b"torn"), "nothing is cut that is not aside");
    fs::remove_file(damaged_path(&path)).unwrap();
    say(&mut log, "control");
    assert_eq!(fs::read(damaged_path(&path)).unwrap(), b"torn\n");
}
