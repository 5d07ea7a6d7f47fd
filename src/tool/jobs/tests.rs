#![expect(clippy::disallowed_methods, reason = "tests look at what is left")]

use super::*;

use crate::{
    authority::{Constraint, Narrowing, Source, Subject},
    host::process::tests::{TURN, lives},
    tool::{shell::Bash, stage::Stage},
};

/// A run: calls share a runtime, and jobs last as long as it does.
struct Run {
    stage: Stage,
    runtime: tokio::runtime::Runtime,
    subject: Subject,
}

impl Run {
    fn new() -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        Self { stage: Stage::new(), runtime, subject: Subject::new([]) }
    }

    fn call(&self, tool: &dyn Tool, arguments: &Value) -> Outcome {
        let invocation = match tool.prepare(arguments.as_object().unwrap(), &self.stage.context) {
            Ok(invocation) => invocation,
            Err(sentence) => return Outcome::error(sentence),
        };
        let checked = invocation.requests().into_iter().map(|r| self.subject.check(r)).collect();
        let grants: Vec<Grant> = match checked {
            Ok(grants) => grants,
            Err(denial) => {
                let denial: Box<crate::authority::Denial> = denial;
                return Outcome::error(denial.to_string());
            }
        };
        self.runtime.block_on(invocation.run(grants, Arc::new(|_| {})))
    }

    fn start(&self, line: &str) -> Outcome {
        self.call(&Bash, &json!({"command": line, "background": true}))
    }

    fn ask(&self, action: &str, job: &str) -> Outcome {
        self.call(&BashJobs, &json!({"action": action, "job": job}))
    }

    /// Lets the run go on for a while.
    fn pass(&self, milliseconds: u64) {
        self.runtime.block_on(async move {
            tokio::time::sleep(Duration::from_millis(milliseconds)).await;
        });
    }

    fn ended(&self, job: &str) -> Outcome {
        for _ in 0..500 {
            let outcome = self.ask("output", job);
            if outcome.record["running"] == false {
                return outcome;
            }
            self.pass(10);
        }
        panic!("{job} does not end");
    }
}

#[test]
fn a_job_starts_at_once_tells_what_is_new_and_how_it_ended() {
    let _turn = TURN.read();
    let run = Run::new();
    let started = Instant::now();
    let first = run.start("echo one; sleep 1; echo two >&2; exit 3");
    assert!(started.elapsed() < Duration::from_millis(900), "{:?}", started.elapsed());
    assert!(first.text.starts_with("[job `j1` was started]\none\n[job `j1`: running for 0 s;"));
    assert!(!first.is_error && first.record["running"] == true);
    let nothing = run.ask("output", "j1");
    assert!(nothing.text.starts_with("(no new output)\n[job `j1`: running"), "{}", nothing.text);
    let end = run.ended("`j1`");
    assert!(end.text.contains("[job `j1`: exit status 3;"), "{}", end.text);
    assert!(end.is_error && end.record["exit"] == 3);
    let quick = run.start("echo quick");
    assert!(quick.text.contains("quick\n[job `j2`: exit status 0;"), "{}", quick.text);
    let list = run.ask("list", "").text;
    assert!(list.contains("j1  exit status 3  echo one; sleep 1") && list.contains("\nj2  exit"));
}

#[test]
fn nothing_is_lost_or_told_twice_and_the_whole_can_be_paged() {
    let _turn = TURN.read();
    let run = Run::new();
    run.start(
        "for i in 1 2 3 4 5 6; do printf 'l%s\\xe2\\x9c' $i; sleep 0.1; printf '\\x93\\n'; done",
    );
    let mut heard = String::new();
    let mut last = String::new();
    for _ in 0..200 {
        let outcome = run.ask("output", "j1");
        let output = outcome.text.rsplit_once("\n[job").unwrap().0.to_owned();
        if output != "(no new output)" {
            heard.push_str(&output);
        }
        if outcome.record["running"] == false {
            last = outcome.record["handle"].as_str().unwrap().to_owned();
            break;
        }
        run.pass(37);
    }
    // The line ends between two looks are not shown twice either: compared without them.
    let flat = |text: &str| text.replace('\n', "");
    let first = "l1✓l2✓l3✓l4✓l5✓l6✓";
    assert!(first.ends_with(&flat(&heard)) && !heard.contains('\u{fffd}'), "{heard:?}");
    let whole = run.call(&crate::tool::result::ReadResult, &json!({ "handle": last }));
    assert!(whole.text.starts_with("1|l1✓\n2|l2✓\n"), "{}", whole.text);
}

#[test]
fn a_chatty_job_takes_bounded_memory_and_its_end_is_shown() {
    let _turn = TURN.read();
    let run = Run::new();
    let end = run.start("sleep 0.5; yes | head -c 80M; echo end");
    assert!(end.record["running"] == true);
    let end = run.runtime.block_on(async {
        let entry = run.stage.context.state.jobs.find("j1").unwrap();
        entry.job.wait(Duration::from_secs(20)).await;
        entry.show()
    });
    assert!(end.text.len() < cut::BUDGET + 500);
    assert!(end.text.contains("y\nend\n[job `j1`: exit status 0;"), "{}", &end.text[29_000..]);
    assert!(end.text.contains("only the first 67108864 of"), "the file is bounded too");
}

#[test]
fn a_job_is_ended_with_all_that_it_started() {
    let _turn = TURN.read();
    let run = Run::new();
    let first = run.start("trap '' TERM; echo $$; setsid sleep 300 & echo $!; wait");
    run.pass(100);
    let pids: Vec<String> =
        first.text.lines().filter(|l| l.parse::<i32>().is_ok()).map(str::to_owned).collect();
    assert_eq!(pids.len(), 2, "{}", first.text);
    assert!(pids.iter().all(|pid| lives(pid)), "control: both run");
    let killed = run.ask("kill", "j1");
    assert!(!killed.is_error);
    assert!(killed.text.contains("[job `j1`: ended on request"), "{}", killed.text);
    assert!(!pids.iter().any(|pid| lives(pid)));
    let again = run.ask("kill", "j1");
    assert!(again.text.contains("ended on request"), "{}", again.text);
}

#[test]
fn a_time_limit_counts_and_without_one_there_is_none() {
    let _turn = TURN.read();
    let run = Run::new();
    run.call(&Bash, &json!({"command": "sleep 60", "background": true, "timeout": 1}));
    let end = run.ended("j1");
    assert!(end.text.contains("[job `j1`: timed out"), "{}", end.text);
    assert!(end.is_error);
}

#[test]
fn jobs_end_when_the_run_ends_however_it_ends() {
    let _turn = TURN.read();
    let run = Run::new();
    let first = run.start("trap '' TERM; echo $$; setsid sleep 300 & echo $!; wait");
    run.pass(100);
    let pids: Vec<String> =
        first.text.lines().filter(|l| l.parse::<i32>().is_ok()).map(str::to_owned).collect();
    assert!(pids.len() == 2 && pids.iter().all(|pid| lives(pid)), "control: {}", first.text);
    // As when the thread unwinds: nothing but destructors runs.
    let unwound = std::panic::catch_unwind(std::panic::AssertUnwindSafe(move || {
        let _run = run;
        std::panic::resume_unwind(Box::new("gone"));
    }));
    assert!(unwound.is_err());
    // What was killed may take a moment to go on a busy machine.
    let gone = Instant::now();
    while pids.iter().any(|pid| lives(pid)) {
        assert!(gone.elapsed() < Duration::from_secs(1), "{pids:?} live");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn so_many_may_run_and_no_more() {
    let _turn = TURN.read();
    let run = Run::new();
    for _ in 0..MOST_RUNNING {
        let list = run.stage.context.state.jobs.list.lock().unwrap().entries.len();
        let call = run.start("sleep 300");
        assert!(!call.is_error, "{list}: {}", call.text);
    }
    let file = run.stage.path("made");
    let refused = run.start("touch made; sleep 300");
    assert!(refused.is_error && refused.text.starts_with("16 jobs run already"));
    assert!(!file.exists());
    run.ask("kill", "j3");
    assert!(!run.start("touch made; sleep 300").is_error);
    assert!(file.exists(), "control: with one less it starts");
}

#[test]
fn a_directory_change_in_the_background_does_not_last_and_that_is_said() {
    let _turn = TURN.read();
    let run = Run::new();
    std::fs::create_dir(run.stage.path("sub")).unwrap();
    let moved = run.start("cd sub && pwd");
    assert!(moved.text.contains("/ws/sub\n"), "control: {}", moved.text);
    assert!(moved.text.contains("a command in the background does not move it"), "{}", moved.text);
    let there = run.call(&Bash, &json!({"command": "pwd"})).text;
    assert!(there.starts_with(&format!("{}\n", run.stage.workspace.display())), "{there}");
}

#[test]
fn what_cannot_be_meant_is_a_sentence() {
    let _turn = TURN.read();
    let run = Run::new();
    assert_eq!(run.ask("list", "").text, "(no jobs)");
    let none = run.ask("output", "j1");
    assert!(none.is_error && none.text == "there is no job `j1`; this run has started none");
    run.start("true");
    assert!(run.ask("kill", "j9").text.ends_with("the jobs are `j1`"));
    let missing = run.call(&BashJobs, &json!({"action": "kill"}));
    assert_eq!(missing.text, "`job` is missing; `list` shows the jobs");
    assert!(run.ask("stop", "j1").text.contains("it can be `list`, `output` or `kill`"));
    let shell = run.call(&Bash, &json!({"command": "true", "background": true, "cwd": "no"}));
    assert!(shell.is_error);
}

#[test]
fn under_a_list_jobs_are_checked_like_calls_and_can_be_asked_about() {
    let _turn = TURN.read();
    let mut run = Run::new();
    let list = Constraint::commands([vec!["sleep".to_owned()]]);
    run.subject = Subject::new([(
        Source::UserSettings,
        Narrowing::Only {
            authority: crate::authority::Authority::of([(Atom::ProcessExec, list)]),
            named: vec![Atom::ProcessExec],
        },
    )]);
    let refused = run.start("touch made");
    assert!(refused.text.starts_with("denied: "), "{}", refused.text);
    assert!(!run.stage.path("made").exists());
    assert!(!run.start("sleep 300").is_error, "control: what is listed starts");
    assert!(run.ask("list", "").text.starts_with("j1  running"));
    assert!(run.ask("kill", "j1").text.contains("ended on request"));
    run.subject = Subject::new([(Source::UserSettings, Narrowing::Drop(vec![Atom::ProcessExec]))]);
    let denied = run.ask("list", "");
    assert!(denied.text.starts_with("denied: "), "{}", denied.text);
}
