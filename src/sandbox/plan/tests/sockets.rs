//! Law 6 on random plans: no socket of the host is reached but an allowed one.

use super::super::super::sockets::{Allowed, State};
use super::*;

const PLACES: [&str; 10] = [
    "/h/me",
    "/h/me/.cache/tool",
    "/h/me/src/project",
    "/h/me/src/project/sub",
    "/h/me/src/other",
    "/run/user/1000",
    "/run/service",
    "/tmp/x",
    "/var/lib/service",
    "/data",
];

fn socket() -> impl Strategy<Value = String> {
    (prop::sample::select(&PLACES[..]), "[ab]").prop_map(|(place, name)| format!("{place}/{name}"))
}

/// Whether the host's socket is what the inside finds at a path.
fn is_reached(plan: &Plan, path: &str) -> bool {
    let over = plan.mounts.iter().rev().find(|mount| {
        !matches!(mount.kind, Kind::Seal | Kind::Protect | Kind::Pin)
            && Path::new(path).starts_with(&mount.destination)
    });
    // Through an overlay the host's sockets are others, but for what is shown over it as it is.
    let cut = plan.overlays.iter().any(|it| Path::new(path).starts_with(&it.anchor))
        && !plan.rebinds.iter().any(|it| Path::new(path).starts_with(&it.path));
    over.is_some_and(|mount| mount.kind.is_bind()) && !cut
}

proptest! {
    #[test]
    fn no_socket_is_reached_but_an_allowed_one(
        found in prop::collection::btree_set(socket(), 0..8),
        allowed in prop::collection::btree_set(socket(), 0..4),
        writable in prop::sample::subsequence(&PLACES[1..5], 0..3),
    ) {
        let mut facts = facts();
        facts.writable = writable.into_iter().map(there).collect();
        // What is allowed and there is found like any other.
        facts.sockets.found = found.union(&allowed).map(PathBuf::from).collect();
        facts.sockets.allowed = allowed
            .iter()
            .map(|path| Allowed { path: there(path), targets: Vec::new(), state: State::There })
            .collect();
        let plan = plan(&facts);
        for path in found.union(&allowed) {
            prop_assert_eq!(is_reached(&plan, path), allowed.contains(path), "{}", path);
        }
        // Nothing more is shown for a socket than the socket.
        for path in &allowed {
            let directory = Path::new(path).parent().unwrap();
            if directory.starts_with("/run") || directory.starts_with("/tmp") {
                let neighbour = directory.join("neighbour");
                prop_assert!(!is_reached(&plan, neighbour.to_str().unwrap()));
            }
        }
    }
}
