//! kli: a coding agent for the terminal that can be confined as a whole process.
//!
//! Two questions, two places. *What may the agent do?* is authority: `authority`, a capability
//! lattice checked before every tool call. *What can the process touch?* is containment:
//! [`sandbox`], a launcher outside the agent that the agent cannot switch off.
//!
//! Layers, imports point down only (`tests/repo.rs` checks it; `ARCHITECTURE.md` says why):
//!
//! 0. pure: `message`, `authority`, `display`, `config`, `sandbox::{spec, plan}`, `model::sse`,
//!    `agent::{turn, schedule}`
//! 1. edges: `host`, `sandbox::{facts, launch}`
//! 2. services: `model`, `tool`, `session`
//! 3. loop: `agent`
//! 4. front ends: `tui`, `cli::print`
//! 5. composition root: `cli`

#[cfg(feature = "agent")]
pub mod agent;
#[cfg(feature = "agent")]
pub mod authority;
#[cfg(feature = "agent")]
pub mod cli;
#[cfg(feature = "agent")]
pub mod config;
#[cfg(feature = "agent")]
pub mod display;
#[cfg(feature = "agent")]
pub mod host;
#[cfg(feature = "agent")]
pub mod message;
#[cfg(feature = "agent")]
pub mod model;
pub mod sandbox;
#[cfg(feature = "agent")]
pub mod session;
#[cfg(feature = "agent")]
pub mod tool;
#[cfg(feature = "agent")]
pub mod tui;
