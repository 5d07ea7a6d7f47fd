//! The providers over real sockets: what they make of every way in which an answer can come, break
//! or be refused, and what never shows. What holds for every API is here, run for each; what each has
//! of its own is in [`anthropic`], [`chat`] and [`responses`].
#![expect(clippy::unwrap_used, reason = "a helper that cannot go on should end its test")]

mod anthropic;
mod chat;
mod closed;
mod conformance;
mod environment;
mod listing;
mod responses;
mod runs;
mod unix;

use std::{
    net::TcpListener,
    sync::Arc,
    time::{Duration, Instant},
};

use futures_util::StreamExt;
use kli::{
    message::{Message, Stop, Usage},
    model::{
        Class, Delta, Model, ModelError, Request,
        catalogue::{Options, Secret, open},
    },
};
use serde_json::{Value, json};

use crate::fake_model::{
    Answer, FakeModel, Newline, Wire, redacted_thinking, text, thinking, tool_use,
};

const KEY: &str = "sk-test-0123456789abcdef";
const HEADER: &str = "hush-header-value";

fn options(wire: Wire, base_url: &str) -> Options {
    let mut options = Options::new(wire.kind(), wire.provider(), "claude-x");
    options.base_url = Some(base_url.to_owned());
    options.key = Some(Secret::new(KEY));
    options.headers = vec![("x-gateway".into(), Secret::new(HEADER))];
    options.idle_timeout = Duration::from_secs(20);
    options
}

fn model(wire: Wire, fake: &FakeModel) -> Arc<dyn Model> {
    open(&options(wire, &fake.url(wire))).unwrap()
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
            // Told before everything else; what is on its way then is told as a whole.
            Ok(Delta::Begun) => assert_eq!(deltas, []),
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
fn asked(wire: Wire, answer: Answer) -> (Vec<Delta>, Option<ModelError>) {
    let fake = FakeModel::start(vec![answer]);
    ask(&*model(wire, &fake))
}

fn failed(wire: Wire, answer: Answer) -> ModelError {
    let (deltas, error) = asked(wire, answer);
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
fn everything(wire: Wire) -> String {
    wire.answer([
        thinking("日本語 🦀", "claude-x:sig"),
        redacted_thinking("claude-x:data"),
        text("Grüße! 🦀\n\"界\""),
        tool_use("t1", "read", r#"{"path": "ä"}"#),
        tool_use("t2", "list", ""),
    ])
}

fn everything_read(wire: Wire) -> Vec<Delta> {
    let opaque = |value: Value| Delta::Opaque(value);
    let thought = Delta::Thinking("日本語 🦀".into());
    let said = Delta::Text("Grüße! 🦀\n\"界\"".into());
    let mut deltas = match wire {
        Wire::Messages => vec![
            thought,
            opaque(json!({"type": "thinking", "thinking": "日本語 🦀",
                "signature": "claude-x:sig"})),
            opaque(json!({"type": "redacted_thinking", "data": "claude-x:data"})),
            said,
        ],
        Wire::Responses => vec![
            thought,
            opaque(json!({"id": "rs_0", "type": "reasoning", "encrypted_content": "claude-x:sig",
                "summary": [{"type": "summary_text", "text": "日本語 🦀"}]})),
            opaque(json!({"id": "rs_1", "type": "reasoning", "summary": [],
                "encrypted_content": "claude-x:data"})),
            said,
        ],
        Wire::Chat => vec![thought, said, opaque(json!({"reasoning_content": "日本語 🦀"}))],
    };
    let call = |id: &str, name: &str, arguments: &str| Delta::Call {
        id: id.into(),
        name: name.into(),
        arguments: arguments.into(),
    };
    deltas.extend([call("t1", "read", r#"{"path": "ä"}"#), call("t2", "list", "")]);
    let usage = Usage {
        input_tokens: 12,
        output_tokens: 34,
        cache_read_tokens: 5,
        cache_write_tokens: if wire == Wire::Messages { 6 } else { 0 },
    };
    deltas.push(Delta::Done { stop: Stop::ToolUse, usage: Some(usage) });
    deltas
}

#[test]
fn an_answer_with_everything_is_read() {
    for wire in Wire::ALL {
        let (deltas, error) = asked(wire, Answer::new(everything(wire)));
        assert_eq!((joined(&deltas), error), (everything_read(wire), None));
    }
}

/// What [`conformance`] does case by case, for an answer with all of them at once.
#[test]
fn any_split_in_any_line_ending_gives_the_same_deltas() {
    std::thread::scope(|scope| {
        // A line ending for each format; the table of cases has them all.
        for (wire, newline) in Wire::ALL.into_iter().zip([Newline::CrLf, Newline::Cr, Newline::Lf])
        {
            scope.spawn(move || every_split_gives_the_same(wire, newline));
        }
    });
}

fn every_split_gives_the_same(wire: Wire, newline: Newline) {
    let (expected, _) = asked(wire, Answer::new(everything(wire)));
    let whole = Answer::new(everything(wire)).newline(newline);
    let mut script: Vec<Answer> = (1..whole.len()).map(|at| whole.clone().split_at([at])).collect();
    script.push(whole.every_byte());
    let count = script.len();
    assert!(count > 1000, "{count}");
    let fake = FakeModel::start(script);
    let model = model(wire, &fake);
    block_on(async {
        for number in 0..count {
            let request = Request { messages: vec![Message::user("hi")], ..Request::default() };
            let (deltas, error) = collect(&*model, request).await;
            assert_eq!((deltas, error), (expected.clone(), None), "{newline:?}, answer {number}");
        }
    });
    assert_eq!(fake.left(), 0);
}

#[test]
fn one_connection_serves_many_requests() {
    for wire in Wire::ALL {
        let script = vec![Answer::new(wire.answer([text("a")])); 3];
        let fake = FakeModel::start(script);
        let model = model(wire, &fake);
        block_on(async {
            for _ in 0..3 {
                let request = Request { messages: vec![Message::user("hi")], ..Request::default() };
                assert_eq!(collect(&*model, request).await.1, None);
            }
        });
        let connections: Vec<usize> = fake.requests().iter().map(|seen| seen.connection).collect();
        assert_eq!(connections, [1, 1, 1]);
    }
}

#[test]
fn refusals_have_their_class_and_say_who_refused_what() {
    for wire in Wire::ALL {
        let retry = |seconds: Option<u64>| Class::Retry { after: seconds.map(Duration::from_secs) };
        let answer = |status| wire.status(status);
        let date = |answer: Answer| answer.header("date", "Wed, 21 Oct 2026 07:27:30 GMT");
        for (answer, class, words) in [
            (
                answer(401),
                Class::Auth,
                "401 Unauthorized: scripted by the test (authentication_error)",
            ),
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
                wire.refusal(
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
            let (deltas, error) = ask(&*model(wire, &fake));
            let error = error.unwrap();
            assert_eq!(deltas, []);
            assert_eq!(fake.bodies().len(), 1, "nothing is retried in here");
            assert_eq!(error.class, class, "{error}");
            assert!(error.message.contains(words), "`{words}` is not in: {error}");
            assert!(error.message.contains(&fake.address().to_string()), "{error}");
            assert!(!error.network);
        }
    }
}

#[test]
fn a_server_that_echoes_secrets_does_not_get_them_shown() {
    for wire in Wire::ALL {
        let leak = format!("your key {KEY} and header {HEADER} are bad");
        // The control: without the secret the sentence is shown whole.
        let shown = failed(wire, wire.refusal(401, "authentication_error", "your key x is bad"));
        assert!(shown.message.contains("your key x is bad"), "{shown}");
        for answer in [
            wire.refusal(401, "authentication_error", &leak),
            Answer::body(500, "text/plain", leak.clone()),
            Answer::body(200, "text/plain", leak.clone()),
            Answer::new(wire.error("authentication_error", &leak)),
            Answer::new(format!("data: {leak}\n\n")),
        ] {
            // `collect` asserts that neither shows.
            let error = failed(wire, answer);
            assert!(error.message.contains('…'), "{error}");
        }
        // Outside the body as well.
        let kind = format!("text/html; k={KEY}");
        assert!(failed(wire, Answer::body(502, &kind, "x")).message.contains("k=…"));
        let place = format!("https://{KEY}.example.com/");
        let error = failed(wire, Answer::body(302, "text/plain", "").header("location", &place));
        assert!(error.message.contains("points to `hidden.example.com`"), "{error}");
    }
}

#[test]
fn an_error_event_keeps_what_came_and_has_its_class() {
    for wire in Wire::ALL {
        for (kind, class) in [
            ("overloaded_error", Class::Retry { after: None }),
            ("rate_limit_error", Class::Retry { after: None }),
            ("authentication_error", Class::Auth),
            ("invalid_request_error", Class::Refused),
            ("surprise_error", Class::Fatal),
        ] {
            let whole = wire.answer([text("partial")]);
            let came = &whole[..wire.after_text(&whole, 0)];
            let stream = format!("{came}{}", wire.error(kind, "so sorry"));
            let (deltas, error) = asked(wire, Answer::new(stream));
            assert_eq!(joined(&deltas), [Delta::Text("partial".into())]);
            let error = error.unwrap();
            assert_eq!((error.class, error.network), (class, false));
            assert!(error.message.ends_with(&format!("reported an error: so sorry ({kind})")));
        }
    }
}

#[test]
fn a_connection_that_drops_after_three_deltas_keeps_them() {
    for wire in Wire::ALL {
        let stream = wire.answer([text("one two three four five six seven")]);
        let at = wire.after_text(&stream, 2);
        for answer in [
            Answer::new(stream.clone()).close_after(at),
            Answer::new(stream.clone()).close_after(at + 40),
            Answer::new(stream.clone()).reset_after(at),
            Answer::new(stream.clone()).end_after(at),
            Answer::new(stream.clone()).end_after(at + 40),
        ] {
            let (deltas, error) = asked(wire, answer.clone());
            assert_eq!(
                joined(&deltas),
                [Delta::Text("one two three four fi".into())],
                "{answer:?}"
            );
            let error = error.unwrap();
            assert_eq!(
                (&error.class, error.network),
                (&Class::Retry { after: None }, true),
                "{error}"
            );
        }
    }
}

#[test]
fn a_connection_that_drops_before_anything_came_may_be_tried_again() {
    for wire in Wire::ALL {
        let stream = wire.answer([text("one")]);
        for answer in [
            Answer::new(stream.clone()).close_after(0),
            Answer::new(stream.clone()).reset_after(0),
            Answer::new(stream.clone()).end_after(0),
            Answer::new(stream).end_after(30),
        ] {
            let error = failed(wire, answer);
            assert_eq!(
                (&error.class, error.network),
                (&Class::Retry { after: None }, true),
                "{error}"
            );
        }
    }
}

#[test]
fn an_unfinished_call_is_never_delivered() {
    for wire in Wire::ALL {
        let stream =
            wire.answer([text("I read."), tool_use("t1", "read", r#"{"path":"a/very/long"}"#)]);
        let begun = match wire {
            Wire::Messages => "input_json_delta",
            Wire::Chat => r#""arguments":"{"#,
            Wire::Responses => "event: response.function_call_arguments.delta",
        };
        let at = stream.find(begun).unwrap() + 200;
        let (deltas, error) = asked(wire, Answer::new(stream).end_after(at));
        assert_eq!(joined(&deltas), [Delta::Text("I read.".into())]);
        assert!(error.unwrap().network);
    }
}

#[test]
fn a_last_blank_line_may_be_missing() {
    for wire in Wire::ALL {
        let stream = wire.answer([text("done")]);
        let whole = asked(wire, Answer::new(stream.clone()));
        assert!(matches!(whole.0.last(), Some(Delta::Done { .. })));
        for missing in 1..=2 {
            let answer = Answer::new(stream.clone()).end_after(stream.len() - missing);
            assert_eq!(asked(wire, answer), whole);
        }
    }
}

#[test]
fn nobody_listening_is_a_network_error_that_names_the_address() {
    for wire in Wire::ALL {
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let model = open(&options(wire, &format!("http://{address}"))).unwrap();
        let error = ask(&*model).1.unwrap();
        assert_eq!((&error.class, error.network), (&Class::Retry { after: None }, true));
        assert!(
            error
                .message
                .starts_with(&format!("`{address}` cannot be reached: Connection refused")),
            "{error}"
        );
    }
}

#[test]
fn silence_ends_the_request_and_any_byte_puts_it_off() {
    for wire in Wire::ALL {
        let stream = wire.answer([text("one two three")]);
        let fake = FakeModel::start(vec![
            Answer::new(stream.clone()).hang_after(wire.after_text(&stream, 0)),
            Answer::new(stream.clone()).delay(Duration::from_secs(3)),
            Answer::new(format!("{}{stream}", ": ping\n\n".repeat(14)))
                .every_event()
                .pause(Duration::from_millis(100)),
        ]);
        let mut options = options(wire, &fake.url(wire));
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
}

#[test]
fn a_dropped_stream_ends_the_request() {
    for wire in Wire::ALL {
        let stream = wire.answer([text("one two three")]);
        let fake = FakeModel::start(vec![
            Answer::new(stream.clone()).hang_after(wire.after_text(&stream, 0)),
            Answer::new(stream),
        ]);
        let model = model(wire, &fake);
        block_on(async {
            let request = Request { messages: vec![Message::user("hi")], ..Request::default() };
            let mut answer = model.stream(request.clone());
            assert_eq!(answer.next().await, Some(Ok(Delta::Text("one two".into()))));
            drop(answer);
            assert_eq!(collect(&*model, request).await.1, None);
        });
    }
}

#[test]
fn a_redirect_is_not_followed_and_takes_no_key_along() {
    for wire in Wire::ALL {
        let trap = FakeModel::start(vec![Answer::new(wire.answer([text("trap")]))]);
        for status in [301, 302, 303, 307, 308] {
            let place = format!("{}/v1/messages?token=secret-query", trap.base_url());
            let error =
                failed(wire, Answer::body(status, "text/plain", "").header("location", &place));
            assert_eq!(error.class, Class::Fatal);
            assert!(error.message.contains(&format!("points to `{}`", trap.address())), "{error}");
            assert!(!error.message.contains("secret-query"), "{error}");
        }
        assert_eq!(trap.requests().len(), 0);
        // The control: the trap would have answered.
        assert_eq!(ask(&*model(wire, &trap)).1, None);
        assert_eq!(trap.requests().len(), 1);
    }
}

#[test]
fn a_cut_off_call_is_delivered_as_the_model_left_it() {
    for wire in Wire::ALL {
        let stream = wire.stopped([tool_use("t", "read", r#"{"path": "a"#)], wire.cut());
        let (deltas, error) = asked(wire, Answer::new(stream));
        assert_eq!(error, None);
        assert_eq!(
            deltas[0],
            Delta::Call { id: "t".into(), name: "read".into(), arguments: r#"{"path": "a"#.into() }
        );
        assert!(matches!(&deltas[1], Delta::Done { stop: Stop::MaxTokens, .. }));
    }
}

#[test]
fn a_call_that_breaks_off_in_its_arguments_has_begun() {
    for wire in Wire::ALL {
        let stream = wire.answer([tool_use("t", "read", r#"{"path": "a long one"}"#)]);
        let named = stream.find("\"read\"").unwrap();
        let event = stream[..named].rfind("\n\n").unwrap() + 2;
        let after = named + stream[named..].find("\n\n").unwrap() + 2;
        for (cut, begun) in [(event, false), (after, true)] {
            let fake = FakeModel::start(vec![Answer::new(stream.clone()).end_after(cut)]);
            let request = Request { messages: vec![Message::user("hi")], ..Request::default() };
            let told: Vec<_> = block_on(model(wire, &fake).stream(request).collect());
            assert_eq!(told.contains(&Ok(Delta::Begun)), begun, "{wire:?}: {told:?}");
            assert_eq!(told.len(), 1 + usize::from(begun), "{wire:?}: {told:?}");
            assert!(told.last().unwrap().is_err(), "{wire:?}: {told:?}");
        }
    }
}

#[test]
fn a_base_url_keeps_its_path_and_query() {
    for wire in Wire::ALL {
        let fake = FakeModel::start(vec![Answer::new(wire.answer([text("x")]))]);
        let model =
            open(&options(wire, &format!("{}/gw{}/?api=2", fake.base_url(), wire.base()))).unwrap();
        assert_eq!(ask(&*model).1, None);
        let line = format!("POST /gw{}{}?api=2", wire.base(), wire.path());
        assert_eq!(fake.requests()[0].line, line);
    }
}

#[test]
fn an_answer_without_end_is_broken_off() {
    for wire in Wire::ALL {
        let delta = wire.text_event(&"y".repeat(1 << 20));
        let stream = wire.answer([text("one two three")]);
        let (head, tail) = stream.split_at(wire.after_text(&stream, 0));
        let long =
            |mebibytes: usize| Answer::new(format!("{head}{}{tail}", delta.repeat(mebibytes)));
        let (deltas, error) = asked(wire, long(65));
        let error = error.unwrap();
        assert_eq!(error.class, Class::Fatal);
        assert!(
            error.message.contains("an answer without end: more than 67108864 bytes"),
            "{error}"
        );
        assert!(deltas.len() > 60, "what came before is handed on");
        assert_eq!(asked(wire, long(2)).1, None, "control");
    }
}

#[test]
fn half_a_character_in_a_piece_costs_no_answer() {
    for wire in Wire::ALL {
        let stream = wire.answer([text("one @ three")]);
        let answer = |escape: &str| Answer::new(stream.replace('@', escape));
        let (deltas, error) = asked(wire, answer("\\ud83d"));
        let first = joined(&deltas).into_iter().next();
        assert_eq!((error, first), (None, Some(Delta::Text("one \u{fffd} three".into()))));
        let (deltas, error) = asked(wire, answer("\\ud83d\\ude00"));
        let first = joined(&deltas).into_iter().next();
        assert_eq!((error, first), (None, Some(Delta::Text("one 😀 three".into()))));
    }
}

#[test]
fn a_packed_answer_is_said_to_be_one() {
    for wire in Wire::ALL {
        let answer = || Answer::new(wire.answer([text("hi")]));
        let error = failed(wire, answer().header("content-encoding", "gzip"));
        assert_eq!(error.class, Class::Fatal);
        assert!(error.message.contains("sent its answer as `gzip`"), "{error}");
        assert_eq!(asked(wire, answer().header("content-encoding", "identity")).1, None, "control");
    }
}

#[test]
fn a_name_of_this_machine_leads_there_whatever_a_name_server_says() {
    for wire in Wire::ALL {
        let answer = || Answer::new(wire.answer([text("hi")]));
        let fake = FakeModel::start(vec![answer(), answer()]);
        for name in ["localhost", "no-server-knows-this.localhost"] {
            let url = fake.url(wire).replace("127.0.0.1", name);
            assert_eq!(ask(&*open(&options(wire, &url)).unwrap()).1, None, "{name}");
        }
        assert_eq!(fake.left(), 0);
    }
}
