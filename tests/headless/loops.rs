//! Fallbacks, budgets of money and loops, as whole runs show them.

use super::*;

pub(super) fn two(first: &FakeModel, second: &FakeModel, more: &Value) -> Value {
    let mut settings = json!({
        "model": "m",
        "models": { "m": ["one/a", "two/b"] },
        "providers": {
            "one": { "kind": "anthropic", "baseUrl": first.base_url(),
                     "models": { "a": { "price": { "input": 3, "output": 15 } } } },
            "two": { "kind": "anthropic", "baseUrl": second.base_url(),
                     "models": { "b": { "price": { "input": 1, "output": 5 } } } },
        },
    });
    for (key, value) in more.as_object().unwrap() {
        settings[key] = value.clone();
    }
    settings
}

fn busy() -> Answer {
    Answer::status(529).header("retry-after-ms", "0")
}

#[test]
fn the_next_model_is_asked_visibly_and_the_result_and_the_session_name_it() {
    let first = FakeModel::strict((0..5).map(|_| busy()).collect());
    let second = FakeModel::strict(vec![bash("echo hi"), says("done")]);
    let env = Env::new();
    env.settings(&two(&first, &second, &json!({})).to_string());
    let ran = env.kli(&["-p", "hi", "--output-format", "stream-json"]);
    ran.exits(0).says("`two/b` is asked in the place of `one/a`");
    let lines = checked(&ran.out);
    let fallbacks: Vec<&Value> = lines.iter().filter(|line| line["type"] == "fallback").collect();
    assert_eq!(fallbacks.len(), 1);
    assert_eq!((&fallbacks[0]["from"], &fallbacks[0]["to"]), (&json!("one/a"), &json!("two/b")));
    let result = lines.last().unwrap();
    assert_eq!((&result["model"], &result["turns"]), (&json!("two/b"), &json!(2)));
    assert_eq!((first.requests().len(), second.requests().len()), (5, 2));
    assert!(result["cost"].as_f64().unwrap() > 0.0);
    let session = env.session();
    let usages: Vec<&Value> = session.iter().filter(|line| line["type"] == "usage").collect();
    assert!(usages.len() == 2 && usages.iter().all(|line| line["model"] == "two/b"), "{usages:?}");
}

#[test]
fn a_refused_key_asks_nobody_else() {
    let first = FakeModel::start(vec![Answer::refusal(401, "authentication_error", "bad key")]);
    let second = FakeModel::strict(vec![says("done")]);
    let env = Env::new();
    env.settings(&two(&first, &second, &json!({})).to_string());
    let ran = env.kli(&["-p", "hi", "--output-format", "json"]);
    ran.exits(4);
    assert_eq!(ran.json()["error"]["kind"], "auth");
    assert!(second.requests().is_empty());
}

#[test]
fn a_fallback_that_cannot_be_asked_is_left_out_with_a_notice() {
    let first = FakeModel::strict(vec![says("done")]);
    let second = FakeModel::strict(Vec::new());
    let env = Env::new();
    let mut settings = two(&first, &second, &json!({}));
    settings["providers"]["two"]["keyEnv"] = json!("NO_SUCH_KEY");
    env.settings(&settings.to_string());
    env.kli(&["-p", "hi"])
        .exits(0)
        .says("`two/b` is not asked in the place of `one/a`: the variable `NO_SUCH_KEY`");
    settings["providers"]["one"]["keyEnv"] = json!("NO_SUCH_KEY");
    env.settings(&settings.to_string());
    env.kli(&["-p", "hi"]).exits(4).says("NO_SUCH_KEY");
}

#[test]
fn a_budget_of_money_ends_a_run_and_wants_a_price() {
    let first = FakeModel::strict(vec![bash("touch made"), says("never")]);
    let second = FakeModel::strict(Vec::new());
    let env = Env::new();
    env.settings(&two(&first, &second, &json!({ "budgets": { "cost": 0.0001 } })).to_string());
    let ran = env.kli(&["-p", "hi", "--output-format", "json"]);
    ran.exits(5).says("the budget of 0.0001 is used up");
    let result = ran.json();
    assert_eq!(result["outcome"], "budget");
    assert!(result["cost"].as_f64().unwrap() >= 0.0001, "{result}");
    assert_eq!(first.requests().len(), 1);
    assert!(!env.work().join("made").exists());

    let mut settings = two(&first, &second, &json!({ "budgets": { "cost": 100 } }));
    settings["providers"]["one"]["models"] = json!({});
    env.settings(&settings.to_string());
    let ran = env.kli(&["-p", "hi"]);
    ran.exits(2).says("set `input` and `output` of `providers.one.models.a.price`");
    assert_eq!(first.requests().len(), 1, "nothing was sent");
    // Control: with the price it runs.
    env.settings(&two(&first, &second, &json!({ "budgets": { "cost": 100 } })).to_string());
    env.kli(&["-p", "hi"]).exits(0);
}

#[test]
fn the_same_call_with_the_same_result_ends_the_run() {
    let server = FakeModel::strict((0..6).map(|_| bash("echo again; echo x >> marks")).collect());
    let env = Env::new().at(&server.base_url());
    let ran = env.kli(&["-p", "hi", "--output-format", "json"]);
    ran.exits(1).says("it was told");
    let message = ran.json()["error"]["message"].as_str().unwrap().to_owned();
    assert!(message.contains("the same calls 5 times in a row"), "{message}");
    let marks = std::fs::read_to_string(env.work().join("marks")).unwrap();
    assert_eq!(marks.lines().count(), 5);
    let told = |number: usize| server.bodies()[number]["messages"].to_string();
    assert!(!told(2).contains("[kli: you made") && told(3).contains("[kli: you made"));
    // Control: what a command prints changes, so it is no loop.
    let script = (0..6).map(|_| bash("date +%N")).chain([says("done")]).collect();
    let server = FakeModel::strict(script);
    let env = Env::new().at(&server.base_url());
    env.kli(&["-p", "hi"]).exits(0);
}
