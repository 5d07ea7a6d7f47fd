use futures_util::{StreamExt as _, future::FutureExt as _, stream};
use tokio::{
    sync::{mpsc, oneshot},
    task::unconstrained,
    time::Duration,
};

use super::*;
use crate::message::{Stop, ToolResult};

/// How often an order is tried: a fair choice among what is ready would pass so many once in 2^64.
const TRIES: usize = 64;

fn result() -> CallResult {
    CallResult {
        index: 0,
        result: ToolResult { call: "c".into(), text: "done".into(), is_error: false },
        denied: Vec::new(),
        declined: Vec::new(),
        allowed: Vec::new(),
        changed: Vec::new(),
    }
}

fn past() -> Option<Instant> {
    Instant::now().checked_sub(Duration::from_secs(1))
}

fn nothing() -> Ongoing {
    Ongoing {
        stream: None,
        work: None,
        results: None,
        retry_at: None,
        deadline: None,
        backlog: Arc::default(),
        watch: Stopwatch::start(),
    }
}

/// Asks once, and says what was ready then. The runtime's budget, after which nothing is ready for a
/// task that never waits, is not asked.
fn ready(ongoing: &mut Ongoing, ops: &mut UnboundedReceiver<Op>) -> &'static str {
    match unconstrained(ongoing.next(&mut VecDeque::new(), ops, true)).now_or_never() {
        None => "nothing",
        Some(Happened::Op(Some(Op::Interrupt))) => "interrupt",
        Some(Happened::Op(_)) => "another operation",
        Some(Happened::Stream(_)) => "stream",
        Some(Happened::Result(_)) => "result",
        Some(Happened::WorkDone) => "work done",
        Some(Happened::RetryDue) => "retry",
        Some(Happened::Deadline) => "deadline",
        Some(Happened::Room) => "room",
    }
}

#[tokio::test]
async fn with_everything_ready_at_once_results_come_first_then_signals_then_the_stream() {
    for _ in 0..TRIES {
        let (signal, mut ops) = mpsc::unbounded_channel();
        let (sender, receiver) = mpsc::unbounded_channel();
        sender.send(result()).unwrap();
        sender.send(result()).unwrap();
        signal.send(Op::Interrupt).unwrap();
        let delta = Ok(Delta::Done { stop: Stop::EndTurn, usage: None });
        let mut ongoing = Ongoing {
            stream: Some(stream::iter([delta]).chain(stream::pending()).boxed()),
            results: Some(receiver),
            retry_at: past(),
            deadline: past(),
            ..nothing()
        };
        let mut order = Vec::new();
        for _ in 0..6 {
            let next = ready(&mut ongoing, &mut ops);
            match next {
                "deadline" => ongoing.deadline = None,
                "retry" => ongoing.retry_at = None,
                _ => {}
            }
            order.push(next);
        }
        assert_eq!(order, ["result", "result", "interrupt", "deadline", "stream", "retry"]);
        assert_eq!(ready(&mut ongoing, &mut ops), "nothing");
    }
}

#[tokio::test]
async fn a_call_that_has_ended_is_told_before_the_signal_that_comes_with_its_end() {
    for _ in 0..TRIES {
        let (signal, mut ops) = mpsc::unbounded_channel();
        let (sender, receiver) = mpsc::unbounded_channel();
        let (end, ended) = oneshot::channel::<()>();
        let other = sender.clone();
        let work = async move {
            ended.await.unwrap();
            sender.send(result()).unwrap();
            // Another call goes on.
            std::future::pending::<()>().await;
        };
        let mut ongoing =
            Ongoing { work: Some(work.boxed()), results: Some(receiver), ..nothing() };
        assert_eq!(ready(&mut ongoing, &mut ops), "nothing", "control: it goes on");
        end.send(()).unwrap();
        signal.send(Op::Interrupt).unwrap();
        assert_eq!(ready(&mut ongoing, &mut ops), "result");
        assert_eq!(ready(&mut ongoing, &mut ops), "interrupt");
        drop(other);
    }
}

#[tokio::test]
async fn the_last_call_s_result_is_told_before_a_signal_too() {
    for _ in 0..TRIES {
        let (signal, mut ops) = mpsc::unbounded_channel();
        let (sender, receiver) = mpsc::unbounded_channel();
        signal.send(Op::Interrupt).unwrap();
        let work = async move { sender.send(result()).unwrap() };
        let mut ongoing =
            Ongoing { work: Some(work.boxed()), results: Some(receiver), ..nothing() };
        assert_eq!(ready(&mut ongoing, &mut ops), "work done");
        ongoing.work = None;
        assert_eq!(ready(&mut ongoing, &mut ops), "result");
        assert_eq!(ready(&mut ongoing, &mut ops), "interrupt");
    }
}

#[tokio::test]
async fn a_signal_is_seen_though_the_front_end_is_full() {
    let (signal, mut ops) = mpsc::unbounded_channel();
    let delta = || Ok(Delta::Text("x".into()));
    let mut ongoing =
        Ongoing { stream: Some(stream::iter([delta(), delta()]).boxed()), ..nothing() };
    ongoing.backlog.add(2 << 20);
    assert_eq!(ready(&mut ongoing, &mut ops), "nothing", "the stream is not read");
    signal.send(Op::Interrupt).unwrap();
    assert_eq!(ready(&mut ongoing, &mut ops), "interrupt");
    ongoing.backlog.take(2 << 20);
    assert_eq!(ready(&mut ongoing, &mut ops), "stream", "control");
}

/// What lies between a signal and the end of the run: one write through to the disk, and nothing that
/// waits.
#[test]
fn a_stop_aborts_first_writes_through_once_and_starts_nothing() {
    use crate::{
        agent::{
            Budgets,
            turn::{Action, Input, Retry, Turn, Why},
        },
        model::{Class, ModelError},
    };

    let call = |id: &str| {
        let (id, name) = (id.to_owned(), "bash".to_owned());
        Input::Delta(Delta::Call { id, name, arguments: "{}".into() })
    };
    let done = |stop| Input::Delta(Delta::Done { stop, usage: None });
    let failed = || {
        Input::Failed(ModelError {
            class: Class::Retry { after: None },
            message: "overloaded".into(),
            network: false,
        })
    };
    let text = || Input::Delta(Delta::Text("half".into()));
    let states: Vec<(&str, Vec<Input>)> = vec![
        ("asking", vec![]),
        ("answering", vec![text()]),
        ("answered with a call, not yet done", vec![text(), call("a")]),
        ("waiting to ask again", vec![failed()]),
        ("working", vec![call("a"), call("b"), done(Stop::ToolUse)]),
        ("steered", vec![call("a"), done(Stop::ToolUse), Input::Steer("more".into())]),
        (
            "working, one result there",
            vec![call("c"), call("b"), done(Stop::ToolUse), Input::Result(Box::new(result()))],
        ),
    ];
    for (state, inputs) in states {
        for why in [Why::Interrupt, Why::Terminate, Why::Time(Duration::from_secs(1))] {
            let (budgets, retry) = (Budgets::default(), Retry::default());
            let mut turn = Turn::new("m".into(), Vec::new(), budgets, retry);
            turn.step(Input::Submit("go".into()));
            for input in inputs.clone() {
                turn.step(input);
            }
            let actions = turn.step(Input::Stop(why));
            let case = format!("{state}: {actions:?}");
            assert_eq!(actions.first(), Some(&Action::Abort), "{case}");
            assert!(matches!(actions.last(), Some(Action::Finish(_))), "{case}");
            let syncs = actions.iter().filter(|action| matches!(action, Action::Sync)).count();
            assert_eq!(syncs, 1, "{case}");
            assert!(
                !actions.iter().any(|action| matches!(
                    action,
                    Action::Ask | Action::Sleep { .. } | Action::Work(_) | Action::Summarise(_)
                )),
                "{case}"
            );
        }
    }
}

#[test]
fn what_is_said_by_the_last_result_goes_along_and_a_stop_waits_for_its_time() {
    let (signal, mut ops) = mpsc::unbounded_channel();
    let mut held = VecDeque::from([Op::Steer("first".into())]);
    for op in [
        Op::Compact { focus: None },
        Op::Steer("second".into()),
        Op::Interrupt,
        Op::Steer("after the stop".into()),
    ] {
        signal.send(op).unwrap();
    }
    let said = said_by_now(&mut held, &mut ops);
    assert!(
        matches!(
            said.as_slice(),
            [Input::Steer(first), Input::Compact(None), Input::Steer(second)]
                if first == "first" && second == "second"
        ),
        "{said:?}"
    );
    assert!(said_by_now(&mut held, &mut ops).is_empty(), "the stop comes before what follows it");
    // It waits where signals do: results that are there come before it.
    let mut ongoing = nothing();
    let (results, inbox) = mpsc::unbounded_channel();
    results.send(result()).unwrap();
    ongoing.results = Some(inbox);
    let mut next = || unconstrained(ongoing.next(&mut held, &mut ops, true)).now_or_never();
    assert!(matches!(next(), Some(Happened::Result(_))));
    assert!(matches!(next(), Some(Happened::Op(Some(Op::Interrupt)))));
    assert!(matches!(next(), Some(Happened::Op(Some(Op::Steer(_))))));
}
