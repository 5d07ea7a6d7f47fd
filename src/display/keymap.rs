//! Which key does what, once everybody has had a say.

use std::{collections::BTreeMap, fmt::Write as _};

use super::{
    action::{self, ACTIONS, Action, FIXED},
    key::Key,
};

/// The keys of all actions. A key belongs to whoever bound it last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keymap {
    /// The keys of each action, in the order of [`ACTIONS`].
    keys: Vec<Vec<Key>>,
    /// What a key means: the key by which the interface knows its action, or nothing.
    means: BTreeMap<Key, Option<Key>>,
}

impl Default for Keymap {
    fn default() -> Self {
        Self::new([])
    }
}

impl Keymap {
    /// Lays bindings over the defaults, the weakest first: each takes its keys from whoever has them.
    pub fn new<'a>(bindings: impl IntoIterator<Item = (&'a str, &'a [Key])>) -> Self {
        let mut keys: Vec<Vec<Key>> = ACTIONS.iter().map(|action| action.keys.to_vec()).collect();
        for (name, bound) in bindings {
            for (action, keys) in ACTIONS.iter().zip(&mut keys) {
                if action.name == name {
                    *keys = bound.to_vec();
                } else {
                    keys.retain(|key| !bound.contains(key));
                }
            }
        }
        // What has been a key of an action and is none any more does nothing.
        let mut means: BTreeMap<Key, Option<Key>> =
            ACTIONS.iter().flat_map(|action| action.keys).map(|key| (*key, None)).collect();
        for (action, keys) in ACTIONS.iter().zip(&keys) {
            means.extend(keys.iter().map(|key| (*key, action.keys.first().copied())));
        }
        Self { keys, means }
    }

    /// Returns what a key that was pressed means: the default key of its action, nothing, or itself
    /// where no action is concerned.
    pub fn meaning(&self, pressed: Key) -> Option<Key> {
        if pressed.fixed().is_some() {
            return Some(pressed);
        }
        self.means.get(&pressed.normal()).copied().unwrap_or(Some(pressed))
    }

    /// Returns the keys of an action.
    pub fn keys(&self, name: &str) -> &[Key] {
        let at = ACTIONS.iter().position(|action| action.name == name);
        at.and_then(|at| self.keys.get(at)).map_or(&[], Vec::as_slice)
    }

    /// Returns the first key of an action for people.
    pub fn label(&self, name: &str) -> String {
        self.keys(name).first().map_or_else(|| "no key".to_owned(), |key| key.label())
    }

    /// Returns the actions that have lost a key to another since an earlier map.
    pub fn losses<'a>(&'a self, earlier: &'a Self) -> impl Iterator<Item = &'static Action> + 'a {
        ACTIONS.iter().filter(|action| {
            let now = self.keys(action.name);
            earlier.keys(action.name).iter().any(|key| !now.contains(key))
        })
    }

    /// Returns the keys for `/help`: what each does, with the keys that hold now.
    pub fn help(&self) -> String {
        let mut text = String::new();
        // Writing to a string cannot fail.
        for (keys, about) in FIXED {
            let _ = writeln!(text, "{keys}: {about}");
        }
        for action in ACTIONS {
            let keys = match self.keys(action.name) {
                [] => "(no key)".to_owned(),
                keys => action::labels(keys),
            };
            let _ = writeln!(text, "{keys}: {}", action.about);
        }
        text
    }

    /// Returns the bindings by name, for `/keys`.
    pub fn list(&self) -> String {
        let mut text = String::new();
        for action in ACTIONS {
            let keys: Vec<String> =
                self.keys(action.name).iter().map(ToString::to_string).collect();
            let keys = if keys.is_empty() { "(no key)".to_owned() } else { keys.join(" ") };
            let _ = writeln!(text, "{:<20}{keys}", action.name);
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::{super::Code, *};

    fn key(text: &str) -> Key {
        text.parse().unwrap()
    }

    #[test]
    fn without_bindings_every_key_means_itself() {
        let map = Keymap::default();
        for action in ACTIONS {
            for key in action.keys {
                assert_eq!(map.meaning(*key), action.keys.first().copied(), "{key}");
            }
        }
        for typed in [Key::plain(Code::Char('y')), Key::plain(Code::Enter), Key::ctrl('r')] {
            assert_eq!(map.meaning(typed), Some(typed));
        }
        // What a terminal sends for Ctrl-_.
        assert_eq!(map.meaning(Key::ctrl('7')), Some(Key::ctrl('_')));
    }

    #[test]
    fn a_binding_takes_the_place_of_the_default_and_the_key_from_its_owner() {
        let bound = [key("ctrl-o"), key("ctrl-x")];
        let map = Keymap::new([("redraw", &bound[..]), ("undo", &[])]);
        assert_eq!(map.meaning(key("ctrl-o")), Some(Key::ctrl('l')));
        assert_eq!(map.meaning(key("ctrl-x")), Some(Key::ctrl('l')));
        assert_eq!(map.meaning(key("ctrl-l")), None, "it was the default");
        assert_eq!(map.meaning(key("ctrl-_")), None, "nothing undoes");
        assert_eq!(map.keys("unfold"), []);
        assert_eq!(
            (map.label("unfold").as_str(), map.label("redraw").as_str()),
            ("no key", "Ctrl-O")
        );
        assert!(map.help().contains("(no key): the last folded result whole"), "{}", map.help());
        assert!(map.help().contains("Ctrl-O, Ctrl-X: draw the region anew"));
        let names: Vec<&str> = map.losses(&Keymap::default()).map(|action| action.name).collect();
        assert_eq!(names, ["unfold", "redraw", "undo"]);
        // The stronger one, which comes later, has the key.
        let map = Keymap::new([("undo", &bound[..1]), ("redo", &bound[..1])]);
        assert_eq!((map.keys("undo"), map.keys("redo")), (&[][..], &bound[..1]));
    }

    #[test]
    fn what_leaves_and_sends_cannot_be_taken_away() {
        let all = [Key::ctrl('c'), Key::plain(Code::Enter), Key::plain(Code::Esc)];
        let map = Keymap::new([("undo", &all[..])]);
        for key in all {
            assert_eq!(map.meaning(key), Some(key));
        }
    }
}
