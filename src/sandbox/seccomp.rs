//! The system calls that the inside may not make, by name, as a filter for the kernel (law 7). Pure:
//! what is allowed goes in, the words of a classic BPF program (seccomp(2)) come out.
//!
//! Everything that is not named is allowed. Knows nothing of plans and of bubblewrap.

mod bpf;
mod calls;
mod rules;

use bpf::{Instruction, Test};
pub(super) use rules::Group;
use rules::{Answer, Condition, GROUPS, Rule};

/// What the filter leaves open besides what is always allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Allow {
    /// Further user namespaces, and what is done inside them: mounts and other namespaces.
    pub user_namespaces: bool,
    /// New Unix sockets. A pair of connected ones is always allowed.
    pub unix_sockets: bool,
}

/// A processor architecture with its numbers of system calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Machine {
    /// 64-bit x86.
    X86_64,
    /// 64-bit ARM.
    Aarch64,
}

impl Machine {
    /// The one that this program was built for. For any other there is no filter, so no launcher.
    pub(super) const HERE: Self = {
        assert!(cfg!(any(target_arch = "x86_64", target_arch = "aarch64")));
        if cfg!(target_arch = "x86_64") { Self::X86_64 } else { Self::Aarch64 }
    };

    /// The `AUDIT_ARCH_…` value of the native calls (`linux/audit.h`).
    const fn token(self) -> u32 {
        match self {
            Self::X86_64 => 0xc000_003e,
            Self::Aarch64 => 0xc000_00b7,
        }
    }

    /// The number of a call, `None` where the architecture has none of that name.
    fn number(self, name: &str) -> Option<u32> {
        let (_, x86_64, aarch64) = calls::CALLS.iter().find(|call| call.0 == name)?;
        match self {
            Self::X86_64 => *x86_64,
            Self::Aarch64 => *aarch64,
        }
    }
}

/// The x32 interface of a 64-bit x86 kernel numbers its calls from here (`asm/unistd.h`).
const X32: u32 = 0x4000_0000;

/// The number that a debugger gives a call that shall not happen (ptrace(2)).
const SKIPPED: u32 = u32::MAX;

/// The groups of refusals that are in force.
pub(super) fn groups(allow: Allow) -> impl Iterator<Item = &'static Group> {
    GROUPS.iter().filter(move |group| !(group.with_namespaces && allow.user_namespaces))
}

/// The filter, in the layout of `struct sock_filter`.
pub(super) fn program(machine: Machine, allow: Allow) -> Vec<u8> {
    instructions(machine, allow).into_iter().flat_map(Instruction::bytes).collect()
}

fn instructions(machine: Machine, allow: Allow) -> Vec<Instruction> {
    let mut rules: Vec<(u32, &Rule)> = groups(allow)
        .flat_map(|group| group.rules)
        .filter_map(|rule| Some((machine.number(rule.call)?, rule)))
        .collect();
    super::sorted::by(&mut rules, |(a, _), (b, _)| a.cmp(b));
    let mut native = search(&rules, allow);
    if machine == Machine::X86_64 {
        let foreign = bpf::branch(
            Test::Equals(SKIPPED),
            Answer::Allow.instructions(),
            Answer::NO_SUCH_CALL.instructions(),
        );
        native = bpf::branch(Test::AtLeast(X32), foreign, native);
    }
    native.insert(0, bpf::load(bpf::NUMBER));
    let foreign = Answer::NO_SUCH_CALL.instructions();
    let mut whole = bpf::branch(Test::Equals(machine.token()), native, foreign);
    whole.insert(0, bpf::load(bpf::ARCHITECTURE));
    whole
}

/// Halves the numbers until one is left. The kernel runs this once for each number and remembers
/// those that are allowed whatever their arguments; the others take about seven comparisons.
fn search(rules: &[(u32, &Rule)], allow: Allow) -> Vec<Instruction> {
    match rules {
        [] => Answer::Allow.instructions(),
        [(number, rule)] => {
            bpf::branch(Test::Equals(*number), leaf(rule, allow), Answer::Allow.instructions())
        }
        _ => {
            let (low, high) = rules.split_at(rules.len() / 2);
            let first = high.first().map_or(0, |(number, _)| *number);
            bpf::branch(Test::AtLeast(first), search(high, allow), search(low, allow))
        }
    }
}

/// The answer to one call: that of the first case that holds.
fn leaf(rule: &Rule, allow: Allow) -> Vec<Instruction> {
    let cases = rule.cases.iter().filter(|case| allow.unix_sockets || !case.opens_unix);
    cases.rev().fold(rule.otherwise.instructions(), |rest, case| {
        case.when.iter().rev().fold(case.answer.instructions(), |holds, condition| {
            let (argument, test) = match *condition {
                Condition::AnyBit { argument, mask } => (argument, Test::AnyBit(mask)),
                Condition::Equals { argument, value } => (argument, Test::Equals(value)),
            };
            let mut code = bpf::branch(test, holds, rest.clone());
            code.insert(0, bpf::load(bpf::argument(argument)));
            code
        })
    })
}

#[cfg(test)]
mod tests;
