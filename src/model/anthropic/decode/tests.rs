use serde_json::{Value, json};

use super::Decoder;
use crate::{
    message::{Stop, Usage},
    model::{
        Class, Delta,
        answer::{Decoder as _, Fault, MAX_CALLS},
        sse::Event,
    },
};

fn read(values: &[Value]) -> Result<Vec<Delta>, Fault> {
    let mut decoder = Decoder::default();
    let mut out = Vec::new();
    for value in values {
        let event = Event { data: value.to_string(), ..Event::default() };
        decoder.event(&event, &mut out)?;
    }
    assert!(decoder.complete());
    Ok(out)
}

fn stop() -> Value {
    json!({"type": "message_stop"})
}

#[test]
fn later_counts_replace_earlier_ones_and_odd_ones_are_passed_over() {
    let deltas = read(&[
        json!({"type": "message_start", "message": {"usage":
            {"input_tokens": 7, "output_tokens": 1, "cache_read_input_tokens": null}}}),
        json!({"type": "message_delta", "usage": {"output_tokens": 9, "input_tokens": "many"}}),
        stop(),
    ]);
    let usage = Usage { input_tokens: 7, output_tokens: 9, ..Usage::default() };
    assert_eq!(deltas, Ok(vec![Delta::Done { stop: Stop::EndTurn, usage: Some(usage) }]));
}

#[test]
fn blocks_that_were_never_stopped_are_closed_by_the_end_in_order() {
    let start = |index, id| {
        json!({"type": "content_block_start", "index": index, "content_block":
            {"type": "tool_use", "id": id, "name": "n", "input": {}}})
    };
    let deltas = read(&[
        start(1, "b"),
        start(0, "a"),
        json!({"type": "content_block_delta", "index": 1, "delta":
            {"type": "input_json_delta", "partial_json": "{\"x\":"}}),
        json!({"type": "content_block_delta", "index": 1, "delta":
            {"type": "input_json_delta", "partial_json": "1}"}}),
        stop(),
    ]);
    let call = |id: &str, arguments: &str| Delta::Call {
        id: id.into(),
        name: "n".into(),
        arguments: arguments.into(),
    };
    assert_eq!(
        deltas,
        Ok(vec![
            call("a", ""),
            call("b", "{\"x\":1}"),
            Delta::Done { stop: Stop::ToolUse, usage: None }
        ])
    );
}

#[test]
fn thinking_without_a_signature_is_shown_and_not_kept() {
    let start = json!({"type": "content_block_start", "index": 0,
        "content_block": {"type": "thinking", "thinking": "hm"}});
    let done = Delta::Done { stop: Stop::EndTurn, usage: None };
    assert_eq!(
        read(&[start.clone(), stop()]),
        Ok(vec![Delta::Thinking("hm".into()), done.clone()])
    );
    let sign = json!({"type": "content_block_delta", "index": 0,
        "delta": {"type": "signature_delta", "signature": "s"}});
    let kept = json!({"type": "thinking", "thinking": "hm", "signature": "s"});
    assert_eq!(
        read(&[start, sign, stop()]),
        Ok(vec![Delta::Thinking("hm".into()), Delta::Opaque(kept), done])
    );
}

#[test]
fn the_events_name_stands_in_for_a_missing_type() {
    let mut decoder = Decoder::default();
    let mut out = Vec::new();
    let event = Event { name: "message_stop".into(), data: "{}".into(), id: None };
    decoder.event(&event, &mut out).unwrap();
    assert!(decoder.complete());
}

#[test]
fn what_is_not_json_is_garbled_and_an_error_without_words_is_shown() {
    let mut decoder = Decoder::default();
    let mut out = Vec::new();
    let mut say = |data: &str| {
        let event = Event { data: data.into(), ..Event::default() };
        decoder.event(&event, &mut out).unwrap_err()
    };
    let fault = say("{\"type\": \"mess");
    assert!(fault.garbled);
    assert_eq!(fault.class, Class::Retry { after: None });
    assert_eq!(fault.what, "sent an event that is not JSON: {\"type\": \"mess");
    let fault = say(r#"{"type": "error"}"#);
    assert_eq!(
        fault,
        Fault {
            class: Class::Fatal,
            what: r#"reported an error: {"type":"error"}"#.into(),
            garbled: false
        }
    );
}

#[test]
fn calls_beyond_number_end_the_answer() {
    let begin = |index: usize| {
        json!({"type": "content_block_start", "index": index, "content_block":
            {"type": "tool_use", "id": "same", "name": "read", "input": {}}})
    };
    let most: Vec<Value> = (0..MAX_CALLS).map(begin).chain([stop()]).collect();
    assert_eq!(read(&most).unwrap().len(), MAX_CALLS + 1, "control");
    let more: Vec<Value> = (0..=MAX_CALLS).map(begin).chain([stop()]).collect();
    assert_eq!(read(&more), Err(Fault::too_many_calls()));
}
