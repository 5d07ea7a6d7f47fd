//! Every value with the layer that set it, for people and programs. What may be secret is named and
//! not shown.

use serde_json::{Value, json};

use crate::{
    authority::{Approve, List, Reach},
    display::{Look, Role},
    message::Price,
};

use super::{
    keys::{self, Key},
    layers::Setting,
    policy::Policy,
    provider::ProviderSettings,
    settings::Settings,
    values,
};

/// What stands in the place of a value that may be secret.
pub const HIDDEN: &str = "(hidden)";

/// One value.
#[derive(Clone, Debug)]
pub struct Shown {
    /// The row of the table.
    pub row: &'static Key,
    /// The key, with names in place.
    pub key: String,
    /// The value, without what may be secret.
    pub value: Value,
    /// Who set it; `None` is the default.
    pub layer: Option<String>,
}

struct Collector {
    all: Vec<Shown>,
    /// Whether what may be secret by its look is shown: the values of `bash.env`, and the words of a
    /// `keyCommand`.
    whole: bool,
}

impl Collector {
    fn put(&mut self, row: &str, key: String, value: Value, layer: Option<String>) {
        if let Some(row) = keys::find(keys::SETTINGS, row) {
            self.all.push(Shown { row, key, value, layer });
        }
    }

    fn set<T>(&mut self, key: &str, setting: &Setting<T>, show: impl Fn(&T) -> Value) {
        self.named(key, key.to_owned(), setting, show);
    }

    fn named<T>(
        &mut self,
        row: &str,
        key: String,
        setting: &Setting<T>,
        show: impl Fn(&T) -> Value,
    ) {
        if let (Some(value), Some(layer)) = (setting.get(), setting.layer()) {
            self.put(row, key, show(value), Some(layer.to_string()));
        }
    }
}

impl Settings {
    /// Returns the values that are set, in the order of the table; lists that meet come once for
    /// each layer.
    pub fn shown(&self) -> Vec<Shown> {
        self.collect(false)
    }

    /// Returns the same for settings that a person is asked to trust, with what [`Settings::shown`]
    /// hides because it may be a secret of that person's: whatever runs commands, or steers them.
    /// Values of headers stay hidden.
    pub fn shown_whole(&self) -> Vec<Shown> {
        self.collect(true)
    }

    fn collect(&self, whole: bool) -> Vec<Shown> {
        let mut all = Collector { all: Vec::new(), whole };
        match (self.alias.get(), self.alias.layer(), self.model.get()) {
            (Some(alias), Some(layer), model) => {
                let value = match model {
                    Some(model) => json!(format!("{model}")),
                    None => json!(alias),
                };
                all.put("model", "model".to_owned(), value, Some(layer.to_string()));
            }
            _ => all.set("model", &self.model, |model| json!(model.to_string())),
        }
        for (name, models) in &self.models {
            all.named("models.NAME", format!("models.{name}"), models, |models| {
                json!(models.iter().map(ToString::to_string).collect::<Vec<_>>())
            });
        }
        for (name, option) in &self.options {
            all.named("modelOptions", format!("modelOptions.{name}"), option, Value::clone);
        }
        for (name, provider) in &self.providers {
            provider_values(&mut all, name, provider);
        }
        for (source, list) in &self.capabilities {
            let value = capabilities(list);
            all.put("capabilities", "capabilities".to_owned(), value, Some(source.to_string()));
        }
        for (source, names) in &self.deny_tools {
            all.put("denyTools", "denyTools".to_owned(), json!(names), Some(source.to_string()));
        }
        all.set("profile", &self.profile, |name| json!(name));
        for (name, profile) in &self.profiles {
            let key = |leaf: &str| format!("profiles.{name}.{leaf}");
            let row = |leaf: &str| format!("profiles.NAME.{leaf}");
            let Some(inner) = profile.get() else { continue };
            if let Some(extends) = &inner.extends {
                all.named(&row("extends"), key("extends"), profile, |_| json!(extends));
            }
            all.named(&row("approve"), key("approve"), profile, |_| json!(inner.approve.name()));
            for shown in inner.settings.collect(whole) {
                let key = key(&format!("settings.{}", shown.key));
                all.named(&row("settings"), key, profile, |_| shown.value.clone());
            }
        }
        let time = |time: &std::time::Duration| json!(values::time(*time));
        all.set("bash.shell", &self.bash.shell, |shell| json!(shell));
        all.set("bash.timeout", &self.bash.timeout, time);
        all.set("bash.maxTimeout", &self.bash.max_timeout, time);
        for (name, value) in &self.bash.env {
            let shown = |text: &String| {
                json!(if !whole && may_be_secret(name, text) { HIDDEN } else { text })
            };
            all.named("bash.env", format!("bash.env.{name}"), value, shown);
        }
        all.set("bash.passEnv", &self.bash.pass_env, |names| json!(names));
        all.set("budgets.turns", &self.budgets.turns, |turns| json!(turns));
        all.set("budgets.tokens", &self.budgets.tokens, |tokens| json!(tokens));
        all.set("budgets.time", &self.budgets.time, time);
        all.set("budgets.cost", &self.budgets.cost, |cost| json!(cost.as_f64()));
        all.set("budgets.repeats", &self.budgets.repeats, |times| json!(times));
        all.set("compaction.enabled", &self.compaction.enabled, |enabled| json!(enabled));
        all.set("compaction.threshold", &self.compaction.threshold, |part| json!(part));
        all.set("compaction.keep", &self.compaction.keep, |tokens| json!(tokens));
        all.set("compaction.window", &self.compaction.window, |tokens| json!(tokens));
        all.set("session.enabled", &self.session, |enabled| json!(enabled));
        all.set("effort", &self.effort, |effort| json!(effort.name()));
        all.set("log", &self.log, |file| json!(file));
        all.set("context", &self.context, |names| json!(names));
        all.set("theme", &self.theme, |name| json!(name));
        for (name, theme) in &self.themes {
            let key = |leaf: &str| format!("themes.{name}.{leaf}");
            all.named("themes.NAME.base", key("base"), theme, |theme| {
                json!(theme.base.unwrap_or("auto"))
            });
            all.named("themes.NAME.colors", key("colors"), theme, |theme| {
                let look = |(role, look): (&Role, &Look)| {
                    (role.name().to_owned(), json!(look.to_string()))
                };
                Value::Object(theme.looks.iter().map(look).collect())
            });
        }
        for (name, keys) in &self.keybindings {
            all.named("keybindings", format!("keybindings.{name}"), keys, |keys| {
                json!(keys.iter().map(ToString::to_string).collect::<Vec<_>>())
            });
        }
        all.all
    }

    /// Returns every effective value: those that are set, and the defaults of the others.
    pub fn effective(&self) -> Vec<Shown> {
        let set = self.shown();
        let mut all = Vec::new();
        for row in keys::SETTINGS {
            let mut here: Vec<Shown> =
                set.iter().filter(|shown| shown.row.name == row.name).cloned().collect();
            let default =
                serde_json::from_str(row.default).ok().filter(|_| !row.name.contains("NAME"));
            if let (true, Some(value)) = (here.is_empty(), default) {
                here.push(Shown { row, key: row.name.to_owned(), value, layer: None });
            }
            all.extend(here);
        }
        all
    }
}

impl Policy {
    /// Returns what the policy sets beside the budgets, which stand among the effective values: each
    /// key with its value.
    pub fn shown(&self) -> Vec<(&'static str, Value)> {
        let mut all = Vec::new();
        if let Some(list) = &self.capabilities {
            all.push(("capabilities", capabilities(list)));
        }
        if !self.deny_tools.is_empty() {
            all.push(("denyTools", json!(self.deny_tools)));
        }
        if self.approve != Approve::Never {
            all.push(("approve", json!(self.approve.name())));
        }
        if let Some(models) = &self.allowed_models {
            let models: Vec<String> = models.iter().map(ToString::to_string).collect();
            all.push(("allowedModels", json!(models)));
        }
        if let Some(addresses) = &self.allowed_addresses {
            all.push(("allowedAddresses", json!(addresses)));
        }
        if !self.trust_projects {
            all.push(("trustProjects", json!(false)));
        }
        if self.require_sandbox {
            all.push(("requireSandbox", json!(true)));
        }
        all
    }
}

fn provider_values(all: &mut Collector, name: &str, provider: &ProviderSettings) {
    let whole = all.whole;
    let key = |leaf: &str| format!("providers.{name}.{leaf}");
    let row = |leaf: &str| format!("providers.NAME.{leaf}");
    let text = |text: &String| json!(text);
    all.named(&row("kind"), key("kind"), &provider.kind, |kind| json!(kind.name()));
    all.named(&row("baseUrl"), key("baseUrl"), &provider.base_url, text);
    all.named(&row("keyEnv"), key("keyEnv"), &provider.key_env, text);
    all.named(&row("keyFile"), key("keyFile"), &provider.key_file, text);
    all.named(&row("headers"), key("headers"), &provider.headers, |headers| {
        Value::Object(headers.keys().map(|name| (name.clone(), json!(HIDDEN))).collect())
    });
    // The program only: an argument may be what people should not read.
    all.named(&row("keyCommand"), key("keyCommand"), &provider.key_command, |words| {
        let word = |(at, word)| if whole || at == 0 { word } else { HIDDEN };
        json!(words.iter().map(String::as_str).enumerate().map(word).collect::<Vec<_>>())
    });
    for (model, settings) in &provider.models {
        let key = |leaf: &str| key(&format!("models.{model}.{leaf}"));
        let row = |leaf: &str| row(&format!("models.NAME.{leaf}"));
        all.named(&row("contextWindow"), key("contextWindow"), &settings.context_window, |n| {
            json!(n)
        });
        all.named(&row("effort"), key("effort"), &settings.effort, |level| json!(level.name()));
        all.named(&row("efforts"), key("efforts"), &settings.efforts, |levels| {
            json!(levels.iter().map(|level| level.name()).collect::<Vec<_>>())
        });
        for (leaf, price) in settings.price.parts() {
            let leaf = format!("price.{leaf}");
            all.named(&row(&leaf), key(&leaf), price, |price| shown_price(*price));
        }
        all.named(&row("maxOutput"), key("maxOutput"), &settings.max_output, |most| json!(most));
        all.named(&row("options"), key("options"), &settings.options, |options| json!(options));
    }
    all.named(&row("file"), key("file"), &provider.file, text);
}

/// A price as a JSON number, as it would be written.
fn shown_price(price: u64) -> Value {
    serde_json::from_str(&Price::shown(price)).unwrap_or_default()
}

fn capabilities(list: &List) -> Value {
    let entry = |entry: &crate::authority::Entry| {
        let atom = entry.atom.to_string();
        match &entry.reach {
            Reach::Any => json!(atom),
            Reach::Under(paths) => json!({ "atom": atom, "under": paths }),
            Reach::Commands(lists) => {
                let lines: Vec<String> = lists.iter().map(|words| words.join(" ")).collect();
                json!({ "atom": atom, "commands": lines })
            }
        }
    };
    list.entries.iter().map(entry).collect()
}

/// Says whether a variable's value may be a secret: by its name, or because it looks like a key.
fn may_be_secret(name: &str, value: &str) -> bool {
    const WORDS: [&str; 9] =
        ["KEY", "TOKEN", "SECRET", "PASS", "CREDENTIAL", "AUTH", "COOKIE", "SESSION", "PRIVATE"];
    let name = name.to_uppercase();
    let userinfo = value.split_once("://").is_some_and(|(_, rest)| rest.contains('@'));
    let long =
        value.split(|c: char| !c.is_ascii_alphanumeric() && !"-_+=".contains(c)).any(|word| {
            word.len() >= 16
                && word.bytes().any(|b| b.is_ascii_digit())
                && word.bytes().any(|b| b.is_ascii_alphabetic())
        });
    let known = ["sk-", "ghp_", "gho_", "github_pat_", "xox", "AKIA", "eyJ", "glpat-"];
    WORDS.iter().any(|word| name.contains(word))
        || userinfo
        || long
        || known.iter().any(|head| value.starts_with(head))
}

impl Shown {
    /// Returns the layer's name, also of a default.
    pub fn layer(&self) -> &str {
        self.layer.as_deref().unwrap_or("default")
    }
}

#[cfg(test)]
mod tests;
