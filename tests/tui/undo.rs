//! Going back: `/undo`, `/redo`, `/rewind` and `/diff`, as a person types them.

use std::fs;

use serde_json::{Value, json};

use super::{Tty, replay};
use crate::{harness::Env, jail::for_both};

fn says(text: &str) -> String {
    json!({ "text": text }).to_string()
}

fn calls(calls: &[(&str, Value)]) -> String {
    let calls: Vec<Value> = calls
        .iter()
        .map(|(name, arguments)| json!({ "name": name, "arguments": arguments }))
        .collect();
    json!({ "text": "Working.", "calls": calls }).to_string()
}

fn write(path: &str, content: &str) -> (&'static str, Value) {
    ("write", json!({ "path": path, "content": content }))
}

fn edit(path: &str, old: &str, new: &str) -> (&'static str, Value) {
    ("edit", json!({ "path": path, "edits": [{ "old": old, "new": new }] }))
}

/// Two prompts: the first makes `new/b.txt`, the second changes `a.txt` and runs a command.
fn two_prompts(env: &Env) -> Tty {
    fs::write(env.work().join("a.txt"), "one\ntwo\n").unwrap();
    let recording = [
        calls(&[write("new/b.txt", "b\n")]),
        says("first done"),
        calls(&[
            edit("a.txt", "two", "2"),
            ("bash", json!({ "command": "echo made > by-command" })),
        ]),
        says("second done"),
        says("third done"),
    ];
    replay(env, &recording.join("\n"));
    let mut tty = Tty::sized(env, &[], 40, 100);
    tty.sees("say what to do");
    tty.press("first prompt\r");
    tty.sees("first done");
    tty.press("second prompt\r");
    tty.sees("second done");
    tty
}

fn leave(tty: &mut Tty) {
    tty.press("\x04");
    assert_eq!(tty.ends(), Some(0));
    assert!(tty.is_sane());
}

#[test]
fn undo_puts_files_back_prompt_by_prompt_and_the_model_is_told() {
    let env = Env::new();
    let read = |name: &str| fs::read_to_string(env.work().join(name)).ok();
    let mut tty = two_prompts(&env);
    assert_eq!(read("a.txt").unwrap(), "one\n2\n");
    tty.press("/undo\r");
    tty.sees("restored: `a.txt`");
    tty.sees("since the prompt `second prompt`");
    // What a command did is not kept, and that is said.
    tty.sees("commands ran since (`echo made > by-command`): what they changed is not covered");
    assert_eq!(read("a.txt").unwrap(), "one\ntwo\n");
    assert!(read("by-command").is_some());
    tty.press("/undo\r");
    tty.sees("removed: `new/b.txt`, and `new`");
    assert!(!env.work().join("new").exists());
    tty.press("/undo\r");
    tty.sees("nothing left to undo");
    tty.press("/redo\r");
    tty.sees("took the last undoing back");
    assert_eq!(read("new/b.txt").unwrap(), "b\n");
    tty.press("third prompt\r");
    tty.sees("third done");
    leave(&mut tty);
    let session = fs::read_to_string(&env.sessions()[0]).unwrap();
    let told = session.lines().find(|line| line.contains("[checkpoints]")).unwrap();
    assert!(told.contains("Put back") && told.contains("`a.txt`"), "{told}");
    assert_eq!(session.matches("[checkpoints]").count(), 1);
    // Nothing of it is in the workspace.
    let mut names: Vec<_> =
        fs::read_dir(env.work()).unwrap().map(|it| it.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["a.txt", "by-command", "new"]);
}

#[test]
fn what_a_person_changed_since_is_left_alone_until_it_is_forced() {
    let env = Env::new();
    let mut tty = two_prompts(&env);
    fs::write(env.work().join("a.txt"), "mine\n").unwrap();
    tty.press("/undo\r");
    tty.sees("left alone: `a.txt` was changed by something else since");
    assert_eq!(fs::read_to_string(env.work().join("a.txt")).unwrap(), "mine\n");
    tty.press("/undo force\r");
    tty.sees("restored: `a.txt`");
    assert_eq!(fs::read_to_string(env.work().join("a.txt")).unwrap(), "one\ntwo\n");
    leave(&mut tty);
}

#[test]
fn a_copy_of_a_session_can_undo_what_was_changed_before_it_was_made() {
    let env = Env::new();
    let read = |name: &str| fs::read_to_string(env.work().join(name)).unwrap();
    let mut tty = two_prompts(&env);
    let id = |at: usize| {
        let stem = env.sessions()[at].file_stem().unwrap().to_str().unwrap().to_owned();
        stem.split_once('-').unwrap().1.to_owned()
    };
    let first = id(0);
    // One that is made beside a session that another process has.
    let mut beside = Tty::sized(&env, &["--continue"], 40, 100);
    beside.sees("in use");
    beside.press("/undo\r");
    beside.sees("`/undo yes` would do this");
    assert_eq!(read("a.txt"), "one\n2\n", "control: not yet");
    beside.press("/undo yes\r");
    beside.sees("restored: `a.txt`");
    assert_eq!(read("a.txt"), "one\ntwo\n");
    beside.press("/redo yes\r");
    beside.sees("took the last undoing back");
    leave(&mut beside);
    leave(&mut tty);
    // One that is asked for on the command line, and of a copy.
    let mut copy = first.clone();
    for _ in 0..2 {
        copy = env.kli(&["sessions", "fork", &copy]).exits(0).out.trim().to_owned();
        let mut tty = Tty::sized(&env, &["--resume", &copy], 40, 100);
        tty.sees("say what to do");
        tty.press("/undo yes\r");
        tty.sees("restored: `a.txt`");
        assert_eq!(read("a.txt"), "one\ntwo\n");
        tty.press("/redo yes\r");
        tty.sees("took the last undoing back");
        assert_eq!(read("a.txt"), "one\n2\n");
        leave(&mut tty);
    }
    // What the first has is its own still.
    let diff = env.kli(&["sessions", "diff", &first]);
    assert!(diff.exits(0).out.contains("-two\n+2\n"), "{}", diff.out);
    // What cannot go along is said, and the copy is good.
    let place = env.home().join(".local/state/kli/checkpoints");
    fs::rename(&place, env.home().join("aside")).unwrap();
    std::os::unix::fs::symlink(env.home().join("aside"), &place).unwrap();
    let made = env.kli(&["sessions", "fork", &first]);
    made.exits(0).says("the checkpoints do not go along, so `/undo` begins anew: ");
    assert_eq!(made.err.lines().count(), 1, "{}", made.err);
    env.kli(&["sessions", "show", made.out.trim()]).exits(0);
}

#[test]
fn after_a_restart_the_checkpoints_still_serve_and_are_shown_first() {
    let env = Env::new();
    let mut tty = two_prompts(&env);
    leave(&mut tty);
    let mut tty = Tty::sized(&env, &["--continue"], 40, 100);
    tty.sees("say what to do");
    tty.press("/undo\r");
    tty.sees("kept by an earlier run");
    tty.sees("restore: `a.txt`, to 8 bytes");
    assert_eq!(fs::read_to_string(env.work().join("a.txt")).unwrap(), "one\n2\n", "only said");
    tty.press("/undo yes\r");
    tty.sees("restored: `a.txt`");
    assert_eq!(fs::read_to_string(env.work().join("a.txt")).unwrap(), "one\ntwo\n");
    leave(&mut tty);
}

#[test]
fn rewind_lists_prompts_and_goes_back_with_the_files() {
    let env = Env::new();
    let mut tty = two_prompts(&env);
    tty.press("/rewind\r");
    tty.sees("1  second prompt (1 file changed since)");
    tty.sees("2  first prompt (2 files changed since)");
    tty.press("/rewind 3\r");
    tty.sees("there is no prompt 3; there are 2");
    tty.press("/rewind 1\r");
    tty.sees("went back to before `second prompt`");
    assert_eq!(fs::read_to_string(env.work().join("a.txt")).unwrap(), "one\ntwo\n");
    assert!(env.work().join("new/b.txt").exists(), "of the prompt before");
    // The prompt stands where it can be changed, and the old session is whole.
    tty.until("the prompt to be changed", |screen| screen.contains("› second prompt"));
    tty.press(" changed\r");
    tty.sees("third done");
    // The checkpoints went along.
    tty.press("/undo\r");
    tty.sees("removed: `new/b.txt`, and `new`");
    leave(&mut tty);
    let sessions = env.sessions();
    assert_eq!(sessions.len(), 2, "{sessions:?}");
    let all: Vec<String> = sessions.iter().map(|path| fs::read_to_string(path).unwrap()).collect();
    let whole = all.iter().filter(|text| text.contains("second done")).count();
    assert_eq!(whole, 1, "the one before is kept whole, the new one goes on without");
    assert!(all.iter().all(|text| text.contains("first prompt")));
    let copy = all.iter().find(|text| !text.contains("second done")).unwrap();
    assert!(copy.contains("second prompt changed") && copy.contains("\"parent\""), "{copy}");
}

#[test]
fn rewind_of_the_conversation_alone_tells_the_model_what_stands() {
    let env = Env::new();
    let mut tty = two_prompts(&env);
    tty.press("/rewind 1 conversation\r");
    tty.sees("went back to before `second prompt`");
    assert_eq!(fs::read_to_string(env.work().join("a.txt")).unwrap(), "one\n2\n");
    tty.press("\r");
    tty.settles();
    tty.press("/rewind 1 files\r");
    tty.sees("kli changed no file since then");
    leave(&mut tty);
    let told = env.sessions().iter().any(|path| {
        let text = fs::read_to_string(path).unwrap();
        text.contains("changes that this conversation does not tell of: `a.txt`")
    });
    assert!(told);
}

#[test]
fn rewind_of_the_files_alone_leaves_the_conversation() {
    let env = Env::new();
    let mut tty = two_prompts(&env);
    tty.press("/rewind 2 files\r");
    tty.sees("removed: `new/b.txt`, and `new`");
    tty.sees("restored: `a.txt`");
    leave(&mut tty);
    assert_eq!(env.sessions().len(), 1);
    assert_eq!(fs::read_to_string(env.work().join("a.txt")).unwrap(), "one\ntwo\n");
}

#[test]
fn diff_shows_the_changes_with_colours_and_hidden_characters() {
    let env = Env::new();
    fs::write(env.work().join("a.txt"), "one\ntwo\n").unwrap();
    let recording = [
        calls(&[
            edit("a.txt", "two", "2\u{202e}\u{1b}[31m"),
            write("b.bin", "\0\u{1}"),
            write("new.txt", "n\n"),
        ]),
        says("done"),
    ];
    replay(&env, &recording.join("\n"));
    let mut tty = Tty::sized(&env, &[], 40, 100);
    tty.sees("say what to do");
    tty.press("/diff\r");
    tty.sees("nothing was said in this session yet");
    tty.press("go\r");
    tty.sees("done");
    tty.press("/diff\r");
    tty.sees("+2\\u{202e}\\u{1b}[31m");
    tty.sees("-two");
    tty.sees("--- /dev/null");
    tty.sees("Binary files /dev/null and b/b.bin differ (0 and 2 bytes)");
    tty.sees("what commands changed is not shown");
    let red = tty.bytes.windows(9).any(|part| part == b"\x1b[31m-two");
    assert!(red, "what is gone is red");
    leave(&mut tty);
    // The command line prints the same.
    let id = env.sessions()[0].file_stem().unwrap().to_str().unwrap().to_owned();
    let id = id.split_once('-').unwrap().1.to_owned();
    let out = env.kli(&["sessions", "diff", &id]);
    out.exits(0);
    for row in ["--- a/a.txt", "+++ b/a.txt", " one", "-two", "+2\\u{202e}\\u{1b}[31m", "+n"] {
        assert!(out.out.lines().any(|line| line == row), "{row}: {}", out.out);
    }
}

#[test]
fn without_a_session_it_is_said_that_there_are_no_checkpoints() {
    let env = Env::new();
    replay(&env, &format!("{}\n{}", calls(&[write("a", "x")]), says("done")));
    let mut tty = Tty::sized(&env, &["--no-session"], 30, 100);
    tty.sees("no session is kept, so no checkpoints are");
    tty.press("go\r");
    tty.sees("done");
    assert!(env.work().join("a").exists(), "the tool works all the same");
    tty.press("/undo\r");
    tty.sees("no checkpoints are kept without a session");
    leave(&mut tty);
    assert!(!env.home().join(".local/state/kli/checkpoints").exists());
}

#[test]
fn going_back_works_in_the_jail() {
    for_both(|world| {
        fs::copy(env!("CARGO_BIN_EXE_kli"), world.root.join("kli")).unwrap();
        let file = world.file(world.workspace.join("a.txt"), "one\ntwo\n");
        let recording = [calls(&[edit("a.txt", "two", "2")]), says("done")];
        let recording = world.file("home/recording.jsonl", &recording.join("\n"));
        world.file(
            "home/.config/kli/settings.json",
            &format!(
                r#"{{"model": "replay/x", "providers": {{"replay": {{"file": "{}"}}}}}}"#,
                recording.display()
            ),
        );
        let mut tty = Tty::shell_in(world);
        tty.press(&format!("j '{}'\r", world.root.join("kli").display()));
        tty.sees("say what to do");
        tty.press("go\r");
        tty.sees("done");
        assert_eq!(fs::read_to_string(&file).unwrap(), "one\n2\n", "control");
        tty.press("/undo\r");
        tty.sees("restored: `a.txt`");
        assert_eq!(fs::read_to_string(&file).unwrap(), "one\ntwo\n");
        tty.press("/redo\r");
        tty.sees("took the last undoing back");
        assert_eq!(fs::read_to_string(&file).unwrap(), "one\n2\n");
        tty.press("\x04");
        tty.sees("kli --resume");
    });
}
