//! What a configured package brings along: the directory that `KLI_BAKED` names, and the state
//! directory of its `dataDir`. Settings and policies of such a directory have tests of their own.

use std::fs;

use crate::{
    fake_model::{Answer, FakeModel, message, text},
    harness::Env,
};

const LABEL: &str = "Instructions of the person who configured kli:";

/// A user whose kli has a baked configuration with these instructions.
fn told(instructions: &[u8]) -> Env {
    let env = Env::new();
    let baked = env.home().join("store");
    fs::create_dir(&baked).unwrap();
    fs::write(baked.join("settings.json"), "{}").unwrap();
    fs::write(baked.join("AGENTS.md"), instructions).unwrap();
    let baked = baked.display().to_string();
    env.var("KLI_BAKED", &baked)
}

/// Returns the system prompt that a run sends.
fn prompt(env: Env, words: &[&str]) -> String {
    let server = FakeModel::strict(vec![Answer::new(message([text("done")]))]);
    let env = env.at(&server.base_url());
    env.kli(&[&["-p", "hi"], words].concat()).exits(0);
    server.bodies()[0]["system"].to_string()
}

#[test]
fn baked_instructions_are_told_whatever_the_system_prompt() {
    let env = told(b"  Answer in Breton.\n\n");
    fs::write(env.work().join("own.md"), "Only this.").unwrap();
    fs::write(env.work().join("more.md"), "And this.").unwrap();
    let words = ["--system-prompt-file", "own.md", "--append-system-prompt-file", "more.md"];
    let sent = prompt(env, &words);
    let wanted = format!("Only this.\\n\\n{LABEL}\\n\\nAnswer in Breton.\\n\\nAnd this.");
    assert!(sent.contains(&wanted), "{sent}");
    assert!(prompt(told(b"Be brief."), &[]).contains(&format!("{LABEL}\\n\\nBe brief.")));
    for nothing in [&b""[..], b" \n\t\n"] {
        let sent = prompt(told(nothing), &[]);
        assert!(sent.contains("You are kli") && !sent.contains(LABEL), "{sent}");
    }
}

#[test]
fn instructions_that_cannot_be_read_stop_the_run() {
    for (bytes, part) in [
        (&b"caf\xe9"[..], "AGENTS.md` is not UTF-8"),
        (&vec![b'a'; 64 * 1024 + 1], "AGENTS.md` is longer than 65536 bytes"),
    ] {
        let env = told(bytes);
        for words in [&["-p", "hi"][..], &["config", "check"], &["--print-authority"]] {
            env.kli(words).exits(2).says(part);
        }
    }
    let ran = told(&vec![b'a'; 64 * 1024]).kli(&["config", "check"]);
    ran.exits(0).says("baked instructions: ").says("AGENTS.md (read)");
}

#[test]
fn a_state_directory_takes_the_sessions_and_nothing_else() {
    let run = |env: Env| {
        let server = FakeModel::strict(vec![Answer::new(message([text("done")]))]);
        let env = env.at(&server.base_url());
        env.kli(&["-p", "hi"]).exits(0);
        env
    };
    let named = |written: &str| run(Env::new().var("KLI_STATE_DIR", written));

    let env = named("~/data/kli");
    assert_eq!(env.sessions().len(), 0, "nothing at the usual place");
    let listed = env.kli(&["sessions", "path"]).out;
    let sessions = env.home().join("data/kli/sessions");
    assert!(listed.starts_with(&*sessions.to_string_lossy()), "{listed}");
    assert_eq!(fs::read_dir(listed.trim_end()).unwrap().count(), 1, "{listed}");
    env.kli(&["sessions", "list"]).exits(0).says("");
    assert!(env.kli(&["config", "path"]).out.ends_with("home/.config/kli/settings.json\n"));

    for nothing in ["", "data", "./data"] {
        let env = named(nothing);
        assert_eq!(env.sessions().len(), 1, "{nothing}: counts as unset");
        assert_eq!(fs::read_dir(env.work()).unwrap().count(), 0, "{nothing}");
    }
}
