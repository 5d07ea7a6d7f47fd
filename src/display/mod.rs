//! The vocabulary of display: keys and what they do, roles and their looks. Pure.
//!
//! Settings are read into it and the interface draws with it; neither knows the other. Nothing here
//! decides what a run may do: whoever writes these values changes how things look and which key does
//! what, and no more.

mod action;
mod key;
mod keymap;
mod theme;

pub use action::{ACTIONS, Action, FIXED, find, key_table};
pub use key::{Code, Key, KeyError};
pub use keymap::Keymap;
pub use theme::{
    BUILT_IN, Color, Depth, Look, LookError, Role, Theme, is_built_in, markdown as role_table,
};
