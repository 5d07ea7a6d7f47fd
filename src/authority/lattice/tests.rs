//! The laws of the lattice, on random values, and the cases that people trip over.

use std::path::PathBuf;

use proptest::prelude::*;

use super::{
    super::subject::{Approval, Approve, Narrowing, Request, Source, Subject},
    *,
};

fn atom() -> impl Strategy<Value = Atom> {
    prop_oneof![
        4 => prop::sample::select(Atom::FIXED.to_vec()),
        1 => prop::sample::select(vec![
            Atom::McpServer("a".into()),
            Atom::McpServer("b".into()),
            Atom::McpTool("a".into(), "x".into()),
            Atom::McpTool("a".into(), "y".into()),
            Atom::McpTool("b".into(), "x".into()),
        ]),
    ]
}

fn hole() -> impl Strategy<Value = Atom> {
    prop_oneof![6 => atom(), 1 => Just(Atom::McpAll)]
}

fn path() -> impl Strategy<Value = PathBuf> {
    prop::collection::vec(prop::sample::select(vec!["srv", "data", "database"]), 0..3)
        .prop_map(|parts| parts.iter().fold(PathBuf::from("/"), |p, part| p.join(part)))
}

fn words() -> impl Strategy<Value = Vec<String>> {
    prop::collection::vec(
        prop::sample::select(vec!["git", "diff", "cargo"]).prop_map(str::to_owned),
        1..3,
    )
}

/// A constraint of the kind that the atom takes; `any` for atoms that take none.
fn entry() -> impl Strategy<Value = (Atom, Constraint)> {
    (atom(), prop::collection::vec(path(), 1..3), prop::collection::vec(words(), 1..3), any::<u8>())
        .prop_map(|(atom, paths, words, pick)| {
            let constraint = match (atom.constrained_by(), pick % 3) {
                (Some("path"), 0 | 1) => Constraint::under(paths),
                (Some("command words"), 0 | 1) => Constraint::commands(words),
                _ => Constraint::Any,
            };
            (atom, constraint)
        })
}

fn authority() -> impl Strategy<Value = Authority> {
    let base = prop_oneof![
        1 => Just(Authority::universal()),
        4 => prop::collection::vec(entry(), 0..6).prop_map(Authority::of),
    ];
    (base, prop::collection::vec(hole(), 0..3))
        .prop_map(|(base, holes)| holes.iter().fold(base, |a, hole| a.without(hole)))
}

/// Every single request that the pools above can form.
fn requests() -> Vec<(Atom, Detail)> {
    let mut all = Vec::new();
    let mut atoms = Atom::FIXED.to_vec();
    for (server, tool) in [("a", "x"), ("a", "y"), ("b", "x"), ("c", "z")] {
        atoms.push(Atom::McpTool(server.into(), tool.into()));
    }
    for atom in atoms {
        match atom.constrained_by() {
            Some("path") => {
                for path in ["/", "/srv", "/srv/data", "/srv/database", "/srv/data/x", "/etc"] {
                    all.push((atom.clone(), Detail::Path(path.into())));
                }
            }
            Some(_) => {
                for line in ["git", "git diff", "git diff x", "git log", "cargo", "ls"] {
                    let parsed = Some(vec![line.split(' ').map(str::to_owned).collect()]);
                    all.push((atom.clone(), Detail::Commands { line: line.into(), parsed }));
                }
                all.push((atom.clone(), Detail::Commands { line: "$x".into(), parsed: None }));
            }
            None => all.push((atom.clone(), Detail::Nothing)),
        }
    }
    all
}

proptest! {
    #[test]
    fn meet_is_commutative(a in authority(), b in authority()) {
        prop_assert_eq!(a.meet(&b), b.meet(&a));
    }

    #[test]
    fn meet_is_associative(a in authority(), b in authority(), c in authority()) {
        prop_assert_eq!(a.meet(&b).meet(&c), a.meet(&b.meet(&c)));
    }

    #[test]
    fn meet_is_idempotent(a in authority()) {
        prop_assert_eq!(a.meet(&a), a);
    }

    #[test]
    fn meet_is_covered_by_both_and_allows_what_both_allow(a in authority(), b in authority()) {
        let meet = a.meet(&b);
        prop_assert!(a.covers(&meet) && b.covers(&meet));
        for (atom, detail) in requests() {
            prop_assert_eq!(
                meet.allows(&atom, &detail),
                a.allows(&atom, &detail) && b.allows(&atom, &detail),
                "{} {:?}", atom, detail
            );
        }
    }

    #[test]
    fn covers_is_a_preorder(a in authority(), b in authority(), c in authority()) {
        prop_assert!(a.covers(&a));
        if a.covers(&b) && b.covers(&c) {
            prop_assert!(a.covers(&c));
        }
        // A chain that is one by construction, so that the law is not only met by accident.
        let ab = a.meet(&b);
        prop_assert!(a.covers(&ab.meet(&c)));
    }

    #[test]
    fn covers_means_that_every_request_is_allowed(a in authority(), b in authority()) {
        if a.covers(&b) {
            for (atom, detail) in requests() {
                prop_assert!(!b.allows(&atom, &detail) || a.allows(&atom, &detail));
            }
        }
        prop_assert_eq!(a.covers(&b), a.meet(&b) == b);
    }

    #[test]
    fn without_never_grows(a in authority(), atom in hole()) {
        prop_assert!(a.covers(&a.without(&atom)));
    }

    #[test]
    fn after_without_nothing_that_can_be_done_confers_it(a in authority(), dropped in hole()) {
        let less = a.without(&dropped);
        for (atom, detail) in requests() {
            if less.allows(&atom, &detail) {
                prop_assert!(!atom.closure().iter().any(|conferred| dropped.includes(conferred)));
            }
        }
    }

    #[test]
    fn without_takes_nothing_else(a in authority(), dropped in hole()) {
        let less = a.without(&dropped);
        for (atom, detail) in requests() {
            if !atom.closure().iter().any(|conferred| dropped.includes(conferred)) {
                prop_assert_eq!(less.allows(&atom, &detail), a.allows(&atom, &detail));
            }
        }
    }

    #[test]
    fn confer_gives_what_is_held_and_refuses_the_rest(a in authority(), b in authority()) {
        match a.confer(b.clone()) {
            Ok(given) => prop_assert!(given == b && a.covers(&b)),
            Err(Escalation) => prop_assert!(!a.covers(&b)),
        }
        prop_assert!(a.confer(a.meet(&b)).is_ok());
    }
}

#[test]
fn a_path_prefix_is_a_component_prefix() {
    let held = Authority::of([(Atom::FileWrite, Constraint::under(["/srv/data".into()]))]);
    assert!(held.allows(&Atom::FileWrite, &Detail::Path("/srv/data/x".into())));
    assert!(held.allows(&Atom::FileWrite, &Detail::Path("/srv/data".into())));
    assert!(!held.allows(&Atom::FileWrite, &Detail::Path("/srv/database".into())));
    assert!(!held.allows(&Atom::FileWrite, &Detail::Nothing));
}

#[test]
fn dropping_a_part_of_a_shorthand_drops_what_implies_the_part() {
    let all = Authority::universal().without(&Atom::FileWrite);
    assert!(!all.allows(&Atom::ImageEval, &Detail::Nothing));
    assert!(all.allows(&Atom::FileRead, &Detail::Nothing));
    let excluded: Vec<String> = all.excluded().map(ToString::to_string).collect();
    assert_eq!(excluded, ["file/write", "image/eval"]);
}

#[test]
fn a_hole_in_a_wildcard_survives_a_meet() {
    let server = Authority::of([(Atom::McpServer("a".into()), Constraint::Any)]);
    let hole = Authority::universal().without(&Atom::McpTool("a".into(), "x".into()));
    let both = server.meet(&hole);
    assert!(!both.allows(&Atom::McpTool("a".into(), "x".into()), &Detail::Nothing));
    assert!(both.allows(&Atom::McpTool("a".into(), "y".into()), &Detail::Nothing));
    assert!(!hole.covers(&server) && server.covers(&both) && !both.covers(&server));
}

#[test]
fn a_command_that_cannot_be_read_needs_the_unconstrained_atom() {
    let unread = Detail::Commands { line: "$(x)".into(), parsed: None };
    let list = Authority::of([(Atom::ProcessExec, Constraint::commands([vec!["git".into()]]))]);
    assert!(!list.allows(&Atom::ProcessExec, &unread));
    assert!(Authority::universal().allows(&Atom::ProcessExec, &unread));
}

fn only(authority: Authority) -> Narrowing {
    Narrowing::Only { authority, named: Vec::new() }
}

proptest! {
    #[test]
    fn a_sub_agent_never_does_more_than_its_parent_and_no_less_than_was_asked(
        held in authority(),
        asked in prop::option::of(authority()),
        policy in prop::sample::select(vec![Approve::Never, Approve::Writes, Approve::All]),
    ) {
        let parent = Subject::new([
            (Source::UserSettings, only(held)),
            (Source::Policy, Narrowing::Tools(vec!["edit".to_owned()])),
            (Source::Policy, Narrowing::Approve(policy)),
        ]);
        let child = parent.of_child(asked.clone().map(only));
        prop_assert!(parent.authority().covers(child.authority()));
        prop_assert!(!child.holds(&Atom::AgentSpawn), "it starts no further ones");
        prop_assert_eq!(child.approval_policy(), policy);
        prop_assert!(child.denied_tools().eq(parent.denied_tools()));
        for (atom, detail) in requests() {
            let of = |subject: &Subject, approval| {
                let request = Request { atom: atom.clone(), detail: detail.clone() };
                subject.check_with(request, approval).is_ok()
            };
            for approval in [Approval::CannotAsk, Approval::Given] {
                let within = asked.as_ref().is_none_or(|asked| asked.allows(&atom, &detail));
                let meant = of(&parent, approval) && within && atom != Atom::AgentSpawn;
                prop_assert_eq!(of(&child, approval), meant, "{}", atom);
            }
        }
    }
}
