use super::{
    super::{
        super::key::{Code, Key, Typed},
        Facts, Level,
    },
    *,
};
use crate::{
    agent::{Event, Op, Outcome, Summary},
    message::{Arguments, ToolCall, Usage},
    tui::{
        earlier::Earlier,
        edge::Answer,
        found::Found,
        picker::{Choices, Then},
        view::region,
    },
};

fn state(width: usize) -> State {
    let facts = Facts {
        model: "p/m".to_owned(),
        effort: None,
        windows: Vec::new(),
        profile: "interactive".to_owned(),
        confinement: "no jail".to_owned(),
        level: Level::Open,
        session: None,
    };
    State::new(facts, width, 24)
}

fn enters(state: &mut State, text: &str) -> Vec<Effect> {
    state.typed(&Typed::Paste(text.to_owned()));
    state.typed(&Typed::Key(Key::plain(Code::Enter)))
}

fn rows(state: &mut State) -> Vec<String> {
    state.take_rows().iter().map(|row| row.text().trim_end().to_owned()).collect()
}

fn drawn(state: &State) -> Vec<String> {
    region(state).iter().map(|row| row.text().trim_end().to_owned()).collect()
}

fn done() -> Event {
    Event::Done(Box::new(Summary {
        turns: 1,
        ..Summary::unasked(Outcome::Ok, 0, std::time::Duration::ZERO)
    }))
}

#[test]
fn one_blank_row_stands_between_two_things() {
    let mut it = state(60);
    let mut all = Vec::new();
    enters(&mut it, "one");
    assert_eq!(drawn(&it)[..3], ["", "› one", ""]);
    it.event(Event::Text("First.".to_owned()));
    all.extend(rows(&mut it));
    it.event(done());
    all.extend(rows(&mut it));
    enters(&mut it, "two");
    assert_eq!(drawn(&it)[..2], ["› two", ""], "the blank row stands above it already");
    it.event(Event::Text("Second.".to_owned()));
    it.event(done());
    enters(&mut it, "/usage");
    it.say(Kind::Error, "no");
    all.extend(rows(&mut it));
    assert_eq!(drawn(&it)[..2], ["", "›  say what to do; /help lists commands and keys"]);
    enters(&mut it, "/theme");
    it.answered("* auto", "", false);
    all.extend(rows(&mut it));
    assert_eq!(drawn(&it)[0], "›  say what to do; /help lists commands and keys");
    assert_eq!(
        all,
        [
            "",
            "› one",
            "",
            "First.",
            "",
            "› two",
            "",
            "Second.",
            "",
            "› /usage",
            "  input: 0 tokens",
            "  output: 0 tokens",
            "  read from the cache: 0 tokens",
            "  written to the cache: 0 tokens",
            "  context: 0 tokens",
            "",
            "error: no",
            "",
            "› /theme",
            "  * auto",
            "",
        ]
    );
    // Where nothing was said, nothing stands apart.
    assert_eq!(drawn(&state(60)).len(), 2);
}

#[test]
fn an_answer_to_a_command_follows_it_and_breaks_between_words() {
    let mut it = state(24);
    enters(&mut it, "/authority");
    enters(&mut it, "/model  x");
    assert_eq!(rows(&mut it), [""; 0], "it is shown with its answer");
    it.answered("a sentence that is longer than a row", "", false);
    it.answered("    name   is set in", "", false);
    assert_eq!(
        rows(&mut it),
        [
            "› /authority",
            "  a sentence that is",
            "    longer than a row",
            "",
            "› /model x",
            "      name   is set in",
            "",
        ]
    );
    // What is chosen from a list is not answered by a text, and leaves its command behind.
    enters(&mut it, "/tree");
    let items = Vec::new();
    let choices = Choices { title: String::new(), items, first: 0, then: Then::Write };
    it.found(Found::Choices(choices));
    enters(&mut it, "x");
    it.typed(&Typed::Key(Key::plain(Code::Esc)));
    enters(&mut it, "/config");
    it.answered("a = 1", "", false);
    assert_eq!(rows(&mut it), ["› /config", "  a = 1", ""]);
}

#[test]
fn line_by_line_nothing_is_said_twice() {
    let mut it = state(60);
    it.plain = true;
    assert_eq!(it.line("go"), [Effect::Tell(Op::Submit("go".to_owned()))]);
    assert_eq!(it.line("also"), [Effect::Tell(Op::Steer("also".to_owned()))]);
    it.event(Event::Text("Yes.".to_owned()));
    it.event(Event::Asking { turn: 2 });
    it.event(done());
    // When it was told is news.
    assert_eq!(rows(&mut it), ["Yes.", "", "› also", ""]);
    it.line("/usage");
    assert_eq!(rows(&mut it)[0], "  input: 0 tokens");
    it.line("/help");
    let help = rows(&mut it).join("\n");
    assert!(help.contains("/usage") && help.contains("Ctrl-D: leave"), "{help}");
    assert!(!help.contains("Alt-") && !help.contains("Ctrl-R"), "the terminal edits the line");
    // The prompt of the start was not typed here.
    let mut it = state(60);
    it.plain = true;
    it.submit("start".to_owned());
    it.event(Event::Text("Yes.".to_owned()));
    it.event(done());
    assert_eq!(rows(&mut it), ["", "› start", "", "Yes.", ""]);
}

#[test]
fn a_conversation_that_is_gone_on_with_reads_as_it_did() {
    let arguments = Arguments::parse(&format!(r#"{{"command": "echo {}"}}"#, "x".repeat(200)));
    let call = ToolCall { id: "1".into(), name: "bash".into(), arguments };
    let history = [
        Message::user("do it"),
        Message {
            role: Role::Assistant,
            blocks: vec![Block::Text { text: "I look.".into() }, Block::Call(call)],
        },
        Message { role: Role::Assistant, blocks: vec![Block::Text { text: "Done.".into() }] },
        Message::user("and?"),
    ];
    let mut it = state(30);
    let facts = it.facts.clone();
    it.begin(facts, Earlier::of(&history, |_| {}), &["a notice".to_owned()]);
    assert_eq!(
        rows(&mut it),
        [
            "",
            "› do it",
            "",
            "I look.",
            "",
            "· called bash echo xxxxxxxxxx…",
            "",
            "Done.",
            "",
            "› and?",
            "",
            "! a notice",
        ]
    );
    // How long it is nobody has said yet.
    assert!(!drawn(&it).last().unwrap().contains("tokens"), "{:?}", drawn(&it));
    enters(&mut it, "/usage");
    assert!(rows(&mut it).contains(&"  context: known with the next".to_owned()));
    it.event(Event::Usage { usage: Usage::default(), cost: None, turn: 1 });
    assert!(drawn(&it).last().unwrap().contains("0 tokens"), "{:?}", drawn(&it));
}

#[test]
fn what_is_said_of_a_second_key_holds_until_another_one() {
    let mut it = state(60);
    it.typed(&Typed::Key(Key::ctrl('c')));
    assert!(drawn(&it).contains(&"Ctrl-C again leaves".to_owned()));
    it.typed(&Typed::Key(Key::plain(Code::Char('x'))));
    assert!(!drawn(&it).contains(&"Ctrl-C again leaves".to_owned()), "it would not");
    assert_eq!(it.typed(&Typed::Key(Key::ctrl('c'))), []);
}

#[test]
fn each_answer_stands_below_its_own_command() {
    let mut it = state(60);
    for text in ["/doctor", "/model", "/model p/x", "/tools"] {
        assert_eq!(enters(&mut it, text).len(), 1);
    }
    let answer = |to: &str, text: &str| Answer {
        to: to.to_owned(),
        text: text.to_owned(),
        ..Answer::default()
    };
    // The quick ones come first, and one that nobody asked for is nobody's.
    it.answer(answer("", "a notice"));
    it.answer(answer("/tools ", "bash"));
    it.answer(answer("/model p/x", "no such model"));
    it.not_begun("fork", "", "nothing to copy");
    it.answer(answer("/doctor ", "all is well"));
    assert!(it.is_moving(), "one answer is waited for");
    it.answer(answer("/model ", "p/m"));
    assert!(!it.is_moving());
    let all: Vec<String> = rows(&mut it).into_iter().filter(|row| !row.is_empty()).collect();
    assert_eq!(
        all,
        [
            "  a notice",
            "› /tools",
            "  bash",
            "› /model p/x",
            "  no such model",
            "error: nothing to copy",
            "› /doctor",
            "  all is well",
            "› /model",
            "  p/m",
        ]
    );
    // What was asked before another conversation answers nothing of it.
    enters(&mut it, "/doctor");
    it.begin(it.facts.clone(), Earlier::default(), &[]);
    enters(&mut it, "/tools");
    it.answer(answer("/doctor ", "all is well"));
    assert!(it.is_moving());
    it.answer(answer("/tools ", "bash"));
    assert!(!it.is_moving());
    let all: Vec<String> = rows(&mut it).into_iter().filter(|row| !row.is_empty()).collect();
    assert_eq!(all, ["  all is well", "› /tools", "  bash"]);
}
