//! The laws on random plans: whatever is denied, writable, read-only, absent, linked or refused by the
//! kernel, and in whatever order the lists say it.

use super::interpreter::{View, can_rename, view};
use super::*;

/// Every path that the tests speak of; the nearer ones are inside the others.
const PLACES: [&str; 22] = [
    "/data",
    "/data/keys",
    "/data/keys/deep",
    "/etc/secret",
    "/h/me/.aws",
    "/h/me/.aws/credentials",
    "/h/me/.cache",
    "/h/me/.cache/tool",
    "/h/me/.cache/tool/secret",
    "/h/me/.netrc",
    "/h/me/.config",
    "/h/me/.config/kli/auth",
    "/h/me/mnt/key",
    "/h/me/src/project/.env",
    "/h/me/src/project/sub",
    "/h/me/src/project/sub/key",
    "/h/me/src/project/sub/key/inner",
    "/h/me/src/other",
    "/opt/tool",
    "/opt/tool/key",
    "/run/secrets",
    "/tmp/x",
];

/// One entry of a deny list, and how it is there.
#[derive(Debug, Clone)]
struct Wish {
    place: &'static str,
    absent: bool,
    /// Where the symbolic links lie that lead to it.
    links: Option<&'static str>,
}

#[derive(Debug, Clone)]
struct World {
    denied: Vec<Wish>,
    writable: Vec<&'static str>,
    read_only: Vec<&'static str>,
    refused: Vec<&'static str>,
    missing: Option<&'static str>,
    mounted: bool,
}

fn place() -> impl Strategy<Value = &'static str> {
    prop::sample::select(PLACES.to_vec())
}

fn world() -> impl Strategy<Value = World> {
    let around = ["/h/me", "/h/me/src/project/links", "/h/me/.cache/tool/links"];
    let links = prop::option::of(prop::sample::select(around.to_vec()));
    let wish = (place(), any::<bool>(), links).prop_map(|(place, absent, links)| Wish {
        place,
        absent,
        links,
    });
    let places = |most| prop::collection::vec(place(), 0..most);
    let anchors = prop::sample::subsequence(vec!["/h/me", "/data", "/opt/tool"], 0..=3);
    (
        prop::collection::vec(wish, 0..7),
        places(5),
        places(4),
        anchors,
        prop::option::of(place()),
        prop::bool::weighted(0.2),
    )
        .prop_map(|(denied, writable, read_only, refused, missing, mounted)| World {
            denied,
            writable,
            read_only,
            refused,
            missing,
            mounted,
        })
}

/// The anchor that the look-up would find.
fn anchor(path: &str, mounted: bool) -> Option<PathBuf> {
    match path {
        _ if path.starts_with("/h/me/") && !mounted => Some("/h/me".into()),
        _ if path.starts_with("/h/me/mnt/") => Some("/h/me/mnt".into()),
        _ if path.starts_with("/h/me/.cache/") => Some("/h/me/.cache".into()),
        _ if path.starts_with("/data/") => Some("/data".into()),
        _ if path.starts_with("/opt/tool/") => Some("/opt/tool".into()),
        _ => None,
    }
}

/// The name of the symbolic link that stands for a wish.
fn linked(wish: &Wish) -> String {
    wish.place.replace('/', "-")
}

fn denied_as(wish: &Wish, mounted: bool) -> Denied {
    let place = |path: &str, missing, role| facts::Place {
        path: path.into(),
        missing,
        role,
        anchor: anchor(path, mounted),
    };
    let found = if wish.absent { Found::Absent } else { denied(wish.place).found };
    let mut places = vec![place(wish.place, usize::from(wish.absent), facts::Role::End)];
    if let Some(links) = wish.links {
        let way = facts::Role::Way("elsewhere".into());
        places.insert(0, place(&format!("{links}/{}", linked(wish)), 0, facts::Role::Last));
        places.insert(0, place(&format!("{links}/way"), 0, way));
    }
    Denied {
        key: "denyRead",
        wish: wish.place.into(),
        spelled: match wish.links {
            Some(links) => Path::new(links).join(linked(wish)),
            None => wish.place.into(),
        },
        found,
        places,
    }
}

fn facts_of(world: &World) -> Facts {
    let mut facts = facts();
    if world.mounted {
        facts.mounts = mountinfo::Table::parse(
            b"1 0 8:1 / / rw - x x rw\n2 1 0:7 / /h/me/mnt rw - tmpfs x rw\n",
        )
        .unwrap();
    }
    facts.denied = world.denied.iter().map(|wish| denied_as(wish, world.mounted)).collect();
    let missing = |path: &str| usize::from(world.missing == Some(path));
    facts.writable = world
        .writable
        .iter()
        .map(|path| Writable { missing: missing(path), ..there(path) })
        .collect();
    facts.read_only = world.read_only.iter().map(|path| there(path)).collect();
    facts.refused = world.refused.iter().map(|it| (it.into(), "no".into())).collect();
    facts
}

/// A plan, unless the world is one that is refused with a sentence.
fn try_plan(facts: &Facts) -> Option<Plan> {
    match build(&Spec::default(), facts, &Request::default()) {
        Ok(plan) => Some(plan),
        Err(
            PlanError::Workspace { .. }
            | PlanError::Writable { .. }
            | PlanError::State { .. }
            | PlanError::Config { .. }
            | PlanError::ReadOnly { .. },
        ) => None,
        Err(error) => panic!("{error}"),
    }
}

fn hides(plan: &Plan, path: &str) -> bool {
    matches!(view(plan, path), View::Hidden | View::Own)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn a_denied_path_is_never_seen(world in world()) {
        let facts = facts_of(&world);
        let Some(plan) = try_plan(&facts) else { return Ok(()) };
        for wish in &world.denied {
            let awaited = |mount: &Mount| Path::new(wish.place).starts_with(&mount.destination);
            // What is absent and held by a mount is hidden as soon as it is there.
            let later = wish.absent && plan.awaited.iter().any(awaited);
            prop_assert!(later || hides(&plan, wish.place), "{}: {:?}", wish.place, plan);
            let below = format!("{}/below", wish.place);
            prop_assert!(later || hides(&plan, &below));
        }
        // Masks come last, and no kind of mount comes after them.
        if let Some(first) = plan.mounts.iter().position(|mount| mount.kind.is_mask()) {
            prop_assert!(plan.mounts[first..].iter().all(|mount| mount.kind.is_mask()));
        }
        prop_assert_ne!(view(&plan, "/h/me/.config/kli/x"), View::Writable);
    }

    #[test]
    fn what_is_hidden_keeps_its_name_for_the_next_start(world in world()) {
        let facts = facts_of(&world);
        let Some(plan) = try_plan(&facts) else { return Ok(()) };
        for wish in &world.denied {
            let end = (!wish.absent).then(|| PathBuf::from(wish.place));
            let links = wish.links.into_iter().flat_map(|links| {
                [linked(wish).as_str(), "way"].map(|name| Path::new(links).join(name))
            });
            for place in end.into_iter().chain(links) {
                for path in place.ancestors() {
                    prop_assert!(!can_rename(&plan, path), "{}: {plan:?}", path.display());
                }
            }
        }
        // Nothing is held that has nothing to do with what is hidden or protected.
        if world.denied.is_empty() && world.read_only.is_empty() {
            let pins = plan.mounts.iter().filter(|mount| mount.kind == Kind::Pin).count();
            prop_assert_eq!(pins, 0);
        }
    }

    #[test]
    fn what_an_overlay_holds_is_held_for_good(world in world()) {
        let facts = facts_of(&world);
        let Some(plan) = try_plan(&facts) else { return Ok(()) };
        let writable = |path: &Path| {
            plan.mounts.iter().any(|it| it.kind == Kind::Writable && path.starts_with(&it.destination))
        };
        for overlay in &plan.overlays {
            // An overlay in something writable would take the writing away, one on a mount the other.
            prop_assert!(!writable(&overlay.anchor));
            prop_assert!(!facts.refused.iter().any(|(path, _)| *path == overlay.anchor));
            prop_assert!(facts.mounts.below(&overlay.anchor).is_empty());
            for name in &overlay.names {
                prop_assert!(name.path.starts_with(&overlay.anchor) && name.path != overlay.anchor);
                prop_assert!(!plan.rebinds.iter().any(|it| name.path.starts_with(&it.path)));
            }
        }
        // Without trouble everything below the home that is not writable and not fresh is by name.
        if world.refused.is_empty() && !world.mounted && !writable(Path::new(HOME)) {
            for mask in plan.mounts.iter().chain(&plan.awaited).filter(|it| it.kind.is_mask()) {
                let fresh = plan.rebinds.iter().any(|it| mask.destination.starts_with(&it.path));
                prop_assert!(!mask.destination.starts_with(HOME) || fresh, "{mask:?}");
            }
        }
    }

    #[test]
    fn what_is_read_only_is_never_written_and_what_is_writable_is(world in world()) {
        let facts = facts_of(&world);
        let Some(plan) = try_plan(&facts) else { return Ok(()) };
        let is_denied = |path: &str| {
            world.denied.iter().any(|wish| Path::new(path).starts_with(wish.place))
        };
        for path in &world.read_only {
            prop_assert_ne!(view(&plan, path), View::Writable, "{}", path);
            if !is_denied(path) {
                prop_assert_eq!(view(&plan, path), View::ReadOnly, "{}", path);
            }
        }
        for path in world.writable.iter().chain(&[WORKSPACE, "/h/me/.local/state/kli"]) {
            // The nearest of both lists decides.
            let nearest = |list: &[&str]| {
                let around = |it: &&&str| Path::new(path).starts_with(it);
                list.iter().filter(around).map(|it| it.len()).max()
            };
            let mut all = world.writable.clone();
            all.extend([WORKSPACE, "/h/me/.local/state/kli"]);
            let writable = nearest(&all) > nearest(&world.read_only);
            let config = path.starts_with("/h/me/.config/kli");
            let missing = world.missing == Some(path) && path.starts_with(WORKSPACE);
            if !is_denied(path) && writable && !config && !missing {
                prop_assert_eq!(view(&plan, path), View::Writable, "{}: {:?}", path, plan);
            }
        }
    }

    #[test]
    fn the_order_of_the_lists_does_not_matter(world in world(), seed in any::<u64>()) {
        let facts = facts_of(&world);
        let mut shuffled = facts.clone();
        let turn = |length: usize| usize::try_from(seed % 7).unwrap_or(0) % length.max(1);
        let (denied, writable, read_only) =
            (turn(facts.denied.len()), turn(facts.writable.len()), turn(facts.read_only.len()));
        shuffled.denied.rotate_left(denied);
        shuffled.writable.rotate_left(writable);
        shuffled.read_only.rotate_left(read_only);
        shuffled.denied.reverse();
        shuffled.writable.reverse();
        shuffled.read_only.reverse();
        prop_assert_eq!(try_plan(&facts), try_plan(&shuffled));
    }

    #[test]
    fn a_further_denial_never_grants(world in world(), place in place(), absent: bool) {
        let facts = facts_of(&world);
        let mut narrower = facts.clone();
        narrower.denied.push(denied_as(&Wish { place, absent, links: None }, world.mounted));
        let (Some(before), Some(after)) = (try_plan(&facts), try_plan(&narrower)) else {
            return Ok(());
        };
        for path in PLACES.iter().chain(&["/", "/etc/passwd", HOME, WORKSPACE, "/run/x"]) {
            let (before, after) = (view(&before, path).rights(), view(&after, path).rights());
            prop_assert!(after <= before, "{}", path);
        }
    }

    #[test]
    fn the_mechanism_never_shows_in_what_is_seen(world in world()) {
        let by_name = World { refused: Vec::new(), mounted: false, ..world.clone() };
        let by_mounts =
            World { refused: vec!["/h/me", "/data", "/opt/tool"], mounted: false, ..world };
        let (by_name, by_mounts) = (try_plan(&facts_of(&by_name)), try_plan(&facts_of(&by_mounts)));
        prop_assert_eq!(by_name.is_some(), by_mounts.is_some());
        let (Some(by_name), Some(by_mounts)) = (by_name, by_mounts) else { return Ok(()) };
        prop_assert!(by_mounts.overlays.is_empty());
        for path in PLACES.iter().chain(&[HOME, WORKSPACE, "/h/me/x", "/data/x"]) {
            let awaited = |it: &Mount| Path::new(path).starts_with(&it.destination);
            if !by_mounts.awaited.iter().any(awaited) {
                prop_assert_eq!(view(&by_name, path), view(&by_mounts, path), "{}", path);
            }
        }
    }
}
