//! The machine without clock, network or files: single paths, and the laws on random inputs.

use proptest::prelude::*;

use super::*;

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
