use crate::{
    agent::{
        Event, Op,
        approval::{Hunk, Question},
    },
    tui::{
        key::Typed,
        state::{Effect, Facts, Level, State},
        view,
    },
};

use super::*;

fn facts() -> Facts {
    Facts {
        model: "p/m".to_owned(),
        effort: None,
        windows: Vec::new(),
        profile: "careful".to_owned(),
        confinement: "no jail · ~/x".to_owned(),
        level: Level::Open,
        session: None,
    }
}

fn question(command: &str) -> Question {
    Question {
        id: 7,
        tool: "bash".to_owned(),
        by: Vec::new(),
        needs: vec!["process/exec".to_owned()],
        why: "`approve` is `writes` (profile careful)".to_owned(),
        shows: vec![
            Shown::Text("command".to_owned(), command.to_owned()),
            Shown::Text("in".to_owned(), "/ws".to_owned()),
        ],
        always: Some("this very `bash` call".to_owned()),
        edits: Some(("command", command.to_owned())),
        note: None,
    }
}

fn ms(time: u64) -> Duration {
    Duration::from_millis(time)
}

/// A state whose question has been asked at 1 s and not been seen.
fn asked(question: Question, width: usize, height: usize) -> State {
    let mut state = State::new(facts(), width, height);
    for c in "go".chars() {
        state.typed(&Typed::Key(Key::plain(Code::Char(c))));
    }
    state.typed(&Typed::Key(Key::plain(Code::Enter)));
    state.at(ms(1000));
    state.event(Event::Approval(Box::new(question)));
    state.take_rows();
    state
}

/// The same when it has been seen long enough.
fn armed(question: Question) -> State {
    let mut state = asked(question, 80, 24);
    state.framed();
    state.written();
    state.at(ms(1300));
    state.quiet();
    assert!(!state.wants_quiet());
    state
}

fn press(state: &mut State, c: char) -> Vec<Effect> {
    state.typed(&Typed::Key(Key::plain(Code::Char(c))))
}

fn types(state: &mut State, text: &str) {
    for c in text.chars() {
        assert_eq!(press(state, c), []);
    }
}

fn code(state: &mut State, code: Code) -> Vec<Effect> {
    state.typed(&Typed::Key(Key::plain(code)))
}

fn screen(state: &State) -> Vec<String> {
    view::region(state).iter().map(|row| row.text().trim_end().to_owned()).collect()
}

fn tells(answer: Answer) -> Vec<Effect> {
    vec![Effect::Tell(Op::Approve { id: 7, answer })]
}

#[test]
fn a_key_at_the_question_answers_it() {
    let yes = |key| {
        let mut state = armed(question("ls"));
        press(&mut state, key)
    };
    assert_eq!(yes('y'), tells(Answer::Once));
    assert_eq!(yes('Y'), tells(Answer::Once));
    assert_eq!(yes('a'), tells(Answer::Always));
    for other in ['x', ' ', 'j', '1'] {
        assert_eq!(yes(other), [], "{other}");
    }
    let mut state = armed(question("ls"));
    for key in [Code::Enter, Code::Tab, Code::Backspace, Code::Delete, Code::Left] {
        assert_eq!(code(&mut state, key), [], "{key:?}");
    }
    assert_eq!(state.typed(&Typed::Key(Key::plain(Code::Char('y')).with_alt())), []);
    assert_eq!(state.typed(&Typed::Key(Key::ctrl('y'))), []);
    assert_eq!(press(&mut state, 'y'), tells(Answer::Once), "control");
    assert!(state.open_question().is_none());
}

#[test]
fn a_key_that_came_before_the_question_was_seen_does_not_answer_it() {
    // It is not on the screen.
    let mut state = asked(question("ls"), 80, 24);
    assert_eq!(press(&mut state, 'y'), []);
    // A frame from before is written; the one with the question is not yet.
    state.written();
    state.at(ms(2000));
    state.quiet();
    assert_eq!(press(&mut state, 'a'), []);
    state.framed();
    state.at(ms(2500));
    state.quiet();
    assert_eq!(press(&mut state, 'y'), [], "it is on its way");
    state.written();
    // It is seen, for too short a time.
    state.at(ms(2799));
    state.quiet();
    assert_eq!(press(&mut state, 'y'), []);
    // Somebody types: the time begins anew.
    state.at(ms(3098));
    state.quiet();
    assert_eq!(press(&mut state, 'y'), []);
    // Long enough, and something waits to be read.
    state.at(ms(9000));
    assert_eq!(press(&mut state, 'y'), [], "nobody has looked whether something waits");
    assert_eq!(screen(&state).iter().filter(|row| row.contains("a moment: y yes")).count(), 1);
    // What was typed is where it was meant to go.
    assert!(screen(&state).iter().any(|row| row.contains("being written: yayyyy")));
    state.at(ms(10_000));
    state.quiet();
    assert_eq!(press(&mut state, 'y'), tells(Answer::Once), "control");
}

#[test]
fn a_pause_within_a_sentence_does_not_make_its_next_letter_an_answer() {
    let write = |state: &mut State, text: &str| {
        text.chars().flat_map(|c| press(state, c)).collect::<Vec<_>>()
    };
    // It was begun before the question came, or once it was there.
    for is_begun in [true, false] {
        let mut state = asked(question("ls"), 80, 24);
        if is_begun {
            state.event(Event::Withdrawn { id: 7 });
            state.take_rows();
            write(&mut state, "take ");
            state.event(Event::Approval(Box::new(question("ls"))));
        }
        state.framed();
        state.written();
        if !is_begun {
            state.at(ms(1100));
            write(&mut state, "take ");
        }
        state.at(ms(1900));
        state.quiet();
        assert_eq!(write(&mut state, "a "), [], "{is_begun}");
        assert!(screen(&state).iter().any(|row| row.contains("being written: take a")));
        state.at(ms(2900));
        state.quiet();
        assert_eq!(press(&mut state, 'y'), tells(Answer::Once), "control");
    }
}

#[test]
fn keys_that_come_together_and_pastes_do_not_answer() {
    let mut state = armed(question("ls"));
    state.alone(false);
    assert_eq!(press(&mut state, 'y'), []);
    assert_eq!(press(&mut state, 'a'), []);
    assert_eq!(state.typed(&Typed::Paste("y".to_owned())), []);
    assert!(state.open_question().is_some());
    assert!(screen(&state).iter().any(|row| row.contains("being written: y")), "it is not lost");
    state.alone(true);
    assert_eq!(press(&mut state, 'y'), tells(Answer::Once), "control");
}

#[test]
fn no_can_say_why() {
    let mut state = armed(question("ls"));
    assert_eq!(press(&mut state, 'n'), []);
    types(&mut state, "yes but no");
    assert!(screen(&state).iter().any(|row| row.contains("› yes but no")));
    assert_eq!(code(&mut state, Code::Enter), tells(Answer::Deny(Some("yes but no".to_owned()))));
    let mut state = armed(question("ls"));
    press(&mut state, 'n');
    assert_eq!(code(&mut state, Code::Enter), tells(Answer::Deny(None)));
    // One goes back.
    let mut state = armed(question("ls"));
    press(&mut state, 'n');
    types(&mut state, "x");
    assert_eq!(code(&mut state, Code::Esc), []);
    assert_eq!(press(&mut state, 'y'), tells(Answer::Once));
}

#[test]
fn what_is_written_in_its_place_is_what_is_sent() {
    let mut state = armed(question("rm -rf build"));
    assert_eq!(press(&mut state, 'e'), []);
    state.typed(&Typed::Key(Key::ctrl('w')));
    types(&mut state, "out");
    state.typed(&Typed::Paste("\u{202e}; ls".repeat(300)));
    assert!(!screen(&state).iter().any(|row| row.contains("[pasted")), "all of it is seen");
    let expected = format!("rm -rf out{}", "\\u{202e}; ls".repeat(300));
    assert_eq!(code(&mut state, Code::Enter), tells(Answer::Edit(expected)));
    // A tab is what it was.
    let mut state = armed(question("make -f- <<E\nall:\n\ttouch a\nE"));
    press(&mut state, 'e');
    state.typed(&Typed::Paste("\n\tx".to_owned()));
    let expected = "make -f- <<E\nall:\n\ttouch a\nE\n\tx".to_owned();
    assert_eq!(code(&mut state, Code::Enter), tells(Answer::Edit(expected)));
    // Nothing is no command.
    let mut state = armed(question("ls"));
    press(&mut state, 'e');
    state.typed(&Typed::Key(Key::ctrl('u')));
    assert_eq!(code(&mut state, Code::Enter), []);
    assert!(state.open_question().is_some());
    let mut fixed = question("ls");
    (fixed.edits, fixed.always) = (None, None);
    let mut state = armed(fixed);
    assert_eq!((press(&mut state, 'e'), press(&mut state, 'a')), (vec![], vec![]));
    assert!(state.open_question().is_some());
}

#[test]
fn it_can_be_interrupted_and_left_and_is_gone_then() {
    let mut state = armed(question("ls"));
    assert_eq!(code(&mut state, Code::Esc), []);
    assert_eq!(code(&mut state, Code::Esc), [Effect::Tell(Op::Interrupt)]);
    state.event(Event::Withdrawn { id: 6 });
    assert!(state.open_question().is_some(), "that was another one");
    state.event(Event::Withdrawn { id: 7 });
    assert!(state.open_question().is_none());
    let mut state = armed(question("ls"));
    press(&mut state, 'n');
    assert_eq!(state.typed(&Typed::Key(Key::ctrl('c'))), [Effect::Tell(Op::Interrupt)]);
    assert_eq!(state.typed(&Typed::Key(Key::ctrl('c'))), [Effect::Quit]);
    let mut state = armed(question("ls"));
    state.agent_is_gone();
    assert!(state.open_question().is_none());
}

#[test]
fn the_question_shows_all_of_it_and_where_it_would_run() {
    let mut it = question("echo a\u{202e}b\n\trm x");
    it.by = vec!["sub-agent: tidy up".to_owned()];
    let state = armed(it);
    let mut rows = screen(&state);
    // What happens, with a wheel that turns.
    assert!(rows.remove(9).contains("bash waits for your answer"));
    assert_eq!(
        rows,
        [
            "? may bash run, called by sub-agent: tidy up?",
            "  command:",
            "  │ echo a\\u{202e}b",
            "  │ ⇥   rm x",
            "  in: /ws",
            "  1 character that cannot be seen is shown by its number",
            "  needs process/exec; `approve` is `writes` (profile careful)",
            "  always would cover this very `bash` call",
            "y yes · n no · a always · e change",
            "no jail · ~/x · p/m · 0 tokens · profile careful",
        ]
    );
}

#[test]
fn a_question_at_three_widths() {
    let at = |width| {
        let mut it = question("echo a\u{202e}b && rm -r build");
        it.shows.push(Shown::Change(Change {
            path: "/ws/a".into(),
            is_new: false,
            hunks: vec![Hunk {
                old_line: 3,
                new_line: 3,
                old: b"two\n".to_vec(),
                new: b"2\n".to_vec(),
            }],
            notes: Vec::new(),
        }));
        let mut state = asked(it, width, 40);
        state.framed();
        state.written();
        state.at(ms(1300));
        state.quiet();
        let mut rows = screen(&state);
        // A wheel that turns.
        rows.retain(|row| !row.contains("waits for"));
        rows
    };
    assert_eq!(
        at(20),
        [
            "? may bash run?",
            "  command:",
            "  │ echo a\\u{202e}b",
            "  ↪ && rm -r build",
            "  in: /ws",
            "  changes: /ws/a",
            "    3 - two",
            "    3 + 2",
            "  1 character that",
            "  cannot be seen is",
            "  shown by its",
            "  number",
            "  needs",
            "  process/exec;",
            "  `approve` is",
            "  `writes` (profile",
            "  careful)",
            "  always would cover",
            "  this very `bash`",
            "  call",
            "y yes · n no · a",
            "always · e change",
            "no jail · ~/x · p/m",
        ]
    );
    for width in [80, 200] {
        assert_eq!(
            at(width),
            [
                "? may bash run?",
                "  command:",
                "  │ echo a\\u{202e}b && rm -r build",
                "  in: /ws",
                "  changes: /ws/a",
                "    3 - two",
                "    3 + 2",
                "  1 character that cannot be seen is shown by its number",
                "  needs process/exec; `approve` is `writes` (profile careful)",
                "  always would cover this very `bash` call",
                "y yes · n no · a always · e change",
                "no jail · ~/x · p/m · 0 tokens · profile careful",
            ]
        );
    }
}

#[test]
fn a_long_one_is_scrolled_and_nothing_of_it_is_left_out() {
    let lines: Vec<String> = (1..=200).map(|n| format!("echo line-{n}-end")).collect();
    let mut state = armed(question(&lines.join("\n")));
    assert!(screen(&state).iter().any(|row| row.contains("rows 1-") && row.contains("PageDown")));
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..40 {
        let rows = screen(&state);
        assert!(rows.len() < 24 && rows.last().unwrap().starts_with("no jail"), "{rows:?}");
        seen.extend(rows);
        assert_eq!(code(&mut state, Code::PageDown), []);
    }
    for line in &lines {
        assert!(seen.contains(&format!("  │ {line}")), "{line}");
    }
    assert!(screen(&state).iter().any(|row| row.contains("always would cover")), "its end");
    code(&mut state, Code::Home);
    assert_eq!(screen(&state)[0], "? may bash run?");
    code(&mut state, Code::End);
    code(&mut state, Code::PageUp);
    assert_eq!(press(&mut state, 'y'), tells(Answer::Once));
}

#[test]
fn a_change_of_a_file_is_shown_by_lines() {
    let mut it = question("");
    it.tool = "edit".to_owned();
    it.shows = vec![Shown::Change(Change {
        path: "/ws/a".into(),
        is_new: false,
        hunks: vec![
            Hunk { old_line: 3, new_line: 3, old: b"two\r\n".to_vec(), new: b"2\n".to_vec() },
            Hunk { old_line: 9, new_line: 9, old: Vec::new(), new: b"end".to_vec() },
        ],
        notes: vec!["a note".to_owned()],
    })];
    let rows = screen(&armed(it));
    assert_eq!(
        rows[1..9],
        [
            "  changes: /ws/a",
            "  a note",
            "    3 - two\\u{d}",
            "    3 + 2",
            "  ⋯",
            "    9 + end",
            "        (no line end here)",
            "  1 character that cannot be seen is shown by its number",
        ]
    );
}

#[test]
fn every_size_has_the_question_the_keys_and_the_confinement() {
    for (width, height) in [(1, 1), (2, 3), (5, 4), (20, 5), (20, 24), (80, 24), (200, 60)] {
        let mut state = asked(question(&"x y ".repeat(300)), width, height);
        state.framed();
        state.written();
        state.at(ms(2000));
        state.quiet();
        for key in ['n', 'x'] {
            let rows = view::region(&state);
            assert!(rows.len() <= height.saturating_sub(1).max(1), "{width}x{height}");
            assert!(rows.iter().all(|row| row.width() <= width), "{width}x{height}: {rows:?}");
            let text: Vec<String> = rows.iter().map(Line::text).collect();
            if width >= 20 && height >= 5 {
                assert!(text.iter().any(|row| row.contains("no jail")), "{text:?}");
                let keys = if key == 'n' { "y yes" } else { "no; say wh" };
                assert!(text.iter().any(|row| row.contains(keys)), "{width}x{height}: {text:?}");
            }
            // Every key is seen where there is room for it, beside what says which rows are.
            if key == 'n' && width >= 20 && height >= 20 {
                let text: Vec<&str> = text.iter().map(|row| row.trim()).collect();
                let text = text.join(" ");
                let all = ["y yes", "n no", "a always", "e change"];
                assert!(all.iter().all(|key| text.contains(key)), "{width}x{height}: {text}");
                assert!(width > 20 || text.contains("1-"), "control: it is scrolled: {text}");
            }
            press(&mut state, key);
            code(&mut state, Code::PageDown);
        }
    }
}

#[test]
fn lines_answer_where_there_are_no_keys() {
    let asking = Asking::new(question("ls"), false);
    assert_eq!(asking.line("y"), Ok(Answer::Once));
    assert_eq!(asking.line("a"), Ok(Answer::Always));
    assert_eq!(asking.line("n"), Ok(Answer::Deny(None)));
    assert_eq!(asking.line("n not now"), Ok(Answer::Deny(Some("not now".to_owned()))));
    assert_eq!(asking.line("e ls -l"), Ok(Answer::Edit("ls -l".to_owned())));
    for other in ["", "yes", "y please", "e", "a b", "!ls"] {
        assert!(asking.line(other).is_err(), "{other}");
    }
    // A line that was there before the question says what it said.
    let mut state = asked(question("ls"), 80, 24);
    assert_eq!(state.line_to_question("y"), None);
    let mut state = armed(question("ls"));
    assert_eq!(state.line_to_question("yes"), Some(Vec::new()));
    assert_eq!(state.line_to_question("y"), Some(tells(Answer::Once)));
}

#[test]
fn a_command_of_the_persons_own_is_told_or_not() {
    let enters = |text: &str| {
        let mut state = State::new(facts(), 80, 24);
        for c in text.chars() {
            press(&mut state, c);
        }
        let effects = code(&mut state, Code::Enter);
        (effects, state)
    };
    let shell =
        |command: &str, tells| vec![Effect::Tell(Op::Shell { command: command.to_owned(), tells })];
    assert_eq!(enters("!ls -l").0, shell("ls -l", true));
    assert_eq!(enters("!!ls").0, shell("ls", false));
    assert_eq!(enters(" !ls").0, [Effect::Tell(Op::Submit(" !ls".to_owned()))], "it is a prompt");
    for nothing in ["!", "!!", "! "] {
        let (effects, mut state) = enters(nothing);
        assert!(effects.is_empty() && state.take_rows()[0].text().contains("a command follows"));
    }
    // While the agent works it stays to be sent later, however it is sent.
    let (_, mut state) = enters("go");
    types(&mut state, "!ls");
    for key in [Code::Enter, Code::Tab] {
        assert_eq!(code(&mut state, key), []);
        assert!(state.take_rows()[0].text().contains("only while the agent is idle"));
    }
    let (_, mut state) = enters("!sleep 60");
    code(&mut state, Code::Esc);
    assert_eq!(code(&mut state, Code::Esc), [Effect::Tell(Op::TakeBack)]);
}
