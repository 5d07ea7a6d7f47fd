//! What is Responses' own: the request's shape, what servers leave out and add, how answers end.

use kli::{
    message::{Arguments, Block, Effort, Message, Role, Stop, ToolCall, ToolResult, Usage},
    model::{
        Class, Delta, Request, ToolSpec,
        catalogue::{Options, open},
    },
};
use serde_json::{Value, json};

use super::{
    HEADER, KEY, anthropic::post, ask, asked, block_on, collect, failed, joined, model, options,
};
use crate::fake_model::{Answer, FakeModel, Wire, event, text, tool_use};

const WIRE: Wire = Wire::Responses;

fn result(call: &str, text: &str, is_error: bool) -> Block {
    Block::Result(ToolResult { call: call.into(), text: text.into(), is_error })
}

fn say(text: &str) -> Block {
    Block::Text { text: text.into() }
}

fn opaque(model: &str, value: Value) -> Block {
    Block::Opaque { model: model.into(), value }
}

fn thought(secret: &str) -> Value {
    json!({"id": "rs_1", "type": "reasoning", "status": null, "summary": [],
        "encrypted_content": secret})
}

#[test]
fn the_request_is_what_the_api_wants() {
    let fake = FakeModel::strict(vec![Answer::new(WIRE.answer([text("ok")]))]);
    let call = |id: &str, name: &str, arguments| {
        Block::Call(ToolCall { id: id.into(), name: name.into(), arguments })
    };
    let request = Request {
        system: "Be brief.".into(),
        tools: vec![ToolSpec {
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
                    opaque("anthropic/x", json!({"type": "thinking", "signature": "y:s"})),
                    opaque("openai/claude-x", thought("claude-x:own")),
                    opaque("openai/claude-y", thought("claude-y:other")),
                    say(""),
                    call("a.1", "re ad", Arguments::parse("{\"path\": \"a")),
                    call("b", "read", Arguments::parse("{\"path\":\"b\"}")),
                    // An answer that broke off in the middle of its thinking.
                    opaque("openai/claude-x", thought("claude-x:alone")),
                ],
            },
            Message { role: Role::User, blocks: vec![say("and hurry"), result("a.1", "", true)] },
            Message { role: Role::User, blocks: vec![result("b", "", false)] },
            Message { role: Role::Assistant, blocks: vec![say("one")] },
            Message { role: Role::User, blocks: vec![say("last")] },
        ],
        max_tokens: Some(9),
    };
    // The results of one answer are in one message, as the agent makes them.
    let mut request = request;
    let late = request.messages.remove(4).blocks;
    request.messages[3].blocks.extend(late);
    let mut options = options(WIRE, &fake.url(WIRE));
    options.effort = Some(Effort::High);
    options.efforts = Some(vec![Effort::Low, Effort::High]);
    options.options.insert("temperature".into(), json!(0));
    let (_, error) = block_on(collect(&*open(&options).unwrap(), request));
    assert_eq!(error, None);
    let seen = &fake.requests()[0];
    assert_eq!(seen.line, "POST /v1/responses");
    assert_eq!(seen.header("authorization"), Some(&*format!("Bearer {KEY}")));
    assert_eq!(seen.header("x-gateway"), Some(HEADER));
    let body = seen.json();
    let changed = body["input"][2]["call_id"].clone();
    let name = body["input"][2]["name"].clone();
    assert!(changed.as_str().unwrap().starts_with("a_1_"), "{changed}");
    assert!(name.as_str().unwrap().starts_with("re_ad_"), "{name}");
    assert!(body["prompt_cache_key"].as_str().unwrap().starts_with("kli-"), "{body}");
    let said = |role: &str, kind: &str, texts: &[&str]| {
        let parts: Vec<Value> =
            texts.iter().map(|text| json!({"type": kind, "text": text})).collect();
        json!({"type": "message", "role": role, "content": parts})
    };
    let called = |id: &Value, name: &Value, arguments: &str| json!({"type": "function_call", "call_id": id, "name": name, "arguments": arguments});
    assert_eq!(
        body,
        json!({
            "model": "claude-x",
            "instructions": "Be brief.",
            "stream": true,
            "store": false,
            "include": ["reasoning.encrypted_content"],
            "prompt_cache_key": body["prompt_cache_key"],
            "max_output_tokens": 9,
            "temperature": 0,
            "reasoning": {"effort": "high", "summary": "auto"},
            "tools": [{"type": "function", "name": "read", "description": "Reads.",
                "parameters": {"type": "object"}, "strict": false}],
            "input": [
                said("user", "input_text", &["do", "it"]),
                {"type": "reasoning", "summary": [], "encrypted_content": "claude-x:own"},
                called(&changed, &name, "{}"),
                called(&json!("b"), &json!("read"), "{\"path\":\"b\"}"),
                {"type": "function_call_output", "call_id": changed,
                 "output": "error: failed without a message"},
                {"type": "function_call_output", "call_id": "b", "output": "(no output)"},
                said("user", "input_text", &["and hurry"]),
                said("assistant", "output_text", &["one"]),
                said("user", "input_text", &["last"]),
            ],
        })
    );
}

#[test]
fn the_cache_key_stays_as_a_conversation_grows_and_differs_from_anothers() {
    let answers = vec![Answer::new(WIRE.answer([text("ok")])); 3];
    let fake = FakeModel::strict(answers);
    let model = model(WIRE, &fake);
    let reply = Message { role: Role::Assistant, blocks: vec![say("yes")] };
    block_on(async {
        for messages in [
            vec![Message::user("a")],
            vec![Message::user("a"), reply, Message::user("b")],
            vec![Message::user("b")],
        ] {
            let request = Request { messages, ..Request::default() };
            assert_eq!(collect(&*model, request).await.1, None);
        }
    });
    let keys: Vec<Value> =
        fake.bodies().iter().map(|body| body["prompt_cache_key"].clone()).collect();
    assert!(keys[0] == keys[1] && keys[0] != keys[2], "{keys:?}");
}

#[test]
fn the_strict_fake_refuses_what_the_api_refuses() {
    let user = json!({"type": "message", "role": "user",
        "content": [{"type": "input_text", "text": "hi"}]});
    let call = json!({"type": "function_call", "call_id": "a", "name": "read", "arguments": "{}"});
    let output = json!({"type": "function_call_output", "call_id": "a", "output": "x"});
    let own = json!({"type": "reasoning", "summary": [], "encrypted_content": "m:x"});
    let other = json!({"type": "reasoning", "summary": [], "encrypted_content": "n:x"});
    let kept = json!({"type": "reasoning", "id": "rs_1", "summary": []});
    let fake = FakeModel::strict(vec![Answer::new(WIRE.answer([text("ok")]))]);
    for (input, expected) in [
        (json!([user, own, call, output]), None),
        (json!([user, call]), Some("No tool output found")),
        (json!([user, output]), Some("No tool call found")),
        (json!([user, call, call, output]), Some("Duplicate item")),
        (json!([user, other, call, output]), Some("could not be verified")),
        (json!([user, kept, call, output]), Some("not found")),
        (json!([user, own, user]), Some("without its required following item")),
        (json!([user, own]), Some("without its required following item")),
        (json!([{"type": "message", "role": "user", "content": []}]), Some("bad content")),
        (json!([]), Some("must be provided")),
    ] {
        let body = json!({"model": "m", "stream": true, "store": false, "prompt_cache_key": "k",
            "include": ["reasoning.encrypted_content"], "input": input});
        let (status, answer) = post(&fake, "/v1/responses", &body);
        match expected {
            None => assert_eq!(status, 200, "{answer}"),
            Some(words) => assert!(status == 400 && answer.contains(words), "{words}: {answer}"),
        }
    }
}

fn end(response: &Value) -> String {
    event(&json!({"type": "response.completed", "response": response}))
}

#[test]
fn servers_that_leave_things_out_are_understood() {
    let call = json!({"type": "function_call", "name": "read", "arguments": {"path": "a"}});
    let events = [
        json!({"type": "response.created", "response": {"id": "r7"}}),
        json!({"type": "response.something_new", "output_index": "odd", "delta": 7}),
        json!({"type": "response.output_item.added", "item": {"type": "message"}}),
        json!({"type": "response.output_text.delta", "delta": "hi"}),
        json!({"type": "response.output_text.delta", "delta": null}),
        json!({"type": "response.output_text.delta"}),
        json!({"type": "response.output_item.done", "item": {"type": "message", "content": null}}),
        json!({"type": "response.output_item.added", "item": {"type": "web_search_call"}}),
        json!({"type": "response.output_item.done", "item": {"type": "web_search_call"}}),
        json!({"type": "response.output_item.done", "item": call}),
        json!({"type": "response.completed", "response": {"id": "r7", "usage": null}}),
    ];
    let stream: String = events.iter().map(event).chain(["data: [DONE]\n\n".into()]).collect();
    let expected = vec![
        Delta::Text("hi".into()),
        Delta::Call {
            id: "call_0_r7".into(),
            name: "read".into(),
            arguments: r#"{"path":"a"}"#.into(),
        },
        Delta::Done { stop: Stop::ToolUse, usage: None },
    ];
    for kind in ["text/event-stream; charset=utf-8", "application/json", "text/plain", ""] {
        let answer = Answer::new(stream.clone()).header("content-type", kind).every_byte();
        assert_eq!(asked(WIRE, answer), (expected.clone(), None), "{kind}");
    }
    // With the other API's end mark and no end of its own.
    let marked = stream.replace("response.completed", "response.unheard");
    assert_eq!(asked(WIRE, Answer::new(marked)), (expected, None));
}

#[test]
fn an_answer_in_one_piece_or_at_its_end_alone_is_read() {
    let response = json!({"id": "r", "object": "response", "status": "completed", "error": null,
        "output": [
            {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}],
             "encrypted_content": "x"},
            {"type": "message", "content": [{"type": "output_text", "text": "a"},
                                            {"type": "output_text", "text": "b"}]},
            {"type": "function_call", "call_id": "c", "name": "read", "arguments": "{}"}],
        "usage": {"input_tokens": 9, "output_tokens": 2,
                  "input_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 3}}});
    let usage =
        Usage { input_tokens: 2, output_tokens: 2, cache_read_tokens: 4, cache_write_tokens: 3 };
    let expected = vec![
        Delta::Thinking("hm".into()),
        Delta::Opaque(response["output"][0].clone()),
        Delta::Text("ab".into()),
        Delta::Call { id: "c".into(), name: "read".into(), arguments: "{}".into() },
        Delta::Done { stop: Stop::ToolUse, usage: Some(usage) },
    ];
    for answer in
        [Answer::body(200, "application/json", response.to_string()), Answer::new(end(&response))]
    {
        let (deltas, error) = asked(WIRE, answer);
        assert_eq!((joined(&deltas), error), (expected.clone(), None));
    }
}

#[test]
fn answers_end_for_the_reason_that_they_give() {
    let ended = |status: &str, reason: Value| {
        let response = json!({"status": status, "incomplete_details": {"reason": reason},
            "output": [{"type": "message", "content": [{"type": "output_text", "text": "x"}]}]});
        let event = event(&json!({"type": format!("response.{status}"), "response": response}));
        match asked(WIRE, Answer::new(event)) {
            (deltas, None) => match deltas.last() {
                Some(Delta::Done { stop, .. }) => stop.clone(),
                other => panic!("{other:?}"),
            },
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(ended("completed", Value::Null), Stop::EndTurn);
    assert_eq!(ended("incomplete", json!("max_output_tokens")), Stop::MaxTokens);
    assert_eq!(ended("incomplete", json!("content_filter")), Stop::Refusal);
    assert_eq!(ended("incomplete", json!("new")), Stop::Other("new".into()));
    assert_eq!(ended("incomplete", Value::Null), Stop::MaxTokens);
    let refusal = [
        event(&json!({"type": "response.refusal.delta", "delta": "No."})),
        end(&json!({"status": "completed"})),
    ];
    let (deltas, error) = asked(WIRE, Answer::new(refusal.concat()));
    let stop = Delta::Done { stop: Stop::Refusal, usage: None };
    assert_eq!((deltas, error), (vec![Delta::Text("No.".into()), stop], None));
}

#[test]
fn a_response_that_failed_has_its_class() {
    for (code, message, class) in [
        ("server_error", "The server had an error", Class::Retry { after: None }),
        ("rate_limit_exceeded", "Rate limit reached", Class::Retry { after: None }),
        ("server_is_overloaded", "Try again later", Class::Retry { after: None }),
        ("context_length_exceeded", "Your input exceeds the window", Class::ContextFull),
        ("insufficient_quota", "You exceeded your current quota", Class::Refused),
        ("invalid_prompt", "Invalid prompt", Class::Refused),
        ("surprise", "Something else", Class::Fatal),
    ] {
        let error = json!({"code": code, "message": message});
        let failed_event = event(&json!({"type": "response.failed",
            "response": {"id": "r", "status": "failed", "error": error, "output": []}}));
        let error_event = event(&json!({"type": "error", "code": code, "message": message,
            "param": null, "sequence_number": 3}));
        for stream in [failed_event, error_event] {
            let error = failed(WIRE, Answer::new(stream));
            assert_eq!((&error.class, error.network), (&class, false), "{error}");
            let said = format!("reported an error: {message} ({code})");
            assert!(error.message.ends_with(&said), "{error}");
        }
    }
    let full = json!({"error": {"message": "Your input exceeds the context window of this model.",
        "type": "invalid_request_error", "param": "input", "code": "context_length_exceeded"}});
    let error = failed(WIRE, Answer::body(400, "application/json", full.to_string()));
    assert_eq!(error.class, Class::ContextFull);
}

#[test]
fn a_server_without_the_api_is_named_with_the_kind_that_it_may_speak() {
    let error = failed(WIRE, Answer::body(404, "text/plain", "not found"));
    assert_eq!(error.class, Class::Fatal);
    assert!(error.message.contains("there is no `/responses` below the base URL"), "{error}");
    assert!(error.message.contains("write the kind `openai-chat`"), "{error}");
}

#[test]
fn options_that_cannot_work_are_refused_before_anything_is_sent() {
    let said = |change: fn(&mut Options)| {
        let mut options = options(WIRE, "https://api.example/v1");
        change(&mut options);
        open(&options).unwrap_err().to_string()
    };
    assert!(
        said(|o| o.base_url = Some("https://gw.example/v1/responses".into()))
            .contains("must end before `/responses`: write `https://gw.example/v1`")
    );
    for field in ["input", "store", "previous_response_id", "stream", "tools", "instructions"] {
        let mut options = options(WIRE, "https://api.example/v1");
        options.options.insert(field.into(), json!(1));
        let error = open(&options).unwrap_err().to_string();
        assert!(error.contains(&format!("the model option `{field}`")), "{error}");
    }
}

#[test]
fn calls_in_one_answer_have_a_bound() {
    let calls: Vec<_> = (0..1001).map(|n| tool_use(&format!("c{n}"), "read", "")).collect();
    let (deltas, error) = asked(WIRE, Answer::new(WIRE.answer(calls)));
    let error = error.unwrap();
    assert_eq!(error.class, Class::Fatal);
    assert!(error.message.contains("more than 1000 calls"), "{error}");
    assert!(deltas.len() > 900, "what came before is handed on");
    let few: Vec<_> = (0..1000).map(|n| tool_use(&format!("c{n}"), "read", "")).collect();
    let fake = FakeModel::start(vec![Answer::new(WIRE.answer(few))]);
    assert_eq!(ask(&*model(WIRE, &fake)).1, None, "control");
}

#[test]
fn options_of_the_other_api_are_put_in_the_words_of_this_one() {
    let fake = FakeModel::strict(vec![Answer::new(WIRE.answer([text("ok")]))]);
    let mut options = options(WIRE, &fake.url(WIRE));
    options.options = [("max_completion_tokens", json!(7)), ("reasoning_effort", json!("low"))]
        .map(|(name, value)| (name.to_owned(), value))
        .into();
    assert_eq!(ask(&*open(&options).unwrap()).1, None);
    let body = &fake.bodies()[0];
    assert_eq!(body["max_output_tokens"], 7);
    assert_eq!(body["reasoning"], json!({"effort": "low"}));
    assert!(body.get("max_completion_tokens").is_none() && body.get("reasoning_effort").is_none());
}

/// What another account's model thought has the same tag and is refused: the conversation goes on.
#[test]
fn thinking_that_its_own_server_refuses_is_left_out_and_the_conversation_goes_on() {
    for wire in [Wire::Messages, Wire::Responses] {
        let fake = FakeModel::strict(vec![Answer::new(wire.answer([text("ok")])); 3]);
        let model = model(wire, &fake);
        let value = match wire {
            Wire::Messages => {
                json!({"type": "thinking", "thinking": "t", "signature": "account:s"})
            }
            _ => thought("account:s"),
        };
        let call =
            ToolCall { id: "a".into(), name: "list".into(), arguments: Arguments::parse("") };
        let history = |value: &Value| Request {
            tools: vec![ToolSpec {
                name: "list".into(),
                description: String::new(),
                schema: json!({"type": "object"}),
            }],
            messages: vec![
                Message::user("go"),
                Message {
                    role: Role::Assistant,
                    blocks: vec![opaque(model.name(), value.clone()), Block::Call(call.clone())],
                },
                Message { role: Role::User, blocks: vec![result("a", "x", false)] },
            ],
            ..Request::default()
        };
        block_on(async {
            for _ in 0..2 {
                let (deltas, error) = collect(&*model, history(&value)).await;
                assert_eq!(error, None);
                assert_eq!(deltas[0], Delta::Text("ok".into()));
            }
        });
        let with: Vec<bool> =
            fake.bodies().iter().map(|body| body.to_string().contains("account:s")).collect();
        assert_eq!(with, [true, false, false], "{wire:?}: refused once and not sent again");

        // The control: its own is taken and goes back.
        let own: Value =
            serde_json::from_str(&value.to_string().replace("account:", "claude-x:")).unwrap();
        let fresh = open(&options(wire, &fake.url(wire))).unwrap();
        assert_eq!(block_on(collect(&*fresh, history(&own))).1, None);
        assert!(fake.bodies().last().unwrap().to_string().contains("claude-x:s"));
    }
}
