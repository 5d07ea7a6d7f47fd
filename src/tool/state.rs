//! What the tools of one run remember between calls: which lines the model has seen, where the
//! shell stands. Shared by readers, so it locks inside.

use super::memory::Memory;

/// The memory of a run's tools.
#[derive(Debug, Default)]
pub struct State {
    /// What the model knows of files. Search registers its rows with [`Memory::saw`].
    pub files: Memory,
    /// The physical directory where the shell stands; absent while that is the workspace.
    pub cwd: std::sync::Mutex<Option<std::path::PathBuf>>,
}
