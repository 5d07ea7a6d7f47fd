//! The one place that cuts result text: two thirds from the start, one third from the end, on
//! character boundaries, with a marker that says how much is missing and how to get it.

/// How many bytes the text of one result may have, its notes left out.
pub const BUDGET: usize = 30_000;

/// Returns how many of `budget` bytes go to the start and to the end.
pub fn shares(budget: usize) -> (usize, usize) {
    let tail = budget / 3;
    (budget - tail, tail)
}

/// Returns a text within [`BUDGET`]. `repair` says how to get the rest, as an order: "narrow the
/// command".
pub fn text(text: &str, repair: &str) -> String {
    join(text, 0, "", repair)
}

/// Returns the start and the end of a text of which `missing` bytes between them are gone, within
/// [`BUDGET`]. Nothing missing means that `head` goes on in `tail`.
pub fn join(head: &str, missing: u64, tail: &str, repair: &str) -> String {
    within(BUDGET, head, missing, tail, repair)
}

fn within(budget: usize, head: &str, missing: u64, tail: &str, repair: &str) -> String {
    let (head_room, tail_room) = shares(budget);
    if missing == 0 {
        let whole = format!("{head}{tail}");
        if whole.len() <= budget {
            return whole;
        }
        let start = start_of(&whole, head_room);
        let end = end_of(&whole, tail_room);
        let gone = whole.len() - start.len() - end.len();
        return marked(start, gone as u64, end, repair);
    }
    let start = start_of(head, head_room);
    let end = end_of(tail, tail_room);
    let gone = missing + (head.len() - start.len() + tail.len() - end.len()) as u64;
    marked(start, gone, end, repair)
}

fn marked(start: &str, gone: u64, end: &str, repair: &str) -> String {
    let before = if start.is_empty() || start.ends_with('\n') { "" } else { "\n" };
    let after = if end.is_empty() { "" } else { "\n" };
    format!("{start}{before}[… {gone} bytes are missing here: {repair}]{after}{end}")
}

/// Returns the longest start of a text that is at most `room` bytes long.
pub fn start_of(text: &str, room: usize) -> &str {
    let mut end = room.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.get(..end).unwrap_or_default()
}

/// Returns the longest end of a text that is at most `room` bytes long.
pub fn end_of(text: &str, room: usize) -> &str {
    let mut start = text.len().saturating_sub(room);
    while !text.is_char_boundary(start) {
        start += 1;
    }
    text.get(start..).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_fits_is_left_alone() {
        let whole = "x".repeat(BUDGET);
        assert_eq!(text(&whole, "-"), whole);
        assert_eq!(join("ab", 0, "cd", "-"), "abcd");
        assert_eq!(text("", "-"), "");
    }

    #[test]
    fn what_does_not_fit_says_how_much_is_missing_and_how_to_get_it() {
        let cut = text(&format!("a\n{}z", "x\n".repeat(BUDGET)), "read with start and end");
        assert!(cut.starts_with("a\nx\n") && cut.ends_with("x\nz"));
        assert!(cut.contains("x\n[… 30003 bytes are missing here: read with start and end]\n"));
        assert_eq!(
            join("ab", 7, "yz", "narrow it"),
            "ab\n[… 7 bytes are missing here: narrow it]\nyz"
        );
    }

    proptest! {
        #[test]
        fn a_cut_keeps_both_ends_and_counts_the_rest(
            whole in "[a\né✓😀]{0,80}", budget in 0_usize..90,
        ) {
            let cut = within(budget, &whole, 0, "", "R");
            if whole.len() <= budget {
                prop_assert_eq!(cut, whole);
            } else {
                let (start, rest) = cut.split_once("[… ").unwrap();
                let (count, end) = rest.split_once(" bytes are missing here: R]").unwrap();
                let end = end.strip_prefix('\n').unwrap_or(end);
                // The marker's own line break may follow the start.
                let start = if whole.starts_with(start) { start } else { start.trim_end() };
                prop_assert!(whole.starts_with(start) && whole.ends_with(end));
                let count: usize = count.parse().unwrap();
                prop_assert!(start.len() + end.len() <= budget + 1);
                prop_assert!(count + start.len() + end.len() >= whole.len());
            }
        }
    }
}
