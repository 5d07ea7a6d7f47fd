//! Read-only overlays that hold denied names whatever the host does (law 2), and what lies over them
//! as it is on the host.
//!
//! An overlay has up to three layers. The top one has the names: empty files, empty directories,
//! symbolic links as they were, and whiteouts (character devices 0/0, which an unprivileged user may
//! make, Linux 5.8) for what shall stay absent. The middle one has a whiteout under each empty
//! directory, which keeps the directory below out without any attribute (a tmpfs has none before
//! Linux 6.6). The lowest is the real directory. Both upper ones lie in memory; nothing is written to
//! the host at any time (law 3). Linux 5.11 is the first with overlays for unprivileged users.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{Access, AtFlags, CWD, FileType, Gid, Mode, OFlags, Timestamps, Uid, fchown};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MoveMountFlags, OpenTreeFlags, UnmountFlags,
    fsconfig_create, fsconfig_set_flag, fsconfig_set_string, fsmount, fsopen, move_mount,
    open_tree, unmount,
};

use super::super::plan::{NameKind, Overlay, Plan};
use super::NamespaceError;
use super::hold::Masks;

/// An overlay that the kernel refuses, and what it said. The plan is made anew without it.
#[derive(Debug)]
pub(in super::super) struct Refused {
    /// The directory.
    pub(in super::super) anchor: PathBuf,
    /// The kernel's word.
    pub(in super::super) source: Errno,
}

/// Overlays and clones that are made and not in place yet.
#[derive(Debug)]
pub(in super::super) struct Prepared {
    pub(super) overlays: Vec<(PathBuf, OwnedFd)>,
    pub(super) rebinds: Vec<(PathBuf, OwnedFd)>,
    /// What the overlays are made of, still attached: one unmount, which waits for every processor,
    /// takes it and the masks away.
    pub(super) layers: Option<Layers>,
}

/// Makes the overlays of a plan and clones what shall lie over them, all before the first is in place:
/// found through another overlay, a third would be one level too deep for the kernel.
///
/// # Errors
/// [`NamespaceError`] when something else than a single overlay cannot be made; the inner result has
/// every overlay that the kernel refuses.
pub(in super::super) fn prepare(
    plan: &Plan,
) -> Result<Result<Prepared, Vec<Refused>>, NamespaceError> {
    let told = |path: &Path| {
        let path = path.to_path_buf();
        move |source| NamespaceError::Fresh { path, source }
    };
    let mut rebinds = Vec::new();
    for rebind in &plan.rebinds {
        let tree = clone_of(&rebind.path).map_err(told(&rebind.path))?;
        rebinds.push((rebind.path.clone(), tree));
    }
    let mut overlays = Vec::new();
    let mut refused = Vec::new();
    if plan.overlays.is_empty() {
        return Ok(Ok(Prepared { overlays, rebinds, layers: None }));
    }
    let layers = Layers::new().map_err(NamespaceError::Source)?;
    for (number, overlay) in plan.overlays.iter().enumerate() {
        match layers.overlay(number, overlay) {
            Ok(tree) => overlays.push((overlay.anchor.clone(), tree)),
            Err(source) => refused.push(Refused { anchor: overlay.anchor.clone(), source }),
        }
    }
    if refused.is_empty() {
        return Ok(Ok(Prepared { overlays, rebinds, layers: Some(layers) }));
    }
    layers.detach().map_err(NamespaceError::Source)?;
    Ok(Err(refused))
}

/// A copy of what is mounted at a path, with all that is mounted below.
pub(in super::super) fn clone_of(path: &Path) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let handle = rustix::fs::open(path, flags, Mode::empty())?;
    open_tree(
        &handle,
        "",
        OpenTreeFlags::OPEN_TREE_CLONE
            | OpenTreeFlags::OPEN_TREE_CLOEXEC
            | OpenTreeFlags::AT_EMPTY_PATH
            | OpenTreeFlags::AT_RECURSIVE,
    )
}

/// Mounts a tree on what is at a path.
pub(in super::super) fn attach(tree: BorrowedFd<'_>, path: &Path) -> Result<(), Errno> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let target = rustix::fs::open(path, flags, Mode::empty())?;
    move_mount(
        tree,
        "",
        &target,
        "",
        MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH,
    )
}

/// The names of one overlay as a tree.
#[derive(Debug, Default)]
struct Node<'a> {
    below: BTreeMap<&'a OsStr, Node<'a>>,
    kind: Option<&'a NameKind>,
}

impl<'a> Node<'a> {
    fn of(overlay: &'a Overlay) -> Self {
        let mut root = Self::default();
        for name in overlay.names.iter().chain(&overlay.under) {
            let Ok(below) = name.path.strip_prefix(&overlay.anchor) else { continue };
            let mut node = &mut root;
            for part in below.components() {
                if let Component::Normal(part) = part {
                    node = node.below.entry(part).or_default();
                }
            }
            node.kind = Some(&name.kind);
        }
        root
    }

    /// Whether an empty directory is in it, which needs something under it.
    fn has_directory(&self) -> bool {
        self.kind == Some(&NameKind::Directory) || self.below.values().any(Self::has_directory)
    }
}

/// A file system in memory with the upper layers of all overlays.
#[derive(Debug)]
pub(super) struct Layers {
    root: OwnedFd,
}

const DIRECTORY: OFlags =
    OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// A directory of a layer, which is this process's own.
const LAYER: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

impl Layers {
    pub(super) fn new() -> Result<Self, Errno> {
        let context = fsopen("tmpfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
        fsconfig_set_string(&context, "mode", "0700")?;
        fsconfig_create(&context)?;
        let root = fsmount(
            &context,
            FsMountFlags::FSMOUNT_CLOEXEC,
            MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV,
        )?;
        // Older kernels take as a layer only what is attached. It lies over `/` for a moment, where
        // no look-up of this process passes, since its root is the directory below.
        move_mount(&root, "", CWD, "/", MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)?;
        Ok(Self { root })
    }

    /// What masks are made of, attached below, so that it goes with this.
    pub(super) fn masks(&self) -> Result<Masks, Errno> {
        const PLACE: &str = "masks";
        rustix::fs::mkdirat(&self.root, PLACE, Mode::RWXU)?;
        Masks::attached(&self.root, PLACE)
    }

    /// Takes it away again; the overlays keep their layers, and what was cloned of the masks stays.
    pub(super) fn detach(self) -> Result<(), Errno> {
        unmount(name_of(self.root.as_fd()), UnmountFlags::DETACH)
    }

    fn overlay(&self, number: usize, overlay: &Overlay) -> Result<OwnedFd, Errno> {
        let real = rustix::fs::open(&overlay.anchor, DIRECTORY, Mode::empty())?;
        let names = Node::of(overlay);
        let layer = |kind: &str| {
            let name = format!("{kind}{number}");
            rustix::fs::mkdirat(&self.root, &name, Mode::RWXU)?;
            rustix::fs::openat(&self.root, name, LAYER, Mode::empty())
        };
        let top = layer("top")?;
        let middle = if names.has_directory() { Some(layer("middle")?) } else { None };
        // What is made below has the modes that are said.
        let umask = rustix::process::umask(Mode::empty());
        let filled = fill(&names, top.as_fd(), middle.as_ref().map(AsFd::as_fd), real.as_fd());
        rustix::process::umask(umask);
        filled?;

        let context = fsopen("overlay", FsOpenFlags::FSOPEN_CLOEXEC)?;
        // Descriptors instead of paths: no character of a path means anything here, and the table of
        // mounts inside tells no name.
        let mut lower = OsString::new();
        for (index, layer) in
            [Some(&top), middle.as_ref(), Some(&real)].into_iter().flatten().enumerate()
        {
            if index > 0 {
                lower.push(":");
            }
            lower.push(name_of(layer.as_fd()));
        }
        fsconfig_set_string(&context, "lowerdir", lower.as_bytes())?;
        fsconfig_set_flag(&context, "userxattr")?;
        fsconfig_set_flag(&context, "ro")?;
        fsconfig_create(&context)?;
        let mut attributes = MountAttrFlags::MOUNT_ATTR_NOSUID
            | MountAttrFlags::MOUNT_ATTR_NODEV
            | MountAttrFlags::MOUNT_ATTR_RDONLY;
        let below = rustix::fs::fstatvfs(&real)?;
        if below.f_flag.contains(rustix::fs::StatVfsMountFlags::NOEXEC) {
            attributes |= MountAttrFlags::MOUNT_ATTR_NOEXEC;
        }
        fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes)
    }
}

fn name_of(fd: BorrowedFd<'_>) -> PathBuf {
    Path::new("/proc/self/fd").join(fd.as_raw_fd().to_string())
}

/// Fills the upper layers of one directory, whose real one gives its looks.
fn fill(
    names: &Node<'_>,
    top: BorrowedFd<'_>,
    middle: Option<BorrowedFd<'_>>,
    real: BorrowedFd<'_>,
) -> Result<(), Errno> {
    let whiteout = |at: BorrowedFd<'_>, name: &OsStr| {
        rustix::fs::mknodat(at, name, FileType::CharacterDevice, Mode::empty(), 0)
    };
    for (name, node) in &names.below {
        match node.kind {
            Some(NameKind::File) => {
                let mode = Mode::from_raw_mode(0o444);
                rustix::fs::mknodat(top, *name, FileType::RegularFile, mode, 0)?;
            }
            Some(NameKind::Absent) => whiteout(top, name)?,
            Some(NameKind::Link(target)) => rustix::fs::symlinkat(target, top, *name)?,
            Some(NameKind::Directory) => {
                rustix::fs::mkdirat(top, *name, Mode::from_raw_mode(0o555))?;
                if let Some(middle) = middle {
                    whiteout(middle, name)?;
                }
            }
            None => match rustix::fs::openat(real, *name, DIRECTORY, Mode::empty()) {
                Ok(real) => {
                    let enter = |at: BorrowedFd<'_>| {
                        rustix::fs::mkdirat(at, *name, Mode::RWXU)?;
                        rustix::fs::openat(at, *name, LAYER, Mode::empty())
                    };
                    let top = enter(top)?;
                    let middle = match middle {
                        Some(middle) if node.has_directory() => Some(enter(middle)?),
                        _ => None,
                    };
                    fill(node, top.as_fd(), middle.as_ref().map(AsFd::as_fd), real.as_fd())?;
                }
                // Gone since the plan: whatever comes there has not been looked at. Or out of reach of these
                // ids, which the inside has too.
                Err(Errno::NOENT | Errno::ACCESS) => whiteout(top, name)?,
                Err(Errno::NOTDIR | Errno::LOOP) => {
                    let stat = rustix::fs::statat(real, *name, AtFlags::SYMLINK_NOFOLLOW)?;
                    // Below a file there is nothing. A link was none when the plan was made.
                    if FileType::from_raw_mode(stat.st_mode) == FileType::Symlink {
                        whiteout(top, name)?;
                    }
                }
                Err(error) => return Err(error),
            },
        }
    }
    looks(top, real)
}

/// Gives a directory of the top layer the owner, mode and time of the real one, which an overlay takes
/// from the highest layer. An owner that has no number here is left out; then the owner's
/// bits are what the caller may do.
fn looks(top: BorrowedFd<'_>, real: BorrowedFd<'_>) -> Result<(), Errno> {
    let stat = rustix::fs::fstat(real)?;
    let mut mode = stat.st_mode & 0o7777;
    let (uid, gid) = (Uid::from_raw(stat.st_uid), Gid::from_raw(stat.st_gid));
    let own = rustix::fs::fstat(top)?;
    let owned = if own.st_uid == stat.st_uid { Ok(()) } else { fchown(top, Some(uid), None) };
    // The group is the looks only: it has at most the owner's or everybody's rights.
    let grouped = if own.st_gid == stat.st_gid { Ok(()) } else { fchown(top, None, Some(gid)) };
    if owned.is_err() || grouped.is_err() {
        let real = name_of(real);
        let may = |access, bit: u32| {
            let may = rustix::fs::accessat(CWD, &real, access, AtFlags::empty()).is_ok();
            if may { bit } else { 0 }
        };
        let bits = may(Access::READ_OK, 4) | may(Access::EXEC_OK, 1) | (mode >> 6) & 2;
        if owned.is_err() {
            mode = (mode & !0o700) | (bits << 6);
        }
        if grouped.is_err() {
            mode = (mode & !0o070) | (bits << 3);
        }
    }
    rustix::fs::fchmod(top, Mode::from_raw_mode(mode))?;
    let time = |seconds, nanoseconds: u64| rustix::fs::Timespec {
        tv_sec: seconds,
        tv_nsec: i64::try_from(nanoseconds).unwrap_or(0),
    };
    let times = Timestamps {
        last_access: time(stat.st_atime, stat.st_atime_nsec),
        last_modification: time(stat.st_mtime, stat.st_mtime_nsec),
    };
    rustix::fs::futimens(top, &times)
}

/// The overlays of a plan that the kernel refuses, each with its words; `None` when it makes all. Call
/// it in a namespace of one's own. Nothing is put in place.
pub(in super::super) fn refused(plan: &Plan) -> Option<Vec<(PathBuf, String)>> {
    let layers = Layers::new().ok()?;
    let words: Vec<(PathBuf, String)> = plan
        .overlays
        .iter()
        .enumerate()
        .filter_map(|(number, it)| {
            let error = layers.overlay(number, it).err()?;
            Some((it.anchor.clone(), error.to_string()))
        })
        .collect();
    // Nothing is done after this that could see them.
    let _ = layers.detach();
    (!words.is_empty()).then_some(words)
}
