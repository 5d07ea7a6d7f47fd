//! What a caller's environment, a repository or a forged marker tries to tell the launcher: the plan
//! stays the same, and nothing of it runs before the jail is complete.

use std::fs;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::jail::{World, end, err, for_both, has, ok, processes, refused};

/// The plan without what it says about variables.
fn mounts(output: &std::process::Output) -> String {
    let text = ok(output);
    // The sockets of other programs come and go meanwhile, those of other tests above all.
    let plan = text.lines().filter(|line| {
        !line.starts_with("variable ")
            && !line.starts_with("created ")
            && !line.ends_with("`allowSockets` keeps it")
    });
    plan.collect::<Vec<_>>().join("\n")
}

fn explained(world: &World) -> Command {
    let mut command = world.command(world.launcher());
    command.arg("explain").arg(world.spec_file());
    command
}

fn program(world: &World, path: &str, text: &str) -> PathBuf {
    let file = world.file(path, text);
    fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
    file
}

#[test]
fn no_variable_changes_the_plan() {
    for_both(|world| {
        world.file("home/secret", "SECRET");
        let spec = format!(
            r#"{{"denyRead":["{}/secret"],"network":false,"env":{{"SET":"by the specification"}}}}"#,
            world.home.display()
        );
        world.spec(&spec);
        let mask = program(world, "outside/evil.sh", "#!/bin/sh\ntouch \"$EFFECT\"\n");
        // Everything that a launcher might start by its name, but for what this test starts itself.
        for name in ["git", "id", "getent", "mount", "umount", "ip", "env", "uname", "ls"] {
            program(world, &format!("outside/bin/{name}"), "#!/bin/sh\ntouch \"$EFFECT\"\n");
        }
        let path = format!("{}/outside/bin:/usr/local/bin:/usr/bin:/bin", world.root.display());
        let effect = world.workspace.join("effect");
        let plain = mounts(&explained(world).output().unwrap());
        has(&plain, &["network: loopback only", "hidden file", "/secret"]);
        for (name, value) in [
            ("KLI_BAKED", "/nowhere"),
            ("KLI_SANDBOX", "off"),
            ("KLI_NO_SANDBOX", "1"),
            ("KLI_SANDBOX_SPEC", "/dev/null"),
            ("KLI_BWRAP", mask.to_str().unwrap()),
            ("BWRAP", mask.to_str().unwrap()),
            ("BASH_ENV", mask.to_str().unwrap()),
            ("ENV", mask.to_str().unwrap()),
            ("SHELLOPTS", "xtrace"),
            ("PYTHONSTARTUP", mask.to_str().unwrap()),
            ("PERL5OPT", "-Mevil"),
            ("GIT_DIR", "/etc"),
            ("GIT_WORK_TREE", "/"),
            ("GIT_CONFIG_GLOBAL", mask.to_str().unwrap()),
            ("PWD", "/"),
            ("OLDPWD", "/"),
            ("TMPDIR", "/etc"),
            ("TZ", "/etc/passwd"),
            ("LD_LIBRARY_PATH", "/var/empty"),
            ("LD_PRELOAD", "/no/such.so"),
            ("PATH", &path),
            ("SET", "by the caller"),
            ("_", "/bin/sh"),
        ] {
            let told = explained(world).env(name, value).env("EFFECT", &effect).output().unwrap();
            assert_eq!(mounts(&told), plain, "{name}");
            let seen = "cat ../secret; echo \"$SET\"";
            let run = world
                .run_with(&[], &["sh", "-c", seen])
                .env(name, value)
                .env("EFFECT", &effect)
                .output()
                .unwrap();
            assert!(ok(&run).ends_with("by the specification\n"), "{name}: {run:?}");
            assert!(!ok(&run).contains("SECRET"), "{name}");
            // A shell inside reads its own start files, as it would outside; the launcher none.
            let told = explained(world).env(name, value).env("EFFECT", &effect).output().unwrap();
            ok(&told);
            assert!(!effect.exists(), "{name}");
        }
        assert_eq!(ok(&world.plainly("cat ../secret")), "SECRET", "control");
        let mut git = world.command("sh");
        git.args(["-c", "git"]).env("PATH", &path).env("EFFECT", &effect);
        ok(&git.output().unwrap());
        assert!(effect.exists(), "control: they do what they do when they are started");
    });
}

#[test]
fn a_home_that_is_no_home_lifts_no_mask_and_opens_nothing() {
    for_both(|world| {
        let secret = world.file("home/.aws/key", "SECRET");
        world.dir("other");
        let spec = format!(
            r#"{{"denyRead":["{}"],"stateDir":false}}"#,
            secret.parent().unwrap().display()
        );
        world.spec(&spec);
        let script = format!("cat '{}'; touch ../made ../../outside/made", secret.display());
        for home in [Some("/"), Some("/etc"), Some("relative"), Some(""), Some("/no/home"), None] {
            let mut run = world.run_with(&[], &["sh", "-c", &script]);
            match home {
                Some(home) => run.env("HOME", home),
                None => run.env_remove("HOME"),
            };
            let output = run.output().unwrap();
            assert!(!format!("{output:?}").contains("SECRET"), "{home:?}: {output:?}");
            assert!(!world.home.join("made").exists() && !world.root.join("outside/made").exists());
            assert!(
                err(&output).contains("No such file") && err(&output).contains("Read-only"),
                "{home:?}: {output:?}"
            );
        }
        ok(&world
            .plainly(&format!("cat '{}'; touch ../made ../../outside/made", secret.display())));
        assert!(world.home.join("made").exists(), "control");
    });
}

#[test]
fn a_foreign_home_or_a_relative_one_is_no_place_for_writable_paths() {
    for_both(|world| {
        world.spec(r#"{"writablePaths":["~/cache"],"stateDir":false}"#);
        let foreign = world.root.join("foreign");
        fs::create_dir(&foreign).unwrap();
        // Whoever runs this test, it is somebody else than one of the two.
        let home = if rustix::process::geteuid().is_root() {
            let owner = Some(77);
            std::os::unix::fs::chown(&foreign, owner, owner).unwrap();
            fs::set_permissions(&foreign, fs::Permissions::from_mode(0o777)).unwrap();
            foreign.clone()
        } else {
            PathBuf::from("/")
        };
        let mut run = world.run_with(&[], &["touch", "effect"]);
        let told = refused(&run.env("HOME", &home).output().unwrap());
        has(&told, &["HOME is `", "belongs to user", "set it to your own"]);
        assert!(!home.join("cache").exists() && !world.workspace.join("effect").exists());
        ok(&world.inside("touch ../cache/made"));
        assert!(world.home.join("cache/made").exists(), "control");
    });
}

#[test]
fn a_pinned_bubblewrap_is_used_whatever_path_says() {
    for_both(|world| {
        let place = world.dir("outside/bin");
        let fake = "#!/bin/sh\ntouch \"$EFFECT\"\nexit 0\n";
        for name in ["bwrap", "env", "sh", "mount"] {
            program(world, &format!("outside/bin/{name}"), fake);
        }
        let effect = world.root.join("home/effect");
        let path = format!("{}:/usr/local/bin:/usr/bin:/bin", place.display());
        let real = ["/usr/bin/bwrap", "/usr/local/bin/bwrap", "/run/current-system/sw/bin/bwrap"]
            .into_iter()
            .find(|path| Path::new(path).exists())
            .unwrap();
        let pinned = world
            .run_with(&["--bwrap", real], &["/bin/sh", "-c", "cat /run/kli/sandbox.json"])
            .env("PATH", &path)
            .env("EFFECT", &effect)
            .output()
            .unwrap();
        has(&ok(&pinned), &["\"version\":1"]);
        assert!(!effect.exists());
        // The same without it: PATH decides, and the fake gets neither this variable nor another, so
        // it leaves nothing behind, and no start is reported.
        let free = world
            .run_with(&[], &["/bin/true"])
            .env("PATH", &path)
            .env("EFFECT", &effect)
            .output()
            .unwrap();
        has(&refused(&free), &["bubblewrap failed"]);
        assert!(!effect.exists());
    });
}

#[test]
fn what_the_loader_is_told_acts_on_the_program_alone() {
    for_both(|world| {
        let debug = world.workspace.join("debug");
        let traced = |command: &mut Command| {
            command.env("LD_DEBUG", "files").env("LD_DEBUG_OUTPUT", &debug);
            ok(&command.output().unwrap());
            let mut text = String::new();
            for entry in fs::read_dir(&world.workspace).unwrap() {
                let path = entry.unwrap().path();
                if path.to_str().unwrap().contains("/debug.") {
                    text.push_str(&fs::read_to_string(&path).unwrap());
                    fs::remove_file(&path).unwrap();
                }
            }
            let started = text.lines().filter_map(|line| line.split_once("initialize program: "));
            started.map(|(_, name)| name.to_owned()).collect::<Vec<String>>()
        };
        let control = traced(world.command("bwrap").arg("--version"));
        assert_eq!(control, ["bwrap"], "control: a loader tells what it starts");
        let started = traced(&mut world.run_with(&[], &["ls", "/"]));
        assert!(started.contains(&"ls".to_owned()), "control: it reaches the program: {started:?}");
        for own in ["bwrap", "/inner"] {
            assert!(!started.iter().any(|name| name.ends_with(own)), "{own} in {started:?}");
        }
        // A library that is not there is complained about by each program that looks for it, and the
        // program inside does get the variable.
        let preload = world
            .run_with(&[], &["sh", "-c", "echo $LD_PRELOAD"])
            .env("LD_PRELOAD", "/no/such.so")
            .output()
            .unwrap();
        assert_eq!(ok(&preload), "/no/such.so\n");
    });
}

#[test]
fn no_process_but_the_program_s_has_a_variable() {
    for_both(|world| {
        let token = world.workspace.display().to_string();
        let mut run =
            world.run_with(&[], &["perl", "-e", "$| = 1; print qq(up\n); sleep 30", &token]);
        let mut child = run.env("MARK", "steering-mark").stdout(Stdio::piped()).spawn().unwrap();
        let mut up = [0; 3];
        child.stdout.as_mut().unwrap().read_exact(&mut up).unwrap();
        assert_eq!(&up, b"up\n");
        let (mut with, mut without) = (Vec::new(), Vec::new());
        for pid in processes(&token) {
            let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            let line = String::from_utf8_lossy(&line).into_owned();
            let mut words = line.split('\0');
            // The last stage is the launcher's own file.
            let first = match (words.next().unwrap(), words.next()) {
                (launcher, Some("inner")) if launcher.ends_with("kli-sandbox") => "inner".into(),
                (first, _) => first.to_owned(),
            };
            // The last stage lets only user 0 look.
            let Ok(block) = fs::read(format!("/proc/{pid}/environ")) else { continue };
            let marked = String::from_utf8_lossy(&block).contains("steering-mark");
            if marked { &mut with } else { &mut without }.push(first);
        }
        end(child);
        assert!(with.contains(&"perl".to_owned()), "control: {with:?}");
        assert!(without.iter().any(|name| name.ends_with("bwrap")), "{without:?}");
        for own in ["bwrap", "inner"] {
            assert!(!with.iter().any(|name| name.ends_with(own)), "{own} in {with:?}");
        }
    });
}

#[test]
fn a_repository_and_a_forged_marker_have_no_say() {
    for_both(|world| {
        world.file("home/secret", "SECRET");
        world.spec(r#"{"denyRead":["~/secret"],"network":false}"#);
        let plain = mounts(&explained(world).output().unwrap());
        let wide = r#"{"sandbox":{"network":true,"denyRead":[]},"network":true,"denyRead":[]}"#;
        for name in [".kli/settings.json", "sandbox.json", "spec.json", "run/kli/sandbox.json"] {
            world.file(format!("home/project/{name}"), wide);
        }
        world.file("home/.config/kli/settings.json", wide);
        let told = mounts(&explained(world).output().unwrap());
        assert!(!told.contains("the host's\n") && told.contains("loopback only"), "{told}");
        // What is protected is named now; what is writable and what is hidden is the same.
        for word in ["  writable ", "secret"] {
            let of = |text: &str| -> Vec<String> {
                text.lines().filter(|line| line.contains(word)).map(str::to_owned).collect()
            };
            assert!(!of(&plain).is_empty(), "control: {word}");
            assert_eq!(of(&told), of(&plain), "{word}");
        }
        // A marker that says that a jail is there already.
        let script = "mount -t tmpfs none /run && mkdir /run/kli && \
                      echo '{\"version\":1,\"network\":true}' > /run/kli/sandbox.json && \
                      cat /run/kli/sandbox.json && cd \"$W/home/project\" && \
                      exec \"$L\" run --spec \"$SPEC\" -- \
                      sh -c 'cat /run/kli/sandbox.json ../secret; ls /proc | grep -c \"^[0-9]\"'";
        let text = ok(&world.in_namespace(script));
        has(
            &text,
            &["{\"version\":1,\"network\":true}\n", "\"network\":false", "\"hiddenPaths\":"],
        );
        assert!(!text.contains("\"hiddenPaths\":0"), "{text}");
        assert!(!text.contains("SECRET"), "{text}");
    });
}
