//! In tmux, which keeps a screen and modes of its own and reflows its history when its size changes:
//! each row stands there once, and whatever happens, the shell gets its terminal back.

use std::{
    fs,
    path::Path,
    process::Command,
    time::{Duration, Instant},
};

use rustix::{
    fs::{Mode, OFlags},
    process::{Pid, Signal, kill_process},
    termios::tcgetattr,
};
use serde_json::json;

use super::{PATIENCE, replay};
use crate::{
    fake_model::{Answer, FakeModel, message, text},
    harness::Env,
};

/// A server of its own, which ends with the test, with a shell in its only pane.
struct Tmux {
    socket: std::path::PathBuf,
    /// The pane's terminal as the shell has it.
    before: String,
}

impl Tmux {
    /// Starts a shell with job control in a pane of this size; `kli` is on its path.
    fn shell(env: &Env, columns: &str, rows: &str) -> Self {
        let bin = env.home().join("bin");
        fs::create_dir_all(&bin).unwrap();
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_kli"), bin.join("kli")).unwrap();
        let mut it = Self { socket: env.home().join("tmux"), before: String::new() };
        let mut start = Command::new("tmux");
        start.arg("-S").arg(&it.socket).args(["-f", "/dev/null", "new-session", "-d"]);
        start.args(["-x", columns, "-y", rows]);
        start.args(["bash", "--norc", "--noprofile", "--noediting", "-i"]);
        let kli = env.command(&[]);
        start.current_dir(env.work()).env_clear().env("TERM", "xterm-256color");
        for (name, value) in kli.get_envs() {
            start.env(name, value.unwrap());
        }
        start.env("PATH", format!("{}:/usr/bin:/bin", bin.display())).env("PS1", "<ready>");
        let started = start.output();
        let started = started.unwrap_or_else(|error| panic!("tmux is needed: {error}"));
        assert!(started.status.success(), "{}", String::from_utf8_lossy(&started.stderr));
        it.sees("<ready>");
        it.before = it.terminal();
        it
    }

    /// The same, with kli begun in it.
    fn kli(env: &Env, line: &str) -> Self {
        let it = Self::shell(env, "80", "24");
        it.types(line);
        it.sees("say what to do");
        it.is_taken();
        it
    }

    fn run(&self, words: &[&str]) -> String {
        let output = Command::new("tmux").arg("-S").arg(&self.socket).args(words).output().unwrap();
        assert!(
            output.status.success(),
            "tmux {words:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8(output.stdout).unwrap()
    }

    /// Types a line.
    fn types(&self, line: &str) {
        self.run(&["send-keys", "-l", line]);
        self.keys(&["Enter"]);
    }

    /// Presses keys by their names.
    fn keys(&self, names: &[&str]) {
        let words: Vec<&str> = ["send-keys"].iter().chain(names).copied().collect();
        self.run(&words);
    }

    /// The history and the screen.
    fn all(&self) -> String {
        self.run(&["capture-pane", "-p", "-S", "-"])
    }

    fn screen(&self) -> String {
        self.run(&["capture-pane", "-p"])
    }

    #[track_caller]
    fn until(&self, what: &str, is: impl Fn(&str) -> bool) {
        let end = Instant::now() + PATIENCE;
        while !is(&self.screen()) {
            assert!(Instant::now() < end, "`{what}` is not seen:\n{}", self.screen());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// How often a text stands in the history and on the screen.
    fn count(&self, text: &str) -> usize {
        self.all().matches(text).count()
    }

    /// Waits until a text stands there so often.
    #[track_caller]
    fn counts(&self, text: &str, times: usize) {
        self.until(&format!("{times} times {text}"), |_| self.count(text) == times);
    }

    #[track_caller]
    fn sees(&self, text: &str) {
        self.until(text, |screen| screen.contains(text));
    }

    fn told(&self, format: &str) -> String {
        self.run(&["display-message", "-p", format]).trim().to_owned()
    }

    /// What the kernel keeps of the pane's terminal.
    fn terminal(&self) -> String {
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        let terminal = rustix::fs::open(self.told("#{pane_tty}"), flags, Mode::empty()).unwrap();
        let now = tcgetattr(&terminal).unwrap();
        format!(
            "{:?} {:?} {:?} {:?} {:?}",
            now.input_modes,
            now.output_modes,
            now.control_modes,
            now.local_modes,
            now.special_codes
        )
    }

    /// What tmux keeps of it: a cursor, wrapping; no insertion, origin, keypad, other screen or mouse.
    fn modes(&self) -> String {
        self.told(
            "#{cursor_flag} #{wrap_flag} #{insert_flag}#{origin_flag}#{keypad_cursor_flag}\
             #{keypad_flag}#{alternate_on}#{mouse_any_flag}",
        )
    }

    /// Asserts the interface's modes: keys come raw, the cursor is hidden since it is drawn, and
    /// nothing else is taken from the person.
    #[track_caller]
    fn is_taken(&self) {
        let end = Instant::now() + PATIENCE;
        // Wrapping is off only within a frame.
        while self.modes() != "0 1 000000" {
            assert!(Instant::now() < end, "{}", self.modes());
            std::thread::sleep(Duration::from_millis(20));
        }
        assert_ne!(self.terminal(), self.before, "control: keys come raw");
    }

    /// Asserts that the shell has its terminal as it was: the modes, the kernel's settings, and no
    /// brackets around what is pasted.
    #[track_caller]
    fn is_given_back(&self) {
        assert_eq!(self.modes(), "1 1 000000");
        assert_eq!(self.terminal(), self.before);
        let before = self.count("\npasted-42\n");
        self.run(&["set-buffer", "echo pasted-$((6*7))"]);
        self.run(&["paste-buffer", "-p"]);
        self.keys(&["Enter"]);
        self.counts("\npasted-42\n", before + 1);
    }

    /// Does what gives the terminal to the shell, and waits for its prompt.
    #[track_caller]
    fn gives_it_back(&self, how: impl Fn()) {
        let before = self.count("<ready>");
        how();
        self.counts("<ready>", before + 1);
        self.is_given_back();
    }

    /// Does what ends kli, and asserts the exit code and what the shell has.
    #[track_caller]
    fn ended_with(&self, code: u8, how: impl Fn()) {
        let before = self.count("<ready>");
        how();
        self.counts("<ready>", before + 1);
        self.types("echo code $?");
        self.sees(&format!("\ncode {code}\n"));
        self.is_given_back();
    }

    /// Leaves.
    #[track_caller]
    fn leaves(&self) {
        self.ended_with(0, || {
            self.keys(&["C-c"]);
            self.keys(&["C-c"]);
        });
    }
}

impl Drop for Tmux {
    fn drop(&mut self) {
        let _ended = Command::new("tmux").arg("-S").arg(&self.socket).arg("kill-server").output();
    }
}

/// kli with a model of its own.
fn against(fake: &FakeModel) -> Env {
    Env::new().at(&fake.base_url()).var("ANTHROPIC_API_KEY", "sk-test-0123456789")
}

/// A recording whose first answer is a command that ends when a file comes.
fn waiting(env: &Env) -> String {
    let mark = format!(": {}", env.work().display());
    let command = format!("echo begun; until [ -e go ]; do sleep 0.05; done; {mark}");
    let call = json!({ "calls": [{ "name": "bash", "arguments": { "command": command } }] });
    replay(env, &format!("{call}\n{}", json!({ "text": "All is ended." })));
    mark
}

#[test]
fn it_starts_and_leaves_and_the_shell_has_its_terminal() {
    let env = Env::new();
    replay(&env, &json!({ "text": "Heard." }).to_string());
    let tmux = Tmux::kli(&env, "kli");
    let screen = tmux.screen();
    let rows: Vec<&str> = screen.lines().filter(|row| !row.is_empty()).collect();
    // The shell's line, the composer and the footer; the screen was neither cleared nor left.
    assert!(rows[0].starts_with("<ready>kli"), "{screen}");
    assert!(rows[1].starts_with("›") && rows.last().unwrap().contains("replay/x"), "{screen}");
    tmux.types("hello");
    tmux.sees("Heard.");
    tmux.leaves();
    assert!(tmux.screen().contains("kli --resume"), "{}", tmux.screen());
}

#[test]
fn an_answer_streams_in_and_no_row_is_shifted_by_what_terminals_disagree_about() {
    let rows = ["⚠️ warned", "👩‍👩‍👧 family", "漢字 here", "🇩🇪 flag", "e\u{301} accent"];
    let list = rows.iter().map(|row| format!("- {row} | end\n")).collect::<Vec<_>>().concat();
    let first = format!("# The title\n\n{list}\n");
    let ending = "Finally it is said.";
    let stream = message([text(&first), text(ending)]);
    let cut = stream.find("Finally").unwrap();
    let fake = FakeModel::start(vec![
        Answer::new(stream.clone()).hang_after(cut),
        Answer::new(message([text(&first), text(ending)])).every_byte().pause(Duration::ZERO),
    ]);
    let env = against(&fake);
    let tmux = Tmux::kli(&env, "kli");
    tmux.types("go");
    tmux.sees("The title");
    tmux.sees("end");
    assert!(!tmux.screen().contains(ending), "control: it is on its way");
    tmux.is_taken();
    // A key is seen while it streams.
    tmux.run(&["send-keys", "-l", "typed meanwhile"]);
    tmux.sees("› typed meanwhile");
    tmux.keys(&["Escape", "Escape"]);
    tmux.sees("interrupted");
    tmux.keys(&["C-u"]);
    tmux.types("again");
    tmux.sees(ending);
    let all = tmux.all();
    assert_eq!(all.matches(ending).count(), 1, "{all}");
    for row in rows {
        // Interrupted and whole: each once. Joined emoji may be told as their parts.
        let word = row.rsplit(' ').next().unwrap();
        let found: Vec<&str> = all.lines().filter(|line| line.contains(word)).collect();
        assert_eq!(found.len(), 2, "{word}: {all}");
        for line in found {
            assert!(line.starts_with("• ") && line.ends_with(&format!("{word} | end")), "{line:?}");
        }
    }
    tmux.leaves();
}

#[test]
fn six_sizes_repeat_and_lose_no_row() {
    let env = Env::new();
    let text: Vec<String> = (1..=80).map(|n| format!("- row number {n} of them\n")).collect();
    replay(&env, &json!({ "text": text.concat() }).to_string());
    let tmux = Tmux::kli(&env, "kli");
    tmux.types("list");
    tmux.sees("row number 80 of them");
    for (columns, rows) in
        [("100", "24"), ("30", "10"), ("60", "40"), ("23", "24"), ("120", "12"), ("80", "24")]
    {
        tmux.run(&["resize-window", "-x", columns, "-y", rows]);
        std::thread::sleep(Duration::from_millis(200));
        tmux.run(&["send-keys", "x"]);
        std::thread::sleep(Duration::from_millis(100));
    }
    tmux.sees("› xxxxxx");
    tmux.is_taken();
    let all = tmux.all();
    for number in 1..=80 {
        let wanted = format!("row number {number} of them");
        assert_eq!(all.matches(&wanted).count(), 1, "{wanted}:\n{all}");
    }
    // Of the region no rest is left either.
    assert_eq!(all.matches("› x").count(), 1, "{all}");
    assert_eq!(all.matches("replay/x").count(), 1, "{all}");
    tmux.keys(&["C-u"]);
    tmux.leaves();
}

#[test]
fn an_interrupt_ends_the_command_and_the_interface_goes_on() {
    let env = Env::new();
    let mark = waiting(&env);
    let tmux = Tmux::kli(&env, "kli");
    tmux.types("work");
    tmux.sees("running bash");
    tmux.sees("  begun");
    assert!(!crate::harness::processes_with(&mark).is_empty(), "control: it runs");
    tmux.keys(&["Escape"]);
    tmux.keys(&["Escape"]);
    tmux.sees("· interrupted");
    crate::harness::wait_for("the command's end", || {
        crate::harness::processes_with(&mark).is_empty().then_some(())
    });
    tmux.is_taken();
    tmux.types("go on");
    tmux.sees("All is ended.");
    tmux.leaves();
}

#[test]
fn a_question_is_seen_and_answered() {
    let env = Env::new();
    let call = |command: &str| json!({ "calls": [{ "name": "bash", "arguments": { "command": command } }] });
    let turns = [call("touch refused"), call("touch made"), json!({ "text": "All is ended." })];
    replay(&env, &turns.map(|turn| turn.to_string()).join("\n"));
    let settings = env.home().join(".config/kli/settings.json");
    let mut all: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(&settings).unwrap()).unwrap();
    all["profiles"] = json!({ "careful": { "approve": "writes" } });
    env.settings(&all.to_string());
    let tmux = Tmux::kli(&env, "kli --profile careful");
    let asked = |command: &str| {
        tmux.until("a question that can be answered", |screen| {
            screen.contains(command)
                && screen.contains("y yes · n no")
                && !screen.contains("a moment:")
        });
        tmux.is_taken();
    };
    tmux.types("go");
    asked("│ touch refused");
    tmux.keys(&["n"]);
    tmux.sees("say why");
    tmux.types("not that");
    asked("│ touch made");
    tmux.keys(&["y"]);
    tmux.sees("All is ended.");
    assert!(!env.work().join("refused").exists() && env.work().join("made").exists());
    tmux.leaves();
}

#[test]
fn a_paste_is_one_text_and_sends_nothing_by_itself() {
    let fake = FakeModel::start(vec![Answer::new(message([text("Read.")]))]);
    let env = against(&fake);
    let tmux = Tmux::kli(&env, "kli");
    let body = (1..=50).map(|n| format!("row {n} 漢字\n")).collect::<Vec<_>>().concat();
    let file = env.home().join("pasted.txt");
    fs::write(&file, &body).unwrap();
    tmux.run(&["send-keys", "-l", "see "]);
    tmux.sees("› see");
    tmux.run(&["load-buffer", file.to_str().unwrap()]);
    // With brackets, as the interface asked for them.
    tmux.run(&["paste-buffer", "-p"]);
    tmux.sees("[pasted 1: 50 lines]");
    tmux.is_taken();
    assert_eq!(fake.requests().len(), 0, "its line ends send nothing");
    tmux.keys(&["Enter"]);
    tmux.sees("Read.");
    let sent = fake.requests()[0].json()["messages"][0].to_string();
    let body = serde_json::Value::from(format!("see {}", body.trim_end())).to_string();
    assert!(sent.contains(body.trim_matches('"')), "{sent}");
    tmux.leaves();
}

#[test]
fn a_suspension_gives_the_shell_its_terminal_and_fg_goes_on() {
    let env = Env::new();
    waiting(&env);
    let tmux = Tmux::kli(&env, "kli");
    tmux.types("work");
    tmux.sees("running bash");
    for round in 1..=2 {
        tmux.gives_it_back(|| tmux.keys(&["C-z"]));
        assert_eq!(tmux.count("Stopped"), round);
        tmux.types("fg");
        tmux.sees("running bash");
        tmux.is_taken();
    }
    tmux.run(&["send-keys", "-l", "typed after"]);
    tmux.sees("› typed after");
    tmux.keys(&["C-u"]);
    fs::write(env.work().join("go"), "").unwrap();
    tmux.sees("All is ended.");
    tmux.leaves();
}

/// The process that runs in the pane's shell.
fn running(tmux: &Tmux) -> Pid {
    let shell: i32 = tmux.told("#{pane_pid}").parse().unwrap();
    let child = *crate::jail::children(shell).first().unwrap();
    assert!(Path::new(&format!("/proc/{child}")).exists());
    Pid::from_raw(child).unwrap()
}

#[test]
fn signals_and_the_end_of_the_pane_end_it() {
    for signal in [Signal::TERM, Signal::HUP] {
        let env = Env::new();
        let mark = waiting(&env);
        let tmux = Tmux::kli(&env, "kli");
        tmux.types("work");
        tmux.sees("running bash");
        tmux.ended_with(143, || kill_process(running(&tmux), signal).unwrap());
        assert!(tmux.screen().contains("kli --resume"), "{}", tmux.screen());
        assert_eq!(crate::harness::processes_with(&mark), [0; 0]);
    }
    // A pane that is closed takes the terminal away, and nothing of the run is left.
    let env = Env::new();
    let mark = waiting(&env);
    let tmux = Tmux::kli(&env, "kli");
    tmux.types("work");
    tmux.sees("running bash");
    let kli = running(&tmux);
    drop(tmux);
    crate::harness::wait_for("its end", || {
        let gone = rustix::process::test_kill_process(kli).is_err();
        (gone && crate::harness::processes_with(&mark).is_empty()).then_some(())
    });
}

#[cfg(debug_assertions)]
#[test]
fn a_fault_of_its_own_puts_the_terminal_back_and_can_be_read() {
    let env = Env::new().var("KLI_TEST_FAULT", "loop");
    replay(&env, &json!({ "text": "said before" }).to_string());
    let tmux = Tmux::kli(&env, "kli");
    tmux.types("hello");
    tmux.sees("said before");
    tmux.ended_with(70, || tmux.types("/doctor"));
    tmux.sees("\na fault that a test asked for");
    let screen = tmux.screen();
    assert!(screen.contains("said before") && !screen.contains("say what to do"), "{screen}");
}
