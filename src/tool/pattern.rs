//! Regular expressions of a model's: bounded, so that reading one takes no time to speak of and
//! matching one no memory.

use grep_regex::RegexMatcherBuilder;

/// The most bytes that an expression may take once it is compiled, and the most that each thread
/// may take to match it. Ten times as much keeps a processor busy for seconds.
const LIMIT: usize = 10 << 20;

/// Returns a builder with these bounds.
pub(super) fn builder() -> RegexMatcherBuilder {
    let mut builder = RegexMatcherBuilder::new();
    builder.size_limit(LIMIT).dfa_size_limit(LIMIT);
    builder
}

/// Says why an expression cannot be used.
pub(super) fn refused(reason: &str) -> String {
    format!("`pattern` is no regular expression that can be used: {}", reason.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_grow_without_bounds_is_refused() {
        for long in [r"\w{500}{50}", r"(?:\w?){9000}x", "(a{1000}){1000}"] {
            let reason = builder().build(long).unwrap_err().to_string();
            assert!(reason.contains("size limit"), "{reason}");
            assert!(refused(&reason).starts_with("`pattern` is no regular expression"));
        }
        for fine in [r"\w{50}", r"(?i)\bfn\s+\w+", "a{1000}"] {
            assert!(builder().build(fine).is_ok(), "control: {fine}");
        }
    }
}
