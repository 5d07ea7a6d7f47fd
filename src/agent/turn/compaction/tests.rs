//! When a turn makes its conversation shorter, and what becomes of the prompt: single paths, and the
//! history fuzzer, which plays random conversations with a summariser that fails in every way, and
//! reads the session that comes of it from its file, damaged or not.

#![expect(clippy::disallowed_methods, reason = "a test damages its own session file")]

mod switching;
mod wishes;

use std::{collections::VecDeque, fs, path::Path};

use proptest::prelude::*;

use super::*;
use crate::{
    agent::{
        Budgets, Summary,
        compact::{
            SUMMARY, last_said,
            tests::{history, long, result, strict, user},
        },
        turn::{CallResult, Input, Retry},
    },
    message::{Block, ToolResult},
    session::{self, Entry, Store},
};

fn policy(window: u64) -> Policy {
    Policy { window: Some(window), keep: 1000, ..Policy::default() }
}

fn machine(history: Vec<Message>, policy: Policy) -> Turn {
    Turn::new("test/model".into(), history, Budgets::default(), Retry::default())
        .compacting(policy, 100)
}

fn done() -> Input {
    Input::Delta(Delta::Done { stop: Stop::EndTurn, usage: None })
}

fn say(text: &str) -> Input {
    Input::Delta(Delta::Text(text.into()))
}

fn failed(class: Class) -> Input {
    Input::Failed(ModelError { class, message: "it failed".into(), network: false })
}

fn summarises(actions: &[Action]) -> Option<&Message> {
    actions.iter().find_map(|action| match action {
        Action::Summarise(message) => Some(message),
        _ => None,
    })
}

fn compacted(actions: &[Action]) -> Option<&Compacted> {
    actions.iter().find_map(|action| match action {
        Action::Emit(Event::Compacted(done)) => Some(done),
        _ => None,
    })
}

fn asks(actions: &[Action]) -> bool {
    actions.contains(&Action::Ask)
}

fn summary(actions: &[Action]) -> &Summary {
    actions
        .iter()
        .find_map(
            |action| if let Action::Finish(summary) = action { Some(&**summary) } else { None },
        )
        .unwrap_or_else(|| panic!("{actions:?}"))
}

#[test]
fn at_the_threshold_old_results_are_trimmed_and_the_run_goes_on() {
    let mut turn = machine(long(10, 4000), policy(12_000));
    let actions = turn.step(Input::Submit("now this".into()));
    let done = compacted(&actions).unwrap();
    assert_eq!((done.reason, done.summarised, done.trimmed), (Reason::Threshold, 0, 10));
    assert!(done.before > 9600 && done.after < 4800, "{done:?}");
    assert!(asks(&actions) && summarises(&actions).is_none());
    let recorded = actions.iter().position(|it| matches!(it, Action::RecordCompaction(_))).unwrap();
    let asked = actions.iter().position(|it| *it == Action::Ask).unwrap();
    assert!(recorded < asked, "written down before it takes effect");
    let mut roomy = machine(long(10, 4000), policy(20_000));
    assert!(compacted(&roomy.step(Input::Submit("now this".into()))).is_none(), "control");
    let off = Policy { enabled: false, ..policy(12_000) };
    let mut off = machine(long(10, 4000), off);
    assert!(compacted(&off.step(Input::Submit("now this".into()))).is_none());
}

/// A conversation that trimming does not make short: it is texts.
fn talk(turns: usize, bytes: usize) -> Vec<Message> {
    let turn = |number: usize| {
        let answer = vec![Block::Text { text: "a".repeat(bytes) }];
        [user(&format!("question {number}")), Message { role: Role::Assistant, blocks: answer }]
    };
    (0..turns).flat_map(turn).collect()
}

#[test]
fn what_trimming_does_not_make_short_is_summarised_by_the_model_without_tools() {
    let mut turn = machine(talk(10, 4000), policy(12_000));
    let actions = turn.step(Input::Submit("now this".into()));
    let request = summarises(&actions).unwrap();
    assert!(request.text().contains("# person, at first\nquestion 0"));
    assert!(!asks(&actions));
    turn.step(say("## Goal\n"));
    turn.step(Input::Delta(Delta::Call {
        id: "x".into(),
        name: "bash".into(),
        arguments: "{}".into(),
    }));
    turn.step(Input::Delta(Delta::Thinking("hm".into())));
    turn.step(say("all of it"));
    let actions = turn.step(done());
    assert!(!actions.iter().any(|it| matches!(it, Action::Work(_))), "a summariser calls nothing");
    let done = compacted(&actions).unwrap();
    assert_eq!(done.summary.as_deref(), Some("## Goal\nall of it"));
    assert!(asks(&actions));
    assert_eq!(strict(turn.history()), Ok(()));
    assert_eq!(last_said(turn.history()), Some("now this"));
    assert!(turn.history()[0].text().starts_with(SUMMARY));
}

#[test]
fn in_the_middle_of_a_run_the_running_prompt_stays() {
    let mut turn = machine(talk(1, 10), policy(12_000));
    turn.step(Input::Submit("the running prompt".into()));
    let mut last = Vec::new();
    for number in 0..60 {
        let id = format!("c{number}");
        let (name, arguments) = ("read".into(), "{}".into());
        turn.step(say(&"thinking aloud ".repeat(60)));
        turn.step(Input::Delta(Delta::Call { id: id.clone(), name, arguments }));
        turn.step(done());
        let result = ToolResult { call: id, text: format!("{number:0>300}"), is_error: false };
        let (denied, allowed, changed) = (Vec::new(), Vec::new(), Vec::new());
        last = turn.step(Input::Result(Box::new(CallResult {
            index: 0,
            result,
            denied,
            declined: Vec::new(),
            allowed,
            changed,
        })));
        if summarises(&last).is_some() {
            break;
        }
    }
    assert!(summarises(&last).is_some(), "it became due in the middle");
    turn.step(say("so far"));
    let actions = turn.step(done());
    assert!(asks(&actions));
    assert_eq!(last_said(turn.history()), Some("the running prompt"));
    assert_eq!(strict(turn.history()), Ok(()));
    turn.step(say("the end"));
    let end = turn.step(done());
    assert_eq!((summary(&end).exit, summary(&end).text.as_str()), (0, "the end"));
}

#[test]
fn a_full_window_makes_for_one_compaction_and_then_for_a_clear_end() {
    // Nobody knows the window, so the model has to say it.
    let mut turn = machine(long(10, 4000), Policy::default());
    assert!(asks(&turn.step(Input::Submit("now this".into()))));
    let actions = turn.step(failed(Class::ContextFull));
    assert_eq!(actions.first(), Some(&Action::Abort));
    assert_eq!(compacted(&actions).unwrap().reason, Reason::ContextFull);
    assert!(asks(&actions));
    let end = turn.step(failed(Class::ContextFull));
    assert!(compacted(&end).is_none() && summarises(&end).is_none() && !asks(&end));
    let end = summary(&end);
    assert_eq!((end.outcome, end.exit, end.turns), (Outcome::Error, 4, 1));
    let message = &end.fault.as_ref().unwrap().message;
    assert!(message.contains("`test/model`, also after compaction: about "), "{message}");
    assert!(message.contains("start a new session") && message.contains("it failed"), "{message}");
    // After an answer it may be done again.
    turn.step(Input::Submit("and".into()));
    turn.step(say("yes"));
    turn.step(done());
    assert_eq!(last_said(turn.history()), Some("and"));
}

#[test]
fn a_window_that_is_full_though_the_threshold_was_kept_makes_for_one_compaction_too() {
    // What trimming brought is enough by kli's own count, not by the model's.
    let mut turn = machine(long(10, 4000), policy(12_000));
    let actions = turn.step(Input::Submit("now this".into()));
    assert_eq!(compacted(&actions).unwrap().reason, Reason::Threshold);
    let actions = turn.step(failed(Class::ContextFull));
    assert!(summarises(&actions).is_some() && !asks(&actions), "{actions:?}");
    turn.step(say("all of it"));
    let actions = turn.step(done());
    let told = compacted(&actions).unwrap();
    assert_eq!((told.reason, told.summary.as_deref()), (Reason::ContextFull, Some("all of it")));
    assert!(asks(&actions) && told.after < told.before);
    assert_eq!(strict(turn.history()), Ok(()));
    let end = turn.step(failed(Class::ContextFull));
    assert!(compacted(&end).is_none() && summarises(&end).is_none() && !asks(&end));
    assert_eq!(summary(&end).exit, 4);
}

#[test]
fn what_cannot_shrink_is_not_sent_again() {
    let mut turn = machine(Vec::new(), Policy::default());
    turn.step(Input::Submit("p".repeat(100_000)));
    let end = turn.step(failed(Class::ContextFull));
    assert!(!asks(&end) && summarises(&end).is_none());
    let message = &summary(&end).fault.as_ref().unwrap().message;
    assert!(message.contains("25000 the last prompt"), "{message}");
    // An answer that says nothing but this is the same.
    let mut turn = machine(long(10, 4000), Policy::default());
    turn.step(Input::Submit("now this".into()));
    let full = || Input::Delta(Delta::Done { stop: Stop::ContextFull, usage: None });
    assert!(compacted(&turn.step(full())).is_some());
    assert_eq!(summary(&turn.step(full())).exit, 1);
}

#[test]
fn a_summary_that_fails_is_tried_once_more_and_then_trimming_has_to_do() {
    let mut history = talk(10, 4000);
    history.splice(2..2, long(1, 3000).into_iter().skip(1));
    let start = || {
        let mut turn = machine(history.clone(), policy(12_000));
        let first = turn.step(Input::Submit("now this".into()));
        let length = summarises(&first).unwrap().text().len();
        (turn, length)
    };
    let (mut turn, length) = start();
    turn.step(say("half a summ"));
    let actions = turn.step(failed(Class::Retry { after: None }));
    assert!(actions.iter().any(|it| matches!(it, Action::Sleep { .. })), "{actions:?}");
    let again = turn.step(Input::RetryDue);
    assert!(summarises(&again).unwrap().text().len() < length, "half as much to read");
    let actions = turn.step(failed(Class::Retry { after: None }));
    let made = compacted(&actions).unwrap();
    assert_eq!((made.summarised, made.trimmed), (0, 1));
    assert!(asks(&actions), "the run goes on");
    assert!(actions.iter().any(|it| matches!(it, Action::Emit(Event::Notice(_)))));

    // A refusal is not asked for twice, and what could not be made shorter is sent all the same.
    let mut turn = machine(talk(10, 4000), policy(12_000));
    turn.step(Input::Submit("now this".into()));
    let actions = turn.step(failed(Class::Refused));
    assert!(asks(&actions) && compacted(&actions).is_none());
    turn.step(say("fine"));
    turn.step(done());
    let next = turn.step(Input::Submit("more".into()));
    assert!(asks(&next), "a summary is not asked for at every turn when it brings nothing");

    // An empty answer is a failure as well.
    let (mut turn, _) = start();
    let actions = turn.step(done());
    assert!(actions.iter().any(|it| matches!(it, Action::Sleep { .. })), "{actions:?}");
}

#[test]
fn an_interrupt_in_a_summary_leaves_the_conversation_as_it_was() {
    let mut turn = machine(talk(10, 4000), policy(12_000));
    turn.step(Input::Submit("now this".into()));
    let before = turn.history().to_vec();
    turn.step(say("half"));
    let end = turn.step(Input::Stop(super::super::Why::Interrupt));
    assert_eq!(summary(&end).exit, 130);
    assert_eq!(turn.history(), before);
}

#[test]
fn it_can_be_asked_for_with_a_focus() {
    let mut turn = machine(talk(10, 400), Policy::default());
    let actions = turn.step(Input::Compact(Some("the parser".into())));
    assert!(summarises(&actions).unwrap().text().contains("the parser"));
    turn.step(say("short"));
    let actions = turn.step(done());
    let end = summary(&actions);
    assert_eq!((end.exit, end.text.as_str()), (0, "short"));
    let again = turn.step(Input::Compact(None));
    assert!(summarises(&again).is_some() || summary(&again).exit == 0);

    let mut empty = machine(Vec::new(), Policy::default());
    let actions = empty.step(Input::Compact(None));
    assert_eq!(summary(&actions).exit, 0);
    assert!(actions.iter().any(|it| matches!(it, Action::Emit(Event::Notice(_)))));

    // While the agent works it waits for the next boundary.
    let mut turn = machine(talk(10, 400), Policy::default());
    turn.step(Input::Submit("work".into()));
    assert_eq!(turn.step(Input::Compact(None)), []);
    let (name, arguments) = ("read".into(), "{}".into());
    turn.step(Input::Delta(Delta::Call { id: "a".into(), name, arguments }));
    turn.step(done());
    let Block::Result(result) = result("a", "r").blocks.remove(0) else { panic!() };
    let (denied, allowed, changed) = (Vec::new(), Vec::new(), Vec::new());
    let next = turn.step(Input::Result(Box::new(CallResult {
        index: 0,
        result,
        denied,
        declined: Vec::new(),
        allowed,
        changed,
    })));
    assert!(summarises(&next).is_some() && !asks(&next));
}

/// What a summariser does.
#[derive(Clone, Copy, Debug)]
enum Turnout {
    Summary,
    Long,
    Nothing,
    Full,
    Broken,
    Refused,
}

/// Plays a prompt to its end: every request for a summary gets the next turnout, every other one an
/// answer, or first so many times that the window is full.
fn play(turn: &mut Turn, first: Input, turnouts: &[Turnout], mut full: u32) -> Vec<Action> {
    let mut turnouts: VecDeque<Turnout> = turnouts.iter().copied().collect();
    let (mut all, mut inputs) = (Vec::new(), VecDeque::from([first]));
    while let Some(input) = inputs.pop_front() {
        for action in turn.step(input) {
            match &action {
                Action::Summarise(_) => match turnouts.pop_front().unwrap_or(Turnout::Broken) {
                    Turnout::Summary => inputs.extend([say("## Goal\nto go on"), done()]),
                    Turnout::Long => inputs.extend([say(&"w".repeat(200_000)), done()]),
                    Turnout::Nothing => inputs.push_back(done()),
                    Turnout::Full => inputs.push_back(failed(Class::ContextFull)),
                    Turnout::Broken => inputs.push_back(failed(Class::Retry { after: None })),
                    Turnout::Refused => inputs.push_back(failed(Class::Refused)),
                },
                Action::Ask if full > 0 => {
                    full -= 1;
                    inputs.push_back(failed(Class::ContextFull));
                }
                Action::Ask => inputs.extend([say("the answer"), done()]),
                Action::Sleep { .. } => inputs.push_back(Input::RetryDue),
                _ => {}
            }
            all.push(action);
        }
    }
    all
}

/// Writes what is recorded into a session and returns it as the next run would find it.
fn through_a_file(
    before: &[Message],
    actions: &[Action],
    damage: Option<(u64, u8)>,
) -> Vec<Message> {
    let room = tempfile::tempdir().unwrap();
    let (store, workspace) = (Store::new(room.path()), Path::new("/ws"));
    let mut log = store.create(workspace).unwrap();
    for message in before {
        log.append(&Entry::Message(message)).unwrap();
    }
    for action in actions {
        match action {
            Action::Record(message) => log.append(&Entry::Message(message)).unwrap(),
            Action::RecordCompaction(compaction) => {
                let (done, messages) = &**compaction;
                let done = session::Compaction {
                    reason: "threshold".to_owned(),
                    before: done.before,
                    after: done.after,
                    trimmed: done.trimmed as u64,
                    summarised: done.summarised as u64,
                    summary: done.summary.clone(),
                };
                log.append(&Entry::Compaction { done: &done, messages }).unwrap();
            }
            _ => {}
        }
    }
    let path = log.path().to_owned();
    drop(log);
    if let Some((at, byte)) = damage {
        let mut bytes = fs::read(&path).unwrap();
        // The first line says that it is a session at all.
        let start = bytes.iter().position(|byte| *byte == b'\n').unwrap() + 1;
        let at = start + usize::try_from(at).unwrap() % (bytes.len() - start);
        if byte == 0 {
            bytes.truncate(at);
        } else {
            bytes[at] ^= byte;
        }
        fs::write(&path, bytes).unwrap();
    }
    let found = store.list(workspace).unwrap().remove(0);
    store.open(workspace, &found).unwrap().messages
}

fn turnout() -> impl Strategy<Value = Turnout> {
    use Turnout::{Broken, Full, Long, Nothing, Refused, Summary};
    prop::sample::select(vec![Summary, Summary, Summary, Long, Nothing, Full, Broken, Refused])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(192))]

    #[test]
    fn whatever_happens_to_a_conversation_it_can_go_on(
        history in history(),
        prompt in prop_oneof![Just(30_usize), 0_usize..40_000],
        window in prop::option::of(1500_u64..30_000),
        keep in 100_u64..4000,
        turnouts in prop::collection::vec(turnout(), 0..4),
        full in 0_u32..3,
        asked in any::<bool>(),
        damage in prop::option::of((any::<u64>(), any::<u8>())),
    ) {
        let policy = Policy { keep, window, ..Policy::default() };
        let mut turn = machine(history.clone(), policy);
        let prompt = format!("prompt last {}", "p".repeat(prompt));
        let mut actions = Vec::new();
        if asked {
            actions.extend(play(&mut turn, Input::Compact(None), &turnouts, 0));
        }
        actions.extend(play(&mut turn, Input::Submit(prompt.clone()), &turnouts, full));
        let end = actions.iter().rev().find_map(|action| match action {
            Action::Finish(summary) => Some(summary),
            _ => None,
        });
        let end = end.expect("every prompt ends");

        // Pairs are whole, the prompt is there, and an end without an answer says why with numbers.
        prop_assert_eq!(strict(turn.history()), Ok(()));
        prop_assert_eq!(last_said(turn.history()), Some(prompt.as_str()));
        if end.exit == 0 {
            prop_assert_eq!(end.text.as_str(), "the answer");
        } else {
            let message = &end.fault.as_ref().expect("a failure says why").message;
            prop_assert!(message.contains("does not fit") && message.contains(" tokens"), "{}", message);
        }
        // Nothing gets longer by it, and a window is met once it was said to be full at the latest.
        let compactions: Vec<&Compacted> = actions.iter().filter_map(|action| match action {
            Action::Emit(Event::Compacted(done)) => Some(done),
            _ => None,
        }).collect();
        prop_assert!(compactions.iter().all(|done| done.after < done.before));
        prop_assert!(compactions.len() <= 4, "{}", compactions.len());
        // Each is written down once, and before it is told.
        let recorded = actions.iter().filter(|it| matches!(it, Action::RecordCompaction(_)));
        prop_assert_eq!(recorded.count(), compactions.len());
        // The conversation under the bound, or a reason: the last prompt alone, or no summary.
        if let (Some(limit), true) = (policy.limit(), end.exit == 0) {
            let size = turn.compaction.gauge.now();
            let prompt = compact::tokens_of(prompt.len());
            let had_summary = turnouts.iter().all(|it| matches!(it, Turnout::Summary)) && turnouts.len() == 4;
            let kept = 2 * keep + 300;
            prop_assert!(!had_summary || size <= limit.max(prompt + kept + 2300 + limit / 2), "{size} of {limit}");
        }

        // The session tells the same, read anew; damaged, it still is one that providers accept.
        prop_assert_eq!(through_a_file(&history, &actions, None), session::pair(turn.history().to_vec()));
        if let Some(damage) = damage {
            let opened = through_a_file(&history, &actions, Some(damage));
            prop_assert_eq!(strict(&opened), Ok(()));
        }
    }
}

/// A machine whose tokens cost a millionth each, with a budget of money.
fn paid(budget: &str, history: Vec<Message>) -> Turn {
    use crate::message::{Money, Price};
    let one = Price::parse("1").unwrap();
    let price = Price { input: one, output: one, cache_read: None, cache_write: None };
    let (name, price) = ("a/one".into(), Some(price));
    let chosen = crate::agent::turn::Candidate { name, price, window: None };
    let budgets = Budgets { cost: Money::parse(budget), ..Budgets::default() };
    Turn::new("a/one".into(), history, budgets, Retry::default())
        .asking(chosen, Vec::new(), Vec::new())
        .compacting(policy(12_000), 100)
}

fn counted(tokens: u64) -> Input {
    let usage = Usage { input_tokens: tokens, ..Usage::default() };
    Input::Delta(Delta::Done { stop: Stop::EndTurn, usage: Some(usage) })
}

#[test]
fn a_summary_that_uses_the_budget_up_is_kept_and_ends_the_run() {
    for (tokens, over) in [(999, false), (1000, true)] {
        let mut turn = paid("0.001", talk(10, 4000));
        assert!(summarises(&turn.step(Input::Submit("now this".into()))).is_some());
        turn.step(say("all of it"));
        let actions = turn.step(counted(tokens));
        assert!(compacted(&actions).is_some(), "what was paid for is used");
        assert_eq!(asks(&actions), !over, "{tokens}");
        if over {
            assert_eq!((summary(&actions).outcome, summary(&actions).exit), (Outcome::Budget, 5));
            assert_eq!(summary(&actions).cost.unwrap().to_string(), "0.001");
        }
    }
}

#[test]
fn a_summary_that_breaks_off_cost_nobody_knows_how_much_and_no_more_is_spent() {
    let again = || failed(Class::Retry { after: Some(Duration::ZERO) });
    let mut turn = paid("1", talk(10, 4000));
    turn.step(Input::Submit("now this".into()));
    turn.step(say("a half"));
    let actions = turn.step(again());
    assert!(!actions.iter().any(|it| matches!(it, Action::Sleep { .. })), "{actions:?}");
    assert_eq!((summary(&actions).exit, summary(&actions).cost), (5, None));
    assert!(summarises(&turn.step(Input::RetryDue)).is_none());

    // Control: nothing had come of it, so it is asked for once more.
    let mut turn = paid("1", talk(10, 4000));
    turn.step(Input::Submit("now this".into()));
    let actions = turn.step(again());
    assert!(actions.iter().any(|it| matches!(it, Action::Sleep { .. })), "{actions:?}");
    assert!(summarises(&turn.step(Input::RetryDue)).is_some());
    // Stopped while it is told: the result does not name what is not known.
    turn.step(say("a half"));
    let actions = turn.step(Input::Stop(crate::agent::turn::Why::Terminate));
    assert_eq!((summary(&actions).exit, summary(&actions).cost), (143, None));
}

#[test]
fn what_a_failed_summary_used_up_is_looked_at_before_the_next_request_for_one() {
    let mut turn = paid("0.001", talk(10, 4000));
    turn.step(Input::Submit("now this".into()));
    let actions = turn.step(counted(1000));
    assert!(!actions.iter().any(|it| matches!(it, Action::Sleep { .. })), "{actions:?}");
    assert_eq!(summary(&actions).exit, 5);
}

#[test]
fn a_compaction_that_was_asked_for_says_what_it_cost() {
    let mut turn = paid("1", talk(10, 4000));
    turn.step(Input::Compact(None));
    turn.step(say("all of it"));
    let actions = turn.step(counted(1000));
    assert_eq!(summary(&actions).exit, 0);
    assert_eq!(summary(&actions).cost.map(|cost| cost.to_string()).as_deref(), Some("0.001"));
}

#[test]
fn a_summary_that_was_stopped_is_made_for_the_next_prompt() {
    let mut turn = machine(talk(10, 4000), policy(12_000));
    assert!(summarises(&turn.step(Input::Submit("now this".into()))).is_some());
    let actions = turn.step(Input::Stop(crate::agent::turn::Why::Interrupt));
    assert_eq!(summary(&actions).exit, 130);
    assert!(turn.step(say("late")).is_empty(), "what comes after the end is nothing to anybody");
    let actions = turn.step(Input::Submit("once more".into()));
    assert!(summarises(&actions).is_some() && !asks(&actions), "{actions:?}");
}
