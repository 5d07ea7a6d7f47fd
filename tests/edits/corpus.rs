//! The generated files: what they hold, which edits are made, and what must come of them.

use std::{
    fs,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown, symlink},
    path::{Path, PathBuf},
};

use rustix::fs::{XattrFlags, getxattr, setxattr};
use serde_json::{Value, json};

/// `SplitMix64`: the same numbers everywhere.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() % bound as u64).unwrap()
    }

    fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }

    fn chance(&mut self, of: usize) -> bool {
        self.below(of) == 0
    }
}

/// A line: its content and its ending.
type Line = (Vec<u8>, Vec<u8>);

/// A generated file, one call of edits, and what must come of it.
pub(super) struct Case {
    pub(super) number: u64,
    pub(super) is_bom: bool,
    pub(super) lines: Vec<Line>,
    pub(super) edits: Vec<Value>,
    /// The lines afterwards.
    pub(super) after: Vec<Line>,
    pub(super) mode: u32,
    pub(super) link: Link,
    pub(super) has_attribute: bool,
    pub(super) has_other_owner: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Link {
    None,
    One,
    Chain,
    Directory,
}

const PIECES: &[&str] = &[
    "let x = 1;",
    "\t\tindented",
    "    four",
    "漢字かな",
    "👍🏽👩‍👩‍👧",
    "é e\u{301}",
    "trailing  ",
    "\"quoted\" \\n",
    "\u{2028}",
    "a\tb",
    "𝕊",
    "x",
    "|",
    "12:a3|row",
    "\u{feff}",
    "ß",
];

fn bytes_of(is_bom: bool, lines: &[Line]) -> Vec<u8> {
    let mut bytes = if is_bom { b"\xef\xbb\xbf".to_vec() } else { Vec::new() };
    for (content, ending) in lines {
        bytes.extend_from_slice(content);
        bytes.extend_from_slice(ending);
    }
    bytes
}

impl Case {
    pub(super) fn new(number: u64) -> Self {
        let mut random = Random(0x6b6c_6900 + number);
        let endings: &[&[u8]] = match number % 5 {
            0 => &[b"\n"],
            1 => &[b"\r\n"],
            2 => &[b"\r"],
            _ => &[b"\n", b"\r\n"],
        };
        let is_latin = random.chance(5);
        let count = if random.chance(20) { 1 } else { 3 + random.below(40) };
        let is_ended = !random.chance(3);
        let mut lines: Vec<Line> = Vec::new();
        for n in 0..count {
            // U+FEFF at the very beginning would be a byte order mark.
            let mut content = if n == 0 { b"#".to_vec() } else { Vec::new() };
            let pieces = random.below(4);
            for _ in 0..pieces {
                content.extend_from_slice(random.of(PIECES).as_bytes());
            }
            if random.chance(25) {
                content.extend("long ".repeat(2_000 + random.below(8_000)).into_bytes());
            }
            if is_latin && random.chance(2) {
                content.extend_from_slice(b"caf\xe9 \xa0\xff");
            }
            if endings.len() > 1 && random.chance(6) {
                content.extend_from_slice(b"a\rb");
            }
            if random.chance(3) {
                content.extend_from_slice(b"common");
            }
            content.extend_from_slice(format!("<{n}>").as_bytes());
            let is_last = n + 1 == count;
            let ending = if is_last && !is_ended { b"" } else { random.of(endings) };
            lines.push((content, ending.to_vec()));
        }
        let mut case = Self {
            number,
            is_bom: random.chance(4),
            after: lines.clone(),
            lines,
            edits: Vec::new(),
            mode: random.of(&[0o644, 0o600, 0o755, 0o640, 0o666, 0o444, 0o2755, 0o4755]),
            link: random.of(&[Link::None, Link::None, Link::One, Link::Chain, Link::Directory]),
            has_attribute: random.chance(3),
            has_other_owner: random.chance(4),
        };
        case.wish(&mut random);
        case
    }

    /// The ending that a new line beside or in the place of line `at` takes.
    fn ending(&self, at: usize) -> Vec<u8> {
        [Some(at), at.checked_sub(1)]
            .into_iter()
            .flatten()
            .map(|line| self.lines[line].1.clone())
            .find(|ending| !ending.is_empty())
            .unwrap_or_else(|| b"\n".to_vec())
    }

    /// Chooses the edits, from the last line to the first, so that indexes stay right.
    fn wish(&mut self, random: &mut Random) {
        if self.number % 7 == 6 && self.lines.iter().any(|line| is_common(&line.0)) {
            self.edits.push(json!({"old": "common", "new": "gemeinsam ✓", "all": true}));
            for (content, _) in &mut self.after {
                *content = replaced(content, b"common", "gemeinsam ✓".as_bytes());
            }
            return;
        }
        let wanted = 1 + random.below(4);
        let mut at = self.lines.len();
        while self.edits.len() < wanted {
            let step = 1 + random.below(1 + self.lines.len() / wanted);
            // A line between two edits, so that none touches another.
            let Some(line) = at.checked_sub(step.max(if at == self.lines.len() { 1 } else { 3 }))
            else {
                break;
            };
            at = line;
            self.wish_at(at, random);
        }
        if self.edits.is_empty() {
            self.wish_at(0, random);
        }
    }

    fn wish_at(&mut self, at: usize, random: &mut Random) {
        let (content, ending) = self.lines[at].clone();
        let mark = format!("<{at}>");
        let anchor = json!({"line": at + 1});
        let next = self.lines.get(at + 1).cloned();
        match (random.below(6), next) {
            (0, _) => {
                self.edits.push(json!({"old": mark, "new": "new\n\tlines 👍"}));
                let kept = content.strip_suffix(mark.as_bytes()).unwrap();
                self.after.splice(
                    at..=at,
                    [([kept, b"new"].concat(), self.ending(at)), ("\tlines 👍".into(), ending)],
                );
            }
            (1, Some((below, last))) if std::str::from_utf8(&below).is_ok() => {
                let below = String::from_utf8(below).unwrap();
                self.edits.push(json!({"old": format!("{mark}\n{below}"), "new": "[one]\n[two]"}));
                let kept = content.strip_suffix(mark.as_bytes()).unwrap();
                self.after.splice(
                    at..=at + 1,
                    [([kept, b"[one]"].concat(), ending), (b"[two]".to_vec(), last)],
                );
            }
            (2, _) => {
                self.edits.push(json!({"from": anchor, "text": "first 漢\nsecond"}));
                self.after.splice(
                    at..=at,
                    [("first 漢".into(), self.ending(at)), (b"second".to_vec(), ending)],
                );
            }
            (3, _) => {
                self.edits.push(json!({"after": anchor, "text": "inserted"}));
                let own = self.ending(at);
                if ending.is_empty() {
                    self.after[at].1 = own;
                    self.after.insert(at + 1, (b"inserted".to_vec(), vec![]));
                } else {
                    self.after.insert(at + 1, (b"inserted".to_vec(), own));
                }
            }
            (4, _) => {
                self.edits.push(json!({"before": anchor, "text": "\tbefore\n"}));
                self.after.insert(at, (b"\tbefore".to_vec(), self.ending(at)));
            }
            _ => {
                self.edits.push(json!({"from": anchor, "text": ""}));
                self.after.remove(at);
                // The end of the file stays as it was: without an ending.
                if let (true, Some(before)) = (ending.is_empty(), at.checked_sub(1)) {
                    self.after[before].1.clear();
                }
            }
        }
    }

    pub(super) fn before(&self) -> Vec<u8> {
        bytes_of(self.is_bom, &self.lines)
    }

    pub(super) fn wanted(&self) -> Vec<u8> {
        bytes_of(self.is_bom, &self.after)
    }

    /// Makes the file and its links; returns the name to edit it by, and where it is.
    pub(super) fn put(&self, directory: &Path) -> (String, PathBuf) {
        let place = directory.join(format!("case{}", self.number));
        fs::create_dir_all(place.join("real")).unwrap();
        let file = place.join("real/file");
        fs::write(&file, self.before()).unwrap();
        if self.has_other_owner && rustix::process::geteuid().is_root() {
            chown(&file, Some(54321), Some(54322)).unwrap();
        }
        fs::set_permissions(&file, fs::Permissions::from_mode(self.mode)).unwrap();
        if self.has_attribute {
            setxattr(&file, "user.kli.test", b"kept\0", XattrFlags::empty()).unwrap();
        }
        let name = match self.link {
            Link::None => "real/file",
            Link::One => {
                symlink("real/file", place.join("link")).unwrap();
                "link"
            }
            Link::Chain => {
                symlink("b", place.join("a")).unwrap();
                symlink(place.join("c"), place.join("b")).unwrap();
                symlink("real/../real/file", place.join("c")).unwrap();
                "a"
            }
            Link::Directory => {
                symlink("real", place.join("way")).unwrap();
                "way/file"
            }
        };
        (format!("case{}/{name}", self.number), file)
    }

    /// Returns the edits with the anchors that rows of `read` showed.
    pub(super) fn edits(&self, rows: &str) -> Value {
        let anchor = |line: u64| {
            let start = format!("{line}:");
            let row = rows.lines().find(|row| row.starts_with(&start));
            row.unwrap_or_else(|| panic!("no row {line} in {rows}")).split('|').next().unwrap()
        };
        let mut edits = self.edits.clone();
        for edit in &mut edits {
            for name in ["from", "after", "before"] {
                if let Some(line) = edit[name]["line"].as_u64() {
                    edit[name] = json!(anchor(line));
                }
            }
        }
        Value::Array(edits)
    }
}

fn is_common(content: &[u8]) -> bool {
    content.windows(6).any(|part| part == b"common")
}

fn replaced(content: &[u8], old: &[u8], new: &[u8]) -> Vec<u8> {
    let mut done = Vec::new();
    let mut rest = content;
    while !rest.is_empty() {
        if let Some(after) = rest.strip_prefix(old) {
            done.extend_from_slice(new);
            rest = after;
        } else {
            done.push(rest[0]);
            rest = &rest[1..];
        }
    }
    done
}

/// All that must be the same before and after, content and time aside.
#[derive(Debug, PartialEq)]
pub(super) struct Kept {
    pub(super) mode: u32,
    pub(super) owner: (u32, u32),
    pub(super) attribute: Option<Vec<u8>>,
    pub(super) links: Vec<(PathBuf, PathBuf)>,
    pub(super) names: Vec<PathBuf>,
}

impl Kept {
    pub(super) fn of(file: &Path) -> Self {
        let metadata = fs::symlink_metadata(file).unwrap();
        let mut value = [0; 100];
        let attribute = getxattr(file, "user.kli.test", &mut value).ok();
        let place = file.parent().unwrap().parent().unwrap();
        let mut names = Vec::new();
        for directory in [place, file.parent().unwrap()] {
            names.extend(fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()));
        }
        names.sort();
        let links = names
            .iter()
            .filter_map(|name| Some((name.clone(), fs::read_link(name).ok()?)))
            .collect();
        Self {
            mode: metadata.permissions().mode() & 0o7777,
            owner: (metadata.uid(), metadata.gid()),
            attribute: attribute.map(|length| value[..length].to_vec()),
            links,
            names,
        }
    }
}
