//! The command line: bad input is answered with a sentence that names the value and the repair, on
//! standard error, with the documented exit code; JSON is printed whatever happens.

use std::{fs, io::Read as _, process::Stdio};

use crate::{
    fake_model::{Answer, FakeModel, message, text},
    harness::Env,
};

fn model(words: &str) -> FakeModel {
    FakeModel::strict(vec![Answer::new(message([text(words)]))])
}

#[test]
fn bad_input_is_answered_with_the_value_and_the_repair() {
    let env = Env::new().var("ANTHROPIC_API_KEY", "not-used");
    for (words, parts) in [
        (&["-p", "hi", "--read-onyl"][..], &["--read-onyl", "--read-only"][..]),
        (&["-p", "hi", "--output-format", "xml"], &["xml", "text, json"]),
        (
            &["-p", "hi", "--capabilities", "file/raed"],
            &["`file/raed`", "did you mean `file/read`?"],
        ),
        (&["-p", "hi", "--profile", "reviw"], &["`reviw`", "review"]),
        (&["-p", "hi", "--max-turns", "0"], &["--max-turns", "`0`"]),
        (&["-p", "hi", "--max-turns", "-1"], &["--max-turns", "`-1`"]),
        (&["-p", "hi", "--timeout", "90"], &["`90` has no unit", "`90s`"]),
        (&["-p", "hi", "--model", "gpt"], &["`gpt`", "PROVIDER/MODEL"]),
        (&["-p", "hi", "--model", "nobody/x"], &["unknown provider `nobody`", "anthropic"]),
        (&["-p", "  "], &["the prompt is empty"]),
        (&["-p", "/nope now"], &["`/nope` is a command of the terminal interface"]),
        (&["-p", "hi", "--profile", "autonomous"], &["needs a budget", "--max-turns"]),
        (&["-p", "hi", "--continue"], &["no session of", "leave `--continue` out"]),
        (&["-p", "hi", "--resume", "abc"], &["no session `abc`"]),
        (&["-p", "hi", "--continue", "--no-session"], &["cannot be used with"]),
        (&["-p", "hi", "--system-prompt-file", "none.md"], &["none.md"]),
        (&["--json"], &["--print-authority"]),
        (&["config", "chekc"], &["chekc", "check"]),
    ] {
        let ran = env.kli(words);
        ran.exits(2);
        assert_eq!(ran.out, "", "{words:?}");
        for part in parts {
            ran.says(part);
        }
    }
    assert!(env.sessions().is_empty(), "nothing was begun");
}

#[test]
fn json_is_one_object_whatever_happens() {
    let env = Env::new();
    for (words, code, kind) in [
        (&["-p", "hi", "--output-format", "json", "--bogus"][..], 2, "config"),
        (&["-p", "hi", "--output-format=json", "--profile", "x"], 2, "config"),
        (&["-p", "hi", "--output-format", "json"], 4, "auth"),
        (&["-p", "", "--output-format", "json"], 2, "config"),
    ] {
        let ran = env.kli(words);
        ran.exits(code);
        let result = ran.json();
        assert_eq!(result["type"], "result");
        assert_eq!(result["schema"], 1);
        assert_eq!(result["outcome"], "error");
        assert_eq!(result["error"]["kind"], kind, "{words:?}");
        assert!(!ran.err.is_empty(), "people are told as well");
        let keys: Vec<&String> = result.as_object().unwrap().keys().collect();
        let mut wanted = vec![
            "type",
            "schema",
            "outcome",
            "text",
            "session",
            "model",
            "turns",
            "usage",
            "denied",
            "changedFiles",
            "durationMs",
            "error",
        ];
        wanted.sort_unstable();
        assert_eq!(keys, wanted);
    }
}

#[test]
fn a_missing_key_names_the_variable() {
    let env = Env::new();
    env.kli(&["-p", "hi"]).exits(4).says("ANTHROPIC_API_KEY");
}

#[test]
fn the_preview_has_the_documented_words() {
    let env = Env::new();
    let text = |words: &[&str]| {
        let ran = env.kli(&[&["--print-authority"], words].concat());
        ran.exits(0).says("confinement: ");
        ran.out
    };
    assert_eq!(text(&[]), "authority: universal (every capability, unconstrained)\n");
    assert_eq!(
        text(&["--no-eval"]),
        "authority: universal except (every capability but those listed)\n  image/eval\n"
    );
    assert_eq!(
        text(&["--no-bash"]),
        "authority: universal except (every capability but those listed)\n  image/eval\n  process/exec\n"
    );
    assert_eq!(text(&["--capabilities", ""]), "authority: none (no capability is granted)\n");
    assert_eq!(text(&["--capabilities", "file/read"]), "authority:\n  file/read\n  result/read\n");
    env.settings("{\"capabilities\": [\"file/read\", {\"atom\": \"file/write\", \"under\": [\"/srv/data\"]}]}");
    assert_eq!(
        text(&[]),
        "authority:\n  file/read\n  file/write  [path under /srv/data]\n  result/read\n"
    );
}

#[test]
fn the_preview_as_json_has_the_documented_keys_in_order() {
    let env = Env::new();
    let ran = env.kli(&["--print-authority", "--read-only", "--json"]);
    ran.exits(0);
    let head = "{\"type\":\"authority\",\"scope\":\"universal-except\",\"excluded\":[\"extension/spawn-process\",\"file/edit\",\"file/write\",\"image/eval\",\"mcp/*\",\"process/exec\"],\"sources\":[\"flag --read-only\"],\"notes\":[],\"confinement\":\"";
    assert!(ran.out.starts_with(head), "{}", ran.out);
    let ran = env.kli(&["--print-authority", "--capabilities", "process/exec", "--json"]);
    let head = "{\"type\":\"authority\",\"scope\":\"bounded\",\"capabilities\":[{\"atom\":\"process/exec\",\"constraint\":\"any\"},{\"atom\":\"result/read\",\"constraint\":\"any\"}],\"sources\":[\"flag --capabilities\"],\"notes\":[\"";
    assert!(ran.out.starts_with(head), "{}", ran.out);
}

#[test]
fn broken_settings_are_named_with_file_line_column_and_key() {
    let env = Env::new();
    env.settings("{\n  // a comment\n  \"capabilities\": [\"file/read\", 3],\n}");
    for words in [&["--print-authority"][..], &["-p", "hi"], &["config", "check"]] {
        env.kli(words).exits(2).says("settings.json").says("3").says("capabilities");
    }
    env.settings("{ \"capabilites\": [] }");
    let ran = env.kli(&["--print-authority"]);
    ran.exits(0).says("capabilites").says("capabilities");
    assert!(ran.out.contains("universal"), "an unknown key sets nothing");
    env.settings("{ \"capabilities\": false }");
    env.kli(&["--print-authority"]).exits(2).says("`false`");
}

#[test]
fn config_check_judges_one_file() {
    let env = Env::new();
    let good = env.work().join("good.json");
    fs::write(&good, "{ \"model\": \"replay/demo\" }").unwrap();
    assert_eq!(env.kli(&["config", "check", "good.json"]).exits(0).out, "settings: ok\n");
    fs::write(env.work().join("bad.json"), "{ \"model\": 3 }").unwrap();
    env.kli(&["config", "check", "bad.json"]).exits(2).says("bad.json").says("model");
    env.kli(&["config", "check", "gone.json"]).exits(2).says("gone.json");
}

#[test]
fn a_project_file_is_not_read() {
    let env = Env::new();
    fs::create_dir(env.work().join(".kli")).unwrap();
    fs::write(env.work().join(".kli/settings.json"), "not json at all").unwrap();
    let ran = env.kli(&["--print-authority"]);
    ran.exits(0);
    assert!(ran.out.contains("universal"));
}

#[test]
fn standard_input_is_read_only_when_it_is_asked_for() {
    // A prompt is given: an open pipe that never ends is not waited for.
    let server = model("done");
    let env = Env::new().at(&server.base_url());
    let mut child = env.command(&["-p", "hi"]).stdin(Stdio::piped()).spawn().unwrap();
    let held = child.stdin.take().unwrap();
    let mut out = String::new();
    child.stdout.take().unwrap().read_to_string(&mut out).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert_eq!(out, "done\n");
    drop(held);

    for words in [&["-p"][..], &["-p", "-"], &["-"], &[]] {
        let server = model("done");
        let env = Env::new().at(&server.base_url());
        env.kli_with_input(words, b"from the pipe").exits(0);
        assert_eq!(server.bodies()[0]["messages"][0]["content"][0]["text"], "from the pipe");
    }
    let env = Env::new();
    env.kli_with_input(&["-p"], &vec![b'x'; 11 << 20]).exits(2).says("longer than 10 MiB");
    env.kli_with_input(&["-p"], b"\xff\xfe").exits(2).says("not UTF-8");
}

#[test]
fn a_closed_pipe_ends_quietly() {
    let server = model("done");
    let env = Env::new().at(&server.base_url());
    let mut child = env.command(&["-p", "hi"]).spawn().unwrap();
    drop(child.stdout.take());
    let mut err = String::new();
    child.stderr.take().unwrap().read_to_string(&mut err).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert_eq!(err, "");
}

#[test]
fn version_and_help_need_nothing() {
    let env = Env::new();
    for words in [&["version"][..], &["--version"]] {
        let ran = env.kli(words);
        ran.exits(0);
        assert_eq!(ran.out, format!("kli {}\n", env!("CARGO_PKG_VERSION")));
    }
    let ran = env.kli(&["--help"]);
    ran.exits(0);
    assert!(ran.out.contains("--print-authority"));
}
