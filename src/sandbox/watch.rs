//! Keeps what the launcher holds in place while the jail runs: a mask or a protection that the host's
//! rename took away is put back at once (laws 2 and 9). It decides nothing about paths: the plan says
//! what is held and what is waited for.
//!
//! Everything is looked up in the jail's own mount namespace, name by name, and each directory on
//! the way is watched. An event makes the launcher enter that namespace, look again at what hangs on
//! the name, and leave. One buffer of events is read at a time, so a host that replaces a file in a tight loop
//! keeps no signal waiting.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::{OsStr, OsString};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use rustix::fs::FileType;
use rustix::fs::inotify::{self, CreateFlags, ReadFlags};
use rustix::io::Errno;

use super::MASKS;
use super::namespace::hold::Masks;
use super::plan::{Kind, Mount, Plan, shown};
use super::supervise::Companion;
use super::{sorted, sys};

mod after;
mod pointer;
mod visit;
mod walk;

pub(super) use visit::Home;

/// More linked worktrees than this are not made by one run that means well.
const MOST_ENTRIES: usize = 1 << 16;

/// The watch over the mounts of a plan that are held, and over the names that it waits for.
#[derive(Debug)]
pub(super) struct Watch {
    entries: Vec<Entry>,
    /// The mounts that the entries lie in.
    roots: Vec<Root>,
    /// The way back from the jail, or why there is none. It is taken before bubblewrap starts, whose
    /// monitor covers this namespace's /proc with one that does not show the launcher.
    home: Result<Home, Errno>,
    /// What is there once the jail is.
    running: Option<Running>,
    /// Which entries hang on which name in which watched directory.
    watched: HashMap<i32, Directory>,
    /// The empty files and directories that were made, by this run or by one that was killed, to be
    /// removed at the end by the last who holds its lock.
    made: BTreeMap<PathBuf, Option<OwnedFd>>,
}

/// One path to keep an eye on.
#[derive(Debug)]
struct Entry {
    root: usize,
    /// Below the root's mount; symbolic links are followed anew at each look.
    path: PathBuf,
    rule: Rule,
    /// The names that it hangs on.
    names: Vec<(i32, OsString)>,
    /// The watch on the file itself, of a pointer.
    file: Option<i32>,
}

/// What shall be at the end of a path.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Rule {
    /// A held mount.
    Held(Kind),
    /// A held file or directory, made empty when there is none.
    Empty(FileType),
    /// Nothing.
    Nothing,
    /// A pointer of a linked worktree to its own repository.
    Pointer,
    /// Linked worktrees; these were there at the start.
    Worktrees(BTreeSet<OsString>),
}

#[derive(Debug)]
struct Root {
    path: PathBuf,
    handle: Option<Rc<OwnedFd>>,
}

#[derive(Debug, Default)]
struct Directory {
    names: HashMap<OsString, BTreeSet<usize>>,
    /// What any name concerns.
    any: BTreeSet<usize>,
}

/// The jail.
#[derive(Debug)]
struct Running {
    /// Its mount namespace.
    jail: OwnedFd,
    inotify: OwnedFd,
    masks: Option<Masks>,
}

impl Watch {
    /// Prepares the watch, before the jail is there; `None` when the plan holds nothing.
    pub(super) fn new(plan: &Plan) -> Option<Self> {
        let mut watch = Self {
            entries: Vec::new(),
            roots: Vec::new(),
            home: Home::here(),
            running: None,
            watched: HashMap::new(),
            made: BTreeMap::new(),
        };
        let held = plan.mounts.iter().filter(|mount| mount.kind.is_held());
        for mount in held.chain(&plan.awaited) {
            let rule = match &mount.kind {
                Kind::EmptyFile => Rule::Empty(FileType::RegularFile),
                Kind::EmptyDirectory => Rule::Empty(FileType::Directory),
                Kind::Forbidden => Rule::Nothing,
                Kind::Worktrees => Rule::Worktrees(BTreeSet::new()),
                kind => Rule::Held(kind.clone()),
            };
            let Some(around) = tree(&plan.mounts, &mount.destination) else { continue };
            // A link never puts a mask over it.
            watch.root(&around.destination);
            let around = if mount.kind.is_mask() { firm(plan, around) } else { around };
            let path = mount.destination.strip_prefix(&around.destination).unwrap_or(Path::new(""));
            // The mount itself cannot be replaced.
            if path.as_os_str().is_empty() {
                continue;
            }
            let root = watch.root(&around.destination);
            watch.entries.push(Entry {
                root,
                path: path.to_path_buf(),
                rule,
                names: Vec::new(),
                file: None,
            });
        }
        (!watch.entries.is_empty()).then_some(watch)
    }

    fn root(&mut self, path: &Path) -> usize {
        if let Some(index) = self.roots.iter().position(|root| root.path == path) {
            return index;
        }
        self.roots.push(Root { path: path.to_path_buf(), handle: None });
        self.roots.len() - 1
    }

    /// Where an entry is, for people and for the time when the jail is gone.
    fn place(&self, entry: &Entry) -> PathBuf {
        self.roots
            .get(entry.root)
            .map_or_else(|| entry.path.clone(), |root| root.path.join(&entry.path))
    }

    /// Reads one buffer of events and returns the entries that they concern.
    fn concerned(&mut self) -> Result<BTreeSet<usize>, Errno> {
        let mut concerned = BTreeSet::new();
        let Some(running) = &self.running else { return Ok(concerned) };
        let mut buffer = [MaybeUninit::uninit(); 16 << 10];
        let mut events = inotify::Reader::new(&running.inotify, &mut buffer);
        loop {
            let event = match events.next() {
                Ok(event) => event,
                Err(Errno::AGAIN | Errno::INTR) => return Ok(concerned),
                Err(error) => return Err(error),
            };
            if event.events().contains(ReadFlags::QUEUE_OVERFLOW) {
                // Nobody knows what was lost.
                concerned.extend(0..self.entries.len());
            } else if event.events().contains(ReadFlags::IGNORED) {
                let gone = self.watched.remove(&event.wd()).unwrap_or_default();
                concerned.extend(gone.names.into_values().flatten().chain(gone.any));
            } else if let Some(directory) = self.watched.get(&event.wd()) {
                match event.file_name() {
                    Some(name) => {
                        let entries = directory.names.get(OsStr::from_bytes(name.to_bytes()));
                        concerned.extend(entries.into_iter().flatten().chain(&directory.any));
                    }
                    // The directory itself.
                    None => concerned.extend(directory.names.values().flatten()),
                }
            }
            if events.is_buffer_empty() {
                return Ok(concerned);
            }
        }
    }

    /// Lets an entry hang on a name of a watched directory.
    fn hang(&mut self, index: usize, directory: Option<i32>, name: &OsStr) {
        let Some(number) = directory else { return };
        let entries = self.watched.entry(number).or_default().names.entry(name.to_owned());
        if entries.or_default().insert(index)
            && let Some(entry) = self.entries.get_mut(index)
        {
            entry.names.push((number, name.to_owned()));
        }
    }

    /// Takes an entry from all names that it hangs on, and returns the directories that may have
    /// become idle by that.
    fn unhang(&mut self, index: usize) -> Vec<i32> {
        let names = self.entries.get_mut(index).map(|entry| std::mem::take(&mut entry.names));
        let mut numbers = Vec::new();
        for (number, name) in names.unwrap_or_default() {
            if let Some(directory) = self.watched.get_mut(&number)
                && let Some(entries) = directory.names.get_mut(&name)
            {
                entries.remove(&index);
                if entries.is_empty() {
                    directory.names.remove(&name);
                }
                numbers.push(number);
            }
        }
        numbers
    }

    /// Stops watching those of `numbers` that nothing hangs on.
    fn drop_idle(&mut self, numbers: &[i32]) {
        for number in numbers {
            let idle = |it: &Directory| it.names.is_empty() && it.any.is_empty();
            if self.watched.get(number).is_some_and(idle) {
                self.watched.remove(number);
                if let Some(running) = &self.running {
                    // The directory may be gone, and its watch with it.
                    let _gone = inotify::remove_watch(&running.inotify, *number);
                }
            }
        }
    }
}

impl Companion for Watch {
    fn begin(&mut self, jail: BorrowedFd<'_>) -> Result<(), String> {
        let inotify = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).map_err(|e| {
            format!(
                "nothing can be watched, so no mask would stay ({e}): raise \
                 `fs.inotify.max_user_instances`"
            )
        })?;
        let home = self.home.as_ref().map_err(|e| format!("the jail cannot be left again: {e}"))?;
        let jail = match home.fetch(jail) {
            Ok(jail) => jail,
            // It has ended already, and nothing will be started in it.
            Err(Errno::SRCH) => return Ok(()),
            Err(error) => return Err(format!("the jail cannot be watched: {error}")),
        };
        sys::watch::wake_soon();
        self.running = Some(Running { jail, inotify, masks: None });
        self.visit(|watch| {
            let masks = Masks::attached(rustix::fs::CWD, MASKS)
                .map_err(|error| format!("the masks cannot be made inside: {error}"))?;
            if let Some(running) = &mut watch.running {
                running.masks = Some(masks);
            }
            for root in &mut watch.roots {
                let handle = walk::handle(&root.path)
                    .map_err(|e| format!("`{}` cannot be watched: {e}", shown(&root.path)))?;
                root.handle = Some(Rc::new(handle));
            }
            watch.look_at(sorted::set(0..watch.entries.len()), true)
        })
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.running.as_ref().map(|running| running.inotify.as_fd())
    }

    fn attend(&mut self) -> Result<(), String> {
        let concerned =
            self.concerned().map_err(|error| format!("the watch over the masks broke: {error}"))?;
        if concerned.is_empty() {
            return Ok(());
        }
        self.visit(|watch| watch.look_at(concerned, false))
    }

    fn end(&mut self) -> Result<(), String> {
        let done = self.clear_up();
        if let Some(running) = self.running.take() {
            let given = [running.inotify.as_fd(), running.jail.as_fd()];
            let later = sys::watch::close_later(&given);
            drop(running);
            drop(later);
        }
        done
    }
}

/// The tree that shows `path`.
fn tree<'a>(mounts: &'a [Mount], path: &Path) -> Option<&'a Mount> {
    mounts.iter().rev().find(|it| it.kind.is_tree() && path.starts_with(&it.destination))
}

/// The innermost of a tree and those around it whose own name the host cannot give to something else:
/// then that would be seen there without the mask. On an overlay, which has the hidden names once more, and in
/// the jail's own file systems the host changes no name.
fn firm<'a>(plan: &'a Plan, mut tree: &'a Mount) -> &'a Mount {
    let on_overlay = |path: &Path| {
        let lies_in = |around: &Path| path != around && path.starts_with(around);
        // Nor what is shown over one as it is on the host.
        plan.overlays.iter().any(|it| lies_in(&it.anchor))
            && !plan.rebinds.iter().any(|it| lies_in(&it.path))
    };
    while tree.kind.is_bind() && !on_overlay(&tree.destination) {
        let outer = tree.destination.parent().and_then(|above| self::tree(&plan.mounts, above));
        match outer {
            Some(outer) if outer.kind.is_bind() => tree = outer,
            _ => break,
        }
    }
    tree
}

/// The components of a path, last first, `..` among them.
fn reversed(path: &[u8]) -> Vec<OsString> {
    let parts = path.split(|byte| *byte == b'/').rev();
    parts
        .filter(|part| !part.is_empty() && *part != b".")
        .map(|part| OsString::from_vec(part.to_vec()))
        .collect()
}
