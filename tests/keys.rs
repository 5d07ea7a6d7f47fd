//! Keys: where they come from, in which order, and where they are not: no child, no session, no
//! output and no error shows one.

mod launcher;
mod redaction;
mod scan;
mod sources;
mod store;

use serde_json::{Value, json};

use crate::fake_model::{Answer, message, text, tool_use};

fn says(words: &str) -> Answer {
    Answer::new(message([text(words)]))
}

fn call(id: &str, name: &str, arguments: &Value) -> Answer {
    Answer::new(message([tool_use(id, name, &arguments.to_string())]))
}

/// The results that a request carries in its last message: call, text, whether it is an error.
fn results(body: &Value) -> Vec<(String, String, bool)> {
    let last = body["messages"].as_array().unwrap().last().unwrap();
    let blocks = last["content"].as_array().unwrap();
    blocks
        .iter()
        .filter(|block| block["type"] == "tool_result")
        .map(|block| {
            let content = &block["content"];
            let text = content.as_str().map_or_else(
                || content[0]["text"].as_str().unwrap_or_default().to_owned(),
                str::to_owned,
            );
            let error = block["is_error"].as_bool().unwrap_or(false);
            (block["tool_use_id"].as_str().unwrap().to_owned(), text, error)
        })
        .collect()
}

/// A value that stands nowhere else on the machine.
fn unique(start: &str) -> String {
    let random: String = std::iter::repeat_with(fastrand::alphanumeric).take(32).collect();
    format!("{start}-{random}-0")
}

/// What a launcher writes into the pipe.
fn handed_json(pairs: &[(&str, &str)]) -> String {
    let map: serde_json::Map<String, Value> =
        pairs.iter().map(|(name, value)| ((*name).to_owned(), json!(value))).collect();
    Value::Object(map).to_string()
}
