//! From the settings to a model that can be asked.

use std::path::Path;

use crate::{
    config::{ModelName, Provider},
    model::{
        Model,
        catalogue::{self, Kind, OpenError, Options, Secret},
    },
};

use super::{
    credentials::key,
    demo,
    error::CliError,
    setup::{Setup, read_small},
};

/// The model of a run that names none.
const DEFAULT_MODEL: &str = "anthropic/claude-sonnet-4-5";

/// Returns the model of this run by its name.
///
/// # Errors
/// Never, unless the built-in name is wrong.
pub(crate) fn model_name(setup: &Setup) -> Result<ModelName, CliError> {
    match setup.settings.model.get() {
        Some(name) => Ok(name.clone()),
        None => DEFAULT_MODEL
            .parse::<ModelName>()
            .map_err(|error| CliError::internal(error.to_string())),
    }
}

/// Opens the model of this run; nothing is sent.
///
/// # Errors
/// For settings that name no usable provider, and for a key that is missing.
pub(crate) fn open_model(setup: &Setup) -> Result<Box<dyn Model>, CliError> {
    let name = model_name(setup)?;
    let provider = setup
        .settings
        .provider(&name.provider)
        .map_err(|error| CliError::config(error.to_string()))?;
    let mut hint = None;
    let options = match provider {
        Provider::Anthropic { base_url, key_env, key_file, headers } => {
            hint = Some(match &key_env {
                Some(variable) => format!(
                    "set the variable `{variable}`, or name a file in `providers.{}.keyFile`",
                    name.provider
                ),
                None => {
                    format!("set `providers.{0}.keyEnv` or `providers.{0}.keyFile`", name.provider)
                }
            });
            let named = setup
                .settings
                .providers
                .get(&name.provider)
                .and_then(|provider| provider.key_env.get().cloned());
            let mut options = Options::new(Kind::Anthropic, name.provider, name.model);
            options.base_url = Some(base_url);
            options.key = key(setup, key_env.as_deref(), key_file.as_deref())?;
            // Whoever names a variable means the provider to get a key: without one the prompt would
            // go out for nothing.
            if let (None, Some(variable)) = (&options.key, named) {
                return Err(CliError::auth(format!(
                    "the variable `{variable}`, which holds the key of provider `{}`, is not set",
                    options.provider
                ))
                .hint("set it, or take `keyEnv` out if the server needs no key"));
            }
            options.headers =
                headers.into_iter().map(|(name, value)| (name, Secret::new(&value))).collect();
            options
        }
        Provider::Replay { file } => {
            let recording = recording(setup, &name.model, file.as_deref())?;
            Options::new(Kind::Replay { recording }, name.provider, name.model)
        }
    };
    catalogue::open(&options).map_err(|error| match &error {
        OpenError::MissingKey { .. } | OpenError::Key { .. } => {
            let fault = CliError::auth(error.to_string());
            match hint {
                Some(hint) => fault.hint(hint),
                None => fault,
            }
        }
        _ => CliError::config(error.to_string()),
    })
}

/// Returns the text of a recording: the file's, or the built-in one of that name.
///
/// # Errors
/// For one that is not there, or cannot be read.
pub(crate) fn recording(
    setup: &Setup,
    model: &str,
    file: Option<&str>,
) -> Result<String, CliError> {
    match file {
        Some(file) => read_recording(&setup.spelled(file)?),
        None => demo::recording(model).ok_or_else(|| {
            CliError::config(format!("there is no built-in recording `{model}`"))
                .hint("name a file in `providers.replay.file`, or use `replay/demo`")
        }),
    }
}

fn read_recording(file: &Path) -> Result<String, CliError> {
    let bytes = read_small(file, 64 * 1024 * 1024)?
        .ok_or_else(|| CliError::config(format!("there is no recording `{}`", file.display())))?;
    String::from_utf8(bytes)
        .map_err(|_| CliError::config(format!("the recording `{}` is not UTF-8", file.display())))
}
