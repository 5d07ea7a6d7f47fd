//! What this machine looks like to one start: every read that a plan needs, done once.
//!
//! The only file of the sandbox that looks before the plan is made. It judges nothing: what it
//! finds goes into [`Facts`], and `plan` decides.

#![expect(
    clippy::disallowed_methods,
    reason = "this file is where the sandbox looks at the machine"
)]

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Component, Path, PathBuf};

use super::git::{self, Repository};
use super::glob::Pattern;
use super::limits::{Means, group};
use super::mountinfo::{Table, TableError};
use super::plan::Request;
use super::sockets::{self, NIX_DAEMON, Sockets};
use super::sorted;
use super::spec::{Base, Spec, SpecPath, Xdg};
use super::sys;

mod account;
mod denied;
mod given;
mod linked;

pub use account::account_home;
use denied::Looker;
pub use denied::{Denied, Found, Place, Role};
pub(super) use given::tmp_prefix;
pub use given::{Given, TmpPlace};

/// What the machine looked like.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facts {
    /// The caller's user id, kept inside.
    pub uid: u32,
    /// The physical current directory.
    pub workspace: PathBuf,
    /// `$HOME` and the account's home, as spelled, without duplicates; `$HOME` first.
    pub homes: Vec<PathBuf>,
    /// The same, resolved.
    pub physical_homes: Vec<PathBuf>,
    /// Those of them that are directories other than `/`: an overlay may lie on each.
    pub home_anchors: Vec<PathBuf>,
    /// What is mounted where.
    pub mounts: Table,
    /// Directories on which the kernel refused an overlay, each with what it said.
    pub refused: Vec<(PathBuf, String)>,
    /// The environment, in its order.
    pub environment: Vec<(OsString, OsString)>,
    /// One entry for each name of each denied path.
    pub denied: Vec<Denied>,
    /// One entry for each path of `readOnlyPaths`.
    pub read_only: Vec<Writable>,
    /// One entry for each writable path.
    pub writable: Vec<Writable>,
    /// kli's state directory, when a home is known.
    pub state: Option<Writable>,
    /// kli's configuration directory, when a home is known.
    pub config: Option<Writable>,
    /// One entry for each name of each protected path.
    pub protected: Vec<Writable>,
    /// The repository around the workspace.
    pub git: Option<Repository>,
    /// Protected files that have other names as well, each with the number of all its names.
    pub linked: Vec<(PathBuf, u64)>,
    /// What `KLI_STATE_DIR` leads to, where a caller has set it.
    pub other_state: Option<Writable>,
    /// What of the allowed list is there below `/run`.
    pub run: Vec<RunEntry>,
    /// The directory `$XDG_RUNTIME_DIR` resolves to, when it is a private one of the caller.
    pub runtime: Option<PathBuf>,
    /// The host's sockets and named pipes.
    pub sockets: Sockets,
    /// The launcher's own executable.
    pub launcher: PathBuf,
    /// The program, resolved, when it was found.
    pub program: Option<PathBuf>,
    /// The parts of `/proc` that are there and steer the kernel: user 0 may write them without any
    /// capability, so they are made read-only.
    pub kernel_files: Vec<PathBuf>,
    /// Where `/proc` lists the user's keys, those of other sessions included.
    pub key_lists: Vec<PathBuf>,
    /// Whether `/proc/sys` is mounted read-only here, so that bubblewrap cannot forbid further
    /// user namespaces through it.
    pub sysctl_read_only: bool,
    /// What the start takes from the host besides what it shows.
    pub given: Given,
    /// The machine's memory in bytes.
    pub memory: u64,
    /// The version of Landlock's interface (landlock(7)); zero = switched off.
    pub landlock: Option<i32>,
    /// What can bound the inside; looked at when the specification has limits.
    pub means: Means,
}

/// A path that shall be writable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Writable {
    /// As it was written.
    pub wish: String,
    /// With its base put in.
    pub spelled: PathBuf,
    /// The physical path; what is missing at its end is appended as spelled.
    pub physical: PathBuf,
    /// How many components at the end of `physical` are missing.
    pub missing: usize,
    /// The physical place of every symbolic link that was followed.
    pub links: Vec<PathBuf>,
    /// Whether it is a directory (or, missing, shall become one).
    pub directory: bool,
    /// What stands against it, as a sentence.
    pub trouble: Option<String>,
}

/// Something below `/run` that is shown inside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunEntry {
    /// Where it is.
    pub path: PathBuf,
    /// The target when it is a symbolic link.
    pub link: Option<PathBuf>,
    /// Whether it is of use only with the network on.
    pub resolver: bool,
}

/// The parts of `/run` that programs need and that act on nothing outside.
pub const RUN: [(&str, bool); 12] = [
    ("/run/booted-system", false),
    ("/run/current-system", false),
    ("/run/opengl-driver", false),
    ("/run/opengl-driver-32", false),
    ("/run/wrappers", false),
    ("/run/NetworkManager/no-stub-resolv.conf", true),
    ("/run/NetworkManager/resolv.conf", true),
    ("/run/connman/resolv.conf", true),
    ("/run/netconfig", true),
    ("/run/nscd", true),
    ("/run/resolvconf", true),
    ("/run/systemd/resolve", true),
];

/// Files that names are looked up with, and whether they are of use only with the network on. On some
/// systems they are links that lead through `/run`.
const NAME_FILES: [(&str, bool); 6] = [
    ("/etc/resolv.conf", true),
    ("/etc/hosts", false),
    ("/etc/nsswitch.conf", false),
    ("/etc/passwd", false),
    ("/etc/group", false),
    ("/etc/localtime", false),
];

/// Those of these names that the jail's `/proc` has. One outside with `subset=pid` does not tell, and a
/// fresh one inside has them all.
fn of_proc(names: &[&str], fresh: bool) -> Vec<PathBuf> {
    let untold = fresh && !Path::new("/proc/sys").exists();
    let paths = names.iter().map(|name| Path::new("/proc").join(name));
    paths.filter(|path| untold || path.exists()).collect()
}

/// What of `/proc` steers the kernel rather than a process.
pub const KERNEL_FILES: [&str; 11] = [
    "acpi",
    "asound",
    "bus",
    "driver",
    "dynamic_debug",
    "fs",
    "irq",
    "mtrr",
    "scsi",
    "sys",
    "sysrq-trigger",
];

/// Why nothing can be planned on this machine.
#[derive(Debug, thiserror::Error)]
pub enum FactsError {
    /// No current directory: removed, or out of reach.
    #[error("the current directory cannot be named ({0}): change to an existing directory")]
    Workspace(#[source] io::Error),
    /// The launcher cannot find itself.
    #[error("the launcher cannot find its own executable ({0}): is `/proc` mounted")]
    Launcher(#[source] io::Error),
    /// What is mounted where cannot be told.
    #[error("the table of mounts cannot be read ({0}): is `/proc` mounted")]
    Mounts(#[source] io::Error),
    /// What is mounted where is not understood.
    #[error(
        "{0}, so other names of denied files cannot be found: please report `/proc/self/mountinfo`"
    )]
    Table(#[from] TableError),
}

/// Looks at the machine.
///
/// # Errors
/// [`FactsError`] when there is no current directory or no `/proc`.
pub fn probe(spec: &Spec, request: &Request) -> Result<Facts, FactsError> {
    let workspace = std::env::current_dir().map_err(FactsError::Workspace)?;
    // The kernel marks a directory outside the root of this process so.
    if !workspace.is_absolute() || std::fs::symlink_metadata(&workspace).is_err() {
        return Err(FactsError::Workspace(io::ErrorKind::NotFound.into()));
    }
    let launcher = std::fs::read_link("/proc/self/exe").map_err(FactsError::Launcher)?;
    let uid = rustix::process::geteuid().as_raw();
    let environment = environment(std::env::vars_os());
    let places = Places::new(uid, workspace.clone(), &environment);

    let mut mounts =
        Table::parse(&std::fs::read("/proc/self/mountinfo").map_err(FactsError::Mounts)?)?;
    mounts.keep_layers(Path::is_dir);
    let physical_homes: Vec<PathBuf> = places
        .homes
        .iter()
        .map(|home| std::fs::canonicalize(home).unwrap_or_else(|_| home.clone()))
        .collect();
    let mut home_anchors: Vec<PathBuf> = physical_homes
        .iter()
        .filter(|home| **home != Path::new("/") && home.is_dir())
        .cloned()
        .collect();
    sorted::unique(&mut home_anchors);
    let mut looker = Looker::new(uid, &mounts, &home_anchors);
    let mut denied = denied(spec, request, &places, &mut looker);
    let own = |base: Xdg, wish: &str| {
        let home = places.homes.first()?;
        let directory =
            places.absolute(base).or_else(|| base.below_home().map(|below| home.join(below)))?;
        Some(walk(wish, &directory.join("kli")))
    };
    let mut run: Vec<RunEntry> = RUN
        .iter()
        .filter_map(|(path, resolver)| {
            let meta = std::fs::symlink_metadata(path).ok()?;
            let link = if meta.is_symlink() { std::fs::read_link(path).ok() } else { None };
            Some(RunEntry { path: path.into(), link, resolver: *resolver })
        })
        .collect();
    for (file, resolver) in NAME_FILES {
        sockets::way_through_run(file, resolver, &mut run);
    }
    let writable: Vec<Writable> =
        spec.writable_paths.iter().map(|path| places.writable(path)).collect();
    let state = own(Xdg::State, "stateDir");
    let mut allowed: Vec<Writable> =
        spec.allow_sockets.iter().map(|path| places.writable(path)).collect();
    if spec.allow_nix_daemon {
        allowed.push(walk("allowNixDaemon", Path::new(NIX_DAEMON)));
    }
    for spelled in sockets::x_authority(&allowed, &places.homes, &environment) {
        denied.extend(looker.look_around("allowSockets", "the keys of X servers", spelled));
    }
    let sockets = sockets::probe(sockets::Scope {
        allowed,
        writable: std::iter::once(workspace.as_path())
            .chain(writable.iter().chain(&state).map(|path| path.physical.as_path()))
            .collect(),
        homes: &physical_homes,
        environment: &environment,
    });
    let read_only: Vec<Writable> =
        spec.read_only_paths.iter().map(|path| places.writable(path)).collect();
    let protected: Vec<Writable> = spec
        .protect
        .iter()
        .flat_map(|path| {
            let walked = |name: PathBuf| walk(&path.text, &name);
            places.denied(path).into_iter().map(walked)
        })
        .collect();
    let git = git::discover(&workspace, uid);
    Ok(Facts {
        uid,
        linked: linked::find(&[&read_only, &protected], git.as_ref()),
        other_state: variable(&environment, "KLI_STATE_DIR")
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
            .map(|path| walk("KLI_STATE_DIR", &path)),
        physical_homes,
        home_anchors,
        mounts,
        refused: Vec::new(),
        denied,
        read_only,
        writable,
        sockets,
        state,
        config: own(Xdg::Config, "the configuration directory"),
        protected,
        git,
        run,
        runtime: places
            .absolute(Xdg::Runtime)
            .and_then(|path| std::fs::canonicalize(path).ok())
            .filter(|path| {
                std::fs::metadata(path).is_ok_and(|meta| {
                    meta.is_dir() && meta.uid() == uid && meta.mode() & 0o777 == 0o700
                })
            }),
        launcher,
        program: find_program(&request.program, &workspace, &environment),
        kernel_files: of_proc(&KERNEL_FILES, !spec.nested_userns),
        key_lists: of_proc(&["keys", "key-users"], !spec.nested_userns),
        sysctl_read_only: rustix::fs::statvfs("/proc/sys/user")
            .is_ok_and(|system| system.f_flag.contains(rustix::fs::StatVfsMountFlags::RDONLY)),
        memory: sys::memory(),
        landlock: sys::landlock_version(),
        means: spec.limits.map(|_| means(uid)).unwrap_or_default(),
        given: given::probe(spec, &places, &environment),
        homes: places.homes,
        environment,
        workspace,
    })
}

fn means(uid: u32) -> Means {
    // User 0 of an own namespace is somebody else to the kernel.
    let machines_root = || {
        let map = std::fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
        map.lines().all(|line| line.split_whitespace().nth(1) == Some("0"))
    };
    Means { tasks_by_limit: uid != 0 || !machines_root(), groups: group::find(Path::new("/")) }
}

/// Everything that is denied, in the order of the lists.
fn denied(spec: &Spec, request: &Request, places: &Places, looker: &mut Looker<'_>) -> Vec<Denied> {
    let unknown = |key, wish: &str, because: String| Denied {
        key,
        wish: wish.to_owned(),
        spelled: PathBuf::new(),
        found: Found::Unknown(because),
        places: Vec::new(),
    };
    let no_home = || "no home is known, set HOME".to_owned();
    let mut denied = Vec::new();
    // The files of keys are hidden as if they were listed.
    let listed = spec.deny_read.iter().map(|path| ("denyRead", path));
    for (key, path) in listed.chain(spec.secrets.values().map(|path| ("secrets", path))) {
        let names = places.denied(path);
        if names.is_empty() {
            denied.push(unknown(key, &path.text, no_home()));
        }
        for spelled in names {
            denied.extend(looker.look_around(key, &path.text, spelled));
        }
    }
    for path in &request.deny {
        let wish = path.to_string_lossy();
        let Some(names) = places.argument(path) else {
            let because = "it starts at no known place, or has `..`: begin with `/`, `~/` or `./`";
            denied.push(unknown("--deny", &wish, because.into()));
            continue;
        };
        for spelled in names {
            denied.extend(looker.look_around("--deny", &wish, spelled));
        }
    }
    for path in &spec.deny_read_globs {
        let key = "denyReadGlobs";
        let pattern = match Pattern::new(&path.rest) {
            Ok(pattern) => pattern,
            Err(error) => {
                denied.push(unknown(key, &path.text, error.to_string()));
                continue;
            }
        };
        let bases = places.denied(&SpecPath { rest: String::new(), ..path.clone() });
        if bases.is_empty() {
            denied.push(unknown(key, &path.text, no_home()));
        }
        for base in bases {
            match looker.expand(&base, &pattern) {
                Ok(names) => denied.extend(
                    names
                        .into_iter()
                        .flat_map(|spelled| looker.look_around(key, &path.text, spelled)),
                ),
                Err(because) => denied.push(unknown(key, &path.text, because)),
            }
        }
    }
    denied
}

/// Finds `name` on `PATH` as a shell would, absolute entries only.
pub(super) fn on_path(name: &OsStr, environment: &[(OsString, OsString)]) -> Option<PathBuf> {
    let path = variable(environment, "PATH")?;
    std::env::split_paths(path)
        .filter(|directory| directory.is_absolute())
        .map(|directory| directory.join(name))
        .find(|file| {
            std::fs::metadata(file).is_ok_and(|meta| meta.is_file() && meta.mode() & 0o111 != 0)
        })
}

fn find_program(
    program: &OsStr,
    workspace: &Path,
    environment: &[(OsString, OsString)],
) -> Option<PathBuf> {
    if program.is_empty() {
        return None;
    }
    let named = if program.as_bytes().contains(&b'/') {
        workspace.join(program)
    } else {
        on_path(program, environment)?
    };
    std::fs::canonicalize(named).ok()
}

/// What an entrypoint puts before the names of variables that the loader reads (`LD_PRELOAD` and its
/// kin, ld.so(8)), so that they act on the program inside and not already on this process.
const KEPT_FROM_THE_LOADER: &[u8] = b"KLI_LOADER_";

/// Returns the name that a variable had before an entrypoint put it aside. Only what the loader reads
/// is put aside: under any other name a caller could give what the entrypoint has replaced or removed.
fn given_name(name: OsString) -> OsString {
    match name.as_bytes().strip_prefix(KEPT_FROM_THE_LOADER) {
        Some(rest) if rest.starts_with(b"LD_") || rest == b"GLIBC_TUNABLES" => {
            OsStr::from_bytes(rest).to_owned()
        }
        _ => name,
    }
}

/// The variables as they were given. Of a name that is there twice the first counts, as for getenv(3):
/// what is hidden by it and what the inside gets are the same.
fn environment(all: impl Iterator<Item = (OsString, OsString)>) -> Vec<(OsString, OsString)> {
    let mut seen = BTreeSet::new();
    all.map(|(name, value)| (given_name(name), value))
        .filter(|(name, _)| seen.insert(name.clone()))
        .collect()
}

fn variable<'a>(environment: &'a [(OsString, OsString)], name: &str) -> Option<&'a OsStr> {
    environment.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_os_str())
}

/// The places that paths of a specification may start at.
struct Places {
    workspace: PathBuf,
    homes: Vec<PathBuf>,
    xdg: Vec<(Xdg, OsString)>,
    uid: u32,
}

impl Places {
    fn new(uid: u32, workspace: PathBuf, environment: &[(OsString, OsString)]) -> Self {
        let mut homes: Vec<PathBuf> = Vec::new();
        let from_variable = variable(environment, "HOME").map(PathBuf::from);
        for home in from_variable.into_iter().chain(account_home(uid)) {
            let home: PathBuf = home.components().collect();
            if home.is_absolute() && !homes.contains(&home) {
                homes.push(home);
            }
        }
        let xdg = Xdg::ALL
            .iter()
            .filter_map(|xdg| {
                let value = variable(environment, xdg.variable())?;
                (!value.is_empty()).then(|| (*xdg, value.to_owned()))
            })
            .collect();
        Self { workspace, homes, xdg, uid }
    }

    fn value(&self, base: Xdg) -> Option<&Path> {
        self.xdg.iter().find(|(xdg, _)| *xdg == base).map(|(_, value)| Path::new(value))
    }

    fn absolute(&self, base: Xdg) -> Option<PathBuf> {
        self.value(base).filter(|path| path.is_absolute()).map(Path::to_path_buf)
    }

    /// Every name that a denied path has here: both homes, and the value of an XDG variable as
    /// well as its default.
    fn denied(&self, path: &SpecPath) -> Vec<PathBuf> {
        let mut bases: Vec<PathBuf> = match path.base {
            Base::Root => vec!["/".into()],
            Base::Workspace => vec![self.workspace.clone()],
            Base::Home => self.homes.clone(),
            Base::Xdg(xdg) => {
                let default = match xdg.below_home() {
                    Some(below) => self.homes.iter().map(|home| home.join(below)).collect(),
                    None => vec![self.default_runtime()],
                };
                self.absolute(xdg).into_iter().chain(default).collect()
            }
        };
        bases.dedup();
        bases.into_iter().map(|base| join(base, &path.rest)).collect()
    }

    fn default_runtime(&self) -> PathBuf {
        Path::new("/run/user").join(self.uid.to_string())
    }

    /// A path of the command line: a path as the shell left it, or written as in a specification.
    /// `None` when it means to be the latter and is none: taken as it stands it would name nothing,
    /// and nothing would be hidden.
    fn argument(&self, path: &OsStr) -> Option<Vec<PathBuf>> {
        if path.as_bytes().starts_with(b"~") || path.as_bytes().starts_with(b"$") {
            let names = self.denied(&SpecPath::try_from(format!("{}/", path.to_str()?)).ok()?);
            return (!names.is_empty()).then_some(names);
        }
        // A slash at the end would look for a directory only.
        Some(vec![self.workspace.join(path).components().collect()])
    }

    fn writable(&self, path: &SpecPath) -> Writable {
        let wish = path.text.as_str();
        let nowhere = |trouble: String| Writable {
            wish: wish.to_owned(),
            spelled: PathBuf::new(),
            physical: PathBuf::new(),
            missing: 0,
            links: Vec::new(),
            directory: true,
            trouble: Some(trouble),
        };
        let no_home =
            || nowhere("no home is known: set HOME, or write an absolute path".to_owned());
        let base = match path.base {
            Base::Root => PathBuf::from("/"),
            Base::Workspace => self.workspace.clone(),
            Base::Home => match self.homes.first() {
                Some(home) => match foreign(home, self.uid) {
                    None => home.clone(),
                    Some(owner) => {
                        return nowhere(format!(
                            "HOME is `{}`, which belongs to user {owner}: set it to your own",
                            home.display()
                        ));
                    }
                },
                None => return no_home(),
            },
            Base::Xdg(xdg) => match (self.value(xdg), xdg.below_home(), self.homes.first()) {
                (Some(value), ..) if value.is_relative() => {
                    return nowhere(format!(
                        "{} is `{}`, which is relative: set an absolute path or unset it",
                        xdg.variable(),
                        value.display()
                    ));
                }
                (Some(value), ..) => {
                    if let Some(owner) = foreign(value, self.uid) {
                        return nowhere(format!(
                            "{} is `{}`, which belongs to user {owner}: unset it",
                            xdg.variable(),
                            value.display()
                        ));
                    }
                    value.to_path_buf()
                }
                (None, None, _) => self.default_runtime(),
                (None, Some(below), Some(home)) => home.join(below),
                (None, Some(_), None) => return no_home(),
            },
        };
        walk(wish, &join(base, &path.rest))
    }
}

/// The owner of `path`, when it is there and somebody else's.
fn foreign(path: &Path, uid: u32) -> Option<u32> {
    let owner = std::fs::metadata(path).ok()?.uid();
    (owner != uid).then_some(owner)
}

fn join(base: PathBuf, rest: &str) -> PathBuf {
    if rest.is_empty() { base } else { base.join(rest) }
}

/// Follows `path` one component at a time and remembers each symbolic link.
pub(super) fn walk(wish: &str, path: &Path) -> Writable {
    let mut found = Writable {
        wish: wish.to_owned(),
        spelled: path.to_path_buf(),
        physical: PathBuf::from("/"),
        missing: 0,
        links: Vec::new(),
        directory: true,
        trouble: None,
    };
    let mut rest: Vec<OsString> = parts(path);
    rest.reverse();
    // Fewer components than this are left once all link targets are used up.
    let mut spelled = usize::MAX;
    while let Some(part) = rest.pop() {
        if part == ".." {
            found.physical.pop();
            continue;
        }
        let next = found.physical.join(&part);
        if found.missing > 0 {
            found.missing += 1;
            found.physical = next;
            continue;
        }
        match std::fs::symlink_metadata(&next) {
            Ok(meta) if meta.is_symlink() => {
                found.links.push(next.clone());
                let target = match std::fs::read_link(&next) {
                    Ok(target) if found.links.len() <= 40 => target,
                    Ok(_) => {
                        found.trouble = Some("its symbolic links go in circles".to_owned());
                        return found;
                    }
                    Err(error) => {
                        found.trouble = Some(error.to_string());
                        return found;
                    }
                };
                spelled = spelled.min(rest.len());
                if target.is_absolute() {
                    found.physical = PathBuf::from("/");
                }
                rest.extend(parts(&target).into_iter().rev());
            }
            Ok(meta) => {
                if meta.file_type().is_socket() || meta.file_type().is_fifo() {
                    found.trouble = Some("it is a socket or a pipe, not a file".to_owned());
                }
                found.directory = meta.is_dir();
                found.physical = next;
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                if rest.len() >= spelled {
                    found.trouble = Some(format!(
                        "it goes through a symbolic link to `{}`, which does not exist",
                        next.display()
                    ));
                    return found;
                }
                found.missing = 1;
                found.physical = next;
                found.directory = true;
            }
            Err(error) => {
                found.trouble = Some(format!("`{}`: {error}", next.display()));
                return found;
            }
        }
    }
    found
}

fn parts(path: &Path) -> Vec<OsString> {
    path.components()
        .filter_map(|component| match component {
            Component::Normal(part) => Some(part.to_owned()),
            Component::ParentDir => Some("..".into()),
            _ => None,
        })
        .collect()
}

#[cfg(test)]
mod tests;
