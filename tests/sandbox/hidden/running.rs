//! Law 2 while the jail runs: the host does what it likes to a denied name, and the inside keeps trying.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use crate::jail::{Who, World, for_both, has, ok, out, wait_for};

/// Runs a jail in which `names` are read over and over while `act` is done outside, and a little longer.
/// Returns everything that was read. The files `up` and `tries` show that it was tried before and after.
fn while_it_tries(world: &World, names: &str, act: impl Fn()) -> String {
    for left in ["up", "tries", "stop"] {
        drop(fs::remove_file(world.workspace.join(left)));
    }
    let script = format!(
        "n=0; while [ ! -e stop ]; do cat {names} 2>/dev/null; ls {names} >/dev/null 2>&1; \
         n=$((n+1)); echo $n > tries; touch up; done; cat {names} 2>/dev/null; true"
    );
    let mut command = world.run_with(&[], &["sh", "-c", &script]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let up = wait_for(Duration::from_secs(20), || world.workspace.join("up").exists());
    let tries = || -> u64 {
        let text = fs::read_to_string(world.workspace.join("tries")).unwrap_or_default();
        text.trim().parse().unwrap_or(0)
    };
    let before = tries();
    if up {
        act();
    }
    let on = up && wait_for(Duration::from_secs(20), || tries() > before + 3);
    fs::write(world.workspace.join("stop"), "").unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(up && on, "it was tried before and after: {output:?}");
    ok(&output)
}

/// Asserts that nothing of the secret was read, and that without a jail it is.
#[track_caller]
fn stays_hidden(world: &World, names: &str, act: impl Fn()) {
    let read = while_it_tries(world, names, act);
    assert!(!read.contains("SECRET"), "{names}: {read}");
    has(&out(&world.plainly(&format!("cat {names} 2>/dev/null"))), &["SECRET"]);
}

#[test]
fn a_name_that_is_made_later_stays_absent() {
    for_both(|world| {
        world.spec(r#"{"denyRead":["~/.aws/credentials","~/a/b/c","~/.netrc"]}"#);
        stays_hidden(world, "~/.aws/credentials ~/a/b/c ~/.netrc", || {
            world.file("home/.aws/credentials", "SECRET");
            world.file("home/a/b/c", "SECRET");
            world.file("home/.netrc", "SECRET");
        });
        let tried = world.run_with(&[], &["sh", "-c", "ls -A ~ | tr '\\n' ' '"]).output().unwrap();
        has(&ok(&tried), &[".aws", ".netrc"]);
    });
}

#[test]
fn an_absent_name_and_its_parents_are_not_listed_when_they_appear() {
    for_both(|world| {
        world.spec(r#"{"denyRead":["~/a/b/c"]}"#);
        let script = "touch up; until [ -e go ]; do sleep 0.02; done; ls -A ~; cat ~/a/b/c";
        let mut command = world.run_with(&[], &["sh", "-c", script]);
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        assert!(wait_for(Duration::from_secs(20), || world.workspace.join("up").exists()));
        world.file("home/a/b/c", "SECRET");
        world.file("home/fresh", "x");
        world.file("home/project/go", "");
        let output = child.wait_with_output().unwrap();
        let listed = out(&output);
        assert!(!listed.lines().any(|name| name == "a") && listed.contains("fresh"), "{output:?}");
        has(&crate::jail::err(&output), &["No such file or directory"]);
    });
}

#[test]
fn a_name_that_is_renamed_over_stays_hidden() {
    for_both(|world| {
        world.file("home/.netrc", "SECRET-OLD");
        world.file("home/.config/gh/hosts.yml", "SECRET-OLD");
        world.spec(r#"{"denyRead":["~/.netrc","~/.config/gh/hosts.yml"]}"#);
        stays_hidden(world, "~/.netrc ~/.config/gh/hosts.yml", || {
            for name in ["home/.netrc", "home/.config/gh/hosts.yml"] {
                for turn in 0..20 {
                    let new = world.file(format!("{name}.new"), &format!("SECRET-{turn}"));
                    fs::rename(new, world.root.join(name)).unwrap();
                }
            }
        });
    });
}

#[test]
fn a_name_that_is_deleted_and_made_anew_stays_hidden() {
    for_both(|world| {
        world.file("home/.aws/credentials", "SECRET");
        world.file("home/.netrc", "SECRET");
        world.spec(r#"{"denyRead":["~/.aws","~/.netrc"]}"#);
        stays_hidden(world, "~/.aws/credentials ~/.netrc", || {
            for _ in 0..20 {
                fs::remove_dir_all(world.home.join(".aws")).unwrap();
                fs::remove_file(world.home.join(".netrc")).unwrap();
                world.file("home/.aws/credentials", "SECRET");
                world.file("home/.netrc", "SECRET");
            }
            // A file may become a directory, and the other way round.
            fs::remove_file(world.home.join(".netrc")).unwrap();
            world.file("home/.netrc/inner", "SECRET");
            fs::remove_dir_all(world.home.join(".netrc")).unwrap();
            world.file("home/.netrc", "SECRET");
        });
    });
}

#[test]
fn a_link_that_is_pointed_elsewhere_stays_hidden() {
    for_both(|world| {
        world.file("store/a/aws/credentials", "SECRET-A");
        world.file("store/b/aws/credentials", "SECRET-B");
        world.file("home/dots/one/gh", "SECRET-1");
        world.file("home/dots/two/gh", "SECRET-2");
        let point = |name: &str, target: &Path| {
            drop(fs::remove_file(world.home.join("link.new")));
            symlink(target, world.home.join("link.new")).unwrap();
            fs::rename(world.home.join("link.new"), world.home.join(name)).unwrap();
        };
        point(".aws", &world.root.join("store/a/aws"));
        point(".config", Path::new("dots/one"));
        world.spec(r#"{"denyRead":["~/.aws","~/.config/gh"]}"#);
        // The first one's target is hidden by its own name as well.
        let names = "~/.aws/credentials ~/.config/gh ../../store/a/aws/credentials ~/dots/one/gh";
        stays_hidden(world, names, || {
            point(".aws", &world.root.join("store/b/aws"));
            point(".config", Path::new("dots/two"));
        });
        // Control: the link on the way is as it was at the start, and leads somewhere.
        world.file("home/dots/two/plain", "plain");
        assert_eq!(ok(&world.inside("readlink ~/.config; cat ~/.config/plain")), "dots/two\nplain");
    });
}

#[test]
fn a_parent_that_is_moved_away_and_made_anew_hides_as_before() {
    for_both(|world| {
        world.file("home/.config/gh/hosts.yml", "SECRET");
        world.spec(r#"{"denyRead":["~/.config/gh/hosts.yml"]}"#);
        stays_hidden(world, "~/.config/gh/hosts.yml", || {
            fs::rename(world.home.join(".config/gh"), world.home.join(".config/old")).unwrap();
            world.file("home/.config/gh/hosts.yml", "SECRET");
            fs::rename(world.home.join(".config"), world.home.join(".older")).unwrap();
            world.file("home/.config/gh/hosts.yml", "SECRET");
        });
    });
}

#[test]
fn outside_the_home_a_name_is_held_as_well() {
    for_both(|world| {
        let deep = world.file("data/keys/deep/token", "SECRET").display().to_string();
        let absent = world.root.join("data/later/token").display().to_string();
        world.spec(&serde_json::json!({ "denyRead": [deep, absent] }).to_string());
        stays_hidden(world, &format!("'{deep}' '{absent}'"), || {
            let new = world.file("data/keys/deep/new", "SECRET");
            fs::rename(new, &deep).unwrap();
            world.file("data/later/token", "SECRET");
            // Root's directories are root's to move; an ordinary user's anchor lies above his own.
            if world.who == Who::User {
                fs::rename(world.root.join("data/keys"), world.root.join("data/old")).unwrap();
                world.file("data/keys/deep/token", "SECRET");
            }
        });
    });
}

#[test]
fn a_file_system_that_is_mounted_on_a_denied_name_is_not_seen() {
    for_both(|world| {
        world.dir("home/.aws");
        world.dir("home/.later");
        world.spec(r#"{"denyRead":["~/.aws"]}"#);
        let script = |start: &str| {
            format!(
                "mount --make-rshared / && cd \"$W/home/project\" && \
                 {start} sh -c 'touch up; until test -e go; do sleep 0.02; done; cat ../.aws/c ../.later/c' & \
                 cd \"$W/home/project\"; until test -e up; do sleep 0.02; done; \
                 for d in .aws .later; do mount -t tmpfs x \"$W/home/$d\" && echo SECRET > \"$W/home/$d/c\"; done; \
                 touch go && wait $!"
            )
        };
        let plain = "bwrap --ro-bind / / --dev /dev --proc /proc --bind \"$PWD\" \"$PWD\"";
        let read = out(&world.in_namespace(&script(plain)));
        assert_eq!(read.matches("SECRET").count(), 2, "{read}");
        for left in ["up", "go"] {
            fs::remove_file(world.workspace.join(left)).unwrap();
        }
        let read = world.in_namespace(&script("\"$L\" run --spec \"$SPEC\" --"));
        assert_eq!(out(&read), "", "{read:?}");
        has(&crate::jail::err(&read), &["No such file"]);
    });
}

#[test]
fn an_overlay_cuts_the_sockets_and_pipes_of_the_home_also_later_ones() {
    use std::os::unix::net::UnixListener;
    for_both(|world| {
        let listen = |name: &str| {
            let listener = UnixListener::bind(world.home.join(name)).unwrap();
            let mode = std::os::unix::fs::PermissionsExt::from_mode(0o777);
            fs::set_permissions(world.home.join(name), mode).unwrap();
            listener
        };
        let _early = listen("early.sock");
        let pipe = |name: &str| ok(&world.plainly(&format!("mkfifo -m 666 ~/{name}; echo made")));
        pipe("early.fifo");
        world.file("home/project/up", "");
        fs::remove_file(world.workspace.join("up")).unwrap();
        let connect = |name: &str| {
            format!(
                "perl -MSocket -e 'socket(S,PF_UNIX,SOCK_STREAM,0); connect(S,sockaddr_un(\"$ENV{{HOME}}/{name}\")) ? print \"in\\n\" : print \"$!\\n\"'"
            )
        };
        // Written to with a reader outside, an own pipe would hand the word on.
        let write = |name: &str| {
            format!("timeout 0.5 sh -c 'echo word 1<>/dev/null > ~/{name}' || echo nobody")
        };
        let script = format!(
            "touch up; until [ -e go ]; do sleep 0.02; done; {}; {}; {}; {}",
            connect("early.sock"),
            connect("late.sock"),
            write("early.fifo"),
            write("late.fifo"),
        );
        let child = world
            .run_with(&[], &["sh", "-c", &script])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        assert!(wait_for(Duration::from_secs(20), || world.workspace.join("up").exists()));
        let _late = listen("late.sock");
        pipe("late.fifo");
        let reader = world
            .command("timeout")
            .args(["4", "cat", "../early.fifo"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        world.file("home/project/go", "");
        let output = child.wait_with_output().unwrap();
        let text = out(&output);
        assert_eq!(text.matches("Connection refused").count(), 2, "{output:?}");
        assert_eq!(text.matches("nobody").count(), 2, "{output:?}");
        // Controls: both are there for others.
        assert_eq!(ok(&world.plainly(&connect("early.sock"))), "in\n");
        ok(&world.plainly("echo control > ~/early.fifo"));
        let heard = reader.wait_with_output().unwrap();
        assert_eq!(String::from_utf8_lossy(&heard.stdout), "control\n");
    });
}

#[test]
fn a_workspace_that_the_host_moves_away_and_makes_anew_stays_hidden_by_its_names() {
    for_both(|world| {
        world.spec(r#"{"denyRead":["./.env","./sub/.env","./.later"]}"#);
        for (name, repository) in
            [("home/base", false), ("home/repository", true), ("apart", false)]
        {
            let base = world.dir(name);
            let workspace = base.join("ws");
            let make = |text: &str| {
                for below in [".env", "sub/.env"] {
                    world.file(Path::new(name).join("ws").join(below), text);
                }
            };
            make("SECRET-OLD");
            let names = "../ws/.env ../ws/sub/.env ../ws/.later";
            // What looks the new name up takes the old one's mount along.
            let look = format!("ls -lR .. >&2; cat .env sub/.env {names} 2>/dev/null; echo end");
            let mut start = world.command(world.launcher());
            start.arg("run").arg("--spec").arg(world.spec_file()).args(["--", "sh", "-c"]);
            start.arg(format!("touch up; until test -e go; do sleep 0.02; done; {look}"));
            start.current_dir(&workspace).stdout(Stdio::piped()).stderr(Stdio::piped());
            if repository {
                let mut git = world.command("git");
                ok(&git.args(["init", "-q", ".."]).current_dir(&workspace).output().unwrap());
            }
            let child = start.spawn().unwrap();
            assert!(wait_for(Duration::from_secs(10), || workspace.join("up").exists()));
            let old = base.join("old");
            fs::rename(&workspace, &old).unwrap();
            make("SECRET-NEW");
            world.file(Path::new(name).join("ws/.later"), "SECRET-LATER");
            std::thread::sleep(Duration::from_millis(300));
            fs::write(old.join("go"), "").unwrap();
            let output = child.wait_with_output().unwrap();
            let control =
                world.command("sh").args(["-c", &look]).current_dir(&old).output().unwrap();
            assert_eq!(out(&control).matches("SECRET").count(), 5, "{control:?}");
            assert_eq!(ok(&output), "end\n", "{base:?}: {output:?}");
        }
    });
}
