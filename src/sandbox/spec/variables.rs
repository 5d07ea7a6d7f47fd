//! The variables of a specification against each other: what one key sets and another removes is a
//! contradiction, and refused where it is written. Pure.

use serde::de;

use super::{Quoted, Spec, VariableName};

/// The launcher's own variable, which no key of the specification may be about.
const OWN: &str = "KLI_SECRETS_FD";

/// Whether a key can be handed over under this name: a letter or `_`, then letters, digits and `_`.
pub(in super::super) fn is_key_name(name: &str) -> bool {
    name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
        && !name.is_empty()
        && !name.starts_with(|first: char| first.is_ascii_digit())
}

/// Checks the names of `secrets` and `secretEnv`.
pub(super) fn check_keys<'a, E: de::Error>(
    key: &str,
    names: impl IntoIterator<Item = &'a VariableName>,
) -> Result<(), E> {
    match names.into_iter().find(|name| !is_key_name(&name.0)) {
        None => Ok(()),
        Some(name) => Err(E::custom(format_args!(
            "`{key}`: {} is no name of a key: it may only have letters, digits and `_`, and no \
             digit first",
            Quoted(name.0.clone())
        ))),
    }
}

/// Checks the keys about variables against each other.
///
/// # Errors
/// The sentence with the repair.
pub(super) fn check(spec: &Spec) -> Result<(), String> {
    let set = [
        ("env", spec.env.keys().collect::<Vec<_>>()),
        ("envFiles", spec.env_files.keys().collect()),
    ];
    for (key, names) in &set {
        for name in names {
            let quoted = Quoted(name.0.clone());
            if spec.deny_env.iter().any(|pattern| pattern.matches(name.0.as_bytes())) {
                return Err(format!(
                    "`{key}` sets {quoted} and `denyEnv` removes it: take it out of one of them"
                ));
            }
            // Whatever has it in its environment is not the program alone.
            if spec.secret_env.contains(name) || spec.secrets.contains_key(name) {
                let other = if spec.secrets.contains_key(name) { "secrets" } else { "secretEnv" };
                return Err(format!(
                    "`{key}` sets {quoted} for every program inside and `{other}` keeps it from \
                     them: take it out of one of them"
                ));
            }
        }
    }
    if let Some(name) = spec.env_files.keys().find(|name| spec.env.contains_key(name)) {
        return Err(format!(
            "`env` and `envFiles` both set {}: take it out of one of them",
            Quoted(name.0.clone())
        ));
    }
    let keys = [
        ("secrets", spec.secrets.keys().collect()),
        ("secretEnv", spec.secret_env.iter().collect()),
    ];
    for (key, names) in set.into_iter().chain(keys) {
        if names.iter().any(|name| name.0 == OWN) {
            return Err(format!("`{key}`: `{OWN}` is the launcher's own: take it out"));
        }
    }
    Ok(())
}
