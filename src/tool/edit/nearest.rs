//! What a text that is not there is nearest to, and how it differs.

use std::fmt::Write as _;

use super::Miss;
use crate::tool::{anchor::Row, lines::Text};

/// The most lines of the file that are compared, and the most characters of each.
const MAX_LINES: usize = 20_000;
const MAX_CHARS: usize = 300;

/// The most lines of one nearest place that are shown, and the most places.
const SHOWN_LINES: usize = 8;
const SHOWN_PLACES: usize = 3;

/// Below this likeness (0 to 1) a line is not near.
const NEAR: f64 = 0.5;

/// Returns the refusal for a text that is not in the file.
pub(super) fn miss(text: &Text, old: &str, at: usize) -> Miss {
    let wanted: Vec<&str> = old.trim_matches('\n').split('\n').collect();
    let places = places(text, &wanted);
    let sentence = format!("edits[{at}]: `old` is not in the file");
    let mut content = String::new();
    let mut show = Vec::new();
    let count = wanted.len().min(SHOWN_LINES);
    for (first, _) in &places {
        let lines = *first..first.saturating_add(count as u64);
        show.extend(lines.clone());
        for (line, wanted) in lines.zip(&wanted) {
            let found = String::from_utf8_lossy(text.content(line));
            if let Some(how) = whitespace(wanted, &found) {
                // Writing to a string cannot fail, here and below.
                let _ =
                    write!(content, "\nline {line} differs from `old` only in whitespace: {how}");
            }
        }
    }
    if places.is_empty() {
        content.push_str(", nor is anything like it; read the file again");
        return Miss { sentence, content, show };
    }
    content.push_str("\nnearest (→ is a tab, · a space, ␍ a carriage return):");
    for wanted in wanted.iter().take(count) {
        let _ = write!(content, "\n  old|{}", visible(wanted));
    }
    for line in &show {
        if *line <= text.count() {
            let found = String::from_utf8_lossy(text.content(*line));
            let anchor = Row::of(*line, text.content(*line)).anchor;
            let _ = write!(content, "\n  {anchor}|{}", visible(&found));
        }
    }
    Miss { sentence, content, show }
}

/// Returns the first lines of the places that are most like the wanted lines, best first.
fn places(text: &Text, wanted: &[&str]) -> Vec<(u64, f64)> {
    let Some(key) = wanted.iter().position(|line| !line.trim().is_empty()) else { return vec![] };
    let first = wanted.get(key).copied().unwrap_or_default();
    let lines = text.count().min(MAX_LINES as u64);
    let likeness = |wanted: &str, line: u64| -> f64 {
        let found = String::from_utf8_lossy(text.content(line));
        like(wanted, &found)
    };
    let mut candidates: Vec<(u64, f64)> = (1..=lines)
        .filter_map(|line| {
            let start = line.checked_sub(key as u64).filter(|start| *start > 0)?;
            let score = likeness(first, line);
            (score >= NEAR).then_some((start, score))
        })
        .collect();
    best_first(&mut candidates);
    candidates.truncate(20);
    for (start, score) in &mut candidates {
        let compared = wanted.len().min(SHOWN_LINES);
        let sum: f64 = (*start..)
            .zip(wanted.iter().take(compared))
            .map(|(line, wanted)| likeness(wanted, line))
            .sum();
        #[expect(clippy::cast_precision_loss, reason = "a handful of lines")]
        let mean = sum / compared.max(1) as f64;
        *score = mean;
    }
    best_first(&mut candidates);
    candidates.retain(|(_, score)| *score >= NEAR);
    // A place that is clearly the one needs no company.
    if candidates.first().is_some_and(|(_, score)| *score >= 0.95) {
        candidates.retain(|(_, score)| *score >= 0.95);
    }
    candidates.truncate(SHOWN_PLACES);
    candidates
}

fn best_first(candidates: &mut [(u64, f64)]) {
    candidates.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
}

fn like(wanted: &str, found: &str) -> f64 {
    if wanted == found {
        return 1.0;
    }
    let squeeze = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let (wanted, found) = (squeeze(wanted), squeeze(found));
    if wanted == found {
        return if wanted.is_empty() { 1.0 } else { 0.97 };
    }
    if !wanted.is_empty() && found.contains(&wanted) {
        return 0.9;
    }
    let cut = |text: &str| text.chars().take(MAX_CHARS).collect::<String>();
    strsim::sorensen_dice(&cut(&wanted), &cut(&found))
}

/// Says how two lines differ when it is only in whitespace.
fn whitespace(wanted: &str, found: &str) -> Option<String> {
    let bare = |text: &str| text.chars().filter(|c| !c.is_whitespace()).collect::<String>();
    if wanted == found || bare(wanted) != bare(found) || bare(wanted).is_empty() {
        return None;
    }
    let lead = |text: &str| text.chars().take_while(|c| c.is_whitespace()).collect::<String>();
    let trail =
        |text: &str| text.chars().rev().take_while(|c| c.is_whitespace()).collect::<String>();
    let how = |place: &str, found: String, wanted: String| {
        format!("it {place} with {}, `old` with {}", name(&found), name(&wanted))
    };
    if lead(wanted) != lead(found) {
        return Some(how("begins", lead(found), lead(wanted)));
    }
    if trail(wanted) != trail(found) {
        return Some(how("ends", trail(found), trail(wanted)));
    }
    Some("between its words".into())
}

/// Names a run of whitespace: `2 tabs`, `1 tab and 4 spaces`.
fn name(space: &str) -> String {
    let count = |wanted: fn(char) -> bool, one: &str| {
        let count = space.chars().filter(|c| wanted(*c)).count();
        let s = if count == 1 { "" } else { "s" };
        (count > 0).then(|| format!("{count} {one}{s}"))
    };
    let parts: Vec<String> = [
        count(|c| c == '\t', "tab"),
        count(|c| c == ' ', "space"),
        count(|c| c != '\t' && c != ' ', "other space character"),
    ]
    .into_iter()
    .flatten()
    .collect();
    if parts.is_empty() { "no whitespace".into() } else { parts.join(" and ") }
}

/// Makes whitespace visible: all tabs and carriage returns, and spaces at both ends.
fn visible(line: &str) -> String {
    let cut: String = line.chars().take(MAX_CHARS).collect();
    let inner = cut.trim_matches(' ').trim_matches(|c: char| c.is_whitespace());
    let start = cut.find(inner).unwrap_or_default();
    let end = start.saturating_add(inner.len());
    let mut shown: String = cut
        .char_indices()
        .map(|(at, c)| match c {
            '\t' => '→',
            '\r' => '␍',
            ' ' if at < start || at >= end => '·',
            c => c,
        })
        .collect();
    if cut.len() < line.len() {
        shown.push('…');
    }
    shown
}
