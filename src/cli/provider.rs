//! From the settings to a model that can be asked.

use std::{path::Path, sync::Arc};

use crate::{
    config::{self, ModelName, ModelSettings, Provider, Server},
    message::Effort,
    model::{
        Model,
        catalogue::{self, Kind, OpenError, Options, Secret},
    },
};

use super::{
    credentials::{Keys, set_command},
    demo,
    error::CliError,
    setup::{Setup, read_small},
};

/// The model of a run that names none.
pub(super) const DEFAULT_MODEL: &str = "anthropic/claude-sonnet-4-5";

/// Returns the provider of that model.
pub(super) fn default_provider() -> &'static str {
    DEFAULT_MODEL.split('/').next().unwrap_or_default()
}

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

/// Opens the model of this run; nothing is sent. A key comes from `keys`, which may have to wait for
/// a command.
///
/// # Errors
/// For settings that name no usable provider, and for a key that is missing.
pub(crate) fn open_model(setup: &Setup, keys: &mut Keys<'_>) -> Result<Arc<dyn Model>, CliError> {
    open_named(setup, keys, model_name(setup)?)
}

/// Opens any model, as [`open_model`] does: a fallback, or one that a person switches to.
///
/// # Errors
/// As [`open_model`].
pub(crate) fn open_named(
    setup: &Setup,
    keys: &mut Keys<'_>,
    name: ModelName,
) -> Result<Arc<dyn Model>, CliError> {
    let provider = setup
        .settings
        .provider(&name.provider)
        .map_err(|error| CliError::config(error.to_string()))?;
    setup.permits(&name, &provider)?;
    let mut hint = None;
    let sources = provider.key_sources().unwrap_or_default();
    let key = keys.key(&name.provider, sources)?;
    let options = match provider {
        Provider::Server(server) => {
            hint = Some(match &server.key_env {
                Some(variable) => format!(
                    "set the variable `{variable}`, or store a key with `{}`",
                    set_command(&name.provider)
                ),
                None => format!(
                    "store a key with `{}`, or set `providers.{}.keyEnv`",
                    set_command(&name.provider),
                    name.provider
                ),
            });
            server_options(setup, name, server, key)?
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

/// Returns the options of a model on a server.
fn server_options(
    setup: &Setup,
    name: ModelName,
    server: Server,
    key: Option<Secret>,
) -> Result<Options, CliError> {
    let Server { kind, base_url, headers, mut models, .. } = server;
    let kind = match kind {
        config::Kind::Anthropic => Kind::Anthropic,
        config::Kind::OpenAiChat => Kind::OpenAiChat,
        config::Kind::OpenAi => Kind::OpenAi,
        config::Kind::Replay => {
            return Err(CliError::internal("no server speaks the kind `replay`"));
        }
    };
    let named = setup
        .settings
        .providers
        .get(&name.provider)
        .and_then(|provider| provider.key_env.get().cloned());
    let model = models.remove(&name.model).unwrap_or_default();
    let mut options = Options::new(kind, name.provider, name.model);
    options.base_url = Some(spelled(setup, base_url)?);
    options.key = key;
    // Whoever names a variable means the provider to get a key: without one the prompt would go out
    // for nothing.
    if let (None, Some(variable)) = (&options.key, named) {
        return Err(CliError::auth(format!(
            "the variable `{variable}`, which holds the key of provider `{}`, is not set",
            options.provider
        ))
        .hint("set it, or take `keyEnv` out if the server needs no key"));
    }
    options.headers =
        headers.into_iter().map(|(name, value)| (name, Secret::new(&value))).collect();
    options.effort = effort(setup, &model);
    describe(&mut options, &model);
    options.options = model.options.get().cloned().unwrap_or_default();
    options.options.extend(setup.settings.model_options());
    Ok(options)
}

/// Puts what the settings say about a model into its options.
pub(crate) fn describe(options: &mut Options, model: &ModelSettings) {
    options.max_output = model.max_output.get().copied();
    options.context_window = model.context_window.get().copied();
    options.efforts = model.efforts.get().cloned();
    options.price = model.price.price();
}

/// Returns how much a model thinks: what is said of it alone comes first, unless a stronger layer
/// says how much any model does.
pub(super) fn effort(setup: &Setup, model: &ModelSettings) -> Option<Effort> {
    let (all, one) = (&setup.settings.effort, &model.effort);
    let chosen = if all.layer() > one.layer() { all } else { one };
    chosen.get().copied()
}

/// Returns how much the model of this name thinks, when the settings say.
pub(super) fn chosen_effort(setup: &Setup, name: &ModelName) -> Option<Effort> {
    let provider = setup.settings.providers.get(&name.provider);
    let model = provider.and_then(|provider| provider.models.get(&name.model));
    match model {
        Some(model) => effort(setup, model),
        None => effort(setup, &ModelSettings::default()),
    }
}

/// Returns an address with the home of a socket's path written out.
fn spelled(setup: &Setup, base_url: String) -> Result<String, CliError> {
    let Some(socket) = base_url.strip_prefix("unix:").filter(|path| path.starts_with("~/")) else {
        return Ok(base_url);
    };
    let (path, prefix) = socket.split_once(":/").map_or((socket, None), |(p, x)| (p, Some(x)));
    let path = setup.spelled(path)?;
    let path = path.display();
    Ok(prefix.map_or_else(|| format!("unix:{path}"), |prefix| format!("unix:{path}:/{prefix}")))
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
    let bytes = read_small(file, 64 * 1024 * 1024)?.ok_or_else(|| {
        CliError::config(format!("there is no recording `{}`", file.display()))
            .hint("`providers.replay.file` in the settings names it")
    })?;
    String::from_utf8(bytes)
        .map_err(|_| CliError::config(format!("the recording `{}` is not UTF-8", file.display())))
}
