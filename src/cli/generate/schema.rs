//! The JSON schemas of what kli prints and reads.

use serde_json::{Value, json};

use crate::config::{policy_schema, schema_text, settings_schema};

use super::super::print::line;

/// Returns every schema: its name and its text.
pub(super) fn all() -> Vec<(&'static str, String)> {
    let schemas = [
        ("authority", authority()),
        (
            "events",
            titled(line::events_schema().to_value(), "a line of `--output-format stream-json`"),
        ),
        (
            "result",
            titled(line::result_schema().to_value(), "the object of `--output-format json`"),
        ),
    ];
    schemas
        .into_iter()
        .map(|(name, schema)| {
            // What was made from JSON can be printed.
            let mut text = serde_json::to_string_pretty(&schema).unwrap_or_default();
            text.push('\n');
            (name, text)
        })
        .chain([
            ("policy", schema_text(&policy_schema())),
            ("settings", schema_text(&settings_schema())),
        ])
        .collect()
}

fn titled(mut schema: Value, title: &str) -> Value {
    if let Some(object) = schema.as_object_mut() {
        object.insert("title".to_owned(), format!("kli: {title}").into());
    }
    schema
}

/// The report of `--print-authority --json`, as `docs/authority.md` describes it.
fn authority() -> Value {
    let texts = json!({ "type": "array", "items": { "type": "string" } });
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "kli: the report of `--print-authority --json`",
        "type": "object",
        "properties": {
            "type": { "const": "authority" },
            "scope": {
                "enum": ["universal", "universal-except", "bounded", "none"],
                "description": "Every capability, every one but those in `excluded`, those in `capabilities`, or none."
            },
            "capabilities": {
                "type": "array",
                "description": "What is held, with what bounds it; absent for `universal-except`.",
                "items": {
                    "type": "object",
                    "properties": {
                        "atom": { "type": "string" },
                        "constraint": { "type": "string", "description": "`any`, or the bound in words." }
                    },
                    "required": ["atom", "constraint"]
                }
            },
            "excluded": {
                "type": "array",
                "items": { "type": "string" },
                "description": "What is not held; only for `universal-except`."
            },
            "sources": texts,
            "notes": texts,
            "confinement": {
                "type": "string",
                "description": "`kli-sandbox`, `outer: …, unverified`, `none` or `unknown`."
            }
        },
        "required": ["type", "scope", "sources", "notes", "confinement"]
    })
}
