//! Complete Markdown to rows: headings, paragraphs, lists, quotes, tables, code, rules and links.

use pulldown_cmark::{Alignment, CodeBlockKind, Event, HeadingLevel, Options, Parser, Tag, TagEnd};

use crate::display::Role;

use super::super::{
    cells::{chop, clean, width as cells, wrap},
    code::Highlighter,
    style::{Line, Link, Span, Style},
};

const LINK: Style = Style::role(Role::Link);
const CODE: Style = Style::role(Role::Code);

/// Containers, one in the other, that are set in. What is deeper stands where the last of them does:
/// nobody could read it otherwise, and what stands before a row would grow with every level.
const DEEPEST: usize = 16;

/// Renders Markdown to rows of at most `width` cells.
///
/// Its text must be clean (see [`clean`]), and is cleaned once more
/// where it is said: a reference (`&#27;`) can stand for any character.
pub fn render(text: &str, width: usize) -> Vec<Line> {
    let options =
        Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH | Options::ENABLE_TASKLISTS;
    let mut renderer = Renderer { width: width.max(1), ..Renderer::default() };
    for event in Parser::new_ext(text, options) {
        renderer.take(event);
    }
    renderer.flush();
    renderer.rows
}

#[derive(Default)]
struct Renderer {
    width: usize,
    rows: Vec<Line>,
    spans: Vec<Span>,
    styles: Vec<Style>,
    /// What stands before every row of the open containers: bars of quotes, indents of items.
    prefixes: Vec<Line>,
    /// What stands before the next row alone: the mark of an item.
    mark: Option<Line>,
    lists: Vec<Option<u64>>,
    /// Whether something was said since the last blank row.
    apart: bool,
    /// Whether items of this list are set off.
    code: Option<(Highlighter, String)>,
    link: Option<(String, usize)>,
    table: Option<Table>,
}

#[derive(Default)]
struct Table {
    alignments: Vec<Alignment>,
    rows: Vec<Vec<Vec<Span>>>,
    row: Vec<Vec<Span>>,
}

impl Renderer {
    fn style(&self) -> Style {
        self.styles.last().copied().unwrap_or_default()
    }

    fn with(&mut self, change: impl FnOnce(&mut Style)) {
        let mut style = self.style();
        change(&mut style);
        self.styles.push(style);
    }

    fn say(&mut self, text: &str, style: Style) {
        // A line break between spans is a hard break; one that a reference made is one as well.
        self.spans.push(Span::new(clean(text), style));
    }

    /// Opens a container whose rows begin with this.
    fn open(&mut self, prefix: Line) {
        let is_deep = self.prefixes.len() >= DEEPEST;
        self.prefixes.push(if is_deep { Line::default() } else { prefix });
    }

    fn take(&mut self, event: Event<'_>) {
        match event {
            Event::Start(tag) => self.begin(tag),
            Event::End(tag) => self.end(tag),
            Event::Text(text) => match &mut self.code {
                Some((_, code)) => code.push_str(&clean(&text)),
                None => self.say(&text, self.style()),
            },
            Event::Code(text) => {
                let style = Style { role: CODE.role, foreground: CODE.foreground, ..self.style() };
                self.say(&text, style);
            }
            Event::InlineMath(text)
            | Event::DisplayMath(text)
            | Event::Html(text)
            | Event::InlineHtml(text) => self.say(&text, self.style()),
            Event::FootnoteReference(text) => self.say(&format!("[^{text}]"), self.style()),
            Event::SoftBreak => self.say(" ", self.style()),
            Event::HardBreak => self.say("\n", self.style()),
            Event::Rule => {
                self.flush();
                self.set_off();
                let wide = self.width.min(40);
                self.rows.push(Line::styled("─".repeat(wide), Style::DIM));
                self.apart = true;
            }
            Event::TaskListMarker(done) => {
                self.say(if done { "[x] " } else { "[ ] " }, self.style());
            }
        }
    }

    fn begin(&mut self, tag: Tag<'_>) {
        match tag {
            Tag::Paragraph | Tag::HtmlBlock => self.set_off(),
            Tag::Heading { level, .. } => {
                self.set_off();
                let style = Style {
                    bold: true,
                    underline: level == HeadingLevel::H1,
                    italic: level > HeadingLevel::H3,
                    ..Style::role(Role::Heading)
                };
                self.styles.push(style);
            }
            Tag::BlockQuote(_) => {
                self.flush();
                self.set_off();
                self.open(Line::styled("│ ", Style::DIM));
                self.apart = false;
            }
            Tag::CodeBlock(kind) => {
                self.flush();
                self.set_off();
                let name = match &kind {
                    CodeBlockKind::Fenced(name) => name.as_ref(),
                    CodeBlockKind::Indented => "",
                };
                self.code = Some((Highlighter::new(name), String::new()));
            }
            Tag::List(start) => {
                self.flush();
                if self.lists.is_empty() {
                    self.set_off();
                }
                self.lists.push(start);
            }
            Tag::Item => {
                self.flush();
                let mark = match self.lists.last_mut() {
                    Some(Some(number)) => {
                        let mark = format!("{number}. ");
                        *number = number.saturating_add(1);
                        mark
                    }
                    _ => "• ".to_owned(),
                };
                let is_deep = self.prefixes.len() >= DEEPEST;
                self.open(Line::styled(" ".repeat(cells(&mark)), Style::PLAIN));
                self.mark = (!is_deep).then(|| Line::styled(mark, Style::PLAIN));
                self.apart = false;
            }
            Tag::Emphasis => self.with(|style| style.italic = true),
            Tag::Strong => self.with(|style| style.bold = true),
            Tag::Strikethrough => self.with(|style| style.strike = true),
            Tag::Link { dest_url, .. } => {
                self.link = Some((dest_url.to_string(), self.spans.len()));
                self.with(|style| (style.role, style.underline) = (LINK.role, true));
            }
            Tag::Image { dest_url, .. } => {
                self.say("[image] ", Style::DIM);
                self.link = Some((dest_url.to_string(), self.spans.len()));
                self.with(|_| {});
            }
            Tag::Table(alignments) => {
                self.flush();
                self.set_off();
                self.table = Some(Table { alignments, ..Table::default() });
            }
            Tag::TableHead | Tag::TableRow | Tag::TableCell => {}
            _ => self.flush(),
        }
    }

    fn end(&mut self, tag: TagEnd) {
        match tag {
            TagEnd::Paragraph | TagEnd::HtmlBlock => {
                self.flush();
                self.apart = true;
            }
            TagEnd::Heading(_) => {
                self.flush();
                self.styles.pop();
                self.apart = true;
            }
            TagEnd::BlockQuote(_) => {
                self.flush();
                self.prefixes.pop();
                self.apart = true;
            }
            TagEnd::CodeBlock => self.end_code(),
            TagEnd::List(_) => {
                self.flush();
                self.lists.pop();
                self.apart = self.lists.is_empty();
            }
            TagEnd::Item => {
                self.flush();
                // An item without a word has its mark all the same.
                if let Some(mark) = self.mark.take() {
                    let mut row = self.outer();
                    row.spans.extend(mark.spans);
                    self.rows.push(row);
                }
                self.prefixes.pop();
                self.apart = false;
            }
            TagEnd::Emphasis | TagEnd::Strong | TagEnd::Strikethrough => {
                self.styles.pop();
            }
            TagEnd::Link | TagEnd::Image => {
                self.styles.pop();
                if let Some((url, from)) = self.link.take() {
                    let link = Link::new(&url);
                    let until = self.spans.len();
                    let said: String =
                        self.spans.iter().skip(from).map(|span| span.text.as_str()).collect();
                    // Where it leads is shown, whatever its text says.
                    if said != url && format!("mailto:{said}") != url {
                        self.say(" (", Style::DIM);
                        self.say(&url, Style::DIM);
                        self.say(")", Style::DIM);
                    }
                    // The text and the address, and not what stands around them.
                    let (text, address) = (from..until, until + 1);
                    for (at, span) in self.spans.iter_mut().enumerate() {
                        if text.contains(&at) || at == address {
                            span.link.clone_from(&link);
                        }
                    }
                }
            }
            TagEnd::TableCell => {
                let cell = std::mem::take(&mut self.spans);
                if let Some(table) = &mut self.table {
                    table.row.push(cell);
                }
            }
            TagEnd::TableHead | TagEnd::TableRow => {
                if let Some(table) = &mut self.table {
                    let row = std::mem::take(&mut table.row);
                    table.rows.push(row);
                }
            }
            TagEnd::Table => {
                if let Some(table) = self.table.take() {
                    self.draw(&table);
                }
                self.apart = true;
            }
            _ => self.flush(),
        }
    }

    /// A blank row between blocks.
    fn set_off(&mut self) {
        if std::mem::take(&mut self.apart) && !self.rows.is_empty() {
            let mut row = self.prefix();
            for span in &mut row.spans {
                span.text = span.text.trim_end().to_owned();
            }
            row.spans.retain(|span| !span.text.is_empty());
            self.rows.push(row);
        }
    }

    fn prefix(&self) -> Line {
        self.prefixes.iter().flat_map(|line| line.spans.clone()).collect::<Vec<_>>().into()
    }

    /// What stands before the mark of the innermost item.
    fn outer(&self) -> Line {
        let outer = self.prefixes.len().saturating_sub(1);
        self.prefixes.iter().take(outer).flat_map(|l| l.spans.clone()).collect::<Vec<_>>().into()
    }

    /// Returns what stands before the next row and before those after it.
    fn prefixes(&mut self) -> (Line, Line) {
        let rest = self.prefix();
        let first = match self.mark.take() {
            Some(mark) => {
                let mut first = self.outer();
                first.spans.extend(mark.spans);
                first
            }
            None => rest.clone(),
        };
        (first, rest)
    }

    fn flush(&mut self) {
        let spans = std::mem::take(&mut self.spans);
        if spans.iter().all(|span| span.text.trim().is_empty()) {
            return;
        }
        let (first, rest) = self.prefixes();
        self.rows.extend(wrap(&spans, &first, &rest, self.width));
    }

    fn end_code(&mut self) {
        let Some((mut highlighter, code)) = self.code.take() else { return };
        let (mut first, mut rest) = self.prefixes();
        for line in [&mut first, &mut rest] {
            line.push("  ", Style::PLAIN);
        }
        for line in code.lines() {
            self.rows.extend(chop(&highlighter.row(line), &first, &rest, self.width));
            first.clone_from(&rest);
        }
        self.apart = true;
    }

    fn draw(&mut self, table: &Table) {
        let (first, rest) = self.prefixes();
        let room = self.width.saturating_sub(rest.width());
        let columns = table.rows.iter().map(Vec::len).max().unwrap_or(0);
        let mut widths = vec![1_usize; columns];
        for row in &table.rows {
            for (widest, cell) in widths.iter_mut().zip(row) {
                *widest = (*widest).max(cell.iter().map(|span| cells(&span.text)).sum());
            }
        }
        let between = 3 * columns.saturating_sub(1);
        // The widest gives way first.
        while widths.iter().sum::<usize>() + between > room {
            match widths.iter_mut().max() {
                Some(widest) if *widest > 4 => *widest -= 1,
                _ => return self.listed(table, &first, &rest),
            }
        }
        for (number, row) in table.rows.iter().enumerate() {
            let nothing = Line::default();
            let parts: Vec<Vec<Line>> = widths
                .iter()
                .enumerate()
                .map(|(column, wide)| {
                    let mut cell = row.get(column).cloned().unwrap_or_default();
                    if number == 0 {
                        for span in &mut cell {
                            span.style.bold = true;
                        }
                    }
                    wrap(&cell, &nothing, &nothing, *wide)
                })
                .collect();
            let height = parts.iter().map(Vec::len).max().unwrap_or(1);
            for at in 0..height {
                let mut line = rest.clone();
                for (column, wide) in widths.iter().enumerate() {
                    if column > 0 {
                        line.push(" │ ", Style::DIM);
                    }
                    let part = parts.get(column).and_then(|part| part.get(at)).unwrap_or(&nothing);
                    let space = wide.saturating_sub(part.width());
                    let left = match table.alignments.get(column) {
                        Some(Alignment::Right) => space,
                        Some(Alignment::Center) => space / 2,
                        _ => 0,
                    };
                    line.push(&" ".repeat(left), Style::PLAIN);
                    for span in &part.spans {
                        line.push_linked(&span.text, span.style, span.link.as_ref());
                    }
                    if column + 1 < columns {
                        line.push(&" ".repeat(space - left), Style::PLAIN);
                    }
                }
                self.rows.push(line);
            }
            if number == 0 {
                let rule: Vec<String> = widths.iter().map(|wide| "─".repeat(*wide)).collect();
                let mut line = rest.clone();
                line.push(&rule.join("─┼─"), Style::DIM);
                self.rows.push(line);
            }
        }
    }

    /// A table that has no room beside itself: each row as a list of its columns.
    fn listed(&mut self, table: &Table, first: &Line, rest: &Line) {
        let Some((head, body)) = table.rows.split_first() else { return };
        for (number, row) in body.iter().enumerate() {
            if number > 0 {
                self.rows.push(Line::default());
            }
            for (column, cell) in row.iter().enumerate() {
                let mut spans: Vec<Span> = head.get(column).cloned().unwrap_or_default();
                for span in &mut spans {
                    span.style.bold = true;
                }
                spans.push(Span::plain(": "));
                spans.extend(cell.iter().cloned());
                self.rows.extend(wrap(&spans, first, rest, self.width));
            }
        }
    }
}
