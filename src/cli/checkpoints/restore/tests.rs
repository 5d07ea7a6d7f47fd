#![expect(clippy::disallowed_methods, reason = "tests look at the disk and change it themselves")]

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::{PermissionsExt as _, symlink},
    path::{Path, PathBuf},
    sync::Arc,
};

use proptest::prelude::*;

use super::*;
use crate::{
    authority::{Narrowing, Source},
    host::files::Opened,
    session::checkpoint::{LONGEST_FILE, forget_own},
    tool::Keeper as _,
};

/// A workspace and what keeps its changes.
struct Stage {
    _place: tempfile::TempDir,
    workspace: PathBuf,
    state: PathBuf,
    kept: Arc<Checkpointing>,
    subject: Subject,
    messages: u64,
}

impl Stage {
    fn new() -> Self {
        let place = tempfile::tempdir().unwrap();
        let base = fs::canonicalize(place.path()).unwrap();
        let (workspace, state) = (base.join("ws"), base.join("state"));
        fs::create_dir(&workspace).unwrap();
        let kept = Arc::new(Checkpointing::new(&state, &workspace, "abcdefgh"));
        let subject = Subject::new([]);
        Self { _place: place, workspace, state, kept, subject, messages: 0 }
    }

    /// A prompt begins; its changes come after an answer.
    fn prompt(&mut self) {
        self.kept.begin();
        self.messages += 2;
        self.kept.has(Some(self.messages));
    }

    /// The same session in a later run.
    fn later(&mut self) {
        forget_own(&self.workspace);
        let kept = Checkpointing::new(&self.state, &self.workspace, "abcdefgh");
        // Its lock must go first.
        self.kept = Arc::new(Checkpointing::new(&self.state, &self.workspace, "none"));
        self.kept = Arc::new(kept);
        self.kept.has(Some(self.messages));
    }

    fn path(&self, name: &str) -> PathBuf {
        self.workspace.join(name)
    }

    fn write(&self, name: &str, content: &str) {
        self.write_at(&self.path(name), content.as_bytes());
    }

    fn write_at(&self, path: &Path, content: &[u8]) {
        let grant = self.subject.check(Request::path(Atom::FileWrite, path)).unwrap();
        let expected = match files::open(path) {
            Ok(Opened::File(_, stamp)) => Expected::Unchanged(stamp),
            _ => Expected::Absent,
        };
        let never = AtomicBool::new(false);
        let manner = Manner { expected, stop: &never, keep: Some(&*self.kept), mode: None };
        files::replace_with(&grant, path, content, manner).unwrap();
    }

    fn remove(&self, name: &str) {
        let path = self.path(name);
        let grant = self.subject.check(Request::path(Atom::FileWrite, &path)).unwrap();
        files::remove(&grant, &path, None, Some(&*self.kept)).unwrap();
    }

    fn get(&self, name: &str) -> Option<String> {
        fs::read_to_string(self.path(name)).ok()
    }

    fn undo(&self, words: &str) -> Result<String, String> {
        let words = Words::read(words.split_whitespace()).unwrap();
        let report = self.kept.undo(&self.subject, Which::Latest, words, &[], "/undo")?;
        Ok(report.text)
    }

    fn redo(&self) -> Result<String, String> {
        self.redo_with("")
    }

    fn redo_with(&self, words: &str) -> Result<String, String> {
        let words = Words::read(words.split_whitespace()).unwrap();
        Ok(self.kept.redo(&self.subject, words)?.text)
    }
}

#[test]
fn what_the_authority_refuses_waits_and_is_not_to_be_forced() {
    let mut stage = Stage::new();
    fs::write(stage.path("a"), "old").unwrap();
    stage.prompt();
    stage.write("a", "new");
    let may = stage.subject.clone();
    let narrow = || Subject::new([(Source::Flag("--read-only".into()), Narrowing::ReadOnly)]);
    for words in ["", "force"] {
        stage.subject = narrow();
        let text = stage.undo(words).unwrap();
        assert!(text.contains("left alone: `a`: denied: "), "{text}");
        assert!(!text.contains("force") && text.contains("`/undo` again once"), "{text}");
        assert_eq!(stage.get("a").unwrap(), "new");
        stage.subject = may.clone();
        stage.undo("").unwrap();
        assert_eq!(stage.get("a").unwrap(), "old", "no word is needed for it later");
        stage.subject = narrow();
        let text = stage.redo_with(words).unwrap();
        assert!(text.starts_with("nothing was taken back:"), "{text}");
        assert!(!text.contains("force") && text.contains("`/redo` again once"), "{text}");
        assert_eq!(stage.get("a").unwrap(), "old");
        stage.subject = may.clone();
        stage.redo().unwrap();
        assert_eq!(stage.get("a").unwrap(), "new");
    }
}

#[test]
fn undo_goes_back_prompt_by_prompt_and_redo_forward() {
    let mut stage = Stage::new();
    fs::write(stage.path("a"), "mine").unwrap();
    stage.prompt();
    stage.write("a", "1");
    stage.write("a", "2");
    stage.write("new/deep/b", "b");
    stage.prompt();
    stage.write("a", "3");
    stage.remove("new/deep/b");
    let text = stage.undo("").unwrap();
    assert!(text.contains("restored: `a`") && text.contains("restored: `new/deep/b`"), "{text}");
    assert_eq!((stage.get("a"), stage.get("new/deep/b")), (Some("2".into()), Some("b".into())));
    let text = stage.undo("").unwrap();
    assert!(text.contains("removed: `new/deep/b`, and `new/deep`, `new`"), "{text}");
    assert_eq!(stage.get("a").unwrap(), "mine");
    assert!(!stage.path("new").exists());
    let error = stage.undo("").unwrap_err();
    assert!(error.contains("nothing left to undo"), "{error}");
    stage.redo().unwrap();
    assert_eq!((stage.get("a"), stage.get("new/deep/b")), (Some("2".into()), Some("b".into())));
    stage.redo().unwrap();
    assert_eq!((stage.get("a"), stage.get("new/deep/b")), (Some("3".into()), None));
    assert!(stage.redo().unwrap_err().contains("nothing to do again"));
    stage.undo("").unwrap();
    assert_eq!(stage.get("a").unwrap(), "2");
}

#[test]
fn what_somebody_else_changed_is_left_alone_until_it_is_forced() {
    let mut stage = Stage::new();
    stage.prompt();
    stage.write("a", "old");
    stage.prompt();
    stage.write("a", "kli");
    stage.write("b", "kli");
    fs::write(stage.path("a"), "theirs").unwrap();
    let text = stage.undo("").unwrap();
    assert!(text.contains("left alone: `a` was changed by something else since"), "{text}");
    assert!(text.contains("`/undo force`") && text.contains("removed: `b`"), "{text}");
    assert_eq!((stage.get("a").unwrap().as_str(), stage.get("b")), ("theirs", None));
    let text = stage.undo("force").unwrap();
    assert!(text.contains("restored: `a`"), "{text}");
    assert_eq!(stage.get("a").unwrap(), "old");
    // What was theirs was kept, too.
    stage.redo().unwrap();
    assert_eq!(stage.get("a").unwrap(), "theirs");
}

#[test]
fn a_redo_leaves_alone_what_somebody_else_changed_until_it_is_forced() {
    let mut stage = Stage::new();
    fs::write(stage.path("a"), "mine").unwrap();
    stage.prompt();
    stage.write("a", "kli");
    stage.write("b", "kli");
    stage.undo("").unwrap();
    fs::write(stage.path("a"), "theirs").unwrap();
    let text = stage.redo().unwrap();
    assert!(text.contains("left alone: `a` was changed by something else since"), "{text}");
    assert!(text.contains("restored: `b`") && text.contains("`/redo force`"), "{text}");
    assert_eq!(
        (stage.get("a").unwrap().as_str(), stage.get("b").unwrap().as_str()),
        ("theirs", "kli")
    );
    // The model is told of the one file, not of the other.
    let news = stage.kept.news().unwrap();
    assert!(
        news.contains("tell of: `b`")
            && news.contains("Put back to what stood there before your changes: `a`"),
        "{news}"
    );
    // Again: there is nothing that can be done without force, and still it can be forced.
    assert!(stage.redo().unwrap().contains("left alone: `a`"));
    let text = stage.redo_with("force").unwrap();
    assert!(text.contains("restored: `a`") && !text.contains("left alone"), "{text}");
    assert_eq!(stage.get("a").unwrap(), "kli");
    // What was theirs was kept.
    stage.undo("").unwrap();
    assert_eq!(stage.get("a").unwrap(), "theirs");
}

#[test]
fn a_redo_that_the_authority_refuses_can_be_had_later() {
    let mut stage = Stage::new();
    stage.prompt();
    stage.write("a", "kli");
    stage.undo("").unwrap();
    let all = std::mem::replace(
        &mut stage.subject,
        Subject::new([(Source::Flag("--read-only".into()), Narrowing::ReadOnly)]),
    );
    let text = stage.redo().unwrap();
    assert!(text.contains("left alone: `a`") && text.contains("nothing was taken back"), "{text}");
    assert_eq!(stage.get("a"), None);
    stage.subject = all;
    stage.redo().unwrap();
    assert_eq!(stage.get("a").unwrap(), "kli");
}

#[test]
fn an_undoing_that_fills_the_store_loses_nothing_of_what_it_puts_back() {
    let mut stage = Stage::new();
    let long = usize::try_from(LONGEST_FILE).unwrap();
    let names: Vec<String> = (0..7).map(|n| format!("f{n}")).collect();
    // Changed in the other order than they are put back.
    let content = |name: &str, byte: u8| [name.as_bytes(), &vec![byte; long - 10]].concat();
    for name in &names {
        fs::write(stage.path(name), content(name, b'a')).unwrap();
    }
    stage.prompt();
    for name in names.iter().rev() {
        stage.write_at(&stage.path(name), &content(name, b'b'));
    }
    let text = stage.undo("").unwrap();
    assert!(!text.contains("left alone"), "{text}");
    for name in &names {
        assert!(fs::read(stage.path(name)).unwrap() == content(name, b'a'), "{name}");
    }
}

#[test]
fn a_file_that_was_removed_comes_back_with_its_permissions() {
    let mut stage = Stage::new();
    fs::write(stage.path("run.sh"), "#!/bin/sh\n").unwrap();
    fs::set_permissions(stage.path("run.sh"), fs::Permissions::from_mode(0o750)).unwrap();
    stage.prompt();
    stage.remove("run.sh");
    stage.undo("").unwrap();
    let mode = fs::metadata(stage.path("run.sh")).unwrap().permissions().mode();
    assert_eq!((stage.get("run.sh").unwrap().as_str(), mode & 0o7777), ("#!/bin/sh\n", 0o750));
}

#[test]
fn what_is_not_covered_is_named() {
    let mut stage = Stage::new();
    let long = usize::try_from(LONGEST_FILE).unwrap() + 1;
    fs::write(stage.path("big"), vec![b'x'; long]).unwrap();
    symlink("nowhere", stage.path("link")).unwrap();
    stage.prompt();
    stage.write("big", "small");
    stage.remove("link");
    stage.write("c", "c");
    let outside = stage.workspace.with_file_name("outside");
    stage.write_at(&outside, b"x");
    fs::create_dir_all(stage.path("sub/.git/hooks")).unwrap();
    stage.write("sub/.git/hooks/x", "x");
    let text = stage.undo("").unwrap();
    for wanted in [
        "left alone: `big` is not covered: it had 8388609 bytes, more than 8388608",
        "left alone: `link` is not covered: it was a symbolic link",
        "removed: `c`",
        "it is outside the workspace",
        "sub/.git/hooks/x` is not covered: it is inside a `.git`",
    ] {
        assert!(text.contains(wanted), "{wanted}: {text}");
    }
    assert!(outside.exists() && stage.path("sub/.git/hooks/x").exists());
    assert_eq!(stage.get("big").unwrap(), "small");
    let shown = crate::cli::checkpoints::review::diff(
        crate::session::checkpoint::View::read(&stage.state, &stage.workspace, "abcdefgh")
            .unwrap()
            .as_ref(),
        &stage.workspace,
    );
    assert!(shown.contains("# `big` is not covered"), "{shown}");
    assert!(shown.contains("what commands changed is not shown"), "{shown}");
}

#[test]
fn nothing_is_put_back_through_a_link_or_past_the_authority() {
    let mut stage = Stage::new();
    let outside = stage.workspace.with_file_name("outside");
    fs::create_dir(&outside).unwrap();
    stage.prompt();
    for name in ["one/f", "two", "fine"] {
        stage.write(name, "old");
    }
    stage.prompt();
    for name in ["one/f", "two", "fine"] {
        stage.write(name, "new");
    }
    // The directory, and the file, lead elsewhere now, to the very content.
    fs::write(outside.join("f"), "new").unwrap();
    fs::remove_dir_all(stage.path("one")).unwrap();
    symlink(&outside, stage.path("one")).unwrap();
    fs::remove_file(stage.path("two")).unwrap();
    symlink(outside.join("f"), stage.path("two")).unwrap();
    let text = stage.undo("force").unwrap();
    assert!(text.contains("left alone: `one/f` is reached through a symbolic link"), "{text}");
    assert!(text.contains("left alone: `two` is reached through a symbolic link"), "{text}");
    assert_eq!(fs::read_to_string(outside.join("f")).unwrap(), "new", "untouched");
    assert_eq!(stage.get("fine").unwrap(), "old", "control");
    // A run that may write nothing puts nothing back.
    stage.prompt();
    stage.write("fine", "newer");
    stage.subject = Subject::new([(Source::UserSettings, Narrowing::ReadOnly)]);
    let text = stage.undo("").unwrap();
    assert!(text.contains("left alone: `fine`: ") && text.contains("file/write"), "{text}");
    assert_eq!(stage.get("fine").unwrap(), "newer");
}

#[test]
fn checkpoints_of_an_earlier_run_are_shown_before_they_act() {
    let mut stage = Stage::new();
    stage.prompt();
    stage.write("a", "old");
    stage.prompt();
    stage.write("a", "new");
    stage.later();
    let text = stage.undo("").unwrap();
    assert!(text.contains("earlier run") && text.contains("restore: `a`, to 3 bytes"), "{text}");
    assert!(text.contains("`/undo yes`"), "{text}");
    assert_eq!(stage.get("a").unwrap(), "new", "nothing was done");
    stage.undo("yes").unwrap();
    assert_eq!(stage.get("a").unwrap(), "old");
    // What this run changes itself needs no yes.
    stage.prompt();
    stage.write("a", "newer");
    stage.undo("").unwrap();
    assert_eq!(stage.get("a").unwrap(), "old");
}

#[test]
fn a_forged_store_writes_nothing_that_was_not_kept() {
    let mut stage = Stage::new();
    fs::write(stage.path("a"), "mine").unwrap();
    stage.prompt();
    stage.write("a", "new");
    let blobs = || {
        let all = walk(&stage.state);
        all.into_iter().filter(|path| path.extension().is_none()).collect::<Vec<_>>()
    };
    let blob = blobs().pop().unwrap();
    fs::write(&blob, "evil").unwrap();
    let text = stage.undo("").unwrap();
    assert!(text.contains("its checkpoint is not what was kept"), "{text}");
    assert_eq!(stage.get("a").unwrap(), "new");
    fs::write(&blob, "mine").unwrap();
    stage.undo("force").unwrap();
    assert_eq!(stage.get("a").unwrap(), "mine", "control");
}

fn walk(directory: &Path) -> Vec<PathBuf> {
    fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .flat_map(|path| if path.is_dir() { walk(&path) } else { vec![path] })
        .collect()
}

#[test]
fn the_model_is_told_once_and_also_after_a_restart() {
    let mut stage = Stage::new();
    assert_eq!(stage.kept.news(), None);
    assert!(!stage.state.exists(), "asking makes nothing");
    stage.prompt();
    stage.write("a\u{202e}b", "x");
    stage.undo("").unwrap();
    stage.later();
    let news = stage.kept.news().unwrap();
    assert!(news.contains("Put back") && news.contains("`a\\u{202e}b`"), "{news}");
    assert_eq!(stage.kept.news(), None, "once");
    stage.later();
    assert_eq!(stage.kept.news(), None, "once");
}

#[test]
fn a_store_that_cannot_be_used_is_said_once_and_holds_nothing_up() {
    let mut stage = Stage::new();
    fs::write(&stage.state, "a file in the place of the directory").unwrap();
    stage.prompt();
    stage.write("a", "1");
    stage.write("b", "2");
    let notices = stage.kept.notices();
    assert_eq!(notices.len(), 1, "{notices:?}");
    assert!(notices[0].contains("no checkpoint is kept") && notices[0].contains("/undo"));
    assert_eq!((stage.get("a").unwrap(), stage.get("b").unwrap()), ("1".into(), "2".into()));
    assert_eq!(stage.kept.notices(), Vec::<String>::new());
    assert!(stage.undo("").is_err());
}

#[test]
fn a_write_that_failed_is_no_change() {
    let mut stage = Stage::new();
    fs::write(stage.path("a"), "mine").unwrap();
    stage.prompt();
    let path = stage.path("a");
    let grant = stage.subject.check(Request::path(Atom::FileWrite, &path)).unwrap();
    let Ok(Opened::File(_, stamp)) = files::open(&path) else { panic!() };
    let stopped = AtomicBool::new(true);
    let expected = Expected::Unchanged(stamp);
    let manner = Manner { expected, stop: &stopped, keep: Some(&*stage.kept), mode: None };
    assert!(files::replace_with(&grant, &path, b"new", manner).is_err());
    assert!(stage.undo("").unwrap_err().contains("nothing left to undo"));
    stage.write("a", "new");
    stage.undo("").unwrap();
    assert_eq!(stage.get("a").unwrap(), "mine", "control");
}

#[derive(Clone, Debug)]
enum Act {
    Prompt,
    Write(usize, String),
    Remove(usize),
    Undo,
    Redo,
}

fn any_act() -> impl Strategy<Value = Act> {
    prop_oneof![
        2 => Just(Act::Prompt),
        5 => (0..3_usize, "[a-c]{0,2}").prop_map(|(at, text)| Act::Write(at, text)),
        1 => (0..3_usize).prop_map(Act::Remove),
        3 => Just(Act::Undo),
        2 => Just(Act::Redo),
    ]
}

type Files = BTreeMap<&'static str, String>;

const NAMES: [&str; 3] = ["a", "d/b", "d/e/c"];

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    /// A model of whole workspaces: undoing a prompt brings the one before it back.
    #[test]
    fn random_writes_and_undos_agree_with_a_model(acts in prop::collection::vec(any_act(), 1..30)) {
        let mut stage = Stage::new();
        let mut now = Files::new();
        // Workspaces before each prompt that changed something; and after each, for redo.
        let mut undo: Vec<Files> = Vec::new();
        let mut redo: Vec<Files> = Vec::new();
        let mut is_open = false;
        stage.prompt();
        for act in acts {
            match act {
                Act::Prompt => {
                    stage.prompt();
                    is_open = false;
                }
                Act::Write(at, text) => {
                    if !std::mem::replace(&mut is_open, true) {
                        undo.push(now.clone());
                        redo.clear();
                    }
                    stage.write(NAMES[at], &text);
                    now.insert(NAMES[at], text);
                }
                Act::Remove(at) => {
                    if now.contains_key(NAMES[at]) {
                        if !std::mem::replace(&mut is_open, true) {
                            undo.push(now.clone());
                            redo.clear();
                        }
                        stage.remove(NAMES[at]);
                        now.remove(NAMES[at]);
                    }
                }
                Act::Undo => {
                    let done = stage.undo("");
                    prop_assert_eq!(done.is_ok(), !undo.is_empty(), "{:?}", done);
                    if let Some(before) = undo.pop() {
                        redo.push(std::mem::replace(&mut now, before));
                    }
                    stage.prompt();
                    is_open = false;
                }
                Act::Redo => {
                    let done = stage.redo();
                    // An undoing that found every file as before changed nothing to do again.
                    if done.is_ok() {
                        if let Some(after) = redo.pop() {
                            undo.push(std::mem::replace(&mut now, after));
                        }
                    } else {
                        prop_assume!(redo.is_empty());
                    }
                    stage.prompt();
                    is_open = false;
                }
            }
            for name in NAMES {
                prop_assert_eq!(stage.get(name), now.get(name).cloned(), "{}", name);
            }
        }
    }
}
