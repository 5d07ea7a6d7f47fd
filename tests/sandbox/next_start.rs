//! Law 16: nothing that the inside could write decides what the next start mounts, trusts or runs.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use crate::jail::{World, err, for_both, has, ok, out, refused};

/// A specification with these writable paths.
fn writable(world: &World, paths: &[&str], more: &str) {
    let paths = serde_json::to_string(paths).unwrap();
    world.spec(&format!(r#"{{"writablePaths":{paths}{more}}}"#));
}

/// The names in the directory that planted links lead to.
fn outside(world: &World) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(world.root.join("outside"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn a_link_in_any_writable_place_moves_no_later_start() {
    for_both(|world| {
        world.file("outside/kept", "");
        world.dir("home/cache");
        let target = world.root.join("outside");
        // What was writable, the link in it, how the next start names it, and what else it says.
        for (before, link, after, more) in [
            ("~/cache", "~/cache/sub", "~/cache/sub", ""),
            ("~/cache", "./sub", "./sub", ""),
            ("~/cache", "~/.local/state/kli/sub", "~/.local/state/kli/sub", ""),
            ("~/cache", "~/.local/state/kli/sub", "~/.local/state/kli/sub", r#","stateDir":false"#),
            ("@npm", "~/.npm/_cacache/sub", "~/.npm/_cacache/sub", ""),
            ("@cargo", "~/.cargo/registry/sub", "~/.cargo/registry/sub/deep", ""),
            ("@pip", "~/.cache/pip/sub", "$XDG_CACHE_HOME/pip/sub", ""),
        ] {
            let list = if after == "~/cache/sub" { vec!["~/cache", after] } else { vec![after] };
            writable(world, &[before], "");
            ok(&world.inside(&format!("ln -s '{}' {link}", target.display())));
            ok(&world.plainly(&format!("test -L {link} && test -e {link}/kept")));
            writable(world, &list, more);
            let text = refused(&world.inside("touch effect"));
            has(&text, &["is a symbolic link inside", "an earlier start could write"]);
            assert_eq!(outside(world), ["kept"], "{link}");
            assert!(!world.workspace.join("effect").exists());
            ok(&world.plainly(&format!("rm {link}")));
            ok(&world.inside("touch effect; rm effect"));
            ok(&world.plainly(&format!("rm -rf {link}")));
        }
        // One that only the host can have made is followed.
        world.link("home/store", "../outside");
        writable(world, &["~/store"], "");
        ok(&world.inside("touch ~/store/made"));
        assert_eq!(outside(world), ["kept", "made"]);
    });
}

#[test]
fn links_in_a_tmp_on_disk_are_not_followed_when_it_is_removed() {
    for_both(|world| {
        world.file("outside/dir/kept", "");
        world.spec(r#"{"tmp":"host-subdir"}"#);
        let target = world.root.join("outside");
        ok(&world.inside(&format!(
            "ln -s '{0}' /tmp/a; mkdir /tmp/d; ln -s '{0}/dir' /tmp/d/b; ls /tmp/a/dir/kept; chmod 500 /tmp/d",
            target.display()
        )));
        assert!(target.join("dir/kept").exists());
        assert_eq!(ok(&world.inside("ls -A /tmp")), "");
    });
}

#[test]
fn a_git_directory_that_the_inside_prepared_opens_nothing() {
    for_both(|world| {
        world.file("home/.ssh/id", "SECRET");
        world.file("home/other/.git/HEAD", "ref: refs/heads/main\n");
        world.file("home/other/.git/config", "[core]\n");
        world.dir("home/other/.git/objects");
        world.dir("home/other/.git/refs");
        world.dir("home/other/.git/worktrees");
        for forged in [
            "printf 'gitdir: ../.ssh\\n' > .git",
            "printf 'gitdir: ../other/.git\\n' > .git",
            "printf 'gitdir: ../other/.git/worktrees/x\\n' > .git",
            "ln -s ../.ssh .git",
            "ln -s ../other/.git .git",
            "git init -q . && ln -s ../../.ssh .git/worktrees",
            "git init -q . && ln -s ../../../.ssh .git/modules",
            "git init -q . && printf '../../other/.git\\n' > .git/commondir",
            "git init -q . && rm -r .git/refs && ln -s ../../other/.git/refs .git/refs",
        ] {
            ok(&world.inside(forged));
            let run =
                world.inside("touch ~/.ssh/new; touch ~/other/.git/new; touch ~/other/new; true");
            // A forged pointer may also be a reason to refuse the start as a whole.
            if run.status.success() {
                assert_eq!(
                    err(&run).matches("Read-only file system").count(),
                    3,
                    "{forged}: {run:?}"
                );
            } else {
                refused(&run);
            }
            for new in ["home/.ssh/new", "home/other/.git/new", "home/other/new"] {
                assert!(!world.root.join(new).exists(), "{forged}");
            }
            ok(&world.plainly(
                "rm -rf .git; touch ~/.ssh/new ~/other/.git/new; rm ~/.ssh/new ~/other/.git/new",
            ));
        }
    });
}

fn install(from: &Path, to: &Path) {
    fs::copy(from, to).unwrap();
    fs::set_permissions(to, fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn a_launcher_that_the_inside_could_replace_does_not_start() {
    for_both(|world| {
        world.dir("home/tools");
        for (place, spec) in
            [("home/project", "{}"), ("home/tools", r#"{"writablePaths":["~/tools"]}"#)]
        {
            let own = world.root.join(place).join("kli-sandbox");
            install(&world.launcher(), &own);
            world.spec(spec);
            let start = |launcher: &Path| {
                let mut command = world.command(launcher);
                command.args(["run", "--spec"]).arg(world.spec_file());
                command.args(["--", "touch", "effect"]).output().unwrap()
            };
            let text = refused(&start(&own));
            has(&text, &[own.to_str().unwrap(), "which the inside can write", "keep it elsewhere"]);
            assert!(!world.workspace.join("effect").exists());
            ok(&start(&world.launcher()));
            fs::remove_file(world.workspace.join("effect")).unwrap();
        }
    });
}

#[test]
fn keys_are_not_handed_to_a_program_that_the_inside_could_replace() {
    for_both(|world| {
        world.spec(r#"{"secretEnv":["TEST_API_KEY"]}"#);
        let own = world.file("home/project/agent", "#!/bin/sh\ntouch effect\n");
        fs::set_permissions(&own, fs::Permissions::from_mode(0o755)).unwrap();
        let start = |program: &str, key: bool| {
            let mut command = world.run_with(&[], &[program]);
            if key {
                command.env("TEST_API_KEY", "k3y");
            }
            command.output().unwrap()
        };
        let text = refused(&start("./agent", true));
        has(&text, &["agent` cannot be used", "it could take the keys", "keep it elsewhere"]);
        assert!(!world.workspace.join("effect").exists());
        // Without a key there is nothing to take: the program runs inside and nowhere else.
        ok(&start("./agent", false));
        assert!(world.workspace.join("effect").exists());
        let elsewhere = world.root.join("agent");
        install(&own, &elsewhere);
        fs::remove_file(world.workspace.join("effect")).unwrap();
        ok(&start(elsewhere.to_str().unwrap(), true));
        assert!(world.workspace.join("effect").exists());
    });
}

#[test]
fn a_trusted_project_file_that_the_inside_changed_is_asked_about_again() {
    for_both(|world| {
        let kli = world.root.join("kli");
        install(Path::new(env!("CARGO_BIN_EXE_kli")), &kli);
        ok(&world.plainly("git init -q ."));
        world.file("home/project/.kli/settings.json", r#"{"budgets":{"turns":7}}"#);
        let run = |words: &[&str]| -> Command {
            let mut command = world.command(&kli);
            command.args(words);
            command
        };
        let is_trusted = || {
            let shown = run(&["config", "show"]).output().unwrap();
            let trusted = ok(&shown).contains("budgets.turns = 7  (project settings)");
            assert_eq!(err(&shown).contains("kli trust"), !trusted, "{shown:?}");
            trusted
        };
        assert!(!is_trusted());
        ok(&run(&["trust"]).output().unwrap());
        assert!(is_trusted());
        // Trust itself is out of the inside's reach.
        let tried = world.inside("echo '{}' > ~/.config/kli/trust.json");
        has(&err(&tried), &["Read-only file system"]);
        assert!(is_trusted());
        world.spec(r#"{"protect":[]}"#);
        ok(&world.inside("true"));
        assert!(is_trusted(), "a run alone changes nothing");
        let run = world.inside("echo '{\"budgets\":{\"turns\":7},\"x\":1}' > .kli/settings.json");
        has(&err(&run), &["`.kli/settings.json`: kli reads it"]);
        assert!(!out(&run).contains("trusted"));
        assert!(!is_trusted());
    });
}

#[test]
fn a_specification_that_is_hidden_in_a_directory_of_the_workspace_does_not_start() {
    for_both(|world| {
        let own = world.file("home/project/sub/spec.json", r#"{"denyRead":["./sub/spec.json"]}"#);
        let mut start = world.command(world.launcher());
        start.arg("run").arg("--spec").arg(&own).args(["--", "touch", "effect"]);
        has(&refused(&start.output().unwrap()), &["decide what the next start allows"]);
        assert!(!world.workspace.join("effect").exists());
        // Control: one elsewhere that says the same does, and takes nothing away.
        world.spec(r#"{"denyRead":["./sub/spec.json"]}"#);
        let tried = world.inside("mv sub away; mkdir sub; echo '{}' > sub/spec.json; touch effect");
        has(&err(&tried), &["busy", "Read-only file system"]);
        assert!(world.workspace.join("effect").exists());
    });
}

#[test]
fn a_workspace_below_run_holds_neither_specification_nor_launcher() {
    for_both(|world| {
        world.dir("run/disk/project");
        install(&world.launcher(), &world.root.join("run/disk/project/kli-sandbox"));
        world.file("run/disk/project/spec.json", "{}");
        let script = |start: &str| {
            format!(
                "mount --rbind \"$W/run\" /run && cd /run/disk/project && {start} -- touch effect"
            )
        };
        for start in ["\"$L\" run --spec spec.json", "./kli-sandbox run --spec \"$SPEC\""] {
            has(&refused(&world.in_namespace(&script(start))), &["which the inside can write"]);
            assert!(!world.root.join("run/disk/project/effect").exists());
        }
        ok(&world.in_namespace(&script("\"$L\" run --spec \"$SPEC\"")));
        assert!(world.root.join("run/disk/project/effect").exists());
    });
}

#[test]
fn a_protected_file_that_has_another_name_is_told() {
    for_both(|world| {
        let explained = || {
            let mut command = world.command(world.launcher());
            ok(&command.arg("explain").arg(world.spec_file()).output().unwrap())
        };
        // One that was absent at the start, made inside together with the other name.
        ok(&world.inside("echo first > .envrc && ln .envrc other"));
        let told =
            format!("`{}/.envrc` is read-only and has 2 hard links", world.workspace.display());
        has(&explained(), &[&told]);
        // It is as it says, and no further name can be made.
        let tried = world.inside("echo x > .envrc; ln .envrc third; echo second > other");
        has(&err(&tried), &["Read-only file system", "cross-device"]);
        assert_eq!(fs::read_to_string(world.workspace.join(".envrc")).unwrap(), "second\n");
        assert!(!world.workspace.join("third").exists());
        // Control: a copy in its place has one name, which is read-only.
        assert!(world.plainly("cp .envrc new && mv new .envrc").status.success());
        assert!(!explained().contains("hard links"));
        let tried = world.inside("echo third > other; echo x > .envrc");
        has(&err(&tried), &["Read-only file system"]);
        assert_eq!(fs::read_to_string(world.workspace.join(".envrc")).unwrap(), "second\n");
    });
}
