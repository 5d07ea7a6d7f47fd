//! How a call makes further calls: each is decided about as if the model had made it, by whoever
//! decides about the model's. A tool cannot do so itself, since it knows no subject.

use futures_util::future::BoxFuture;
use serde_json::{Map, Value};

use super::Outcome;
use crate::authority::{Grant, Request};

/// Decides about calls within a call, and runs them. What it refuses is listed as denied.
pub trait Desk: Send + Sync + std::fmt::Debug {
    /// Runs a tool as if the model had called it. A refusal is a failed outcome.
    fn call(&self, tool: &str, arguments: Map<String, Value>) -> BoxFuture<'static, Outcome>;

    /// Checks one request of a procedure that does a part of what a tool does: a layer that denies
    /// the tool by name denies the part.
    ///
    /// # Errors
    /// The refusal, for the model.
    fn check(&self, tool: &str, request: Request) -> Result<Grant, String>;

    /// Takes the keys of providers out of a text.
    fn clean(&self, text: &mut String);

    /// Notes a path that was changed.
    fn changed(&self, path: &std::path::Path);
}
