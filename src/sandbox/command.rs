//! The launcher's command line: words in, exit code out.

#![expect(
    clippy::disallowed_methods,
    reason = "the command line and the specification are read here"
)]

use std::ffi::OsString;
use std::fmt;
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use lexopt::prelude::*;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use super::doctor::Status;
use super::launch::LaunchError;
use super::plan::{Request, shown};
use super::spec::{self, EnvPattern, Quoted, Spec, SpecError, ValueError};
use super::{FAILED, diagnose, explain, fault, inner, launch, preflight, secrets, sys};

/// What `kli-sandbox --help` prints; the manual page is made from it.
pub const HELP: &str = "\
Confines a program by a specification.

usage:
  kli-sandbox run --spec FILE [options] -- PROGRAM [ARGUMENTS]
  kli-sandbox shell [FILE] [options]
  kli-sandbox check FILE
  kli-sandbox explain FILE [options] [--format words|shell|json]
  kli-sandbox doctor [FILE] [--bwrap PATH] [--json]

`run` confines a program, `shell` your shell; `check` reads a specification,
`explain` prints what it comes to here and now, `doctor` what stops it.
Where FILE may be left out, the specification is `{}`.

options of `run`, `shell` and `explain`, which only narrow the specification:
  --spec FILE       the specification, JSON; the commands but `run` take FILE alone as well
  --bwrap PATH      bubblewrap, otherwise found on PATH (`run`, `shell`, `doctor`)
  --deny PATH       hide this path too (repeatable)
  --deny-env NAME   remove this variable too, `NAME*` for all that start so (repeatable)
  --no-network      cut the network

  -h, --help        print this
  -V, --version     print the version

exit codes:
  the program's own, 128+n when signal n ended it
  125  the launcher's own failure: nothing was started
  126  the program is not executable
  127  the program is not found inside
";

/// What a usage error names.
const COMMANDS: &str = "`run`, `shell`, `check`, `explain` and `doctor`";

/// Why a command failed before anything was started.
#[derive(Debug, thiserror::Error)]
enum CommandError {
    #[error("{0}; see `kli-sandbox --help`")]
    Usage(String),
    #[error(
        "the specification `{}` is not there: name one that is, or write it (the smallest is `{{}}`)",
        shown(path)
    )]
    Absent { path: PathBuf },
    #[error("the specification `{}` cannot be read: {source}", shown(path))]
    Read {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error(
        "the specification `{}` cannot be read: it is {kind}: a specification must be a regular file",
        shown(path)
    )]
    Kind { path: PathBuf, kind: &'static str },
    #[error("the specification `{}` is refused: {source}", shown(path))]
    Spec {
        path: PathBuf,
        #[source]
        source: SpecError,
    },
    #[error("`--deny-env`: {0}")]
    Variable(#[from] ValueError),
    #[error(transparent)]
    Launch(#[from] LaunchError),
    #[error("the output cannot be written: {0}")]
    Output(#[from] io::Error),
}

impl From<lexopt::Error> for CommandError {
    fn from(error: lexopt::Error) -> Self {
        Self::Usage(match error {
            lexopt::Error::UnexpectedOption(option) => {
                format!("unknown option {}", Quoted(option))
            }
            lexopt::Error::UnexpectedArgument(word) => {
                let word = Quoted(word.to_string_lossy().into_owned());
                format!("unexpected argument {word}")
            }
            lexopt::Error::MissingValue { option: Some(option) } => {
                format!("a value is missing after {}", Quoted(option))
            }
            error => error.to_string(),
        })
    }
}

/// Runs the launcher with this process's arguments.
pub fn main() -> ExitCode {
    // A fault of this program is its own failure, not the confined program's code (law 11).
    fault::prepare();
    let mut words: Vec<OsString> = std::env::args_os().skip(1).collect();
    if words.first().is_some_and(|word| word == "inner") {
        words.remove(0);
        return ExitCode::from(inner::run(words));
    }
    // Before any descriptor is closed; and only who starts something has use for them.
    let keys = if words.first().is_some_and(|word| word == "run" || word == "shell") {
        match secrets::from_caller() {
            Ok(keys) => keys,
            Err(error) => return fail(&error),
        }
    } else {
        secrets::Keys::default()
    };
    // Nothing of the caller's goes on to the inside (law 5).
    if let Err(error) = sys::close_from(3) {
        return fail(&format_args!("open descriptors cannot be closed: {error}"));
    }
    match command(words, keys) {
        Ok(code) => ExitCode::from(code),
        Err(CommandError::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => {
            ExitCode::SUCCESS
        }
        Err(error) => fail(&error),
    }
}

fn fail(error: &dyn fmt::Display) -> ExitCode {
    // Nobody is left to tell when this fails; the code says it too.
    drop(writeln!(io::stderr(), "kli-sandbox: {}", diagnose::repaired(error.to_string())));
    ExitCode::from(FAILED)
}

fn command(words: Vec<OsString>, keys: secrets::Keys) -> Result<u8, CommandError> {
    let mut parser = lexopt::Parser::from_args(words);
    match parser.next()? {
        Some(Short('h') | Long("help")) => print(HELP.as_bytes()),
        Some(Short('V') | Long("version")) => {
            print(concat!("kli-sandbox ", env!("CARGO_PKG_VERSION"), "\n").as_bytes())
        }
        Some(Value(word)) => match word.to_str() {
            Some("run") => run(parser, keys),
            Some("shell") => shell(parser, keys),
            Some("doctor") => doctor(parser),
            Some("check") => check(parser),
            Some("explain") => explain(parser),
            Some("help") => print(HELP.as_bytes()),
            _ => Err(CommandError::Usage(format!(
                "there is no command {}, the commands are {COMMANDS}",
                Quoted(word.to_string_lossy().into_owned())
            ))),
        },
        Some(other) => Err(other.unexpected().into()),
        None => {
            Err(CommandError::Usage(format!("a command is missing, the commands are {COMMANDS}")))
        }
    }
}

/// Takes the path of a `--deny`.
fn deny(request: &mut Request, path: OsString) -> Result<(), CommandError> {
    if path.is_empty() {
        return Err(CommandError::Usage("`--deny` has an empty path".into()));
    }
    request.deny.push(path);
    Ok(())
}

/// Takes the name of a `--deny-env`.
fn deny_env(request: &mut Request, name: OsString) -> Result<(), CommandError> {
    request.deny_env.push(EnvPattern::try_from(name.string()?)?);
    Ok(())
}

fn run(mut parser: lexopt::Parser, keys: secrets::Keys) -> Result<u8, CommandError> {
    let mut file: Option<PathBuf> = None;
    let mut bwrap: Option<PathBuf> = None;
    let mut request = Request::default();
    loop {
        let Some(argument) = parser.next()? else {
            return Err(CommandError::Usage("the program is missing: `… -- PROGRAM`".into()));
        };
        match argument {
            Long("deny") => deny(&mut request, parser.value()?)?,
            Long("deny-env") => deny_env(&mut request, parser.value()?)?,
            Long("no-network") => request.no_network = true,
            Short('h') | Long("help") => return print(HELP.as_bytes()),
            Long("spec") if file.is_some() => {
                return Err(CommandError::Usage("`--spec` is there twice".into()));
            }
            Long("spec") => file = Some(parser.value()?.into()),
            Long("bwrap") => bwrap = Some(parser.value()?.into()),
            Value(program) => {
                request.program = program;
                request.arguments = parser.raw_args()?.collect();
                break;
            }
            other => return Err(other.unexpected().into()),
        }
    }
    if request.program.is_empty() {
        return Err(CommandError::Usage("the program's name is empty".into()));
    }
    let Some(file) = file else {
        return Err(CommandError::Usage("`--spec FILE` is missing".into()));
    };
    let spec = read(&file)?;
    Ok(launch::run(&spec, Some(&file), &request, bwrap.as_deref(), keys)?)
}

fn shell(mut parser: lexopt::Parser, keys: secrets::Keys) -> Result<u8, CommandError> {
    let mut file: Option<PathBuf> = None;
    let mut bwrap: Option<PathBuf> = None;
    let mut request = Request::default();
    while let Some(argument) = parser.next()? {
        match argument {
            Long("deny") => deny(&mut request, parser.value()?)?,
            Long("deny-env") => deny_env(&mut request, parser.value()?)?,
            Long("no-network") => request.no_network = true,
            Short('h') | Long("help") => return print(HELP.as_bytes()),
            Long("bwrap") => bwrap = Some(parser.value()?.into()),
            Long("spec") if file.is_none() => file = Some(parser.value()?.into()),
            Value(path) if file.is_none() => file = Some(path.into()),
            other => return Err(other.unexpected().into()),
        }
    }
    // What the caller's account would start; a relative name would be another program in each
    // directory.
    request.program = std::env::var_os("SHELL")
        .filter(|shell| Path::new(shell).is_absolute())
        .unwrap_or_else(|| "/bin/sh".into());
    let spec = file.as_deref().map_or_else(|| Ok(Spec::default()), read)?;
    Ok(launch::run(&spec, file.as_deref(), &request, bwrap.as_deref(), keys)?)
}

fn doctor(mut parser: lexopt::Parser) -> Result<u8, CommandError> {
    let mut file: Option<PathBuf> = None;
    let mut bwrap: Option<PathBuf> = None;
    let mut json = false;
    while let Some(argument) = parser.next()? {
        match argument {
            Short('h') | Long("help") => return print(HELP.as_bytes()),
            Long("json") => json = true,
            Long("bwrap") => bwrap = Some(parser.value()?.into()),
            Long("spec") if file.is_none() => file = Some(parser.value()?.into()),
            Value(path) if file.is_none() => file = Some(path.into()),
            other => return Err(other.unexpected().into()),
        }
    }
    // A specification that cannot be read is a finding: the rest is still of use.
    let spec = file.as_deref().map(|path| read(path).map_err(|error| error.to_string()));
    let findings = preflight::examine(spec.as_ref(), bwrap.as_deref());
    print(&preflight::render(&findings, json))?;
    Ok(u8::from(findings.iter().any(|finding| finding.status == Status::Problem)))
}

fn check(mut parser: lexopt::Parser) -> Result<u8, CommandError> {
    let mut file: Option<PathBuf> = None;
    while let Some(argument) = parser.next()? {
        match argument {
            Short('h') | Long("help") => return print(HELP.as_bytes()),
            Long("spec") if file.is_none() => file = Some(parser.value()?.into()),
            Value(path) if file.is_none() => file = Some(path.into()),
            other => return Err(other.unexpected().into()),
        }
    }
    let Some(file) = file else { return Err(CommandError::Usage("`check` needs a file".into())) };
    read(&file)?;
    Ok(0)
}

fn explain(mut parser: lexopt::Parser) -> Result<u8, CommandError> {
    let mut file: Option<PathBuf> = None;
    let mut format = explain::Format::Words;
    let mut request = Request::default();
    while let Some(argument) = parser.next()? {
        match argument {
            Long("deny") => deny(&mut request, parser.value()?)?,
            Long("deny-env") => deny_env(&mut request, parser.value()?)?,
            Long("no-network") => request.no_network = true,
            Long("format") => {
                let name = parser.value()?;
                format = match name.to_str() {
                    Some("words") => explain::Format::Words,
                    Some("shell") => explain::Format::Shell,
                    Some("json") => explain::Format::Json,
                    _ => {
                        return Err(CommandError::Usage(format!(
                            "there is no format {}, the formats are `words`, `shell` and `json`",
                            Quoted(name.to_string_lossy().into_owned())
                        )));
                    }
                };
            }
            Short('h') | Long("help") => return print(HELP.as_bytes()),
            Long("spec") if file.is_none() => file = Some(parser.value()?.into()),
            Value(path) if file.is_none() => file = Some(path.into()),
            other => return Err(other.unexpected().into()),
        }
    }
    let Some(file) = file else { return Err(CommandError::Usage("`explain` needs a file".into())) };
    let spec = read(&file)?;
    print(&explain::render(&spec, &request, format)?)
}

/// Reads a specification; the file is opened once, and never more of it read than is allowed.
fn read(path: &Path) -> Result<Spec, CommandError> {
    let failed = |source: io::Error| match source.kind() {
        io::ErrorKind::NotFound => CommandError::Absent { path: path.to_path_buf() },
        _ => CommandError::Read { path: path.to_path_buf(), source },
    };
    if path.as_os_str().as_bytes().is_empty() {
        return Err(CommandError::Usage("the specification's path is empty".into()));
    }
    let kind = |kind| CommandError::Kind { path: path.to_path_buf(), kind };
    // A pipe is waited for, and a terminal would become this process's own.
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = match rustix::fs::open(path, flags, Mode::empty()) {
        Ok(file) => std::fs::File::from(file),
        Err(Errno::NXIO) => return Err(kind("a socket")),
        // The descriptor of `<(…)` was closed before anything else, like all that are not standard.
        Err(Errno::NOENT) if is_descriptor(path) => {
            return Err(kind("a descriptor, which is closed here"));
        }
        Err(error) => return Err(failed(error.into())),
    };
    match file.metadata().map_err(failed)?.file_type() {
        it if it.is_file() => {}
        it if it.is_dir() => return Err(kind("a directory")),
        it if it.is_fifo() => return Err(kind("a pipe")),
        it if it.is_socket() => return Err(kind("a socket")),
        _ => return Err(kind("a device")),
    }
    let mut text = Vec::new();
    let limit = u64::try_from(spec::MAX_BYTES).unwrap_or(u64::MAX).saturating_add(1);
    file.take(limit).read_to_end(&mut text).map_err(failed)?;
    spec::parse(&text).map_err(|source| CommandError::Spec { path: path.to_path_buf(), source })
}

fn is_descriptor(path: &Path) -> bool {
    ["/dev/fd", "/proc/self/fd"].iter().any(|directory| path.starts_with(directory))
}

fn print(text: &[u8]) -> Result<u8, CommandError> {
    let mut output = io::stdout().lock();
    output.write_all(text)?;
    output.flush()?;
    Ok(0)
}
