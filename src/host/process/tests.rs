#![expect(clippy::disallowed_methods, reason = "tests prepare files and look at what is left")]

use super::*;
use std::{
    sync::{Arc, Mutex, RwLock},
    time::Instant,
};

use crate::authority::{Atom, Detail, Request, Subject};

/// [`reap_all`] ends what any thread started: it takes this alone, all others share it.
pub(crate) static TURN: RwLock<()> = RwLock::new(());

fn grant() -> Grant {
    let detail = Detail::Commands { line: String::new(), parsed: None };
    Subject::new([]).check(Request { atom: Atom::ProcessExec, detail }).unwrap()
}

fn bash(script: &str) -> Command {
    Command {
        program: "bash".into(),
        args: vec!["-c".into(), "--".into(), script.into()],
        cwd: "/".into(),
        set: vec![],
        remove: vec![],
        input: None,
        timeout: Duration::from_secs(20),
        keep: (20_000, 10_000),
    }
}

fn block<F: Future>(future: F) -> F::Output {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

fn run_it(command: Command) -> (Output, Duration) {
    let started = Instant::now();
    let output = block(run(&grant(), command, &[], |_| {})).unwrap();
    (output, started.elapsed())
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.kept.head).into_owned()
}

/// Says whether a process lives; a zombie does not.
pub(crate) fn lives(pid: &str) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|stat| !stat.rsplit(')').next().unwrap().trim_start().starts_with('Z'))
}

fn dies_within(pid: &str, limit: Duration) -> bool {
    let started = Instant::now();
    while lives(pid) {
        if started.elapsed() > limit {
            return false;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    true
}

fn kill(pid: &str) {
    signal_it(pid.parse().unwrap());
}

fn signal_it(pid: i32) {
    let pid = rustix::process::Pid::from_raw(pid).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
}

#[test]
fn a_grant_for_something_else_starts_nothing() {
    let _turn = TURN.read();
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("made");
    let script = format!("touch {}", file.display());
    let other = Subject::new([]).check(Request::bare(Atom::FileRead)).unwrap();
    let refused = block(run(&other, bash(&script), &[], |_| {})).unwrap_err();
    assert_eq!(refused.to_string(), "the grant is not for running a command");
    assert!(!file.exists());
    block(run(&grant(), bash(&script), &[], |_| {})).unwrap();
    assert!(file.exists(), "control: the right grant runs it");
}

#[test]
fn codes_and_signals_are_what_they_are() {
    let _turn = TURN.read();
    assert_eq!(run_it(bash("exit 3")).0.ended, Ended::Exit(3));
    assert_eq!(run_it(bash("exit 143")).0.ended, Ended::Exit(143));
    assert_eq!(run_it(bash("kill -TERM $$")).0.ended, Ended::Signal("TERM".into()));
    assert_eq!(run_it(bash("kill -SEGV $$")).0.ended, Ended::Signal("SEGV".into()));
}

#[test]
fn what_stays_in_the_background_holds_nobody_and_lives_on() {
    let _turn = TURN.read();
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("pid");
    for script in [
        "sleep 60 & echo $! >FILE",
        "setsid sh -c 'echo $$ >FILE; exec sleep 60' & sleep 0.1",
        "sleep 60 >/dev/null 2>&1 & echo $! >FILE",
        "yes >&2 & echo $! >FILE",
    ] {
        let script = &script.replace("FILE", file.to_str().unwrap());
        block(async {
            let started = Instant::now();
            let output = run(&grant(), bash(script), &[], |_| {}).await.unwrap();
            let took = started.elapsed();
            assert_eq!(output.ended, Ended::Exit(0), "{script}");
            assert!(took < Duration::from_secs(2), "{script} took {took:?}");
            assert!(output.left_running, "{script}");
            let pid = std::fs::read_to_string(&file).unwrap().trim().to_owned();
            // A chatty one must find its pipe neither full for good nor broken.
            tokio::time::sleep(Duration::from_millis(100)).await;
            assert!(lives(&pid), "{script}: {pid}");
            kill(&pid);
        });
    }
    assert!(!run_it(bash("true & wait")).0.left_running, "control");
}

#[test]
fn a_time_limit_ends_the_whole_tree() {
    let _turn = TURN.read();
    let place = tempfile::tempdir().unwrap();
    let pids = place.path().join("pids");
    let script = format!(
        "exec 5>>{0}; trap '' TERM; echo $$ >&5
         (trap '' TERM; echo $BASHPID >&5; while :; do sleep 300; done) &
         setsid bash -c 'trap \"\" TERM; echo $$ >&5; while :; do sleep 300; done' &
         for i in 1 2 3 4 5 6 7 8; do (setsid bash -c 'echo $$ >&5; sleep 300' & ); done
         sleep 300",
        pids.display()
    );
    let (output, took) = run_it(Command { timeout: Duration::from_secs(2), ..bash(&script) });
    assert_eq!(output.ended, Ended::TimedOut);
    assert!(took < Duration::from_secs(8), "{took:?}");
    let pids = std::fs::read_to_string(pids).unwrap();
    assert_eq!(pids.lines().count(), 11, "control: all had started: {pids}");
    for pid in pids.lines() {
        assert!(!lives(pid), "{pid} lives");
    }
}

#[test]
fn a_polite_command_has_time_to_clean_up() {
    let _turn = TURN.read();
    let script = "trap 'echo cleaned; exit 7' TERM; echo ready; while :; do sleep 0.05; done";
    let (output, took) = run_it(Command { timeout: Duration::from_millis(400), ..bash(script) });
    assert_eq!(output.ended, Ended::TimedOut);
    let shown = text(&output);
    assert!(shown.starts_with("ready\n") && shown.ends_with("cleaned\n"), "{shown}");
    assert_eq!(shown.matches("cleaned").count(), 1, "TERM came once");
    assert!(took < Duration::from_secs(5), "{took:?}");
}

#[test]
fn dropping_the_call_ends_the_tree_within_a_tenth_of_a_second() {
    let _turn = TURN.read();
    // A busy machine may hold up one of them; the promise is about kli's own part.
    let quickest = (0..4).map(|_| time_to_drop()).min().unwrap();
    assert!(quickest < Duration::from_millis(100), "{quickest:?}");
}

/// Drops a call with a tree that ignores TERM, checks that nothing of it lives, and returns how long
/// the drop took.
fn time_to_drop() -> Duration {
    let seen = Arc::new(Mutex::new(String::new()));
    let (live, watched) = (Arc::clone(&seen), Arc::clone(&seen));
    let took = block(async move {
        let script = "trap '' TERM; echo $$; setsid bash -c 'trap \"\" TERM; echo $$; sleep 60' &
            (trap '' TERM; echo $BASHPID; sleep 60)";
        let grant = grant();
        let call = run(&grant, bash(script), &[], move |bytes| {
            live.lock().unwrap().push_str(std::str::from_utf8(bytes).unwrap());
        });
        let mut call = Box::pin(call);
        while watched.lock().unwrap().lines().count() < 3 {
            let waited = tokio::time::timeout(Duration::from_millis(20), &mut call).await;
            assert!(waited.is_err());
        }
        let started = Instant::now();
        drop(call);
        started.elapsed()
    });
    let pids = seen.lock().unwrap().clone();
    assert_eq!(pids.lines().count(), 3, "control: all three had started: {pids}");
    for pid in pids.lines() {
        assert!(dies_within(pid, Duration::from_millis(20)), "{pid} lives");
    }
    took
}

#[test]
fn another_calls_background_survives_a_time_limit_and_the_end_of_the_run_takes_it() {
    let _turn = TURN.write();
    let (output, _) = run_it(bash("(setsid env -i sleep 60 & echo $!) ; sleep 60 & echo $!"));
    let shown = text(&output);
    std::thread::sleep(Duration::from_millis(100));
    let last = shown.lines().last().unwrap().to_owned();
    let _ended = run_it(Command { timeout: Duration::from_millis(200), ..bash("sleep 50") });
    assert!(lives(&last), "it belongs to another call");
    assert_eq!(reap_all(), Ok(()));
    for pid in shown.lines() {
        assert!(!lives(pid), "{pid} lives");
    }
    // Not even a zombie is left of it.
    assert!(!std::path::Path::new(&format!("/proc/{last}")).exists());
}

#[test]
fn a_flood_is_counted_and_memory_stays_bounded() {
    let _turn = TURN.read();
    let before = resident();
    let (output, _) = run_it(bash("yes | head -c 300M"));
    let kept = &output.kept;
    assert_eq!((kept.head.len(), kept.tail.len()), (20_000, 10_000));
    assert_eq!(kept.missing, 300 * 1024 * 1024 - 30_000);
    assert_eq!(output.ended, Ended::Exit(0));
    let grown = resident().saturating_sub(before);
    // Little beside the 300 MiB: what is kept, and the pages of the program itself.
    assert!(grown < 32 * 1024, "{grown} KiB more");
}

/// The peak of this process's resident memory, in KiB.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[test]
fn both_streams_come_in_order_and_neither_blocks_the_other() {
    let _turn = TURN.read();
    let (output, _) = run_it(bash("for i in 1 2 3 4 5; do echo o$i; echo e$i >&2; done"));
    assert_eq!(text(&output), "o1\ne1\no2\ne2\no3\ne3\no4\ne4\no5\ne5\n");
    let (output, _) = run_it(bash("head -c 1M /dev/zero >&2; echo end"));
    assert!(output.kept.tail.ends_with(b"end\n"));
    assert_eq!(output.kept.missing, 1024 * 1024 + 4 - 30_000);
}

#[test]
fn a_child_has_no_terminal_and_nothing_to_read() {
    let _turn = TURN.read();
    let (output, took) = run_it(bash("cat; cat </dev/tty; ps -o tty= -p $$ || true"));
    assert!(text(&output).contains("/dev/tty: No such device or address"), "{}", text(&output));
    assert!(took < Duration::from_secs(5));
    let (output, _) = run_it(Command { input: Some(b"a\nb".to_vec()), ..bash("cat; echo '|'") });
    assert_eq!(text(&output), "a\nb|\n");
    // A command that does not read a long input ends all the same.
    let long = vec![b'x'; 4 << 20];
    let (output, _) = run_it(Command { input: Some(long), ..bash("exit 4") });
    assert_eq!(output.ended, Ended::Exit(4));
}

#[test]
fn what_cannot_start_is_named() {
    let _turn = TURN.read();
    let refused = |command| block(run(&grant(), command, &[], |_| {})).unwrap_err().to_string();
    let missing = refused(Command { program: "no-such-shell".into(), ..bash("true") });
    assert!(missing.starts_with("`no-such-shell` cannot be started: No such file"), "{missing}");
    let missing = refused(Command { cwd: "/no/such".into(), ..bash("true") });
    assert!(missing.starts_with("the directory `/no/such` cannot be entered: No such"));
    let file = refused(Command { cwd: "/proc/version".into(), ..bash("true") });
    assert!(file.contains("`/proc/version` cannot be entered: not a directory"), "{file}");
    let long = refused(bash(&"x".repeat(LONGEST_ARGUMENT + 1)));
    assert!(long.starts_with("the command is 131072 bytes long"), "{long}");
    let longest = format!("#{}", "x".repeat(LONGEST_ARGUMENT - 1));
    assert_eq!(run_it(bash(&longest)).0.ended, Ended::Exit(0), "control: one less is taken");
}

#[test]
fn a_slip_is_read_and_written_by_the_command() {
    let _turn = TURN.read();
    let given = Slip::new("given").unwrap();
    let back = Slip::new("").unwrap();
    let script =
        format!("cat {}; echo back >&{}; exec 3>/dev/null", given.path().display(), back.number());
    let output = block(run(&grant(), bash(&script), &[&given, &back], |_| {})).unwrap();
    assert_eq!(text(&output), "given");
    assert_eq!(back.read(100).unwrap(), b"back\n");
    assert_eq!(back.read(3).unwrap(), b"bac");
    // Without being handed down it is not there.
    let (output, _) = run_it(bash(&script));
    assert!(text(&output).contains("Bad file descriptor"), "{}", text(&output));
}
