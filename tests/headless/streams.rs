//! Readers of standard output that are slow, gone, or were never there.

use std::{
    fs::File,
    io::{BufRead as _, BufReader, Read as _},
    os::fd::OwnedFd,
    process::{Child, ChildStdout, Command},
    time::Instant,
};

use rustix::fs::{OFlags, fcntl_setfl};

use super::*;
use crate::fake_model::event;

const STREAM: &[&str] = &["-p", "hi", "--output-format", "stream-json"];

/// An answer of so many megabytes, in pieces of four kilobytes.
fn long(megabytes: usize) -> Answer {
    let delta = |text: &str| {
        event(&json!({"type": "content_block_delta", "index": 0,
            "delta": {"type": "text_delta", "text": text}}))
    };
    let short = message([text("@")]);
    assert!(short.contains(&delta("@")));
    let piece = delta(&"0123456789abcdef".repeat(256));
    Answer::new(short.replace(&delta("@"), &piece.repeat(megabytes * 256)))
}

fn spawn(mut command: Command) -> (Child, BufReader<ChildStdout>) {
    let mut child = command.spawn().unwrap();
    let out = BufReader::new(child.stdout.take().unwrap());
    (child, out)
}

fn next(out: &mut BufReader<ChildStdout>) -> Value {
    let mut line = String::new();
    out.read_line(&mut line).unwrap();
    serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: `{line}`"))
}

fn pid(child: &Child) -> i32 {
    i32::try_from(child.id()).unwrap()
}

/// The most memory that a process ever had, in MiB; `None` when it has ended, and has none any more.
fn peak(child: &Child) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(line.trim().trim_end_matches(" kB").trim().parse::<u64>().unwrap() / 1024)
}

#[test]
fn a_line_is_there_when_it_happens() {
    let answer = message([text("first words"), text("last")]);
    let at = answer.find("last").unwrap();
    let server = FakeModel::strict(vec![Answer::new(answer).hang_after(at)]);
    let env = Env::new().at(&server.base_url());
    let (child, mut out) = spawn(env.command(STREAM));
    for kind in ["init", "turnStart", "text", "text"] {
        assert_eq!(next(&mut out)["type"], kind, "while the model is still talking");
    }
    kill(pid(&child), Signal::INT);
    let result = next(&mut out);
    assert_eq!((&result["type"], &result["outcome"]), (&json!("result"), &json!("interrupted")));
    assert_eq!(result["text"], "first words");
    Ran::from(child.wait_with_output().unwrap()).exits(130);
}

#[test]
fn a_reader_that_goes_away_ends_the_run_quietly() {
    // While a command runs, and while the model says nothing: nothing is written that could fail.
    let mark = format!("1234.{}", std::process::id());
    let silent = says("never said");
    for (name, answer) in
        [("tool", bash(&format!("sleep {mark}"))), ("model", silent.hang_after(30))]
    {
        let server = FakeModel::strict(vec![answer]);
        let env = Env::new().at(&server.base_url());
        let (child, mut out) = spawn(env.command(STREAM));
        assert_eq!(next(&mut out)["type"], "init");
        let sleep = format!("sleep\0{mark}");
        match name {
            "tool" => drop(wait_for("the tool", || processes_with(&sleep).first().copied())),
            _ => drop(wait_for("the request", || server.requests().pop())),
        }
        let start = Instant::now();
        drop(out);
        let ran = Ran::from(child.wait_with_output().unwrap());
        assert!(start.elapsed() < Duration::from_secs(3), "{name}");
        ran.exits(130);
        assert_eq!(ran.err, "", "{name}: quietly");
        assert!(processes_with(&sleep).is_empty(), "{name}: nothing is left");
        let session = env.session();
        let end = session.iter().find(|line| line["type"] == "end").unwrap();
        assert_eq!(end["outcome"], "interrupted", "{name}: {session:#?}");
        // The session goes on.
        let server = FakeModel::strict(vec![says("back")]);
        let mut command = env.command(&["-c", "-p", "go on"]);
        command.env("ANTHROPIC_BASE_URL", server.base_url());
        Ran::from(command.output().unwrap()).exits(0);
    }
}

#[test]
fn a_closed_pipe_is_quiet_for_every_command() {
    let env = Env::new();
    for words in [
        &["--help"][..],
        &["config", "path"],
        &["completion", "bash"],
        &["--print-authority"],
        &["-p", "", "--output-format", "json"],
        &["-p", "", "--output-format", "stream-json"],
    ] {
        let mut child = env.command(words).spawn().unwrap();
        drop(child.stdout.take());
        let ran = Ran::from(child.wait_with_output().unwrap());
        ran.exits(if words.contains(&"") { 2 } else { 0 });
        assert!(!ran.err.contains("pipe") && !ran.err.contains("panic"), "{words:?}: {ran:?}");
    }
}

#[test]
fn a_slow_reader_loses_nothing_and_holds_the_run_back() {
    // More than waits anywhere.
    let server = FakeModel::strict(vec![long(16)]);
    let env = Env::new().at(&server.base_url());
    let (child, out) = spawn(env.command(STREAM));
    // It has the chance to read all of the answer, and does not take it.
    std::thread::sleep(Duration::from_millis(1500));
    let held = peak(&child).unwrap();
    let mut lines = String::new();
    { out }.read_to_string(&mut lines).unwrap();
    Ran::from(child.wait_with_output().unwrap()).exits(0);
    let lines = checked(&lines);
    let said: String =
        of(&lines, "text").iter().map(|line| line["text"].as_str().unwrap()).collect();
    assert_eq!(said.len(), 16 << 20, "nothing is lost");
    assert_eq!(lines.last().unwrap()["text"], said);
    assert!(held < 40, "{held} MiB while nobody read");
}

#[test]
fn a_reader_that_sleeps_holds_up_neither_a_signal_nor_a_time_limit() {
    for (words, signal, code) in
        [(&[][..], Some(Signal::TERM), 143), (&["--timeout", "1s"], None, 5)]
    {
        let server = FakeModel::strict(vec![long(8)]);
        let env = Env::new().at(&server.base_url());
        let (mut child, mut out) = spawn(env.command(&[STREAM, words].concat()));
        assert_eq!(next(&mut out)["type"], "init");
        std::thread::sleep(Duration::from_millis(700));
        if let Some(signal) = signal {
            let start = Instant::now();
            kill(pid(&child), signal);
            assert_eq!(child.wait().unwrap().code(), Some(code));
            assert!(start.elapsed() < Duration::from_secs(4));
        } else {
            std::thread::sleep(Duration::from_secs(1));
            // It waits for its reader then, who gets the result.
            let mut rest = String::new();
            out.read_to_string(&mut rest).unwrap();
            let last: Value = serde_json::from_str(rest.lines().last().unwrap()).unwrap();
            assert_eq!(last["outcome"], "budget");
            assert_eq!(child.wait().unwrap().code(), Some(code));
        }
    }
}

#[test]
fn much_output_of_a_command_costs_no_memory() {
    let server = FakeModel::strict(vec![bash("yes | head -c 300M"), says("done")]);
    let env = Env::new().at(&server.base_url());
    let (child, mut out) = spawn(env.command(STREAM));
    let mut peaks = 0;
    let mut last = Value::Null;
    while last["type"] != "result" {
        last = next(&mut out);
        peaks = peaks.max(peak(&child).unwrap_or(0));
    }
    assert_eq!(last["outcome"], "ok");
    assert!(peaks > 0 && peaks < 40, "{peaks} MiB");
    assert!(child.wait_with_output().unwrap().status.success());
}

#[test]
fn streams_that_are_closed_at_the_start_never_stand_for_a_file() {
    for (closed, format) in [
        (">&-", "json"),
        (">&-", "stream-json"),
        ("2>&-", "json"),
        ("<&- >&- 2>&-", "stream-json"),
        ("<&- >&- 2>&-", "text"),
    ] {
        let server = FakeModel::strict(vec![bash("echo x > made; echo out"), says("done")]);
        let env = Env::new().at(&server.base_url());
        let kli = env.command(&["-p", "hi", "--output-format", format, "--log", "log"]);
        let mut command = Command::new("bash");
        command
            .args(["-c", &format!("exec \"$0\" \"$@\" {closed}")])
            .arg(kli.get_program())
            .args(kli.get_args())
            .current_dir(env.work())
            .env_clear()
            .envs(kli.get_envs().filter_map(|(name, value)| Some((name, value?))))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let ran = Ran::from(command.output().unwrap());
        ran.exits(0);
        let session = env.session();
        assert!(session.iter().all(|line| line["type"] != "result"), "{closed}: {session:#?}");
        assert_eq!(session.last().unwrap()["type"], "end", "{closed}");
        assert_eq!(fs::read_to_string(env.work().join("made")).unwrap(), "x\n");
        checked(&fs::read_to_string(env.work().join("log")).unwrap());
        if closed == "2>&-" {
            assert_eq!(ran.json()["text"], "done", "control: the others work");
        }
    }
}

#[test]
fn lines_that_find_no_room_end_the_run_with_a_word() {
    let server = FakeModel::strict(vec![bash("sleep 30"), says("done")]);
    let env = Env::new().at(&server.base_url());
    let full = File::options().write(true).open("/dev/full").unwrap();
    let start = Instant::now();
    let ran = Ran::from(env.command(STREAM).stdout(full).output().unwrap());
    ran.exits(1).says("cannot be written to standard output: No space left");
    assert_eq!(ran.err.matches("No space left").count(), 1, "said once");
    assert!(start.elapsed() < Duration::from_secs(10), "it does not go on for nobody");
}

#[test]
fn a_signal_during_a_command_ends_all_of_it_and_still_tells_the_result() {
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143), (Signal::HUP, 143)] {
        let mark = format!("7{code}.{}", std::process::id());
        let server = FakeModel::strict(vec![bash(&format!("sleep {mark} & sleep {mark}"))]);
        let env = Env::new().at(&server.base_url());
        let mut command = env.command(STREAM);
        command.stdin(Stdio::null());
        let child = command.spawn().unwrap();
        let sleeps = format!("sleep\0{mark}");
        wait_for("both", || (processes_with(&sleeps).len() >= 2).then_some(()));
        kill(pid(&child), signal);
        let ran = Ran::from(child.wait_with_output().unwrap());
        ran.exits(code);
        assert_eq!(checked(&ran.out).last().unwrap()["outcome"], "interrupted");
        assert!(processes_with(&sleeps).is_empty(), "nothing is left");
    }
}

/// A pipe whose ends, once one of them is made so, do not block whoever has them.
fn pipe(reading: OFlags, writing: OFlags) -> (OwnedFd, OwnedFd) {
    let (reader, writer) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).unwrap();
    fcntl_setfl(&reader, reading).unwrap();
    fcntl_setfl(&writer, writing).unwrap();
    (reader, writer)
}

#[test]
fn a_pipe_that_does_not_block_is_waited_for() {
    let server = FakeModel::start(vec![long(1), long(1), long(1), says("heard")]);
    let env = Env::new().at(&server.base_url());
    for format in ["text", "json", "stream-json"] {
        let (reader, writer) = pipe(OFlags::empty(), OFlags::NONBLOCK);
        let mut command = env.command(&["-p", "hi", "--output-format", format]);
        let mut child = command.stdout(writer).spawn().unwrap();
        // The command holds the pipe's other end.
        drop(command);
        std::thread::sleep(Duration::from_millis(500));
        let mut out = String::new();
        File::from(reader).read_to_string(&mut out).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(0), "{format}");
        let pieces = out.matches("0123456789abcdef").count();
        assert_eq!(pieces, if format == "stream-json" { 2 << 16 } else { 1 << 16 }, "{format}");
    }
    let (reader, writer) = pipe(OFlags::NONBLOCK, OFlags::empty());
    let mut child = env.command(&["-p"]).stdin(reader).spawn().unwrap();
    std::thread::sleep(Duration::from_millis(300));
    std::io::Write::write_all(&mut File::from(writer), b"a late prompt").unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert!(server.requests()[3].json()["messages"].to_string().contains("a late prompt"));
}

#[test]
fn talk_that_nobody_reads_holds_nothing_up() {
    let (_unread, writer) = pipe(OFlags::empty(), OFlags::NONBLOCK);
    while rustix::io::write(&writer, &[b'x'; 4096]).is_ok() {}
    fcntl_setfl(&writer, OFlags::empty()).unwrap();
    let env = Env::new();
    let started = Instant::now();
    let mut child = env
        .command(&["-p", "hi", "--output-format", "json"])
        .stderr(writer.try_clone().unwrap())
        .spawn()
        .unwrap();
    let ended = wait_for("the end", || child.try_wait().unwrap());
    assert_eq!(ended.code(), Some(4), "no key, as in every other run");
    assert!(started.elapsed() < Duration::from_secs(8));
    let mut out = String::new();
    child.stdout.take().unwrap().read_to_string(&mut out).unwrap();
    assert_eq!(checked(&out)[0]["error"]["kind"], "auth");
}

#[test]
fn a_session_that_takes_long_to_read_holds_up_no_signal() {
    let server = FakeModel::start(vec![says("hello")]);
    let env = Env::new().at(&server.base_url());
    env.kli(&["-p", "hi"]).exits(0);
    let session = env.sessions().pop().unwrap();
    // A confined run can have made one of any size, and that costs it nothing.
    let endless = session.with_file_name("20270101T000000Z-endless.jsonl");
    fs::copy(&session, &endless).unwrap();
    File::options().append(true).open(&endless).unwrap().set_len(1 << 40).unwrap();
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143)] {
        let mut child = env
            .command(&["-p", "on", "--resume", "endless", "--output-format", "stream-json"])
            .spawn()
            .unwrap();
        std::thread::sleep(Duration::from_millis(700));
        assert!(child.try_wait().unwrap().is_none(), "control: it is being read");
        kill(pid(&child), signal);
        let ended = wait_for("the end", || child.try_wait().unwrap());
        assert_eq!(ended.code(), Some(code));
        let mut out = String::new();
        child.stdout.take().unwrap().read_to_string(&mut out).unwrap();
        assert_eq!(checked(&out)[0]["outcome"], "interrupted");
    }
}
