//! The sandbox: a specification in, a confined process out.
//!
//! [`spec`] says what is wished, [`facts`] what this machine looks like, [`plan`] turns both into
//! an ordered list of mounts without touching anything, [`launch`] carries it out and watches,
//! [`explain`] prints it; [`machine`] and [`doctor`] say why none could be had. `docs/confinement.md` has the laws that the code cites by number.
//! Nothing here knows the rest of the crate: the launcher builds from this folder alone.

pub mod command;
pub mod doctor;
pub mod explain;
pub mod facts;
pub mod git;
pub mod glob;
pub mod launch;
pub mod machine;
pub mod mountinfo;
pub mod plan;
pub mod sockets;
pub mod spec;

mod diagnose;
mod fault;
mod handover;
mod inner;
mod landlock;
mod limits;
mod namespace;
mod ports;
mod preflight;
mod prepare;
mod processes;
mod report;
mod scratch;
mod seccomp;
mod secrets;
mod sorted;
mod supervise;
mod sys;
mod terminal;
mod view;
mod watch;

/// Where the inside finds what it may know about its own confinement. kli takes the file's
/// presence as the sign that it is confined.
pub const MARKER: &str = "/run/kli/sandbox.json";

/// Where the launcher's own executable is bound: the last stage, process 1 of the jail.
pub const INNER: &str = "/run/kli/inner";

/// Where the empty file and the empty directory are that masks show while the jail runs.
pub(crate) const MASKS: &str = "/run/kli/masks";

/// The exit code of every failure of the launcher itself. Nothing was started then.
pub const FAILED: u8 = 125;
