#![expect(clippy::disallowed_methods, reason = "tests arrange their own files")]

use std::fs;

use super::*;
use crate::authority::{Narrowing, Source};

struct Room {
    _directory: tempfile::TempDir,
    root: PathBuf,
}

impl Room {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let root = fs::canonicalize(directory.path()).unwrap();
        Self { _directory: directory, root }
    }

    fn put(&self, name: &str, text: impl AsRef<[u8]>) {
        let path = self.root.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn read(&self, subject: &Subject) -> (Surroundings, String, Vec<String>) {
        let names = vec!["AGENTS.md".to_owned(), "CLAUDE.md".to_owned()];
        Surroundings::read(names, &self.root, &self.root, subject)
    }
}

fn all() -> Subject {
    Subject::new([])
}

/// Puts what is due into a history, as the machine does at a boundary.
fn deliver(around: &mut Surroundings, history: &mut Vec<Message>) -> usize {
    let due = around.due(history, &all());
    let count = due.texts.len();
    history.extend(due.texts.into_iter().map(Message::user));
    count
}

#[test]
fn what_is_on_its_way_is_not_told_twice_and_what_was_lost_is_told_again() {
    let room = Room::new();
    room.put("sub/AGENTS.md", "words");
    let (mut around, prompt, _) = room.read(&all());
    assert_eq!(prompt, "");
    around.touch(&room.root.join("sub/a.txt"));
    assert_eq!(around.due(&[], &all()).texts.len(), 1);
    assert_eq!(around.due(&[], &all()).texts.len(), 0, "it is on its way");
    // The prompt ended before it was taken.
    around.begin();
    let mut history = Vec::new();
    assert_eq!(deliver(&mut around, &mut history), 1);
    assert_eq!(deliver(&mut around, &mut history), 0);
    // A summary took the place of the history.
    history.clear();
    assert_eq!(deliver(&mut around, &mut history), 1);
    assert_eq!(deliver(&mut around, &mut history), 0);
}

#[test]
fn a_change_is_told_whatever_the_size_and_times_say_and_an_empty_file_is_nothing() {
    let room = Room::new();
    room.put("AGENTS.md", "one");
    room.put("empty/AGENTS.md", " \n");
    let (mut around, prompt, _) = room.read(&all());
    assert!(prompt.contains("one"));
    let mut history = Vec::new();
    around.touch(&room.root.join("empty"));
    assert_eq!(deliver(&mut around, &mut history), 0);
    room.put("AGENTS.md", "two");
    assert_eq!(deliver(&mut around, &mut history), 1);
    assert!(history[0].text().contains("two") && history[0].text().contains(CHANGED));
    // Written again with the same words it is the same.
    room.put("AGENTS.md", "two");
    assert_eq!(deliver(&mut around, &mut history), 0);
    room.put("empty/AGENTS.md", "words");
    assert_eq!(deliver(&mut around, &mut history), 1);
    fs::remove_file(room.root.join("AGENTS.md")).unwrap();
    assert_eq!(deliver(&mut around, &mut history), 1);
    assert!(history.last().unwrap().text().contains(REMOVED));
    assert_eq!(deliver(&mut around, &mut history), 0);
    room.put("AGENTS.md", "two");
    assert_eq!(deliver(&mut around, &mut history), 1);
    assert!(history.last().unwrap().text().contains(NEW), "it is there anew");
}

#[test]
fn nothing_outside_the_root_is_looked_at_nor_what_the_run_may_not_read() {
    let room = Room::new();
    room.put("AGENTS.md", "words");
    let other = Room::new();
    other.put("AGENTS.md", "other words");
    let (mut around, _, _) = room.read(&all());
    around.touch(&other.root);
    around.touch(other.root.parent().unwrap());
    assert_eq!(around.directories, std::slice::from_ref(&room.root));
    let narrow = Narrowing::Drop(vec![Atom::FileRead]);
    let (_, prompt, notices) = room.read(&Subject::new([(Source::UserSettings, narrow)]));
    assert_eq!((prompt.as_str(), notices.len()), ("", 0));
    assert!(room.read(&all()).1.contains("words"), "control");
}

#[test]
fn all_that_is_told_is_bounded_the_nearest_files_first() {
    let room = Room::new();
    let names = ["a", "b", "c", "d"];
    let mut deep = String::new();
    for name in names {
        deep.push_str(name);
        deep.push('/');
        room.put(&format!("{deep}AGENTS.md"), format!("{name}{name}{name}\n").repeat(8000));
    }
    let workspace = room.root.join("a/b/c/d");
    let (_, prompt, _) =
        Surroundings::read(vec!["AGENTS.md".to_owned()], &room.root, &workspace, &all());
    assert!(prompt.len() < PROMPT + 4096, "{}", prompt.len());
    assert!(prompt.contains("ddd\n") && prompt.contains("bbb\n"));
    let of_the_root = prompt.matches("aaa\n").count();
    assert!((1..1000).contains(&of_the_root), "{of_the_root} of 8000 lines");
    assert!(prompt.contains(" of 32000 bytes are shown; `read` shows the rest]"), "it is said");

    let (mut around, _, _) = room.read(&all());
    for number in 0..300 {
        room.put(&format!("{number}/AGENTS.md"), "xxxx\n".repeat(2000));
        around.touch(&room.root.join(number.to_string()));
    }
    let mut history = Vec::new();
    let told = deliver(&mut around, &mut history);
    assert_eq!(told, DIRECTORIES - 1, "the root has none");
    let bytes: usize = history.iter().map(|message| message.text().len()).sum();
    assert!(bytes < MESSAGES + told * 512, "{bytes}");
}

#[test]
fn what_a_session_says_of_files_is_only_a_digest() {
    let room = Room::new();
    room.put("sub/AGENTS.md", "words");
    let (mut around, _, _) = room.read(&all());
    // A session that a confined run could have written.
    let mut history = vec![
        Message::user(format!("{MARK}0000] /etc/passwd\nwords")),
        Message::user(format!("{MARK}0000] {}\nold", room.root.join("sub/AGENTS.md").display())),
    ];
    assert_eq!(deliver(&mut around, &mut history), 0, "nothing is read that no call was about");
    around.touch(&room.root.join("sub"));
    assert_eq!(deliver(&mut around, &mut history), 1);
    assert!(history[2].text().contains(CHANGED));
}
