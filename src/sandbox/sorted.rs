//! Sorting with one copy of the algorithm for the whole launcher. The standard library's sort is
//! compiled anew for every closure, ten kilobytes each, and the launcher is to be small. It knows
//! nothing of what it sorts.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

/// Sorts `items` as `compare` says; what is equal keeps its order.
pub(super) fn by<T>(items: &mut Vec<T>, compare: impl Fn(&T, &T) -> Ordering) {
    let mut ranks: Vec<usize> = (0..items.len()).collect();
    rank(&mut ranks, &|a, b| match (items.get(a), items.get(b)) {
        (Some(a), Some(b)) => compare(a, b),
        _ => Ordering::Equal,
    });
    let mut taken: Vec<Option<T>> = std::mem::take(items).into_iter().map(Some).collect();
    items.extend(ranks.into_iter().filter_map(|rank| taken.get_mut(rank).and_then(Option::take)));
}

/// Sorts `items` by a key that is made once for each.
pub(super) fn by_key<T, K: Ord>(items: &mut Vec<T>, key: impl Fn(&T) -> K) {
    let mut keyed: Vec<(K, T)> =
        std::mem::take(items).into_iter().map(|item| (key(&item), item)).collect();
    by(&mut keyed, |(a, _), (b, _)| a.cmp(b));
    items.extend(keyed.into_iter().map(|(_, item)| item));
}

/// Sorts `items` in their own order and keeps one of each.
pub(super) fn unique<T: Ord>(items: &mut Vec<T>) {
    by(items, T::cmp);
    items.dedup();
}

/// A set of `items`, one inserted after the other: to collect them would sort them first.
pub(super) fn set<T: Ord>(items: impl IntoIterator<Item = T>) -> BTreeSet<T> {
    let mut set = BTreeSet::new();
    set.extend(items);
    set
}

/// A map of `items`, as [`set`]; of one key the last value counts.
pub(super) fn map<K: Ord, V>(items: impl IntoIterator<Item = (K, V)>) -> BTreeMap<K, V> {
    let mut map = BTreeMap::new();
    map.extend(items);
    map
}

/// The one copy.
#[inline(never)]
fn rank(ranks: &mut [usize], compare: &dyn Fn(usize, usize) -> Ordering) {
    ranks.sort_by(|a, b| compare(*a, *b));
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn it_sorts_as_the_standard_library_does(items: Vec<(u8, u16)>) {
            let mut expected = items.clone();
            expected.sort_by_key(|(key, _)| *key);
            let mut found = items.clone();
            super::by(&mut found, |(a, _), (b, _)| a.cmp(b));
            prop_assert_eq!(&found, &expected);
            let mut found = items.clone();
            super::by_key(&mut found, |(key, _)| *key);
            prop_assert_eq!(&found, &expected);
            let mut expected = items.clone();
            expected.sort_unstable();
            expected.dedup();
            let mut found = items;
            super::unique(&mut found);
            prop_assert_eq!(found, expected);
        }
    }
}
