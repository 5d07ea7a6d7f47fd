//! The mounts that the launcher makes itself, over names that stay where they are: masks (law 2),
//! read-only files and directories, and pins (law 9). The same steps serve in the launcher's own
//! namespace before bubblewrap, and in the jail's, when the host has replaced a name. It knows
//! neither why a path is held nor when.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, StatVfsMountFlags, StatxFlags};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MoveMountFlags, OpenTreeFlags, fsconfig_create,
    fsconfig_set_string, fsmount, fsopen, move_mount, open_tree,
};

use super::super::plan::{Kind, Mount};
use super::super::sys;

/// Makes one held mount of a plan.
pub(super) fn one(mount: &Mount, masks: &Masks) -> Result<(), Errno> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let name = mount.destination.as_os_str().as_bytes();
    let target = match rustix::fs::open(name, flags, Mode::empty()) {
        Ok(target) => target,
        // Gone since the plan, or out of reach of these ids, which the inside has too. The watch
        // looks again before the program starts.
        Err(Errno::NOENT | Errno::NOTDIR | Errno::ACCESS) => return Ok(()),
        Err(error) => return Err(error),
    };
    // bubblewrap sets the flags of each mount by its path, which would lead on to the link's target:
    // a link is held by the watch, in the jail's own namespace.
    if kind_of(&target)? == FileType::Symlink {
        return Ok(());
    }
    match put(&mount.kind, target.as_fd(), masks) {
        // Removed in between.
        Err(Errno::NOENT) => Ok(()),
        done => done,
    }
}

fn kind_of(target: impl AsFd) -> Result<FileType, Errno> {
    rustix::fs::fstat(target).map(|stat| FileType::from_raw_mode(stat.st_mode))
}

/// Makes one held mount over what `target` is a handle of.
pub(in super::super) fn put(
    kind: &Kind,
    target: BorrowedFd<'_>,
    masks: &Masks,
) -> Result<(), Errno> {
    let tree = if kind.is_mask() {
        // By what is there, not by what was there at the start.
        masks.clone_of(kind_of(target)? == FileType::Directory)?
    } else {
        let tree = open_tree(
            target,
            "",
            // Mounts that lie below go along: a part of a tree cannot be had without them where it
            // came from a namespace with more rights (mount_namespaces(7)).
            OpenTreeFlags::OPEN_TREE_CLONE
                | OpenTreeFlags::OPEN_TREE_CLOEXEC
                | OpenTreeFlags::AT_EMPTY_PATH
                | OpenTreeFlags::AT_RECURSIVE,
        )?;
        if *kind == Kind::Protect {
            sys::watch::seal_all(tree.as_fd()).map_err(|error| errno(&error))?;
        }
        tree
    };
    move_mount(
        &tree,
        "",
        target,
        "",
        MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH,
    )
}

fn errno(error: &io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}

/// Whether what `kind` stands for is in place already. Nobody but the launcher mounts in the
/// namespaces where this is asked.
pub(in super::super) fn is_in_place(kind: &Kind, target: BorrowedFd<'_>) -> Result<bool, Errno> {
    let mount = rustix::fs::fstatvfs(target)?;
    let read_only = mount.f_flag.contains(StatVfsMountFlags::RDONLY);
    if !kind.is_mask() && read_only {
        // Neither it nor its name can be changed.
        return Ok(true);
    }
    if *kind == Kind::Protect {
        return Ok(false);
    }
    let found = rustix::fs::statx(target, "", AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS)?;
    let is_root = found.stx_attributes.contains(rustix::fs::StatxAttributes::MOUNT_ROOT);
    if !kind.is_mask() {
        return Ok(is_root);
    }
    let mode = Mode::from_raw_mode(found.stx_mode.into());
    let is_mask = mode == FILE_MODE && found.stx_size == 0 || mode == DIRECTORY_MODE;
    Ok(is_root && read_only && is_mask && rustix::fs::fstatfs(target)?.f_type == TMPFS)
}

/// `TMPFS_MAGIC` of statfs(2).
const TMPFS: rustix::fs::FsWord = 0x0102_1994;
const FILE_MODE: Mode = Mode::from_bits_retain(0o444);
const DIRECTORY_MODE: Mode = Mode::from_bits_retain(0o555);

/// A read-only file system with one empty file and one empty directory, which all masks show.
#[derive(Debug)]
pub(in super::super) struct Masks {
    root: OwnedFd,
}

const FILE: &str = "file";
const DIRECTORY: &str = "directory";

impl Masks {
    /// Makes it and attaches it at `place` below `directory`: before Linux 6.15 only what is attached
    /// can be cloned.
    pub(in super::super) fn attached(
        directory: impl AsFd,
        place: impl rustix::path::Arg,
    ) -> Result<Self, Errno> {
        let context = fsopen("tmpfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
        fsconfig_set_string(&context, "mode", "0755")?;
        fsconfig_set_string(&context, "size", "4096")?;
        fsconfig_create(&context)?;
        let root = fsmount(
            &context,
            FsMountFlags::FSMOUNT_CLOEXEC,
            MountAttrFlags::MOUNT_ATTR_NOSUID
                | MountAttrFlags::MOUNT_ATTR_NODEV
                | MountAttrFlags::MOUNT_ATTR_NOEXEC,
        )?;
        let file = rustix::fs::openat(
            &root,
            FILE,
            OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC,
            Mode::empty(),
        )?;
        rustix::fs::fchmod(&file, FILE_MODE)?;
        rustix::fs::mkdirat(&root, DIRECTORY, DIRECTORY_MODE)?;
        rustix::fs::chmodat(&root, DIRECTORY, DIRECTORY_MODE, AtFlags::empty())?;
        drop(file);
        sys::watch::seal_all(root.as_fd()).map_err(|error| errno(&error))?;
        move_mount(&root, "", directory, place, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)?;
        Ok(Self { root })
    }

    fn clone_of(&self, directory: bool) -> Result<OwnedFd, Errno> {
        open_tree(
            &self.root,
            if directory { DIRECTORY } else { FILE },
            OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC,
        )
    }
}
