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
    /// How many tokens a conversation with it may have, the answer included, when somebody said.
    pub window: Option<u64>,
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
    /// Why not all that was spent in this prompt is in `cost`, as the rest of a sentence.
    uncounted: Option<String>,
}

impl Asked {
    pub(super) fn new(chosen: Candidate) -> Self {
        Self {
            chosen,
            fallbacks: Vec::new(),
            gone: 0,
            given_up: Vec::new(),
            cost: Money::ZERO,
            uncounted: None,
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
        self.uncounted = None;
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

    /// Returns how many tokens a conversation with it may have, when that is known.
    pub(super) fn window(&self) -> Option<u64> {
        self.candidate().window
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
        let why = if usage.is_none() {
            format!("`{}` does not say how many tokens its answer took", self.name())
        } else {
            format!("nobody says what `{}` costs", self.name())
        };
        self.add(cost, why);
        cost
    }

    /// Counts an answer that had begun and was never whole: what had come of it is paid for, and how
    /// many tokens that were is told with the end alone.
    pub(super) fn broke_off(&mut self) {
        let why = format!(
            "an answer of `{}` broke off, and nobody says how many tokens it took",
            self.name()
        );
        self.add(None, why);
    }

    /// Counts what a sub-agent paid; `None` when nobody knows how much.
    pub(super) fn paid(&mut self, cost: Option<Money>) {
        self.add(cost, "nobody says what a sub-agent's answer cost".to_owned());
    }

    fn add(&mut self, cost: Option<Money>, why: String) {
        match cost {
            Some(cost) => self.cost = self.cost.plus(cost),
            None => {
                self.uncounted.get_or_insert(why);
            }
        }
    }

    /// Returns what was spent as far as it is known.
    pub(super) fn spent(&self) -> Money {
        self.cost
    }

    /// Returns why not all that was spent is known, as the rest of a sentence.
    pub(super) fn uncounted(&self) -> Option<&str> {
        self.uncounted.as_deref()
    }

    /// Returns what the prompt has cost; `None` when a part of it is not known.
    pub(super) fn cost(&self) -> Option<Money> {
        self.uncounted.is_none().then_some(self.cost)
    }
}
