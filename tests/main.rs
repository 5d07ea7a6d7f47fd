//! One integration binary; each module says what belongs there.

mod repo;
