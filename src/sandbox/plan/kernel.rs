//! What the kernel refuses to the inside besides mounts: the filter of system calls, Landlock's
//! scopes, and the limits (laws 6, 7 and 14). Pure.

use super::super::facts::Facts;
use super::super::landlock;
use super::super::limits::Resources;
use super::super::limits::group::Place;
use super::super::seccomp::{self, Allow};
use super::super::spec::Spec;
use super::PlanError;

/// Less memory than this starts no program, in bytes.
const LEAST_MEMORY: u64 = 16 << 20;

/// Process 1 of the jail and the program.
const LEAST_TASKS: u64 = 2;

/// What keeps the host's abstract sockets out of reach.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AbstractSockets {
    /// The jail's own network namespace has its own.
    OwnNetwork,
    /// Landlock's scopes.
    Scoped,
    /// No Unix socket can be opened.
    NoSockets,
    /// Nothing: `allowAbstractSockets` where the kernel has no scopes.
    Reachable,
}

impl AbstractSockets {
    /// One word, for the inside.
    pub(in crate::sandbox) fn word(self) -> &'static str {
        match self {
            Self::OwnNetwork => "own network",
            Self::Scoped => "scoped",
            Self::NoSockets => "no sockets",
            Self::Reachable => "reachable",
        }
    }
}

/// What is asked of the kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Surface {
    /// What the filter leaves open.
    pub allow: Allow,
    /// Whether the jail begins in a Landlock domain with scopes.
    pub scoped: bool,
    /// What becomes of abstract sockets.
    pub abstract_sockets: AbstractSockets,
    /// The resource limits that the last stage takes on.
    pub resources: Resources,
    /// Where control groups are made.
    pub groups: Vec<Place>,
    /// How many tasks the control group may have, those of the monitor included.
    pub group_tasks: Option<u64>,
    /// The memory of the control group in bytes.
    pub group_memory: Option<u64>,
}

impl Surface {
    /// The groups of refused calls, each with its name and what it is.
    pub(in crate::sandbox) fn refused(&self) -> impl Iterator<Item = (&'static str, &'static str)> {
        seccomp::groups(self.allow).map(|group| (group.name, group.what))
    }

    /// What bounds the inside, a line each.
    pub(in crate::sandbox) fn bounds(&self) -> Vec<String> {
        let Resources { tasks, memory, file_size } = self.resources;
        let mut lines = Vec::new();
        if let Some(tasks) = self.group_tasks {
            let inside = tasks.saturating_sub(1);
            lines.push(format!("{inside} processes and threads, by a control group"));
        } else if let Some(tasks) = tasks {
            lines.push(format!("{tasks} processes and threads, by a resource limit"));
        }
        if let Some(memory) = memory {
            lines.push(format!("{memory} bytes of memory for each process"));
        }
        if let Some(memory) = self.group_memory {
            lines.push(format!("{memory} bytes of memory together, by a control group"));
        }
        if let Some(bytes) = file_size {
            lines.push(format!("{bytes} bytes for each file"));
        }
        lines
    }
}

pub(super) fn surface(
    spec: &Spec,
    facts: &Facts,
    network: bool,
    notes: &mut Vec<String>,
) -> Result<Surface, PlanError> {
    let scoped = landlock::has_scopes(facts.landlock);
    let abstract_sockets = match (network, scoped) {
        (false, _) => AbstractSockets::OwnNetwork,
        (true, true) => AbstractSockets::Scoped,
        (true, false) if spec.allow_abstract_sockets => AbstractSockets::Reachable,
        (true, false) => AbstractSockets::NoSockets,
    };
    match abstract_sockets {
        AbstractSockets::NoSockets => notes.push(
            "this kernel has no Landlock scopes and the network is on, so no Unix socket can be \
             opened inside: `network` false, `allowAbstractSockets`, or Linux 6.12 allows them"
                .into(),
        ),
        AbstractSockets::Reachable => notes.push(
            "`allowAbstractSockets`: this kernel has no Landlock scopes, so the host's abstract \
             sockets can be reached from inside, an X server's among them: that is a way out"
                .into(),
        ),
        AbstractSockets::OwnNetwork | AbstractSockets::Scoped => {}
    }
    if spec.allow_user_namespaces {
        notes.push(
            "`allowUserNamespaces`: the inside can mount in namespaces of its own, and there rename \
             a hidden or protected name that lies inside a writable path, or a directory around it, \
             which uncovers it; when the host replaces such a name, a namespace that the inside made \
             before sees the new content from then on, as masks are put back in the jail's own \
             alone; far more of the kernel is open to it"
                .into(),
        );
    }
    if spec.nested_userns {
        notes.push(
            "`nestedUserns`: the inside sees the outer `/proc`, so the names and command lines of the \
             container's other processes can be read (not their environments, files or memory), the \
             numbers of processes are the container's, and a KILL of the launcher and of bubblewrap at \
             one moment of the start can leave a process that waits"
                .into(),
        );
    }
    let mut surface = Surface {
        allow: Allow {
            user_namespaces: spec.allow_user_namespaces,
            unix_sockets: abstract_sockets != AbstractSockets::NoSockets,
        },
        scoped,
        abstract_sockets,
        resources: Resources::default(),
        groups: Vec::new(),
        group_tasks: None,
        group_memory: None,
    };
    bound(&mut surface, spec, facts, notes)?;
    Ok(surface)
}

fn bound(
    surface: &mut Surface,
    spec: &Spec,
    facts: &Facts,
    notes: &mut Vec<String>,
) -> Result<(), PlanError> {
    let Some(limits) = &spec.limits else { return Ok(()) };
    let groups = &facts.means.groups;
    if let Some(tasks) = limits.tasks {
        if tasks < LEAST_TASKS {
            return Err(PlanError::Limits(format!(
                "`tasks` is {tasks}, and process 1 of the jail and the program are {LEAST_TASKS}: \
                 raise it"
            )));
        }
        if groups.iter().any(|place| place.tasks) {
            // bubblewrap's monitor is in the group and not in the jail.
            surface.group_tasks = Some(tasks.saturating_add(1));
        } else if facts.means.tasks_by_limit {
            surface.resources.tasks = Some(tasks);
        } else {
            return Err(PlanError::Limits(
                "`tasks` cannot be enforced: no process limit binds user 0, and there is no control \
                 group here in which it may make another with the `pids` controller: start it as an \
                 ordinary user, or with `systemd-run --scope -p Delegate=yes`, or take `tasks` out"
                    .into(),
            ));
        }
    }
    if let Some(memory) = limits.memory {
        if memory < LEAST_MEMORY {
            return Err(PlanError::Limits(format!(
                "`memory` is {memory} bytes, and no program starts in less than {LEAST_MEMORY}: \
                 raise it"
            )));
        }
        surface.resources.memory = Some(memory);
        if groups.iter().any(|place| place.memory) {
            surface.group_memory = Some(memory);
        } else {
            notes.push(
                "`limits.memory` binds each process, not all together: there is no control group \
                 here in which this user may make another with the `memory` controller"
                    .into(),
            );
        }
    }
    surface.resources.file_size = limits.file_size;
    surface.groups = groups
        .iter()
        .filter(|place| {
            (place.tasks && surface.group_tasks.is_some())
                || (place.memory && surface.group_memory.is_some())
        })
        .cloned()
        .collect();
    Ok(())
}

#[cfg(test)]
mod tests;
