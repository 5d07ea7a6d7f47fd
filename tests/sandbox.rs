//! The launcher against the laws of `docs/confinement.md`, for an ordinary user and for root. Each
//! denial is asserted by its message and by the missing effect, and has a positive control.

#![expect(clippy::unwrap_used, clippy::disallowed_methods, reason = "tests and their support")]

mod agent;
mod caches;
mod commands;
mod environment;
mod failure;
mod git;
mod hidden;
mod kernel;
mod life;
mod limits;
mod matrix;
mod next_start;
mod ports;
mod report;
mod secrets;
mod sockets;
mod specification;
mod steering;
mod terminal;
mod tmp;
mod usability;
mod view;
mod watch;
mod workspace;
