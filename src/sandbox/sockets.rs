//! Which sockets and named pipes of the host there are (law 6): those that a specification allows,
//! those that variables name, and those that must be hidden because the jail shows their place.
//!
//! It looks and judges nothing. Sockets are found three ways, each bounded: the kernel's table of
//! the sockets of this network namespace, the places where services are known to keep theirs, and a
//! search of what is writable inside. Names alone are read; nothing is opened but directories, and
//! no socket is ever connected to, which could start a service.

#![expect(clippy::disallowed_methods, reason = "the sandbox looks at the machine's sockets here")]

use std::collections::{BTreeSet, VecDeque};
use std::ffi::{OsStr, OsString};
use std::io::{self, Read};
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, RawDir};

use super::facts::{RunEntry, Writable, walk};
use super::sorted;

/// The Nix daemon's socket, unless it was built for another place.
pub const NIX_DAEMON: &str = "/nix/var/nix/daemon-socket/socket";

/// Where sockets of X servers are.
const X11: &str = "/tmp/.X11-unix";

/// The most of the kernel's table that is read, in bytes.
const TABLE: u64 = 4 << 20;

/// The most sockets and pipes that are hidden one by one.
const MOST: usize = 1000;

/// How far what is writable inside is searched: so many names take about 35 ms; the time is for file
/// systems that answer late.
const WRITABLE: Bounds = Bounds { time: Duration::from_millis(250), names: 200_000, depth: 32 };

/// How far the known places are searched.
const KNOWN: Bounds = Bounds { time: Duration::from_millis(100), names: 20_000, depth: 3 };

/// How deep the home is searched beside its known places.
const HOME_DEPTH: usize = 2;

/// Directories that hold sockets and nothing else: hidden whole, so that a later one is hidden too.
const DIRECTORIES: [&str; 3] =
    ["/nix/var/nix/daemon-socket", "/var/guix/daemon-socket", "/var/run"];

/// Trees in which services keep sockets among other things.
const TREES: [&str; 4] = ["/srv", "/var/lib", "/var/snap", "/var/spool"];

/// Where services outside `/run` keep sockets.
const SERVICES: [&str; 12] = [
    "/var/lib/gdm",
    "/var/lib/incus",
    "/var/lib/libvirt",
    "/var/lib/lxd",
    "/var/lib/mysql",
    "/var/lib/postgresql",
    "/var/lib/samba",
    "/var/lib/sss/pipes",
    "/var/opt",
    "/var/snap/incus/common",
    "/var/snap/lxd/common/lxd",
    "/var/spool/postfix",
];

/// Where programs keep sockets below the home.
const PROGRAMS: [&str; 25] = [
    ".1password",
    ".cache/keyring",
    ".colima",
    ".config/1Password",
    ".config/Code",
    ".config/Cursor",
    ".config/VSCodium",
    ".cursor-server",
    ".docker/desktop",
    ".docker/run",
    ".emacs.d/server",
    ".gnupg",
    ".ipython",
    ".lima",
    ".local/share/containers",
    ".local/share/keybase",
    ".minikube",
    ".mozilla",
    ".orbstack/run",
    ".rd",
    ".screen",
    ".ssh",
    ".tmux",
    ".vscode-server",
    ".zellij",
];

/// The sockets of this machine, as far as a plan needs them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sockets {
    /// One entry for each path of `allowSockets`, and one for the Nix daemon's when that is allowed.
    pub allowed: Vec<Allowed>,
    /// Sockets and named pipes that were found, at their physical paths, sorted.
    pub found: Vec<PathBuf>,
    /// Directories that hold nothing else.
    pub directories: Vec<PathBuf>,
    /// Trees in which services keep sockets among other things.
    pub trees: Vec<PathBuf>,
    /// The variables that name a socket, with its physical path.
    pub variables: Vec<(OsString, PathBuf)>,
    /// `$XAUTHORITY`, when a socket of an X server is allowed and the file is there.
    pub authority: Option<PathBuf>,
    /// Where a search came to its bounds, with the reason.
    pub unfinished: Vec<(PathBuf, &'static str)>,
}

/// A socket or named pipe that shall stay reachable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Allowed {
    /// Its path, followed link by link.
    pub path: Writable,
    /// The targets of `path.links`, in their order.
    pub targets: Vec<PathBuf>,
    /// What is there.
    pub state: State,
}

/// What is at an allowed path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    /// A socket or a named pipe.
    There,
    /// Nothing yet.
    Absent,
    /// Something that cannot be allowed, with the repair.
    Other(String),
}

/// How far a search goes.
#[derive(Debug, Clone, Copy)]
struct Bounds {
    time: Duration,
    names: usize,
    depth: usize,
}

/// What the probe looks at.
#[derive(Debug)]
pub(super) struct Scope<'a> {
    /// `allowSockets`, followed.
    pub(super) allowed: Vec<Writable>,
    /// Directories that are writable inside.
    pub(super) writable: Vec<&'a Path>,
    /// The homes, resolved.
    pub(super) homes: &'a [PathBuf],
    /// The environment.
    pub(super) environment: &'a [(OsString, OsString)],
}

/// Looks for sockets.
pub(super) fn probe(scope: Scope<'_>) -> Sockets {
    let Scope { allowed, writable, homes, environment } = scope;
    let allowed: Vec<Allowed> = allowed.into_iter().map(state).collect();
    let x11 = allowed.iter().any(|socket| socket.path.physical.starts_with(X11));
    let mut seen = Seen::default();
    let homes_too = writable.iter().copied().chain(homes.iter().map(PathBuf::as_path));
    listening(&mut seen, &homes_too.collect::<Vec<_>>());

    let mut search = Search::new(WRITABLE);
    for root in outermost(&writable) {
        search.run(root, WRITABLE.depth, &mut seen);
    }
    let mut search = Search::new(KNOWN);
    let programs = homes.iter().flat_map(|home| {
        let names = names_in(home);
        let there = move |part: &&str| {
            let first = part.split('/').next().unwrap_or(part);
            names.as_ref().is_none_or(|names| names.contains(OsStr::new(first)))
        };
        PROGRAMS.into_iter().filter(there).map(|part| home.join(part))
    });
    for place in SERVICES.into_iter().map(PathBuf::from).chain(programs) {
        search.run(&place, KNOWN.depth, &mut seen);
    }
    for home in homes {
        search.run(home, HOME_DEPTH, &mut seen);
    }
    let there = |path: &PathBuf| std::fs::symlink_metadata(path).is_ok_and(|meta| meta.is_dir());
    let directories: Vec<PathBuf> =
        DIRECTORIES.into_iter().map(PathBuf::from).filter(there).collect();
    for directory in &directories {
        search.run(directory, KNOWN.depth, &mut seen);
    }
    let authority = environment
        .iter()
        .find(|(name, _)| name == "XAUTHORITY")
        .and_then(|(_, value)| std::fs::canonicalize(value).ok())
        .filter(|path| x11 && std::fs::metadata(path).is_ok_and(|meta| meta.is_file()));
    Sockets {
        allowed,
        found: seen.paths.into_iter().collect(),
        directories,
        trees: TREES.into_iter().map(PathBuf::from).filter(there).collect(),
        variables: variables(environment),
        authority,
        unfinished: seen.unfinished,
    }
}

/// The names of an X server's keys, which are hidden unless a socket of one is allowed.
pub(super) fn x_authority(
    allowed: &[Writable],
    homes: &[PathBuf],
    environment: &[(OsString, OsString)],
) -> Vec<PathBuf> {
    if allowed.iter().any(|socket| socket.physical.starts_with(X11)) {
        return Vec::new();
    }
    let named = environment.iter().filter(|(name, _)| name == "XAUTHORITY");
    homes
        .iter()
        .map(|home| home.join(".Xauthority"))
        .chain(named.map(|(_, value)| PathBuf::from(value)))
        .filter(|path| {
            path.is_absolute() && std::fs::metadata(path).is_ok_and(|meta| meta.is_file())
        })
        .collect()
}

/// Adds what of `/run` the way to a file leads through: links, and the file itself.
pub(super) fn way_through_run(file: &str, resolver: bool, run: &mut Vec<RunEntry>) {
    let way = walk("", Path::new(file));
    let there = way.missing == 0 && way.trouble.is_none();
    let target = there.then_some((way.physical, None));
    let links = way.links.into_iter().filter_map(|link| {
        let target = std::fs::read_link(&link).ok()?;
        Some((link, Some(target)))
    });
    for (path, link) in links.chain(target) {
        if path.starts_with("/run") && !run.iter().any(|entry| path.starts_with(&entry.path)) {
            run.push(RunEntry { path, link, resolver });
        }
    }
}

fn state(path: Writable) -> Allowed {
    let targets =
        path.links.iter().map(|link| std::fs::read_link(link).unwrap_or_default()).collect();
    let state = match std::fs::symlink_metadata(&path.physical) {
        _ if path.spelled.as_os_str().is_empty() => {
            State::Other(path.trouble.clone().unwrap_or_default())
        }
        Ok(meta) if meta.file_type().is_socket() || meta.file_type().is_fifo() => State::There,
        Ok(meta) if path.missing == 0 && path.trouble.is_none() => State::Other(
            if meta.is_dir() {
                "it is a directory: name the sockets in it"
            } else {
                "it is neither a socket nor a named pipe: take it out, it stays readable without"
            }
            .into(),
        ),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            State::Other("it is out of this user's reach: take it out".into())
        }
        Ok(_) | Err(_) => State::Absent,
    };
    Allowed { path, targets, state }
}

/// The names in a directory, so that what is not there need not be asked for one by one; `None` when it
/// cannot be read, though what it has may be reached.
fn names_in(directory: &Path) -> Option<BTreeSet<OsString>> {
    let entries = std::fs::read_dir(directory).ok()?;
    let mut names = BTreeSet::new();
    for entry in entries.take(KNOWN.names) {
        names.insert(entry.ok()?.file_name());
    }
    Some(names)
}

/// What was found so far.
#[derive(Debug, Default)]
struct Seen {
    paths: BTreeSet<PathBuf>,
    unfinished: Vec<(PathBuf, &'static str)>,
}

impl Seen {
    fn add(&mut self, path: PathBuf) {
        if self.paths.len() < MOST {
            self.paths.insert(path);
        } else if !self.paths.contains(&path) {
            self.stopped(&path, "there are too many");
        }
    }

    fn stopped(&mut self, place: &Path, because: &'static str) {
        // One of a kind tells enough.
        if !self.unfinished.iter().any(|(_, known)| *known == because) {
            self.unfinished.push((place.to_path_buf(), because));
        }
    }
}

/// The sockets in the kernel's table that are where the jail may show them (proc(5), `net/unix`).
fn listening(seen: &mut Seen, shown: &[&Path]) {
    let mut table = Vec::new();
    // `/proc/net` leads there, and is not there where `/proc` shows processes alone.
    let own = Path::new("/proc/self/net/unix");
    let read = std::fs::File::open(own).and_then(|file| file.take(TABLE).read_to_end(&mut table));
    match read {
        Ok(read) if u64::try_from(read) == Ok(TABLE) => {
            seen.stopped(own, "the kernel's table of sockets is too long");
        }
        Ok(_) => {}
        Err(_) => seen.stopped(own, "the kernel's table of sockets cannot be read"),
    }
    let mut tried = BTreeSet::new();
    for name in names(&table) {
        let name = Path::new(OsStr::from_bytes(name));
        let replaced = ["/run", "/tmp", "/var/run"].iter().any(|tree| name.starts_with(tree));
        if replaced && !shown.iter().any(|root| name.starts_with(root)) || !tried.insert(name) {
            continue;
        }
        if std::fs::metadata(name).is_ok_and(|meta| meta.file_type().is_socket())
            && let Ok(physical) = std::fs::canonicalize(name)
        {
            seen.add(physical);
        }
    }
}

/// The absolute paths of the table: what follows the seventh column, byte for byte.
fn names(table: &[u8]) -> impl Iterator<Item = &[u8]> {
    table.split(|byte| *byte == b'\n').filter_map(|line| {
        let mut rest = line.trim_ascii_start();
        for _ in 0..7 {
            let end = rest.iter().position(|byte| *byte == b' ')?;
            rest = rest.get(end..)?.trim_ascii_start();
        }
        rest.starts_with(b"/").then_some(rest)
    })
}

/// Leaves out what lies inside another one.
fn outermost<'a>(roots: &[&'a Path]) -> Vec<&'a Path> {
    let inside = |root: &Path| roots.iter().any(|other| *other != root && root.starts_with(other));
    let mut kept: Vec<&Path> = roots.iter().copied().filter(|root| !inside(root)).collect();
    sorted::unique(&mut kept);
    kept
}

/// A search over several trees with bounds in common.
struct Search {
    end: Instant,
    names: usize,
    buffer: Vec<MaybeUninit<u8>>,
}

impl Search {
    fn new(bounds: Bounds) -> Self {
        let end = Instant::now() + bounds.time;
        Self { end, names: bounds.names, buffer: vec![MaybeUninit::uninit(); 32 << 10] }
    }

    /// Searches `root`, what is nearest first; follows no symbolic link. What cannot be read is out of
    /// the inside's reach too.
    fn run(&mut self, root: &Path, depth: usize, seen: &mut Seen) {
        let mut waiting = VecDeque::from([(root.to_path_buf(), 0)]);
        while let Some((directory, level)) = waiting.pop_front() {
            if Instant::now() >= self.end {
                return seen.stopped(&directory, "it took too long");
            }
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let Ok(handle) = rustix::fs::openat(CWD, &directory, flags, Mode::empty()) else {
                continue;
            };
            let mut entries = RawDir::new(&handle, &mut self.buffer);
            while let Some(Ok(entry)) = entries.next() {
                let name = entry.file_name();
                if name == c"." || name == c".." {
                    continue;
                }
                let Some(left) = self.names.checked_sub(1) else {
                    return seen.stopped(&directory, "there are too many names");
                };
                self.names = left;
                let kind = match entry.file_type() {
                    // Not every file system tells it with the name.
                    FileType::Unknown => {
                        rustix::fs::statat(&handle, name, AtFlags::SYMLINK_NOFOLLOW)
                            .map_or(FileType::Unknown, |stat| FileType::from_raw_mode(stat.st_mode))
                    }
                    kind => kind,
                };
                let path = || directory.join(OsStr::from_bytes(name.to_bytes()));
                match kind {
                    FileType::Socket | FileType::Fifo => seen.add(path()),
                    FileType::Directory if level + 1 < depth => {
                        waiting.push_back((path(), level + 1));
                    }
                    FileType::Directory if depth == WRITABLE.depth => {
                        seen.stopped(&path(), "it is too deep");
                    }
                    _ => {}
                }
            }
        }
    }
}

/// The variables that name sockets which are there.
fn variables(environment: &[(OsString, OsString)]) -> Vec<(OsString, PathBuf)> {
    let mut found = Vec::new();
    let runtime = environment.iter().find(|(name, _)| name == "XDG_RUNTIME_DIR");
    for (name, value) in environment {
        let bytes = value.as_bytes();
        let mut paths: Vec<PathBuf> = Vec::new();
        if name == "DISPLAY" {
            // `:0`, `:0.1` and `unix:0` are sockets of this machine's X servers (X(7)).
            let display = bytes.strip_prefix(b"unix").unwrap_or(bytes);
            let number = display.strip_prefix(b":").and_then(|rest| {
                rest.split(|byte| *byte == b'.').next().filter(|number| !number.is_empty())
            });
            let number = number.and_then(|number| std::str::from_utf8(number).ok());
            paths.extend(number.map(|number| Path::new(X11).join(format!("X{number}"))));
        } else if name == "WAYLAND_DISPLAY" && !bytes.is_empty() {
            let runtime = runtime.map_or(Path::new("/"), |(_, value)| Path::new(value));
            paths.push(runtime.join(value));
        } else {
            paths.extend(addresses(bytes));
        }
        for path in paths {
            // One look first: most values are no paths, or paths of something else.
            if std::fs::metadata(&path).is_ok_and(|meta| meta.file_type().is_socket())
                && let Ok(physical) = std::fs::canonicalize(&path)
            {
                found.push((name.clone(), physical));
            }
        }
    }
    found
}

/// The paths that a value can mean as an address of a socket: a path, `unix:/path`, `unix:///path`,
/// `unix:path=/path,guid=…` (several with `;` between them), `/path,number,number`.
fn addresses(value: &[u8]) -> Vec<PathBuf> {
    let mut paths = Vec::new();
    for address in value.split(|byte| *byte == b';') {
        let rest = [b"unix:path=".as_slice(), b"unix://", b"unix:"]
            .iter()
            .find_map(|prefix| address.strip_prefix(*prefix))
            .unwrap_or(address);
        if !rest.starts_with(b"/") {
            continue;
        }
        let cut = |end: u8| rest.split(|byte| *byte == end).next().unwrap_or(rest);
        let mut known = BTreeSet::new();
        for path in [rest, cut(b','), cut(b':')] {
            if known.insert(path) {
                paths.push(PathBuf::from(OsStr::from_bytes(path)));
            }
        }
    }
    paths
}

#[cfg(test)]
mod tests;
