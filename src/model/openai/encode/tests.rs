use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{Frame, Limit, body, fitted, without_usage};
use crate::{
    message::{Arguments, Block, Effort, Message, Role, ToolCall, ToolResult},
    model::Request,
};

const NONE: Limit = Limit { tokens: None, is_openai: false };

fn sent(request: &Request, limit: Limit, options: &BTreeMap<String, Value>) -> Vec<u8> {
    body(request, Frame { model: "m", name: "p/m", limit, effort: None, options })
}

fn text(request: &Request, limit: Limit) -> String {
    String::from_utf8(sent(request, limit, &BTreeMap::new())).unwrap()
}

#[test]
fn an_empty_request_holds_no_empty_fields() {
    assert_eq!(
        text(&Request::default(), NONE),
        r#"{"model":"m","messages":[],"stream":true,"stream_options":{"include_usage":true}}"#
    );
}

#[test]
fn a_bound_has_the_name_that_its_server_knows() {
    for (is_openai, field) in
        [(true, r#""max_completion_tokens":5,"#), (false, r#""max_tokens":5,"#)]
    {
        let limit = Limit { tokens: Some(5), is_openai };
        let text = text(&Request::default(), limit);
        assert!(text.contains(field) && text.matches("tokens").count() == 1, "{text}");
    }
    for option in ["max_tokens", "max_completion_tokens"] {
        let options = BTreeMap::from([(option.to_owned(), json!(7))]);
        let limit = Limit { tokens: Some(5), is_openai: true };
        let text = String::from_utf8(sent(&Request::default(), limit, &options));
        let text = text.unwrap();
        assert!(text.contains(&format!(r#""{option}":7"#)), "{text}");
        assert_eq!(text.matches("tokens").count(), 1, "{text}");
    }
}

#[test]
fn only_the_wish_itself_is_cut_off() {
    let options = BTreeMap::from([("zeta".to_owned(), json!({"a": {}}))]);
    let full = sent(&Request::default(), NONE, &options);
    let bare = without_usage(&full).unwrap();
    assert_eq!(
        String::from_utf8(bare.clone()).unwrap(),
        r#"{"model":"m","messages":[],"stream":true,"zeta":{"a":{}}}"#
    );
    assert_eq!(without_usage(&bare), None);
}

#[test]
fn the_bytes_of_a_conversation_do_not_change_as_it_grows() {
    let call = ToolCall { id: "x".into(), name: "read".into(), arguments: Arguments::parse("{}") };
    let result = ToolResult { call: "x".into(), text: "y".into(), is_error: false };
    let all = [
        Message::user("one"),
        Message { role: Role::Assistant, blocks: vec![Block::Call(call)] },
        Message { role: Role::User, blocks: vec![Block::Result(result)] },
        Message { role: Role::Assistant, blocks: vec![Block::Text { text: "z".into() }] },
        Message::user("two"),
    ];
    let of = |count: usize| {
        let messages = all.iter().take(count).cloned().collect();
        text(&Request { system: "s".into(), messages, ..Request::default() }, NONE)
    };
    for count in 1..all.len() {
        let (before, after) = (of(count), of(count + 1));
        let stable = before.split_once(r#"],"stream""#).unwrap().0;
        assert!(after.starts_with(stable), "{before}\n{after}");
    }
}

#[test]
fn what_the_api_refuses_in_names_is_replaced_and_stays_told_apart() {
    assert_eq!(fitted("call_1-A", 40), "call_1-A");
    assert_eq!(fitted("", 40), "_");
    let long = "x".repeat(60);
    let longer = format!("{long}y");
    let all = ["a.b", "a/b", "ä", &long, &longer].map(|text| fitted(text, 40));
    for (at, name) in all.iter().enumerate() {
        assert!(name.len() <= 40 && name.is_ascii() && !name.contains(['.', '/']), "{name}");
        assert!(!all[..at].contains(name), "{name}");
    }
    assert_eq!(fitted(&long, 64), long);
}

#[test]
fn effort_has_its_field_and_its_absence_none() {
    let options = BTreeMap::new();
    let effort = |effort: Option<Effort>| {
        let frame = Frame { model: "m", name: "p/m", limit: NONE, effort, options: &options };
        serde_json::from_slice::<Value>(&body(&Request::default(), frame)).unwrap()
    };
    assert_eq!(effort(Some(Effort::ExtraHigh))["reasoning_effort"], "xhigh");
    assert!(effort(None).get("reasoning_effort").is_none());
}
