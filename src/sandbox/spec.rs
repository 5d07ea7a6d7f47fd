//! The specification: what the jail shall hide, allow and create, as one JSON object.
//!
//! Pure: text in, [`Spec`] out. Every key is known, every value has its type, every path starts at
//! one of a closed set of bases; anything else is refused with the key, the value and the place.
//! `check` and `run` both go through [`parse`], so they cannot disagree about a file.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use serde::Deserialize;
use serde::de::{self, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::error::Category;

mod values;
mod variables;

pub(super) use values::caches;
pub use values::{
    Base, EnvPattern, Git, Limits, Quoted, SpecPath, Tmp, ValueError, VariableName, Xdg,
};
use values::{InWorkspace, Port, VariableValue, WritableEntry};
pub(super) use variables::is_key_name;

/// The largest specification that is read, in bytes.
pub const MAX_BYTES: usize = 1 << 20;

/// The only version there is.
pub const VERSION: u64 = 1;

/// Every key, in the order of the documentation.
pub const KEYS: [&str; 24] = [
    "version",
    "network",
    "nestedUserns",
    "writablePaths",
    "readOnlyPaths",
    "denyRead",
    "denyReadGlobs",
    "denyEnv",
    "passEnv",
    "env",
    "git",
    "protect",
    "allowSockets",
    "localPorts",
    "envFiles",
    "allowNixDaemon",
    "allowHomeWorkspace",
    "allowAbstractSockets",
    "secrets",
    "secretEnv",
    "allowUserNamespaces",
    "stateDir",
    "tmp",
    "limits",
];

/// A specification, checked.
#[expect(clippy::struct_excessive_bools, reason = "the keys of the file, one field each")]
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spec {
    /// False: an own network namespace with nothing but loopback.
    pub network: bool,
    /// True: bind the outer `/proc` instead of mounting a fresh one, which a container with a
    /// masked `/proc` forbids.
    pub nested_userns: bool,
    /// Writable besides the workspace.
    pub writable_paths: Vec<SpecPath>,
    /// Read-only even inside a writable path.
    pub read_only_paths: Vec<SpecPath>,
    /// Hidden: reads as empty, cannot be written.
    pub deny_read: Vec<SpecPath>,
    /// Hidden likewise: whatever a pattern names at the start.
    pub deny_read_globs: Vec<SpecPath>,
    /// Variables that are removed before the first process of the sandbox starts.
    pub deny_env: Vec<EnvPattern>,
    /// When there is one, only these variables and a documented minimum are kept.
    pub pass_env: Option<Vec<EnvPattern>>,
    /// Variables that are set inside.
    pub env: BTreeMap<VariableName, String>,
    /// How the repository's git directory is treated.
    pub git: Git,
    /// Paths of the workspace that are read-only when they exist.
    pub protect: Vec<SpecPath>,
    /// Sockets that stay reachable.
    pub allow_sockets: Vec<SpecPath>,
    /// TCP ports of the host's loopback that are reachable inside although `network` is false.
    pub local_ports: Vec<u16>,
    /// Variables whose values the launcher reads from files before the start.
    pub env_files: BTreeMap<VariableName, SpecPath>,
    /// Whether the Nix daemon's socket stays reachable.
    pub allow_nix_daemon: bool,
    /// Whether the home directory itself may be the workspace.
    pub allow_home_workspace: bool,
    /// Whether the inside may open Unix sockets where nothing separates abstract ones.
    pub allow_abstract_sockets: bool,
    /// Keys that the launcher reads from files and hands to kli alone.
    pub secrets: BTreeMap<VariableName, SpecPath>,
    /// Variables that are moved out of the environment and handed to kli alone.
    pub secret_env: Vec<VariableName>,
    /// Whether the inside may make further user namespaces.
    pub allow_user_namespaces: bool,
    /// Whether kli's state directory is created and writable.
    pub state_dir: bool,
    /// Where `/tmp` lies.
    pub tmp: Tmp,
    /// What the inside may use at most.
    pub limits: Option<Limits>,
}

/// What is protected unless the specification says otherwise: what direnv and kli read on the host.
const PROTECT: [&str; 3] = [".envrc", ".kli/settings.json", ".kli/extensions"];

impl Default for Spec {
    fn default() -> Self {
        Self {
            network: true,
            nested_userns: false,
            writable_paths: Vec::new(),
            read_only_paths: Vec::new(),
            deny_read: Vec::new(),
            deny_read_globs: Vec::new(),
            deny_env: Vec::new(),
            pass_env: None,
            env: BTreeMap::new(),
            git: Git::default(),
            protect: PROTECT
                .into_iter()
                .map(|name| SpecPath {
                    base: Base::Workspace,
                    rest: name.to_owned(),
                    text: name.to_owned(),
                })
                .collect(),
            allow_sockets: Vec::new(),
            local_ports: Vec::new(),
            env_files: BTreeMap::new(),
            allow_nix_daemon: false,
            allow_home_workspace: false,
            allow_abstract_sockets: false,
            secrets: BTreeMap::new(),
            secret_env: Vec::new(),
            allow_user_namespaces: false,
            state_dir: true,
            tmp: Tmp::default(),
            limits: None,
        }
    }
}

/// Why a specification is refused.
#[derive(Debug, thiserror::Error)]
pub enum SpecError {
    /// The text is larger than [`MAX_BYTES`].
    #[error(
        "the specification is larger than {MAX_BYTES} bytes: split nothing, deny directories instead of files"
    )]
    TooLarge,
    /// Nothing but blanks.
    #[error("it is empty: write `{{}}`, which leaves every key at its default")]
    Empty,
    /// Not JSON, an unknown key, a wrong type, or a value outside the closed set.
    #[error("line {line} column {column}: {words}")]
    Invalid {
        /// The line, from 1.
        line: usize,
        /// The column in bytes, from 1.
        column: usize,
        /// What is wrong there, with the repair.
        words: String,
    },
}

/// Reads a specification.
///
/// # Errors
/// [`SpecError`] names the key, the value and the position of the first thing that is wrong.
pub fn parse(text: &[u8]) -> Result<Spec, SpecError> {
    if text.len() > MAX_BYTES {
        return Err(SpecError::TooLarge);
    }
    if text.iter().all(u8::is_ascii_whitespace) {
        return Err(SpecError::Empty);
    }
    // First whether it is JSON at all: the reader of a value hands the parser's own words on as its.
    serde_json::from_slice::<de::IgnoredAny>(text)
        .and_then(|_| serde_json::from_slice(text))
        .map_err(|error| SpecError::Invalid {
            line: error.line(),
            column: error.column(),
            words: in_words(&error, text),
        })
}

/// Says what is wrong and what repairs it, where the parser says only what it waited for.
fn in_words(error: &serde_json::Error, text: &[u8]) -> String {
    let raw = error.to_string();
    let place = format!(" at line {} column {}", error.line(), error.column());
    let raw = raw.strip_suffix(&place).unwrap_or(&raw);
    match error.classify() {
        Category::Data | Category::Io => raw.to_owned(),
        Category::Eof => "the text ends before the object does: is the file cut off".to_owned(),
        Category::Syntax => {
            let line = text.split(|byte| *byte == b'\n').nth(error.line().saturating_sub(1));
            let there = line.and_then(|line| line.get(error.column().saturating_sub(1)));
            if matches!(there, Some(b'/' | b'#')) {
                return "a specification has no comments: take it out".to_owned();
            }
            let comma = "a comma before the end: take it out".to_owned();
            match raw {
                "trailing comma" => comma,
                "key must be a string" if there == Some(&b'}') => comma,
                "expected value" if there == Some(&b']') => comma,
                "trailing characters" => {
                    "something is trailing after the object: take it out".to_owned()
                }
                "key must be a string" => "a key is missing: write it in double quotes".to_owned(),
                "expected value" => "a value is missing: write one as JSON does".to_owned(),
                other => format!("{other}: write it as JSON does"),
            }
        }
    }
}

/// A list whose refusal speaks of lists, not of sequences.
struct List<T>(Vec<T>);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for List<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Items<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for Items<T> {
            type Value = List<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of strings (`[]` when there is none)")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<List<T>, A::Error> {
                let mut items = Vec::new();
                while let Some(item) = seq.next_element()? {
                    items.push(item);
                }
                Ok(List(items))
            }
        }
        deserializer.deserialize_seq(Items(PhantomData))
    }
}

/// An object of variables, each name once.
struct Pairs<T>(BTreeMap<VariableName, T>);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Pairs<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Items<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for Items<T> {
            type Value = Pairs<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of variable names and strings (`{}` when there is none)")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Pairs<T>, A::Error> {
                let mut pairs = BTreeMap::new();
                while let Some(name) = map.next_key::<VariableName>()? {
                    if pairs.contains_key(&name) {
                        return Err(de::Error::custom(format_args!(
                            "the variable {} is there twice",
                            Quoted(name.0)
                        )));
                    }
                    let value = map.next_value()?;
                    pairs.insert(name, value);
                }
                Ok(Pairs(pairs))
            }
        }
        deserializer.deserialize_map(Items(PhantomData))
    }
}

impl<'de> Deserialize<'de> for Spec {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Keys;
        impl<'de> Visitor<'de> for Keys {
            type Value = Spec;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a specification: one JSON object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Spec, A::Error> {
                fn value<'de, A: MapAccess<'de>, T: Deserialize<'de>>(
                    map: &mut A,
                    key: &str,
                ) -> Result<T, A::Error> {
                    // serde_json takes the position back out of the text, so it survives.
                    map.next_value().map_err(|error| {
                        de::Error::custom(format_args!("{}: {error}", Quoted(key.to_owned())))
                    })
                }
                let mut spec = Spec::default();
                let mut seen: Vec<String> = Vec::new();
                while let Some(key) = map.next_key::<String>()? {
                    if seen.contains(&key) {
                        return Err(de::Error::custom(format_args!(
                            "the key {} is there twice",
                            Quoted(key)
                        )));
                    }
                    match key.as_str() {
                        "version" => {
                            let version: u64 = value(&mut map, &key)?;
                            if version != VERSION {
                                return Err(de::Error::custom(format_args!(
                                    "`version` is {version}, this launcher knows only {VERSION}: \
                                     use the launcher that belongs to the specification"
                                )));
                            }
                        }
                        "network" => spec.network = value(&mut map, &key)?,
                        "nestedUserns" => spec.nested_userns = value(&mut map, &key)?,
                        "stateDir" => spec.state_dir = value(&mut map, &key)?,
                        "allowHomeWorkspace" => {
                            spec.allow_home_workspace = value(&mut map, &key)?;
                        }
                        "writablePaths" => {
                            let entries = value::<_, List<WritableEntry>>(&mut map, &key)?.0;
                            spec.writable_paths =
                                entries.into_iter().flat_map(|entry| entry.0).collect();
                            checked(&key, &spec.writable_paths, SpecPath::check_writable)?;
                        }
                        "readOnlyPaths" => {
                            spec.read_only_paths = value::<_, List<SpecPath>>(&mut map, &key)?.0;
                            checked(&key, &spec.read_only_paths, SpecPath::check_read_only)?;
                        }
                        "denyRead" => {
                            spec.deny_read = value::<_, List<SpecPath>>(&mut map, &key)?.0;
                            checked(&key, &spec.deny_read, SpecPath::check_denied)?;
                        }
                        "denyReadGlobs" => {
                            spec.deny_read_globs = value::<_, List<SpecPath>>(&mut map, &key)?.0;
                            checked(&key, &spec.deny_read_globs, SpecPath::check_pattern)?;
                        }
                        "denyEnv" => {
                            spec.deny_env = value::<_, List<EnvPattern>>(&mut map, &key)?.0;
                        }
                        "passEnv" => {
                            spec.pass_env = value::<_, Option<List<EnvPattern>>>(&mut map, &key)?
                                .map(|list| list.0);
                        }
                        "env" => {
                            let pairs = value::<_, Pairs<VariableValue>>(&mut map, &key)?.0;
                            spec.env =
                                pairs.into_iter().map(|(name, value)| (name, value.0)).collect();
                        }
                        "git" => spec.git = value(&mut map, &key)?,
                        "protect" => {
                            let paths = value::<_, List<InWorkspace>>(&mut map, &key)?.0;
                            spec.protect = paths.into_iter().map(|path| path.0).collect();
                        }
                        "allowSockets" => {
                            spec.allow_sockets = value::<_, List<SpecPath>>(&mut map, &key)?.0;
                        }
                        "localPorts" => {
                            let ports = value::<_, List<Port>>(&mut map, &key)?.0;
                            spec.local_ports = ports.into_iter().map(|port| port.0).collect();
                        }
                        "envFiles" => {
                            spec.env_files = value::<_, Pairs<SpecPath>>(&mut map, &key)?.0;
                        }
                        "allowNixDaemon" => spec.allow_nix_daemon = value(&mut map, &key)?,
                        "allowAbstractSockets" => {
                            spec.allow_abstract_sockets = value(&mut map, &key)?;
                        }
                        "secrets" => {
                            spec.secrets = value::<_, Pairs<SpecPath>>(&mut map, &key)?.0;
                            variables::check_keys(&key, spec.secrets.keys())?;
                            // They are hidden as what is denied.
                            checked(&key, spec.secrets.values(), SpecPath::check_denied)?;
                        }
                        "secretEnv" => {
                            spec.secret_env = value::<_, List<VariableName>>(&mut map, &key)?.0;
                            variables::check_keys(&key, &spec.secret_env)?;
                        }
                        "allowUserNamespaces" => {
                            spec.allow_user_namespaces = value(&mut map, &key)?;
                        }
                        "tmp" => spec.tmp = value(&mut map, &key)?,
                        "limits" => spec.limits = value(&mut map, &key)?,
                        unknown => return Err(de::Error::custom(unknown_key(unknown))),
                    }
                    seen.push(key);
                }
                variables::check(&spec).map_err(de::Error::custom)?;
                Ok(spec)
            }
        }
        deserializer.deserialize_map(Keys)
    }
}

fn checked<'a, E: de::Error>(
    key: &str,
    paths: impl IntoIterator<Item = &'a SpecPath>,
    check: fn(&SpecPath) -> Result<(), ValueError>,
) -> Result<(), E> {
    paths
        .into_iter()
        .try_for_each(check)
        .map_err(|error| E::custom(format_args!("{}: {error}", Quoted(key.to_owned()))))
}

fn unknown_key(key: &str) -> String {
    let lower = key.to_lowercase();
    let nearest = KEYS
        .iter()
        .map(|known| (distance(&lower, &known.to_lowercase()), *known))
        .min()
        .filter(|(distance, known)| *distance <= known.len() / 2);
    let shown = Quoted(key.to_owned());
    match nearest {
        Some((_, known)) => format!("unknown key {shown}, did you mean `{known}`?"),
        None => format!("unknown key {shown}, the keys are {}", KEYS.join(", ")),
    }
}

/// The number of insertions, removals and replacements between two words.
fn distance(left: &str, right: &str) -> usize {
    let mut row: Vec<usize> = (0..=right.chars().count()).collect();
    for (i, a) in left.chars().enumerate() {
        let mut diagonal = i;
        let mut before = i + 1;
        let mut next = vec![before];
        for (b, above) in right.chars().zip(row.iter().skip(1)) {
            before = (diagonal + usize::from(a != b)).min(before + 1).min(above + 1);
            diagonal = *above;
            next.push(before);
        }
        row = next;
    }
    row.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests;
