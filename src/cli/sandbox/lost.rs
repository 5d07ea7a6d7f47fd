//! What a recipe does not keep, a sentence each: what no recipe of its kind can, and what the keys
//! of this specification ask for besides. Nothing that is weaker than `kli-sandbox run` is left out.

use crate::sandbox::spec::{Base, EnvPattern, Git, Limits, Spec, Tmp};

use super::super::args::RecipeKind;

/// Returns the sentences for a kind and a specification.
pub(super) fn of(kind: RecipeKind, spec: &Spec) -> Vec<String> {
    let mut lost: Vec<String> = always(kind).iter().map(|line| (*line).to_owned()).collect();
    let mut say = |line: &str| lost.push(line.to_owned());
    let container = matches!(kind, RecipeKind::Docker | RecipeKind::Podman);
    let on_the_host = matches!(kind, RecipeKind::Bwrap | RecipeKind::SystemdRun);
    let editor = kind == RecipeKind::Devcontainer;

    if on_the_host || !(spec.deny_read.is_empty() && spec.deny_read_globs.is_empty()) {
        say(
            "denyRead: what is there at the start is hidden, by every name that leads there through symbolic \
             links. A name that appears later, that the host replaces, or that another mount or a hard link \
             gives, shows its content; /proc/self/mountinfo lists the names",
        );
    }
    if !spec.deny_read_globs.is_empty() && editor {
        say("denyReadGlobs: not kept, a dev container has no patterns: name the files in denyRead");
    } else if !spec.deny_read_globs.is_empty() {
        say("denyReadGlobs: expanded by the shell at the start, unbounded");
    }
    if spec.writable_paths.iter().any(|path| path.base != Base::Workspace) || spec.state_dir {
        say(
            "writablePaths, stateDir: a path that goes through a symbolic link is refused, but nothing keeps \
             a jail that runs at the same moment from swapping a directory between the look and the mount",
        );
    }
    if !spec.read_only_paths.is_empty() {
        say(
            "readOnlyPaths: what is absent at the start is not made read-only when it appears; a writable path \
             inside a read-only one is read-only",
        );
    }
    match spec.git {
        Git::Commit if editor => say(
            "git: hooks and config that are there when the recipe is made are read-only; the rest of the \
             repository's own files that the host obeys is not",
        ),
        Git::Commit => say(
            "git: a `commondir`, `gitdir` or `config.worktree` that is not there can be planted; `info`, \
             `modules` and `worktrees` are read-only as wholes, so submodules take no commits; an absent \
             `hooks` directory is made, empty; in a linked worktree git is read-only; a repository deeper in \
             the workspace, or made later, is not protected; nothing puts a protection back that the host \
             replaces",
        ),
        Git::ReadOnly => {
            say("git: a repository deeper in the workspace, or made later, is not protected");
        }
        Git::Unprotected => {}
    }
    if !spec.protect.is_empty() {
        say("protect: what is absent at the start can be made inside");
    }
    let keys = !(spec.secrets.is_empty() && spec.secret_env.is_empty());
    match kind {
        RecipeKind::Bwrap if keys => say(
            "secrets, secretEnv: kept when kli itself is started, which empties the pipe; the script and its \
             children outside hold the values while it starts",
        ),
        RecipeKind::Bwrap => {}
        _ if keys => say(
            "secrets, secretEnv: not handed over, so kli has no such key inside; the files are hidden and the \
             variables taken away. Use `keyFile` or `kli auth set`",
        ),
        _ => {}
    }
    if kind == RecipeKind::Bwrap || !keys {
        say(
            "keys: a provider's key in a variable stays readable in the environment of process 1 or of the \
             unit, for commands as well; with bubblewrap, `secretEnv` takes it away",
        );
    }
    if !spec.local_ports.is_empty() {
        say("localPorts: not kept: with `network` false no port of the host is reachable");
    }
    if on_the_host {
        say("sockets: /run is replaced; a socket or pipe elsewhere (home, /var) stays usable");
    }
    if spec.network && on_the_host && !spec.allow_abstract_sockets {
        say(
            "allowAbstractSockets: with the network on, abstract Unix sockets of the host are reachable",
        );
    }
    if spec.allow_abstract_sockets && !on_the_host {
        say("allowAbstractSockets: not kept: a container has its own");
    }
    if spec.allow_nix_daemon && !on_the_host {
        say("allowNixDaemon: not kept: nothing of Nix is in a container");
    }
    if editor && !spec.allow_sockets.is_empty() {
        say(
            "allowSockets: bound when they are there; a container that is started without one of them fails",
        );
    }
    if spec.nested_userns {
        match kind {
            RecipeKind::Bwrap => say(
                "nestedUserns: kept; the outer /proc is read-only as a whole, and nothing forbids further \
                 user namespaces inside",
            ),
            _ => say("nestedUserns: means nothing here"),
        }
    }
    if spec.allow_user_namespaces && (container || editor) {
        say("allowUserNamespaces: not kept: the engine's own filter forbids them");
    }
    if spec.tmp == Tmp::HostSubdir && editor {
        say("tmp: not kept: /tmp is in memory");
    }
    if editor {
        if !spec.env_files.is_empty() {
            say("envFiles: not kept: set the variables in the editor");
        }
        if spec.pass_env.as_ref().is_some_and(|names| names.iter().any(EnvPattern::is_prefix)) {
            say("passEnv: only whole names come along, none by their start");
        }
        if spec.allow_home_workspace {
            say("allowHomeWorkspace: means nothing here, the workspace is what the editor opens");
        }
    }
    if let Some(limits) = spec.limits {
        limits_lost(kind, limits, &mut say);
    }
    lost
}

fn limits_lost(kind: RecipeKind, limits: Limits, say: &mut impl FnMut(&str)) {
    if kind == RecipeKind::Bwrap {
        if limits.tasks.is_some() {
            say("limits.tasks: not kept: bubblewrap counts no processes");
        }
        if limits.memory.is_some() {
            say("limits.memory: binds each process, not all of them together");
        }
    } else if kind == RecipeKind::SystemdRun && (limits.memory.is_some() || limits.tasks.is_some())
    {
        say(
            "limits.memory, limits.tasks: kept where the manager has the memory and pids controllers",
        );
    }
}

/// What a kind never keeps.
fn always(kind: RecipeKind) -> &'static [&'static str] {
    match kind {
        RecipeKind::Bwrap => &[
            "system calls: no filter; keyrings, io_uring, bpf and setuid bits in the workspace are left to the \
             kernel. The session keyring is the caller's",
            "the terminal: where the kernel allows terminal injection, the inside is a session of its own, and \
             ^Z and resizing do not reach it",
            "death: TERM is forwarded once, and a second one ends everything; there is no end after ten \
             seconds",
            "descriptors: only 3 to 9 are closed; start the script without others",
            "mounts: what the host mounts later appears inside",
            "environment: a variable that points below /tmp or /run is not corrected",
            "the report at exit, and /run/kli/sandbox.json: absent",
        ],
        RecipeKind::Docker | RecipeKind::Podman => &[
            "view: the image is what can be read, not the host; of the host only what is mounted is there",
            "keys and names in the options can be read by whoever may ask the engine",
            "death: a KILL of this script or of the engine's client leaves the container running",
            "network: the container's own; with it on, the engine's bridge and what listens there is reachable",
            "the report at exit, and /run/kli/sandbox.json: absent",
        ],
        RecipeKind::SystemdRun => &[
            "processes: the unit sees the names and command lines of the host's processes, not their \
             environment or memory, and can send signals to those of its user",
            "devices: an ordinary user's unit has the host's /dev, as far as its user may",
            "death: a KILL of this script leaves the unit running; `systemctl --user stop 'kli-recipe-*'` ends it",
            "the terminal: no job control with a pipe",
            "names that hold a line feed are refused",
            "the report at exit, and /run/kli/sandbox.json: absent",
        ],
        RecipeKind::Devcontainer => &[
            "view: the image is what can be read, not the host; what is absent when the recipe is made is not \
             protected later",
            "the workspace is what the editor opens, be it the home",
            "the editor: it may hand the container your SSH agent, git credentials and its own terminal; look \
             at its settings",
            "the XDG variables are not read: kli's directories are below the home",
            "network: the container's own; with it off, an editor cannot install its server",
            "the report at exit, and /run/kli/sandbox.json: absent",
        ],
    }
}
