//! The interface inside `kli-sandbox`: the same keys, sizes, colours and suspensions.

use std::fs;

use serde_json::json;

use super::Tty;
use crate::jail::{for_both, out};

#[test]
fn the_interface_works_in_the_jail() {
    for_both(|world| {
        fs::copy(env!("CARGO_BIN_EXE_kli"), world.root.join("kli")).unwrap();
        let calls = json!({ "text": "begun", "calls": [
            { "name": "bash", "arguments": { "command": "printf '\\033[31mred\\033[0m\\n'; until [ -e go ]; do sleep 0.05; done" } },
        ]});
        let recording = world
            .file("home/recording.jsonl", &format!("{calls}\n{}\n", json!({ "text": "ended" })));
        world.file(
            "home/.config/kli/settings.json",
            &format!(
                r#"{{"model": "replay/x", "providers": {{"replay": {{"file": "{}"}}}}}}"#,
                recording.display()
            ),
        );
        world.spec(r#"{"denyRead":["~/.aws"]}"#);
        let told = world.command(world.launcher()).arg("explain").arg(world.spec_file()).output();
        let kept = out(&told.unwrap()).matches("  absent           ").count();
        assert!(kept > 0, "control");
        let mut tty = Tty::shell_in(world);
        tty.press(&format!("j '{}'\r", world.root.join("kli").display()));
        tty.sees("say what to do");
        // What is absent is kept so, and counts.
        tty.sees(&format!("jail: net on · {kept} hidden · "));
        tty.press("go\r");
        tty.sees("running bash");
        tty.resize(30, 60);
        tty.press("after the resize");
        tty.sees("› after the resize");
        tty.press("\x1a");
        tty.sees("Stopped");
        tty.settles();
        assert_eq!(tty.left(), [""; 0]);
        tty.press("echo shell says $((6*7))\r");
        tty.sees("shell says 42");
        tty.settles();
        tty.press("fg\r");
        tty.until("the interface again", |screen| screen.matches("running bash").count() >= 1);
        tty.settles();
        assert!(tty.is_taken(), "control");
        // A paste, and the work goes on.
        tty.send(b"\x1b[200~ and\r\npasted\x1b[201~");
        tty.sees("pasted");
        fs::write(world.workspace.join("go"), "").unwrap();
        tty.sees("ended");
        assert!(tty.bytes.windows(8).any(|part| part == b"\x1b[31mred"));
        tty.press("\x03\x03");
        tty.sees("kli --resume");
        tty.settles();
        assert_eq!(tty.left(), [""; 0]);
        tty.press("echo code $?\r");
        tty.sees("code 0");
    });
}
