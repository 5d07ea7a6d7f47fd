//! Every wire format against every way in which answers come, from streams written down in
//! `tests/fixtures/conformance/KIND/CASE`, in the shapes of the APIs' own documents. Each is split
//! at every byte, with each of the three line ends, and must be read the same.

use std::{collections::BTreeSet, fs, path::Path, time::Duration};

use kli::{
    message::{Stop, Usage},
    model::{Class, Delta},
};
use serde_json::json;

use super::{block_on, collect, joined, model};
use crate::fake_model::{Answer, FakeModel, Newline, Wire};

/// The ways, each with its file.
const CASES: [&str; 12] = [
    "thinking.sse",
    "parallel-tools.sse",
    "empty-arguments.sse",
    "cut-off-arguments.sse",
    "unknown-tool.sse",
    "missing-usage.sse",
    "null-content.sse",
    "ping-comments.sse",
    "error-event.sse",
    "html-200.html",
    "overload.json",
    "drop-after-three-deltas.sse",
];

/// What must be read: deltas with neighbours joined, and how it ends when not in peace.
struct Wanted {
    deltas: Vec<Delta>,
    error: Option<(Class, bool, &'static str)>,
}

fn place(wire: Wire) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/conformance").join(wire.kind_name())
}

fn recorded(wire: Wire, case: &str) -> String {
    let file = place(wire).join(case);
    fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

fn text(text: &str) -> Delta {
    Delta::Text(text.into())
}

fn call(id: &str, name: &str, arguments: &str) -> Delta {
    Delta::Call { id: id.into(), name: name.into(), arguments: arguments.into() }
}

fn done(wire: Wire, stop: Stop) -> Delta {
    let counted = if wire == Wire::Messages { (25, 6) } else { (31, 0) };
    let usage = Usage {
        input_tokens: counted.0,
        output_tokens: 15,
        cache_read_tokens: 5,
        cache_write_tokens: counted.1,
    };
    Delta::Done { stop, usage: Some(usage) }
}

fn wanted(wire: Wire, case: &str) -> Wanted {
    let all = |deltas| Wanted { deltas, error: None };
    let fails = |deltas, error| Wanted { deltas, error: Some(error) };
    let retry = Class::Retry { after: None };
    match case {
        "thinking.sse" => {
            let thought = "Let me think 界 twice.";
            let opaque = Delta::Opaque(match wire {
                Wire::Messages => json!({"type": "thinking", "thinking": thought,
                    "signature": "EqQB"}),
                // It goes back only together with calls.
                Wire::Chat => json!(null),
                Wire::Responses => json!({"id": "rs_68", "type": "reasoning",
                    "summary": [{"type": "summary_text", "text": thought}],
                    "encrypted_content": "gAAAAABo"}),
            });
            let mut deltas = vec![Delta::Thinking(thought.into()), opaque, text("Forty-two ✓")];
            deltas.retain(|delta| *delta != Delta::Opaque(json!(null)));
            deltas.push(done(wire, Stop::EndTurn));
            all(deltas)
        }
        "parallel-tools.sse" => all(vec![
            text("Both:"),
            call("toolu_1", "read", r#"{"path": "a.txt"}"#),
            call("toolu_2", "read", r#"{"path": "b.txt"}"#),
            done(wire, Stop::ToolUse),
        ]),
        "empty-arguments.sse" => all(vec![call("toolu_1", "list", ""), done(wire, Stop::ToolUse)]),
        "cut-off-arguments.sse" => all(vec![
            call("toolu_1", "write", r#"{"path": "a.txt", "content": "on"#),
            done(wire, Stop::MaxTokens),
        ]),
        "unknown-tool.sse" => {
            all(vec![call("toolu_1", "re ad", r#"{"path": "a.txt"}"#), done(wire, Stop::ToolUse)])
        }
        "missing-usage.sse" => {
            all(vec![text("Hello"), Delta::Done { stop: Stop::EndTurn, usage: None }])
        }
        "null-content.sse" | "ping-comments.sse" => {
            all(vec![text("Hello"), done(wire, Stop::EndTurn)])
        }
        "error-event.sse" => {
            let said = "reported an error: Overloaded (overloaded_error)";
            fails(vec![text("Hel")], (retry, false, said))
        }
        "html-200.html" => {
            let said = "200 OK with `text/html` instead of an event stream: <!DOCTYPE html> \
                        <html><head><title>Sign in 界</title></head> <body>Please";
            fails(Vec::new(), (Class::Fatal, false, said))
        }
        "overload.json" => fails(Vec::new(), (retry, false, ": Overloaded (")),
        "drop-after-three-deltas.sse" => fails(vec![text("one two three")], (retry, true, "")),
        other => panic!("nobody says what `{other}` must be read as"),
    }
}

/// The recorded answer as the server sends it, in each way that the case has.
fn answers(wire: Wire, case: &str, newline: Newline) -> Vec<Answer> {
    let body = recorded(wire, case);
    match case {
        "html-200.html" => vec![Answer::body(200, "text/html", body).newline(newline)],
        "overload.json" => [529, 503]
            .map(|status| Answer::body(status, "application/json", body.clone()).newline(newline))
            .into(),
        "drop-after-three-deltas.sse" => {
            let whole = Answer::new(body).newline(newline);
            let length = whole.len();
            vec![whole.close_after(length)]
        }
        _ => vec![Answer::new(body).newline(newline)],
    }
}

#[test]
fn no_cell_of_the_table_is_missing_and_none_is_left_over() {
    let mut cells = 0;
    for wire in Wire::ALL {
        let found: BTreeSet<String> = fs::read_dir(place(wire))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        let named: BTreeSet<String> = CASES.map(str::to_owned).into();
        assert_eq!(found, named, "{wire:?}");
        for case in CASES {
            assert!(!recorded(wire, case).is_empty(), "{wire:?}, {case}");
            let wanted = wanted(wire, case);
            assert!(!wanted.deltas.is_empty() || wanted.error.is_some(), "{wire:?}, {case}");
            cells += 1;
        }
    }
    assert_eq!(cells, 36, "three formats, twelve cases");
}

/// Plays a cell in one line ending, split at every byte, and returns how many answers were read.
fn plays(wire: Wire, case: &str, newline: Newline) -> usize {
    let wanted = wanted(wire, case);
    let mut script = Vec::new();
    for answer in answers(wire, case, newline) {
        script.push(answer.clone());
        script.extend((1..answer.len()).map(|at| answer.clone().split_at([at])));
        script.push(answer.every_byte());
    }
    let count = script.len();
    let fake = FakeModel::start(script);
    let model = model(wire, &fake);
    block_on(async {
        for number in 0..count {
            let (deltas, error) = collect(&*model, kli::model::Request::default()).await;
            let place = format!("{wire:?}, {case}, {newline:?}, answer {number}");
            assert_eq!(joined(&deltas), wanted.deltas, "{place}: {error:?}");
            match (&wanted.error, error) {
                (None, None) => {}
                (Some((class, network, said)), Some(error)) => {
                    assert_eq!(
                        (&error.class, error.network),
                        (class, *network),
                        "{place}: {error}"
                    );
                    assert!(error.message.contains(said), "{place}: {error}");
                }
                (wanted, found) => panic!("{place}: {found:?} instead of {wanted:?}"),
            }
        }
    });
    assert_eq!(fake.left(), 0);
    count
}

/// Plays every case of a format in one line ending.
fn every_case(wire: Wire, newline: Newline) {
    let whole: usize = CASES.iter().map(|case| plays(wire, case, newline)).sum();
    assert!(whole > 10_000, "control: {whole} answers were read");
}

macro_rules! alike {
    ($($name:ident: $wire:ident, $newline:ident;)*) => {
        $(
            #[test]
            fn $name() {
                every_case(Wire::$wire, Newline::$newline);
            }
        )*

        #[test]
        fn every_format_is_played_in_every_line_ending() {
            let played = [$((Wire::$wire, Newline::$newline)),*];
            assert_eq!(played.len(), Wire::ALL.len() * Newline::ALL.len());
            for wire in Wire::ALL {
                for newline in Newline::ALL {
                    assert!(played.contains(&(wire, newline)), "{wire:?}, {newline:?}");
                }
            }
        }
    };
}

// One test for each, so that they run side by side.
alike! {
    messages_with_lf_are_read_alike_however_they_are_cut: Messages, Lf;
    messages_with_cr_are_read_alike_however_they_are_cut: Messages, Cr;
    messages_with_crlf_are_read_alike_however_they_are_cut: Messages, CrLf;
    chat_completions_with_lf_are_read_alike_however_they_are_cut: Chat, Lf;
    chat_completions_with_cr_are_read_alike_however_they_are_cut: Chat, Cr;
    chat_completions_with_crlf_are_read_alike_however_they_are_cut: Chat, CrLf;
    responses_with_lf_are_read_alike_however_they_are_cut: Responses, Lf;
    responses_with_cr_are_read_alike_however_they_are_cut: Responses, Cr;
    responses_with_crlf_are_read_alike_however_they_are_cut: Responses, CrLf;
}

/// The control of all of the above: an answer that differs is seen to differ.
#[test]
fn a_cell_that_is_read_wrong_is_noticed() {
    for wire in Wire::ALL {
        let stream = recorded(wire, "missing-usage.sse").replace("Hello", "Hallo");
        let fake = FakeModel::start(vec![Answer::new(stream).pause(Duration::ZERO)]);
        let (deltas, error) =
            block_on(collect(&*model(wire, &fake), kli::model::Request::default()));
        assert_eq!(error, None);
        assert_ne!(joined(&deltas), wanted(wire, "missing-usage.sse").deltas);
    }
}
