//! What the tools of one run remember between calls: which lines the model has seen, where the
//! shell stands, its jobs, the results that were cut. Shared by readers, so it locks inside.

use std::{
    path::PathBuf,
    sync::{Arc, Mutex, OnceLock, PoisonError},
};

use super::{desk::Desk, inspect::Told, jobs::Jobs, memory::Memory, result::Results};

/// The memory of a run's tools.
#[derive(Debug, Default)]
pub struct State {
    /// What the model knows of files. Search registers its rows with [`Memory::saw`].
    pub files: Memory,
    /// The physical directory where the shell stands; absent while that is the workspace.
    pub cwd: Mutex<Option<PathBuf>>,
    /// What bash runs in the background.
    pub jobs: Jobs,
    /// Results that were cut.
    pub results: Arc<Results>,
    /// What the run is told about itself; set once, by the agent.
    pub told: OnceLock<Told>,
    /// Who decides about calls that a call makes; set once, by the agent.
    pub desk: OnceLock<Arc<dyn Desk>>,
    /// The session of eval.
    #[cfg(feature = "lisp")]
    pub eval: super::eval::Place,
}

impl State {
    /// Returns an empty memory whose results are kept on the file system of this directory, when it
    /// takes them.
    pub fn keeping_results_in(directory: PathBuf) -> Self {
        Self { results: Arc::new(Results::in_places(vec![directory])), ..Self::default() }
    }

    /// Returns the memory of whoever goes on in the place of this one's owner: files, directory, jobs
    /// and results move there. Who decides, what is told, and the session of eval begin anew, since
    /// another may be allowed to do something else.
    #[must_use]
    pub fn heir(&self) -> Self {
        let mut cwd = self.cwd.lock().unwrap_or_else(PoisonError::into_inner);
        Self {
            files: self.files.hand_over(),
            cwd: Mutex::new(cwd.take()),
            jobs: self.jobs.hand_over(),
            results: Arc::clone(&self.results),
            ..Self::default()
        }
    }
}
