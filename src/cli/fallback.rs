//! The models that are asked when the chosen one is not to be had, and what a budget of money wants
//! to know of each.

use std::sync::Arc;

use crate::{config::Setting, model::Model};

use super::{credentials::Keys, error::CliError, provider::open_named, setup::Setup};

/// Checks that a budget of money can be kept with a model: what nobody can count must not be spent.
///
/// # Errors
/// Names the key that is missing.
pub(crate) fn check_price(setup: &Setup, model: &dyn Model) -> Result<(), CliError> {
    let budget = &setup.settings.budgets.cost;
    match (Setting::get(budget), model.price()) {
        (Some(limit), None) => Err(unpriced(&limit.to_string(), model.name())),
        _ => Ok(()),
    }
}

fn unpriced(limit: &str, name: &str) -> CliError {
    let (provider, model) = name.split_once('/').unwrap_or((name, "NAME"));
    CliError::config(format!(
        "the budget of {limit} (`budgets.cost`) cannot be kept, as nobody says what `{name}` costs"
    ))
    .hint(format!(
        "set `input` and `output` of `providers.{provider}.models.{model}.price` in the settings"
    ))
}

/// Opens the models after the first of an alias; nothing is sent. One that cannot be had is left out
/// with a sentence: the run may never need it.
pub(crate) fn open_fallbacks(
    setup: &Setup,
    keys: &mut Keys<'_>,
    chosen: &str,
) -> (Vec<Arc<dyn Model>>, Vec<String>) {
    let (mut models, mut notices) = (Vec::<Arc<dyn Model>>::new(), Vec::new());
    for name in setup.fallbacks() {
        let text = name.to_string();
        if text == chosen || models.iter().any(|model| model.name() == text) {
            continue;
        }
        let opened = open_named(setup, keys, name.clone())
            .and_then(|model| check_price(setup, &*model).map(|()| model));
        match opened {
            Ok(model) => models.push(model),
            Err(error) => notices.push(format!(
                "`{text}` is not asked in the place of `{chosen}`: {}",
                error.fault.message
            )),
        }
    }
    (models, notices)
}
