//! The policy of the machine, in a mount namespace where the real one is out of the way, and approval.

use super::*;

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

/// What implies eval and is taken away, or eval itself, in the machine's policy, over settings that
/// give all.
#[cfg(feature = "lisp")]
#[test]
fn the_machines_policy_takes_eval_with_what_it_implies() {
    let script = || {
        let form = r#"{ "form": "(write-file \"made\" \"x\")" }"#;
        FakeModel::strict(vec![
            Answer::new(message([tool_use("c", "eval", form)])),
            Answer::new(message([text("done")])),
        ])
    };
    both(|who| {
        for (policy, part) in [
            (r#"{ "capabilities": ["file/read", "file/write", "process/exec"] }"#, "`image/eval`"),
            (r#"{ "capabilities": ["tools/standard", "image/inspect"] }"#, "`image/eval`"),
            (r#"{ "denyTools": ["eval"] }"#, "the tool `eval` is denied by `denyTools`"),
            (r#"{ "denyTools": ["bash"] }"#, ""),
            (r#"{ "approve": "writes" }"#, "`image/eval` needs approval"),
            ("{}", ""),
        ] {
            let server = script();
            let env = Env::new().at(&server.base_url()).var("ANTHROPIC_API_KEY", "not-used");
            env.settings(r#"{ "capabilities": ["tools/standard", "image/eval"] }"#);
            let machine = Machine::policy(env, policy);
            let words = ["-p", "hi", "--capabilities", "image/eval", "--output-format", "json"];
            let ran = machine.kli(who, &words);
            let offered = server.bodies()[0]["tools"].to_string().contains("\"eval\"");
            let made = machine.env.work().join("made").exists();
            let denied = ran.json()["denied"].clone();
            let label = format!("{policy} {who:?}: {ran:?}");
            if part.is_empty() {
                ran.exits(0);
                assert!(made && offered, "control: {label}");
                assert_eq!(denied, json!([]), "control: {label}");
                continue;
            }
            ran.exits(3);
            assert!(!made, "{label}");
            assert_eq!(denied.as_array().unwrap().len(), 1, "{label}");
            assert_eq!(denied[0]["tool"], "eval", "{label}");
            assert_eq!(denied[0]["atom"], "image/eval", "{label}");
            let said = server.bodies()[1].to_string();
            assert!(said.contains(part) && said.contains("policy"), "{label} {said}");
            assert!(said.contains("nothing was done"), "{label} {said}");
            // What needs approval is offered: somebody could give it.
            assert_eq!(offered, policy.contains("approve"), "{label}");
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
