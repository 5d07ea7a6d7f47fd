//! The composition root: arguments in, front end out.

/// Runs kli.
pub fn main() {}
