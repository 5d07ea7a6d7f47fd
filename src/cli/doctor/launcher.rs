//! Whether a jail can be had here: the launcher's own judgement of the machine, and then the only
//! proof there is: a jail in a directory of its own, in which the launcher prints its version.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    time::Duration,
};

use tokio::{runtime::Runtime, time::timeout};

use crate::{
    authority::{Atom, Confinement, Detail, Grant, Request, Subject},
    cli::signals::Signals,
    config::names,
    host::{
        environment, examine,
        process::{self, Command, Ended},
        state,
    },
    sandbox::{
        self,
        doctor::{Finding, Status, examine as judge},
        machine::{self, Machine},
    },
};

use super::Here;

/// How long the trial may take in all.
const LIMIT: Duration = Duration::from_secs(5);

/// What came out.
pub(super) struct Outcome {
    pub(super) findings: Vec<Finding>,
    /// The exit code that a signal asks for, when one came.
    pub(super) interrupted: Option<u8>,
}

pub(super) fn checks(here: &Here<'_>, runtime: &Runtime) -> Outcome {
    if here.confinement == Confinement::KliSandbox {
        let inside = "this process is confined, and a jail makes no further one";
        return Outcome {
            findings: vec![Finding::new("launcher", Status::Info, inside)],
            interrupted: None,
        };
    }
    let variables: Vec<(OsString, OsString)> =
        here.environment.vars().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    let machine = machine::probe(&variables, None);
    let launcher = find(here);
    let mut findings = vec![match &launcher {
        Launcher::Found(path) => {
            Finding::new("launcher", Status::Ok, format!("`{}`", path.display()))
        }
        Launcher::Missing => Finding::new(
            "launcher",
            Status::Warning,
            "there is no `kli-sandbox` beside kli or on PATH, so nothing can be confined",
        )
        .repair("install both binaries: `cargo install --path . --locked`"),
        Launcher::Foreign(path) => Finding::new(
            "launcher",
            Status::Warning,
            format!(
                "`{}` lies in the project, which could have put anything there; it is not started",
                path.display()
            ),
        )
        .repair("take that directory out of PATH"),
    }];
    findings.extend(judge(&machine, &here.project()));
    let mut interrupted = None;
    if let Launcher::Found(path) = &launcher {
        let (finding, code) = trial(here, runtime, path, &machine);
        interrupted = code;
        findings.push(finding);
    }
    // Without a launcher, or where something else confines kli already, nothing that is in the way
    // of a jail is in the way of a run.
    let wanted = matches!(launcher, Launcher::Found(_))
        && matches!(here.confinement, Confinement::None | Confinement::Unknown);
    if !wanted {
        for finding in findings.iter_mut().filter(|finding| finding.status == Status::Problem) {
            finding.status = Status::Warning;
        }
    }
    Outcome { findings, interrupted }
}

enum Launcher {
    Found(PathBuf),
    /// One that the project could have put there.
    Foreign(PathBuf),
    Missing,
}

fn find(here: &Here) -> Launcher {
    let name = Path::new("kli-sandbox");
    // Whoever could change the one beside could change kli itself.
    if let Ok(own) = environment::own_executable() {
        let beside = own.with_file_name(name);
        if examine::program(&beside, None).is_some() {
            return Launcher::Found(beside);
        }
    }
    let project = here.project();
    let lies_within = |path: &Path| project.iter().any(|project| path.starts_with(project));
    match examine::program(name, here.environment.var_os(names::PATH)) {
        None => Launcher::Missing,
        Some(path) => {
            let physical = crate::cli::setup::physical(&path);
            if !path.is_absolute() || lies_within(&path) || lies_within(&physical) {
                Launcher::Foreign(path)
            } else {
                Launcher::Found(path)
            }
        }
    }
}

/// The specifications that are tried, the best first, and what is said of the later ones.
const SPECIFICATIONS: [(&str, Option<(&str, &str)>); 3] = [
    (r#"{"version":1,"network":false,"stateDir":false}"#, None),
    (
        r#"{"version":1,"network":false,"stateDir":false,"nestedUserns":true}"#,
        Some((
            "a jail can be made, but only with the `/proc` around it",
            "set `nestedUserns` to true in the specification",
        )),
    ),
    (
        r#"{"version":1,"network":true,"stateDir":false,"nestedUserns":true}"#,
        Some((
            "a jail can be made, but neither with the network off nor with a `/proc` of its own",
            "set `network` and `nestedUserns` to true in the specification",
        )),
    ),
];

fn trial(
    here: &Here<'_>,
    runtime: &Runtime,
    launcher: &Path,
    machine: &Machine,
) -> (Finding, Option<u8>) {
    let id = "launcher.trial";
    let unknown = |text: String| (Finding::new(id, Status::Unknown, text), None);
    let Some(bubblewrap) = &machine.bubblewrap else {
        return unknown("without bubblewrap no jail was tried".into());
    };
    let project = here.project();
    let foreign = |path: &Path| project.iter().any(|project| path.starts_with(project));
    if foreign(&bubblewrap.path) || foreign(&bubblewrap.physical) {
        return unknown("with a bubblewrap of the project no jail was tried".into());
    }
    let scratch = match Scratch::make(here) {
        Ok(scratch) => scratch,
        Err(error) => return unknown(format!("no jail was tried: {error}")),
    };
    runtime.block_on(async {
        let mut signals = Signals::listen();
        tokio::select! {
            biased;
            code = signals.next() => {
                (Finding::new(id, Status::Unknown, "interrupted"), Some(code))
            }
            ended = timeout(LIMIT, attempt(here, launcher, &bubblewrap.path, &scratch)) => {
                let late = || {
                    let text = format!("no jail was there within {} s", LIMIT.as_secs());
                    Finding::new(id, Status::Problem, text)
                        .repair("look whether `kli-sandbox run` works by hand")
                };
                (ended.unwrap_or_else(|_| late()), None)
            }
        }
    })
}

async fn attempt(
    here: &Here<'_>,
    launcher: &Path,
    bubblewrap: &Path,
    scratch: &Scratch,
) -> Finding {
    let id = "launcher.trial";
    let mut first = None;
    for (specification, but) in SPECIFICATIONS {
        match start(here, launcher, bubblewrap, scratch, specification).await {
            Ok(text) => {
                let own = concat!("kli-sandbox ", env!("CARGO_PKG_VERSION"));
                return match but {
                    Some((message, repair)) => {
                        Finding::new(id, Status::Warning, message).repair(repair)
                    }
                    None if text != own => Finding::new(
                        id,
                        Status::Warning,
                        format!("a jail can be made, by another version (`{text}`)"),
                    )
                    .repair("install both binaries of the same version"),
                    None => Finding::new(id, Status::Ok, "a jail was made and entered"),
                };
            }
            Err(words) => {
                first.get_or_insert(words);
            }
        }
    }
    // The launcher's sentence holds what repairs it.
    let words = first.unwrap_or_default();
    Finding::new(id, Status::Problem, format!("no jail can be made: {words}"))
        .repair("do what the sentence names, then ask again")
}

/// Starts the launcher on itself and returns what the inside printed, or what went wrong.
async fn start(
    here: &Here<'_>,
    launcher: &Path,
    bubblewrap: &Path,
    scratch: &Scratch,
    specification: &str,
) -> Result<String, String> {
    let file = scratch.base.join("sandbox.json");
    state::write_atomic(&scratch.grant, &file, specification.as_bytes())
        .map_err(|error| error.sentence())?;
    let words: [OsString; 8] = [
        "run".into(),
        "--spec".into(),
        file.into_os_string(),
        "--bwrap".into(),
        bubblewrap.into(),
        "--".into(),
        sandbox::INNER.into(),
        "--version".into(),
    ];
    let secret = here.setup.as_ref().map(|setup| setup.settings.secret_variables());
    let command = Command {
        program: launcher.to_owned(),
        args: words.into(),
        cwd: scratch.workspace(),
        set: Vec::new(),
        remove: secret.unwrap_or_default().into_iter().map(OsString::from).collect(),
        input: None,
        timeout: LIMIT,
        keep: (2_000, 2_000),
    };
    // The doctor acts for the person who typed it, so the subject is not narrowed.
    let detail = Detail::Commands { line: launcher.display().to_string(), parsed: None };
    let grant = Subject::new([])
        .check(Request { atom: Atom::ProcessExec, detail })
        .map_err(|denial| denial.to_string())?;
    let output =
        process::run(&grant, command, &[], |_| {}).await.map_err(|error| error.to_string())?;
    let said = [output.kept.head.as_slice(), output.kept.tail.as_slice()].concat();
    let said = String::from_utf8_lossy(&said).trim().to_owned();
    match output.ended {
        Ended::Exit(0) => Ok(said),
        Ended::Exit(_) => {
            let words = said.strip_prefix("kli-sandbox: ").unwrap_or(&said);
            Err(words.to_owned())
        }
        Ended::Signal(name) => Err(format!("the launcher was ended by {name}")),
        Ended::Stopped => Err("the launcher was stopped".to_owned()),
        Ended::TimedOut => Err(format!("the launcher took longer than {} s", LIMIT.as_secs())),
    }
}

/// The trial's directory; removed with everything in it.
struct Scratch {
    base: PathBuf,
    grant: Grant,
}

impl Scratch {
    fn make(here: &Here) -> Result<Self, String> {
        let name: String = std::iter::repeat_with(fastrand::alphanumeric).take(12).collect();
        let mut last = "no directory for scratch files".to_owned();
        let named = here.environment.var_os(names::TMPDIR).map(PathBuf::from);
        // The usual places first: what TMPDIR names may be refused as a workspace.
        let usual = ["/tmp", "/var/tmp"].map(PathBuf::from);
        for place in usual.into_iter().chain(named.filter(|path| path.is_absolute())) {
            let base = crate::cli::setup::physical(&place).join(format!("kli-doctor-{name}"));
            let grant = Grant::own_state(&base);
            match state::create_new_dir(&grant, &base) {
                Ok(()) => {
                    let scratch = Self { base, grant };
                    return state::create_new_dir(&scratch.grant, &scratch.workspace())
                        .map(|()| scratch)
                        .map_err(|error| error.sentence());
                }
                Err(error) => last = error.sentence(),
            }
        }
        Err(last)
    }

    fn workspace(&self) -> PathBuf {
        self.base.join("workspace")
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Err(error) = state::remove_tree(&self.grant, &self.base) {
            crate::cli::terminal::note(&format!(
                "kli: a scratch directory is left behind: {}",
                error.sentence()
            ));
        }
    }
}
