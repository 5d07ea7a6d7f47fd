//! The difference of two contents as a unified diff, pure. What could drive a terminal or hide is
//! spelled out, and what is too much to look at is counted instead.

use std::{collections::HashMap, fmt::Write as _, ops::Range};

use crate::authority::misleads;

/// Lines around a change.
const AROUND: usize = 3;
/// The most differences that are looked for; beyond it what differs is shown as a whole.
const EFFORT: usize = 400;
/// The most characters of a line.
const WIDTH: usize = 1_000;
/// Bytes in which a NUL is looked for: what has one is no text.
const HEAD: usize = 8192;

/// Says whether a content is no text.
pub(super) fn is_binary(content: &[u8]) -> bool {
    content.iter().take(HEAD).any(|byte| *byte == 0)
}

/// Returns a line as it is shown: what misleads and what is no UTF-8 is spelled out, but for tabs.
fn shown(line: &[u8]) -> String {
    let mut text = String::new();
    let mut count = 0_usize;
    for chunk in line.utf8_chunks() {
        for c in chunk.valid().chars() {
            count += 1;
            if count > WIDTH {
                text.push_str(" … (the rest of the line is left out)");
                return text;
            }
            if misleads(c) && c != '\t' {
                text.extend(c.escape_default());
            } else {
                text.push(c);
            }
        }
        for byte in chunk.invalid() {
            count += 1;
            // Writing to a string cannot fail.
            let _infallible = write!(text, "\\x{byte:02x}");
        }
    }
    text
}

/// Returns the rows of a unified diff of two texts, without the two that name the files.
pub(super) fn unified(old: &[u8], new: &[u8]) -> Vec<String> {
    let (old, new) = (lines(old), lines(new));
    let changes = changes(&old, &new);
    let mut rows = Vec::new();
    let mut at = 0;
    while let Some(first) = changes.get(at) {
        // Changes that are near enough for their surroundings to meet make one hunk.
        let mut end = at + 1;
        while let (Some(before), Some(next)) = (changes.get(end - 1), changes.get(end)) {
            if next.0.start > before.0.end + 2 * AROUND {
                break;
            }
            end += 1;
        }
        let hunk = changes.get(at..end).unwrap_or_default();
        let last = hunk.last().unwrap_or(first);
        let start = first.0.start.saturating_sub(AROUND);
        let before = first.0.start - start;
        let after = (old.len() - last.0.end).min(AROUND);
        let (stop, new_start) = (last.0.end + after, first.1.start - before);
        let new_stop = last.1.end + after;
        rows.push(format!(
            "@@ -{} +{} @@",
            spelled(start, stop - start),
            spelled(new_start, new_stop - new_start)
        ));
        let mut here = start;
        for (gone, come) in hunk {
            context(&mut rows, &old, here..gone.start);
            here = gone.end;
            side(&mut rows, &old, gone.clone(), '-');
            side(&mut rows, &new, come.clone(), '+');
        }
        context(&mut rows, &old, here..stop);
        at = end;
    }
    rows
}

fn spelled(start: usize, count: usize) -> String {
    // A side without lines is named by the line before it.
    let start = if count == 0 { start } else { start + 1 };
    if count == 1 { start.to_string() } else { format!("{start},{count}") }
}

fn context(rows: &mut Vec<String>, lines: &[&[u8]], range: Range<usize>) {
    side(rows, lines, range, ' ');
}

fn side(rows: &mut Vec<String>, lines: &[&[u8]], range: Range<usize>, sign: char) {
    for line in lines.get(range).unwrap_or_default() {
        let body = line.strip_suffix(b"\n");
        rows.push(format!("{sign}{}", shown(body.unwrap_or(line))));
        if body.is_none() {
            rows.push("\\ No newline at end of file".to_owned());
        }
    }
}

fn lines(text: &[u8]) -> Vec<&[u8]> {
    text.split_inclusive(|byte| *byte == b'\n').collect()
}

type Pair = (Range<usize>, Range<usize>);

/// Returns which lines of the old text gave way to which of the new one, in order.
fn changes<'a>(old: &[&'a [u8]], new: &[&'a [u8]]) -> Vec<Pair> {
    let head = old.iter().zip(new).take_while(|(a, b)| a == b).count();
    let (old_rest, new_rest) = (old.get(head..), new.get(head..));
    let (old_rest, new_rest) = (old_rest.unwrap_or_default(), new_rest.unwrap_or_default());
    let tail = old_rest.iter().rev().zip(new_rest.iter().rev()).take_while(|(a, b)| a == b).count();
    let old_rest = old_rest.get(..old_rest.len() - tail).unwrap_or_default();
    let new_rest = new_rest.get(..new_rest.len() - tail).unwrap_or_default();
    if old_rest.is_empty() && new_rest.is_empty() {
        return Vec::new();
    }
    // Numbers are compared faster than lines.
    let mut known: HashMap<&[u8], usize> = HashMap::new();
    let mut numbers = |lines: &[&'a [u8]]| -> Vec<usize> {
        let number = |line: &&'a [u8]| {
            let next = known.len();
            *known.entry(line).or_insert(next)
        };
        lines.iter().map(number).collect()
    };
    let (one, two) = (numbers(old_rest), numbers(new_rest));
    let whole = || vec![(0..one.len(), 0..two.len())];
    let moved = |(gone, come): Pair| {
        (gone.start + head..gone.end + head, come.start + head..come.end + head)
    };
    shortest(&one, &two).unwrap_or_else(whole).into_iter().map(moved).collect()
}

/// Returns the shortest way from one list to another (Myers, "An O(ND) difference algorithm and its
/// variations", 1986); `None` when it takes more than [`EFFORT`] differences.
fn shortest(old: &[usize], new: &[usize]) -> Option<Vec<Pair>> {
    // Diagonals reach from -EFFORT to EFFORT; `reached` has the furthest old line on each.
    let middle = EFFORT + 1;
    let mut reached = vec![0_usize; 2 * middle + 1];
    let mut trace: Vec<Vec<usize>> = Vec::new();
    let get = |reached: &[usize], at: usize| reached.get(at).copied().unwrap_or_default();
    for cost in 0..=EFFORT {
        // Of the row before, only these diagonals are asked for on the way back.
        let window = reached.get(middle - cost..=middle + cost).unwrap_or_default();
        trace.push(window.to_vec());
        for step in 0..=cost {
            let at = middle - cost + 2 * step;
            let down = step == 0 || (step != cost && get(&reached, at - 1) < get(&reached, at + 1));
            let mut x = if down { get(&reached, at + 1) } else { get(&reached, at - 1) + 1 };
            if cost == 0 {
                x = 0;
            }
            // y = x - diagonal; below the first line there is nothing.
            let Some(mut y) = (x + middle).checked_sub(at) else { continue };
            while old.get(x).is_some() && old.get(x) == new.get(y) {
                x += 1;
                y += 1;
            }
            if let Some(slot) = reached.get_mut(at) {
                *slot = x;
            }
            if x >= old.len() && y >= new.len() {
                return Some(back(&trace, old.len(), new.len()));
            }
        }
    }
    None
}

/// Goes back from the end, one difference at a time.
fn back(trace: &[Vec<usize>], old: usize, new: usize) -> Vec<Pair> {
    let mut pairs: Vec<Pair> = Vec::new();
    let (mut x, mut y) = (old, new);
    for (cost, reached) in trace.iter().enumerate().skip(1).rev() {
        // `reached` begins with the diagonal -cost.
        let get = |diagonal: isize| -> usize {
            let at = diagonal.checked_add_unsigned(cost).and_then(|at| usize::try_from(at).ok());
            at.and_then(|at| reached.get(at)).copied().unwrap_or_default()
        };
        let diagonal = x.cast_signed() - y.cast_signed();
        let span = cost.cast_signed();
        let down = diagonal == -span || (diagonal != span && get(diagonal - 1) < get(diagonal + 1));
        let from = if down { diagonal + 1 } else { diagonal - 1 };
        let from_x = get(from);
        let from_y = usize::try_from(from_x.cast_signed() - from).unwrap_or_default();
        let pair = if down {
            (from_x..from_x, from_y..from_y + 1)
        } else {
            (from_x..from_x + 1, from_y..from_y)
        };
        match pairs.last_mut() {
            // They touch: one change.
            Some(next) if next.0.start == pair.0.end && next.1.start == pair.1.end => {
                next.0.start = pair.0.start;
                next.1.start = pair.1.start;
            }
            _ => pairs.push(pair),
        }
        (x, y) = (from_x, from_y);
    }
    pairs.reverse();
    pairs
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn text(old: &str, new: &str) -> String {
        unified(old.as_bytes(), new.as_bytes()).join("\n")
    }

    #[test]
    fn a_change_has_its_surroundings_and_its_place() {
        let old = (1..=20).map(|n| n.to_string()).collect::<Vec<_>>().join("\n") + "\n";
        let new = old.replace("\n10\n", "\nten\nand more\n");
        assert_eq!(
            text(&old, &new),
            "@@ -7,7 +7,8 @@\n 7\n 8\n 9\n-10\n+ten\n+and more\n 11\n 12\n 13"
        );
        assert_eq!(text("", "a\n"), "@@ -0,0 +1 @@\n+a");
        assert_eq!(text("a\n", ""), "@@ -1 +0,0 @@\n-a");
        assert_eq!(text("a", "a\n"), "@@ -1 +1 @@\n-a\n\\ No newline at end of file\n+a");
        assert_eq!(text(&old, &old), "");
    }

    #[test]
    fn what_hides_or_drives_a_terminal_is_spelled_out() {
        let rows = unified(b"", b"a\x1b[2J\xe2\x80\xaeb\xff\r\n\tx\n");
        assert_eq!(rows[1..], ["+a\\u{1b}[2J\\u{202e}b\\xff\\r", "+\tx"]);
        assert!(unified(b"", &[b'x'; 5000])[1].chars().count() < 1100);
        assert!(is_binary(b"a\0b") && !is_binary(b"ab"));
    }

    /// Applies the changes to the old lines.
    fn applied<'a>(old: &[&'a [u8]], new: &[&'a [u8]]) -> Vec<&'a [u8]> {
        let mut out = Vec::new();
        let mut at = 0;
        for (gone, come) in changes(old, new) {
            out.extend(&old[at..gone.start]);
            out.extend(&new[come]);
            at = gone.end;
        }
        out.extend(&old[at..]);
        out
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

        #[test]
        fn the_changes_make_the_new_text_of_the_old(
            old in "[abc\n]{0,60}", new in "[abc\n]{0,60}"
        ) {
            let (old, new) = (lines(old.as_bytes()), lines(new.as_bytes()));
            prop_assert_eq!(applied(&old, &new), new.clone());
            // No more than a whole replacement, and lines in common are not shown as changed.
            let gone: usize = changes(&old, &new).iter().map(|(gone, _)| gone.len()).sum();
            prop_assert!(gone <= old.len());
        }

        #[test]
        fn the_way_is_the_shortest(old in prop::collection::vec(0..4_usize, 0..12), new in prop::collection::vec(0..4_usize, 0..12)) {
            // The longest common subsequence, by the table.
            let mut table = vec![vec![0_usize; new.len() + 1]; old.len() + 1];
            for (i, a) in old.iter().enumerate() {
                for (j, b) in new.iter().enumerate() {
                    table[i + 1][j + 1] = if a == b { table[i][j] + 1 } else { table[i][j + 1].max(table[i + 1][j]) };
                }
            }
            let common = table[old.len()][new.len()];
            let pairs = shortest(&old, &new).unwrap();
            let cost: usize = pairs.iter().map(|(gone, come)| gone.len() + come.len()).sum();
            prop_assert_eq!(cost, old.len() + new.len() - 2 * common);
        }
    }

    #[test]
    fn texts_that_have_nothing_in_common_are_shown_whole_and_soon() {
        let old: Vec<String> = (0..100_000).map(|n| n.to_string()).collect();
        let new = old.iter().map(|line| format!("x{line}")).collect::<Vec<_>>().join("\n");
        let old = old.join("\n");
        // A head, every line, and two last lines without an end.
        assert_eq!(unified(old.as_bytes(), new.as_bytes()).len(), 200_003);
    }
}
