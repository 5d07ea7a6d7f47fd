//! The display state: what a person chose while kli ran, in a file that a jailed run can write.
//!
//! So it is data: it names a model of a provider that is in use, an effort, a theme that exists and
//! keys, and nothing else of it is read or carried over.

use std::path::Path;

use crate::{
    authority::Grant,
    config::{Choice, Layer, Paths, Scope, Settings},
    display::Key,
    host::{files, state},
};

use super::provider::default_provider;

/// The largest display state that is read, in bytes.
const LIMIT: u64 = 64 * 1024;

/// Reads the display state. A link is not followed, and what is broken stops nothing: it is said.
pub(super) fn read(file: &Path, known: &Settings, warnings: &mut Vec<String>) -> Settings {
    let mut settings = match load(file) {
        Ok(settings) => settings,
        Err(sentence) => {
            warnings.push(format!("{sentence}; what was chosen there is left out"));
            return Settings::default();
        }
    };
    let left_out = "what was chosen there is left out";
    let name = file.display();
    if let Some(reason) = drop_model(&mut settings, known) {
        warnings.push(format!("the display state `{name}` names a model {reason}; {left_out}"));
    }
    if let Some(theme) = settings.drop_strange_theme(known) {
        warnings.push(format!(
            "the display state `{name}` names the theme `{theme}`, which nobody defines; {left_out}"
        ));
    }
    settings
}

/// Takes out a model that a display state may not choose; says what is wrong with it. A server that the
/// user's settings do not name could be anybody's: the inside of a jail can listen on the machine's own
/// addresses, and would be the model of the next run.
fn drop_model(settings: &mut Settings, known: &Settings) -> Option<String> {
    let provider = settings.model.get().map(|model| model.provider.clone());
    if settings.drop_strange_model(known) {
        return Some("that is replayed, or of no provider that is known".to_owned());
    }
    let provider = provider.filter(|_| settings.drop_foreign_model(known, default_provider()))?;
    Some(format!(
        "of the provider `{provider}`, which the settings do not use; name it there, as in \
         `\"providers\": {{ \"{provider}\": {{}} }}`"
    ))
}

fn load(file: &Path) -> Result<Settings, String> {
    match state::metadata(file) {
        Err(error) if error.errno() == Some(libc::ENOENT) => return Ok(Settings::default()),
        Ok(meta) if !meta.is_file() => {
            return Err(format!("the display state `{}` is no regular file", file.display()));
        }
        Ok(_) | Err(_) => {}
    }
    let read = files::resolve(file, Path::new("/"), None)
        .and_then(|physical| files::read_whole(&physical, LIMIT))
        .map_err(|error| error.sentence())?;
    let Some((bytes, _)) = read else {
        return Err(format!("the display state `{}` is longer than {LIMIT} bytes", file.display()));
    };
    parse(file, &bytes)
}

fn parse(file: &Path, bytes: &[u8]) -> Result<Settings, String> {
    let name = file.display().to_string();
    Settings::parse_scoped(&name, bytes, Layer::Display, Scope::Display)
        .map(|parsed| parsed.settings)
        .map_err(|error| error.to_string())
}

/// Keeps a choice for the next start. What else was chosen stays, as far as it can be read and may
/// stand there.
///
/// # Errors
/// A sentence, also for a choice that would not be taken at the next start.
pub(super) fn keep(paths: Option<&Paths>, known: &Settings, choice: &Choice) -> Result<(), String> {
    let Some(paths) = paths else {
        return Err("no home directory is known; set HOME to keep it".to_owned());
    };
    let none = Settings::default();
    let mut alone = Settings::default();
    let chosen = alone.choose_in(choice, Layer::Display, &none);
    chosen.map_err(|error| error.to_string())?;
    if let Some(reason) = drop_model(&mut alone, known) {
        return Err(format!("a display state names no model {reason}"));
    }
    let file = paths.display();
    let mut wrong = None;
    let grant = Grant::own_state(paths.state());
    state::change(&grant, &file, LIMIT, |old| {
        let mut settings = old.and_then(|old| parse(&file, old).ok()).unwrap_or_default();
        drop_model(&mut settings, known);
        settings.drop_strange_theme(known);
        wrong = refuse(&mut settings, choice);
        wrong.is_none().then(|| settings.display_text().into_bytes())
    })
    .map_err(|error| error.sentence())?;
    wrong.map_or(Ok(()), Err)
}

/// Puts a choice into a display state; says why it cannot be there.
fn refuse(settings: &mut Settings, choice: &Choice) -> Option<String> {
    if let Err(error) = settings.choose_in(choice, Layer::Display, &Settings::default()) {
        return Some(error.to_string());
    }
    let Choice::Keys(name, Some(keys)) = choice else { return None };
    keys.iter().find_map(|key| owned(settings, *key, name))
}

/// Says which other action has a key in these settings.
pub(super) fn owned(settings: &Settings, key: Key, name: &str) -> Option<String> {
    let owner = settings.owner_of(key, name)?;
    Some(format!(
        "`{key}` is bound to `{owner}` and would be to `{name}`; give `{owner}` other keys first \
         (`/keys {owner} …`)"
    ))
}
