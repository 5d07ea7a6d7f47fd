//! A headless run, put together: prompt, settings, subject, model, session, agent, printer.

mod prompt;

use std::{
    fs::File,
    io::{Read as _, Write as _},
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::{
    runtime::Runtime,
    sync::mpsc::{self, UnboundedSender},
};

use crate::{
    agent::{Agent, Backlog, Fault, FaultKind, Op, Parts, Summary},
    authority::{Grant, Report},
    host::{self, files, secrets::Handed, state},
    session,
};

use super::{
    args::RunArguments,
    assembly::{Assembly, Models, Ready},
    credentials::Keys,
    error::{CliError, FAILED},
    journal,
    print::{
        self, Front,
        line::{Line, SCHEMA},
    },
    setup::Setup,
    signals::{self, Signals},
    terminal::{self, Lane},
    usage::no_command,
};
use prompt::Prompt;

/// What is said while a session is read for long.
const OPENING: &str = "the session is still being read; an interrupt ends that";
/// How long a reader has for the result when a signal has ended the run.
const AFTER_A_SIGNAL: Duration = Duration::from_secs(2);

/// Runs one prompt without a terminal interface; returns the exit code. `started` is when the
/// program was.
///
/// # Errors
/// For what keeps the run from starting.
pub(crate) fn run(run: &RunArguments, handed: &Handed, started: Instant) -> Result<u8, CliError> {
    if !run.print && run.compact.is_none() {
        refuse_near_commands(run)?;
        if terminal::input_is_terminal() {
            return super::interactive::run(run, handed);
        }
    }
    let mut log = run.log.as_deref().map(open_log).transpose()?;
    // What the command line says is checked before anything is waited for.
    let setup = Setup::read(run);
    if let Ok(setup) = &setup {
        // No thread has started yet, and none may have.
        host::environment::wipe(&setup.settings.secret_variables());
        // The flag comes first, and it was opened before the settings could fail.
        if let (None, Some(file)) = (&log, setup.settings.log.get()) {
            log = Some(open_log(&setup.spelled(file)?)?);
        }
    }
    let backlog = Arc::new(Backlog::default());
    let mut front = front(run, log, &backlog)
        .map_err(|error| CliError::internal(format!("cannot start the run: {error}")))?;
    let code =
        setup.and_then(|setup| begin(run, handed, started, &Arc::new(setup), &mut front, backlog));
    if let Err(error) = &code {
        front.log_result(&print::not_started(error.exit, error.fault.clone()));
    }
    code
}

fn begin(
    run: &RunArguments,
    handed: &Handed,
    started: Instant,
    setup: &Arc<Setup>,
    front: &mut Front,
    backlog: Arc<Backlog>,
) -> Result<u8, CliError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| CliError::internal(format!("cannot start the run: {error}")))?;
    let code = run_in(&runtime, run, setup, handed, started, front, backlog);
    // Blocking work that is still going on (a search, a read of standard input) must not hold up
    // the end.
    runtime.shutdown_background();
    code
}

fn run_in(
    runtime: &Runtime,
    run: &RunArguments,
    setup: &Arc<Setup>,
    handed: &Handed,
    started: Instant,
    front: &mut Front,
    backlog: Arc<Backlog>,
) -> Result<u8, CliError> {
    let mut signals = {
        let _inside = runtime.enter();
        Signals::listen()
    };
    // The prompt and the session come before the key: whoever mistyped one of them should not have
    // to mend the other first. A session that is to be gone on with is found before its prompt is
    // waited for.
    if run.compact.is_none() {
        prompt::check_argument(run)?;
    }
    let wish = journal::Wish::new(run, setup);
    let resumed = if wish.continues() {
        let wish = wish.clone();
        let opening = signals.attend(OPENING, move || journal::open(&wish));
        match runtime.block_on(opening)? {
            Ok(opened) => Some(opened?),
            Err(code) => return Ok(end_early(runtime, front, &mut signals, code)),
        }
    } else {
        None
    };
    let reading = match &run.compact {
        Some(focus) => Prompt::Text(focus.clone(), Duration::ZERO),
        None => prompt::read(runtime, &mut signals, run)?,
    };
    let (prompt, reading) = match reading {
        Prompt::Text(text, reading) => (text, reading),
        Prompt::Interrupted(code) => return Ok(end_early(runtime, front, &mut signals, code)),
    };
    setup.check_start()?;
    let mut keys = Keys::new(setup, handed, runtime, &mut signals);
    let opened = Models::open(setup, &mut keys);
    let redactor = keys.redactor();
    let models = match (opened, keys.interrupted()) {
        (_, Some(code)) => return Ok(end_early(runtime, front, &mut signals, code)),
        (opened, None) => opened?,
    };
    let assembly = Assembly::new(setup, models, redactor)?;
    let Ready { parts, session, notices, .. } = assembly.converse(run, wish, resumed, backlog)?;
    front.line(&init(setup, &assembly, session.clone()));
    for notice in assembly.notices().chain(&notices) {
        front.notice(notice);
    }
    front.name(print::Names {
        session,
        model: Some(assembly.model().name().to_owned()),
        startup: started.elapsed().saturating_sub(reading),
    });
    runtime.block_on(async {
        let op = match run.compact {
            Some(_) => Op::Compact { focus: Some(prompt).filter(|focus| !focus.is_empty()) },
            None => Op::Submit(prompt),
        };
        let mut summary = drive(parts, op, &mut signals, front).await;
        assembly.way_out().add_to(&mut summary);
        front.result(&summary);
        Ok(deliver(front, &mut signals, &summary).await)
    })
}

/// Ends a run that a signal ended before the model was asked.
fn end_early(runtime: &Runtime, front: &mut Front, signals: &mut Signals, code: u8) -> u8 {
    let summary = print::interrupted(code);
    front.result(&summary);
    runtime.block_on(deliver(front, signals, &summary))
}

/// Waits until the result is written, and returns the exit code. A reader may take its time; once a
/// signal has come it has two seconds.
async fn deliver(front: &Front, signals: &mut Signals, summary: &Summary) -> u8 {
    let in_time = async {
        if [signals::INTERRUPTED, signals::TERMINATED].contains(&summary.exit) {
            tokio::time::sleep(AFTER_A_SIGNAL).await;
        } else {
            std::future::pending::<()>().await;
        }
    };
    tokio::select! {
        biased;
        () = front.drained() => if terminal::is_lost() { FAILED } else { summary.exit },
        () = in_time => summary.exit,
        code = signals.next() => code,
    }
}

/// Returns the first line of a run.
pub(crate) fn init(setup: &Setup, assembly: &Assembly, session: Option<String>) -> Line {
    Line::Init {
        schema: SCHEMA,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        session,
        model: assembly.model().name().to_owned(),
        profile: setup.profile().to_owned(),
        tools: assembly.offered().iter().map(|name| (*name).to_owned()).collect(),
        authority: authority(&Report::new(assembly.subject(), assembly.confinement())),
        confinement: assembly.confinement().label(),
        workspace: setup.workspace.display().to_string(),
    }
}

/// Returns the report as the object that `--print-authority --json` prints.
fn authority(report: &Report) -> serde_json::Map<String, serde_json::Value> {
    match serde_json::to_value(report) {
        Ok(serde_json::Value::Object(map)) => map,
        // Names and lists cannot fail to serialise.
        _ => serde_json::Map::new(),
    }
}

/// Opens the file of `--log`, or of the setting `log`; returns its name with it.
///
/// # Errors
/// For what no log can be written to.
pub(crate) fn open_log(file: &Path) -> Result<(String, File), CliError> {
    let here = host::environment::current_directory()
        .map_err(|error| CliError::config(format!("cannot tell the current directory: {error}")))?;
    let refused = |reason: &str| {
        let hint = if reason.contains("read-only file system") {
            "inside the sandbox the workspace, `/tmp` and kli's state directory can be written"
        } else {
            "`--log` takes a regular file, or a FIFO that is being read; so does the setting `log`"
        };
        CliError::config(format!("the log cannot be written: {reason}")).hint(hint)
    };
    // The way to it may lead up, or over links; it is none itself.
    let spelled = here.join(file);
    let path = match (spelled.parent(), spelled.file_name()) {
        (Some(directory), Some(name)) => files::resolve(directory, &here, None)
            .map_err(|error| refused(&error.sentence()))?
            .join(name),
        _ => files::resolve(&spelled, &here, None).map_err(|error| refused(&error.sentence()))?,
    };
    // Opening empties it. What cannot be read here may still be written.
    let mut start = Vec::new();
    let begins = state::open_read(&path).map(|file| file.take(64).read_to_end(&mut start));
    if matches!(begins, Ok(Ok(_))) && start.starts_with(session::BEGINNING) {
        let path = path.display();
        return Err(refused(&format!(
            "`{path}` is a session, which a log would take the place of"
        )));
    }
    let opened = state::create_log(&Grant::own_state(&path), &path)
        .map_err(|error| refused(&error.sentence()))?;
    Ok((file.display().to_string(), opened))
}

/// Opens what shows the run. What cannot be written to the log is said once and stops nothing.
fn front(
    run: &RunArguments,
    log: Option<(String, File)>,
    backlog: &Arc<Backlog>,
) -> std::io::Result<Front> {
    let lane = |(name, mut file): (String, File)| {
        Lane::new(Arc::clone(backlog), move |text: &str| {
            file.write_all(text.as_bytes()).inspect_err(|error| {
                terminal::note(&format!(
                    "kli: the log `{name}` ends here, as it cannot be written: {error}"
                ));
            })
        })
    };
    let log = log.map(lane).transpose()?;
    Front::new(run.output_format, log, Arc::clone(backlog))
}

/// Runs the agent and the printer side by side until the prompt is done with.
async fn drive(parts: Parts, op: Op, signals: &mut Signals, front: &mut Front) -> Summary {
    let (ops, inbox) = mpsc::unbounded_channel();
    let (outbox, events) = mpsc::unbounded_channel();
    let agent = Agent::new(parts).run(inbox, outbox);
    let gone = nobody_listens(front);
    let front = front.run(events);
    // Before any signal is passed on: an interrupt of nothing would be lost.
    drop(ops.send(op));
    let internal = |exit, message: &str| {
        let message = message.to_owned();
        print::not_started(exit, Fault { kind: FaultKind::Internal, message })
    };
    let summary = tokio::select! {
        biased;
        code = pass_on(signals, gone, ops) => print::interrupted(code),
        // The agent would wait for the next prompt; there is none.
        () = agent => internal(super::error::INTERNAL, "the agent ended without a result"),
        summary = front => summary.unwrap_or_else(|| {
            internal(super::error::INTERNAL, "the run ended without a result")
        }),
    };
    if let Err(survivors) = host::process::reap_all() {
        terminal::note(&format!("kli: processes {:?} could not be ended", survivors.0));
    }
    summary
}

/// Waits until the lines of the run have no reader: then there is nobody to work for. A text or one
/// object is written at the end, and a run that has begun is brought to it.
fn nobody_listens(front: &Front) -> impl Future<Output = ()> + use<> {
    let gone = front.streams().then(|| front.broken());
    async move {
        match gone {
            Some(broken) => tokio::select! {
                () = broken => {}
                () = terminal::reader_is_gone() => {}
            },
            None => std::future::pending().await,
        }
    }
}

/// Passes signals on as operations. Returns the exit code at the second one: whoever asks twice
/// does not want to wait.
async fn pass_on(
    signals: &mut Signals,
    gone: impl Future<Output = ()>,
    ops: UnboundedSender<Op>,
) -> u8 {
    let first = tokio::select! {
        biased;
        code = signals.next() => code,
        () = gone => signals::INTERRUPTED,
    };
    drop(ops.send(if first == signals::INTERRUPTED { Op::Interrupt } else { Op::Terminate }));
    signals.next().await
}

/// A single word that is nearly a command is a slip, not a prompt.
fn refuse_near_commands(run: &RunArguments) -> Result<(), CliError> {
    let Some(word) = run.prompt.as_deref().filter(|word| !word.contains(char::is_whitespace))
    else {
        return Ok(());
    };
    match no_command(word, "kli") {
        Some(error) => Err(error),
        None => Ok(()),
    }
}
