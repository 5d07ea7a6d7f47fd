//! How things look and which keys do what: themes and key bindings as settings write them.

use std::collections::BTreeMap;

use crate::display::{self, Action, Key, Keymap, Look, Role, Theme};

use super::{
    effective::SettleError,
    error::{ConfigError, Problem, Warning},
    jsonc::Node,
    keys,
    layers::{Layer, Setting},
    settings::Settings,
    values::{self, ValueError},
};

/// The most keys of one action.
pub(super) const MOST_KEYS: usize = 8;

/// The themes that another can build on.
pub(super) const BASES: &[&str] = &["auto", "dark", "light"];

/// A theme of the user's own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ThemeSettings {
    /// The built-in theme that it builds on; absent: `auto`.
    pub base: Option<&'static str>,
    /// The looks of roles.
    pub looks: BTreeMap<Role, Look>,
}

/// Key bindings by the name of the action; no key at all is a binding as well.
pub type Bindings = BTreeMap<&'static str, Setting<Vec<Key>>>;

/// What a person chooses while kli runs; `None` takes an earlier choice back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Choice {
    /// `PROVIDER/MODEL`, or an alias.
    Model(Option<String>),
    /// How much the model thinks.
    Effort(Option<String>),
    /// The profile. It is no part of the display state.
    Profile(Option<String>),
    /// The theme.
    Theme(Option<String>),
    /// The keys of an action.
    Keys(&'static str, Option<Vec<Key>>),
}

/// Reads the name of a theme; whether it exists is asked later.
pub(super) fn theme_name(text: &str) -> Result<String, ValueError> {
    values::name(text)
}

/// Reads themes by name.
pub(super) fn themes(
    node: &Node<'_>,
    layer: Layer,
    warnings: &mut Vec<Warning>,
) -> Result<BTreeMap<String, Setting<ThemeSettings>>, ConfigError> {
    let mut themes = BTreeMap::new();
    for entry in node.members()? {
        let name = values::name(entry.name()).map_err(|error| entry.key_error(error))?;
        if display::is_built_in(&name) {
            return Err(entry.key_error(ValueError::BuiltInTheme { text: values::shown(&name) }));
        }
        let mut theme = ThemeSettings::default();
        for node in entry.known(keys::SETTINGS, "themes.NAME", warnings)? {
            match node.name() {
                "base" => theme.base = Some(node.string(base)?),
                "colors" => {
                    for node in node.members()? {
                        let role = role(node.name()).map_err(|error| node.key_error(error))?;
                        let look = node.string(|text| Ok(text.parse::<Look>()?))?;
                        theme.looks.insert(role, look);
                    }
                }
                _ => {}
            }
        }
        themes.insert(name, Setting::new(theme, layer));
    }
    Ok(themes)
}

fn base(text: &str) -> Result<&'static str, ValueError> {
    BASES.iter().find(|base| **base == text).copied().ok_or_else(|| ValueError::Base {
        text: values::shown(text),
        nearest: values::nearest(text, BASES.iter().copied()),
    })
}

fn role(name: &str) -> Result<Role, ValueError> {
    Role::named(name).ok_or_else(|| ValueError::Role {
        text: values::shown(name),
        nearest: values::nearest(name, Role::names()),
    })
}

/// Reads the name of an action.
///
/// # Errors
/// [`ValueError::Action`] with the nearest that exists.
pub fn action(name: &str) -> Result<&'static Action, ValueError> {
    display::find(name).ok_or_else(|| ValueError::Action {
        text: values::shown(name),
        nearest: values::nearest(name, display::ACTIONS.iter().map(|action| action.name)),
    })
}

/// Reads key bindings. Two actions on one key are an error, as one of them could not be reached.
pub(super) fn keybindings(node: &Node<'_>, layer: Layer) -> Result<Bindings, ConfigError> {
    let mut bindings = Bindings::new();
    let mut owners: BTreeMap<Key, &'static str> = BTreeMap::new();
    for node in node.members()? {
        let action = action(node.name()).map_err(|error| node.key_error(error))?;
        let key = |text: &str| Ok(text.parse::<Key>()?);
        let keys = if node.is_array() { node.strings(key)? } else { vec![node.string(key)?] };
        if keys.len() > MOST_KEYS {
            return Err(node.error(Problem::TooMany { count: keys.len(), most: MOST_KEYS }));
        }
        for key in &keys {
            if let Some(first) = owners.insert(*key, action.name).filter(|at| *at != action.name) {
                let (key, second) = (key.to_string(), action.name);
                return Err(node.error(ValueError::Taken { key, first, second }));
            }
        }
        bindings.insert(action.name, Setting::new(keys, layer));
    }
    Ok(bindings)
}

impl Settings {
    /// Returns the keys of all actions. A key that two layers bind belongs to the stronger one, and a
    /// binding comes before any default.
    pub fn keymap(&self) -> Keymap {
        let mut bound: Vec<(&str, &[Key], Option<Layer>)> = self
            .keybindings
            .iter()
            .filter_map(|(name, keys)| Some((*name, keys.get()?.as_slice(), keys.layer())))
            .collect();
        bound.sort_by_key(|(.., layer)| *layer);
        Keymap::new(bound.into_iter().map(|(name, keys, _)| (name, keys)))
    }

    /// Returns the theme of a name, when there is one.
    pub fn theme_named(&self, name: &str) -> Option<Theme> {
        if let Some(theme) = Theme::built_in(name) {
            return Some(theme);
        }
        let own = self.themes.get(name)?.get()?;
        let base = Theme::built_in(own.base.unwrap_or("auto")).unwrap_or_default();
        Some(base.with(own.looks.iter().map(|(role, look)| (*role, *look))))
    }

    /// Returns the names of all themes, the built-in ones first.
    pub fn theme_names(&self) -> Vec<String> {
        let built_in = display::BUILT_IN.iter().map(|(name, _)| (*name).to_owned());
        built_in.chain(self.themes.keys().cloned()).collect()
    }

    /// Returns the theme that is chosen.
    pub fn chosen_theme(&self) -> Theme {
        self.theme.get().and_then(|name| self.theme_named(name)).unwrap_or_default()
    }

    /// Puts a choice in the place of what is there; one that is taken back leaves what `before` has.
    ///
    /// # Errors
    /// [`ValueError`] for a word that no model, level or name is.
    pub fn choose_in(
        &mut self,
        choice: &Choice,
        layer: Layer,
        before: &Self,
    ) -> Result<(), ValueError> {
        fn set<T: Clone>(
            text: Option<&String>,
            layer: Layer,
            before: &Setting<T>,
            read: impl FnOnce(&str) -> Result<T, ValueError>,
        ) -> Result<Setting<T>, ValueError> {
            Ok(match text {
                Some(text) => Setting::new(read(text)?, layer),
                None => before.clone(),
            })
        }
        match choice {
            Choice::Model(name) => {
                let chosen = name.as_deref().map(values::model).transpose()?;
                (self.model, self.alias) = (before.model.clone(), before.alias.clone());
                if let Some(chosen) = chosen {
                    (self.model, self.alias) = (Setting::default(), Setting::default());
                    self.choose(chosen, layer);
                }
            }
            Choice::Effort(level) => {
                self.effort = set(level.as_ref(), layer, &before.effort, values::effort)?;
            }
            Choice::Profile(name) => {
                self.profile = set(name.as_ref(), layer, &before.profile, values::name)?;
            }
            Choice::Theme(name) => {
                self.theme = set(name.as_ref(), layer, &before.theme, theme_name)?;
            }
            Choice::Keys(name, keys) => {
                let keys = keys.clone().map(|keys| Setting::new(keys, layer));
                match keys.or_else(|| before.keybindings.get(name).cloned()) {
                    Some(keys) => drop(self.keybindings.insert(name, keys)),
                    None => drop(self.keybindings.remove(name)),
                }
            }
        }
        Ok(())
    }

    /// Returns the text of a display state: the model, the effort, the theme and the key bindings of
    /// these settings, and nothing else that they may hold.
    pub fn display_text(&self) -> String {
        let mut map = serde_json::Map::new();
        let model = self.alias.get().cloned();
        let model = model.or_else(|| self.model.get().map(ToString::to_string));
        map.extend(model.map(|model| ("model".to_owned(), model.into())));
        let effort = self.effort.get().map(|effort| effort.name().into());
        map.extend(effort.map(|effort| ("effort".to_owned(), effort)));
        map.extend(self.theme.get().map(|theme| ("theme".to_owned(), theme.clone().into())));
        let bindings: serde_json::Map<String, serde_json::Value> = self
            .keybindings
            .iter()
            .filter_map(|(name, keys)| {
                let keys: Vec<String> = keys.get()?.iter().map(ToString::to_string).collect();
                Some(((*name).to_owned(), keys.into()))
            })
            .collect();
        if !bindings.is_empty() {
            map.insert("keybindings".to_owned(), bindings.into());
        }
        format!("{:#}\n", serde_json::Value::Object(map))
    }

    /// Returns the action other than this one that these settings bind a key to.
    pub fn owner_of(&self, key: Key, other_than: &str) -> Option<&'static str> {
        self.keybindings
            .iter()
            .filter(|(name, keys)| {
                **name != other_than && keys.get().is_some_and(|keys| keys.contains(&key))
            })
            .map(|(name, _)| *name)
            .next()
    }

    /// Checks that the theme that is chosen exists.
    pub(super) fn check_theme(&self) -> Result<(), SettleError> {
        let (Some(name), Some(by)) = (self.theme.get(), self.theme.layer()) else { return Ok(()) };
        if self.theme_named(name).is_some() {
            return Ok(());
        }
        let known = self.theme_names();
        Err(SettleError::Theme {
            nearest: values::nearest_of(name, &known),
            name: values::shown(name),
            by: by.to_string(),
            known,
        })
    }

    /// Takes out a theme that `known` does not have: these settings can be written by a stranger, and
    /// must not stop a run. Returns its name.
    pub fn drop_strange_theme(&mut self, known: &Self) -> Option<String> {
        let name = self.theme.get()?;
        if known.theme_named(name).is_some() {
            return None;
        }
        let name = values::shown(name);
        self.theme = Setting::default();
        Some(name)
    }
}

#[cfg(test)]
mod tests;
