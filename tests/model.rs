//! The Anthropic provider over real sockets: what it sends, what it makes of every way in which an
//! answer can come, break or be refused, and what never shows.
#![expect(clippy::unwrap_used, reason = "a helper that cannot go on should end its test")]

mod environment;

use std::{
    io::{Read, Write},
    net::TcpListener,
    time::{Duration, Instant},
};

use futures_util::StreamExt;
use kli::{
    message::{Arguments, Block, Message, Role, Stop, ToolCall, ToolResult, Usage},
    model::{
        Class, Delta, Model, ModelError, Request,
        catalogue::{Kind, Options, Secret, open},
    },
};
use serde_json::{Value, json};

use crate::fake_model::{
    Answer, FakeModel, Newline, event, message, message_stopped, redacted_thinking, text, thinking,
    tool_use,
};

const KEY: &str = "sk-test-0123456789abcdef";
const HEADER: &str = "hush-header-value";

fn options(base_url: &str) -> Options {
    let mut options = Options::new(Kind::Anthropic, "anthropic", "claude-x");
    options.base_url = Some(base_url.to_owned());
    options.key = Some(Secret::new(KEY));
    options.headers = vec![("x-gateway".into(), Secret::new(HEADER))];
    options.idle_timeout = Duration::from_secs(20);
    options
}

fn model(fake: &FakeModel) -> Box<dyn Model> {
    open(&options(&fake.base_url())).unwrap()
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

async fn collect(model: &dyn Model, request: Request) -> (Vec<Delta>, Option<ModelError>) {
    let mut stream = model.stream(request);
    let mut deltas = Vec::new();
    let mut error = None;
    while let Some(item) = stream.next().await {
        assert!(error.is_none(), "nothing may come after an error: {item:?}");
        match item {
            Ok(delta) => deltas.push(delta),
            Err(found) => error = Some(found),
        }
    }
    if let Some(error) = &error {
        let shown = format!("{error} {error:?} {model:?}");
        assert!(!shown.contains(KEY) && !shown.contains(HEADER), "a secret shows: {shown}");
    }
    (deltas, error)
}

fn ask(model: &dyn Model) -> (Vec<Delta>, Option<ModelError>) {
    block_on(collect(model, Request { messages: vec![Message::user("hi")], ..Request::default() }))
}

/// Asks a fake with one answer.
fn asked(answer: Answer) -> (Vec<Delta>, Option<ModelError>) {
    let fake = FakeModel::start(vec![answer]);
    ask(&*model(&fake))
}

fn failed(answer: Answer) -> ModelError {
    let (deltas, error) = asked(answer);
    assert_eq!(deltas, []);
    error.unwrap()
}

/// Joins neighbours, since the number of text deltas is the server's choice.
fn joined(deltas: &[Delta]) -> Vec<Delta> {
    let mut out: Vec<Delta> = Vec::new();
    for delta in deltas {
        match (out.last_mut(), delta) {
            (Some(Delta::Text(all)), Delta::Text(more))
            | (Some(Delta::Thinking(all)), Delta::Thinking(more)) => all.push_str(more),
            _ => out.push(delta.clone()),
        }
    }
    out
}

/// An answer with one of everything.
fn everything() -> String {
    message([
        thinking("日本語 🦀", "claude-x:sig"),
        redacted_thinking("claude-x:data"),
        text("Grüße! 🦀\n\"界\""),
        tool_use("t1", "read", r#"{"path": "ä"}"#),
        tool_use("t2", "list", ""),
    ])
}

fn everything_read() -> Vec<Delta> {
    vec![
        Delta::Thinking("日本語 🦀".into()),
        Delta::Opaque(json!({"type": "thinking", "thinking": "日本語 🦀",
            "signature": "claude-x:sig"})),
        Delta::Opaque(json!({"type": "redacted_thinking", "data": "claude-x:data"})),
        Delta::Text("Grüße! 🦀\n\"界\"".into()),
        Delta::Call { id: "t1".into(), name: "read".into(), arguments: r#"{"path": "ä"}"#.into() },
        Delta::Call { id: "t2".into(), name: "list".into(), arguments: String::new() },
        Delta::Done {
            stop: Stop::ToolUse,
            usage: Some(Usage {
                input_tokens: 12,
                output_tokens: 34,
                cache_read_tokens: 5,
                cache_write_tokens: 6,
            }),
        },
    ]
}

#[test]
fn an_answer_with_everything_is_read() {
    let (deltas, error) = asked(Answer::new(everything()));
    assert_eq!((joined(&deltas), error), (everything_read(), None));
}

#[test]
fn any_split_in_any_line_ending_gives_the_same_deltas() {
    let (expected, _) = asked(Answer::new(everything()));
    std::thread::scope(|scope| {
        for newline in Newline::ALL {
            let expected = &expected;
            scope.spawn(move || every_split_gives(newline, expected));
        }
    });
}

fn every_split_gives(newline: Newline, expected: &[Delta]) {
    let whole = Answer::new(everything()).newline(newline);
    let mut script: Vec<Answer> = (1..whole.len()).map(|at| whole.clone().split_at([at])).collect();
    script.push(whole.every_byte());
    let count = script.len();
    assert!(count > 1000, "{count}");
    let fake = FakeModel::start(script);
    let model = model(&fake);
    block_on(async {
        for number in 0..count {
            let request = Request { messages: vec![Message::user("hi")], ..Request::default() };
            let (deltas, error) = collect(&*model, request).await;
            assert_eq!((&deltas[..], error), (expected, None), "{newline:?}, answer {number}");
        }
    });
    assert_eq!(fake.left(), 0);
}

#[test]
fn one_connection_serves_many_requests() {
    let script = vec![Answer::new(message([text("a")])); 3];
    let fake = FakeModel::start(script);
    let model = model(&fake);
    block_on(async {
        for _ in 0..3 {
            let request = Request { messages: vec![Message::user("hi")], ..Request::default() };
            assert_eq!(collect(&*model, request).await.1, None);
        }
    });
    let connections: Vec<usize> = fake.requests().iter().map(|seen| seen.connection).collect();
    assert_eq!(connections, [1, 1, 1]);
}

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
    let (_, error) = block_on(collect(&*model(&fake), request));
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
            "tools": [{"name": "read", "description": "Reads.", "input_schema": {"type": "object"}}],
            "messages": [
                {"role": "user", "content": [
                    {"type": "text", "text": "do"}, {"type": "text", "text": "it"}]},
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
        let (status, answer) = post(&fake, &body);
        match expected {
            None => assert_eq!(status, 200, "{answer}"),
            Some(words) => assert!(status == 400 && answer.contains(words), "{words}: {answer}"),
        }
        if expected == Some("has no `tool_result`") {
            let mut body = body;
            body["tools"] = json!([]);
            assert!(post(&fake, &body).1.contains("tools: required"));
        }
    }
}

/// A request by hand, so that the fake is tested without the code that it tests.
fn post(fake: &FakeModel, body: &Value) -> (u16, String) {
    let mut connection = std::net::TcpStream::connect(fake.address()).unwrap();
    let body = body.to_string();
    write!(
        connection,
        "POST /v1/messages HTTP/1.1\r\nanthropic-version: x\r\ncontent-type: application/json\r\n\
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
fn refusals_have_their_class_and_say_who_refused_what() {
    let retry = |seconds: Option<u64>| Class::Retry { after: seconds.map(Duration::from_secs) };
    let answer = Answer::status;
    let date = |answer: Answer| answer.header("date", "Wed, 21 Oct 2026 07:27:30 GMT");
    for (answer, class, words) in [
        (answer(401), Class::Auth, "401 Unauthorized: scripted by the test (authentication_error)"),
        (answer(403), Class::Auth, "403 Forbidden"),
        (answer(429).header("retry-after", "3"), retry(Some(3)), "429 Too Many Requests"),
        (answer(529), retry(None), "529: scripted by the test (overloaded_error)"),
        (
            date(answer(503)).header("retry-after", "Wed, 21 Oct 2026 07:28:00 GMT"),
            retry(Some(30)),
            "503 Service Unavailable",
        ),
        (
            answer(500).header("retry-after-ms", "2000").header("retry-after", "9"),
            retry(Some(2)),
            "500 Internal Server Error",
        ),
        (answer(408), retry(None), "408 Request Timeout"),
        (answer(404), Class::Refused, "404 Not Found"),
        (answer(400), Class::Refused, "400 Bad Request"),
        (
            Answer::refusal(
                400,
                "invalid_request_error",
                "prompt is too long: 3 tokens > 2 maximum",
            ),
            Class::ContextFull,
            "prompt is too long: 3 tokens > 2 maximum",
        ),
        (answer(413), Class::ContextFull, "413 Payload Too Large"),
        (
            Answer::body(200, "text/html", "<html><title>Log in</title>"),
            Class::Fatal,
            "200 OK with `text/html` instead of an event stream: <html><title>Log in</title>",
        ),
        (
            Answer::body(200, "text/event-stream", "<html>really a page").every_byte(),
            Class::Fatal,
            "instead of an event stream: <html>really a page",
        ),
        (
            Answer::body(200, "application/json", r#"{"error":{"type":"overloaded_error"}}"#),
            retry(None),
            "200 OK: overloaded_error",
        ),
        (
            Answer::body(502, "text/html", "<h1>Bad\u{7}\r\nGateway</h1>"),
            retry(None),
            "502 Bad Gateway with `text/html`: <h1>Bad Gateway</h1>",
        ),
    ] {
        let fake = FakeModel::start(vec![answer]);
        let (deltas, error) = ask(&*model(&fake));
        let error = error.unwrap();
        assert_eq!(deltas, []);
        assert_eq!(fake.bodies().len(), 1, "nothing is retried in here");
        assert_eq!(error.class, class, "{error}");
        assert!(error.message.contains(words), "`{words}` is not in: {error}");
        assert!(error.message.contains(&fake.address().to_string()), "{error}");
        assert!(!error.network);
    }
}

#[test]
fn a_server_that_echoes_secrets_does_not_get_them_shown() {
    let leak = format!("your key {KEY} and header {HEADER} are bad");
    // The control: without the secret the sentence is shown whole.
    let shown = failed(Answer::refusal(401, "authentication_error", "your key x is bad"));
    assert!(shown.message.contains("your key x is bad"), "{shown}");
    for answer in [
        Answer::refusal(401, "authentication_error", &leak),
        Answer::body(500, "text/plain", leak.clone()),
        Answer::body(200, "text/plain", leak.clone()),
        Answer::new(event(&json!({"type": "error",
            "error": {"type": "authentication_error", "message": leak}}))),
        Answer::new(format!("data: {leak}\n\n")),
    ] {
        // `collect` asserts that neither shows.
        let error = failed(answer);
        assert!(error.message.contains('…'), "{error}");
    }
    // Outside the body as well.
    let kind = format!("text/html; k={KEY}");
    assert!(failed(Answer::body(502, &kind, "x")).message.contains("k=…"));
    let place = format!("https://{KEY}.example.com/");
    let error = failed(Answer::body(302, "text/plain", "").header("location", &place));
    assert!(error.message.contains("points to `hidden.example.com`"), "{error}");
}

#[test]
fn an_error_event_keeps_what_came_and_has_its_class() {
    for (kind, class) in [
        ("overloaded_error", Class::Retry { after: None }),
        ("rate_limit_error", Class::Retry { after: None }),
        ("authentication_error", Class::Auth),
        ("invalid_request_error", Class::Refused),
        ("surprise_error", Class::Fatal),
    ] {
        let whole = message([text("partial")]);
        let stop = whole.find("event: content_block_stop").unwrap();
        let error = json!({"type": "error", "error": {"type": kind, "message": "so sorry"}});
        let stream = format!("{}{}", &whole[..stop], event(&error));
        let (deltas, error) = asked(Answer::new(stream));
        assert_eq!(joined(&deltas), [Delta::Text("partial".into())]);
        let error = error.unwrap();
        assert_eq!((error.class, error.network), (class, false));
        assert!(error.message.ends_with(&format!("reported an error: so sorry ({kind})")));
    }
}

/// Where the third text delta of an answer ends.
fn after_three_deltas(stream: &str) -> usize {
    let third = stream.match_indices("event: content_block_delta").nth(3).unwrap();
    third.0
}

#[test]
fn a_connection_that_drops_after_three_deltas_keeps_them() {
    let stream = message([text("one two three four five six seven")]);
    let at = after_three_deltas(&stream);
    for answer in [
        Answer::new(stream.clone()).close_after(at),
        Answer::new(stream.clone()).close_after(at + 40),
        Answer::new(stream.clone()).reset_after(at),
        Answer::new(stream.clone()).end_after(at),
        Answer::new(stream.clone()).end_after(at + 40),
    ] {
        let (deltas, error) = asked(answer.clone());
        assert_eq!(joined(&deltas), [Delta::Text("one two three four fi".into())], "{answer:?}");
        let error = error.unwrap();
        assert_eq!((&error.class, error.network), (&Class::Retry { after: None }, true), "{error}");
    }
}

#[test]
fn a_connection_that_drops_before_anything_came_may_be_tried_again() {
    let stream = message([text("one")]);
    for answer in [
        Answer::new(stream.clone()).close_after(0),
        Answer::new(stream.clone()).reset_after(0),
        Answer::new(stream.clone()).end_after(0),
        Answer::new(stream).end_after(30),
    ] {
        let error = failed(answer);
        assert_eq!((&error.class, error.network), (&Class::Retry { after: None }, true), "{error}");
    }
}

#[test]
fn an_unfinished_call_is_never_delivered() {
    let stream = message([text("I read."), tool_use("t1", "read", r#"{"path":"a/very/long"}"#)]);
    let at = stream.find("input_json_delta").unwrap() + 200;
    let (deltas, error) = asked(Answer::new(stream).end_after(at));
    assert_eq!(joined(&deltas), [Delta::Text("I read.".into())]);
    assert!(error.unwrap().network);
}

#[test]
fn a_last_blank_line_may_be_missing() {
    let stream = message([text("done")]);
    let whole = asked(Answer::new(stream.clone()));
    assert!(matches!(whole.0.last(), Some(Delta::Done { .. })));
    for missing in 1..=2 {
        let answer = Answer::new(stream.clone()).end_after(stream.len() - missing);
        assert_eq!(asked(answer), whole);
    }
}

#[test]
fn nobody_listening_is_a_network_error_that_names_the_address() {
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let model = open(&options(&format!("http://{address}"))).unwrap();
    let error = ask(&*model).1.unwrap();
    assert_eq!((&error.class, error.network), (&Class::Retry { after: None }, true));
    assert!(
        error.message.starts_with(&format!("`{address}` cannot be reached: Connection refused")),
        "{error}"
    );
}

#[test]
fn silence_ends_the_request_and_any_byte_puts_it_off() {
    let stream = message([text("one two three")]);
    let fake = FakeModel::start(vec![
        Answer::new(stream.clone()).hang_after(after_first_text(&stream)),
        Answer::new(stream.clone()).delay(Duration::from_secs(3)),
        Answer::new(format!("{}{stream}", ": ping\n\n".repeat(14)))
            .every_event()
            .pause(Duration::from_millis(100)),
    ]);
    let mut options = options(&fake.base_url());
    options.idle_timeout = Duration::from_secs(1);
    let model = open(&options).unwrap();

    let started = Instant::now();
    let (deltas, error) = ask(&*model);
    assert_eq!(joined(&deltas), [Delta::Text("one two".into())]);
    let error = error.unwrap();
    assert!(error.network && error.message.ends_with("sent nothing for 1 s"), "{error}");
    assert!(started.elapsed() < Duration::from_secs(5));

    let error = ask(&*model).1.unwrap();
    assert!(error.network && error.message.ends_with("sent nothing for 1 s"), "{error}");

    let started = Instant::now();
    let (deltas, error) = ask(&*model);
    assert_eq!(error, None);
    assert!(matches!(deltas.last(), Some(Delta::Done { .. })));
    assert!(
        started.elapsed() > Duration::from_millis(1300),
        "the pings took longer than the timer"
    );
}

fn after_first_text(stream: &str) -> usize {
    stream.match_indices("event: content_block_delta").nth(1).unwrap().0
}

#[test]
fn a_dropped_stream_ends_the_request() {
    let stream = message([text("one two three")]);
    let fake = FakeModel::start(vec![
        Answer::new(stream.clone()).hang_after(after_first_text(&stream)),
        Answer::new(stream),
    ]);
    let model = model(&fake);
    block_on(async {
        let request = Request { messages: vec![Message::user("hi")], ..Request::default() };
        let mut answer = model.stream(request.clone());
        assert_eq!(answer.next().await, Some(Ok(Delta::Text("one two".into()))));
        drop(answer);
        assert_eq!(collect(&*model, request).await.1, None);
    });
}

#[test]
fn a_redirect_is_not_followed_and_takes_no_key_along() {
    let trap = FakeModel::start(vec![Answer::new(message([text("trap")]))]);
    for status in [301, 302, 303, 307, 308] {
        let place = format!("{}/v1/messages?token=secret-query", trap.base_url());
        let error = failed(Answer::body(status, "text/plain", "").header("location", &place));
        assert_eq!(error.class, Class::Fatal);
        assert!(error.message.contains(&format!("points to `{}`", trap.address())), "{error}");
        assert!(!error.message.contains("secret-query"), "{error}");
    }
    assert_eq!(trap.requests().len(), 0);
    // The control: the trap would have answered.
    assert_eq!(ask(&*model(&trap)).1, None);
    assert_eq!(trap.requests().len(), 1);
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
        assert_eq!(asked(answer), (expected.clone(), None), "{kind}");
    }
}

#[test]
fn a_cut_off_call_is_delivered_as_the_model_left_it() {
    let stream = message_stopped([tool_use("t", "read", r#"{"path": "a"#)], "max_tokens");
    let (deltas, error) = asked(Answer::new(stream));
    assert_eq!(error, None);
    assert_eq!(
        deltas[0],
        Delta::Call { id: "t".into(), name: "read".into(), arguments: r#"{"path": "a"#.into() }
    );
    assert!(matches!(&deltas[1], Delta::Done { stop: Stop::MaxTokens, .. }));
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
        let (deltas, _) = asked(Answer::new(message_stopped([text("x")], reason)));
        assert!(
            matches!(deltas.last(), Some(Delta::Done { stop: found, .. }) if *found == stop),
            "{reason}: {deltas:?}"
        );
    }
}

#[test]
fn options_that_cannot_work_are_refused_before_anything_is_sent() {
    let said = |change: fn(&mut Options)| {
        let mut options = options("https://api.example");
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
    assert!(said(|o| o.base_url = Some("unix:/run/x.sock".into())).contains("names a socket"));
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

#[test]
fn a_base_url_keeps_its_path_and_query() {
    let fake = FakeModel::start(vec![Answer::new(message([text("x")]))]);
    let model = open(&options(&format!("{}/gw/?api=2", fake.base_url()))).unwrap();
    assert_eq!(ask(&*model).1, None);
    assert_eq!(fake.requests()[0].line, "POST /gw/v1/messages?api=2");
}

#[test]
fn an_answer_without_end_is_broken_off() {
    let delta = event(&json!({"type": "content_block_delta", "index": 0,
        "delta": {"type": "text_delta", "text": "y".repeat(1 << 20)}}));
    let stream = message([text("one two three")]);
    let (head, tail) = stream.split_at(after_first_text(&stream));
    let long = |mebibytes: usize| Answer::new(format!("{head}{}{tail}", delta.repeat(mebibytes)));
    let (deltas, error) = asked(long(65));
    let error = error.unwrap();
    assert_eq!(error.class, Class::Fatal);
    assert!(error.message.contains("an answer without end: more than 67108864 bytes"), "{error}");
    assert!(deltas.len() > 60, "what came before is handed on");
    assert_eq!(asked(long(2)).1, None, "control");
}
