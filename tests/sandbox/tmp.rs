//! `/tmp` inside: private, in memory or in a directory of the run on disk, and gone at the end.

use std::fs;
use std::io::Read;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::PathBuf;
use std::time::Duration;

use crate::jail::{World, for_both, has, ok, processes, refused, wait_for};

fn left(world: &World) -> Vec<PathBuf> {
    let entries = fs::read_dir(world.root.join("scratch")).unwrap();
    entries.map(|entry| entry.unwrap().path()).collect()
}

#[test]
fn on_disk_it_is_private_and_removed_with_all_that_is_in_it() {
    for_both(|world| {
        let place = world.dir("scratch");
        world.file("home/kept/file", "kept");
        let script = "stat -c '%a %u' /tmp; mktemp; echo $TMPDIR; \
                      mkdir -p /tmp/a/b/c && ln -s \"$HOME/kept\" /tmp/a/link && ln -s / /tmp/root && \
                      touch /tmp/a/b/c/file && chmod 000 /tmp/a/b; \
                      printf '#!/bin/sh\\necho runs\\n' > /tmp/x; chmod +x /tmp/x; /tmp/x; \
                      stat -f -c %T /tmp; stat -f -c %T /dev/shm";
        let run = |spec: &str| {
            world.spec(spec);
            ok(&world.run_with(&[], &["sh", "-c", script]).env("TMPDIR", &place).output().unwrap())
        };
        let uid = fs::metadata(&world.home).unwrap().uid();
        let uid = if rustix::process::geteuid().is_root() { uid } else { 0 };
        let memory = run("{}");
        let disk = run(r#"{"tmp":"host-subdir"}"#);
        for text in [&memory, &disk] {
            has(text, &["1777 ", "\n/tmp/tmp.", "\n/tmp\n", "runs\n"]);
        }
        has(&disk, &[&format!("1777 {uid}\n")]);
        let kinds =
            |text: &str| -> Vec<String> { text.lines().rev().take(2).map(str::to_owned).collect() };
        assert_eq!(kinds(&memory)[0], kinds(&memory)[1], "control: memory is memory");
        assert_ne!(kinds(&disk)[0], kinds(&disk)[1], "it is not in memory: {disk}");
        assert!(left(world).is_empty(), "{:?}", left(world));
        assert_eq!(fs::read_to_string(world.home.join("kept/file")).unwrap(), "kept");
    });
}

#[test]
fn on_disk_the_directory_is_closed_to_others_and_two_runs_share_nothing() {
    for_both(|world| {
        let place = world.dir("scratch");
        world.spec(r#"{"tmp":"host-subdir"}"#);
        let start = || {
            let token = world.workspace.display().to_string();
            let script = "open F, '>', '/tmp/mine'; print qq(up\\n); close STDOUT; sleep 30";
            let mut run = world.run_with(&[], &["perl", "-e", script, &token]);
            run.env("TMPDIR", &place).stdout(std::process::Stdio::piped()).spawn().unwrap()
        };
        let mut first = start();
        let mut up = [0; 3];
        first.stdout.as_mut().unwrap().read_exact(&mut up).unwrap();
        assert_eq!(&up, b"up\n");
        let there = left(world);
        assert_eq!(there.len(), 1);
        assert_eq!(fs::metadata(&there[0]).unwrap().permissions().mode() & 0o7777, 0o700);
        assert!(there[0].join("tmp/mine").exists(), "control");
        // A second run while the first goes on: it neither sees nor sweeps it.
        let mut second = world.run_with(&[], &["sh", "-c", "ls -A /tmp; touch /tmp/x"]);
        assert_eq!(ok(&second.env("TMPDIR", &place).output().unwrap()), "");
        assert_eq!(left(world), there);
        // A launcher that is killed cleans up nothing; the next start does.
        let token = world.workspace.display().to_string();
        let launcher = processes(&token).into_iter().find(|pid| {
            let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&line).starts_with(&*world.launcher().to_string_lossy())
        });
        let launcher = rustix::process::Pid::from_raw(launcher.unwrap()).unwrap();
        rustix::process::kill_process(launcher, rustix::process::Signal::KILL).unwrap();
        first.wait().unwrap();
        assert!(wait_for(Duration::from_secs(5), || processes(&token).is_empty()));
        assert_eq!(left(world), there, "control: it is left");
        ok(&world.run_with(&[], &["true"]).env("TMPDIR", &place).output().unwrap());
        assert!(left(world).is_empty(), "{:?}", left(world));
    });
}

#[test]
fn a_place_on_disk_that_the_inside_or_others_could_steer_is_refused() {
    for_both(|world| {
        let open = world.dir("scratch");
        fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).unwrap();
        world.dir("home/project/sub");
        world.dir("home/cache");
        world.dir("home/target");
        world.link("home/cache/planted", world.home.join("target"));
        let spec = r#"{"tmp":"host-subdir","writablePaths":["~/cache"],"denyRead":["~/hidden"]}"#;
        world.dir("home/hidden/tmp");
        world.spec(spec);
        for (place, part) in [
            ("scratch", "another user could put something else at its name there"),
            ("home/project/sub", "which the inside can write: set TMPDIR to another directory"),
            ("home/cache/planted", "planted` is a symbolic link inside `"),
            ("home/hidden/tmp", "it lies inside the denied path `"),
            ("home/absent", "it is no directory"),
            ("spec.json", "it is no directory"),
        ] {
            let mut run = world.run_with(&[], &["touch", "effect"]);
            let told = refused(&run.env("TMPDIR", world.root.join(place)).output().unwrap());
            has(&told, &["`tmp`: ", part]);
            assert!(!world.workspace.join("effect").exists(), "{place}");
        }
        assert!(left(world).is_empty());
        fs::set_permissions(&open, fs::Permissions::from_mode(0o755)).unwrap();
        ok(&world.run_with(&[], &["touch", "effect"]).env("TMPDIR", &open).output().unwrap());
        assert!(world.workspace.join("effect").exists(), "control");
        let mut told = world.command(world.launcher());
        told.arg("explain").arg(world.spec_file()).env("TMPDIR", &open);
        has(&ok(&told.output().unwrap()), &["`tmp`: a /tmp of this run on disk"]);
        assert!(left(world).is_empty(), "explain makes nothing");
    });
}

#[test]
fn a_mask_that_takes_everything_takes_nothing_from_what_the_launcher_makes() {
    for_both(|world| {
        world.spec(r#"{"writablePaths":["~/new/deep"],"tmp":"host-subdir"}"#);
        let run = |script: &str| {
            let mut command = world.command("sh");
            command.args(["-c", "umask 0777; exec \"$@\"", "sh"]).arg(world.launcher());
            command.arg("run").arg("--spec").arg(world.spec_file());
            command.args(["--", "sh", "-c", script]).output().unwrap()
        };
        let said =
            run("umask; umask 077; echo x > ~/new/deep/file && echo x > /tmp/file && echo made");
        assert_eq!(ok(&said), "0777\nmade\n", "the program has the caller's");
        for directory in ["new", "new/deep", ".local/state/kli"] {
            let mode = fs::metadata(world.home.join(directory)).unwrap().permissions().mode();
            assert_eq!(mode & 0o7777, 0o700, "{directory}");
        }
    });
}
