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
    match unconstrained(ongoing.next(ops, true)).now_or_never() {
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
