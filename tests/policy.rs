//! Layers × capabilities: the run's subject is the meet of all layers, computed here a second time
//! by a naive model; and the machine's policy, which nothing overrides, in a mount namespace of its
//! own, for root and for an ordinary user.

mod machine;

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use kli::{
    authority::{Approve, Atom, Detail, List, Source, Subject},
    config::{Layer, Layers, Policy, Settings, Switches},
};
use proptest::{prelude::*, sample::Index};
use serde_json::{Value, json};

use crate::{
    fake_model::{Answer, FakeModel, message, text, tool_use},
    harness::{Env, Ran},
};

/// What a list may hold: as settings write it, and the concrete requests that it covers by itself.
fn entries() -> Vec<Value> {
    vec![
        json!("file/read"),
        json!("file/write"),
        json!({ "atom": "file/write", "under": ["a"] }),
        json!({ "atom": "file/write", "under": ["a/b", "c"] }),
        json!({ "atom": "file/edit", "under": ["a", "c"] }),
        json!("file/edit"),
        json!("process/exec"),
        json!({ "atom": "process/exec", "commands": ["git"] }),
        json!({ "atom": "process/exec", "commands": ["git log", "ls"] }),
        json!("image/inspect"),
        json!("image/eval"),
        json!("result/read"),
        json!("extension/spawn-process"),
        json!("agent/spawn"),
        json!("session/control"),
        json!("mcp/s/t"),
        json!("mcp/s/u"),
        json!("mcp/s/*"),
        json!("mcp/r/t"),
        json!("tools/standard"),
    ]
}

/// A concrete request: the atom's name, and a path or a command line.
type Ask = (&'static str, &'static str);

const ASKS: &[Ask] = &[
    ("file/read", ""),
    ("file/write", "/ws/a/x"),
    ("file/write", "/ws/a/b/x"),
    ("file/write", "/ws/ab"),
    ("file/write", "/ws/c"),
    ("file/edit", "/ws/a/x"),
    ("file/edit", "/ws/c/x"),
    ("file/edit", "/elsewhere"),
    ("process/exec", "git log"),
    ("process/exec", "git push"),
    ("process/exec", "ls"),
    ("process/exec", "rm"),
    ("image/inspect", ""),
    ("image/eval", ""),
    ("result/read", ""),
    ("extension/spawn-process", ""),
    ("agent/spawn", ""),
    ("session/control", ""),
    ("mcp/s/t", ""),
    ("mcp/s/u", ""),
    ("mcp/s/v", ""),
    ("mcp/r/t", ""),
    ("mcp/q/t", ""),
];

/// What holding an atom implies, written down again from docs/authority.md.
fn implied(atom: &str) -> &'static [&'static str] {
    match atom {
        "file/read" | "process/exec" | "image/inspect" => &["result/read"],
        "image/eval" => &[
            "file/read",
            "file/write",
            "file/edit",
            "process/exec",
            "extension/spawn-process",
            "image/inspect",
            "result/read",
        ],
        "tools/standard" => {
            &["file/read", "file/write", "file/edit", "process/exec", "result/read"]
        }
        _ => &[],
    }
}

/// The naive model: does one entry allow one request?
fn entry_allows(entry: &Value, (atom, about): Ask) -> bool {
    let name = entry.as_str().or(entry["atom"].as_str()).unwrap();
    if implied(name).contains(&atom) {
        return true;
    }
    let server = name
        .strip_suffix("/*")
        .is_some_and(|server| atom.strip_prefix(server).is_some_and(|rest| rest.starts_with('/')));
    if name != atom && !server {
        return false;
    }
    let list = |key: &str| entry[key].as_array().cloned();
    if let Some(paths) = list("under") {
        return paths.iter().any(|path| {
            let path = format!("/ws/{}", path.as_str().unwrap());
            about == path || about.starts_with(&format!("{path}/"))
        });
    }
    if let Some(lines) = list("commands") {
        return lines.iter().any(|line| {
            let line = line.as_str().unwrap();
            about == line || about.starts_with(&format!("{line} "))
        });
    }
    true
}

type Lists = [Option<Vec<Value>>; 7];
const BAKED: usize = 0;
const USER: usize = 1;
const PROJECT: usize = 2;
const PROFILE: usize = 3;
const FLAG: usize = 4;
const POLICY: usize = 5;
const BAKED_POLICY: usize = 6;

#[derive(Clone, Debug)]
struct World {
    lists: Lists,
    deny: [Vec<&'static str>; 7],
    switches: Switches,
    approve: [Approve; 2],
}

/// The naive model of the whole: every layer has its say, and each can only take away.
fn wanted(world: &World, ask: Ask) -> bool {
    let (atom, _) = ask;
    let lists = world.lists.iter().flatten();
    let all = lists.clone().all(|list| list.iter().any(|entry| entry_allows(entry, ask)));
    let takes = |dropped: &str| atom == dropped || implied(atom).contains(&dropped);
    let named = |name: &str| {
        [BAKED, USER, PROFILE, FLAG]
            .iter()
            .filter_map(|at| world.lists[*at].as_ref())
            .any(|list| list.iter().any(|entry| entry.as_str() == Some(name)))
    };
    let mut fine = all;
    if world.switches.no_bash && takes("process/exec") {
        fine = false;
    }
    if world.switches.no_eval && takes("image/eval") {
        fine = false;
    }
    if world.switches.read_only {
        if ["file/write", "file/edit", "process/exec"].into_iter().any(takes) {
            fine = false;
        }
        if takes("extension/spawn-process") && !named("extension/spawn-process") {
            fine = false;
        }
        if atom.starts_with("mcp/") && !named(atom) {
            fine = false;
        }
    }
    fine
}

fn text_of(list: Option<&Vec<Value>>, deny: &[&str]) -> Value {
    let mut object = json!({});
    if let Some(list) = list {
        object["capabilities"] = json!(list);
    }
    if !deny.is_empty() {
        object["denyTools"] = json!(deny);
    }
    object
}

fn parse(value: &Value, layer: Layer) -> Settings {
    Settings::parse("s", value.to_string().as_bytes(), layer).unwrap().0
}

/// The layers as a run would read them.
fn layers(world: &World) -> Layers {
    let text = |at: usize| text_of(world.lists[at].as_ref(), &world.deny[at]);
    let mut user = text(USER);
    user["profile"] = json!("own");
    user["profiles"] =
        json!({ "own": { "settings": text(PROFILE), "approve": world.approve[0].name() } });
    let mut flags = Settings::default();
    if let Some(list) = &world.lists[FLAG] {
        let list = List::from_value(&json!(list)).unwrap();
        flags.capabilities.push((Source::Flag("--capabilities".into()), list));
    }
    let policy = |at: usize, approve: Approve| {
        let mut value = text(at);
        value["approve"] = json!(approve.name());
        Policy::parse("p", value.to_string().as_bytes()).unwrap()
    };
    Layers {
        files: vec![
            parse(&text(BAKED), Layer::Baked),
            parse(&user, Layer::User),
            parse(&text(PROJECT), Layer::Project),
        ],
        flags,
        switches: world.switches,
        policies: vec![policy(POLICY, world.approve[1]), policy(BAKED_POLICY, Approve::Never)],
        default_profile: "print",
    }
}

fn subject(layers: Layers) -> Subject {
    layers.settle().unwrap().subject(|_, path| Path::new("/ws").join(path))
}

fn allows(subject: &Subject, (atom, about): Ask) -> bool {
    let atom: Atom = atom.parse().unwrap();
    let detail = match atom {
        Atom::FileWrite | Atom::FileEdit => Detail::Path(about.into()),
        Atom::ProcessExec => Detail::Commands {
            line: about.to_owned(),
            parsed: Some(vec![about.split(' ').map(str::to_owned).collect()]),
        },
        _ => Detail::Nothing,
    };
    subject.authority().allows(&atom, &detail)
}

fn a_list() -> impl Strategy<Value = Option<Vec<Value>>> {
    let list = prop::collection::vec(any::<Index>(), 0..7);
    prop::option::weighted(
        0.6,
        list.prop_map(|picks| {
            let entries = entries();
            picks.iter().map(|pick| pick.get(&entries).clone()).collect()
        }),
    )
}

fn a_world() -> impl Strategy<Value = World> {
    let tools = ["bash", "write", "read", "edit"];
    let deny = prop::collection::vec(prop::sample::subsequence(tools.to_vec(), 0..3), 7);
    let approve = prop::sample::select(vec![Approve::Never, Approve::Writes, Approve::All]);
    (prop::collection::vec(a_list(), 7), deny, any::<[bool; 3]>(), [approve.clone(), approve])
        .prop_map(|(lists, mut deny, [read_only, no_bash, no_eval], approve)| {
            // A flag denies no tools.
            deny[FLAG].clear();
            World {
                lists: lists.try_into().unwrap(),
                deny: deny.try_into().unwrap(),
                switches: Switches { read_only, no_bash, no_eval },
                approve,
            }
        })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_subject_is_the_meet_of_all_layers(world in a_world()) {
        let subject = subject(layers(&world));
        for ask in ASKS {
            prop_assert_eq!(allows(&subject, *ask), wanted(&world, *ask), "{:?}", ask);
        }
        let mut denied: Vec<&str> = world.deny.iter().flatten().copied().collect();
        denied.sort_unstable();
        denied.dedup();
        prop_assert_eq!(subject.denied_tools().map(|(tool, _)| tool).collect::<Vec<_>>(), denied);
        prop_assert_eq!(Some(subject.approval_policy()), world.approve.iter().max().copied());
    }

    #[test]
    fn the_order_of_layers_changes_nothing(world in a_world(), turn in 0..3_usize) {
        let straight = layers(&world);
        let mut turned = straight.clone();
        turned.files.rotate_left(turn);
        turned.policies.reverse();
        let (straight, turned) = (subject(straight), subject(turned));
        prop_assert_eq!(straight.authority(), turned.authority());
        prop_assert_eq!(straight.approval_policy(), turned.approval_policy());
        let tools = |subject: &Subject| -> Vec<String> {
            subject.denied_tools().map(|(tool, _)| tool.to_owned()).collect()
        };
        prop_assert_eq!(tools(&straight), tools(&turned));
    }

    #[test]
    fn a_project_and_a_policy_only_take_away(world in a_world()) {
        for strange in [PROJECT, POLICY, BAKED_POLICY] {
            let mut without = world.clone();
            without.lists[strange] = None;
            without.deny[strange].clear();
            let (with, without) = (subject(layers(&world)), subject(layers(&without)));
            prop_assert!(without.authority().covers(with.authority()));
            for (tool, _) in without.denied_tools() {
                prop_assert!(with.denied_tools().any(|(denied, _)| denied == tool));
            }
        }
    }
}

/// Returns whether the report of the preview holds an atom.
fn holds(report: &Value, atom: &str) -> bool {
    let names = |key: &str| -> Vec<String> {
        let name = |one: &Value| one.as_str().or(one["atom"].as_str()).unwrap().to_owned();
        report[key].as_array().into_iter().flatten().map(name).collect()
    };
    match report["scope"].as_str().unwrap() {
        "universal" => true,
        "none" => false,
        "universal-except" => !names("excluded").iter().any(|out| out == atom),
        _ => names("capabilities").iter().any(|held| held == atom),
    }
}

#[test]
fn the_built_program_computes_the_same_subject() {
    let lists = [
        None,
        Some(json!([])),
        Some(json!(["file/read", "process/exec", "image/eval"])),
        Some(json!(["tools/standard", "session/control"])),
    ];
    let atoms =
        ["file/read", "file/write", "process/exec", "image/eval", "session/control", "agent/spawn"];
    let mut seen = std::collections::BTreeSet::new();
    for number in 0..96_usize {
        // A walk over the combinations in which every pair of layers meets every pair of lists.
        let pick = |layer: usize| &lists[(number * (layer * 2 + 1) / 3 + number / 4 + layer) % 4];
        let world: Vec<&Option<Value>> = (0..6).map(pick).collect();
        let (read_only, no_bash) = (number % 3 == 1, number % 5 == 2);
        let env = Env::new();
        let object = |list: &Option<Value>| {
            list.as_ref().map_or(json!({}), |list| json!({ "capabilities": list }))
        };
        let baked = env.work().join("store");
        fs::create_dir(&baked).unwrap();
        fs::write(baked.join("settings.json"), object(world[0]).to_string()).unwrap();
        fs::write(baked.join("policy.json"), object(world[5]).to_string()).unwrap();
        let mut user = object(world[1]);
        user["profiles"] = json!({ "own": { "settings": object(world[3]) } });
        env.settings(&user.to_string());
        fs::create_dir(env.work().join(".kli")).unwrap();
        fs::write(env.work().join(".kli/settings.json"), object(world[2]).to_string()).unwrap();
        let env = env.var("KLI_BAKED", baked.to_str().unwrap());
        let mut words = vec!["--print-authority", "--json", "--profile", "own"];
        let names: String;
        if let Some(list) = world[4] {
            let list: Vec<&str> =
                list.as_array().unwrap().iter().map(|n| n.as_str().unwrap()).collect();
            names = list.join(",");
            words.extend(["--capabilities", &names]);
        }
        if read_only {
            words.push("--read-only");
        }
        if no_bash {
            words.push("--no-bash");
        }
        let ran = env.kli(&words);
        ran.exits(0);
        let report: Value = serde_json::from_str(&ran.out).unwrap();
        seen.insert(report["scope"].as_str().unwrap().to_owned());
        for atom in atoms {
            let everyone = world.iter().filter_map(|list| list.as_ref()).all(|list| {
                list.as_array().unwrap().iter().any(|entry| entry_allows(entry, (atom, "")))
            });
            let takes = |dropped: &str| atom == dropped || implied(atom).contains(&dropped);
            let dropped = (no_bash && takes("process/exec"))
                || (read_only
                    && ["file/write", "file/edit", "process/exec"].into_iter().any(takes));
            assert_eq!(
                holds(&report, atom),
                everyone && !dropped,
                "{atom} in {number}: {world:?} {report}"
            );
        }
    }
    assert!(seen.len() >= 2 && seen.contains("bounded"), "control: {seen:?}");
}
