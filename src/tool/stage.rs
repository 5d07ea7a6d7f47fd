//! A workspace of its own for the tests of tools, and calls as the loop makes them.

#![expect(clippy::disallowed_methods, reason = "tests set up and look at the disk themselves")]

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use serde_json::Value;

use super::{BashOptions, Context, Invocation, Outcome, State, Tool};
use crate::{
    authority::{Narrowing, Source, Subject},
    host::Host,
};

/// A temporary workspace and the context of a run in it.
#[derive(Debug)]
pub(crate) struct Stage {
    _directory: tempfile::TempDir,
    pub(crate) workspace: PathBuf,
    pub(crate) context: Arc<Context>,
    subject: Subject,
}

impl Stage {
    pub(crate) fn new() -> Self {
        Self::with_host(Host::with_marker("/nonexistent/marker"))
    }

    pub(crate) fn with_host(host: Host) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let workspace = fs::canonicalize(directory.path()).unwrap().join("ws");
        fs::create_dir(&workspace).unwrap();
        let context = Context {
            host,
            workspace: workspace.clone(),
            home: Some(workspace.join("home")),
            state: State::default(),
            bash: BashOptions {
                shell: "bash".into(),
                timeout: 120,
                max_timeout: 600,
                withheld: vec![],
                pass: None,
                set: Vec::new(),
            },
        };
        Self {
            _directory: directory,
            workspace,
            context: Arc::new(context),
            subject: Subject::new([]),
        }
    }

    /// Narrows what calls may do from now on.
    pub(crate) fn narrow(&mut self, narrowing: Narrowing) {
        self.subject = Subject::new([(Source::UserSettings, narrowing)]);
    }

    pub(crate) fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.workspace.join(name)
    }

    pub(crate) fn put(&self, name: &str, content: impl AsRef<[u8]>) {
        fs::write(self.path(name), content).unwrap();
    }

    pub(crate) fn get(&self, name: &str) -> Vec<u8> {
        fs::read(self.path(name)).unwrap()
    }

    /// Returns the names in the workspace, sorted.
    pub(crate) fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(&self.workspace)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }

    /// Prepares, checks and runs one call; a refusal is an outcome, as it is for the model.
    pub(crate) fn call(&self, tool: &dyn Tool, arguments: &Value) -> Outcome {
        match self.prepare(tool, arguments) {
            Ok(invocation) => self.run(invocation),
            Err(sentence) => Outcome::error(sentence),
        }
    }

    /// Reads the arguments of one call.
    pub(crate) fn prepare(
        &self,
        tool: &dyn Tool,
        arguments: &Value,
    ) -> Result<Box<dyn Invocation>, String> {
        tool.prepare(arguments.as_object().unwrap(), &self.context)
    }

    /// Checks and runs a call that was prepared.
    pub(crate) fn run(&self, invocation: Box<dyn Invocation>) -> Outcome {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(self.admitted(invocation))
    }

    /// Checks a call that was prepared; the future runs it.
    pub(crate) async fn admitted(&self, invocation: Box<dyn Invocation>) -> Outcome {
        let mut grants = Vec::new();
        for request in invocation.requests() {
            match self.subject.check(request) {
                Ok(grant) => grants.push(grant),
                Err(denial) => return Outcome::error(denial.to_string()),
            }
        }
        let wishes = invocation.wishes().into_iter();
        grants.extend(wishes.filter_map(|wish| self.subject.check(wish).ok()));
        invocation.run(grants, Arc::new(|_| {})).await
    }

    /// Makes a call that must succeed, and returns its text.
    pub(crate) fn ok(&self, tool: &dyn Tool, arguments: &Value) -> String {
        let outcome = self.call(tool, arguments);
        assert!(!outcome.is_error, "{}", outcome.text);
        outcome.text
    }

    /// Makes a call that must fail, and returns its text.
    pub(crate) fn refused(&self, tool: &dyn Tool, arguments: &Value) -> String {
        let outcome = self.call(tool, arguments);
        assert!(outcome.is_error, "{}", outcome.text);
        assert_eq!(outcome.changed, Vec::<PathBuf>::new());
        outcome.text
    }
}
