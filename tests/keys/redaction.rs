//! A key that is said is taken out before a model, a session, an output or an error has it.

use std::fs;

use serde_json::json;

use crate::{
    fake_model::{Answer, FakeModel, message, text, tool_use},
    harness::{Env, Ran},
};

use super::{call, results, says, unique};

/// Asserts that neither the streams nor the sessions nor what the model was told hold the key.
#[track_caller]
fn nowhere(env: &Env, model: &FakeModel, ran: &Ran, key: &str) {
    assert!(!ran.out.contains(key) && !ran.err.contains(key), "{ran:?}");
    for body in model.bodies() {
        assert!(!body.to_string().contains(key), "{body}");
    }
    for file in env.sessions() {
        let text = fs::read_to_string(file).unwrap();
        assert!(!text.contains(key), "{text}");
    }
    for request in model.requests() {
        assert_eq!(request.header("x-api-key"), Some(key), "control: it is the key");
    }
}

#[test]
fn a_key_that_a_tool_finds_is_taken_out() {
    let key = unique("sk-found");
    let model = FakeModel::strict(vec![
        call("a", "bash", &json!({ "command": "cat ~/key; echo control" })),
        call("b", "read", &json!({ "path": "notes" })),
        call("c", "search", &json!({ "pattern": "the key" })),
        call(
            "d",
            "edit",
            &json!({
                "path": "notes",
                "edits": [{ "old": format!("thee key is {}", &key[..38]), "new": "x" }],
            }),
        ),
        says("done"),
    ]);
    let env = Env::new();
    fs::write(env.home().join("key"), &key).unwrap();
    fs::write(env.work().join("notes"), format!("the key is {key}.\n")).unwrap();
    let provider = json!({ "baseUrl": model.base_url(), "keyFile": "~/key" });
    env.settings(&json!({ "providers": { "anthropic": provider } }).to_string());
    let ran = env.kli(&["-p", "look", "--output-format", "json"]);
    ran.exits(0);
    nowhere(&env, &model, &ran, &key);
    let bodies = model.bodies();
    for (number, control) in [(1, "…control"), (2, "the key is …."), (3, "the key is …."), (4, "…")]
    {
        let text = &results(&bodies[number])[0].1;
        assert!(text.contains(control), "{text}");
        assert!(text.contains("a provider's key was taken out"), "{text}");
    }
    // The file is what it was.
    assert!(fs::read_to_string(env.work().join("notes")).unwrap().contains(&key));
}

#[test]
fn a_key_that_the_person_the_model_or_a_file_says_is_taken_out() {
    let key = unique("sk-said");
    for cut in [false, true] {
        let answer = Answer::new(message([text(&format!("your key is {key}, "))]));
        let model = FakeModel::strict(vec![
            if cut { answer.every_byte() } else { answer },
            call("b", "bash", &json!({ "command": format!("echo {key} >said") })),
            says("done"),
        ]);
        let env = Env::new().at(&model.base_url()).var("ANTHROPIC_API_KEY", &key);
        fs::write(env.work().join("more.md"), format!("The key is {key}.")).unwrap();
        let line = ["-p", &format!("what is {key}?"), "--append-system-prompt-file", "more.md"];
        let ran = env.kli(&line);
        ran.exits(0);
        assert_eq!(ran.out, "your key is …, \n");
        nowhere(&env, &model, &ran, &key);
        let body = model.bodies()[0].to_string();
        assert!(body.contains("what is …?") && body.contains("The key is …."), "{body}");
        let ran = env.kli(&["-p", "go on", "--continue", "--output-format", "json"]);
        ran.exits(0);
        nowhere(&env, &model, &ran, &key);
        // What is written down is what was done.
        assert_eq!(fs::read_to_string(env.work().join("said")).unwrap(), "…\n");
    }
}

#[test]
fn an_older_session_with_a_key_in_it_tells_the_model_nothing() {
    let key = unique("sk-older");
    let model = FakeModel::strict(vec![says("one"), says("two")]);
    let env = Env::new().at(&model.base_url());
    env.kli(&["-p", &format!("remember {key}")]).exits(0);
    assert!(model.bodies()[0].to_string().contains(&key), "control: no key then");
    let env = env.var("ANTHROPIC_API_KEY", &key);
    env.kli(&["-p", "go on", "--continue"]).exits(0);
    let body = model.bodies()[1].to_string();
    assert!(body.contains("remember …") && !body.contains(&key), "{body}");
}

#[test]
fn an_error_of_the_server_shows_neither_the_key_nor_a_header() {
    let (key, token) = (unique("sk-echo"), unique("token"));
    for status in [400, 401, 403, 404, 429, 500] {
        let echo = format!("bad key {key}, bad authorization Bearer {token}");
        let model = FakeModel::start(vec![
            Answer::refusal(status, "authentication_error", &echo)
                .header("retry-after", "0");
            6
        ]);
        let env = Env::new().var("ANTHROPIC_API_KEY", &key);
        let headers = json!({ "authorization": format!("Bearer {token}") });
        let provider = json!({ "baseUrl": model.base_url(), "headers": headers });
        env.settings(&json!({ "providers": { "anthropic": provider } }).to_string());
        let ran = env.kli(&["-p", "hi", "--output-format", "json"]);
        ran.exits(4).says("bad key …");
        nowhere(&env, &model, &ran, &key);
        assert_eq!(
            model.requests()[0].header("authorization"),
            Some(format!("Bearer {token}").as_str()),
            "control"
        );
        assert!(!format!("{ran:?}").contains(&token), "{ran:?}");
        let session = fs::read_to_string(&env.sessions()[0]).unwrap();
        assert!(session.contains("bad key …") && !session.contains(&token), "{session}");
    }
}

#[test]
fn a_variable_that_holds_a_key_under_any_name_is_withheld() {
    let key = unique("sk-copy");
    let line = "env; echo \"[$COPY][$ANTHROPIC_API_KEY]\"";
    let model = FakeModel::strict(vec![call("c", "bash", &json!({ "command": line })), says("ok")]);
    let env = Env::new()
        .at(&model.base_url())
        .var("ANTHROPIC_API_KEY", &key)
        .var("COPY", &key)
        .var("WITHIN", &format!("x={key};y"))
        .var("CONTROL", "control-value-1");
    env.kli(&["-p", "look"]).exits(0);
    let text = &results(&model.bodies()[1])[0].1;
    assert!(text.contains("CONTROL=control-value-1") && text.contains("\n[][]\n"), "{text}");
    for name in ["COPY=", "WITHIN=", "ANTHROPIC_API_KEY="] {
        assert!(!text.contains(name), "{name} in {text}");
    }
    assert!(!text.contains('…'), "it was not there, rather than taken out: {text}");
    // Control: without that key both are ordinary variables.
    let model = FakeModel::strict(vec![call("c", "bash", &json!({ "command": line })), says("ok")]);
    let env = Env::new().at(&model.base_url()).var("COPY", &key);
    env.kli(&["-p", "look"]).exits(0);
    assert!(results(&model.bodies()[1])[0].1.contains(&format!("COPY={key}")));
}

#[test]
fn a_key_in_the_name_of_a_tool_behind_escapes_or_in_a_refusal_is_taken_out() {
    let key = unique("sk-odd");
    let escaped: Vec<String> = key.chars().map(|c| format!("\\u{:04x}", u32::from(c))).collect();
    let escaped = escaped.concat();
    let model = FakeModel::strict(vec![
        call("a", &key, &json!({ "path": "x" })),
        Answer::new(message([tool_use(
            "b",
            "bash",
            &format!("{{\"command\":\"echo {escaped} >said\"}}"),
        )])),
        call("c", "write", &json!({ "path": "link", "content": "x" })),
        says("done"),
    ]);
    let env = Env::new().at(&model.base_url()).var("ANTHROPIC_API_KEY", &key);
    let target = env.work().join(&key);
    fs::write(&target, "kept").unwrap();
    std::os::unix::fs::symlink(&target, env.work().join("link")).unwrap();
    env.settings(
        &json!({ "capabilities": [
            "process/exec", "file/read", { "atom": "file/write", "under": ["sub"] },
        ] })
        .to_string(),
    );
    let ran = env.kli(&["-p", "hi", "--output-format", "stream-json", "--log", "log"]);
    ran.exits(3);
    nowhere(&env, &model, &ran, &key);
    assert!(!fs::read_to_string(env.work().join("log")).unwrap().contains(&key));
    // What is written down is what was done, and the refusal names what was asked for.
    assert_eq!(fs::read_to_string(env.work().join("said")).unwrap(), "…\n");
    assert_eq!(fs::read_to_string(&target).unwrap(), "kept");
    assert!(ran.out.contains("\"denied\":[{\"tool\":\"write\",\"atom\":\"file/write\""), "{ran:?}");
    assert!(ran.out.contains("there is no tool `…`"), "control: {ran:?}");
}
