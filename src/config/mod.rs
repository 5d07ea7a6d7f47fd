//! Configuration: text in, checked values out. Pure; it is handed text and names, and never reads
//! a file or a variable itself.
//!
//! - [`Settings`]: one layer, or several laid over each other with [`Settings::over`]. Every value
//!   knows the [`Layer`] it came from.
//! - [`Layers`] lays all of them over each other, the [`Policy`] last; [`Effective`] is what comes out,
//!   and computes the one subject of a run. [`keys`]: the table of keys.
//! - [`ConfigError`] and [`Warning`]: both point at file, line, column and key.
//! - [`Paths`]: where kli's own files are. [`names`]: every environment variable that kli reads.
//!
//! It must not know sessions, models or tools: the composition root hands them what they need.

mod display;
mod duration;
mod effective;
mod error;
mod flags;
mod jsonc;
pub mod keys;
mod layers;
pub mod names;
mod paths;
mod policy;
mod provider;
mod schema;
mod settings;
mod show;
mod values;

pub use display::{Bindings, Choice, ThemeSettings, action};
pub use duration::{DurationError, parse_duration};
pub use effective::{Effective, Layers, SettleError, Switches};
pub use error::{About, ConfigError, Place, Problem, Warning};
pub use flags::{FlagError, Flags};
pub use jsonc::plain;
pub use layers::{Conflict, Layer, Setting};
pub use paths::{NoHome, POLICY, Paths};
pub use policy::{Forbidden, Pattern, Policy};
pub use provider::{
    ADDRESSES, KeySources, Kind, ModelSettings, PriceSettings, Provider, ProviderError,
    ProviderSettings, Server,
};
pub use schema::{policy_schema, schema_text, settings_schema};
pub use settings::{Bash, Budgets, MAX_BYTES, Parsed, ProfileSettings, Scope, Settings};
pub use show::{HIDDEN, Shown};
pub use values::{ModelName, ValueError};
