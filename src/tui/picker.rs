//! A list to choose from, with a search that begins as soon as something is typed. Pure: keys in,
//! rows out; what is chosen is for the caller to act on.

use std::fmt::Write as _;

use unicode_segmentation::UnicodeSegmentation as _;

use crate::display::Role;

use super::{
    cells::{clean_row, cut, width},
    key::{Code, Key},
    style::{Line, Style},
};

/// The most items that are kept.
pub const MOST: usize = 2000;
/// The longest search, in characters.
const QUERY: usize = 200;

/// One thing to choose.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Item {
    /// What is handed back when it is chosen.
    pub value: String,
    /// What stands before the text, faint: a time, the branches of a tree. May be empty.
    pub lead: String,
    /// What it is.
    pub text: String,
    /// What stands behind the text where there is room, faint. May be empty.
    pub more: String,
    /// What is searched besides, and not shown. May be empty.
    pub also: String,
}

/// What is done with the one that is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    /// The slash command of this name is run with it.
    Command(&'static str),
    /// It is written where prompts are.
    Write,
}

/// What there is to choose from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choices {
    /// What is chosen.
    pub title: String,
    /// The items, in the order they are shown; what is beyond [`MOST`] is left out.
    pub items: Vec<Item>,
    /// Which of them is marked first.
    pub first: usize,
    /// What is done with the one that is chosen.
    pub then: Then,
}

impl Choices {
    /// Returns the list as text, for an interface that cannot draw one.
    pub fn as_text(&self) -> String {
        let mut text = clean_row(&self.title);
        for item in self.items.iter().take(MOST) {
            let parts = [&item.lead, &item.text, &item.more].map(|part| clean_row(part));
            let parts: Vec<&str> =
                parts.iter().map(|part| part.trim_end()).filter(|part| !part.is_empty()).collect();
            text.push('\n');
            if let Then::Command(name) = self.then {
                // Writing to a string cannot fail.
                let _ = write!(text, "/{name} {}: ", clean_row(&item.value));
            }
            text.push_str(&parts.join("  "));
        }
        text
    }
}

/// What a key came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Picked {
    /// The list stays open.
    Open,
    /// Nothing is chosen.
    Closed,
    /// This value is.
    Chosen(String),
}

/// The open list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Picker {
    title: String,
    then: Then,
    items: Vec<Item>,
    /// What of each item is searched, in lower case.
    searched: Vec<String>,
    query: String,
    /// The items that fit the search.
    found: Vec<usize>,
    /// Which of those is marked.
    at: usize,
}

impl Picker {
    /// Opens a list, with a search that has begun.
    pub fn new(choices: Choices, query: &str) -> Self {
        let mut items = choices.items;
        items.truncate(MOST);
        for item in &mut items {
            for part in [&mut item.lead, &mut item.text, &mut item.more] {
                *part = clean_row(part);
            }
        }
        let searched = items
            .iter()
            .map(|item| {
                format!("{} {} {} {}", item.value, item.text, item.more, item.also).to_lowercase()
            })
            .collect();
        let (title, then) = (clean_row(&choices.title), choices.then);
        let mut picker =
            Self { title, then, items, searched, query: String::new(), found: Vec::new(), at: 0 };
        picker.write(query);
        picker.at = choices.first.min(picker.found.len().saturating_sub(1));
        picker
    }

    /// Returns what is done with the one that is chosen.
    pub fn then(&self) -> Then {
        self.then
    }

    /// Adds to the search.
    pub fn write(&mut self, text: &str) {
        let room = QUERY.saturating_sub(self.query.chars().count());
        let line = text.lines().next().unwrap_or_default();
        self.query.extend(super::cells::clean(line).chars().take(room));
        self.search();
    }

    /// All words of the search are somewhere in what is found, letters of either case.
    fn search(&mut self) {
        let query = self.query.to_lowercase();
        let words: Vec<&str> = query.split_whitespace().collect();
        self.found = self
            .searched
            .iter()
            .enumerate()
            .filter(|(_, text)| words.iter().all(|word| text.contains(word)))
            .map(|(at, _)| at)
            .collect();
        self.at = 0;
    }

    /// Takes a key; `page` is how many rows a page has.
    pub fn key(&mut self, key: Key, page: usize) -> Picked {
        let last = self.found.len().saturating_sub(1);
        match (key.code, key.ctrl, key.alt) {
            (Code::Enter, ..) => {
                let chosen = self.found.get(self.at).and_then(|at| self.items.get(*at));
                return chosen.map_or(Picked::Open, |item| Picked::Chosen(item.value.clone()));
            }
            (Code::Esc, ..) | (Code::Char('c' | 'd' | 'g'), true, _) => return Picked::Closed,
            (Code::Up, ..) | (Code::Char('p'), true, _) => self.at = self.at.saturating_sub(1),
            (Code::Down | Code::Tab, ..) | (Code::Char('n' | 'r'), true, _) => {
                self.at = (self.at + 1).min(last);
            }
            (Code::PageUp, ..) => self.at = self.at.saturating_sub(page.max(1)),
            (Code::PageDown, ..) => self.at = self.at.saturating_add(page.max(1)).min(last),
            (Code::Home, ..) => self.at = 0,
            (Code::End, ..) => self.at = last,
            (Code::Char('u'), true, _) => {
                self.query.clear();
                self.search();
            }
            (Code::Char('w'), true, _) => {
                let kept = self.query.trim_end();
                let end = kept.rfind(char::is_whitespace).map_or(0, |at| at + 1);
                self.query.truncate(end);
                self.search();
            }
            (Code::Backspace, ..) => {
                let last = self.query.grapheme_indices(true).next_back().map_or(0, |(at, _)| at);
                self.query.truncate(last);
                self.search();
            }
            (Code::Char(c), false, false) => self.write(c.encode_utf8(&mut [0; 4])),
            _ => {}
        }
        Picked::Open
    }

    /// Returns how many items are shown when there are `height` rows.
    pub fn page(height: usize) -> usize {
        height.saturating_sub(3).max(1)
    }

    /// Returns the rows: at most `height`, at least one, none wider than `width`. What there is no
    /// room for is left out, the marked item last of all.
    pub fn rows(&self, width: usize, height: usize) -> Vec<Line> {
        let mut rows = Vec::new();
        if height > 3 {
            let mut title = Line::styled(self.title.as_str(), Style::BOLD);
            let count = match (self.found.len(), self.items.len()) {
                (found, all) if found == all => format!(" · {all}"),
                (found, all) => format!(" · {found} of {all}"),
            };
            title.push(&count, Style::DIM);
            rows.push(title);
        }
        if height > 1 {
            let mut search = Line::styled("search: ", Style::role(Role::Command));
            // Its end is what is being typed.
            let room = width.saturating_sub(search.width() + 1).max(1);
            let mut shown = self.query.as_str();
            while super::cells::width(shown) > room {
                let first = shown.graphemes(true).next().map_or(shown.len(), str::len);
                shown = shown.get(first..).unwrap_or_default();
            }
            search.push(shown, Style::PLAIN);
            search.push(" ", Style { reverse: true, ..Style::PLAIN });
            rows.push(search);
        }
        let page = height.saturating_sub(rows.len() + usize::from(height > 2)).max(1);
        let top = (self.at + 1).saturating_sub(page.div_ceil(2).max(1));
        let top = top.min(self.found.len().saturating_sub(page));
        for (number, item) in self.found.iter().enumerate().skip(top).take(page) {
            if let Some(item) = self.items.get(*item) {
                rows.push(row(item, number == self.at, width));
            }
        }
        if self.found.is_empty() {
            rows.push(Line::styled("  nothing fits the search", Style::DIM));
        }
        if height > 2 {
            rows.push(Line::styled("  Enter chooses · Esc leaves · typing searches", Style::DIM));
        }
        rows.iter().map(|row| cut(row, width)).collect()
    }
}

fn row(item: &Item, is_marked: bool, most: usize) -> Line {
    let mut line = if is_marked {
        Line::styled("▸ ", Style::role(Role::Prompt))
    } else {
        Line::styled("  ", Style::PLAIN)
    };
    if !item.lead.is_empty() {
        line.push(&item.lead, Style::DIM);
        line.push(" ", Style::PLAIN);
    }
    let style = if is_marked { Style::BOLD } else { Style::PLAIN };
    let behind = width(&item.more) + 2;
    let room = most.saturating_sub(line.width());
    // What stands behind keeps its place as long as a word of the text has room.
    let has_more = !item.more.is_empty() && room >= behind + 12;
    let room = if has_more { room - behind } else { room };
    let text = cut(&Line::styled(item.text.as_str(), style), room);
    for span in text.spans {
        line.push(&span.text, span.style);
    }
    if has_more {
        line.push(&format!("  {}", item.more), Style::DIM);
    }
    line
}

#[cfg(test)]
mod tests;
