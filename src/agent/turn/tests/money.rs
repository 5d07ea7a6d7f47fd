//! Money that was spent on answers that never were whole.

use super::*;

fn budget(text: &str) -> Budgets {
    Budgets { cost: crate::message::Money::parse(text), ..Budgets::default() }
}

fn busy() -> Input {
    Input::Failed(error(Class::Retry { after: None }))
}

/// What can have come of an answer of which nothing is kept.
fn thoughts() -> [Delta; 3] {
    let opaque = Delta::Opaque(serde_json::json!({"thinking": "hm"}));
    [Delta::Thinking("hm".into()), opaque, Delta::Begun]
}

#[test]
fn thinking_alone_that_broke_off_cost_nobody_knows_how_much_and_no_more_is_spent() {
    for thought in thoughts() {
        for attempts in [0, 4] {
            let retry = Retry { attempts, ..Retry::default() };
            let mut turn = with_two(budget("1"), retry);
            turn.step(Input::Submit("hi".into()));
            turn.step(Input::Delta(thought.clone()));
            let end = turn.step(busy());
            let goes_on = |it: &Action| matches!(it, Action::Sleep { .. } | Action::Ask);
            assert!(!end.iter().any(goes_on), "{attempts}: {end:?}");
            let ended = summary(&end).unwrap();
            assert_eq!((ended.outcome, ended.exit, ended.cost), (Outcome::Budget, 5, None));
            let message = &ended.fault.as_ref().unwrap().message;
            assert!(message.contains("an answer of `a/one` broke off"), "{message}");
            assert!(turn.step(Input::RetryDue).is_empty());
        }
    }
    // Control: nothing had come, so it cost nothing and is asked for again.
    let mut turn = with_two(budget("1"), Retry::default());
    turn.step(Input::Submit("hi".into()));
    assert!(turn.step(busy()).iter().any(|it| matches!(it, Action::Sleep { .. })));
}

#[test]
fn without_a_budget_it_is_asked_for_again_and_the_result_names_no_cost() {
    for thought in thoughts() {
        for breaks_off in [false, true] {
            let mut turn = with_two(Budgets::default(), Retry::default());
            turn.step(Input::Submit("hi".into()));
            if breaks_off {
                turn.step(Input::Delta(thought.clone()));
            }
            assert!(turn.step(busy()).iter().any(|it| matches!(it, Action::Sleep { .. })));
            turn.step(Input::RetryDue);
            turn.step(text("said"));
            let end = turn.step(done(Stop::EndTurn));
            let ended = summary(&end).unwrap();
            assert_eq!((ended.exit, ended.cost.is_none()), (0, breaks_off));
        }
        // Stopped, or refused, while it thinks.
        for stop in [Input::Stop(Why::Interrupt), Input::Failed(error(Class::Fatal))] {
            let mut turn = with_two(Budgets::default(), Retry::default());
            turn.step(Input::Submit("hi".into()));
            turn.step(Input::Delta(thought.clone()));
            assert_eq!(summary(&turn.step(stop)).unwrap().cost, None);
        }
    }
}

#[test]
fn an_end_that_the_provider_made_stays_one() {
    // No more would be spent, so the budget has no say in it.
    let mut turn = with_two(budget("1"), Retry { attempts: 0, ..Retry::default() });
    turn.step(Input::Submit("hi".into()));
    turn.step(busy());
    assert_eq!(turn.asks(), 1);
    turn.step(Input::Delta(Delta::Thinking("hm".into())));
    let end = turn.step(busy());
    let ended = summary(&end).unwrap();
    assert_eq!((ended.outcome, ended.exit, ended.cost), (Outcome::Error, 4, None));
}

#[test]
fn a_budget_that_is_used_up_is_said_before_what_is_not_known() {
    let mut turn = with_two(budget("0.00004"), Retry::default());
    turn.step(Input::Submit("hi".into()));
    turn.step(Input::Spent(Usage::default(), None));
    turn.step(call("a", "{}"));
    let end = turn.step(done(Stop::ToolUse));
    let message = &summary(&end).unwrap().fault.as_ref().unwrap().message;
    assert!(message.contains("is used up (0.000045 spent)"), "{message}");
    // Control: with money left it is what is not known.
    let mut turn = with_two(budget("1"), Retry::default());
    turn.step(Input::Submit("hi".into()));
    turn.step(Input::Spent(Usage::default(), None));
    turn.step(call("a", "{}"));
    let end = turn.step(done(Stop::ToolUse));
    let ended = summary(&end).unwrap();
    assert_eq!((ended.exit, ended.cost), (5, None));
    let message = &ended.fault.as_ref().unwrap().message;
    assert!(message.contains("nobody says what a sub-agent's answer cost"), "{message}");
}

#[test]
fn a_server_that_counts_nothing_is_one_that_does_not_count() {
    let nothing = || {
        let usage = Some(Usage::default());
        Input::Delta(Delta::Done { stop: Stop::ToolUse, usage })
    };
    let mut turn = with_two(budget("1"), Retry::default());
    turn.step(Input::Submit("hi".into()));
    turn.step(call("a", "{}"));
    let end = turn.step(nothing());
    assert!(
        !end.iter().any(|it| matches!(it, Action::Work(_) | Action::RecordUsage(_))),
        "{end:?}"
    );
    let ended = summary(&end).unwrap();
    assert_eq!((ended.exit, ended.cost), (5, None));
    let message = &ended.fault.as_ref().unwrap().message;
    assert!(message.contains("`a/one` does not say how many tokens"), "{message}");
    // Under one of tokens it is said.
    let mut turn = machine(Budgets { tokens: Some(5), ..Budgets::default() });
    turn.step(Input::Submit("hi".into()));
    turn.step(call("a", "{}"));
    let said = turn.step(nothing());
    assert!(said.iter().any(|it| matches!(it, Action::Emit(Event::Notice(_)))), "{said:?}");
}
