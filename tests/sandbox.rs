//! The launcher against the laws of `docs/confinement.md`, for an ordinary user and for root. Each
//! denial is asserted by its message and by the missing effect, and has a positive control.

#![expect(clippy::unwrap_used, clippy::disallowed_methods, reason = "tests and their support")]

mod agent;
mod environment;
mod failure;
mod hidden;
mod life;
mod specification;
mod terminal;
mod view;
mod workspace;
