//! Carries a plan out: checks the descriptors, creates what is missing, enters the own namespace,
//! masks, starts bubblewrap and watches it. Every failure on the way ends with nothing started
//! (law 11); there is no second, weaker way.

#![expect(clippy::disallowed_methods, reason = "bubblewrap is found and started here")]

use std::ffi::{CString, OsStr, OsString};
use std::io::{self, Read, Write};
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, MemfdFlags, OFlags, SeekFrom};
use rustix::pipe::PipeFlags;
use rustix::process::Pid;

use super::facts::{self, FactsError};
use super::inner::Orders;
use super::limits::group::Groups;
use super::namespace::{self, NamespaceError};
use super::plan::{self, Kind, Mount, Plan, PlanError, Request, shown};
use super::ports::Ports;
use super::prepare::{self, PrepareError};
use super::report::Report;
use super::scratch::{Scratch, ScratchError};
use super::secrets::{self, Keys, SecretsError};
use super::spec::Spec;
use super::supervise::{Companion, Pipes, supervise};
use super::sys::start::Start;
use super::terminal::Terminal;
use super::view::{self, View};
use super::watch::Watch;
use super::{diagnose, fault, handover, landlock, processes, seccomp, sys};

/// Why nothing was started.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    /// The machine cannot be looked at.
    #[error(transparent)]
    Facts(#[from] FactsError),
    /// There is no plan.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// A directory of the plan cannot be made.
    #[error(transparent)]
    Prepare(#[from] PrepareError),
    /// What the inside shall be given cannot be had.
    #[error(transparent)]
    Secrets(#[from] SecretsError),
    /// The directory for `/tmp` cannot be made.
    #[error(transparent)]
    Scratch(#[from] ScratchError),
    /// A standard descriptor is a directory (law 5).
    #[error(
        "descriptor {0} is a directory, through which the inside could reach the host: redirect it"
    )]
    Directory(i32),
    /// A standard descriptor reaches more than it was opened for.
    #[error(
        "descriptor {0} is a file that is not open for writing, and the inside could open it again: \
         redirect it"
    )]
    Handle(i32),
    /// The file on standard input stays writable through its descriptor.
    #[error(
        "the file on standard input cannot be made read-only ({0}), and the inside could write it: \
         hand it over through a pipe (`cat FILE | …`; Linux 5.12 or later needs none)"
    )]
    Input(#[source] io::Error),
    /// bubblewrap is not there.
    #[error(
        "bubblewrap is not found on PATH: install it (`apt install bubblewrap`), or name it with `--bwrap`"
    )]
    NoBubblewrap,
    /// bubblewrap cannot be used.
    #[error("`{}` cannot be used: {because}", shown(path))]
    Unusable {
        /// The file.
        path: PathBuf,
        /// Why, with the repair.
        because: String,
    },
    /// The specification is where the inside could write the next one.
    #[error(
        "the specification `{}` lies inside `{}`, which the inside can write, so it could decide what \
         the next start allows: keep it elsewhere",
        shown(path),
        shown(inside)
    )]
    Specification {
        /// The file.
        path: PathBuf,
        /// The writable path around it.
        inside: PathBuf,
    },
    /// The own namespace or a mask.
    #[error("{source}; {repair}")]
    Namespace {
        /// What failed.
        source: NamespaceError,
        /// What repairs it.
        repair: String,
    },
    /// The workspace is out of the inside's reach.
    #[error(
        "the workspace `{}` belongs to user {owner} and is out of reach for user {uid} without \
         privileges, which the inside never has: start as its owner (`runuser -u NAME -- …`)",
        shown(path)
    )]
    Owner {
        /// The workspace.
        path: PathBuf,
        /// Its owner.
        owner: u32,
        /// The caller.
        uid: u32,
    },
    /// A watch that found what must not be, or a companion that could not begin.
    #[error("{0}")]
    Ended(String),
    /// bubblewrap ended before the last stage.
    #[error("bubblewrap failed: {words}; {repair}")]
    Bubblewrap {
        /// What it said.
        words: String,
        /// What repairs it.
        repair: String,
    },
    /// No session keyring of the jail's own (law 7).
    #[error(
        "a fresh session keyring cannot be had ({0}): when it is the quota, raise `kernel.keys.maxkeys`"
    )]
    Keyring(#[source] io::Error),
    /// A step between the launcher and the kernel.
    #[error("{step}: {source}")]
    System {
        /// What was tried.
        step: &'static str,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
}

fn step<E: Into<io::Error>>(step: &'static str) -> impl FnOnce(E) -> LaunchError {
    move |source| LaunchError::System { step, source: source.into() }
}

/// Runs the program of `request` in a jail and returns its exit code, 128+n for a signal.
///
/// `caller` are the keys that the caller has handed over.
///
/// # Errors
/// [`LaunchError`]: nothing was started.
pub(super) fn run(
    spec: &Spec,
    file: Option<&Path>,
    request: &Request,
    bwrap: Option<&Path>,
    caller: Keys,
) -> Result<u8, LaunchError> {
    sys::keyring::leave_session().map_err(LaunchError::Keyring)?;
    standard_descriptors()?;
    // At the end the caller waits, and the kernel takes the memory as a whole.
    let mut facts = ManuallyDrop::new(facts::probe(spec, request)?);
    let mut plan = ManuallyDrop::new(plan::build(spec, &facts, request)?);
    let bwrap = find_bubblewrap(bwrap, &facts.environment)?;
    out_of_reach(&bwrap, &plan).map_err(|inside| LaunchError::Unusable {
        path: bwrap.clone(),
        because: format!(
            "it lies inside `{}`, which the inside can write: name another with `--bwrap`",
            shown(&inside)
        ),
    })?;
    if let Some(file) = file {
        let file = std::path::absolute(file).map_err(step("the specification's path"))?;
        out_of_reach(&file, &plan)
            .map_err(|inside| LaunchError::Specification { path: file.clone(), inside })?;
    }
    let own = |path: &Path, because: &str| {
        out_of_reach(path, &plan).map_err(|inside| LaunchError::Unusable {
            path: path.to_path_buf(),
            because: format!(
                "it lies inside `{}`, which the inside can write, {because}: keep it elsewhere",
                shown(&inside)
            ),
        })
    };
    own(&facts.launcher, "so it could decide how the next start confines")?;
    let mut environment = plan.environment.clone();
    environment.extend(secrets::variables(&plan.handed)?);
    let keys = secrets::keys(&plan.handed, &facts.environment, caller)?.pipe()?;
    if let Some(program) = facts.program.as_ref().filter(|_| keys.is_some()) {
        own(program, "so it could take the keys that the next start hands to it")?;
    }
    sys::survive_size_limit();
    let surface = &plan.kernel;
    let (groups, doors) = Groups::new(&surface.groups, surface.group_tasks, surface.group_memory)
        .map_err(step("the control group of `limits`"))?;
    let scratch = plan.tmp.as_deref().map(Scratch::new).transpose()?;
    prepare::create(&plan.create)?;
    let report = Report::begin(&facts, &plan);
    let owner = std::fs::metadata(".").map_or(facts.uid, |meta| meta.uid());
    // From here on a signal waits until the jail can take it.
    let wanted = sys::wanted_signals();
    sys::block_signals(&wanted).map_err(step("signals cannot be blocked"))?;
    let signals = sys::signal_descriptor(&wanted).map_err(step("signals cannot be watched"))?;
    let mut terminal = Terminal::now();
    let launcher = facts.launcher.clone();
    let told =
        |source| LaunchError::Namespace { repair: diagnose::namespace(&source, &launcher), source };
    // Where /proc is masked no fresh one can be had, and bubblewrap cannot work in a PID namespace
    // whose processes /proc does not show.
    let own_processes = !spec.nested_userns;
    namespace::enter(own_processes).map_err(told)?;
    if keys.is_some() {
        // The ids of the namespace are set, which only a dumpable process may do.
        rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable)
            .map_err(step("the launcher cannot be closed to others"))?;
    }
    let input = namespace::read_only_input().map_err(LaunchError::Input)?;
    // Root may have entered it by a privilege that the inside does not have.
    if std::fs::metadata(&plan.workspace).is_err() {
        return Err(LaunchError::Owner { path: plan.workspace.clone(), owner, uid: facts.uid });
    }
    // Where the kernel refuses an overlay, the plan is another one.
    let prepared = loop {
        match namespace::overlay::prepare(&plan).map_err(told)? {
            Ok(prepared) => break prepared,
            Err(refused) => {
                facts
                    .refused
                    .extend(refused.into_iter().map(|it| (it.anchor, it.source.to_string())));
                plan = ManuallyDrop::new(plan::build(spec, &facts, request)?);
            }
        }
    };
    namespace::hold(prepared, &plan.mounts).map_err(told)?;

    if facts.uid == 0 && owner != 0 {
        // A warning, so a closed standard error is no reason to stop.
        drop(writeln!(
            io::stderr(),
            "kli-sandbox: note: the workspace belongs to user {owner}; root has no privileges \
             inside and may not write it (start as its owner: `runuser -u NAME -- …`)"
        ));
    }
    let view = View::new(&plan).map_err(told)?;
    let environment = text_file("environment", &handover::text(&environment))?;
    let (status, status_theirs) = sys::credential_pair().map_err(step("no socket can be made"))?;
    let (said_here, words_theirs) = pipe()?;
    let errors = rustix::io::dup(io::stderr().as_fd()).map_err(step("standard error"))?;
    let mut arguments = Vec::new();
    for argument in options(&plan)
        .into_iter()
        .filter(|option| own_processes || option != "--die-with-parent")
        .chain(
            plan.mounts
                .iter()
                .filter(|mount| view::is_first(mount))
                .flat_map(|mount| words_of(mount, 0)),
        )
    {
        arguments.extend_from_slice(argument.as_bytes());
        arguments.push(0);
    }
    let arguments = text_file("arguments", &arguments)?;
    let filter = seccomp::program(seccomp::Machine::HERE, plan.kernel.allow);
    let filter = text_file("filter", &filter)?;
    // Beyond this line they are bubblewrap's, which closes all but the last stage's.
    let handed = [&status_theirs, &errors, &environment, &arguments, &filter];
    for fd in handed.into_iter().chain(&keys) {
        rustix::io::fcntl_setfd(fd, rustix::io::FdFlags::empty())
            .map_err(step("a descriptor cannot be handed on"))?;
    }
    let orders = Orders {
        status: status_theirs.as_raw_fd(),
        errors: errors.as_raw_fd(),
        resources: plan.kernel.resources,
        environment: environment.as_raw_fd(),
        secrets: keys.as_ref().map(AsRawFd::as_raw_fd),
        terminal: terminal.is_own(),
    };
    let orders = serde_json::to_string(&orders).map_err(step("the orders"))?;
    let mut start = Start::default();
    if !own_processes {
        sys::terminal::adopt_orphans().map_err(step("orphans cannot be adopted"))?;
    }
    sys::monitor(&mut start, own_processes, words_theirs.as_raw_fd())
        .map_err(step("the launcher cannot be watched"))?;
    sys::group::enter_at_start(&mut start, doors);
    if plan.kernel.scoped {
        landlock::confine(&mut start).map_err(step("Landlock's scopes"))?;
    }
    let mut companions: Vec<Box<dyn Companion>> = vec![Box::new(view)];
    companions.extend(Watch::new(&plan).map(|watch| Box::new(watch) as Box<dyn Companion>));
    companions.extend(Ports::new(&plan).map(|ports| Box::new(ports) as Box<dyn Companion>));
    let numbers = [&arguments, &filter].map(|fd| fd.as_raw_fd().to_string());
    let [arguments_number, filter_number] = numbers.each_ref().map(OsStr::new);
    let mut words = vec![bwrap.as_os_str(), OsStr::new("--args"), arguments_number];
    words.extend([OsStr::new("--seccomp"), filter_number, OsStr::new("--")]);
    words.push(facts.launcher.as_os_str());
    words.extend(["inner", &orders].map(OsStr::new));
    words.push(&request.program);
    words.extend(request.arguments.iter().map(OsString::as_os_str));
    let text = |word: &OsStr| CString::new(word.as_bytes());
    let program = text(bwrap.as_os_str()).map_err(step("bubblewrap's path"))?;
    let words: Result<Vec<CString>, _> = words.into_iter().map(text).collect();
    let words = words.map_err(step("the program's arguments"))?;
    let monitor = start.file(&program, &words).map_err(|error| match error.raw_os_error() {
        Some(sys::NO_PROC) => {
            let words = "Can't mount proc for its monitor".to_owned();
            let repair = diagnose::bubblewrap(&words, &bwrap, &facts.launcher);
            LaunchError::Bubblewrap { words, repair }
        }
        Some(libc::E2BIG) => LaunchError::Unusable {
            path: bwrap.clone(),
            because: "the program's arguments are too large".into(),
        },
        _ => LaunchError::Unusable { path: bwrap.clone(), because: error.to_string() },
    })?;
    let monitor = Pid::from_raw(monitor)
        .ok_or(io::ErrorKind::InvalidData)
        .map_err(step("the number of bubblewrap's process"))?;
    drop((words_theirs, status_theirs, errors, environment, keys, arguments, filter));
    let pipes = Pipes { status, signals };
    fault::is_monitor(monitor.as_raw_nonzero().get(), !own_processes);
    let outcome = supervise(monitor, &pipes, &mut companions, &mut terminal);
    fault::is_monitor(0, false);
    if !own_processes {
        processes::end_children();
    }
    terminal.put_back(outcome.code == 0);
    let left = companions.iter_mut().find_map(|companion| companion.end().err());
    drop(companions);
    drop(groups);
    // Nothing lives inside any more.
    drop(scratch);
    if outcome.started {
        report.tell();
    }
    if let Some(sentence) = left.or(outcome.ended) {
        return Err(LaunchError::Ended(sentence));
    }
    if let Some(input) = input {
        // For whoever reads on. Nobody is left to tell when this fails.
        drop(namespace::copy_offset(io::stdin(), &input));
    }
    if outcome.started {
        if let Some(signal) = outcome.signal {
            if outcome.key {
                sys::kill(0, signal);
            }
            sys::terminal::die_by(signal);
        }
        return Ok(outcome.code);
    }
    let words = said(said_here);
    let repair = diagnose::bubblewrap(&words, &bwrap, &facts.launcher);
    Err(LaunchError::Bubblewrap { words, repair })
}

/// Refuses a directory on 0, 1 or 2: through it the inside would reach the host (law 5). And what
/// the inside could open again through `/proc` for more than it was opened for: a bare handle, and
/// a file for reading where output goes. (For a file on 0 see [`namespace::read_only_input`].)
fn standard_descriptors() -> Result<(), LaunchError> {
    let (input, output, errors) = (io::stdin(), io::stdout(), io::stderr());
    for (number, fd) in [(0, input.as_fd()), (1, output.as_fd()), (2, errors.as_fd())] {
        if let Ok(stat) = rustix::fs::fstat(fd) {
            let kind = FileType::from_raw_mode(stat.st_mode);
            if kind == FileType::Directory {
                return Err(LaunchError::Directory(number));
            }
            let flags = rustix::fs::fcntl_getfl(fd).map_err(step("a standard descriptor"))?;
            let reads = kind == FileType::RegularFile
                && number > 0
                && flags & OFlags::ACCMODE == OFlags::RDONLY
                && stat.st_nlink > 0;
            if reads || flags.contains(OFlags::PATH) {
                return Err(LaunchError::Handle(number));
            }
        }
    }
    Ok(())
}

fn find_bubblewrap(
    named: Option<&Path>,
    environment: &[(OsString, OsString)],
) -> Result<PathBuf, LaunchError> {
    let path = match named {
        Some(path) => std::path::absolute(path).map_err(step("`--bwrap`"))?,
        None => {
            facts::on_path(OsStr::new("bwrap"), environment).ok_or(LaunchError::NoBubblewrap)?
        }
    };
    let unusable =
        |because: &str| LaunchError::Unusable { path: path.clone(), because: because.into() };
    let meta = std::fs::metadata(&path).map_err(|error| unusable(&error.to_string()))?;
    if !meta.is_file() || meta.mode() & 0o111 == 0 {
        return Err(unusable("it is no executable file, name bubblewrap with `--bwrap`"));
    }
    // It would act with another user's rights, and refuses half of the options then.
    if meta.mode() & 0o6000 != 0 {
        return Err(unusable(
            "it is setuid, which the jail neither needs nor trusts: install it without (`chmod u-s`)",
        ));
    }
    Ok(path)
}

/// Refuses a bubblewrap or a specification that the inside could have put there for the next start
/// (law 16).
fn out_of_reach(file: &Path, plan: &Plan) -> Result<(), PathBuf> {
    let found = facts::walk("", file);
    for place in std::iter::once(&found.physical).chain(&found.links) {
        // The last mount around it decides: kli's configuration is read-only in a writable home.
        // What is only pinned is as writable as what it lies in, a seal is on its tree alone, and a mask
        // in something writable has a moment in which it is not there.
        let decides = plan.mounts.iter().rfind(|mount| {
            !matches!(mount.kind, Kind::Pin | Kind::Seal)
                && !mount.kind.is_mask()
                && place.starts_with(&mount.destination)
        });
        if let Some(mount) = decides.filter(|mount| mount.kind == Kind::Writable) {
            return Err(mount.destination.clone());
        }
    }
    Ok(())
}

/// The options that are the same for every mount.
pub(super) fn options(plan: &Plan) -> Vec<OsString> {
    let mut words: Vec<OsString> = namespaces(plan).into_iter().map(OsString::from).collect();
    words.extend(["--as-pid-1", "--chdir"].map(OsString::from));
    words.push(plan.workspace.clone().into());
    words
}

/// The options for namespaces, privileges and death.
pub(super) fn namespaces(plan: &Plan) -> Vec<&'static str> {
    let mut words = vec![
        "--unshare-user",
        "--unshare-pid",
        "--unshare-ipc",
        "--unshare-uts",
        "--unshare-cgroup-try",
        "--cap-drop",
        "ALL",
        "--die-with-parent",
    ];
    if plan.disable_userns {
        words.push("--disable-userns");
    }
    if !plan.network {
        words.push("--unshare-net");
    }
    words
}

/// bubblewrap's words for one mount; none for a mask, which is in place before it starts.
pub(super) fn words_of(mount: &Mount, marker: i32) -> Vec<OsString> {
    let to = || OsString::from(mount.destination.clone());
    let word = OsString::from;
    match &mount.kind {
        Kind::ReadOnly => vec![word("--ro-bind"), to(), to()],
        Kind::ReadOnlyFrom(source) => vec![word("--ro-bind"), source.clone().into(), to()],
        Kind::Writable => vec![word("--bind"), to(), to()],
        Kind::WritableFrom(source) => vec![word("--bind"), source.clone().into(), to()],
        Kind::Tmpfs { mode, size } => vec![
            word("--perms"),
            format!("{mode:04o}").into(),
            word("--size"),
            size.to_string().into(),
            word("--tmpfs"),
            to(),
        ],
        Kind::Dev => vec![word("--dev"), to()],
        Kind::Proc => vec![word("--proc"), to()],
        Kind::Directory { mode } => {
            vec![word("--perms"), format!("{mode:04o}").into(), word("--dir"), to()]
        }
        Kind::Link(target) => vec![word("--symlink"), target.clone().into(), to()],
        Kind::Marker => {
            vec![word("--perms"), word("0444"), word("--file"), marker.to_string().into(), to()]
        }
        Kind::Seal => vec![word("--remount-ro"), to()],
        // In place before bubblewrap starts, or waited for.
        Kind::Protect
        | Kind::Pin
        | Kind::MaskFile
        | Kind::MaskDirectory
        | Kind::EmptyFile
        | Kind::EmptyDirectory
        | Kind::Forbidden
        | Kind::Worktrees => Vec::new(),
    }
}

fn text_file(name: &str, text: &[u8]) -> Result<OwnedFd, LaunchError> {
    let file = rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC)
        .map_err(step("no file in memory can be made"))?;
    let mut rest = text;
    while !rest.is_empty() {
        let written = rustix::io::write(&file, rest).map_err(step("a file in memory"))?;
        rest = rest.get(written..).unwrap_or_default();
    }
    rustix::fs::seek(&file, SeekFrom::Start(0)).map_err(step("a file in memory"))?;
    Ok(file)
}

fn pipe() -> Result<(OwnedFd, OwnedFd), LaunchError> {
    rustix::pipe::pipe_with(PipeFlags::CLOEXEC).map_err(step("no pipe can be made"))
}

/// What bubblewrap wrote to its standard error, on one line.
fn said(words: OwnedFd) -> String {
    // A child that outlived it may hold the other end: what is there is enough.
    let nonblocking = rustix::fs::fcntl_setfl(&words, OFlags::NONBLOCK).is_ok();
    let mut text = Vec::new();
    if nonblocking {
        drop(std::fs::File::from(words).take(4096).read_to_end(&mut text));
    }
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<String> = text
        .lines()
        .map(|line| plan::printable(line.trim().trim_start_matches("bwrap: ")))
        .filter(|line| !line.is_empty())
        .collect();
    if lines.is_empty() { "it said nothing".into() } else { lines.join("; ") }
}
