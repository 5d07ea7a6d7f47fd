//! How much a model thinks: the levels that settings and flags name, in order.
//!
//! What a level is on the wire, and which model has which, is said where models are known.

use std::{fmt, str::FromStr};

/// A level of effort, the least first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Effort {
    /// No thinking at all.
    None,
    /// Next to none.
    Minimal,
    /// Little.
    Low,
    /// What most models do by themselves.
    Medium,
    /// Much.
    High,
    /// More than much, for long work.
    ExtraHigh,
    /// As much as the model can.
    Max,
}

impl Effort {
    /// Every level, the least first.
    pub const ALL: [Self; 7] = [
        Self::None,
        Self::Minimal,
        Self::Low,
        Self::Medium,
        Self::High,
        Self::ExtraHigh,
        Self::Max,
    ];

    /// The names of all levels, in the same order.
    pub const NAMES: [&'static str; 7] =
        ["none", "minimal", "low", "medium", "high", "xhigh", "max"];

    /// Returns the level's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Minimal => "minimal",
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
            Self::ExtraHigh => "xhigh",
            Self::Max => "max",
        }
    }

    /// Returns the level of `levels` that is nearest: the highest that is not above this one, or
    /// else the lowest. `None` where there are none.
    pub fn nearest(self, levels: &[Self]) -> Option<Self> {
        let below = levels.iter().filter(|level| **level <= self).max();
        below.or_else(|| levels.iter().min()).copied()
    }
}

impl fmt::Display for Effort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A word that is no level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoEffort;

impl FromStr for Effort {
    type Err = NoEffort;

    fn from_str(text: &str) -> Result<Self, NoEffort> {
        Self::ALL.into_iter().find(|level| level.name() == text).ok_or(NoEffort)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_have_their_names_and_their_order() {
        assert_eq!(Effort::ALL.map(Effort::name), Effort::NAMES);
        assert!(Effort::ALL.is_sorted());
        for level in Effort::ALL {
            assert_eq!(level.name().parse(), Ok(level));
        }
        assert_eq!("hihg".parse::<Effort>(), Err(NoEffort));
    }

    #[test]
    fn the_nearest_level_is_the_next_one_below() {
        let some = [Effort::Low, Effort::High];
        for (wanted, found) in [
            (Effort::None, Effort::Low),
            (Effort::Low, Effort::Low),
            (Effort::Medium, Effort::Low),
            (Effort::Max, Effort::High),
        ] {
            assert_eq!(wanted.nearest(&some), Some(found), "{wanted}");
        }
        assert_eq!(Effort::High.nearest(&[]), None);
    }
}
