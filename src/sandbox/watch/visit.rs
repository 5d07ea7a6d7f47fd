//! The way into the jail's mount namespace and back. The launcher has one thread and holds all
//! rights over the namespaces that its children made, so the kernel lets it in (setns(2)).

use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;

use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{chroot, fchdir};
use rustix::thread::{
    LinkNameSpaceType, ThreadNameSpaceType, move_into_link_name_space, move_into_thread_name_spaces,
};

use super::Watch;

/// Where the launcher comes from.
#[derive(Debug, Clone)]
pub(super) struct Home {
    namespace: Rc<OwnedFd>,
    root: Rc<OwnedFd>,
    current: Rc<OwnedFd>,
}

impl Home {
    /// Remembers the own namespace, root and current directory.
    pub(super) fn here() -> Result<Self, Errno> {
        let open = |path: &str, flags| {
            rustix::fs::openat(CWD, path, flags | OFlags::CLOEXEC, Mode::empty())
        };
        Ok(Self {
            namespace: Rc::new(open("/proc/self/ns/mnt", OFlags::RDONLY)?),
            root: Rc::new(open("/", OFlags::PATH | OFlags::DIRECTORY)?),
            current: Rc::new(open(".", OFlags::PATH | OFlags::DIRECTORY)?),
        })
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
    /// Does something in the jail's mount namespace; nothing when the jail has ended.
    pub(super) fn visit(
        &mut self,
        act: impl FnOnce(&mut Self) -> Result<(), String>,
    ) -> Result<(), String> {
        let Some(running) = &self.running else { return Ok(()) };
        let home = self
            .home
            .as_ref()
            .map_err(|error| format!("the jail cannot be left again: {error}"))?;
        match move_into_thread_name_spaces(running.jail.as_fd(), ThreadNameSpaceType::MOUNT) {
            Ok(()) => {}
            Err(Errno::SRCH) => return Ok(()),
            Err(error) => return Err(format!("the jail cannot be entered to watch it: {error}")),
        }
        let home = home.clone();
        let done = act(self);
        home.back().map_err(|error| format!("the launcher cannot leave the jail: {error}"))?;
        done
    }
}
