#![expect(clippy::disallowed_methods, reason = "tests prepare files and look at what is left")]

use super::*;
use std::{fs, time::Instant};

use super::super::pattern;
use crate::{
    authority::Subject,
    host::Host,
    tool::{BashOptions, State, anchor},
};

struct Place {
    _root: tempfile::TempDir,
    context: Arc<Context>,
}

impl Place {
    fn new(files: &[(&str, &str)]) -> Self {
        let root = tempfile::tempdir().unwrap();
        let workspace = root.path().canonicalize().unwrap().join("ws");
        fs::create_dir(&workspace).unwrap();
        let context = Context {
            host: Host::default(),
            home: None,
            workspace,
            state: State::default(),
            bash: BashOptions {
                shell: "bash".into(),
                timeout: 1,
                max_timeout: 1,
                withheld: vec![],
                pass: None,
                set: Vec::new(),
            },
        };
        let place = Self { _root: root, context: Arc::new(context) };
        for (name, content) in files {
            place.write(name, content.as_bytes());
        }
        place
    }

    fn write(&self, name: &str, content: &[u8]) {
        let path = self.context.workspace.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    fn prepare(&self, arguments: Value) -> Result<Box<dyn Invocation>, String> {
        let Value::Object(map) = arguments else { panic!("no object") };
        Search.prepare(&map, &self.context)
    }

    fn call(&self, arguments: Value) -> Outcome {
        let call = self.prepare(arguments).unwrap();
        let subject = Subject::new([]);
        let grants = call.requests().into_iter().map(|r| subject.check(r).unwrap()).collect();
        runtime().block_on(call.run(grants, Arc::new(|_| {})))
    }

    fn text(&self, arguments: Value) -> String {
        self.call(arguments).text
    }

    fn find(&self, pattern: &str) -> String {
        self.text(json!({ "pattern": pattern }))
    }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

#[test]
fn hits_are_rows_in_order_and_their_anchors_are_remembered() {
    let place = Place::new(&[
        ("b/two.txt", "hello\nno\r\nhello again\r\n"),
        ("b.txt", "\u{feff}hello\n"),
        ("a.txt", "x\n    return x\nhello"),
    ]);
    assert_eq!(
        place.find("hello$|^hello"),
        format!(
            "a.txt:3:57|hello\nb/two.txt:1:57|hello\nb/two.txt:{}\nb.txt:1:57|hello",
            anchor::show(3, b"hello again")
        )
    );
    let view = place.context.state.files.view(&place.context.workspace.join("b/two.txt"));
    let row = Row::of(3, b"hello again");
    assert_eq!(view.at(row.anchor, u64::MAX).unwrap().full, row.full);
    assert_eq!(view.rows.len(), 2, "only what was shown is known");
    let outcome = place.call(json!({"pattern": "hello"}));
    assert_eq!((&outcome.record["hits"], &outcome.record["files"]), (&json!(4), &json!(3)));
}

#[test]
fn a_hit_is_edited_by_its_anchor_without_a_read() {
    let place = Place::new(&[("a.txt", "one\r\ntwo\r\nthree\r\n")]);
    let row = place.find("two");
    let anchor = row.strip_prefix("a.txt:").unwrap().split('|').next().unwrap();
    let arguments = json!({"path": "a.txt", "edits": [{"from": anchor, "text": "2"}]});
    let Value::Object(arguments) = arguments else { panic!("no object") };
    let call = crate::tool::edit::Edit.prepare(&arguments, &place.context).unwrap();
    let subject = Subject::new([]);
    let grants = call.requests().into_iter().map(|r| subject.check(r).unwrap()).collect();
    let outcome = runtime().block_on(call.run(grants, Arc::new(|_| {})));
    assert!(!outcome.is_error, "{}", outcome.text);
    let file = place.context.workspace.join("a.txt");
    assert_eq!(fs::read_to_string(file).unwrap(), "one\r\n2\r\nthree\r\n");
}

#[test]
fn context_case_glob_and_path_narrow_and_widen() {
    let place = Place::new(&[
        ("src/a.rs", "1\n2\nHit\n4\n5\n6\n7\nHit\n9\n"),
        ("src/deep/b.rs", "Hit\n"),
        ("doc/a.md", "Hit\n"),
    ]);
    let text = place
        .text(json!({"pattern": "hit", "ignore_case": true, "context": "1", "path": "src/a.rs"}));
    let lines: Vec<String> =
        text.lines().map(|line| line.replace("src/a.rs", "").split_off(1)).collect();
    let show = |line, text: &str| anchor::show(line, text.as_bytes());
    assert_eq!(
        lines,
        [
            show(2, "2"),
            show(3, "Hit"),
            show(4, "4"),
            "-".into(),
            show(7, "7"),
            show(8, "Hit"),
            show(9, "9")
        ]
    );
    assert!(text.starts_with("src/a.rs-2:") && text.contains("src/a.rs:3:"));
    assert_eq!(place.find("hit"), "[no hits in 3 files]", "case counts unless it is ignored");

    let names = |arguments: Value| -> Vec<String> {
        place.text(arguments).lines().map(|l| l.split(':').next().unwrap().to_owned()).collect()
    };
    let all = ["doc/a.md", "src/a.rs", "src/a.rs", "src/deep/b.rs"];
    assert_eq!(names(json!({"pattern": "Hit"})), all);
    for (glob, wanted) in [
        ("*.md", &all[..1]),
        ("!*.md", &all[1..]),
        ("src/*.rs", &all[1..3]),
        ("src/**/*.rs", &all[1..]),
        ("**/b.*", &all[3..]),
        ("src/", &all[1..]),
        ("*.{md,txt}", &all[..1]),
        ("/doc/*", &all[..1]),
    ] {
        assert_eq!(names(json!({"pattern": "Hit", "glob": glob})), wanted, "{glob}");
    }
    assert_eq!(names(json!({"pattern": "Hit", "path": "src/deep"})), &all[3..]);
}

#[test]
fn ignored_places_are_said_and_a_named_one_is_searched() {
    let place = Place::new(&[
        (".gitignore", "/target\n*.log\n/gen/*\n"),
        ("target/out.txt", "needle\n"),
        ("target/sub/x.log", "needle\n"),
        ("gen/made.txt", "needle\n"),
        ("run.log", "needle\n"),
        (".venv/.gitignore", "*\n"),
        (".venv/lib.py", "needle\n"),
        ("src/a.txt", "hay\n"),
    ]);
    assert_eq!(
        place.find("needle"),
        "[no hits in 2 files]\n[1 ignored directory skipped (target), 4 ignored files skipped; \
         give one as `path` to search it]"
    );
    for (path, hits, note) in [
        ("target", 2, true),
        ("target/sub", 1, true),
        ("gen", 1, true),
        (".venv", 1, true),
        ("run.log", 1, false),
        ("target/sub/x.log", 1, false),
    ] {
        let text = place.text(json!({"pattern": "needle", "path": path}));
        assert_eq!(text.matches("|needle").count(), hits, "{path}: {text}");
        let said = "[ignore rules name this path; it was searched without them]";
        assert_eq!(text.contains(said), note, "{path}: {text}");
    }
    let text = place.text(json!({"pattern": "needle", "path": "src"}));
    assert!(!text.contains("ignore rules"), "control: {text}");
}

#[test]
fn copies_in_other_working_trees_are_skipped_and_submodules_are_not() {
    let place = Place::new(&[
        ("a.txt", "needle\n"),
        (".git/config", "needle\n"),
        (".github/ci.yml", "needle\n"),
        (".kli/worktrees/one/a.txt", "needle\n"),
        ("trees/two/a.txt", "needle\n"),
        ("trees/two/.git", "gitdir: /x/.git/worktrees/two\n"),
        ("module/a.txt", "needle\n"),
        ("module/.git", "gitdir: ../.git/modules/module\n"),
    ]);
    let text = place.find("needle");
    let names: Vec<&str> = text.lines().map(|line| line.split(':').next().unwrap()).collect();
    assert_eq!(
        names,
        [
            ".github/ci.yml",
            "a.txt",
            "module/a.txt",
            "[other working trees skipped (.kli/worktrees, trees/two)]"
        ],
    );
    let text = place.text(json!({"pattern": "needle", "path": "trees/two"}));
    assert!(text.starts_with("trees/two/a.txt:1:"), "{text}");
}

#[test]
fn what_is_no_text_and_no_file_is_neither_shown_nor_waited_for() {
    let place = Place::new(&[("a.txt", "needle\n")]);
    let late = format!("needle\n{}\0", "hay\n".repeat(1 << 18));
    place.write("late.bin", late.as_bytes());
    place.write("early.bin", b"\0needle\n");
    place.write("latin.txt", b"needle \xe9\n");
    let ws = &place.context.workspace;
    let fifo = std::process::Command::new("mkfifo").arg(ws.join("fifo")).status().unwrap();
    assert!(fifo.success());
    std::os::unix::fs::symlink("/etc", ws.join("link")).unwrap();
    let started = Instant::now();
    let text = place.find("needle");
    assert!(started.elapsed().as_secs() < 5);
    assert!(text.contains("latin.txt:1:") && text.contains("|needle \u{fffd}\n"), "{text}");
    assert_eq!(text.lines().count(), 4, "{text}");
    let binary = "[binary, searched up to the first NUL only: 1 file (early.bin)]";
    assert!(text.contains("[hits in binary files, not shown: 1 file (late.bin)]\n"), "{text}");
    assert!(text.ends_with(binary), "{text}");
    let named = place.text(json!({"pattern": "needle", "path": "early.bin"}));
    assert_eq!(named, "[hits in binary files, not shown: 1 file (early.bin)]");
    let fifo = place.call(json!({"pattern": "needle", "path": "fifo"}));
    assert!(fifo.is_error && fifo.text.contains("a FIFO"), "{}", fifo.text);
    assert!(place.find("nothing").contains("[symbolic links not followed: 1]"));
}

#[test]
fn many_hits_and_long_lines_are_cut_and_counted_the_same_way_each_time() {
    let place = Place::new(&[]);
    for file in 0..60 {
        place.write(&format!("f{file:02}.txt"), "hit\n".repeat(10).as_bytes());
    }
    let text = place.find("hit");
    assert_eq!(text.matches("|hit").count(), MAX_HITS);
    assert!(text.starts_with("f00.txt:1:") && text.contains("f19.txt:10:"), "{text}");
    assert!(!text.contains("f20.txt"));
    assert!(text.ends_with(
        "[400 more hits are not shown (600 in all, in 60 files): narrow `pattern`, `path` or `glob`]"
    ));
    for _ in 0..5 {
        assert_eq!(place.find("hit"), text);
    }
    let long = format!("{}needle{}", "é".repeat(50_000), "z".repeat(50_000));
    place.write("long.txt", long.as_bytes());
    let text = place.find("needle");
    assert!(text.len() < 1000 && text.contains("needle") && text.contains("|…éé"), "{text}");
    assert!(text.contains("of 150006 bytes; the anchor stands for the whole line]"), "{text}");
    let row = Row::of(1, long.as_bytes());
    assert!(text.contains(&format!("long.txt:{}|", row.anchor)));
    let one = Place::new(&[]);
    one.write("one.txt", "hit\n".repeat(1000).as_bytes());
    let text = one.find("hit");
    assert_eq!(text.matches("|hit").count(), MAX_HITS);
    assert!(text.contains("[800 more hits are not shown (1000 in all, in 1 file)"), "{text}");
}

#[test]
fn what_cannot_be_meant_is_refused_with_the_place_and_a_way_out() {
    let place = Place::new(&[("a.txt", "f(x[0])\n")]);
    let refused = |arguments: Value| place.prepare(arguments).err().unwrap();
    let text = refused(json!({"pattern": "f(x[0]"}));
    assert!(text.contains("unclosed group") && text.contains('^'), "{text}");
    assert!(text.ends_with(r"to look for that very text, give `f\(x\[0\]`"), "{text}");
    assert!(place.find(r"f\(x\[0\]").starts_with("a.txt:1:"), "the way out works");
    assert!(refused(json!({"pattern": ""})).contains("`pattern` is empty"));
    assert!(refused(json!({})).contains("`pattern` is missing"));
    assert!(refused(json!({"pattern": "a\nb"})).contains("`pattern` is no regular"));
    let text = refused(json!({"pattern": "a", "glob": "{a"}));
    assert!(text.starts_with("`glob` cannot be used:") && text.contains("{a"), "{text}");
    assert!(refused(json!({"pattern": "a", "context": -1})).contains("`context` must be"));
    assert!(refused(json!({"pattern": "a", "dir": "x"})).contains("unknown argument `dir`"));
    let missing = place.call(json!({"pattern": "a", "path": "nope"}));
    assert!(missing.is_error && missing.text.contains("/ws/nope`"), "{}", missing.text);
}

#[test]
fn a_dropped_search_stops_its_threads() {
    let place = Place::new(&[]);
    place.write("big.txt", "x".repeat(99).as_bytes());
    let file = fs::File::options().append(true).open(place.context.workspace.join("big.txt"));
    // A hole reads as zeros, which a named file is searched through: seconds of work.
    file.unwrap().set_len(64 << 30).unwrap();
    let call = place.prepare(json!({"pattern": "needle", "path": "big.txt"})).unwrap();
    let runtime = runtime();
    let started = Instant::now();
    let waited = runtime.block_on(async {
        let call = call.run(vec![], Arc::new(|_| {}));
        tokio::time::timeout(std::time::Duration::from_millis(200), call).await
    });
    assert!(waited.is_err(), "control: it takes long");
    // Shutting down waits for blocking work that still runs.
    drop(runtime);
    assert!(started.elapsed().as_secs() < 5, "{:?}", started.elapsed());
}

#[test]
fn a_name_cannot_fake_a_row() {
    let place = Place::new(&[("x\nfake.txt:1:00|\u{1b}[2Jhit", "hit\n"), ("y.txt", "hit\n")]);
    let found = place.find("hit");
    assert_eq!(found.lines().count(), 2, "{found:?}");
    assert!(found.starts_with(r"x\x0afake.txt:1:00|\x1b[2Jhit:1:"), "{found:?}");
    assert!(found.contains("\ny.txt:1:"), "control");
}

#[test]
fn a_file_that_was_not_searched_to_its_end_is_named() {
    let place = Place::new(&[("a.txt", "hit\n")]);
    place.write("long.txt", &vec![b'x'; pattern::LONGEST_LINE + 2]);
    let found = place.find("hit");
    assert!(found.contains("a.txt:1:"), "control: {found}");
    assert!(
        found.contains(
            "[not searched to the end, for an error or a line that is too long: 1 file (long.txt)]"
        ),
        "{found}"
    );
}

/// A pattern that would keep a processor busy is matched line by line, against short lines.
#[test]
fn what_may_be_much_work_passes_long_lines_over() {
    let place = Place::new(&[("a.txt", "one\r\nabc #\ntwo\n"), ("sub/b.txt", "#\n")]);
    let long = [&[b'-'; pattern::LONGEST_LINE_HEAVY][..], b"\nabc #\n"].concat();
    place.write("long.txt", &long);
    let heavy = r"^(?:[a-z ]?){1000}#$";
    let found = place.find(heavy);
    assert!(found.contains("a.txt:2:") && found.contains("sub/b.txt:1:"), "{found}");
    assert!(found.contains("line that is too long: 1 file (long.txt)"), "{found}");
    let found = place.find(r"^(?:[a-z ]?){10}#$");
    assert!(found.contains("long.txt:2:"), "control: {found}");
}

#[test]
fn a_search_that_is_told_to_stop_says_so_with_what_it_found() {
    let place = Place::new(&[("a.txt", "hit\n")]);
    let call = Call {
        pattern: Pattern::new("hit", false).unwrap(),
        glob: None,
        rows_around: 0,
        scope: Scope::of(Arguments::new(&Map::new()), &place.context).unwrap(),
    };
    let outcome = call.search(&AtomicBool::new(false)).unwrap();
    assert!(!outcome.is_error && outcome.text.ends_with("|hit"), "control: {}", outcome.text);
    let outcome = call.search(&AtomicBool::new(true)).unwrap();
    assert!(outcome.is_error && outcome.text.ends_with(UNFINISHED), "{}", outcome.text);
    assert!(!outcome.text.contains("|hit"), "{}", outcome.text);
}

/// However long the lines around a hit are, only what can be shown of them is held.
#[test]
fn of_a_long_line_no_more_is_held_than_is_shown() {
    let long = "y".repeat(20_000);
    let text = format!("{long}\n{long}hit{long}\nhit{long}\n{long}\n");
    let place = Place::new(&[("a.txt", &text)]);
    let arguments = json!({ "pattern": "hit" });
    let call = Call {
        pattern: Pattern::new("hit", false).unwrap(),
        glob: None,
        rows_around: 1,
        scope: Scope::of(Arguments::new(arguments.as_object().unwrap()), &place.context).unwrap(),
    };
    let path = place.context.workspace.join("a.txt");
    let stop = AtomicBool::new(false);
    let (file, found) = (fs::File::open(&path).unwrap(), Mutex::new(Collection::default()));
    call.look_into(&mut call.searcher(true), &path, Stoppable { file, stop: &stop }, &found);
    let found = found.into_inner().unwrap();
    let rows = &found.files[&path].rows;
    let held: usize = rows.iter().map(|row| row.text.len()).sum();
    assert!(rows.len() == 4 && held <= 4 * MAX_LINE * 8, "{held} bytes");
    assert_eq!(
        rows.iter().map(|row| row.length).collect::<Vec<_>>(),
        [20_000, 40_003, 20_003, 20_000]
    );
    for row in rows.iter().filter(|row| row.is_hit) {
        let shown = row.line_for("a.txt");
        assert!(shown.contains("hit") && shown.len() < 600, "{shown}");
    }
}
