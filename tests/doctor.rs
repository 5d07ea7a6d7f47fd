//! `kli doctor`: each check where it fails and where it passes, the risks of a configuration, and
//! what it must not do: print a secret, run what the project brought, send anything.

use std::{
    fs,
    net::TcpListener,
    os::unix::{
        fs::{PermissionsExt as _, symlink},
        net::UnixListener,
    },
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

use serde_json::Value;

use crate::{
    harness::{Env, Ran},
    jail::{Who, World, for_both},
};

mod jailed;
mod machine;
mod risks;

const MANUAL: &str = include_str!("../docs/doctor.md");

/// The value of every secret in these tests; it must be in no output.
const CANARY: &str = "canary-7f3a9c";

/// The report of a run, after what holds for every report was checked.
#[derive(Debug)]
struct Report {
    json: Value,
}

impl Report {
    #[track_caller]
    fn of(ran: &Ran) -> Self {
        let json = ran.json();
        assert_eq!(json["type"], "doctor");
        assert_eq!(json["schema"], 1);
        let checks = json["checks"].as_array().unwrap();
        assert!(!checks.is_empty());
        let problems = checks.iter().filter(|check| check["status"] == "problem").count();
        assert_eq!(json["ok"], problems == 0, "{json:#}");
        ran.exits(i32::from(problems > 0));
        for entry in checks.iter().chain(json["risks"].as_array().unwrap()) {
            let row = format!("\n| `{}` |", entry["id"].as_str().unwrap());
            assert!(MANUAL.contains(&row), "docs/doctor.md has no row {row}");
            assert!(entry["message"].as_str().is_some_and(|text| !text.is_empty()), "{entry}");
            assert!(entry["repair"].is_null() || entry["repair"].is_string(), "{entry}");
        }
        for check in checks.iter().filter(|check| check["status"] == "problem") {
            assert!(check["repair"].is_string(), "{check}");
        }
        assert!(!ran.out.contains(CANARY) && !ran.err.contains(CANARY), "{ran:#?}");
        Self { json }
    }

    #[track_caller]
    fn check(&self, id: &str) -> &Value {
        let found: Vec<&Value> =
            self.json["checks"].as_array().unwrap().iter().filter(|it| it["id"] == id).collect();
        assert_eq!(found.len(), 1, "`{id}` in {:#}", self.json);
        found[0]
    }

    /// Asserts the status of a check and that its words and its repair hold these parts.
    #[track_caller]
    fn has(&self, id: &str, status: &str, parts: &[&str]) {
        let found: Vec<&Value> =
            self.json["checks"].as_array().unwrap().iter().filter(|it| it["id"] == id).collect();
        assert!(
            found.iter().any(|check| check["status"] == status && holds(check, parts)),
            "`{id}` is not {status} with {parts:?}: {found:#?}"
        );
    }

    /// The risks of this name, as words and repairs.
    fn risks(&self, id: &str) -> Vec<String> {
        let all = self.json["risks"].as_array().unwrap().iter();
        all.filter(|it| it["id"] == id).map(words).collect()
    }

    #[track_caller]
    fn risk(&self, id: &str, parts: &[&str]) {
        let all = self.risks(id);
        assert!(
            all.iter().any(|text| parts.iter().all(|part| text.contains(part))),
            "no risk `{id}` with {parts:?}: {all:#?}"
        );
    }

    #[track_caller]
    fn no_risk(&self, id: &str, part: &str) {
        let all = self.risks(id);
        assert!(all.iter().all(|text| !text.contains(part)), "`{part}`: {all:#?}");
    }
}

fn words(entry: &Value) -> String {
    format!(
        "{} => {}",
        entry["message"].as_str().unwrap_or_default(),
        entry["repair"].as_str().unwrap_or_default()
    )
}

fn holds(entry: &Value, parts: &[&str]) -> bool {
    parts.iter().all(|part| words(entry).contains(part))
}

/// Runs it with a time limit: it must never wait.
fn doctor(env: &Env) -> Report {
    Report::of(&bounded(env.command(&["doctor", "--json"])))
}

fn bounded(mut command: Command) -> Ran {
    let start = Instant::now();
    let ran = Ran::from(command.output().unwrap());
    assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
    ran
}

/// An ordinary run with a key, so that nothing is wrong but what a test makes so.
fn well() -> Env {
    Env::new().var("ANTHROPIC_API_KEY", CANARY).var("SSL_CERT_FILE", "/etc/passwd")
}

fn script(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, format!("#!/bin/sh\n{text}\n")).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn when_all_is_well_it_says_so_in_text_and_in_json() {
    let env = well();
    let report = doctor(&env);
    assert_eq!(report.json["ok"], true, "{:#}", report.json);
    for id in [
        "directory",
        "settings",
        "home",
        "state",
        "state.sessions",
        "shell",
        "git",
        "tmpdir",
        "path",
        "locale",
        "model",
        "model.key",
        "launcher",
        "launcher.bubblewrap",
        "launcher.trial",
    ] {
        report.has(id, "ok", &[]);
    }
    let text = bounded(env.command(&["doctor"]));
    text.exits(0);
    assert_eq!(text.err, "");
    assert!(text.out.contains("\nnothing would stop a run\n"), "{}", text.out);
    assert!(text.out.contains("\nwhat stays risky:\n"), "{}", text.out);
    for check in report.json["checks"].as_array().unwrap() {
        assert!(text.out.contains(&format!(" {}: ", check["id"].as_str().unwrap())), "{check}");
    }
    assert!(!text.out.contains(CANARY));
}

#[test]
fn it_makes_nothing_where_it_looks() {
    let env = well();
    let (home, work) = (listing(&env.home()), listing(&env.work()));
    doctor(&env);
    assert_eq!((listing(&env.home()), listing(&env.work())), (home, work));
}

fn listing(directory: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

#[test]
fn broken_settings_are_a_problem_and_not_its_end() {
    let env = well();
    env.settings("{\n  \"bash\": { \"timeout\": 5 }\n}");
    let report = doctor(&env);
    report.has("settings.user", "problem", &["settings.json:2:", "`bash.timeout`", "mend"]);
    report.has("model", "unknown", &["before the settings are mended"]);
    report.has("shell", "ok", &[]);
    assert!(!report.risks("network").is_empty(), "the risks are told all the same");

    env.settings("{\"modell\": \"anthropic/x\"}");
    let report = doctor(&env);
    report.has("settings.notice", "warning", &["unknown key", "`modell`", "`model`"]);
    report.has("settings", "ok", &[]);

    env.settings("{\"profile\": \"reviw\"}");
    doctor(&env).has("settings", "problem", &["`reviw`", "did you mean `review`?"]);

    env.settings("{\"bash\": {\"timeout\": \"2h\", \"maxTimeout\": \"1h\"}}");
    doctor(&env).has("settings", "problem", &["`bash.timeout`", "`bash.maxTimeout`"]);

    let relative = well().var("KLI_BAKED", "baked");
    doctor(&relative).has("settings", "problem", &["`KLI_BAKED` is `baked`"]);
    let baked = well().var("KLI_BAKED", "/nonexistent/baked");
    doctor(&baked).has("settings", "problem", &["/nonexistent/baked"]);
}

#[test]
fn files_of_every_layer_are_looked_at() {
    let env = well();
    let report = doctor(&env);
    report.has("settings.user", "info", &["there is no", ".config/kli/settings.json"]);
    report.has("settings.project", "info", &["there is no", "work/.kli/settings.json"]);
    report.has("settings.policy", "info", &["/etc/kli/policy.json"]);
    env.settings("{}");
    fs::create_dir_all(env.work().join("deep")).unwrap();
    fs::create_dir_all(env.work().join(".git")).unwrap();
    fs::create_dir_all(env.work().join(".kli")).unwrap();
    fs::write(env.work().join(".kli/settings.json"), "{}").unwrap();
    let mut command = env.command(&["doctor", "--json"]);
    command.current_dir(env.work().join("deep"));
    let report = Report::of(&bounded(command));
    report.has("settings.user", "ok", &["can be read"]);
    report.has("settings.project", "ok", &["work/.kli/settings.json"]);
}

#[test]
fn a_key_is_named_by_its_source_and_never_shown() {
    let env = well();
    doctor(&env).has("model.key", "ok", &["from the variable `ANTHROPIC_API_KEY`"]);
    let without = Env::new();
    doctor(&without).has("model.key", "problem", &["has no key", "`ANTHROPIC_API_KEY`"]);

    let key = without.home().join("key");
    without.settings("{\"providers\": {\"anthropic\": {\"keyFile\": \"~/key\"}}}");
    doctor(&without).has("model.key", "problem", &["/key` is not there", "chmod 600"]);
    fs::write(&key, "").unwrap();
    doctor(&without).has("model.key", "problem", &["/key` is empty"]);
    fs::write(&key, CANARY).unwrap();
    fs::set_permissions(&key, fs::Permissions::from_mode(0o644)).unwrap();
    let report = doctor(&without);
    report.has("model.key", "warning", &["others may read (mode 0644)", "chmod 600 /"]);
    report.risk("key.file", &["home/key`", "`keyEnv`"]);
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
    doctor(&without).has("model.key", "ok", &["from the file `/"]);
    fs::remove_file(&key).unwrap();
    fs::create_dir(&key).unwrap();
    fs::write(key.join("x"), "").unwrap();
    doctor(&without).has("model.key", "problem", &["is no regular file"]);

    without.settings("{\"providers\": {\"anthropic\": {\"keyEnv\": \"OTHER_KEY\"}}}");
    doctor(&without).has("model.key", "problem", &["`OTHER_KEY`", "is not set"]);
    without.settings(&format!(
        "{{\"providers\": {{\"anthropic\": {{\"headers\": {{\"x-auth\": \"{CANARY}\"}}}}}}}}"
    ));
    doctor(&without).has("model.key", "ok", &["from a header"]);
}

#[test]
fn a_model_that_cannot_be_asked_is_a_problem() {
    let env = well();
    env.settings("{\"model\": \"nobody/x\"}");
    doctor(&env).has("model", "problem", &["unknown provider `nobody`"]);
    env.settings("{\"model\": \"replay/demo\"}");
    doctor(&env).has("model", "ok", &["`replay/demo`"]);
    env.settings("{\"model\": \"replay/none\"}");
    doctor(&env).has("model", "problem", &["no built-in recording `none`"]);
    let file = env.home().join("recording.jsonl");
    fs::write(&file, "// nothing\n").unwrap();
    let settings =
        "{\"model\": \"replay/x\", \"providers\": {\"replay\": {\"file\": \"~/recording.jsonl\"}}}";
    env.settings(settings);
    doctor(&env).has("model", "problem", &["line 1", "has no comments"]);
    fs::write(&file, "{\"text\": \"a\"}\n").unwrap();
    doctor(&env).has("model", "ok", &["`replay/x`"]);
}

#[test]
fn a_server_on_this_machine_is_tried_and_no_other() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    for host in ["127.0.0.1", "localhost", "a.localhost"] {
        let env = Env::new().at(&format!("http://{host}:{port}"));
        let report = doctor(&env);
        report.has("model.server", "ok", &[&format!("`{host}:{port}` takes connections")]);
        report.has("model.key", "ok", &["needs none"]);
        assert_eq!(report.json["ok"], true);
    }
    listener.set_nonblocking(true).unwrap();
    let mut connections = 0;
    while let Ok((mut stream, _)) = listener.accept() {
        use std::io::Read as _;
        connections += 1;
        stream.set_nonblocking(false).unwrap();
        let mut sent = Vec::new();
        stream.read_to_end(&mut sent).unwrap();
        assert!(sent.is_empty(), "nothing is sent");
    }
    assert_eq!(connections, 3, "control: it was these connections");
    drop(listener);
    let env = Env::new().at(&format!("http://127.0.0.1:{port}"));
    doctor(&env).has("model.server", "problem", &["nothing answers", "start the server"]);

    // An address of no one's (RFC 5737): trying it would take longer than this.
    let start = Instant::now();
    let env = well().at("http://192.0.2.1:9");
    doctor(&env).has("model.server", "info", &["`192.0.2.1:9` was not contacted"]);
    let proxied = well().var("HTTPS_PROXY", &format!("http://user:{CANARY}@127.0.0.1:9"));
    doctor(&proxied).has("model.server", "info", &["through `HTTPS_PROXY` was not contacted"]);
    assert!(start.elapsed() < Duration::from_secs(10));
}

#[test]
fn certificates_that_are_not_there_are_a_problem() {
    let env = Env::new().var("ANTHROPIC_API_KEY", CANARY).var("SSL_CERT_FILE", "/nonexistent");
    doctor(&env).has("model.certificates", "problem", &["SSL_CERT_FILE is `/nonexistent`"]);
    doctor(&well()).has("model.certificates", "ok", &["by SSL_CERT_FILE"]);
}
