use serde_json::{Value, json};

use crate::{
    agent::{Compacted, Denied, Event, Fault, FaultKind, Outcome, Summary, compact::Reason},
    message::{Arguments, Message, Role},
};

use super::*;

fn facts() -> Facts {
    Facts {
        model: "p/m".to_owned(),
        effort: None,
        windows: vec![("p/m".to_owned(), Some(1000)), ("p/n".to_owned(), Some(240))],
        profile: "interactive".to_owned(),
        confinement: "no jail · ~/x".to_owned(),
        level: Level::Open,
        session: Some("abc".to_owned()),
    }
}

fn state() -> State {
    State::new(facts(), 80, 24)
}

fn key(code: Code) -> Typed {
    Typed::Key(Key::plain(code))
}

fn ctrl(c: char) -> Typed {
    Typed::Key(Key::ctrl(c))
}

fn types(state: &mut State, text: &str) {
    for c in text.chars() {
        assert!(state.typed(&key(Code::Char(c))).is_empty());
    }
}

fn enters(state: &mut State, text: &str) -> Vec<Effect> {
    types(state, text);
    state.typed(&key(Code::Enter))
}

fn rows(state: &mut State) -> Vec<String> {
    state.take_rows().iter().map(|row| row.text().trim_end().to_owned()).collect()
}

fn done(outcome: Outcome) -> Event {
    Event::Done(Box::new(Summary { turns: 1, ..Summary::unasked(outcome, 0, Duration::ZERO) }))
}

/// An end that tells more.
fn ended(outcome: Outcome, tell: impl FnOnce(&mut Summary)) -> Event {
    let Event::Done(mut summary) = done(outcome) else { unreachable!() };
    tell(&mut summary);
    Event::Done(summary)
}

fn started(id: &str, name: &str, arguments: Value) -> Event {
    let Value::Object(map) = arguments else { unreachable!() };
    Event::ToolStarted { id: id.into(), name: name.into(), arguments: Arguments::Object(map) }
}

fn finished(id: &str, name: &str, text: &str) -> Event {
    Event::ToolFinished {
        id: id.into(),
        name: name.into(),
        text: text.into(),
        is_error: false,
        record: Value::Null,
    }
}

#[test]
fn a_prompt_is_sent_shown_once_and_answered() {
    let mut it = state();
    assert_eq!(enters(&mut it, "hi"), [Effect::Tell(Op::Submit("hi".into()))]);
    // As long as nothing came of it, it is not final.
    assert!(rows(&mut it).is_empty() && it.is_working());
    it.event(Event::Asking { turn: 1 });
    it.event(Event::Text("One **two**.\n\nThr".into()));
    assert_eq!(rows(&mut it), ["", "› hi", "", "One two."]);
    it.event(Event::Text("ee".into()));
    assert!(rows(&mut it).is_empty());
    assert!(it.event(done(Outcome::Ok)).is_empty());
    assert_eq!(rows(&mut it), ["", "Three", ""]);
    assert!(!it.is_working() && !it.is_moving());
    // Nothing is sent for nothing.
    assert!(enters(&mut it, "  ").is_empty());
}

#[test]
fn two_escapes_interrupt_and_one_does_not() {
    let mut it = state();
    enters(&mut it, "hi");
    assert!(it.typed(&key(Code::Esc)).is_empty());
    it.at(Duration::from_secs(3));
    assert!(it.typed(&key(Code::Esc)).is_empty(), "too late for the first");
    // What returns to the editor is taken back: the model must not have it as well.
    assert_eq!(it.typed(&key(Code::Esc)), [Effect::Tell(Op::TakeBack)]);
    it.typed(&key(Code::Esc));
    assert!(it.typed(&key(Code::Esc)).is_empty(), "asked for once");
    it.event(ended(Outcome::Interrupted, |it| it.withdrawn = true));
    // No word came of it: it is back in the editor and nowhere else.
    assert_eq!(it.composer.text(), "hi");
    assert_eq!(rows(&mut it), ["· interrupted; the prompt was taken back"]);
}

#[test]
fn a_prompt_that_something_came_of_stays_in_the_transcript() {
    let mut it = state();
    enters(&mut it, "hi");
    it.event(Event::Text("part".into()));
    it.event(done(Outcome::Interrupted));
    assert_eq!(it.composer.text(), "");
    assert_eq!(rows(&mut it), ["", "› hi", "", "part", "", "· interrupted"]);
}

#[test]
fn ctrl_c_empties_interrupts_and_leaves_when_it_comes_twice() {
    let mut it = state();
    types(&mut it, "draft");
    assert!(it.typed(&ctrl('c')).is_empty());
    assert!(it.composer.is_empty());
    it.typed(&key(Code::Up));
    assert_eq!(it.composer.text(), "draft", "it can be had again");
    it.typed(&ctrl('u'));
    assert!(it.typed(&ctrl('c')).is_empty(), "the first after another key");
    assert_eq!(it.typed(&ctrl('c')), [Effect::Quit]);
    let mut it = state();
    enters(&mut it, "hi");
    assert_eq!(it.typed(&ctrl('c')), [Effect::Tell(Op::TakeBack)]);
    assert_eq!(it.typed(&ctrl('c')), [Effect::Quit]);
    let mut it = state();
    enters(&mut it, "hi");
    it.event(Event::Text("part".into()));
    assert_eq!(it.typed(&ctrl('c')), [Effect::Tell(Op::Interrupt)], "something came of it");
    let mut it = state();
    types(&mut it, "x");
    assert!(it.typed(&ctrl('d')).is_empty());
    it.typed(&key(Code::Backspace));
    assert_eq!(it.typed(&ctrl('d')), [Effect::Quit]);
}

#[test]
fn what_is_said_while_it_works_is_told_and_what_waits_is_sent() {
    let mut it = state();
    enters(&mut it, "start");
    assert_eq!(enters(&mut it, "also"), [Effect::Tell(Op::Steer("also".into()))]);
    types(&mut it, "later");
    assert!(it.typed(&key(Code::Tab)).is_empty());
    assert_eq!((it.steering.len(), it.next.len()), (1, 1));
    it.event(Event::Asking { turn: 2 });
    assert_eq!(rows(&mut it), ["", "› start", "", "› also", ""]);
    assert_eq!(it.event(done(Outcome::Ok)), [Effect::Tell(Op::Submit("later".into()))]);
    assert!(it.is_working() && it.next.is_empty());
}

#[test]
fn what_was_not_delivered_comes_back() {
    let mut it = state();
    enters(&mut it, "start");
    it.event(Event::Text("x".into()));
    enters(&mut it, "also");
    types(&mut it, "later");
    it.typed(&key(Code::Tab));
    types(&mut it, "draft");
    it.event(ended(Outcome::Interrupted, |it| it.undelivered = vec!["also".to_owned()]));
    assert_eq!(it.composer.text(), "also\nlater\ndraft");
    assert!(it.steering.is_empty() && it.next.is_empty());
}

#[test]
fn what_comes_back_stands_in_the_order_in_which_it_was_said() {
    let mut it = state();
    enters(&mut it, "start");
    enters(&mut it, "also");
    types(&mut it, "later");
    it.typed(&key(Code::Tab));
    types(&mut it, "draft");
    it.event(ended(Outcome::Interrupted, |it| {
        it.undelivered = vec!["also".to_owned()];
        it.withdrawn = true;
    }));
    assert_eq!(it.composer.text(), "start\nalso\nlater\ndraft");
    // What the model has stays where it was said, and is not there twice.
    let mut it = state();
    enters(&mut it, "start");
    it.event(done(Outcome::Interrupted));
    assert_eq!(it.composer.text(), "");
    assert_eq!(rows(&mut it), ["", "› start", "", "· interrupted"]);
}

#[test]
fn a_hint_beside_an_error_is_no_second_error() {
    let mut it = state();
    it.answered("", "kli: it is there\nhint: name another\nkli: and this", true);
    assert_eq!(
        rows(&mut it),
        ["error: it is there", "· hint: name another", "error: and this", ""]
    );
}

#[test]
fn calls_run_and_finish_and_the_last_result_unfolds() {
    let mut it = state();
    enters(&mut it, "go");
    it.event(started("1", "bash", json!({"command": "make"})));
    it.event(Event::ToolOutput { id: "1".into(), text: "x\n".repeat(100_000) });
    assert!(it.work.as_ref().unwrap().tools[0].output.len() <= 4096, "the end is enough");
    it.at(Duration::from_secs(5));
    let text: String = (1..=30).map(|n| format!("row {n}")).collect::<Vec<_>>().join("\n");
    it.event(finished("1", "bash", &text));
    let shown = rows(&mut it);
    assert!(shown.contains(&"✓ bash make · 5 s".to_owned()), "{shown:?}");
    assert!(!shown.contains(&"  row 3".to_owned()));
    it.typed(&ctrl('o'));
    assert!(rows(&mut it).contains(&"  row 3".to_owned()));
    it.typed(&ctrl('o'));
    assert!(rows(&mut it).is_empty() && it.hint.is_some());
}

#[test]
fn denials_failures_and_retries_are_said() {
    let mut it = state();
    enters(&mut it, "go");
    let denied = Denied {
        tool: "write".into(),
        atom: "file/write".into(),
        detail: "not under the profile".into(),
    };
    it.event(Event::Denied { id: "1".into(), denied });
    it.event(Event::Retrying {
        attempt: 1,
        of: 4,
        after: Duration::from_millis(500),
        reason: "busy".into(),
    });
    assert_eq!(it.work.as_ref().unwrap().doing, "retry 1 of 4 in 0.5 s");
    let Event::Done(mut summary) = done(Outcome::Error) else { unreachable!() };
    summary.fault = Some(Fault { kind: FaultKind::Network, message: "no way \u{1b}[2J".into() });
    it.event(Event::Done(summary));
    let shown = rows(&mut it);
    assert!(shown.contains(&"! denied write: not under the profile".to_owned()), "{shown:?}");
    assert!(shown.contains(&"! busy".to_owned()) && shown.contains(&"error: no way".to_owned()));
    assert!(shown.contains(&"› go".to_owned()), "it failed, it is not lost");
}

#[test]
fn commands_are_asked_where_they_can_be() {
    let mut it = state();
    assert_eq!(enters(&mut it, "/authority"), [Effect::Ask("authority", String::new())]);
    it.answered("authority: none\n\u{1b}[2Jx", "kli: a note", false);
    assert_eq!(rows(&mut it), ["› /authority", "  authority: none", "  x", "· a note", ""]);
    assert_eq!(enters(&mut it, "/resume 12"), [Effect::Begin("resume", "12".into())]);
    assert!(enters(&mut it, "/nope").is_empty());
    assert_eq!(it.composer.text(), "/nope", "it stays to be mended");
    it.typed(&ctrl('u'));
    enters(&mut it, "work");
    rows(&mut it);
    assert!(enters(&mut it, "/clear").is_empty());
    assert!(rows(&mut it)[0].contains("interrupt this one first"));
    assert_eq!(enters(&mut it, "/doctor"), [Effect::Ask("doctor", String::new())]);
    assert_eq!(enters(&mut it, "/quit"), [Effect::Quit]);
    // A path is a prompt.
    let mut it = state();
    assert_eq!(enters(&mut it, "/etc/hosts"), [Effect::Tell(Op::Submit("/etc/hosts".into()))]);
}

#[test]
fn tab_completes_as_far_as_it_is_certain() {
    for (before, after) in
        [("/au", "/authority"), ("/con", "/con"), ("/res", "/resume "), ("x", "x")]
    {
        let mut it = state();
        types(&mut it, before);
        it.typed(&key(Code::Tab));
        assert_eq!(it.composer.text(), after);
    }
}

#[test]
fn usage_adds_up() {
    let mut it = state();
    let usage = Usage { input_tokens: 100, output_tokens: 20, ..Usage::default() };
    it.event(Event::Usage { turn: 1, usage, cost: None });
    it.event(Event::Usage { turn: 2, usage, cost: None });
    enters(&mut it, "/usage");
    let shown = rows(&mut it);
    assert!(shown.contains(&"  input: 200 tokens".to_owned()), "{shown:?}");
    assert!(shown.contains(&"  context: 120 tokens of 1000".to_owned()), "{shown:?}");
}

#[test]
fn another_conversation_shows_what_was_said() {
    let mut it = state();
    let call = Message {
        role: Role::Assistant,
        blocks: vec![
            crate::message::Block::Text { text: "# Yes".into() },
            crate::message::Block::Call(crate::message::ToolCall {
                id: "1".into(),
                name: "read".into(),
                arguments: Arguments::parse(r#"{"path": "a"}"#),
            }),
        ],
    };
    let mut history = vec![Message::user("old"); 25];
    history.extend([Message::user("do it"), call]);
    it.begin(facts(), Earlier::of(&history, |_| {}), &["mended".to_owned()]);
    let shown = rows(&mut it);
    assert!(shown[0].contains("7 earlier messages are not shown"), "{shown:?}");
    for row in ["› do it", "Yes", "· called read a", "! mended"] {
        assert!(shown.contains(&row.to_owned()), "{row}: {shown:?}");
    }
    it.typed(&key(Code::Up));
    assert_eq!(it.composer.text(), "do it");
}

#[test]
fn leaving_says_what_was_not_sent() {
    let mut it = state();
    enters(&mut it, "start");
    types(&mut it, "later");
    it.typed(&key(Code::Tab));
    it.leaving();
    assert!(rows(&mut it).contains(&"· not sent: later".to_owned()));
    assert!(it.event(done(Outcome::Ok)).is_empty());
}

#[test]
fn what_the_end_came_before_is_sent_as_the_next_prompt() {
    let mut it = state();
    enters(&mut it, "start");
    it.event(Event::Text("x".into()));
    enters(&mut it, "also");
    types(&mut it, "later");
    it.typed(&key(Code::Tab));
    let end = ended(Outcome::Ok, |it| it.undelivered = vec!["also".to_owned()]);
    assert_eq!(it.event(end), [Effect::Tell(Op::Submit("also".into()))]);
    assert_eq!((it.steering.len(), it.next.as_slice()), (0, &["later".to_owned()][..]));
    assert_eq!(it.event(done(Outcome::Ok)), [Effect::Tell(Op::Submit("later".into()))]);
}

#[test]
fn what_comes_after_the_end_is_a_prompt_and_is_not_sent_twice() {
    for outcome in [Outcome::Ok, Outcome::Error] {
        let mut it = state();
        enters(&mut it, "start");
        it.event(Event::Text("x".into()));
        enters(&mut it, "also");
        rows(&mut it);
        assert!(it.event(done(outcome)).is_empty());
        assert!(it.is_working() && it.composer.is_empty() && it.steering.is_empty());
        it.event(Event::Asking { turn: 1 });
        assert_eq!(rows(&mut it).iter().filter(|row| **row == "› also").count(), 1);
    }
}

#[test]
fn what_goes_along_with_a_request_that_is_repeated_is_no_prompt_of_its_own() {
    let mut it = state();
    enters(&mut it, "start");
    let (after, reason) = (Duration::from_secs(1), "busy".to_owned());
    it.event(Event::Retrying { attempt: 1, of: 4, after, reason });
    enters(&mut it, "also");
    it.event(Event::Text("Both.".into()));
    it.event(done(Outcome::Ok));
    assert!(!it.is_working() && it.steering.is_empty());
    assert!(rows(&mut it).contains(&"› also".to_owned()));
}

#[test]
fn a_fallback_is_said_and_stands_in_the_footer_until_the_next_prompt() {
    let mut it = state();
    enters(&mut it, "start");
    it.event(Event::Asking { turn: 1 });
    let (from, to) = ("p/m".to_owned(), "p/n".to_owned());
    it.event(Event::FellBack { from, to, reason: "`p/m` is overloaded".to_owned() });
    let said = "! `p/m` is overloaded; `p/n` is asked in the place of `p/m`";
    assert!(rows(&mut it).contains(&said.to_owned()));
    let usage = Usage { input_tokens: 100, output_tokens: 20, ..Usage::default() };
    it.event(Event::Usage { turn: 1, usage, cost: None });
    it.event(ended(Outcome::Ok, |it| it.model = Some("p/n".to_owned())));
    let footer = |it: &State| super::super::view::region(it).last().unwrap().text();
    assert!(footer(&it).contains("p/n · 50 % of context"), "{}", footer(&it));
    enters(&mut it, "again");
    it.event(Event::Asking { turn: 1 });
    assert!(footer(&it).contains("p/m · 12 % of context"), "{}", footer(&it));
}

#[test]
fn a_conversation_is_compacted_now_or_at_the_next_boundary() {
    let mut it = state();
    let op = |focus: Option<&str>| Effect::Tell(Op::Compact { focus: focus.map(str::to_owned) });
    assert_eq!(enters(&mut it, "/compact the tests"), [op(Some("the tests"))]);
    assert!(it.is_working());
    it.event(Event::Compacted(Compacted {
        reason: Reason::Asked,
        before: 900,
        after: 90,
        trimmed: 0,
        summarised: 7,
        summary: Some("short".to_owned()),
    }));
    it.event(done(Outcome::Ok));
    assert!(!it.is_working());
    let said =
        "· the conversation was compacted from about 900 to 90 tokens (7 messages summarised)";
    let shown = rows(&mut it).join(" ");
    assert!(shown.replace("  ", " ").contains(&said[..70]), "{shown}");
    assert_eq!(it.context, Some(90));
    enters(&mut it, "work");
    assert_eq!(enters(&mut it, "/compact"), [op(None)]);
    assert!(it.hint.is_some() && it.steering.is_empty());
}

#[test]
fn the_cost_adds_up_and_what_is_unknown_is_said() {
    let mut it = state();
    let usage = Usage { input_tokens: 100, output_tokens: 20, ..Usage::default() };
    let cost = Money::parse("0.25");
    enters(&mut it, "one");
    it.event(Event::Usage { turn: 1, usage, cost });
    assert_eq!(it.spent.cost().unwrap(), "0.25");
    // The end counts what sub-agents used as well.
    let twice = Usage { input_tokens: 200, output_tokens: 40, ..Usage::default() };
    it.event(ended(Outcome::Ok, |it| (it.usage, it.cost) = (twice, Money::parse("0.5"))));
    assert_eq!((it.spent.cost().unwrap().as_str(), it.spent.usage), ("0.5", twice));
    enters(&mut it, "two");
    it.event(Event::Usage { turn: 1, usage, cost: None });
    assert_eq!(it.spent.cost().unwrap(), "0.5 or more");
    enters(&mut it, "/usage");
    assert!(rows(&mut it).contains(&"  cost: 0.5 or more".to_owned()));
    let footer = super::super::view::region(&it).last().unwrap().text();
    assert!(footer.contains("cost 0.5 or more"), "{footer}");
}
