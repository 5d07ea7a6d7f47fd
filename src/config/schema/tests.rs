use serde_json::{Value, json};

use crate::config::{
    Layer, Policy, Settings,
    keys::{self, Key, Shape},
    policy_schema, settings_schema,
};

/// A value of each shape that is accepted, and one that is not.
fn samples(shape: Shape) -> (Value, Value) {
    match shape {
        Shape::Text => (json!("x"), json!(5)),
        Shape::Model => (json!("a/b"), json!("a b")),
        Shape::Models => (json!(["a/b", "a/c"]), json!([])),
        Shape::ModelPatterns => (json!(["a/*"]), json!(["a"])),
        Shape::OneOf(words) => (json!(words[0]), json!("no such word")),
        Shape::Path => (json!("~/x"), json!("x")),
        Shape::Address => (json!("https://example.com/api"), json!("example.com")),
        Shape::Addresses => (json!(["http://127.0.0.1:1"]), json!(["ftp://x"])),
        Shape::Variable => (json!("A_1"), json!("1-A")),
        Shape::Duration => (json!("1h30m"), json!("90")),
        Shape::Count => (json!(1), json!(0)),
        Shape::Money => (json!(2.5), json!(0)),
        Shape::Price => (json!(0.25), json!(-1)),
        Shape::Efforts => (json!(["low", "max"]), json!(["hihg"])),
        Shape::Flag => (json!(true), json!("true")),
        Shape::Capabilities => {
            (json!(["file/read", { "atom": "file/write", "under": ["x"] }]), json!(["file/raed"]))
        }
        Shape::Texts => (json!(["bash"]), json!("bash")),
        Shape::Words => (json!(["pass", "show", "key"]), json!("pass show key")),
        Shape::Variables => (json!(["A"]), json!(["A=B"])),
        Shape::TextMap => (json!({ "A": "b" }), json!({ "A": 1 })),
        Shape::AnyMap => (json!({ "a": [1, null] }), json!([])),
        Shape::Object | Shape::Named | Shape::NamedFreely => (json!({}), json!([])),
        Shape::Looks => (json!({ "error": "bold red" }), json!({ "eror": "red" })),
        Shape::Bindings => {
            (json!({ "undo": ["ctrl-x"], "redo": "alt-x" }), json!({ "udno": "ctrl-x" }))
        }
        Shape::Settings => (json!({ "denyTools": ["bash"] }), json!({ "profile": "print" })),
        Shape::Later => (json!({}), Value::Null),
    }
}

/// Returns a document that sets one key alone.
fn document(key: &Key, value: Value) -> Value {
    key.name.replace("NAME", "some").rsplit('.').fold(value, |inner, name| json!({ name: inner }))
}

fn read_settings(document: &Value) -> Result<bool, String> {
    Settings::parse("s", document.to_string().as_bytes(), Layer::User)
        .map(|(_, warnings)| warnings.is_empty())
        .map_err(|error| error.to_string())
}

#[test]
fn the_reader_and_the_schema_know_the_same_keys_and_values() {
    let schema = jsonschema::draft202012::new(&settings_schema()).unwrap();
    for key in keys::SETTINGS {
        let (good, bad) = samples(key.shape);
        let good = document(key, good);
        assert!(schema.is_valid(&good), "{good}");
        if key.shape == Shape::Later {
            assert_eq!(read_settings(&good), Ok(false), "{}: said, not unknown", key.name);
            continue;
        }
        assert_eq!(read_settings(&good), Ok(true), "{good}");
        let bad = document(key, bad);
        assert!(!schema.is_valid(&bad), "the schema takes {bad}");
        assert!(read_settings(&bad).is_err(), "the reader takes {bad}");
        // One letter more is no key of either.
        let odd = Key { name: Box::leak(format!("{}zzzzzzzz", key.name).into_boxed_str()), ..*key };
        if !odd.name.contains("NAMEz") {
            let odd = document(&odd, samples(key.shape).0);
            assert!(!schema.is_valid(&odd), "{odd}");
            assert_ne!(read_settings(&odd), Ok(true), "{odd}");
        }
    }
    // Every default is a value that its key takes.
    for key in keys::SETTINGS.iter().filter(|key| !key.default.is_empty()) {
        let default = document(key, serde_json::from_str(key.default).unwrap());
        assert!(schema.is_valid(&default) && read_settings(&default) == Ok(true), "{default}");
    }
}

#[test]
fn the_reader_and_the_schema_of_a_policy_agree() {
    let schema = jsonschema::draft202012::new(&policy_schema()).unwrap();
    let read = |document: &Value| Policy::parse("p", document.to_string().as_bytes()).is_ok();
    for key in keys::POLICY {
        let (good, bad) = samples(key.shape);
        let (good, bad) = (document(key, good), document(key, bad));
        assert!(schema.is_valid(&good) && read(&good), "{good}");
        assert!(!schema.is_valid(&bad) && !read(&bad), "{bad}");
    }
    for odd in [json!({ "model": "a/b" }), json!({ "x": 1 })] {
        assert!(!schema.is_valid(&odd) && !read(&odd), "{odd}");
    }
}

#[test]
fn documented_examples_are_valid_and_mistakes_are_not() {
    let schema = jsonschema::draft202012::new(&settings_schema()).unwrap();
    let mut checked = 0;
    for document in [
        include_str!("../../../docs/settings.md"),
        include_str!("../../../docs/authority.md"),
        include_str!("../../../docs/replay.md"),
        include_str!("../../../docs/terminal.md"),
    ] {
        for language in ["```json\n", "```jsonc\n"] {
            for block in document.split(language).skip(1) {
                let block = block.split("```").next().unwrap();
                let value = crate::config::plain("block", block.as_bytes()).unwrap();
                assert!(schema.is_valid(&value), "{block}");
                checked += 1;
            }
        }
    }
    assert!(checked >= 3, "control: {checked} examples");
    for bad in [
        json!([]),
        json!({ "capabilites": [] }),
        json!({ "capabilities": false }),
        json!({ "capabilities": ["file/write", { "atom": "file/read", "under": ["x"] }] }),
        json!({ "budgets": { "turns": 1.5 } }),
        json!({ "providers": { "a/b": {} } }),
        json!({ "profiles": { "p": { "settings": { "profiles": {} } } } }),
        json!({ "bash": { "timeout": 90 } }),
    ] {
        assert!(!schema.is_valid(&bad), "{bad}");
        assert_ne!(read_settings(&bad), Ok(true), "control: {bad}");
    }
}
