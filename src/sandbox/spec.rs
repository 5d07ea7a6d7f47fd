//! The specification: what the jail shall hide, allow and create, as one JSON object.
//!
//! Pure: text in, [`Spec`] out. Every key is known, every value has its type, every path starts at
//! one of a closed set of bases; anything else is refused with the key, the value and the place.
//! `check` and `run` both go through [`parse`], so they cannot disagree about a file.

use std::fmt;
use std::marker::PhantomData;

use serde::Deserialize;
use serde::de::{self, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::error::Category;

/// The largest specification that is read, in bytes.
pub const MAX_BYTES: usize = 1 << 20;

/// The only version there is.
pub const VERSION: u64 = 1;

/// Every key, in the order of the documentation.
pub const KEYS: [&str; 8] = [
    "version",
    "network",
    "nestedUserns",
    "writablePaths",
    "denyRead",
    "denyEnv",
    "stateDir",
    "allowHomeWorkspace",
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
    /// Hidden: reads as empty, cannot be written.
    pub deny_read: Vec<SpecPath>,
    /// Variables that are removed before the first process of the sandbox starts.
    pub deny_env: Vec<EnvPattern>,
    /// Whether kli's state directory is created and writable.
    pub state_dir: bool,
    /// Whether the home directory itself may be the workspace.
    pub allow_home_workspace: bool,
}

impl Default for Spec {
    fn default() -> Self {
        Self {
            network: true,
            nested_userns: false,
            writable_paths: Vec::new(),
            deny_read: Vec::new(),
            deny_env: Vec::new(),
            state_dir: true,
            allow_home_workspace: false,
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

/// Where a path of the specification starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Base {
    /// `/…`
    Root,
    /// `~/…` and `$HOME/…`
    Home,
    /// `./…`, the workspace.
    Workspace,
    /// `$XDG_…/…`
    Xdg(Xdg),
}

/// The directories of the XDG base directory specification that a path may start at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Xdg {
    /// `$XDG_RUNTIME_DIR`, by default `/run/user/UID`.
    Runtime,
    /// `$XDG_CONFIG_HOME`, by default `~/.config`.
    Config,
    /// `$XDG_CACHE_HOME`, by default `~/.cache`.
    Cache,
    /// `$XDG_STATE_HOME`, by default `~/.local/state`.
    State,
    /// `$XDG_DATA_HOME`, by default `~/.local/share`.
    Data,
}

impl Xdg {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Runtime, Self::Config, Self::Cache, Self::State, Self::Data];

    /// The variable's name, without the dollar sign.
    pub fn variable(self) -> &'static str {
        match self {
            Self::Runtime => "XDG_RUNTIME_DIR",
            Self::Config => "XDG_CONFIG_HOME",
            Self::Cache => "XDG_CACHE_HOME",
            Self::State => "XDG_STATE_HOME",
            Self::Data => "XDG_DATA_HOME",
        }
    }

    /// The default below the home, `None` for the runtime directory.
    pub fn below_home(self) -> Option<&'static str> {
        match self {
            Self::Runtime => None,
            Self::Config => Some(".config"),
            Self::Cache => Some(".cache"),
            Self::State => Some(".local/state"),
            Self::Data => Some(".local/share"),
        }
    }
}

/// A path of the specification: a base and what follows it, without `.`, `..` or empty parts.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SpecPath {
    /// Where it starts.
    pub base: Base,
    /// What follows, relative, possibly empty.
    pub rest: String,
    /// As it was written, for messages.
    pub text: String,
}

/// Why a path or a variable name of the specification is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ValueError {
    /// An empty string.
    #[error("an empty path names nothing: write `./` for the workspace or take the entry out")]
    EmptyPath,
    /// A NUL character.
    #[error("{0} contains a NUL character, which no file name can")]
    Nul(Quoted),
    /// A `..` component.
    #[error("{0} contains `..`: write the path without it")]
    Parent(Quoted),
    /// No base of the closed set.
    #[error(
        "{0} starts at no known place: begin with `/`, `~/`, `./` or one of `$HOME/`, \
         `$XDG_RUNTIME_DIR/`, `$XDG_CONFIG_HOME/`, `$XDG_CACHE_HOME/`, `$XDG_STATE_HOME/`, \
         `$XDG_DATA_HOME/`"
    )]
    Base(Quoted),
    /// A path that a list cannot hold.
    #[error("{path} cannot be in this list: {because}")]
    Forbidden {
        /// The path.
        path: Quoted,
        /// Why, with the repair.
        because: &'static str,
    },
    /// A variable name that is empty or holds `=`, NUL or a `*` that is not its last character.
    #[error(
        "{0} is no variable name: it may not be empty or contain `=` or NUL, and `*` may only be \
         its last character"
    )]
    Variable(Quoted),
    /// A lone `*`.
    #[error("`*` would remove every variable, PATH and HOME too: name a prefix such as `AWS_*`")]
    EveryVariable,
}

/// A value in backticks with its control characters escaped, safe for a terminal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Quoted(pub String);

impl fmt::Display for Quoted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("`")?;
        for character in self.0.chars() {
            if character.is_control() {
                write!(f, "{}", character.escape_default())?;
            } else {
                write!(f, "{character}")?;
            }
        }
        f.write_str("`")
    }
}

impl TryFrom<String> for SpecPath {
    type Error = ValueError;

    fn try_from(text: String) -> Result<Self, ValueError> {
        if text.is_empty() {
            return Err(ValueError::EmptyPath);
        }
        if text.contains('\0') {
            return Err(ValueError::Nul(Quoted(text)));
        }
        let variables =
            Xdg::ALL.iter().map(|xdg| (format!("${}/", xdg.variable()), Base::Xdg(*xdg))).chain([
                ("/".to_owned(), Base::Root),
                ("~/".to_owned(), Base::Home),
                ("$HOME/".to_owned(), Base::Home),
                ("./".to_owned(), Base::Workspace),
            ]);
        for (prefix, base) in variables {
            if let Some(rest) = text.strip_prefix(&prefix) {
                let mut parts = Vec::new();
                for part in rest.split('/') {
                    match part {
                        "" | "." => {}
                        ".." => return Err(ValueError::Parent(Quoted(text))),
                        part => parts.push(part),
                    }
                }
                let rest = parts.join("/");
                return Ok(Self { base, rest, text });
            }
        }
        Err(ValueError::Base(Quoted(text)))
    }
}

impl SpecPath {
    /// Whether the path is absolute and lies in `top`, a name directly below `/`.
    fn is_in(&self, top: &str) -> bool {
        self.base == Base::Root && self.rest.split('/').next() == Some(top)
    }

    fn forbid(&self, because: &'static str) -> ValueError {
        ValueError::Forbidden { path: Quoted(self.text.clone()), because }
    }

    /// Checks that the path may stand in `denyRead`.
    ///
    /// # Errors
    /// [`ValueError::Forbidden`] for `/` and for what the jail has of its own.
    pub fn check_denied(&self) -> Result<(), ValueError> {
        if self.base == Base::Root && self.rest.is_empty() {
            return Err(self.forbid("it would hide the whole machine, name what shall be hidden"));
        }
        if self.is_in("proc") || self.is_in("dev") {
            return Err(
                self.forbid("the jail has a `/proc` and a `/dev` of its own, take the entry out")
            );
        }
        Ok(())
    }

    /// Checks that the path may stand in `writablePaths`.
    ///
    /// # Errors
    /// [`ValueError::Forbidden`] for `/`, the kernel's trees, `/run` and `/home` themselves.
    pub fn check_writable(&self) -> Result<(), ValueError> {
        if self.base == Base::Root && self.rest.is_empty() {
            return Err(self.forbid("it would make the whole machine writable"));
        }
        if ["proc", "sys", "dev"].iter().any(|top| self.is_in(top)) {
            return Err(self.forbid("the kernel's own trees are never writable"));
        }
        if self.base == Base::Root && (self.rest == "run" || self.rest == "home") {
            return Err(self.forbid("name the directory below it that is needed"));
        }
        Ok(())
    }
}

impl<'de> Deserialize<'de> for SpecPath {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::try_from(text).map_err(de::Error::custom)
    }
}

/// A variable name, or with a trailing `*` every name that starts so.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EnvPattern {
    name: String,
    prefix: bool,
}

impl TryFrom<String> for EnvPattern {
    type Error = ValueError;

    fn try_from(text: String) -> Result<Self, ValueError> {
        if text == "*" {
            return Err(ValueError::EveryVariable);
        }
        let (name, prefix) = match text.strip_suffix('*') {
            Some(name) => (name.to_owned(), true),
            None => (text.clone(), false),
        };
        if name.is_empty() || name.contains(['=', '\0', '*']) {
            return Err(ValueError::Variable(Quoted(text)));
        }
        Ok(Self { name, prefix })
    }
}

impl EnvPattern {
    /// Whether the variable `name` is meant. Names are bytes; case matters.
    pub fn matches(&self, name: &[u8]) -> bool {
        if self.prefix {
            name.starts_with(self.name.as_bytes())
        } else {
            name == self.name.as_bytes()
        }
    }
}

impl<'de> Deserialize<'de> for EnvPattern {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::try_from(text).map_err(de::Error::custom)
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
                            spec.writable_paths = value::<_, List<SpecPath>>(&mut map, &key)?.0;
                            checked(&key, &spec.writable_paths, SpecPath::check_writable)?;
                        }
                        "denyRead" => {
                            spec.deny_read = value::<_, List<SpecPath>>(&mut map, &key)?.0;
                            checked(&key, &spec.deny_read, SpecPath::check_denied)?;
                        }
                        "denyEnv" => {
                            spec.deny_env = value::<_, List<EnvPattern>>(&mut map, &key)?.0;
                        }
                        unknown => return Err(de::Error::custom(unknown_key(unknown))),
                    }
                    seen.push(key);
                }
                Ok(spec)
            }
        }
        deserializer.deserialize_map(Keys)
    }
}

fn checked<E: de::Error>(
    key: &str,
    paths: &[SpecPath],
    check: fn(&SpecPath) -> Result<(), ValueError>,
) -> Result<(), E> {
    paths
        .iter()
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
