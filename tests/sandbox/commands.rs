//! `kli-sandbox doctor` names what stops a jail, with the repair (law 11), and `kli-sandbox shell`
//! gives a shell the same view.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Output;

use serde_json::Value;

use crate::jail::{err, for_both, has, ok, out};

/// The checks of `doctor --json`; the code must agree with them.
#[track_caller]
fn checks(output: &Output) -> Vec<Value> {
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["type"], "doctor", "{report}");
    assert_eq!(report["schema"], 1, "{report}");
    let checks = report["checks"].as_array().unwrap().clone();
    let problem = checks.iter().any(|check| check["status"] == "problem");
    assert_eq!(report["ok"], !problem, "{report}");
    assert_eq!(output.status.code(), Some(i32::from(problem)), "{report}");
    checks
}

/// Asserts that the check `id` has the status and that its message and repair hold `parts`.
#[track_caller]
fn says(checks: &[Value], id: &str, status: &str, parts: &[&str]) {
    let check = checks
        .iter()
        .find(|check| check["id"] == id && check["status"] == status)
        .unwrap_or_else(|| panic!("no `{id}` of status {status} in {checks:#?}"));
    has(&format!("{} {}", check["message"], check["repair"]), parts);
}

const DOCTOR: &str = "exec \"$L\" doctor --json";

#[test]
fn where_all_is_well_the_doctor_made_a_jail() {
    for_both(|world| {
        let output = world.command(world.launcher()).args(["doctor", "--json"]).output().unwrap();
        says(&checks(&output), "trial", "ok", &["a jail was made and entered"]);
        let words = world.command(world.launcher()).arg("doctor").output().unwrap();
        has(&ok(&words), &["ok       trial: a jail was made and entered\n"]);
        // Nothing of the trial is left, and nothing was made for kli.
        assert!(!world.home.join(".local").exists());
        let own = |name: &str| name.starts_with("kli-doctor-");
        let uid = fs::metadata(&world.home).map(|meta| std::os::unix::fs::MetadataExt::uid(&meta));
        let uid = uid.unwrap();
        let left = fs::read_dir("/tmp").unwrap().flatten().filter(|entry| {
            own(&entry.file_name().to_string_lossy())
                && entry
                    .metadata()
                    .is_ok_and(|meta| std::os::unix::fs::MetadataExt::uid(&meta) == uid)
                && !std::path::Path::new("/proc")
                    .join(entry.file_name().to_string_lossy().split('-').nth(2).unwrap_or("0"))
                    .exists()
        });
        assert_eq!(left.count(), 0);
    });
}

#[test]
fn the_doctor_names_each_thing_that_stops_a_jail() {
    for_both(|world| {
        let none =
            world.in_namespace(&format!("echo 0 > /proc/sys/user/max_user_namespaces; {DOCTOR}"));
        let none = checks(&none);
        let repair = "sysctl -w user.max_user_namespaces=";
        says(&none, "launcher.namespaces", "problem", &["is 0", repair]);
        says(&none, "trial", "problem", &["no jail can be made", repair]);

        let masked = world.in_namespace(&format!("mount --bind /dev/null /proc/keys; {DOCTOR}"));
        let masked = checks(&masked);
        says(&masked, "launcher.proc", "warning", &["/proc/keys", "nestedUserns"]);
        says(&masked, "trial", "problem", &["set `nestedUserns` to true"]);

        let bare = "export PATH=/nonexistent; ".to_owned();
        let bare = checks(&world.in_namespace(&format!("{bare}{DOCTOR}")));
        says(
            &bare,
            "launcher.bubblewrap",
            "problem",
            &["not found on PATH", "apt install bubblewrap"],
        );
        says(&bare, "path", "warning", &["`/nonexistent` on PATH is no directory"]);
        says(&bare, "trial", "problem", &["bubblewrap is not found on PATH"]);

        let program = |name: &str, text: &str, mode: u32| {
            let file = world.file(name, text);
            fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
            file
        };
        let old = program(
            "old/bwrap",
            "#!/bin/sh\n# bubblewrap 0.7.0\necho 'bwrap: Unknown option --x' >&2\nexit 1\n",
            0o755,
        );
        let setuid =
            program("setuid/bwrap", "#!/bin/sh\ntouch effect\n# bubblewrap 0.8.0\n", 0o4755);
        for (bwrap, parts) in [
            (&old, ["version 0.7, which is too old", "0.8 or later"]),
            (&setuid, ["is setuid", "chmod u-s"]),
        ] {
            let mut command = world.command(world.launcher());
            let output = command.args(["doctor", "--json", "--bwrap"]).arg(bwrap).output().unwrap();
            says(&checks(&output), "launcher.bubblewrap", "problem", &parts);
            let mut command = world.command(world.launcher());
            command.env("PATH", format!("{}:/usr/bin:/bin", bwrap.parent().unwrap().display()));
            let output = command.args(["doctor", "--json"]).output().unwrap();
            says(&checks(&output), "launcher.bubblewrap", "problem", &parts);
        }
        assert!(!world.workspace.join("effect").exists());

        let lost = world
            .command(world.launcher())
            .args(["doctor", "--json"])
            .env("TMPDIR", "/var/tmp/none")
            .env("PATH", "/usr/bin:/bin:bin")
            .output()
            .unwrap();
        // The trial needs a place below TMPDIR.
        let lost = checks(&lost);
        says(
            &lost,
            "tmpdir",
            "warning",
            &["`/var/tmp/none`, which is no directory", "unset TMPDIR"],
        );
        says(&lost, "path", "warning", &["`bin` on PATH is relative"]);
    });
}

#[test]
fn the_doctor_judges_a_specification_where_it_is_asked() {
    for_both(|world| {
        let doctor = || {
            let mut command = world.command(world.launcher());
            command.arg("doctor").arg(world.spec_file()).arg("--json");
            checks(&command.output().unwrap())
        };
        world.spec(r#"{"network":false,"denyRead":["~/.absent"],"writablePaths":["~/.cache/x"]}"#);
        let well = doctor();
        says(&well, "specification", "ok", &["it can be kept in"]);
        says(&well, "specification.created", "info", &[".cache/x` is missing and will be made"]);
        says(&well, "specification.note", "info", &[".absent"]);
        assert!(!world.home.join(".cache").exists(), "the doctor makes nothing");
        world.spec(r#"{"writablePaths":["/no/such/place"]}"#);
        let missing = doctor();
        says(
            &missing,
            "specification",
            "problem",
            &["`/no/such/place`: it does not exist", "create it"],
        );
        // What the machine can do is still said.
        says(&missing, "trial", "ok", &[]);
        world.spec(r#"{"denyReed":[]}"#);
        says(&doctor(), "specification", "problem", &["did you mean `denyRead`?", "check FILE"]);
    });
}

#[test]
fn a_shell_has_the_same_view() {
    for_both(|world| {
        world.file("home/.netrc", "SECRET");
        world.spec(r#"{"denyRead":["~/.netrc"],"denyEnv":["TOKEN"]}"#);
        let script = "cat ~/.netrc; echo \"[$TOKEN]\"; touch ~/x; echo done > here; exit 7\n";
        let shell = |words: &[&str], shell: Option<&str>| {
            let mut command = world.command("timeout");
            command.args(["-k", "1", "30"]).arg(world.launcher()).arg("shell").args(words);
            command.env("TOKEN", "secret");
            if let Some(shell) = shell {
                command.env("SHELL", shell);
            }
            let input = world.file("script", script);
            command.stdin(fs::File::open(input).unwrap()).output().unwrap()
        };
        let spec = world.spec_file();
        let spec = spec.to_str().unwrap();
        for program in [Some("/bin/bash"), None, Some("bash")] {
            let output = shell(&[spec], program);
            assert_eq!(output.status.code(), Some(7), "{output:?}");
            assert_eq!(out(&output), "[]\n");
            has(&err(&output), &["Read-only file system"]);
            assert_eq!(fs::read_to_string(world.workspace.join("here")).unwrap(), "done\n");
        }
        // Without a specification only what the caller says narrows it.
        let wide = shell(&[], None);
        assert_eq!(out(&wide), "SECRET[secret]\n");
        let narrowed = shell(&["--deny", "~/.netrc", "--deny-env", "TOK*"], None);
        assert_eq!(out(&narrowed), "[]\n");
        let unknown = shell(&["--allow", "x"], None);
        assert_eq!(unknown.status.code(), Some(125));
        has(&err(&unknown), &["--allow"]);
    });
}
