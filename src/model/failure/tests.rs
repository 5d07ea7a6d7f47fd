use std::time::Duration;

use super::{Class, Reply, plain, retry_after};

fn reply(status: u16, body: &str) -> Reply<'_> {
    Reply {
        host: "api.example",
        status,
        reason: "",
        content_type: Some("application/json"),
        location: None,
        body,
        repair: "mend the base URL",
        after: None,
    }
}

fn class(status: u16, body: &str) -> Class {
    reply(status, body).error().class
}

const INVALID: &str =
    r#"{"type":"error","error":{"type":"invalid_request_error","message":"max_tokens: too big"}}"#;

#[test]
fn statuses_have_their_classes() {
    let retry = Class::Retry { after: None };
    for (status, expected) in [
        (401, Class::Auth),
        (403, Class::Auth),
        (408, retry.clone()),
        (429, retry.clone()),
        (500, retry.clone()),
        (503, retry.clone()),
        (529, retry),
        (413, Class::ContextFull),
        (400, Class::Refused),
        (404, Class::Refused),
        (302, Class::Fatal),
    ] {
        assert_eq!(class(status, INVALID), expected, "{status}");
    }
    assert_eq!(class(404, "<html>no such page</html>"), Class::Fatal);
}

#[test]
fn a_full_context_is_recognised_by_its_words_and_only_in_a_refusal() {
    for words in [
        "prompt is too long: 210000 tokens > 200000 maximum",
        "input length and `max_tokens` exceed context limit: 1 + 2 > 3",
        "This model's maximum context length is 8192 tokens",
        "the request exceeds the available context size",
    ] {
        let body =
            serde_json::json!({"error": {"type": "invalid_request_error", "message": words}});
        assert_eq!(class(400, &body.to_string()), Class::ContextFull, "{words}");
        assert_eq!(class(429, &body.to_string()), Class::Retry { after: None }, "{words}");
    }
    assert_eq!(class(400, INVALID), Class::Refused);
}

#[test]
fn messages_name_host_status_and_the_servers_words() {
    let mut known = reply(400, INVALID);
    known.reason = "Bad Request";
    assert_eq!(
        known.error().message,
        "`api.example` answered 400 Bad Request: max_tokens: too big (invalid_request_error)"
    );
    let mut page = reply(200, "<html>\r\n <body>\u{1b}[31mLog  in</body>");
    page.content_type = Some("text/html");
    assert_eq!(
        page.error().message,
        "`api.example` answered 200 with `text/html` instead of an event stream: \
         <html> <body> [31mLog in</body>"
    );
    assert_eq!(
        reply(502, "").error().message,
        "`api.example` answered 502 with `application/json` and no text"
    );
    let mut away = reply(307, "");
    away.location = Some("elsewhere.example");
    let message = away.error().message;
    assert!(message.contains("points to `elsewhere.example`"));
    assert!(message.ends_with("write that server as the base URL if it is right"), "{message}");
}

#[test]
fn other_shapes_of_errors_are_read_too() {
    for (body, expected) in [
        (r#"{"error":"model not found"}"#, "model not found"),
        (r#"{"detail":"no"}"#, "no"),
        (r#"{"message":"no","code":"x"}"#, "no (x)"),
        (r#"{"error":{"type":"t","message":null}}"#, "t"),
    ] {
        let message = reply(400, body).error().message;
        assert_eq!(message, format!("`api.example` answered 400: {expected}"));
    }
    assert!(reply(400, r#"{"id":1}"#).error().message.ends_with(r#"`application/json`: {"id":1}"#));
}

#[test]
fn an_error_in_a_good_status_has_the_class_of_its_type() {
    let body = r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#;
    assert_eq!(class(200, body), Class::Retry { after: None });
    assert_eq!(class(200, INVALID), Class::Refused);
    assert_eq!(class(200, r#"{"content":[]}"#), Class::Fatal);
}

#[test]
fn retry_after_is_read_in_all_its_forms() {
    let seconds = |s| Some(Duration::from_secs(s));
    assert_eq!(retry_after(None, Some("7"), None), seconds(7));
    assert_eq!(retry_after(Some("1500"), Some("7"), None), Some(Duration::from_millis(1500)));
    assert_eq!(retry_after(Some("soon"), Some(" 0.5 "), None), Some(Duration::from_millis(500)));
    let now = Some("Wed, 21 Oct 2026 07:27:30 GMT");
    assert_eq!(retry_after(None, Some("Wed, 21 Oct 2026 07:28:00 GMT"), now), seconds(30));
    assert_eq!(retry_after(None, Some("Wed, 21 Oct 2026 07:00:00 GMT"), now), seconds(0));
    assert_eq!(retry_after(None, Some("Wed, 21 Oct 2026 07:28:00 GMT"), None), None);
    for odd in ["", "-", "NaN", "tomorrow"] {
        assert_eq!(retry_after(None, Some(odd), now), None, "{odd}");
    }
    for endless in ["1e999", "99999999999999999999999999"] {
        assert_eq!(retry_after(None, Some(endless), now), Some(Duration::MAX), "{endless}");
        assert_eq!(retry_after(Some(endless), None, now), Some(Duration::MAX), "{endless}");
    }
    assert_eq!(retry_after(None, Some("-3"), None), seconds(0));
}

#[test]
fn long_text_is_cut_on_a_character() {
    assert_eq!(plain("ab\n\ncd", 10), "ab cd");
    assert_eq!(plain("日本語", 2), "日本…");
    assert_eq!(plain("\u{0}\u{1b}", 2), "");
}
