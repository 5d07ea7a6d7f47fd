//! What stays risky in this configuration, in words: what the agent can touch, what it could read
//! and send, and what it could leave behind for the host to run.
//!
//! Of a secret its path or its variable's name is told, with the rule that hides it; a file that is
//! hidden already looks empty and is not told.

use std::{
    collections::BTreeSet,
    ffi::OsStr,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use crate::{
    authority::Confinement,
    cli::{credentials::Store, provider, setup},
    config::names,
    host::examine::{self, Content, Mount},
};

use super::{
    Here,
    model::{self, Source},
    report::Risk,
    secrets::{self, Base, Kind, Place},
};

/// What the first process of a container was started with (proc(5)).
const FIRST_ENVIRONMENT: &str = "/proc/1/environ";

/// The most names of a directory that are looked at.
const MANY: usize = 500;

/// What makes the host run something later, from the root of a project.
const RUN_LATER: [&str; 22] = [
    ".git/hooks",
    ".git/config",
    ".envrc",
    ".husky",
    ".pre-commit-config.yaml",
    ".vscode/tasks.json",
    ".vscode/settings.json",
    ".idea",
    ".devcontainer",
    ".github/workflows",
    ".exrc",
    ".nvim.lua",
    "package.json",
    "Makefile",
    "justfile",
    "build.rs",
    ".cargo/config.toml",
    "setup.py",
    "conftest.py",
    "flake.nix",
    "shell.nix",
    ".kli/settings.json",
];

pub(super) fn find(here: &Here) -> Vec<Risk> {
    let mut risks = Vec::new();
    risks.extend(reach(here));
    risks.extend(network(here));
    risks.extend(root(here));
    risks.extend(key(here));
    risks.extend(files(here));
    risks.extend(key_variables(here));
    risks.extend(variables(here));
    risks.extend(sockets(here));
    risks.extend(run_later(here));
    risks
}

/// What can be written.
fn reach(here: &Here) -> Vec<Risk> {
    let Some(jail) = &here.jail else {
        let who = format!("whatever user {} can read, change and delete", here.user);
        return vec![match here.confinement {
            Confinement::KliSandbox => {
                Risk::new("writable", "the marker does not tell what is writable")
            }
            Confinement::Outer(what) => Risk::new(
                "confinement",
                format!(
                    "the agent can reach {who} in here; what `{what}` shows of the host was not looked at"
                ),
            ),
            Confinement::None | Confinement::Unknown => Risk::new(
                "confinement",
                format!("nothing is known to bound the agent: it can reach {who}"),
            )
            .repair("start kli with `kli-sandbox run --spec FILE -- kli`"),
        }];
    };
    let places: Vec<String> = jail.writable.iter().map(|path| format!("`{path}`")).collect();
    let mut risks = vec![
        Risk::new(
            "writable",
            format!("the agent can change and destroy everything in {}", places.join(", ")),
        )
        .repair("commit or copy what matters; take out of `writablePaths` what is not needed"),
    ];
    if jail.hidden > 0 {
        let (are, them) = match jail.hidden {
            1 => ("1 path is hidden by its name".to_owned(), "it"),
            many => (format!("{many} paths are hidden by their names"), "them"),
        };
        let links = format!(
            "{are}; hard links to {them}, copies, and what git has stored of {them} cannot be seen \
             from here"
        );
        risks.push(Risk::new("hidden.links", links));
    }
    risks
}

fn network(here: &Here) -> Vec<Risk> {
    if here.jail.as_ref().is_some_and(|jail| !jail.network) {
        return Vec::new();
    }
    let mut risks = vec![
        Risk::new("network", "the network is open: what the agent can read it can send anywhere")
            .repair(match here.confinement {
                Confinement::KliSandbox => {
                    "set `network` to false when the model is on this machine"
                }
                _ => "confine kli with `network` false when the model is on this machine",
            }),
    ];
    if here.jail.as_ref().is_some_and(|jail| jail.sockets) {
        let sockets = examine::abstract_sockets();
        if sockets > 0 {
            risks.push(
                Risk::new(
                    "network.sockets",
                    format!(
                        "{sockets} abstract sockets of the host can be reached, whatever is hidden"
                    ),
                )
                .repair("set `network` to false, or use Linux 6.12 or later"),
            );
        }
    }
    risks
}

fn root(here: &Here) -> Option<Risk> {
    (here.user == 0).then(|| {
        let (message, repair) = match here.confinement {
            Confinement::KliSandbox => (
                "kli runs as root: files that only root may read are not hidden by their modes",
                "start kli as an ordinary user (`runuser -u NAME -- kli`)",
            ),
            _ => (
                "kli runs as root: no file mode stops the agent",
                "start kli as an ordinary user (`runuser -u NAME -- kli`), or confine it",
            ),
        };
        Risk::new("root", message).repair(repair)
    })
}

/// The key that kli itself holds.
fn key(here: &Here) -> Vec<Risk> {
    let Ok(setup) = &here.setup else { return Vec::new() };
    let Ok(name) = provider::model_name(setup) else { return Vec::new() };
    let mut risks = Vec::new();
    let held = match model::source(here, setup, &name) {
        Source::Launcher(_)
        | Source::Variable(_)
        | Source::Command(_)
        | Source::Store(_)
        | Source::Header => true,
        Source::File(path) => {
            if matches!(examine::content(&path), Content::File { .. }) {
                risks.push(
                    Risk::new(
                        "key.file",
                        format!(
                            "the key file `{}` can be read by the agent's tools too, and kli needs \
                             it, so it cannot be hidden",
                            path.display()
                        ),
                    )
                    .repair(key_elsewhere()),
                );
            }
            true
        }
        Source::BadStore(_) | Source::Missing(_) | Source::Nowhere(_) => false,
    };
    if held {
        risks.push(
            Risk::new(
                "key.memory",
                format!("the key of provider `{}` is in kli's memory while it runs", name.provider),
            )
            .repair("use a key of its own for the agent, with a limit on what it may spend"),
        );
    }
    if let Some(paths) = &here.paths {
        for name in examine::names(paths.config(), MANY) {
            let path = paths.config().join(&name);
            let kept = name.as_bytes().starts_with(b"credentials") || name == OsStr::new("keys");
            // What is left of a store when its last key was forgotten holds none.
            let emptied = matches!(Store::read(&path), Ok(store) if store.keys.is_empty());
            if kept && is_full(&path) && !emptied {
                risks.push(
                    Risk::new(
                        "key.store",
                        format!(
                            "the keys that kli keeps in `{}` can be read by the agent's tools too",
                            path.display()
                        ),
                    )
                    .repair(format!("{}, and `kli auth forget` it", key_elsewhere())),
                );
            }
        }
    }
    risks
}

/// The files that hold secrets and can be read now.
fn files(here: &Here) -> Vec<Risk> {
    let mounts = examine::mounts();
    let mut told = BTreeSet::new();
    let mut risks = Vec::new();
    for place in secrets::PLACES {
        for base in bases(here, place.base) {
            // Joining nothing would put a slash at the end.
            let first: PathBuf = base.join(place.path).components().collect();
            for file in held(place.kind, &first) {
                let deny = deny(here, place, &base, &file);
                tell(&mut risks, &mut told, &file, place.what, &deny, None);
            }
            for other in second(&first, &mounts) {
                for file in held(place.kind, &other) {
                    let deny = match place.kind {
                        Kind::Variables => file.display().to_string(),
                        Kind::Any | Kind::PrivateKeys => other.display().to_string(),
                    };
                    tell(&mut risks, &mut told, &file, place.what, &deny, Some(&first));
                }
            }
        }
    }
    risks
}

fn tell(
    risks: &mut Vec<Risk>,
    told: &mut BTreeSet<PathBuf>,
    file: &Path,
    what: &str,
    deny: &str,
    second: Option<&Path>,
) {
    if !is_full(file) {
        return;
    }
    if !told.insert(file.to_owned()) {
        return;
    }
    let shown = file.display();
    let links = match examine::content(file) {
        Content::File { links: links @ 2.. } => {
            format!(
                " (it has {} more names, which need entries of their own)",
                links.saturating_sub(1)
            )
        }
        _ => String::new(),
    };
    let also = second.map_or_else(String::new, |first| {
        format!(", which is `{}` by a second path", first.display())
    });
    risks.push(
        Risk::new("secret.file", format!("`{shown}` can be read: {what}{also}{links}"))
            .repair(format!("add {} to `denyRead`", quoted(deny))),
    );
}

/// A name as JSON writes it, so that it can be pasted.
fn quoted(text: &str) -> String {
    format!("`{}`", serde_json::Value::from(text))
}

/// The second paths of a place, when the mounts show it twice: those of the same file, and those
/// of one that is hidden at its own name.
fn second(path: &Path, mounts: &[Mount]) -> Vec<PathBuf> {
    let physical = setup::physical(path);
    let hidden = !is_full(&physical);
    examine::other_paths(&physical, mounts)
        .into_iter()
        .filter(|other| other != path && (hidden || examine::is_same(other, &physical)))
        .collect()
}

fn is_full(path: &Path) -> bool {
    matches!(examine::content(path), Content::File { .. } | Content::Directory)
}

/// What `denyRead` should say for a place.
fn deny(here: &Here, place: &Place, base: &Path, file: &Path) -> String {
    // `~/.config` is what people know; the variable matters only where it points elsewhere.
    let usual = |below: &str| here.homes.iter().any(|home| base == home.join(below));
    match place.base {
        Base::Workspace => {
            let name = file.file_name().unwrap_or_default();
            format!("{}{}", secrets::prefix(place.base), name.display())
        }
        Base::Config if usual(".config") => format!("~/.config/{}", place.deny),
        Base::Data if usual(".local/share") => format!("~/.local/share/{}", place.deny),
        base => format!("{}{}", secrets::prefix(base), place.deny),
    }
}

fn bases(here: &Here, base: Base) -> Vec<PathBuf> {
    let below = |variable: &str, below: &str| {
        let named = here.environment.var_os(variable).map(PathBuf::from);
        let mut all: Vec<PathBuf> = named.into_iter().filter(|path| path.is_absolute()).collect();
        for home in &here.homes {
            let usual = home.join(below);
            if !all.contains(&usual) {
                all.push(usual);
            }
        }
        all
    };
    match base {
        Base::Home => here.homes.clone(),
        Base::Config => below(names::XDG_CONFIG_HOME, ".config"),
        Base::Data => below("XDG_DATA_HOME", ".local/share"),
        Base::Workspace => here.workspace.iter().cloned().collect(),
        Base::Root => vec![PathBuf::from("/")],
    }
}

/// The files at a place that can be read and hold something.
fn held(kind: Kind, path: &Path) -> Vec<PathBuf> {
    let chosen = |choose: fn(&str) -> bool| {
        examine::names(path, MANY)
            .into_iter()
            .filter(|name| name.to_str().is_some_and(choose))
            .map(|name| path.join(name))
            .filter(|file| matches!(examine::content(file), Content::File { .. }))
            .collect::<Vec<_>>()
    };
    match kind {
        Kind::Any if is_full(path) => vec![path.to_owned()],
        Kind::Any => Vec::new(),
        Kind::PrivateKeys => chosen(secrets::is_private_key),
        Kind::Variables => chosen(secrets::is_variables),
    }
}

/// How a key reaches kli where tools do not find it.
fn key_elsewhere() -> &'static str {
    "name its file in the specification's `secrets`, or hand the key over in a variable (`keyEnv`): tools \
     get neither"
}

/// The keys that a container was started with: kli wipes its own environment, not that of the
/// process that started it. In kli's own jail that process lets nobody look.
fn key_variables(here: &Here) -> Option<Risk> {
    let secret = match &here.setup {
        Ok(setup) => setup.settings.secret_variables(),
        Err(_) => names::SECRET.iter().map(|name| (*name).to_owned()).collect(),
    };
    // A run as process 1 wipes them.
    if examine::is_first() {
        return None;
    }
    let found = examine::started_with(Path::new(FIRST_ENVIRONMENT), &secret);
    if found.is_empty() {
        return None;
    }
    let names = found.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
    let message = format!(
        "keys stand in the environment of process 1, which the agent's tools can read: {names}"
    );
    Some(Risk::new("key.environment", message).repair(format!(
        "start kli itself as the container's process, or hand keys over in a pipe (`{}`)",
        names::KLI_SECRETS_FD
    )))
}

/// The variables that a tool's child would inherit.
fn variables(here: &Here) -> Option<Risk> {
    let own = match &here.setup {
        Ok(setup) => setup.settings.secret_variables(),
        Err(_) => names::SECRET.iter().map(|name| (*name).to_owned()).collect(),
    };
    let found: Vec<&str> = here
        .environment
        .vars()
        .filter(|(_, value)| !value.is_empty())
        .filter_map(|(name, _)| name.to_str())
        .filter(|name| secrets::is_secret(name) && !own.iter().any(|own| own == name))
        .collect();
    if found.is_empty() {
        return None;
    }
    let list = |quote: fn(&str) -> String| {
        found.iter().map(|name| quote(name)).collect::<Vec<_>>().join(", ")
    };
    let message = format!(
        "variables whose names look like secrets go to every tool: {}",
        list(|name| format!("`{name}`"))
    );
    let repair = format!("add {} to `denyEnv`, or unset them", list(quoted));
    Some(Risk::new("secret.environment", message).repair(repair))
}

/// Sockets that act for whoever reaches them.
fn sockets(here: &Here) -> Vec<Risk> {
    let runtime = here
        .environment
        .var_os("XDG_RUNTIME_DIR")
        .map(PathBuf::from)
        .filter(|path| path.is_absolute())
        .unwrap_or_else(|| PathBuf::from("/run/user").join(here.user.to_string()));
    let mut told: Vec<PathBuf> = Vec::new();
    let mut risks = Vec::new();
    for agent in secrets::AGENTS {
        let named = here.environment.var_os(agent.variable).and_then(socket_of);
        let usual = agent.paths.iter().flat_map(|path| match path.split_at_checked(2) {
            Some(("$/", rest)) => vec![runtime.join(rest)],
            Some(("~/", rest)) => here.homes.iter().map(|home| home.join(rest)).collect(),
            _ => vec![PathBuf::from(path)],
        });
        let by_name = named.clone();
        for path in named.into_iter().chain(usual) {
            if examine::content(&path) != Content::Socket
                || told.iter().any(|known| examine::is_same(known, &path))
            {
                continue;
            }
            let by = if by_name.as_ref() == Some(&path) {
                format!(" (`{}`)", agent.variable)
            } else {
                String::new()
            };
            let shown = path.display();
            risks.push(
                Risk::new("socket", format!("`{shown}`{by} can be reached: it {}", agent.what))
                    .repair(match here.confinement {
                    Confinement::KliSandbox => {
                        format!("add {} to `denyRead`", quoted(&shown.to_string()))
                    }
                    _ => {
                        "confine kli, which cuts sockets below `/run` and `/tmp`, and hide others \
                              with `denyRead`"
                            .to_owned()
                    }
                }),
            );
            told.push(path);
        }
    }
    risks
}

/// The path of a socket in a variable: as it is, or behind `unix:path=` or `unix://`, up to what
/// follows it.
fn socket_of(value: &OsStr) -> Option<PathBuf> {
    let bytes = value.as_bytes();
    let bytes = [b"unix:path=".as_slice(), b"unix://"]
        .iter()
        .find_map(|prefix| bytes.strip_prefix(*prefix))
        .unwrap_or(bytes);
    let path = bytes.split(|byte| *byte == b',').next()?;
    let path = Path::new(OsStr::from_bytes(path));
    path.is_absolute().then(|| path.to_owned())
}

/// What the agent could leave in the project for the host to run.
fn run_later(here: &Here) -> Option<Risk> {
    let mut roots: Vec<&PathBuf> = here.workspace.iter().collect();
    if let Some(repository) = here.repository.as_ref().filter(|root| !roots.contains(root)) {
        roots.push(repository);
    }
    let mut found = Vec::new();
    for root in roots {
        for name in RUN_LATER {
            let path = root.join(name);
            if examine::content(&path) != Content::Absent && examine::is_writable(&path) {
                found.push(format!("`{}`", path.display()));
            }
        }
    }
    let new = "what the agent writes in the project may be run on the host later, by git, an editor, \
               a shell or a build";
    let message = if found.is_empty() {
        if !here.workspace.as_deref().is_ok_and(examine::takes_files) {
            return None;
        }
        new.to_owned()
    } else {
        format!("{new}; writable here are {}", found.join(", "))
    };
    Some(
        Risk::new("workspace.code", message).repair(
            "look at what was changed before you run or open it (`git diff`, `git config -l`)",
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_socket_of_a_variable_is_found_in_its_usual_forms() {
        for value in [
            "/run/x",
            "unix:path=/run/x",
            "unix:path=/run/x,guid=1",
            "unix:///run/x",
            "/run/x,12,0",
        ] {
            assert_eq!(socket_of(OsStr::new(value)), Some(PathBuf::from("/run/x")), "{value}");
        }
        for value in ["", "tcp://127.0.0.1:2375", "unix:abstract=/run/x", "x"] {
            assert_eq!(socket_of(OsStr::new(value)), None, "{value}");
        }
    }
}
