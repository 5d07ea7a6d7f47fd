//! The scripts: templates with the specification put in. What is fixed is shell text beside this
//! file, so that it can be read and checked as such.

use crate::{
    config::names,
    sandbox::{
        facts::{KERNEL_FILES, RUN},
        plan::{
            environment::{ALWAYS, SESSION_VARIABLES},
            workspace::{SENSITIVE, SOURCES, SYSTEM, TOPS, WIDE},
        },
        spec::{Base, Git, Spec, SpecPath, Tmp},
    },
};

use super::{
    super::{args::RecipeKind, error::CliError},
    shell::{self, quoted},
};

const HEAD: &str = include_str!("templates/head.sh");
const MOUNTS: &str = include_str!("templates/mounts.sh");
const GIT: &str = include_str!("templates/git.sh");
const GIT_READ_ONLY: &str = include_str!("templates/git-read-only.sh");
const BWRAP: &str = include_str!("templates/bwrap.sh");
const CONTAINER: &str = include_str!("templates/container.sh");
const SYSTEMD: &str = include_str!("templates/systemd.sh");

/// What other tools than git keep that the host runs.
pub(super) const OTHER_REPOSITORIES: [&str; 2] = [".hg/hgrc", ".jj/repo/config.toml"];

/// What a container or a unit gets of the caller's: how the terminal and the language are.
const HANDED: [&str; 5] = ["COLORTERM", "LANG", "NO_COLOR", "TERM", "TZ"];
/// What a unit gets besides: the host is the same.
const HANDED_TO_A_UNIT: [&str; 4] = ["LOGNAME", "PATH", "SHELL", "USER"];

/// Returns the script of a kind.
///
/// # Errors
/// For what a script cannot do and may not leave out.
pub(super) fn text(kind: RecipeKind, spec: &Spec, lost: &[String]) -> Result<String, CliError> {
    check_names(spec)?;
    let body = match kind {
        RecipeKind::Bwrap => BWRAP,
        RecipeKind::SystemdRun => SYSTEMD,
        RecipeKind::Docker | RecipeKind::Podman | RecipeKind::Devcontainer => CONTAINER,
    };
    let git = match spec.git {
        Git::Commit => GIT,
        Git::ReadOnly => GIT_READ_ONLY,
        Git::Unprotected => "",
    };
    let [rw, ro, directory, file] = verbs(kind);
    let template = format!("{HEAD}\n{body}")
        .replace("@MOUNTS@\n", MOUNTS)
        .replace("@GIT@\n", git)
        .replace("@RW@", rw)
        .replace("@RO@", ro)
        .replace("@EMPTY_DIRECTORY@", directory)
        .replace("@EMPTY_FILE@", file);
    let notes =
        lines(lost.iter().map(|lost| format!("# - {}\n", lost.replace(char::is_control, "?"))));
    let mut values = vec![
        ("@KIND@", kind.name().to_owned()),
        ("@ENGINE@", kind.name().to_owned()),
        ("@VARIABLES@", variables_of(kind).to_owned()),
        ("@NOTES@\n", notes),
        ("@TOPS@", alternatives(TOPS.iter().map(|top| quoted(top)))),
        ("@SOURCES@", below(&SOURCES)),
        ("@SYSTEM@", alternatives([below(&SYSTEM), below(&["/usr"])])),
        ("@HOME_REFUSED@", home_refused(spec)),
        ("@HIDDEN_REFUSED@", hidden_refused(spec)),
        ("@WRITABLE@\n", writable(spec, rw)),
        ("@READ_ONLY@", words(spec.read_only_paths.iter().map(shell::word))),
        ("@HOLDERS@", words(holders(spec).iter().map(|holder| in_workspace(holder)))),
        ("@PROTECT@", words(protected(spec).iter().map(|path| in_workspace(path)))),
        ("@HIDDEN@", words(hidden(kind, spec)?)),
        ("@SOCKETS@", words(spec.allow_sockets.iter().map(shell::word))),
        ("@RUN@", run_entries(spec)),
        ("@ENV@", set_variables(kind, spec)),
        ("@ENV_FILES@", env_files(kind, spec)),
        ("@ENVIRONMENT@", environment(kind, spec)),
        (
            "@TMP_DIRECTORY@",
            match spec.tmp {
                Tmp::Private => String::new(),
                Tmp::HostSubdir => "mkdir -m 0700 \"$scratch/tmp\"\n".to_owned(),
            },
        ),
    ];
    values.extend(own(kind, spec));
    Ok(fill(&template, &values))
}

/// Puts every value in at its place, in one pass: what a value holds is not looked at again.
fn fill(text: &str, values: &[(&str, String)]) -> String {
    let mut out = String::new();
    let mut rest = text;
    loop {
        let next = values
            .iter()
            .filter_map(|(place, value)| rest.find(place).map(|at| (at, *place, value)))
            .min_by_key(|(at, ..)| *at);
        let Some((at, place, value)) = next else { break };
        let (before, after) = rest.split_at(at);
        out.push_str(before);
        out.push_str(value);
        rest = after.get(place.len()..).unwrap_or_default();
    }
    out.push_str(rest);
    out
}

/// How a kind makes `path` writable, read-only, an empty directory, an empty file.
fn verbs(kind: RecipeKind) -> [&'static str; 4] {
    match kind {
        RecipeKind::Bwrap => [
            "set -- \"$@\" --bind \"$path\" \"$path\"",
            "set -- \"$@\" --ro-bind \"$path\" \"$path\"",
            "set -- \"$@\" --ro-bind \"$scratch/directory\" \"$path\"",
            "set -- \"$@\" --ro-bind \"$scratch/file\" \"$path\"",
        ],
        RecipeKind::SystemdRun => [
            "escaped \"$path\" && set -- \"$@\" --property=BindPaths=\"$escaped\"",
            "escaped \"$path\" && set -- \"$@\" --property=BindReadOnlyPaths=\"$escaped\"",
            "escaped \"$path\" && set -- \"$@\" --property=BindReadOnlyPaths=\"$scratch/directory:$escaped\"",
            "escaped \"$path\" && set -- \"$@\" --property=BindReadOnlyPaths=\"$scratch/file:$escaped\"",
        ],
        RecipeKind::Docker | RecipeKind::Podman | RecipeKind::Devcontainer => [
            "sayable \"$path\" && bound=$bound$path// && set -- \"$@\" --mount \"type=bind,source=$path,target=$path\"",
            "sayable \"$path\" && bound=$bound$path// && set -- \"$@\" --mount \"type=bind,source=$path,target=$path,readonly\"",
            "sayable \"$path\" && set -- \"$@\" --mount \"type=bind,source=$scratch/directory,target=$path,readonly\"",
            "sayable \"$path\" && set -- \"$@\" --mount \"type=bind,source=$scratch/file,target=$path,readonly\"",
        ],
    }
}

fn variables_of(kind: RecipeKind) -> &'static str {
    match kind {
        RecipeKind::Bwrap | RecipeKind::SystemdRun => "",
        RecipeKind::Docker | RecipeKind::Podman | RecipeKind::Devcontainer => {
            "#   KLI_IMAGE    the image: a shell, git, and a C library that kli runs with\n"
        }
    }
}

/// What only one kind has.
fn own(kind: RecipeKind, spec: &Spec) -> Vec<(&'static str, String)> {
    let host_tmp = spec.tmp == Tmp::HostSubdir;
    let limits = spec.limits.unwrap_or_default();
    let limit = |option: &str, limit: Option<u64>| {
        limit.map(|limit| format!(" {option}{limit}")).unwrap_or_default()
    };
    match kind {
        RecipeKind::Bwrap => {
            let mut namespaces = String::new();
            if !spec.network {
                namespaces.push_str(" --unshare-net");
            }
            if !spec.allow_user_namespaces && !spec.nested_userns {
                namespaces.push_str(" --disable-userns");
            }
            let bounds = limit("--fsize=", limits.file_size) + &limit("--data=", limits.memory);
            let has_secrets = !(spec.secrets.is_empty() && spec.secret_env.is_empty());
            vec![
                ("@NAMESPACES@", namespaces),
                ("@PROC@", proc(spec)),
                (
                    "@TMP@",
                    if host_tmp {
                        "--bind \"$scratch/tmp\" /tmp".to_owned()
                    } else {
                        "--size $((size / 2)) --perms 1777 --tmpfs /tmp".to_owned()
                    },
                ),
                (
                    "@LIMITS@",
                    match bounds.as_str() {
                        "" => String::new(),
                        bounds => format!("prlimit{bounds} "),
                    },
                ),
                ("@SECRETS@", if has_secrets { secrets(spec) } else { String::new() }),
                ("@START@", if has_secrets { START_WITH_SECRETS } else { START }.to_owned()),
                ("@VISIBLE@", String::new()),
            ]
        }
        RecipeKind::SystemdRun => {
            let mut properties = String::new();
            if !spec.network {
                properties.push_str(" --property=PrivateNetwork=yes");
            }
            if !spec.allow_user_namespaces {
                properties.push_str(" --property=RestrictNamespaces=yes");
            }
            properties.push_str(&limit("--property=TasksMax=", limits.tasks));
            properties.push_str(&limit("--property=MemoryMax=", limits.memory));
            properties.push_str(&limit("--property=LimitFSIZE=", limits.file_size));
            // Where the home itself may be written, only the root can show that writing is refused.
            let home_is_writable = spec.allow_home_workspace
                || spec
                    .writable_paths
                    .iter()
                    .any(|path| path.base == Base::Home && path.rest.is_empty());
            vec![
                ("@PROPERTIES@", properties),
                (
                    "@TMP@",
                    if host_tmp {
                        "--property=BindPaths=\"$scratch/tmp:/tmp\"".to_owned()
                    } else {
                        "--property=TemporaryFileSystem=\"/tmp:size=$((size / 2)),mode=1777\""
                            .to_owned()
                    },
                ),
                ("@OUTSIDE@", if home_is_writable { "/" } else { "${home:-/}" }.to_owned()),
                ("@NETWORK@", if spec.network { "on" } else { "off" }.to_owned()),
                ("@MANAGER@", manager(spec)),
                ("@VISIBLE@", String::new()),
            ]
        }
        RecipeKind::Docker | RecipeKind::Podman | RecipeKind::Devcontainer => {
            let mut options = String::new();
            if !spec.network {
                options.push_str(" --network none");
            }
            options.push_str(" --user \"$uid:$(id -g)\"");
            if kind == RecipeKind::Podman {
                options.push_str(" --read-only-tmpfs=false");
            }
            options.push_str(&limit("--pids-limit ", limits.tasks));
            options.push_str(&limit("--memory ", limits.memory));
            options.push_str(&limit("--ulimit fsize=", limits.file_size));
            vec![
                ("@OPTIONS@", options),
                (
                    "@USER_NAMESPACE@",
                    if kind == RecipeKind::Podman {
                        "# An ordinary user keeps the own number, so that files have their owner.\n\
                     if [ \"$uid\" != 0 ]; then set -- \"$@\" --userns keep-id; fi\n"
                            .to_owned()
                    } else {
                        String::new()
                    },
                ),
                (
                    "@TMP@",
                    if host_tmp {
                        "--mount \"type=bind,source=$scratch/tmp,target=/tmp\"".to_owned()
                    } else {
                        "--tmpfs \"/tmp:rw,exec,nosuid,nodev,mode=1777,size=$((size / 2))\""
                            .to_owned()
                    },
                ),
                (
                    "@VISIBLE@",
                    "# What is not shown needs no hiding.\n  \
                    within \"$bound\" \"$path\" || continue\n  "
                        .to_owned(),
                ),
            ]
        }
    }
}

const START: &str = "\"$@\" <&3 3<&- 4>\"$scratch/info\" &";

/// The keys go through a pipe that kli empties and closes before it does anything else.
const START_WITH_SECRETS: &str = "\
if [ -n \"$secrets\" ]; then
  printf '{%s}' \"${secrets#,}\" | \"$@\" 9<&0 <&3 3<&- 4>\"$scratch/info\" &
else
  \"$@\" <&3 3<&- 4>\"$scratch/info\" &
fi";

fn proc(spec: &Spec) -> String {
    if spec.nested_userns {
        return "# The outer /proc: a fresh one is refused where it is masked.\n\
                set -- \"$@\" --ro-bind /proc /proc"
            .to_owned();
    }
    let files = words(KERNEL_FILES.iter().map(|name| format!("/proc/{name}")));
    format!(
        "# Root could write the kernel's switches without any capability.\n\
         set -- \"$@\" --proc /proc\n\
         for wish in {files}; do\n  \
         if [ -e \"$wish\" ]; then set -- \"$@\" --ro-bind \"$wish\" \"$wish\"; fi\n\
         done"
    )
}

fn run_entries(spec: &Spec) -> String {
    words(
        RUN.iter().filter(|(_, resolver)| spec.network || !resolver).map(|(path, _)| quoted(path)),
    )
}

fn secrets(spec: &Spec) -> String {
    let mut text = "\
# Keys, for kli alone: one JSON object.
secrets=
secret() {
  case $2 in
    *[[:cntrl:]]*) die \"the value of \\`$1\\` holds a control character, which is no key's\" ;;
  esac
  secrets=\"$secrets,\\\"$1\\\":\\\"$(printf '%s' \"$2\" | sed 's/[\\\\\"]/\\\\&/g')\\\"\"
}
"
    .to_owned();
    for (name, path) in &spec.secrets {
        let file = shell::word(path);
        text.push_str(&read_file(&file, &name.0));
        text.extend(["secret ", &quoted(&name.0), " \"$value\"\n"]);
    }
    for name in &spec.secret_env {
        let name = &name.0;
        text += &lines([format!("[ -z \"${{{name}-}}\" ] || secret {name} \"${name}\"\n")]);
    }
    text + "unset value\nif [ -n \"$secrets\" ]; then set -- KLI_SECRETS_FD=9 \"$@\"; fi\n"
}

/// Lines that read a file into `value`, without its final line feed.
fn read_file(file: &str, name: &str) -> String {
    format!(
        "value=$(cat -- {file} && printf x) || die {}\n\
         value=${{value%x}}\n\
         value=${{value%\"$newline\"}}\n",
        quoted(&format!(
            "the file of `{name}` cannot be read: make it, or take it out of the specification"
        ))
    )
}

fn env_files(kind: RecipeKind, spec: &Spec) -> String {
    spec.env_files
        .iter()
        .map(|(name, path)| {
            let name = &name.0;
            let set =
                format!("{}{name}=$value\nexport {name}\n", read_file(&shell::word(path), name));
            match kind {
                RecipeKind::Bwrap => set,
                RecipeKind::SystemdRun => format!("{set}set -- \"$@\" --setenv={name}\n"),
                RecipeKind::Docker | RecipeKind::Podman | RecipeKind::Devcontainer => {
                    format!("{set}set -- \"$@\" --env {name}\n")
                }
            }
        })
        .collect()
}

/// The variables of `env`, as words of the command.
fn set_variables(kind: RecipeKind, spec: &Spec) -> String {
    spec.env
        .iter()
        .map(|(name, value)| {
            let pair = quoted(&format!("{}={value}", name.0));
            match kind {
                RecipeKind::Bwrap => format!(" {pair}"),
                RecipeKind::SystemdRun => format!(" --setenv={pair}"),
                RecipeKind::Docker | RecipeKind::Podman | RecipeKind::Devcontainer => {
                    format!(" --env {pair}")
                }
            }
        })
        .collect()
}

/// The arms of a `case` over the caller's variables.
fn environment(kind: RecipeKind, spec: &Spec) -> String {
    let (drop, keep) = match kind {
        RecipeKind::Bwrap => ("set -- -u \"$name\" \"$@\"", ""),
        RecipeKind::SystemdRun => ("", "set -- \"$@\" --setenv=\"$name\""),
        RecipeKind::Docker | RecipeKind::Podman | RecipeKind::Devcontainer => {
            ("", "set -- \"$@\" --env \"$name\"")
        }
    };
    let mut text = arm(settled(spec), "");
    text.push_str(&arm(denied(spec), drop));
    text.push_str(&arm(session(), drop));
    if kind == RecipeKind::Bwrap {
        if let Some(pass) = &spec.pass_env {
            text.push_str(&arm(shell::variables(pass), keep));
            text.push_str(&arm(minimum(), keep));
            text.extend(["    *) ", drop, " ;;\n"]);
        }
        return text;
    }
    // Nothing of the caller's comes along by itself. Of a unit the host is the caller's own.
    let further: &[&str] = if kind == RecipeKind::SystemdRun { &HANDED_TO_A_UNIT } else { &[] };
    let mut handed: Vec<String> = HANDED.iter().chain(further).map(|name| quoted(name)).collect();
    handed.push("'LC_'*".to_owned());
    match &spec.pass_env {
        Some(pass) => handed.extend(shell::variables(pass)),
        None => handed.extend(
            names::SECRET
                .iter()
                .map(|name| quoted(name))
                .chain([quoted(names::ANTHROPIC_BASE_URL), quoted(names::OPENAI_BASE_URL)]),
        ),
    }
    text.push_str(&arm(handed, keep));
    text
}

/// The arms of a `case` over the variables of the manager, which a unit gets besides.
fn manager(spec: &Spec) -> String {
    let drop = "set -- \"$@\" --property=UnsetEnvironment=\"$name\"";
    let mut text = arm(settled(spec), "");
    text.push_str(&arm(denied(spec), drop));
    text.push_str(&arm(session(), drop));
    if let Some(pass) = &spec.pass_env {
        text.push_str(&arm(shell::variables(pass), ""));
        text.push_str(&arm(minimum(), ""));
        text.extend(["    *) ", drop, " ;;\n"]);
    }
    text
}

fn arm(patterns: Vec<String>, then: &str) -> String {
    if patterns.is_empty() {
        return String::new();
    }
    let then = if then.is_empty() { String::new() } else { format!("{then} ") };
    format!("    {}) {then};;\n", alternatives(patterns))
}

/// What the specification itself sets.
fn settled(spec: &Spec) -> Vec<String> {
    spec.env.keys().chain(spec.env_files.keys()).map(|name| quoted(&name.0)).collect()
}

fn denied(spec: &Spec) -> Vec<String> {
    let keys = spec.secret_env.iter().chain(spec.secrets.keys()).map(|name| quoted(&name.0));
    shell::variables(&spec.deny_env).into_iter().chain(keys).collect()
}

fn session() -> Vec<String> {
    let further = ["DISPLAY", "TEMP", "TMP"];
    SESSION_VARIABLES.iter().chain(&further).map(|name| quoted(name)).collect()
}

/// What `passEnv` keeps besides what it names.
fn minimum() -> Vec<String> {
    let pattern = |name: &&str| match name.strip_suffix('*') {
        Some(start) => format!("{}*", quoted(start)),
        None => quoted(name),
    };
    ALWAYS.iter().map(pattern).collect()
}

fn hidden(kind: RecipeKind, spec: &Spec) -> Result<Vec<String>, CliError> {
    let mut hidden: Vec<String> = spec.deny_read.iter().flat_map(shell::hidden).collect();
    for pattern in &spec.deny_read_globs {
        let patterns = shell::patterns(pattern).map_err(|because| {
            CliError::config(format!(
                "`denyReadGlobs`: `{}` cannot be part of a recipe: {because}",
                pattern.text.replace(char::is_control, "?")
            ))
        })?;
        hidden.extend(patterns);
    }
    hidden.extend(spec.secrets.values().flat_map(shell::hidden));
    hidden.extend(["\"$home\"/.Xauthority".to_owned(), "\"$account\"/.Xauthority".to_owned()]);
    let on_the_host = matches!(kind, RecipeKind::Bwrap | RecipeKind::SystemdRun);
    if on_the_host && !spec.allow_nix_daemon {
        hidden.push("/nix/var/nix/daemon-socket".to_owned());
    }
    Ok(hidden)
}

fn writable(spec: &Spec, rw: &str) -> String {
    let paths = spec.writable_paths.iter();
    let mut text = lines(paths.map(|path| format!("writable {}\n{rw}\n", shell::pair(path))));
    if spec.state_dir {
        text.extend(["# kli's sessions.\nwritable \"$xdg_state\" kli\n", rw, "\n"]);
    }
    text
}

/// What is read-only in the workspace, besides git's own.
fn protected(spec: &Spec) -> Vec<String> {
    let mut paths: Vec<String> = spec.protect.iter().map(|path| path.rest.clone()).collect();
    if spec.git != Git::Unprotected {
        paths.extend(OTHER_REPOSITORIES.map(str::to_owned));
    }
    paths
}

/// The directories between the workspace and what is protected, outermost first.
fn holders(spec: &Spec) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for path in protected(spec) {
        for (at, _) in path.match_indices('/') {
            let holder = path.get(..at).unwrap_or_default().to_owned();
            if !found.contains(&holder) {
                found.push(holder);
            }
        }
    }
    found
}

fn in_workspace(rest: &str) -> String {
    shell::word(&SpecPath { base: Base::Workspace, rest: rest.to_owned(), text: String::new() })
}

fn home_refused(spec: &Spec) -> String {
    if spec.allow_home_workspace {
        return String::new();
    }
    " die \"\\`$workspace\\` cannot be the workspace, it is the home: $elsewhere, or set \\`allowHomeWorkspace\\`\""
        .to_owned()
}

fn hidden_refused(spec: &Spec) -> String {
    if spec.allow_home_workspace {
        return String::new();
    }
    let narrow = SENSITIVE
        .iter()
        .flat_map(|name| [format!("\"$path\"/{name}"), format!("\"$path\"/{name}/*")])
        .chain(WIDE.iter().map(|name| format!("\"$path\"/{name}")));
    let die = "die \"\\`$workspace\\` cannot be the workspace, programs keep settings and keys there: $elsewhere, or set \\`allowHomeWorkspace\\`\"";
    format!(
        "\n  case $workspace in\n    {})\n      {die} ;;\n    \"$path\"/.*/*) ;;\n    \"$path\"/.*) {die} ;;\n  esac",
        alternatives(narrow)
    )
}

/// A pattern of `case` for directories and all that is below them.
fn below(directories: &[&str]) -> String {
    alternatives(directories.iter().map(|directory| format!("{directory} | {directory}/*")))
}

fn alternatives(patterns: impl IntoIterator<Item = String>) -> String {
    patterns.into_iter().collect::<Vec<_>>().join(" | ")
}

fn lines(lines: impl IntoIterator<Item = String>) -> String {
    lines.into_iter().collect::<Vec<_>>().concat()
}

fn words(words: impl IntoIterator<Item = String>) -> String {
    words.into_iter().collect::<Vec<_>>().join(" ")
}

/// Refuses names that a script cannot hold in a variable of its own.
fn check_names(spec: &Spec) -> Result<(), CliError> {
    for (key, name) in spec
        .env_files
        .keys()
        .map(|name| ("envFiles", name))
        .chain(spec.secret_env.iter().map(|name| ("secretEnv", name)))
    {
        if !shell::can_hold(&name.0) {
            return Err(CliError::config(format!(
                "`{key}`: `{}` cannot be part of a recipe: a script takes names of capital letters, digits and `_`, and none of its own",
                name.0.replace(char::is_control, "?")
            )));
        }
    }
    Ok(())
}
