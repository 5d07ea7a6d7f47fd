//! The terminal interface: what people live in.
//!
//! - [`input`]: bytes of a terminal to keys; pure.
//! - [`state`]: what is written, what happens, what waits; inputs in, effects out; pure.
//! - [`view`]: the state as rows of the region at the bottom; pure.
//! - [`cells`], [`style`], [`markdown`], [`code`], [`block`]: text to rows; pure.
//! - [`approval`]: the question about a call; [`exact`]: text to the letter; pure.
//! - `earlier`: what a conversation was before; `change`: what a person changes while a conversation goes on; pure.
//! - [`complete`], [`picker`]: what a beginning can become, and a list to choose from; pure.
//! - [`screen`]: rows to the bytes of a frame; pure.
//! - `guard`: the modes of the terminal, and how they are put back whatever happens.
//! - `edge`: the loop that joins terminal, agent, clock and signals.
//! - `ending`: how long the agent has to end when a person leaves either of them.
//! - `plain`: the same conversation line by line, for screen readers.
//!
//! It sees the agent's operations and events and the vocabulary of messages, and nothing below them.
//! Commands are answered, and conversations begun, by whoever starts it.

pub mod approval;
pub mod block;
pub mod cells;
mod change;
pub mod code;
pub mod command;
pub mod complete;
pub mod composer;
mod earlier;
mod edge;
mod ending;
pub mod exact;
pub mod found;
mod guard;
pub mod input;
pub mod key;
pub mod markdown;
pub mod picker;
mod plain;
pub mod screen;
pub mod state;
pub mod style;
pub mod view;

pub use change::{Change, SWITCH};
pub use command::said;
pub use earlier::Earlier;
pub use edge::{Answer, Conversation, Editing, EditorIs, End, Look, Root, run};
pub use plain::run_plain;
