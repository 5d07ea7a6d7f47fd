//! What a call would do to a file as it is now, for a person who is asked about it. It is made by the
//! code that does it, so that what is shown is what is done.

use std::{
    collections::HashMap,
    path::PathBuf,
    sync::{Mutex, PoisonError, atomic::AtomicBool},
};

use super::Outcome;
use crate::host::files::Stamp;

/// What a call would do.
#[derive(Clone, Debug, PartialEq)]
pub enum Preview {
    /// It changes a file.
    Change(Change),
    /// It has no effect: this is what comes of it.
    Refused(Outcome),
}

/// Looks at the file. The flag is set once nobody waits any more.
pub type Previewer = Box<dyn FnOnce(&AtomicBool) -> Preview + Send>;

/// How a file would change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The physical path.
    pub path: PathBuf,
    /// Whether there is no such file yet.
    pub is_new: bool,
    /// The changed parts, whole lines, in the order of the file.
    pub hunks: Vec<Hunk>,
    /// What else a person should know.
    pub notes: Vec<String>,
}

/// Whole lines, and what stands in their place. The bytes are the file's own, line endings included.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hunk {
    /// The number of the first old line, from 1.
    pub old_line: u64,
    /// The number of the first new line, from 1.
    pub new_line: u64,
    /// The old lines.
    pub old: Vec<u8>,
    /// The new lines.
    pub new: Vec<u8>,
}

/// The file that a person was shown a change of; nothing when nobody was asked.
#[derive(Debug, Default)]
pub(super) struct Shown(Mutex<Was>);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Was {
    #[default]
    Unseen,
    Absent,
    There(Stamp),
}

impl From<Option<Stamp>> for Was {
    fn from(stamp: Option<Stamp>) -> Self {
        stamp.map_or(Self::Absent, Self::There)
    }
}

impl Shown {
    /// Notes how the file was; `None` = there was none.
    pub(super) fn set(&self, stamp: Option<Stamp>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = stamp.into();
    }

    /// Returns the refusal when the file is not the one that was shown.
    pub(super) fn differs(&self, now: Option<Stamp>, name: &str) -> Option<Outcome> {
        let shown = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        (shown != Was::Unseen && shown != now.into()).then(|| {
            Outcome::error(format!(
                "`{name}` was changed by something else after the person was shown what this would do; \
                 nothing was changed: look at it and ask again"
            ))
        })
    }
}

/// Returns how one content becomes another, by whole lines: the hunks put in their places in the old one
/// make the new one, byte for byte.
pub(super) fn hunks(old: &[u8], new: &[u8]) -> Vec<Hunk> {
    let (old, new) = (lines(old), lines(new));
    let mut found = Vec::new();
    compare(&old, &new, (0, 0), &mut found);
    found
}

fn lines(bytes: &[u8]) -> Vec<&[u8]> {
    bytes.split_inclusive(|byte| *byte == b'\n').collect()
}

/// Compares two runs of lines that begin after so many: what both begin and end with is left out, and
/// the rest is cut at the lines that are there once on both sides.
fn compare(old: &[&[u8]], new: &[&[u8]], after: (usize, usize), found: &mut Vec<Hunk>) {
    let head = old.iter().zip(new).take_while(|(a, b)| a == b).count();
    let most = old.len().min(new.len()) - head;
    let tail =
        old.iter().rev().zip(new.iter().rev()).take(most).take_while(|(a, b)| a == b).count();
    let old = old.get(head..old.len() - tail).unwrap_or_default();
    let new = new.get(head..new.len() - tail).unwrap_or_default();
    let (mut old_at, mut new_at) = (after.0 + head, after.1 + head);
    if old.is_empty() && new.is_empty() {
        return;
    }
    let common = common(old, new);
    if common.is_empty() {
        let number = |at: usize| u64::try_from(at).unwrap_or(u64::MAX).saturating_add(1);
        found.push(Hunk {
            old_line: number(old_at),
            new_line: number(new_at),
            old: old.concat(),
            new: new.concat(),
        });
        return;
    }
    let (mut old_from, mut new_from) = (0, 0);
    for (a, b) in common.into_iter().chain([(old.len(), new.len())]) {
        let (left, right) = (old.get(old_from..a), new.get(new_from..b));
        compare(left.unwrap_or_default(), right.unwrap_or_default(), (old_at, new_at), found);
        old_at += a + 1 - old_from;
        new_at += b + 1 - new_from;
        (old_from, new_from) = (a + 1, b + 1);
    }
}

/// Returns the places of lines that are there once on both sides, as many as can stand in the same
/// order on both.
fn common(old: &[&[u8]], new: &[&[u8]]) -> Vec<(usize, usize)> {
    let mut seen: HashMap<&[u8], (usize, usize, usize, usize)> = HashMap::new();
    for (at, line) in old.iter().enumerate() {
        let entry = seen.entry(line).or_default();
        (entry.0, entry.1) = (entry.0 + 1, at);
    }
    for (at, line) in new.iter().enumerate() {
        let entry = seen.entry(line).or_default();
        (entry.2, entry.3) = (entry.2 + 1, at);
    }
    let mut pairs: Vec<(usize, usize)> = seen
        .into_values()
        .filter(|(in_old, _, in_new, _)| (*in_old, *in_new) == (1, 1))
        .map(|(_, a, _, b)| (a, b))
        .collect();
    pairs.sort_unstable();
    rising(&pairs)
}

/// Returns a longest part of pairs whose second numbers rise as the first ones do.
fn rising(pairs: &[(usize, usize)]) -> Vec<(usize, usize)> {
    // For each length the pair that ends lowest, and for each pair the one before it.
    let mut ends: Vec<usize> = Vec::new();
    let mut before: Vec<Option<usize>> = Vec::with_capacity(pairs.len());
    let second = |at: usize| pairs.get(at).map_or(0, |(_, b)| *b);
    for (at, (_, b)) in pairs.iter().enumerate() {
        let length = ends.partition_point(|end| second(*end) < *b);
        before.push(length.checked_sub(1).and_then(|last| ends.get(last)).copied());
        match ends.get_mut(length) {
            Some(end) => *end = at,
            None => ends.push(at),
        }
    }
    let mut chosen = Vec::new();
    let mut next = ends.last().copied();
    while let Some(at) = next {
        chosen.extend(pairs.get(at));
        next = before.get(at).copied().flatten();
    }
    chosen.reverse();
    chosen
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Puts the hunks in their places.
    fn applied(old: &[u8], hunks: &[Hunk]) -> Vec<u8> {
        let mut lines: Vec<Vec<u8>> = lines(old).iter().map(|line| line.to_vec()).collect();
        for hunk in hunks.iter().rev() {
            let from = usize::try_from(hunk.old_line).unwrap() - 1;
            let count = super::lines(&hunk.old).len();
            let gone: Vec<Vec<u8>> = lines.splice(from..from + count, [hunk.new.clone()]).collect();
            assert_eq!(gone.concat(), hunk.old);
        }
        lines.concat()
    }

    #[test]
    fn a_hunk_has_the_changed_lines_and_no_others() {
        let old = b"one\ntwo\nthree\nfour\nfive\n";
        let new = b"one\n2\nthree\nfour\nfive\nsix";
        let shown: Vec<(u64, u64, &[u8], &[u8])> =
            Vec::from([(2, 2, &b"two\n"[..], &b"2\n"[..]), (6, 6, &b""[..], &b"six"[..])]);
        let found = hunks(old, new);
        let found: Vec<(u64, u64, &[u8], &[u8])> =
            found.iter().map(|h| (h.old_line, h.new_line, &h.old[..], &h.new[..])).collect();
        assert_eq!(found, shown);
        assert!(hunks(old, old).is_empty());
        assert_eq!(hunks(b"", b"x").len(), 1);
    }

    proptest! {
        #[test]
        fn hunks_make_the_new_content(old in "[ab\\n\\r]{0,40}", new in "[abc\\n\\r]{0,40}") {
            let found = hunks(old.as_bytes(), new.as_bytes());
            prop_assert_eq!(applied(old.as_bytes(), &found), new.as_bytes());
            prop_assert_eq!(found.is_empty(), old == new);
            // The numbers of the new lines are true as well.
            for hunk in &found {
                let from = usize::try_from(hunk.new_line).unwrap() - 1;
                let rest = lines(new.as_bytes()).get(from..).unwrap_or_default().concat();
                prop_assert!(rest.starts_with(&hunk.new));
            }
        }

        #[test]
        fn hunks_of_texts_with_unique_lines(old in prop::collection::vec(0..30_u8, 0..30), new in prop::collection::vec(0..30_u8, 0..30)) {
            let text = |numbers: &[u8]| -> Vec<u8> {
                numbers.iter().flat_map(|n| format!("line {n}\n").into_bytes()).collect()
            };
            let (old, new) = (text(&old), text(&new));
            prop_assert_eq!(applied(&old, &hunks(&old, &new)), new);
        }
    }
}
