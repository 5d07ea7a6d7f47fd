//! Laws of edits, on random files and random edits, without a disk.

use proptest::prelude::*;

use super::*;
use crate::tool::{edit::splice::Kind, memory::Memory};

/// A file of few kinds of lines, so that equal ones are common, with any endings.
fn file() -> impl Strategy<Value = Vec<u8>> {
    let line = proptest::sample::select(vec![
        &b"a"[..],
        b"b",
        b"",
        b"}",
        b"\tx ",
        b"caf\xe9",
        "gr\u{fc}n".as_bytes(),
    ]);
    let ending = proptest::sample::select(vec![&b"\n"[..], b"\n", b"\r\n"]);
    (any::<bool>(), any::<bool>(), proptest::collection::vec((line, ending), 1..12)).prop_map(
        |(bom, is_ended, lines)| {
            let mut bytes = if bom { lines::BOM.to_vec() } else { vec![] };
            let last = lines.len() - 1;
            for (n, (line, ending)) in lines.into_iter().enumerate() {
                bytes.extend_from_slice(line);
                if n < last || is_ended {
                    bytes.extend_from_slice(ending);
                }
            }
            bytes
        },
    )
}

/// What to do to which lines, by number (taken modulo what is there).
type Wish = (u8, u64, u64, String);

fn wishes() -> impl Strategy<Value = Vec<Wish>> {
    let text = "[ab}]{0,2}(\n[ab]{0,2}){0,2}";
    proptest::collection::vec((0_u8..5, 0_u64..12, 0_u64..3, text), 1..5)
}

fn changes(text: &Text, wishes: &[Wish]) -> Vec<Change> {
    let anchor = |line: u64| text.row(line).anchor;
    wishes
        .iter()
        .filter(|_| text.count() > 0)
        .map(|(kind, line, more, new)| {
            let line = line % text.count() + 1;
            let to = (line + more).min(text.count());
            match kind {
                0 => Change::Lines { from: anchor(line), to: anchor(to), text: new.clone() },
                1 => Change::Lines { from: anchor(line), to: anchor(to), text: String::new() },
                2 | 3 => Change::Insert {
                    at: anchor(line),
                    is_after: *kind == 2,
                    text: if new.is_empty() { "\n".into() } else { new.clone() },
                },
                _ => Change::Exact { old: "a".into(), new: new.clone(), all: more % 2 == 0 },
            }
        })
        .collect()
}

fn known(text: &Text) -> View {
    let memory = Memory::default();
    let rows: Vec<Row> = (1..=text.count()).map(|line| text.row(line)).collect();
    memory.saw("/f".as_ref(), &rows);
    memory.view("/f".as_ref())
}

fn plan(text: &Text, changes: Vec<Change>) -> Option<Vec<Splice>> {
    let stage_less =
        Call { target: nowhere(), changes, time: u64::MAX, shown: std::sync::Arc::default() };
    stage_less.plan(text, &known(text), true).ok().map(|plan| plan.splices)
}

fn nowhere() -> Target {
    use std::sync::OnceLock;
    static STAGE: OnceLock<Stage> = OnceLock::new();
    let context = Arc::clone(&STAGE.get_or_init(Stage::new).context);
    Target { name: "f".into(), path: "/f".into(), context }
}

fn without_end(bytes: &[u8]) -> &[u8] {
    bytes.strip_suffix(b"\r\n").or_else(|| bytes.strip_suffix(b"\n")).unwrap_or(bytes)
}

proptest! {
    #[test]
    fn bytes_outside_the_splices_never_change(bytes in file(), wishes in wishes()) {
        let text = Text::new(bytes.clone());
        let Some(splices) = plan(&text, changes(&text, &wishes)) else { return Ok(()) };
        let new = splice::apply(&text, &splices);
        // Walk both: what is between the splices is the same, in order.
        let mut rest = new.as_slice();
        let mut done = 0;
        for splice in &splices {
            let kept = &bytes[done..splice.start];
            prop_assert!(rest.starts_with(kept) || rest == without_end(kept));
            rest = &rest[kept.len().min(rest.len())..];
            prop_assert!(rest.starts_with(&splice.with) || splice.with.starts_with(rest));
            rest = &rest[splice.with.len().min(rest.len())..];
            done = splice.end;
        }
        // At most the last line's ending goes with a last line that had none.
        prop_assert!(rest == &bytes[done..] || rest == without_end(&bytes[done..]));
        // Changes of whole lines leave the end of the file as it was. (A blank last line without an
        // ending looks like an ending, so files and texts with blank lines are left out here.)
        let is_ended = |bytes: &[u8]| bytes.ends_with(b"\n");
        let has_blank = (1..=text.count()).any(|line| text.content(line).is_empty())
            || wishes.iter().any(|wish| wish.3.split('\n').any(str::is_empty));
        let is_lines = wishes.iter().all(|wish| wish.0 < 4);
        if is_lines && !has_blank && !Text::new(new.clone()).lines.is_empty() {
            prop_assert_eq!(is_ended(&new), is_ended(&bytes));
        }
        prop_assert_eq!(new.starts_with(lines::BOM), bytes.starts_with(lines::BOM));
    }

    #[test]
    fn the_order_of_the_edits_does_not_matter(
        (bytes, wishes, order) in (file(), wishes()).prop_flat_map(|(bytes, wishes)| {
            let order: Vec<usize> = (0..wishes.len()).collect();
            (Just(bytes), Just(wishes), Just(order).prop_shuffle())
        }),
    ) {
        let text = Text::new(bytes);
        let straight = changes(&text, &wishes);
        let shuffled: Vec<Change> =
            order.iter().filter_map(|at| straight.get(*at).cloned()).collect();
        let apply = |changes| plan(&text, changes).map(|splices| splice::apply(&text, &splices));
        prop_assert_eq!(apply(straight), apply(shuffled));
    }

    #[test]
    fn an_edit_and_its_reverse_are_nothing(bytes in file(), line in 0_u64..12, more in 0_u64..3, new in "[ab]{1,3}(\n[ab]{1,2}){0,2}") {
        let text = Text::new(bytes.clone());
        // Lines with the same endings, so that the reverse can know them; text that JSON can say.
        if !text.is_utf8 || text.count() == 0 {
            return Ok(());
        }
        let line = line % text.count() + 1;
        let to = (line + more).min(text.count());
        let one = |text: &Text, line: u64| text.row(line).anchor;
        let lines_of = |text: &Text, from: u64, to: u64| -> String {
            (from..=to).map(|line| String::from_utf8(text.content(line).to_vec()).unwrap() + "\n").collect()
        };
        let forth = Change::Lines { from: one(&text, line), to: one(&text, to), text: new.clone() };
        let splices = plan(&text, vec![forth]).unwrap();
        let changed = Text::new(splice::apply(&text, &splices));
        let count = new.split('\n').count() as u64;
        let back = Change::Lines {
            from: one(&changed, line),
            to: one(&changed, line + count - 1),
            text: lines_of(&text, line, to),
        };
        let splices = plan(&changed, vec![back]).unwrap();
        let restored = splice::apply(&changed, &splices);
        let is_uniform = (1..=text.count()).all(|n| matches!(text.ending(n), e if e.is_empty() || e == text.ending(1)));
        // Where no ending is left, nobody can know which it was.
        let is_told = text.usual == b"\n" || (1..=changed.count()).any(|n| !changed.ending(n).is_empty());
        if (is_uniform && is_told) || count == to - line + 1 {
            prop_assert_eq!(&restored, &bytes);
        }
        // Inserting and deleting again is nothing, whatever the endings.
        let put = Change::Insert { at: one(&text, line), is_after: true, text: new.clone() };
        let splices = plan(&text, vec![put]).unwrap();
        let changed = Text::new(splice::apply(&text, &splices));
        let take = Change::Lines {
            from: one(&changed, line + 1),
            to: one(&changed, line + count),
            text: String::new(),
        };
        let splices = plan(&changed, vec![take]).unwrap();
        prop_assert_eq!(splice::apply(&changed, &splices), bytes);
    }

    #[test]
    fn a_row_is_followed_to_its_own_line_or_lost(bytes in file(), wishes in wishes()) {
        let text = Text::new(bytes);
        let Some(splices) = plan(&text, changes(&text, &wishes)) else { return Ok(()) };
        let new = Text::new(splice::apply(&text, &splices));
        let mut view = known(&text);
        follow::shift(&mut view, &text, &new, &splices);
        let mut last = 0;
        for ((anchor, _), shown) in &view.rows {
            let touched = text.span(anchor.line).is_some_and(|span| {
                splices.iter().any(|s| s.start < span.next && s.end > span.start)
            });
            // A blank last line of a replaced range has no byte of its own that was replaced.
            let is_edge = text.content(anchor.line).is_empty()
                && text.span(anchor.line).is_some_and(|span| {
                    splices.iter().any(|s| s.kind == Kind::Bytes && s.end == span.start)
                });
            prop_assert!(!touched || shown.now.is_none());
            prop_assert!(shown.now.is_some() || touched || is_edge);
            if let Some(now) = shown.now {
                prop_assert_eq!(new.content(now), text.content(anchor.line));
                prop_assert!(now > last, "rows keep their order");
                last = now;
            }
        }
    }

    #[test]
    fn nothing_that_a_model_sends_panics(bytes in proptest::collection::vec(any::<u8>(), 0..60), old in "\\PC{1,6}", new in any::<String>(), all in any::<bool>(), line in 0_u64..9, digits in any::<u8>()) {
        let text = Text::new(bytes);
        let anchor = Anchor { line, digits };
        for change in [
            Change::Exact { old, new: new.clone(), all },
            Change::Lines { from: anchor, to: anchor, text: new.clone() },
            Change::Insert { at: anchor, is_after: all, text: new },
        ] {
            if let Some(splices) = plan(&text, vec![change]) {
                let new = Text::new(splice::apply(&text, &splices));
                around(&text, &new, &splices);
                splice::hunks(&text, &new, &splices);
            }
        }
    }
}
