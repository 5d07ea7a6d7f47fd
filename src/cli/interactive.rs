//! The terminal interface, put together: what a conversation is made of, and who answers commands.
//! A command's answer is what the command line prints, caught on its way out.

mod desk;
mod fault;
mod footer;
mod undo;

use std::{
    io,
    os::fd::OwnedFd,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, PoisonError, mpsc as blocking},
    thread,
};

use tokio::{
    runtime::Runtime,
    sync::mpsc::{self, UnboundedSender},
};

use crate::{
    agent::{Agent, Backlog, Event},
    authority::{Grant, Subject},
    config::{Paths, names},
    host::{self, Host, secrets::Handed},
    model::Model,
    session::{History, SessionError, Store},
    tool::{Context, inspect::Told},
    tui::{
        self, Answer, Change, Conversation, Earlier, Editing, Look, Root, found::Found,
        state::Facts,
    },
};

mod choices;
mod log;
mod switch;

use super::{
    args::{ConfigCommand, ExportFormat, RunArguments, SandboxCommand, SessionsCommand},
    assembly::{Assembly, Models, Ready},
    checkpoints::{self, Checkpointing},
    config,
    credentials::Keys,
    doctor,
    error::CliError,
    journal::{self, SharedLog, Wish},
    models,
    provider::{chosen_effort, model_name},
    sandbox, sessions,
    setup::Setup,
    show_authority,
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
    if run.output_format != super::args::OutputFormat::Text || run.timings {
        return Err(CliError::config("`--output-format` and `--timings` belong to a headless run")
            .hint("run a prompt with `kli -p \"…\"`"));
    }
    let run = RunArguments { interactive: true, ..run.clone() };
    let setup = Arc::new(Setup::read(&run)?);
    // No thread has started yet, and none may have.
    host::environment::wipe(&setup.settings.secret_variables());
    setup.check_start()?;
    let log = log::open(&run, &setup)?;
    if let Some(state) = setup.paths.as_ref().map(Paths::state) {
        host::process::editor::sweep(&Grant::own_state(state), state);
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| CliError::internal(format!("cannot start the run: {error}")))?;
    let end = thread::scope(|scope| {
        let (answers, inbox) = mpsc::unbounded_channel();
        let (asks, commands) = blocking::channel();
        let (setup, run) = (&setup, &run);
        let out = answers.clone();
        scope.spawn(move || answer_all(&commands, &out, setup, handed));
        let assembly = match assemble(setup, handed, &runtime)? {
            Ok(assembly) => assembly,
            Err(code) => return Ok(tui::End { code, session: None }),
        };
        let (said, to_keep) = blocking::channel();
        if let Some(history) = history(run, setup) {
            let out = answers.clone();
            scope.spawn(move || desk::keep_history(&history, &to_keep, &out));
        }
        let mut house = House::new(run, setup, assembly, log, asks, answers, said);
        let first = house.first()?;
        let terminal = terminal::both()
            .map_err(|error| CliError::internal(format!("cannot use the terminal: {error}")))?;
        let look = Look {
            paint: choices::paint(setup),
            keys: setup.settings.keymap(),
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
    if let Ok(session) = begun(&setup, end.session.as_deref(), "go on with") {
        terminal::note(&format!("kli: go on with `kli --resume {session}`"));
    }
    Ok(end.code)
}

/// Opens the models and looks around; the inner error is the exit code of a signal that came first.
fn assemble(
    setup: &Arc<Setup>,
    handed: &Handed,
    runtime: &Runtime,
) -> Result<Result<Assembly, u8>, CliError> {
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

/// Returns where what is said is kept for later sessions, unless nothing is to be kept.
fn history(run: &RunArguments, setup: &Setup) -> Option<History> {
    let is_kept = !run.no_session && setup.settings.session.or(true);
    let paths = setup.paths.as_ref().filter(|_| is_kept)?;
    Some(History::new(paths.state(), &setup.workspace))
}

/// What a thread of its own is asked, so that keys are seen meanwhile.
struct Asked {
    name: &'static str,
    rest: String,
    session: Option<String>,
    subject: Arc<Subject>,
    /// The session, to be written to besides.
    journal: Option<SharedLog>,
    run: RunArguments,
    setup: Arc<Setup>,
    /// Where to put the models of a setup that is to take the place of the one there is.
    models: Option<switch::Slot>,
}

/// Answers commands until nobody asks any more.
fn answer_all(
    commands: &blocking::Receiver<Asked>,
    answers: &UnboundedSender<Answer>,
    setup: &Setup,
    handed: &Handed,
) {
    for asked in commands {
        let command = || {
            fault::on_demand(setup, fault::Place::Command);
            setup.environment.within(|| answer(&asked, handed))
        };
        let (result, text, mut errors) =
            terminal::captured(|| catch_unwind(AssertUnwindSafe(command)));
        let failed = match result {
            Ok(Ok(Some(answer))) => {
                tell(&asked, answer, answers);
                continue;
            }
            Ok(Ok(None)) => false,
            Ok(Err(error)) => {
                errors.push_str(&error.lines().join("\n"));
                true
            }
            Err(_) => {
                errors.push_str("the command broke off by a fault of kli's own");
                true
            }
        };
        let change = (asked.models.is_some() && !failed).then_some(Change::GoOn);
        let is_diff = asked.name == "diff" && !failed;
        let answer = Answer { text, errors, failed, is_diff, change, ..Answer::default() };
        tell(&asked, answer, answers);
    }
}

/// Tells an answer; the session's name may be another one now.
fn tell(asked: &Asked, answer: Answer, answers: &UnboundedSender<Answer>) {
    if asked.name == "name" {
        tell_name(asked.journal.as_ref(), answers);
    }
    drop(answers.send(Answer { to: tui::said(asked.name, &asked.rest), ..answer }));
}

fn tell_name(journal: Option<&SharedLog>, answers: &UnboundedSender<Answer>) {
    let name = journal.and_then(|journal| {
        let journal = journal.lock().unwrap_or_else(PoisonError::into_inner);
        journal.name().map(str::to_owned)
    });
    drop(answers.send(Answer { found: Some(Found::Name(name)), ..Answer::default() }));
}

/// Answers a command: with an answer, or with what was printed.
fn answer(asked: &Asked, handed: &Handed) -> Result<Option<Answer>, CliError> {
    let (setup, now) = (&asked.setup, asked.session.as_deref());
    if let Some(slot) = &asked.models {
        return switch::open(setup, slot, handed).map(|_| None);
    }
    let _printed = match asked.name {
        "resume" => return desk::sessions(setup, now).map(Some),
        "tree" => return desk::tree(setup, now).map(Some),
        "name" => return desk::name(&asked.rest, asked.journal.as_ref()).map(Some),
        "mcp" => return Ok(Some(desk::not_yet(setup, "MCP servers", "mcpServers"))),
        "skills" => return Ok(Some(desk::not_yet(setup, "skills", "skills"))),
        "prompts" => return Ok(Some(desk::not_yet(setup, "prompt templates", "prompts"))),
        "export" if !asked.rest.is_empty() => {
            let (exported, text, _) = terminal::captured(|| export(setup, now));
            exported?;
            return desk::export_to(setup, &asked.subject, &asked.rest, &text).map(Some);
        }
        "authority" => show_authority(&asked.run, setup),
        "model" => models::show(setup, false, handed),
        "sandbox" => sandbox::run(&SandboxCommand::Show),
        "config" => config::run(&ConfigCommand::Show { json: false }),
        "doctor" => doctor::run(false, handed),
        "sessions" => sessions::run(&SessionsCommand::List { json: false, all: false }),
        "export" => export(setup, now),
        "diff" => sessions::run(&SessionsCommand::Diff { id: begun(setup, now, "compare with")? }),
        other => Err(CliError::internal(format!("nobody answers `/{other}`"))),
    }?;
    Ok(None)
}

/// Returns the session that goes on; before anything was said there is none yet.
fn begun(setup: &Setup, session: Option<&str>, what: &str) -> Result<String, CliError> {
    let (Some(id), Some(paths)) = (session, &setup.paths) else { return Err(no_session(what)) };
    match Store::new(paths.state()).find(&setup.workspace, id) {
        Err(SessionError::Unknown { .. }) => {
            Err(CliError::config("nothing was said in this session yet"))
        }
        _ => Ok(id.to_owned()),
    }
}

fn export(setup: &Setup, session: Option<&str>) -> Result<u8, CliError> {
    let id = begun(setup, session, "export")?;
    sessions::run(&SessionsCommand::Export { id, format: ExportFormat::Markdown })
}

fn no_session(what: &str) -> CliError {
    CliError::config(format!("no session is kept, so there is none to {what}"))
        .hint("leave `--no-session` out, and see the setting `session`")
}

/// What stays the same from one conversation to the next.
struct House<'a> {
    run: &'a RunArguments,
    setup: Arc<Setup>,
    assembly: Assembly,
    /// Where the events are written besides.
    log: Option<log::Log>,
    /// The session that is written, with the conversation so far.
    kept: switch::Kept,
    /// What is to take the place of the setup once its models are there.
    wanted: Option<switch::Wanted>,
    /// The context of the conversation that goes on: what the model may ask about itself.
    context: Option<Arc<Context>>,
    /// Who keeps what it changes, when a session is kept.
    checkpoints: Option<Arc<Checkpointing>>,
    asks: blocking::Sender<Asked>,
    answers: UnboundedSender<Answer>,
    /// The session of the conversation that goes on, to be written to besides.
    journal: Option<SharedLog>,
    /// What was said, to be kept.
    said: blocking::Sender<String>,
}

impl<'a> House<'a> {
    fn new(
        run: &'a RunArguments,
        setup: &Arc<Setup>,
        assembly: Assembly,
        log: Option<log::Log>,
        asks: blocking::Sender<Asked>,
        answers: UnboundedSender<Answer>,
        said: blocking::Sender<String>,
    ) -> Self {
        Self {
            run,
            setup: Arc::clone(setup),
            assembly,
            log,
            kept: switch::Kept::default(),
            wanted: None,
            context: None,
            asks,
            answers,
            checkpoints: None,
            journal: None,
            said,
        }
    }

    /// Begins the conversation that the command line asks for.
    fn first(&mut self) -> Result<Conversation, CliError> {
        let mut talk = self.converse(self.run)?;
        let notices: Vec<String> = self.assembly.notices().cloned().collect();
        talk.notices.splice(0..0, notices);
        Ok(talk)
    }

    /// Begins a conversation on the session that these arguments ask for.
    fn converse(&mut self, run: &RunArguments) -> Result<Conversation, CliError> {
        let mut begun = journal::open(&Wish::new(run, &self.setup))?;
        let notices = std::mem::take(&mut begun.notices);
        let before = std::mem::replace(&mut self.kept, switch::Kept::of(begun));
        let mut talk = match self.talk(run, None) {
            Ok(talk) => talk,
            Err(error) => {
                // The one that is there goes on.
                self.kept = before;
                return Err(error);
            }
        };
        talk.notices.splice(0..0, notices);
        Ok(talk)
    }

    /// Begins a conversation where the one that is kept has come to, with the memory of its tools.
    fn talk(
        &mut self,
        run: &RunArguments,
        before: Option<&Context>,
    ) -> Result<Conversation, CliError> {
        let (setup, assembly) = (&self.setup, &self.assembly);
        let backlog = Arc::new(Backlog::default());
        let wish = Wish::new(run, setup);
        let started = if before.is_some() { self.kept.gone_on_with() } else { self.kept.begun() };
        let Ready { mut parts, session, checkpoints, mut notices, log } =
            assembly.converse(run, wish, Some(started), Arc::clone(&backlog))?;
        parts.shelf = Some(self.kept.shelf());
        tell_name(log.as_ref(), &self.answers);
        if let (Some(before), Some(context)) = (before, Arc::get_mut(&mut parts.context)) {
            context.state = before.state.heir();
        } else if checkpoints.is_none() {
            notices.push(undo::NONE_KEPT.to_owned());
        }
        self.checkpoints = checkpoints;
        self.journal = log;
        self.context = Some(Arc::clone(&parts.context));
        let window = |model: &dyn Model| (model.name().to_owned(), model.context_window());
        let plan = Host::default().jail();
        let (confined, level) = footer::words(assembly.confinement(), plan, &self.workspace());
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
        let mut log = match &self.log {
            Some(log) => Some(log.front(self, facts.session.as_ref(), &backlog, &notices)?),
            None => None,
        };
        let earlier = match before {
            // It stands on the screen.
            Some(_) => Earlier::default(),
            None => Earlier::of(&parts.history, |message| assembly.redactor().message(message)),
        };
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
                if let Some(log) = &mut log {
                    log.log(&event);
                }
                drop(shown.send(event));
            }
        };
        let agent = async move {
            tokio::join!(agent.run(inbox, outbox), pass_on);
        };
        let agent = Box::pin(agent);
        let (said, draft) = (String::new(), None);
        Ok(Conversation { facts, earlier, notices, said, draft, ops, events, agent, backlog })
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

    /// Has something looked up, or models opened, while keys are seen.
    fn look(
        &self,
        name: &'static str,
        rest: String,
        session: Option<String>,
        models: Option<switch::Wanted>,
    ) {
        let (setup, slot) = match models {
            Some(wanted) => (wanted.setup, Some(wanted.models)),
            None => (Arc::clone(&self.setup), None),
        };
        let (run, journal) = (self.run.clone(), self.journal.clone());
        let subject = Arc::clone(self.assembly.subject());
        let asked = Asked { name, rest, session, subject, journal, run, setup, models: slot };
        drop(self.asks.send(asked));
    }

    fn told(&self) -> Option<&Told> {
        self.context.as_ref().and_then(|context| context.state.told.get())
    }

    /// What is known here, without looking anywhere.
    fn known(&self, name: &str) -> Option<String> {
        Some(match name {
            "tools" => self.told()?.tools(),
            "context" => self.told()?.context(&self.setup.workspace),
            _ => return None,
        })
    }
}

impl Root for House<'_> {
    fn begin(&mut self, how: &str, what: &str, now: Option<&str>) -> Result<Conversation, String> {
        if how == tui::SWITCH {
            return self.go_on();
        }
        let fresh =
            RunArguments { continue_latest: false, resume: None, prompt: None, ..self.run.clone() };
        let sentence = |error: &CliError| error.lines().join("\n");
        let kept = |what: &str| {
            let paths = self.setup.paths.as_ref().ok_or_else(|| sentence(&no_session(what)))?;
            Ok::<Store, String>(Store::new(paths.state()))
        };
        let workspace = &self.setup.workspace;
        let mut notices = Vec::new();
        let resume = match how {
            "fork" => {
                let store = kept("copy")?;
                let now = begun(&self.setup, now, "copy").map_err(|error| sentence(&error))?;
                let found = store.find(workspace, &now).map_err(|error| error.to_string())?;
                let forked = store.fork(workspace, &found).map_err(|error| error.to_string())?.id;
                let state = self.setup.paths.as_ref().map(Paths::state);
                notices.extend(state.and_then(|state| {
                    checkpoints::take_along(state, workspace, &found.id, &forked, u64::MAX)
                }));
                Some(forked)
            }
            "rewind" => return self.rewind(what, now, fresh),
            "resume" => {
                let found = kept("go on with")?
                    .find_anywhere(workspace, what)
                    .map_err(|e| e.to_string())?;
                if now == Some(found.id.as_str()) {
                    return Err(format!("`{}` is the session that goes on now", found.id));
                }
                Some(found.id)
            }
            _ => None,
        };
        let mut talk =
            self.converse(&RunArguments { resume, ..fresh }).map_err(|error| sentence(&error))?;
        talk.notices.extend(notices);
        Ok(talk)
    }

    fn ask(&mut self, name: &'static str, rest: String, session: Option<String>) {
        fault::on_demand(&self.setup, fault::Place::Loop);
        let to = tui::said(name, &rest);
        if matches!(name, "undo" | "redo" | "rewind") {
            let answer = self.put_back(name, &rest, session.as_deref());
            drop(self.answers.send(Answer { to, ..answer }));
            return;
        }
        let answer = match self.choose(name, &rest) {
            choices::Chosen::Answer(answer) => answer,
            choices::Chosen::Wanted => return,
            choices::Chosen::Nothing => match self.known(name) {
                Some(text) => Answer { text, ..Answer::default() },
                None => return self.look(name, rest, session, None),
            },
        };
        drop(self.answers.send(Answer { to, ..answer }));
    }

    fn files(&mut self) {
        let (workspace, subject) = (self.setup.workspace.clone(), self.assembly.subject());
        desk::look_for_files(workspace, Arc::clone(subject), &self.answers);
    }

    fn remember(&mut self, text: String) {
        // Nobody listens where nothing is kept.
        drop(self.said.send(self.assembly.redactor().redact(&text).into_owned()));
    }

    fn edit(&mut self, text: &str, terminal: OwnedFd) -> Result<Editing, String> {
        desk::edit(&self.setup.environment, self.setup.paths.as_ref(), text, &terminal)
    }
}
