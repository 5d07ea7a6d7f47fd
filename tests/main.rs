//! One integration binary; each module says what belongs there.

mod jail;
mod sandbox;
