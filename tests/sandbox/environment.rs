//! Laws 4 and 5: the environment and the descriptors of the inside.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;

use crate::jail::{Who, err, for_both, has, ok, out, refused};

#[test]
fn a_denied_variable_is_in_no_environment_inside() {
    for_both(|world| {
        world.spec(r#"{"denyEnv":["TOKEN","AWS_*"]}"#);
        let script = "cat /proc/[0-9]*/environ | tr '\\0' '\\n'; env";
        let run = |options: &[&str]| {
            world
                .run_with(options, &["sh", "-c", script])
                .env("TOKEN", "VALUE-1")
                .env("AWS_SECRET_ACCESS_KEY", "VALUE-2")
                .env("TOKENS", "VALUE-3")
                .env("LATE", "VALUE-4")
                .output()
                .unwrap()
        };
        let text = ok(&run(&[]));
        assert!(!text.contains("VALUE-1") && !text.contains("VALUE-2"), "{text}");
        // Process 1, the shell and `cat`, and `env`: the look is a real one.
        assert!(text.matches("VALUE-3").count() >= 3, "{text}");
        has(&text, &["VALUE-4"]);
        let text = ok(&run(&["--deny-env", "LATE"]));
        assert!(!text.contains("VALUE-4"), "{text}");
        has(&text, &["VALUE-3"]);
    });
}

#[test]
fn variables_that_point_outside_are_corrected_or_removed() {
    for_both(|world| {
        let run = world
            .run_with(&[], &["sh", "-c", "env; mktemp; stat -c '%a %U %n' \"$XDG_RUNTIME_DIR\"; touch \"$XDG_RUNTIME_DIR/x\" && echo writable; ls -A \"$XDG_RUNTIME_DIR\""])
            .env("TMPDIR", "/run/user/77/nix-shell.1")
            .env("TEMP", "/nowhere")
            .env("XDG_RUNTIME_DIR", "/run/user/77")
            .env("SSH_AUTH_SOCK", "/home/x/agent")
            .env("DBUS_SESSION_BUS_ADDRESS", "unix:path=/run/user/77/bus")
            .env("DOCKER_HOST", "unix:///run/user/77/docker.sock")
            .env("SOME_FILE", "/tmp/x/y")
            .env("DISPLAY", ":0")
            .env("PWD", "/somewhere/logical")
            .env("OLDPWD", "/old")
            .env("KEPT", "/etc/hosts")
            .env("TMUX", "/tmp/tmux-0/default,1,0")
            .output()
            .unwrap();
        let text = ok(&run);
        let pwd = format!("PWD={}\n", world.workspace.display());
        has(
            &text,
            &[
                "TMPDIR=/tmp\n",
                "TEMP=/tmp\n",
                "XDG_RUNTIME_DIR=/run/user/77\n",
                "KEPT=/etc/hosts\n",
                &pwd,
                "\n/tmp/tmp.",
                "700 ",
                "writable\nx\n",
            ],
        );
        for gone in
            ["SSH_AUTH_SOCK", "DBUS_", "DOCKER_HOST", "SOME_FILE", "DISPLAY", "OLDPWD=/old", "TMUX"]
        {
            assert!(!text.contains(gone), "{gone} in {text}");
        }
    });
}

#[test]
fn no_descriptor_of_the_caller_reaches_the_inside() {
    for_both(|world| {
        world.file("home/secret", "SECRET");
        world.spec(r#"{"denyRead":["~/secret"]}"#);
        let script = |inner: &str| format!("exec 9<../secret; {inner} sh -c 'cat <&9'");
        assert_eq!(ok(&world.plainly(&script(""))), "SECRET");
        let start = format!(
            "'{}' run --spec '{}' --",
            world.launcher().display(),
            world.spec_file().display()
        );
        let tried = world.plainly(&script(&start));
        assert_eq!(out(&tried), "");
        has(&err(&tried), &["9: Bad file descriptor"]);
        assert_eq!(ok(&world.inside("ls /proc/self/fd")), "0\n1\n2\n3\n");
        // Process 1, which the program's environment came through, lets nobody look (law 15).
        for file in ["fd/0", "environ", "mem"] {
            let tried = world.inside(&format!("head -c 1 /proc/1/{file}"));
            assert_eq!(out(&tried), "", "{file}");
            has(&err(&tried), &["Permission denied"]);
        }
        // User 0 may still count its descriptors: two more, the socket to the launcher and that of its
        // signals, neither of which can be had.
        if world.who == Who::Root {
            assert_eq!(ok(&world.inside("ls /proc/1/fd | wc -l")), "5\n");
            let tried = world.inside("cd /proc/1/fd && for fd in *; do exec 9<>$fd; done");
            has(&err(&tried), &["Permission denied"]);
            let tried =
                world.inside("cd /proc/1/fd && for fd in *; do readlink $fd && echo had; done");
            assert_eq!(out(&tried), "");
        }
        assert_ne!(ok(&world.inside("head -c 1 /proc/self/environ")), "", "control");
    });
}

#[test]
fn a_directory_as_a_standard_stream_is_refused() {
    for_both(|world| {
        for (number, redirect) in [(0, "0<.."), (1, "1<.."), (2, "2<..")] {
            let start = format!(
                "'{}' run --spec '{}' -- touch effect {redirect}",
                world.launcher().display(),
                world.spec_file().display()
            );
            let tried = world.plainly(&start);
            assert_eq!(tried.status.code(), Some(125));
            if number != 2 {
                has(&refused(&tried), &[&format!("descriptor {number} is a directory")]);
            }
            assert!(!world.workspace.join("effect").exists());
        }
        let file = world.file("outside/file", "old");
        let script = |redirect: &str| {
            format!(
                "'{}' run --spec '{}' -- sh -c 'echo new > /proc/self/fd/1' {redirect}'{}'",
                world.launcher().display(),
                world.spec_file().display(),
                file.display()
            )
        };
        has(&refused(&world.plainly(&script("1<"))), &["descriptor 1 is a file", "redirect it"]);
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "old");
        ok(&world.plainly(&script("1>")));
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "new\n");
        let handle = rustix::fs::open(
            world.root.join("outside/file"),
            rustix::fs::OFlags::PATH,
            rustix::fs::Mode::empty(),
        );
        let mut start = world.run_with(&[], &["sh", "-c", "echo newer > /proc/self/fd/0"]);
        has(&refused(&start.stdin(handle.unwrap()).output().unwrap()), &["descriptor 0 is a file"]);
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "new\n");
        ok(&world.inside("touch effect"));
        assert!(world.workspace.join("effect").exists());
    });
}

#[test]
fn a_file_on_standard_input_cannot_be_written_through_its_descriptor() {
    for_both(|world| {
        let file = world.file("outside/input", "one\ntwo\nthree\n");
        let start = format!(
            "'{}' run --spec '{}' --",
            world.launcher().display(),
            world.spec_file().display()
        );
        let script = |start: &str| {
            format!(
                "{{ read first; {start} sh -c 'read second; echo \"$second\"; \
                 echo x > /proc/self/fd/0; chmod 600 /proc/self/fd/0'; cat; }} < '{}'",
                file.display()
            )
        };
        let tried = world.plainly(&script(&start));
        // What was read before is not read again, neither inside nor afterwards.
        assert_eq!(out(&tried), "two\nthree\n", "{tried:?}");
        assert_eq!(err(&tried).matches("Read-only file system").count(), 2, "{tried:?}");
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "one\ntwo\nthree\n");
        world.plainly(&script(""));
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "x\n");
        // A descriptor that was opened for writing stays one.
        let write = format!("{start} sh -c 'echo y >&0' 0<>'{}'", file.display());
        ok(&world.plainly(&write));
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "y\n");
        // Neither a file without a name nor one that the caller may only read is in the way.
        assert_eq!(ok(&world.plainly(&format!("{start} cat <<E\nhere\nE"))), "here\n");
        has(&ok(&world.plainly(&format!("{start} cat < /etc/passwd"))), &["root:"]);
    });
}

#[test]
fn a_list_passes_what_it_names_and_the_documented_minimum() {
    for_both(|world| {
        world.spec(r#"{"passEnv":["EDITOR","CARGO_*","AWS_*"],"denyEnv":["AWS_SECRET*"]}"#);
        let minimum = [
            ("COLORTERM", "truecolor"),
            ("KLI_BAKED", "/etc"),
            ("LANG", "C"),
            ("LANGUAGE", "en"),
            ("LC_TIME", "C"),
            ("LOGNAME", "me"),
            ("NO_COLOR", "1"),
            ("SHELL", "/bin/sh"),
            ("SSL_CERT_FILE", "/etc/ssl/certs/ca-certificates.crt"),
            ("TERM", "dumb"),
            ("TZ", "UTC"),
            ("USER", "me"),
            ("XDG_CACHE_HOME", "/etc"),
        ];
        let named = [("EDITOR", "vi"), ("CARGO_HOME", "/etc"), ("AWS_REGION", "x")];
        let others = [
            ("AWS_SECRET_KEY", "OTHER"),
            ("CARGO", "OTHER"),
            ("LD_LIBRARY_PATH", "OTHER"),
            ("LC", "OTHER"),
            ("GITHUB_TOKEN", "OTHER"),
            ("XDG_SESSION_ID", "OTHER"),
        ];
        let run = || {
            let mut command = world.run_with(&[], &["env"]);
            for (name, value) in minimum.into_iter().chain(named).chain(others) {
                command.env(name, value);
            }
            ok(&command.output().unwrap())
        };
        let text = run();
        for (name, value) in minimum.into_iter().chain(named) {
            assert!(text.contains(&format!("{name}={value}\n")), "{name} in {text}");
        }
        for name in ["HOME=", "PATH=", "PWD=", "TMPDIR=/tmp\n"] {
            assert!(text.contains(name), "{name} in {text}");
        }
        assert!(!text.contains("=OTHER"), "{text}");
        world.spec("{}");
        assert_eq!(run().matches("=OTHER").count(), others.len(), "control");
        world.spec(r#"{"passEnv":[]}"#);
        let text = run();
        assert!(!text.contains("EDITOR") && text.contains("LC_TIME=C\n"), "{text}");
    });
}

#[test]
fn what_an_entrypoint_kept_from_the_loader_is_the_programs() {
    for_both(|world| {
        let run = |spec: &str| {
            world.spec(spec);
            let mut command = world.run_with(&[], &["env"]);
            command.env("KLI_LOADER_LD_BIND_NOT", "kept").env("KLI_LOADER_", "its own");
            ok(&command.output().unwrap())
        };
        let text = run("{}");
        has(&text, &["\nLD_BIND_NOT=kept\n", "KLI_LOADER_=its own\n"]);
        assert!(!text.contains("KLI_LOADER_LD"), "{text}");
        // The rules are those of the variable that it stands for.
        for spec in [r#"{"denyEnv":["LD_*"]}"#, r#"{"passEnv":[]}"#] {
            let text = run(spec);
            assert!(!text.contains("LD_BIND_NOT"), "{spec}: {text}");
        }
        has(&run(r#"{"passEnv":["LD_BIND_NOT"]}"#), &["LD_BIND_NOT=kept\n"]);
    });
}

/// What an entrypoint replaced or took away must not come back under the mark.
#[test]
fn only_what_the_loader_reads_can_have_been_kept_from_it() {
    for_both(|world| {
        world.spec("{}");
        let marked =
            ["KLI_STATE_DIR", "KLI_BAKED", "LDPRELOAD", "GLIBC_TUNABLES_X", "ANTHROPIC_API_KEY"];
        let mut command = world.run_with(&[], &["env"]);
        command.env("KLI_BAKED", "/the/entrypoints").env("KLI_LOADER_GLIBC_TUNABLES", "x=y");
        for name in marked {
            command.env(format!("KLI_LOADER_{name}"), "/the/callers");
        }
        let text = ok(&command.output().unwrap());
        has(&text, &["\nKLI_BAKED=/the/entrypoints\n", "GLIBC_TUNABLES=x=y\n"]);
        assert!(!text.contains("KLI_LOADER_GLIBC_TUNABLES="), "{text}");
        for name in marked {
            assert!(!text.contains(&format!("\n{name}=/the/callers")), "{name} in {text}");
        }
    });
}

#[test]
fn what_the_specification_sets_wins_over_the_caller_and_the_command_line_removes_it() {
    for_both(|world| {
        world.file("home/value", "from a file\nwith two lines\n");
        world.spec(
            r#"{"env":{"SET":"by the specification","TMPDIR":"/dev/shm","SOCKET":"/run/x","EMPTY":""},
                "envFiles":{"TOLD":"~/value"},"passEnv":[]}"#,
        );
        let script =
            "printf '[%s]' \"$SET\" \"$TMPDIR\" \"$SOCKET\" \"${EMPTY-unset}\" \"$TOLD\"; mktemp";
        let run = |options: &[&str]| {
            let mut command = world.run_with(options, &["sh", "-c", script]);
            command
                .env("SET", "by the caller")
                .env("TOLD", "by the caller")
                .env("TMPDIR", "/var/tmp");
            ok(&command.output().unwrap())
        };
        has(
            &run(&[]),
            &["[by the specification][/dev/shm][/run/x][][from a file\nwith two lines]/dev/shm/"],
        );
        let text = run(&["--deny-env", "SET", "--deny-env", "TOLD"]);
        has(&text, &["[][/dev/shm][/run/x][][]"]);
        // A file that would be read for a denied variable need not be there.
        fs::remove_file(world.home.join("value")).unwrap();
        has(&run(&["--deny-env", "TOLD"]), &["[by the specification]"]);
        has(
            &refused(&world.inside("true")),
            &["`envFiles`: `TOLD`: `~/value`: it does not exist: create it, or take the entry out"],
        );
    });
}

#[test]
fn a_large_environment_and_odd_values_arrive_as_they_are() {
    for_both(|world| {
        let long = "v".repeat(100_000);
        let odd: &OsStr = OsStrExt::from_bytes(b"a\nb\x01\xff=\"'$(x)");
        let mut command = world.run_with(&[], &["env", "-0"]);
        for number in 0..10 {
            command.env(format!("LONG_{number}"), &long);
        }
        let output = command.env("ODD", odd).env("ODD NAME", "x").env("NONE", "").output().unwrap();
        assert!(output.status.success(), "{:?}", err(&output));
        let variables: Vec<&[u8]> = output.stdout.split(|byte| *byte == 0).collect();
        for number in 0..10 {
            assert!(variables.contains(&format!("LONG_{number}={long}").as_bytes()));
        }
        for wanted in [b"ODD=a\nb\x01\xff=\"'$(x)".as_slice(), b"ODD NAME=x", b"NONE="] {
            assert!(variables.contains(&wanted), "{wanted:?}");
        }
        // Found by the PATH of the inside, also where the launcher has found nothing.
        world.file("home/project/bin/own", "#!/bin/sh\necho own\n");
        ok(&world.plainly("chmod +x bin/own"));
        world.spec(&format!(
            r#"{{"env":{{"PATH":"{}/bin:/usr/bin:/bin"}}}}"#,
            world.workspace.display()
        ));
        assert_eq!(ok(&world.run_with(&[], &["own"]).output().unwrap()), "own\n");
        world.spec("{}");
        assert_eq!(world.run_with(&[], &["own"]).output().unwrap().status.code(), Some(127));
    });
}
