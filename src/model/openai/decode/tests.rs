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

fn event(data: &(impl std::fmt::Display + ?Sized)) -> Event {
    Event { data: data.to_string(), ..Event::default() }
}

fn decoded(chunks: &[Value]) -> Vec<Delta> {
    let mut decoder = Decoder::default();
    let mut out = Vec::new();
    for chunk in chunks {
        decoder.event(&event(chunk), &mut out).unwrap();
    }
    assert!(!decoder.complete());
    decoder.event(&event("[DONE]"), &mut out).unwrap();
    assert!(decoder.complete());
    out
}

fn usage(chunks: &[Value]) -> Option<Usage> {
    match decoded(chunks).pop() {
        Some(Delta::Done { usage, .. }) => usage,
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_last_count_is_the_answers_and_the_cache_is_told_apart() {
    let of = |input, output, cache| {
        Some(Usage {
            input_tokens: input,
            output_tokens: output,
            cache_read_tokens: cache,
            cache_write_tokens: 0,
        })
    };
    let each = [
        json!({"usage": {"prompt_tokens": 10, "completion_tokens": 1}}),
        json!({"usage": {"prompt_tokens": 10, "completion_tokens": 2}}),
        json!({"usage": null, "choices": []}),
    ];
    assert_eq!(usage(&each), of(10, 2, 0));
    let cached = json!({"usage": {"prompt_tokens": 10, "completion_tokens": 2,
        "prompt_tokens_details": {"cached_tokens": 7}}});
    assert_eq!(usage(&[cached]), of(3, 2, 7));
    let deepseek = json!({"usage": {"prompt_tokens": 10, "completion_tokens": 2,
        "prompt_cache_hit_tokens": 4, "prompt_cache_miss_tokens": 6}});
    assert_eq!(usage(&[deepseek]), of(6, 2, 4));
    let impossible = json!({"usage": {"prompt_tokens": 10,
        "prompt_tokens_details": {"cached_tokens": 11}}});
    assert_eq!(usage(&[impossible]), of(0, 0, 10));
    assert_eq!(usage(&[json!({"usage": {}}), json!({"usage": "odd"}), json!({})]), None);
}

#[test]
fn content_in_parts_is_read() {
    let parts = json!([
        {"type": "thinking", "thinking": [{"type": "text", "text": "a"}]},
        {"type": "thinking", "thinking": "b"},
        {"type": "text", "text": "c"},
        "d",
        {"type": "image_url", "image_url": {}},
        null,
    ]);
    assert_eq!(
        decoded(&[json!({"choices": [{"delta": {"content": parts}}]})]),
        [
            Delta::Thinking("a".into()),
            Delta::Thinking("b".into()),
            Delta::Text("c".into()),
            Delta::Text("d".into()),
            Delta::Done { stop: Stop::EndTurn, usage: None },
        ]
    );
}

#[test]
fn a_message_beside_its_delta_is_not_read_twice() {
    let choice = json!({"delta": {"content": "x"}, "message": {"content": "all of x"}});
    let out = decoded(&[json!({ "choices": [choice] })]);
    assert_eq!(out[0], Delta::Text("x".into()));
    assert_eq!(out.len(), 2);
}

#[test]
fn an_empty_reason_to_stop_is_none() {
    let mut decoder = Decoder::default();
    let mut out = Vec::new();
    let chunk = json!({"choices": [{"delta": {"content": "x"}, "finish_reason": ""}]});
    decoder.event(&event(&chunk), &mut out).unwrap();
    decoder.end(&mut out);
    assert!(!decoder.complete(), "more may have been to come: {out:?}");
    let chunk = json!({"choices": [{"delta": {}, "finish_reason": "stop"}]});
    decoder.event(&event(&chunk), &mut out).unwrap();
    decoder.end(&mut out);
    assert!(decoder.complete());
    decoder.end(&mut out);
    assert_eq!(out.len(), 2, "once: {out:?}");
}

#[test]
fn what_is_not_json_is_garbled() {
    let fault = Decoder::default().event(&event("{\"half\":"), &mut Vec::new()).unwrap_err();
    assert!(matches!(&fault, Fault { class: Class::Retry { .. }, garbled: true, .. }), "{fault:?}");
    assert_eq!(fault.what, "sent an event that is not JSON: {\"half\":");
}

#[test]
fn calls_beyond_number_end_the_answer_whether_in_one_chunk_or_in_many() {
    let call = |index: usize| json!({"index": index, "id": "same", "function": {"name": "read"}});
    let chunk = |calls: Vec<Value>| json!({"choices": [{"delta": {"tool_calls": calls}}]});
    let most: Vec<Value> = (0..MAX_CALLS).map(|index| chunk(vec![call(index)])).collect();
    assert_eq!(decoded(&most).len(), MAX_CALLS + 1, "control");
    let mut decoder = Decoder::default();
    let many = event(&chunk((0..200_000).map(call).collect()));
    assert_eq!(decoder.event(&many, &mut Vec::new()), Err(Fault::too_many_calls()));
    let mut decoder = Decoder::default();
    let faults = (0..=MAX_CALLS).filter_map(|index| {
        decoder.event(&event(&chunk(vec![call(index)])), &mut Vec::new()).err()
    });
    assert_eq!(faults.collect::<Vec<_>>(), [Fault::too_many_calls()]);
}
