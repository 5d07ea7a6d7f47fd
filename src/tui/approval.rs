//! The question about a call: what is shown of it, which keys answer it, and which do not. Pure.
//!
//! Only a key that was pressed at the question answers it: it must have been on the screen, then
//! nothing may have been pressed for [`PAUSE`], or [`THOUGHT`] by somebody who is writing, and nothing
//! may wait to be read; and the key must come alone. What was typed before goes where it was meant to go. A paste never answers.

use std::time::Duration;

use crate::{
    agent::approval::{Answer, Change, Question, Shown},
    display::Role,
};

use super::{
    cells::{clean, cut, shown, wrap},
    composer::{Composer, Done},
    exact::{exact, warning},
    key::{Code, Key},
    style::{Line, Span, Style},
};

/// How long nothing must have been pressed at the question before a key answers it.
pub const PAUSE: Duration = Duration::from_millis(300);

/// The same for somebody who is writing something else: within a sentence there are pauses as well.
pub const THOUGHT: Duration = Duration::from_secs(1);

/// The longest paste that is taken into a text that is edited, in bytes.
const PASTE: usize = 64 * 1024;

/// What the lines of `--plain` can say.
pub const LINES: &str = "answer with a line: y (yes, once), n or n REASON (no), a (yes, for the session), e TEXT (this \
     in its place)";

/// The question that is open.
#[derive(Clone, Debug, PartialEq)]
pub struct Asking {
    question: Question,
    /// A frame with it was made.
    framed: bool,
    /// Since when it is on the screen and nothing was pressed.
    since: Option<Duration>,
    /// Something else is being written.
    writes: bool,
    armed: bool,
    /// The first row that is seen.
    top: usize,
    mode: Mode,
}

#[derive(Clone, Debug)]
enum Mode {
    /// The keys answer.
    Choose,
    /// Why not is being written.
    Why(Box<Composer>),
    /// What is to run in its place is being written.
    Change(Box<Composer>),
}

impl PartialEq for Mode {
    fn eq(&self, other: &Self) -> bool {
        let text = |mode: &Self| match mode {
            Self::Choose => None,
            Self::Why(composer) | Self::Change(composer) => Some(composer.text().to_owned()),
        };
        std::mem::discriminant(self) == std::mem::discriminant(other) && text(self) == text(other)
    }
}

/// What came of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Took {
    /// It is not for the question.
    Nothing,
    /// It was taken.
    Key,
    /// It was taken, and the person should know something.
    Hint(&'static str),
    /// It answers.
    Answer(Answer),
}

impl Asking {
    /// Returns a question that nobody has seen yet. `writes`: something else is being written.
    pub fn new(question: Question, writes: bool) -> Self {
        let (framed, since, armed, top, mode) = (false, None, false, 0, Mode::Choose);
        Self { question, framed, since, writes, armed, top, mode }
    }

    /// Returns the question.
    pub fn question(&self) -> &Question {
        &self.question
    }

    /// A frame with it was made, and is on its way to the terminal.
    pub fn framed(&mut self) {
        self.framed = true;
    }

    /// The terminal has taken all that was made so far.
    pub fn written(&mut self, now: Duration) {
        if self.framed && self.since.is_none() {
            self.since = Some(now);
        }
    }

    /// Nothing waits to be read: from the pause on, keys answer.
    pub fn quiet(&mut self, now: Duration) {
        let pause = if self.writes { THOUGHT } else { PAUSE };
        self.armed |= self.since.is_some_and(|since| now.saturating_sub(since) >= pause);
    }

    /// Says whether keys answer.
    pub fn is_armed(&self) -> bool {
        self.armed
    }

    /// Takes a key. `alone`: nothing was read together with it.
    pub fn key(&mut self, key: Key, alone: bool, now: Duration, size: (usize, usize)) -> Took {
        if !self.armed {
            // Somebody is typing, and does not mean this.
            self.since = self.since.map(|_| now);
            self.writes = true;
            return Took::Nothing;
        }
        if key.ctrl && matches!(key.code, Code::Char('c' | 'z' | 'l')) {
            return Took::Nothing;
        }
        let columns = size.0.saturating_sub(4).max(1);
        match &mut self.mode {
            Mode::Choose => self.choose(key, alone, size),
            Mode::Why(composer) | Mode::Change(composer) if key.code == Code::Esc => {
                composer.take();
                self.mode = Mode::Choose;
                Took::Key
            }
            Mode::Why(composer) if is_enter(key) => {
                let text = composer.take();
                Took::Answer(Answer::Deny(Some(text).filter(|text| !text.trim().is_empty())))
            }
            Mode::Change(composer) if is_enter(key) => {
                if composer.text().trim().is_empty() {
                    return Took::Hint("nothing is written; Esc goes back");
                }
                Took::Answer(Answer::Edit(composer.take()))
            }
            Mode::Why(composer) | Mode::Change(composer) => {
                // What is recalled would be the text of another question.
                let recalls = key.ctrl && matches!(key.code, Code::Char('p' | 'n'));
                if recalls || composer.key(key, columns) == Done::Ignored {
                    self.scroll(key, size);
                }
                Took::Key
            }
        }
    }

    fn choose(&mut self, key: Key, alone: bool, size: (usize, usize)) -> Took {
        if self.scroll(key, size) {
            return Took::Key;
        }
        let Code::Char(letter) = key.code else {
            return if key.code == Code::Esc { Took::Nothing } else { Took::Key };
        };
        if key.ctrl || key.alt {
            return if key.ctrl && letter == 'd' { Took::Nothing } else { Took::Key };
        }
        if !alone {
            return Took::Hint("several keys at once answer nothing; press one");
        }
        match letter.to_ascii_lowercase() {
            'y' => Took::Answer(Answer::Once),
            'a' if self.question.always.is_some() => Took::Answer(Answer::Always),
            'a' => Took::Hint("this is asked about each time"),
            'n' => {
                self.mode = Mode::Why(Box::default());
                Took::Key
            }
            'e' => match &self.question.edits {
                Some((_, text)) => {
                    let mut composer = Composer::default();
                    composer.set(&seen(text));
                    let same = composer.text() == text;
                    self.mode = Mode::Change(Box::new(composer));
                    if same {
                        Took::Key
                    } else {
                        Took::Hint("what cannot be seen was replaced in the text to change")
                    }
                }
                None => Took::Hint("this cannot be changed; say no and why"),
            },
            _ => Took::Hint("a call waits for your answer"),
        }
    }

    /// Takes what was pasted; false when it is not for the question.
    pub fn paste(&mut self, text: &str, now: Duration) -> Took {
        if !self.armed {
            self.since = self.since.map(|_| now);
        }
        match &mut self.mode {
            Mode::Choose => Took::Nothing,
            Mode::Why(_) | Mode::Change(_) if text.len() > PASTE => {
                Took::Hint("that is too long to be pasted here")
            }
            // Letter by letter, so that nothing is folded away: all that runs is seen.
            Mode::Why(composer) | Mode::Change(composer) => {
                for c in seen(text).chars() {
                    let key = match c {
                        '\n' => Key { shift: true, ..Key::plain(Code::Enter) },
                        c => Key::plain(Code::Char(c)),
                    };
                    composer.key(key, usize::MAX);
                }
                Took::Key
            }
        }
    }

    /// Takes a line, where there are no keys.
    pub fn line(&self, line: &str) -> Result<Answer, &'static str> {
        let line = line.trim_start();
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        let rest = rest.trim();
        match (word, rest.is_empty()) {
            ("y", true) => Ok(Answer::Once),
            ("a", true) if self.question.always.is_some() => Ok(Answer::Always),
            ("a", true) => Err("this is asked about each time"),
            ("n", is_empty) => Ok(Answer::Deny((!is_empty).then(|| rest.to_owned()))),
            ("e", false) if self.question.edits.is_some() => Ok(Answer::Edit(rest.to_owned())),
            ("e", _) => Err("this cannot be changed so; say no and why"),
            _ => Err(LINES),
        }
    }

    /// Moves what is seen; says whether the key does that.
    fn scroll(&mut self, key: Key, size: (usize, usize)) -> bool {
        let (width, height) = size;
        let body = self.body(width).len();
        let seen = self.window(width, height);
        let page = seen.saturating_sub(1).max(1);
        let writes = self.mode != Mode::Choose;
        let most = body.saturating_sub(seen);
        self.top = match key.code {
            Code::PageUp => self.top.saturating_sub(page),
            Code::PageDown => self.top.saturating_add(page),
            Code::Up if !writes => self.top.saturating_sub(1),
            Code::Down if !writes => self.top.saturating_add(1),
            Code::Home if !writes => 0,
            Code::End if !writes => most,
            _ => return false,
        }
        .min(most);
        true
    }

    /// Returns how many rows of the body there is room for.
    fn window(&self, width: usize, height: usize) -> usize {
        fit(self.body(width).len(), &self.below(width, height), width, height).0
    }

    /// Returns at most so many rows.
    pub fn rows(&self, width: usize, height: usize) -> Vec<Line> {
        let body = self.body(width);
        let mut below = self.below(width, height);
        let (room, has_own) = fit(body.len(), &below, width, height);
        let room = room.min(height);
        let top = self.top.min(body.len().saturating_sub(room));
        if body.len() > room {
            let last = (top + room).min(body.len());
            let place = place(top + 1, last, body.len(), width);
            let style = Style { bold: true, ..Style::PLAIN };
            if has_own {
                below.insert(0, Line::styled(place, style));
            } else if let Some(first) = below.first_mut() {
                let mut line = Line::styled(place + ": ", style);
                first.spans.iter().for_each(|span| line.push(&span.text, span.style));
                *first = line;
            }
        }
        let mut rows: Vec<Line> = body.into_iter().skip(top).take(room).collect();
        below.truncate(height.saturating_sub(rows.len()));
        rows.extend(below);
        rows.into_iter().map(|row| cut(&row, width)).collect()
    }

    /// The whole question as rows, for what is printed.
    pub fn body(&self, width: usize) -> Vec<Line> {
        let question = &self.question;
        let bold = Style { bold: true, ..Style::role(Role::Warning) };
        let text = |text: &str, style: Style| {
            let indent = Line::styled("  ", Style::PLAIN);
            wrap(&[Span::new(clean(text), style)], &indent, &indent, width)
        };
        let whose: Vec<String> = question.by.iter().map(|by| format!(", called by {by}")).collect();
        let head = format!("may {} run{}?", question.tool, whose.concat());
        let question_mark = Line::styled("? ", bold);
        let indent = Line::styled("  ", Style::PLAIN);
        let mut rows = wrap(&[Span::new(clean(&head), bold)], &question_mark, &indent, width);
        if let Some(note) = &question.note {
            rows.extend(text(note, bold));
        }
        let mut hidden = 0;
        for shown in &question.shows {
            match shown {
                Shown::Text(name, value) => hidden += field(name, value, width, &mut rows),
                Shown::Change(change) => hidden += diff(change, width, &mut rows),
            }
        }
        if let Some(line) = warning(hidden) {
            rows.extend(wrap(&line.spans, &indent, &indent, width));
        }
        let why = format!("needs {}; {}", question.needs.join(", "), question.why);
        rows.extend(text(&why, Style::DIM));
        if let Some(always) = &question.always {
            rows.extend(text(&format!("always would cover {always}"), Style::DIM));
        }
        rows
    }

    /// What is written, and the keys.
    fn below(&self, width: usize, height: usize) -> Vec<Line> {
        let (what, composer) = match &self.mode {
            Mode::Choose => {
                let mut keys = String::from("y yes · n no");
                if self.question.always.is_some() {
                    keys.push_str(" · a always");
                }
                if self.question.edits.is_some() {
                    keys.push_str(" · e change");
                }
                let span = if self.armed {
                    Span::new(keys, Style { bold: true, ..Style::role(Role::Command) })
                } else {
                    Span::new(format!("a moment: {keys}"), Style::DIM)
                };
                return wrap(&[span], &Line::default(), &Line::default(), width);
            }
            Mode::Why(composer) => ("no; say why or nothing, Enter sends, Esc goes back", composer),
            Mode::Change(composer) => ("Enter runs this in its place, Esc goes back", composer),
        };
        let mut rows = vec![Line::styled(what, Style::role(Role::Command))];
        rows.extend(written(composer, width, (height / 2).max(1)));
        rows
    }
}

/// Returns a text in which all that runs is seen: hidden characters are written as their number. A tab
/// is a blank to the eye and to a shell, and stays.
fn seen(text: &str) -> String {
    text.split('\t').map(clean).collect::<Vec<_>>().join("\t")
}

fn is_enter(key: Key) -> bool {
    key.code == Code::Enter && !key.shift && !key.alt && !key.ctrl
}

/// Adds the rows of an argument or a fact; returns how much of it is hidden.
fn field(name: &str, value: &str, width: usize, rows: &mut Vec<Line>) -> usize {
    let name = clean(name);
    let value = value.strip_suffix('\n').unwrap_or(value);
    if !value.contains('\n') && !["command", "form", "prompt"].contains(&name.as_str()) {
        let first = Line::styled(format!("  {name}: "), Style::DIM);
        let found = exact(value.as_bytes(), &first, Style::PLAIN, width);
        rows.extend(found.rows);
        return found.hidden;
    }
    rows.push(Line::styled(format!("  {name}:"), Style::DIM));
    let first = Line::styled("  │ ", Style::DIM);
    let found = exact(value.as_bytes(), &first, Style::BOLD, width);
    rows.extend(found.rows);
    found.hidden
}

/// Says which rows of how many are seen.
fn place(from: usize, last: usize, all: usize, width: usize) -> String {
    if width < 60 {
        format!("{from}-{last}/{all}")
    } else {
        format!("rows {from}-{last} of {all}, PageDown for more")
    }
}

/// Returns how many of so many rows there is room for above the keys, and whether what says which has
/// a row of its own: where it would take the place of keys.
fn fit(rows: usize, below: &[Line], width: usize, height: usize) -> (usize, bool) {
    let room = height.saturating_sub(below.len()).max(1);
    let beside = place(rows, rows, rows, width).len() + 2;
    let is_wider = below.first().is_some_and(|first| first.width() + beside > width);
    let has_own = rows > room && room > 1 && is_wider;
    (room - usize::from(has_own), has_own)
}

/// Adds the rows of a change of a file; returns how much of it is hidden.
fn diff(change: &Change, width: usize, rows: &mut Vec<Line>) -> usize {
    let mut hidden = 0;
    let what = if change.is_new { "  new file: " } else { "  changes: " };
    let path = change.path.to_string_lossy();
    let found = exact(path.as_bytes(), &Line::styled(what, Style::DIM), Style::BOLD, width);
    hidden += found.hidden;
    rows.extend(found.rows);
    for note in &change.notes {
        let indent = Line::styled("  ", Style::PLAIN);
        rows.extend(wrap(&[Span::new(clean(note), Style::DIM)], &indent, &indent, width));
    }
    for (at, hunk) in change.hunks.iter().enumerate() {
        if at > 0 {
            rows.push(Line::styled("  ⋯", Style::DIM));
        }
        for (bytes, first, sign, role) in [
            (&hunk.old, hunk.old_line, "- ", Role::Removed),
            (&hunk.new, hunk.new_line, "+ ", Role::Added),
        ] {
            for (number, line) in (first..).zip(bytes.split_inclusive(|byte| *byte == b'\n')) {
                let style = Style::role(role);
                let mut before = Line::styled(format!("{number:>5} "), Style::DIM);
                before.push(sign, style);
                let found = exact(line, &before, style, width);
                hidden += found.hidden;
                rows.extend(found.rows);
                if !line.ends_with(b"\n") {
                    rows.push(Line::styled("        (no line end here)", Style::DIM));
                }
            }
        }
    }
    hidden
}

/// Returns the rows of what is written, around the cursor.
fn written(composer: &Composer, width: usize, most: usize) -> Vec<Line> {
    let columns = width.saturating_sub(4).max(1);
    let (at, _) = composer.place(columns);
    let text = composer.text();
    let from = (at + 1).saturating_sub(most);
    let reverse = Style { reverse: true, ..Style::PLAIN };
    let rows = composer.rows(columns).into_iter().enumerate().skip(from).take(most);
    rows.map(|(number, (start, end))| {
        // As in the composer, one mark for all of it.
        let mark = if number == 0 { "  › " } else { "    " };
        let mut line = Line::styled(mark, Style::role(Role::Prompt));
        let row = text.get(start..end).unwrap_or_default();
        let cursor = composer.cursor().clamp(start, end) - start;
        match row.split_at_checked(cursor).filter(|_| number == at) {
            None => line.push(&shown(row), Style::PLAIN),
            Some((before, after)) => {
                use unicode_segmentation::UnicodeSegmentation as _;
                let under = after.graphemes(true).next().unwrap_or_default();
                line.push(&shown(before), Style::PLAIN);
                line.push(&shown(if under.is_empty() { " " } else { under }), reverse);
                line.push(&shown(after.get(under.len()..).unwrap_or_default()), Style::PLAIN);
            }
        }
        line
    })
    .collect()
}

#[cfg(test)]
mod tests;
