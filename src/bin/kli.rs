//! The agent's binary: everything is in `kli::cli`.

fn main() {
    kli::cli::main();
}
