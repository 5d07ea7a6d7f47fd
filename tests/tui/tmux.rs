//! In tmux, which reflows its history when its size changes: each row stands there once.

use std::{process::Command, time::Duration};

use serde_json::json;

use super::replay;
use crate::harness::{Env, wait_for};

/// A server of its own, which ends with the test.
struct Tmux {
    socket: std::path::PathBuf,
}

impl Tmux {
    fn run(&self, words: &[&str]) -> String {
        let output = Command::new("tmux").arg("-S").arg(&self.socket).args(words).output().unwrap();
        assert!(
            output.status.success(),
            "tmux {words:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8(output.stdout).unwrap()
    }

    /// The history and the screen.
    fn all(&self) -> String {
        self.run(&["capture-pane", "-p", "-S", "-"])
    }
}

impl Drop for Tmux {
    fn drop(&mut self) {
        let _ended = Command::new("tmux").arg("-S").arg(&self.socket).arg("kill-server").output();
    }
}

#[test]
fn six_sizes_repeat_and_lose_no_row() {
    let env = Env::new();
    let text: Vec<String> = (1..=80).map(|n| format!("- row number {n} of them\n")).collect();
    replay(&env, &json!({ "text": text.concat() }).to_string());
    let tmux = Tmux { socket: env.home().join("tmux") };
    let mut start = Command::new("tmux");
    start.arg("-S").arg(&tmux.socket).args(["-f", "/dev/null", "new-session", "-d"]);
    start.args(["-x", "80", "-y", "24", env!("CARGO_BIN_EXE_kli")]);
    let kli = env.command(&[]);
    start.current_dir(env.work()).env_clear().env("TERM", "xterm-256color");
    for (name, value) in kli.get_envs() {
        start.env(name, value.unwrap());
    }
    let started = start.output();
    let started = started.unwrap_or_else(|error| panic!("tmux is needed: {error}"));
    assert!(started.status.success(), "{}", String::from_utf8_lossy(&started.stderr));
    wait_for("the interface", || tmux.all().contains("say what to do").then_some(()));
    tmux.run(&["send-keys", "list", "Enter"]);
    wait_for("the answer", || tmux.all().contains("row number 80 of them").then_some(()));
    for (columns, rows) in
        [("100", "24"), ("30", "10"), ("60", "40"), ("23", "24"), ("120", "12"), ("80", "24")]
    {
        tmux.run(&["resize-window", "-x", columns, "-y", rows]);
        std::thread::sleep(Duration::from_millis(200));
        tmux.run(&["send-keys", "x"]);
        std::thread::sleep(Duration::from_millis(100));
    }
    wait_for("the last key", || tmux.all().contains("› xxxxxx").then_some(()));
    let all = tmux.all();
    for number in 1..=80 {
        let wanted = format!("row number {number} of them");
        assert_eq!(all.matches(&wanted).count(), 1, "{wanted}:\n{all}");
    }
    // Of the region no rest is left either.
    assert_eq!(all.matches("› x").count(), 1, "{all}");
    assert_eq!(all.matches("replay/x").count(), 1, "{all}");
}
