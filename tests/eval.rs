//! The tool eval in whole runs of the built program: what a form may do, what it is refused, and that
//! a form which breaks ends alone.

use std::fs;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::{
    fake_model::{Answer, FakeModel, message, text, tool_use},
    harness::{Env, Ran, wait_for},
    jail::kill,
};

mod jailed;
mod keys;

fn form(id: &str, form: &str) -> Answer {
    form_within(id, form, 60)
}

fn form_within(id: &str, form: &str, seconds: u64) -> Answer {
    let arguments = json!({ "form": form, "timeout": seconds }).to_string();
    Answer::new(message([tool_use(id, "eval", &arguments)]))
}

/// Runs forms one after another; returns the run and each form's result with whether it failed.
fn run(env: Env, forms: &[&str], flags: &[&str]) -> (Env, Ran, Vec<(String, bool)>, Vec<Value>) {
    let mut script: Vec<Answer> =
        forms.iter().enumerate().map(|(at, text)| form(&format!("c{at}"), text)).collect();
    script.push(Answer::new(message([text("done")])));
    let model = FakeModel::strict(script);
    let env = env.at(&model.base_url());
    let ran = env.kli(&[&["-p", "go", "--output-format", "json"], flags].concat());
    let bodies = model.bodies();
    let results = bodies.iter().skip(1).map(last_result).collect();
    (env, ran, results, bodies)
}

fn last_result(body: &Value) -> (String, bool) {
    let last = body["messages"].as_array().unwrap().last().unwrap();
    let block = &last["content"][0];
    let content = &block["content"];
    let text = content.as_str().or_else(|| content[0]["text"].as_str()).unwrap();
    (text.to_owned(), block["is_error"] == true)
}

fn offered(body: &Value) -> Vec<&str> {
    // Without any tool there is no list.
    body["tools"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|tool| tool["name"].as_str().unwrap())
        .collect()
}

#[test]
fn procedures_do_what_the_tools_do_and_definitions_last() {
    let env = Env::new().var("GREETING", "hello");
    fs::write(env.work().join("a.txt"), "one\ntwo\n").unwrap();
    fs::write(env.work().join("old.txt"), "old").unwrap();
    fs::create_dir(env.work().join("sub")).unwrap();
    let forms = [
        ("(define text (read-file \"a.txt\"))", false, "(no value)"),
        ("(string-lines text)", false, "(\"one\" \"two\" \"\")"),
        ("(write-file \"sub/new.txt\" (string-upcase text))", false, "created"),
        ("(write-file \"old.txt\" \"x\")", true, "was not read in this run"),
        ("(read-file \"old.txt\") (write-file \"old.txt\" \"x\")", false, "replaced"),
        ("(list-directory \".\")", false, "(\"a.txt\" \"old.txt\" \"sub/\")"),
        ("(delete-file \"old.txt\") (file-exists? \"old.txt\")", false, "#false"),
        ("(file-exists? \"a.txt\")", false, "#true"),
        ("(delete-file \"sub\")", true, "is a directory"),
        ("(run \"printf\" \"%s|\" \"a b\" \"$HOME\" \"it's\")", false, "(0 \"a b|$HOME|it's|"),
        ("(car (run \"sh\" \"-c\" \"exit 3\"))", false, "=> 3"),
        ("(bash \"echo made > made.txt; echo shown\")", false, "shown"),
        ("(bash \"exit 4\")", true, "exit status 4"),
        ("(posix-getenv \"GREETING\")", false, "\"hello\""),
        ("(posix-getenv \"NOT_THERE\")", false, "=> #false"),
        ("(tool \"search\" \"pattern\" \"tw\" \"path\" \"a.txt\")", false, "two"),
        ("(tool \"nothing\")", true, "there is no tool `nothing`"),
        ("(tool \"eval\" \"form\" \"1\")", true, "cannot call eval"),
        ("(read-file \"absent\")", true, "no such file"),
        ("(with-handler (lambda (e) 'caught) (read-file \"absent\"))", false, "=> caught"),
        ("(read-file 5)", true, "takes texts"),
        ("text", false, "one\\ntwo"),
    ];
    let texts: Vec<&str> = forms.iter().map(|(form, ..)| *form).collect();
    let (env, ran, results, _) = run(env, &texts, &[]);
    for ((form, wrong, part), (text, is_error)) in forms.iter().zip(&results) {
        assert_eq!(is_error, wrong, "{form}: {text}");
        assert!(text.to_lowercase().contains(&part.to_lowercase()), "{form}: {text}");
    }
    assert_eq!(results.len(), forms.len());
    ran.exits(0);
    assert_eq!(fs::read_to_string(env.work().join("sub/new.txt")).unwrap(), "ONE\nTWO\n");
    assert!(!env.work().join("old.txt").exists());
    // Files that a form changed are told as a tool's are.
    let changed = ran.json()["changedFiles"].to_string();
    assert!(changed.contains("sub/new.txt") && changed.contains("old.txt"), "{changed}");
}

/// Every narrowing that takes away what eval implies takes eval.
#[test]
fn eval_is_refused_under_every_narrowing_that_removes_what_it_implies() {
    let bounded = r#"{ "capabilities": ["file/read", "file/write", "process/exec"] }"#;
    let partly = r#"{ "capabilities": ["tools/standard", "image/inspect"] }"#;
    let named = r#"{ "denyTools": ["eval"] }"#;
    let profile = r#"{ "profiles": { "p": { "extends": "print", "settings": { "capabilities": ["file/read"] } } } }"#;
    let cases: &[(&str, &[&str])] = &[
        ("{}", &["--read-only"]),
        ("{}", &["--no-eval"]),
        ("{}", &["--no-bash"]),
        ("{}", &["--profile", "read-only"]),
        ("{}", &["--profile", "review"]),
        ("{}", &["--capabilities", "file/read,process/exec"]),
        ("{}", &["--capabilities", ""]),
        (bounded, &[]),
        (partly, &[]),
        (named, &[]),
        (profile, &["--profile", "p"]),
    ];
    let write = "(write-file \"made.txt\" \"x\")";
    for (settings, flags) in cases {
        let env = Env::new();
        env.settings(settings);
        let (env, ran, results, bodies) = run(env, &[write], flags);
        let label = format!("{settings} {flags:?}: {ran:?}");
        ran.exits(3);
        assert!(!offered(&bodies[0]).contains(&"eval"), "{label}");
        let denied = ran.json()["denied"].clone();
        assert_eq!(denied.as_array().unwrap().len(), 1, "{label}");
        assert_eq!(
            (&denied[0]["tool"], &denied[0]["atom"]),
            (&json!("eval"), &json!("image/eval"))
        );
        assert!(results[0].1 && results[0].0.contains("nothing was done"), "{label}: {results:?}");
        assert!(!env.work().join("made.txt").exists(), "{label}");
    }
    // A policy that comes with the program, over settings that would give all.
    for policy in [
        r#"{ "capabilities": ["file/read", "file/write", "file/edit", "process/exec"] }"#,
        r#"{ "capabilities": ["image/inspect", { "atom": "file/write", "under": ["."] }] }"#,
        r#"{ "denyTools": ["eval"] }"#,
        r#"{ "approve": "writes" }"#,
        "{}",
    ] {
        let env = Env::new();
        env.settings(r#"{ "capabilities": "image/eval" }"#);
        let baked = env.home().join("baked");
        fs::create_dir(&baked).unwrap();
        fs::write(baked.join("settings.json"), "{}").unwrap();
        fs::write(baked.join("policy.json"), policy).unwrap();
        let env = env.var("KLI_BAKED", baked.to_str().unwrap());
        let (env, ran, results, _) = run(env, &[write], &["--capabilities", "image/eval"]);
        let is_free = policy == "{}";
        ran.exits(if is_free { 0 } else { 3 });
        assert_eq!(results[0].1, !is_free, "{policy}: {results:?}");
        assert_eq!(env.work().join("made.txt").exists(), is_free, "{policy}");
        assert_eq!(ran.json()["denied"].as_array().unwrap().is_empty(), is_free, "{policy}");
    }
    // The control: without a narrowing, and with one that leaves it.
    for flags in [&[][..], &["--capabilities", "image/eval"]] {
        let (env, ran, results, bodies) = run(Env::new(), &[write], flags);
        ran.exits(0);
        assert!(offered(&bodies[0]).contains(&"eval"), "{flags:?}: {results:?}");
        assert_eq!(fs::read_to_string(env.work().join("made.txt")).unwrap(), "x");
    }
}

#[test]
fn what_a_form_is_refused_is_an_error_of_the_form_and_listed_as_denied() {
    let env = Env::new();
    fs::write(env.work().join("kept.txt"), "kept").unwrap();
    env.settings(r#"{ "denyTools": ["write", "bash"] }"#);
    let forms = [
        "(write-file \"made.txt\" \"x\")",
        "(delete-file \"kept.txt\")",
        "(tool \"write\" \"path\" \"made.txt\" \"content\" \"x\")",
        "(run \"touch\" \"made.txt\")",
        "(with-handler (lambda (e) 'caught) (bash \"touch made.txt\"))",
        "(read-file \"kept.txt\")",
    ];
    let (env, ran, results, _) = run(env, &forms, &[]);
    ran.exits(3);
    for (form, (text, is_error)) in forms.iter().zip(&results).take(4) {
        assert!(*is_error && text.contains("nothing was done"), "{form}: {text}");
    }
    assert_eq!(
        results[4],
        ("=> caught".to_owned(), false),
        "a form may catch it; it is listed all the same"
    );
    assert_eq!(results[5], ("=> \"kept\"".to_owned(), false), "control");
    let result = ran.json();
    let denied: Vec<(&str, &str)> = result["denied"]
        .as_array()
        .unwrap()
        .iter()
        .map(|d| (d["tool"].as_str().unwrap(), d["atom"].as_str().unwrap()))
        .collect();
    let (write, bash) = (("write", "file/write"), ("bash", "process/exec"));
    assert_eq!(denied, [write, write, write, bash, bash]);
    assert_eq!(result["outcome"], "denied");
    assert_eq!(fs::read_to_string(env.work().join("kept.txt")).unwrap(), "kept");
    assert!(!env.work().join("made.txt").exists());
}

#[test]
fn a_form_gets_no_key_from_variables_nor_from_the_process() {
    const KEY: &str = "sk-key-of-the-provider-0123456789";
    let env = Env::new().var("ANTHROPIC_API_KEY", KEY).var("COPY_OF_IT", KEY).var("OPEN", "seen");
    let forms = [
        "(posix-getenv \"ANTHROPIC_API_KEY\")",
        "(posix-getenv \"COPY_OF_IT\")",
        "(posix-getenv \"OPEN\")",
        "(list->string (reverse (string->list (read-file \"/proc/self/environ\"))))",
        "(read-file \"/proc/self/mem\")",
        "(cadr (run \"sh\" \"-c\" \"tr '\\\\0' '\\\\n' < /proc/$PPID/environ\"))",
    ];
    let (env, ran, results, bodies) = run(env, &forms, &[]);
    ran.exits(0);
    assert_eq!(results[0].0, "=> #false");
    assert!(["=> #false", "=> \"…\""].iter().any(|it| results[1].0.starts_with(it)), "{results:?}");
    assert_eq!(results[2].0, "=> \"seen\"", "control");
    assert!(results[4].1, "{results:?}");
    let all = bodies.iter().map(Value::to_string).collect::<String>() + &ran.out + &ran.err;
    let turned: String = KEY.chars().rev().collect();
    assert!(!all.contains(KEY) && !all.contains(&turned), "{all}");
    let session = fs::read_to_string(&env.sessions()[0]).unwrap();
    assert!(!session.contains(KEY) && !session.contains(&turned));
}

/// What the engine prints by itself, and what it breaks, stays out of the result.
#[test]
fn a_form_that_breaks_leaves_standard_output_pure_and_the_run_going() {
    let forms = [
        "(define (f x) (+ 1 (f x))) (f 1)",
        "(+ 1 1)",
        "(let loop ((i 0) (x '())) (if (< i 1000000) (loop (+ i 1) (list x)) (hash x 1)))",
        "(display \"shown\") (make-vector 2000000000 0)",
        "(+ 20 22)",
    ];
    let (_env, ran, results, _) = run(Env::new(), &forms, &[]);
    ran.exits(0);
    assert_eq!(ran.json()["text"], "done");
    let failed: Vec<bool> = results.iter().map(|(_, failed)| *failed).collect();
    assert_eq!(failed, [true, false, true, true, false], "{results:?}");
    assert!(results[0].0.contains("definitions are gone"), "{results:?}");
    assert_eq!(results[4].0, "=> 42");
    assert!(!ran.err.contains("panicked") && !ran.err.contains("overflow"), "{}", ran.err);

    // Line by line, in the other format.
    let model = FakeModel::strict(vec![
        form("a", forms[0]),
        form("b", "(display \"}{\") (newline) (displayln \"{\")"),
        Answer::new(message([text("done")])),
    ]);
    let env = Env::new().at(&model.base_url());
    let ran = env.kli(&["-p", "go", "--output-format", "stream-json"]);
    ran.exits(0);
    let lines: Vec<Value> =
        ran.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.last().unwrap()["type"], "result");
    assert!(ran.out.contains("}{"), "control: what a form prints is in its result");
}

/// A sub-agent's forms are decided about by its own subject, in a session of its own.
#[test]
fn a_sub_agent_s_forms_have_its_authority() {
    let task = |id: &str, capabilities: &Value| {
        let arguments = json!({ "prompt": "part", "capabilities": capabilities }).to_string();
        Answer::new(message([tool_use(id, "task", &arguments)]))
    };
    let write = "(write-file \"made.txt\" \"x\")";
    for (capabilities, is_allowed) in [
        (json!("file/read,file/write"), false),
        (json!([{ "atom": "file/write", "under": ["."] }, "process/exec"]), false),
        (json!("image/eval"), true),
        (Value::Null, true),
    ] {
        let model = FakeModel::strict(vec![
            form("a", "(define mine 1)"),
            task("b", &capabilities),
            form("c", write),
            form("d", "mine"),
            form("e", "(tool \"task\" \"prompt\" \"more\")"),
            Answer::new(message([text("part done")])),
            form("f", "mine"),
            Answer::new(message([text("done")])),
        ]);
        let env = Env::new().at(&model.base_url());
        let ran = env.kli(&["-p", "go", "--output-format", "json"]);
        let label = format!("{capabilities}: {ran:?}");
        let bodies = model.bodies();
        assert_eq!(bodies.len(), 8, "{label}");
        assert_eq!(offered(&bodies[2]).contains(&"eval"), is_allowed, "{label}");
        assert_eq!(last_result(&bodies[3]).1, !is_allowed, "{label}");
        assert_eq!(env.work().join("made.txt").exists(), is_allowed, "{label}");
        assert!(last_result(&bodies[4]).1, "the parent's definitions are its own: {label}");
        let (said, is_error) = last_result(&bodies[5]);
        assert!(is_error && said.contains("nothing was done"), "{said}");
        assert_eq!(last_result(&bodies[7]), ("=> 1".to_owned(), false), "{label}");
        // The parent's own form succeeded under the atom that its child was refused.
        ran.exits(if is_allowed { 3 } else { 0 });
        let denied = ran.json()["denied"].clone();
        let atom = if is_allowed { "agent/spawn" } else { "image/eval" };
        assert_eq!(denied[0]["atom"], atom, "{label}");
    }
}

/// The launcher runs no forms, and its memory is the system's alone.
#[test]
fn the_launcher_is_without_the_counting_allocator() {
    let has = |program: &str| {
        let bytes = fs::read(program).unwrap();
        memchr::memmem::find(&bytes, b"host..bounds..Counted").is_some()
    };
    assert!(has(env!("CARGO_BIN_EXE_kli")), "control");
    assert!(!has(env!("CARGO_BIN_EXE_kli-sandbox")));
}

/// Descriptor 1 of the process leads nowhere, so no code inside can write between the lines.
#[test]
fn the_real_standard_output_is_out_of_reach() {
    let forms = ["(bash \"readlink /proc/$PPID/fd/1; (echo X > /proc/$PPID/fd/1); true\")"];
    let (_env, ran, results, _) = run(Env::new(), &forms, &[]);
    ran.exits(0);
    ran.json();
    // An ordinary user may not even look: the process is not dumpable.
    let text = &results[0].0;
    assert!(
        text.contains("/dev/null") || text.to_lowercase().contains("permission denied"),
        "{text}"
    );
}

/// The engine makes directories of its own where nobody stops it, and says on standard error when it
/// cannot.
#[test]
fn the_engine_leaves_the_home_alone_and_is_silent() {
    fn names(directory: &std::path::Path) -> Vec<String> {
        let entries = fs::read_dir(directory).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }
    for told in [false, true] {
        let env = Env::new();
        let data = env.home().join(".local/share");
        let own = env.home().join("own");
        fs::create_dir_all(&data).unwrap();
        fs::create_dir_all(&own).unwrap();
        let env = if told { env.var("STEEL_HOME", own.to_str().unwrap()) } else { env };
        let forms = ["(posix-getenv \"STEEL_HOME\")", "(bash \"echo ${STEEL_HOME-none}\")"];
        let (env, ran, results, _) = run(env, &forms, &[]);
        ran.exits(0);
        assert_eq!(names(&data), [""; 0], "{ran:?}");
        assert_eq!(names(&own), [""; 0], "{ran:?}");
        assert!(!env.home().join(".steel").exists());
        assert_eq!(ran.err, "");
        // What commands and forms see is what was there.
        let is = if told { own.to_str().unwrap() } else { "none" };
        assert!(results[1].0.contains(is), "{results:?}");
        let is = if told { format!("=> \"{is}\"") } else { "=> #false".to_owned() };
        assert_eq!(results[0].0, is);
    }
    // Nor without any directory for data.
    let (env, ran, ..) = run(Env::new(), &["1"], &[]);
    ran.exits(0);
    assert_eq!(ran.err, "");
    assert!(!env.home().join(".local/share/steel").exists());
}

/// A form that catches its own end does nothing more outside the session.
#[test]
fn a_form_that_was_stopped_does_nothing_more() {
    let again = "(define (again) (with-handler (lambda (e) (write-file \"late\" \"x\") (again)) \
                 (let loop () (loop)))) (again)";
    let direct = again.replace("(write-file ", "(#%kli \"write-file\" ");
    let script = vec![
        form_within("a", again, 1),
        form_within("b", &direct, 1),
        Answer::new(message([text("done")])),
    ];
    let model = FakeModel::strict(script);
    let env = Env::new().at(&model.base_url());
    let ran = env.kli(&["-p", "go", "--output-format", "json"]);
    ran.exits(0);
    assert!(last_result(&model.bodies()[2]).0.contains("longer than 1 s"));
    assert!(!env.work().join("late").exists());
}

#[test]
fn an_interrupt_ends_a_runaway_and_what_it_waits_for() {
    for runaway in
        ["(let loop () (loop))", "(bash \"touch begun; sleep 600\")", "(expt 7 1000000000)"]
    {
        let begin = format!("(write-file \"there\" \"x\") {runaway}");
        let model = FakeModel::strict(vec![form_within("a", &begin, 600)]);
        let env = Env::new().at(&model.base_url());
        let child = env.command(&["-p", "go", "--output-format", "json"]).spawn().unwrap();
        wait_for("the form to run", || env.work().join("there").exists().then_some(()));
        kill(i32::try_from(child.id()).unwrap(), Signal::INT);
        let ran = Ran::from(child.wait_with_output().unwrap());
        ran.exits(130);
        assert_eq!(ran.json()["outcome"], "interrupted");
    }
}

const LOST: &str =
    "\n[the session is lost, its definitions are gone; the next form starts a new one]";

/// One operation of the engine that does not end: the call does, and the run.
#[test]
fn a_form_in_a_long_operation_loses_its_session_and_the_run_goes_on() {
    let script = vec![
        form("a", "(define kept 7)"),
        form_within("b", "(expt 7 1000000000)", 1),
        form("c", "(+ 1 1)"),
        form("d", "kept"),
        Answer::new(message([text("done")])),
    ];
    let model = FakeModel::strict(script);
    let env = Env::new().at(&model.base_url());
    let ran = env.kli(&["-p", "go", "--output-format", "json"]);
    ran.exits(0);
    let results: Vec<(String, bool)> = model.bodies().iter().skip(1).map(last_result).collect();
    assert_eq!(results[0], ("(no value)".to_owned(), false));
    let told = "error: the form took longer than 1 s: one operation of the engine went on when it was \
                told to stop";
    assert_eq!(results[1], (format!("{told}{LOST}"), true));
    assert_eq!(results[2], ("=> 2".to_owned(), false));
    assert!(results[3].1 && results[3].0.contains("kept"), "{results:?}");
}

/// Each has a thread that stands for good.
#[test]
fn three_lost_sessions_close_eval_and_nothing_else() {
    // No two alike: a model that repeats itself is told so.
    let write = tool_use("w", "write", r#"{ "path": "made.txt", "content": "x" }"#);
    let script = vec![
        form("a", "(make-vector 2000000000 0)"),
        form("b", "(make-vector 2000000001 0)"),
        form("c", "(make-vector 2000000002 0)"),
        form("d", "(+ 1 1)"),
        form("e", "(+ 1 2)"),
        Answer::new(message([write])),
        Answer::new(message([text("done")])),
    ];
    let model = FakeModel::strict(script);
    let env = Env::new().at(&model.base_url());
    let ran = env.kli(&["-p", "go", "--output-format", "json"]);
    ran.exits(0);
    assert_eq!((&ran.json()["denied"], &*ran.err), (&json!([]), ""));
    let results: Vec<(String, bool)> = model.bodies().iter().skip(1).map(last_result).collect();
    let lost = "error: one operation asked for more memory than a session may hold";
    let closed = "eval is closed: 3 sessions were lost to forms that could not be stopped, and their \
                  threads are still there; go on without it";
    for (at, wanted) in [
        format!("{lost}{LOST}"),
        format!("{lost}{LOST}"),
        format!("{lost}{LOST}"),
        closed.to_owned(),
        closed.to_owned(),
    ]
    .into_iter()
    .enumerate()
    {
        assert_eq!(results[at], (wanted, true), "{at}");
    }
    assert_eq!(fs::read_to_string(env.work().join("made.txt")).unwrap(), "x");
    let page = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/eval.md")).unwrap();
    assert!(page.contains(closed), "the page says so to the letter");
}

/// The whole first request stays small with one more tool in it.
#[test]
fn the_tool_is_short_in_the_request() {
    let (_env, _ran, _, bodies) = run(Env::new(), &["1"], &[]);
    let tools = bodies[0]["tools"].as_array().unwrap();
    let eval = tools.iter().find(|tool| tool["name"] == "eval").unwrap().to_string();
    assert!(eval.len() < 500, "{} bytes: {eval}", eval.len());
    let whole = bodies[0].to_string().len();
    assert!(whole < 6000, "{whole} bytes");
}
