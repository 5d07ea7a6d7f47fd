use serde_json::{Value, json};

use super::Calls;
use crate::model::Delta;

/// Puts together what each chunk has as its `tool_calls`.
fn put(chunks: &[Value]) -> Vec<(String, String, String)> {
    let mut calls = Calls::default();
    for chunk in chunks {
        calls.add(chunk);
    }
    finished(calls)
}

fn finished(mut calls: Calls) -> Vec<(String, String, String)> {
    let mut out = Vec::new();
    calls.finish("c", &mut out);
    out.into_iter()
        .map(|delta| match delta {
            Delta::Call { id, name, arguments } => (id, name, arguments),
            other => panic!("{other:?}"),
        })
        .collect()
}

fn call(id: &str, name: &str, arguments: &str) -> (String, String, String) {
    (id.into(), name.into(), arguments.into())
}

fn two() -> Vec<(String, String, String)> {
    vec![call("x", "read", r#"{"path":"a"}"#), call("y", "list", r#"{"path":"b"}"#)]
}

#[test]
fn numbered_pieces_go_where_their_number_says() {
    let piece = |index: u64, arguments: &str| json!([{"index": index, "function": {"arguments": arguments}}]);
    let begin = |index: u64, id: &str, name: &str| json!([{"index": index, "id": id, "function": {"name": name, "arguments": ""}}]);
    let interleaved = [
        begin(0, "x", "read"),
        begin(1, "y", "list"),
        piece(1, r#"{"path""#),
        piece(0, r#"{"path":"#),
        piece(1, r#":"b"}"#),
        piece(0, r#""a"}"#),
    ];
    assert_eq!(put(&interleaved), two());
}

#[test]
fn pieces_without_a_number_are_told_by_identifier_name_or_place() {
    let by_id = [
        json!([{"id": "x", "function": {"name": "read", "arguments": r#"{"pa"#}}]),
        json!([{"id": "y", "function": {"name": "list", "arguments": r#"{"pa"#}}]),
        json!([{"id": "x", "function": {"arguments": r#"th":"a"}"#}}]),
        json!([{"id": "y", "function": {"arguments": r#"th":"b"}"#}}]),
    ];
    assert_eq!(put(&by_id), two());
    let one_after_the_other = [
        json!([{"id": "x", "function": {"name": "read", "arguments": r#"{"pa"#}}]),
        json!([{"function": {"arguments": r#"th":"a"}"#}}]),
        json!([{"id": "y", "function": {"name": "list"}}]),
        json!([{"id": null, "function": {"name": null, "arguments": r#"{"path":"b"}"#}}]),
    ];
    assert_eq!(put(&one_after_the_other), two());
    let by_place = [
        json!([{"id": "x", "function": {"name": "read"}}, {"id": "y", "function": {"name": "list"}}]),
        json!([{"function": {"arguments": r#"{"path":"#}}, {"function": {"arguments": r#"{"path":"#}}]),
        json!([{"function": {"arguments": r#""a"}"#}}, {"function": {"arguments": r#""b"}"#}}]),
    ];
    assert_eq!(put(&by_place), two());
    let identifier_first = [
        json!([{"id": "x"}]),
        json!([{"function": {"name": "read"}}]),
        json!([{"function": {"arguments": r#"{"path":"a"}"#}}]),
        json!([{"id": "y", "function": {"arguments": ""}}]),
        json!([{"function": {"name": "list", "arguments": r#"{"path":"b"}"#}}]),
    ];
    assert_eq!(put(&identifier_first), two());
}

#[test]
fn whole_calls_are_taken_as_they_are() {
    let whole = [json!([
        {"id": "x", "type": "function", "function": {"name": "read", "arguments": {"path": "a"}}},
        {"id": "y", "type": "function", "function": {"name": "list", "arguments": "{\"path\":\"b\"}"}}])];
    assert_eq!(put(&whole), two());
    // Calls that share their number, in chunks of their own.
    let numbered_alike = [
        json!([{"index": 0, "id": "x", "function": {"name": "read", "arguments": {"path": "a"}}}]),
        json!([{"index": 0, "id": "y", "function": {"name": "list", "arguments": {"path": "b"}}}]),
    ];
    assert_eq!(put(&numbered_alike), two());
    // The same tool twice, without any identifier.
    let nameless = [
        json!([{"function": {"name": "read", "arguments": "{\"path\":\"a\"}"}}]),
        json!([{"function": {"name": "read", "arguments": "{\"path\":\"b\"}"}}]),
        json!([{"function": {"name": "read", "arguments": {}}}]),
    ];
    assert_eq!(
        put(&nameless),
        [
            call("call_0_c", "read", r#"{"path":"a"}"#),
            call("call_1_c", "read", r#"{"path":"b"}"#),
            call("call_2_c", "read", "{}"),
        ]
    );
}

#[test]
fn what_is_said_again_is_not_added_again() {
    let repeated = [
        json!([{"index": 0, "id": "x", "function": {"name": "read", "arguments": ""}}]),
        json!([{"index": 0, "id": "x", "function": {"name": "read", "arguments": r#"{"path":"#}}]),
        json!([{"index": 0, "id": "new-each-time", "function": {"arguments": r#""a"}"#}}]),
    ];
    assert_eq!(put(&repeated), [call("x", "read", r#"{"path":"a"}"#)]);
    let without_numbers = [
        json!([{"id": "x", "function": {"name": "read", "arguments": r#"{"path":"#}}]),
        json!([{"id": "z", "function": {"name": "read", "arguments": r#""a"}"#}}]),
    ];
    assert_eq!(put(&without_numbers), [call("x", "read", r#"{"path":"a"}"#)]);
    let identifiers_anew = [
        json!([{"id": "x", "function": {"name": "read", "arguments": ""}}]),
        json!([{"id": "z", "function": {"arguments": r#"{"path":"a"}"#}}]),
    ];
    assert_eq!(put(&identifiers_anew), [call("x", "read", r#"{"path":"a"}"#)]);
    let in_pieces = [
        json!([{"index": 0, "id": "x", "function": {"name": "re"}}]),
        json!([{"index": 0, "function": {"name": "ad"}}]),
        json!([{"index": 0, "function": {"arguments": "{}"}}]),
    ];
    assert_eq!(put(&in_pieces), [call("x", "read", "{}")]);
}

#[test]
fn odd_pieces_are_passed_over_and_cut_ones_kept() {
    assert_eq!(put(&[json!(null), json!({}), json!([null, {}, {"index": 3}, "x", 5])]), []);
    let cut =
        [json!([{"index": 0, "id": "x", "function": {"name": "read", "arguments": "{\"pa"}}])];
    assert_eq!(put(&cut), [call("x", "read", "{\"pa")]);
    let bare = [json!([{"id": "x", "name": "read", "arguments": "{}"}])];
    assert_eq!(put(&bare), [call("x", "read", "{}")]);
    let nobody = [json!([{"index": 0, "function": {"arguments": "{}"}}])];
    assert_eq!(put(&nobody), [call("call_0_c", "", "{}")]);
}

#[test]
fn the_call_of_the_older_api_is_one() {
    let mut calls = Calls::default();
    for piece in [
        json!({"name": "read", "arguments": ""}),
        json!({"arguments": r#"{"path":"#}),
        json!({"name": null, "arguments": r#""a"}"#}),
        json!({}),
    ] {
        calls.add_legacy(&piece);
    }
    assert_eq!(finished(calls), [call("call_0_c", "read", r#"{"path":"a"}"#)]);
}

#[test]
fn arguments_in_many_pieces_are_read_in_time_with_their_length() {
    let piece = |arguments: &str| json!([{"function": {"name": "write", "arguments": arguments}}]);
    let (begin, more, end) =
        (piece(r#"{"text":"a\"}"#), piece("0123456789abcdef0123456789abcdef"), piece(r#""}"#));
    let pieces = 100_000;
    let mut calls = Calls::default();
    let start = std::time::Instant::now();
    calls.add(&begin);
    (0..pieces).for_each(|_| calls.add(&more));
    calls.add(&end);
    calls.add(&piece("{}"));
    // Some hundred milliseconds; with a look at all of them for each piece it would be an hour.
    assert!(start.elapsed() < std::time::Duration::from_secs(20), "{:?}", start.elapsed());
    let calls = finished(calls);
    let lengths: Vec<usize> = calls.iter().map(|(_, _, arguments)| arguments.len()).collect();
    assert_eq!(lengths, [13 + 32 * pieces + 2, 2]);
}
