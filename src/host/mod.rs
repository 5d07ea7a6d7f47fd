//! The only ambient authority of the agent: files, processes, clock and environment.
//!
//! Every call that changes something takes a [`Grant`](crate::authority::Grant), which only
//! `authority` can make, and refuses a path that the grant does not cover. It knows no tools, no
//! models and no settings file.

pub mod process;

/// A handle on the host.
#[derive(Clone, Debug, Default)]
pub struct Host {}
