//! What is refused, in groups, and with which error.
//!
//! `EPERM` is what the kernel says to somebody without the right, and most programs are ready for
//! it. `ENOSYS` is said where a program then takes an older call that can be judged by its arguments,
//! `EAFNOSUPPORT` and `EPROTONOSUPPORT` where it is built to do without that network.

use libc::{EAFNOSUPPORT, ENOSYS, EPERM, EPROTONOSUPPORT};

use super::bpf::{self, Instruction};

/// What the kernel shall do with a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::sandbox) enum Answer {
    /// Make it.
    Allow,
    /// Refuse it with this error number.
    Refuse(i32),
}

impl Answer {
    /// As a kernel answers that was built without the call.
    pub(super) const NO_SUCH_CALL: Self = Self::Refuse(ENOSYS);

    /// `SECCOMP_RET_ALLOW`, or `SECCOMP_RET_ERRNO` with the number.
    pub(super) const fn word(self) -> u32 {
        match self {
            Self::Allow => 0x7fff_0000,
            Self::Refuse(number) => 0x0005_0000 | number.unsigned_abs(),
        }
    }

    pub(super) fn instructions(self) -> Vec<Instruction> {
        vec![bpf::answer(self.word())]
    }
}

/// A condition on the low 32 bits of one argument, counted from zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::sandbox) enum Condition {
    /// At least one bit of the mask is set.
    AnyBit {
        /// Which argument.
        argument: u32,
        /// The bits.
        mask: u32,
    },
    /// It has this value.
    Equals {
        /// Which argument.
        argument: u32,
        /// The value.
        value: u32,
    },
}

/// An answer that is given when all conditions hold.
#[derive(Debug, Clone, Copy)]
pub(in crate::sandbox) struct Case {
    pub(super) when: &'static [Condition],
    pub(super) answer: Answer,
    /// It lets a Unix socket be made, and is left out where none may be.
    pub(super) opens_unix: bool,
}

/// A call with its cases; the first one that holds decides.
#[derive(Debug, Clone, Copy)]
pub(in crate::sandbox) struct Rule {
    pub(super) call: &'static str,
    pub(super) cases: &'static [Case],
    pub(super) otherwise: Answer,
}

/// Calls that are refused for one reason.
#[derive(Debug, Clone, Copy)]
pub(in crate::sandbox) struct Group {
    /// Its name, for `explain`.
    pub(in crate::sandbox) name: &'static str,
    /// What is refused and why, for people.
    pub(in crate::sandbox) what: &'static str,
    /// Whether it goes when further user namespaces are allowed.
    pub(super) with_namespaces: bool,
    pub(super) rules: &'static [Rule],
}

const fn never(call: &'static str) -> Rule {
    Rule { call, cases: &[], otherwise: Answer::Refuse(EPERM) }
}

const fn missing(call: &'static str) -> Rule {
    Rule { call, cases: &[], otherwise: Answer::NO_SUCH_CALL }
}

const fn when(call: &'static str, cases: &'static [Case]) -> Rule {
    Rule { call, cases, otherwise: Answer::Allow }
}

const fn forbidden(when: &'static [Condition]) -> Case {
    Case { when, answer: Answer::Refuse(EPERM), opens_unix: false }
}

const fn bits(argument: u32, mask: u32) -> Condition {
    Condition::AnyBit { argument, mask }
}

const fn is(argument: u32, value: u32) -> Condition {
    Condition::Equals { argument, value }
}

/// `CLONE_NEWNS`, `NEWCGROUP`, `NEWUTS`, `NEWIPC`, `NEWUSER`, `NEWPID` and `NEWNET` (`linux/sched.h`).
pub(super) const NAMESPACES: u32 = 0x7e02_0000;

/// `CLONE_NEWTIME`; in the flags of clone(2) these bits are a signal's number.
pub(super) const TIME_NAMESPACE: u32 = 0x80;

/// `O_CREAT` and the own bit of `O_TMPFILE` (`asm-generic/fcntl.h`): only then is there a mode.
pub(super) const CREATES: u32 = 0o20_000_100;

/// `S_ISUID`.
pub(super) const SETUID: u32 = 0o4000;

/// `S_ISUID` and `S_ISGID`.
pub(super) const SETUID_OR_SETGID: u32 = 0o6000;

/// `TIOCSTI` and `TIOCLINUX`, and what changes the meaning of a console's keys: `KDSKBENT`,
/// `KDSKBSENT`, `KDSKBDIACR`, `KDSKBDIACRUC`, `KDSETKEYCODE` (`asm-generic/ioctls.h`, `linux/kd.h`).
pub(super) const INJECTIONS: [u32; 7] = [0x5412, 0x541c, 0x4b47, 0x4b49, 0x4b4b, 0x4bfb, 0x4b4d];

/// What would still bind the caller's terminal when the inside has ended, and is no mode that anybody puts
/// back: `TIOCEXCL`, `TIOCSETD`; of a console `KDSETMODE`, `KDSKBMODE`, `KDSKBMUTE`, `VT_ACTIVATE`,
/// `VT_SETMODE` (`linux/vt.h`).
pub(super) const LASTING: [u32; 7] = [0x540c, 0x5423, 0x4b3a, 0x4b45, 0x4b51, 0x5606, 0x5602];

const fn control(command: u32) -> [Condition; 1] {
    [is(1, command)]
}

const fn controls(commands: [u32; 7]) -> [[Condition; 1]; 7] {
    let [one, two, three, four, five, six, seven] = commands;
    [
        control(one),
        control(two),
        control(three),
        control(four),
        control(five),
        control(six),
        control(seven),
    ]
}

const INJECTION: [[Condition; 1]; 7] = controls(INJECTIONS);
const LAST: [[Condition; 1]; 7] = controls(LASTING);

const fn family(when: &'static [Condition], opens_unix: bool) -> Case {
    Case { when, answer: Answer::Allow, opens_unix }
}

pub(super) const UNIX: u32 = 1;
pub(super) const INET: u32 = 2;
pub(super) const INET6: u32 = 10;
pub(super) const NETLINK: u32 = 16;
/// `NETLINK_ROUTE`: addresses and routes, which name look-ups ask for.
pub(super) const ROUTE: u32 = 0;

/// Every refusal. A call is in one group only.
pub(super) const GROUPS: [Group; 10] = [
    Group {
        name: "terminal",
        what: "typing into the terminal (TIOCSTI, TIOCLINUX), changing a console's keys, and what \
               would bind the terminal for longer than the run (TIOCEXCL, TIOCSETD)",
        with_namespaces: false,
        rules: &[when(
            "ioctl",
            &[
                forbidden(&INJECTION[0]),
                forbidden(&INJECTION[1]),
                forbidden(&INJECTION[2]),
                forbidden(&INJECTION[3]),
                forbidden(&INJECTION[4]),
                forbidden(&INJECTION[5]),
                forbidden(&INJECTION[6]),
                forbidden(&LAST[0]),
                forbidden(&LAST[1]),
                forbidden(&LAST[2]),
                forbidden(&LAST[3]),
                forbidden(&LAST[4]),
                forbidden(&LAST[5]),
                forbidden(&LAST[6]),
            ],
        )],
    },
    Group {
        name: "namespaces",
        what: "further namespaces, in which the inside would have privileges",
        with_namespaces: true,
        rules: &[
            when("unshare", &[forbidden(&[bits(0, NAMESPACES | TIME_NAMESPACE)])]),
            when("clone", &[forbidden(&[bits(0, NAMESPACES)])]),
            // Its flags are in memory, where no filter looks; programs take clone(2) then.
            missing("clone3"),
            never("setns"),
        ],
    },
    Group {
        name: "mounts",
        what: "mounts and other roots, which could uncover what is hidden",
        with_namespaces: true,
        rules: &[
            never("mount"),
            never("umount2"),
            never("pivot_root"),
            never("chroot"),
            never("open_tree"),
            never("open_tree_attr"),
            never("move_mount"),
            never("fsopen"),
            never("fsconfig"),
            never("fsmount"),
            never("fspick"),
            never("mount_setattr"),
        ],
    },
    Group {
        name: "mount lists",
        what: "statmount and listmount, which tell more of the mounts than /proc does",
        with_namespaces: false,
        rules: &[missing("statmount"), missing("listmount")],
    },
    Group {
        name: "file handles",
        what: "files by number, past every path and every mask",
        with_namespaces: false,
        rules: &[never("name_to_handle_at"), never("open_by_handle_at")],
    },
    Group {
        name: "keyrings",
        what: "the kernel's keyrings, which belong to the user and not to the jail",
        with_namespaces: false,
        rules: &[never("keyctl"), never("add_key"), never("request_key")],
    },
    Group {
        name: "kernel",
        what: "bpf, perf, userfaultfd, modules, kexec, the kernel's log, swap, quotas, accounting",
        with_namespaces: false,
        rules: &[
            never("bpf"),
            never("perf_event_open"),
            never("userfaultfd"),
            never("kexec_load"),
            never("kexec_file_load"),
            never("init_module"),
            never("finit_module"),
            never("delete_module"),
            never("syslog"),
            never("reboot"),
            never("acct"),
            never("quotactl"),
            never("quotactl_fd"),
            never("swapon"),
            never("swapoff"),
            never("iopl"),
            never("ioperm"),
        ],
    },
    Group {
        name: "io_uring",
        what: "io_uring, which makes other calls past this filter",
        with_namespaces: false,
        // As the kernel answers where `kernel.io_uring_disabled` is 2.
        rules: &[never("io_uring_setup"), never("io_uring_enter"), never("io_uring_register")],
    },
    Group {
        name: "sockets",
        what: "socket families but Unix, IPv4, IPv6 and the route part of netlink",
        with_namespaces: false,
        rules: &[
            Rule {
                call: "socket",
                cases: &[
                    family(&[is(0, UNIX)], true),
                    family(&[is(0, INET)], false),
                    family(&[is(0, INET6)], false),
                    family(&[is(0, NETLINK), is(2, ROUTE)], false),
                    Case {
                        when: &[is(0, NETLINK)],
                        answer: Answer::Refuse(EPROTONOSUPPORT),
                        opens_unix: false,
                    },
                ],
                otherwise: Answer::Refuse(EAFNOSUPPORT),
            },
            Rule {
                call: "socketpair",
                cases: &[family(&[is(0, UNIX)], false)],
                otherwise: Answer::Refuse(EAFNOSUPPORT),
            },
        ],
    },
    Group {
        name: "setuid files",
        what: "files that run with their owner's rights (S_ISUID, and S_ISGID at their creation)",
        with_namespaces: false,
        rules: &[
            when("chmod", &[forbidden(&[bits(1, SETUID)])]),
            when("fchmod", &[forbidden(&[bits(1, SETUID)])]),
            when("fchmodat", &[forbidden(&[bits(2, SETUID)])]),
            when("fchmodat2", &[forbidden(&[bits(2, SETUID)])]),
            when("mkdir", &[forbidden(&[bits(1, SETUID)])]),
            when("mkdirat", &[forbidden(&[bits(2, SETUID)])]),
            when("creat", &[forbidden(&[bits(1, SETUID_OR_SETGID)])]),
            when("mknod", &[forbidden(&[bits(1, SETUID_OR_SETGID)])]),
            when("mknodat", &[forbidden(&[bits(2, SETUID_OR_SETGID)])]),
            when("open", &[forbidden(&[bits(1, CREATES), bits(2, SETUID_OR_SETGID)])]),
            when("openat", &[forbidden(&[bits(2, CREATES), bits(3, SETUID_OR_SETGID)])]),
            // Its mode is in memory.
            missing("openat2"),
        ],
    },
];
