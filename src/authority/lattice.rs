//! The lattice: what may be done, as a value that can be met, narrowed and compared.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    atom::Atom,
    constraint::{Constraint, Detail},
};

/// What may be done: atoms with their reach, or everything but a finite set.
///
/// Values are kept in a normal form, so equality is equality of what may be done:
/// - an atom that is held brings the atoms it implies, unconstrained;
/// - an atom that is excluded takes along every atom that implies it;
/// - an entry under a wildcard that is held, and an exclusion that excludes nothing, are dropped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Authority {
    allowed: Allowed,
    excluded: BTreeSet<Atom>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Allowed {
    Everything,
    Listed(BTreeMap<Atom, Constraint>),
}

/// What was asked for is more than what the holder has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("what is conferred must be held: the request goes beyond the holder's authority")]
pub struct Escalation;

impl Authority {
    /// Returns the authority over everything.
    pub fn universal() -> Self {
        Self { allowed: Allowed::Everything, excluded: BTreeSet::new() }
    }

    /// Returns the authority over nothing.
    pub fn none() -> Self {
        Self { allowed: Allowed::Listed(BTreeMap::new()), excluded: BTreeSet::new() }
    }

    /// Returns the authority over these atoms and what they imply. An atom that is given twice is
    /// held as far as both together reach when they are of one kind, else as the wider `any`.
    pub fn of(entries: impl IntoIterator<Item = (Atom, Constraint)>) -> Self {
        let mut map = BTreeMap::new();
        for (atom, constraint) in entries {
            if constraint == Constraint::None {
                continue;
            }
            for implied in atom.closure() {
                if implied != atom {
                    map.insert(implied, Constraint::Any);
                }
            }
            let joined = match map.remove(&atom) {
                None => constraint,
                Some(before) => join(before, constraint),
            };
            map.insert(atom, joined);
        }
        Self { allowed: Allowed::Listed(map), excluded: BTreeSet::new() }.normal()
    }

    /// Says whether nothing is allowed.
    pub fn is_none(&self) -> bool {
        matches!(&self.allowed, Allowed::Listed(map) if map.is_empty())
    }

    /// Returns the listed atoms with their reach in name order; `None` for "everything (but)".
    pub fn listed(&self) -> Option<impl Iterator<Item = (&Atom, &Constraint)>> {
        match &self.allowed {
            Allowed::Everything => None,
            Allowed::Listed(map) => Some(map.iter()),
        }
    }

    /// Returns what is excluded from everything, or from a wildcard that is listed.
    pub fn excluded(&self) -> impl Iterator<Item = &Atom> {
        self.excluded.iter()
    }

    /// Returns how far one atom reaches.
    pub fn reach(&self, atom: &Atom) -> Constraint {
        if self.excluded.iter().any(|excluded| excluded.includes(atom)) {
            return Constraint::None;
        }
        match &self.allowed {
            Allowed::Everything => Constraint::Any,
            Allowed::Listed(map) => map
                .iter()
                .find(|(held, _)| held.includes(atom))
                .map_or(Constraint::None, |(_, constraint)| constraint.clone()),
        }
    }

    /// Says whether a single request is allowed.
    pub fn allows(&self, atom: &Atom, detail: &Detail) -> bool {
        self.reach(atom).allows(detail)
    }

    /// Says whether everything that `other` allows is allowed here too.
    pub fn covers(&self, other: &Self) -> bool {
        let allowed = match (&self.allowed, &other.allowed) {
            (Allowed::Everything, _) => true,
            (Allowed::Listed(_), Allowed::Everything) => false,
            (Allowed::Listed(held), Allowed::Listed(asked)) => asked.iter().all(|(atom, c)| {
                held.iter().any(|(have, reach)| have.includes(atom) && reach.covers(c))
            }),
        };
        // What is missing here must be missing there, as far as it was there at all.
        allowed
            && self.excluded.iter().all(|hole| match &other.allowed {
                Allowed::Everything => other.excluded.iter().any(|there| there.includes(hole)),
                Allowed::Listed(asked) => asked
                    .keys()
                    .filter_map(|atom| atom.intersection(hole))
                    .all(|both| other.excluded.iter().any(|there| there.includes(&both))),
            })
    }

    /// Returns the greatest authority that both cover.
    #[must_use]
    pub fn meet(&self, other: &Self) -> Self {
        let allowed = match (&self.allowed, &other.allowed) {
            (Allowed::Everything, allowed) | (allowed, Allowed::Everything) => allowed.clone(),
            (Allowed::Listed(a), Allowed::Listed(b)) => {
                let mut map = BTreeMap::new();
                for (x, cx) in a {
                    for (y, cy) in b {
                        if let Some(atom) = x.intersection(y) {
                            map.insert(atom, cx.meet(cy));
                        }
                    }
                }
                Allowed::Listed(map)
            }
        };
        let excluded = self.excluded.union(&other.excluded).cloned().collect();
        Self { allowed, excluded }.normal()
    }

    /// Returns this authority without an atom, and without every atom that implies it.
    #[must_use]
    pub fn without(&self, atom: &Atom) -> Self {
        let mut narrowed = self.clone();
        narrowed.excluded.extend(atom.implied_by());
        narrowed.normal()
    }

    /// Returns `wanted` when the holder has it: authority is handed on, never made.
    ///
    /// # Errors
    /// [`Escalation`] when the holder does not cover it.
    pub fn confer(&self, wanted: Self) -> Result<Self, Escalation> {
        if self.covers(&wanted) { Ok(wanted) } else { Err(Escalation) }
    }

    fn normal(mut self) -> Self {
        let all = std::mem::take(&mut self.excluded);
        let mut excluded: BTreeSet<Atom> = all
            .iter()
            .filter(|atom| !all.iter().any(|other| other != *atom && other.includes(atom)))
            .cloned()
            .collect();
        if let Allowed::Listed(map) = &mut self.allowed {
            map.retain(|atom, constraint| {
                *constraint != Constraint::None && !excluded.iter().any(|hole| hole.includes(atom))
            });
            let held: Vec<Atom> = map.keys().cloned().collect();
            map.retain(|atom, _| !held.iter().any(|other| other != atom && other.includes(atom)));
            // Only holes in a wildcard are left to say.
            excluded.retain(|hole| map.keys().any(|atom| atom.includes(hole)));
        }
        self.excluded = excluded;
        self
    }
}

/// Returns what both reach together, as far as one constraint can say it.
fn join(a: Constraint, b: Constraint) -> Constraint {
    match (a, b) {
        (Constraint::None, c) | (c, Constraint::None) => c,
        (Constraint::Under(a), Constraint::Under(b)) => Constraint::under(a.into_iter().chain(b)),
        (Constraint::Commands(a), Constraint::Commands(b)) => {
            Constraint::commands(a.into_iter().chain(b))
        }
        (Constraint::OneOf(mut a), Constraint::OneOf(b)) => {
            a.extend(b);
            Constraint::OneOf(a)
        }
        (a, b) if a.covers(&b) => a,
        (a, b) if b.covers(&a) => b,
        // Two intervals with a gap, or different kinds: a list that names both means both, and
        // nothing narrower than everything covers them.
        _ => Constraint::Any,
    }
}

#[cfg(test)]
mod tests;
