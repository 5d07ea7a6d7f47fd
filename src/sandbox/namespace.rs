//! The launcher's own namespaces. A user and a mount namespace: mounts that the host makes later stay out
//! (law 1), and what hides and protects is in place before bubblewrap binds anything, so that every
//! bind it makes carries it along (laws 2 and 9). And a PID namespace for its children, whose process 1
//! is bubblewrap's monitor: when that ends, the kernel ends all the others, also those that have not
//! come to setting a death signal yet (law 8).

#![expect(clippy::disallowed_methods, reason = "the id maps of the own namespace are written here")]

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, CWD, FileType, Mode, OFlags, SeekFrom};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MountFlags, MountPropagationFlags, MoveMountFlags,
    OpenTreeFlags, UnmountFlags, fsconfig_create, fsconfig_set_string, fsmount, fsopen,
    mount_change, mount_remount, move_mount, open_tree, unmount,
};

use super::plan::{Kind, Mount, shown};
use super::sys;

pub(super) mod overlay;

use overlay::Prepared;

/// Why the own namespace or a mask could not be made.
#[derive(Debug, thiserror::Error)]
pub enum NamespaceError {
    /// The kernel refused a user namespace.
    #[error("the kernel refuses a user namespace: {0}")]
    Unshare(#[source] io::Error),
    /// The id maps could not be written.
    #[error("the ids of the user namespace cannot be set: {0}")]
    Map(#[source] io::Error),
    /// The kernel gave a namespace without the right to mount in it.
    #[error("the kernel gives a user namespace but refuses mounts in it: {0}")]
    Mount(#[source] Errno),
    /// The file system that the masks are made of.
    #[error("the masks cannot be made: {0}")]
    Source(#[source] Errno),
    /// What shall lie over an overlay as it is on the host.
    #[error("`{}` cannot be shown as it is: {source}", shown(path))]
    Fresh {
        /// The path.
        path: PathBuf,
        /// What the kernel said.
        #[source]
        source: Errno,
    },
    /// An overlay that was made cannot be put in place.
    #[error("the overlay cannot be put on `{}`: {source}", shown(path))]
    Place {
        /// The directory.
        path: PathBuf,
        /// What the kernel said.
        #[source]
        source: Errno,
    },
    /// One protection.
    #[error("`{}` cannot be held read-only: {source}", shown(path))]
    Protect {
        /// The path.
        path: PathBuf,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
    /// One mask.
    #[error("`{}` cannot be hidden: {source}", shown(path))]
    Mask {
        /// The denied path.
        path: PathBuf,
        /// What the kernel said.
        #[source]
        source: Errno,
    },
}

/// Enters the own namespaces, with the caller's ids and no propagation; `own_processes` says whether
/// children get a PID namespace as well.
pub(super) fn enter(own_processes: bool) -> Result<(), NamespaceError> {
    let uid = rustix::process::geteuid().as_raw();
    let gid = rustix::process::getegid().as_raw();
    let processes = if own_processes { libc::CLONE_NEWPID } else { 0 };
    sys::unshare(libc::CLONE_NEWUSER | libc::CLONE_NEWNS | processes)
        .map_err(NamespaceError::Unshare)?;
    for (file, text) in [
        ("setgroups", "deny".to_owned()),
        ("uid_map", format!("{uid} {uid} 1")),
        ("gid_map", format!("{gid} {gid} 1")),
    ] {
        std::fs::write(Path::new("/proc/self").join(file), text).map_err(NamespaceError::Map)?;
    }
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)
        .map_err(NamespaceError::Mount)
}

/// Exchanges a file that standard input reads for the same one on a read-only mount, and returns the
/// caller's own descriptor. Otherwise the inside could open it again by `/proc/self/fd/0`, past the
/// jail's mounts, and write it (law 5). Call it before the masks are there.
pub(super) fn read_only_input() -> io::Result<Option<OwnedFd>> {
    let input = rustix::stdio::stdin();
    let stat = rustix::fs::fstat(input)?;
    let access = rustix::fs::fcntl_getfl(input)? & OFlags::ACCMODE;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile
        || access != OFlags::RDONLY
        || stat.st_nlink == 0
    {
        return Ok(None);
    }
    // A file that has no name here is out of reach of a look-up, so no mount can be made of it.
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let Ok(file) = std::fs::read_link("/proc/self/fd/0")
        .and_then(|name| Ok(rustix::fs::open(name, flags, Mode::empty())?))
    else {
        return Ok(None);
    };
    let found = rustix::fs::fstat(&file)?;
    if (found.st_dev, found.st_ino) != (stat.st_dev, stat.st_ino) {
        return Ok(None);
    }
    let clone = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_EMPTY_PATH;
    let tree = open_tree(&file, "", clone)?;
    sys::seal(tree.as_fd())?;
    let name = Path::new("/proc/self/fd").join(tree.as_raw_fd().to_string());
    let sealed = match rustix::fs::open(name, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()) {
        Ok(sealed) => sealed,
        // Opened by somebody with more rights than the caller, who cannot open it again.
        Err(Errno::ACCESS)
            if stat.st_uid != rustix::process::geteuid().as_raw()
                && rustix::fs::access("/proc/self/fd/0", Access::WRITE_OK).is_err() =>
        {
            return Ok(None);
        }
        Err(error) => return Err(error.into()),
    };
    let own = rustix::io::fcntl_dupfd_cloexec(input, 3)?;
    copy_offset(&own, &sealed)?;
    rustix::stdio::dup2_stdin(sealed)?;
    Ok(Some(own))
}

/// Sets the place where `to` is read next to that of `from`.
pub(super) fn copy_offset(from: impl AsFd, to: impl AsFd) -> io::Result<()> {
    let offset = rustix::fs::tell(from)?;
    rustix::fs::seek(to, SeekFrom::Start(offset))?;
    Ok(())
}

/// Puts everything in place that the launcher holds: overlays, what lies over them, protections, each
/// after what is around it, and at last the masks.
pub(super) fn hold(prepared: &Prepared, mounts: &[Mount]) -> Result<(), NamespaceError> {
    enum Step<'a> {
        Overlay(&'a OwnedFd),
        Fresh(&'a OwnedFd),
        Pin,
        Protect,
    }
    let depth = |path: &Path| path.components().count();
    let mut steps: Vec<(usize, u8, &Path, Step<'_>)> = Vec::new();
    for (path, tree) in &prepared.overlays {
        steps.push((depth(path), 0, path, Step::Overlay(tree)));
    }
    for (path, tree) in &prepared.rebinds {
        steps.push((depth(path), 1, path, Step::Fresh(tree)));
    }
    for mount in mounts {
        let path = mount.destination.as_path();
        match mount.kind {
            Kind::Pin => steps.push((depth(path), 2, path, Step::Pin)),
            Kind::Protect => steps.push((depth(path), 3, path, Step::Protect)),
            _ => {}
        }
    }
    steps.sort_by_key(|(depth, rank, ..)| (*depth, *rank));
    for (_, _, path, step) in steps {
        let to = || path.to_path_buf();
        match step {
            Step::Overlay(tree) => overlay::attach(tree.as_fd(), path)
                .map_err(|source| NamespaceError::Place { path: to(), source })?,
            Step::Fresh(tree) => overlay::attach(tree.as_fd(), path)
                .map_err(|source| NamespaceError::Fresh { path: to(), source })?,
            Step::Pin => protect(path, false)?,
            Step::Protect => protect(path, true)?,
        }
    }
    mask(mounts)
}

/// Mounts a path on itself, so that it cannot be renamed or removed, and read-only if wished.
pub(super) fn protect(path: &Path, read_only: bool) -> Result<(), NamespaceError> {
    let told = |source: io::Error| NamespaceError::Protect { path: path.to_path_buf(), source };
    let tree = overlay::clone_of(path).map_err(|error| told(error.into()))?;
    if read_only {
        sys::seal(tree.as_fd()).map_err(told)?;
    }
    overlay::attach(tree.as_fd(), path).map_err(|error| told(error.into()))
}

fn mask(mounts: &[Mount]) -> Result<(), NamespaceError> {
    if !mounts.iter().any(|mount| mount.kind.is_mask()) {
        return Ok(());
    }
    let source = Source::new().map_err(NamespaceError::Source)?;
    let mut done = Ok(());
    for mount in mounts.iter().filter(|mount| mount.kind.is_mask()) {
        done = source
            .cover(&mount.destination, mount.kind == Kind::MaskDirectory)
            .map_err(|source| NamespaceError::Mask { path: mount.destination.clone(), source });
        if done.is_err() {
            break;
        }
    }
    source.detach().map_err(NamespaceError::Source)?;
    done
}

/// A read-only file system with one empty file and one empty directory, which all masks show.
struct Source {
    root: OwnedFd,
}

const FILE: &str = "file";
const DIRECTORY: &str = "directory";

impl Source {
    fn new() -> Result<Self, Errno> {
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
        rustix::fs::fchmod(&file, Mode::from_raw_mode(0o444))?;
        rustix::fs::mkdirat(&root, DIRECTORY, Mode::from_raw_mode(0o555))?;
        drop(file);
        // Older kernels clone only what is attached. It lies over `/` for a moment, where no look-up
        // of this process passes, since its root is the directory below.
        move_mount(&root, "", CWD, "/", MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)?;
        let source = Self { root };
        mount_remount(
            source.name(),
            MountFlags::BIND
                | MountFlags::RDONLY
                | MountFlags::NOSUID
                | MountFlags::NODEV
                | MountFlags::NOEXEC,
            "",
        )?;
        Ok(source)
    }

    fn name(&self) -> PathBuf {
        Path::new("/proc/self/fd").join(self.root.as_raw_fd().to_string())
    }

    fn detach(self) -> Result<(), Errno> {
        unmount(self.name(), UnmountFlags::DETACH)
    }

    fn cover(&self, path: &Path, directory: bool) -> Result<(), Errno> {
        let mut flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        if directory {
            flags |= OFlags::DIRECTORY;
        }
        let target = match rustix::fs::open(path.as_os_str().as_bytes(), flags, Mode::empty()) {
            Ok(target) => target,
            // Gone since the plan, or out of reach of these ids, which the inside has too.
            Err(Errno::NOENT | Errno::ACCESS) => return Ok(()),
            Err(error) => return Err(error),
        };
        let mask = open_tree(
            &self.root,
            if directory { DIRECTORY } else { FILE },
            OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC,
        )?;
        move_mount(
            &mask,
            "",
            &target,
            "",
            MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH,
        )
    }
}
