//! What tokens cost: prices as a provider lists them, and amounts of money without rounding errors.
//!
//! Pure integers: a price has at most six decimal places, an amount twelve. It must not know any
//! currency: whatever a price is written in, the amount is in.

use std::fmt;

use super::Usage;

/// Prices per million tokens, in millionths of the currency's unit: exactly what one token costs in
/// units of [`Money`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Price {
    /// Tokens of the request that no cache served.
    pub input: u64,
    /// Tokens of the answer.
    pub output: u64,
    /// Tokens of the request that came from a cache; `None` = as [`Price::input`].
    pub cache_read: Option<u64>,
    /// Tokens of the request that were written to a cache; `None` = as [`Price::input`].
    pub cache_write: Option<u64>,
}

/// The highest price that is accepted, in whole units of the currency per million tokens.
pub const MOST: u64 = 1_000_000;

impl Price {
    /// Returns what these tokens cost. Saturates instead of overflowing.
    pub fn of(&self, usage: Usage) -> Money {
        let cache_read = self.cache_read.unwrap_or(self.input);
        let cache_write = self.cache_write.unwrap_or(self.input);
        let parts = [
            (usage.input_tokens, self.input),
            (usage.output_tokens, self.output),
            (usage.cache_read_tokens, cache_read),
            (usage.cache_write_tokens, cache_write),
        ];
        let cost = |(tokens, price): (u64, u64)| u128::from(tokens).saturating_mul(price.into());
        Money(parts.into_iter().map(cost).fold(0, u128::saturating_add))
    }

    /// Reads a price as a decimal number writes it (`3`, `0.25`, `2.5e-1`): from 0 to [`MOST`] per
    /// million tokens, with at most six decimal places that count. `None` for anything else.
    pub fn parse(text: &str) -> Option<u64> {
        let millionths = Money::parse(text)?.0.checked_div(1_000_000)?;
        u64::try_from(millionths).ok().filter(|price| *price <= MOST.saturating_mul(1_000_000))
    }

    /// Writes a price as a decimal number.
    pub fn shown(price: u64) -> String {
        Money(u128::from(price).saturating_mul(1_000_000)).to_string()
    }
}

/// An amount of money in millionths of millionths of the currency's unit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Money(u128);

/// How many units of [`Money`] are one unit of the currency.
const ONE: u128 = 1_000_000_000_000;

/// The decimal places of an amount.
const PLACES: usize = 12;

impl Money {
    /// Nothing.
    pub const ZERO: Self = Self(0);

    /// Reads an amount as a decimal number writes it. `None` for what is negative, no number, or
    /// more than a billion units.
    pub fn parse(text: &str) -> Option<Self> {
        let (number, exponent) = match text.split_once(['e', 'E']) {
            Some((number, exponent)) => (number, exponent.parse::<i32>().ok()?),
            None => (text, 0),
        };
        let (whole, rest) = number.split_once('.').unwrap_or((number, ""));
        let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        if (whole.is_empty() && rest.is_empty()) || !digits(whole) || !digits(rest) {
            return None;
        }
        let all: u128 = format!("{whole}{rest}").parse().ok()?;
        let places = i32::try_from(PLACES).ok()? - i32::try_from(rest.len()).ok()? + exponent;
        let amount = if places >= 0 {
            all.checked_mul(10_u128.checked_pow(places.unsigned_abs())?)?
        } else {
            all.checked_div(10_u128.checked_pow(places.unsigned_abs())?)?
        };
        (amount <= ONE.saturating_mul(1_000_000_000)).then_some(Self(amount))
    }

    /// Returns what is left once another sum is taken off; nothing when that is more.
    #[must_use]
    pub fn minus(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }

    /// Adds an amount; saturates instead of overflowing.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// Returns the amount as a JSON number, which is exact to about 15 digits.
    pub fn as_f64(self) -> f64 {
        self.to_string().parse().unwrap_or(0.0)
    }
}

/// As a decimal number without zeros at its end.
impl fmt::Display for Money {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, rest) = (self.0 / ONE, self.0 % ONE);
        if rest == 0 {
            return write!(f, "{whole}");
        }
        let rest = format!("{rest:0PLACES$}");
        write!(f, "{whole}.{}", rest.trim_end_matches('0'))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_read_and_written_exactly() {
        for (text, shown) in [
            ("3", "3"),
            ("0.25", "0.25"),
            ("2.5e-1", "0.25"),
            ("1E2", "100"),
            (".5", "0.5"),
            ("0.000000000001", "0.000000000001"),
            ("1000000000", "1000000000"),
        ] {
            assert_eq!(Money::parse(text).unwrap().to_string(), shown, "{text}");
        }
        for text in ["", ".", "-1", "+1", "1,5", "x", "1e", "1e99", "1000000001", "NaN", "inf"] {
            assert_eq!(Money::parse(text), None, "{text}");
        }
        assert_eq!(Price::parse("1000000"), Some(1_000_000_000_000));
        assert_eq!(Price::parse("1000001"), None);
        assert_eq!(Price::shown(Price::parse("0.0028").unwrap()), "0.0028");
    }

    #[test]
    fn tokens_cost_what_their_kind_costs_and_nothing_overflows() {
        let price = Price {
            input: Price::parse("3").unwrap(),
            output: Price::parse("15").unwrap(),
            cache_read: Price::parse("0.3"),
            cache_write: Price::parse("3.75"),
        };
        let usage = Usage {
            input_tokens: 1_000_000,
            output_tokens: 100_000,
            cache_read_tokens: 10_000_000,
            cache_write_tokens: 2,
        };
        let cost = price.of(usage);
        assert_eq!(cost.to_string(), "7.5000075");
        assert!((cost.as_f64() - 7.500_007_5).abs() < 1e-12);
        assert_eq!(cost.plus(Money::parse("0.5").unwrap()).to_string(), "8.0000075");
        // Without a price of their own cached tokens cost as others do.
        let flat = Price { cache_read: None, cache_write: None, ..price };
        assert_eq!(flat.of(usage).to_string(), "34.500006");
        assert_eq!(price.of(Usage::default()), Money::ZERO);
        let most = u64::MAX;
        let price = Price { input: most, output: most, cache_read: None, cache_write: None };
        let usage = Usage { input_tokens: most, output_tokens: most, ..Usage::default() };
        let money = price.of(usage);
        assert!(money > Money::ZERO && money.plus(money) >= money);
    }
}
