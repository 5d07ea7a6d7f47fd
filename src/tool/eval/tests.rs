//! Forms through the tool, in a stage without a run's desk; calls through the desk are tested in
//! whole runs.

#![expect(clippy::disallowed_methods, reason = "a test runs its other half in another process")]

use std::{
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use serde_json::json;

use super::*;
use crate::tool::stage::Stage;

fn eval(stage: &Stage, form: &str) -> Outcome {
    stage.call(&Eval, &json!({ "form": form }))
}

#[track_caller]
fn gives(stage: &Stage, form: &str, wanted: &str) {
    let outcome = eval(stage, form);
    assert!(!outcome.is_error && outcome.text == wanted, "{form}: {}", outcome.text);
}

#[track_caller]
fn fails(stage: &Stage, form: &str, part: &str) -> String {
    let outcome = eval(stage, form);
    assert!(outcome.is_error && outcome.text.contains(part), "{form}: {}", outcome.text);
    outcome.text
}

#[test]
fn a_session_has_the_language_and_keeps_definitions() {
    let stage = Stage::new();
    for (form, wanted) in [
        ("(+ 1 2)", "=> 3"),
        ("(define (f x) (* x 2))", "(no value)"),
        ("(map f '(1 2 3))", "=> (2 4 6)"),
        ("(display \"hi\") (newline) (write \"hi\") 5", "hi\n\"hi\"\n=> 5"),
        ("(let loop ((i 0)) (if (< i 100000) (loop (+ i 1)) i))", "=> 100000"),
        ("(with-handler (lambda (e) 'caught) (error \"bad\" 1))", "=> caught"),
        ("(sort '(3 1 2) <)", "=> (1 2 3)"),
        ("(hash-ref (hash 'a 1) 'a)", "=> 1"),
        ("(vector->list (vector 1 2))", "=> (1 2)"),
        ("`(1 ,(+ 1 1) ,@(list 3))", "=> (1 2 3)"),
        ("(call/cc (lambda (k) (+ 1 (k 5))))", "=> 5"),
        ("(do ((i 0 (+ i 1))) ((= i 3) i))", "=> 3"),
        ("(force (delay 5))", "=> 5"),
        ("(define-syntax twice (syntax-rules () ((_ a) (list a a)))) (twice 1)", "=> (1 1)"),
        ("(string-lines \"a\\nb\")", "=> (\"a\" \"b\")"),
        ("(hash-ref (string->jsexpr \"{\\\"a\\\": \\\"b\\\"}\") 'a)", "=> \"b\""),
        ("(f 21)", "=> 42"),
    ] {
        gives(&stage, form, wanted);
    }
    for (form, part) in [
        ("(car 5)", "car expected a list or pair"),
        ("(error \"bad\" 1)", "bad 1"),
        ("undefined-name", "undefined-name"),
        ("(", "Unexpected EOF"),
        (")", "error"),
        ("(read-file)", "error"),
        ("(read-file \"a\")", "nobody who decides"),
    ] {
        fails(&stage, form, part);
    }
    gives(&stage, "(f 4)", "=> 8");
}

/// Names of powers that the engine has elsewhere. Each is tried; none is there.
#[test]
fn nothing_ambient_is_there() {
    let stage = Stage::new();
    stage.put("secret.scm", "(define stolen 1)");
    let path = stage.path("secret.scm").display().to_string();
    for form in [
        format!("(load \"{path}\")"),
        format!("(require \"{path}\")"),
        "(require-builtin steel/filesystem)".to_owned(),
        "(require \"steel/sync\")".to_owned(),
        "(require (for-syntax \"x\"))".to_owned(),
        "'(a . (require))".to_owned(),
        "(define-syntax r (syntax-rules () ((_ x) (require x))))".to_owned(),
        "(define-syntax r (syntax-rules () ((_ x) ((datum->syntax re quire) x))))".to_owned(),
        "%-builtin-module-steel/process".to_owned(),
        "(#%require-dylib \"x\")".to_owned(),
    ] {
        fails(&stage, &form, "is not part of a session");
    }
    for name in [
        "open-input-file",
        "open-output-file",
        "file-metadata",
        "delete-file!",
        "create-directory!",
        "read-dir",
        "path-exists?",
        "current-directory",
        "change-current-directory!",
        "canonicalize-path",
        "command",
        "spawn-process",
        "wait",
        "which",
        "env-var",
        "maybe-get-env-var",
        "set-env-var!",
        "command-line",
        "eval",
        "eval!",
        "eval-string",
        "run!",
        "Engine::new",
        "expand!",
        "read!",
        "emit-expanded",
        "load-expanded",
        "spawn-native-thread",
        "thread-join!",
        "time/sleep-ms",
        "channels/new",
        "mutex",
        "make-will-executor",
        "stdin",
        "stdout",
        "read-to-string",
        "stdout-simple-displayln",
        "memory-address",
        "debug-globals",
        "breakpoint!",
        "tcp-connect",
        "get",
        "http-get",
        "#%get-dylib",
        "#%build-dylib",
        "steel-home-location",
        "set-test-mode!",
        "deserialize-value",
        "bytes->serialized",
        "local-time/now!",
        "open-input-string",
        "#%default-output-port",
        "block-on",
        "poll!",
        "git-clone",
        "#%prim.env-var",
        "#%prim.eval",
        "#%prim.open-input-file",
        "#%prim.command",
        "#%prim.load",
    ] {
        fails(&stage, name, "Cannot reference an identifier before its definition");
    }
    // What a bare engine brings is a name without anything behind it.
    for name in ["#%module", "%module-get%", "load-from-module!", "%string->render-markdown"] {
        fails(&stage, &format!("({name} \"x\")"), "not a procedure");
    }
    fails(&stage, "stolen", "stolen");
    // Control: the way that is there.
    gives(&stage, "(function? read-file)", "=> #true");
    assert_eq!(stage.names(), ["secret.scm"]);
}

#[test]
fn the_names_of_a_session_are_the_committed_ones() {
    let names = std::thread::spawn(|| {
        let engine = engine::start().unwrap();
        let mut names: Vec<String> =
            engine.globals().iter().map(|name| name.resolve().to_owned()).collect();
        // The compiler numbers what it moves out of a function; the numbers differ from run to run.
        names.retain(|name| !name.starts_with("##__lifted_pure_function"));
        names.sort();
        names.dedup();
        names
    });
    let names = names.join().unwrap();
    let text = names.join("\n") + "\n";
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/src/tool/eval/names.txt");
    if crate::host::environment::Environment::read().var("KLI_UPDATE_DOCS").is_some() {
        write_names(file, &text);
    }
    assert!(names.len() > 300, "control: {}", names.len());
    assert_eq!(text, include_str!("names.txt"), "a session knows other names than names.txt lists");
    // A word on the list of what is allowed that the engine does not have is a slip.
    let missing: Vec<&str> = globals::ALLOWED
        .split_whitespace()
        .filter(|name| names.binary_search_by(|known| known.as_str().cmp(name)).is_err())
        .collect();
    assert_eq!(missing, [""; 0]);
}

#[expect(clippy::disallowed_methods, reason = "the list is part of the source")]
fn write_names(file: &str, text: &str) {
    std::fs::write(file, text).unwrap();
}

/// Each ends alone; the next form works, and what is gone is said.
#[test]
fn a_form_that_breaks_ends_alone() {
    let stage = Stage::new();
    gives(&stage, "(define kept 7)", "(no value)");
    // Scheme recursion without an end.
    let text = fails(&stage, "(define (g x) (+ 1 (g x))) (g 1)", "held more than 256 MiB");
    assert!(text.contains("definitions are gone"), "{text}");
    fails(&stage, "kept", "kept");
    // Values without an end.
    fails(&stage, "(let loop ((x (list 1))) (loop (append x x)))", "session");
    gives(&stage, "(+ 1 1)", "=> 2");
    fails(
        &stage,
        "(let loop ((all '())) (loop (cons (make-vector 100000 0) all)))",
        "more than 256 MiB",
    );
    gives(&stage, "(define kept 8) kept", "=> 8");
    // Nested text.
    let deep = format!("{}1{}", "(list ".repeat(600), ")".repeat(600));
    fails(&stage, &deep, "nests deeper");
    fails(&stage, &format!("{}1", "'".repeat(600)), "nests deeper");
    fails(&stage, &format!("\"{}\"", "x".repeat(300_000)), "at most 262144 are taken");
    gives(&stage, "kept", "=> 8");
    // A macro that expands for ever.
    let outcome = eval(&stage, "(define-syntax m (syntax-rules () ((_ x) (m (x))))) (m 1)");
    assert!(outcome.is_error, "{}", outcome.text);
    gives(&stage, "(+ 1 1)", "=> 2");
}

#[test]
fn native_recursion_and_a_single_huge_request_lose_the_session_and_not_the_process() {
    let stage = Stage::new();
    gives(&stage, "(define kept 7)", "(no value)");
    let nest = "(let loop ((i 0) (x '())) (if (< i 1000000) (loop (+ i 1) (list x)) (hash x 1)))";
    let text = fails(&stage, nest, "");
    assert!(text.contains("definitions are gone"), "{text}");
    gives(&stage, "(+ 1 1)", "=> 2");
    let text = fails(&stage, "(make-vector 2000000000 0)", "");
    assert!(text.contains("definitions are gone"), "{text}");
    gives(&stage, "(+ 1 1)", "=> 2");
}

#[test]
fn lost_sessions_are_counted() {
    let stage = Stage::new();
    for _ in 0..MOST_LOST {
        let text = fails(&stage, "(make-vector 2000000000 0)", "more memory");
        assert!(text.contains("the session is lost"), "{text}");
    }
    for _ in 0..2 {
        assert_eq!(
            fails(&stage, "(+ 1 1)", ""),
            "eval is closed: 3 sessions were lost to forms that could not be stopped, and their \
             threads are still there; go on without it"
        );
    }
}

/// A thread that was only slow ends after all.
#[test]
fn a_lost_session_counts_as_long_as_its_thread_is_there() {
    let stage = Stage::new();
    let mut threads: Vec<Arc<()>> = (0..MOST_LOST).map(|_| Arc::default()).collect();
    stage.context.state.eval.lock().lost.extend(threads.iter().map(Arc::downgrade));
    fails(&stage, "(+ 1 1)", "eval is closed");
    threads.pop();
    gives(&stage, "(+ 1 1)", "=> 2");
    assert_eq!(stage.context.state.eval.lock().lost.len(), MOST_LOST - 1);
}

#[test]
fn a_runaway_is_stopped_in_time_and_the_session_stays() {
    let stage = Stage::new();
    gives(&stage, "(define kept 7)", "(no value)");
    let start = Instant::now();
    let form = json!({ "form": "(let loop () (loop))", "timeout": 1 });
    let outcome = stage.call(&Eval, &form);
    let took = start.elapsed();
    assert!(outcome.is_error && outcome.text.contains("longer than 1 s"), "{}", outcome.text);
    assert_eq!(outcome.record["timedOut"], true);
    assert!(took >= Duration::from_secs(1), "{took:?}");
    gives(&stage, "kept", "=> 7");
}

#[test]
fn output_is_cut_and_bounded() {
    let stage = Stage::new();
    let form = "(do ((i 0 (+ i 1))) ((= i 20000) 'end) (displayln \"0123456789\"))";
    let outcome = eval(&stage, form);
    assert!(!outcome.is_error && outcome.text.len() < 32_000, "{}", outcome.text.len());
    assert!(outcome.text.contains("read_result") && outcome.text.ends_with("=> end"));
    let form = "(define s (make-string 1000000 #\\x)) (let loop () (display s) (loop))";
    fails(&stage, form, "may print 8 MiB");
    gives(&stage, "(string-length s)", "=> 1000000");
}

#[test]
fn arguments_are_read_with_sentences() {
    let stage = Stage::new();
    for (arguments, part) in [
        (json!({}), "`form` is missing"),
        (json!({ "form": " " }), "`form` is empty"),
        (json!({ "form": "1", "timeout": 0 }), "`timeout` must be a whole number from 1 on"),
        (json!({ "form": "1", "where": 0 }), "unknown argument `where`"),
    ] {
        let text = stage.refused(&Eval, &arguments);
        assert!(text.contains(part), "{text}");
    }
}

/// The engine's reader calls itself for each comment that it passes over, and runs on a small stack
/// in places.
#[test]
fn a_form_of_comments_is_refused_and_a_commented_one_is_read() {
    let stage = Stage::new();
    fails(&stage, &format!("{}1", ";\n".repeat(120_000)), "comments follow one another");
    fails(&stage, &format!("{}1", "#||#".repeat(60_000)), "comments follow one another");
    gives(&stage, &format!("{}1", ";\n".repeat(1_900)), "=> 1");
    gives(&stage, &format!("(begin {})", ";\n1 ".repeat(4_000)), "=> 1");
    // A word that is refused does not hide behind a comment.
    fails(&stage, ";\n#| |# (require \"x\")", "is not part of a session");
}

/// Begins a form and gives it up after a while, as an interrupt does.
fn give_up(stage: &Stage, form: &str, after: Duration) {
    let invocation = stage.prepare(&Eval, &json!({ "form": form })).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let outcome = stage.admitted(invocation);
        assert!(tokio::time::timeout(after, outcome).await.is_err(), "{form} ended by itself");
    });
}

#[test]
fn an_interrupt_stops_the_form_and_the_session_stays() {
    let stage = Stage::new();
    gives(&stage, "(define kept 7)", "(no value)");
    for after in [0, 1, 5, 200] {
        give_up(&stage, "(let loop () (loop))", Duration::from_millis(after));
        let start = Instant::now();
        gives(&stage, "kept", "=> 7");
        assert!(start.elapsed() < Duration::from_millis(900), "{after}: {:?}", start.elapsed());
    }
    // One that cannot be stopped is counted as lost, and the next form is not kept waiting for it.
    give_up(&stage, "(expt 7 100000000)", Duration::from_millis(300));
    let start = Instant::now();
    fails(&stage, "kept", "kept");
    assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
    assert_eq!(stage.context.state.eval.lock().lost.len(), 1);
}

/// The test below, which leaves a lock held for good: its inner half runs in a process of its own.
const HELD: &str =
    "tool::eval::tests::a_lock_that_a_lost_session_holds_stops_sessions_and_nothing_else";

#[test]
fn a_lock_that_a_lost_session_holds_stops_sessions_and_nothing_else() {
    if std::env::var_os("KLI_TEST_HELD").is_some() {
        return inner_of_held();
    }
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", HELD, "--nocapture"]).env("KLI_TEST_HELD", "1");
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let last = Instant::now() + Duration::from_mins(1);
    let status = loop {
        match child.try_wait().unwrap() {
            Some(status) => break Some(status),
            None if Instant::now() > last => break None,
            None => std::thread::sleep(Duration::from_millis(20)),
        }
    };
    child.kill().unwrap();
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let status = status.unwrap_or_else(|| panic!("the run waits for the lock itself: {text}"));
    assert!(status.success() && text.contains("1 passed"), "{text}");
}

fn inner_of_held() {
    let stage = Stage::new();
    gives(&stage, "(define kept 7)", "(no value)");
    hold_the_table();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    // Words that nobody has said yet, for each part of the table.
    let words =
        (0..500).map(|number| format!("'never-said-{number} ")).collect::<Vec<_>>().concat();
    let form = json!({ "form": format!("(list {words})"), "timeout": 1 });
    let invocation = stage.prepare(&Eval, &form).unwrap();
    let mut longest = Duration::ZERO;
    let outcome = runtime.block_on(async {
        let others = async {
            loop {
                let before = Instant::now();
                sleep(Duration::from_millis(10)).await;
                longest = longest.max(before.elapsed());
            }
        };
        tokio::select! {
            outcome = stage.admitted(invocation) => outcome,
            () = others => unreachable!(),
        }
    });
    assert!(outcome.is_error && outcome.text.contains("the session is lost"), "{}", outcome.text);
    assert!(longest > Duration::ZERO && longest < Duration::from_secs(1), "{longest:?}");
    // No other engine starts either; one that is given up before it has is counted all the same.
    let lost = || stage.context.state.eval.lock().lost.len();
    for number in 1..MOST_LOST {
        assert_eq!(lost(), number);
        let start = Instant::now();
        give_up(&stage, "(+ 1 1)", Duration::from_millis(300));
        assert!(start.elapsed() < Duration::from_secs(2), "{:?}", start.elapsed());
    }
    fails(&stage, "(+ 1 1)", "eval is closed");
}

/// Leaves a lock of the engine's table of words held for good, as a session does that is frozen in the
/// middle of taking a word in.
fn hold_the_table() {
    use std::io::Write as _;

    use steel::parser::interner::InternedString;

    let bounds = Bounds::new(1 << 20, 4 << 20);
    let own = Arc::clone(&bounds);
    std::thread::Builder::new()
        .stack_size(8 << 20)
        .spawn(move || {
            own.enter(8 << 20);
            // All memory that is asked for here is asked for by the table, under its lock.
            let mut word = [0_u8; 20];
            for number in 0_u64.. {
                write!(&mut word[..], "{number:020}").unwrap();
                let _word: InternedString = str::from_utf8(&word).unwrap().into();
            }
        })
        .unwrap();
    let last = Instant::now() + Duration::from_secs(20);
    while bounds.frozen() != Some(Frozen::Memory) {
        assert!(Instant::now() < last, "the table grows without memory");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn memory_that_is_given_back_on_a_full_stack_freezes_before_the_end() {
    use std::sync::atomic::{AtomicUsize, Ordering};
    const STACK: usize = 8 << 20;
    static LOWEST: AtomicUsize = AtomicUsize::new(usize::MAX);
    static TOP: AtomicUsize = AtomicUsize::new(0);

    fn fall(mut texts: Vec<String>) -> usize {
        let here = [0_u8; 512];
        let at = std::hint::black_box(&here).as_ptr().addr();
        LOWEST.store(at, Ordering::Relaxed);
        if texts.pop().is_none() {
            return 0;
        }
        fall(texts).wrapping_add(at)
    }

    let bounds = Bounds::new(u32::MAX, u32::MAX);
    let own = Arc::clone(&bounds);
    let texts: Vec<String> = (0..100_000).map(|n| n.to_string()).collect();
    let _never_ends = std::thread::Builder::new().stack_size(STACK).spawn(move || {
        TOP.store((&raw const texts).addr(), Ordering::Relaxed);
        own.enter(STACK);
        fall(texts)
    });
    let start = Instant::now();
    while bounds.frozen().is_none() && start.elapsed() < Duration::from_secs(20) {
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(bounds.frozen(), Some(Frozen::Stack));
    let used = TOP.load(Ordering::Relaxed) - LOWEST.load(Ordering::Relaxed);
    assert!(used < STACK - (900 << 10), "{used} bytes were used");
    assert!(used > STACK / 2, "control: {used}");
}
