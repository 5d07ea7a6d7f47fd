//! From the state to the rows of the region. Pure, and safe at every size from one cell on.

use std::time::Duration;

use crate::display::Role;

use super::{
    cells::{chop, clean, clean_tool, cut, shown, width, wrap},
    state::{Level, State, writing::picker_rows},
    style::{Line, Span, Style},
};

/// What stands before what is written.
const MARK: &str = "› ";
/// Rows of a running tool's output.
const OUTPUT: usize = 4;
const SPINNER: [&str; 8] = ["⠋", "⠙", "⠹", "⠸", "⠴", "⠦", "⠇", "⠏"];

/// Returns the cells that a row of the composer has on a terminal of this width.
pub fn composer_columns(width: usize) -> usize {
    // One cell is the cursor's at the end of a row.
    width.saturating_sub(MARK.chars().count() + 1).max(1)
}

/// Returns the rows of the region: fewer than the terminal has, and none wider than it.
pub fn region(state: &State) -> Vec<Line> {
    let room = state.height.saturating_sub(1).max(1);
    let footer = footer(state);
    if let Some(asking) = &state.asking {
        let (width, height) = question_size(state);
        let mut rows = asking.rows(width, height);
        rows.extend(status(state));
        if !state.composer.is_empty() {
            rows.push(queued("being written: ", state.composer.text()));
        }
        rows.truncate(room.saturating_sub(1).max(1));
        rows.push(footer);
        rows.truncate(room);
        return rows.into_iter().map(|row| cut(&row, width)).collect();
    }
    let composer = if let Some(picker) = &state.picker {
        picker.rows(state.width, picker_rows(state.height).min(room))
    } else {
        let (composer, caret) = composer(state);
        window(composer, caret, (room / 3).max(1).min(room))
    };
    let mut left = room.saturating_sub(composer.len());
    let footer: Vec<Line> = (left > 0).then_some(footer).into_iter().collect();
    left = left.saturating_sub(footer.len());
    let mut below = if state.picker.is_some() {
        Vec::new()
    } else {
        state.completion.rows(state.composer.text(), left, state.width)
    };
    below.truncate(left);
    left -= below.len();
    let mut status: Vec<Line> = status(state);
    status.truncate(left);
    left -= status.len();
    let mut live = live(state);
    let skip = live.len().saturating_sub(left);
    live.drain(..skip);
    let mut rows = live;
    // What is written stands apart from what was said.
    if rows.is_empty() && state.work.is_none() && state.follows_text() && left > 1 {
        rows.push(Line::default());
    }
    rows.extend(status);
    rows.extend(composer);
    rows.extend(below);
    rows.extend(footer);
    rows.into_iter().map(|row| cut(&row, state.width)).collect()
}

/// Returns the width and the height that the question about a call has.
pub(super) fn question_size(state: &State) -> (usize, usize) {
    let room = state.height.saturating_sub(1).max(1);
    let draft = usize::from(!state.composer.is_empty());
    let others = 1 + status(state).len() + draft;
    // Where there is little room, the question has it.
    (state.width, if room > others + 4 { room - others } else { room.saturating_sub(1).max(1) })
}

/// What may still change: the prompt that nothing came of, thinking, the open end of the answer,
/// running tools.
fn live(state: &State) -> Vec<Line> {
    let mut rows = Vec::new();
    let width = state.width;
    if let Some(answer) = &state.answer {
        rows.extend(answer.tail(width));
    }
    let Some(work) = &state.work else { return rows };
    if let Some(prompt) = &work.prompt {
        rows.extend(state.prompt_rows(prompt));
    }
    if !work.thinking.is_empty() {
        let style = Style { italic: true, ..Style::DIM };
        let text = clean(work.thinking.trim());
        let indent = Line::styled("  ", Style::PLAIN);
        let mut all = wrap(&[Span::new(text, style)], &indent, &indent, width);
        all.drain(..all.len().saturating_sub(2));
        rows.extend(all);
    }
    for tool in &work.tools {
        let mut head = Line::styled("▸ ", Style::role(Role::Activity));
        head.push(&tool.title, Style::BOLD);
        rows.push(head);
        let output = clean_tool(&tool.output);
        let indent = Line::styled("  ", Style::PLAIN);
        for line in output.iter().skip(output.len().saturating_sub(OUTPUT)) {
            rows.extend(chop(line, &indent, &indent, width).into_iter().take(1));
        }
    }
    rows
}

/// What is happening, what waits, and hints.
fn status(state: &State) -> Vec<Line> {
    let mut rows = Vec::new();
    if let Some(work) = &state.work {
        let elapsed = state.now.saturating_sub(work.since);
        let frame = usize::try_from(state.now.as_millis() / 120).unwrap_or(0) % SPINNER.len();
        let mut line = Line::default();
        line.push(SPINNER.get(frame).unwrap_or(&"*"), Style::role(Role::Activity));
        line.push(" ", Style::PLAIN);
        let doing = if work.stopping { "stopping" } else { &work.doing };
        line.push(doing, Style::PLAIN);
        line.push(&format!(" · {} · Esc Esc interrupts", spoken(elapsed)), Style::DIM);
        rows.push(line);
    } else if state.asked > 0 {
        rows.push(Line::styled("… looking", Style::DIM));
    }
    for text in &state.steering {
        rows.push(queued("to be told next: ", text));
    }
    for text in &state.next {
        rows.push(queued("next prompt: ", text));
    }
    if !state.next.is_empty() && state.composer.is_empty() {
        rows.push(Line::styled("  Up takes the last of them back", Style::DIM));
    }
    if let Some((hint, _)) = &state.hint {
        rows.push(Line::styled(hint.as_str(), Style::role(Role::Warning)));
    }
    rows
}

fn queued(what: &str, text: &str) -> Line {
    let mut line = Line::styled(format!("  {what}"), Style::DIM);
    let shown: String = text.chars().take(400).collect();
    line.push(&super::cells::clean_row(&shown), Style::PLAIN);
    line
}

fn spoken(time: Duration) -> String {
    let seconds = time.as_secs();
    if seconds < 60 {
        format!("{seconds} s")
    } else {
        format!("{} min {} s", seconds / 60, seconds % 60)
    }
}

/// Returns the rows of what is written and the row of the cursor.
fn composer(state: &State) -> (Vec<Line>, usize) {
    let columns = composer_columns(state.width);
    let text = state.composer.text();
    let cursor = state.composer.cursor();
    let (row_of_cursor, _) = state.composer.place(columns);
    let reverse = Style { reverse: true, ..Style::PLAIN };
    let has_room = state.width > MARK.chars().count() + 1;
    let mut rows = Vec::new();
    for (number, (start, end)) in state.composer.rows(columns).into_iter().enumerate() {
        let mut line = Line::default();
        if has_room {
            let mark = if number == 0 { MARK } else { "  " };
            line.push(mark, Style::role(Role::Prompt));
        }
        let row = text.get(start..end).unwrap_or_default();
        if number == row_of_cursor {
            let at = cursor.clamp(start, end) - start;
            let (before, after) = row.split_at_checked(at).unwrap_or((row, ""));
            let under = first_cluster(after);
            line.push(&shown(before), Style::PLAIN);
            line.push(&shown(if under.is_empty() { " " } else { under }), reverse);
            line.push(&shown(after.get(under.len()..).unwrap_or_default()), Style::PLAIN);
        } else {
            line.push(&shown(row), Style::PLAIN);
        }
        rows.push(line);
    }
    if text.is_empty() && state.width > 40 {
        let say = if state.work.is_some() {
            "tell it something while it works"
        } else {
            "say what to do; /help lists commands and keys"
        };
        if let Some(line) = rows.first_mut() {
            line.push(say, Style::DIM);
        }
    }
    (rows, row_of_cursor)
}

fn first_cluster(text: &str) -> &str {
    use unicode_segmentation::UnicodeSegmentation as _;
    text.graphemes(true).next().unwrap_or("")
}

/// Returns at most so many rows around one that must be seen.
fn window(rows: Vec<Line>, seen: usize, most: usize) -> Vec<Line> {
    if rows.len() <= most {
        return rows;
    }
    let from = (seen + 1).saturating_sub(most);
    rows.into_iter().skip(from).take(most).collect()
}

/// Returns the footer. The confinement comes first and is never left out; what there is no room for
/// is, from the least important on.
fn footer(state: &State) -> Line {
    let facts = &state.facts;
    let confinement = clean(&facts.confinement);
    let style = match facts.level {
        Level::Jailed => Style::role(Role::Jailed),
        Level::Unverified => Style::role(Role::Unverified),
        Level::Open => Style::role(Role::Unconfined),
    };
    let context = state.context.map(|tokens| match state.window() {
        Some(window) => format!("{} % of context", tokens.saturating_mul(100) / window),
        None => format!("{} tokens", thousands(tokens)),
    });
    // The last goes first.
    let mut parts = vec![clean(&facts.model)];
    parts.extend(context);
    parts.extend(state.name.as_ref().map(|name| format!("“{}”", clean(name))));
    parts.extend(state.spent.cost().map(|cost| format!("cost {cost}")));
    parts.push(format!("profile {}", clean(&facts.profile)));
    parts.extend(facts.effort.as_ref().map(|effort| format!("effort {}", clean(effort))));
    let mut line = Line::styled(confinement.as_str(), style);
    for part in parts {
        let part = format!(" · {part}");
        if line.width() + width(&part) > state.width {
            break;
        }
        line.push(&part, Style::DIM);
    }
    line
}

fn thousands(count: u64) -> String {
    match count {
        0..10_000 => count.to_string(),
        10_000..1_000_000 => format!("{}k", count / 1000),
        _ => format!("{}.{}M", count / 1_000_000, count / 100_000 % 10),
    }
}

#[cfg(test)]
use super::style::Color;

#[cfg(test)]
mod tests;
