//! The launcher's own namespaces. A user and a mount namespace: mounts that the host makes later stay out
//! (law 1), and what hides and protects is in place before bubblewrap binds anything, so that every
//! bind it makes carries it along (laws 2 and 9). And a PID namespace for its children, whose process 1
//! is bubblewrap's monitor: when that ends, the kernel ends all the others, also those that have not
//! come to setting a death signal yet (law 8).

#![expect(clippy::disallowed_methods, reason = "the id maps of the own namespace are written here")]

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{Access, FileType, Mode, OFlags, SeekFrom};
use rustix::io::Errno;
use rustix::mount::{MountPropagationFlags, OpenTreeFlags, mount_change, open_tree};

use super::plan::{Kind, Mount, shown};
use super::sorted;
use super::sys;

pub(super) mod hold;
pub(super) mod overlay;

use overlay::{Layers, Prepared};

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
    /// One held mount.
    #[error("`{}` cannot be {verb}: {source}", shown(path))]
    Hold {
        /// The path.
        path: PathBuf,
        /// What it shall be.
        verb: &'static str,
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

/// Puts everything in place that the launcher holds: overlays, what lies over them, pins and
/// protections, each after what is around it, and at last the masks.
pub(super) fn hold(prepared: Prepared, mounts: &[Mount]) -> Result<(), NamespaceError> {
    enum Step<'a> {
        Overlay(&'a OwnedFd),
        Fresh(&'a OwnedFd),
        Held(&'a Mount),
    }
    let depth = |path: &Path| path.components().count();
    let mut steps: Vec<((usize, u8), &Path, Step<'_>)> = Vec::new();
    for (path, tree) in &prepared.overlays {
        steps.push(((depth(path), 0), path, Step::Overlay(tree)));
    }
    for (path, tree) in &prepared.rebinds {
        steps.push(((depth(path), 1), path, Step::Fresh(tree)));
    }
    for mount in mounts.iter().filter(|mount| mount.kind.is_held()) {
        let path = mount.destination.as_path();
        let place = match mount.kind {
            Kind::Pin => (depth(path), 2),
            Kind::Protect => (depth(path), 3),
            // Nothing else lies on a mask.
            _ => (usize::MAX, 0),
        };
        steps.push((place, path, Step::Held(mount)));
    }
    // Stable: masks stay in the order of the plan.
    sorted::by(&mut steps, |(a, ..), (b, ..)| a.cmp(b));
    let held = steps.iter().any(|(.., step)| matches!(step, Step::Held(_)));
    let layers = match prepared.layers {
        None if held => Some(Layers::new().map_err(NamespaceError::Source)?),
        layers => layers,
    };
    let masks = layers.as_ref().filter(|_| held).map(Layers::masks).transpose();
    let masks = masks.map_err(NamespaceError::Source)?;
    let done = steps.into_iter().try_for_each(|(_, path, step)| {
        let to = || path.to_path_buf();
        match (step, &masks) {
            (Step::Overlay(tree), _) => overlay::attach(tree.as_fd(), path)
                .map_err(|source| NamespaceError::Place { path: to(), source }),
            (Step::Fresh(tree), _) => overlay::attach(tree.as_fd(), path)
                .map_err(|source| NamespaceError::Fresh { path: to(), source }),
            (Step::Held(mount), Some(masks)) => {
                hold::one(mount, masks).map_err(|source| NamespaceError::Hold {
                    path: to(),
                    verb: if mount.kind.is_mask() { "hidden" } else { "kept as it is" },
                    source,
                })
            }
            (Step::Held(_), None) => Ok(()),
        }
    });
    if let Some(layers) = layers {
        layers.detach().map_err(NamespaceError::Source)?;
    }
    done
}
