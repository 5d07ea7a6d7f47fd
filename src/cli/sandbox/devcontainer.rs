//! The dev container: a description for editors, and what its image is built from. It is data, so
//! what depends on the machine is looked up once, in the current directory, when it is made.

use serde_json::{Map, Value, json};

use crate::{
    host::environment,
    sandbox::spec::{Base, Git, Spec, SpecPath, Xdg},
};

use super::{super::error::CliError, script::OTHER_REPOSITORIES};

const DOCKERFILE: &str = include_str!("templates/Dockerfile");

/// The home inside.
const HOME: &str = "/home/kli";
/// The workspace inside: where it is outside, so that sessions belong together.
const WORKSPACE: &str = "${localWorkspaceFolder}";
/// Where the recipe lies in the workspace.
const OWN: &str = ".devcontainer";

/// Returns the files, `devcontainer.json` first.
///
/// # Errors
/// For a path that a mount cannot name, or a hidden one that holds the workspace.
pub(super) fn files(spec: &Spec, lost: &[String]) -> Result<Vec<(&'static str, String)>, CliError> {
    let comments: Vec<String> = lost
        .iter()
        .map(|line| format!("//  - {}\n", line.replace(char::is_control, "?")))
        .collect();
    let comments = comments.concat();
    let body = serde_json::to_string_pretty(&description(spec)?)
        .map_err(|error| CliError::internal(format!("cannot print the description: {error}")))?;
    let text = format!(
        "// kli in a dev container. Made by `kli sandbox recipe devcontainer` from a specification; make\n\
         // it anew when the specification changes. `{OWN}` itself is read-only inside, since the editor\n\
         // obeys it outside.\n//\n\
         // What it does not keep, compared with `kli-sandbox run` on the same specification:\n\
         {comments}{body}\n"
    );
    Ok(vec![
        ("devcontainer.json", text),
        ("Dockerfile", DOCKERFILE.to_owned()),
        (".gitignore", "# kli's own program, copied here for the image.\n/kli\n".to_owned()),
        ("empty", String::new()),
    ])
}

fn description(spec: &Spec) -> Result<Value, CliError> {
    let mut options = vec![
        "--read-only".to_owned(),
        "--cap-drop=ALL".to_owned(),
        "--security-opt=no-new-privileges".to_owned(),
        "--ipc=private".to_owned(),
        "--tmpfs=/tmp:rw,exec,nosuid,nodev,mode=1777".to_owned(),
        // What an editor installs.
        format!("--tmpfs={HOME}/.vscode-server:rw,exec,nosuid,nodev,mode=1777"),
    ];
    if !spec.network {
        options.push("--network=none".to_owned());
    }
    if let Some(limits) = spec.limits {
        options.extend(limits.tasks.map(|tasks| format!("--pids-limit={tasks}")));
        options.extend(limits.memory.map(|bytes| format!("--memory={bytes}")));
        options.extend(limits.file_size.map(|bytes| format!("--ulimit=fsize={bytes}")));
    }
    let mut variables = Map::new();
    for (name, value) in &spec.env {
        variables.insert(name.0.clone(), Value::String(value.replace("${", "$ {")));
    }
    let of_the_terminal = ["COLORTERM", "LANG", "NO_COLOR", "TZ"].map(str::to_owned);
    let passed = match &spec.pass_env {
        Some(names) => {
            let whole = names.iter().filter(|name| !name.is_prefix());
            whole.map(|name| name.name().to_owned()).collect()
        }
        None => of_the_terminal.to_vec(),
    };
    for name in passed {
        let denied = spec.deny_env.iter().any(|pattern| pattern.matches(name.as_bytes()));
        if !denied && !variables.contains_key(&name) {
            let value = Value::String(format!("${{localEnv:{name}}}"));
            variables.insert(name, value);
        }
    }
    let made = made_first(spec)?;
    let mut command = vec!["mkdir".to_owned(), "-p".to_owned(), "-m".to_owned(), "0700".to_owned()];
    command.extend(made);
    Ok(json!({
        "$schema": "https://raw.githubusercontent.com/devcontainers/spec/main/schemas/devContainer.schema.json",
        "name": "kli",
        "build": { "dockerfile": "Dockerfile", "context": "." },
        "workspaceFolder": WORKSPACE,
        "workspaceMount": bind(WORKSPACE, WORKSPACE, false),
        "initializeCommand": command,
        "mounts": mounts(spec)?,
        "runArgs": options,
        "containerEnv": variables,
        "remoteUser": "kli",
        "updateRemoteUserUID": true,
        "init": true,
        "privileged": false,
        "overrideCommand": true,
        "shutdownAction": "stopContainer",
        "postStartCommand": ["kli", "--version"],
    }))
}

fn bind(from: &str, to: &str, read_only: bool) -> String {
    format!("type=bind,source={from},target={to}{}", if read_only { ",readonly" } else { "" })
}

/// What is made on the host before the container: its own directories, and missing writable ones.
fn made_first(spec: &Spec) -> Result<Vec<String>, CliError> {
    let mut made = vec!["${localEnv:HOME}/.config/kli".to_owned()];
    if spec.state_dir {
        made.push("${localEnv:HOME}/.local/state/kli".to_owned());
    }
    for path in spec.writable_paths.iter().filter(|path| path.base != Base::Root) {
        made.push(places(path)?.0);
    }
    Ok(made)
}

/// The mounts, in the order of their depth, as an engine makes them.
fn mounts(spec: &Spec) -> Result<Vec<String>, CliError> {
    let mut mounts = Vec::new();
    for path in &spec.writable_paths {
        let (from, to) = places(path)?;
        mounts.push(bind(&from, &to, false));
    }
    if spec.state_dir {
        let below = ".local/state/kli";
        mounts.push(bind(
            &format!("${{localEnv:HOME}}/{below}"),
            &format!("{HOME}/{below}"),
            false,
        ));
    }
    let below = ".config/kli";
    mounts.push(bind(&format!("${{localEnv:HOME}}/{below}"), &format!("{HOME}/{below}"), true));
    for path in spec.read_only_paths.iter().chain(&spec.allow_sockets) {
        if spec.allow_sockets.contains(path) || is_there(path).is_some() {
            let (from, to) = places(path)?;
            mounts.push(bind(&from, &to, true));
        }
    }
    for (rest, read_only) in protected(spec) {
        let path = in_workspace(&rest);
        if is_there(&path).is_some() {
            let (from, to) = places(&path)?;
            mounts.push(bind(&from, &to, read_only));
        }
    }
    mounts.push(bind(&format!("{WORKSPACE}/{OWN}"), &format!("{WORKSPACE}/{OWN}"), true));
    for path in spec.deny_read.iter().chain(spec.secrets.values()) {
        // What is not mounted is not there.
        let shown = path.base == Base::Workspace
            || spec.writable_paths.iter().chain(&spec.read_only_paths).any(|other| {
                other.base == path.base
                    && (other.rest.is_empty()
                        || path.rest == other.rest
                        || path.rest.starts_with(&format!("{}/", other.rest)))
            });
        if path.base == Base::Workspace && path.rest.is_empty() {
            return Err(CliError::config("`denyRead` hides the workspace: name what is in it"));
        }
        if !shown {
            continue;
        }
        let (_, to) = places(path)?;
        match is_there(path) {
            Some(true) => mounts.push(format!("type=tmpfs,target={to},ro")),
            Some(false) => mounts.push(bind(&format!("{WORKSPACE}/{OWN}/empty"), &to, true)),
            None => {}
        }
    }
    Ok(mounts)
}

/// What is bound onto itself in the workspace, and whether read-only: a directory before what it
/// holds, since one that is no mount could be renamed.
fn protected(spec: &Spec) -> Vec<(String, bool)> {
    let mut found: Vec<(String, bool)> = Vec::new();
    let mut paths: Vec<String> = spec.protect.iter().map(|path| path.rest.clone()).collect();
    match spec.git {
        Git::Commit => {
            let parts = [
                "config",
                "config.worktree",
                "commondir",
                "gitdir",
                "hooks",
                "info",
                "modules",
                "worktrees",
            ];
            paths.extend(parts.map(|part| format!(".git/{part}")));
        }
        Git::ReadOnly => paths.push(".git".to_owned()),
        Git::Unprotected => {}
    }
    if spec.git != Git::Unprotected {
        paths.extend(OTHER_REPOSITORIES.map(str::to_owned));
    }
    for path in paths {
        for (at, _) in path.match_indices('/') {
            let holder = (path.get(..at).unwrap_or_default().to_owned(), false);
            if !found.contains(&holder) && is_there(&in_workspace(&path)).is_some() {
                found.push(holder);
            }
        }
        found.push((path, true));
    }
    found
}

fn in_workspace(rest: &str) -> SpecPath {
    SpecPath { base: Base::Workspace, rest: rest.to_owned(), text: rest.to_owned() }
}

/// Whether a path is there now, and whether it is a directory.
fn is_there(path: &SpecPath) -> Option<bool> {
    let here = environment::current_directory().ok()?;
    let from = match path.base {
        Base::Root => std::path::PathBuf::from("/"),
        Base::Workspace => here,
        Base::Home => environment::Environment::read().home()?,
        Base::Xdg(xdg) => environment::Environment::read().home()?.join(xdg.below_home()?),
    };
    let path = from.join(&path.rest);
    environment::exists(&path).then(|| environment::exists(&path.join(".")))
}

/// Where a path is outside and inside.
fn places(path: &SpecPath) -> Result<(String, String), CliError> {
    if path.rest.contains([',', '"', '=', '$']) || path.rest.contains(char::is_control) {
        return Err(CliError::config(format!(
            "`{}` holds a character that a mount of a dev container cannot name: rename it",
            path.text.replace(char::is_control, "?")
        )));
    }
    let (from, to) = match path.base {
        Base::Root => (String::new(), String::new()),
        Base::Workspace => (WORKSPACE.to_owned(), WORKSPACE.to_owned()),
        Base::Home => ("${localEnv:HOME}".to_owned(), HOME.to_owned()),
        Base::Xdg(Xdg::Runtime) => {
            ("${localEnv:XDG_RUNTIME_DIR}".to_owned(), "/run/user/1000".to_owned())
        }
        Base::Xdg(xdg) => {
            let below = xdg.below_home().unwrap_or_default();
            (format!("${{localEnv:HOME}}/{below}"), format!("{HOME}/{below}"))
        }
    };
    let join = |start: String| match path.rest.as_str() {
        "" => start,
        rest => format!("{start}/{rest}"),
    };
    Ok((join(from), join(to)))
}
