//! The modes of a terminal, read from the bytes that were written to it: what an emulator for tests
//! does not keep (keyboard flags, synchronised output, mouse and focus reports, wrapping).

use std::collections::BTreeMap;

/// Which modes are on after some bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Modes {
    /// DEC private modes that were ever set or reset, and how they are now.
    pub(crate) private: BTreeMap<u16, bool>,
    /// Sets of keyboard flags that are pushed (kitty keyboard protocol).
    pub(crate) keyboard: i32,
}

impl Modes {
    pub(crate) fn of(bytes: &[u8]) -> Self {
        let mut modes = Self::default();
        for (at, _) in bytes.windows(2).enumerate().filter(|(_, two)| two == b"\x1b[") {
            let rest = &bytes[at + 2..];
            let Some(end) = rest.iter().position(|byte| (0x40..=0x7e).contains(byte)) else {
                break;
            };
            let parameters = std::str::from_utf8(&rest[..end]).unwrap_or_default();
            match (parameters.chars().next(), rest[end]) {
                (Some('?'), how @ (b'h' | b'l')) => {
                    for number in parameters[1..].split(';') {
                        modes.private.insert(number.parse().unwrap(), how == b'h');
                    }
                }
                (Some('>'), b'u') => modes.keyboard += 1,
                (Some('<'), b'u') => modes.keyboard -= 1,
                _ => {}
            }
        }
        modes
    }

    pub(crate) fn is_on(&self, mode: u16) -> bool {
        self.private.get(&mode).copied().unwrap_or(matches!(mode, 7 | 25))
    }

    /// Says what differs from a terminal that nobody touched.
    pub(crate) fn left(&self) -> Vec<String> {
        let mut left: Vec<String> = self
            .private
            .iter()
            .filter(|(mode, on)| **on != matches!(**mode, 7 | 25))
            .map(|(mode, on)| format!("mode {mode} is {}", if *on { "on" } else { "off" }))
            .collect();
        if self.keyboard != 0 {
            left.push(format!("{} sets of keyboard flags", self.keyboard));
        }
        left
    }

    /// Says which modes were touched that the interface has no use for: they would take the mouse,
    /// the scrollback or the focus from the person.
    pub(crate) fn foreign(&self) -> Vec<u16> {
        self.private.keys().copied().filter(|mode| ![7, 25, 2004, 2026].contains(mode)).collect()
    }
}

#[test]
fn modes_are_told() {
    let modes = Modes::of(b"a\x1b[?2004h\x1b[>1u\x1b[?25lx\x1b[31m\x1b[?2026h");
    assert!(modes.is_on(2004) && !modes.is_on(25) && modes.is_on(7) && modes.is_on(2026));
    assert_eq!(modes.left().len(), 4, "{:?}", modes.left());
    let modes = Modes::of(b"\x1b[?2004h\x1b[>1u\x1b[?25l\x1b[?25h\x1b[<u\x1b[?2004l");
    assert!(modes.left().is_empty() && modes.foreign().is_empty());
    assert_eq!(Modes::of(b"\x1b[?1049h").foreign(), [1049]);
}
