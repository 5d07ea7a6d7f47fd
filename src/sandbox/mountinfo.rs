//! The table of mounts as proc(5) writes it to `/proc/self/mountinfo`, and the questions to it: what is
//! mounted where, and by which other names the same files can be had (law 2), be it on another mount or in
//! the layers of an overlay.
//!
//! Pure: bytes in, answers out. It opens nothing and knows nothing of what is denied.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use super::sorted;

/// The kernel's bound of a path, its end counted.
const PATH_MAX: usize = 4096;

/// One mount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Its number.
    pub id: u64,
    /// The number of the mount that it lies on.
    pub parent: u64,
    /// Major and minor number of the file system's device; the same for all subvolumes of one.
    pub device: (u32, u32),
    /// The directory or file of the file system that is shown.
    pub root: PathBuf,
    /// Where it is shown.
    pub point: PathBuf,
    /// The type of the file system.
    pub kind: String,
    /// Of an overlay the directories that it is made of, where it was told whole paths.
    pub layers: Vec<PathBuf>,
}

/// All mounts that can be seen from the root of this process, in the kernel's order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Table {
    entries: Vec<Entry>,
    /// The places in `entries` of what lies on the mount of that number.
    children: BTreeMap<u64, Vec<usize>>,
    /// The places of what shows the same file system.
    devices: BTreeMap<(u32, u32), Vec<usize>>,
    /// The place of the lowest mount.
    root: Option<usize>,
}

/// A line that is not as proc(5) says.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line} of the table of mounts is not understood")]
pub struct TableError {
    /// Which one, from 1.
    pub line: usize,
}

impl Table {
    /// Reads a table.
    ///
    /// # Errors
    /// [`TableError`] for the first line that cannot be read: a mount that is overlooked could show
    /// what shall be hidden.
    pub fn parse(text: &[u8]) -> Result<Self, TableError> {
        let lines = text.split(|byte| *byte == b'\n').enumerate();
        let entries: Vec<Entry> = lines
            .filter(|(_, line)| !line.is_empty())
            .map(|(index, line)| entry(line).ok_or(TableError { line: index.saturating_add(1) }))
            .collect::<Result<_, _>>()?;
        let mut table = Self::default();
        let mut ids: BTreeSet<u64> = BTreeSet::new();
        if let Some(place) = entries.iter().position(|entry| !ids.insert(entry.id)) {
            // The kernel gives each number once; with two of one there is no saying what lies where.
            return Err(TableError { line: place.saturating_add(1) });
        }
        for (place, entry) in entries.iter().enumerate() {
            // What lies on no mount that can be seen is the root.
            if entry.parent == entry.id || !ids.contains(&entry.parent) {
                if entry.point == Path::new("/") && table.root.is_none() {
                    table.root = Some(place);
                }
            } else {
                table.children.entry(entry.parent).or_default().push(place);
            }
            table.devices.entry(entry.device).or_default().push(place);
        }
        table.entries = entries;
        Ok(table)
    }

    /// The mounts.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    fn places<'a>(&'a self, places: Option<&'a Vec<usize>>) -> impl Iterator<Item = &'a Entry> {
        places.into_iter().flatten().filter_map(|place| self.entries.get(*place))
    }

    /// What lies on a mount.
    fn on<'a>(&'a self, entry: &Entry) -> impl Iterator<Item = &'a Entry> {
        self.places(self.children.get(&entry.id))
    }

    /// The mount that is seen at `path`, an absolute path without symbolic links.
    pub fn at(&self, path: &Path) -> Option<&Entry> {
        let mut current = self.entries.get(self.root?)?;
        // A circle, which the kernel cannot write, must end as well.
        for _ in 0..self.entries.len() {
            let next = self
                .on(current)
                .filter(|entry| {
                    is_within(path, &entry.point) && is_within(&entry.point, &current.point)
                })
                .min_by_key(|entry| entry.point.as_os_str().len());
            match next {
                Some(next) => current = next,
                None => break,
            }
        }
        Some(current)
    }

    /// Where something is mounted below `path` on the mount that is seen there. The kernel lets no
    /// overlay be made of such a directory in a new user namespace, as it could show what the mount
    /// covers (`clone_private_mount` in fs/namespace.c).
    pub fn below(&self, path: &Path) -> Vec<&Path> {
        let Some(own) = self.at(path) else { return Vec::new() };
        self.on(own)
            .filter(|entry| is_within(&entry.point, path))
            .map(|entry| entry.point.as_path())
            .collect()
    }

    /// The other paths where the file or directory at `path`, or a part of that directory, is
    /// mounted and can be seen: bind mounts, other subvolumes, the same device twice.
    pub fn aliases(&self, path: &Path) -> Vec<PathBuf> {
        let Some(own) = self.at(path) else { return Vec::new() };
        let mut others = self
            .places(self.devices.get(&own.device))
            .filter(|entry| entry.id != own.id)
            .peekable();
        if others.peek().is_none() {
            return Vec::new();
        }
        let Ok(below) = path.strip_prefix(&own.point) else { return Vec::new() };
        let inner = join(&own.root, below);
        let mut found: Vec<PathBuf> = others
            .filter_map(|entry| {
                let alias = match inner.strip_prefix(&entry.root) {
                    Ok(rest) => join(&entry.point, rest),
                    Err(_) if entry.root.starts_with(&inner) => entry.point.clone(),
                    Err(_) => return None,
                };
                let seen = self.at(&alias).is_some_and(|seen| seen.id == entry.id);
                (seen && !alias.starts_with(path)).then_some(alias)
            })
            .collect();
        sorted::unique(&mut found);
        found
    }

    /// Forgets the layers that `is_there` denies: those of an overlay that was made elsewhere, such as a
    /// container's root, cannot be reached.
    pub fn keep_layers(&mut self, is_there: impl Fn(&Path) -> bool) {
        for entry in &mut self.entries {
            entry.layers.retain(|layer| is_there(layer));
        }
    }

    /// The paths of what is at `path` in the layers of the overlay that is seen there, and in the
    /// overlays that have it, or a part of it, in a layer. It need not be there.
    pub fn layered(&self, path: &Path) -> Vec<PathBuf> {
        let mut found = Vec::new();
        let Some(own) = self.at(path) else { return found };
        // What covers a layer is none, the overlay itself least of all, which may lie in or on its layers.
        let seen = |entry: &Entry, layer: &Path| {
            self.at(layer)
                .filter(|around| around.device != entry.device)
                .map(|around| around.device)
        };
        if let Ok(below) = path.strip_prefix(&own.point) {
            let inner = join(&own.root, below);
            let inner = inner.strip_prefix("/").unwrap_or(&inner);
            let layers = own.layers.iter().filter(|layer| seen(own, layer).is_some());
            found.extend(layers.map(|layer| join(layer, inner)));
        }
        for entry in &self.entries {
            for layer in &entry.layers {
                let inner = path.strip_prefix(layer).map(|below| join(Path::new("/"), below));
                let around = seen(entry, layer);
                let other_overlay = !own.layers.is_empty() && around != Some(own.device);
                if around.is_none() || inner.is_ok() && other_overlay {
                    continue;
                }
                let other =
                    match inner.as_deref().map(|inner| (inner, inner.strip_prefix(&entry.root))) {
                        Ok((_, Ok(rest))) => join(&entry.point, rest),
                        Ok((inner, Err(_))) if entry.root.starts_with(inner) => entry.point.clone(),
                        Err(_) if layer.starts_with(path) => entry.point.clone(),
                        _ => continue,
                    };
                if self.at(&other).is_some_and(|seen| seen.id == entry.id) {
                    found.push(other);
                }
            }
        }
        // Overlays that lie in each other's layers would have names without end, but for the kernel's bound.
        found.retain(|other| !other.starts_with(path) && other.as_os_str().len() < PATH_MAX);
        sorted::unique(&mut found);
        found
    }
}

/// `Path::join` without the slash that it puts before nothing.
fn join(base: &Path, rest: &Path) -> PathBuf {
    if rest.as_os_str().is_empty() { base.to_path_buf() } else { base.join(rest) }
}

/// `Path::starts_with` for paths that the kernel wrote, which have no part that could be left out.
fn is_within(path: &Path, directory: &Path) -> bool {
    let directory = directory.as_os_str().as_bytes();
    let directory = directory.strip_suffix(b"/").unwrap_or(directory);
    path.as_os_str()
        .as_bytes()
        .strip_prefix(directory)
        .is_some_and(|rest| rest.first().is_none_or(|byte| *byte == b'/'))
}

fn entry(line: &[u8]) -> Option<Entry> {
    let mut fields = line.split(|byte| *byte == b' ');
    let mut number = || std::str::from_utf8(fields.next()?).ok()?.parse::<u64>().ok();
    let (id, parent) = (number()?, number()?);
    let (major, minor) = std::str::from_utf8(fields.next()?).ok()?.split_once(':')?;
    let device = (major.parse().ok()?, minor.parse().ok()?);
    let root = PathBuf::from(plain(fields.next()?));
    let point = PathBuf::from(plain(fields.next()?));
    // The options, then any number of optional fields up to the dash.
    fields.next()?;
    fields.find(|field| *field == b"-")?;
    let kind = String::from_utf8_lossy(fields.next()?).into_owned();
    let layers = match fields.nth(1) {
        Some(options) if kind == "overlay" => layers(options),
        _ => Vec::new(),
    };
    // The root of a file system of the kernel's own may be a name such as `net:[4026531840]`.
    point.is_absolute().then_some(Entry { id, parent, device, root, point, kind, layers })
}

/// The layers that the options of an overlay name. Its own marks are parted by commas, and lower layers
/// by colons, each with a backslash before one that is meant (overlayfs.rst, "Multiple lower layers").
fn layers(options: &[u8]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for option in options.split(|byte| *byte == b',') {
        let Some(equals) = option.iter().position(|byte| *byte == b'=') else { continue };
        let (key, value) = option.split_at(equals);
        let value = plain(value.get(1..).unwrap_or_default());
        let mut parts = vec![Vec::new()];
        match key {
            b"upperdir" | b"lowerdir+" | b"datadir+" => parts = vec![value.into_vec()],
            b"lowerdir" => {
                let mut bytes = value.as_bytes().iter().copied();
                while let Some(byte) = bytes.next() {
                    match (byte, parts.last_mut()) {
                        (b':', _) => parts.push(Vec::new()),
                        (b'\\', Some(part)) => part.extend(bytes.next()),
                        (byte, Some(part)) => part.push(byte),
                        (_, None) => {}
                    }
                }
            }
            _ => continue,
        }
        let paths = parts.into_iter().map(|part| PathBuf::from(OsString::from_vec(part)));
        // `/` alone would make every path one of it.
        found.extend(paths.filter(|path| path.is_absolute() && path.parent().is_some()));
    }
    found
}

/// Takes the kernel's octal escapes out of a name (`\040` for a space).
fn plain(field: &[u8]) -> OsString {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&first, after)) = rest.split_first() {
        let octal = (first == b'\\').then(|| after.get(..3)).flatten().and_then(|digits| {
            digits.iter().try_fold(0_u32, |sum, digit| {
                (b'0'..=b'7').contains(digit).then(|| sum * 8 + u32::from(*digit - b'0'))
            })
        });
        if let Some(byte) = octal.and_then(|value| u8::try_from(value).ok()) {
            bytes.push(byte);
            rest = after.get(3..).unwrap_or_default();
        } else {
            bytes.push(first);
            rest = after;
        }
    }
    OsString::from_vec(bytes)
}

#[cfg(test)]
mod tests;
