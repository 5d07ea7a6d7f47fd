//! Which calls of one turn wait for which: readers run side by side, writers keep the turn's order
//! for each path, and what may touch anything runs alone. The outcome is that of running the calls
//! one after the other. Pure.

use crate::tool::Effect;

/// Returns, for each call, the earlier calls that must have ended before it starts.
pub fn waits(effects: &[Effect]) -> Vec<Vec<usize>> {
    effects
        .iter()
        .enumerate()
        .map(|(index, effect)| {
            // What may touch anything may have made two paths lead to one file.
            let is_after_barrier = effects.iter().take(index).any(|e| *e == Effect::Barrier);
            effects
                .iter()
                .enumerate()
                .take(index)
                .filter(|(_, earlier)| {
                    conflict(earlier, effect) || is_after_barrier && both_write(earlier, effect)
                })
                .map(|(earlier, _)| earlier)
                .collect()
        })
        .collect()
}

fn both_write(a: &Effect, b: &Effect) -> bool {
    matches!((a, b), (Effect::Write(_), Effect::Write(_)))
}

fn conflict(a: &Effect, b: &Effect) -> bool {
    match (a, b) {
        (Effect::Read, Effect::Read) => false,
        (Effect::Write(a), Effect::Write(b)) => a == b,
        // A reader's paths are not known in full (a search walks a tree), so it waits for every
        // earlier writer, and a writer for every earlier reader.
        (Effect::Read, Effect::Write(_))
        | (Effect::Write(_), Effect::Read)
        | (Effect::Barrier, _)
        | (_, Effect::Barrier) => true,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn effect() -> impl Strategy<Value = Effect> {
        prop_oneof![
            Just(Effect::Read),
            prop::sample::select(vec!["/a", "/b"]).prop_map(|path| Effect::Write(path.into())),
            Just(Effect::Barrier),
        ]
    }

    #[test]
    fn readers_run_together_and_writers_of_one_path_in_order() {
        let write = |path: &str| Effect::Write(path.into());
        assert_eq!(waits(&[Effect::Read, Effect::Read]), [vec![], Vec::<usize>::new()]);
        assert_eq!(waits(&[write("/a"), write("/b"), write("/a")]), [vec![], vec![], vec![0]]);
        assert_eq!(
            waits(&[Effect::Read, Effect::Barrier, Effect::Read]),
            [vec![], vec![0], vec![1]]
        );
    }

    #[test]
    fn behind_a_barrier_paths_that_differed_may_be_one() {
        let write = |path: &str| Effect::Write(path.into());
        assert_eq!(
            waits(&[Effect::Barrier, write("/a"), write("/b")]),
            [vec![], vec![0], vec![0, 1]]
        );
        assert_eq!(
            waits(&[write("/a"), write("/b"), Effect::Barrier])[1],
            Vec::<usize>::new(),
            "control: before it they run side by side"
        );
    }

    proptest! {
        #[test]
        fn only_earlier_calls_are_waited_for_and_barriers_see_everything(
            effects in prop::collection::vec(effect(), 0..12)
        ) {
            let waits = waits(&effects);
            for (index, earlier) in waits.iter().enumerate() {
                prop_assert!(earlier.iter().all(|e| *e < index));
                if effects[index] == Effect::Barrier {
                    prop_assert_eq!(earlier.len(), index);
                }
            }
        }
    }
}
