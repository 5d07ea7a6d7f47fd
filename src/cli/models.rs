//! `kli models`: every model that is known, and which one a run would ask.

use std::{collections::BTreeMap, fmt::Write as _};

use serde::Serialize;
use serde_json::{Value, json};

use crate::{
    config::{self, ModelName, ModelSettings, Provider},
    host::secrets::Handed,
    message::{Effort, Price},
    model::{
        catalogue::{Kind, Options},
        known,
    },
};

use super::{
    args::RunArguments,
    auth::{self, KeyPlace},
    error::CliError,
    provider::{self, describe},
    setup::Setup,
    terminal,
};

/// One model's line.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Row {
    model: String,
    /// What its provider speaks; `None` = the provider cannot be used.
    kind: Option<&'static str>,
    context_window: Option<u64>,
    max_output: Option<u64>,
    efforts: Vec<&'static str>,
    price: Value,
    key: KeyPlace,
    /// Whether a run would ask this one.
    chosen: bool,
    /// Why a run cannot ask it.
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
}

#[derive(Debug, Serialize)]
struct Alias {
    name: String,
    model: String,
    fallbacks: Vec<String>,
    from: String,
}

#[derive(Debug, Serialize)]
struct Chosen {
    model: String,
    /// The layer that chose it.
    from: String,
    alias: Option<String>,
    fallbacks: Vec<String>,
    effort: Option<&'static str>,
}

#[derive(Debug, Serialize)]
struct Report {
    r#type: &'static str,
    chosen: Chosen,
    models: Vec<Row>,
    aliases: Vec<Alias>,
}

/// Runs `kli models`, as a run with these arguments would choose. No model is asked, no command is run, and no key is printed.
///
/// # Errors
/// For settings that cannot be read.
pub(crate) fn run(run: &RunArguments, json: bool, handed: &Handed) -> Result<u8, CliError> {
    show(&Setup::read(run)?, json, handed)
}

/// Prints the models as they are known under a setup.
///
/// # Errors
/// Never, unless the report cannot be written.
pub(crate) fn show(setup: &Setup, json: bool, handed: &Handed) -> Result<u8, CliError> {
    for warning in &setup.warnings {
        terminal::note(&format!("kli: {warning}"));
    }
    let report = report(setup, handed)?;
    if json {
        let line = serde_json::to_string(&report)
            .map_err(|error| CliError::internal(format!("cannot print the report: {error}")))?;
        terminal::out(&format!("{line}\n"));
    } else {
        terminal::out(&text(&report));
    }
    Ok(0)
}

fn report(setup: &Setup, handed: &Handed) -> Result<Report, CliError> {
    let settings = &setup.settings;
    let chosen = provider::model_name(setup)?;
    let mut names: Vec<ModelName> = Vec::new();
    let mut add = |name: &ModelName| {
        if !names.contains(name) {
            names.push(name.clone());
        }
    };
    add(&chosen);
    let aliases: Vec<Alias> = settings
        .models
        .iter()
        .filter_map(|(name, models)| {
            let (first, fallbacks) = models.get()?.split_first()?;
            models.get()?.iter().for_each(&mut add);
            Some(Alias {
                name: name.clone(),
                model: first.to_string(),
                fallbacks: fallbacks.iter().map(ToString::to_string).collect(),
                from: models.layer()?.to_string(),
            })
        })
        .collect();
    for (provider, written) in &settings.providers {
        for model in written.models.keys() {
            add(&ModelName { provider: provider.clone(), model: model.clone() });
        }
    }
    for (provider, model) in known::LISTED {
        add(&ModelName { provider: provider.to_owned(), model: model.to_owned() });
    }
    let keys = auth::places(setup, handed, names.iter().map(|name| name.provider.clone()));
    let alias = settings.alias.get().cloned();
    let fallbacks = aliases.iter().find(|known| Some(&known.name) == alias.as_ref());
    let fallbacks = fallbacks.map_or_else(Vec::new, |known| known.fallbacks.clone());
    let from = settings.model.layer().map_or_else(|| "default".to_owned(), |l| l.to_string());
    let effort = provider::chosen_effort(setup, &chosen).map(Effort::name);
    let models = names.iter().map(|name| row(setup, name, &chosen, &keys)).collect();
    let chosen = Chosen { model: chosen.to_string(), from, alias, fallbacks, effort };
    Ok(Report { r#type: "models", chosen, models, aliases })
}

fn row(
    setup: &Setup,
    name: &ModelName,
    chosen: &ModelName,
    keys: &BTreeMap<String, KeyPlace>,
) -> Row {
    let found = setup.settings.provider(&name.provider);
    let (kind, model, problem) = match &found {
        Ok(Provider::Server(server)) => {
            let model = server.models.get(&name.model).cloned().unwrap_or_default();
            (Some(server.kind.name()), model, None)
        }
        Ok(Provider::Replay { .. }) => {
            (Some(config::Kind::Replay.name()), ModelSettings::default(), None)
        }
        Err(error) => (None, ModelSettings::default(), Some(error.to_string())),
    };
    let forbidden = found.ok().and_then(|provider| setup.permits(name, &provider).err());
    let problem = problem.or_else(|| forbidden.map(|error| error.fault.message));
    // The kind means nothing here: what is known of a model depends on its name alone.
    let mut options = Options::new(Kind::OpenAi, &*name.provider, &*name.model);
    describe(&mut options, &model);
    let none = KeyPlace { needed: true, found: false, from: None };
    Row {
        model: name.to_string(),
        kind,
        context_window: options.context_window(),
        max_output: options.max_output(),
        efforts: options.efforts().iter().map(|level| level.name()).collect(),
        price: options.price.map_or(Value::Null, price),
        key: keys.get(&name.provider).cloned().unwrap_or(none),
        chosen: name == chosen,
        problem,
    }
}

fn price(price: Price) -> Value {
    let number =
        |part: u64| -> Value { serde_json::from_str(&Price::shown(part)).unwrap_or_default() };
    json!({
        "input": number(price.input),
        "output": number(price.output),
        "cacheRead": number(price.cache_read.unwrap_or(price.input)),
        "cacheWrite": number(price.cache_write.unwrap_or(price.input)),
    })
}

/// Returns the report as people read it: columns, the chosen model marked.
fn text(report: &Report) -> String {
    let head =
        ["", "model", "window", "answer", "effort", "price in/out", "key"].map(str::to_owned);
    let mut lines = vec![head];
    for row in &report.models {
        let count = |count: Option<u64>| count.map_or_else(|| "-".to_owned(), |n| n.to_string());
        let price = match &row.price {
            Value::Null => "-".to_owned(),
            price => format!("{}/{}", price["input"], price["output"]),
        };
        let key = match (&row.problem, row.key.found, row.key.needed) {
            (Some(problem), ..) => format!("cannot be used: {problem}"),
            (None, true, _) => "yes".to_owned(),
            (None, false, true) => "no".to_owned(),
            (None, false, false) => "not needed".to_owned(),
        };
        let efforts = row.efforts.join(" ");
        lines.push([
            if row.chosen { "*" } else { "" }.to_owned(),
            terminal::one_line(&row.model),
            count(row.context_window),
            count(row.max_output),
            if efforts.is_empty() { "-".to_owned() } else { efforts },
            price,
            terminal::one_line(&key),
        ]);
    }
    let mut widths = [0; 7];
    for line in &lines {
        for (width, cell) in widths.iter_mut().zip(line) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let mut text = String::new();
    for line in &lines {
        let cells = line.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}"));
        let joined = cells.collect::<Vec<_>>().join("  ");
        // Writing to a string cannot fail.
        let _written = writeln!(text, "{}", joined.trim_end());
    }
    for Alias { name, model, fallbacks, from } in &report.aliases {
        let rest = if fallbacks.is_empty() {
            String::new()
        } else {
            format!(", then {}", fallbacks.join(", "))
        };
        let line = format!("alias {name}: {model}{rest} (from {from})");
        let _written = writeln!(text, "{}", terminal::one_line(&line));
    }
    let Chosen { model, from, alias, effort, .. } = &report.chosen;
    let alias = alias.as_ref().map_or_else(String::new, |alias| format!(", as `{alias}`"));
    let effort = effort.map_or_else(String::new, |effort| format!(", effort {effort}"));
    let line = format!("chosen: {model} (from {from}{alias}{effort})");
    let _written = writeln!(text, "{}", terminal::one_line(&line));
    text
}
