//! Lengths of time as people write them: `90s`, `5m`, `1h30m`.

use std::time::Duration;

/// The longest time that is accepted: a year of 365 days.
const LONGEST: Duration = Duration::from_hours(365 * 24);

/// A length of time that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DurationError {
    /// A number alone.
    #[error("`{number}` has no unit; write `{number}s`, `{number}m` or `{number}h`")]
    NoUnit {
        /// The number.
        number: String,
    },
    /// Something else.
    #[error("`{text}` is no length of time; write it like `90s`, `5m` or `1h30m`")]
    Shape {
        /// What was written.
        text: String,
    },
    /// Zero.
    #[error("`{text}` is no time at all; write at least `1s`, or leave it out")]
    Zero {
        /// What was written.
        text: String,
    },
    /// More than a year.
    #[error("`{text}` is longer than a year; write at most `8760h`, or leave it out")]
    TooLong {
        /// What was written.
        text: String,
    },
}

/// Reads a length of time: whole numbers with the units `h`, `m`, `s`, `ms`, in that order, each at
/// most once. The result is above zero and at most 365 days.
///
/// # Errors
/// [`DurationError`], which names the repair.
pub fn parse_duration(text: &str) -> Result<Duration, DurationError> {
    let trimmed = text.trim();
    let shown = || super::values::shown(text);
    if !trimmed.is_empty() && trimmed.bytes().all(|b| b.is_ascii_digit()) {
        return Err(DurationError::NoUnit { number: super::values::shown(trimmed) });
    }
    let mut rest = trimmed;
    let mut total = Duration::ZERO;
    let mut smallest = u64::MAX;
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let (number, tail) = rest.split_at(digits);
        let letters = tail.bytes().take_while(u8::is_ascii_alphabetic).count();
        let (unit, tail) = tail.split_at(letters);
        let millis: u64 = match unit {
            "h" => 3_600_000,
            "m" => 60_000,
            "s" => 1_000,
            "ms" => 1,
            _ => return Err(DurationError::Shape { text: shown() }),
        };
        if digits == 0 || millis >= smallest {
            return Err(DurationError::Shape { text: shown() });
        }
        let part = number
            .parse::<u64>()
            .ok()
            .and_then(|n| n.checked_mul(millis))
            .map(Duration::from_millis)
            .ok_or_else(|| DurationError::TooLong { text: shown() })?;
        total = total.saturating_add(part);
        smallest = millis;
        rest = tail;
    }
    match total {
        _ if trimmed.is_empty() => Err(DurationError::Shape { text: shown() }),
        Duration::ZERO => Err(DurationError::Zero { text: shown() }),
        total if total > LONGEST => Err(DurationError::TooLong { text: shown() }),
        total => Ok(total),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_people_write_is_read() {
        for (text, millis) in [
            ("90s", 90_000),
            ("5m", 300_000),
            ("1h30m", 5_400_000),
            ("1h0m1s", 3_601_000),
            ("500ms", 500),
            ("1s500ms", 1_500),
            (" 2m ", 120_000),
            ("8760h", 31_536_000_000),
        ] {
            assert_eq!(parse_duration(text), Ok(Duration::from_millis(millis)), "{text}");
        }
    }

    #[test]
    fn anything_else_is_an_error_with_the_repair() {
        for (text, part) in [
            ("90", "`90` has no unit; write `90s`"),
            ("0", "`0` has no unit"),
            ("", "`` is no length of time; write it like `90s`"),
            ("m", "is no length of time"),
            ("1.5h", "is no length of time"),
            ("-5s", "is no length of time"),
            ("5x", "is no length of time"),
            ("5M", "is no length of time"),
            ("30m1h", "is no length of time"),
            ("1m1m", "is no length of time"),
            ("1 h", "is no length of time"),
            ("٣s", "is no length of time"),
            ("0s", "no time at all; write at least `1s`"),
            ("8761h", "longer than a year"),
            ("99999999999999999999s", "longer than a year"),
            ("18446744073709551615h", "longer than a year"),
            ("1\u{1b}[31mh", "`1\\u{1b}[31mh`"),
        ] {
            let error = parse_duration(text).unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
