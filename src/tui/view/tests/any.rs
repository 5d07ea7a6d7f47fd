//! States that nobody thought of, at every size: no crash, and nothing that is drawn or emitted is
//! wider than the terminal or drives it.

use proptest::prelude::*;

use super::*;
use crate::agent::{Outcome, Summary};

/// Pieces that texts are made of: what terminals give other widths, what Markdown takes for
/// structure, and what would drive a terminal.
const PIECES: [&str; 34] = [
    "word ",
    "漢字",
    "👩‍👩‍👧",
    "⚠\u{fe0f}",
    "🇩🇪",
    "👍🏽",
    "1\u{fe0f}\u{20e3}",
    "e\u{301}\u{301}",
    "\t",
    "\n",
    "\n\n",
    "\r",
    "- ",
    "> ",
    "1. ",
    "# ",
    "| a | 漢 |\n|---|--:|\n| x | ",
    " | ",
    "```rs\n",
    "\n```\n",
    "`",
    "**",
    "_",
    "[x](http://e/",
    ")",
    "<b>",
    "&#27;[2J",
    "\u{1b}[31m",
    "\u{1b}]0;t\u{7}",
    "\u{9b}2J",
    "\u{202e}",
    "\u{200d}",
    "\u{200b}",
    "averyveryverylongwordwithoutanyblank",
];

fn text() -> impl Strategy<Value = String> {
    proptest::collection::vec(proptest::sample::select(PIECES.to_vec()), 0..30)
        .prop_map(|pieces| pieces.concat())
}

#[derive(Clone, Debug)]
enum Step {
    Say(String),
    Think(String),
    Call(String),
    Print(String),
    Result(String, bool),
    Edit(String, String),
    Notice(String),
    Type(String),
    Paste(String),
    Press(Key),
    Answer(String),
    Ends(bool),
    Size(usize, usize),
    Later(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let keys = [
        Key::plain(Code::Enter),
        Key::plain(Code::Tab),
        Key::plain(Code::Up),
        Key::plain(Code::Down),
        Key::plain(Code::Left),
        Key::plain(Code::Backspace),
        Key::plain(Code::Esc),
        Key::ctrl('o'),
        Key::ctrl('w'),
        Key::ctrl('j'),
        Key::ctrl('a'),
    ];
    prop_oneof![
        text().prop_map(Step::Say),
        text().prop_map(Step::Think),
        text().prop_map(Step::Call),
        text().prop_map(Step::Print),
        (text(), any::<bool>()).prop_map(|(text, failed)| Step::Result(text, failed)),
        (text(), text()).prop_map(|(old, new)| Step::Edit(old, new)),
        text().prop_map(Step::Notice),
        text().prop_map(Step::Type),
        text().prop_map(Step::Paste),
        proptest::sample::select(keys.to_vec()).prop_map(Step::Press),
        text().prop_map(Step::Answer),
        any::<bool>().prop_map(Step::Ends),
        (1_usize..400, 1_usize..80).prop_map(|(width, height)| Step::Size(width, height)),
        (0_u64..10_000).prop_map(Step::Later),
    ]
}

fn apply(it: &mut State, step: Step, now: &mut u64) {
    let finished = |text: String, is_error, record| Event::ToolFinished {
        id: "1".into(),
        name: "bash".into(),
        text,
        is_error,
        record,
    };
    match step {
        Step::Say(text) => drop(it.event(Event::Text(text))),
        Step::Think(text) => drop(it.event(Event::Thinking(text))),
        Step::Call(text) => {
            let text = serde_json::Value::from(text);
            let arguments = Arguments::parse(&format!("{{\"command\": {text}}}"));
            it.event(Event::ToolStarted { id: "1".into(), name: "bash".into(), arguments });
        }
        Step::Print(text) => drop(it.event(Event::ToolOutput { id: "1".into(), text })),
        Step::Result(text, failed) => {
            drop(it.event(finished(text, failed, serde_json::Value::Null)));
        }
        Step::Edit(old, new) => {
            let hunk =
                serde_json::json!({ "old_line": 7, "new_line": 99_999, "old": old, "new": new });
            it.event(finished(String::new(), false, serde_json::json!({ "hunks": [hunk] })));
        }
        Step::Notice(text) => drop(it.event(Event::Notice(text))),
        Step::Type(text) => press(it, &text),
        Step::Paste(text) => drop(it.typed(&Typed::Paste(text))),
        Step::Press(key) => drop(it.typed(&Typed::Key(key))),
        Step::Answer(text) => it.answered(&text, &text, text.len() % 2 == 0),
        Step::Ends(interrupted) => {
            let outcome = if interrupted { Outcome::Interrupted } else { Outcome::Ok };
            it.event(Event::Done(Box::new(Summary::unasked(outcome, 0, Duration::ZERO))));
        }
        Step::Size(width, height) => it.resize(width, height),
        Step::Later(more) => {
            *now += more;
            it.at(Duration::from_millis(*now));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_state_at_any_size_is_drawn_within_it(
        width in 1_usize..400, height in 1_usize..80, steps in proptest::collection::vec(step(), 1..40),
    ) {
        let mut it = state(width, height);
        let mut now = 0;
        for step in steps {
            let widest = it.width;
            apply(&mut it, step, &mut now);
            let widest = widest.max(it.width);
            let region = region(&it);
            prop_assert!(region.len() <= (it.height - 1).max(1));
            let emitted = it.take_rows();
            let region = region.iter().map(|row| (row, it.width));
            for (row, most) in region.chain(emitted.iter().map(|row| (row, widest))) {
                prop_assert!(row.width() <= most, "{:?} at {most}", row.text());
                prop_assert!(!row.text().chars().any(char::is_control), "{:?}", row.text());
                prop_assert!(!row.text().contains(['\u{202e}', '\u{200b}']), "{:?}", row.text());
            }
        }
    }
}
