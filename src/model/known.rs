//! What is known of models by their names: window, longest answer, levels of effort.
//!
//! Pure tables. No provider was asked; the figures were compared with published pages in November
//! 2026. Of the Claude models from 4.5 on they are those of the models' own pages
//! (<https://platform.claude.com/docs/en/models/overview>) and of
//! <https://platform.claude.com/docs/en/build-with-claude/effort>; of older ones, and of OpenAI's, those
//! that gateways and clients publish of them, since the models' own pages
//! (<https://developers.openai.com/api/docs/models>) were not to be had, beside the levels of effort
//! that OpenAI's API reference describes. What was found nowhere is left out. They are for what kli
//! cannot ask; the settings come before them, and a model that is not here is asked without any of it.

use crate::message::Effort;

/// How a level of effort is put to a model of the Messages API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// Tokens to think with: `thinking.budget_tokens`.
    Budget,
    /// `output_config.effort`, beside thinking that the model itself bounds.
    Adaptive,
    /// `output_config.effort` alone.
    Level,
}

/// What is known of the models whose names start alike.
#[derive(Clone, Copy, Debug)]
pub struct Known {
    /// How their names start.
    pub start: &'static str,
    /// How many tokens a conversation may have, the answer included; `None` = whoever serves it
    /// decides.
    pub context_window: Option<u64>,
    /// The most tokens of one answer.
    pub max_output: Option<u64>,
    /// The levels of effort, the least first.
    pub efforts: &'static [Effort],
    /// How they are put; only the Messages API has more than one way.
    pub style: Style,
}

use Effort::{ExtraHigh, High, Low, Max, Medium, Minimal, None as Nothing};

const THREE: &[Effort] = &[Low, Medium, High];
const BUDGETS: &[Effort] = &[Nothing, Low, Medium, High];
const UP_TO_MAX: &[Effort] = &[Low, Medium, High, Max];
const ALL_UP: &[Effort] = &[Low, Medium, High, ExtraHigh, Max];
const FROM_NONE: &[Effort] = &[Nothing, Low, Medium, High, ExtraHigh];
const NONE_TO_MAX: &[Effort] = &[Nothing, Low, Medium, High, ExtraHigh, Max];

const fn row(
    start: &'static str,
    window: u64,
    output: u64,
    efforts: &'static [Effort],
    style: Style,
) -> Known {
    let (context_window, max_output) = (Some(window), Some(output));
    Known { start, context_window, max_output, efforts, style }
}

/// A row of a model whose window and longest answer are not known.
const fn efforts(start: &'static str, efforts: &'static [Effort], style: Style) -> Known {
    Known { start, context_window: None, max_output: None, efforts, style }
}

/// The first row that fits counts, so the longer of two starts comes first.
pub const KNOWN: [Known; 44] = [
    row("claude-3-7-sonnet", 200_000, 64_000, BUDGETS, Style::Budget),
    row("claude-3-5", 200_000, 8_192, &[], Style::Level),
    row("claude-3", 200_000, 4_096, &[], Style::Level),
    row("claude-opus-4-8", 1_000_000, 128_000, ALL_UP, Style::Adaptive),
    row("claude-opus-4-7", 1_000_000, 128_000, ALL_UP, Style::Adaptive),
    row("claude-opus-4-6", 1_000_000, 128_000, UP_TO_MAX, Style::Adaptive),
    row("claude-opus-4-5", 200_000, 64_000, THREE, Style::Level),
    row("claude-opus-4", 200_000, 32_000, BUDGETS, Style::Budget),
    row("claude-sonnet-4-6", 1_000_000, 128_000, UP_TO_MAX, Style::Adaptive),
    row("claude-sonnet-4", 200_000, 64_000, BUDGETS, Style::Budget),
    row("claude-haiku-4", 200_000, 64_000, BUDGETS, Style::Budget),
    // No page says its window any more.
    efforts("claude-mythos-preview", UP_TO_MAX, Style::Adaptive),
    row("claude-opus-5", 1_000_000, 128_000, ALL_UP, Style::Adaptive),
    row("claude-sonnet-5", 1_000_000, 128_000, ALL_UP, Style::Adaptive),
    row("claude-fable-5", 1_000_000, 128_000, ALL_UP, Style::Adaptive),
    row("claude-mythos-5", 1_000_000, 128_000, ALL_UP, Style::Adaptive),
    row("claude-haiku-5", 1_000_000, 128_000, ALL_UP, Style::Adaptive),
    row("gpt-5.6", 1_050_000, 128_000, NONE_TO_MAX, Style::Level),
    // Neither its window nor its levels were found; it is none of the next row's.
    efforts("gpt-5.5-pro", &[], Style::Level),
    row("gpt-5.5", 1_050_000, 128_000, FROM_NONE, Style::Level),
    row("gpt-5.4-pro", 1_050_000, 128_000, &[], Style::Level),
    row("gpt-5.4-mini", 400_000, 128_000, FROM_NONE, Style::Level),
    row("gpt-5.4-nano", 400_000, 128_000, FROM_NONE, Style::Level),
    row("gpt-5.4", 1_050_000, 128_000, FROM_NONE, Style::Level),
    row("gpt-5.3-codex", 400_000, 128_000, &[Low, Medium, High, ExtraHigh], Style::Level),
    row("gpt-5.2-codex", 400_000, 128_000, &[Low, Medium, High, ExtraHigh], Style::Level),
    efforts("gpt-5.2-pro", &[], Style::Level),
    row("gpt-5.2", 400_000, 128_000, FROM_NONE, Style::Level),
    row("gpt-5.1-codex-max", 400_000, 128_000, &[Low, Medium, High, ExtraHigh], Style::Level),
    row("gpt-5.1-codex", 400_000, 128_000, THREE, Style::Level),
    row("gpt-5.1", 400_000, 128_000, &[Nothing, Low, Medium, High], Style::Level),
    row("gpt-5-pro", 400_000, 272_000, &[High], Style::Level),
    row("gpt-5-codex", 400_000, 128_000, THREE, Style::Level),
    row("gpt-5-chat", 128_000, 16_384, &[], Style::Level),
    row("gpt-5", 400_000, 128_000, &[Minimal, Low, Medium, High], Style::Level),
    row("gpt-4.1", 1_047_576, 32_768, &[], Style::Level),
    row("gpt-4o", 128_000, 16_384, &[], Style::Level),
    row("o1-mini", 128_000, 65_536, &[], Style::Level),
    row("o1-preview", 128_000, 32_768, &[], Style::Level),
    row("o1", 200_000, 100_000, THREE, Style::Level),
    row("o3", 200_000, 100_000, THREE, Style::Level),
    row("o4-mini", 200_000, 100_000, THREE, Style::Level),
    // Their window is whatever the server was started with.
    efforts("gpt-oss", THREE, Style::Level),
    row("codex-mini", 200_000, 100_000, THREE, Style::Level),
];

/// Models that are listed though no setting names them, each with its provider: those that the
/// providers' own pages recommend, and their forerunners that are still served.
pub const LISTED: [(&str, &str); 24] = [
    ("anthropic", "claude-opus-5-5"),
    ("anthropic", "claude-opus-5"),
    ("anthropic", "claude-sonnet-5-5"),
    ("anthropic", "claude-sonnet-5"),
    ("anthropic", "claude-fable-5-1"),
    ("anthropic", "claude-haiku-5-5"),
    ("anthropic", "claude-opus-4-8"),
    ("anthropic", "claude-opus-4-6"),
    ("anthropic", "claude-sonnet-4-6"),
    ("anthropic", "claude-opus-4-5"),
    ("anthropic", "claude-sonnet-4-5"),
    ("anthropic", "claude-haiku-4-5"),
    ("openai", "gpt-5.6"),
    ("openai", "gpt-5.5"),
    ("openai", "gpt-5.4"),
    ("openai", "gpt-5.4-mini"),
    ("openai", "gpt-5.3-codex"),
    ("openai", "gpt-5.2"),
    ("openai", "gpt-5.1"),
    ("openai", "gpt-5"),
    ("openai", "gpt-5-mini"),
    ("openai", "gpt-4.1"),
    ("openai", "o3"),
    ("replay", "demo"),
];

/// Returns what is known of a model. Gateways put the maker's name before the model's, with a slash
/// or a point between; it does not count.
pub fn known(model: &str) -> Option<&'static Known> {
    let name = model.rsplit('/').next().unwrap_or(model);
    let name = name.split_once("anthropic.").map_or(name, |(_, name)| name);
    // Gateways write `claude-opus-4.6` for what Anthropic itself calls `claude-opus-4-6`.
    let name = if name.starts_with("claude-") { name.replace('.', "-") } else { name.to_owned() };
    KNOWN.iter().find(|known| {
        // `o3` is the start of `o3-pro` and not of `o300`, nor `gpt-5` of `gpt-5.9`.
        name.strip_prefix(known.start)
            .is_some_and(|rest| !rest.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '.'))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_start_comes_first_and_levels_are_in_order() {
        for (at, row) in KNOWN.iter().enumerate() {
            assert!(row.efforts.is_sorted(), "{}", row.start);
            for earlier in &KNOWN[..at] {
                assert!(
                    !row.start.starts_with(earlier.start),
                    "{} hides {}",
                    earlier.start,
                    row.start
                );
            }
        }
    }

    #[test]
    fn what_is_listed_is_known() {
        for (provider, model) in LISTED {
            assert!(provider == "replay" || known(model).is_some(), "{model}");
        }
    }

    #[test]
    fn names_of_gateways_and_versions_are_seen_through() {
        let start = |name: &str| known(name).map(|known| known.start);
        for (name, found) in [
            ("claude-sonnet-4-5-20250929", Some("claude-sonnet-4")),
            ("claude-opus-4-1", Some("claude-opus-4")),
            ("us.anthropic.claude-opus-4-5-20251101-v1:0", Some("claude-opus-4-5")),
            ("anthropic/claude-3-7-sonnet-latest", Some("claude-3-7-sonnet")),
            ("claude-3-haiku-20240307", Some("claude-3")),
            ("openai/gpt-5.1-codex-mini", Some("gpt-5.1-codex")),
            ("gpt-5-mini", Some("gpt-5")),
            ("gpt-5.9", None),
            ("anthropic/claude-opus-4.6", Some("claude-opus-4-6")),
            ("gpt-oss:20b", Some("gpt-oss")),
            ("o3-pro", Some("o3")),
            ("o300", None),
            ("qwen3-coder:30b", None),
        ] {
            assert_eq!(start(name), found, "{name}");
        }
    }
}
