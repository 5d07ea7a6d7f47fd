use proptest::prelude::*;
use serde_json::json;

use super::*;

const KEY: &str = "sk-very-secret-0";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Text,
    Thinking,
    /// What only the model reads comes between.
    Opaque,
    Call,
    /// A person says something meanwhile.
    Steer,
}

fn input((kind, piece): &(Kind, String)) -> Input {
    match kind {
        Kind::Text => Input::Delta(Delta::Text(piece.clone())),
        Kind::Thinking => Input::Delta(Delta::Thinking(piece.clone())),
        Kind::Opaque => Input::Delta(Delta::Opaque(json!({}))),
        Kind::Call => {
            let (id, name, arguments) = (String::new(), String::new(), "{}".to_owned());
            Input::Delta(Delta::Call { id, name, arguments })
        }
        Kind::Steer => Input::Steer(String::new()),
    }
}

/// Returns what comes out: kinds with their texts, those that follow each other put together.
fn passed(pieces: &[(Kind, String)]) -> Vec<(Kind, String)> {
    let mut screen = Screen::new(Redactor::new([KEY]));
    let mut out: Vec<(Kind, String)> = Vec::new();
    let end = Input::Delta(Delta::Done { stop: Stop::EndTurn, usage: None });
    for input in pieces.iter().map(input).chain([end]).flat_map(|input| screen.pass(input)) {
        let (kind, piece) = match input {
            Input::Delta(Delta::Text(piece)) => (Kind::Text, piece),
            Input::Delta(Delta::Thinking(piece)) => (Kind::Thinking, piece),
            Input::Delta(Delta::Opaque(_)) => (Kind::Opaque, String::new()),
            Input::Delta(Delta::Call { .. }) => (Kind::Call, String::new()),
            Input::Steer(_) => (Kind::Steer, String::new()),
            _ => continue,
        };
        match out.last_mut() {
            Some((last, before)) if *last == kind && !piece.is_empty() => before.push_str(&piece),
            _ => out.push((kind, piece)),
        }
    }
    out
}

fn joined(pieces: &[(Kind, String)], counts: impl Fn(Kind) -> bool) -> String {
    pieces.iter().filter(|(kind, _)| counts(*kind)).map(|(_, piece)| piece.as_str()).collect()
}

/// The whole key stands nowhere where pieces are read one after the other.
fn is_clean(out: &[(Kind, String)]) -> bool {
    let said = |kind| matches!(kind, Kind::Text | Kind::Thinking);
    let all = [
        joined(out, |kind| kind == Kind::Text),
        joined(out, |kind| kind == Kind::Thinking),
        joined(out, said),
    ];
    !all.iter().any(|text| text.contains(KEY))
}

#[test]
fn a_key_in_two_parts_does_not_pass_whatever_comes_between() {
    use Kind::{Call, Opaque, Steer, Text, Thinking};
    for cut in 1..KEY.len() {
        let (first, second) = KEY.split_at(cut);
        for (kind, other) in [(Text, Thinking), (Thinking, Text)] {
            let piece = |kind, text: &str| (kind, text.to_owned());
            for between in [&[][..], &[Opaque], &[Call], &[Steer], &[Call, Opaque], &[other]] {
                let between = || between.iter().map(|kind| piece(*kind, "x"));
                // In pieces of one kind, and of two.
                for last in [kind, other] {
                    let mut pieces = vec![piece(kind, "a "), piece(kind, first)];
                    pieces.extend(between());
                    pieces.extend([piece(last, second), piece(last, " b")]);
                    let out = passed(&pieces);
                    assert!(is_clean(&out), "{pieces:?}: {out:?}");
                    let is_apart = between().any(|(kind, _)| kind == other) && last == other;
                    assert_eq!(joined(&out, |_| true).contains('…'), !is_apart, "{out:?}");
                }
            }
        }
    }
}

fn piece() -> impl Strategy<Value = (Kind, String)> {
    let kind = prop::sample::select(vec![
        Kind::Text,
        Kind::Text,
        Kind::Thinking,
        Kind::Thinking,
        Kind::Opaque,
        Kind::Call,
        Kind::Steer,
    ]);
    let parts =
        ["sk-", "very", "-secret", "-0", "sk-very-", "secret-0", "sk-very-secret", "s", "x"];
    let text = prop::sample::select(parts.to_vec());
    (kind, text).prop_map(|(kind, text)| {
        let says = matches!(kind, Kind::Text | Kind::Thinking);
        (kind, if says { text.to_owned() } else { String::new() })
    })
}

proptest! {
    #[test]
    fn no_order_of_pieces_lets_a_key_through_and_what_holds_none_stays_as_it_is(
        pieces in prop::collection::vec(piece(), 0..14)
    ) {
        let out = passed(&pieces);
        prop_assert!(is_clean(&out), "{out:?}");
        if is_clean(&pieces) {
            for kind in [Kind::Text, Kind::Thinking] {
                let of = |all: &[(Kind, String)]| joined(all, |other| other == kind);
                prop_assert_eq!(of(&out), of(&pieces));
            }
            let order = |all: &[(Kind, String)]| {
                let mut kinds: Vec<Kind> = all.iter().map(|(kind, _)| *kind).collect();
                kinds.retain(|kind| *kind != Kind::Steer);
                kinds.dedup_by(|a, b| a == b && matches!(a, Kind::Text | Kind::Thinking));
                kinds
            };
            prop_assert_eq!(order(&out), order(&pieces));
        }
    }
}
