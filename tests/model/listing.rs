//! `kli models`, and levels of effort from the command line to the wire.

use serde_json::{Value, json};

use crate::{
    fake_model::{Answer, FakeModel, Wire, text, thinking, tool_use},
    harness::Env,
};

fn listed(env: &Env) -> Value {
    env.kli(&["models", "--json"]).exits(0).json()
}

#[track_caller]
fn row<'a>(report: &'a Value, name: &str) -> &'a Value {
    let rows = report["models"].as_array().unwrap();
    let found: Vec<&Value> = rows.iter().filter(|row| row["model"] == name).collect();
    assert_eq!(found.len(), 1, "{name} is there once: {report}");
    found[0]
}

#[test]
fn models_are_listed_with_what_is_known_and_what_is_set_and_no_key_is_shown() {
    let key = "sk-test-0123456789abcdef";
    let env = Env::new().var("ANTHROPIC_API_KEY", key);
    env.settings(
        r#"{ "model": "fast", "models": { "fast": ["mine/small", "openai/gpt-5-mini"] }, "effort": "high",
             "providers": {
               "anthropic": { "models": { "claude-sonnet-4-5": { "contextWindow": 1000000 } } },
               "broken": { "kind": "openai-chat", "models": { "m": {} } },
               "mine": { "kind": "openai-chat", "baseUrl": "http://127.0.0.1:9/v1", "models": {
                 "small": { "contextWindow": 32000, "maxOutput": 4000, "efforts": ["low"], "effort": "low",
                            "price": { "input": 0.25, "output": 2 } } } } } }"#,
    );
    let report = listed(&env);
    assert_eq!(report["type"], "models");
    assert_eq!(
        report["chosen"],
        json!({"model": "mine/small", "from": "user settings", "alias": "fast",
            "fallbacks": ["openai/gpt-5-mini"], "effort": "low"})
    );
    assert_eq!(
        report["aliases"],
        json!([{"name": "fast", "model": "mine/small", "fallbacks": ["openai/gpt-5-mini"],
            "from": "user settings"}])
    );
    assert_eq!(
        *row(&report, "mine/small"),
        json!({"model": "mine/small", "kind": "openai-chat", "contextWindow": 32000,
            "maxOutput": 4000, "efforts": ["low"], "chosen": true,
            "price": {"input": 0.25, "output": 2, "cacheRead": 0.25, "cacheWrite": 0.25},
            "key": {"needed": false, "found": false, "from": null}})
    );
    let mini = row(&report, "openai/gpt-5-mini");
    assert_eq!(mini["kind"], "openai");
    assert_eq!((&mini["contextWindow"], &mini["price"]), (&json!(400_000), &Value::Null));
    assert_eq!(mini["efforts"], json!(["minimal", "low", "medium", "high"]));
    assert_eq!(mini["key"], json!({"needed": true, "found": false, "from": null}));
    let sonnet = row(&report, "anthropic/claude-sonnet-4-5");
    assert_eq!(
        (&sonnet["contextWindow"], &sonnet["maxOutput"]),
        (&json!(1_000_000), &json!(64_000))
    );
    let from = json!({"needed": true, "found": true, "from": "the variable `ANTHROPIC_API_KEY`"});
    assert_eq!(sonnet["key"], from);
    let problem = row(&report, "broken/m")["problem"].as_str().unwrap().to_owned();
    assert!(problem.contains("provider `broken` has no address"), "{problem}");
    let chosen = report["models"].as_array().unwrap().iter().filter(|row| row["chosen"] == true);
    assert_eq!(chosen.count(), 1);
    assert!(!report.to_string().contains(key));

    let ran = env.kli(&["models"]);
    let text = ran.exits(0).out.clone();
    assert!(!text.contains(key), "{text}");
    let line = |start: &str| {
        text.lines()
            .find(|line| line.starts_with(start))
            .unwrap_or_else(|| panic!("{text}"))
            .to_owned()
    };
    let words: Vec<String> = line("*").split_whitespace().map(str::to_owned).collect();
    assert_eq!(words, ["*", "mine/small", "32000", "4000", "low", "0.25/2", "not", "needed"]);
    assert_eq!(
        line("alias"),
        "alias fast: mine/small, then openai/gpt-5-mini (from user settings)"
    );
    assert_eq!(line("chosen"), "chosen: mine/small (from user settings, as `fast`, effort low)");
}

#[test]
fn without_settings_the_default_is_chosen_and_said_to_be_one() {
    let report = listed(&Env::new());
    assert_eq!(report["chosen"]["model"], "anthropic/claude-sonnet-4-5");
    assert_eq!(report["chosen"]["from"], "default");
    assert_eq!(row(&report, "replay/demo")["key"]["needed"], false);
    assert_eq!(row(&report, "openai/gpt-5.6")["kind"], "openai");
    // Behind another address stands a server that is compatible, which speaks the older API.
    let env = Env::new().var("OPENAI_BASE_URL", "http://127.0.0.1:9/v1");
    let report = listed(&env);
    assert_eq!(row(&report, "openai/gpt-5.6")["kind"], "openai-chat");
    env.settings(&Wire::Responses.settings());
    assert_eq!(row(&listed(&env), "openai/gpt-5.6")["kind"], "openai");
}

/// A provider of each format with one model that has levels and one that nobody knows.
fn providers(wire: Wire, fake: &FakeModel) -> String {
    let models = json!({"set": {"efforts": ["low", "high"]}});
    let mine = json!({"kind": wire.kind_name(), "baseUrl": fake.url(wire), "models": models});
    json!({"providers": {"mine": mine}}).to_string()
}

#[test]
fn an_effort_reaches_models_that_have_it_and_is_left_out_elsewhere_with_a_notice() {
    for wire in Wire::ALL {
        let fake = FakeModel::strict(vec![Answer::new(wire.answer([text("ok")])); 4]);
        let env = Env::new();
        env.settings(&providers(wire, &fake));
        let run = |model: &str, effort: &[&str]| {
            let model = format!("mine/{model}");
            env.kli(&[&["-p", "hi", "--model", &model][..], effort].concat())
        };
        let ran = run("set", &["--effort", "high"]);
        assert_eq!(ran.exits(0).err.matches("effort").count(), 0, "{ran:?}");
        run("set", &["--effort", "max"])
            .exits(0)
            .says("`mine/set` has no effort `max`: it is asked with `high` instead");
        run("unheard-of", &["--effort", "high"])
            .exits(0)
            .says("`mine/unheard-of` has no levels of effort that are known: `high` is left out")
            .says("`providers.mine.models.unheard-of.efforts` names them");
        assert_eq!(run("set", &[]).exits(0).err.matches("effort").count(), 0);
        let bodies = fake.bodies();
        let level = |body: &Value| match wire {
            Wire::Messages => body["output_config"]["effort"].clone(),
            Wire::Chat => body["reasoning_effort"].clone(),
            Wire::Responses => body["reasoning"]["effort"].clone(),
        };
        let levels: Vec<Value> = bodies.iter().map(level).collect();
        assert_eq!(levels, [json!("high"), json!("high"), Value::Null, Value::Null], "{wire:?}");
        for body in &bodies[2..] {
            for field in ["thinking", "output_config", "reasoning_effort", "reasoning"] {
                assert!(body.get(field).is_none(), "{field}: {body}");
            }
        }
    }
}

#[test]
fn the_stronger_layer_says_the_effort_and_of_one_layer_the_models_own() {
    let fake = FakeModel::strict(vec![Answer::new(Wire::Chat.answer([text("ok")])); 3]);
    let env = Env::new();
    let settings = |all: &str, one: Option<&str>| {
        let mut model = json!({"efforts": ["low", "medium", "high"]});
        if let Some(one) = one {
            model["effort"] = one.into();
        }
        let mine =
            json!({"kind": "openai-chat", "baseUrl": fake.url(Wire::Chat), "models": {"m": model}});
        env.settings(
            &json!({"model": "mine/m", "effort": all, "providers": {"mine": mine}}).to_string(),
        );
    };
    settings("low", None);
    env.kli(&["-p", "hi"]).exits(0);
    settings("low", Some("medium"));
    env.kli(&["-p", "hi"]).exits(0);
    env.kli(&["-p", "hi", "--effort", "high"]).exits(0);
    let levels: Vec<Value> =
        fake.bodies().iter().map(|body| body["reasoning_effort"].clone()).collect();
    assert_eq!(levels, ["low", "medium", "high"]);

    let levels = "the levels are `none`, `minimal`, `low`, `medium`, `high`, `xhigh`, `max`";
    env.kli(&["-p", "hi", "--effort", "hihg"])
        .exits(2)
        .says("--effort: unknown effort `hihg`, did you mean `high`?")
        .says(levels);
    env.settings(r#"{ "effort": "enormous" }"#);
    env.kli(&["-p", "hi"]).exits(2).says("unknown effort `enormous`").says(levels);
    assert_eq!(fake.requests().len(), 3, "nothing was sent");
}

/// A model with a budget for its thinking takes over a session in the middle of its calls.
#[test]
fn thinking_with_a_budget_is_asked_for_and_never_where_the_api_refuses_it() {
    let fake = FakeModel::strict(vec![
        Answer::new(
            Wire::Messages
                .answer([thinking("hm", "claude-sonnet-4-5:s"), tool_use("a", "list", "{}")]),
        ),
        // The other model makes a call without thinking.
        Answer::new(Wire::Messages.answer([tool_use("b", "list", "{}")])),
        Answer::new(Wire::Messages.answer([text("done")])),
    ]);
    let env = Env::new().var("ANTHROPIC_BASE_URL", &fake.base_url());
    let model = ["--model", "anthropic/claude-sonnet-4-5", "--effort", "low"];
    env.kli(&[&["-p", "hi"][..], &model].concat()).exits(0);
    let budgets: Vec<Value> =
        fake.bodies().iter().map(|body| body["thinking"]["budget_tokens"].clone()).collect();
    assert_eq!(budgets, [json!(4096), json!(4096), Value::Null]);
}
