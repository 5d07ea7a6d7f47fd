//! Who is asked, and what that has cost: the chosen model, and those that take its place when it is
//! not to be had. Pure.

use crate::message::{Money, Price, Usage};

/// A model that can be asked, as far as the turn must know it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// `PROVIDER/MODEL`.
    pub name: String,
    /// What its tokens cost, when somebody said.
    pub price: Option<Price>,
}

/// The models of a conversation, and the one that is asked at the moment.
#[derive(Debug)]
pub(super) struct Asked {
    chosen: Candidate,
    fallbacks: Vec<Candidate>,
    /// How many of the fallbacks were gone to in this prompt.
    gone: usize,
    /// Those that were given up in this prompt, with the reason.
    given_up: Vec<(String, String)>,
    cost: Money,
    /// Whether all that was spent in this prompt is in `cost`.
    is_known: bool,
}

impl Asked {
    pub(super) fn new(chosen: Candidate) -> Self {
        Self {
            chosen,
            fallbacks: Vec::new(),
            gone: 0,
            given_up: Vec::new(),
            cost: Money::ZERO,
            is_known: true,
        }
    }

    pub(super) fn set(&mut self, chosen: Candidate, fallbacks: Vec<Candidate>) {
        (self.chosen, self.fallbacks) = (chosen, fallbacks);
    }

    /// A new prompt begins: the chosen model is the first one again.
    pub(super) fn begin(&mut self) {
        self.gone = 0;
        self.given_up.clear();
        self.cost = Money::ZERO;
        self.is_known = true;
    }

    /// Returns the number of the model that is asked: 0 is the chosen one.
    pub(super) fn number(&self) -> usize {
        self.gone
    }

    fn candidate(&self) -> &Candidate {
        self.gone.checked_sub(1).and_then(|at| self.fallbacks.get(at)).unwrap_or(&self.chosen)
    }

    /// Returns its name.
    pub(super) fn name(&self) -> &str {
        &self.candidate().name
    }

    /// Says whether it is known what its tokens cost.
    pub(super) fn is_priced(&self) -> bool {
        self.candidate().price.is_some()
    }

    /// Goes to the next one; `None` when there is none. Returns the names of both.
    pub(super) fn give_up(&mut self, reason: &str) -> Option<(String, String)> {
        let next = self.fallbacks.get(self.gone)?.name.clone();
        let before = self.name().to_owned();
        self.given_up.push((before.clone(), reason.to_owned()));
        self.gone += 1;
        Some((before, next))
    }

    /// Returns the failure of the last one together with those of the ones before.
    pub(super) fn sentence(&self, last: String) -> String {
        self.given_up
            .iter()
            .fold(last, |all, (name, why)| format!("{all}; before it `{name}` failed: {why}"))
    }

    /// Counts the tokens of an answer; returns what they cost, when that is known.
    pub(super) fn pay(&mut self, usage: Option<Usage>) -> Option<Money> {
        let cost = usage.zip(self.candidate().price).map(|(usage, price)| price.of(usage));
        self.paid(cost);
        cost
    }

    /// Counts what was paid; `None` when nobody knows how much.
    pub(super) fn paid(&mut self, cost: Option<Money>) {
        match cost {
            Some(cost) => self.cost = self.cost.plus(cost),
            None => self.is_known = false,
        }
    }

    /// Returns what was spent as far as it is known.
    pub(super) fn spent(&self) -> Money {
        self.cost
    }

    /// Returns what the prompt has cost; `None` when a part of it is not known.
    pub(super) fn cost(&self) -> Option<Money> {
        self.is_known.then_some(self.cost)
    }
}
