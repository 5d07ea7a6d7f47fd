//! What is Chat Completions' own: the request's shape, what servers leave out, refuse and add.

use kli::{
    message::{Arguments, Block, Message, Role, Stop, ToolCall, ToolResult, Usage},
    model::{
        Class, Delta, Request, ToolSpec,
        catalogue::{Options, Secret, open},
    },
};
use serde_json::{Value, json};

use super::{HEADER, KEY, ask, asked, block_on, collect, failed, joined, model, options};
use crate::fake_model::{Answer, FakeModel, Wire, chunk, text, thinking, tool_use};

const WIRE: Wire = Wire::Chat;

#[test]
fn the_request_is_what_servers_want() {
    let fake = FakeModel::strict(vec![Answer::new(WIRE.answer([text("ok")]))]);
    let call = |id: &str, name: &str, arguments| {
        Block::Call(ToolCall { id: id.into(), name: name.into(), arguments })
    };
    let result = |call: &str, text: &str, is_error| {
        Block::Result(ToolResult { call: call.into(), text: text.into(), is_error })
    };
    let say = |text: &str| Block::Text { text: text.into() };
    let opaque = |model: &str, value| Block::Opaque { model: model.into(), value };
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
                    opaque("openai/claude-x", json!({"reasoning_content": "hm"})),
                    say(""),
                    call("a.1", "re ad", Arguments::parse("{\"path\": \"a")),
                    call("b", "read", Arguments::parse("{\"path\":\"b\"}")),
                    call("c", "read", Arguments::parse("")),
                ],
            },
            Message { role: Role::User, blocks: vec![say("and hurry"), result("a.1", "", true)] },
            Message { role: Role::User, blocks: vec![result("b", "", false)] },
            Message { role: Role::User, blocks: vec![result("c", "no such file", true)] },
            Message {
                role: Role::Assistant,
                blocks: vec![opaque("other/model", json!({"reasoning_content": "x"}))],
            },
            Message { role: Role::Assistant, blocks: vec![say("one")] },
            Message { role: Role::Assistant, blocks: vec![say("two")] },
            Message { role: Role::User, blocks: vec![say("last")] },
        ],
        max_tokens: None,
    };
    let (_, error) = block_on(collect(&*model(WIRE, &fake), request));
    assert_eq!(error, None);
    let seen = &fake.requests()[0];
    assert_eq!(seen.line, "POST /v1/chat/completions");
    assert_eq!(seen.header("authorization"), Some(&*format!("Bearer {KEY}")));
    assert_eq!(seen.header("x-gateway"), Some(HEADER));
    assert_eq!(seen.header("x-api-key"), None);
    assert_eq!(seen.header("accept"), Some("text/event-stream"));
    let changed = seen.json()["messages"][2]["tool_calls"][0]["id"].clone();
    assert!(changed.as_str().unwrap().starts_with("a_1_"), "{changed}");
    let called = |id: &Value, name: &str, arguments: &str| json!({"type": "function", "id": id, "function": {"name": name, "arguments": arguments}});
    let name = seen.json()["messages"][2]["tool_calls"][0]["function"]["name"].clone();
    assert!(name.as_str().unwrap().starts_with("re_ad_"), "{name}");
    assert_eq!(
        seen.json(),
        json!({
            "model": "claude-x",
            "stream": true,
            "stream_options": {"include_usage": true},
            "tools": [{"type": "function", "function":
                {"name": "read", "description": "Reads.", "parameters": {"type": "object"}}}],
            "messages": [
                {"role": "system", "content": "Be brief."},
                {"role": "user", "content": "do\n\nit"},
                {"role": "assistant", "content": null, "reasoning_content": "hm", "tool_calls": [
                    called(&changed, name.as_str().unwrap(), "{}"),
                    called(&json!("b"), "read", "{\"path\":\"b\"}"),
                    called(&json!("c"), "read", "{}")]},
                {"role": "tool", "tool_call_id": changed,
                 "content": "error: failed without a message"},
                {"role": "tool", "tool_call_id": "b", "content": "(no output)"},
                {"role": "tool", "tool_call_id": "c", "content": "error: no such file"},
                {"role": "user", "content": "and hurry"},
                {"role": "assistant", "content": "one\n\ntwo"},
                {"role": "user", "content": "last"},
            ],
        })
    );
}

#[test]
fn the_strict_fake_refuses_what_servers_refuse() {
    let call = json!({"id": "a", "type": "function",
        "function": {"name": "read", "arguments": "{}"}});
    let user = json!({"role": "user", "content": "hi"});
    let calls = json!({"role": "assistant", "content": null, "tool_calls": [call]});
    let result = json!({"role": "tool", "tool_call_id": "a", "content": "x"});
    let fake = FakeModel::strict(vec![Answer::new(WIRE.answer([text("ok")]))]);
    for (messages, expected) in [
        (json!([user, calls, result]), None),
        (json!([user, calls, user]), Some("must be followed by tool messages")),
        (json!([user, calls]), Some("no response to")),
        (json!([user, result]), Some("answers no call")),
        (json!([user, user]), Some("roles must alternate")),
        (json!([{"role": "user", "content": " "}]), Some("must be a text")),
        (json!([]), Some("too short")),
    ] {
        let body = json!({"model": "m", "stream": true,
            "stream_options": {"include_usage": true}, "messages": messages});
        let (status, answer) = super::anthropic::post(&fake, "/v1/chat/completions", &body);
        match expected {
            None => assert_eq!(status, 200, "{answer}"),
            Some(words) => assert!(status == 400 && answer.contains(words), "{words}: {answer}"),
        }
    }
}

fn done(stop: Stop) -> Delta {
    Delta::Done { stop, usage: None }
}

fn call(id: &str, name: &str, arguments: &str) -> Delta {
    Delta::Call { id: id.into(), name: name.into(), arguments: arguments.into() }
}

fn stream_of(chunks: &[Value]) -> String {
    chunks.iter().map(chunk).chain(["data: [DONE]\n\n".into()]).collect()
}

#[test]
fn servers_that_leave_things_out_are_understood() {
    let chunks = [
        json!({"id": "c7", "choices": null}),
        json!({"choices": [{"delta": {"content": null, "reasoning_content": null}}]}),
        json!({"choices": [{"delta": {"content": "hi"}, "finish_reason": null}]}),
        json!({"choices": [{"delta": null}], "usage": null}),
        json!({"choices": [{"delta": {"content": [{"type": "text", "text": "!"}]}}]}),
        json!({"choices": [{"delta": {"tool_calls": null}}], "extra": true}),
        json!({"choices": [{"delta": {"tool_calls": [
            {"function": {"name": "read", "arguments": {"path": "a"}}}]}}]}),
        json!({"choices": [{"index": 1, "delta": {"content": "another choice"}}]}),
    ];
    let expected = vec![
        Delta::Text("hi".into()),
        Delta::Text("!".into()),
        call("call_0_c7", "read", r#"{"path":"a"}"#),
        done(Stop::ToolUse),
    ];
    for kind in ["text/event-stream; charset=utf-8", "application/json", "text/plain", ""] {
        let answer = Answer::new(stream_of(&chunks)).header("content-type", kind).every_byte();
        assert_eq!(asked(WIRE, answer), (expected.clone(), None), "{kind}");
    }
}

#[test]
fn an_answer_in_one_piece_is_read() {
    let mut object = json!({"id": "c1", "object": "chat.completion", "choices": [{"index": 0,
        "finish_reason": "tool_calls", "message": {"role": "assistant", "content": "I look.",
            "reasoning": "hm", "tool_calls": [{"id": "t", "type": "function",
                "function": {"name": "read", "arguments": "{}"}}]}}],
        "usage": {"prompt_tokens": 3, "completion_tokens": 4}});
    let usage = Usage { input_tokens: 3, output_tokens: 4, ..Usage::default() };
    let expected = vec![
        Delta::Thinking("hm".into()),
        Delta::Text("I look.".into()),
        Delta::Opaque(json!({"reasoning": "hm"})),
        call("t", "read", "{}"),
        Delta::Done { stop: Stop::ToolUse, usage: Some(usage) },
    ];
    let pretty = serde_json::to_string_pretty(&object).unwrap();
    for kind in ["application/json", "text/event-stream", ""] {
        let answer = Answer::body(200, kind, pretty.clone());
        assert_eq!(asked(WIRE, answer.clone()), (expected.clone(), None), "{kind}");
        assert_eq!(asked(WIRE, answer.every_byte()), (expected.clone(), None), "{kind}");
    }
    // A long one, and one that is cut.
    let long = "y".repeat(200_000);
    object["choices"][0]["message"]["content"] = json!(long);
    let (deltas, error) = asked(WIRE, Answer::body(200, "application/json", object.to_string()));
    assert_eq!((&deltas[1], error), (&Delta::Text(long), None));
    let (deltas, error) =
        asked(WIRE, Answer::body(200, "application/json", pretty).close_after(90));
    assert_eq!(deltas, []);
    assert!(error.unwrap().network);
    // JSON that is no answer is shown as what it is.
    let error = failed(WIRE, Answer::body(200, "application/json", r#"{"choices":null,"x":1}"#));
    assert_eq!(error.class, Class::Fatal);
    assert!(error.message.contains(r#"instead of an event stream: {"choices":null"#), "{error}");
}

#[test]
fn a_stream_without_its_end_mark_is_whole_once_it_says_why_it_stops() {
    let whole = WIRE.answer([text("one two three"), tool_use("t", "read", "{}")]);
    let (expected, _) = asked(WIRE, Answer::new(whole.clone()));
    let mark = whole.find("data: [DONE]").unwrap();
    let count = whole[..mark].rfind("data: ").unwrap();
    for answer in [
        Answer::new(whole.clone()).end_after(mark),
        Answer::new(whole.clone()).close_after(mark),
        Answer::new(whole.clone()).end_after(mark + 7),
    ] {
        assert_eq!(asked(WIRE, answer), (expected.clone(), None));
    }
    let (deltas, error) = asked(WIRE, Answer::new(whole.clone()).close_after(count));
    assert_eq!(error, None);
    assert_eq!(deltas.last(), Some(&done(Stop::ToolUse)), "whole, but for the count of tokens");
    // One event less, and nobody knows whether more was to come.
    let reason = whole[..count].rfind("data: ").unwrap();
    let (deltas, error) = asked(WIRE, Answer::new(whole).close_after(reason));
    assert_eq!(joined(&deltas), [Delta::Text("one two three".into())]);
    assert!(error.unwrap().network);
}

#[test]
fn a_server_that_refuses_to_count_tokens_is_asked_without_at_once_and_from_then_on() {
    let answer = || Answer::new(WIRE.answer([text("ok")]));
    for refusal in [
        WIRE.refusal(400, "invalid_request_error", "Unrecognized request argument: stream_options"),
        Answer::body(
            422,
            "application/json",
            r#"{"detail":[{"type":"extra_forbidden","loc":["body","stream_options"],"msg":"Extra inputs are not permitted"}]}"#,
        ),
    ] {
        let fake = FakeModel::start(vec![refusal, answer(), answer()]);
        let model = model(WIRE, &fake);
        for _ in 0..2 {
            assert_eq!(ask(&*model).1, None);
        }
        let bodies = fake.bodies();
        assert_eq!(bodies.len(), 3, "the first request twice, the second once");
        let mut bare = bodies[0].clone();
        assert_eq!(
            bare.as_object_mut().unwrap().remove("stream_options"),
            Some(json!({"include_usage": true}))
        );
        assert_eq!([&bodies[1], &bodies[2]], [&bare, &bare]);
    }
    // Another refusal is not tried again, and neither is a second one.
    let no = |words: &str| WIRE.refusal(400, "invalid_request_error", words);
    for (script, requests) in [
        (vec![no("temperature is too hot"), answer()], 1),
        (vec![no("stream_options: unknown"), no("stream_options: unknown"), answer()], 2),
        (vec![WIRE.refusal(500, "server_error", "stream_options broke it"), answer()], 1),
    ] {
        let fake = FakeModel::start(script);
        assert!(ask(&*model(WIRE, &fake)).1.is_some());
        assert_eq!(fake.requests().len(), requests);
    }
}

#[test]
fn model_options_go_into_the_body_and_a_refused_one_is_named() {
    for wire in Wire::ALL {
        let refusal = wire.refusal(400, "invalid_request_error", "unknown field `top_q`");
        let fake = FakeModel::start(vec![Answer::new(wire.answer([text("ok")])), refusal]);
        let mut options = options(wire, &fake.url(wire));
        options.options =
            [("temperature".to_owned(), json!(0.5)), ("top_q".to_owned(), json!({"a": [1]}))]
                .into();
        options.max_output = Some(77);
        let model = open(&options).unwrap();
        assert_eq!(ask(&*model).1, None);
        let body = &fake.bodies()[0];
        assert_eq!(body["temperature"], 0.5);
        assert_eq!(body["top_q"], json!({"a": [1]}));
        let bound = if wire == Wire::Responses { "max_output_tokens" } else { "max_tokens" };
        assert_eq!(body[bound], 77);
        let error = ask(&*model).1.unwrap();
        assert_eq!(error.class, Class::Refused);
        assert!(
            error
                .message
                .ends_with("; `top_q` is one of your model options: if that is meant, mend it"),
            "{error}"
        );

        // An option that bounds the answer comes before kli's own bound.
        let fake = FakeModel::start(vec![Answer::new(wire.answer([text("ok")]))]);
        options.base_url = Some(fake.url(wire));
        options.options = [("max_tokens".to_owned(), json!(5))].into();
        assert_eq!(ask(&*open(&options).unwrap()).1, None);
        let body = String::from_utf8(fake.requests()[0].body.clone()).unwrap();
        assert_eq!(body.matches(r#""max_"#).count(), 1, "{body}");
        assert_eq!(fake.bodies()[0][bound], 5);
    }
}

#[test]
fn options_that_cannot_work_are_refused_before_anything_is_sent() {
    let said = |change: &dyn Fn(&mut Options)| {
        let mut options = options(WIRE, "https://api.example/v1");
        change(&mut options);
        open(&options).unwrap_err().to_string()
    };
    for (wire, owned) in [
        (WIRE, vec!["model", "messages", "tools", "stream", "stream_options", "n", "functions"]),
        (Wire::Messages, vec!["model", "messages", "tools", "stream", "system", "tool_choice"]),
    ] {
        for name in owned {
            let mut options = options(wire, "https://api.example");
            assert!(open(&options).is_ok(), "control");
            options.options.insert(name.to_owned(), json!(1));
            let said = open(&options).unwrap_err().to_string();
            let model = options.name();
            let words = format!("the model option `{name}` of `{model}` cannot be set: ");
            assert!(said.starts_with(&words), "{said}");
        }
    }
    assert_eq!(
        said(&|o| o.base_url = Some("https://gw.example/v1/chat/completions/?k=1".into())),
        "the base URL `https://gw.example/v1/chat/completions/` of provider `openai` must end \
         before `/chat/completions`: write `https://gw.example/v1`"
    );
    assert_eq!(
        said(&|o| {
            o.key = None;
            o.headers.clear();
        }),
        "provider `openai` at `api.example` needs a key and none was given"
    );
    assert!(said(&|o| o.key = Some(Secret::new("a\nb"))).contains("holds a line break"));
}

#[test]
fn what_each_server_refuses_is_understood() {
    let retry = Class::Retry { after: None };
    for (status, body, class, words) in [
        // OpenAI.
        (
            404,
            r#"{"error":{"message":"The model `m` does not exist or you do not have access to it.","type":"invalid_request_error","param":null,"code":"model_not_found"}}"#,
            Class::Refused,
            "(model_not_found); check the model's name",
        ),
        (
            400,
            r#"{"error":{"message":"Your input is over the limit.","type":"invalid_request_error","param":"messages","code":"context_length_exceeded"}}"#,
            Class::ContextFull,
            "(context_length_exceeded)",
        ),
        (
            429,
            r#"{"error":{"message":"You exceeded your current quota","type":"insufficient_quota","param":null,"code":"insufficient_quota"}}"#,
            Class::Refused,
            "(insufficient_quota)",
        ),
        (
            429,
            r#"{"error":{"message":"Rate limit reached","type":"requests","param":null,"code":"rate_limit_exceeded"}}"#,
            retry.clone(),
            "(rate_limit_exceeded)",
        ),
        // Ollama.
        (
            404,
            "404 page not found",
            Class::Fatal,
            "with `application/json`: 404 page not found; there is no",
        ),
        (
            404,
            r#"{"error":{"message":"model \"m\" not found, try pulling it first","type":"api_error","param":null,"code":null}}"#,
            Class::Refused,
            "try pulling it first (api_error); check the model's name",
        ),
        (
            400,
            r#"{"error":"m does not support tools"}"#,
            Class::Refused,
            "m does not support tools",
        ),
        // llama.cpp.
        (
            500,
            r#"{"error":{"code":500,"message":"the request is too large","type":"exceed_context_size_error","n_prompt_tokens":1407,"n_ctx":256}}"#,
            Class::ContextFull,
            "(exceed_context_size_error)",
        ),
        (
            503,
            r#"{"error":{"code":503,"message":"Loading model","type":"unavailable_error"}}"#,
            retry.clone(),
            "503 Service Unavailable: Loading model",
        ),
        // vLLM.
        (
            400,
            r#"{"object":"error","message":"This model's maximum context length is 16384 tokens. However, you requested 122946 tokens","type":"BadRequestError","param":null,"code":400}"#,
            Class::ContextFull,
            "maximum context length",
        ),
        (
            400,
            r#"{"object":"error","message":"max_tokens must be at least 1, got -186.","type":"BadRequestError","param":null,"code":400}"#,
            Class::ContextFull,
            "got -186",
        ),
        (
            404,
            r#"{"detail":"Not Found"}"#,
            Class::Refused,
            "Not Found; there is no `/chat/completions`",
        ),
        (
            422,
            r#"{"detail":[{"loc":["body","messages",0],"msg":"field required"}]}"#,
            Class::Refused,
            "body.messages.0: field required",
        ),
        // LM Studio.
        (
            400,
            r#"{"error":"The number of tokens to keep from the initial prompt is greater than the context length (n_keep: 13055>= n_ctx: 4096)."}"#,
            Class::ContextFull,
            "n_keep",
        ),
        (
            200,
            r#"{"error":"Unexpected endpoint or method. (POST /chat/completions)"}"#,
            Class::Fatal,
            "most servers want a base URL that ends with `/v1`",
        ),
    ] {
        let fake = FakeModel::start(vec![Answer::body(status, "application/json", body)]);
        let base = if body.contains("endpoint") { fake.base_url() } else { fake.url(WIRE) };
        let error = ask(&*open(&options(WIRE, &base)).unwrap()).1.unwrap();
        assert_eq!(error.class, class, "{error}");
        assert!(error.message.contains(words), "`{words}` is not in: {error}");
    }
}

#[test]
fn errors_in_a_stream_are_understood_in_every_dialect() {
    for (event, class, words) in [
        (
            "event: error\ndata: {\"error\":{\"message\":\"Trying to keep the first 15857 tokens when context the overflows.\"}}\n\n",
            Class::ContextFull,
            "context the overflows",
        ),
        (
            "data: {\"object\":\"error\",\"message\":\"boom\",\"type\":\"InternalServerError\",\"code\":500}\n\n",
            Class::Retry { after: None },
            "reported an error: boom (InternalServerError)",
        ),
        (
            "data: {\"id\":\"x\",\"error\":{\"code\":502,\"message\":\"upstream\"},\"choices\":[{\"delta\":{\"content\":\"\"},\"finish_reason\":\"error\"}]}\n\n",
            Class::Retry { after: None },
            "reported an error: upstream",
        ),
        (
            "data: {\"error\":{\"code\":\"403\",\"message\":\"no\"}}\n\n",
            Class::Auth,
            "reported an error: no",
        ),
        ("data: {\"error\":\"odd\"}\n\n", Class::Fatal, "reported an error: odd"),
    ] {
        let stream = WIRE.text_event("partial") + event;
        let (deltas, error) = asked(WIRE, Answer::new(stream));
        assert_eq!(deltas, [Delta::Text("partial".into())]);
        let error = error.unwrap();
        assert_eq!((&error.class, error.network), (&class, false), "{error}");
        assert!(error.message.contains(words), "{error}");
    }
}

#[test]
fn stop_reasons_are_told_apart() {
    for (reason, stop) in [
        ("stop", Stop::EndTurn),
        ("tool_calls", Stop::EndTurn),
        ("length", Stop::MaxTokens),
        ("content_filter", Stop::Refusal),
        ("model_length", Stop::ContextFull),
        ("abort", Stop::Other("abort".into())),
    ] {
        let (deltas, _) = asked(WIRE, Answer::new(WIRE.stopped([text("x")], reason)));
        let found = deltas.last();
        assert!(
            matches!(found, Some(Delta::Done { stop: found, .. }) if *found == stop),
            "{reason}: {found:?}"
        );
    }
    // Calls count more than the reason that goes with them.
    for reason in ["stop", "function_call", "tool_calls"] {
        let stream = WIRE.stopped([tool_use("t", "read", "{}")], reason);
        let (deltas, _) = asked(WIRE, Answer::new(stream));
        assert!(matches!(deltas.last(), Some(Delta::Done { stop: Stop::ToolUse, .. })), "{reason}");
    }
    let refusal =
        [json!({"choices": [{"delta": {"refusal": "I cannot."}, "finish_reason": "stop"}]})];
    let (deltas, _) = asked(WIRE, Answer::new(stream_of(&refusal)));
    assert_eq!(deltas, [Delta::Text("I cannot.".into()), done(Stop::Refusal)]);
}

#[test]
fn thinking_is_shown_and_goes_back_only_with_calls() {
    let (deltas, _) = asked(WIRE, Answer::new(WIRE.answer([thinking("hm", ""), text("x")])));
    assert!(!deltas.iter().any(|delta| matches!(delta, Delta::Opaque(_))), "{deltas:?}");
    let stream = WIRE.answer([thinking("hm", ""), tool_use("t", "read", "{}")]);
    let (deltas, _) = asked(WIRE, Answer::new(stream));
    assert!(deltas.contains(&Delta::Opaque(json!({"reasoning_content": "hm"}))), "{deltas:?}");
    // Where both fields come they say the same.
    let both = [json!({"choices": [{"delta": {"reasoning": "a", "reasoning_content": "a"}}]})];
    let (deltas, _) = asked(WIRE, Answer::new(stream_of(&both)));
    assert_eq!(deltas, [Delta::Thinking("a".into()), done(Stop::EndTurn)]);
}
