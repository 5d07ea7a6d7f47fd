//! What a run finds around it: itself, the directory, the home, the shell, the search path, room for
//! sessions.

use std::path::{Path, PathBuf};

use crate::{
    authority::Confinement,
    config::names,
    host::examine::{self, Content},
    sandbox::doctor::{Finding, Status},
};

use super::Here;

/// Below this much free space a session may not be written to its end, in bytes.
const LITTLE_SPACE: u64 = 64 << 20;

/// What kli is, and where.
pub(super) fn about(here: &Here) -> Vec<Finding> {
    vec![
        Finding::new("kli", Status::Info, concat!("kli ", env!("CARGO_PKG_VERSION"))),
        confinement(here),
        directory(here),
    ]
}

/// What a run needs of this machine.
pub(super) fn checks(here: &Here) -> Vec<Finding> {
    let mut found = home(here);
    found.extend(state(here));
    found.push(shell(here));
    found.push(git(here));
    found.push(scratch(here));
    found.extend(search_path(here));
    found.push(locale(here));
    found
}

/// Returns a number with the name of what was counted.
fn counted(count: u64, name: &str) -> String {
    if count == 1 { format!("1 {name}") } else { format!("{count} {name}s") }
}

fn confinement(here: &Here) -> Finding {
    let id = "confinement";
    let label = here.confinement.label();
    match (here.confinement, &here.jail) {
        (Confinement::KliSandbox, Some(jail)) => Finding::new(
            id,
            Status::Ok,
            format!(
                "{label}: workspace `{}`, network {}, {} hidden, {} removed",
                jail.workspace,
                if jail.network { "on" } else { "off" },
                counted(jail.hidden, "path"),
                counted(jail.removed, "variable")
            ),
        ),
        (Confinement::KliSandbox, None) => Finding::new(id, Status::Ok, label),
        (Confinement::Outer(_), _) => {
            Finding::new(id, Status::Info, format!("{label}: what it denies was not looked at"))
        }
        (Confinement::None, _) => {
            Finding::new(id, Status::Info, format!("{label}: nothing confines this process"))
                .repair("start kli with `kli-sandbox run --spec FILE -- kli`")
        }
        (Confinement::Unknown, _) => Finding::new(
            id,
            Status::Info,
            format!("{label}: whether anything confines this process cannot be told"),
        )
        .repair("start kli with `kli-sandbox run --spec FILE -- kli`"),
    }
}

fn directory(here: &Here) -> Finding {
    let id = "directory";
    match &here.workspace {
        Err(error) => Finding::new(id, Status::Problem, format!("no current directory: {error}"))
            .repair("change to a directory that exists"),
        Ok(path) if examine::takes_files(path) => {
            Finding::new(id, Status::Ok, format!("`{}` can be written", path.display()))
        }
        Ok(path) => Finding::new(
            id,
            Status::Warning,
            format!("`{}` cannot be written by user {}", path.display(), here.user),
        )
        .repair("start kli as the owner of the directory, or with `--read-only`"),
    }
}

fn home(here: &Here) -> Vec<Finding> {
    let id = "home";
    let missing = |what: &str| {
        Finding::new(
            id,
            Status::Warning,
            format!("{what}, so there are no settings of the user's and no session is kept"),
        )
        .repair("set HOME to the absolute path of your home")
    };
    let mut found = vec![match (here.environment.var_os(names::HOME), here.environment.home()) {
        (None, _) => missing("HOME is not set"),
        (Some(_), None) => missing("HOME is no absolute path"),
        (Some(_), Some(home)) => match examine::owned(&home) {
            Err(error) => missing(&format!("`{}` cannot be looked at ({error})", home.display())),
            Ok(owned) if !owned.directory => {
                missing(&format!("`{}` is no directory", home.display()))
            }
            Ok(owned) if owned.owner != here.user => Finding::new(
                id,
                Status::Warning,
                format!(
                    "`{}` belongs to user {} and this is user {}",
                    home.display(),
                    owned.owner,
                    here.user
                ),
            )
            .repair("set HOME to the home of this user (`sudo -H`)"),
            Ok(_) => Finding::new(id, Status::Ok, format!("`{}`", home.display())),
        },
    }];
    for name in [names::XDG_CONFIG_HOME, names::XDG_STATE_HOME] {
        if let Some(value) = here.environment.var_os(name).filter(|value| !value.is_empty())
            && !Path::new(value).is_absolute()
        {
            let text =
                format!("{name} is `{}`, a relative path, and counts as unset", value.display());
            found.push(
                Finding::new("home.xdg", Status::Warning, text)
                    .repair(format!("set {name} to an absolute path, or unset it")),
            );
        }
    }
    found
}

fn state(here: &Here) -> Vec<Finding> {
    let Some(paths) = &here.paths else { return Vec::new() };
    let mut found = Vec::new();
    for (id, path) in [("state", paths.state().to_owned()), ("state.sessions", paths.sessions())] {
        let shown = path.display();
        let there = examine::existing(&path);
        found.push(match there {
            Some(there) if examine::takes_files(there) => Finding::new(
                id,
                Status::Ok,
                format!(
                    "`{shown}` {}",
                    if there == path { "can be written" } else { "can be made" }
                ),
            ),
            _ => Finding::new(
                id,
                Status::Warning,
                format!("`{shown}` cannot be written, so no session is kept"),
            )
            .repair(match here.confinement {
                Confinement::KliSandbox => "set `stateDir` to true in the specification",
                _ => "make the directory writable for this user, or use `--no-session`",
            }),
        });
    }
    let free = examine::existing(paths.state()).map(examine::free_bytes);
    found.push(match free {
        Some(Ok(free)) => {
            let text = format!("{} MiB free for sessions", free >> 20);
            let finding = |status| Finding::new("state.space", status, text);
            if free < LITTLE_SPACE {
                finding(Status::Warning)
                    .repair(format!("make room where `{}` is", paths.state().display()))
            } else {
                finding(Status::Ok)
            }
        }
        _ => Finding::new("state.space", Status::Unknown, "the free space cannot be told"),
    });
    found
}

fn shell(here: &Here) -> Finding {
    let id = "shell";
    let wanted = here
        .setup
        .as_ref()
        .ok()
        .and_then(|setup| Some(setup.spelled(setup.settings.bash.shell.get()?)));
    let (name, repair) = match wanted {
        Some(Err(error)) => {
            return Finding::new(id, Status::Problem, error.fault.message)
                .repair("let `bash.shell` name the shell by its absolute path");
        }
        Some(Ok(path)) => (path, "let `bash.shell` name a shell that is there"),
        None => (PathBuf::from("bash"), "install bash, or name another shell in `bash.shell`"),
    };
    match examine::program(&name, here.environment.var_os(names::PATH)) {
        Some(path) => Finding::new(id, Status::Ok, format!("`{}`", path.display())),
        None => Finding::new(
            id,
            Status::Problem,
            format!("the shell `{}` is not there{}", name.display(), dead(here, &name)),
        )
        .repair(repair),
    }
}

fn git(here: &Here) -> Finding {
    let name = Path::new("git");
    match examine::program(name, here.environment.var_os(names::PATH)) {
        Some(path) => Finding::new("git", Status::Ok, format!("`{}`", path.display())),
        None => Finding::new(
            "git",
            Status::Warning,
            format!("git is not on PATH{}, so the agent cannot commit", dead(here, name)),
        )
        .repair("install git, or put it on PATH"),
    }
}

/// Names the link on `PATH` that should lead to a program and leads nowhere.
fn dead(here: &Here, name: &Path) -> String {
    let path = here.environment.var_os(names::PATH).unwrap_or_default();
    examine::entries(path)
        .into_iter()
        .map(|directory| directory.join(name))
        .find(|file| examine::is_dead_link(file))
        .map_or_else(String::new, |file| format!(" (`{}` is a dead link)", file.display()))
}

fn scratch(here: &Here) -> Finding {
    let id = "tmpdir";
    let named = here.environment.var_os(names::TMPDIR).filter(|value| !value.is_empty());
    let path = PathBuf::from(named.unwrap_or("/tmp".as_ref()));
    let shown = path.display();
    if path.is_absolute() && examine::takes_files(&path) {
        return Finding::new(id, Status::Ok, format!("`{shown}` can be written"));
    }
    let repair = match named {
        Some(_) => "unset TMPDIR, or let it name a directory that exists and can be written",
        None => "make `/tmp` a directory of mode 1777, or set TMPDIR",
    };
    Finding::new(id, Status::Warning, format!("scratch files cannot be made in `{shown}`"))
        .repair(repair)
}

fn search_path(here: &Here) -> Vec<Finding> {
    let id = "path";
    let Some(path) = here.environment.var_os(names::PATH).filter(|path| !path.is_empty()) else {
        return vec![
            Finding::new(id, Status::Warning, "PATH is not set, so no program is found")
                .repair("set PATH, for example to `/usr/local/bin:/usr/bin:/bin`"),
        ];
    };
    let entries = examine::entries(path);
    let project = here.project();
    let mut found = Vec::new();
    for entry in &entries {
        let shown = entry.display();
        let warn = |text: String| Finding::new(id, Status::Warning, text);
        if !entry.is_absolute() {
            found.push(
                warn(format!(
                    "the entry `{shown}` means another directory wherever kli starts, and a project \
                     can put a program there in the place of yours"
                ))
                .repair("write absolute paths into PATH"),
            );
        } else if project.iter().any(|project| entry.starts_with(project)) {
            found.push(
                warn(format!(
                    "the entry `{shown}` lies in the project, which can put a program there in the \
                     place of yours"
                ))
                .repair("take it out of PATH, or put it last"),
            );
        } else if !matches!(examine::content(entry), Content::Directory | Content::Empty) {
            found.push(
                warn(format!("the entry `{shown}` leads to no directory that can be listed"))
                    .repair(
                        "take it out of PATH; in a jail, look whether what it links to is shown",
                    ),
            );
        }
    }
    if found.is_empty() {
        found.push(Finding::new(id, Status::Ok, format!("{} entries, all there", entries.len())));
    }
    found
}

fn locale(here: &Here) -> Finding {
    let id = "locale";
    // In the order in which the C library takes them (locale(7)).
    let set = ["LC_ALL", "LC_CTYPE", "LANG"]
        .into_iter()
        .find_map(|name| here.environment.var(name).map(|value| (name, value)));
    let upper = set.map(|(_, value)| value.to_uppercase().replace('-', "")).unwrap_or_default();
    match set {
        Some((name, value)) if upper.contains("UTF8") => {
            Finding::new(id, Status::Ok, format!("{name}={value}"))
        }
        Some((name, value)) => {
            Finding::new(id, Status::Warning, format!("{name}={value} is no UTF-8 locale"))
                .repair("set LANG (and LC_ALL, when it is set) to `C.UTF-8`")
        }
        None => Finding::new(
            id,
            Status::Warning,
            "no locale is set, so some programs write `?` for what is not ASCII",
        )
        .repair("set LANG to `C.UTF-8`"),
    }
}
