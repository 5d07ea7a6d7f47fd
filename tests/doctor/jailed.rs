//! The same report from inside the jail: what is hidden is not told, what is left is.

use super::*;
use crate::jail::ok;

fn inside(world: &World, options: &[&str], variables: &[(&str, &str)]) -> Report {
    let program = world.root.join("kli");
    if !program.exists() {
        fs::copy(env!("CARGO_BIN_EXE_kli"), &program).unwrap();
    }
    let mut command = world.run_with(options, &[program.to_str().unwrap(), "doctor", "--json"]);
    command.env("ANTHROPIC_API_KEY", CANARY).env("LANG", "C.UTF-8");
    for (name, value) in variables {
        command.env(name, value);
    }
    Report::of(&Ran::from(command.output().unwrap()))
}

#[test]
fn what_is_hidden_is_not_told_and_what_is_left_is() {
    for_both(|world| {
        for name in [".aws/credentials", ".ssh/id_rsa", ".netrc"] {
            world.file(Path::new("home").join(name), CANARY);
        }
        world.file("home/project/.env", CANARY);
        let secrets = [("GITHUB_TOKEN", CANARY), ("NPM_TOKEN", CANARY)];
        world.spec("{}");
        let report = inside(world, &[], &secrets);
        for part in [".aws/credentials`", ".ssh/id_rsa`", ".netrc`", "project/.env`"] {
            report.risk("secret.file", &[part]);
        }
        report.risk("secret.environment", &["`GITHUB_TOKEN`", "`NPM_TOKEN`"]);
        assert!(report.risks("key.environment").is_empty(), "process 1 lets nobody look");
        report.risk("network", &["send anywhere", "set `network` to false"]);
        report.risk("writable", &["home/project`"]);
        assert!(report.risks("network.sockets").is_empty(), "scopes, or no sockets, keep them out");

        world.spec(
            r#"{"network":false,"denyRead":["~/.aws","~/.netrc","./.env"],"denyEnv":["GITHUB_TOKEN"],"writablePaths":["~/.cache/x"]}"#,
        );
        let report = inside(world, &[], &secrets);
        // For root the account's home counts besides `$HOME`; the launcher says the same number.
        let told = world.command(world.launcher()).arg("explain").arg(world.spec_file()).output();
        let told = ok(&told.unwrap());
        let number = told.lines().find_map(|line| line.strip_prefix("hidden paths: ")).unwrap();
        let number: u32 = number.split(' ').next().unwrap().parse().unwrap();
        assert!(number >= 3, "{told}");
        report.has("confinement", "ok", &[&format!("{number} paths hidden, 1 variable removed")]);
        for part in [".aws", ".netrc", ".env`"] {
            report.no_risk("secret.file", part);
        }
        report.risk("secret.file", &[".ssh/id_rsa`", "\"~/.ssh\""]);
        report.risk("secret.environment", &["`NPM_TOKEN`"]);
        report.no_risk("secret.environment", "GITHUB_TOKEN");
        report.risk("writable", &["home/project`", ".cache/x`"]);
        report.risk("hidden.links", &[&format!("{number} paths are hidden")]);
        assert!(report.risks("network").is_empty() && report.risks("network.sockets").is_empty());
        report.has(
            "confinement",
            "ok",
            &["kli-sandbox: workspace", "network off", &format!("{number} paths hidden")],
        );
        report.has("launcher", "info", &["makes no further one"]);
        assert_eq!(!report.risks("root").is_empty(), world.who == Who::Root);
    });
}

#[test]
fn a_model_out_of_reach_of_a_closed_network_is_a_problem() {
    for_both(|world| {
        world.spec(r#"{"network":false}"#);
        let report = inside(world, &[], &[]);
        report.has("model.server", "problem", &["the sandbox has no network", "`network`"]);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let local = [("ANTHROPIC_BASE_URL", url.as_str())];
        let report = inside(world, &[], &local);
        report.has("model.server", "problem", &["nothing answers", "has no network"]);
        world.spec("{}");
        inside(world, &[], &local).has("model.server", "ok", &["takes connections"]);
        let report = inside(world, &["--no-network"], &local);
        report.has("model.server", "problem", &["has no network"]);
    });
}

#[test]
fn a_state_directory_that_the_jail_does_not_make_is_told() {
    for_both(|world| {
        world.spec(r#"{"stateDir":false}"#);
        let report = inside(world, &[], &[]);
        report.has("state", "warning", &["cannot be written", "`stateDir`"]);
        world.spec("{}");
        inside(world, &[], &[]).has("state", "ok", &["can be written"]);
    });
}

#[test]
fn a_hidden_key_file_is_recognised() {
    for_both(|world| {
        world.file("home/key", CANARY);
        world.file(
            "home/.config/kli/settings.json",
            "{\"providers\": {\"anthropic\": {\"keyEnv\": \"NOT_SET\", \"keyFile\": \"~/key\"}}}",
        );
        world.spec(r#"{"denyRead":["~/key"]}"#);
        let report = inside(world, &[], &[]);
        report.has("model.key", "problem", &["home/key` is empty, as if it were hidden here"]);
        world.spec("{}");
        let report = inside(world, &[], &[]);
        report.risk("key.file", &["home/key`"]);
    });
}

#[test]
fn a_second_path_of_a_hidden_file_is_hidden_as_well() {
    for_both(|world| {
        world.file("persist/.aws/credentials", CANARY);
        fs::copy(env!("CARGO_BIN_EXE_kli"), world.root.join("kli")).unwrap();
        world.dir("home/.aws");
        world.spec(r#"{"denyRead":["~/.aws"]}"#);
        let run = |before: &str| {
            let start = format!(
                "{before} cd \"$W/home/project\"; exec \"$L\" run --spec \"$SPEC\" -- \"$W/kli\" doctor --json"
            );
            Report::of(&Ran::from(world.in_namespace(&start)))
        };
        let report = run("mount --bind \"$W/persist/.aws\" \"$W/home/.aws\";");
        // Every mount point of the same files is hidden with them, so there is nothing to name.
        report.no_risk("secret.file", "persist");
        report.no_risk("secret.file", "home/.aws/credentials` can be read");
        world.spec("{}");
        run("mount --bind \"$W/persist/.aws\" \"$W/home/.aws\";")
            .risk("secret.file", &["home/.aws/credentials` can be read"]);
    });
}
