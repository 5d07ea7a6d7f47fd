//! The agent itself inside: what ends it from outside lets it save its session first (law 8).

use std::fs;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::json;

use crate::fake_model::{Answer, FakeModel, message, tool_use};
use crate::jail::{World, for_both, kill, processes, wait_for};
use crate::screen::Screen;

const PATIENCE: Duration = Duration::from_secs(30);

/// A model that asks for a command that takes long, and the mark of its processes.
fn model() -> (FakeModel, String) {
    let mark = format!("3600.8{}", std::process::id());
    let command = json!({ "command": format!("sleep {mark} & sleep {mark}") });
    let answer = message([tool_use("c", "bash", &command.to_string())]);
    (FakeModel::strict(vec![Answer::new(answer.clone()), Answer::new(answer)]), mark)
}

/// Whether all sessions of the world say how they ended.
fn interrupted(world: &World) -> usize {
    let mut found = 0;
    let root = world.home.join(".local/state/kli/sessions");
    for directory in fs::read_dir(root).unwrap() {
        for file in fs::read_dir(directory.unwrap().path()).unwrap() {
            let path = file.unwrap().path();
            if path.extension().is_some_and(|it| it == "jsonl") {
                let text = fs::read_to_string(path).unwrap();
                assert!(text.ends_with('\n') && text.contains("interrupted"), "{text}");
                found += 1;
            }
        }
    }
    found
}

#[test]
fn ctrl_c_lets_the_agent_save_and_leaves_nothing() {
    for_both(|world| {
        let (model, mark) = model();
        fs::copy(env!("CARGO_BIN_EXE_kli"), world.root.join("kli")).unwrap();
        let mut screen = Screen::shell(world);
        screen.runs(&format!("export ANTHROPIC_BASE_URL={} ANTHROPIC_API_KEY=x", model.base_url()));
        screen.types(&format!("j '{}' -p hi", world.root.join("kli").display()));
        let sleeps = format!("sleep\0{mark}");
        assert!(wait_for(PATIENCE, || processes(&sleeps).len() == 2));
        screen.press("\x03");
        screen.prompt();
        assert_eq!(screen.code(), 130);
        assert_eq!(processes(&mark), [0; 0]);
        assert_eq!(interrupted(world), 1);
        // And the terminal is the shell's.
        screen.types("read x; echo \"got=$x\"");
        screen.types("words");
        screen.sees("got=words");
    });
}

#[test]
fn term_to_the_launcher_lets_the_agent_save_and_leaves_nothing() {
    for_both(|world| {
        let (model, mark) = model();
        let kli = world.root.join("kli");
        fs::copy(env!("CARGO_BIN_EXE_kli"), &kli).unwrap();
        let mut command = world.command(world.launcher());
        command.arg("run").arg("--spec").arg(world.spec_file()).arg("--").arg(kli);
        command.args(["-p", "hi"]).env("ANTHROPIC_API_KEY", "x");
        command.env("ANTHROPIC_BASE_URL", model.base_url());
        let mut child = command.spawn().unwrap();
        let sleeps = format!("sleep\0{mark}");
        assert!(wait_for(PATIENCE, || processes(&sleeps).len() == 2));
        kill(i32::try_from(child.id()).unwrap(), Signal::TERM);
        // The agent ends with a code of its own, by no signal.
        assert_eq!(child.wait().unwrap().code(), Some(143));
        assert_eq!(processes(&mark), [0; 0]);
        assert_eq!(interrupted(world), 1);
    });
}
