//! What a person says and wishes while the agent works or a summary is made: nothing is lost, and
//! the order stays.

use super::*;
use crate::agent::turn::Why;

fn recorded(actions: &[Action]) -> Vec<String> {
    let told = actions.iter().filter_map(|action| match action {
        Action::Record(message) => Some(message.text()),
        Action::RecordCompaction(_) => Some("(compaction)".to_owned()),
        _ => None,
    });
    told.collect()
}

fn notices(actions: &[Action]) -> usize {
    actions.iter().filter(|it| matches!(it, Action::Emit(Event::Notice(_)))).count()
}

fn steer(turn: &mut Turn, text: &str) {
    assert_eq!(turn.step(Input::Steer(text.into())), [], "it waits");
}

/// A machine that makes a summary for a prompt: at the threshold, or as its window is full.
fn summarising(is_full: bool) -> Turn {
    let policy = if is_full { Policy::default() } else { policy(12_000) };
    let mut turn = machine(talk(10, 4000), policy);
    let mut actions = turn.step(Input::Submit("now this".into()));
    if is_full {
        actions = turn.step(failed(Class::ContextFull));
    }
    assert!(summarises(&actions).is_some());
    turn
}

#[test]
fn what_is_said_while_a_summary_is_made_goes_along_with_the_next_request() {
    for is_full in [false, true] {
        for fails in [false, true] {
            let mut turn = summarising(is_full);
            steer(&mut turn, "first");
            turn.step(say("all "));
            steer(&mut turn, "second");
            let actions = if fails {
                turn.step(busy());
                steer(&mut turn, "third");
                assert!(summarises(&turn.step(Input::RetryDue)).is_some());
                turn.step(say("of it"));
                turn.step(done())
            } else {
                turn.step(say("of it"));
                turn.step(done())
            };
            let mut wanted = vec!["(compaction)", "first", "second"];
            wanted.extend(fails.then_some("third"));
            assert_eq!(recorded(&actions), wanted, "full {is_full}, fails {fails}");
            let place =
                |wanted: &dyn Fn(&Action) -> bool| actions.iter().rposition(wanted).unwrap();
            let told = place(&|it| matches!(it, Action::Record(_)));
            let synced = place(&|it| *it == Action::Sync);
            let asked = place(&|it| *it == Action::Ask);
            assert!(told < synced && synced < asked, "{actions:?}");
            let said: Vec<String> = turn.history().iter().rev().map(Message::text).collect();
            assert_eq!(said[..2], [*wanted.last().unwrap(), wanted[wanted.len() - 2]]);
            assert_eq!(strict(turn.history()), Ok(()));
        }
    }
}

fn busy() -> Input {
    failed(Class::Retry { after: None })
}

#[test]
fn where_the_run_ends_first_it_is_given_back() {
    for is_full in [false, true] {
        let mut turn = summarising(is_full);
        steer(&mut turn, "first");
        steer(&mut turn, "second");
        let end = turn.step(Input::Stop(Why::Interrupt));
        assert_eq!(summary(&end).undelivered, ["first", "second"]);
        assert_eq!(recorded(&end), Vec::<String>::new());
    }
    // A summary that cannot be had, with a window that is full.
    let mut turn = summarising(true);
    steer(&mut turn, "first");
    let end = turn.step(failed(Class::Fatal));
    assert_eq!(
        (summary(&end).exit, &summary(&end).undelivered[..]),
        (4, &["first".to_owned()][..])
    );
    // And at the threshold, where the run goes on: it is told.
    let mut turn = summarising(false);
    steer(&mut turn, "first");
    let next = turn.step(failed(Class::Fatal));
    assert!(recorded(&next) == ["first"] && asks(&next), "{next:?}");
}

/// A machine whose last answer is on its way when a compaction is asked for.
fn wishing(focus: Option<&str>) -> Turn {
    let mut turn = machine(talk(10, 400), Policy::default());
    turn.step(Input::Submit("work".into()));
    turn.step(say("the "));
    assert_eq!(turn.step(Input::Compact(focus.map(str::to_owned))), []);
    turn.step(say("answer"));
    turn
}

#[test]
fn one_that_is_asked_for_during_the_last_answer_is_made_at_the_end_of_that_prompt() {
    let mut turn = wishing(Some("the parser"));
    let actions = turn.step(done());
    assert!(summarises(&actions).expect("it is begun").text().contains("the parser"));
    assert!(!actions.iter().any(|it| matches!(it, Action::Finish(_))), "{actions:?}");
    assert_eq!(recorded(&actions), ["the answer"]);
    turn.step(say("short"));
    let actions = turn.step(done());
    assert_eq!(compacted(&actions).unwrap().reason, Reason::Asked);
    let end = summary(&actions);
    assert_eq!((end.outcome, end.exit, end.turns), (Outcome::Ok, 0, 1));
    assert_eq!(end.text, "the answer", "and not the summary");
    let next = turn.step(Input::Submit("more".into()));
    assert!(asks(&next) && summarises(&next).is_none(), "it is made once: {next:?}");
    assert_eq!(last_said(turn.history()), Some("more"));
}

#[test]
fn when_it_cannot_be_made_the_prompt_ends_as_it_would_have() {
    // It fails.
    let mut turn = wishing(None);
    turn.step(done());
    let before = turn.history().to_vec();
    let actions = turn.step(failed(Class::Fatal));
    let end = summary(&actions);
    assert_eq!((end.outcome, end.exit, end.text.as_str()), (Outcome::Ok, 0, "the answer"));
    assert_eq!((turn.history(), notices(&actions)), (&before[..], 1));
    // It is no shorter than what it stands for.
    let mut turn = machine(Vec::new(), Policy::default());
    turn.step(Input::Submit("work".into()));
    turn.step(Input::Compact(None));
    turn.step(say("the answer"));
    turn.step(done());
    turn.step(say("the answer is the answer, and that took a while"));
    let actions = turn.step(done());
    assert!(compacted(&actions).is_none());
    assert_eq!((summary(&actions).exit, notices(&actions)), (0, 1), "{actions:?}");
    // The time is up while it is made: the answer is there all the same.
    let mut turn = wishing(None);
    turn.step(done());
    let actions = turn.step(Input::Stop(Why::Time(Duration::from_secs(1))));
    assert_eq!((summary(&actions).exit, notices(&actions)), (0, 1), "{actions:?}");
    // A person who stops it stops the run.
    let mut turn = wishing(None);
    turn.step(done());
    let actions = turn.step(Input::Stop(Why::Interrupt));
    assert_eq!((summary(&actions).exit, summary(&actions).text.as_str()), (130, "the answer"));
    let next = turn.step(Input::Submit("more".into()));
    assert!(asks(&next) && summarises(&next).is_none(), "{next:?}");
}

#[test]
fn what_is_said_during_it_is_worked_on_and_nothing_is_spent_on_it_that_is_not_there() {
    let mut turn = wishing(None);
    turn.step(done());
    steer(&mut turn, "one more thing");
    turn.step(say("short"));
    let actions = turn.step(done());
    assert_eq!(recorded(&actions), ["(compaction)", "one more thing"]);
    assert!(asks(&actions), "{actions:?}");
    turn.step(say("that, too"));
    let actions = turn.step(done());
    let end = summary(&actions);
    assert_eq!((end.exit, end.text.as_str(), end.turns), (0, "that, too", 2));

    // Money: the answer is there, and the wish is for the next prompt.
    for (tokens, over) in [(999, false), (1000, true)] {
        let mut turn = paid("0.001", talk(10, 400));
        turn.step(Input::Submit("work".into()));
        turn.step(say("the answer"));
        turn.step(Input::Compact(None));
        let actions = turn.step(counted(tokens));
        assert_eq!(summarises(&actions).is_none(), over, "{tokens}");
        if over {
            assert_eq!(summary(&actions).exit, 0);
            assert!(summarises(&turn.step(Input::Submit("more".into()))).is_some());
        } else {
            turn.step(say("short"));
            let actions = turn.step(counted(1));
            assert_eq!(summary(&actions).exit, 0, "a prompt that is done with is no failure");
            assert_eq!(summary(&actions).cost.unwrap().to_string(), "0.001");
        }
    }
    // A run that the provider ends makes no summary either.
    let mut turn = wishing(None);
    let actions = turn.step(busy());
    assert_eq!(summary(&actions).exit, 4);
    assert!(summarises(&turn.step(Input::Submit("more".into()))).is_some(), "the wish stays");
}
