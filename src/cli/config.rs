//! `kli config`: what the settings are, where they come from, and what is wrong with them.

use std::path::Path;

use serde_json::{Value, json};

use crate::{
    config::{self, Layer, Policy, Settings},
    host::environment::{self, Environment},
};

use super::{
    args::{ConfigCommand, RunArguments},
    error::CliError,
    setup::{self, Setup, read_small},
    terminal,
};

/// Runs `kli config`.
///
/// # Errors
/// For settings that cannot be read.
pub(crate) fn run(command: &ConfigCommand) -> Result<u8, CliError> {
    match command {
        ConfigCommand::Path => path(),
        ConfigCommand::Show { json } => show(*json),
        ConfigCommand::Check { file: None } => check(),
        ConfigCommand::Check { file: Some(file) } => check_file(file),
        ConfigCommand::Schema => {
            terminal::out(&config::schema_text(&config::settings_schema()));
            Ok(0)
        }
    }
}

/// Prints the path, also when what is there cannot be read: whoever mends it needs the path.
fn path() -> Result<u8, CliError> {
    let paths = setup::paths(&Environment::read()).map_err(|_| {
        CliError::config("no home directory is known; set HOME to an absolute path")
    })?;
    terminal::out(&format!("{}\n", paths.settings().display()));
    if let Ok(setup) = Setup::read(&RunArguments::default()) {
        notes(&setup.warnings);
    }
    Ok(0)
}

fn show(as_json: bool) -> Result<u8, CliError> {
    let setup = Setup::read(&RunArguments::default())?;
    notes(&setup.warnings);
    let mut values = setup.settings.effective();
    if let Some(profile) = values.iter_mut().find(|shown| shown.key == "profile") {
        profile.value = json!(setup.profile());
    }
    let mut values: Vec<(String, Value, String)> = values
        .into_iter()
        .map(|shown| (shown.key.clone(), shown.value.clone(), shown.layer().to_owned()))
        .collect();
    values.extend(
        setup
            .policy_values()
            .into_iter()
            .map(|(key, value)| (key.to_owned(), value, "policy".to_owned())),
    );
    if as_json {
        let values: Vec<Value> = values
            .iter()
            .map(|(key, value, layer)| json!({ "key": key, "value": value, "layer": layer }))
            .collect();
        let files: Vec<Value> = files(&setup)
            .into_iter()
            .map(|(layer, path, state)| json!({ "layer": layer, "path": path, "state": state }))
            .collect();
        let object = json!({ "type": "config", "schema": 1, "files": files, "values": values });
        terminal::out(&format!("{object}\n"));
        return Ok(0);
    }
    let mut text = String::new();
    for (key, value, layer) in &values {
        text.push_str(&terminal::one_line(&format!("{key} = {value}  ({layer})")));
        text.push('\n');
    }
    terminal::out(&text);
    Ok(0)
}

/// Returns the files of this run: the layer, the path, and what is to be known of it.
fn files(setup: &Setup) -> Vec<(&'static str, String, &'static str)> {
    let shown = |path: &Path| path.display().to_string();
    let there = |path: &Path| if environment::exists(path) { "read" } else { "absent" };
    let mut found = Vec::new();
    if let Some(baked) = &setup.baked {
        let file = config::Paths::baked_settings(baked);
        found.push(("baked", shown(&file), there(&file)));
        let file = config::Paths::baked_context(baked);
        found.push(("baked instructions", shown(&file), there(&file)));
    }
    if let Some(paths) = &setup.paths {
        for (layer, file) in
            [("user settings", paths.settings()), ("display state", paths.display())]
        {
            found.push((layer, shown(&file), there(&file)));
        }
    }
    let project = match (setup.project.is_there(), setup.trusted) {
        (false, _) => "absent",
        (true, true) => "read, trusted",
        (true, false) => "read, not trusted",
    };
    found.push(("project settings", shown(&setup.project.file), project));
    for file in &setup.policies {
        found.push(("policy", shown(file), "read"));
    }
    found
}

fn check() -> Result<u8, CliError> {
    let setup = Setup::read(&RunArguments::default())?;
    if let Some(name) = setup.settings.model.get() {
        let provider = setup
            .settings
            .provider(&name.provider)
            .map_err(|error| CliError::config(error.to_string()))?;
        setup.permits(name, &provider)?;
    }
    for (layer, path, state) in files(&setup) {
        terminal::note(&format!("{layer}: {} ({state})", terminal::one_line(&path)));
    }
    report_check(&setup.warnings);
    Ok(0)
}

fn check_file(file: &Path) -> Result<u8, CliError> {
    let here =
        environment::current_directory().map_err(|error| CliError::config(error.to_string()))?;
    let file = here.join(file);
    let name = file.display().to_string();
    let bytes = read_small(&file, config::MAX_BYTES)?
        .ok_or_else(|| CliError::config(format!("there is no file `{name}`")))?;
    let config = |error: config::ConfigError| CliError::config(error.to_string());
    if file.file_name().is_some_and(|name| name == "policy.json") {
        Policy::parse(&name, &bytes).map_err(config)?;
        terminal::out("policy: ok\n");
        return Ok(0);
    }
    let (settings, found) = Settings::parse(&name, &bytes, Layer::User).map_err(config)?;
    settings.check().map_err(|error| CliError::config(error.to_string()))?;
    let mut warnings: Vec<String> = found.iter().map(ToString::to_string).collect();
    let own = settings.profiles.keys().chain(settings.profile.get());
    for profile in own {
        match settings.chain(profile, "this file") {
            Ok(_) => {}
            // Another layer may define it.
            Err(error @ config::SettleError::Profile { .. }) => {
                warnings.push(format!("{name}: {error}; unless another layer has it"));
            }
            Err(error) => return Err(CliError::config(error.to_string())),
        }
    }
    warnings.dedup();
    report_check(&warnings);
    Ok(0)
}

fn notes(warnings: &[String]) {
    for warning in warnings {
        terminal::note(&format!("kli: {warning}"));
    }
}

fn report_check(warnings: &[String]) {
    notes(warnings);
    terminal::out(match warnings.len() {
        0 => "settings: ok\n",
        _ => "settings: ok, with warnings\n",
    });
}
