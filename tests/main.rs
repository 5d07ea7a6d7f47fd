//! One integration binary against the built programs; each module says what belongs there.

#![expect(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests arrange their own files and processes, and fail loudly"
)]

mod agent;
mod cli;
mod demo;
mod docs;
mod doctor;
mod fake_model;
mod harness;
mod jail;
mod model;
mod repo;
mod sandbox;
