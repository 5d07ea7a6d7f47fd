use futures_util::StreamExt;

use super::Replay;
use crate::{
    message::{Arguments, Block, Message, Role, Stop, ToolCall, ToolResult, Usage},
    model::{Class, Delta, Model, ModelError, Request},
};

fn ask(model: &Replay, messages: Vec<Message>) -> Result<Vec<Delta>, ModelError> {
    let request = Request { messages, ..Request::default() };
    let items: Vec<_> = futures_util::FutureExt::now_or_never(model.stream(request).collect())
        .expect("a recording never waits");
    items.into_iter().collect()
}

fn done(stop: Stop) -> Delta {
    Delta::Done { stop, usage: None }
}

fn call(id: &str, arguments: &str) -> Delta {
    Delta::Call { id: id.into(), name: "read".into(), arguments: arguments.into() }
}

/// A conversation of one call, answered with this.
fn answered(text: &str, is_error: bool) -> Vec<Message> {
    let call = ToolCall {
        id: "replay_1".into(),
        name: "read".into(),
        arguments: Arguments::Object(serde_json::Map::new()),
    };
    let result = ToolResult { call: "replay_1".into(), text: text.into(), is_error };
    vec![
        Message::user("go"),
        Message { role: Role::Assistant, blocks: vec![Block::Call(call)] },
        Message { role: Role::User, blocks: vec![Block::Result(result)] },
    ]
}

#[test]
fn answers_are_played_in_order_and_then_there_are_none_left() {
    let model = Replay::new(
        "replay/t",
        "\u{feff}{\"thinking\":\"hm\",\"text\":\"a\",\"calls\":[{\"name\":\"read\",\
         \"arguments\":{\"path\":\"x\"}},{\"name\":\"read\"}]}\n\n\
         {\"calls\":[{\"name\":\"read\",\"arguments\":\"{\\\"pa\"}],\"stop\":\"maxTokens\"}\r\n\
         {\"text\":\"b\",\"usage\":{\"inputTokens\":3}}",
    )
    .unwrap();
    assert_eq!(model.name(), "replay/t");
    assert_eq!(
        ask(&model, vec![Message::user("go")]),
        Ok(vec![
            Delta::Thinking("hm".into()),
            Delta::Text("a".into()),
            call("replay_1", r#"{"path":"x"}"#),
            call("replay_2", ""),
            done(Stop::ToolUse),
        ])
    );
    // The conversation holds one call, so this one is the second.
    assert_eq!(
        ask(&model, answered("x", false)),
        Ok(vec![call("replay_2", "{\"pa"), done(Stop::MaxTokens)])
    );
    let usage = Usage { input_tokens: 3, ..Usage::default() };
    assert_eq!(
        ask(&model, vec![]),
        Ok(vec![Delta::Text("b".into()), Delta::Done { stop: Stop::EndTurn, usage: Some(usage) }])
    );
    let error = ask(&model, vec![]).unwrap_err();
    assert_eq!((error.class, error.network), (Class::Fatal, false));
    assert_eq!(
        error.message,
        "recording `replay/t` has no answer left: it holds 3 and this is request 4"
    );
}

#[test]
fn an_expectation_is_met_or_stops_the_run() {
    let said = |expect: &str, messages| {
        let text = format!("\n{{\"text\":\"ok\",\"expect\":{expect}}}");
        ask(&Replay::new("replay/t", &text).unwrap(), messages)
            .map(drop)
            .map_err(|error| error.message)
    };
    let contains = r#"{"lastResultContains":"needle"}"#;
    assert_eq!(said(contains, answered("a needle here", false)), Ok(()));
    assert_eq!(
        said(contains, answered("hay", false)).unwrap_err(),
        "recording `replay/t` expected another course at line 2: the last result should contain \
         `needle` and is `hay`"
    );
    assert!(said(contains, vec![]).unwrap_err().contains("no tool result yet"));
    assert_eq!(said(r#"{"lastResultIsError":true}"#, answered("x", true)), Ok(()));
    assert!(
        said(r#"{"lastResultIsError":true}"#, answered("fine", false))
            .unwrap_err()
            .ends_with("the last result should be an error and is none: `fine`")
    );
    assert!(
        said(r#"{"lastResultIsError":false}"#, answered("bad", true))
            .unwrap_err()
            .ends_with("the last result should be no error and is one: `bad`")
    );
}

#[test]
fn what_cannot_be_read_is_named_with_line_and_column() {
    let said = |text: &str| Replay::new("replay/t", text).unwrap_err().to_string();
    assert!(
        said("{}\n{\"text\": \"a\", \"txt\": 1}")
            .starts_with("recording `replay/t`, line 2, column 19: unknown field `txt`, expected"),
        "{}",
        said("{}\n{\"text\": \"a\", \"txt\": 1}")
    );
    assert_eq!(
        said("{\"text\": \"a\""),
        "recording `replay/t`, line 1, column 12: EOF while parsing an object: write each answer on \
         one line, or is the file cut off"
    );
    for (text, end) in [
        (
            "{\"text\":\"a\"} {}",
            "one answer a line, and something follows it: put it on a line of its own",
        ),
        ("// a comment\n{}", "a recording has no comments: take the line out"),
        ("text: a", "write one JSON object a line"),
        ("{\"calls\":1}", "see `docs/replay.md` for the fields"),
    ] {
        assert!(said(text).ends_with(end), "{}", said(text));
    }
    assert!(said("{\"stop\": \"later\"}").contains("unknown variant `later`, expected one of"));
    assert!(said("{\"calls\": [{}]}").contains("missing field `name`"));
    assert!(said("{\"expect\": {\"lastResult\": 1}}").contains("unknown field `lastResult`"));
    assert!(said("\n \n").contains("is empty"));
}

#[test]
fn the_examples_of_the_manual_are_recordings() {
    let manual = include_str!("../../../docs/replay.md");
    let blocks: Vec<&str> =
        manual.split("```jsonl\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    assert_eq!(blocks.len(), 2);
    for block in blocks {
        Replay::new("replay/manual", block).unwrap();
    }
}
