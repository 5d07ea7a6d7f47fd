//! Makes the view of a plan in the jail's own mount namespace: after bubblewrap has made its namespaces
//! and before the program starts. Until then only the last stage is there, which waits.
//!
//! bubblewrap gets the machine's root and `/proc` alone. It would read the whole table of mounts again
//! for every further bind, which costs more than all else of a start.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FileType, Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsconfig_set_flag,
    fsconfig_set_string, fsmount, fsopen,
};

use super::namespace::NamespaceError;
use super::namespace::overlay::{attach, clone_of};
use super::plan::{Kind, Mount, Plan, shown};
use super::supervise::Companion;
use super::sys;
use super::watch::Home;

/// The devices of a minimal `/dev`, as bubblewrap's `--dev` has them.
const DEVICES: [&str; 6] = ["null", "zero", "full", "random", "urandom", "tty"];

/// Its links.
const LINKS: [(&str, &str); 6] = [
    ("stdin", "/proc/self/fd/0"),
    ("stdout", "/proc/self/fd/1"),
    ("stderr", "/proc/self/fd/2"),
    ("fd", "/proc/self/fd"),
    ("core", "/proc/kcore"),
    ("ptmx", "pts/ptmx"),
];

/// What is made where.
#[derive(Debug)]
struct Step {
    path: PathBuf,
    what: What,
}

#[derive(Debug)]
enum What {
    /// Files of the host, with the masks and protections that the launcher holds over them.
    Tree(OwnedFd),
    /// What is at the path in the jail, read-only.
    ReadOnly,
    /// A file system in memory.
    Memory {
        mode: u32,
        size: u64,
    },
    /// The devices by their names.
    Devices(Vec<(&'static str, OwnedFd)>),
    Directory(u32),
    Link(PathBuf),
    File(String),
    Seal,
}

/// The mounts that are still to be made.
#[derive(Debug)]
pub(super) struct View {
    home: Home,
    steps: Vec<Step>,
    /// Whether the jail has a `/proc` of its own, which the host cannot tell the names of.
    own_proc: bool,
}

/// Whether bubblewrap makes a mount, and not [`View`].
pub(super) fn is_first(mount: &Mount) -> bool {
    mount.kind == Kind::Proc || mount.destination == Path::new("/")
}

impl View {
    /// Takes hold of everything that the plan shows, in the launcher's own namespace and after what
    /// that holds is in place.
    ///
    /// # Errors
    /// [`NamespaceError::Fresh`] for what cannot be shown.
    pub(super) fn new(plan: &Plan) -> Result<Self, NamespaceError> {
        let fails = |path: &Path| {
            let path = path.to_path_buf();
            move |source| NamespaceError::Fresh { path, source }
        };
        let home = Home::here().map_err(fails(Path::new("/proc/self/ns/mnt")))?;
        let own_proc = plan.mounts.iter().any(|mount| mount.kind == Kind::Proc);
        let mut steps = Vec::new();
        for mount in plan.mounts.iter().filter(|mount| !is_first(mount)) {
            let path = mount.destination.as_path();
            let tree = |from: &Path, read_only| tree(from, read_only).map_err(fails(from));
            let what = match &mount.kind {
                // Of the jail's own processes, which this namespace does not show.
                Kind::ReadOnly if own_proc && path.starts_with("/proc") => What::ReadOnly,
                Kind::ReadOnly => What::Tree(tree(path, true)?),
                Kind::ReadOnlyFrom(from) => What::Tree(tree(from, true)?),
                Kind::Writable => What::Tree(tree(path, false)?),
                Kind::WritableFrom(from) => What::Tree(tree(from, false)?),
                Kind::Tmpfs { mode, size } => What::Memory { mode: *mode, size: *size },
                Kind::Dev => What::Devices(devices().map_err(fails(path))?),
                Kind::Directory { mode } => What::Directory(*mode),
                Kind::Link(target) => What::Link(target.clone()),
                Kind::Marker => What::File(plan.marker.clone()),
                Kind::Seal => What::Seal,
                // In place before bubblewrap starts, or waited for, or bubblewrap's.
                Kind::Proc
                | Kind::Protect
                | Kind::Pin
                | Kind::MaskFile
                | Kind::MaskDirectory
                | Kind::EmptyFile
                | Kind::EmptyDirectory
                | Kind::Forbidden
                | Kind::Worktrees => continue,
            };
            steps.push(Step { path: path.to_path_buf(), what });
        }
        Ok(Self { home, steps, own_proc })
    }
}

impl Companion for View {
    fn begin(&mut self, jail: BorrowedFd<'_>) -> Result<(), String> {
        let steps = std::mem::take(&mut self.steps);
        let made = self.home.visit(jail, || {
            // What is made has the modes that are said.
            let umask = rustix::process::umask(Mode::empty());
            let made = steps.into_iter().try_for_each(|Step { path, what }| {
                // A name that the kernel does not have needs no cover.
                let own = self.own_proc && path.starts_with("/proc");
                if own && rustix::fs::lstat(&path).err() == Some(Errno::NOENT) {
                    return Ok(());
                }
                what.make(&path).map_err(|error| refused(&path, error))
            });
            rustix::process::umask(umask);
            made
        });
        match made {
            Ok(made) => made,
            // It has ended already, and nothing will be started in it.
            Err(Errno::SRCH) => Ok(()),
            Err(error) => Err(format!("the jail cannot be entered to make its view: {error}")),
        }
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn attend(&mut self) -> Result<(), String> {
        Ok(())
    }

    fn end(&mut self) -> Result<(), String> {
        self.home.leave_behind();
        Ok(())
    }
}

fn refused(path: &Path, error: Errno) -> String {
    let link = || {
        rustix::fs::lstat(path)
            .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Symlink)
    };
    let repair = match error {
        Errno::INVAL if link() => {
            ": it is a symbolic link, on which nothing can be mounted: make it a directory (a bind \
             mount shows another one there)"
        }
        Errno::NOSPC => {
            ": the namespace has as many mounts as it may, raise `sysctl fs.mount-max`, or hide \
             directories instead of what is in them"
        }
        Errno::NOENT | Errno::NOTDIR => ": it was exchanged during the start, try again",
        _ => "",
    };
    format!("`{}` cannot be made inside ({error}){repair}", shown(path))
}

impl What {
    fn make(self, path: &Path) -> Result<(), Errno> {
        match self {
            Self::Tree(tree) => {
                let stat = rustix::fs::fstat(&tree)?;
                let directory = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
                place(path, directory)?;
                attach(tree.as_fd(), path)
            }
            Self::ReadOnly => {
                let tree = tree(path, true)?;
                attach(tree.as_fd(), path)
            }
            Self::Memory { mode, size } => {
                place(path, true)?;
                let tree = memory(mode, Some(size))?;
                attach(tree.as_fd(), path)
            }
            Self::Devices(devices) => {
                attach(memory(0o755, None)?.as_fd(), path)?;
                for (name, device) in devices {
                    let path = path.join(name);
                    place(&path, false)?;
                    attach(device.as_fd(), &path)?;
                }
                for (name, target) in LINKS {
                    rustix::fs::symlinkat(target, CWD, path.join(name))?;
                }
                rustix::fs::mkdir(path.join("shm"), Mode::from_raw_mode(0o755))?;
                let terminals = path.join("pts");
                rustix::fs::mkdir(&terminals, Mode::from_raw_mode(0o755))?;
                attach(self::terminals()?.as_fd(), &terminals)
            }
            Self::Directory(mode) => {
                place(path, true)?;
                rustix::fs::chmod(path, Mode::from_raw_mode(mode))
            }
            Self::Link(target) => {
                if let Some(parent) = path.parent() {
                    place(parent, true)?;
                }
                rustix::fs::symlinkat(target, CWD, path)
            }
            Self::File(text) => {
                let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
                let file = rustix::fs::open(path, flags, Mode::from_raw_mode(0o444))?;
                let mut rest = text.as_bytes();
                while !rest.is_empty() {
                    let written = rustix::io::write(&file, rest)?;
                    rest = rest.get(written..).unwrap_or_default();
                }
                Ok(())
            }
            Self::Seal => {
                let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let mount = rustix::fs::open(path, flags, Mode::empty())?;
                restrict(mount.as_fd(), MountAttrFlags::MOUNT_ATTR_RDONLY, false)
            }
        }
    }
}

/// Makes the name that something is mounted on, where there is none, in what the jail has of its own.
fn place(path: &Path, directory: bool) -> Result<(), Errno> {
    let parents = Mode::from_raw_mode(0o755);
    match rustix::fs::lstat(path) {
        Err(Errno::NOENT) => {}
        found => return found.map(drop),
    }
    if let Some(parent) = path.parent() {
        place(parent, true)?;
    }
    if directory {
        return rustix::fs::mkdir(path, parents);
    }
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
    rustix::fs::open(path, flags, Mode::from_raw_mode(0o444)).map(drop)
}

/// What is at a path with all that is mounted below, without setuid files and devices.
fn tree(path: &Path, read_only: bool) -> Result<OwnedFd, Errno> {
    let tree = clone_of(path)?;
    let mut attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
    if read_only {
        attributes |= MountAttrFlags::MOUNT_ATTR_RDONLY;
    }
    restrict(tree.as_fd(), attributes, true)?;
    Ok(tree)
}

fn devices() -> Result<Vec<(&'static str, OwnedFd)>, Errno> {
    let device = |path: &Path| {
        let tree = clone_of(path)?;
        restrict(tree.as_fd(), MountAttrFlags::MOUNT_ATTR_NOSUID, true)?;
        Ok(tree)
    };
    let mut devices = Vec::new();
    for name in DEVICES {
        devices.push((name, device(&Path::new("/dev").join(name))?));
    }
    // As bubblewrap's: the terminal of standard output.
    let output = rustix::stdio::stdout();
    if rustix::termios::isatty(output)
        && let Ok(name) = rustix::termios::ttyname(output, Vec::new())
        && let Ok(terminal) =
            device(Path::new(std::ffi::OsStr::new(name.to_string_lossy().as_ref())))
    {
        devices.push(("console", terminal));
    }
    Ok(devices)
}

/// An empty file system in memory, without a bound where its root is made read-only.
fn memory(mode: u32, size: Option<u64>) -> Result<OwnedFd, Errno> {
    let context = fsopen("tmpfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    // What `df` and `findmnt` show; without it they say `none`.
    fsconfig_set_string(&context, "source", "tmpfs")?;
    fsconfig_set_string(&context, "mode", format!("{mode:04o}"))?;
    if let Some(size) = size {
        fsconfig_set_string(&context, "size", size.to_string())?;
    }
    fsconfig_create(&context)?;
    let flags = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
    fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, flags)
}

/// Terminals of the jail's own (devpts(5)).
fn terminals() -> Result<OwnedFd, Errno> {
    let context = fsopen("devpts", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_set_string(&context, "source", "devpts")?;
    fsconfig_set_flag(&context, "newinstance")?;
    fsconfig_set_string(&context, "ptmxmode", "0666")?;
    fsconfig_set_string(&context, "mode", "620")?;
    fsconfig_create(&context)?;
    let flags = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, flags)
}

fn restrict(tree: BorrowedFd<'_>, what: MountAttrFlags, all: bool) -> Result<(), Errno> {
    sys::watch::restrict(tree, u64::from(what.bits()), all)
        .map_err(|error: io::Error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
}
