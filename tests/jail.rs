//! A world for sandbox tests: a home, a workspace, a specification and the launcher, for an
//! ordinary user and for root. Without root, root is played by user 0 of an own user namespace, so
//! no test is left out anywhere.

#![expect(clippy::unwrap_used, clippy::disallowed_methods, reason = "test support")]

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Gid, Uid};

/// An ordinary user; no account of that number needs to exist.
const ORDINARY: u32 = 54_321;

/// Who starts the launcher.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Who {
    /// User 0: the real one, or that of an own namespace.
    Root,
    /// An ordinary user.
    User,
}

/// Runs a test for both.
pub(crate) fn for_both(test: impl Fn(&World)) {
    for who in [Who::User, Who::Root] {
        test(&World::new(who));
    }
}

/// A directory tree outside every tree that the jail replaces.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) who: Who,
    pub(crate) root: PathBuf,
    pub(crate) home: PathBuf,
    pub(crate) workspace: PathBuf,
    directory: tempfile::TempDir,
}

fn own_uid() -> u32 {
    rustix::process::geteuid().as_raw()
}

impl World {
    pub(crate) fn new(who: Who) -> Self {
        Self::below(who, Path::new("/var/tmp"))
    }

    pub(crate) fn below(who: Who, parent: &Path) -> Self {
        let directory = tempfile::Builder::new().prefix("kli-jail-").tempdir_in(parent).unwrap();
        let root = directory.path().canonicalize().unwrap();
        fs::set_permissions(&root, fs::Permissions::from_mode(0o755)).unwrap();
        fs::copy(env!("CARGO_BIN_EXE_kli-sandbox"), root.join("kli-sandbox")).unwrap();
        let world = Self {
            who,
            home: root.join("home"),
            workspace: root.join("home/project"),
            root,
            directory,
        };
        world.dir("home/project");
        world.dir("outside");
        world.spec("{}");
        world
    }

    pub(crate) fn launcher(&self) -> PathBuf {
        self.root.join("kli-sandbox")
    }

    pub(crate) fn spec_file(&self) -> PathBuf {
        self.root.join("spec.json")
    }

    fn own(&self, path: &Path) {
        if own_uid() == 0 && self.who == Who::User {
            chown(path, Some(ORDINARY), Some(ORDINARY)).unwrap();
        }
    }

    /// Makes a directory below the world's root, owned by who starts the launcher.
    pub(crate) fn dir(&self, path: impl AsRef<Path>) -> PathBuf {
        let full = self.root.join(path.as_ref());
        fs::create_dir_all(&full).unwrap();
        for made in full.ancestors().take_while(|made| made.starts_with(&self.root)) {
            if made != self.root {
                self.own(made);
            }
        }
        full
    }

    pub(crate) fn file(&self, path: impl AsRef<Path>, text: &str) -> PathBuf {
        let full = self.root.join(path.as_ref());
        self.dir(full.parent().unwrap().strip_prefix(&self.root).unwrap());
        fs::write(&full, text).unwrap();
        self.own(&full);
        full
    }

    /// A program of the world's user.
    pub(crate) fn program(&self, path: impl AsRef<Path>, text: &str) -> PathBuf {
        let full = self.file(path, text);
        fs::set_permissions(&full, fs::Permissions::from_mode(0o755)).unwrap();
        full
    }

    /// Gives an open file to who starts the launcher.
    pub(crate) fn own_handle(&self, file: impl std::os::fd::AsFd) {
        if own_uid() == 0 && self.who == Who::User {
            let (uid, gid) = (Uid::from_raw(ORDINARY), Gid::from_raw(ORDINARY));
            rustix::fs::fchown(file, Some(uid), Some(gid)).unwrap();
        }
    }

    pub(crate) fn link(&self, path: impl AsRef<Path>, target: impl AsRef<Path>) -> PathBuf {
        let full = self.root.join(path.as_ref());
        std::os::unix::fs::symlink(target, &full).unwrap();
        full
    }

    pub(crate) fn spec(&self, text: &str) {
        fs::write(self.spec_file(), text).unwrap();
    }

    /// A command as the world's user, with a clean environment, in the workspace.
    pub(crate) fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = if own_uid() != 0 && self.who == Who::Root {
            let mut command = Command::new("unshare");
            command.args(["-Ur", "--"]).arg(program);
            command
        } else {
            Command::new(program)
        };
        if own_uid() == 0 && self.who == Who::User {
            command.uid(ORDINARY).gid(ORDINARY);
        }
        command
            .env_clear()
            .env("HOME", &self.home)
            .env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
            .current_dir(&self.workspace)
            .stdin(Stdio::null());
        command
    }

    /// The same without a jail: the positive control.
    pub(crate) fn plainly(&self, script: &str) -> Output {
        self.command("sh").args(["-c", script]).output().unwrap()
    }

    /// `kli-sandbox run` with further options; ends by itself should it hang.
    pub(crate) fn run_with(&self, options: &[&str], program: &[&str]) -> Command {
        let mut command = self.command("timeout");
        command.args(["-k", "1", "30"]).arg(self.launcher()).arg("run").arg("--spec");
        command.arg(self.spec_file()).args(options).arg("--").args(program);
        command
    }

    /// Runs a shell script in the jail.
    pub(crate) fn inside(&self, script: &str) -> Output {
        self.run_with(&[], &["sh", "-c", script]).output().unwrap()
    }

    /// Runs a script as user 0 of an own user and mount namespace, where it may mount.
    pub(crate) fn in_namespace(&self, script: &str) -> Output {
        let mut command = self.command("timeout");
        command.args(["-k", "1", "30", "unshare", "-Urm", "sh", "-c", script]);
        command.env("L", self.launcher()).env("SPEC", self.spec_file()).env("W", &self.root);
        command.output().unwrap()
    }

    pub(crate) fn keep_until_here(self) {
        self.directory.close().unwrap();
    }
}

pub(crate) fn out(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

pub(crate) fn err(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Asserts success and returns what was printed.
#[track_caller]
pub(crate) fn ok(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    out(output)
}

/// Asserts the launcher's own failure, nothing on standard output, and returns the sentence.
#[track_caller]
pub(crate) fn refused(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(125), "{output:?}");
    assert_eq!(out(output), "", "{output:?}");
    let text = err(output);
    assert!(text.starts_with("kli-sandbox: "), "{text}");
    assert_eq!(text.trim_end().lines().count(), 1, "one sentence: {text}");
    text
}

#[track_caller]
pub(crate) fn has(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "`{part}` is missing in: {text}");
    }
}

/// Ends a jail that was started with [`World::run_with`], and waits for it.
pub(crate) fn end(mut child: std::process::Child) {
    let pid = i32::try_from(child.id()).ok().and_then(rustix::process::Pid::from_raw).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    child.wait().unwrap();
}

/// The processes whose command line contains `token`.
pub(crate) fn processes(token: &str) -> Vec<i32> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        let words = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        if String::from_utf8_lossy(&words).contains(token) {
            found.push(pid);
        }
    }
    found
}

/// The child processes of `parent`.
pub(crate) fn children(parent: i32) -> Vec<i32> {
    let text = fs::read_to_string(format!("/proc/{parent}/task/{parent}/children")).unwrap();
    text.split_whitespace().map(|pid| pid.parse().unwrap()).collect()
}

/// Waits until `done` holds; `false` after `limit`.
pub(crate) fn wait_for(limit: Duration, mut done: impl FnMut() -> bool) -> bool {
    let end = Instant::now() + limit;
    loop {
        if done() {
            return true;
        }
        if Instant::now() > end {
            return false;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

pub(crate) fn kill(pid: i32, signal: rustix::process::Signal) {
    rustix::process::kill_process(rustix::process::Pid::from_raw(pid).unwrap(), signal).unwrap();
}
