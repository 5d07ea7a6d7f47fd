//! The JSON schema of a settings file and of a policy file, made from the table of keys.

use serde_json::{Map, Value, json};

use crate::{
    display::{ACTIONS, Role},
    message::{Effort, MOST_PRICE},
};

use super::{
    display::MOST_KEYS,
    keys::{self, Key, Shape},
    values,
};

/// Returns the schema (JSON Schema 2020-12) of a settings file.
pub fn settings_schema() -> Value {
    schema("kli settings", keys::SETTINGS)
}

/// Returns the schema (JSON Schema 2020-12) of a policy file.
pub fn policy_schema() -> Value {
    schema("kli policy", keys::POLICY)
}

/// Returns a schema as its file holds it: indented, with a line break at the end.
pub fn schema_text(schema: &Value) -> String {
    format!("{schema:#}\n")
}

fn schema(title: &str, table: &'static [Key]) -> Value {
    let mut root = object(table, "");
    if let Value::Object(map) = &mut root {
        map.insert("$schema".into(), "https://json-schema.org/draft/2020-12/schema".into());
        map.insert("title".into(), title.into());
    }
    root
}

fn object(table: &'static [Key], parent: &str) -> Value {
    let properties: Map<String, Value> = keys::below(table, parent)
        .into_iter()
        .map(|key| (key.leaf().to_owned(), value(table, key)))
        .collect();
    json!({ "type": "object", "properties": properties, "additionalProperties": false })
}

fn value(table: &'static [Key], key: &Key) -> Value {
    let mut schema = shape(table, key);
    if let Value::Object(map) = &mut schema {
        map.insert("description".into(), key.about.into());
        if let Ok(default) = serde_json::from_str::<Value>(key.default) {
            map.insert("default".into(), default);
        }
    }
    schema
}

fn shape(table: &'static [Key], key: &Key) -> Value {
    const MODEL: &str = r"^[A-Za-z0-9._-]+/[^\s]+$";
    const VARIABLE: &str = "^[A-Za-z_][A-Za-z0-9_]*$";
    const ADDRESS: &str = r"^(https?://[^\s/?#@:][^\s?#@]*|unix:(//)?(/|~/)[^\s?#]+)$";
    let text = |pattern: &str| json!({ "type": "string", "pattern": pattern });
    match key.shape {
        Shape::Text => json!({ "type": "string" }),
        Shape::Model => text(r"^[A-Za-z0-9._-]+(/[^\s]+)?$"),
        Shape::Models => json!({ "oneOf": [
            text(MODEL),
            { "type": "array", "items": text(MODEL), "minItems": 1 },
        ] }),
        Shape::ModelPatterns => json!({ "type": "array", "items": text(MODEL) }),
        Shape::OneOf(words) => json!({ "type": "string", "enum": words }),
        Shape::Path => text("^(/|~/)"),
        Shape::Address => text(ADDRESS),
        Shape::Addresses => json!({ "type": "array", "items": text(ADDRESS) }),
        Shape::Variable => text(VARIABLE),
        Shape::Duration => text(r"^\s*([0-9]+h)?([0-9]+m)?([0-9]+s)?([0-9]+ms)?\s*$"),
        Shape::Count => json!({ "type": "integer", "minimum": 1, "maximum": values::MOST }),
        Shape::Money => {
            json!({ "type": "number", "exclusiveMinimum": 0, "maximum": 1_000_000_000 })
        }
        Shape::Price => json!({ "type": "number", "minimum": 0, "maximum": MOST_PRICE }),
        Shape::Efforts => {
            json!({ "type": "array", "items": { "type": "string", "enum": Effort::NAMES } })
        }
        Shape::Flag => json!({ "type": "boolean" }),
        Shape::Capabilities => capabilities(),
        Shape::Texts => json!({ "type": "array", "items": { "type": "string", "minLength": 1 } }),
        Shape::Words => json!({ "type": "array", "minItems": 1, "items": { "type": "string" } }),
        Shape::Variables => json!({ "type": ["array", "null"], "items": text(VARIABLE) }),
        Shape::TextMap => json!({ "type": "object", "additionalProperties": { "type": "string" } }),
        Shape::AnyMap => json!({ "type": "object" }),
        Shape::Object => object(table, key.name),
        Shape::Named | Shape::NamedFreely => {
            let name = format!("{}.NAME", key.name);
            let inner = match keys::find(table, &name) {
                Some(inner) => value(table, inner),
                None => object(table, &name),
            };
            let names = if key.shape == Shape::Named { "^[A-Za-z0-9._-]+$" } else { "" };
            json!({
                "type": "object",
                "propertyNames": { "pattern": names },
                "additionalProperties": inner,
            })
        }
        Shape::Looks => named(Role::names(), &json!({ "type": "string", "minLength": 1 })),
        Shape::Bindings => {
            let name = json!({ "type": "string", "minLength": 1 });
            let keys = json!({ "oneOf": [
                name,
                { "type": "array", "items": name, "maxItems": MOST_KEYS },
            ] });
            named(ACTIONS.iter().map(|action| action.name), &keys)
        }
        Shape::Settings => json!({
            "$ref": "#",
            "not": { "anyOf": [{ "required": ["profile"] }, { "required": ["profiles"] }] },
        }),
        Shape::Later => json!({}),
    }
}

/// An object of these names alone, each with a value of this schema.
fn named(names: impl Iterator<Item = &'static str>, value: &Value) -> Value {
    let properties: Map<String, Value> =
        names.map(|name| (name.to_owned(), value.clone())).collect();
    json!({ "type": "object", "properties": properties, "additionalProperties": false })
}

fn capabilities() -> Value {
    let atoms: Vec<String> =
        crate::authority::Atom::FIXED.iter().map(ToString::to_string).collect();
    let name = json!({ "anyOf": [
        { "enum": atoms },
        { "const": "tools/standard" },
        { "type": "string", "pattern": r"^mcp/[A-Za-z0-9_.-]+/(\*|[A-Za-z0-9_.-]+)$" },
    ] });
    let texts = json!({ "type": "array", "items": { "type": "string", "pattern": r"\S" } });
    let narrowed = |atoms: &[&str], key: &str| {
        json!({
            "type": "object",
            "properties": { "atom": { "enum": atoms }, key: texts },
            "required": ["atom", key],
            "additionalProperties": false,
        })
    };
    let bare = json!({
        "type": "object",
        "properties": { "atom": name },
        "required": ["atom"],
        "additionalProperties": false,
    });
    json!({ "oneOf": [
        name,
        { "type": "array", "items": { "anyOf": [
            name,
            bare,
            narrowed(&["file/write", "file/edit"], "under"),
            narrowed(&["process/exec"], "commands"),
        ] } },
    ] })
}

#[cfg(test)]
mod tests;
