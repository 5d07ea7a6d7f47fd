//! The processes below kli: who belongs to which command, and how a tree is ended.
//!
//! kli is a sub-reaper (prctl(2), `PR_SET_CHILD_SUBREAPER`), so a process whose parent ended stays
//! below kli and can be found. A process belongs to a command when it is in the command's session,
//! descends from a process that does, or carries the command's tag in the environment that it
//! started with; the last finds what made a session of its own and lost its parent. At the end of
//! the run the question is not asked: everything below kli that is in another session than kli's
//! own goes, and only commands make sessions. What was below kli before its first command is left
//! alone: a script may start a service and then `exec kli`.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    sync::{
        Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use rustix::{
    io::Errno,
    process::{Pid, Signal, WaitId, WaitIdOptions, WaitOptions, waitid},
};

/// The variable that tells which command a process belongs to.
pub(super) const TAG: &str = "KLI_CALL";

/// Pids of commands that are waited for elsewhere: burying them would take their exit status.
static WAITED_FOR: Mutex<BTreeSet<i32>> = Mutex::new(BTreeSet::new());

/// Processes below kli from before the first command, as pid and start: a script that replaced
/// itself by kli had started them, and they are none of kli's business.
static BEFORE: OnceLock<BTreeSet<(i32, u64)>> = OnceLock::new();

fn before() -> &'static BTreeSet<(i32, u64)> {
    BEFORE
        .get_or_init(|| all_below().iter().map(|process| (process.pid, process.started)).collect())
}

fn waited_for() -> MutexGuard<'static, BTreeSet<i32>> {
    WAITED_FOR.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A command's mark in the environment of all that it starts.
#[derive(Debug)]
pub(super) struct Tag(String);

impl Tag {
    pub(super) fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        Self(format!("{}-{number}", rustix::process::getpid().as_raw_nonzero()))
    }

    pub(super) fn value(&self) -> &str {
        &self.0
    }
}

/// Starts a process whose status is waited for by the caller.
pub(super) fn spawn(command: &mut tokio::process::Command) -> io::Result<tokio::process::Child> {
    static ADOPTS: OnceLock<()> = OnceLock::new();
    ADOPTS.get_or_init(|| {
        let _known = before();
        // Refused by no kernel since 3.4; without it, orphans are found by nobody here.
        let _adopted = rustix::process::set_child_subreaper(Some(rustix::process::getpid()));
    });
    // Held over both steps: a child that ends at once must not be buried in between.
    let mut waited_for = waited_for();
    let child = command.spawn()?;
    waited_for.extend(child.id().and_then(|id| i32::try_from(id).ok()));
    Ok(child)
}

/// A process as `/proc/PID/stat` shows it.
#[derive(Clone, Copy, Debug)]
struct Process {
    pid: i32,
    parent: i32,
    group: i32,
    session: i32,
    dead: bool,
    /// When it started, in ticks since the boot.
    started: u64,
}

/// Returns the processes below this one that commands may have started, parents before their
/// children.
fn below() -> Vec<Process> {
    let before = before();
    let mut processes = all_below();
    let mut foreign = BTreeSet::new();
    processes.retain(|process| {
        let is_foreign =
            before.contains(&(process.pid, process.started)) || foreign.contains(&process.parent);
        if is_foreign {
            foreign.insert(process.pid);
        }
        !is_foreign
    });
    processes
}

/// Returns all processes below this one, parents before their children.
#[expect(clippy::disallowed_methods, reason = "host is where /proc is read")]
fn all_below() -> Vec<Process> {
    if !is_own_proc() {
        return Vec::new();
    }
    let mut children: BTreeMap<i32, Vec<Process>> = BTreeMap::new();
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        if let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok())
            && let Some(process) = look_at(pid)
        {
            children.entry(process.parent).or_default().push(process);
        }
    }
    let mut found = children.remove(&own().0).unwrap_or_default();
    let mut next = 0;
    while let Some(process) = found.get(next) {
        found.extend(children.remove(&process.pid).unwrap_or_default());
        next += 1;
    }
    found
}

#[expect(clippy::disallowed_methods, reason = "host is where /proc is read")]
fn look_at(pid: i32) -> Option<Process> {
    let stat = std::fs::read(format!("/proc/{pid}/stat")).ok()?;
    // The name, in parentheses, may itself hold anything: the fields start after the last one.
    let after = stat.rsplit(|byte| *byte == b')').next()?;
    let mut fields = std::str::from_utf8(after).ok()?.split_ascii_whitespace();
    let state = fields.next()?;
    let parent = fields.next()?.parse().ok()?;
    let group = fields.next()?.parse().ok()?;
    let session = fields.next()?.parse().ok()?;
    // Field 22 of proc_pid_stat(5); four were taken, of which the first was the third.
    let started = fields.nth(15)?.parse().ok()?;
    let dead = matches!(state, "Z" | "X" | "x");
    Some(Process { pid, parent, group, session, dead, started })
}

/// Returns the own pid and session. The session is 0 when its leader is outside this PID namespace
/// (`getsid(2)` says so too, and rustix's wrapper does not expect it).
fn own() -> (i32, i32) {
    let pid = rustix::process::getpid().as_raw_nonzero().get();
    (pid, look_at(pid).map_or(0, |process| process.session))
}

/// Says whether `/proc` numbers processes as this process does. In a jail with `nestedUserns` it is
/// the outer one; nothing can be told from it then, and the end of the jail ends what is left.
#[expect(clippy::disallowed_methods, reason = "host is where /proc is read")]
fn is_own_proc() -> bool {
    let own = rustix::process::getpid().as_raw_nonzero().get().to_string();
    std::fs::read_link("/proc/self").is_ok_and(|link| link.as_os_str() == own.as_str())
}

fn signal(pid: i32, signal: Signal) {
    if let Some(pid) = Pid::from_raw(pid).filter(|_| pid > 1) {
        // It may have ended meanwhile, or be another user's (a setuid program).
        let _sent = rustix::process::kill_process(pid, signal);
    }
}

/// Reaps what ended below kli and is waited for by nobody.
pub(super) fn bury() {
    bury_among(&below());
}

fn bury_among(processes: &[Process]) {
    let (own, session) = own();
    let waited_for = waited_for();
    for process in processes {
        if process.dead
            && process.parent == own
            && process.session != session
            && !waited_for.contains(&process.pid)
        {
            let _buried = rustix::process::waitpid(Pid::from_raw(process.pid), WaitOptions::NOHANG);
        }
    }
}

/// What a command started, itself included.
#[derive(Debug)]
pub(super) struct Tree {
    /// The command's pid, which is its session and its group as well.
    session: i32,
    tag: Tag,
}

impl Tree {
    pub(super) fn new(session: i32, tag: Tag) -> Self {
        Self { session, tag }
    }

    /// Tells that nobody waits for the command itself any more.
    pub(super) fn leader_is_not_waited_for(&self) {
        waited_for().remove(&self.session);
    }

    /// Says whether the command's group still has a member.
    pub(super) fn group_is_alive(&self) -> bool {
        Pid::from_raw(self.session)
            .is_some_and(|group| rustix::process::test_kill_process_group(group).is_ok())
    }

    /// Returns the living processes of the tree; the dead among its orphans are buried.
    fn members(&self) -> Vec<Process> {
        let processes = below();
        bury_among(&processes);
        let session = own().1;
        let mut members = BTreeSet::new();
        for process in processes.iter().filter(|process| process.session != session) {
            if process.session == self.session
                || members.contains(&process.parent)
                || self.is_tagged(process.pid)
            {
                members.insert(process.pid);
            }
        }
        let living = |process: &Process| !process.dead && members.contains(&process.pid);
        processes.into_iter().filter(living).collect()
    }

    #[expect(clippy::disallowed_methods, reason = "host is where /proc is read")]
    fn is_tagged(&self, pid: i32) -> bool {
        let wanted = format!("{TAG}={}", self.tag.value());
        std::fs::read(format!("/proc/{pid}/environ"))
            .is_ok_and(|all| all.split(|byte| *byte == 0).any(|one| one == wanted.as_bytes()))
    }

    fn signal(&self, members: &[Process], what: Signal) {
        // The group in one call, so that no member can start another between two of ours. While
        // a member lives, the kernel gives the group's number to nobody else.
        if let Some(group) = Pid::from_raw(self.session)
            && members.iter().any(|process| process.group == self.session)
        {
            let _sent = rustix::process::kill_process_group(group, what);
        }
        for process in members.iter().filter(|process| process.group != self.session) {
            signal(process.pid, what);
        }
    }
}

/// Ends a tree step by step: TERM, a grace, then KILL until nothing is left or time is up.
#[derive(Debug)]
pub(super) struct Ending {
    started: Instant,
    grace: Duration,
    last: Duration,
    asked: bool,
}

impl Ending {
    pub(super) fn new(grace: Duration, last: Duration) -> Self {
        Self { started: Instant::now(), grace, last, asked: false }
    }

    /// Does the next step, and returns the pause before the one after it.
    pub(super) fn step(&mut self, tree: &Tree) -> Option<Duration> {
        let members = tree.members();
        self.advance(members.is_empty(), |what| tree.signal(&members, what))
    }

    fn advance(&mut self, empty: bool, send: impl Fn(Signal)) -> Option<Duration> {
        self.advance_after(self.started.elapsed(), empty, send)
    }

    fn advance_after(
        &mut self,
        passed: Duration,
        empty: bool,
        send: impl Fn(Signal),
    ) -> Option<Duration> {
        if empty || passed >= self.grace + self.last {
            return None;
        }
        if !self.asked {
            self.asked = true;
            send(Signal::TERM);
            // A stopped process acts on TERM only once it goes on.
            send(Signal::CONT);
        } else if passed >= self.grace {
            send(Signal::KILL);
        }
        let left = self.grace.saturating_sub(passed);
        Some(if left.is_zero() {
            Duration::from_millis(5)
        } else {
            left.min(Duration::from_millis(10))
        })
    }
}

/// What outlived [`reap_all`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Survivors(pub Vec<i32>);

/// Whether nothing is below this process (waitid(2), ECHILD): who is a sub-reaper has what its
/// children left. It saves most runs a look at every process of the machine.
fn is_childless() -> bool {
    let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    matches!(waitid(WaitId::All, look), Err(Errno::CHILD))
}

/// How many looks must find nothing, where kli has children that are not the run's.
const SURE: u32 = 3;

/// Ends everything that commands of this run left behind. To be called once, when the run ends.
///
/// # Errors
/// The pids that could not be ended within a second (another user's, or stuck in the kernel).
pub fn reap_all() -> Result<(), Survivors> {
    if is_childless() {
        return Ok(());
    }
    let mut ending = Ending::new(Duration::from_millis(200), Duration::from_millis(800));
    let mut empty_looks = 0;
    loop {
        let processes = below();
        waited_for().clear();
        bury_among(&processes);
        let session = own().1;
        let members: Vec<i32> =
            processes.iter().filter(|p| !p.dead && p.session != session).map(|p| p.pid).collect();
        // A process that forks and exits all the time is easily missed by one look.
        empty_looks = if members.is_empty() { empty_looks + 1 } else { 0 };
        let is_over = members.is_empty() && (empty_looks > SURE || is_childless());
        match ending.advance(is_over, |what| members.iter().for_each(|p| signal(*p, what))) {
            Some(pause) => std::thread::sleep(pause),
            None if members.is_empty() => return Ok(()),
            None => return Err(Survivors(members)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::{super::*, *};

    /// Runs an ending by a clock of its own: what is sent when, the looks, and when it gives up.
    fn run(
        grace: Duration,
        last: Duration,
        dies_of: Option<Signal>,
    ) -> (Vec<(u128, Signal)>, usize, u128) {
        let mut ending = Ending::new(grace, last);
        let sent = RefCell::new(Vec::new());
        let (mut passed, mut looks) = (Duration::ZERO, 0);
        loop {
            looks += 1;
            let is_dead =
                dies_of.is_some_and(|of| sent.borrow().iter().any(|(_, signal)| *signal == of));
            let note = |signal| sent.borrow_mut().push((passed.as_millis(), signal));
            match ending.advance_after(passed, is_dead, note) {
                Some(pause) => passed += pause,
                None => return (sent.into_inner(), looks, passed.as_millis()),
            }
        }
    }

    /// By the clock of its pauses alone: an interrupt has a tenth of a second.
    #[test]
    fn an_interrupted_tree_is_waited_for_less_than_a_tenth_of_a_second() {
        let ends = |of| run(GRACE_INTERRUPTED, LAST_INTERRUPTED, of);
        let (sent, looks, took) = ends(Some(Signal::TERM));
        assert_eq!(sent, [(0, Signal::TERM), (0, Signal::CONT)]);
        assert_eq!((looks, took), (2, 10));
        let (sent, looks, took) = ends(Some(Signal::KILL));
        assert_eq!(sent.last(), Some(&(30, Signal::KILL)));
        assert_eq!((looks, took), (5, 35));
        // Whatever is stuck in the kernel: given up.
        let (_, looks, took) = ends(None);
        assert_eq!((looks, took), (14, 80));
    }
}
