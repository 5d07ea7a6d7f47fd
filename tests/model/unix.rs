//! Models on Unix sockets: how they are reached, and what is said when they are not.

use std::{
    fs,
    os::unix::{fs::PermissionsExt as _, net::UnixListener},
    path::Path,
};

use kli::model::{Class, Delta, catalogue::open};

use super::{KEY, ask, joined, options};
use crate::fake_model::{Answer, FakeModel, Wire, text};

#[test]
fn a_socket_is_reached_without_a_key_and_with_one() {
    for wire in Wire::ALL {
        let place = tempfile::tempdir().unwrap();
        let socket = place.path().join("model.sock");
        let answers = vec![Answer::new(wire.answer([text("through the socket")])); 3];
        let fake = FakeModel::at_socket(&socket, answers);
        let mut with = options(wire, &fake.url(wire));
        with.key = None;
        with.headers.clear();
        let model = open(&with).unwrap();
        assert!(!model.needs_network());
        for _ in 0..2 {
            let (deltas, error) = ask(&*model);
            assert_eq!(error, None);
            assert_eq!(joined(&deltas)[0], Delta::Text("through the socket".into()));
        }
        assert_eq!(ask(&*open(&options(wire, &fake.url(wire))).unwrap()).1, None);
        let (name, value) = wire.key_header(KEY);
        let seen = fake.requests();
        assert_eq!(seen[0].header("host"), Some("localhost"));
        assert_eq!(seen[0].header(name), None);
        assert_eq!(seen[2].header(name), Some(&*value), "control: a key is sent when there is one");
        for seen in &seen {
            assert_eq!(seen.line, format!("POST {}{}", wire.base(), wire.path()));
        }
    }
}

#[test]
fn a_prefix_goes_before_the_path() {
    for (wire, prefix, line) in [
        (Wire::Messages, ":/", "POST /v1/messages"),
        (Wire::Messages, ":/gw/", "POST /gw/v1/messages"),
        (Wire::Chat, ":/", "POST /chat/completions"),
        (Wire::Chat, ":/gw/v4", "POST /gw/v4/chat/completions"),
    ] {
        let place = tempfile::tempdir().unwrap();
        let fake = FakeModel::at_socket(&place.path().join("s"), Vec::new());
        let url = format!("{}{prefix}", fake.base_url());
        let error = ask(&*open(&options(wire, &url)).unwrap()).1.unwrap();
        assert_eq!(fake.requests()[0].line, line);
        assert!(
            error.message.starts_with(&format!("`{}` answered 400", fake.base_url())),
            "{error}"
        );
    }
}

#[test]
fn a_socket_that_is_not_reached_is_named_with_the_reason() {
    let place = tempfile::tempdir().unwrap();
    let at = |name: &str| place.path().join(name);
    fs::write(at("file"), "no socket").unwrap();
    drop(UnixListener::bind(at("left")).unwrap());
    for (name, reason) in [
        ("missing", "there is no such socket"),
        ("file", "it is no socket"),
        ("left", "nobody listens on that socket"),
        ("file/below", "a part of its path is no directory"),
    ] {
        let url = format!("unix:{}", at(name).display());
        let error = ask(&*open(&options(Wire::Chat, &url)).unwrap()).1.unwrap();
        let words = format!("`{url}` cannot be reached: {reason}");
        assert!(error.message.starts_with(&words), "{error}");
        assert_eq!((error.class, error.network), (Class::Retry { after: None }, true));
    }
    // The control: a server on the same path is reached once it is there.
    fs::remove_file(at("left")).unwrap();
    let answers = vec![Answer::new(Wire::Chat.answer([text("x")]))];
    let fake = FakeModel::at_socket(&at("left"), answers);
    assert_eq!(ask(&*open(&options(Wire::Chat, &fake.base_url())).unwrap()).1, None);
}

#[test]
fn a_path_that_no_socket_can_have_is_refused_at_once() {
    let said = |wire: Wire, url: &str| open(&options(wire, url)).unwrap_err().to_string();
    let long = format!("unix:/{}", "x".repeat(107));
    assert!(said(Wire::Chat, &long).contains("at most 107 bytes, this one has 108"));
    assert!(open(&options(Wire::Chat, &long[..long.len() - 1])).is_ok(), "control: 107 bytes");
    for url in ["unix:", "unix:x.sock", "unix:/", "unix:/run/"] {
        assert!(said(Wire::Chat, url).contains("names no socket: write `unix:/PATH`"), "{url}");
    }
    assert!(said(Wire::Messages, "unix:/s:/gw/v1").contains("write `unix:/s:/gw/`"));
    assert!(said(Wire::Chat, "unix:/s:/v1/chat/completions").contains("write `unix:/s:/v1/`"));
    assert!(said(Wire::Chat, "unix:/s:/v1?k=v").contains("has a query"));
}

/// An ordinary user; no account of that number needs to exist.
const ORDINARY: u32 = 54_321;

#[test]
fn a_socket_without_permission_is_said_as_such() {
    use std::os::unix::process::CommandExt as _;

    let place = tempfile::Builder::new().tempdir_in("/var/tmp").unwrap();
    let socket = place.path().join("s");
    let _fake = FakeModel::at_socket(&socket, vec![says("hello"), says("hello")]);
    let run = |mode: u32| {
        fs::set_permissions(place.path(), fs::Permissions::from_mode(0o755)).unwrap();
        fs::set_permissions(&socket, fs::Permissions::from_mode(mode)).unwrap();
        let program = place.path().join("kli");
        if !Path::new(&program).exists() {
            fs::copy(env!("CARGO_BIN_EXE_kli"), &program).unwrap();
        }
        let mut command = std::process::Command::new(program);
        command
            .args(["-p", "hi", "--model", "openai/m", "--no-session", "--timeout", "20s"])
            .current_dir("/")
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("OPENAI_BASE_URL", format!("unix:{}", socket.display()));
        if rustix::process::geteuid().is_root() {
            command.uid(ORDINARY).gid(ORDINARY);
        }
        let output = command.output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (code, said) = run(0o000);
    assert!(said.contains(": permission denied; a socket wants write permission"), "{said}");
    assert_eq!(code, Some(4), "{said}");
    assert_eq!(run(0o777).0, Some(0), "control");
}

fn says(words: &str) -> Answer {
    Answer::new(Wire::Chat.answer([text(words)]))
}
