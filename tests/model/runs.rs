//! Whole runs of the built binary on every API and every way to a model: TCP, a socket, a socket
//! inside a jail without a network.

use std::{fs, process::Command};

use serde_json::{Value, json};

use crate::{
    fake_model::{Answer, FakeModel, Wire, text, thinking, tool_use},
    harness::{Env, Ran},
};

/// Two reads at once, an edit, a command, and the last word.
fn whole_task(wire: Wire) -> Vec<Answer> {
    let edit = json!({"path": "a.txt", "edits": [{"old": "grün", "new": "blau 👍"}]}).to_string();
    [
        wire.answer([
            text("Let me look. "),
            tool_use("c1", "read", "{\"path\": \"a.txt\"}"),
            tool_use("c2", "read", "{\"path\":\"b.txt\"}"),
        ]),
        wire.answer([tool_use("c3", "edit", &edit)]),
        wire.answer([tool_use("c4", "bash", "{\"command\":\"cat a.txt; exit 3\"}")]),
        wire.answer([text("Fertig: "), text("漢字 ✓")]),
    ]
    .map(Answer::new)
    .into()
}

fn workspace(env: &Env) {
    fs::write(env.work().join("a.txt"), "eins\ngrün\n").unwrap();
    fs::write(env.work().join("b.txt"), "zwei\r\n").unwrap();
}

fn task(model: &str) -> [&str; 6] {
    ["-p", "Make it blue", "--model", model, "--output-format", "json"]
}

#[track_caller]
fn is_done(env: &Env, ran: &Ran, fake: &FakeModel) -> Value {
    ran.exits(0);
    let result = ran.json();
    assert_eq!(result["outcome"], "ok");
    assert_eq!(result["text"], "Fertig: 漢字 ✓");
    assert_eq!(result["turns"], 4);
    assert_eq!(fs::read(env.work().join("a.txt")).unwrap(), "eins\nblau 👍\n".as_bytes());
    assert_eq!((fake.left(), fake.requests().len()), (0, 4), "nothing was asked twice");
    result
}

/// The results that a request carries at its end: call and text.
fn results(wire: Wire, body: &Value) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let messages = || body["messages"].as_array().unwrap();
    match wire {
        Wire::Responses => {
            let is_result = |item: &&Value| item["type"] == "function_call_output";
            let mut found: Vec<(String, String)> = body["input"]
                .as_array()
                .unwrap()
                .iter()
                .rev()
                .take_while(is_result)
                .map(|item| (text(&item["call_id"]), text(&item["output"])))
                .collect();
            found.reverse();
            found
        }
        Wire::Messages => messages().last().unwrap()["content"]
            .as_array()
            .unwrap()
            .iter()
            .map(|block| (text(&block["tool_use_id"]), text(&block["content"])))
            .collect(),
        Wire::Chat => {
            let messages = messages();
            let calls = messages.iter().rposition(|m| m["role"] == "assistant").unwrap();
            messages[calls + 1..]
                .iter()
                .map(|message| (text(&message["tool_call_id"]), text(&message["content"])))
                .collect()
        }
    }
}

#[test]
fn a_whole_task_runs_on_every_api() {
    let mut usages = Vec::new();
    for wire in Wire::ALL {
        let fake = FakeModel::strict(whole_task(wire));
        let env = Env::new().var(wire.address_variable(), &fake.url(wire));
        env.settings(&wire.settings());
        workspace(&env);
        let ran = env.kli(&task(&format!("{}/m", wire.provider())));
        let result = is_done(&env, &ran, &fake);
        assert_eq!(result["model"], format!("{}/m", wire.provider()));
        let bodies = fake.bodies();
        let read = results(wire, &bodies[1]);
        assert_eq!(read.len(), 2, "both results are there, in the order of their calls");
        assert!(read[0].0 == "c1" && read[0].1.contains("|grün"), "{read:?}");
        assert!(read[1].0 == "c2" && read[1].1.contains("|zwei"), "{read:?}");
        assert!(results(wire, &bodies[2])[0].1.contains("|blau 👍"));
        assert!(results(wire, &bodies[3])[0].1.contains("blau 👍"));
        for pair in bodies.windows(2) {
            assert_eq!(pair[0]["tools"], pair[1]["tools"]);
            let system = |body: &Value| match wire {
                Wire::Messages => body["system"].clone(),
                Wire::Chat => body["messages"][0].clone(),
                Wire::Responses => body["instructions"].clone(),
            };
            assert_eq!(system(&pair[0]), system(&pair[1]), "the prompt is byte-stable");
        }
        let first = fake.requests()[0].body.len();
        assert!(first < 6000, "{wire:?}: the first request has {first} bytes");
        usages.push((first, result["usage"]["inputTokens"].clone()));
    }
    assert!(usages.windows(2).all(|pair| pair[0].1 == pair[1].1), "tokens are counted alike");
}

#[test]
fn a_whole_task_runs_over_a_socket() {
    for wire in Wire::ALL {
        let env = Env::new();
        workspace(&env);
        let socket = env.home().join("model.sock");
        let fake = FakeModel::at_socket(&socket, whole_task(wire));
        // The path is spelled from the home here, and a proxy is set that must not be asked.
        let kind = wire.kind_name();
        env.settings(
            &json!({"providers": {"mine": {"kind": kind, "baseUrl": "unix:~/model.sock"}}})
                .to_string(),
        );
        let env =
            env.var("HTTP_PROXY", "http://127.0.0.1:1").var("ALL_PROXY", "http://127.0.0.1:1");
        is_done(&env, &env.kli(&task("mine/m")), &fake);
    }
}

/// Runs a task in a jail without a network.
fn jailed(env: &Env, wire: Wire, address: &str) -> Ran {
    let spec = env.home().join("sandbox.json");
    fs::write(&spec, json!({"version": 1, "network": false}).to_string()).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_kli-sandbox"));
    command
        .args(["run", "--spec"])
        .arg(&spec)
        .args(["--", env!("CARGO_BIN_EXE_kli")])
        .args(task(&format!("{}/m", wire.provider())))
        .current_dir(env.work())
        .env_clear()
        .env("HOME", env.home())
        .env("PATH", "/usr/bin:/bin")
        .env(wire.address_variable(), address);
    Ran::from(command.output().unwrap())
}

#[test]
fn a_socket_that_is_not_there_is_said_at_once_without_a_word_about_the_network() {
    let env = Env::new();
    workspace(&env);
    let address = format!("unix:{}", env.work().join("gone.sock").display());
    let ran = jailed(&env, Wire::Chat, &address);
    ran.exits(4)
        .says(&format!("`{address}` cannot be reached: there is no such"))
        .says("the sandbox shows only sockets that `allowSockets` names: add it");
    assert!(!ran.err.contains("retry"), "{ran:?}");
    let error = &ran.json()["error"];
    assert_eq!(error["kind"], "network");
    assert!(!error["message"].as_str().unwrap().contains("`unix:`"), "{error}");
}

#[test]
fn a_key_goes_to_its_own_provider_only() {
    let wires = Wire::ALL.map(|wire| (wire, "sk-of-another-provider"));
    for (wire, secret) in wires {
        let mut names = ["ANTHROPIC_API_KEY", "OPENAI_API_KEY"];
        if wire == Wire::Messages {
            names.reverse();
        }
        let [other, own] = names;
        let reads = |wire: Wire| {
            vec![
                Answer::new(wire.answer([tool_use(
                    "c",
                    "bash",
                    "{\"command\":\"env; tr '\\\\0' '\\\\n' </proc/$PPID/environ\"}",
                )])),
                Answer::new(wire.answer([text("ok")])),
            ]
        };
        let fake = FakeModel::strict(reads(wire));
        let env = Env::new()
            .var(wire.address_variable(), &fake.url(wire))
            .var(other, secret)
            .var(own, "sk-its-own-key");
        env.settings(&wire.settings());
        env.kli(&["-p", "hi", "--model", &format!("{}/m", wire.provider())]).exits(0);
        let (name, value) = wire.key_header("sk-its-own-key");
        for seen in fake.requests() {
            assert_eq!(seen.header(name), Some(&*value), "control");
            assert!(!format!("{seen:?}").contains(secret));
            let body = String::from_utf8_lossy(&seen.body).into_owned();
            assert!(!body.contains(secret) && !body.contains("its-own-key"), "{body}");
        }
        let printed = fake.bodies()[1].to_string();
        assert!(printed.contains("HOME="), "control: the tool shows its environment: {printed}");

        // A provider of the user's own is sent neither.
        let fake = FakeModel::strict(vec![Answer::new(wire.answer([text("ok")]))]);
        let kind = wire.kind_name();
        let env = Env::new().var(other, secret).var(own, "sk-its-own-key");
        env.settings(
            &json!({"providers": {"mine": {"kind": kind, "baseUrl": fake.url(wire)}}}).to_string(),
        );
        env.kli(&["-p", "hi", "--model", "mine/m"]).exits(0);
        let seen = format!("{:?}", fake.requests()[0].headers);
        assert!(!seen.contains(secret) && !seen.contains("its-own-key"), "{seen}");
    }
}

#[test]
fn a_local_server_needs_no_key_whatever_the_environment_says() {
    let fake = FakeModel::strict(vec![Answer::new(Wire::Chat.answer([text("ok")]))]);
    let env = Env::new().var("OPENAI_BASE_URL", &fake.url(Wire::Chat)).var("CI", "true");
    env.kli(&["-p", "hi", "--model", "openai/m"]).exits(0);
    assert_eq!(fake.requests()[0].header("authorization"), None);
    // The control: elsewhere one is needed, and nothing is sent.
    let env = Env::new().var("OPENAI_BASE_URL", "http://model.invalid/v1");
    env.kli(&["-p", "hi", "--model", "openai/m"])
        .exits(4)
        .says("provider `openai` at `model.invalid` needs a key")
        .says("set the variable `OPENAI_API_KEY`");
}

#[test]
fn settings_of_a_model_reach_the_body() {
    let fake = FakeModel::strict(vec![Answer::new(Wire::Chat.answer([text("ok")]))]);
    let env = Env::new();
    let settings = |kind: &str| {
        let options = json!({"temperature": 0, "chat_template_kwargs": {"thinking": true}});
        let models = json!({"org/m:7b": {"maxOutput": 99, "options": options}});
        let mine = json!({"kind": kind, "baseUrl": fake.url(Wire::Chat), "models": models});
        env.settings(&json!({"providers": { "mine": mine }}).to_string());
    };
    settings("openai-chat");
    env.kli(&["-p", "hi", "--model", "mine/org/m:7b"]).exits(0);
    let body = &fake.bodies()[0];
    assert_eq!(body["model"], "org/m:7b");
    assert_eq!((&body["max_tokens"], &body["temperature"]), (&json!(99), &json!(0)));
    assert_eq!(body["chat_template_kwargs"], json!({"thinking": true}));
    let env = Env::new().var("OPENAI_BASE_URL", "unix:model.sock");
    env.kli(&["-p", "hi"]).exits(2).says("OPENAI_BASE_URL: the address names no socket");
}

#[test]
fn a_batch_with_an_unknown_tool_and_cut_arguments_runs_the_rest() {
    for wire in Wire::ALL {
        let fake = FakeModel::strict(vec![
            Answer::new(wire.answer([
                tool_use("ok", "read", "{\"path\":\"a.txt\"}"),
                tool_use("unknown", "re ad", "{\"path\":\"a.txt\"}"),
                tool_use("cut", "read", "{\"path\": \"a"),
                tool_use("empty", "read", ""),
            ])),
            Answer::new(wire.answer([text("done")])),
        ]);
        let env = Env::new().var(wire.address_variable(), &fake.url(wire));
        env.settings(&wire.settings());
        workspace(&env);
        env.kli(&["-p", "look", "--model", &format!("{}/m", wire.provider())]).exits(0);
        let results = results(wire, &fake.bodies()[1]);
        let ids: Vec<&str> = results.iter().map(|(id, _)| id.as_str()).collect();
        assert_eq!(ids, ["ok", "unknown", "cut", "empty"], "one result for each call");
        assert!(results[0].1.contains("|grün"), "{results:?}");
        assert!(results[1].1.contains("re ad"), "{results:?}");
        assert!(results[2].1.contains("{\"path\": \"a"), "{results:?}");
        assert!(results[3].1.contains("path"), "{results:?}");
        if wire != Wire::Messages {
            assert!(!results[0].1.starts_with("error: "));
            assert!(
                results[1..].iter().all(|(_, text)| text.starts_with("error: ")),
                "{results:?}"
            );
        }
    }
}

#[test]
fn a_session_goes_on_with_a_model_of_another_api() {
    let turn = |wire: Wire, word: &str| {
        let signature = "m:signature";
        vec![
            Answer::new(wire.answer([
                thinking("hm", signature),
                tool_use(&format!("call.{word}.{wire:?}"), "read", "{\"path\":\"a.txt\"}"),
            ])),
            Answer::new(wire.answer([text(word)])),
        ]
    };
    // The strict fakes refuse what is another's: signatures, identifiers, unanswered calls.
    let wires = Wire::ALL;
    let fakes =
        wires.map(|wire| FakeModel::strict([turn(wire, "first"), turn(wire, "second")].concat()));
    let providers: serde_json::Map<String, Value> = wires
        .iter()
        .zip(&fakes)
        .map(|(wire, fake)| {
            let provider = json!({"kind": wire.kind_name(), "baseUrl": fake.url(*wire)});
            (format!("my-{}", wire.kind_name()), provider)
        })
        .collect();
    let env = Env::new();
    env.settings(&json!({ "providers": providers }).to_string());
    workspace(&env);
    for word in ["first", "second"] {
        for wire in wires {
            let model = format!("my-{}/m", wire.kind_name());
            let begins = word == "first" && wire == wires[0];
            let go_on: &[&str] = if begins { &[] } else { &["-c"] };
            let ran = env.kli(&[&["-p", "next", "--model", &model], go_on].concat());
            assert_eq!(ran.exits(0).out, format!("{word}\n"), "{wire:?}");
        }
    }
    // Thinking goes back to its own model only, each time to the calls that it led to.
    let last = fakes.each_ref().map(|fake| fake.bodies().pop().unwrap());
    let count = |body: &Value, words: &str| body.to_string().matches(words).count();
    assert_eq!(count(&last[0], "\"signature\":\"m:signature\""), 2);
    assert_eq!(count(&last[1], "\"reasoning_content\":\"hm\""), 2);
    assert_eq!(count(&last[2], "\"encrypted_content\":\"m:signature\""), 2);
    assert_eq!(count(&last[1], "m:signature"), 0);
}
