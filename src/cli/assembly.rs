//! What a run is put together from, for every front end alike: models, subject, tools, instructions,
//! session, bounds. It does not know how a run is shown.

use std::{ffi::OsString, sync::Arc, time::Duration};

use crate::{
    agent::{
        Approver, Backlog, Budgets, FaultKind, Ledger, Parts, Summary, Task, compact::Policy,
        task::Family, turn::Retry,
    },
    authority::{Atom, Confinement, Subject},
    config::Settings,
    host::{
        Host,
        confinement::{self, Signs},
    },
    message::Redactor,
    model::Model,
    tool::{self, BashOptions, Context, Kept},
};

use super::{
    args::RunArguments,
    checkpoints::Checkpointing,
    credentials::Keys,
    error::CliError,
    fallback,
    instructions::Instructions,
    journal::{self, SharedLog, Started, Wish},
    provider::open_model,
    setup::Setup,
    terminal,
};

/// Seconds that a command may take when neither the call nor the settings say.
pub(super) const BASH_TIMEOUT: Duration = Duration::from_mins(2);
/// The most that a call may ask for when the settings do not say.
pub(super) const BASH_MAX_TIMEOUT: Duration = Duration::from_mins(10);

/// The models of a run.
pub(crate) struct Models {
    chosen: Arc<dyn Model>,
    fallbacks: Vec<Arc<dyn Model>>,
    /// Why some of the fallbacks are not among them.
    left_out: Vec<String>,
}

impl Models {
    /// Opens them; nothing is sent. Whoever calls asks `keys` afterwards for an interruption and for
    /// the redactor.
    ///
    /// # Errors
    /// As [`open_model`], and for a budget of money that cannot be kept.
    pub(crate) fn open(setup: &Setup, keys: &mut Keys<'_>) -> Result<Self, CliError> {
        let chosen = open_model(setup, keys)?;
        fallback::check_price(setup, &*chosen)?;
        let (fallbacks, left_out) = fallback::open_fallbacks(setup, keys, chosen.name());
        Ok(Self { chosen, fallbacks, left_out })
    }
}

/// What stays the same over all conversations of one process.
pub(crate) struct Assembly {
    setup: Arc<Setup>,
    models: Models,
    redactor: Redactor,
    subject: Arc<Subject>,
    confinement: Confinement,
    network_is_off: bool,
    offered: Vec<&'static str>,
}

/// A conversation that can begin.
pub(crate) struct Ready {
    /// What its agent is made of.
    pub(crate) parts: Parts,
    /// The identifier of its session, when one is kept.
    pub(crate) session: Option<String>,
    /// Who keeps what it changes, when a session is kept.
    pub(crate) checkpoints: Option<Arc<Checkpointing>>,
    /// What people should know about it.
    pub(crate) notices: Vec<String>,
    /// Where a person writes to the session besides the conversation.
    pub(crate) log: Option<SharedLog>,
}

impl Assembly {
    /// Looks at what confines the process, and which tools it offers. While eval is among them,
    /// standard output is out of everybody's reach but that of [`terminal`].
    ///
    /// # Errors
    /// When standard output cannot be kept apart.
    pub(crate) fn new(
        setup: &Arc<Setup>,
        models: Models,
        redactor: Redactor,
    ) -> Result<Self, CliError> {
        let subject = Arc::new(setup.subject());
        let signs = Signs::read(&setup.environment);
        let offered: Vec<&'static str> = tool::standard()
            .iter()
            .map(|tool| (tool.name(), tool.atom()))
            .chain([(Task::NAME, Atom::AgentSpawn)])
            .filter(|(name, atom)| subject.offers(name, atom))
            .map(|(name, _)| name)
            .collect();
        if offered.contains(&"eval") {
            terminal::keep_output().map_err(|error| {
                CliError::internal(format!("cannot keep standard output apart: {error}"))
            })?;
        }
        Ok(Self {
            setup: Arc::clone(setup),
            models,
            redactor,
            subject,
            confinement: confinement::judge(&signs),
            network_is_off: signs.network_is_off(),
            offered,
        })
    }

    /// Returns the model that is asked first.
    pub(crate) fn model(&self) -> &dyn Model {
        &*self.models.chosen
    }

    /// Returns those that are asked in its place.
    pub(crate) fn fallbacks(&self) -> impl Iterator<Item = &dyn Model> {
        self.models.fallbacks.iter().map(|model| &**model)
    }

    /// Returns what people should know about the models.
    pub(crate) fn model_notices(&self) -> impl Iterator<Item = &String> {
        self.models.chosen.notices().iter().chain(&self.models.left_out)
    }

    /// Returns what takes secrets out of what is said.
    pub(crate) fn redactor(&self) -> &Redactor {
        &self.redactor
    }

    pub(crate) fn subject(&self) -> &Arc<Subject> {
        &self.subject
    }

    pub(crate) fn confinement(&self) -> Confinement {
        self.confinement
    }

    /// Returns the names of the tools on offer.
    pub(crate) fn offered(&self) -> &[&'static str] {
        &self.offered
    }

    /// Returns what people should know that holds for all conversations.
    pub(crate) fn notices(&self) -> impl Iterator<Item = &String> {
        let (setup, models) = (&self.setup, &self.models);
        setup.warnings.iter().chain(models.chosen.notices()).chain(&models.left_out)
    }

    /// Puts a conversation together. `opened` is its session when that is open already.
    ///
    /// # Errors
    /// For instructions that cannot be read, and for a session that is asked for and cannot be opened.
    pub(crate) fn converse(
        &self,
        run: &RunArguments,
        wish: Wish,
        opened: Option<Started>,
        backlog: Arc<Backlog>,
    ) -> Result<Ready, CliError> {
        let setup = &*self.setup;
        let (instructions, surroundings, mut notices) =
            Instructions::read(run, setup, &self.subject, self.confinement)?;
        let system = instructions.for_tools(&self.offered);
        let context = Arc::new(Context {
            host: Host::default(),
            workspace: setup.workspace.clone(),
            home: setup.environment.home(),
            state: setup.paths.as_ref().map_or_else(tool::State::default, |paths| {
                tool::State::keeping_results_in(paths.state().to_owned())
            }),
            bash: bash(setup, &self.redactor)?,
        });
        let begun = match opened {
            Some(opened) => opened,
            None => journal::open(&wish)?,
        };
        notices.extend(begun.notices);
        if let Some(checkpoints) = &begun.checkpoints {
            // The context is new, so nobody keeps anything yet.
            let _set = context.state.kept.set(Kept::own(Arc::clone(checkpoints) as _));
        }
        let (budgets, retry) = (budgets(&setup.settings), retry(self.network_is_off));
        let compaction = compaction(&setup.settings);
        let ledger = Arc::new(Ledger::default());
        let approver = run.interactive.then(Approver::default);
        let own = run.interactive.then(|| Arc::new(setup.own_subject()));
        let parent = begun.id.clone();
        let mut tools = tool::standard();
        tools.push(Box::new(Task::new(Family {
            model: Arc::clone(&self.models.chosen),
            fallbacks: self.models.fallbacks.clone(),
            compaction,
            subject: Arc::clone(&self.subject),
            confinement: self.confinement,
            tools: tool::standard,
            system: Box::new(move |tools| instructions.for_tools(tools)),
            surroundings: surroundings.clone(),
            budgets,
            retry,
            redactor: self.redactor.clone(),
            backlog: Arc::clone(&backlog),
            ledger: Arc::clone(&ledger),
            approver: approver.clone(),
            results: setup.paths.as_ref().map(|paths| paths.state().to_owned()),
            sessions: Box::new(move || journal::begin_child(&wish, parent.as_deref())),
        })));
        let parts = Parts {
            model: Arc::clone(&self.models.chosen),
            fallbacks: self.models.fallbacks.clone(),
            tools,
            subject: Arc::clone(&self.subject),
            confinement: self.confinement,
            context,
            system,
            history: begun.history,
            shelf: None,
            budgets,
            compaction,
            retry,
            redactor: self.redactor.clone(),
            journal: begun.journal,
            backlog,
            surroundings,
            mentions: true,
            ledger,
            approver,
            own,
            timed: run.timings,
        };
        let (checkpoints, log) = (begun.checkpoints, begun.log);
        Ok(Ready { parts, session: begun.id, checkpoints, notices, log })
    }

    /// Returns what is said besides about a model that is not reached.
    pub(crate) fn way_out(&self) -> WayOut {
        // A server on a socket needs no network.
        let on_sockets = std::iter::once(&self.models.chosen)
            .chain(&self.models.fallbacks)
            .filter(|model| !model.needs_network())
            .map(|model| model.name().to_owned())
            .collect();
        let (network_is_off, confinement) = (self.network_is_off, self.confinement);
        WayOut { on_sockets, network_is_off, confinement }
    }
}

/// What of the sandbox can stand between a run and its model.
#[derive(Clone, Debug)]
pub(crate) struct WayOut {
    on_sockets: Vec<String>,
    network_is_off: bool,
    confinement: Confinement,
}

impl WayOut {
    /// Adds to the fault of a model that was not reached what opens the sandbox for it.
    pub(crate) fn add_to(&self, summary: &mut Summary) {
        let asked = summary.model.as_ref();
        let needs_network = !asked.is_some_and(|name| self.on_sockets.contains(name));
        let fault = summary.fault.as_mut().filter(|fault| fault.kind == FaultKind::Network);
        if let Some(fault) = fault {
            fault.message.push_str(self.sentence(needs_network));
        }
    }

    fn sentence(&self, needs_network: bool) -> &'static str {
        if needs_network && self.network_is_off {
            "; the sandbox has no network: set `network` to true in its specification, or name a server \
             on this machine there: its port in `localPorts`, or its socket in `allowSockets` with a \
             `unix:` address"
        } else if !needs_network && self.confinement == Confinement::KliSandbox {
            "; the sandbox shows only sockets that `allowSockets` names: add it to its specification"
        } else {
            ""
        }
    }
}

/// Without a network what is not reached now is not reached later: ports and sockets are handed through
/// from the start on. A server of this machine that answers that it is busy is asked again all the same.
fn retry(network_is_off: bool) -> Retry {
    Retry { unreached: !network_is_off, ..Retry::default() }
}

fn budgets(settings: &Settings) -> Budgets {
    Budgets {
        turns: settings.budgets.turns.get().copied(),
        tokens: settings.budgets.tokens.get().copied(),
        time: settings.budgets.time.get().copied(),
        cost: settings.budgets.cost.get().copied(),
        repeats: settings.budgets.repeats.get().copied(),
    }
}

fn compaction(settings: &Settings) -> Policy {
    let settings = &settings.compaction;
    Policy {
        enabled: settings.enabled.or(true),
        threshold: settings.threshold.or(Policy::THRESHOLD),
        keep: settings.keep.or(Policy::KEEP),
        window: settings.window.get().copied(),
    }
}

fn bash(setup: &Setup, redactor: &Redactor) -> Result<BashOptions, CliError> {
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
        withheld: withheld(setup, redactor),
        pass: settings.pass_env.get().cloned().flatten(),
        set: settings
            .env
            .iter()
            .filter_map(|(name, value)| Some((name.clone(), value.get()?.clone())))
            .collect(),
    })
}

/// Returns the variables that commands do not get: those that are secret by name, and every other
/// one whose value holds a key (`MY_KEY=$ANTHROPIC_API_KEY`).
fn withheld(setup: &Setup, redactor: &Redactor) -> Vec<OsString> {
    let named = setup.settings.secret_variables().into_iter().map(OsString::from);
    let holding = setup
        .environment
        .vars()
        .filter(|(_, value)| redactor.finds(value.as_encoded_bytes()))
        .map(|(name, _)| name.to_owned());
    named.chain(holding).collect()
}
