//! Authority: what the agent may do. Pure; it touches nothing and knows nothing of tools, models
//! or files on disk.
//!
//! - [`Atom`]: the names. [`Constraint`]: how far one reaches. [`Authority`]: the lattice.
//! - [`Subject`]: one run's authority with the layers that narrowed it. Every tool call is checked
//!   against this very value, and the preview prints it.
//! - [`Grant`]: proof of a check. The host's mutating calls demand one, and only
//!   [`Subject`]'s checks make them.

mod atom;
mod command;
mod constraint;
mod lattice;
mod list;
mod profile;
mod report;
mod subject;
mod words;

pub use atom::{Atom, Row, TABLE, UnknownAtom};
pub use constraint::{Constraint, Detail};
pub use lattice::{Authority, Escalation};
pub use list::{Entry, List, ListError, MOST, Reach};
pub use profile::{BUILT_IN, BuiltIn, built_in};
pub use report::{Confinement, Report, atom_table};
pub use subject::{Approval, Approve, Denial, Grant, Narrowing, Request, Rule, Source, Subject};
pub use words::{distance, misleads, shown, visible};
