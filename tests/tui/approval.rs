//! Questions about calls, and commands of the person's own, as a person has them.

use std::{
    fs,
    time::{Duration, Instant},
};

use rustix::process::Signal;
use serde_json::{Value, json};

use super::Tty;
use crate::harness::Env;

const SETTINGS: &str = r#""profiles": { "careful": { "approve": "writes" } }"#;

fn call(name: &str, arguments: &Value) -> Value {
    json!({ "calls": [{ "name": name, "arguments": arguments }] })
}

fn bash(command: &str) -> Value {
    call("bash", &json!({ "command": command }))
}

/// An environment whose model says these, then `done`.
fn env(turns: &[Value]) -> Env {
    let env = Env::new();
    let done = json!({ "text": "done" });
    let turns = turns.iter().chain([&done]).map(Value::to_string);
    let file = env.home().join("recording.jsonl");
    fs::write(&file, turns.collect::<Vec<_>>().join("\n")).unwrap();
    env.settings(&format!(
        r#"{{"model": "replay/x", "providers": {{"replay": {{"file": "{}"}}}}, {SETTINGS}}}"#,
        file.display()
    ));
    env
}

fn begin(env: &Env) -> Tty {
    let mut tty = Tty::kli(env, &["--profile", "careful"]);
    tty.sees("say what to do");
    tty
}

/// Waits until keys answer.
#[track_caller]
fn armed(tty: &mut Tty) {
    tty.until("a question that can be answered", |screen| {
        screen.contains("y yes · n no") && !screen.contains("a moment:")
    });
}

/// Waits for the model's last word.
#[track_caller]
fn done(tty: &mut Tty) {
    tty.until("done", |screen| screen.lines().any(|row| row.trim() == "done"));
}

fn leave(tty: &mut Tty) {
    tty.press("\x04");
    assert_eq!(tty.ends(), Some(0));
    assert!(tty.is_sane());
}

#[test]
fn yes_runs_it_and_keys_from_before_do_not_say_it() {
    let env = env(&[bash("touch made; echo \"out\u{202e}\"")]);
    let made = env.work().join("made");
    let mut tty = begin(&env);
    // All of it is there before there is a question.
    tty.press("go\ryay");
    tty.sees("may bash run?");
    tty.sees("being written: yay");
    armed(&mut tty);
    let screen = tty.screen();
    assert!(screen.contains("│ touch made; echo \"out\\u{202e}\""), "{screen}");
    assert!(screen.contains("1 character that cannot be seen"), "{screen}");
    assert!(screen.contains("`approve` is `writes` (profile careful)"), "{screen}");
    let footer = screen.lines().rfind(|row| !row.trim().is_empty()).unwrap();
    let confined = ["no jail", "outer:", "confinement unknown", "jail:"];
    assert!(confined.iter().any(|word| footer.contains(word)), "{screen}");
    // A paste answers nothing, nor do several keys at once.
    tty.send(b"\x1b[200~y\x1b[201~");
    tty.sees("being written: yayy");
    tty.press("yy");
    tty.sees("several keys at once answer nothing");
    assert!(!made.exists(), "nothing was done so far");
    tty.settles();
    assert!(tty.is_taken());
    tty.press("y");
    done(&mut tty);
    assert!(made.exists());
    tty.press("\x15");
    leave(&mut tty);
}

#[test]
fn somebody_who_goes_on_typing_does_not_answer() {
    // The question needs a pause; where the machine made one, it is tried again.
    for _ in 0..20 {
        let env = env(&[bash("touch made")]);
        let mut tty = begin(&env);
        tty.press("go\r");
        let (start, mut last, mut longest) = (Instant::now(), Instant::now(), Duration::ZERO);
        let mut seen = None;
        while seen.is_none_or(|seen: Instant| seen.elapsed() < Duration::from_millis(900)) {
            tty.press("y");
            longest = longest.max(last.elapsed());
            last = Instant::now();
            tty.look(Duration::from_millis(10));
            if tty.screen().contains("may bash run?") {
                seen.get_or_insert_with(Instant::now);
            }
            assert!(start.elapsed() < super::PATIENCE, "{}", tty.screen());
        }
        if longest > Duration::from_millis(120) {
            continue;
        }
        assert!(!env.work().join("made").exists(), "{}", tty.screen());
        armed(&mut tty);
        tty.press("y");
        done(&mut tty);
        assert!(env.work().join("made").exists(), "control");
        return;
    }
    panic!("the machine never kept up");
}

#[test]
fn no_has_no_effect_and_the_model_reads_why() {
    let env = env(&[bash("touch made")]);
    let mut tty = begin(&env);
    tty.press("go\r");
    armed(&mut tty);
    tty.press("n");
    tty.sees("say why");
    tty.press("use the other one\r");
    done(&mut tty);
    assert!(tty.all().iter().any(|row| row.contains("the person did not approve")));
    assert!(!env.work().join("made").exists());
    leave(&mut tty);
    let told = env.session().iter().map(Value::to_string).collect::<String>();
    assert!(told.contains("nothing was done. The person says: use the other one"), "{told}");
}

#[test]
fn always_is_for_that_and_for_this_session_alone() {
    let env = env(&[
        bash("echo x >> log"),
        bash("echo x >> log"),
        bash("echo x >> log; touch other"),
        json!({ "text": "first done" }),
        bash("echo x >> log"),
        json!({ "text": "second done" }),
        bash("echo x >> log"),
    ]);
    let log = env.work().join("log");
    let mut tty = begin(&env);
    tty.press("go\r");
    armed(&mut tty);
    tty.sees("always would cover this very `bash` call, to the letter");
    tty.press("a");
    tty.sees("touch other");
    armed(&mut tty);
    assert_eq!(fs::read_to_string(&log).unwrap(), "x\nx\n", "the same was not asked about");
    tty.press("n");
    tty.sees("say why");
    tty.press("\r");
    tty.sees("first done");
    assert!(!env.work().join("other").exists());
    // The answer ends with the session.
    tty.press("/clear\r");
    tty.settles();
    tty.press("again\r");
    armed(&mut tty);
    assert_eq!(fs::read_to_string(&log).unwrap(), "x\nx\n");
    tty.press("a");
    tty.sees("second done");
    // And with a change of the profile, which may ask for more.
    tty.press("/profile careful\r");
    tty.sees("profile: careful, for this conversation");
    tty.press("once more\r");
    armed(&mut tty);
    assert_eq!(fs::read_to_string(&log).unwrap(), "x\nx\nx\n");
    tty.press("\x03\x03");
    assert_eq!(tty.ends(), Some(0));
    assert_eq!(fs::read_to_string(&log).unwrap(), "x\nx\nx\n");
}

#[test]
fn what_was_changed_runs_in_its_place() {
    let env = env(&[bash("touch wrong")]);
    let mut tty = begin(&env);
    tty.press("go\r");
    armed(&mut tty);
    tty.press("e");
    tty.sees("Enter runs this in its place");
    tty.press("\x17right\r");
    done(&mut tty);
    assert!(env.work().join("right").exists() && !env.work().join("wrong").exists());
    leave(&mut tty);
    let told = env.session().iter().map(Value::to_string).collect::<String>();
    assert!(told.contains("the person changed `command` before it ran"), "{told}");
}

#[test]
fn an_edit_shows_its_diff_whole() {
    let lines: Vec<String> = (1..=60).map(|n| format!("line {n}")).collect();
    let new = lines.join("\n") + "\n";
    let env =
        env(&[call("edit", &json!({ "path": "f", "edits": [{ "old": "two\n", "new": new }] }))]);
    fs::write(env.work().join("f"), "one\ntwo\nthree\n").unwrap();
    let mut tty = begin(&env);
    tty.press("go\r");
    armed(&mut tty);
    tty.sees("2 - two");
    tty.sees("2 + line 1");
    tty.sees("PageDown for more");
    assert!(!tty.screen().contains("+ line 60"));
    for _ in 0..4 {
        tty.press("\x1b[6~");
        tty.settles();
    }
    tty.sees("61 + line 60");
    tty.press("y");
    done(&mut tty);
    assert!(fs::read_to_string(env.work().join("f")).unwrap().contains("line 60\nthree\n"));
    leave(&mut tty);
}

#[test]
fn an_interrupt_a_leave_and_signals_leave_no_effect_and_a_session_that_goes_on() {
    type End = (&'static str, Option<i32>, fn(&mut Tty));
    let ends: [End; 5] = [
        ("interrupt", Some(0), |tty| {
            // Two in time, however busy the machine is.
            while !tty.screen().contains("· interrupted") {
                tty.press("\x1b");
                tty.look(Duration::from_millis(200));
            }
            tty.press("\x15\x04");
        }),
        ("leave", Some(0), |tty| tty.press("\x03\x03")),
        ("while writing why", Some(0), |tty| {
            tty.press("n");
            tty.sees("say why");
            tty.press("because\x03\x03");
        }),
        ("HUP", Some(143), |tty| tty.signal(Signal::HUP)),
        ("TERM", Some(143), |tty| tty.signal(Signal::TERM)),
    ];
    for (name, code, end) in ends {
        let env = env(&[bash("touch made")]);
        let mut tty = begin(&env);
        tty.press("go\r");
        armed(&mut tty);
        end(&mut tty);
        assert_eq!(tty.ends(), code, "{name}:\n{}", tty.screen());
        assert!(tty.is_sane(), "{name}");
        assert!(!env.work().join("made").exists(), "{name}");
        let told = env.session().iter().map(Value::to_string).collect::<String>();
        assert!(told.contains("was not approved before the run was stopped"), "{name}: {told}");
        // It goes on where it was.
        let mut tty = Tty::kli(&env, &["--profile", "careful", "--continue"]);
        tty.sees("› go");
        leave(&mut tty);
    }
}

#[test]
fn line_by_line_it_asks_and_is_answered() {
    let env = env(&[bash("touch one"), bash("touch two"), bash("touch three")]);
    let made = |name: &str| env.work().join(name).exists();
    let mut tty = Tty::kli(&env, &["--plain", "--profile", "careful"]);
    tty.sees("> ");
    // The second line was there before the question.
    tty.press("go\ry\r");
    tty.sees("may bash run?");
    tty.sees("answer with a line:");
    assert!(!made("one"));
    tty.press("maybe\r");
    tty.until("the answers again", |screen| screen.matches("answer with a line").count() >= 2);
    tty.press("y\r");
    tty.sees("touch two");
    assert!(made("one"));
    let asked = |tty: &mut Tty| {
        tty.until("an answer is waited for", |screen| screen.trim_end().ends_with("\n?"));
    };
    asked(&mut tty);
    tty.press("n not this\r");
    tty.sees("touch three");
    asked(&mut tty);
    tty.press("e touch four\r");
    done(&mut tty);
    assert!(!made("two") && !made("three") && made("four"));
    tty.press("/quit\r");
    assert_eq!(tty.ends(), Some(0));
    assert!(!tty.bytes.contains(&0x1b));
}

#[test]
fn line_by_line_a_line_that_was_begun_before_the_question_does_not_answer_it() {
    let env = env(&[bash("until [ -e go ]; do sleep 0.05; done"), bash("touch made")]);
    let made = || env.work().join("made").exists();
    let mut tty = Tty::kli(&env, &["--plain", "--profile", "careful"]);
    tty.sees("> ");
    tty.press("go\r");
    let asked = |tty: &mut Tty, end: &str| {
        let end = format!("\n? {end}");
        let end = end.trim_end().to_owned();
        tty.until("an answer is waited for", |screen| screen.trim_end().ends_with(&end));
    };
    asked(&mut tty, "");
    tty.press("y\r");
    // Half a line that would be an answer, while the first command runs.
    tty.sees("running bash");
    tty.press("y");
    tty.settles();
    fs::write(env.work().join("go"), "").unwrap();
    tty.sees("what you have begun to write");
    asked(&mut tty, "y");
    let modes = tty.changed();
    assert_eq!(modes, None, "the terminal edits lines as before");
    tty.press("\r");
    asked(&mut tty, "");
    tty.settles();
    assert!(!made(), "{}", tty.screen());
    // The control: a line that is written at the question answers.
    tty.press("y\r");
    done(&mut tty);
    assert!(made());
    tty.press("/quit\r");
    assert_eq!(tty.ends(), Some(0));
    assert!(!tty.bytes.contains(&0x1b));
    // What was begun went where it was meant to go: to the agent.
    let said =
        |line: &&Value| line["message"]["role"] == "user" && line.to_string().contains("\"y\"");
    assert_eq!(env.session().iter().filter(said).count(), 1, "{:#?}", env.session());
}

#[test]
fn a_command_of_ones_own_runs_is_told_or_not_and_can_be_interrupted() {
    let env = env(&[]);
    let mut tty = begin(&env);
    // What it prints is seen before it has ended, and the next one needs an agent that is idle.
    let ended = |tty: &mut Tty, title: &str| {
        let row = format!("✓ bash {title}");
        tty.until(&row, |screen| screen.contains(&row) && !screen.contains("interrupts"));
    };
    tty.press("!echo told-$((1+1)); pwd\r");
    tty.sees("told-2");
    tty.sees("› !echo");
    ended(&mut tty, "echo told-");
    tty.press("!!touch untold; echo quiet-$((1+1))\r");
    tty.sees("quiet-2");
    ended(&mut tty, "touch untold");
    assert!(env.work().join("untold").exists(), "the profile asks the agent, not the person");
    tty.press("!sleep 60\r");
    tty.sees("running bash");
    let start = Instant::now();
    while !tty.screen().contains("· interrupted") {
        assert!(start.elapsed() < super::PATIENCE, "{}", tty.screen());
        tty.press("\x1b");
        tty.look(Duration::from_millis(200));
    }
    tty.press("\x15go\r");
    done(&mut tty);
    leave(&mut tty);
    let told = env.session().iter().map(Value::to_string).collect::<String>();
    assert!(told.contains("the person ran a command") && told.contains("told-2"), "{told}");
    assert!(told.contains("sleep 60") && !told.contains("quiet-2"), "{told}");
}

#[test]
fn what_binds_the_person_is_said_and_nothing_runs() {
    let env = env(&[]);
    let mut tty = Tty::kli(&env, &["--no-bash"]);
    tty.sees("say what to do");
    tty.press("!touch made\r");
    tty.sees("flag --no-bash");
    assert!(!env.work().join("made").exists());
    leave(&mut tty);
    // A profile binds the agent alone.
    let mut tty = Tty::kli(&env, &["--profile", "read-only"]);
    tty.sees("say what to do");
    tty.press("!touch made\r");
    tty.until("its end", |screen| screen.contains("✓ bash touch made"));
    assert!(env.work().join("made").exists(), "control");
    leave(&mut tty);
}
