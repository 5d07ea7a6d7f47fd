//! Markdown as it streams in: blocks that are complete become rows that never change again, the open
//! one can be drawn anew until it is.
//!
//! A block is complete when what follows cannot change it: at a blank line whose next line starts a
//! block of its own, and inside a fence of code at each line. Text comes from models, so every
//! control character is dropped before it is read.

use super::{
    cells::{chop, clean},
    code::Highlighter,
    style::{Line, Span, Style},
};

mod render;

pub use render::render;

/// An open block longer than this, in bytes, is split at a line, so that no frame costs more.
const LONGEST: usize = 16 * 1024;

/// A fence of code that is open.
#[derive(Clone, Debug)]
struct Fence {
    mark: char,
    length: usize,
    highlighter: Highlighter,
}

/// One message as it streams in.
#[derive(Clone, Debug, Default)]
pub struct Stream {
    /// What is not rendered yet, as it came.
    buffer: String,
    /// Bytes at its start that are rendered, while [`Stream::ready`] goes on: they are dropped once at
    /// its end, since an answer may come at once and have many blocks.
    done: usize,
    fence: Option<Fence>,
    /// Whether rows were made already: then blocks are set off by a blank row.
    begun: bool,
    /// The next block goes on with one that was split.
    glued: bool,
}

impl Stream {
    /// Takes a piece.
    pub fn push(&mut self, text: &str) {
        self.buffer.push_str(text);
    }

    /// Returns the rows of all that is complete, and forgets it.
    pub fn ready(&mut self, width: usize) -> Vec<Line> {
        let mut out = Vec::new();
        while self.take(width, &mut out) {}
        self.buffer.drain(..std::mem::take(&mut self.done));
        out
    }

    fn rest(&self) -> &str {
        self.buffer.get(self.done..).unwrap_or_default()
    }

    /// Takes one block, or one line of code; says whether there was one.
    fn take(&mut self, width: usize, out: &mut Vec<Line>) -> bool {
        if self.fence.is_some() {
            return self.code_line(width, out);
        }
        let rest = self.rest();
        if let Some((fence, length)) = opening(rest) {
            self.done += length;
            self.set_off(out);
            self.fence = Some(fence);
            return true;
        }
        let end = stable(rest);
        let is_split = end == 0 && rest.len() > LONGEST;
        let end = if is_split { split(rest) } else { end };
        if end == 0 {
            return false;
        }
        let block = rest.get(..end).unwrap_or_default().to_owned();
        self.done += end;
        self.block(&block, width, out);
        if is_split {
            self.glued = true;
            // The rest of a table is one only below its head.
            if let Some(head) = table_head(&block) {
                self.buffer.replace_range(..self.done, head);
                self.done = 0;
            }
        }
        true
    }

    /// Returns the rows of what is not complete, as it would be if it ended here.
    pub fn tail(&self, width: usize) -> Vec<Line> {
        let mut copy = self.clone();
        copy.finish(width)
    }

    /// Takes what is there as all that comes.
    pub fn finish(&mut self, width: usize) -> Vec<Line> {
        let mut out = self.ready(width);
        let rest = std::mem::take(&mut self.buffer);
        match &mut self.fence {
            Some(fence) if !rest.is_empty() && !closes(&rest, fence) => {
                out.extend(code_row(fence, &rest, width));
            }
            Some(_) => {}
            None => self.block(&rest, width, &mut out),
        }
        self.fence = None;
        out
    }

    fn set_off(&mut self, out: &mut Vec<Line>) {
        let glued = std::mem::take(&mut self.glued);
        if std::mem::replace(&mut self.begun, true) && !glued {
            out.push(Line::default());
        }
    }

    fn block(&mut self, text: &str, width: usize, out: &mut Vec<Line>) {
        let rows = render(&clean(text), width);
        if !rows.is_empty() {
            self.set_off(out);
            out.extend(rows);
        }
    }

    /// Takes one line of the open fence; says whether there was one.
    fn code_line(&mut self, width: usize, out: &mut Vec<Line>) -> bool {
        let rest = self.buffer.get(self.done..).unwrap_or_default();
        let (Some(fence), Some(end)) = (&mut self.fence, rest.find('\n')) else { return false };
        let line = rest.get(..=end).unwrap_or_default();
        if closes(line, fence) {
            self.fence = None;
        } else {
            out.extend(code_row(fence, line, width));
        }
        self.done += end + 1;
        true
    }
}

fn code_row(fence: &mut Fence, line: &str, width: usize) -> Vec<Line> {
    let indent = Line::styled("  ", Style::PLAIN);
    let text = clean(line.trim_end_matches(['\n', '\r']));
    chop(&fence.highlighter.row(&text.replace('\n', " ")), &indent, &indent, width)
}

/// Reads a fence at the start of a text whose line is complete; returns it with the line's length.
fn opening(text: &str) -> Option<(Fence, usize)> {
    let blank = text.len() - text.trim_start_matches('\n').len();
    let body = text.get(blank..)?;
    let end = body.find('\n')?;
    let line = body.get(..end)?.trim_end_matches('\r');
    let (mark, length) = fence_of(line)?;
    let name = line.trim_start().trim_start_matches(mark);
    // An info string with a backtick makes it inline code (CommonMark 4.5).
    if mark == '`' && name.contains('`') {
        return None;
    }
    let highlighter = Highlighter::new(name.trim());
    Some((Fence { mark, length, highlighter }, blank + end + 1))
}

/// Returns the mark and its length when a line begins or ends a fence.
fn fence_of(line: &str) -> Option<(char, usize)> {
    let body = line.trim_start_matches(' ');
    if line.len() - body.len() > 3 {
        return None;
    }
    let mark = body.chars().next().filter(|c| matches!(c, '`' | '~'))?;
    let length = body.chars().take_while(|c| *c == mark).count();
    (length >= 3).then_some((mark, length))
}

fn closes(line: &str, fence: &Fence) -> bool {
    let line = line.trim_end();
    fence_of(line).is_some_and(|(mark, length)| {
        mark == fence.mark && length >= fence.length && line.trim_start().chars().all(|c| c == mark)
    })
}

/// Returns how much of the text is complete: up to the last line that begins a block of its own.
fn stable(text: &str) -> usize {
    let mut at = 0;
    let mut after_blank = false;
    let mut inner: Option<(char, usize)> = None;
    let mut end = 0;
    for line in text.split_inclusive('\n') {
        let body = line.trim_end_matches(['\n', '\r']);
        let fence = {
            let trimmed = body.trim_start();
            let mark = trimmed.chars().next().filter(|c| matches!(c, '`' | '~'));
            mark.map(|mark| (mark, trimmed.chars().take_while(|c| *c == mark).count()))
                .filter(|(_, length)| *length >= 3)
        };
        match (inner, fence) {
            (None, Some(_)) if fence_of(body).is_some() && at > 0 && line.ends_with('\n') => {
                // A fence at the left is a block of its own whatever comes before it.
                if !is_indented(body) {
                    return at;
                }
                inner = fence;
            }
            (None, Some(_)) => inner = fence,
            (Some((mark, length)), Some((m, l))) if m == mark && l >= length => inner = None,
            (None, None) => {
                let first = body.chars().next();
                let begins = first.is_some_and(|c| !c.is_whitespace());
                // A number alone may become an item of a list.
                let known = line.ends_with('\n') || body.bytes().any(|b| !b.is_ascii_digit());
                if after_blank && begins && known && !is_item(body) {
                    end = at;
                }
                // A heading is complete with its line.
                if end == at && body.starts_with('#') && line.ends_with('\n') {
                    end = at + line.len();
                }
            }
            (Some(_), _) => {}
        }
        after_blank = body.trim().is_empty();
        at += line.len();
    }
    end
}

/// Returns where a block that is too long is split: behind a line, or a word, of its first part.
fn split(text: &str) -> usize {
    let mut most = text.len().min(LONGEST);
    while !text.is_char_boundary(most) {
        most -= 1;
    }
    let first = text.get(..most).unwrap_or_default();
    first.rfind('\n').or_else(|| first.rfind(' ')).map_or(most, |at| at + 1)
}

/// Returns the head of the table that a block ends in: its first row and the rule below it.
fn table_head(block: &str) -> Option<&str> {
    let is_row = |line: &&str| line.trim_start().starts_with('|');
    let table: usize = block.split_inclusive('\n').rev().take_while(is_row).map(str::len).sum();
    let table = block.get(block.len() - table..)?;
    let mut lines = table.split_inclusive('\n');
    let (head, rule) = (lines.next()?, lines.next()?);
    let is_rule = rule.contains("--") && rule.trim().chars().all(|c| "|-: ".contains(c));
    let head = table.get(..head.len() + rule.len())?;
    (is_rule && head.len() < LONGEST / 4).then_some(head)
}

fn is_indented(line: &str) -> bool {
    line.starts_with(' ')
}

/// Says whether a line begins an item of a list.
fn is_item(line: &str) -> bool {
    let digits = line.bytes().take_while(u8::is_ascii_digit).count();
    let rest = line.get(digits..).unwrap_or_default();
    if digits > 0 { rest.starts_with(['.', ')']) } else { line.starts_with(['-', '*', '+']) }
}

/// Returns a text as rows without reading it as Markdown.
pub fn plain(text: &str, style: Style, first: &str, rest: &str, width: usize) -> Vec<Line> {
    super::cells::wrap(
        &[Span::new(clean(text), style)],
        &Line::styled(first, style),
        &Line::styled(rest, style),
        width,
    )
}

#[cfg(test)]
mod tests;
