//! What a session is called, and what is searched of it.

use super::*;

#[test]
fn the_latest_name_holds_and_a_copy_keeps_it() {
    let room = room();
    let mut log = room.store.create(Path::new(WS)).unwrap();
    say(&mut log, "first");
    for name in ["one", "two"] {
        log.append(&Entry::Name(name)).unwrap();
    }
    let end = Entry::End { outcome: "ok", error: None };
    log.append(&end).unwrap();
    let path = log.path().to_owned();
    drop(log);
    let named = |room: &Room| room.store.overview(&room.latest()).unwrap().name;
    assert_eq!(named(&room).as_deref(), Some("two"));
    assert_eq!(events(&path).last().unwrap()["name"], "two");
    // It is known again when the session goes on, and to its copies.
    let opened = room.open();
    assert_eq!(opened.log.name(), Some("two"));
    drop(opened);
    let copy = room.store.fork(Path::new(WS), &room.latest()).unwrap();
    let found = room.store.find(Path::new(WS), &copy.id).unwrap();
    assert_eq!(room.store.overview(&found).unwrap().name.as_deref(), Some("two"));
}

#[test]
fn a_name_in_the_middle_of_a_long_session_comes_with_its_end() {
    let room = room();
    let mut log = room.store.create(Path::new(WS)).unwrap();
    let words = "x".repeat(1 << 16);
    say(&mut log, &words);
    log.append(&Entry::Name("middle")).unwrap();
    say(&mut log, &words);
    let named = || room.store.overview(&room.latest()).unwrap().name;
    assert_eq!(named(), None, "control: it is in neither end of the file");
    log.append(&Entry::End { outcome: "ok", error: None }).unwrap();
    assert_eq!(named().as_deref(), Some("middle"));
}

#[test]
fn a_prompt_that_was_taken_back_is_in_the_file_and_not_in_the_conversation() {
    let room = room();
    let mut log = room.store.create(Path::new(WS)).unwrap();
    say(&mut log, "before");
    log.append(&Entry::End { outcome: "ok", error: None }).unwrap();
    say(&mut log, "a mistake");
    say(&mut log, "its file");
    log.append(&Entry::Withdrawn { messages: 2 }).unwrap();
    log.append(&Entry::End { outcome: "interrupted", error: None }).unwrap();
    say(&mut log, "the right one");
    let file = fs::read_to_string(log.path()).unwrap();
    assert!(file.contains("a mistake"), "what was recorded stays");
    drop(log);
    assert_eq!(room.texts(), ["before", "the right one"]);
    let prompts = room.store.prompts(&room.latest()).unwrap();
    let told: Vec<_> = prompts.iter().map(|it| (it.text.as_str(), it.message)).collect();
    assert_eq!(told, [("before", 0), ("the right one", 3)]);
}

#[test]
fn no_file_takes_an_answer_or_a_result_out_of_the_conversation() {
    let mut messages = vec![
        Message::user("look"),
        Message { role: Role::Assistant, blocks: vec![Block::Text { text: "seen".into() }] },
        Message::user("more"),
    ];
    take_back(&mut messages, u64::MAX);
    assert_eq!(messages.len(), 2, "only what a person said");
    take_back(&mut messages, 1);
    assert_eq!(messages.len(), 2);
}

#[test]
fn a_name_of_another_shape_is_none_and_costs_nothing() {
    let room = room();
    let path = room.session(&["hello"]);
    append_raw(&path, b"{\"type\":\"name\",\"at\":\"x\",\"name\":5}\n");
    assert_eq!(room.store.overview(&room.latest()).unwrap().name, None);
    let opened = room.open();
    assert_eq!((opened.log.name(), opened.messages.len()), (None, 1));
    assert_eq!(notices(&opened).len(), 1, "it is said");
}

#[test]
fn a_session_is_found_by_its_name_and_searched_by_all_prompts() {
    let room = room();
    let mut log = room.store.create(Path::new(WS)).unwrap();
    say(&mut log, "first prompt");
    say(&mut log, "second about a walrus");
    log.append(&Entry::Name("The Parser")).unwrap();
    let id = log.id().to_owned();
    drop(log);
    room.session(&["another"]);
    let found = room.store.find_anywhere(Path::new(WS), "parser").unwrap();
    assert_eq!(found.id, id);
    assert!(room.store.said(&found, 1 << 20).unwrap().contains("second about a walrus"));
    let little = room.store.said(&found, 300).unwrap();
    assert!(!little.contains("walrus"), "{little}");
    let error = room.store.find_anywhere(Path::new(WS), "walrus").unwrap_err();
    assert!(matches!(error, SessionError::Unknown { .. }), "{error}");
}
