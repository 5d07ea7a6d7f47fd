//! A headless run, put together: prompt, settings, subject, model, session, agent, printer.

use std::{path::Path, sync::Arc, time::Duration};

use tokio::{
    runtime::Runtime,
    sync::mpsc::{self, UnboundedSender},
};

use crate::{
    agent::{
        Agent, Budgets, Facts, Fault, FaultKind, Op, Parts, Summary, system_prompt, turn::Retry,
    },
    authority::Confinement,
    config::Settings,
    host::{
        self, Host,
        confinement::{self, Signs},
    },
    tool::{self, BashOptions, Context},
};

use super::{
    args::{OutputFormat, RunArguments},
    error::CliError,
    journal, print,
    provider::open_model,
    setup::{Setup, read_small},
    signals::{self, Signals},
    terminal,
};

/// The largest file of a system prompt, in bytes.
const SYSTEM_PROMPT_LIMIT: usize = 256 * 1024;
/// Seconds that a command may take when neither the call nor the settings say.
pub(super) const BASH_TIMEOUT: Duration = Duration::from_mins(2);
/// The most that a call may ask for when the settings do not say.
pub(super) const BASH_MAX_TIMEOUT: Duration = Duration::from_mins(10);

/// Runs one prompt without a terminal interface; returns the exit code.
///
/// # Errors
/// For what keeps the run from starting.
pub(crate) fn run(run: &RunArguments) -> Result<u8, CliError> {
    if !run.print {
        refuse_near_commands(run)?;
        if terminal::input_is_terminal() {
            return Err(CliError::config("this version has no terminal interface")
                .hint("run a prompt with `kli -p \"…\"`"));
        }
    }
    // What the command line says is checked before anything is waited for.
    let setup = Setup::read(run)?;
    // No thread has started yet, and none may have.
    host::environment::wipe(&setup.settings.secret_variables());
    host::harden();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| CliError::internal(format!("cannot start the run: {error}")))?;
    let code = run_in(&runtime, run, &setup);
    // Blocking work that is still going on (a search, a read of standard input) must not hold up
    // the end.
    runtime.shutdown_background();
    code
}

fn run_in(runtime: &Runtime, run: &RunArguments, setup: &Setup) -> Result<u8, CliError> {
    let signals = {
        let _inside = runtime.enter();
        Signals::listen()
    };
    let (prompt, signals) = match prompt(runtime, signals, run)? {
        Prompt::Text(text, signals) => (text, signals),
        Prompt::Interrupted(code) => {
            show(run, &print::interrupted(code), &print::Names::default());
            return Ok(code);
        }
    };
    let subject = Arc::new(setup.subject());
    setup.check_start()?;
    let model = open_model(setup)?;
    let model_name = model.name().to_owned();
    for warning in &setup.warnings {
        terminal::note(&format!("kli: {warning}"));
    }
    let signs = Signs::read(&setup.environment);
    let confinement = confinement::judge(&signs);
    let tools = tool::standard();
    let offered: Vec<&str> = tools
        .iter()
        .filter(|tool| subject.offers(tool.name(), &tool.atom()))
        .map(|tool| tool.name())
        .collect();
    let system = system(run, setup, &offered, confinement)?;
    let context = Arc::new(Context {
        host: Host::default(),
        workspace: setup.workspace.clone(),
        home: setup.environment.home(),
        state: tool::State::default(),
        bash: bash(setup)?,
    });
    let started = journal::open(run, setup)?;
    for notice in &started.notices {
        terminal::note(&format!("kli: {notice}"));
    }
    let names = print::Names { session: started.id.clone(), model: Some(model_name) };
    let parts = Parts {
        model,
        tools,
        subject,
        confinement,
        context,
        system,
        history: started.history,
        budgets: budgets(&setup.settings),
        retry: retry(&signs),
        journal: started.journal,
    };
    let mut summary = runtime.block_on(drive(parts, prompt, signals));
    if let Some(fault) = summary.fault.as_mut().filter(|fault| fault.kind == FaultKind::Network)
        && signs.network_is_off()
    {
        fault
            .message
            .push_str("; the sandbox has no network: set `network` to true in its specification");
    }
    show(run, &summary, &names);
    Ok(summary.exit)
}

fn show(run: &RunArguments, summary: &Summary, names: &print::Names) {
    match run.output_format {
        OutputFormat::Text => print::text(summary),
        OutputFormat::Json | OutputFormat::StreamJson => print::json(summary, names),
    }
}

/// Runs the agent and the printer side by side until the prompt is done with.
async fn drive(parts: Parts, prompt: String, signals: Signals) -> Summary {
    let (ops, inbox) = mpsc::unbounded_channel();
    let (outbox, events) = mpsc::unbounded_channel();
    let agent = Agent::new(parts).run(inbox, outbox);
    let front = print::run(events);
    // Before any signal is passed on: an interrupt of nothing would be lost.
    drop(ops.send(Op::Submit(prompt)));
    let internal = |exit, message: &str| {
        let message = message.to_owned();
        print::not_started(exit, Fault { kind: FaultKind::Internal, message })
    };
    let summary = tokio::select! {
        biased;
        code = pass_on(signals, ops) => print::interrupted(code),
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

/// Passes signals on as operations. Returns the exit code at the second one: whoever asks twice
/// does not want to wait.
async fn pass_on(mut signals: Signals, ops: UnboundedSender<Op>) -> u8 {
    let first = signals.next().await;
    drop(ops.send(if first == signals::INTERRUPTED { Op::Interrupt } else { Op::Terminate }));
    signals.next().await
}

/// A single word that is nearly a command is a slip, not a prompt.
fn refuse_near_commands(run: &RunArguments) -> Result<(), CliError> {
    let commands =
        ["auth", "completion", "config", "demo", "doctor", "help", "sessions", "trust", "version"];
    let Some(word) = run.prompt.as_deref().filter(|word| !word.contains(char::is_whitespace))
    else {
        return Ok(());
    };
    match commands.iter().find(|command| strsim::damerau_levenshtein(word, command) <= 2) {
        Some(near) => Err(CliError::config(format!("unknown command `{word}`"))
            .hint(format!("did you mean `kli {near}`? A prompt of that word goes after `-p`"))),
        None => Ok(()),
    }
}

/// What became of the prompt.
enum Prompt {
    Text(String, Signals),
    /// A signal came while standard input was read.
    Interrupted(u8),
}

/// Returns the prompt: the argument, or standard input for `-` and when there is none.
fn prompt(runtime: &Runtime, mut signals: Signals, run: &RunArguments) -> Result<Prompt, CliError> {
    let text = match run.prompt.as_deref() {
        Some(text) if text != "-" => text.to_owned(),
        None if terminal::input_is_terminal() => {
            return Err(
                CliError::config("there is no prompt").hint("write it after `-p`, or pipe it in")
            );
        }
        Some(_) | None => match runtime.block_on(standard_input(&mut signals))? {
            Ok(text) => text,
            Err(code) => return Ok(Prompt::Interrupted(code)),
        },
    };
    check_prompt(&text)?;
    Ok(Prompt::Text(text, signals))
}

/// Reads standard input to its end; the inner error is the exit code of a signal that came first.
async fn standard_input(signals: &mut Signals) -> Result<Result<String, u8>, CliError> {
    tokio::select! {
        biased;
        code = signals.next() => Ok(Err(code)),
        read = tokio::task::spawn_blocking(terminal::read_prompt) => match read {
            Ok(read) => read.map(Ok).map_err(CliError::config),
            Err(error) => Err(CliError::internal(format!("cannot read the prompt: {error}"))),
        },
    }
}

fn check_prompt(text: &str) -> Result<(), CliError> {
    if text.trim().is_empty() {
        return Err(CliError::config("the prompt is empty").hint("write it after `-p`"));
    }
    let slash = text.trim().strip_prefix('/').is_some_and(|rest| {
        let word = rest.split_whitespace().next().unwrap_or_default();
        !word.is_empty() && word.chars().all(|c| c.is_ascii_alphabetic() || c == '-')
    });
    if slash {
        let word = text.split_whitespace().next().unwrap_or_default();
        return Err(CliError::config(format!("`{word}` is a command of the terminal interface"))
            .hint("a headless run takes a prompt; begin it with another word"));
    }
    Ok(())
}

/// Without a network nothing gets better by waiting.
fn retry(signs: &Signs) -> Retry {
    let standard = Retry::default();
    Retry { attempts: if signs.network_is_off() { 0 } else { standard.attempts }, ..standard }
}

fn budgets(settings: &Settings) -> Budgets {
    Budgets {
        turns: settings.budgets.turns.get().copied(),
        tokens: settings.budgets.tokens.get().copied(),
        time: settings.budgets.time.get().copied(),
    }
}

fn bash(setup: &Setup) -> Result<BashOptions, CliError> {
    let settings = &setup.settings.bash;
    let shell = match settings.shell.get() {
        Some(shell) => setup.spelled(shell)?,
        None => "bash".into(),
    };
    let max_timeout =
        settings.max_timeout.or(BASH_MAX_TIMEOUT.max(settings.timeout.or(BASH_TIMEOUT)));
    // Limits are whole seconds; a part of one counts as one, since none at all would end every
    // command at once.
    let seconds = |time: Duration| time.as_millis().div_ceil(1000).try_into().unwrap_or(u64::MAX);
    Ok(BashOptions {
        shell,
        timeout: seconds(settings.timeout.or(BASH_TIMEOUT.min(max_timeout))),
        max_timeout: seconds(max_timeout),
        withheld: setup.settings.secret_variables(),
        env: settings
            .env
            .iter()
            .filter_map(|(name, value)| Some((name.clone(), value.get()?.clone())))
            .collect(),
        pass: settings.pass_env.get().cloned().flatten(),
    })
}

fn system(
    run: &RunArguments,
    setup: &Setup,
    tools: &[&str],
    confinement: Confinement,
) -> Result<String, CliError> {
    let replacement = run
        .system_prompt_file
        .as_deref()
        .map(|file| system_file(&setup.workspace, file))
        .transpose()?;
    let appendix = run
        .append_system_prompt_file
        .as_deref()
        .map(|file| system_file(&setup.workspace, file))
        .transpose()?;
    Ok(system_prompt(&Facts {
        workspace: &setup.workspace,
        tools,
        confinement: &confinement.label(),
        replacement: replacement.as_deref(),
        appendix: appendix.as_deref(),
    }))
}

fn system_file(workspace: &Path, file: &Path) -> Result<String, CliError> {
    let bytes = read_small(&workspace.join(file), SYSTEM_PROMPT_LIMIT)?
        .ok_or_else(|| CliError::config(format!("there is no file `{}`", file.display())))?;
    String::from_utf8(bytes)
        .map_err(|_| CliError::config(format!("`{}` is not UTF-8", file.display())))
}
