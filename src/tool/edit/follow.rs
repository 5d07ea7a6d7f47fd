//! Following lines: where the rows that the model was shown are now.

use std::collections::{HashMap, HashSet};

use super::splice::Splice;
use crate::tool::{
    lines::Text,
    memory::{Shown, View},
};

/// Finds the rows again in a file that something else may have changed. A row is where it was when
/// its line is the same there and nothing says otherwise; else where its line is, if there is just
/// one such line; else it is lost.
pub(super) fn resync(view: &mut View, text: &Text) {
    if view.rows.is_empty() {
        return;
    }
    // A line's hash, the first line that has it, and whether it is the only one.
    let mut places: HashMap<u64, (u64, bool)> = HashMap::new();
    for number in 1..=text.count() {
        let Some(full) = text.full(number) else { continue };
        places.entry(full).and_modify(|(_, is_only)| *is_only = false).or_insert((number, true));
    }
    let full = |line: u64| text.full(line);
    for shown in view.rows.values_mut() {
        let Some(now) = shown.now else { continue };
        let only = places.get(&shown.full).and_then(|(line, is_only)| is_only.then_some(*line));
        shown.now = if full(now) == Some(shown.full) && (only.is_some() || fits(shown, now, &full))
        {
            Some(now)
        } else {
            only
        };
    }
}

/// Says whether a line that is there more than once can be the one that was shown: of the
/// neighbours that were shown with it, at least one must be beside it still.
fn fits(shown: &Shown, now: u64, full: &impl Fn(u64) -> Option<u64>) -> bool {
    let before = shown.before.map(|hash| full(now.saturating_sub(1)) == Some(hash));
    let after = shown.after.map(|hash| full(now.saturating_add(1)) == Some(hash));
    match (before, after) {
        (None, None) => true,
        (before, after) => before == Some(true) || after == Some(true),
    }
}

/// Moves the rows with their lines through kli's own edit. A line that a splice touched is gone.
pub(super) fn shift(view: &mut View, old: &Text, new: &Text, splices: &[Splice]) {
    let wanted: HashSet<u64> = view.rows.values().filter_map(|shown| shown.now).collect();
    let mut moved: HashMap<u64, u64> = HashMap::new();
    let mut left = splices.iter().peekable();
    let (mut put, mut taken) = (0_usize, 0_usize);
    for (number, span) in (1_u64..).zip(&old.lines) {
        while let Some(splice) = left.next_if(|s| s.end <= span.start) {
            put = put.saturating_add(splice.with.len());
            taken = taken.saturating_add(splice.end.saturating_sub(splice.start));
        }
        if left.peek().is_some_and(|splice| splice.start < span.next && splice.end > span.start) {
            continue;
        }
        if !wanted.contains(&number) {
            continue;
        }
        let start = span.start.saturating_add(put).saturating_sub(taken);
        let line = new.line_at(start);
        if new.span(line).is_some_and(|there| there.start == start)
            && new.content(line) == old.content(number)
        {
            moved.insert(number, line);
        }
    }
    for shown in view.rows.values_mut() {
        let is_there = shown.now.filter(|now| old.full(*now) == Some(shown.full));
        shown.now = is_there.and_then(|now| moved.get(&now).copied());
    }
}
