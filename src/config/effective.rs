//! All layers together: which profile, which model, which bounds, and the one subject.

use std::path::PathBuf;

use crate::authority::{
    Approve, Atom, BUILT_IN, BuiltIn, List, Narrowing, Source, Subject, built_in,
};

use super::{
    layers::{Conflict, Layer, Setting},
    policy::Policy,
    provider::Provider,
    settings::{ProfileSettings, Settings},
    values::{self, ModelName},
};

/// The flags that only take away.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Switches {
    /// `--read-only`
    pub read_only: bool,
    /// `--no-bash`
    pub no_bash: bool,
    /// `--no-eval`
    pub no_eval: bool,
}

/// Every layer of a run, as it was read.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Layers {
    /// Files and variables, the weakest first.
    pub files: Vec<Settings>,
    /// The flags that stand for settings.
    pub flags: Settings,
    /// The flags that only take away.
    pub switches: Switches,
    /// The policies; their order means nothing.
    pub policies: Vec<Policy>,
    /// The profile when nobody names one.
    pub default_profile: &'static str,
}

/// What a run works with.
#[derive(Clone, Debug, PartialEq)]
pub struct Effective {
    /// The settings of all layers.
    pub settings: Settings,
    /// The models to fall back on, in order.
    pub fallbacks: Vec<ModelName>,
    /// The profile's name.
    pub profile: String,
    /// The policies.
    pub policies: Vec<Policy>,
    /// The built-in profile that the profile ends in.
    base: BuiltIn,
    /// The profiles of the user's own on the way to it, the base's neighbour first.
    chain: Vec<(String, Approve)>,
    switches: Switches,
}

/// Layers that do not go together.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SettleError {
    /// A profile that nobody defines.
    #[error("unknown profile `{name}` (from {by}){}; the profiles are {}", hint(.nearest.as_ref()), list(.known))]
    Profile {
        /// What was written.
        name: String,
        /// Who named it.
        by: String,
        /// The nearest one.
        nearest: Option<String>,
        /// All that are known.
        known: Vec<String>,
    },
    /// Profiles that build on each other.
    #[error("the profiles {} build on each other; take one `extends` out", list(.names))]
    Cycle {
        /// Their names, in order.
        names: Vec<String>,
    },
    /// A word that names neither a model nor an alias.
    #[error(
        "`{name}` (from {by}) is no alias and names no model{}; write `PROVIDER/MODEL`, or add it to `models`{}",
        hint(.nearest.as_ref()), aliases(.known)
    )]
    Alias {
        /// What was written.
        name: String,
        /// Who wrote it.
        by: String,
        /// The nearest alias.
        nearest: Option<String>,
        /// All aliases.
        known: Vec<String>,
    },
    /// A theme that nobody defines.
    #[error("unknown theme `{name}` (from {by}){}; the themes are {}", hint(.nearest.as_ref()), list(.known))]
    Theme {
        /// What was written.
        name: String,
        /// Who named it.
        by: String,
        /// The nearest one.
        nearest: Option<String>,
        /// All that are known.
        known: Vec<String>,
    },
    /// Values that contradict each other.
    #[error(transparent)]
    Conflict(#[from] Conflict),
}

fn hint(nearest: Option<&String>) -> String {
    nearest.map_or_else(String::new, |name| format!(", did you mean `{name}`?"))
}

fn list(names: &[String]) -> String {
    names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

fn aliases(names: &[String]) -> String {
    if names.is_empty() { String::new() } else { format!(", where {} are", list(names)) }
}

impl Layers {
    /// Lays all layers over each other: files, then the profile, then the flags; budgets are bound
    /// by the policies at the end.
    ///
    /// # Errors
    /// [`SettleError`] names the value, who set it, and the nearest that exists.
    pub fn settle(self) -> Result<Effective, SettleError> {
        let mut settings =
            self.files.into_iter().fold(Settings::default(), |earlier, later| later.over(earlier));
        let named = self.flags.profile.clone().over(settings.profile.clone());
        let (profile, by) = match (named.get(), named.layer()) {
            (Some(name), Some(layer)) => (name.clone(), layer.to_string()),
            _ => (self.default_profile.to_owned(), "the default".to_owned()),
        };
        let (base, links) = settings.chain(&profile, &by)?;
        let mut chain = Vec::new();
        for (name, link) in links {
            settings = (*link.settings).over(settings);
            chain.push((name, link.approve));
        }
        settings = self.flags.over(settings);
        for policy in &self.policies {
            settings.budgets.cap(&policy.budgets);
        }
        let fallbacks = settings.resolve_alias()?;
        settings.check_theme()?;
        settings.check()?;
        let (policies, switches) = (self.policies, self.switches);
        Ok(Effective { settings, fallbacks, profile, policies, base, chain, switches })
    }
}

impl Settings {
    /// Returns the built-in profile that a profile ends in, and the user's own on the way there,
    /// the built-in one's neighbour first.
    ///
    /// # Errors
    /// For a name that nobody defines, and for profiles that build on each other.
    pub fn chain(
        &self,
        name: &str,
        by: &str,
    ) -> Result<(BuiltIn, Vec<(String, ProfileSettings)>), SettleError> {
        let mut links: Vec<(String, ProfileSettings)> = Vec::new();
        let (mut next, mut by) = (name.to_owned(), by.to_owned());
        loop {
            if let Some(base) = BUILT_IN.iter().find(|built_in| built_in.name == next) {
                links.reverse();
                return Ok((*base, links));
            }
            if links.iter().any(|(name, _)| *name == next) {
                let names = links.into_iter().map(|(name, _)| name).collect();
                return Err(SettleError::Cycle { names });
            }
            let Some(profile) = self.profiles.get(&next).and_then(Setting::get) else {
                let known: Vec<String> = BUILT_IN
                    .iter()
                    .map(|built_in| built_in.name.to_owned())
                    .chain(self.profiles.keys().cloned())
                    .collect();
                let nearest = values::nearest_of(&next, &known);
                return Err(SettleError::Profile {
                    name: values::shown(&next),
                    by,
                    nearest,
                    known,
                });
            };
            by = format!("`extends` of the profile `{next}`");
            let above = profile.extends.clone().unwrap_or_else(|| "interactive".to_owned());
            links.push((std::mem::replace(&mut next, above), profile.clone()));
        }
    }

    /// Puts the model in the place of the alias; returns the fallbacks.
    fn resolve_alias(&mut self) -> Result<Vec<ModelName>, SettleError> {
        let (Some(alias), Some(layer)) = (self.alias.get().cloned(), self.alias.layer()) else {
            return Ok(Vec::new());
        };
        let models = self.models.get(&alias).and_then(Setting::get).map(Vec::as_slice);
        if let Some([model, fallbacks @ ..]) = models {
            let fallbacks = fallbacks.to_vec();
            self.model = Setting::new(model.clone(), layer);
            return Ok(fallbacks);
        }
        let known: Vec<String> = self.models.keys().cloned().collect();
        Err(SettleError::Alias {
            nearest: values::nearest_of(&alias, &known),
            name: values::shown(&alias),
            by: layer.to_string(),
            known,
        })
    }

    /// Takes out a model that these settings may not choose: they can be written by a stranger, so
    /// only a provider that `known` reaches over HTTP may be named. Says whether one was taken out.
    pub fn drop_strange_model(&mut self, known: &Self) -> bool {
        let alias = |alias: &String| known.models.get(alias)?.get()?.first();
        let chosen = self.model.get().or_else(|| self.alias.get().and_then(alias));
        let fine = match chosen {
            Some(name) => known
                .provider(&name.provider)
                .is_ok_and(|provider| !matches!(provider, Provider::Replay { .. })),
            None => self.alias.get().is_none(),
        };
        if !fine {
            self.model = Setting::default();
            self.alias = Setting::default();
        }
        !fine
    }

    /// Takes out a model that settings may not choose which are not the user's own, as
    /// [`drop_strange_model`] does, and any of a provider that the user does not use: the conversation
    /// would go where nobody sent it. In use are the providers that `known` has settings for, those of
    /// its aliases, and that of its model, `default` where it has none.
    ///
    /// [`drop_strange_model`]: Self::drop_strange_model
    pub fn drop_foreign_model(&mut self, known: &Self, default: &str) -> bool {
        if self.drop_strange_model(known) {
            return true;
        }
        // An alias is the user's own.
        let Some(name) = self.model.get() else { return false };
        let by_alias = |alias: &String| known.models.get(alias)?.get()?.first();
        let chosen = known.model.get().or_else(|| known.alias.get().and_then(by_alias));
        let aliases = known.models.values().filter_map(Setting::get).flatten();
        let is_used = known.providers.contains_key(&name.provider)
            || chosen.map_or(default, |chosen| chosen.provider.as_str()) == name.provider
            || aliases.into_iter().any(|model| model.provider == name.provider);
        if !is_used {
            self.model = Setting::default();
        }
        !is_used
    }

    /// Returns the options of the model's requests: those that are not `null`.
    pub fn model_options(&self) -> std::collections::BTreeMap<String, serde_json::Value> {
        self.options
            .iter()
            .filter_map(|(name, value)| Some((name.clone(), value.get()?.clone())))
            .filter(|(_, value)| !value.is_null())
            .collect()
    }
}

impl Effective {
    /// Says whether a run without a budget is refused.
    pub fn needs_budget(&self) -> bool {
        self.base.needs_budget
    }

    /// Says whether the policies let projects be trusted.
    pub fn may_trust(&self) -> bool {
        self.policies.iter().all(|policy| policy.trust_projects)
    }

    /// Computes what the run may do: the meet of all layers. `resolve` turns a path of a layer's
    /// list into the physical one.
    pub fn subject(&self, resolve: impl Fn(&Source, &str) -> PathBuf) -> Subject {
        Subject::new(self.layers(resolve))
    }

    /// Computes what commands of the person's own may do: as [`Effective::subject`] without the profile,
    /// which is for the agent. Settings, flags and policy bind both.
    pub fn own_subject(&self, resolve: impl Fn(&Source, &str) -> PathBuf) -> Subject {
        let layers = self.layers(resolve).into_iter();
        Subject::new(layers.filter(|(source, _)| !matches!(source, Source::Profile(_))))
    }

    fn layers(&self, resolve: impl Fn(&Source, &str) -> PathBuf) -> Vec<(Source, Narrowing)> {
        let lists = |wanted: fn(&Source) -> bool| {
            let lists = self.settings.capabilities.iter();
            let tools = self.settings.deny_tools.iter();
            lists
                .filter(move |(source, _)| wanted(source))
                .map(|(source, list): &(Source, List)| {
                    (source.clone(), list.narrowing(|path| resolve(source, path)))
                })
                .chain(
                    tools
                        .filter(move |(source, _)| wanted(source))
                        .map(|(source, names)| (source.clone(), Narrowing::Tools(names.clone()))),
                )
                .collect::<Vec<_>>()
        };
        let mut layers = lists(|source| {
            matches!(source, Source::Baked | Source::UserSettings | Source::ProjectSettings)
        });
        let base = Source::Profile(self.base.name.to_owned());
        let narrowings = built_in(self.base.name).unwrap_or_default();
        layers.extend(narrowings.into_iter().map(|narrowing| (base.clone(), narrowing)));
        layers.extend(lists(|source| matches!(source, Source::Profile(_))));
        for (name, approve) in &self.chain {
            layers.push((Source::Profile(name.clone()), Narrowing::Approve(*approve)));
        }
        let flag = |name: &str| Source::Flag(name.to_owned());
        if self.switches.read_only {
            layers.push((flag("--read-only"), Narrowing::ReadOnly));
        }
        if self.switches.no_bash {
            layers.push((flag("--no-bash"), Narrowing::Drop(vec![Atom::ProcessExec])));
        }
        if self.switches.no_eval {
            layers.push((flag("--no-eval"), Narrowing::Drop(vec![Atom::ImageEval])));
        }
        layers.extend(lists(|source| matches!(source, Source::Flag(_))));
        for policy in &self.policies {
            layers.extend(policy.narrowings(|path| resolve(&Source::Policy, path)));
        }
        layers
    }

    /// Returns the layer that a budget would be named by in words, with its bound.
    pub fn budget_notes(&self) -> Vec<String> {
        let budgets = &self.settings.budgets;
        let note = |what: &str, bound: Option<String>, layer: Option<Layer>| {
            Some(format!("budget: at most {} {what} (from {})", bound?, layer?))
        };
        [
            note("turns", budgets.turns.get().map(u64::to_string), budgets.turns.layer()),
            note("tokens", budgets.tokens.get().map(u64::to_string), budgets.tokens.layer()),
            note(
                "of time",
                budgets.time.get().map(|time| values::time(*time)),
                budgets.time.layer(),
            ),
            note("of money", budgets.cost.get().map(ToString::to_string), budgets.cost.layer()),
        ]
        .into_iter()
        .flatten()
        .collect()
    }
}

#[cfg(test)]
mod tests;
