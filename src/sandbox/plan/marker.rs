//! What the inside may know about its confinement: no name of anything hidden.

use std::ffi::OsString;
use std::fmt::Write as _;

use serde::Serialize;

use super::super::facts::Facts;
use super::super::spec::VERSION;
use super::{Kind, Mount, environment, kernel};

/// Its fields.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Marker {
    version: u64,
    network: bool,
    abstract_sockets: &'static str,
    signals_scoped: bool,
    user_namespaces: bool,
    limits: Vec<String>,
    workspace: String,
    writable_paths: Vec<String>,
    hidden_paths: usize,
    denied_variables: usize,
}

/// The text of the marker.
pub(super) fn text(
    network: bool,
    kernel: &kernel::Surface,
    facts: &Facts,
    mounts: &[Mount],
    hidden: usize,
    removed: &[(OsString, &'static str)],
) -> String {
    let marker = Marker {
        version: VERSION,
        network,
        abstract_sockets: kernel.abstract_sockets.word(),
        signals_scoped: kernel.scoped,
        user_namespaces: kernel.allow.user_namespaces,
        limits: kernel.bounds(),
        workspace: facts.workspace.to_string_lossy().into_owned(),
        writable_paths: mounts
            .iter()
            .filter(|mount| mount.kind == Kind::Writable)
            .map(|mount| mount.destination.to_string_lossy().into_owned())
            .collect(),
        hidden_paths: hidden,
        denied_variables: removed
            .iter()
            .filter(|(_, reason)| *reason == environment::DENIED)
            .count(),
    };
    let text = serde_json::to_string(&marker).unwrap_or_default();
    // JSON lets DEL and its like stand as they are; `explain` prints this for a terminal.
    text.chars().fold(String::new(), |mut text, character| {
        if character.is_control() {
            // Writing to a string cannot fail.
            let _ = write!(text, "\\u{:04x}", u32::from(character));
        } else {
            text.push(character);
        }
        text
    })
}
