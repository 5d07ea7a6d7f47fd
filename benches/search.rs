//! How fast a large tree is searched: `cargo bench --bench search`.
//!
//! The tool's own call is printed beside a plain walk of the same tree on ripgrep's crates, without
//! accounts, anchors or handles, in the same run; and beside the program `rg` where there is one.
//! Only the ratios mean something on another machine. The best of several rounds, in turns.
#![expect(
    clippy::print_stdout,
    clippy::expect_used,
    clippy::disallowed_methods,
    reason = "a benchmark makes its own tree, prints its figures and may fail loudly"
)]

use std::{
    fmt::Write as _,
    fs,
    path::Path,
    process::{Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use grep_regex::RegexMatcherBuilder;
use grep_searcher::{BinaryDetection, SearcherBuilder, sinks::Bytes};
use ignore::{WalkBuilder, WalkState};
use kli::{
    authority::Subject,
    host::Host,
    tool::{BashOptions, Context, State, Tool, find::Find, search::Search},
};
use serde_json::{Value, json};

const FILES: usize = 20_000;
const ROUNDS: usize = 9;

fn main() {
    let place = tempfile::tempdir().expect("a temporary directory");
    let root = fs::canonicalize(place.path()).expect("it is there");
    make(&root);
    for (what, pattern) in
        [("a rare word", "needle_of_[0-9]+"), ("a common word", "return"), ("nothing", "absent")]
    {
        let mut best = [Duration::MAX; 3];
        let has_rg = rg(&root, pattern);
        for _ in 0..ROUNDS {
            time(&mut best[0], || tool(&root, &Search, &json!({"pattern": pattern})));
            time(&mut best[1], || plain(&root, pattern));
            if has_rg {
                time(&mut best[2], || assert!(rg(&root, pattern), "rg runs"));
            }
        }
        let [own, plain, rg] = best.map(|time| time.as_secs_f64());
        print!(
            "search for {what} in {FILES} files: {:.1} ms, {:.2}x a plain walk",
            own * 1e3,
            own / plain
        );
        if has_rg { println!(", {:.2}x rg", own / rg) } else { println!() }
    }
    let mut best = [Duration::MAX; 2];
    for _ in 0..ROUNDS {
        time(&mut best[0], || tool(&root, &Find, &json!({"pattern": "*7.rs"})));
        time(&mut best[1], || names(&root));
    }
    let [own, plain] = best.map(|time| time.as_secs_f64());
    println!("find among {FILES} files: {:.1} ms, {:.2}x a plain walk", own * 1e3, own / plain);
}

/// Makes a tree like that of a large repository: 20 files a directory, some directories ignored.
fn make(root: &Path) {
    fs::write(root.join(".gitignore"), "target/\n*.log\n").expect("written");
    for directory in 0..FILES / 20 {
        let name = if directory % 25 == 24 { "target" } else { "src" };
        let path = root.join(format!("crate{}/{name}/m{directory}", directory / 10));
        fs::create_dir_all(&path).expect("made");
        for file in 0..20 {
            let mut text = String::new();
            for line in 0..40 + (directory * 7 + file * 13) % 160 {
                writeln!(
                    text,
                    "    let value_{line} = compute({file}, {directory}).unwrap_or_default();"
                )
                .expect("a string");
                if line % 30 == 7 {
                    text.push_str("    return value;\n");
                }
            }
            if file == 3 && directory % 50 == 0 {
                writeln!(text, "// needle_of_{directory}").expect("a string");
            }
            fs::write(path.join(format!("f{file}.rs")), text).expect("written");
        }
    }
}

fn time(best: &mut Duration, work: impl FnOnce()) {
    let started = Instant::now();
    work();
    *best = started.elapsed().min(*best);
}

fn tool(root: &Path, tool: &dyn Tool, arguments: &Value) {
    let context = Context {
        host: Host::default(),
        workspace: root.to_owned(),
        home: None,
        state: State::default(),
        bash: BashOptions {
            shell: "bash".into(),
            timeout: 1,
            max_timeout: 1,
            ..BashOptions::default()
        },
    };
    let arguments = arguments.as_object().expect("an object");
    let call = tool.prepare(arguments, &Arc::new(context)).expect("understood");
    let subject = Subject::new([]);
    let grants =
        call.requests().into_iter().map(|request| subject.check(request).expect("allowed"));
    let grants = grants.collect();
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let outcome = runtime.block_on(call.run(grants, Arc::new(|_| {})));
    assert!(!outcome.is_error, "{}", outcome.text);
}

fn plain(root: &Path, pattern: &str) {
    let matcher = RegexMatcherBuilder::new().build(pattern).expect("a pattern");
    let hits = AtomicUsize::new(0);
    WalkBuilder::new(root).hidden(false).require_git(false).build_parallel().run(|| {
        let mut searcher = SearcherBuilder::new()
            .binary_detection(BinaryDetection::quit(0))
            .line_number(true)
            .build();
        let (matcher, hits) = (&matcher, &hits);
        Box::new(move |entry| {
            let Ok(entry) = entry else { return WalkState::Continue };
            if entry.file_type().is_some_and(|kind| kind.is_file()) {
                let sink = Bytes(|_, _| {
                    hits.fetch_add(1, Ordering::Relaxed);
                    Ok(true)
                });
                searcher.search_path(matcher, entry.path(), sink).expect("searched");
            }
            WalkState::Continue
        })
    });
}

fn names(root: &Path) {
    let count = AtomicUsize::new(0);
    WalkBuilder::new(root).hidden(false).require_git(false).build_parallel().run(|| {
        let count = &count;
        Box::new(move |entry| {
            if entry.is_ok_and(|entry| entry.path().to_string_lossy().ends_with("7.rs")) {
                count.fetch_add(1, Ordering::Relaxed);
            }
            WalkState::Continue
        })
    });
}

/// Runs ripgrep; false where there is none.
fn rg(root: &Path, pattern: &str) -> bool {
    Command::new("rg")
        .args(["--hidden", "--no-require-git", "-n", pattern, "."])
        .current_dir(root)
        .stdout(Stdio::piped())
        .output()
        .is_ok()
}
