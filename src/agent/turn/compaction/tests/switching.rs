//! Compaction where one model takes the place of another, and where money runs out.

use super::*;
use crate::agent::{FaultKind, turn::Candidate};

fn candidate(name: &str, window: Option<u64>) -> Candidate {
    Candidate { name: name.into(), price: None, window }
}

/// A machine of two models with these windows, without retries of its own requests.
fn two(history: Vec<Message>, windows: [Option<u64>; 2], policy: Policy) -> Turn {
    let retry = Retry { attempts: 0, ..Retry::default() };
    let [first, second] = windows;
    Turn::new("a/one".into(), history, Budgets::default(), retry)
        .asking(candidate("a/one", first), vec![candidate("b/two", second)], Vec::new())
        .compacting(policy, 100)
}

fn unknown() -> Policy {
    Policy { keep: 1000, ..Policy::default() }
}

fn busy() -> Input {
    failed(Class::Retry { after: None })
}

fn fell_back(actions: &[Action]) -> bool {
    actions.iter().any(|it| matches!(it, Action::Emit(Event::FellBack { .. })))
}

/// Has the summariser fail until it is not asked any more.
fn no_summary(turn: &mut Turn) -> Vec<Action> {
    let first = turn.step(busy());
    assert!(first.iter().any(|it| matches!(it, Action::Sleep { .. })), "{first:?}");
    assert!(summarises(&turn.step(Input::RetryDue)).is_some());
    turn.step(busy())
}

#[test]
fn a_summariser_that_is_not_to_be_had_on_a_full_window_leads_to_the_next_model() {
    // Nobody knows the next one's window: it gets the conversation as it is.
    let mut turn = two(talk(10, 4000), [None, None], unknown());
    turn.step(Input::Submit("now this".into()));
    assert!(summarises(&turn.step(failed(Class::ContextFull))).is_some());
    let whole = turn.history().to_vec();
    let next = no_summary(&mut turn);
    assert!(fell_back(&next) && asks(&next), "{next:?}");
    assert_eq!((turn.asks(), turn.history()), (1, &whole[..]));
    // Its window is full as well: then it makes the summary.
    assert!(summarises(&turn.step(failed(Class::ContextFull))).is_some());
    turn.step(say("all of it"));
    let actions = turn.step(done());
    assert!(compacted(&actions).is_some() && asks(&actions));
    turn.step(say("the end"));
    let actions = turn.step(done());
    let end = summary(&actions);
    assert_eq!((end.exit, end.turns, end.model.as_deref()), (0, 1, Some("b/two")));

    // Its window is known and too small: it is asked for a summary at once.
    let mut turn = two(talk(10, 4000), [None, Some(12_000)], unknown());
    turn.step(Input::Submit("now this".into()));
    turn.step(failed(Class::ContextFull));
    let next = no_summary(&mut turn);
    assert!(fell_back(&next) && summarises(&next).is_some() && !asks(&next), "{next:?}");
    assert_eq!(turn.asks(), 1);
}

#[test]
fn one_that_was_asked_for_is_made_by_the_next_model_as_well() {
    let mut turn = two(talk(10, 400), [None, None], unknown());
    turn.step(Input::Compact(Some("the parser".into())));
    let next = no_summary(&mut turn);
    assert!(fell_back(&next), "{next:?}");
    assert!(summarises(&next).unwrap().text().contains("the parser"));
    turn.step(say("short"));
    let end = turn.step(done());
    assert_eq!((summary(&end).exit, summary(&end).text.as_str()), (0, "short"));
    assert_eq!(summary(&end).model.as_deref(), Some("b/two"));
    // Where that one is not to be had either, both are named.
    let mut turn = two(talk(10, 400), [None, None], unknown());
    turn.step(Input::Compact(None));
    no_summary(&mut turn);
    let end = no_summary(&mut turn);
    assert_eq!(summary(&end).exit, 4);
    let message = &summary(&end).fault.as_ref().unwrap().message;
    assert!(message.contains("before it `a/one` failed: it failed"), "{message}");
}

#[test]
fn what_the_next_model_does_not_mend_ends_the_run_as_before() {
    for class in [Class::Refused, Class::Auth, Class::Fatal] {
        let mut turn = two(talk(10, 4000), [None, None], unknown());
        turn.step(Input::Submit("now this".into()));
        turn.step(failed(Class::ContextFull));
        let end = turn.step(failed(class.clone()));
        assert!(!fell_back(&end) && !asks(&end), "{class:?}");
        assert_eq!(summary(&end).exit, 4);
        let kind = summary(&end).fault.as_ref().unwrap().kind;
        assert_eq!(kind == FaultKind::Auth, class == Class::Auth, "{class:?}: {kind:?}");
    }
}

#[test]
fn the_window_is_that_of_the_model_that_is_asked() {
    // From a large window to a small one: it is made to fit before it is sent.
    let mut turn = two(talk(10, 4000), [Some(100_000), Some(12_000)], unknown());
    assert!(asks(&turn.step(Input::Submit("now this".into()))));
    let next = turn.step(busy());
    assert!(fell_back(&next) && !asks(&next), "{next:?}");
    assert!(summarises(&next).is_some(), "{next:?}");
    turn.step(say("all of it"));
    let actions = turn.step(done());
    let made = compacted(&actions).unwrap();
    assert_eq!(made.reason, Reason::Threshold);
    assert!(asks(&actions) && made.after < 9600, "{made:?}");
    turn.step(say("the end"));
    let actions = turn.step(done());
    let end = summary(&actions);
    assert_eq!((end.exit, end.turns), (0, 1), "it is the request of the same turn");
    // One that fails is no end: the conversation may fit all the same.
    let mut turn = two(talk(10, 4000), [Some(100_000), Some(12_000)], unknown());
    turn.step(Input::Submit("now this".into()));
    turn.step(busy());
    assert!(asks(&no_summary(&mut turn)));

    // From a small one to a large one, and back with the next prompt.
    let mut turn = two(talk(8, 4000), [Some(12_000), Some(100_000)], unknown());
    assert!(asks(&turn.step(Input::Submit("p".repeat(2000)))), "under the threshold yet");
    assert!(asks(&turn.step(busy())));
    turn.step(say(&"w".repeat(12_000)));
    turn.step(done());
    let next = turn.step(Input::Submit("more".into()));
    assert!(summarises(&next).is_some(), "the chosen one has its own window: {next:?}");
    // What a person set holds for all of them.
    let policy = Policy { window: Some(12_000), ..unknown() };
    let mut turn = two(talk(10, 4000), [Some(100_000), Some(100_000)], policy);
    assert!(summarises(&turn.step(Input::Submit("now this".into()))).is_some());

    let mut turn = two(Vec::new(), [Some(200_000), Some(12_000)], unknown());
    turn.step(Input::Submit("p".repeat(60_000)));
    turn.step(busy());
    let end = turn.step(failed(Class::ContextFull));
    let message = &summary(&end).fault.as_ref().unwrap().message;
    assert!(message.contains("context window of 12000 tokens of `b/two`"), "{message}");
}

#[test]
fn money_is_looked_at_before_a_full_window_is_made_to_fit() {
    for (tokens, over) in [(999, false), (1000, true)] {
        for history in [talk(10, 4000), long(10, 4000)] {
            let mut turn = paid("0.001", history);
            turn.compaction.policy.enabled = false;
            assert!(asks(&turn.step(Input::Submit("now this".into()))));
            let usage = Usage { input_tokens: tokens, ..Usage::default() };
            let full = Delta::Done { stop: Stop::ContextFull, usage: Some(usage) };
            let actions = turn.step(Input::Delta(full));
            let is_done = summarises(&actions).is_some() || compacted(&actions).is_some();
            assert_eq!(is_done, !over, "{tokens}: {actions:?}");
            if over {
                let end = summary(&actions);
                assert_eq!((end.outcome, end.exit, end.turns), (Outcome::Budget, 5, 1));
            }
        }
    }
}

#[test]
fn a_wish_that_brings_nothing_is_said_and_no_reason_not_to_ask() {
    let mut turn = two(Vec::new(), [None, None], unknown());
    turn.step(Input::Submit("now this".into()));
    turn.step(Input::Compact(None));
    let next = turn.step(busy());
    assert!(fell_back(&next) && asks(&next), "{next:?}");
    let said = |it: &&Action| matches!(it, Action::Emit(Event::Notice(text)) if text == NOTHING);
    assert_eq!(next.iter().filter(said).count(), 1, "{next:?}");
}
