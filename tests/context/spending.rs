//! What sub-agents spend and were denied, whatever ends them: under budgets of money, cut off in the
//! middle of an answer, beside each other, and with a conversation of their own that gets too long.

use super::*;

/// Settings with a server whose tokens cost a millionth each.
fn priced(server: &FakeModel, more: &Value) -> Env {
    let env = Env::new();
    let price = json!({ "input": 1, "output": 1 });
    let mut settings = json!({
        "model": "one/a",
        "providers": { "one": { "kind": "anthropic", "baseUrl": server.base_url(),
                                "models": { "a": { "price": price } } } },
    });
    for (key, value) in more.as_object().unwrap() {
        settings[key] = value.clone();
    }
    env.settings(&settings.to_string());
    env
}

/// An answer whose request took so many tokens.
fn costing(tokens: u64, answer: &str) -> Answer {
    let own = "\"input_tokens\":12";
    assert!(answer.contains(own), "{answer}");
    Answer::new(answer.replace(own, &format!("\"input_tokens\":{tokens}")))
}

fn calls(id: &str, name: &str, arguments: &Value) -> String {
    message([tool_use(id, name, &arguments.to_string())])
}

fn task(id: &str, more: &Value) -> String {
    let mut arguments = json!({ "prompt": "p" });
    for (key, value) in more.as_object().unwrap() {
        arguments[key] = value.clone();
    }
    calls(id, "task", &arguments)
}

/// Tokens in a result.
fn tokens(result: &Value) -> u64 {
    result["usage"].as_object().unwrap().values().map(|n| n.as_u64().unwrap()).sum()
}

fn cost(result: &Value) -> Option<u64> {
    result["cost"].as_f64().map(|cost| {
        let millionths = format!("{:.0}", cost * 1e6);
        millionths.parse().unwrap()
    })
}

fn stopped(env: &Env, ready: impl Fn() -> bool) -> Ran {
    let child = env.command(&["-p", "go", "--output-format", "json"]).spawn().unwrap();
    wait_for("the moment to stop", || ready().then_some(()));
    kill(i32::try_from(child.id()).unwrap(), rustix::process::Signal::INT);
    Ran::from(child.wait_with_output().unwrap())
}

#[test]
fn a_budget_of_money_counts_the_sub_agents_and_stops_them() {
    let reads = |n: u64| calls(&format!("r{n}"), "read", &json!({ "path": ".", "start": n }));
    let mut script = vec![costing(100, &task("c1", &json!({ "max_turns": 100 })))];
    script.extend((1..40).map(|n| costing(200, &reads(n))));
    let server = FakeModel::start(script.clone());
    let env = priced(&server, &json!({ "budgets": { "cost": 0.001 } }));
    let ran = env.kli(&["-p", "go", "--output-format", "json"]);
    ran.exits(5).says("the budget of 0.001 is used up");
    let result = ran.json();
    assert_eq!(result["outcome"], "budget");
    let requests = server.requests().len();
    // One of 100 and some of its answer, and as many of 200 as it takes.
    assert!((5..=6).contains(&requests), "{requests}");
    assert_eq!(cost(&result), Some(tokens(&result)), "each token is a millionth");
    assert!(tokens(&result) >= 1000 && tokens(&result) < 1000 + 2 * 220, "{result}");
    assert_eq!(result["turns"], 1, "the parent is not asked once more");
    // Its session says why it ended.
    let sessions: Vec<Vec<Value>> = env.sessions().iter().map(|file| lines(file)).collect();
    let child = sessions.iter().find(|lines| lines[0]["task"] == json!(true)).unwrap();
    assert_eq!(child.last().unwrap()["type"], "end");
    assert_ne!(child.last().unwrap()["outcome"], "ok");
    // Control: with more money it goes on to the end.
    script.truncate(6);
    script.extend([Answer::new(message([text("part")])), Answer::new(message([text("all")]))]);
    let server = FakeModel::start(script);
    let env = priced(&server, &json!({ "budgets": { "cost": 1 } }));
    let ran = env.kli(&["-p", "go", "--output-format", "json"]);
    assert_eq!((&ran.exits(0).json()["text"], server.requests().len()), (&json!("all"), 8));
    assert_eq!(cost(&ran.json()), Some(tokens(&ran.json())));
}

#[test]
fn one_that_is_cut_off_in_an_answer_leaves_a_cost_that_is_not_known() {
    let thoughts = crate::fake_model::thinking("Hm, let me see.", "a:sig");
    let answer = message([thoughts, text("some words that come one after the other")]);
    let place = |part: &str| answer.find(part).unwrap();
    let after = |part: &str| place(part) + answer[place(part)..].find("\n\n").unwrap() + 2;
    let (thought, said) = (after("thinking_delta"), after("text_delta"));
    for (cut, known) in [(0, true), (thought, false), (said, false)] {
        let script = vec![
            costing(100, &task("c1", &json!({}))),
            Answer::new(answer.clone()).hang_after(cut),
        ];
        let server = FakeModel::start(script);
        let env = priced(&server, &json!({}));
        let ran = stopped(&env, || {
            let asked = server.requests().len() == 2;
            if asked {
                // What has come is read by then; nothing outside tells so.
                std::thread::sleep(Duration::from_millis(300));
            }
            asked
        });
        let result = ran.exits(130).json();
        assert_eq!(cost(&result).is_some(), known, "{cut}: {result}");
    }
}

#[test]
fn one_that_is_cut_off_tells_what_it_used_and_was_denied() {
    let write = || costing(50, &calls("w", "write", &json!({ "path": "x", "content": "x" })));
    let sleep = || costing(50, &calls("b", "bash", &json!({ "command": "sleep 300.20733" })));
    let more = json!({ "capabilities": "process/exec,file/read" });
    let server = FakeModel::start(vec![costing(100, &task("c1", &more)), write(), sleep()]);
    let env = priced(&server, &json!({}));
    let ran = stopped(&env, || !processes_with("300.20733").is_empty());
    let result = ran.exits(130).json();
    assert!(processes_with("300.20733").is_empty());
    assert!(!env.work().join("x").exists());
    let denied = result["denied"].as_array().unwrap();
    assert_eq!(denied.len(), 1, "{result}");
    assert!(denied[0]["detail"].as_str().unwrap().starts_with("in a sub-agent: "), "{result}");
    assert!(tokens(&result) >= 200 && cost(&result) == Some(tokens(&result)), "{result}");
    // The session has it as well.
    let sessions: Vec<Vec<Value>> = env.sessions().iter().map(|file| lines(file)).collect();
    let parent = sessions.iter().find(|lines| lines[0].get("task").is_none()).unwrap();
    assert_eq!(parent.iter().filter(|line| line["type"] == "denied").count(), 1);
}

#[test]
fn what_one_spends_that_nobody_can_count_stops_those_beside_it_under_a_budget_of_money() {
    // The first one's answer says no tokens; the second would work on for long.
    let uncounted = {
        let answer = message([text("part")]);
        let usage = answer.find("\"usage\"").unwrap();
        let end = usage + answer[usage..].find('}').unwrap() + 1;
        let answer = format!("{}{}", &answer[..usage], &answer[end..]).replace(",}", "}");
        let second = answer.find("\"usage\"").map(|at| {
            let end = at + answer[at..].find('}').unwrap() + 1;
            format!("{}{}", &answer[..at], &answer[end..]).replace(",}", "}")
        });
        second.unwrap_or(answer)
    };
    let more = json!({ "prompt": "p", "capabilities": "file/read", "max_turns": 100 });
    let both = ["a", "b"].map(|id| tool_use(id, "task", &more.to_string()));
    let server = {
        let turns = std::sync::atomic::AtomicU64::new(0);
        FakeModel::answering(move |seen| {
            let body = seen.json();
            let number = turns.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            match number {
                0 => costing(10, &message(both.clone())),
                1 => Answer::new(uncounted.clone()),
                _ if told(&body) == ["go"] => Answer::new(message([text("end")])),
                _ => {
                    let arguments = json!({ "path": ".", "start": number });
                    costing(10, &calls(&format!("r{number}"), "read", &arguments))
                        .delay(Duration::from_millis(100))
                }
            }
        })
    };
    let env = priced(&server, &json!({ "budgets": { "cost": 1 } }));
    let ran = env.kli(&["-p", "go", "--output-format", "json"]);
    ran.exits(5).says("cannot be kept, as ");
    assert!(server.requests().len() <= 5, "{}", server.requests().len());
    assert_eq!(cost(&ran.json()), None);
}

#[test]
fn a_sub_agent_makes_its_own_conversation_shorter() {
    let is_for_a_summary = |body: &Value| body["tools"].as_array().is_none_or(Vec::is_empty);
    let turns = std::sync::atomic::AtomicUsize::new(0);
    let server = FakeModel::answering(move |seen| {
        let body = seen.json();
        let costing = |answer: String| {
            let tokens = u64::try_from(seen.body.len() / 4).unwrap();
            costing(tokens, &answer)
        };
        if is_for_a_summary(&body) {
            assert!(seen.body.windows(14).any(|part| part == b"the child's go"), "its prompt");
            return costing(message([text("## Goal\nthe child's goal, read on")]));
        }
        if !system(&body).contains("You are a sub-agent") {
            let is_first = told(&body) == ["go"] && !body.to_string().contains("tool_result");
            let arguments = json!({ "prompt": "the child's goal", "max_turns": 100 });
            return costing(if is_first {
                calls("c1", "task", &arguments)
            } else {
                message([text("all is done")])
            });
        }
        let turn = turns.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        let said = format!("Part {turn}. {}", "I look at the next part of the file. ".repeat(40));
        let arguments = json!({ "path": "part.txt", "end": 60 + turn });
        let read = tool_use(&format!("r{turn}"), "read", &arguments.to_string());
        costing(if turn < 40 { message([text(&said), read]) } else { message([text("read")]) })
    });
    let env = priced(&server, &json!({ "compaction": { "window": 12_000, "keep": 1000 } }));
    fs::write(env.work().join("part.txt"), "a line of some length\n".repeat(150)).unwrap();
    let ran = env.kli(&["-p", "go", "--output-format", "json"]);
    let result = ran.exits(0).json();
    assert_eq!((&result["text"], &result["turns"]), (&json!("all is done"), &json!(2)));
    assert_eq!(cost(&result), Some(tokens(&result)), "the summaries are counted as well");
    let sessions: Vec<Vec<Value>> = env.sessions().iter().map(|file| lines(file)).collect();
    let of = |lines: &[Value], kind: &str| lines.iter().filter(|l| l["type"] == kind).count();
    let child = sessions.iter().find(|lines| lines[0]["task"] == json!(true)).unwrap();
    let parent = sessions.iter().find(|lines| lines[0].get("task").is_none()).unwrap();
    assert!(of(child, "compaction") >= 2, "{}", of(child, "compaction"));
    assert!(child.iter().any(|line| line["summary"].is_string()));
    assert_eq!(
        (of(parent, "compaction"), of(parent, "message")),
        (0, 4),
        "its parent's is its own"
    );
    // The child's prompt is never lost, and no request is longer than the window.
    let bodies = server.bodies();
    let its = bodies
        .iter()
        .filter(|body| !is_for_a_summary(body) && system(body).contains("You are a sub-agent"));
    for body in its {
        assert!(told(body).iter().any(|text| text == "the child's goal"), "{body}");
        assert!(body.to_string().len() / 4 < 12_000);
    }
}
