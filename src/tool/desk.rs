//! How a call makes further calls: each is decided about as if the model had made it, by whoever
//! decides about the model's. A tool cannot do so itself, since it knows no subject.

use std::time::Duration;

use futures_util::future::BoxFuture;
use serde_json::{Map, Value};

use super::Outcome;
use crate::authority::{Grant, Request};

/// Decides about calls within a call, and runs them. What it refuses is listed as denied.
pub trait Desk: Send + Sync + std::fmt::Debug {
    /// Runs a tool as if the model had called it. A refusal is a failed outcome.
    fn call(&self, tool: &str, arguments: Map<String, Value>) -> BoxFuture<'static, Outcome>;

    /// Checks one request of the procedure `does`, which does a part of what a tool does: a layer that
    /// denies the tool by name denies the part. The answer is the grant, or the refusal for the model.
    fn check(
        &self,
        tool: &str,
        does: &'static str,
        request: Request,
    ) -> BoxFuture<'static, Result<Grant, String>>;

    /// Returns how long calls have waited for a person's answer so far: that time is nobody's fault.
    fn asked_for(&self) -> Duration;

    /// Takes the keys of providers out of a text.
    fn clean(&self, text: &mut String);

    /// Notes a path that was changed.
    fn changed(&self, path: &std::path::Path);
}
