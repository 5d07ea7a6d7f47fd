//! The terminal interface, put together: what a conversation is made of, and who answers commands.
//! A command's answer is what the command line prints, caught on its way out.

mod undo;

use std::{
    io,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, mpsc as blocking},
    thread,
};

use tokio::{
    runtime::Runtime,
    sync::mpsc::{self, UnboundedSender},
};

use crate::{
    agent::{Agent, Backlog, Event},
    authority::Confinement,
    config::names,
    host::{self, Host, secrets::Handed},
    model::Model,
    session::Store,
    tool::{Context, inspect::Told},
    tui::{
        self, Answer, Conversation, Look, Root,
        state::{Facts, Level},
    },
};

use super::{
    args::{ConfigCommand, ExportFormat, RunArguments, SessionsCommand},
    assembly::{Assembly, Models, Ready},
    checkpoints::Checkpointing,
    config,
    credentials::Keys,
    doctor,
    error::CliError,
    journal::Wish,
    models, print_authority,
    provider::{chosen_effort, model_name},
    sessions,
    setup::Setup,
    signals::Signals,
    terminal,
};

/// Runs the terminal interface; returns the exit code.
///
/// # Errors
/// For what keeps it from starting.
pub(crate) fn run(run: &RunArguments, handed: &Handed) -> Result<u8, CliError> {
    if !terminal::output_is_terminal() {
        return Err(CliError::config("standard output is no terminal, so there is no interface")
            .hint("run a prompt with `kli -p \"…\"`"));
    }
    if run.output_format != super::args::OutputFormat::Text || run.log.is_some() || run.timings {
        return Err(CliError::config(
            "`--output-format`, `--log` and `--timings` belong to a headless run",
        )
        .hint("run a prompt with `kli -p \"…\"`"));
    }
    let run = RunArguments { interactive: true, ..run.clone() };
    let setup = Setup::read(&run)?;
    // No thread has started yet, and none may have.
    host::environment::wipe(&setup.settings.secret_variables());
    setup.check_start()?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| CliError::internal(format!("cannot start the run: {error}")))?;
    let end = thread::scope(|scope| {
        let (answers, inbox) = mpsc::unbounded_channel();
        let (asks, commands) = blocking::channel();
        let (setup, run) = (&setup, &run);
        let out = answers.clone();
        scope.spawn(move || answer_all(&commands, &out, setup, run, handed));
        let assembly = match assemble(setup, handed, &runtime)? {
            Ok(assembly) => assembly,
            Err(code) => return Ok(tui::End { code, session: None }),
        };
        let (context, checkpoints) = (None, None);
        let mut house = House { run, setup, assembly, context, checkpoints, asks, answers };
        let first = house.first()?;
        let terminal = terminal::both()
            .map_err(|error| CliError::internal(format!("cannot use the terminal: {error}")))?;
        let look = Look {
            colors: setup.environment.var(names::NO_COLOR).is_none(),
            prompt: run.prompt.clone(),
        };
        let dumb = setup.environment.var(names::TERM).is_none_or(|term| term == "dumb");
        let ended = runtime.block_on(async {
            if run.plain || dumb {
                tui::run_plain(terminal, &mut house, first, inbox, look).await
            } else {
                tui::run(terminal, &mut house, first, inbox, look).await
            }
        });
        ended.map_err(|error: io::Error| {
            CliError::internal(format!("the terminal cannot be used: {error}"))
        })
    });
    // Blocking work that still goes on must not hold up the end.
    runtime.shutdown_background();
    if let Err(survivors) = host::process::reap_all() {
        terminal::note(&format!("kli: processes {:?} could not be ended", survivors.0));
    }
    let end = end?;
    if let Some(session) = &end.session {
        terminal::note(&format!("kli: go on with `kli --resume {session}`"));
    }
    Ok(end.code)
}

/// Opens the models and looks around; the inner error is the exit code of a signal that came first.
fn assemble<'a>(
    setup: &'a Setup,
    handed: &Handed,
    runtime: &Runtime,
) -> Result<Result<Assembly<'a>, u8>, CliError> {
    let mut signals = {
        let _inside = runtime.enter();
        Signals::listen()
    };
    let mut keys = Keys::new(setup, handed, runtime, &mut signals);
    let opened = Models::open(setup, &mut keys);
    let redactor = keys.redactor();
    if let Some(code) = keys.interrupted() {
        return Ok(Err(code));
    }
    Assembly::new(setup, opened?, redactor).map(Ok)
}

/// What a thread of its own is asked, so that keys are seen meanwhile.
struct Asked {
    name: &'static str,
    session: Option<String>,
}

/// Answers commands until nobody asks any more.
fn answer_all(
    commands: &blocking::Receiver<Asked>,
    answers: &UnboundedSender<Answer>,
    setup: &Setup,
    run: &RunArguments,
    handed: &Handed,
) {
    for asked in commands {
        let command = || setup.environment.within(|| answer(&asked, run, handed));
        let (result, text, mut errors) =
            terminal::captured(|| catch_unwind(AssertUnwindSafe(command)));
        let failed = match result {
            Ok(Ok(_)) => false,
            Ok(Err(error)) => {
                errors.push_str(&error.lines().join("\n"));
                true
            }
            Err(_) => {
                errors.push_str("the command broke off by a fault of kli's own");
                true
            }
        };
        let is_diff = asked.name == "diff" && !failed;
        drop(answers.send(Answer { text, errors, failed, is_diff }));
    }
}

fn answer(asked: &Asked, run: &RunArguments, handed: &Handed) -> Result<u8, CliError> {
    match asked.name {
        "authority" => print_authority(run),
        "model" => models::run(run, false, handed),
        "config" => config::run(&ConfigCommand::Show { json: false }),
        "doctor" => doctor::run(false, handed),
        "sessions" => sessions::run(&SessionsCommand::List { json: false, all: false }),
        "export" => {
            let id = asked.session.clone().ok_or_else(|| no_session("export"))?;
            sessions::run(&SessionsCommand::Export { id, format: ExportFormat::Markdown })
        }
        "diff" => {
            let id = asked.session.clone().ok_or_else(|| no_session("compare with"))?;
            // Before anything was said there is no session yet.
            let fresh = |error: CliError| error.hint("nothing was said in this session yet");
            sessions::run(&SessionsCommand::Diff { id }).map_err(fresh)
        }
        other => Err(CliError::internal(format!("nobody answers `/{other}`"))),
    }
}

fn no_session(what: &str) -> CliError {
    CliError::config(format!("no session is kept, so there is none to {what}"))
        .hint("leave `--no-session` out, and see the setting `session`")
}

/// What stays the same from one conversation to the next.
struct House<'a> {
    run: &'a RunArguments,
    setup: &'a Setup,
    assembly: Assembly<'a>,
    /// The context of the conversation that goes on: what the model may ask about itself.
    context: Option<Arc<Context>>,
    /// Who keeps what it changes, when a session is kept.
    checkpoints: Option<Arc<Checkpointing>>,
    asks: blocking::Sender<Asked>,
    answers: UnboundedSender<Answer>,
}

impl House<'_> {
    /// Begins the conversation that the command line asks for.
    fn first(&mut self) -> Result<Conversation, CliError> {
        let mut talk = self.converse(self.run)?;
        let mut notices: Vec<String> = self.assembly.notices().cloned().collect();
        if self.setup.settings.log.get().is_some() {
            notices.push(
                "the setting `log` is for headless runs: this conversation is not written there"
                    .to_owned(),
            );
        }
        talk.notices.splice(0..0, notices);
        Ok(talk)
    }

    /// Begins a conversation on the session that these arguments ask for.
    fn converse(&mut self, run: &RunArguments) -> Result<Conversation, CliError> {
        let (setup, assembly) = (self.setup, &self.assembly);
        let backlog = Arc::new(Backlog::default());
        let wish = Wish::new(run, setup);
        let Ready { parts, session, checkpoints, mut notices } =
            assembly.converse(run, wish, None, Arc::clone(&backlog))?;
        if checkpoints.is_none() {
            notices.push(undo::NONE_KEPT.to_owned());
        }
        self.checkpoints = checkpoints;
        self.context = Some(Arc::clone(&parts.context));
        let window = |model: &dyn Model| (model.name().to_owned(), model.context_window());
        let (confined, level) = self.confined();
        let facts = Facts {
            model: parts.model.name().to_owned(),
            effort: chosen_effort(setup, &model_name(setup)?)
                .map(|effort| effort.name().to_owned()),
            windows: std::iter::once(assembly.model())
                .chain(assembly.fallbacks())
                .map(window)
                .collect(),
            profile: setup.profile().to_owned(),
            confinement: confined,
            level,
            session,
        };
        let history = parts.history.clone();
        let agent = Agent::new(parts);
        let (ops, inbox) = mpsc::unbounded_channel();
        let (outbox, mut told) = mpsc::unbounded_channel();
        let (shown, events) = mpsc::unbounded_channel();
        let way_out = assembly.way_out();
        let pass_on = async move {
            while let Some(mut event) = told.recv().await {
                if let Event::Done(summary) = &mut event {
                    way_out.add_to(summary);
                }
                drop(shown.send(event));
            }
        };
        let agent = async move {
            tokio::join!(agent.run(inbox, outbox), pass_on);
        };
        let agent = Box::pin(agent);
        let draft = None;
        Ok(Conversation { facts, history, notices, draft, ops, events, agent, backlog })
    }

    /// Returns the confinement in a few words: `jail: net on · 3 hidden · ~/src/x`.
    fn confined(&self) -> (String, Level) {
        let workspace = self.workspace();
        match self.assembly.confinement() {
            Confinement::KliSandbox => {
                let plan = Host::default().jail().unwrap_or_default();
                let network = match plan.get("network").and_then(serde_json::Value::as_bool) {
                    Some(true) => "net on",
                    Some(false) => "net off",
                    None => "net unknown",
                };
                let hidden = plan
                    .get("hiddenPaths")
                    .and_then(serde_json::Value::as_u64)
                    .map_or_else(String::new, |count| format!(" · {count} hidden"));
                (format!("jail: {network}{hidden} · {workspace}"), Level::Jailed)
            }
            Confinement::Outer(_) => (
                format!("{} · {workspace}", self.assembly.confinement().label()),
                Level::Unverified,
            ),
            Confinement::None => (format!("no jail · {workspace}"), Level::Open),
            Confinement::Unknown => {
                (format!("confinement unknown · {workspace}"), Level::Unverified)
            }
        }
    }

    /// Returns the workspace as people write it.
    fn workspace(&self) -> String {
        let workspace = &self.setup.workspace;
        match self.setup.environment.home().and_then(|home| {
            workspace.strip_prefix(super::setup::physical(&home)).ok().map(ToOwned::to_owned)
        }) {
            Some(rest) if rest.as_os_str().is_empty() => "~".to_owned(),
            Some(rest) => format!("~/{}", rest.display()),
            None => workspace.display().to_string(),
        }
    }

    fn told(&self) -> Option<&Told> {
        self.context.as_ref().and_then(|context| context.state.told.get())
    }

    /// What is known here, without looking anywhere.
    fn known(&self, name: &str) -> Option<String> {
        Some(match name {
            "tools" => {
                let tools = &self.told()?.tools;
                let lines: Vec<String> =
                    tools.iter().map(|(name, about)| format!("{name}: {about}")).collect();
                lines.join("\n")
            }
            "context" => {
                let workspace = format!("workspace: {}", self.setup.workspace.display());
                let lines = self.told()?.context.iter().cloned();
                std::iter::once(workspace).chain(lines).collect::<Vec<_>>().join("\n")
            }
            "sandbox" => {
                let label = format!("confinement: {}\n", self.assembly.confinement().label());
                match Host::default().jail() {
                    Some(plan) => format!(
                        "{label}the launcher tells of its plan (hidden paths are counted, not \
                         named):\n{plan:#}"
                    ),
                    None => label,
                }
            }
            _ => return None,
        })
    }
}

impl Root for House<'_> {
    fn begin(&mut self, how: &str, what: &str, now: Option<&str>) -> Result<Conversation, String> {
        let fresh =
            RunArguments { continue_latest: false, resume: None, prompt: None, ..self.run.clone() };
        let sentence = |error: &CliError| error.lines().join("\n");
        let kept = |what: &str| {
            let paths = self.setup.paths.as_ref().ok_or_else(|| sentence(&no_session(what)))?;
            Ok::<Store, String>(Store::new(paths.state()))
        };
        let workspace = &self.setup.workspace;
        let resume = match how {
            "fork" => {
                let store = kept("copy")?;
                let now = now.ok_or_else(|| sentence(&no_session("copy")))?;
                let found = store.find(workspace, now).map_err(|error| error.to_string())?;
                let forked = store.fork(workspace, &found).map_err(|error| error.to_string())?.id;
                self.share_checkpoints(&found.id, &forked);
                Some(forked)
            }
            "rewind" => return self.rewind(what, now, fresh),
            "resume" if what.is_empty() => {
                let found = kept("go on with")?.list(workspace).map_err(|e| e.to_string())?;
                let latest = found.into_iter().find(|found| now != Some(found.id.as_str()));
                let none =
                    || "there is no other session of this directory to go on with".to_owned();
                Some(latest.ok_or_else(none)?.id)
            }
            "resume" => {
                let found = kept("go on with")?.find(workspace, what).map_err(|e| e.to_string())?;
                if now == Some(found.id.as_str()) {
                    return Err(format!("`{}` is the session that goes on now", found.id));
                }
                Some(found.id)
            }
            _ => None,
        };
        self.converse(&RunArguments { resume, ..fresh }).map_err(|error| sentence(&error))
    }

    fn ask(&mut self, name: &'static str, rest: String, session: Option<String>) {
        if matches!(name, "undo" | "redo" | "rewind") {
            let answer = self.put_back(name, &rest, session.as_deref());
            drop(self.answers.send(answer));
            return;
        }
        match self.known(name) {
            Some(text) => {
                drop(self.answers.send(Answer { text, ..Answer::default() }));
            }
            None => drop(self.asks.send(Asked { name, session })),
        }
    }
}
