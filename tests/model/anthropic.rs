//! What is the Messages API's own: the request's shape, what gateways leave out, stop reasons.

use std::io::{Read, Write};

use kli::{
    message::{Arguments, Block, Message, Role, Stop, ToolCall, ToolResult},
    model::{
        Delta, Request,
        catalogue::{Options, Secret, open},
    },
};
use serde_json::{Value, json};

use super::{HEADER, KEY, asked, block_on, collect, model, options};
use crate::fake_model::{Answer, FakeModel, Wire, event, message, message_stopped, text};

const WIRE: Wire = Wire::Messages;

#[test]
fn the_request_is_what_the_api_wants() {
    let fake = FakeModel::strict(vec![Answer::new(message([text("ok")]))]);
    let call = |id: &str, name: &str, arguments| {
        Block::Call(ToolCall { id: id.into(), name: name.into(), arguments })
    };
    let result = |call: &str, text: &str, is_error| {
        Block::Result(ToolResult { call: call.into(), text: text.into(), is_error })
    };
    let say = |text: &str| Block::Text { text: text.into() };
    let opaque = |model: &str, value| Block::Opaque { model: model.into(), value };
    let thought = json!({"type": "thinking", "thinking": "t", "signature": "claude-x:s"});
    let request = Request {
        system: "Be brief.".into(),
        tools: vec![kli::model::ToolSpec {
            name: "read".into(),
            description: "Reads.".into(),
            schema: json!({"type": "object"}),
        }],
        messages: vec![
            Message { role: Role::User, blocks: vec![say("do"), say("  ")] },
            Message { role: Role::User, blocks: vec![say("it")] },
            Message {
                role: Role::Assistant,
                blocks: vec![
                    opaque("anthropic/claude-x", thought.clone()),
                    opaque("anthropic/claude-y", json!({"type": "thinking", "signature": "y:s"})),
                    say(""),
                    call("a.1", "re ad", Arguments::parse("{\"path\": \"a")),
                    call("b", "read", Arguments::parse("{\"path\":\"b\"}")),
                ],
            },
            Message { role: Role::User, blocks: vec![say("and hurry"), result("a.1", "", true)] },
            Message { role: Role::User, blocks: vec![result("b", "", false)] },
            Message {
                role: Role::Assistant,
                blocks: vec![opaque("other/model", json!({"type": "thinking"}))],
            },
            Message { role: Role::User, blocks: vec![say("last")] },
        ],
        max_tokens: None,
    };
    let (_, error) = block_on(collect(&*model(WIRE, &fake), request));
    assert_eq!(error, None);
    let seen = &fake.requests()[0];
    assert_eq!(seen.line, "POST /v1/messages");
    assert_eq!(seen.header("x-api-key"), Some(KEY));
    assert_eq!(seen.header("x-gateway"), Some(HEADER));
    assert_eq!(seen.header("anthropic-version"), Some("2023-06-01"));
    assert_eq!(seen.header("accept"), Some("text/event-stream"));
    assert_eq!(
        seen.json(),
        json!({
            "model": "claude-x",
            "max_tokens": 8192,
            "stream": true,
            "system": [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}],
            "tools": [{"name": "read", "description": "Reads.", "input_schema": {"type": "object"},
                "cache_control": {"type": "ephemeral"}}],
            "messages": [
                {"role": "user", "content": [
                    {"type": "text", "text": "do"},
                    {"type": "text", "text": "it", "cache_control": {"type": "ephemeral"}}]},
                {"role": "assistant", "content": [
                    thought,
                    {"type": "tool_use", "id": "a_1", "name": "re_ad", "input": {}},
                    {"type": "tool_use", "id": "b", "name": "read", "input": {"path": "b"}}]},
                {"role": "user", "content": [
                    {"type": "tool_result", "tool_use_id": "a_1", "is_error": true,
                     "content": "failed without a message"},
                    {"type": "tool_result", "tool_use_id": "b"},
                    {"type": "text", "text": "and hurry"},
                    {"type": "text", "text": "last", "cache_control": {"type": "ephemeral"}}]},
            ],
        })
    );
}

#[test]
fn the_strict_fake_refuses_what_the_api_refuses() {
    let pair = |role: &str, content: Value| json!({"role": role, "content": content});
    let call = json!([{"type": "tool_use", "id": "a", "name": "read", "input": {}}]);
    let result = json!([{"type": "tool_result", "tool_use_id": "a", "content": "x"}]);
    let user = pair("user", json!("hi"));
    let cases = [
        (json!([user, pair("assistant", call.clone()), pair("user", result.clone())]), None),
        (json!([user, pair("assistant", call.clone()), user]), Some("without `tool_result`")),
        (json!([user, pair("assistant", call)]), Some("has no `tool_result`")),
        (json!([pair("user", result)]), Some("unexpected `tool_use_id`")),
        (json!([user, user]), Some("roles must alternate")),
        (json!([pair("user", json!([]))]), Some("must not be empty")),
        (json!([pair("user", json!([{"type": "text", "text": " "}]))]), Some("non-whitespace")),
    ];
    let fake = FakeModel::strict(vec![Answer::new(message([text("ok")]))]);
    let tools = json!([{"name": "read", "input_schema": {"type": "object"}}]);
    for (messages, expected) in cases {
        let body = json!({"model": "m", "max_tokens": 1, "stream": true, "tools": tools,
            "messages": messages});
        let (status, answer) = post(&fake, "/v1/messages", &body);
        match expected {
            None => assert_eq!(status, 200, "{answer}"),
            Some(words) => assert!(status == 400 && answer.contains(words), "{words}: {answer}"),
        }
        if expected == Some("has no `tool_result`") {
            let mut body = body;
            body["tools"] = json!([]);
            assert!(post(&fake, "/v1/messages", &body).1.contains("tools: required"));
        }
    }
}

/// A request by hand, so that the fake is tested without the code that it tests.
pub(in crate::model) fn post(fake: &FakeModel, path: &str, body: &Value) -> (u16, String) {
    let mut connection = std::net::TcpStream::connect(fake.address()).unwrap();
    let body = body.to_string();
    write!(
        connection,
        "POST {path} HTTP/1.1\r\nanthropic-version: x\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n\r\n{body}",
        body.len()
    )
    .unwrap();
    connection.shutdown(std::net::Shutdown::Write).unwrap();
    let mut answer = String::new();
    connection.read_to_string(&mut answer).unwrap();
    (answer[9..12].parse().unwrap(), answer)
}

#[test]
fn gateways_that_leave_things_out_are_understood() {
    let events = [
        json!({"type": "message_start", "message": {"id": "m7", "content": null, "usage": null}}),
        json!({"type": "content_block_start", "content_block": {"type": "text", "text": null}}),
        json!({"type": "content_block_delta", "delta": {"type": "text_delta", "text": "hi"}}),
        json!({"type": "content_block_delta", "delta": {"type": "text_delta", "text": null}}),
        json!({"type": "content_block_delta", "delta": null}),
        json!({"type": "content_block_delta", "delta": {"type": "citations_delta", "x": 1}}),
        json!({"type": "content_block_stop"}),
        json!({"type": "content_block_start", "content_block": {"type": "server_tool_use"}}),
        json!({"type": "content_block_stop"}),
        json!({"type": "content_block_start", "content_block":
            {"type": "tool_use", "name": "read", "input": {"path": "a"}, "extra": true}}),
        json!({"type": "something_new", "index": "odd"}),
        json!({"type": "message_delta", "delta": null, "usage": null}),
        json!({"type": "message_stop"}),
    ];
    let stream: String = events.iter().map(event).chain(["data: [DONE]\n\n".into()]).collect();
    let expected = vec![
        Delta::Text("hi".into()),
        Delta::Call { id: "m7_2".into(), name: "read".into(), arguments: r#"{"path":"a"}"#.into() },
        Delta::Done { stop: Stop::ToolUse, usage: None },
    ];
    for kind in ["text/event-stream; charset=utf-8", "application/json", "text/plain", ""] {
        let answer = Answer::new(stream.clone()).header("content-type", kind).every_byte();
        assert_eq!(asked(WIRE, answer), (expected.clone(), None), "{kind}");
    }
}

#[test]
fn stop_reasons_are_told_apart() {
    for (reason, stop) in [
        ("end_turn", Stop::EndTurn),
        ("stop_sequence", Stop::EndTurn),
        ("refusal", Stop::Refusal),
        ("model_context_window_exceeded", Stop::ContextFull),
        ("pause_turn", Stop::Other("pause_turn".into())),
    ] {
        let (deltas, _) = asked(WIRE, Answer::new(message_stopped([text("x")], reason)));
        assert!(
            matches!(deltas.last(), Some(Delta::Done { stop: found, .. }) if *found == stop),
            "{reason}: {deltas:?}"
        );
    }
}

#[test]
fn options_that_cannot_work_are_refused_before_anything_is_sent() {
    let said = |change: fn(&mut Options)| {
        let mut options = options(WIRE, "https://api.example");
        change(&mut options);
        let error = open(&options).unwrap_err();
        let shown = format!("{error} {error:?}");
        assert!(!shown.contains(KEY) && !shown.contains(HEADER), "{shown}");
        error.to_string()
    };
    assert_eq!(
        said(|o| o.base_url = Some("https://u:p@gw.example/anthropic/v1/?k=1".into())),
        "the base URL `https://gw.example/anthropic/v1/` of provider `anthropic` must end before \
         `/v1`: write `https://gw.example/anthropic`"
    );
    assert!(said(|o| o.base_url = Some("api.example".into())).contains("write `https://HOST`"));
    assert!(said(|o| o.base_url = Some("ftp://x".into())).contains("neither `http://HOST`"));
    assert!(said(|o| o.base_url = Some("unix:run/x.sock".into())).contains("write `unix:/PATH`"));
    assert_eq!(
        said(|o| {
            o.key = None;
            o.headers.clear();
        }),
        "provider `anthropic` at `api.example` needs a key and none was given"
    );
    assert!(said(|o| o.key = Some(Secret::new("a\nb"))).contains("holds a line break"));
    assert!(
        said(|o| o.headers.push(("a b".into(), Secret::new("x"))))
            .contains("the header `a b` of provider `anthropic` cannot be sent")
    );
    assert!(said(|o| o.headers.push(("Host".into(), Secret::new("x")))).contains("leave it out"));
}
