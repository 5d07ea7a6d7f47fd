//! Runs that get nowhere: the same calls with the same results, again and again. Pure.
//!
//! What is compared is a whole answer's calls together with their results, so that a command whose
//! output changes (a build that is waited for) is never taken for a loop, and neither is a call that
//! is made once more among others. Two or three answers that take turns count as well.

use std::{
    collections::VecDeque,
    hash::{DefaultHasher, Hash as _, Hasher as _},
};

use crate::message::{Arguments, ToolCall, ToolResult};

/// How often in a row the same calls may have the same results when nobody says.
pub const REPEATS: u64 = 5;

/// The most answers that take turns in a loop.
const PERIOD: usize = 3;

/// The largest bound that is kept; it bounds the memory.
const MOST: usize = 1000;

/// What is to be done about the calls of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Nothing.
    Fine,
    /// The model should be told.
    Note(Loop),
    /// The run should end.
    End(Loop),
}

/// A loop that was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Loop {
    /// How often its calls were made.
    pub(super) times: usize,
    /// How many answers take turns in it.
    pub(super) period: usize,
}

impl Loop {
    /// Says what was seen: the start of a sentence about the model.
    pub(super) fn seen(self) -> String {
        let Self { times, period } = self;
        let calls = match period {
            1 => "the same calls".to_owned(),
            _ => format!("the same {period} rounds of calls"),
        };
        format!("{calls} {times} times in a row, with the same results each time")
    }
}

/// Watches the calls of one prompt.
#[derive(Debug)]
pub(super) struct Watch {
    most: usize,
    /// The last answers with their results, the latest at the end; no more than count.
    seen: VecDeque<u64>,
}

impl Watch {
    /// Returns a watch that ends a run at so many repetitions; fewer than two are none.
    pub(super) fn new(most: u64) -> Self {
        let most = usize::try_from(most).unwrap_or(MOST).clamp(2, MOST);
        Self { most, seen: VecDeque::new() }
    }

    /// Forgets what was seen: something new was said.
    pub(super) fn clear(&mut self) {
        self.seen.clear();
    }

    /// Takes the calls of an answer with their results.
    pub(super) fn see<'a>(
        &mut self,
        pairs: impl Iterator<Item = (&'a ToolCall, &'a ToolResult)>,
    ) -> Verdict {
        // Within one process the same text has the same value, which is all that is asked for.
        let mut hasher = DefaultHasher::new();
        for (call, result) in pairs {
            call.name.hash(&mut hasher);
            match &call.arguments {
                Arguments::Object(map) => serde_json::to_string(map).ok().hash(&mut hasher),
                Arguments::Malformed(text) => text.hash(&mut hasher),
            }
            (&result.text, result.is_error).hash(&mut hasher);
        }
        self.seen.push_back(hasher.finish());
        if self.seen.len() > self.most.saturating_mul(PERIOD) {
            self.seen.pop_front();
        }
        let loops = (1..=PERIOD).map(|period| Loop { times: self.times(period), period });
        // Of equal ones the shortest: what repeats itself repeats itself in pairs, too.
        let Some(worst) = loops.max_by_key(|it| (it.times, std::cmp::Reverse(it.period))) else {
            return Verdict::Fine;
        };
        match worst.times {
            times if times >= self.most => Verdict::End(worst),
            times if times == self.most.div_ceil(2).max(2) => Verdict::Note(worst),
            _ => Verdict::Fine,
        }
    }

    /// Returns how often the last `period` answers were given in a row.
    fn times(&self, period: usize) -> usize {
        let latest = self.seen.iter().rev();
        let same = latest.clone().zip(latest.skip(period)).take_while(|(a, b)| a == b).count();
        if self.seen.len() < period { 0 } else { 1 + same / period }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn see(watch: &mut Watch, arguments: &str, text: &str) -> Verdict {
        let call = ToolCall {
            id: format!("{}", watch.seen.len()),
            name: "bash".into(),
            arguments: Arguments::parse(arguments),
        };
        let result = ToolResult { call: call.id.clone(), text: text.into(), is_error: false };
        watch.see([(&call, &result)].into_iter())
    }

    fn verdicts(most: u64, said: &[(&str, &str)]) -> Vec<&'static str> {
        let mut watch = Watch::new(most);
        let word = |verdict| match verdict {
            Verdict::Fine => "fine",
            Verdict::Note(_) => "note",
            Verdict::End(_) => "end",
        };
        said.iter().map(|(call, text)| word(see(&mut watch, call, text))).collect()
    }

    #[test]
    fn the_same_call_with_the_same_result_is_noted_and_then_ends_the_run() {
        let same = [("{\"a\": 1}", "r"); 5];
        assert_eq!(verdicts(5, &same), ["fine", "fine", "note", "fine", "end"]);
        assert_eq!(verdicts(3, &same[..3]), ["fine", "note", "end"]);
        // A bound below two would end every run at its first call.
        assert_eq!(verdicts(1, &same[..2]), ["fine", "end"]);
        assert_eq!(verdicts(u64::MAX, &same), ["fine"; 5]);
    }

    #[test]
    fn what_changes_is_no_loop() {
        let results: Vec<(&str, String)> = (0..20).map(|n| ("{}", n.to_string())).collect();
        let results: Vec<(&str, &str)> = results.iter().map(|(a, b)| (*a, b.as_str())).collect();
        assert_eq!(verdicts(3, &results), ["fine"; 20], "the result changes");
        let calls: Vec<String> = (0..20).map(|n| format!("{{\"n\": {n}}}")).collect();
        let calls: Vec<(&str, &str)> = calls.iter().map(|call| (call.as_str(), "r")).collect();
        assert_eq!(verdicts(3, &calls), ["fine"; 20], "the call changes");
        let broken = [("a", "r"), ("a", "r"), ("b", "r"), ("a", "r"), ("a", "r")];
        assert_eq!(verdicts(3, &broken).last(), Some(&"note"), "it starts anew");
        assert!(!verdicts(3, &broken).contains(&"end"));
    }

    #[test]
    fn calls_that_take_turns_are_a_loop_too() {
        let pair = [("{\"a\":1}", "x"), ("{\"b\":1}", "y")];
        let said: Vec<_> = pair.iter().copied().cycle().take(10).collect();
        let found = verdicts(5, &said);
        assert_eq!(found.iter().position(|it| *it == "note"), Some(5));
        assert_eq!(found.iter().position(|it| *it == "end"), Some(9));
        let three = [("1", "x"), ("2", "y"), ("3", "z")];
        let said: Vec<_> = three.iter().copied().cycle().take(9).collect();
        assert_eq!(verdicts(3, &said).iter().position(|it| *it == "end"), Some(8));
        let mut watch = Watch::new(3);
        for (call, text) in said.iter().take(8) {
            see(&mut watch, call, text);
        }
        let Verdict::End(found) = see(&mut watch, "3", "z") else { panic!() };
        assert_eq!(found, Loop { times: 3, period: 3 });
        assert!(found.seen().starts_with("the same 3 rounds of calls 3 times"));
    }

    #[test]
    fn the_note_comes_once_for_a_pair() {
        let pair = [("{\"a\":1}", "x"), ("{\"b\":1}", "y")];
        let said: Vec<_> = pair.iter().copied().cycle().take(9).collect();
        let notes = verdicts(5, &said).iter().filter(|it| **it == "note").count();
        assert!((1..=2).contains(&notes), "{notes}");
    }
}
