//! A prompt that is taken back before anything came of it: it leaves the conversation, and what went
//! along with it does, but what is true without it. Pure.

use super::{Action, Outcome, Turn};

/// A prompt of which nothing has come yet.
#[derive(Debug, Default)]
pub(super) struct Fresh {
    /// How many messages the conversation had before it.
    at: usize,
    /// What was told with it and has to be told all the same.
    news: Vec<String>,
    withdrawn: bool,
}

impl Fresh {
    pub(super) fn at(at: usize) -> Self {
        Self { at, ..Self::default() }
    }

    /// This goes along with it.
    pub(super) fn tells(&mut self, news: &[String]) {
        self.news.extend_from_slice(news);
    }

    pub(super) fn is_withdrawn(&self) -> bool {
        self.withdrawn
    }
}

impl Turn {
    /// Takes the prompt back and ends it, when nothing has come of it; says whether it did.
    pub(super) fn take_back(&mut self, out: &mut Vec<Action>) -> bool {
        let Some(fresh) = &mut self.fresh else { return false };
        fresh.withdrawn = true;
        let count = self.history.len().saturating_sub(fresh.at);
        self.news.splice(0..0, std::mem::take(&mut fresh.news));
        self.history.truncate(fresh.at);
        self.compaction.recount(&self.history);
        out.push(Action::RecordWithdrawn(count as u64));
        self.finish_with(Outcome::Interrupted, 130, None, out);
        true
    }
}

#[cfg(test)]
mod tests;
