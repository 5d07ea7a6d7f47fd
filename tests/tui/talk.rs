//! Saying something and seeing what comes of it.

use std::{fs, time::Duration};

use serde_json::json;

use super::{Tty, replay};
use crate::{
    fake_model::{Answer, FakeModel, message, text},
    harness::Env,
};

fn answer(text: &str) -> String {
    json!({ "text": text }).to_string()
}

#[test]
fn a_prompt_is_answered_and_the_answer_is_final() {
    let env = Env::new();
    replay(&env, &format!("{}\n{}", answer("# Title\n\n- one\n- **two**\n"), answer("again")));
    let mut tty = Tty::kli(&env, &[]);
    tty.sees("say what to do");
    // The footer says what confines it, in words.
    tty.until("the confinement", |screen| {
        ["no jail", "outer:", "confinement unknown", "jail:"]
            .iter()
            .any(|word| screen.contains(word))
    });
    tty.sees("replay/x");
    tty.press("hello there\r");
    tty.sees("› hello there");
    tty.sees("• two");
    tty.press("and\r");
    tty.sees("again");
    let all = tty.all();
    let at = |text: &str| {
        all.iter().position(|row| row == text).unwrap_or_else(|| panic!("{text}: {all:#?}"))
    };
    assert!(at("› hello there") < at("Title") && at("Title") < at("• one"));
    assert_eq!(all.iter().filter(|row| row.as_str() == "Title").count(), 1);
    tty.press("\x04");
    assert_eq!(tty.ends(), Some(0));
    assert_eq!(tty.left(), [""; 0]);
    assert!(tty.screen().contains("kli --resume "), "{}", tty.screen());
    assert_eq!(env.sessions().len(), 1);
}

#[test]
fn tools_show_what_they_do_and_edits_their_changes() {
    let env = Env::new();
    fs::write(env.work().join("a.txt"), "one\ntwo\n").unwrap();
    let calls = json!({ "text": "Looking.", "calls": [
        { "name": "bash", "arguments": { "command": "seq 1 30; printf '\\033[31mred\\033[0m\\033[2J'; exit 3" } },
        { "name": "edit", "arguments": { "path": "a.txt", "edits": [{ "old": "two", "new": "2" }] } },
    ]});
    replay(&env, &format!("{calls}\n{}", answer("done")));
    let mut tty = Tty::sized(&env, &[], 40, 80);
    tty.sees("say what to do");
    tty.press("go\r");
    tty.sees("done");
    let screen = tty.screen();
    assert!(screen.contains("✗ bash seq 1 30") && screen.contains("(exit 3)"), "{screen}");
    assert!(
        screen.contains("more lines (Ctrl-O shows it)") && !screen.contains("\n  5\n"),
        "{screen}"
    );
    assert!(screen.contains("- two") && screen.contains("+ 2"), "{screen}");
    // The screen was not cleared by the tool, and its colour is its own.
    assert!(screen.contains("› go"), "{screen}");
    let red = tty.bytes.windows(8).any(|part| part == b"\x1b[31mred");
    assert!(red, "the tool's colour is kept");
    tty.press("\x0f");
    tty.until("the whole result", |screen| screen.contains("\n  5\n"));
    tty.press("\x03\x03");
    assert_eq!(tty.ends(), Some(0));
}

#[test]
fn an_interrupt_before_any_output_gives_the_prompt_back() {
    let env = Env::new();
    let fake = FakeModel::start(vec![
        Answer::new(message([text("never")])).delay(Duration::from_mins(1)),
        Answer::new(message([text("Now.")])),
    ]);
    let env = env.at(&fake.base_url()).var("ANTHROPIC_API_KEY", "sk-test-0123456789");
    let mut tty = Tty::kli(&env, &[]);
    tty.sees("say what to do");
    tty.press("a mistake\r");
    tty.sees("asking the model");
    tty.press("\x1b");
    tty.sees("Esc again interrupts");
    tty.press("\x1b");
    tty.sees("interrupted");
    tty.settles();
    assert!(tty.is_taken());
    tty.until("the prompt in the editor", |screen| {
        screen.lines().filter(|line| line.contains("a mistake")).count() == 1
    });
    tty.press("\x15the right one\r");
    tty.sees("Now.");
    // What was taken back is not sent along, now or when the session goes on.
    let sent = fake.bodies().last().unwrap().to_string();
    assert!(sent.contains("the right one") && !sent.contains("a mistake"), "{sent}");
    assert!(tty.all().iter().any(|row| row == "› the right one"));
    tty.press("\x04");
    assert_eq!(tty.ends(), Some(0));
    assert_eq!(tty.left(), [""; 0]);
}

#[test]
fn what_is_said_while_it_works_waits_visibly_and_arrives() {
    let env = Env::new();
    let calls = json!({ "calls": [{ "name": "bash", "arguments": { "command": "until [ -e go ]; do sleep 0.05; done; echo over" } }] });
    replay(&env, &format!("{calls}\n{}\n{}", answer("heard"), answer("next answer")));
    let mut tty = Tty::kli(&env, &[]);
    tty.sees("say what to do");
    tty.press("start\r");
    tty.sees("running bash");
    tty.press("mind the gap\r");
    tty.sees("to be told next: mind the gap");
    tty.press("and then this\t");
    tty.sees("next prompt: and then this");
    // Nothing that is pressed gets lost.
    tty.press("draft");
    fs::write(env.work().join("go"), "").unwrap();
    tty.sees("next answer");
    let all = tty.all();
    let at = |text: &str| {
        all.iter().position(|row| row == text).unwrap_or_else(|| panic!("{text}: {all:#?}"))
    };
    assert!(at("› mind the gap") < at("heard") && at("heard") < at("› and then this"));
    tty.sees("› draft");
    tty.press("\x03\x03");
    assert_eq!(tty.ends(), Some(0));
    let session = env.session();
    assert!(session.iter().any(|line| line.to_string().contains("mind the gap")));
}

#[test]
fn commands_print_what_the_command_line_prints() {
    let env = Env::new();
    replay(&env, &answer("Hello."));
    let mut tty = Tty::sized(&env, &[], 60, 160);
    tty.sees("say what to do");
    tty.press("/authority\r");
    tty.sees("authority: universal");
    tty.press("/hlep\r");
    tty.sees("there is no command `/hlep`; did you mean `/help`?");
    // It stays to be mended.
    tty.press("\x15/config\r");
    tty.sees("replay/x");
    tty.press("hi\r");
    tty.sees("Hello.");
    tty.press("/clear\r");
    tty.sees("a new session begins; `/resume` goes back");
    tty.press("/sessions\r");
    let listed = env.kli(&["sessions", "list"]);
    listed.exits(0);
    let id = listed.out.lines().nth(1).unwrap().split(' ').next().unwrap().to_owned();
    tty.sees(&id);
    tty.sees("MESSAGES");
    tty.press(&format!("/resume {id}\r"));
    tty.until("the session's history", |screen| screen.matches("› hi").count() == 2);
    tty.press("/export\r");
    tty.until("the export", |screen| screen.matches("Hello.").count() >= 3);
    tty.press("/quit\r");
    assert_eq!(tty.ends(), Some(0));
    assert!(tty.screen().contains(&format!("kli --resume {id}")));
}

#[test]
fn before_anything_was_said_there_is_nothing_to_export_or_copy() {
    let env = Env::new();
    replay(&env, &answer("Hello."));
    // Nor is there anything to go on with.
    let mut tty = Tty::kli(&env, &[]);
    tty.sees("say what to do");
    tty.press("\x04");
    assert_eq!(tty.ends(), Some(0));
    assert!(!tty.all().iter().any(|row| row.contains("--resume")), "{:#?}", tty.all());
    let mut tty = Tty::sized(&env, &[], 40, 100);
    tty.sees("say what to do");
    for command in ["/export", "/fork", "/diff", "/export x.md"] {
        let said = |screen: &str| {
            let answer = format!("› {command}\nerror: nothing was said in this session yet");
            let rows: Vec<&str> = screen.lines().map(str::trim_end).collect();
            rows.join("\n").contains(&answer)
        };
        assert!(!said(&tty.screen()));
        tty.press(&format!("{command}\r"));
        tty.until(command, said);
    }
    assert!(!env.work().join("x.md").exists());
    // The same session goes on.
    tty.press("hi\r");
    tty.sees("Hello.");
    tty.press("/export x.md\r");
    tty.sees("written to `");
    assert!(env.work().join("x.md").exists());
    tty.press("\x04");
    assert_eq!(tty.ends(), Some(0));
    assert!(tty.all().iter().any(|row| row.contains("go on with `kli --resume")));
}

#[test]
fn a_paste_is_exact_and_one_without_an_end_leaves_the_keyboard_alive() {
    let env = Env::new();
    let fake = FakeModel::start(vec![
        Answer::new(message([text("First.")])),
        Answer::new(message([text("Second.")])),
    ]);
    let env = env.at(&fake.base_url()).var("ANTHROPIC_API_KEY", "sk-test-0123456789");
    let mut tty = Tty::kli(&env, &[]);
    tty.sees("say what to do");
    let body = "0123456789 漢字 abc\r\n".repeat(50_000);
    tty.press("see ");
    tty.send(format!("\x1b[200~{body}\x1b[201~").as_bytes());
    tty.sees("[pasted 1: 50000 lines]");
    tty.press("\r");
    tty.sees("First.");
    let sent = fake.requests()[0].json();
    let sent = sent["messages"][0].to_string();
    assert!(sent.contains("0123456789 漢字 abc\\n0123"), "line ends are plain");
    assert_eq!(sent.matches("漢字").count(), 50_000);
    tty.send(b"\x1b[200~no end");
    tty.sees("no end");
    // Byte by byte, a mouse report among them.
    for byte in " and ⚠️ 漢\x1b[<0;33;12M!\r".as_bytes() {
        tty.send(&[*byte]);
        tty.look(Duration::from_millis(2));
    }
    tty.sees("Second.");
    assert!(fake.requests()[1].json().to_string().contains("no end and ⚠️ 漢!"));
    tty.settles();
    assert!(tty.is_taken());
    tty.press("\x04");
    assert_eq!(tty.ends(), Some(0));
    assert_eq!(tty.left(), [""; 0]);
}

#[test]
fn colours_can_be_off_and_words_say_the_same() {
    let env = Env::new().var("NO_COLOR", "1");
    replay(&env, &answer("`code`"));
    let mut tty = Tty::kli(&env, &[]);
    tty.sees("say what to do");
    tty.press("x\r");
    tty.sees("code");
    tty.press("\x04");
    tty.ends();
    let text = String::from_utf8_lossy(&tty.bytes).into_owned();
    for color in ["\x1b[3", "\x1b[4", "\x1b[9", ";3", ";4"] {
        for (at, _) in text.match_indices(color) {
            let sequence: String = text[at..].chars().take(8).collect();
            let end = sequence.find(|c: char| c.is_ascii_alphabetic()).map(|i| &sequence[i..=i]);
            let is_plain = sequence.starts_with("\x1b[3m") || sequence.starts_with("\x1b[4m");
            assert!(end != Some("m") || is_plain, "{sequence:?}");
        }
    }
}

#[test]
fn a_wide_answer_fits_at_every_width() {
    for columns in [1_u16, 2, 5, 20, 200, 400] {
        let env = Env::new();
        replay(&env, &answer("| a | b |\n|---|---|\n| ⚠️ 👩‍👩‍👧 漢字 | x\ty |\n\nlong words here"));
        let mut tty = Tty::sized(&env, &[], 24, columns);
        tty.settles();
        tty.press("x\r");
        tty.settles();
        tty.press("\x04");
        assert_eq!(tty.ends(), Some(0), "at {columns}:\n{}", tty.screen());
        assert_eq!(tty.left(), [""; 0], "at {columns}");
        let rows = tty.all();
        let all: String = rows.concat().split_whitespace().collect();
        assert!(all.contains("longwordshere"), "at {columns}: {rows:#?}");
        if columns >= 20 {
            for text in ["漢字", "long words here"] {
                let found = rows.iter().filter(|row| row.contains(text)).count();
                assert_eq!(found, 1, "at {columns}: {rows:#?}");
            }
        }
    }
}
