//! Text and the cells that it takes: widths by grapheme, tabs, wrapping, and what foreign text loses
//! before it is shown.
//!
//! Text of models, tools and file names passes through [`clean`] or [`clean_tool`] and nowhere else
//! into a span. Every row that [`wrap`] makes is at most as wide as it was asked for, at any width
//! from 1 on.

use std::borrow::Cow;

use unicode_segmentation::UnicodeSegmentation as _;
use unicode_width::UnicodeWidthStr;

use super::style::{Color, Line, Link, Span, Style};

/// The distance of tab stops.
const TAB: usize = 4;

/// What stands for a grapheme that is wider than the whole row.
const TOO_WIDE: &str = "·";

/// Returns the cells that a text takes.
pub fn width(text: &str) -> usize {
    if text.is_ascii() {
        text.len()
    } else {
        text.graphemes(true).map(UnicodeWidthStr::width).sum()
    }
}

/// Says whether terminals disagree about the width of a grapheme: those of several characters that
/// are more than a letter with its marks (ZWJ sequences, variation selectors, flags, skin tones).
pub fn is_doubtful(cluster: &str) -> bool {
    !cluster.is_ascii()
        && cluster.chars().nth(1).is_some()
        && cluster.chars().any(|c| {
            matches!(c, '\u{200d}' | '\u{fe0e}' | '\u{fe0f}' | '\u{20e3}'
                | '\u{1f1e6}'..='\u{1f1ff}' | '\u{1f3fb}'..='\u{1f3ff}')
        })
}

/// Says whether a character hides what stands beside it or turns it round, so that it is shown by
/// its number: zero widths but those inside graphemes, marks of direction, tags, fillers.
pub(super) fn is_hidden(c: char) -> bool {
    matches!(c,
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}'
        | '\u{180e}' | '\u{200b}' | '\u{200c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{feff}' | '\u{ffa0}' | '\u{fff9}'..='\u{fffb}'
        | '\u{e0000}'..='\u{e0fff}')
}

/// Returns foreign text without anything that drives a terminal: escape sequences and control
/// characters are gone but for the line break; tabs are blanks; hidden characters are visible.
pub fn clean(text: &str) -> String {
    let mut out = Cleaner::default();
    out.take(text, false);
    out.text
}

/// Returns foreign text as one row: line breaks are shown as `⏎`.
pub fn clean_row(text: &str) -> String {
    clean(text).replace('\n', "⏎")
}

/// Returns what a person writes without what drives a terminal; every other character stays what it
/// is, also one that [`shown`] has to show by its number.
pub fn written(text: &str) -> String {
    let mut out = Cleaner { exact: true, ..Cleaner::default() };
    out.take(text, false);
    out.text
}

/// Returns how a text of [`written`] is shown, grapheme by grapheme: a tab as blanks, hidden
/// characters by their number.
pub fn shown(text: &str) -> Cow<'_, str> {
    if text.bytes().all(|byte| byte != b'\t' && byte.is_ascii()) {
        return Cow::Borrowed(text);
    }
    text.graphemes(true).map(clean).collect::<String>().into()
}

/// As [`clean`] for the output of programs: colours and attributes (SGR) stay, and a carriage return
/// begins the row anew as it does on a terminal. One span list a row.
pub fn clean_tool(text: &str) -> Vec<Line> {
    let mut out = Cleaner::default();
    out.take(text, true);
    out.flush();
    let mut lines = out.lines;
    lines.push(out.line);
    if lines.last().is_some_and(|line| line.spans.is_empty()) {
        lines.pop();
    }
    lines
}

#[derive(Default)]
struct Cleaner {
    text: String,
    column: usize,
    style: Style,
    line: Line,
    lines: Vec<Line>,
    /// Whether characters that are only shown otherwise stay what they are.
    exact: bool,
}

impl Cleaner {
    fn take(&mut self, text: &str, tool: bool) {
        let mut chars = text.chars().peekable();
        let mut before = None;
        while let Some(c) = chars.next() {
            match c {
                '\n' if tool => {
                    self.flush();
                    self.lines.push(std::mem::take(&mut self.line));
                    self.column = 0;
                }
                '\n' => {
                    self.text.push('\n');
                    self.column = 0;
                }
                '\r' if tool && chars.peek().is_some_and(|next| *next != '\n' && *next != '\r') => {
                    self.text.clear();
                    self.line = Line::default();
                    self.column = 0;
                }
                '\t' if self.exact => self.text.push(c),
                '\t' => {
                    let blanks = TAB - self.column % TAB;
                    self.text.extend(std::iter::repeat_n(' ', blanks));
                    self.column += blanks;
                }
                '\x1b' => self.escape(&mut chars, tool),
                '\u{9b}' => self.control(&mut chars, tool),
                '\u{90}' | '\u{9d}' | '\u{9e}' | '\u{9f}' | '\u{98}' => skip_text(&mut chars),
                c if c.is_control() => {}
                // Inside a grapheme it joins; anywhere else it hides.
                '\u{200d}'
                    if before.is_some_and(joins) && chars.peek().is_some_and(|c| joins(*c)) =>
                {
                    self.text.push(c);
                }
                c if !self.exact && (is_hidden(c) || c == '\u{200d}') => {
                    let shown = format!("{}", c.escape_unicode());
                    self.column += shown.len();
                    self.text.push_str(&shown);
                }
                c => {
                    self.text.push(c);
                    self.column += unicode_width::UnicodeWidthChar::width(c).unwrap_or(0);
                }
            }
            before = Some(c);
        }
    }

    /// Drops an escape sequence; in tool text the looks are kept.
    fn escape(&mut self, chars: &mut std::iter::Peekable<std::str::Chars<'_>>, tool: bool) {
        match chars.peek() {
            Some('[') => {
                chars.next();
                self.control(chars, tool);
            }
            Some(']' | 'P' | '_' | '^' | 'X') => {
                chars.next();
                skip_text(chars);
            }
            Some(' '..='/') => {
                while chars.next_if(|c| (' '..='/').contains(c)).is_some() {}
                chars.next_if(|c| ('0'..='~').contains(c));
            }
            Some('0'..='~') => {
                chars.next();
            }
            _ => {}
        }
    }

    fn control(&mut self, chars: &mut std::iter::Peekable<std::str::Chars<'_>>, tool: bool) {
        let mut parameters = String::new();
        while let Some(c) = chars.next_if(|c| (' '..='?').contains(c)) {
            parameters.push(c);
        }
        if chars.next_if(|c| ('@'..='~').contains(c)) == Some('m') && tool {
            self.flush();
            look(&mut self.style, &parameters);
        }
    }

    fn flush(&mut self) {
        let text = std::mem::take(&mut self.text);
        self.line.push(&text, self.style);
    }
}

/// Says whether a zero-width joiner beside this character makes a grapheme of more than one.
fn joins(c: char) -> bool {
    matches!(c, '\u{2600}'..='\u{27bf}' | '\u{fe0f}' | '\u{1f000}'..='\u{1faff}')
}

/// Drops a string of the terminal's (OSC, DCS…) up to its end or the end of the row.
fn skip_text(chars: &mut std::iter::Peekable<std::str::Chars<'_>>) {
    while let Some(c) = chars.next_if(|c| *c != '\n') {
        match c {
            '\x07' | '\u{9c}' => return,
            '\x1b' => {
                chars.next_if(|c| *c == '\\');
                return;
            }
            _ => {}
        }
    }
}

/// Applies the parameters of an SGR sequence (ECMA-48 8.3.117, and the colours of ISO 8613-6).
fn look(style: &mut Style, parameters: &str) {
    let mut numbers = parameters
        .split([';', ':'])
        .map(|part| if part.is_empty() { Some(0_u16) } else { part.parse().ok() });
    while let Some(number) = numbers.next() {
        let Some(number) = number else { return };
        let color = |base: u16| Some(Color::Indexed(u8::try_from(number - base).unwrap_or(0)));
        match number {
            0 => *style = Style::PLAIN,
            1 => style.bold = true,
            2 => style.dim = true,
            3 => style.italic = true,
            4 => style.underline = true,
            7 => style.reverse = true,
            9 => style.strike = true,
            22 => (style.bold, style.dim) = (false, false),
            23 => style.italic = false,
            24 => style.underline = false,
            27 => style.reverse = false,
            29 => style.strike = false,
            30..=37 => style.foreground = color(30),
            39 => style.foreground = None,
            40..=47 => style.background = color(40),
            49 => style.background = None,
            90..=97 => style.foreground = color(82),
            100..=107 => style.background = color(92),
            38 | 48 => {
                let byte = |n: Option<Option<u16>>| n.flatten().and_then(|n| u8::try_from(n).ok());
                let found = match numbers.next().flatten() {
                    Some(5) => byte(numbers.next()).map(Color::Indexed),
                    Some(2) => {
                        match (byte(numbers.next()), byte(numbers.next()), byte(numbers.next())) {
                            (Some(r), Some(g), Some(b)) => Some(Color::Rgb(r, g, b)),
                            _ => None,
                        }
                    }
                    _ => None,
                };
                if number == 38 { style.foreground = found } else { style.background = found }
            }
            _ => {}
        }
    }
    // Letters in the colour of their ground are meant not to be read.
    if style.foreground.is_some() && style.foreground == style.background {
        style.background = None;
    }
}

/// Wraps styled text into rows of at most `most` cells, between words where it can be. `first` stands
/// before the first row and `rest` before the others; where they leave no room they are left out.
pub fn wrap(spans: &[Span], first: &Line, rest: &Line, most: usize) -> Vec<Line> {
    let most = most.max(1);
    let mut rows = Rows::new(first, rest, most);
    for (number, paragraph) in split_lines(spans).into_iter().enumerate() {
        if number > 0 {
            rows.break_row();
        }
        let mut word: Vec<(&str, Looks<'_>)> = Vec::new();
        let mut word_width = 0;
        let mut blanks: Vec<(&str, Looks<'_>)> = Vec::new();
        for (text, style) in &paragraph {
            for cluster in text.graphemes(true) {
                if cluster == " " {
                    if !word.is_empty() {
                        rows.word(&mut blanks, &mut word, &mut word_width);
                    }
                    blanks.push((cluster, *style));
                } else {
                    word.push((cluster, *style));
                    word_width += width(cluster);
                    // Between characters of scripts without blanks a row may end anywhere.
                    if width(cluster) == 2 && !is_doubtful(cluster) {
                        rows.word(&mut blanks, &mut word, &mut word_width);
                    }
                }
            }
        }
        rows.word(&mut blanks, &mut word, &mut word_width);
    }
    rows.finish()
}

/// Cuts rows at their width without regard to words: for code, and for what a program printed.
pub fn chop(line: &Line, first: &Line, rest: &Line, most: usize) -> Vec<Line> {
    let mut rows = Rows::new(first, rest, most.max(1));
    for span in &line.spans {
        for cluster in span.text.graphemes(true) {
            rows.cluster(cluster, Looks::of(span));
        }
    }
    rows.finish()
}

/// Cuts a row to a width; what is left out is marked.
pub fn cut(line: &Line, most: usize) -> Line {
    if line.width() <= most {
        return line.clone();
    }
    let mut out = Line::default();
    let mut used = 0;
    for span in &line.spans {
        for cluster in span.text.graphemes(true) {
            let wide = width(cluster);
            if used + wide + 1 > most {
                if most > 0 {
                    out.push("…", span.style);
                }
                return out;
            }
            out.push_linked(cluster, span.style, span.link.as_ref());
            used += wide;
        }
    }
    out
}

/// How a piece of text looks and where it leads.
#[derive(Clone, Copy)]
struct Looks<'a> {
    style: Style,
    link: Option<&'a Link>,
}

impl<'a> Looks<'a> {
    fn of(span: &'a Span) -> Self {
        Self { style: span.style, link: span.link.as_ref() }
    }
}

fn split_lines(spans: &[Span]) -> Vec<Vec<(&str, Looks<'_>)>> {
    let mut lines = vec![Vec::new()];
    for span in spans {
        for (number, part) in span.text.split('\n').enumerate() {
            if number > 0 {
                lines.push(Vec::new());
            }
            if let Some(last) = lines.last_mut() {
                last.push((part, Looks::of(span)));
            }
        }
    }
    lines
}

struct Rows<'a> {
    done: Vec<Line>,
    row: Line,
    used: usize,
    /// What the prefix of this row took.
    start: usize,
    rest: &'a Line,
    most: usize,
}

impl<'a> Rows<'a> {
    fn new(first: &Line, rest: &'a Line, most: usize) -> Self {
        let mut rows =
            Self { done: Vec::new(), row: Line::default(), used: 0, start: 0, rest, most };
        rows.prefix(first);
        rows
    }

    fn prefix(&mut self, prefix: &Line) {
        let wide = prefix.width();
        // Two cells at least are for what is said.
        if wide + 2 <= self.most {
            self.row = prefix.clone();
            self.used = wide;
        }
        self.start = self.used;
    }

    fn break_row(&mut self) {
        self.done.push(std::mem::take(&mut self.row));
        self.used = 0;
        self.prefix(self.rest);
    }

    fn cluster(&mut self, cluster: &str, looks: Looks<'_>) {
        let mut shown = cluster;
        let mut wide = width(shown);
        if wide > self.most {
            (shown, wide) = (TOO_WIDE, 1);
        }
        if self.used + wide > self.most {
            self.break_row();
        }
        if self.used + wide > self.most {
            (shown, wide) = (TOO_WIDE, 1);
        }
        self.row.push_linked(shown, looks.style, looks.link);
        self.used += wide;
    }

    fn word<'w>(
        &mut self,
        blanks: &mut Vec<(&'w str, Looks<'w>)>,
        word: &mut Vec<(&'w str, Looks<'w>)>,
        word_width: &mut usize,
    ) {
        let blank_width = blanks.len();
        let wide = std::mem::take(word_width);
        if word.is_empty() {
            blanks.clear();
            return;
        }
        if self.used + blank_width + wide > self.most && self.used > self.start {
            // The blanks between two rows are the break itself.
            self.break_row();
            blanks.clear();
        }
        for (text, looks) in blanks.drain(..).chain(word.drain(..)) {
            self.cluster(text, looks);
        }
    }

    fn finish(mut self) -> Vec<Line> {
        self.done.push(self.row);
        self.done
    }
}

#[cfg(test)]
mod tests;
