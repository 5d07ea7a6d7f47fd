//! Choosing: sessions, copies, earlier prompts, files; and what a session is called.

use std::{fs, os::unix::fs::PermissionsExt as _};

use serde_json::json;

use super::{Tty, replay};
use crate::{
    fake_model::{Answer, FakeModel, message, text},
    harness::Env,
};

fn answers(texts: &[&str]) -> String {
    texts.iter().map(|text| json!({ "text": text }).to_string() + "\n").collect()
}

#[test]
fn a_session_is_found_by_any_of_its_prompts_and_goes_on() {
    let env = Env::new();
    replay(&env, &answers(&["one", "two"]));
    env.kli(&["-p", "Fix the parser"]).exits(0);
    env.kli(&["--continue", "-p", "and mind the walrus"]).exits(0);
    env.kli(&["-p", "Write the tests"]).exits(0);
    let mut tty = Tty::sized(&env, &[], 24, 120);
    tty.sees("say what to do");
    tty.press("/resume\r");
    tty.sees("Sessions of this directory · 2");
    // The latest comes first, each with its time and size.
    tty.until("the sessions", |screen| {
        let row = |text: &str| screen.lines().position(|line| line.contains(text));
        matches!((row("▸ "), row("Write the tests"), row("Fix the parser")), (Some(a), Some(b), Some(c)) if a == b && b < c)
    });
    assert!(tty.screen().contains("KiB") || tty.screen().contains(" B · "), "{}", tty.screen());
    tty.press("walrus");
    tty.sees("1 of 2");
    tty.press("\r");
    tty.sees("› and mind the walrus");
    tty.until("the list is gone", |screen| !screen.contains("search: "));
    // Esc chooses nothing, and the keys are the composer's again.
    tty.press("/resume\r");
    tty.sees("search: ");
    tty.press("\x1b");
    tty.until("the list is gone", |screen| !screen.contains("search: "));
    tty.press("draft");
    tty.sees("› draft");
    tty.press("\x15/quit\r");
    assert_eq!(tty.ends(), Some(0));
    assert!(tty.is_sane());
}

#[test]
fn a_name_is_kept_in_the_session_and_shown_everywhere() {
    let env = Env::new();
    replay(&env, &answers(&["one", "two", "three", "four"]));
    let mut tty = Tty::sized(&env, &[], 40, 160);
    tty.sees("say what to do");
    tty.press("Fix the parser\r");
    tty.sees("one");
    tty.press("/name\r");
    tty.sees("this session has no name");
    tty.press("/name the parser work\r");
    tty.sees("this session is called `the parser work`");
    tty.sees("“the parser work”");
    tty.press("/fork\r");
    tty.until("the copy's history", |screen| screen.matches("› Fix the parser").count() == 2);
    tty.sees("· “the parser work”");
    tty.press("go on\r");
    tty.sees("two");
    tty.press("/tree\r");
    tty.sees("This session and its copies · 2");
    tty.until("the branches", |screen| screen.contains("└─ ") && screen.contains("(now) “the"));
    // Back to the one that it was copied from.
    tty.press("\x1b[A\r");
    tty.until("its history", |screen| screen.matches("› Fix the parser").count() == 3);
    tty.press("/quit\r");
    assert_eq!(tty.ends(), Some(0));
    assert_eq!(env.sessions().len(), 2);
    let listed = env.kli(&["sessions", "list"]);
    assert_eq!(listed.out.matches("“the parser work” Fix the parser").count(), 2, "{listed:#?}");
    let json = env.kli(&["sessions", "list", "--json"]);
    assert_eq!(json.out.matches(r#""name":"the parser work""#).count(), 2, "{json:#?}");
    // It is one more line of the file, and found by its text.
    let lines = fs::read_to_string(&env.sessions()[0]).unwrap();
    assert_eq!(lines.matches(r#"{"type":"name","#).count(), 1);
    env.kli(&["sessions", "show", "parser work"]).exits(2).says("more than one session");
}

#[test]
fn a_file_is_completed_and_its_mention_is_read() {
    let env = Env::new();
    let fake = FakeModel::start(vec![Answer::new(message([text("Seen.")]))]);
    let env = env.at(&fake.base_url()).var("ANTHROPIC_API_KEY", "sk-test-0123456789");
    for directory in ["src", "target"] {
        fs::create_dir(env.work().join(directory)).unwrap();
    }
    for (name, content) in [
        ("src/main.rs", "fn main() {}"),
        ("my notes.txt", "the notes say walrus"),
        ("target/built", "x"),
        (".env", "x"),
        (".gitignore", "target\n"),
    ] {
        fs::write(env.work().join(name), content).unwrap();
    }
    std::os::unix::fs::symlink("/etc", env.work().join("etc")).unwrap();
    let mut tty = Tty::kli(&env, &[]);
    tty.sees("say what to do");
    tty.press("read @");
    tty.sees("  src/main.rs");
    let screen = tty.screen();
    for hidden in ["target", ".env", "etc/", "passwd"] {
        assert!(!screen.contains(hidden), "{hidden}: {screen}");
    }
    tty.press(".");
    tty.sees("  .env");
    tty.press("\x7fnote");
    tty.until("only that", |screen| !screen.contains("  src/main.rs"));
    tty.press("\t");
    tty.sees("› read @\"my notes.txt\"");
    tty.press("\r");
    tty.sees("Seen.");
    let sent = fake.requests()[0].json().to_string();
    assert!(sent.contains("the notes say walrus"), "{sent}");
    tty.press("\x04");
    assert_eq!(tty.ends(), Some(0));
}

#[test]
fn what_the_run_may_not_read_is_not_offered_either() {
    let env = Env::new();
    replay(&env, &answers(&["x"]));
    fs::write(env.work().join("secret.txt"), "").unwrap();
    let mut tty = Tty::kli(&env, &[]);
    tty.sees("say what to do");
    tty.press("@sec");
    tty.sees("  secret.txt");
    tty.press("\x15\x04");
    assert_eq!(tty.ends(), Some(0));
    let mut tty = Tty::kli(&env, &["--capabilities", "process/exec"]);
    tty.sees("say what to do");
    tty.press("@sec");
    tty.settles();
    assert!(!tty.screen().contains("secret.txt"), "{}", tty.screen());
    tty.press("\x15\x04");
    assert_eq!(tty.ends(), Some(0));
}

#[test]
fn what_was_said_is_there_the_next_time() {
    let env = Env::new();
    replay(&env, &answers(&["one", "two", "three", "four"]));
    let mut tty = Tty::kli(&env, &[]);
    tty.sees("say what to do");
    tty.press("fix the parser\r");
    tty.sees("one");
    tty.press(" my secret\r");
    tty.sees("two");
    tty.press("\x04");
    assert_eq!(tty.ends(), Some(0));
    let directory = env.home().join(".local/state/kli/history");
    let file = fs::read_dir(&directory).unwrap().next().unwrap().unwrap().path();
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    let mut kept = fs::read_to_string(&file).unwrap();
    assert!(kept.contains("fix the parser") && !kept.contains("secret"), "{kept}");

    // A forged file drives no terminal, and a broken line costs that line.
    kept.push_str(
        "{\"text\":\"forged \\u001b]0;pwned\\u0007\\u001b[2J end\"}\nbroken\n{\"text\": 1}\n",
    );
    fs::write(&file, kept).unwrap();
    let mut tty = Tty::kli(&env, &["--no-session"]);
    tty.sees("say what to do");
    tty.settles();
    tty.press("fix");
    tty.sees("› fix");
    tty.press("\x1b[A");
    tty.settles();
    // `--no-session` neither reads nor keeps.
    assert!(!tty.screen().contains("fix the parser"), "{}", tty.screen());
    tty.press("\x15said aloud\r");
    tty.sees("one");
    tty.press("\x04");
    assert_eq!(tty.ends(), Some(0));
    assert!(!fs::read_to_string(&file).unwrap().contains("said aloud"));

    let mut tty = Tty::kli(&env, &[]);
    tty.sees("say what to do");
    tty.settles();
    tty.press("\x1b[A");
    tty.sees("› forged  end");
    assert!(!tty.bytes.windows(5).any(|part| part == b"pwned"));
    tty.press("\x15\x12pars");
    tty.sees("▸ fix the parser");
    tty.press("\r");
    tty.until("it is written", |screen| screen.contains("› fix the parser"));
    tty.press(" again\r");
    tty.sees("one");
    tty.press("\x04");
    assert_eq!(tty.ends(), Some(0));
    assert!(fs::read_to_string(&file).unwrap().contains("fix the parser again"));
}

#[test]
fn a_session_is_written_to_a_new_file_as_far_as_the_run_may_write() {
    let env = Env::new();
    replay(&env, &answers(&["Hello there.", "again"]));
    let mut tty = Tty::sized(&env, &[], 40, 160);
    tty.sees("say what to do");
    tty.press("hi\r");
    tty.sees("Hello there.");
    tty.press("/export out/talk.md\r");
    tty.sees("written to `");
    let written = fs::read_to_string(env.work().join("out/talk.md")).unwrap();
    assert!(written.contains("Hello there."), "{written}");
    fs::write(env.work().join("out/talk.md"), "mine").unwrap();
    tty.press("/export out/talk.md\r");
    tty.sees("is there already; nothing was written");
    tty.sees("hint: name a new file");
    assert!(!tty.screen().contains("error: hint"), "{}", tty.screen());
    assert_eq!(fs::read_to_string(env.work().join("out/talk.md")).unwrap(), "mine");
    tty.press("/mcp\r");
    tty.sees("this version of kli has no MCP servers");
    tty.press("/skills\r");
    tty.sees("has no skills");
    tty.press("/prompts\r");
    tty.sees("has no prompt templates");
    tty.press("\x04");
    assert_eq!(tty.ends(), Some(0));

    let mut tty = Tty::sized(&env, &["--continue", "--capabilities", "file/read"], 40, 160);
    tty.sees("Hello there.");
    tty.press("/export no.md\r");
    tty.sees("file/write");
    assert!(!env.work().join("no.md").exists());
    tty.press("\x04");
    assert_eq!(tty.ends(), Some(0));
}

#[test]
fn a_link_can_be_opened_and_shows_where_it_leads() {
    let answer = "See [docs](https://example.org/a) and [bad](javascript:x).";
    for (no_color, linked) in [(false, true), (true, false)] {
        let mut env = Env::new();
        if no_color {
            env = env.var("NO_COLOR", "1");
        }
        replay(&env, &answers(&[answer]));
        let mut tty = Tty::kli(&env, &[]);
        tty.sees("say what to do");
        tty.press("x\r");
        tty.sees("See docs (https://example.org/a) and bad (javascript:x).");
        tty.press("\x04");
        assert_eq!(tty.ends(), Some(0));
        let bytes = String::from_utf8_lossy(&tty.bytes).into_owned();
        assert_eq!(bytes.contains("\x1b]8;id="), linked);
        assert_eq!(bytes.contains(";https://example.org/a\x1b\\docs\x1b]8;;\x1b\\"), linked);
        assert!(!bytes.contains(";javascript:"));
    }
}
