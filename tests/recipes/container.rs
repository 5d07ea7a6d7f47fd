//! The dev container's description against the format's published schema. The engines themselves are
//! tried in a virtual machine, by `scripts/vm-test`.

use std::fs;

use serde_json::Value;

use crate::{harness::Env, jail::has};

/// `schemas/devContainer.base.schema.json` of the dev container specification (CC BY 4.0, Microsoft).
const SCHEMA: &str = include_str!("../fixtures/devcontainer/devContainer.base.schema.json");

/// Says what is wrong with a value by a schema; the words that the schema uses, and no others.
fn wrong(root: &Value, schema: &Value, value: &Value) -> Option<String> {
    let Value::Object(words) = schema else { return None };
    for (word, wanted) in words {
        let fault = match word.as_str() {
            "$ref" => {
                let place = wanted.as_str().unwrap().strip_prefix('#').unwrap();
                wrong(root, root.pointer(place).unwrap(), value)
            }
            "type" => {
                let is = |name: &Value| match name.as_str().unwrap() {
                    "object" => value.is_object(),
                    "array" => value.is_array(),
                    "string" => value.is_string(),
                    "boolean" => value.is_boolean(),
                    "integer" => value.is_i64() || value.is_u64(),
                    "number" => value.is_number(),
                    "null" => value.is_null(),
                    other => panic!("the schema has a type `{other}`"),
                };
                let fine =
                    wanted.as_array().map_or_else(|| is(wanted), |names| names.iter().any(is));
                (!fine).then(|| format!("{value} is no {wanted}"))
            }
            "enum" => (!wanted.as_array().unwrap().contains(value))
                .then(|| format!("{value} is not in {wanted}")),
            "required" => wanted
                .as_array()
                .unwrap()
                .iter()
                .find(|name| value.is_object() && value.get(name.as_str().unwrap()).is_none())
                .map(|name| format!("{name} is missing")),
            "properties" => wanted.as_object().unwrap().iter().find_map(|(name, schema)| {
                value
                    .get(name)
                    .and_then(|value| wrong(root, schema, value))
                    .map(|fault| format!("{name}: {fault}"))
            }),
            "additionalProperties" => {
                let known = words.get("properties").and_then(Value::as_object);
                value.as_object().into_iter().flatten().find_map(|(name, value)| {
                    if known.is_some_and(|known| known.contains_key(name)) {
                        None
                    } else if wanted == &Value::Bool(false) {
                        Some(format!("{name} is not known"))
                    } else {
                        wrong(root, wanted, value)
                    }
                })
            }
            "items" => {
                value.as_array().into_iter().flatten().find_map(|item| wrong(root, wanted, item))
            }
            "allOf" => {
                wanted.as_array().unwrap().iter().find_map(|schema| wrong(root, schema, value))
            }
            "anyOf" | "oneOf" => {
                let faults: Vec<_> = wanted
                    .as_array()
                    .unwrap()
                    .iter()
                    .map(|schema| wrong(root, schema, value))
                    .collect();
                let fitting = faults.iter().filter(|fault| fault.is_none()).count();
                let fine = if word == "anyOf" { fitting >= 1 } else { fitting == 1 };
                (!fine).then(|| format!("{fitting} of {word} fit {value}: {faults:?}"))
            }
            // Patterns are of values that kli does not write; the draft's `unevaluatedProperties` is
            // judged by `known` below.
            _ => None,
        };
        if fault.is_some() {
            return fault;
        }
    }
    None
}

/// Every property that a description may have, by the schema.
fn known(schema: &Value, names: &mut Vec<String>) {
    match schema {
        Value::Object(words) => {
            for (word, inner) in words {
                if word == "properties" {
                    names.extend(inner.as_object().unwrap().keys().cloned());
                } else {
                    known(inner, names);
                }
            }
        }
        Value::Array(list) => list.iter().for_each(|inner| known(inner, names)),
        _ => {}
    }
}

/// Judges a description; `None` is fine.
fn judged(description: &Value) -> Option<String> {
    let schema: Value = serde_json::from_str(SCHEMA).unwrap();
    let mut names = vec!["$schema".to_owned()];
    known(&schema, &mut names);
    description
        .as_object()
        .unwrap()
        .keys()
        .find(|name| !names.contains(name))
        .map(|name| format!("{name} is not known"))
        .or_else(|| wrong(&schema, &schema, description))
}

fn description(text: &str) -> Value {
    let body: Vec<&str> = text.lines().filter(|line| !line.starts_with("//")).collect();
    serde_json::from_str(&body.join("\n")).unwrap()
}

#[test]
fn the_description_keeps_to_the_published_schema() {
    let env = Env::new();
    fs::create_dir_all(env.work().join(".git/hooks")).unwrap();
    fs::write(env.work().join(".git/config"), "").unwrap();
    fs::write(env.work().join(".env"), "SECRET").unwrap();
    fs::create_dir(env.work().join("keys")).unwrap();
    fs::write(
        env.work().join("spec.json"),
        r#"{"network":false,"denyRead":["./.env","./keys","./absent","~/.aws"],"writablePaths":["@cargo"],
            "env":{"A":"b"},"limits":{"tasks":9,"memory":"1G","fileSize":5},"readOnlyPaths":["./keys"]}"#,
    )
    .unwrap();
    let mut seen = 0;
    for words in [&[][..], &["--spec", "spec.json"]] {
        let ran = env.kli(&[&["sandbox", "recipe", "devcontainer"], words].concat());
        ran.exits(0).says("--output .devcontainer");
        let made = description(&ran.out);
        assert_eq!(judged(&made), None);
        seen += made.as_object().unwrap().len();
        if !words.is_empty() {
            let mounts = made["mounts"].to_string();
            has(
                &mounts,
                &[
                    "source=${localWorkspaceFolder}/.devcontainer/empty,target=${localWorkspaceFolder}/.env,readonly",
                    "type=tmpfs,target=${localWorkspaceFolder}/keys,ro",
                    "target=${localWorkspaceFolder}/.git/hooks,readonly",
                    "target=${localWorkspaceFolder}/.devcontainer,readonly",
                    "target=/home/kli/.cargo/registry\"",
                ],
            );
            assert!(!mounts.contains("absent") && !mounts.contains(".aws"), "{mounts}");
            has(
                &made["runArgs"].to_string(),
                &["--network=none", "--cap-drop=ALL", "--pids-limit=9"],
            );
            has(&ran.out, &["//  - denyRead: "]);
        }
    }
    assert!(seen > 20);
    // The judge can refuse.
    let mut bad = description(&env.kli(&["sandbox", "recipe", "devcontainer"]).out);
    bad["shutdownAction"] = "never".into();
    assert!(judged(&bad).unwrap().contains("never"));
    bad["shutdownAction"] = "stopContainer".into();
    bad["runArgs"] = "--read-only".into();
    assert!(judged(&bad).is_some());
    bad["runArgs"] = serde_json::json!([]);
    bad["mouts"] = serde_json::json!([]);
    assert!(judged(&bad).unwrap().contains("mouts"));
}

#[test]
fn the_files_come_together_with_kli_itself_and_never_over_others() {
    let env = Env::new();
    let make = || env.kli(&["sandbox", "recipe", "devcontainer", "--output", ".devcontainer"]);
    make().exits(0).says("is made");
    let place = env.work().join(".devcontainer");
    let mut names: Vec<String> = fs::read_dir(&place)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(names, [".gitignore", "Dockerfile", "devcontainer.json", "empty", "kli"]);
    let own = fs::read(env!("CARGO_BIN_EXE_kli")).unwrap();
    assert!(fs::read(place.join("kli")).unwrap() == own, "the program is whole");
    fs::write(place.join("Dockerfile"), "mine").unwrap();
    make().exits(2).says("is there already");
    assert_eq!(fs::read_to_string(place.join("Dockerfile")).unwrap(), "mine");
    assert_eq!(fs::read_dir(env.work()).unwrap().count(), 1, "nothing is left beside it");
}
