//! Specification and facts in, an ordered list of mounts and an environment out.
//!
//! Pure. The order of [`Plan::mounts`] is the order in which they win: what comes later covers
//! what comes before. Masks come last, so nothing lifts one, whatever the lists say and in
//! whatever order (law 2). A later law is a further mount with its reason, or a further refusal.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::facts::{Facts, Writable};
use super::sorted;
use super::spec::{EnvPattern, Spec};
use super::{INNER, MARKER, MASKS};

mod around;
pub mod environment;
mod held;
mod hidden;
pub mod kernel;
mod marker;
mod read_only;
mod sockets;
mod tmp;
pub mod workspace;
mod writable;

pub use environment::Handed;
pub use hidden::{Name, NameKind, Overlay, Rebind};
pub(super) use tmp::INNER as TMP_INNER;

/// What one start asks for besides the specification. It can only narrow.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Request {
    /// The program to run.
    pub program: OsString,
    /// Its arguments.
    pub arguments: Vec<OsString>,
    /// Further paths to hide.
    pub deny: Vec<OsString>,
    /// Further variables to remove.
    pub deny_env: Vec<EnvPattern>,
    /// Whether to cut the network whatever the specification says.
    pub no_network: bool,
}

/// What the jail shall be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// False: an own network namespace.
    pub network: bool,
    /// Whether bubblewrap forbids further user namespaces inside.
    pub disable_userns: bool,
    /// What the kernel refuses to the inside besides mounts.
    pub kernel: kernel::Surface,
    /// The physical workspace, the current directory inside.
    pub workspace: PathBuf,
    /// Directories to create on the host before the start, outermost first.
    pub create: Vec<Create>,
    /// The overlays that the launcher makes before anything else, outermost first (law 2).
    pub overlays: Vec<Overlay>,
    /// What it shows over them as it is on the host, outermost first.
    pub rebinds: Vec<Rebind>,
    /// The mounts; a later one wins.
    pub mounts: Vec<Mount>,
    /// What is absent now and becomes the kind of mount that is named here as soon as it appears.
    pub awaited: Vec<Mount>,
    /// The number of names that are hidden, or kept absent; sockets and pipes are not among them.
    pub hidden: usize,
    /// TCP ports of the host's loopback that are reachable inside.
    pub ports: Vec<u16>,
    /// The whole environment of the inside, but for what `handed` names.
    pub environment: Vec<(OsString, OsString)>,
    /// Variables and keys whose values come to it at the start.
    pub handed: Handed,
    /// The directory of this run on disk that is `/tmp` inside; made at the start.
    pub tmp: Option<PathBuf>,
    /// The names that were taken out of it, each with its reason.
    pub removed: Vec<(OsString, &'static str)>,
    /// The names that were given another value.
    pub corrected: Vec<OsString>,
    /// What the user shall know, a sentence each; printed by `explain`.
    pub notes: Vec<String>,
    /// What the inside may know, the text of [`MARKER`].
    pub marker: String,
}

/// A directory to make, and how many components of it are missing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Create {
    /// The physical path.
    pub path: PathBuf,
    /// The number of its last components that do not exist.
    pub missing: usize,
}

/// One mount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    /// The physical path inside.
    pub destination: PathBuf,
    /// What is mounted there.
    pub kind: Kind,
    /// Why, in words.
    pub reason: String,
}

/// What is mounted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    /// The same path of the host, read-only.
    ReadOnly,
    /// Another path of the host, read-only.
    ReadOnlyFrom(PathBuf),
    /// The same path of the host, writable.
    Writable,
    /// Another path of the host, writable.
    WritableFrom(PathBuf),
    /// An empty file system in memory.
    Tmpfs {
        /// Permission bits of its root.
        mode: u32,
        /// Its size in bytes.
        size: u64,
    },
    /// A minimal `/dev`.
    Dev,
    /// A `/proc` of the own PID namespace.
    Proc,
    /// An empty directory on what is mounted there already.
    Directory {
        /// Permission bits.
        mode: u32,
    },
    /// A symbolic link on what is mounted there already.
    Link(PathBuf),
    /// A file with the text of [`Plan::marker`].
    Marker,
    /// What is mounted there becomes read-only.
    Seal,
    /// The same path, read-only inside what is writable; made by the launcher before bubblewrap
    /// and put back when the host replaces the name.
    Protect,
    /// Bound onto itself, so that it cannot be renamed or removed; as writable as it was.
    Pin,
    /// An empty read-only regular file over what is there.
    MaskFile,
    /// An empty read-only directory over what is there.
    MaskDirectory,
    /// Only awaited: an empty read-only file that stands there for the time of the run.
    EmptyFile,
    /// Only awaited: an empty read-only directory that stands there for the time of the run.
    EmptyDirectory,
    /// Only awaited: what may not appear; the run ends.
    Forbidden,
    /// Only awaited: a directory of linked worktrees, of which a new one may only point to its own
    /// repository.
    Worktrees,
}

impl Kind {
    /// Whether it hides something of the host.
    pub fn is_mask(&self) -> bool {
        matches!(self, Self::MaskFile | Self::MaskDirectory)
    }

    /// Whether the launcher makes it in its own namespace, before bubblewrap, and the watch puts it
    /// back.
    pub fn is_held(&self) -> bool {
        matches!(self, Self::Protect | Self::Pin) || self.is_mask()
    }

    /// Whether it shows something of the host at its own path.
    pub(super) fn is_bind(&self) -> bool {
        matches!(self, Self::ReadOnly | Self::Writable)
    }
}

/// Why there is no plan. Nothing was started then (law 11).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// The current directory cannot be the workspace (law 10).
    #[error("`{}` cannot be the workspace: {because}", shown(path))]
    Workspace {
        /// The physical current directory.
        path: PathBuf,
        /// Why, with the repair.
        because: String,
    },
    /// A writable path that cannot be made writable.
    #[error("`writablePaths`: `{}`: {because}", printable(wish))]
    Writable {
        /// As it was written.
        wish: String,
        /// Why, with the repair.
        because: String,
    },
    /// A path of `readOnlyPaths` that cannot be made read-only.
    #[error("`readOnlyPaths`: `{}`: {because}", printable(wish))]
    ReadOnly {
        /// As it was written.
        wish: String,
        /// Why, with the repair.
        because: String,
    },
    /// The state directory cannot be made writable.
    #[error("`stateDir`: `{}`: {because}", shown(path))]
    State {
        /// The state directory.
        path: PathBuf,
        /// Why, with the repair.
        because: String,
    },
    /// A file of `envFiles` or `secrets` that cannot be read.
    #[error("`{key}`: `{}`: `{}`: {because}", printable(name), printable(path))]
    Given {
        /// The key of the specification.
        key: &'static str,
        /// The name of the variable or key.
        name: String,
        /// As it was written.
        path: String,
        /// Why, with the repair.
        because: String,
    },
    /// No place for a `/tmp` on disk.
    #[error("`tmp`: `{}` cannot hold it: {because}", printable(path))]
    Tmp {
        /// The directory around it.
        path: String,
        /// Why, with the repair.
        because: String,
    },
    /// kli's configuration directory cannot be kept read-only.
    #[error("kli's configuration `{}` cannot be kept read-only: {because}", shown(path))]
    Config {
        /// The directory as spelled.
        path: PathBuf,
        /// Why, with the repair.
        because: String,
    },
    /// A path of `allowSockets` that cannot be allowed.
    #[error("{}", sockets::refusal(wish, because))]
    Socket {
        /// As it was written.
        wish: String,
        /// Why, with the repair.
        because: String,
    },
    /// More ports than the relay takes.
    #[error("`localPorts`: {0} ports are more than the 64 that can be handed through: name fewer")]
    Ports(usize),
    /// Nothing can tell whether a denied path is there.
    #[error("`{key}`: `{}` cannot be looked at: {because}", printable(wish))]
    Denied {
        /// The key or option that it stands in.
        key: &'static str,
        /// As it was written.
        wish: String,
        /// The error's text.
        because: String,
    },
    /// A denied path that is there nowhere and looks like a pattern.
    #[error(
        "`{key}`: nothing is called `{}`, and `*` and `?` are no patterns here; name each path, or deny \
         its directory",
        printable(wish)
    )]
    Pattern {
        /// The list that it stands in.
        key: &'static str,
        /// As it was written.
        wish: String,
    },
    /// A limit that cannot be kept (law 14).
    #[error("`limits`: {0}")]
    Limits(String),
    /// More directories than can be kept where they are.
    #[error(
        "hidden and protected names lie in {0} directories of something writable, more than the \
         {MOST_HELD} that can be kept where they are: deny directories around them"
    )]
    Held(usize),
    /// The launcher would be hidden by a mask.
    #[error(
        "the launcher `{}` lies inside the denied path `{}`: keep it elsewhere, or deny less",
        shown(launcher),
        shown(mask)
    )]
    Launcher {
        /// The launcher's executable.
        launcher: PathBuf,
        /// The denied path.
        mask: PathBuf,
    },
}

/// A path for a message, its control characters escaped.
pub(super) fn shown(path: &Path) -> String {
    printable(&path.to_string_lossy())
}

/// A text as it is printed: control characters are escaped, so that no name drives a terminal or
/// breaks a line; everything else is left as it is.
pub(super) fn printable(text: &str) -> String {
    if !text.contains(char::is_control) {
        return text.to_owned();
    }
    text.chars().fold(String::new(), |mut text, character| {
        if character.is_control() {
            text.extend(character.escape_default());
        } else {
            text.push(character);
        }
        text
    })
}

/// The most mounts that keep something where it is. bubblewrap makes three of each, and a namespace has at
/// most 100,000 (`fs.mount-max`, `proc_sys_fs(5)`), the masks among them.
const MOST_HELD: usize = 10_000;

/// Plans a jail.
///
/// # Errors
/// [`PlanError`] when the workspace, a writable path or a mask cannot be what it shall be.
pub fn build(spec: &Spec, facts: &Facts, request: &Request) -> Result<Plan, PlanError> {
    workspace::check(spec, facts)?;
    let mut notes = Vec::new();
    let wanted = hidden::wanted(facts, &mut notes)?;
    let masks = hidden::present(&wanted);
    if let Some(mask) = covering(&masks, &facts.workspace) {
        return Err(PlanError::Workspace {
            path: facts.workspace.clone(),
            because: format!(
                "it lies inside the denied path `{}`: start elsewhere, or deny less",
                shown(&mask.destination)
            ),
        });
    }
    if let Some(mask) = covering(&masks, &facts.launcher) {
        return Err(PlanError::Launcher {
            launcher: facts.launcher.clone(),
            mask: mask.destination.clone(),
        });
    }
    if spec.state_dir && facts.state.is_none() {
        notes.push("no home is known, so there is no state directory".into());
    }
    let network = spec.network && !request.no_network;
    let kernel = kernel::surface(spec, facts, network, &mut notes)?;
    let mut create = Vec::new();
    let mut writable = writable::mounts(spec, facts, &masks, &mut create, &mut notes)?;
    held::writable(spec, facts, &masks, &mut writable, &mut create, &mut notes);
    let runtime = environment::runtime_directory(facts);

    let mut mounts = base(spec, facts);
    let tmp = tmp::place(facts, &masks, &writable, &mut mounts)?;
    mounts.extend(run(facts, network, &runtime));
    let (protections, mut awaited) = read_only::protected(facts, &masks, &writable, &mut notes);
    mounts.extend(held::around(facts, &masks));
    mounts.extend(shown_again(facts, &masks, &writable));
    mounts.extend(read_only::bound_again(facts, &masks, &mut notes)?);
    // A protection lies between what is writable around it and what is writable in it.
    let mut layers = writable;
    layers.extend(protections);
    sorted::by(&mut layers, |a, b| order(a).0.cmp(&order(b).0));
    mounts.extend(layers);
    // Under a mask there is nothing to show.
    mounts.retain(|mount| !mount.kind.is_bind() || covering(&masks, &mount.destination).is_none());
    let config = writable::protected_config(facts, &masks, &mounts, &mut create)?;
    mounts.extend(config);
    let reachable = sockets::allow(facts, &masks, &mut mounts, &mut notes)?;
    let ports = sockets::ports(spec, network, &mut notes)?;
    mounts.extend([
        Mount {
            destination: "/run/kli".into(),
            kind: Kind::Directory { mode: 0o755 },
            reason: "the launcher's own place".into(),
        },
        Mount {
            destination: MASKS.into(),
            kind: Kind::Directory { mode: 0o755 },
            reason: "what masks are made of while the jail runs".into(),
        },
        Mount {
            destination: INNER.into(),
            kind: Kind::ReadOnlyFrom(facts.launcher.clone()),
            reason: "the launcher's last stage, process 1 of the jail".into(),
        },
        Mount {
            destination: MARKER.into(),
            kind: Kind::Marker,
            reason: "what the inside may know about its confinement".into(),
        },
        Mount {
            destination: "/run".into(),
            kind: Kind::Seal,
            reason: "nothing is added to `/run` from inside".into(),
        },
    ]);
    for pattern in &spec.deny_read_globs {
        notes.push(format!(
            "`{}` hides what it means at the start; what appears later under such a name is not hidden",
            printable(&pattern.text)
        ));
    }
    let (protected, protected_later) = held::plan(spec, facts, &mounts, &masks);
    if protected.len() > MOST_HELD {
        return Err(PlanError::Held(protected.len()));
    }
    let anchors = sockets::anchors(facts);
    let held = hidden::hold(facts, wanted, &masks, &mounts, &create, &anchors, &mut notes);
    let cut: Vec<PathBuf> = held.overlays.iter().map(|overlay| overlay.anchor.clone()).collect();
    let sockets = sockets::hide(facts, &masks, &mounts, &reachable, &cut, &mut notes);
    let visible: Vec<Mount> =
        held.masks.into_iter().filter(|mask| is_visible(&mounts, mask)).collect();
    awaited.extend(protected_later);
    awaited.extend(held.awaited);
    // What is absent and kept so counts as well; a link on the way is shown as it was.
    let by_name = held.overlays.iter().flat_map(|overlay| &overlay.names);
    let by_name = by_name.filter(|name| !matches!(name.kind, NameKind::Link(_))).count();
    let later = awaited.iter().filter(|mount| mount.kind.is_mask()).count();
    let built = environment::build(spec, facts, request, &mounts, &runtime, &reachable)?;
    // Where `/proc/sys` is read-only bubblewrap cannot; the filter of system calls does.
    let disable_userns =
        !(spec.allow_user_namespaces || spec.nested_userns && facts.sysctl_read_only);
    read_only::linked(facts, &[&mounts, &protected, &visible], &mut notes);
    // In an order of their own, so that the order of the lists never shows.
    sorted::unique(&mut notes);
    let hidden = visible.len() + by_name + later;
    let marker = marker::text(network, &kernel, facts, &mounts, hidden, &built.removed);
    mounts.extend(protected);
    mounts.extend(visible);
    mounts.extend(sockets);
    Ok(Plan {
        network,
        disable_userns,
        kernel,
        workspace: facts.workspace.clone(),
        create,
        overlays: held.overlays,
        rebinds: held.rebinds,
        mounts,
        awaited,
        hidden,
        ports,
        environment: built.environment,
        handed: built.handed,
        tmp,
        removed: built.removed,
        corrected: built.corrected,
        notes,
        marker,
    })
}

fn order(mount: &Mount) -> (usize, &[u8]) {
    (mount.destination.components().count(), mount.destination.as_os_str().as_bytes())
}

fn covering<'a>(masks: &'a [Mount], path: &Path) -> Option<&'a Mount> {
    masks.iter().find(|mask| lies_in(path, &mask.destination))
}

/// Whether `path` is `directory` or below it. Compared as text first: part by part is slow for thousands
/// of paths.
fn lies_in(path: &Path, directory: &Path) -> bool {
    let (text, around) = (path.as_os_str().as_bytes(), directory.as_os_str().as_bytes());
    (around.ends_with(b"/") || text.get(around.len()).is_none_or(|byte| *byte == b'/'))
        && text.starts_with(around)
        && path.starts_with(directory)
}

/// The most of a file system in memory that is only there to be empty, in bytes.
const SMALL: u64 = 16 << 20;

/// A part of the memory, in bytes; all file systems in memory together have a quarter (law 14). Never
/// nothing, which would mean without a bound (tmpfs(5)).
fn share(facts: &Facts, part: u64) -> u64 {
    (facts.memory / part).max(4096)
}

/// The trees that are there in every jail.
fn base(spec: &Spec, facts: &Facts) -> Vec<Mount> {
    let mount = |destination: &str, kind, reason: &str| Mount {
        destination: destination.into(),
        kind,
        reason: reason.into(),
    };
    let mut mounts = vec![
        mount("/", Kind::ReadOnly, "the machine, read-only"),
        mount("/dev", Kind::Dev, "a minimal /dev"),
        mount(
            "/dev/shm",
            Kind::Tmpfs { mode: 0o1777, size: share(facts, 16) },
            "shared memory of the inside's own",
        ),
        mount("/dev", Kind::Seal, "nothing is added to /dev from inside"),
    ];
    if spec.nested_userns {
        // Writable, it would let the inside steer outer processes of the same user.
        mounts.push(mount(
            "/proc",
            Kind::ReadOnly,
            "`nestedUserns`: the outer /proc, a fresh one is forbidden in this container",
        ));
    } else {
        mounts.push(mount("/proc", Kind::Proc, "a /proc of the own processes"));
    }
    // An ordinary user may write none of them in a fresh /proc; the outer one may be anyone's.
    if spec.nested_userns || facts.uid == 0 {
        mounts.extend(facts.kernel_files.iter().map(|path| Mount {
            destination: path.clone(),
            kind: Kind::ReadOnly,
            reason: "user 0 could steer the kernel through it".into(),
        }));
    }
    // A `/proc` with something over it forbids another one in a namespace further in.
    if !spec.allow_user_namespaces {
        mounts.extend(facts.key_lists.iter().map(|path| Mount {
            destination: path.clone(),
            kind: Kind::ReadOnlyFrom("/dev/null".into()),
            reason: "it lists the user's keys, also those of other sessions".into(),
        }));
    }
    mounts.push(mount(
        "/tmp",
        Kind::Tmpfs { mode: 0o1777, size: share(facts, 8) },
        "a private /tmp: the host's holds other programs' sockets and files",
    ));
    mounts
}

/// `/run`: empty but for what programs need and what acts on nothing outside.
fn run(facts: &Facts, network: bool, runtime: &Path) -> Vec<Mount> {
    let mut mounts = vec![Mount {
        destination: "/run".into(),
        kind: Kind::Tmpfs { mode: 0o755, size: share(facts, 64).min(SMALL) },
        reason: "an empty /run: the host's holds the sockets of its services".into(),
    }];
    for entry in &facts.run {
        if entry.resolver && !network {
            continue;
        }
        let (kind, reason) = match &entry.link {
            Some(target) => (Kind::Link(target.clone()), "needed to find programs"),
            None if entry.resolver => (Kind::ReadOnly, "needed to look names up"),
            None => (Kind::ReadOnly, "needed to find programs and drivers"),
        };
        mounts.push(Mount { destination: entry.path.clone(), kind, reason: reason.into() });
    }
    mounts.push(Mount {
        destination: runtime.to_path_buf(),
        kind: Kind::Tmpfs { mode: 0o700, size: share(facts, 32) },
        reason: "a runtime directory of the inside's own".into(),
    });
    // Elsewhere the caller's runtime directory would still be seen.
    if let Some(outer) = &facts.runtime
        && !in_replaced_tree(outer)
        && !facts.workspace.starts_with(outer)
        && !facts.physical_homes.iter().any(|home| home.starts_with(outer))
    {
        mounts.push(Mount {
            destination: outer.clone(),
            kind: Kind::Tmpfs { mode: 0o700, size: share(facts, 64).min(SMALL) },
            reason: "the host's runtime directory: it holds the sockets of the session".into(),
        });
    }
    mounts
}

/// Whether the jail has a tree of its own where `path` lies.
fn in_replaced_tree(path: &Path) -> bool {
    ["/tmp", "/run"].iter().any(|tree| path.starts_with(tree))
}

/// What must stay readable although it lies in a tree that is replaced.
fn shown_again(facts: &Facts, masks: &[Mount], writable: &[Mount]) -> Vec<Mount> {
    let mut wanted: Vec<(&Path, &str)> = facts
        .physical_homes
        .iter()
        .filter(|home| **home != Path::new("/tmp"))
        .map(|home| (home.as_path(), "the home, which lies in a tree that is replaced"))
        .collect();
    if let Some(config) = facts.config.as_ref().filter(|config| is_there(config)) {
        wanted.push((&config.physical, "kli's configuration"));
    }
    if let Some(program) = &facts.program {
        wanted.push((program, "the program, which lies in a tree that is replaced"));
    }
    let mut mounts: Vec<Mount> = Vec::new();
    for (path, reason) in wanted {
        let seen = |mount: &Mount| path.starts_with(&mount.destination);
        if in_replaced_tree(path)
            && path.parent().is_some_and(|parent| parent != Path::new("/"))
            && covering(masks, path).is_none()
            && !mounts.iter().any(seen)
            && !writable.iter().any(seen)
        {
            mounts.push(Mount {
                destination: path.to_path_buf(),
                kind: Kind::ReadOnly,
                reason: reason.into(),
            });
        }
    }
    sorted::by(&mut mounts, |a, b| order(a).cmp(&order(b)));
    mounts
}

fn is_there(path: &Writable) -> bool {
    path.trouble.is_none() && path.missing == 0
}

/// Whether what a mask hides would be seen without it: the last mount over it shows the host.
fn is_visible(mounts: &[Mount], mask: &Mount) -> bool {
    let shows = |mount: &&Mount| {
        !matches!(mount.kind, Kind::Seal | Kind::Protect | Kind::Pin)
            && mask.destination.starts_with(&mount.destination)
    };
    let above = mounts.iter().rev().find(shows);
    let below = mounts
        .iter()
        .any(|mount| mount.kind.is_bind() && mount.destination.starts_with(&mask.destination));
    above.is_some_and(|mount| mount.kind.is_bind()) || below
}

/// Whether a variable is denied by the specification or by the request.
fn is_denied(spec: &Spec, request: &Request, name: &OsStr) -> bool {
    spec.deny_env.iter().chain(&request.deny_env).any(|pattern| pattern.matches(name.as_bytes()))
}

#[cfg(test)]
mod tests;
