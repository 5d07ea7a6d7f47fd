//! What a person chooses in the interface: the model, the effort, the profile, the theme and the keys.
//! All but the profile are kept in the display state for the next start; settings are never written.

use std::{fmt::Write as _, sync::Arc};

use crate::{
    authority::BUILT_IN,
    config::{self, Choice, Layer, names},
    display::{self, Depth, Key},
    message::Effort,
    model::known,
    tui::{Answer, Change, state::Facts, style::Paint},
};

use super::{
    super::{display as kept, error::CliError, setup::Setup},
    House, chosen_effort, model_name,
    switch::Wanted,
};

/// What takes a choice back.
const DEFAULT: &str = "default";

/// What came of a command.
pub(super) enum Chosen {
    /// This is the answer.
    Answer(Answer),
    /// Models are opened; the conversation goes on when they are there.
    Wanted,
    /// It chooses nothing.
    Nothing,
}

/// Returns how styles become colours on this terminal.
pub(super) fn paint(setup: &Setup) -> Paint {
    let term = setup.environment.var(names::TERM).unwrap_or_default();
    Paint {
        colors: setup.environment.var(names::NO_COLOR).is_none(),
        depth: Depth::of(setup.environment.var(names::COLORTERM), term),
        theme: setup.settings.chosen_theme(),
    }
}

fn sentence(error: &CliError) -> String {
    error.lines().join("\n")
}

fn failed(errors: String) -> Chosen {
    Chosen::Answer(Answer { errors, failed: true, ..Answer::default() })
}

fn told(text: String, change: Option<Change>) -> Chosen {
    Chosen::Answer(Answer { text, change, ..Answer::default() })
}

impl House<'_> {
    /// Answers a command that chooses something, or says what there is to choose.
    pub(super) fn choose(&mut self, name: &'static str, rest: &str) -> Chosen {
        // Each choice builds on the one before it.
        if !rest.is_empty() && self.wanted.as_ref().is_some_and(Wanted::is_awaited) {
            return match name {
                "model" | "effort" | "profile" | "theme" | "keys" => failed(
                    "the change before this one is still being made ready; say it again when that is done"
                        .to_owned(),
                ),
                _ => Chosen::Nothing,
            };
        }
        let word = (rest != DEFAULT).then(|| rest.to_owned());
        let choice = match (name, rest) {
            ("model", "") => return Chosen::Nothing,
            ("effort", "") => return told(self.efforts(), None),
            ("profile", "") => return told(self.profiles(), None),
            ("theme", "") => return told(self.themes(), None),
            ("keys", rest) => return self.bind(rest),
            ("theme", _) => return self.paint(&Choice::Theme(word)),
            ("model", _) => Choice::Model(word),
            ("effort", _) => Choice::Effort(word),
            ("profile", _) => Choice::Profile(word),
            _ => return Chosen::Nothing,
        };
        match self.want(choice) {
            Ok(wanted) => {
                self.wanted = Some(wanted.clone());
                self.look(name, rest.to_owned(), None, Some(wanted));
                Chosen::Wanted
            }
            Err(errors) => failed(errors),
        }
    }

    /// Makes a setup ready under which the conversation can go on.
    fn want(&self, choice: Choice) -> Result<Wanted, String> {
        let setup = self.setup.choosing(self.run, &choice).map_err(|error| {
            let near = match &choice {
                Choice::Model(Some(name)) => near_model(&self.setup, name),
                _ => None,
            };
            let near = near.map_or_else(String::new, |near| format!("\ndid you mean `{near}`?"));
            format!("{}{near}", sentence(&error))
        })?;
        setup.check_start().map_err(|error| sentence(&error))?;
        Ok(Wanted { setup: Arc::new(setup), models: Arc::default(), choice })
    }

    /// Says what goes on now, and keeps the choice.
    pub(super) fn said(&self, choice: &Choice, facts: &Facts) -> String {
        let effort = facts.effort.as_deref().unwrap_or("the model's own");
        let mut text = match choice {
            Choice::Profile(_) => {
                return format!(
                    "profile: {}, for this conversation; `/authority` says what it may do",
                    facts.profile
                );
            }
            Choice::Model(name) => {
                let mut text = format!("model: {}", facts.model);
                if let Some(near) = name.as_deref().and_then(|name| unusual(&self.setup, name)) {
                    let _ = write!(text, "\nkli does not know this model; did you mean `{near}`?");
                }
                text
            }
            _ => format!("effort: {effort}"),
        };
        self.keep(choice, &mut text);
        text
    }

    /// Keeps a choice for the next start, and says what becomes of it.
    fn keep(&self, choice: &Choice, text: &mut String) {
        let taken_back = matches!(
            choice,
            Choice::Model(None)
                | Choice::Effort(None)
                | Choice::Theme(None)
                | Choice::Keys(_, None)
        );
        // Writing to a string cannot fail.
        let _ = match kept::keep(self.setup.paths.as_ref(), &self.setup.known(), choice) {
            Ok(()) if taken_back => write!(text, "\nthe settings decide from now on"),
            Ok(()) => match self.overruled(choice) {
                Some(layer) => {
                    write!(text, "\nkept, but the {layer} decide at the next start here")
                }
                None => write!(text, "\nkept for the next start"),
            },
            Err(reason) => write!(text, "\nfor this conversation only: {reason}"),
        };
    }

    /// Returns the layer above the display state that says something else at every start.
    fn overruled(&self, choice: &Choice) -> Option<Layer> {
        let above = self.setup.above_display();
        let layer = match choice {
            Choice::Model(_) => above.model.layer().or_else(|| above.alias.layer()),
            Choice::Effort(_) => above.effort.layer(),
            Choice::Theme(_) => above.theme.layer(),
            Choice::Keys(name, _) => above.keybindings.get(name).and_then(config::Setting::layer),
            Choice::Profile(_) => None,
        };
        layer.filter(|layer| *layer == Layer::Project)
    }

    /// Takes another theme.
    fn paint(&mut self, choice: &Choice) -> Chosen {
        match self.setup.choosing(self.run, choice) {
            Ok(setup) => self.setup = Arc::new(setup),
            Err(error) => return failed(sentence(&error)),
        }
        let name = self.setup.settings.theme.get().cloned();
        let mut text = format!("theme: {}", name.as_deref().unwrap_or("auto"));
        if !paint(&self.setup).colors {
            text.push_str("\nNO_COLOR is set, so there is no colour all the same");
        }
        self.keep(choice, &mut text);
        told(text, Some(Change::Theme(self.setup.settings.chosen_theme())))
    }

    /// Binds keys, or says which are bound: `ACTION KEY…`, `ACTION none`, `ACTION default`.
    fn bind(&mut self, rest: &str) -> Chosen {
        let mut words = rest.split_whitespace();
        let before = self.setup.settings.keymap();
        let Some(name) = words.next() else {
            return told(before.list(), None);
        };
        let action = match config::action(name) {
            Ok(action) => action,
            Err(error) => return failed(error.to_string()),
        };
        let words: Vec<&str> = words.collect();
        let keys = match words.as_slice() {
            [] => return told(spelled(action.name, before.keys(action.name)), None),
            [DEFAULT] => None,
            ["none"] => Some(Vec::new()),
            keys => match keys.iter().map(|key| key.parse::<Key>()).collect() {
                Ok(keys) => Some(keys),
                Err(error) => return failed(display::KeyError::to_string(&error)),
            },
        };
        let choice = Choice::Keys(action.name, keys);
        if let Some(refused) = self.taken(&choice) {
            return failed(refused);
        }
        match self.setup.choosing(self.run, &choice) {
            Ok(setup) => self.setup = Arc::new(setup),
            Err(error) => return failed(sentence(&error)),
        }
        let map = self.setup.settings.keymap();
        let mut text = spelled(action.name, map.keys(action.name));
        for lost in map.losses(&before).filter(|lost| lost.name != action.name) {
            let _ = write!(text, "\ntaken from: {}", spelled(lost.name, map.keys(lost.name)));
        }
        self.keep(&choice, &mut text);
        told(text, Some(Change::Keys(map)))
    }

    /// Says which other choice has one of these keys.
    fn taken(&self, choice: &Choice) -> Option<String> {
        let Choice::Keys(name, Some(keys)) = choice else { return None };
        let chosen = self.setup.chosen_keys();
        keys.iter().find_map(|key| kept::owned(&chosen, *key, name))
    }

    fn efforts(&self) -> String {
        let now = model_name(&self.setup).ok().and_then(|name| chosen_effort(&self.setup, &name));
        let now = now.map_or("the model's own", Effort::name);
        format!(
            "effort: {now}\nlevels: {}; `/effort {DEFAULT}` leaves it to the settings\na model that has \
             no such level gets the nearest",
            Effort::NAMES.join(", ")
        )
    }

    fn profiles(&self) -> String {
        let mut text = String::new();
        let now = self.setup.profile();
        let built_in = BUILT_IN.iter().map(|profile| (profile.name, profile.about));
        let own =
            self.setup.settings.profiles.keys().map(|name| (name.as_str(), "of the settings"));
        for (name, about) in built_in.chain(own) {
            let _ = writeln!(text, "{} {name:<14}{about}", if name == now { '*' } else { ' ' });
        }
        text
    }

    fn themes(&self) -> String {
        let mut text = String::new();
        let settings = &self.setup.settings;
        let now = settings.theme.get().map_or("auto", String::as_str);
        for name in settings.theme_names() {
            let about = display::BUILT_IN.iter().find(|(known, _)| *known == name);
            let about = about.map_or("of the settings", |(_, about)| about);
            let _ = writeln!(text, "{} {name:<14}{about}", if name == now { '*' } else { ' ' });
        }
        text
    }
}

fn spelled(name: &str, keys: &[Key]) -> String {
    let keys: Vec<String> = keys.iter().map(ToString::to_string).collect();
    let keys = if keys.is_empty() { "(no key)".to_owned() } else { keys.join(" ") };
    format!("{name}: {keys}")
}

/// Returns every model that is known by name, as `PROVIDER/MODEL`.
fn known_models(setup: &Setup) -> Vec<String> {
    let settings = &setup.settings;
    let listed = known::LISTED.iter().map(|(provider, model)| format!("{provider}/{model}"));
    let own = settings.providers.iter().flat_map(|(provider, written)| {
        written.models.keys().map(move |model| format!("{provider}/{model}"))
    });
    listed.chain(own).collect()
}

/// Returns the known model whose name is nearest to a word, with or without its provider.
fn near_model(setup: &Setup, word: &str) -> Option<String> {
    let known = known_models(setup);
    let whole = |name: &String| strsim::osa_distance(word, name);
    let model = |name: &String| {
        name.split_once('/').map_or(usize::MAX, |(_, model)| strsim::osa_distance(word, model))
    };
    let near = |name: &String| if word.contains('/') { whole(name) } else { model(name) };
    known.into_iter().filter(|name| near(name) <= 3).min_by_key(near)
}

/// Returns the known model that is nearly this one; none when this one is known, or is no other's
/// neighbour.
fn unusual(setup: &Setup, name: &str) -> Option<String> {
    if !name.contains('/') || known_models(setup).iter().any(|known| known == name) {
        return None;
    }
    near_model(setup, name)
}
