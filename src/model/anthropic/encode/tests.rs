use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{Frame, Thinking, body, in_alphabet};
use crate::{
    message::{Arguments, Block, Effort, Message, Role, ToolCall, ToolResult},
    model::{Request, ToolSpec},
};

fn encode(messages: Vec<Message>) -> Value {
    let request = Request { messages, ..Request::default() };
    serde_json::from_slice(&bytes(&request)).unwrap()
}

fn bytes(request: &Request) -> Vec<u8> {
    asked(request, None, 5)
}

fn asked(request: &Request, thinking: Option<Thinking>, max_tokens: u64) -> Vec<u8> {
    let options = BTreeMap::new();
    body(request, Frame { model: "m", name: "p/m", max_tokens, thinking, options: &options })
}

#[test]
fn an_empty_request_holds_no_empty_fields() {
    let text = bytes(&Request::default());
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
    let first = String::from_utf8(bytes(&request)).unwrap();
    request.messages.extend([reply("b"), say("c")]);
    let second = String::from_utf8(bytes(&request)).unwrap();
    let bare = |text: &str| text.replace(r#","cache_control":{"type":"ephemeral"}"#, "");
    assert_ne!(first, bare(&first));
    assert!(bare(&second).starts_with(bare(&first).trim_end_matches("]}")), "{second}");
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

#[test]
fn tools_system_and_the_last_two_turns_are_marked_and_nothing_else() {
    let tool = |name: &str| ToolSpec {
        name: name.into(),
        description: "d".into(),
        schema: json!({"type": "object"}),
    };
    let reply = |text: &str| Message {
        role: Role::Assistant,
        blocks: vec![Block::Text { text: text.into() }],
    };
    let say = |text: &str| Message::user(text);
    let request = Request {
        system: "s".into(),
        tools: vec![tool("a"), tool("b")],
        messages: vec![say("1"), reply("2"), say("3"), reply("4"), say("5")],
        max_tokens: None,
    };
    let sent: Value = serde_json::from_slice(&bytes(&request)).unwrap();
    let mark = json!({"type": "ephemeral"});
    let marked = |value: &Value| value["cache_control"] == mark;
    assert_eq!(sent.to_string().matches("cache_control").count(), 4);
    assert!(marked(&sent["tools"][1]) && marked(&sent["system"][0]), "{sent}");
    assert!(marked(&sent["messages"][2]["content"][0]), "{sent}");
    assert!(marked(&sent["messages"][4]["content"][0]), "{sent}");
}

#[test]
fn a_budget_fits_the_answer_and_is_left_out_where_the_api_refuses_it() {
    let call = ToolCall { id: "a".into(), name: "n".into(), arguments: Arguments::parse("") };
    let result = ToolResult { call: "a".into(), text: "x".into(), is_error: false };
    let thought = json!({"type": "thinking", "thinking": "t", "signature": "s"});
    let messages = |model: &str| {
        let opaque = Block::Opaque { model: model.into(), value: thought.clone() };
        vec![
            Message::user("go"),
            Message { role: Role::Assistant, blocks: vec![opaque, Block::Call(call.clone())] },
            Message { role: Role::User, blocks: vec![Block::Result(result.clone())] },
        ]
    };
    let sent = |model: &str, thinking, most| -> Value {
        let request = Request { messages: messages(model), ..Request::default() };
        serde_json::from_slice(&asked(&request, Some(thinking), most)).unwrap()
    };
    let budget = Thinking::Budget(10_000);
    let own = sent("p/m", budget, 32_000);
    assert_eq!(own["thinking"], json!({"type": "enabled", "budget_tokens": 10_000}));
    assert_eq!(sent("p/m", budget, 4096)["thinking"]["budget_tokens"], 2048);
    assert!(sent("p/m", budget, 2000).get("thinking").is_none(), "no room for the least budget");
    assert!(sent("p/other", budget, 32_000).get("thinking").is_none(), "calls of another model");
    let adaptive = sent("p/other", Thinking::Adaptive(Effort::Max), 32_000);
    assert_eq!(adaptive["thinking"], json!({"type": "adaptive"}));
    assert_eq!(adaptive["output_config"], json!({"effort": "max"}));
    let level = sent("p/other", Thinking::Level(Effort::Low), 32_000);
    assert_eq!((level.get("thinking"), &level["output_config"]["effort"]), (None, &json!("low")));
}
