//! What a run and its sub-agents use up together, and what the sub-agents were denied.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::message::{Money, Usage};

use super::{Budgets, Denied};

/// The common account of a run and its sub-agents, for one prompt at a time.
#[derive(Debug, Default)]
pub struct Ledger(Mutex<State>);

#[derive(Debug)]
struct State {
    tokens: u64,
    money: Money,
    /// Whether nobody knows what some of it cost.
    is_unknown: bool,
    /// Whether an answer has begun that nobody has counted yet.
    owes: bool,
    reports: Vec<Report>,
}

impl Default for State {
    fn default() -> Self {
        let (tokens, money, reports) = (0, Money::ZERO, Vec::new());
        Self { tokens, money, is_unknown: false, owes: false, reports }
    }
}

/// What a sub-agent tells the run that started it.
#[derive(Debug, Default)]
pub(super) struct Report {
    /// Tokens that it used since its last report, and what they cost; `None` when nobody knows.
    pub(super) spent: Option<(Usage, Option<Money>)>,
    /// Calls that it was denied.
    pub(super) denied: Vec<Denied>,
    /// Whether nothing has made those good.
    pub(super) is_open: bool,
}

impl Ledger {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A prompt begins: nothing is used up.
    pub(super) fn begin(&self) {
        *self.lock() = State::default();
    }

    /// Takes tokens off, and what they cost; `None` when nobody knows.
    pub(super) fn spend(&self, usage: Usage, cost: Option<Money>) {
        let mut state = self.lock();
        state.tokens = state.tokens.saturating_add(usage.total());
        state.money = state.money.plus(cost.unwrap_or(Money::ZERO));
        state.is_unknown |= cost.is_none();
    }

    /// Returns what is left of a run's bounds: no money once nobody knows how much was spent.
    pub(super) fn left_of(&self, budgets: Budgets) -> Budgets {
        let state = self.lock();
        Budgets {
            tokens: budgets.tokens.map(|limit| limit.saturating_sub(state.tokens)),
            cost: budgets
                .cost
                .map(|limit| if state.is_unknown { Money::ZERO } else { limit.minus(state.money) }),
            ..budgets
        }
    }

    /// Notes whether an answer has begun that nobody has counted yet.
    pub(super) fn set_owing(&self, owes: bool) {
        self.lock().owes = owes;
    }

    /// Says whether an answer had begun that nobody has counted.
    pub(super) fn owes(&self) -> bool {
        self.lock().owes
    }

    /// Takes what a sub-agent tells. What it spent is taken off already.
    pub(super) fn report(&self, report: Report) {
        self.lock().reports.push(report);
    }

    /// Hands over what sub-agents told.
    pub(super) fn take(&self) -> Vec<Report> {
        std::mem::take(&mut self.lock().reports)
    }
}
