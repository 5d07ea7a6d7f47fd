use proptest::prelude::*;
use serde_json::Map;

use super::*;
use crate::message::{Arguments, ToolCall};

fn text(text: &str) -> Block {
    Block::Text { text: text.to_owned() }
}

fn call(id: &str) -> Block {
    let arguments = Arguments::Object(Map::new());
    Block::Call(ToolCall { id: id.to_owned(), name: "read".to_owned(), arguments })
}

fn result(id: &str, text: &str) -> Block {
    Block::Result(ToolResult { call: id.to_owned(), text: text.to_owned(), is_error: false })
}

fn lost(id: &str) -> Block {
    let (call, text) = (id.to_owned(), NO_RESULT.to_owned());
    Block::Result(ToolResult { call, text, is_error: true })
}

fn user(blocks: Vec<Block>) -> Message {
    Message { role: Role::User, blocks }
}

fn model(blocks: Vec<Block>) -> Message {
    Message { role: Role::Assistant, blocks }
}

/// What a strict provider demands, told independently of how `pair` gets there.
pub(in crate::session) fn strict(messages: &[Message]) -> Result<(), String> {
    let mut used = HashSet::new();
    for (index, message) in messages.iter().enumerate() {
        if let Some(call) = message.calls().find(|call| !used.insert(&call.id)) {
            return Err(format!("message {index} uses `{}` again", call.id));
        }
        if message.blocks.is_empty() {
            return Err(format!("message {index} is empty"));
        }
        let calls: Vec<&str> = message.calls().map(|call| call.id.as_str()).collect();
        if message.role == Role::User && !calls.is_empty() {
            return Err(format!("message {index} is the user's and calls"));
        }
        let unique: HashSet<&&str> = calls.iter().collect();
        if unique.len() != calls.len() {
            return Err(format!("message {index} calls twice under one identifier"));
        }
        let results = |message: &Message| -> Vec<String> {
            let blocks = message.blocks.iter();
            blocks
                .filter_map(|block| match block {
                    Block::Result(result) => Some(result.call.clone()),
                    _ => None,
                })
                .collect()
        };
        let mut got = results(message);
        let mut want: Vec<String> = match index.checked_sub(1).and_then(|i| messages.get(i)) {
            Some(before) if message.role == Role::User => {
                before.calls().map(|call| call.id.clone()).collect()
            }
            _ => Vec::new(),
        };
        let leading = message.blocks.iter().take_while(|b| matches!(b, Block::Result(_))).count();
        if leading != got.len() {
            return Err(format!("message {index} has a result behind something else"));
        }
        got.sort();
        want.sort();
        if got != want {
            return Err(format!("message {index} answers {got:?} and should answer {want:?}"));
        }
        let next = messages.get(index + 1).map(|next| next.role);
        if !calls.is_empty() && next != Some(Role::User) {
            return Err(format!("message {index} calls and nobody answers"));
        }
    }
    Ok(())
}

#[test]
fn what_a_killed_run_leaves_is_completed() {
    let killed = vec![Message::user("go"), model(vec![text("ok"), call("a"), call("b")])];
    assert_eq!(unanswered(&killed), 2);
    let mut whole = killed.clone();
    whole.push(user(vec![lost("a"), lost("b")]));
    assert_eq!(pair(killed), whole);

    // One of two was recorded, and the person went on.
    let half = vec![
        model(vec![call("a"), call("b")]),
        user(vec![result("b", "done")]),
        Message::user("and now?"),
    ];
    assert_eq!(unanswered(&half), 1);
    assert_eq!(
        pair(half),
        [
            model(vec![call("a"), call("b")]),
            user(vec![result("b", "done"), lost("a")]),
            Message::user("and now?"),
        ]
    );
}

#[test]
fn results_move_to_their_calls_and_strays_go() {
    let history = vec![
        user(vec![result("x", "stray"), text("hello")]),
        model(vec![call("a")]),
        user(vec![text("wait"), result("a", "late"), result("a", "twice")]),
        user(vec![result("y", "stray")]),
        model(vec![text("done")]),
    ];
    let paired = pair(history);
    assert_eq!(
        paired,
        [
            Message::user("hello"),
            model(vec![call("a")]),
            user(vec![result("a", "late"), text("wait")]),
            model(vec![text("done")]),
        ]
    );
}

#[test]
fn an_identifier_that_is_used_again_belongs_to_the_later_call() {
    let history = vec![
        model(vec![call("0")]),
        user(vec![result("0", "one")]),
        model(vec![call("0"), call("0")]),
        user(vec![result("0", "two")]),
    ];
    let paired = pair(history);
    assert_eq!(
        paired,
        [
            model(vec![call("0")]),
            user(vec![result("0", "one")]),
            model(vec![call("0_2")]),
            user(vec![result("0_2", "two")]),
        ]
    );
}

fn block() -> impl Strategy<Value = Block> {
    let id = || prop::sample::select(vec!["a", "b", "c", "d"]);
    prop_oneof![
        Just(text("t")),
        id().prop_map(call),
        id().prop_map(|id| result(id, "r")),
        Just(Block::Opaque { model: "m/m".to_owned(), value: serde_json::json!({"x": 1}) }),
    ]
}

fn random_history() -> impl Strategy<Value = Vec<Message>> {
    let role = prop::sample::select(vec![Role::User, Role::Assistant]);
    let message = (role, prop::collection::vec(block(), 0..5))
        .prop_map(|(role, blocks)| Message { role, blocks });
    prop::collection::vec(message, 0..12)
}

/// Histories that are in order: turns of calls and their results in any order, texts between.
fn valid_history() -> impl Strategy<Value = Vec<Message>> {
    let ids = prop::sample::subsequence(vec!["a", "b", "c", "d"], 0..4);
    let turn =
        (ids.prop_shuffle(), any::<[bool; 3]>()).prop_flat_map(|(ids, [said, more, apart])| {
            Just(ids.clone()).prop_shuffle().prop_map(move |answered| {
                let mut asked: Vec<Block> = ids.iter().map(|id| call(id)).collect();
                if said || asked.is_empty() {
                    asked.insert(0, text("t"));
                }
                let mut answers: Vec<Block> = answered.iter().map(|id| result(id, "r")).collect();
                let mut turn = vec![model(asked)];
                if !answers.is_empty() && apart {
                    turn.push(user(std::mem::take(&mut answers)));
                }
                if more || answers.is_empty() {
                    answers.push(text("u"));
                }
                turn.push(user(answers));
                turn
            })
        });
    (any::<bool>(), prop::collection::vec(turn, 0..6)).prop_map(|(greeted, turns)| {
        let greeting = greeted.then(|| Message::user("hello"));
        let apart = turns.into_iter().enumerate().flat_map(|(number, mut turn)| {
            for block in turn.iter_mut().flat_map(|message| &mut message.blocks) {
                match block {
                    Block::Call(call) => call.id.push_str(&number.to_string()),
                    Block::Result(result) => result.call.push_str(&number.to_string()),
                    _ => {}
                }
            }
            turn
        });
        greeting.into_iter().chain(apart).collect()
    })
}

proptest! {
    #[test]
    fn after_pairing_a_strict_provider_accepts(history in random_history()) {
        let paired = pair(history.clone());
        prop_assert_eq!(strict(&paired), Ok(()), "{:?}", paired);
        prop_assert_eq!(pair(paired.clone()), paired.clone(), "it is idempotent");
        prop_assert_eq!(unanswered(&paired), 0);
        // Neither half of a pair is trimmed: every call of the model is still there.
        let calls = |messages: &[Message]| -> usize {
            let distinct = |m: &Message| m.calls().map(|call| &call.id).collect::<HashSet<_>>().len();
            messages.iter().filter(|m| m.role == Role::Assistant).map(distinct).sum()
        };
        prop_assert_eq!(calls(&history), calls(&paired));
        // And no text is lost.
        let texts = |messages: &[Message]| messages.iter().map(Message::text).collect::<String>();
        prop_assert_eq!(texts(&history).len(), texts(&paired).len());
    }

    #[test]
    fn what_is_in_order_is_not_changed(history in valid_history()) {
        prop_assert_eq!(strict(&history), Ok(()), "the generator makes valid ones");
        prop_assert_eq!(pair(history.clone()), history);
    }
}

#[test]
fn the_checker_refuses_what_it_should() {
    for bad in [
        vec![model(vec![call("a")])],
        vec![user(vec![result("a", "r")])],
        vec![model(vec![call("a")]), user(vec![text("t"), result("a", "r")])],
        vec![model(vec![call("a")]), user(vec![text("t")]), user(vec![result("a", "r")])],
        vec![model(vec![call("a"), call("a")]), user(vec![result("a", "r")])],
        vec![
            model(vec![call("a")]),
            user(vec![result("a", "r")]),
            model(vec![call("a")]),
            user(vec![result("a", "r")]),
        ],
        vec![user(vec![])],
    ] {
        assert!(strict(&bad).is_err(), "{bad:?}");
    }
}
