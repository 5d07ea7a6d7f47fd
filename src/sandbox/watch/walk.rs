//! One look at a watched path, in the jail's mount namespace: name by name, no name looked up twice,
//! each directory watched before a name in it is looked up. So whatever changes after the look is
//! an event, and nothing that the inside plants leads the launcher astray: it acts on handles.

use std::collections::{BTreeSet, HashMap};
use std::ffi::OsString;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use rustix::fs::inotify::{self, WatchFlags};
use rustix::fs::{AtFlags, Dir, FileType, FlockOperation, Mode, OFlags, StatVfsMountFlags, flock};
use rustix::io::Errno;
use rustix::process::fchdir;

use super::super::namespace::hold;
use super::super::plan::{Kind, shown};
use super::{Entry, MOST_ENTRIES, Rule, Running, Watch, reversed};

const LOOK: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// What changes a name in a directory.
const NAMES: WatchFlags = WatchFlags::CREATE
    .union(WatchFlags::DELETE)
    .union(WatchFlags::MOVED_FROM)
    .union(WatchFlags::MOVED_TO)
    // A directory that could not be passed may be passable now.
    .union(WatchFlags::ATTRIB)
    .union(WatchFlags::ONLYDIR);

/// The number of links that the kernel follows at most (`path_resolution(7)`).
const MOST_LINKS: usize = 40;

/// The number of handles that are kept open at most during one visit.
const MOST_HANDLES: usize = 128;

/// What is masked inside although a link leads there: nothing of the jail's own.
const OWN: [&str; 4] = ["/dev", "/proc", "/run/kli", "/sys"];

/// Opens a path of the plan.
pub(super) fn handle(path: &Path) -> Result<OwnedFd, Errno> {
    rustix::fs::open(path.as_os_str().as_bytes(), LOOK, Mode::empty())
}

/// A directory on the way.
#[derive(Debug, Clone)]
pub(super) struct Step {
    path: PathBuf,
    pub(super) handle: Rc<OwnedFd>,
    watch: Option<i32>,
    /// Whether the inside could rename it.
    loose: bool,
}

/// Directories that were opened during this visit.
type Known = HashMap<PathBuf, Step>;

/// What was at the end.
enum End {
    /// Nothing, or nothing that these ids reach, and so nothing that the inside reaches.
    Absent(Option<(Step, OsString)>),
    /// Something, and the directory that it was found in.
    There(PathBuf, OwnedFd, Step, OsString),
    /// Something, to which a directory leads that the inside could rename.
    Loose,
}

pub(super) enum Trouble {
    /// The name changed in between: look again.
    Again,
    /// The run ends.
    End(String),
}

impl From<String> for Trouble {
    fn from(sentence: String) -> Self {
        Self::End(sentence)
    }
}

impl Watch {
    /// Looks at some entries, outer ones first as the plan has them.
    pub(super) fn look_at(
        &mut self,
        mut indexes: BTreeSet<usize>,
        first: bool,
    ) -> Result<(), String> {
        let mut known = Known::new();
        let mut idle = Vec::new();
        while let Some(index) = indexes.pop_first() {
            idle.extend(self.unhang(index));
            // A name that changes at each look has an event waiting, and others wait, too.
            for _ in 0..3 {
                if known.len() > MOST_HANDLES {
                    known.clear();
                }
                match self.look(index, &mut known, first) {
                    Ok(new) => {
                        indexes.extend(new);
                        break;
                    }
                    Err(Trouble::Again) => known.clear(),
                    Err(Trouble::End(sentence)) => return Err(sentence),
                }
            }
        }
        self.drop_idle(&idle);
        Ok(())
    }

    /// Looks at one entry and puts right what hangs on it. Returns the entries that are new.
    fn look(
        &mut self,
        index: usize,
        known: &mut Known,
        first: bool,
    ) -> Result<std::ops::Range<usize>, Trouble> {
        let none = 0..0;
        let Some(entry) = self.entries.get(index) else { return Ok(none) };
        let (rule, place) = (entry.rule.clone(), self.place(entry));
        let mut end = self.walk(index, &rule, known, false)?;
        if matches!(end, End::Loose) {
            end = self.walk(index, &rule, known, true)?;
        }
        match (&rule, end) {
            (_, End::Loose) => Err(Trouble::Again),
            (Rule::Held(kind), End::There(path, target, ..)) => {
                if !(kind.is_mask() && self.is_own(&path)) {
                    self.hold(kind, &target, &place)?;
                }
                Ok(none)
            }
            (Rule::Empty(_), End::There(_, target, step, name)) => {
                self.share(&target, &step, &name);
                self.hold(&Kind::Protect, &target, &place)?;
                Ok(none)
            }
            (Rule::Empty(kind), End::Absent(Some((step, name)))) => {
                match make(*kind, &step.handle, &name) {
                    Ok(()) => {
                        self.made.insert(step.path.join(&name), None);
                        Err(Trouble::Again)
                    }
                    Err(Errno::EXIST | Errno::NOENT) => Err(Trouble::Again),
                    // Then the inside cannot make it either.
                    Err(Errno::ACCESS | Errno::PERM | Errno::ROFS) => Ok(none),
                    Err(error) => Err(lost(&place, error)),
                }
            }
            (_, End::Absent(_)) => Ok(none),
            (Rule::Nothing, End::There(..)) => Err(planted(&place).into()),
            (Rule::Pointer, End::There(_, _, step, name)) => {
                self.look_at_pointer(index, &step, &name, &place)?;
                Ok(none)
            }
            // git makes a directory, and nothing in it is a link.
            (Rule::Worktrees(_), End::There(_, target, ..)) if !is_directory(&target) => {
                Err(planted(&place).into())
            }
            (Rule::Worktrees(_), End::There(path, target, ..)) => {
                self.list(index, path, target, known, first)
            }
        }
    }

    /// Takes part in what was made empty by this run, by another that still goes on, or by one that was
    /// killed: who is the last removes it.
    fn share(&mut self, target: &OwnedFd, step: &Step, name: &OsString) {
        let path = step.path.join(name);
        let own = rustix::fs::fstat(target).is_ok_and(|stat| {
            stat.st_mode & MARK != 0 && stat.st_uid == rustix::process::geteuid().as_raw()
        });
        match self.made.get(&path) {
            Some(Some(_)) => return,
            None if !own => return,
            Some(None) | None => {}
        }
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let lock = rustix::fs::openat(&step.handle, name.as_bytes(), flags, Mode::empty()).ok();
        // Where there are no locks, whoever made it removes it.
        let lock = lock.filter(|it| flock(it, FlockOperation::NonBlockingLockShared).is_ok());
        self.made.insert(path, lock);
    }

    /// Makes an entry of each linked worktree that is new.
    fn list(
        &mut self,
        index: usize,
        path: PathBuf,
        target: OwnedFd,
        known: &mut Known,
        first: bool,
    ) -> Result<std::ops::Range<usize>, Trouble> {
        let place = path.clone();
        let step = self.step(path, target, known)?;
        if let Some(number) = step.watch {
            self.watched.entry(number).or_default().any.insert(index);
        }
        let names = names(&step.handle).map_err(|error| lost(&place, error))?;
        let before = self.entries.len();
        let Some(Entry { rule: Rule::Worktrees(seen), root, path, .. }) =
            self.entries.get_mut(index)
        else {
            return Ok(0..0);
        };
        let (root, path) = (*root, path.clone());
        let new: Vec<OsString> =
            names.into_iter().filter(|name| seen.insert(name.clone())).collect();
        if let Some(link) = new.iter().find(|name| is_link(&step.handle, name)) {
            return Err(planted(&place.join(link)).into());
        }
        if !first {
            self.entries.extend(new.into_iter().map(|name| Entry {
                root,
                path: path.join(name).join("commondir"),
                rule: Rule::Pointer,
                names: Vec::new(),
                file: None,
            }));
        }
        if self.entries.len() > MOST_ENTRIES {
            return Err(format!(
                "`{}` has too many linked worktrees: remove some (`git worktree prune`)",
                shown(&place)
            )
            .into());
        }
        Ok(before..self.entries.len())
    }

    /// Follows a path to its end. With `pin` each directory on the way is pinned, so that what is held
    /// in it stays under its name at the next start, too.
    fn walk(
        &mut self,
        index: usize,
        rule: &Rule,
        known: &mut Known,
        pin: bool,
    ) -> Result<End, Trouble> {
        let Some(entry) = self.entries.get(index) else { return Ok(End::Absent(None)) };
        let mut rest = reversed(entry.path.as_os_str().as_bytes());
        let place = self.place(entry);
        let Some(root) = self.roots.get(entry.root) else { return Ok(End::Absent(None)) };
        let Some(handle) = root.handle.clone() else { return Ok(End::Absent(None)) };
        let mut at = self.step_of(root.path.clone(), handle, known)?;
        // A pin keeps a link as it is, and what may not be is not to be a link either.
        let follow = !matches!(
            rule,
            Rule::Held(Kind::Pin) | Rule::Nothing | Rule::Pointer | Rule::Worktrees(_)
        );
        let mut links = 0;
        let pinned = matches!(rule, Rule::Held(kind) if *kind != Kind::Pin);
        let mut loose = false;
        while let Some(name) = rest.pop() {
            if name == ".." {
                let path = at.path.parent().unwrap_or(Path::new("/")).to_path_buf();
                let up = rustix::fs::openat(&at.handle, "..", LOOK, Mode::empty())
                    .map_err(|error| lost(&place, error))?;
                at = self.step(path, up, known)?;
                continue;
            }
            self.hang(index, at.watch, &name);
            let last = rest.is_empty();
            let found = match rustix::fs::openat(&at.handle, name.as_bytes(), LOOK, Mode::empty()) {
                Ok(found) => found,
                Err(Errno::NOENT) if last => return Ok(End::Absent(Some((at, name)))),
                Err(Errno::NOENT | Errno::NOTDIR | Errno::ACCESS | Errno::NAMETOOLONG) => {
                    return Ok(End::Absent(None));
                }
                Err(error) => return Err(lost(&place, error)),
            };
            let stat = rustix::fs::fstat(&found).map_err(|error| lost(&place, error))?;
            match FileType::from_raw_mode(stat.st_mode) {
                FileType::Symlink if follow || !last => {
                    links += 1;
                    if links > MOST_LINKS {
                        return Ok(End::Absent(None));
                    }
                    // Where it leads decides what is held, so the inside does not lead it elsewhere.
                    self.hold(&Kind::Pin, &found, &at.path.join(&name))?;
                    let target = rustix::fs::readlinkat(&found, "", Vec::new())
                        .map_err(|error| lost(&place, error))?;
                    if target.as_bytes().starts_with(b"/") {
                        let top = handle_of_top().map_err(|error| lost(&place, error))?;
                        at = self.step("/".into(), top, known)?;
                    }
                    rest.extend(reversed(target.as_bytes()));
                    if rest.is_empty() {
                        return Ok(End::Absent(None));
                    }
                }
                _ if last && loose => return Ok(End::Loose),
                _ if last => {
                    return Ok(End::There(at.path.join(&name), found, at, name));
                }
                FileType::Directory => {
                    let mut next = self.step(at.path.join(&name), found, known)?;
                    if pin && next.loose {
                        next = self.pinned(&at, &name, &next, known)?;
                    }
                    loose |= pinned && next.loose;
                    at = next;
                }
                _ => return Ok(End::Absent(None)),
            }
        }
        Ok(End::Absent(None))
    }

    /// Pins a directory on the way, and passes through the pin.
    fn pinned(
        &self,
        at: &Step,
        name: &OsString,
        step: &Step,
        known: &mut Known,
    ) -> Result<Step, Trouble> {
        self.hold(&Kind::Pin, &step.handle, &step.path)?;
        // What was opened below it lies under the new mount.
        known.clear();
        let top = rustix::fs::openat(&at.handle, name.as_bytes(), LOOK, Mode::empty());
        match top.map_err(|_| Trouble::Again)? {
            top if is_directory(&top) => self.step(step.path.clone(), top, known),
            _ => Err(Trouble::Again),
        }
    }

    /// A directory on the way, watched.
    fn step(&self, path: PathBuf, handle: OwnedFd, known: &mut Known) -> Result<Step, Trouble> {
        self.step_of(path, Rc::new(handle), known)
    }

    fn step_of(
        &self,
        path: PathBuf,
        handle: Rc<OwnedFd>,
        known: &mut Known,
    ) -> Result<Step, Trouble> {
        if let Some(step) = known.get(&path) {
            return Ok(step.clone());
        }
        let watch = self.watch_directory(&handle, NAMES, &path)?;
        let firm = self.is_own(&path) || hold::is_in_place(&Kind::Pin, handle.as_fd()) == Ok(true);
        let step = Step { path: path.clone(), handle, watch, loose: !firm };
        known.insert(path, step.clone());
        Ok(step)
    }

    fn watch_directory(
        &self,
        handle: &OwnedFd,
        flags: WatchFlags,
        path: &Path,
    ) -> Result<Option<i32>, Trouble> {
        let Some(Running { inotify, .. }) = &self.running else { return Ok(None) };
        // The call takes a path alone, and this process has no /proc in here to name a handle by.
        match fchdir(handle).and_then(|()| inotify::add_watch(inotify, ".", flags)) {
            Ok(number) => Ok(Some(number)),
            // It belongs to somebody else, and only what the inside can write must be watched.
            Err(Errno::ACCESS) if is_read_only(handle) => Ok(None),
            Err(error) => Err(Trouble::End(unwatched(path, error))),
        }
    }

    /// Makes a held mount where it is not in place.
    fn hold(&self, kind: &Kind, target: &OwnedFd, place: &Path) -> Result<(), Trouble> {
        let Some(masks) = self.running.as_ref().and_then(|running| running.masks.as_ref()) else {
            return Ok(());
        };
        let failed = |error| match error {
            // Renamed over or removed since it was opened.
            Errno::NOENT | Errno::STALE => Trouble::Again,
            error => lost(place, error),
        };
        if hold::is_in_place(kind, target.as_fd()).map_err(failed)? {
            return Ok(());
        }
        hold::put(kind, target.as_fd(), masks).map_err(failed)
    }

    /// Whether a link leads where a mask would take away more than what it shall hide.
    fn is_own(&self, path: &Path) -> bool {
        OWN.iter().any(|own| path.starts_with(own))
            || self.roots.iter().any(|root| root.path.starts_with(path))
    }
}

/// The bit by which an empty file or directory is known to be the launcher's, from the moment that it is
/// there: the sticky bit, which means nothing on a file, and in a directory of one's own neither.
const MARK: u32 = 0o1000;

fn make(kind: FileType, directory: &OwnedFd, name: &OsString) -> Result<(), Errno> {
    if kind == FileType::Directory {
        return rustix::fs::mkdirat(directory, name.as_bytes(), Mode::from_raw_mode(MARK | 0o755));
    }
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let mode = Mode::from_raw_mode(MARK | 0o644);
    rustix::fs::openat(directory, name.as_bytes(), flags, mode).map(drop)
}

fn handle_of_top() -> Result<OwnedFd, Errno> {
    rustix::fs::open("/", LOOK | OFlags::DIRECTORY, Mode::empty())
}

fn is_read_only(handle: &OwnedFd) -> bool {
    rustix::fs::fstatvfs(handle).is_ok_and(|it| it.f_flag.contains(StatVfsMountFlags::RDONLY))
}

pub(super) fn unwatched(path: &Path, error: Errno) -> String {
    let path = shown(path);
    if error == Errno::NOSPC {
        return format!(
            "`{path}` cannot be watched, so what is held in it would not stay: raise \
             `fs.inotify.max_user_watches`"
        );
    }
    format!(
        "`{path}` cannot be watched, so what is held in it would not stay ({error}): make it readable"
    )
}

pub(super) fn lost(place: &Path, error: Errno) -> Trouble {
    Trouble::End(format!(
        "`{}` was replaced while the jail ran and cannot be put back ({error}), so the run was ended",
        shown(place)
    ))
}

pub(super) fn planted(place: &Path) -> String {
    format!(
        "`{}` was planted while the jail ran: version control on the host would take hooks and \
         settings from elsewhere, so the run was ended; it is set aside as `{}`",
        shown(place),
        shown(Path::new(&super::after::aside(place)))
    )
}

fn is_directory(handle: &OwnedFd) -> bool {
    rustix::fs::fstat(handle)
        .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Directory)
}

/// Whether a name is a symbolic link.
pub(super) fn is_link(directory: &OwnedFd, name: &OsString) -> bool {
    rustix::fs::statat(directory, name.as_bytes(), AtFlags::SYMLINK_NOFOLLOW)
        .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Symlink)
}

/// The names in a directory.
pub(super) fn names(directory: &OwnedFd) -> Result<Vec<OsString>, Errno> {
    let mut names = Vec::new();
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    for entry in Dir::new(rustix::fs::openat(directory, ".", flags, Mode::empty())?)? {
        let name = entry?.file_name().to_bytes().to_vec();
        if name != b"." && name != b".." {
            names.push(OsString::from_vec(name));
        }
    }
    Ok(names)
}
