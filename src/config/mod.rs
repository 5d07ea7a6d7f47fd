//! Configuration: text in, checked values out. Pure; it is handed text and names, and never reads
//! a file or a variable itself.
//!
//! - [`Settings`]: one layer, or several laid over each other with [`Settings::over`]. Every value
//!   knows the [`Layer`] it came from.
//! - [`ConfigError`] and [`Warning`]: both point at file, line, column and key.
//! - [`Paths`]: where kli's own files are. [`names`]: every environment variable that kli reads.
//!
//! It must not know sessions, models or tools: the composition root hands them what they need.

mod duration;
mod error;
mod flags;
mod jsonc;
mod layers;
pub mod names;
mod paths;
mod provider;
mod settings;
mod values;

pub use duration::{DurationError, parse_duration};
pub use error::{ConfigError, Place, Problem, Warning};
pub use flags::{FlagError, Flags};
pub use layers::{Conflict, Layer, Setting};
pub use paths::{NoHome, Paths};
pub use provider::{
    ADDRESSES, KeySources, Kind, ModelSettings, Provider, ProviderError, ProviderSettings, Server,
};
pub use settings::{Bash, Budgets, MAX_BYTES, Settings};
pub use values::{ModelName, ValueError};
