//! The composer: the text that a person writes, its cursor, history and undo. Pure.
//!
//! The text is what was written, to the letter; only what drives a terminal is left out, and
//! characters that cannot be seen are shown otherwise than they are ([`shown`]). The cursor stands
//! between graphemes, never inside one. A long paste is one token in the text
//! (`[pasted 1: 200 lines]`) that stands for what was pasted until it is sent.

use std::ops::Range;

use unicode_segmentation::{GraphemeCursor, UnicodeSegmentation as _};

use super::{
    cells::{shown, width, written},
    key::{Code, Key},
};

/// A paste of more lines than this is folded.
const FOLD_LINES: usize = 8;
/// A paste of more bytes than this is folded.
const FOLD_BYTES: usize = 800;
/// How many states can be gone back to.
const UNDO: usize = 200;
/// How many prompts are kept to go back to.
pub(super) const HISTORY: usize = 1000;
/// How many bytes the states that can be gone back to take at most.
const UNDO_BYTES: usize = 4 << 20;
/// A text from elsewhere of more bytes than this is folded.
const WHOLE: usize = 64 << 10;
/// How many killed texts can be put back.
const KILLED: usize = 20;

/// What a key did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Done {
    /// The text or the cursor changed, or could not.
    Edited,
    /// The key means nothing here.
    Ignored,
}

/// The kind of an edit; edits of one kind in a row are undone together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Typing,
    Deleting,
    Other,
}

/// The composer.
#[derive(Clone, Debug, Default)]
pub struct Composer {
    text: String,
    /// A byte offset on a boundary of graphemes.
    cursor: usize,
    undo: Vec<(String, usize)>,
    redo: Vec<(String, usize)>,
    last: Option<Kind>,
    pastes: Vec<(String, String)>,
    /// What was killed, the latest last.
    killed: Vec<String>,
    /// Whether the last key killed: what is killed next in a row belongs to it.
    killing: bool,
    /// What was put back last: where, and which of what was killed.
    yanked: Option<(Range<usize>, usize)>,
    history: Vec<String>,
    /// The place in the history, and what was being written before.
    browsing: Option<(usize, String)>,
    /// The column that moving up and down keeps to.
    goal: Option<usize>,
}

impl Composer {
    /// Returns the text, with a token for each long paste.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns the byte offset of the cursor.
    pub fn cursor(&self) -> usize {
        self.cursor
    }

    /// Says whether nothing is written.
    pub fn is_empty(&self) -> bool {
        self.text.is_empty()
    }

    /// Puts a text in the place of what is written, the cursor at its end.
    pub fn set(&mut self, text: &str) {
        self.save(Kind::Other);
        self.text = written(text);
        self.cursor = self.text.len();
        self.browsing = None;
    }

    /// Takes the whole text, pastes in full, and remembers it.
    pub fn take(&mut self) -> String {
        let shown = std::mem::take(&mut self.text);
        let whole = self.expand(&shown);
        self.remember(&whole);
        let killed = std::mem::take(&mut self.killed);
        let history = std::mem::take(&mut self.history);
        *self = Self { killed, history, ..Self::default() };
        whole
    }

    /// Puts a text in the place of a part of what is written; the cursor stands behind it, or `back`
    /// bytes before.
    pub fn replace(&mut self, part: Range<usize>, text: &str, back: usize) {
        let fits = part.start <= part.end
            && self.text.is_char_boundary(part.start)
            && self.text.is_char_boundary(part.end);
        if !fits {
            return;
        }
        self.save(Kind::Other);
        let text = written(text);
        self.cursor = part.start + text.len() - back.min(text.len());
        self.text.replace_range(part, &text);
        self.settle();
        self.browsing = None;
    }

    /// Returns the whole text, pastes in full.
    pub fn whole(&self) -> String {
        self.expand(&self.text)
    }

    /// Puts a text from elsewhere in the place of what is written; one that is the same leaves all as
    /// it is, and a very long one is folded.
    pub fn put(&mut self, text: &str) {
        if text == self.whole() {
            return;
        }
        if text.len() <= WHOLE {
            self.set(text);
        } else {
            self.set("");
            self.paste(text);
        }
    }

    /// Puts a text before what is written; one that is very long all in all is folded.
    pub fn put_before(&mut self, text: &str) {
        if self.is_empty() {
            self.put(text);
        } else if text.len() + self.text.len() <= WHOLE {
            self.set(&format!("{text}\n{}", self.text));
        } else {
            let whole = format!("{text}\n{}", self.whole());
            self.set("");
            self.paste(&whole);
        }
    }

    /// Returns what was said before, the latest last.
    pub fn history(&self) -> &[String] {
        &self.history
    }

    /// Takes what was said in earlier sessions, the oldest first: it stands before the rest.
    pub fn recollect(&mut self, earlier: Vec<String>) {
        let room = HISTORY.saturating_sub(self.history.len());
        let skip = earlier.len().saturating_sub(room);
        let before = self.history.len();
        self.history.splice(0..0, earlier.into_iter().skip(skip));
        if let Some((at, _)) = &mut self.browsing {
            *at += self.history.len() - before;
        }
    }

    /// Adds a prompt to the history.
    pub fn remember(&mut self, prompt: &str) {
        if prompt.trim().is_empty() || self.history.last().is_some_and(|last| last == prompt) {
            return;
        }
        if self.history.len() >= HISTORY {
            self.history.remove(0);
        }
        self.history.push(prompt.to_owned());
    }

    /// Takes what was pasted.
    pub fn paste(&mut self, text: &str) {
        let lines = text.lines().count();
        if lines <= FOLD_LINES && text.len() <= FOLD_BYTES {
            self.save(Kind::Other);
            self.insert(&written(text));
            return;
        }
        let token = self.fold(text);
        self.save(Kind::Other);
        self.insert(&token);
    }

    /// Returns what stands for a text that is sent whole: the same for the same one.
    fn fold(&mut self, text: &str) -> String {
        if let Some((token, _)) = self.pastes.iter().find(|(_, pasted)| pasted == text) {
            return token.clone();
        }
        let lines = text.lines().count();
        let number = self.pastes.len() + 1;
        let size =
            if lines > 1 { format!("{lines} lines") } else { format!("{} bytes", text.len()) };
        let token = format!("[pasted {number}: {size}]");
        self.pastes.push((token.clone(), text.to_owned()));
        token
    }

    fn expand(&self, shown: &str) -> String {
        let mut whole = String::with_capacity(shown.len());
        let mut rest = shown;
        // From left to right, so that what a paste says is never taken for another's token.
        while let Some((at, token, text)) = self
            .pastes
            .iter()
            .filter_map(|(token, text)| Some((rest.find(token.as_str())?, token, text)))
            .min_by_key(|(at, ..)| *at)
        {
            whole.push_str(rest.get(..at).unwrap_or_default());
            whole.push_str(text);
            rest = rest.get(at + token.len()..).unwrap_or_default();
        }
        whole.push_str(rest);
        whole
    }

    /// Takes a key. `columns` is the width of the rows that the text is shown in, at least 1.
    pub fn key(&mut self, key: Key, columns: usize) -> Done {
        let goal = self.goal.take();
        let killing = std::mem::take(&mut self.killing);
        let yanked = self.yanked.take();
        match (key.code, key.ctrl, key.alt) {
            (Code::Char(c), false, false) => self.typed(c),
            (Code::Char('j'), true, _) => self.newline(),
            (Code::Enter, _, _) if key.alt || key.shift || key.ctrl => self.newline(),
            (Code::Backspace, false, false) => self.delete(self.before()),
            (Code::Backspace, ..) | (Code::Char('w'), true, _) => {
                self.kill(self.word_before(), killing);
            }
            (Code::Delete, false, false) | (Code::Char('d'), true, _) => self.delete(self.after()),
            (Code::Delete, ..) | (Code::Char('d'), false, true) => {
                self.kill(self.word_after(), killing);
            }
            (Code::Char('k'), true, _) => {
                let end = self.line_end();
                self.kill(if end == self.cursor { self.after() } else { end }, killing);
            }
            (Code::Char('u'), true, _) => {
                let start = self.line_start();
                self.kill(if start == self.cursor { self.before() } else { start }, killing);
            }
            (Code::Char('y'), true, _) => self.yank(None),
            (Code::Char('y'), false, true) => self.yank(yanked),
            (Code::Left, true, _) | (Code::Left | Code::Char('b'), _, true) => {
                self.go(self.word_before());
            }
            (Code::Right, true, _) | (Code::Right | Code::Char('f'), _, true) => {
                self.go(self.word_after());
            }
            (Code::Left, ..) | (Code::Char('b'), true, _) => self.go(self.before()),
            (Code::Right, ..) | (Code::Char('f'), true, _) => self.go(self.after()),
            (Code::Home, true, _) => self.go(0),
            (Code::End, true, _) => self.go(self.text.len()),
            (Code::Home, ..) | (Code::Char('a'), true, _) => self.go(self.line_start()),
            (Code::End, ..) | (Code::Char('e'), true, _) => self.go(self.line_end()),
            (Code::Up, ..) => self.vertical(columns, goal, true),
            (Code::Down, ..) => self.vertical(columns, goal, false),
            (Code::Char('p'), true, _) => self.recall(true),
            (Code::Char('n'), true, _) => self.recall(false),
            // What a terminal sends for Ctrl-_ and Ctrl-/.
            (Code::Char('z' | '7' | '_' | '/'), true, _) => self.undo(),
            (Code::Char('r'), _, true) => self.redo(),
            _ => {
                self.goal = goal;
                return Done::Ignored;
            }
        }
        Done::Edited
    }

    fn typed(&mut self, c: char) {
        // What was typed by blanks apart is undone by words.
        self.save(if c.is_whitespace() { Kind::Other } else { Kind::Typing });
        self.insert(&written(c.encode_utf8(&mut [0; 4])));
    }

    fn newline(&mut self) {
        self.save(Kind::Other);
        self.insert("\n");
    }

    fn insert(&mut self, text: &str) {
        self.text.insert_str(self.cursor, text);
        self.cursor += text.len();
        self.settle();
        self.browsing = None;
    }

    /// A mark joins what stands before it, so an edit can leave the cursor inside a grapheme.
    fn settle(&mut self) {
        while !self.is_boundary(self.cursor) {
            self.cursor += 1;
        }
    }

    fn is_boundary(&self, at: usize) -> bool {
        at >= self.text.len()
            || (self.text.is_char_boundary(at)
                && GraphemeCursor::new(at, self.text.len(), true)
                    .is_boundary(&self.text, 0)
                    .unwrap_or(true))
    }

    /// Deletes between the cursor and another place.
    fn delete(&mut self, to: usize) {
        if to == self.cursor {
            return;
        }
        self.save(Kind::Deleting);
        let (from, to) = (to.min(self.cursor), to.max(self.cursor));
        self.text.replace_range(from..to, "");
        self.cursor = from;
        self.settle();
        self.browsing = None;
    }

    /// As [`Self::delete`]; what goes can be put back with Ctrl-Y. What is killed in a row is put back
    /// in one piece.
    fn kill(&mut self, to: usize, goes_on: bool) {
        let (from, end) = (to.min(self.cursor), to.max(self.cursor));
        if from < end {
            let text = self.text.get(from..end).unwrap_or_default();
            match self.killed.last_mut().filter(|_| goes_on) {
                Some(last) if to < self.cursor => last.insert_str(0, text),
                Some(last) => last.push_str(text),
                None => {
                    let text = text.to_owned();
                    if self.killed.len() >= KILLED {
                        self.killed.remove(0);
                    }
                    self.killed.push(text);
                }
            }
            self.last = None;
            self.delete(to);
        }
        self.killing = true;
    }

    /// Puts back what was killed last; right after that, what was killed before it instead.
    fn yank(&mut self, yanked: Option<(Range<usize>, usize)>) {
        let yanked = yanked.filter(|(place, at)| {
            self.text.get(place.clone()) == self.killed.get(*at).map(String::as_str)
        });
        let which = match &yanked {
            Some((_, which)) if *which > 0 => Some(which - 1),
            // Behind the first of them the last comes again.
            _ => self.killed.len().checked_sub(1),
        };
        let Some((which, text)) = which.and_then(|at| Some((at, self.killed.get(at)?.clone())))
        else {
            return;
        };
        self.save(Kind::Other);
        if let Some((place, _)) = yanked {
            self.text.replace_range(place.clone(), "");
            self.cursor = place.start;
        }
        let from = self.cursor;
        self.insert(&text);
        self.yanked = Some((from..from + text.len(), which));
    }

    fn go(&mut self, to: usize) {
        self.cursor = to;
        self.last = None;
    }

    /// Returns the token of a paste that ends, or begins, at a place.
    fn token(&self, at: usize, ends: bool) -> Option<usize> {
        self.pastes.iter().map(|(token, _)| token).find_map(|token| {
            let found = if ends {
                self.text.get(..at)?.ends_with(token.as_str())
            } else {
                self.text.get(at..)?.starts_with(token.as_str())
            };
            found.then_some(token.len())
        })
    }

    fn before(&self) -> usize {
        if let Some(length) = self.token(self.cursor, true) {
            return self.cursor - length;
        }
        let text = self.text.get(..self.cursor).unwrap_or_default();
        text.grapheme_indices(true).next_back().map_or(0, |(at, _)| at)
    }

    fn after(&self) -> usize {
        if let Some(length) = self.token(self.cursor, false) {
            return self.cursor + length;
        }
        let text = self.text.get(self.cursor..).unwrap_or_default();
        self.cursor + text.graphemes(true).next().map_or(0, str::len)
    }

    fn word_before(&self) -> usize {
        let text = self.text.get(..self.cursor).unwrap_or_default();
        let is_word = |word: &str| word.chars().any(char::is_alphanumeric);
        text.split_word_bound_indices()
            .rev()
            .find(|(_, word)| is_word(word))
            .map_or(0, |(at, _)| at)
    }

    fn word_after(&self) -> usize {
        let text = self.text.get(self.cursor..).unwrap_or_default();
        let is_word = |word: &str| word.chars().any(char::is_alphanumeric);
        text.split_word_bound_indices()
            .find(|(_, word)| is_word(word))
            .map_or(self.text.len(), |(at, word)| self.cursor + at + word.len())
    }

    fn line_start(&self) -> usize {
        self.text.get(..self.cursor).and_then(|t| t.rfind('\n')).map_or(0, |at| at + 1)
    }

    fn line_end(&self) -> usize {
        let rest = self.text.get(self.cursor..).unwrap_or_default();
        rest.find('\n').map_or(self.text.len(), |at| self.cursor + at)
    }

    /// Returns the rows that the text is shown in: byte ranges of at most `columns` cells.
    pub fn rows(&self, columns: usize) -> Vec<(usize, usize)> {
        let columns = columns.max(1);
        let mut rows = Vec::new();
        let mut start = 0;
        let mut used = 0;
        for (at, cluster) in self.text.grapheme_indices(true) {
            if cluster == "\n" {
                rows.push((start, at));
                start = at + 1;
                used = 0;
                continue;
            }
            let wide = width(&shown(cluster)).min(columns);
            if used + wide > columns {
                rows.push((start, at));
                start = at;
                used = 0;
            }
            used += wide;
        }
        rows.push((start, self.text.len()));
        rows
    }

    /// Returns the row and the column, in cells, of the cursor.
    pub fn place(&self, columns: usize) -> (usize, usize) {
        let rows = self.rows(columns);
        let row = rows.iter().rposition(|(start, _)| *start <= self.cursor).unwrap_or(0);
        let start = rows.get(row).map_or(0, |(start, _)| *start);
        (row, width(&shown(self.text.get(start..self.cursor).unwrap_or_default())))
    }

    fn vertical(&mut self, columns: usize, goal: Option<usize>, up: bool) {
        let (row, column) = self.place(columns);
        let goal = goal.unwrap_or(column);
        let rows = self.rows(columns);
        let wanted = if up { row.checked_sub(1) } else { Some(row + 1) };
        let Some((start, end)) = wanted.and_then(|row| rows.get(row)).copied() else {
            self.recall(up);
            return;
        };
        let mut used = 0;
        let mut place = start;
        for (at, cluster) in self.text.get(start..end).unwrap_or_default().grapheme_indices(true) {
            let wide = width(&shown(cluster));
            if used + wide > goal {
                break;
            }
            used += wide;
            place = start + at + cluster.len();
        }
        // The end of a row that was wrapped is the start of the next one.
        let wraps = place == end && self.text.as_bytes().get(end).is_some_and(|b| *b != b'\n');
        if wraps && place > start {
            let text = self.text.get(start..end).unwrap_or_default();
            place = start + text.grapheme_indices(true).next_back().map_or(0, |(at, _)| at);
        }
        self.go(place);
        self.goal = Some(goal);
    }

    fn recall(&mut self, older: bool) {
        let (at, draft) = match self.browsing.take() {
            Some((at, draft)) => (at, draft),
            None => (self.history.len(), self.text.clone()),
        };
        // What begins as the draft does; when nothing does, all of it.
        let begins = |text: &&String| text.starts_with(draft.as_str()) && **text != draft;
        let any = !self.history.iter().any(|text| begins(&text));
        let fits = |text: &String| any || begins(&text);
        let next = if older {
            self.history.iter().take(at).rposition(fits)
        } else {
            let later = self.history.iter().enumerate().skip(at + 1).find(|(_, text)| fits(text));
            Some(later.map_or(self.history.len(), |(at, _)| at)).filter(|_| at < self.history.len())
        };
        let Some(next) = next else {
            if at < self.history.len() {
                self.browsing = Some((at, draft));
            }
            return;
        };
        let text = self.history.get(next).cloned();
        self.save(Kind::Other);
        match text {
            Some(text) => {
                self.text = if text.len() <= WHOLE { written(&text) } else { self.fold(&text) };
                self.browsing = Some((next, draft));
            }
            None => self.text = draft,
        }
        self.cursor = self.text.len();
    }

    fn save(&mut self, kind: Kind) {
        if kind != Kind::Other && self.last == Some(kind) {
            return;
        }
        self.last = Some(kind);
        self.redo.clear();
        if self.undo.len() >= UNDO {
            self.undo.remove(0);
        }
        self.undo.push((self.text.clone(), self.cursor));
        let mut bytes: usize = self.undo.iter().map(|(text, _)| text.len()).sum();
        while bytes > UNDO_BYTES && self.undo.len() > 1 {
            bytes -= self.undo.remove(0).0.len();
        }
    }

    fn undo(&mut self) {
        if let Some((text, cursor)) = self.undo.pop() {
            self.redo.push((std::mem::replace(&mut self.text, text), self.cursor));
            self.cursor = cursor;
            self.last = None;
        }
    }

    fn redo(&mut self) {
        if let Some((text, cursor)) = self.redo.pop() {
            self.undo.push((std::mem::replace(&mut self.text, text), self.cursor));
            self.cursor = cursor;
            self.last = None;
        }
    }
}

#[cfg(test)]
mod tests;
