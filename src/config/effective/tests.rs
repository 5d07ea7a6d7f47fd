use std::path::PathBuf;

use super::*;
use crate::{authority::Request, config::Scope};

fn layer(text: &str, layer: Layer) -> Settings {
    Settings::parse("s", text.as_bytes(), layer).unwrap().0
}

fn user(text: &str) -> Layers {
    Layers { files: vec![layer(text, Layer::User)], default_profile: "print", ..Layers::default() }
}

fn subject(layers: Layers) -> Subject {
    layers.settle().unwrap().subject(|_, path| PathBuf::from("/ws").join(path))
}

#[test]
fn a_profile_of_ones_own_lies_over_the_files_and_under_the_flags() {
    let mut layers = user(
        r#"{ "profile": "night", "model": "a/b", "budgets": { "turns": 9, "tokens": 9 },
             "profiles": {
               "night": { "extends": "base", "settings": { "model": "a/c", "denyTools": ["bash"] } },
               "base": { "extends": "autonomous", "approve": "writes",
                         "settings": { "model": "a/d", "budgets": { "turns": 5 } } } } }"#,
    );
    layers.flags = layer(r#"{ "budgets": { "tokens": 7 } }"#, Layer::Flag);
    let effective = layers.clone().settle().unwrap();
    assert_eq!(effective.profile, "night");
    assert!(effective.needs_budget(), "autonomous is at the bottom");
    let settings = &effective.settings;
    assert_eq!(settings.model.get().unwrap().to_string(), "a/c", "the one that extends wins");
    assert_eq!(settings.model.layer(), Some(Layer::Profile));
    assert_eq!(settings.budgets.turns.get(), Some(&5));
    assert_eq!(settings.budgets.tokens.get(), Some(&7));
    assert_eq!(
        effective.budget_notes(),
        ["budget: at most 5 turns (from profile)", "budget: at most 7 tokens (from flag)"]
    );
    let subject = subject(layers);
    let sources: Vec<String> = subject.sources().map(ToString::to_string).collect();
    assert_eq!(sources, ["profile night", "profile base"]);
    assert!(!subject.offers("bash", &Atom::ProcessExec) && subject.holds(&Atom::ProcessExec));
    assert_eq!(subject.approval_policy(), Approve::Writes);
}

#[test]
fn profiles_and_aliases_that_do_not_exist_are_named_with_the_nearest() {
    for (text, parts) in [
        (
            r#"{ "profile": "reviw" }"#,
            &["unknown profile `reviw` (from user settings), did you mean `review`?", "`print`"][..],
        ),
        (
            r#"{ "profile": "a", "profiles": { "a": { "extends": "bb" }, "bbb": {} } }"#,
            &["unknown profile `bb` (from `extends` of the profile `a`), did you mean `bbb`?"],
        ),
        (
            r#"{ "profile": "a", "profiles": { "a": { "extends": "b" }, "b": { "extends": "a" } } }"#,
            &["the profiles `a`, `b` build on each other"],
        ),
        (
            r#"{ "profile": "a", "profiles": { "a": { "extends": "a" } } }"#,
            &["the profiles `a` build on each other"],
        ),
        (
            r#"{ "model": "fsat", "models": { "fast": "a/b" } }"#,
            &["`fsat` (from user settings) is no alias and names no model, did you mean `fast`?"],
        ),
        (r#"{ "model": "gpt" }"#, &["`gpt` (from user settings)", "write `PROVIDER/MODEL`"]),
    ] {
        let error = user(text).settle().unwrap_err().to_string();
        for part in parts {
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}

#[test]
fn an_alias_stands_for_its_model_and_keeps_its_fallbacks() {
    let effective =
        user(r#"{ "model": "m", "models": { "m": ["a/b", "c/d"] } }"#).settle().unwrap();
    assert_eq!(effective.settings.model.get().unwrap().to_string(), "a/b");
    assert_eq!(effective.settings.model.layer(), Some(Layer::User));
    assert_eq!(effective.fallbacks.len(), 1);
    // The flag's alias is looked up among those of the files.
    let mut layers = user(r#"{ "model": "x/y", "models": { "m": "a/b" } }"#);
    layers.flags = layer(r#"{ "model": "m" }"#, Layer::Flag);
    let effective = layers.settle().unwrap();
    assert_eq!(effective.settings.model.get().unwrap().to_string(), "a/b");
    assert_eq!(effective.settings.model.layer(), Some(Layer::Flag));
}

#[test]
fn a_policy_bounds_budgets_whoever_set_them() {
    let mut layers = user(r#"{ "budgets": { "turns": 100, "tokens": 5 } }"#);
    layers.flags = layer(r#"{ "budgets": { "turns": 200 } }"#, Layer::Flag);
    for text in [
        r#"{ "budgets": { "turns": 10, "tokens": 50 } }"#,
        r#"{ "budgets": { "turns": 20, "time": "1m" } }"#,
    ] {
        layers.policies.push(Policy::parse("p", text.as_bytes()).unwrap());
    }
    let budgets = layers.settle().unwrap().settings.budgets;
    assert_eq!((budgets.turns.get(), budgets.turns.layer()), (Some(&10), Some(Layer::Policy)));
    assert_eq!((budgets.tokens.get(), budgets.tokens.layer()), (Some(&5), Some(Layer::User)));
    assert_eq!(budgets.time.layer(), Some(Layer::Policy), "a bound where there was none");
}

#[test]
fn a_stranger_chooses_no_model_but_one_that_is_reached_anyway() {
    let known = layer(
        r#"{ "models": { "m": "work/x", "r": "replay/demo" },
             "providers": { "work": { "kind": "anthropic", "baseUrl": "https://w" },
                            "half": { "keyEnv": "K" },
                            "tape": { "kind": "replay", "file": "/x" } } }"#,
        Layer::User,
    );
    for (model, taken_out) in [
        ("anthropic/x", false),
        ("work/x", false),
        ("m", false),
        ("r", true),
        ("replay/demo", true),
        ("tape/x", true),
        ("half/x", true),
        ("nobody/x", true),
        ("nothing", true),
    ] {
        let text = format!("{{ \"model\": \"{model}\", \"denyTools\": [\"bash\"] }}");
        let parsed =
            Settings::parse_scoped("s", text.as_bytes(), Layer::Project, Scope::Project).unwrap();
        let mut settings = parsed.settings;
        assert_eq!(settings.drop_strange_model(&known), taken_out, "{model}");
        let left = settings.model.get().is_some() || settings.alias.get().is_some();
        assert_eq!(left, !taken_out, "{model}");
        assert_eq!(settings.deny_tools.len(), 1, "what narrows stays");
    }
    assert!(!Settings::default().drop_strange_model(&known), "none is none");
}

#[test]
fn a_project_chooses_among_the_providers_that_the_user_uses() {
    let aliases = r#"{ "models": { "m": ["work/x", "openai/y"] },
                       "providers": { "work": { "kind": "anthropic", "baseUrl": "https://w" } } }"#;
    for (known, model, taken_out) in [
        ("{}", "anthropic/x", false),
        ("{}", "openai/x", true),
        ("{}", "ollama/x", true),
        ("{}", "replay/x", true),
        (r#"{ "model": "openai/y" }"#, "openai/x", false),
        (r#"{ "model": "openai/y" }"#, "anthropic/x", true),
        (r#"{ "model": "m", "models": { "m": "ollama/y" } }"#, "ollama/x", false),
        (r#"{ "model": "m", "models": { "m": "ollama/y" } }"#, "anthropic/x", true),
        (
            r#"{ "providers": { "ollama": { "baseUrl": "http://127.0.0.1:1/v1" } } }"#,
            "ollama/x",
            false,
        ),
        (r#"{ "providers": { "ollama": {} } }"#, "ollama/x", false),
        (aliases, "work/z", false),
        (aliases, "openai/z", false),
        (aliases, "ollama/z", true),
        (aliases, "m", false),
    ] {
        let known = layer(known, Layer::User);
        let text = format!("{{ \"model\": \"{model}\" }}");
        let parsed =
            Settings::parse_scoped("s", text.as_bytes(), Layer::Project, Scope::Project).unwrap();
        let mut settings = parsed.settings;
        assert_eq!(settings.drop_foreign_model(&known, "anthropic"), taken_out, "{model}");
        let left = settings.model.get().is_some() || settings.alias.get().is_some();
        assert_eq!(left, !taken_out, "{model}");
    }
}

#[test]
fn a_scope_does_not_look_at_what_it_does_not_allow() {
    let text = br#"{ "providers": null, "bash": 3, "zzzzzzzz": [], "budgets": "x", "theme": "dark",
                     "context": ["A.md"], "mcpServers": { "x": { "command": "touch" } },
                     "denyTools": ["bash"], "capabilities": ["file/read"] }"#;
    let parsed = Settings::parse_scoped("s", text, Layer::Project, Scope::Project).unwrap();
    assert_eq!(parsed.ignored, ["providers", "bash", "zzzzzzzz", "budgets", "mcpServers"]);
    assert_eq!(parsed.warnings, []);
    assert_eq!(parsed.settings.capabilities.len(), 1);
    assert_eq!(parsed.settings.deny_tools.len(), 1);
    assert_eq!(parsed.settings.context.get().unwrap(), &["A.md"]);
    assert_eq!(parsed.settings.theme.get().unwrap(), "dark");
    let rest = Settings {
        capabilities: Vec::new(),
        deny_tools: Vec::new(),
        theme: Setting::default(),
        context: Setting::default(),
        ..parsed.settings
    };
    assert_eq!(rest, Settings::default());
    assert!(Settings::parse("s", text, Layer::User).is_err(), "control: the whole of it is wrong");

    let text =
        br#"{ "capabilities": [], "providers": {}, "model": "anthropic/x", "effort": "low" }"#;
    let parsed = Settings::parse_scoped("s", text, Layer::Display, Scope::Display).unwrap();
    assert_eq!(parsed.ignored, ["capabilities", "providers"]);
    assert!(parsed.settings.capabilities.is_empty());
    assert_eq!(parsed.settings.model.layer(), Some(Layer::Display));
    assert_eq!(parsed.settings.effort.layer(), Some(Layer::Display));
}

#[test]
fn what_a_layer_denies_is_denied_in_its_name() {
    let mut layers = user(r#"{ "denyTools": ["bash"] }"#);
    layers.policies.push(
        Policy::parse("p", br#"{ "denyTools": ["bash", "write"], "approve": "all" }"#).unwrap(),
    );
    let subject = subject(layers);
    let denial = subject.check_tool("bash", &Atom::ProcessExec).unwrap_err().to_string();
    assert_eq!(
        denial,
        "denied: the tool `bash` is denied by `denyTools` (asked for by user settings)"
    );
    let denial = subject.check_tool("write", &Atom::FileWrite).unwrap_err().to_string();
    assert!(denial.ends_with("(asked for by policy)"), "{denial}");
    assert!(subject.check_tool("read", &Atom::FileRead).is_ok(), "control");
    let denial = subject.check(Request::bare(Atom::FileRead)).unwrap_err().to_string();
    assert!(
        denial.contains("needs approval (`approve` is `all`)") && denial.contains("policy"),
        "{denial}"
    );
}
