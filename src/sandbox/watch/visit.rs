//! The way into the jail's mount namespace and back. The launcher has one thread and holds all
//! rights over the namespaces that its children made, so the kernel lets it in (setns(2)).

use std::os::fd::{AsFd, BorrowedFd, IntoRawFd, OwnedFd};
use std::rc::Rc;

use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{chroot, fchdir};
use rustix::thread::{
    LinkNameSpaceType, ThreadNameSpaceType, move_into_link_name_space, move_into_thread_name_spaces,
};

use super::super::sys;
use super::Watch;

/// Where the launcher comes from.
#[derive(Debug, Clone)]
pub(in super::super) struct Home {
    /// This process's own /proc, whatever is mounted over it.
    proc: Rc<OwnedFd>,
    namespace: Rc<OwnedFd>,
    root: Rc<OwnedFd>,
    current: Rc<OwnedFd>,
}

impl Home {
    /// Remembers the own namespace, root and current directory.
    pub(in super::super) fn here() -> Result<Self, Errno> {
        let open = |path: &str, flags| {
            rustix::fs::openat(CWD, path, flags | OFlags::CLOEXEC, Mode::empty())
        };
        Ok(Self {
            proc: Rc::new(open("/proc", OFlags::PATH | OFlags::DIRECTORY)?),
            namespace: Rc::new(open("/proc/self/ns/mnt", OFlags::RDONLY)?),
            root: Rc::new(open("/", OFlags::PATH | OFlags::DIRECTORY)?),
            current: Rc::new(open(".", OFlags::PATH | OFlags::DIRECTORY)?),
        })
    }

    /// Goes into the namespace of a process and comes back with a handle of it, by which it can be
    /// entered also while its processes are dying.
    pub(super) fn fetch(&self, process: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
        move_into_thread_name_spaces(process, ThreadNameSpaceType::MOUNT)?;
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let handle = rustix::fs::openat(&self.proc, "self/ns/mnt", flags, Mode::empty());
        self.back()?;
        handle
    }

    /// Does something in the mount namespace of a process.
    ///
    /// # Errors
    /// What the kernel said when it could not be entered, or not be left again.
    pub(in super::super) fn visit<T>(
        &self,
        process: BorrowedFd<'_>,
        act: impl FnOnce() -> T,
    ) -> Result<T, Errno> {
        move_into_thread_name_spaces(process, ThreadNameSpaceType::MOUNT)?;
        let done = act();
        self.back()?;
        Ok(done)
    }

    /// Lets the own namespace outlive this process by a moment, so that whoever waits for this process does
    /// not wait until the kernel has taken every mount away. Nothing lives in it then.
    pub(in super::super) fn leave_behind(&self) {
        if let Some(later) = sys::watch::close_later(&[self.namespace.as_fd()]) {
            // Closed by the end of this process, before its namespaces are.
            let _number = later.into_raw_fd();
        }
    }

    /// Goes back. The kernel sets root and current directory to the namespace's own.
    fn back(&self) -> Result<(), Errno> {
        move_into_link_name_space(self.namespace.as_fd(), Some(LinkNameSpaceType::Mount))?;
        fchdir(&self.root)?;
        chroot(".")?;
        fchdir(&self.current)
    }
}

impl Watch {
    /// Does something in the jail's mount namespace.
    pub(super) fn visit(
        &mut self,
        act: impl FnOnce(&mut Self) -> Result<(), String>,
    ) -> Result<(), String> {
        let Some(running) = &self.running else { return Ok(()) };
        let home = self
            .home
            .as_ref()
            .map_err(|error| format!("the jail cannot be left again: {error}"))?;
        move_into_link_name_space(running.jail.as_fd(), Some(LinkNameSpaceType::Mount))
            .map_err(|error| format!("the jail cannot be entered to watch it: {error}"))?;
        let home = home.clone();
        let done = act(self);
        home.back().map_err(|error| format!("the launcher cannot leave the jail: {error}"))?;
        done
    }
}
