//! Regular expressions of a model's: bounded, so that reading one takes no time to speak of, matching
//! one no memory, and no single match, which cannot be stopped, keeps a processor busy for long.

use std::{
    io,
    sync::atomic::{AtomicBool, Ordering},
};

use grep_matcher::{LineMatchKind, LineTerminator, Match, Matcher, NoCaptures};
use grep_regex::{RegexMatcher, RegexMatcherBuilder};

/// The most bytes that an expression may take once it is compiled, and the most that each thread
/// may take to match it.
const LIMIT: usize = 4 << 20;

/// Up to this size, in bytes and with classes of ASCII alone, an expression is light. Of one that
/// consists of optional parts 64 KiB of text take up to about a second; at [`LIMIT`] it is a hundred
/// times as much.
const LIGHT: usize = 32 << 10;

/// The longest line that a light expression is matched against, in bytes.
pub(super) const LONGEST_LINE: usize = 4 << 20;

/// The same for a heavy one, which is matched line by line.
pub(super) const LONGEST_LINE_HEAVY: usize = 4 << 10;

/// An expression, and how much work it may be.
#[derive(Clone, Debug)]
pub(super) struct Pattern {
    matcher: RegexMatcher,
    is_light: bool,
}

impl Pattern {
    /// Reads an expression that is matched within lines.
    ///
    /// # Errors
    /// A sentence for one that is none, or that is too large.
    pub(super) fn new(text: &str, ignore_case: bool) -> Result<Self, String> {
        let builder = |limit| {
            let mut builder = RegexMatcherBuilder::new();
            builder.size_limit(limit).dfa_size_limit(LIMIT).case_insensitive(ignore_case);
            builder.multi_line(true).crlf(true);
            builder
        };
        let matcher = builder(LIMIT).build(text).map_err(|error| {
            let reason = error.to_string();
            format!("`pattern` is no regular expression that can be used: {}", reason.trim())
        })?;
        let is_light = builder(LIGHT).unicode(false).build(text).is_ok();
        Ok(Self { matcher, is_light })
    }

    /// Returns the longest line that it is matched against, in bytes.
    pub(super) fn longest_line(&self) -> usize {
        if self.is_light { LONGEST_LINE } else { LONGEST_LINE_HEAVY }
    }

    /// Says whether a line has a match; of one that is too long only the beginning is looked at.
    pub(super) fn is_in(&self, line: &[u8]) -> bool {
        let beginning = line.get(..self.longest_line()).unwrap_or(line);
        self.matcher.is_match(beginning).unwrap_or(false)
    }

    /// Returns the matcher for a search that ends with an error once `stop` is set.
    pub(super) fn until<'a>(&'a self, stop: &'a AtomicBool) -> Until<'a> {
        Until { pattern: self, stop }
    }
}

/// A pattern that matches until it is told to stop.
#[derive(Clone, Copy, Debug)]
pub(super) struct Until<'a> {
    pattern: &'a Pattern,
    stop: &'a AtomicBool,
}

impl Until<'_> {
    fn matcher(&self) -> io::Result<&RegexMatcher> {
        if self.stop.load(Ordering::Relaxed) {
            return Err(io::Error::from(io::ErrorKind::TimedOut));
        }
        Ok(&self.pattern.matcher)
    }
}

impl Matcher for Until<'_> {
    type Captures = NoCaptures;
    type Error = io::Error;

    fn find_at(&self, text: &[u8], at: usize) -> Result<Option<Match>, io::Error> {
        Ok(self.matcher()?.find_at(text, at)?)
    }

    fn shortest_match_at(&self, text: &[u8], at: usize) -> Result<Option<usize>, io::Error> {
        Ok(self.matcher()?.shortest_match_at(text, at)?)
    }

    fn find_candidate_line(&self, text: &[u8]) -> Result<Option<LineMatchKind>, io::Error> {
        Ok(self.matcher()?.find_candidate_line(text)?)
    }

    fn new_captures(&self) -> Result<NoCaptures, io::Error> {
        Ok(NoCaptures::new())
    }

    /// Without it, the searcher goes line by line, and there is a look at `stop` before each.
    fn line_terminator(&self) -> Option<LineTerminator> {
        self.pattern.matcher.line_terminator().filter(|_| self.pattern.is_light)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_grow_without_bounds_is_refused() {
        for long in [r"\w{500}{50}", r"(?:\w?){9000}x", "(a{1000}){1000}"] {
            let refused = Pattern::new(long, false).unwrap_err();
            assert!(refused.contains("size limit"), "{refused}");
            assert!(refused.starts_with("`pattern` is no regular expression"), "{refused}");
        }
        for fine in [r"\w{50}", r"(?i)\bfn\s+\w+", "a{1000}"] {
            assert!(Pattern::new(fine, false).is_ok(), "control: {fine}");
        }
    }

    #[test]
    fn what_may_be_much_work_is_matched_against_short_lines_only() {
        for light in ["x", r"(?i)\bfn\s+\w+", r"\w{50}", r"^\s*(pub )?struct \w+", "TODO|FIXME"] {
            let pattern = Pattern::new(light, true).unwrap();
            assert_eq!(pattern.longest_line(), LONGEST_LINE, "{light}");
            assert!(pattern.until(&AtomicBool::new(false)).line_terminator().is_some(), "{light}");
        }
        for heavy in ["(?:[a-z ]?){1000}#", "a{30000}", r"(?:\w? ?){60}(?:[a-z]?){900}#"] {
            let pattern = Pattern::new(heavy, false).unwrap();
            assert_eq!(pattern.longest_line(), LONGEST_LINE_HEAVY, "{heavy}");
            assert!(pattern.until(&AtomicBool::new(false)).line_terminator().is_none(), "{heavy}");
        }
        let heavy = Pattern::new("(?:[a-z ]?){1000}#", false).unwrap();
        assert!(heavy.is_in(b"abc #") && !heavy.is_in(b"abc"));
        let long = [&[b'-'; LONGEST_LINE_HEAVY][..], b"#"].concat();
        assert!(!heavy.is_in(&long) && heavy.is_in(&long[1..]));
    }

    #[test]
    fn a_match_is_not_begun_once_it_is_to_stop() {
        let pattern = Pattern::new("a", false).unwrap();
        let stop = AtomicBool::new(false);
        assert!(pattern.until(&stop).find(b"bab").unwrap().is_some(), "control");
        stop.store(true, Ordering::Relaxed);
        let error = pattern.until(&stop).find(b"bab").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }
}
