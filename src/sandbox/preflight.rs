//! `kli-sandbox doctor`: what stops a start here, with the repair. The machine's findings are
//! [`doctor`]'s; to these come what the caller's environment and a specification lead
//! to, and a trial, the only proof that a jail can be had.

#![expect(
    clippy::disallowed_methods,
    reason = "the doctor looks at the surroundings and starts the launcher for its trial"
)]

use std::ffi::OsString;
use std::fmt::Write as _;
use std::io::{self, Read};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde::Serialize;

use super::doctor::{Finding, Status};
use super::plan::{self, Request, printable, shown};
use super::spec::Spec;
use super::{INNER, MARKER, doctor, facts, machine};

/// How long the trial may take.
const LIMIT: Duration = Duration::from_secs(10);

/// Looks at the machine, the surroundings and the specification, when there is one; an `Err` is the
/// sentence for which it cannot be read. `bwrap` names a bubblewrap instead of the one on `PATH`.
pub(super) fn examine(spec: Option<&Result<Spec, String>>, bwrap: Option<&Path>) -> Vec<Finding> {
    let environment: Vec<(OsString, OsString)> = std::env::vars_os().collect();
    let machine = machine::probe(&environment, bwrap);
    let mut findings = doctor::examine(&machine, &[]);
    findings.push(path(&environment));
    findings.push(temporary(&environment));
    let mut tried = Spec { state_dir: false, ..Spec::default() };
    match spec {
        None => {}
        Some(Err(sentence)) => findings.push(
            Finding::new("specification", Status::Problem, sentence.clone())
                .repair("correct the file; `kli-sandbox check FILE` reads it again"),
        ),
        Some(Ok(spec)) => {
            findings.extend(specification(spec));
            tried.network = spec.network;
            tried.nested_userns = spec.nested_userns;
            tried.limits = spec.limits;
        }
    }
    findings.push(if Path::new(MARKER).exists() {
        Finding::new(
            "trial",
            Status::Info,
            "this process is confined already, and a jail makes no further one",
        )
    } else {
        trial(&tried, bwrap)
    });
    findings
}

/// Entries of `PATH` that lead nowhere: a program that is found outside may be missing inside.
fn path(environment: &[(OsString, OsString)]) -> Finding {
    let id = "path";
    let value = environment.iter().find(|(name, _)| name == "PATH").map(|(_, value)| value);
    let Some(value) = value.filter(|value| !value.is_empty()) else {
        return Finding::new(id, Status::Warning, "PATH is not set, so no program is found")
            .repair("set PATH, for example to `/usr/local/bin:/usr/bin:/bin`");
    };
    let mut dead = Vec::new();
    let mut lost = Vec::new();
    let mut relative = Vec::new();
    for entry in std::env::split_paths(value) {
        if !entry.is_absolute() {
            relative.push(entry);
        } else if !entry.is_dir() {
            dead.push(entry);
        } else if std::fs::canonicalize(&entry)
            .is_ok_and(|physical| physical.starts_with("/tmp") || physical.starts_with("/run/user"))
        {
            lost.push(entry);
        }
    }
    let named = |entries: &[PathBuf]| {
        let names: Vec<String> =
            entries.iter().map(|entry| format!("`{}`", shown(entry))).collect();
        names.join(", ")
    };
    let is = |entries: &[PathBuf]| if entries.len() == 1 { "is" } else { "are" };
    if !relative.is_empty() {
        return Finding::new(
            id,
            Status::Warning,
            format!("{} on PATH {} relative", named(&relative), is(&relative)),
        )
        .repair("write absolute paths into PATH");
    }
    if !lost.is_empty() {
        return Finding::new(
            id,
            Status::Warning,
            format!("{} on PATH {} not there inside", named(&lost), is(&lost)),
        )
        .repair("name it in `readOnlyPaths`, or keep programs outside `/tmp` and `/run`");
    }
    if !dead.is_empty() {
        return Finding::new(
            id,
            Status::Warning,
            format!("{} on PATH {} no directory", named(&dead), is(&dead)),
        )
        .repair("take it out of PATH, or repair the link");
    }
    Finding::new(id, Status::Ok, "every entry of PATH is a directory")
}

/// `TMPDIR` of the caller. Inside it is `/tmp`; outside the launcher needs none.
fn temporary(environment: &[(OsString, OsString)]) -> Finding {
    let id = "tmpdir";
    let value = environment.iter().find(|(name, _)| name == "TMPDIR").map(|(_, value)| value);
    match value.map(Path::new) {
        None => Finding::new(id, Status::Ok, "TMPDIR is not set; inside it is `/tmp`"),
        Some(path) if path.is_dir() => Finding::new(
            id,
            Status::Ok,
            format!("TMPDIR is `{}`; inside it is `/tmp`", shown(path)),
        ),
        Some(path) => Finding::new(
            id,
            Status::Warning,
            format!(
                "TMPDIR is `{}`, which is no directory; inside it is `/tmp`, outside programs fail",
                shown(path)
            ),
        )
        .repair("unset TMPDIR, or let it name a directory that exists"),
    }
}

/// What the specification comes to in the current directory. Creates nothing.
fn specification(spec: &Spec) -> Vec<Finding> {
    let id = "specification";
    let request = Request::default();
    let planned = facts::probe(spec, &request)
        .map_err(|error| error.to_string())
        .and_then(|facts| plan::build(spec, &facts, &request).map_err(|error| error.to_string()));
    match planned {
        Err(sentence) => vec![
            Finding::new(id, Status::Problem, sentence)
                .repair("do what the sentence names, then ask again"),
        ],
        Ok(plan) => {
            let mut findings = vec![Finding::new(
                id,
                Status::Ok,
                format!("it can be kept in `{}`", shown(&plan.workspace)),
            )];
            findings.extend(plan.create.iter().map(|create| {
                Finding::new(
                    "specification.created",
                    Status::Info,
                    format!("`{}` is missing and will be made", shown(&create.path)),
                )
            }));
            findings.extend(
                plan.notes
                    .iter()
                    .map(|note| Finding::new("specification.note", Status::Info, printable(note))),
            );
            findings
        }
    }
}

/// A directory that is removed with all that is in it.
struct Scratch(PathBuf);

impl Scratch {
    fn make() -> io::Result<Self> {
        let base = std::env::temp_dir();
        let own = std::process::id();
        for attempt in 0..1000_u32 {
            let path = base.join(format!("kli-doctor-{own}-{attempt}"));
            match std::fs::DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) => {
                    let scratch = Self(path);
                    std::fs::DirBuilder::new().mode(0o700).create(scratch.0.join("workspace"))?;
                    return Ok(scratch);
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
        Err(io::ErrorKind::AlreadyExists.into())
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // Nobody is left to tell when this fails; the directory is empty but for a small file.
        drop(std::fs::remove_dir_all(&self.0));
    }
}

/// Starts the launcher on itself, with what of the specification the machine may refuse.
fn trial(spec: &Spec, bwrap: Option<&Path>) -> Finding {
    let id = "trial";
    let failed = |words: String| {
        Finding::new(id, Status::Problem, format!("no jail can be made: {words}"))
            .repair("do what the sentence names, then ask again")
    };
    let words = match attempt(spec, bwrap) {
        Ok(()) => return Finding::new(id, Status::Ok, "a jail was made and entered"),
        Err(words) => words,
    };
    if spec.nested_userns {
        return failed(words);
    }
    let nested = Spec { nested_userns: true, ..spec.clone() };
    match attempt(&nested, bwrap) {
        Ok(()) => Finding::new(
            id,
            Status::Problem,
            format!("a jail can be made only with the `/proc` around it: {words}"),
        )
        .repair("set `nestedUserns` to true in the specification"),
        Err(_) => failed(words),
    }
}

fn attempt(spec: &Spec, bwrap: Option<&Path>) -> Result<(), String> {
    let scratch = Scratch::make().map_err(|error| {
        format!(
            "no directory for the trial can be made in `{}`: {error}",
            shown(&std::env::temp_dir())
        )
    })?;
    let file = scratch.0.join("specification.json");
    let text = serde_json::json!({
        "version": super::spec::VERSION,
        "network": spec.network,
        "nestedUserns": spec.nested_userns,
        "stateDir": false,
        "limits": spec.limits.map(|limits| serde_json::json!({
            "tasks": limits.tasks,
            "memory": limits.memory,
            "fileSize": limits.file_size,
        })),
    });
    std::fs::write(&file, text.to_string()).map_err(|error| error.to_string())?;
    let launcher = std::fs::read_link("/proc/self/exe").map_err(|error| error.to_string())?;
    let mut command = Command::new(launcher);
    command.arg("run").arg("--spec").arg(&file);
    if let Some(bwrap) = bwrap {
        let bwrap = std::path::absolute(bwrap).map_err(|error| error.to_string())?;
        command.arg("--bwrap").arg(bwrap);
    }
    let mut child = command
        .args(["--", INNER, "--version"])
        .current_dir(scratch.0.join("workspace"))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| error.to_string())?;
    let end = Instant::now() + LIMIT;
    let status = loop {
        match child.try_wait().map_err(|error| error.to_string())? {
            Some(status) => break status,
            None if Instant::now() < end => std::thread::sleep(Duration::from_millis(2)),
            None => {
                // All of the jail ends with its launcher (law 8).
                drop(child.kill());
                drop(child.wait());
                return Err(format!("it was not there within {} s", LIMIT.as_secs()));
            }
        }
    };
    if status.success() {
        return Ok(());
    }
    let mut said = Vec::new();
    if let Some(errors) = child.stderr.take() {
        drop(errors.take(4096).read_to_end(&mut said));
    }
    let said = String::from_utf8_lossy(&said);
    let said = said.trim().strip_prefix("kli-sandbox: ").unwrap_or(said.trim());
    Err(printable(said))
}

#[derive(Serialize)]
struct Report<'a> {
    r#type: &'static str,
    schema: u32,
    ok: bool,
    checks: &'a [Finding],
}

/// Prints the findings, a line each with its repair below, or as one JSON object in the form of
/// `kli doctor --json`.
pub(super) fn render(findings: &[Finding], json: bool) -> Vec<u8> {
    let ok = !findings.iter().any(|finding| finding.status == Status::Problem);
    if json {
        let report = Report { r#type: "doctor", schema: 1, ok, checks: findings };
        let mut text = serde_json::to_vec(&report).unwrap_or_default();
        text.push(b'\n');
        return text;
    }
    let mut text = String::new();
    for finding in findings {
        let status = match finding.status {
            Status::Ok => "ok",
            Status::Info => "info",
            Status::Unknown => "unknown",
            Status::Warning => "warning",
            Status::Problem => "PROBLEM",
        };
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{status:<8} {}: {}", finding.id, finding.message);
        if let Some(repair) = &finding.repair {
            let _ = writeln!(text, "{:<8} repair: {repair}", "");
        }
    }
    text.into_bytes()
}
