use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{body, in_alphabet};
use crate::{
    message::{Arguments, Block, Message, Role, ToolCall, ToolResult},
    model::Request,
};

fn encode(messages: Vec<Message>) -> Value {
    let request = Request { messages, ..Request::default() };
    serde_json::from_slice(&body(&request, "m", "p/m", 5, &BTreeMap::new())).unwrap()
}

#[test]
fn an_empty_request_holds_no_empty_fields() {
    let text = body(&Request::default(), "m", "p/m", 5, &BTreeMap::new());
    assert_eq!(
        String::from_utf8(text).unwrap(),
        r#"{"model":"m","max_tokens":5,"stream":true,"messages":[]}"#
    );
}

#[test]
fn the_bytes_of_a_conversation_do_not_change_as_it_grows() {
    // What stays must stay byte for byte, but for the mark, or the provider's cache misses.
    let say = |text: &str| Message::user(text);
    let reply = |text: &str| Message {
        role: Role::Assistant,
        blocks: vec![Block::Text { text: text.into() }],
    };
    let mut request = Request { messages: vec![say("a")], ..Request::default() };
    let first = String::from_utf8(body(&request, "m", "p/m", 5, &BTreeMap::new())).unwrap();
    request.messages.extend([reply("b"), say("c")]);
    let second = String::from_utf8(body(&request, "m", "p/m", 5, &BTreeMap::new())).unwrap();
    let unmarked = first.replace(r#","cache_control":{"type":"ephemeral"}"#, "");
    assert_ne!(first, unmarked);
    assert!(second.starts_with(unmarked.trim_end_matches("]}")), "{second}");
}

#[test]
fn a_result_is_marked_when_it_is_last() {
    let call = ToolCall { id: "a".into(), name: "n".into(), arguments: Arguments::parse("") };
    let result = ToolResult { call: "a".into(), text: "x".into(), is_error: false };
    let messages = vec![
        Message::user("go"),
        Message { role: Role::Assistant, blocks: vec![Block::Call(call)] },
        Message { role: Role::User, blocks: vec![Block::Result(result)] },
    ];
    assert_eq!(
        encode(messages)["messages"][2]["content"],
        json!([{"type": "tool_result", "tool_use_id": "a", "content": "x",
                "cache_control": {"type": "ephemeral"}}])
    );
}

#[test]
fn a_request_without_tools_still_declares_those_of_its_history() {
    let call = ToolCall { id: "a".into(), name: "re ad".into(), arguments: Arguments::parse("") };
    let body = encode(vec![
        Message::user("go"),
        Message { role: Role::Assistant, blocks: vec![Block::Call(call.clone())] },
        Message { role: Role::Assistant, blocks: vec![Block::Call(call)] },
    ]);
    assert_eq!(
        body["tools"],
        json!([{"name": "re_ad", "description": "Not available any more.",
                "input_schema": {"type": "object"}}])
    );
    assert_eq!(body["tool_choice"], json!({"type": "none"}));
}

#[test]
fn names_are_brought_into_the_apis_alphabet() {
    assert_eq!(in_alphabet("read_result-2"), "read_result-2");
    assert_eq!(in_alphabet("re ad/ä"), "re_ad__");
    assert_eq!(in_alphabet(""), "_");
    assert_eq!(in_alphabet(&"x".repeat(300)).len(), 128);
}
