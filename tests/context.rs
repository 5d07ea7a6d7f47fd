//! What a run tells the model beside the prompt: context files, mentions, what replaces and extends
//! the system prompt, and sub-agents.

mod files;
mod mentions;
mod spending;
mod system;
mod tasks;

use std::{
    fs,
    os::unix::fs::symlink,
    path::Path,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use crate::{
    fake_model::{Answer, FakeModel, message, text, tool_use},
    harness::{Env, Ran, lines, processes_with, wait_for},
    jail::kill,
};

fn says(words: &str) -> Answer {
    Answer::new(message([text(words)]))
}

fn call(id: &str, name: &str, arguments: &Value) -> Answer {
    Answer::new(message([tool_use(id, name, &arguments.to_string())]))
}

/// The system prompt of a request.
fn system(body: &Value) -> String {
    match &body["system"] {
        Value::String(text) => text.clone(),
        Value::Array(blocks) => {
            blocks.iter().map(|block| block["text"].as_str().unwrap()).collect()
        }
        other => panic!("no system prompt: {other}"),
    }
}

/// The texts that the person's side of a request says, results left out, in order.
fn told(body: &Value) -> Vec<String> {
    let users = body["messages"].as_array().unwrap().iter().filter(|m| m["role"] == "user");
    users
        .flat_map(|message| match &message["content"] {
            Value::String(text) => vec![text.clone()],
            blocks => blocks
                .as_array()
                .unwrap()
                .iter()
                .filter(|block| block["type"] == "text")
                .map(|block| block["text"].as_str().unwrap().to_owned())
                .collect(),
        })
        .collect()
}

/// The results in the last message of a request: text, and whether it is an error.
fn results(body: &Value) -> Vec<(String, bool)> {
    let last = body["messages"].as_array().unwrap().last().unwrap();
    let blocks = last["content"].as_array().unwrap().iter();
    blocks
        .filter(|block| block["type"] == "tool_result")
        .map(|block| {
            let content = &block["content"];
            let text = content.as_str().or_else(|| content[0]["text"].as_str()).unwrap_or_default();
            (text.to_owned(), block["is_error"].as_bool().unwrap_or(false))
        })
        .collect()
}

fn put(path: &Path, content: impl AsRef<[u8]>) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, content).unwrap();
}

fn repository(env: &Env) {
    fs::create_dir_all(env.work().join(".git")).unwrap();
}
