//! Roles of text and their looks: what a theme says, and how a colour becomes one that the terminal
//! has.

use std::{collections::BTreeMap, fmt, fmt::Write as _, str::FromStr};

use crate::authority::{distance, shown};

/// A colour of the terminal's own palette, which the person has chosen to be readable, or one that a
/// tool or a theme asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Color {
    /// One of the 256, of which the first 16 are the palette's.
    Indexed(u8),
    /// Red, green, blue.
    Rgb(u8, u8, u8),
}

impl Color {
    /// Palette red: what failed, what was taken away.
    pub const RED: Self = Self::Indexed(1);
    /// Palette green: what was added.
    pub const GREEN: Self = Self::Indexed(2);
    /// Palette yellow: what warns.
    pub const YELLOW: Self = Self::Indexed(3);
    /// Palette blue.
    pub const BLUE: Self = Self::Indexed(4);
    /// Palette magenta.
    pub const MAGENTA: Self = Self::Indexed(5);
    /// Palette cyan: what is a name.
    pub const CYAN: Self = Self::Indexed(6);

    /// Returns the colour as red, green and blue; of the palette's 16 what xterm has by default.
    pub fn rgb(self) -> (u8, u8, u8) {
        match self {
            Self::Rgb(r, g, b) => (r, g, b),
            Self::Indexed(n) => indexed(n),
        }
    }

    /// Returns this colour, or the nearest that a terminal of this depth has. A colour of the palette
    /// stays what it is.
    #[must_use]
    pub fn at(self, depth: Depth) -> Self {
        let candidates = match (self, depth) {
            (Self::Indexed(0..16), _) | (_, Depth::True) | (Self::Indexed(_), Depth::Indexed) => {
                return self;
            }
            (Self::Rgb(..), Depth::Indexed) => 16..=255,
            (_, Depth::Basic) => 0..=15,
        };
        let wanted: [u8; 3] = self.rgb().into();
        let away = |n: u8| {
            let there: [u8; 3] = indexed(n).into();
            let parts = wanted.iter().zip(there);
            parts.map(|(one, two)| u32::from(one.abs_diff(two)).pow(2)).sum::<u32>()
        };
        candidates.min_by_key(|n| away(*n)).map_or(self, Self::Indexed)
    }
}

/// xterm's 256 colours: the palette, a cube of 6 × 6 × 6, and 24 greys.
fn indexed(n: u8) -> (u8, u8, u8) {
    const PALETTE: [(u8, u8, u8); 16] = [
        (0, 0, 0),
        (205, 0, 0),
        (0, 205, 0),
        (205, 205, 0),
        (0, 0, 238),
        (205, 0, 205),
        (0, 205, 205),
        (229, 229, 229),
        (127, 127, 127),
        (255, 0, 0),
        (0, 255, 0),
        (255, 255, 0),
        (92, 92, 255),
        (255, 0, 255),
        (0, 255, 255),
        (255, 255, 255),
    ];
    if let Some(color) = PALETTE.get(usize::from(n)) {
        return *color;
    }
    let level = |n: u8| if n == 0 { 0 } else { 55 + 40 * n };
    if n >= 232 {
        let grey = 8 + 10 * (n - 232);
        return (grey, grey, grey);
    }
    let n = n - 16;
    (level(n / 36), level(n / 6 % 6), level(n % 6))
}

/// How many colours a terminal has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Depth {
    /// 16.
    Basic,
    /// 256.
    #[default]
    Indexed,
    /// Any.
    True,
}

impl Depth {
    /// Tells from what a terminal says of itself: `COLORTERM` and `TERM`.
    pub fn of(colorterm: Option<&str>, term: &str) -> Self {
        if colorterm.is_some_and(|said| ["truecolor", "24bit"].contains(&said))
            || term.ends_with("-direct")
        {
            return Self::True;
        }
        let few = ["linux", "xterm", "screen", "ansi", "cygwin", "rxvt", "sun"];
        if few.contains(&term) || term.starts_with("vt") { Self::Basic } else { Self::Indexed }
    }
}

/// What a piece of text is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// The mark before what a person writes or wrote.
    Prompt,
    /// A heading of an answer.
    Heading,
    /// The text of a link.
    Link,
    /// Code in an answer.
    Code,
    /// A keyword of code.
    Keyword,
    /// A string of code.
    String,
    /// A number of code.
    Number,
    /// A comment of code.
    Comment,
    /// A line that was added.
    Added,
    /// A line that was taken away.
    Removed,
    /// What went well.
    Success,
    /// What warns.
    Warning,
    /// What failed.
    Error,
    /// What goes on.
    Activity,
    /// The name of a command.
    Command,
    /// What stands back.
    Dim,
    /// The footer inside kli's own jail.
    Jailed,
    /// The footer where the confinement is not known for sure.
    Unverified,
    /// The footer without a jail.
    Unconfined,
}

/// Every role with its name in settings and what it is for.
const ROLES: [(Role, &str, &str); 19] = [
    (Role::Prompt, "prompt", "the mark before what you write"),
    (Role::Heading, "heading", "headings of answers"),
    (Role::Link, "link", "links"),
    (Role::Code, "code", "code in answers"),
    (Role::Keyword, "keyword", "keywords of code"),
    (Role::String, "string", "strings of code"),
    (Role::Number, "number", "numbers of code"),
    (Role::Comment, "comment", "comments of code"),
    (Role::Added, "added", "lines that were added"),
    (Role::Removed, "removed", "lines that were taken away"),
    (Role::Success, "success", "the mark of a call that went well"),
    (Role::Warning, "warning", "warnings and hints"),
    (Role::Error, "error", "errors"),
    (Role::Activity, "activity", "the spinner, and running tools"),
    (Role::Command, "command", "names of commands"),
    (Role::Dim, "dim", "what stands back: notes, the rest of the footer"),
    (Role::Jailed, "jailed", "the confinement in the footer, inside kli's jail"),
    (Role::Unverified, "unverified", "the same where it is not known for sure"),
    (Role::Unconfined, "unconfined", "the same without a jail"),
];

impl Role {
    /// The names, in the order of the list.
    pub fn names() -> impl Iterator<Item = &'static str> {
        ROLES.iter().map(|(_, name, _)| *name)
    }

    /// Returns the role of a name.
    pub fn named(name: &str) -> Option<Self> {
        ROLES.iter().find(|(_, known, _)| *known == name).map(|(role, ..)| *role)
    }

    /// Returns its name in settings.
    pub fn name(self) -> &'static str {
        ROLES.iter().find(|(role, ..)| *role == self).map_or("", |(_, name, _)| name)
    }
}

/// How a role looks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is an attribute of a terminal's cell")]
pub struct Look {
    /// The colour of the letters; none is the terminal's.
    pub foreground: Option<Color>,
    /// The colour behind them; none is the terminal's.
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

/// A look that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LookError {
    /// A word that is neither a colour nor an attribute.
    #[error(
        "`{word}` is neither a colour nor an attribute{}; write like `bold red`, `208`, `#ff8800 on black` or `plain`",
        .nearest.map_or_else(String::new, |name| format!(", did you mean `{name}`?"))
    )]
    Unknown {
        /// The word.
        word: String,
        /// The nearest that is.
        nearest: Option<&'static str>,
    },
    /// Two colours for one thing, or `on` without one.
    #[error("`{text}` has {what}; write at most one colour, and one after `on`")]
    Colors {
        /// What was written.
        text: String,
        /// What is wrong.
        what: &'static str,
    },
    /// Text in the colour of its ground.
    #[error("`{text}` cannot be seen: letters and ground have the same colour; change one of them")]
    Hidden {
        /// What was written.
        text: String,
    },
    /// Nothing.
    #[error("the look is empty; write `plain` for the terminal's own")]
    Empty,
}

const COLORS: [&str; 16] = [
    "black",
    "red",
    "green",
    "yellow",
    "blue",
    "magenta",
    "cyan",
    "white",
    "bright-black",
    "bright-red",
    "bright-green",
    "bright-yellow",
    "bright-blue",
    "bright-magenta",
    "bright-cyan",
    "bright-white",
];
const ATTRIBUTES: [&str; 7] = ["plain", "bold", "dim", "italic", "underline", "reverse", "strike"];

fn color(word: &str) -> Option<Color> {
    if let Some(at) = COLORS.iter().position(|name| *name == word) {
        return u8::try_from(at).ok().map(Color::Indexed);
    }
    if let Some(hex) = word.strip_prefix('#') {
        let digits = hex.len() == 6 && hex.bytes().all(|byte| byte.is_ascii_hexdigit());
        let number = u32::from_str_radix(hex, 16).ok().filter(|_| digits)?;
        let [_, r, g, b] = number.to_be_bytes();
        return Some(Color::Rgb(r, g, b));
    }
    word.parse().ok().map(Color::Indexed)
}

/// Reads a look as settings write it: attributes, a colour, and `on` with a colour behind, in any
/// order.
impl FromStr for Look {
    type Err = LookError;

    fn from_str(text: &str) -> Result<Self, LookError> {
        let mut look = Self::default();
        let colors = |what| LookError::Colors { text: shown(text), what };
        let lower = text.to_lowercase();
        let mut words = lower.split_whitespace().peekable();
        if words.peek().is_none() {
            return Err(LookError::Empty);
        }
        while let Some(word) = words.next() {
            match word {
                "plain" => {}
                "bold" => look.bold = true,
                "dim" => look.dim = true,
                "italic" => look.italic = true,
                "underline" => look.underline = true,
                "reverse" => look.reverse = true,
                "strike" => look.strike = true,
                "on" => {
                    let behind = words.next().ok_or_else(|| colors("no colour after `on`"))?;
                    let behind = color(behind).ok_or_else(|| unknown(behind))?;
                    if look.background.replace(behind).is_some() {
                        return Err(colors("two colours behind the letters"));
                    }
                }
                _ => {
                    let found = color(word).ok_or_else(|| unknown(word))?;
                    if look.foreground.replace(found).is_some() {
                        return Err(colors("two colours for the letters"));
                    }
                }
            }
        }
        let same =
            |depth| look.foreground.map(|c| c.at(depth)) == look.background.map(|c| c.at(depth));
        if look.foreground.is_some()
            && [Depth::Basic, Depth::Indexed, Depth::True].into_iter().any(same)
        {
            return Err(LookError::Hidden { text: shown(text) });
        }
        Ok(look)
    }
}

fn unknown(word: &str) -> LookError {
    let nearest = COLORS
        .iter()
        .chain(&ATTRIBUTES)
        .filter_map(|name| Some((distance(word, name, 2)?, *name)))
        .min()
        .map(|(_, name)| name);
    LookError::Unknown { word: shown(word), nearest }
}

impl fmt::Display for Look {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let spoken = |color: Color| match color {
            Color::Indexed(n) => {
                COLORS.get(usize::from(n)).map_or_else(|| n.to_string(), |name| (*name).to_owned())
            }
            Color::Rgb(r, g, b) => format!("#{r:02x}{g:02x}{b:02x}"),
        };
        let attributes = [
            (self.bold, "bold"),
            (self.dim, "dim"),
            (self.italic, "italic"),
            (self.underline, "underline"),
            (self.reverse, "reverse"),
            (self.strike, "strike"),
        ];
        let mut words: Vec<String> =
            attributes.iter().filter(|(on, _)| *on).map(|(_, name)| (*name).to_owned()).collect();
        words.extend(self.foreground.map(spoken));
        words.extend(self.background.map(|color| format!("on {}", spoken(color))));
        if words.is_empty() {
            words.push("plain".to_owned());
        }
        f.write_str(&words.join(" "))
    }
}

/// The themes that are always there, with what each is.
pub const BUILT_IN: [(&str, &str); 4] = [
    ("auto", "the terminal's own palette, light or dark as the terminal is"),
    ("dark", "colours of kli's own for a dark ground"),
    ("light", "colours of kli's own for a light ground"),
    ("none", "no colour at all, as `NO_COLOR`"),
];

/// Says whether a theme of this name is always there.
pub fn is_built_in(name: &str) -> bool {
    BUILT_IN.iter().any(|(known, _)| *known == name)
}

/// The looks of roles. A role without one looks as the terminal's palette has it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Theme {
    looks: BTreeMap<Role, Look>,
    colorless: bool,
}

impl Theme {
    /// Returns a theme that is always there.
    pub fn built_in(name: &str) -> Option<Self> {
        let looks: &[(Role, &str)] = match name {
            "auto" => &[],
            "none" => return Some(Self { colorless: true, ..Self::default() }),
            "dark" => &DARK,
            "light" => &LIGHT,
            _ => return None,
        };
        let looks = looks.iter().filter_map(|(role, look)| Some((*role, look.parse().ok()?)));
        Some(Self { looks: looks.collect(), colorless: false })
    }

    /// Lays looks over this theme.
    #[must_use]
    pub fn with(mut self, looks: impl IntoIterator<Item = (Role, Look)>) -> Self {
        self.looks.extend(looks);
        self
    }

    /// Returns the look of a role.
    pub fn look(&self, role: Role) -> Option<Look> {
        self.looks.get(&role).copied()
    }

    /// Says whether nothing is coloured.
    pub fn is_colorless(&self) -> bool {
        self.colorless
    }
}

const DARK: [(Role, &str); 19] = [
    (Role::Prompt, "bold #5fd7ff"),
    (Role::Heading, "bold #ffd787"),
    (Role::Link, "underline #87afff"),
    (Role::Code, "#87d7d7"),
    (Role::Keyword, "#af87ff"),
    (Role::String, "#87d787"),
    (Role::Number, "#ffaf87"),
    (Role::Comment, "italic #a8a8a8"),
    (Role::Added, "#87d787"),
    (Role::Removed, "#ff8787"),
    (Role::Success, "#87d787"),
    (Role::Warning, "#ffd75f"),
    (Role::Error, "#ff8787"),
    (Role::Activity, "#5fd7ff"),
    (Role::Command, "#5fd7ff"),
    (Role::Dim, "#a8a8a8"),
    (Role::Jailed, "#87d787"),
    (Role::Unverified, "#ffd75f"),
    (Role::Unconfined, "bold #ff8787"),
];

const LIGHT: [(Role, &str); 19] = [
    (Role::Prompt, "bold #005f87"),
    (Role::Heading, "bold #5f0087"),
    (Role::Link, "underline #0000af"),
    (Role::Code, "#005f5f"),
    (Role::Keyword, "#5f00af"),
    (Role::String, "#005f00"),
    (Role::Number, "#870000"),
    (Role::Comment, "italic #585858"),
    (Role::Added, "#005f00"),
    (Role::Removed, "#af0000"),
    (Role::Success, "#005f00"),
    (Role::Warning, "#875f00"),
    (Role::Error, "#af0000"),
    (Role::Activity, "#005f87"),
    (Role::Command, "#005f87"),
    (Role::Dim, "#585858"),
    (Role::Jailed, "#005f00"),
    (Role::Unverified, "#875f00"),
    (Role::Unconfined, "bold #af0000"),
];

/// Returns the table of roles in Markdown, as `docs/terminal.md` carries it.
pub fn markdown() -> String {
    let mut text = String::from("| role | what it is |\n| --- | --- |\n");
    for (_, name, about) in ROLES {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "| `{name}` | {about} |");
    }
    text
}

#[cfg(test)]
mod tests;
