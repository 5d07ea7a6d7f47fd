//! The machine without clock, network or files: single paths, and the laws on random inputs.

use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::model::{Class, ModelError};

mod money;

fn machine(budgets: Budgets) -> Turn {
    Turn::new("test/model".into(), Vec::new(), budgets, Retry::default())
}

fn done(stop: Stop) -> Input {
    let usage = Some(Usage { input_tokens: 10, output_tokens: 5, ..Usage::default() });
    Input::Delta(Delta::Done { stop, usage })
}

fn text(text: &str) -> Input {
    Input::Delta(Delta::Text(text.into()))
}

fn call(id: &str, arguments: &str) -> Input {
    Input::Delta(Delta::Call { id: id.into(), name: "read".into(), arguments: arguments.into() })
}

fn result(index: usize, id: &str, denied: bool, is_error: bool) -> Input {
    let denied = denied.then(|| Denied {
        tool: "write".into(),
        atom: "file/write".into(),
        detail: "no".into(),
    });
    Input::Result(Box::new(CallResult {
        index,
        result: ToolResult { call: id.into(), text: "r".into(), is_error },
        allowed: if denied.is_none() { vec!["file/write".into()] } else { Vec::new() },
        denied: denied.into_iter().collect(),
        declined: Vec::new(),
        changed: Vec::new(),
    }))
}

fn error(class: Class) -> ModelError {
    ModelError { class, message: "the server is busy".into(), network: false }
}

fn summary(actions: &[Action]) -> Option<&Summary> {
    actions.iter().find_map(|action| match action {
        Action::Finish(summary) => Some(&**summary),
        _ => None,
    })
}

#[test]
fn where_nothing_can_be_recorded_any_more_the_next_prompt_is_paired_all_the_same() {
    let failed = || Input::Stop(Why::Journal("no space".into()));
    let mut turn = machine(Budgets::default());
    turn.step(Input::Submit("hi".into()));
    turn.step(call("a", "{}"));
    turn.step(call("b", "{}"));
    turn.step(done(Stop::ToolUse));
    turn.step(result(0, "a", false, false));
    let end = turn.step(failed());
    assert_eq!((summary(&end).unwrap().outcome, summary(&end).unwrap().exit), (Outcome::Error, 1));
    assert!(!end.iter().any(|it| matches!(it, Action::Record(_))), "it would fail again: {end:?}");
    assert_eq!(turn.step(Input::Submit("more".into())).last(), Some(&Action::Ask));
    let results: Vec<(&str, bool)> = turn
        .history()
        .iter()
        .flat_map(|message| &message.blocks)
        .filter_map(|block| match block {
            Block::Result(result) => Some((result.call.as_str(), result.is_error)),
            _ => None,
        })
        .collect();
    assert_eq!(results, [("a", false), ("b", true)]);
    // What was on its way and not recorded is no part of it.
    let mut turn = machine(Budgets::default());
    turn.step(Input::Submit("hi".into()));
    turn.step(text("half"));
    let end = turn.step(failed());
    assert_eq!(turn.history(), [Message::user("hi")]);
    assert_eq!(summary(&end).unwrap().cost, None);
}

#[test]
fn a_call_is_recorded_before_it_is_run_and_answered_before_the_next_request() {
    let mut turn = machine(Budgets::default());
    let first = turn.step(Input::Submit("hi".into()));
    assert!(matches!(first.first(), Some(Action::Record(_))) && first.contains(&Action::Ask));
    turn.step(call("a", "{}"));
    turn.step(call("b", "{}"));
    let work = turn.step(done(Stop::ToolUse));
    assert!(
        matches!(work.as_slice(), [Action::RecordUsage(_), Action::Emit(Event::Usage { turn: 1, .. }), Action::Record(_), Action::Work(calls)] if calls.len() == 2)
    );
    assert_eq!(
        turn.step(result(1, "b", false, false)),
        [],
        "b waits for a: the order is the turn's"
    );
    let next = turn.step(result(0, "a", false, false));
    let recorded: Vec<&str> = next
        .iter()
        .filter_map(|action| match action {
            Action::Record(message) => match message.blocks.first() {
                Some(Block::Result(result)) => Some(result.call.as_str()),
                _ => None,
            },
            _ => None,
        })
        .collect();
    assert_eq!(recorded, ["a", "b"]);
    assert_eq!(next.last(), Some(&Action::Ask));
    turn.step(text("done"));
    let end = turn.step(done(Stop::EndTurn));
    let summary = summary(&end).unwrap();
    assert_eq!((summary.outcome, summary.exit, summary.turns), (Outcome::Ok, 0, 2));
    assert_eq!(summary.usage.total(), 30);
    assert_eq!(summary.text, "done");
}

#[test]
fn where_waiting_helps_nothing_a_server_that_is_not_reached_ends_the_run_and_a_busy_one_is_asked_again()
 {
    let retry = Retry { unreached: false, ..Retry::default() };
    let failed = |network| {
        let mut turn = Turn::new("test/model".into(), Vec::new(), Budgets::default(), retry);
        turn.step(Input::Submit("hi".into()));
        turn.step(Input::Failed(ModelError { network, ..error(Class::Retry { after: None }) }))
    };
    assert_eq!(summary(&failed(true)).unwrap().exit, 4);
    let busy = failed(false);
    assert!(busy.iter().any(|it| matches!(it, Action::Sleep { .. })), "{busy:?}");
}

#[test]
fn before_the_first_token_a_request_is_retried_and_after_it_the_partial_answer_is_kept() {
    let mut turn = machine(Budgets::default());
    turn.step(Input::Submit("hi".into()));
    for attempt in 1..=4 {
        let actions = turn.step(Input::Failed(error(Class::Retry { after: None })));
        assert!(
            actions.iter().any(
                |a| matches!(a, Action::Emit(Event::Retrying { attempt: n, .. }) if *n == attempt)
            ),
            "{actions:?}"
        );
        assert_eq!(turn.step(Input::RetryDue), [Action::Ask]);
    }
    let end = turn.step(Input::Failed(error(Class::Retry { after: None })));
    let failed = summary(&end).unwrap();
    assert_eq!((failed.outcome, failed.exit), (Outcome::Error, 4));
    assert_eq!(failed.fault.as_ref().unwrap().kind, FaultKind::Provider);

    turn.step(Input::Submit("again".into()));
    turn.step(text("par"));
    let end = turn.step(Input::Failed(error(Class::Retry { after: None })));
    let partial = summary(&end).unwrap();
    assert_eq!((partial.outcome, partial.text.as_str()), (Outcome::Incomplete, "par"));
    assert_eq!(turn.history().last().unwrap().text(), "par");
}

#[test]
fn a_wish_of_the_server_is_honoured_up_to_a_bound() {
    let mut turn = machine(Budgets::default());
    turn.step(Input::Submit("hi".into()));
    let after = Some(Duration::from_secs(7));
    let actions = turn.step(Input::Failed(error(Class::Retry { after })));
    assert!(
        actions
            .iter()
            .any(|a| matches!(a, Action::Sleep { after, .. } if *after == Duration::from_secs(7)))
    );
    turn.step(Input::RetryDue);
    let after = Some(Duration::from_hours(1));
    let end = turn.step(Input::Failed(error(Class::Retry { after })));
    let end = summary(&end).unwrap();
    assert_eq!(end.exit, 4);
    let message = &end.fault.as_ref().unwrap().message;
    assert!(message.contains("asks to wait 3600 s, which is longer than the 60 s"), "{message}");
}

#[test]
fn a_denied_call_makes_the_exit_code_unless_a_later_one_under_the_same_atom_succeeds() {
    for (later_succeeds, exit) in [(false, 3), (true, 0)] {
        let mut turn = machine(Budgets::default());
        turn.step(Input::Submit("hi".into()));
        turn.step(call("a", "{}"));
        turn.step(done(Stop::ToolUse));
        turn.step(result(0, "a", true, true));
        if later_succeeds {
            turn.step(call("b", "{}"));
            turn.step(done(Stop::ToolUse));
            turn.step(result(0, "b", false, false));
        }
        turn.step(text("ok"));
        let end = turn.step(done(Stop::EndTurn));
        let summary = summary(&end).unwrap();
        assert_eq!(summary.exit, exit);
        assert_eq!(summary.denied.len(), 1, "it is listed in both cases");
    }
}

#[test]
fn budgets_end_the_run_without_running_what_nobody_would_see() {
    let mut turn = machine(Budgets { turns: Some(1), ..Budgets::default() });
    turn.step(Input::Submit("hi".into()));
    turn.step(call("a", "{}"));
    let end = turn.step(done(Stop::ToolUse));
    assert!(!end.iter().any(|action| matches!(action, Action::Work(_))), "{end:?}");
    assert_eq!(summary(&end).unwrap().exit, 5);
    assert!(matches!(&turn.history().last().unwrap().blocks[..], [Block::Result(r)] if r.is_error));

    let mut turn = machine(Budgets { tokens: Some(15), ..Budgets::default() });
    turn.step(Input::Submit("hi".into()));
    turn.step(text("all said"));
    let end = turn.step(done(Stop::EndTurn));
    assert_eq!(summary(&end).unwrap().exit, 0, "an answer that is complete is no failure");
}

#[test]
fn an_empty_answer_and_a_cut_one_are_failures() {
    for (input, stop, outcome) in [
        (None, Stop::EndTurn, Outcome::Error),
        (Some(text("  ")), Stop::EndTurn, Outcome::Error),
        (Some(text("half")), Stop::MaxTokens, Outcome::Incomplete),
        (Some(text("no")), Stop::Refusal, Outcome::Error),
    ] {
        let mut turn = machine(Budgets::default());
        turn.step(Input::Submit("hi".into()));
        if let Some(input) = input {
            turn.step(input);
        }
        let end = turn.step(done(stop));
        let summary = summary(&end).unwrap();
        assert_eq!((summary.outcome, summary.exit), (outcome, 1));
        // What came is no good: that is not kli's own fault, and not one of reaching the provider.
        assert_eq!(summary.fault.as_ref().unwrap().kind, FaultKind::Provider);
    }
}

#[test]
fn unreadable_arguments_are_bounded() {
    let mut turn = machine(Budgets::default());
    turn.step(Input::Submit("hi".into()));
    for _ in 0..2 {
        turn.step(call("a", "{\"path\": \"a"));
        turn.step(done(Stop::ToolUse));
        turn.step(result(0, "a", false, true));
    }
    turn.step(call("a", "[1]"));
    let end = turn.step(done(Stop::ToolUse));
    assert_eq!(summary(&end).unwrap().exit, 1);
}

#[test]
fn steering_is_told_at_the_next_boundary() {
    let mut turn = machine(Budgets::default());
    turn.step(Input::Submit("hi".into()));
    assert_eq!(turn.step(Input::Steer("and tests".into())), []);
    turn.step(text("ok"));
    let next = turn.step(done(Stop::EndTurn));
    assert!(
        next.contains(&Action::Record(Message::user("and tests"))) && next.contains(&Action::Ask)
    );
}

fn input() -> impl Strategy<Value = Input> {
    let id = prop::sample::select(vec!["a", "b", "c"]);
    prop_oneof![
        1 => Just(Input::Submit("go".into())),
        1 => Just(Input::Steer("also".into())),
        3 => Just(text("x")),
        3 => id.prop_map(|id| call(id, "{}")),
        1 => Just(call("m", "{")),
        5 => prop::sample::select(vec![Stop::ToolUse, Stop::EndTurn, Stop::MaxTokens]).prop_map(done),
        2 => prop::sample::select(vec![Class::Retry { after: None }, Class::Fatal])
            .prop_map(|class| Input::Failed(error(class))),
        2 => Just(Input::RetryDue),
        6 => (0_usize..4, any::<bool>()).prop_map(|(index, bad)| result(index, "?", bad, bad)),
        2 => prop::sample::select(vec![Why::Interrupt, Why::Terminate, Why::Time(Duration::ZERO)])
            .prop_map(Input::Stop),
    ]
}

proptest! {
    #[test]
    fn whatever_happens_the_history_that_is_sent_is_paired(
        inputs in prop::collection::vec(input(), 0..60),
        turns in prop::option::of(1_u64..4),
    ) {
        let mut turn = machine(Budgets { turns, ..Budgets::default() });
        let mut recorded = Vec::new();
        for input in inputs {
            let before = turn.history().len();
            for action in turn.step(input) {
                match action {
                    Action::Record(message) => recorded.push(message),
                    // When the model is asked, and when the run ends, nothing is open.
                    Action::Ask | Action::Finish(_) => {
                        prop_assert_eq!(&recorded, turn.history());
                        let mut open = 0_usize;
                        for message in turn.history() {
                            for block in &message.blocks {
                                match block {
                                    Block::Call(_) => open += 1,
                                    Block::Result(_) => open = open.checked_sub(1).unwrap(),
                                    Block::Text { .. } if message.role == Role::User => {
                                        prop_assert_eq!(open, 0, "text between call and result");
                                    }
                                    Block::Text { .. } | Block::Opaque { .. } => {}
                                }
                            }
                        }
                        prop_assert_eq!(open, 0);
                    }
                    Action::Work(calls) => prop_assert!(!calls.is_empty()),
                    _ => {}
                }
            }
            prop_assert!(turn.history().len() >= before, "history only grows");
        }
    }
}

#[test]
fn many_calls_of_one_identifier_are_told_apart_in_no_time() {
    let mut turn = machine(Budgets::default());
    turn.step(Input::Submit("hi".into()));
    let start = std::time::Instant::now();
    for id in std::iter::repeat_n("same", 3000).chain(["same_2", ""]) {
        turn.step(call(id, "{}"));
    }
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
    turn.step(done(Stop::ToolUse));
    let ids: BTreeSet<&str> = turn.history()[1].calls().map(|call| call.id.as_str()).collect();
    assert_eq!(ids.len(), 3002, "each has its own");
    assert!(["same", "same_3000", "same_2_2", "call"].iter().all(|id| ids.contains(id)));
}

fn candidate(name: &str, price: Option<&str>) -> Candidate {
    let price = price.map(|text| crate::message::Price {
        input: crate::message::Price::parse(text).unwrap(),
        output: crate::message::Price::parse(text).unwrap(),
        cache_read: None,
        cache_write: None,
    });
    Candidate { name: name.into(), price, window: None }
}

fn with_two(budgets: Budgets, retry: Retry) -> Turn {
    Turn::new("a/one".into(), Vec::new(), budgets, retry).asking(
        candidate("a/one", Some("3")),
        vec![candidate("b/two", Some("1"))],
        ["read".to_owned()],
    )
}

fn fell_back(actions: &[Action]) -> bool {
    actions.iter().any(|action| {
        matches!(action, Action::Emit(Event::FellBack { from, to, .. })
            if from == "a/one" && to == "b/two")
    })
}

#[test]
fn a_model_that_is_not_to_be_had_is_given_up_for_the_next_one() {
    let retry = Retry { attempts: 1, ..Retry::default() };
    let busy = || Input::Failed(error(Class::Retry { after: None }));
    let mut turn = with_two(Budgets::default(), retry);
    turn.step(Input::Submit("hi".into()));
    assert!(!fell_back(&turn.step(busy())), "it is tried again first");
    turn.step(Input::RetryDue);
    let next = turn.step(busy());
    assert!(fell_back(&next) && next.last() == Some(&Action::Ask), "{next:?}");
    assert_eq!(turn.asks(), 1);
    // The other has retries of its own; what it thinks is its own.
    assert!(turn.step(busy()).iter().any(|it| matches!(it, Action::Sleep { .. })));
    turn.step(Input::RetryDue);
    turn.step(Input::Delta(Delta::Opaque(serde_json::json!({"x": 1}))));
    turn.step(call("a", "{}"));
    turn.step(done(Stop::ToolUse));
    assert!(
        matches!(&turn.history()[1].blocks[0], Block::Opaque { model, .. } if model == "b/two")
    );
    turn.step(result(0, "a", false, false));
    assert_eq!(turn.asks(), 1, "it stays for the rest of the prompt");
    turn.step(text("done"));
    let end = turn.step(done(Stop::EndTurn));
    let ended = summary(&end).unwrap();
    assert_eq!((ended.outcome, ended.model.as_deref()), (Outcome::Ok, Some("b/two")));
    assert_eq!(turn.history().iter().filter(|m| m.text() == "hi").count(), 1);
    turn.step(Input::Submit("again".into()));
    assert_eq!(turn.asks(), 0, "the next prompt begins with the chosen one");
}

#[test]
fn where_all_are_not_to_be_had_the_end_names_each() {
    let retry = Retry { attempts: 0, ..Retry::default() };
    let mut turn = with_two(Budgets::default(), retry);
    turn.step(Input::Submit("hi".into()));
    turn.step(Input::Failed(error(Class::Retry { after: None })));
    let other = ModelError {
        message: "no route".into(),
        network: true,
        ..error(Class::Retry { after: None })
    };
    let end = turn.step(Input::Failed(other));
    let ended = summary(&end).unwrap();
    assert_eq!((ended.outcome, ended.exit), (Outcome::Error, 4));
    let fault = ended.fault.as_ref().unwrap();
    assert_eq!(fault.kind, FaultKind::Network, "that of the last one");
    assert_eq!(fault.message, "no route; before it `a/one` failed: the server is busy");
}

#[test]
fn what_another_model_would_not_mend_is_no_reason_to_ask_it() {
    let retry = Retry { attempts: 0, ..Retry::default() };
    for class in [Class::Auth, Class::ContextFull, Class::Refused, Class::Fatal] {
        let mut turn = with_two(Budgets::default(), retry);
        turn.step(Input::Submit("hi".into()));
        let end = turn.step(Input::Failed(error(class.clone())));
        assert!(!fell_back(&end), "{class:?}");
        assert_eq!(summary(&end).unwrap().exit, 4);
    }
    // A part of an answer is kept, and not asked for again.
    let mut turn = with_two(Budgets::default(), retry);
    turn.step(Input::Submit("hi".into()));
    turn.step(text("par"));
    let end = turn.step(Input::Failed(error(Class::Retry { after: None })));
    assert!(!fell_back(&end));
    assert_eq!(summary(&end).unwrap().outcome, Outcome::Incomplete);
    // A wish that is too long is no wait, and no reason not to ask another.
    let mut turn = with_two(Budgets::default(), Retry::default());
    turn.step(Input::Submit("hi".into()));
    let after = Some(Duration::from_hours(1));
    assert!(fell_back(&turn.step(Input::Failed(error(Class::Retry { after })))));
}

#[test]
fn thinking_that_came_to_nothing_is_asked_for_again() {
    let mut turn = machine(Budgets::default());
    turn.step(Input::Submit("hi".into()));
    turn.step(Input::Delta(Delta::Opaque(serde_json::json!({"thinking": "hm"}))));
    let again = turn.step(Input::Failed(error(Class::Retry { after: None })));
    assert!(again.iter().any(|it| matches!(it, Action::Sleep { .. })), "{again:?}");
    turn.step(Input::RetryDue);
    turn.step(text("said"));
    turn.step(done(Stop::EndTurn));
    assert_eq!(turn.history()[1].blocks.len(), 1, "what was thought before is left out");
}

#[test]
fn a_budget_of_money_ends_the_run_and_is_not_kept_blindly() {
    let cost =
        |text: &str| Budgets { cost: crate::message::Money::parse(text), ..Budgets::default() };
    // 15 tokens at 3 and then at 1 a million: 0.000045 and 0.000015.
    let mut turn = with_two(cost("0.00006"), Retry { attempts: 0, ..Retry::default() });
    turn.step(Input::Submit("hi".into()));
    turn.step(call("a", "{}"));
    let answered = turn.step(done(Stop::ToolUse));
    assert!(
        answered.iter().any(|it| matches!(it, Action::Emit(Event::Usage { cost: Some(cost), .. })
        if cost.to_string() == "0.000045"))
    );
    turn.step(result(0, "a", false, false));
    turn.step(Input::Failed(error(Class::Retry { after: None })));
    turn.step(call("b", "{\"n\": 2}"));
    let end = turn.step(done(Stop::ToolUse));
    assert!(!end.iter().any(|action| matches!(action, Action::Work(_))), "{end:?}");
    let ended = summary(&end).unwrap();
    assert_eq!((ended.outcome, ended.exit), (Outcome::Budget, 5));
    assert_eq!(ended.cost.unwrap().to_string(), "0.00006", "each at its own price");
    assert!(ended.fault.as_ref().unwrap().message.contains("`budgets.cost`"));

    let unpriced = || Turn::new("a/one".into(), Vec::new(), cost("1"), Retry::default());
    let end = unpriced().step(Input::Submit("hi".into()));
    assert!(!end.contains(&Action::Ask), "nothing is spent that nobody can count");
    let message = &summary(&end).unwrap().fault.as_ref().unwrap().message;
    assert!(message.contains("set `providers.a.models.one.price`"), "{message}");

    // A server that does not count: the run ends where it would spend more.
    let mut turn = with_two(cost("1"), Retry::default());
    turn.step(Input::Submit("hi".into()));
    turn.step(call("a", "{}"));
    let end = turn.step(Input::Delta(Delta::Done { stop: Stop::ToolUse, usage: None }));
    let ended = summary(&end).unwrap();
    assert_eq!((ended.exit, ended.cost), (5, None));
    assert!(ended.fault.as_ref().unwrap().message.contains("does not say how many tokens"));
}

#[test]
fn a_budget_of_tokens_that_a_server_does_not_count_is_said_once() {
    let mut turn = machine(Budgets { tokens: Some(5), ..Budgets::default() });
    turn.step(Input::Submit("hi".into()));
    let mut said = 0;
    for n in 0..2 {
        turn.step(call("a", &format!("{{\"n\": {n}}}")));
        let actions = turn.step(Input::Delta(Delta::Done { stop: Stop::ToolUse, usage: None }));
        said += actions.iter().filter(|it| matches!(it, Action::Emit(Event::Notice(_)))).count();
        turn.step(result(0, "a", false, false));
    }
    assert_eq!(said, 1);
}

#[test]
fn a_loop_is_told_to_the_model_and_then_ends_the_run() {
    let mut turn = machine(Budgets::default());
    turn.step(Input::Submit("hi".into()));
    for round in 1..=5 {
        turn.step(call(&format!("c{round}"), "{\"path\": \"a\"}"));
        turn.step(done(Stop::ToolUse));
        let next = turn.step(result(0, "c", false, true));
        let told = turn.history().last().unwrap().blocks[0].clone();
        let Block::Result(told) = told else { panic!("{told:?}") };
        assert_eq!(
            told.text.contains("[kli: you made the same calls 3 times"),
            round == 3,
            "{told:?}"
        );
        if round < 5 {
            assert_eq!(next.last(), Some(&Action::Ask), "round {round}");
        } else {
            let ended = summary(&next).unwrap();
            assert_eq!((ended.outcome, ended.exit), (Outcome::Error, 1));
            let message = &ended.fault.as_ref().unwrap().message;
            assert!(message.contains("the same calls 5 times in a row"), "{message}");
        }
    }
    // What a person says in between makes it another matter.
    let mut turn = machine(Budgets { repeats: Some(2), ..Budgets::default() });
    turn.step(Input::Submit("hi".into()));
    for _ in 0..3 {
        turn.step(call("c", "{}"));
        turn.step(Input::Steer("go on".into()));
        turn.step(done(Stop::ToolUse));
        assert_eq!(turn.step(result(0, "c", false, false)).last(), Some(&Action::Ask));
    }
}

#[test]
fn calls_of_tools_that_there_are_not_are_bounded() {
    let mut turn = with_two(Budgets::default(), Retry::default());
    turn.step(Input::Submit("hi".into()));
    let unknown = |n: i32| {
        let (name, arguments) = ("re ad".to_owned(), format!("{{\"n\": {n}}}"));
        Input::Delta(Delta::Call { id: "x".into(), name, arguments })
    };
    for n in 0..4 {
        turn.step(unknown(n));
        // One that can be run among them is a reason to go on.
        if n == 1 {
            turn.step(call("y", "{}"));
            turn.step(done(Stop::ToolUse));
            turn.step(result(0, "x", false, true));
            turn.step(result(1, "y", false, false));
        } else {
            turn.step(done(Stop::ToolUse));
            turn.step(result(0, "x", false, true));
        }
    }
    turn.step(unknown(5));
    let end = turn.step(done(Stop::ToolUse));
    assert!(!end.iter().any(|action| matches!(action, Action::Work(_))));
    let ended = summary(&end).unwrap();
    assert_eq!(ended.exit, 1);
    assert!(ended.fault.as_ref().unwrap().message.contains("calls that cannot be run 3 times"));
}

#[test]
fn what_was_said_meanwhile_goes_along_with_a_retry_and_comes_back_when_the_run_ends_first() {
    let mut turn = machine(Budgets::default());
    turn.step(Input::Submit("hi".into()));
    turn.step(Input::Failed(error(Class::Retry { after: None })));
    turn.step(Input::Steer("and tests".into()));
    let again = turn.step(Input::RetryDue);
    assert_eq!(again, [Action::Record(Message::user("and tests")), Action::Sync, Action::Ask]);
    turn.step(Input::Steer("and docs".into()));
    let end = turn.step(Input::Stop(Why::Interrupt));
    assert_eq!(summary(&end).unwrap().undelivered, ["and docs"], "nothing is lost");
    assert!(!turn.history().contains(&Message::user("and docs")));
}
