//! A generated corpus of files and edits: every byte outside the matches stays, and so do mode,
//! owner, attributes and links; and edits that run side by side lose nothing.
//!
//! What a file must become is computed from the list of lines that it was made of, apart from the
//! code under test. The seed is fixed, so a case that fails can be looked at by its number.

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    sync::Arc,
};

use kli::{
    authority::Subject,
    host::Host,
    tool::{BashOptions, Context, Outcome, State, standard},
};
use serde_json::{Value, json};

use crate::{
    fake_model::{Answer, FakeModel, message, text, tool_use},
    harness::Env,
};

mod corpus;

use corpus::{Case, Kept, Link};

/// The number of generated files.
const CASES: u64 = 240;

/// The size of the largest file, in bytes.
const LARGE: usize = 100_000_000;

/// The tools of a run in a workspace, called in process.
struct Tools {
    context: Arc<Context>,
    runtime: tokio::runtime::Runtime,
}

impl Tools {
    fn new(workspace: &Path) -> Self {
        let context = Context {
            host: Host::with_marker("/nonexistent/marker"),
            workspace: fs::canonicalize(workspace).unwrap(),
            home: None,
            state: State::default(),
            bash: BashOptions {
                shell: "bash".into(),
                timeout: 120,
                max_timeout: 600,
                withheld: vec![],
                ..BashOptions::default()
            },
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        Self { context: Arc::new(context), runtime }
    }

    fn call(&self, name: &str, arguments: &Value) -> Outcome {
        let tools = standard();
        let tool = tools.iter().find(|tool| tool.name() == name).unwrap();
        let call = match tool.prepare(arguments.as_object().unwrap(), &self.context) {
            Ok(call) => call,
            Err(sentence) => return Outcome::error(sentence),
        };
        let subject = Subject::new([]);
        let requests = call.requests().into_iter().chain(call.wishes());
        let grants = requests.map(|request| subject.check(request).unwrap()).collect();
        self.runtime.block_on(call.run(grants, Arc::new(|_| {})))
    }
}

#[test]
fn bytes_outside_the_matches_and_all_that_belongs_to_a_file_stay() {
    let place = tempfile::tempdir().unwrap();
    let tools = Tools::new(place.path());
    let is_root = rustix::process::geteuid().is_root();
    let (mut edited, mut refused) = (0_u64, 0_u64);
    for number in 0..CASES {
        let case = Case::new(number);
        let (name, file) = case.put(place.path());
        let kept = Kept::of(&file);
        let read = tools.call("read", &json!({"path": name}));
        assert!(!read.is_error, "case {number}: {}", read.text);
        let edits = case.edits(&read.text);

        // One edit that cannot be made stops them all.
        let mut with_a_bad_one = edits.as_array().unwrap().clone();
        with_a_bad_one.push(json!({"old": "this stands nowhere at all", "new": "x"}));
        let outcome = tools.call("edit", &json!({"path": name, "edits": with_a_bad_one}));
        assert!(outcome.is_error && outcome.changed.is_empty(), "case {number}: {}", outcome.text);
        assert_eq!(fs::read(&file).unwrap(), case.before(), "case {number}");
        assert_eq!(Kept::of(&file), kept, "case {number}");

        let outcome = tools.call("edit", &json!({"path": name, "edits": edits}));
        if case.mode & 0o200 == 0 && !is_root {
            assert!(outcome.text.contains("permission denied"), "case {number}: {}", outcome.text);
            assert_eq!(fs::read(&file).unwrap(), case.before(), "case {number}");
            refused += 1;
            continue;
        }
        assert!(!outcome.is_error, "case {number}: {edits} {}", outcome.text);
        assert_eq!(outcome.changed, [fs::canonicalize(&file).unwrap()], "case {number}");
        let (found, wanted) = (fs::read(&file).unwrap(), case.wanted());
        assert!(
            found == wanted,
            "case {number}: {edits}\nbefore {:?}\nfound  {:?}\nwanted {:?}",
            String::from_utf8_lossy(&case.before()),
            String::from_utf8_lossy(&found),
            String::from_utf8_lossy(&wanted)
        );
        // A write clears setuid and setgid, as the kernel does it.
        assert_eq!(Kept::of(&file), Kept { mode: kept.mode & 0o1777, ..kept }, "case {number}");
        edited += 1;
    }
    assert_eq!(edited + refused, CASES);
    assert!(edited >= 200, "{edited} edited, {refused} refused");
}

#[test]
fn the_corpus_has_all_that_it_promises() {
    let cases: Vec<Case> = (0..CASES).map(Case::new).collect();
    let count = |what: &dyn Fn(&Case) -> bool| cases.iter().filter(|case| what(case)).count();
    let has = |case: &Case, part: &[u8]| case.before().windows(part.len()).any(|w| w == part);
    let kinds = |case: &Case| -> usize {
        let mut all: Vec<&[u8]> =
            case.lines.iter().map(|line| &*line.1).filter(|e| !e.is_empty()).collect();
        all.sort_unstable();
        all.dedup();
        all.len()
    };
    for (what, found) in [
        ("CRLF alone", count(&|case| kinds(case) == 1 && case.lines[0].1 == b"\r\n")),
        ("CR alone", count(&|case| kinds(case) == 1 && case.lines[0].1 == b"\r")),
        ("mixed", count(&|case| kinds(case) == 2)),
        ("BOM", count(&|case| case.is_bom)),
        ("no UTF-8", count(&|case| String::from_utf8(case.before()).is_err())),
        ("tabs", count(&|case| has(case, b"\t"))),
        ("CJK", count(&|case| has(case, "漢".as_bytes()))),
        ("emoji", count(&|case| has(case, "👍".as_bytes()))),
        ("no final newline", count(&|case| case.lines.last().unwrap().1.is_empty())),
        ("long lines", count(&|case| case.lines.iter().any(|line| line.0.len() > 9_000))),
        ("links", count(&|case| case.link != Link::None)),
        ("read-only", count(&|case| case.mode == 0o444)),
        ("several edits", count(&|case| case.edits.len() > 1)),
        ("all", count(&|case| case.edits[0]["all"] == true)),
        ("attributes", count(&|case| case.has_attribute)),
        ("other owners", count(&|case| case.has_other_owner)),
    ] {
        assert!(found >= 10, "{what}: {found}");
    }
}

#[test]
fn an_empty_file_is_said_and_left_to_write() {
    let place = tempfile::tempdir().unwrap();
    let tools = Tools::new(place.path());
    for (name, content) in [("empty", &b""[..]), ("mark", b"\xef\xbb\xbf")] {
        fs::write(place.path().join(name), content).unwrap();
        let outcome = tools.call("read", &json!({"path": name}));
        assert_eq!(outcome.text, "(empty file)");
        let edits = json!([{"old": "a", "new": "b"}]);
        let outcome = tools.call("edit", &json!({"path": name, "edits": edits}));
        assert!(outcome.is_error && outcome.text.contains("is an empty file; use write"));
        assert_eq!(fs::read(place.path().join(name)).unwrap(), content);
        let outcome = tools.call("write", &json!({"path": name, "content": "a\n"}));
        assert!(!outcome.is_error, "{}", outcome.text);
        assert_eq!(fs::read(place.path().join(name)).unwrap(), [content, b"a\n"].concat());
    }
}

#[test]
fn a_file_of_a_hundred_megabytes_is_edited_at_its_ends_and_in_its_middle() {
    let place = tempfile::tempdir().unwrap();
    let tools = Tools::new(place.path());
    let file = place.path().join("large");
    let block =
        "a line of the large file, made long so that there are not too many\r\n".repeat(1000);
    let mut content = b"<first>\r\n".to_vec();
    while content.len() < LARGE / 2 {
        content.extend_from_slice(block.as_bytes());
    }
    let middle = content.len();
    content.extend_from_slice(b"<middle>\n");
    while content.len() < LARGE {
        content.extend_from_slice(block.as_bytes());
    }
    content.extend_from_slice(b"<last>");
    fs::write(&file, &content).unwrap();
    let hit = tools.call("search", &json!({"pattern": "^<middle>$", "path": "large"}));
    let anchor = hit.text.strip_prefix("large:").unwrap().split('|').next().unwrap().to_owned();
    let edits = json!([
        {"old": "<first>", "new": "<1>"},
        {"from": anchor, "text": "<2>"},
        {"old": "<last>", "new": "<3>"},
    ]);
    let outcome = tools.call("edit", &json!({"path": "large", "edits": edits}));
    assert!(!outcome.is_error, "{}", outcome.text);
    let found = fs::read(&file).unwrap();
    assert_eq!(found.len(), content.len() - 4 - 5 - 3);
    assert!(found.starts_with(b"<1>\r\n") && found.ends_with(b"\r\n<3>"));
    let (first, second) = (5..middle - 4, middle - 4 + 4..found.len() - 3);
    assert!(found[first] == content[9..middle], "before the middle");
    assert!(found[middle - 4..].starts_with(b"<2>\n"));
    assert!(found[second] == content[middle + 9..content.len() - 6], "after the middle");
}

/// The results of a request's last message: call, text, whether it is an error.
fn results(body: &Value) -> Vec<(String, String, bool)> {
    let last = body["messages"].as_array().unwrap().last().unwrap();
    let blocks = last["content"].as_array().unwrap();
    let results = blocks.iter().filter(|block| block["type"] == "tool_result");
    results
        .map(|block| {
            let text = block["content"].as_str().or_else(|| block["content"][0]["text"].as_str());
            (
                block["tool_use_id"].as_str().unwrap().to_owned(),
                text.unwrap_or_default().to_owned(),
                block["is_error"].as_bool().unwrap_or(false),
            )
        })
        .collect()
}

fn turn(calls: impl IntoIterator<Item = (String, &'static str, Value)>) -> Answer {
    Answer::new(message(
        calls.into_iter().map(|(id, name, value)| tool_use(&id, name, &value.to_string())),
    ))
}

fn done() -> Answer {
    Answer::new(message([text("done")]))
}

#[test]
fn a_sample_of_the_corpus_through_the_built_program() {
    let numbers: Vec<u64> = (0..CASES).step_by(11).collect();
    let is_root = rustix::process::geteuid().is_root();
    let cases: Vec<Case> = numbers
        .into_iter()
        .map(Case::new)
        .filter(|case| is_root || case.mode & 0o200 != 0)
        .collect();
    // The anchors that a model would take from the rows: read in process from the same files.
    let shadow = tempfile::tempdir().unwrap();
    let tools = Tools::new(shadow.path());
    let (mut reads, mut edits) = (Vec::new(), Vec::new());
    for case in &cases {
        let (name, _) = case.put(shadow.path());
        let rows = tools.call("read", &json!({"path": name})).text;
        let id = |what: &str| format!("{what}{}", case.number);
        reads.push((id("r"), "read", json!({"path": name})));
        edits.push((id("e"), "edit", json!({"path": name, "edits": case.edits(&rows)})));
    }
    let model = FakeModel::strict(vec![turn(reads), turn(edits), done()]);
    let env = Env::new().at(&model.base_url());
    let files: Vec<PathBuf> = cases.iter().map(|case| case.put(&env.work()).1).collect();
    let kept: Vec<Kept> = files.iter().map(|file| Kept::of(file)).collect();
    env.kli(&["-p", "Edit them"]).exits(0);
    for (id, text, is_error) in results(&model.bodies()[2]) {
        assert!(!is_error, "{id}: {text}");
    }
    for ((case, file), kept) in cases.iter().zip(&files).zip(kept) {
        assert!(fs::read(file).unwrap() == case.wanted(), "case {}", case.number);
        assert_eq!(Kept::of(file), Kept { mode: kept.mode & 0o1777, ..kept });
    }
}

/// Eight files of eight lines.
fn eight(directory: &Path) {
    for file in 0..8 {
        let lines: Vec<String> = (0..8).map(|line| format!("<{line}>\n")).collect();
        fs::write(directory.join(format!("f{file}")), lines.concat()).unwrap();
    }
}

fn edit_of(file: &Path, line: usize, by: &str) -> Value {
    json!({"path": file, "edits": [{"old": format!("<{line}>"), "new": format!("[{line} by {by}]")}]})
}

#[test]
fn sixty_four_edits_of_eight_files_in_one_turn_all_land() {
    let mut calls = Vec::new();
    for line in 0..8 {
        for file in 0..8 {
            // The same file by more than one name.
            let name = if line % 2 == 0 { format!("f{file}") } else { format!("link/f{file}") };
            calls.push((format!("c{line}{file}"), "edit", edit_of(Path::new(&name), line, "kli")));
        }
    }
    let model = FakeModel::strict(vec![turn(calls), done()]);
    let env = Env::new().at(&model.base_url());
    eight(&env.work());
    symlink(".", env.work().join("link")).unwrap();
    env.kli(&["-p", "Edit them"]).exits(0);
    let results = results(&model.bodies()[1]);
    assert_eq!(results.len(), 64);
    assert!(results.iter().all(|(_, _, is_error)| !is_error), "{results:?}");
    let wanted = (0..8).map(|line| format!("[{line} by kli]\n")).collect::<Vec<_>>().concat();
    for file in 0..8 {
        let found = fs::read_to_string(env.work().join(format!("f{file}"))).unwrap();
        assert_eq!(found, wanted, "f{file}");
    }
}

#[test]
fn eight_runs_of_eight_turns_on_eight_files_lose_nothing() {
    let shared = tempfile::tempdir().unwrap();
    let place = fs::canonicalize(shared.path()).unwrap();
    eight(&place);
    // Run n edits line n of each file; all begin with the same file.
    let runs: Vec<(FakeModel, Env)> = (0..8)
        .map(|run| {
            let by = format!("run {run}");
            let calls = (0..8).map(|file| {
                turn([(
                    format!("c{file}"),
                    "edit",
                    edit_of(&place.join(format!("f{file}")), run, &by),
                )])
            });
            let model = FakeModel::strict(calls.chain([done()]).collect());
            let env = Env::new().at(&model.base_url());
            (model, env)
        })
        .collect();
    let children: Vec<_> =
        runs.iter().map(|(_, env)| env.command(&["-p", "Edit them"]).spawn().unwrap()).collect();
    for child in children {
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    let mut landed = 0;
    let mut wanted = vec![vec![String::new(); 8]; 8];
    for (run, (model, _)) in runs.iter().enumerate() {
        for (file, body) in model.bodies().iter().skip(1).enumerate() {
            let (_, text, is_error) = results(body).pop().unwrap();
            wanted[file][run] = if is_error {
                assert!(text.contains("meanwhile; nothing was written"), "{text}");
                format!("<{run}>\n")
            } else {
                landed += 1;
                format!("[{run} by run {run}]\n")
            };
        }
    }
    for (file, lines) in wanted.iter().enumerate() {
        let found = fs::read_to_string(place.join(format!("f{file}"))).unwrap();
        assert_eq!(found, lines.concat(), "f{file}: what was said to be done is there");
    }
    assert!(landed >= 32, "{landed} of 64 landed");
    assert_eq!(fs::read_dir(&place).unwrap().count(), 8, "nothing is left beside the files");
}
