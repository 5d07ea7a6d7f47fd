//! The values of a specification: paths from a closed set of bases, variable names, ports, sizes.
//!
//! Pure. Each value is checked when it is read, so that what is in a `Spec` needs no second look.

use std::fmt;

use serde::Deserialize;
use serde::de::{self, Deserializer, Visitor};

use super::super::glob::{Pattern, PatternError};

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
    /// A pattern that cannot be read.
    #[error("{0}: {1}")]
    Pattern(Quoted, PatternError),
    /// A variable name that is empty or holds `=`, NUL or a `*` that is not its last character.
    #[error(
        "{0} is no variable name: it may not be empty or contain `=` or NUL, and `*` may only be \
         its last character"
    )]
    Variable(Quoted),
    /// A name with what no name has, where a whole one is needed.
    #[error("{0} is no variable name: it may not be empty or contain `=`, `*` or NUL")]
    WholeVariable(Quoted),
    /// `@name` of no known caches.
    #[error(
        "{0} names no caches: `@cargo`, `@go`, `@nix`, `@npm`, `@pip` and `@uv` are known; a \
         directory of that name is `./@…`"
    )]
    Cache(Quoted),
    /// Not below the workspace.
    #[error("{0} is not in the workspace: write a name in it, such as `.envrc` or `sub/file`")]
    Outside(Quoted),
    /// A lone `*`.
    #[error("`*` would name every variable: name a prefix such as `AWS_*`, or take the key out")]
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
        let Some((base, below)) = based(&text) else {
            return Err(ValueError::Base(Quoted(text)));
        };
        let mut rest = String::with_capacity(below.len());
        for part in below.split('/') {
            match part {
                "" | "." => {}
                ".." => return Err(ValueError::Parent(Quoted(text))),
                part => {
                    if !rest.is_empty() {
                        rest.push('/');
                    }
                    rest.push_str(part);
                }
            }
        }
        Ok(Self { base, rest, text })
    }
}

/// Where a path starts, and what follows.
fn based(text: &str) -> Option<(Base, &str)> {
    for (prefix, base) in [("/", Base::Root), ("~/", Base::Home), ("./", Base::Workspace)] {
        if let Some(rest) = text.strip_prefix(prefix) {
            return Some((base, rest));
        }
    }
    let (name, rest) = text.strip_prefix('$')?.split_once('/')?;
    if name == "HOME" {
        return Some((Base::Home, rest));
    }
    let xdg = Xdg::ALL.iter().find(|xdg| xdg.variable() == name)?;
    Some((Base::Xdg(*xdg), rest))
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

    /// Checks that the path may stand in `denyReadGlobs`.
    ///
    /// # Errors
    /// As [`Self::check_denied`], and [`ValueError::Pattern`] for what cannot be read as a pattern.
    pub fn check_pattern(&self) -> Result<(), ValueError> {
        self.check_denied()?;
        match Pattern::new(&self.rest) {
            Ok(_) => Ok(()),
            Err(error) => Err(ValueError::Pattern(Quoted(self.text.clone()), error)),
        }
    }

    /// Checks that the path may stand in `readOnlyPaths`.
    ///
    /// # Errors
    /// [`ValueError::Forbidden`] for the kernel's trees, which the jail has of its own.
    pub fn check_read_only(&self) -> Result<(), ValueError> {
        if ["proc", "sys", "dev"].iter().any(|top| self.is_in(top)) {
            return Err(self.forbid("the kernel's own trees are read-only already, take it out"));
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
    /// The name, or what the names start with.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether every name is meant that starts so.
    pub fn is_prefix(&self) -> bool {
        self.prefix
    }

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

/// The caches of package managers, by the names that `writablePaths` takes. None of them holds a
/// program or a start file; what a build takes out of one runs on the host at the host's next build.
const CACHES: [(&str, &[(Base, &str)]); 6] = [
    ("@cargo", &[(Base::Home, ".cargo/registry"), (Base::Home, ".cargo/git")]),
    ("@go", &[(Base::Xdg(Xdg::Cache), "go-build"), (Base::Home, "go/pkg")]),
    ("@nix", &[(Base::Xdg(Xdg::Cache), "nix")]),
    ("@npm", &[(Base::Home, ".npm/_cacache"), (Base::Home, ".npm/_logs")]),
    ("@pip", &[(Base::Xdg(Xdg::Cache), "pip")]),
    ("@uv", &[(Base::Xdg(Xdg::Cache), "uv")]),
];

/// The caches of package managers that one word makes writable: below the home, or below the cache
/// directory.
pub(in super::super) fn caches() -> impl Iterator<Item = (Base, &'static str)> {
    CACHES.iter().flat_map(|(_, paths)| paths.iter().copied())
}

/// An entry of `writablePaths`: a path, or the name of a package manager's caches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct WritableEntry(pub(super) Vec<SpecPath>);

impl<'de> Deserialize<'de> for WritableEntry {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        if !text.starts_with('@') {
            return SpecPath::try_from(text)
                .map(|path| Self(vec![path]))
                .map_err(de::Error::custom);
        }
        match CACHES.iter().find(|(name, _)| *name == text) {
            Some((_, paths)) => Ok(Self(
                paths
                    .iter()
                    .map(|(base, rest)| SpecPath {
                        base: *base,
                        rest: (*rest).to_owned(),
                        text: text.clone(),
                    })
                    .collect(),
            )),
            None => Err(de::Error::custom(ValueError::Cache(Quoted(text)))),
        }
    }
}

/// A path in the workspace, `name` or `./name`; anything else is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct InWorkspace(pub(super) SpecPath);

impl<'de> Deserialize<'de> for InWorkspace {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let below = if text.starts_with("./") { text.clone() } else { format!("./{text}") };
        if text.starts_with(['/', '~', '$', '@']) {
            return Err(de::Error::custom(ValueError::Outside(Quoted(text))));
        }
        let mut path = SpecPath::try_from(below).map_err(de::Error::custom)?;
        if path.rest.is_empty() {
            return Err(de::Error::custom(ValueError::Outside(Quoted(text))));
        }
        path.text = text;
        Ok(Self(path))
    }
}

/// A variable's whole name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VariableName(pub String);

impl TryFrom<String> for VariableName {
    type Error = ValueError;

    fn try_from(text: String) -> Result<Self, ValueError> {
        if text.is_empty() || text.contains(['=', '\0', '*']) {
            return Err(ValueError::WholeVariable(Quoted(text)));
        }
        Ok(Self(text))
    }
}

impl<'de> Deserialize<'de> for VariableName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::try_from(String::deserialize(deserializer)?).map_err(de::Error::custom)
    }
}

/// A variable's value: no NUL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct VariableValue(pub(super) String);

impl<'de> Deserialize<'de> for VariableValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        if text.contains('\0') {
            return Err(de::Error::custom(ValueError::Nul(Quoted(text))));
        }
        Ok(Self(text))
    }
}

/// A TCP port, 1 to 65535.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Port(pub(super) u16);

impl<'de> Deserialize<'de> for Port {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let number = i64::deserialize(deserializer)?;
        match u16::try_from(number) {
            Ok(port) if port > 0 => Ok(Self(port)),
            _ => Err(de::Error::custom(format_args!(
                "{number} is no TCP port: write a number from 1 to 65535"
            ))),
        }
    }
}

/// How the repository's git directory is treated (law 9).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Git {
    /// Writable, apart from what makes the host run code later.
    #[default]
    Commit,
    /// Read-only as a whole.
    ReadOnly,
    /// As writable as the tree that it lies in.
    Unprotected,
}

/// Where `/tmp` lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Tmp {
    /// In memory, with a size.
    #[default]
    Private,
    /// In a directory of this run on the host's disk, removed at the end.
    HostSubdir,
}

/// Reads one of a few words.
pub(super) fn choice<'de, D: Deserializer<'de>, T: Copy>(
    deserializer: D,
    choices: &[(&str, T)],
) -> Result<T, D::Error> {
    let text = String::deserialize(deserializer)?;
    choices.iter().find(|(word, _)| *word == text).map(|(_, value)| *value).ok_or_else(|| {
        let words: Vec<String> = choices.iter().map(|(word, _)| format!("`{word}`")).collect();
        de::Error::custom(format_args!(
            "{} is not known, write one of {}",
            Quoted(text.clone()),
            words.join(", ")
        ))
    })
}

impl<'de> Deserialize<'de> for Git {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let choices = [
            ("commit", Self::Commit),
            ("read-only", Self::ReadOnly),
            ("unprotected", Self::Unprotected),
        ];
        choice(deserializer, &choices)
    }
}

impl<'de> Deserialize<'de> for Tmp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        choice(deserializer, &[("private", Self::Private), ("host-subdir", Self::HostSubdir)])
    }
}

/// A number of bytes: a number, or a string of digits with `K`, `M`, `G` or `T` (powers of 1024).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Bytes(pub(super) u64);

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Number;
        impl Visitor<'_> for Number {
            type Value = Bytes;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number of bytes above zero, such as 4294967296 or \"4G\"")
            }

            fn visit_u64<E: de::Error>(self, bytes: u64) -> Result<Bytes, E> {
                if bytes == 0 {
                    return Err(E::invalid_value(de::Unexpected::Unsigned(bytes), &self));
                }
                Ok(Bytes(bytes))
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Bytes, E> {
                let (digits, shift) = match text.as_bytes().last() {
                    Some(b'K') => (text.strip_suffix('K'), 10),
                    Some(b'M') => (text.strip_suffix('M'), 20),
                    Some(b'G') => (text.strip_suffix('G'), 30),
                    Some(b'T') => (text.strip_suffix('T'), 40),
                    _ => (Some(text), 0),
                };
                digits
                    .filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()))
                    .and_then(|digits| digits.parse::<u64>().ok())
                    .and_then(|number| number.checked_mul(1 << shift))
                    .filter(|bytes| *bytes > 0)
                    .map(Bytes)
                    .ok_or_else(|| E::invalid_value(de::Unexpected::Str(text), &self))
            }
        }
        deserializer.deserialize_any(Number)
    }
}

/// What the inside may use at most (law 14). `None` = no bound of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Limits {
    /// Processes and threads.
    pub tasks: Option<u64>,
    /// Memory in bytes: of each process, and of all together where a cgroup can be had.
    pub memory: Option<u64>,
    /// The size of any one file in bytes.
    pub file_size: Option<u64>,
}

impl<'de> Deserialize<'de> for Limits {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Keys;
        impl<'de> Visitor<'de> for Keys {
            type Value = Limits;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("null, or an object with some of `tasks`, `memory`, `fileSize`")
            }

            fn visit_map<A: de::MapAccess<'de>>(self, mut map: A) -> Result<Limits, A::Error> {
                let mut limits = Limits::default();
                while let Some(key) = map.next_key::<String>()? {
                    let place = match key.as_str() {
                        "tasks" => &mut limits.tasks,
                        "memory" => &mut limits.memory,
                        "fileSize" => &mut limits.file_size,
                        _ => {
                            return Err(de::Error::custom(format_args!(
                                "unknown key {}, the keys are `tasks`, `memory`, `fileSize`",
                                Quoted(key)
                            )));
                        }
                    };
                    if place.is_some() {
                        return Err(de::Error::custom(format_args!(
                            "the key {} is there twice",
                            Quoted(key)
                        )));
                    }
                    // A null leaves one without a bound, as a Nix option at its default does.
                    if let Some(bytes) = map.next_value::<Option<Bytes>>()? {
                        *place = Some(bytes.0);
                    }
                }
                Ok(limits)
            }
        }
        deserializer.deserialize_map(Keys)
    }
}
