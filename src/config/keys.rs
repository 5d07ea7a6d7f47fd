//! The table of keys: the only place where names, types, defaults and meanings of settings are
//! written down. The reader, the hints for unknown keys, the schema, `kli config show` and the
//! reference in `docs/settings.md` are all made from it.

use std::fmt::Write as _;

use crate::message::Effort;

use super::display::BASES;

/// What a value looks like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Any text.
    Text,
    /// `PROVIDER/MODEL`, or the name of an alias.
    Model,
    /// One `PROVIDER/MODEL`, or an array of them.
    Models,
    /// An array of `PROVIDER/MODEL` and `PROVIDER/*`.
    ModelPatterns,
    /// One of these words.
    OneOf(&'static [&'static str]),
    /// An absolute path, or one that starts with `~/`.
    Path,
    /// An address as `http://` or `https://`.
    Address,
    /// An array of addresses.
    Addresses,
    /// The name of an environment variable.
    Variable,
    /// A length of time.
    Duration,
    /// A whole number from 1.
    Count,
    /// An amount of money: a number above 0.
    Money,
    /// Money per million tokens: a number from 0.
    Price,
    /// An array of levels of effort.
    Efforts,
    /// `true` or `false`.
    Flag,
    /// A list of capabilities.
    Capabilities,
    /// An array of strings.
    Texts,
    /// A program and its arguments.
    Words,
    /// `null`, or an array of names of environment variables.
    Variables,
    /// An object of strings.
    TextMap,
    /// An object of anything.
    AnyMap,
    /// An object whose keys have rows of their own.
    Object,
    /// An object of names; what is below each has rows of its own.
    Named,
    /// As [`Shape::Named`], where the names may hold any character.
    NamedFreely,
    /// A whole settings object.
    Settings,
    /// An object of looks by role.
    Looks,
    /// An object of keys by action.
    Bindings,
    /// Known by name, without a meaning in this version.
    Later,
}

/// A row of the table.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    /// The dotted name; `NAME` stands for any name.
    pub name: &'static str,
    /// What its value looks like.
    pub shape: Shape,
    /// The value when nobody sets one, as JSON; empty when there is none.
    pub default: &'static str,
    /// What it sets, for people.
    pub about: &'static str,
    /// Whether a project may set it without being trusted.
    pub project: bool,
    /// Whether the display state may set it.
    pub display: bool,
    /// Whether it takes something away from a run: one that is misspelt is an error, as it would
    /// leave the run with more than was meant.
    pub narrows: bool,
}

const fn key(name: &'static str, shape: Shape, default: &'static str, about: &'static str) -> Key {
    Key { name, shape, default, about, project: false, display: false, narrows: false }
}

impl Key {
    const fn project(self) -> Self {
        Self { project: true, ..self }
    }

    const fn display(self) -> Self {
        Self { display: true, ..self }
    }

    const fn narrows(self) -> Self {
        Self { narrows: true, ..self }
    }

    /// Returns the name's part after the last dot.
    pub fn leaf(&self) -> &'static str {
        self.name.rsplit('.').next().unwrap_or(self.name)
    }
}

const APPROVE: Shape = Shape::OneOf(&["never", "writes", "all"]);
const KINDS: Shape = Shape::OneOf(&["anthropic", "openai", "openai-chat", "replay"]);
const EFFORT: Shape = Shape::OneOf(&Effort::NAMES);

/// The keys of a settings file.
pub const SETTINGS: &[Key] = &[
    key("$schema", Shape::Text, "", "nothing; for editors").project().display(),
    key(
        "model",
        Shape::Model,
        "\"anthropic/claude-sonnet-4-5\"",
        "the model, or an alias of `models`; everything after the first slash is the provider's name for it",
    )
    .project()
    .display(),
    key("models", Shape::Named, "", "aliases by name; a name has letters, digits, `-`, `_` and `.`"),
    key("models.NAME", Shape::Models, "", "what the alias stands for; of an array the first one, and in its place the others in turn when it is overloaded or not reached"),
    key(
        "modelOptions",
        Shape::AnyMap,
        "",
        "options of the model's requests; layers merge option by option, and `null` takes one out again",
    ),
    key("providers", Shape::Named, "", "providers by name; a name has letters, digits, `-`, `_` and `.`"),
    key(
        "providers.NAME.kind",
        KINDS,
        "",
        "what it speaks; needed unless the name is a built-in one",
    ),
    key(
        "providers.NAME.baseUrl",
        Shape::Address,
        "",
        "its address, `http://`, `https://` or `unix:` ([models.md](models.md)): for `anthropic` without `/v1`, for `openai` and `openai-chat` with it; needed for names that are not built in",
    ),
    key(
        "providers.NAME.keyEnv",
        Shape::Variable,
        "",
        "the environment variable that holds its key (the name, never the key); when it is named and no source has a key, the run ends with 4 before anything is sent",
    ),
    key(
        "providers.NAME.keyFile",
        Shape::Path,
        "",
        "the file that holds its key; read when the variable is not set",
    ),
    key(
        "providers.NAME.keyCommand",
        Shape::Words,
        "",
        "the program and its arguments that print its key, run in no shell when there is neither variable nor file; see [credentials.md](credentials.md)",
    ),
    key("providers.NAME.headers", Shape::TextMap, "", "further headers of every request"),
    key(
        "providers.NAME.models",
        Shape::NamedFreely,
        "",
        "what is said about single models, by the provider's name for them",
    ),
    key(
        "providers.NAME.models.NAME.contextWindow",
        Shape::Count,
        "",
        "how many tokens a conversation with that model may have, the answer included; absent: what is known of the model",
    ),
    key(
        "providers.NAME.models.NAME.effort",
        EFFORT,
        "",
        "how much that model thinks; it comes before `effort` of the same layer or of a weaker one",
    ),
    key(
        "providers.NAME.models.NAME.efforts",
        Shape::Efforts,
        "",
        "the levels of effort that the model has, `[]` for none; absent: what is known of the model",
    ),
    key(
        "providers.NAME.models.NAME.price",
        Shape::Object,
        "",
        "what its tokens cost, in whatever currency, per million; it counts when `input` and `output` are set",
    ),
    key("providers.NAME.models.NAME.price.input", Shape::Price, "", "tokens of a request"),
    key("providers.NAME.models.NAME.price.output", Shape::Price, "", "tokens of an answer"),
    key(
        "providers.NAME.models.NAME.price.cacheRead",
        Shape::Price,
        "",
        "tokens of a request that came from a cache; absent: as `input`",
    ),
    key(
        "providers.NAME.models.NAME.price.cacheWrite",
        Shape::Price,
        "",
        "tokens of a request that were written to a cache; absent: as `input`",
    ),
    key(
        "providers.NAME.models.NAME.maxOutput",
        Shape::Count,
        "",
        "the most tokens of one answer of that model",
    ),
    key(
        "providers.NAME.models.NAME.options",
        Shape::AnyMap,
        "",
        "further fields of the request's body, see [models.md](models.md); replaced as a whole by a stronger layer",
    ),
    key(
        "providers.NAME.file",
        Shape::Path,
        "",
        "the recording of a `replay` provider; absent: the built-in one",
    ),
    key(
        "capabilities",
        Shape::Capabilities,
        "",
        "what the agent may do, see `docs/authority.md`; `[]` is nothing; absent narrows nothing; any other shape is an error",
    )
    .project()
    .narrows(),
    key("denyTools", Shape::Texts, "", "tools that are not offered and whose calls are denied")
        .project()
        .narrows(),
    key(
        "profile",
        Shape::Text,
        "",
        "`interactive`, `print`, `read-only`, `autonomous`, `review`, or a name of `profiles`; absent: `print` for `-p`",
    )
    .narrows(),
    key("profiles", Shape::Named, "", "profiles by name; the built-in names cannot be taken").narrows(),
    key("profiles.NAME.extends", Shape::Text, "", "the profile that it builds on").narrows(),
    key(
        "profiles.NAME.settings",
        Shape::Settings,
        "",
        "what it sets: every key but `profile` and `profiles`; its `capabilities` and `denyTools` narrow",
    )
    .narrows(),
    key(
        "profiles.NAME.approve",
        APPROVE,
        "\"never\"",
        "which calls a person must approve; a headless run cannot ask, so it denies them",
    )
    .narrows(),
    key("bash", Shape::Object, "", "how shell commands are run"),
    key("bash.shell", Shape::Path, "", "the shell; absent: `bash` of the search path"),
    key("bash.timeout", Shape::Duration, "\"2m\"", "the time limit of a command that asks for none"),
    key(
        "bash.maxTimeout",
        Shape::Duration,
        "\"10m\"",
        "the longest limit that a command may ask for; not below `bash.timeout`",
    ),
    key("bash.env", Shape::TextMap, "", "variables to set for commands; layers merge name by name"),
    key(
        "bash.passEnv",
        Shape::Variables,
        "null",
        "the only variables that commands inherit, besides a few that every program needs; `null`: all",
    )
    .narrows(),
    key("budgets", Shape::Object, "", "where a run ends at the latest; without the key there is no bound")
        .narrows(),
    key("budgets.turns", Shape::Count, "", "requests to the model").narrows(),
    key("budgets.tokens", Shape::Count, "", "tokens of all kinds together").narrows(),
    key("budgets.time", Shape::Duration, "", "wall time").narrows(),
    key("budgets.cost", Shape::Money, "", "money, in the currency of the prices; a model without `providers.NAME.models.NAME.price` is not asked then").narrows(),
    key("budgets.repeats", Shape::Count, "5", "how often in a row the same calls may have the same results before the run ends, at least 2").narrows(),
    key("compaction", Shape::Object, "", "how long conversations are made shorter, see [sessions.md](sessions.md)"),
    key("compaction.enabled", Shape::Flag, "true", "whether it is done unasked at the threshold"),
    key(
        "compaction.threshold",
        Shape::Count,
        "80",
        "from which part of the model's context window on, in per cent; at most 100",
    ),
    key("compaction.keep", Shape::Count, "20000", "how many tokens of the latest are kept as they are"),
    key(
        "compaction.window",
        Shape::Count,
        "",
        "the context window in tokens, where kli does not know the model's or it is to be smaller",
    ),
    key("session", Shape::Object, "", "what is kept of a run"),
    key(
        "session.enabled",
        Shape::Flag,
        "true",
        "whether a session is kept; `--continue` and `--resume` keep theirs all the same",
    ),
    key("log", Shape::Path, "", "a file for the events of every run, as `--log FILE`"),
    key(
        "context",
        Shape::Texts,
        "[\"AGENTS.md\", \"CLAUDE.md\"]",
        "names of context files, see [context.md](context.md): the first one that a directory has counts; no `/`; `[]` is none",
    )
    .project(),
    key(
        "effort",
        EFFORT,
        "",
        "how much the model thinks, as `--effort`; absent: the model's own choice. A model that has no such level gets the nearest, one without levels none, and that is said",
    )
    .display(),
    key(
        "theme",
        Shape::Text,
        "\"auto\"",
        "how the terminal interface looks: `auto` (the terminal's own palette), `dark`, `light`, `none` (no colour), or a name of `themes`; see [terminal.md](terminal.md#themes)",
    )
    .project()
    .display(),
    key("themes", Shape::Named, "", "themes by name; a stronger layer replaces one as a whole, and the built-in names cannot be taken"),
    key("themes.NAME.base", Shape::OneOf(BASES), "\"auto\"", "the theme that it builds on"),
    key(
        "themes.NAME.colors",
        Shape::Looks,
        "",
        "looks by role, like `bold red`, `208`, `#ff8800 on black` or `plain`; see [terminal.md](terminal.md#themes)",
    ),
    key(
        "keybindings",
        Shape::Bindings,
        "",
        "keys by what they do: one key, an array of them, or `[]` for none, like `ctrl-x` or `alt-enter`; a key belongs to the strongest layer that binds it; see [terminal.md](terminal.md#keys)",
    )
    .display(),
    key("skills", Shape::Later, "", "skills").project(),
    key("prompts", Shape::Later, "", "prompt templates"),
    key("extensions", Shape::Later, "", "extensions"),
    key("mcpServers", Shape::Later, "", "MCP servers"),
];

/// The keys of a policy file.
pub const POLICY: &[Key] = &[
    key("$schema", Shape::Text, "", "nothing; for editors"),
    key(
        "capabilities",
        Shape::Capabilities,
        "",
        "what any run may do at most, in the words of `docs/authority.md`",
    )
    .narrows(),
    key("denyTools", Shape::Texts, "", "tools that no run is offered").narrows(),
    key("approve", APPROVE, "\"never\"", "which calls a person must approve at least").narrows(),
    key(
        "budgets",
        Shape::Object,
        "",
        "upper bounds: the smaller one of policy and settings counts",
    )
    .narrows(),
    key("budgets.turns", Shape::Count, "", "requests to the model").narrows(),
    key("budgets.tokens", Shape::Count, "", "tokens of all kinds together").narrows(),
    key("budgets.time", Shape::Duration, "", "wall time").narrows(),
    key("budgets.cost", Shape::Money, "", "money, in the currency of the prices; a model without `providers.NAME.models.NAME.price` is not asked then").narrows(),
    key("budgets.repeats", Shape::Count, "", "how often in a row the same calls may have the same results").narrows(),
    key(
        "allowedModels",
        Shape::ModelPatterns,
        "",
        "the only models; `PROVIDER/*` is every model of a provider; `[]` is none",
    )
    .narrows(),
    key(
        "allowedAddresses",
        Shape::Addresses,
        "",
        "the only addresses of providers, compared as a whole; `[]` leaves `replay` alone",
    )
    .narrows(),
    key(
        "trustProjects",
        Shape::Flag,
        "true",
        "`false`: no project is trusted, by neither `kli trust` nor `--trust-project`",
    )
    .narrows(),
    key("requireSandbox", Shape::Flag, "false", "`true`: a run starts only inside `kli-sandbox`")
        .narrows(),
];

/// Returns the row of a dotted name.
pub fn find(table: &'static [Key], name: &str) -> Option<&'static Key> {
    table.iter().find(|key| key.name == name)
}

/// Returns where a key that narrows belongs, when its name stands in the wrong place: below `parent`
/// of a table that has it elsewhere, or in the file of the other table.
pub fn at_home(
    table: &'static [Key],
    parent: &str,
    name: &str,
) -> Option<(&'static str, &'static Key)> {
    let tables = [("the settings", SETTINGS), ("the policy, `/etc/kli/policy.json`", POLICY)];
    // The same file before the other one.
    let first = usize::from(find(table, "requireSandbox").is_some());
    [first, 1 - first].into_iter().filter_map(|at| tables.get(at)).find_map(|(home, rows)| {
        let row = rows.iter().find(|row| row.narrows && row.leaf() == name)?;
        let above = row.name.rsplit_once('.').map_or("", |(above, _)| above);
        let is_meant = match above {
            // Words of many meanings: a budget is meant where budgets could be.
            "budgets" => ["", "profiles.NAME"].contains(&parent),
            "profiles.NAME" => row.shape == APPROVE,
            // What a model can do is called capabilities elsewhere.
            _ => !parent.starts_with("providers."),
        };
        is_meant.then_some((*home, row))
    })
}

/// Returns the rows directly below a dotted name; the empty name is the whole file.
pub fn below(table: &'static [Key], parent: &str) -> Vec<&'static Key> {
    table
        .iter()
        .filter(|key| match key.name.rsplit_once('.') {
            Some((above, _)) => above == parent,
            None => parent.is_empty(),
        })
        .collect()
}

/// A key of the original kli or of a like program, and what takes its place.
pub(super) const FORMER: &[(&str, &str)] = &[
    ("defaultProvider", "`model`, written `PROVIDER/MODEL`"),
    ("defaultModel", "`model`, written `PROVIDER/MODEL`"),
    ("defaultOptions", "`modelOptions`"),
    ("sessionDir", "nothing: sessions are kept below `XDG_STATE_HOME`, see `session.enabled`"),
    ("trustRoots", "nothing: `kli trust` trusts a project by its digests"),
    ("aliases", "`prompts`, for the terminal interface"),
    ("steeringMode", "nothing: what is said meanwhile is delivered at the next boundary"),
    ("followUpMode", "nothing: what is said meanwhile is delivered at the next boundary"),
    ("observability", "`log`"),
    ("apiKey", "`providers.NAME.keyEnv` or `providers.NAME.keyFile`, which name where the key is"),
    ("bash.cwd", "nothing: commands start in the workspace, and a call may name another directory"),
    ("bash.envAllowlist", "`bash.passEnv`"),
    ("bash.defaultTimeout", "`bash.timeout`, with a unit"),
    ("bash.backend", "nothing: every command has a shell of its own, and `cd` persists"),
    ("profiles.NAME.enable", "nothing: a profile has `extends`, `settings` and `approve`"),
    ("profiles.NAME.disable", "`denyTools` in the profile's `settings`"),
    ("providers.NAME.apiKey", "`keyEnv` or `keyFile`, which name where the key is"),
    ("providers.NAME.api", "`kind`"),
    ("providers.NAME.base-url", "`baseUrl`"),
];

/// Returns a table in Markdown, as `docs/settings.md` carries it.
pub fn markdown(table: &[Key]) -> String {
    let mut text = String::from("| key | type | what it sets |\n| --- | --- | --- |\n");
    for key in table.iter().filter(|key| key.shape != Shape::Later) {
        let default = match key.default {
            "" => String::new(),
            default => format!("; default `{default}`"),
        };
        // Writing to a string cannot fail.
        let _ =
            writeln!(text, "| `{}` | {} | {}{default} |", key.name, words(key.shape), key.about);
    }
    text
}

fn words(shape: Shape) -> String {
    match shape {
        Shape::Text => "string".to_owned(),
        Shape::Model => "`\"PROVIDER/MODEL\"` or alias".to_owned(),
        Shape::Models => "`\"PROVIDER/MODEL\"`, or array of them".to_owned(),
        Shape::ModelPatterns => "array of `\"PROVIDER/MODEL\"`".to_owned(),
        Shape::OneOf(words) => {
            words.iter().map(|word| format!("`\"{word}\"`")).collect::<Vec<_>>().join(" or ")
        }
        Shape::Path => "path".to_owned(),
        Shape::Address => "address".to_owned(),
        Shape::Addresses => "array of addresses".to_owned(),
        Shape::Variable => "name of a variable".to_owned(),
        Shape::Duration => "duration".to_owned(),
        Shape::Count => "whole number from 1".to_owned(),
        Shape::Money => "number above 0".to_owned(),
        Shape::Price => "number from 0".to_owned(),
        Shape::Efforts => "array of levels of effort".to_owned(),
        Shape::Flag => "`true` or `false`".to_owned(),
        Shape::Capabilities => "string, or array of strings and objects".to_owned(),
        Shape::Texts | Shape::Words => "array of strings".to_owned(),
        Shape::Variables => "`null`, or array of names of variables".to_owned(),
        Shape::TextMap => "object of strings".to_owned(),
        Shape::AnyMap | Shape::Object | Shape::Named | Shape::NamedFreely => "object".to_owned(),
        Shape::Looks => "object of looks".to_owned(),
        Shape::Bindings => "object of keys, or arrays of them".to_owned(),
        Shape::Settings => "settings object".to_owned(),
        Shape::Later => "later".to_owned(),
    }
}
