//! What the models behind HTTP APIs have in common: they differ in what they send and in how they read
//! the answer.

use std::fmt;

use futures_util::stream::BoxStream;

use super::{Delta, Model, ModelError, Request, catalogue::Facts, http::Target};
use crate::message::Price;

/// A model behind an HTTP API.
pub(super) trait Wire: Send + Sync + fmt::Debug {
    /// Returns what is known of it.
    fn facts(&self) -> &Facts;

    /// Returns where it is asked.
    fn target(&self) -> &Target;

    /// Returns the body of a request.
    fn body(&self, request: &Request) -> Vec<u8>;

    /// Asks, as [`Model::stream`] has it.
    fn ask(&self, request: &Request) -> BoxStream<'static, Result<Delta, ModelError>>;
}

impl<T: Wire> Model for T {
    fn name(&self) -> &str {
        &self.facts().name
    }

    fn request_bytes(&self, request: &Request) -> Option<u64> {
        u64::try_from(self.body(request).len()).ok()
    }

    fn context_window(&self) -> Option<u64> {
        self.facts().context_window
    }

    fn max_output(&self) -> Option<u64> {
        self.facts().max_output
    }

    fn price(&self) -> Option<Price> {
        self.facts().price
    }

    fn notices(&self) -> &[String] {
        &self.facts().notices
    }

    fn needs_network(&self) -> bool {
        self.target().needs_network()
    }

    fn stream(&self, request: Request) -> BoxStream<'static, Result<Delta, ModelError>> {
        self.ask(&request)
    }
}
