//! What the inside left for the host to run, told when everything inside has ended (law 13).
//!
//! Detection, not prevention, and of changes, not of intent: what the host itself changed meanwhile is
//! named as well. `rules` has the list and says where its line is drawn.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{Dir, FileType, Mode, OFlags, Stat};
use rustix::time::{ClockId, DynamicClockId, clock_gettime, clock_gettime_dynamic};

use super::facts::Facts;
use super::git::Repository;
use super::plan::{self, Plan};
use super::sorted;

use handle::{Moment, changed};
use kept::Kept;
use rules::Rules;
use walk::Walk;

mod handle;
mod kept;
mod repository;
mod rules;
mod walk;

/// How long the look through what was writable may take.
const LIMIT: Duration = Duration::from_millis(300);
/// How many directories of rules are remembered from the start; more are judged by their status.
const MAX_DIRECTORIES: usize = 2048;
/// How many characters of a name are told.
const MAX_NAME: usize = 240;
/// How many files are named.
const MAX_NAMED: usize = 40;

/// What is remembered from before the jail.
pub(super) struct Report {
    roots: Vec<Root>,
    rules: Rules,
    kept: Kept,
    /// What the plan keeps read-only or hides.
    closed: Vec<PathBuf>,
    /// Absolute paths that the repository's own configuration leads to.
    led: Vec<PathBuf>,
    clocks: Clocks,
    uid: u32,
    workspace: PathBuf,
}

/// Something writable, on a handle of the host's own view.
struct Root {
    /// Its physical path.
    path: PathBuf,
    handle: OwnedFd,
    directory: bool,
    /// The directories of rules in it, from its own entries on, as they were: device and inode.
    directories: Vec<(PathBuf, u64, u64)>,
}

/// A file that makes the host run code.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Finding {
    /// Its absolute path.
    path: PathBuf,
    /// What runs it.
    words: String,
}

/// The wall clock, by which files are stamped, beside one that nobody sets.
struct Clocks {
    wall: Moment,
    steady: Option<Moment>,
}

impl Clocks {
    fn now() -> Self {
        let wall = clock_gettime(ClockId::RealtimeCoarse);
        let steady = clock_gettime_dynamic(DynamicClockId::Boottime).ok();
        Self {
            wall: (wall.tv_sec, wall.tv_nsec),
            steady: steady.map(|time| (time.tv_sec, time.tv_nsec)),
        }
    }

    /// When the inside began, by what the wall clock says now: one that was set back meanwhile must not
    /// make what is new look old.
    fn start(&self, now: &Self) -> Moment {
        let (Some(then), Some(steady)) = (self.steady, now.steady) else { return self.wall };
        // A second for the coarseness of the clocks.
        let (seconds, nanoseconds) = minus(minus(now.wall, minus(steady, then)), (1, 0));
        let back = (seconds, nanoseconds);
        let set_back = minus(self.wall, back) > (2, 0);
        if set_back { back } else { self.wall }
    }
}

fn minus(left: Moment, right: Moment) -> Moment {
    let (seconds, nanoseconds) = (left.0 - right.0, left.1 - right.1);
    if nanoseconds < 0 {
        (seconds - 1, nanoseconds + 1_000_000_000)
    } else {
        (seconds, nanoseconds)
    }
}

impl Root {
    fn new(path: &Path, rules: &Rules) -> Option<Self> {
        // Its links were resolved by the plan; one that came since leads elsewhere.
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let handle = rustix::fs::open(path.as_os_str().as_bytes(), flags, Mode::empty()).ok()?;
        let stat = rustix::fs::fstat(&handle).ok()?;
        let directory = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
        let directories =
            if directory { directories_of_rules(&handle, path, rules) } else { Vec::new() };
        Some(Self { path: path.to_path_buf(), handle, directory, directories })
    }

    /// Whether the directory `path` below it was this one at the start already.
    fn had(&self, path: &Path, stat: &Stat) -> bool {
        let this = (path, stat.st_dev, stat.st_ino);
        self.directories
            .iter()
            .any(|(path, device, inode)| (path.as_path(), *device, *inode) == this)
    }
}

/// The directories that rules name, in each other, from the entries of a root on: a rule's directory
/// that is another at the end has been moved there, with old files in it.
fn directories_of_rules(root: &OwnedFd, path: &Path, rules: &Rules) -> Vec<(PathBuf, u64, u64)> {
    let mut found = Vec::new();
    let mut queue = VecDeque::from([(PathBuf::new(), rules.at(path))]);
    while let Some((below, states)) = queue.pop_front() {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let Ok(directory) = handle::open(root, &below, flags) else { continue };
        let Ok(entries) = Dir::read_from(&directory) else { continue };
        for entry in entries.flatten() {
            let name = entry.file_name().to_bytes();
            let kind = entry.file_type();
            if name == b"."
                || name == b".."
                || !matches!(kind, FileType::Directory | FileType::Unknown)
            {
                continue;
            }
            let name = super::git::read::path(name).as_os_str();
            if walk::PACKAGES.iter().any(|it| name == *it) || rules.file(&states, name).is_none() {
                continue;
            }
            if let Ok(stat) = handle::stat(&directory, name)
                && FileType::from_raw_mode(stat.st_mode) == FileType::Directory
                && found.len() < MAX_DIRECTORIES
            {
                let below = below.join(name);
                found.push((below.clone(), stat.st_dev, stat.st_ino));
                let states = rules.enter(&states, name, &path.join(&below));
                queue.push_back((below, states));
            }
        }
    }
    found
}

impl Report {
    /// Remembers what is there. Call it before the launcher enters its own namespace: the handles are
    /// of the host's view, in which no mask and no protection stands in the way.
    pub(super) fn begin(facts: &Facts, plan: &Plan) -> Self {
        let rules = Rules::new(&facts.physical_homes);
        let mut paths: Vec<&Path> = plan
            .mounts
            .iter()
            .filter(|mount| mount.kind == plan::Kind::Writable)
            .map(|mount| mount.destination.as_path())
            .collect();
        sorted::unique(&mut paths);
        let mut roots: Vec<Root> = Vec::new();
        for path in paths {
            if !roots.iter().any(|root| path.starts_with(&root.path)) {
                roots.extend(Root::new(path, &rules));
            }
        }
        let (kept, led) = facts.git.as_ref().map_or_else(Default::default, |git: &Repository| {
            let kept = Kept::begin(git, &roots);
            let home = facts.physical_homes.first().map(PathBuf::as_path);
            let led = kept.leads_to(git, home);
            (kept, led)
        });
        Self {
            roots,
            rules,
            kept,
            closed: plan
                .mounts
                .iter()
                .filter(|mount| mount.kind == plan::Kind::Protect || mount.kind.is_mask())
                .map(|mount| mount.destination.clone())
                .collect(),
            led,
            clocks: Clocks::now(),
            uid: facts.uid,
            workspace: facts.workspace.clone(),
        }
    }

    /// Tells on standard error what was found; nothing when nothing was. Everything inside must have
    /// ended.
    pub(super) fn tell(&self) {
        let text = self.text();
        if !text.is_empty() {
            // Nobody is left to hear when this fails.
            drop(io::stderr().write_all(text.as_bytes()));
        }
    }

    fn text(&self) -> String {
        let begun = Instant::now();
        let kept: Vec<PathBuf> = self.kept.paths().map(Path::to_path_buf).collect();
        let mut walk = Walk {
            rules: &self.rules,
            roots: &self.roots,
            start: self.clocks.start(&Clocks::now()),
            uid: self.uid,
            kept: &kept,
            closed: &self.closed,
            deadline: begun + LIMIT,
            findings: self.kept.compare(&self.roots),
            packages: Vec::new(),
        };
        self.led(&mut walk);
        let unfinished = match walk.run() {
            Some(path) => Some(("what this machine would run", path)),
            // For root a setuid file is root for everybody. Others lose at most their own account by one,
            // and the jail refuses the bits to both.
            None if self.uid == 0 => walk.rights().map(|path| ("setuid files", path)),
            None => None,
        };
        let Walk { mut findings, packages, .. } = walk;
        sorted::by_key(&mut findings, |finding| {
            (finding.path.components().count(), finding.path.clone())
        });
        findings.dedup_by(|a, b| a.path == b.path);
        self.words(&findings, &packages, unfinished)
    }

    /// What the repository's configuration led to at the start.
    fn led(&self, walk: &mut Walk<'_>) {
        let new = |stat: &Stat| changed(stat) >= walk.start;
        let words = "git runs it: the repository's configuration names it";
        let mut found = Vec::new();
        for path in
            self.led.iter().filter(|path| !walk.kept.iter().any(|kept| path.starts_with(kept)))
        {
            let Some((_, root)) = kept::holder(&self.roots, path) else { continue };
            let Ok(below) = path.strip_prefix(&root.path) else { continue };
            let Ok(at) = handle::open_through(&root.handle, below, OFlags::PATH) else { continue };
            let Ok(stat) = rustix::fs::fstat(&at) else { continue };
            if FileType::from_raw_mode(stat.st_mode) != FileType::Directory {
                if new(&stat) {
                    found.push(Finding { path: path.clone(), words: words.into() });
                }
                continue;
            }
            let flags = OFlags::RDONLY | OFlags::DIRECTORY;
            let Ok(open) = handle::open_through(&root.handle, below, flags) else { continue };
            let Ok(entries) = Dir::read_from(open) else { continue };
            for entry in entries.flatten() {
                let name = super::git::read::path(entry.file_name().to_bytes());
                if let Ok(stat) = handle::stat(&at, name.as_os_str())
                    && FileType::from_raw_mode(stat.st_mode) != FileType::Directory
                    && new(&stat)
                {
                    found.push(Finding { path: path.join(name), words: words.into() });
                }
            }
        }
        walk.findings.extend(found);
    }

    fn words(
        &self,
        findings: &[Finding],
        packages: &[(PathBuf, usize)],
        unfinished: Option<(&str, PathBuf)>,
    ) -> String {
        let mut text = String::new();
        let count = findings.len() + packages.len();
        // Writing to a string cannot fail.
        if count > 0 {
            let _ = writeln!(
                text,
                "kli-sandbox: note: created or changed in this run, by the inside or beside it, and \
                 run by this machine without being asked for; look at {} first:",
                if count == 1 { "it" } else { "each" }
            );
        }
        for finding in findings.iter().take(MAX_NAMED) {
            let _ = writeln!(text, "  `{}`: {}", self.short(&finding.path), finding.words);
        }
        if let more @ 1.. = findings.len().saturating_sub(MAX_NAMED) {
            let _ = writeln!(text, "  and {more} more");
        }
        for (path, count) in packages {
            let _ = writeln!(
                text,
                "  `{}`: {count} such files in installed packages",
                self.short(path)
            );
        }
        if let Some((what, path)) = unfinished {
            let _ = writeln!(
                text,
                "kli-sandbox: note: the look for {what} was not finished in {} ms: `{}` and others \
                 were not looked into",
                LIMIT.as_millis(),
                self.short(&path)
            );
        }
        text
    }

    /// A path as it is told: from the workspace on, or absolute.
    fn short(&self, path: &Path) -> String {
        match path.strip_prefix(&self.workspace) {
            Ok(rest) if !rest.as_os_str().is_empty() => named(rest),
            _ => named(path),
        }
    }
}

/// A path with everything escaped that could drive a terminal, turn the writing around or hide in it.
fn named(path: &Path) -> String {
    let mut text = String::new();
    for chunk in path.as_os_str().as_bytes().utf8_chunks() {
        for character in chunk.valid().chars() {
            let odd = character.is_control()
                || matches!(
                    character,
                    '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}'
                        | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{fe00}'..='\u{fe0f}'
                        | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e0fff}'
                );
            if odd {
                text.extend(character.escape_default());
            } else if matches!(character, '`' | '\\') {
                text.extend(['\\', character]);
            } else {
                text.push(character);
            }
        }
        for byte in chunk.invalid() {
            let _ = write!(text, "\\x{byte:02x}");
        }
    }
    // The end tells more than the middle.
    let count = text.chars().count();
    if count > MAX_NAME {
        let (head, tail) = (MAX_NAME / 2, count - MAX_NAME / 2);
        text = text
            .chars()
            .enumerate()
            .filter(|(index, _)| *index < head || *index >= tail)
            .flat_map(|(index, character)| {
                (index == tail).then_some('…').into_iter().chain([character])
            })
            .collect();
    }
    text
}

#[cfg(test)]
mod tests;
