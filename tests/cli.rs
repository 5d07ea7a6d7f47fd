//! The command line: bad input is answered with a sentence that names the value and the repair, on
//! standard error, with the documented exit code; JSON is printed whatever happens.

use std::{
    fs::{self, File},
    io::{Read as _, Write as _},
    os::{
        fd::{FromRawFd as _, OwnedFd},
        unix::{fs::symlink, process::CommandExt as _},
    },
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use rustix::process::Signal;

use crate::{
    fake_model::{Answer, FakeModel, message, text, tool_use},
    harness::{Env, Ran, processes_with, wait_for},
    jail::kill,
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
        (&["config", "chekc"], &["`chekc`", "did you mean `check`?"]),
        (&["sesions", "list"], &["unknown command `sesions`", "did you mean `kli sessions`?"]),
        (&["models", "list"], &["unexpected argument `list`", "kli models"]),
        (&["mcp", "list"], &["`kli mcp` is not part of this version"]),
        (&["-p", "mend", "it"], &["unexpected word `it`", "quotes"]),
        (&["verison"], &["unknown command `verison`", "did you mean `kli version`?"]),
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

    let server = model("done");
    let gateway = |key: &str| {
        format!(
            "{{\"providers\": {{\"gw\": {{\"kind\": \"anthropic\", \"baseUrl\": \"{}\"{key}}}}}}}",
            server.base_url()
        )
    };
    env.settings(&gateway(", \"keyEnv\": \"GW_KEY\""));
    env.kli(&["-p", "hi", "--model", "gw/m"]).exits(4).says("`GW_KEY`").says("take `keyEnv` out");
    assert!(server.requests().is_empty(), "nothing was sent");
    // Control: a server on this machine that is said to need none is asked.
    env.settings(&gateway(""));
    env.kli(&["-p", "hi", "--model", "gw/m"]).exits(0);
}

#[test]
fn a_usage_error_in_json_is_whole() {
    let ran = Env::new().kli(&["--json", "--output-format", "json"]);
    ran.exits(2);
    let message = ran.json()["error"]["message"].as_str().unwrap().to_owned();
    assert_eq!(message, "`--json` goes with `--print-authority`");
    assert_eq!(ran.err.matches(message.as_str()).count(), 1, "it is said once: {}", ran.err);
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
    // A misspelt key that narrows is never left out.
    env.settings("{ \"capabilites\": [] }");
    let ran = env.kli(&["--print-authority"]);
    ran.exits(2).says("`capabilites`").says("did you mean `capabilities`?");
    assert_eq!(ran.out, "");
    env.settings("{ \"modle\": \"replay/demo\" }");
    let ran = env.kli(&["--print-authority"]);
    ran.exits(0).says("`modle`").says("did you mean `model`?");
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
    for words in [&["--help"][..], &["help"]] {
        let ran = env.kli(words);
        ran.exits(0);
        assert!(ran.out.contains("--print-authority"));
    }
    let ran = env.kli(&["--help"]);
    ran.exits(0);
    assert!(ran.out.contains("--print-authority"));
}

#[test]
fn a_result_that_cannot_be_written_is_no_success() {
    for words in [&["-p", "hi"][..], &["-p", "hi", "--output-format", "json"], &["version"]] {
        let server = model("done");
        let env = Env::new().at(&server.base_url());
        let full = File::options().write(true).open("/dev/full").unwrap();
        let output = env.command(words).stdout(full).output().unwrap();
        Ran::from(output).exits(1).says("cannot be written to standard output: No space left");
        env.kli(&["version"]).exits(0);
    }
}

/// Runs a command with its standard output on a terminal and returns what the terminal got.
fn on_a_terminal(mut command: Command) -> String {
    let (mut master, mut slave) = (-1, -1);
    let (name, modes, size) = (std::ptr::null_mut(), std::ptr::null(), std::ptr::null());
    #[expect(unsafe_code, reason = "the standard library makes no terminals")]
    // SAFETY: both numbers are written by the call and owned by nobody else.
    let (mut master, slave) = unsafe {
        assert_eq!(libc::openpty(&raw mut master, &raw mut slave, name, modes, size), 0);
        (File::from_raw_fd(master), OwnedFd::from_raw_fd(slave))
    };
    let mut child = command.stdout(slave).spawn().unwrap();
    // The command holds the other end as well.
    drop(command);
    let mut shown = Vec::new();
    // A terminal whose other end is closed reads as EIO.
    let _closed = master.read_to_end(&mut shown);
    assert!(child.wait().unwrap().success());
    String::from_utf8(shown).unwrap()
}

#[test]
fn a_model_cannot_drive_the_terminal() {
    let words = "red \u{1b}[31m and \u{9b}2J \u{7} end";
    for format in ["text", "json"] {
        let server = model(words);
        let env = Env::new().at(&server.base_url());
        let line = ["-p", "hi", "--output-format", format];
        let shown = on_a_terminal(env.command(&line));
        assert!(shown.contains("red") && shown.contains("end"), "{shown:?}");
        assert!(!shown.contains(['\u{1b}', '\u{9b}', '\u{7}']), "{shown:?}");
    }
    // Control: a program gets it as it is.
    let server = model(words);
    let env = Env::new().at(&server.base_url());
    assert_eq!(env.kli(&["-p", "hi"]).out, format!("{words}\n"));
}

#[test]
fn a_signal_while_the_prompt_is_read_ends_the_run_with_its_result() {
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143), (Signal::HUP, 143)] {
        let env = Env::new().var("ANTHROPIC_API_KEY", "not-used");
        let line = ["-p", "-", "--output-format", "json"];
        let mut child = env.command(&line).stdin(Stdio::piped()).spawn().unwrap();
        let mut held = child.stdin.take().unwrap();
        held.write_all(b"half a prompt").unwrap();
        // HUP, INT and TERM: it begins to listen to one after the other.
        let all = 1 | 1 << 1 | 1 << 14;
        let catches = |line: &str| {
            let mask = line.strip_prefix("SigCgt:")?.trim().to_owned();
            u64::from_str_radix(&mask, 16).ok().filter(|mask| mask & all == all)
        };
        wait_for("kli to listen to signals", || {
            let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
            status.lines().find_map(catches)
        });
        let start = Instant::now();
        kill(i32::try_from(child.id()).unwrap(), signal);
        let ran = Ran::from(child.wait_with_output().unwrap());
        ran.exits(code);
        assert_eq!(ran.json()["outcome"], "interrupted");
        assert!(start.elapsed() < Duration::from_secs(2));
        assert!(env.sessions().is_empty());
        drop(held);
    }
}

#[test]
fn a_hang_up_that_was_ignored_from_the_start_stays_ignored() {
    for (ignored, code) in [(true, 0), (false, 143)] {
        let mark = format!("1.{}{}", u8::from(ignored), std::process::id());
        let stream = message([tool_use("c", "bash", &format!("{{\"command\":\"sleep {mark}\"}}"))]);
        let server =
            FakeModel::strict(vec![Answer::new(stream), Answer::new(message([text("done")]))]);
        let env = Env::new().at(&server.base_url());
        let mut command = env.command(&["-p", "hi"]);
        if ignored {
            #[expect(unsafe_code, reason = "this is what nohup does")]
            // SAFETY: a system call alone between fork and exec.
            unsafe {
                command.pre_exec(|| {
                    libc::signal(libc::SIGHUP, libc::SIG_IGN);
                    Ok(())
                });
            }
        }
        let child = command.spawn().unwrap();
        wait_for("the tool", || processes_with(&format!("sleep\0{mark}")).first().copied());
        kill(i32::try_from(child.id()).unwrap(), Signal::HUP);
        Ran::from(child.wait_with_output().unwrap()).exits(code);
    }
}

#[test]
fn settings_behind_a_dead_link_are_an_error_and_not_left_out() {
    let env = Env::new();
    let directory = env.home().join(".config/kli");
    fs::create_dir_all(&directory).unwrap();
    let (link, target) = (directory.join("settings.json"), env.home().join("store.json"));
    symlink(&target, &link).unwrap();
    let ran = env.kli(&["--print-authority"]);
    ran.exits(2).says("settings.json` is a link that leads nowhere").says("mend or remove");
    assert_eq!(ran.out, "");
    fs::write(&target, "{ \"capabilities\": [] }").unwrap();
    assert!(env.kli(&["--print-authority"]).out.contains("none"), "control: the link is followed");
    // A link on the way counts as well.
    fs::remove_dir_all(env.home().join(".config")).unwrap();
    symlink("gone", env.home().join(".config")).unwrap();
    env.kli(&["--print-authority"]).exits(2).says(".config` is a link that leads nowhere");
    fs::remove_file(env.home().join(".config")).unwrap();
    env.kli(&["--print-authority"]).exits(0);
}

#[test]
fn the_preview_is_json_for_whoever_wants_json() {
    let env = Env::new();
    let ran = env.kli(&["--print-authority", "--no-bash", "--output-format", "json"]);
    ran.exits(0);
    assert_eq!(ran.json()["type"], "authority");
    assert_eq!(ran.out, env.kli(&["--print-authority", "--no-bash", "--json"]).out);
}

#[test]
fn a_relative_baked_directory_is_refused() {
    let env = Env::new().var("KLI_BAKED", "baked");
    fs::create_dir(env.work().join("baked")).unwrap();
    fs::write(env.work().join("baked/settings.json"), "{}").unwrap();
    env.kli(&["--print-authority"]).exits(2).says("`KLI_BAKED` is `baked`, which is no absolute");
    let env = Env::new();
    let baked = env.work().display().to_string();
    fs::write(env.work().join("settings.json"), "{ \"capabilities\": [] }").unwrap();
    let env = env.var("KLI_BAKED", &baked);
    assert!(env.kli(&["--print-authority"]).out.contains("none"), "control");
}

#[test]
fn a_bare_tilde_is_the_home() {
    let env = Env::new();
    env.settings("{ \"capabilities\": [{ \"atom\": \"file/write\", \"under\": [\"~\"] }] }");
    let wanted = format!("[path under {}]", env.home().display());
    let ran = env.kli(&["--print-authority"]);
    assert!(ran.out.contains(&wanted), "{ran:?}");
}

#[test]
fn a_time_limit_below_a_second_still_lets_a_command_run() {
    let stream = message([tool_use("c", "bash", "{\"command\":\"sleep 0.2; echo it ran\"}")]);
    let server = FakeModel::strict(vec![Answer::new(stream), Answer::new(message([text("done")]))]);
    let env = Env::new().at(&server.base_url());
    env.settings("{ \"bash\": { \"timeout\": \"900ms\" } }");
    env.kli(&["-p", "hi"]).exits(0);
    let sent = server.bodies()[1]["messages"].to_string();
    assert!(sent.contains("it ran") && !sent.contains("timed out"), "{sent}");
}

#[test]
fn a_denied_command_cannot_fake_lines_of_the_report() {
    let command = "true\\nkli: all is well\\u001b[2J";
    let stream = message([tool_use("c", "bash", &format!("{{\"command\":\"{command}\"}}"))]);
    let server = FakeModel::strict(vec![Answer::new(stream), Answer::new(message([text("done")]))]);
    let env = Env::new().at(&server.base_url());
    let ran = env.kli(&["-p", "hi", "--no-bash"]);
    ran.exits(3).says("kli: denied bash: ").says("all is well");
    assert!(!ran.err.lines().any(|line| line.starts_with("kli: all is well")), "{ran:?}");
}

#[test]
fn what_the_policy_sets_is_shown_with_the_settings() {
    let env = Env::new();
    let baked = env.work().join("baked");
    fs::create_dir(&baked).unwrap();
    fs::write(baked.join("settings.json"), "{}").unwrap();
    fs::write(
        baked.join("policy.json"),
        r#"{"denyTools": ["write"], "approve": "writes", "allowedModels": ["work/*"], "trustProjects": false}"#,
    )
    .unwrap();
    let env = env.var("KLI_BAKED", baked.to_str().unwrap());
    let ran = env.kli(&["config", "show"]);
    ran.exits(0);
    for line in [
        "denyTools = [\"write\"]  (policy)\n",
        "approve = \"writes\"  (policy)\n",
        "allowedModels = [\"work/*\"]  (policy)\n",
        "trustProjects = false  (policy)\n",
    ] {
        assert!(ran.out.contains(line), "{line}: {ran:?}");
    }
    assert!(!ran.out.contains("requireSandbox"), "what it leaves alone is not there: {ran:?}");
    let json = env.kli(&["config", "show", "--json"]).json();
    let wanted = serde_json::json!({"key": "denyTools", "layer": "policy", "value": ["write"]});
    assert!(json["values"].as_array().unwrap().contains(&wanted), "{json}");
}

#[test]
fn the_help_ends_with_the_exit_codes() {
    let help = Env::new().kli(&["--help"]).out;
    let (_, codes) = help.split_once("Exit codes:\n").unwrap();
    for line in ["  0    done\n", "  3    a call was denied", "  143  terminated (TERM, HUP)"] {
        assert!(codes.contains(line), "{line}: {codes}");
    }
    assert!(!Env::new().kli(&["-h"]).out.contains("Exit codes"), "the short one stays short");
}
