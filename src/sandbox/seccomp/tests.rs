#![expect(clippy::disallowed_methods, reason = "tests start processes themselves")]

use proptest::prelude::*;

use super::*;

const MACHINES: [Machine; 2] = [Machine::X86_64, Machine::Aarch64];
const CLOSED: Allow = Allow { user_namespaces: false, unix_sockets: true };

const ALLOW: u32 = 0x7fff_0000;

const fn errno(number: i32) -> u32 {
    0x0005_0000 | number.unsigned_abs()
}

fn allows() -> impl Iterator<Item = Allow> {
    [false, true].into_iter().flat_map(|user_namespaces| {
        [false, true].map(|unix_sockets| Allow { user_namespaces, unix_sockets })
    })
}

/// `struct seccomp_data` without the instruction pointer.
#[derive(Debug, Clone, Copy)]
struct Call {
    number: u32,
    architecture: u32,
    arguments: [u64; 6],
}

/// What the kernel's interpreter does with the instructions that are used; anything else is a fault.
fn run(program: &[Instruction], call: Call) -> u32 {
    let mut word = 0_u32;
    let mut at = 0_usize;
    loop {
        let step = program[at];
        at += 1;
        match step.code {
            bpf::LOAD => {
                word = match step.value {
                    bpf::NUMBER => call.number,
                    bpf::ARCHITECTURE => call.architecture,
                    offset => {
                        assert!((16..64).contains(&offset) && offset % 8 == 0, "{offset}");
                        u32::try_from(call.arguments[(offset as usize - 16) / 8] & 0xffff_ffff)
                            .unwrap()
                    }
                }
            }
            bpf::JUMP => at += step.value as usize,
            bpf::RETURN => return step.value,
            test => {
                let holds = match test {
                    bpf::EQUALS => word == step.value,
                    bpf::AT_LEAST => word >= step.value,
                    bpf::ANY_BIT => word & step.value != 0,
                    other => panic!("the kernel knows no {other:#x}"),
                };
                at += usize::from(if holds { step.yes } else { step.no });
            }
        }
    }
}

fn answer(machine: Machine, allow: Allow, name: &str, arguments: [u64; 6]) -> u32 {
    let Some(number) = machine.number(name) else { return ALLOW };
    let call = Call { number, architecture: machine.token(), arguments };
    run(&instructions(machine, allow), call)
}

/// The refusals once more, as they are told in words.
fn expected(allow: Allow, name: &str, arguments: [u64; 6]) -> u32 {
    let word = |index: usize| u32::try_from(arguments[index] & 0xffff_ffff).unwrap();
    let refuse_if = |refuse: bool| if refuse { errno(libc::EPERM) } else { ALLOW };
    match name {
        "unshare" | "clone" | "clone3" | "setns" | "mount" | "umount2" | "pivot_root"
        | "chroot" | "open_tree" | "open_tree_attr" | "move_mount" | "fsopen" | "fsconfig"
        | "fsmount" | "fspick" | "mount_setattr"
            if allow.user_namespaces =>
        {
            ALLOW
        }
        "clone3" | "statmount" | "listmount" | "openat2" => errno(libc::ENOSYS),
        "unshare" => refuse_if(word(0) & 0x7e02_0080 != 0),
        "clone" => refuse_if(word(0) & 0x7e02_0000 != 0),
        "ioctl" => {
            refuse_if([0x5412, 0x541c, 0x4b47, 0x4b49, 0x4b4b, 0x4bfb, 0x4b4d].contains(&word(1)))
        }
        "socket" => match (word(0), word(2)) {
            (1, _) if allow.unix_sockets => ALLOW,
            (2 | 10, _) | (16, 0) => ALLOW,
            (16, _) => errno(libc::EPROTONOSUPPORT),
            _ => errno(libc::EAFNOSUPPORT),
        },
        "socketpair" if word(0) == 1 => ALLOW,
        "socketpair" => errno(libc::EAFNOSUPPORT),
        "chmod" | "fchmod" | "mkdir" => refuse_if(word(1) & 0o4000 != 0),
        "fchmodat" | "fchmodat2" | "mkdirat" => refuse_if(word(2) & 0o4000 != 0),
        "creat" | "mknod" => refuse_if(word(1) & 0o6000 != 0),
        "mknodat" => refuse_if(word(2) & 0o6000 != 0),
        "open" => refuse_if(word(1) & 0o20_000_100 != 0 && word(2) & 0o6000 != 0),
        "openat" => refuse_if(word(2) & 0o20_000_100 != 0 && word(3) & 0o6000 != 0),
        _ => errno(libc::EPERM),
    }
}

/// Values that mean something to one of the calls, with dirt in the upper half now and then.
fn value() -> impl Strategy<Value = u64> {
    let low = prop_oneof![
        any::<u32>(),
        0_u32..64,
        (0_u32..32).prop_map(|bit| 1 << bit),
        prop::sample::select(vec![
            0x5412,
            0x541c,
            0x4b47,
            0x4b49,
            0x4b4b,
            0x4bfb,
            0x4b4d,
            0x5413,
            0o4755,
            0o2755,
            0o755,
            0o101,
            0o100_644,
            0o104_755,
            0o20_200_002,
            17,
        ]),
    ];
    (low, prop_oneof![Just(0_u64), any::<u64>()])
        .prop_map(|(low, high)| u64::from(low) | (high & 0xffff_ffff_0000_0000))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

    #[test]
    fn every_named_call_gets_its_answer(
        index in any::<prop::sample::Index>(),
        arguments in prop::array::uniform6(value()),
        user_namespaces: bool,
        unix_sockets: bool,
    ) {
        let allow = Allow { user_namespaces, unix_sockets };
        let name = calls::CALLS[index.index(calls::CALLS.len())].0;
        for machine in MACHINES {
            if machine.number(name).is_some() {
                prop_assert_eq!(
                    answer(machine, allow, name, arguments),
                    expected(allow, name, arguments),
                    "{} {:x?} {:?}", name, arguments, machine
                );
            }
        }
    }

    #[test]
    fn a_call_without_a_name_is_allowed(number in 0_u32..X32, arguments in prop::array::uniform6(value())) {
        for machine in MACHINES {
            let named = calls::CALLS.iter().any(|call| machine.number(call.0) == Some(number));
            if !named {
                let call = Call { number, architecture: machine.token(), arguments };
                prop_assert_eq!(run(&instructions(machine, CLOSED), call), ALLOW);
            }
        }
    }

    #[test]
    fn other_interfaces_of_the_machine_are_refused(number: u32, token: u32, arguments in prop::array::uniform6(value())) {
        for machine in MACHINES {
            let program = instructions(machine, Allow { user_namespaces: true, unix_sockets: true });
            // i386, 32-bit ARM, and anything.
            for architecture in [0x4000_0003, 0x4000_0028, token] {
                if architecture != machine.token() {
                    let call = Call { number, architecture, arguments };
                    prop_assert_eq!(run(&program, call), errno(libc::ENOSYS));
                }
            }
        }
    }
}

#[test]
fn the_x32_interface_is_refused_and_a_skipped_call_is_not() {
    let program = instructions(Machine::X86_64, CLOSED);
    let architecture = Machine::X86_64.token();
    for (number, expected) in [
        (X32, errno(libc::ENOSYS)),
        (X32 + 1, errno(libc::ENOSYS)),
        (X32 + 165, errno(libc::ENOSYS)),
        (u32::MAX - 1, errno(libc::ENOSYS)),
        (SKIPPED, ALLOW),
        (X32 - 1, ALLOW),
    ] {
        let call = Call { number, architecture, arguments: [0; 6] };
        assert_eq!(run(&program, call), expected, "{number:#x}");
    }
}

#[test]
fn the_program_is_one_that_the_kernel_takes() {
    for machine in MACHINES {
        for allow in allows() {
            let program = instructions(machine, allow);
            assert!(program.len() < 4096, "BPF_MAXINSNS: {}", program.len());
            assert_eq!(super::program(machine, allow).len(), program.len() * 8);
            for (at, step) in program.iter().enumerate() {
                let far = match step.code {
                    bpf::JUMP => step.value as usize,
                    _ => usize::from(step.yes.max(step.no)),
                };
                assert!(at + 1 + far < program.len() || step.code == bpf::RETURN, "{at}");
            }
            assert_eq!(program.last().unwrap().code, bpf::RETURN);
        }
    }
    let first = super::program(Machine::X86_64, CLOSED)[..8].to_vec();
    assert_eq!(first, [0x20, 0, 0, 0, 4, 0, 0, 0], "loads the architecture");
}

#[test]
fn a_branch_over_more_than_a_test_can_skip_arrives() {
    for length in [0, 1, 254, 255, 256, 257, 2_000] {
        let mut yes = vec![bpf::load(bpf::NUMBER); length];
        yes.push(bpf::answer(1));
        let program = bpf::branch(Test::Equals(7), yes, vec![bpf::answer(2)]);
        let program = [vec![bpf::load(bpf::NUMBER)], program].concat();
        for (number, expected) in [(7, 1), (8, 2)] {
            let call = Call { number, architecture: 0, arguments: [0; 6] };
            assert_eq!(run(&program, call), expected, "{length}");
        }
    }
}

#[test]
fn the_tables_fit_together() {
    let names: Vec<&str> = calls::CALLS.iter().map(|call| call.0).collect();
    assert!(names.is_sorted());
    let mut ruled: Vec<&str> =
        GROUPS.iter().flat_map(|group| group.rules).map(|rule| rule.call).collect();
    ruled.sort_unstable();
    assert_eq!(ruled, names, "each call has one rule");
    for machine in MACHINES {
        let mut numbers: Vec<u32> = names.iter().filter_map(|name| machine.number(name)).collect();
        let count = numbers.len();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), count, "{machine:?}");
    }
    for (name, x86_64, aarch64) in calls::CALLS {
        // Since Linux 5.1 a new call has one number on all architectures.
        if [x86_64, aarch64].iter().flatten().any(|number| *number >= 424) {
            assert_eq!(x86_64, aarch64, "{name}");
        }
        assert!(x86_64.is_some(), "{name}");
        if aarch64.is_none() {
            let old = ["chmod", "creat", "ioperm", "iopl", "mkdir", "mknod", "open"];
            assert!(old.contains(&name), "{name}");
        }
    }
}

/// Compares the numbers of this architecture with those of the C library's headers.
macro_rules! as_in_libc {
    ($($name:ident $number:ident),* $(,)?) => {
        [$((stringify!($name), libc::$number)),*]
    };
}

#[test]
fn the_numbers_are_those_of_the_c_library() {
    let known = as_in_libc![
        acct SYS_acct, add_key SYS_add_key, bpf SYS_bpf, chroot SYS_chroot, clone SYS_clone,
        clone3 SYS_clone3, delete_module SYS_delete_module, fchmod SYS_fchmod,
        fchmodat SYS_fchmodat, finit_module SYS_finit_module, fsconfig SYS_fsconfig,
        fsmount SYS_fsmount, fsopen SYS_fsopen, fspick SYS_fspick, init_module SYS_init_module,
        io_uring_enter SYS_io_uring_enter, io_uring_register SYS_io_uring_register,
        io_uring_setup SYS_io_uring_setup, ioctl SYS_ioctl, kexec_file_load SYS_kexec_file_load,
        kexec_load SYS_kexec_load, keyctl SYS_keyctl, mkdirat SYS_mkdirat, mknodat SYS_mknodat,
        mount SYS_mount, mount_setattr SYS_mount_setattr, move_mount SYS_move_mount,
        name_to_handle_at SYS_name_to_handle_at, open_by_handle_at SYS_open_by_handle_at,
        open_tree SYS_open_tree, openat SYS_openat, openat2 SYS_openat2,
        perf_event_open SYS_perf_event_open, pivot_root SYS_pivot_root, quotactl SYS_quotactl,
        quotactl_fd SYS_quotactl_fd, reboot SYS_reboot, request_key SYS_request_key,
        setns SYS_setns, socket SYS_socket, socketpair SYS_socketpair, swapoff SYS_swapoff,
        swapon SYS_swapon, syslog SYS_syslog, umount2 SYS_umount2, unshare SYS_unshare,
        userfaultfd SYS_userfaultfd,
    ];
    for (name, number) in known {
        assert_eq!(Machine::HERE.number(name).map(i64::from), Some(number), "{name}");
    }
    #[cfg(target_arch = "x86_64")]
    {
        let old = as_in_libc![
            chmod SYS_chmod, creat SYS_creat, fchmodat2 SYS_fchmodat2, ioperm SYS_ioperm,
            iopl SYS_iopl, mkdir SYS_mkdir, mknod SYS_mknod, open SYS_open,
        ];
        for (name, number) in old {
            assert_eq!(Machine::HERE.number(name).map(i64::from), Some(number), "{name}");
        }
        // Only these are not known to it yet.
        assert_eq!(known.len() + old.len() + 3, calls::CALLS.len());
    }
}

#[test]
fn constants_are_those_of_the_c_library() {
    let bits = |flags: i32| u32::try_from(flags).unwrap();
    let namespaces = libc::CLONE_NEWNS
        | libc::CLONE_NEWCGROUP
        | libc::CLONE_NEWUTS
        | libc::CLONE_NEWIPC
        | libc::CLONE_NEWUSER
        | libc::CLONE_NEWPID
        | libc::CLONE_NEWNET;
    assert_eq!(rules::NAMESPACES, bits(namespaces));
    assert_eq!(rules::TIME_NAMESPACE, bits(libc::CLONE_NEWTIME));
    assert_eq!(rules::CREATES, bits(libc::O_CREAT | (libc::O_TMPFILE & !libc::O_DIRECTORY)));
    assert_eq!(rules::SETUID, libc::S_ISUID);
    assert_eq!(rules::SETUID_OR_SETGID, libc::S_ISUID | libc::S_ISGID);
    assert_eq!(u64::from(rules::INJECTIONS[0]), libc::TIOCSTI);
    assert_eq!(u64::from(rules::LASTING[0]), libc::TIOCEXCL);
    for (ours, theirs) in [
        (rules::UNIX, libc::AF_UNIX),
        (rules::INET, libc::AF_INET),
        (rules::INET6, libc::AF_INET6),
        (rules::NETLINK, libc::AF_NETLINK),
        (rules::ROUTE, libc::NETLINK_ROUTE),
    ] {
        assert_eq!(ours, bits(theirs));
    }
}

#[test]
fn what_namespaces_allow_is_only_what_they_need() {
    let open = Allow { user_namespaces: true, unix_sockets: true };
    let names = |allow| groups(allow).map(|group| group.name).collect::<Vec<_>>();
    let (closed, open) = (names(CLOSED), names(open));
    let gone: Vec<_> = closed.iter().filter(|name| !open.contains(name)).collect();
    assert_eq!(gone, [&"namespaces", &"mounts"]);
}

/// Under the real kernel: what a machine without scopes gets.
#[test]
fn without_unix_sockets_none_is_opened_and_pairs_are() {
    let script = "print socket(S, 1, 1, 0) ? 0 : 0 + $!, q( ), socketpair(A, B, 1, 1, 0) ? 0 : 0 + $!, \
         q( ), socket(S, 2, 1, 0) ? 0 : 0 + $!";
    for (unix_sockets, expected) in [(true, "0 0 0"), (false, "97 0 0")] {
        let allow = Allow { user_namespaces: false, unix_sockets };
        let mut filter = tempfile::NamedTempFile::new().unwrap();
        std::io::Write::write_all(&mut filter, &super::program(Machine::HERE, allow)).unwrap();
        let output = std::process::Command::new("sh")
            .args([
                "-c",
                "exec bwrap --dev-bind / / --unshare-user --seccomp 9 perl -e \"$1\" 9<\"$2\"",
                "sh",
            ])
            .arg(script)
            .arg(filter.path())
            .output()
            .unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout), expected, "{output:?}");
    }
}
