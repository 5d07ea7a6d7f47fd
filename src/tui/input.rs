//! From the bytes of a terminal to keys: an incremental parser without clock and without IO.
//!
//! It keeps its state between reads, so bytes may come one at a time: a report that is split is
//! never typed into the prompt. Two things in a terminal's protocol have no end of their own, a lone
//! Escape and a paste whose end marker got lost; the edge asks [`Parser::pending`] how long to wait
//! and then says [`Parser::timeout`]. Sequences: ECMA-48, xterm's Control Sequences (`CSI ~`, SS3,
//! mouse reports 1000, 1006 and 1015, bracketed paste 2004, focus 1004), the kitty keyboard protocol
//! (`CSI u`).

use std::time::Duration;

use super::key::{Code, Key, Typed};

/// How long a lone Escape waits for what may belong to it. Over slow lines sequences come in parts.
pub const ESCAPE_WAIT: Duration = Duration::from_millis(50);

/// How long after an Escape that was taken for a key, and within what can be a key with Alt as well,
/// the rest of a sequence is looked for: a line may be slower than a hand.
pub const LATE_WAIT: Duration = Duration::from_millis(300);

/// How long the rest of what nobody types is waited for: a character of several bytes, a report.
pub const SEQUENCE_WAIT: Duration = Duration::from_secs(1);

/// How long an open paste may say nothing before it counts as ended.
pub const PASTE_WAIT: Duration = Duration::from_millis(500);

/// The longest sequence that is kept; what is longer is no sequence that a terminal sends.
const LONGEST: usize = 256;

/// The most bytes of one paste that are kept; the rest is dropped.
pub const PASTE_LIMIT: usize = 16 * 1024 * 1024;

const PASTE_END: &[u8] = b"\x1b[201~";

#[derive(Clone, Debug, PartialEq, Eq)]
enum State {
    Ground,
    /// A character of more than one byte.
    Utf8 {
        bytes: [u8; 4],
        have: usize,
        need: usize,
        alt: bool,
    },
    Escape,
    /// An Escape was taken for a key, and may have begun a sequence after all.
    Late,
    /// `late`: the Escape before it was taken for a key, so that it may be typed as well.
    Csi {
        text: Vec<u8>,
        late: bool,
    },
    Ss3,
    /// An answer of the terminal's (OSC, DCS, APC, PM, SOS): dropped up to its end.
    Text {
        first: u8,
        escape: bool,
        length: usize,
    },
    /// The three bytes of an old mouse report.
    Mouse(u8),
    /// `matched` bytes of the end marker are there, and not yet in the text.
    Paste {
        text: Vec<u8>,
        matched: usize,
    },
}

/// The parser.
#[derive(Clone, Debug)]
pub struct Parser {
    state: State,
}

impl Default for Parser {
    fn default() -> Self {
        Self { state: State::Ground }
    }
}

impl Parser {
    /// Takes what was read and returns what it means so far.
    pub fn feed(&mut self, bytes: &[u8]) -> Vec<Typed> {
        let mut out = Vec::new();
        let mut rest = bytes;
        while let Some((byte, after)) = rest.split_first() {
            if let State::Paste { text, matched: 0 } = &mut self.state
                && *byte != 0x1b
            {
                // All up to the next Escape at once: a paste can be a megabyte.
                let plain = rest.iter().position(|b| *b == 0x1b).unwrap_or(rest.len());
                let (taken, left) = rest.split_at(plain);
                keep(text, taken);
                rest = left;
                continue;
            }
            rest = after;
            self.take(*byte, &mut out);
        }
        out
    }

    /// Says how long to wait for more before [`Parser::timeout`]; `None` = for ever.
    pub fn pending(&self) -> Option<Duration> {
        match &self.state {
            State::Ground => None,
            State::Paste { .. } => Some(PASTE_WAIT),
            State::Escape => Some(ESCAPE_WAIT),
            State::Late | State::Ss3 | State::Text { length: 0, .. } => Some(LATE_WAIT),
            State::Csi { text, late } if *late || text.is_empty() => Some(LATE_WAIT),
            State::Csi { .. } | State::Utf8 { .. } | State::Text { .. } | State::Mouse(_) => {
                Some(SEQUENCE_WAIT)
            }
        }
    }

    /// Takes what is there as all that comes.
    pub fn timeout(&mut self) -> Vec<Typed> {
        match std::mem::replace(&mut self.state, State::Ground) {
            State::Escape => {
                self.state = State::Late;
                vec![Typed::Key(Key::plain(Code::Esc))]
            }
            State::Ss3 => vec![Typed::Key(Key::plain(Code::Char('O')).with_alt())],
            State::Csi { text, late: true } => literal(&text),
            State::Csi { text, .. } if text.is_empty() => {
                vec![Typed::Key(Key::plain(Code::Char('[')).with_alt())]
            }
            State::Text { first, length: 0, .. } => {
                vec![Typed::Key(Key::plain(Code::Char(char::from(first))).with_alt())]
            }
            // A part of the end marker is no text of anybody's.
            State::Paste { text, .. } => vec![Typed::Paste(pasted(&text))],
            State::Utf8 { .. } => vec![Typed::Strange],
            // A report that was cut off types nothing.
            State::Ground
            | State::Late
            | State::Csi { .. }
            | State::Text { .. }
            | State::Mouse(_) => Vec::new(),
        }
    }

    fn take(&mut self, byte: u8, out: &mut Vec<Typed>) {
        match std::mem::replace(&mut self.state, State::Ground) {
            State::Late if byte == b'[' => self.state = State::Csi { text: Vec::new(), late: true },
            State::Ground | State::Late => self.ground(byte, false, out),
            State::Utf8 { mut bytes, have, need, alt } => {
                if byte & 0xc0 != 0x80 {
                    // Not what was announced: it is left out, and the byte is looked at anew.
                    out.push(Typed::Strange);
                    self.ground(byte, false, out);
                    return;
                }
                if let Some(slot) = bytes.get_mut(have) {
                    *slot = byte;
                }
                let have = have + 1;
                if have < need {
                    self.state = State::Utf8 { bytes, have, need, alt };
                } else if let Some(c) = bytes
                    .get(..need)
                    .and_then(|b| std::str::from_utf8(b).ok())
                    .and_then(|s| s.chars().next())
                {
                    out.push(Typed::Key(Key { alt, ..Key::plain(Code::Char(c)) }));
                } else {
                    out.push(Typed::Strange);
                }
            }
            State::Escape => match byte {
                b'[' => self.state = State::Csi { text: Vec::new(), late: false },
                b'O' => self.state = State::Ss3,
                b']' | b'P' | b'_' | b'^' | b'X' => {
                    self.state = State::Text { first: byte, escape: false, length: 0 };
                }
                0x1b => {
                    out.push(Typed::Key(Key::plain(Code::Esc)));
                    self.state = State::Escape;
                }
                _ => self.ground(byte, true, out),
            },
            State::Ss3 => out.extend(final_key(byte, Modifiers::default()).map(Typed::Key)),
            State::Csi { mut text, late } => match byte {
                0x20..=0x3f if text.len() < LONGEST => {
                    text.push(byte);
                    self.state = State::Csi { text, late };
                }
                0x40..=0x7e if late && !is_known(&text, byte) => {
                    out.extend(literal(&text));
                    self.ground(byte, false, out);
                }
                b'M' if text.is_empty() => self.state = State::Mouse(3),
                0x40..=0x7e => self.csi(&text, byte, out),
                // Aborted (CAN, SUB).
                0x18 | 0x1a if !late => {}
                // No sequence at all: a key must not get lost with its beginning.
                _ => {
                    if late {
                        out.extend(literal(&text));
                    }
                    self.ground(byte, false, out);
                }
            },
            State::Text { first, escape, length } => match byte {
                0x07 | 0x18 | 0x1a => {}
                b'\\' if escape => {}
                _ if length >= 1 << 16 => {}
                _ => self.state = State::Text { first, escape: byte == 0x1b, length: length + 1 },
            },
            State::Mouse(left) => {
                if left > 1 {
                    self.state = State::Mouse(left - 1);
                }
            }
            State::Paste { mut text, matched } => {
                if PASTE_END.get(matched) == Some(&byte) {
                    if matched + 1 == PASTE_END.len() {
                        out.push(Typed::Paste(pasted(&text)));
                    } else {
                        self.state = State::Paste { text, matched: matched + 1 };
                    }
                    return;
                }
                keep(&mut text, PASTE_END.get(..matched).unwrap_or_default());
                let matched = usize::from(byte == 0x1b);
                if matched == 0 {
                    keep(&mut text, &[byte]);
                }
                self.state = State::Paste { text, matched };
            }
        }
    }

    fn ground(&mut self, byte: u8, alt: bool, out: &mut Vec<Typed>) {
        let plain = |code| Key { alt, ..Key::plain(code) };
        let key = match byte {
            0x1b => {
                self.state = State::Escape;
                return;
            }
            b'\r' => plain(Code::Enter),
            b'\t' => plain(Code::Tab),
            // Ctrl-H: what some terminals send for Backspace, and many over ssh.
            0x7f | 0x08 => plain(Code::Backspace),
            0x00 => Key { alt, ..Key::ctrl(' ') },
            0x01..=0x1a => Key { alt, ..Key::ctrl(char::from(byte - 1 + b'a')) },
            0x1c..=0x1f => Key { alt, ..Key::ctrl(char::from(byte - 0x1c + b'4')) },
            0x20..=0x7e => plain(Code::Char(char::from(byte))),
            0xc2..=0xf4 => {
                let need = match byte {
                    ..=0xdf => 2,
                    0xe0..=0xef => 3,
                    _ => 4,
                };
                self.state = State::Utf8 { bytes: [byte, 0, 0, 0], have: 1, need, alt };
                return;
            }
            _ => {
                out.push(Typed::Strange);
                return;
            }
        };
        out.push(Typed::Key(key));
    }

    fn csi(&mut self, text: &[u8], end: u8, out: &mut Vec<Typed>) {
        // A mouse report (SGR, or urxvt's), or an answer to a question (`?`, `>`).
        if matches!(text.first(), Some(b'<' | b'?' | b'>' | b'=')) {
            return;
        }
        let numbers: Vec<Option<u32>> = std::str::from_utf8(text)
            .unwrap_or_default()
            .split(';')
            // After a colon come alternatives of the same key.
            .map(|part| part.split(':').next().unwrap_or_default().parse().ok())
            .collect();
        let first = numbers.first().copied().flatten();
        let modifiers = Modifiers::of(numbers.get(1).copied().flatten());
        match (end, first) {
            (b'~', Some(200)) => self.state = State::Paste { text: Vec::new(), matched: 0 },
            (b'~', Some(number)) => {
                let code = match number {
                    1 | 7 => Code::Home,
                    3 => Code::Delete,
                    4 | 8 => Code::End,
                    5 => Code::PageUp,
                    6 => Code::PageDown,
                    // xterm's modifyOtherKeys: `CSI 27 ; modifiers ; code ~`.
                    27 => {
                        let c = numbers.get(2).copied().flatten();
                        out.extend(c.and_then(|c| modifiers.of_code(c)).map(Typed::Key));
                        return;
                    }
                    _ => return,
                };
                out.push(Typed::Key(modifiers.on(code)));
            }
            (b'u', Some(code)) => out.extend(modifiers.of_code(code).map(Typed::Key)),
            (b'Z', _) => out.push(Typed::Key(Key { shift: true, ..Key::plain(Code::Tab) })),
            (b'I', None) => out.push(Typed::Focus(true)),
            (b'O', None) => out.push(Typed::Focus(false)),
            _ => out.extend(final_key(end, modifiers).map(Typed::Key)),
        }
    }
}

/// Says whether this is a sequence that a terminal sends by itself or for a key, so that it is one
/// even when its Escape came long before.
fn is_known(text: &[u8], end: u8) -> bool {
    let numbers = text.iter().all(|byte| matches!(byte, b'0'..=b'9' | b';' | b':'));
    match (text, end) {
        ([], b'A'..=b'D' | b'F' | b'H' | b'I' | b'O' | b'Z')
        | ([b'<', ..], b'M' | b'm')
        | ([b'?', ..], b'c' | b'n' | b'u' | b'y') => true,
        ([_, ..], b'A'..=b'D' | b'F' | b'H' | b'M' | b'u' | b'~') => numbers,
        _ => false,
    }
}

/// Returns the keys of what was typed after an Escape and is no sequence.
fn literal(text: &[u8]) -> Vec<Typed> {
    let typed = |byte: &u8| Typed::Key(Key::plain(Code::Char(char::from(*byte))));
    std::iter::once(&b'[').chain(text).map(typed).collect()
}

/// Adds to a paste what there is room for.
fn keep(text: &mut Vec<u8>, bytes: &[u8]) {
    let room = PASTE_LIMIT.saturating_sub(text.len()).min(bytes.len());
    text.extend_from_slice(bytes.get(..room).unwrap_or_default());
}

/// Returns pasted bytes as text with LF for every kind of line end.
fn pasted(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    text.replace("\r\n", "\n").replace('\r', "\n")
}

#[derive(Clone, Copy, Debug, Default)]
struct Modifiers {
    shift: bool,
    alt: bool,
    ctrl: bool,
}

impl Modifiers {
    /// Reads xterm's number: one more than the sum of 1 (shift), 2 (alt), 4 (control).
    fn of(number: Option<u32>) -> Self {
        let bits = number.unwrap_or(1).saturating_sub(1);
        Self { shift: bits & 1 != 0, alt: bits & 2 != 0, ctrl: bits & 4 != 0 }
    }

    fn on(self, code: Code) -> Key {
        Key { code, ctrl: self.ctrl, alt: self.alt, shift: self.shift }
    }

    /// Returns the key of a Unicode code point with these modifiers.
    fn of_code(self, code: u32) -> Option<Key> {
        let code = match code {
            13 | 57414 => Code::Enter,
            9 => Code::Tab,
            27 => Code::Esc,
            8 | 127 => Code::Backspace,
            // Private use: keys of the kitty protocol that type nothing.
            57344..=63743 => return None,
            other => Code::Char(char::from_u32(other)?),
        };
        Some(self.on(code))
    }
}

fn final_key(byte: u8, modifiers: Modifiers) -> Option<Key> {
    let code = match byte {
        b'A' => Code::Up,
        b'B' => Code::Down,
        b'C' => Code::Right,
        b'D' => Code::Left,
        b'H' => Code::Home,
        b'F' => Code::End,
        b'M' => Code::Enter,
        _ => return None,
    };
    Some(modifiers.on(code))
}

#[cfg(test)]
mod tests;
