//! `kli trust`: the one way to let a project say more, bound to the digests of its files.

use super::*;

fn record(env: &Env) -> PathBuf {
    env.home().join(".config/kli/trust.json")
}

/// A project that sets a bound, which shows whether it is trusted.
fn bounded(directory: &Path) {
    fs::create_dir_all(directory.join(".git")).unwrap();
    fs::create_dir_all(directory.join(".kli")).unwrap();
    let shell = directory.join("tools/shell.sh");
    fs::create_dir_all(directory.join("tools")).unwrap();
    script(&shell, "exec /bin/sh \"$@\"");
    let text = json!({ "budgets": { "turns": 7 }, "bash": { "shell": shell }, "extensions": ["tools/more"] });
    fs::write(directory.join(".kli/settings.json"), text.to_string()).unwrap();
}

fn is_trusted(env: &Env, directory: &Path) -> bool {
    let ran = Ran::from(env.command(&["config", "show"]).current_dir(directory).output().unwrap());
    ran.exits(0);
    let set = ran.out.contains("budgets.turns = 7  (project settings)");
    let asks = notices(&ran).iter().filter(|line| line.contains("kli trust")).count();
    assert_eq!(asks, usize::from(!set), "a notice or the value: {ran:?}");
    set
}

#[test]
fn trust_is_bound_to_the_path_and_to_every_file_it_activates() {
    let env = Env::new();
    let work = env.work();
    bounded(&work);
    assert!(!is_trusted(&env, &work), "control");
    let ran = env.kli(&["trust"]);
    ran.exits(0);
    let root = work.display().to_string();
    for part in [
        "budgets.turns = 7  (requests to the model)",
        "extensions  (not part of this version)",
        "file .kli/settings.json  sha256:",
        "file tools/shell.sh  sha256:",
        &format!("trusted: {root}\n"),
    ] {
        assert!(ran.out.contains(part), "`{part}` in {ran:#?}");
    }
    assert!(is_trusted(&env, &work));
    assert!(env.kli(&["trust", "--list"]).exits(0).out.contains(&format!("{root}  (trusted)")));
    let mode = fs::metadata(record(&env)).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);

    let changes: &[(&str, &dyn Fn())] = &[
        ("the settings, by a comment", &|| {
            let file = work.join(".kli/settings.json");
            let text = fs::read_to_string(&file).unwrap();
            fs::write(&file, format!("{text}// \n")).unwrap();
        }),
        ("a file that they name", &|| script(&work.join("tools/shell.sh"), "evil; exec /bin/sh")),
        ("a file that they name and that was not there", &|| {
            fs::write(work.join("tools/more"), "(evil)").unwrap();
        }),
        ("a file in a directory that they name", &|| {
            fs::remove_file(work.join("tools/more")).unwrap();
            fs::create_dir(work.join("tools/more")).unwrap();
            fs::write(work.join("tools/more/x.scm"), "(evil)").unwrap();
        }),
        ("a file that became a link", &|| {
            fs::remove_file(work.join("tools/shell.sh")).unwrap();
            symlink("/bin/sh", work.join("tools/shell.sh")).unwrap();
        }),
    ];
    for (what, change) in changes {
        assert!(is_trusted(&env, &work), "before: {what}");
        change();
        assert!(!is_trusted(&env, &work), "{what} asks again");
        env.kli(&["trust", "--list"]).exits(0);
        let listed = env.kli(&["trust", "--list"]).out;
        assert!(listed.contains("changed since: not trusted"), "{what}: {listed}");
        if *what == "a file that became a link" {
            env.kli(&["trust"]).exits(2).says("leads out of the project");
        } else {
            env.kli(&["trust"]).exits(0);
        }
    }
}

#[test]
fn trust_does_not_reach_a_nested_repository_nor_a_copy_and_can_be_taken_back() {
    let env = Env::new();
    let (work, nested, copy) = (env.work(), env.work().join("nested"), env.home().join("copy"));
    for directory in [&work, &nested, &copy] {
        bounded(directory);
    }
    env.kli(&["trust"]).exits(0);
    assert!(is_trusted(&env, &work));
    assert!(!is_trusted(&env, &nested) && !is_trusted(&env, &copy));
    env.kli(&["trust", "nested"]).exits(0);
    assert!(is_trusted(&env, &nested));
    env.kli(&["trust", "--revoke"]).exits(0);
    assert!(!is_trusted(&env, &work) && is_trusted(&env, &nested));
    env.kli(&["trust", "--revoke"]).exits(2).says("is not trusted").says("--list");
    // One that is gone can be taken back as well.
    fs::remove_dir_all(&nested).unwrap();
    assert!(env.kli(&["trust", "--list"]).out.contains("(gone: not trusted)"));
    env.kli(&["trust", "--revoke", "nested"]).exits(0);
    assert_eq!(env.kli(&["trust", "--list"]).exits(0).out, "no project is trusted\n");
    // Reached through a link it is the same project.
    symlink(&work, env.home().join("link")).unwrap();
    let link = env.home().join("link");
    env.kli(&["trust", link.to_str().unwrap()]).exits(0);
    assert!(is_trusted(&env, &work));
}

#[test]
fn a_record_that_cannot_be_believed_trusts_nothing() {
    let env = Env::new();
    let work = env.work();
    bounded(&work);
    env.kli(&["trust"]).exits(0);
    let file = record(&env);
    let good = fs::read(&file).unwrap();
    for bad in [
        &b"{"[..],
        b"[]",
        b"{\"version\":2,\"projects\":{}}",
        b"{\"version\":1,\"projects\":{\"x\":null}}",
    ] {
        fs::write(&file, bad).unwrap();
        let ran = env.kli(&["config", "show"]);
        ran.exits(0).says("trust.json").says("so nothing is trusted");
        assert!(!ran.out.contains("(project settings)"), "{ran:?}");
        env.kli(&["trust"]).exits(2).says("so nothing is trusted");
        assert_eq!(fs::read(&file).unwrap(), bad, "it is left as it is");
    }
    fs::write(&file, &good).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o622)).unwrap();
    env.kli(&["config", "show"]).exits(0).says("can be written by others, so nothing is trusted");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    assert!(is_trusted(&env, &work), "control");

    // A link is declared elsewhere: it is read, and never replaced.
    let store = env.home().join("store.json");
    fs::rename(&file, &store).unwrap();
    symlink(&store, &file).unwrap();
    assert!(is_trusted(&env, &work));
    for words in [&["trust"][..], &["trust", "--revoke"]] {
        env.kli(words).exits(2).says("is a link, which kli does not replace");
    }
    assert!(fs::symlink_metadata(&file).unwrap().is_symlink());
    assert_eq!(fs::read(&store).unwrap(), good);
}

#[test]
fn two_at_once_lose_no_trust() {
    let env = Env::new();
    let names: Vec<String> = (0..8).map(|number| format!("p{number}")).collect();
    for name in &names {
        bounded(&env.work().join(name));
    }
    let running: Vec<_> =
        names.iter().map(|name| env.command(&["trust", name]).spawn().unwrap()).collect();
    for child in running {
        Ran::from(child.wait_with_output().unwrap()).exits(0);
    }
    for name in &names {
        assert!(is_trusted(&env, &env.work().join(name)), "{name}");
    }
}

#[test]
fn inside_the_sandbox_nothing_is_trusted() {
    let env = Env::new();
    bounded(&env.work());
    let marker = env.home().join("marker.json");
    fs::write(&marker, "{}").unwrap();
    let plain = env.command(&["trust"]);
    let mut command = Command::new("bwrap");
    command.args(["--dev-bind", "/", "/", "--tmpfs", "/run", "--dir", "/run/kli", "--ro-bind"]);
    command.arg(&marker).args(["/run/kli/sandbox.json", "--"]);
    command.arg(plain.get_program()).args(plain.get_args()).current_dir(env.work()).env_clear();
    for (name, value) in plain.get_envs() {
        command.env(name, value.unwrap());
    }
    let ran = Ran::from(command.output().unwrap());
    ran.exits(2).says("inside the sandbox nothing can be trusted").says("kli-admin trust");
    assert!(!record(&env).exists());
    env.kli(&["trust"]).exits(0);
    assert!(record(&env).exists(), "control");
}

#[test]
fn there_must_be_something_to_trust() {
    let env = Env::new();
    env.kli(&["trust"]).exits(2).says("there is nothing to trust");
    env.kli(&["trust", "nowhere"]).exits(2).says("there is no directory");
    fs::create_dir(env.work().join(".kli")).unwrap();
    let file = env.work().join(".kli/settings.json");
    fs::write(&file, r#"{ "extensions": ["."] , "log": 3 }"#).unwrap();
    env.kli(&["trust"]).exits(2).says("`log`: expected a string");
    for number in 0..300 {
        fs::write(env.work().join(format!("f{number}")), "x").unwrap();
    }
    fs::write(&file, r#"{ "extensions": ["."] }"#).unwrap();
    env.kli(&["trust"]).exits(2).says("more than 256 files");
    assert!(!record(&env).exists());
}

#[test]
fn whoever_trusts_a_project_sees_all_that_it_runs() {
    let env = Env::new();
    fs::create_dir(env.work().join(".kli")).unwrap();
    let far = format!("true{}; touch canary-command", " ".repeat(400));
    let settings = json!({
        "providers": { "anthropic": {
            "keyCommand": ["sh", "-c", &far],
            "headers": { "x-team": "HEADER-CANARY" },
        } },
        "bash": { "env": { "GIT_TOKEN": "core.fsmonitor-canary", "BASH_ENV": &far, "TURNED": "a\u{202e}b" } },
        "profiles": { "p": { "settings": { "bash": { "env": { "MY_KEY": "canary-profile" } } } } },
    });
    fs::write(env.work().join(".kli/settings.json"), settings.to_string()).unwrap();
    let shown = env.kli(&["config", "show"]);
    shown.exits(0);
    let ran = env.kli(&["trust"]);
    ran.exits(0);
    for part in [
        format!("providers.anthropic.keyCommand = [\"sh\",\"-c\",\"{far}\"]"),
        "bash.env.GIT_TOKEN = \"core.fsmonitor-canary\"".to_owned(),
        format!("bash.env.BASH_ENV = \"{far}\""),
        "profiles.p.settings.bash.env.MY_KEY = \"canary-profile\"".to_owned(),
        "providers.anthropic.headers = {\"x-team\":\"(hidden)\"}".to_owned(),
        "bash.env.TURNED = \"a\\u{202e}b\"".to_owned(),
    ] {
        assert!(ran.out.contains(&part), "{part} in {}", ran.out);
    }
    assert!(!ran.out.contains("HEADER-CANARY"));
    // What is in force is shown without what may be a secret.
    let shown = env.kli(&["config", "show"]);
    shown.exits(0);
    assert!(shown.out.contains("bash.env.GIT_TOKEN = \"(hidden)\""), "control: {}", shown.out);
    assert!(!shown.out.contains("canary-command; "), "{}", shown.out);
}

#[test]
fn trust_is_bound_to_files_that_are_named_within_a_longer_text() {
    for (name, text) in [
        ("tools/ls", "tools_path"),
        ("lib/a.so", "preload"),
        ("key.sh", "command"),
        ("rc/init", "option"),
    ] {
        let env = Env::new();
        let work = env.work();
        let root = work.display();
        for directory in [".kli", "tools", "lib", "rc"] {
            fs::create_dir(work.join(directory)).unwrap();
        }
        fs::write(work.join(name), "good").unwrap();
        let settings = match text {
            "tools_path" => {
                json!({ "bash": { "env": { "PATH": format!("{root}/tools:/usr/bin") } } })
            }
            "preload" => {
                json!({ "bash": { "env": { "LD_PRELOAD": format!("/x.so {root}/lib/a.so") } } })
            }
            "command" => {
                json!({ "providers": { "anthropic": { "keyCommand": ["sh", "-c", format!("cd /; . '{root}/key.sh'; echo x")] } } })
            }
            _ => {
                json!({ "providers": { "anthropic": { "keyCommand": ["bash", format!("--rcfile={root}/rc/init"), "-c", "x"] } } })
            }
        };
        let mut settings = settings;
        settings["budgets"] = json!({ "turns": 7 });
        fs::write(work.join(".kli/settings.json"), settings.to_string()).unwrap();
        env.kli(&["trust"]).exits(0);
        assert!(is_trusted(&env, &work), "control: {text}");
        fs::write(work.join(name), "evil").unwrap();
        assert!(!is_trusted(&env, &work), "{text}");
    }
}
