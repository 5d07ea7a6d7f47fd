use proptest::prelude::*;

use super::super::super::limits::Means;
use super::super::super::plan::{Kind, Plan, Request, build};
use super::super::super::spec::Limits;
use super::super::tests::facts;
use super::*;

const PLACE: &str = "/sys/fs/cgroup/user";

fn place(tasks: bool, memory: bool) -> Place {
    Place { directory: PLACE.into(), tasks, memory }
}

fn planned(spec: &Spec, facts: &Facts) -> Plan {
    build(spec, facts, &Request::default()).unwrap()
}

fn noted(plan: &Plan, part: &str) -> bool {
    plan.notes.iter().any(|note| note.contains(part))
}

#[test]
fn abstract_sockets_are_kept_out_on_every_kernel_and_where_not_it_is_told() {
    for version in [None, Some(0), Some(5), Some(6), Some(7), Some(9)] {
        for network in [true, false] {
            for allowed in [true, false] {
                let facts = Facts { landlock: version, ..facts() };
                let spec = Spec { network, allow_abstract_sockets: allowed, ..Spec::default() };
                let plan = planned(&spec, &facts);
                let scoped = version >= Some(6);
                assert_eq!(plan.kernel.scoped, scoped, "also where the network is off");
                let expected = match (network, scoped, allowed) {
                    (false, ..) => AbstractSockets::OwnNetwork,
                    (true, true, _) => AbstractSockets::Scoped,
                    (true, false, false) => AbstractSockets::NoSockets,
                    (true, false, true) => AbstractSockets::Reachable,
                };
                assert_eq!(plan.kernel.abstract_sockets, expected);
                let none = expected == AbstractSockets::NoSockets;
                assert_eq!(plan.kernel.allow.unix_sockets, !none);
                assert_eq!(noted(&plan, "no Unix socket can be opened inside"), none);
                let open = expected == AbstractSockets::Reachable;
                assert_eq!(noted(&plan, "that is a way out"), open);
                let told = format!("\"abstractSockets\":\"{}\"", expected.word());
                assert!(plan.marker.contains(&told), "{}", plan.marker);
                assert!(plan.marker.contains(&format!("\"signalsScoped\":{scoped}")));
            }
        }
    }
    let cut = Request { no_network: true, ..Request::default() };
    let facts = Facts { landlock: None, ..facts() };
    let plan = build(&Spec::default(), &facts, &cut).unwrap();
    assert_eq!(plan.kernel.abstract_sockets, AbstractSockets::OwnNetwork);
}

#[test]
fn user_namespaces_stay_forbidden_unless_they_are_allowed() {
    let closed = planned(&Spec::default(), &facts());
    assert!(closed.disable_userns && !closed.kernel.allow.user_namespaces);
    // bubblewrap cannot there, the filter does.
    let nested = Spec { nested_userns: true, ..Spec::default() };
    let nested = planned(&nested, &Facts { sysctl_read_only: true, ..facts() });
    assert!(!nested.disable_userns && !nested.kernel.allow.user_namespaces);
    let allowed = Spec { allow_user_namespaces: true, ..Spec::default() };
    let allowed = planned(&allowed, &facts());
    assert!(!allowed.disable_userns && allowed.kernel.allow.user_namespaces);
    assert!(noted(&allowed, "which uncovers it"));
    let names = |plan: &Plan| plan.kernel.refused().map(|group| group.0).collect::<Vec<_>>();
    assert_eq!(names(&closed).len(), names(&allowed).len() + 2);
    assert!(!names(&allowed).contains(&"mounts"));
}

#[test]
fn a_limit_is_kept_by_one_means_or_refused() {
    let spec = |tasks, memory, file_size| Spec {
        limits: Some(Limits { tasks, memory, file_size }),
        ..Spec::default()
    };
    let with = |tasks_by_limit, groups: &[Place]| Facts {
        means: Means { tasks_by_limit, groups: groups.to_vec() },
        ..facts()
    };
    // By a resource limit.
    let plan = planned(&spec(Some(50), Some(1 << 30), Some(9)), &with(true, &[]));
    let all = Resources { tasks: Some(50), memory: Some(1 << 30), file_size: Some(9) };
    assert_eq!(plan.kernel.resources, all);
    assert!(plan.kernel.groups.is_empty());
    assert!(noted(&plan, "binds each process, not all together"));
    assert!(plan.marker.contains("50 processes and threads, by a resource limit"));
    // By a control group, whoever starts it.
    for binds in [true, false] {
        let plan =
            planned(&spec(Some(50), Some(1 << 30), None), &with(binds, &[place(true, true)]));
        assert_eq!(plan.kernel.resources.tasks, None);
        assert_eq!(plan.kernel.group_tasks, Some(51));
        assert_eq!(plan.kernel.group_memory, Some(1 << 30));
        assert_eq!(plan.kernel.groups, [place(true, true)]);
        assert!(!noted(&plan, "binds each process"));
        assert!(plan.marker.contains("50 processes and threads, by a control group"));
    }
    // A group for something that is not asked for is not made.
    let plan = planned(&spec(None, Some(1 << 30), None), &with(true, &[place(true, false)]));
    assert!(plan.kernel.groups.is_empty());
    // By nothing.
    let refused = |spec: &Spec, facts: &Facts| {
        build(spec, facts, &Request::default()).unwrap_err().to_string()
    };
    let text = refused(&spec(Some(50), None, None), &with(false, &[place(false, true)]));
    assert!(text.contains("`tasks` cannot be enforced") && text.contains("systemd-run"), "{text}");
    let text = refused(&spec(Some(1), None, None), &with(true, &[]));
    assert!(text.contains("`tasks` is 1"), "{text}");
    let text = refused(&spec(None, Some(4096), None), &with(true, &[]));
    assert!(text.contains("`memory` is 4096 bytes"), "{text}");
    // Nothing is asked for.
    assert_eq!(planned(&Spec::default(), &with(false, &[])).kernel.resources, Resources::default());
}

proptest! {
    #[test]
    fn all_memory_that_files_can_take_is_a_quarter(
        memory in (64_u64 << 20)..(4 << 40),
        runtime: bool,
        nested_userns: bool,
        uid in prop::sample::select(vec![0, 1000]),
    ) {
        let facts = Facts {
            memory,
            uid,
            runtime: runtime.then(|| "/var/lib/session/1000".into()),
            ..facts()
        };
        let plan = planned(&Spec { nested_userns, ..Spec::default() }, &facts);
        let mut total = 0;
        for (at, mount) in plan.mounts.iter().enumerate() {
            match mount.kind {
                Kind::Tmpfs { size, .. } => {
                    prop_assert!(size > 0, "{:?} has no bound", mount);
                    total += size;
                }
                // bubblewrap gives it half the memory, so nothing may be put there.
                Kind::Dev => {
                    let later = &plan.mounts[at..];
                    let sealed = later.iter().any(|later| {
                        later.kind == Kind::Seal && later.destination == mount.destination
                    });
                    prop_assert!(sealed);
                }
                _ => {}
            }
        }
        prop_assert!(total > 0 && total <= memory / 4, "{total} of {memory}");
    }
}
