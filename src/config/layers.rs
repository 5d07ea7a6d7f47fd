//! Layers: where a value came from, and how one layer lies over another.

use std::{collections::BTreeMap, fmt, time::Duration};

use crate::authority::Source;

use super::settings::{Bash, Budgets, Compaction, Settings};

/// Where a value came from, the weakest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Layer {
    /// The configuration baked into the package.
    Baked,
    /// The user's settings file.
    User,
    /// What a person chose while kli ran.
    Display,
    /// A variable of the environment.
    Environment,
    /// The project's settings file.
    Project,
    /// The settings of a profile.
    Profile,
    /// A flag on the command line.
    Flag,
    /// What a person chose in this very run.
    Chosen,
    /// The machine's policy, or the package's.
    Policy,
}

impl Layer {
    /// Returns the same layer as a source of authority.
    pub(super) fn source(self, flag: &str) -> Source {
        match self {
            Self::Baked => Source::Baked,
            Self::User | Self::Display | Self::Environment | Self::Chosen => Source::UserSettings,
            Self::Project => Source::ProjectSettings,
            Self::Profile => Source::Profile(String::new()),
            Self::Flag => Source::Flag(flag.to_owned()),
            Self::Policy => Source::Policy,
        }
    }
}

impl fmt::Display for Layer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Baked => "baked",
            Self::User => "user settings",
            Self::Display => "display state",
            Self::Environment => "environment",
            Self::Project => "project settings",
            Self::Profile => "profile",
            Self::Flag => "flag",
            Self::Chosen => "chosen here",
            Self::Policy => "policy",
        })
    }
}

/// A value that may be set, and the layer that set it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting<T>(Option<(T, Layer)>);

impl<T> Default for Setting<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<T> Setting<T> {
    /// Returns a value set by a layer.
    pub fn new(value: T, layer: Layer) -> Self {
        Self(Some((value, layer)))
    }

    /// Returns the value.
    pub fn get(&self) -> Option<&T> {
        self.0.as_ref().map(|(value, _)| value)
    }

    /// Returns the layer that set it.
    pub fn layer(&self) -> Option<Layer> {
        self.0.as_ref().map(|(_, layer)| *layer)
    }

    /// Lays this value over an earlier one: a value that is set wins.
    #[must_use]
    pub fn over(self, earlier: Self) -> Self {
        if self.0.is_some() { self } else { earlier }
    }
}

impl<T: Copy> Setting<T> {
    /// Returns the value, or the given default.
    pub fn or(&self, default: T) -> T {
        self.get().copied().unwrap_or(default)
    }
}

/// Two values, each fine by itself, that do not go together.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`bash.timeout` ({}, from {timeout_layer}) is longer than `bash.maxTimeout` ({}, from {most_layer}); raise `bash.maxTimeout` or lower `bash.timeout`",
    seconds(*.timeout), seconds(*.most)
)]
pub struct Conflict {
    /// The default time limit of a command.
    pub timeout: Duration,
    /// Who set it.
    pub timeout_layer: Layer,
    /// The longest that a call may ask for.
    pub most: Duration,
    /// Who set it.
    pub most_layer: Layer,
}

fn seconds(duration: Duration) -> String {
    format!("{}s", duration.as_secs_f64())
}

impl Settings {
    /// Lays these settings over earlier ones: values that are set win, except `capabilities` and
    /// `denyTools`, where every layer's list is kept, as they meet.
    #[must_use]
    pub fn over(self, earlier: Self) -> Self {
        let mut providers = earlier.providers;
        for (name, later) in self.providers {
            let before = providers.remove(&name).unwrap_or_default();
            providers.insert(name, later.over(before));
        }
        let mut capabilities = earlier.capabilities;
        capabilities.extend(self.capabilities);
        let mut deny_tools = earlier.deny_tools;
        deny_tools.extend(self.deny_tools);
        // A model in full and an alias are two spellings of one choice.
        let chosen = self.model.get().is_some() || self.alias.get().is_some();
        let (model, alias) =
            if chosen { (self.model, self.alias) } else { (earlier.model, earlier.alias) };
        Self {
            model,
            alias,
            models: over_each(self.models, earlier.models),
            options: over_each(self.options, earlier.options),
            effort: self.effort.over(earlier.effort),
            profile: self.profile.over(earlier.profile),
            profiles: over_each(self.profiles, earlier.profiles),
            capabilities,
            deny_tools,
            providers,
            bash: self.bash.over(earlier.bash),
            budgets: self.budgets.over(earlier.budgets),
            compaction: self.compaction.over(earlier.compaction),
            session: self.session.over(earlier.session),
            log: self.log.over(earlier.log),
            context: self.context.over(earlier.context),
            theme: self.theme.over(earlier.theme),
            themes: over_each(self.themes, earlier.themes),
            keybindings: over_each(self.keybindings, earlier.keybindings),
        }
    }

    /// Checks what only the settings as a whole can tell.
    ///
    /// # Errors
    /// [`Conflict`] names both values and both layers.
    pub fn check(&self) -> Result<(), Conflict> {
        let (timeout, most) = (&self.bash.timeout, &self.bash.max_timeout);
        match (timeout.get(), timeout.layer(), most.get(), most.layer()) {
            (Some(&timeout), Some(timeout_layer), Some(&most), Some(most_layer))
                if timeout > most =>
            {
                Err(Conflict { timeout, timeout_layer, most, most_layer })
            }
            _ => Ok(()),
        }
    }
}

fn over_each<N: Ord, T>(
    later: BTreeMap<N, Setting<T>>,
    earlier: BTreeMap<N, Setting<T>>,
) -> BTreeMap<N, Setting<T>> {
    let mut all = earlier;
    all.extend(later);
    all
}

impl Bash {
    fn over(self, earlier: Self) -> Self {
        Self {
            shell: self.shell.over(earlier.shell),
            timeout: self.timeout.over(earlier.timeout),
            max_timeout: self.max_timeout.over(earlier.max_timeout),
            env: over_each(self.env, earlier.env),
            pass_env: self.pass_env.over(earlier.pass_env),
        }
    }
}

impl Compaction {
    fn over(self, earlier: Self) -> Self {
        Self {
            enabled: self.enabled.over(earlier.enabled),
            threshold: self.threshold.over(earlier.threshold),
            keep: self.keep.over(earlier.keep),
            window: self.window.over(earlier.window),
        }
    }
}

impl Budgets {
    fn over(self, earlier: Self) -> Self {
        Self {
            turns: self.turns.over(earlier.turns),
            tokens: self.tokens.over(earlier.tokens),
            time: self.time.over(earlier.time),
            cost: self.cost.over(earlier.cost),
            repeats: self.repeats.over(earlier.repeats),
        }
    }

    /// Lowers every bound to the one that is given, where that is lower or the only one.
    pub(super) fn cap(&mut self, bounds: &Self) {
        fn lower<T: Copy + Ord>(value: &mut Setting<T>, bound: &Setting<T>) {
            let looser = match (value.get(), bound.get()) {
                (_, None) => false,
                (None, Some(_)) => true,
                (Some(value), Some(bound)) => value > bound,
            };
            if looser {
                *value = bound.clone();
            }
        }
        lower(&mut self.turns, &bounds.turns);
        lower(&mut self.tokens, &bounds.tokens);
        lower(&mut self.time, &bounds.time);
        lower(&mut self.cost, &bounds.cost);
        lower(&mut self.repeats, &bounds.repeats);
    }
}
