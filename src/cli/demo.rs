//! `kli demo`: a whole confined run with a recorded model, judged from outside.
//!
//! The demo is the driver: it makes a repository, a secret and a specification in a scratch
//! directory, starts the launcher beside its own executable with itself inside, and then looks at
//! what came out. It trusts nothing that the inside says unless the outside agrees.

use std::{
    ffi::OsString,
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
    time::Duration,
};

use crate::{
    authority::{Atom, Confinement, Detail, Grant, Request, Subject},
    host::{
        confinement::{self, Signs},
        environment::{self, Environment},
        files,
        process::{self, Command, Ended, Output},
        state,
    },
};

use super::{error::CliError, setup, signals::Signals, terminal};

/// The recording that the demo plays; `replay/demo` plays it anywhere.
const RECORDING: &str = include_str!("demo/recording.jsonl");
/// The exit code with which the launcher says that it could not confine.
const NOT_CONFINED: i32 = 125;
/// Trees that the jail replaces: a program in there could not be started.
const REPLACED: [&str; 3] = ["/tmp", "/run", "/dev"];

/// Returns a built-in recording by its name.
pub(crate) fn recording(name: &str) -> Option<String> {
    (name == "demo").then(|| RECORDING.to_owned())
}

/// Runs the demo; returns the exit code.
///
/// # Errors
/// When it cannot be set up: inside a jail, without a launcher or git.
pub(crate) fn run() -> Result<u8, CliError> {
    let environment = Environment::read();
    if confinement::judge(&Signs::read(&environment)) == Confinement::KliSandbox {
        return Err(CliError::config("the demo makes a jail of its own and cannot run inside one")
            .hint("start `kli demo` from the package without the sandbox"));
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| CliError::internal(format!("cannot start the demo: {error}")))?;
    // Listened to before anything is made, so that nothing is left behind whenever one comes.
    let mut signals = {
        let _inside = runtime.enter();
        Signals::listen()
    };
    let scratch = Scratch::make()?;
    let code = runtime.block_on(async {
        tokio::select! {
            biased;
            code = signals.next() => {
                terminal::note("kli: interrupted; the demo is not finished");
                Ok(code)
            }
            code = play(&scratch, &environment) => code,
        }
    });
    if let Err(survivors) = process::reap_all() {
        terminal::note(&format!("kli: processes {:?} could not be ended", survivors.0));
    }
    code
}

/// The demo's directory; removed with everything in it when the demo ends, however that is.
struct Scratch {
    base: PathBuf,
    grant: Grant,
}

impl Scratch {
    fn make() -> Result<Self, CliError> {
        // Not below /tmp: the jail has a /tmp of its own, and what is denied would be absent there
        // instead of empty.
        let name: String = std::iter::repeat_with(fastrand::alphanumeric).take(12).collect();
        let base = setup::physical(Path::new("/var/tmp")).join(format!("kli-demo-{name}"));
        let grant = Grant::own_state(&base);
        state::create_new_dir(&grant, &base).map_err(|error| CliError::config(error.sentence()))?;
        Ok(Self { base, grant })
    }

    fn home(&self) -> PathBuf {
        self.base.join("home")
    }

    fn project(&self) -> PathBuf {
        self.home().join("project")
    }

    fn write(&self, path: &Path, text: &str) -> Result<(), CliError> {
        let fail = |error: crate::host::HostError| CliError::config(error.sentence());
        if let Some(parent) = path.parent() {
            state::create_dir(&self.grant, parent).map_err(fail)?;
        }
        state::write_atomic(&self.grant, path, text.as_bytes()).map_err(fail)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Err(error) = state::remove_tree(&self.grant, &self.base) {
            terminal::note(&format!(
                "kli: the demo's directory is left behind: {}",
                error.sentence()
            ));
        }
    }
}

/// What is secret in this run: random, so that finding it anywhere means a leak.
struct Secrets {
    file: String,
    variable: String,
}

async fn play(scratch: &Scratch, environment: &Environment) -> Result<u8, CliError> {
    let random = || std::iter::repeat_with(fastrand::alphanumeric).take(24).collect::<String>();
    let secrets = Secrets { file: random(), variable: random() };
    prepare(scratch, &secrets).await?;
    let output = confined(scratch, environment, &secrets).await?;
    let said = String::from_utf8_lossy(&text(&output)).into_owned();
    if output.ended == Ended::Exit(NOT_CONFINED) {
        terminal::note(said.trim_end());
        return Ok(u8::try_from(NOT_CONFINED).unwrap_or(u8::MAX));
    }
    let session = session_text(scratch);
    let verdicts = judge(scratch, &secrets, &session).await;
    let mut failed = output.ended != Ended::Exit(0);
    for (outcome, fine) in &verdicts {
        terminal::out(&format!("{:<7} {outcome}\n", if *fine { "ok" } else { "FAILED" }));
        failed |= !fine;
    }
    if failed {
        terminal::note(&format!("kli: the confined run ended with {:?} and said:", output.ended));
        terminal::note(said.trim_end());
    }
    Ok(u8::from(failed))
}

fn text(output: &Output) -> Vec<u8> {
    [output.kept.head.as_slice(), output.kept.tail.as_slice()].concat()
}

/// Makes the repository, the secret and the specification.
async fn prepare(scratch: &Scratch, secrets: &Secrets) -> Result<(), CliError> {
    let project = scratch.project();
    scratch
        .write(&project.join("sum.sh"), "# Prints the sum of two numbers.\necho $(($1 - $2))\n")?;
    scratch.write(
        &project.join("check.sh"),
        "# Checks sum.sh.\n[ \"$(sh sum.sh 2 3)\" = 5 ] && [ \"$(sh sum.sh 20 3)\" = 23 ] &&\n  \
         echo \"check.sh: all sums are right\"\n",
    )?;
    scratch.write(
        &scratch.home().join(".aws/credentials"),
        &format!("[default]\naws_secret_access_key = {}\n", secrets.file),
    )?;
    let specification = serde_json::json!({
        "version": 1,
        "network": false,
        "denyRead": ["~/.aws"],
        "denyEnv": ["KLI_DEMO_TOKEN"],
    });
    scratch.write(&scratch.base.join("sandbox.json"), &specification.to_string())?;
    for words in [
        &["init", "-q", "-b", "main"][..],
        &["config", "user.name", "kli demo"],
        &["config", "user.email", "demo@kli.invalid"],
        &["config", "commit.gpgSign", "false"],
        &["add", "-A"],
        &["commit", "-q", "-m", "Add sum"],
    ] {
        let output = git(scratch, words).await?;
        if output.ended != Ended::Exit(0) {
            let said = String::from_utf8_lossy(&text(&output)).into_owned();
            return Err(CliError::config(format!("`git {}` failed: {said}", words.join(" "))));
        }
    }
    Ok(())
}

/// Runs kli on itself inside the launcher.
async fn confined(
    scratch: &Scratch,
    environment: &Environment,
    secrets: &Secrets,
) -> Result<Output, CliError> {
    let own = environment::own_executable()
        .map_err(|error| CliError::internal(format!("cannot tell the own executable: {error}")))?;
    let launcher = own.with_file_name("kli-sandbox");
    if !environment::exists(&launcher) {
        return Err(CliError::config(format!("there is no launcher at `{}`", launcher.display()))
            .hint("install both binaries: `cargo install --path . --locked`"));
    }
    let inside = if REPLACED.iter().any(|tree| own.starts_with(tree)) {
        let copy = scratch.base.join("kli");
        state::copy_executable(&scratch.grant, &own, &copy)
            .map_err(|error| CliError::config(error.sentence()))?;
        copy
    } else {
        own
    };
    let words: Vec<OsString> = [
        "run".into(),
        "--spec".into(),
        scratch.base.join("sandbox.json").into_os_string(),
        "--".into(),
        inside.into_os_string(),
        "-p".into(),
        "Mend the sum, check it and commit.".into(),
        "--model".into(),
        "replay/demo".into(),
        "--output-format".into(),
        "json".into(),
    ]
    .into();
    // The user's own settings and directories stay out of it.
    let remove = environment
        .vars()
        .map(|(name, _)| name.to_owned())
        .filter(|name| {
            let name = name.as_bytes();
            name.starts_with(b"XDG_") || name.starts_with(b"KLI_") || name.starts_with(b"GIT_")
        })
        .collect();
    let set = vec![
        ("HOME".into(), scratch.home().into_os_string()),
        ("KLI_DEMO_TOKEN".into(), secrets.variable.clone().into()),
        ("KLI_DEMO_CONTROL".into(), "kept as it should".into()),
    ];
    execute(launcher, words, &scratch.project(), set, remove).await
}

async fn git(scratch: &Scratch, words: &[&str]) -> Result<Output, CliError> {
    let words = words.iter().map(|word| OsString::from(*word)).collect();
    let set = vec![
        ("HOME".into(), scratch.home().into_os_string()),
        ("GIT_CONFIG_NOSYSTEM".into(), "1".into()),
        ("GIT_CONFIG_GLOBAL".into(), "/dev/null".into()),
    ];
    let remove = vec!["GIT_DIR".into(), "GIT_WORK_TREE".into(), "GIT_INDEX_FILE".into()];
    execute("git".into(), words, &scratch.project(), set, remove).await
}

async fn execute(
    program: PathBuf,
    args: Vec<OsString>,
    cwd: &Path,
    set: Vec<(OsString, OsString)>,
    remove: Vec<OsString>,
) -> Result<Output, CliError> {
    // The demo acts for the person who typed it, so the subject is not narrowed.
    let detail = Detail::Commands { line: program.display().to_string(), parsed: None };
    let grant = Subject::new([])
        .check(Request { atom: Atom::ProcessExec, detail })
        .map_err(|denial| CliError::internal(denial.to_string()))?;
    let command = Command {
        program,
        args,
        cwd: cwd.to_owned(),
        set,
        remove,
        input: None,
        timeout: Duration::from_mins(1),
        keep: (20_000, 20_000),
    };
    process::run(&grant, command, &[], |_| {}).await.map_err(|error| match &error {
        process::ExecError::Start { program, .. } => CliError::config(error.to_string())
            .hint(format!("install `{}`, or put it on PATH", program.display())),
        _ => CliError::config(error.to_string()),
    })
}

/// Returns what the tools answered, in order. The calls themselves are left out: what a command
/// would print must not count as printed.
fn results(session: &str) -> Vec<String> {
    session
        .lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
        .filter_map(|entry| entry.pointer("/message/blocks").and_then(|b| b.as_array().cloned()))
        .flatten()
        .filter(|block| block.get("type").is_some_and(|kind| kind == "result"))
        .filter_map(|block| block.get("text").and_then(|text| text.as_str().map(str::to_owned)))
        .collect()
}

/// Returns everything that the run wrote down.
fn session_text(scratch: &Scratch) -> String {
    let sessions = scratch.home().join(".local/state/kli/sessions");
    let mut text = String::new();
    for directory in state::read_dir(&sessions).unwrap_or_default() {
        let directory = sessions.join(directory);
        for file in state::read_dir(&directory).unwrap_or_default() {
            if let Ok(Some((bytes, _))) = files::read_whole(&directory.join(file), 16 << 20) {
                text.push_str(&String::from_utf8_lossy(&bytes));
            }
        }
    }
    text
}

/// Judges the six outcomes, each from outside where the outside can tell.
async fn judge(scratch: &Scratch, secrets: &Secrets, session: &str) -> [(&'static str, bool); 6] {
    let read = |path: PathBuf| {
        files::read_whole(&path, 1 << 20)
            .ok()
            .flatten()
            .map(|(bytes, _)| String::from_utf8_lossy(&bytes).into_owned())
    };
    let results = results(session);
    let said = |text: &str| results.iter().any(|result| result.contains(text));
    let began = |text: &str| results.iter().any(|result| result.starts_with(text));
    let edited = read(scratch.project().join("sum.sh"))
        .is_some_and(|text| text == "# Prints the sum of two numbers.\necho $(($1 + $2))\n");
    let log = match git(scratch, &["log", "--format=%s"]).await {
        Ok(output) => String::from_utf8_lossy(&text(&output)).into_owned(),
        Err(_) => String::new(),
    };
    let clean = match git(scratch, &["status", "--porcelain"]).await {
        Ok(output) => output.ended == Ended::Exit(0) && text(&output).is_empty(),
        Err(_) => false,
    };
    // The control: outside, the secret is there and unchanged.
    let secret_kept = read(scratch.home().join(".aws/credentials"))
        .is_some_and(|text| text.contains(&secrets.file));
    let hidden = !session.contains(&secrets.file)
        && said("names in .aws: 0")
        && !environment::exists(&scratch.home().join(".aws/new"));
    let variable = !session.contains(&secrets.variable)
        && said("variable: gone")
        && said("environments that hold it: 0")
        && said("kept as it should");
    let outside = ["outside-by-tool.txt", "outside-by-shell.txt"]
        .iter()
        .all(|name| !environment::exists(&scratch.home().join(name)));
    [
        ("edit: the file was mended, byte for byte", edited),
        ("test run: the project's check passed inside", began("check.sh: all sums are right")),
        (
            "commit: it is in the repository, which is clean",
            log == "Mend the sum\nAdd sum\n" && clean && began("committed: Mend the sum"),
        ),
        ("denied file: read as nothing inside, untouched outside", hidden && secret_kept),
        ("denied variable: in no environment inside", variable),
        ("write outside: refused, and nothing is there", outside && said("Read-only file system")),
    ]
}
