use super::*;
use crate::sandbox::machine::Bubblewrap;

fn good() -> Machine {
    Machine {
        uid: 1000,
        kernel: Some("6.12.1".into()),
        bubblewrap: Some(Bubblewrap {
            path: "/usr/bin/bwrap".into(),
            physical: "/usr/bin/bwrap".into(),
            privileged: false,
            version: Some(Version { major: 0, minor: 11 }),
        }),
        max_user_namespaces: Some(15_000),
        unprivileged_clone: Some(true),
        apparmor_restricts: Some(false),
        overlay: Some(true),
        landlock: Some(6),
        legacy_tiocsti: Some(false),
        covered_proc: Vec::new(),
        no_new_privileges: Some(false),
    }
}

fn find(machine: &Machine, id: &str) -> Finding {
    let mut found: Vec<Finding> = examine(machine, &["/ws".into()]);
    found.retain(|finding| finding.id == id);
    assert_eq!(found.len(), 1, "{id}");
    found.remove(0)
}

#[test]
fn on_a_good_machine_nothing_is_wrong() {
    for finding in examine(&good(), &["/ws".into()]) {
        assert!(matches!(finding.status, Status::Ok | Status::Info), "{finding:?}");
    }
}

#[test]
fn each_hindrance_is_named_with_its_repair() {
    let bubblewrap = |change: fn(&mut Bubblewrap)| {
        let mut found = good().bubblewrap.unwrap();
        change(&mut found);
        Machine { bubblewrap: Some(found), ..good() }
    };
    for (machine, id, status, part, repair) in [
        (
            Machine { kernel: Some("5.10.0-9-amd64".into()), ..good() },
            "launcher.kernel",
            Status::Problem,
            "5.10.0-9-amd64",
            "5.12",
        ),
        (
            Machine { bubblewrap: None, ..good() },
            "launcher.bubblewrap",
            Status::Problem,
            "not found on PATH",
            "apt install bubblewrap",
        ),
        (
            bubblewrap(|found| found.privileged = true),
            "launcher.bubblewrap",
            Status::Problem,
            "is setuid",
            "chmod u-s",
        ),
        (
            bubblewrap(|found| found.version = Some(Version { major: 0, minor: 7 })),
            "launcher.bubblewrap",
            Status::Problem,
            "version 0.7, which is too old",
            "install bubblewrap 0.8",
        ),
        (
            bubblewrap(|found| found.physical = "/ws/bin/x".into()),
            "launcher.bubblewrap",
            Status::Problem,
            "lies in the project",
            "out of PATH",
        ),
        (
            bubblewrap(|found| found.path = "/ws/bin/bwrap".into()),
            "launcher.bubblewrap",
            Status::Problem,
            "lies in the project",
            "out of PATH",
        ),
        (
            Machine { max_user_namespaces: Some(0), ..good() },
            "launcher.namespaces",
            Status::Problem,
            "`user.max_user_namespaces` is 0",
            "sysctl -w user.max_user_namespaces=15000",
        ),
        (
            Machine { unprivileged_clone: Some(false), ..good() },
            "launcher.namespaces",
            Status::Problem,
            "switched off for ordinary users",
            "kernel.unprivileged_userns_clone=1",
        ),
        (
            Machine { apparmor_restricts: Some(true), ..good() },
            "launcher.apparmor",
            Status::Warning,
            "AppArmor",
            "profile",
        ),
        (
            Machine { covered_proc: vec!["/proc/keys".into(), "/proc/sys".into()], ..good() },
            "launcher.proc",
            Status::Warning,
            "(`/proc/keys` and 1 more)",
            "`nestedUserns`",
        ),
        (
            Machine { legacy_tiocsti: Some(true), ..good() },
            "launcher.tiocsti",
            Status::Info,
            "type into it",
            "legacy_tiocsti=0",
        ),
    ] {
        let finding = find(&machine, id);
        assert_eq!(finding.status, status, "{finding:?}");
        assert!(finding.message.contains(part), "{finding:?}");
        assert!(finding.repair.as_deref().unwrap_or_default().contains(repair), "{finding:?}");
    }
}

#[test]
fn a_switch_for_ordinary_users_binds_bubblewrap_of_root_as_well() {
    let machine = Machine { uid: 0, unprivileged_clone: Some(false), ..good() };
    assert_eq!(find(&machine, "launcher.namespaces").status, Status::Problem);
}

#[test]
fn what_cannot_be_read_is_unknown_and_never_fine() {
    let nothing = Machine { bubblewrap: good().bubblewrap, ..Machine::default() };
    for id in ["launcher.kernel", "launcher.namespaces", "launcher.overlay", "launcher.privileges"]
    {
        assert_eq!(find(&nothing, id).status, Status::Unknown, "{id}");
    }
    let mut machine = good();
    machine.bubblewrap.as_mut().unwrap().version = None;
    assert_eq!(find(&machine, "launcher.bubblewrap").status, Status::Unknown);
}

#[test]
fn landlock_is_told_with_what_its_version_can() {
    for (version, part) in [
        (Some(7), "with scopes"),
        (Some(6), "with scopes"),
        (Some(5), "without scopes"),
        (Some(0), "switched off"),
        (None, "no Landlock"),
    ] {
        let finding = find(&Machine { landlock: version, ..good() }, "launcher.landlock");
        assert!(finding.message.contains(part), "{finding:?}");
    }
}
