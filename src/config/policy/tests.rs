use crate::config::{Layer, ModelName, Policy, Provider, Settings};

fn parse(text: &str) -> Result<Policy, String> {
    Policy::parse("/p/policy.json", text.as_bytes()).map_err(|error| error.to_string())
}

#[test]
fn every_key_is_read() {
    let policy = parse(
        r#"{ "capabilities": ["file/read"], "denyTools": ["bash"], "approve": "all",
             "budgets": { "turns": 3, "time": "1m" }, "allowedModels": ["a/*", "b/c"],
             "allowedAddresses": ["https://a/"], "trustProjects": false, "requireSandbox": true }"#,
    )
    .unwrap();
    assert_eq!(policy.capabilities.unwrap().entries.len(), 1);
    assert_eq!(policy.deny_tools, ["bash"]);
    assert_eq!(policy.approve.name(), "all");
    assert_eq!(policy.budgets.turns.layer(), Some(Layer::Policy));
    assert!(!policy.trust_projects && policy.require_sandbox);
    assert_eq!(parse("{}").unwrap(), Policy::default());
}

#[test]
fn what_is_not_understood_as_a_whole_is_an_error() {
    for (text, part) in [
        ("", "/p/policy.json:1:1: the policy is empty; write `{}`"),
        ("// nothing\n", "the policy is empty"),
        ("[]", "expected an object"),
        ("{ \"capabilites\": [] }", "`capabilites`: unknown key, did you mean `capabilities`?"),
        ("{ \"zzzzzzzz\": 1 }", "/p/policy.json:1:3: `zzzzzzzz`: unknown key; mend or remove it"),
        ("{ \"providers\": {} }", "`providers`: unknown key"),
        ("{ \"model\": \"a/b\" }", "`model`: unknown key"),
        ("{ \"budgets\": { \"money\": 1 } }", "`budgets.money`: unknown key"),
        ("{ \"denyTools\": null }", "`denyTools`: expected an array of strings, found null"),
        ("{ \"trustProjects\": \"no\" }", "expected `true` or `false`"),
        ("{ \"allowedModels\": [\"sonnet\"] }", "`sonnet` names no model"),
        ("{ \"allowedAddresses\": [\"example.com\"] }", "does not start with `https://`"),
    ] {
        let error = parse(text).unwrap_err();
        assert!(error.contains(part), "{text}: {error}");
    }
}

#[test]
fn models_and_addresses_are_bound() {
    let policy = parse(
        r#"{ "allowedModels": ["anthropic/*", "work/big"], "allowedAddresses": ["https://api.anthropic.com"] }"#,
    )
    .unwrap();
    let (settings, _) = Settings::parse(
        "s",
        br#"{ "providers": { "work": { "kind": "anthropic", "baseUrl": "https://else" } } }"#,
        Layer::User,
    )
    .unwrap();
    let permits = |name: &str| {
        let name: ModelName = name.parse().unwrap();
        let provider = settings.provider(&name.provider).unwrap();
        policy.permits(&name, &provider).map_err(|error| error.to_string())
    };
    assert_eq!(permits("anthropic/any"), Ok(()));
    assert_eq!(
        permits("replay/demo").unwrap_err(),
        "the policy does not allow the model `replay/demo`; it allows `anthropic/*`, `work/big`"
    );
    assert!(permits("work/small").unwrap_err().contains("does not allow the model `work/small`"));
    // The right name at another address.
    assert!(permits("work/big").unwrap_err().contains("address of the provider `work`"));
    let none = parse(r#"{ "allowedAddresses": [] }"#).unwrap();
    let demo: ModelName = "replay/demo".parse().unwrap();
    assert!(none.permits(&demo, &Provider::Replay { file: None }).is_ok(), "it goes nowhere");
    let open = Policy::default();
    assert!(open.permits(&demo, &settings.provider("work").unwrap()).is_ok(), "control");
}
