//! One integration binary; each module says what belongs there.

mod fake_model;
mod model;
