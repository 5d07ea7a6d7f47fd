use proptest::prelude::*;

use super::{
    super::line::{Change, Digest, Inside, Line, State},
    *,
};

fn file(text: &str) -> State {
    State::File { digest: Digest::of(text.as_bytes()), size: text.len() as u64, mode: 0o644 }
}

fn state(text: Option<&str>) -> State {
    text.map_or(State::Absent, file)
}

fn change(number: u64, group: u64, path: &str, from: Option<&str>, to: Option<&str>) -> Line {
    Line::Change(Change {
        number,
        group,
        undoes: false,
        prompt: group.saturating_mul(10),
        at: group.saturating_mul(10).saturating_add(2),
        path: Inside::new(path.into()).unwrap(),
        before: state(from),
        after: state(to),
        made: Vec::new(),
    })
}

fn book(lines: impl IntoIterator<Item = Line>) -> Book {
    let mut book = Book::default();
    for line in lines {
        assert!(book.apply(line));
    }
    book
}

#[test]
fn undoing_goes_one_prompt_back_at_a_time() {
    let mut book = book([
        change(0, 1, "a", None, Some("1")),
        change(1, 2, "a", Some("1"), Some("2")),
        change(2, 2, "b", None, Some("x")),
    ]);
    assert_eq!(book.latest(false), [1, 2]);
    let steps = book.steps(&[1, 2], false);
    assert_eq!((steps[0].target.clone(), steps[1].target.clone()), (file("1"), State::Absent));
    assert!(book.apply(Line::Undone { numbers: vec![1, 2], left: vec![], by: 3 }));
    assert_eq!(book.latest(false), [0]);
    assert!(book.apply(Line::Undone { numbers: vec![0], left: vec![], by: 4 }));
    assert_eq!(book.latest(false), Vec::<u64>::new());
    assert!(book.apply(Line::Redone { by: 4, left: Vec::new() }));
    assert_eq!(book.latest(false), [0]);
}

#[test]
fn what_was_left_alone_is_passed_over_and_can_be_forced() {
    let mut book = book([change(0, 1, "a", None, Some("1")), change(1, 2, "b", None, Some("x"))]);
    assert!(book.apply(Line::Undone { numbers: vec![], left: vec![1], by: 3 }));
    assert_eq!(book.latest(false), [0], "one further back");
    assert_eq!(book.latest(true), [1], "what was left alone");
    // Once there is something newer, that is what force is about.
    assert!(book.apply(change(2, 4, "c", None, Some("y"))));
    assert_eq!(book.latest(true), [2]);
}

#[test]
fn only_what_came_after_somebody_elses_change_is_undone() {
    let book = book([
        change(0, 1, "a", Some("mine"), Some("1")),
        change(1, 1, "a", Some("theirs"), Some("2")),
    ]);
    let step = &book.steps(&[0, 1], false)[0];
    assert_eq!((step.target.clone(), step.is_part), (file("theirs"), true));
    assert!(!step.known.contains(&file("1")));
    let forced = &book.steps(&[0, 1], true)[0];
    assert_eq!((forced.target.clone(), forced.is_part), (file("mine"), false));
}

#[test]
fn a_change_that_was_not_made_counts_for_nothing() {
    let mut book =
        book([change(0, 1, "a", Some("0"), Some("1")), change(1, 1, "a", Some("9"), Some("2"))]);
    assert!(book.apply(Line::Void { number: 0 }));
    assert_eq!(book.latest(false), [1]);
    assert!(!book.steps(&[1], false)[0].is_part);
}

#[test]
fn numbers_that_do_not_grow_and_huge_ones_are_refused() {
    let mut book = book([change(5, 1, "a", None, Some("1"))]);
    for number in [0, 5, u64::MAX] {
        assert!(!book.apply(change(number, 1, "b", None, Some("1"))), "{number}");
    }
    assert!(!book.apply(change(6, u64::MAX, "b", None, Some("1"))));
    assert!(book.apply(change(6, 1, "b", None, Some("1"))), "control");
    assert_eq!(book.changes().len(), 2);
}

#[test]
fn a_conversation_that_went_back_is_told_what_stands() {
    let mut book = book([change(0, 1, "a", None, Some("1")), change(1, 2, "b", None, Some("x"))]);
    assert!(book.apply(Line::Undone { numbers: vec![0], left: vec![], by: 3 }));
    book.goes_back(20);
    let (undone, stands) = book.untold();
    assert_eq!((undone[0].path(), stands[0].path()), ("a".as_ref(), "b".as_ref()));
    assert_eq!(book.since(20), Vec::<u64>::new(), "all are before now");
    assert!(book.apply(Line::Told));
    assert_eq!(book.untold(), (vec![], vec![]));
}

#[test]
fn what_a_redo_left_alone_stays_undone() {
    let mut book = book([
        change(0, 1, "a", Some("0"), Some("1")),
        change(1, 1, "b", Some("0"), Some("1")),
        Line::Undone { numbers: vec![0, 1], left: Vec::new(), by: 2 },
        Line::Redone { by: 2, left: vec![1] },
    ]);
    assert_eq!(book.latest(false), [0], "`a` is as kli left it again");
    let b = Inside::new("b".into()).unwrap();
    assert_eq!(book.undone_by(2, &[&b]), [1]);
    assert!(book.apply(Line::Redone { by: 2, left: Vec::new() }));
    assert_eq!(book.latest(false), [0, 1]);
    assert_eq!(book.undone_by(2, &[&b]), [0_u64; 0]);
}

#[test]
fn a_store_with_more_changes_than_one_session_keeps_is_cut_and_read_in_time() {
    let most = MOST_CHANGES as u64;
    let name = |n: u64| format!("d/{n}");
    let book = book((0..most * 4).map(|n| change(n, n + 1, &name(n), None, Some("x"))));
    assert!(book.changes().len() <= MOST_CHANGES, "{}", book.changes().len());
    assert_eq!(book.dropped() + book.changes().len() as u64, most * 4);
    // The latest stay, and the numbers go on.
    assert_eq!(book.changes().last().map(|it| it.number), Some(most * 4 - 1));
    assert_eq!(book.change(most * 4 - 1).map(|it| it.number), Some(most * 4 - 1));
    assert_eq!((book.change(0), book.next()), (None, most * 4));
}

#[test]
fn whole_prompts_are_dropped_first() {
    let mut book = book((0..10).map(|n| change(n, n / 4 + 1, &format!("f{n}"), None, Some("x"))));
    assert_eq!(book.drop_oldest(7), 4);
    assert_eq!(book.changes().first().unwrap().number, 4);
    assert_eq!(book.drop_oldest(1), 5, "of the last prompt the newest stays");
    assert_eq!((book.changes()[0].number, book.dropped()), (9, 9));
}

fn any_line() -> impl Strategy<Value = Line> {
    let numbers = || prop::collection::vec(0..30_u64, 0..4);
    let text = || prop::sample::select(vec![None, Some("a"), Some("b")]);
    prop_oneof![
        6 => (0..30_u64, 0..6_u64, "[ab]", text(), text())
            .prop_map(|(n, g, path, from, to)| change(n, g, &path, from, to)),
        1 => (0..30_u64).prop_map(|number| Line::Void { number }),
        1 => (numbers(), numbers(), 0..8_u64)
            .prop_map(|(numbers, left, by)| Line::Undone { numbers, left, by }),
        1 => (0..8_u64, prop::collection::vec(0..40_u64, 0..4)).prop_map(|(by, left)| Line::Redone { by, left }),
        1 => numbers().prop_map(|numbers| Line::Stands { numbers }),
        1 => Just(Line::Told),
        1 => (0..6_u64, 0..40_u64).prop_map(|(group, at)| Line::Elsewhere {
            group, at, name: "/x".to_owned(), why: "is outside".to_owned(),
        }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

    #[test]
    fn any_lines_make_a_book_that_its_own_lines_make_again(
        lines in prop::collection::vec(any_line(), 0..40), most in 0..10_usize
    ) {
        let mut book = Book::default();
        for line in lines {
            book.apply(line);
        }
        let again = |book: &Book| {
            let mut again = Book::default();
            for line in book.lines() {
                again.apply(line);
            }
            again
        };
        for _ in 0..2 {
            let other = again(&book);
            prop_assert_eq!(other.latest(false), book.latest(false));
            prop_assert_eq!(other.since(0), book.since(0));
            prop_assert_eq!(other.untold(), book.untold());
            prop_assert_eq!(other.dropped(), book.dropped());
            let all: Vec<u64> = book.changes().iter().map(|change| change.number).collect();
            prop_assert_eq!(other.steps(&all, false), book.steps(&all, false));
            book.drop_oldest(most);
            prop_assert!(book.changes().len() <= most);
        }
    }
}
