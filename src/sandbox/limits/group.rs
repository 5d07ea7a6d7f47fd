//! Control groups for one jail (cgroups(7)): found where this user may make one, made before the
//! start, removed at the end. Nothing that exists already is changed.

#![expect(clippy::disallowed_methods, reason = "control groups are made and removed here")]

use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{Access, Mode, OFlags};

/// What the names of the groups begin with; the launcher's number follows.
const NAME: &str = "kli-sandbox-";

/// A directory of a control group hierarchy in which a group can be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The directory.
    pub directory: PathBuf,
    /// Whether it can bound the number of tasks.
    pub tasks: bool,
    /// Whether it can bound memory. Only the second version of the interface is used for it.
    pub memory: bool,
}

/// Finds the places for this process; `root` is where `/proc` and the hierarchies begin.
pub(in crate::sandbox) fn find(root: &Path) -> Vec<Place> {
    let read = |name: &str| std::fs::read(root.join(name)).unwrap_or_default();
    let mounts = read("proc/self/mountinfo");
    let own = read("proc/self/cgroup");
    let mut places: Vec<Place> = unified(root, &mounts, &own).into_iter().collect();
    if !places.iter().any(|place| place.tasks) {
        places.extend(first_version(root, &mounts, &own));
    }
    places
}

/// The nearest group around the caller's own that lets its children be bounded and belongs to the
/// caller. The caller's own is none: a group with processes has no bounded children.
fn unified(root: &Path, mounts: &[u8], own: &[u8]) -> Option<Place> {
    let own = lines(own).find_map(|line| line.strip_prefix(b"0::"))?;
    let mount = table(mounts).find(|mount| mount.kind == b"cgroup2")?;
    let (top, own) = mount.place(root, own)?;
    own.ancestors().take_while(|directory| directory.starts_with(&top)).find_map(|directory| {
        let text = std::fs::read_to_string(directory.join("cgroup.subtree_control")).ok()?;
        let has = |controller| text.split_whitespace().any(|word| word == controller);
        let (tasks, memory) = (has("pids"), has("memory"));
        let usable =
            (tasks || memory) && writable(directory) && writable(&directory.join("cgroup.procs"));
        usable.then(|| Place { directory: directory.to_path_buf(), tasks, memory })
    })
}

/// The caller's own group of the first version's hierarchy for tasks.
fn first_version(root: &Path, mounts: &[u8], own: &[u8]) -> Option<Place> {
    let own = lines(own).find_map(|line| {
        let mut fields = line.splitn(3, |byte| *byte == b':');
        let controllers = fields.nth(1)?;
        controllers.split(|byte| *byte == b',').any(|name| name == b"pids").then_some(())?;
        fields.next()
    })?;
    let mount = table(mounts).find(|mount| {
        mount.kind == b"cgroup" && mount.options.split(|byte| *byte == b',').any(|o| o == b"pids")
    })?;
    let (_, directory) = mount.place(root, own)?;
    writable(&directory).then_some(Place { directory, tasks: true, memory: false })
}

fn writable(path: &Path) -> bool {
    rustix::fs::access(path, Access::WRITE_OK).is_ok()
}

fn lines(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(|byte| *byte == b'\n')
}

/// A line of mountinfo (proc(5)).
struct Mounted<'a> {
    /// What of the hierarchy is mounted.
    root: &'a [u8],
    point: &'a [u8],
    kind: &'a [u8],
    options: &'a [u8],
}

fn table(text: &[u8]) -> impl Iterator<Item = Mounted<'_>> {
    lines(text).filter_map(|line| {
        let fields: Vec<&[u8]> = line.split(|byte| *byte == b' ').collect();
        let dash = fields.iter().position(|field| *field == b"-")?;
        Some(Mounted {
            root: fields.get(3)?,
            point: fields.get(4)?,
            kind: fields.get(dash + 1)?,
            options: fields.get(dash + 3)?,
        })
    })
}

impl Mounted<'_> {
    /// Where the hierarchy begins and where the group `own` lies, as seen below `root`.
    fn place(&self, root: &Path, own: &[u8]) -> Option<(PathBuf, PathBuf)> {
        let path = |bytes: &[u8]| PathBuf::from(OsString::from_vec(bytes.to_vec()));
        let top = root.join(path(self.point).strip_prefix("/").ok()?);
        let own = path(own);
        let below = own.strip_prefix(path(self.root)).ok()?;
        // Outside of what this process's namespace shows (cgroup_namespaces(7)).
        if below.components().any(|part| part == std::path::Component::ParentDir) {
            return None;
        }
        let own = if below.as_os_str().is_empty() { top.clone() } else { top.join(below) };
        Some((top, own))
    }
}

/// The groups of one jail; removed with it.
#[derive(Debug)]
pub(in crate::sandbox) struct Groups {
    directories: Vec<PathBuf>,
}

impl Groups {
    /// Makes them, and returns a door to each: its `cgroup.procs`, open for writing.
    ///
    /// # Errors
    /// What the kernel refused; nothing is left then.
    pub(in crate::sandbox) fn new(
        places: &[Place],
        tasks: Option<u64>,
        memory: Option<u64>,
    ) -> io::Result<(Self, Vec<OwnedFd>)> {
        let mut groups = Self { directories: Vec::new() };
        let mut doors = Vec::new();
        for place in places {
            remove_left(&place.directory);
            let directory = place.directory.join(format!("{NAME}{}", std::process::id()));
            std::fs::create_dir(&directory)?;
            groups.directories.push(directory.clone());
            if let Some(tasks) = tasks.filter(|_| place.tasks) {
                std::fs::write(directory.join("pids.max"), tasks.to_string())?;
            }
            if let Some(memory) = memory.filter(|_| place.memory) {
                std::fs::write(directory.join("memory.max"), memory.to_string())?;
                // Not there where the kernel does not count swap.
                match std::fs::write(directory.join("memory.swap.max"), "0") {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                    _ => {}
                }
            }
            let flags = OFlags::WRONLY | OFlags::CLOEXEC;
            doors.push(rustix::fs::open(directory.join("cgroup.procs"), flags, Mode::empty())?);
        }
        Ok((groups, doors))
    }
}

impl Drop for Groups {
    fn drop(&mut self) {
        for directory in &self.directories {
            // The kernel counts an ended process out a moment after its end was told.
            for _ in 0..50 {
                match std::fs::remove_dir(directory) {
                    Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {
                        std::thread::sleep(Duration::from_millis(2));
                    }
                    _ => break,
                }
            }
        }
    }
}

/// Removes what launchers have left that were killed. A group with processes cannot be removed.
fn remove_left(place: &Path) {
    for entry in std::fs::read_dir(place).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let number = name.to_str().and_then(|name| name.strip_prefix(NAME));
        let Some(number) = number.and_then(|number| number.parse::<i32>().ok()) else { continue };
        let lives = rustix::process::Pid::from_raw(number)
            .map(rustix::process::test_kill_process)
            .is_some_and(|answer| answer != Err(rustix::io::Errno::SRCH));
        if !lives {
            // It is tried again at the next start.
            drop(std::fs::remove_dir(entry.path()));
        }
    }
}

#[cfg(test)]
mod tests;
