//! What whole runs need: a home and a workspace of their own, a cleared environment, and the built
//! binary with its two streams and exit code.

use std::{
    fs,
    io::Write as _,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    time::{Duration, Instant},
};

use serde_json::Value;
use tempfile::TempDir;

/// A user with nothing but a home and a workspace.
pub(crate) struct Env {
    root: TempDir,
    variables: Vec<(String, String)>,
}

impl Env {
    pub(crate) fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        for name in ["home", "work"] {
            fs::create_dir(root.path().join(name)).unwrap();
        }
        Self { root, variables: Vec::new() }
    }

    /// Sets a variable for every run.
    pub(crate) fn var(mut self, name: &str, value: &str) -> Self {
        self.variables.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Lets the built-in provider `anthropic` be this server.
    pub(crate) fn at(self, base_url: &str) -> Self {
        self.var("ANTHROPIC_BASE_URL", base_url)
    }

    pub(crate) fn home(&self) -> PathBuf {
        fs::canonicalize(self.root.path().join("home")).unwrap()
    }

    pub(crate) fn work(&self) -> PathBuf {
        fs::canonicalize(self.root.path().join("work")).unwrap()
    }

    pub(crate) fn settings(&self, text: &str) {
        let directory = self.home().join(".config/kli");
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join("settings.json"), text).unwrap();
    }

    /// Returns a command with the cleared environment, in the workspace, without input.
    pub(crate) fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kli"));
        command
            .args(words)
            .current_dir(self.work())
            .env_clear()
            .env("HOME", self.home())
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .env("LANG", "C.UTF-8")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        for (name, value) in &self.variables {
            command.env(name, value);
        }
        command
    }

    pub(crate) fn kli(&self, words: &[&str]) -> Ran {
        Ran::from(self.command(words).output().unwrap())
    }

    pub(crate) fn kli_with_input(&self, words: &[&str], input: &[u8]) -> Ran {
        let mut child = self.command(words).stdin(Stdio::piped()).spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let input = input.to_vec();
        // The program may refuse to read it all.
        let writer = std::thread::spawn(move || drop(stdin.write_all(&input)));
        let output = child.wait_with_output().unwrap();
        writer.join().unwrap();
        Ran::from(output)
    }

    /// Returns the session files, oldest name first.
    pub(crate) fn sessions(&self) -> Vec<PathBuf> {
        let root = self.home().join(".local/state/kli/sessions");
        let mut found = Vec::new();
        for directory in fs::read_dir(&root).into_iter().flatten() {
            for file in fs::read_dir(directory.unwrap().path()).unwrap() {
                found.push(file.unwrap().path());
            }
        }
        found.retain(|path| path.extension().is_some_and(|e| e == "jsonl"));
        found.sort();
        found
    }

    /// Returns the lines of the only session.
    pub(crate) fn session(&self) -> Vec<Value> {
        let files = self.sessions();
        assert_eq!(files.len(), 1, "{files:?}");
        lines(&files[0])
    }
}

pub(crate) fn lines(file: &Path) -> Vec<Value> {
    let text = fs::read_to_string(file).unwrap();
    assert!(text.ends_with('\n'), "the file ends with a whole line");
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// What a run left.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl From<Output> for Ran {
    fn from(output: Output) -> Self {
        Self {
            code: output.status.code(),
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
        }
    }
}

impl Ran {
    #[track_caller]
    pub(crate) fn exits(&self, code: i32) -> &Self {
        assert_eq!(self.code, Some(code), "{self:#?}");
        self
    }

    #[track_caller]
    pub(crate) fn says(&self, part: &str) -> &Self {
        assert!(self.err.contains(part), "`{part}` is not in {self:#?}");
        self
    }

    /// Returns the one JSON object on standard output.
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        assert_eq!(self.out.matches('\n').count(), 1, "one line: {self:#?}");
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {self:#?}"))
    }
}

/// Waits until something holds, at most ten seconds.
#[track_caller]
pub(crate) fn wait_for<T>(what: &str, mut probe: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = probe() {
            return found;
        }
        assert!(start.elapsed() < Duration::from_secs(10), "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Returns the pids of processes whose command line contains a word, this process left out.
pub(crate) fn processes_with(word: &str) -> Vec<i32> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else {
            continue;
        };
        let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let own = pid == i32::try_from(std::process::id()).unwrap();
        if !own && String::from_utf8_lossy(&line).contains(word) {
            found.push(pid);
        }
    }
    found
}
