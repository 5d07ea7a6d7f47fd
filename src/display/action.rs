//! The closed list of what keys do. `/help`, the key table of `docs/terminal.md`, the schema of
//! `keybindings` and the reader of settings are all made from it.

use std::fmt::Write as _;

use super::key::{Code, Key};

/// Something that a key does and that another key can be bound to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Action {
    /// Its name in `keybindings`.
    pub name: &'static str,
    /// Its keys when nobody binds it. The interface knows the action by the first of them.
    pub keys: &'static [Key],
    /// What it does, for people.
    pub about: &'static str,
}

const fn named(code: Code) -> Key {
    Key::plain(code)
}

const fn action(name: &'static str, keys: &'static [Key], about: &'static str) -> Action {
    Action { name, keys, about }
}

/// Every action, in the order in which people read them.
pub const ACTIONS: &[Action] = &[
    action(
        "complete",
        &[named(Code::Tab)],
        "complete a command or an `@file`; else, while the agent works: queue what is written as the next prompt",
    ),
    action(
        "newline",
        &[
            Key::ctrl('j'),
            named(Code::Enter).with_shift(),
            named(Code::Enter).with_alt(),
            named(Code::Enter).with_ctrl(),
        ],
        "a new line",
    ),
    action(
        "leave",
        &[Key::ctrl('d')],
        "leave, when nothing is written; else delete the character after the cursor",
    ),
    action("suspend", &[Key::ctrl('z')], "suspend; the shell's `fg` goes on"),
    action("edit", &[Key::ctrl('g')], "write in your own editor (`$VISUAL`, `$EDITOR`)"),
    action("search", &[Key::ctrl('r')], "search the earlier prompts"),
    action("unfold", &[Key::ctrl('o')], "the last folded result whole"),
    action("redraw", &[Key::ctrl('l')], "draw the region anew"),
    action(
        "up",
        &[named(Code::Up)],
        "a row up; at the first row: the prompt before. On an empty line: the last prompt back that waits to be sent",
    ),
    action("down", &[named(Code::Down)], "a row down; at the last row: the prompt after"),
    action(
        "previous",
        &[Key::ctrl('p')],
        "the prompt before that begins as what is written, or any when none does",
    ),
    action("next", &[Key::ctrl('n')], "the prompt after"),
    action("left", &[named(Code::Left), Key::ctrl('b')], "a character to the left"),
    action("right", &[named(Code::Right), Key::ctrl('f')], "a character to the right"),
    action(
        "word-left",
        &[Key::alt('b'), named(Code::Left).with_ctrl(), named(Code::Left).with_alt()],
        "a word to the left",
    ),
    action(
        "word-right",
        &[Key::alt('f'), named(Code::Right).with_ctrl(), named(Code::Right).with_alt()],
        "a word to the right",
    ),
    action("line-start", &[named(Code::Home), Key::ctrl('a')], "to the start of the line"),
    action("line-end", &[named(Code::End), Key::ctrl('e')], "to the end of the line"),
    action("text-start", &[named(Code::Home).with_ctrl()], "to the start of the prompt"),
    action("text-end", &[named(Code::End).with_ctrl()], "to the end of the prompt"),
    action("delete", &[named(Code::Delete)], "delete the character after the cursor"),
    action(
        "delete-word-left",
        &[Key::ctrl('w'), named(Code::Backspace).with_alt(), named(Code::Backspace).with_ctrl()],
        "delete the word before the cursor",
    ),
    action(
        "delete-word-right",
        &[Key::alt('d'), named(Code::Delete).with_alt(), named(Code::Delete).with_ctrl()],
        "delete the word after the cursor",
    ),
    action("delete-to-start", &[Key::ctrl('u')], "delete to the start of the line"),
    action("delete-to-end", &[Key::ctrl('k')], "delete to the end of the line"),
    action(
        "put-back",
        &[Key::ctrl('y')],
        "put back what was deleted in a row by words or to an end",
    ),
    action("put-back-earlier", &[Key::alt('y')], "right after that: what was deleted before it"),
    action("undo", &[Key::ctrl('_')], "undo"),
    action("redo", &[Key::alt('r')], "redo"),
];

/// Keys that always do the same.
pub const FIXED: &[(&str, &str)] = &[
    ("Enter", "send; while the agent works: tell it at the next boundary"),
    ("!COMMAND, !!COMMAND", "run it yourself; with one `!` the model sees what it printed"),
    (
        "Esc Esc",
        "interrupt; a prompt of which nothing came yet returns to the editor, and the model does not see it",
    ),
    ("Ctrl-C", "interrupt, or empty the line; twice: leave"),
];

/// Returns the action of a name.
pub fn find(name: &str) -> Option<&'static Action> {
    ACTIONS.iter().find(|action| action.name == name)
}

/// Returns the keys of an action for people: `Ctrl-P, Up`.
pub(super) fn labels(keys: &[Key]) -> String {
    keys.iter().map(|key| key.label()).collect::<Vec<_>>().join(", ")
}

/// Returns the table of keys in Markdown, as `docs/terminal.md` carries it.
pub fn key_table() -> String {
    let mut text =
        String::from("| keys | name in `keybindings` | what they do |\n| --- | --- | --- |\n");
    // Writing to a string cannot fail.
    for (keys, about) in FIXED {
        let _ = writeln!(text, "| {keys} | | {about} |");
    }
    for action in ACTIONS {
        let _ =
            writeln!(text, "| {} | `{}` | {} |", labels(action.keys), action.name, action.about);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_key_and_no_name_is_there_twice_and_every_key_can_be_written() {
        let mut keys: Vec<Key> = ACTIONS.iter().flat_map(|action| action.keys).copied().collect();
        for key in &keys {
            assert_eq!(key.to_string().parse::<Key>(), Ok(*key), "{key}");
            assert_eq!(key.normal(), *key);
        }
        let count = keys.len();
        keys.sort();
        keys.dedup();
        assert_eq!(keys.len(), count);
        let mut names: Vec<&str> = ACTIONS.iter().map(|action| action.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), ACTIONS.len());
        assert!(ACTIONS.iter().all(|action| !action.keys.is_empty()));
    }
}
