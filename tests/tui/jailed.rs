//! The interface inside `kli-sandbox` and outside of it, as an ordinary user and as root: the same
//! keys, sizes, colours, suspensions and pastes.

use std::fs;

use serde_json::json;

use super::Tty;
use crate::jail::{World, for_both, out};

/// Starts a shell of the world's user, and in it kli with this before it.
fn begin(world: &World, before: &str) -> Tty {
    fs::copy(env!("CARGO_BIN_EXE_kli"), world.root.join("kli")).unwrap();
    let command = "printf '\\033[31mred\\033[0m\\n'; until [ -e go ]; do sleep 0.05; done";
    let calls = json!({ "text": "begun", "calls": [
        { "name": "bash", "arguments": { "command": command } },
    ]});
    let recording =
        world.file("home/recording.jsonl", &format!("{calls}\n{}\n", json!({ "text": "ended" })));
    world.file(
        "home/.config/kli/settings.json",
        &format!(
            r#"{{"model": "replay/x", "providers": {{"replay": {{"file": "{}"}}}}}}"#,
            recording.display()
        ),
    );
    let mut tty = Tty::shell_in(world);
    tty.press(&format!("{before}'{}'\r", world.root.join("kli").display()));
    tty.sees("say what to do");
    tty
}

/// Whether something was written in this colour.
fn wrote(tty: &Tty, colour: &str, text: &str) -> bool {
    let wanted = format!("\x1b[{colour}m{text}");
    tty.bytes.windows(wanted.len()).any(|part| part == wanted.as_bytes())
}

/// Sizes, colours, suspensions and pastes, while a command runs.
fn works(world: &World, mut tty: Tty) {
    tty.press("go\r");
    tty.sees("running bash");
    assert!(tty.is_taken(), "{:?}: control", world.who);
    // A row takes as much as the terminal is wide, but for the mark and the cursor's cell.
    tty.press(&"x".repeat(90));
    for (rows, columns) in [(30, 60), (20, 100), (24, 80)] {
        tty.resize(rows, columns);
        let wide = "x".repeat(usize::from(columns - 3).min(90));
        tty.until(&format!("{} in a row", wide.len()), |screen| {
            screen.lines().any(|row| row.trim_end() == format!("› {wide}"))
        });
    }
    tty.press("\x15");
    for round in 0..2 {
        let shells = tty.screen().matches("Stopped").count();
        tty.press("\x1a");
        tty.until("the shell", |screen| screen.matches("Stopped").count() > shells);
        tty.settles();
        assert_eq!(tty.left(), [""; 0], "{:?}, round {round}", world.who);
        tty.press(&format!("echo shell says $((40+{round}))\r"));
        tty.sees(&format!("shell says 4{round}"));
        tty.settles();
        tty.press("fg\r");
        tty.until("the interface again", |screen| {
            screen.lines().rev().take(5).any(|row| row.contains("running bash"))
        });
        tty.settles();
        assert!(tty.is_taken(), "{:?}: control", world.who);
    }
    // A paste is one text whose line ends send nothing; a long one is folded.
    tty.send(b"\x1b[200~and\r\npasted\x1b[201~");
    tty.until("two rows", |screen| {
        let rows: Vec<&str> = screen.lines().map(str::trim_end).collect();
        rows.windows(2).any(|two| two == ["› and", "  pasted"])
    });
    tty.press("\x15\x7f\x15");
    tty.send(format!("\x1b[200~{}\x1b[201~", "row 漢字\r\n".repeat(2000)).as_bytes());
    tty.sees("[pasted 1: 2000 lines]");
    tty.press("\x15");
    fs::write(world.workspace.join("go"), "").unwrap();
    tty.sees("ended");
    assert!(wrote(&tty, "31", "red"), "the tool's colour");
    assert!(wrote(&tty, "1;36", "› "), "kli's own");
    tty.press("\x03\x03");
    tty.sees("kli --resume");
    tty.settles();
    assert_eq!(tty.left(), [""; 0], "{:?}", world.who);
    tty.press("echo code $?\r");
    tty.sees("code 0");
}

#[test]
fn the_interface_works_in_the_jail() {
    for_both(|world| {
        world.spec(r#"{"denyRead":["~/.aws"]}"#);
        let told = world.command(world.launcher()).arg("explain").arg(world.spec_file()).output();
        let kept = out(&told.unwrap()).matches("  absent           ").count();
        assert!(kept > 0, "control");
        let mut tty = begin(world, "j ");
        // What is absent is kept so, and counts.
        tty.sees(&format!("jail: net on · {kept} hidden · "));
        assert!(wrote(&tty, "32", "jail: net o"), "{:?}", world.who);
        works(world, tty);
    });
}

#[test]
fn the_interface_works_outside_for_whoever_starts_it() {
    for_both(|world| {
        let tty = begin(world, "");
        let screen = tty.screen();
        let footer = screen.lines().rfind(|row| !row.trim().is_empty()).unwrap().to_owned();
        assert!(!footer.starts_with("jail:"), "{footer}");
        // Words, and a colour that warns.
        let (words, colour) = match footer.split(" · ").next().unwrap() {
            "no jail" => ("no jail", "1;31"),
            words => (words, "33"),
        };
        assert!(
            words == "no jail" || words.starts_with("outer: ") || words == "confinement unknown"
        );
        assert!(wrote(&tty, colour, words), "{:?}: {footer}", world.who);
        works(world, tty);
    });
}
