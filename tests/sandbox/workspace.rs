//! Law 10: which directories can be the workspace.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::jail::{Who, World, for_both, has, ok, refused};

#[test]
fn the_system_the_home_and_hidden_directories_are_refused() {
    for_both(|world| {
        for hidden in [
            "home/.ssh",
            "home/.config/kli/deep",
            "home/.local/share",
            "home/.local/state/kli",
            "home/.ssh/deep",
        ] {
            world.dir(hidden);
        }
        let marker = format!("{}-effect", world.root.file_name().unwrap().to_str().unwrap());
        let mut places: Vec<_> = [
            "/", "/home", "/etc", "/usr", "/usr/bin", "/tmp", "/run", "/var", "/proc", "/sys",
            "/dev",
        ]
        .map(std::path::PathBuf::from)
        .to_vec();
        places.extend(
            [
                "home",
                "home/.ssh",
                "home/.ssh/deep",
                "home/.config",
                "home/.config/kli",
                "home/.config/kli/deep",
                "home/.local/share",
                "home/.local/state/kli",
            ]
            .map(|it| world.root.join(it)),
        );
        places.push(world.root.clone());
        for place in places {
            let mut command = world.run_with(&[], &["touch", &marker]);
            let text = refused(&command.current_dir(&place).output().unwrap());
            has(
                &text,
                &[
                    &format!("`{}` cannot be the workspace: ", place.display()),
                    "change to a project's directory",
                ],
            );
            assert!(!place.join(&marker).exists());
        }
        ok(&world.inside("touch effect"));
        assert!(world.workspace.join("effect").exists());
    });
}

#[test]
fn the_home_is_a_workspace_when_allowed_and_its_configuration_is_not() {
    for_both(|world| {
        world.file("home/.config/kli/settings.json", "{}");
        world.spec(r#"{"allowHomeWorkspace":true}"#);
        let start = |script: &str| {
            world.run_with(&[], &["sh", "-c", script]).current_dir(&world.home).output().unwrap()
        };
        ok(&start("touch effect"));
        assert!(world.home.join("effect").exists());
        let tried = start("echo x > .config/kli/settings.json");
        has(&crate::jail::err(&tried), &["Read-only file system"]);
        let mut inside_own = world.run_with(&[], &["true"]);
        refused(&inside_own.current_dir(world.home.join(".config/kli")).output().unwrap());
    });
}

#[test]
fn a_workspace_through_a_symbolic_link_works_at_its_physical_path() {
    for_both(|world| {
        let link = world.link("link", "home/project");
        let mut command =
            world.run_with(&[], &["sh", "-c", "pwd; pwd -P; echo $PWD; touch effect"]);
        let output = command.current_dir(&link).env("PWD", &link).output().unwrap();
        assert_eq!(ok(&output), format!("{}\n", world.workspace.display()).repeat(3));
        assert!(world.workspace.join("effect").exists());
    });
}

#[test]
fn any_bytes_in_the_name_work() {
    for_both(|world| {
        let names: [&[u8]; 5] =
            [b"with space", b"new\nline", b"quote'\"$HOME", b"-rf", b"\xff\xfe"];
        for name in names {
            let place = world.dir(Path::new("home").join(OsStr::from_bytes(name)));
            let mut command = world.run_with(&[], &["sh", "-c", "touch ./effect; pwd"]);
            let output = command.current_dir(&place).output().unwrap();
            ok(&output);
            assert_eq!(output.stdout, [place.as_os_str().as_bytes(), b"\n"].concat());
            assert!(place.join("effect").exists());
        }
    });
}

#[test]
fn a_workspace_and_a_home_below_tmp_work() {
    for who in [Who::User, Who::Root] {
        let world = World::below(who, Path::new("/tmp"));
        world.file("home/.netrc", "SECRET");
        world.file("home/.plain", "plain");
        world.file("home/project/.env", "SECRET");
        world.file("stranger", "elsewhere in /tmp");
        world.spec(r#"{"denyRead":["~/.netrc","./.env"]}"#);
        let output = world.inside("cat ~/.netrc .env ~/.plain && touch effect && touch ~/.local/state/kli/s; ls ../..; touch ~/new");
        assert_eq!(crate::jail::out(&output), "plainhome\n");
        has(&crate::jail::err(&output), &["Read-only file system"]);
        assert!(world.workspace.join("effect").exists());
        assert!(world.home.join(".local/state/kli/s").exists());
        assert!(!world.home.join("new").exists());
        // A program that lies below /tmp itself is there too.
        let program = world.file("tool", "#!/bin/sh\necho tool\n");
        fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        assert_eq!(
            ok(&world.run_with(&[], &[program.to_str().unwrap()]).output().unwrap()),
            "tool\n"
        );
        world.keep_until_here();
    }
}

#[test]
fn a_workspace_below_run_works() {
    for_both(|world| {
        let script = "mount -t tmpfs run /run && mkdir -p /run/work/here /run/work/beside && cd /run/work/here && \
            \"$L\" run --spec \"$SPEC\" -- sh -c 'pwd; echo x > effect; ls /run/work; touch /run/new' ; cat effect";
        let output = world.in_namespace(script);
        assert_eq!(crate::jail::out(&output), "/run/work/here\nhere\nx\n");
        has(&crate::jail::err(&output), &["Read-only file system"]);
    });
}

#[test]
fn a_removed_workspace_is_refused() {
    for_both(|world| {
        let start = format!(
            "mkdir gone && cd gone && rmdir ../gone && '{}' run --spec '{}' -- true",
            world.launcher().display(),
            world.spec_file().display()
        );
        has(
            &refused(&world.plainly(&start)),
            &["the current directory cannot be named", "change to an existing directory"],
        );
    });
}

#[test]
fn root_in_a_directory_of_another_user_is_told_so() {
    if rustix::process::geteuid().as_raw() != 0 {
        // An ordinary user can only lose a directory that it is already in.
        let world = World::new(Who::User);
        let start = format!(
            "mkdir -p a/b && cd a/b && chmod 0 .. && '{}' run --spec '{}' -- true; code=$?; \
             chmod 700 ..; exit $code",
            world.launcher().display(),
            world.spec_file().display()
        );
        has(&refused(&world.plainly(&start)), &["the current directory cannot be named"]);
        return;
    }
    let world = World::new(Who::Root);
    let place = world.dir("home/other");
    std::os::unix::fs::chown(&place, Some(4242), Some(4242)).unwrap();
    fs::set_permissions(&place, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    let inner = world.dir("home/other/project");
    std::os::unix::fs::chown(&inner, Some(4242), Some(4242)).unwrap();
    let text = refused(&world.run_with(&[], &["true"]).current_dir(&inner).output().unwrap());
    has(&text, &["belongs to user 4242", "runuser -u"]);
    // In reach, but not writable: it starts, and says so.
    fs::set_permissions(&place, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let mut command = world.run_with(&[], &["touch", "effect"]);
    let output = command.current_dir(&inner).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    has(
        &crate::jail::err(&output),
        &["note: the workspace belongs to user 4242", "Permission denied"],
    );
}

#[test]
fn a_specification_that_the_inside_could_rewrite_is_refused() {
    for_both(|world| {
        let inside = world
            .file(world.workspace.join("sandbox.json").strip_prefix(&world.root).unwrap(), "{}");
        let link = world.link("link.json", &inside);
        for file in [&inside, &link] {
            let output = world
                .command(world.launcher())
                .args(["run", "--spec"])
                .arg(file)
                .args(["--", "touch", "effect"])
                .output();
            has(&refused(&output.unwrap()), &["lies inside", "keep it elsewhere"]);
        }
        assert!(!world.workspace.join("effect").exists());
        ok(&world.inside("touch effect"));
        assert!(world.workspace.join("effect").exists(), "control: from outside it works");
    });
}

#[test]
fn a_state_directory_of_another_name_is_kli_s_own_too() {
    for_both(|world| {
        world.dir("elsewhere/state/deep");
        for place in ["elsewhere/state", "elsewhere/state/deep"] {
            let place = world.root.join(place);
            let run = |named: &str| {
                let mut run = world.run_with(&[], &["touch", "effect"]);
                run.env("KLI_STATE_DIR", world.root.join(named)).current_dir(&place);
                run.output().unwrap()
            };
            has(&refused(&run("elsewhere/state")), &["it belongs to kli itself"]);
            assert!(!place.join("effect").exists());
            ok(&run("elsewhere/other"));
            assert!(place.join("effect").exists(), "control");
        }
    });
}

/// One project has one list of sessions, whatever way somebody went there.
#[test]
fn a_session_begun_through_a_symbolic_link_is_gone_on_with_at_the_physical_path() {
    for_both(|world| {
        let kli = world.root.join("kli");
        fs::copy(env!("CARGO_BIN_EXE_kli"), &kli).unwrap();
        let recording = world.file("recording.jsonl", "{\"text\":\"one\"}\n");
        let settings = serde_json::json!({"providers": {"replay": {"file": recording}}});
        // As home-manager leaves it: a link to a link out of the home.
        world.file("store/settings.json", &settings.to_string());
        world.dir("home/.config/kli");
        world.link("home/generation", world.root.join("store"));
        world.link("home/.config/kli/settings.json", world.home.join("generation/settings.json"));
        let link = world.link("logical", &world.workspace);
        let run = |place: &Path, further: &[&str]| {
            let kli = kli.to_str().unwrap();
            let words = [&[kli, "-p", "go", "--model", "replay/x"], further].concat();
            let mut command = world.run_with(&[], &words);
            command.current_dir(place).env("PWD", place);
            ok(&command.output().unwrap())
        };
        assert_eq!(run(&link, &[]), "one\n");
        assert_eq!(run(&world.workspace, &["--continue"]), "one\n");
        let list = |place: &Path| {
            let mut command = world.command(&kli);
            command.args(["sessions", "list"]).current_dir(place).env("PWD", place);
            ok(&command.output().unwrap())
        };
        assert_eq!(list(&link), list(&world.workspace));
        let lines = list(&world.workspace).lines().count();
        assert_eq!(lines, 2, "a heading and one session: {}", list(&world.workspace));
        let other = world.dir("home/other");
        assert_ne!(list(&other), list(&world.workspace), "control");
        // And it cannot be written through the links either.
        let tried =
            world.inside("cat ~/.config/kli/settings.json; echo x > ~/.config/kli/settings.json");
        has(&crate::jail::out(&tried), &["replay"]);
        has(&crate::jail::err(&tried), &["Read-only file system"]);
    });
}
