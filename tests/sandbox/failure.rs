//! Law 11: what cannot be confined is not started, and one sentence says why and what repairs it.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;

use crate::jail::{Who, World, err, for_both, has, ok, out, refused};

fn script(world: &World, name: &str, text: &str, mode: u32) -> String {
    let file = world.file(name, text);
    fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
    file.to_str().unwrap().to_owned()
}

fn nothing_started(world: &World) {
    assert!(!world.workspace.join("effect").exists());
    ok(&world.inside("touch effect && rm effect"));
}

#[test]
fn without_bubblewrap_nothing_starts() {
    for_both(|world| {
        for path in ["/nonexistent", "", ".:bin", "../bin"] {
            let start = format!(
                "export PATH='{path}'; '{}' run --spec '{}' -- touch effect",
                world.launcher().display(),
                world.spec_file().display()
            );
            let text = refused(&world.plainly(&start));
            has(&text, &["bubblewrap is not found on PATH", "install it"]);
        }
        let named =
            world.run_with(&["--bwrap", "/no/bwrap"], &["touch", "effect"]).output().unwrap();
        has(&refused(&named), &["`/no/bwrap` cannot be used"]);
        nothing_started(world);
    });
}

#[test]
fn an_old_a_broken_and_a_setuid_bubblewrap_are_named() {
    for_both(|world| {
        let old = script(
            world,
            "old",
            "#!/bin/sh\necho 'bwrap: Unknown option --perms' >&2; exit 1\n",
            0o755,
        );
        let setuid = script(world, "setuid", "#!/bin/sh\ntouch effect\n", 0o4755);
        let silent = script(world, "silent", "#!/bin/sh\nexit 0\n", 0o755);
        let data = script(world, "data", "x", 0o644);
        for (bwrap, parts) in [
            (old, ["is too old, the oldest version that works is 0.8", "Unknown option"]),
            (setuid, ["it is setuid", "chmod u-s"]),
            (silent, ["bubblewrap failed: it said nothing", "explain"]),
            (data, ["no executable file", "--bwrap"]),
        ] {
            let output =
                world.run_with(&["--bwrap", &bwrap], &["touch", "effect"]).output().unwrap();
            has(&refused(&output), &parts);
        }
        nothing_started(world);
    });
}

#[test]
fn without_user_namespaces_the_switch_is_named() {
    for_both(|world| {
        for (count, part) in
            [(0, "`user.max_user_namespaces` is 0"), (1, "namespaces` allows fewer")]
        {
            let start = format!(
                "echo {count} > /proc/sys/user/max_user_namespaces && \
                 exec \"$L\" run --spec \"$SPEC\" -- touch effect"
            );
            let text = refused(&world.in_namespace(&start));
            has(&text, &[part, "as root: `sysctl -w user.max_user_namespaces="]);
        }
        ok(&world.in_namespace("exec \"$L\" run --spec \"$SPEC\" -- true"));
        nothing_started(world);
    });
}

#[test]
fn a_masked_proc_names_nested_userns_and_works_with_it() {
    for_both(|world| {
        let start = "mount --bind /dev/null /proc/keys && exec \"$L\" run --spec \"$SPEC\" -- sh -c \
            'echo x > effect; test -e /proc/self/status && echo proc; echo x > /proc/sys/kernel/hostname; echo x > /proc/sysrq-trigger'";
        let text = refused(&world.in_namespace(start));
        has(&text, &["set `nestedUserns` to true"]);
        nothing_started(world);
        let explained = || {
            let mut command = world.command(world.launcher());
            ok(&command.arg("explain").arg(world.spec_file()).output().unwrap())
        };
        let weaker = "note: `nestedUserns`: the inside sees the outer `/proc`";
        assert!(!explained().contains(weaker));
        world.spec(r#"{"nestedUserns":true}"#);
        has(&explained(), &[weaker, "command lines", "can be read"]);
        let output = world.in_namespace(start);
        assert_eq!(crate::jail::out(&output), "proc\n");
        assert_eq!(crate::jail::err(&output).matches("cannot create").count(), 2, "{output:?}");
        assert!(world.workspace.join("effect").exists());
    });
}

/// Where nothing but the start itself runs there is no process 2, the number that bubblewrap's child
/// has in the launcher's own namespace.
#[test]
fn in_a_container_with_few_processes_it_starts() {
    for_both(|world| {
        let few = |rest: &str| {
            format!(
                "exec unshare --pid --fork --mount-proc sh -c 'test ! -e /proc/2 || exit 9; \
                 {rest} exec \"$L\" run --spec \"$SPEC\" -- sh -c \"echo up\"'"
            )
        };
        assert_eq!(ok(&world.in_namespace(&few(""))), "up\n");
        world.spec(r#"{"nestedUserns":true}"#);
        assert_eq!(ok(&world.in_namespace(&few("mount --bind /dev/null /proc/keys;"))), "up\n");
    });
}

#[test]
fn with_read_only_sysctls_nested_userns_still_works() {
    for_both(|world| {
        world.spec(r#"{"nestedUserns":true}"#);
        let start = "mount --bind /dev/null /proc/keys && mount --bind /proc/sys /proc/sys && mount -o remount,bind,ro /proc/sys && \
            exec \"$L\" run --spec \"$SPEC\" -- sh -c 'setsid sleep 0.1 & echo up'";
        assert_eq!(ok(&world.in_namespace(start)), "up\n");
        world.spec("{}");
        has(&refused(&world.in_namespace(start)), &["set `nestedUserns` to true"]);
    });
}

#[test]
fn a_command_line_that_makes_no_sense_is_explained() {
    for_both(|world| {
        let spec = world.spec_file();
        let spec = spec.to_str().unwrap();
        for (words, part) in [
            (vec![], "a command is missing"),
            (vec!["walk"], "there is no command `walk`"),
            (vec!["run", "--", "true"], "`--spec FILE` is missing"),
            (vec!["run", "--spec", spec], "the program is missing"),
            (vec!["run", "--spec", spec, "--"], "the program is missing"),
            (vec!["run", "--spec", spec, "--", ""], "the program's name is empty"),
            (
                vec!["run", "--spec", spec, "--writable", "/", "--", "true"],
                "unknown option `--writable`",
            ),
            (vec!["run", "--spec"], "a value is missing after `--spec`"),
            (vec!["check", spec, spec], "unexpected argument `"),
            (vec!["check", spec, "--spec", spec], "unknown option `--spec`"),
            (
                vec!["run", "--spec", spec, "--deny-env", "A=B", "--", "true"],
                "`A=B` is no variable name",
            ),
            (vec!["run", "--spec", "/no/spec", "--", "true"], "`/no/spec` is not there"),
            (vec!["check"], "`check` needs a file"),
            (vec!["explain", spec, "--format", "xml"], "there is no format `xml`"),
        ] {
            let output = world.command(world.launcher()).args(&words).output().unwrap();
            has(&refused(&output), &[part]);
        }
        // Who writes `--spec` everywhere is understood.
        for command in ["check", "explain", "doctor", "shell"] {
            let said = |words: &[&str]| {
                let mut it = world.command(world.launcher());
                let output = it.arg(command).args(words).stdin(Stdio::null()).output().unwrap();
                (output.status.code(), output.stdout)
            };
            assert_eq!(said(&["--spec", spec]), said(&[spec]), "{command}");
            assert_ne!(said(&["--spec", "/no/spec"]).0, Some(0), "{command}");
        }
        let help = ok(&world.command(world.launcher()).arg("--help").output().unwrap());
        has(&help, &["usage:", "--deny-env", "125"]);
        let word = ok(&world.command(world.launcher()).arg("help").output().unwrap());
        assert_eq!(word, help);
        let version = ok(&world.command(world.launcher()).arg("--version").output().unwrap());
        assert_eq!(version, format!("kli-sandbox {}\n", env!("CARGO_PKG_VERSION")));
    });
}

#[test]
fn a_jail_inside_a_jail_is_refused_with_the_reason() {
    for_both(|world| {
        let again = format!(
            "'{}' run --spec '{}' -- touch effect",
            world.launcher().display(),
            world.spec_file().display()
        );
        has(&refused(&world.inside(&again)), &["this process is confined already"]);
        nothing_started(world);
    });
}

#[test]
fn a_home_that_does_not_exist_is_named_and_not_made() {
    for_both(|world| {
        let home = world.root.join("outside/nobody");
        let start =
            || world.run_with(&[], &["touch", "effect"]).env("HOME", &home).output().unwrap();
        has(&refused(&start()), &["stateDir", "outside/nobody` does not exist"]);
        assert!(!home.exists());
        nothing_started(world);
        world.spec(r#"{"stateDir":false}"#);
        ok(&start());
        assert!(!home.exists());
    });
}

#[test]
fn nested_userns_shows_no_secrets_of_outer_processes() {
    for_both(|world| {
        world.spec(r#"{"nestedUserns":true,"denyEnv":["TOKEN"],"denyRead":["~/secret"]}"#);
        world.file("home/secret", "SECRET");
        world.file(
            "look",
            "tr '\\0' '\\n' < /proc/$OUTER/environ | grep TOKEN; cat /proc/$OUTER/root/$HOME/secret; \
             cat /proc/$OUTER/cwd/../secret",
        );
        let run = |start: &str| {
            world.in_namespace(&format!(
                "mount --bind /dev/null /proc/keys; export TOKEN=VALUE; sleep 20 & \
                 export OUTER=$!; sleep 0.05; {start} sh ../../look; code=$?; kill $OUTER; exit $code"
            ))
        };
        assert_eq!(ok(&run("")), "TOKEN=VALUE\nSECRETSECRET");
        let output = run("\"$L\" run --spec \"$SPEC\" --");
        assert_eq!(crate::jail::out(&output), "", "{output:?}");
        assert_eq!(crate::jail::err(&output).matches("ermission denied").count(), 3, "{output:?}");
        // The same user's processes cannot be steered either.
        let steer = "echo 500 > /proc/$OUTER/oom_score_adj; cat /proc/$OUTER/oom_score_adj";
        world.file("look", steer);
        let before = ok(&world.plainly("cat /proc/self/oom_score_adj"));
        let output = run("\"$L\" run --spec \"$SPEC\" --");
        assert_eq!(crate::jail::out(&output), before, "{output:?}");
        has(&crate::jail::err(&output), &["Read-only file system"]);
        assert_eq!(ok(&run("")), "500\n");
    });
}

#[test]
fn a_bubblewrap_that_the_inside_can_have_put_there_is_refused() {
    for_both(|world| {
        script(world, "home/project/bin/bwrap", "#!/bin/sh\ntouch ../../outside/effect\n", 0o755);
        world.link("home/project/link", "bin");
        world.dir("home/safe");
        world.link("home/safe/bwrap", "../project/bin/bwrap");
        for place in ["project/bin", "project/link", "safe"] {
            let place = world.home.join(place);
            let path = format!("{}:/usr/bin:/bin", place.display());
            let mut start = world.run_with(&[], &["true"]);
            let text = refused(&start.env("PATH", path).output().unwrap());
            has(&text, &["project`, which the inside can write: name another with `--bwrap`"]);
            let named = place.join("bwrap");
            let named = named.to_str().unwrap();
            let text = refused(&world.run_with(&["--bwrap", named], &["true"]).output().unwrap());
            has(&text, &["which the inside can write"]);
        }
        assert!(!world.root.join("outside/effect").exists());
        nothing_started(world);
    });
}

#[test]
fn a_limit_on_the_size_of_files_is_told() {
    for_both(|world| {
        let start = |limit: &str| {
            world.plainly(&format!(
                "ulimit -f {limit}; exec '{}' run --spec '{}' -- true",
                world.launcher().display(),
                world.spec_file().display()
            ))
        };
        has(&refused(&start("0")), &["File too large", "(`ulimit -f`)"]);
        ok(&start("1000"));
        nothing_started(world);
    });
}

#[test]
fn too_few_descriptors_at_any_step_are_told_with_the_repair() {
    for_both(|world| {
        world.file("home/project/.env", "SECRET");
        world.spec(r#"{"denyRead":["./.env"]}"#);
        let mut told = std::collections::BTreeSet::new();
        for limit in 8..60 {
            let tried = world.plainly(&format!(
                "ulimit -n {limit} && exec '{}' run --spec '{}' -- cat .env",
                world.launcher().display(),
                world.spec_file().display()
            ));
            assert_eq!(out(&tried), "", "{limit}");
            let said = err(&tried);
            if !tried.status.success() {
                // Before it has what its libraries need, the launcher itself says nothing.
                let own = said.starts_with("kli-sandbox: ");
                assert!(
                    limit < 10 || own && tried.status.code() == Some(125),
                    "{limit}: {tried:?}"
                );
                if own {
                    has(&said, &["ulimit -n"]);
                    told.insert(said);
                }
            }
        }
        assert!(told.len() > 3, "at more than one step: {told:?}");
        ok(&world.inside("cat .env"));
        nothing_started(world);
    });
}

#[test]
fn the_last_stage_started_by_hand_starts_nothing() {
    for_both(|world| {
        let start =
            format!("'{}' inner 3 4 touch effect 3>/dev/null 4>&2", world.launcher().display());
        has(&refused(&world.plainly(&start)), &["not process 1 of a jail", "kli-sandbox run"]);
        has(
            &refused(&world.inside("/run/kli/inner inner 3 4 touch effect 3>/dev/null 4>&2")),
            &["not process 1"],
        );
        nothing_started(world);
    });
}

/// As a service unit with `ProcSubset=pid` has it, where the launcher is shown nothing of what a `/proc`
/// of the jail's own will have.
#[test]
fn a_proc_that_shows_processes_alone_hides_nothing_that_must_be_covered() {
    for_both(|world| {
        let start = "exec unshare -pf sh -c 'mount -t proc -o subset=pid proc /proc && test ! -e /proc/sys && \
             cd \"$W/home/project\" && exec \"$L\" run --spec \"$SPEC\" -- sh ../../look'";
        world.file(
            "look",
            "for it in kernel/hostname net/ipv4/ip_forward; do (echo 1 > /proc/sys/$it) && echo steered; done\n\
             head -n 1 /proc/keys; echo x > effect\n\
             perl -MSocket -e 'socket(S,AF_UNIX,SOCK_STREAM,0); print connect(S,sockaddr_un(\"../../outside/s\")) ? \
             \"connected\\n\" : \"$!\\n\"'\n",
        );
        let listener = std::os::unix::net::UnixListener::bind(world.root.join("outside/s"));
        let _listener = listener.unwrap();
        let everybody = fs::Permissions::from_mode(0o777);
        fs::set_permissions(world.root.join("outside/s"), everybody).unwrap();
        world.spec(r#"{"network":false}"#);
        let tried = world.in_namespace(start);
        assert_eq!(out(&tried), "Permission denied\n", "{tried:?}");
        assert_eq!(err(&tried).matches("Read-only file system").count(), 2, "{tried:?}");
        has(&err(&tried), &["/proc/keys", "Permission denied"]);
        let plain = world.in_namespace("exec unshare -n sh ../../look");
        has(&out(&plain), &["steered\n", "keyring", "connected\n"]);
        // Where the outer one is all that there can be, the unit's setting is named.
        fs::remove_file(world.workspace.join("effect")).unwrap();
        world.spec(r#"{"network":false,"nestedUserns":true}"#);
        has(&refused(&world.in_namespace(start)), &["`ProcSubset=pid`", "take the setting out"]);
        assert!(!world.workspace.join("effect").exists());
    });
}

/// The kernel makes no user namespace for who has another root directory than its mount namespace.
#[test]
fn in_a_chroot_nothing_starts_and_the_reason_is_named() {
    for_both(|world| {
        world.dir("new");
        let start = "mount --rbind / \"$W/new\" && exec chroot \"$W/new\" sh -c 'cd \"$W/home/project\" && \
             exec \"$L\" run --spec \"$SPEC\" -- touch effect'";
        let told = refused(&world.in_namespace(start));
        has(&told, &["the kernel refuses a user namespace", "inside a chroot the kernel does"]);
        assert!(!world.workspace.join("effect").exists());
        ok(&world.in_namespace(&start.replace("exec chroot \"$W/new\" sh", "exec sh")));
        assert!(world.workspace.join("effect").exists(), "control");
    });
}

#[test]
fn too_few_processes_are_told_with_the_repair() {
    for_both(|world| {
        let start = |limit: &str| {
            let mut command = world.command("prlimit");
            command.arg(format!("--nproc={limit}")).arg("--").arg(world.launcher());
            command.arg("run").arg("--spec").arg(world.spec_file());
            command.args(["--", "touch", "effect"]).output().unwrap()
        };
        // The kernel binds nobody who is user 0.
        if world.who == Who::User {
            has(&refused(&start("1")), &["Resource temporarily unavailable", "`ulimit -u`"]);
            assert!(!world.workspace.join("effect").exists());
        }
        ok(&world.inside("touch effect"));
        assert!(world.workspace.join("effect").exists(), "control");
    });
}

#[test]
fn a_tree_of_the_jail_s_own_that_is_a_link_on_the_machine_is_named() {
    for_both(|world| {
        let kept = world.dir("outside/tmp");
        world.dir("new");
        // A root of links and binds, in which `/tmp` is a link.
        let root = |tmp: &str| {
            format!(
                "N=\"$W/new\"; mount -t tmpfs new \"$N\"; for d in /*; do n=$N$d; \
                 if [ -L $d ]; then ln -s \"$(readlink $d)\" \"$n\"; \
                 elif [ $d != /tmp ] && [ -d $d ]; then mkdir \"$n\"; mount --rbind $d \"$n\"; fi; done; {tmp}; \
                 mkdir \"$N/old\"; cd \"$N\" && pivot_root . old && umount -l /old && cd \"$W/home/project\" && \
                 exec \"$L\" run --spec \"$SPEC\" -- sh -c 'echo x > /tmp/effect; echo up'"
            )
        };
        let link = world.in_namespace(&root("ln -s \"$W/outside/tmp\" \"$N/tmp\""));
        has(&refused(&link), &["`/tmp` cannot be made inside", "it is a symbolic link"]);
        assert!(!kept.join("effect").exists());
        assert_eq!(ok(&world.in_namespace(&root("mkdir \"$N/tmp\""))), "up\n", "control");
    });
}
