//! What is kept of a command's output: the start and the end, and how much lies between.

use std::collections::VecDeque;

/// Output as far as it was kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Kept {
    /// The start; all of it when nothing is missing.
    pub head: Vec<u8>,
    /// How many bytes are missing between the start and the end.
    pub missing: u64,
    /// The end; empty when nothing is missing.
    pub tail: Vec<u8>,
}

/// Keeps the start and the end of a stream in bounded memory.
#[derive(Debug)]
pub struct Keeper {
    head: Vec<u8>,
    head_room: usize,
    tail: VecDeque<u8>,
    tail_room: usize,
    total: u64,
}

impl Keeper {
    /// Returns a keeper for so many bytes from the start and from the end.
    pub fn new((head_room, tail_room): (usize, usize)) -> Self {
        Self { head: Vec::new(), head_room, tail: VecDeque::new(), tail_room, total: 0 }
    }

    /// Takes the next bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        self.total += bytes.len() as u64;
        let room = self.head_room.saturating_sub(self.head.len()).min(bytes.len());
        let (first, rest) = bytes.split_at_checked(room).unwrap_or((bytes, &[]));
        self.head.extend_from_slice(first);
        // Of a long piece only the end can still be part of the tail.
        let rest = rest.get(rest.len().saturating_sub(self.tail_room)..).unwrap_or_default();
        let excess = (self.tail.len() + rest.len()).saturating_sub(self.tail_room);
        self.tail.drain(..excess.min(self.tail.len()));
        self.tail.extend(rest);
    }

    /// Returns what was kept, with both cuts moved to character boundaries.
    pub fn finish(self) -> Kept {
        let Self { mut head, tail, total, .. } = self;
        let mut tail = Vec::from(tail);
        if total == (head.len() + tail.len()) as u64 {
            head.append(&mut tail);
            return Kept { head, missing: 0, tail };
        }
        head.truncate(head.len() - unfinished(&head));
        // Continuation bytes at the start belong to a character whose first byte is gone.
        let broken = tail.iter().take(3).take_while(|byte| **byte & 0xc0 == 0x80).count();
        tail.drain(..broken);
        let missing = total - (head.len() + tail.len()) as u64;
        Kept { head, missing, tail }
    }
}

/// Returns how many bytes at the end are the start of a UTF-8 character that is cut off.
pub fn unfinished(bytes: &[u8]) -> usize {
    for back in 1..=bytes.len().min(3) {
        let Some(byte) = bytes.get(bytes.len() - back) else { break };
        let needs = match byte {
            0xc2..=0xdf => 2,
            0xe0..=0xef => 3,
            0xf0..=0xf4 => 4,
            0x80..=0xbf => continue,
            _ => return 0,
        };
        return if needs > back { back } else { 0 };
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn keep(rooms: (usize, usize), pieces: &[&[u8]]) -> Kept {
        let mut keeper = Keeper::new(rooms);
        for piece in pieces {
            keeper.push(piece);
        }
        keeper.finish()
    }

    #[test]
    fn what_fits_is_kept_whole() {
        let kept = keep((4, 2), &[b"abc", b"def"]);
        assert_eq!(kept, Kept { head: b"abcdef".to_vec(), missing: 0, tail: vec![] });
    }

    #[test]
    fn what_does_not_fit_is_counted() {
        let kept = keep((4, 2), &[b"abcdefg"]);
        assert_eq!(kept, Kept { head: b"abcd".to_vec(), missing: 1, tail: b"fg".to_vec() });
        // `é` is two bytes; neither side may hold half of one.
        let kept = keep((4, 2), &["abcéxxéz".as_bytes()]);
        assert_eq!((kept.head.as_slice(), kept.tail.as_slice()), (&b"abc"[..], &b"z"[..]));
        assert_eq!(kept.missing, 6);
    }

    proptest! {
        #[test]
        fn any_pieces_keep_the_ends_and_count_the_rest(
            text in "[a-zé✓😀]{0,60}", cuts in proptest::collection::vec(1_usize..9, 0..40),
            head in 0_usize..20, tail in 0_usize..20,
        ) {
            let mut keeper = Keeper::new((head, tail));
            let mut rest = text.as_bytes();
            let mut cuts = cuts.into_iter();
            while !rest.is_empty() {
                let (now, later) = rest.split_at(cuts.next().unwrap_or(7).min(rest.len()));
                keeper.push(now);
                rest = later;
            }
            let kept = keeper.finish();
            let shown = kept.head.len() + kept.tail.len();
            prop_assert_eq!(shown as u64 + kept.missing, text.len() as u64);
            let start = std::str::from_utf8(&kept.head).unwrap();
            let end = std::str::from_utf8(&kept.tail).unwrap();
            prop_assert!(text.starts_with(start) && text.ends_with(end));
            if kept.missing > 0 {
                prop_assert!(start.len() + 3 >= head && end.len() + 3 >= tail);
                prop_assert!(text.len() > head + tail);
            }
        }
    }
}
