//! What a beginning can become: a slash command, or a file behind an `@`. Pure: the files are walked
//! elsewhere and handed in.

use std::{ops::Range, time::Duration};

use crate::{
    agent::{begins_mention, mention_of},
    display::Role,
};

use super::{
    cells::{clean_row, cut, width},
    command,
    composer::Composer,
    key::{Code, Key},
    style::{Line, Style},
};

/// The most files that are offered from.
pub const FILES: usize = 20_000;
/// The most that is offered at once.
const OFFERS: usize = 100;
/// The most rows of offers.
const ROWS: usize = 6;
/// Files are asked for again when those that are known are older than this and another mention begins.
const FRESH: Duration = Duration::from_secs(5);

/// The files of the workspace, as they were when somebody looked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Files {
    /// Paths from the workspace on; a directory ends with `/`. Only those that a mention can name.
    pub paths: Vec<String>,
    /// Whether there are more.
    pub is_cut: bool,
}

/// Says whether a path can stand behind an `@`: it is one line, and what is shown is what is written.
pub fn can_be_mentioned(path: &str) -> bool {
    clean_row(path) == path && mention_of(path).is_some()
}

/// One thing that a beginning can become.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Offer {
    /// What is shown, and what is written for it.
    text: String,
    about: &'static str,
    /// Whether something follows it, so that a blank is written behind it.
    goes_on: bool,
    is_file: bool,
}

/// What is offered for what is being written.
#[derive(Clone, Debug, Default)]
pub struct Completion {
    files: Files,
    /// The paths in lower case.
    lower: Vec<String>,
    /// When the files were handed in.
    known: Option<Duration>,
    asked: bool,
    offers: Vec<Offer>,
    /// What of the text an offer takes the place of.
    place: Range<usize>,
    /// The text and the cursor that this was made of.
    of: (String, usize),
    /// Which offer is marked.
    at: Option<usize>,
    /// The text for which no offers are wanted.
    closed: Option<String>,
    /// Whether a file is being mentioned.
    mentions: bool,
}

impl Completion {
    /// Looks at what is written; says whether the files should be looked for.
    pub fn look(&mut self, composer: &Composer, now: Duration) -> bool {
        let (text, cursor) = (composer.text(), composer.cursor());
        if self.of.0 == text && self.of.1 == cursor {
            return false;
        }
        self.of = (text.to_owned(), cursor);
        let before = std::mem::take(&mut self.mentions);
        self.offer();
        let stale = self.known.is_none_or(|known| now.saturating_sub(known) > FRESH);
        let wanted = self.mentions && !before && stale && !self.asked;
        self.asked |= wanted;
        wanted
    }

    /// Takes the files.
    pub fn know(&mut self, mut files: Files, now: Duration) {
        files.paths.truncate(FILES);
        files.paths.retain(|path| can_be_mentioned(path));
        self.lower = files.paths.iter().map(|path| path.to_lowercase()).collect();
        self.files = files;
        self.known = Some(now);
        self.asked = false;
        self.offer();
    }

    fn offer(&mut self) {
        self.at = None;
        self.offers.clear();
        let (text, cursor) = (self.of.0.as_str(), self.of.1);
        if self.closed.as_deref() == Some(text) {
            return;
        }
        self.closed = None;
        if let Some(start) = mention(text, cursor) {
            let quoted = text.get(start + 1..).is_some_and(|rest| rest.starts_with('"'));
            let typed = text.get(start + 1 + usize::from(quoted)..cursor).unwrap_or_default();
            let rest = text.get(cursor..).unwrap_or_default();
            let end = if quoted {
                cursor + usize::from(rest.starts_with('"'))
            } else {
                cursor + rest.find(char::is_whitespace).unwrap_or(rest.len())
            };
            self.place = start..end;
            self.mentions = true;
            self.offers = self.files(typed);
            return;
        }
        if cursor == text.len() {
            self.place = 0..text.len();
            self.offers = command::completions(text)
                .iter()
                .map(|command| Offer {
                    text: format!("/{}", command.name),
                    about: command.about,
                    goes_on: !command.takes.is_empty(),
                    is_file: false,
                })
                .collect();
        }
    }

    /// The files that fit, the best first: those that begin so, whose name does, that hold it in
    /// their name or anywhere, that hold its letters in this order.
    fn files(&self, typed: &str) -> Vec<Offer> {
        let wanted = typed.to_lowercase();
        let hidden_too = typed.starts_with('.') || typed.contains("/.");
        let mut fitting: Vec<(usize, usize, usize, &str)> = self
            .files
            .paths
            .iter()
            .zip(&self.lower)
            .filter(|(path, _)| hidden_too || !(path.starts_with('.') || path.contains("/.")))
            .filter_map(|(path, lower)| {
                let rank = rank(lower, &wanted)?;
                let depth = path.trim_end_matches('/').matches('/').count();
                Some((rank, depth, path.len(), path.as_str()))
            })
            .collect();
        fitting.sort_unstable();
        // What is written whole needs no offer: another file only where it goes on from there.
        let is_whole = !typed.is_empty() && fitting.iter().any(|(.., path)| *path == typed);
        fitting.retain(|(rank, .., path)| !is_whole || (*rank == 0 && *path != typed));
        fitting
            .iter()
            .take(OFFERS)
            .map(|(.., path)| Offer {
                text: (*path).to_owned(),
                about: "",
                goes_on: false,
                is_file: true,
            })
            .collect()
    }

    /// Says whether something is offered.
    pub fn is_open(&self) -> bool {
        !self.offers.is_empty()
    }

    /// Takes a key that moves through the offers; says whether it did.
    pub fn key(&mut self, key: Key) -> bool {
        if !self.is_open() || key.ctrl || key.alt {
            return false;
        }
        let last = self.offers.len() - 1;
        self.at = match (key.code, self.at) {
            (Code::Down, None) => Some(0),
            (Code::Down, Some(at)) => Some((at + 1).min(last)),
            (Code::Up, Some(at)) => at.checked_sub(1),
            (Code::PageDown, at) => Some((at.unwrap_or(0) + ROWS).min(last)),
            (Code::PageUp, Some(at)) => Some(at.saturating_sub(ROWS)),
            _ => return false,
        };
        true
    }

    /// Takes the offers away until the text changes; says whether there were any.
    pub fn close(&mut self) -> bool {
        let was_open = self.is_open();
        if was_open {
            self.closed = Some(self.of.0.clone());
            self.offer();
        }
        was_open
    }

    /// Writes the marked offer; says whether one is marked.
    pub fn accept(&mut self, composer: &mut Composer) -> bool {
        let Some(offer) = self.at.and_then(|at| self.offers.get(at)).cloned() else { return false };
        self.write(&offer, composer);
        true
    }

    /// Completes as far as it is clear: the marked offer, the first file, or what all commands share.
    /// Says whether there was anything to complete.
    pub fn complete(&mut self, composer: &mut Composer) -> bool {
        if self.accept(composer) {
            return true;
        }
        match self.offers.as_slice() {
            [] => return false,
            [only] => self.write(&only.clone(), composer),
            [first, ..] if first.is_file => self.write(&first.clone(), composer),
            [first, rest @ ..] => {
                let shared = rest.iter().fold(first.text.len(), |most, other| {
                    let same =
                        first.text.bytes().zip(other.text.bytes()).take_while(|(a, b)| a == b);
                    most.min(same.count())
                });
                composer.set(first.text.get(..shared).unwrap_or_default());
            }
        }
        true
    }

    fn write(&self, offer: &Offer, composer: &mut Composer) {
        if !offer.is_file {
            let blank = if offer.goes_on { " " } else { "" };
            composer.set(&format!("{}{blank}", offer.text));
            return;
        }
        let rest = self.of.0.get(self.place.end..).unwrap_or_default();
        let is_directory = offer.text.ends_with('/');
        let Some(mut text) = mention_of(&offer.text) else { return };
        // Behind a directory the name goes on, within the quotes.
        let back = usize::from(is_directory && text.ends_with('"'));
        if !is_directory && !rest.starts_with(char::is_whitespace) {
            text.push(' ');
        }
        composer.replace(self.place.clone(), &text, back);
    }

    /// Returns the rows of the offers for a text: none when they are for another one.
    pub fn rows(&self, text: &str, most: usize, columns: usize) -> Vec<Line> {
        if self.of.0 != text || !self.is_open() {
            return Vec::new();
        }
        let page = most.min(ROWS);
        let at = self.at.unwrap_or(0);
        let top = (at + 1).saturating_sub(page).min(self.offers.len().saturating_sub(page));
        let mut rows: Vec<Line> = self
            .offers
            .iter()
            .enumerate()
            .skip(top)
            .take(page)
            .map(|(number, offer)| {
                let is_marked = self.at == Some(number);
                let mut line = Line::styled(if is_marked { "▸ " } else { "  " }, Style::PLAIN);
                let name = Style { bold: is_marked, ..Style::role(Role::Command) };
                line.push(&offer.text, name);
                if !offer.about.is_empty() {
                    let space = 13_usize.saturating_sub(width(&offer.text));
                    line.push(&format!("{}{}", " ".repeat(space.max(1)), offer.about), Style::DIM);
                }
                cut(&line, columns)
            })
            .collect();
        if self.files.is_cut && self.mentions && rows.len() < most {
            let said = format!("  of the first {} files", self.files.paths.len());
            rows.push(cut(&Line::styled(said, Style::DIM), columns));
        }
        rows
    }
}

/// Returns where the `@` stands that the cursor is behind, in one word or in open quotes with it.
fn mention(text: &str, cursor: usize) -> Option<usize> {
    let before = text.get(..cursor)?;
    let opens = |at: usize| {
        let earlier = before.get(..at).unwrap_or_default().chars().next_back();
        begins_mention(earlier)
    };
    let line = before.rfind('\n').map_or(0, |at| at + 1);
    for (at, _) in before.get(line..)?.match_indices('@').map(|(at, it)| (at + line, it)) {
        let rest = before.get(at + 1..)?;
        if !opens(at) {
            continue;
        }
        let is_open = match rest.strip_prefix('"') {
            Some(quoted) => !quoted.contains('"'),
            None => !rest.contains(char::is_whitespace),
        };
        if is_open {
            return Some(at);
        }
    }
    None
}

fn rank(path: &str, wanted: &str) -> Option<usize> {
    let body = path.trim_end_matches('/');
    let name = body.rsplit('/').next().unwrap_or(body);
    if path.starts_with(wanted) {
        Some(0)
    } else if name.starts_with(wanted) {
        Some(1)
    } else if name.contains(wanted) {
        Some(2)
    } else if path.contains(wanted) {
        Some(3)
    } else {
        let mut letters = path.chars();
        wanted.chars().all(|c| letters.any(|other| other == c)).then_some(4)
    }
}

#[cfg(test)]
mod tests;
