//! Styled text: what the view says before any terminal is thought of, and how it becomes bytes.

use std::{fmt::Write as _, sync::Arc};

use unicode_segmentation::UnicodeSegmentation as _;

use crate::display::{Depth, Look, Role, Theme};

use super::cells::{is_doubtful, width};

pub use crate::display::Color;

/// How a text looks. Nothing is told by this alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is an attribute of a terminal's cell")]
pub struct Style {
    /// What the text is; a theme decides how that looks.
    pub role: Option<Role>,
    /// The colour of the letters.
    pub foreground: Option<Color>,
    /// The colour behind them; only tools ask for one.
    pub background: Option<Color>,
    /// Bold.
    pub bold: bool,
    /// Faint.
    pub dim: bool,
    /// Slanted.
    pub italic: bool,
    /// Underlined.
    pub underline: bool,
    /// Letters and ground exchanged.
    pub reverse: bool,
    /// Struck through.
    pub strike: bool,
}

impl Style {
    /// A colour and nothing else.
    pub const fn color(color: Color) -> Self {
        Self { foreground: Some(color), ..Self::PLAIN }
    }

    /// As the terminal shows text by itself.
    pub const PLAIN: Self = Self {
        role: None,
        foreground: None,
        background: None,
        bold: false,
        dim: false,
        italic: false,
        underline: false,
        reverse: false,
        strike: false,
    };

    /// Bold.
    pub const BOLD: Self = Self { bold: true, ..Self::PLAIN };
    /// Faint.
    pub const DIM: Self = Self::role(Role::Dim);

    /// A role, as it looks in the terminal's own palette.
    pub const fn role(role: Role) -> Self {
        let plain = Self { role: Some(role), ..Self::PLAIN };
        match role {
            Role::Prompt => Self { bold: true, foreground: Some(Color::CYAN), ..plain },
            Role::Heading => Self { bold: true, ..plain },
            Role::Link => Self { underline: true, ..plain },
            Role::Code | Role::Activity | Role::Command => {
                Self { foreground: Some(Color::CYAN), ..plain }
            }
            Role::Keyword => Self { foreground: Some(Color::BLUE), ..plain },
            Role::String | Role::Added | Role::Success | Role::Jailed => {
                Self { foreground: Some(Color::GREEN), ..plain }
            }
            Role::Number => Self { foreground: Some(Color::MAGENTA), ..plain },
            Role::Comment => Self { italic: true, dim: true, ..plain },
            Role::Removed | Role::Error => Self { foreground: Some(Color::RED), ..plain },
            Role::Warning | Role::Unverified => Self { foreground: Some(Color::YELLOW), ..plain },
            Role::Dim => Self { dim: true, ..plain },
            Role::Unconfined => Self { bold: true, foreground: Some(Color::RED), ..plain },
        }
    }

    /// Returns this style with what a theme has for its role. What the text has besides (a bold word
    /// in a note) it keeps.
    fn themed(self, theme: &Theme) -> Self {
        let Some((role, look)) = self.role.and_then(|role| Some((role, theme.look(role)?))) else {
            return self;
        };
        let usual = Self::role(role);
        let Look { foreground, background, bold, dim, italic, underline, reverse, strike } = look;
        Self {
            role: None,
            foreground,
            background,
            bold: bold || (self.bold && !usual.bold),
            dim: dim || (self.dim && !usual.dim),
            italic: italic || (self.italic && !usual.italic),
            underline: underline || (self.underline && !usual.underline),
            reverse: reverse || self.reverse,
            strike: strike || self.strike,
        }
    }

    /// Appends what switches from the plain style to this one.
    fn begin(self, out: &mut String, paint: &Paint) {
        let Paint { colors, depth, theme } = paint;
        let colors = *colors && !theme.is_colorless();
        // Tools ask for the colours that they want; themes for those that there are.
        let style = if colors { self.themed(theme) } else { self };
        let at = |color: Color| if self.role.is_some() { color.at(*depth) } else { color };
        let flags = [
            (style.bold, "1"),
            (style.dim, "2"),
            (style.italic, "3"),
            (style.underline, "4"),
            (style.reverse, "7"),
            (style.strike, "9"),
        ];
        let mut parts: Vec<String> =
            flags.iter().filter(|(on, _)| *on).map(|(_, code)| (*code).to_owned()).collect();
        if colors {
            parts.extend(style.foreground.map(|color| sgr(at(color), 30)));
            parts.extend(style.background.map(|color| sgr(at(color), 40)));
        }
        if !parts.is_empty() {
            // Writing to a string cannot fail.
            let _ = write!(out, "\x1b[{}m", parts.join(";"));
        }
    }
}

/// How styles become colours: whether at all, how many there are, and the theme.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Paint {
    /// Whether colours may be used. When not, nothing of the theme counts.
    pub colors: bool,
    /// How many the terminal has.
    pub depth: Depth,
    /// The looks of roles.
    pub theme: Theme,
}

impl Paint {
    /// Returns the terminal's own palette, or no colour.
    pub fn palette(colors: bool) -> Self {
        Self { colors, ..Self::default() }
    }
}

fn sgr(color: Color, base: u16) -> String {
    match color {
        Color::Indexed(n @ 0..=7) => (base + u16::from(n)).to_string(),
        Color::Indexed(n @ 8..=15) => (base + 60 + u16::from(n) - 8).to_string(),
        Color::Indexed(n) => format!("{};5;{n}", base + 8),
        Color::Rgb(r, g, b) => format!("{};2;{r};{g};{b}", base + 8),
    }
}

/// A piece of text in one style. It holds no control character but the line break, and that only
/// before it is wrapped.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Span {
    /// The text.
    pub text: String,
    /// Its looks.
    pub style: Style,
    /// Where it leads.
    pub link: Option<Link>,
}

/// An address that a terminal may open: `http`, `https` or `file`, printable ASCII, of bounded length.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link(Arc<str>);

impl Link {
    /// The longest address, in bytes: what terminals take (VTE: 2083).
    const LONGEST: usize = 2000;

    /// Returns an address as a link; `None` for one that a terminal should not open.
    pub fn new(address: &str) -> Option<Self> {
        let scheme = address.split_once(':')?.0.to_ascii_lowercase();
        let is_known = ["http", "https", "file"].contains(&scheme.as_str());
        let is_plain = address.bytes().all(|byte| byte.is_ascii_graphic());
        (is_known && is_plain && address.len() <= Self::LONGEST).then(|| Self(address.into()))
    }

    /// Appends what begins it (OSC 8). Pieces with one `id` are one link, also over several rows.
    fn begin(&self, out: &mut String) {
        // FNV-1a, 32 bits: it only has to be the same for the same address.
        let id = self
            .0
            .bytes()
            .fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
        let _ = write!(out, "\x1b]8;id={id:08x};{}\x1b\\", self.0);
    }
}

/// Ends a link.
const NO_LINK: &str = "\x1b]8;;\x1b\\";

impl Span {
    /// Returns a text in a style.
    pub fn new(text: impl Into<String>, style: Style) -> Self {
        Self { text: text.into(), style, link: None }
    }

    /// Returns a text as the terminal shows it by itself.
    pub fn plain(text: impl Into<String>) -> Self {
        Self::new(text, Style::PLAIN)
    }
}

/// One row.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Line {
    /// Its pieces, from left to right.
    pub spans: Vec<Span>,
}

impl From<Vec<Span>> for Line {
    fn from(spans: Vec<Span>) -> Self {
        Self { spans }
    }
}

impl Line {
    /// Returns a row of one piece.
    pub fn styled(text: impl Into<String>, style: Style) -> Self {
        Self { spans: vec![Span::new(text, style)] }
    }

    /// Returns the text without looks.
    pub fn text(&self) -> String {
        self.spans.iter().map(|span| span.text.as_str()).collect()
    }

    /// Says whether nothing but blanks stands in the row.
    pub fn is_blank(&self) -> bool {
        self.spans.iter().all(|span| span.text.trim().is_empty())
    }

    /// Returns the width in cells.
    pub fn width(&self) -> usize {
        self.spans.iter().map(|span| width(&span.text)).sum()
    }

    /// Appends a piece; one like the last joins it.
    pub fn push(&mut self, text: &str, style: Style) {
        self.push_linked(text, style, None);
    }

    /// As [`Line::push`], for a piece that may lead somewhere.
    pub fn push_linked(&mut self, text: &str, style: Style, link: Option<&Link>) {
        if text.is_empty() {
            return;
        }
        let is_like = |last: &&mut Span| last.style == style && last.link.as_ref() == link;
        match self.spans.last_mut().filter(is_like) {
            Some(last) => last.text.push_str(text),
            None => self.spans.push(Span { link: link.cloned(), ..Span::new(text, style) }),
        }
    }

    /// Returns the row as a terminal takes it, ending in the plain style. After what terminals give
    /// different widths the column is set, so that the rest of the row stands where it should. Links go
    /// with the colours: where those are left out, so are they.
    pub fn encode(&self, paint: &Paint) -> String {
        let mut out = String::new();
        let mut column = 0_usize;
        for span in &self.spans {
            let is_plain = span.style == Style::PLAIN;
            if !is_plain {
                span.style.begin(&mut out, paint);
            }
            let link = span.link.as_ref().filter(|_| paint.colors);
            if let Some(link) = link {
                link.begin(&mut out);
            }
            for cluster in span.text.graphemes(true) {
                out.push_str(cluster);
                column += width(cluster);
                if is_doubtful(cluster) {
                    let _ = write!(out, "\x1b[{}G", column + 1);
                }
            }
            if link.is_some() {
                out.push_str(NO_LINK);
            }
            if !is_plain {
                out.push_str("\x1b[0m");
            }
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_ends_in_the_plain_style_and_colours_can_be_left_out() {
        let line = Line::from(vec![
            Span::plain("a"),
            Span::new("b", Style { bold: true, ..Style::color(Color::RED) }),
        ]);
        assert_eq!(line.encode(&Paint::palette(true)), "a\x1b[1;31mb\x1b[0m");
        assert_eq!(line.encode(&Paint::palette(false)), "a\x1b[1mb\x1b[0m");
        let rgb = Line::styled("x", Style::color(Color::Rgb(1, 2, 3)));
        assert_eq!(rgb.encode(&Paint::palette(true)), "\x1b[38;2;1;2;3mx\x1b[0m");
        assert_eq!(
            Line::styled("x", Style::color(Color::Indexed(9))).encode(&Paint::palette(true)),
            "\x1b[91mx\x1b[0m"
        );
    }

    #[test]
    fn a_link_is_an_address_that_a_terminal_may_open_and_drives_nothing() {
        let mut line = Line::default();
        line.push_linked("docs", Style::BOLD, Link::new("https://example.org/a?b=1").as_ref());
        line.push(" x", Style::PLAIN);
        let id = "id=";
        let bytes = line.encode(&Paint::palette(true));
        let (before, rest) = bytes.split_once(id).unwrap();
        assert_eq!(before, "\x1b[1m\x1b]8;");
        assert_eq!(&rest[8..], ";https://example.org/a?b=1\x1b\\docs\x1b]8;;\x1b\\\x1b[0m x");
        assert_eq!(
            line.encode(&Paint::palette(false)),
            "\x1b[1mdocs\x1b[0m x",
            "without colours there is none"
        );
        assert_eq!(line.text(), "docs x");
        assert!(Link::new("file:///etc/hosts").is_some() && Link::new("HTTP://x").is_some());
        for none in [
            "javascript:alert(1)",
            "ssh://x",
            "x",
            "mailto:a@b",
            "https://a b",
            "https://a\u{1b}\\",
            "https://a\u{7}",
            "https://é",
            "",
        ] {
            assert_eq!(Link::new(none), None, "{none:?}");
        }
        assert_eq!(Link::new(&format!("https://{}", "x".repeat(2000))), None);
    }

    #[test]
    fn a_theme_changes_roles_and_nothing_else() {
        let theme = Theme::default().with([
            (Role::Error, "bold #ff0000 on black".parse().unwrap()),
            (Role::Dim, "#808080".parse().unwrap()),
        ]);
        let paint = |depth, colors| Paint { colors, depth, theme: theme.clone() };
        let error = Line::styled("x", Style { italic: true, ..Style::role(Role::Error) });
        for (depth, colors, bytes) in [
            (Depth::True, true, "\x1b[1;3;38;2;255;0;0;40mx\x1b[0m"),
            (Depth::Indexed, true, "\x1b[1;3;38;5;196;40mx\x1b[0m"),
            (Depth::Basic, true, "\x1b[1;3;91;40mx\x1b[0m"),
            // Without colours nothing of the theme is left, and what the text has by itself stays.
            (Depth::True, false, "\x1b[3mx\x1b[0m"),
        ] {
            assert_eq!(error.encode(&paint(depth, colors)), bytes);
        }
        let paint = paint(Depth::True, true);
        // A look is whole: faint by itself, a theme's grey is not faint besides.
        assert_eq!(Line::styled("x", Style::DIM).encode(&paint), "\x1b[38;2;128;128;128mx\x1b[0m");
        assert_eq!(Line::styled("x", Style::BOLD).encode(&paint), "\x1b[1mx\x1b[0m");
        // A tool's colour is the tool's.
        let tool = Line::styled("x", Style::color(Color::RED));
        assert_eq!(tool.encode(&paint), "\x1b[31mx\x1b[0m");
        let none = Paint { theme: Theme::built_in("none").unwrap(), ..paint };
        assert_eq!(tool.encode(&none), "x\x1b[0m");
        assert_eq!(error.encode(&none), "\x1b[3mx\x1b[0m");
    }

    #[test]
    fn the_column_is_set_after_what_terminals_disagree_about() {
        assert_eq!(Line::styled("漢x", Style::PLAIN).encode(&Paint::palette(true)), "漢x");
        assert_eq!(Line::styled("👩‍👩‍👧x", Style::PLAIN).encode(&Paint::palette(true)), "👩‍👩‍👧\x1b[3Gx");
        assert_eq!(
            Line::styled("⚠\u{fe0f}x", Style::PLAIN).encode(&Paint::palette(true)),
            "⚠\u{fe0f}\x1b[3Gx"
        );
    }
}
