//! The launcher's binary: `run | check | explain`.

fn main() {}
