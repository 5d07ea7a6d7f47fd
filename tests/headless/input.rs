//! Standard input: when it is read, how much of it, and what is no prompt.

use std::{
    io::{BufRead as _, BufReader, Write as _},
    os::unix::ffi::OsStrExt as _,
};

use super::*;

#[test]
fn a_prompt_that_is_waited_for_is_asked_for() {
    let server = FakeModel::strict(vec![says("done")]);
    let env = Env::new().at(&server.base_url());
    let mut child = env.command(&["-p"]).stdin(Stdio::piped()).spawn().unwrap();
    let mut err = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    err.read_line(&mut line).unwrap();
    assert!(line.contains("waiting for the prompt on standard input"), "{line}");
    child.stdin.take().unwrap().write_all(b"late").unwrap();
    let ran = Ran::from(child.wait_with_output().unwrap());
    ran.exits(0);
    assert_eq!(server.bodies()[0]["messages"][0]["content"][0]["text"], "late");
}

#[test]
fn a_prompt_beside_an_open_pipe_does_not_wait_for_it_in_any_format() {
    for format in ["text", "json", "stream-json"] {
        let server = FakeModel::strict(vec![says("done")]);
        let env = Env::new().at(&server.base_url());
        let words = ["-p", "hi", "--output-format", format];
        let mut child = env.command(&words).stdin(Stdio::piped()).spawn().unwrap();
        let mut held = child.stdin.take().unwrap();
        held.write_all(b"not a part of the prompt").unwrap();
        let ran = Ran::from(child.wait_with_output().unwrap());
        ran.exits(0);
        assert_eq!(ran.err, "");
        assert_eq!(server.bodies()[0]["messages"][0]["content"][0]["text"], "hi");
        drop(held);
    }
}

#[test]
fn a_prompt_that_is_too_long_is_refused_before_it_is_read_whole() {
    let env = Env::new();
    let mut child = env.command(&["-p", "-"]).stdin(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let megabyte = vec![b'x'; 1 << 20];
    let taken = (0..50).take_while(|_| stdin.write_all(&megabyte).is_ok()).count();
    drop(stdin);
    Ran::from(child.wait_with_output().unwrap())
        .exits(2)
        .says("longer than 10 MiB")
        .says("name the file");
    assert!((10..=11).contains(&taken), "{taken} MiB of 50 were read");
}

#[test]
fn what_is_no_text_is_no_prompt() {
    let env = Env::new();
    for (input, part) in [
        (&b"a\xff\xfeb"[..], "not UTF-8"),
        (b"a\0b", "NUL"),
        (b"\r\n\r\n", "the prompt is empty"),
        (b" \t\n", "the prompt is empty"),
        (b"", "the prompt is empty"),
        (b"\xef\xbb\xbf", "the prompt is empty"),
        (b"/nope\r\n", "`/nope` is a command"),
    ] {
        let ran = env.kli_with_input(&["-p", "-", "--output-format", "stream-json"], input);
        ran.exits(2).says(part);
        assert_eq!(checked(&ran.out)[0]["error"]["kind"], "config", "{input:?}");
    }
    assert!(env.sessions().is_empty());
    // Control: the mark of some editors is no part of the text, and line ends stay as they are.
    let server = FakeModel::strict(vec![says("done")]);
    let env = Env::new().at(&server.base_url());
    env.kli_with_input(&["-p", "-"], b"\xef\xbb\xbfone\r\ntwo").exits(0);
    assert_eq!(server.bodies()[0]["messages"][0]["content"][0]["text"], "one\r\ntwo");
    let mut command = env.command(&["-p"]);
    command.arg(std::ffi::OsStr::from_bytes(b"a\xffb"));
    Ran::from(command.output().unwrap()).exits(2).says("UTF-8");
}

#[test]
fn the_prompt_and_the_session_are_looked_at_before_the_key() {
    // There is no key anywhere.
    let env = Env::new();
    env.kli(&["-p", "hi"]).exits(4).says("ANTHROPIC_API_KEY");
    env.kli(&["-p", " "]).exits(2).says("the prompt is empty");
    env.kli(&["-p", "hi", "--continue"]).exits(2).says("no session of");
    env.kli(&["-p", "hi", "--resume", "zzz"]).exits(2).says("no session `zzz`");
    // No word about an empty prompt to whoever forgot it.
    let server = FakeModel::strict(vec![says("done")]);
    let kept = Env::new().at(&server.base_url());
    let id = kept.kli(&["-p", "hi", "--output-format", "json"]).json()["session"].clone();
    let id = id.as_str().unwrap();
    for (words, part) in [
        (&["--continue"][..], "`--continue` needs a prompt".to_owned()),
        (&["-p", "--continue"], "`kli --continue -p \"go on\"`".to_owned()),
        (&["--resume", id], format!("`kli --resume {id} -p \"go on\"`")),
    ] {
        let ran = kept.kli(words);
        ran.exits(2).says(&part);
        assert!(!ran.err.contains("is empty"), "{ran:?}");
    }
}

#[test]
fn what_the_surroundings_are_called_changes_nothing() {
    let run = |variables: &[(&str, &str)]| {
        let server = FakeModel::strict(vec![bash("true"), says("done")]);
        let mut env = Env::new().at(&server.base_url());
        for (name, value) in variables {
            env = env.var(name, value);
        }
        let (ran, lines) = stream(&env, &["-p", "hi"]);
        ran.exits(0);
        let kinds: Vec<Value> = lines.iter().map(|line| line["type"].clone()).collect();
        (kinds, lines[0]["tools"].clone(), lines[0]["authority"].clone(), ran.err)
    };
    let ci = run(&[("CI", "true"), ("GITHUB_ACTIONS", "true"), ("TERM", "dumb")]);
    assert_eq!(ci, run(&[]));
}
