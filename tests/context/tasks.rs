//! Sub-agents: the tool `task`.

use super::*;

fn task(id: &str, arguments: &Value) -> Answer {
    call(id, "task", arguments)
}

fn tools(body: &Value) -> Vec<String> {
    let tools = body["tools"].as_array().unwrap();
    tools.iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_sub_agent_works_in_a_linked_session_and_its_last_answer_is_the_result() {
    let model = FakeModel::strict(vec![
        task("c1", &json!({"prompt": "write b.txt"})),
        call("c1", "write", &json!({"path": "b.txt", "content": "from the child\n"})),
        says("the part is done"),
        says("all is done"),
        says("later"),
    ]);
    let env = Env::new().at(&model.base_url());
    put(&env.work().join("AGENTS.md"), "root words\n");
    let ran = env.kli(&["-p", "do the whole", "--output-format", "json"]);
    ran.exits(0);
    let result = ran.json();
    assert_eq!(result["text"], "all is done");
    assert_eq!(result["turns"], 2, "its own turns");
    assert_eq!(result["changedFiles"], json!([env.work().join("b.txt")]));
    assert_eq!(fs::read(env.work().join("b.txt")).unwrap(), b"from the child\n");
    let bodies = model.bodies();
    assert_eq!(told(&bodies[1]), ["write b.txt"], "a fresh context");
    assert!(system(&bodies[1]).contains("You are a sub-agent"));
    assert!(system(&bodies[1]).contains("root words"));
    assert!(!tools(&bodies[1]).contains(&"task".to_owned()), "no further ones");
    assert!(tools(&bodies[0]).contains(&"task".to_owned()), "control");
    let (text, is_error) = results(&bodies[3]).remove(0);
    assert!(text.starts_with("the part is done\n\n[sub-agent: session `") && !is_error, "{text}");
    // Usage counts both: four requests.
    let one = result["usage"]["inputTokens"].as_u64().unwrap();
    let sessions: Vec<Vec<Value>> = env.sessions().iter().map(|file| lines(file)).collect();
    assert_eq!(sessions.len(), 2);
    let used = |lines: &[Value]| -> u64 {
        lines
            .iter()
            .filter(|l| l["type"] == "usage")
            .map(|l| l["inputTokens"].as_u64().unwrap())
            .sum()
    };
    assert_eq!(sessions.iter().map(|lines| used(lines)).sum::<u64>(), one);
    let (child, parent) = if sessions[0][0]["task"] == json!(true) {
        (&sessions[0], &sessions[1])
    } else {
        (&sessions[1], &sessions[0])
    };
    assert_eq!((&child[0]["parent"], &child[0]["task"]), (&parent[0]["id"], &json!(true)));
    assert_eq!(parent[0].get("task"), None);
    assert_eq!(child.last().unwrap()["outcome"], "ok");
    let (id, parent) = (child[0]["id"].as_str().unwrap(), parent[0]["id"].as_str().unwrap());
    assert!(text.contains(&format!("session `{id}`")), "{text}");
    let shown = env.kli(&["sessions", "show", id]);
    assert!(shown.exits(0).out.contains(&format!("sub-agent of {parent}")), "{shown:?}");
    let listed = env.kli(&["sessions", "list"]);
    assert!(listed.exits(0).out.contains(&format!("(sub-agent of {parent}) write b.txt")));
    // Going on means the person's conversation, whichever was written last.
    env.kli(&["-p", "and now", "-c"]).exits(0);
    assert_eq!(told(&model.bodies()[4]).first().unwrap(), "do the whole");
}

#[test]
fn it_may_do_what_was_asked_and_never_more_than_its_parent() {
    let write = || call("w", "write", &json!({"path": "x", "content": "x"}));
    // Asked for less.
    let model = FakeModel::strict(vec![
        task("c1", &json!({"prompt": "p", "capabilities": "file/read"})),
        write(),
        says("could not"),
        says("end"),
    ]);
    let env = Env::new().at(&model.base_url());
    let ran = env.kli(&["-p", "go", "--output-format", "json"]);
    ran.exits(3);
    assert!(!env.work().join("x").exists());
    let bodies = model.bodies();
    assert_eq!(tools(&bodies[1]), ["read", "find", "search", "read_result"]);
    let (text, is_error) = results(&bodies[2]).remove(0);
    assert!(is_error && text.contains("(removed by parent agent)"), "{text}");
    let (text, is_error) = results(&bodies[3]).remove(0);
    assert!(is_error && text.contains("a call of `write` was denied"), "{text}");
    assert!(text.contains("could not"), "its last words: {text}");
    let denied = &ran.json()["denied"][0];
    assert_eq!((&denied["tool"], &denied["atom"]), (&json!("write"), &json!("file/write")));
    assert!(denied["detail"].as_str().unwrap().starts_with("in a sub-agent: "));

    // Asked for more than the parent has.
    let model = FakeModel::strict(vec![
        task(
            "c1",
            &json!({"prompt": "p", "capabilities": "tools/standard,image/eval,agent/spawn"}),
        ),
        write(),
        says("could not"),
        says("end"),
    ]);
    let env = Env::new().at(&model.base_url());
    let ran = env.kli(&["-p", "go", "--read-only", "--output-format", "json"]);
    ran.exits(3);
    assert!(!env.work().join("x").exists());
    let (text, _) = results(&model.bodies()[2]).remove(0);
    assert!(text.contains("(removed by flag --read-only)"), "{text}");

    // Control: with all of it, it writes.
    let model = FakeModel::strict(vec![
        task("c1", &json!({"prompt": "p", "capabilities": "file/write"})),
        write(),
        says("did"),
        says("end"),
    ]);
    let env = Env::new().at(&model.base_url());
    env.kli(&["-p", "go"]).exits(0);
    assert!(env.work().join("x").exists());
}

#[test]
fn without_the_capability_it_is_neither_offered_nor_run() {
    let model = FakeModel::strict(vec![task("c1", &json!({"prompt": "p"})), says("end")]);
    let env = Env::new().at(&model.base_url());
    let ran = env.kli(&["-p", "go", "--capabilities", "file/read", "--output-format", "json"]);
    ran.exits(3);
    let bodies = model.bodies();
    assert_eq!(bodies.len(), 2, "no sub-agent asked");
    assert!(!tools(&bodies[0]).contains(&"task".to_owned()));
    assert_eq!(ran.json()["denied"][0]["atom"], "agent/spawn");
    assert_eq!(env.sessions().len(), 1);
}

#[test]
fn what_goes_wrong_with_it_is_a_result() {
    let read = |id: &str| call(id, "read", &json!({"path": "."}));
    let model = FakeModel::strict(vec![
        task("c1", &json!({"prompt": "p", "max_turns": 2})),
        read("r1"),
        read("r2"),
        task("c2", &json!({"prompt": "p"})),
        Answer::status(403),
        task("c3", &json!({"prompt": " "})),
        task("c4", &json!({"prompt": "p", "capabilities": "file/raed"})),
        task("c5", &json!({"prompt": "p", "depth": 3})),
        says("end"),
    ]);
    let env = Env::new().at(&model.base_url());
    env.kli(&["-p", "go"]).exits(0);
    let bodies = model.bodies();
    let result = |at: usize| results(&bodies[at]).remove(0);
    for (at, part) in [
        (3, "did not finish: its budget of 2 turns is used up"),
        (5, "did not finish: "),
        (6, "`prompt` is blank"),
        (7, "did you mean `file/read`?"),
        (8, "unknown argument `depth`"),
    ] {
        let (text, is_error) = result(at);
        assert!(is_error && text.contains(part), "{at}: {text}");
    }
    assert!(result(5).0.contains("scripted by the test"), "{}", result(5).0);
}

#[test]
fn it_shares_the_budget_of_tokens() {
    let turns = || {
        (0..40).map(|n| call(&format!("r{n}"), "read", &json!({"path": "."}))).collect::<Vec<_>>()
    };
    let mut script = vec![task("c1", &json!({"prompt": "p", "max_turns": 100}))];
    script.extend(turns());
    let model = FakeModel::start(script);
    let env = Env::new().at(&model.base_url());
    let ran = env.kli(&["-p", "go", "--max-tokens", "200", "--output-format", "json"]);
    ran.exits(5);
    let total: u64 =
        ran.json()["usage"].as_object().unwrap().values().map(|n| n.as_u64().unwrap()).sum();
    let requests = model.requests().len();
    assert!(total >= 200 && requests > 2 && requests < 30, "{total} tokens, {requests} requests");
    let one = total / u64::try_from(requests).unwrap();
    assert!(total <= 200 + 2 * one, "{total} tokens in {requests} requests");
}

#[test]
fn readers_run_side_by_side_and_writers_one_after_the_other() {
    for (capabilities, side_by_side) in [("file/read", true), ("tools/standard", false)] {
        let one = |id: &str| {
            let arguments = json!({"prompt": "p", "capabilities": capabilities});
            tool_use(id, "task", &arguments.to_string())
        };
        let slow = || says("part").delay(Duration::from_millis(700));
        let model = FakeModel::start(vec![
            Answer::new(message([one("a"), one("b")])),
            slow(),
            slow(),
            says("end"),
        ]);
        let env = Env::new().at(&model.base_url());
        let start = Instant::now();
        env.kli(&["-p", "go"]).exits(0);
        let took = start.elapsed();
        assert_eq!(took < Duration::from_millis(1300), side_by_side, "{capabilities}: {took:?}");
        assert_eq!(results(model.bodies().last().unwrap()).len(), 2);
    }
}

#[test]
fn an_interrupt_ends_it_and_its_tools_and_the_session_goes_on() {
    let model = FakeModel::start(vec![
        task("c1", &json!({"prompt": "p"})),
        call("b1", "bash", &json!({"command": "sleep 300.20731"})),
        says("after"),
    ]);
    let env = Env::new().at(&model.base_url());
    let child = env.command(&["-p", "go", "--output-format", "json"]).spawn().unwrap();
    let pids = wait_for("the command", || {
        let found = processes_with("300.20731");
        (!found.is_empty()).then_some(found)
    });
    let start = Instant::now();
    kill(i32::try_from(child.id()).unwrap(), rustix::process::Signal::INT);
    let ran = Ran::from(child.wait_with_output().unwrap());
    let took = start.elapsed();
    ran.exits(130);
    assert!(took < Duration::from_secs(2), "{took:?}");
    assert!(!pids.is_empty() && processes_with("300.20731").is_empty(), "the tool is gone");
    assert_eq!(ran.json()["outcome"], "interrupted");
    env.kli(&["-p", "more", "-c"]).exits(0);
    let (text, is_error) = {
        let body = model.bodies().pop().unwrap();
        let messages = body["messages"].as_array().unwrap().clone();
        let block = messages.iter().find_map(|m| {
            m["content"].as_array()?.iter().find(|b| b["type"] == "tool_result").cloned()
        });
        let block = block.unwrap();
        (block["content"].to_string(), block["is_error"].clone())
    };
    assert!(text.contains("interrupted") && is_error == json!(true), "{text}");
}
