//! What the tools of one run remember between calls: which lines the model has seen, where the
//! shell stands. Shared by readers, so it locks inside.

/// The memory of a run's tools.
#[derive(Debug, Default)]
pub struct State {}
