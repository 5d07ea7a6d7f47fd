//! Layers: where a value came from, and how one layer lies over another.

use std::{fmt, time::Duration};

use crate::authority::Source;

use super::settings::Settings;

/// Where a value came from, the weakest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Layer {
    /// The configuration baked into the package.
    Baked,
    /// The user's settings file.
    User,
    /// A variable of the environment.
    Environment,
    /// A flag on the command line.
    Flag,
}

impl Layer {
    /// Returns the same layer as a source of authority.
    pub(super) fn source(self, flag: &str) -> Source {
        match self {
            Self::Baked => Source::Baked,
            Self::User | Self::Environment => Source::UserSettings,
            Self::Flag => Source::Flag(flag.to_owned()),
        }
    }
}

impl fmt::Display for Layer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Baked => "baked",
            Self::User => "user settings",
            Self::Environment => "environment",
            Self::Flag => "flag",
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
    /// Lays these settings over earlier ones: values that are set win, except `capabilities`, where
    /// every layer's list is kept, as they meet.
    #[must_use]
    pub fn over(self, earlier: Self) -> Self {
        let mut providers = earlier.providers;
        for (name, later) in self.providers {
            let before = providers.remove(&name).unwrap_or_default();
            providers.insert(name, later.over(before));
        }
        let mut capabilities = earlier.capabilities;
        capabilities.extend(self.capabilities);
        Self {
            model: self.model.over(earlier.model),
            profile: self.profile.over(earlier.profile),
            capabilities,
            providers,
            bash: self.bash.over(earlier.bash),
            budgets: self.budgets.over(earlier.budgets),
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
