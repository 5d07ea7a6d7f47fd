//! What a prompt may use up, and the loops that would use it up for nothing. Pure.

use crate::message::Usage;

use super::{Action, CallResult, Event, Fault, FaultKind, Outcome, State, Turn, Verdict};

impl Turn {
    /// Counts the tokens of an answer, and what they cost.
    pub(super) fn count(&mut self, usage: Option<Usage>, out: &mut Vec<Action>) {
        // No answer takes none: a server that says so does not count.
        let usage = usage.filter(|usage| usage.total() > 0);
        let cost = self.asked.pay(usage);
        let Some(usage) = usage else {
            if self.budgets.tokens.is_some() && !std::mem::replace(&mut self.uncounted, true) {
                out.push(Action::Emit(Event::Notice(format!(
                    "`{}` does not say how many tokens an answer took, so the budget of tokens does \
                     not count it; `--max-turns` and `--timeout` bound the run all the same",
                    self.asked.name()
                ))));
            }
            return;
        };
        self.usage.add(usage);
        out.push(Action::RecordUsage(usage));
        out.push(Action::Emit(Event::Usage { turn: self.turns, usage, cost }));
    }

    /// Ends the prompt when tokens or money are used up in the middle of a turn; says whether it did.
    pub(super) fn spent_out(&mut self, out: &mut Vec<Action>) -> bool {
        let Some(message) = self.over_tokens().or_else(|| self.over_cost()) else { return false };
        out.push(Action::Abort);
        let fault = Fault { kind: FaultKind::Config, message };
        self.finish(Outcome::Budget, Some(fault), out);
        true
    }

    /// Says that the budget of tokens is used up.
    pub(super) fn over_tokens(&self) -> Option<String> {
        let limit = self.budgets.tokens.filter(|limit| self.usage.total() >= *limit)?;
        Some(format!(
            "the budget of {limit} tokens is used up ({} used); raise it with `--max-tokens`",
            self.usage.total()
        ))
    }

    /// Says that the budget of money is used up, or cannot be kept: what nobody can count must not
    /// be spent.
    pub(super) fn over_cost(&self) -> Option<String> {
        let limit = self.budgets.cost?;
        let name = self.asked.name();
        if !self.asked.is_priced() {
            let (provider, model) = name.split_once('/').unwrap_or((name, "NAME"));
            return Some(format!(
                "the budget of {limit} (`budgets.cost`) cannot be kept, as nobody says what \
                 `{name}` costs; set `providers.{provider}.models.{model}.price`"
            ));
        }
        let spent = self.asked.spent();
        if spent >= limit {
            return Some(format!(
                "the budget of {limit} is used up ({spent} spent); raise it with `budgets.cost`"
            ));
        }
        self.asked.uncounted().map(|why| {
            format!(
                "the budget of {limit} (`budgets.cost`) cannot be kept, as {why}; bound the run with \
                 `--max-turns` or `--timeout` instead"
            )
        })
    }

    /// Looks, once all results of an answer are there, whether they and the calls are those of the
    /// answers before. The model is told first; the sentence that is returned ends the run.
    pub(super) fn look_for_a_loop(&mut self, out: &mut Vec<Action>) -> Option<String> {
        let State::Working { calls, results, .. } = &mut self.state else { return None };
        let there: Vec<&CallResult> = results.iter().flatten().collect();
        if there.len() != calls.len() {
            return None;
        }
        let pairs = calls.iter().zip(there.iter().map(|result| &result.result));
        match self.watch.see(pairs) {
            Verdict::Fine => None,
            Verdict::Note(found) => {
                let seen = found.seen();
                let note = format!(
                    "\n[kli: you made {seen}. Do something else, or say what is in the way; to wait \
                     for something, wait in one command (`sleep`). If it goes on, the run ends.]"
                );
                if let Some(Some(last)) = results.last_mut() {
                    last.result.text.push_str(&note);
                }
                out.push(Action::Emit(Event::Notice(format!(
                    "the model made {seen}; it was told"
                ))));
                None
            }
            Verdict::End(found) => Some(format!(
                "the model made {}: the run ends, as it gets nowhere (`budgets.repeats` is how often \
                 that may be)",
                found.seen()
            )),
        }
    }
}
