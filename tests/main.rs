//! One integration binary against the built programs; each module says what belongs there.

#![expect(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests arrange their own files and processes, and fail loudly"
)]

mod agent;
mod baked;
mod cli;
mod context;
mod demo;
mod docs;
mod doctor;
mod edits;
#[cfg(feature = "lisp")]
mod eval;
mod fake_model;
mod faults;
mod generate;
mod harness;
mod headless;
mod hidden;
mod jail;
mod keys;
mod model;
mod policy;
mod project;
mod recipes;
mod repo;
mod sandbox;
mod screen;
mod sessions;
mod shell;
mod tools;
mod tui;
