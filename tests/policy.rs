//! Layers × capabilities: the run's subject is the meet of all layers, computed here a second time
//! by a naive model; and the machine's policy, which nothing overrides, in a mount namespace of its
//! own, for root and for an ordinary user.

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

/// Who runs kli in a mount namespace of its own, where `/etc` is what the test says. The real one is
/// not touched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Who {
    Root,
    User,
}

struct Machine {
    env: Env,
    mounts: Vec<String>,
}

impl Machine {
    fn new(env: Env) -> Self {
        Self { env, mounts: Vec::new() }
    }

    /// Puts a policy into `/etc/kli`.
    fn policy(env: Env, text: &str) -> Self {
        let file = env.home().join("policy.json");
        fs::write(&file, text).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
        let mut machine = Self::new(env);
        machine.mount("--ro-bind", file.to_str().unwrap(), "/etc/kli/policy.json");
        machine
    }

    fn mount(&mut self, how: &str, from: &str, to: &str) {
        self.mounts.extend([how, from, to].map(str::to_owned));
    }

    fn kli(&self, who: Who, words: &[&str]) -> Ran {
        let plain = self.env.command(words);
        let mut command = Command::new("bwrap");
        command.args(["--dev-bind", "/", "/", "--tmpfs", "/etc", "--dir", "/etc/kli"]);
        command.args(&self.mounts);
        let id = if who == Who::Root { "0" } else { "54321" };
        command.args(["--unshare-user", "--uid", id, "--gid", id, "--cap-drop", "ALL", "--"]);
        command.arg(plain.get_program()).args(plain.get_args());
        command.current_dir(plain.get_current_dir().unwrap()).env_clear();
        for (name, value) in plain.get_envs() {
            command.env(name, value.unwrap());
        }
        let output = command.stdin(Stdio::null()).output().unwrap();
        Ran::from(output)
    }
}

fn both(test: impl Fn(Who)) {
    test(Who::User);
    test(Who::Root);
}

fn writes_a_file(path: &Path) -> FakeModel {
    let arguments = json!({ "path": path, "content": "x" }).to_string();
    FakeModel::strict(vec![
        Answer::new(message([tool_use("c", "write", &arguments)])),
        Answer::new(message([text("done")])),
    ])
}

#[test]
fn nothing_overrides_the_machines_policy() {
    both(|who| {
        for (policy, part) in [
            (r#"{ "capabilities": ["file/read"] }"#, "does not hold `file/write`"),
            (r#"{ "denyTools": ["write"] }"#, "the tool `write` is denied by `denyTools`"),
            (r#"{ "approve": "writes" }"#, "`file/write` needs approval"),
        ] {
            let env = Env::new();
            let target = env.work().join("made");
            let server = writes_a_file(&target);
            // Everything that a user has says otherwise.
            let wide = r#"{ "capabilities": ["tools/standard"], "profile": "wide",
                "profiles": { "wide": { "approve": "never",
                                        "settings": { "capabilities": ["tools/standard"] } } } }"#;
            env.settings(wide);
            let elsewhere = env.home().join("elsewhere");
            fs::create_dir_all(elsewhere.join("kli")).unwrap();
            for name in ["settings.json", "policy.json"] {
                fs::write(elsewhere.join(name), "{}").unwrap();
                fs::write(elsewhere.join("kli").join(name), "{}").unwrap();
            }
            let elsewhere = elsewhere.to_str().unwrap().to_owned();
            let env = env
                .at(&server.base_url())
                .var("ANTHROPIC_API_KEY", "not-used")
                .var("KLI_BAKED", &elsewhere)
                .var("XDG_CONFIG_DIRS", &elsewhere)
                .var("KLI_POLICY", &format!("{elsewhere}/policy.json"));
            let machine = Machine::policy(env, policy);
            let words = [
                "-p",
                "hi",
                "--capabilities",
                "tools/standard",
                "--trust-project",
                "--output-format",
                "json",
            ];
            let ran = machine.kli(who, &words);
            ran.exits(3).says(part).says("policy");
            assert_eq!(ran.json()["denied"][0]["tool"], "write");
            assert!(!target.exists(), "{policy}");

            // Control: the same run without the policy writes.
            let server = writes_a_file(&target);
            let env = machine.env.at(&server.base_url());
            let machine = Machine::new(env);
            machine.kli(who, &words).exits(0);
            assert_eq!(fs::read_to_string(&target).unwrap(), "x");
        }
    });
}

#[test]
fn a_tool_that_the_policy_denies_is_not_offered_and_the_preview_says_so() {
    both(|who| {
        let server = FakeModel::strict(vec![Answer::new(message([text("done")]))]);
        let env = Env::new().at(&server.base_url()).var("ANTHROPIC_API_KEY", "not-used");
        let machine = Machine::policy(env, r#"{ "denyTools": ["bash", "rm"] }"#);
        let ran = machine.kli(who, &["-p", "hi"]);
        ran.exits(0).says("`denyTools` of policy names `rm`, which is no tool");
        let tools = server.bodies()[0]["tools"].to_string();
        assert!(!tools.contains("\"bash\"") && tools.contains("\"read\""), "{tools}");
        let ran = machine.kli(who, &["--print-authority", "--json"]);
        let report: Value = serde_json::from_str(&ran.exits(0).out).unwrap();
        assert_eq!(report["sources"], json!(["policy"]));
        let notes = report["notes"].to_string();
        assert!(notes.contains("the tool `bash` is denied and not offered"), "{notes}");
    });
}

#[test]
fn the_policy_bounds_budgets_models_addresses_trust_and_the_place() {
    both(|who| {
        let server = FakeModel::start(vec![]);
        let run = |policy: &str, words: &[&str]| {
            let env = Env::new().at(&server.base_url()).var("ANTHROPIC_API_KEY", "not-used");
            fs::create_dir(env.work().join(".kli")).unwrap();
            fs::write(env.work().join(".kli/settings.json"), r#"{ "log": "/l" }"#).unwrap();
            Machine::policy(env, policy).kli(who, words)
        };
        let hi = &["-p", "hi"][..];
        for (policy, words, part) in [
            (r#"{ "allowedModels": ["work/*"] }"#, hi, "does not allow the model `anthropic/"),
            (r#"{ "allowedModels": [] }"#, hi, "it allows none"),
            (
                r#"{ "allowedAddresses": ["https://api.anthropic.com"] }"#,
                hi,
                "does not allow the address of the provider `anthropic`",
            ),
            (
                r#"{ "trustProjects": false }"#,
                &["-p", "hi", "--trust-project"],
                "no project be trusted",
            ),
            (r#"{ "trustProjects": false }"#, &["trust"], "no project be trusted"),
            (r#"{ "requireSandbox": true }"#, hi, "only inside `kli-sandbox`"),
        ] {
            run(policy, words).exits(2).says(part);
        }
        assert!(server.requests().is_empty(), "nothing was sent");
        let shown = run(r#"{ "budgets": { "turns": 3 } }"#, &["config", "show"]);
        assert!(shown.exits(0).out.contains("budgets.turns = 3  (policy)\n"), "{shown:?}");
        let ran = run(
            r#"{ "budgets": { "turns": 3 } }"#,
            &["--print-authority", "--profile", "autonomous", "--max-turns", "50"],
        );
        ran.exits(0).says("note: budget: at most 3 turns (from policy)");
        let checked = run("{}", &["config", "check"]);
        checked.exits(0).says("policy: /etc/kli/policy.json (read)");
    });
}

#[test]
fn a_policy_that_cannot_be_read_stops_every_run() {
    let server = FakeModel::start(vec![]);
    both(|who| {
        let mut checked = 0;
        let mut refused = |arrange: &dyn Fn(&Env, &mut Vec<[String; 3]>), part: &str| {
            let env = Env::new().at(&server.base_url()).var("ANTHROPIC_API_KEY", "not-used");
            let mut mounts = Vec::new();
            arrange(&env, &mut mounts);
            let mut machine = Machine::new(env);
            for [how, from, to] in &mounts {
                machine.mount(how, from, to);
            }
            for words in [&["-p", "hi"][..], &["--print-authority"], &["config", "check"]] {
                let start = Instant::now();
                let ran = machine.kli(who, words);
                ran.exits(2).says("policy.json").says(part);
                assert_eq!(ran.out, "");
                assert!(start.elapsed() < Duration::from_secs(5), "it was waited for");
                checked += 1;
            }
        };
        let put = |env: &Env, text: &str, mode: u32| {
            let file = env.home().join("p.json");
            fs::write(&file, text).unwrap();
            fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
            [
                "--ro-bind".into(),
                file.to_str().unwrap().to_owned(),
                "/etc/kli/policy.json".to_owned(),
            ]
        };
        refused(&|env, m| m.push(put(env, "not json", 0o644)), "policy.json:1:1");
        refused(&|env, m| m.push(put(env, "", 0o644)), "the policy is empty");
        refused(
            &|env, m| m.push(put(env, "{ \"denyTool\": [] }", 0o644)),
            "did you mean `denyTools`?",
        );
        refused(&|env, m| m.push(put(env, "{ \"capabilities\": null }", 0o644)), "found null");
        refused(&|env, m| m.push(put(env, "{}", 0o666)), "chmod go-w");
        // A directory in which others can put another one in its place.
        for (mode, part) in [(0o777, "chmod go-w"), (0o775, "others than its owner can replace")] {
            refused(
                &|env, m| {
                    let directory = env.home().join("kli");
                    fs::create_dir(&directory).unwrap();
                    fs::write(directory.join("policy.json"), "{}").unwrap();
                    let permissions = fs::Permissions::from_mode(mode);
                    fs::set_permissions(&directory, permissions).unwrap();
                    let directory = directory.to_str().unwrap().to_owned();
                    m.push(["--ro-bind".into(), directory, "/etc/kli".into()]);
                },
                part,
            );
        }
        refused(
            &|env, m| m.push(put(env, &" ".repeat((1 << 20) + 1), 0o644)),
            "longer than 1048576 bytes",
        );
        refused(&|env, m| m.push(put(env, "{}", 0o000)), "permission denied");
        refused(
            &|_, m| m.push(["--symlink".into(), "/nowhere".into(), "/etc/kli/policy.json".into()]),
            "is a link that leads nowhere",
        );
        refused(
            &|env, m| {
                let home = env.home().to_str().unwrap().to_owned();
                m.push(["--ro-bind".into(), home, "/etc/kli/policy.json".into()]);
            },
            "is a directory",
        );
        refused(
            &|env, m| {
                let fifo: PathBuf = env.home().join("fifo");
                let made = Command::new("mkfifo").arg(&fifo).status().unwrap();
                assert!(made.success());
                m.push([
                    "--ro-bind".into(),
                    fifo.to_str().unwrap().into(),
                    "/etc/kli/policy.json".into(),
                ]);
            },
            "is a FIFO",
        );
        assert_eq!(checked, 36);
    });
    assert!(server.requests().is_empty(), "nothing was sent");
    // Control: a policy that can be read stops nothing, and who owns it is said.
    let machine = Machine::policy(Env::new(), "{}");
    machine
        .kli(Who::User, &["--print-authority"])
        .exits(0)
        .says("belongs to user 54321 and not to root");
    let ran = machine.kli(Who::Root, &["--print-authority"]);
    assert!(!ran.exits(0).err.contains("belongs to user"), "{ran:?}");
}

#[test]
fn a_baked_policy_holds_as_well() {
    let env = Env::new();
    let baked = env.work().join("store");
    fs::create_dir(&baked).unwrap();
    fs::write(baked.join("settings.json"), r#"{ "capabilities": ["tools/standard"] }"#).unwrap();
    let env = env.var("KLI_BAKED", baked.to_str().unwrap());
    assert!(env.kli(&["--print-authority"]).exits(0).out.contains("process/exec"), "control");
    fs::write(baked.join("policy.json"), r#"{ "capabilities": ["file/read"] }"#).unwrap();
    let ran = env.kli(&["--print-authority", "--capabilities", "tools/standard"]);
    assert_eq!(ran.exits(0).out, "authority:\n  file/read\n  result/read\n");
    ran.says("narrowed by: policy");
    fs::write(baked.join("policy.json"), "[]").unwrap();
    env.kli(&["--print-authority"]).exits(2).says("policy.json:1:1: expected an object");
}

#[test]
fn a_policy_file_can_be_checked_before_it_is_put_in_place() {
    let env = Env::new();
    let file = env.work().join("policy.json");
    fs::write(&file, r#"{ "requireSandbox": true }"#).unwrap();
    assert_eq!(env.kli(&["config", "check", "policy.json"]).exits(0).out, "policy: ok\n");
    fs::write(&file, r#"{ "requireSandbx": true }"#).unwrap();
    env.kli(&["config", "check", "policy.json"]).exits(2).says("did you mean `requireSandbox`?");
}

#[test]
fn calls_that_need_approval_are_denied_by_a_headless_run() {
    for (approve, denied) in [("writes", "write"), ("all", "read")] {
        let env = Env::new();
        fs::write(env.work().join("seen"), "text").unwrap();
        let target = env.work().join("made");
        let read = json!({ "path": "seen" }).to_string();
        let write = json!({ "path": target, "content": "x" }).to_string();
        let answers = || {
            vec![
                Answer::new(message([
                    tool_use("a", "read", &read),
                    tool_use("b", "write", &write),
                ])),
                Answer::new(message([text("done")])),
            ]
        };
        let server = FakeModel::strict(answers());
        let profile = |approve: &str| {
            format!("{{ \"profiles\": {{ \"careful\": {{ \"approve\": \"{approve}\" }} }} }}")
        };
        env.settings(&profile(approve));
        let env = env.at(&server.base_url()).var("ANTHROPIC_API_KEY", "not-used");
        let words = ["-p", "hi", "--profile", "careful", "--output-format", "json"];
        let start = Instant::now();
        let ran = env.kli(&words);
        ran.exits(3)
            .says("needs approval")
            .says("a headless run cannot ask")
            .says("profile careful");
        assert_eq!(ran.json()["denied"][0]["tool"], denied);
        assert!(!target.exists() && start.elapsed() < Duration::from_secs(20));
        let sent = server.bodies()[1]["messages"].to_string();
        assert_eq!(sent.contains("|text"), approve == "writes", "reading alone needs none: {sent}");
        let preview = env.kli(&["--print-authority", "--profile", "careful"]);
        preview.exits(0).says("needs approval (asked for by profile careful)");
        // Control.
        let server = FakeModel::strict(answers());
        env.settings(&profile("never"));
        let env = env.at(&server.base_url());
        env.kli(&words).exits(0);
        assert!(target.exists());
    }
}
