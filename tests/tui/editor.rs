//! The person's own editor: it gets the text and the terminal, and gives both back.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    time::Duration,
};

use rustix::process::Signal;
use serde_json::json;

use super::{Tty, replay};
use crate::{
    harness::{Env, wait_for},
    jail::for_both,
};

/// Writes a script that is an editor; the file is its last argument.
fn script(place: &Path, text: &str) -> PathBuf {
    let path = place.join("my editor");
    let text = format!("#!/bin/bash\nfile=\"${{@: -1}}\"\nhere=$(dirname \"$0\")\n{text}\n");
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path
}

fn answer(text: &str) -> String {
    json!({ "text": text }).to_string()
}

/// What is left of texts that were edited.
fn left(env: &Env) -> usize {
    fs::read_dir(env.home().join(".local/state/kli/editing")).map_or(0, Iterator::count)
}

#[test]
fn it_gets_the_text_and_the_terminal_and_gives_both_back() {
    let env = Env::new();
    replay(&env, &answer("Heard."));
    let path = script(
        &env.home(),
        "stty -a > \"$here/modes\"; cat \"$file\" > \"$here/seen\"; echo \"$1\" > \"$here/first\"\n\
         stat -c '%a %h' \"$file\" > \"$here/mode\"; echo EDITOR HAS IT\nread -r line\n\
         printf 'edited %s\\nsecond line\\n' \"$line\" > \"$file\"",
    );
    let env = env.var("VISUAL", &format!("'{}' --wait", path.display())).var("EDITOR", "false");
    let mut tty = Tty::kli(&env, &[]);
    tty.sees("say what to do");
    tty.press("draft 漢\x07");
    tty.sees("EDITOR HAS IT");
    assert!(tty.is_sane(), "the editor finds the terminal as a shell leaves it");
    // What is typed is the editor's, Ctrl-C and sizes are no reason to end.
    tty.press("typed\r");
    tty.sees("› edited typed");
    tty.sees("second line");
    tty.settles();
    assert!(!tty.is_sane(), "control: kli has it again");
    let file = |name: &str| fs::read_to_string(env.home().join(name)).unwrap();
    assert_eq!(file("seen"), "draft 漢");
    assert_eq!(file("first"), "--wait\n");
    assert_eq!(file("mode"), "600 1\n");
    assert!(
        file("modes").contains(" echo ") && file("modes").contains(" icanon"),
        "{}",
        file("modes")
    );
    assert_eq!(left(&env), 0);
    tty.press("\r");
    tty.sees("Heard.");
    tty.press("\x04");
    assert_eq!(tty.ends(), Some(0));
    assert!(tty.is_sane());
}

#[test]
fn one_that_fails_or_is_not_there_leaves_the_text() {
    let env = Env::new();
    replay(&env, &answer("x"));
    let path = script(
        &env.home(),
        "stty raw -echo; printf '\\033[?1049h'; echo changed > \"$file\"; exit 3",
    );
    for (editor, said) in [
        (format!("'{}'", path.display()), "ended with exit code 3; nothing has changed"),
        ("/no/such/editor".to_owned(), "set `VISUAL` or `EDITOR`"),
    ] {
        let mut tty = {
            let mut command = env.command(&[]);
            command.env("VISUAL", &editor);
            Tty::start(&command, 24, 100)
        };
        tty.sees("say what to do");
        tty.press("my draft\x07");
        tty.sees(said);
        tty.sees("› my draft");
        assert_eq!(left(&env), 0, "{said}");
        tty.press("\x03\x03");
        assert_eq!(tty.ends(), Some(0));
        // It left the terminal raw; kli has not.
        assert!(tty.is_sane(), "{said}");
    }
}

#[test]
fn the_agent_works_on_meanwhile_and_is_seen_afterwards() {
    let env = Env::new();
    let calls = json!({ "calls": [{ "name": "bash", "arguments": { "command": "until [ -e go ]; do sleep 0.05; done; echo was here > done" } }] });
    replay(&env, &format!("{calls}\n{}", answer("All of it is done.")));
    let path = script(&env.home(), "echo EDITOR HAS IT; read -r line; echo later > \"$file\"");
    let env = env.var("EDITOR", &format!("'{}'", path.display()));
    let mut tty = Tty::kli(&env, &[]);
    tty.sees("say what to do");
    tty.press("start\r");
    tty.sees("running bash");
    tty.press("\x07");
    tty.sees("EDITOR HAS IT");
    fs::write(env.work().join("go"), "").unwrap();
    wait_for("the tool's end", || env.work().join("done").exists().then_some(()));
    tty.settles();
    assert!(!tty.screen().contains("All of it is done."), "{}", tty.screen());
    tty.press("\r");
    tty.sees("All of it is done.");
    tty.sees("› later");
    tty.press("\x03\x03");
    assert_eq!(tty.ends(), Some(0));
}

#[test]
fn ctrl_z_stops_both_and_fg_goes_on_with_the_editor() {
    let env = Env::new();
    replay(&env, &answer("x"));
    let path =
        script(&env.home(), "echo EDITOR HAS IT; read -r line; echo \"got $line\" > \"$file\"");
    let env = env.var("VISUAL", &format!("'{}'", path.display()));
    let mut tty = Tty::shell(&env);
    tty.press("kli\r");
    tty.sees("say what to do");
    tty.press("\x07");
    tty.sees("EDITOR HAS IT");
    for _ in 0..2 {
        tty.press("\x1a");
        tty.sees("Stopped");
        tty.settles();
        assert!(tty.is_sane());
        tty.press("echo shell says $((6*7)); clear\r");
        tty.settles();
        tty.press("fg\r");
        tty.settles();
        assert!(tty.is_sane(), "the editor has it, and not kli");
    }
    tty.press("it\r");
    tty.sees("› got it");
    tty.settles();
    assert!(!tty.is_sane(), "control");
    tty.press("\x03\x03");
    tty.sees("<ready>");
    tty.settles();
    assert!(tty.is_sane());
}

#[test]
fn what_ends_kli_ends_the_editor_and_leaves_nothing() {
    let env = Env::new();
    replay(&env, &answer("x"));
    let path = script(
        &env.home(),
        "trap '' TERM; stty raw -echo; echo EDITOR HAS IT; while :; do sleep 0.05; done",
    );
    let env = env.var("VISUAL", &path.display().to_string().replace(' ', "\\ "));
    let mut tty = Tty::kli(&env, &[]);
    tty.sees("say what to do");
    tty.press("\x07");
    tty.sees("EDITOR HAS IT");
    assert_eq!(left(&env), 1, "control");
    // A size and a signal of the keyboard are no reason to end.
    tty.resize(30, 90);
    tty.signal(Signal::INT);
    tty.look(Duration::from_millis(300));
    assert_eq!(left(&env), 1, "control");
    tty.signal(Signal::TERM);
    assert_eq!(tty.ends(), Some(143));
    assert!(tty.is_sane());
    assert_eq!(left(&env), 0);
    assert_eq!(crate::harness::processes_with("my editor"), Vec::<i32>::new());
}

#[test]
fn what_a_killed_kli_left_goes_at_the_next_start_but_not_while_its_editor_is_open() {
    let env = Env::new();
    replay(&env, &answer("x"));
    let path = script(
        &env.home(),
        "trap '' HUP TERM INT; echo EDITOR HAS IT; until [ -e \"$here/go\" ]; do sleep 0.05; done\n\
         cp \"$file\" \"$here/still\"",
    );
    let env = env.var("VISUAL", &format!("'{}'", path.display()));
    // Another kli, whose editor is open all the time.
    let mut other = Tty::kli(&env, &[]);
    other.sees("say what to do");
    other.press("of the other\x07");
    other.sees("EDITOR HAS IT");
    let mut killed = Tty::kli(&env, &[]);
    killed.sees("say what to do");
    killed.press("of the killed\x07");
    killed.sees("EDITOR HAS IT");
    assert_eq!(left(&env), 2, "control");
    killed.signal(Signal::KILL);
    assert_eq!(killed.ends(), None);
    let mut next = Tty::kli(&env, &[]);
    next.sees("say what to do");
    assert_eq!(left(&env), 2, "both have an editor");
    next.press("\x04");
    assert_eq!(next.ends(), Some(0));
    fs::write(env.home().join("go"), "").unwrap();
    other.sees("› of the other");
    wait_for("the editors' end", || {
        crate::harness::processes_with("my editor").is_empty().then_some(())
    });
    assert!(env.home().join("still").exists(), "the file was there to the end");
    assert_eq!(left(&env), 1, "control: what the killed one left");
    let mut next = Tty::kli(&env, &[]);
    next.sees("say what to do");
    assert_eq!(left(&env), 0);
    for tty in [&mut next, &mut other] {
        tty.press("\x03\x03");
        assert_eq!(tty.ends(), Some(0));
    }
}

#[test]
fn the_editor_works_in_the_jail() {
    for_both(|world| {
        fs::copy(env!("CARGO_BIN_EXE_kli"), world.root.join("kli")).unwrap();
        let recording = world.file("home/recording.jsonl", &answer("Heard."));
        world.file(
            "home/.config/kli/settings.json",
            &format!(
                r#"{{"model": "replay/x", "providers": {{"replay": {{"file": "{}"}}}}}}"#,
                recording.display()
            ),
        );
        world.program(
            "workspace-editor",
            "#!/bin/bash\necho EDITOR HAS IT; read -r line; echo \"got $line\" > \"$1\"\n",
        );
        let editor = world.root.join("workspace-editor");
        let mut tty = Tty::shell_in(world);
        tty.press(&format!("export VISUAL='{}'\r", editor.display()));
        tty.press(&format!("j '{}'\r", world.root.join("kli").display()));
        tty.sees("say what to do");
        tty.press("draft\x07");
        tty.sees("EDITOR HAS IT");
        tty.press("\x1a");
        tty.sees("Stopped");
        tty.settles();
        assert!(tty.is_sane());
        tty.press("echo shell says $((6*7))\r");
        tty.sees("shell says 42");
        tty.press("fg\r");
        tty.settles();
        tty.press("it\r");
        tty.sees("› got it");
        tty.press("\r");
        tty.sees("Heard.");
        tty.press("\x04");
        tty.sees("kli --resume");
        tty.settles();
        assert!(tty.is_sane());
    });
}
