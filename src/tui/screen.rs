//! From rows to the bytes of one frame. Pure: it remembers what is drawn and writes nothing itself.
//!
//! The transcript belongs to the terminal: a row that was emitted is final and never drawn again.
//! Below it is the region, which is. Between frames the terminal's cursor stands, hidden, at the
//! first cell of the region: terminals keep the cursor at its character when they reflow or cut
//! their content, so after any change of size "clear from here to the end" is exactly the region,
//! and no row is repeated or lost. (Counting rows instead is a guess: terminals differ in what they
//! reflow.) A frame is synchronised (DEC private mode 2026), does not wrap (mode 7), and redraws only
//! rows that changed.

use std::fmt::Write as _;

use crate::display::Theme;

use super::style::{Line, Paint};

/// Begins a frame: what follows is shown at once.
const BEGIN: &str = "\x1b[?2026h\x1b[?7l";
/// Ends a frame.
const END: &str = "\x1b[?7h\x1b[?2026l";

/// Clears from the first cell of the region, where the cursor stands and stays. The first row is
/// cleared by itself: tmux puts a screen that is cleared whole into its history.
const CLEAR: &str = "\r\x1b7\x1b[K\x1b[B\x1b[J\x1b8";

/// What is drawn.
#[derive(Clone, Debug)]
pub struct Screen {
    paint: Paint,
    /// The rows of the region as they were written.
    drawn: Vec<String>,
    /// Whether nothing of the region can be relied on.
    stale: bool,
}

impl Screen {
    /// Returns a screen whose cursor stands at the start of an empty row.
    pub fn new(colors: bool) -> Self {
        Self::painted(Paint::palette(colors))
    }

    /// Returns the same with a theme.
    pub fn painted(paint: Paint) -> Self {
        Self { paint, drawn: Vec::new(), stale: false }
    }

    /// Changes the theme: the region is drawn whole next time. What was emitted stays as it is.
    pub fn repaint(&mut self, theme: Theme) {
        self.paint.theme = theme;
        self.stale = true;
    }

    /// The size has changed: the region is drawn whole next time.
    pub fn resized(&mut self) {
        self.stale = true;
    }

    /// Returns the frame that emits rows and leaves the region as given; empty when nothing changed.
    /// The region must be lower than the terminal.
    pub fn frame(&mut self, emitted: &[Line], region: &[Line]) -> String {
        let rows: Vec<String> = region.iter().map(|line| line.encode(&self.paint)).collect();
        let stale = std::mem::take(&mut self.stale);
        if emitted.is_empty() && !stale && rows == self.drawn {
            return String::new();
        }
        let mut out = String::from(BEGIN);
        if emitted.is_empty() && !stale {
            self.change(&rows, &mut out);
        } else {
            out.push_str(CLEAR);
            for line in emitted {
                out.push_str(&line.encode(&self.paint));
                out.push_str("\r\n");
            }
            out.push_str(&rows.join("\r\n"));
            up(rows.len().saturating_sub(1), &mut out);
        }
        out.push_str(END);
        self.drawn = rows;
        out
    }

    /// Returns what takes the region away, so that whatever is written next stands below the
    /// transcript.
    pub fn leave(&mut self) -> String {
        self.drawn.clear();
        CLEAR.to_owned()
    }

    /// Rewrites the rows that differ, from the first row of the region and back to it.
    fn change(&self, rows: &[String], out: &mut String) {
        let mut at = 0_usize;
        let last_drawn = self.drawn.len().saturating_sub(1);
        for (number, row) in rows.iter().enumerate() {
            if self.drawn.get(number) == Some(row) {
                continue;
            }
            // Rows that are there are moved to; new ones are made, and make the terminal scroll.
            let reach = number.min(last_drawn.max(at));
            if reach > at {
                let _ = write!(out, "\x1b[{}B", reach - at);
                at = reach;
            }
            while at < number {
                out.push_str("\r\n");
                at += 1;
            }
            out.push('\r');
            if number < self.drawn.len() {
                out.push_str("\x1b[K");
            }
            out.push_str(row);
        }
        if rows.len() < self.drawn.len() {
            let first = rows.len();
            if first > at {
                let _ = write!(out, "\x1b[{}B", first - at);
                at = first;
            }
            out.push_str(if at == 0 { CLEAR } else { "\r\x1b[J" });
        }
        up(at, out);
    }
}

/// Moves to the first cell of a row above.
fn up(rows: usize, out: &mut String) {
    if rows > 0 {
        let _ = write!(out, "\x1b[{rows}A");
    }
    out.push('\r');
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tui::style::Style;

    fn lines(texts: &[&str]) -> Vec<Line> {
        texts.iter().map(|text| Line::styled(*text, Style::PLAIN)).collect()
    }

    struct Emulated {
        screen: Screen,
        terminal: vt100::Parser,
    }

    impl Emulated {
        fn new(rows: u16, columns: u16) -> Self {
            let size = |n: u16| n.try_into().unwrap();
            let terminal = vt100::Parser::new(size(rows), size(columns), 1000);
            Self { screen: Screen::new(true), terminal }
        }

        fn frame(&mut self, emitted: &[&str], region: &[&str]) -> usize {
            let bytes = self.screen.frame(&lines(emitted), &lines(region));
            self.terminal.process(bytes.as_bytes());
            bytes.len()
        }

        fn seen(&self) -> Vec<String> {
            let text = self.terminal.screen().contents();
            text.lines().map(|line| line.trim_end().to_owned()).collect()
        }
    }

    #[test]
    fn the_region_follows_what_is_emitted() {
        let mut it = Emulated::new(8, 20);
        it.frame(&[], &["> ", "footer"]);
        assert_eq!(it.seen(), [">", "footer"]);
        it.frame(&["one", "two"], &["> hi", "footer"]);
        assert_eq!(it.seen(), ["one", "two", "> hi", "footer"]);
        // Longer, shorter, another row, the same.
        it.frame(&[], &["> hi", "  more", "footer"]);
        assert_eq!(it.seen(), ["one", "two", "> hi", "  more", "footer"]);
        it.frame(&[], &["> x", "footer"]);
        assert_eq!(it.seen(), ["one", "two", "> x", "footer"]);
        it.frame(&[], &["> x", "FOOTER"]);
        assert_eq!(it.seen(), ["one", "two", "> x", "FOOTER"]);
        assert_eq!(it.frame(&[], &["> x", "FOOTER"]), 0, "nothing changed, nothing written");
        assert_eq!(it.terminal.screen().cursor_position(), (2, 0));
        let bytes = it.screen.leave();
        it.terminal.process(bytes.as_bytes());
        assert_eq!(it.seen(), ["one", "two"]);
    }

    #[test]
    fn every_emitted_row_is_in_the_scrollback_once() {
        let mut it = Emulated::new(6, 20);
        for number in 0..40 {
            it.frame(&[], &["working", "> ", "footer"]);
            it.frame(&[&format!("line {number}")], &["> ", "footer"]);
        }
        it.terminal.screen_mut().set_scrollback(usize::MAX);
        let above = it.terminal.screen().scrollback();
        let mut all = Vec::new();
        for offset in (0..=above).rev() {
            it.terminal.screen_mut().set_scrollback(offset);
            all.push(it.terminal.screen().rows(0, 20).next().unwrap());
        }
        it.terminal.screen_mut().set_scrollback(0);
        all.extend(it.terminal.screen().rows(0, 20).skip(1));
        let found: Vec<&String> = all.iter().filter(|row| row.starts_with("line ")).collect();
        let wanted: Vec<String> = (0..40).map(|number| format!("line {number}")).collect();
        assert_eq!(found, wanted.iter().collect::<Vec<_>>());
        assert_eq!(all.iter().filter(|row| row.contains("footer")).count(), 1);
    }

    #[test]
    fn one_changed_row_costs_that_row() {
        let mut it = Emulated::new(24, 80);
        let wide = "x".repeat(70);
        it.frame(&[], &[&wide, &wide, "> ", "footer"]);
        let bytes = it.frame(&[], &[&wide, &wide, "> a", "footer"]);
        assert!(bytes < 60, "{bytes}");
        // A frame is shown at once, and wraps nothing.
        let frame = it.screen.frame(&lines(&["emitted"]), &lines(&["> b", "footer"]));
        assert!(frame.starts_with("\x1b[?2026h\x1b[?7l"), "{frame:?}");
        assert!(frame.ends_with("\x1b[?7h\x1b[?2026l"), "{frame:?}");
        assert_eq!(frame.matches("\x1b[?2026").count(), 2, "{frame:?}");
    }

    proptest::proptest! {
        /// However frames follow each other, the screen is what was emitted and the region.
        #[test]
        fn the_screen_is_the_transcript_and_the_region(
            frames in proptest::collection::vec(
                (0_usize..3, proptest::collection::vec("[a-z]{0,6}", 1..5)), 1..12),
        ) {
            let mut it = Emulated::new(60, 20);
            let mut emitted = Vec::new();
            let mut last = Vec::new();
            for (count, region) in frames {
                let new: Vec<String> = (0..count).map(|n| format!("t{}", emitted.len() + n)).collect();
                emitted.extend(new.iter().cloned());
                let new: Vec<&str> = new.iter().map(String::as_str).collect();
                let rows: Vec<&str> = region.iter().map(String::as_str).collect();
                it.frame(&new, &rows);
                last = region;
            }
            let wanted: Vec<String> = emitted.into_iter().chain(last).collect();
            let mut seen = it.seen();
            seen.resize(wanted.len().max(seen.len()), String::new());
            proptest::prop_assert_eq!(seen, wanted);
        }
    }
}
