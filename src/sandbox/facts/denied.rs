//! What shall be hidden, and every place that a denied path goes through or ends at: its symbolic
//! links, its physical path, and the other mount points of the same files (law 2).
//!
//! Looks only; what holds each place is for the plan to choose.

#![expect(
    clippy::disallowed_methods,
    reason = "this file is where the sandbox looks at what is denied"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::fs::Metadata;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::super::glob::{Part, Pattern};
use super::super::mountinfo::Table;
use super::super::sorted;
use super::parts;

/// A name that shall be hidden and what is there now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Denied {
    /// The key or option that it stands in.
    pub key: &'static str,
    /// As it was written.
    pub wish: String,
    /// With its base put in.
    pub spelled: PathBuf,
    /// What is there.
    pub found: Found,
    /// Every place that has to be held so that the name stays hidden.
    pub places: Vec<Place>,
}

/// What a path leads to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    /// A directory, at its physical path.
    Directory(PathBuf),
    /// Anything else, at its physical path.
    File {
        /// The physical path.
        physical: PathBuf,
        /// Its link count; above one it has a name that no mask covers.
        links: u64,
    },
    /// Nothing, or a link to nothing.
    Absent,
    /// This user may not even look, so neither may the inside, which has fewer rights: a directory
    /// of somebody else is in the way.
    Unreachable,
    /// It cannot be told: the error's text.
    Unknown(String),
}

/// One place, named without any symbolic link on the way to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The physical path; what is missing at its end is appended as spelled.
    pub path: PathBuf,
    /// How many components at its end are missing.
    pub missing: usize,
    /// What it has to do with the denied path.
    pub role: Role,
    /// The directory that an overlay can lie on to hold the place by name.
    pub anchor: Option<PathBuf>,
}

/// What a place has to do with a denied path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Role {
    /// The denied file, directory or absence itself.
    End,
    /// The same files, seen through another mount.
    Alias,
    /// A symbolic link that stands for the whole path.
    Last,
    /// A symbolic link on the way, with its target.
    Way(PathBuf),
}

/// What all patterns together may cost.
#[derive(Debug, Clone, Copy)]
struct Bounds {
    /// Names to look at.
    entries: usize,
    /// Names to hide.
    matches: usize,
    /// Directories from the pattern's base downwards.
    depth: usize,
    time: Duration,
}

const BOUNDS: Bounds =
    Bounds { entries: 300_000, matches: 20_000, depth: 64, time: Duration::from_secs(10) };

/// Trees in which no overlay is made: what is in them must be fresh, or the jail has its own.
const NEVER: [&str; 6] = ["/dev", "/etc", "/proc", "/run", "/sys", "/tmp"];

/// Looks at denied paths; remembers directories, since many denied paths lie in the same.
pub(super) struct Looker<'a> {
    uid: u32,
    table: &'a Table,
    /// Whether the table knows layers of an overlay.
    layered: bool,
    /// Physical.
    homes: &'a [PathBuf],
    /// Directories that are known to be reached without any symbolic link.
    plain: BTreeSet<OsString>,
    /// Directories that are known not to be there, each with the number of its missing components.
    absent: BTreeMap<OsString, usize>,
    anchors: BTreeMap<OsString, Option<PathBuf>>,
    bounds: Bounds,
    entries: usize,
    matches: usize,
    start: Instant,
}

/// A name in a directory, and its kind where that can be told.
type Entry = (OsString, Option<std::fs::FileType>);

struct Route {
    links: Vec<(PathBuf, PathBuf, bool)>,
    end: PathBuf,
    missing: usize,
    stop: Option<io::Error>,
    /// What was seen at the end, when nothing was followed after that.
    seen: Option<Metadata>,
}

impl<'a> Looker<'a> {
    pub(super) fn new(uid: u32, table: &'a Table, homes: &'a [PathBuf]) -> Self {
        Self {
            uid,
            table,
            layered: table.entries().iter().any(|entry| !entry.layers.is_empty()),
            homes,
            plain: BTreeSet::new(),
            absent: BTreeMap::new(),
            anchors: BTreeMap::new(),
            bounds: BOUNDS,
            entries: 0,
            matches: 0,
            start: Instant::now(),
        }
    }

    /// Looks at one path.
    pub(super) fn look(&mut self, key: &'static str, wish: &str, spelled: PathBuf) -> Denied {
        let route = self.follow(&spelled);
        let (found, end, missing) = self.found(&route);
        let mut places: Vec<Place> = Vec::new();
        for (link, target, last) in route.links {
            let role = if last { Role::Last } else { Role::Way(target) };
            if last {
                let aliases = self.table.aliases(&link);
                places.extend(aliases.into_iter().map(|path| self.place(path, 0, Role::Last)));
            }
            places.push(self.place(link, 0, role));
        }
        if matches!(found, Found::Directory(_) | Found::File { .. } | Found::Absent) {
            for alias in self.table.aliases(&end) {
                places.push(self.place(alias, missing, Role::Alias));
            }
            places.push(self.place(end, missing, Role::End));
        }
        Denied { key, wish: wish.to_owned(), spelled, found, places }
    }

    /// Looks at one path, and at the same files in the layers of overlays and in overlays around them.
    pub(super) fn look_around(
        &mut self,
        key: &'static str,
        wish: &str,
        spelled: PathBuf,
    ) -> Vec<Denied> {
        let mut all = vec![self.look(key, wish, spelled)];
        if !self.layered {
            return all;
        }
        let mut known = BTreeSet::new();
        let mut next = 0;
        while let Some(denied) = all.get(next) {
            next += 1;
            let others: Vec<PathBuf> = denied
                .places
                .iter()
                .filter(|place| known.insert(place.path.clone()))
                .flat_map(|place| self.table.layered(&place.path))
                .collect();
            for other in others.into_iter().filter(|other| !known.contains(other)) {
                let mut same = self.look(key, wish, other);
                for place in &mut same.places {
                    if place.role == Role::End {
                        place.role = Role::Alias;
                    }
                }
                all.push(same);
            }
        }
        all
    }

    fn place(&mut self, path: PathBuf, missing: usize, role: Role) -> Place {
        let anchor = self.anchor(&path, missing);
        Place { path, missing, role, anchor }
    }

    fn found(&mut self, route: &Route) -> (Found, PathBuf, usize) {
        let end = route.end.clone();
        let Some(error) = &route.stop else {
            if route.missing > 0 {
                return (Found::Absent, end, route.missing);
            }
            let seen = match &route.seen {
                Some(seen) => Ok(seen.clone()),
                None => std::fs::symlink_metadata(&end),
            };
            return match seen {
                Ok(meta) if meta.is_dir() => (Found::Directory(end.clone()), end, 0),
                Ok(meta) => (Found::File { physical: end.clone(), links: meta.nlink() }, end, 0),
                Err(error) => (unfound(&error), end, 1),
            };
        };
        let found = unfound(error);
        if found == Found::Unreachable {
            // A lock of the caller's own is no lock: the inside could open it where it may write.
            // What is behind it cannot be seen now, so all of it is hidden.
            let locked = end.clone();
            if std::fs::metadata(&locked).is_ok_and(|meta| meta.is_dir() && meta.uid() == self.uid)
            {
                return (Found::Directory(locked), end, 0);
            }
        }
        (found, end, route.missing)
    }

    /// Follows a path one component at a time and remembers each symbolic link.
    fn follow(&mut self, spelled: &Path) -> Route {
        let mut route = Route {
            links: Vec::new(),
            end: PathBuf::from("/"),
            missing: 0,
            stop: None,
            seen: None,
        };
        // Its directory, where it is spelled without anything that means nothing.
        let directory = match (spelled.parent(), spelled.file_name()) {
            (Some(parent), Some(name)) => Some(parent.as_os_str())
                .filter(|it| it.len() + 1 + name.len() == spelled.as_os_str().len()),
            _ => None,
        };
        if let Some(missing) = directory.and_then(|directory| self.absent.get(directory)) {
            route.end = spelled.to_path_buf();
            route.missing = missing + 1;
            return route;
        }
        if directory.is_some_and(|directory| self.plain.contains(directory)) {
            match std::fs::symlink_metadata(spelled) {
                Ok(meta) if !meta.is_symlink() => {
                    route.end = spelled.to_path_buf();
                    route.seen = Some(meta);
                    return route;
                }
                _ => {}
            }
        }
        let mut rest: Vec<OsString> = parts(spelled);
        rest.reverse();
        while let Some(part) = rest.pop() {
            route.seen = None;
            if part == ".." {
                // What is behind a name that is not there cannot be told, so that name is the end.
                while route.missing > 1 {
                    route.end.pop();
                    route.missing -= 1;
                }
                if route.missing > 0 {
                    return route;
                }
                route.end.pop();
                continue;
            }
            let next = route.end.join(&part);
            if route.missing > 0 {
                route.missing += 1;
                route.end = next;
                continue;
            }
            match std::fs::symlink_metadata(&next) {
                Ok(meta) if meta.is_symlink() => {
                    let target = match std::fs::read_link(&next) {
                        Ok(target) if route.links.len() < 40 => target,
                        Ok(_) => {
                            route.missing = 1;
                            route.end = next;
                            route.stop = Some(io::Error::from_raw_os_error(libc::ELOOP));
                            return route;
                        }
                        Err(error) => {
                            route.stop = Some(error);
                            return route;
                        }
                    };
                    if target.is_absolute() {
                        route.end = PathBuf::from("/");
                    }
                    let through = rest.is_empty();
                    rest.extend(parts(&target).into_iter().rev());
                    route.links.push((next, target, through));
                }
                Ok(meta) => {
                    if !meta.is_dir() && !rest.is_empty() {
                        // What is below a file is not there, and the file may become a directory.
                        route.end = next;
                        route.missing = 0;
                        route.end.extend(rest.iter().rev());
                        route.missing = rest.len();
                        return route;
                    }
                    route.end = next;
                    route.seen = Some(meta);
                }
                Err(error) if unfound(&error) == Found::Absent => {
                    route.missing = 1;
                    route.end = next;
                }
                Err(error) => {
                    route.stop = Some(error);
                    return route;
                }
            }
        }
        if route.links.is_empty()
            && route.end.as_os_str() == spelled.as_os_str()
            && let Some(parent) = spelled.parent()
        {
            match route.missing {
                0 => {
                    self.plain.insert(parent.into());
                }
                1 => {}
                missing => {
                    self.absent.insert(parent.into(), missing - 1);
                }
            }
        }
        route
    }

    /// The directory whose overlay holds `path` by name: the home; elsewhere the outermost one in
    /// which somebody else than root can exchange what lies on the way, so that no directory above
    /// the name can be moved away from it; where there is none, the parent.
    fn anchor(&mut self, path: &Path, missing: usize) -> Option<PathBuf> {
        let directory = path.ancestors().nth(missing.max(1))?;
        if let Some(known) = self.anchors.get(directory.as_os_str()) {
            return known.clone();
        }
        let anchor = self.find_anchor(directory);
        self.anchors.insert(directory.into(), anchor.clone());
        anchor
    }

    fn find_anchor(&self, directory: &Path) -> Option<PathBuf> {
        let top = &self.table.at(directory)?.point;
        let free = |path: &Path| path != Path::new("/") && self.table.below(path).is_empty();
        let home = self
            .homes
            .iter()
            .filter(|home| directory.starts_with(home) && home.starts_with(top) && free(home))
            .min_by_key(|home| home.as_os_str().len());
        if let Some(home) = home {
            return Some(home.clone());
        }
        if NEVER.iter().any(|tree| directory.starts_with(tree)) {
            return None;
        }
        let mut way: Vec<&Path> =
            directory.ancestors().take_while(|above| above.starts_with(top)).collect();
        way.reverse();
        // Programs look up there what does not exist yet, and a daemon makes it.
        let store = Path::new("/nix/store");
        way.iter()
            .zip(way.iter().skip(1).map(Some).chain([None]))
            .find(|(above, next)| {
                free(above)
                    && match next {
                        None => true,
                        Some(next) => !directory.starts_with(store) && is_exchangeable(above, next),
                    }
            })
            .map(|(above, _)| above.to_path_buf())
    }

    /// Finds what a pattern means below one of its bases. Symbolic links are followed where a name
    /// of the pattern stands for one, and never by `**`.
    ///
    /// # Errors
    /// A sentence when a bound is hit or a directory cannot be read: what was not looked at is not
    /// hidden, so nothing is started then.
    pub(super) fn expand(
        &mut self,
        base: &Path,
        pattern: &Pattern,
    ) -> Result<Vec<PathBuf>, String> {
        let mut found = Vec::new();
        if pattern.is_empty() {
            return Ok(vec![base.to_path_buf()]);
        }
        let mut states = Vec::new();
        pattern.open(0, &mut states);
        self.visit(base, pattern, &states, 0, &mut found)?;
        sorted::unique(&mut found);
        self.matches = self.matches.saturating_add(found.len());
        if self.matches > self.bounds.matches {
            return Err(format!(
                "the patterns mean more than {} names: deny the directory they lie in",
                self.bounds.matches
            ));
        }
        Ok(found)
    }

    fn visit(
        &mut self,
        directory: &Path,
        pattern: &Pattern,
        states: &[usize],
        depth: usize,
        found: &mut Vec<PathBuf>,
    ) -> Result<(), String> {
        if ["/proc", "/sys", "/dev"].iter().any(|tree| directory == Path::new(tree)) {
            return Ok(());
        }
        if depth > self.bounds.depth {
            return Err(format!(
                "it goes more than {} directories down: name the directory it may lie in",
                self.bounds.depth
            ));
        }
        let literal = |state: &usize| match pattern.part(*state) {
            Some(Part::Literal(name)) => Some(OsString::from(name)),
            _ => None,
        };
        let names: Option<Vec<OsString>> = states.iter().map(literal).collect();
        let names: Vec<Entry> = if let Some(names) = names {
            names
                .into_iter()
                .filter_map(|name| {
                    let meta = std::fs::symlink_metadata(directory.join(&name)).ok()?;
                    Some((name, Some(meta.file_type())))
                })
                .collect()
        } else {
            let Some(names) = self.list(directory)? else {
                found.push(directory.to_path_buf());
                return Ok(());
            };
            names
        };
        for (name, kind) in names {
            self.entries = self.entries.saturating_add(1);
            if self.entries > self.bounds.entries {
                return Err(format!(
                    "more than {} names have to be looked at: name the directory it may lie in",
                    self.bounds.entries
                ));
            }
            if self.entries.is_multiple_of(1024) && self.start.elapsed() > self.bounds.time {
                return Err(format!(
                    "looking takes longer than {} seconds: name the directory it may lie in",
                    self.bounds.time.as_secs()
                ));
            }
            let (next, matched) = step(pattern, states, &name, kind.is_some_and(|it| it.is_dir()));
            let path = directory.join(&name);
            if matched {
                // All that is below is hidden with it.
                found.push(path);
            } else if !next.is_empty() && (kind.is_none_or(|it| it.is_dir() || it.is_symlink())) {
                let is_directory = kind.is_some_and(|it| it.is_dir())
                    || std::fs::metadata(&path).is_ok_and(|meta| meta.is_dir());
                if is_directory {
                    self.visit(&path, pattern, &next, depth + 1, found)?;
                }
            }
        }
        Ok(())
    }

    /// The names in a directory; none when it is out of this user's reach, and `None` when it is
    /// locked by its owner, who is the caller: then it is hidden as a whole.
    fn list(&self, directory: &Path) -> Result<Option<Vec<Entry>>, String> {
        let told = |error: &io::Error| {
            format!("`{}` cannot be read: {error}", super::super::plan::shown(directory))
        };
        let entries = match std::fs::read_dir(directory) {
            Ok(entries) => entries,
            Err(error) => {
                return match unfound(&error) {
                    Found::Absent => Ok(Some(Vec::new())),
                    Found::Unreachable => {
                        let own =
                            std::fs::metadata(directory).is_ok_and(|meta| meta.uid() == self.uid);
                        Ok((!own).then(Vec::new))
                    }
                    _ => Err(told(&error)),
                };
            }
        };
        entries
            .map(|entry| {
                let entry = entry.map_err(|error| told(&error))?;
                Ok((entry.file_name(), entry.file_type().ok()))
            })
            .collect::<Result<_, _>>()
            .map(Some)
    }
}

/// What may come below `name`, and whether it is meant itself.
fn step(
    pattern: &Pattern,
    states: &[usize],
    name: &OsStr,
    is_directory: bool,
) -> (Vec<usize>, bool) {
    let mut next = Vec::new();
    let mut matched = false;
    for state in states {
        if pattern.part(*state) == Some(&Part::Directories) {
            if is_directory {
                pattern.open(*state, &mut next);
            }
        } else if pattern.matches(*state, name) {
            if *state + 1 == pattern.len() {
                matched = true;
            } else {
                pattern.open(*state + 1, &mut next);
            }
        }
    }
    (next, matched)
}

/// Whether somebody else than root can put something else in the place of `entry` in `directory`.
/// What belongs to nobody here is root's outside.
fn is_exchangeable(directory: &Path, entry: &Path) -> bool {
    const NOBODY: u32 = 65_534;
    let Ok(meta) = std::fs::metadata(directory) else { return false };
    let is_shared = meta.mode() & 0o022 != 0;
    let is_sticky = meta.mode() & 0o1000 != 0;
    if is_sticky && meta.mode() & 0o002 != 0 {
        // A place for everybody is no place for an overlay.
        return false;
    }
    let by_owner = meta.uid() != 0 && meta.uid() != NOBODY;
    let of_others =
        std::fs::symlink_metadata(entry).is_ok_and(|meta| meta.uid() != 0 && meta.uid() != NOBODY);
    by_owner || is_shared && (!is_sticky || of_others)
}

fn unfound(error: &io::Error) -> Found {
    match error.raw_os_error() {
        // A loop of links and a name longer than any file's lead to nothing as well.
        Some(libc::ENOENT | libc::ENOTDIR | libc::ELOOP | libc::ENAMETOOLONG) => Found::Absent,
        Some(libc::EACCES) => Found::Unreachable,
        _ => Found::Unknown(error.to_string()),
    }
}

#[cfg(test)]
mod tests;
