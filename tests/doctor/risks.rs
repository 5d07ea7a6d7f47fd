//! The risks of a configuration outside a jail, what is not run and what is not shown.

use super::*;

/// Files at well-known places, the place that is told, and what hides it.
const SECRETS: [(&str, &str, &str); 12] = [
    (".ssh/id_ed25519", ".ssh/id_ed25519", "\"~/.ssh\""),
    (".aws/credentials", ".aws/credentials", "\"~/.aws\""),
    (".config/gcloud/credentials.db", ".config/gcloud", "\"~/.config/gcloud\""),
    (".kube/config", ".kube/config", "\"~/.kube\""),
    (".netrc", ".netrc", "\"~/.netrc\""),
    (".git-credentials", ".git-credentials", "\"~/.git-credentials\""),
    (".docker/config.json", ".docker/config.json", "\"~/.docker\""),
    (".cargo/credentials.toml", ".cargo/credentials.toml", "\"~/.cargo/credentials.toml\""),
    (".config/gh/hosts.yml", ".config/gh/hosts.yml", "\"~/.config/gh/hosts.yml\""),
    (".gnupg/private-keys-v1.d/x.key", ".gnupg/private-keys-v1.d", "\"~/.gnupg\""),
    (".azure/token", ".azure", "\"~/.azure\""),
    (".mozilla/firefox/x", ".mozilla", "\"~/.mozilla\""),
];

fn put(root: &Path, name: &str) -> PathBuf {
    let file = root.join(name);
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    fs::write(&file, CANARY).unwrap();
    file
}

#[test]
fn readable_secrets_are_named_with_the_rule_that_hides_them() {
    let env = well();
    for (name, place, deny) in SECRETS {
        let place = env.home().join(place);
        let shown = format!("`{}`", place.display());
        doctor(&env).no_risk("secret.file", &shown);
        put(&env.home(), name);
        let report = doctor(&env);
        report.risk("secret.file", &["can be read", &shown, deny, "`denyRead`"]);
        // What is hidden looks empty.
        if place.is_dir() {
            fs::remove_dir_all(&place).unwrap();
            fs::create_dir(&place).unwrap();
        } else {
            fs::write(&place, "").unwrap();
        }
        doctor(&env).no_risk("secret.file", &shown);
    }
}

#[test]
fn public_keys_and_examples_are_no_secrets() {
    let env = well();
    for name in [".ssh/id_ed25519.pub", ".ssh/known_hosts", ".ssh/config"] {
        put(&env.home(), name);
    }
    put(&env.work(), ".env.example");
    let report = doctor(&env);
    for place in [env.home().join(".ssh"), env.work()] {
        report.no_risk("secret.file", place.to_str().unwrap());
    }
    put(&env.work(), ".env");
    put(&env.work(), ".env.local");
    let report = doctor(&env);
    report.risk("secret.file", &["work/.env`", "\"./.env\""]);
    report.risk("secret.file", &["work/.env.local`", "\"./.env.local\""]);
}

#[test]
fn a_file_with_more_names_is_said_to_need_more_rules() {
    let env = well();
    let file = put(&env.home(), ".netrc");
    fs::hard_link(&file, env.home().join("copy")).unwrap();
    doctor(&env).risk("secret.file", &["1 more names, which need entries of their own"]);
}

#[test]
fn a_secret_of_another_configuration_directory_is_found() {
    let env = well();
    let other = env.home().join("other");
    put(&other, "gh/hosts.yml");
    let report = doctor(&env);
    report.no_risk("secret.file", other.to_str().unwrap());
    let env = env.var("XDG_CONFIG_HOME", other.to_str().unwrap());
    doctor(&env).risk("secret.file", &["other/gh/hosts.yml`", "\"$XDG_CONFIG_HOME/gh/hosts.yml\""]);
}

#[test]
fn a_file_that_cannot_be_read_is_no_risk_for_an_ordinary_user() {
    let world = World::new(Who::User);
    fs::copy(env!("CARGO_BIN_EXE_kli"), world.root.join("kli")).unwrap();
    let file = world.file("home/.netrc", CANARY);
    let run = || {
        let mut command = world.command(world.root.join("kli"));
        Report::of(&bounded({
            command.args(["doctor", "--json"]);
            command
        }))
    };
    run().risk("secret.file", &["home/.netrc`"]);
    fs::set_permissions(&file, fs::Permissions::from_mode(0o000)).unwrap();
    run().no_risk("secret.file", ".netrc");
    // `/etc/shadow` is root's alone.
    run().no_risk("secret.file", "/etc/shadow");
}

#[test]
fn variables_that_look_like_secrets_are_named_and_their_values_not() {
    let env = well()
        .var("GITHUB_TOKEN", CANARY)
        .var("AWS_SECRET_ACCESS_KEY", CANARY)
        .var("EMPTY_TOKEN", "")
        .var("KEYBOARD", "x");
    let report = doctor(&env);
    report.risk("secret.environment", &["`GITHUB_TOKEN`", "`AWS_SECRET_ACCESS_KEY`", "`denyEnv`"]);
    for part in ["EMPTY_TOKEN", "KEYBOARD", "ANTHROPIC_API_KEY"] {
        report.no_risk("secret.environment", part);
    }
    assert!(doctor(&well()).risks("secret.environment").is_empty());
    doctor(&well()).risk("key.memory", &["`anthropic` is in kli's memory"]);
    assert!(doctor(&Env::new()).risks("key.memory").is_empty());
    assert!(doctor(&well()).risks("key.environment").is_empty(), "process 1 was not given any");
}

#[test]
fn a_key_in_the_environment_of_process_1_is_told() {
    let env = well();
    let inside = |shell: &str| {
        let mut command = env.command(&["doctor", "--json"]);
        let kli = command.get_program().to_owned();
        command = {
            let mut jailed = Command::new("bwrap");
            jailed.args(["--bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--unshare-user"]);
            jailed.args(["--unshare-pid", "--as-pid-1", "--die-with-parent", "sh", "-c", shell]);
            jailed.arg(kli).env_clear().current_dir(env.work());
            for (name, value) in command.get_envs() {
                jailed.env(name, value.unwrap());
            }
            jailed
        };
        Report::of(&bounded(command))
    };
    // The shell stays process 1, and the key is in its environment.
    inside("\"$0\" doctor --json; exit $?").risk("key.environment", &["`ANTHROPIC_API_KEY`"]);
    // The control: kli is process 1 itself.
    assert!(inside("exec \"$0\" doctor --json").risks("key.environment").is_empty());
}

#[test]
fn sockets_that_act_outside_are_named_when_they_can_be_reached() {
    let env = well();
    let socket = env.home().join("agent");
    let bus = env.home().join("bus");
    let env = env
        .var("SSH_AUTH_SOCK", socket.to_str().unwrap())
        .var("DBUS_SESSION_BUS_ADDRESS", &format!("unix:path={},guid=1", bus.display()))
        .var("XDG_RUNTIME_DIR", socket.parent().unwrap().to_str().unwrap());
    let report = doctor(&env);
    report.no_risk("socket", "SSH_AUTH_SOCK");
    let _agent = UnixListener::bind(&socket).unwrap();
    let _bus = UnixListener::bind(&bus).unwrap();
    let _docker = UnixListener::bind(env.home().join("docker.sock")).unwrap();
    let report = doctor(&env);
    report.risk("socket", &["(`SSH_AUTH_SOCK`)", "logs in to servers"]);
    report.risk("socket", &["(`DBUS_SESSION_BUS_ADDRESS`)", "start programs"]);
    report.risk("socket", &["docker.sock`", "starts containers"]);
    assert_eq!(report.risks("socket").iter().filter(|it| it.contains("/bus`")).count(), 1);
}

#[test]
fn what_the_host_runs_later_is_named() {
    let env = well();
    let report = doctor(&env);
    report.risk("workspace.code", &["may be run on the host later"]);
    for name in [".git/hooks/x", ".git/config", ".envrc", ".vscode/tasks.json", "package.json"] {
        put(&env.work(), name);
    }
    fs::create_dir_all(env.work().join("deep")).unwrap();
    let mut command = env.command(&["doctor", "--json"]);
    command.current_dir(env.work().join("deep"));
    let report = Report::of(&bounded(command));
    for name in [".git/hooks", ".git/config", ".envrc", ".vscode/tasks.json", "package.json"] {
        report.risk("workspace.code", &[&format!("work/{name}`")]);
    }
    report.no_risk("workspace.code", "Makefile");
}

#[test]
fn an_unconfined_run_is_said_to_be_bounded_by_nothing() {
    let report = doctor(&well());
    report.risk("network", &["the network is open"]);
    let user = format!("whatever user {} can read", rustix::process::geteuid().as_raw());
    report.risk("confinement", &[&user]);
    let root = rustix::process::geteuid().is_root();
    assert_eq!(!report.risks("root").is_empty(), root);
}

#[test]
fn keys_that_kli_keeps_are_told_when_they_are_there() {
    let env = well();
    assert!(doctor(&env).risks("key.store").is_empty());
    put(&env.home(), ".config/kli/credentials.json");
    doctor(&env).risk("key.store", &["credentials.json`", "`kli auth forget`"]);
    let store = env.home().join(".config/kli/credentials.json");
    for (keys, told) in [("{}", 0), (r#"{"anthropic": "sk-not-a-key"}"#, 1)] {
        fs::write(&store, format!(r#"{{"version": 1, "keys": {keys}}}"#)).unwrap();
        fs::set_permissions(&store, fs::Permissions::from_mode(0o600)).unwrap();
        assert_eq!(doctor(&env).risks("key.store").len(), told, "{keys}");
    }
}

/// A project that would run something in every program that looks at it, and programs on `PATH`
/// under the names that are looked for.
#[test]
fn nothing_of_the_project_and_nothing_that_is_looked_for_is_run() {
    let env = well();
    let canary = env.home().join("ran");
    let touch = format!("touch '{}'", canary.display());
    let git = env.work().join(".git");
    fs::create_dir_all(git.join("hooks")).unwrap();
    fs::write(git.join("HEAD"), "ref: refs/heads/main\n").unwrap();
    for directory in ["objects", "refs"] {
        fs::create_dir(git.join(directory)).unwrap();
    }
    let hook = env.home().join("hook");
    script(&hook, &touch);
    fs::write(
        git.join("config"),
        format!("[core]\n\trepositoryformatversion = 0\n\tfsmonitor = {0}\n\tpager = {0}\n\tsshCommand = {0}\n", hook.display()),
    )
    .unwrap();
    script(&git.join("hooks/post-index-change"), &touch);
    script(&env.work().join(".envrc"), &touch);
    let shims = env.home().join("shims");
    for name in ["git", "bash", "sh", "true", "uname", "bwrap", "docker", "ssh"] {
        script(&shims.join(name), &touch);
    }
    fs::create_dir_all(env.work().join(".kli")).unwrap();
    fs::write(
        env.work().join(".kli/settings.json"),
        "{\"providers\": {\"anthropic\": {\"baseUrl\": \"http://127.0.0.1:9\", \"keyCommand\": \"touch ran\"}}}",
    )
    .unwrap();
    let run = |path: &Path| {
        let mut command = env.command(&["doctor", "--json"]);
        command.env("PATH", format!("{}:/usr/bin:/bin", path.display()));
        Report::of(&bounded(command))
    };
    // The user's own `bwrap` is what the trial is for, so it is the system's here.
    fs::remove_file(shims.join("bwrap")).unwrap();
    let report = run(&shims);
    report.has("git", "ok", &["shims/git`"]);
    report.has("shell", "ok", &["shims/bash`"]);
    assert!(!canary.exists(), "something was run");
    assert!(!env.work().join("ran").exists());
    // Control: each of them would have left its mark.
    for program in [shims.join("git"), hook, git.join("hooks/post-index-change")] {
        Command::new(program).status().unwrap();
        assert!(canary.exists());
        fs::remove_file(&canary).unwrap();
    }
    let status = Command::new("/usr/bin/git")
        .args(["status"])
        .current_dir(env.work())
        .env("HOME", env.home())
        .env("GIT_CONFIG_COUNT", "1")
        .env("GIT_CONFIG_KEY_0", "safe.directory")
        .env("GIT_CONFIG_VALUE_0", "*")
        .output();
    if let Ok(output) = status {
        assert!(canary.exists(), "control: git runs the monitor: {output:?}");
    }
}

#[test]
fn names_with_control_characters_are_printed_on_one_line() {
    let env = well();
    let odd = env.work().join("a\u{1b}[31m\nb");
    fs::create_dir(&odd).unwrap();
    let mut command = env.command(&["doctor"]);
    command.current_dir(&odd);
    let ran = bounded(command);
    ran.exits(0);
    assert!(!ran.out.contains('\u{1b}'), "{}", ran.out);
    assert!(ran.out.contains("a\\u{1b}[31m\\nb"), "{}", ran.out);
}

#[test]
fn it_is_quick_but_for_the_trial() {
    let env = well();
    let mut command = env.command(&["doctor", "--json"]);
    // Without bubblewrap there is no trial.
    command.env("PATH", "/nonexistent");
    let start = Instant::now();
    Report::of(&bounded(command));
    // Ten times what it takes, since other tests run beside this one.
    assert!(start.elapsed() < Duration::from_secs(2), "{:?}", start.elapsed());
}
